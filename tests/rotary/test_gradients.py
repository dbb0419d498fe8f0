"""The backward of a rotation is the rotation back, in PyTorch and JAX, under every transformation of them."""

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.rotary import rotate
from late import Late
from laws.rotary_members import ROTARY_MEMBERS
from oracles.rows import every

jax, torch = Late("jax"), Late("torch")

SPECS = {row.name: row.spec for row in ROTARY_MEMBERS}


def places(spec, seq=3):
    shape = (seq,) if spec.axes is None else (seq, spec.number_of_axes)
    return np.random.default_rng(0).integers(-500, 500, shape)


def turn(spec, at):
    return lambda x: rotate(x, spec, at, role="key" if spec.xpos else None)


@every("name", SPECS)
def test_gradients_are_those_of_finite_differences(name):
    spec = SPECS[name]
    x = torch.randn(1, 2, spec.head_width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x.requires_grad_(True)
    apply = turn(spec, places(spec, 2))
    assert torch.autograd.gradcheck(apply, x)
    assert torch.autograd.gradgradcheck(apply, x)


def test_both_libraries_give_the_transposed_matrix(draw, cases):
    in_jax = draw(SPECS, 4)  # which compiles each
    for name, spec in SPECS.items():
        apply = turn(spec, places(spec))
        x, cotangent = np.random.default_rng(1).standard_normal((2, 3, spec.head_width)).astype(np.float32)
        # A linear map: its matrix from the unit vectors, token by token.
        basis = np.repeat(np.eye(spec.head_width)[:, None], 3, axis=1)
        matrix = apply(basis)
        wanted = np.einsum("itj,tj->ti", matrix, cotangent)
        allowed = 2.0**-20 * np.abs(matrix).max()
        tensor = torch.tensor(x, requires_grad=True)
        (gradient,) = torch.autograd.grad(apply(tensor), tensor, torch.tensor(cotangent))
        with cases(name):
            assert np.abs(gradient.numpy() - wanted).max() <= allowed
            if name in in_jax:
                _, back = jax.vjp(apply, x)
                assert np.abs(np.asarray(back(cotangent)[0]) - wanted).max() <= allowed


def test_mapping_over_a_batch_is_the_batch(draw, cases):
    in_jax = draw(SPECS, 4)
    for name, spec in SPECS.items():
        apply = turn(spec, places(spec))
        x = np.random.default_rng(1).standard_normal((4, 3, spec.head_width)).astype(np.float32)
        wanted = apply(x)
        allowed = 2.0**-22 * np.abs(wanted).max()
        held, vmap = torch.tensor(x), torch.func.vmap
        with cases(name):
            for mapped in (
                vmap(apply)(held),
                vmap(apply, in_dims=2)(held.permute(1, 2, 0).contiguous()),
                vmap(vmap(apply))(held[None])[0],
                *([jax.vmap(apply)(x)] if name in in_jax else []),
            ):
                assert np.abs(np.asarray(mapped) - wanted).max() <= allowed
            each = vmap(torch.func.grad(lambda q, apply=apply: (apply(q) ** 2).sum()))(held)
            tensor = held.clone().requires_grad_(True)
            (apply(tensor) ** 2).sum().backward()
            assert np.abs((each - tensor.grad).numpy()).max() <= 2.0**-19 * float(tensor.grad.abs().max())


@every("spec", [ch.Rotary(8), ch.Rotary(8, "interleaved", rotated=6, reordered=True)])
def test_forward_derivatives(spec):
    apply = turn(spec, places(spec))
    generator = torch.Generator().manual_seed(0)
    x, tangent = torch.randn(2, 3, 8, generator=generator)
    value, derivative = torch.func.jvp(apply, (x,), (tangent,))
    assert torch.equal(value, apply(x))
    assert torch.equal(derivative, apply(tangent))
    forward, backward = torch.func.jacfwd(apply)(x), torch.func.jacrev(apply)(x)
    assert (forward - backward).abs().max() <= 2.0**-22


def test_gradients_keep_the_dtype_of_the_heads():
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.ones(3, 8, dtype=dtype, requires_grad=True)
        rotate(x, ch.Rotary(8)).sum().backward()
        assert x.grad.dtype == dtype


@every(
    "spec",
    [
        ch.Rotary(8),
        ch.Rotary(8, "interleaved"),
        ch.Rotary(8, rotated=4, part="last"),
        ch.Rotary(8, "interleaved", reordered=True),
        ch.Rotary(8, "interleaved", reordered=True, rotated=4, part="last"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_batched_gradients(spec):
    """Many gradients at once, as `jacobian(vectorize=True)` and `is_grads_batched=True` ask for them."""
    x = torch.randn(2, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)

    def turn(x):
        return rotate(x, spec)

    wanted = torch.autograd.functional.jacobian(turn, x)
    for strategy in ("reverse-mode", "forward-mode"):
        assert torch.equal(torch.autograd.functional.jacobian(turn, x, vectorize=True, strategy=strategy), wanted)
    each = torch.eye(48, dtype=torch.float64).reshape(48, 2, 3, 8)
    (made,) = torch.autograd.grad(turn(x), x, each, is_grads_batched=True)
    assert torch.equal(made.reshape(wanted.shape), wanted)
    cubed = [
        torch.autograd.functional.hessian(lambda x: (turn(x) ** 3).sum(), x, vectorize=batched)
        for batched in (True, False)
    ]
    assert torch.allclose(*cubed, rtol=0, atol=1e-12)
