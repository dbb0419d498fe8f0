"""Runs attention of a user, a layer or a whole model, on token ids, as `clockhands.models` runs models.

What its parameters mean is read from their names; what names do not say (the axes of hidden states and of positions,
how cosines are laid out) is tried in the usual forms. Cosines and sines that it takes are made from the expected
encoding.
"""

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.encodings.rotary import Rotary
from clockhands.errors import InvalidValue
from clockhands.models.attention_inputs import Attended, attended_once
from clockhands.models.compared_runs import counts_itself
from clockhands.recognition.calling import Refused, error_text
from clockhands.testing._usual_names import meanings
from clockhands.testing.functions._argument_names import KNOWN, TABLES
from clockhands.testing.functions._wave_tables import ONE_FOR_EACH_PAIR, OTHER_FORMS, TableLayout, table_of
from clockhands.testing.reports import CannotCheck

TEXTS, LENGTH = 2, 7
"""The first call: sizes that no other axis is likely to have."""

_MEANT: Mapping[str, str] = {
    **meanings("mask", "cache", "cache_positions"), **KNOWN, "position_embeddings": "waves"
}  # fmt: skip
_BESIDE = frozenset({"q", "k", "value", "values", "v", "value_states", "decoder_input_ids"})  # the same tokens again
_PLACES = ("positions", "cache_positions")
_AXES = ("batch seq", "seq batch", "seq")
_TABLE_AXES = ("batch seq", "batch 1 seq", "batch seq 1", "seq", "seq 1", "seq 1 1")
_WIDTHS = 6  # of hidden states that are tried
_IDS = 64


@dataclass(frozen=True)
class AttentionCall:
    """How a module is called.

    Attributes:
        named: What each parameter after the first one is given, ``{parameter: quantity}``.
        first: What the first one is called, for messages.
        width: Channels of hidden states; 0 for token ids.
        axes: The axes of tokens, ``"batch seq"``, ``"seq batch"``, or ``"seq"`` where each text is a call of its own.
        places: The axes of positions, ``"batch seq"`` or ``"seq"``, or ``"3 batch seq"`` where each coordinate of a
            token of text has its position.
        table: The layout of cosines and sines, where it takes any.
        forms: For each parameter that takes cosines and sines, their form.
        mask: None, or what a mask is: ``"visible"`` (booleans) or ``"added"`` (floats).
        given: The caller's own function(module, x, positions) in place of all others.
    """

    first: str
    named: Mapping[str, str] = field(default_factory=dict)
    width: int = 0
    axes: str = "batch seq"
    places: str = "batch seq"
    table: TableLayout | None = None
    forms: Mapping[str, str] = field(default_factory=dict)
    mask: str | None = None
    given: Callable[..., Any] | None = None

    @property
    def places_given(self) -> bool:
        """Whether the module is told where tokens are."""
        return self.positions_given or bool(self.forms)

    @property
    def positions_given(self) -> bool:
        """Whether it is told so by numbers."""
        return self.given is not None or bool({*_PLACES} & {*self.named.values()})

    @property
    def positions_in_batches(self) -> bool:
        """Whether each text of a batch has positions of its own."""
        each = self.axes == "seq" or self.places != "seq"
        return each and (self.given is not None or "positions" in self.named.values())

    def text(self) -> str:
        """The call with its shapes, for messages."""
        shape = [{"batch": TEXTS, "seq": LENGTH}[axis] for axis in self.axes.split()]
        said = [f"{self.first} {shape + [self.width] * bool(self.width)}"]
        for name, quantity in self.named.items():
            if name in self.forms and self.table is not None:
                said.append(f"{name} [{self.table.axes.replace(' ', ', ')}, ...]")
            else:
                said.append(f"{name} [{self.places.replace(' ', ', ')}]" if quantity == "positions" else name)
        return f"forward({', '.join(said)})"


class _Unseen(Exception):
    """The module ran, and its attention was not seen; the message says what was."""


