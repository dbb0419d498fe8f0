"""Determines the layout from the weights alone, one layer's projection at a time, and compares it with the runtimes.

The statistic and its null distribution are in ``recognition.pairing``. The verdict on a model is that of all query
projections together; the keys, of which there are fewer, support it.
"""
# ruff: noqa: D101, D102 - the title says what a class is, and `Case` what its methods are

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from clockhands.auditing.findings._finding import as_json
from clockhands.auditing.findings._parts import AuditSubject, check_of, declared
from clockhands.auditing.findings._rules import Case, case_of
from clockhands.configs.projections import Projections, WeightProjection, projections
from clockhands.configs.resolved import TEXT, LayerEncoding, Resolved, layer_ranges
from clockhands.configs.targets import Opened
from clockhands.encodings.layouts import Layout
from clockhands.errors import ClockhandsError, Unreadable
from clockhands.formats import files
from clockhands.phrases import listed, spoken
from clockhands.recognition import LAYOUTS, MODEL_LEAD, MODEL_Z, Score, score, together

_PAIRED = {"interleaved": "neighbouring rows form a pair", "halves": "rows half a head apart form a pair"}


class PairingAgainstFormat(Case, code="pairing-against-format"):
    def pair_so(self) -> str:
        """Which rows form a pair in the weights."""
        return _PAIRED[self.layout_in_the_weights]

    def read_so(self) -> str:
        """Which rows form a pair for runtimes."""
        return _PAIRED[self.layout_of_readers]

    def others(self) -> str:
        """What the other projections have."""
        name = {"keys": "queries", "queries": "keys"}[self.projection]
        theirs = getattr(self, name)
        return f"the {name} do not show a layout" if theirs is None else f"the {name} have the layout {theirs}"

    def by(self) -> str:
        """What says that runtimes use their layout."""
        return f"the {self.because}" if str(self.because).startswith("architecture") else str(self.because)

    def unclear(self) -> bool:
        """Whether the keys may have the declared layout."""
        return self.projection == "queries" and self.keys is None


class MixedLayouts(Case, code="mixed-layouts"):
    def message(self) -> str:
        told = [
            f"{spoken(count)} file{'s say' if count > 1 else ' says'} {layout} ({self.first_of_each[layout]}"
            f"{' first' if count > 1 else ''})"
            for layout, count in self.files.items()
        ]
        return f"The metadata of the files contradict each other about the RoPE layout: {listed(told)}."


@check_of("layouts")
def layouts_of_shards(subject: AuditSubject) -> Iterator[Case]:
    """Shards of which some were converted and others were not, or to another layout."""
    held: dict[str, list[str]] = {}
    for shard, layout in subject.opened.layouts.items():
        held.setdefault(layout if layout in LAYOUTS else "another layout" if layout else "nothing", []).append(shard)
    if held:
        counts, first = ({layout: of(shards) for layout, shards in held.items()} for of in (len, min))
        yield case_of("mixed-layouts", {"files": counts, "first of each": first})


class PermutedHeads(Case, code="permuted-heads"):
    def kind(self) -> str:
        """The projection, as part of a name."""
        return {"keys": "key", "queries": "query"}[self.projection]

    def for_heads(self) -> str:
        """The numbers of heads for which the order may be."""
        each = [spoken(self.put_in_order_for_heads), *map(str, self.or_for_heads)]
        return f"{' or '.join(each)} head{'' if each == ['1'] else 's'}"

    def pair_so(self) -> str:
        """Which rows form a pair once the order is undone."""
        return _PAIRED[self.layout_once_undone]


NAMES = {"q": "queries", "k": "keys"}

LIMITS = (
    "Weights do not show the base, the direction of rotation, or which dimensions rotate if pairs are interleaved"
    " and only some rotate."
)
"""What stands beside every verdict from weights."""


@dataclass(frozen=True)
class Permuted:
    """Rows that show a layout only after a permutation for another number of heads is undone.

    Attributes:
        of: ``q`` or ``k``.
        heads: The number of heads of the tensor.
        undone: The number of heads for which its rows were permuted.
        also: Other numbers of heads that fit nearly as well.
        layout: The layout after the permutation is undone.
        z: Its z-score.
        before: The largest z-score of the rows as stored.
    """

    of: str
    heads: int
    undone: int
    also: tuple[int, ...]
    layout: Layout
    z: float
    before: float


