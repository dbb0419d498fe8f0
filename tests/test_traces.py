"""Positions that exist only inside a trace: reduced exactly, in every framework, whatever integers they are."""

import itertools
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands import testing
from clockhands.encodings import traces
from clockhands.encodings.ladders import Explicit, geometric
from clockhands.encodings.phases import units
from clockhands.encodings.positions import positions_of
from clockhands.encodings.rotary import XPos, chunked, rerotate, rotate
from clockhands.errors import InvalidType, InvalidValue
from late import Late, jax_with_64_bits
from laws.rotary_members import ROTARY_MEMBERS
from oracles.rows import every

jax, jnp, torch = Late("jax"), Late("jax.numpy"), Late("torch")

LADDERS = (
    geometric(16),
    geometric(4, base=500_000.0),
    Explicit((7.0, 65.3, 1_000.25, 0.0, 2.0**40)).ladder(5, 10),
    # Rates next to a quarter and an eighth of a turn: where the reduction changes its mind.
    Explicit((np.pi / 2, np.pi / 4, np.pi, 3 * np.pi / 4, 2 * np.pi)).ladder(5, 10),
)


def on_jax(array):
    return jnp.asarray(array)


def on_torch(array):
    return torch.as_tensor(array)


def by_jit(function, *arrays):
    return np.asarray(jax.jit(function)(*arrays))


def by_vmap(function, *arrays):
    return np.asarray(torch.func.vmap(function)(*(array[None] for array in arrays))[0])


def by_compile(function, *arrays):
    torch._dynamo.reset()
    return np.asarray(torch.compile(function, backend="eager", fullgraph=True)(*arrays))


TRACES = {"jax.jit": (by_jit, on_jax), "torch.vmap": (by_vmap, on_torch), "torch.compile": (by_compile, on_torch)}


@pytest.fixture(params=TRACES)
def trace(request):
    """Something that traces, and what makes its arrays."""
    request.node.user_properties.append(("backend", request.param.partition(".")[0]))
    return TRACES[request.param]


def phases(ladder, trace, at):
    """cos + i sin from inside a trace."""
    run, array = trace

    def both(positions):
        xp = traces.library(positions)
        return xp.stack(traces.cosine_sine(ladder, positions, xp))

    cosine, sine = run(both, array(at))
    assert cosine.dtype == sine.dtype == np.float32
    return cosine + 1j * sine


def worst(ladder, got, at):
    exact = units(ladder, positions_of(at))
    return max(np.abs(got.real - exact.real).max(), np.abs(got.imag - exact.imag).max())


def some(rows, trace, draw):
    """A few rows where each is compiled, which takes a second; all of them where none is."""
    return rows if trace[0] is by_vmap else draw(rows, 2 if trace[0] is by_compile else 3)


def test_phases_are_within_the_bound(trace, draw, cases):
    near = [*range(6), 7, 8, 63, 64, 2**16 - 1, 2**16, 2**24 + 1, 500_000, 2**31 - 1]
    drawn = np.random.default_rng(0).integers(-(2**31), 2**31, 5_000).tolist()
    at = np.array([*near, -1, -4, -(2**31), -(2**24) - 1, *drawn], np.int32)
    for ladder in some(LADDERS, trace, draw):
        with cases(ladder.origin):
            got = phases(ladder, trace, at)
            assert worst(ladder, got, at) <= traces.BOUND
            # It can fail: by a token.
            assert worst(ladder, got, at.astype(np.int64) + 1) > traces.BOUND


