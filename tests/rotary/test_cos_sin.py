"""Cosine and sine made once a step: the same numbers bit for bit, and what is refused."""

import dataclasses
import itertools
import pickle
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.rotary import XPos, as_cos_sin, chunked, cos_sin, rotate, rotate_both, rotating
from late import Late
from oracles import sentences
from oracles.rows import every

jax, jnp, torch = Late("jax"), Late("jax.numpy"), Late("torch")

SEQ = 5
PLACES = np.stack([np.arange(SEQ) // 3, np.arange(SEQ) % 3, np.arange(SEQ)], axis=-1)
BATCHED = np.array([[0, 1, 2, 3, 4], [7, 9, 10, 1000, 10**12]])

CASES = {
    "plain": (ch.Rotary(8), range(SEQ)),
    "count": (ch.Rotary(8), SEQ),
    "interleaved": (ch.Rotary(8, layout="interleaved"), [3, 1, 4, 1, 5]),
    "in part, backward": (ch.Rotary(8, rotated=4, part="last", direction="backward"), [0.5, 1.5, 2.0, 3.0, 4.25]),
    "reordered": (ch.Rotary(8, layout="interleaved", reordered=True), range(7, 7 + SEQ)),
    "scaled": (ch.Rotary(8, scaling=ch.scaling.Yarn(factor=8.0, original=64)), [2**62, 0, -3, 7, 10**9]),
    "axes": (ch.Rotary(8, axes=chunked([1, 1, 2])), PLACES),
    "batched": (ch.Rotary(8), BATCHED),
    "batched axes": (ch.Rotary(8, axes=chunked([1, 1, 2])), np.stack([PLACES, PLACES[::-1]])),
    "long": (ch.Rotary(8), range(3000)),
}


def heads(library: str, dtype: str, seq: int = SEQ) -> Any:
    values = np.random.default_rng(3).standard_normal((2, 3, seq, 8))
    if library == "numpy":
        return values.astype(dtype)
    if library == "torch":
        return torch.from_numpy(values).to(getattr(torch, dtype))
    return jnp.asarray(values.astype(np.float32)).astype(dtype)


def same(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and bool((a == b).all())


def positions_of(case: str) -> tuple[Any, Any, Any]:
    """The code, the positions as `rotate` takes them, and as `cos_sin` does."""
    spec, positions = CASES[case]
    return spec, range(positions) if isinstance(positions, int) else positions, positions


KINDS = {"numpy": ("float32", "float64", "float16"), "torch": ("float32", "float64", "bfloat16"), "jax": ("float32",)}


@every("library", KINDS)
def test_the_numbers_are_those_of_rotate_bit_for_bit(library: str, draw: Any, cases: Any):
    rows = list(itertools.product(CASES, KINDS[library]))
    for case, dtype in draw(rows, 3) if library == "jax" else rows:  # which compiles each
        spec, positions, given = positions_of(case)
        x = heads(library, dtype, 3000 if case == "long" else SEQ)
        with cases(case, library, dtype):
            pair = cos_sin(spec, given, like=x)
            assert str(pair.cosine.dtype).endswith("float64" if dtype == "float64" else "float32")
            assert same(rotate(x, spec, cos_sin=pair), rotate(x, spec, positions))
            queries, keys = rotate_both(x, x[:, :1], spec, cos_sin=pair)
            assert same(queries, rotate(x, spec, positions))
            assert same(keys, rotate(x[:, :1], spec, positions))


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_xpos_needs_a_pair_for_each_role(library: str):
    spec, x = ch.Rotary(8, xpos=XPos()), heads(library, "float32")
    pairs = cos_sin(spec, range(SEQ), like=x, role="query"), cos_sin(spec, range(SEQ), like=x, role="key")
    expected = rotate_both(x, x, spec, range(SEQ))
    assert all(same(*both) for both in zip(rotate_both(x, x, spec, cos_sin=pairs), expected, strict=True))
    assert same(rotate(x, spec, role="key", cos_sin=pairs[1]), expected[1])
    with pytest.raises(ch.errors.InvalidValue, match="made for the role 'query', but these heads have the role 'key'"):
        rotate(x, spec, role="key", cos_sin=pairs[0])
    with pytest.raises(ch.errors.InvalidValue, match="made for the role 'query', but these heads"):
        rotate_both(x, x, spec, cos_sin=pairs[0])
    with pytest.raises(ch.errors.InvalidValue, match="`role` must be"):
        cos_sin(spec, SEQ, like=x)


def test_queries_may_stand_elsewhere_than_keys():
    spec, x = ch.Rotary(8), heads("numpy", "float32")
    pairs = cos_sin(spec, [4], like=x), cos_sin(spec, SEQ, like=x)
    query, keys = rotate_both(x[:, :, 4:], x, spec, cos_sin=pairs)
    assert same(query, rotate(x[:, :, 4:], spec, [4]))
    assert same(keys, rotate(x, spec))


@every("library", ["numpy", "torch", "jax"])
@every("case", ["plain", "interleaved", "in part, backward", "axes", "batched"])
def test_repeated_to_channels_they_rotate_by_the_formula_of_other_libraries(case: str, library: str):
    spec, positions, given = positions_of(case)
    x = heads(library, "float32")
    cosine, sine = (np.asarray(part) for part in cos_sin(spec, given, like=x).repeated())
    block = np.asarray(x)[..., spec.start : spec.start + spec.rotated]
    if spec.layout == "halves":
        first, second = np.split(block, 2, axis=-1)
        turned = np.concatenate((-second, first), axis=-1)
    else:
        turned = np.stack((-block[..., 1::2], block[..., 0::2]), axis=-1).reshape(block.shape)
    if cosine.ndim == 3:
        cosine, sine = cosine[:, None], sine[:, None]
    expected = np.asarray(rotate(x, spec, positions))[..., spec.start : spec.start + spec.rotated]
    assert np.abs(block * cosine + turned * sine - expected).max() <= 2.0**-22 * np.abs(block).max()


def test_a_module_makes_and_takes_the_pair():
    module, x = Late("clockhands.torch").Rotary(ch.Rotary(8)), heads("torch", "float32")
    pair = module.cos_sin(torch.arange(SEQ), like=x)
    assert same(module(x, cos_sin=pair), module(x, torch.arange(SEQ)))
    assert all(same(*both) for both in zip(module.both(x, x, cos_sin=pair), module.both(x, x), strict=True))


def test_a_pair_of_any_library_of_the_array_api():
    strict = pytest.importorskip("array_api_strict")
    spec, x = ch.Rotary(8), heads("numpy", "float32")
    array = strict.asarray(x)
    rotated = rotate(array, spec, cos_sin=cos_sin(spec, SEQ, like=array))
    assert np.array_equal(np.asarray(rotated), np.asarray(rotate(array, spec)))


def test_phases_are_made_once(monkeypatch: pytest.MonkeyPatch):
    calls = []
    made = rotating.cosine_sine
    monkeypatch.setattr(rotating, "cosine_sine", lambda *given: calls.append(1) or made(*given))
    spec, x = ch.Rotary(8), heads("numpy", "float32")
    pair = cos_sin(spec, SEQ, like=x)
    for _ in range(4):
        rotate(x, spec, cos_sin=pair)
    assert calls == [1]


def test_what_the_spec_remembers_cannot_be_changed():
    spec = ch.Rotary(8)
    x = heads("numpy", "float32", 600)
    cosine, sine = cos_sin(spec, 600, like=x)
    with pytest.raises(ValueError, match="read-only"):
        cosine[0] = 7
    with pytest.raises(ValueError, match="read-only"):
        sine[0] = 7
    pair = cos_sin(spec, 600, like=torch.zeros(1))
    pair.cosine.fill_(7)
    assert float(np.abs(rotate(x, spec) - rotate(x, ch.Rotary(8))).max()) == 0


@pytest.mark.parametrize("inference", [False, True])
def test_a_pair_that_is_changed_in_place_serves_no_size_any_more(inference: bool):
    """Layers that rotated before keep what was made from the old numbers; so the new ones must not reach others."""
    spec, few, many = ch.Rotary(8), torch.zeros(1, 2, SEQ, 8), torch.zeros(9, 64, SEQ, 8)
    for change in ("cosine", "sine"):
        with torch.inference_mode(inference):
            pair = cos_sin(spec, SEQ, like=few)
            rotate(few, spec, cos_sin=pair)
            getattr(pair, change).add_(1)
            for x in (few, many):
                with pytest.raises(ch.errors.InvalidValue, match="`cos_sin` was changed in place after it was made"):
                    rotate(x, spec, cos_sin=pair)
    kept = pickle.loads(pickle.dumps(cos_sin(spec, SEQ, like=few)))
    assert same(rotate(few, spec, cos_sin=kept), rotate(few, spec))
    with pytest.raises(dataclasses.FrozenInstanceError):
        kept.cosine = few


@every("library", ["numpy", "torch", "jax"])
@every("case", ["plain", "interleaved", "in part, backward", "scaled", "batched"])
def test_a_table_of_ones_own_rotates_full_width_or_not(case: str, library: str):
    spec, _, given = positions_of(case)
    x = heads(library, "float32")
    pair = cos_sin(spec, given, like=x)
    for parts in (tuple(pair), pair.repeated(), [np.asarray(part, np.float64) for part in pair]):
        assert same(rotate(x, spec, cos_sin=as_cos_sin(spec, *parts, like=x)), rotate(x, spec, cos_sin=pair))


def test_the_table_of_transformers_is_one_of_ones_own_in_bfloat16_too():
    modelling = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = modelling.LlamaConfig(hidden_size=32, num_attention_heads=4)
    x, spec = heads("torch", "bfloat16"), ch.Rotary(8)
    cosine, sine = modelling.LlamaRotaryEmbedding(config)(x, torch.arange(SEQ)[None])
    assert (cosine.dtype, cosine.shape) == (torch.bfloat16, (1, SEQ, 8))
    mine = as_cos_sin(spec, cosine, sine)
    cosine.zero_()  # a copy was taken
    theirs, _ = modelling.apply_rotary_pos_emb(x, x, mine.repeated()[0], mine.repeated()[1])
    assert float((rotate(x, spec, cos_sin=mine).float() - theirs.float()).abs().max()) < 2.0**-6
    assert float((rotate(x, spec, cos_sin=mine).float() - rotate(x, spec).float()).abs().max()) > 0  # what it lost
    turned = torch.compile(lambda c, s, x: rotate(x, spec, cos_sin=as_cos_sin(spec, c, s, x)), backend="eager")
    assert same(turned(*mine.repeated(), x), rotate(x, spec, cos_sin=mine))


def test_gradients_pass():
    spec, x = ch.Rotary(8, layout="interleaved"), heads("torch", "float64")
    pair = cos_sin(spec, BATCHED, like=x)
    given = [x.clone().requires_grad_(), x.clone().requires_grad_()]
    weights = torch.linspace(0, 1, x.numel(), dtype=torch.float64).reshape(x.shape)
    (rotate(given[0], spec, cos_sin=pair) * weights).sum().backward()
    (rotate(given[1], spec, BATCHED) * weights).sum().backward()
    assert same(given[0].grad, given[1].grad)
    assert float(given[0].grad.abs().max()) > 0


def test_one_graph_of_pytorchs_compiler():
    torch._dynamo.reset()
    spec, x = ch.Rotary(8), heads("torch", "float32")

    def step(x: Any, places: Any, pair: Any) -> Any:
        pairs = cos_sin(spec, places, like=x), cos_sin(spec, x.shape[-2], like=x)
        twice = [rotate(rotate(x, spec, cos_sin=pair), spec, cos_sin=pair) for pair in pairs]
        return torch.stack([*twice, rotate(x, spec, cos_sin=pair)])

    given = x, torch.arange(SEQ), cos_sin(spec, SEQ, like=x)
    found = torch.compile(step, fullgraph=True, backend="eager", dynamic=True)(*given)
    assert float((found - step(*given)).abs().max()) < 2e-6
    assert float((found[2] - rotate(x, spec)).abs().max()) < 2e-6
    torch._dynamo.reset()


def test_a_pair_passes_through_jit():
    spec, x = ch.Rotary(8), heads("jax", "float32")
    turned = jax.jit(lambda x, pair: rotate(x, spec, cos_sin=pair))(x, cos_sin(spec, SEQ, like=x))
    inside = jax.jit(lambda x, places: rotate(x, spec, cos_sin=cos_sin(spec, places, like=x)))(x, np.arange(SEQ))
    for found in (turned, inside):
        assert float(abs(found - rotate(x, spec)).max()) < 2e-6


SPEC, X = ch.Rotary(8), np.zeros((2, 3, SEQ, 8), np.float32)
PAIR = cos_sin(SPEC, SEQ, like=X)


def test_misuse_is_refused(cases):
    sentences.hold("cos_sin", cases)


def test_a_pair_of_another_library_is_refused():
    with pytest.raises(ch.errors.InvalidType, match="`cos_sin` is of the library numpy, but `x` is of torch"):
        rotate(torch.zeros(SEQ, 8), SPEC, cos_sin=PAIR)
