"""Each row by a person against the class that it describes: defaults, ladder, pairing, kinds of layers.

The rows that tools/model_types.py read from classes are held to these in ``test_every_model_type.py``.
"""

import pytest

from clockhands.sources.model_types import model_type, model_types, table
from resolution.expected import layer_numbers, resolved
from resolution.library import gaps, kinds, pairing, read_config

# Type to why its class cannot be asked.
NOT_ASKED = {
    "glm4v_text": "its class default cannot run, as its sections do not fill its heads: see below",
    "glm4v": "as its text part",
    "glm4v_moe_text": "as glm4v_text",
    "glm4v_moe": "as its text part",
    "gptj": "its attention has no rotary module, but a table of sines; the conversion of small models holds it",
    "codegen": "as gptj",
    "roformer": "as gptj",
    "internlm3": "its class is that of llama",
    "iquestcoder": "its class is that of llama",
    "gemma4_assistant": "its class default cannot be made",
    "cohere_compass_text": "its class default has no ladder",
    "hunyuan_vl_text": "its class default has no sections, without which it cannot run",
    "higgs_audio_v2": "its file has its ladder under a name with Audio",
    "ernie4_5_vl_moe_text": "its module holds the ladder in the order of its axes",
    "qwen3_omni_moe_text": "its class default cannot run, as its heads have an odd width",
    "embedding_gemma2_text": "its window is a radius, of which no number is said",
    "neomme": "its layers have windows of two widths, of which no number is said",
    "colmodernvbert": "its text part is asked",
    "colpali": "its text part is asked",
    "colqwen2": "its text part is asked",
    "qwen2_5_omni": "its text part is asked",
    "qwen3_omni_moe": "its text part is asked",
    "t5gemma2": "its decoder is asked",
}


def by_hand():
    return [name for name in model_types() if name not in table()["types_of_classes"]]


def of_the_library():
    """The types of the table that the library has too, with a rotary text part."""
    import transformers

    for name in by_hand():
        known = model_type(name)
        assert known is not None
        if not known.library.startswith("transformers") or name not in transformers.CONFIG_MAPPING:
            continue
        if any(row.kind == "rotary" and row.part == "text" and not row.when for row in known.rows):
            yield name


def default_gaps(name):
    config, found = read_config({"model_type": name}), resolved({"model_type": name})
    config = getattr(config, "text_config", config)
    listed = kinds(config)
    if listed is None or set(listed) != {"none"}:
        yield from gaps(config, found)
    rotary = [code for code in found.codes if code.kind == "rotary" and code.part == "text"]
    layouts = {code.layout for code in rotary}
    if rotary and layouts != {pairing(config)}:
        yield f"layout: {layouts}, the code pairs {pairing(config)}"
    number = sum(len(list(layer_numbers(code))) for code in found.codes if code.part == "text")
    if number != config.num_hidden_layers:
        yield f"layers: {number}, the class has {config.num_hidden_layers}"
    context = getattr(config, "max_position_embeddings", None)
    if found.context != context:
        yield f"context: {found.context}, the class has {context}"
    windows = {layer for code in rotary if code.window for layer in layer_numbers(code)}
    if (
        listed is not None
        and "sliding" in listed
        and {i for i, kind in enumerate(listed) if kind == "sliding"} != windows
    ):
        yield f"windows: {sorted(windows)}, the class has {listed}"


# Types whose class default is no model, or has none of the layers that turn, with what a release adds.
COMPLETED = {
    "glm4v_text": {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]}},
    "glm4v_moe_text": {"head_dim": 128, "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    "bamba": {"attn_layer_indices": [9, 18, 27]},
    "granitemoehybrid": {"position_embedding_type": "rope", "layer_types": ["linear_attention", "full_attention"] * 16},
    "zamba2": {"use_mem_rope": True},
    "falcon": {"alibi": False},
    "lfm2": {"full_attn_idxs": [2, 5]},
    "exaone4": {"sliding_window": None, "layer_types": ["full_attention"] * 32},
    "granite_swa": {"layer_rope_theta": [10000.0, 500000.0, 0.0, 10000.0] * 6},
}


