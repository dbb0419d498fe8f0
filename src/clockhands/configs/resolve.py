"""Resolves an opened target to its position codes, with a source for every value.

The steps are the same for every model: find the parts, look up their types in the table, read the quantities that the
type reads, and make specs from them. A type that is not in the table is read by its fields alone; what follows only
from a type (the layout) is then unknown.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from clockhands.configs._code_fields import computed, differences, growing, kinds_in, other_keys, tables_in
from clockhands.configs._diffusers_fields import CLASS_KEY, diffusers_codes
from clockhands.configs._second_fields import for_further_tokens, in_own_layers
from clockhands.configs._table_fields import bias_codes, table_code
from clockhands.configs.composition import unread_parents
from clockhands.configs.dialects import InDialect, in_dialect
from clockhands.configs.fields import Fields, Sourced, shown, value_of
from clockhands.configs.gguf_fields import ARCHITECTURE, gguf_codes
from clockhands.configs.model_types import (
    CodeOfType,
    ModelType,
    by_class,
    by_listed_class,
    by_marks,
    by_remote_class,
    class_of_others,
    model_type,
    parts_of_class,
    remote_class,
)
from clockhands.configs.overriding import by_caller, overridden
from clockhands.configs.params_fields import is_params, params_codes
from clockhands.configs.resolved import Fact, LayerEncoding, Resolved
from clockhands.configs.rotary_fields import RotaryResolver
from clockhands.configs.section_fields import (
    Section,
    beside,
    declared_kinds,
    fields_of,
    foreign_sizes,
    ignored_keys,
    misspelt_keys,
    model_in,
    outer_keys,
    part_of,
    repeated_orders,
    sections,
    unread,
)
from clockhands.configs.targets import Opened
from clockhands.configs.value_kinds import check_values, parts_of_no_object
from clockhands.configs.weights import tensor_codes
from clockhands.encodings.biases import BiasCode
from clockhands.encodings.ladders import Geometric
from clockhands.encodings.mixtures import LayerMixture
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Scaling
from clockhands.formats.files import file_and_key

if TYPE_CHECKING:
    from clockhands.configs.key_reads import KeyRead
    from clockhands.configs.model_code.code_facts import CodeFacts

__all__ = ["Fact", "LayerEncoding", "Resolved", "resolve", "type_of"]

# Kinds of the specs that are added; naive codes belong to none of the known kinds.
KINDS = {
    "Sinusoidal": "sinusoidal",
    "AxialSinusoidal": "sinusoidal",
    "FourierFeatures": "sinusoidal",
    "Learned": "learned",
    "NoPosition": "none",
}
BIASES = {
    "Alibi": "alibi",
    "Buckets": "buckets",
    "CeilingBuckets": "relative",
    "Clipped": "relative",
    "LogWindow": "relative",
    "Window": "relative",
}

# Fields of a code that come from its spec.
KNOWN_OF_SPECS = (
    "kind", "layout", "width", "rotated", "base", "rates", "attention_factor", "scaling", "rows", "offset",
    "usable_length",
)  # fmt: skip


def resolve(opened: Opened, length: int | None = None, overrides: Mapping[str, Any] | None = None) -> Resolved:
    """Resolve everything that a target declares about positions.

    Args:
        opened: A target with its headers read.
        length: The length in tokens for which frequencies are computed; None means the original trained length.
        overrides: Values that replace those of the config, by key.

    Raises:
        InvalidValue: A value cannot be set in the named place.
        InvalidType: A config cannot hold a value.
    """
    opened = overridden(opened, overrides)
    resolved = _resolved(opened, length)
    unread = unread_parents(opened.config or {}) if opened.form in ("config", "dialect") else ()
    not_covered = (*resolved.not_covered, *(f"{name}, which the file takes values from" for name in unread))
    codes = tuple(code.explained() for code in resolved.codes)
    explained = replace(resolved, codes=codes, asked=length, not_covered=not_covered)
    return _stretched_from_the_context(by_caller(explained, opened), opened)


def _stretched_from_the_context(resolved: Resolved, opened: Opened) -> Resolved:
    """The codes, with the context as the original length of linear scalings, if it cannot include the factor.

    A linear scaling has no original length, and the context of the same config may include the factor or not. A context
    in another file than the scaling does not include it.
    """
    place = resolved.source.get("context", "")
    if resolved.context is None or opened.config is None or not place.startswith(f"{opened.config_name}:"):
        return resolved

    def stretched(code: LayerEncoding) -> LayerEncoding:
        scaling, where = code.scaling or {}, code.source.get("scaling", "")
        if scaling.get("type") != "linear" or scaling.get("original") is not None or not where:
            return code
        together = file_and_key(place)[0] in {file_and_key(each)[0] for each in where.split(", ")}
        return code if together else replace(code, scaling={**scaling, "original": resolved.context})

    return replace(resolved, codes=tuple(map(stretched, resolved.codes)))


def _resolved(opened: Opened, length: int | None) -> Resolved:
    if opened.form == "preset":
        return _of_spec(opened, length)
    if opened.form == "gguf":
        return _of_gguf(opened, length)
    in_other = None if opened.form != "dialect" else in_dialect(opened.config or {}, opened.config_name or "")
    if in_other is not None:
        return _of_dialect(opened, in_other, length)
    if opened.config is not None:
        return _of_config(opened, opened.config, length)
    facts: list[Fact] = []
    codes = tensor_codes(opened, facts)
    usable = next((code.rows for code in codes if code.rows is not None and code.offset is not None), None)
    return Resolved(None, usable, length, tuple(code.within(None, None) for code in codes), tuple(facts))


@dataclass(frozen=True)
class _Part:
    """The codes of one part, each with the original length of its scaling, the context and what was not read."""

    codes: list[tuple[LayerEncoding, int | None]]
    context: Sourced[int] | None
    ignored: Mapping[str, Any]
    idle: frozenset[str] = frozenset()
    remarks: tuple[tuple[str, str], ...] = ()

    def usable(self) -> tuple[LayerEncoding, ...]:
        """The codes with the length that each can be used for."""
        context, place = (None, None) if self.context is None else (self.context.value, self.context.source)
        # The context of the text does not apply to a tower beside it.
        beside = {"vision", "audio"} - {self.name}
        return tuple(
            code.within(None, None) if code.part in beside else code.within(context, place) for code, _ in self.codes
        )

    @property
    def name(self) -> str:
        """Which part it is."""
        return self.codes[0][0].part if self.codes else "other"

    @property
    def original(self) -> int | None:
        """The original length, if a scaling has one."""
        return next((original for _, original in self.codes if original is not None), None)


def _of_config(opened: Opened, config: Mapping[str, Any], length: int | None) -> Resolved:
    facts: list[Fact] = []
    file = opened.config_name or "config.json"
    path, model = model_in(config)
    name = _name(model, file, path, facts)
    facts += _given_twice(opened, file)
    facts += parts_of_no_object(model, f"{file}:{path}")
    reader = _ConfigResolver(opened, file, name, facts, length)
    found = [*sections(config), *_around(config, name)]
    parts = _named_apart([(section, reader.part(section)) for section in found])
    around = {"": config, path: model}
    if any(section.whole for section in found):
        del around[path]
    ignored = {place: value for at, held in around.items() for place, value in beside(held, f"{file}:{at}").items()}
    whole = _of_parts(parts, _main(parts), name, f"{file}:{path}model_type", length, facts, ignored)
    notes, not_covered = (tuple(dict.fromkeys(held)) for held in (reader.notes, reader.not_covered))
    return replace(whole, notes=notes, not_covered=not_covered)


def _named_apart(found: list[tuple[Section, _Part]]) -> list[_Part]:
    """The parts; one that is of no usual kind, or of the same kind as another one, has the keys of its object."""
    kinds = Counter(section.part for section, _ in found)
    alike = [not section.whole and (section.part == "other" or kinds[section.part] > 1) for section, _ in found]
    return [
        _called(part, section.path.removesuffix(".")) if several else part
        for (section, part), several in zip(found, alike, strict=True)
    ]


def _called(part: _Part, keys: str) -> _Part:
    return replace(part, codes=[(replace(code, component=keys), original) for code, original in part.codes])


def _of_dialect(opened: Opened, found: InDialect, length: int | None) -> Resolved:
    """The config of another program: one part, whose type is the program."""
    file = opened.config_name or ""
    reader = _ConfigResolver(opened, file, None, _given_twice(opened, file), length)
    part = reader.by_table(found.section, found.known)
    keys, style = found.known.reads.get("style", ()), found.known.defaults.get("style")
    other = any(code.kind != "rotary" for code, _ in part.codes)  # instead of what most models have
    if style is not None and other and all(found.section.values.get(key) is None for key in keys):
        if any(value is not False for value in part.ignored.values()):
            # The file is about another encoding than the default of the program.
            codes: list[tuple[LayerEncoding, int | None]] = [(LayerEncoding("text", None, None), None)]
            return _of_parts([replace(part, codes=codes)], None, None, "", length, reader.facts, {})
        place = f"{file}:{found.section.path}{keys[0]}"
        taken = {"field": keys[0], "used": style, "default of": found.dialect.name, "documented": True}
        reader.facts.append(Fact("default-value", {**taken, "belongs at": place}))
    return _of_parts([part], part, None, "", length, reader.facts, {})


def _given_twice(opened: Opened, file: str) -> list[Fact]:
    twice = {"used": "the last value"}
    return [Fact("duplicate-key", {f"{file}:{key}": "given more than once", **twice}) for key in opened.duplicates]


def _around(config: Mapping[str, Any], name: str | None) -> list[Section]:
    """The config itself, if its type has codes of its own around the objects of other types."""
    path, model = model_in(config)
    known = None if name is None else model_type(name)
    if known is None or not known.rows or not known.sections or any(each.whole for each in sections(config)):
        return []
    parts = [model_type(kind) for kind in known.sections.values()]
    same = any(found is not None and found.rows == known.rows for found in parts)
    return [] if same else [Section("text", path, model, model=path)]


def _of_parts(  # noqa: PLR0917 - what a config or a GGUF file says
    parts: list[_Part],
    main: _Part | None,
    name: str | None,
    place: str,
    length: int | None,
    facts: list[Fact],
    beside: Mapping[str, Any],
) -> Resolved:
    """The parts of a target together; ``main`` has the context, ``place`` is the source of the type."""
    context, original = (None, None) if main is None else (main.context, main.original)
    source = {"model_type": place} if name is not None else {}
    if context is not None:
        source["context"] = context.source
    codes = tuple(code for part in parts for code in part.usable())
    ignored = {**beside, **{place: value for part in parts for place, value in part.ignored.items()}}
    at = length or original or value_of(context)
    idle = frozenset().union(*(part.idle for part in parts))
    remarks = tuple(dict.fromkeys(each for part in parts for each in part.remarks))
    return Resolved(name, value_of(context), at, codes, tuple(facts), source, ignored, idle, remarks=remarks)


def _main(parts: list[_Part]) -> _Part | None:
    """The part that the context of a model refers to: the one that reads or writes text."""
    for name in ("text", "decoder", "encoder", "audio", "vision", "other"):
        for part in parts:
            holds = any(code.part == name for code, _ in part.codes)
            if holds and (part.context is not None or part.original is not None):
                return part
    return None


@dataclass(frozen=True)
class _ConfigResolver:
    """Reads the parts of a config, whose ``top`` names a model type; facts and notes are added to its lists."""

    opened: Opened
    file: str
    top: str | None
    facts: list[Fact]
    length: int | None
    notes: list[str] = field(default_factory=list)
    not_covered: list[str] = field(default_factory=list)

    def part(self, section: Section) -> _Part:
        """The codes of a part, by the table or by its fields."""
        name = _name(section.values, self.file, section.path, self.facts)
        known = self._by_own_code(section, type_of(section, name, self.top))
        if known is not None and section.whole:
            odd = class_of_others(section.values, known)
            own = None if odd is None else by_listed_class(odd)
            if own is not None:
                return self.by_table(section, own)
            if odd is not None:
                return self._by_fields(section, name, {"other class": odd})
            foreign = foreign_sizes(section.values, known)
            if foreign:
                return self._by_fields(section, name, {"other keys": foreign})
        if known is None and name is None and (known := by_class(section.values)) is not None:
            where = f"{self.file}:{section.path}"
            evidence = {f"{where}architectures": section.values["architectures"], "read as": known.name}
            self.facts.append(Fact("unknown-model-type", {place: shown(value) for place, value in evidence.items()}))
        made = None if known is not None else diffusers_codes(section.values, self.file, self.facts)
        if made is not None:
            codes, fields = made
            return _Part(codes, None, unread(fields))
        if known is None and section.whole and is_params(section.values):
            codes, context, fields = params_codes(section.values, self.file, self.facts, self.length)
            return _Part(codes, context, unread(fields))
        if known is None:
            return self._by_fields(section, name)
        made = self.by_table(section, known)
        code = self._code(section)
        if code is not None:
            for each, _ in made.codes:
                self.facts.extend(fact for fact in differences(each, code, known.title) if fact not in self.facts)
        return made

    def _code(self, section: Section) -> "CodeFacts | None":
        """What the Python files beside the config say of a part: of its whole model, which is followed for its text."""
        beside = self.opened.code
        if beside is None or (section.part != "text" and not section.whole) or section.model:
            return None
        return beside.of(self.opened.config or {}, self.file)

    @property
    def _key_reads(self) -> "tuple[KeyRead, ...]":
        return () if self.opened.code is None else self.opened.code.reads

    def _by_own_code(self, section: Section, known: ModelType | None) -> ModelType | None:
        """The type whose code runs a part: that of the class that comes with the model, if it is known."""
        marked = None if known is None else by_marks(known.name, section.values)
        if marked is not None:
            return marked
        named = remote_class(section.values)
        if named is None:
            return known
        own = by_remote_class(named)
        if own is None and known is not None:
            place = f"{self.file}:{section.path}auto_map"
            self.facts.append(Fact("own-code", {place: named, "read as": known.name}))
        return own or known

    def by_table(self, section: Section, known: ModelType) -> _Part:
        """The codes of a part whose type is known."""
        fields = fields_of(section, self.file, known, self.facts)
        # A null of the caller takes a key away.
        fields.nulls = {
            key: each for key, each in fields.nulls.items() if section.path + key not in self.opened.overridden
        }
        if known.not_covered is not None:
            self.notes.append(f"Of {known.title} clockhands does not read {known.not_covered}.")
            self.not_covered.append(f"{known.not_covered} ({known.name})")
        idle = outer_keys(section, fields)
        made: list[tuple[LayerEncoding, int | None]] = []
        rows = [row for row in known.rows if not _of_the_other_side(row, section)]
        theirs = any(row.rows == "context" for row in known.rows) and all(row.rows != "context" for row in rows)
        context = None if theirs else fields.whole("context")
        for row in rows:
            because = _chosen(fields, row)
            if because is None or (row.heads is not None and fields.whole(row.heads) is None):
                continue
            of_row = fields.with_quantities(row.quantities)
            inside = row.part == "text" or (row.part, section.part) == ("encoder", "audio")
            own = replace(row, part=section.part) if inside and section.part != "text" else row
            if own.kind == "rotary" and not own.formula:
                made.append((_without_rates(RotaryResolver(of_row, known, own, own.part, None), because), None))
            elif own.kind == "rotary":
                made += [
                    (_because(code, because), original)
                    for every, original in RotaryResolver(of_row, known, own, own.part, self.length).codes()
                    if (code := in_own_layers(every, of_row, own)) is not None
                ]
            elif own.kind in ("learned", "sinusoidal") and own.rows:
                code, positions = table_code(of_row, known, own, self.opened.tensors)
                made.append((_because(code, because), None))
                beside_rope = any(other.kind == "rotary" for other, _ in made)
                if own.rows == "patches" and context is None and positions is not None and not beside_rope:
                    context = Sourced(positions, code.source.get("rows", ""))
                if own.rows == "context" and context is not None:
                    # Positions, not rows: a table may begin with rows that no token uses.
                    context = Sourced(positions, code.source.get("context", context.source))
            else:
                says = because or known.architecture_source
                made += [
                    (_in_part(code, own.part), None)
                    for every in bias_codes(of_row, own.kind or "none", says, own)
                    if (code := in_own_layers(every, of_row, own)) is not None
                    and {code.part, section.part} != {"encoder", "decoder"}
                ]
        if not made and known.rows:
            made = [(_in_part(code, section.part), None) for code in bias_codes(fields, None, None)]
        made += self._predicting(section, fields, known, [code for code, _ in made])
        certain = self.opened.form != "dialect"
        of = made[0][0].part if made else section.part
        remarks = () if known.remark is None else ((of, known.remark),)
        codes = [code for code, _ in made]
        idle |= ignored_keys(fields, known, codes, certain=certain) | repeated_orders(fields, codes)
        misspelt_keys(fields, known)
        if certain:
            check_values(fields)
        if context is not None and context.source == known.default_source:
            field = known.reads["context"][0]
            fields.took_default(field, context.value, known.title, **{"belongs at": fields.source(field)})
        return _Part(made, context, unread(fields), idle, remarks)

    def _predicting(
        self, section: Section, fields: Fields, known: ModelType | None, codes: list[LayerEncoding]
    ) -> list[tuple[LayerEncoding, int | None]]:
        """The codes of the layers for multi-token prediction, if a text part has them."""

        def longer(further: Fields) -> list[LayerEncoding]:
            rows = () if known is None else [row for row in known.rows if row.part == "text" and row.kind == "rotary"]
            return [
                code for row in rows for code, _ in RotaryResolver(further, known, row, "text", self.length).codes()
            ]

        if section.part != "text":
            return []
        further, notes, unknown = for_further_tokens(self.opened, fields, known, codes, longer, top=self.top)
        self.notes.extend(notes)
        self.not_covered.extend(unknown)
        return [(code, None) for code in further]

    def _by_fields(self, section: Section, name: str | None, more: Mapping[str, Any] | None = None) -> _Part:
        """The codes of a type that the table does not hold; ``more`` is further evidence of that."""
        fields = fields_of(section, self.file, None, self.facts)
        named = CLASS_KEY if name is None and isinstance(section.values.get(CLASS_KEY), str) else "model_type"
        evidence = {fields.source(named): name or shown(section.values.get(CLASS_KEY)), **(more or {})}
        code = self._code(section)
        if code is not None and code.says:
            evidence["read from its code"] = code.says
        fields.note("unknown-model-type", evidence)
        part = part_of(section, name)
        made: list[tuple[LayerEncoding, int | None]] = []
        kinds = declared_kinds(fields)
        dropped: list[str] = []
        if code is not None:
            kinds = kinds_in(code, kinds)
            made += [(each, None) for each in tables_in(code, part)]
            held, fields = fields, computed(fields, code, self._key_reads)
            read = {each.key for each in self._key_reads}
            dropped = [held.source(key) for key in held.values if key not in fields.values and key not in read]
        for kind in kinds:
            if kind.value == "rotary" and part == "text":
                layout = None if code is None else code.layout
                found = RotaryResolver(fields, None, None, part, self.length, layout).codes()
                if code is not None:
                    found = [(growing(each, code, self.length), original) for each, original in found]
                if code is not None and code.by_number:  # which layers rotate is not known
                    found = [(replace(each, layers=None), original) for each, original in found]
                made += found
            elif kind.value == "rotary":
                # Images and sound have axes that no common key describes: their frequencies would be a guess.
                made.append((_without_rates(RotaryResolver(fields, None, None, part, None), kind.source), None))
            elif kind.value in ("learned", "sinusoidal"):
                made.append((LayerEncoding(part, "input", kind.value, source={"kind": kind.source}), None))
            elif kind.value is not None:
                made += [(_in_part(code, part), None) for code in bias_codes(fields, kind.value, kind.source)]
        if not made:
            made = [(_in_part(code, part), None) for code in bias_codes(fields, None, None)]
        made += self._predicting(section, fields, None, [code for code, _ in made])
        misspelt_keys(fields, None)
        context = fields.whole("context")
        ignored = unread(fields)
        if code is not None:
            self.notes.extend(other_keys([*ignored, *dropped], fields, self._key_reads))
        return _Part(made, context, ignored)


def _of_the_other_side(row: CodeOfType, section: Section) -> bool:
    """Whether a code belongs to the side that another model has not taken: sound is input of an encoder only."""
    return (row.part, section.part) in {("encoder", "decoder"), ("decoder", "encoder"), ("decoder", "audio")}


def _chosen(fields: Fields, row: CodeOfType) -> str | None:
    """Why a type has this code: the sources of its conditions, "" without any; None if it does not have the code."""
    sources = []
    for quantity, values in row.when.items():
        if values[0] is None:  # where the file does not have it
            if fields.declares(quantity):
                return None
            continue
        read = {bool: fields.flag, int: fields.whole}.get(type(values[0]), fields.text)
        found = read(quantity)
        if found is None or found.value not in values:
            return None
        sources.append(found.source)
    return ", ".join(sources)


def _because(code: LayerEncoding, chosen: str) -> LayerEncoding:
    """A code with the source of its choice, if a type has one of several."""
    return replace(code, source={**code.source, "kind": chosen}) if chosen else code


def _without_rates(reader: RotaryResolver, because: str) -> LayerEncoding:
    """A rotary code whose frequencies are not given by a formula of this library."""
    made = reader.codes()[0][0]
    source = {name: where for name, where in made.source.items() if name != "scaling"}
    code = replace(made, spec=None, rates=None, attention_factor=None, scaling=None)
    return replace(code, source={**source, "kind": because or reader.architecture})


def _in_part(code: LayerEncoding, part: str) -> LayerEncoding:
    """A code of a part that is not text; encoders and decoders stay as they are."""
    return code if part == "text" or code.part != "text" else replace(code, part=part)


def type_of(section: Section, name: str | None, top: str | None) -> ModelType | None:
    """The entry for a section: by its own type, else by the type around it.

    Old files repeat the whole model's type in a part.
    """
    around = model_type(top) if top is not None else None
    if section.whole:
        return around
    inner = around.sections.get(section.part) if around is not None else None
    inner = parts_of_class(top or "").get(section.path.removeprefix(section.model).removesuffix(".")) or inner
    repeated = name == top and around is not None and bool(around.sections)
    own = name if name is not None and not repeated else inner
    found = model_type(own) if own is not None else None
    part = None if found is None else found.sections.get(section.part)
    inside = any(each.path for each in sections(section.values, part=section.part))
    if part is not None and not inside:  # the type of a whole model, where it names the one that it has there
        found = model_type(part)
    if found is None or around is None or section.part not in around.section_defaults:
        return found
    return replace(found, defaults={**found.defaults, **around.section_defaults[section.part]}, around=around.title)


def _name(values: Mapping[str, Any], file: str, path: str, facts: list[Fact]) -> str | None:
    name = values.get("model_type")
    if name is None or isinstance(name, str):
        return name if name or not path else None  # an empty type in a part means that of the surrounding one
    fact = Fact("unreadable-field", {f"{file}:{path}model_type": str(name)[:200], "expected": "a text"})
    if fact not in facts:
        facts.append(fact)
    return None


def _of_gguf(opened: Opened, length: int | None) -> Resolved:
    facts: list[Fact] = []
    made, context, ignored = gguf_codes(opened, facts, length)
    name = (opened.config or {}).get(ARCHITECTURE)
    name = name if isinstance(name, str) else None
    part = _Part(made, context, ignored)
    return _of_parts([part], part, name, f"{opened.config_name}:{ARCHITECTURE}", length, facts, {})


def _of_spec(opened: Opened, length: int | None) -> Resolved:
    """The codes of a preset or of the file of a spec; both are their own source."""
    spec = opened.spec
    if isinstance(spec, LayerMixture):
        # The number of layers is not known: those of one period are named.
        of_period = [",".join(map(str, spec.layers(code))) for code in range(len(spec.codes))]
        each = [
            (code, f"{layers} of every {len(spec.pattern)}") for code, layers in zip(spec.codes, of_period, strict=True)
        ]
    else:
        each = [(spec, None)]
    name = (
        f"preset {opened.target.removeprefix('preset:')}" if opened.path is None else f"the spec in {opened.path.name}"
    )
    codes = []
    for part, layers in each:
        code = code_of(part, layers, length).within(None, None)
        known = [field for field in KNOWN_OF_SPECS if getattr(code, field) is not None]
        codes.append(replace(code, source=dict.fromkeys(known, name)))
    return Resolved(None, None, length, tuple(codes), ())


def _summary(scaling: Scaling | None) -> dict[str, Any] | None:
    """A scaling as named in configs: the type, its factor and its original length."""
    if scaling is None:
        return None
    factor, original = getattr(scaling, "factor", None), getattr(scaling, "original", None)
    return {"type": type(scaling).__name__.lower(), "factor": factor, "original": original}


def code_of(spec: Any, layers: str | None, length: int | None) -> LayerEncoding:
    """The code of a spec; the frequencies of several axes follow one another."""
    if spec is None:
        return LayerEncoding("text", layers, "none", None)
    if isinstance(spec, Rotary):
        if length is not None:
            spec = replace(spec, length=length)
        return LayerEncoding(
            "text",
            layers,
            "rotary",
            spec,
            layout=spec.layout,
            width=spec.head_width,
            rotated=spec.rotated,
            base=spec.base,
            rates=spec.rates,
            attention_factor=spec.attention_factor,
            scaling=_summary(spec.scaling),
        )
    if isinstance(spec, BiasCode):
        return LayerEncoding("text", layers, BIASES.get(type(spec).__name__), spec)
    spacing, rates = getattr(spec, "spacing", None), getattr(spec, "rates", None)
    if rates and isinstance(rates[0], tuple):
        rates = tuple(rate for axis in rates for rate in axis)
    return LayerEncoding(
        "text",
        layers or "input",
        KINDS.get(type(spec).__name__),
        spec,
        layout=getattr(spec, "layout", None),
        width=getattr(spec, "width", None),
        base=spacing.base if isinstance(spacing, Geometric) else None,
        rates=rates,
        rows=getattr(spec, "rows", None),
        offset=getattr(spec, "offset", None),
    )
