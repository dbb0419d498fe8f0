"""`check_rotary`: what it asks, what it allows, and that each of its suspects is told from the others."""

import functools
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.rotary import XPos, chunked, interleaved
from clockhands.encodings.scaling import Dynamic, Linear, Llama3, LongRope, Ntk, Yarn
from clockhands.errors import InvalidValue
from clockhands.recognition.faults import FAULTS
from clockhands.recognition.suspects import RotaryObservations, rotary_suspects
from clockhands.testing import CannotCheck, check_rotary
from clockhands.testing.bounds import UNIT, passed_on, phase_error, rotation_error
from clockhands.testing.functions._rank_parts import SequencePart
from clockhands.testing.functions._rotary import EVERY, SMALL

BATCHES = {"axes": "batch heads seq width", "positions": "batch seq"}
SPECS = {
    "halves": ch.Rotary(16),
    "interleaved": ch.Rotary(16, "interleaved", base=5e5),
    "in part": ch.Rotary(16, rotated=8),
    "the last part": ch.Rotary(16, "interleaved", rotated=8, part="last"),
    "linear": ch.Rotary(32, scaling=Linear(4.0)),
    "llama3": ch.Rotary(64, base=5e5, scaling=Llama3(8.0, 2048)),
    "yarn": ch.Rotary(64, "interleaved", scaling=Yarn(8.0, 1024)),
    "ntk": ch.Rotary(32, scaling=Ntk(4.0)),
    "dynamic": ch.Rotary(32, scaling=Dynamic(4.0, 2048)),
    "longrope": ch.Rotary(32, scaling=LongRope((1.0,) * 16, tuple(np.linspace(1.0, 8.0, 16)), 2048, 32.0)),
    "blocks": ch.Rotary(16, blocks=(4, 4)),
    "reordered": ch.Rotary(16, "interleaved", reordered=True),
    "backward": ch.Rotary(16, direction="backward"),
    "chunked axes": ch.Rotary(32, axes=chunked((4, 6, 6))),
    "interleaved axes": ch.Rotary(32, axes=interleaved((6, 5, 5))),
    "one pair": ch.Rotary(2),
}


def honest(spec, dtype):
    """As libraries write it: rates, phases and waves in float32, the product in the tokens' dtype."""
    kind = np.dtype(dtype)
    rates = np.array([np.float32(rate) for rate in spec.rates])
    sign = np.float32(-1 if spec.direction == "backward" else 1)

    def apply(x, positions):
        at = positions.astype(np.float32)
        at = at[..., None] if spec.axes is None else at[..., list(spec.axes)]
        phases = sign * at * rates
        factor = np.float32(spec.attention_factor)
        cosine, sine = ((factor * wave(phases)).astype(kind) for wave in (np.cos, np.sin))
        if x.ndim == 4:
            cosine, sine = cosine[:, None], sine[:, None]
        y = np.array(x)
        first, second = spec.channels.T
        a, b = x[..., first], x[..., second]
        y[..., first], y[..., second] = a * cosine - b * sine, b * cosine + a * sine
        if spec.reordered:
            y = np.concatenate([y[..., ::2], y[..., 1::2]], axis=-1)
        return y

    return apply


def test_honest_arithmetic_passes(cases):
    for (name, spec), (dtype, options) in product(SPECS.items(), (("float32", BATCHES), ("float16", {}))):
        with cases(name, dtype):
            report = check_rotary(honest(spec, dtype), spec, dtype=dtype, length=1500, **options)
            assert report.sound
            assert 0 < report.worst <= 1


