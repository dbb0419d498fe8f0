"""Attention against the same arithmetic in 50 digits, and by hand."""

import math

import mpmath
import numpy as np
import pytest

from clockhands.errors import InvalidValue
from clockhands.measures.order.attention import Layer, Rounded, attend, drawn_layers, exactly, mean, plus

WIDTH, HEADS, TOKENS, HIDDEN = 6, 2, 4, 5


def in_digits(x, layer, causal, bias, turn):
    """One layer in mpmath: the definition, loop by loop."""
    tokens, width = len(x), len(x[0])
    heads, head_width = layer.query.shape[0], layer.query.shape[2]
    real = np.vectorize(mpmath.mpf, otypes=[object])
    told = [[mpmath.mpf(0)] * width for _ in range(tokens)]
    for head in range(heads):
        q, k, v = (x @ real(weights[head]) for weights in (layer.query, layer.key, layer.value))
        if turn is not None:
            q, k = (np.array([real(turn[p]) @ row for p, row in enumerate(rows)]) for rows in (q, k))
        for p in range(tokens):
            seen = range(p + 1) if causal else range(tokens)
            scores = [(q[p] @ k[s]) / mpmath.sqrt(head_width) + mpmath.mpf(bias[head, p, s]) for s in seen]
            raised = [mpmath.exp(score) for score in scores]
            out = sum(weight * v[s] for weight, s in zip(raised, seen, strict=True)) / sum(raised)
            told[p] = told[p] + out @ real(layer.output[head])
    y = x + np.array(told)
    inner = y @ real(layer.up)
    return y + np.vectorize(lambda value: max(value, mpmath.mpf(0)), otypes=[object])(inner) @ real(layer.down)


def rotation(angle):
    turned = np.eye(WIDTH // HEADS)
    turned[:2, :2] = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    return turned


@pytest.fixture
def case():
    draw = np.random.default_rng(5)
    layers = drawn_layers(draw, 2, WIDTH, HEADS, HIDDEN)
    return layers, draw.standard_normal((TOKENS, WIDTH)), draw.standard_normal((HEADS, TOKENS, TOKENS))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_every_error_is_within_its_bound(case, causal, turned):
    layers, x, bias = case
    matrices = np.stack([rotation(0.7 * p) for p in range(TOKENS)]) if turned else None
    turn = None if matrices is None else lambda heads, _role: np.einsum("pij,...pj->...pi", matrices, heads)
    found, wrong = exactly(x), exactly(x)
    with mpmath.workdps(50):
        real = np.vectorize(mpmath.mpf, otypes=[object])(x)
        for layer in layers:
            real = in_digits(real, layer, causal, bias, matrices)
            found = attend(found, layer, causal=causal, bias=bias, rotation=turn)
            # A twin whose scores are off by one part in 10**7 must not pass.
            other = Layer(layer.query * (1 + 1e-7), layer.key, layer.value, layer.output, layer.up, layer.down)
            wrong = attend(wrong, other, causal=causal, bias=bias, rotation=turn)
            off, off_wrong = (
                np.array([float(mpmath.norm(list(real[p] - each.numbers[p]))) for p in range(TOKENS)])
                for each in (found, wrong)
            )
            assert (off <= found.error).all()
            assert found.error.max() < 1e-8, "a bound that is this large would tell nothing"
            assert off.max() > 0
            # The first token sees itself alone below a causal mask, so its scores do not matter.
            assert (off_wrong[causal:] > found.error[causal:]).all()


def test_sums_and_means_carry_their_errors():
    a = Rounded(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1e-3, 1e-4]))
    total, average = plus(a, exactly([[1.0, 0.0], [0.0, 0.0]])), mean(a)
    assert total.numbers.tolist() == [[2.0, 2.0], [3.0, 4.0]]
    assert total.error == pytest.approx([1e-3, 1e-4])
    assert average.numbers.tolist() == [[2.0, 3.0]]
    assert average.error == pytest.approx([5.5e-4])


def test_weights_are_drawn_as_models_start_out():
    layers = drawn_layers(np.random.default_rng(0), 1, 64, 4, 128)
    for name, inputs in {"query": 64, "key": 64, "value": 64, "output": 64, "up": 64, "down": 128}.items():
        weights = getattr(layers[0], name)
        # The variance of n numbers is off by sqrt(2 / n) as one standard deviation; five of them are allowed.
        assert weights.var() * inputs == pytest.approx(1, abs=5 * math.sqrt(2 / weights.size)), name


def test_a_width_that_heads_do_not_share_is_refused():
    with pytest.raises(InvalidValue, match="`width` must be a multiple of the 3 heads, got 8"):
        drawn_layers(np.random.default_rng(0), 1, 8, 3)
