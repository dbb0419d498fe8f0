"""A rotation as one Triton kernel on a GPU: queries and keys are read once and written once.

The kernel computes cosine and sine from integer positions with the arithmetic and the 32-bit words of
`clockhands.encodings.traces`, or takes given ones. A program rotates a few heads of a few tokens.

Accuracy: the angle is at most pi/4 and computed as in `clockhands.encodings.traces`. The series of the sine ends with
``a**9 / 9!`` and that of the cosine with ``a**10 / 10!``: the truncation is below ``(pi/4)**11 / 11! < 2**-29`` and
``(pi/4)**12 / 12! < 2**-33``. The last two steps of each series round a number of at most 1 to float32, at most
``2 x 2**-25``, and the earlier steps together round less than ``2**-25``. With ``1.58 + 2 x pi/4`` units of ``2**-24``
for the angle, each is within ``2**-22``. Products and sums are not fused, so that cosine and sine computed separately
give the same result bit for bit.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]

from clockhands.encodings.compiling import kept_limbs
from clockhands.encodings.rotary._spec import Rotary
from clockhands.encodings.traces import UNIT_HIGH, UNIT_LOW

# Heads that a program rotates with its cosines, and numbers of a head that it holds at a time.
_HEADS, _NUMBERS = 4, 2048
_TENSORS, _AXES = (torch.Tensor, torch.nn.Parameter), (3, 4)
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_HIGH, _LOW = tl.constexpr(UNIT_HIGH), tl.constexpr(UNIT_LOW)


@triton.jit
def _circle(position, third, second, first):
    """Cosine and sine of integer positions times rates, given as the upper 32-bit words of rotations per token."""
    negative = position < 0
    size = tl.where(negative, -position, position)
    low, high = (size & 0xFFFFFFFF).to(tl.uint32), ((size >> 32) & 0xFFFFFFFF).to(tl.uint32)
    fraction = low * third + tl.umulhi(low, second) + high * second + tl.umulhi(high, first)
    fraction = tl.where(negative, (0 - fraction.to(tl.int32)).to(tl.uint32), fraction)
    shifted = fraction + 536870912
    quarter = (shifted >> 30).to(tl.int32)
    rest = (shifted & 1073741823).to(tl.int32) - 536870912
    tail = rest & 63
    head = (rest - tail).to(tl.float32)
    angle = head * _HIGH + (head * _LOW + tail.to(tl.float32) * _HIGH)
    z = angle * angle
    sine = 1.0 / 362880.0
    sine = sine * z - 1.0 / 5040.0
    sine = sine * z + 1.0 / 120.0
    sine = sine * z - 1.0 / 6.0
    sine = sine * z * angle + angle
    cosine = -1.0 / 3628800.0
    cosine = cosine * z + 1.0 / 40320.0
    cosine = cosine * z - 1.0 / 720.0
    cosine = cosine * z + 1.0 / 24.0
    cosine = cosine * z * z - 0.5 * z + 1.0
    swap = (quarter & 1) == 1
    along, up = tl.where(swap, sine, cosine), tl.where(swap, cosine, sine)
    back, down = (quarter == 1) | (quarter == 2), quarter >= 2
    return tl.where(back, -along, along), tl.where(down, -up, up)


@triton.jit
def _rotate_head(
    given, made, c, s, tokens, inside,
    HALVES: tl.constexpr, PAIRS: tl.constexpr, PAIRS_2: tl.constexpr, START: tl.constexpr, REST: tl.constexpr,
    REST_2: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Rotate one head of some tokens; each number is read and written once, contiguously for interleaved pairs."""
    if HALVES:
        pairs = tl.arange(0, PAIRS_2)[None, :]
        fits = inside[:, None] & (pairs < PAIRS)
        a = tl.load(given + START + pairs, mask=fits).to(tl.float32)
        b = tl.load(given + START + PAIRS + pairs, mask=fits).to(tl.float32)
        tl.store(made + START + pairs, a * c - b * s, mask=fits)
        tl.store(made + START + PAIRS + pairs, a * s + b * c, mask=fits)
    else:
        channels = tl.arange(0, 2 * PAIRS_2)[None, :]
        fits = inside[:, None] & (channels < 2 * PAIRS)
        both = tl.load(given + START + channels, mask=fits).to(tl.float32)
        a, b = tl.split(tl.reshape(both, (TOKENS, PAIRS_2, 2)))
        rotated = tl.reshape(tl.join(a * c - b * s, a * s + b * c), (TOKENS, 2 * PAIRS_2))
        tl.store(made + START + channels, rotated, mask=fits)
    if REST > 0:
        rest = tl.arange(0, REST_2)[None, :]
        kept = inside[:, None] & (rest < REST)
        place = tl.where(rest < START, rest, rest + 2 * PAIRS)
        tl.store(made + place, tl.load(given + place, mask=kept), mask=kept)


