"""Biases as published code has them pass, in every library and call; what cannot be called is told."""

import functools
import itertools
import math

import numpy as np
import pytest

from clockhands.encodings.biases import (
    Alibi,
    Buckets,
    CeilingBuckets,
    Clipped,
    Decay,
    Fire,
    Kerple,
    LogWindow,
    Window,
    row_numbers,
)
from clockhands.errors import InvalidValue
from clockhands.testing import CannotCheck, check_bias
from clockhands.testing.bounds import near_edge
from recognition.faults.rows import arrays_of as arrays
from recognition.faults.rows import cast
from testing.written_biases import (
    SYMMETRIC,
    asked,
    codes,
    counting,
    deberta_rows,
    linear,
    looked_up,
    paper_slopes,
    t5_buckets,
    table,
)

# --- right ones ---


def test_forms_that_softmax_does_not_tell_apart_are_all_right(cases):
    for form, declared in itertools.product(("distance", "past", "key", "last-key"), repeat=2):
        with cases(form, declared):
            report = asked(linear(12, form=form), Alibi(12, declared))
            assert report.sound, report
            assert report.called["keys after the query"] == "not compared"


def test_slopes_made_in_float32_are_within_the_bound(cases):
    """`faults/peers.toml` has those of Bloom and of MPT, made by Transformers itself."""
    for heads in (12, 112):
        with cases(heads):
            report = asked(linear(heads), Alibi(heads), length=2500)
            assert report.sound, report


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_bias_in_full_precision_passes(dtype):
    assert asked(linear(12, dtype=dtype), Alibi(12), dtype=dtype).sound


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_bias_that_is_rounded_once_passes_where_that_is_said(dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")

    def forward(queries, keys):
        return cast(np, linear(12, form="symmetric", dtype="float64")(queries, keys), dtype)

    report = asked(forward, Alibi(12, "symmetric"), dtype=dtype)
    assert report.sound, report
    assert not asked(forward, Alibi(12, "symmetric")).sound


def test_t5_buckets_as_published_code_has_them_pass(cases):
    sizes = [(32, 128, True), (32, 128, False), (320, 800, False), (16, 64, True), (64, 1024, False)]
    for number, (buckets, furthest, bidirectional) in enumerate(sizes):
        library = "torch" if number == 0 else "numpy"
        xp, values = arrays(library), table(buckets)
        rows = functools.partial(t5_buckets, xp=xp, bidirectional=bidirectional, buckets=buckets, furthest=furthest)
        like = Buckets(4, buckets, furthest, bidirectional)
        for given in (values, None):
            with cases(library, like, "given" if given is not None else "its own"):
                report = asked(looked_up(values, rows, xp), like, values=given, backend=library)
                assert report.sound, report


def test_other_tables_and_decays_as_published_code_has_them_pass():
    values = table(512)
    report = asked(looked_up(values, deberta_rows), CeilingBuckets(4), values=values)
    assert report.sound, report
    values = table(64)
    rows = lambda apart: np.clip(apart, -32, 31) + 32  # noqa: E731
    assert asked(looked_up(values, rows), Clipped(4, 32), values=values).sound
    slopes = lambda heads: -np.log(1 - 2.0 ** (-5 - np.arange(heads, dtype=np.float32)))  # noqa: E731
    report = asked(linear(4, slopes=slopes), Decay(4))
    assert report.sound, report


@pytest.mark.parametrize("kernel", ["log", "power"])
def test_kerple_in_float32_passes_and_another_power_does_not(kernel):
    p, a = (np.array(numbers, np.float32)[:, None, None] for numbers in ([0.5, 1.0, 1.7], [0.3, 0.02, 1.1]))

    def forward(queries, keys, more=0):
        apart = np.maximum(queries[:, None] - keys[None, :], 0).astype(np.float32)
        return -(p + more) * np.log(1 + a * apart) if kernel == "log" else -a * apart ** (p + more)

    values = {"p": p.reshape(-1), "a": a.reshape(-1)}
    report = asked(forward, Kerple(3, kernel), values=values)
    assert report.sound, report
    assert not asked(functools.partial(forward, more=np.float32(1e-3)), Kerple(3, kernel), values=values).sound


def fire_values():
    rng = np.random.default_rng(2)
    shapes = {"w1": (32, 1), "b1": (32,), "w2": (3, 32), "b2": (3,)}
    values = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return {"c": np.float32(0.1), "threshold": np.float32(512 * 0.7), **values}


def test_fire_in_float32_passes_and_another_threshold_does_not():
    held = fire_values()

    def forward(queries, keys, threshold=held["threshold"]):
        apart = np.maximum(queries[:, None] - keys[None, :], 0).astype(np.float32)
        reach = np.maximum(queries.astype(np.float32), threshold)[:, None]
        share = np.log(1 + held["c"] * apart) / (np.log(1 + held["c"] * reach) + np.float32(1e-6))
        hidden = np.maximum(share[..., None] @ held["w1"].T + held["b1"], 0)
        return np.moveaxis(hidden @ held["w2"].T + held["b2"], -1, 0)

    values = {name: np.asarray(array) for name, array in held.items()}
    report = asked(forward, Fire(3), values=values, length=600)
    assert report.sound, report
    assert not asked(functools.partial(forward, threshold=np.float32(300)), Fire(3), values=values, length=600).sound


def swin_rows(height, width):
    def rows(queries, keys):
        (down, across), (to_down, to_across) = np.divmod(queries, width), np.divmod(keys, width)
        return (down[:, None] - to_down + height - 1) * (2 * width - 1) + across[:, None] - to_across + width - 1

    return rows


@pytest.mark.parametrize("known", [True, False])
def test_a_window_passes_and_one_read_column_by_column_does_not(known):
    height, width, like = 5, 7, Window(4, 5, 7)
    values = table(like.rows)

    def forward(queries, keys):
        return np.moveaxis(values[swin_rows(height, width)(queries, keys)], -1, 0)

    def by_columns(queries, keys):
        turned = [at % width * height + at // width for at in (queries, keys)]
        return np.moveaxis(values[swin_rows(width, height)(*turned)], -1, 0)

    given = values if known else None
    assert asked(forward, like, values=given).sound
    if known:
        assert codes(asked(by_columns, like, values=given)) == ("axes-exchanged",)


def test_continuous_windows_pass():
    rng = np.random.default_rng(5)
    w1, b1, w2 = (rng.standard_normal(shape).astype(np.float32) for shape in ((64, 2), (64,), (4, 64)))

    def forward(queries, keys, top=16):
        down, across = (
            8 * (a[:, None] - b[None, :]).astype(np.float32) / 6
            for a, b in zip(np.divmod(queries, 7), np.divmod(keys, 7), strict=True)
        )
        given = np.stack([np.sign(c) * np.log2(np.abs(c) + 1) / np.float32(np.log2(8)) for c in (down, across)], -1)
        return np.moveaxis(top / (1 + np.exp(-(np.maximum(given @ w1.T + b1, 0) @ w2.T))), -1, 0)

    values = {"w1": w1, "b1": b1, "w2": w2}
    like = LogWindow(4, 7, 7, hidden=64)
    report = asked(forward, like, values=values)
    assert report.sound, report
    assert codes(asked(functools.partial(forward, top=8), like, values=values)) == ("bias-scaled",)


# --- edges of buckets ---


def test_only_distances_on_an_edge_may_be_in_either_bucket():
    like = Buckets(1, 32, 128)
    at = np.arange(10_000)
    assert at[near_edge(like, at)].tolist() == [8, 16, 32, 64, 128]


@pytest.mark.parametrize(("span", "furthest"), [(8, 32), (8, 64), (16, 64), (256, 512)])
def test_the_buckets_of_transformers_are_those_of_deberta_with_values_that_are_read(span, furthest):
    torch = pytest.importorskip("torch")
    deberta = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    numbers = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 2 * span)))

    def bias(queries, keys, kept=0):
        apart = queries[:, None] - keys[None, :]
        rows = deberta.make_log_bucket_position(apart, span, furthest).long()
        rows = torch.where(apart == kept, rows + (kept > 0), rows)
        return numbers[:, (rows + span).clamp(0, 2 * span - 1)]

    like = CeilingBuckets(2, span, furthest)
    report = check_bias(bias, like, length=2000, raises=False)
    assert report.sound, report
    assert not check_bias(functools.partial(bias, kept=span // 2 - 1), like, length=2000, raises=False).sound


def test_a_distance_that_rounding_up_keeps_is_on_no_edge():
    assert near_edge(CeilingBuckets(1, 8, 32), np.arange(64)).nonzero()[0].tolist() == [31]


SIZES = [(4, 64), (8, 100), (16, 64), (16, 500), (32, 64), (32, 128), (32, 1024), (64, 100), (160, 500), (320, 800)]


def test_float32_puts_distances_wrong_only_where_that_is_allowed(cases):
    for (buckets, furthest), divided in itertools.product(SIZES, (False, True)):
        like, at = Buckets(1, buckets, furthest, bidirectional=False), np.arange(furthest + 10)
        first = buckets // 2
        far = np.log(np.maximum(at, first).astype(np.float32) / np.float32(first))
        steps, whole = buckets - first, math.log(furthest / first)
        y = far * np.float32(steps / whole) if divided else far / np.float32(whole) * np.float32(steps)
        rows = np.where(at < first, at, np.minimum(first + np.floor(y).astype(np.int64), buckets - 1))
        with cases(like, divided):
            wrong = rows != row_numbers(like, at, [0])[:, 0]
            assert not (wrong & ~near_edge(like, at)).any()
            assert near_edge(like, at).sum() <= buckets


def test_a_distance_in_the_bucket_before_is_right_on_an_edge_only(cases):
    values = table(32)
    for distance, right in ((16, True), (32, True), (17, False), (15, False)):

        def rows(apart, distance=distance):
            return t5_buckets(apart) - (np.abs(apart) == distance)

        with cases(distance):
            assert asked(looked_up(values, rows), Buckets(4), values=values).sound == right


# --- how it is called ---


def test_counts_and_leading_axes():
    for lead in ((), (1,), (1, 1)):

        def forward(queries, keys, lead=lead):
            out = counting(linear(8))(queries, keys)
            return out.reshape(*lead, *out.shape)

        report = asked(forward, Alibi(8), call="counts")
        assert report.sound, report
        assert "any order" in report.left_out


def test_a_call_by_the_number_of_keys():
    slopes = np.array(paper_slopes(12), np.float32)[:, None, None]
    report = asked(lambda keys: slopes * np.arange(keys, dtype=np.float32), Alibi(12, "key"), call="keys")
    assert report.sound, report
    assert not asked(lambda keys: slopes * np.arange(keys), Alibi(12, "symmetric"), call="keys").sound
    report = asked(lambda keys: counting(SYMMETRIC)(keys, keys), Alibi(8, "symmetric"), call="keys", length=600)
    assert report.sound, report


def test_queries_that_stand_at_the_first_keys():
    def forward(queries, keys):
        return SYMMETRIC(np.arange(queries), np.arange(keys))

    assert asked(forward, Alibi(8, "symmetric"), call="counts", aligned="start").sound
    assert "bias-of-first-rows" in codes(asked(forward, Alibi(8, "symmetric"), call="counts"))


def test_constants_of_rows_are_compared_only_if_asked_for():
    def forward(queries, keys):
        return SYMMETRIC(queries, keys) + queries[:, None].astype(np.float32)

    assert asked(forward, Alibi(8, "symmetric")).sound
    assert not asked(forward, Alibi(8, "symmetric"), exact=True).sound
    assert asked(SYMMETRIC, Alibi(8, "symmetric"), exact=True).sound
    assert codes(asked(linear(8, form="key"), Alibi(8), exact=True)) == ("bias-from-key-only",)


def masked(mask):
    return lambda out, queries, keys: np.where(queries[:, None] < keys[None, :], np.float32(mask), out)


def test_a_mask_over_later_keys_is_allowed_where_they_are_not_seen(cases):
    for mask in (-np.inf, -1e4, np.finfo(np.float32).min):
        with cases(mask):
            report = asked(linear(8, made=masked(mask)), Alibi(8))
            assert report.sound, report
            assert report.called["keys after the query"] == "masked"
            two_sided = linear(8, form="symmetric", made=masked(mask))
            assert codes(asked(two_sided, Alibi(8, "symmetric"))) == ("later-keys-masked",)
            assert asked(two_sided, Alibi(8, "symmetric"), causal=True).sound
    assert not asked(linear(8, made=masked(np.nan)), Alibi(8)).sound


def test_keys_after_the_query_are_compared_if_asked_for():
    assert asked(linear(8, form="past"), Alibi(8)).sound
    report = asked(linear(8, form="past"), Alibi(8), causal=False)
    assert codes(report) == ("other-form",)


def test_it_changes_its_arguments():
    def forward(queries, keys):
        out = linear(8)(queries.copy(), keys)
        queries += 1
        return out

    report = asked(forward, Alibi(8))
    assert codes(report) == ("changes-its-arguments",)
    assert "queries" in str(report)


def test_it_returns_one_buffer_again_and_again():
    kept = {}

    def forward(queries, keys):
        out = linear(8)(queries, keys)
        buffer = kept.setdefault(out.shape, np.empty_like(out))
        buffer[...] = out
        return buffer

    report = asked(forward, Alibi(8))
    assert codes(report) == ("overwrites-its-answers",)
    assert [failure.experiment for failure in report.failures] == ["answers stay as they are"]
    assert "changed the array that an earlier one returned" in str(report)


# --- what cannot be called ---


def test_a_table_that_ends_is_asked_for_its_length():
    whole = SYMMETRIC(np.arange(512), np.arange(512))

    def forward(queries, keys):
        return whole[:, queries][:, :, keys]

    with pytest.raises(CannotCheck, match="IndexError") as caught:
        check_bias(forward, Alibi(8, "symmetric"))
    assert "Pass length= for a function of fewer than 10,000 positions" in str(caught.value)
    assert asked(forward, Alibi(8, "symmetric"), length=512).sound


def test_a_call_that_would_work_is_named():
    with pytest.raises(CannotCheck, match='call="counts"'):
        check_bias(counting(linear(8)), Alibi(8), backend="numpy")


def test_words_that_are_not_known_are_refused():
    for options in ({"call": "x"}, {"aligned": "middle"}, {"dtype": "int8"}, {"length": 1}):
        with pytest.raises(InvalidValue, match=next(iter(options))):
            check_bias(linear(8), Alibi(8), **options)


def test_a_last_axis_that_has_the_queries_in_place_of_the_keys_is_no_bias_for_one_query():
    def counted(query_length, key_length):
        rows = min(query_length, key_length)
        return np.array(paper_slopes(8))[:, None, None] * np.arange(rows)[None, None]

    report = check_bias(counted, Alibi(8), raises=False)
    assert report.codes == {"bias-dropped"}
    assert "its last axis has the queries of the call, not all keys" in report.left_out["chunks equal the full pass"]
