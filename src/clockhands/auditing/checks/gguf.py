"""What a GGUF file of an architecture must hold beside its keys, and what its tensors divide the rates by."""

import math
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.auditing.checks.releases import CLAIMED, OF_LENGTH, scaling_in_words, scaling_of
from clockhands.auditing.checks.subject import Case, Subject
from clockhands.auditing.releases import Shape, of_shape, reach_of
from clockhands.errors import ClockhandsError
from clockhands.sources.gguf_fields import ARCHITECTURE, FREQUENCIES, LISTS
from clockhands.sources.model_types import table
from clockhands.sources.resolved import Code

_MOST_NUMBERS = 2**16  # of a tensor that is read; a head has at most some hundreds of pairs
_CLOSE = 1e-3  # of divisors: they are stored in float32, and converters compute them in it
_NEVER = 1e10  # divisors from here on stop a pair: converters write 1e30 for channels that shall not turn


@dataclass(frozen=True)
class Release:
    """What releases of one architecture and base are.

    Attributes:
        reach: Positions that they have without a scaling.
        least: The least context that only those with a scaling have.
        name: One of them.
        scaling: Its scaling, in words.
    """

    reach: int
    least: int
    name: str
    scaling: str


# Converters write a llama3 scaling as a tensor of divisors. A base of 500,000 alone was trained at 8,192 positions
# (Llama 3), with divisors it serves 131,072 (Llama 3.1 to 3.3); Apertus declares 65,536 from 8,192.
DIVIDED: Mapping[tuple[str, float], Release] = {
    ("llama", 500_000.0): Release(8192, 32768, "Llama 3.1", "llama3 scaling by 8 (by 32 in Llama 3.2) from 8,192"),
    ("deci", 500_000.0): Release(8192, 32768, "Llama-3.3-Nemotron", "llama3 scaling by 8 from 8,192"),
    ("apertus", 12_000_000.0): Release(8192, 32768, "Apertus", "llama3 scaling by 8 from 8,192"),
}

# Scalings that stand in keys.
KEYED: Mapping[tuple[str, float], Release] = {
    (name, 1_000_000.0): Release(40960, 131072, "Qwen3 at 131,072 positions", "YaRN by 4 from 32,768")
    for name in ("qwen3", "qwen3moe")
}

# Architectures that have LongRoPE's two lists as tensors where they were extended.
_LISTED = ("phi3", "phimoe", "minicpm", "minicpm3")

# The share of a head that turns in releases of an architecture: the defaults of their classes in transformers 5.23.0,
# for Phi-2 its release's as well; of types with code of their own, what the table of model types has.
SHARES: Mapping[str, tuple[float, ...]] = {
    "persimmon": (0.5,),
    "stablelm": (0.25,),
    "phi2": (0.4, 0.5),
    "chatglm": (0.5,),
    "glm4": (0.5,),
    "glm4moe": (0.5,),
    "nemotron": (0.5,),
    "minimax-m2": (0.5,),
    "qwen3next": (0.25,),
    "deepseek2": (1 / 3,),
} | dict.fromkeys(
    (
        "llama", "llama4", "deci", "baichuan", "internlm2", "minicpm", "xverse", "command-r", "cohere2", "olmo",
        "olmo2", "olmoe", "granite", "granitemoe", "smollm3", "arcee", "ernie4_5",
        "ernie4_5-moe", "mistral3", "falcon", "qwen", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "qwen2vl", "gemma",
        "gemma2", "gemma3", "starcoder2", "exaone4", "dots1", "gpt-oss", "lfm2",
        "seed_oss", "apertus", "phimoe", "bitnet",
    ),
    (1.0,),
)  # fmt: skip


