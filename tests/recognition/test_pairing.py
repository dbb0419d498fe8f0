"""Pairs told from weights: the statistic against its definition, and real weights in both layouts and in none."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

import packaged_weights
from clockhands.errors import InvalidValue
from clockhands.recognition import pairing
from clockhands.recognition.pairing import LAYOUTS, Score, score, together


def scores(layers, heads):
    return [score(rows.reshape(heads, -1, rows.shape[-1])) for rows in layers]


def definition(heads, layout):
    """The statistic as its docstring says it, one block after the other: straight products, less crossed ones."""
    straight = crossed = 0.0
    for head in heads:
        rows = head / np.linalg.norm(head, axis=1, keepdims=True)
        gram, half = rows @ rows.T, len(rows) // 2
        pairs = [(2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + half) for i in range(half)]
        for (i, first), (j, second) in itertools.permutations(enumerate(pairs), 2):
            ((one, two), (three, four)) = gram[np.ix_(first, second)]
            straight += math.exp(-abs(i - j) / 4) * one * four
            crossed -= math.exp(-abs(i - j) / 4) * two * three
    return straight, crossed


def drawn(heads=2, rotated=8, inputs=5, seed=0):
    """Rows that are no noise: neighbours are alike, as in real heads."""
    draw = np.random.default_rng(seed)
    return np.cumsum(draw.standard_normal((heads, rotated, inputs)), axis=1)


def test_the_statistic_is_what_its_definition_says(cases):
    for layout in LAYOUTS:
        with cases(layout):
            heads = drawn()
            made, defined = pairing._statistic(pairing._grams(heads), layout), definition(heads, layout)
            assert sum(made) == pytest.approx(sum(defined), rel=1e-5)
            assert made[0] - defined[0] == pytest.approx(defined[1] - made[1], rel=1e-5)


def test_means_and_variance_are_those_of_all_orders_of_the_channels():
    heads = drawn()
    grams = pairing._grams(heads)
    # Pairs in reverse, or the channels of each pair exchanged, leave it as it is: of such four orders, one is asked.
    orders = [at for at in itertools.permutations(range(8)) if at[0] == min(at[0], at[3], at[4], at[7])]
    values = np.array([pairing._statistic(grams[np.ix_(range(2), at, at)], "halves") for at in orders])
    whole = values.sum(axis=1)
    assert np.abs(values.mean(axis=0)).max() < 1e-10 * whole.std()
    assert pairing._variance(grams) == pytest.approx(whole.var(), rel=1e-5)


def test_equal_weights_give_equal_numbers_whatever_their_scale():
    heads = drawn(rotated=16, inputs=12)
    one, two = score(heads), score(heads * np.linspace(0.1, 10, 16)[:, None])
    assert one.z == score(heads.copy()).z
    assert two.z == pytest.approx(one.z, rel=1e-4)


def test_real_models_pair_as_their_files_do_and_in_halves_with_their_rows_put_back():
    """Each model as a whole, and at least 95 of 100 of its layers; none is wrong."""
    smollm2, glassllm, said = packaged_weights.smollm2(), packaged_weights.glassllm(), []
    for stored, heads, least in ((smollm2["q"], 9, 250), (glassllm["q"], 4, 10)):
        for layout, other in (LAYOUTS, LAYOUTS[::-1]):
            rows = stored if layout == "interleaved" else [packaged_weights.halves(each, heads) for each in stored]
            each = scores(rows, heads)
            z = together(each)
            assert (z.verdict(), z.confidence) == (layout, 0.99)
            assert z.z[layout] > z.z[other] + least
            assert abs(z.z[other]) < 4 or (layout, heads) != ("interleaved", 9)
            said += [(layout, one.layout) for one in each]
    assert len(said) == 68
    assert sum(right == told for right, told in said) >= 0.95 * len(said)
    assert not any(told not in (right, None) for right, told in said)


def test_transposed_weights_and_models_in_which_nothing_turns_say_nothing():
    for tensors, heads in ((packaged_weights.smollm2(), 9), (packaged_weights.glassllm(), 4)):
        assert together(scores([rows.T for rows in tensors["q"][::2]], heads)).verdict() is None
    for rows in packaged_weights.minilm().values():
        assert together(scores(rows, 12)).verdict() is None


def controls():
    """Layers that hold no pairs: drawn ones, MiniLM's, real ones transposed, and real ones with channels shuffled."""
    draw = np.random.default_rng(20260711)
    for heads, width, layers in ((9, 64, 50), (4, 32, 100), (32, 128, 4), (1, 16, 100)):
        yield from (("drawn", draw.standard_normal((heads, width, 96))) for _ in range(layers))
    for rows in itertools.chain(*packaged_weights.minilm().values()):
        yield "minilm", rows.reshape(12, 32, 384)
        yield from (("one head", head) for head in rows.reshape(12, 1, 32, 384))
    for rows in packaged_weights.smollm2()["q"]:
        yield "transposed", rows.T.reshape(9, 64, 576)
        yield from (("shuffled", rows.reshape(9, 64, 576)[:, draw.permutation(64)]) for _ in range(4))
        each = [head[draw.permutation(64)] for head in rows.reshape(9, 64, 576)]
        yield "each head shuffled", np.stack(each)


