"""The readers for two releases of vLLM: 0.11.0, on Transformers 4, and 0.33.0, on Transformers 5.

Both get the config through the classes of Transformers and compute the frequencies themselves (``get_rope``).
"""

from typing import Any

from clockhands.configs.rope_blocks import NEW, OLD, scaling_name
from clockhands.encodings.scaling import yarn_magnitude
from clockhands.runtimes._of_transformers import config_of_5, known_to, of_ignored_part, transformers_4
from clockhands.runtimes.views import (
    CONTEXT,
    GROWTH,
    ORIGINAL,
    Refusal,
    Undescribed,
    View,
    facts,
    longrope,
    named,
    names,
    ratio,
)

# Type names that may both be present although they differ (patch_legacy_rope_type, 0.33.0).
_BESIDE = {("su", "longrope"), ("mrope", "default")}
# Types for which 0.33.0 assumes that the declared length already includes the factor (config/model.py).
_DEEPSEEK = "deepseek_yarn"
_QWEN = frozenset({"qwen2", "qwen3"})
_FULL, _SLIDES = "full_attention", "sliding_attention"
_ALREADY = frozenset({"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"})


def vllm_0_11(view: View) -> None:
    """Read a part as vLLM 0.11.0 does."""
    held = facts()["vllm-0.11"]
    _known("transformers-4", view)
    if view.name not in (*held["types"], *held["without_scaling"]):
        raise Undescribed("The code of vLLM 0.11.0 for this type is not known to clockhands.")
    if view.get("dual_chunk_attention_config"):
        raise Undescribed("It counts positions by dual_chunk_attention_config, which clockhands does not read.")
    if not facts()["transformers-4"]["types"][view.name].get("type_first"):
        _contradiction(view, OLD, frozenset())
    declared = view.block(OLD)
    outside = view.number(ORIGINAL) if view.name in held["outside"] else None
    again = declared is not None and scaling_name(declared) == _DEEPSEEK
    if declared is not None and again:
        # A key that only vLLM has; the classes of Transformers 4 ignore it.
        view.put(OLD, named(declared, "yarn"))
    transformers_4(view)
    if view.name in _QWEN:
        # The defaults of their config classes where a key is absent.
        view.default("max_window_layers", 28)
        view.default("sliding_window", 4096)
        _one_window(view)
    block = view.block(OLD)
    if block is None:
        return
    if view.name in held["without_scaling"]:
        view.drop(OLD)
        return
    # What it uses as the original length: the value in the block, or the one in the block of the model's own file.
    original = outside or view.number(ORIGINAL, declared)
    kind, factor, context = scaling_name(block), view.number("factor", block), view.number(CONTEXT)
    if kind == "yarn":
        block = _yarn_0_11(view, block, original, deepseek=again or view.name in held["deepseek"])
        if factor is not None and original is not None:
            # Only for the type yarn does the longest length start from the original one.
            view.longest = (context or original) * factor if again else original * factor
    elif kind == "dynamic" and "alpha" not in block and factor is not None and context is not None:
        # The base is raised once, for factor x context, and used at every length.
        view.longest = context * factor
        view.length = int(context * factor)
    elif kind == "longrope":
        block = _long_magnitude(view, block, OLD, original)
    elif kind == "linear" and factor is not None and context is not None and "gemma3" not in str(view.name):
        view.longest = context * factor
    view.put(OLD, block)


def _one_window(view: View) -> None:
    """Set the windows of Qwen 2 and Qwen 3: their code has one window for all layers, whatever the file lists.

    Raises:
        Refusal: The list has both kinds of layers, and `max_window_layers` is not the number of layers.
    """
    layers, listed = view.number("num_hidden_layers"), view.get("layer_types")
    first = view.number("max_window_layers") if view.get("max_window_layers") else view.get("max_window_layers")
    if layers is None or not isinstance(first, int | float):
        return
    window = view.get("use_sliding_window") and view.number("sliding_window")
    kinds = (
        listed
        if isinstance(listed, list)
        else [_SLIDES if window and first <= each else _FULL for each in (0, layers - 1)]
    )
    if _SLIDES in kinds and _FULL in kinds:
        if first != layers:
            raise Refusal("It supports a window in all layers or in none, and here only some have one.")
        view.window_rule = {"sees": "all"}
        return
    if window:
        view.put("layer_types", [_SLIDES] * int(layers))
    view.window_rule = {}


def _known(transformers: str, view: View) -> None:
    """Check the type: types that Transformers lacks may have a config class in vLLM itself, and those were not read."""
    try:
        known_to(transformers, view)
    except (Refusal, Undescribed):
        raise Undescribed(
            "Transformers has no such model type, and clockhands does not know whether vLLM itself supports it."
        ) from None
    if of_ignored_part(view) is not None:
        raise Undescribed("The class of Transformers ignores this object; whether vLLM has another class is not known.")
    if view.name in facts()["vllm"]["own_keys"]:
        raise Undescribed(f"Its own file for {view.name} reads other keys than the class of Transformers.")


