"""Rows of model types whose code is that of another type: like its row, with values of the class.

What differs is measured: defaults and keys of the config class, the kinds of its layers by the rules of
`clockhands.configs.layer_rules`, the layout, and the scaling that the class takes where a file has none.
"""

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from class_gaps import as_file, gaps, layer_gaps, layers_of_class, layers_varied, varied, with_row
from class_sources import (
    indexer_source,
    likeness,
    position_sources,
    rotating_conditions,
    rotations,
    signature,
    source_of,
    taken_keys,
)
from clockhands.configs import model_types as known
from clockhands.configs.layer_rules import RULES
from clockhands.configs.resolved import INDEXER
from clockhands.models.built_classes import class_part
from clockhands.models.class_encodings import direction, ladders, layout
from clockhands.models.class_modules import (
    PositionModules,
    config_keys,
    is_number,
    meta_model,
    model_classes,
    modeling_code,
    position_modules,
)
from varied_configs import completions

BY_HAND = Path(known.__file__).with_name("model_types.json")
CONFIRMED = Path(known.__file__).with_name("confirmed_types.json")
MOST_TRIED = 8  # relatives whose row is tried
PLAIN = ("llama", "phi")  # tried first: the code that most types have
COPY = 0.7  # the likeness from which a type is taken for a copy

# Quantities that files hold under other keys than the fields of a class, which reads them in its own code.
_IN_CODE = ("base", "share", "local_base")
# Quantities that config classes take from a file without keeping them.
_TAKEN = ("base", "local_base", "share", "window_period")
# The keys that every config class takes whose own code names no other.
_STANDARD = {"base": ["rope_theta"], "share": ["partial_rotary_factor"]}
# Quantities that every class reads by the functions for scalings that all have, or that are no quantities.
_OF_ALL = ("original", "blocks", "unused")
# Quantities that other classes of the same code do not have.
_SWITCHES = ("window", "window_on", "window_from", "window_period", "layer_types", "layer_bases", "interleave")
# Quantities of rotary codes that a type may have beside those of the type that it is like.
_FURTHER = ("window", "window_on", "window_from", "window_period", "layer_types", "layer_bases")


@dataclass(frozen=True)
class Relative:
    """What is compared of the code of a type."""

    sources: Mapping[str, str]
    signatures: frozenset[str]
    rotations: frozenset[str]
    conditions: frozenset[str]
    indexer: str | None


@cache
def by_hand() -> dict[str, dict[str, Any]]:
    """The rows that a person wrote, those that their classes confirm among them."""
    return confirmed_rows() | json.loads(BY_HAND.read_text(encoding="utf-8"))["types"]


def confirmed_rows() -> dict[str, dict[str, Any]]:
    """The rows that a person wrote and the class of the type confirms."""
    return json.loads(CONFIRMED.read_text(encoding="utf-8"))["confirmed_types"]


def relative(found: PositionModules) -> Relative:
    """What is compared of the code of a type."""
    signatures = frozenset(signature(module) for module in found.rotary)
    return Relative(
        position_sources(found), signatures, rotations(found), rotating_conditions(found), indexer_source(found.model)
    )


def built(config: Any) -> nn.Module:
    """The class of a config without memory for its weights, with what default configs of some classes lack.

    Raises:
        ValueError: It cannot be made.
    """
    why: ValueError | None = None
    for values in completions(config):
        completed = type(config)(**values) if values else config
        try:
            model = meta_model(completed, model_classes(completed)[: 1 if "head_dim" in values or not values else None])
        except ValueError as error:
            why = why or error
            continue
        model.config = config
        return model
    try:
        return meta_model(config, model_classes(config))
    except ValueError:
        raise why or ValueError("no class takes this config") from None


@cache
def founders() -> set[str]:
    """The types that others may be like: those with a row by a person, and those that rows of the last run are like."""
    rows = known.table()["types_of_classes"].values()
    # The row of a model that is made of others is like that of its main part, whatever its code is.
    return by_hand().keys() | {
        row["like"] for row in rows if "like" in row and row["like"] not in row.get("sections", {}).values()
    }


