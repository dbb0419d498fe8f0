"""What functions that split, join and move axes make of the channels of a tensor."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clockhands.configs.model_code._known_values import UNKNOWN, Items, Known, RunTime, Value

ODD = "odd"
"""The layout of channels that are combined with cosines and sines otherwise than by RoPE."""

NESTED = "nested"
"""The layout of pairs inside a tensor that was split before: of an axis of an image, or of keys beside values."""


def half(of: RunTime, layout: str, number: int) -> RunTime:
    """The first or the second channels of the pairs of a tensor."""
    if of.part is not None or (of.permuted and layout != "halves"):
        layout = NESTED
    elif of.permuted:
        layout = "interleaved"
    kept = {"negated": of.negated, "frequencies": of.frequencies, "scale": of.scale, "permuted": of.permuted}
    return RunTime(part=(layout, number), **kept)


def halves(of: RunTime, layout: str) -> Items:
    return Items((half(of, layout, 0), half(of, layout, 1)))


def doubled_in(of: RunTime, given: list[Value]) -> str | None:
    """The layout for which each angle of a tensor is in it twice."""
    return next((each.doubled for each in (of, *given) if isinstance(each, RunTime) and each.doubled), None)


def layout_of(of: RunTime) -> str | None:
    """The layout of a tensor whose pairs are made complex numbers."""
    if of.split is None:
        return None
    if of.split == "before":
        return "interleaved" if of.permuted else "halves"
    return None if of.permuted else "interleaved"


def _number(value: Value | None) -> Any:
    return value.value if isinstance(value, Known) else None


_LAST_TWO = ({-1, -2}, {3, 4}, {2, 3})


def reshaped(name: str, of: RunTime, given: list[Value], named: Mapping[str, Value]) -> Value | None:
    """What a function that splits or joins axes makes of a tensor; None if it is another function."""
    if name in ("chunk", "tensor_split"):
        number = _number(given[0] if given else named.get("chunks"))
        dim = _number(given[1] if len(given) > 1 else named.get("dim", named.get("axis", Known(0))))
        return halves(of, "halves") if number == 2 and dim in (-1, 3, None) else UNKNOWN
    if name == "split" and given and isinstance(given[0], RunTime) and given[0].halved:
        return halves(of, "halves")
    if name == "unbind":
        dim = _number(given[0] if given else named.get("dim"))
        if of.split == "last" and dim in (-1, 4):
            return halves(of, "interleaved")
        return halves(of, "halves") if of.split == "before" and dim in (-2, 3) else UNKNOWN
    if name in ("transpose", "swapaxes"):
        moved = {_number(each) for each in given[:2]}
        if of.split == "last" and moved in _LAST_TWO:
            return replace(of, split="before", permuted=True)
        return of
    if name == "rearrange" and given and isinstance(_number(given[0]), str):
        return _rearranged(of, _number(given[0]), [key for key, value in named.items() if _number(value) == 2])
    if name in ("reshape", "view", "unflatten", "flatten"):
        shape = [inner for each in given for inner in (each.values if isinstance(each, Items) else (each,))]
        sizes = [_number(each) for each in shape]
        if name != "flatten" and sizes[-1:] == [2]:
            return RunTime(split="last", frequencies=of.frequencies, scale=of.scale)
        if name != "flatten" and len(sizes) > 1 and sizes[-2] == 2:
            return RunTime(split="before", frequencies=of.frequencies, scale=of.scale)
        return replace(of, split=None, part=None if of.split else of.part)
    return None


def _rearranged(of: RunTime, pattern: str, pairs: list[str]) -> RunTime:
    """What einops makes of a tensor whose channels it splits into pairs."""
    found = re.search(r"\((\w+) (\w+)\)", pattern.partition("->")[0])
    if found is None or not pairs or pairs[0] not in found.groups():
        return replace(of, split=None)
    after = pattern.partition("->")[2].split()
    if after[-2:] != list(found.groups()):
        return UNKNOWN
    return RunTime(split="last" if found[2] == pairs[0] else "before")


# Functions that keep the channels of a tensor.
KEEPING = frozenset((
    "as_tensor", "bfloat16", "clone", "contiguous", "cpu", "cuda", "detach", "double", "expand", "expand_as", "float",
    "half", "permute", "real", "squeeze", "tensor", "to", "type", "type_as", "unsqueeze", "view_as",
))  # fmt: skip

# Functions that multiply frequencies by positions, repeat them or hand them on, and change nothing else about them.
SPREADING = frozenset((
    "Buffer", "Parameter", "bmm", "einsum", "matmul", "mm", "outer", "repeat", "repeat_interleave", "tile",
))  # fmt: skip
