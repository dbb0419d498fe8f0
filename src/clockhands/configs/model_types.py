"""The table of model types: how each class pairs channels, its defaults, its keys; and functions to query it.

A config does not say how its class pairs channels, nor the class default of a missing key; both follow from the model
type. ``model_types.json`` holds what people read from one named version of the library, so a new type is a new entry;
``confirmed_types.json`` holds such entries whose fields the class shows, one by one (tools/confirmed_rows.py);
``types_of_classes.json`` holds what tools/model_types.py read from the classes of that version,
``types_of_mlx_lm.json`` what tools/mlx_types.py read from files of mlx-lm, and an entry by a person has priority.
``type_details.json`` adds what a type has beside its main encoding, such as windows of an image or a second table; it
is for the types that it names, and not for types that are like them. The keys are in ``config_keys.json``, and GGUF
architectures in ``gguf_architectures.json``. A type may be ``like`` another: its own entries override those of the
other, and its ``code`` fields of the other's one code.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from clockhands.configs.released_code import ReleasedClass, class_in
from clockhands.packaged import packaged

# What follows the name of a model in the names of its classes.
_CLASS_ENDING = re.compile(r"(For[A-Z][A-Za-z]*(2Text)?|LMHead\w*|PreTrainedModel|Model(With\w+)?|DoubleHeadsModel)$")

FILES = (
    "config_keys",
    "model_types",
    "confirmed_types",
    "types_of_classes",
    "types_of_mlx_lm",
    "type_details",
    "gguf_architectures",
    "softmax_scales",
)


@dataclass(frozen=True)
class CodeOfType:
    """One position code of a model type.

    Attributes:
        part: Which part of the model has it.
        kind: The kind of code.
        layout: Which two channels form a pair.
        rule: Which layers see a window only, or have no attention: the name of a function in `layer_rules`; None if
            all see everything.
        period: Layers of a period of that rule that the class has in its code, where no key says so. What the class
            takes for an absent key is ``window_period`` of the type's defaults.
        sides: Where a window lies, if it is not the last tokens: half of it on ``both`` sides; one token ``beyond``
            that; as a ``radius`` on either side; ``shared`` between the sides with the query; only the ``half`` before
            it; a radius in an ``encoder`` alone. Of a type whose configs may make an encoder of it: where it lies then.
        nested: Whether the rotary block of the config has one object for each kind of layer, and is not read flat.
        bases: Kind of layer to the quantity that holds its base, where that is not ``base``.
        widths: Kind of layer to the quantity that holds its head width, where that is not ``head_width``.
        scaled: Kinds of layers that a flat scaling block is for; empty means all.
        latent: Whether a head is an unrotated and a rotated part side by side (multi-head latent attention).
        aliases: Names of scalings that this type reads as others.
        scalings: The scalings that the type has; empty means all.
        still: The period of layers without RoPE: one layer in so many.
        unturned: When layers that see all do not rotate: ``always``; where the others have a window (``windowed``); or
            so too, and where they have none no layer rotates (``windowless``). None if such layers rotate.
        labels: Kind of layer to the names of its object in a nested block, where those are not the usual ones.
        assumed: Scaling to what the class takes for keys of it that the block does not hold.
        alpha: Whether a dynamic scaling with an ``alpha`` is a fixed stretch by that number.
        fragile: Whether the class fails at scalings if the config does not give the head width.
        lost: Kinds of layers that the class gives its default base although the config has one at its top.
        share: The partial rotary factor in the code of the type, whatever the file has outside a block.
        growth: How the code of the type itself scales the frequencies for texts longer than the trained length.
        turning: Which end of a head is rotated, ``first`` or ``last``, if only a part is.
        direction: ``forward``, or ``backward`` where queries and keys are rotated by minus position times frequency.
        formula: Whether the formulas of this library give the frequencies; some codes have others.
        rows: Quantity that counts the rows of a table; None if it has no stored table because its numbers are computed.
        extra_rows: Rows that the table has beyond it.
        offset: Number of the first position, or the quantity (a padding row) that it follows.
        zero_rows: Quantity that names a row of zeros.
        span: Span of a sinusoid's ladder.
        tensors: Names that the table has in a file of weights, their ends.
        when: Quantity to the values that it must have for the type to have this code.
        block: The rotary block that the class takes where the file has none.
        block_keys: Quantity to the keys that the class reads for it in its rotary block, where those are not the usual.
        sections: How the pairs are shared among time, rows and columns: ``chunked``, ``interleaved`` or not.
        section_sizes: The sections that the class takes where the file declares none.
        bias: What follows from the type of a bias: fields of a spec, or the parts whose buckets go in both directions.
        grid: Whether pairs rotate by rows and columns of an image, and their arrangement: ``together``, ``apart``, ``in
            turns`` or ``dealt``.
        padding: Position of padding where it is not counted, or the quantity that holds it.
        distances: Base of the sinusoids that a relative code makes of the distance, as Transformer-XL does: as many
            frequencies as half of the model's width has channels.
        quantities: Quantity to the quantity of the type that this code reads in its place, such as ``layers`` to the
            number of layers of an audio encoder; an empty name means that this code has none.
        heads: Quantity that holds the width of the heads of an indexer, which rotate as many channels as those of the
            attention; without it a model has no such code.
        only: Which layers have this code, where not all: ``marks``, the quantities that list a mark for each layer,
            to the marks of such layers; ``kinds`` of codes that they have; where a file lists nothing, the ``first``
            of them, or how many ``leading`` layers all have it, and after how many ``every`` further one follows.
        area: What the size of the windows of an image counts, ``pixels`` or ``patches``; None without such windows.
        fitted: Whether layers that see the whole image divide positions by the windows that its width has.
        rotating_heads: As in `LayerEncoding`; so are ``coordinates`` and ``placement``.
        relative_rows: What learned distances have rows for: ``one side``, ``two sides``, ``two sides and zero``.
        counted_in: Quantity that holds after how many positions a table at the input begins anew.
    """

    part: str
    kind: str | None
    layout: str | None = None
    rule: str | None = None
    period: int | None = None
    sides: str | None = None
    nested: bool = False
    bases: Mapping[str, str] = field(default_factory=dict)
    widths: Mapping[str, str] = field(default_factory=dict)
    scaled: Sequence[str] = ()
    latent: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)
    scalings: Sequence[str] = ()
    still: int | None = None
    unturned: str | None = None
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    assumed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    alpha: bool = False
    fragile: bool = False
    lost: Sequence[str] = ()
    share: float | None = None
    growth: str | None = None
    turning: str = "first"
    direction: str = "forward"
    formula: bool = True
    rows: str | None = None
    extra_rows: int = 0
    offset: int | str | None = None
    zero_rows: str | None = None
    span: str = "open"
    tensors: Sequence[str] = ()
    when: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    block: Mapping[str, Any] = field(default_factory=dict)
    block_keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sections: str | None = None
    section_sizes: Sequence[int] = ()
    bias: Mapping[str, Any] = field(default_factory=dict)
    grid: str | None = None
    padding: int | str | None = None
    distances: float | None = None
    quantities: Mapping[str, str] = field(default_factory=dict)
    heads: str | None = None
    only: Mapping[str, Any] = field(default_factory=dict)
    area: str | None = None
    fitted: bool = False
    rotating_heads: int | None = None
    coordinates: Mapping[str, float] | None = None
    placement: str | None = None
    relative_rows: str | None = None
    counted_in: str | None = None


@dataclass(frozen=True)
class ModelType:
    """How configs of one type are read.

    Attributes:
        name: As in ``model_type``.
        library: The library that was read: that of the table, or the one that the entry names instead.
        reads: Quantity to the keys that the class reads for it.
        defaults: The class default of each quantity.
        fixed: Quantities that the code of the model sets, whatever a file holds.
        rows: Its position codes; none for a type that only contains models of other types.
        sections: For each part the type of the object inside, if that object does not say.
        section_defaults: For each part what this class takes for quantities that the object inside does not have.
        uneven: Whether the class accepts heads that do not divide the hidden size evenly, and cuts a head at an odd
            channel.
        scores: What scores are multiplied by, see `clockhands.configs._score_fields`.
        remark: What the type does with positions besides its codes, in a clause.
        around: The title of the class around it that has defaults of its own for it; None if none has.
        not_covered: What the type does with positions that is not read here, as text; None if nothing is known.
        trains: Whether its files are those of a training from the beginning: a default is then what the model learns.
    """

    name: str
    library: str
    reads: Mapping[str, Sequence[str]]
    defaults: Mapping[str, Any]
    fixed: Mapping[str, Any]
    rows: tuple[CodeOfType, ...]
    sections: Mapping[str, str]
    section_defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    uneven: bool = False
    scores: Mapping[str, Any] = field(default_factory=dict)
    not_covered: str | None = None
    remark: str | None = None
    around: str | None = None
    trains: bool = False

    @property
    def title(self) -> str:
        """The name with the library and release whose code was read."""
        return f"{self.name} ({self.library})"

    @property
    def code(self) -> ReleasedClass | None:
        """The class of the type in the release that was read; None if its file and line are not known."""
        return class_in(self.library, self.name)

    @property
    def class_title(self) -> str:
        """The class with its release, file and line; the type with its library where these are not known."""
        return f"{self.code or self.title}"

    @property
    def default_source(self) -> str:
        """The source text for a default."""
        return f"class default of {self.around or self.title}"

    @property
    def architecture_source(self) -> str:
        """The source text for what follows from the type alone."""
        return f"architecture of {self.title}"


@cache
def table() -> Mapping[str, Any]:
    """The whole table, as data: the keys of configs, the model types, the architectures of GGUF files."""
    held = {key: held for name in FILES for key, held in packaged(__file__, f"{name}.json").items()}
    read = held["types_of_classes"] | held["types_of_mlx_lm"]
    return held | {"types": read | held["confirmed_types"] | held["types"]}


def parts_of_class(name: str) -> Mapping[str, str]:
    """The objects that the class of a type may take from a config, by their place, each with its type; "" if unknown.

    >>> parts_of_class("qwen3_asr")
    {'audio_config': 'qwen3_asr_encoder', 'text_config': 'qwen3'}
    """
    return table()["parts_of_classes"].get(name, {})


@cache
def learned_tensors() -> frozenset[str]:
    """Endings of the names of tensors that are learned tables in every type that has them."""
    codes = [code for name in model_types() for code in _detailed(name)["codes"]]
    kinds = {(name, code["kind"]) for code in codes for name in code.get("tensors", ())}
    return frozenset(name for name, kind in kinds if kind == "learned" and (name, "sinusoidal") not in kinds)


@cache
def model_type(name: str) -> ModelType | None:
    """The type of that name, or None if the table has no entry for it."""
    data = table()
    if name not in data["types"]:
        return None
    entry = _detailed(name)
    # The version that the program read, if the entry was not written by a person.
    read_from = data["library"] if "class" not in data["types"][name] else data["library_of_classes"]
    return ModelType(
        name=name,
        library=entry.get("library", read_from),
        reads=entry.get("reads", {}),
        defaults=entry.get("defaults", {}),
        fixed=entry.get("fixed", {}),
        rows=tuple(CodeOfType(**row) for row in entry["codes"]),
        sections=entry.get("sections", {}),
        section_defaults=data["types"][name].get("section_defaults", {}),
        uneven=entry.get("uneven", False),
        scores=entry.get("scores", {}),
        not_covered=data["not_covered"].get(name),
        remark=_remarks().get(name, data["types"][name].get("notes")),
        trains=entry.get("trains", False),
    )


@cache
def _remarks() -> Mapping[str, str]:
    """What people say of types whose rows were read from their classes, by type."""
    return {name: each["says"] for each in table()["remarks"] for name in each["types"]}


def by_class(values: Mapping[str, Any]) -> ModelType | None:
    """The type whose classes a config names under ``architectures``, for configs without a known type.

    >>> by_class({"architectures": ["GPTNeoXForCausalLM"]}).name
    'gpt_neox'
    """
    classes = values.get("architectures")
    if not isinstance(classes, list) or not classes or not isinstance(classes[0], str):
        return None
    stem = _model_in(classes[0][:200]).lower()
    return next((model_type(name) for name in model_types() if _squeezed(name) == stem), None)


def _model_in(name: str) -> str:
    """The name of a class without its ending; with it where more follows a head that the library has.

    >>> _model_in("LlamaForCausalLM"), _model_in("LlamaForCausalLMMedusa")
    ('Llama', 'LlamaForCausalLMMedusa')
    """
    left = _CLASS_ENDING.sub("", name)
    ending, heads = name[len(left) :], table()["heads_of_classes"]
    return name if ending not in heads and ending.startswith(tuple(heads)) else left


def class_of_others(values: Mapping[str, Any], known: ModelType) -> str | None:
    """The class that a config names although it is not one of the type that the config names; None if there is none.

    Copies of a family's config are reused for other programs: their ``model_type`` then says nothing of the code.

    >>> class_of_others({"architectures": ["Chronos2Model"]}, model_type("t5"))
    'Chronos2Model'
    >>> class_of_others({"architectures": ["T5EncoderModel"]}, model_type("t5"))
    """
    named = named_otherwise(values, known)
    own = (*table()["other_names_of_classes"].get(known.name, ()), *table()["types"][known.name].get("classes", ()))
    return None if named in own else named


def named_otherwise(values: Mapping[str, Any], known: ModelType) -> str | None:
    """The class that a config names, if its name does not tell that it is of a type; None if it does."""
    classes = values.get("architectures")
    if not isinstance(classes, list) or not classes or not isinstance(classes[0], str) or remote_class(values):
        return None
    left = _model_in(classes[0][:200])
    stem, name = _squeezed(left.lower()), _squeezed(known.name)
    longer = re.search(r"For[A-Z]", left) is not None  # LlamaForCausalLMEagle: no class of the library ends so
    if not stem or ((stem.startswith(name) or name.startswith(stem)) and not longer):
        return None
    other = by_class(values)
    own = {"name": known.name, "not_covered": known.not_covered, "remark": known.remark}
    same = other is not None and replace(other, **own) == known
    return None if same else classes[0]


def remote_class(values: Mapping[str, Any]) -> str | None:
    """The class outside of the library that a config names under ``auto_map``: its code runs the model.

    >>> remote_class({"auto_map": {"AutoConfig": "org/repository--configuration_bert.JinaBertConfig"}})
    'JinaBertConfig'
    """
    named = values.get("auto_map")
    if not isinstance(named, Mapping):
        return None
    classes = {key: place for key, place in named.items() if isinstance(key, str) and isinstance(place, str)}
    keys = sorted(
        (key for key in classes if key.startswith(("AutoConfig", "AutoModel"))),
        key=lambda key: (key != "AutoConfig", key),
    )
    return classes[keys[0]].rpartition(".")[2][:200] if keys else None


def by_marks(name: str, values: Mapping[str, Any]) -> ModelType | None:
    """The type that is published under another type's name, recognised by keys that only its configs have.

    >>> by_marks("bert", {"alibi_starting_size": 512}).name
    'mosaic_bert'
    """
    found = (kind for kind, keys in _marks().get(name, ()) if all(key in values for key in keys))
    return next(map(model_type, found), None)


@cache
def _marks() -> dict[str, list[tuple[str, Sequence[str]]]]:
    """For each name that several types are published under, those types with the keys that tell them apart."""
    made: dict[str, list[tuple[str, Sequence[str]]]] = {}
    for kind, row in table()["types"].items():
        if "marks" in row:
            made.setdefault(row["marks"]["type"], []).append((kind, row["marks"]["keys"]))
    return made


def by_listed_class(name: str) -> ModelType | None:
    """The type that says that a class of that name, outside of the library, runs it."""
    found = (kind for kind, row in table()["types"].items() if name in row.get("classes", ()))
    return next(map(model_type, found), None)


def by_remote_class(name: str) -> ModelType | None:
    """The type that a class of that name, outside of the library, runs; also for copies of the library's class."""
    listed = by_listed_class(name)
    if listed is not None:
        return listed
    stem = _model_in(name.removesuffix("Config")).lower()
    return next((model_type(kind) for kind in model_types() if _squeezed(kind) == stem), None)