@triton.jit
def _kernel(
    q, k, out_q, out_k, positions, third, second, first, cosine, sine,
    seq, q_heads, k_heads, factor, sign,
    q_batch, q_head, q_seq, k_batch, k_head, k_seq,
    o_batch, o_head, o_seq, p_batch, p_head, p_seq,
    at_batch, at_seq, cos_batch, cos_seq,
    KNOWN: tl.constexpr, HALVES: tl.constexpr, PAIRS: tl.constexpr, PAIRS_2: tl.constexpr, START: tl.constexpr,
    REST: tl.constexpr, REST_2: tl.constexpr, TOKENS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(seq, TOKENS)
    batch = (tl.program_id(0) // blocks).to(tl.int64)
    tokens = (tl.program_id(0) % blocks) * TOKENS + tl.arange(0, TOKENS)
    pairs = tl.arange(0, PAIRS_2)
    inside = tokens < seq
    fits = inside[:, None] & (pairs < PAIRS)[None, :]
    if KNOWN:
        place = cosine + batch * cos_batch + tokens[:, None] * cos_seq + pairs[None, :]
        c = tl.load(place, mask=fits, other=0.0)
        s = tl.load(sine + batch * cos_batch + tokens[:, None] * cos_seq + pairs[None, :], mask=fits, other=0.0)
    else:
        at = tl.load(positions + batch * at_batch + tokens * at_seq, mask=inside, other=0).to(tl.int64)[:, None]
        w3 = tl.load(third + pairs, mask=pairs < PAIRS, other=0).to(tl.uint32)[None, :]
        w2 = tl.load(second + pairs, mask=pairs < PAIRS, other=0).to(tl.uint32)[None, :]
        w1 = tl.load(first + pairs, mask=pairs < PAIRS, other=0).to(tl.uint32)[None, :]
        c, s = _circle(at, w3, w2, w1)
        c = c * factor
        s = s * factor
    s = s * sign
    for step in range(HEADS):
        head = tl.program_id(1) * HEADS + step
        if head < q_heads:
            given = q + batch * q_batch + head.to(tl.int64) * q_head + tokens[:, None].to(tl.int64) * q_seq
            made = out_q + batch * o_batch + head.to(tl.int64) * o_head + tokens[:, None].to(tl.int64) * o_seq
            _rotate_head(given, made, c, s, tokens, inside, HALVES, PAIRS, PAIRS_2, START, REST, REST_2, TOKENS)
        elif head < q_heads + k_heads:
            mine = (head - q_heads).to(tl.int64)
            given = k + batch * k_batch + mine * k_head + tokens[:, None].to(tl.int64) * k_seq
            made = out_k + batch * p_batch + mine * p_head + tokens[:, None].to(tl.int64) * p_seq
            _rotate_head(given, made, c, s, tokens, inside, HALVES, PAIRS, PAIRS_2, START, REST, REST_2, TOKENS)


@triton.jit
def _make(positions, third, second, first, cosine, sine, factor, sign, PAIRS: tl.constexpr, PAIRS_2: tl.constexpr):
    """Cosine and sine of one position, bit for bit those that `_kernel` computes."""
    pairs = tl.arange(0, PAIRS_2)
    inside = pairs < PAIRS
    at = tl.load(positions + tl.program_id(0)).to(tl.int64)
    w3 = tl.load(third + pairs, mask=inside, other=0).to(tl.uint32)
    w2 = tl.load(second + pairs, mask=inside, other=0).to(tl.uint32)
    w1 = tl.load(first + pairs, mask=inside, other=0).to(tl.uint32)
    c, s = _circle(at, w3, w2, w1)
    place = tl.program_id(0).to(tl.int64) * PAIRS + pairs
    tl.store(cosine + place, c * factor, mask=inside)
    tl.store(sine + place, s * factor * sign, mask=inside)


def fits(spec: Rotary, *heads: torch.Tensor, known: bool = False) -> bool:
    """Whether the kernel supports these heads, with given cosine and sine (``known``) or with integer positions."""
    of_code = not spec.blocks and not spec.reordered and (known or (spec.axes is None and spec.xpos is None))
    # Tensor subclasses, such as one spread over several GPUs, are handled elsewhere.
    return of_code and all(
        type(x) in _TENSORS and x.dtype in _DTYPES and x.ndim in _AXES and x.stride(-1) == 1 and x.numel()
        for x in heads
    )


def cosine_sine(spec: Rotary, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of every pair at integer positions, [*positions, pairs]; negative sine for backward codes."""
    pairs, at = spec.rotated // 2, at.contiguous()
    cosine, sine = (torch.empty((*at.shape, pairs), dtype=torch.float32, device=at.device) for _ in range(2))
    words, sign = kept_limbs(spec.ladder, at.device), 1.0 if spec.direction == "forward" else -1.0
    if at.numel():
        with torch.cuda.device(at.device):
            kernel: Any = _make
            kernel[(at.numel(),)](
                at, *words, cosine, sine, float(spec.attention_factor), sign,
                PAIRS=pairs, PAIRS_2=triton.next_power_of_2(pairs), enable_fp_fusion=False,
            )  # fmt: skip
    return cosine, sine


class RotationByPositions(torch.autograd.Function):
    """`by_positions` with a backward, which rotates by the negative angle."""

    @staticmethod
    def forward(
        ctx: Any, spec: Rotary, at: torch.Tensor, axes: tuple[int, ...], back: bool, *heads: torch.Tensor
    ) -> Any:
        """Rotate."""
        ctx.save_for_backward(at)
        ctx.of = spec, axes, back
        return by_positions(spec, at, axes, heads, back=back)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Rotate back."""
        (at,) = ctx.saved_tensors
        spec, axes, back = ctx.of
        return (
            None,
            None,
            None,
            None,
            *RotationByPositions.apply(spec, at, axes, not back, *_channels_adjacent(gradients)),
        )


class RotationByCosSin(torch.autograd.Function):
    """`by_cos_sin` with a backward, which rotates by the negative sine; cosine and sine get no gradient."""

    @staticmethod
    def forward(
        ctx: Any, spec: Rotary, cosine: torch.Tensor, sine: torch.Tensor, axes: tuple[int, ...], *heads: torch.Tensor
    ) -> Any:
        """Rotate."""
        ctx.save_for_backward(cosine, sine)
        ctx.of = spec, axes
        return by_cos_sin(spec, cosine, sine, axes, heads)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Rotate back."""
        cosine, sine = ctx.saved_tensors
        spec, axes = ctx.of
        return (
            None,
            None,
            None,
            None,
            *RotationByCosSin.apply(spec, cosine, -sine, axes, *_channels_adjacent(gradients)),
        )


def _channels_adjacent(heads: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The heads with the channels of a token beside each other in memory, as the kernel reads them."""
    return [x if x.stride(-1) == 1 else x.contiguous() for x in heads]


def by_positions(
    spec: Rotary, at: torch.Tensor, axes: Sequence[int], heads: Sequence[torch.Tensor], *, back: bool = False
) -> tuple[torch.Tensor, ...]:
    """One or two arrays of heads rotated by integer positions on their device; ``axes`` are their sequence axes."""
    batched = at.ndim == 2
    forward = (spec.direction == "forward") != back
    of_tokens = (at.stride(0) if batched and at.shape[0] > 1 else 0, at.stride(-1))
    words = kept_limbs(spec.ladder, at.device)
    numbers = (float(spec.attention_factor), 1.0 if forward else -1.0)
    return _launched(spec, heads, axes, batched, (at, *words, None, None), numbers, of_tokens, known=False)


def by_cos_sin(
    spec: Rotary, cosine: torch.Tensor, sine: torch.Tensor, axes: Sequence[int], heads: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """One or two arrays of heads rotated by cosine and sine, [seq, pairs] or [batch, seq, pairs] each."""
    cosine, sine = cosine.contiguous(), sine.contiguous()
    batched = cosine.ndim == 3
    of_tokens = (
        cosine.stride(0) if batched and cosine.shape[0] > 1 else 0,
        cosine.stride(-2) if cosine.shape[-2] > 1 else 0,
    )
    given = (None, None, None, None, cosine, sine)
    return _launched(spec, heads, axes, batched, given, (1.0, 1.0), of_tokens, known=True)


def _launched(
    spec: Rotary,
    heads: Sequence[torch.Tensor],
    axes: Sequence[int],
    batched: bool,
    given: tuple[torch.Tensor | None, ...],
    numbers: tuple[float, float],
    of_tokens: tuple[int, int],
    *,
    known: bool,
) -> tuple[torch.Tensor, ...]:
    made = tuple(torch.empty_like(x) for x in heads)
    sizes = [_order(x.shape, axis, batched) for x, axis in zip(heads, axes, strict=True)]
    batch, q_heads, seq = sizes[0]
    strides = [_order(x.stride(), axis, batched, 0) for x, axis in zip((*heads, *made), (*axes, *axes), strict=True)]
    both = len(heads) == 2
    pairs, rest = spec.rotated // 2, spec.head_width - spec.rotated
    padded = triton.next_power_of_2(pairs)
    tokens = max(1, min(triton.next_power_of_2(seq), _NUMBERS // padded))
    k_heads = sizes[1][1] if both else 0
    grid = (batch * triton.cdiv(seq, tokens), triton.cdiv(q_heads + k_heads, _HEADS))
    arrays = (heads[0], heads[-1], made[0], made[-1])
    lengths = (*strides[0], *strides[1 if both else 0], *strides[2 if both else 1], *strides[-1])
    kernel: Any = _kernel
    with torch.cuda.device(heads[0].device):
        kernel[grid](
            *arrays, *given, seq, q_heads, k_heads, *numbers, *lengths, *of_tokens, *of_tokens,
            KNOWN=known, HALVES=spec.layout == "halves", PAIRS=pairs, PAIRS_2=padded, START=spec.start, REST=rest,
            REST_2=triton.next_power_of_2(max(rest, 1)), TOKENS=tokens, HEADS=_HEADS, enable_fp_fusion=False,
        )  # fmt: skip
    return made


def _order(numbers: Sequence[int], axis: int, batched: bool, alone: int = 1) -> tuple[int, int, int]:
    """Sizes or strides of batch, heads and tokens, where tokens are at ``axis`` of three or four axes."""
    *lead, of_tokens = *(number for at, number in enumerate(numbers[:-1]) if at != axis), numbers[axis]
    if len(lead) == 1:
        lead = [lead[0], alone] if batched else [alone, lead[0]]
    return lead[0], lead[1], of_tokens
