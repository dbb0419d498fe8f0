"""Finds the parts of a config, the kind of position code that each declares, and position keys that were not read."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Any

from clockhands.configs.composition import is_reference
from clockhands.configs.fields import MOST_FACTS, Fields, Sourced, shown
from clockhands.configs.model_types import ModelType, model_type, table
from clockhands.configs.null_keys import meaning_of_null
from clockhands.configs.resolved import SECOND, Fact, LayerEncoding
from clockhands.configs.rope_blocks import NEW
from clockhands.phrases import spoken

# A name or a letter for each layer.
LISTS_OF_LAYERS = ("layers_block_type", "hybrid_override_pattern")

# The deepest nesting: a config has three levels at most.
DEEPEST = 4

# Words in the names of such keys, beyond those that the table knows.
ABOUT_POSITION = re.compile(
    r"rope|rotary|alibi|yarn|ntk|(^|[_.])position|(^|_)theta($|_)|sliding_window|mscale|^att_context_size$|^llama_4_scaling$|attention\.temperature_"
)
# Quantities of a model that are not about positions by themselves.
SHAPE = frozenset({"hidden", "heads", "head_width", "layers", "decoder_layers", "image", "patch"})
# The deepest nesting: a block, one for each kind of layer, a list of numbers.
_DEEPEST_BLOCK = 3


@dataclass(frozen=True)
class Section:
    """One part of a model with the object of the config that describes it.

    Attributes:
        part: ``text``, ``encoder``, ``decoder``, ``vision``, ``audio`` or ``other``.
        path: The place of the object, such as ``"text_config."``.
        values: The object.
        outer: The object around it, or None.
        outer_path: The place of that object.
        model: The place of the object of the whole model; see `model_in`.
        places: The sources of keys (with dots into objects) that the file does not have.
    """

    part: str
    path: str
    values: Mapping[str, Any]
    outer: Mapping[str, Any] | None = None
    places: Mapping[str, str] = field(default_factory=dict)
    outer_path: str = ""
    model: str = ""

    @property
    def whole(self) -> bool:
        """Whether it is described by the object of the whole model, not by an object in it."""
        return self.path == self.model


# The keys that name a model.
_NAMES = frozenset({"model_type", "architectures"})


def model_in(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The place and the object of the whole model: the config itself, or the only part of one that names no model."""
    inner = list(_parts_inside(config)) if _only_holds(config) else []
    if len(inner) != 1:
        return "", config
    place, of, values = inner[0]
    holder = place.partition(".")[0]
    if place not in table()["sections"] and holder != place and _NAMES & config[holder].keys():
        return f"{holder}.", config[holder]  # a model of several parts
    return (f"{place}.", values) if of == "other" else ("", config)


def _only_holds(config: Mapping[str, Any]) -> bool:
    return not _NAMES & config.keys() and not any(has_shape(config))


def sections(config: Mapping[str, Any], part: str = "text") -> Iterator[Section]:
    """The parts of a config: the objects with a known name or the shape of a part.

    The object of the model is one too if none of them holds its text part; but not where it only holds objects.
    """
    path, model = model_in(config)
    for section in _sections(model, path, part):
        yield replace(section, model=path, outer=section.outer or (config if path else None))


def _sections(config: Mapping[str, Any], path: str, part: str) -> Iterator[Section]:
    inner = list(_parts_inside(config)) if path.count(".") < DEEPEST else []
    only_holds = not path and _only_holds(config)
    if not any(of in ("text", "encoder", "decoder") for _, of, _ in inner) and not (inner and only_holds):
        yield Section(part, path, config)
    for key, of, values in inner:
        for section in _sections(values, f"{path}{key}.", of if part == "text" else part):
            yield section if section.outer else replace(section, outer=config, outer_path=path)


# Words in the names of objects that describe parts.
_PARTS_BY_NAME = {
    "text": re.compile(r"(^|_)(l?lm|language|text|transformer_layer)(_|$)"),
    "vision": re.compile(r"vision|visual|image|(^|_)vit(_|$)"),
    "audio": re.compile(r"audio|speech|acoustic"),
}


