"""Which positions the layers can see in each runtime, and how it shares the pairs of M-RoPE among the axes.

The rules for windows are in ``runtimes.json`` under each reader, by model type. Without a rule nothing is compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from clockhands.configs.resolved import TEXT, LayerEncoding
from clockhands.encodings.rotary import Rotary, chunked, interleaved
from clockhands.errors import InvalidValue
from clockhands.runtimes.views import AS_THE_CLASS, Refusal, Undescribed, View, facts


def window_rule(reader: str, view: View) -> Mapping[str, Any] | None:
    """What a reader does with the windows of a part; None where it was not read for this type, or for such a file.

    ``drops`` are keys that it does not read, so that the pattern of the type remains. ``sees`` changes what the file
    says: ``all`` positions, or ``one more``. The same under ``mixed`` applies only where some layers have a window and
    others do not; ``refuses`` there means an error. ``unless`` are keys that the class of Transformers ignores or reads
    differently: the rule applies to files that do not set them. ``takes`` is a key that this class ignores and the
    reader uses as the window of every layer.
    """
    held = facts()[reader].get("windows", {})
    rule = held.get(view.name, held.get("*"))
    if rule is None or any(view.get(key) for key in rule.get("unless", ())):
        return None
    window = view.number(rule["takes"]) if "takes" in rule else None
    return rule if window is None else {"sees": int(window)}


def in_windows(
    codes: tuple[LayerEncoding, ...], rules: Mapping[str, Mapping[str, Any] | None]
) -> tuple[LayerEncoding, ...]:
    """The codes with the windows that a reader gives them, by the rule of each part.

    Raises:
        Refusal: It does not load a model in which only some layers have a window.
    """
    made = codes
    for part, rule in rules.items():
        of_part = [code for code in codes if code.part == part]
        mixed = len({code.farthest is None for code in of_part}) > 1
        how = (rule or {}).get("sees")
        if mixed and rule and "mixed" in rule:
            how = rule["mixed"]
        if how == "refuses":
            raise Refusal(
                "The runtime supports sliding windows in all layers or in no layer, and only some layers of this model"
                " have one."
            )
        if isinstance(how, int) or (how is not None and any(code.farthest is not None for code in of_part)):
            made = tuple(with_window(code, how) if code.part == part else code for code in made)
    return made


def with_window(code: LayerEncoding, how: str | int) -> LayerEncoding:
    """The encoding in layers that see ``all`` positions, ``one more``, or this number of them."""
    if how == "all" or isinstance(how, int):
        return replace(code, window=None if how == "all" else how, chunk=None)
    return code if code.window is None else replace(code, window=code.window + 1)


def in_sections(codes: tuple[LayerEncoding, ...], sections: Mapping[str, str | None]) -> tuple[LayerEncoding, ...]:
    """The codes with the pairs shared among the axes as a reader does, by part.

    Raises:
        Undescribed: The sections do not fit in that order.
    """
    if not any(how not in (None, AS_THE_CLASS) for how in sections.values()):
        return codes
    return tuple(with_sections(code, sections.get(code.part)) for code in codes)


def with_sections(code: LayerEncoding, how: str | None) -> LayerEncoding:
    """The encoding with its pairs shared among the axes ``consecutive``, ``interleaved`` or ``strided``.

    Raises:
        Undescribed: The sections do not fit in that order.
    """
    held = code.sections if code.part in TEXT else None
    if how in (None, AS_THE_CLASS) or held is None or not isinstance(code.spec, Rotary):
        return code
    if held["order"] == ("interleaved" if how == "strided" else how):
        return code
    try:
        axes = _ORDERS[how](held["pairs"])
    except InvalidValue:
        raise Undescribed(f"How this runtime reads {how} M-RoPE sections that do not fit is not known.") from None
    return replace(code, spec=replace(code.spec, axes=axes))


def _strided(sections: Sequence[int]) -> tuple[int, ...]:
    """Every n-th pair for each of n axes; a section that is too large ends at the last pair.

    Source: ``apply_interleaved_mrope`` of Qwen3-VL in Transformers 5.23.0.
    """
    axes, turn = [0] * sum(sections), len(sections)
    for axis in range(1, turn):
        for pair in range(axis, min(len(axes), sections[axis] * turn), turn):
            axes[pair] = axis
    return tuple(axes)


_ORDERS = {"consecutive": chunked, "interleaved": interleaved, "strided": _strided}
