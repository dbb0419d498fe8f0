"""The smallest change of a config, or of a GGUF file, for each scaling that runtimes of the model's family support."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from clockhands.auditing.findings import filled
from clockhands.auditing.findings._parts import Audited, Part, in_a_file, rotary_parts
from clockhands.auditing.findings._releases import extendable_release
from clockhands.configs.gguf_fields import ARCHITECTURE, FREQUENCIES
from clockhands.configs.model_types import layer_labels
from clockhands.configs.opened import Opened
from clockhands.configs.params_fields import is_params
from clockhands.configs.resolved import TEXT, Code, Resolved
from clockhands.configs.rope_blocks import NEW, OLD, rope_blocks
from clockhands.encodings.scaling import yarn_magnitude
from clockhands.formats.files import file_and_key
from clockhands.recognition.faults import rows_in

KEYS = "gguf"
"""The shape of a change that sets keys of a GGUF file; `OLD` and `NEW` are those of configs."""

SHAPES: Mapping[str, str] = {
    OLD: "the old config format, for Transformers 4 and runtimes of that age; Transformers 5 reads it too",
    NEW: "the new config format, for Transformers 5; older runtimes ignore it",
    KEYS: "keys of the GGUF file, as llama.cpp reads them",
}

# Scalings for which a block can be written, in the order of the report.
_MADE = ("linear", "dynamic", "yarn", "llama3")
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}  # those of Llama 3.1


@cache
def _sentences() -> Mapping[str, Mapping[str, str]]:
    return rows_in("clockhands.auditing", "extending")


def said(row: str, /, **values: Any) -> str:
    """A sentence of `extending.toml`, with the values in it."""
    return filled(_sentences()[row]["says"], lambda key, *_: values[key])


Change = tuple[str, dict[str, dict[str, Any]], dict[str, tuple[str, ...]]]
"""A scaling, the keys to be set in each shape, and the findings that an audit of the change still has."""


def of_gguf(opened: Opened, resolved: Resolved, code: Code, length: int) -> tuple[list[Change], list[str]]:
    """The changes of a GGUF file's keys, and the reasons why others are not possible."""
    context, config = resolved.context or 0, opened.config or {}
    name = config.get(ARCHITECTURE)
    kind = (code.scaling or {}).get("type")
    if FREQUENCIES in opened.tensors:
        return [], [said("in-a-tensor", tensor=FREQUENCIES)]
    if kind not in (None, "linear", "yarn"):
        return [], [said("no-key", kind=kind)]
    made: list[Change] = []
    for scaling in ("linear", "yarn") if kind is None else (kind,):
        original = (code.scaling or {}).get("original") or context
        factor = float((code.scaling or {}).get("factor") or 1.0) * length / max(context, code.scaled_to or 0)
        if scaling == "yarn":
            factor = length / original
        values: dict[str, Any] = {"rope.scaling.type": scaling, "rope.scaling.factor": factor, "context_length": length}
        if scaling == "yarn":
            values["rope.scaling.original_context_length"] = original
        made.append((scaling, {KEYS: {f"{name}.{key}": value for key, value in values.items()}}, {}))
    return made, [said("no-keys")]


def of_config(opened: Opened, resolved: Resolved, code: Code, length: int) -> tuple[list[Change], list[str]]:
    """The changes of a config, and the reasons why others are not possible.

    Args:
        opened: The target.
        resolved: Its resolved position codes.
        code: The code of the layers that see all positions.
        length: The length at which the model will be served.
    """
    if is_params(opened.config or {}):
        return [], [said("params")]
    if opened.form == "dialect":
        return [], [said("dialect")]
    part = next((part for part in rotary_parts(Audited(opened, resolved)) if part.section.part in TEXT), None)
    if part is None or part.known is None or part.row is None:
        return [], [said("unknown-type")]
    if not part.known.reads.get("blocks"):
        return [], [said("no-blocks", name=part.known.name, library=part.known.library, length=length)]
    allowed = part.row.scalings or (*_MADE, "longrope")
    kind = (code.scaling or {}).get("type")
    without = [said("longrope")] if "longrope" in allowed else []
    if kind is not None:
        if kind not in (*_MADE, "proportional"):
            return [], without
        without.append(said("one-scaling", kind=kind))
        factor, context = (code.scaling or {}).get("factor"), resolved.context
        original = (code.scaling or {}).get("original")
        if kind == "linear" and not original and context and isinstance(factor, int | float) and factor > 1:
            which = "may-count-factor" if length <= factor * context else "counts-factor"
            numbers = {"instead": length / context, "reach": round(factor * context)}
            without.append(said(which, context=context, factor=factor, length=length, **numbers))
    names = [kind] if kind is not None else [name for name in _MADE if name in allowed]
    made = [_Writer(part, opened, resolved, code, length).change(name) for name in names]
    if not made and not without:
        without.append(said("no-scaling", name=part.known.name, scalings=", ".join(_MADE)))
    return made, without


