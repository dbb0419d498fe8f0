"""Biases as matrices: which queries and keys, batches, gradients, traces, memory."""

import tracemalloc

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings import memory
from clockhands.encodings.biases import Alibi, Buckets, Fire, Kerple, Slopes, row_numbers
from clockhands.errors import TooLarge
from late import Late
from laws.bias_members import MEMBERS, values_for
from oracles.rows import every

jax, torch = Late("jax"), Late("torch")

SPECS = [row.spec for row in MEMBERS if row.spec.ordered]


@every("spec", SPECS)
def test_the_last_of_some_queries_stands_at_the_last_key(spec):
    values = values_for(spec)
    whole = ch.bias(spec, 12, 12, values=values)
    for count in (0, 1, 5, 12, np.int64(3)):
        assert np.array_equal(ch.bias(spec, count, 12, values=values), whole[:, 12 - count :])
    # So does it where the keys are positions.
    moved = [3, 4, 9, 11]
    assert np.array_equal(
        ch.bias(spec, 2, moved, values=values), ch.bias(spec, moved[-2:], np.array(moved), values=values)
    )


def test_ranges_and_arrays_are_positions():
    spec, wanted = Alibi(4), ch.bias(Alibi(4), 12, 12)
    assert np.array_equal(ch.bias(spec, range(5), 12), wanted[:, :5])
    assert np.array_equal(ch.bias(spec, np.arange(5), list(range(12))), wanted[:, :5])
    assert np.array_equal(ch.bias(spec, np.arange(12)[::-1], 12), wanted[:, ::-1])
    assert np.array_equal(ch.bias(spec, [2.5], [0, 2.5])[:, 0, 0], -2.5 * np.array(spec.slopes, np.float32))


def test_a_batch_is_its_sequences():
    """Left padding, as Bloom numbers it: positions of the tokens that are not padding."""
    at = np.array([[0, 1, 2, 3], [0, 0, 0, 1]])
    for row in MEMBERS:
        values = values_for(row.spec)
        made = ch.bias(row.spec, at, at, values=values)
        assert made.shape == (2, row.spec.heads, 4, 4)
        for sequence in range(2):
            alone = ch.bias(row.spec, at[sequence].tolist(), at[sequence].tolist(), values=values)
            assert np.array_equal(made[sequence], alone)
        one = ch.bias(row.spec, at[:1], at, values=values)
        assert np.array_equal(one, ch.bias(row.spec, np.repeat(at[:1], 2, axis=0), at, values=values))
        assert np.array_equal(ch.bias(row.spec, 1, at, values=values), made[:, :, -1:])


@every("spec", SPECS)
def test_each_head_may_have_positions_of_its_own(spec, backend):
    values = values_for(spec)
    places = np.random.default_rng(2).integers(0, 9, (2, spec.heads, 5)).cumsum(-1)
    given = values if values is None else {name: backend.asarray(array) for name, array in values.items()}
    made = np.asarray(ch.bias(spec, places[..., 3:], places, values=given, causal=True))
    assert made.shape == (2, spec.heads, 2, 5)
    for head in range(spec.heads):
        shared = np.asarray(ch.bias(spec, places[:, head, 3:], places[:, head], values=given, causal=True))
        # FIRE's networks are products of matrices, which add in another order for another number of heads.
        assert np.allclose(made[:, head], shared[:, head], rtol=0, atol=2.0**-21 * isinstance(spec, Fire))
    some = range(spec.heads)[1:]
    if spec.learned or not some:
        return
    assert np.array_equal(ch.bias(spec, 2, places[:, 1:].tolist(), causal=True, heads=some), made[:, 1:])
    inside = jax.jit(lambda at: ch.bias(spec, at[..., 3:], at, causal=True))(places.astype(np.int32))
    assert np.allclose(inside, made, rtol=3e-7, atol=0)


def test_slopes_of_alibi_as_ones_own_are_alibi():
    for form in ("distance", "past", "symmetric", "key", "last-key"):
        own = Slopes(Alibi(6).slopes, form)
        assert own.heads == 6
        assert np.array_equal(ch.bias(own, 3, 7), ch.bias(Alibi(6, form), 3, 7))
        assert np.array_equal(ch.bias(own, 3, 7, heads=range(2, 4)), ch.bias(own, 3, 7)[2:4])
    assert ch.from_json(ch.to_json(own)) == own


def test_a_batch_of_nothing_and_keys_of_nothing():
    values = values_for(Fire(4, 8))
    for spec, given in ((Alibi(3), None), (Fire(4, 8), values)):
        assert ch.bias(spec, np.zeros((0, 2), int), np.zeros((0, 5), int), values=given).shape == (0, spec.heads, 2, 5)
        assert ch.bias(spec, 0, 0, values=given).shape == (spec.heads, 0, 0)
    assert row_numbers(Buckets(3), np.zeros((0, 2), int), np.zeros((0, 5), int)).shape == (0, 2, 5)


@every("spec", [Alibi(3), Alibi(3, "key"), Fire(3, 4), Kerple(3)])
def test_a_causal_mask_is_minus_infinity_at_later_keys(spec):
    values = values_for(spec)
    for queries, keys in (
        (4, 6),
        ([5, 1, 9], [0, 1, 5, 7]),
        (np.array([[0, 1], [0, 2**62]]), np.array([[1, 0], [1, 5]])),
    ):
        plain = ch.bias(spec, queries, keys, values=values)
        masked = ch.bias(spec, queries, keys, values=values, causal=True)
        at = np.arange(2, 6) if isinstance(queries, int) else np.array(queries)
        after = (np.arange(keys) if isinstance(keys, int) else np.array(keys))[..., None, :] > at[..., :, None]
        after = np.broadcast_to(after[..., None, :, :], masked.shape)
        assert (masked[after] == -np.inf).all()
        assert np.array_equal(masked[~after], plain[~after])