def _yarn_0_11(view: View, block: dict[str, Any], original: float | None, *, deepseek: bool) -> dict[str, Any]:
    """YaRN without the magnitude keys of the block, except DeepSeek's two numbers."""
    factor = view.number("factor", block)
    if original is None or factor is None:
        raise Refusal(f"{OLD} of type yarn lacks {ORIGINAL} (KeyError).")
    made = ratio(factor, block) if deepseek else yarn_magnitude(factor)
    made *= view.number("attn_factor", block) or 1.0
    kept = ("mscale", "mscale_all_dim") if deepseek else ()
    dropped = [key for key in ("attention_factor", "mscale", "mscale_all_dim", "truncate") if key not in kept]
    view.drop_inside(block, OLD, *dropped)
    return {**block, ORIGINAL: original, "attention_factor": made}


def vllm(view: View) -> None:
    """Read a part as vLLM 0.33.0 does."""
    _known("transformers-5", view)
    for key in (OLD, NEW):
        _contradiction(view, key, frozenset(_BESIDE))
    config_of_5(view)
    if view.name == "step3p5":
        _layers_that_rotate(view)
    key = OLD if view.block(OLD) is not None else NEW
    block = view.block(key)
    if block is None:
        return
    if "mrope_section" in block and view.name in names("vllm", "sections"):
        # The class in Transformers has one layout, whatever the file says.
        view.sections = "interleaved" if block.get("mrope_interleaved") else "consecutive"
    if view.name == "ministral3" and GROWTH in block and not view.get("llama_4_scaling"):
        view.not_read.append(view.place(f"{key}.{GROWTH}"))
        view.says.append(f"vLLM scales attention scores only by llama_4_scaling beside {key}, not by {GROWTH}.")
    kind, factor, context = scaling_name(block), view.number("factor", block), view.number(CONTEXT)
    again = kind is not None and kind not in _ALREADY and "gemma3" not in str(view.name)
    if again and factor is not None and context is not None:
        view.longest = context * factor
    own = view.name in facts()["vllm"]["deepseek"] and view.number("attention_factor", block) != 1.0
    if kind == _DEEPSEEK and view.number(ORIGINAL, block) is None:
        raise Refusal(f"{key} of type {kind} lacks {ORIGINAL} (KeyError).")
    if factor is not None and (kind == _DEEPSEEK or (kind == "yarn" and own)):
        made = ratio(factor, block)
        view.drop_inside(block, key, "attention_factor", "truncate")
        block = {**named(block, "yarn"), "attention_factor": made}
    elif kind == "dynamic" and "alpha" not in block:  # with one, the base is raised by it at every length
        # Its table is as long as the context and its trained length is the same, so the base is never raised.
        block = {name: value for name, value in block.items() if name in ("rope_theta", "partial_rotary_factor")}
        block["rope_type"] = "default"
        view.says.append("vLLM keeps the base unchanged at every length.")
    elif kind == "longrope":
        original = view.number(ORIGINAL) or view.number(ORIGINAL, block) or context
        block = _long_magnitude(view, block, key, original)
    view.put(key, block)


def _layers_that_rotate(view: View) -> None:
    """A list of Step-3.5 that Transformers ignores: whether each layer rotates.

    Raises:
        Undescribed: The list fits neither the layers nor their bases.
    """
    turns, bases = view.get("use_rope_layers"), view.get("rope_theta")
    if not turns or (isinstance(turns, list) and all(turns)):
        return
    bases = bases if isinstance(bases, list) else [bases] * len(turns) if isinstance(turns, list) else []
    if not isinstance(turns, list) or len(bases) != len(turns) or None in bases:
        raise Undescribed("What it makes of use_rope_layers in such a file is not known to clockhands.")
    view.put("rope_theta", [base if turning else 0 for base, turning in zip(bases, turns, strict=True)])


def _long_magnitude(view: View, block: dict[str, Any], key: str, original: float | None) -> dict[str, Any]:
    """The factor on cosine and sine derived from the two lengths, whatever the block says."""
    context = view.number(CONTEXT)
    if context is None or original is None:
        raise Refusal(f"{key} of type longrope lacks {ORIGINAL} (KeyError).")
    view.drop_inside(block, key, "attention_factor", "factor")
    view.values.pop(ORIGINAL, None)
    return {**block, **longrope(context, original), ORIGINAL: original}


def _contradiction(view: View, key: str, allowed: frozenset[tuple[str, str]]) -> None:
    block = view.block(key) or {}
    old, new = block.get("type"), block.get("rope_type")
    if isinstance(old, str) and isinstance(new, str) and old != new and (old, new) not in allowed:
        raise Refusal(f"{key} names two scalings, type {old} and rope_type {new} (ValueError).")
