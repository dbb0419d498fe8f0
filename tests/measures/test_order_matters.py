"""Order matters: theorems about what attention can tell, each beside a case worked out by hand."""

import dataclasses
import json
import math

import numpy as np
import pytest

from clockhands.encodings import mixtures, specs
from clockhands.encodings.additive import AdditiveCode, Sinusoidal, add
from clockhands.encodings.biases import Alibi, BiasCode, Clipped, bias
from clockhands.encodings.ladders import EvenSteps
from clockhands.encodings.rotary import Rotary, rotate
from clockhands.errors import InvalidType, InvalidValue
from clockhands.measures.order import permuting
from clockhands.measures.order._members import members, through, values_for
from clockhands.measures.order.attention import Layer, Rounded, attend, drawn_layers, mean
from clockhands.measures.order.permuting import FIGURES, NOTHING, order

A, B = np.array([1.0, 0.0]), np.array([0.5, 2.0])
BLIND = {"ALiBi symmetric", "KERPLE power symmetric"}
SAME = {"permuted_one_layer", "permuted", "pooled", "last", "causal_last_one_layer", "causal_constant"}


@pytest.fixture(scope="module")
def found():
    return order()


def one_head(query=None, key=None):
    """A layer of one head that hands tokens on as they are; scores of 0 unless said."""
    eye, none = np.eye(2)[None, None, None], np.zeros((1, 1, 1, 2, 2))
    return Layer(
        *(none if each is None else np.asarray(each, float)[None, None, None] for each in (query, key)), eye, eye
    )


def pooled(spec, layer, *words, values=None):
    """The mean output of one sentence of vectors."""
    return mean(through(spec, [values], (layer,), np.array([[words]]))).numbers[0, 0, 0]


def test_without_a_code_figures_are_rounding_or_plainly_not(found):
    assert {name for name, figure in found.without.items() if figure.apart is False} == SAME
    assert {name for name, figure in found.without.items() if figure.apart is True} == set(FIGURES) - SAME
    for name in SAME:
        assert found.without[name].largest < 1e-14, "some tens of roundings, whatever the bound allows"
    for name in set(FIGURES) - SAME:
        assert found.without[name].smallest > 0.05
        assert found.without[name].smallest > 1e4 * found.without[name].rounding


def masked_last(layers, tokens, sharper):
    """The last token's output behind a causal mask."""
    for layer in layers:
        tokens = attend(tokens, dataclasses.replace(layer, query=sharper * layer.query), causal=True)
    return tokens.numbers[-1]


def test_two_masked_layers_by_hand(cases):
    without = order(seed=3, networks=2).without
    for name, depth, sharper in (
        ("causal_last_two_layers", 2, 1.0),
        ("causal_last_two_layers_even", 2, 0.0),
        ("causal_last_two_layers_sharp", 2, 4.0),
    ):
        with cases(name, depth, sharper):
            # Each network's own layers, each drawn for itself, and a full stop after the words.
            shares = []
            for number in range(2):
                layers = drawn_layers(np.random.default_rng([3, number, 0]), 3, 32, 4, permuting.HIDDEN)[:depth]
                stop, *words = np.random.default_rng([3, number, 1]).standard_normal((4, 32))
                one, other = (masked_last(layers, np.array([*each, stop]), sharper) for each in (words, words[::-1]))
                shares.append(np.linalg.norm(one - other) / np.linalg.norm(one))
            figure = without[name]
            assert (figure.smallest, figure.largest) == pytest.approx((min(shares), max(shares)), rel=1e-12)


def test_every_code_breaks_the_tie_but_those_that_see_no_side(found):
    """And one word over and over is told by added codes alone: any weighing of equal values is that value."""
    told = {code.member.name: code for code in found.codes}
    assert {name for name, code in told.items() if code.swapped.apart is False} == {"none", *BLIND}
    assert {name for name, code in told.items() if code.mirror_blind} == BLIND
    assert {name for name, code in told.items() if code.another.apart is False} == {"none"}
    assert {name for name, code in told.items() if code.causal_last.apart is False} == {"none"}
    assert all(None not in (code.swapped.apart, code.another.apart, code.causal_last.apart) for code in told.values())
    added = {name for name, code in told.items() if isinstance(code.member.spec, AdditiveCode)} - {"none"}
    assert {name: code.alike.apart for name, code in told.items()} == {name: name in added for name in told}


