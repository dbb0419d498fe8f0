"""Findings on correct settings that some runtimes misread."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clockhands.auditing._edits import Edit, copied, moved, replaced, together
from clockhands.auditing.findings._parts import AuditSubject, check, declared
from clockhands.auditing.findings._rules import Case, case_of
from clockhands.configs.model_types import table
from clockhands.configs.released_code import ReleasedClass, class_in, line_of
from clockhands.configs.resolved import TEXT, LayerEncoding
from clockhands.configs.rope_blocks import NEW, OLD, layer_blocks, scaling_name
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Yarn, longrope_magnitude, yarn_magnitude
from clockhands.measures import difference
from clockhands.phrases import listed, spoken
from clockhands.runtimes import LayerDifference, Reading, statements
from clockhands.runtimes.telling import (
    code_in_words,
    in_its_place,
    pairs_in_words,
    ratio_in_words,
    release,
    scaling_in_words,
)
from clockhands.runtimes.views import View, facts, names, positive_number


class NewShapeOnly(Case, code="new-shape-only"):
    in_the_old_shape: Mapping[str, str] | None = None

    def edit(self) -> Edit | None:
        """Write the same values in the old shape as well."""
        return None if not self.in_the_old_shape else in_both_shapes(self.in_the_old_shape)


class UncommonScalingName(Case, code="uncommon-scaling-name"):
    common_name: str

    def stated_in(self, end: str) -> Any:
        """The value of the first key that ends so."""
        return next((value for place, value in self.stated if place.endswith(end)), None)

    def scaling_name(self) -> Any:
        """The name in the file."""
        return self.stated_in("type")

    def context(self) -> Any:
        """The context in the file."""
        return self.stated_in("max_position_embeddings")

    def factor(self) -> Any:
        """The factor in the file."""
        return self.stated_in("factor")

    def edit(self) -> Edit | None:
        place = next((place for place, _ in self.stated if place.endswith("type")), None)
        if place is None:
            return None
        return replaced(place, self.common_name, f"Write the scaling name {spoken(self.common_name)}.")


class MisplacedOriginal(Case, code="misplaced-original"):
    outside: str | None = None

    def edit(self) -> Edit | None:
        if self.place is None or self.outside is None:
            return None
        says = "Move the original length out of the scaling block, next to max_position_embeddings."
        return moved(self.place, self.outside, says)


class LengthTimesFactor(Case, code="length-times-factor"):
    confirmed: bool | None = None
    multiplied_by: Sequence[str] | None = None

    def multiplying(self) -> Sequence[str]:
        """The runtimes that multiply the two."""
        return self.multiplied_by or ["vLLM"]

    def own(self) -> str:
        """The length and the factor."""
        return self._said(own=True)

    def beside(self) -> str:
        """The keys that have the length as well."""
        return self._said(own=False)

    def _said(self, *, own: bool) -> str:
        ends = (_CONTEXT, "factor")
        return listed([f"{name} is {spoken(value)}" for name, value in self.named if name.endswith(ends) == own])

    def context(self) -> Any:
        """The length in the file."""
        return next(value for name, value in self.named if name.endswith(_CONTEXT))

    def ambiguous(self) -> bool:
        """Whether no other key says which length is meant."""
        return not self.confirmed


class ExplicitAttentionFactor(Case, code="explicit-attention-factor"):
    def written(self) -> Any:
        """The factor in the file."""
        ((_, factor),) = self.stated
        return factor


class DisputedAttentionFactor(Case, code="disputed-attention-factor"):
    readers_of_the_ratio: Sequence[str] = ()
    readers_of_the_formula: Sequence[str] = ()

    def scales(self) -> str:
        """The two keys, with their values."""
        return listed([f"{name.rpartition('.')[2]} is {spoken(value)}" for name, value in self.named[:2]])

    def users_of_the_ratio(self) -> Sequence[str]:
        """The runtimes that take the ratio."""
        return self.readers_of_the_ratio or _NO_RUNTIME

    def users_of_the_formula(self) -> Sequence[str]:
        """The runtimes that take the formula."""
        return self.readers_of_the_formula or _NO_RUNTIME


_NO_RUNTIME = ("no runtime that was compared",)


class SoftmaxScale(Case, code="softmax-scale"):
    def use_by_release(self) -> str:
        """Which releases apply the scale, and which do not."""
        releases = {name: value for name, value in self.evidence.items() if isinstance(value, bool)}
        does, lacks = ([name for name, value in releases.items() if value is applied] for applied in (True, False))
        verb = "apply" if len(does) > 1 else "applies"
        words = [f"{listed(does)} {verb} this scale for this model type"] if does else []
        words += [f"{listed(lacks)} {'do' if len(lacks) > 1 else 'does'} not apply this scale"] if lacks else []
        return ", ".join(words)


class UncommonBetas(Case, code="uncommon-betas"):
    first_pair: int | None = None

    def with_pairs(self) -> bool:
        """Whether the pairs that change are known."""
        return self.first_pair is not None


def _code_without(key: str, reading: Reading) -> list[str]:
    """The code of the release of a reading that a statement names because it does not mention a key."""
    about = facts()["readers"][reading.reader]
    said = [each for each in statements() if each.runtime == about.get("runtime") and key in each.unread]
    found = [each.code(None, about["version"]) for each in said]
    return list(dict.fromkeys(str(each) for each in found if each is not None))


def _class_in_words(code: ReleasedClass | None) -> str:
    return "" if code is None else f"{code.name}, {code.place}"


_CONTEXT, _ORIGINAL = "max_position_embeddings", "original_max_position_embeddings"
# Two bases in keys of the old shape: that of the windowed layers, and the keys for the other one.
_LOCAL = {"rope_local_base_freq": ("rope_theta",), "local_rope_theta": ("global_rope_theta", "rope_theta")}
# Scaling names of a single program or family, and their common names.
_UNCOMMON = {"deepseek_yarn": "yarn", "deepseek_llama_scaling": "yarn", "telechat3-yarn": "yarn"}
# Lengths beside the declared one that may show whether it already includes a factor.
_LENGTHS = ("model_max_length", "max_sequence_length", "seq_length", "max_seq_len", "n_ctx")


@check
def new_shape_only(subject: AuditSubject) -> Iterator[Case]:
    """A base or a scaling in the new shape alone, which runtimes that read the old shape ignore."""
    reading = _reading(subject, "transformers-4")
    # If the model class fails without the old shape, runtimes that use only its config class do not fail.
    if reading is None or not reading.parted or _noticed(subject, "conflicting-shapes"):
        return
    if not any(place.endswith(NEW) for place in reading.not_read):
        return
    worst = worst_of(reading.parted)
    assert worst.ours is not None
    evidence: dict[str, Any] = declared(worst.ours, "base")
    evidence |= _scaling_said(worst.ours)
    evidence |= {"read instead": _changed(worst.theirs, worst.ours), "right": _changed(worst.ours, worst.theirs)}
    evidence |= {"reader": release(reading)} | _apart(worst) | in_the_old_shape(subject, worst.ours)
    code = class_in(release(reading).lower(), subject.resolved.model_type or "")
    shown = code is not None and code.lacks(NEW)
    evidence["its class"] = _class_in_words(code) if shown else "read by a person; no line of its class is known"
    if reading.because is not None:
        evidence["fails"] = reading.because
    yield case_of("new-shape-only", evidence, worst.layers if len(reading.parted) > 1 else None)


@check
def legacy_layer_bases(subject: AuditSubject) -> Iterator[Case]:
    """Two bases in keys of the old shape: a runtime that reads only one gives all layers the same base."""
    for view in _views(subject):
        for local, others in _LOCAL.items():
            other = next((key for key in others if view.number(key)), None)
            if other is None or not view.number(local) or view.block(NEW) or view.number(local) == view.number(other):
                continue
            evidence = {view.place(other): view.get(other), view.place(local): view.get(local)}
            codes = [code for code in subject.resolved.codes if code.part in TEXT and code.rates]
            sliding = next((code for code in codes if code.base == view.number(local)), None)
            full = next((code for code in codes if code.base == view.number(other)), None)
            if sliding is not None and full is not None and len(sliding.rates or ()) == len(full.rates or ()):
                found = difference(full.rates or (), sliding.rates or ())
                evidence |= {"largest ratio": found.ratio, "pair": found.ratio_pair}
            yield case_of("legacy-layer-bases", evidence)


@check
def uncommon_scaling_name(subject: AuditSubject) -> Iterator[Case]:
    """A scaling name that only some runtimes know."""
    for view, key, block in _blocks(subject):
        name = scaling_name(block)
        if name not in _UNCOMMON:
            continue
        spelt = "rope_type" if block.get("rope_type") == name else "type"
        evidence: dict[str, Any] = {view.place(f"{key}.{spelt}"): name, "common name": _UNCOMMON[name]}
        evidence["refused by"] = [release(each) for each in subject.readings if name in (each.because or "")]
        context, factor = view.number(_CONTEXT), positive_number(block.get("factor"))
        if context and factor:
            evidence |= {view.place(_CONTEXT): context, view.place(f"{key}.factor"): factor}
            evidence["length x factor"] = context * factor
        yield case_of("uncommon-scaling-name", evidence)


@check
def explicit_attention_factor(subject: AuditSubject) -> Iterator[Case]:
    """An explicit attention factor that differs from the scaling's formula."""
    for view, key, block in _blocks(subject):
        written, formula = positive_number(block.get("attention_factor")), _formula(view, block)
        if written is None or formula is None or abs(written / formula - 1) <= 1e-6:
            continue
        place = view.place(f"{key}.attention_factor")
        dropped = [each for each in subject.readings if place in each.not_read and each.parted]
        code = [each for reading in dropped for each in _code_without("attention_factor", reading)]
        evidence = {"formula": formula, "readers": list(map(release, dropped)), "lacking code": code}
        yield case_of("explicit-attention-factor", {place: written} | evidence)


