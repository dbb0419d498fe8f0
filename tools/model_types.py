"""Write configs/types_of_classes.json: what the classes of the installed Transformers do with position.

Every model type of the library that has no row in configs/model_types.json is made with its default config, without
memory for its weights, and its modules are looked at: rotary modules, tables of positions, relative terms, attention
without any of them. A row is written only if the audit, given the default config and a changed one, computes the
frequencies, the layout, the rows and the layers of the class. A type for which no row does is printed with the reason;
it then needs a row by a person, in configs/model_types.json, which this program reads and leaves as it is.

Run it after the pinned version of Transformers changed, and read the difference.
"""

import argparse
import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import transformers
from transformers.models.auto import modeling_auto

from absent_positions import position_names
from class_gaps import as_file
from class_sources import own_classes, rotations
from clockhands.configs import model_types as known
from clockhands.models.class_modules import (
    RELATIVE_TERMS,
    PositionModules,
    class_default,
    config_keys,
    is_number,
    model_classes,
    position_modules,
)
from computed_codes import NOTHING, limit, of_rows_and_columns, sinusoids_of_distance, width_of_sines
from copied_types import built, by_hand, rotary_row, row_of_copy
from table_rows import input_of, joined, layers, learned_row, merged, part_of, shape, sinusoid_rows

READ = Path(known.__file__).with_name("types_of_classes.json")

# What an object inside a config may take from the class around it.
INSIDE = ("hidden", "heads", "layers", "head_width", "context", "window")


def row_of(name: str, reasons: list[str]) -> dict[str, Any] | None:
    """The row of a type, or None with the reasons."""
    config = transformers.CONFIG_MAPPING[name]()
    subs: Any = type(config).sub_configs
    inner = {
        # An object that the default config does not have is of the one class that the config takes there.
        known.table()["sections"].get(key): getattr(getattr(config, key, None) or kind, "model_type", None)
        for key, kind in subs.items()
    }
    inner = {part: kind for part, kind in inner.items() if part is not None and kind}
    types = known.table()["types"]
    if lacking := [
        kind for part, kind in inner.items() if part in ("text", "encoder", "decoder") and kind not in types
    ]:
        reasons.append(f"its part {', '.join(lacking)} has no row")
        return None
    inner = {part: kind for part, kind in inner.items() if kind in types}
    main = next((inner[part] for part in ("text", "decoder", "encoder") if part in inner), None)
    more = section_defaults(config, inner)
    if main is not None:
        return {"like": main, **whole_defaults(config, main), "sections": inner, **more, "class": type(config).__name__}
    model = built(config)
    found = position_modules(name, config, model)
    row = row_of_modules(found, bool(inner), reasons)
    if row is None:
        return None
    row = with_fields_of_the_class(row, config)
    return {**row, **({"sections": inner} if inner else {}), **more, "class": type(model).__name__}


def parts_of(config: Any, kind: type[Any], place: str = "") -> dict[str, str]:
    """The objects inside a config by their place, each with its type; "" where that has no row."""
    found: dict[str, str] = {}
    for key, inside in getattr(kind, "sub_configs", {}).items():
        own = getattr(config, key, None)
        class_inside = inside if own is None or isinstance(own, dict) else type(own)
        listed = known.by_listed_class(class_inside.__name__)
        name = listed.name if listed is not None else getattr(class_inside, "model_type", "")
        found[f"{place}{key}"] = name if name in known.table()["types"] else ""
        found |= parts_of(own, class_inside, f"{place}{key}.")
    return found


def parts_of_classes() -> dict[str, dict[str, str]]:
    """The objects inside the config of each type that holds some, and further ones that its class mentions."""
    found: dict[str, dict[str, str]] = {}
    for name in sorted(transformers.CONFIG_MAPPING):
        kind = transformers.CONFIG_MAPPING[name]
        try:
            config = kind() if kind.sub_configs else None
        except Exception:  # noqa: BLE001 - a class that has no default config
            config = None
        found[name] = parts_of(config, kind)
        mentioned = set(re.findall(r"\w+", inspect.getsource(kind))) if found[name] else set()
        objects = {word for word in mentioned if word.endswith("_config") or word in known.table()["sections"]}
        found[name] |= dict.fromkeys(sorted(objects - found[name].keys()), "")
    return {name: parts for name, parts in found.items() if parts}


