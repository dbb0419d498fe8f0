"""The head that looks three tokens back: right wherever its docstring derives it, and wrong from where on."""

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.heads import margin, relative_head
from clockhands.encodings.ladders import Geometric
from clockhands.encodings.rotary import rotate
from clockhands.encodings.scaling import Yarn
from oracles import sentences
from oracles.rows import every

BACK = 3
WIDTHS = (16, 64, 512)
LENGTHS = (64, 512, 4_096)
BLOCK = 512


def heads(spec, length, *, back=BACK, start=0, backend=None, dtype="float32", temperature=1.0):
    """Queries and keys of the head in a sequence, as NumPy arrays of ``dtype``."""
    head = relative_head(spec, back, temperature)
    positions = range(start, start + length)
    given = (lambda x: x) if backend is None else (lambda x: backend.asarray(x, dtype))
    to_numpy = np.asarray if backend is None else backend.to_numpy
    if head.constant is None:
        tokens = np.zeros((length, spec.width), dtype)
        x = to_numpy(ch.add(given(tokens), spec, positions))
        return x @ head.query.T.astype(dtype), x @ head.key.T.astype(dtype)
    x = np.tile(head.constant, (length, 1)).astype(dtype)
    query, key = x @ head.query.T.astype(dtype), x @ head.key.T.astype(dtype)
    return tuple(to_numpy(rotate(given(each), spec, positions)) for each in (query, key))


def missed(queries, keys, back=BACK):
    """The tokens whose largest score, of all tokens before and after, is not that of the one ``back`` before."""
    found = []
    for begin in range(back, len(queries), BLOCK):
        picked = (queries[begin : begin + BLOCK] @ keys.T).argmax(axis=1)
        found.append(begin + np.flatnonzero(picked != np.arange(begin, begin + len(picked)) - back))
    return np.concatenate(found)


def neighbour(spec):
    """``sum_i (1 - cos(rate_i))``, what the docstring derives for the margin."""
    return float((1 - np.cos(np.array(spec.rates))).sum())


@every("length", LENGTHS)
@every("width", WIDTHS)
@every("code", [ch.Sinusoidal, ch.Rotary])
def test_the_token_three_back_is_picked_everywhere(code, width, length):
    spec = code(width)
    assert missed(*heads(spec, length)).size == 0
    assert margin(spec, length) == pytest.approx(neighbour(spec), rel=1e-12)


@every("code", [ch.Sinusoidal, ch.Rotary])
def test_it_is_picked_far_out_and_in_every_library(code, backend):
    for start in (0, 10**6, 10**12):
        assert missed(*heads(code(64), 256, start=start, backend=backend)).size == 0


@every("code", [ch.Sinusoidal, ch.Rotary])
def test_the_margin_is_the_one_that_scores_have(code):
    for width in (16, 64):
        spec = code(width)
        queries, keys = heads(spec, 512, dtype="float64")
        scores = (queries @ keys.T)[BACK:]
        right = scores[np.arange(len(scores)), np.arange(len(scores))].copy()
        scores[np.arange(len(scores)), np.arange(len(scores))] = -np.inf
        assert np.abs(right - width / 2).max() < 1e-12 * width
        assert (right - scores.max(axis=1)).min() == pytest.approx(margin(spec, 512), abs=1e-12 * width)


def test_what_is_attended_to_is_what_stood_there():
    """A softmax at the temperature of the docstring gives 0.999 of the weight to the right token."""
    length, left = 512, 1e-3
    for width in WIDTHS:
        spec = ch.Sinusoidal(width)
        cold = margin(spec, length) / np.log((length - 1) / left)
        queries, keys = heads(spec, length, dtype="float64", temperature=cold)
        scores = queries @ keys.T
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        right = weights[np.arange(BACK, length), np.arange(length - BACK)]
        assert right.min() >= 1 - left
        assert 1 - right.min() > left / 1000, "a much colder one would pass too"


def test_every_token_holds_a_one_in_the_first_dimension_of_each_pair():
    for layout, constant in (("halves", [1, 1, 0, 0, 0, 0]), ("interleaved", [1, 0, 1, 0, 0, 0])):
        assert relative_head(ch.Rotary(6, rotated=4, layout=layout), 1).constant.tolist() == constant


