"""What every measure says of every code: of those it does not apply to, of what is missing, and of all presets."""

import json
import math
from itertools import product

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.additive import (
    Binary,
    Counter,
    FourierFeatures,
    Learned,
    NoPosition,
    NormalizedCounter,
    SineOnly,
    Sinusoidal,
    WarpedPosition,
)
from clockhands.encodings.biases import Alibi, BiasCode, Buckets, Clipped, Decay, Fire, Kerple, LogWindow, Window
from clockhands.encodings.ladders import Explicit
from clockhands.encodings.mixtures import LayerMixture
from clockhands.encodings.presets import preset, presets
from clockhands.encodings.rotary import Rotary
from clockhands.measures import _measuring as measures
from clockhands.measures.subject import subject_of
from laws.bias_members import values_for
from memory_peaks import traced

DTYPES = ("float64", "float32", "float16", "bfloat16")
NONE, COUNTER, SINES, ALIBI, TURNS = NoPosition(8), Counter(4), Sinusoidal(8), Alibi(8), Rotary(8)
ROWS, FOURIER, WARPED, BUCKETS = Learned(8, rows=100), FourierFeatures(8, axes=2), WarpedPosition(8), Buckets(2)

# Of each measure, the codes that have nothing of what it measures, and words of the reason.
NOT_APPLICABLE = {
    "adding": [(TURNS, "rotates queries and keys"), (ALIBI, "adds nothing to the token: a bias is added to the scores"),
               (NONE, "Without a position encoding")],
    "base_bound": [(spec, "") for spec in (SINES, COUNTER, ROWS, ALIBI, NONE)],
    "critical_dimension": [(spec, "") for spec in (ALIBI, COUNTER, SineOnly(8), WARPED)],
    "told_apart": [(spec, "") for spec in (SINES, TURNS, NONE)],
    "edges": [(spec, "bucket") for spec in (ALIBI, Alibi(8, "key"), Decay(2), Kerple(2), Fire(2), SINES, TURNS, NONE)],
    "reach": [(spec, "no bias") for spec in (SINES, TURNS, NONE)],
    "cover": [(spec, "") for spec in (ALIBI, COUNTER, WARPED)],
    "kernel": [(ALIBI, "reach"), (NONE, "")],
    "precision": [(spec, "") for spec in (COUNTER, ROWS, NONE, BUCKETS)],
    "shift": [(NONE, "")],
    "smooth": [(ALIBI, "")],
    "spectrum": [(ALIBI, ""), (TURNS, "rotates queries and keys"), (NONE, "")],
    "turning": [(spec, "") for spec in (ALIBI, COUNTER, ROWS, NONE)],
    "unique": [(ALIBI, "told_apart")],
}  # fmt: skip

# What is missing or would take too long: measure, code, length, words of the reason, and dtype.
NOT_COMPUTED = [
    *((name, ROWS, 100, "values=") for name in ("adding", "kernel", "shift", "spectrum", "bounded")),
    *((name, preset("bert"), 16, "values=") for name in ("smooth", "unique")),
    *((name, FOURIER, 100, "values=") for name in ("turning", "unique", "longer_texts", "precision")),
    *(("reach", spec, 2048, "values=") for spec in (BUCKETS, Kerple(2), Fire(2), Window(2, 3, 3), LogWindow(2, 3, 3),
                                                    Clipped(2))),
    *(("told_apart", spec, 2048, f"of {name} are trained: pass them to clockhands.properties as values=")
      for spec, name in ((Kerple(2), "KERPLE"), (Fire(2), "FIRE"), (LogWindow(2, 3, 3), "the window"))),
    ("precision", Kerple(2), 64, "values="), ("longer_texts", Fire(2, hidden=4), 64, "values="),
    ("precision", WARPED, 64, ""), ("precision", Alibi(64), 2**20, ""),
    ("kernel", SINES, 1, ""), ("shift", SINES, 1, ""), ("spectrum", SINES, 1, ""),
    ("shift", Sinusoidal(64), 1 << 63, ""), ("spectrum", COUNTER, 1 << 20, ""),
    ("spectrum", Sinusoidal(4096), 1 << 20, "shorter"), ("told_apart", ALIBI, 2**63, "use a shorter length"),
    ("smooth", COUNTER, 2**40, "use at most 67,108,864 tokens"),
    ("unique", COUNTER, 2**40, "use at most 536,870,912 tokens"),
    ("adding", COUNTER, 70_000, "float16", "float16"), ("shift", Sinusoidal(8, scale=1e6), 30, "float16", "float16"),
    ("told_apart", Alibi(8, "key"), 200_000, "is too large for float16", "float16"),
]  # fmt: skip