def test_all_integers_are_taken(trace, draw, cases):
    names = ["int8", "int16", "int32", "uint8", "uint16", "uint32"]
    names += [] if trace[0] is by_jit else ["int64", "uint64"]  # JAX has no others unless told so
    for dtype, ladder in some([*itertools.product(names, LADDERS)], trace, draw):
        limits = np.iinfo(dtype)
        least, most = max(limits.min, -(2**63)), min(limits.max, 2**63)
        at = np.array([least, least + 1, 0, 1, most // 3, most - 1, most], dtype)
        if limits.min == 0:
            at[0] = 5
        with cases(dtype, ladder.origin):
            assert worst(ladder, phases(ladder, trace, at), at) <= traces.BOUND


def test_64_bits_of_jax_are_all_used():
    at = np.array([2**62 + 3, -(2**63), 2**40 + 5, -1, 2**31], np.int64)
    with jax_with_64_bits(True):
        for ladder in LADDERS:
            assert worst(ladder, phases(ladder, TRACES["jax.jit"], at), at) <= traces.BOUND


# --- rotations -------------------------------------------------------------------------------------------------

INT32 = range(-(2**31) + 1, 2**31)


def test_rotations_inside_a_trace_are_those_outside(trace, draw, cases):
    run, array = trace
    for row in some(ROTARY_MEMBERS, trace, draw):
        spec, role = row.spec, "key" if row.spec.xpos else None
        shape = (2, 5) if spec.axes is None else (2, 5, spec.number_of_axes)
        most = 4_000 if spec.xpos else 2**31 - 1
        at = np.random.default_rng(0).integers(-most, most, shape).astype(np.int32)
        x = np.random.default_rng(1).standard_normal((2, 3, 5, spec.head_width)).astype(np.float32)
        with cases(row.name):
            turn = lambda q, positions, spec=spec, role=role: rotate(q, spec, positions, role=role)  # noqa: E731
            wanted = rotate(x.astype(np.float64), spec, at, role=role)
            allowed = (traces.BOUND * 2 + 2.0**-22) * np.abs(wanted).max()
            if spec.xpos:  # the exponential of a float32 exponent of at most 20
                allowed *= 20
            assert np.abs(run(turn, array(x), array(at)) - wanted).max() <= allowed


LAWS = [law for law in testing.LAWS if law.kinds == {testing.ROTARY}]


def test_the_laws_hold_inside_a_trace(draw, cases):
    """To both ends of what 32 bits hold; `jit` and `vmap` alike, the first by compiled code."""

    def apply(spec):
        turned = jax.jit(lambda x, at: rotate(x, spec, at))
        return lambda x, at: np.asarray(turned(x, np.asarray(at, np.int32)))

    rows = [ROTARY_MEMBERS[at] for at in (0, 1, 5, 8)]
    for row, law in draw(itertools.product(rows, LAWS), 4):
        others = tuple(testing.Subject(other, apply(other), (), INT32, 2.0**-21) for other in row.others[:1])
        with cases(row.name, law.name):
            subject = testing.Subject(row.spec, apply(row.spec), others, INT32, 2.0**-21)
            assert testing.broken(law, subject) is None


def test_float64_heads_are_not_rounded_to_float32():
    x, at = torch.randn(3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), torch.arange(3)
    got = torch.func.vmap(lambda q, p: rotate(q[None], ch.Rotary(8), p[None])[0])(x, at)
    assert got.dtype == torch.float64
    assert torch.equal(got[0], x[0])


def test_cached_keys_move_inside_a_trace(trace, draw):
    run, array = trace
    x = np.random.default_rng(1).standard_normal((2, 3, 5, 8)).astype(np.float32)
    at = np.arange(10, dtype=np.int32).reshape(2, 5)
    rows = (
        (ch.Rotary(8, rotated=6), None),
        (ch.Rotary(8, axes=chunked([2, 2])), None),
        (ch.Rotary(8, xpos=XPos(centre=7.0)), "key"),
        (ch.Rotary(8, direction="backward", scaling=ch.scaling.Yarn(8.0, 4_096)), None),
    )
    for spec, role in some(rows, trace, draw):
        start = at if spec.axes is None else np.stack([at, 2 * at], axis=-1)
        end = start + np.int32(1_000)
        cached = rotate(x, spec, start, role=role)
        wanted = rotate(x, spec, end, role=role)
        got = run(lambda k, a, b, spec=spec: rerotate(k, spec, a, b), array(cached), array(start), array(end))
        assert np.abs(got - wanted).max() <= 2.0**-19 * np.abs(wanted).max()


def test_gradients_through_traced_positions():
    spec, x = ch.Rotary(8), np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    wanted = 2 * x  # a rotation keeps the norm
    by_jax = jax.jit(jax.grad(lambda q, at: (rotate(q, spec, at) ** 2).sum()))(x, jnp.arange(3) + 2**30)
    assert np.abs(by_jax - wanted).max() < 1e-5
    each = torch.func.vmap(torch.func.grad(lambda q, at: (rotate(q[None], spec, at[None]) ** 2).sum()))
    by_torch = each(torch.as_tensor(x), torch.arange(3) + 2**30)
    assert np.abs(by_torch.numpy() - wanted).max() < 1e-5


# --- refusals --------------------------------------------------------------------------------------------------


def test_real_positions_are_refused_inside_a_trace(trace):
    run, array = trace
    x, spec = array(np.zeros((3, 8), np.float32)), ch.Rotary(8)
    # PyTorch's compiler cannot follow what is raised inside it, and says so in its own words.
    error = torch._dynamo.exc.Unsupported if run is by_compile else InvalidType
    with pytest.raises(error, match=None if run is by_compile else "inside a trace must be integers, got float32"):
        run(lambda q, at: rotate(q, spec, at), x, array(np.zeros(3, np.float32)))


def test_cached_keys_move_further_than_the_integers_of_a_trace_reach():
    spec, x = ch.Rotary(8), np.random.default_rng(1).standard_normal((2, 8)).astype(np.float32)
    for dtype, ends in ((np.int8, (-128, 127)), (np.int32, (-(2**31), 2**31 - 1)), (np.uint8, (255, 0))):
        start, end = (np.array([end, 0], dtype) for end in ends)
        got = by_jit(lambda k, a, b: rerotate(k, spec, a, b), rotate(x, spec, start), start, end)
        assert np.abs(got - rotate(x, spec, end)).max() <= 2.0**-19


def test_shapes_are_checked_inside_a_trace():
    x, at = np.zeros((3, 8), np.float32), jnp.arange(4)
    with pytest.raises(InvalidValue, match=r"must be of shape \[3\] for x of shape \[3, 8\], got \[4\]"):
        jax.jit(lambda q, positions: rotate(q, ch.Rotary(8), positions))(x, at)
    with pytest.raises(InvalidValue, match=r"`from_` and `to` must have the same shape, got \[3\] and \[1, 3\]"):
        jax.jit(lambda q, a, b: rerotate(q, ch.Rotary(8), a, b))(x[None], at[:3], at[None, :3])
    with pytest.raises(InvalidType, match="are an array of jax, but `x` is an array of torch"):
        jax.jit(lambda positions: rotate(torch.zeros(4, 8), ch.Rotary(8), positions))(at)


def test_what_is_traced_and_what_is_not():
    seen = []
    jax.jit(lambda a: seen.append(traces.is_traced(a)) or a)(jnp.arange(3))
    torch.func.vmap(lambda a: seen.append(traces.is_traced(a)) or a)(torch.arange(3))
    seen.append(traces.is_traced(torch.arange(3, device="meta")))
    assert seen == [True] * 3
    known = (None, 3, [0, 1], range(3), np.arange(3), jnp.arange(3), torch.arange(3))
    assert not any(map(traces.is_traced, known))


def test_heads_without_numbers_keep_their_shape():
    """On the meta device there is nothing to turn, and shapes are all that is asked."""
    for spec in (ch.Rotary(8), ch.Rotary(8, "interleaved", rotated=4)):
        x = torch.empty(2, 5, 8, device="meta", dtype=torch.bfloat16)
        for at in (None, torch.arange(5), torch.arange(5, device="meta")):
            out = rotate(x, spec, at)
            assert (out.shape, out.dtype, out.device.type) == (x.shape, x.dtype, "meta")


def test_known_positions_inside_a_compiled_function():
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    spec, known = ch.Rotary(8), [None, [0, 1, 2, 3, 4], range(5), np.arange(5)]
    got = by_compile(lambda q: torch.stack([rotate(q, spec, at) for at in known]), x)
    assert np.abs(got - rotate(x, spec).numpy()).max() <= 2.0**-20


def test_cached_keys_move_between_known_and_traced_positions(cases):
    spec, keys = ch.Rotary(8), np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    start = np.arange(3, dtype=np.int32)
    known = ([5, 6, 7], range(5, 8), np.arange(5, 8), [5.5, 6.0, 7.25], np.arange(3) + 10**15)

    def moved(keys, at):
        ways = [(rerotate(keys, spec, at, places), rerotate(keys, spec, places, at)) for places in known]
        return traces.library(keys).stack([made for way in ways for made in way])

    wanted = moved(keys, start)
    for name in ("jax.jit", "torch.vmap"):
        run, array = TRACES[name]
        for place, (got, exact) in enumerate(zip(run(moved, array(keys), array(start)), wanted, strict=True)):
            with cases(name, known[place // 2]):
                assert np.abs(got - exact).max() <= 2.0**-19 * np.abs(exact).max()


@pytest.mark.filterwarnings("ignore:.torch.jit.trace. is deprecated:DeprecationWarning")
def test_what_records_a_graph_follows_positions_or_is_refused():
    """`make_fx` and `torch.jit.trace` keep what they cannot follow as constants."""
    from torch.fx.experimental.proxy_tensor import make_fx

    spec, slopes, waves = ch.Rotary(8), ch.Alibi(2), ch.Sinusoidal(8)
    x = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    for call in (
        lambda x, at: rotate(x, spec, at),
        lambda x, at: ch.add(x, waves, at),
        lambda x, at: x[..., :3] + torch.as_tensor(ch.bias(slopes, at, at)),
    ):
        recorded = make_fx(call)(x, torch.arange(3))
        later = torch.tensor([9, 2, 700])
        assert torch.allclose(recorded(x, later), call(x, later), rtol=0, atol=2.0**-19)
        with pytest.raises(InvalidValue, match=r"torch\.jit\.trace would keep these positions"):
            torch.jit.trace(call, (x, torch.arange(3)))


@pytest.mark.filterwarnings("ignore:(Attempted to insert a get_attr )?Node:UserWarning")  # PyTorch 2.5, of itself
def test_exported_sizes_may_be_left_open():
    """Positions that nobody gave, of a length that is no number yet: in JAX's export and in PyTorch's."""
    spec, waves, slopes = ch.Rotary(8), ch.Sinusoidal(8), ch.Alibi(2)
    for call, shape, sizes in (
        (lambda x: rotate(x, spec), "b, n, 8", (2, 70, 8)),
        (lambda x: ch.add(x, waves), "b, n, 8", (2, 70, 8)),
        (Late("clockhands.jax").Bias(slopes), "b, 2, n, n", (3, 2, 70, 70)),
    ):
        from jax import export

        exported = export.export(jax.jit(call))(jax.ShapeDtypeStruct(export.symbolic_shape(shape), jnp.float32))
        x = jnp.asarray(np.random.default_rng(0).standard_normal(sizes), jnp.float32)
        assert np.abs(exported.call(x) - call(x)).max() <= 2.0**-19
    module, keys = Late("clockhands.torch").Bias(slopes), torch.export.Dim("keys", max=4096)
    exported = torch.export.export(module, (torch.zeros(2, 1, 5),), dynamic_shapes=({2: keys},), strict=False)
    assert torch.equal(exported.module()(torch.zeros(2, 1, 9)), module(torch.zeros(2, 1, 9)))


def test_no_minus_zeros_inside_a_trace(trace):
    run, array = trace
    specs = (ch.Alibi(2), ch.Alibi(2, "symmetric"), ch.Alibi(2, "past"), ch.Alibi(2, "last-key"))
    made = run(lambda at: traces.library(at).stack([ch.bias(spec, at, at) for spec in specs]), array(np.arange(4)))
    known = np.stack([ch.bias(spec, 4, 4) for spec in specs])
    assert np.array_equal(np.signbit(made), np.signbit(known))
    assert np.array_equal(made, known)


class OfMlx:
    """What clockhands sees of an array of MLX 0.32: NumPy can read it, its library is known, and it has no device."""

    shape = (2, 8)
    ndim = 2
    dtype = "mlx.core.float32"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.zeros(self.shape, dtype or np.float32)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return np


class OfOlderMlx(OfMlx):
    """One of an older MLX, which names no array API."""

    @property
    def __array_namespace__(self) -> Any:
        raise AttributeError("__array_namespace__")


for _kind in (OfMlx, OfOlderMlx):
    _kind.__module__, _kind.__qualname__, _kind.__name__ = "mlx.core", "array", "array"


@every("kind, lacks", [(OfMlx, "device"), (OfOlderMlx, "array API")])
@every(
    "call",
    [
        lambda x: ch.rotate(x, ch.Rotary(8)),
        lambda x: ch.rotary.rerotate(x, ch.Rotary(8), [0, 1], [2, 3]),
        lambda x: ch.rotary.cos_sin(ch.Rotary(8), 2, like=x),
        lambda x: ch.add(x, ch.Sinusoidal(8)),
    ],
)
def test_arrays_of_mlx_are_refused_in_a_sentence(call: Any, kind: Any, lacks: str):
    with pytest.raises(InvalidType) as caught:
        call(kind())
    assert caught.value.message == (
        f"Arrays of mlx are not supported: mlx.core.array has no {lacks}, which the array API standard asks for."
    )
    assert caught.value.hint == "Convert it to NumPy in float32, and convert the result back."


def test_positions_of_mlx_are_numbers_as_others():
    class Positions(OfMlx):
        shape = (8,)
        dtype = "mlx.core.int32"

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            return np.arange(8, dtype=dtype or np.int32)

    assert np.array_equal(ch.table(ch.Sinusoidal(8), Positions()), ch.table(ch.Sinusoidal(8), 8))
