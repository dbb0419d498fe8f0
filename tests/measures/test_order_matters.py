"""Order matters: theorems about what attention can tell, each beside a case worked out by hand."""

import dataclasses
import json
import math

import numpy as np
import pytest

from clockhands import mixtures, specs
from clockhands.additive import AdditiveCode, Counter, Learned, NoPosition, Sinusoidal
from clockhands.biases import Alibi, Clipped, row_numbers
from clockhands.claims import CLAIMS, recompute
from clockhands.errors import InvalidType, InvalidValue
from clockhands.ladders import EvenSteps
from clockhands.measures.order import permuting
from clockhands.measures.order._members import Member, members, through, values_for
from clockhands.measures.order.attention import Layer, Rounded, attend, drawn_layers, mean
from clockhands.measures.order.permuting import FIGURES, NOTHING, order
from clockhands.rotary import Rotary

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


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_without_a_code_figures_are_rounding_or_plainly_not(found):
    assert {name for name, figure in found.without.items() if figure.apart is False} == SAME
    assert {name for name, figure in found.without.items() if figure.apart is True} == set(FIGURES) - SAME
    for name in SAME:
        assert found.without[name].largest < 1e-14, "some tens of roundings, whatever the bound allows"
    for name in set(FIGURES) - SAME:
        assert found.without[name].smallest > 0.05
        assert found.without[name].smallest > 1e4 * found.without[name].rounding


def test_figures_of_claims_about_drawn_networks_are_these(found):
    numbers = recompute(CLAIMS["bag-of-words"]).numbers
    assert numbers["means_of_one_masked_layer_apart_least"] == found.without["causal_pooled_one_layer"].smallest
    assert recompute(CLAIMS["any-code-tells-the-order"]).numbers["kinds_of_code"] == len(found.codes) - 1


def plain_last(layers, tokens, sharper):
    """The last token's output behind a causal mask, token by token and head by head."""
    x = tokens
    for layer in layers:
        y = x.copy()
        for place in range(len(x)):
            for query, key, value, output in zip(layer.query, layer.key, layer.value, layer.output, strict=True):
                scores = sharper * (x[place] @ query) @ (x[: place + 1] @ key).T / math.sqrt(query.shape[1])
                weights = np.exp(scores) / np.exp(scores).sum()
                y[place] += weights @ (x[: place + 1] @ value) @ output
        x = y + np.maximum(y @ layer.up, 0) @ layer.down
    return x[-1]


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
                one, other = (plain_last(layers, np.array([*each, stop]), sharper) for each in (words, words[::-1]))
                shares.append(np.linalg.norm(one - other) / np.linalg.norm(one))
            figure = without[name]
            assert (figure.smallest, figure.largest) == pytest.approx((min(shares), max(shares)), rel=1e-12)


def test_every_code_breaks_the_tie_but_those_that_see_no_side(found):
    told = {code.member.name: code for code in found.codes}
    assert {name for name, code in told.items() if code.swapped.apart is False} == {"none", *BLIND}
    assert {name for name, code in told.items() if code.mirror_blind} == BLIND
    assert {name for name, code in told.items() if code.another.apart is False} == {"none"}
    assert {name for name, code in told.items() if code.causal_last.apart is False} == {"none"}
    assert all(None not in (code.swapped.apart, code.another.apart, code.causal_last.apart) for code in told.values())


def test_one_word_over_and_over_is_told_by_added_codes_alone(found):
    """Any weighing of equal values is that value; a code that is added makes them differ."""
    added = {code.member.name for code in found.codes if isinstance(code.member.spec, AdditiveCode)} - {"none"}
    assert {code.member.name for code in found.codes if code.alike.apart is True} == added
    assert {code.member.name for code in found.codes if code.alike.apart is False} == {
        code.member.name for code in found.codes
    } - added


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


def test_biases_by_hand():
    """Scores of 0, one head, two words, a slope s of 2**-8: what is left of exchanging a and b."""
    s = 2.0**-8
    expected = {
        # The later word gets exp(s) for 1 in both rows, so sigmoid(s) of it is taken.
        "distance": 2 * sigmoid(s) - 1,
        "key": 2 * sigmoid(s) - 1,
        "last-key": 2 * sigmoid(s) - 1,
        # The first row takes both alike, so that half of it is left.
        "past": sigmoid(s) - 1 / 2,
        # Each row prefers itself alike.
        "symmetric": 0,
    }
    for form, share in expected.items():
        spec = Alibi(1, form)
        difference = pooled(spec, one_head(), A, B) - pooled(spec, one_head(), B, A)
        assert difference == pytest.approx(share * (B - A), abs=1e-15), form


def test_a_learned_bias_by_hand():
    """Rows of the table: a key after, the token itself, a key before."""
    spec, (before, own, after) = Clipped(1, 2), (0.3, -0.2, 1.1)
    layout = {int(row): value for row, value in zip(_rows_of(spec), (before, own, after), strict=True)}
    table = np.array([[layout.get(row, 0.0)] for row in range(spec.rows)])
    difference = pooled(spec, one_head(), A, B, values={"table": table}) - pooled(
        spec, one_head(), B, A, values={"table": table}
    )
    share = sigmoid(after - own) - sigmoid(before - own)
    assert difference == pytest.approx(share * (B - A), abs=1e-15)
    same = np.full((spec.rows, 1), before)
    assert pooled(spec, one_head(), A, B, values={"table": same}) == pytest.approx(
        pooled(spec, one_head(), B, A, values={"table": same}), abs=1e-15
    )


