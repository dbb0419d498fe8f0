"""Fast decoding steps in PyTorch on the CPU, where all layers rotate heads of equal shape by the same positions.

For one new token, checks and Python overhead cost more than the rotation. So the first layer's checks are cached with
the cosine and sine, and a later layer with heads of the same shape and dtype skips them.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from clockhands.encodings.compiling import intercepted, is_gradient_batch
from clockhands.encodings.rotary._cosines import CosSin
from clockhands.encodings.rotary._spec import Rotary

_WHOLE = (torch.int64, torch.int32)
_MOST, _MOST_POSITIONS = 1 << 14, 256  # up to so many numbers and positions, Python overhead dominates


def step(  # noqa: PLR0917 - what `rotate` was called with
    spec: Rotary,
    heads: tuple[torch.Tensor, ...],
    positions: Any,
    seq_axis: int,
    roles: tuple[str | None, ...],
    pairs: tuple[CosSin | None, ...],
) -> list[torch.Tensor] | None:
    """Rotate heads by the cached rotation for their shapes; None where no cached rotation applies.

    The arguments are those of `clockhands.rotate`, one or two of each. They are unchecked; invalid ones give None.
    """
    if seq_axis.__class__ is not int or not isinstance(spec, Rotary) or intercepted():
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
        elif pair.__class__ is CosSin and not pair.changed and (pair.spec is spec or pair.spec._latest is spec._latest):
            steps = pair._steps
        else:
            return None
        rotation = steps.get((x.shape, x.dtype, seq_axis, role))
        if rotation is None:
            return None
        made.append(rotation(x))
    return made


def first_step(  # noqa: PLR0917 - what `rotate` was called with
    spec: Rotary, x: Any, positions: Any, seq_axis: int, role: str | None, pair: CosSin | None, turns: tuple[Any, Any]
) -> torch.Tensor | None:
    """Rotate a few heads by cosine and sine that broadcast to them, and cache the rotation for `step`.

    None where `step` does not apply.
    """
    if x.numel() > _MOST or not _plain(x) or intercepted():
        return None
    if pair is None:
        key, place = _key(positions, x, seq_axis), _place(x, role)
        if key is None:
            return None
        held = spec._latest.get(place)
        if held is None or held[0] != key:
            held = spec._latest[place] = key, {}
        steps = held[1]
    elif None in pair._state:  # a change in place would not be noticed
        return None
    else:
        steps = pair._steps
    # Queries and keys may differ in the number of heads but share the rotation.
    shared = turns[0].shape, x.dtype, role
    rotation = steps.get(shared)
    if rotation is None:
        rotation = _rotation_function(
            spec, x, *(part if isinstance(part, torch.Tensor) else torch.from_numpy(part) for part in turns)
        )
        if rotation is None:
            return None
        steps[shared] = rotation
    steps[x.shape, x.dtype, seq_axis, role] = rotation
    return rotation(x)


def _plain(x: torch.Tensor) -> bool:
    """Whether this is a plain dense CPU tensor without a gradient, so that values and shape determine the result."""
    return (
        type(x) is torch.Tensor
        and x.is_cpu
        and not x.is_nested
        and x.layout is torch.strided
        and x.is_contiguous()
        and not x.is_neg()
        and not (x.requires_grad and torch.is_grad_enabled())
        and not is_gradient_batch(x)
    )


def _place(x: torch.Tensor, role: str | None) -> tuple[str, str | None]:
    return ("torch, of float64" if x.dtype is torch.float64 else "torch"), role


def _key(positions: Any, x: torch.Tensor, seq_axis: int) -> tuple[object, ...] | None:
    """A cache key of these few positions; None where computing one costs more than a new rotation."""
    if positions is None:
        return (x.shape[seq_axis],) if -x.ndim <= seq_axis < x.ndim else None
    if type(positions) is not torch.Tensor or not positions.is_cpu or positions.dtype not in _WHOLE:
        return None
    if positions.is_nested or positions.layout is not torch.strided or positions.numel() > _MOST_POSITIONS:
        return None
    return positions.dtype, positions.shape, positions.numpy().tobytes()


_Turn: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


def _rotation_function(spec: Rotary, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> _Turn | None:
    """A rotation function of few operations for contiguous heads like ``x``; None for codes that need more."""
    if spec.blocks or spec.reordered or spec.head_width % 2 or not spec.rotated:
        return None
    if spec.layout == "halves":
        half = spec.rotated // 2
        along, across = torch.cat((cosine, cosine), dim=-1), torch.cat((-sine, sine), dim=-1)

        def rotation(block: torch.Tensor) -> torch.Tensor:
            return torch.addcmul(block * along, block.roll(half, -1), across)

    else:
        numbers, work = torch.complex(cosine, sine), cosine.dtype

        def rotation(block: torch.Tensor) -> torch.Tensor:
            if block.storage_offset() % 2:
                block = block.clone()
            return (block.view(numbers.dtype) * numbers).view(work)

    of_block: _Turn = rotation if x.dtype == cosine.dtype else _in(cosine.dtype, rotation)
    return of_block if spec.rotated == spec.head_width else _of_part(spec, of_block)


def _in(work: torch.dtype, rotation: _Turn) -> _Turn:
    return lambda block: rotation(block.to(work)).to(block.dtype)


def _of_part(spec: Rotary, rotation: _Turn) -> _Turn:
    """The rotation function for heads with partial RoPE (some channels are not rotated)."""
    sizes = [size for size in (spec.start, spec.rotated, spec.head_width - spec.start - spec.rotated) if size]
    which = 1 if spec.start else 0

    def rotated_part(x: torch.Tensor) -> torch.Tensor:
        parts = list(x.split(sizes, dim=-1))
        parts[which] = rotation(parts[which])
        return torch.cat(parts, dim=-1)

    return rotated_part
