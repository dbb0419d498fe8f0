"""Write configs/null_keys.json: what the classes of the installed Transformers make of a key that is null.

For every model type of the library, and every key that the audit reads of it, the class is built without memory for its
weights from a config in which that key alone is null. What it computes is compared with the default config. A null that
changes what a class computes is written only if the audit, which then takes no default, computes the same. One that
changes nothing counts as the default only if another value of the key changes something.

Run it after tools/model_types.py: half an hour on one core. `NAME …` measures these types alone and keeps what the file
says of the others: enough where only their rows changed.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import transformers

from clockhands.auditing.class_comparison import comparison
from clockhands.configs import null_keys
from clockhands.configs.model_types import model_type, model_types
from clockhands.configs.null_keys import DEFAULT, FAILS, NOTHING, REFUSED, UNKNOWN
from clockhands.configs.resolve import resolve
from clockhands.configs.targets import Opened
from clockhands.errors import Unreadable
from clockhands.models.built_classes import class_config, reading
from clockhands.models.class_readings import ClassReading

LIBRARY = f"transformers {transformers.__version__}"

LAYERS = 8
"""Layers that are built, where the class takes the number."""


def quantities(name: str) -> dict[str, str]:
    """The keys that are read of a type, with the quantity of each; empty for a type of another library."""
    known = model_type(name)
    if known is None or known.library != LIBRARY:
        return {}
    keys = {key: quantity for quantity, keys in known.reads.items() for key in keys if quantity != "unused"}
    return {key: quantity for key, quantity in keys.items() if "." not in key}


def held(name: str) -> dict[str, str]:
    """What the file says that null means to the class of a type, by key."""
    known = model_type(name)
    return {} if known is None else {key: null_keys.meaning_of_null(known, key) for key in quantities(name)}


def meanings(name: str) -> dict[str, str]:
    """What null means to the class of a type, by key; empty for a type of another library."""
    known, keys = model_type(name), quantities(name)
    if known is None or not keys:
        return {}
    for layers in (known.reads.get("layers", ())[:1], ()):
        config = {"model_type": name, **dict.fromkeys(layers, LAYERS)}
        try:
            plain = Plain(config, class_config(config).to_dict(), reading(config))
        except Exception:  # noqa: BLE001 - a class that cannot be built from its defaults, or not with other layers
            continue
        return {key: plain.meaning(key, known.defaults.get(keys[key])) for key in keys}
    return dict.fromkeys(keys, UNKNOWN)


@dataclass(frozen=True)
class Plain:
    """A config without a null, what its config class holds, and what its class computes."""

    config: Mapping[str, Any]
    values: Mapping[str, Any]
    reading: ClassReading

    def meaning(self, key: str, default: Any) -> str:
        """What null means for a key whose default the audit knows, or None."""
        config = {**self.config, key: None}
        try:
            held = class_config(config).to_dict()
        except Unreadable as error:
            # Any other error than that of the type of the field may not come with other values of other keys.
            return REFUSED if "StrictDataclassFieldValidationError" in error.message else FAILS
        if held == self.values or default is None or key in self.config:
            return DEFAULT if held == self.values or default is None else UNKNOWN
        try:
            made = reading(config)
        except Unreadable:
            return FAILS
        except Exception:  # noqa: BLE001 - code that reads a class, and finds a null where a number should be
            return UNKNOWN
        if made.parts == self.reading.parts:
            return DEFAULT if any(self.differs(key, other) for other in others(default)) else UNKNOWN
        null_keys.measured_nulls().update({"library": LIBRARY, "keys": {key: [NOTHING, {}]}})
        found, usual = compared(made, config), compared(self.reading, self.config)
        null_keys.measured_nulls.cache_clear()
        return NOTHING if usual and usual <= found else UNKNOWN

    def differs(self, key: str, value: Any) -> bool:
        """Whether the class computes something else with another value of a key."""
        try:
            return reading({**self.config, key: value}).parts != self.reading.parts
        except Exception:  # noqa: BLE001 - a value that does not go with the others
            return False


def compared(made: ClassReading, config: Mapping[str, Any]) -> set[str]:
    """What the audit of a config says as the class does; nothing, if it says anything otherwise or leaves it open."""
    resolved = resolve(Opened("config.json", "config", config=dict(config), config_name="config.json"))
    found = comparison(made, resolved)
    unclear = {fact.code for fact in resolved.facts} & {"missing-value", "impossible-value"}
    return set() if found.differences or unclear else set(found.same)


def others(default: Any) -> Iterator[Any]:
    """Other values than the default of a key."""
    if isinstance(default, bool):
        yield not default
    elif isinstance(default, int | float):
        yield from (2 * default, default / 2 if isinstance(default, float) else default // 2)


def as_text(found: Mapping[str, Mapping[str, str]]) -> str:
    """The file: for each key what null usually means, and the types in which it means something else."""
    lines = []
    for key in sorted({key for keys in found.values() for key in keys}):
        told = {name: keys[key] for name, keys in sorted(found.items()) if key in keys}
        usual = Counter(told.values()).most_common(1)[0][0]
        different: dict[str, list[str]] = {}
        for name, means in told.items():
            if means != usual:
                different.setdefault(means, []).append(name)
        lines.append(f"    {json.dumps(key)}: {json.dumps([usual, dict(sorted(different.items()))])}")
    says = "Written by tools/null_keys.py: for each key what null usually means to the classes, and where it does not."
    body = ",\n".join(lines)
    return f'{{\n  "about": {json.dumps(says)},\n  "library": "{LIBRARY}",\n  "keys": {{\n{body}\n  }}\n}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="model types that are measured; all if none is named")
    chosen = parser.parse_args().names
    transformers.logging.set_verbosity_error()
    found = {name: held(name) for name in model_types()}
    found |= {name: meanings(name) for name in chosen or sorted(found)}
    null_keys.FILE.write_text(as_text(found), encoding="utf-8")


if __name__ == "__main__":
    main()
