"""How what was resolved is held to what others say about the same config, and where they part for a reason."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clockhands.configs.resolve import LayerEncoding, Resolved, resolve
from clockhands.configs.targets import Opened
from clockhands.encodings.rotary import Rotary

# Float32 tables differ from the real numbers by less than this.
RELATIVE = 1e-6

# Parts that are not the attention of the text: an indexer has heads of its own width.
TOWERS = ("vision", "audio", "other", "indexer")


def opened(config: dict[str, Any], **values: Any) -> Opened:
    """A config as if it had been opened from config.json."""
    return Opened(target="config.json", form="config", config=config, config_name="config.json", **values)


def resolved(config: dict[str, Any], length: int | None = None) -> Resolved:
    return resolve(opened(config), length)


def reasons(name: str) -> dict[str, str]:
    """Model types, or configs, that part from a rule of a test, to why."""
    return {each: why for why, names in read_reasons()[name].items() for each in names}


def read_reasons() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("reasons.toml").read_text(encoding="utf-8"))


def library_gaps(found: Resolved, tables: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Ladders that the library computes and that no resolved code has."""
    codes = [code for code in found.codes if code.kind == "rotary" and code.part not in TOWERS]
    for name, table in tables.items():
        if not any(_agrees(code, table) for code in codes):
            ours = [
                (code.layers, code.rates and (code.rates[0], code.rates[-1]), code.attention_factor) for code in codes
            ]
            yield f"{name}: the library has {dict(table)}, resolved are {ours}"


def _agrees(code: LayerEncoding, table: Mapping[str, Any]) -> bool:
    if code.rates is None or code.attention_factor is None or len(code.rates) != table["pairs"]:
        return False
    ours = (code.rates[0], code.rates[len(code.rates) // 2], code.rates[-1])
    theirs = (table["first"], table["mid"], table["last"])
    return abs(code.attention_factor - table["factor"]) <= RELATIVE and all(
        abs(mine - other) <= RELATIVE * abs(other) for mine, other in zip(ours, theirs, strict=True)
    )


def fact_gaps(found: Resolved, facts: Mapping[str, Any], tower: str | None = None) -> Iterator[str]:
    """What facts written by hand say otherwise; they are of a tower where it is named or there is nothing else."""
    codes = [code for code in found.codes if tower is None and code.part not in TOWERS]
    codes = codes or [code for code in found.codes if tower in (None, code.part)]
    rotary = [code for code in codes if code.kind == "rotary"]
    context = {found.context} if tower is None else {(code.rows or 0) - (code.offset or 0) for code in codes}
    expected = {
        # Layers with a window beside a table at the input say what they see, and have no encoding of their own.
        "kind": _kinds({code.kind for code in codes if code.kind != "none" or code.window is None}, facts["kind"]),
        "context": (context, {facts.get("usable_length") or facts.get("max_length")}),
    }
    if any(code.kind is not None for code in codes):
        expected["window"] = ({code.window for code in codes if code.window} or {None}, {facts.get("window")})
    if rotary:
        # Where kinds of layers differ, each says its own, and what is said of the whole is one of them.
        kinds = [kind for kind in (facts.get("per_layer_type") or {}).values() if "head_dim" in kind] or [facts]
        scalings = {_scaling(kind.get("scaling"), found) for kind in kinds} - {None}
        numbers = [number for code in codes for number in layer_numbers(code)]
        expected |= {
            "width": ({code.width for code in rotary}, {kind.get("head_dim") for kind in kinds}),
            "rotated": ({code.rotated for code in rotary}, {kind.get("rotated") for kind in kinds}),
            "base": ({facts.get("base")} & {code.base for code in rotary} or {None}, {facts.get("base")}),
            "bases": ({code.base for code in rotary}, {kind.get("base") for kind in kinds if len(kinds) > 1} or {None}),
            "scaling": (_scalings(rotary), scalings or {None}),
            "sections": (_sections(rotary), {tuple(facts["sections"]) if facts.get("sections") else None}),
            "layers": ({len(numbers)}, {facts.get("layers")}),
            "layers without position": (
                {number for code in codes if code.kind == "none" for number in layer_numbers(code)},
                set(facts.get("layers_without_position") or ()),
            ),
        }
    if facts.get("rows") is not None:
        tables = [code for code in codes if code.rows is not None]
        tables = [code for code in tables if code.part == "decoder"] or tables
        rows = {(code.rows, code.offset) for code in tables[:1]}
        expected["rows and offset"] = (rows, {(facts["rows"], facts["offset"])})
    for name, (ours, theirs) in expected.items():
        # Facts leave out what a file does not say; only a scaling or a window that is not there says something.
        silent = theirs == {None} and name not in ("scaling", "window", "sections")
        if ours != theirs and not silent:
            yield f"{name}: resolved {_listed(ours)}, facts {_listed(theirs)}"


def layer_numbers(code: LayerEncoding) -> Iterator[int]:
    for span in (code.layers or "").split(","):
        first, _, last = span.partition("-")
        if first.isdigit():
            yield from range(int(first), int(last or first) + 1)


def _kinds(ours: set[str | None], theirs: str) -> tuple[set[str | None], set[str | None]]:
    """Facts call several kinds together mixed."""
    if theirs == "mixed":
        return ours, ours if len(ours) > 1 else {"mixed"}
    ours = ours - {"none"} if "rotary" in ours else ours
    return ours, {{"t5": "buckets"}.get(theirs, theirs)}


def _sections(codes: list[LayerEncoding]) -> set[Any]:
    """Pairs of time, rows and columns, where the file itself says them."""
    declared = [code for code in codes if "mrope_section" in code.source.get("axes", "")]
    axes = [code.spec.axes for code in declared if isinstance(code.spec, Rotary) and code.spec.axes is not None]
    return {tuple(each.count(axis) for axis in range(3)) for each in axes} or {None}


def _scalings(codes: list[LayerEncoding]) -> set[Any]:
    declared = [code.scaling for code in codes if code.scaling is not None]
    return {(one["type"], one["factor"], one["original"]) for one in declared} or {None}


def _scaling(facts: Mapping[str, Any] | None, found: Resolved) -> Any:
    if facts is None:
        return None
    kind = {"su": "longrope"}.get(facts["type"], facts["type"])
    original = facts.get("original")
    if kind == "dynamic" and original is None:
        original = found.context  # by definition it starts where the declared context ends
    return (kind, facts.get("factor"), original)


def _listed(values: set[Any]) -> str:
    return ", ".join(sorted(map(str, values)))
