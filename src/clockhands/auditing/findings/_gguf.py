"""Findings on GGUF files: missing keys and tensors of an architecture, and tensors that divide the frequencies."""

import math
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.auditing._edits import Edit
from clockhands.auditing.findings._parts import AuditSubject, check_of, declared, main_code
from clockhands.auditing.findings._published_models import (
    ModelShape,
    SizedModel,
    of_shape,
    reach_of,
    releases,
    scaling_in_words,
)
from clockhands.auditing.findings._releases import CLAIMED, OF_LENGTH, context_of_no_release, other_base
from clockhands.auditing.findings._rules import Case, case_of
from clockhands.auditing.findings._scalings import swapped
from clockhands.configs.gguf_fields import ARCHITECTURE, FREQUENCIES, LISTS
from clockhands.configs.model_types import table
from clockhands.configs.resolved import LayerEncoding
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Llama3
from clockhands.errors import ClockhandsError
from clockhands.formats.files import file_and_key
from clockhands.packaged import packaged
from clockhands.phrases import listed, spoken


class RopeFreqsDiffer(Case, code="rope-freqs-differ"):
    def keys(self) -> str:
        """The keys of the scaling, as text."""
        said = [(name, value) for name, value in self.stated if "rope_freqs" not in name]
        return listed([f"{name.rpartition(':')[2]} is {spoken(value)}" for name, value in said])


class DimensionCount(Case, code="dimension-count"):
    def undeclared(self) -> bool:
        """Whether the file does not have the key."""
        return self.declared is None

    def edit(self) -> Edit | None:
        if self.expected is None:
            return None
        key = f"{self.architecture}.rope.dimension_count"
        file = next((file_and_key(name)[0] for name, _ in self.stated), self.file)
        return Edit(f"Set {key} to {spoken(self.expected)}.", file)


_MOST_NUMBERS = 2**16  # the largest tensor that is read; a head has at most some hundreds of pairs
_CLOSE = 1e-3  # relative, of divisors: they are stored in float32, and converters compute them in it
_NEVER = 1e10  # divisors from here on stop a pair: converters write 1e30 for channels that are not rotated


@dataclass(frozen=True)
class ScaledRelease:
    """What published releases of one architecture and base have.

    Attributes:
        reach: Their context length without a scaling.
        least: The smallest context length that only releases with a scaling have.
        name: The name of one of them.
        scaling: Its scaling, as text.
    """

    architecture: str
    base: float
    reach: int
    least: int
    name: str
    scaling: str


def _known() -> Mapping[str, Any]:
    """Data by architecture; the file itself documents its fields."""
    return packaged(__file__, "gguf_releases.json")


