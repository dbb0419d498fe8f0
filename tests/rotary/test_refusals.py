"""What cannot be rotated is refused in words: the argument, the value, what is allowed, what to do."""

import re

import numpy as np
import pytest

import clockhands as ch
from clockhands import rotary
from clockhands.errors import InvalidType, InvalidValue, TooLarge
from clockhands.ladders import Geometric, Joined
from clockhands.rotary import XPos, chunked, grid, interleaved, rerotate, rotate
from clockhands.scaling import Linear
from oracles import sentences

SPEC = ch.Rotary(8)
X = np.zeros((2, 5, 8), np.float32)
FLAT = np.zeros((5, 8), np.float32)


def test_what_cannot_be_is_refused_in_words(cases):
    sentences.hold("rotary", cases)


def test_libraries_are_not_mixed(any_backend):
    """A query of one library with positions of another is a slip; NumPy's numbers go with all."""
    torch = pytest.importorskip("torch")
    if any_backend.name == "torch":
        jnp = pytest.importorskip("jax.numpy")
        x, positions, words = torch.zeros(5, 8), jnp.arange(5), "an array of jax, but `x` is an array of torch"
    else:
        x = any_backend.asarray(FLAT)
        positions, words = torch.arange(5), f"an array of torch, but `x` is an array of {any_backend.name}"
    for call, name in (
        (lambda: rotate(x, SPEC, positions), "positions"),
        (lambda: rerotate(x, SPEC, positions, np.arange(5)), "from_"),
        (lambda: rerotate(x, SPEC, np.arange(5), positions), "to"),
    ):
        with pytest.raises(InvalidType, match=re.escape(f"`{name}` are {words}.")):
            call()
    rotate(x, SPEC, np.arange(5))


@pytest.mark.parametrize("one", [1, np.int64(1), 1.5, np.float32(1.5), np.array(1)], ids=repr)
def test_one_number_could_be_a_count_and_is_refused(one):
    x = np.ones((1, 8))
    for call in (
        lambda: rotate(x, SPEC, one),
        lambda: rerotate(x, SPEC, one, [3]),
        lambda: rerotate(x, SPEC, [3], one),
        lambda: ch.add(x, ch.Sinusoidal(8), one),
    ):
        with pytest.raises(InvalidType, match="must be a position for each token, got ") as caught:
            call()
        assert "Write [p] for one token at position p" in caught.value.hint


def test_one_number_of_a_framework_is_refused_too_traced_or_not():
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    words = "must be a position for each token, got an array of no axes"
    for one in (torch.tensor(1), jax.numpy.int32(1)):
        x = torch.ones(1, 8) if isinstance(one, torch.Tensor) else jax.numpy.ones((1, 8))
        for call in (lambda x, one: rotate(x, SPEC, one), lambda x, one: ch.add(x, ch.Sinusoidal(8), one)):
            with pytest.raises(InvalidType, match=words):
                call(x, one)
            with pytest.raises(InvalidType, match=words):
                (torch.func.vmap(call)(x[None], one[None]) if isinstance(x, torch.Tensor) else jax.jit(call)(x, one))


def test_a_decay_has_one_axis():
    with pytest.raises(
        InvalidValue, match="`xpos` is a decay along one axis, but `axes` makes positions of several axes"
    ):
        ch.Rotary(8, axes=chunked([2, 2]), xpos=XPos())


def test_a_ladder_of_two_axes_is_refused_for_other_widths():
    spec = ch.Rotary(8, spacing=Joined(((1, Geometric()), (3, Geometric()))))
    with pytest.raises(InvalidValue, match=re.escape("have [1, 3] pairs, but there are 8 pairs of 16 dimensions")):
        ch.rotary.Rotary(16, spacing=spec.spacing)


def test_the_public_names_of_rotary():
    assert list(rotary.__all__) == sorted(rotary.__all__)


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        (lambda _, __: 3, "`scaling` must return a ladder of 4 pairs, got int 3."),
        (lambda _, __: None, "`scaling` must return a ladder of 4 pairs, got NoneType None."),
        (
            lambda _, __: Geometric().ladder(3, 6),
            "`scaling` must return a ladder of 4 pairs, got Ladder of 3 pairs.",
        ),
        (lambda: 3, "`scaling` must accept scaling(ladder, length), but "),
        (lambda ladder: ladder, "`scaling` must accept scaling(ladder, length), but "),
        (lambda ladder, _: ladder * 2, "unsupported operand type(s) for *: 'Ladder' and 'int'."),
    ],
)
def test_a_scaling_of_ones_own_that_scales_nothing_is_refused_at_once(scaling, message):
    with pytest.raises(InvalidType) as caught:
        ch.Rotary(8, scaling=scaling)
    assert message in str(caught.value)
    assert "hint: " in str(caught.value)


def test_a_scaling_of_ones_own_scales():
    slower = ch.Rotary(4, scaling=lambda ladder, _: Linear(4.0)(ladder))
    assert slower.rates == ch.Rotary(4, scaling=Linear(4.0)).rates


def test_queries_and_keys_of_two_lengths_do_not_stand_at_the_same_positions():
    words = "Queries and keys must have the same length to have the same positions, got 1 and 5."
    calls = [lambda: rotary.rotate_both(FLAT[:1], FLAT, SPEC), lambda: rotary.rotate_both(FLAT[:1], FLAT, SPEC, [4])]
    torch = pytest.importorskip("torch")
    held, x = pytest.importorskip("clockhands.torch"), torch.zeros(5, 8)
    calls.append(lambda: held.Rotary(SPEC).both(x[:1], x))
    jnp, pytrees = pytest.importorskip("jax.numpy"), pytest.importorskip("clockhands.jax")
    calls.append(lambda: pytrees.Rotary(SPEC).both(jnp.zeros((1, 8)), jnp.zeros((5, 8))))
    for call in calls:
        with pytest.raises(InvalidValue, match=re.escape(words)) as caught:
            call()
        assert "Rotate queries and keys separately" in caught.value.hint