def test_a_consecutive_matrix_and_an_irregular_one_have_the_same_numbers():
    """The short way, one number a diagonal, gives what each pair alone gives."""
    for row in MEMBERS:
        values = values_for(row.spec)
        at = np.arange(40)
        short = ch.bias(row.spec, 40, 40, values=values, causal=row.spec.ordered)
        shuffled = np.random.default_rng(1).permutation(at)
        pairs = ch.bias(row.spec, shuffled, shuffled, values=values, causal=row.spec.ordered)
        if getattr(row.spec, "form", "") == "last-key":  # the last of the keys is another
            continue
        np.testing.assert_allclose(pairs, short[:, shuffled][:, :, shuffled], rtol=2.0**-22, atol=2.0**-22)


# --- learned numbers in other libraries -------------------------------------------------------------------------

LEARNED = [row.spec for row in MEMBERS if row.spec.learned]


def gradients_of(library, loss, known):
    """The gradients of a loss in one library, by the names of the numbers, in float64."""
    module = pytest.importorskip(library)
    if library == "torch":
        values = {name: module.from_numpy(np.array(array)).requires_grad_() for name, array in known.items()}
        loss(values, module.from_numpy).backward()
        made = {name: array.grad.numpy() for name, array in values.items()}
    else:
        values = {name: module.numpy.asarray(array) for name, array in known.items()}
        made = module.jit(module.grad(lambda each: loss(each, module.numpy.asarray)))(values)
    return {name: np.asarray(gradient, np.float64) for name, gradient in made.items()}


@pytest.mark.parametrize("backend", ["torch", "jax"], indirect=True)
@every("spec", LEARNED, drawn={"jax": 3})
def test_gradients_reach_every_number(spec, backend):
    known, queries, keys = values_for(spec), np.arange(3, 9), np.arange(9)
    weights = np.random.default_rng(5).standard_normal((spec.heads, 6, 9)).astype(np.float32)

    def loss(values, asarray):
        return (ch.bias(spec, queries, keys, values=values) * asarray(weights)).sum()

    for name, gradient in gradients_of(backend.name, loss, known).items():
        assert np.isfinite(gradient).all(), name
        size = np.sqrt((gradient**2).sum())
        assert size > 0, name
        # Along its own direction the loss rises by the square of the gradient: a central difference in float64.
        step, sides = 1e-5 / size, []
        for sign in (1, -1):
            moved = {each: array.astype(np.float64) for each, array in known.items()}
            moved[name] = moved[name] + sign * step * gradient
            made = ch.bias(spec, queries, keys, values=moved, dtype="float64")
            sides.append((made * weights.astype(np.float64)).sum())
        assert (sides[0] - sides[1]) / (2 * step) == pytest.approx(size**2, rel=2e-3), name


def test_vmap_over_learned_numbers():
    spec = Kerple(4)
    values = {name: torch.rand(5, 4) + 0.1 for name in ("p", "a")}
    made = torch.func.vmap(lambda each: ch.bias(spec, 3, 9, values=each))(values)
    for index in range(5):
        alone = ch.bias(spec, 3, 9, values={name: array[index] for name, array in values.items()})
        assert torch.allclose(made[index], alone)


def test_values_of_few_bits_are_computed_with_in_float32():
    values = {name: torch.rand(4).add(0.1).bfloat16() for name in ("p", "a")}
    wide = {name: array.double().numpy() for name, array in values.items()}
    made = ch.bias(Kerple(4), 9, 9, values=values)
    assert made.dtype == torch.float32
    np.testing.assert_allclose(made.numpy(), ch.bias(Kerple(4), 9, 9, values=wide), rtol=2.0**-22)
    table = torch.randn(32, 4, dtype=torch.float64)
    assert np.array_equal(
        ch.bias(Buckets(4), 9, 9, values=table, dtype="float64").numpy(),
        ch.bias(Buckets(4), 9, 9, values=table.numpy(), dtype="float64"),
    )


# --- memory -----------------------------------------------------------------------------------------------------


def test_what_cannot_fit_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 2**30)
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge) as refusal:
            ch.bias(Alibi(16), 10**6, 10**6)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert str(refusal.value) == (
        "A bias of shape [16, 1000000, 1000000] would take 58.2 TiB; 1 GiB are available.\n"
        "hint: Ask for fewer queries at once: bias(spec, range(a, b), keys) gives the same rows."
    )
    with pytest.raises(TooLarge, match=r"Row numbers of shape \[1000000, 1000000\] would take 7.28 TiB"):
        row_numbers(Buckets(16), 10**6, 10**6)


def test_a_matrix_takes_little_more_than_itself():
    for spec in (Alibi(2), Alibi(2, "key"), Fire(2, 4), Kerple(2)):
        for causal in (False, True):
            tracemalloc.start()
            made = ch.bias(spec, 2_048, 2_048, values=values_for(spec), causal=causal)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            # Where each pair is computed by itself, blocks of 2**18 pairs with some float64 numbers each.
            assert peak < made.nbytes + 2**18 * 8 * 16
