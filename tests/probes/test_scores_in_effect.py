"""The factor on q k in running attention: sound models pass, and each fault is named with its layers and numbers."""

import numpy as np
import pytest

import clockhands as ch
from auditing import loaded_models
from late import Late
from probes import probed_models as models
from probes.tiny_models import MORE, small

torch, transformers = Late("torch"), Late("transformers")

_SIZES = {
    "vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "max_position_embeddings": 512, "head_dim": 16,
}  # fmt: skip
_STEPS = {
    "rope_type": "yarn", "rope_theta": 1e6, "factor": 8.0, "original_max_position_embeddings": 64, "mscale": 1.0,
    "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
}  # fmt: skip


def measured(model):
    """What `live` says of a model until it compares outputs."""

    def stopped(what, _):
        if "in one pass" in what:
            raise KeyboardInterrupt

    tokens = model.config.get_text_config().vocab_size
    ids = np.random.default_rng(0).integers(3, tokens, (1, 32))
    return ch.probe(model, ids=ids, measure=["live"], progress=stopped)["live"]


def found(model):
    """Layers and message of each finding."""
    return [(each["layers"], each["message"]) for each in measured(model).numbers["findings"]]


def rescaled(model, change, layers=None):
    """The model, whose layers multiply q k by another number."""
    for number, layer in enumerate(model.model.layers):
        if layers is None or number in layers:
            layer.self_attn.scaling = change(layer.self_attn)
    return model


def stepped(kind):
    """A small model whose scores grow with the position."""
    torch.manual_seed(0)
    if kind == "llama4":
        more = {"intermediate_size_mlp": 64, "num_local_experts": 2, "no_rope_layers": [1, 0], "floor_scale": 64}
        return transformers.Llama4ForCausalLM(transformers.Llama4TextConfig(**_SIZES, **more)).eval()
    config = transformers.AutoConfig.for_model(kind, **_SIZES, rope_parameters=dict(_STEPS))
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def test_scores_of_sound_families_are_measured_and_as_declared(cases):
    declared = {"gemma2": 0.0625, "gemma3_text": 0.0625, "granite": 1.0}  # by their keys; others 1 / sqrt(16)
    for name in ("llama", "qwen3", "gpt_neox", "phi", "stablelm", "persimmon", "glm4", "cohere2", *declared):
        with cases(name):
            result = measured(small(name))
            assert result.numbers["findings"] == []
            assert result.numbers["scores_checked"] == 3
            for factors in result.numbers["scores"].values():
                assert factors == pytest.approx(dict.fromkeys(factors, declared.get(name, 0.25)), rel=1e-4)
    for model in (stepped("llama4"), stepped("ministral3"), models.latent(2), models.latent(3)):
        with cases(type(model).__name__):
            result = measured(model)
            assert result.numbers["findings"] == []
            assert result.numbers["scores_checked"] == result.numbers["layers_checked"] > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*loaded_models.FAMILIES, *MORE} - {"vit", "mamba", "xlnet"}))
def test_every_sound_family_passes(name):
    assert found(small(name)) == []


def test_rows_of_zeros_are_no_fault(cases):
    """The row of a padding token is zero, and a layer may be: their queries say nothing of positions."""
    for kind in ("llama4", "ministral3"):
        with cases(kind):
            model = stepped(kind)
            with torch.no_grad():
                model.model.embed_tokens.weight[::2] = 0  # also that of the first token of the text
                assert found(model) == []
                model.model.embed_tokens.weight[:] = 0
            result = measured(model)
            assert result.numbers["findings"] == []
            assert "The positions of layers 0-1 were not measured" in " ".join(result.answers)
            assert "declared positions are in effect" not in result.answers[0]
            assert "no position encoding" not in result.answers[0]
    model = small("llama")
    with torch.no_grad():
        model.model.layers[1].self_attn.k_proj.weight.zero_()
    result = measured(model)
    assert result.numbers["findings"] == []
    assert result.numbers["layers_checked"] == 2
    assert "The positions of layer 1 were not measured: their queries or keys are 0." in result.answers