def test_a_measure_says_where_it_makes_no_sense(cases):
    for name, rows in NOT_APPLICABLE.items():
        for spec, words in rows:
            with cases(name, spec):
                found = getattr(measures, name)(subject_of(spec, 64, "float32", None))
                assert (found.state, found.holds, dict(found.numbers)) == ("not applicable", None, {})
                assert words in found.says
                assert found.says.endswith(".")
    for name in ("base_bound", "cover"):  # one token is at no distance from another
        with cases(name, "one token"):
            assert getattr(measures, name)(subject_of(TURNS, 1, "float32", None)).state == "not applicable"


def test_a_measure_says_what_it_lacks_or_what_takes_too_long(cases):
    for name, spec, length, words, *dtype in NOT_COMPUTED:
        with cases(name, spec, length):
            found = getattr(measures, name)(subject_of(spec, length, *(dtype or ["float32"]), None))
            assert found.state == "not computed"
            assert words in found.says
    with cases("numbers that do not fit"):
        table = np.full((9, 1), 1e6)
        found = measures.told_apart(subject_of(Window(1, 2, 2), 4, "float16", table))
        assert "does not fit float16" in found.says
    with cases("FIRE over 2**40 tokens"):
        assert measures.reach(subject_of(Fire(8), 2**40, "float32", values_for(Fire(8)))).state == "not computed"


def told(name, spec, length, dtype, values=None):
    """What one measure says, after what every answer must be."""
    found = getattr(measures, name)(subject_of(spec, length, dtype, values))
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()
    assert found.says.endswith(".")
    assert 0 < len(found.brief) <= 40, found.brief
    return found


@pytest.mark.parametrize("some", [8, pytest.param(10**6, marks=pytest.mark.slow)], ids=["some", "all"])
def test_something_is_said_of_every_preset(cases, draw, some):
    """At short and long lengths and in every dtype, in few words and plain JSON."""
    specs = {each.name: each.spec for each in presets() if not isinstance(each.spec, LayerMixture)}
    naive = (NormalizedCounter(64, 64), Binary(16), Sinusoidal(2), WarpedPosition(64, warp="log"))
    specs |= {str(spec): spec for spec in naive}
    long = [(name, 512, dtype) for name in draw(specs, some) for dtype in draw(DTYPES, 1)]
    short = [(name, length, DTYPES[(at + length) % 4]) for at, name in enumerate(specs) for length in (1, 2, 17)]
    for name, length, dtype in (*draw(short, 10 * some), *long):
        with cases(name, length, dtype):
            for measure in ("bounded", "unique", "smooth"):
                found = told(measure, specs[name], length, dtype)
                assert measure == "smooth" or found.state != "measured" or found.holds is not None
            for measure in ("shift", "kernel", "spectrum", "adding")[: 0 if length == 512 else 3 + (length == 17)]:
                told(measure, specs[name], length, dtype)


def test_something_is_said_of_every_preset_of_a_bias(cases):
    for each in presets():
        if not isinstance(spec := each.spec, BiasCode):
            continue
        for length, dtype in ((1, "bfloat16"), (2, "float16"), (17, "float32"), (2048, "bfloat16")):
            for values in (None, values_for(spec)):
                with cases(each.name, length, dtype, values is None):
                    for measure in ("reach", "edges", "told_apart"):
                        found = told(measure, spec, length, dtype, values)
                        if length > 1 and (values is not None or not spec.learned):
                            rows = measure != "edges" or hasattr(spec, "rows")
                            assert found.state == ("measured" if rows else "not applicable")


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_learned_numbers_of_another_library_are_the_same_numbers(library):
    table = np.random.default_rng(3).standard_normal((32, 2)).astype(np.float32)
    if library == "torch":
        torch = pytest.importorskip("torch")
        given = torch.nn.Parameter(torch.from_numpy(table.copy()))
    else:
        given = pytest.importorskip("jax.numpy").asarray(table)
    assert ch.properties(BUCKETS, 64, values=given).reach == ch.properties(BUCKETS, 64, values=table).reach
    assert ch.properties(BUCKETS, 64, "bfloat16", values=given).told_apart.holds is False
    with pytest.raises(TypeError, match="must be a dict"):
        ch.properties(Kerple(2), 64, values=given)


SLOWEST = 5e-324  # the smallest number above 0: a turn takes more tokens than a float64 can count
LADDERS = {
    "all as slow as can be": (SLOWEST,) * 4,
    "slow beside usual ones": (1.0, 1e-310, 0.0, SLOWEST),
    "fast": (1e18, 1e17, 1.0, 2.0),
    "still": (0.0,) * 4,
}


