"""The value that says which rotary code it is."""

import copy
import pickle

import numpy as np
import pytest

import clockhands as ch
from clockhands.ladders import EvenSteps, Explicit, Geometric, geometric
from clockhands.scaling import Dynamic, Linear, LongRope, Ntk, Yarn
from oracles import sentences


def test_a_rotary_code_says_everything():
    spec = ch.Rotary(head_width=8)
    assert (spec.layout, spec.base, spec.rotated, spec.scaling, spec.length) == ("halves", 10_000.0, 8, None, None)
    assert spec.spacing == Geometric()
    assert spec.ladder == geometric(4)
    assert spec.rates == geometric(4).rates
    assert spec.attention_factor == 1.0
    assert spec.ladder is spec.ladder


def test_a_part_of_the_channels_may_turn():
    spec = ch.Rotary(64, "interleaved", 500_000.0, rotated=16)
    assert spec.rates == geometric(8, 500_000.0).rates
    assert ch.Rotary(7, rotated=4).rates == geometric(2).rates
    clock = spec.clock()
    assert (clock.width, clock.layout, clock.order) == (16, "interleaved", "cos-sin")


def test_spacings():
    assert ch.Rotary(8, spacing=Explicit((1.0, 0.5, 0.25, 0.0))).rates == (1.0, 0.5, 0.25, 0.0)
    assert ch.Rotary(8, spacing=Explicit((1.0, 0.5, 0.25, 0.0))).base is None
    assert ch.Rotary(8, base=50.0, spacing=Geometric(span="closed")).rates == geometric(4, 50.0, "closed").rates
    assert ch.Rotary(4, spacing=EvenSteps(1.0, 2.0)).rates == (1.0, 2.0)


def test_scalings_and_lengths():
    assert ch.Rotary(8, scaling=Linear(4.0)).ladder == Linear(4.0)(geometric(4))
    yarn = ch.Rotary(8, scaling=Yarn(4.0, 64))
    assert yarn.attention_factor == Yarn(4.0, 64)(geometric(4)).attention_factor > 1
    dynamic = Dynamic(4.0, 64)
    assert ch.Rotary(8, scaling=dynamic).ladder == geometric(4)
    assert ch.Rotary(8, scaling=dynamic, length=100).ladder == dynamic(geometric(4), 100)
    long = LongRope((1.0, 1.0), (2.0, 4.0), 64, 2.0)
    assert ch.Rotary(4, scaling=long).rates == (1.0, 0.01)
    assert ch.Rotary(4, scaling=long, length=65).rates == (0.5, 0.0025)
    own = ch.Rotary(4, scaling=lambda ladder, _: ladder)
    assert own.rates == (1.0, 0.01)


def test_shift_turns_the_rotated_channels_only():
    spec = ch.Rotary(6, "interleaved", rotated=4)
    matrix = ch.shift(spec, 2)
    cosine, sine = np.cos([2, 0.02]), np.sin([2, 0.02])
    wanted = np.eye(6)
    for pair in range(2):
        a, b = 2 * pair, 2 * pair + 1
        wanted[a, a] = wanted[b, b] = cosine[pair]
        # A query (x, y) at position 2 is turned to (x cos - y sin, x sin + y cos).
        wanted[a, b], wanted[b, a] = -sine[pair], sine[pair]
    assert np.abs(matrix - wanted).max() < 1e-15
    halves = ch.shift(ch.Rotary(4), 2)
    assert np.abs(halves[np.ix_([0, 2, 1, 3], [0, 2, 1, 3])] - wanted[:4, :4]).max() < 1e-15


def test_kernel_of_a_rotary_code():
    assert ch.kernel(ch.Rotary(4), [0, 3]) == pytest.approx([2.0, np.cos(3) + np.cos(0.03)])


def test_rotary_codes_are_values():
    spec = ch.Rotary(8, base=50.0, scaling=Ntk(2.0))
    assert spec == ch.Rotary(8, "halves", 50.0, scaling=Ntk(2))
    assert spec != ch.Rotary(8, base=50.0)
    for back in (pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec), copy.copy(spec)):
        assert back == spec
        assert hash(back) == hash(spec)
        assert back.rates == spec.rates
    assert len({spec, copy.copy(spec), ch.Rotary(8), ch.Rotary(8, "interleaved")}) == 3
    with pytest.raises(AttributeError):
        spec.base = 3.0


def test_impossible_rotary_codes_are_refused_in_words(cases):
    sentences.hold("rotary_codes", cases)