def stands_on(name: str, other: str) -> bool:
    """Whether the row of a type is like that of another, or like one that is."""
    types = known.table()["types"]
    while name != other and "like" in types.get(name, {}):
        name = types[name]["like"]
    return name == other


@cache
def relatives() -> dict[str, Relative]:
    """The types of the library that others may be like."""
    held = {}
    for name in sorted(founders()):
        if name not in transformers.CONFIG_MAPPING:
            continue
        try:
            config = transformers.CONFIG_MAPPING[name]()
            held[name] = relative(position_modules(name, config, built(config)))
        except Exception:  # noqa: BLE001 - whatever a class does not like about its own default config
            continue
    return held


# Making a row


def class_value(config: Any, key: str) -> Any:
    """What a config class takes for a key: its field's default, where an object of default values turns it off."""
    return getattr(config, key, None) or getattr(type(config), key, None)


def defaults_like(config: Any, row: Mapping[str, Any], other: Any) -> dict[str, Any]:
    """The defaults of a config class for what a row reads, as far as they differ from those of the row.

    Args:
        config: The default config of the class.
        row: A row that is filled in.
        other: The default config of the class of the row's own type.
    """
    values: dict[str, Any] = {}
    # A rule says the kinds of layers of any number of them.
    of_type = () if "layer_types" in row.get("defaults", {}) else ("layer_types",)
    left_out = ("unused", "stages", "layer_bases", *of_type)
    for quantity, keys in row["reads"].items():
        present = [key for key in keys if key in type(config).attribute_map or hasattr(config, key)]
        value = class_value(config, present[0]) if present and quantity not in left_out else None
        if quantity == "layers" and (stages := [key for key in row["reads"].get("stages", ()) if hasattr(config, key)]):
            value = sum(getattr(config, stages[0]))
        if value is None or isinstance(value, dict | str) or value == []:
            continue
        if quantity == "head_width" and getattr(type(config), present[0], value) is None:
            continue  # the class divides its width by its heads
        values[quantity] = list(value) if isinstance(value, tuple) else value
    taken = [key for key in row["reads"].get("window_period", ()) if is_number(taken_keys(type(config)).get(key))]
    if taken:
        values["window_period"] = taken_keys(type(config))[taken[0]]
    block = getattr(config, "rope_parameters", None) or {}
    nested = {key: each for key, each in block.items() if isinstance(each, dict)}
    base = block.get("rope_theta", (nested.get("full_attention") or {}).get("rope_theta"))
    if is_number(base):
        values["base"] = base
    local = (nested.get("sliding_attention") or {}).get("rope_theta")
    if is_number(local) and "local_base" in row["reads"]:
        values["local_base"] = local
    if row["reads"].get("share"):
        share = block.get("partial_rotary_factor", values.get("share"))
        values["share"] = share if is_number(share) else 1.0
    # What no key of either class says, such as that heads have two parts, is taken over.
    inherited = {
        quantity: None
        for quantity in row.get("defaults", {})
        if quantity not in values
        and (row["reads"].get(quantity) == [] or any(hasattr(other, key) for key in row["reads"].get(quantity, ())))
    }
    return {key: value for key, value in (inherited | values).items() if row.get("defaults", {}).get(key) != value}


@cache
def _text_of(*files: str) -> str:
    return "".join(Path(file).read_text(encoding="utf-8") for file in files)


def code_of(config: Any) -> str:
    """The text of the files with the config class and the modules of a type."""
    return _text_of(inspect.getfile(type(config)), modeling_code(config).__file__)


def reads_share(found: PositionModules) -> bool:
    """Whether a rotary module of a class rotates a share of a head that the config says."""
    return any("partial_rotary_factor" in source_of(type(module)) for module in found.rotary)


