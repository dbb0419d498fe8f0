"""Two faults at once are both named, with their numbers; and what is no fault of a list is called none of it."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.ladders import Explicit, Geometric
from clockhands.encodings.rotary import chunked, interleaved
from clockhands.encodings.scaling import Llama3, Proportional, Yarn
from clockhands.testing import check_rotary
from recognition.faults.written import coarse_path

LLAMA = ch.Rotary(64, base=5e5, scaling=Llama3(8, 8192))
QWEN = ch.Rotary(64, base=1e6, scaling=Yarn(4, 8192))
PLAIN, PARTIAL = ch.Rotary(32), ch.Rotary(64, rotated=32)
PADDED = ch.Rotary(64, base=1e6, scaling=Proportional(0.25))
ROWED = ch.Rotary(64, base=1e6, axes=chunked((8, 12, 12)))
IN_TURNS = ch.Rotary(64, base=1e6, axes=interleaved((12, 10, 10)))


def of(spec, places=lambda at: at):
    """A right function of another spec, which reads positions otherwise."""
    return lambda x, positions: ch.rotate(x, spec, places(np.asarray(positions, np.float64)))


def based(spec, base):
    return replace(spec, spacing=Geometric(base))


def explained(function, spec, **options):
    options = {"length": 1100, **({"positions": "seq axes"} if spec.axes else {}), **options}
    report = check_rotary(function, spec, backend="numpy", raises=False, **options)
    assert not report.sound
    return report


TWO = {
    "base and YaRN": (of(ch.Rotary(64)), QWEN, {"another-base", "scaling-dropped"}),
    "base and factor": (
        of(based(replace(LLAMA, scaling=Llama3(32, 8192)), 1e4)), LLAMA, {"another-base", "another-factor"}
    ),
    "base and offset": (of(based(LLAMA, 1e4), lambda at: at + 1), LLAMA, {"another-base", "positions-offset"}),
    "base and layout": (of(based(replace(LLAMA, layout="interleaved"), 1e4)), LLAMA, {"another-base", "other-layout"}),
    "scaling and direction": (
        of(ch.Rotary(64, base=5e5, direction="backward")), LLAMA, {"scaling-dropped", "other-direction"}
    ),
    "width and base": (of(ch.Rotary(64, base=5e5)), PARTIAL, {"other-rotated-width", "another-base"}),
    "layout and rounded positions": (
        of(ch.Rotary(32, "interleaved"), lambda at: at.astype(np.float16).astype(float)), PLAIN,
        {"other-layout", "positions-rounded"},
    ),
    "base and sections": (
        of(based(replace(ROWED, axes=IN_TURNS.axes), 1e4)), ROWED, {"another-base", "other-axes-order"}
    ),
    "partners and exponent": (
        of(ch.Rotary(64, scaling=Proportional(0.5))), PARTIAL, {"other-partners", "other-denominator"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("number", [3, pytest.param(len(TWO), marks=pytest.mark.slow)])
def test_both_faults_are_named(number, cases, draw):
    for name, (function, spec, codes) in draw(TWO.items(), number):
        with cases(name):
            (told,) = explained(function, spec, length=2100 if "rounded" in name else 1100).explanations
            assert set(told.codes) == codes, told.message
            assert ", and " in told.message


def test_a_base_and_a_scaling_that_are_lost_together_are_told_with_their_numbers():
    (told,) = explained(of(ch.Rotary(64)), LLAMA).explanations
    assert told.message == (
        "computes its frequencies from base 10,000 instead of 500,000, and has unscaled frequencies: the scaling"
        " (Llama3, factor 8) is missing."
    )
    assert told.evidence["base"] == 10_000
    assert told.evidence["scaling-dropped"] == {"scaling": "Llama3, factor 8"}
    assert "Pass the base" in told.hint
    assert "Scale the frequencies" in told.hint


def test_a_fault_of_coarse_tokens_alone_is_said_to_be_theirs():
    told = explained(coarse_path(PLAIN, True, np, own=True), PLAIN).explanations[0]
    assert told.codes[-1] == "coarse-path-differs"
    assert {"phases-rounded", "positions-rounded", "rates-rounded"} & set(told.codes)
    assert told.message.endswith(", but only for float16 tokens: float32 tokens are correct.")


def moved(axis, by=0.0, times=1.0):
    def places(at):
        at = at.copy()
        at[..., axis] = at[..., axis] * times + by
        return at

    return places


def doubled(spec):
    return lambda x, at: ch.rotate(ch.rotate(x, spec, at), spec, at)


def blank(spec, rows, fill, *, by_row=False):
    """The first rows as zeros, or as they came."""

    def function(x, positions):
        early = (np.arange(len(x)) if by_row else np.asarray(positions)) < rows
        return np.where(early[:, None], fill * x, ch.rotate(x, spec, positions)).astype(x.dtype)

    return function


def partners(spec, pairs, further):
    """Pairs (i, i + further) at the spec's first rates."""

    def function(x, positions):
        phases = np.asarray(positions, float)[:, None] * np.array(spec.rates)[:pairs]
        one, other = slice(0, pairs), slice(further, further + pairs)
        y = np.array(x, float)
        y[:, one] = x[:, one] * np.cos(phases) - x[:, other] * np.sin(phases)
        y[:, other] = x[:, other] * np.cos(phases) + x[:, one] * np.sin(phases)
        return y.astype(x.dtype)

    return function


