"""The input of checks: a target as it was read, and the rotary parts of its config."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from clockhands.auditing.findings._rules import Case
from clockhands.configs.fields import Fields
from clockhands.configs.model_types import CodeOfType, ModelType, table
from clockhands.configs.resolve import type_of
from clockhands.configs.resolved import LayerEncoding, Resolved
from clockhands.configs.rope_blocks import RopeBlock, rope_blocks
from clockhands.configs.section_fields import Section, model_in, sections
from clockhands.configs.targets import Opened
from clockhands.formats.files import file_and_key
from clockhands.runtimes import FileReadings, Reading
from clockhands.runtimes.releases import RuntimeRelease


@dataclass(frozen=True)
class AuditSubject:
    """The input of a check.

    Attributes:
        opened: The target: its config, the documents beside it, the headers of its tensors.
        resolved: The position codes resolved from them.
        runtime: The runtime that the caller named; None if none was named.
    """

    opened: Opened
    resolved: Resolved
    runtime: RuntimeRelease | None = None

    @cached_property
    def runtimes(self) -> FileReadings:
        """How runtimes and patterns of misreading read the target, found when it is asked for."""
        return FileReadings(self.opened, self.resolved, self.resolved.length)

    @cached_property
    def rotary_parts(self) -> tuple["Part", ...]:
        """The parts of the config that are rotary by their type or their own fields; none for other forms of files."""
        return tuple(_rotary_parts(self.opened))

    @property
    def readings(self) -> tuple[Reading, ...]:
        """How the programs read it, and a port without the scaling."""
        return self.runtimes.shown()


Check = Callable[[AuditSubject], Iterator[Case]]

_CHECKS: list[tuple[Check, str | None, tuple[str, ...]]] = []


def check(function: Check) -> Check:
    """Decorator: register a function that looks for more than a reader of files notices, for every audit to call."""
    _CHECKS.append((function, None, ()))
    return function


def check_of(*has: str, form: str = "") -> Callable[[Check], Check]:
    """Decorator: as `check`, for targets of a form, and for those that have one of these fields of `Opened`."""

    def registered(function: Check) -> Check:
        _CHECKS.append((function, form, has))
        return function

    return registered


def cases_of_checks(subject: AuditSubject) -> Iterator[Case]:
    """Every case that the checks of such targets see, in the order in which they were registered."""
    opened = subject.opened
    for look, form, has in _CHECKS:
        if form is None or opened.form == form or any(getattr(opened, field) for field in has):
            yield from look(subject)


def declared(holder: LayerEncoding | Resolved, *fields: str) -> dict[str, Any]:
    """The values of some fields by their sources, for those that are in a file."""
    stated = {}
    for field in fields:
        place, value = holder.source.get(field), getattr(holder, field)
        if place and value is not None and in_a_file(place):
            stated[place] = value
    return stated


def main_code(codes: Iterable[LayerEncoding]) -> LayerEncoding | None:
    """Of several codes that of the full-attention layers, which every runtime has; else the first."""
    found = list(codes)
    return next((code for code in found if code.window is None), next(iter(found), None))


def places(holder: LayerEncoding | Resolved, field: str) -> list[str]:
    """The sources of a field that are in files."""
    return [place for place in holder.source.get(field, "").split(", ") if in_a_file(place)]


def first_place(holder: LayerEncoding | Resolved, field: str, value: Any) -> dict[str, Any]:
    """A value by the first source of a field; empty if that is not in a file."""
    place = holder.source.get(field, "").split(", ")[0]
    return {place: value} if in_a_file(place) else {}


def in_a_file(place: str) -> bool:
    """Whether a source is `file:key`, and not a text about an architecture or a default.

    For a loaded module, ``config`` and ``model`` take the place of files.

    >>> in_a_file("config.json:rope_theta"), in_a_file("architecture: llama")
    (True, False)
    """
    name, key = file_and_key(place)
    named = name in ("<stdin>", "config", "model", "Modelfile") or "." in name
    return bool(key) and " " not in key and named


@dataclass(frozen=True)
class Part:
    """One part of a config.

    Attributes:
        section: The object that describes it.
        fields: Its quantities, with the defaults of its type. Problems with them were noted when it was resolved.
        known: Its type, or None for one that is not in the table.
        row: The rotary code of that type; None for an unknown type.
        name: The name of the type.
    """

    section: Section
    fields: Fields
    known: ModelType | None
    row: CodeOfType | None
    name: str | None

    def blocks(self) -> Iterator[RopeBlock]:
        """The RoPE blocks of the part, flat ones and those for one kind of layer."""
        return rope_blocks(self.section.values, self.fields.source(""), row=self.row)


def _rotary_parts(opened: Opened) -> Iterator[Part]:
    if opened.form in ("gguf", "dialect") or not isinstance(opened.config, Mapping):
        return
    file = opened.config_name or "config.json"
    top = _text(model_in(opened.config)[1].get("model_type"))
    for section in sections(opened.config):
        name = _text(section.values.get("model_type"))
        known = type_of(section, name, top)
        row = None if known is None else next((row for row in known.rows if row.kind == "rotary"), None)
        if known is not None and row is None:
            continue
        spellings: Mapping[str, Sequence[str]] = known.reads if known is not None else table()["spellings"]["config"]
        fields = Fields(
            section.values,
            file,
            spellings,
            [],
            path=section.path,
            defaults=known.defaults if known is not None else {},
            default_source=known.default_source if known is not None else "",
        )
        yield Part(section, fields, known, row, known.name if known is not None else name or top)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
