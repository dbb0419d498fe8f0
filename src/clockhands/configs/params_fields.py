"""Position codes from a ``params.json``, the config that Meta and Mistral publish with their own weights.

It has separate key names (``dim``, ``n_heads``, ``use_scaled_rope``, ``yarn``), no model type, and belongs to weights
with interleaved pairs. Missing keys get the defaults of the publisher's code, which is named as the source. Values keep
their keys and places; only the scaling block is assembled, each value with the key that it came from.

Source: llama-models 0.3.0, ``llama3/args.py``, ``llama3/model.py``, ``llama4/args.py`` and ``llama4/model.py``;
meta-llama/llama, ``llama/model.py``, commit 0504cf440a50aab815cadccd10a46e7ba70ff344; mistral-inference 1.6.0,
``args.py``, ``rope.py``, ``transformer.py`` and ``vision_encoder.py``, and of its repository ``one_file_ref.py``,
commit 215fc80d4a00177854b51a93fd3d455094f0e085; vllm-project/vllm, ``vllm/transformers_utils/configs/mistral.py``,
commit 01da88c5bef903224038ae4e57d653964740dc04 (the ``yarn`` block), and ``vllm/model_executor/models/deepseek_v2.py``,
commit 002d6073aa034d4f5545d45021b0e56d1f3c3593 (its magnitude and ``llama_4_scaling`` in latent attention).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from clockhands.configs._scaling_fields import DeclaredScaling
from clockhands.configs.fields import MOST_LAYERS, WIDEST, Fields, Sourced, above_one, code_from
from clockhands.configs.model_types import CodeOfType, ModelType
from clockhands.configs.resolved import Fact, LayerEncoding
from clockhands.configs.rotary_fields import RotaryResolver, built
from clockhands.encodings.ladders import Geometric, Joined
from clockhands.packaged import packaged

ORIGINAL = "original_max_position_embeddings"

_DATA = packaged(__file__, "params_files.json")

READS: Mapping[str, tuple[str, ...]] = {quantity: tuple(keys) for quantity, keys in _DATA["reads"].items()}
"""Quantity to the keys that hold it."""

LLAMA3: Mapping[str, float] = _DATA["meta"]["llama3"]
LLAMA4: Mapping[str, float] = {**LLAMA3, **_DATA["meta"]["llama4"]}
SCALED: Mapping[str, Sequence[str]] = _DATA["meta"]["replaced_by"]
"""For some numbers of Meta's scaling, the keys of a file that replace them."""


def is_params(values: Mapping[str, Any]) -> bool:
    """Whether these are the keys of a ``params.json``."""
    own = all(type(values.get(key)) is int for key in _DATA["marks"]) and values.keys().isdisjoint(_DATA["others"])
    return own and ("multiple_of" in values or "hidden_dim" in values) and "architectures" not in values


def params_codes(
    values: Mapping[str, Any], file: str, facts: list[Fact], length: int | None
) -> tuple[list[tuple[LayerEncoding, int | None]], Sourced[int] | None, Fields]:
    """The codes of a ``params.json``, each with the original length of its scaling; the context; the keys read."""
    # Meta's files give the feed-forward width as a multiple, Mistral's as a number.
    known = _meta(values) if "multiple_of" in values else _mistral(values)
    fields = Fields(values, file, READS, facts, defaults=known.defaults, default_source=known.default_source)
    more, places = _scaling(fields, known)
    more |= _steps(fields)
    windows = _windows(fields)
    if windows is not None:
        more |= windows
        places |= {key: fields.source("sliding_window") for key in windows}
    seen = Fields(
        {**values, **more}, file, READS, facts,
        defaults=known.defaults, default_source=known.default_source, read_at=fields.read_at, places=places,
    )  # fmt: skip
    row = CodeOfType("text", "rotary", "interleaved", latent=_positive(values.get("qk_nope_head_dim")))
    if not row.latent:
        seen.spellings = {name: keys for name, keys in READS.items() if name not in ("rotated", "unrotated")}
    if isinstance(values.get("sliding_window"), int) and windows is None:
        row = replace(row, rule="all_slide")
    codes = RotaryResolver(seen, known, row, "text", length).codes()
    codes += [(code, None) for code in _vision(fields)]
    return codes, seen.whole("context"), seen


def _positive(value: object) -> bool:
    return type(value) is int and value > 0


def _meta(values: Mapping[str, Any]) -> ModelType:
    """Defaults of Meta's code: a missing base is 10,000 in that of Llama 1 and 2, 500,000 in that of Llama 3 and 4."""
    vocabulary = values.get("vocab_size")
    later = type(vocabulary) is int and vocabulary > 100_000
    library = "llama-models 0.3.0, args.py" if later else "meta-llama/llama, llama/model.py"
    tuned = {"score_switch": False, "score_length": 8192, "score_growth": 0.1}
    known = _maker("Llama of Meta", library, {"base": 500000.0 if later else 10000.0} | (tuned if later else {}))
    return replace(known, scores={"formula": "steps", "first": 1, "layers": "still"} if later else {})


def _mistral(values: Mapping[str, Any]) -> ModelType:
    """Defaults of Mistral's code: first always base 10,000 and a window; now 1,000,000 if there is no window."""
    if values.get("sliding_window"):
        return _maker("Mistral's models", "mistral-inference, one_file_ref.py of 2023", {"base": 10000.0})
    known = _maker("Mistral's models", "mistral-inference 1.6.0, transformer.py", {"base": 1000000.0})
    return replace(known, scores={"formula": "steps", "first": 0, "magnitude": True})


