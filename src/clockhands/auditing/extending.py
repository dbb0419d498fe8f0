"""Serving a model at a longer length than it declares: what works there, and the smallest change for each scaling.

No change of a config makes a model work beyond its trained length for certain. It can keep the angles of slow pairs
within those seen in training. This module says which pairs are affected, writes the block for each scaling that
runtimes of the model's family support, and repeats published results on the loss of quality, each with its source.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clockhands.auditing._length_sentences import said
from clockhands.auditing.findings import as_json
from clockhands.auditing.findings._lengths import with_still_pairs
from clockhands.auditing.findings._parts import AuditSubject, Part, in_a_file
from clockhands.auditing.findings._published_models import extendable_release
from clockhands.auditing.length_answers import LengthAnswer, chosen, settings
from clockhands.configs.gguf_fields import ARCHITECTURE, FREQUENCIES
from clockhands.configs.model_types import CodeOfType, ModelType, layer_labels
from clockhands.configs.opened import Opened
from clockhands.configs.overriding import overridden
from clockhands.configs.params_fields import is_params
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import TEXT, LayerEncoding, Resolved
from clockhands.configs.rope_blocks import NEW, OLD, rope_blocks
from clockhands.encodings.scaling import yarn_magnitude
from clockhands.errors import ClockhandsError
from clockhands.formats.files import file_and_key
from clockhands.measures.ladders.base_bound import farthest_looked_at, first_failing_distance
from clockhands.measures.ladders.turning import turned_through
from clockhands.packaged import packaged
from clockhands.phrases import spoken
from clockhands.runtimes.releases import RuntimeRelease

# Published results

LABELS: Mapping[str, str] = {
    "read": "read in the source",
    "transcribed": "from a transcription of the paper's tables, not checked against the paper",
    "computed": "follows from its formula",
    "none": "no figure was found",
}


@dataclass(frozen=True)
class Cost:
    """One published result on a scaling.

    Attributes:
        says: The result, with the model and the data of the measurement.
        source: Where it was published; empty if it follows from the formula, or nothing was found.
        label: How it is known: a key of `LABELS`.
    """

    says: str
    source: str
    label: str

    @property
    def in_words(self) -> str:
        """The result with its source, and how it is known."""
        return f"{self.says} ({self.source}; {self.label})" if self.source else self.says

    def to_dict(self) -> dict[str, str]:
        """The result as JSON values."""
        return {"says": self.says, "source": self.source, "known": LABELS[self.label]}


_DATA = packaged(__file__, "published_costs.json")

OF_SCALINGS, OF_KINDS = (
    {name: tuple(Cost(**row) for row in rows) for name, rows in _DATA[part].items()} for part in ("scalings", "kinds")
)
"""What is known of each scaling, and of each kind of position code past the trained length."""


# Changes

KEYS = "gguf"
"""The shape of a change that sets keys of a GGUF file; `OLD` and `NEW` are those of configs."""

SHAPES: Mapping[str, str] = {
    OLD: "the old config format, for Transformers 4 and runtimes of that age; Transformers 5 reads it too",
    NEW: "the new config format, for Transformers 5 and other runtimes that read rope_parameters",
    KEYS: "keys of the GGUF file, as llama.cpp reads them",
}

# Scalings for which a block can be written, in the order of the report.
_MADE = ("linear", "dynamic", "yarn", "llama3")
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}  # those of Llama 3.1


Change = tuple[str, dict[str, dict[str, Any]], dict[str, tuple[str, ...]]]
"""A scaling, the keys to be set in each shape, and the findings that an audit of the change still has."""


def of_gguf(opened: Opened, resolved: Resolved, code: LayerEncoding, length: int) -> tuple[list[Change], list[str]]:
    """The changes of a GGUF file's keys, and the reasons why others are not possible."""
    context, config = resolved.context or 0, opened.config or {}
    name = config.get(ARCHITECTURE)
    kind = (code.scaling or {}).get("type")
    if FREQUENCIES in opened.tensors:
        return [], [said("in-a-tensor", tensor=FREQUENCIES)]
    if kind not in (None, "linear", "yarn"):
        return [], [said("no-key", kind=kind)]
    made: list[Change] = []
    for scaling in ("linear", "yarn") if kind is None else (kind,):
        original = (code.scaling or {}).get("original") or context
        factor = float((code.scaling or {}).get("factor") or 1.0) * length / max(context, code.scaled_to or 0)
        if scaling == "yarn":
            factor = length / original
        values: dict[str, Any] = {"rope.scaling.type": scaling, "rope.scaling.factor": factor, "context_length": length}
        if scaling == "yarn":
            values["rope.scaling.original_context_length"] = original
        made.append((scaling, {KEYS: {f"{name}.{key}": value for key, value in values.items()}}, {}))
    return made, [said("no-keys")]


