"""The reader for llama.cpp: what its converter writes to GGUF, and what its loader reads from that.

The converter reads ``rope_parameters`` before ``rope_scaling``, and gets both, with the classes' defaults, through
Transformers 4. What it writes for a scaling depends on the model type.
"""

from typing import Any

from clockhands.configs.rope_blocks import NEW, OLD, layer_blocks, scaling_name
from clockhands.encodings.scaling import yarn_magnitude
from clockhands.runtimes.views import (
    CONTEXT,
    ORIGINAL,
    NoSuchType,
    Refusal,
    Undescribed,
    View,
    facts,
    longrope,
    names,
)  # fmt: skip


def llama_cpp(view: View) -> None:
    """Read a part as the llama.cpp inside llama-cpp-python 0.3.36 does."""
    architecture = _architecture(view)
    key = NEW if view.block(NEW) is not None else OLD
    if key == NEW:
        view.drop(OLD)
    types = facts()["transformers-4"]["types"]
    entry = types.get(str(view.name)) or types.get(f"{view.name}_text") or {"base": ["rope_theta", 10000.0]}
    for name in ("base", "local"):
        if name in entry:
            view.default(*entry[name])
    if view.name == "smollm3":
        # Its loader does not rotate every fourth layer, and the file has no key for another choice.
        view.drop("no_rope_layers")
        view.put("no_rope_layer_interval", 4)
    block = view.block(key)
    if block is not None and not layer_blocks(block):
        view.put(key, _written(view, block, key, architecture))


def _architecture(view: View) -> str:
    """The architecture that selects the converter: that of the text part, else that of the whole config.

    Raises:
        NoSuchType: llama.cpp has no converter for it.
        Undescribed: The code of its converter was not read.
    """
    held = facts()["llama.cpp"]
    declared = view.get("architectures") or view.top.get("architectures")
    first = declared[0] if isinstance(declared, list) and declared else held["described"].get(view.name)
    if isinstance(first, str) and first not in names("llama.cpp", "architectures"):
        raise NoSuchType(f"The converter of llama.cpp has no architecture {first}.")
    if not isinstance(first, str) or first not in {*held["described"].values(), *held["llama3"]}:
        raise Undescribed("clockhands does not know the converter of llama.cpp for this architecture.")
    return first


def _written(view: View, block: dict[str, Any], key: str, architecture: str) -> dict[str, Any]:
    """The scaling that the GGUF file gets, as the loader then reads it."""
    held = facts()["llama.cpp"]
    kind, factor = scaling_name(block), view.number("factor", block)
    plain = {name: value for name, value in block.items() if name in ("rope_theta", "partial_rotary_factor")}
    plain["rope_type"] = "default"
    kept = kind in (None, "default", "mrope") or (kind == "linear" and factor is not None)
    if kept or (kind == "llama3" and architecture in held["llama3"]):
        return block
    if kind == "yarn" and factor is not None:
        return _yarn(view, block, key, factor, architecture)
    if kind in ("longrope", "su") and architecture in held["longrope"]:
        original = view.original(block)
        if original is None:
            raise Refusal(f"The converter of llama.cpp finds no {ORIGINAL} (KeyError).")
        view.drop_inside(block, key, "attention_factor", "factor", "short_mscale", "long_mscale")
        return {**block, "rope_type": "longrope", **longrope(view.number(CONTEXT) or original, original)}
    view.not_read.append(view.place(key))
    view.says.append(f"The converter of llama.cpp does not write a scaling of type {kind} for {architecture}.")
    return plain


def _yarn(view: View, block: dict[str, Any], key: str, factor: float, architecture: str) -> dict[str, Any]:
    held = facts()["llama.cpp"]
    original = view.original(block)
    if original is None:
        raise Refusal(f"{key} of type yarn lacks {ORIGINAL} (KeyError in the converter).")
    made = yarn_magnitude(factor)
    whole = view.number("mscale_all_dim", block)
    if architecture in held["mscale"] and whole:
        # The loader assumes that mscale is 1; for DeepSeek-V2 and models derived from it, that it equals
        # mscale_all_dim.
        same = architecture not in held["betas"] and whole != 1.0
        made = yarn_magnitude(factor, whole if same else 1.0) / yarn_magnitude(factor, whole)
    view.drop_inside(block, key, "attention_factor", "mscale", "truncate")
    if architecture not in held["betas"]:
        view.drop_inside(block, key, "beta_fast", "beta_slow")
    return {**block, ORIGINAL: original, "attention_factor": made}