ONE = {
    "axes exchanged": (of(ROWED, lambda at: at[..., [0, 2, 1]]), ROWED, "axes-exchanged",
        "exchanges coordinates 1 and 2: the pairs of coordinate 1 rotate by coordinate 2, the pairs of coordinate 2"
        " rotate by coordinate 1"),
    "axes in another order": (of(IN_TURNS, lambda at: at[..., [1, 2, 0]]), IN_TURNS, "axes-exchanged",
        "the pairs of coordinate 2 rotate by coordinate 0"),
    "one axis offset": (of(ROWED, moved(2, by=3)), ROWED, "axis-offset", "is off by +3 in coordinate 2"),
    "one axis half a step off": (of(IN_TURNS, moved(1, by=0.5)), IN_TURNS, "axis-offset", "+0.5 in coordinate 1"),
    "all axes offset": (of(ROWED, lambda at: at + 1), ROWED, "positions-offset", "is off by +1 in position"),
    "one axis stretched": (of(ROWED, moved(1, times=2)), ROWED, "axis-stretched", "coordinate 1 were multiplied by 2"),
    "one axis read from another": (of(ROWED, lambda at: at[..., [0, 1, 1]]), ROWED, "axis-dropped",
        "ignores coordinate 2 and uses coordinate 1 instead"),
    "sections in turns": (of(replace(ROWED, axes=IN_TURNS.axes)), ROWED, "other-axes-order",
        "in interleaved sections of 12, 10 and 10 pairs instead of consecutive sections of 8, 12 and 12 pairs"),
    "sections in a row": (of(replace(IN_TURNS, axes=chunked((12, 10, 10)))), IN_TURNS, "other-axes-order",
        "in consecutive sections instead of interleaved sections"),
    "other sections": (of(replace(ROWED, axes=chunked((12, 10, 10)))), ROWED, "other-axes-order",
        "in consecutive sections of 12, 10 and 10 pairs"),
    "partners over the head": (partners(PARTIAL, 16, 32), PARTIAL, "other-partners",
        "pairs dimension i with dimension i + 32 instead of i + 16, in the 16 pairs that rotate"),
    "partners over the part": (partners(PADDED, 8, 8), PADDED, "other-partners",
        "pairs dimension i with dimension i + 8 instead of i + 32, in the 8 pairs that rotate"),
    "the last dimensions": (of(replace(PARTIAL, part="last")), PARTIAL, "other-part", "rotates the last dimensions"),
    "rotated twice": (doubled(PLAIN), PLAIN, "rotated-twice", "rotates twice: every angle is 2 times"),
    "rotated twice by several axes": (doubled(ROWED), ROWED, "rotated-twice", "rotates twice"),
    "rows of zeros": (blank(LLAMA, 100, 0.0), LLAMA, "leading-rows", "positions 0 to 99 are returned as zeros"),
    "a row of zeros": (blank(PLAIN, 1, 0.0), PLAIN, "leading-rows", "position 0 is returned as zeros"),
    "rows of each call": (blank(PLAIN, 2, 0.0, by_row=True), PLAIN, "leading-rows",
        "the first 2 rows of each call are returned as zeros"),
    "rows that are not rotated": (blank(PLAIN, 4, 1.0), PLAIN, "leading-rows", "positions 0 to 3 are not rotated"),
}  # fmt: skip


