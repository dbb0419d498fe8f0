"""The check of a bias on two models, one number and learned numbers; its faults are in tests/recognition/faults."""

import functools

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.biases import Alibi, Buckets, Clipped, Kerple
from clockhands.errors import InvalidValue
from clockhands.testing import CannotCheck, CheckFailed, check_bias
from recognition.faults.rows import cast
from testing.written_biases import (
    T5,
    VALUES,
    asked,
    codes,
    geometric,
    linear,
    looked_up,
    paper_slopes,
    t5,
    t5_buckets,
    table,
)


def test_what_a_fault_says_has_its_numbers():
    text = " ".join(str(asked(linear(12, slopes=geometric), Alibi(12))).split())
    assert "one geometric series through all heads" in text
    assert "head 0" in text
    assert "mlx#3071" in text


def test_a_factor_of_rounded_numbers_is_named_however_far_the_sizes_of_heads_are_apart():
    """Each head is held to its own numbers: those of the first one are 16 times as large."""

    def scaled(queries, keys):
        return cast(np, 0.7 * linear(2, dtype="float64")(queries, keys), "bfloat16")

    assert codes(asked(scaled, Alibi(2), dtype="bfloat16")) == ("bias-scaled",)


def test_a_fault_is_named_if_it_explains_nine_tenths_of_the_wrong_numbers(cases):
    """One head of 16 that is silent besides is left unexplained; with two, the fault is not said to be this one."""
    for silent, said in ((1, [("slopes-rule",)]), (2, [])):

        def made(out, _queries, _keys, silent=silent):
            return np.where((np.arange(16) < silent)[:, None, None], np.float32(0), out)

        report = asked(linear(16, slopes=lambda heads: geometric(heads, 4), made=made), Alibi(16), length=16)
        with cases(silent):
            assert [each.codes for each in report.explanations] == said
            assert ("explains most of the errors, not all" in " ".join(str(report).split())) == bool(said)


def test_faults_are_named_of_a_span_that_has_no_half_or_quarter(cases):
    for span in (1, 2, 3):
        spec, values = Clipped(2, span=span), table(2 * span, heads=2)
        with cases(span):
            report = asked(lambda q, k, it=(spec, values): 3 * ch.bias(it[0], q, k, values=it[1]), spec, values=values)
            assert codes(report) == ("bias-scaled",)


@pytest.mark.parametrize("distance", [pytest.param(257, marks=pytest.mark.slow), 9_999])
def test_one_distance_of_ten_thousand_in_one_head_is_caught(distance):
    def slip(out, queries, keys):
        here = (queries[:, None] - keys[None, :] == distance)[None] & (np.arange(8) == 5)[:, None, None]
        return np.where(here, out * np.float32(1 + 1e-5), out)

    assert asked(linear(8), Alibi(8)).sound
    report = asked(linear(8, made=slip), Alibi(8))
    assert codes(report) == ("one-number-wrong",)
    assert f"distance {distance:,}, in head 5" in str(report)


def test_one_query_of_ten_thousand_is_caught():
    def slip(out, queries, keys):
        return np.where((queries[:, None] == 7_777) & (keys[None, :] == 0), out + 1, out)

    assert not asked(linear(8, made=slip), Alibi(8)).sound


# --- two models ---


def cached(key):
    held = {}

    def make(spec):
        def forward(queries, keys):
            size = held.setdefault(key(spec), (spec.heads, spec.octaves))
            return linear(size[0], slopes=lambda n: geometric(n, size[1]))(queries, keys)

        return forward

    return make


@pytest.mark.parametrize(
    ("key", "code"),
    [(lambda spec: spec.octaves, "cache-without-heads"), (lambda spec: spec.heads, "cache-without-slopes")],
)
def test_a_cache_without_its_key_is_named(key, code):
    assert check_bias(make=cached(lambda spec: spec), like=Alibi(8)).sound
    report = check_bias(make=cached(key), like=Alibi(8), raises=False)
    assert code in codes(report)
    assert [failure.experiment for failure in report.failures] == ["two models in one process"]


def test_a_cache_of_buckets_without_its_largest_distance_is_named():
    held = {}

    def make(spec):
        def forward(queries, keys):
            furthest = held.setdefault("furthest", spec.max_distance)
            return t5(furthest=furthest)(queries, keys)

        return forward

    report = check_bias(make=make, like=Buckets(4), values=VALUES, raises=False)
    assert codes(report) == ("cache-without-max-distance",)


# --- learned numbers of its own ---


def test_a_table_that_is_not_trained_cannot_be_checked():
    with pytest.raises(CannotCheck, match="not trained"):
        check_bias(looked_up(np.zeros((32, 4), np.float32), t5_buckets), Buckets(4))


def test_rows_that_are_alike_are_told():
    values = VALUES.copy()
    values[20] = values[21]
    report = asked(looked_up(values, t5_buckets), Buckets(4))
    assert codes(report) == ("buckets-not-apart",)
    assert "20, 21" in str(report)


def test_a_code_that_is_no_table_needs_its_values():
    with pytest.raises(InvalidValue, match="values"):
        check_bias(linear(4), Kerple(4))


def test_values_may_be_parameters():
    torch = pytest.importorskip("torch")
    values = torch.nn.Parameter(torch.from_numpy(VALUES))
    rows = functools.partial(t5_buckets, xp=torch)

    def forward(queries, keys):
        return torch.moveaxis(values[rows(queries[:, None] - keys[None, :])], -1, 0)

    assert asked(forward, Buckets(4), values=values).sound
    assert not asked(forward, Buckets(4), values=2 * values).sound


def test_a_function_of_any_array_library_is_checked():
    strict = pytest.importorskip("array_api_strict")
    slopes = strict.asarray(np.array(paper_slopes(8), np.float32))[:, None, None]

    def forward(queries, keys):
        return slopes * strict.astype(keys[None, :] - queries[:, None], strict.float32)[None, ...]

    report = asked(forward, Alibi(8), backend=strict)
    assert report.sound, report
    assert report.called["library"] == "array_api_strict"


def test_values_of_another_shape_are_refused():
    with pytest.raises(InvalidValue, match="shape"):
        check_bias(T5, Buckets(4), values=VALUES.T)


# --- reports ---


def test_a_failure_is_raised_and_a_preset_is_resolved():
    assert check_bias(linear(12, form="key"), "bloom:heads=12").sound
    with pytest.raises(CheckFailed) as caught:
        check_bias(linear(12, slopes=geometric), "bloom:heads=12")
    assert caught.value.report.codes == {"slopes-rule"}
    assert caught.value.report.to_dict()["kind"] == "bias"
