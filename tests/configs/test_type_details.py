"""What types have beside their main encoding, against classes of the installed Transformers, made without memory."""

import importlib
import json
import math

import pytest

from clockhands.configs.model_types import model_types, table
from clockhands.encodings.additive import Learned
from clockhands.runtimes import compared
from configs.expected import resolved
from configs.library import read_config
from late import Late

class_modules = Late("clockhands.models.class_modules")  # imports PyTorch and Transformers

# The class of a type, how small it is made, and how many elements its further tables have.
SMALL = {"depth": 1, "num_hidden_layers": 1}
TABLES = {
    "qwen3_vl_vision": ("Qwen3VLVisionModel", ["pos_embed.weight"]),
    "qwen3_vl_moe_vision": ("Qwen3VLMoeVisionModel", ["pos_embed.weight"]),
    "qwen3_5_vision": ("Qwen3_5VisionModel", ["pos_embed.weight"]),
    "qwen3_5_moe_vision": ("Qwen3_5MoeVisionModel", ["pos_embed.weight"]),
    "qwen3_omni_moe_vision_encoder": ("Qwen3OmniMoeVisionEncoder", ["pos_embed.weight"]),
    "qwen4_exp_vision": ("Qwen4ExpVisionModel", ["pos_embed.weight"]),
    "cohere_compass_vision": ("CohereCompassVisionModel", ["pos_embed.weight"]),
    "inkling2_vision": ("Inkling2VisionModel", ["position_embedding.weight"]),
    "muse_glimmer_vision": ("MuseGlimmerVisionModel", ["position_embedding_table.weight"]),
    "muse_spark_vision": ("MuseSparkVisionModel", ["position_embedding_table.weight"]),
    "kimi_k25_vision": ("Kimi_K25VisionModel", ["position_embeddings"]),
    "llama4_vision_model": ("Llama4VisionModel", ["positional_embedding_vlm"]),
    "sam3_vit_model": ("Sam3ViTModel", ["embeddings.position_embeddings"]),
    "mllama_vision_model": (
        "MllamaVisionModel",
        ["gated_positional_embedding.embedding", "pre_tile_positional_embedding.embedding.weight",
         "gated_positional_embedding.tile_embedding.weight"],
    ),
}  # fmt: skip


def made(kind, name, **values):
    """The class of a type on the device that has no memory."""
    import torch

    importlib.import_module("transformers")
    config = read_config({"model_type": kind, **values})
    with torch.device("meta"):
        return getattr(class_modules.modeling_code(config), name)(config)


def elements(module, ending):
    (found,) = (value for name, value in module.named_parameters() if name.endswith(ending))
    return found.numel()


def test_the_details_are_of_types_that_exist(cases):
    for detail in table()["details"]:
        for name in detail["types"]:
            with cases(name):
                assert name in model_types()


def test_further_tables_have_the_rows_of_the_class(cases):
    pytest.importorskip("transformers")
    for kind, (name, endings) in TABLES.items():
        with cases(kind):
            found = [code for code in resolved({"model_type": kind}).codes if code.kind == "learned"]
            module = made(kind, name, **({} if kind in ("sam3_vit_model", "mllama_vision_model") else SMALL))
            assert [code.rows * code.width for code in found] == [elements(module, ending) for ending in endings]
            assert all(code.spec == Learned(code.width, code.rows) for code in found)


def test_the_two_tables_of_gemma_4_have_as_many_rows_each():
    pytest.importorskip("transformers")
    (code,) = (code for code in resolved({"model_type": "gemma4_vision"}).codes if code.kind == "learned")
    module = made("gemma4_vision", "Gemma4VisionModel", num_hidden_layers=1)
    assert elements(module, "position_embedding_table") == 2 * code.rows * code.width
    assert code.placement == "per axis"


def test_the_windows_of_qwen_are_those_that_its_class_cuts():
    transformers = pytest.importorskip("transformers")
    import torch

    utils = importlib.import_module("transformers.vision_utils")
    config = transformers.CONFIG_MAPPING["qwen2_5_vl"]().vision_config
    _, lengths = utils.get_vision_window_index(
        torch.tensor([[1, 32, 32]]), config.spatial_merge_size, config.window_size, config.patch_size
    )
    windows, whole = resolved({"model_type": "qwen2_5_vl_vision"}).codes
    assert set(torch.diff(torch.unique_consecutive(lengths)).tolist()) == {math.prod(windows.window_area)}
    assert (whole.layers, whole.window_area) == ("7,15,23,31", None)


