"""Scales of attention scores by position: against real numbers, in every library, and where they are refused."""

import copy
import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

import clockhands as ch
from clockhands.cli import main
from clockhands.encodings import specs
from clockhands.encodings.scores import BOUND, TRACED_BOUND, ConstantScale, FloorLogScale, LogScale, score_scale
from clockhands.errors import InvalidType, InvalidValue, TooLarge
from late import Late
from oracles import (
    real_numbers,  # noqa: F401 - sets the digits of mpmath
    sentences,
)
from oracles.rows import every

jax, torch = Late("jax"), Late("torch")

LLAMA4 = FloorLogScale(8192, 0.1, first=1)
MINISTRAL = FloorLogScale(16384, 0.1)
QWEN = LogScale(8192)
NO_ENCODING: Any = LLAMA4
ROTARY: Any = ch.Rotary(8)
HALF: Any = 8192.5
EACH = (LLAMA4, MINISTRAL, FloorLogScale(8192, 0.1, factor=1.874), QWEN, LogScale(512, first=0), ConstantScale(1.874))

WHOLE = st.integers(0, 2**63) | st.integers(0, 2**20) | st.integers(2**53 - 4, 2**53 + 4)
STEPPED = st.builds(
    FloorLogScale, st.integers(1, 2**40) | st.integers(1, 100), st.floats(0, 1e6), st.integers(0, 1), st.floats(0.1, 10)
)
ANY = (
    STEPPED
    | st.builds(LogScale, st.integers(2, 2**40), st.integers(0, 1))
    | st.builds(ConstantScale, st.floats(0.1, 9))
)


def exact(spec, position):
    """The formula in real numbers."""
    if isinstance(spec, ConstantScale):
        return mpf(spec.factor)
    if isinstance(spec, LogScale):
        counted = mpf(position) + spec.first
        return max(mpf(1), mp.log(counted) / mp.log(spec.original)) if counted > 0 else mpf(1)
    steps = mp.floor((mpf(position) + spec.first) / spec.original)
    return mpf(spec.factor) * (1 + mpf(spec.beta) * mp.log(1 + steps))


def off(spec, positions, numbers):
    """The largest error, in parts of the real number."""
    real = [exact(spec, position) for position in positions]
    return max(float(abs(mpf(float(number)) - each) / each) for number, each in zip(numbers, real, strict=True))


@given(ANY, st.lists(WHOLE | st.floats(0, 2.0**60), min_size=1, max_size=8))
@settings(max_examples=60)
def test_it_is_the_real_number_at_every_position(spec, positions):
    assert off(spec, positions, score_scale(spec, positions)) <= BOUND


@given(STEPPED, st.integers(1, 2**22))
@settings(max_examples=40)
def test_steps_are_where_the_formula_has_them(spec, times):
    step = times * spec.original - spec.first
    positions = [step - 1, step, step + spec.original - 1] if step else [step]
    assert off(spec, positions, score_scale(spec, positions)) <= BOUND
    if spec.beta > 1e-6 and step and times < 1000:
        before, at, last = score_scale(spec, positions)
        assert before < at == last


def test_the_worst_roundings_of_other_code_are_not_made():
    # In float32 a quotient just below a multiple is rounded up to it, and a position past 2**24 is another one.
    positions = [2**24 * 8192 - 2, 2**24 * 8192 - 1, 2**53 - 1, 2**53, 2**53 + 8191]
    assert off(LLAMA4, positions, score_scale(LLAMA4, positions)) <= BOUND
    naive = np.float32(1) + np.float32(0.1) * np.log1p(np.floor((np.array(positions, np.float32) + 1) / 8192))
    assert off(LLAMA4, positions, naive) > BOUND, "this test must be able to fail"


def test_the_logarithm_of_numpy_is_as_good_as_the_bound_supposes():
    rng = np.random.default_rng(0)
    numbers = np.concatenate([np.exp(rng.uniform(0.6, 44, 20_000)), 1 + np.arange(1.0, 2000), [2.0**53, 2.0**63]])
    real = [mp.log(mpf(float(number))) for number in numbers]
    made = np.log(numbers)
    units = [abs(mpf(float(each)) - right) / np.spacing(float(each)) for each, right in zip(made, real, strict=True)]
    assert max(units) <= 1


@every("spec", EACH)
def test_where_it_begins_to_grow(spec):
    if spec.grows_from is None:
        assert len(set(score_scale(spec, [0, 10**6, 10**18]).tolist())) == 1
        return
    first, before, after = score_scale(spec, [0, spec.grows_from - 1, spec.grows_from])
    assert first == before < after
    assert FloorLogScale(8192, 0.0).grows_from is None


@every("spec", EACH)
def test_positions_come_in_any_shape(spec):
    grid = score_scale(spec, [[0, 8191, 16384], [3, 2, 2**40]])
    assert grid.shape == (2, 3)
    assert grid.dtype == np.float64
    assert np.array_equal(grid[1], score_scale(spec, np.array([3, 2, 2**40])))
    assert np.array_equal(score_scale(spec, 5), score_scale(spec, range(5)))
    assert np.array_equal(score_scale(spec, range(8000, 9000))[100:], score_scale(spec, range(8100, 9000)))
    assert score_scale(spec, []).shape == (0,)


