"""torch.func: grad, vjp, jvp and vmap of functions that use positions from outside give what autograd gives."""

from collections.abc import Callable
from typing import Any

import pytest

import clockhands as ch
from clockhands.encodings.rotary import XPos
from late import Late

torch, held = Late("torch"), Late("clockhands.torch")


def at() -> Any:
    return torch.arange(5) * 7


CODES: dict[str, tuple[Callable[[], Callable[..., Any]], tuple[int, ...], Callable[[], Any]]] = {
    "rotary": (lambda: held.Rotary(ch.Rotary(8)), (2, 5, 8), at),
    "rotary with a batch": (
        lambda: held.Rotary(ch.Rotary(8, "interleaved")),
        (2, 5, 8),
        lambda: at()[None].expand(2, 5),
    ),
    "reordered": (lambda: held.Rotary(ch.Rotary(8, "interleaved", reordered=True)), (5, 8), at),
    "xpos": (lambda: lambda x, at: ch.rotate(x, ch.Rotary(8, xpos=XPos()), at, role="key"), (5, 8), at),
    "sinusoid": (lambda: held.Additive(ch.Sinusoidal(8)), (5, 8), at),
    "fractions": (lambda: held.Additive(ch.Sinusoidal(8)), (5, 8), lambda: at() / 2),
    "learned": (lambda: held.Additive(ch.Learned(8, rows=40)), (5, 8), at),
    "ALiBi": (lambda: held.Bias(ch.Alibi(heads=2)), (2, 5, 5), at),
    "buckets": (lambda: held.Bias(ch.Buckets(heads=2)), (2, 5, 5), at),
}


@pytest.mark.parametrize("name", CODES)
def test_positions_from_outside_of_a_transform_are_exact(name: str):
    """Bit for bit: inside, the numbers of the positions are known as they are outside."""
    make, shape, places = CODES[name]
    code, positions = make(), (places(),) * (2 if shape == (2, 5, 5) else 1)

    def loss(x: Any) -> Any:
        return code(x, *positions).sin().sum()

    x, direction, several = (torch.randn(size) for size in (shape, shape, (3, *shape)))
    leaf, leaves = x.clone().requires_grad_(), several.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf), leaf)
    (gradients,) = torch.autograd.grad(sum(loss(each) for each in leaves), leaves)
    func = torch.func
    assert torch.equal(func.grad(loss)(x), gradient)
    assert torch.equal(func.vjp(loss, x)[1](torch.tensor(1.0))[0], gradient)
    value, slope = func.jvp(loss, (x,), (direction,))
    assert torch.equal(value, loss(x))
    assert torch.allclose(slope, (gradient * direction).sum(), rtol=1e-5, atol=1e-5)
    assert torch.equal(func.vmap(func.grad(loss))(several), gradients)
    assert torch.equal(func.grad(lambda each: func.vmap(loss)(each).sum())(several), gradients)


def test_a_mask_that_was_made_inside_a_transform_is_not_kept():
    bias, scores = held.Bias(ch.Alibi(heads=3)), torch.randn(1, 3, 6, 6)
    torch.func.grad(lambda x: (x + bias.prepare(6, like=x, causal=False).mask).square().sum())(scores)
    kept = bias.prepare(6, like=scores, causal=False).mask
    assert not torch._C._functorch.is_functorch_wrapped_tensor(kept)
    assert bias.prepare(6, like=scores, causal=False).mask is kept