@dataclass(frozen=True)
class Pairing:
    """What the weights of a model say about how channels pair.

    Attributes:
        layout: The layout, or None if it cannot be determined or was not examined.
        queries: All query projections together; None if none was examined.
        keys: All key projections, which support the verdict but do not decide it.
        by_layer: For each layer, the result of its queries alone.
        left_out: What was not examined, and why.
        permuted: Projections whose rows are permuted for another number of heads.
        unexamined: That no weights were examined, and why, in one clause.
    """

    layout: Layout | None = None
    queries: Score | None = None
    keys: Score | None = None
    by_layer: Mapping[int, Score] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    permuted: tuple[Permuted, ...] = ()
    unexamined: str = ""

    @property
    def confidence(self) -> float | None:
        """The probability that the layout is not ahead by chance, at most 0.99; None without a layout."""
        return None if self.layout is None or self.queries is None else self.queries.confidence

    @property
    def layers(self) -> str | None:
        """The layers whose queries were examined."""
        return layer_ranges(sorted(self.by_layer)) if self.by_layer else None

    @property
    def examined(self) -> bool:
        """Whether any weights were examined."""
        return not self.unexamined

    @property
    def says(self) -> str:
        """A summary in one clause."""
        return self.unexamined or _says(self)

    def to_dict(self) -> dict[str, Any]:
        """The field ``weights`` in the JSON of an audit."""
        scores = [{"layer": layer, "layout": one.layout, "z": _rounded(one)} for layer, one in self.by_layer.items()]
        return {
            **as_json(self, "examined", "says", "layout", "confidence"),
            "z": _rounded(self.queries),
            "keys": _rounded(self.keys),
            "layers": self.layers,
            "by_layer": scores,
            "permuted": [asdict(one) for one in self.permuted],
            "left_out": list(self.left_out),
            "limits": LIMITS if self.examined else None,
        }


def not_examined(opened: Opened, resolved: Resolved) -> Pairing | None:
    """The entry in a report if weights were not to be examined; None if there are no rotary weights."""
    if not opened.tensors or all(code.kind != "rotary" for code in resolved.codes):
        return None
    if opened.hub is not None:
        return Pairing(unexamined="not examined, because only the headers of the weights were fetched")
    return Pairing(unexamined="not examined (use --weights)")


def pairing(opened: Opened, resolved: Resolved) -> Pairing:
    """Determine the layout from the query and key projections of a model; unreadable ones are listed and left out.

    Raises:
        Unreadable: The model was fetched from a hub, without its weights.
    """
    if opened.hub is not None:
        raise Unreadable(
            f"The layout of {opened.target} is measured from all of its weights, and only their headers are fetched.",
            f"Download the model: `{opened.hub}`.",
        )
    if all(code.kind != "rotary" for code in resolved.codes):
        return Pairing(unexamined="not examined, because no layer is known to rotate")
    if not opened.tensors:
        return Pairing(unexamined="not examined, because the target holds no weights")
    found = projections(opened, resolved)
    seen = {of: _scored(found, of) for of in NAMES}
    left_out = tuple(dict.fromkeys((*found.left_out, *(words for _, words in seen.values() if words))))
    queries, keys = seen["q"][0], seen["k"][0]
    if not queries:
        because = "; ".join(left_out) or "no query projection has a name that is known"
        return Pairing(unexamined=f"not examined, because {because}", left_out=left_out)
    whole, moved = together(list(queries.values())), tuple(permuted(found))
    # Where queries are permuted, the rows as stored pair in neither layout.
    layout = None if any(one.of == "q" for one in moved) else whole.verdict()
    return Pairing(layout, whole, together(list(keys.values())) if keys else None, queries, left_out, moved)