def _squeezed(name: str) -> str:
    return name.replace("_", "").replace("-", "")


def layer_labels(row: CodeOfType | None = None) -> dict[str, tuple[str, ...]]:
    """Kind of layer to the names that files use for such layers; a type's own replace the usual ones."""
    usual = {kind: tuple(names) for kind, names in table()["labels"].items() if kind != "says"}
    return usual | ({} if row is None else {kind: tuple(names) for kind, names in row.labels.items()})


def model_types() -> tuple[str, ...]:
    """All names in the table."""
    return tuple(table()["types"])


def _detailed(name: str) -> dict[str, Any]:
    """The entry of a type with its details: ``code`` for its first code in layers, and ``further`` codes."""
    entry = _filled(name)
    for detail in (each for each in table()["details"] if name in each["types"]):
        codes = [dict(code) for code in entry["codes"]]
        in_layers = [code for code in codes if code["kind"] not in ("learned", "sinusoidal")]
        (in_layers or codes)[0].update(detail.get("code", {}))
        read = {key: {**entry.get(key, {}), **detail.get(key, {})} for key in ("reads", "defaults")}
        entry = {**entry, **read, "codes": [*codes, *detail.get("further", ())]}
    return entry


def _filled(name: str) -> dict[str, Any]:
    """The entry of a type, completed by the type that it is like; a null takes away what that one says."""
    entry = dict(table()["types"][name])
    if "like" not in entry:
        return entry
    other = _filled(entry.pop("like"))
    if "code" in entry:
        (code,) = other["codes"]
        entry["codes"] = [_merged(code, entry.pop("code"))]
    reads = {**other.get("reads", {}), **entry.get("reads", {})}
    # The library that was read is never taken from the other entry.
    for own in ("library", "class", "classes", "marks", "why", "unseen"):
        other.pop(own, None)
    defaults = _merged(other.get("defaults", {}), entry.get("defaults", {}))
    return {**other, **entry, "reads": reads, "defaults": defaults}


def _merged(of_other: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**of_other, **own}.items() if value is not None}