@dataclass(frozen=True)
class _GgufModel:
    """A GGUF file, read by the short names of its keys."""

    subject: AuditSubject
    architecture: str
    code: LayerEncoding

    @property
    def context(self) -> int | None:
        """Its context length."""
        return self.subject.resolved.context

    @property
    def keys(self) -> Mapping[str, Any]:
        """All keys of the file."""
        return self.subject.opened.config or {}

    def value(self, key: str) -> Any:
        """The value of a key of the architecture."""
        return self.keys.get(f"{self.architecture}.{key}")

    def place(self, key: str) -> str:
        """The source of that key."""
        return f"{self.subject.opened.config_name}:{self.architecture}.{key}"

    def said(self, *keys: str) -> dict[str, Any]:
        """Some values by their sources, for the keys that exist."""
        return {self.place(key): self.value(key) for key in keys if self.value(key) is not None}

    def scaled_release(self, how: str) -> ScaledRelease | None:
        """The releases of its architecture and base with a scaling: ``divided`` by a tensor, or ``keyed`` in keys."""
        rows = (ScaledRelease(**row) for row in _known()[how])
        alike = (self.architecture, self.code.base or 0.0)
        return next((row for row in rows if (row.architecture, row.base) == alike), None)

    @property
    def whole(self) -> bool:
        """Whether this file has all tensors of the model: in one part of a split file, none counts as missing."""
        parts = self.keys.get("split.count")
        return bool(self.subject.opened.tensors) and not (isinstance(parts, int) and parts > 1)

    @property
    def is_scaled(self) -> bool:
        """Whether keys declare a scaling that changes frequencies; loaders read a factor without a type as linear."""
        return self.value("rope.scaling.type") in (None, "linear", "yarn") and self.factor() > 1

    def rotated_widths(self) -> list[int] | None:
        """The allowed numbers of rotated channels; empty if any is allowed, None if unknown."""
        width = self.code.width or 0
        if self.value("attention.key_length_mla") is None:
            return [int(share * width) for share in _known()["shares"].get(self.architecture, ())]
        # Keys are stored as the value they are made from, followed by the channels that rotate.
        kept, rank = self.value("attention.key_length"), self.value("attention.kv_lora_rank")
        known = type(kept) is int and type(rank) is int and self.architecture in _known()["shares"]
        if not known or not 0 < kept - rank <= width:
            return None
        return [kept - rank]

    def shapes(self) -> Iterator[ModelShape]:
        """The shape, for each model type that is converted to this architecture."""
        numbers = [self.value(key) for key in ("embedding_length", "block_count", "attention.head_count")]
        if any(type(number) is not int for number in numbers):
            return
        vocabulary = self.value("vocab_size")
        tokens = self.keys.get("tokenizer.ggml.tokens")
        if vocabulary is None and isinstance(tokens, Sized):
            vocabulary = len(tokens)
        inner = self.value("feed_forward_length")
        told = [number if type(number) is int else None for number in (vocabulary, inner)]
        for name in table()["gguf"]["types"].get(self.architecture, ()):
            hidden, layers, heads = numbers
            yield ModelShape(name, hidden, layers, heads, *told)

    def factor(self) -> float:
        """The factor of the scaling in the keys; 1 if there is none."""
        for key in ("rope.scaling.factor", "rope.scale_linear"):
            factor = self.value(key)
            if isinstance(factor, int | float) and factor:
                return float(factor)
        return 1.0

    def numbers(self, name: str) -> list[float] | None:
        """The values of a small tensor; None if there is none, or it cannot be read."""
        info = self.subject.opened.tensors.get(name)
        if info is None or not 0 < info.elements <= _MOST_NUMBERS:
            return None
        try:
            return [float(number) for number in self.subject.opened.array(name).ravel()]
        except ClockhandsError:
            return None


def rope_freqs(model: _GgufModel) -> Iterator[Case]:
    """Frequency divisors that are missing, follow no known formula, or are combined with a scaling in keys."""
    context, release = model.context, model.scaled_release("divided")
    needed = release is not None and context is not None and context >= release.least and not model.is_scaled
    if FREQUENCIES not in model.subject.opened.tensors:
        if needed and release is not None and model.whole:
            evidence = {"context": context, "reach": release.reach, "release": release.name, "scaling": release.scaling}
            evidence |= {"architecture": model.architecture, "base": model.code.base}
            yield case_of("rope-freqs-missing", evidence | model.said("rope.freq_base", "context_length"))
        return
    divisors = model.numbers(FREQUENCIES)
    if divisors is None or model.code.base is None or len(divisors) * 2 != model.code.rotated:
        return  # reported where it was read
    if not all(0 < number < math.inf for number in divisors):
        return  # also reported where it was read
    where = {f"{model.subject.opened.config_name}:{FREQUENCIES}": f"{len(divisors)} numbers"}
    found = {"first": divisors[0], "last": divisors[-1], "largest": max(divisors), "pairs": len(divisors)}
    if all(abs(number - 1) <= _CLOSE for number in divisors):
        if needed and release is not None:
            more = {"because": "all are 1", "release": release.name, "scaling": release.scaling}
            yield case_of("rope-freqs-differ", found | more | where, model.code.layers)
        return
    if model.is_scaled:
        keys = model.said("rope.scaling.type", "rope.scaling.factor", "rope.scale_linear")
        yield case_of("rope-freqs-differ", found | {"because": "applied twice"} | where | keys, model.code.layers)
    elif not (_stops(divisors) or _is_listed(model, divisors) or llama3_divisors(divisors, model.code.base)):
        more: dict[str, Any] = {"because": "no formula"}
        fitting = _bases_of_releases(divisors)
        if len(fitting) == 1:
            more = {"because": "another base", "base": model.code.base, "fitting base": fitting.pop()}
        yield case_of("rope-freqs-differ", found | more | where, model.code.layers)