def test_layers_of_sam_3_that_see_all_rotate_by_the_places_of_a_window():
    pytest.importorskip("transformers")
    import torch

    windows, whole, _ = resolved({"model_type": "sam3_vit_model"}).codes
    config = read_config({"model_type": "sam3_vit_model"})
    layer = class_modules.modeling_code(config).Sam3ViTLayer
    for code, size in ((windows, 24), (whole, 0)):
        positions = layer.precompute_positions(config, size)
        cosine, _ = class_modules.modeling_code(config).Sam3ViTRotaryEmbedding(config)(torch.zeros(1), positions)
        # The second position is one column further, and columns come first.
        assert math.acos(cosine.reshape(len(positions), -1)[1, 0]) == pytest.approx(code.rates[0], rel=1e-6)
    assert windows.window_area == (24, 24)
    assert (whole.layers, whole.scaling["factor"]) == ("7,15,23,31", 3.0)
    assert whole.sections == {"axes": ("width", "height"), "pairs": (16, 16), "order": "consecutive"}


def test_relative_codes_have_the_rows_of_their_classes(cases):
    pytest.importorskip("transformers")
    for kind, name, ending, values in (
        ("deberta-v2", "DebertaV2Model", "rel_embeddings.weight", {"position_buckets": 256}),
        ("deberta-v2", "DebertaV2Model", "rel_embeddings.weight", {"max_relative_positions": 100}),
        ("deberta", "DebertaModel", "rel_embeddings.weight", {"max_relative_positions": 100}),
        ("deberta", "DebertaModel", "rel_embeddings.weight", {}),
    ):
        with cases(kind, values):
            config = {"relative_attention": True, "num_hidden_layers": 1, "pos_att_type": ["p2c"], **values}
            code = next(code for code in resolved({"model_type": kind, **config}).codes if code.kind == "relative")
            assert code.relative["rows"] * code.width == elements(made(kind, name, **config), ending)
            assert code.relative["terms"] == ["p2c"]


def test_learned_distances_have_the_rows_of_their_classes(cases):
    pytest.importorskip("transformers")
    for kind, name, ending, axis in (
        ("wavlm", "WavLMModel", "attention.rel_attn_embed.weight", 0),
        ("speecht5", "SpeechT5Model", "pe_k.weight", 0),
        ("granite_speech_encoder", "GraniteSpeechCTCEncoder", "layers.0.attn.rel_pos_emb.weight", 0),
        ("vits", "VitsModel", "layers.0.attention.emb_rel_k", 1),
        ("phi4_multimodal_audio", "Phi4MultimodalAudioModel", "bias_values.weight", 0),
        ("mpnet", "MPNetModel", "relative_attention_bias.weight", 0),
        ("t5", "T5EncoderModel", "relative_attention_bias.weight", 0),
        ("longt5", "LongT5EncoderModel", "relative_attention_bias.weight", 0),
        ("switch_transformers", "SwitchTransformersEncoderModel", "relative_attention_bias.weight", 0),
    ):
        with cases(kind):
            (numbers,) = {json.dumps(code.relative) for code in resolved({"model_type": kind}).codes if code.relative}
            shape = next(value.shape for place, value in made(kind, name).named_parameters() if place.endswith(ending))
            assert json.loads(numbers)["rows"] == shape[axis]


def test_windows_of_images_are_read_by_layer(cases):
    for config, expected in (
        ({"model_type": "swin"}, [("0-11", (7, 7))]),
        ({"model_type": "sam_vision_model", "window_size": 0}, [("0-11", None)]),
        ({"model_type": "vitdet", "window_size": 14, "window_block_indices": [0, 1]}, [("0-1", (14, 14))]),
        (
            {"model_type": "qwen2_5_vl_vision", "depth": 4, "window_size": 56, "fullatt_block_indexes": [3]},
            [("0-2", (4, 4)), ("3", None)],
        ),
    ):
        with cases(config):
            found = [code for code in resolved(config).codes if code.layers != "input"]
            assert [(code.layers, code.window_area) for code in found] == expected


def test_times_of_sound_and_videos_are_multiplied_before_they_are_positions():
    (code,) = resolved({"model_type": "qwen2_5_omni_talker", "position_id_per_seconds": 13}).codes
    assert code.positions_per_second == 13


