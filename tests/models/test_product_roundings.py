"""Products of matrices, rounded otherwise: by how much, and nothing else."""

import pytest

from late import Late

torch = Late("torch")


def moved(one, other, seed=0):
    from clockhands.models.product_roundings import other_roundings

    with other_roundings(seed):
        return one @ other


@pytest.mark.parametrize(("dtype", "unit"), [("float32", 2.0**-24), ("float64", 2.0**-53)])
def test_a_product_is_moved_as_far_as_another_order_of_its_sums_would(dtype, unit):
    drawn, terms = torch.Generator().manual_seed(0), 512
    one, other = (torch.randn(128, terms, generator=drawn).to(getattr(torch, dtype)) for _ in range(2))
    plain = one @ other.T
    off = (moved(one, other.T) - plain).double()
    wanted = unit * (terms / 6) ** 0.5 * plain.double().square().mean().sqrt()
    assert 0.9 < off.square().mean().sqrt() / wanted < 1.1


def test_the_one_rounding_of_a_coarse_dtype_is_drawn_too():
    drawn = torch.Generator().manual_seed(0)
    one, other = (torch.randn(64, 64, generator=drawn).to(torch.bfloat16) for _ in range(2))
    plain = one @ other.T
    off = (moved(one, other.T) - plain).float().abs()
    assert 0.2 < (off > 0).float().mean() < 0.8
    assert off.max() <= 2**-7 * plain.float().abs().max()


def test_a_seed_repeats_and_nothing_but_products_is_moved():
    from clockhands.models.product_roundings import other_roundings

    one, other = torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(moved(one, other, 1), moved(one, other, 1))
    assert not torch.equal(moved(one, other, 1), moved(one, other, 2))
    plain = (one + other).cumsum(-1).softmax(-1)
    with other_roundings(0):
        assert torch.equal((one + other).cumsum(-1).softmax(-1), plain)
        assert torch.equal(torch.zeros(8, 8) @ other, torch.zeros(8, 8))
        assert (torch.zeros(0, 8) @ other).shape == (0, 8)