def _rows_of(spec):
    """The rows that the bias takes for a key one before, the token itself, a key one after."""
    return row_numbers(spec, [1], [0, 1, 2])[0]


def mean_by_hand(x, y, of_y, of_x):
    """The mean output of two tokens, of which the first takes a share `of_y` of the second, the second `of_x`."""
    return (x + y) / 2 + ((1 - of_y + of_x) * x + (1 - of_x + of_y) * y) / 2


def is_by_hand(spec, layer, by_hand):
    """Both orders of two words are what was worked out, and they differ."""
    for words in ((A, B), (B, A)):
        assert pooled(spec, layer, *words) == pytest.approx(by_hand(*words), abs=1e-15)
    assert np.abs(by_hand(A, B) - by_hand(B, A)).max() > 0.01


def test_an_added_code_by_hand():
    """Identity queries and keys, sin and cos of 0 and 1 added: two scores each, worked out."""
    spec = Sinusoidal(2, spacing=EvenSteps(1.0, 1.0))

    def by_hand(first, second):
        x, y = first + np.array([0, 1]), second + np.array([math.sin(1), math.cos(1)])
        own, of_y, of_x = x @ y / math.sqrt(2), x @ x / math.sqrt(2), y @ y / math.sqrt(2)
        return mean_by_hand(x, y, sigmoid(own - of_y), sigmoid(own - of_x))

    is_by_hand(spec, one_head(np.eye(2), np.eye(2)), by_hand)
    # With scores of 0 the mean of outputs is twice the mean of inputs, which the order does not change.
    assert pooled(spec, one_head(), A, B) == pytest.approx(pooled(spec, one_head(), B, A), abs=1e-15)


def test_a_rotary_code_by_hand():
    """One pair of rate 1; keys a quarter turn before queries, so that a score is the sine of what is between them."""
    quarter = np.array([[0.0, 1.0], [-1.0, 0.0]])

    def score(query, key, distance):
        """(R_distance query) . (key @ quarter), distance the query's position less the key's."""
        turn = np.array([[math.cos(distance), -math.sin(distance)], [math.sin(distance), math.cos(distance)]])
        return turn @ query @ (key @ quarter) / math.sqrt(2)

    def by_hand(x, y):
        of_y, of_x = score(x, y, -1) - score(x, x, 0), score(y, x, 1) - score(y, y, 0)
        return mean_by_hand(x, y, sigmoid(of_y), sigmoid(of_x))

    is_by_hand(Rotary(2, spacing=EvenSteps(1.0, 1.0)), one_head(np.eye(2), quarter), by_hand)


def test_forms_of_alibi_that_differ_by_a_constant_in_a_row_are_one_code(found):
    told = {code.member.name: code for code in found.codes}
    for figure in ("swapped", "another", "causal_last"):
        of_distance = getattr(told["ALiBi distance"], figure)
        for name in ("ALiBi key", "ALiBi last key"):
            other = getattr(told[name], figure)
            assert other.median == pytest.approx(of_distance.median, rel=1e-9)
        assert getattr(told["retention's decay"], figure).median != pytest.approx(of_distance.median, rel=0.1)
    # Below a causal mask nothing comes after, and the five are one.
    causal = [told[f"ALiBi {form}"].causal_last.median for form in ("distance", "key", "last key", "past", "symmetric")]
    assert causal == pytest.approx([causal[0]] * 5, rel=1e-9)


def test_a_code_of_zeros_is_no_code():
    zeros = Member("zeros", Learned(32, 4), "")
    layers = permuting._networks(0, 2)
    plain, _ = permuting._sentences([("a", "b"), ("b", "a")], 0, 2)
    none = through(NoPosition(32), [None] * 2, layers, plain)
    found = through(zeros.spec, [np.zeros((4, 32))] * 2, layers, plain)
    assert np.array_equal(found.numbers, none.numbers)
    counted = through(Counter(32), [None] * 2, layers, plain)
    assert not np.allclose(counted.numbers, none.numbers, atol=1e-3)


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


def test_networks_that_do_not_agree_are_not_told():
    one = np.array([[[1.0, 0.0]], [[1.0, 0.0]]])
    error = np.full((2, 1), 1e-12)
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


def test_the_report_is_plain_json_and_frozen(found):
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert set(told["without"]) == set(FIGURES)
    assert len(told["codes"]) == len(found.codes)
    assert all(set(each["swapped"]) == {"median", "smallest", "largest", "rounding", "apart"} for each in told["codes"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.seed = 1


def test_what_is_no_pair_of_orders_is_refused(cases):
    for arguments, error, message in (
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
    ):
        with cases(arguments, error, message):
            with pytest.raises(error) as caught:
                order(*arguments)
            assert message in str(caught.value)
            assert "\nhint: " in str(caught.value)


def test_a_number_that_is_not_allowed_is_refused():
    for given, sentence in (
        ({"seed": -1}, "`seed` must be at least 0, got -1"),
        ({"networks": 0}, "at least 1, got 0"),
    ):
        with pytest.raises(InvalidValue, match=sentence):
            order(**given)
