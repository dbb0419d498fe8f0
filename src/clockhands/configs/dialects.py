"""Configs of other programs: how each is recognised, and what its keys mean, as data.

``dialects.json`` has an entry for each program: the keys that identify its files, where the model is in the file, which
keys hold which quantity, the program's defaults, and its layout. This is the same information as for a model type, so a
file in a dialect is read as a part of a config whose type is the dialect. Values keep the keys and places of the file.
Only the scaling block is assembled, if a dialect has no block; each value keeps the key that it came from.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from clockhands.configs.composition import is_reference, unread_parents
from clockhands.configs.model_types import CodeOfType, ModelType
from clockhands.configs.section_fields import Section
from clockhands.errors import Unreadable
from clockhands.packaged import packaged
from clockhands.phrases import shown

# The key under which a scaling is assembled from several keys of a file.
BLOCK = "scaling of the file"


@dataclass(frozen=True)
class Dialect:
    """How the configs of one program are read.

    Attributes:
        name: The program.
        library: The library and release that was read, without commas, since commas join sources.
        marks: Lists of keys, with dots into objects; a file that has all keys of one list is of this dialect.
        unless: Keys that no file of this dialect has; after = the only value that one may have.
        at: Possible places of the model in the file, the first existing one counts; "" is the file itself.
        inner: Objects there whose keys are read too, under their name with a dot.
        merged: Objects there whose keys the program merges with those of the model.
        reads: Quantity to the keys that hold it, spelt with underscores.
        defaults: The program's default for each quantity.
        instead: The quantity used for another one that has no key.
        unset: For each key, the values that mean the same as a missing key.
        left_sides: Keys of windows with a list: how many tokens a query sees before itself, and after.
        only: Quantity to the key, and the values under it, that the program reads the quantity with.
        codes: Its position codes, as those of a model type.
        scaling: Which keys together declare a scaling, the first that fits.
        named: The key of a model name whose values are in the program's code, the names of these values, and the values
            of each model.
        file_names: How the name of a file begins that says more, and what it says.
        notes: What the file does not determine.
        outdated: For each outdated top-level key, what replaced it.
        texts: Objects of the file whose keys the program takes as PyYAML reads them: a number with an exponent is
            a text where it lacks a dot or a sign; "" is the file itself.
        lengths: Keys of the file, which together say how long a text may be (``keys``), what the program does where it
            is beyond the context (``then``), and whether it goes no further then (``stops``).
        base: The keys of another model whose config the file changes (``name``), of the changes (``inside``, and at the
            top ``beside``) and of the length that it is used at, the first that is there (``length``).
        scores: What scores are multiplied by, as in `ModelType`.
        trains: Whether its files are those of a training from the beginning, as in `ModelType`.
        refused: For files of a program that are recognised and not read, what to do instead.
    """

    name: str
    library: str
    marks: tuple[tuple[str, ...], ...]
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unless: tuple[str, ...] = ("model_type",)
    at: tuple[str, ...] = ("",)
    inner: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)
    unset: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    left_sides: tuple[str, ...] = ()
    only: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    codes: tuple[Mapping[str, Any], ...] = ()
    scaling: tuple[Mapping[str, Any], ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    file_names: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    outdated: Mapping[str, str] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    lengths: tuple[Mapping[str, Any], ...] = ()
    base: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, Any] = field(default_factory=dict)
    trains: bool = False
    refused: str = ""

    def length(self, config: Mapping[str, Any], file: str) -> tuple[str | None, int | None]:
        """The key and the length that the model of a training file is used at, where the file says it.

        Raises:
            Unreadable: It is not a positive whole number; the program refuses it too.
        """
        for name in self.base.get("length", ()):
            key, value = _Keys(config).found(name)
            if value is not None:
                return key, whole_length(value, f"{file}:{key}")
        return None, None

    def of_base(self, config: Mapping[str, Any]) -> tuple[str, Any, dict[str, Any]]:
        """The key of the model that a file names, its name, and the values in this file that replace the model's."""
        at = next((at for at in self.at if isinstance(_Keys(config).found(at)[1], Mapping)), "")
        keys, start = _Keys(config), f"{at}." if at else ""
        key, name = keys.found(f"{start}{self.base.get('name', '')}") if self.base else ("", None)
        beside = [keys.found(f"{start}{each}") for each in self.base.get("beside", ())]
        changes = {place: value for place, value in beside if value is not None}
        for place, held in (keys.found(f"{start}{each}") for each in self.inner):
            if isinstance(held, Mapping):
                return key, name, changes | {f"{place}.{each}": value for each, value in held.items()}
        return key, name, changes


