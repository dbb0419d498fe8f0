"""The positions in effect at run time: a sound model passes, and each fault turns the verdict and names its layers."""

import copy
import importlib

import pytest

import clockhands as ch
from clockhands.errors import InvalidValue
from late import Late
from probes import probed_models as models
from probes.probed_models import faults, live

torch, transformers = Late("torch"), Late("transformers")


def test_a_sound_model_passes_all_three_tests():
    result = live(models.llama(), decoded=True)
    assert faults(result) == []
    assert result.answers[0] == "The declared positions are in effect in all 3 layers checked."
    assert abs(result.numbers["shift"]["kl"]) <= 1e-6
    assert abs(result.numbers["reference"]["kl"]) <= 1e-6
    assert not any(band["visible"] for band in result.numbers["bands"])
    assert {"left padding", "chunks", "one token at a time", "packing"} <= set(
        result.numbers["generation"]["experiments"]
    )


def test_rounded_phases_of_a_deep_model_are_no_fault():
    """Twenty-four layers of large weights enlarge the rounding of a phase above what is allowed elsewhere."""
    model = models.llama(num_hidden_layers=24, max_position_embeddings=4096, initializer_range=0.5)
    result = live(model)
    assert faults(result) == []
    assert 1e-6 < result.numbers["shift"]["kl"] < result.numbers["shift"]["limit"] < 1e-2
    hook = model.model.register_forward_pre_hook(late, with_kwargs=True)
    result = live(model)
    hook.remove()
    assert [found[:2] for found in faults(result)] == [("run-differs", None)]
    assert result.numbers["shift"]["kl"] > result.numbers["shift"]["limit"]


def late(_, args, kwargs):
    """Odd positions of a text that goes beyond 600 are one too high: a shift by 1,000 is then none of all tokens."""
    at = kwargs.get("position_ids")
    if at is not None and at.shape[-1] > 1 and int(at.max()) > 600:
        kwargs["position_ids"] = at + (at % 2)
    return args, kwargs


def test_another_base_passes_the_shift_and_fails_the_reference():
    result = live(models.another_base(models.llama()))
    assert ("rotation-differs", "0-2") in [found[:2] for found in faults(result)]
    assert result.numbers["shift"]["same"]
    assert not result.numbers["reference"]["same"]
    assert "base 500,000" in " ".join(result.answers)


def test_each_fault_is_named_with_its_layers(cases):
    result = live(models.without_rotation(models.llama(), 1), decoded=True)
    assert faults(result) == [("rotation-differs", "1", "no-rotation")]
    assert result.numbers["layers_without_rotation"] == "1"
    for function, fault in ((models.neighbours, "other-layout"), (models.half_of_the_width, "other-rotated-width")):
        model = models.llama()
        with cases(fault), models.rotating_by(function):
            assert faults(live(model)) == [("rotation-differs", "0-2", fault)]
    model = models.llama()  # a scaling that came too late
    model.config.rope_parameters = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}
    assert faults(live(model)) == [("scaling-inert", "0-2", None)]
    result = live(models.keys_cached_late(models.llama(), 1), decoded=True)
    assert [found[:2] for found in faults(result)] == [("run-differs", "1")]
    assert result.numbers["reference"]["same"], "one pass is right"


def test_a_lost_factor_of_the_scores_and_wrong_pairs_of_latent_attention_are_named(monkeypatch, cases):
    """Both right ones pass, with cached decoding: their cache keeps the rotated part apart from the latent one."""
    for version, rank in ((2, 16), (3, 32)):  # the rank is the rotated width, or is not
        with cases("right", version):
            result = live(models.latent(version, rank), decoded=version == 3)
            assert faults(result) == []
            assert version == 2 or "a shifted cache" in result.numbers["generation"]["experiments"]
    model = models.latent(2)
    for layer in model.model.layers[1:]:
        layer.self_attn.scaling = layer.self_attn.qk_head_dim**-0.5
    result = live(model)
    with cases("factor"):
        assert faults(result) == [("run-differs", "1-2", None)]
        assert "Scores are multiplied by 1, where the config declares 1.874" in " ".join(result.answers)
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as module

    monkeypatch.setattr(module, "apply_rotary_pos_emb_interleave", module.apply_rotary_pos_emb)
    with cases("pairs"):
        assert faults(live(models.latent(3))) == [("rotation-differs", "0-2", "other-layout")]


def test_what_texts_do_not_show_of_a_model_of_images_is_named(monkeypatch):
    text = models.of_sizes(num_hidden_layers=2).config.to_dict() | {"head_dim": 16}
    text |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}}
    vision = {"depth": 2, "hidden_size": 32, "num_heads": 4, "intermediate_size": 32, "out_hidden_size": 64}
    config = transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision)
    model = transformers.Qwen2_5_VLForConditionalGeneration(config).eval()
    assert [note for note in ch.audit(model).notes if "positions of images" in note] == [
        'The positions of images and videos were not checked: `ch.probe(model, measure=["live"])` checks the model\'s '
        "model.get_rope_index."
    ]
    assert not any("images" in note for note in ch.audit(models.llama()).notes)
    result = live(model)
    assert faults(result) == []
    assert result.answers[0] == "The declared positions are in effect in all 2 layers checked."
    assert "The vision part (model.visual) ran on an image of 10 x 18 patches" in " ".join(result.answers)

    def late(start, *arguments, right=model.model.get_vision_position_ids, **more):
        made = right(start, *arguments, **more)
        made[0] += start  # the time of a still image is its start times the tokens of a second
        return made

    monkeypatch.setattr(model.model, "get_vision_position_ids", late)
    result = live(model)
    assert faults(result) == [("run-differs", None, None)]
    assert "multiplies the start of images and videos by 2 in their times" in " ".join(result.answers)
    assert "expected (5, 5, 5) (time, row, column), got (10, 5, 5)" in " ".join(result.answers)