@dataclass(frozen=True)
class _Writer:
    """Writes the change of a config for one length."""

    part: Part
    opened: Opened
    resolved: Resolved
    code: Code
    length: int

    def change(self, scaling: str) -> Change:
        """The values to set in each shape that the class reads, and the findings that remain afterwards."""
        values, warns = {}, {}
        assert self.part.known is not None
        # The old shape cannot express what the new one declares for each kind of layer.
        full_alone = self.part.row is not None and tuple(self.part.row.scaled) == ("full",)
        loses = any(block.kind is not None for block in self.part.blocks()) and not full_alone
        for shape in self.part.known.reads["blocks"]:
            if shape in (OLD, NEW) and not (shape == OLD and loses):
                values[shape] = self._shaped(shape, scaling)
                warns[shape] = (*(("new-shape-only",) if shape == NEW else ()), *_STAY.get(scaling, ()))
        return scaling, values, warns

    def _shaped(self, shape: str, scaling: str) -> dict[str, Any]:
        path, other = self.part.section.path, OLD if shape == NEW else NEW
        held = self._held()
        block = {key: value for key, value in held.items() if key not in ("type", "rope_type", "rope_theta")}
        block = {"rope_type": scaling, **block, **self._numbers(scaling, held)}
        values: dict[str, Any] = {}
        nested = self.part.row is not None and self.part.row.nested
        if shape == NEW:
            block["rope_theta"] = self.code.base
            values[f"{path}{NEW}"] = self._by_kind(block) if nested else block
        else:
            share = block.pop("partial_rotary_factor", None)
            values[f"{path}{OLD}"] = {"type": scaling, **block}
            values |= {} if share is None else {f"{path}partial_rotary_factor": share}
            values |= self._bases(path)
        if scaling != "dynamic":
            values[self._context_key()] = self.length
        if self.part.section.values.get(other) is not None:
            values[f"{path}{other}"] = None
        return values

    def _held(self) -> Mapping[str, Any]:
        """The existing block of the layers that see all positions."""
        blocks = list(self.part.blocks())
        whole = [block for block in blocks if block.kind in (None, "full")]
        held = next((block.values for block in (*whole, *blocks)), {})
        row = self.part.row
        if row is None or "mrope_section" in held or not row.section_sizes:
            return held
        # The class has default sections if the file has no block; a new block must repeat them to keep them.
        return {**held, "mrope_section": list(row.section_sizes)}

    def _by_kind(self, block: dict[str, Any]) -> dict[str, Any]:
        """A block for each kind of layer; only the layers that see all positions change."""
        blocks = rope_blocks(self.part.section.values, keys=[NEW])
        inner = {block.label: block.values for block in blocks if block.label}
        assert self.part.row is not None
        usual = self.part.row.labels.get("full") or ("full_attention",)
        full = next((label for label in (*usual, *layer_labels()["full"]) if label in inner), usual[0])
        others = {key: held for key, held in inner.items() if key != full}
        if not inner:
            near = self._near()
            if near is not None:
                label = (self.part.row.labels.get("sliding") or ("sliding_attention",))[0]
                others[label] = {"rope_type": "default", "rope_theta": near.base}
        return {full: block, **others}

    def _near(self) -> Code | None:
        """The code of the layers with a sliding window."""
        return next((code for code in self.resolved.codes if code.window is not None and code.kind == "rotary"), None)

    def _bases(self, path: str) -> dict[str, Any]:
        """The bases at the top level, where the old shape has them, if they are inside a block now."""
        assert self.part.known is not None
        reads = self.part.known.reads
        values: dict[str, Any] = {}
        if reads.get("base") and not self.part.fields.declares("base"):
            values[f"{path}{reads['base'][0]}"] = self.code.base
        local = (self.part.row.bases if self.part.row else {}).get("sliding")
        near = self._near()
        if local and near is not None and reads.get(local) and not self.part.fields.declares(local):
            values[f"{path}{reads[local][0]}"] = near.base
        return values

    def _context_key(self) -> str:
        place = self.resolved.source.get("context", "")
        if in_a_file(place.split(" ")[0]):
            return file_and_key(place.split(" ")[0])[1]
        assert self.part.known is not None
        return f"{self.part.section.path}{self.part.known.reads['context'][0]}"

    def _trained(self, scaling: str) -> int | None:
        """The length that the documented YaRN extension of the model's release starts from."""
        release = extendable_release(Audited(self.opened, self.resolved)) if scaling == "yarn" else None
        return None if release is None else release.trained

    def _numbers(self, scaling: str, held: Mapping[str, Any]) -> dict[str, Any]:
        """The numbers of a scaling, from the trained length to the requested one."""
        context, now = self.resolved.context or self.length, self.code.scaling or {}
        before = float(now.get("factor") or 1.0)
        original = now.get("original") or self._trained(scaling) or context
        reached = max(context, self.code.scaled_to or 0)
        if scaling in ("linear", "proportional"):
            return {"factor": before * self.length / reached}
        if scaling == "dynamic":
            return {"factor": self.length / original}
        if scaling == "llama3":
            numbers = {key: held.get(key, usual) for key, usual in _LLAMA3.items()}
            return {"factor": before * self.length / reached, **numbers, "original_max_position_embeddings": original}
        factor = self.length / original
        numbers = {"factor": factor, "original_max_position_embeddings": original}
        said = held.get("attention_factor")
        if isinstance(said, int | float) and math.isclose(said, yarn_magnitude(before), rel_tol=1e-3):
            numbers["attention_factor"] = yarn_magnitude(factor)
        return numbers


# Findings that an audit of the changed config still has: whether a length includes its factor is read in two ways.
_STAY: Mapping[str, tuple[str, ...]] = {
    "dynamic": ("length-times-factor",),
    "linear": ("length-times-factor",),
}