@dataclass(frozen=True)
class InDialect:
    """A config in a dialect.

    Attributes:
        dialect: The dialect.
        section: The model in it, with the places of values that are not keys of the file.
        known: The dialect as a model type.
        notes: What could not be read.
    """

    dialect: Dialect
    section: Section
    known: ModelType
    notes: tuple[str, ...]


@cache
def dialects() -> tuple[Dialect, ...]:
    """All dialects; the first one that fits a file is used."""
    rows = packaged(__file__, "dialects.json")["dialects"]
    return tuple(Dialect(name, **{key: _frozen(value) for key, value in row.items()}) for name, row in rows.items())


def dialect_of(config: Mapping[str, Any]) -> Dialect | None:
    """The dialect of a config, by its keys; None for a config of Transformers and for other documents."""
    return _dialect_of(_Keys(config))


def _dialect_of(keys: "_Keys") -> Dialect | None:
    return next((dialect for dialect in dialects() if _fits(keys, dialect)), None)


def could_be_dialect(text: str) -> bool:
    """Whether a text contains all identifying keys of some dialect: a quick check before parsing."""
    spelt = text.replace("-", "_")
    return any(
        all(any(name.partition("=")[0].rpartition(".")[2] in spelt for name in mark.split("|")) for mark in marks)
        for dialect in dialects()
        for marks in dialect.marks
    )


def in_dialect(config: Mapping[str, Any], file: str) -> InDialect | None:
    """A config as a part that is read by its dialect; None if it is in none.

    Raises:
        Unreadable: It is of a program whose files are not read.
    """
    keys = _Keys(config)
    dialect = _dialect_of(keys)
    if dialect is None:
        return None
    if dialect.refused:
        raise Unreadable(f"{file} is a file of {dialect.name}, and clockhands does not read it.", dialect.refused)
    at = next((at for at in dialect.at if isinstance(keys.found(at)[1], Mapping)), "")
    path = f"{at}." if at else ""
    model = _Keys(keys.found(at)[1] or {})
    values, places, more = _completed(_flat(model, (*dialect.inner, *dialect.merged)), dialect, file)
    spelling = _Spelling(values, dialect)
    notes = [*dialect.notes, *more]
    notes += [f"{file}:{key} {said}." for key, said in dialect.outdated.items() if config.get(key) is not None]
    reads = {quantity: spelling.of(*names) for quantity, names in dialect.reads.items()}
    mentioned = {key for names in reads.values() for key in names}
    mentioned |= {key for rule in dialect.scaling for key in spelling.of(*_keys_of(rule))}
    elsewhere = sorted(key for key in mentioned & values.keys() if is_reference(values[key]))
    notes += [
        f"{file}:{path}{key} is {shown(values[key])[1:-1]}, whose value is not in this file." for key in elsewhere
    ]
    for key, nothing in dialect.unset.items():
        values |= {spelt: None for spelt in spelling.of(key) if values.get(spelt) in nothing}
    for key in spelling.of(*dialect.left_sides):
        match values.get(key):
            case [int(before), 0] if before > 0:
                values[key], places[key] = before + 1, f"{file}:{path}{key}[0] and the token itself"
            case [-1, 0 | -1]:
                values[key] = None
    defaults = {quantity: dialect.defaults[other] for quantity, other in dialect.instead.items()}
    defaults |= dict(dialect.defaults)
    for quantity, when in dialect.only.items():
        if not _holds(values, when, spelling):
            reads.pop(quantity)
            defaults.pop(quantity, None)
    for quantity, other in dialect.instead.items():
        if all(values.get(key) is None for key in reads[quantity]):
            reads[quantity] = reads[other]
    for quantity, names in reads.items():
        if next((key for key in names if values.get(key) is not None), None) in elsewhere:
            reads[quantity] = ()
            defaults.pop(quantity, None)
    chosen = _chosen(values, dialect, spelling)
    block = _block(values, chosen, dialect, spelling, lambda key: places.get(key) or f"{file}:{path}{key}")
    spent = _spent(values, chosen, dialect, spelling) - {key for names in reads.values() for key in names}
    values = {key: value for key, value in values.items() if key not in spent}
    if block is not None:
        values[BLOCK] = {key: value for key, (value, _) in block.items()}
        places |= {f"{BLOCK}.{key}": place for key, (_, place) in block.items()}
        reads["blocks"] = (BLOCK,)
    held = [key for name in ("base", "blocks") for key in reads.get(name, ()) if values.get(key) is not None]
    # The code of a model that is not on this machine is known as far as the file changes it.
    rows = () if dialect.base and not held else dialect.codes
    if unread_parents(config):  # which may set what this file does not
        defaults = {}
        known_scaling = block is not None
        rows = tuple({**row, "layout": None, "formula": known_scaling and row.get("formula", True)} for row in rows)
    codes = tuple(CodeOfType(**row) for row in rows)
    known = ModelType(
        dialect.name, dialect.library, reads, defaults, {}, codes, {}, scores=dialect.scores, trains=dialect.trains
    )
    return InDialect(dialect, Section("text", path, values, places=places), known, tuple(dict.fromkeys(notes)))