def section_defaults(config: Any, inner: Mapping[str, str]) -> dict[str, dict[str, dict[str, Any]]]:
    """What a class takes for quantities that an object inside does not have, where that object's own class differs."""
    found: dict[str, dict[str, Any]] = {}
    for key in type(config).sub_configs:
        part = known.table()["sections"].get(key, "")
        if part not in inner:
            continue
        own = transformers.CONFIG_MAPPING[inner[part]]()
        try:
            inside = getattr(type(config)(**{key: {"model_type": inner[part]}}), key)
            other = other_numbers(own, inside)
        except Exception:  # noqa: BLE001 - a class that is not made from a type alone
            continue
        found |= {part: other} if other else {}
    return {"section_defaults": found} if found else {}


def whole_defaults(config: Any, main: str) -> dict[str, dict[str, Any]]:
    """What a class takes for a file without an object of its main part, where that object's own class differs."""
    held = [getattr(config, key, None) for key in type(config).sub_configs]
    inside = next((each for each in held if getattr(each, "model_type", None) == main), None)
    other = {} if inside is None else other_numbers(transformers.CONFIG_MAPPING[main](), inside)
    return {"defaults": other} if other else {}


def other_numbers(own: Any, inside: Any) -> dict[str, Any]:
    """The quantities that a config object has otherwise than the one that its class makes by itself."""
    try:
        first, second = (
            {name: class_default(each, config_keys(own, name)) for name in INSIDE} | {"base": base_in(each)}
            for each in (own, inside)
        )
    except Exception:  # noqa: BLE001 - a class with other values for each layer tells none for all
        return {}
    other = {name: value for name, value in second.items() if value != first[name] and is_number(value)}
    shape: list[Any] = [second[name] for name in ("head_width", "heads", "hidden")]
    if other.keys() & {"hidden", "heads"} and all(map(is_number, shape)) and shape[0] * shape[1] != shape[2]:
        # Else the width of a head would follow from these.
        other["head_width"] = second["head_width"]
    return other


def base_in(config: Any) -> float | None:
    """The base that a config object has for all layers."""
    return (getattr(config, "rope_parameters", None) or {}).get("rope_theta")


def with_fields_of_the_class(row: dict[str, Any], config: Any) -> dict[str, Any]:
    """The row, which names further fields of the class about position as known: they are no keys that it ignores."""
    other = known._filled(row["like"]) if "like" in row else {}
    read = {key for each in (row, other) for keys in each.get("reads", {}).values() for key in keys}
    held = as_file(config)
    further = [key for key in known.table()["position_keys"] if held.get(key) not in (None, False, "", [], {})]
    further = [key for key in further if key not in read]
    return row | {"reads": row.get("reads", {}) | {"unused": further}} if further else row


def row_of_modules(found: PositionModules, framed: bool, reasons: list[str]) -> dict[str, Any] | None:
    """The row that the modules of a model give; ``framed`` where its config holds those of models inside."""
    part = part_of(found)
    if found.rotary:
        return rotary_row(found, part, reasons)
    whole = [row for row in (learned_row(found, *table) for table in found.tables) if row is not None]
    # What rotates may keep its cosines and sines as such a table.
    whole += () if rotations(found) else sinusoid_rows(found)
    if (row := row_of_copy(found, part, whole, reasons)) is not None:
        return row
    if whole:
        return merged(whole, input_of(found))
    if found.tables:
        reasons.append(f"what counts the rows of {', '.join(path for path, _, _ in found.tables)} was not found")
        return None
    around = joined(shape(found.config, ("hidden",)), layers(found), limit(found))
    if found.relative:
        said = "; ".join(dict(RELATIVE_TERMS)[mark] for mark in found.relative)
        code = {"part": part, "kind": "relative", **sinusoids_of_distance(found)}
        return around | {"codes": [code], "notes": said}
    if part == "vision" and of_rows_and_columns(found):
        return joined(around, width_of_sines(found)) | {
            "codes": [{"part": part, "kind": "sinusoidal"}],
            "notes": "sinusoids of rows and of columns, each half of the channels; computed where they are added",
        }
    if found.sines:
        reasons.append(f"sinusoids of {', '.join(dict.fromkeys(found.sines))} are computed where they are added")
        return None
    if found.inner and framed and not found.attends:
        return {"codes": []}
    if found.inner:
        reasons.append(f"made of {', '.join(dict.fromkeys(found.inner))}, which the config does not hold apart")
        return None
    if not isinstance(found.model, transformers.PreTrainedModel) and any(
        issubclass(each, transformers.PreTrainedModel) for each in model_classes(found.config)
    ):
        reasons.append("its whole model cannot be made")
        return None
    if not found.attends:
        return around | {"codes": [{"part": part, "kind": "none"}], "notes": "no attention"}
    names = position_names(found) if own_classes(found) else {"no module of its own"}
    if not names:
        taken = " ".join(inspect.signature(found.model.forward).parameters)
        if part == "text" and "input" not in taken:
            part = "vision" if re.search("image|pixel|vision", taken) else "other"
        context = shape(found.config, ("context",)) if part == "text" else NOTHING
        return joined(around, context) | {"codes": [{"part": part, "kind": "none"}], "notes": "no position is added"}
    reasons.append(f"attention, and no module about position, but {', '.join(sorted(names)[:6])}")
    return None


