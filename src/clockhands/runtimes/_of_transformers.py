"""The readers for Transformers 4 and Transformers 5.

Transformers 4 (4.57.1) reads a base at the top level of the text part and a scaling in ``rope_scaling``; it keeps
``rope_parameters`` as an attribute that its code never uses. Transformers 5 (5.23.0) reads both blocks, the old one
before the new one; this project's own resolver follows it.
"""

from collections.abc import Mapping
from typing import Any

from clockhands.configs.model_types import model_type, parts_of_class, table
from clockhands.configs.rope_blocks import NEW, OLD, layer_blocks, scaling_name
from clockhands.runtimes.views import (
    AS_THE_CLASS,
    CONTEXT,
    GROWTH,
    ORIGINAL,
    ModelFailure,
    NoSuchType,
    Refusal,
    Undescribed,
    View,
    facts,
    named,
    names,
)

# The keys without which each scaling raises a KeyError (modeling_rope_utils.py, `_check_received_keys` and the
# functions).
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", ORIGINAL),
}
_PHI3 = frozenset({"phi3", "phi4_multimodal"})
# Their config classes read `mrope`, which only says how three axes share the pairs, as no scaling.
_MROPE = frozenset({"qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"})


def known_to(reader: str, view: View) -> str:
    """The model type, if this release of Transformers has it.

    Raises:
        NoSuchType: It does not have the type, and the model brings no code of its own either.
        Undescribed: The model brings its own code, or names no type.
    """
    name = view.name
    if name is None:
        raise Undescribed("The file names no model type.")
    # A part inside a config is built by the class of the whole config.
    whole = view.top.get("model_type") if view.path else name
    if not isinstance(whole, str) or whole not in names(reader):
        if view.top.get("auto_map"):
            raise Undescribed("The runtime runs the custom code of the model, which clockhands never runs.")
        raise NoSuchType(f"Transformers has no model type {whole}.")
    return name


def transformers_4(view: View) -> None:
    """Read a part as Transformers 4.57.1 does."""
    name = known_to("transformers-4", view)
    view.sections = AS_THE_CLASS
    types = facts()["transformers-4"]["types"]
    entry = types.get(name) or types.get(f"{name}_text")
    if entry is None:
        raise Undescribed(f"The class of {name} in Transformers 4.57.1 has no RoPE, or is not known to clockhands.")
    view.drop(NEW)
    for key in ("base", "local", "share"):
        if key in entry:
            view.default(*entry[key])
    if "scaling" in entry and view.get(OLD) is None:
        # A null means no scaling, where an absent key means the class default.
        empty = OLD in view.values and not entry.get("null_too", False)
        view.put(OLD, {"rope_type": "default"} if empty else entry["scaling"])
    block = view.block(OLD)
    _check_needed(name, block, entry)
    if block is None:
        return
    if not entry.get("scales", True):
        view.drop(OLD)
        return
    view.put(OLD, _old_block(view, block, name, old_first=entry.get("type_first", False)))


def _check_needed(name: str, block: Mapping[str, Any] | None, entry: Mapping[str, Any]) -> None:
    """Check the keys that the class of a type takes from the old block without testing whether they are present.

    Raises:
        ModelFailure: There is no block.
        Refusal: A key of it is missing.
    """
    if block is None:
        if "needs" in entry:
            # Indexing None raises another error than calling a method on None.
            error = "TypeError" if entry["needs"] else "AttributeError"
            raise ModelFailure(f"The class of {name} needs {OLD}, which is absent ({error}).")
        return
    missing = [key for key in entry.get("needs", ()) if key not in block]
    if missing:
        raise Refusal(f"The class of {name} needs {', '.join(missing)} in {OLD} (KeyError).")
    if entry.get("new_spelling", False) and "type" in block and "rope_type" not in block:
        raise Refusal(f"The class of {name} needs rope_type in {OLD}, which has only `type` (KeyError).")


def _old_block(view: View, block: dict[str, Any], name: str, *, old_first: bool) -> dict[str, Any]:
    """The old block as the functions of modeling_rope_utils.py read it."""
    kind = scaling_name(block, old_first=old_first)
    if name in _PHI3:
        kind = _phi3(block)
    if kind == "mrope" and name in _MROPE:
        kind = "default"
    if kind is None or kind not in _NEEDED:
        said = "names no type" if kind is None else f"names the type {kind}"
        raise Refusal(f"{OLD} {said}, but the known types are {', '.join(_NEEDED)} (KeyError).")
    missing = [key for key in _NEEDED[kind] if key not in block]
    if missing:
        raise Refusal(f"{OLD} of type {kind} lacks {', '.join(missing)} (KeyError).")
    block = named(block, kind)
    if kind == "longrope":
        return _old_longrope(view, block)
    if kind == "yarn" and view.get(ORIGINAL) is not None:
        # Only LongRoPE reads keys outside the block.
        view.drop(ORIGINAL)
    return block