@every("back", [0, 1, 17, -2])
def test_it_looks_as_far_as_it_is_told(back):
    for spec in (ch.Sinusoidal(64), ch.Rotary(64)):
        queries, keys = heads(spec, 128, back=back)
        picked = (queries @ keys.T).argmax(axis=1)
        inside = slice(max(back, 0), 128 + min(back, 0))
        assert (picked[inside] == np.arange(128)[inside] - back).all()


@every(
    "spec",
    [
        ch.Sinusoidal(16, layout="halves", order="cos-sin"),
        ch.Sinusoidal(17, layout="halves", odd="zero"),
        ch.Sinusoidal(16, spacing=Geometric(span="closed")),
        ch.Rotary(16, layout="interleaved"),
        ch.Rotary(32, rotated=16),
        ch.Rotary(32, rotated=16, part="last", layout="interleaved"),
        ch.Rotary(16, direction="backward"),
        ch.Rotary(16, blocks=(4, 4)),
        ch.Rotary(16, scaling=Yarn(4.0, 4_096)),
    ],
)
def test_every_convention_has_the_head(spec):
    queries, keys = heads(spec, 256, dtype="float64")
    assert missed(queries, keys).size == 0
    # Scores are the kernel, whatever the code multiplies its channels by.
    distances = np.arange(256)[:, None] - BACK - np.arange(256)
    assert np.abs(queries @ keys.T - ch.kernel(spec, distances)).max() < 1e-12
    assert relative_head(spec, BACK).key.tolist() == np.eye(len(keys[0])).tolist()


# --- the derivation --------------------------------------------------------------------------------------------


@every("span", ["open", "closed"])
@every("base", [2.0, 10.0, 100.0, 10_000.0, 500_000.0])
def test_up_to_the_base_the_neighbour_decides(base, span):
    tried = 0
    for width in (2, 4, 6, 8, 12, 16, 18, 32, 64, 256, 512):
        steps = width // 2 - (span == "closed")
        if not steps or base ** (1 / steps) > 5:
            continue
        spec = ch.Sinusoidal(width, spacing=Geometric(base, span=span))
        length = min(int(base), 20_000)
        assert margin(spec, length) == pytest.approx(neighbour(spec), rel=1e-11)
        tried += 1
    assert tried >= 3


# --- from where on it fails ------------------------------------------------------------------------------------


def test_with_few_pairs_another_distance_decides():
    """Eight channels: rates 10 apart, and the fast pairs come round before the slow ones have moved."""
    for width, length, at in ((4, 64, 19), (6, 64, 6), (8, 64, 63), (10, 64, 6)):
        spec = ch.Sinusoidal(width)
        assert margin(spec, length) < neighbour(spec) - 1e-3
        assert margin(spec, length) == pytest.approx(float(np.diff(ch.kernel(spec, [at, 0]))[0]), rel=1e-9)
        assert margin(spec, at) > margin(spec, at + 1)
    assert margin(ch.Sinusoidal(12), 10_000) == pytest.approx(neighbour(ch.Sinusoidal(12)))
    # And the lengths end as well: twelve channels are overtaken beyond the base.
    assert margin(ch.Sinusoidal(12), 30_000) < 0.65 * neighbour(ch.Sinusoidal(12))


@every("code", [ch.Sinusoidal, ch.Rotary])
def test_one_pair_fails_in_float32_from_710_tokens_on(code):
    """710 tokens are 113 turns to within 6e-5: a margin of 2e-9, which float32 scores of size 1 do not hold."""
    spec = code(2)
    assert margin(spec, 710) > 3e-5
    assert margin(spec, 711) == pytest.approx((710 - 113 * 2 * np.pi) ** 2 / 2, rel=1e-3)
    assert missed(*heads(spec, 710)).size == 0
    assert missed(*heads(spec, 1_024)).size > 100
    assert missed(*heads(spec, 1_024, dtype="float64")).size == 0  # the numbers have the margin, float32 has not


def test_what_cannot_be_is_refused_in_words(cases):
    sentences.hold("relative_head", cases)
