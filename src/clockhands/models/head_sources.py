"""Finds the output of a module that gives the queries or keys of a running model, and what happens in between.

At position 0 a rotation does nothing: a query that attention receives is a row of a projection or of a norm, times a
constant, with channels in their order or in another one. Where it is not, each of its pairs may be a pair of the
projection that is rotated by some angle: then position 0 is rotated as another one.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clockhands.encodings.layouts import Layout, pair_channels
from clockhands.models.attention_inputs import PRODUCTS, Attended, attended, module_path
from clockhands.models.running_models import runner

Order = Literal["kept", "halves"]
"""Of the rotated channels that attention receives: as projected, or first the even ones, then the odd ones."""

ELSEWHERE = 5
"""A second position, at which a row behind a rotation differs from that at position 0."""


@dataclass(frozen=True, eq=False)
class OutputAtZero:
    """What one call of a module returned for texts of one token at position 0.

    Attributes:
        path: The path of the module.
        made: Its output, [texts, numbers].
        given: Its input, where that has the same shape and depends on the position as well.
        moved: Which numbers depend on the position.
    """

    path: str
    made: np.ndarray
    given: np.ndarray | None
    moved: np.ndarray


@dataclass(frozen=True, eq=False)
class HeadSource:
    """The output that gives channels of a head at position 0, times a constant.

    Attributes:
        ratio: The constant.
        order: The order of the channels.
        moved: Whether it comes after the rotation: it depends on the position.
        angles: By which angle each pair is rotated in between, or before it if that is a norm, rad; None where no
            projection before the rotation is found.
    """

    ratio: float
    order: Order
    moved: bool
    angles: np.ndarray | None


# Listening


_Call = tuple[str, Tensor | None, Tensor]  # path, input and output of a module


def home_of(module: nn.Module, path: str) -> str:
    """The path of an attention with its projections: where it holds no parameter, that of what it is a part of.

    >>> model = nn.Sequential(nn.ModuleDict({"query": nn.Linear(2, 2), "product": nn.Identity()}))
    >>> home_of(model, "0.product"), home_of(model, "0")
    ('0', '0')
    """
    path = module_path(path)
    while "." in path and not any(True for _ in module.get_submodule(path).parameters()):
        path = path.rpartition(".")[0]
    return path


class _Projected(TorchFunctionMode):
    """Notes products of an array and a parameter, which are projections without a module, in the attention that runs.

    Attributes:
        running: The path of that attention; None outside of all.
    """

    def __init__(self, calls: list[_Call]) -> None:
        super().__init__()
        self.calls = calls
        self.running: str | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        projects = func in (*PRODUCTS, torch.einsum) and any(isinstance(each, nn.Parameter) for each in args)
        if projects and self.running is not None and isinstance(made, Tensor):
            self.calls.append((f"{self.running}.parameter", None, made.detach()))
        return made


def _calls(module: nn.Module, paths: Sequence[str], ids: Tensor, **given: Any) -> tuple[list[_Call], list[Attended]]:
    """The calls of modules inside attention in one pass, as they return before any hook changes that."""
    calls: list[_Call] = []  # a norm may be called for queries and again for keys
    projected = _Projected(calls)
    with ExitStack() as stack:
        for path, each in module.named_modules():

            def heard(_: nn.Module, args: Any, output: Any, path: str = path) -> None:
                if isinstance(output, Tensor) and output.is_floating_point():
                    one = args[0].detach() if args and isinstance(args[0], Tensor) else None
                    calls.append(
                        (path, one if one is not None and one.shape == output.shape else None, output.detach())
                    )

            def begins(_: nn.Module, __: Any, path: str = path) -> None:
                projected.running = path

            if any(path.startswith(f"{one}.") for one in paths):
                stack.enter_context(each.register_forward_hook(heard, prepend=True))
            if path in paths:
                stack.enter_context(each.register_forward_pre_hook(begins, prepend=True))
        stack.enter_context(projected)
        seen = stack.enter_context(attended(module))
        with torch.no_grad():
            runner(module)(ids, **given)
    return _side_by_side(calls, len(ids)) if getattr(module, "apart", False) else calls, seen


def _side_by_side(calls: Sequence[_Call], texts: int) -> list[_Call]:
    """The calls with one text each, [tokens, ...], as those of one pass with all texts, [texts, tokens, ...]."""
    made: list[_Call] = []
    each = len(calls) // texts
    for same in zip(*(calls[each * text :][:each] for text in range(texts)), strict=True):
        given = [one for _, one, _ in same if one is not None]
        output = torch.stack([output for _, _, output in same])
        made.append((same[0][0], torch.stack(given) if len(given) == texts else None, output))
    return made


def outputs_at_zero(
    module: nn.Module, tokens: Tensor, paths: Sequence[str], allowed: float, *, places: bool
) -> tuple[list[Attended], list[OutputAtZero]]:
    """Queries and keys of texts of one token at position 0, and what the modules inside attention return.

    Args:
        module: The model.
        tokens: Token ids, [texts].
        paths: The paths of its attentions.
        allowed: The largest difference of equal numbers, as a share.
        places: Whether the model takes positions; another one counts the tokens of a text.
    """
    texts = len(tokens)
    ids = (tokens.repeat(2) if places else tokens)[:, None]
    more: dict[str, Any] = {}
    if places:
        at = torch.tensor([0, ELSEWHERE], device=ids.device).repeat_interleave(texts)[:, None]
        more = {"position_ids": at, "attention_mask": torch.ones_like(ids)}
    calls, seen = _calls(module, paths, ids, **more)
    longer = calls if places else _calls(module, paths, ids.repeat(1, ELSEWHERE + 1))[0]

    def at_zero(array: Tensor, further: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """The numbers at position 0, and which of them depend on the position."""
        rows = array.double().cpu().numpy().reshape(len(ids), -1)
        if places:
            apart = np.abs(rows[texts:] - rows[:texts]).max(axis=0)
            return rows[:texts], apart > allowed * np.abs(rows[:texts]).max()
        return rows, np.full(rows.shape[1], not _same_at_all_tokens(further, allowed))

    outputs = []
    for (path, one, output), (of_longer, given_longer, output_longer) in zip(calls, longer, strict=False):
        tokens_first = output.shape[:2] == (1, len(ids))
        if path != of_longer or (output.shape[0] != len(ids) and not tokens_first):
            continue
        made, moved = at_zero(output, output_longer)
        given, along = (None, None) if one is None or given_longer is None else at_zero(one, given_longer)
        outputs.append(OutputAtZero(path, made, given if along is not None and along.any() else None, moved))
    return seen, outputs


def _same_at_all_tokens(output: Tensor, allowed: float) -> bool:
    """Whether an output for texts of one repeated token is the same at all tokens."""
    tokens, size = ELSEWHERE + 1, float(output.abs().max())
    arrays = [output, output.unflatten(0, (-1, tokens))] if output.shape[0] % tokens == 0 else [output]
    return any(
        float((array - array.narrow(axis, 0, 1)).abs().max()) <= allowed * size
        for array in arrays
        for axis, length in enumerate(array.shape)
        if length == tokens
    )


# Finding


def constant(given: np.ndarray, made: np.ndarray, allowed: float) -> float | None:
    """The number by which the first array gives the second one; None if there is none."""
    ratio = float((given * made).sum() / max((given**2).sum(), 1e-300))
    return ratio if np.linalg.norm(made - ratio * given) <= allowed * np.linalg.norm(made) else None


def sources_of(
    heads: np.ndarray, outputs: Sequence[OutputAtZero], allowed: float, layout: Layout | None = None
) -> list[HeadSource] | None:
    """The last output that gives the channels of each head; None if one has none, or another constant.

    Args:
        heads: Channels that attention receives at position 0, [texts, heads, channels].
        outputs: The outputs of modules inside the attention.
        allowed: The largest residual, as a share.
        layout: Which two of these channels are rotated as a pair; None where they do not rotate.
    """
    found = []
    for head in range(heads.shape[1]):
        source = _of_head(heads[:, head], outputs, allowed, layout)
        if source is None or (found and abs(source.ratio / found[0].ratio - 1) > 2 * allowed):
            return None
        found.append(source)
    return found


def _of_head(
    rows: np.ndarray, outputs: Sequence[OutputAtZero], allowed: float, layout: Layout | None
) -> HeadSource | None:
    """The source of channels [texts, channels] of one head, which are beside each other in an output."""
    same = _unrotated(rows, outputs, allowed)
    if same is None:
        return None if layout is None else _rotated(rows, outputs, allowed, layout)
    ratio, order, places, output = same
    if not output.moved[places].any():
        return HeadSource(ratio, order, False, np.zeros(len(places) // 2))
    before = None
    if layout is not None:
        if output.given is not None:  # a norm behind the rotation
            rows = output.given[:, places]
        before = _of_head(rows, [each for each in outputs if not each.moved.all()], allowed, layout)
    return HeadSource(ratio, order, True, None if before is None else before.angles)


def _unrotated(
    rows: np.ndarray, outputs: Sequence[OutputAtZero], allowed: float
) -> tuple[float, Order, np.ndarray, OutputAtZero] | None:
    """The constant, the order and the places of the channels in the last output that gives them."""
    largest = _largest(rows)
    for output in reversed(outputs):
        for order, channels in _orders(rows.shape[-1]).items():
            for start in _starts(rows[largest], output.made[largest], channels, allowed):
                ratio = constant(output.made[:, start + channels], rows, allowed)
                if ratio is not None:
                    return ratio, order, start + channels, output
    return None


def _rotated(rows: np.ndarray, outputs: Sequence[OutputAtZero], allowed: float, layout: Layout) -> HeadSource | None:
    """The last output before the rotation of which each pair is a pair of these channels, rotated by some angle."""
    largest = _largest(rows)
    arrangements: list[tuple[Order, Layout]] = [("kept", layout), ("halves", "halves")]
    for output in reversed(outputs):
        for order, arranged in arrangements:
            channels, pairs = _orders(rows.shape[-1])[order], pair_channels(rows.shape[-1] // 2, arranged)
            first, second = channels[pairs].T
            beside = int(second[0] - first[0])
            wanted, made = _complex(rows, pairs), output.made[largest]
            for start in _starts(np.abs(wanted[largest]), np.hypot(made[:-beside], made[beside:]), first, allowed):
                given = _complex(output.made[:, start + channels], pairs)
                angles = np.angle((given.conj() * wanted).sum(axis=0))
                turned = given * np.exp(1j * angles)
                ratio = constant(_parts(turned), _parts(wanted), 2 * allowed)
                if ratio is not None and not output.moved[start + channels].any():
                    return HeadSource(ratio, order, False, angles)
    return None


def _largest(rows: np.ndarray) -> int:
    return int(np.linalg.norm(rows, axis=-1).argmax())  # that of a padding token may be zeros


def _orders(width: int) -> dict[Order, np.ndarray]:
    return {"kept": np.arange(width), "halves": np.r_[0:width:2, 1:width:2]}


def _complex(rows: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    first, second = pairs.T
    return rows[..., first] + 1j * rows[..., second]


def _parts(pairs: np.ndarray) -> np.ndarray:
    return np.stack([np.real(pairs), np.imag(pairs)])


def _starts(row: np.ndarray, output: np.ndarray, places: np.ndarray, allowed: float) -> Iterator[int]:
    """Where a row may begin in an output: there its three largest numbers have one ratio."""
    count = len(output) - int(places.max())
    first, *others = np.argsort(-np.abs(row))[:3]
    if count < 1 or not row[first]:
        return
    most = output[places[first] :][:count]
    near = np.abs(most) > 0
    for channel in others:
        apart = row[first] * output[places[channel] :][:count] - row[channel] * most
        near &= np.abs(apart) <= 4 * allowed * np.abs(row[first] * most)
    yield from map(int, np.flatnonzero(near))