def of_config(opened: Opened, resolved: Resolved, code: LayerEncoding, length: int) -> tuple[list[Change], list[str]]:
    """The changes of a config, and the reasons why others are not possible.

    Args:
        opened: The target.
        resolved: Its resolved position codes.
        code: The code of the layers that see all positions.
        length: The length at which the model will be served.
    """
    if is_params(opened.config or {}):
        return [], [said("params")]
    if opened.form == "dialect":
        return [], [said("dialect")]
    part = next((part for part in AuditSubject(opened, resolved).rotary_parts if part.section.part in TEXT), None)
    if part is None or part.known is None or part.row is None:
        return [], [said("unknown-type")]
    if not part.known.reads.get("blocks"):
        return [], [said("no-blocks", name=part.known.name, library=part.known.library, length=length)]
    allowed = part.row.scalings or (*_MADE, "longrope")
    kind = (code.scaling or {}).get("type")
    without = [said("longrope")] if "longrope" in allowed else []
    if kind is not None:
        if kind not in (*_MADE, "proportional"):
            return [], without
        without.append(said("one-scaling", kind=kind))
        factor, context = (code.scaling or {}).get("factor"), resolved.context
        original = (code.scaling or {}).get("original")
        if kind == "linear" and not original and context and isinstance(factor, int | float) and factor > 1:
            which = "may-count-factor" if length <= factor * context else "counts-factor"
            numbers = {"instead": length / context, "reach": round(factor * context)}
            without.append(said(which, context=context, factor=factor, length=length, **numbers))
    names = [kind] if kind is not None else [name for name in _MADE if name in allowed]
    made = [_Writer(part, part.known, part.row, opened, resolved, code, length).change(name) for name in names]
    if not made and not without:
        without.append(said("no-scaling", name=part.known.name, scalings=", ".join(_MADE)))
    return made, without