def llama3_divisors(divisors: Sequence[float], base: float) -> bool:
    """Whether divisors are those of a llama3 scaling with any factor, original length and bounds.

    With ``f`` the last divisor, pair ``i`` keeps the share ``s_i`` of its frequency, ``1 / d_i = (1 - s_i) / f + s_i``.
    In the formula ``s_i`` is a linear function of the frequency, clipped to 0 and 1.
    """
    number = np.array(divisors)
    factor = number[-1]
    if factor <= 1 or number.min() < 1 - _CLOSE or number.max() > factor * (1 + _CLOSE):
        return False
    rates = base ** (-np.arange(len(number)) / len(number))
    kept = (1 / number - 1 / factor) / (1 - 1 / factor)
    if (np.diff(kept) > _CLOSE).any():
        return False
    between = (kept > _CLOSE) & (kept < 1 - _CLOSE)
    if between.sum() < 2:
        return True  # one point fits a line of any slope
    line = np.polyfit(rates[between], kept[between], 1)
    return bool(np.abs(np.clip(np.polyval(line, rates), 0, 1) - kept).max() <= 10 * _CLOSE)


def _bases_of_releases(divisors: Sequence[float]) -> set[float]:
    """The bases of the published models whose llama3 scaling divides the frequencies by these numbers."""
    number = np.array(divisors)
    bases = set()
    for release in releases():
        scaling = release.scaling
        if scaling is not None and scaling["rope_type"] == "llama3":
            original = scaling["original_max_position_embeddings"]
            formula = Llama3(scaling["factor"], original, scaling["low_freq_factor"], scaling["high_freq_factor"])
            plain = Rotary(head_width=2 * len(number), base=release.base)
            wanted = np.array(plain.rates) / replace(plain, scaling=formula).rates
            if np.abs(number / wanted - 1).max() <= _CLOSE:
                bases.add(release.base)
    return bases


def _stops(divisors: Sequence[float]) -> bool:
    """Whether they leave the first pairs unchanged and stop the others (proportional RoPE)."""
    rotated_widths = [number for number in divisors if number < _NEVER]
    stopped = len(rotated_widths) < len(divisors)
    return (
        stopped
        and all(abs(number - 1) <= _CLOSE for number in rotated_widths)
        and list(divisors[: len(rotated_widths)]) == rotated_widths
    )


def _is_listed(model: _GgufModel, divisors: Sequence[float]) -> bool:
    """Whether they equal one of the LongRoPE lists in the same file."""
    return any(model.numbers(name) == list(divisors) for name in LISTS.values())


def longrope_factors(model: _GgufModel) -> Iterator[Case]:
    """LongRoPE models without the two lists of divisors, or with the lists exchanged."""
    file, names = model.subject.opened.config_name, [LISTS[name] for name in ("short_factor", "long_factor")]
    short, long = (model.numbers(name) or [] for name in names)
    yield from swapped(short, long, {f"{file}:{name}": f"{len(short)} numbers" for name in names})
    if model.architecture not in _known()["listed"] or not model.whole:
        return
    missing = [name for name in LISTS.values() if name not in model.subject.opened.tensors]
    multiplier, original = model.value("rope.scaling.attn_factor"), model.value("rope.scaling.original_context_length")
    extended = isinstance(original, int) and model.context is not None and model.context > original
    magnified = isinstance(multiplier, int | float) and multiplier != 1
    if not missing or model.is_scaled or not (extended or magnified):
        return
    keys = model.said("rope.scaling.attn_factor", "rope.scaling.original_context_length", "context_length")
    yield case_of("longrope-factors-missing", {"missing": missing, "architecture": model.architecture} | keys)


def dimension_count(model: _GgufModel) -> Iterator[Case]:
    """A number of rotated channels that does not fit a head of this architecture."""
    width, key = model.code.width, "rope.dimension_count"
    declared, expected = model.value(key), model.rotated_widths()
    if expected is None or width is None:
        return
    if declared is None:
        wrong = bool(expected) and width not in expected
    elif not isinstance(declared, int) or isinstance(declared, bool):
        return
    else:
        wrong = declared > width or (bool(expected) and declared not in expected)
    if not wrong:
        return
    evidence: dict[str, Any] = {"declared": declared, "width": width, "architecture": model.architecture}
    evidence |= {"expected": expected[0]} if expected else {}
    evidence |= model.said(key) or {"file": model.subject.opened.config_name}
    yield case_of("dimension-count", evidence | model.said("attention.key_length"), model.code.layers)