@dataclass(frozen=True)
class _Model:
    """A GGUF file by the short names of its keys."""

    subject: Subject
    architecture: str
    code: Code

    def value(self, key: str) -> Any:
        """What stands under a key of the architecture."""
        return (self.subject.opened.config or {}).get(f"{self.architecture}.{key}")

    def place(self, key: str) -> str:
        """Where it stands."""
        return f"{self.subject.opened.config_name}:{self.architecture}.{key}"

    def said(self, *keys: str) -> dict[str, Any]:
        """Some values by their places, where they are there."""
        return {self.place(key): self.value(key) for key in keys if self.value(key) is not None}

    @property
    def whole(self) -> bool:
        """Whether all tensors of the model are in this file: of one part of several nothing can be missed."""
        parts = (self.subject.opened.config or {}).get("split.count")
        return bool(self.subject.opened.tensors) and not (isinstance(parts, int) and parts > 1)

    @property
    def is_scaled(self) -> bool:
        """Whether keys declare a scaling that stretches; readers take a factor without a type for a linear one."""
        return self.value("rope.scaling.type") in (None, "linear", "yarn") and self.factor() > 1

    def turning(self) -> list[int] | None:
        """The channels that may turn; empty where any number may, None where it cannot be said."""
        width = self.code.width or 0
        if self.value("attention.key_length_mla") is None:
            return [int(share * width) for share in SHARES.get(self.architecture, ())]
        # Keys are kept as what they are made from and, behind it, the channels that turn.
        kept, rank = self.value("attention.key_length"), self.value("attention.kv_lora_rank")
        known = type(kept) is int and type(rank) is int and self.architecture in SHARES
        if not known or not 0 < kept - rank <= width:
            return None
        return [kept - rank]

    def shapes(self) -> Iterator[Shape]:
        """The shape, under each type of configs that is converted to this architecture."""
        numbers = [self.value(key) for key in ("embedding_length", "block_count", "attention.head_count")]
        if any(type(number) is not int for number in numbers):
            return
        vocabulary = self.value("vocab_size")
        tokens = (self.subject.opened.config or {}).get("tokenizer.ggml.tokens")
        if vocabulary is None and isinstance(tokens, Sized):
            vocabulary = len(tokens)
        for name in table()["gguf"]["types"].get(self.architecture, ()):
            hidden, layers, heads = numbers
            yield Shape(name, hidden, layers, heads, vocabulary if type(vocabulary) is int else None)

    def factor(self) -> float:
        """What the keys stretch by; 1 where none says."""
        for key in ("rope.scaling.factor", "rope.scale_linear"):
            factor = self.value(key)
            if isinstance(factor, int | float) and factor:
                return float(factor)
        return 1.0

    def numbers(self, name: str) -> list[float] | None:
        """The numbers of a small tensor; None where there is none, or it cannot be read."""
        info = self.subject.opened.tensors.get(name)
        if info is None or not 0 < info.elements <= _MOST_NUMBERS:
            return None
        try:
            return [float(number) for number in self.subject.opened.array(name).ravel()]
        except ClockhandsError:
            return None


def _model(subject: Subject) -> _Model | None:
    opened = subject.opened
    name = (opened.config or {}).get(ARCHITECTURE)
    if opened.form != "gguf" or not isinstance(name, str):
        return None
    turning = [code for code in subject.resolved.codes if code.kind == "rotary"]
    wide = [code for code in turning if code.window is None]
    return _Model(subject, name, (wide or turning)[0]) if turning else None


def rope_freqs(subject: Subject) -> Iterator[Case]:
    """Divisors of the rates that are missing, that no formula gives, or that are applied beside a scaling in keys."""
    model = _model(subject)
    context = subject.resolved.context
    if model is None:
        return
    release = DIVIDED.get((model.architecture, model.code.base or 0.0))
    needed = release is not None and context is not None and context >= release.least and not model.is_scaled
    if FREQUENCIES not in subject.opened.tensors:
        if needed and release is not None and model.whole:
            evidence = {"context": context, "reach": release.reach, "release": release.name, "scaling": release.scaling}
            evidence |= {"architecture": model.architecture, "base": model.code.base}
            yield "rope-freqs-missing", evidence | model.said("rope.freq_base", "context_length"), None
        return
    divisors = model.numbers(FREQUENCIES)
    if divisors is None or model.code.base is None or len(divisors) * 2 != model.code.rotated:
        return  # said where it was read
    if not all(0 < number < math.inf for number in divisors):
        return  # so was this
    where = {f"{subject.opened.config_name}:{FREQUENCIES}": f"{len(divisors)} numbers"}
    found = {"first": divisors[0], "last": divisors[-1], "largest": max(divisors), "pairs": len(divisors)}
    if all(abs(number - 1) <= _CLOSE for number in divisors):
        if needed and release is not None:
            more = {"because": "all are 1", "release": release.name, "scaling": release.scaling}
            yield "rope-freqs-differ", found | more | where, model.code.layers
        return
    if model.is_scaled:
        keys = model.said("rope.scaling.type", "rope.scaling.factor", "rope.scale_linear")
        yield "rope-freqs-differ", found | {"because": "applied twice"} | where | keys, model.code.layers
    elif not (_stops(divisors) or _is_listed(model, divisors) or llama3_divisors(divisors, model.code.base)):
        yield "rope-freqs-differ", found | {"because": "no formula"} | where, model.code.layers


def llama3_divisors(divisors: Sequence[float], base: float) -> bool:
    """Whether divisors of a ladder are those of a llama3 scaling, of any factor, original length and pair of bounds.

    With ``f`` the last divisor, pair ``i`` keeps the share ``s_i`` of its rate, ``1 / d_i = (1 - s_i) / f + s_i``. By
    the formula ``s_i`` is a straight line in the rate, held to 0 and 1.
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
        return True  # a line goes through one point in any direction
    line = np.polyfit(rates[between], kept[between], 1)
    return bool(np.abs(np.clip(np.polyval(line, rates), 0, 1) - kept).max() <= 10 * _CLOSE)


def _stops(divisors: Sequence[float]) -> bool:
    """Whether they leave the first pairs as they are and stop the others (a proportional ladder)."""
    turning = [number for number in divisors if number < _NEVER]
    stopped = len(turning) < len(divisors)
    return (
        stopped and all(abs(number - 1) <= _CLOSE for number in turning) and list(divisors[: len(turning)]) == turning
    )


def _is_listed(model: _Model, divisors: Sequence[float]) -> bool:
    """Whether they are one of LongRoPE's lists, which lie beside them."""
    return any(model.numbers(name) == list(divisors) for name in LISTS.values())