def test_scores_of_models_that_rotate_nothing_are_measured_beside_their_bias(cases):
    """A table, ALiBi, and the buckets of T5 in both of its stacks: the scale is that of the class."""
    for name, scale in (("gpt2", 0.25), ("bloom", 0.25), ("opt", 0.25), ("bert", 0.25), ("t5", 1.0)):
        with cases(name):
            result = measured(small(name))
            assert result.numbers["findings"] == []
            told = " ".join(result.answers)
            assert "At position 0, scores are multiplied by the declared numbers in layers 0-" in told
            assert len(result.numbers["scores"]) == (4 if name == "t5" else 3)
            for factors in result.numbers["scores"].values():
                assert factors == pytest.approx({"other": scale}, rel=1e-4)
    model = small("gpt2", scale_attn_by_inverse_layer_idx=True)
    with cases("a switch of which nothing is known"):
        result = measured(model)
        assert result.numbers["findings"] == []
        told = " ".join(result.answers)
        assert "Scores are multiplied by 0.5 (besides 1 / sqrt of the width of a head) in layer 1;" in told


def test_a_wrong_scale_of_models_that_rotate_nothing_is_named(cases):
    bloom = small("bloom")
    bloom.transformer.h[1].self_attention.inv_norm_factor = 1.0
    t5 = small("t5")
    for block in t5.decoder.block:
        block.layer[0].SelfAttention.scaling = t5.config.d_kv**-0.5
    for model, where, says in (
        (
            bloom,
            "1",
            "Scores are multiplied by 4, where the config declares 1 (besides 1 / sqrt of the width of a head).",
        ),
        (t5, "0-1", "q k is multiplied by 0.25, where the config declares 1."),
    ):
        with cases(type(model).__name__):
            ((layers, message),) = found(model)
            assert layers == where
            assert message.startswith(says)
            assert (model is t5) == ("That is in decoder.block." in message)