def test_the_model_stays_as_it_is():
    model = models.llama()
    before, setting = copy.deepcopy(model.state_dict()), model.config._attn_implementation
    live(model, decoded=True)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.config._attn_implementation == setting


def mixed(*rotating):
    """A model whose config says of each layer whether it rotates."""
    config = transformers.SmolLM3Config(
        vocab_size=128, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64, max_position_embeddings=256, no_rope_layers=list(rotating), initializer_range=0.3,
        pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(7)
    return transformers.SmolLM3ForCausalLM(config).eval()


def test_wrong_pairs_of_latent_attention_are_named_in_its_families(cases, monkeypatch):
    """Queries and keys rotate in their last part alone, in one layout or the other."""

    def interleaved(q, k, cos, sin, *_, **__):
        waves = [wave[..., : wave.shape[-1] // 2].repeat_interleave(2, -1)[:, None] for wave in (cos, sin)]
        return tuple(
            x * waves[0] + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * waves[1] for x in (q, k)
        )

    for name, function in (("minicpm3", interleaved), ("glm4_moe_lite", None), ("youtu", None)):
        module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
        changed = "apply_rotary_pos_emb" if function else "apply_rotary_pos_emb_interleave"
        block = {"rope_type": "default", "rope_theta": 10_000.0}
        fields = {**models._SIZES, **models.LATENT, "num_hidden_layers": 2, "rope_parameters": block}
        config = transformers.AutoConfig.for_model(name, **fields, kv_lora_rank=32)
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        with cases(name), monkeypatch.context() as patch:
            assert faults(live(model)) == []
            patch.setattr(module, changed, function or module.apply_rotary_pos_emb)
            assert faults(live(model)) == [("rotation-differs", "0-1", "other-layout")]


def test_layers_without_positions_are_recognised_as_such_and_one_that_rotates_undeclared_is_named():
    result = live(mixed(0, 0))
    assert result.answers[0].startswith("The model has no position encoding")
    assert faults(result) == []
    rotating = live(mixed(1, 0))
    assert rotating.numbers.get("positions") is None
    assert rotating.numbers["layers_without_rotation"] == "1"
    model = mixed(1, 0)
    model.model.layers[1].self_attn.use_rope = True
    found = live(model)
    assert [each[:2] for each in faults(found)] == [("rotation-differs", "1")]
    assert "declares no rotation" in found.numbers["findings"][0]["message"]


def test_attention_that_cannot_be_reached_is_refused_before_it_is_run():
    class Averaging(torch.nn.Module):
        """Layers that mix tokens without queries and keys."""

        def __init__(self):
            super().__init__()
            self.tokens, self.layers = torch.nn.Embedding(128, 8), torch.nn.ModuleList([torch.nn.Linear(8, 8)])

        def forward(self, input_ids):
            return self.layers[0](self.tokens(input_ids).mean(dim=1, keepdim=True))

    with pytest.raises(InvalidValue, match="attention of Averaging cannot be reached") as refused:
        live(Averaging().eval())
    assert "docs/probing.md" in refused.value.hint
    with pytest.raises(InvalidValue, match="Linear cannot be run on token ids alone"):
        live(torch.nn.Linear(2, 2).eval())
    with pytest.raises(InvalidValue, match="training mode"):
        live(models.llama().train())


def test_a_layer_behind_a_state_of_earlier_tokens_is_measured_by_its_own_input(cases):
    """Jamba rotates nothing; RecurrentGemma rotates as declared, and its recurrence begins anew at position 0."""
    sizes = {"vocab_size": 1000, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    jamba = {**sizes, "num_hidden_layers": 2, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2,
             "mamba_d_state": 8, "num_key_value_heads": 2, "pad_token_id": 0}  # fmt: skip
    griffin = {**sizes, "num_hidden_layers": 3, "num_key_value_heads": 1, "lru_width": 32, "head_dim": 8,
               "attention_window_size": 512, "block_types": ["recurrent", "recurrent", "attention"]}  # fmt: skip
    for name, fields in (("Jamba", jamba), ("RecurrentGemma", griffin)):
        with cases(name):
            torch.manual_seed(0)
            config = getattr(transformers, f"{name}Config")(**fields, initializer_range=0.2)
            result = live(getattr(transformers, f"{name}ForCausalLM")(config).eval())
            assert faults(result) == []
            assert result.numbers["layers_checked"] == 1


def test_a_rotation_where_none_is_declared_is_said_without_a_place_in_a_table():
    from clockhands.auditing.findings import make_finding

    told = {"module": "layers.1", "moved": 0.5, "behaves as": "one that rotates, where the config declares no rotation"}
    message = make_finding("rotation-differs", told, "1").message
    assert "differs from the config. The module behaves like one that rotates" in message
