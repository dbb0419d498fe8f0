"""Other libraries' own functions are identified: those that are installed here, called as they call them.

Those whose numbers are published are black boxes of the quick tests, in test_functions_published.py.
"""

import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands import scaling as scalings
from clockhands.ladders import Geometric
from clockhands.recognition.functions import identify_function
from clockhands.scaling import Dynamic, LongRope

pytestmark = pytest.mark.slow
torch: Any = None
transformers: Any = None
PEERS = json.loads(Path(__file__).with_name("peers.json").read_text(encoding="utf-8"))
ERROR = 131_072 * 8 * 2.0**-24 * 2  # phases of 131,072 rad in float32, and rates some units off in the 24th bit


@pytest.fixture(autouse=True, scope="module")
def peers():
    """Imported when the first test runs: the quick tests read this file too."""
    for name in ("torch", "transformers"):
        globals()[name] = pytest.importorskip(name)


def modeling(name):
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


def config_of(kind, **fields):
    return getattr(transformers, kind)(**({"hidden_size": 256, "num_attention_heads": 4} | fields))


def on_heads(apply, rotary):
    """The usual pair of a module that makes cosines and sines and a function that applies them to [batch, head, …]."""

    def function(x, positions):
        cosine, sine = rotary(x[None], positions[None])
        heads = x[None, None]
        return apply(heads, heads, cosine, sine)[0][0, 0]

    return function


def llama(rope, dtype=None):
    rope = {"rope_type": "default", "rope_theta": 10_000.0} | rope
    config = config_of("LlamaConfig", rope_parameters=rope, head_dim=64, max_position_embeddings=4_096)
    rotary = modeling("llama").LlamaRotaryEmbedding(config)
    return on_heads(modeling("llama").apply_rotary_pos_emb, rotary if dtype is None else rotary.to(dtype))


def identified(function, width=64):
    found = identify_function(function, width)
    assert found, found.reason
    return found[0], found.reason


def ropes():
    """What `rope_parameters` say, and the code that they are."""
    for name, (rope, fields) in PEERS["rope_parameters"].items():
        scaling = None
        if "scaling" in fields:
            kind, *values = fields["scaling"]
            options = values.pop() if isinstance(values[-1], dict) else {}
            scaling = getattr(scalings, kind)(*values, **options)
        yield name, rope, ch.Rotary(64, base=fields.get("base", 10_000.0), scaling=scaling)


def test_rope_types_of_transformers(cases):
    for name, rope, spec in ropes():
        with cases(name):
            match, _ = identified(llama(rope))
            evidence = dict(match.evidence)
            assert (match.spec, match.computed_in, match.confidence) == (spec, "float32", 1)
            parts = evidence["rates_in"] or "float32", evidence["phases_in"], evidence["table_in"]
            assert parts == ("float32",) * 3
            assert match.error < ERROR


def test_rates_of_few_bits_are_seen(cases):
    """After ``model.to(bfloat16)``; the ladder they were rounded from is still told."""
    for dtype in ("bfloat16", "float16"):
        for name, rope, spec in ropes():
            with cases(name, dtype):
                match, reason = identified(llama(rope, getattr(torch, dtype)))
                evidence = dict(match.evidence)
                assert (match.spec, evidence["rates_in"], match.computed_in) == (spec, dtype, dtype)
                assert f"Frequencies are stored in {dtype}." in reason
                assert 1 <= evidence["first_wrong_position"] <= 300
                assert match.error > 0.5
                # The measured rates are what the dtype makes of the ladder's.
                held = torch.tensor(spec.rates, dtype=torch.float32).to(getattr(torch, dtype)).double().numpy()
                assert np.allclose(evidence["rates"], held, atol=1e-9)


def test_dynamic_scaling_of_transformers():
    found, reason = identified(llama({"rope_type": "dynamic", "factor": 2.0}))
    assert found.spec == ch.Rotary(64, scaling=Dynamic(2.0, 4_096))
    assert "Up to position 4,095" in reason
    assert "keeps the frequencies of the longest call" in reason


def test_longrope_of_transformers():
    short, long = ([round(1 + step * pair, 2) for pair in range(32)] for step in (0.02, 0.5))
    rope = {"rope_type": "longrope", "short_factor": short, "long_factor": long, "factor": 32.0}
    lengths = {"max_position_embeddings": 131_072, "original_max_position_embeddings": 4_096}
    rope |= {"rope_theta": 10_000.0, "original_max_position_embeddings": 4_096}
    config = config_of("Phi3Config", rope_parameters=rope, pad_token_id=0, **lengths)
    module = modeling("phi3")
    found, reason = identified(on_heads(module.apply_rotary_pos_emb, module.Phi3RotaryEmbedding(config)))
    scaling = found.spec.scaling
    assert isinstance(scaling, LongRope)
    assert scaling.short == tuple(short)
    assert scaling.long == pytest.approx(long, rel=1e-3)
    assert (scaling.original, scaling.factor) == (4_096, 32.0)
    assert "Up to position 4,095" in reason