def cases_of(found: Pairing | None, resolved: Resolved, opened: Opened) -> Iterator[Case]:
    """The findings where the layout of the weights differs from what runtimes assume for the file."""
    if found is None or found.queries is None:
        return
    for one in found.permuted:
        evidence: dict[str, Any] = {
            "projection": NAMES[one.of],
            "heads": one.heads,
            "put in order for heads": one.undone,
            "or for heads": list(one.also),
            "layout once undone": one.layout,
            "z once undone": round(one.z, 1),
            "z as they stand": round(one.before, 1),
        }
        yield case_of("permuted-heads", evidence, found.layers)
    told = {one.of for one in found.permuted}
    code = _expected(resolved)
    if code is None or found.layout is None:
        return  # where queries show no layout, that of the keys is no evidence: transposed rows may seem to have one
    scores = {of: one for of, one in (("q", found.queries), ("k", found.keys)) if one is not None and of not in told}
    layouts = {of: one.verdict() for of, one in scores.items()}
    wrong = [of for of, layout in layouts.items() if layout not in (None, code.layout)]
    for of in wrong[:1]:
        evidence = _against(code, scores[of], found) | {"confidence": round(scores[of].confidence, 3)}
        if len(wrong) == 1 and found.keys is not None:
            other = {"q": "k", "k": "q"}[of]
            evidence |= {"projection": NAMES[of], NAMES[other]: layouts.get(other)}
        # Where the other side shows no layout, the usual cause has moved both.
        only = of if len(wrong) == 1 and code.layout in layouts.values() else None
        command = _command(opened, scores[of].best, code.layout, only)
        evidence |= {} if command is None else {"command": command}
        yield case_of("pairing-against-format", evidence, found.layers)
    if "q" in wrong:
        return
    # A single layer must reach the threshold of a whole model, because a model has many layers.
    odd = {layer: one for layer, one in found.by_layer.items() if one.verdict() not in (None, found.layout)}
    if odd:
        evidence = _against(code, max(odd.values(), key=lambda one: one.z[one.best]), found)
        evidence |= {"layers that pair so": len(odd), "other layers": found.layout}
        yield case_of("pairing-against-format", evidence, layer_ranges(sorted(odd)))


def _command(opened: Opened, found: Layout, declared: str | None, only: str | None) -> str | None:
    """The command that writes the weights in the declared layout; None for files that it does not take."""
    if opened.path is None or any(files.kind(info.file) != "safetensors" for info in opened.tensors.values()):
        return None
    path = opened.path
    out = path.with_name(f"{path.name}-{declared}") if path.is_dir() else path.with_stem(f"{path.stem}-{declared}")
    more = "" if only is None else f" --only {only}"
    others = " --others" if path.is_dir() else ""
    where = " ".join(shlex.quote(str(each)) for each in (path, out))
    return f"clockhands convert {where} --layout {declared} --from {found}{more}{others}"


def with_layout(codes: tuple[LayerEncoding, ...], found: Pairing | None) -> tuple[LayerEncoding, ...]:
    """The codes of a model type with unknown layout, completed by what its weights show."""
    if found is None or found.layout is None:
        return codes
    because = f"the weights, confidence {found.confidence:.2f}"
    return tuple(
        replace(code, layout=found.layout, source={**code.source, "layout": because})
        if code.kind == "rotary" and code.layout is None and code.part in TEXT
        else code
        for code in codes
    )


def _against(code: LayerEncoding, against: Score, found: Pairing) -> dict[str, Any]:
    return {
        "layout in the weights": against.best,
        "z": round(against.z[against.best], 1),
        "z of the other": round(min(against.z.values()), 1),
        "layers looked at": len(found.by_layer),
        "layout of readers": code.layout,
        "because": code.source.get("layout", "what is declared"),
        **declared(code, "layout"),
    }


def _expected(resolved: Resolved) -> LayerEncoding | None:
    """A code with the layout that runtimes assume, if all rotary layers of the text agree."""
    codes = [code for code in resolved.codes if code.kind == "rotary" and code.part in TEXT]
    return codes[0] if len({code.layout for code in codes}) == 1 and codes[0].layout is not None else None


def _scored(found: Projections, of: str) -> tuple[dict[int, Score], str]:
    """The scores of all queries or keys by layer, and the reasons for missing ones."""
    scores: dict[int, Score] = {}
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
            scores[one.layer] = made
    if not failed:
        return scores, ""
    more = f" (and {len(failed) - 1} more like it)" if len(failed) > 1 else ""
    return scores, f"{failed[0].rstrip('.')}{more}"


