"""What the position codes of a target can and cannot do: each with its own numbers, at a length and in a dtype."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import IO, Any

from clockhands.additive import Learned
from clockhands.arguments import count
from clockhands.auditing._held_numbers import HeldCode, held_array, held_by, in_step
from clockhands.auditing.findings import json_value
from clockhands.auditing.findings._table_rows import audit_tables
from clockhands.dtypes import output_dtype
from clockhands.errors import ClockhandsError, Unreadable
from clockhands.measures import Properties, properties
from clockhands.sources.files import file_and_key
from clockhands.sources.opened import Opened
from clockhands.sources.resolve import code_of, resolve
from clockhands.sources.resolved import Code
from clockhands.sources.targets import open_target
from clockhands.specs import describe, to_dict

WITHOUT_CONTEXT = 2_048
"""Tokens that a code is measured over where nothing says how many it serves."""

MOST = 8_192
MOST_LEARNED = 4_096
"""Tokens that are measured unless more are asked for: a report shall take seconds. All pairs of learned rows count."""


@dataclass(frozen=True)
class CodeProperties:
    """One position code of a target and what it can do.

    Attributes:
        code: The code as it was read.
        spec: The spec; None where too little is known. One of several axes is measured as text meets it, where all
            coordinates of a token are equal.
        length: Tokens that it was measured over, and ``dtype`` what its numbers were rounded to.
        properties: What was measured; None without a spec.
        notes: What was assumed, which numbers are not there, and where the length comes from.
        why: Why nothing was measured.
    """

    code: Code
    spec: Any
    length: int | None
    dtype: str
    properties: Properties | None
    notes: tuple[str, ...] = ()
    why: str | None = None

    @property
    def says(self) -> str:
        """The code in words."""
        if self.spec is not None:
            return describe(self.spec)
        return "no position encoding" if self.code.kind == "none" else self.code.kind or "a code that is not recognised"

    def to_dict(self) -> dict[str, Any]:
        """One element of ``codes`` in the JSON of `clockhands properties`."""
        found = self.properties
        return {
            "part": self.code.part,
            "layers": self.code.layers,
            "says": self.says,
            "spec": None if self.spec is None else to_dict(self.spec),
            "usable_length": self.code.usable_length,
            "window": self.code.window,
            "length": self.length,
            "dtype": self.dtype,
            "notes": list(self.notes),
            "why": self.why,
            "properties": None if found is None else {name: json_value(each.to_dict()) for name, each in found},
        }


@dataclass(frozen=True)
class TargetProperties:
    """What all position codes of a target can do.

    Attributes:
        target: As the caller wrote it.
        codes: The codes, one for each group of layers that share one.
        notes: What was decided on the way that another reader might have decided otherwise.
    """

    target: str
    codes: tuple[CodeProperties, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {"target": self.target, "notes": list(self.notes), "codes": [code.to_dict() for code in self.codes]}


def target_properties(
    target: str | os.PathLike[str],
    length: int | None = None,
    dtype: str = "float32",
    *,
    stdin: IO[bytes] | None = None,
) -> TargetProperties:
    """What the position codes of a preset, a config, a file of weights or a bare array can and cannot do.

    Learned numbers are read from the weights where the target has them. Without a length each code is measured over
    the positions that it serves, at most 8,192 of them (4,096 of a learned table), and 2,048 where nothing says how
    many; a layer that sees a window alone, over its window.

    Args:
        target: What to measure, as `clockhands.audit` takes it.
        length: Tokens to measure over; None chooses by the target.
        dtype: What the numbers are rounded to.
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


def usual_length(code: Code, spec: Any) -> tuple[int, str | None]:
    """How many tokens a code is measured over unless it is said, and the sentence to say where it is not all of them.

    >>> usual_length(Code("text", "0-3", "rotary", usable_length=131072), None)
    (8192, 'Measured over the first 8,192 of 131,072 positions; --length 131072 measures all.')
    """
    served = spec.usable if isinstance(spec, Learned) else code.usable_length
    if code.farthest is not None and (served is None or code.farthest < served):
        # A query meets no distance beyond, so that whatever holds at one means nothing for the model.
        seen = min(code.farthest, MOST)
        return seen, f"A query here attends only to {code.seen}: measured over {seen:,}."
    most = MOST_LEARNED if isinstance(spec, Learned) else MOST
    if served is None:
        # A preset is a convention, of which no context is expected.
        return (
            WITHOUT_CONTEXT,
            None
            if code.bare or not code.source
            else f"No context is declared: measured over {WITHOUT_CONTEXT:,} tokens.",
        )
    if served <= most:
        return served, None
    return most, f"Measured over the first {most:,} of {served:,} positions; --length {served} measures all."


def held_codes(opened: Opened, length: int | None = None) -> Iterator[tuple[Code, HeldCode]]:
    """Each code of a target with what is known of it, its learned numbers among it."""
    if opened.form == "array":
        for info in opened.tensors.values():
            held = held_array(info)
            yield replace(code_of(held.spec, None, None), part="other", usable_length=held.length), held
        return
    resolved = resolve(opened, length)
    if opened.config is None and opened.spec is None:
        resolved, _ = audit_tables(opened, resolved)  # weights alone do not say what their tables are
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
    """The error for a target without any position code that could be measured."""
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
