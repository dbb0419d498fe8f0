"""Whatever JSON stands in a config, it is read or refused in words; never a traceback."""

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from clockhands.configs.resolve import resolve
from clockhands.configs.targets import Opened
from configs.expected import opened

CASES = json.loads(Path(__file__).with_name("cases.json").read_text(encoding="utf-8"))["cases"]
CONFIGS = [case["config"] for case in CASES]

NUMBERS = st.one_of(
    st.integers(),
    st.integers(-2, 9),
    st.floats(),
    st.sampled_from([0, 1, -1, 0.5, 64, 128, 1e308, 2**53, 2**70, 10**400, float("nan"), float("inf"), float("-inf")]),
)
WORDS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["yarn", "linear", "longrope", "dynamic", "llama3", "proportional", "500000", "1e5", "rope", "alibi"]
    ),
)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, WORDS)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(
                st.sampled_from(["rope_type", "type", "factor", "rope_theta", "full_attention"]), st.text(max_size=4)
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)


def places(config, path=()):
    """Every key of a config and of the objects in it."""
    for key, value in config.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from places(value, (*path, key))


def is_json(value):
    """Whether evidence can be written as strict JSON."""
    json.dumps(value, allow_nan=False)
    return True


def check(found):
    for code in found.codes:
        assert code.rates is None or all(rate >= 0 for rate in code.rates)
        assert all(isinstance(where, str) and where for where in code.source.values())
        assert is_json(
            [code.part, code.layers, code.kind, code.layout, code.width, code.rotated, code.base, code.scaling]
        )
        assert is_json([code.rates, code.attention_factor, code.rows, code.offset, code.window, dict(code.source)])
    for fact in found.facts:
        assert is_json(dict(fact.evidence))
    assert is_json([found.model_type, found.context, found.length])


@settings(max_examples=40)
@given(st.dictionaries(st.one_of(st.sampled_from(["model_type", "text_config", "rope_theta", "alibi"]), WORDS), JSON))
def test_any_object(config):
    check(resolve(opened(config)))


KEYS = [
    "llama.block_count",
    "llama.embedding_length",
    "llama.attention.head_count",
    "llama.attention.key_length",
    "llama.context_length",
    "llama.rope.freq_base",
    "llama.rope.dimension_count",
    "llama.rope.scaling.type",
    "llama.rope.scaling.factor",
    "llama.rope.scaling.original_context_length",
    "llama.rope.scaling.attn_factor",
    "llama.attention.sliding_window",
    "llama.attention.sliding_window_pattern",
]


@settings(max_examples=40)
@given(
    st.dictionaries(st.sampled_from(KEYS), JSON), st.sampled_from(["llama", "gemma3", "deepseek2", "bert", "t5", "new"])
)
def test_any_metadata(values, name):
    config = {key.replace("llama", name): value for key, value in values.items()} | {"general.architecture": name}
    check(resolve(Opened(target="model.gguf", form="gguf", config=config, config_name="model.gguf")))


def test_values_that_are_none(cases):
    values = ["abc", [], {}, [3], -1, 0, 10**400, 1e30, float("nan"), True, 2.5]
    for key in ("num_hidden_layers", "head_dim", "rope_theta", "max_position_embeddings"):
        for one in values:
            # As positive numbers these are bases, if odd ones.
            value = -one if key == "rope_theta" and one in (1e30, 2.5) else one
            with cases(key, value):
                found = resolve(opened({"model_type": "llama", key: value}))
                told = [fact for fact in found.facts if fact.code in ("impossible-value", "unreadable-field")]
                assert any(f"config.json:{key}" in fact.evidence for fact in told)
                assert found.codes[0].rates is None or key not in ("head_dim", "rope_theta")
