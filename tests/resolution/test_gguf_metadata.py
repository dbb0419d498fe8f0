"""What the keys of GGUF files say, and what their reader adds."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from clockhands.rotary import Rotary
from clockhands.rotary.axes import chunked
from clockhands.scaling import Linear, Llama3, Yarn
from clockhands.sources.arrays import TensorInfo
from clockhands.sources.resolve import resolve
from clockhands.sources.targets import Opened

SMALL = {
    "general.architecture": "llama",
    "llama.block_count": 30,
    "llama.context_length": 8192,
    "llama.embedding_length": 576,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
    "llama.rope.dimension_count": 64,
    "llama.rope.freq_base": 100000.0,
}


class InMemory(Opened):
    """An opened file whose tensors are at hand."""

    def array(self, name):
        return ARRAYS[name]


ARRAYS = {
    "rope_freqs.weight": np.array([1.0] * 16 + [8.0] * 16, np.float32),
    "rope_factors_short.weight": np.array([1.0] * 32, np.float32),
    "rope_factors_long.weight": np.array([4.0] * 32, np.float32),
}


def gguf(config=SMALL, *tensors, **changes):
    values = {**config, **{key.replace("__", "."): value for key, value in changes.items()}}
    infos = {name: TensorInfo(name, "float32", shape, Path("model.gguf"), 0) for name, shape in tensors}
    return InMemory(target="model.gguf", form="gguf", config=values, config_name="model.gguf", tensors=infos)


def named(name, **values):
    """The small model as another architecture."""
    config = {key.replace("llama.", f"{name}."): value for key, value in SMALL.items()}
    config["general.architecture"] = name
    return config | {f"{name}.{key.replace('__', '.')}": value for key, value in values.items()}


def test_a_small_llama():
    found = resolve(gguf())
    (code,) = found.codes
    assert code.spec == Rotary(64, "interleaved", base=100000.0)
    assert (code.layers, code.width, code.rotated) == ("0-29", 64, 64)
    assert (found.model_type, found.context, found.length) == ("llama", 8192, 8192)
    assert max(abs(rate / 100000.0 ** (-pair / 32) - 1) for pair, rate in enumerate(code.rates)) < 1e-12
    assert code.source["layout"] == "architecture llama as llama.cpp reads it, and the GGUF format (adjacent rows pair)"
    assert code.source["base"] == "model.gguf:llama.rope.freq_base"
    assert code.source["width"] == "model.gguf:llama.embedding_length / model.gguf:llama.attention.head_count"
    assert code.source["layers"] == "model.gguf:llama.block_count"
    assert not found.facts


def test_the_order_of_keys_does_not_matter():
    backwards = dict(reversed(SMALL.items()))
    assert resolve(gguf(backwards)).codes == resolve(gguf()).codes


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("llama", "interleaved"),
        ("deepseek2", "interleaved"),
        ("qwen2", "halves"),
        ("phi3", "halves"),
        ("gemma", "halves"),
    ],
)
def test_how_rows_pair(name, layout):
    (code,) = resolve(gguf(named(name))).codes
    assert code.layout == layout


def test_latent_heads_turn_their_last_channels():
    config = named("deepseek2", attention__key_length=192)
    assert resolve(gguf(config)).codes[0].spec == Rotary(192, "interleaved", 1e5, rotated=64, part="last")
    # Newer files hold the width of the latent as the key's length, and that of a head beside it.
    config = named("deepseek2", attention__key_length=576, attention__key_length_mla=192)
    assert resolve(gguf(config)).codes[0].spec == Rotary(192, "interleaved", 1e5, rotated=64, part="last")
    assert resolve(gguf(named("llama", attention__key_length=192))).codes[0].spec.part == "first"


@pytest.mark.parametrize(
    ("sections", "axes"),
    [([8, 12, 12, 0], chunked([8, 12, 12])), ([8, 12, 11, 0], None), ([0, 0, 0, 0], None), (None, None)],
)
def test_sections_are_axes(sections, axes):
    more = {} if sections is None else {"rope__dimension_sections": sections}
    found = resolve(gguf(named("qwen2vl", **more)))
    (code,) = found.codes
    assert (code.spec and code.spec.axes) == axes
    assert len(code.rates) == 32
    assert [fact.code for fact in found.facts] == (["impossible-value"] if sections and sections[2] == 11 else [])


def test_sections_of_an_architecture_whose_order_is_not_known_leave_no_spec():
    (code,) = resolve(gguf(named("llama", rope__dimension_sections=[8, 12, 12, 0]))).codes
    assert code.spec is None
    assert len(code.rates) == 32
    (code,) = resolve(gguf(named("llama", rope__dimension_sections=[0, 0, 0, 0]))).codes
    assert code.spec == Rotary(64, "interleaved", 1e5)


def test_an_absent_base_is_the_readers():
    config = {key: value for key, value in SMALL.items() if "freq_base" not in key}
    found = resolve(gguf(config))
    assert found.codes[0].base == 10000.0
    assert found.facts[0].code == "default-base"
    assert found.facts[0].evidence == {
        "used": 10000.0,
        "default of": "llama.cpp",
        "context": 8192,
        "scaling": None,
        "window": None,
        "documented": True,
    }


def test_scalings():
    factor = {"llama.rope.scaling.factor": 4.0}
    assert resolve(gguf({**SMALL, **factor})).codes[0].spec.scaling == Linear(4.0)
    none = {**SMALL, **factor, "llama.rope.scaling.type": "none"}
    assert resolve(gguf(none)).codes[0].scaling is None
    yarn = {**SMALL, **factor, "llama.rope.scaling.type": "yarn", "llama.rope.scaling.original_context_length": 2048}
    found = resolve(gguf(yarn))
    assert found.codes[0].spec.scaling == Yarn(4.0, 2048)
    assert found.length == 2048
    assert found.codes[0].attention_factor == pytest.approx(0.1 * math.log(4) + 1)
    scaled = resolve(gguf({**yarn, "llama.rope.scaling.attn_factor": 2.0}))
    assert scaled.codes[0].attention_factor == pytest.approx(2 * (0.1 * math.log(4) + 1))
    assert "unknown-scaling" in [fact.code for fact in resolve(gguf({**yarn, "llama.rope.scaling.type": "what"})).facts]


def test_the_magnitude_that_cancels():
    config = named("deepseek2", rope__scaling__type="yarn", rope__scaling__factor=40.0)
    config["deepseek2.rope.scaling.original_context_length"] = 4096
    config["deepseek2.rope.scaling.yarn_log_multiplier"] = 0.1
    config["deepseek2.attention.key_length"] = 192
    (code,) = resolve(gguf(config)).codes
    assert (code.attention_factor, code.width, code.rotated) == (1.0, 192, 64)


def test_divisors_beside_the_weights():
    found = resolve(gguf(SMALL, ("rope_freqs.weight", (32,))))
    (code,) = found.codes
    assert code.rates[0] == 1.0
    assert code.rates[-1] == pytest.approx(100000.0 ** (-31 / 32) / 8, rel=1e-15)
    assert code.scaling == {"type": "factors", "factor": None, "original": None}
    assert code.source["rates"] == code.source["scaling"] == "model.gguf:rope_freqs.weight"
    wrong = resolve(gguf({**SMALL, "llama.rope.dimension_count": 32}, ("rope_freqs.weight", (32,))))
    assert wrong.codes[0].rates is None
    assert wrong.facts[0].code == "impossible-value"


@pytest.mark.parametrize(
    ("scaling", "base"),
    [(Llama3(32, 8192), 500000.0), (Llama3(8, 8192), 500000.0), (Llama3(10, 4096), 1e6)],
)
def test_divisors_of_a_llama3_are_named_as_what_they_are(monkeypatch, scaling, base):
    plain, scaled = Rotary(64, base=base).rates, Rotary(64, base=base, scaling=scaling).rates
    divisors = np.array([one / other for one, other in zip(plain, scaled, strict=True)], np.float32)
    monkeypatch.setitem(ARRAYS, "rope_freqs.weight", divisors)
    config = {**SMALL, "llama.rope.freq_base": base}
    (code,) = resolve(gguf(config, ("rope_freqs.weight", (32,)))).codes
    assert dict(code.scaling) == {"type": "llama3", "factor": scaling.factor, "original": scaling.original}
    assert code.source["scaling"] == "model.gguf:rope_freqs.weight"
    np.testing.assert_allclose(code.rates, scaled, rtol=2.0**-23)
    other = {**config, "llama.rope.freq_base": 2 * base}  # of another base they are no llama3
    assert resolve(gguf(other, ("rope_freqs.weight", (32,)))).codes[0].scaling["type"] == "factors"


def test_lists_beside_the_weights():
    config = {**SMALL, "llama.rope.scaling.type": "longrope", "llama.rope.scaling.original_context_length": 2048}
    config["llama.rope.scaling.attn_factor"] = 1.19
    lists = [("rope_factors_short.weight", (32,)), ("rope_factors_long.weight", (32,))]
    found = resolve(gguf(config, *lists))
    assert (found.codes[0].rates[0], found.codes[0].attention_factor) == (1.0, 1.19)
    assert resolve(gguf(config, *lists), 8192).codes[0].rates[0] == 0.25
    assert resolve(gguf(config)).facts[0].code == "incomplete-scaling"


def test_lists_count_without_a_type():
    """Converters write Phi-3's lists, its original length and its factor, and no type; the reader needs none."""
    config = {**SMALL, "llama.rope.scaling.original_context_length": 2048, "llama.rope.scaling.attn_factor": 1.19}
    lists = [("rope_factors_short.weight", (32,)), ("rope_factors_long.weight", (32,))]
    found = resolve(gguf(config, *lists))
    (code,) = found.codes
    assert code.scaling == {"type": "longrope", "factor": 4.0, "original": 2048}
    assert code.source["scaling"].startswith("model.gguf:rope_factors_long.weight")
    assert (code.rates[0], code.attention_factor, found.length) == (1.0, 1.19, 2048)
    assert resolve(gguf(config, *lists), 2049).codes[0].rates[0] == 0.25
    assert not found.facts


