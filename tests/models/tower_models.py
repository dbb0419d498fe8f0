"""Tiny models that read images, sounds and texts, with seeded random weights; tables of sinusoids hold theirs."""

from auditing import loaded_models
from late import Late

torch = Late("torch")

_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_LAYERS = {**_SIZES, "intermediate_size": 48}
_IMAGE = {"image_size": 32, "patch_size": 8}
_TEXT = {**_LAYERS, "vocab_size": 48, "max_position_embeddings": 64, "pad_token_id": 0}
_SHORT = {**_LAYERS, "vocab_size": 48, "max_position_embeddings": 16, "bos_token_id": 0, "eos_token_id": 1}
_SIDES = {f"{side}_{name}": size for side in ("encoder", "decoder")
          for name, size in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 48))}  # fmt: skip
_SPEECH = {"vocab_size": 48, "d_model": 32, **_SIDES, "max_target_positions": 24, "pad_token_id": 0, "bos_token_id": 1,
           "eos_token_id": 2, "decoder_start_token_id": 1}  # fmt: skip
_SOUND = {"num_mel_bins": 16, "max_source_positions": 32}
_WAVE = {**_LAYERS, "vocab_size": 32, "conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2),
         "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}  # fmt: skip
_HEADS = {"num_key_value_heads": 2}

# fmt: off
MODELS = {
    "vit": {**_LAYERS, **_IMAGE},
    "deit": {**_LAYERS, **_IMAGE},
    "ijepa": {**_LAYERS, **_IMAGE},
    "aimv2_vision_model": {**_LAYERS, **_IMAGE},
    "dinov2": {**_SIZES, **_IMAGE, "mlp_ratio": 2},
    "dinov2_with_registers": {**_SIZES, **_IMAGE, "mlp_ratio": 2},
    "dinov3_vit": {**_LAYERS, **_IMAGE},
    "beit": {**_LAYERS, **_IMAGE, "use_relative_position_bias": True},
    "siglip2": {"text_config": {**_SHORT, "projection_size": 32},
                "vision_config": {**_LAYERS, "num_patches": 16, "patch_size": 8}},
    "vitdet": {**_SIZES, **_IMAGE, "pretrain_image_size": 64},
    "clip_vision_model": {**_LAYERS, **_IMAGE},
    "siglip_vision_model": {**_LAYERS, **_IMAGE},
    "clip_text_model": _SHORT,
    "pixtral": {**_LAYERS, "image_size": 64, "patch_size": 8},
    "bert": _TEXT,
    "roberta": _TEXT,
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 48, "n_positions": 64},
    "opt": {**_TEXT, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "bart": {**_SPEECH, "max_position_embeddings": 64},
    "modernbert": {**_TEXT, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
    "wav2vec2": _WAVE,
    "hubert": _WAVE,
    "wavlm": _WAVE,
    "wav2vec2-conformer": {**_WAVE, "position_embeddings_type": "rotary"},
    "whisper": {**_SPEECH, **_SOUND},
    "speech_to_text": {**_SPEECH, "pad_token_id": 1, "max_source_positions": 64, "conv_channels": 16,
                       "input_feat_per_channel": 16},
    "llama4": {"text_config": {**_TEXT, **_HEADS, "head_dim": 8, "intermediate_size_mlp": 48, "num_local_experts": 2},
               "vision_config": {**_LAYERS, **_IMAGE, "intermediate_size": 128, "vision_output_dim": 32,
                                 "projector_input_dim": 32, "projector_output_dim": 32}},
    "mllama": {"text_config": {**_TEXT, **_HEADS, "cross_attention_layers": [1],
                               "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
               "vision_config": {**_LAYERS, **_IMAGE, "num_global_layers": 1, "attention_heads": 4, "max_num_tiles": 4,
                                 "intermediate_layers_indices": [0], "vision_output_dim": 64}},
    "qwen2_audio": {"text_config": {"model_type": "qwen2", **_TEXT, **_HEADS},
                    "audio_config": {"model_type": "qwen2_audio_encoder", "d_model": 32, **_SIDES, **_SOUND}},
    "voxtral": {"text_config": {"model_type": "llama", **_TEXT, **_HEADS, "head_dim": 8},
                "audio_config": {"model_type": "voxtral_encoder", **_LAYERS, **_SOUND, "intermediate_size": 128}},
}
# fmt: on


def small(name, **changed):
    """A model of `MODELS`, with fields of its config changed, or of `auditing.loaded_models`."""
    if name not in MODELS:
        more = {"vision_config": {"num_position_embeddings": 64}} if name == "qwen3_vl" else {}
        held = loaded_models.COMPOSED[name].get("vision_config", {})
        return loaded_models.model_of(name, **{key: {**held, **each} for key, each in more.items()})
    library = loaded_models.transformers()
    config = library.AutoConfig.for_model(name, **{**MODELS[name], **changed})
    torch.manual_seed(0)
    model = library.AutoModel.from_config(config).eval()
    for module in model.modules():
        if hasattr(module, "embed_positions") and name in ("qwen2_audio", "voxtral"):  # made as for a checkpoint
            from transformers.models.whisper.modeling_whisper import sinusoids

            module.embed_positions.weight.data = sinusoids(*module.embed_positions.weight.shape)
    return model
