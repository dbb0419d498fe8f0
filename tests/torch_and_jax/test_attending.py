"""Attention with a learned bias on the CPU: the numbers and gradients of PyTorch's function."""

import math
from typing import Any

import pytest

import clockhands as ch
from clockhands.encodings import biases
from late import Late

torch, held, attending = Late("torch"), Late("clockhands.torch"), Late("clockhands.torch._attending")

BATCH, HEADS, WIDTH = 2, 3, 8


def plain(*heads: Any, **more: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(*heads, **more)


def both(queries: int, keys: int, mask: Any, **more: Any) -> tuple[Any, Any]:
    """The output and the four gradients, by the blocks and by PyTorch."""
    torch.manual_seed(4)
    shapes = [(BATCH, HEADS, rows, WIDTH) for rows in (queries, keys, keys)]
    heads = [torch.randn(shape, dtype=mask.dtype).requires_grad_() for shape in shapes]
    weights = torch.randn(BATCH, HEADS, queries, WIDTH, dtype=mask.dtype)
    found = []
    for call in (attending.attention, lambda *given, **more: plain(*given[:3], attn_mask=given[3], **more)):
        out = call(*heads, mask, is_causal=False, **more)
        found.append([out, *torch.autograd.grad((out * weights).sum(), (*heads, mask))])
    return found[0], found[1]


def masked(queries: int, keys: int, batch: int = 1, *, causal: bool, dtype: str = "float64") -> Any:
    torch.manual_seed(5)
    mask = torch.randn(batch, HEADS, queries, keys, dtype=getattr(torch, dtype))
    if causal:
        mask = mask.masked_fill(torch.ones(queries, keys, dtype=torch.bool).triu(1 + keys - queries), -math.inf)
    return mask.requires_grad_()


@pytest.mark.parametrize("batch", [1, BATCH])
@pytest.mark.parametrize(
    ("queries", "keys", "causal"),
    [
        (5, 5, True),
        (1, 9, True),
        (70, 70, True),
        (130, 200, True),
        (70, 70, False),
        (130, 200, False),
        (200, 130, False),
    ],
)
def test_gradients_are_those_of_pytorch(queries: int, keys: int, batch: int, causal: bool):
    ours, theirs = both(queries, keys, masked(queries, keys, batch, causal=causal))
    assert "Blocks" in type(ours[0].grad_fn).__name__
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_float32_and_a_scale():
    ours, theirs = both(70, 70, masked(70, 70, causal=True, dtype="float32"), scale=0.3)
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


def test_a_key_that_only_some_queries_see_out_of_order():
    """A mask that is not triangular: no key may be left out."""
    mask = masked(130, 130, causal=True).detach()
    mask[:, :, 3, 129] = 0.5
    ours, theirs = both(130, 130, mask.requires_grad_())
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_a_query_that_sees_no_key_gives_no_nan():
    mask = masked(5, 5, causal=True).detach()
    mask[:, :, 2] = -math.inf
    ours, theirs = both(5, 5, mask.requires_grad_())
    for found, expected in zip(ours, theirs, strict=True):
        assert bool(found.isfinite().all())
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "spec",
    [ch.Buckets(HEADS, bidirectional=False), ch.Buckets(HEADS), biases.Kerple(HEADS), biases.Fire(HEADS, hidden=4)],
    ids=lambda spec: type(spec).__name__,
)
def test_the_parameters_of_a_bias_get_the_gradients_of_pytorch(spec: Any):
    code, length = held.module(spec, dtype=torch.float64), 70
    heads = [torch.randn(BATCH, HEADS, length, WIDTH, dtype=torch.float64) for _ in "qkv"]
    found = []
    for way in ("attend", "plain"):
        code.zero_grad()
        ready = code.prepare(length, like=heads[0])
        assert ready.mask.shape == (1, HEADS, length, length)
        out = ready.attend(*heads) if way == "attend" else plain(*heads, attn_mask=ready.mask)
        out.square().sum().backward()
        found.append([out.detach(), *(number.grad.clone() for number in code.parameters())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("way", ["no gradient", "half precision", "dropout", "grouped", "computed", "no mask"])
def test_everything_else_is_pytorchs_function(way: str, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_given: Any) -> None:
        raise AssertionError("the blocks were used")

    monkeypatch.setattr(attending.Blocks, "apply", refuse)
    dtype = torch.bfloat16 if way == "half precision" else torch.float32
    heads = [torch.randn(BATCH, HEADS, 6, WIDTH, dtype=dtype) for _ in "qkv"]
    if way == "grouped":
        heads[1:] = [each[:, :1] for each in heads[1:]]
    spec = {"computed": ch.Alibi(HEADS), "no mask": ch.Rotary(WIDTH)}.get(way, ch.Buckets(HEADS))
    ready = held.module(spec).prepare(6, like=heads[0])
    more = {"dropout": {"dropout_p": 0.5}, "grouped": {"enable_gqa": True}}.get(way, {})
    with torch.set_grad_enabled(way != "no gradient"):
        torch.manual_seed(0)
        found = ready.attend(*heads, **more)
        torch.manual_seed(0)
        expected = plain(*heads, attn_mask=ready.mask, is_causal=ready.is_causal, **more)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("places", ["count", "far back", "unordered"])
def test_a_network_is_evaluated_some_rows_at_a_time(places: str, causal: bool, monkeypatch: pytest.MonkeyPatch):
    """FIRE in blocks of queries: the numbers of one block, whichever keys a block sees."""
    code, length = held.module(biases.Fire(HEADS)), 40
    keys: Any = {"count": length, "far back": range(9, 9 + length), "unordered": list(range(length))[::-1]}[places]
    queries: Any = range(length) if places != "count" else length
    weights = torch.randn(HEADS, length, length)
    found = []
    for block in (1 << 16, 1, 3 * length):
        monkeypatch.setattr(biases.matrices, "_NETWORK_BLOCK", block)
        code.zero_grad()
        made = code.matrix(queries, keys, causal=causal)
        made.nan_to_num(neginf=0).mul(weights).sum().backward()
        found.append([made.detach(), *(number.grad.clone() for number in code.parameters())])
    with torch.no_grad():
        numbers = {name: number.numpy() for name, number in code.values.items()}
        exact = torch.from_numpy(ch.bias(code.spec, queries, keys, values=numbers, causal=causal))
    torch.testing.assert_close(found[1][0], exact, rtol=0, atol=1e-5)
    for blocks in found[1:]:
        for ours, theirs in zip(blocks, found[0], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