@check
def disputed_attention_factor(subject: AuditSubject) -> Iterator[Case]:
    """The key mscale next to mscale_all_dim: some runtimes use their ratio, others ignore them or use the formula."""
    for view, key, block in _blocks(subject):
        factor = positive_number(block.get("factor"))
        scales = [positive_number(block.get(name)) for name in ("mscale", "mscale_all_dim")]
        if factor is None or factor <= 1 or None in scales or block.get("attention_factor") is not None:
            continue
        evidence: dict[str, Any] = {
            view.place(f"{key}.{name}"): block[name] for name in ("mscale", "mscale_all_dim", "factor")
        }
        evidence["ratio"] = yarn_magnitude(factor, scales[0] or 1) / yarn_magnitude(factor, scales[1] or 1)
        evidence["formula"] = yarn_magnitude(factor)
        for name in ("ratio", "formula"):
            evidence[f"readers of the {name}"] = [
                release(each) for each in subject.readings if _multiplies(each, evidence[name])
            ]
        yield case_of("disputed-attention-factor", evidence)


@check
def softmax_scale(subject: AuditSubject) -> Iterator[Case]:
    """mscale_all_dim requires a factor on the scores too, besides that on cosine and sine."""
    for view, key, block in _blocks(subject, loaded=True):
        factor, whole = (positive_number(block.get(name)) for name in ("factor", "mscale_all_dim"))
        known = view.known
        if factor is None or whole is None or factor <= 1 or (known is not None and not known.scores.get("magnitude")):
            continue  # the class of a known type scales the scores by it, or does not use it there
        evidence: dict[str, Any] = {view.place(f"{key}.{name}"): block[name] for name in ("mscale_all_dim", "factor")}
        evidence["scale of the scores"] = yarn_magnitude(factor, whole) ** 2
        evidence["type"] = view.name
        for reader in ("transformers-5", "transformers-4"):
            reading = _reading(subject, reader)
            # A part inside a config may be built by another class than its own type says.
            if reading is not None and reading.codes and view.name in names(reader):
                evidence[release(reading)] = view.name in facts()[reader]["scores"]
        yield case_of("softmax-scale", evidence)


