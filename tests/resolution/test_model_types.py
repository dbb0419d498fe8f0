"""The table of model types: every row can be used, and names only what exists."""

import pytest

from clockhands.sources.model_types import model_type, model_types, table
from clockhands.sources.resolve import resolve
from clockhands.sources.targets import Opened

LISTED = [
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "phi",
    "phi3",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "gpt_neox",
    "gptj",
    "deepseek_v2",
    "deepseek_v3",
    "bert",
    "roberta",
    "gpt2",
    "opt",
    "bart",
    "m2m_100",
    "whisper",
]


# Type to why the class default of it is no whole model.
WITHOUT_SPEC = {
    "esm": "the class has no token for padding, which the rows of its table follow",
    "glm4v_text": "the sections that the class takes do not fill the head that it turns",
    "glm4v": "as its text part",
    "glm4v_moe_text": "as glm4v_text",
    "glm4v_moe": "as its text part",
    "glm46v": "as glm4v_text",
    "glmga": "as glm4v_text",
    "glm_image_text": "as glm4v_text",
    "glm_image": "as its text part",
    "nomic_bert_remote": "the class rotates no part of a head, but has a learned table",
    "recurrent_gemma": "the class has no context",
    "xverse": "its class defaults were not read",
    "telechat": "its class defaults were not read",
    "kimi_linear": "its class defaults were not read",
    "kimi_k3": "its class defaults were not read",
    "neobert": "how its code pairs channels was not read",
    "vit_mae": "its table holds sinusoids of rows and of columns, which no spec here has",
    "detr": "its sinusoids are computed where they are added, for places",
    "conditional_detr": "its sinusoids are computed where they are added, for places",
    "deformable_detr": "its sinusoids are computed where they are added, for places",
    "table-transformer": "its sinusoids are computed where they are added, for places",
    "dab-detr": "its sinusoids are computed where they are added, for places",
    "rt_detr": "its sinusoids are computed where they are added, for places",
    "rt_detr_v2": "its sinusoids are computed where they are added, for places",
    "d_fine": "its sinusoids are computed where they are added, for places",
    "deimv2": "its sinusoids are computed where they are added, for places",
    "pp_doclayout_v2": "its sinusoids are computed where they are added, for places",
    "pp_doclayout_v3": "its sinusoids are computed where they are added, for places",
    "pp_doclayout_v4": "its sinusoids are computed where they are added, for places",
    "lw_detr": "its sinusoids are computed where they are added, for places",
    "rf_detr": "its sinusoids are computed where they are added, for places",
    "mask2former": "its sinusoids are computed where they are added, for places",
    "oneformer": "its sinusoids are computed where they are added, for places",
    "sam": "its sinusoids are computed where they are added, for places",
    "sam_hq": "its sinusoids are computed where they are added, for places",
    "sam2": "its sinusoids are computed where they are added, for places",
    "edgetam": "its sinusoids are computed where they are added, for places",
    "sam3_tracker": "its sinusoids are computed where they are added, for places",
    "sam2_vision_model": "its sinusoids are computed where they are added, for places",
    "sam3_vision_model": "its sinusoids are computed where they are added, for places",
    "edgetam_vision_model": "its sinusoids are computed where they are added, for places",
    "sam3_detr_decoder": "its sinusoids are computed where they are added, for places",
    "sam3_lite_text_detr_decoder": "its sinusoids are computed where they are added, for places",
    "sam3_geometry_encoder": "its sinusoids are computed where they are added, for places",
    "sam3_lite_text_geometry_encoder": "its sinusoids are computed where they are added, for places",
    "sam3_video": "its sinusoids are computed where they are added, for places",
    "grounding-dino": "its sinusoids are computed where they are added, for places",
    "mm-grounding-dino": "its sinusoids are computed where they are added, for places",
    "omdet-turbo": "its sinusoids are computed where they are added, for places",
    "udop": "its table is of places on a page, which are no context",
    "autoformer": "no key alone counts the rows of its table",
    "informer": "no key alone counts the rows of its table",
    "time_series_transformer": "no key alone counts the rows of its table",
    "patchtst": "no key alone counts the rows of its table",
    "patchtsmixer": "no key alone counts the rows of its table",
    "fun_asr_nano_encoder": "no key says how wide its table is",
    "musicgen_decoder": "its table has the cosines before the sines",
    "musicgen_melody_decoder": "its table has the cosines before the sines",
    "speecht5": "its tables belong to the nets before the encoder and the decoder",
    "videomae": "no key alone counts the rows of its table",
    "audio-spectrogram-transformer": "no key alone counts the rows of its table",
    "mgp-str": "no key alone counts the rows of its table",
    "yolos": "no key alone counts the rows of its table",
    "vitpose_backbone": "no key alone counts the rows of its table",
    "vivit": "no key alone counts the rows of its table",
    "internvl_vision": "no key alone counts the rows of its table",
    "qianfan_ocr_vision": "no key alone counts the rows of its table",
    "pvt": "no key alone counts the rows of its table",
    "sam2_hiera_det_model": "no key alone counts the rows of its table",
    "pix2struct_vision_model": "two tables are added, of rows and of columns",
    "kosmos_2_5_vision_model": "two tables are added, of rows and of columns",
    "florence_vision": "two tables are added, of rows and of columns",
    "gemma4_unified_vision": "two tables are added, of rows and of columns",
    "perceiver": "what it adds follows from the class",
    "reformer": "its positions are those of two tables of axes",
    "superglue": "its positions go through a network",
    "bark": "no key alone counts the rows of its table",
    "pixtral": "no formula here gives its frequencies",
    "vjepa2": "no formula here gives its frequencies",
    "minimax_m3_vl_vision": "no formula here gives its frequencies",
    "lightglue": "no formula here gives its frequencies",
    "clvp_encoder": "the class has no context",
    "clvp": "as its text part",
    "cohere_compass_text": "the class has no base",
    "cohere_compass": "as its text part",
    "qwen3_omni_moe_text": "the sections that the class takes do not fill the head that it turns",
    "qwen3_omni_moe_talker_text": "the sections that the class takes do not fill the head that it turns",
    "qwen3_omni_moe_thinker": "as its text part",
    "qwen3_omni_moe": "as its text part",
    "qwen4_exp_text": "the sections that the class takes do not fill the head that it turns",
    "qwen4_exp": "as its text part",
    "maskformer": "as detr inside it",
    "musicgen": "as musicgen_decoder inside it",
    "musicgen_melody": "as musicgen_melody_decoder inside it",
    "higgs_audio_v2": "the class stretches beyond its own context",
}


