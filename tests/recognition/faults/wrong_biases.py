"""The slips of biases, one row each, with the code that names it."""

import functools
import math

import numpy as np

from clockhands.encodings.biases import Alibi, Buckets, CeilingBuckets
from recognition.faults.rows import LOW, named, one_of, row, through
from testing.written_biases import deberta_rows, geometric, linear, looked_up, paper_slopes, t5_buckets, table

# --- builders: `forward(queries, keys)`, arrays of positions ---


def alibi(spec, wrong, xp, **slip):
    """ALiBi; the slip is in its slopes, its form, its distances, its positions or in what is made of the bias."""
    slip = slip if wrong else {}
    slopes = slip.get("slopes", paper_slopes if spec.series == "powers" else geometric)

    def distances(at):
        at = through(xp, at, slip.get("distances"))
        return xp.clip(at, -slip["furthest"], None) if "furthest" in slip else at

    bias = linear(
        spec.heads,
        xp,
        form=slip.get("form", spec.form),
        slopes=lambda heads: through(np, np.asarray(slopes(heads), np.float32), slip.get("slopes_in")),
        tokens=distances,
        made=lambda *made: slip.get("made", as_it_is)(*made, xp),
    )
    if "at_dtype" in slip:
        return lambda *at: bias(*(through(xp, each, slip["at_dtype"]) for each in at))
    return bias


def bucketed(spec, wrong, xp, *, values, direction=1, shift=0, heads=None, made=None, **slip):
    """T5's, with the trained table [buckets, heads]."""
    held = values[:, heads] if wrong and heads else values
    kept = {"bidirectional": spec.bidirectional, "buckets": spec.buckets, "furthest": spec.max_distance}
    rows = functools.partial(t5_buckets, xp=xp, **(kept | slip if wrong else kept))
    bias = looked_up(np.float32(spec.scale) * held, lambda apart: rows(direction * apart) if wrong else rows(apart), xp)

    def forward(queries, keys):
        out = bias(queries + (shift if wrong else 0), keys)
        return made(out, queries, keys, xp) if wrong and made else out

    return forward


def of_table(_, wrong, xp, *, values, rounded):
    """DeBERTa's."""
    return looked_up(values, functools.partial(deberta_rows, rounded=rounded if wrong else np.ceil), xp)


def unscaled(spec, wrong, xp, *, values):
    return looked_up(values if wrong else np.float32(spec.scale) * values, functools.partial(t5_buckets, xp=xp), xp)


def counted(spec, wrong, xp, what="first rows"):
    """`forward(number of queries, number of keys)`, the last query at the last key."""
    bias, held = alibi(spec, False, xp), []

    def forward(queries, keys):
        out = bias(xp.arange(keys - queries, keys), xp.arange(keys))
        if wrong and what == "dropped":  # once a cache exists there is a single query (HabanaAI vllm-fork#503)
            return out * 0 if queries == 1 and keys > 1 else out
        if wrong and what == "first rows":  # OpenNMT-py
            return bias(xp.arange(queries), xp.arange(keys))
        if wrong and what == "kept":  # the longest matrix, cut at its top
            if not held or held[0].shape[-1] < keys:
                held[:] = [out]
            return held[0][:, :queries, :keys] + xp.zeros((queries, keys))
        return out

    return forward


def counted_rows(spec, wrong, xp):
    """Positions are not looked at."""
    bias = alibi(spec, False, xp)
    if not wrong:
        return bias
    return lambda q, k: bias(xp.arange(len(q)) + len(k) - len(q), xp.arange(len(k)))


def first_length(spec, wrong, xp):
    """The first call with so many queries and keys is kept."""
    bias, held = alibi(spec, False, xp), {}
    return lambda q, k: held.setdefault((len(q), len(k)), bias(q, k)) if wrong else bias(q, k)


# --- what is made of the bias ---


as_it_is = named("as_it_is", lambda out, *_: out)
dropped = named("dropped", lambda out, queries, *_: out * (len(queries) > 1))
gone = named("gone", lambda out, *_: 0 * out)


def rounded(out, _queries, _keys, xp):
    return through(xp, out, "float16")


def masked(out, queries, keys, xp):
    return xp.where(queries[:, None] < keys[None, :], -math.inf, out)