def _maker(name: str, library: str, defaults: Mapping[str, Any]) -> ModelType:
    return ModelType(name, library, READS, defaults, {}, (), {})


def _scaling(fields: Fields, known: ModelType) -> tuple[dict[str, Any], dict[str, str]]:
    """The block for a scaling of the file, under the key where parsers of blocks look, and its places."""
    values = fields.values
    block: dict[str, Any] = {}
    places: dict[str, str] = {}
    yarn = fields.inside("yarn", {})
    if yarn is not None:
        named = {key: _DATA["yarn"].get(key, key) for key in yarn.values}
        block = {"rope_type": "yarn"} | {named[key]: value for key, value in yarn.values.items()}
        places = {"rope_type": f"{fields.file}:yarn"} | {named[key]: yarn.source(key) for key in yarn.values}
        yarn.read.update(yarn.values)
        if block.pop("apply_scale", None) is False:
            block["attention_factor"] = 1.0
            places["attention_factor"] = yarn.source("apply_scale")
        elif _positive(values.get("qk_nope_head_dim")):
            # In latent attention the magnitude multiplies the scores, squared, and is cancelled on cosine and sine.
            block |= {"mscale": 1.0, "mscale_all_dim": 1.0}
            places |= dict.fromkeys(("mscale", "mscale_all_dim"), f"{fields.file}:yarn of latent attention")
    fields.spellings = {**fields.spellings, "scaled": ("use_scaled_rope",)}
    scaled = fields.flag("scaled")
    if scaled is not None and scaled.value and not block:
        stretched, code = meta_scaling(values)
        block = {"rope_type": "llama3", **stretched}
        places = dict.fromkeys(block, code) | {"rope_type": scaled.source}
        for key, names in SCALED.items():
            held = next((name for name in names if values.get(name) is not None), None)
            fields.read.update(names)
            if held is not None:
                block[key], places[key] = values[held], fields.source(held)
            elif key == "factor":
                fields.took_default(names[0], block[key], f"{known.name} ({code})")
    whole = READS["blocks"][0]
    return ({whole: block} if block else {}), {f"{whole}.{key}": place for key, place in places.items()}


def meta_scaling(values: Mapping[str, Any]) -> tuple[Mapping[str, float], str]:
    """The scaling of Meta's code for ``use_scaled_rope`` if the file says no more, and which code that is."""
    later = any(key in values for key in ("nope_layer_interval", "moe_args", "attention_chunk_size"))
    return (LLAMA4, "llama-models 0.3.0, llama4/model.py") if later else (LLAMA3, "llama-models 0.3.0, llama3/model.py")


def _steps(fields: Fields) -> dict[str, Any]:
    """The growing scale of scores in files of Mistral, as a separate object, under the keys where parsers look."""
    block = fields.inside("llama_4_scaling", {})
    held = {} if block is None else {f"llama_4_scaling.{key}": value for key, value in block.values.items()}
    return {key: held[key] for key in ("llama_4_scaling.beta", f"llama_4_scaling.{ORIGINAL}") if key in held}


def _windows(fields: Fields) -> dict[str, Any] | None:
    """A list of windows, repeated over the layers: numbers slide, null sees all (``mistral_inference/cache.py``)."""
    listed, count = fields.values.get("sliding_window"), fields.values["n_layers"]
    if not isinstance(listed, list):
        return None
    sizes = {size for size in listed if size is not None}
    fits = 0 < count <= MOST_LAYERS and listed and count % len(listed) == 0
    if not fits or len(sizes) > 1 or not all(_positive(size) for size in sizes):
        fields.impossible("sliding_window", "one window or null for each layer of a period, all windows alike")
        return {"sliding_window": None}
    kinds = ["full_attention" if size is None else "sliding_attention" for size in listed] * (count // len(listed))
    return {"sliding_window": next(iter(sizes), None), READS["layer_types"][0]: kinds}


def _vision(fields: Fields) -> list[LayerEncoding]:
    """The vision tower: of one ladder, every other frequency rotates by rows, the rest by columns."""
    reads = {"hidden": ("hidden_size",), "heads": ("num_attention_heads",), "layers": ("num_hidden_layers",)}
    reads |= {"base": ("rope_theta",), "head_width": ("head_dim",)}
    tower = fields.inside("vision_encoder", reads)
    if tower is None:
        return []
    tower.defaults = {"base": 10000.0}
    tower.default_source = "mistral-inference 1.6.0, args.py"
    because = "mistral-inference 1.6.0, vision_encoder.py"
    hidden, heads = tower.whole("hidden", most=WIDEST), tower.whole("heads", most=WIDEST)
    base, layers = tower.number("base", above_one), tower.whole("layers", most=MOST_LAYERS)
    width = None
    if hidden and heads and hidden.value and heads.value and not hidden.value % (4 * heads.value):
        width = hidden.value // heads.value
    wide = None if width is None or not hidden or not heads else Sourced(width, f"{hidden.source} / {heads.source}")
    numbers = f"0-{layers.value - 1}" if layers is not None and layers.value else None
    source = {"kind": because, "layout": because}
    code = code_from("vision", numbers, "rotary", source, width=wide, rotated=wide, base=base, layers=layers)
    code = replace(code, layout="interleaved")
    if width is None or base is None or base.value is None:
        return [code]
    # Frequencies 0, 2, 4, ... of the ladder come first; the others are the same ladder, shifted by one frequency.
    each = width // 4
    further = Geometric(base.value, multiplier=base.value ** (-2 / width))
    spacing = Joined(((each, Geometric(base.value)), (each, further)))
    axes = (0,) * each + (1,) * each
    return [built(code, DeclaredScaling(), fields, None, spacing=spacing, more={"axes": axes})]
