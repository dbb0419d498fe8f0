"""Which pair belongs to which axis, where the cells of a grid stand, and ladders of several axes."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clockhands as ch
from clockhands.errors import InvalidValue
from clockhands.ladders import EvenSteps, Explicit, Geometric, Joined, Repeated
from clockhands.rotary import alternating, chunked, grid, imrope, interleaved
from clockhands.specs import with_fields
from oracles import sentences

SECTIONS = st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any)


@given(SECTIONS)
def test_chunks_are_as_long_as_they_are_said_to_be(sections):
    axes = chunked(sections)
    assert list(axes) == sorted(axes)
    assert [axes.count(axis) for axis in range(len(sections))] == sections


@given(SECTIONS)
def test_interleaved_sections_are_as_large_as_they_are_said_to_be(sections):
    try:
        axes = interleaved(sections)
    except InvalidValue:
        # There is no room: the last place that an axis asks for lies behind the last pair.
        stride = len(sections)
        assert any(
            pairs and axis + stride * (pairs - 1) >= sum(sections) for axis, pairs in enumerate(sections) if axis
        )
        return
    assert [axes.count(axis) for axis in range(len(sections))] == sections
    assert all(axis in (0, place % len(sections)) for place, axis in enumerate(axes))


def test_the_sections_of_qwen3_vl():
    # As its code does: start from time, and put height and width into every third place.
    wanted = [0] * 64
    for axis, pairs in ((1, 20), (2, 20)):
        wanted[axis : 3 * pairs : 3] = [axis] * len(wanted[axis : 3 * pairs : 3])
    assert interleaved([24, 20, 20]) == tuple(wanted)


@given(SECTIONS, st.integers(1, 40))
def test_sections_that_code_assigns_as_slices(sections, pairs):
    wanted, stride = np.zeros(pairs, int), len(sections)
    for axis, size in enumerate(sections[1:], start=1):
        wanted[axis : stride * size : stride] = axis
    assert interleaved(sections, pairs=pairs) == tuple(wanted)


def test_sections_of_llama_cpp_and_of_torchtitan():
    """The same three numbers are other axes in other programs where a section is longer than its places."""
    assert interleaved([2, 1, 1], pairs=6) == (0, 1, 2, 0, 0, 0)
    transformers = interleaved([16, 24, 24], pairs=64)
    assert [transformers.count(axis) for axis in range(4)] == [22, 21, 21, 0]
    ours = imrope([16, 24, 24, 0])
    assert [ours.count(axis) for axis in range(4)] == [16, 21, 21, 6]
    assert [pair for pair, axis in enumerate(ours) if axis == 3] == [48, 51, 54, 57, 60, 63]
    assert all(axis == 0 for pair, axis in enumerate(transformers) if ours[pair] == 3)
    qwen3_vl = [pair for pair in range(64) if imrope([24, 20, 20, 0])[pair] != interleaved([24, 20, 20])[pair]]
    assert qwen3_vl == [61, 62]
    assert imrope([11, 11, 10]) == interleaved([11, 11, 10]) == tuple(pair % 3 for pair in range(32))
    assert imrope([2, 1, 1], pairs=6) == (0, 1, 2, 0, 0, 1)  # the pair modulo 4, as sections repeat


def test_llama_cpp_leaves_pairs_of_no_section_unrotated_in_text():
    spec = ch.Rotary(16, axes=imrope([4, 2, 2, 0]))
    x, at = np.ones((3, 16)), np.arange(3)
    turned = ch.rotate(x, spec, np.stack([at, at, at, 0 * at], axis=-1))
    assert np.array_equal(turned[:, [7, 15]], x[:, [7, 15]])
    assert np.array_equal(turned[:, :7], ch.rotate(x, ch.Rotary(16), at)[:, :7])


def test_what_is_no_section_of_llama_cpp(cases):
    sentences.hold("sections", cases)


def test_sections_that_do_not_fit_name_the_two_ways_to_read_them():
    with pytest.raises(InvalidValue) as caught:
        interleaved([16, 24, 24])
    assert caught.value.hint == (
        "Give it at most 21, and axis 0 the rest; or use chunked sections. interleaved([16, 24, 24], pairs=64) reads "
        "them as Transformers does, imrope([16, 24, 24]) as llama.cpp."
    )


def test_alternating_pairs_go_round():
    assert alternating(5, 2) == (0, 1, 0, 1, 0)
    assert alternating(3, 1) == (0, 0, 0)


def test_the_cells_of_a_grid_stand_row_by_row():
    cells = grid(2, 3, 4)
    assert cells.shape == (24, 3)
    assert cells.dtype.kind == "i"
    assert [tuple(cell) for cell in cells] == list(np.ndindex(2, 3, 4))
    assert grid([0.5, -1.5], 2).tolist() == [[0.5, 0], [0.5, 1], [-1.5, 0], [-1.5, 1]]
    assert grid([2**40], [7]).tolist() == [[2**40, 7]]
    assert grid(0, 3).shape == (0, 2)
    assert grid(5).shape == (5, 1)


def test_joined_ladders_stand_beside_each_other():
    parts = ((2, Geometric(100.0)), (1, EvenSteps(0.5, 1.0)), (3, Explicit((3.0, 2.0, 1.0))))
    ladder = Joined(parts).ladder(6, 12)
    assert ladder.rates == (1.0, 0.1, 0.5, 3.0, 2.0, 1.0)
    assert ladder.ratio is None
    # A part is spaced for twice as many channels as it has pairs, whatever the whole is.
    assert Joined(((2, Geometric(100.0, span="closed")),)).ladder(2, 4).rates == (1.0, 0.01)


def test_joined_ladders_may_take_turns():
    parts = ((3, Geometric(1_000.0)), (3, Geometric(8.0)))
    in_turns = Joined(parts, in_turns=True).ladder(6, 12)
    one, other = (spacing.ladder(3, 6).exact for _, spacing in parts)
    assert in_turns.exact == (one[0], other[0], one[1], other[1], one[2], other[2])


def test_joined_ladders_are_values():
    spacing = Joined([[2, Geometric()], (1, Geometric(5.0))])
    assert spacing == Joined(((2, Geometric()), (1, Geometric(5.0))))
    assert hash(spacing) == hash(Joined(spacing.parts))
    spec = ch.Rotary(6, spacing=spacing, axes=chunked([2, 1]))
    assert ch.from_json(ch.to_json(spec)) == spec
    assert ch.describe(spec) == (
        "RoPE, half-split, 6 of 6 dimensions, 2 pairs geometric (base 10000, open) + 1 pairs "
        "geometric (base 5, open), 2 axes"
    )
    assert with_fields(spec, layout="interleaved").spacing == spacing


def test_what_cannot_be_joined_is_refused_in_words(cases):
    sentences.hold("joined_ladders", cases)


def test_two_pi_is_short_by_as_much_as_is_said():
    from oracles.real_numbers import mp

    short = 2 * mp.pi - mp.mpf(2 * math.pi)
    assert 2.4e-16 < short < 2.5e-16


def test_specs_of_several_axes_are_told_in_words():
    spec = ch.Rotary(16, "interleaved", rotated=8, part="last", axes=alternating(4, 2), direction="backward")
    assert ch.describe(spec) == (
        "RoPE, interleaved, 8 of 16 dimensions, geometric (base 10000, open), the last dimensions, 2 axes, "
        "rotating backward"
    )
    assert ch.describe(ch.Rotary(8, xpos=ch.rotary.XPos())).endswith("XPos (scale 512, smoothing 0.4, centre 0)")
    assert ch.describe(ch.Rotary(8, blocks=(2, 2))).endswith("a separate layout in each of 2 blocks")
    assert ch.describe(ch.Rotary(8, "interleaved", reordered=True)).endswith("reordered to half-split")


def test_fields_of_joined_ladders_can_be_changed_where_they_agree():
    flux = ch.preset("flux")
    changed = with_fields(flux, base=256.0)
    assert [part.base for _, part in changed.spacing.parts] == [256.0] * 3
    assert replace(changed, spacing=flux.spacing) == flux
    assert changed == ch.preset("flux", base=256.0)
    mixed = ch.Rotary(8, spacing=Joined([(2, Geometric(100.0)), (2, Geometric(50.0))]))
    assert with_fields(mixed, span="closed").spacing.parts[1] == (2, Geometric(50.0, "closed"))
    with pytest.raises(InvalidValue) as caught:
        with_fields(mixed, base=10.0)
    assert str(caught.value) == (
        "The parts of this spacing have different values of base: 100, 50.\nhint: Give the whole spacing, Joined(…)."
    )
    twice = ch.Rotary(8, spacing=Repeated(Geometric(100.0)))
    assert with_fields(twice, base=9.0).rates == ch.Rotary(8, spacing=Repeated(Geometric(9.0))).rates
    assert with_fields(twice, times=4).rates == (1.0,) * 4
    different = ch.Rotary(8, spacing=Joined([(2, Geometric()), (2, EvenSteps(1.0, 0.1))]))
    with pytest.raises(InvalidValue, match="Rotary has no field 'base'"):
        with_fields(different, base=10.0)
    assert with_fields(different, multiplier=2.0).rates[:1] == (2.0,)
