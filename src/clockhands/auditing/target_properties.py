"""Measures all properties of the position codes of a target, at a length and in a dtype."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import IO, Any

from clockhands.arguments import count
from clockhands.auditing._held_numbers import HeldCode, held_array, held_by, in_step
from clockhands.auditing.findings import as_json, json_value
from clockhands.auditing.findings._table_rows import audit_tables
from clockhands.auditing.main_properties import WITHOUT_CONTEXT
from clockhands.configs.opened import Opened
from clockhands.configs.resolve import code_of, resolve
from clockhands.configs.resolved import LayerEncoding
from clockhands.configs.targets import open_target
from clockhands.encodings.additive import Learned
from clockhands.encodings.dtypes import output_dtype
from clockhands.encodings.specs import describe
from clockhands.errors import ClockhandsError, Unreadable
from clockhands.formats.files import file_and_key
from clockhands.measures import Properties, properties

MOST = 8_192
MOST_LEARNED = 4_096
MOST_NUMBERS = 2**24
"""Tokens, and numbers of learned rows, that are measured unless more are asked for: a report shall take seconds and
little memory. All pairs of learned rows count."""


@dataclass(frozen=True)
class CodeProperties:
    """One position code of a target and its properties.

    Attributes:
        code: The code as read from the target.
        spec: The spec; None where too little is known. A spec of several axes is measured as for text, where all
            coordinates of a token are equal.
        length: Tokens that it was measured over, and ``dtype`` what its numbers were rounded to.
        properties: What was measured; None without a spec.
        notes: What was assumed, which numbers are missing, and where the length comes from.
        why: Why nothing was measured.
        sampled: What the numbers are, where they were sampled and the spec only holds them; else "".
    """

    code: LayerEncoding
    spec: Any
    length: int | None
    dtype: str
    properties: Properties | None
    notes: tuple[str, ...] = ()
    why: str | None = None
    sampled: str = ""

    @property
    def says(self) -> str:
        """The code as text."""
        if self.sampled:
            return self.sampled
        if self.spec is not None:
            return describe(self.spec)
        return "no position encoding" if self.code.kind == "none" else self.code.kind or "a code that is not recognised"

    def to_dict(self) -> dict[str, Any]:
        """One element of ``codes`` in the JSON of `clockhands properties`."""
        return {
            **as_json(self.code, "part", "layers"),
            **as_json(self, "says", *([] if self.sampled else ["spec"])),
            **as_json(self.code, "usable_length", "window"),
            **as_json(self, "length", "dtype", "notes", "why"),
            "properties": None if self.properties is None else json_value(dict(self.properties)),
        }


@dataclass(frozen=True)
class TargetProperties:
    """The properties of all position codes of a target.

    Attributes:
        target: As the caller wrote it.
        codes: The codes, one for each group of layers that share one.
        notes: Choices made while reading that another program might make differently.
    """

    target: str
    codes: tuple[CodeProperties, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return as_json(self, "target", "notes", "codes")


def target_properties(
    target: str | os.PathLike[str],
    length: int | None = None,
    dtype: str = "float32",
    *,
    stdin: IO[bytes] | None = None,
) -> TargetProperties:
    """Measure the properties of the position codes of a preset, a config, a file of weights or a bare array.

    Learned numbers are read from the weights if the target has them. Without a length, each code is measured over the
    positions that it serves, at most 8,192 (4,096 for a learned table), or 2,048 if their number is not known; a layer
    with a window is measured over its window.

    Args:
        target: What to measure, as `clockhands.audit` takes it.
        length: Tokens to measure over; None chooses as described above.
        dtype: The dtype to which the numbers are rounded.
        stdin: Where `-` is read from; None is the process's own standard input.

    Raises:
        Unreadable: The target cannot be read, or holds no position code that could be measured.
        InvalidValue: The length is below 1 or beyond a learned table that is the only code, or the dtype does not
            exist.
    """
    asked = None if length is None else count("length", length)
    name = output_dtype(dtype).name
    opened = open_target(target, stdin)
    measured: dict[Any, Properties] = {}
    found: list[CodeProperties] = []
    refused: list[ClockhandsError] = []
    for code, held in held_codes(opened, asked):
        one = CodeProperties(code, held.spec, None, name, None, held.notes, held.why)
        if held.spec is not None:
            try:
                one = _measured(one, held.values, asked, measured)
            except ClockhandsError as error:
                refused.append(error)
                one = replace(one, why=f"{error.message} {error.hint}")
        found.append(one)
    if not any(one.properties is not None for one in found):
        raise refused[0] if refused else _nothing_to_measure(opened, found)
    return TargetProperties(opened.target, tuple(found), tuple(opened.notes))


def usual_length(code: LayerEncoding, spec: Any) -> tuple[int, str | None]:
    """The default number of tokens over which a code is measured, and a sentence if that is not all of them.

    >>> usual_length(LayerEncoding("text", "0-3", "rotary", usable_length=131072), None)
    (8192, 'Measured over the first 8,192 of 131,072 positions; --length 131072 measures all.')

    Of a learned table at most 16 million values are measured:

    >>> code = LayerEncoding("text", None, "learned")
    >>> [usual_length(code, Learned(width, rows=8192))[0] for width in (768, 4096, 65536)]
    [4096, 4096, 256]
    """
    served = spec.usable if isinstance(spec, Learned) else code.usable_length
    if code.farthest is not None and (served is None or code.farthest < served):
        # A query sees no greater distance, so properties beyond it mean nothing for the model.
        seen = min(code.farthest, MOST)
        return seen, f"A query here attends only to {code.seen}: measured over {seen:,}."
    most = min(MOST_LEARNED, max(2, MOST_NUMBERS // spec.width)) if isinstance(spec, Learned) else MOST
    if served is None:
        # A preset is a convention, without an expected context.
        return (
            WITHOUT_CONTEXT,
            None
            if code.bare or not code.source
            else f"No context is declared: measured over {WITHOUT_CONTEXT:,} tokens.",
        )
    if served <= most:
        return served, None
    return most, f"Measured over the first {most:,} of {served:,} positions; --length {served} measures all."


def held_codes(opened: Opened, length: int | None = None) -> Iterator[tuple[LayerEncoding, HeldCode]]:
    """Each code of a target with what is known about it, including its learned numbers."""
    if opened.form == "array":
        for info in opened.tensors.values():
            held = held_array(info)
            yield replace(code_of(held.spec, None, None), part="other", usable_length=held.length), held
        return
    resolved = resolve(opened, length)
    if opened.config is None and opened.spec is None:
        resolved, _ = audit_tables(opened, resolved)  # weights alone do not show what their tables are
    for code in resolved.codes:
        name = file_and_key(code.source.get("rows", ""))[1]
        if code.spec is None and code.kind is None and name in opened.tensors:
            held = held_array(opened.tensors[name])
            yield replace(code_of(held.spec, code.layers, None), part=code.part, usable_length=held.length), held
        else:
            yield code, held_by(opened, code)


def _measured(one: CodeProperties, values: Any, asked: int | None, known: dict[Any, Properties]) -> CodeProperties:
    """The code with its properties; layers that share a spec without learned numbers share them."""
    length, note = (asked, None) if asked is not None else usual_length(one.code, one.spec)
    spec = in_step(one.code, one.spec)
    key = (spec, length) if values is None else None
    found = known.get(key) if key is not None else None
    if found is None:
        found = properties(spec, length, one.dtype, values=values)
        if key is not None:
            known[key] = found
    step = None if spec is one.spec else "Measured as text meets it: the positions of all axes advance together."
    return replace(one, length=length, properties=found, notes=(*one.notes, *filter(None, (note, step))))


def _nothing_to_measure(opened: Opened, found: list[CodeProperties]) -> Unreadable:
    """The error for a target without a position code that can be measured."""
    if found and all(one.code.kind == "none" for one in found):
        return Unreadable(
            f"{opened.target} declares no position encoding, so there is nothing to measure.",
            "`clockhands order` shows what attention does without one.",
        )
    why = " ".join(dict.fromkeys(one.why for one in found if one.why)) or "The files do not say which encoding it is."
    return Unreadable(
        f"{opened.target} has no position encoding that can be measured. {why}",
        "`clockhands audit` shows what was read. To measure any other encoding, give a preset with fields.",
    )