@dataclass(frozen=True)
class _Writer:
    """Writes the change of a config for one length."""

    part: Part
    known: ModelType
    row: CodeOfType
    opened: Opened
    resolved: Resolved
    code: LayerEncoding
    length: int

    def change(self, scaling: str) -> Change:
        """The values to set in each shape that the class reads, and the findings that remain afterwards."""
        values, warns = {}, {}
        # An audit of the changed config still has this: whether a length includes its factor is read in two ways.
        stay = ("length-times-factor",) if scaling in ("dynamic", "linear") else ()
        # The old shape cannot express what the new one declares for each kind of layer: it scales them all.
        full_alone = tuple(self.row.scaled) == ("full",)
        by_kind = any(block.kind is not None for block in self.part.blocks())
        loses = (by_kind or (self.row.nested and self._near() is not None)) and not full_alone
        for shape in self.known.reads["blocks"]:
            if shape in (OLD, NEW) and not (shape == OLD and loses):
                values[shape] = self._shaped(shape, scaling)
                warns[shape] = (*(("new-shape-only",) if shape == NEW else ()), *stay)
        return scaling, values, warns

    def _shaped(self, shape: str, scaling: str) -> dict[str, Any]:
        path, other = self.part.section.path, OLD if shape == NEW else NEW
        held = self._held()
        block = {key: value for key, value in held.items() if key not in ("type", "rope_type", "rope_theta")}
        block = {"rope_type": scaling, **block, **self._numbers(scaling, held)}
        values: dict[str, Any] = {}
        if shape == NEW:
            block["rope_theta"] = self.code.base
            values[f"{path}{NEW}"] = self._by_kind(block) if self.row.nested else block
        else:
            share = block.pop("partial_rotary_factor", None)
            values[f"{path}{OLD}"] = {"type": scaling, **block}
            values |= {} if share is None else {f"{path}partial_rotary_factor": share}
            values |= self._bases(path)
        if scaling != "dynamic":
            values[self._context_key()] = self.length
        if self.part.section.values.get(other) is not None:
            values[f"{path}{other}"] = None
        return values

    def _held(self) -> Mapping[str, Any]:
        """The existing block of the layers that see all positions."""
        blocks = list(self.part.blocks())
        whole = [block for block in blocks if block.kind in (None, "full")]
        held = next((block.values for block in (*whole, *blocks)), {})
        if "mrope_section" in held or not self.row.section_sizes:
            return held
        # The class has default sections if the file has no block; a new block must repeat them to keep them.
        return {**held, "mrope_section": list(self.row.section_sizes)}

    def _by_kind(self, block: dict[str, Any]) -> dict[str, Any]:
        """A block for each kind of layer; only the layers that see all positions change."""
        blocks = rope_blocks(self.part.section.values, keys=[NEW])
        inner = {block.label: block.values for block in blocks if block.label}
        usual = self.row.labels.get("full") or ("full_attention",)
        full = next((label for label in (*usual, *layer_labels()["full"]) if label in inner), usual[0])
        others = {key: held for key, held in inner.items() if key != full}
        near = self._near()
        if not inner and near is not None:
            label = (self.row.labels.get("sliding") or ("sliding_attention",))[0]
            others[label] = {"rope_type": "default", "rope_theta": near.base}
        return {full: block, **others}

    def _near(self) -> LayerEncoding | None:
        """The code of the layers with a sliding window."""
        return next((code for code in self.resolved.codes if code.window is not None and code.kind == "rotary"), None)

    def _bases(self, path: str) -> dict[str, Any]:
        """The bases at the top level, where the old shape has them, if they are inside a block now."""
        reads = self.known.reads
        values: dict[str, Any] = {}
        if reads.get("base") and not self.part.fields.declares("base"):
            values[f"{path}{reads['base'][0]}"] = self.code.base
        local = self.row.bases.get("sliding")
        near = self._near()
        if local and near is not None and reads.get(local) and not self.part.fields.declares(local):
            values[f"{path}{reads[local][0]}"] = near.base
        return values

    def _context_key(self) -> str:
        place = self.resolved.source.get("context", "")
        if in_a_file(place.split(" ")[0]):
            return file_and_key(place.split(" ")[0])[1]
        return f"{self.part.section.path}{self.known.reads['context'][0]}"

    def _numbers(self, scaling: str, held: Mapping[str, Any]) -> dict[str, Any]:
        """The numbers of a scaling, from the trained length to the requested one."""
        context, now = self.resolved.context or self.length, self.code.scaling or {}
        before = float(now.get("factor") or 1.0)
        # The documented YaRN extension of the model's release starts from its trained length.
        release = extendable_release(AuditSubject(self.opened, self.resolved)) if scaling == "yarn" else None
        original = now.get("original") or (None if release is None else release.trained) or context
        reached = max(context, self.code.scaled_to or 0)
        if scaling in ("linear", "proportional"):
            return {"factor": before * self.length / reached}
        if scaling == "dynamic":
            return {"factor": self.length / original}
        if scaling == "llama3":
            numbers = {key: held.get(key, usual) for key, usual in _LLAMA3.items()}
            return {"factor": before * self.length / reached, **numbers, "original_max_position_embeddings": original}
        factor = self.length / original
        numbers = {"factor": factor, "original_max_position_embeddings": original}
        said = held.get("attention_factor")
        if isinstance(said, int | float) and math.isclose(said, yarn_magnitude(before), rel_tol=1e-3):
            numbers["attention_factor"] = yarn_magnitude(factor)
        return numbers


# The report


@dataclass(frozen=True)
class Way:
    """One scaling that would serve a length.

    Attributes:
        scaling: Its name in configs.
        values: For each shape the keys to set; dots lead into objects, null removes a key.
        says: What it does to the frequencies of this model.
        costs: Published results on its effect.
        warns: Codes of findings that an audit of the changed config has because of it, by shape.
    """

    scaling: str
    values: Mapping[str, Mapping[str, Any]]
    says: tuple[str, ...]
    costs: tuple[Cost, ...]
    warns: Mapping[str, tuple[str, ...]]

    def to_dict(self) -> dict[str, Any]:
        """The way as JSON values."""
        return as_json(self, "scaling", "values", "says", "costs", "warns")