def test_numbers_may_be_off_by_their_rounding_and_no_more():
    """At twice the bound, in one channel at one position of 10,000, it is caught; at half of it, it is not."""
    spec, draw = ch.Rotary(32), np.random.default_rng(5)
    for _ in range(2):
        place, channel = int(draw.integers(0, 10_000)), int(draw.integers(0, 32))

        def off(x, positions, share, place=place, channel=channel):
            y = ch.rotate(x.astype(np.float64), spec, positions)
            phases = np.asarray(positions, np.float64)[:, None] * np.array(spec.rates)
            allowed = rotation_error(x.astype(np.float64), spec, phases, "float32")
            rows = np.asarray(positions) == place
            y[rows, channel] += share * allowed[rows, channel]
            return y

        assert check_rotary(functools.partial(off, share=0.5), spec, raises=False).sound
        report = check_rotary(functools.partial(off, share=2.0), spec, raises=False)
        assert not report.sound
        every = next(failure for failure in report.failures if failure.experiment == EVERY.name)
        assert every.evidence["first wrong position"] == place
        assert every.evidence["channel"] == channel


def test_the_bound_of_phases_holds_for_arithmetic_in_float32():
    """Against mpmath, for rates by power and by exponential, at positions to 131,071."""
    mpmath = pytest.importorskip("mpmath")
    bases, places = (100.0, 1e4, 5e5), np.array([1, 7, 1023, 10_007, 131_071], np.float32)
    worst = 0.0
    for base in bases:
        exponents = np.arange(0, 64, 2, dtype=np.float32) / np.float32(64)
        for rates in (
            np.float32(1) / np.float32(base) ** exponents,
            np.exp(-exponents * np.float32(np.log(np.float32(base)))),
        ):
            assert rates.dtype == np.float32
            for place in places:
                phases = (place * rates).astype(np.float64)
                exact = [mpmath.mpf(float(place)) * mpmath.mpf(base) ** (-mpmath.mpf(k) / 32) for k in range(32)]
                off = np.array([float(abs(mpmath.mpf(float(p)) - e)) for p, e in zip(phases, exact, strict=True)])
                allowed = phase_error(np.array([float(e) for e in exact]), base ** (-np.arange(32) / 32))
                worst = max(worst, float((off / np.maximum(allowed, 1e-300)).max()))
    assert 0.01 < worst <= 1


def test_what_a_scaling_passes_on():
    """Linear scalings pass an error on as it is; the ramp of Llama 3 makes more of it, where slow meets fast."""
    assert passed_on(ch.Rotary(16)) is None
    assert np.allclose(passed_on(ch.Rotary(32, scaling=Linear(4.0))), 1, atol=1e-6)
    passed = passed_on(SPECS["llama3"])
    scaled, plain = (np.array(spec.rates) for spec in (SPECS["llama3"], replace(SPECS["llama3"], scaling=None)))
    ramp = (scaled != plain) & (np.abs(scaled * 8 / plain - 1) > 1e-9)
    assert ramp.any()
    assert (passed[ramp] > 1.1).any()
    assert np.allclose(passed[~ramp], 1, atol=1e-5)


def wrong(suspect, xpos=False):
    """A suspect as somebody's builder."""
    process = suspect.make()

    def build(spec):
        apply = process(spec)

        def turned(x, positions):
            shape, wide = x.shape, x if x.ndim == 4 else x[None, None]
            made = apply(wide.astype(np.float64), np.asarray(positions), str(x.dtype), "query" if xpos else None)
            return made.reshape(shape).astype(x.dtype)

        return turned

    return build


