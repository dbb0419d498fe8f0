"""Steps of decoding in PyTorch on the CPU: the layers of a model rotate heads of the same shape by the same positions.

One new token is so few numbers that checks and Python cost more than the rotation. So what the first layer has checked
is remembered with the cosine and sine, and a later layer that gives heads of the same shape and dtype is only rotated.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from clockhands.rotary._cosines import CosSin
from clockhands.rotary._spec import Rotary

_WHOLE = (torch.int64, torch.int32)
_MOST, _MOST_POSITIONS = 1 << 14, 256  # numbers of heads, and positions, that are few: Python costs more than they do


def step(  # noqa: PLR0917 - what `rotate` was called with
    spec: Rotary,
    heads: tuple[torch.Tensor, ...],
    positions: Any,
    seq_axis: int,
    roles: tuple[str | None, ...],
    pairs: tuple[CosSin | None, ...],
) -> list[torch.Tensor] | None:
    """Heads rotated as earlier ones of their shapes were, or None where that is not known to be the same.

    The arguments are those of `clockhands.rotate`, one or two of each; they may be wrong, and then the result is None.
    """
    if seq_axis.__class__ is not int or not isinstance(spec, Rotary) or _transforms():
        return None
    key, made = None, []
    for x, role, pair in zip(heads, roles, pairs, strict=True):
        if not _plain(x) or not (role is None or isinstance(role, str)):
            return None
        if pair is None:
            key = key or _key(positions, x, seq_axis)
            held = spec._latest.get(_place(x, role))
            if held is None or held[0] != key:
                return None
            steps = held[1]
        elif pair.__class__ is CosSin and (pair.spec is spec or pair.spec._latest is spec._latest):
            steps = pair._steps
        else:
            return None
        turn = steps.get((x.shape, x.dtype, seq_axis, role))
        if turn is None:
            return None
        made.append(turn(x))
    return made


def first_step(  # noqa: PLR0917 - what `rotate` was called with
    spec: Rotary, x: Any, positions: Any, seq_axis: int, role: str | None, pair: CosSin | None, turns: tuple[Any, Any]
) -> torch.Tensor | None:
    """Few heads rotated by the cosine and sine that `rotate` has brought to their axes, and what did it remembered.

    None where `step` does not apply.
    """
    if x.numel() > _MOST or not _plain(x) or _transforms():
        return None
    if pair is None:
        key, place = _key(positions, x, seq_axis), _place(x, role)
        if key is None:
            return None
        held = spec._latest.get(place)
        if held is None or held[0] != key:
            held = spec._latest[place] = key, {}
        steps = held[1]
    else:
        steps = pair._steps
    # Queries and keys have other numbers of heads, and the same rotation.
    shared = turns[0].shape, x.dtype, role
    turn = steps.get(shared)
    if turn is None:
        turn = _turn_of(
            spec, x, *(part if isinstance(part, torch.Tensor) else torch.from_numpy(part) for part in turns)
        )
        if turn is None:
            return None
        steps[shared] = turn
    steps[x.shape, x.dtype, seq_axis, role] = turn
    return turn(x)


def _transforms() -> bool:
    """Whether anything may see operations instead of numbers: a trace, a mode, a derivative or map by a function."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._are_functorch_transforms_active()  # type: ignore[attr-defined]
        or torch.autograd.forward_ad._current_level >= 0
        or torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
    )


def _plain(x: torch.Tensor) -> bool:
    """Whether nothing but the numbers and the shape of these heads decides what is made of them."""
    return (
        type(x) is torch.Tensor
        and x.is_cpu
        and not x.is_nested
        and x.layout is torch.strided
        and x.is_contiguous()
        and not x.is_neg()
        and not (x.requires_grad and torch.is_grad_enabled())
        and not torch._C._functorch.is_legacy_batchedtensor(x)  # type: ignore[attr-defined]
    )


def _place(x: torch.Tensor, role: str | None) -> tuple[str, str | None]:
    return ("torch, of float64" if x.dtype is torch.float64 else "torch"), role


def _key(positions: Any, x: torch.Tensor, seq_axis: int) -> tuple[object, ...] | None:
    """What tells these few positions from others; None where that takes longer to find out than to start anew."""
    if positions is None:
        return (x.shape[seq_axis],) if -x.ndim <= seq_axis < x.ndim else None
    if type(positions) is not torch.Tensor or not positions.is_cpu or positions.dtype not in _WHOLE:
        return None
    if positions.is_nested or positions.layout is not torch.strided or positions.numel() > _MOST_POSITIONS:
        return None
    return positions.dtype, positions.shape, positions.numpy().tobytes()


_Turn: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


def _turn_of(spec: Rotary, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> _Turn | None:
    """The rotation of contiguous heads like ``x`` in few operations; None for codes that need more of them."""
    if spec.blocks or spec.reordered or spec.head_width % 2 or not spec.rotated:
        return None
    if spec.layout == "halves":
        half = spec.rotated // 2
        along, across = torch.cat((cosine, cosine), dim=-1), torch.cat((-sine, sine), dim=-1)

        def turn(block: torch.Tensor) -> torch.Tensor:
            return torch.addcmul(block * along, block.roll(half, -1), across)

    else:
        numbers, work = torch.complex(cosine, sine), cosine.dtype

        def turn(block: torch.Tensor) -> torch.Tensor:
            if block.storage_offset() % 2:
                block = block.clone()
            return (block.view(numbers.dtype) * numbers).view(work)

    of_block: _Turn = turn if x.dtype == cosine.dtype else _in(cosine.dtype, turn)
    return of_block if spec.rotated == spec.head_width else _of_part(spec, of_block)


def _in(work: torch.dtype, turn: _Turn) -> _Turn:
    return lambda block: turn(block.to(work)).to(block.dtype)


def _of_part(spec: Rotary, turn: _Turn) -> _Turn:
    """The rotation of heads of which some channels are not rotated."""
    sizes = [size for size in (spec.start, spec.rotated, spec.head_width - spec.start - spec.rotated) if size]
    which = 1 if spec.start else 0

    def turned(x: torch.Tensor) -> torch.Tensor:
        parts = list(x.split(sizes, dim=-1))
        parts[which] = turn(parts[which])
        return torch.cat(parts, dim=-1)

    return turned
