"""Compares a model with published models of its shape: the same frequencies, others, or a setting that was lost."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from clockhands.auditing._edits import Edit, added, together
from clockhands.auditing.findings._parts import Audited, Part, check, declared, in_a_file, rotary_parts
from clockhands.auditing.findings._rules import Case, case_of, listed, spoken
from clockhands.configs.dialects import in_dialect
from clockhands.configs.overriding import CALLER
from clockhands.configs.resolved import Code
from clockhands.configs.rope_blocks import RopeBlock
from clockhands.configs.section_fields import fields_of
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Llama3, Yarn


class OfRelease(Case, code=("missing-original", "missing-scaling", "context-of-no-release")):
    """The published value that a release of the model's shape has for a missing or lost setting."""

    def edit(self) -> Edit | None:
        place, value = self.mended_at, self.mended_with
        if not isinstance(place, str) or value is None:
            return None
        if self.merged and isinstance(value, Mapping):
            numbers = listed([f"{key} to {spoken(number)}" for key, number in value.items()])
            steps = (added(f"{place}.{key}", number) for key, number in value.items())
            return together(f"Set {numbers}, as in {self.release}.", *steps)
        key = place.rpartition(":")[2].rpartition(".")[2]
        return added(place, value, f"Set {key} to {spoken(value)}, as in {self.release}.")