def some_suspects(spec, options):
    axes, still = tuple(options.get("axes", "seq width").split()), np.ones((1, spec.rotated // 2), complex)
    seen = RotaryObservations("float32", "float16", 600, 300, np.array([0]), still, False, axes=axes)
    found: dict[str, list] = {}
    for suspect in rotary_suspects(spec, seen):
        found.setdefault(suspect.codes[0], []).append(suspect)
    draw = np.random.default_rng(len(found))
    return [each[int(draw.integers(len(each)))] for each in found.values()]


def told(suspects, spec, options):
    """How many of these are caught and named, and which are not caught: nothing that is asked shows them."""
    sound = []
    for suspect in suspects:
        try:
            report = check_rotary(make=wrong(suspect), like=spec, raises=False, length=600, **options)
        except CannotCheck:  # of a code that does not exist
            sound.append(suspect.codes[0])
            continue
        if report.sound:
            sound.append(suspect.codes[0])
        else:
            assert set(suspect.codes) & report.codes, (suspect.codes, dict(suspect.parameters), str(report))
    return len(suspects) - len(sound), sound


def test_a_suspect_is_told_for_what_it_is(cases, draw):
    for name in draw(("halves", "the last part", "yarn", "interleaved axes"), 2):
        suspects = some_suspects(SPECS[name], BATCHES)
        places = np.random.default_rng(3).permutation(len(suspects))[:4]
        with cases(name):
            named, sound = told([suspects[place] for place in places], SPECS[name], BATCHES)
            assert named >= 2, sound


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, BATCHES], ids=["one sequence", "batches"])
def test_every_suspect_is_told_for_what_it_is(options, cases):
    """One of each fault, with the parameters that chance gives it."""
    for name, spec in SPECS.items():
        with cases(name):
            named, sound = told(some_suspects(spec, options), spec, options)
            # Roundings beyond 600 tokens, bases that other scalings know, pairs of which there is one.
            assert named > 2 * len(sound), sound