class AttentionRun(nn.Module):
    """A module as one that takes token ids and positions [batch, seq].

    Args:
        module: The module of the user.
        call: How it is called.
        spec: What its cosines and sines are made from, if it takes any.
        layer: The number of the layer that it is; None for a model, whose parts have the paths that they have in it.
    """

    def __init__(self, module: nn.Module, call: AttentionCall, spec: Rotary | None, layer: int | None) -> None:
        """Put the module, or its children, where their paths are found."""
        super().__init__()
        self.call, self.spec, self.whole = call, spec, (module,)
        self.apart, self.several = call.axes == "seq", False
        if layer is None:
            for name, child in module.named_children():
                self.add_module(name, child)
        else:
            self.layers = nn.ModuleDict({str(layer): module})
        like = next((each for each in module.parameters() if each.is_floating_point()), torch.zeros(1))
        drawn = torch.randn(_IDS, call.width, generator=torch.Generator().manual_seed(3)) if call.width else None
        self.rows: Tensor | None = None if drawn is None else drawn.to(like.device, like.dtype)
        self.like = (like.device, like.dtype)
        self.raised: Exception | None = None

    def forward(self, input_ids: Tensor, position_ids: Tensor | None = None, attention_mask: Any = None) -> Any:
        """Call the module; without positions, tokens are counted from 0."""
        del attention_mask  # says that no token is padding
        try:
            return self._answer(input_ids, position_ids)
        except Exception as error:
            self.raised = error
            raise

    def _answer(self, input_ids: Tensor, position_ids: Tensor | None) -> Any:
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
        if self.call.axes == "seq":
            return [self._called(*one) for one in zip(input_ids, position_ids, strict=True)]
        tokens = input_ids if self.call.axes == "batch seq" else input_ids.transpose(0, 1)
        return self._called(tokens, position_ids[0] if self.call.places == "seq" else position_ids)

    def _called(self, tokens: Tensor, at: Tensor) -> Any:
        (module,), call = self.whole, self.call
        states = tokens if self.rows is None else self.rows[tokens]
        at = at.expand(3, *at.shape) if call.places == "3 batch seq" else at
        if call.given is not None:
            return call.given(module, states, at)
        return module(states, **{name: self._value(name, each, states, at) for name, each in call.named.items()})

    def _value(self, name: str, quantity: str, states: Tensor, at: Tensor) -> Any:
        if quantity in _PLACES:
            return at if quantity == "positions" or at.ndim == 1 else at[0]
        if quantity in _BESIDE:
            return states
        if quantity == "offset":
            return 0
        if quantity == "mask" and self.call.mask is not None:
            length = at.shape[-1]
            seen = torch.ones(length, length, dtype=torch.bool, device=at.device).tril()
            seen = seen if self.call.axes == "seq" else seen[None, None]
            added = torch.zeros(seen.shape, device=at.device, dtype=self.like[1]).masked_fill(~seen, float("-inf"))
            return seen if self.call.mask == "visible" else added
        if name in self.call.forms:
            return self._table(self.call.forms[name], at)
        return None

    def _table(self, form: str, at: Tensor) -> Any:
        assert self.spec is not None
        assert self.call.table is not None
        places = at.cpu().numpy()
        rows = places if places.ndim == 1 or "batch" in self.call.table.axes else places[0]
        made = table_of(form, self.call.table, self.spec, rows)
        arrays = made if isinstance(made, tuple) else (made,)
        tensors = tuple(_tensor(each, *self.like) for each in arrays)
        return tensors if isinstance(made, tuple) else tensors[0]


def _tensor(array: np.ndarray, device: torch.device, dtype: torch.dtype) -> Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(array)).to(device)
    return tensor.to(torch.complex64 if tensor.is_complex() else dtype)