def missing_keys(model: _GgufModel) -> Iterator[Case]:
    """A context that releases of an architecture only have with a scaling in their keys, and no such keys."""
    context, release = model.context, model.scaled_release("keyed")
    if release is None or context is None or context < release.least or FREQUENCIES in model.subject.opened.tensors:
        return
    if model.is_scaled or model.value("rope.scaling.type") not in (None, "none"):
        return
    evidence = {
        "context": context,
        "base": model.code.base,
        "type": model.architecture,
        "reach": release.reach,
        "release": release.name,
        "its scaling": release.scaling,
    }
    yield case_of("missing-scaling", evidence | model.said("rope.freq_base", "context_length"), model.code.layers)


def releases_of_the_architecture(model: _GgufModel) -> Iterator[Case]:
    """A base, a scaling or a context that no published model of this shape has."""
    subject, shapes = model.subject, [*model.shapes()]
    every = tuple(release for shape in shapes for release in of_shape(shape))
    if model.code.base is None or not model.code.rates or not every:
        return
    sized = SizedModel(subject, model.code, shapes[0], every)
    yield from context_of_no_release(sized)
    known = [*filter(sized.has_base, every)]
    if not known:
        # Another program may read the base under a key of its own.
        lacking = next((fact.evidence for fact in subject.resolved.facts if fact.code == "default-base"), {})
        here = case_of("default-base", lacking)["used_instead"] if "read by" in lacking else None
        yield other_base(sized, every, f"of {table()['gguf']['reader']}", here=here)
    block = model.said("rope.scaling.factor", "rope.scale_linear")
    if sized.scaling is not None or model.value("rope.scaling.type") not in (None, "none", "linear", "yarn"):
        return
    if block and model.factor() != 1:
        return  # reported as unread keys, or as an incomplete scaling
    if model.scaled_release("divided") is not None or model.architecture in _known()["listed"]:
        return  # the scaling is in tensors, which other checks look at
    known = known or ([] if declared(model.code, "base") else every)
    context = model.context
    if context is None or not known or not all(each.scaling for each in known):
        return
    release = next((each for each in known if each.context == context), known[0])
    there, reach = release.scaling or {}, reach_of(release.shape.type, release.base)
    evidence: dict[str, Any] = {"release": release.name, "source of the release": release.source}
    if there["rope_type"] in OF_LENGTH:
        if reach is None or context < CLAIMED * reach:
            return
        evidence |= {"context": context, "base": release.base, "type": model.architecture, "reach": reach}
        evidence |= {"its scaling": scaling_in_words(there), **model.said("rope.freq_base", "context_length")}
        yield case_of("missing-scaling", evidence, model.code.layers)
        return
    evidence |= block or {"here": "There is no scaling"}
    because = "a factor of 1 changes nothing" if block else "the file has nothing in place of the scaling"
    evidence |= {"because": because, "shape": str(release.shape), "published": scaling_in_words(there)}
    yield case_of("differs-from-release", evidence, model.code.layers)


def yarn_without_type(model: _GgufModel) -> Iterator[Case]:
    """YaRN numbers next to a factor without a type, which loaders read as a linear scaling."""
    if not model.is_scaled or model.value("rope.scaling.type") is not None:
        return
    meant = model.said(
        "rope.scaling.original_context_length", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"
    )
    if meant:
        because = "there is no rope.scaling.type, and llama.cpp reads a factor alone as a linear scaling"
        instead = "a linear scaling of all pairs"
        yield case_of("ignored-key", {**meant, "because": because, "read instead": instead}, model.code.layers)


_CHECKS = (
    rope_freqs,
    longrope_factors,
    dimension_count,
    missing_keys,
    releases_of_the_architecture,
    yarn_without_type,
)


@check_of(form="gguf")
def gguf_file(subject: AuditSubject) -> Iterator[Case]:
    """What a GGUF file lacks, or has otherwise than the models of its architecture."""
    name = (subject.opened.config or {}).get(ARCHITECTURE)
    code = main_code(code for code in subject.resolved.codes if code.kind == "rotary")
    if isinstance(name, str) and code is not None:
        model = _GgufModel(subject, name, code)
        for looked_for in _CHECKS:
            yield from looked_for(model)