@cache
def spellings(quantity: str) -> tuple[str, ...]:
    """The keys that any type with a row by a person has for a quantity, and the usual ones first."""
    usual = known.table()["spellings"]["config"].get(quantity, ())
    others = [key for row in by_hand().values() for key in row.get("reads", {}).get(quantity, ())]
    return tuple(dict.fromkeys([*usual, *others]))


def keys_of_class(config: Any, quantity: str) -> list[str]:
    """The keys under which a config class keeps or takes a quantity."""
    if own := config_keys(config, quantity):
        return own
    held = {*vars(config), *taken_keys(type(config))} if quantity in _TAKEN else set()
    return [key for key in spellings(quantity) if key in held][:1]


def copied_row(found: PositionModules, name: str, code: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a type that is like another, with what its own class has in place of that."""
    config, other = found.config, known._filled(name)
    read = other.get("reads", {})
    text = code_of(config)
    fields = {*config.to_dict(), *vars(config), *type(config).attribute_map}
    reads: dict[str, list[str]] = {}
    for quantity, keys in read.items():
        own = config_keys(config, quantity)
        if not keys:
            continue
        if (not fields & {*keys} and not any(key in text for key in keys) and (own or quantity in _SWITCHES)) or (
            own and own[0] != keys[0] and own[0] in fields and quantity not in (*_OF_ALL, *_IN_CODE, "hidden")
        ):
            reads[quantity] = own
    if found.rotary:
        slides = any(seen.windowed for _, seen in layers_varied(found))
        for quantity in _FURTHER if slides else ("window_period", "layer_types", "layer_bases"):
            if not read.get(quantity) and (own := keys_of_class(config, quantity)):
                reads[quantity] = own
        for quantity in _TAKEN:
            own = [key for key in spellings(quantity) if key in taken_keys(type(config))]
            if not own and not any(key in text for key in read.get(quantity, ())):
                own = list(_STANDARD.get(quantity, ()))
            if read.get(quantity) and own and read[quantity] != own:
                reads[quantity] = own
        if "share" in read and not reads_share(found):
            reads["share"] = []
        elif not read.get("share") and reads_share(found):
            reads["share"] = config_keys(config, "share") or ["partial_rotary_factor"]
    row: dict[str, Any] = {"like": name}
    if reads:
        row["reads"] = reads
    of_other = transformers.CONFIG_MAPPING[name]()
    if defaults := defaults_like(config, {**other, "reads": {**read, **reads}}, of_other):
        row["defaults"] = defaults
    if code:
        row["code"] = dict(code)
    return row


def part_of_copy(config: Any, part: str, of_other: str) -> dict[str, str]:
    """The part of a code, where a type without a vocabulary is of another than the type that has the same code."""
    other = part not in (of_other, "text") and of_other in ("text", "audio", "vision")
    return {"part": part} if other and not hasattr(config, "vocab_size") else {}


def copies(found: PositionModules) -> list[str]:
    """The types with a row by a person whose code is that of a type, the likest first."""
    ours = relative(found)
    alike = {
        name: likeness(ours.sources, other.sources)
        for name, other in relatives().items()
        if not stands_on(name, found.name)
    }
    near = [name for name, share in alike.items() if share >= COPY]
    return sorted(near, key=lambda name: (-alike[name], name))


def tables_agree(tables: Sequence[Mapping[str, Any]], codes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether learned tables that were read from a class are those of some codes."""
    said = ("part", "offset", "extra_rows", "padding", "rows")
    theirs = [{name: code.get(name) or 0 for name in said} for code in codes if code["kind"] == "learned"]
    return all({name: code.get(name) or 0 for name in said} in theirs for code in tables)


def row_of_copy(
    found: PositionModules, part: str, tables: Sequence[Mapping[str, Any]], reasons: list[str]
) -> dict[str, Any] | None:
    """The row of a type whose classes are copies of those of a type with a row by a person.

    Args:
        found: Its modules.
        part: The part that it is.
        tables: A row for each of its learned tables, as far as these were read.
        reasons: Why no row is found; added to.
    """
    for name in copies(found):
        other = known._filled(name)
        codes = other["codes"]
        code = part_of_copy(found.config, part, codes[0]["part"]) if len(codes) == 1 else {}
        switches = {key for each in codes for name in each.get("when", {}) for key in other["reads"][name]}
        if switches and not any(hasattr(found.config, key) for key in switches):
            continue
        if not tables_agree([table["codes"][0] for table in tables], codes):
            reasons.append(f"like {name}, whose code it has: another table")
            continue
        row = copied_row(found, name, code)
        for key, held in ((key, tables[0][key]["hidden"]) for key in ("reads", "defaults") if tables):
            # Some models have an embedding narrower than their layers: the width is that of the table.
            own = row.get(key, {}).get("hidden", other[key].get("hidden"))
            if held != own and not (key == "reads" and held[0] == own[0]):
                row[key] = {**row.get(key, {}), "hidden": held}
        if not any(gaps(found, row, as_file(found.config), found.config)):
            return row
        reasons.append(f"like {name}, whose code it has: another result")
    return None


def rule_of_layers(found: PositionModules, row: Mapping[str, Any], code: Mapping[str, Any]) -> dict[str, Any] | None:
    """The rule, and its period, by which the layers of a row see what those of the class see; None if no rule does."""

    def fits(changed: Mapping[str, Any]) -> bool:
        tried = {**row, "code": {**row.get("code", {}), **changed}}
        return not any(
            gap
            for values, theirs in layers_varied(found)
            for gap in layer_gaps(with_row(found.name, tried, values), theirs)
        )

    own = {name: code[name] for name in ("rule", "period") if name in code}
    if fits({}):
        return {}
    for rule in (None, *RULES):
        for period in (None, 2, 3, 4, 5, 6):
            changed = {"rule": rule, "period": period}
            if fits(changed):
                return {name: value for name, value in changed.items() if own.get(name) != value}
    return None


def fails_at_scalings(found: PositionModules) -> bool:
    """Whether the rotary module fails at a scaling where the config does not give the width of a head."""
    config = found.config
    if not hasattr(config, "head_dim") or class_value(config, "head_dim") is not None or len(found.rotary) > 1:
        return False
    block = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 1024}
    try:
        type(found.rotary[0])(config=type(config)(rope_parameters=block))
    except TypeError:
        return True
    except Exception:  # noqa: BLE001 - a class without this scaling
        return False
    return False


