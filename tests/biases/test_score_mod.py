"""The bias as a score_mod: the numbers of the whole matrix, in far less memory."""

import shutil
from contextlib import nullcontext

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.biases import Alibi, Buckets, Fire, Kerple, Window
from clockhands.errors import InvalidType
from late import Late
from laws.bias_members import MEMBERS, values_for
from oracles import sentences
from oracles.rows import every

jnp = Late("jax.numpy")

torch, flex = Late("torch"), Late("torch.nn.attention.flex_attention")
held = Late("clockhands.torch")


def score_mod(*arguments, **fields):
    return held.score_mod(*arguments, **fields)


@pytest.fixture
def attend():
    """FlexAttention without a compiler, which stores all scores and says so."""

    def attend(*arguments, **further):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return flex.flex_attention(*arguments, **further)

    return attend


def tensors(spec):
    known = values_for(spec)
    return known and {name: torch.from_numpy(np.array(array)) for name, array in known.items()}


def added(mod, heads, shape, batch=1):
    """What a score_mod adds, score by score, as FlexAttention calls it: in PyTorch 2.5 in a context of its own."""
    score = torch.zeros(())
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        mod = torch.vmap(mod, in_dims=(None, *dims))
    with getattr(flex, "TransformGetItemToIndex", nullcontext)():
        return mod(score, *(torch.arange(number, dtype=torch.int32) for number in (batch, heads, *shape)))


@every("row", MEMBERS)
def test_it_adds_the_numbers_of_the_matrix(row):
    values = tensors(row.spec)
    count = min(24, row.positions.stop)
    for queries, keys in ((7, count), (count, count), (range(3, 9), 5), ([4, 0, 9], [8, 1, 1, 0])):
        wanted = torch.as_tensor(ch.bias(row.spec, queries, keys, values=values))
        got = added(score_mod(row.spec, queries, keys, values=values), row.spec.heads, wanted.shape[1:])[0]
        if isinstance(row.spec, Fire):  # the same sums in another order
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
        else:
            assert torch.equal(got, wanted)


def test_attention_with_it_is_attention_with_the_matrix(attend, draw, cases):
    """Some members in each run: above, all of them add the numbers of the matrix."""
    for row in draw(MEMBERS, 5):
        torch.manual_seed(3)
        values, count = tensors(row.spec), min(24, row.positions.stop)
        q, k, v = (torch.randn(2, row.spec.heads, number, 8) for number in (7, count, count))
        bias = torch.as_tensor(ch.bias(row.spec, 7, count, values=values))
        wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        with cases(row.spec):
            got = attend(q, k, v, score_mod=score_mod(row.spec, 7, count, values=values))
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
            assert not torch.allclose(attend(q, k, v), wanted, atol=1e-3)


def test_a_batch_has_positions_of_its_own():
    at = np.array([[0, 1, 2, 3], [0, 0, 0, 1]])
    for spec in (Alibi(3), Alibi(3, "key"), Alibi(3, "last-key"), Buckets(3), Fire(3, 4), Window(3, 2, 2)):
        values = tensors(spec)
        wanted = torch.as_tensor(ch.bias(spec, at, at, values=values))
        for queries, keys in ((at, at), (torch.from_numpy(at), at.tolist())):
            got = added(score_mod(spec, queries, keys, values=values), 3, (4, 4), batch=2)
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
        # [1, seq], as position_ids come, beside a batch of two.
        got = added(score_mod(spec, at[:1], at[:1], values=values), 3, (4, 4), batch=2)
        torch.testing.assert_close(got, wanted[:1].expand(2, -1, -1, -1), rtol=1e-5, atol=1e-6)


def test_positions_may_lie_anywhere():
    for spec in (Alibi(2), Buckets(2), Kerple(2)):
        queries, keys, values = [2**62 + 5, 2**62 - 3], [2**62 + 1, 2**62 + 2, 2**62 - 4], tensors(spec)
        wanted = torch.as_tensor(ch.bias(spec, queries, keys, values=values))
        assert torch.equal(added(score_mod(spec, queries, keys, values=values), 2, (2, 3))[0], wanted)


@every("spec", [row.spec for row in MEMBERS if row.spec.learned])
def test_gradients_are_those_of_the_matrix(spec):
    count = 20 if spec.ordered else 40
    weights, gradients = torch.randn(spec.heads, count, count), []
    for way in ("matrix", "mod"):
        values = {name: array.requires_grad_() for name, array in tensors(spec).items()}
        if way == "matrix":
            made = ch.bias(spec, count, count, values=values)
        else:
            made = added(score_mod(spec, count, count, values=values), spec.heads, (count, count))[0]
        (made * weights).sum().backward()
        gradients.append([array.grad for array in values.values()])
    for matrix, mod in zip(*gradients, strict=True):
        torch.testing.assert_close(mod, matrix, rtol=1e-3, atol=1e-3)


