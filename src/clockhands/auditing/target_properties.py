"""Measures the properties of the position codes of a target, at a length and in a dtype.

`target_properties` measures all. `main_properties` measures those that follow from a spec in a few milliseconds: an
audit opens many files, so nothing is measured for it that needs the rows of a table or takes longer with the length.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import IO, Any

from clockhands.arguments import count
from clockhands.auditing._held_numbers import HeldCode, held_array, held_by, in_step, spec_of
from clockhands.auditing.findings import as_json, json_value
from clockhands.auditing.findings._table_rows import audit_tables
from clockhands.configs.opened import Opened
from clockhands.configs.resolve import code_of, resolve
from clockhands.configs.resolved import SECOND, Code, Resolved
from clockhands.configs.targets import open_target
from clockhands.encodings.additive import Learned, WarpedPosition
from clockhands.encodings.dtypes import output_dtype
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.specs import SPECS, describe
from clockhands.errors import ClockhandsError, Unreadable
from clockhands.formats.files import file_and_key
from clockhands.measures import Properties, properties
from clockhands.measures.biases.apart import told_apart
from clockhands.measures.biases.edges import edges
from clockhands.measures.biases.reach import reach
from clockhands.measures.ladders.base_bound import base_bound, critical_dimension
from clockhands.measures.ladders.cover import cover
from clockhands.measures.ladders.precision import phase_error
from clockhands.measures.ladders.turning import turning
from clockhands.measures.property import Property, measured, not_computed
from clockhands.measures.subject import MeasuredCode, subject_of
from clockhands.measures.tokens.bounded import bounded
from clockhands.measures.tokens.smooth import smooth

WITHOUT_CONTEXT = 2_048
"""Tokens that a code is measured over where nothing says how many it serves."""

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
        """The code as text."""
        if self.spec is not None:
            return describe(self.spec)
        return "no position encoding" if self.code.kind == "none" else self.code.kind or "a code that is not recognised"

    def to_dict(self) -> dict[str, Any]:
        """One element of ``codes`` in the JSON of `clockhands properties`."""
        return {
            **as_json(self.code, "part", "layers"),
            **as_json(self, "says", "spec"),
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


def usual_length(code: Code, spec: Any) -> tuple[int, str | None]:
    """The default number of tokens over which a code is measured, and a sentence if that is not all of them.

    >>> usual_length(Code("text", "0-3", "rotary", usable_length=131072), None)
    (8192, 'Measured over the first 8,192 of 131,072 positions; --length 131072 measures all.')

    Of a learned table at most 16 million values are measured:

    >>> [usual_length(Code("text", None, "learned"), Learned(width, rows=8192))[0] for width in (768, 4096, 65536)]
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


def held_codes(opened: Opened, length: int | None = None) -> Iterator[tuple[Code, HeldCode]]:
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


# Of an audited model


def _bound_of_its_own(subject: MeasuredCode) -> Property:
    """The base bound of the code's own ladder; the audit has computed it, and other bases take too long here."""
    if subject.axes > 1 or getattr(subject.spec, "xpos", None) is not None:
        return not_computed("Distances of several axes, or of frequencies with a decay, take too long for an audit.")
    return base_bound(subject, search=False)


def _angles_at_the_end(subject: MeasuredCode) -> Property:
    """The angle errors at the last position; searching for the first large error takes too long here."""
    if not subject.ladders or isinstance(subject.spec, WarpedPosition):
        return not_computed("Its angles are not position x frequency.")
    last = subject.first + subject.length - 1
    errors: dict[str, Any] = {
        f"{dtype}_throughout": max(phase_error(ladder, last, dtype, "throughout") for ladder in subject.ladders)
        for dtype in ("float32", "bfloat16")
    }
    in_float32, in_bfloat16 = errors.values()
    return measured(
        f"{in_float32:.2g} rad off at {last:,}",
        "If frequencies, positions and their products are computed in float32, the angle of some pair is off by"
        f" {in_float32:.2g} rad at position {last:,}; in bfloat16 by {in_bfloat16:.2g} rad.",
        position=last,
        **errors,
    )


_MEASURES = {
    "bounded": bounded,
    "smooth": smooth,
    "turning": turning,
    "cover": cover,
    "critical_dimension": critical_dimension,
    "base_bound": _bound_of_its_own,
    "precision": _angles_at_the_end,
    "reach": reach,
    "edges": edges,
    "told_apart": told_apart,
}


@dataclass(frozen=True)
class MainProperties:
    """The main properties of one code.

    Attributes:
        part: The part of the model, and ``layers`` its layers, as in the code.
        length: The length in tokens for which they hold: that of the code, or 2,048 if none is declared.
        properties: The measured properties, by name; those that do not apply to the code are left out.
        notes: Remarks on the length.
    """

    part: str
    layers: str | None
    length: int
    properties: Mapping[str, Property] = field(hash=False)
    notes: tuple[str, ...] = ()

    @property
    def over(self) -> str:
        """The length as text, with its remarks."""
        return ", ".join((f"over {self.length:,} tokens", *self.notes))

    def to_dict(self) -> dict[str, Any]:
        """One element of ``properties`` in the JSON of an audit."""
        return as_json(self, "part", "layers", "length", "notes", "properties")


def main_properties(resolved: Resolved) -> tuple[MainProperties, ...]:
    """The main properties of all codes with a known spec or known frequencies, each over the length of the code."""
    found = (_of_code(code) for code in resolved.codes if code.part not in SECOND)
    return tuple(one for one in found if one is not None and one.properties)


def _of_code(code: Code) -> MainProperties | None:
    spec = spec_of(code)
    if not isinstance(spec, SPECS):
        return None
    length, notes = code.length or WITHOUT_CONTEXT, []
    if isinstance(spec, Rotary) and code.by_length and spec.scaling is not None:
        spec = replace(spec, length=length)
        notes.append("with the frequencies of that length")
    if code.length is None and code.part not in ("text", "other"):
        notes.append("as no length is declared")
    if code.sections is not None and not code.counts_apart:
        notes.append("all sections advancing together")
    try:
        subject = subject_of(in_step(code, spec), length, "float32", None)
    except ClockhandsError:
        return None  # a table shorter than the requested length: a finding reports it
    found = {name: measure(subject) for name, measure in _MEASURES.items()}
    measured_ones = {name: one for name, one in found.items() if one.state == "measured"}
    return MainProperties(code.part, code.layers, length, measured_ones, tuple(notes))