class DiffersFromRelease(OfRelease, code="differs-from-release"):
    here = ""

    def stated_here(self) -> str:
        """What the file says."""
        return self.said() if self.stated else self.here

    def alike(self) -> str:
        """What the release has in common."""
        return "the same size" if self.shape else "this type"

    def compared(self) -> bool:
        """Whether a cause was looked for, and none found."""
        return "because" in self.evidence and not self.because

    def edit(self) -> Edit | None:
        """Write the release's value for the lost one; None for a model that may differ on purpose."""
        return super().edit() if self.because else None


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
        alike = (family(self.type), self.hidden, self.layers, self.heads)
        if alike != (family(other.type), other.hidden, other.layers, other.heads):
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
        sections: How many pairs rotate by time, rows and columns; None if tokens have one position.
        context: Its published context length; None if not known.
        trained: The original length that a YaRN extension of it starts from, where its publisher documents one.
        source: The copy of its config that this was read from.
    """

    name: str
    shape: ModelShape
    base: float
    scaling: Mapping[str, Any] | None
    sections: tuple[int, ...] | None
    context: int | None
    trained: int | None
    source: str


@cache
def releases() -> tuple[Release, ...]:
    """All known releases."""
    data = json.loads(
        resources.files("clockhands.auditing.findings").joinpath("releases.json").read_text(encoding="utf-8")
    )
    return tuple(
        Release(
            row["name"],
            ModelShape(
                row["type"], row["hidden"], row["layers"], row["heads"], row["vocabulary"], row.get("feed_forward")
            ),
            row["base"],
            row["scaling"],
            tuple(row["sections"]) if "sections" in row else None,
            row["context"],
            row.get("trained"),
            row["source"],
        )
        for row in data["releases"]
    )


def of_shape(shape: ModelShape) -> tuple[Release, ...]:
    """The releases that a model of this shape may be or come from; if some have its vocabulary, only those."""
    known = tuple(release for release in releases() if shape.fits(release.shape))
    own = tuple(release for release in known if shape.vocabulary in (None, release.shape.vocabulary))
    return own or known


def of_type(model_type: str) -> tuple[Release, ...]:
    """The releases of a model type, of any shape."""
    return tuple(release for release in releases() if family(release.shape.type) == family(model_type))


def reach_of(model_type: str, base: float) -> int | None:
    """The longest context that releases of a type have without a scaling."""
    alike = [each for each in of_type(model_type) if each.base == base]
    reached = [(each.scaling or {}).get("original_max_position_embeddings", each.context) for each in alike]
    return max((length for length in reached if length), default=None)


def family(model_type: str) -> str:
    """The type of the whole config for that of its text part.

    >>> family("gemma3_text"), family("mllama_text_model"), family("llama")
    ('gemma3', 'mllama', 'llama')
    """
    return model_type.removesuffix("_model").removesuffix("_text")


# The base that most runtimes use if a file has none, and the contexts for which it is plausible without a scaling.
_USUAL_BASE = 10_000.0
_PLAIN_CONTEXT = 8_192
# The factor of Llama 3.1, which converters use as a default.
_USUAL_LLAMA3 = 8.0
CLAIMED = 4
"""How many times longer than what the base alone reaches a context has to be, to need the scaling."""
_LLAMA3 = ("low_freq_factor", "high_freq_factor")
_YARN = {key: getattr(Yarn, key) for key in ("beta_fast", "beta_slow", "truncate")}  # those of a block without them
OF_LENGTH = ("llama3", "yarn", "longrope")
"""Scalings that leave fast pairs alone: what they lack shows beyond the length of the first training."""


def _parts(subject: Audited) -> Iterator[Part]:
    """The rotary parts of a config; the file of another program is one part, if it names a type of Transformers."""
    yield from rotary_parts(subject)
    opened = subject.opened
    config, file = opened.config or {}, opened.config_name or ""
    found = in_dialect(config, file) if opened.form == "dialect" else None
    named = config.get("model_type")
    if found is not None and isinstance(named, str):
        yield Part(found.section, fields_of(found.section, file, found.known, []), found.known, None, named)


@check
def releases_of_the_shape(subject: Audited) -> Iterator[Case]:
    """A base or scaling that no release of the shape has, or a context without the scaling that it needs."""
    for part in _parts(subject):
        code, shape = _main_code(subject, part), _shape(subject, part)
        if code is None or shape is None or code.base is None or not code.rates:
            continue
        known = _of_their_length(of_shape(shape), _declared_context(subject), scaled=scaling_of(code) is not None)
        if not known:
            continue
        missing = _missing_scaling(subject, part, code, shape, known)
        if missing is not None:
            yield missing
        else:
            yield from _differing(subject, part, code, shape, known)


def _declared_context(subject: Audited) -> int | None:
    """The context that the file declares; a class default does not show which release a file is from."""
    resolved = subject.resolved
    return resolved.context if in_a_file(resolved.source.get("context", "").split(" ")[0]) else None


def with_release(subject: Audited, case: Case) -> Case:
    """Add to a fact noted while reading what the release of the model's shape has in that place.

    It is added where it decides the severity or the fix: a default that equals the release's value, missing numbers of
    a scaling, a length that was not changed when a scaling was switched on.
    """
    code, evidence = case.code, case.evidence
    if code not in ("default-base", "incomplete-scaling", "missing-original", "factor-times-original"):
        return case
    for part in rotary_parts(subject):
        shape = _shape(subject, part) if part.section.part == "text" else None
        known = of_shape(shape) if shape is not None else ()
        if code == "default-base":
            context = subject.resolved.context or 0
            reaching = [each for each in known if each.context is None or context <= each.context]
            own = next((each for each in reaching if each.base == evidence.get("used")), None)
            # If another release of the shape has another base, a missing one may be either.
            alone = len({each.base for each in reaching}) == 1
            if own is not None and alone and evidence.get("belongs at") == _base_place(part):
                return case_of(code, {**evidence, "as released": own.name}, case.layers)
            continue
        if code == "factor-times-original":
            context = subject.resolved.context or 0
            own = next((each for each in known if each.scaling is None and each.context == context), None)
            reach = evidence.get("factor x original", 0)
            # A product that overflows float is evidence as text.
            stretches = evidence.get("scaling") == "yarn" and isinstance(reach, int | float) and reach > context
            if own is not None and stretches:
                return case_of(code, {**evidence, "switched on in": own.name}, case.layers)
            continue
        block = next((each for each in part.blocks() if any(place.startswith(each.place) for place in evidence)), None)
        if block is None and code == "missing-original":
            block = next((each for each in part.blocks() if each.kind in (None, "full")), None)
        own = next((each for each in known if block is not None and _completes(block, each)), None)
        trained = next((each for each in known if each.scaling is None and each.trained), None)
        if own is None and trained is not None and block is not None and code == "missing-original":
            values = {"original_max_position_embeddings": trained.trained}
            mended = {"mended at": block.place, "mended with": values, "merged": True}
            return case_of(code, {**evidence, "release": trained.name, **mended}, case.layers)
        if own is not None:
            return case_of(code, {**evidence, "release": own.name, **_mended(part, own)}, case.layers)
    return case


def _of_their_length(known: tuple[Release, ...], context: int | None, *, scaled: bool) -> tuple[Release, ...]:
    """Remove releases with the common fallback base, if others of the shape have another base.

    That base only shows that a file is from such a release if the context agrees as well, unless a scaling has changed
    the context.
    """
    if scaled or all(each.base == _USUAL_BASE for each in known):
        return known
    return tuple(each for each in known if each.base != _USUAL_BASE or context is None or context == each.context)


def _completes(block: RopeBlock, release: Release) -> bool:
    """Whether a release has the scaling of a block, and the keys that the block has of it."""
    there = release.scaling
    if there is None or there["rope_type"] != block.scaling:
        return False
    return all(block.values[key] == value for key, value in there.items() if key in block.values and key != "rope_type")


def _base_place(part: Part) -> str:
    return part.fields.source((*part.fields.spellings.get("base", ()), "rope_theta")[0])


def _differing(
    subject: Audited, part: Part, code: Code, shape: ModelShape, known: tuple[Release, ...]
) -> Iterator[Case]:
    if any(_same_base(code, release) and _same_scaling(code, release) for release in known):
        return
    extended = _extended(code, known, _declared_context(subject))
    if extended is not None:
        stated = any("original_max_position_embeddings" in block.values for block in part.blocks())
        scaling, context = code.scaling or {}, subject.resolved.context
        # An extension from another original length to one beyond the trained length was chosen by the user: the model
        # was trained further, or its context was shortened before.
        reached = scaling.get("factor", 0) * scaling.get("original", 0)
        further = context is not None and context == reached and context > (extended.trained or 0)
        # The declared length of the release is not its trained length, but is often taken for it.
        mistaken = scaling.get("original") == extended.context
        if stated and (mistaken or not further) and extended.trained != scaling.get("original"):
            yield _other_original(part, code, extended, shape)
        return
    nearest = nearest_of(known, code, _declared_context(subject), shape.vocabulary)
    if not _same_base(code, nearest):
        spelt = (*part.fields.spellings.get("base", ()), "rope_theta")[0]
        at = next(iter(declared(code, "base")), part.fields.source(spelt))
        default_of = f"for models of type {spoken(shape.type)}"
        yield other_base(subject, code, shape, known, of_shape(shape), default_of=default_of, at=at)
    # A scaling in a place where this type does not read it is a separate finding.
    unread = scaling_of(code) is None and any(block.scales for block in part.blocks())
    if not _same_scaling(code, nearest) and not unread:
        yield _other_scaling(subject, part, code, nearest, shape)


def nearest_of(known: Sequence[Release], code: Code, context: int | None, vocabulary: int | None) -> Release:
    """The release that agrees with a code in most settings, and then in base."""
    return max(
        known,
        key=lambda each: (
            *_nearness(code, each, context),
            each.shape.vocabulary == vocabulary,
            -abs(math.log(each.base / (code.base or each.base))),
        ),
    )


def extendable_release(subject: Audited) -> Release | None:
    """The release of the model's shape and base without a scaling, if its publisher documents a YaRN extension."""
    for part in _parts(subject):
        code, shape = _main_code(subject, part), _shape(subject, part)
        if code is not None and shape is not None:
            return _extendable(code, of_shape(shape), _declared_context(subject))
    return None


