"""How channels pair, from the weights alone, beside what readers of the file do; one layer's projection at a time.

The statistic and its null are in ``recognition.pairing``. The verdict on a model is that of its query projections, all
layers together; its keys, of which there are fewer, support it. Where the keys (or queries) do not pair as readers of
the file pair them, orders are undone that a converter makes when it is told another number of heads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.auditing.checks import Case, declared
from clockhands.errors import ClockhandsError
from clockhands.layouts import Layout
from clockhands.recognition.pairing import (
    LAYOUTS,
    MODEL_LEAD,
    MODEL_Z,
    Score,
    confidence,
    score,
    together,
    verdict,
)
from clockhands.sources.projections import Found, Projection, projections
from clockhands.sources.resolved import Code, Resolved, layer_ranges
from clockhands.sources.targets import Opened

NAMES = {"q": "queries", "k": "keys"}

Order = tuple[int, Layout]
"""A number of heads, and the layout in whose order rows stood before they were put into the other's for so many."""

_SOME_LAYERS = 8  # among which another order is looked for; whole models take a minute for each order

LIMITS = (
    "Weights do not tell the base, the sense in which a pair turns, or which channels turn where pairs are interleaved"
    " and only some do."
)
"""What stands beside every verdict from weights."""


@dataclass(frozen=True)
class Layer:
    """What the queries of one layer say.

    Attributes:
        layer: Its number.
        z: Standard deviations from chance, by layout.
        layout: The layout, or None if this layer alone does not tell.
    """

    layer: int
    z: Mapping[Layout, float]
    layout: Layout | None


@dataclass(frozen=True)
class Permuted:
    """Rows that pair only after an order for another number of heads is undone.

    Attributes:
        of: ``q`` or ``k``.
        heads: The heads that the tensor has.
        undone: The heads for which its rows were put in order.
        layout: How they pair once that is undone.
        z: Standard deviations from chance then.
        before: Standard deviations of the rows as they stand, by layout.
    """

    of: str
    heads: int
    undone: int
    layout: Layout
    z: float
    before: Mapping[Layout, float]


