"""Write configs/confirmed_types.json: rows that a person wrote, each field of which the class of the type shows.

The class of the installed Transformers is built for some configs of the type (`varied_configs`), and the audit must say
the same as the class of each. Then every field of the row must be seen: a key or a default in the config class, a table
by its parameters, and any other field by what the audit says without it: the class must contradict that for one of the
configs, or confirm less of it.

    python tools/confirmed_rows.py [NAME …]    # all types if none is named

What is printed of the other rows is why they stay in configs/model_types.json: their class cannot be built, differs, or
does not show some fields.
"""

import argparse
import copy
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import transformers

from absent_positions import position_names
from class_gaps import axes_of_pairs, latent_gaps, opened, row_in_table, with_row
from clockhands.auditing.class_comparison import compared_reading, comparison
from clockhands.configs import model_types as known
from clockhands.configs.resolved import TEXT, LayerEncoding
from clockhands.encodings.memory import limit_memory
from clockhands.encodings.rotary import Rotary
from clockhands.errors import ClockhandsError, Unreadable
from clockhands.models.built_classes import MEMORY, class_config, reading
from clockhands.models.class_modules import PositionModules, position_modules
from clockhands.models.class_readings import ClassReading
from computed_codes import of_rows_and_columns
from copied_types import CONFIRMED, built, by_hand, code_of, confirmed_rows, defaults_like, fails_at_scalings
from model_types import parts_of
from table_rows import held_tensors, input_of, learned_row, part_of, sinusoid_rows
from varied_configs import PLAIN, completions, configs, further_completions

_AXES = 3  # time, rows and columns of a text with images
Path = tuple[str | int, ...]

SAYS = "Written by tools/confirmed_rows.py: rows by people, each field of which the class that is named shows."

# What stands in the place of a field to see whether it matters; other fields are left out.
_OTHER: Mapping[str, Any] = {"kind": "none", "reads": []}


@dataclass(frozen=True)
class Told:
    """What the audit says of a config, and what a comparison with the class says of that.

    Attributes:
        codes: The audit's encodings, without where their values come from.
        differences: What the class computes otherwise.
        more: What the class has besides.
        same: What is the same.
    """

    codes: tuple[LayerEncoding, ...]
    differences: frozenset[str]
    more: frozenset[str]
    same: frozenset[str]

    def is_worse_than(self, other: "Told") -> bool:
        """Whether the class contradicts more of it."""
        return not (self.differences <= other.differences and self.more <= other.more and other.same <= self.same)


class Confirmation:
    """A row, compared with its class for several configs."""

    def __init__(self, name: str, row: Mapping[str, Any]):
        self.name, self.row = name, row
        with row_in_table(name, row):
            self.filled = known._filled(name)
        self.config = default = transformers.CONFIG_MAPPING[name]()
        self.read: list[tuple[dict[str, Any], ClassReading, Any, tuple[int, ...] | None]] = []
        for start in (*completions(default), *further_completions(default)):
            with suppress(Unreadable):
                reading({"model_type": name, **start})
                break
        else:
            raise Unreadable("its class cannot be made from its default config", "")
        for values in _different(configs(name, default, self.filled, start, code_of(default))):
            with suppress(Exception):  # a config that the class refuses, in whatever way
                made = class_config(values)
                self.read.append((values, reading(values), made, axes_of_pairs(made)))
        self.found = position_modules(name, default, built(default))
        self.names = position_names(self.found)
        self.whole = list(self.told(self.filled))
        tabled = any(code["kind"] in ("learned", "sinusoidal") for code in self.filled["codes"])
        self.tables = [code for row in _table_rows(self.found) for code in row["codes"]] if tabled else []

    def told(self, row: Mapping[str, Any]) -> Iterator[Told | None]:
        """The comparison for each config, if the type had this row; None where no audit can be made with it."""
        for values, read, config, axes in self.read:
            try:
                resolved = with_row(self.name, row, values)
                found = comparison(read, resolved)
            except (ClockhandsError, KeyError, TypeError, ValueError):
                yield None
                continue
            if found.differences and row is self.filled:  # what the library makes of a file may not be what it declares
                found = compared_reading(read, opened(self.name, values), resolved)
            differ = [f"{each.what}: {each.declared}; {each.computed}; {each.layers}" for each in found.differences]
            differ += latent_gaps([code for code in resolved.codes if code.kind == "rotary"], config)
            specs = [code.spec for code in resolved.codes if code.part in TEXT and isinstance(code.spec, Rotary)]
            alike = {None if spec.number_of_axes < _AXES else spec.axes for spec in specs} == {axes}
            differ += [] if alike or not specs else [f"other axes than {axes}"]
            same = [*found.same, *(["axes"] if alike and axes else [])]
            codes = tuple(replace(code, source={}) for code in resolved.codes)
            yield Told(codes, frozenset(differ), frozenset(found.more), frozenset(same))

    def differences(self) -> list[str]:
        """What the class computes otherwise than the row says."""
        held = [{"no audit"} if each is None else each.differences for each in self.whole]
        return sorted({each for differences in held for each in differences})

    def unseen(self) -> Iterator[str]:
        """The fields of the row that nothing in the class shows."""
        for path in (path for path in fields(self.row, self.filled["codes"]) if not self.in_class(path)):
            other = _with(self.filled, path, _OTHER.get(str(path[-1]), _OTHER.get(str(path[0]))))
            # What the audit says without it too, in configs with other values of the key, it does not say by it.
            idle = self.is_varied(path)
            for one, before in zip(self.told(other), self.whole, strict=True):
                if one is not None and before is not None and one.is_worse_than(before):
                    break
                idle = idle and one is not None and before is not None and one.codes == before.codes
            else:
                if not idle:
                    yield ".".join(map(str, path))

    def is_varied(self, path: Path) -> bool:
        """Whether some of the configs have other values of what a field is about."""
        if path[-1] == "aliases":
            tried = str([values for values, *_ in self.read])
            return all(alias in tried for alias in self.filled["codes"][path[1]]["aliases"])
        if path[0] != "reads":
            return False
        keys = self.row["reads"][path[-1]]
        tried = {json.dumps(values[key]) for values, *_ in self.read for key in keys[:1] if key in values}
        return len(tried) > 1 and self.reads(str(path[-1]), keys)

    def in_class(self, path: Path) -> bool:
        """Whether the config class, its file, or a table shows a field."""
        section, key = path[0], str(path[-1])
        match section:
            case "reads":
                return key in PLAIN and self.reads(key, self.row["reads"][key])
            case "defaults":
                values = defaults_like(self.config, {**self.filled, "defaults": {}}, self.config)
                return values.get(key) == self.row["defaults"][key]
            case "sections":
                return self.row["sections"][key] in parts_of(self.config, type(self.config)).values()
            case "codes":
                return self.in_modules(self.filled["codes"][path[1]], key)
        return False

    def reads(self, quantity: str, keys: Sequence[str]) -> bool:
        """Whether the class has the key of a quantity, or none of its keys where the row has none."""
        text = code_of(self.config)
        if not keys:
            usual = known.table()["spellings"]["config"].get(quantity, ())
            return not any(hasattr(self.config, each) for each in usual)
        return quantity in ("original", "blocks") or all(
            hasattr(self.config, each) or each.rpartition(".")[2] in text for each in keys[:1]
        )

    def in_modules(self, code: Mapping[str, Any], key: str) -> bool:
        """Whether the modules of the class show a field of a code."""
        match key:
            case "part":
                return code[key] in (part_of(self.found), input_of(self.found), *(each["part"] for each in self.tables))
            case "kind" if code["kind"] == "none":
                return self.turns_off()
            case "kind" if code["kind"] == "learned":
                return any(each.requires_grad for _, module, _ in self.found.tables for each in module.parameters())
            case "kind" if code["kind"] == "sinusoidal":
                tables = {type(module).__name__ for _, module, _ in self.found.tables}
                named = tables | self.names | {*self.found.sines}
                return any(re.search("sin(e|us|$)", each, re.IGNORECASE) for each in named)
            case "fragile":
                return code[key] == fails_at_scalings(self.found)
            case "tensors":
                held = [path for path, _, _ in held_tensors(self.found.model)]
                return all(any(each.endswith(end) for each in held) for end in code[key])
        return any(each["kind"] == code["kind"] and each.get(key) == code[key] for each in self.tables)

    def turns_off(self) -> bool:
        """Whether the class holds nothing about position where the audit says none, and something in another config."""
        held = [any(part.ladders or part.tables or part.relative for part in read.parts) for _, read, *_ in self.read]
        none = [each is not None and {code.kind for code in each.codes} == {"none"} for each in self.whole]
        return any(none) and any(held) and not any(said and has for said, has in zip(none, held, strict=True))