def _extendable(code: Code, known: tuple[Release, ...], context: int | None) -> Release | None:
    original = (code.scaling or {}).get("original")
    own = [each for each in known if each.scaling is None and each.trained is not None and _same_base(code, each)]
    return max(own, key=lambda each: (each.trained == original, each.context == context), default=None)


def _extended(code: Code, known: tuple[Release, ...], context: int | None) -> Release | None:
    """The release without a scaling that this one extends by a YaRN, if its original length is documented."""
    scaling = code.scaling or {}
    if scaling.get("type") != "yarn" or scaling.get("original") is None:
        return None
    return _extendable(code, known, context)


def _other_original(part: Part, code: Code, release: Release, shape: ModelShape) -> Case:
    """A YaRN whose original length is not the trained length of the release."""
    block = next((each for each in part.blocks() if each.kind in (None, "full")), None)
    evidence: dict[str, Any] = {} if block is None else block.said("original_max_position_embeddings")
    if not evidence:
        evidence = {"here": f"The original length of the scaling is {spoken((code.scaling or {}).get('original'))}"}
    evidence |= {"release": release.name, "shape": str(shape)}
    evidence |= {"published": f"an original length of {spoken(release.trained)}"}
    because = "its documented YaRN extension starts there"
    evidence |= {"because": because, "source of the release": release.source}
    if block is not None:
        values = {"original_max_position_embeddings": release.trained}
        evidence |= {"mended at": block.place, "mended with": values, "merged": True}
    return case_of("differs-from-release", evidence, code.layers)