def longrope_factors(subject: Subject) -> Iterator[Case]:
    """A LongRoPE model without the two lists that its rates are divided by, or with the one in the other's place."""
    model = _model(subject)
    if model is None:
        return
    yield from _swapped_lists(model)
    if model.architecture not in _LISTED or not model.whole:
        return
    missing = [name for name in LISTS.values() if name not in subject.opened.tensors]
    multiplier, original = model.value("rope.scaling.attn_factor"), model.value("rope.scaling.original_context_length")
    context = subject.resolved.context
    extended = isinstance(original, int) and context is not None and context > original
    magnified = isinstance(multiplier, int | float) and multiplier != 1
    if not missing or model.is_scaled or not (extended or magnified):
        return
    keys = model.said("rope.scaling.attn_factor", "rope.scaling.original_context_length", "context_length")
    yield "longrope-factors-missing", {"missing": missing, "architecture": model.architecture} | keys, None


def _swapped_lists(model: _Model) -> Iterator[Case]:
    short, long = (model.numbers(LISTS[name]) for name in ("short_factor", "long_factor"))
    if not short or not long or len(short) != len(long) or not (max(short) > max(long) and sum(short) > sum(long)):
        return
    file = model.subject.opened.config_name
    where = {f"{file}:{LISTS[name]}": f"{len(short)} numbers" for name in ("short_factor", "long_factor")}
    yield "longrope-swapped", {**where, "largest short": max(short), "largest long": max(long)}, None


def dimension_count(subject: Subject) -> Iterator[Case]:
    """A number of turned channels that is no share of a head which this architecture is known to have."""
    model = _model(subject)
    if model is None or model.code.width is None:
        return
    width, key = model.code.width, "rope.dimension_count"
    declared, expected = model.value(key), model.turning()
    if expected is None:
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
    evidence |= model.said(key) or {"file": subject.opened.config_name}
    yield "dimension-count", evidence | model.said("attention.key_length"), model.code.layers


def missing_keys(subject: Subject) -> Iterator[Case]:
    """A context that releases of an architecture have with a scaling in their keys, and no such keys."""
    model = _model(subject)
    context = subject.resolved.context
    release = None if model is None else KEYED.get((model.architecture, model.code.base or 0.0))
    if model is None or release is None or context is None or context < release.least:
        return
    if (
        model.is_scaled
        or model.value("rope.scaling.type") not in (None, "none")
        or FREQUENCIES in subject.opened.tensors
    ):
        return
    evidence = {
        "context": context,
        "base": model.code.base,
        "type": model.architecture,
        "reach": release.reach,
        "release": release.name,
        "its scaling": release.scaling,
    }
    yield "missing-scaling", evidence | model.said("rope.freq_base", "context_length"), model.code.layers


def releases_of_the_architecture(subject: Subject) -> Iterator[Case]:
    """No scaling, where every published model of the shape and the base has one."""
    model = _model(subject)
    if model is None or model.code.base is None or not model.code.rates or scaling_of(model.code) is not None:
        return
    block = model.said("rope.scaling.factor", "rope.scale_linear")
    if model.value("rope.scaling.type") not in (None, "none", "linear", "yarn") or (block and model.factor() != 1):
        return  # told as what is unread of it, or as incomplete
    known = [each for shape in model.shapes() for each in of_shape(shape) if each.base == model.code.base]
    context = subject.resolved.context
    if not known or context is None or not all(each.scaling for each in known):
        return
    release = next((each for each in known if each.context == context), known[0])
    there, reach = release.scaling or {}, reach_of(release.shape.type, release.base)
    evidence: dict[str, Any] = {"release": release.name, "source of the release": release.source}
    if there["rope_type"] in OF_LENGTH:
        if reach is None or context < CLAIMED * reach:
            return
        evidence |= {"context": context, "base": release.base, "type": model.architecture, "reach": reach}
        evidence |= {"its scaling": scaling_in_words(there), **model.said("rope.freq_base", "context_length")}
        yield "missing-scaling", evidence, model.code.layers
        return
    evidence |= block or {"here": "There is no scaling"}
    evidence |= {"because": "a factor of 1 changes nothing" if block else "nothing stands in its place"}
    evidence |= {"shape": str(release.shape), "published": scaling_in_words(there)}
    yield "differs-from-release", evidence, model.code.layers


def yarn_without_type(subject: Subject) -> Iterator[Case]:
    """Numbers of YaRN beside a factor without a type, which readers take for a linear scaling."""
    model = _model(subject)
    if model is None or not model.is_scaled or model.value("rope.scaling.type") is not None:
        return
    meant = model.said(
        "rope.scaling.original_context_length", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"
    )
    if meant:
        because = "no rope.scaling.type stands beside it, and this reader takes a factor alone for a linear scaling"
        instead = "A linear scaling of all pairs"
        yield "ignored-key", {**meant, "because": because, "read instead": instead}, model.code.layers