def _parts_inside(config: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The objects that describe parts, each with its key and its part; another object may hold one."""
    objects = {key: held for key, held in config.items() if isinstance(key, str) and isinstance(held, Mapping) and held}
    named = table()["sections"]
    for key, of in named.items():
        outer, _, inner = key.partition(".")
        held = objects.get(outer, {}).get(inner) if inner else objects.get(outer)
        if isinstance(held, Mapping) and held:
            yield key, of, held
    for key, values in objects.items():
        held = {key: values} | {f"{key}.{name}": inner for name, inner in values.items() if isinstance(name, str)}
        for place, inner in () if key in named else held.items():
            if is_part(place.rpartition(".")[2], inner):
                of = next((part for part, words in _PARTS_BY_NAME.items() if words.search(place)), "other")
                yield place, of, inner
                break


def has_shape(values: Mapping[str, Any]) -> list[bool]:
    """Whether an object has layers, heads and a width."""
    spelt = table()["spellings"]["config"]
    keys = (("layers", "decoder_layers"), ("heads",), ("hidden", "head_width"))
    return [any(type(values.get(key)) is int for quantity in names for key in spelt[quantity]) for names in keys]


def is_part(name: str, values: Any) -> bool:
    """Whether an object describes a part: it has layers, heads and a width, or a RoPE key and one of these."""
    spelt = table()["spellings"]["config"]
    if not isinstance(values, Mapping) or name in spelt["blocks"]:
        return False
    has, rotary = has_shape(values), {*spelt["base"], *spelt["local_base"], *spelt["blocks"]}
    return name in table()["sections"] or all(has) or (any(has) and bool(rotary & values.keys()))


def fields_of(section: Section, file: str, known: ModelType | None, facts: list[Fact]) -> Fields:
    """The fields of a part, by the keys and defaults of its type; for an unknown type, by usual keys."""
    if known is None:
        return Fields(section.values, file, table()["spellings"]["config"], facts, path=section.path)
    defaults, source = known.defaults, known.default_source
    predicting = table()["spellings"]["config"]["predicting"]
    reads = {"predicting": predicting, **known.reads, **_other_names(section.values, known)}
    values, places = _with_layers_counted(section, file, reads.get("layers", ()), reads.get("stages", ()))
    beside = _inner_values(section.outer or {}, reads)
    values = {**beside, **values, **_inner_values(values, reads)}
    if places:
        reads["layers"] = list(places)
    around = "".join(f"{key}." for key in section.path.split(".")[:-2])
    places = {**{key: f"{file}:{around}{key}" for key in beside}, **places, **section.places}
    keys = {key for names in reads.values() for key in names}
    nulls = {key: meaning_of_null(known, key) for key in keys if key in values and values[key] is None}
    return Fields(
        values, file, reads, facts, path=section.path, defaults=defaults, default_source=source, places=places,
        nulls=nulls, of_class=known.class_title,
    )  # fmt: skip


def _inner_values(values: Mapping[str, Any], reads: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """What a type reads under dotted keys, which lead into objects inside or beside that of a part."""
    found = {}
    for key in {key for keys in reads.values() for key in keys if "." in key}:
        outer, _, inner = key.partition(".")
        held = values.get(outer)
        if isinstance(held, Mapping) and inner in held:
            found[key] = held[inner]
    return found


def _with_layers_counted(
    section: Section, file: str, keys: Sequence[str], stages: Sequence[str]
) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """The object with its number of layers, if it has a list of layers or the numbers of its stages."""
    values = section.values
    for listed in stages:
        held = values.get(listed)
        if isinstance(held, list) and held and all(type(count) is int and count > 0 for count in held):
            return {**values, keys[0]: sum(held)}, {keys[0]: f"sum of {file}:{section.path}{listed}"}
    if not keys or any(key in values for key in keys):
        return values, {}
    for listed in LISTS_OF_LAYERS:
        held = values.get(listed)
        if isinstance(held, list | str) and held:
            counted = {**values, keys[0]: len(held)}
            return counted, {keys[0]: f"length of {file}:{section.path}{listed}"}
    return values, {}


def _other_names(values: Mapping[str, Any], known: ModelType) -> dict[str, list[str]]:
    """Sizes under a usual name that the type does not read: they have priority over any default.

    The length is not among them: the class uses its default, and the key is a finding, ``ignored-key``.
    """
    found: dict[str, list[str]] = {}
    for quantity in ("hidden", "heads", "layers"):
        own = known.reads.get(quantity, ())
        if not own or any(key in values for key in own):
            continue
        taken = {key for other, keys in known.reads.items() if other != quantity for key in keys}
        names = [key for key in table()["spellings"]["config"][quantity] if key in values and key not in taken]
        if names:
            found[quantity] = [*own, *names]
    return found


def foreign_sizes(values: Mapping[str, Any], known: ModelType) -> list[str]:
    """The sizes of a config that names a type and has none of the type's own keys for them: another program wrote it.

    llm-analysis names the types of Transformers in its files, and its own keys.
    """
    own = {key for quantity in ("hidden", "heads", "layers") for key in known.reads.get(quantity, ())}
    if own & values.keys():
        return []
    return [key for keys in _other_names(values, known).values() for key in keys if key in values]


def declared_kinds(fields: Fields) -> list[Sourced[str]]:
    """The kinds that the fields of an unknown type declare, each with the key that declares it."""
    found: list[Sourced[str]] = []

    def add(kind: str, key: str) -> None:
        if all(other.value != kind for other in found):
            found.append(Sourced(kind, fields.source(key)))

    for key, kind in _switches(fields):
        add(kind, key)
    off = [key for key in _ROTARY_SWITCHES if fields.values.get(key) is False]
    fields.read.update(off)
    for quantity in () if off else ("base", "local_base", "blocks", "share", "rotated"):
        held = [key for key in fields.present(quantity) if fields.values[key] not in (0, {}, False)]
        if held:
            add("rotary", held[0])
            break
    styles = table()["styles"]
    for key in styles["keys"]:
        style = fields.values.get(key)
        if not isinstance(style, str):
            continue
        fields.read.add(key)
        kind = styles["kinds"].get(style.lower())
        if kind is None:
            fields.unreadable(key, f"one of {', '.join(styles['kinds'])}")
        elif kind != "learned" or not found:
            # Configs derived from BERT keep "absolute" even when another encoding is used.
            add(kind, key)
    return found


# Keys that say whether a model has RoPE; where one is false, a base beside it is not used.
_ROTARY_SWITCHES = ("rope", "rotary", "use_rope", "use_rotary", "use_rotary_embeddings", "rotary_embedding")


def _switches(fields: Fields) -> Iterator[tuple[str, str]]:
    values = fields.values
    attention = values.get("attn_config")
    fields.read.update(("alibi", "relative_attention", "relative_attention_num_buckets", "rotary"))
    if values.get("alibi") is True:
        yield "alibi", "alibi"
    if isinstance(attention, Mapping) and attention.get("alibi") is True:
        yield "attn_config.alibi", "alibi"
    if values.get("relative_attention_num_buckets"):
        yield "relative_attention_num_buckets", "buckets"
    if values.get("relative_attention") is True:
        yield "relative_attention", "relative"
    if values.get("rotary") is True:
        yield "rotary", "rotary"


def part_of(section: Section, name: str | None) -> str:
    """The part of a section; a type of a tower for images or sound is not text."""
    if section.part != "text" or not section.whole or name is None:
        return section.part
    for part, words in (("vision", ("vision", "vit", "image", "dinov")), ("audio", ("audio", "wav2vec", "wavlm"))):
        if any(word in name.lower() for word in words):
            return part
    return section.part


def ignored_keys(fields: Fields, known: ModelType, codes: Sequence[LayerEncoding], *, certain: bool) -> frozenset[str]:
    """Note position keys that the code of the type does not read; the sources of those that repeat what its codes do.

    Nothing is said of a key without the code of a release that lacks it, nor of a file of another program, which is not
    ``certain`` to be read by that code.
    """
    data = table()
    code = known.code if certain else None
    idle = set()
    fields.present("unused")
    for quantity, value in known.fixed.items() if code is not None else ():
        found = fields.raw(quantity)
        if found is not None and found.value != value:
            fields.ignored(found.source, found.value, f"{code}, sets it itself", spoken(value))
    meaning = {key: quantity for quantity, keys in data["spellings"]["config"].items() for key in keys}
    for key in data["position_keys"]:
        value = fields.values.get(key)
        if value is None or value is False or value in ([], {}, "") or key in fields.read:
            continue
        idle.add(fields.source(key))
        if isinstance(value, str) and value in data["harmless"].get(key, ()):
            continue
        quantity = meaning.get(key, "context" if "len" in key else "")
        instead = [other for other in known.reads.get(quantity, ()) if other in fields.values]
        if any(fields.values[other] == value for other in instead):
            continue
        if not instead and value == known.fixed.get(quantity, known.defaults.get(quantity)):
            continue  # it repeats the class default
        if _as_computed(quantity, value, [code for code in codes if code.kind == "rotary"]):
            continue
        if value is True and any(row.kind == key for row in known.rows):
            continue  # a switch for the code that the type has
        if any(key in keys for name, keys in known.reads.items() if name != quantity):
            continue  # it says something else in this type, of layers that this model has none of
        if quantity == "context" and instead:
            continue  # both say how long a text may be: that they disagree is told as such
        idle.remove(fields.source(key))
        if code is None or not code.lacks(key):
            continue
        because = f"{code}, does not read it"
        reads = known.reads.get(quantity)
        fields.ignored(fields.source(key), value, because, ", ".join(reads) if reads else None)
    base, default = inner_base(fields, known), known.defaults.get("base")
    if base is not None and base.value == default:
        idle.add(base.source)
    elif base is not None and code is not None and not code.lacks(NEW):
        instead = "The class's own default" if default is None else f"{default:,.0f}, the default of the class,"
        fields.ignored(base.source, base.value, f"{code}, rotates by the base in {NEW}", instead)
    return frozenset(idle)


def repeated_orders(fields: Fields, codes: Sequence[LayerEncoding]) -> frozenset[str]:
    """The sources of switches for an order of pairs that the codes have whatever the switch says."""
    rotary = [code for code in codes if code.kind == "rotary" and code.part not in SECOND]
    sections = all(code.sections is not None and code.sections["order"] == "interleaved" for code in rotary)
    layouts = all(code.layout == "interleaved" for code in rotary)
    repeats = {"mrope_interleaved": sections, "rope_interleave": layouts} if rotary else {}
    blocks = [
        f"{key}." for key in table()["spellings"]["config"]["blocks"] if isinstance(fields.values.get(key), Mapping)
    ]
    held = {place: fields.values[place[:-1]] if place else fields.values for place in ("", *blocks)}
    return frozenset(
        fields.source(f"{place}{key}")
        for key, repeated in repeats.items()
        for place, values in held.items()
        if repeated and values.get(key) is True
    )


# The names that programs use for RoPE with each layout, in a key for the encoding.
_NAMED_LAYOUTS = {"rope_gptj": "interleaved", "rope_gpt_neox": "halves"}


def _as_computed(quantity: str, value: Any, turning: Sequence[LayerEncoding]) -> bool:
    """Whether a partial rotary factor or the name of a layout equals what the codes have anyway."""
    if not turning:
        return False
    if quantity == "share" and isinstance(value, int | float):
        return all(code.width is not None and code.rotated == value * code.width for code in turning)
    return isinstance(value, str) and all(code.layout == _NAMED_LAYOUTS.get(value, "") for code in turning)


def inner_base(fields: Fields, known: ModelType) -> Sourced[Any] | None:
    """A base among the values of attention: DBRX was published with it, and the class only reads the top level."""
    attention, reads = fields.values.get("attn_config"), known.reads.get("base", ())
    if not isinstance(attention, Mapping) or fields.declares("base"):
        return None
    key = next((key for key in reads if attention.get(key) is not None), None)
    if key is None:
        return None
    return Sourced(attention[key], fields.source(f"attn_config.{key}"))


def outer_keys(section: Section, fields: Fields) -> frozenset[str]:
    """Note position keys beside the object of the text part, which some runtimes read; the sources of equal ones."""
    if section.part != "text" or section.outer is None:
        return frozenset()
    equal = set()
    # Some types keep values there that are not about their text, such as times of sound.
    name = str(section.outer.get("model_type"))
    own, around = table()["beside_the_text"].get(name, ()), model_type(name)
    code = around.code if around is not None else None
    for key in table()["position_keys"]:
        value = section.outer.get(key)
        if value is None or value in ([], {}) or value is False or key in own:
            continue
        inner = section.values.get(key)
        outer = f"{fields.file}:{section.outer_path}{key}"
        if inner == value:
            equal.add(outer)
        elif inner is None:
            if code is not None and code.lacks(key):
                fields.ignored(
                    outer, value, f"{code}, does not read it; the text part is read from {section.path[:-1]}"
                )
        else:
            used = Sourced(inner, fields.source(key))
            fields.conflict(used, Sourced(value, outer), used)
    return frozenset(equal)


def misspelt(name: str, known: Iterable[str]) -> str | None:
    """The key that a name is a misspelling of; None if there is none, or more than one.

    Case, dashes and underscores do not count. Four of five letters must agree, nine of ten where the first one differs
    (another first word makes another key), and the lengths to two letters.

    >>> misspelt("rope_scalling", ["rope_scaling", "rope_theta"]), misspelt("ropeTheta", ["rope_theta"])
    ('rope_scaling', 'rope_theta')
    >>> misspelt("rope_scaling_type", ["rope_scaling"])
    >>> misspelt("opt_type", ["rope_type"])
    """
    written = _plain(name)
    compared = SequenceMatcher(None, "", written, autojunk=False)  # which prepares its second text once
    near = set()
    for key in known:
        plain = _plain(key)
        if abs(len(plain) - len(written)) <= _LETTERS:
            compared.set_seq1(plain)
            alike = _ALIKE if plain[:1] == written[:1] else _ALIKE_BUT_FIRST
            if compared.quick_ratio() >= alike and compared.ratio() >= alike:
                near.add(key)
    return near.pop() if len(near) == 1 else None


_LETTERS, _ALIKE, _ALIKE_BUT_FIRST = 2, 0.8, 0.9


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def misspelt_keys(fields: Fields, known: ModelType | None) -> None:
    """Note keys that the type does not read and that are spelt almost like a position key that the file lacks."""
    spelt = table()["spellings"]["config"]
    every = {key for keys in (*spelt.values(), *(known.reads.values() if known else ())) for key in keys} | family()
    if known is None:
        wanted = set(table()["position_keys"])
    else:
        about = frozenset((*table()["position_keys"], *known.reads.get("context", ())))
        wanted = {key for keys in known.reads.values() for key in keys if "." not in key and _is_about(key, about)}
    lacking = sorted(key for key in wanted if fields.values.get(key) is None)
    strange = [
        key
        for key, value in fields.values.items()
        if isinstance(key, str) and key not in every and key not in fields.read
        if not key.startswith("_") and _says(value)
    ]
    if len(strange) > MOST_FACTS:
        return  # more than in any model's config: nobody misspelt them
    for key in strange:
        meant = misspelt(key, lacking)
        if meant is not None:
            of = "configs of Transformers" if known is None else known.title
            fields.note("unknown-key", {fields.source(key): fields.values[key], "meant": meant, "of": of})


def unread(fields: Fields) -> dict[str, Any]:
    """The values, by source, of unread position keys of an object and of the rotary blocks in it.

    A null, an empty object and an empty list are left out.

    Raises:
        Unreadable: There are more than in any model's config.
    """
    blocks = table()["spellings"]["config"]["blocks"]
    held = dict(_unread(fields.values, "", fields, family()))
    sizes = {key for quantity in SHAPE for key in fields.spellings.get(quantity, ())}
    held |= {key: value for key, value in fields.values.items() if key in sizes and is_reference(value)}
    unopened = {key: value for key, value in fields.values.items() if key not in fields.read}
    inside = _elsewhere(unopened, "", table()["position_keys"])
    held |= {place: value for place, value in inside if place not in fields.read}
    for key in blocks:
        block = fields.values.get(key)
        if isinstance(block, Mapping) and key in fields.read:
            held |= dict(_unread(block, f"{key}.", fields, None))
    if len(held) > MOST_FACTS:
        raise fields.too_many()
    return {f"{fields.file}:{fields.path}{key}": shown(value) for key, value in held.items()}


def _elsewhere(values: Mapping[str, Any], path: str, keys: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Position keys inside objects that no reader looks into."""
    blocks = table()["spellings"]["config"]["blocks"]
    for name, value in values.items():
        searched = str(name) in blocks or is_part(str(name), value)
        if isinstance(value, Mapping) and not searched and path.count(".") < _DEEPEST_BLOCK:
            for key in keys:
                if _says(value.get(key)):
                    yield f"{path}{name}.{key}", value[key]
            yield from _elsewhere(value, f"{path}{name}.", keys)


def beside(config: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The same for keys around the objects that hold the parts of a model."""
    return {f"{place}{key}": shown(value) for key, value in config.items() if _says(value) and _is_about(key, family())}


def family() -> frozenset[str]:
    """The position keys that some type reads."""
    data = table()
    spelt = data["spellings"]["config"]
    return frozenset(
        (*data["position_keys"], *(key for name, keys in spelt.items() if name not in SHAPE for key in keys))
    )


def _unread(
    values: Mapping[str, Any], path: str, fields: Fields, known: frozenset[str] | None
) -> Iterator[tuple[str, Any]]:
    """Keys of one object by their path in it; in a block every key is about positions."""
    read = fields.read_at.get(f"{fields.path}{path}", frozenset())
    for name, value in values.items():
        key = str(name)
        if key in read and isinstance(value, Mapping) and path and path.count(".") < _DEEPEST_BLOCK:
            yield from _unread(value, f"{path}{key}.", fields, None)
        elif key not in read and _says(value) and (known is None or _is_about(key, known)):
            yield f"{path}{key}", value


def _is_about(key: Any, known: frozenset[str]) -> bool:
    # What is dropped in training changes nothing that a trained model computes.
    return isinstance(key, str) and (key in known or (ABOUT_POSITION.search(key) is not None and "dropout" not in key))


def _says(value: Any) -> bool:
    return value is not None and value not in ({}, [], "")
