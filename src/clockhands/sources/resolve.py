"""From an opened target to its position codes, with a source for every value.

The way is the same for every model: find the parts, look their types up in the table, read the quantities that the type
reads, make specs of them. A type that is not in the table is read by its fields alone; what follows from a type only
(how channels pair) is then unknown.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clockhands.ladders import Geometric
from clockhands.rotary import Rotary
from clockhands.sources.fields import Fields, Found
from clockhands.sources.gguf_fields import ARCHITECTURE, gguf_codes
from clockhands.sources.model_types import ModelType, Row, model_type, table
from clockhands.sources.resolved import Code, Fact, Resolved
from clockhands.sources.rotary_fields import Reader
from clockhands.sources.section_fields import Section, declared_kinds, ignored_keys, outer_keys, part_of, sections
from clockhands.sources.table_fields import bias_codes, table_code
from clockhands.sources.targets import Opened
from clockhands.sources.weights import tensor_codes

__all__ = ["Code", "Fact", "Resolved", "resolve"]


def resolve(opened: Opened, length: int | None = None) -> Resolved:
    """Everything that a target says about position.

    Args:
        opened: A target with its headers read.
        length: Tokens at which the rates shall hold; None is the length of the original training.
    """
    if opened.form == "preset":
        return _of_spec(opened, length)
    if opened.form == "gguf":
        return _of_gguf(opened, length)
    if opened.config is not None:
        return _of_config(opened, opened.config, length)
    facts: list[Fact] = []
    codes = tensor_codes(opened, facts)
    usable = next((code.rows for code in codes if code.rows is not None and code.offset is not None), None)
    return Resolved(None, usable, length, codes, tuple(facts))


def _of_config(opened: Opened, config: Mapping[str, Any], length: int | None) -> Resolved:
    facts: list[Fact] = []
    file = opened.config_name or "config.json"
    name = _name(config, file, "", facts)
    for key in opened.duplicates:
        facts.append(Fact("duplicate-key", {f"{file}:{key}": "given more than once", "used": "the last value"}))
    codes: list[Code] = []
    declared: list[tuple[str, Found[int] | None, int | None]] = []
    for section in sections(config):
        made, context = _section(opened, section, file, name, facts, length)
        codes += [code for code, _ in made]
        original = next((original for _, original in made if original is not None), None)
        declared.append((made[0][0].part if made else section.part, context, original))
    context, original = _main(declared)
    source = {"model_type": f"{file}:model_type"} if name is not None else {}
    if context is not None:
        source["context"] = context.source
    at = length or original or (None if context is None else context.value)
    return Resolved(name, None if context is None else context.value, at, tuple(codes), tuple(facts), source)


def _main(declared: list[tuple[str, Found[int] | None, int | None]]) -> tuple[Found[int] | None, int | None]:
    """Context and original length of the part that people mean: what reads or writes text."""
    for part in ("text", "decoder", "encoder", "audio", "vision", "other"):
        for other, context, original in declared:
            if other == part and (context is not None or original is not None):
                return context, original
    return None, None


def _section(
    opened: Opened, section: Section, file: str, top: str | None, facts: list[Fact], length: int | None
) -> tuple[list[tuple[Code, int | None]], Found[int] | None]:
    name = _name(section.values, file, section.path, facts)
    known = _known(section, name, top)
    if known is None:
        return _by_fields(section, file, name, facts, length)
    fields = Fields(
        section.values,
        file,
        known.reads,
        facts,
        path=section.path,
        defaults=known.defaults,
        default_source=known.default_source,
    )
    outer_keys(section, fields)
    made: list[tuple[Code, int | None]] = []
    usable: int | None = None
    context = fields.whole("context")
    for row in known.rows:
        own = row if row.part != "text" or section.part == "text" else replace(row, part=section.part)
        if own.kind == "rotary":
            made += Reader(fields, known, own, own.part, length).codes()
        elif own.kind in ("learned", "sinusoidal"):
            code, positions = table_code(fields, known, own, opened.tensors)
            made.append((code, None))
            if own.rows == "context":
                usable = positions
                context = _usable(context, usable, code)
        else:
            made += [(code, None) for code in bias_codes(fields, own.kind or "none", known.architecture_source)]
    ignored_keys(fields, known)
    if context is not None and context.source == known.default_source:
        of = f"{known.name} ({known.library})"
        evidence = {"field": known.reads["context"][0], "used": context.value, "default of": of, "documented": True}
        fields.note("default-value", evidence)
    return made, context


def _usable(context: Found[int] | None, usable: int | None, code: Code) -> Found[int] | None:
    """Positions, not rows: a table may begin with rows that no token gets."""
    if context is None:
        return None
    return Found(usable, code.source.get("context", context.source))


def _by_fields(
    section: Section, file: str, name: str | None, facts: list[Fact], length: int | None
) -> tuple[list[tuple[Code, int | None]], Found[int] | None]:
    """The codes of a type that the table does not hold."""
    fields = Fields(section.values, file, table()["spellings"]["config"], facts, path=section.path)
    fields.note("unknown-model-type", {fields.source("model_type"): name})
    part = part_of(section, name)
    made: list[tuple[Code, int | None]] = []
    for kind in declared_kinds(fields):
        if kind.value == "rotary" and part == "text":
            made += Reader(fields, None, None, part, length).codes()
        elif kind.value == "rotary":
            # Images and sound have axes of their own, which no common key describes: a ladder would be a guess.
            made += [(_without_rates(fields, part, kind.source), None)]
        elif kind.value in ("learned", "sinusoidal"):
            made.append((Code(part, "input", kind.value, source={"kind": kind.source}), None))
        elif kind.value is not None:
            made += [(_in_part(code, part), None) for code in bias_codes(fields, kind.value, kind.source)]
    if not made:
        made = [(_in_part(code, part), None) for code in bias_codes(fields, "", "")]
        made = [(replace(code, kind=None, source=_without_kind(code)), None) for code, _ in made]
    return made, fields.whole("context")


def _without_rates(fields: Fields, part: str, because: str) -> Code:
    made = Reader(fields, None, None, part, None).codes()[0][0]
    source = {name: where for name, where in made.source.items() if name not in ("layout", "scaling")}
    code = replace(made, spec=None, rates=None, attention_factor=None, layout=None, scaling=None)
    return replace(code, source={**source, "kind": because})


def _in_part(code: Code, part: str) -> Code:
    return code if part == "text" else replace(code, part=part)


def _without_kind(code: Code) -> dict[str, str]:
    return {name: where for name, where in code.source.items() if name != "kind"}


def _known(section: Section, name: str | None, top: str | None) -> ModelType | None:
    """The row for a section: by its own type, else by what the type around it has in that place."""
    if name is not None and section.path:
        return model_type(name)
    around = model_type(top) if top is not None else None
    if not section.path:
        return around
    inner = around.sections.get(section.part) if around is not None else None
    return model_type(inner) if inner is not None else None


def _name(values: Mapping[str, Any], file: str, path: str, facts: list[Fact]) -> str | None:
    name = values.get("model_type")
    if name is None or isinstance(name, str):
        return name
    fact = Fact("unreadable-field", {f"{file}:{path}model_type": str(name)[:200], "expected": "a text"})
    if fact not in facts:
        facts.append(fact)
    return None


def _of_gguf(opened: Opened, length: int | None) -> Resolved:
    facts: list[Fact] = []
    made, context = gguf_codes(opened, facts, length)
    name = (opened.config or {}).get(ARCHITECTURE)
    name = name if isinstance(name, str) else None
    original = next((original for _, original in made if original is not None), None)
    source = {"model_type": f"{opened.config_name}:{ARCHITECTURE}"} if name is not None else {}
    if context is not None:
        source["context"] = context.source
    at = length or original or (None if context is None else context.value)
    codes = tuple(code for code, _ in made)
    return Resolved(name, None if context is None else context.value, at, codes, tuple(facts), source)


def _of_spec(opened: Opened, length: int | None) -> Resolved:
    """A preset is its own source."""
    spec, name = opened.spec, opened.target
    values = {key: getattr(spec, key, None) for key in ("layout", "base", "rates", "rows", "offset")}
    spacing = getattr(spec, "spacing", None)
    if values["base"] is None and isinstance(spacing, Geometric):
        values["base"] = spacing.base
    rotary = isinstance(spec, Rotary)
    width = spec.head_width if isinstance(spec, Rotary) else getattr(spec, "width", None)
    code = Code(
        "text",
        None if rotary else "input",
        _kind_of(spec),
        spec=spec,
        width=width,
        rotated=spec.rotated if isinstance(spec, Rotary) else None,
        attention_factor=spec.attention_factor if isinstance(spec, Rotary) else None,
        **values,
    )
    told = {key: f"preset {name}" for key in ("kind", "width", "rotated", "attention_factor", *values)}
    source = {key: where for key, where in told.items() if getattr(code, key) is not None}
    return Resolved(None, None, length, (replace(code, source=source),), ())


def _kind_of(spec: object) -> str | None:
    names = {"Rotary": "rotary", "Sinusoidal": "sinusoidal", "Learned": "learned", "NoPosition": "none"}
    return names.get(type(spec).__name__)
