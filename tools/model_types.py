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
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests")]

import torch  # noqa: E402
import transformers  # noqa: E402
from torch import nn  # noqa: E402
from transformers.models.auto import modeling_auto  # noqa: E402

from clockhands.configs import model_types as known  # noqa: E402
from clockhands.configs.resolve import resolve  # noqa: E402
from clockhands.configs.resolved import INDEXER, layer_numbers  # noqa: E402
from clockhands.configs.targets import Opened  # noqa: E402
from clockhands.models.class_encodings import ladders, layout, windowed_layers  # noqa: E402
from clockhands.models.class_modules import (  # noqa: E402
    RELATIVE_TERMS,
    PositionModules,
    class_default,
    config_keys,
    generic_path,
    is_number,
    meta_model,
    model_classes,
    modeling_code,
    own_modules,
    position_modules,
)
from clockhands.models.class_readings import LAYER_KINDS  # noqa: E402

CONFIGS = ROOT / "src" / "clockhands" / "configs"
BY_HAND, READ = CONFIGS / "model_types.json", CONFIGS / "types_of_classes.json"
CLOSE = 4e-6  # the modules hold their frequencies in float32

# What a name says of the part of a model.
PARTS = (
    ("text", re.compile(r"_text(_model|_config|_encoder|_decoder)?$")),
    ("vision", re.compile(r"vision|image|(^|_)vit|visual|dinov|swin|sam\d*_|pixel|patch|vq", re.IGNORECASE)),
    ("audio", re.compile(r"audio|speech|wav|codec|voice|asr|acoustic|mimi|tts", re.IGNORECASE)),
)
INPUTS = {"pixel_values": "vision", "pixel_values_videos": "vision", "input_features": "audio", "input_values": "audio"}

# What an object inside a config may take from the class around it.
INSIDE = ("hidden", "heads", "layers", "head_width", "context", "window")


def part_of(found: PositionModules) -> str:
    """The part of a model that a type is."""
    for part, words in PARTS:
        if words.search(found.name) or words.search(type(found.model).__name__):
            return part
    return INPUTS.get(getattr(found.model, "main_input_name", "input_ids"), "text")


def shape(config: Any, quantities: tuple[str, ...]) -> dict[str, Any]:
    """``reads`` and ``defaults`` of a row for some quantities."""
    reads, defaults = {}, {}
    for quantity in quantities:
        keys = config_keys(config, quantity)
        value = class_default(config, keys)
        if not keys:
            continue
        reads[quantity] = keys
        if is_number(value):
            defaults[quantity] = value
    return {"reads": reads, "defaults": defaults}


# Learned tables


def rebuilt(found: PositionModules, **values: Any) -> nn.Module | None:
    """The same class with other values in its config, or None if it cannot be made."""
    try:
        with torch.device("meta"):
            return type(found.model)(type(found.config)(**values))
    except Exception:  # noqa: BLE001 - a value that does not go with the others
        return None


def rows_at(model: nn.Module | None, path: str) -> int | None:
    """How many rows the table at a path has."""
    if model is None:
        return None
    held = {generic_path(key): value for key, value in model.named_parameters()}
    value = held.get(path)
    return None if value is None else value.shape[-2]