def deepseek_v3():
    module, config = modeling("deepseek_v3"), config_of("DeepseekV3Config", max_position_embeddings=4_096)
    config.head_dim = config.qk_rope_head_dim
    rotary = module.DeepseekV3RotaryEmbedding(config)

    def function(x, positions):
        still, heads = x[None, None, :, :-64], x[None, None, :, -64:]
        turned, _ = module.apply_rotary_pos_emb_interleave(heads, heads, *rotary(x[None], positions[None]))
        return torch.cat([still, turned], dim=-1)[0, 0]

    return function


def llama4():
    module, rope = modeling("llama4"), {"rope_type": "default", "rope_theta": 500_000.0}
    lengths = {"head_dim": 64, "max_position_embeddings": 4_096}
    rotary = module.Llama4TextRotaryEmbedding(config_of("Llama4TextConfig", rope_parameters=rope, **lengths))

    def function(x, positions):
        turned, _ = module.apply_rotary_emb(x[None, :, None], x[None, :, None], rotary(x[None], positions[None]))
        return turned[0, :, 0]

    return function


def nanochat():
    module = modeling("nanochat")
    return on_heads(module.apply_rotary_pos_emb, module.NanoChatRotaryEmbedding(config_of("NanoChatConfig")))


def esm():
    module, config = modeling("esm"), config_of("EsmConfig", vocab_size=33, pad_token_id=1)
    return on_heads(module.apply_rotary_pos_emb, module.EsmRotaryEmbedding(config))


def codegen():
    module = modeling("codegen")
    table = module.create_sinusoidal_positions(2_048, 32)

    def function(x, positions):
        sine, cosine = torch.split(table[positions], 16, dim=-1)
        heads = x[None, :, None]
        turned = module.apply_rotary_pos_emb(heads[..., :32], sine[None], cosine[None])
        return torch.cat([turned, heads[..., 32:]], dim=-1)[0, :, 0]

    return function


def test_functions_of_transformers(cases):
    for make, spec in (
        (codegen, ch.Rotary(64, "interleaved", rotated=32)),
        (deepseek_v3, ch.Rotary(192, "interleaved", rotated=64, part="last", reordered=True)),
        (llama4, ch.Rotary(64, "interleaved", base=500_000.0)),
        (nanochat, ch.Rotary(64, direction="backward")),
        (esm, ch.Rotary(64)),
    ):
        with cases(make.__name__):
            match, _ = identified(make(), spec.head_width)
            assert (match.spec, match.confidence) == (spec, 1)
            assert match.error < ERROR


def test_positional_encodings_adds_a_table():
    encodings = pytest.importorskip("positional_encodings.torch_encodings")
    module = encodings.Summer(encodings.PositionalEncoding1D(64))
    match, reason = identified(lambda x, _: module(x[None])[0])
    assert (match.spec.layout, match.spec.spacing) == ("interleaved", Geometric())
    assert "It adds a table to x" in reason
    assert "counts its rows" in reason
    assert match.error < 4_096 * 4 * 2.0**-24


def test_what_a_function_does_is_what_its_config_declares(tmp_path, cases):
    """Two ways to one code that share nothing: reading the config, and asking the code.

    Of the types that the resolver knows, those with one module of cosines and sines, whose function takes whole heads.
    """
    for name in PEERS["declared"]:
        with cases(name):
            module = modeling(name)
            kinds = inspect.getmembers(module, inspect.isclass)
            (kind, *_) = (
                kind for own, kind in kinds if own.endswith("RotaryEmbedding") and kind.__module__ == module.__name__
            )
            given = inspect.signature(kind.__init__).parameters["config"].annotation
            config = (given if inspect.isclass(given) else getattr(module, given))()
            config.save_pretrained(tmp_path / name)
            declared = [layer.spec for layer in ch.audit(tmp_path / name).layers if layer.kind == "rotary"]
            width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
            match, _ = identified(on_heads(module.apply_rotary_pos_emb, kind(config)), width)
            spec: Any = match.spec
            assert match.confidence == 1
            assert declared
            for other in declared:
                assert (other.layout, other.rotated, other.direction) == (spec.layout, spec.rotated, spec.direction)
                assert np.allclose(other.rates, spec.rates, rtol=1e-6, atol=0)
                assert other.attention_factor == pytest.approx(spec.attention_factor, abs=1e-6)