@dataclass(frozen=True)
class Pairing:
    """What the weights of a model say about how channels pair.

    Attributes:
        layout: The layout, or None if it cannot be told or was not looked at.
        confidence: How likely it is that this layout is not ahead by chance, at most 0.99; None without a layout.
        z: Standard deviations from chance of all query projections together, by layout; None if none was looked at.
        keys: The same of the key projections, which support the verdict and do not make it.
        layers: The layers whose queries were looked at.
        by_layer: What each says by itself.
        says: All this in a clause.
        left_out: What was not looked at, and why.
        permuted: Projections whose rows are in order for another number of heads.
        examined: Whether weights were looked at at all.
    """

    layout: Layout | None
    confidence: float | None
    z: Mapping[Layout, float] | None
    keys: Mapping[Layout, float] | None
    layers: str | None
    by_layer: tuple[Layer, ...]
    says: str
    left_out: tuple[str, ...] = ()
    permuted: tuple[Permuted, ...] = ()
    examined: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The field ``weights`` in the JSON of an audit."""
        return {
            "examined": self.examined,
            "says": self.says,
            "layout": self.layout,
            "confidence": self.confidence,
            "z": _numbers(self.z),
            "keys": _numbers(self.keys),
            "layers": self.layers,
            "by_layer": [{"layer": one.layer, "layout": one.layout, "z": _numbers(one.z)} for one in self.by_layer],
            "left_out": list(self.left_out),
            "limits": LIMITS if self.examined else None,
        }


def unexamined(says: str, left_out: tuple[str, ...] = ()) -> Pairing:
    """A verdict that was not sought, or for which there is nothing to look at."""
    return Pairing(None, None, None, None, None, (), says, left_out, examined=False)


def not_asked(opened: Opened, resolved: Resolved) -> Pairing | None:
    """What stands in a report for weights that nobody asked to look at; None where there are none that turn."""
    if not opened.tensors or all(code.kind != "rotary" for code in resolved.codes):
        return None
    return unexamined("not examined (use --weights)")


def pairing(opened: Opened, resolved: Resolved) -> Pairing:
    """How channels pair, from the query and key projections of a model; what cannot be read is said and left out."""
    if all(code.kind != "rotary" for code in resolved.codes):
        return unexamined("not looked at, because no layer is known to rotate")
    if not opened.tensors:
        return unexamined("not looked at, because the target holds no weights")
    found = projections(opened, resolved)
    seen = {of: _scored(found, of) for of in NAMES}
    left_out = tuple(dict.fromkeys((*found.left_out, *(words for _, words in seen.values() if words))))
    queries, keys = seen["q"][0], seen["k"][0]
    if not queries:
        because = "; ".join(left_out) or "no query projection has a name that is known"
        return unexamined(f"not looked at, because {because}", left_out)
    z = together([one for _, one in queries])
    layout = verdict(z)
    made = Pairing(
        layout,
        None if layout is None else confidence(z),
        z,
        together([one for _, one in keys]) if keys else None,
        layer_ranges(sorted(layer for layer, _ in queries)),
        tuple(Layer(layer, one.z, one.layout) for layer, one in queries),
        "",
        left_out,
    )
    made = replace(made, permuted=tuple(_permuted(found)))
    if any(one.of == "q" for one in made.permuted):
        made = replace(made, layout=None, confidence=None)  # as the rows stand they pair in neither
    return replace(made, says=_says(made))


def cases_of(found: Pairing | None, resolved: Resolved) -> Iterator[Case]:
    """What is to be said where the weights do not pair as readers of the file pair them."""
    if found is None:
        return
    for one in found.permuted:
        yield (
            "permuted-heads",
            {
                "projection": NAMES[one.of],
                "heads": one.heads,
                "put in order for heads": one.undone,
                "layout once undone": one.layout,
                "z once undone": round(one.z, 1),
                "z as they stand": round(max(one.before.values()), 1),
            },
            found.layers,
        )
    told = {one.of for one in found.permuted}
    code = _expected(resolved)
    if code is None or found.z is None or "q" in told or found.layout is None:
        return
    if found.layout != code.layout:
        evidence = _against(code, found.layout, found.z, found) | {"confidence": round(found.confidence or 0, 3)}
        yield "pairing-against-format", evidence, found.layers
        return
    keys = verdict(found.keys) if found.keys is not None and "k" not in told else None
    if found.keys is not None and keys not in (None, code.layout):
        evidence = _against(code, keys, found.keys, found) | {"projection": "keys", "queries": found.layout}
        yield "pairing-against-format", evidence, found.layers
    # A layer by itself must reach what a model must, because a model has many.
    odd = [one for one in found.by_layer if verdict(one.z) not in (None, found.layout)]
    if odd:
        most = max(odd, key=lambda one: max(one.z.values()))
        evidence = _against(code, max(LAYOUTS, key=most.z.__getitem__), most.z, found)
        evidence |= {"layers that pair so": len(odd), "other layers": found.layout}
        yield "pairing-against-format", evidence, layer_ranges(sorted(one.layer for one in odd))


def _against(code: Code, layout: Layout, z: Mapping[Layout, float], found: Pairing) -> dict[str, Any]:
    return {
        "layout in the weights": layout,
        "z": round(z[layout], 1),
        "z of the other": round(min(z.values()), 1),
        "layers looked at": len(found.by_layer),
        "layout of readers": code.layout,
        "because": code.source.get("layout", "what is declared"),
        **declared(code, "layout"),
    }


def _expected(resolved: Resolved) -> Code | None:
    """A code that says how readers pair, if all turning layers of the text agree."""
    codes = [code for code in resolved.codes if code.kind == "rotary" and code.part in ("text", "encoder", "decoder")]
    return codes[0] if len({code.layout for code in codes}) == 1 and codes[0].layout is not None else None


def _scored(found: Found, of: str) -> tuple[list[tuple[int, Score]], str]:
    """The scores of all queries or keys by layer, and why some have none."""
    scores: list[tuple[int, Score]] = []
    failed: list[str] = []
    for one in found.projections:
        if one.of != of:
            continue
        try:
            made = score(one.read())
        except ClockhandsError as error:
            failed.append(f"{error.message} {error.hint}")
            continue
        if made is None:
            failed.append(f"{one.info.name} has too few pairs, or no head whose rows are all numbers and not zero.")
        else:
            scores.append((one.layer, made))
    if not failed:
        return scores, ""
    more = f" (and {len(failed) - 1} more like it)" if len(failed) > 1 else ""
    return scores, f"{failed[0].rstrip('.')}{more}"


def _permuted(found: Found) -> Iterator[Permuted]:
    """Orders for another number of heads that explain queries or keys better than their rows as they stand.

    Some layers show it; what they show is then confirmed by all. Keys are a weak witness: they are heard only where
    they pair clearly once an order is undone, as queries are.
    """
    for of in NAMES:
        ones = [one for one in found.projections if one.of == of and one.rotated == one.width]
        if len({len(one.starts) for one in ones}) != 1:
            continue
        heads = len(ones[0].starts)
        wrong = [count for count in _wrong_counts(found, heads) if heads * ones[0].width % (2 * count) == 0]
        some = ones[:: max(1, len(ones) // _SOME_LAYERS)]
        z = _with_orders(some, [None, *((count, layout) for count in wrong for layout in LAYOUTS)])
        best = _leader(z)
        if best is None:
            continue
        every = _with_orders(ones, [None, best])
        if _leader(every) == best:
            undone, layout = best
            yield Permuted(of, heads, undone, layout, every[best][layout], every[None])


def _wrong_counts(found: Found, heads: int) -> list[int]:
    """Numbers of heads that a converter may have taken for the right one.

    One for all, those of the other projection, and queries over keys, which llama.cpp's converter took until pull
    request 3364 of September 2023.
    """
    counts = {1, found.heads, found.keys}
    if found.heads and found.keys:
        counts.add(found.heads // found.keys)
    return sorted(count for count in counts if count and count != heads)


def _with_orders(ones: Sequence[Projection], orders: Sequence[Order | None]) -> dict[Order | None, dict[Layout, float]]:
    """Z by layout of all layers together, for each order once it is undone; None is the rows as they stand."""
    scores: dict[Order | None, list[Score]] = {order: [] for order in orders}
    for one in ones:
        try:
            heads = one.read()
        except ClockhandsError:
            continue
        for order, made in scores.items():
            found = score(heads if order is None else _undone(heads, *order))
            if found is not None:
                made.append(found)
    return {order: together(made) for order, made in scores.items() if made}


def _undone(heads: np.ndarray, count: int, layout: Layout) -> np.ndarray:
    """Rows in the order of a layout, before they were put into the other's for a number of heads."""
    rows = heads.reshape(-1, heads.shape[-1])
    order = np.arange(len(rows)).reshape(count, 2, -1).swapaxes(1, 2).reshape(-1)  # from halves to interleaved
    return rows[np.argsort(order) if layout == "halves" else order].reshape(heads.shape)


