"""Each row by a person against the class that it describes: defaults, ladder, pairing, kinds of layers.

The rows that tools/model_types.py read from classes are held to these in ``test_every_model_type.py``.
"""

import json
from dataclasses import replace

import pytest

from clockhands.configs.model_types import model_type, model_types, table
from configs.expected import layer_numbers, reasons, resolved
from configs.library import gaps, kinds, read_config


def of_the_library(transformers):
    """The types of the table that the library has too, with a rotary text part; of those made of parts by hand only."""
    for name in model_types():
        known = model_type(name)
        if name in table()["types_of_classes"] and transformers.CONFIG_MAPPING[name].sub_configs:
            continue
        if not known.library.startswith("transformers") or name not in transformers.CONFIG_MAPPING:
            continue
        if any(row.kind == "rotary" and row.part == "text" and not row.when for row in known.rows):
            yield name


def default_gaps(name):
    from clockhands.models.class_encodings import direction, layout

    config, found = read_config({"model_type": name}), resolved({"model_type": name})
    config = getattr(config, "text_config", config)
    listed = kinds(config)
    if listed is None or set(listed) != {"none"}:
        yield from gaps(config, found)
    rotary = [code for code in found.codes if code.kind == "rotary" and code.part == "text"]
    layouts = {code.layout for code in rotary}
    if rotary and layouts != {layout(config)}:
        yield f"layout: {layouts}, the code pairs {layout(config)}"
    ways = {code.spec.direction for code in rotary if code.spec is not None}
    if ways and ways != {direction(config)}:
        yield f"direction: {ways}, the code rotates {direction(config)}"
    number = sum(len(list(layer_numbers(code))) for code in found.codes if code.part == "text")
    if number != config.num_hidden_layers:
        yield f"layers: {number}, the class has {config.num_hidden_layers}"
    context = getattr(config, "max_position_embeddings", None)
    if found.context != context:
        yield f"context: {found.context}, the class has {context}"
    windows = {layer for code in rotary if code.window for layer in layer_numbers(code)}
    sliding = {layer for layer, kind in enumerate(listed or ()) if kind == "sliding"}
    if sliding and sliding != windows:
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


@pytest.mark.usefixtures("library")
def test_types_that_need_more_than_their_name(cases):
    from clockhands.models.class_encodings import layout

    for name, more in COMPLETED.items():
        with cases(name):
            values = {"model_type": name, **more}
            config, found = read_config(values), resolved(values)
            rotary = [code for code in found.codes if code.kind == "rotary"]
            assert {code.layout for code in rotary} == {layout(config)}
            bases = {base for base in more.get("layer_rope_theta", ()) if base}
            if bases:  # the module has the ladder of the first of them
                assert {code.base for code in rotary} == bases
                assert sum(len(list(layer_numbers(code))) for code in found.codes if code.kind == "none") == 6
                continue
            assert list(gaps(config, found)) == []
            # A layer that is said to attend turns, and no other.
            listed = kinds(config) or ["full"] * config.num_hidden_layers
            turned = {layer for code in rotary for layer in layer_numbers(code)}
            assert turned == {layer for layer, kind in enumerate(listed) if kind != "none"}


@pytest.mark.parametrize("some", [12, pytest.param(None, marks=pytest.mark.slow)], ids=["some", "all"])
def test_the_defaults_are_those_of_the_classes(cases, draw, library, some):
    names = [name for name in of_the_library(library) if name not in reasons("not_asked")]
    assert len(names) >= 110
    for name in draw(names, some or len(names)):
        with cases(name):
            assert list(default_gaps(name)) == []


def learned_types():
    """Types with a row by a person: what the tool reads from classes it holds to their tables itself."""
    for name in (name for name in model_types() if name not in table()["types_of_classes"]):
        known = model_type(name)
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
    **dict.fromkeys(("semantic", "coarse_acoustics", "fine_acoustics")),  # made inside Bark alone
    **dict.fromkeys(("layoutlmv2", "layoutxlm")),  # the class needs a package that is not here
}


@pytest.mark.parametrize("some", [4, pytest.param(None, marks=pytest.mark.slow)], ids=["some", "all"])
def test_tables_have_the_rows_and_channels_of_the_classes(cases, draw, library, some):
    """Every learned table of the library's own model, made without memory, is as many rows and channels as is said."""
    import torch

    names = [name for name in learned_types() if OTHER_MODE.get(name, {}) is not None]
    assert len(names) >= 20
    for name in draw(names, some or len(names)):
        with cases(name):
            values = {"model_type": name, **(OTHER_MODE.get(name) or {})}
            config = read_config(values)
            of_part = getattr(library, type(config).__name__.replace("Config", "Model"), None)
            with torch.device("meta"):
                model = library.AutoModel.from_config(config) if of_part is None else of_part(config)
            shapes = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
            found = resolved(values)
            for row in (row for row in model_type(name).rows if row.tensors and row.kind == "learned"):
                codes = [code for code in found.codes if code.kind == "learned" and code.part == row.part]
                said = {(code.rows, code.width) for code in codes}  # two for frames and patches
                ends = [key for key in shapes if any(key == end or key.endswith(f".{end}") for end in row.tensors)]
                real = {shapes[key][-2:] for key in ends}
                assert len(real) == 1, ends
                assert real <= said, row.part


def test_a_whole_without_its_text_has_the_text_that_its_class_makes(cases):
    """Voxtral's text is a Llama, but not one with the class defaults of Llama."""
    transformers = pytest.importorskip("transformers")
    rows = table()["types_of_classes"]
    names = [
        name for name, row in rows.items() if {"defaults", "sections"} <= row.keys() and row["class"].endswith("Config")
    ]
    assert {"voxtral", "paligemma", "got_ocr2"} <= set(names)
    for name in names:
        whole = transformers.CONFIG_MAPPING[name]().to_dict() | {"model_type": name}
        bare, made = (
            [replace(code, source={}) for code in resolved(config).codes if code.part == "text"]
            for config in ({"model_type": name}, json.loads(json.dumps(whole, default=str)))
        )
        with cases(name):
            assert bare == made