def test_every_fault_is_some_suspects_or_some_rules():
    codes = set()
    for spec in [*SPECS.values(), ch.Rotary(16, "interleaved", xpos=XPos(centre=100.0))]:
        turning = np.exp(1j * np.array([0, 1])[:, None] * np.array(spec.rates)) * 1.5
        seen = RotaryObservations(
            "float32", "bfloat16", 1500, 700, np.array([0, 1]), turning, True, axes=("batch", "heads")
        )
        moved = replace(seen, turning=seen.turning * np.exp(1j * np.array(spec.rates)), stands=np.array([0, 9]))
        late = replace(moved, positions=np.array([0, 1, 20, 30, 40]), stands=np.array([0, 1, 9, 9, 9]))
        slow = replace(seen, turning=np.exp(1j * np.array([0, 1])[:, None] * np.array(spec.rates) / 3))
        fast = replace(seen, turning=slow.turning**6, first_wrong=0, first_right=4)
        at = np.array([0, *(2**power for power in range(11))])
        ladder = replace(
            seen, positions=at, turning=np.exp(1j * np.outer(1.5 * at + 0.25, np.array(spec.rates) ** 1.2))
        )
        still = replace(late, turning=np.ones((5, spec.rotated // 2), complex))
        some = replace(ladder, turning=np.exp(1j * np.outer(at, spec.rates) * (np.arange(spec.rotated // 2) < 1)))
        for one in (seen, moved, still, slow, fast, ladder, some):
            codes |= {code for suspect in rotary_suspects(spec, one) for code in suspect.codes}
    for part in (SequencePart(1, 4), SequencePart(1, 4, zigzag=True), SequencePart(1, 4, packed=True)):
        codes |= {code for suspect in part.suspects(seen) for code in suspect.codes}
    by_rules = {
        "changes-its-arguments", "coarse-path-differs", "columns-of-next-axis", "gradient-not-rotated",
        "not-finite", "one-number-wrong",
        "other-rates", "overwrites-its-answers", "positions-of-other-side", "queries-and-keys-crossed",
        "rates-uninitialised", "unrotated-channels-turned", "view-misread",
    }  # fmt: skip
    about = {code for code, fault in FAULTS.items() if "rotary" in fault.about}
    assert about - codes == by_rules


def test_pairs_that_do_not_rotate_are_counted(cases):
    spec = ch.Rotary(16)
    for still, words in (
        (slice(2, None), "6 of the 8 pairs of a head (of pairs 2 to 7)"),  # rows and columns of a text at 0
        (slice(3, 5), "2 of the 8 pairs of a head (of pairs 3 to 4)"),
        (slice(0, 1), "1 of the 8 pairs of a head (of pair 0)"),
    ):
        rates = np.array(spec.rates)
        rates[still] = 0

        def function(x, positions, rates=rates):
            phases = positions.astype(float)[:, None] * rates
            a, b = x[:, :8].astype(float), x[:, 8:].astype(float)
            turned = [a * np.cos(phases) - b * np.sin(phases), b * np.cos(phases) + a * np.sin(phases)]
            return np.concatenate(turned, axis=-1).astype(np.float32)

        with cases(words):
            report = check_rotary(function, spec, raises=False)
            assert report.codes == {"pairs-unturned"}, str(report)
            assert words in report.explanations[0].message
    with cases("of a narrower head that is interleaved"):
        narrow = ch.Rotary(16, "interleaved", rotated=8)
        (told,) = check_rotary(
            lambda x, at: ch.rotate(x, narrow, at), ch.Rotary(16, "interleaved"), raises=False
        ).explanations
        assert told.codes == ("other-rotated-width",)


def test_tokens_of_a_larger_array_are_read_by_its_strides(cases):
    spec = ch.Rotary(12, rotated=8)

    def right(x, positions):
        return ch.rotate(x, spec, positions).astype(x.dtype)

    def contiguous(x, positions):
        made, first = right(x, positions), x if x.base is None else x.base
        made[:, 8:] = first.reshape(-1)[: x.size].reshape(x.shape)[:, 8:]
        return made

    def refusing(x, positions):
        if not x.flags.c_contiguous:
            raise ValueError("not contiguous")
        return right(x, positions)

    with cases("right"):
        assert "tokens of a larger array" in check_rotary(right, spec, length=300).experiments
    with cases("as if they were contiguous"):
        report = check_rotary(contiguous, spec, length=300, raises=False)
        assert report.codes == {"view-misread"}, str(report)
    with cases("an error is no wrong number"):
        report = check_rotary(refusing, spec, length=300)
        assert "not contiguous" in report.left_out["tokens of a larger array"]
    with cases("PyTorch"):
        import torch

        report = check_rotary(lambda x, at: ch.rotate(x, spec, at), spec, length=300, backend=torch)
        assert "tokens of a larger array" in report.experiments


def test_positions_beyond_the_range_of_float16_are_told_though_their_numbers_are_nan():
    spec = ch.Rotary(8)

    def rounded(x, positions):
        with np.errstate(over="ignore", invalid="ignore"):
            phases = positions.astype(np.float16).astype(float)[:, None] * np.array(spec.rates)
            cosine, sine = np.cos(phases), np.sin(phases)
        a, b = x[:, :4], x[:, 4:]
        return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1).astype(np.float32)

    (told,) = check_rotary(rounded, spec, length=70_000, raises=False).explanations
    assert told.codes == ("positions-rounded",)
    assert "most of the errors" not in told.message


def test_xpos_is_asked_for_queries_and_keys():
    spec = ch.Rotary(16, "interleaved", xpos=XPos(centre=100.0))

    def queries(x, positions):
        return ch.rotate(x, spec, positions, role="query")

    def keys(x, positions):
        return ch.rotate(x, spec, positions, role="key")

    assert "keys" in check_rotary(queries, spec, keys=keys, length=600).experiments
    assert "pass keys=" in check_rotary(queries, spec, length=600).left_out["keys"]
    report = check_rotary(queries, spec, keys=queries, length=600, raises=False)
    assert [failure.experiment for failure in report.failures] == ["keys", "keys that start later"]


def test_tokens_of_several_coordinates_are_not_counted():
    for call in ("x", "x, offset", "x,offset"):
        with pytest.raises(InvalidValue, match="3 coordinates must be passed to it"):
            check_rotary(lambda x, *_: x, "qwen2-vl", call=call)


def test_an_offset_is_told_either_way(cases):
    spec = ch.Rotary(32)
    for offset in (-8193, -8192, 1, 8192, 8193):
        with cases(offset):
            report = check_rotary(lambda x, p, by=offset: ch.rotate(x, spec, p + by), spec, length=600, raises=False)
            told = [(one.codes, dict(one.evidence)) for one in report.explanations]
            assert told == [(("positions-offset",), {"offset": offset})]


def test_rows_that_were_added_to_a_table_in_few_bits_are_told_with_the_first_of_them():
    spec = ch.Rotary(16)
    rates = np.array(spec.rates)

    def turned(x, positions):
        at = positions[:, None].astype(float)
        coarse = at.astype(np.float16) * rates.astype(np.float16)
        phases = np.where(at >= 300, coarse, at * rates)
        a, b = np.split(x.astype(float), 2, axis=-1)
        y = np.concatenate([a * np.cos(phases) - b * np.sin(phases), a * np.sin(phases) + b * np.cos(phases)], axis=-1)
        return y.astype(x.dtype)

    report = check_rotary(turned, spec, raises=False, length=600)
    assert report.codes == {"table-rebuilt-rounded"}
    said = "computes positions from 300 on in float16: the table was rebuilt in another precision."  # all its errors
    assert said in " ".join(str(report).split())


def test_a_ladder_of_another_base_multiplier_or_start_is_told_with_its_numbers(cases):
    """Also with the pairs of the other layout; frequencies without any rule are told as such, and no others."""

    def turned(spec, angles):
        def rotated(x, positions):
            at = np.asarray(positions, float).reshape(len(x), -1)
            angle = angles(at[:, list(spec.axes or [0] * (spec.rotated // 2))])
            y, (one, other) = np.array(x, float), spec.channels.T
            y[..., one] = x[..., one] * np.cos(angle) - x[..., other] * np.sin(angle)
            y[..., other] = x[..., one] * np.sin(angle) + x[..., other] * np.cos(angle)
            return y.astype(x.dtype)

        return rotated

    def codes(function, spec):
        report = check_rotary(function, spec, length=600, raises=False)
        return report.codes, " ".join(one.message for one in report.explanations)

    for name, exponents in (("dinov3", np.tile(np.arange(16) / 16, 2)), ("qwen2-vl", np.arange(64) / 64)):
        spec = ch.preset(name)
        for base, factor, moved in ((3e4, 7.0, 6.5), (1e2, 0.04, 0.0), (5e5, 3.0, -2.25)):
            for layout in ("halves", "interleaved")[: 1 + (name == "dinov3")]:
                with cases(name, base, factor, moved, layout):
                    unit = base**-exponents
                    wrong = turned(replace(spec, layout=layout), lambda at, f=factor, m=moved, u=unit: (at * f + m) * u)
                    told, message = codes(wrong, spec)
                    slower = name == "dinov3" and base == 1e2
                    others = {"other-layout"} if layout != spec.layout else set()
                    assert told == {"positions-scaled" if slower else "other-ladder"} | others
                    assert slower or f"base {base:,.0f} instead" in message
                    assert f"multiplied by {0.04 / (2 * np.pi) if slower else factor:.6g}" in message
                    assert (f"moved by {moved:g}" in message) == bool(moved)
    spec = ch.Rotary(64)
    draw = np.random.default_rng(3)
    for rates, code in (
        (20_000.0 ** (-np.arange(32) / 32) * 1.5, "other-ladder"),
        (np.linspace(1, 0.01, 32), "other-rates"),
        (np.linspace(0.01, 1, 32), "other-rates"),
        (draw.permutation(spec.rates), "other-rates"),
        (draw.uniform(0, 3, 32), "rates-uninitialised"),
    ):
        with cases(code, rates[0]):
            assert codes(turned(spec, lambda at, rates=rates: at * rates), spec)[0] == {code}


def test_a_function_that_counts_its_rows():
    """The other ways to be called are rows of tests/recognition/faults."""
    spec = ch.Rotary(8)
    assert check_rotary(lambda x: ch.rotate(x, spec), spec, call="x", length=600).sound
    late = check_rotary(lambda x: ch.rotate(x, spec, np.arange(len(x)) + 1), spec, call="x", length=600, raises=False)
    assert "positions-offset" in late.codes


def test_any_library_of_the_array_api():
    strict = pytest.importorskip("array_api_strict")
    spec = ch.Rotary(8)
    report = check_rotary(lambda x, at: ch.rotate(x, spec, np.asarray(at)), spec, backend=strict, length=300)
    assert report.called["library"] == "array_api_strict"


def test_each_experiment_says_what_it_asks():
    assert all(one.asks.endswith(".") for one in (*SMALL, EVERY))
    assert len({one.name for one in (*SMALL, EVERY)}) == len(SMALL) + 1


def test_units_are_half_the_distance_of_neighbours():
    for dtype, unit in UNIT.items():
        if dtype != "bfloat16":
            assert unit == np.finfo(dtype).eps / 2


def _along_heads(k, _):
    return np.swapaxes(ch.rotate(np.swapaxes(k, 1, 2), ch.Rotary(16), np.arange(k.shape[1])), 1, 2)


OF_KEYS = [
    (_along_heads, "turns-other-axis"),
    (lambda k, positions: ch.rotate(k, ch.Rotary(16), positions[:1]), "positions-of-first-sequence"),
    (lambda k, positions: ch.rotate(k, ch.Rotary(16, base=5e5), positions), "another-base"),
]
OF_QUERIES = [
    (lambda q, _: q, "no-rotation"),
    (lambda q, positions: ch.rotate(q, ch.Rotary(16), positions + 1), "positions-offset"),
]


@pytest.mark.parametrize("axes", ["seq width", "batch heads seq width"])
def test_one_position_for_all_tokens_of_a_call_is_no_rotation_along_another_axis(axes):
    spec = ch.Rotary(16)

    def window(x, offset):
        return ch.rotate(x, spec, np.full(x.shape[-2], offset))

    report = check_rotary(window, spec, axes=axes, length=300, raises=False)
    assert report.codes == {"positions-from-first"}
    assert "every token of a call has this position" in report.explanations[0].message

    def larger(x, offset):  # and another mistake, which no known fault has
        return 1.01 * window(x, offset) + 0.05 * x

    assert "turns-other-axis" not in check_rotary(larger, spec, axes=axes, length=300, raises=False).codes


@pytest.mark.parametrize("number", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("side", "faults"), [("keys", OF_KEYS), ("queries", OF_QUERIES)])
def test_a_fault_of_keys_or_of_queries_alone_is_said_to_be_theirs(side, faults, number, cases, draw):
    right = functools.partial(ch.rotate, spec=ch.Rotary(16))
    for wrong, code in draw(faults, number):

        def both(q, k, positions, wrong=wrong):
            here = wrong if side == "keys" else lambda k, positions: right(k, positions=positions)
            there = wrong if side == "queries" else lambda q, positions: right(q, positions=positions)
            return there(q, positions), here(k, positions)

        with cases(code):
            report = check_rotary(both, ch.Rotary(16), call="q, k, positions", length=300, raises=False, **BATCHES)
            assert code in report.codes
            assert f"for {side} only" in report.explanations[0].message


def test_keys_of_one_head_given_to_all_are_wrong():
    def both(q, k, positions):
        turned = ch.rotate(k, ch.Rotary(16), positions)
        return ch.rotate(q, ch.Rotary(16), positions), np.broadcast_to(turned[:, :1], k.shape)

    report = check_rotary(both, ch.Rotary(16), call="q, k, positions", length=300, raises=False, **BATCHES)
    assert {one.experiment for one in report.failures} == {"several heads of keys", "keys at separate positions"}


def test_what_both_have_wrong_is_not_said_of_one():
    def both(q, k, positions):
        return tuple(ch.rotate(x, ch.Rotary(16), np.minimum(positions, 399)) for x in (q, k))

    report = check_rotary(both, ch.Rotary(16), call="q, k, positions", length=600, raises=False, **BATCHES)
    assert "table-ends" in report.codes
    assert "only" not in report.explanations[0].message


@pytest.mark.filterwarnings("error")
def test_numbers_that_are_not_finite_are_placed_and_raise_no_warning_of_numpy(cases):
    for rows, said in (
        (lambda at: at >= 0, "returns NaN."),
        (lambda at: at >= 450, "returns NaN from position 450 on."),
        (lambda at: at == 5, "returns NaN at position 5."),
        (lambda at: at % 7 == 3, "returns NaN at positions 3 and others."),
    ):

        def broken(x, positions, rows=rows):
            y = ch.rotate(x, ch.Rotary(16), positions)
            y[rows(positions)] = np.nan
            return y

        with cases(said):
            report = check_rotary(broken, ch.Rotary(16), length=600, raises=False)
            assert report.codes == {"not-finite"}
            assert report.explanations[0].message == said
    with cases("zeros"):
        assert "attention-factor" in check_rotary(lambda x, _: 0 * x, ch.Rotary(16), length=300, raises=False).codes


def test_the_gradient_of_a_function_of_pytorch_is_rotated_back(cases):
    torch = pytest.importorskip("torch")
    spec = ch.Rotary(16, layout="halves")

    def rotated(x, positions, *, back=False):
        angles = positions[:, None] * torch.tensor(spec.rates, dtype=torch.float32)
        a, b = x.chunk(2, -1)
        sine = -angles.sin() if back else angles.sin()
        return torch.cat([a * angles.cos() - b * sine, a * sine + b * angles.cos()], -1)

    def operator(backward):
        class Rotation(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, positions):
                ctx.save_for_backward(positions)
                return rotated(x, positions)

            @staticmethod
            def backward(ctx, grad):
                return backward(grad, *ctx.saved_tensors), None

        def applied(x, positions):  # the names of its arguments say what they are
            return Rotation.apply(x, positions)

        return applied

    def untracked(x, positions):
        with torch.no_grad():
            return rotated(x, positions)

    def waves_first(cos, sin, x):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    right = {
        "written out": rotated,
        "waves first": waves_first,
        "operator": operator(lambda grad, at: rotated(grad, at, back=True)),
    }
    for name, function in right.items():
        with cases(name):
            report = check_rotary(function, like=spec, length=300)
            assert "gradient" in report.experiments
    for zigzag in (False, True):
        with cases("the tokens of a rank, zig-zag" if zigzag else "the tokens of a rank"):

            def of_rank(x, zigzag=zigzag):
                rows = x.shape[-2]
                first, second = np.arange(rows // 2, rows), np.arange(3 * rows, 7 * rows // 2)
                at = torch.from_numpy(np.concatenate([first, second]) if zigzag else np.arange(rows, 2 * rows))
                return rotated(x, at)

            report = check_rotary(of_rank, like=spec, length=300, backend="torch", rank=1, ranks=4, zigzag=zigzag)
            assert "gradient" in report.experiments
    with cases("not tracked"):
        report = check_rotary(untracked, like=spec, length=300)
        assert report.left_out["gradient"] == "its output has no gradient"
    wrong = {
        "a function which returns its tokens": operator(lambda grad, _: grad),
        "rotated, it is off by": operator(rotated),
    }
    for words, function in wrong.items():
        with cases(words):
            report = check_rotary(function, like=spec, length=300, raises=False)
            assert report.codes == {"gradient-not-rotated"}, str(report)
            assert words in report.explanations[0].message