def as_program_reads(config: Mapping[str, Any], exponents: Mapping[str, str]) -> dict[str, Any]:
    """A YAML file in which numbers with exponents are text where its program reads them as text."""
    dialect = dialect_of(config) if exponents else None
    made = dict(config)
    for holder in () if dialect is None else dialect.texts:
        start = f"{holder}." if holder else ""
        texts = {
            path.removeprefix(start): text for path, text in exponents.items() if path.rpartition(".")[0] == holder
        }
        made = _with_texts(made, holder.split(".") if holder else [], texts)
    return made


def _with_texts(values: Mapping[str, Any], way: Sequence[str], texts: Mapping[str, str]) -> dict[str, Any]:
    """An object in which some keys of the object at the end of a way have texts."""
    if not way:
        return {**values, **{key: text for key, text in texts.items() if key in values}}
    inner = values.get(way[0])
    return {**values, way[0]: _with_texts(inner, way[1:], texts)} if isinstance(inner, dict) else dict(values)


def set_lengths(config: Mapping[str, Any], file: str) -> Iterator[tuple[dict[str, int], Mapping[str, Any]]]:
    """The lengths that a file sets besides the context: the keys of each, with their sources, and its entry."""
    keys = _Keys(config)
    dialect = _dialect_of(keys)
    holders = () if dialect is None else ("", *filter(None, (*dialect.at, *dialect.merged)))
    for row in () if dialect is None else dialect.lengths:
        for holder in holders:
            found = [keys.found(f"{holder}.{key}") for key in row["keys"]]
            if all(type(value) is int and value > 0 for _, value in found):
                yield {f"{file}:{place}": value for place, value in found}, row
                break


def keys_of_dialects() -> frozenset[str]:
    """Every key that some dialect reads, without the object around it."""
    found = {key for dialect in dialects() for keys in dialect.reads.values() for key in keys}
    found |= {key for dialect in dialects() for rule in dialect.scaling for key in _keys_of(rule)}
    return frozenset(key.rpartition(".")[2] for key in found)


def plain(key: str) -> str:
    """A key in the spelling of ``dialects.json``: programs treat hyphens and underscores as the same.

    >>> plain("--rotary-base"), plain("pos-emb")
    ('rotary_base', 'pos_emb')
    """
    return key.lstrip("-").replace("-", "_")


def whole_length(value: Any, place: str) -> int:
    """A length that a file sets, written as a number or as its text.

    Raises:
        Unreadable: It is not a positive whole number.
    """
    number = float(value) if re.fullmatch(r"\d{1,15}(\.0*)?", str(value)) and not isinstance(value, bool) else 0.0
    if number < 1:
        raise Unreadable(f"{place} must be a whole number above 0, got {shown(value)}.", "Write a length in tokens.")
    return int(number)


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return {key: _frozen(item) for key, item in value.items()} if isinstance(value, dict) else value