def _says(made: Pairing) -> str:
    assert made.queries is not None
    number = len(made.by_layer)
    layers = f"queries of {number} layer{'s' if number > 1 else ''}"
    z = {layout: f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" for layout, value in made.queries.z.items()}
    other_heads = next((one for one in made.permuted if one.of == "q"), None)
    if other_heads is not None:
        words = (
            f"pairs {other_heads.layout} after undoing an order for {other_heads.undone} heads; there are"
            f" {other_heads.heads}: z {other_heads.z:.0f} ({layers})"
        )
    elif made.layout is None:
        told = " and ".join(f"{z[layout]} for {layout}" for layout in LAYOUTS)
        needed = f"{MODEL_Z:.0f} and a lead of {MODEL_LEAD:.0f} are needed"
        words = f"layout unclear: z {told} ({layers}), where {needed}"
    else:
        other = next(layout for layout in LAYOUTS if layout != made.layout)
        against = f"z {z[made.layout]} against {z[other]} ({layers})"
        words = f"pairs {made.layout}, confidence {made.confidence:.2f}, {against}"
    if made.left_out:
        words += f"; not examined: {'; '.join(made.left_out)}"
    return words


def _rounded(one: Score | None) -> dict[str, float] | None:
    return None if one is None else {layout: round(value, 3) for layout, value in one.z.items()}


# Rows that a converter has permuted for a wrong number of heads. Moving rows from one layout to the other needs the
# number of heads. With a wrong number, a converter moves rows across pairs; undoing that for the same number shows the
# pairs again, more clearly than the stored rows show any.

Order = tuple[int, Layout]
"""A number of heads, and the layout in whose order rows stood before they were put into the other's for so many."""

_SOME_LAYERS = 8  # layers in which a permutation is searched; all layers then confirm the result


def permuted(found: Projections) -> Iterator[Permuted]:
    """Permutations for another number of heads that explain queries or keys better than the stored rows."""
    for of in ("q", "k"):
        ones = [one for one in found.projections if one.of == of and one.rotated == one.width]
        if len({(len(one.starts), one.width) for one in ones}) != 1:
            continue
        heads, width = len(ones[0].starts), ones[0].width
        wrong = [count for count in _wrong_counts(found, heads) if heads * width % (2 * count) == 0]
        some = ones[:: max(1, len(ones) // _SOME_LAYERS)]
        near, _, _ = _leaders(some, [(count, layout) for count in wrong for layout in LAYOUTS])
        # Two permutations that undo nearly the same can only be distinguished by all layers.
        near, z, before = _leaders(ones, near)
        if near:
            (undone, layout), *others = near
            also = tuple(sorted({count for count, _ in others if count != undone}))
            yield Permuted(of, heads, undone, also, layout, z, before)


def _wrong_counts(found: Projections, heads: int) -> list[int]:
    """Numbers of heads that a converter may have used by mistake.

    One head for all, the number of the other projection, and queries divided by keys, which llama.cpp's converter used
    until pull request 3364 of September 2023.
    """
    counts = {1, found.heads, found.keys}
    if found.heads and found.keys:
        counts.add(found.heads // found.keys)
    return sorted(count for count in counts if count and count != heads)


def _leaders(ones: Sequence[WeightProjection], orders: Sequence[Order]) -> tuple[list[Order], float, float]:
    """The permutation that explains the rows best, if better than the stored order, and those close to it.

    Heads of one layer are similar, so their rows also have a high z-score as pairs of each other; but nothing of it is
    in the crossed part, and `Score.turns` distinguishes them from rotating pairs.

    Returns:
        The permutations, the z-score of the first, and the largest z-score of the stored rows.
    """
    if not orders:
        return [], 0.0, 0.0
    plain: list[Score] = []
    scores: dict[Order, list[Score]] = {order: [] for order in orders}
    for one in ones:
        try:
            heads = one.read()
        except ClockhandsError:
            continue
        tried = ((made, _undone(heads, *order)) for order, made in scores.items())
        for made, rows in ((plain, heads), *tried):
            found = score(rows)
            if found is not None:
                made.append(found)
    if not plain or not all(scores.values()):
        return [], 0.0, 0.0
    before = max(together(plain).z.values())
    whole = [(together(made), order) for order, made in scores.items()]
    turning = sorted(((made.z[order[1]], order) for made, order in whole if made.pairs_rotate(order[1])), reverse=True)
    if not turning or turning[0][0] < max(MODEL_Z, before + MODEL_LEAD):
        return [], 0.0, before
    most = turning[0][0]
    return [order for z, order in turning if z > most - MODEL_LEAD], most, before


def _undone(heads: np.ndarray, count: int, layout: Layout) -> Iterator[np.ndarray]:
    """Rows in a layout, as they were before they were permuted to the other layout for a number of heads."""
    rows = heads.reshape(-1, heads.shape[-1])
    order = np.arange(len(rows)).reshape(count, 2, -1).swapaxes(1, 2).reshape(-1)  # from halves to interleaved
    places = np.argsort(order) if layout == "halves" else order
    return (rows[each] for each in places.reshape(heads.shape[:2]))