@dataclass(frozen=True)
class Extension:
    """What is known about a model at a length beyond its context.

    Attributes:
        length: The requested length.
        context: The declared context.
        sound: What works and what does not at that length with the unchanged files.
        ways: The scalings that would serve.
        without: Why there is no block for one scaling, or for any.
        cannot: What no change of the files can guarantee.
        answer: Which of them to begin with, and how each runtime takes it; None if there is none.
    """

    length: int
    context: int
    sound: tuple[str, ...]
    ways: tuple[Way, ...]
    without: tuple[str, ...]
    cannot: tuple[str, ...]
    answer: LengthAnswer | None = None

    def to_dict(self) -> dict[str, Any]:
        """The extension as JSON values."""
        return as_json(self, "length", "context", "sound", "ways", "without", "cannot", "answer")


def extension(
    opened: Opened, resolved: Resolved, length: int | None, runtime: RuntimeRelease | None = None
) -> Extension | None:
    """What is known about a model at a length that its files do not declare; None if they declare it.

    Args:
        opened: The target.
        resolved: Its position codes, resolved at that length.
        length: The requested length, or None.
        runtime: The runtime that will serve it, or None.
    """
    context = resolved.context
    codes = [code for code in resolved.codes if code.part in TEXT and code.kind is not None]
    if length is None or context is None or length <= context or not codes:
        return None
    sound = tuple(dict.fromkeys(sentence for code in codes for sentence in _beyond_the_context(code, resolved, length)))
    turning = [code for code in codes if code.kind == "rotary" and (code.farthest is None or code.farthest > context)]
    ways: dict[str, tuple[Way, LayerEncoding]] = {}
    without, answer = [], None
    if turning and length > (turning[0].scaled_to or 0):
        ways, without = _settings_for_length(opened, resolved, turning[0], length)
    elif turning:
        without = [said("scaling-reaches", scaling=_scaling(turning[0]), scaled_to=turning[0].scaled_to, length=length)]
    if ways:
        release = extendable_release(AuditSubject(opened, resolved))
        extended = None if release is None or release.trained is None else (release.name, release.trained)
        name, why = chosen(ways, (turning[0].scaling or {}).get("type"), extended)
        way, after = ways[name]
        untrained = said("untrained", trained=_trained(turning[0], resolved), length=length)
        known = tuple(cost.in_words for cost in way.costs) or (said("nothing-published"),)
        answer = LengthAnswer(name, why, tuple(settings(name, way.values, after, length, runtime)), untrained, known)
    cannot = [said("no-guarantee", length=length), *([said("other-models")] if ways else [])]
    made = tuple(way for way, _ in ways.values())
    return Extension(length, context, sound, made, tuple(without), tuple(cannot), answer)


# What holds


def _beyond_the_context(code: LayerEncoding, resolved: Resolved, length: int) -> Iterator[str]:
    """How a code behaves at a length beyond its context, in sentences."""
    where = _where(code)
    trained = _trained(code, resolved)
    if code.kind == "rotary":
        yield from _rotary_beyond_the_context(code, trained, length, where)
    else:
        farthest = getattr(code.spec, "max_distance", None)
        yield said(
            code.kind if code.kind in ("learned", "sinusoidal", "alibi", "buckets", "none") else "other",
            where=where,
            kind=code.kind,
            trained=trained,
            length=length,
            rows=length + (code.offset or 0),
            farthest="the last bucket's beginning" if farthest is None else spoken(farthest),
        )
    for cost in OF_KINDS.get(code.kind or "", ()):
        yield said("known", says=cost.says, source=cost.source, label=LABELS[cost.label])


def _rotary_beyond_the_context(code: LayerEncoding, trained: int, length: int, where: str) -> Iterator[str]:
    if code.farthest is not None and code.farthest <= trained:
        yield said("window", where=where, seen=code.seen, length=length)
        return
    if not code.rates:
        yield said("no-frequencies", where=where)
        return
    if code.scaled_to is not None and length <= code.scaled_to:
        numbers = {"scaled_to": code.scaled_to, "scaling": _scaling(code)}
        yield said("within-scaling", where=where, length=length, **numbers)
    else:
        moving = [rate for rate in code.rates if rate > 0]
        through = turned_through(moving, trained)
        left = len(moving) - through
        numbers = {"left": left, "moving": len(moving), "through": through, "trained": trained}
        yield said("new-angles" if left else "no-new-angle", where=where, length=length, **numbers)
    yield _by_the_bound("as they are", code, length)