def _nearness(code: Code, release: Release, context: int | None) -> tuple[bool, bool, bool, bool]:
    here, there = scaling_of(code), release.scaling
    kinds = [None if scaling is None else scaling["rope_type"] for scaling in (here, there)]
    return (
        _same_base(code, release),
        _same_scaling(code, release),
        kinds[0] == kinds[1],
        release.context is not None and release.context == context,
    )


def _main_code(subject: Audited, part: Part) -> Code | None:
    """The code of the full-attention layers, or of all layers."""
    if part.section.part != "text":
        return None
    codes = [code for code in subject.resolved.codes if code.kind == "rotary" and code.part == "text"]
    return next((code for code in codes if code.window is None), codes[0] if codes else None)


def _shape(subject: Audited, part: Part) -> ModelShape | None:
    numbers = [part.fields.whole(name) for name in ("hidden", "layers", "heads")]
    hidden, layers, heads = (None if number is None else number.value for number in numbers)
    if part.name is None or part.known is None or hidden is None or layers is None or heads is None:
        return None
    vocabulary = part.section.values.get("vocab_size", (subject.opened.config or {}).get("vocab_size"))
    told = (
        number if type(number) is int else None for number in (vocabulary, part.section.values.get("intermediate_size"))
    )
    return ModelShape(part.name, hidden, layers, heads, *told)


@check
def missing_sections(subject: Audited) -> Iterator[Case]:
    """Missing sections of time, rows and columns, in a type whose releases all declare the same ones."""
    for part in rotary_parts(subject):
        code = _main_code(subject, part)
        if code is None or part.row is None or part.row.sections is None or part.name is None:
            continue
        held = any("mrope_section" in block.values for block in part.blocks())
        released = [each for each in of_type(part.name) if each.sections]
        if held or not released or len({each.sections for each in released}) > 1:
            continue
        release, sections = released[0], released[0].sections
        if sections is None or 2 * sum(sections) != code.rotated:
            continue
        values: dict[str, Any] = {"mrope_section": list(sections)}
        if part.row.sections == "interleaved":
            values["mrope_interleaved"] = True  # runtimes that use only the file take consecutive sections
        block = next(part.blocks(), None)
        if block is None and not part.fields.declares("base"):
            continue  # the file says nothing about rotation at all, which is a separate finding
        if block is None:
            values = {"rope_type": "default", **values}
        evidence: dict[str, Any] = {
            "here": "The M-RoPE sections (of time, rows and columns) are not in the file",
            "release": release.name,
            "shape": None,
            "published": f"mrope_section {spoken(list(sections))}",
            "because": "the file has nothing in place of the sections",
            "source of the release": release.source,
            "mended at": part.fields.source("rope_scaling") if block is None else block.place,
            "mended with": values,
            "merged": block is not None,
        }
        yield case_of("differs-from-release", evidence, code.layers)


# Lengths of training sequences and defaults of converters, as far as they are usual.
_USUAL_LENGTHS = tuple(1 << power for power in range(9, 16))


@check
def contexts_of_no_release(subject: Audited) -> Iterator[Case]:
    """A context that the releases of the shape do not have."""
    for part in _parts(subject):
        code, shape = _main_code(subject, part), _shape(subject, part)
        if code is not None and shape is not None:
            yield from context_of_no_release(subject, code, of_shape(shape))


def context_of_no_release(subject: Audited, code: Code, known: Sequence[Release]) -> Iterator[Case]:
    """A context beyond that of every release with the file's base and scaling, or a usual length far below them.

    Args:
        subject: The audited target.
        code: The code of its full-attention layers.
        known: The releases of its shape.
    """
    context = _declared_context(subject)
    if context is None or not known or not code.rates or any(each.context is None for each in known):
        return
    alike = [each for each in known if _same_base(code, each) and _same_scaling(code, each)]
    # A setting that the file lacks tells no release from another; a context that is too long for it is told with it.
    near = alike or [each for each in known if _same_base(code, each) and scaling_of(code) is None]
    near = near or ([] if declared(code, "base") else [*known])
    if not near:
        return
    lengths = sorted({each.context for each in known if each.context is not None})
    original = (near[0].scaling or {}).get("original_max_position_embeddings", 0)
    below = (context in _USUAL_LENGTHS and CLAIMED * context <= lengths[0]) or context <= original
    longest = max(each.context or 0 for each in near)
    # A release of this base and context has another scaling, which other checks look at.
    above = (
        bool(alike)
        and context > longest
        and not any(_same_base(code, each) and each.context == context for each in known)
    )
    if not below and not above:
        return
    names = listed([each.name for each in near[:3]])
    several = "have" if len(near[:3]) > 1 else "has"
    evidence: dict[str, Any] = {**declared(subject.resolved, "context"), "context": context, "longer": above}
    evidence |= {"published": f"{names}, published with this size, {several} {spoken(longest)}"}
    evidence |= {"release": near[0].name, "source of the release": near[0].source}
    place = next(iter(declared(subject.resolved, "context")), None)
    if len({each.context for each in near}) == 1 and place is not None and subject.opened.form != "gguf":
        evidence |= {"mended at": place, "mended with": near[0].context}
    yield case_of("context-of-no-release", evidence, None)


