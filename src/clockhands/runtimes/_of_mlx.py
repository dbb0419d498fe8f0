"""The reader for mlx-lm 0.32.2: a dataclass for each model type takes the keys that it names and drops all others."""

from typing import Any

from clockhands.configs.rope_blocks import NEW, OLD, scaling_name
from clockhands.runtimes.views import (
    CONTEXT,
    GROWTH,
    ORIGINAL,
    NoSuchType,
    Refusal,
    Undescribed,
    View,
    facts,
    longrope,
    named,
    names,
    ratio,
)  # fmt: skip

_YARN = ("yarn", "deepseek_yarn", "telechat3-yarn")
_KNOWN = ("default", "linear", "dynamic", "llama3", *_YARN, "longrope", "proportional", "mrope")


def mlx_lm(view: View) -> None:
    """Read a part as mlx-lm does."""
    held = facts()["mlx-lm"]
    name = held["same_as"].get(view.name, view.name)
    entry = held["types"].get(name)
    whole = view.top.get("model_type") if view.path else view.name
    if isinstance(whole, str) and held["same_as"].get(whole, whole) not in names("mlx-lm"):
        raise NoSuchType(f"mlx-lm has no model type {whole}.")
    if entry is None:
        raise Undescribed("The code of mlx-lm 0.32.2 for this type is not known to clockhands.")
    new = view.block(NEW)
    if new is not None and view.lacks_growth(new):
        raise Refusal(f"{NEW} lacks {GROWTH} (KeyError).")
    if new is not None and entry.get("blocks"):
        if view.get("rope_theta") is None and "rope_theta" in new:
            view.put("rope_theta", new["rope_theta"])
        if view.get(OLD) is None:
            view.put(OLD, new)
        view.values.pop(NEW)
    else:
        view.drop(NEW)
    _filled(view, entry)
    block = view.block(OLD)
    if block is None:
        _unscaled(view)
    elif entry["scaling"] == "none":
        view.drop(OLD)
        _unscaled(view)
    elif entry["scaling"] == "su":
        _su(view, block)
    else:
        view.put(OLD, _rope_utils_scaling(view, block))


def _filled(view: View, entry: dict[str, Any]) -> None:
    for key, base in (("rope_theta", entry["base"]), ("partial_rotary_factor", entry.get("share", 1.0))):
        if base is None and view.get(key) is None:
            raise Refusal(f"mlx-lm needs {key} at this place (TypeError or ValueError).")
        if base == "whole":
            # It rotates the whole head, whatever the partial rotary factor.
            view.drop(key)
            view.put(key, 1.0)
        elif base is not None and (key == "rope_theta" or "share" in entry):
            view.default(key, base)
    if "local" in entry:
        view.default(*entry["local"])


def _unscaled(view: View) -> None:
    """Remove the scaling, also for a type whose class in Transformers has one by default."""
    if view.known is not None and any(row.block for row in view.known.rows):
        view.put(OLD, {"rope_type": "default"})


def _rope_utils_scaling(view: View, block: dict[str, Any]) -> dict[str, Any]:
    """Apply what models/rope_utils.py does with a block; it reads ``type`` before ``rope_type``."""
    kind = scaling_name(block, old_first=True) or "default"
    if kind not in _KNOWN:
        raise Refusal(f"The scaling is of type {kind}, which mlx-lm does not support (ValueError).")
    if kind == "proportional":
        raise Undescribed("How mlx-lm 0.32.2 computes proportional scaling for this type is not known.")
    factor = view.number("factor", block)
    if kind in ("linear", "dynamic", "llama3", *_YARN) and factor is None:
        raise Refusal(f"The scaling of type {kind} lacks a factor (KeyError).")
    if kind in _YARN and factor is not None:
        made = ratio(factor, block)
        view.drop_inside(block, OLD, "attention_factor", "truncate")
        block.setdefault(ORIGINAL, 4096)
        view.drop(ORIGINAL)
        # The two numbers are already in the factor on cosine and sine, which is stated explicitly from here on.
        rest = {key: value for key, value in block.items() if key not in ("mscale", "mscale_all_dim")}
        return {**named(rest, "yarn"), "attention_factor": made}
    if kind == "llama3":
        view.drop(ORIGINAL)
        filled = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, ORIGINAL: 8192}
        return {**filled, **named(block, kind)}
    if kind == "longrope":
        original = view.number(ORIGINAL, block)
        if original is None or "long_factor" not in block:
            raise Refusal(f"The longrope block lacks {ORIGINAL} or a list (KeyError).")
        return _long(view, named(block, kind), original)
    return named(block, "default" if kind == "mrope" else kind)


def _su(view: View, block: dict[str, Any]) -> None:
    """Phi-3: only ``type`` is read, and the original length comes from outside the block (4,096 if absent)."""
    if not all(key in block for key in ("type", "long_factor")):
        raise Refusal(f"{OLD} lacks type or long_factor (ValueError).")
    if block["type"] == "linear":
        return
    if block["type"] not in ("su", "longrope"):
        view.drop(OLD)
        return
    view.drop_inside(block, OLD, ORIGINAL)
    view.put(OLD, _long(view, named(block, "longrope"), view.number(ORIGINAL) or 4096))


def _long(view: View, block: dict[str, Any], original: float) -> dict[str, Any]:
    """Use the long list at every length, and a factor on cosine and sine derived from the two lengths."""
    view.drop_inside(block, OLD, "short_factor", "attention_factor", "factor", "short_mscale", "long_mscale")
    context = view.number(CONTEXT) or 131072
    view.values.pop(ORIGINAL, None)
    made = {"short_factor": block["long_factor"], ORIGINAL: int(original)}
    return {**block, **made, **longrope(context, original)}