@pytest.mark.parametrize("name", COMPLETED)
def test_types_that_need_more_than_their_name(name):
    pytest.importorskip("torch")
    pytest.importorskip("transformers").logging.set_verbosity_error()
    values = {"model_type": name, **COMPLETED[name]}
    config, found = read_config(values), resolved(values)
    rotary = [code for code in found.codes if code.kind == "rotary"]
    assert rotary
    assert {code.layout for code in rotary} == {pairing(config)}
    bases = {base for base in COMPLETED[name].get("layer_rope_theta", ()) if base}
    if bases:  # the module has the ladder of the first of them
        assert {code.base for code in rotary} == bases
        assert sum(len(list(layer_numbers(code))) for code in found.codes if code.kind == "none") == 6
        return
    assert list(gaps(config, found)) == []
    # A layer that is said to attend turns, and no other.
    listed = kinds(config) or ["full"] * config.num_hidden_layers
    turned = {layer for code in rotary for layer in layer_numbers(code)}
    assert turned == {layer for layer, kind in enumerate(listed) if kind != "none"}


def test_the_defaults_are_those_of_the_classes(capsys):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    asked, parted = 0, {}
    for name in of_the_library():
        if name in NOT_ASKED:
            continue
        asked += 1
        found = list(default_gaps(name))
        if found:
            parted[name] = found
    with capsys.disabled():
        print(f"\n{asked} types of the table with a class in the library")
    assert parted == {}
    assert asked >= 110


def learned_types():
    for name in by_hand():
        known = model_type(name)
        assert known is not None
        if known.library.startswith("transformers") and any(row.tensors for row in known.rows):
            yield name


# A table that a class has in one mode only, or whose text part alone is of that type.
OTHER_MODE: dict[str, dict[str, object] | None] = {
    "esm": {"pad_token_id": 1, "vocab_size": 33},
    "beit": {"use_absolute_position_embeddings": True},
    "data2vec-vision": {"use_absolute_position_embeddings": True},
    "reformer": {"axial_pos_embds": False},
    **dict.fromkeys(("gemma3", "clip", "siglip", "clap", "nougat", "blip_2_qformer", "lw_detr_vit", "rf_detr_dinov2")),
    **dict.fromkeys(("vitpose_backbone", "trocr")),  # their classes are no AutoModel
    **dict.fromkeys(("layoutlmv2", "layoutxlm")),  # the class needs a package that is not here
}


def test_tables_have_the_rows_and_channels_of_the_classes(capsys):
    """Every learned table of the library's own model, made without memory, is as many rows and channels as is said."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    held, parted = 0, {}
    for name in learned_types():
        more = OTHER_MODE.get(name, {})
        if more is None:
            continue
        values = {"model_type": name, **more}
        config = read_config(values)
        of_part = getattr(transformers, type(config).__name__.replace("Config", "Model"), None)
        with torch.device("meta"):
            model = transformers.AutoModel.from_config(config) if of_part is None else of_part(config)
        shapes = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
        known, found = model_type(name), resolved(values)
        assert known is not None
        for row in (row for row in known.rows if row.tensors and row.kind == "learned"):
            ends = [key for key in shapes if any(key == end or key.endswith(f".{end}") for end in row.tensors)]
            codes = [code for code in found.codes if code.kind == "learned" and code.part == row.part]
            said = {(code.rows, code.width) for code in codes}  # two for frames and patches
            real = {shapes[key][-2:] for key in ends}
            held += 1
            if len(real) != 1 or not real <= said:
                parted[name] = (row.part, said, ends, real)
    with capsys.disabled():
        print(f"\n{held} learned tables of the library's classes")
    assert parted == {}
    assert held >= 20