def _scaling(code: LayerEncoding) -> str:
    """The scaling of a code with its numbers."""
    held = code.scaling or {}
    return said("scaling", **{name: held.get(name) for name in ("type", "factor", "original")})


def _by_the_bound(what: str, code: LayerEncoding, length: int) -> str:
    rates = with_still_pairs(code, length)
    first, looked = first_failing_distance(rates, length), farthest_looked_at(len(rates), length)
    name = "bound-holds" if first is None else "bound-fails"
    return said(name, what=what, distance=looked if first is None else first)


def _where(code: LayerEncoding) -> str:
    part = "" if code.part == "text" else f"{code.part.capitalize()}, "
    if code.layers == "input":
        return f"{part}input" if part else "Input"
    several = code.layers is not None and not code.layers.isdigit()
    layers = f"layer{'s' if several else ''} {code.layers.replace(',', ', ')}" if code.layers else "all layers"
    return part + layers if part else layers.capitalize()


def _trained(code: LayerEncoding, resolved: Resolved) -> int:
    """The length at which a code was trained, as far as the files say."""
    original = (code.scaling or {}).get("original")
    if isinstance(original, int) and (code.scaling or {}).get("type") != "dynamic":
        # The model was trained with its scaling, or at least served, at its whole context.
        return max(resolved.context or original, code.scaled_to or 0)
    if code.kind == "learned" and code.rows is not None:
        return code.rows - (code.offset or 0)
    return resolved.context or 0


# What would serve


def _settings_for_length(
    opened: Opened, resolved: Resolved, code: LayerEncoding, length: int
) -> tuple[dict[str, tuple[Way, LayerEncoding]], list[str]]:
    """Each scaling that would serve, by its name, with the encoding after the change; and why others would not."""
    if opened.form == "gguf":
        makers, without = of_gguf(opened, resolved, code, length)
    elif opened.form == "preset" or not isinstance(opened.config, Mapping):
        return {}, [said("no-config")]
    else:
        makers, without = of_config(opened, resolved, code, length)
    ways = {}
    for scaling, values, warns in makers:
        after = _after(opened, next(iter(values.values())), length)
        if after is not None:
            says, costs = tuple(_does(code, after, length)), OF_SCALINGS.get(scaling, ())
            ways[scaling] = (Way(scaling, values, says, costs, warns), after)
    return ways, without


def _after(opened: Opened, values: Mapping[str, Any], length: int) -> LayerEncoding | None:
    """The code of the full-attention layers after the change, by the resolver that every audit uses."""
    try:
        changed = resolve(overridden(opened, values), length)
    except ClockhandsError:
        return None
    turning = [code for code in changed.codes if code.kind == "rotary" and code.part in TEXT and code.rates]
    return next((code for code in turning if code.farthest is None), next(iter(turning), None))


def _does(before: LayerEncoding, after: LayerEncoding, length: int) -> Iterator[str]:
    """The effect of a change on the frequencies."""
    pairs = list(zip(before.rates or (), after.rates or (), strict=False))
    ratios = [old / new for old, new in pairs if old > 0 and new > 0]
    if ratios:
        kept = sum(abs(ratio - 1) < 1e-9 for ratio in ratios)
        most = max(ratios)
        full = sum(abs(ratio / most - 1) < 1e-9 for ratio in ratios) if most > 1 + 1e-9 else 0
        between = len(ratios) - kept - full
        blended = f", {between} by less" if between else ""
        slowed = (
            f"{full} are divided by {most:.4g}{blended}" if full > 1 else f"the others are divided by up to {most:.4g}"
        )
        yield said("keeps-some" if kept < len(ratios) else "keeps-all", kept=kept, pairs=len(ratios), slowed=slowed)
    factor = after.attention_factor
    if factor is not None and factor != before.attention_factor:
        yield said("multiplied", factor=factor)
    yield _by_the_bound("with this scaling", after, length)