def scaled_as_released(subject: Audited) -> bool:
    """Whether base and scaling are those of a release of the model's sizes: then its lengths are right too."""
    for part in rotary_parts(subject):
        code, shape = _main_code(subject, part), _shape(subject, part)
        if code is not None and shape is not None and scaling_of(code) is not None:
            return any(_same_base(code, each) and _same_scaling(code, each) for each in of_shape(shape))
    return False


def _missing_scaling(
    subject: Audited, part: Part, code: Code, shape: ModelShape, known: tuple[Release, ...]
) -> Case | None:
    context = subject.resolved.context
    if code.base is None or context is None or scaling_of(code) is not None:
        return None
    scaled = [each for each in known if each.scaling and each.scaling["rope_type"] in OF_LENGTH]
    # A release of this shape that reaches the context without a scaling needs none.
    if any(not each.scaling and (each.context or 0) >= context and _same_base(code, each) for each in known):
        return None
    reach = reach_of(shape.type, code.base)
    own = [each for each in scaled if _same_base(code, each)]
    # Of several with this base, the one that has the context.
    release = next((each for each in own if each.context == context), next(iter(own), None))
    if release is None or reach is None or context < CLAIMED * reach:
        return None
    evidence: dict[str, Any] = {**declared(subject.resolved, "context"), **declared(code, "base")}
    evidence |= {"context": context, "base": code.base, "type": shape.type, "reach": reach, "release": release.name}
    evidence |= {"its scaling": scaling_in_words(release.scaling), "source of the release": release.source}
    return case_of("missing-scaling", evidence | _mended(part, release), code.layers)


def other_base(
    subject: Audited,
    code: Code,
    shape: ModelShape,
    known: Sequence[Release],
    every: Sequence[Release],
    *,
    default_of: str,
    at: str | None = None,
    here: str | None = None,
) -> Case:
    """A base that no release of the model's shape has.

    Args:
        subject: The audited target.
        code: The code of its full-attention layers.
        shape: Its shape.
        known: The releases of this shape and its length.
        every: The releases of this shape.
        default_of: Who has the base as a default, if it is not in the file.
        at: Where the base of the release is to be written; None for a GGUF file, which no edit changes.
        here: That the base is not in the file, and what is used, as a clause.
    """
    release = nearest_of(known, code, _declared_context(subject), shape.vocabulary)
    evidence: dict[str, Any] = declared(code, "base")
    if code.source.get("base", "").startswith(f"{CALLER}:"):
        evidence = {code.source["base"]: code.base}
    context = subject.resolved.context or 0
    if not evidence:
        evidence = {"here": here or f"The base is not in the file, and {spoken(code.base)} is used"}
        because = f"{spoken(code.base)} is the default {default_of}"
    else:
        lost = code.base == _USUAL_BASE and (context > _PLAIN_CONTEXT or scaling_of(code) is not None)
        because = f"{spoken(code.base)} is what runtimes use if a file has no base" if lost else None
        if not lost and context == release.context and _same_scaling(code, release) and _surely(shape, release):
            # If releases of one shape and context have several bases, the intended one is unknown.
            bases = {each.base for each in known if each.context == context and _same_scaling(code, each)}
            if len(bases) > 1:
                because = None
            elif release.scaling is not None:
                because = "context length and scaling are those of the release"
            elif code.base is not None and release.base in (code.base * 10, code.base / 10):
                because = "the context length is that of the release, and the base has one zero more or less"
    # The base may be that of another release of this shape, whose context was changed.
    certain = all(each.base != code.base for each in every) or not declared(code, "base")
    # A value is offered only where all releases that match agree on it, and one of them reaches the declared length.
    alike = [each for each in every if each.context == context] or every
    reached = any(each.context is None or context <= each.context for each in alike) or scaling_of(code) is not None
    certain = certain and reached and len({each.base for each in alike}) == 1
    evidence |= {"release": release.name, "shape": str(shape), "published": f"a base of {spoken(release.base)}"}
    evidence |= {"because": because, "mended at": at, "mended with": release.base if certain else None}
    if at is None and certain:
        evidence |= {"option": f"--rope-freq-base {release.base:.10g}"}
    return case_of("differs-from-release", evidence | {"source of the release": release.source}, code.layers)