def _leader(z: Mapping[Order | None, Mapping[Layout, float]]) -> Order | None:
    """The order that explains the rows best, if it stands out from all others and from the rows as they stand."""
    tried = sorted(((by[order[1]], order) for order, by in z.items() if order is not None), reverse=True)
    if not tried or None not in z:
        return None
    (most, best), *others = tried
    rivals = [*z[None].values(), *(each for each, _ in others)]
    return best if most >= MODEL_Z and most - max(rivals) >= MODEL_LEAD else None


def _says(made: Pairing) -> str:
    assert made.z is not None
    number = len(made.by_layer)
    layers = f"queries of {number} layer{'s' if number > 1 else ''}"
    z = {layout: f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" for layout, value in made.z.items()}
    permuted = next((one for one in made.permuted if one.of == "q"), None)
    if permuted is not None:
        words = (
            f"pairs {permuted.layout} once an order for {permuted.undone} heads, where there are {permuted.heads}, is"
            f" undone: z {permuted.z:.0f} ({layers})"
        )
    elif made.layout is None:
        told = " and ".join(f"{z[layout]} for {layout}" for layout in LAYOUTS)
        needed = f"{MODEL_Z:.0f} and a lead of {MODEL_LEAD:.0f} are needed"
        words = f"cannot tell how channels pair: z {told} ({layers}), where {needed}"
    else:
        other = next(layout for layout in LAYOUTS if layout != made.layout)
        against = f"z {z[made.layout]} against {z[other]} ({layers})"
        words = f"pairs {made.layout}, confidence {made.confidence:.2f}, {against}"
    if made.left_out:
        words += f"; not looked at: {'; '.join(made.left_out)}"
    return words


def _numbers(z: Mapping[Layout, float] | None) -> dict[str, float] | None:
    return None if z is None else {layout: round(value, 3) for layout, value in z.items()}