def test_times_of_videos_stand_beside_the_text_and_are_compared():
    def text(times, **inner):
        whole = {
            "model_type": "qwen2_5_vl",
            "vision_config": {"model_type": "qwen2_5_vl", "depth": 2, **times},
            **inner,
        }
        return next(code for code in resolved(whole).codes if code.part == "text")

    for inner in ({}, {"text_config": {"model_type": "qwen2_5_vl_text", "hidden_size": 3584, "num_hidden_layers": 2}}):
        code, other = text({"tokens_per_second": 2}, **inner), text({"tokens_per_second": 4}, **inner)
        assert code.positions_per_second == 2
        assert code.source["positions_per_second"] == "config.json:vision_config.tokens_per_second"
        (found,) = compared([code], [other])
        assert found.says == ("2 against 4 positions per second of audio or video",)
    (alone,) = resolved({"model_type": "qwen2_5_vl_text", "num_hidden_layers": 2}).codes
    assert alone.positions_per_second is None


def test_the_switch_of_mpt_that_says_what_its_class_does_is_not_called_unread():
    found = resolved({"model_type": "mpt", "n_layers": 2, "attn_config": {"alibi": True}})
    assert not found.ignored


def test_the_switch_of_mpt_does_not_take_the_biases_from_its_class():
    found = resolved({"model_type": "mpt", "n_layers": 2, "attn_config": {"alibi": False}})
    (fact,) = (fact for fact in found.facts if fact.code == "ignored-key")
    assert fact.evidence["config.json:attn_config.alibi"] is False
    assert fact.evidence["read instead"] == "true"
    assert "MptModel in transformers 5.23.0" in str(fact.evidence["because"])


def test_heads_of_biases_without_a_spec_are_read_and_compared():
    config = {"model_type": "falcon", "alibi": True}
    ours, theirs = (resolved(config | {"num_attention_heads": heads}).codes for heads in (32, 64))
    assert ours[0].relative == {"heads": 32}
    assert [found.says for found in compared(ours, theirs)] == [("heads 32 against 64",)]
    for heads in (0, -32, math.nan):
        found = resolved(config | {"num_attention_heads": heads})
        assert [fact.code for fact in found.facts if "config.json:num_attention_heads" in fact.evidence] == [
            "impossible-value"
        ]


def test_the_three_models_of_bark_have_a_table_each():
    transformers = pytest.importorskip("transformers")
    found = resolved(transformers.BarkConfig().to_dict()).codes
    parts = ("semantic_config", "coarse_acoustics_config", "fine_acoustics_config")
    held = {code.component: (code.kind, code.rows) for code in found}
    assert [held[part] for part in parts] == [("learned", 1024)] * 3


def test_a_type_of_a_whole_is_not_read_beside_the_part_that_it_holds():
    config = {"model_type": "qwen2_5_omni_token2wav", "dit_config": {"model_type": "qwen2_5_omni_dit"}}
    found = resolved({"model_type": "qwen2_5_omni", "token2wav_config": config}).codes
    assert [code.part for code in found if code.rotating_heads] == ["audio"]


def test_positions_of_sound_are_counted_anew_in_each_chunk():
    (code,) = resolved({"model_type": "qwen2_5_omni_audio_encoder", "n_window": 50}).codes
    assert (code.rows, code.chunk) == (1500, 50)


def test_windows_of_single_layers():
    codes = resolved({"model_type": "longformer", "num_hidden_layers": 4, "attention_window": [64, 64, 32, 64]}).codes
    assert [(code.layers, code.window, code.two_sided) for code in codes[1:]] == [("0-1,3", 65, True), ("2", 33, True)]
    short = resolved({"model_type": "longformer", "num_hidden_layers": 4, "attention_window": [64]})
    assert "impossible-value" in {fact.code for fact in short.facts}
    cycles = {"model_type": "gpt_neo", "num_layers": 4, "attention_types": [[["global", "local", "local", "local"], 1]]}
    codes = resolved(cycles | {"window_size": 9}).codes
    assert [(code.layers, code.window) for code in codes[1:]] == [("1-3", 9)]
    odd = resolved(cycles | {"attention_types": [[["global"], 3]]})
    assert "impossible-value" in {fact.code for fact in odd.facts}