def test_the_types_that_are_promised_have_rows():
    assert set(LISTED) <= set(model_types())
    assert len(model_types()) >= 150
    assert model_type("no such type") is None


@pytest.mark.parametrize("name", model_types())
def test_a_type_and_nothing_else_is_a_whole_model(name):
    """A config of its type alone is the class default: everything must be known."""
    found = resolve(Opened(target="config.json", form="config", config={"model_type": name}, config_name="config.json"))
    assert found.model_type == name
    # Neither an image nor a bias has an end.
    ends = (code.part != "vision" and code.kind in ("rotary", "learned", "sinusoidal") for code in found.codes)
    if any(ends) and name not in WITHOUT_SPEC:
        assert found.context
        assert found.length
        assert found.source["context"].startswith("class default of ")
    for code in found.codes:
        if name in WITHOUT_SPEC:
            break
        assert code.spec is not None or code.kind in ("alibi", "buckets", "relative", "none")
        # A network of convolutions has stages, and no number of layers by a key.
        assert code.layers is not None or (code.kind in ("none", "relative") and "layers" not in model_type(name).reads)
        assert code.width or code.kind in ("none", "relative")
    allowed = {"default-base", "default-value"}
    assert {fact.code for fact in found.facts} <= allowed or name in WITHOUT_SPEC


