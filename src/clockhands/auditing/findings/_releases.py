"""Compares a model with published models of its shape: the same frequencies, others, or a setting that was lost."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clockhands.auditing._edits import Edit, added, together
from clockhands.auditing.findings._parts import AuditSubject, Part, check, declared
from clockhands.auditing.findings._published_models import (
    Release,
    SizedModel,
    differing_keys,
    main_code_of,
    of_type,
    reach_of,
    scaling_in_words,
    shape_of,
    sized,
    whole_model_type,
)
from clockhands.auditing.findings._rules import Case, case_of
from clockhands.configs.overriding import CALLER
from clockhands.configs.rope_blocks import RopeBlock
from clockhands.configs.section_fields import model_in
from clockhands.phrases import listed, spoken


class OfRelease(Case, code=("missing-scaling", "context-of-no-release")):
    """The published value that a release of the model's shape has for a missing or lost setting."""

    def edit(self) -> Edit | None:
        place, value = self.mended_at, self.mended_with
        if not isinstance(place, str) or value is None or value == {}:
            return None  # of a block that has all values of the release already, nothing is to be changed
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


# The base that most runtimes use if a file has none, and the contexts for which it is plausible without a scaling.
_USUAL_BASE = 10_000.0
_PLAIN_CONTEXT = 8_192
# The factor of Llama 3.1, which converters use as a default.
_USUAL_LLAMA3 = 8.0
CLAIMED = 4
"""How many times longer than what the base alone reaches a context has to be, to need the scaling."""
OF_LENGTH = ("llama3", "yarn", "longrope")
"""Scalings that leave fast pairs alone: what they lack shows beyond the length of the first training."""


def with_release(subject: AuditSubject, case: Case) -> Case:
    """Add to a fact noted while reading what the release of the model's shape has in that place.

    It is added where it decides the severity or the fix: a default that equals the release's value, missing numbers of
    a scaling, a length that was not changed when a scaling was switched on.
    """
    if case.code not in ("default-base", "incomplete-scaling", "missing-original", "factor-times-original"):
        return case
    found = (_published(part, model, case) for part, model in sized(subject, subject.rotary_parts))
    more = next(filter(None, found), None)
    return case if more is None else case_of(case.code, {**case.evidence, **more}, case.layers)


def _published(part: Part, model: SizedModel, case: Case) -> dict[str, Any]:
    """What a release of the model's shape has in the place of a fact, as evidence; empty if it decides nothing."""
    known, evidence, context = model.every, case.evidence, model.subject.resolved.context or 0
    if case.code == "default-base":
        reaching = [each for each in known if each.context is None or context <= each.context]
        own = next((each for each in reaching if each.base == evidence.get("used")), None)
        # If another release of the shape has another base, a missing one may be either.
        alone = len({each.base for each in reaching}) == 1 and evidence.get("belongs at") == _base_place(part)
        return {} if own is None or not alone else {"as released": own.name}
    if case.code == "factor-times-original":
        own = next((each for each in known if each.scaling is None and each.context == context), None)
        reach = evidence.get("factor x original", 0)
        # A product that overflows float is evidence as text.
        stretches = evidence.get("scaling") == "yarn" and isinstance(reach, int | float) and reach > context
        return {} if own is None or not stretches else {"switched on in": own.name}
    block = next((each for each in part.blocks() if any(place.startswith(each.place) for place in evidence)), None)
    if block is None and case.code == "missing-original":
        block = full_block(part)
    own = next((each for each in known if block is not None and _completes(block, each)), None)
    if own is not None:
        return {"release": own.name, **_scaling_of_release(part, own)}
    trained = next((each for each in known if each.scaling is None and each.trained), None)
    if trained is None or block is None or case.code != "missing-original":
        return {}
    return {"release": trained.name, **_trained_at(block, trained)}


def full_block(part: Part) -> RopeBlock | None:
    """The block of the full-attention layers, or of all layers."""
    return next((each for each in part.blocks() if each.kind in (None, "full")), None)


def _completes(block: RopeBlock, release: Release) -> bool:
    """Whether a release has the scaling of a block, and the keys that the block has of it."""
    there = release.scaling
    if there is None or there["rope_type"] != block.scaling:
        return False
    return all(block.values[key] == value for key, value in there.items() if key in block.values and key != "rope_type")


def _base_place(part: Part) -> str:
    return part.fields.source((*part.fields.spellings.get("base", ()), "rope_theta")[0])