def test_lists_alone_change_no_magnitude():
    """A config without the factor would have it follow from the lengths; this reader takes 1."""
    config = {**SMALL, "llama.rope.scaling.type": "longrope", "llama.rope.scaling.original_context_length": 2048}
    lists = [("rope_factors_short.weight", (32,)), ("rope_factors_long.weight", (32,))]
    for values in (config, {**config, "llama.rope.scaling.attn_factor": 1.0}):
        assert resolve(gguf(values, *lists)).codes[0].attention_factor == 1.0


@pytest.mark.parametrize("scaling", [{}, {"type": "none"}, {"type": "linear", "factor": 4.0}, {"factor": 4.0}])
def test_a_magnitude_without_a_scaling_that_has_one(scaling):
    config = {**SMALL, "llama.rope.scaling.attn_factor": 1.25}
    config |= {f"llama.rope.scaling.{name}": value for name, value in scaling.items()}
    for tensors in ((), (("rope_freqs.weight", (32,)),)):
        found = resolve(gguf(config, *tensors))
        (code,) = found.codes
        assert code.attention_factor == 1.25
        assert code.source["attention_factor"] == "model.gguf:llama.rope.scaling.attn_factor"
        assert code.spec is None
        assert not found.facts


@pytest.mark.parametrize("type_", [None, "linear", "yarn"])
def test_an_impossible_magnitude_leaves_no_rates(type_):
    config = {**SMALL, "llama.rope.scaling.type": type_, "llama.rope.scaling.factor": 4.0}
    config["llama.rope.scaling.original_context_length"] = 2048
    impossible = resolve(gguf({**config, "llama.rope.scaling.attn_factor": -1.0}))
    assert (impossible.codes[0].rates, impossible.codes[0].attention_factor) == (None, None)
    assert [fact.code for fact in impossible.facts] == ["impossible-value"]