@check
def uncommon_betas(subject: AuditSubject) -> Iterator[Case]:
    """YaRN with other ramp bounds than those of runtimes that use constants."""
    seen = set()
    for view, key, block in _blocks(subject):
        if scaling_name(block) not in ("yarn", *_UNCOMMON):
            continue
        odd = {
            name: block[name]
            for name, usual in (("beta_fast", 32), ("beta_slow", 1), ("truncate", True))
            if block.get(name) is not None and block[name] != usual
        }
        if not odd or (view.path, key) in seen:
            continue
        seen.add((view.path, key))
        evidence: dict[str, Any] = {view.place(f"{key}.{name}"): value for name, value in odd.items()}
        places = set(evidence)
        evidence["readers"] = [release(each) for each in subject.readings if places & set(each.not_read)]
        evidence |= _with_constants(subject)
        yield case_of("uncommon-betas", evidence)


@check
def misplaced_original(subject: AuditSubject) -> Iterator[Case]:
    """LongRoPE's original length inside the block, over which the class of the type writes its default outside it."""
    for view, key, block in _blocks(subject):
        inside = _ORIGINAL in block and view.get(_ORIGINAL) is None
        if not inside or "long_factor" not in block or view.known is None or "original" not in view.known.defaults:
            continue
        evidence: dict[str, Any] = {view.place(f"{key}.{_ORIGINAL}"): block[_ORIGINAL]}
        evidence |= {"type": view.name, "outside": view.place(_ORIGINAL), "default": view.known.defaults["original"]}
        library = table()["library"]
        evidence["its line"] = f"{library}, {line_of(library, _ORIGINAL, 'config')}"
        evidence["refused by"] = [release(each) for each in subject.readings if each.verdict == "refuses"]
        yield case_of("misplaced-original", evidence)


