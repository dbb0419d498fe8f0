"""Which pair belongs to which axis, where the cells of a grid stand, and ladders of several axes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clockhands as ch
from clockhands.encodings.ladders import EvenSteps, Geometric, Joined, Repeated
from clockhands.encodings.rotary import chunked, cos_sin, interleaved, rerotate, rotate
from clockhands.encodings.specs import with_fields
from clockhands.errors import InvalidValue
from late import Late
from oracles import sentences

jax = Late("jax")

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


def test_axes_and_joined_ladders_in_words(cases):
    sentences.hold("axes", cases)


def test_sections_that_do_not_fit_name_the_two_ways_to_read_them():
    with pytest.raises(InvalidValue) as caught:
        interleaved([16, 24, 24])
    assert caught.value.hint == (
        "Give it at most 21, and axis 0 the rest; or use chunked sections. interleaved([16, 24, 24], pairs=64) reads "
        "them as Transformers does, imrope([16, 24, 24]) as llama.cpp."
    )


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


def test_four_coordinates_as_in_llama_cpp_are_taken_where_the_fourth_is_0(backend):
    spec, x = ch.Rotary(8, axes=chunked([1, 2, 1, 0])), backend.asarray(np.ones((5, 8), np.float32))
    three = np.random.default_rng(1).integers(0, 99, (5, 3))
    four = np.concatenate((three, np.zeros((5, 1), int)), axis=-1)
    assert (rotate(x, spec, four) == rotate(x, spec, three)).all()
    assert (cos_sin(spec, four[None], x).cosine == cos_sin(spec, three[None], x).cosine).all()
    assert (
        rerotate(x, spec, four, four + np.array([1, 2, 3, 0])) == rerotate(x, spec, three, three + np.array([1, 2, 3]))
    ).all()
    if backend.name == "jax":
        assert np.allclose(jax.jit(lambda at: rotate(x, spec, at))(four), rotate(x, spec, three), atol=1e-6)
    for call in (lambda at: rotate(x, spec, at), lambda at: rerotate(x, spec, four, at)):
        with pytest.raises(InvalidValue, match="have a fourth coordinate, 7, but the encoding has three axes"):
            call(four + np.array([0, 0, 0, 7]))
    with pytest.raises(InvalidValue, match=r"must be of shape \[5, 2\]"):
        rotate(x, ch.Rotary(8, axes=chunked([1, 3])), four)


def test_one_ladder_through_all_axes_and_one_for_each_have_short_names(cases):
    flux = ch.preset("flux")
    for name, axes, parts in (
        ("chunked", chunked([2, 1, 1]), Joined([(2, Geometric(9.0)), (1, Geometric(9.0)), (1, Geometric(9.0))])),
        ("another order", (1, 1, 1, 0), Joined([(3, Geometric(9.0)), (1, Geometric(9.0))])),
        ("in turns", (0, 1, 0, 1), Joined([(2, Geometric(9.0))] * 2, in_turns=True)),
        ("one axis", (0, 0, 0, 0), Geometric(9.0)),
    ):
        with cases(name):
            assert ch.Rotary(8, base=9.0, axes=axes, spacing="per-axis").spacing == parts
            assert ch.Rotary(8, base=9.0, axes=axes, spacing="through-axes") == ch.Rotary(8, base=9.0, axes=axes)
    assert ch.Rotary(128, "interleaved", axes=flux.axes, spacing="per-axis").ladder == flux.ladder


def test_codes_of_axes_are_resized_with_their_axes(cases):
    for name in ch.presets.names():
        whole = ch.preset(name)
        if not isinstance(whole, ch.Rotary) or whole.axes is None or name in ("ernie-4.5-vl", "pixtral"):
            continue
        with cases(name):
            twice = ch.preset(name, head_width=2 * whole.head_width, rotated=2 * whole.rotated)
            counts = [code.axes.count(axis) for code in (whole, twice) for axis in range(whole.number_of_axes)]
            assert counts[whole.number_of_axes :] == [2 * pairs for pairs in counts[: whole.number_of_axes]]
            assert with_fields(twice, head_width=whole.head_width, rotated=whole.rotated) == whole
    assert ch.preset("qwen3-vl", head_width=64).axes == interleaved([12, 10, 10])
    assert ch.preset("dinov3", head_width=32, base=9.0, multiplier=1.0).rates[:8] == ch.Rotary(16, base=9.0).rates
