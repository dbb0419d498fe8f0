"""What the keys of GGUF files say, and what their reader adds: beside tensors; `stated/gguf.json` states the rest."""

from pathlib import Path

import numpy as np
import pytest

from clockhands.configs.openers import opened_gguf
from clockhands.configs.resolve import resolve
from clockhands.configs.targets import Opened
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Llama3
from clockhands.formats.arrays import TensorInfo
from clockhands.formats.gguf import Header

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


def test_the_order_of_keys_does_not_matter():
    backwards = dict(reversed(SMALL.items()))
    assert resolve(gguf(backwards)).codes == resolve(gguf()).codes


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


LISTS = [("rope_factors_short.weight", (32,)), ("rope_factors_long.weight", (32,))]


def test_lists_beside_the_weights_change_no_magnitude():
    """A config without the factor would have it follow from the lengths; this reader takes 1."""
    config = {**SMALL, "llama.rope.scaling.type": "longrope", "llama.rope.scaling.original_context_length": 2048}
    for factor in (None, 1.0, 1.19):
        given = config | ({} if factor is None else {"llama.rope.scaling.attn_factor": factor})
        (code,) = resolve(gguf(given, *LISTS)).codes
        assert (code.rates[0], code.attention_factor) == (1.0, factor or 1.0)
        assert resolve(gguf(given, *LISTS), 8192).codes[0].rates[0] == 0.25
    assert resolve(gguf(config)).facts[0].code == "incomplete-scaling"


def test_lists_count_without_a_type():
    """Converters write Phi-3's lists, its original length and its factor, and no type; the reader needs none."""
    config = {**SMALL, "llama.rope.scaling.original_context_length": 2048, "llama.rope.scaling.attn_factor": 1.19}
    found = resolve(gguf(config, *LISTS))
    (code,) = found.codes
    assert code.scaling == {"type": "longrope", "factor": 4.0, "original": 2048}
    assert code.source["scaling"].startswith("model.gguf:rope_factors_long.weight")
    assert (code.rates[0], code.attention_factor, found.length) == (1.0, 1.19, 2048)
    assert resolve(gguf(config, *LISTS), 2049).codes[0].rates[0] == 0.25
    assert not found.facts


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


def test_a_table_counts_its_own_rows():
    found = resolve(gguf(named("gpt2"), ("position_embd.weight", (4096, 576))))
    assert (found.codes[0].rows, found.context) == (4096, 8192)
    assert found.facts[0].code == "table-size"


@pytest.mark.parametrize(
    ("written", "known", "own", "its"),
    [
("gptoss", "gpt-oss", {}, {"rope__scaling__type": "yarn"}),
        ("qwen25vl", "qwen2vl", {"rope__mrope_section": [16, 8, 8]}, {"rope__dimension_sections": [16, 8, 8, 0]}),
        ("glm4moelite", "deepseek2", {"attention__key_length": 256, "attention__key_length_mla": 576},
         {"attention__key_length": 576, "attention__key_length_mla": 256}),
    ],
)  # fmt: skip
def test_an_architecture_of_ollama_is_read_as_its_loader_does(written, known, own, its):
    """The same codes as of a file with the name and the keys of llama.cpp; each value has the key of the file."""
    both = {"rope__scaling__original_context_length": 4096, "rope__scaling__factor": 32.0}
    opened = opened_gguf(Header(Path("model.gguf"), 3, "little", named(written, **both, **own), {}), "model.gguf")
    theirs = resolve(opened)
    assert opened.notes == (
        f"{written} is a name of Ollama's: the file is read as {known}, as Ollama's loader reads it.",
    )
    ours = resolve(gguf(named(known, **both, **its)))
    fields = ("layers", "kind", "layout", "width", "rotated", "base", "scaling", "rates", "window")
    assert [[getattr(code, name) for name in fields] for code in theirs.codes] == (
        [[getattr(code, name) for name in fields] for code in ours.codes]
    )
    assert theirs.codes[0].source["base"] == f"model.gguf:{written}.rope.freq_base"
    assert theirs.codes[0].kind == "rotary"
    assert not theirs.facts or all(fact.code != "unknown-model-type" for fact in theirs.facts)