def scaling_of_class(config: Any, aliases: Mapping[str, str]) -> dict[str, Any]:
    """The rotary block that a class takes where a file has none, if that has a scaling other than the default."""
    block = as_file(config).get("rope_parameters") or {}
    kinds = {each.get("rope_type", "default") for each in (block, *block.values()) if isinstance(each, dict)}
    return block if kinds - {"default", *aliases} else {}


def rotates_by_tokens(found: PositionModules) -> bool:
    """Whether the rotary module of a class makes cosines of the number of a token times each frequency, and no more."""
    if len(found.rotary) != 1 or "section" in source_of(type(found.rotary[0])):
        return False
    rotary = type(found.rotary[0])(config=found.config)
    for label, ladder in ladders(rotary).items():
        cosine, _ = rotary(torch.zeros(1, 1, 2), torch.tensor([[7]]), **({"layer_type": label} if label else {}))
        expected = (7 * torch.tensor(ladder.rates)).cos() * ladder.factor
        copies = cosine.numel() // len(expected)
        found_cosines, expected = cosine.flatten().sort().values, expected.repeat(copies).sort().values
        if found_cosines.shape != expected.shape or not torch.allclose(found_cosines, expected, atol=1e-5):
            return False
    return True


def measured_layout(found: PositionModules, part: str) -> str | None:
    """The layout of all rotary modules of a class, measured; None if it could not be."""
    if part == "text":
        return layout(found.config)
    layouts = {ladder.layout for ladder in class_part("", found).ladders}
    return layouts.pop() if len(layouts) == 1 else None