def _other_scaling(subject: Audited, part: Part, code: Code, release: Release, shape: ModelShape) -> Case:
    here, there = scaling_of(code), release.scaling
    evidence: dict[str, Any] = {}
    because = None
    if here is None:
        factor = next((block.said("factor") for block in part.blocks() if block.values.get("factor") == 1), {})
        evidence = factor or {"here": "The file has no scaling"}
        because = "a factor of 1 changes nothing" if factor else "the file has nothing in place of the scaling"
        if _before_stretching(subject.resolved.context, there):
            because = None
    else:
        for block in part.blocks():
            evidence |= block.said("rope_type", "type", "factor", *_differing_keys(here, there))
        evidence = evidence or {"here": f"The scaling is {scaling_in_words(here)}"}
        usual = here.get("rope_type") == "llama3" and here.get("factor") == _USUAL_LLAMA3
        if usual and there is not None and there["rope_type"] == "llama3" and there["factor"] != here["factor"]:
            because = f"{spoken(_USUAL_LLAMA3)} is the factor of Llama 3.1 and a default of converters"
        elif (
            there is not None
            and here.get("rope_type") != "dynamic"  # it changes nothing within the context of the release
            and _same_base(code, release)
            and subject.resolved.context == release.context
            and _surely(shape, release)
        ):
            because = "base and context length are those of the release"
    published = "no scaling" if there is None else scaling_in_words(there, _differing_keys(here, there))
    evidence |= {"release": release.name, "shape": str(shape), "published": published, "because": because}
    evidence |= {"source of the release": release.source, **_mended(part, release)}
    return case_of("differs-from-release", evidence, code.layers)


def _surely(shape: ModelShape, release: Release) -> bool:
    """Whether the shape equals that of the release in every number, including the vocabulary."""
    return shape.vocabulary is not None and shape.vocabulary == release.shape.vocabulary


def _before_stretching(context: int | None, scaling: Mapping[str, Any] | None) -> bool:
    """Whether a model with this context may be an earlier stage of a release, before its context was extended."""
    if context is None or scaling is None or scaling["rope_type"] not in OF_LENGTH:
        return False
    return context <= scaling.get("original_max_position_embeddings", 0)


def _mended(part: Part, release: Release) -> dict[str, Any]:
    """Where the release's scaling belongs, and its numbers; empty if it has lists, which are not stored here."""
    if release.scaling is None or release.scaling["rope_type"] == "longrope":
        return {}
    block = next((each for each in part.blocks() if each.kind in (None, "full")), None)
    if block is None:
        return {"mended at": part.fields.source("rope_scaling"), "mended with": dict(release.scaling)}
    name = "type" if "type" in block.values and "rope_type" not in block.values else "rope_type"
    values = {name if key == "rope_type" else key: value for key, value in release.scaling.items()}
    values = {key: value for key, value in values.items() if block.values.get(key) != value}
    return {"mended at": block.place, "mended with": values, "merged": True}


def _same_base(code: Code, release: Release) -> bool:
    return code.base == release.base


def _same_scaling(code: Code, release: Release) -> bool:
    here, there = scaling_of(code), release.scaling
    if here is None or there is None:
        return here is there
    same = here["rope_type"] == there["rope_type"] and here["factor"] == there["factor"]
    unsaid = here["original"] is None and there.get("original_max_position_embeddings") is not None
    return same and not unsaid and not _differing_keys(here, there)


def scaling_of(code: Code) -> dict[str, Any] | None:
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
    ends = listed([f"{key} {spoken(block[key])}" for key in keys if key in block])
    return f"the scaling {block['rope_type']} with a factor of {spoken(block['factor'])}{f', {ends}' if ends else ''}"


def _differing_keys(here: Mapping[str, Any] | None, there: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The keys other than type and factor in which two scalings of one type differ."""
    if here is None or there is None or here["rope_type"] != there["rope_type"]:
        return ()
    own = {"original_max_position_embeddings": here["original"], **{key: here.get(key) for key in (*_LLAMA3, *_YARN)}}
    return tuple(
        key for key, value in own.items() if value is not None and there.get(key, _YARN.get(key, value)) != value
    )
