"""The spec of a config, a dict and a model is that of its audit; rope types of clockhands give exact frequencies."""

from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

import clockhands as ch
from auditing import loaded_models as models
from clockhands.encodings.mixtures import LayerMixture
from clockhands.encodings.scaling import Llama3
from clockhands.errors import ClockhandsError, InvalidType, InvalidValue
from late import Late
from probes.tiny_models import small

torch, transformers, exactly = Late("torch"), Late("transformers"), Late("clockhands.transformers")

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3,
    "max_position_embeddings": 512, "rope_parameters": LLAMA3,
}  # fmt: skip
EXPECTED = ch.Rotary(16, base=5e5, scaling=Llama3(factor=8.0, original=64))


def test_a_config_has_one_spec_in_every_form(cases):
    model = small("llama", rope_parameters=dict(LLAMA3))
    config = transformers.LlamaConfig(**{**CONFIG, "vocab_size": 50})
    for form, target in {
        "dict": CONFIG,
        "config": config,
        "model": model,
        "pipeline": SimpleNamespace(model=model),
    }.items():
        with cases(form):
            assert exactly.spec_of(target) == EXPECTED
            assert ch.audit(target).layers[0].base == 5e5
    assert exactly.spec_of(transformers.LlamaConfig()) == ch.Rotary(128, base=10_000.0)
    assert ch.audit(transformers.LlamaConfig()).target == "LlamaConfig"


def test_layers_that_differ_are_a_mixture():
    mixture = exactly.spec_of(small("gemma3_text").config)
    assert isinstance(mixture, LayerMixture)
    assert mixture.pattern == (0, 0, 1)
    assert mixture.layer(0).base == 10_000.0
    without = exactly.spec_of(small("smollm3"))
    assert [without.layer(layer) is None for layer in range(3)] == [False, False, True]


def test_other_kinds_have_their_specs():
    assert isinstance(exactly.spec_of(small("gpt2")), ch.Learned)
    assert exactly.spec_of(small("bloom")) == ch.Alibi(4, form="key")
    assert exactly.spec_of(small("t5"), part="encoder") == ch.Buckets(4)
    assert exactly.spec_of(small("t5"), part="decoder").bidirectional is False
    assert exactly.spec_of({"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 2}) is None


def test_what_is_undecided_is_said(cases):
    for config, says in (
        ({**CONFIG, "rope_parameters": {**LLAMA3, "rope_type": "spiral"}}, "undecided.*unknown-scaling"),
        ({**CONFIG, "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}},
         "undecided.*its scaling is not known.*lacks factor"),
        ({"model_type": "no_such_type", "rope_theta": 1e4}, "undecided"),
    ):  # fmt: skip
        with cases(says):
            with pytest.raises(InvalidValue, match=says) as caught:
                exactly.spec_of(config)
            assert "overrides" in caught.value.hint


def test_parts_that_differ_are_named_and_what_is_no_model_is_refused():
    with pytest.raises(InvalidValue, match="encoder, decoder"):
        exactly.spec_of(small("t5"))
    with pytest.raises(InvalidValue, match="declares no position encoding for this part"):
        exactly.spec_of(CONFIG, part="vision")
    for call in (exactly.spec_of, ch.audit):
        for target in (None, 3, object()):
            with pytest.raises(InvalidType, match=r"a config, a dict or a loaded model, got "):
                call(target)
        with pytest.raises(InvalidType, match=r"`overrides` must be a dict, key to value, got 3\."):
            call(CONFIG, overrides=3)
    with pytest.raises(InvalidType, match=r"`config` must be a config of Transformers or its dict, got None\."):
        exactly.RotaryEmbedding(None)


def test_what_a_rotary_part_cannot_take_is_said(cases):
    model, x, ids = small("gemma3_text"), torch.zeros(1, 3, 64), torch.arange(3)[None]
    alone = exactly.RotaryEmbedding(model.config)
    exactly.swap(model)
    for (*given, kind), says in (
        ((x, ids, "chunked"), "`layer_type` must be one of .*'full_attention'.*, got 'chunked'"),
        ((x, [[0, 1, 2]], None), r"`position_ids` must be a tensor \[batch, seq\], got \[\[0, 1, 2\]\]"),
        ((x, None, None), "`position_ids` must be .*, got None"),
        ((x, torch.tensor(3), None), r"`position_ids` must be .* a tensor of the shape \[\] in int64"),
        ((None, ids, None), "`x` must be a tensor of floats, got None"),
        ((x.long(), ids, None), r"`x` must be .* a tensor of the shape \[1, 3, 64\] in int64"),
    ):
        for part in (alone, model.model.rotary_emb):
            with cases(says, part):
                with pytest.raises(ClockhandsError, match=says) as caught:
                    part(*given, kind or "full_attention")
                assert caught.value.hint


def test_the_rotary_embedding_stands_in_for_that_of_transformers(cases):
    x, ids = torch.zeros(2, 5, 64, dtype=torch.bfloat16), torch.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 400]])
    tokens = torch.arange(20)[None] + 3
    for name in ("llama", "gemma3_text", "smollm3"):
        with cases(name), torch.no_grad():
            model = small(name)
            own, right = model.model.rotary_emb, model(tokens)[0]
            exact = exactly.RotaryEmbedding(config=model.config, device=None)
            for more in (("full_attention",), ("sliding_attention",)) if name == "gemma3_text" else ((),):
                for mine, theirs in zip(exact(x, ids, *more), own(x, ids, *more), strict=True):
                    assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
                    assert (mine.float() - theirs.float()).abs().max() <= 2.0**-8
            states = list(model.state_dict())
            model.model.rotary_emb = exact
            assert (model(tokens)[0] - right).abs().max() <= 1e-6
            assert list(model.state_dict()) == states


