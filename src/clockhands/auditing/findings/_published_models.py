"""Published models by their sizes, and an audited model beside those of its sizes."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from clockhands.auditing.findings._parts import AuditSubject, Part, in_a_file, main_code
from clockhands.configs.dialects import in_dialect
from clockhands.configs.resolved import LayerEncoding
from clockhands.configs.section_fields import fields_of, model_in
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Llama3, Yarn
from clockhands.packaged import packaged
from clockhands.phrases import listed, spoken

# The most tokens that derived models add to the vocabulary.
_ADDED_TOKENS = 512


@dataclass(frozen=True)
class ModelShape:
    """The sizes that distinguish models of one type.

    Attributes:
        type: The model type, of the text part if there are several.
        hidden: Hidden size.
        layers: Number of layers.
        heads: Number of query heads.
        vocabulary: Size of the vocabulary; None if the file does not say.
        feed_forward: The inner width of its feed-forward layers; None if the file does not say.
    """

    type: str
    hidden: int
    layers: int
    heads: int
    vocabulary: int | None
    feed_forward: int | None = None

    def __str__(self) -> str:
        """The shape as text."""
        words = f"{self.type}, width {self.hidden:,}, {self.layers} layers, {self.heads} heads"
        return words if self.vocabulary is None else f"{words}, {self.vocabulary:,} tokens"

    def fits(self, other: "ModelShape") -> bool:
        """Whether a model of this shape may be derived from one of the other: tokens may have been added."""
        alike = (whole_model_type(self.type), self.hidden, self.layers, self.heads)
        if alike != (whole_model_type(other.type), other.hidden, other.layers, other.heads):
            return False
        if None not in (self.feed_forward, other.feed_forward) and self.feed_forward != other.feed_forward:
            return False
        if self.vocabulary is None or other.vocabulary is None:
            return True
        return 0 <= self.vocabulary - other.vocabulary <= _ADDED_TOKENS


@dataclass(frozen=True)
class Release:
    """One published model.

    Attributes:
        name: Its name.
        shape: Its shape.
        base: Its RoPE base; that of the full-attention layers, if layers differ.
        scaling: Its scaling block, without lists; None without a scaling.
        context: Its published context length; None if not known.
        source: The copy of its config that this was read from.
        sections: How many pairs rotate by time, rows and columns; None if tokens have one position.
        trained: The original length that a YaRN extension of it starts from, where its publisher documents one.
    """

    name: str
    shape: ModelShape
    base: float
    scaling: Mapping[str, Any] | None
    context: int | None
    source: str
    sections: Sequence[int] | None = None
    trained: int | None = None


@cache
def releases() -> tuple[Release, ...]:
    """All known releases."""
    sizes = [size.name for size in fields(ModelShape)]
    return tuple(
        Release(
            shape=ModelShape(**{size: row.get(size) for size in sizes}),
            **{key: value for key, value in row.items() if key not in sizes},
        )
        for row in packaged(__file__, "releases.json")["releases"]
    )


def of_shape(shape: ModelShape) -> tuple[Release, ...]:
    """The releases that a model of this shape may be or come from; if some have its vocabulary, only those."""
    known = tuple(release for release in releases() if shape.fits(release.shape))
    own = tuple(release for release in known if shape.vocabulary in (None, release.shape.vocabulary))
    return own or known


def of_type(model_type: str) -> tuple[Release, ...]:
    """The releases of a model type, of any shape."""
    return tuple(
        release for release in releases() if whole_model_type(release.shape.type) == whole_model_type(model_type)
    )


def reach_of(model_type: str, base: float) -> int | None:
    """The longest context that releases of a type have without a scaling."""
    alike = [each for each in of_type(model_type) if each.base == base]
    reached = [(each.scaling or {}).get("original_max_position_embeddings", each.context) for each in alike]
    return max((length for length in reached if length), default=None)


def whole_model_type(model_type: str) -> str:
    """The type of the whole config for that of its text part.

    >>> whole_model_type("gemma3_text"), whole_model_type("mllama_text_model"), whole_model_type("llama")
    ('gemma3', 'mllama', 'llama')
    """
    return model_type.removesuffix("_model").removesuffix("_text")


_LLAMA3 = ("low_freq_factor", "high_freq_factor")
_YARN = {key: getattr(Yarn, key) for key in ("beta_fast", "beta_slow", "truncate")}  # those of a block without them


@dataclass(frozen=True)
class SizedModel:
    """A model with the published models of its sizes.

    Attributes:
        subject: The audited target.
        code: The position code of its full-attention layers.
        shape: Its sizes.
        every: The releases that it may be or come from by its sizes.
    """

    subject: AuditSubject
    code: LayerEncoding
    shape: ModelShape
    every: tuple[Release, ...]

    @property
    def context(self) -> int | None:
        """The context that the file declares; a class default does not show which release a file is from."""
        resolved = self.subject.resolved
        return resolved.context if in_a_file(resolved.source.get("context", "").split(" ")[0]) else None

    @property
    def scaling(self) -> dict[str, Any] | None:
        """Its scaling block, as in `scaling_of`."""
        return scaling_of(self.code)

    def has_base(self, release: Release) -> bool:
        """Whether it has the base of a release."""
        return self.code.base == release.base

    def has_scaling(self, release: Release) -> bool:
        """Whether it has the scaling of a release."""
        here, there = self.scaling, release.scaling
        if here is None or there is None:
            return here is there
        same = here["rope_type"] == there["rope_type"] and here["factor"] == there.get("factor")
        unsaid = here["original"] is None and there.get("original_max_position_embeddings") is not None
        return same and not unsaid and not differing_keys(here, there)

    def equals(self, release: Release) -> bool:
        """Whether it has the base and the scaling of a release."""
        return self.has_base(release) and self.has_scaling(release)

    def is_whole(self, release: Release) -> bool:
        """Whether its context and its sizes, including the vocabulary, are those of a release."""
        own = self.shape.vocabulary
        return own is not None and own == release.shape.vocabulary and self.subject.resolved.context == release.context

    def nearest(self, known: Sequence[Release]) -> Release:
        """The release that agrees with it in most settings, and then in base."""
        kind = (self.scaling or {}).get("rope_type")
        return max(
            known,
            key=lambda each: (
                self.has_base(each),
                self.has_scaling(each),
                kind == (each.scaling or {}).get("rope_type"),
                each.context is not None and each.context == self.context,
                each.shape.vocabulary == self.shape.vocabulary,
                -abs(math.log(each.base / (self.code.base or each.base))),
            ),
        )

    def extendable(self) -> Release | None:
        """The release of its base without a scaling whose publisher documents a YaRN extension."""
        original = (self.code.scaling or {}).get("original")
        own = [each for each in self.every if each.scaling is None and each.trained is not None and self.has_base(each)]
        return max(own, key=lambda each: (each.trained == original, each.context == self.context), default=None)


def _parts(subject: AuditSubject) -> Iterator[Part]:
    """The rotary parts of a config; the file of another program is one part, if it names a type of Transformers."""
    yield from subject.rotary_parts
    opened = subject.opened
    config, file = opened.config or {}, opened.config_name or ""
    found = in_dialect(config, file) if opened.form == "dialect" else None
    named = config.get("model_type")
    if found is not None and isinstance(named, str):
        yield Part(found.section, fields_of(found.section, file, found.known, []), found.known, None, named)


def sized(subject: AuditSubject, parts: Iterable[Part] | None = None) -> Iterator[tuple[Part, SizedModel]]:
    """The parts of a config for text whose sizes are known."""
    for part in _parts(subject) if parts is None else parts:
        code, shape = main_code_of(subject, part), shape_of(subject, part)
        if code is not None and shape is not None:
            yield part, SizedModel(subject, code, shape, of_shape(shape))


def main_code_of(subject: AuditSubject, part: Part) -> LayerEncoding | None:
    """The code of the full-attention layers, or of all layers."""
    if part.section.part != "text":
        return None
    return main_code(code for code in subject.resolved.codes if code.kind == "rotary" and code.part == "text")


def shape_of(subject: AuditSubject, part: Part) -> ModelShape | None:
    numbers = [part.fields.whole(name) for name in ("hidden", "layers", "heads")]
    hidden, layers, heads = (None if number is None else number.value for number in numbers)
    if part.name is None or part.known is None or hidden is None or layers is None or heads is None:
        return None
    vocabulary = part.section.values.get("vocab_size", model_in(subject.opened.config or {})[1].get("vocab_size"))
    told = (
        number if type(number) is int else None for number in (vocabulary, part.section.values.get("intermediate_size"))
    )
    return ModelShape(part.name, hidden, layers, heads, *told)


def extendable_release(subject: AuditSubject) -> Release | None:
    """The release of the model's shape and base without a scaling, if its publisher documents a YaRN extension."""
    return next((model.extendable() for _, model in sized(subject)), None)