@check
def releases_of_the_shape(subject: AuditSubject) -> Iterator[Case]:
    """A base or scaling that no release of the shape has, or a context without the scaling that it needs."""
    for part, model in sized(subject):
        known = _of_their_length(model)
        if model.code.base is None or not model.code.rates or not known:
            continue
        missing = _missing_scaling(part, model, known)
        yield from _differing(part, model, known) if missing is None else [missing]


def _of_their_length(model: SizedModel) -> tuple[Release, ...]:
    """Remove releases with the common fallback base that a file with a lost base only seems to be from.

    That base is lost where others of the shape have another one, and the context is one of theirs, or longer than that
    of the release; unless a scaling has changed the context.
    """
    context = model.context
    if model.scaling is not None or context is None:
        return model.every
    others = {each.context for each in model.every if each.base != _USUAL_BASE}

    def plausible(release: Release) -> bool:
        if release.base != _USUAL_BASE or release.context == context or not others:
            return True
        return context not in others and context < (release.context or 0)

    return tuple(filter(plausible, model.every))


def _differing(part: Part, model: SizedModel, known: tuple[Release, ...]) -> Iterator[Case]:
    code = model.code
    if any(map(model.equals, known)):
        return
    scaling = code.scaling or {}
    original = scaling.get("original")
    # The release that this one extends by a YaRN, if its original length is documented.
    extended = model.extendable() if scaling.get("type") == "yarn" and original is not None else None
    if extended is not None:
        stated = any("original_max_position_embeddings" in block.values for block in part.blocks())
        context = model.subject.resolved.context
        # An extension from another original length to one beyond the trained length was chosen by the user: the model
        # was trained further, or its context was shortened before.
        reached = scaling.get("factor", 0) * original
        further = context is not None and context == reached and context > (extended.trained or 0)
        # The declared length of the release is not its trained length, but is often taken for it.
        if stated and (original == extended.context or not further) and extended.trained != original:
            yield _other_original(part, model, extended)
        return
    nearest = model.nearest(known)
    if not model.has_base(nearest):
        at = next(iter(declared(code, "base")), _base_place(part))
        yield other_base(model, known, f"for models of type {spoken(model.shape.type)}", at=at)
    # A scaling in a place where this type does not read it is a separate finding.
    unread = model.scaling is None and any(block.scales for block in part.blocks())
    if not model.has_scaling(nearest) and not unread:
        yield _other_scaling(part, model, nearest)


def _trained_at(block: RopeBlock, release: Release) -> dict[str, Any]:
    """That the trained length of a release belongs in a block."""
    values = {"original_max_position_embeddings": release.trained}
    return {"mended at": block.place, "mended with": values, "merged": True}


def _other_original(part: Part, model: SizedModel, release: Release) -> Case:
    """A YaRN whose original length is not the trained length of the release."""
    block, original = full_block(part), spoken((model.code.scaling or {}).get("original"))
    evidence: dict[str, Any] = {} if block is None else block.said("original_max_position_embeddings")
    evidence = evidence or {"here": f"The original length of the scaling is {original}"}
    evidence |= {"release": release.name, "shape": str(model.shape)}
    evidence |= {"published": f"an original length of {spoken(release.trained)}"}
    because = "its documented YaRN extension starts there"
    evidence |= {"because": because, "source of the release": release.source}
    evidence |= {} if block is None else _trained_at(block, release)
    return case_of("differs-from-release", evidence, model.code.layers)


@check
def missing_sections(subject: AuditSubject) -> Iterator[Case]:
    """Missing sections of time, rows and columns, in a type whose releases all declare the same ones."""
    for part in subject.rotary_parts:
        code = main_code_of(subject, part)
        if code is None or part.row is None or part.row.sections is None or part.name is None:
            continue
        whole = model_in(subject.opened.config or {})[1].get("model_type", part.name)
        if whole_model_type(str(whole)) != whole_model_type(part.name):
            continue  # another model with this text part, such as MiniCPM-V 4.6, may number its positions otherwise
        held = any("mrope_section" in block.values for block in part.blocks())
        released = [each for each in of_type(part.name) if each.sections]
        if held or not released or any(each.sections != released[0].sections for each in released):
            continue
        shape = shape_of(subject, part)
        release = next((each for each in released if shape is not None and shape.fits(each.shape)), released[0])
        sections = release.sections
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
def contexts_of_no_release(subject: AuditSubject) -> Iterator[Case]:
    """A context that the releases of the shape do not have."""
    for _, model in sized(subject):
        yield from context_of_no_release(model)