def _different(configs: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({json.dumps(each, sort_keys=True): each for each in configs}.values())


def _table_rows(found: PositionModules) -> Iterator[Mapping[str, Any]]:
    """The rows of the tables of a model that can be read."""
    with suppress(Exception):  # whatever the library's own code does not like
        yield from (row for row in (learned_row(found, *table) for table in found.tables) if row is not None)
    with suppress(Exception):
        yield from sinusoid_rows(found)
    if of_rows_and_columns(found):
        yield {"codes": [{"part": part_of(found), "kind": "sinusoidal"}]}


def fields(row: Mapping[str, Any], codes: Sequence[Mapping[str, Any]]) -> Iterator[Path]:
    """The paths of the fields that say something of a class: those of a row, and those of codes that it may be like."""
    for section in ("reads", "defaults", "fixed", "sections"):
        yield from ((section, key) for key in row.get(section, {}))
    yield from (("codes", number, key) for number, code in enumerate(codes) for key in code)
    yield from ((key,) for key in ("scores", "uneven") if key in row)


def _with(row: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """A row with another value at a path, or without one."""
    other = copy.deepcopy(dict(row))
    inside: Any = other
    for key in path[:-1]:
        inside = inside[key]
    inside.pop(path[-1], None)
    if value is not None:
        inside[path[-1]] = value
    return other


def confirmed_row(name: str, row: Mapping[str, Any]) -> tuple[dict[str, Any] | None, list[str]]:
    """The row of a type if its class confirms it, and what the class does not show or computes otherwise."""
    try:
        tried = Confirmation(name, row)
    except Exception as error:  # noqa: BLE001 - whatever a class does not like about its own default config
        return None, [f"not built: {type(error).__name__}"]
    wrong = [f"differs: {each}" for each in tried.differences()] or list(tried.unseen())
    made = {key: value for key, value in row.items() if key not in ("why", "unseen", "class")}
    return (None if wrong else made | {"class": type(tried.found.model).__name__}), wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="model types")
    chosen = parser.parse_args()
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    limit_memory(MEMORY)
    held = confirmed_rows()
    for name in chosen.names or [name for name in by_hand() if name in transformers.CONFIG_MAPPING]:
        row, wrong = confirmed_row(name, by_hand()[name])
        print(json.dumps([name, wrong]), flush=True)
        held.pop(name, None)
        held |= {} if row is None else {name: row}
        lines = ",\n".join(f'    "{name}": {json.dumps(row)}' for name, row in held.items())
        head = f'{{\n  "about": {json.dumps(SAYS)},\n  "confirmed_types": {{\n'
        CONFIRMED.write_text(f"{head}{lines}\n  }}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
