"""The table of model types: every row can be used, and names only what exists."""

from clockhands.configs._table_fields import COUNTED_ROWS
from clockhands.configs.layer_rules import COVERED, RULES
from clockhands.configs.model_types import model_type, model_types, table
from configs.expected import reasons, resolved

LISTED = (
    "llama mistral mixtral qwen2 qwen3 phi phi3 gemma gemma2 gemma3 gemma3_text gpt_neox gptj deepseek_v2 deepseek_v3"
    " bert roberta gpt2 opt bart m2m_100 whisper"
)
# Quantities that are no spelling of a config: what classes of a few types read beside them.
FURTHER = (
    "latent interleave pad chunk two_sided frames buckets max_distance unused alibi style switch norm_groups biased"
    " cycle compressions ladder_width shared stages layer_shares decoder_context speech_layers cells per_layer"
    " grid_rows grid_columns local_head_width local_unrotated local_rotated index_width index_interleave indexed"
    " index_every index_offset area merge table_image table_rows table_height table_width arrangements tiles windows"
    " cycles terms symmetric half_window chunk_frames per_second box_buckets box_distance spatial visual"
)


def test_the_types_that_are_promised_have_rows():
    assert set(LISTED.split()) <= set(model_types())
    assert len(model_types()) >= 150
    assert model_type("no such type") is None


def test_a_type_and_nothing_else_is_a_whole_model(cases):
    """A config of its type alone is the class default: everything must be known."""
    without_spec = reasons("without_spec")
    assert without_spec.keys() <= set(model_types())
    for name in model_types():
        with cases(name):
            found = resolved({"model_type": name})
            assert found.model_type == name
            if name in without_spec:
                continue
            # Neither an image nor a bias has an end.
            if any(code.part != "vision" and code.kind in ("rotary", "learned", "sinusoidal") for code in found.codes):
                assert found.context
                assert found.length
                assert found.source["context"].startswith("class default of ")
            for code in found.codes:
                assert code.spec is not None or code.kind in ("alibi", "buckets", "relative", "none")
                # A network of convolutions has stages, and no number of layers by a key.
                staged = code.kind in ("none", "relative") and "layers" not in model_type(name).reads
                assert code.layers is not None or staged
                assert code.width or code.kind in ("none", "relative")
            assert {fact.code for fact in found.facts} <= {"default-base", "default-value"}


def test_rows_speak_of_quantities_that_exist(cases):
    quantities = {*table()["spellings"]["config"], *FURTHER.split()}
    for name in model_types():
        known = model_type(name)
        with cases(name):
            assert set(known.reads) | set(known.defaults) | set(known.fixed) <= quantities
            for row in known.rows:
                assert row.kind in ("sinusoidal", "learned", "rotary", "alibi", "buckets", "relative", "none")
                assert row.layout in (None, "halves", "interleaved")
                assert row.rule is None or row.rule in RULES
                assert row.sides in (None, "encoder", *COVERED)
                assert row.unturned in (None, "windowed", "windowless", "always")
                named = {*row.bases.values(), *row.widths.values(), *row.quantities.values(), row.rows, row.zero_rows}
                assert {one for one in named if one} - {*COUNTED_ROWS} <= {*known.reads, *known.fixed}


def test_an_architecture_pairs_in_one_way():
    gguf = table()["gguf"]
    assert not set(gguf["interleaved"]) & set(gguf["halves"])
    assert not (set(gguf["interleaved"]) | set(gguf["halves"])) & set(gguf["none"])


def test_sizes_of_an_image_may_be_two_numbers(cases):
    for image, patch, rows in (([448, 224], 14, 513), ([448, 448], [14, 14], 1025), (448, [14, 28], 513)):
        with cases(image, patch):
            config = {"model_type": "internvl_vision", "image_size": image, "patch_size": patch}
            (code,) = resolved(config).codes
            assert (code.rows, code.width) == (rows, 1024)
    for image in ([448], [448, 0], [448, "224"], [448, 2**40], [448, True], [4, 448], []):
        with cases(image):
            (code,) = resolved({"model_type": "internvl_vision", "image_size": image}).codes
            assert code.rows is None


def test_another_number_of_layers_than_that_of_the_class(cases):
    """``KeyError``, where the class has a list of layers for its own number of them alone."""
    without_spec = reasons("without_spec")
    for name in model_types():
        keys = model_type(name).reads.get("layers")
        with cases(name):
            found = resolved({"model_type": name} | ({keys[0]: 49} if keys else {}))
            assert "impossible-value" not in {fact.code for fact in found.facts} or name in without_spec


def tables(config):
    """Part and shape of every learned table of a config."""
    codes = resolved(config).codes
    return [(code.part, code.rows, code.width) for code in codes if code.kind == "learned"]


def test_tables_of_images_and_videos_have_the_shapes_of_their_modules():
    """Shapes of the position embeddings of `HieraModel`, `VideoPrismVisionModel`, `TvpModel` and `MgpstrModel`."""
    assert tables({"model_type": "mgp-str"}) == [("vision", (32 // 4) * (128 // 4) + 1, 768)]
    assert tables({"model_type": "hiera"}) == [("vision", 56 * 56, 96)]
    strides = {"model_type": "hiera", "image_size": [448, 224], "patch_stride": [8, 4], "embed_dim": 112}
    assert tables(strides) == [("vision", 56 * 56, 112)]
    frames = {"model_type": "videoprism_vision_model", "tubelet_size": [1, 18, 24], "num_frames": 8}
    assert tables(frames) == [("vision", 16 * 12, 768), ("vision", 8, 768)]
    grid = {"model_type": "tvp", "max_grid_row_position_embeddings": 50, "hidden_size": 128}
    assert tables(grid) == [("text", 512, 128), ("vision", 50, 128), ("vision", 100, 128)]


def test_a_part_that_names_the_type_of_a_whole_model_is_that_models_part():
    """Files of Qwen 3.5 name it so in their tower, whose class does not ask."""
    vision = {"model_type": "qwen3_5", "depth": 2, "hidden_size": 64, "num_heads": 2, "num_position_embeddings": 784}
    text = {"model_type": "qwen3_5_text", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 4}
    config = {"model_type": "qwen3_5", "text_config": text | {"head_dim": 32, "rope_theta": 1e6}}
    own, known = (
        resolved(config | {"vision_config": vision | {"model_type": name}}) for name in ("qwen3_5", "qwen3_5_vision")
    )
    assert [code.rates for code in own.codes] == [code.rates for code in known.codes]
    assert {code.rows for code in own.codes if code.part == "vision"} == {None, 784}
    assert not {fact.code for fact in own.facts} & {"unknown-key"}