@check
def length_times_factor(subject: AuditSubject) -> Iterator[Case]:
    """A scaling whose factor some runtimes multiply the declared length by, and others assume to be included."""
    for view, key, block in _blocks(subject):
        factor, context = positive_number(block.get("factor")), view.number(_CONTEXT)
        if scaling_name(block) not in ("linear", "dynamic") or factor is None or factor <= 1 or context is None:
            continue
        served = [each for each in subject.readings if each.reader.startswith("vllm") and each.codes]
        longest = [each for each in served if each.longest == int(context * factor)]
        if served and not longest:
            continue  # a type that they know to be an exception
        evidence: dict[str, Any] = {view.place(_CONTEXT): context, view.place(f"{key}.factor"): factor}
        evidence |= {"length x factor": context * factor, "multiplied by": [release(each) for each in longest]}
        beside = {view.place(name): view.get(name) for name in _LENGTHS if view.number(name) == context}
        for file, document in subject.opened.beside.items():
            if positive_number(document.get("model_max_length")) == context:
                beside[f"{file}:model_max_length"] = document["model_max_length"]
        yield case_of("length-times-factor", evidence | beside | {"confirmed": bool(beside)})


@check
def flat_vision_language(subject: AuditSubject) -> Iterator[Case]:
    """A vision-language config in the old flat form, of a type whose new class reads text_config alone."""
    flat = facts()["transformers-5"]["flat"]
    for view in _views(subject):
        text = None if view.path or view.name is None else flat.get(view.name)
        if text is None or not isinstance(view.get("vision_config"), Mapping) or "text_config" in view.values:
            continue
        held = [key for key in ("rope_theta", "partial_rotary_factor", _CONTEXT, "head_dim", OLD) if key in view.values]
        if not held:
            continue
        evidence: dict[str, Any] = {view.place(key): view.values[key] for key in held}
        evidence |= {"type": view.name, "text type": text}
        evidence["its class"] = _class_in_words(None if view.known is None else view.known.code)
        yield case_of("flat-vision-language", evidence)


