"""Small sound models of many families: the positions in effect are the declared ones, and nothing is raised."""

import inspect

import numpy as np
import pytest

import clockhands as ch
from auditing import loaded_models as models
from clockhands.configs.resolved import layer_numbers
from late import Late
from probes.tiny_models import MORE, hidden_bias, small, tiny

torch = Late("torch")
pytestmark = pytest.mark.slow

ROTARY = (
    "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "gpt_neox", "modernbert", "smollm3",
    "gpt_oss", "cohere", "glm", "deepseek_v3", "olmo3", "llama4_text", "gemma4_text", "stablelm", "mixtral",
    "falcon", "gptj", "codegen",
    *(name for name in MORE if name not in {"mamba", "xlnet", "umt5"}),  # those rotate nothing
)  # fmt: skip
OTHERS = ("gpt2", "opt", "bart", "marian", "bert", "roberta")
BIASED = ("bloom", "mpt", "falcon with alibi", "t5", "t5 encoder")


def live(model):
    tokens = model.config.get_text_config().vocab_size
    return ch.probe(model, ids=np.random.default_rng(0).integers(3, tokens, (1, 32)), measure=["live"])["live"]


@pytest.mark.parametrize("name", ROTARY)
def test_a_sound_rotary_model_raises_nothing(name):
    result = live(small(name))
    assert result.numbers["findings"] == []
    assert result.numbers["layers_checked"] == models.LAYERS
    assert result.numbers["reference"]["same"], result.numbers["reference"]


def test_a_sound_model_of_another_code_raises_nothing(cases):
    for name in OTHERS:
        with cases(name):
            assert live(small(name)).numbers["findings"] == []
    for name in BIASED:
        with cases(name):
            result = live(tiny(name))
            assert result.numbers["findings"] == []
            assert result.numbers["biases_checked"] > 0
            if name != "t5":
                assert result.numbers["reference"]["same"], result.numbers["reference"]


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon with alibi"])
def test_other_slopes_are_found_with_their_layers(name):
    """The twin: the bias of one layer is doubled."""
    model = tiny(name)
    attention = [each for each in model.modules() if {"alibi", "position_bias"} & set(
        inspect.signature(each.forward).parameters) and not any(
        {"alibi", "position_bias"} & set(inspect.signature(inside.forward).parameters)
        for inside in each.modules() if inside is not each)][1]  # fmt: skip

    def doubled(_, args, kwargs):
        given = {key: 2 * kwargs[key] for key in ("alibi", "position_bias") if kwargs.get(key) is not None}
        mask = kwargs.get("attention_mask")
        if isinstance(mask, torch.Tensor) and mask.is_floating_point():  # Falcon adds its bias to the mask
            given["attention_mask"] = torch.where(mask < -1e30, mask, 2 * mask)
        return args, {**kwargs, **given}

    attention.register_forward_pre_hook(doubled, with_kwargs=True)
    found = live(model).numbers["findings"]
    assert [each["layers"] for each in found if each["code"] == "slopes-differ"] == ["1"], found


def test_a_bias_that_no_config_declares_is_named():
    with hidden_bias(tiny("llama"), [1]) as model:
        found = live(model).numbers["findings"]
    assert [(each["code"], each["layers"]) for each in found][:1] == [("run-differs", "1")]
    assert "declares none" in found[0]["message"]


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