def test_it_is_said_where_no_factor_was_measured(cases):
    """Scores that are no multiple of q k."""

    def bent(_, query, key, value, mask, **__):
        key, value = (each.repeat_interleave(query.shape[1] // each.shape[1], 1) for each in (key, value))
        scores = torch.tanh(query @ key.mT)
        made = torch.softmax(scores if mask is None else scores + mask, -1) @ value
        return made.transpose(1, 2).contiguous(), None

    model = small("llama")
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    with cases("bent"), pytest.MonkeyPatch.context() as patch:
        patch.setitem(ALL_ATTENTION_FUNCTIONS, "sdpa", bent)
        told = " ".join(measured(model).answers)
        assert "The declared factor on the scores of layers 0-2 was not measured" in told


def test_a_wrong_scale_of_the_softmax_is_named(cases):
    plain = "That is 1 / sqrt of the width of a head in place of config:"
    for name, key, says in (
        ("granite", "attention_multiplier", "q k is multiplied by 0.25, where the config declares 1."),
        ("gemma2", "query_pre_attn_scalar", "q k is multiplied by 0.25, where the config declares 0.0625."),
    ):
        with cases(name):
            ((layers, message),) = found(rescaled(small(name), lambda each: each.head_dim**-0.5, [0, 2]))
            assert layers == "0,2"
            assert message.startswith(f"{says} {plain}{key}.")
    for power, says in ((0, "left out"), (-1, "applied twice")):
        with cases(says):
            ((layers, message),) = found(rescaled(small("llama"), lambda each, power=power: each.head_dim**power))
            assert layers == "0-2"
            assert f"That is the scale of the softmax {says}." in message


def test_a_wrong_factor_of_latent_attention_is_named(cases):
    plain = models.latent(3).model.layers[0].self_attn.qk_head_dim ** -0.5
    for says, change in (
        ("the factor 1.874 on the scores left out", lambda _: plain),
        ("the factor 1.874 on the scores applied twice", lambda each: each.scaling**2 / plain),
        ("the magnitude of YaRN, where its square is declared", lambda each: (each.scaling * plain) ** 0.5),
    ):
        with cases(says):
            ((layers, message),) = found(rescaled(models.latent(3), change, [1]))
            assert layers == "1"
            assert f"That is {says}." in message
    block = models.LATENT["rope_parameters"] | {"mscale": 0.707}
    config = transformers.DeepseekV3Config(
        **{**models._SIZES, **models.LATENT, "rope_parameters": block}, kv_lora_rank=32
    )
    torch.manual_seed(0)
    model = transformers.DeepseekV3ForCausalLM(config).eval()
    assert found(model) == []
    magnitude = 0.1 * 0.707 * np.log(40.0) + 1
    ((layers, message),) = found(rescaled(model, lambda _: plain * magnitude**2))
    assert layers == "0-2"
    assert "Scores of the other channels are multiplied by 1.59, where the config declares 1.874" in message
    assert "That is the magnitude of `mscale` in place of that of `mscale_all_dim`." in message


def test_a_wrong_attention_factor_is_named(cases):
    block = {"rope_type": "yarn", "factor": 8.0, "rope_theta": 1e4, "original_max_position_embeddings": 64}

    def times(power):
        model = models.llama(rope_parameters=dict(block), max_position_embeddings=512)
        factor = model.model.rotary_emb.attention_scaling**power
        return models.with_waves(model, [0, 2], lambda cosine, sine: (cosine * factor, sine * factor))

    assert found(times(0)) == []
    for power, says in ((-1, "left out"), (1, "applied twice")):
        with cases(says):
            ((layers, message),) = found(times(power))
            assert layers == "0,2"
            assert f"That is the attention factor 1.208 of cosines and sines {says}." in message


def test_a_wrong_growth_with_the_position_is_named(cases, monkeypatch):
    from transformers.models.ministral3 import modeling_ministral3 as module

    right = module.get_llama_4_attn_scale

    def smooth(positions, beta, original):
        return (1 + beta * torch.log1p(positions / original))[:, None, :, None]

    for says, function in (
        ("the growth of a position one later", lambda at, *more: right(at + 1, *more)),
        ("the growth of a position one earlier", lambda at, *more: right((at - 1).clamp_min(0), *more)),
        ("the growth without rounding the steps down (`floor`)", smooth),
        ("the growth applied twice", lambda *given: right(*given) ** 2),
        (None, lambda *given: torch.ones_like(right(*given))),
    ):
        monkeypatch.setattr(module, "get_llama_4_attn_scale", function)
        with cases(says):
            ((layers, message),) = found(stepped("ministral3"))
            assert layers == "0-1"
            assert ("Scores do not grow with the position" if says is None else f"That is {says}.") in message


def test_layers_that_count_tokens_themselves_are_given_a_text():
    """Llama 4 of Transformers counts the tokens of a call, whatever positions are given."""
    model = stepped("llama4")
    assert measured(model).numbers["scores_grow"] == pytest.approx({"1": 1.0693147})
    model.model.layers[1].self_attn.attn_temperature_tuning = False
    ((layers, message),) = found(model)
    assert layers == "1"
    assert "Scores do not grow with the position" in message
    long = stepped("llama4")
    for config in {id(each.config): each.config for each in long.modules() if hasattr(each, "config")}.values():
        config.floor_scale = 8192
    long.model.layers[1].self_attn.floor_scale = 8192
    long.config.max_position_embeddings = 32768
    result = measured(long)
    assert result.numbers["findings"] == []
    assert "takes a text of 8,193 tokens" in " ".join(result.answers)


def test_a_scale_of_which_nothing_is_declared_is_told_and_not_judged():
    result = measured(rescaled(small("gemma4_text"), lambda _: 0.5))
    assert result.numbers["findings"] == []
    assert "what the class declares is not known" in " ".join(result.answers)
