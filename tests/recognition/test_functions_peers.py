"""The functions of Transformers are identified by what their rope parameters say, called as the library calls them.

Other libraries' functions are black boxes of the quick tests, in test_functions_published.py.
"""

import json
from pathlib import Path

import pytest

import clockhands as ch
from clockhands.encodings import scaling as scalings
from clockhands.encodings.scaling import Dynamic
from clockhands.recognition.functions import identify_function

pytestmark = pytest.mark.slow
PEERS = json.loads(Path(__file__).with_name("peers.json").read_text(encoding="utf-8"))
ERROR = 131_072 * 8 * 2.0**-24 * 2  # phases of 131,072 rad in float32, and rates some units off in the 24th bit


def identified(rope):
    """What Llama's rotation of such rope parameters is found to be, and why."""
    pytest.importorskip("torch")
    module = pytest.importorskip("transformers.models.llama.modeling_llama")
    rope = {"rope_type": "default", "rope_theta": 10_000.0} | rope
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "head_dim": 64, "max_position_embeddings": 4_096}
    rotary = module.LlamaRotaryEmbedding(module.LlamaConfig(**sizes, rope_parameters=rope))

    def function(x, positions):
        cosine, sine = rotary(x[None], positions[None])
        heads = x[None, None]
        return module.apply_rotary_pos_emb(heads, heads, cosine, sine)[0][0, 0]

    found = identify_function(function, 64)
    assert found, found.reason
    return found[0], found.reason


def test_rope_types_of_transformers(cases):
    for name, (rope, fields) in PEERS["rope_parameters"].items():
        scaling = None
        if "scaling" in fields:
            kind, *values = fields["scaling"]
            options = values.pop() if isinstance(values[-1], dict) else {}
            scaling = getattr(scalings, kind)(*values, **options)
        spec = ch.Rotary(64, base=fields.get("base", 10_000.0), scaling=scaling)
        with cases(name):
            match, _ = identified(rope)
            evidence = dict(match.evidence)
            assert (match.spec, match.computed_in, match.confidence) == (spec, "float32", 1)
            parts = evidence["rates_in"] or "float32", evidence["phases_in"], evidence["table_in"]
            assert parts == ("float32",) * 3
            assert match.error < ERROR


def test_dynamic_scaling_of_transformers():
    found, reason = identified({"rope_type": "dynamic", "factor": 2.0})
    assert found.spec == ch.Rotary(64, scaling=Dynamic(2.0, 4_096))
    assert "Up to position 4,095" in reason
    assert "keeps the frequencies of the longest call" in reason