def test_rates_at_the_ends_of_what_a_number_can_be_have_every_property(cases):
    for (name, rates), length in product(LADDERS.items(), (1, 2, 17, 512)):
        for spec in (Rotary(head_width=8, spacing=Explicit(rates)), Sinusoidal(8, spacing=Explicit(rates))):
            for dtype in ("float32", "bfloat16"):
                with cases(name, length, dtype):
                    for _, each in ch.properties(spec, length, dtype):
                        json.dumps(each.to_dict(), allow_nan=False)
    found = ch.properties(Rotary(head_width=8, spacing=Explicit(LADDERS["slow beside usual ones"])), 512)
    assert found.turning.numbers["slowest_wavelength"] is None
    assert "needs more than 1e308 tokens" in found.turning.says
    assert found.cover.numbers["longest_wavelength"] == 2 * math.pi  # of the pair that turns by 1 rad a token


def test_what_is_changed_in_a_report_changes_no_other(cases):
    for spec, values in ((Rotary(16), None), (Sinusoidal(16), None), (Alibi(4), None), (BUCKETS, values_for(BUCKETS))):
        with cases(spec):
            before = str(ch.properties(spec, 64, values=values).to_dict())
            changed = [
                figure.clear()
                for _, each in ch.properties(spec, 64, values=values)
                for figure in each.numbers.values()
                if isinstance(figure, list) and figure
            ]
            assert changed, "there was something to change"
            assert str(ch.properties(spec, 64, values=values).to_dict()) == before


def test_learned_numbers_that_are_none_are_refused(cases):
    """Whoever made them, and before anything is measured."""
    rows = np.random.default_rng(0).normal(size=(10, 4))
    assert ch.properties(Learned(4, rows=10), 10, values=rows).unique.holds
    for bad in (np.nan, np.inf, -np.inf):
        rows[3, 1] = rows[7, 0] = bad
        sentence = rf"`values` must be finite, got {bad} at \[3, 1\], the first of 2"
        for given, dtype in product((rows, rows.astype(np.float32), rows.tolist()), ("float64", "float16")):
            with cases(bad, type(given)), pytest.raises(ch.errors.InvalidValue, match=sentence):
                ch.properties(Learned(4, rows=10), 10, dtype, values=given)
        for spec in (BUCKETS, Clipped(2, 8)):
            ((name, shape),) = spec.shapes.items()
            numbers = np.zeros(shape)
            assert ch.properties(spec, 16, values=numbers).shift.holds
            numbers[2, 1] = bad
            sentence = rf"`{name}` must be finite, got {bad} at \[2, 1\], the first of 1"
            with cases(bad, spec), pytest.raises(ch.errors.InvalidValue, match=sentence):
                ch.properties(spec, 16, values=numbers)


def test_learned_numbers_are_looked_at_in_blocks_and_named_by_their_place_in_all():
    rows = np.zeros((3 * 2**12, 2**9), np.float16)
    with traced() as peak:
        subject_of(Learned(2**9, rows=len(rows)), 8, "float32", rows)
        assert peak() < 3 * rows.nbytes, "as float64 it takes four times its size"
    rows[-1, 3] = np.nan
    with pytest.raises(ch.errors.InvalidValue, match=r"got nan at \[12287, 3\], the first of 1"):
        subject_of(Learned(2**9, rows=len(rows)), 8, "float32", rows)


def test_a_tensor_of_a_model_in_training_is_looked_at_too():
    torch = pytest.importorskip("torch")
    rows = torch.full((10, 4), float("nan"), dtype=torch.bfloat16, requires_grad=True)
    with pytest.raises(ch.errors.InvalidValue, match=r"got nan at \[0, 0\], the first of 40"):
        ch.properties(Learned(4, rows=10), 10, values=rows)


def test_learned_numbers_of_another_shape_are_refused():
    with pytest.raises(ch.errors.InvalidValue, match=r"must be of shape \[32, 2\], got \[2, 32\]"):
        ch.properties(BUCKETS, 8, values=np.zeros((2, 32)))
    with pytest.raises(ch.errors.InvalidValue, match="takes no values"):
        ch.properties(Alibi(2), 8, values=np.zeros(2))
    with pytest.raises(ch.errors.InvalidValue, match="must be finite and above 0"):
        ch.properties(Kerple(1), 8, values={"p": np.zeros(1), "a": np.ones(1)})
