"""Biases at positions that exist only inside a trace: jit and vmap of JAX, vmap and the compiler of PyTorch."""

import itertools
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands import testing
from clockhands.encodings.biases import Alibi, Buckets, CeilingBuckets, Clipped, Decay, Fire, Kerple, LogWindow, Window
from clockhands.errors import InvalidValue
from late import Late, jax_with_64_bits
from laws import bias_members
from oracles import sentences
from oracles.rows import every

jax, torch = Late("jax"), Late("torch")

COMPUTED = [Alibi(4), Alibi(3, "past"), Alibi(4, "symmetric"), Alibi(4, "key"), Alibi(3, "last-key"), Decay(4)]
ROWS = [
    Buckets(3),
    Buckets(3, bidirectional=False),
    CeilingBuckets(3),
    CeilingBuckets(3, span=9, max_distance=40),
    Clipped(3, span=4),
]
KERNELS = [Kerple(3), Kerple(3, "power", symmetric=True), Fire(3, hidden=5)]
PLANES = [Window(3, 3, 5), Window(3, 3, 5, class_token=True), LogWindow(3, 3, 5, hidden=6)]

# A distance rounded once, a constant rounded once and their product: 3 x 2**-24; logarithms, powers and the sums of a
# small network add their own, of the library: 2**-21 of the largest number.
CLOSE = {"computed": 3 * 2.0**-24, "rows": 0.0, "kernels": 2.0**-21, "planes": 2.0**-21}
FAR = 2**31 - 16


FAMILIES = {"computed": COMPUTED, "rows": ROWS, "kernels": KERNELS, "planes": PLANES}


def few(rows: Any, number: int, inside: Any, draw: Any) -> list[Any]:
    """All rows in PyTorch, and so many in JAX, which compiles each."""
    return draw(rows, number) if inside is in_jax else list(rows)


def values_for(spec: Any) -> dict[str, np.ndarray] | None:
    rng = np.random.default_rng(4)
    made = {name: rng.uniform(0.1, 1.9, shape).astype(np.float32) for name, shape in spec.shapes.items()}
    return made or None


def positions_for(spec: Any) -> tuple[np.ndarray, np.ndarray]:
    """Queries and keys; the last of what an int32 holds, where they are no tokens of a window."""
    queries, keys = np.array([3, 7, 14, 0]), np.arange(15)
    return (queries, keys) if not spec.ordered else (queries + FAR + 1, keys + FAR + 1)


def in_jax(spec: Any, queries: Any, keys: Any, **more: Any) -> np.ndarray:
    learned = values_for(spec)
    learned = None if learned is None else {name: jax.numpy.asarray(array) for name, array in learned.items()}

    def inside(queries: Any, keys: Any, learned: Any) -> Any:
        return ch.bias(spec, queries, keys, values=learned, **more)

    return np.asarray(jax.jit(inside)(np.int32(queries), np.int32(keys), learned))


def in_torch(spec: Any, queries: Any, keys: Any, **more: Any) -> np.ndarray:
    learned = values_for(spec)
    learned = None if learned is None else {name: torch.tensor(array) for name, array in learned.items()}

    def inside(queries: Any) -> Any:
        return ch.bias(spec, queries, torch.tensor(keys), values=learned, **more)

    return torch.func.vmap(inside)(torch.tensor(queries)[None])[0].numpy()


WAYS = pytest.mark.parametrize("inside", [in_jax, in_torch])


def largest(numbers: np.ndarray) -> float:
    return float(np.abs(numbers).max())


@WAYS
def test_a_traced_bias_is_the_known_one(inside: Any, draw: Any, cases: Any):
    for name, specs in FAMILIES.items():
        for spec in few(specs, 2, inside, draw):
            queries, keys = positions_for(spec)
            wanted = ch.bias(spec, queries, keys, values=values_for(spec), dtype="float64")
            with cases(spec):
                made = inside(spec, queries, keys)
                assert made.dtype == np.float32
                assert largest(made - wanted) <= CLOSE[name] * largest(wanted)


def test_the_oracle_can_fail():
    """Positions in float32, as they are usually made inside a trace, have lost their distances."""
    queries, keys = positions_for(Alibi(4))
    wanted = ch.bias(Alibi(4), queries, keys, dtype="float64")
    apart = np.subtract.outer(queries.astype(np.float32), keys.astype(np.float32))
    usual = -np.array(Alibi(4).slopes)[:, None, None] * apart
    assert largest(usual - wanted) > 0.1 * largest(wanted)


@every("law", testing.laws_for(Alibi(4)))
@every("row", bias_members.MEMBERS)
def test_the_laws_hold_inside_a_trace(row: Any, law: Any):
    """Mapped by PyTorch, whose integers reach the 2**40 that the laws ask for."""

    def subject(spec: Any, others: Any = ()) -> Any:
        known = bias_members.values_for(spec)
        learned = known and {name: torch.tensor(array) for name, array in known.items()}

        def bias(queries: np.ndarray, keys: np.ndarray, causal: bool) -> np.ndarray:
            def inside(queries: Any) -> Any:
                return ch.bias(spec, queries, torch.tensor(keys.copy()), values=learned, causal=causal)

            return torch.func.vmap(inside)(torch.tensor(queries.copy())[None])[0].numpy()

        return testing.BiasSubject(spec, bias, others, row.positions, row.tolerance)

    how = testing.broken(law, subject(row.spec, tuple(map(subject, row.others))))
    assert (how is not None) == (law.name in row.breaks), how