@every("kind", ["float64", "float32", "bfloat16"])
def test_in_torch(kind):
    like = torch.ones(2, 3, 8, dtype=getattr(torch, kind))
    for spec in EACH:
        positions = torch.tensor([0, 8191, 2**40])
        made = score_scale(spec, positions, like=like)
        assert made.dtype == (torch.float64 if kind == "float64" else torch.float32)
        right = score_scale(spec, positions.tolist())
        assert np.array_equal(made.numpy(), right.astype(made.numpy().dtype))
        assert (like.double() * made[..., None]).shape == like.shape


def test_in_jax():
    for spec in EACH:
        made = score_scale(spec, [0, 8191, 2**40], like=jax.numpy.ones(3))
        assert isinstance(made, jax.Array)
        assert np.array_equal(np.asarray(made), score_scale(spec, [0, 8191, 2**40]).astype(np.float32))


INSIDE = [0, 1, 511, 512, 8190, 8191, 8192, 24576, 2**24 * 100 - 1, 2**31 - 2, 2**31 - 1]


KINDS = (LLAMA4, QWEN, EACH[-1])


def test_inside_a_trace_of_jax():
    def scales(at):
        return jax.numpy.stack([score_scale(spec, at) for spec in KINDS])

    at = jax.numpy.asarray(INSIDE, dtype=jax.numpy.int32)
    for made in (jax.jit(scales)(at), jax.vmap(scales)(at).T):
        assert made.dtype == np.float32
        assert all(off(spec, INSIDE, row) <= TRACED_BOUND for spec, row in zip(KINDS, np.asarray(made), strict=True))
    before = np.array([score_scale(spec, [0]) for spec in KINDS], np.float32)
    assert np.array_equal(np.asarray(jax.jit(scales)(jax.numpy.asarray([-1]))), before)
    for spec in KINDS:
        with pytest.raises(InvalidType, match="Positions inside a trace must be integers, got float32"):
            jax.jit(lambda p, spec=spec: score_scale(spec, p))(jax.numpy.ones(2))


def test_inside_a_graph_of_torch():
    def scaled(q, positions):
        return torch.stack([q * score_scale(spec, positions, like=q)[..., None] for spec in KINDS])

    q = torch.ones(len(INSIDE), 4)
    compiled = torch.compile(lambda q, at: (scaled(q, at), scaled(q, len(q))), fullgraph=True, backend="eager")
    made, counted = compiled(q, torch.tensor(INSIDE))
    assert all(off(spec, INSIDE, row[:, 0].tolist()) <= TRACED_BOUND for spec, row in zip(KINDS, made, strict=True))
    assert torch.allclose(counted, scaled(q, range(len(INSIDE))))


# --- a value ------------------------------------------------------------------------------------------------------


@given(ANY)
def test_a_scale_is_a_value_that_json_holds(spec):
    for back in (
        ch.from_json(ch.to_json(spec)), specs.from_dict(specs.to_dict(spec)), pickle.loads(pickle.dumps(spec)),
        copy.deepcopy(spec), specs.with_fields(spec),
    ):  # fmt: skip
        assert back == spec
        assert hash(back) == hash(spec)
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.factor = 2.0
    assert ch.describe(spec) == f"scores multiplied by {spec.formula}" + " at position p" * (
        spec.grows_from is not None
    )


# --- refusals -----------------------------------------------------------------------------------------------------


def test_what_is_refused(cases):
    sentences.hold("score_scales", cases)


def test_positions_are_of_the_library_of_like():
    with pytest.raises(InvalidType, match="`positions` are an array of jax, but `like` is an array of torch"):
        score_scale(LLAMA4, jax.numpy.arange(3), like=torch.ones(3))
    with pytest.raises(InvalidValue, match="`positions` are on the meta device"):
        score_scale(LLAMA4, torch.arange(3, device="meta"), like=torch.ones(3))
    shape = score_scale(LLAMA4, torch.arange(3, device="meta"), like=torch.ones(3, device="meta")).shape
    assert tuple(shape) == (3,)


def test_originals_of_64_bits_in_a_trace_and_what_would_not_fit_are_refused():
    with pytest.raises(InvalidValue, match="below 2\\*\\*31 inside a trace"):
        jax.jit(lambda p: score_scale(FloorLogScale(2**31), p))(jax.numpy.arange(3))
    with pytest.raises(TooLarge, match="Score scales"):
        score_scale(LLAMA4, 2**60)


@pytest.mark.parametrize("command", ["audit", "properties", "table", "explore"])
def test_commands_refuse_its_file(command, tmp_path):
    file = tmp_path / "scale.json"
    file.write_text(ch.to_json(LLAMA4), encoding="utf-8")
    done = CliRunner().invoke(main, [command, str(file)])
    assert done.exit_code == 2, done.output
    words = (
        "FloorLogScale" if command == "table" else "is the spec of a scale of attention scores, which is no position"
    )
    assert words in " ".join(done.output.split())