def other_names() -> dict[str, list[str]]:
    """By model type, the classes of the library whose names do not tell that they are of the type."""
    found: dict[str, set[str]] = {}
    mappings = [name for name in dir(modeling_auto) if re.fullmatch(r"MODEL\w*_MAPPING_NAMES", name)]
    for name, classes in (pair for mapping in mappings for pair in getattr(modeling_auto, mapping).items()):
        of_type = known.model_type(name)
        for each in (classes,) if isinstance(classes, str) else classes:
            config = {"model_type": name, "architectures": [each]}
            if of_type is not None and known.named_otherwise(config, of_type):
                found.setdefault(name, set()).add(each)
    return {name: sorted(classes) for name, classes in sorted(found.items())}


def heads() -> list[str]:
    """What the classes of the library are called after the names of their models, where they are for a task."""
    found = (re.search(r"For[A-Z]\w*$", name) for name in dir(transformers))
    return sorted({each[0] for each in found if each})


def types_inside(name: str) -> set[str]:
    """The types of the models inside the default config of a type."""
    kind = transformers.CONFIG_MAPPING[name]
    try:
        config = kind() if kind.sub_configs else None
    except Exception:  # noqa: BLE001 - a class that has no default config
        return set()
    subs: Any = kind.sub_configs
    return {getattr(getattr(config, key, None), "model_type", None) or "" for key in subs}


def in_order(names: list[str]) -> list[str]:
    """Types after those of the models inside them: a model made of parts is like its parts."""
    waiting, inside, ordered = list(names), {name: types_inside(name) - {name} for name in names}, []
    while waiting:
        ready = [name for name in waiting if not inside[name] & {*waiting}] or waiting
        ordered += ready
        waiting = [name for name in waiting if name not in ready]
    return ordered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="model types whose rows are printed; all are written if none is named")
    chosen = parser.parse_args()
    transformers.logging.set_verbosity_error()
    types = known.table()["types"]
    needed = set(by_hand())
    while further := {types[name].get("like") for name in needed} - needed - {None}:
        needed |= further  # a row of a class may be like another one
    for name in [name for name in types if name not in needed]:
        del types[name]
    rows, failed = {}, {}
    for name in chosen.names or in_order(
        [name for name in sorted(transformers.CONFIG_MAPPING) if name not in by_hand()]
    ):
        reasons: list[str] = []
        try:
            row = row_of(name, reasons)
        except Exception as error:  # noqa: BLE001 - a class that cannot be made here
            row, reasons = None, [" ".join(f"{type(error).__name__}: {error}".split())[:160]]
        if row is None:
            failed[name] = reasons
        else:
            rows[name] = types[name] = row
        if row is None or chosen.names:
            print(name, json.dumps(row) if row else reasons, flush=True)
    print(f"{len(by_hand())} rows by hand, {len(rows)} read from classes, {len(failed)} without a row")
    if not chosen.names:
        says = "Written by tools/model_types.py: one row for each model type, read from the class that it names."
        lines = ",\n".join(f'    "{name}": {json.dumps(row)}' for name, row in sorted(rows.items()))
        library = f"transformers {transformers.__version__}"
        head = f'{{\n  "about": {json.dumps(says)},\n  "library_of_classes": "{library}",\n'
        named = ",\n".join(f'    "{name}": {json.dumps(classes)}' for name, classes in other_names().items())
        parts = ",\n".join(f'    "{name}": {json.dumps(held)}' for name, held in parts_of_classes().items())
        body = f'  "heads_of_classes": {json.dumps(heads())},\n'
        body += f'  "other_names_of_classes": {{\n{named}\n  }},\n  "parts_of_classes": {{\n{parts}\n  }},\n'
        body += f'  "types_of_classes": {{\n{lines}\n  }}\n}}\n'
        READ.write_text(head + body, encoding="utf-8")


if __name__ == "__main__":
    main()