def test_layers_that_slide():
    config = named("gemma3", attention__sliding_window=512, rope__scaling__factor=8.0, rope__scaling__type="linear")
    sliding, full = resolve(gguf({**config, "gemma3.block_count": 12})).codes
    assert (sliding.layers, sliding.base, sliding.window, sliding.scaling) == ("0-4,6-10", 10000.0, 512, None)
    assert (full.layers, full.base, full.window, full.scaling["factor"]) == ("5,11", 100000.0, None, 8.0)
    pattern = named("new", attention__sliding_window=512, attention__sliding_window_pattern=[True, False] * 15)
    assert [code.window for code in resolve(gguf(pattern)).codes] == [512, None]
    # Which layers of this architecture have it is not in its row: it is not said that nothing reads the key.
    half = resolve(gguf(named("llama", attention__sliding_window=512)))
    assert {fact.code for fact in half.facts} & {"missing-value", "ignored-key"} == {"missing-value"}
    assert [(code.window, code.either.window) for code in half.codes] == [(None, 512)]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, {"0-2,4-6": ("rotary", 8192, False), "3,7": ("none", None, True)}),
        ({"attention__sliding_window": 4096}, {"0-2,4-6": ("rotary", 8192, False), "3,7": ("none", None, True)}),
        ({"attention__sliding_window": 0}, {"0-7": ("rotary", None, False)}),
    ],
)
def test_the_chunks_of_llama4_are_the_readers_unless_a_window_of_0_switches_them_off(keys, expected):
    found = resolve(gguf(named("llama4", block_count=8, **keys)))
    held = {code.layers: (code.kind, code.chunk, code.score_scale is not None) for code in found.codes}
    assert held == expected
    assert ("ignored-key" in [fact.code for fact in found.facts]) == (4096 in keys.values())