def test_the_mirror_image_is_the_only_order_that_they_do_not_see(cases):
    for text, other, seed in (("a b c d e f", None, 1), ("a b a c", "c a b a", 2), ("to be or not to be", None, 2)):
        with cases(text, other):
            mirrored = order(text, other, seed=seed, networks=1)
            assert mirrored.mirrored
            assert {code.member.name for code in mirrored.codes if code.swapped.apart is False} == {"none", *BLIND}
            words = text.split()
            turned = order(text, " ".join([*words[1:], words[0]]), seed=seed, networks=1)
            assert not turned.mirrored
            assert {code.member.name for code in turned.codes if code.swapped.apart is False} == {"none"}


def test_every_spec_is_a_member():
    kinds = {type(member.spec) for member in members(32, 4, 4)}
    assert kinds == set(specs.SPECS)
    names = [member.name for member in members(32, 4, 4)]
    assert len(set(names)) == len(names)


def plainly(spec, layer, words, values):
    """The same by the rows, the rotation and the bias that the spec gives."""
    x, places = np.array(words), range(len(words))
    x = add(x, spec, places, values=values) if isinstance(spec, AdditiveCode) else x
    query, key = (x @ weights[0, 0, 0] for weights in (layer.query, layer.key))
    if isinstance(spec, Rotary):
        query, key = (rotate(each, spec, places) for each in (query, key))
    scores = query @ key.T / math.sqrt(2)
    if isinstance(spec, BiasCode):
        scores = scores + bias(spec, 2, 2, values=values, dtype="float64")[0]
    weights = np.exp(scores)
    return (x + weights / weights.sum(axis=1, keepdims=True) @ x).mean(axis=0)


def test_one_head_weighs_two_words_by_their_scores_and_its_code(cases):
    """Identity queries and keys where they are turned: a quarter turn between them, or equal vectors score alike."""
    quarter, even = np.array([[0.0, 1.0], [-1.0, 0.0]]), EvenSteps(1.0, 1.0)
    table = np.random.default_rng(0).normal(size=(Clipped(1, 2).rows, 1))
    forms = [(Alibi(1, form), one_head(), None) for form in ("distance", "key", "last-key", "past", "symmetric")]
    for spec, layer, values in (
        *forms,
        (Clipped(1, 2), one_head(), {"table": table}),
        (Sinusoidal(2, spacing=even), one_head(np.eye(2), np.eye(2)), None),
        (Rotary(2, spacing=even), one_head(np.eye(2), quarter), None),
    ):
        with cases(spec):
            orders = [pooled(spec, layer, *words, values=values) for words in ((A, B), (B, A))]
            for words, found in zip(((A, B), (B, A)), orders, strict=True):
                assert found == pytest.approx(plainly(spec, layer, words, values), abs=1e-15)
            assert (np.abs(orders[0] - orders[1]).max() > 1e-3) == (spec != Alibi(1, "symmetric"))


def test_layers_in_turns_have_the_code_of_their_number():
    layers = permuting._networks(0, 1)
    plain, _ = permuting._sentences([("a", "b", "c")], 0, 1)
    rotary = Rotary(8)
    both = mixtures.LayerMixture((rotary, None), (0, 1))
    one = through(rotary, [None], layers[:1], plain)
    turns = through(both, [None], layers[:2], plain)
    assert np.array_equal(turns.numbers, attend(one, layers[1]).numbers)
    assert not np.allclose(turns.numbers, through(rotary, [None], layers[:2], plain).numbers, atol=1e-6)