def scaling_of(code: LayerEncoding) -> dict[str, Any] | None:
    """The scaling block; None if there is none, or a linear one that changes nothing."""
    held = code.scaling
    if held is None or held.get("type") is None or (held["type"] == "linear" and held.get("factor") == 1):
        return None
    found = {"rope_type": held["type"], "factor": held.get("factor"), "original": held.get("original")}
    if isinstance(code.spec, Rotary) and isinstance(code.spec.scaling, Llama3):
        found |= {key: getattr(code.spec.scaling, key) for key in _LLAMA3}
    if isinstance(code.spec, Rotary) and isinstance(code.spec.scaling, Yarn):
        found |= {key: getattr(code.spec.scaling, key) for key in _YARN}
    return found


def scaling_in_words(block: Mapping[str, Any] | None, keys: Sequence[str] = ()) -> str:
    """The scaling of a release, as text."""
    if block is None:
        return "no scaling"
    numbers = [f"a factor of {spoken(block['factor'])}"] if block.get("factor") is not None else []
    numbers += [f"{key} {spoken(block[key])}" for key in keys if key in block]
    return f"the scaling {block['rope_type']}{' with ' if numbers else ''}{listed(numbers)}"


def differing_keys(here: Mapping[str, Any] | None, there: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The keys other than type and factor in which two scalings of one type differ."""
    if here is None or there is None or here["rope_type"] != there["rope_type"]:
        return ()
    own = {"original_max_position_embeddings": here["original"], **{key: here.get(key) for key in (*_LLAMA3, *_YARN)}}
    return tuple(
        key for key, value in own.items() if value is not None and there.get(key, _YARN.get(key, value)) != value
    )
