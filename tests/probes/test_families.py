"""Small sound models of many families: the positions in effect are the declared ones, and nothing is raised."""

import numpy as np
import pytest

from auditing import loaded_models as models

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from clockhands.errors import InvalidValue  # noqa: E402
from clockhands.probes import probe  # noqa: E402
from clockhands.sources.resolved import layer_numbers  # noqa: E402

pytestmark = pytest.mark.slow

_GROUPED = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "vocab_size": 100,
}  # fmt: skip
_ALIKE = {name: value for name, value in _GROUPED.items() if name != "num_key_value_heads"}
_WIDE = {**_GROUPED, "head_dim": 16}
_EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1}
MORE = {
    "olmo": _GROUPED, "olmo2": _GROUPED, "granite": _GROUPED, "starcoder2": _GROUPED, "cohere2": _GROUPED,
    "nemotron": _GROUPED, "arcee": _GROUPED, "apertus": _GROUPED, "bitnet": _GROUPED, "diffllama": _GROUPED,
    "gemma": _WIDE, "helium": _WIDE, "ministral": _WIDE, "seed_oss": _WIDE, "ernie4_5": _WIDE,
    "hunyuan_v1_dense": _WIDE, "phi": _ALIKE, "persimmon": _ALIKE, "glm4": {**_WIDE, "pad_token_id": 0},
    "olmoe": {**_GROUPED, **_EXPERTS}, "qwen3_moe": {**_WIDE, **_EXPERTS, "moe_intermediate_size": 32},
    "exaone4": {**_GROUPED, "sliding_window": 32},
}  # fmt: skip
ROTARY = (
    "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "gpt_neox", "modernbert", "smollm3",
    "gpt_oss", "cohere", "glm", "deepseek_v3", "olmo3", "llama4_text", "gemma4_text", "stablelm", "mixtral", *MORE,
)  # fmt: skip
OTHERS = ("gpt2", "opt", "bart", "marian", "bert", "roberta")
NOT_REACHED = ("falcon", "gptj", "codegen", "bloom", "mpt")


def small(name):
    library = models.transformers()
    config = models.config_of(name) if name in models.FAMILIES else library.AutoConfig.for_model(name, **MORE[name])
    torch.manual_seed(0)
    try:
        return library.AutoModelForCausalLM.from_config(config).eval()
    except ValueError:
        return library.AutoModel.from_config(config).eval()


def live(model):
    return probe(model, ids=np.random.default_rng(0).integers(3, 100, (1, 32)), measure=["live"])["live"]


@pytest.mark.parametrize("name", ROTARY)
def test_a_sound_rotary_model_raises_nothing(name):
    result = live(small(name))
    assert result.numbers["findings"] == []
    assert result.numbers["layers_checked"] == models.LAYERS
    assert result.numbers["reference"]["same"], result.numbers["reference"]


@pytest.mark.parametrize("name", OTHERS)
def test_a_sound_model_of_another_code_raises_nothing(name):
    assert live(small(name)).numbers["findings"] == []


@pytest.mark.parametrize("name", NOT_REACHED)
def test_attention_outside_of_the_interface_is_refused_with_the_families(name):
    with pytest.raises(InvalidValue, match="cannot be reached") as refused:
        live(small(name))
    assert "Llama" in refused.value.hint


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "gpt_neox", "olmo2", "phi", "cohere", "stablelm"])
def test_other_frequencies_are_found_in_every_family(name):
    """The twin: each family with frequencies of another base in effect, which its buffers do not show."""
    model = small(name)
    rotary = models.rotary_of(model)
    kept = rotary.inv_freq.clone()

    def changed(*_):
        rotary.inv_freq.copy_(kept**1.2)

    def restored(*_):
        rotary.inv_freq.copy_(kept)

    rotary.register_forward_pre_hook(changed)
    rotary.register_forward_hook(restored)
    found = live(model).numbers["findings"]
    named = [layer_numbers(each["layers"]) for each in found if each["code"] == "rotation-differs"]
    assert frozenset().union(*named) == {0, 1, 2}