def test_what_rounding_could_explain_is_not_told():
    """A bound above a thousandth says nothing about results that are no further apart than it."""
    one = np.array([[[3.0, 4.0]]])

    def difference(apart, bound):
        moved = one + np.array([apart, 0])
        return permuting._difference(Rounded(one, np.array([[bound]])), Rounded(moved, np.zeros((1, 1))))

    assert difference(0.5, 0.25).apart is True
    assert difference(0.5, 0.25).median == pytest.approx(0.1)
    assert difference(0.5, 0.25).rounding == pytest.approx(0.05)
    assert difference(0.5, 0.75).apart is None
    assert difference(0.0, 5 * NOTHING * 1.01).apart is None
    assert difference(0.0, 5 * NOTHING * 0.99).apart is False
    # And networks that do not agree are not told.
    one, error = np.array([[[1.0, 0.0]], [[1.0, 0.0]]]), np.full((2, 1), 1e-12)
    found = permuting._difference(Rounded(one, error), Rounded(one + np.array([[[0, 0]], [[0, 1e-3]]]), error))
    assert (found.smallest, found.largest, found.apart) == (0, 1e-3, None)


def test_more_networks_change_none_of_the_first():
    few, many = permuting._networks(3, 2), permuting._networks(3, 4)
    assert all(np.array_equal(a.query, b.query[:2]) for a, b in zip(few, many, strict=True))
    window = next(member for member in members(32, 4, 4) if member.name == "window")
    for two, four in zip(values_for(window, 2, 3), values_for(window, 4, 3), strict=False):
        assert np.array_equal(two["table"], four["table"])
    assert not np.array_equal(few[0].query[0], few[0].query[1])


def test_the_same_seed_gives_the_same_figures_and_another_one_others():
    one, again, other = (order(networks=1, seed=seed).to_dict() for seed in (4, 4, 5))
    assert one == again
    assert one["without"]["causal_last_two_layers"]["median"] != other["without"]["causal_last_two_layers"]["median"]


def test_two_words_have_no_third_order():
    found = order("a b", networks=1)
    assert (found.another, {code.another for code in found.codes}) == (None, {None})
    assert not any(code.mirror_blind for code in found.codes)
    assert [order(text, networks=1).another for text in ("a b c", "a a b")] == [("b", "a", "c"), ("a", "b", "a")]


def test_the_report_is_plain_json(found):
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert set(told["without"]) == set(FIGURES)
    assert len(told["codes"]) == len(found.codes)
    assert all(set(each["swapped"]) == {"median", "smallest", "largest", "rounding", "apart"} for each in told["codes"])


def test_what_is_no_pair_of_orders_is_refused(cases):
    for arguments, error, message, *named in (
        (("one",), InvalidValue, "`text` must have 2 to 32 words, got 1."),
        ((" ".join("abcdefghijklmnopqrstuvwxyzABCDEFG"),), InvalidValue, "`text` must have 2 to 32 words, got 33."),
        ((7,), InvalidType, "`text` must be a string, got int."),
        (("a b", 7), InvalidType, "`other` must be a string, got int."),
        (
            ("a b", "a c"),
            InvalidValue,
            "The two texts must have the same words, each the same number of times: b, c are in only one of them.",
        ),
        (("a b", "b a c"), InvalidValue, "each the same number of times: c is in only one of them."),
        (("a a b", "a b b"), InvalidValue, "each the same number of times: a, b are more often in one of them."),
        (("a b", "a b"), InvalidValue, "Both texts have the words in the same order: 'a b'."),
        (("a b a",), InvalidValue, "'a b a' is the same in reverse order."),
        (("a b",), InvalidValue, "`seed` must be at least 0, got -1", {"seed": -1}),
        (("a b",), InvalidValue, "at least 1, got 0", {"networks": 0}),
    ):
        with cases(arguments, error, message):
            with pytest.raises(error) as caught:
                order(*arguments, **(named[0] if named else {}))
            assert message in str(caught.value)
            assert "\nhint: " in str(caught.value)
