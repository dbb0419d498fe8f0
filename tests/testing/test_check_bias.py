"""Biases written by plain arithmetic, as published code has them: right ones pass, and each fault is named."""

import functools
import importlib
import math
import time

import numpy as np
import pytest

import clockhands as ch
from clockhands.biases import (
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
from clockhands.errors import InvalidType, InvalidValue
from clockhands.faults import FAULTS, bias_rows
from clockhands.testing import CannotCheck, CheckFailed, check_bias
from clockhands.testing.bias_bounds import near_edge

LIBRARIES = {"numpy": "numpy", "torch": "torch", "jax": "jax.numpy"}
RNG = np.random.default_rng(7)


def arrays(name):
    pytest.importorskip(name)
    return importlib.import_module(LIBRARIES[name])


def cast(xp, a, dtype):
    if xp.__name__ == "torch":
        return a.to(getattr(xp, dtype))
    return a.astype(importlib.import_module("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype)


def paper_slopes(heads):
    """As the paper's code has them."""

    def power_of_two(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    below = 2 ** math.floor(math.log2(heads))
    return power_of_two(below) + ([] if below == heads else paper_slopes(2 * below)[0::2][: heads - below])


def bloom_slopes(heads):
    """The root in float32, raised to whole powers."""
    below = 2 ** math.floor(math.log2(heads))
    root = np.float32(2 ** (-(2 ** -(math.log2(below) - 3))))
    slopes = root ** np.arange(1, 1 + below, dtype=np.int32)
    if below == heads:
        return slopes
    root = np.float32(2 ** (-(2 ** -(math.log2(2 * below) - 3))))
    return np.concatenate([slopes, root ** np.arange(1, 1 + 2 * (heads - below), 2, dtype=np.int32)])


def mpt_slopes(heads):
    """Exponents in float32, of the power above, odd ones first."""
    above = 2 ** math.ceil(math.log2(heads))
    slopes = 1 / np.float32(2) ** (np.arange(1, above + 1, dtype=np.float32) * np.float32(8 / above))
    return slopes if above == heads else np.concatenate([slopes[1::2], slopes[::2]])[:heads]


def linear(heads, xp=np, *, form="distance", slopes=paper_slopes, dtype="float32", tokens=None, made=None):
    """ALiBi of positions, with a slip in the slopes, the tokens or what comes back."""
    factors = cast(xp, xp.asarray(np.array(slopes(heads), np.float64)), dtype)[:, None, None]

    def forward(queries, keys):
        apart = queries[:, None] - keys[None, :]
        at = {
            "distance": lambda: -apart,
            "past": lambda: -xp.clip(apart, 0, None),
            "symmetric": lambda: -xp.abs(apart),
            "key": lambda: keys[None, :] + 0 * apart,
            "last-key": lambda: keys[None, :] - keys.max() + 0 * apart,
        }[form]()
        at = cast(xp, at, dtype)
        out = factors * (at if tokens is None else tokens(at))
        return out if made is None else made(out, queries, keys)

    return forward


def t5_buckets(apart, xp=np, *, bidirectional=True, buckets=32, furthest=128, up=False):
    """The row of each distance, as Transformers has it: key minus query, the logarithm in float32."""
    relative, rows = -apart, 0 * apart
    if bidirectional:
        buckets //= 2
        rows = rows + cast(xp, relative > 0, "int64") * buckets
        sizes = xp.abs(relative)
    else:
        sizes = xp.clip(-relative, 0, None)
    first = buckets // 2
    large = xp.log(cast(xp, xp.clip(sizes, first, None), "float32") / first) / math.log(furthest / first)
    large = large * (buckets - first)
    large = first + cast(xp, xp.ceil(large) if up else large, "int64")
    return rows + xp.where(sizes < first, sizes, xp.clip(large, None, buckets - 1))


def deberta_rows(apart, *, span=256, furthest=512, rounded=np.ceil):
    """As Transformers has them."""
    middle = span // 2
    sizes = np.where((apart < middle) & (apart > -middle), middle - 1, np.abs(apart))
    log = rounded(np.log(np.float32(sizes) / np.float32(middle)) / math.log((furthest - 1) / middle) * (middle - 1))
    found = np.where(sizes <= middle, apart, (log + middle) * np.sign(apart)).astype(np.int64)
    return np.clip(found + span, 0, 2 * span - 1)


def table(rows, heads=4, seed=3):
    """As training leaves one: every row of its own."""
    return np.random.default_rng(seed).standard_normal((rows, heads)).astype(np.float32)


def looked_up(values, rows, xp=np, made=None):
    held = xp.asarray(values)

    def forward(queries, keys):
        out = xp.moveaxis(held[rows(queries[:, None] - keys[None, :])], -1, 0)
        return out if made is None else made(out, queries, keys)

    return forward


def asked(fn, like, **options):
    return check_bias(fn, like, raises=False, **options)


def counting(of_positions):
    """The same called with numbers, the last query at the last key."""
    return lambda queries, keys: of_positions(np.arange(keys - queries, keys), np.arange(keys))


# --- right ones ---


@pytest.mark.parametrize("library", LIBRARIES)
def test_alibi_as_published_code_has_it_passes(library):
    xp = arrays(library)
    assert asked(linear(8, xp), Alibi(8), backend=library).sound


@pytest.mark.parametrize("form", ["distance", "past", "key", "last-key"])
@pytest.mark.parametrize("declared", ["distance", "past", "key", "last-key"])
def test_forms_that_softmax_does_not_tell_apart_are_all_right(form, declared):
    report = asked(linear(12, form=form), Alibi(12, declared))
    assert report.sound, report
    assert report.called["keys after the query"] == "not compared"


@pytest.mark.parametrize("slopes", [paper_slopes, bloom_slopes, mpt_slopes])
@pytest.mark.parametrize("heads", [8, 12, 20, 40, 112])
def test_slopes_made_in_float32_are_within_the_bound(slopes, heads):
    report = asked(linear(heads, slopes=slopes), Alibi(heads))
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


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (320, 800), (16, 64), (64, 1024)])
def test_t5_buckets_as_published_code_has_them_pass(library, bidirectional, buckets, furthest):
    xp, values = arrays(library), table(buckets)
    rows = functools.partial(t5_buckets, xp=xp, bidirectional=bidirectional, buckets=buckets, furthest=furthest)
    like = Buckets(4, buckets, furthest, bidirectional)
    for given in (values, None):
        report = asked(looked_up(values, rows, xp), like, values=given, backend=library)
        assert report.sound, report


def test_deberta_buckets_as_published_code_has_them_pass():
    values = table(512)
    report = asked(looked_up(values, deberta_rows), CeilingBuckets(4), values=values)
    assert report.sound, report


def test_clipped_distances_pass():
    values = table(64)
    rows = lambda apart: np.clip(apart, -32, 31) + 32  # noqa: E731
    assert asked(looked_up(values, rows), Clipped(4, 32), values=values).sound


def test_the_decay_of_retention_passes():
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


SIZES = [(4, 64), (8, 100), (16, 64), (16, 500), (32, 64), (32, 128), (32, 1024), (64, 100), (160, 500), (320, 800)]


@pytest.mark.parametrize(("buckets", "furthest"), SIZES)
@pytest.mark.parametrize("divided", [False, True])
def test_float32_puts_distances_wrong_only_where_that_is_allowed(buckets, furthest, divided):
    like, at = Buckets(1, buckets, furthest, bidirectional=False), np.arange(furthest + 10)
    first = buckets // 2
    far = np.log(np.maximum(at, first).astype(np.float32) / np.float32(first))
    steps, whole = buckets - first, math.log(furthest / first)
    y = far * np.float32(steps / whole) if divided else far / np.float32(whole) * np.float32(steps)
    rows = np.where(at < first, at, np.minimum(first + np.floor(y).astype(np.int64), buckets - 1))
    wrong = rows != row_numbers(like, at, [0])[:, 0]
    assert not (wrong & ~near_edge(like, at)).any()
    assert near_edge(like, at).sum() <= buckets


@pytest.mark.parametrize(("distance", "right"), [(16, True), (32, True), (17, False), (15, False)])
def test_a_distance_in_the_bucket_before_is_right_on_an_edge_only(distance, right):
    values = table(32)

    def rows(apart):
        found = t5_buckets(apart)
        return np.where(apart == distance, found - 1, np.where(apart == -distance, found - 1, found))

    assert asked(looked_up(values, rows), Buckets(4), values=values).sound == right


# --- wrong ones ---


def codes(report):
    assert not report.sound
    assert report.explanations, report
    return report.explanations[0].codes


def geometric(heads, octaves=8.0, start=1):
    return 2.0 ** (-octaves * (start + np.arange(heads)) / heads)


def rounded_to(dtype, numbers):
    return cast(np, cast(np, np.asarray(numbers), dtype), "float64")


def of_one(out, queries, _keys):
    return out * (len(queries) > 1)


def shifted(by, fn):
    return lambda queries, keys: fn(queries + by, keys)


def kept(fn):
    """Keeps the longest matrix, and cuts it at its top."""
    held = []

    def forward(queries, keys):
        if not held or held[0].shape[-1] < len(keys):
            held[:] = [fn(queries, keys)]
        cut = held[0][:, : len(queries), : len(keys)]
        return cut + np.zeros((len(queries), len(keys)))

    return forward


def numbered(fn):
    """The first call with so many queries and keys is kept."""
    held = {}
    return lambda queries, keys: held.setdefault((len(queries), len(keys)), fn(queries, keys))


VALUES = table(32)
SYMMETRIC = linear(8, form="symmetric")
T5 = looked_up(VALUES, t5_buckets)


def t5(**slip):
    return looked_up(VALUES, functools.partial(t5_buckets, **slip))


WRONG = {
    "first-slope-one": (linear(8, slopes=lambda n: geometric(n, start=0)), Alibi(8)),
    "slopes-rule one series": (linear(12, slopes=geometric), Alibi(12)),
    "slopes-rule of powers": (linear(12), Alibi(12, series="plain")),
    "slopes-rule reversed": (linear(12, slopes=lambda n: paper_slopes(n)[::-1]), Alibi(12)),
    "slopes-rule halves": (linear(16, slopes=lambda n: 2.0 ** -(1.0 + np.arange(n))), Alibi(16)),
    "slopes-rule halvings": (linear(8, slopes=lambda n: geometric(n, 16.0)), Alibi(8)),
    "slopes-rule of none": (linear(4, slopes=lambda _: [0.3, 0.2, 0.05, 0.01]), Alibi(4)),
    "slope-sign": (linear(8, form="symmetric", slopes=lambda n: -np.array(paper_slopes(n))), Alibi(8, "symmetric")),
    "other-form": (linear(8), Alibi(8, "symmetric")),
    "bias-scaled": (linear(8, slopes=lambda n: np.array(paper_slopes(n)) / math.sqrt(64)), Alibi(8)),
    "bias-scaled left out": (T5, Buckets(4, scale=8.0), {"values": VALUES}),
    "one-sided-buckets own": (t5(bidirectional=False), Buckets(4)),
    "heads-exchanged": (looked_up(VALUES[:, [1, 0, 2, 3]], t5_buckets), Buckets(4), {"values": VALUES}),
    "other-direction": (looked_up(VALUES, lambda d: t5_buckets(-d)), Buckets(4), {"values": VALUES}),
    "one-sided-buckets": (t5(bidirectional=False), Buckets(4), {"values": VALUES}),
    "two-sided-buckets": (T5, Buckets(4, bidirectional=False), {"values": VALUES}),
    "another-number-of-buckets": (t5(buckets=16), Buckets(4), {"values": VALUES}),
    "another-max-distance": (t5(furthest=256), Buckets(4), {"values": VALUES}),
    "another-max-distance own": (t5(furthest=256), Buckets(4)),
    "another-max-distance nearer": (T5, Buckets(4, max_distance=256)),
    "another-number-of-buckets own": (t5(buckets=16), Buckets(4)),
    "buckets-rounded-up": (t5(up=True), Buckets(4), {"values": VALUES}),
    "buckets-rounded-up own": (t5(up=True), Buckets(4)),
    "buckets-rounded-down": (
        looked_up(table(512), functools.partial(deberta_rows, rounded=np.floor)),
        CeilingBuckets(4),
        {"values": table(512)},
    ),
    "slopes-rounded": (linear(12, slopes=lambda n: rounded_to("float16", paper_slopes(n))), Alibi(12)),
    "distances-rounded": (linear(12, tokens=functools.partial(rounded_to, "float16")), Alibi(12)),
    "distances-rounded key": (linear(12, form="key", tokens=functools.partial(rounded_to, "float16")), Alibi(12)),
    "bias-rounded": (linear(12, made=lambda out, *_: rounded_to("float16", out)), Alibi(12)),
    "positions-rounded": (
        lambda q, k: linear(8, form="symmetric")(rounded_to("float16", q), rounded_to("float16", k)),
        Alibi(8, "symmetric"),
    ),
    "positions-ignored": (
        lambda q, k: SYMMETRIC(np.arange(len(q)) + len(k) - len(q), np.arange(len(k))),
        Alibi(8, "symmetric"),
    ),
    "bias-of-first-rows": (counting(lambda q, k: SYMMETRIC(q - q[0], k)), Alibi(8, "symmetric"), {"call": "counts"}),
    "bias-of-first-rows kept": (counting(kept(SYMMETRIC)), Alibi(8, "symmetric"), {"call": "counts"}),
    "bias-dropped": (linear(8, made=of_one), Alibi(8)),
    "bias-dropped everywhere": (linear(8, made=lambda out, *_: 0 * out), Alibi(8)),
    "later-keys-masked": (
        linear(8, form="symmetric", made=lambda out, q, k: np.where(q[:, None] < k, -np.inf, out)),
        Alibi(8, "symmetric"),
    ),
    "distance-offset": (shifted(1, T5), Buckets(4), {"values": VALUES}),
    "distances-clipped": (linear(8, tokens=lambda at: np.maximum(at, -2048)), Alibi(8)),
    "cache-keeps-first-length": (numbered(SYMMETRIC), Alibi(8, "symmetric")),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_is_named(name):
    fn, like, *options = WRONG[name]
    report = asked(fn, like, **(options[0] if options else {}))
    named = codes(report)
    assert name.split()[0] in named, report
    assert len(named) <= 3


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_fault_is_named_in_other_libraries(library):
    xp = arrays(library)
    report = asked(linear(12, xp, slopes=geometric), Alibi(12), backend=library)
    assert codes(report) == ("slopes-rule",)
    assert report.called["library"] == library


def test_what_a_fault_says_has_its_numbers():
    text = str(asked(linear(12, slopes=geometric), Alibi(12)))
    assert "one geometric series through all heads" in text
    assert "head 0" in text
    assert "mlx#3071" in text


@pytest.mark.parametrize("distance", [1, 257, 4_321, 9_999])
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


def test_a_cache_with_its_key_passes():
    assert check_bias(make=cached(lambda spec: spec), like=Alibi(8)).sound


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


def test_a_builder_that_raises_is_told():
    with pytest.raises(CannotCheck, match="ZeroDivisionError"):
        check_bias(make=lambda _: 1 / 0, like=Alibi(8))


def test_values_of_another_shape_are_refused():
    with pytest.raises(InvalidValue, match="shape"):
        check_bias(T5, Buckets(4), values=VALUES.T)


# --- how it is called ---


@pytest.mark.parametrize("lead", [(), (1,), (1, 1)])
def test_counts_and_leading_axes(lead):
    def forward(queries, keys):
        out = counting(linear(8))(queries, keys)
        return out.reshape(*lead, *out.shape)

    report = asked(forward, Alibi(8), call="counts")
    assert report.sound, report
    assert "any order" in report.left_out


def test_one_row_for_all_queries_is_added_to_each():
    slopes = np.array(paper_slopes(12), np.float32)[:, None, None]
    report = asked(lambda keys: slopes * np.arange(keys, dtype=np.float32), Alibi(12, "key"), call="keys")
    assert report.sound, report
    assert not asked(lambda keys: slopes * np.arange(keys), Alibi(12, "symmetric"), call="keys").sound


def test_a_square_of_all_keys_is_asked_for_its_last_row():
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


@pytest.mark.parametrize("mask", [-np.inf, -1e4, np.finfo(np.float32).min])
def test_a_mask_over_later_keys_is_allowed_where_they_are_not_seen(mask):
    def masked(out, queries, keys):
        return np.where(queries[:, None] < keys[None, :], np.float32(mask), out)

    report = asked(linear(8, made=masked), Alibi(8))
    assert report.sound, report
    assert report.called["keys after the query"] == "masked"
    two_sided = linear(8, form="symmetric", made=masked)
    assert codes(asked(two_sided, Alibi(8, "symmetric"))) == ("later-keys-masked",)
    assert asked(two_sided, Alibi(8, "symmetric"), causal=True).sound


def test_nan_under_a_mask_is_a_failure():
    def masked(out, queries, keys):
        return np.where(queries[:, None] < keys[None, :], np.nan, out)

    assert not asked(linear(8, made=masked), Alibi(8)).sound


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


# --- what cannot be called ---


def nothing(*_):
    return None


def hangs(*_):
    time.sleep(5)


def raises(*_):
    raise RuntimeError("no kernel for this")


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (lambda queries, keys: linear(8)(queries, keys)[0], r"gave back shape \[7, 12\], where \[8, 7, 12\] is right"),
        (lambda queries, keys: np.swapaxes(linear(8)(queries, keys), -1, -2), r"gave back shape \[8, 12, 7\]"),
        (lambda *_: np.zeros((8, 7, 12), np.int64), "gave back int64, not real numbers"),
        (lambda *_: np.full((8, 7, 12), np.nan), "no number that it gave back is finite"),
        (nothing, "gave back nothing"),
        (hangs, "did not come back within 0.2 seconds"),
        (raises, "it raised RuntimeError: no kernel for this"),
    ],
)
def test_what_cannot_be_called_gets_one_sentence(fn, said):
    with pytest.raises(CannotCheck, match=said) as caught:
        check_bias(fn, Alibi(8), backend="numpy", timeout=0.2 if fn is hangs else 60)
    assert "\nhint: " in str(caught.value)


def test_a_table_that_ends_is_asked_for_its_length():
    whole = SYMMETRIC(np.arange(512), np.arange(512))

    def forward(queries, keys):
        return whole[:, queries][:, :, keys]

    with pytest.raises(CannotCheck, match="IndexError") as caught:
        check_bias(forward, Alibi(8, "symmetric"))
    assert "Say length= for a function of fewer than 10,000 positions" in str(caught.value)
    assert asked(forward, Alibi(8, "symmetric"), length=512).sound


def test_a_call_that_would_work_is_named():
    with pytest.raises(CannotCheck, match='call="counts"'):
        check_bias(counting(linear(8)), Alibi(8), backend="numpy")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"call": "x"}, "call"),
        ({"aligned": "middle"}, "aligned"),
        ({"dtype": "int8"}, "dtype"),
        ({"length": 1}, "length"),
    ],
)
def test_words_that_are_not_known_are_refused(options, said):
    with pytest.raises(InvalidValue, match=said):
        check_bias(linear(8), Alibi(8), **options)