def context_of_no_release(model: SizedModel) -> Iterator[Case]:
    """A context beyond that of every release with the file's base and scaling, or a usual length far below them."""
    context, known, resolved = model.context, _of_their_length(model), model.subject.resolved
    if context is None or not known or not model.code.rates or any(each.context is None for each in model.every):
        return
    alike = [*filter(model.equals, known)]
    # A setting that the file lacks tells no release from another; a context that is too long for it is told with it.
    near = alike or [each for each in known if model.has_base(each) and model.scaling is None]
    near = near or ([] if declared(model.code, "base") else [*known])
    elsewhere = [each for each in known if each.context == context]
    if not near:
        return
    shortest, longest = min(each.context or 0 for each in known), max(each.context or 0 for each in near)
    original = (near[0].scaling or {}).get("original_max_position_embeddings", 0)
    below = (context in _USUAL_LENGTHS and CLAIMED * context <= shortest) or context <= original
    below = below and all(each.context != context for each in near)
    # A release of this base and context has another scaling, which other checks look at.
    above = bool(alike) and context > longest and not any(map(model.has_base, elsewhere))
    if not below and not above:
        return
    names = listed([each.name for each in near[:3]])
    several = "have" if len(near[:3]) > 1 else "has"
    evidence: dict[str, Any] = {**declared(resolved, "context"), "context": context, "longer": above}
    evidence |= {"published": f"{names}, published with this size, {several} {spoken(longest)}"}
    if above and elsewhere:
        evidence["elsewhere"] = listed([f"{each.name} with a base of {spoken(each.base)}" for each in elsewhere])
    trained = next((each.trained for each in near if each.trained and each.scaling is None), None)
    evidence |= {"trained": trained} if trained and above else {}
    evidence |= {"release": near[0].name, "source of the release": near[0].source}
    place = next(iter(declared(resolved, "context")), None)
    certain = len({each.context for each in near}) == 1 and not (above and elsewhere)
    if certain and place is not None and model.subject.opened.form != "gguf":
        evidence |= {"mended at": place, "mended with": near[0].context}
    yield case_of("context-of-no-release", evidence, None)


def scaled_as_released(subject: AuditSubject) -> bool:
    """Whether base and scaling are those of a release of the model's sizes: then its lengths are right too."""
    model = next((model for _, model in sized(subject, subject.rotary_parts) if model.scaling is not None), None)
    return model is not None and any(map(model.equals, model.every))


def _missing_scaling(part: Part, model: SizedModel, known: tuple[Release, ...]) -> Case | None:
    code, context = model.code, model.subject.resolved.context
    if code.base is None or context is None or model.scaling is not None:
        return None
    # A release of this shape that reaches the context without a scaling needs none.
    if any(not each.scaling and (each.context or 0) >= context and model.has_base(each) for each in known):
        return None
    reach = reach_of(model.shape.type, code.base)
    own = [each for each in known if each.scaling and each.scaling["rope_type"] in OF_LENGTH and model.has_base(each)]
    # Of several with this base, the one that has the context.
    release = next((each for each in own if each.context == context), next(iter(own), None))
    if release is None or reach is None or context < CLAIMED * reach:
        return None
    evidence: dict[str, Any] = {**declared(model.subject.resolved, "context"), **declared(code, "base")}
    evidence |= {"context": context, "base": code.base, "type": model.shape.type, "reach": reach}
    evidence |= {"release": release.name, "its scaling": scaling_in_words(release.scaling)}
    evidence |= {"source of the release": release.source}
    return case_of("missing-scaling", evidence | _scaling_of_release(part, release), code.layers)


