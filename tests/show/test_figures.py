"""The figures show the numbers that Python computes, in the explorer's colours, with units on their axes."""

import io
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import clockhands as ch
from clockhands.errors import InvalidValue
from clockhands.measures import phase_errors
from clockhands.show import _figures as figures
from clockhands.show._colours import colours, signed_colours
from clockhands.show.explorer import page as bundle


@pytest.fixture(autouse=True)
def _matplotlib():
    pytest.importorskip("matplotlib")


PAPER = ch.preset("vaswani2017")
SCALED = ch.preset("llama3.1")
MADE = {
    "heatmap": lambda **theme: figures.heatmap(PAPER, 64, **theme),
    "clock": lambda **theme: figures.clock(PAPER, 100, **theme),
    "pair": lambda **theme: figures.pair(PAPER, 4, **theme),
    "shift": lambda **theme: figures.shift(PAPER, 3, **theme),
    "kernel": lambda **theme: figures.kernel(PAPER, SCALED, length=512, **theme),
    "ladder": lambda **theme: figures.ladder(SCALED, 8192, served=131072, **theme),
    "precision": lambda **theme: figures.precision(PAPER, **theme),
    "bias": lambda **theme: figures.bias(ch.Alibi(heads=8), 64, **theme),
    "attention": figures.attention,
}
WITH_UNITS = {
    "heatmap": {"channel", "position (token)"},
    "pair": {"position (token)"},
    "kernel": {"distance (token)"},
    "ladder": {"wavelength (token), log"},
    "precision": {"position (token), log", "largest error of an angle (rad), log"},
    "bias": {"distance (token)", "added to the score"},
}


def texts(figure):
    return [text.get_text() for text in figure.texts]


def test_all_figures_are_reached_from_the_package():
    assert set(MADE) == set(figures.__all__)
    assert all(getattr(ch.show, name) is getattr(figures, name) for name in figures.__all__)
    assert set(figures.__all__) < set(dir(ch.show))
    with pytest.raises(AttributeError, match="histogram"):
        _ = ch.show.histogram


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_figure_has_a_question_an_answer_and_the_themes_paper(theme, cases):
    from matplotlib.colors import to_hex

    for name, make in MADE.items():
        with cases(name):
            figure = make(theme=theme)
            question, answer = texts(figure)
            assert question.endswith("?")
            assert any(sign.isdigit() for sign in answer)
            assert to_hex(figure.get_facecolor()) == colours(theme)["paper"]
            named = {axes.get_xlabel() for axes in figure.axes} | {axes.get_ylabel() for axes in figure.axes}
            assert WITH_UNITS.get(name, set()) <= named


