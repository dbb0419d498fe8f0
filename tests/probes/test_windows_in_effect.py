"""The windows of running attention: sound families pass, and a wrong window is named with its layers and numbers."""

import pytest

import clockhands as ch
from late import Late
from probes.tiny_models import tokens

torch, transformers = Late("torch"), Late("transformers")

_SIZES = {
    "vocab_size": 48, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 32, "head_dim": 8, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
_MIXED = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": 16}
_SOUND = {
    "mistral": ({"sliding_window": 16}, "0-2"),
    "gemma3_text": (_MIXED, "0,2"),
    "llama4_text": (
        {"attention_chunk_size": 16, "no_rope_layers": [1, 1, 0], "intermediate_size_mlp": 32, "num_local_experts": 2},
        "0-1",
    ),
    "modernbert": ({"local_attention": 16, "global_attn_every_n_layers": 3}, "1-2"),
}
"""Fields of a config, and the layers with a window or a chunk."""


def small(name, **changed):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **{**_SIZES, **_SOUND[name][0], **changed})
    of = transformers.AutoModel if name == "modernbert" else transformers.AutoModelForCausalLM
    return of.from_config(config).eval()


def measured(model, declared=None):
    """What queries of a model see beside what it, or another one, declares."""
    from clockhands.models.attention_inputs import attended_once
    from clockhands.models.layer_windows import differing_windows

    audited, ids = ch.audit(model if declared is None else declared), tokens(1, 32)
    return differing_windows(model, ids[0], audited.layers, attended_once(model, ids[:, :8]), audited.context)


def test_windows_and_chunks_of_sound_families_are_measured(cases):
    for name, (_, layers) in _SOUND.items():
        with cases(name):
            found = measured(small(name))
            assert (found.found, found.unknown) == ([], [])
            (says,) = found.answers
            assert says.endswith(f"queries of layers {layers} see the declared windows or chunks.")


def test_a_wrong_window_is_named_with_its_layers_and_both_numbers(cases):
    windows = "the last 16 positions"
    for name, changed, sees, declares, layers in (
        ("mistral", {"sliding_window": 17}, "the last 17 tokens", windows, "0-2"),
        ("mistral", {"sliding_window": 15}, "the last 15 tokens", windows, "0-2"),
        ("mistral", {"sliding_window": None}, "all tokens", windows, "0-2"),
        ("gemma3_text", {"layer_types": ["sliding_attention"] * 3}, "the last 16 tokens", "all positions", "1"),
        ("llama4_text", {"attention_chunk_size": 12}, "chunks of 12 tokens", "chunks of 16 positions", "0-1"),
        ("modernbert", {"local_attention": 20}, "10 tokens on either side", "8 positions on either side", "1-2"),
    ):
        with cases(name, sees):
            (found,) = measured(small(name, **changed), small(name)).found
            assert found.layers == layers
            assert found.evidence["says"].endswith(f"a query sees {sees}, where {declares} are declared.")


def test_a_mask_without_the_window_turns_the_verdict(monkeypatch):
    module = pytest.importorskip("transformers.models.gemma3.modeling_gemma3")
    monkeypatch.setattr(module, "create_sliding_window_causal_mask", module.create_causal_mask)
    model = small("gemma3_text")
    found, decoded = ch.probe(model, ids=tokens(1, 32), measure=["live"])["live"].numbers["findings"]
    assert decoded["message"].startswith("The model differs from one pass in: one token at a time")  # its cache is cut
    assert (found["code"], found["layers"]) == ("run-differs", "0,2")
    assert "a query sees all tokens, where the last 16 positions are declared" in found["message"]


def test_a_window_that_is_too_long_to_be_measured_is_left_out_in_the_verdict():
    model = small("mistral", sliding_window=4096, max_position_embeddings=32_768)
    answers = ch.probe(model, ids=tokens(1, 32), measure=["live"])["live"].answers
    assert answers[0] == (
        "The declared positions are in effect in all 3 layers checked, in text; the window of layers 0-2 was not "
        "checked."
    )
    assert "The window or chunk of layers 0-2 was not measured: that takes a text of 4,097 tokens." in answers
    within = measured(small("mistral", sliding_window=128))  # no text is longer
    assert (within.found, within.unknown, within.answers) == ([], [], [])


def test_models_with_an_encoder_say_that_their_decoding_was_not_run(cases):
    sizes = {"vocab_size": 48, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    sides = {f"{side}_{name}": size for side in ("encoder", "decoder")
             for name, size in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 48))}  # fmt: skip
    sides |= {"vocab_size": 48, "d_model": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
              "decoder_start_token_id": 1}  # fmt: skip
    sound = {"num_mel_bins": 16, "max_source_positions": 32, "max_target_positions": 40}
    for model in (
        transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes)),
        transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(**sides, max_position_embeddings=64)),
        transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**sides, **sound)),
    ):
        with cases(type(model).__name__):
            answers = ch.probe(model.eval(), ids=tokens(1, 32), measure=["live"])["live"].answers
            assert "decoding from a cache" in answers[0]
            assert answers[0].endswith("not checked.")
            assert any(each.startswith("Padding, packing, chunks and cached decoding: not run: ") for each in answers)
