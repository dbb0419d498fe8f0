"""Measures which tokens the queries of each layer see in a text that is longer than the declared windows.

The input of the softmax says it: scores of keys that a mask hides are below all others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.configs.resolved import TEXT, LayerEncoding, layer_numbers, layer_ranges, numbered_layers
from clockhands.models.attention_inputs import HIDDEN, Attended, attended
from clockhands.models.declared_parts import in_part
from clockhands.models.observations import Observation
from clockhands.models.running_models import runner
from clockhands.models.score_growth import LONGEST_TEXT
from clockhands.models.tower_inputs import reason
from clockhands.phrases import number_of

_BEYOND = 8  # tokens of the text after the longest window: that many more may be seen than declared
_REMEDY = "Give each layer the mask of its declared window: look for one mask that serves all layers, or is cut off."


@dataclass
class Windows:
    """Which tokens queries see.

    Attributes:
        found: What is not as declared.
        answers: What was measured, and why something was not.
        unknown: The layers with a declared window or chunk that was not measured.
        compared: The layers with one that was, and those without one that see all tokens.
    """

    found: list[Observation] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    compared: list[int] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class _Seen:
    """The first and the last token that each query sees, [tokens]; it sees all between."""

    first: np.ndarray
    last: np.ndarray

    def words(self, *, two_sided: bool) -> str | None:
        """What a query sees, where one rule gives it for all queries."""
        before = _reach(self.first, two_sided=two_sided)
        after = _reach((len(self.last) - 1 - self.last)[::-1], two_sided=True) if two_sided else before
        return before if before == after else None


def differing_windows(
    module: nn.Module, ids: Tensor, codes: Sequence[LayerEncoding], seen: Sequence[Attended], context: int | None
) -> Windows:
    """Compare the tokens that queries see with the declared windows and chunks; nothing where no layer has one.

    A layer without one should see all tokens, also in a text behind the windows of layers that are not in the pass.

    Args:
        module: The model.
        ids: Token ids of a text, [tokens].
        codes: As an audit has them.
        seen: One pass, whose layers are compared.
        context: The longest text; None where it is not known.
    """
    declared = {each.path: _declared(codes, each) for each in seen}
    reaches = {path: code.farthest for path, code in declared.items() if code is not None and code.farthest is not None}
    reaches = {path: reach for path, reach in reaches.items() if context is None or reach < context}
    made = Windows()
    of_text = [code.farthest for code in codes if code.part in TEXT and code.farthest is not None]
    every = [reach for reach in of_text if context is None or reach < context]
    if not every:
        return made
    length = min(max(every) + _BEYOND, LONGEST_TEXT, context or LONGEST_TEXT)
    found: dict[str, _Seen | None] = {}
    why = "no mask of a known shape was seen"
    if min(every) < length:
        try:
            found = _visible(module, ids.repeat(-(-length // len(ids)))[:length])
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
            why = reason(error)
    wrong: dict[tuple[str, str], list[int]] = {}
    unknown: dict[str, list[int]] = {}
    right: list[int] = []
    whole: list[int] = []
    for each in seen:
        code, own, reach = declared[each.path], found.get(each.path), reaches.get(each.path)
        if code is None or (code.farthest is not None and reach is None):
            continue  # no text within the context would show it
        sees = None if own is None else own.words(two_sided=code.two_sided)
        if reach is not None and reach >= length:
            unknown.setdefault(f"that takes a text of {reach + 1:,} tokens", []).append(each.layer)
        elif sees is None:
            if reach is not None:
                unknown.setdefault(why, []).append(each.layer)
        elif sees != _reach(_declared_first(code, length), two_sided=code.two_sided):
            wrong.setdefault((sees, code.seen), []).append(each.layer)
        else:
            (whole if reach is None else right).append(each.layer)
    for (sees, declares), layers in wrong.items():
        says = f"In a text of {number_of(length, 'token')}, a query sees {sees}, where {declares} are declared."
        made.found.append(Observation("run-differs", {"says": says, "remedy": _REMEDY}, layer_ranges(layers)))
    made.compared = [*right, *whole, *(layer for layers in wrong.values() for layer in layers)]
    if right:
        where = numbered_layers(sorted({*right}))
        made.answers.append(f"In a text of {length:,} tokens, queries of {where} see the declared windows or chunks.")
    for why, layers in unknown.items():
        where = numbered_layers(sorted({*layers}))
        made.answers.append(f"The window or chunk of {where} was not measured: {why}.")
        made.unknown += layers
    return made


def _declared(codes: Sequence[LayerEncoding], own: Attended) -> LayerEncoding | None:
    """The one code of a layer; None where several, or none, may be it."""
    of_text = in_part([code for code in codes if code.part in TEXT and code.layers != "input"], (own.path,))
    found = [code for code in of_text if code.layers is None or own.layer in layer_numbers(code.layers)]
    return found[0] if len(found) == 1 and found[0].either is None else None


def _declared_first(code: LayerEncoding, length: int) -> np.ndarray:
    """The first token that each query should see."""
    places = np.arange(length)
    if code.farthest is None:
        return 0 * places
    return places // code.chunk * code.chunk if code.chunk else np.maximum(places - code.farthest + 1, 0)


def _reach(first: np.ndarray, *, two_sided: bool) -> str | None:
    """The rule that gives the first token that each query sees; None where it is neither a window nor a chunk."""
    places = np.arange(len(first))
    if not first.any():
        return "all tokens"
    chunk, window = int(first[first > 0].min()), len(first) - int(first[-1])
    if chunk > 1 and (first == places // chunk * chunk).all():
        return f"chunks of {chunk:,} tokens"
    if (first != np.maximum(places - window + 1, 0)).any():
        return None
    return f"{window - 1:,} tokens on either side" if two_sided else f"the last {window:,} tokens"


def _visible(module: nn.Module, ids: Tensor) -> dict[str, _Seen | None]:
    """What the queries of each attention see; None where heads or calls differ, or tokens between are hidden."""
    made: dict[str, list[_Seen | None]] = {}

    def look(path: str, scores: Tensor) -> Tensor:
        shown = (scores > HIDDEN)[0]
        made.setdefault(path, []).append(_seen_by(shown) if shown.shape[-2:] == (len(ids), len(ids)) else None)
        return torch.zeros_like(scores)

    with attended(module, add=look), torch.no_grad():
        runner(module)(ids[None])
    return {path: each[0] if len(each) == 1 else None for path, each in made.items()}


def _seen_by(shown: Tensor) -> _Seen | None:
    rows = shown.cpu().numpy()
    first, last = rows[0].argmax(axis=-1), rows.shape[-1] - 1 - rows[0][:, ::-1].argmax(axis=-1)
    whole = (rows == rows[:1]).all() and (rows[0].sum(axis=-1) == last - first + 1).all()
    return _Seen(first, last) if whole else None