def test_a_decay_is_refused_where_it_leaves_the_range_of_the_heads():
    spec, x = ch.Rotary(8, xpos=XPos()), np.ones((1, 8))
    for dtype, last in ((np.float16, 4_100), (np.float32, 34_000), (np.float64, 34_000)):
        held = x.astype(dtype)
        for role in ("query", "key"):
            assert np.isfinite(rotate((1 if dtype == np.float16 else 28) * held, spec, [last], role=role)).all()
            with pytest.raises(InvalidValue, match=r"tokens from the centre exceed the range of float(16|32)\."):
                rotate(held, spec, [last + 1000], role=role)
        with pytest.raises(InvalidValue, match="exceed the range of"):
            rerotate(held, spec, [last + 1000], [0])


WORD = np.array(["a", "b"])


@pytest.mark.parametrize(
    "call",
    [
        lambda: ch.Rotary(8, layout=WORD),
        lambda: ch.Rotary(8, part=WORD),
        lambda: rotate(X, ch.Rotary(8, xpos=XPos()), role=WORD),
        lambda: ch.Alibi(2, form=WORD),
        lambda: ch.additive.resize(np.zeros((2, 2)), 3, WORD),
    ],
)
def test_an_array_is_no_word(call):
    with pytest.raises(InvalidValue, match=r"must be .*, got array\(\['a', 'b'\]"):
        call()


@pytest.mark.parametrize("make", [chunked, interleaved])
@pytest.mark.parametrize("sections", [range(10**30), range(10**7), [1, 10**12]], ids=repr)
def test_sections_that_no_head_has_are_refused_at_once(make, sections):
    with pytest.raises(InvalidValue, match="`sections` must hold at most 1048576 pairs, got"):
        make(sections)


def test_a_grid_holds_its_positions_or_says_that_it_cannot():
    assert grid([2**63 - 1], 2).tolist() == [[2**63 - 1, 0], [2**63 - 1, 1]]
    assert grid([2**63], 2).tolist() == [[2**63, 0], [2**63, 1]]
    assert grid([2**53], [0.5]).tolist() == [[2.0**53, 0.5]]
    assert grid([2**63, -1], 1).tolist() == [[2.0**63, 0], [-1, 0]]
    for axes in (([2**53 + 1], [0.5]), ([2**63 - 1], [-1.5])):
        with pytest.raises(
            InvalidValue, match="would be rounded, because all positions of this grid share the dtype float64"
        ) as caught:
            grid(*axes)
        assert "clockhands.grids.Grid" in caught.value.hint
    for axes in ((2**20, 2**20), (2**62, 2**62)):
        with pytest.raises(TooLarge, match="A grid of shape"):
            grid(*axes)


def test_heads_that_would_not_fit_are_refused_before_they_are_turned():
    with pytest.raises(TooLarge, match="Rotating heads of shape"):
        rotate(np.broadcast_to(np.float32(1), (10**6, 10**4, 64)), ch.Rotary(64))


def test_bytes_in_another_order_are_the_same_numbers():
    for dtype in (">f4", ">f8", ">f2"):
        x = X.astype(dtype)
        for made in (
            rotate(x, SPEC, np.arange(5, dtype=">i8")),
            ch.add(x, ch.Sinusoidal(8), np.arange(5, dtype=">i4")),
        ):
            assert made.dtype == np.dtype(dtype)
        assert np.array_equal(rotate(x, SPEC), rotate(X.astype(dtype[1:]), SPEC))
        assert np.array_equal(ch.add(x, ch.Sinusoidal(8)), ch.add(X.astype(dtype[1:]), ch.Sinusoidal(8)))
        table = np.arange(64.0).reshape(32, 2)
        assert np.array_equal(
            ch.bias(ch.Buckets(2), 3, 3, values=table.astype(dtype)), ch.bias(ch.Buckets(2), 3, 3, values=table)
        )
        assert np.array_equal(
            ch.additive.resize(table.astype(dtype), 8), ch.additive.resize(table.astype(dtype[1:]), 8)
        )


@pytest.mark.parametrize(
    "call",
    [
        lambda masked: rotate(masked, SPEC),
        lambda masked: ch.add(masked, ch.Sinusoidal(8)),
        lambda masked: rotate(X, SPEC, masked[0, :, 0]),
        lambda masked: ch.table(ch.Sinusoidal(8), masked),
        lambda masked: ch.table(ch.Learned(8, rows=5), 5, values=masked[0]),
        lambda masked: ch.additive.resize(masked[0], 8),
    ],
)
def test_a_mask_is_not_lost(call):
    with pytest.raises(InvalidType, match="must be an array without a mask, got a masked one"):
        call(np.ma.masked_array(X, X > 0))


def test_tensors_without_numbers_and_tensors_of_tensors_are_refused_in_words():
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidValue, match="`positions` are on the meta device and have no numbers"):
        rotate(torch.zeros(5, 8), SPEC, torch.arange(5, device="meta"))
    nested = torch.nested.nested_tensor([torch.zeros(2, 8), torch.zeros(3, 8)], layout=torch.jagged)
    for call in (lambda: rotate(nested, SPEC), lambda: ch.add(nested, ch.Sinusoidal(8))):
        with pytest.raises(InvalidType, match="must not be a nested tensor"):
            call()