class _Keys:
    """A config whose keys are found in any spelling: each object in it is gone through once."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self._plain: dict[int, dict[str, str]] = {}

    def found(self, path: str) -> tuple[str, Any]:
        """A path with dots into objects, in the spelling of the file, and its value; None if it does not exist."""
        spelt: list[str] = []
        value = self.config
        for name in filter(None, path.split(".")):
            held = value if isinstance(value, Mapping) else {}
            key = name if name in held else self._spellings(held).get(name, name)
            spelt.append(key)
            value = held.get(key)
        return ".".join(spelt), value

    def _spellings(self, held: Mapping[str, Any]) -> dict[str, str]:
        """The first key of an object for each plain spelling."""
        made = self._plain.get(id(held)) if held else {}
        if made is None:
            self._plain[id(held)] = made = {}
            for key in held:
                if isinstance(key, str):
                    made.setdefault(plain(key), key)
        return made


class _Spelling:
    """How the keys of a model are spelt in a file, for the keys of the table; missing ones as in the table."""

    def __init__(self, values: Mapping[str, Any], dialect: Dialect) -> None:
        self.spellings: dict[str, list[str]] = {}
        for key in values:
            holder, _, own = key.partition(".")
            named = own if own and holder in dialect.merged else key
            self.spellings.setdefault(".".join(map(plain, named.split("."))), []).append(key)

    def of(self, *keys: str) -> tuple[str, ...]:
        """The spellings of some keys."""
        return tuple(dict.fromkeys(spelt for key in keys for spelt in self.spellings.get(key, [key])))

    def value(self, values: Mapping[str, Any], key: str) -> tuple[str, Any]:
        """The key in the spelling of the file, and its value; None if there is none."""
        return next(((spelt, values[spelt]) for spelt in self.of(key) if spelt in values), (key, None))


def _fits(keys: _Keys, dialect: Dialect) -> bool:
    for key in dialect.unless:
        name, _, allowed = key.partition("=")
        if keys.found(name)[1] not in (None, allowed):
            return False
    return any(all(_marked(keys, mark) for mark in marks) for marks in dialect.marks)


def _marked(keys: _Keys, mark: str) -> bool:
    """Whether a key exists, or one of several separated by a bar; after = is the required start of its value."""
    for alternative in mark.split("|"):
        key, _, start = alternative.partition("=")
        found = keys.found(key)[1]
        if found is not None and (not start or (isinstance(found, str) and found.startswith(start))):
            return True
    return False


def _flat(keys: _Keys, inner: tuple[str, ...]) -> dict[str, Any]:
    """An object in which the keys of some inner objects replace these objects, under dotted names."""
    made = {key: value for key, value in keys.config.items() if isinstance(key, str)}
    for name in inner:
        spelt, held = keys.found(name)
        if isinstance(held, Mapping):
            made.pop(spelt)
            made |= {f"{name}.{key}": value for key, value in held.items() if isinstance(key, str)}
    return made


def _completed(
    values: Mapping[str, Any], dialect: Dialect, file: str
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """An object completed by the values that the program knows by a name, and their places.

    A note is added if the program knows the name and this library does not.
    """
    held = {key: value for key, value in values.items() if value is not None}
    for start, said in dialect.file_names.items():
        if file.startswith(start):
            return {**values, **said, **held}, dict.fromkeys(said.keys() - held.keys(), f"the name of {file}"), []
    name = held.get(dialect.named.get("key", ""))
    if not isinstance(name, str):
        return dict(values), {}, []
    stem = re.sub(dialect.named["without"], "", name)
    if stem not in dialect.named["models"]:
        return dict(values), {}, [f"What {shown(name)[1:-1]} of {dialect.name} builds is not known here."]
    named = dict(zip(dialect.named["columns"], dialect.named["models"][stem], strict=True))
    place = f"{stem} of {dialect.library}"
    return {**values, **named, **held}, dict.fromkeys(named.keys() - held.keys(), place), []


def _keys_of(rule: Mapping[str, Any]) -> Iterator[str]:
    for name in ("when", "not", "keys"):
        held = rule.get(name, {})
        yield from held.values() if name == "keys" else held


def _chosen(values: Mapping[str, Any], dialect: Dialect, spelling: _Spelling) -> Mapping[str, Any] | None:
    """The first scaling whose keys have the values that declare it."""
    for rule in dialect.scaling:
        refused = (spelling.value(values, key)[1] in nothing for key, nothing in rule.get("not", {}).items())
        if _holds(values, rule.get("when", {}), spelling) and not any(refused):
            return rule
    return None


def _holds(values: Mapping[str, Any], when: Mapping[str, tuple[Any, ...]], spelling: _Spelling) -> bool:
    return all(spelling.value(values, key)[1] in allowed for key, allowed in when.items())


def _spent(
    values: Mapping[str, Any], chosen: Mapping[str, Any] | None, dialect: Dialect, spelling: _Spelling
) -> set[str]:
    """The keys that are part of the scaling, or say that there is none."""
    nothing = {name: refused for rule in dialect.scaling for name, refused in rule.get("not", {}).items()}
    none = {key for name, refused in nothing.items() for key in spelling.of(name) if values.get(key) in refused}
    return none | set(() if chosen is None else spelling.of(*_keys_of(chosen)))


def _block(
    values: Mapping[str, Any],
    rule: Mapping[str, Any] | None,
    dialect: Dialect,
    spelling: _Spelling,
    place: Callable[[str], str],
) -> dict[str, tuple[Any, str]] | None:
    """The block assembled from the keys of a scaling: its keys, each with value and place."""
    if rule is None:
        return None
    found = (spelling.value(values, key) for key in _keys_of(rule))
    because = [spelt for spelt, value in found if value is not None]
    block = {"rope_type": (rule["type"], place(because[0]) if because else dialect.library)}
    block |= {name: (value, dialect.library) for name, value in rule.get("fixed", {}).items()}
    for name, key in rule.get("keys", {}).items():
        spelt, value = spelling.value(values, key)
        if value is not None:
            block[name] = (value, place(spelt))
    return block
