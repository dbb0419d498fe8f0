"""Rotation against real numbers, in every array library, in every form that heads come in."""

import copy
import itertools
import pickle
from dataclasses import replace

import ml_dtypes  # noqa: F401 - NumPy knows bfloat16 by it
import numpy as np
import pytest
from array_api_compat import array_namespace
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mpf

import clockhands as ch
from clockhands.encodings.ladders import Explicit, Geometric
from clockhands.encodings.positions import positions_of
from clockhands.encodings.rotary import XPos, chunked, cos_sin, grid, rerotate, rotate, rotate_both
from clockhands.encodings.rotary._ways import WAYS, rotated_by_library
from clockhands.encodings.rotary.formula import plain
from clockhands.encodings.rotary.rotating import cosine_sine
from clockhands.encodings.scaling import Dynamic, LongRope, Yarn
from clockhands.errors import InvalidValue
from conftest import Cases, load_backend
from late import Late
from laws.rotary_members import ROTARY_MEMBERS
from oracles.real_numbers import mp
from oracles.rows import every

jax, torch = Late("jax"), Late("torch")

SPECS = [row.spec for row in ROTARY_MEMBERS]
# As a share of the largest channel; derived in the docstring of `rotate`.
FLOAT32 = 2.0**-22


def heads(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def role_of(spec):
    return "query" if spec.xpos else None


def places(spec, *shape, most=4_000, seed=5):
    axes = () if spec.axes is None else (spec.number_of_axes,)
    return np.random.default_rng(seed).integers(-most, most, (*shape, *axes))


def turn(x, spec, positions, **fields):
    return rotate(x, spec, positions, role=role_of(spec), **fields)


def real_rotation(head, spec, position, other_way=False):
    """One head rotated at one position (or coordinates) in real numbers, channel by channel, from the formula."""
    out = [mpf(float(channel)) for channel in head]
    sign = -1 if other_way != (spec.direction == "backward") else 1
    for pair, (a, b) in enumerate(spec.channels):
        coordinate = position if spec.axes is None else position[spec.axes[pair]]
        angle = sign * mpf(str(spec.ladder.exact[pair])) * mpf(coordinate)
        cosine, sine = mp.cos(angle), mp.sin(angle)
        factor = mpf(spec.attention_factor)
        out[a], out[b] = factor * (out[a] * cosine - out[b] * sine), factor * (out[a] * sine + out[b] * cosine)
    return out


CASES = [
    (ch.Rotary(8), 3),
    (ch.Rotary(8, "interleaved", base=500_000.0), 2**62 + 12_345),
    (ch.Rotary(10, rotated=6, part="last"), -(10**15)),
    (ch.Rotary(8, rotated=4, scaling=Yarn(8.0, 4_096)), 131_072),
    (ch.Rotary(8, spacing=Explicit((0.3, 7.0, 100.5, 0.0))), 0.1),
    (ch.Rotary(8, axes=(0, 1, 1, 0), blocks=(1, 3)), (2**40, -7.25)),
    (ch.Rotary(8, spacing=Geometric(span="closed")), 1_800_000_000 * 10**9),
    (ch.Rotary(8, direction="backward"), 12),
]


@every("spec, position", CASES)
def test_a_rotation_is_the_real_one(spec, position):
    x = heads(1, spec.head_width)
    wanted = real_rotation(x[0], spec, position)
    largest = max(map(abs, wanted))
    single, double = rotate(x, spec, [position]), rotate(x.astype(np.float64), spec, [position])
    assert max(abs(mpf(float(a)) - b) for a, b in zip(single[0], wanted, strict=True)) <= FLOAT32 * largest
    # A cosine and a sine within 4 ulp of 1 each, two products and a sum.
    assert max(abs(mpf(float(a)) - b) for a, b in zip(double[0], wanted, strict=True)) <= 8 * 2.0**-52 * largest
    # The check can fail: a token further, and the other way round.
    for other in (real_rotation(x[0], spec, position, other_way=True), [-channel for channel in wanted]):
        assert max(abs(mpf(float(a)) - b) for a, b in zip(single[0], other, strict=True)) > FLOAT32 * largest


def test_reordered_pairs_come_in_interleaved_and_go_out_as_halves():
    x = heads(5, 12)
    for spec in (ch.Rotary(12, "interleaved", rotated=8), ch.Rotary(12, "interleaved", rotated=8, part="last")):
        kept, moved = rotate(x, spec), rotate(x, replace(spec, reordered=True))
        start = spec.start
        order = start + np.array([0, 2, 4, 6, 1, 3, 5, 7])
        assert np.abs(moved[:, start : start + 8] - kept[:, order]).max() <= FLOAT32
        still = np.setdiff1d(np.arange(12), spec.channels)
        assert np.array_equal(moved[:, still], x[:, still])


@every("role", ["query", "key"])
def test_xpos_grows_queries_and_shrinks_keys(role):
    spec = ch.Rotary(8, "interleaved", xpos=XPos(scale=100.0, smoothing=0.5, centre=10.0))
    x, at = heads(3, 8), [0, 10, 250]
    plain_heads = rotate(x.astype(np.float64), ch.Rotary(8, "interleaved"), at)
    zeta = (np.arange(4) / 4 + 0.5) / 1.5
    growth = zeta ** ((np.array(at)[:, None] - 10) / 100)
    wanted = plain_heads * np.repeat(growth if role == "query" else 1 / growth, 2, axis=-1)
    assert np.abs(rotate(x.astype(np.float64), spec, at, role=role) - wanted).max() < 1e-13 * np.abs(wanted).max()
    assert np.abs(rotate(x, spec, at, role=role) - wanted).max() < FLOAT32 * np.abs(wanted).max()


# --- libraries -------------------------------------------------------------------------------------------------


@every("spec", SPECS)
def test_every_library_gives_the_same_numbers(spec, any_backend):
    x = heads(2, 3, 5, spec.head_width)
    for positions in (places(spec, 5), places(spec, 2, 5)):
        wanted = turn(x.astype(np.float64), spec, positions)
        got = turn(any_backend.asarray(x), spec, positions)
        assert type(got) is type(any_backend.asarray(x))
        assert str(got.dtype).endswith("float32")
        assert np.abs(any_backend.to_numpy(got) - wanted).max() <= FLOAT32 * np.abs(wanted).max()


@every("dtype", ["bfloat16", "float16"])
@every("spec", SPECS, drawn=4)
def test_low_precision_is_the_float32_result_rounded_once(spec, dtype, backend):
    x = heads(2, 5, spec.head_width).astype(dtype).astype(np.float32)
    at = places(spec, 5)
    exact = turn(x, spec, at)
    got = turn(backend.asarray(x, dtype), spec, at)
    assert str(got.dtype).endswith(dtype)
    half_a_unit = 2.0 ** -(8 if dtype == "bfloat16" else 11)
    allowed = half_a_unit * np.abs(exact) * 1.01 + FLOAT32 * np.abs(exact).max()
    assert (np.abs(backend.to_numpy(got).astype(np.float64) - exact) <= allowed).all()


@every("spec", SPECS, drawn={"torch": 6, "jax": 3})
def test_every_way_equals_the_plain_formula(spec, backend):
    assert set(WAYS) == {"numpy", "torch", "jax"}
    for dtype in ("float32", "bfloat16"):
        x = backend.asarray(heads(2, 3, 5, spec.head_width), dtype)
        parts = cosine_sine(spec, positions_of(places(spec, 5)), np.dtype(np.float32), role_of(spec))
        xp = array_namespace(x)
        wanted = backend.to_numpy(plain(x, *map(xp.asarray, parts), spec, xp)).astype(np.float64)
        got = backend.to_numpy(rotated_by_library(x, *parts, spec)).astype(np.float64)
        share = FLOAT32 if dtype == "float32" else 2.0**-7
        assert np.abs(got - wanted).max() <= share * np.abs(wanted).max()


def test_a_way_that_is_wrong_would_be_noticed(monkeypatch):
    monkeypatch.setitem(WAYS, "numpy", lambda: lambda x, cosine, sine, spec: plain(x, cosine, -sine, spec, np))
    found = Cases()
    test_every_way_equals_the_plain_formula(found, None, backend=load_backend("numpy"))
    assert len(found.failures) == found.tried == len(SPECS)


# --- what heads look like in memory ----------------------------------------------------------------------------


@every("layout", ["halves", "interleaved"])
@every("part", ["first", "last"])
@every("rotated", [8, 6])
def test_memory_does_not_matter(layout, part, rotated, backend):
    spec = ch.Rotary(8, layout, rotated=rotated, part=part)
    store = heads(3, 7, 2, 19)
    views = {
        "odd offset": lambda a: a[:, :, :, 1:9],
        "odd strides": lambda a: a[..., 3:11],
        "every second": lambda a: a[..., 1:17:2],
        "swapped": lambda a: a[..., :8].swapaxes(1, 2),
    }
    for name, view in views.items():
        x, alike = view(backend.asarray(store.copy())), np.ascontiguousarray(view(store))
        before = backend.to_numpy(x).copy()
        wanted = rotate(alike.astype(np.float64), spec)
        got = backend.to_numpy(rotate(x, spec))
        assert np.abs(got - wanted).max() <= FLOAT32 * np.abs(wanted).max(), name
        assert np.array_equal(backend.to_numpy(x), before), name
        still = np.setdiff1d(np.arange(8), spec.channels)
        assert np.array_equal(got[..., still], before[..., still]), name


@every("spec", SPECS, drawn=3)
def test_no_token_and_one_token(spec, any_backend):
    for shape in ((0,), (2, 0), (2, 3, 0), (0, 3, 4), (2, 0, 4)):
        x = any_backend.asarray(np.zeros((*shape, spec.head_width), np.float32))
        assert tuple(turn(x, spec, places(spec, shape[-1])).shape) == (*shape, spec.head_width)
    x = heads(1, 2, 1, spec.head_width)
    at = places(spec, 1)
    one = any_backend.to_numpy(turn(any_backend.asarray(x), spec, at))
    assert np.abs(one - turn(x.astype(np.float64), spec, at)).max() <= FLOAT32 * np.abs(one).max()


def test_no_positions_are_the_first_ones(any_backend):
    x = any_backend.asarray(heads(2, 7, 8))
    got, wanted = rotate(x, ch.Rotary(8)), rotate(x, ch.Rotary(8), np.arange(7))
    assert np.array_equal(any_backend.to_numpy(got), any_backend.to_numpy(wanted))


@every("seq_axis", [-2, -3, -4, 0, 1, 2])
def test_the_sequence_may_be_any_axis_but_the_last(seq_axis, any_backend):
    x, at = heads(2, 3, 4, 8), np.array([5, -3, 2**40 + 1, 7])
    axis = seq_axis % 4
    at = at[: x.shape[axis]]
    got = any_backend.to_numpy(rotate(any_backend.asarray(x), ch.Rotary(8), at, seq_axis))
    for token, position in enumerate(at):
        place = (slice(None),) * axis + (slice(token, token + 1),)
        alone = rotate(np.ascontiguousarray(x[place]), ch.Rotary(8), [position], seq_axis=axis)
        assert np.abs(got[place] - alone).max() <= FLOAT32 * np.abs(x).max()


@every("seq_axis", [1, 2])
def test_each_batch_may_have_its_own_positions(seq_axis, any_backend):
    spec = ch.Rotary(8)
    x = heads(2, 3, 4, 8)
    seq = x.shape[seq_axis]
    at = np.array([[0, 0, 1, 2], [0, 1, 2, 3]])[:, :seq]
    got = any_backend.to_numpy(rotate(any_backend.asarray(x), spec, at, seq_axis))
    for batch in range(2):
        alone = rotate(x[batch], spec, at[batch], seq_axis - 1)
        assert np.abs(got[batch] - alone).max() <= FLOAT32 * np.abs(x).max()
    shared = any_backend.to_numpy(rotate(any_backend.asarray(x), spec, at[:1], seq_axis))
    alike = any_backend.to_numpy(rotate(any_backend.asarray(x), spec, at[0], seq_axis))
    assert np.array_equal(shared, alike)


def test_coordinates_of_a_batch():
    spec = ch.Rotary(8, axes=chunked([2, 2]))
    x, at = heads(2, 3, 6, 8), np.stack([grid(2, 3), grid(2, 3) + 5])
    got = rotate(x, spec, at)
    assert np.array_equal(got[1], rotate(x[1], spec, at[1]))
    alone = ch.Rotary(4)
    rows = rotate(x[..., [0, 1, 4, 5]], replace(alone, spacing=Geometric(span=4.0)), at[..., 0])
    assert np.abs(got[..., [0, 1, 4, 5]] - rows).max() <= FLOAT32 * np.abs(x).max()


QWEN2_VL = ch.Rotary(8, axes=chunked([1, 2, 1]))


@every("at", [np.arange(4), np.array([[0, 1, 2, 3], [-1, 0, 1, 10**6]])])
def test_tokens_of_text_have_one_coordinate_for_all_axes(at, any_backend):
    x = heads(2, 3, 4, 8)
    held, given = any_backend.asarray(x), any_backend.asarray(at)[..., None]
    found = any_backend.to_numpy(rotate(held, QWEN2_VL, given))
    assert np.array_equal(found, any_backend.to_numpy(rotate(held, QWEN2_VL, np.stack([at] * 3, axis=-1))))
    # The axes do not matter then: it is the code of one axis.
    assert np.abs(found - rotate(x, replace(QWEN2_VL, axes=None), at)).max() <= FLOAT32 * np.abs(x).max()
    assert np.abs(found - rotate(x, QWEN2_VL, at[..., ::-1, None])).max() > 0.1
    moved = rerotate(any_backend.asarray(found), QWEN2_VL, given, any_backend.asarray(at + 7)[..., None])
    wanted = rotate(x, QWEN2_VL, (at + 7)[..., None])
    assert np.abs(any_backend.to_numpy(moved) - wanted).max() <= 4 * FLOAT32 * np.abs(x).max()


def test_tokens_of_text_have_one_cosine_and_sine(backend):
    x, at = backend.asarray(heads(2, 3, 4, 8)), backend.asarray(np.array([[0, 1, 2, 3], [5, 6, 7, 8]]))[..., None]
    found = rotate(x, QWEN2_VL, cos_sin=cos_sin(QWEN2_VL, at, like=x))
    assert np.array_equal(backend.to_numpy(found), backend.to_numpy(rotate(x, QWEN2_VL, at)))


def test_tokens_of_text_in_a_trace():
    x, at = heads(2, 4, 8), np.array([[0, 1, 2, 3], [5, 6, 7, 8]])
    wanted = rotate(x, replace(QWEN2_VL, axes=None), at)
    compiled = torch.compile(lambda x, at: rotate(x, QWEN2_VL, at[..., None]), fullgraph=True, backend="eager")
    found = compiled(torch.from_numpy(x), torch.from_numpy(at)).numpy()
    assert np.abs(found - wanted).max() <= 3 * FLOAT32 * np.abs(x).max()
    inside = jax.jit(lambda x, at: rotate(x, QWEN2_VL, at[..., None]))(x, at)
    assert np.abs(np.asarray(inside) - wanted).max() <= 3 * FLOAT32 * np.abs(x).max()


def test_as_many_tokens_as_axes_are_still_coordinates():
    """[batch, seq] is never read as text: with three tokens and three axes nobody could say which is meant."""
    x, at = heads(3, 3, 8), np.array([[0, 4, 7], [1, 5, 8], [2, 6, 9]])
    assert np.array_equal(rotate(x, QWEN2_VL, at), rotate(x, QWEN2_VL, np.stack([at] * 3)))
    assert np.abs(rotate(x, QWEN2_VL, at) - rotate(x, QWEN2_VL, at[..., None])).max() > 0.1


def test_positions_may_be_anything_that_holds_numbers(any_backend):
    spec, x = ch.Rotary(8), heads(3, 8)
    wanted = rotate(x, spec, [0, 1, 2])
    held = any_backend.asarray(x)
    for at in (range(3), (0, 1, 2), [0.0, 1.0, 2.0], np.arange(3.0), any_backend.asarray(np.arange(3))):
        assert np.abs(any_backend.to_numpy(rotate(held, spec, at)) - wanted).max() <= FLOAT32


def test_nothing_that_is_passed_in_changes(any_backend):
    spec, x, at = ch.Rotary(8, rotated=6), heads(2, 5, 8), np.arange(5)
    held = any_backend.asarray(x.copy())
    twin = pickle.loads(pickle.dumps(spec))
    for call in (lambda: rotate(held, spec, at), lambda: rerotate(held, spec, at, at + 1)):
        call()
        assert np.array_equal(any_backend.to_numpy(held), x)
        assert np.array_equal(at, np.arange(5))
        assert spec == twin
    read_only = x.copy()
    read_only.flags.writeable = False
    assert np.array_equal(rotate(read_only, spec), rotate(x, spec))


def test_what_is_returned_is_not_what_was_given():
    x = heads(1, 4)
    x[:] = 1
    out = rotate(x, ch.Rotary(4), [0])
    out[:] = 7
    assert (x == 1).all()


@given(
    st.integers(1, 4).flatmap(
        lambda pairs: st.tuples(st.just(pairs), st.integers(0, 3), st.sampled_from(["first", "last"]))
    ),
    st.lists(st.integers(-(2**63), 2**63), min_size=1, max_size=4),
    st.sampled_from(["halves", "interleaved"]),
)
@example((1, 0, "first"), [2**63], "halves")
def test_any_rotary_code_turns_any_head_by_its_matrix(shape, positions, layout):
    pairs, still, part = shape
    spec = ch.Rotary(2 * pairs + still, layout, rotated=2 * pairs, part=part)
    x = heads(len(positions), spec.head_width).astype(np.float64)
    got = rotate(x, spec, positions)
    for row, position in enumerate(positions):
        assert np.abs(got[row] - ch.shift(spec, position) @ x[row]).max() <= 1e-14


# --- cached keys -----------------------------------------------------------------------------------------------


@every("spec", [spec for spec in SPECS if not spec.reordered], drawn=4)
def test_moved_keys_are_freshly_rotated_ones(spec, any_backend):
    x = any_backend.asarray(heads(2, 3, 5, spec.head_width))
    role = "key" if spec.xpos else None
    for start, far in ((places(spec, 5), 1_000), (places(spec, 2, 5), -700), (places(spec, 5), 0)):
        end = start + far * (1 if spec.xpos else 2**30)
        cached = rotate(x, spec, start, role=role)
        moved = any_backend.to_numpy(rerotate(cached, spec, start, end))
        fresh = any_backend.to_numpy(rotate(x, spec, end, role=role))
        assert np.abs(moved - fresh).max() <= 4 * FLOAT32 * max(
            np.abs(fresh).max(), np.abs(any_backend.to_numpy(cached)).max()
        )


def test_cached_keys_of_another_regime_hold_other_phases():
    short = ch.Rotary(4, scaling=LongRope((1.0, 1.0), (1.0, 4.0), 64, 4.0), length=64)
    long = replace(short, length=65)
    x = heads(3, 4)
    assert np.abs(rotate(x, short, [50] * 3) - rotate(x, long, [50] * 3)).max() > 0.01


def test_a_ladder_that_depends_on_a_length_needs_one_beyond_its_first(cases):
    """Without one it would be the unscaled ladder, or the short one, at every position."""
    long = LongRope((1.0, 1.0), (1.0, 4.0), 64, 4.0)
    for scaling, x in itertools.product((Dynamic(4.0, 64), long), (np.ones((2, 4)), torch.ones(2, 4))):
        spec, far = ch.Rotary(4, scaling=scaling), np.array([0, 64])
        for name, call in (
            ("rotate", lambda spec, at, x=x: rotate(x, spec, at)),
            ("rotate_both", lambda spec, at, x=x: rotate_both(x, x, spec, at)),
            ("rerotate", lambda spec, at, x=x: rerotate(x, spec, [0, 1], at)),
            ("cos_sin", lambda spec, at, x=x: cos_sin(spec, at, x)),
        ):
            call(spec, far - 1)
            call(replace(spec, length=64), far)
            with cases(name, scaling), pytest.raises(InvalidValue, match="`spec` has none, and position 64 is beyond"):
                call(spec, far)
            if isinstance(x, torch.Tensor):
                with cases(name, scaling, "inside"), pytest.raises(InvalidValue, match="positions are not known here"):
                    torch.func.vmap(lambda at, call=call, spec=spec: call(spec, at))(torch.tensor([[0, 1]]))
    with pytest.raises(InvalidValue, match="positions are not known here"):
        jax.jit(lambda at: rotate(jax.numpy.ones((2, 4)), spec, at))(far)


# --- the value itself ------------------------------------------------------------------------------------------


@every("spec", SPECS)
def test_a_spec_remembers_nothing_that_is_copied(spec):
    _ = spec.ladder.turns, spec.channels, spec.ladders, hash(spec)
    back = pickle.loads(pickle.dumps(spec))
    assert "ladder" not in vars(back)
    for twin in (back, replace(spec)):
        assert twin == spec
        assert twin is not spec
        assert hash(twin) == hash(spec)
        assert np.array_equal(twin.channels, spec.channels)
    # It never changes, so a copy of it is itself.
    assert copy.copy(spec) is copy.deepcopy([spec])[0] is spec


def test_channels_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        ch.Rotary(8).channels[0] = 1


@every("layout", ["halves", "interleaved"])
def test_large_heads_are_turned_in_parts_that_fit_the_cache(layout, backend):
    from clockhands.encodings.rotary.formula import in_cache

    spec = ch.Rotary(72, layout, rotated=64, part="last", reordered=layout == "interleaved")
    x = heads(2, 3, 256, 72)
    assert len(list(in_cache(x.shape))) == 6
    assert len(list(in_cache((2, 3, 4, 72)))) == 1
    at = places(spec, 2, 256)
    got = backend.to_numpy(rotate(backend.asarray(x), spec, at))
    for batch in range(2):
        alone = rotate(x[batch, 0, :16].astype(np.float64), spec, at[batch, :16])
        assert np.abs(got[batch, 0, :16] - alone).max() <= FLOAT32 * np.abs(alone).max()
    wanted = rotate(x.astype(np.float64), spec, at)
    assert np.abs(got - wanted).max() <= FLOAT32 * np.abs(wanted).max()


@every("spec", [ch.Rotary(8), ch.Rotary(8, xpos=XPos()), ch.Rotary(8, axes=(0, 1, 1, 0))])
def test_turning_both_is_turning_each(spec, any_backend):
    queries, keys = heads(2, 6, 5, 8), heads(2, 3, 5, 8)[:, ::-1].copy()
    at = places(spec, 5)
    roles = (None, None) if spec.xpos is None else ("query", "key")
    held = any_backend.asarray(queries), any_backend.asarray(keys)
    for positions in (at, any_backend.asarray(np.asarray(at))):
        made = rotate_both(*held, spec, positions)
        for x, role, one in zip(held, roles, made, strict=True):
            assert np.array_equal(any_backend.to_numpy(one), any_backend.to_numpy(rotate(x, spec, at, role=role)))
    wide = rotate_both(queries.astype(np.float64), keys.astype(np.float32), spec, at)
    assert [made.dtype.name for made in wide] == ["float64", "float32"]
    assert np.array_equal(wide[0], rotate(queries.astype(np.float64), spec, at, role=roles[0]))


def test_what_is_remembered_of_the_last_positions_is_theirs():
    """Positions that differ in one limb only, one after another, each against a code that remembers nothing."""
    spec, x = ch.Rotary(8), heads(2, 8).astype(np.float64)
    for at in ([5, 6], range(5, 7), [5, -6], [5, 6.5], [5, -6.5], [[5, 6]], range(5, 9, 2), [5, 7], [5, 6], [6, 5]):
        given = x if np.ndim(at) == 1 else x[None]
        for dtype in (np.float32, np.float64):
            assert np.array_equal(rotate(given.astype(dtype), spec, at), rotate(given.astype(dtype), ch.Rotary(8), at))
