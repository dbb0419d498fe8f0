"""Compares a draft model with its target model: which position settings must agree, and which may differ.

A draft of speculative decoding runs at the positions of its target and, if it is a head (EAGLE, multi-token
prediction), on hidden states computed with the target's rotation. Base, scaling, layout and attention factor must equal
those of some of the target's layers, and its context must be as long. Width, layers and windows may differ.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clockhands.configs.resolved import TEXT, LayerEncoding
from clockhands.runtimes._comparing import LayerDifference, side_by_side
from clockhands.runtimes.telling import lengths_differ, scaling_in_words

_CLASS = re.compile(r"eagle|nextn|mtp|medusa|dflash|dspark|draft|speculat", re.IGNORECASE)
_KEYS = ("draft_vocab_size", "speculators_model_type", "eagle_config", "dflash_config")


def is_draft(config: Mapping[str, Any] | None) -> bool:
    """Whether a config declares a draft model: by its class, its type or a key that only drafts have.

    >>> is_draft({"architectures": ["LlamaForCausalLMEagle3"]}), is_draft({"architectures": ["LlamaForCausalLM"]})
    (True, False)
    """
    held = config or {}
    classes = held.get("architectures")
    names = [*(classes if isinstance(classes, list) else ()), held.get("model_type")]
    named = any(isinstance(name, str) and _CLASS.search(name) for name in names)
    return named or any(held.get(key) is not None for key in _KEYS)


def of_draft(target: Sequence[LayerEncoding], draft: Sequence[LayerEncoding]) -> tuple[LayerDifference, ...]:
    """Each rotary code of a draft, compared with the closest code of the target.

    Args:
        target: The codes of the target.
        draft: Those of the draft.

    Returns:
        One group for each code of the draft; none where one of the two has no RoPE for text.
    """
    theirs = [code for code in draft if _rotates(code)]
    ours = [code for code in target if _rotates(code)]
    return tuple(min((_beside(mine, code) for mine in ours), key=_apart) for code in theirs) if ours else ()


def contexts_differ(first: int | None, second: int | None, *, draft: bool) -> bool:
    """Whether two context lengths are declared and differ; that of a ``draft`` may be longer than its target's."""
    return lengths_differ(first, second) and not (draft and first is not None and second is not None and second > first)


def _rotates(code: LayerEncoding) -> bool:
    return code.kind == "rotary" and code.part in TEXT


def _apart(group: LayerDifference) -> tuple[bool, int, float]:
    return (not group.equivalent, len(group.says), 0.0 if group.ladder is None else group.ladder.drift)


def _beside(target: LayerEncoding, draft: LayerEncoding) -> LayerDifference:
    if (target.width, target.rotated) == (draft.width, draft.rotated):
        return side_by_side(draft.part, draft.layers, target, draft, ("scores",))
    return LayerDifference(draft.part, draft.layers, target, draft, None, tuple(_settings(target, draft)))


def _settings(target: LayerEncoding, draft: LayerEncoding) -> Iterator[str]:
    """The differences of two codes whose heads have other widths, so that pair i of one is not pair i of the other."""
    if target.layout != draft.layout and target.layout and draft.layout:
        yield f"{target.layout} layout against {draft.layout} layout"
    if target.base != draft.base:
        yield f"base {_shown(target.base)} against {_shown(draft.base)}"
    if (target.scaling or None) != (draft.scaling or None):
        yield f"{_scaling(target)} against {_scaling(draft)}"
    if target.attention_factor != draft.attention_factor:
        yield f"attention factor {_shown(target.attention_factor)} against {_shown(draft.attention_factor)}"


def _scaling(code: LayerEncoding) -> str:
    original = (code.scaling or {}).get("original")
    return scaling_in_words(code) + (f" from {original:,} tokens on" if original else "")


def _shown(value: float | None) -> str:
    return "not known" if value is None else f"{value:,.7g}"
