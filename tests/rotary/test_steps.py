"""Decoding in PyTorch: a layer that repeats an earlier call is rotated without checks, and gives the same numbers."""

import copy
import gc
import pickle
import weakref
from functools import cache
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.rotary import XPos, chunked, cos_sin, rotate, rotate_both, rotating
from clockhands.errors import ClockhandsError
from late import Late
from oracles.rows import every

torch = Late("torch")

CASES = {
    "halves": ch.Rotary(8),
    "interleaved": ch.Rotary(8, layout="interleaved"),
    "first channels": ch.Rotary(8, rotated=4),
    "last channels, interleaved": ch.Rotary(8, layout="interleaved", rotated=4, part="last", direction="backward"),
    "scaled": ch.Rotary(8, scaling=ch.scaling.Yarn(factor=8.0, original=64)),
    "xpos": ch.Rotary(8, xpos=XPos()),
    "axes": ch.Rotary(8, axes=chunked([2, 2])),
    "blocks": ch.Rotary(8, axes=chunked([2, 2]), blocks=(2, 2)),
    "odd width": ch.Rotary(7, rotated=4),
}
PLACES = np.array([[100, 7], [3, 2**40]])


def heads(width: int, dtype: str = "float32") -> Any:
    return torch.randn(2, 3, 2, width, generator=torch.Generator().manual_seed(4)).to(getattr(torch, dtype))


@cache
def fixed() -> Any:
    return torch.tensor(PLACES)


def at(spec: ch.Rotary) -> Any:
    return torch.tensor(PLACES if spec.axes is None else np.stack((PLACES, PLACES + 5), axis=-1))


@pytest.fixture
def unchecked(monkeypatch):
    """From the call on, whoever looks at heads once more fails."""

    def begin() -> None:
        def checked(*_given):
            raise AssertionError("heads were checked again")

        monkeypatch.setattr(rotating, "heads_of", checked)

    return begin


@every("dtype", ["float32", "float64", "bfloat16"])
@every("case", CASES)
def test_a_step_gives_the_numbers_of_the_long_way(case: str, dtype: str):
    spec, x = CASES[case], heads(CASES[case].head_width, dtype)
    role = None if spec.xpos is None else "query"
    places = at(spec) if role is None else at(spec) % 300
    # Where a derivative is wanted, no step is taken.
    expected = rotate(x.clone().requires_grad_(), spec, places, role=role).detach()
    pair = cos_sin(spec, places, like=x, role=role)
    for _ in range(2):
        assert torch.equal(rotate(x, spec, places, role=role), expected)
        assert torch.equal(rotate(x, spec, role=role, cos_sin=pair), expected)


@pytest.mark.parametrize("case", ["halves", "interleaved", "first channels", "scaled"])
def test_later_layers_check_nothing_again(case: str, unchecked):
    spec = CASES[case]
    equal = ch.Rotary(
        8, layout=spec.layout, rotated=spec.rotated, part=spec.part, direction=spec.direction, scaling=spec.scaling
    )
    queries, keys = heads(8), heads(8)[:, :1].contiguous()
    pair = cos_sin(spec, fixed(), like=queries)
    expected = rotate_both(queries, keys, spec, fixed())
    rotate_both(queries, keys, spec, cos_sin=pair)
    unchecked()
    for again in (
        rotate_both(queries, keys, spec, fixed()),
        rotate_both(queries, keys, equal, fixed().clone()),
        rotate_both(queries, keys, spec, cos_sin=pair),
        rotate_both(queries, keys, equal, cos_sin=(pair, pair)),
        (rotate(queries, spec, fixed()), rotate(keys, spec, cos_sin=pair)),
    ):
        assert all(map(torch.equal, again, expected))


def test_nor_where_nobody_gives_positions(unchecked):
    spec, queries = ch.Rotary(8), heads(8)
    expected = rotate_both(queries, queries, spec)
    unchecked()
    assert torch.equal(rotate(queries, ch.Rotary(8)), expected[0])


def test_positions_that_change_in_place_are_seen():
    spec, x, places = ch.Rotary(8), heads(8), fixed().clone()
    for _ in range(3):
        rotated = rotate(x, spec, places)
        assert torch.equal(rotated, rotate(x, ch.Rotary(8), places.numpy()))
        places += 1