def _phi3(block: Mapping[str, Any]) -> str:
    """Phi-3's config class reads only ``type``, accepts two names for LongRoPE, and allows three keys."""
    kind = block.get("type")
    if kind not in ("su", "yarn", "longrope"):
        raise Refusal(f"{OLD} must name type longrope under the key `type` (ValueError).")
    if len(block) != 3 and set(block) != {"type", "rope_type", "short_factor", "long_factor"}:
        raise Refusal(f"{OLD} must have exactly the keys type, short_factor and long_factor (ValueError).")
    return "longrope"


def _old_longrope(view: View, block: dict[str, Any]) -> dict[str, Any]:
    """LongRoPE uses the original length outside the block; without one, the declared context length."""
    view.drop_inside(block, OLD, ORIGINAL)
    context, original = view.number(CONTEXT), view.number(ORIGINAL)
    if context and original:
        # The ratio of the lengths replaces a factor given in the file.
        return {**block, "factor": max(context / original, 1.0)}
    if block.get("factor") is None and block.get("attention_factor") is None:
        raise Refusal(f"Transformers finds neither {ORIGINAL} nor a factor (TypeError).")
    return block


def transformers_5(view: View) -> None:
    """Read a part as Transformers 5.23.0 does: like this project's resolver, apart from the differences below."""
    config_of_5(view)
    view.sections = AS_THE_CLASS
    for key, names_inside in facts()["transformers-5"]["ignored_inside"].get(view.name, {}).items():
        block = view.block(key)
        if block is not None:
            view.drop_inside(block, key, *names_inside)
            view.put(key, block)
    for block in view.blocks_that_count():
        kind = scaling_name(block.values)
        if kind not in (None, *_NEEDED, "proportional", "mrope", "su"):
            raise Refusal(f"{block.key} names the type {kind}, which is not a known scaling (KeyError).")
        if view.lacks_growth(block.values):
            raise ModelFailure(f"The class of {view.name} needs {GROWTH}, which is absent (TypeError).")


def of_ignored_part(view: View) -> str | None:
    """The type whose defaults the class takes for text, if a file has the text in an object that the class ignores."""
    top, (outer, _, _) = view.top.get("model_type"), view.path.partition(".")
    known = model_type(top) if isinstance(top, str) else None
    if known is None or not outer or not (taken := parts_of_class(known.name)) or outer in taken:
        return None
    return known.sections.get("text")


def _lost_base(name: str, view: View) -> None:
    """Give layers their class default where the class gives the base at the top level to the other layers alone.

    The class has a block for each kind of layer: those of the new format, or empty ones, and lays the old block over
    that of the layers that see all. A new block without kinds is not read.
    """
    known, base = model_type(name), view.number("rope_theta")
    row = next((row for row in known.rows if row.lost), None) if known is not None else None
    if known is None or row is None or base is None:
        return
    held, old = layer_blocks(view.block(NEW) or {}), view.block(OLD) or {}
    blocks: dict[str, dict[str, Any]] = {}
    for kind in ("full", *row.lost):
        own = {"rope_type": "default", **held.get(f"{kind}_attention", {}), **(old if kind == "full" else {})}
        blocks[f"{kind}_attention"] = {"rope_theta": base if kind == "full" else known.defaults["base"], **own}
    for key in (OLD, "rope_theta"):
        view.values.pop(key, None)
    view.put(NEW, blocks)


def config_of_5(view: View) -> None:
    """Apply what the config classes of Transformers 5.23.0 change in a part; vLLM uses them too."""
    name = known_to("transformers-5", view)
    view.values.pop("indexer_rope_interleave", None)  # the class of glm_moe_dsa always interleaves
    _lost_base(name, view)
    text = facts()["transformers-5"]["flat"].get(name)
    flat = text is not None and not view.path and "text_config" not in view.values
    if not flat:
        text = of_ignored_part(view)
    if text is not None:
        for key in table()["position_keys"]:
            view.drop(key)
        view.values = {"model_type": text}
        view.name = text
        if model_type(text) is None:
            raise Undescribed(
                f"Transformers ignores text settings that are not in text_config, and uses the defaults of {text}."
            )
        view.says.append("Transformers reads text settings only from text_config, which is absent, and uses defaults.")
    block = view.block(OLD)
    over_default = view.name in facts()["transformers-5"]["over_default"]
    if block is not None and over_default and "rope_type" not in block and scaling_name(block) not in (None, "default"):
        view.drop(OLD)
    for block in view.blocks_that_count():
        kind, held = scaling_name(block.values), block.values
        # The original length is filled in, but not under LongRoPE's old name, which is renamed only after that.
        missing = [each for each in _NEEDED.get(kind or "", ()) if each not in held and each != ORIGINAL]
        if kind == "su" and (ORIGINAL not in held or name not in _PHI3):
            missing.append(ORIGINAL if name in _PHI3 else "a known type")
        if missing:
            raise Refusal(f"{block.key} of type {kind} lacks {', '.join(missing)} (KeyError).")