def captured(mod):
    """Bytes of all tensors that a function holds, however deep."""
    held, waiting = {}, [mod]
    while waiting:
        for cell in waiting.pop().__closure__ or ():
            inside = cell.cell_contents
            if isinstance(inside, torch.Tensor):
                held[inside.data_ptr()] = inside.numel() * inside.element_size()
            elif callable(inside) and hasattr(inside, "__closure__"):
                waiting.append(inside)
    return sum(held.values())


@every("row", [row for row in MEMBERS if row.spec.ordered])
def test_it_holds_a_number_a_distance_and_no_matrix(row):
    heads, values = row.spec.heads, tensors(row.spec)
    learned = sum(array.numel() * 4 for array in (values or {}).values())
    for length in (64, 4_096):
        held = captured(score_mod(row.spec, length, length, values=values))
        assert 4 * length <= held <= 4 * 2 * length * max(heads, 2) + learned
    # Also where positions are not consecutive.
    scattered = np.arange(0, 8_192, 2)
    scattered[5] += 1
    assert captured(score_mod(row.spec, scattered, scattered, values=values)) <= 8 * 8_192 * (2 * heads + 4) + learned


def test_refused_in_words(cases):
    sentences.hold("score_mod", cases)


def test_values_of_another_library_are_refused():
    with pytest.raises(InvalidType, match="`values` must be PyTorch or NumPy arrays here"):
        score_mod(Kerple(2), 2, 2, values={"p": jnp.ones(2), "a": jnp.ones(2)})


INSIDE = {
    "counts": lambda bias, q, k: bias.score_mod(q.shape[-2], k.shape[-2]),
    "tensors": lambda bias, q, k: bias.score_mod(torch.arange(2, 2 + q.shape[-2]), torch.arange(k.shape[-2])),
    "a batch": lambda bias, q, k: bias.score_mod(torch.arange(2 * q.shape[-2]).reshape(2, -1), k.shape[-2]),
}


def graphs(function, lengths, backend="eager"):
    """How many graphs a function of queries and keys became at these lengths, each checked without a compiler."""
    torch.compiler.reset()
    counter = pytest.importorskip("torch._dynamo.testing").CompileCounterWithBackend(backend)
    compiled = torch.compile(function, fullgraph=True, backend=counter)
    for length in lengths:
        q, k = torch.randn(2, 2, length, 8), torch.randn(2, 2, length + 2, 8)
        wanted = function(q, k)  # first, so that what is imported late is there for the compiler
        assert torch.allclose(compiled(q, k), wanted, rtol=0, atol=1e-5)
    return counter.frame_count


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(
    ("spec", "way"),
    [
        (Buckets(2), "counts"),
        *(
            pytest.param(spec, way, marks=pytest.mark.slow)
            for spec, way in ((Alibi(2), "tensors"), (Alibi(2, "last-key"), "counts"), (Fire(2, hidden=3), "a batch"))
        ),
    ],
    ids=str,
)
def test_it_is_made_inside_a_compiled_function(spec, way):
    bias = held.Bias(spec).requires_grad_(False)

    def attend(q, k):
        return flex.flex_attention(q, k, k, score_mod=INSIDE[way](bias, q, k))

    # Another length is one graph more, in which lengths are unknown, and no further.
    assert graphs(attend, (6, 9, 12) if way == "counts" else (6,)) <= 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("inside", [False, True])
def test_attention_is_compiled_by_inductor(inside):
    if not shutil.which("g++"):
        pytest.skip("the compiled way needs a C++ compiler")
    if torch.version.__version__.startswith("2.5."):
        pytest.skip("PyTorch compiles FlexAttention on a CPU from 2.6 on")
    bias = held.Bias(Buckets(2)).requires_grad_(False)
    made = bias.score_mod(64, 66)

    def attend(q, k):  # PyTorch 2.11 refuses keys as values
        mod = bias.score_mod(q.shape[-2], k.shape[-2]) if inside else made
        return flex.flex_attention(q, k, 2 * k, score_mod=mod)

    assert graphs(attend, (64,), "inductor") == 1


def test_made_inside_it_stores_a_row_of_distances():
    """Counts need no matrix in the graph: its largest tensor is [heads, queries + keys - 1], beside the attention."""
    recorded = pytest.importorskip("torch._dynamo.testing").EagerAndRecordGraphs()
    torch.compiler.reset()
    bias = held.Bias(Buckets(2)).requires_grad_(False)

    def table(q, k):
        return bias.score_mod(q.shape[-2], k.shape[-2])(
            q[0, 0, 0, 0], 0, torch.tensor(1), torch.tensor(3), torch.tensor(2)
        )

    q, k = torch.randn(1, 2, 50, 8), torch.randn(1, 2, 60, 8)
    assert torch.equal(torch.compile(table, fullgraph=True, backend=recorded)(q, k), table(q, k))
    values = [node.meta.get("example_value") for graph in recorded.graphs for node in graph.graph.nodes]
    made = [
        value.numel()
        for value in values
        if isinstance(value, torch.Tensor) and value.numel() not in (q.numel(), k.numel())
    ]
    assert 0 < max(made) <= 2 * (50 + 60 - 1)