# --- rules of slopes ---


def first_one(heads):
    """The series starts at exponent 0 (aprender#2143)."""
    return geometric(heads, start=0)


def not_strided(heads):
    """The first of the next power's slopes, not every other one."""
    below = 2 ** math.floor(math.log2(heads))
    return paper_slopes(below) + paper_slopes(2 * below)[: heads - below]


backwards = named("backwards", lambda heads: paper_slopes(heads)[::-1])
negative = named("negative", lambda heads: -np.array(paper_slopes(heads)))
an_eighth = named("an_eighth", lambda heads: np.array(paper_slopes(heads)) / math.sqrt(64))
halves = named("halves", lambda heads: 2.0 ** -(1.0 + np.arange(heads)))
halvings = named("halvings", lambda heads: geometric(heads, 16.0))
of_no_rule = named("of_no_rule", lambda _: [0.3, 0.2, 0.05, 0.01])


# --- what they should be ---


def of(kind, *given, **fields):
    def spec(_layout):
        return kind(*given, **fields)

    spec.__name__ = "-".join(map(str, (kind.__name__.lower(), *given, *fields.values())))
    return spec


def trained(spec):
    """A table as training leaves one: every row of its own."""
    return table(2 * spec.span if isinstance(spec, CeilingBuckets) else spec.buckets, spec.heads, seed=11)


FOUR, EIGHT, TWELVE, SIXTEEN = (of(Alibi, heads) for heads in (4, 8, 12, 16))
PLAIN_SERIES, SYMMETRIC = of(Alibi, 12, series="plain"), of(Alibi, 8, form="symmetric")
ENCODER, DECODER = of(Buckets, 4), of(Buckets, 4, bidirectional=False)


def _row(case, builder, *codes, spec=TWELVE, **more):
    values = {"values": trained} if builder in (bucketed, of_table, unscaled) else {}
    return row(case, builder, *codes, spec=spec, **{"exact": False, "layouts": ("halves",), **values, **more})


def seen_slopes(draw, spec):
    """Rounding that moves a slope: powers of two stay."""
    moved = through(np, np.float32(paper_slopes(spec.heads)), "float16") != np.float32(paper_slopes(spec.heads))
    return {"slopes_in": draw.choice(("bfloat16", "float16"))} if moved.any() else None


COUNTS = {"call": "counts"}
POWERS, OTHERS = {"heads": (4, 8, 16, 32)}, {"heads": (6, 12, 20, 24, 40)}

