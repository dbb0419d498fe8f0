"""Gradients of an encoding in PyTorch, against differences of its outputs along drawn directions."""

import copy
from collections.abc import Mapping
from typing import Any

import torch

from clockhands.encodings.protocols import accepted
from clockhands.recognition.calling import Refused, error_text
from clockhands.testing.encodings._encoding_calls import DrawnTokens, EncodingCalls

_STEPS = {"float64": (1e-3, 1e-5, 1e-6), "float32": (2e-3,)}
_DIRECTIONS = 5


def gradient_errors(calls: EncodingCalls, tokens: DrawnTokens) -> dict[str, float | None]:
    """The relative error of each derivative along drawn directions; None for a number without a gradient.

    The derivative of ``sum(w * output)`` along a direction v is compared with ``(f(+h v) - f(-h v)) / 2h``. A large
    step may cross a kink, a small one is lost in the rounding of an encoding that computes in float32, so the best of
    three steps counts; and of five directions the median, because a difference across a jump (a rounded position) is
    no derivative.

    A copy is called, in float64 where it takes that, whose learned numbers are moved a little.

    Args:
        calls: An encoding of PyTorch.
        tokens: The tokens.

    Returns:
        By name: ``x``, ``q`` and ``k`` where they are used, and every learned number.
    """
    for dtype in ("float64", "float32"):
        encoding = copy.deepcopy(calls.encoding)
        if isinstance(encoding, torch.nn.Module):
            encoding = encoding.to(getattr(torch, dtype))
        try:
            return _errors(calls, encoding, tokens, dtype)
        except (RuntimeError, TypeError) as error:  # not every encoding takes float64
            refused = error
    raise Refused(f"it raised {error_text(refused)}")


@torch.no_grad()
def _draw_apart(learned: Mapping[str, torch.Tensor]) -> None:
    """Move learned numbers a little: where training begins they may stand on a kink, such as the end of a clamp."""
    generator = torch.Generator().manual_seed(8)
    for each in learned.values():
        each.add_(0.1 * torch.randn(each.shape, generator=generator).to(each))


def _errors(calls: EncodingCalls, encoding: Any, tokens: DrawnTokens, dtype: str) -> dict[str, float | None]:
    own = dict(encoding.named_parameters()) if isinstance(encoding, torch.nn.Module) else {}
    learned = {name: each for name, each in own.items() if each.requires_grad}
    _draw_apart(learned)
    given = calls.native(tokens, dtype)
    inputs = {name: given[name].requires_grad_() for name in ("x", "q", "k")}
    generator = torch.Generator().manual_seed(7)
    weights: list[torch.Tensor] = []

    def loss(values: dict[str, Any]) -> torch.Tensor:
        outputs = _outputs(calls, encoding, given | {name: values[name] for name in inputs})
        if not weights:
            weights.extend(torch.randn(each.shape, generator=generator, dtype=each.dtype) for each in outputs)
        return sum((w * each).double().sum() for w, each in zip(weights, outputs, strict=True))  # type: ignore[return-value]

    values = {**inputs, **learned}
    total = loss(values)
    found: dict[str, float | None] = {}
    grads = (
        torch.autograd.grad(total, list(values.values()), allow_unused=True)
        if total.requires_grad
        else [None] * len(values)
    )
    for (name, value), grad in zip(values.items(), grads, strict=True):
        errors = []
        for _ in range(_DIRECTIONS):
            way = torch.randn(value.shape, generator=generator, dtype=value.dtype)
            along = 0.0 if grad is None else float((grad.double() * way.double()).sum())
            each_step = []
            for step in _STEPS[dtype]:
                with torch.no_grad():
                    ends = [_moved(loss, values, name, sign * step * way) for sign in (1, -1)]
                slope = float(ends[0] - ends[1]) / (2 * step)
                scale = max(abs(slope), 1e-3 * float(total.detach().abs()), 1e-6)
                each_step.append(abs(along - slope) / scale)
            errors.append(min(each_step))
        middle = sorted(errors)[_DIRECTIONS // 2]
        if grad is None and (middle > 0.5 or name in learned):
            found[name] = None
        elif grad is not None:
            found[name] = middle if torch.isfinite(grad).all() else float("nan")
    return found


def _moved(loss: Any, values: dict[str, Any], name: str, by: torch.Tensor) -> torch.Tensor:
    """The loss with one value moved; a parameter is moved in place and put back."""
    value = values[name]
    if isinstance(value, torch.nn.Parameter):
        before = value.detach().clone()
        value.add_(by)
        try:
            return loss(values)
        finally:
            value.copy_(before)
    return loss({**values, name: value + by})


def _outputs(calls: EncodingCalls, encoding: Any, given: dict[str, Any]) -> list[torch.Tensor]:
    """All outputs of the encoding for tokens of PyTorch, as one list."""
    at = given["positions"]
    out: list[torch.Tensor] = []
    if "add" in calls.methods:
        out.append(encoding.add(given["x"], at))
    if "embed" in calls.methods:
        out.append(encoding.embed(at, given["x"].shape[-1]))
    if "rotate" in calls.methods:
        out += encoding.rotate(given["q"], given["k"], at, **accepted(encoding.rotate, x=given["x"]))
    if "bias" in calls.methods:
        more = {name: given[name] for name in ("q", "k", "x")}
        out.append(encoding.bias(at, at, given["q"].shape[1], **accepted(encoding.bias, **more)))
    if "scores" in calls.methods:
        out.append(encoding.scores(given["q"], given["k"], at, at, **accepted(encoding.scores, x=given["x"])))
    seen = torch.ones(len(at), len(at), dtype=torch.bool).tril()
    kept = [torch.where(seen, each, 0.0) if each.shape[-2:] == seen.shape and calls.causal else each for each in out]
    return [torch.nan_to_num(each, neginf=0.0) if each.isinf().any() else each for each in kept]
