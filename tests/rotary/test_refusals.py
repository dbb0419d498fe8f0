"""What cannot be rotated is refused in words: the argument, the value, what is allowed, what to do."""

import re

import numpy as np
import pytest

import clockhands as ch
from clockhands import rotary
from clockhands.errors import InvalidType, InvalidValue, TooLarge
from clockhands.ladders import Geometric, Joined
from clockhands.rotary import XPos, alternating, chunked, grid, interleaved, rerotate, rotate
from clockhands.scaling import Linear

SPEC = ch.Rotary(8)
AXES = ch.Rotary(8, axes=(0, 0, 1, 1))
X = np.zeros((2, 5, 8), np.float32)
FLAT = np.zeros((5, 8), np.float32)

REFUSED = [
    # What is turned.
    (lambda: rotate(X, ch.Sinusoidal(8)), "`rotate` takes a Rotary spec, got Sinusoidal.", "clockhands.add"),
    (lambda: rerotate(X, 3, 0, 0), "`rerotate` takes a Rotary spec, got int.", "head_width"),
    (lambda: rotate([[0.0] * 8], SPEC), "`x` must be an array, got list.", "Give a NumPy, PyTorch or JAX array."),
    (lambda: rotate(X[..., :6], SPEC), "`x` must be of shape [..., seq, 8], got [2, 5, 6].", "split the heads first"),
    (lambda: rotate(X[0, 0], SPEC), "`x` must be of shape [..., seq, 8], got [8].", "split the heads first"),
    (lambda: rotate(X.astype(np.int32), SPEC), "`x` must be of a float dtype, got int32.", "not token ids"),
    (lambda: rotate(X.astype(np.complex64), SPEC), "`x` must be of a float dtype, got complex64.", "not token ids"),
    (
        lambda: rotate(X, SPEC, seq_axis=3),
        "`seq_axis` must be an axis of x of shape [2, 5, 8], got 3.",
        "Its default is -2",
    ),
    (
        lambda: rotate(X, SPEC, seq_axis=-4),
        "`seq_axis` must be an axis of x of shape [2, 5, 8], got -4.",
        "Its default is -2",
    ),
    (lambda: rotate(X, SPEC, seq_axis=True), "`seq_axis` must be an axis of x of shape [2, 5, 8], got True.", "-2"),
    (lambda: rotate(X, SPEC, seq_axis=1.0), "`seq_axis` must be an axis of x of shape [2, 5, 8], got 1.", "-2"),
    (lambda: rotate(X, SPEC, seq_axis=-1), "`seq_axis` must not be the last axis, got -1.", "a head's width"),
    # Where it stands.
    (
        lambda: rotate(X, SPEC, [0, 1]),
        "`positions` must be of shape [5] or [2, 5] for x of shape [2, 5, 8], got [2].",
        "They are [seq], or [batch, seq] where batch is axis 0 of x.",
    ),
    (
        lambda: rotate(FLAT, SPEC, [[0, 1, 2, 3, 4]]),
        "`positions` must be of shape [5] for x of shape [5, 8], got [1, 5].",
        "They are [seq]",
    ),
    (
        lambda: rotate(np.zeros((2, 3, 5, 8)), SPEC, np.zeros((3, 5), int)),
        "`positions` must be of shape [5] or [2, 5] for x of shape [2, 3, 5, 8], got [3, 5].",
        "where batch is axis 0 of x",
    ),
    (
        lambda: rotate(X, SPEC, np.zeros((2, 2), int), seq_axis=0),
        "`positions` must be of shape [2] for x of shape [2, 5, 8], got [2, 2].",
        "They are [seq]",
    ),
    (
        lambda: rotate(X, SPEC, np.zeros((2, 1, 5), int)),
        "`positions` must be of shape [5] or [2, 5] for x of shape [2, 5, 8], got [2, 1, 5].",
        "They are [seq]",
    ),
    (
        lambda: rotate(X, SPEC, range(4)),
        "`positions` must be of shape [5] or [2, 5] for x of shape [2, 5, 8], got [4].",
        "[seq]",
    ),
    (
        lambda: rotate(X, AXES, np.zeros((2, 2, 5), int)),
        "`positions` must be of shape [5, 2] or [2, 5, 2] for x of shape [2, 5, 8], got [2, 2, 5].",
        "Move the axis of the coordinates to the end, [seq, axes] or [batch, seq, axes].",
    ),
    (
        lambda: rotate(FLAT, AXES, [0, 1, 2, 3, 4]),
        "`positions` must be of shape [5, 2] for x of shape [5, 8], got [5].",
        "For text, whose tokens have the same coordinate on every axis, give positions[..., None].",
    ),
    (
        lambda: rotate(X, ch.Rotary(8, axes=(0, 0, 1, 2)), [[0, 1, 2, 3, 4]] * 2),
        "`positions` must be of shape [5, 3] or [2, 5, 3] for x of shape [2, 5, 8], got [2, 5].",
        "For text, whose tokens have the same coordinate on every axis, give positions[..., None].",
    ),
    (
        lambda: rotate(X, AXES, [[0, 1, 2, 3, 4]] * 2),
        "`positions` must be of shape [5, 2] or [2, 5, 2] for x of shape [2, 5, 8], got [2, 5].",
        "[batch, seq, axes]. For text, whose tokens have the same coordinate on every axis, give positions[..., None].",
    ),
    (lambda: rotate(X, AXES), "An encoding of 2 axes has no default positions.", "see clockhands.rotary.grid"),
    (lambda: rotate(X, AXES), "An encoding of 2 axes has no default positions.", "give positions[..., None]."),
    (
        lambda: rotate(X, SPEC, [0, 1, 2, 3, 2**63 + 1]),
        "`positions` must be from -2**63 to 2**63",
        "nothing is wrapped",
    ),
    (lambda: rotate(X, SPEC, [0, 1, 2, 3, float("nan")]), "`positions` must be finite, got nan.", "Remove NaN"),
    (lambda: rotate(X, SPEC, "01234"), "`positions` must be numbers, got str '01234'.", "Give a range, a list"),
    # What it is.
    (
        lambda: rotate(X, SPEC, role="query"),
        "`role` is for encodings that treat queries and keys differently, got 'query'.",
        "this encoding rotates both in the same way",
    ),
    (
        lambda: rotate(X, ch.Rotary(8, xpos=XPos())),
        'This encoding has xPos, so `role` must be "query" or "key", got None.',
        "xPos multiplies queries by a growing factor and keys by a shrinking one.",
    ),
    (
        lambda: rotate(X, ch.Rotary(8, xpos=XPos()), role="q"),
        "got 'q'.",
        "xPos multiplies queries by a growing factor and keys by a shrinking one.",
    ),
    (
        lambda: rotate(X, ch.Rotary(8, xpos=XPos()), [0, 1, 2, 3, 10**6], role="key"),
        "The xPos factors at 1e+06 tokens from the centre exceed the range of float32.",
        "Set XPos(centre=…) near the positions in use",
    ),
    # rerotate
    (
        lambda: rerotate(X, ch.Rotary(8, "interleaved", reordered=True), range(5), range(5)),
        "The dimensions of these keys were reordered, so they cannot be rotated again.",
        "Cache keys with reordered=False",
    ),
    (
        lambda: rerotate(X, SPEC, range(5), np.zeros((2, 5), int)),
        "`from_` and `to` must have the same shape, got [5] and [2, 5].",
        "Give each key a position in `from_` and in `to`.",
    ),
    (lambda: rerotate(X, SPEC, range(4), range(5)), "`from_` must be of shape [5] or [2, 5]", "They are [seq]"),
    (lambda: rerotate(X, SPEC, range(5), range(4)), "`to` must be of shape [5] or [2, 5]", "They are [seq]"),
    (lambda: rerotate(X, SPEC, None, range(5)), "`from_` must be given, got None.", "the positions of the keys"),
    (lambda: rerotate(X, SPEC, range(5), None), "`to` must be given, got None.", "the positions of the keys"),
    (lambda: rerotate(X, SPEC, range(5), "abcde"), "`to` must be numbers, got str 'abcde'.", "Give a range, a list"),
    # the spec
    (lambda: ch.Rotary(7), "`head_width` must be even, because dimensions rotate in pairs, got 7.", "rotated="),
    (lambda: ch.Rotary(8, rotated=5), "`rotated` must be even, because dimensions rotate in pairs, got 5.", "rotated="),
    (
        lambda: ch.Rotary(8, rotated=10),
        "`rotated` must be at most the head's width 8, got 10.",
        "RoPE dimensions per head",
    ),
    (lambda: ch.Rotary(0), "`head_width` must be at least 1, got 0.", "at least 1"),
    (lambda: ch.Rotary(8, rotated=0), "`rotated` must be at least 1, got 0.", "at least 1"),
    (lambda: ch.Rotary(8, "neox"), '`layout` must be "interleaved" or "halves", got \'neox\'.', "(i, i + d/2)"),
    (lambda: ch.Rotary(8, part="middle"), "`part` must be one of first, last, got 'middle'.", "Leave it out"),
    (lambda: ch.Rotary(8, direction="left"), "`direction` must be one of forward, backward, got 'left'.", "Leave it"),
    (lambda: ch.Rotary(8, scaling=Linear), "`scaling` must be a function ladder -> ladder, got", "Linear(factor=4)"),
    (lambda: ch.Rotary(8, scaling=4.0), "`scaling` must be a function ladder -> ladder, got 4.", "Linear(factor=4)"),
    (lambda: ch.Rotary(8, xpos=512), "`xpos` must be an XPos or None, got 512.", "Write xpos=XPos(scale=512)."),
    (lambda: ch.Rotary(8, reordered=1), "`reordered` must be True or False, got 1.", "Leave it out for False."),
    (
        lambda: ch.Rotary(8, reordered=True),
        "`reordered` returns interleaved pairs in half-split order, but the layout is halves.",
        'Use layout="interleaved" without blocks.',
    ),
    (
        lambda: ch.Rotary(8, "interleaved", reordered=True, blocks=(2, 2)),
        "`reordered` returns interleaved pairs in half-split order, but the layout is that of blocks.",
        'Use layout="interleaved" without blocks.',
    ),
    (lambda: ch.Rotary(8, length=0), "`length` must be at least 1, got 0.", "at least 1"),
    (
        lambda: ch.Rotary(8, axes="0011"),
        "`axes` must be a list with the axis of each pair, got '0011'.",
        "chunked([16, 24, 24])",
    ),
    (lambda: ch.Rotary(8, axes=2), "`axes` must be a list with the axis of each pair, got 2.", "chunked([16, 24, 24])"),
    (
        lambda: ch.Rotary(8, axes=()),
        "`axes` has 0 entries, one for each pair, but 4 pairs are rotated.",
        "half of the RoPE dimensions",
    ),
    (
        lambda: ch.Rotary(8, axes=(0, 1)),
        "`axes` has 2 entries, one for each pair, but 4 pairs are rotated.",
        "half of the RoPE dimensions",
    ),
    (lambda: ch.Rotary(8, axes=(0, 0, 2, 2)), "`axes` names axis 2, but gives no pair to axis 1.", "without gaps"),
    (lambda: ch.Rotary(8, axes=(0, 0, -1, 1)), "`axes` must be at least 0, got -1.", "at least 0"),
    (
        lambda: ch.Rotary(8, blocks=4),
        "`blocks` must be a list with the number of pairs of each block, got 4.",
        "Write blocks=(16, 16).",
    ),
    (
        lambda: ch.Rotary(8, blocks=(2, 1)),
        "`blocks` holds 3 pairs, but 4 pairs are rotated.",
        "half of the RoPE dimensions",
    ),
    (lambda: ch.Rotary(8, blocks=(5, -1)), "`blocks` must be at least 0, got -1.", "at least 0"),
    (lambda: ch.Rotary(8, base=1.0), "`base` must be a finite positive number other than 1, got 1.", "500000"),
    (lambda: ch.Rotary(8, base=5.0, spacing=Joined(((4, Geometric()),))), "the spacing is Joined.", "Leave `base` out"),
    (lambda: XPos(scale=0), "`scale` must be finite and positive, got 0.", "above 0"),
    (lambda: XPos(smoothing=-1), "`smoothing` must be finite and positive, got -1.", "above 0"),
    (lambda: XPos(centre=float("inf")), "`centre` must be finite, got inf.", "Leave it out for 0."),
    (lambda: XPos(centre="8"), "`centre` must be a number, got '8'.", "int or a float"),
    # what has no shift
    (lambda: ch.shift(AXES, 1), "This encoding has several axes, so a shift is not a single rotation", "axes=None"),
    (
        lambda: ch.kernel(ch.Rotary(8, xpos=XPos()), [1]),
        "This encoding has a decay, so a shift is not a single",
        "xpos=None",
    ),
    (
        lambda: ch.shift(ch.Rotary(8, "interleaved", reordered=True), 1),
        "This encoding has reordered output, so a shift is not a single rotation",
        "reordered=False",
    ),
    # axes and grids
    (
        lambda: chunked(3),
        "`sections` must be a list with the number of pairs of each axis, got 3.",
        "Write [16, 24, 24].",
    ),
    (
        lambda: chunked("abc"),
        "`sections` must be a list with the number of pairs of each axis, got 'abc'.",
        "Write [16, 24, 24].",
    ),
    (lambda: chunked([]), "`sections` must hold at least one pair.", "of each axis"),
    (lambda: interleaved([0, 0]), "`sections` must hold at least one pair.", "of each axis"),
    (lambda: chunked([1, -1]), "`sections` must be at least 0, got -1.", "at least 0"),
    (lambda: chunked([1, 1.5]), "`sections` must be a whole number, got 1.5.", "an int"),
    (
        lambda: interleaved([2, 3, 3]),
        "Axis 2 cannot have 3 of the 8 pairs: interleaved, it can have one in 3.",
        "Give it at most 2",
    ),
    (lambda: alternating(4, 0), "`axes` must be at least 1, got 0.", "at least 1"),
    (lambda: alternating(0, 2), "`pairs` must be at least 1, got 0.", "at least 1"),
    (grid, "A grid needs at least one axis, got none.", "Write grid(rows, columns)."),
    (lambda: grid(2, -1), "`sizes` must be at least 0, got -1.", "at least 0"),
    (lambda: grid(2, 2.5), "`sizes` must be a whole number, got 2.5.", "an int"),
    (lambda: grid([[0, 1]]), "An axis must be a size or a list of positions, got [[0, 1]].", "grid(rows, columns)"),
    (lambda: grid(["a"]), "`sizes` must be ints and floats, got str 'a'.", "Give a range, a list"),
]


@pytest.mark.parametrize(("call", "message", "hint"), REFUSED, ids=[message[:60] for _, message, _ in REFUSED])
def test_what_cannot_be_is_refused_in_words(call, message, hint):
    with pytest.raises((InvalidValue, InvalidType)) as caught:
        call()
    assert message in caught.value.message
    assert hint in caught.value.hint


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
