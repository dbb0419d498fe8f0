"""One model for every position code: `clockhands.torch.module` and the interface that its modules share."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings import additive, biases, specs
from clockhands.encodings.additive import WarpedPosition
from clockhands.encodings.mixtures import LayerMixture
from clockhands.encodings.rotary import XPos, chunked, rotating
from late import Late

torch, held, written = Late("torch"), Late("clockhands.torch"), Late("torch_and_jax.written_models")

WIDTH, HEADS, SEQ = 16, 2, 6
HEAD_WIDTH = WIDTH // HEADS

# Every type of one axis, with fields where it needs some.
CODES = {
    "none": None,
    "NoPosition": ch.NoPosition(WIDTH),
    "Sinusoidal": ch.Sinusoidal(WIDTH),
    "FourierFeatures": additive.FourierFeatures(WIDTH, axes=1),
    "Learned": ch.Learned(WIDTH, rows=12),
    "Counter": additive.Counter(WIDTH),
    "NormalizedCounter": additive.NormalizedCounter(WIDTH, length=12),
    "SineOnly": additive.SineOnly(WIDTH),
    "SingleFrequency": additive.SingleFrequency(WIDTH),
    "EvenlySpaced": additive.EvenlySpaced(WIDTH),
    "Binary": additive.Binary(WIDTH),
    "WarpedPosition": WarpedPosition(WIDTH, "square"),
    "Rotary": ch.Rotary(HEAD_WIDTH),
    "Rotary with xPos": ch.Rotary(HEAD_WIDTH, xpos=XPos()),
    "Alibi": ch.Alibi(HEADS),
    "Buckets": ch.Buckets(HEADS, bidirectional=False),
    "CeilingBuckets": biases.CeilingBuckets(HEADS),
    "Clipped": biases.Clipped(HEADS, span=4),
    "Decay": biases.Decay(HEADS),
    "Slopes": biases.Slopes((0.5, 0.125)),
    "Fire": biases.Fire(HEADS, hidden=4),
    "Kerple": biases.Kerple(HEADS),
    "LayerMixture": LayerMixture((ch.Rotary(HEAD_WIDTH), None), pattern=(0, 1)),
}
OF_SEVERAL_AXES = {additive.AxialSinusoidal, biases.Window, biases.LogWindow}


def by_hand(model: Any, x: Any) -> Any:
    """The same model by direct calls of `ch.add`, `ch.rotate` and `ch.bias`."""
    spec = model.code.spec
    if isinstance(spec, additive.AdditiveCode):
        x = ch.add(x, spec, values=getattr(model.code, "values", None))
    after = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).triu(1)
    for index, block in enumerate(model.blocks):
        queries, keys, values = block(x).unflatten(-1, (3, HEADS, HEAD_WIDTH)).permute(2, 0, 3, 1, 4)
        here = spec.layer(index) if isinstance(spec, LayerMixture) else spec
        if isinstance(here, ch.Rotary):
            roles = (None, None) if here.xpos is None else ("query", "key")
            queries, keys = ch.rotate(queries, here, role=roles[0]), ch.rotate(keys, here, role=roles[1])
        scores = queries @ keys.mT / HEAD_WIDTH**0.5
        if isinstance(here, biases.BiasCode):
            made = ch.bias(here, x.shape[-2], x.shape[-2], values=model.code.values, dtype="float32")
            scores = scores + torch.as_tensor(made)
        out = scores.masked_fill(after, -torch.inf).softmax(-1) @ values
        x = x + out.transpose(1, 2).flatten(-2)
    return x


def attention(*heads: Any, **more: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(*heads, **more)


def tokens(seq: int = SEQ, batch: int = 3) -> Any:
    return torch.from_numpy(np.random.default_rng(2).standard_normal((batch, seq, WIDTH)).astype(np.float32))


def test_every_type_of_one_axis_is_tried():
    assert {type(spec) for spec in CODES.values()} - {type(None)} == set(specs.SPECS) - OF_SEVERAL_AXES


@pytest.mark.parametrize("name", CODES)
def test_one_model_runs_with_every_code(name: str):
    model, x = written.AnyCode(CODES[name]), tokens()
    found = model(x)
    torch.testing.assert_close(found, by_hand(model, x), rtol=0, atol=2e-5)
    found.square().sum().backward()
    for parameter, number in model.code.named_parameters():
        assert number.grad is not None, parameter
        assert bool(number.grad.isfinite().all()), parameter
        if parameter != "threshold":  # which acts from position 512 on
            assert float(number.grad.abs().max()) > 0, parameter


def test_models_without_a_code_and_with_one_for_each_layer_are_copied_and_pickled():
    """Modules of one code are copied, pickled and loaded in `test_torch_modules.py`."""
    for name in ("none", "LayerMixture"):
        model = written.AnyCode(CODES[name])
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.equal(other(tokens()), model(tokens()))
        assert copy.deepcopy(model).code.spec is model.code.spec
    for name, spec in CODES.items():
        assert type(spec).__name__.removeprefix("Layer") in repr(held.module(spec)) or spec is None, name


def test_the_modules_are_the_known_ones():
    kinds = {
        name: type(held.module(CODES[name])).__name__
        for name in ("none", "NoPosition", "Learned", "Rotary", "Fire", "LayerMixture")
    }
    assert kinds == {
        "none": "NoCode",
        "NoPosition": "NoCode",
        "Learned": "Additive",
        "Rotary": "Rotary",
        "Fire": "Bias",
        "LayerMixture": "Mixture",
    }
    assert list(held.module(CODES["Learned"]).state_dict()) == ["weight"]
    assert list(held.module(None).state_dict()) == list(held.module(CODES["Rotary"]).state_dict()) == []
    assert held.module(CODES["Rotary"]).layer(5) is not None
    table = np.arange(12.0 * WIDTH).reshape(12, WIDTH)
    made = held.module(CODES["Learned"], table, dtype=torch.float64)
    assert made.weight.dtype == torch.float64
    assert made.weight.tolist() == table.tolist()
    x = tokens()
    assert held.module(None)(x) is x is held.module(CODES["NoPosition"]).embed(x)


def test_one_prepare_a_step_makes_phases_once(monkeypatch: pytest.MonkeyPatch):
    calls = []
    made = rotating.cosine_sine
    monkeypatch.setattr(rotating, "cosine_sine", lambda *given: calls.append(1) or made(*given))
    model = written.AnyCode(ch.Rotary(HEAD_WIDTH))
    model(tokens())
    assert calls == [1]
    model(tokens())
    assert calls == [1, 1]


def test_a_mixture_gives_each_layer_its_code():
    rotary, bias = ch.Rotary(HEAD_WIDTH), ch.Buckets(HEADS)
    spec = LayerMixture((rotary, None, bias, ch.Sinusoidal(WIDTH)), pattern=(3, 0, 1, 2))
    code = held.module(spec, [None, None, np.arange(64.0).reshape(32, 2), None])
    assert list(code.state_dict()) == ["codes.2.table"]
    assert [code.layer(index).spec for index in range(5)] == [spec.layer(index) for index in range(5)]
    x = tokens()
    assert torch.equal(code.embed(x), ch.add(x, ch.Sinusoidal(WIDTH)))
    prepared = code.prepare(SEQ, like=x)
    heads = torch.randn(3, HEADS, SEQ, HEAD_WIDTH)
    for index in (0, 2, 3, 4):
        assert prepared.layer(index).turn(heads, heads)[1] is heads
    assert torch.equal(prepared.layer(1).turn(heads, heads)[1], ch.rotate(heads, rotary))
    assert torch.equal(prepared.layer(1).turn(heads, heads)[1], prepared.layer(5).turn(heads, heads)[1])
    assert [prepared.layer(index).mask is None for index in range(4)] == [True, True, True, False]
    assert [prepared.layer(index).is_causal for index in range(4)] == [True, True, True, False]
    expected = ch.bias(bias, SEQ, SEQ, values=code.layer(3).values, causal=True)
    assert torch.equal(prepared.layer(3).mask[0], expected)


def test_an_additive_code_that_would_never_be_added_is_refused():
    code = held.module(LayerMixture((None, ch.Sinusoidal(WIDTH)), pattern=(0, 1)))
    with pytest.raises(ch.errors.InvalidValue, match="Layer 1 has an additive encoding that layer 0 does not have"):
        code.embed(tokens())
    assert torch.equal(code.layer(1).embed(tokens()), ch.add(tokens(), ch.Sinusoidal(WIDTH)))


RANDOMISED = np.array([[0, 3, 4, 9, 11, 40], [1, 2, 5, 6, 7, 512], [0, 1, 2, 3, 4, 5]])


@pytest.mark.parametrize("kind", ["array", "tensor", "list"])
@pytest.mark.parametrize("batched", [True, False])
def test_positions_may_be_given(kind: str, batched: bool):
    positions: Any = RANDOMISED if batched else RANDOMISED[0]
    positions = {"array": positions, "tensor": torch.from_numpy(positions), "list": positions.tolist()}[kind]
    x, heads = tokens(), torch.randn(3, HEADS, SEQ, HEAD_WIDTH)
    sinusoid, rotary, bias = ch.Sinusoidal(WIDTH), ch.Rotary(HEAD_WIDTH), ch.Alibi(HEADS)
    assert torch.equal(held.module(sinusoid).embed(x, positions), ch.add(x, sinusoid, positions))
    for given in ((positions,), (positions, positions)):
        ready = held.module(rotary).prepare(*given, like=x)
        assert ready.is_causal
        assert torch.equal(ready.turn(heads, heads[:, :1])[1], ch.rotate(heads[:, :1], rotary, positions))
        mask = held.module(bias).prepare(*given, like=x).mask
        expected = ch.bias(bias, positions, positions, causal=True)
        assert mask.shape == (3 if batched else 1, HEADS, SEQ, SEQ)
        assert np.array_equal(mask.numpy(), expected if batched else expected[None])
    assert attention(heads, heads, heads, attn_mask=mask).isfinite().all()


@pytest.mark.parametrize("keys", [SEQ, range(SEQ), list(range(SEQ)), RANDOMISED, RANDOMISED.tolist()])
@pytest.mark.parametrize("xpos", [None, XPos()])
@pytest.mark.parametrize("queries", [1, 2])
def test_cached_decoding(keys: Any, xpos: Any, queries: int):
    rotary, roles = ch.Rotary(HEAD_WIDTH, xpos=xpos), {} if xpos is None else {"role": "key"}
    heads = torch.randn(3, HEADS, SEQ, HEAD_WIDTH)
    places = np.arange(SEQ) if isinstance(keys, int) else np.array(keys)
    whole, _ = rotating.rotate_both(heads, heads, rotary, places)
    ready = held.module(rotary).prepare(queries, keys, like=heads)
    turned, kept = ready.turn(heads[:, :, -queries:], heads)  # a cache of keys that are not rotated yet
    assert torch.equal(turned, whole[:, :, -queries:])
    assert torch.equal(kept, ch.rotate(heads, rotary, places, **roles))
    turned, new = ready.turn(heads[:, :, -queries:], heads[:, :, -queries:])  # a cache of rotated keys
    assert torch.equal(turned, whole[:, :, -queries:])
    assert torch.equal(new, kept[:, :, -queries:])


@pytest.mark.parametrize("name", ["none", "Sinusoidal", "Rotary", "Alibi", "Buckets"])
@pytest.mark.parametrize("queries", [1, 2, SEQ])
def test_attention_of_the_last_queries_is_that_of_the_whole(name: str, queries: int):
    code, heads = held.module(CODES[name]), torch.randn(3, HEADS, SEQ, HEAD_WIDTH)

    def out(many: int) -> Any:
        ready = code.prepare(many, SEQ, like=heads)
        turned, keys = ready.turn(heads[:, :, -many:], heads)
        return attention(turned, keys, heads, attn_mask=ready.mask, is_causal=ready.is_causal)

    torch.testing.assert_close(out(queries), out(SEQ)[:, :, -queries:], rtol=0, atol=1e-6)


def test_without_a_causal_mask():
    x = tokens()
    for name in ("none", "Learned", "Rotary"):
        ready = held.module(CODES[name]).prepare(SEQ, like=x, causal=False)
        assert ready.mask is None
        assert not ready.is_causal
    mask = held.module(CODES["Alibi"]).prepare(SEQ, like=x, causal=False).mask
    assert np.array_equal(mask[0].numpy(), ch.bias(CODES["Alibi"], SEQ, SEQ))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_a_mask_has_the_dtype_of_the_tokens(dtype: str):
    like = torch.zeros(1, dtype=getattr(torch, dtype))
    for name in ("Alibi", "Buckets"):
        code = held.module(CODES[name])
        mask = code.prepare(SEQ, like=like).mask[0]
        assert mask.dtype == like.dtype
        expected = ch.bias(code.spec, SEQ, SEQ, values=code.values, dtype=dtype, causal=True)
        assert torch.equal(
            mask, expected if torch.is_tensor(expected) else code.matrix(SEQ, SEQ, causal=True, dtype=like.dtype)
        )


def test_the_mask_of_a_computed_bias_is_made_once(monkeypatch: pytest.MonkeyPatch):
    calls = []
    made = biases.bias
    monkeypatch.setattr(biases, "bias", lambda *given, **more: calls.append(given[1:3]) or made(*given, **more))
    spec, like = ch.Alibi(HEADS, octaves=7.5), torch.zeros(1)
    code, other = held.module(spec), held.module(ch.Alibi(HEADS, octaves=7.5))
    first = code.prepare(SEQ, like=like).mask
    assert code.prepare(SEQ, like=like).mask is first is other.prepare(SEQ, SEQ, like=like).mask
    assert held.module(ch.Alibi(HEADS, octaves=7.25)).prepare(SEQ, like=like).mask is not first
    assert calls == [(SEQ, SEQ)] * 2
    code.prepare(SEQ, like=like.double())
    code.prepare(SEQ, like=like, causal=False)
    code.prepare(SEQ - 1, like=like)
    assert len(calls) == 5
    again = code.prepare(SEQ, like=like).mask
    assert torch.equal(again, first)
    again.mul_(2)  # changed in place by a caller: it is made again
    assert torch.equal(code.prepare(SEQ, like=like).mask, first)
    code.prepare(SEQ, like=like).mask.requires_grad_()
    assert not code.prepare(SEQ, like=like).mask.requires_grad
    with torch.inference_mode():
        code.prepare(7, like=like)
    heads = torch.randn(1, HEADS, 7, HEAD_WIDTH, requires_grad=True)
    code.prepare(7, like=heads).attend(heads, heads, heads).sum().backward()
    assert pickle.loads(pickle.dumps(code)).spec == spec


def test_codes_of_several_axes():
    places = np.stack([np.arange(SEQ) // 3, np.arange(SEQ) % 3], axis=-1)
    rotary, heads = ch.Rotary(HEAD_WIDTH, axes=chunked([2, 2])), torch.randn(3, HEADS, SEQ, HEAD_WIDTH)
    ready = held.module(rotary).prepare(places, like=heads)
    assert torch.equal(ready.turn(heads, heads)[0], ch.rotate(heads, rotary, places))
    ready = held.module(rotary).prepare(1, places, like=heads)
    assert torch.equal(ready.turn(heads[:, :, -1:], heads)[0], ch.rotate(heads, rotary, places)[:, :, -1:])
    flat = additive.AxialSinusoidal(WIDTH)
    assert torch.equal(held.module(flat).embed(tokens(), places), ch.add(tokens(), flat, places))
    assert held.module(flat).prepare(places, like=heads).is_causal
    window = held.module(biases.Window(HEADS, 3, 2))
    assert window.prepare(SEQ, like=heads, causal=False).mask.shape == (1, HEADS, SEQ, SEQ)


# The slow one has a layer without a code.
@pytest.mark.parametrize(
    "name",
    ["Buckets", *(pytest.param(name, marks=pytest.mark.slow) for name in ("LayerMixture", "Sinusoidal", "Alibi"))],
)
def test_a_model_is_one_graph_of_pytorchs_compiler(name: str):
    torch._dynamo.reset()
    model, x = written.AnyCode(CODES[name]), tokens()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=1e-5)
    torch.testing.assert_close(compiled(x[:, :4]), model(x[:, :4]), rtol=0, atol=1e-5)
    torch._dynamo.reset()