@pytest.mark.parametrize("name", model_types())
def test_rows_speak_of_quantities_that_exist(name):
    known = model_type(name)
    quantities = {
        *table()["spellings"]["config"],
        *(
            "latent",
            "interleave",
            "pad",
            "chunk",
            "two_sided",
            "frames",
            "buckets",
            "max_distance",
            "unused",
            "alibi",
            "style",
            "switch",
            "norm_groups",
            "biased",
            "cycle",
            "compressions",
            "ladder_width",
            "shared",
            "stages",
            "layer_shares",
            "decoder_context",
            "speech_layers",
            "cells",
            "per_layer",
            "grid_rows",
            "grid_columns",
            "local_head_width",
            "local_unrotated",
            "local_rotated",
            "index_width",
            "index_interleave",
            "indexed",
            "index_every",
            "index_offset",
        ),
    }
    assert set(known.reads) <= quantities
    assert set(known.defaults) | set(known.fixed) <= quantities
    for row in known.rows:
        assert row.kind in ("sinusoidal", "learned", "rotary", "alibi", "buckets", "relative", "none")
        assert row.layout in (None, "halves", "interleaved")
        assert row.windows.get("rule") in (None, "all", "period", "from", "listed", "cycle", "unturned")
        for quantity in (
            *row.bases.values(),
            *row.widths.values(),
            *(name for name in (row.rows, row.zero_rows) if name and name != "patches"),
            *filter(None, row.quantities.values()),
        ):
            assert quantity in known.reads or quantity in known.fixed


def test_an_architecture_pairs_in_one_way():
    gguf = table()["gguf"]
    assert not set(gguf["interleaved"]) & set(gguf["halves"])
    assert not (set(gguf["interleaved"]) | set(gguf["halves"])) & set(gguf["none"])


@pytest.mark.parametrize(
    ("image", "patch", "rows"), [([448, 224], 14, 513), ([448, 448], [14, 14], 1025), (448, [14, 28], 513)]
)
def test_sizes_of_an_image_may_be_two_numbers(image, patch, rows):
    config = {"model_type": "internvl_vision", "image_size": image, "patch_size": patch}
    (code,) = resolve(Opened(target="x", form="config", config=config, config_name="config.json")).codes
    assert (code.rows, code.width) == (rows, 1024)


@pytest.mark.parametrize("image", [[448], [448, 0], [448, "224"], [448, 2**40], [448, True], [4, 448], []])
def test_sizes_of_an_image_that_are_none(image):
    config = {"model_type": "internvl_vision", "image_size": image}
    (code,) = resolve(Opened(target="x", form="config", config=config, config_name="config.json")).codes
    assert code.rows is None


@pytest.mark.parametrize("name", model_types())
def test_another_number_of_layers_than_that_of_the_class(name):
    """``KeyError``, where the class has a list of layers for its own number of them alone."""
    known = model_type(name)
    assert known is not None
    keys = known.reads.get("layers")
    config = {"model_type": name} | ({keys[0]: 49} if keys else {})
    found = resolve(Opened(target="config.json", form="config", config=config, config_name="config.json"))
    assert "impossible-value" not in {fact.code for fact in found.facts} or name in WITHOUT_SPEC


def tables(config):
    """Part and shape of every learned table of a config."""
    codes = resolve(Opened(target="x", form="config", config=config, config_name="config.json")).codes
    return [(code.part, code.rows, code.width) for code in codes if code.kind == "learned"]


def test_tables_of_images_and_videos_have_the_shapes_of_their_modules():
    """Shapes of the position embeddings of `HieraModel`, `VideoPrismVisionModel` and `TvpModel`."""
    assert tables({"model_type": "hiera"}) == [("vision", 56 * 56, 96)]
    strides = {"model_type": "hiera", "image_size": [448, 224], "patch_stride": [8, 4], "embed_dim": 112}
    assert tables(strides) == [("vision", 56 * 56, 112)]
    frames = {"model_type": "videoprism_vision_model", "tubelet_size": [1, 18, 24], "num_frames": 8}
    assert tables(frames) == [("vision", 16 * 12, 768), ("vision", 8, 768)]
    grid = {"model_type": "tvp", "max_grid_row_position_embeddings": 50, "hidden_size": 128}
    assert tables(grid) == [("text", 512, 128), ("vision", 50, 128), ("vision", 100, 128)]