def calls_of(
    module: nn.Module, given: Callable[..., Any] | None, width: int | None, *, rotates: bool
) -> Iterator[AttentionCall]:
    """The calls that its parameters may mean, the usual ones first.

    Args:
        module: The module.
        given: The caller's function(module, x, positions), if there is one.
        width: Channels of hidden states, if they are known.
        rotates: Whether there is an encoding of which cosines and sines can be made.
    """
    first, *others = _parameters(module)
    named = dict(_named(others))
    tabled = [name for name, quantity in named.items() if quantity in TABLES]
    ids: list[int] = [0] if _reads_ids(module) else []
    widths: list[int] = list(dict.fromkeys([*ids, *([width] if width else []), *_widths(module)]))
    masks = (None, "visible", "added") if "mask" in named.values() else (None,)
    takes_positions = given is not None or "positions" in named.values()
    forms_of_places = ("batch seq", "seq", "3 batch seq") if takes_positions else ("batch seq",)
    if tabled and not rotates:
        return
    forms = [OTHER_FORMS.get(named[name], (named[name],)) for name in tabled]
    for size, axes, places, mask in itertools.product(widths[:_WIDTHS], _AXES, forms_of_places, masks):
        if takes_positions and axes == "seq" and places == "batch seq":
            continue  # of one text they are as those of "seq"
        base = AttentionCall(first.name, named, size, axes, places, mask=mask, given=given)
        if given is not None or not tabled:
            yield base
            continue
        for chosen in itertools.product(*forms):
            orders = ("pairs",) if {*chosen} & ONE_FOR_EACH_PAIR else ("halves", "interleaved", "pairs")
            for order, rows in itertools.product(orders, _TABLE_AXES):
                table = TableLayout(rows, order)
                yield AttentionCall(
                    first.name, named, size, axes, places, table, dict(zip(tabled, chosen, strict=True)), mask
                )


