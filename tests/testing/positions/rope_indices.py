"""The functions of the pinned Transformers that number tokens, without the models around them."""

import functools
from types import MethodType, SimpleNamespace

from late import Late

transformers = Late("transformers")

_OWN = ("get_vision_position_ids", "get_llm_pos_ids_for_vision", "get_chunked_index")
_OMNI = {"vision_start_token_id": 151652, "vision_end_token_id": 151653}
FAMILIES = {
    "qwen2_vl": ("Qwen2VLModel", "Qwen2VLConfig", {}),
    "qwen2_5_vl": ("Qwen2_5_VLModel", "Qwen2_5_VLConfig", {"tokens_per_second": 2}),
    "qwen3_vl": ("Qwen3VLModel", "Qwen3VLConfig", {}),
    "qwen3_5": ("Qwen3_5Model", "Qwen3_5Config", {}),
    "cohere_compass": ("CohereCompassModel", "CohereCompassConfig", {}),
    "qwen2_5_omni": ("Qwen2_5OmniThinkerForConditionalGeneration", "Qwen2_5OmniThinkerConfig", _OMNI),
    "qwen3_omni": (
        "Qwen3OmniMoeThinkerForConditionalGeneration",
        "Qwen3OmniMoeThinkerConfig",
        {
            **_OMNI,
            "position_id_per_seconds": 13,
            "audio_token_id": 151675,
            "audio_start_token_id": 151669,
            "audio_end_token_id": 151670,
        },
    ),
    "glm4v": ("Glm4vModel", "Glm4vConfig", {}),
    "glm4v_moe": ("Glm4vMoeModel", "Glm4vMoeConfig", {}),
    "glm_ocr": ("GlmOcrModel", "GlmOcrConfig", {}),
    "ernie4_5_vl_moe": ("Ernie4_5_VLMoeModel", "Ernie4_5_VLMoeConfig", {}),
    "paddleocr_vl": ("PaddleOCRVLModel", "PaddleOCRVLConfig", {}),
}


def rope_index(family, **fields):
    """`get_rope_index` of a family, with its default config."""
    class_name, config_name, own = FAMILIES[family]
    owner_class = getattr(transformers, class_name)
    config = getattr(transformers, config_name)(**own)
    for name, value in {**own, **fields}.items():
        setattr(config.vision_config if hasattr(config.vision_config, name) else config, name, value)
    for name in ("image_token", "video_token", "audio_token"):
        if not hasattr(config, f"{name}_id") and hasattr(config, f"{name}_index"):
            setattr(config, f"{name}_id", getattr(config, f"{name}_index"))
    owner = SimpleNamespace(config=config, spatial_merge_size=config.vision_config.spatial_merge_size)
    for name in _OWN:
        if hasattr(owner_class, name):
            setattr(owner, name, MethodType(getattr(owner_class, name), owner))
    return functools.partial(owner_class.get_rope_index, owner)