def test_lists_with_a_number_for_each_layer():
    heads = [9] * 29 + [0]
    codes = resolve(gguf({**SMALL, "llama.attention.head_count": heads})).codes
    assert [(code.kind, code.layers, code.width) for code in codes] == [("rotary", "0-28", 64), ("none", "29", None)]
    assert [code.layers for code in resolve(gguf(named("smollm3"))).codes][1] == "3,7,11,15,19,23,27"


def test_layers_without_heads_for_keys_do_not_turn():
    """Such a layer is a convolution of LFM2's or a recurrence: llama.cpp's ``recurrent_layer_arr``."""
    key = "llama.attention.head_count_kv"
    turning, still = resolve(gguf({**SMALL, key: [0, 0, 3] * 10})).codes
    assert (turning.layers, still.kind) == ("2,5,8,11,14,17,20,23,26,29", "none")
    assert still.source["kind"] == f"model.gguf:{key}"


def test_a_colon_in_the_name_of_the_file():
    opened = dataclasses.replace(gguf({**SMALL, "llama.attention.head_count": [9] * 30}), config_name="a:b.gguf")
    (code,) = resolve(opened).codes
    assert (code.width, code.source["base"]) == (64, "a:b.gguf:llama.rope.freq_base")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("gpt2", "learned"), ("bert", "learned"), ("bloom", "alibi"), ("t5", "buckets"), ("mamba", "none")],
)
def test_architectures_that_do_not_turn(name, kind):
    (code,) = resolve(gguf(named(name))).codes
    assert (code.kind, code.rates) == (kind, None)


def test_a_table_counts_its_own_rows():
    found = resolve(gguf(named("gpt2"), ("position_embd.weight", (4096, 576))))
    assert (found.codes[0].rows, found.context) == (4096, 8192)
    assert found.facts[0].code == "table-size"


def test_an_unknown_architecture_is_read_by_its_keys():
    found = resolve(gguf(named("brandnew")))
    assert (found.codes[0].layout, found.codes[0].spec, len(found.codes[0].rates)) == (None, None, 32)
    assert found.facts[0].code == "unknown-model-type"
    assert resolve(gguf({"general.architecture": 7})).codes[0].kind is None
