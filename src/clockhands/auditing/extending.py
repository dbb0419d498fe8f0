"""Serving a model at a longer length than it declares: what works there, and the smallest change for each scaling.

No change of a config makes a model work beyond its trained length for certain. It can keep the angles of slow pairs
within those seen in training. This module says which pairs are affected, writes the block for each scaling that
runtimes of the model's family support, and repeats published results on the loss of quality.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clockhands.auditing.changes import of_config, of_gguf, said
from clockhands.auditing.findings import as_json, spoken
from clockhands.auditing.findings._lengths import with_still_pairs
from clockhands.auditing.published_costs import LABELS, OF_KINDS, OF_SCALINGS, Cost
from clockhands.configs.opened import Opened
from clockhands.configs.overriding import overridden
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import TEXT, Code, Resolved
from clockhands.errors import ClockhandsError
from clockhands.measures.ladders.base_bound import farthest_looked_at, first_failing_distance
from clockhands.measures.ladders.turning import turned_through


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
    """

    length: int
    context: int
    sound: tuple[str, ...]
    ways: tuple[Way, ...]
    without: tuple[str, ...]
    cannot: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The extension as JSON values."""
        return as_json(self, "length", "context", "sound", "ways", "without", "cannot")


def extension(opened: Opened, resolved: Resolved, length: int | None) -> Extension | None:
    """What is known about a model at a length that its files do not declare; None if they declare it.

    Args:
        opened: The target.
        resolved: Its position codes, resolved at that length.
        length: The requested length, or None.
    """
    context = resolved.context
    codes = [code for code in resolved.codes if code.part in TEXT and code.kind is not None]
    if length is None or context is None or length <= context or not codes:
        return None
    sound = tuple(dict.fromkeys(sentence for code in codes for sentence in _sound(code, resolved, length)))
    turning = [code for code in codes if code.kind == "rotary" and (code.farthest is None or code.farthest > context)]
    ways, without = [], []
    if turning and length > (turning[0].scaled_to or 0):
        ways, without = _ways(opened, resolved, turning[0], length)
    elif turning:
        without = [said("scaling-reaches", scaling=_scaling(turning[0]), scaled_to=turning[0].scaled_to, length=length)]
    cannot = [said("no-guarantee", length=length), *([said("other-models")] if ways else [])]
    return Extension(length, context, sound, tuple(ways), tuple(without), tuple(cannot))


# What holds


def _sound(code: Code, resolved: Resolved, length: int) -> Iterator[str]:
    """How a code behaves at a length beyond its context, in sentences."""
    where = _where(code)
    trained = _trained(code, resolved)
    if code.kind == "rotary":
        yield from _sound_rotary(code, trained, length, where)
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


def _sound_rotary(code: Code, trained: int, length: int, where: str) -> Iterator[str]:
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


def _scaling(code: Code) -> str:
    """The scaling of a code with its numbers."""
    held = code.scaling or {}
    return said("scaling", **{name: held.get(name) for name in ("type", "factor", "original")})


def _by_the_bound(what: str, code: Code, length: int) -> str:
    rates = with_still_pairs(code, length)
    first, looked = first_failing_distance(rates, length), farthest_looked_at(len(rates), length)
    name = "bound-holds" if first is None else "bound-fails"
    return said(name, what=what, distance=looked if first is None else first)


def _where(code: Code) -> str:
    part = "" if code.part == "text" else f"{code.part.capitalize()}, "
    if code.layers == "input":
        return f"{part}input" if part else "Input"
    several = code.layers is not None and not code.layers.isdigit()
    layers = f"layer{'s' if several else ''} {code.layers.replace(',', ', ')}" if code.layers else "all layers"
    return part + layers if part else layers.capitalize()


def _trained(code: Code, resolved: Resolved) -> int:
    """The length at which a code was trained, as far as the files say."""
    original = (code.scaling or {}).get("original")
    if isinstance(original, int) and (code.scaling or {}).get("type") != "dynamic":
        # The model was trained with its scaling, or at least served, at its whole context.
        return max(resolved.context or original, code.scaled_to or 0)
    if code.kind == "learned" and code.rows is not None:
        return code.rows - (code.offset or 0)
    return resolved.context or 0


# What would serve


def _ways(opened: Opened, resolved: Resolved, code: Code, length: int) -> tuple[list[Way], list[str]]:
    if opened.form == "gguf":
        makers, without = of_gguf(opened, resolved, code, length)
    elif opened.form == "preset" or not isinstance(opened.config, Mapping):
        return [], [said("no-config")]
    else:
        makers, without = of_config(opened, resolved, code, length)
    ways = []
    for scaling, values, warns in makers:
        after = _after(opened, next(iter(values.values())), length)
        if after is not None:
            ways.append(Way(scaling, values, tuple(_does(code, after, length)), OF_SCALINGS.get(scaling, ()), warns))
    return ways, without


def _after(opened: Opened, values: Mapping[str, Any], length: int) -> Code | None:
    """The code of the full-attention layers after the change, by the resolver that every audit uses."""
    try:
        changed = resolve(overridden(opened, values), length)
    except ClockhandsError:
        return None
    turning = [code for code in changed.codes if code.kind == "rotary" and code.part in TEXT and code.rates]
    return next((code for code in turning if code.farthest is None), next(iter(turning), None))


def _does(before: Code, after: Code, length: int) -> Iterator[str]:
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