def other_base(
    model: SizedModel, known: Sequence[Release], default_of: str, *, at: str | None = None, here: str | None = None
) -> Case:
    """A base that no release of the model's shape has.

    Args:
        model: The model.
        known: The releases of its shape and its length.
        default_of: Who has the base as a default, if it is not in the file.
        at: Where the base of the release is to be written; None for a GGUF file, which no edit changes.
        here: That the base is not in the file, and what is used, as a clause.
    """
    code, every, release = model.code, model.every, model.nearest(known)
    evidence: dict[str, Any] = declared(code, "base")
    if code.source.get("base", "").startswith(f"{CALLER}:"):
        evidence = {code.source["base"]: code.base}
    context = model.subject.resolved.context or 0
    if not evidence:
        evidence = {"here": here or f"The base is not in the file, and {spoken(code.base)} is used"}
        because = f"{spoken(code.base)} is the default {default_of}"
    else:
        lost = code.base == _USUAL_BASE and (context > _PLAIN_CONTEXT or model.scaling is not None)
        because = f"{spoken(code.base)} is what runtimes use if a file has no base" if lost else None
        # If releases of one shape and context have several bases, the intended one is unknown.
        bases = {each.base for each in known if each.context == context and model.has_scaling(each)}
        if not lost and model.is_whole(release) and model.has_scaling(release) and len(bases) == 1:
            if release.scaling is not None:
                because = "context length and scaling are those of the release"
            elif code.base is not None and release.base in (code.base * 10, code.base / 10):
                because = "the context length is that of the release, and the base has one zero more or less"
    # The base may be that of another release of this shape, whose context was changed.
    certain = not any(map(model.has_base, every)) or not declared(code, "base")
    # A value is offered only where all releases that match agree on it, and one of them reaches the declared length.
    alike = [each for each in every if each.context == context] or every
    reached = any(each.context is None or context <= each.context for each in alike) or model.scaling is not None
    certain = certain and reached and len({each.base for each in alike}) == 1
    evidence |= {"release": release.name, "shape": str(model.shape), "published": f"a base of {spoken(release.base)}"}
    evidence |= {"because": because, "mended at": at, "mended with": release.base if certain else None}
    if at is None and certain:
        evidence |= {"option": f"--rope-freq-base {release.base:.10g}"}
    return case_of("differs-from-release", evidence | {"source of the release": release.source}, code.layers)


def _other_scaling(part: Part, model: SizedModel, release: Release) -> Case:
    here, there, context = model.scaling, release.scaling, model.subject.resolved.context
    keys = differing_keys(here, there)
    evidence: dict[str, Any] = {}
    because = None
    if here is None:
        evidence = next((block.said("factor") for block in part.blocks() if block.values.get("factor") == 1), {})
        if not _before_stretching(context, there):
            because = "a factor of 1 changes nothing" if evidence else "the file has nothing in place of the scaling"
        evidence = evidence or {"here": "The file has no scaling"}
    else:
        for block in part.blocks():
            evidence |= block.said("rope_type", "type", "factor", *keys)
        evidence = evidence or {"here": f"The scaling is {scaling_in_words(here)}"}
        usual = here["rope_type"] == "llama3" and here["factor"] == _USUAL_LLAMA3
        if usual and there is not None and there["rope_type"] == "llama3" and there["factor"] != here["factor"]:
            because = f"{spoken(_USUAL_LLAMA3)} is the factor of Llama 3.1 and a default of converters"
        # A dynamic scaling changes nothing within the context of the release.
        elif there and here["rope_type"] != "dynamic" and model.has_base(release) and model.is_whole(release):
            because = "base and context length are those of the release"
    published = "no scaling" if there is None else scaling_in_words(there, keys)
    evidence |= {"release": release.name, "shape": str(model.shape), "published": published, "because": because}
    evidence |= {"source of the release": release.source, **_scaling_of_release(part, release)}
    return case_of("differs-from-release", evidence, model.code.layers)


def _before_stretching(context: int | None, scaling: Mapping[str, Any] | None) -> bool:
    """Whether a model with this context may be an earlier stage of a release, before its context was extended."""
    if context is None or scaling is None or scaling["rope_type"] not in OF_LENGTH:
        return False
    return context <= scaling.get("original_max_position_embeddings", 0)


def _scaling_of_release(part: Part, release: Release) -> dict[str, Any]:
    """Where the release's scaling belongs, and its numbers; empty if it has lists, which are not stored here."""
    if release.scaling is None or release.scaling["rope_type"] == "longrope":
        return {}
    block = full_block(part)
    if block is None:
        return {"mended at": part.fields.source("rope_scaling"), "mended with": dict(release.scaling)}
    name = "type" if "type" in block.values and "rope_type" not in block.values else "rope_type"
    values = {name if key == "rope_type" else key: value for key, value in release.scaling.items()}
    values = {key: value for key, value in values.items() if block.values.get(key) != value}
    return {"mended at": block.place, "mended with": values, "merged": True}