def rotary_row(found: PositionModules, part: str, reasons: list[str]) -> dict[str, Any] | None:
    """The shortest row of a type with rotary modules that computes the same, like a type with a row by a person."""
    ours, rows = relative(found), []
    try:
        alone = part != "vision" and rotates_by_tokens(found)
    except Exception:  # noqa: BLE001 - a module that takes something else than the numbers of tokens
        alone = False
    names = [
        name
        for name, other in relatives().items()
        if (ours.signatures & other.signatures or (alone and name in PLAIN)) and not stands_on(name, found.name)
    ]
    stems = found.name.replace("-", "_").split("_")
    alike = {name: likeness(ours.sources, relatives()[name].sources) for name in names}
    names.sort(key=lambda name: (name not in PLAIN, -len(_shared(stems, name)), -alike[name], name))
    # An argument of the attention may be lacking in the layers that are listed as those without it.
    listed = layers_of_class(found, found.config).still
    conditions = {each for each in ours.conditions if ("self." in each or not listed) and "cross" not in each}
    for name in names[:MOST_TRIED]:
        other = relatives()[name]
        codes = [code for code in known._filled(name)["codes"] if code["part"] != INDEXER]
        if ours.indexer != other.indexer:
            reasons.append(f"like {name}: another indexer, or none")
            continue
        if not codes or len(codes) > len(found.rotary) or codes[0].get("when") or codes[0]["kind"] != "rotary":
            continue
        if codes[0]["part"] not in ("text", part) or (part == "vision" and ours.rotations != other.rotations):
            continue
        if conditions != other.conditions:
            continue  # no module shows which layers its attention does not rotate
        try:
            measured = part != "vision" and ours.rotations != other.rotations
            pairs = measured_layout(found, part) if measured else codes[0].get("layout")
            row = _like_rotary(
                found, part, name, pairs, direction(found.config) if measured and part == "text" else None
            )
            parted = [gap for values, config in varied(found.config) for gap in gaps(found, row, values, config)]
            parted += list(gaps(found, row, {}, found.config))
            if not parted and measured and (pairs is None or _layouts(row) != {pairs}):
                parted.append("layout by other code")
        except Exception as error:  # noqa: BLE001 - the library's own code on an unusual config
            parted = [f"{type(error).__name__}: {error}"]
        else:
            if not parted:
                rows.append(row)
        if parted:
            reasons.append(f"like {name}: {'; '.join(dict.fromkeys(parted))[:150]}")
    return min(rows, key=lambda row: len(json.dumps(row)), default=None)


def _like_rotary(found: PositionModules, part: str, name: str, pairs: str | None, turns: str | None) -> dict[str, Any]:
    """A row like another with the layout, the direction, the scaling and the rule of layers that the class shows."""
    code = known._filled(name)["codes"][0]
    single = len(known._filled(name)["codes"]) == 1
    changed: dict[str, Any] = part_of_copy(found.config, part, code["part"]) if single else {}
    if single and pairs != code.get("layout"):
        changed["layout"] = pairs
    if single and turns not in (None, code.get("direction", "forward")):
        changed["direction"] = turns
    if single and fails_at_scalings(found) != code.get("fragile", False):
        changed["fragile"] = fails_at_scalings(found) or None
    block = scaling_of_class(found.config, code.get("aliases", {}))
    if single and block != code.get("block", {}):
        changed["block"] = block or None
    row = copied_row(found, name, changed)
    if single and (rule := rule_of_layers(found, row, code)):
        row["code"] = {**row.get("code", {}), **rule}
    return row


def _layouts(row: Mapping[str, Any]) -> set[str | None]:
    """The layouts of the codes that a row has, besides those of an indexer."""
    codes = known._filled(row["like"])["codes"]
    return {{**code, **row.get("code", {})}.get("layout") for code in codes if code["part"] != INDEXER}


def _shared(stems: list[str], other: str) -> list[str]:
    """The words with which both names begin; that both end in "text" makes them no relatives."""
    theirs = other.replace("-", "_").split("_")
    return [stem for stem, _ in takewhile(lambda pair: pair[0] == pair[1], zip(stems, theirs, strict=False))]