@WAYS
def test_distances_are_exact_from_end_to_end(inside: Any):
    """From the lowest int32 to the highest: a distance of 2**32 - 1, which no int32 holds."""
    at = np.array([-(2**31), -1, 0, 2**31 - 1])
    for spec in (Alibi(1, "symmetric"), Alibi(1)):
        wanted = ch.bias(spec, at, at)
        assert largest(inside(spec, at, at) - wanted) <= 3 * 2.0**-24 * largest(wanted)
    for spec in ROWS:
        values = values_for(spec)
        assert np.array_equal(inside(spec, at, at), ch.bias(spec, at, at, values=values))


@WAYS
@every("spec", [Buckets(3), CeilingBuckets(3, span=8, max_distance=40), Clipped(3, span=4)])
def test_every_boundary_is_that_of_the_exact_distance(spec: Any, inside: Any):
    edges = getattr(spec, "boundaries", (4,))
    at = np.unique([sign * (edge + near) for edge in edges for near in (-1, 0, 1) for sign in (1, -1)])
    known = ch.bias(spec, at, [0], values=values_for(spec))
    assert np.array_equal(inside(spec, at, np.array([0])), known)


@WAYS
def test_batches(inside: Any, draw: Any, cases: Any):
    specs = [Alibi(2, "key"), Alibi(2), Buckets(2), Fire(2, hidden=3)]
    places = [
        ([[4, 5], [6, 9]], [0, 1, 2]),
        ([4, 5], [[0, 1, 2], [7, 8, 9]]),
        ([[4, 5]], [[0, 1, 2], [7, 8, 9]]),
        ([[4, 5], [1, 2]], [[0, 1, 2], [7, 8, 9]]),
    ]
    for spec, (queries, keys) in few(itertools.product(specs, places), 6, inside, draw):
        wanted = ch.bias(spec, queries, keys, values=values_for(spec))
        with cases(spec, queries, keys):
            made = inside(spec, np.array(queries), np.array(keys))
            assert made.shape == wanted.shape
            assert largest(made - wanted) <= 2.0**-21 * max(largest(wanted), 1)


@WAYS
def test_a_mask_is_asked_for(inside: Any):
    queries, keys = np.array([2, 5]), np.arange(6)
    assert np.array_equal(inside(Alibi(2), queries, keys, causal=True), ch.bias(Alibi(2), queries, keys, causal=True))
    with pytest.raises(InvalidValue, match="Window is for tokens on a plane, where no token comes before another"):
        inside(Window(2, 2, 3), queries, keys, causal=True)


@WAYS
@every("spec", [Window(2, 2, 3), Window(2, 2, 3, class_token=True), LogWindow(2, 2, 3, hidden=4)])
def test_what_is_no_token_of_a_window_is_seen(spec: Any, inside: Any):
    last = 6 + getattr(spec, "class_token", False)
    made = inside(spec, np.array([-1, 0, last]), np.arange(last))
    assert np.isnan(made[:, [0, 2]]).all()
    assert not np.isnan(made[:, 1]).any()


def test_decoding_under_jit_is_compiled_once_and_gives_the_rows_of_the_matrix(draw, cases):
    def step(spec: Any, position: Any, values: Any) -> Any:
        traced.append(spec)
        # Keys of a cache that is as long as it will ever be: a range, known; the mask is the cache's.
        return ch.bias(spec, position[None], 12, values=values)[:, 0]

    compiled = jax.jit(step, static_argnums=0)
    for spec in (row for family in (COMPUTED, ROWS, KERNELS) for row in draw(family, 2)):
        traced: list[Any] = []
        values = values_for(spec)
        held = None if values is None else {name: jax.numpy.asarray(array) for name, array in values.items()}
        whole = ch.bias(spec, 12, 12, values=values)
        with cases(spec):
            for position in range(12):
                row = np.asarray(compiled(spec, jax.numpy.int32(position), held))
                assert largest(row - whole[:, position]) <= 2.0**-21 * largest(whole)
            assert len(traced) == 1


def test_keys_that_move_with_the_query():
    """The last of traced keys are the queries that a count asks for."""
    made = jax.jit(lambda keys: ch.bias(Alibi(2), 2, keys))(np.int32([4, 6, 9]))
    assert np.array_equal(made, ch.bias(Alibi(2), 2, [4, 6, 9]))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_dtypes_in_jax(dtype: str):
    made = in_jax(Alibi(2), np.array([5]), np.arange(6), dtype=dtype)
    assert made.dtype.name == dtype
    known = ch.bias(Alibi(2), [5], 6, dtype=dtype)
    assert np.array_equal(made.astype(np.float32), known.astype(np.float32))


def test_float64_in_each_library():
    made = in_torch(Decay(3), np.array([10**9]), np.array([0, 7]), dtype="float64")
    wanted = ch.bias(Decay(3), [10**9], [0, 7], dtype="float64")
    assert largest(made - wanted) <= 3 * 2.0**-53 * largest(wanted)
    with (
        pytest.warns(UserWarning, match="float64"),
        pytest.raises(InvalidValue, match="The array library computed float32, but float64 was requested"),
    ):
        in_jax(Alibi(2), np.array([5]), np.arange(6), dtype="float64")


def test_wide_positions_of_jax():
    at = np.array([10**12, 10**12 + 3])
    with jax_with_64_bits(True):
        for spec in (Alibi(2), Buckets(2)):
            values = values_for(spec)
            made = jax.jit(lambda at, spec=spec, values=values: ch.bias(spec, at, at, values=values))(at)
            assert np.array_equal(np.asarray(made, np.float32), ch.bias(spec, at, at, values=values))


def test_what_is_refused_inside_a_trace_in_words(cases):
    sentences.hold("traced_biases", cases)