@pytest.mark.parametrize("number", [1, pytest.param(len(ONE), marks=pytest.mark.slow)])
def test_one_fault_is_named_with_its_numbers(number, cases, draw):
    """So many functions of each fault."""
    for code in dict.fromkeys(code for *_, code, _ in ONE.values()):
        for name, (function, spec, _, words) in draw([row for row in ONE.items() if row[1][2] == code], number):
            with cases(name):
                told = explained(function, spec, length=300).explanations[0]
                assert code in told.codes
                assert len(told.codes) <= 2
                assert words in told.message


def test_queries_that_restart_while_keys_go_on_are_told_as_theirs():
    def both(q, k, positions):
        return ch.rotate(q, PLAIN, positions - positions.min()), ch.rotate(k, PLAIN, positions)

    (told,) = explained(both, PLAIN, call="q, k, positions").explanations
    assert "positions-from-first" in told.codes
    assert told.message.endswith("for queries only: keys are correct.")


def shuffled(spec):
    rates = tuple(np.sort(np.random.default_rng(0).random(len(spec.rates)))[::-1])
    return of(replace(spec, spacing=Explicit(rates), scaling=None))


def noisy(spec):
    return lambda x, at: (ch.rotate(x, spec, at) + 0.1 * np.sin(1e3 * x)).astype(x.dtype)


def mixed(spec):
    matrix, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((spec.head_width,) * 2))
    return lambda x, _: (x @ matrix).astype(x.dtype)


NONE = list(itertools.product((shuffled, noisy, mixed), (LLAMA, PARTIAL, ROWED)))


@pytest.mark.parametrize("number", [1, pytest.param(len(NONE), marks=pytest.mark.slow)])
def test_what_no_fault_makes_is_called_none_of_them(number, cases, draw):
    # Of a scaled code every pair of faults is tried, which takes 3 seconds.
    for wrong, spec in draw([one for one in NONE if number > 1 or one[1] is not LLAMA], number):
        with cases(wrong.__name__, spec):
            report = explained(wrong(spec), spec, length=600)
            assert report.codes <= {"other-rates", "rates-uninitialised", "unrotated-channels-turned"}, str(report)


def test_a_factor_on_all_that_turns_is_measured_however_near_to_1(cases):
    specs = ch.Rotary(32), ch.Rotary(32, scaling=Yarn(4.0, original=128))
    for number, factor in enumerate((0.5, 0.9995, 1.0001, 1.001, 1.5)):
        spec = specs[number % 2]

        def too_long(x, positions, spec=spec, factor=factor):
            return ch.rotate(x, spec, positions) * np.float32(factor)

        with cases(factor):
            report = check_rotary(too_long, spec, length=600, raises=False)
            assert report.codes == {"attention-factor"}
            assert report.explanations[0].evidence["factor"] == pytest.approx(factor * spec.attention_factor, rel=1e-5)


def test_a_table_that_ends_at_256_is_not_made_in_bfloat16():
    """Positions 256 and 257 are one in bfloat16; in a table of 257 rows all later ones are one."""
    spec = ch.Rotary(32)

    def ends(x, positions):
        at = np.minimum(positions, 256)
        return ch.rotate(x, spec, at) + (0.3 * np.cos(at))[:, None].astype(x.dtype)  # wrong in another way too

    report = check_rotary(ends, spec, length=3000, backend="numpy", raises=False)
    assert not report.sound
    assert "positions-rounded" not in report.codes


def test_what_is_only_just_wrong_is_not_called_what_is_right_too():
    """A ladder multiplied up in float32 is a tenth beyond its bound; faults that do nothing here do not explain it."""
    ratio = np.float32(10_000.0 ** (-1 / 64))
    rates = np.cumprod(np.r_[np.float32(1), np.full(63, ratio)], dtype=np.float32)

    def multiplied_up(x, positions):
        phases = positions[:, None].astype(np.float32) * rates
        cosine, sine = np.cos(phases), np.sin(phases)
        a, b = np.split(x, 2, -1)
        return np.concatenate([a * cosine - b * sine, a * sine + b * cosine], -1)

    report = check_rotary(multiplied_up, ch.Rotary(128), backend="numpy", raises=False)
    assert not report.sound
    assert not report.codes & {"positions-rounded", "no-rotation", "first-sequence-only", "cache-without-base"}