def test_codes_of_another_kind_are_refused():
    with pytest.raises(InvalidType, match="must be a bias code, got Rotary"):
        check_bias(linear(8), ch.Rotary(64))
    with pytest.raises(InvalidType, match="neither a function"):
        check_bias(None, Alibi(8))


# --- reports ---


def test_a_failure_is_raised_and_a_preset_is_resolved():
    assert check_bias(linear(12, form="key"), "bloom:heads=12").sound
    with pytest.raises(CheckFailed) as caught:
        check_bias(linear(12, slopes=geometric), "bloom:heads=12")
    assert caught.value.report.codes == {"slopes-rule"}
    assert caught.value.report.to_dict()["kind"] == "bias"


def test_each_fault_of_a_bias_is_tried_here():
    tried = {name.split()[0] for name in WRONG}
    tried |= {"cache-without-heads", "cache-without-slopes", "cache-without-max-distance", "axes-exchanged"}
    tried |= {"bias-from-key-only", "buckets-not-apart", "changes-its-arguments", "one-number-wrong"}
    assert tried == {fault.code for fault in bias_rows.FAULTS}


def test_each_fault_of_a_bias_is_in_the_list_of_all():
    for fault in bias_rows.FAULTS:
        assert "bias" in FAULTS[fault.code].about
        assert set(fault.cases) <= set(FAULTS[fault.code].cases)