D3 = (
    _row("D3#4", alibi, "first-slope-one", spec=EIGHT, slip={"slopes": first_one}, drawn="spec", limits=POWERS),
    _row("D3#5", alibi, "slopes-rule", slip={"slopes": geometric}, drawn="spec", limits=OTHERS),
    _row("D3#6", alibi, "slopes-rule", spec=PLAIN_SERIES, slip={"slopes": paper_slopes}),
    _row("D3#7", alibi, "slopes-rule", slip={"slopes": not_strided}, drawn="spec", limits=OTHERS),
    _row("D3#8", counted, "bias-dropped", spec=EIGHT, slip={"what": "dropped"}, options=COUNTS),
    _row("D3#8", alibi, "bias-dropped", spec=EIGHT, slip={"made": dropped}, drawn="spec", limits=POWERS),
    _row("D3#9", alibi, "slopes-rounded", slip={"slopes_in": "float16"}, drawn=seen_slopes, limits=OTHERS),
    _row("D3#9", alibi, "slopes-rounded", slip={"slopes_in": "bfloat16"}),
    _row("D3#12", bucketed, "bias-dropped", spec=DECODER, slip={"made": dropped}, drawn="spec"),
    _row("D3#13", bucketed, "buckets-rounded-up", spec=ENCODER, slip={"up": True}, drawn="spec"),
    _row("D3#13", bucketed, "one-sided-buckets", spec=ENCODER, slip={"bidirectional": False}, drawn="spec",
         limits={"bidirectional": True}),
    _row("D3#13", bucketed, "two-sided-buckets", spec=DECODER, slip={"bidirectional": True}, drawn="spec",
         limits={"bidirectional": False}),
    _row("D3#13", bucketed, "another-number-of-buckets", spec=ENCODER, slip={"buckets": 16},
         drawn=lambda _, spec: {"buckets": spec.buckets // 2}),
    _row("D3#13", bucketed, "another-max-distance", spec=ENCODER, slip={"furthest": 256},
         drawn=lambda _, spec: {"furthest": 2 * spec.max_distance}),
)  # fmt: skip

FURTHER = (
    _row("OpenNMT-py", counted, "bias-of-first-rows", spec=SYMMETRIC, slip={"what": "first rows"}, options=COUNTS,
         drawn="spec", limits=POWERS | {"form": "symmetric"}),
    _row("OpenNMT-py", counted, "bias-of-first-rows", spec=SYMMETRIC, slip={"what": "kept"}, options=COUNTS),
    _row("sign", alibi, "slope-sign", "other-direction", spec=EIGHT, slip={"slopes": negative}, drawn="spec",
         limits=POWERS),
    _row("sign", alibi, "slope-sign", spec=SYMMETRIC, slip={"slopes": negative}),
    _row("order", alibi, "slopes-rule", spec=EIGHT, slip={"slopes": backwards}, drawn="spec", limits=POWERS),
    _row("order", alibi, "slopes-rule", slip={"slopes": backwards}),
    _row("rule", alibi, "slopes-rule", spec=SIXTEEN, slip={"slopes": halves}),
    _row("rule", alibi, "slopes-rule", spec=EIGHT, slip={"slopes": halvings}),
    _row("rule", alibi, "slopes-rule", spec=FOUR, slip={"slopes": of_no_rule}),
    _row("scale", alibi, "bias-scaled", spec=EIGHT, slip={"slopes": an_eighth}),
    _row("scale", unscaled, "bias-scaled", spec=of(Buckets, 4, scale=8.0)),
    _row("form", alibi, "other-form", spec=SYMMETRIC, slip={"form": "distance"}),
    _row("falcon", alibi, "distances-rounded", spec=EIGHT, slip={"distances": "bfloat16"},
         drawn=one_of(distances=LOW), limits=POWERS),
    _row("distances", alibi, "distances-rounded", slip={"distances": "float16"}),
    _row("distances", alibi, "distances-rounded", slip={"distances": "float16", "form": "key"}),
    _row("distances", alibi, "distances-clipped", spec=EIGHT, slip={"furthest": 2048}),
    _row("distances", bucketed, "distance-offset", spec=ENCODER, slip={"shift": 1}),
    _row("rounded", alibi, "bias-rounded", slip={"made": rounded}),
    _row("positions", alibi, "positions-rounded", spec=SYMMETRIC, slip={"at_dtype": "float16"}),
    _row("positions", counted_rows, "positions-ignored", spec=SYMMETRIC),
    _row("dropped", alibi, "bias-dropped", spec=EIGHT, slip={"made": gone}),
    _row("masked", alibi, "later-keys-masked", spec=SYMMETRIC, slip={"made": masked}),
    _row("lengths", first_length, "cache-keeps-first-length", spec=SYMMETRIC),
    _row("direction", bucketed, "other-direction", spec=ENCODER, slip={"direction": -1}, drawn="spec"),
    _row("heads", bucketed, "heads-exchanged", spec=ENCODER, slip={"heads": [1, 0, 2, 3]}),
    _row("own", bucketed, "one-sided-buckets", spec=ENCODER, slip={"bidirectional": False}, own=True),
    _row("own", bucketed, "another-number-of-buckets", spec=ENCODER, slip={"buckets": 16}, own=True),
    _row("own", bucketed, "another-max-distance", spec=ENCODER, slip={"furthest": 256}, own=True),
    _row("own", bucketed, "another-max-distance", spec=of(Buckets, 4, max_distance=256), slip={"furthest": 128},
         own=True),
    _row("own", bucketed, "buckets-rounded-up", spec=ENCODER, slip={"up": True}, own=True),
    _row("DeBERTa", of_table, "buckets-rounded-down", spec=of(CeilingBuckets, 4), slip={"rounded": np.floor},
         frameworks=("numpy",)),
)  # fmt: skip

ROWS = D3 + FURTHER