def _reading(subject: AuditSubject, name: str) -> Reading | None:
    return next((each for each in subject.readings if each.reader == name), None)


def _views(subject: AuditSubject) -> Iterator[View]:
    """The text parts of a config that runtimes are compared on."""
    if subject.runtimes.incomparable is None:
        yield from subject.runtimes.parts


def _blocks(subject: AuditSubject, *, loaded: bool = False) -> Iterator[tuple[View, str, Mapping[str, Any]]]:
    """Every block that names a scaling, flat or for one kind of layer, with the key that holds it.

    Args:
        subject: What is audited.
        loaded: Whether those of the config of a loaded model count, which no other runtime reads.
    """
    held = loaded and subject.opened.form == "module" and subject.opened.config is not None
    if held or subject.runtimes.incomparable is None:
        for view, block in subject.runtimes.scaled_blocks:
            yield view, block.path, block.values


def _noticed(subject: AuditSubject, code: str) -> bool:
    return any(fact.code == code for fact in subject.resolved.facts)


def worst_of(parted: Sequence[LayerDifference]) -> LayerDifference:
    """Of the groups of layers in which two readings differ, the one with the largest ratio of RoPE frequencies."""
    return max(parted, key=_how_far)


def _how_far(group: LayerDifference) -> float:
    if group.ladder is None:
        return float("inf") if group.says else 0.0
    return group.ladder.ratio


def _apart(group: LayerDifference) -> dict[str, Any]:
    """The numbers of a difference, as evidence."""
    ladder = group.ladder
    if ladder is None or ladder.same_rates:
        return {}
    made: dict[str, Any] = {"largest ratio": ladder.ratio, "pair": ladder.ratio_pair, "pairs": ladder.pairs}
    return made | {"off by a radian from": ladder.reaches(1.0)}


def in_both_shapes(held: Mapping[str, str]) -> Edit:
    """The edit that also writes values of the new shape in the old one.

    Args:
        held: For each source in the old shape, the source that holds its value.
    """
    keys = listed([to.rpartition(":")[2] for to in held])
    return together(
        f"Write the same values in the old format as well, under {keys}.",
        *(copied(place, to, "") for to, place in held.items()),
    )


def in_the_old_shape(subject: AuditSubject, code: LayerEncoding) -> dict[str, Any]:
    """Keys of the old shape, each with the source in the new one that holds its value."""
    for view in _views(subject):
        block, entry = view.block(NEW), facts()["transformers-4"]["types"].get(view.name)
        if block is None or entry is None or "short_factor" in block:
            continue
        inner = layer_blocks(block)
        full, local = inner.get("full_attention"), inner.get("sliding_attention")
        nested = full is not None and local is not None
        if nested != bool(inner) or nested != ("local" in entry):
            continue
        held, place = (full, f"{NEW}.full_attention") if full is not None else (block, NEW)
        made = {}
        for name, inner in (("base", "rope_theta"), ("share", "partial_rotary_factor")):
            if name in entry and inner in held and entry[name][0] not in view.values:
                made[view.place(entry[name][0])] = view.place(f"{place}.{inner}")
        if local is not None and "rope_theta" in local:
            made[view.place(entry["local"][0])] = view.place(f"{NEW}.sliding_attention.rope_theta")
        if scaling_name(held) not in (None, "default"):
            made[view.place(OLD)] = view.place(place)
        return {"in the old shape": made} if made and code.part == "text" else {}
    return {}