def test_other_arguments_are_checked_after_a_step():
    spec, x = ch.Rotary(8), heads(8)
    pair = cos_sin(spec, fixed(), like=x)
    rotate(x, spec)
    rotate(x, spec, fixed())
    rotate(x, spec, cos_sin=pair)
    for wrong in (
        lambda: rotate(x, spec, fixed(), cos_sin=pair),
        lambda: rotate(x, spec, fixed(), role="query"),
        lambda: rotate(x, spec, fixed()[:1, :1]),
        lambda: rotate(x, spec, fixed().bool()),
        lambda: rotate(x, spec, fixed(), seq_axis=True),
        lambda: rotate(x, spec, fixed(), seq_axis=9),
        lambda: rotate(x, spec, seq_axis=9),
        lambda: rotate(x, ch.Rotary(8, base=5.0), cos_sin=pair),
        lambda: rotate(x.to(torch.int64), spec, fixed()),
        lambda: rotate_both(x, x[:, :, :1], spec, fixed()),
        lambda: rotate_both(x, x, spec, fixed(), cos_sin=pair),
        lambda: rotate_both(x, x, spec, cos_sin=(pair, pair, pair)),
        lambda: rotate_both(x, x, spec, cos_sin=(pair, None)),
        lambda: rotate_both(x, x, spec, cos_sin=(None, None)),
        lambda: rotate(x, spec, fixed(), role=[]),
        lambda: rotate(x, spec, torch.complex(fixed().double(), fixed().double()).conj()),
        lambda: rotate_both(x, x, None, fixed()),
    ):
        with pytest.raises(ClockhandsError):
            wrong()


def test_derivatives_and_maps_take_no_step():
    spec, x = ch.Rotary(8), heads(8)
    expected = rotate(x, spec)
    wanted = x.clone().requires_grad_()
    rotate(wanted, spec).sum().backward()
    assert wanted.grad is not None
    assert torch.allclose(torch.func.grad(lambda y: rotate(y, spec).sum())(x), wanted.grad)
    assert torch.equal(torch.vmap(lambda y: rotate(y, spec))(x), expected)
    _, tangent = torch.func.jvp(lambda y: rotate(y, spec), (x,), (x,))
    assert torch.equal(tangent, expected)


def test_heads_that_lie_otherwise_in_memory_are_rotated_alike():
    spec = ch.Rotary(8, layout="interleaved")
    x = heads(8)
    expected = rotate(x, spec, fixed())
    apart = x.transpose(1, 2).contiguous().transpose(1, 2)
    shifted = torch.cat((torch.zeros(1), x.flatten()))[1:].view(x.shape)
    for each in (apart, shifted):
        rotated = rotate(each, spec, fixed())
        assert (rotated - expected).abs().max() <= 2.0**-22 * x.abs().max()
        assert rotated.is_contiguous()


def test_what_is_remembered_goes_with_the_specs():
    spec, x = ch.Rotary(8, base=12345.0), heads(8)
    rotate(x, spec, fixed())
    gone = weakref.ref(spec)
    del spec
    gc.collect()
    assert gone() is None


def test_a_pair_is_pickled_after_its_use():
    spec, x = ch.Rotary(8), heads(8)
    pair = cos_sin(spec, fixed(), like=x)
    rotated = rotate(x, spec, cos_sin=pair)
    for same in (pickle.loads(pickle.dumps(pair)), copy.deepcopy(pair)):
        assert torch.equal(rotate(x, spec, cos_sin=same), rotated)


def test_a_scaling_that_was_changed_between_two_specs_is_seen():
    class Changing:
        factor = 2.0

        def __call__(self, ladder, length):
            return ch.scaling.Linear(factor=self.factor)(ladder, length)

    x, scaling = heads(8), Changing()
    first = ch.Rotary(8, scaling=scaling)
    rotate(x, first, fixed())
    scaling.factor = 8.0
    second = ch.Rotary(8, scaling=scaling)
    assert torch.equal(
        rotate(x, second, fixed()), rotate(x, ch.Rotary(8, scaling=ch.scaling.Linear(factor=8.0)), fixed())
    )
