"""What the code of a model says about positions: layout, base, rotated channels, tables and biases."""

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clockhands.configs.fields import Sourced
from clockhands.configs.model_code._definitions import Event, Exhausted
from clockhands.configs.model_code._following import FollowedCode
from clockhands.configs.model_code._idioms import scalings_compared
from clockhands.configs.model_code._known_values import Class, Known, Value
from clockhands.configs.model_code._tensors import NESTED, ODD
from clockhands.phrases import listed

# The classes of a model that a config names, the first existing one.
_MODELS = ("AutoModelForCausalLM", "AutoModel", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM")

# Modules outside of the folder, or names in them, that may compute positions.
_OF_OTHERS = re.compile(r"transformers\.models\b.*|AutoModel.*|.*(rotary|rope|position|alibi).*", re.IGNORECASE)

# Tables of distances, of queries for objects, and of the edges of boxes.
_NO_POSITIONS = re.compile(r"relative|distance|rel_|query|^[xyhw]_|type|possible")


@dataclass(frozen=True)
class CodeFacts:
    """What the Python files beside a config show; a field is None where nothing shows it, or two places differ.

    Attributes:
        model: The class that was followed; None if no file defines it.
        rotates: Where channels are rotated: file and line; None if no such place was found.
        cosines: Where frequencies reach a cosine or a sine.
        chosen: Whether only objects rotate that the model makes under a condition that the config does not decide.
        by_number: Whether the number of a layer decides that it rotates.
        layout: Which two channels form a pair.
        base: The base of the frequencies that reach a cosine or a sine.
        rotated: How many channels of a head are rotated.
        by_length: Where the base grows with the length of the text while the model runs.
        changed: Where frequencies are computed that are then multiplied by a number that is no scaling of the config,
            or go through a function that may change them: their base says nothing.
        odd: Where channels are combined with cosines and sines otherwise than by RoPE: exchanged, in the other
            direction, or with angles that are doubled for the other layout. The base says nothing then either.
        log_n: The length beyond which logarithms of the position to the base of that length are computed.
        biased: Where the slopes of ALiBi are computed, in a model that has no frequencies: linear attention decays by
            the same numbers.
        sinusoids: Where sines and cosines of positions are put into every second channel, in a model that rotates
            nothing.
        scalings: Where the type of a scaling is compared with each name; empty for a config without scaling.
        tables: The rows of each table of positions, by the attribute that holds it.
        closed: Whether all of the code was followed: the class was found, and the files import no code of other models.
    """

    model: str | None
    rotates: str | None = None
    cosines: str | None = None
    chosen: bool = False
    by_number: bool = False
    layout: Sourced[str] | None = None
    base: Sourced[float] | None = None
    rotated: Sourced[int] | None = None
    by_length: str | None = None
    changed: str | None = None
    odd: str | None = None
    log_n: Sourced[int] | None = None
    biased: str | None = None
    sinusoids: str | None = None
    scalings: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Sourced[int]] = field(default_factory=dict)
    closed: bool = False

    @property
    def says(self) -> list[str]:
        """What was read, in clauses with file and line."""
        found = []
        if self.layout is not None:
            style = "half-split" if self.layout.value == "halves" else "interleaved"
            found.append(f"the layout {style} ({self.layout.source})")
        if self.chosen or self.by_number:
            found.append(f"a rotation that perhaps not every layer has ({self.rotates})")
        if self.base is not None and self.base.value is not None:
            what = "the RoPE base" if self.rotates is not None else "frequencies, perhaps of a table, with the base"
            found.append(f"{what} {self.base.value:,.10g} ({self.base.source})")
        if self.rotated is not None and self.rotates is not None:
            found.append(f"{self.rotated.value} RoPE dimensions ({self.rotated.source})")
        if self.by_length is not None:
            found.append(f"a base that grows with the length of the text ({self.by_length})")
        if self.changed is not None:
            found.append(f"frequencies that are changed after they are computed from a base ({self.changed})")
        if self.odd is not None:
            found.append(f"cosines and sines that meet channels otherwise than in RoPE ({self.odd})")
        if self.log_n is not None:
            found.append(f"factors for log-n attention beyond {self.log_n.value:,} tokens ({self.log_n.source})")
        if self.biased is not None:
            found.append(f"the slopes of ALiBi ({self.biased})")
        if self.sinusoids is not None:
            found.append(f"a table of sinusoids ({self.sinusoids})")
        if self.layout is None and self.rotates is not None:
            found.append(f"a rotation whose layout is not recognised ({self.rotates})")
        found += [f"a table of {rows.value:,} rows ({rows.source})" for rows in self.tables.values()]
        if self.scalings:
            names = listed(f"{name} ({place})" for name, place in self.scalings.items())
            found.append(f"comparisons of the scaling's type with {names}")
        return found or ["nothing about positions that is recognised"] * self.closed