def _parameters(module: nn.Module) -> list[inspect.Parameter]:
    open_ended = {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    found = [each for each in inspect.signature(module.forward).parameters.values() if each.kind not in open_ended]
    if not found:
        raise CannotCheck(
            f"{type(module).__name__}.forward names no parameter.", "Pass call=, a function(module, x, positions)."
        )
    return found


def _named(parameters: Sequence[inspect.Parameter]) -> Iterator[tuple[str, str]]:
    """The parameters that get something: those of positions, cosines and masks, and those without a default."""
    for each in parameters:
        quantity = each.name if each.name in _BESIDE else _MEANT.get(each.name, "")
        needed = each.default is each.empty or each.name == "decoder_input_ids"
        if needed or quantity in _PLACES or quantity in TABLES:
            yield each.name, quantity


def _reads_ids(module: nn.Module) -> bool:
    return any(isinstance(each, nn.Embedding) for each in module.modules())


def _widths(module: nn.Module) -> Iterator[int]:
    """What hidden states may have channels: the inputs of its projections, the first one first."""
    yield from (each.in_features for each in module.modules() if isinstance(each, nn.Linear))
    yield from (size for each in module.parameters() if each.ndim > 1 for size in each.shape)


@dataclass(frozen=True)
class OpenedAttention:
    """A module that can be run.

    Attributes:
        run: The module on token ids.
        seen: The records of a pass over two texts, with scores.
        ids: These texts.
    """

    run: AttentionRun
    seen: list[Attended]
    ids: Tensor

    @property
    def takes_mask(self) -> bool:
        """Whether it is one layer whose caller says by a mask which keys are seen."""
        (module,) = self.run.whole
        names = inspect.signature(module.forward).parameters
        return self.run.rows is not None and any(_MEANT.get(name) == "mask" for name in names)

    @cached_property
    def follows_positions(self) -> bool:
        """Whether it is told where tokens are, and does not count them whatever it is told."""
        return self.run.call.places_given and not counts_itself(self.run, self.ids, self.seen)


def opened_attention(
    module: nn.Module, calls: Iterable[AttentionCall], spec: Rotary | None, layer: int | None,
    fits: Callable[[OpenedAttention], bool], *, layers: int | None = None,
) -> OpenedAttention:  # fmt: skip
    """The module in the first call that it takes; of several layouts of cosines, in one that ``fits`` if there is one.

    With a number of ``layers``, a module that puts as many products of queries and keys into a softmax in one forward
    pass computes these layers, one after the other.

    Raises:
        CannotCheck: It takes none, or no attention is seen.
    """
    first: OpenedAttention | None = None
    refused: tuple[str, str, BaseException | None] | None = None
    other: tuple[str, str, BaseException | None] | None = None
    for call in calls:
        if first is not None and (call.width, call.axes, call.mask) != _sort_of(first):
            break  # other sizes would run by chance
        try:
            found = _as(module, call, spec, layer, layers)
        except (Refused, _Unseen) as error:
            said = call.text(), str(error), error.__cause__
            refused, other = refused or said, other or (said if isinstance(error, _Unseen) else None)
            continue
        if call.table is None or fits(found):
            return found
        first = first or found
    if first is not None:
        return first
    if (said := other or refused) is None:
        raise CannotCheck(
            f"{type(module).__name__} takes cosines and sines, and the expected encoding has none.",
            "Pass like= of a layer that rotates, such as path/to/model:layer=0.",
        )
    text, why, cause = said
    raise CannotCheck(
        f"{type(module).__name__} was called as {text}, but {why.rstrip('.')}.",
        "Give a module with forward(hidden_states [batch, seq, width], position_ids [batch, seq]), with cos and sin in "
        "place of position_ids, or with token ids; or pass call=, a function(module, x, positions) that calls it.",
    ) from cause


def _sort_of(found: OpenedAttention) -> tuple[int, str, str | None]:
    call = found.run.call
    return call.width, call.axes, call.mask


def _as(
    module: nn.Module, call: AttentionCall, spec: Rotary | None, layer: int | None, layers: int | None
) -> OpenedAttention:
    """The module in one call.

    Raises:
        Refused: It raised an error.
        _Unseen: It ran, but its attention is not seen.
    """
    tokens = _known_ids(module, call)
    ids = torch.stack([tokens[torch.arange(LENGTH) % len(tokens)], tokens.flip(0)[torch.arange(LENGTH) % len(tokens)]])
    said = ""
    for number in (None, 0) if layer is None else (layer,):
        run = AttentionRun(module, call, spec, number).eval()
        ids = ids.to(run.like[0])
        try:
            run(ids)
        except Exception as error:
            raise Refused(f"it raised {type(error).__name__}: {error_text(error, 200)}") from error
        try:
            seen = attended_once(run, ids, scores=True)
        except InvalidValue:
            said = (
                "no attention was seen: no layer calls scaled_dot_product_attention or flex_attention, or puts a "
                "product of queries and keys into a softmax"
            )
            continue
        of_model = layer is None and not call.width and layers is not None and layers > 1
        if of_model and len({each.path for each in seen}) == 1:
            run.several = True
            apart = attended_once(run, ids, scores=True)
            run.several = len(apart) == layers
            seen = apart if run.several else seen
        shape = list(seen[0].queries.shape)
        if (shape[0], shape[-2]) == (TEXTS, LENGTH):
            return OpenedAttention(run, seen, ids)
        said = (
            f"its attention gets queries of shape {shape}, where [batch, heads, tokens, channels] of {TEXTS} texts of "
            f"{LENGTH} tokens are expected"
        )
    raise _Unseen(said)


def _known_ids(module: nn.Module, call: AttentionCall) -> Tensor:
    """Token ids that it knows; of hidden states, rows that were drawn."""
    if call.width:
        return torch.arange(_IDS)
    sizes = [each.num_embeddings for each in module.modules() if isinstance(each, nn.Embedding)]
    return torch.arange(min(1, sizes[0] - 1), min(_IDS, *sizes[:1], _IDS))
