"""Puts what the code of a model computes in place of what the keys of its config would mean by themselves."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clockhands.configs.fields import Fields, Sourced, value_of
from clockhands.configs.resolved import Fact, LayerEncoding
from clockhands.phrases import listed

if TYPE_CHECKING:
    from clockhands.configs.key_reads import KeyRead
    from clockhands.configs.model_code.code_facts import CodeFacts

# Relative difference up to which two bases are one: a base is written with few digits.
_NEAR = 1e-6


def kinds_in(code: "CodeFacts", declared: list[Sourced[str]]) -> list[Sourced[str]]:
    """The kinds of encodings that the code of a model shows, each with its place; else those that a config declares.

    A config may keep keys of RoPE that its code does not use: if all of the code is at hand and shows none, RoPE is not
    known.
    """
    rotary = code.rotates or (code.cosines if code.sinusoids is None else None)
    if None in (code.rotates, code.cosines) and all(each.value != "rotary" for each in declared):
        rotary = None  # frequencies may be those of a table, and a rotation without frequencies may not be used
    found = [("rotary", rotary), ("alibi", code.biased), ("sinusoidal", code.sinusoids)]
    shown = [Sourced(kind, place) for kind, place in found if place is not None]
    return shown or [each for each in declared if each.value != "rotary" or not code.closed]


def computed(fields: Fields, code: "CodeFacts", reads: "Sequence[KeyRead]") -> Fields:
    """The fields with the base and the rotated channels that the code computes, without keys that no code reads."""
    spellings = fields.spellings
    values: dict[str, Sourced[float] | Sourced[int]] = {}
    instead: list[str] = []
    if code.base is not None and code.sinusoids is None:
        values[spellings["base"][0]] = code.base
        instead += spellings["base"]
        if any(f":{key}." in code.base.source for key in spellings["blocks"]):
            instead += spellings["blocks"]  # the scaling is in the base already
    if code.closed:
        read = {each.key for each in reads}
        instead += [key for name in ("head_width", "window") for key in spellings[name] if key not in read]
        # Transformers hands a block on under a newer name.
        instead += spellings["blocks"] if read.isdisjoint(spellings["blocks"]) else ()
    if code.base is None and (code.closed or code.changed is not None or code.odd is not None):
        instead += spellings["base"]
    latent, own = spellings["rotated"]
    if code.rotated is not None and code.sinusoids is None and fields.values.get(latent) != code.rotated.value:
        values[own] = code.rotated
        instead += [own, *spellings["share"]]
    made = fields.with_computed(values, instead)
    made.read.update(_keys_in([each.source for each in values.values()], fields))
    return made


def _keys_in(sources: Sequence[str], fields: Fields) -> set[str]:
    """The keys of the config in the sources of what its code computes."""
    start = f"{fields.file}:{fields.path}"
    places = [place for source in sources for place in source.split(", ") if place.startswith(start)]
    return {place.removeprefix(start).partition(".")[0] for place in places}


def other_keys(ignored: Iterable[str], fields: Fields, reads: "Sequence[KeyRead]") -> list[str]:
    """Sentences on the position keys that were not read here, by source: which of them the code reads, and where."""
    places = {read.key: read.place for read in reversed(reads) if not read.declared}
    held = [source.removeprefix(f"{fields.file}:{fields.path}") for source in ignored]
    read = [f"{key} ({places[key]})" for key in held if key in places]
    never = [key for key in held if key not in {each.key for each in reads}]
    files = listed(sorted({each.file for each in reads}))
    found = []
    if read:
        found.append(f"The code beside the config reads {listed(read)}; what follows from that is not known.")
    if never and files:
        found.append(f"No code beside the config ({files}) reads {listed(never)}.")
    return found


def growing(encoding: LayerEncoding, code: "CodeFacts", length: int | None) -> LayerEncoding:
    """An encoding whose base the code lets grow with the length, if it does; ``length`` is what the caller gave."""
    if encoding.kind != "rotary" or code.by_length is None or encoding.scaling is not None:
        return encoding
    scaling = {"type": "dynamic", "factor": None, "original": None}
    made = replace(encoding, scaling=scaling, source={**encoding.source, "scaling": code.by_length})
    # From which length on the base grows is not known.
    return made if length is None else replace(made, spec=None, rotation=None, rates=None, attention_factor=None)


def tables_in(code: "CodeFacts", part: str) -> list[LayerEncoding]:
    """The tables of positions that the code makes."""
    made = []
    for name, rows in code.tables.items():
        source = {"kind": rows.source, "rows": rows.source}
        if value_of(rows):
            made.append(LayerEncoding(part, "input", "learned", rows=rows.value, source=source | {"layers": name}))
    return made


def differences(encoding: LayerEncoding, code: "CodeFacts", kind: str) -> list[Fact]:
    """Where the code beside a config computes something else than the code of its type that is known here."""
    if encoding.kind != "rotary" or encoding.part != "text":
        return []
    found = []
    for name, seen in (("layout", code.layout), ("base", code.base)):
        own = getattr(encoding, name)
        if seen is None or seen.value is None or own is None or own == seen.value:
            continue
        if name == "base" and (abs(seen.value / own - 1) < _NEAR or encoding.scaling is not None):
            continue  # a scaling may be part of the base
        evidence = {"what": name, "code": seen.value, "place": seen.source, "table": own, "type": kind}
        found.append(Fact("code-differs", evidence, encoding.layers))
    return found