def read_code(trees: Mapping[str, ast.Module], config: Mapping[str, Any], file: str) -> CodeFacts:
    """What the files say of the text part of a model whose config is in ``file``."""
    code = FollowedCode(trees)
    kind, model = _classes(code, config)
    if model is None:
        return CodeFacts(None)
    try:
        code.follow(model, code.config(kind, config, f"{file}:"))
    except (Exhausted, RecursionError):
        return CodeFacts(model.node.name)
    rotations = [event for event in code.events if event.kind == "rotation"]
    used = [event for event in code.events if event.kind == "frequencies"]
    base, rotated = (_agreed([getattr(event.value[0], name) for event in used]) for name in ("base", "width"))
    places = {event.value[0].place for event in used}
    uneven = rotated is not None and rotated.value % 2 != 0
    if uneven or (rotations and all(event.value == NESTED for event in rotations)):
        base = rotated = None  # those of an axis, or no width of pairs
    changed = next((event.value[0].place for event in used if _is_changed(event, config)), None)
    odd = next((event.place for event in rotations if event.value == ODD), None)
    base = None if changed is not None or odd is not None else base
    return CodeFacts(
        model.node.name,
        rotates=rotations[0].place if rotations else None,
        cosines=used[0].value[0].place if used else None,
        chosen=bool(rotations) and not any(event.certain for event in rotations),
        by_number=bool(rotations) and all(event.numbered for event in rotations),
        layout=_layout(rotations),
        base=None if base is None else Sourced(float(base.value), _sources(base, places)),
        rotated=None if rotated is None else Sourced(int(rotated.value), _sources(rotated, places)),
        by_length=next((event.value[0].place for event in used if event.value[0].by_length), None),
        changed=changed,
        odd=odd,
        log_n=_log_n(code.events),
        biased=next((event.place for event in code.events if event.kind == "slopes" and not used), None),
        sinusoids=None if rotations else _sinusoids(code.events),
        scalings=_scalings(trees, config),
        tables={event.name: table for event in code.events if (table := _table(event)) is not None},
        closed=not any(_imports_models(tree) for tree in trees.values()),
    )


def _imports_models(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level != 1:
            names = [node.module or "", *(each.name for each in node.names)]
            if node.level > 1 or any(_OF_OTHERS.fullmatch(name) for name in names):
                return True
    return False


def _classes(code: FollowedCode, config: Mapping[str, Any]) -> tuple[Class | None, Class | None]:
    """The class of the config and that of the model, as far as a config names them and the files define them."""
    named = config.get("auto_map")
    named = named if isinstance(named, Mapping) else {}
    places = {key: each.rpartition(".") for key, each in named.items() if isinstance(each, str)}
    classes = {key: code.class_named(name, f"{module}.py") for key, (module, _, name) in places.items()}
    listed = config.get("architectures")
    own = [code.class_named(each) for each in listed if isinstance(each, str)] if isinstance(listed, list) else []
    models = [*(classes.get(key) for key in _MODELS), *own]
    kind = classes["AutoConfig"] if "AutoConfig" in classes else code.config_class(config.get("model_type"))
    return kind, next((each for each in models if each is not None), None)


def _layout(rotations: Sequence[Event]) -> Sourced[str] | None:
    """The one layout of all rotations."""
    found = {event.value: event.place for event in reversed(rotations) if event.value != NESTED}
    (layout, place), *others = found.items() if found else ((None, ""),)
    return None if others or layout not in ("halves", "interleaved") else Sourced(layout, place)


def _is_changed(event: Event, config: Mapping[str, Any]) -> bool:
    """Whether frequencies reach a cosine otherwise than a base and the factor in the config give them."""
    frequencies, scale = event.value
    blocks = [config.get(key) for key in ("rope_scaling", "rope_parameters")]
    factors = [block.get("factor") for block in blocks if isinstance(block, Mapping)]
    known = [1.0, *(1 / each for each in factors if isinstance(each, int | float) and each)]
    return frequencies.changed or not any(math.isclose(scale, each, rel_tol=1e-6) for each in known)


def _agreed(values: Sequence[Value]) -> Known | None:
    """The one number that all places have."""
    numbers = {each.number for each in values if isinstance(each, Known)}
    known = all(isinstance(each, Known) for each in values)
    found = next((each for each in values if isinstance(each, Known)), None)
    return found if known and len(numbers) == 1 and found is not None and found.number is not None else None


def _sources(found: Known, places: set[str]) -> str:
    return ", ".join(dict.fromkeys((*sorted(places), *found.sources)))


def _log_n(events: Sequence[Event]) -> Sourced[int] | None:
    """The one length to whose base logarithms of positions are computed."""
    found = {event.value.number: event for event in events if event.kind == "logarithm"}
    (length, event), *others = found.items() if found else ((None, None),)
    if others or length is None or event is None:
        return None
    return Sourced(int(length), ", ".join((event.place, *event.value.sources)))


def _sinusoids(events: Sequence[Event]) -> str | None:
    """Where code whose name is about positions, and no other code, fills a table with sines and cosines."""
    found = [each for each in events if each.kind == "sinusoids" and "pos" in each.name.lower()]
    others = {each.name for each in events if each.kind == "frequencies"} - {each.name for each in found}
    return found[0].place if {each.value for each in found} == {"cos", "sin"} and not others else None


def _scalings(trees: Mapping[str, ast.Module], config: Mapping[str, Any]) -> dict[str, str]:
    """The names of scalings that the code of a model knows, if its config has one, each with its place."""
    if not config.get("rope_scaling"):
        return {}
    found: dict[str, str] = {}
    for file, tree in trees.items():
        if not file.startswith("configuration_"):  # which checks more than the model computes
            for name, line in scalings_compared(tree):
                found.setdefault(name, f"{file}:{line}")
    return found


def _table(event: Event) -> Sourced[int] | None:
    """The rows of a table of positions, by the name of the attribute that holds it."""
    name = event.name.lower()
    about = ("pos" in name or "wpe" in name) and not _NO_POSITIONS.search(name)
    if event.kind != "table" or not about or not isinstance(event.value, Known) or event.value.number is None:
        return None
    return Sourced(int(event.value.number), ", ".join(dict.fromkeys((event.place, *event.value.sources))))