def instead_of(group: LayerDifference) -> list[str]:
    """What the second of two readings uses instead of the first, a clause for each difference."""
    words = []
    if group.ladder is not None and not group.ladder.same and group.ours != group.theirs:
        theirs, ours = _changed(group.theirs, group.ours), _changed(group.ours, group.theirs)
        words = [f"{theirs} instead of {ours}"] if theirs != ours else []
    words += map(in_its_place, group.says)
    ladder = group.ladder
    if ladder is not None and not ladder.same_rates and not any("base" in each or "scaling" in each for each in words):
        words.insert(0, f"other RoPE frequencies ({pairs_in_words(ladder)}, {ratio_in_words(ladder)})")
    if ladder is not None and not ladder.same_factor and group.ours is not None and group.theirs is not None:
        factors = [code.attention_factor or 1.0 for code in (group.theirs, group.ours)]
        words.append(f"attention factor {factors[0]:.4f} instead of {factors[1]:.4f}")
    return words or [f"{code_in_words(group.theirs)} instead of {code_in_words(group.ours)}"]


def _changed(code: LayerEncoding | None, other: LayerEncoding | None) -> str:
    """The values that differ in the second reading: base, scaling, share."""
    if code is None or other is None or code.kind != other.kind:
        return code_in_words(code)
    words = []
    if code.base != other.base:
        words.append("no base" if code.base is None else f"base {code.base:,.10g}")
    if scaling_in_words(code) != scaling_in_words(other):
        scaled = scaling_in_words(code).replace(" by ", " with factor ")
        words.append(f"the scaling {scaled}" if code.scaling else scaled)
    if code.rotated != other.rotated and code.rotated is not None and code.width:
        words.append(f"a partial rotary factor of {code.rotated / code.width:.4g}")
    return " and ".join(words) or code_in_words(code)


def _scaling_said(code: LayerEncoding) -> dict[str, Any]:
    """The scaling's name and factor by their sources."""
    said = {}
    for place in code.source.get("scaling", "").split(", "):
        key = place.rpartition(".")[2]
        value = (code.scaling or {}).get({"rope_type": "type", "type": "type", "factor": "factor"}.get(key, ""))
        if value is not None and ":" in place and " " not in place:
            said[place] = value
    return said


def _formula(view: View, block: Mapping[str, Any]) -> float | None:
    """The attention factor if none is given, as Transformers computes it."""
    factor = positive_number(block.get("factor"))
    kind = scaling_name(block)
    if kind in ("longrope", "su"):
        context = view.number(_CONTEXT)
        original = view.number(_ORIGINAL) or positive_number(block.get(_ORIGINAL))
        return longrope_magnitude(context / original, original) if context and original else None
    if kind != "yarn" or factor is None:
        return None
    scales = [positive_number(block.get(name)) for name in ("mscale", "mscale_all_dim")]
    if scales[0] and scales[1]:
        return yarn_magnitude(factor, scales[0]) / yarn_magnitude(factor, scales[1])
    return yarn_magnitude(factor)


def _multiplies(reading: Reading, value: float) -> bool:
    codes = [code for code in reading.codes if code.kind == "rotary" and code.part in TEXT and code.scaling]
    factors = [code.attention_factor for code in codes if code.attention_factor is not None]
    return bool(factors) and all(abs(factor / value - 1) <= 1e-6 for factor in factors)


def _with_constants(subject: AuditSubject) -> dict[str, Any]:
    """Which pairs a runtime with constant bounds scales differently."""
    for code in subject.resolved.codes:
        spec = code.spec
        if not isinstance(spec, Rotary) or not isinstance(spec.scaling, Yarn):
            continue
        usual = replace(spec.scaling, beta_fast=32.0, beta_slow=1.0, truncate=True)
        found = difference(spec.rates, replace(spec, scaling=usual).rates)
        if not found.same_rates:
            return {"first pair": found.first, "last pair": found.last, "largest ratio": found.ratio}
    return {}
