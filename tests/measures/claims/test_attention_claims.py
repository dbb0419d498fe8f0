"""Numbers of claims about attention, a second time: by hand, in fractions or in 30 digits."""

from fractions import Fraction
from itertools import permutations

import mpmath

from clockhands.measures.claims import CLAIMS


def stated(name, number, found):
    """Whether a number that was found is the stated one, as far as its digits say."""
    return CLAIMS[name].numbers[number].holds(found if isinstance(found, int) else float(found))


def even_layer(rows):
    """What a masked head of scores 0 makes of words, in fractions: each plus the mean of what it sees."""
    seen = [
        [sum(column[: place + 1]) / Fraction(place + 1) for column in zip(*rows, strict=True)]
        for place in range(len(rows))
    ]
    return [[a + b for a, b in zip(row, more, strict=True)] for row, more in zip(rows, seen, strict=True)]


def words(*numbers, of):
    return [[Fraction(int(number == channel)) for channel in range(of)] for number in numbers]


def test_half_of_two_words_changes_places():
    a = even_layer(words(0, 1, of=2))[0]
    moved = even_layer(words(1, 0, of=2))[1]
    apart = mpmath.sqrt(sum((x - y) ** 2 for x, y in zip(a, moved, strict=True)))
    assert stated("permutation-equivariant", "two_even_words_with_a_causal_mask_apart", apart)


def test_outputs_of_exchanged_words_are_not_the_same():
    """Words (1, 0) and (0, 1), scores 1 with themselves and 0 with the other: (1 + tanh(1/2)) (1, −1) is between."""
    with mpmath.workdps(30):
        own = mpmath.e / (mpmath.e + 1)
        apart = mpmath.norm(mpmath.matrix([1 + own - (1 - own), (1 - own) - own - 1]))
        assert mpmath.almosteq(apart, mpmath.sqrt(2) * (1 + mpmath.tanh(mpmath.mpf(1) / 2)))
    # Scores are divided by the root of the width and multiplied by it again.
    assert stated("permutation-equivariant", "first_outputs_of_two_exchanged_words_apart", apart)


def test_a_third_is_left_of_exchanging_two_words():
    one, other = (even_layer(even_layer(words(*order, of=3)))[2] for order in ((0, 1, 2), (1, 0, 2)))
    assert [x - y for x, y in zip(one, other, strict=True)] == [Fraction(1, 3), -Fraction(1, 3), 0]
    assert stated("causal-mask-tells-the-order", "two_layers_of_scores_0_apart", 1 / 3)


def test_two_masked_layers_tell_all_orders_of_three():
    outputs = {tuple(even_layer(even_layer(words(*order, 3, of=4)))[3]) for order in permutations(range(3))}
    assert stated("language-models-need-a-code", "two_masked_layers_tell_orders_of_3_before_the_last", len(outputs))
    one_layer = {tuple(even_layer(words(*order, 3, of=4))[3]) for order in permutations(range(3))}
    assert len(one_layer) == 1


def test_the_share_of_a_word_that_came_first():
    rows = words(0, *[1] * 16, of=2)
    shares = [row[0] - word[0] for row, word in zip(even_layer(rows), rows, strict=True)][1:]
    assert shares == [Fraction(1, 2 + place) for place in range(16)]
    assert stated("decoders-count-without-a-code", "share_of_that_word_at_the_16th", shares[-1])


def test_the_first_of_64_words_gets_a_harmonic_number():
    assert stated("sinks-come-from-the-code", "first_of_64_by_the_mask_alone", mpmath.harmonic(64) / 64)


def test_a_quarter_turn_makes_a_score_a_sine():
    # cos(distance + angle between query and key), a quarter turn back, for distances 1 and -1.
    before, after = (mpmath.cos(distance - mpmath.pi / 2) for distance in (1, -1))
    assert stated("rotary-is-blind-to-direction", "a_quarter_turn_apart_one_before_less_one_after", before - after)


def test_what_a_score_makes_of_an_added_code():
    """Two words with sine and cosine added; the scores x . y / sqrt 2, worked out in 30 digits."""
    with mpmath.workdps(30):
        a, b = mpmath.matrix([1, 0]), mpmath.matrix([mpmath.mpf(1) / 2, 2])
        here, there = mpmath.matrix([0, 1]), mpmath.matrix([mpmath.sin(1), mpmath.cos(1)])

        def dot(x, y):
            return x[0] * y[0] + x[1] * y[1]

        def mean(first, second):
            x, y = first + here, second + there
            of_y, of_x = (1 / (1 + mpmath.exp((dot(z, z) - dot(x, y)) / mpmath.sqrt(2))) for z in (x, y))
            return (x * (2 - of_y + of_x) + y * (2 - of_x + of_y)) / 2

        apart = mpmath.norm(mean(a, b) - mean(b, a)) / mpmath.norm(mean(a, b))
    assert stated("adding-a-code-is-enough", "with_scores_of_its_own_apart", apart)


def test_the_margin_of_a_head_is_the_step_of_its_neighbours():
    with mpmath.workdps(30):
        steps = mpmath.fsum(1 - mpmath.cos(mpmath.power(10_000, -mpmath.mpf(pair) / 32)) for pair in range(32))
    assert stated("previous-token-without-a-code", "margin_of_the_rotary_head", steps)