def table_row(found: PositionModules, path: str, module: nn.Module, size: tuple[int, ...]) -> dict[str, Any] | None:
    """The row of a type with a learned table, or None if what counts its rows cannot be told."""
    config, (rows, width) = found.config, size
    numbers = {key: value for key, value in config.to_dict().items() if is_number(value) and isinstance(value, int)}
    part = part_of(found)
    part = next((side for side in ("encoder", "decoder") if path.startswith(f"{side}.")), part)
    code: dict[str, Any] = {"part": part, "kind": "learned"}
    tensor = ".".join(path.split(".")[-3:])
    row = shape(config, ("layers", "decoder_layers") if part in ("encoder", "decoder") else ("layers",))
    # The width is that of the table: some models have an embedding narrower than their layers.
    own = [*(config_keys(config, "hidden")[:1]), "embedding_size", "embed_dim"]
    wide = next((key for key in (*own, *numbers) if numbers.get(key) == width), None)
    if wide is None:
        return None
    row["reads"]["hidden"], row["defaults"]["hidden"] = [wide, *config_keys(config, "hidden")[1:]], width
    image, patch = numbers.get("image_size"), numbers.get("patch_size")
    if image and patch and 0 <= rows - (image // patch) ** 2 <= 8:
        extra = rows - (image // patch) ** 2
        further = rebuilt(found, image_size=image + 2 * patch)
        if rows_at(further, path) == (image // patch + 2) ** 2 + extra:
            code |= {"part": "vision", "rows": "patches", "extra_rows": extra, "offset": 0, "tensors": [tensor]}
            row["reads"] |= {"image": ["image_size"], "patch": ["patch_size"]}
            row["defaults"] |= {"image": image, "patch": patch}
            return row | {"codes": [code]}
    for key, value in sorted(numbers.items(), key=lambda pair: ("position" not in pair[0], pair[0])):
        if not 0 <= rows - value <= 4 or key == wide:
            continue
        if rows_at(rebuilt(found, **{key: value + 16}), path) != rows + 16:
            continue
        extra, pad = rows - value, getattr(module, "padding_idx", None)
        aliases = [alias for alias, real in type(config).attribute_map.items() if real == key]
        row["reads"]["context"], row["defaults"]["context"] = [key, *aliases], value
        code |= {"rows": "context", "tensors": [tensor]}
        offset = getattr(module, "offset", 0)
        if pad is not None and pad == getattr(config, "pad_token_id", None) and not offset:
            # Its positions follow the row of padding, if the code makes them so.
            if extra or "create_position_ids_from" not in inspect.getsource(modeling_code(config)):
                return None
            row["reads"]["pad"], row["defaults"]["pad"] = ["pad_token_id"], pad
            code |= {"offset": "pad", "padding": "pad"}
        elif extra != offset and part not in ("vision", "audio"):
            return None  # rows more than positions, and nothing says where the first position is
        else:
            code |= {"offset": offset} | ({"extra_rows": extra} if extra else {})
        return row | {"codes": [code]}
    return None


def merged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of several: an encoder and a decoder, each with its table. Of several in one part the first counts."""
    whole = rows[0]
    for row in rows[1:]:
        new = row["codes"][0]["part"] not in {code["part"] for code in whole["codes"]}
        if new and all(whole["reads"].get(name, keys) == keys for name, keys in row["reads"].items()):
            whole = {name: whole[name] | row[name] for name in ("reads", "defaults")} | {
                "codes": whole["codes"] + row["codes"]
            }
    return whole


# Rotary modules


@cache
def plain(source: str) -> str:
    """The source of a function without comments and names of classes, by which copies are recognised."""
    source = re.sub(r'"""[\s\S]*?"""|#.*', "", source)
    return re.sub(r"\s+", " ", re.sub(r"\b[A-Z]\w*(?=Config|Rot|RoPE|Rope|Attention|Position)", "X", source))


def signature(module: nn.Module) -> str:
    """What a rotary module does when it is called, in a form that is the same for copies of it."""
    kind = type(module)
    left_out = ("__init__", "compute_default_rope_parameters")
    methods = [each for name, each in sorted(vars(kind).items()) if inspect.isfunction(each) and name not in left_out]
    sections = re.findall(r"mrope_section[^\n]*", inspect.getsource(kind.__init__))
    return plain("".join(map(inspect.getsource, methods)) + "".join(sections))


def applied(found: PositionModules) -> frozenset[str]:
    """The functions by which the modules of a model rotate queries and keys, likewise; with those that they call."""
    code = modeling_code(found.config)
    named = {
        name: plain(re.sub(r"\b\w*rot\w*(?=\()", "f", inspect.getsource(each)))
        for name, each in inspect.getmembers(code, inspect.isfunction)
        if re.search(r"rot|rope", name)
    }
    own = {type(module) for _, module in own_modules(found.model, []) if type(module).__module__ == code.__name__}
    text = "".join(inspect.getsource(each) for each in own)
    called = {name for name in named if re.search(rf"\b{name}\b", text)}
    called |= {
        other
        for name in called
        for other in named
        if re.search(rf"\b{other}\b", inspect.getsource(getattr(code, name)))
    }
    return frozenset(named[name] for name in called)


def indexer_of(model: nn.Module) -> str | None:
    """What the indexer of a sparse attention does, in a form that is the same for copies of it; None without one."""
    kinds = [type(module) for _, module in own_modules(model, []) if type(module).__name__.endswith("Indexer")]
    return plain(inspect.getsource(kinds[0].forward)) if kinds else None


@cache
def indexer_by_hand(name: str) -> str | None:
    """The same of a type with a row by hand, which says whether it has one."""
    if not any(code["part"] == INDEXER for code in known._filled(name)["codes"]):
        return None
    config = transformers.CONFIG_MAPPING[name]()
    return indexer_of(meta_model(config, model_classes(config)))


@cache
def by_hand() -> dict[str, dict[str, Any]]:
    """The rows that a person wrote."""
    return json.loads(BY_HAND.read_text(encoding="utf-8"))["types"]


@cache
def signatures() -> dict[str, dict[str, frozenset[str]]]:
    """Signature of a rotary module to the types with a row by hand that have it, and how these rotate."""
    held: dict[str, dict[str, frozenset[str]]] = {}
    for name in by_hand():
        if name not in transformers.CONFIG_MAPPING:
            continue
        try:
            config = transformers.CONFIG_MAPPING[name]()
            found = position_modules(name, config, meta_model(config, model_classes(config)))
        except Exception:  # noqa: BLE001 - whatever a class does not like about its own default config
            continue
        for module in found.rotary:
            held.setdefault(signature(module), {})[name] = applied(found)
    return held


def with_row(name: str, row: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """What the audit resolves for a config, if its type had this row."""
    types = known.table()["types"]
    before = types.get(name)
    types[name] = dict(row)
    known.model_type.cache_clear()
    try:
        config = {"model_type": name, **values}
        return resolve(Opened(target="config.json", form="config", config=config, config_name="config.json"))
    finally:
        if before is None:
            del types[name]
        else:
            types[name] = before
        known.model_type.cache_clear()


def as_file(config: Any) -> dict[str, Any]:
    """A config as its file has it."""
    return json.loads(json.dumps(config.to_dict(), default=str))


def same(ours: Any, theirs: Sequence[float]) -> bool:
    """Whether frequencies agree, of an image those of its rows and those of its columns with what both have."""
    if ours is None:
        return False
    halves = [ours] if len(ours) == len(theirs) else [ours[: len(ours) // 2], ours[len(ours) // 2 :]]
    return all(
        len(half) == len(theirs)
        and all(abs(mine - other) <= CLOSE * abs(other) for mine, other in zip(half, theirs, strict=True))
        for half in halves
    )


def gaps(found: PositionModules, row: Mapping[str, Any], values: Mapping[str, Any], config: Any) -> Iterator[str]:
    """What the audit would say otherwise than the modules of the class, if the type had this row."""
    resolved = with_row(found.name, row, values)
    codes = [code for code in resolved.codes if code.kind == "rotary"]
    listed = getattr(config, "layer_types", None)
    for module in found.rotary:
        for label, ladder in ladders(type(module)(config=config)).items():
            theirs = ladder.rates
            if label and listed is not None and label not in listed:
                continue
            if not any(same(code.rates, theirs) for code in codes):
                ours = [(code.layers, code.rates and (len(code.rates), code.rates[-1])) for code in codes]
                yield f"frequencies of {label or 'all layers'} ({len(theirs)}, {theirs[-1]:.4g}), not {ours}"
    layers = sum(len(layer_numbers(code.layers or "")) for code in resolved.codes if code.part != INDEXER)
    count = class_default(config, config_keys(config, "layers"))
    if codes and isinstance(count, int) and layers != count:
        yield f"{layers} layers, not {count}"
    slides = {layer for code in codes if code.window for layer in layer_numbers(code.layers or "")}
    theirs = windowed_layers(found, config)
    if codes and slides != theirs:
        yield f"a window in the layers {sorted(slides)[:4]}, not {sorted(theirs)[:4]}"
    still = {layer for layer, kind in enumerate(listed or ()) if LAYER_KINDS.get(kind) == "none"}
    ours = {layer for code in resolved.codes if code.kind == "none" for layer in layer_numbers(code.layers or "")}
    if codes and not still <= ours:
        yield f"rotation in the layers {sorted(still - ours)[:4]}, which have no attention"
    parts = [getattr(config, key, None) for key in ("qk_nope_head_dim", "qk_rope_head_dim")]
    if all(map(is_number, parts)) and not any((code.width, code.rotated) == (sum(parts), parts[1]) for code in codes):
        yield f"heads of {parts[0]} unrotated and {parts[1]} rotated dimensions"
    bad = {fact.code for fact in resolved.facts} & {"impossible-value", "missing-value", "unknown-model-type"}
    yield from sorted(bad)


def defaults_like(config: Any, other: str) -> dict[str, Any]:
    """The defaults of a config class for what the row of another type reads."""
    row = known._filled(other)
    values: dict[str, Any] = {}
    for quantity, keys in row["reads"].items():
        present = [key for key in keys if hasattr(config, key)]
        value = class_default(config, present)
        if value is None or isinstance(value, dict | str) or value == []:
            continue
        if quantity == "head_width" and getattr(type(config), present[0], value) is None:
            continue  # the class divides its width by its heads
        values[quantity] = list(value) if isinstance(value, tuple) else value
    block = getattr(config, "rope_parameters", None) or {}
    nested = {key: each for key, each in block.items() if isinstance(each, dict)}
    base = block.get("rope_theta", (nested.get("full_attention") or {}).get("rope_theta"))
    if is_number(base):
        values["base"] = base
    local = (nested.get("sliding_attention") or {}).get("rope_theta")
    if is_number(local) and "local_base" in row["reads"]:
        values["local_base"] = local
    if is_number(block.get("partial_rotary_factor")) and "share" in row["reads"]:
        values["share"] = block["partial_rotary_factor"]
    # What no key of the other type says, such as that its heads have two parts, is taken over.
    inherited = {key: None for key in row.get("defaults", {}) if key not in values and key in row["reads"]}
    return {key: value for key, value in (inherited | values).items() if row.get("defaults", {}).get(key) != value}


def varied(config: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """The default config and, where the class takes them, others: another base, fewer layers, another length."""
    yield as_file(config), config
    values: dict[str, Any] = {}
    if block := getattr(config, "rope_parameters", None):
        if any(isinstance(each, dict) for each in block.values()):
            values["rope_parameters"] = {
                key: {**each, "rope_theta": 3 * each.get("rope_theta", 1e4)} if isinstance(each, dict) else each
                for key, each in block.items()
            }
        else:
            values["rope_parameters"] = {**block, "rope_theta": 3 * block.get("rope_theta", 1e4)}
    heads = config_keys(config, "heads")
    hidden = config_keys(config, "hidden")
    if (
        heads
        and hidden
        and getattr(type(config), "head_dim", None) is None
        and isinstance(class_default(config, hidden), int)
    ):
        values[hidden[0]] = 2 * class_default(config, hidden)
    try:
        other = type(config)(**values)
        yield as_file(other), other
    except Exception:  # noqa: BLE001 - a class that holds some of these to its other values
        return


def rotary_row(found: PositionModules, reasons: list[str]) -> dict[str, Any] | None:
    """The row of a type with rotary modules, like the first type by hand that computes the same."""
    part = part_of(found)
    names = [name for module in found.rotary for name in sorted(signatures().get(signature(module), ()))]
    stems, indexer = found.name.replace("-", "_").split("_"), indexer_of(found.model)
    # The nearest relative first, then the plainest.
    names.sort(key=lambda name: (-len(_shared(stems, name)), name != "llama", "like" in by_hand()[name], name))
    for name in dict.fromkeys(names):
        codes = [code for code in known._filled(name)["codes"] if code["part"] != INDEXER]
        if indexer != indexer_by_hand(name):
            reasons.append(f"like {name}: another indexer, or none")
            continue
        if (
            not codes
            or (part == "vision") != (codes[0]["part"] == "vision")
            or (part != "audio" and codes[0]["part"] == "audio")
            or len(codes) > len(found.rotary)
            or codes[0].get("when")
        ):
            continue
        row: dict[str, Any] = {"like": name}
        if values := defaults_like(found.config, name):
            row["defaults"] = values
        try:
            parted = [gap for values, config in varied(found.config) for gap in gaps(found, row, values, config)]
            parted += list(gaps(found, row, {}, found.config))
            if not parted and applied(found) not in _ways(found, name):
                theirs, ours = layout(found.config) if part == "text" else "by other code", codes[0].get("layout")
                if theirs != ours:
                    parted.append(f"layout {theirs}, not {ours}")
        except Exception as error:  # noqa: BLE001 - the library's own code on an unusual config
            parted = [f"{type(error).__name__}: {error}"]
        if not parted:
            return row
        reasons.append(f"like {name}: {'; '.join(dict.fromkeys(parted))[:150]}")
    return None


def _ways(found: PositionModules, name: str) -> list[frozenset[str]]:
    held = (signatures().get(signature(module), {}) for module in found.rotary)
    return [types[name] for types in held if name in types]


def _shared(stems: list[str], other: str) -> list[str]:
    """The words with which both names begin; that both end in "text" makes them no relatives."""
    theirs = other.replace("-", "_").split("_")
    return [stem for stem, _ in takewhile(lambda pair: pair[0] == pair[1], zip(stems, theirs, strict=False))]


# All of it


def row_of(name: str, reasons: list[str]) -> dict[str, Any] | None:
    """The row of a type, or None with the reasons."""
    config = transformers.CONFIG_MAPPING[name]()
    inner = {
        known.table()["sections"].get(key): getattr(getattr(config, key, None), "model_type", None)
        for key in type(config).sub_configs
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
        return {"like": main, "sections": inner, **more, "class": type(config).__name__}
    model = meta_model(config, model_classes(config))
    found = position_modules(name, config, model)
    row = row_of_modules(found, bool(inner), reasons)
    if row is None:
        return None
    row = with_fields_of_the_class(row, config)
    return {**row, **({"sections": inner} if inner else {}), **more, "class": type(model).__name__}


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
            numbers = [
                {name: class_default(each, config_keys(own, name)) for name in INSIDE} | {"base": base_in(each)}
                for each in (own, inside)
            ]
        except Exception:  # noqa: BLE001 - a class that is not made from a type alone
            continue
        other = {name: value for name, value in numbers[1].items() if value != numbers[0][name] and is_number(value)}
        found |= {part: other} if other else {}
    return {"section_defaults": found} if found else {}


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
        return rotary_row(found, reasons)
    rows = [table_row(found, *table) for table in found.tables]
    whole = [row for row in rows if row is not None]
    if whole:
        return merged(whole)
    if found.tables:
        reasons.append(f"what counts the rows of {', '.join(path for path, _, _ in found.tables)} was not found")
        return None
    around = shape(found.config, ("hidden", "layers"))
    if found.relative:
        said = "; ".join(dict(RELATIVE_TERMS)[mark] for mark in found.relative)
        return around | {"codes": [{"part": part, "kind": "relative"}], "notes": said}
    if found.sines:
        reasons.append(f"sinusoids of {', '.join(dict.fromkeys(found.sines))} are computed where they are added")
        return None
    if found.inner and framed and not found.attends:
        return {"codes": []}
    if found.inner:
        reasons.append(f"made of {', '.join(dict.fromkeys(found.inner))}, which the config does not hold apart")
        return None
    if not found.attends:
        return around | {"codes": [{"part": part, "kind": "none"}], "notes": "no attention"}
    reasons.append("attention, and no module about position")
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="model types whose rows are printed; all are written if none is named")
    chosen = parser.parse_args()
    transformers.logging.set_verbosity_error()
    types = known.table()["types"]
    for name in [name for name in types if name not in by_hand()]:
        del types[name]
    names = chosen.names or [name for name in sorted(transformers.CONFIG_MAPPING) if name not in by_hand()]
    # A model made of parts is like its parts, so these come first.
    names.sort(key=lambda name: bool(getattr(transformers.CONFIG_MAPPING[name], "sub_configs", None)))
    rows, failed = {}, {}
    for name in names:
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
        body = f'  "other_names_of_classes": {{\n{named}\n  }},\n  "types_of_classes": {{\n{lines}\n  }}\n}}\n'
        READ.write_text(head + body, encoding="utf-8")


if __name__ == "__main__":
    main()