def fits(figure):
    """Whether nothing of a figure is clipped or laid over its heading when it is drawn."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer, whole = canvas.get_renderer(), figure.bbox
    heading = [text.get_window_extent(renderer) for text in figure.texts]
    for axes in figure.axes:
        inside = axes.get_tightbbox(renderer)
        assert whole.x0 - 1 <= inside.x0 < inside.x1 <= whole.x1 + 1, axes.get_xlabel()
        assert inside.y0 >= whole.y0 - 1
        assert inside.y1 <= min(box.y0 for box in heading) + 1
    return all(box.x1 <= whole.x1 for box in heading)


def test_every_figure_fits_its_canvas(cases):
    for name, make in MADE.items():
        with cases(name):
            assert fits(make())


def test_a_notebook_shows_it_at_its_own_size():
    picture, size = MADE["ladder"]()._repr_png_()
    assert picture.startswith(b"\x89PNG")
    assert int.from_bytes(picture[16:20]) == pytest.approx(1.5 * size["width"], abs=2)  # 144 dots an inch


def test_the_colours_are_those_of_the_style_sheet():
    sheet = bundle.source("style.css")
    for theme, place in (("light", 0), ("dark", 1)):
        for name in ("ink", "paper", "quiet", "rule", "sine", "cosine", "error"):
            pair = sheet.split(f"--{name}: light-dark(")[1].split(")")[0].split(", ")
            assert colours(theme)[name] == pair[place]
    with pytest.raises(InvalidValue, match="theme"):
        figures.kernel(PAPER, theme="sepia")


def test_the_heatmap_is_the_table():
    axes = figures.heatmap(PAPER, 64).axes[0]
    assert np.array_equal(np.asarray(axes.images[0].get_array()), ch.table(PAPER, 64, dtype="float64"))
    # Pairs that never complete a turn in 64 tokens, from the first of them on.
    slow = [pair for pair, rate in enumerate(PAPER.rates) if rate * 64 < 2 * np.pi]
    assert axes.lines[0].get_xdata()[0] == 2 * slow[0] - 0.5
    assert f"{len(slow)} of 256 pairs" in said(axes.figure)


def test_the_heatmap_of_a_rotary_code_has_sines_and_cosines_where_its_pairs_are():
    spec = ch.Rotary(head_width=8, layout="halves")
    shown = np.asarray(figures.heatmap(spec, 16).axes[0].images[0].get_array())
    phases = np.outer(np.arange(16), spec.rates)
    assert shown == pytest.approx(np.concatenate([np.sin(phases), np.cos(phases)], axis=1), abs=1e-12)


def test_the_heatmap_shows_learned_numbers():
    values = np.arange(12.0).reshape(4, 3) - 5
    figure = figures.heatmap(ch.Learned(width=3, rows=4), 4, values=values)
    assert np.array_equal(np.asarray(figure.axes[0].images[0].get_array()), values)


def test_the_hands_of_the_clock_stand_where_the_position_says():
    spec = ch.Sinusoidal(width=16)
    axes = figures.clock(spec, 1000).axes[0]
    arms = [line for line in axes.lines if len(line.get_xdata()) == 2]
    assert len(arms) == 8
    for arm, rate in zip(arms, spec.rates, strict=True):
        across, up = np.diff(arm.get_xdata())[0], np.diff(arm.get_ydata())[0]
        assert (across, up) == pytest.approx((np.cos(1000 * rate), np.sin(1000 * rate)), abs=1e-9)


def test_one_height_of_a_wave_has_two_positions():
    spec = ch.Sinusoidal(width=16)
    waves = figures.pair(spec, 1, position=7).axes[0]
    points = [(line.get_xdata()[0], line.get_ydata()[0]) for line in waves.lines if len(line.get_xdata()) == 1]
    (here, sine), (there, same), (_, cosine), (_, other) = points
    rate = spec.rates[1]
    assert (here, sine) == (7, pytest.approx(np.sin(7 * rate)))
    assert there > here
    assert np.sin(there * rate) == pytest.approx(sine) == same
    assert (cosine, other) == pytest.approx((np.cos(7 * rate), np.cos(there * rate)))


def test_a_shift_turns_each_hand_by_its_own_angle_from_any_start():
    spec = ch.Sinusoidal(width=12)
    axes = figures.shift(spec, 5, starts=(0, 123)).axes[0]
    arcs = [np.array(line.get_xydata()) for line in axes.lines if len(line.get_xdata()) == 40]
    centres = [np.array([2.8 * column, -2.6 * row]) for row in range(2) for column in range(6)]
    for place, (arc, centre) in enumerate(zip(arcs, centres, strict=True)):
        angles = np.unwrap(np.arctan2(*(arc - centre).T[::-1]))
        turned = (5 * spec.rates[place % 6] + np.pi) % (2 * np.pi) - np.pi
        assert angles[-1] - angles[0] == pytest.approx(turned, abs=1e-9)
    # Under each column stand its pair and the angle, after the words of the two rows.
    named = [text.get_text().split() for text in axes.texts[2:]]
    assert [(pair, int(number), unit) for pair, number, _, unit in named] == [("pair", n, "rad") for n in range(6)]
    wanted = [(5 * rate + np.pi) % (2 * np.pi) - np.pi for rate in spec.rates]
    assert [float(angle) for _, _, angle, _ in named] == pytest.approx(wanted, rel=5e-3)
    with pytest.raises(InvalidValue):
        figures.shift(ch.additive.WarpedPosition(width=8, warp="square"), 3)


def test_the_kernel_is_the_mean_of_the_cosines_and_its_first_rise_is_marked():
    axes = figures.kernel(PAPER, length=256).axes[0]
    curve = next(line for line in axes.lines if len(line.get_xdata()) == 256)
    assert curve.get_ydata() == pytest.approx(ch.kernel(PAPER, range(256)) / 256, abs=1e-12)
    rising = next(line for line in axes.lines if line.get_marker() == "^")
    at = int(rising.get_xdata()[0])
    values = curve.get_ydata()
    assert values[at + 1] > values[at]
    assert (np.diff(values[: at + 1]) < 0).all()


def test_the_ladder_marks_every_pair_by_what_it_does_within_the_length():
    figure = figures.ladder(SCALED, 8192, served=131072)
    rows: dict[float, int] = {}
    for group in figure.axes[0].collections:
        for segment in group.get_segments():
            rows[round(segment[1][1] - 0.25)] = rows.get(round(segment[1][1] - 0.25), 0) + 1
    assert rows == {0: 64, 1: 64}
    told = said(figure)
    plain = np.array(ch.preset("llama3").rates)
    never = plain * 8192 < 2 * np.pi
    beyond = never & (np.array(SCALED.rates) * 131072 > plain * 8192 * (1 + 1e-9))
    assert f"{never.sum()} of 64 pairs never" in told
    assert f"{beyond.sum()} of them rotate further" in told


def test_the_ladder_says_trained_only_of_a_length_that_is_known():
    of_scaling = " ".join(texts(figures.ladder(ch.preset("llama3.1")))).replace("\n", " ")
    assert "trained 8,192" in of_scaling
    assert "within the trained 8,192 tokens before the scaling" in of_scaling
    plain = " ".join(texts(figures.ladder(ch.preset("llama3")))).replace("\n", " ")
    assert "never complete a rotation within 2,048 tokens." in plain
    assert "trained" not in plain
    assert "trained 4,096" in " ".join(texts(figures.ladder(ch.preset("llama3"), 4096)))


def test_the_error_of_each_dtype_is_the_measured_one():
    figure = figures.precision(ch.Sinusoidal(width=8), ("float32", "bfloat16"))
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 2]
    for line, dtype in zip(lines, ("float32", "bfloat16"), strict=True):
        at = [int(position) for position in line.get_xdata()]
        assert min(at) < 10
        assert max(at) > 10**9
        errors = np.abs(phase_errors(ch.Sinusoidal(width=8).ladder, at, dtype, "throughout")).max(axis=1)
        kept = errors > 0
        assert np.asarray(line.get_ydata())[kept] == pytest.approx(errors[kept])
    assert "bfloat16 is off by a radian from position 257 on" in said(figure)


def test_the_bias_of_each_head_falls_by_its_slope():
    spec = ch.Alibi(heads=4)
    axes = figures.bias(spec, 32).axes[0]
    lines = [line.get_ydata() for line in axes.lines]
    assert np.array(lines) == pytest.approx(-np.outer([2.0 ** -(2 * head) for head in (1, 2, 3, 4)], np.arange(32)))


def weights_of(figure):
    return [np.asarray(axes.images[0].get_array()) for axes in figure.axes[:4]]


def test_two_orders_look_the_same_without_a_code_and_different_with_one(cases):
    for code in ("sinusoidal", "rotary", "alibi"):
        # Not the second from its end: a distance without its sign tells these two apart.
        figure = figures.attention(code, sentences=("dog bites man", "bites dog man"))
        first, second, with_code, other = weights_of(figure)
        with cases(code):
            assert first == pytest.approx(second, abs=1e-12)
            assert np.abs(with_code - other).max() > 0.01
            for weights in (first, with_code, other):
                assert weights.sum(axis=1) == pytest.approx(1)
            assert f"it can: a weight moves by up to {np.abs(with_code - other).max():.2g}" in said(figure)


def said(figure):
    return " ".join(texts(figure)).replace("\n", " ")


def test_alibi_without_a_mask_does_not_tell_a_sentence_from_its_mirror_image():
    figure = figures.attention("alibi")
    plain, _, with_code, other = weights_of(figure)
    assert with_code == pytest.approx(other, abs=1e-12)
    assert np.abs(with_code - plain).max() > 0.01
    assert "With ALiBi it cannot either" in said(figure)
    assert "not on its side" in said(figure)


def in_node(module: str, names: str, value: str):
    """What an expression of the page's own mathematics is, in Node."""
    place = Path(bundle.__file__).parent / "js" / module
    script = f"import({json.dumps(place.as_uri())}).then(({names}) => console.log(JSON.stringify({value})));"
    return json.loads(subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(shutil.which("node") is None, reason="the page's own mathematics runs in Node")
def test_the_page_draws_the_same_colours_and_the_same_weights_for_the_same_seed():
    values, themes, seeds = [-1.0, -0.3, 0.0, 0.001, 0.5, 1.0], ("light", "dark"), (0, 5)
    each = f"{json.dumps(themes)}.map((theme) => {values}.map((value) => diverging(value, theme)))"
    for theme, drawn in zip(themes, in_node("colours.js", "{ diverging }", each), strict=True):
        expected = np.clip(np.array(drawn) / 255, 0, 1)
        assert signed_colours(np.array(values), theme) == pytest.approx(expected, abs=1e-12)
    each = (
        f'{json.dumps(seeds)}.map((seed) => ["none", "sinusoidal", "rotary", "alibi"].map((code) => sentenceAttention('
        '["dog", "bites", "man"], { code, seed }).weights[0].map((row) => Array.from(row))))'
    )
    for seed, drawn in zip(seeds, in_node("attention.js", "{ sentenceAttention }", each), strict=True):
        without, *on_the_page = map(np.array, drawn)
        for code, weights in zip(("sinusoidal", "rotary", "alibi"), on_the_page, strict=True):
            plain, _, with_code, _ = weights_of(figures.attention(code, seed=seed))
            assert plain == pytest.approx(without, abs=1e-13)
            assert with_code == pytest.approx(weights, abs=1e-13)


def test_a_hand_that_stands_still_is_said_to_never_turn():
    spec = ch.Rotary(head_width=8, scaling=ch.scaling.Proportional(0.5, 1.0))
    assert "Pair 0 completes one rotation in 6.283 tokens, pair 3 never rotates." in said(figures.clock(spec, 5))


def test_a_name_with_a_dollar_sign_is_no_formula():
    figure = figures.attention(sentences=("$x^2$ bites man", "man bites $x^2$"))
    figure.savefig(io.BytesIO(), format="png")
    assert figure.axes[0].get_title(loc="left").startswith("“")