def test_the_rotary_embedding_has_the_form_of_the_config_s_own_model(cases):
    """Numbers repeated pair by pair, each once, complex, and with pairs that never turn."""
    tokens = torch.arange(20)[None] + 3
    for name in ("cohere", "gpt_oss", "llama4_text", "gemma4_text"):
        with cases(name), torch.no_grad():
            model = small(name)
            before = model(tokens)[0]
            model.model.rotary_emb = exactly.RotaryEmbedding(config=model.config)
            assert (model(tokens)[0] - before).abs().max() <= 4e-6
            halves = exactly.RotaryEmbedding(config=model.config, form="halves")
            assert {output.form for output in halves.clockhands_output.values()} == {"halves"}
    # And takes three coordinates of a token.
    ids = torch.stack((torch.arange(40), torch.arange(40) // 7, torch.arange(40) % 7))[:, None].expand(3, 2, 40)
    x = torch.zeros(2, 40, 64)
    for name in ("qwen2_vl", "qwen3_vl"):
        own = models.model_of(name).language_model.rotary_emb
        for form in (None, "halves"):
            exact = exactly.RotaryEmbedding(own.config, form=form)
            for mine, theirs in zip(exact(x, ids), own(x, ids), strict=True):
                with cases(name, form):
                    assert mine.shape == theirs.shape
                    assert (mine - theirs).abs().max() <= 4e-6


def test_the_form_is_found_while_a_model_in_bfloat16_is_made_on_the_meta_device():
    config = small("gpt_oss").config
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            exact = exactly.RotaryEmbedding(config)
    finally:
        torch.set_default_dtype(torch.float32)
    assert exact.clockhands_output[None].form == "pairs"


def refused(given, why):
    """Without a form it is asked for; with one it is taken."""
    with pytest.raises(InvalidValue, match=why) as caught:
        exactly.RotaryEmbedding(given)
    assert "Pass form=" in caught.value.hint
    assert exactly.RotaryEmbedding(given, form="halves").clockhands_output[None].form == "halves"


def test_a_form_that_is_not_found_is_asked_for(monkeypatch):
    refused(small("gptj").config, "has no modules")
    # In place of a class that Transformers does not know, whose refusal names all its classes: the slow test below.
    refusing = Mock(side_effect=ValueError("Unrecognized configuration class"))
    monkeypatch.setattr(transformers.AutoModel, "from_config", refusing)
    refused(small("llama").config, "Unrecognized configuration class")


@pytest.mark.slow
def test_a_form_of_a_class_of_one_s_own_is_asked_for():
    class Own(transformers.LlamaConfig):
        pass

    class Model(transformers.LlamaModel):
        config_class = Own

        def __init__(self, config):
            super().__init__(config)
            self.rotary_emb = exactly.RotaryEmbedding(config)

    config = Own(
        vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, architectures=["LlamaModel"]
    )
    config.model_type = "llama"
    refused(config, "Unrecognized configuration class")
    transformers.AutoModel.register(Own, Model)
    try:
        with pytest.raises(InvalidValue, match="is made with a RotaryEmbedding"):
            Model(config)
    finally:
        del transformers.MODEL_MAPPING._extra_content[Own]


def test_a_model_without_rotation_has_no_rotary_embedding():
    with pytest.raises(InvalidValue, match="declares no rotary encoding"):
        exactly.RotaryEmbedding(small("gpt2").config)
    with pytest.raises(InvalidValue, match="form"):
        exactly.RotaryEmbedding(CONFIG, form="quarters")


SCALED = {
    "default": {},
    "linear": {"factor": 8.0},
    "dynamic": {"factor": 8.0},
    "yarn": {"factor": 8.0, "original_max_position_embeddings": 64},
    "llama3": {each: LLAMA3[each] for each in LLAMA3 if each not in ("rope_type", "rope_theta")},
}


def test_a_rope_type_of_clockhands_gives_exact_frequencies(cases):
    for kind, fields in SCALED.items():
        with cases(kind), torch.no_grad():
            assert f"clockhands_{kind}" in exactly.register() == exactly.register()
            sizes = {"max_position_embeddings": 32 if kind == "dynamic" else 512, "sliding_window": None}
            given = ({"rope_type": each + kind, "rope_theta": 5e5, **fields} for each in ("", "clockhands_"))
            own, exact = (small("mistral", rope_parameters=each, **sizes) for each in given)
            rates = np.array(exactly.spec_of(exact).rates).astype(np.float32)
            assert np.array_equal(exact.model.rotary_emb.inv_freq.numpy(), rates)
            assert exact.model.rotary_emb.attention_scaling == own.model.rotary_emb.attention_scaling
            for tokens in (16, 48, 20):  # beyond the original length of the dynamic scaling, and back
                ids = torch.arange(tokens)[None] + 3
                assert (own(ids)[0] - exact(ids)[0]).abs().max() <= 1e-6
            assert not ch.audit(exact).errors
            assert exactly.swap(exact) == ("model.rotary_emb",)


def test_no_runtime_is_said_to_know_a_rope_type_of_clockhands():
    config = {**CONFIG, "rope_parameters": {**LLAMA3, "rope_type": "clockhands_llama3"}}
    assert exactly.spec_of(config) == EXPECTED
    verdicts = {each.reader: each.verdict for each in ch.audit(config).readings}
    assert {verdicts[name] for name in ("transformers-5", "vllm", "llama.cpp", "mlx-lm")} == {"unknown"}