def test_at_most_one_control_layer_in_a_hundred_raises_a_false_alarm():
    said = [(kind, score(heads).layout) for kind, heads in controls()]
    alarms = [kind for kind, layout in said if layout is not None]
    assert len(said) > 500
    assert len(alarms) <= 0.01 * len(said), alarms


def made_of(interleaved, halves=0.0, crossed=0.5):
    """A score whose better layout has a share of its z in the crossed part."""
    return Score({"interleaved": interleaved, "halves": halves}, {"interleaved": crossed * interleaved, "halves": 0}, 4)


DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "pairing-from-weights.md"


def figures(layers, heads, layout):
    """A row of the document's table: the range over layers, all layers, the other layout."""
    each = scores(layers, heads)
    whole, z = together(each), [one.z[layout] for one in each]
    other = next(name for name in LAYOUTS if name != layout)
    return [f"{min(z):.1f} to {max(z):.1f}", f"{whole.z[layout]:.1f}", f"{whole.z[other]:.1f}"]


def test_the_document_has_the_figures_that_are_seen_here():
    smollm2, glassllm = packaged_weights.smollm2(), packaged_weights.glassllm()
    seen = [
        figures(smollm2["q"], 9, "interleaved"),
        figures([packaged_weights.halves(rows, 9) for rows in smollm2["q"]], 9, "halves"),
        figures(smollm2["k"], 3, "interleaved"),
        figures(glassllm["q"], 4, "interleaved"),
        figures(glassllm["k"], 2, "interleaved"),
        figures(packaged_weights.minilm()["q"], 12, "interleaved"),
    ]
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    assert [row[1:4] for row in rows if len(row) == 5 and " to " in row[1]] == seen


def test_single_layers_that_are_no_evidence_make_no_model():
    weak = made_of(2.0)
    assert weak.layout is None
    assert together([weak] * 4).verdict() is None
    assert together([weak] * 9).verdict() == "interleaved"


def test_what_a_model_and_a_layer_must_reach(cases):
    for one, model, layer in (
        (made_of(5.0, 2.0), "interleaved", "interleaved"),
        (made_of(4.9, 0.0), None, "interleaved"),
        (made_of(9.0, 6.1), None, "interleaved"),
        (made_of(3.1, 1.2), None, None),
        (made_of(2.9, -3.0), None, None),
        (made_of(20.0, crossed=0.26), "interleaved", "interleaved"),
        (made_of(20.0, crossed=0.74), "interleaved", "interleaved"),
        (made_of(20.0, crossed=0.24), None, None),
        (made_of(20.0, crossed=0.76), None, None),
        (made_of(20.0, crossed=-0.1), None, None),
    ):
        with cases(one, model, layer):
            assert (one.verdict(), one.layout) == (model, layer)


def test_the_same_channels_of_two_heads_are_alike_and_no_pairs():
    mixed = [packaged_weights.interleaved(rows, 2) for rows in packaged_weights.glassllm()["q"]]
    found = together(scores(mixed, 4))
    assert found.z["interleaved"] > 20
    assert found.crossed["interleaved"] < 0
    assert found.verdict() is None


def test_planes_that_turn_together_are_pairs():
    # Each pair spans a plane near its neighbour's, turned by any angle: what a rotation leaves free, and what not.
    draw = np.random.default_rng(4)
    planes = np.cumsum(draw.standard_normal((8, 16, 2, 48)), axis=1)
    angles = draw.uniform(0, 2 * np.pi, (8, 16))
    turned = np.einsum(
        "hpij,hpjx->hpix",
        np.moveaxis([[np.cos(angles), -np.sin(angles)], [np.sin(angles), np.cos(angles)]], (0, 1), (2, 3)),
        planes,
    )
    assert score(turned.reshape(8, 32, 48)).verdict() == "interleaved"
    assert score(turned.swapaxes(1, 2).reshape(8, 32, 48)).verdict() == "halves"


def test_heads_without_a_direction_are_left_out():
    heads = drawn(heads=3, rotated=16, inputs=12)
    spoiled = heads.copy()
    spoiled[1, 3] = 0
    spoiled[2, 0, 0] = np.nan
    found = score(spoiled)
    assert found.heads == 1
    assert found.z == score(heads[:1]).z
    for heads in (np.zeros((2, 16, 12)), drawn(rotated=6), np.ones((2, 16, 1)), np.empty((0, 16, 4))):
        assert score(heads) is None, "there is too little"


@pytest.mark.parametrize("shape", [(4, 16), (2, 15, 8)])
def test_what_is_no_heads_is_refused(shape):
    with pytest.raises(InvalidValue) as caught:
        score(np.ones(shape))
    given, wanted = list(shape[1:]), "[RoPE dimensions, inputs], with an even number of dimensions."
    assert f"A head has the shape {given}, expected {wanted}" in caught.value.message
    assert "transpose a weight" in caught.value.hint


def test_confidence_is_never_certainty():
    assert made_of(1e6).confidence == 0.99
    assert made_of(5.0, 2.0).confidence == pytest.approx(0.98305, abs=1e-5)  # Phi(3 / sqrt(2))
    assert made_of(1.0, 1.0).confidence == 0.5
