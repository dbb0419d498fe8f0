"""Write the numbers that the explorer's JavaScript is held to: tests/explorer/golden/*.json, made by the Python code.

Each file holds cases: what is asked, as JavaScript asks it, and the float64 numbers that Python answers. The positions
go to 2**20, where the page promises 1e-9, and for the phases of ladders to 2**53 - 1. Run it after a formula or a
preset has changed; a test says when.
"""

import json
import math
from collections.abc import Callable, Iterator
from decimal import Decimal, getcontext
from pathlib import Path
from typing import Any

import numpy as np

from clockhands.auditing.frequency_bands import Band
from clockhands.encodings.additive import (
    Binary,
    Counter,
    EvenlySpaced,
    NoPosition,
    NormalizedCounter,
    SineOnly,
    SingleFrequency,
    Sinusoidal,
    WarpedPosition,
    table,
)
from clockhands.encodings.biases import Alibi, Buckets, CeilingBuckets, Clipped, Decay, Fire, Kerple, Slopes, bias
from clockhands.encodings.biases.matrices import row_numbers
from clockhands.encodings.clocks import kernel, shift
from clockhands.encodings.dtypes import output_dtype
from clockhands.encodings.heads import margin, relative_head
from clockhands.encodings.ladders import EvenSteps, Explicit, Geometric, Joined, Repeated, geometric
from clockhands.encodings.phases import units
from clockhands.encodings.positions import positions_of
from clockhands.encodings.presets import presets
from clockhands.encodings.rotary import Rotary, XPos, rotate
from clockhands.encodings.scaling import Dynamic, Linear, Llama3, LongRope, MixedNtk, Ntk, Proportional, Yarn
from clockhands.encodings.specs import to_dict
from clockhands.measures.adding._score_terms import commuting_form, offset_share
from clockhands.measures.ladders._angle_errors import FROM_A_BASE, WAYS, phase_errors, rounded
from clockhands.measures.ladders.turning import completes
from clockhands.measures.shifts._kernels import first_negative, first_rise, kernel_bound, kernel_by_distance
from seeded_draw import SeededDraw, sentence_layer, word_vector

getcontext().prec = 60  # digits of an angle that is written as a text

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "explorer" / "golden"

LAST = 2**20
POSITIONS = (0, 1, 97, 65_537, LAST - 1, LAST)
FAR = (*POSITIONS[1:], 2**40 + 1, 2**53 - 1)
ADDITIVE = (Sinusoidal, Counter, NormalizedCounter, Binary, SineOnly, SingleFrequency, EvenlySpaced, WarpedPosition)
TABLES = (Buckets, CeilingBuckets, Clipped)
LINES = (Alibi, Decay, Slopes)

Case = dict[str, Any]


def spread(count: int, most: int) -> list[int]:
    """So many of ``range(count)``, the first three and the last among them."""
    places = {0, 1, 2, count - 1, *(round(place * (count - 1) / (most - 1)) for place in range(most))}
    return sorted(place for place in places if 0 <= place < count)


def ladders() -> Iterator[Case]:
    """Rates, what their doubles miss, and phases far beyond what one double could tell."""
    spacings = (
        (Geometric(), 256, 512),
        (Geometric(1e4, "closed"), 256, 512),
        (Geometric(100.0), 4, 8),
        (Geometric(1e6, "open", 1000.0), 64, 128),
        (Geometric(5e-5, "closed", math.pi), 128, 256),
        (Geometric(500_000.0, 64.0), 32, 64),
        (EvenSteps(1.0, 1e-4), 32, 64),
        (EvenSteps(1.0, 112.0, math.pi), 16, 32),
        (Explicit((1.0, 0.3, 0.0)), 3, 6),
        (Joined(((2, Geometric(100.0)), (3, Geometric()))), 5, 10),
        (Joined(((3, Geometric(100.0)), (3, Geometric())), in_turns=True), 6, 12),
        (Repeated(Geometric(100.0)), 8, 16),
    )
    for spacing, pairs, channels in spacings:
        made = spacing.ladder(pairs, channels)
        chosen = spread(pairs, 8)
        at = units(made, positions_of(list(FAR)))[:, chosen]
        yield {
            "spacing": parts(spacing),
            "pairs": pairs,
            "channels": channels,
            "chosen": chosen,
            "rates": [made.rates[pair] for pair in chosen],
            "lows": [float(made.exact[pair] - type(made.exact[pair])(made.rates[pair])) for pair in chosen],
            "positions": list(FAR),
            "cosines": at.real.tolist(),
            "sines": at.imag.tolist(),
        }


def parts(spacing: Any) -> Any:
    """A spacing as specs write it."""
    pairs = {Joined: lambda: sum(own for own, _ in spacing.parts), Explicit: lambda: len(spacing.rates)}
    width = 2 * pairs.get(type(spacing), lambda: 8)()
    return to_dict(Sinusoidal(width, spacing=spacing))["spacing"]


def turning() -> Iterator[Case]:
    """Which pairs complete a turn, where rounding could say otherwise; and how pairs are marked against two lengths."""
    lengths = sorted({*range(2, 400, 7), *spread(5000, 60)} - {0, 1})
    for off in (0.0, -5e-13, 5e-13, -2e-12, 2e-12):
        rates = [2 * math.pi / length * (1 + off) for length in lengths]
        done = [completes(rate, length) for rate, length in zip(rates, lengths, strict=True)]
        yield {"lengths": lengths, "rates": rates, "completes": done}
    for scaling, trained, served in (
        (None, 2048, 2048),
        (None, 2048, 8192),
        (None, 8192, 2048),
        (Linear(4.0), 4096, 16_384),
        (Linear(4.0), 4096, 32_768),
        (Ntk(4.0), 4096, 16_384),
        (Yarn(4.0, 4096), 4096, 16_384),
        (Llama3(8.0, 8192), 8192, 131_072),
        (Proportional(0.25, 1.0), 4096, 16_384),
    ):
        spec, plain = Rotary(128, base=500_000.0, scaling=scaling), Rotary(128, base=500_000.0)
        band = Band("", None if scaling is None else plain.rates, spec.rates, trained, served)
        yield {
            "spec": to_dict(spec),
            "trained": trained,
            "served": served,
            "before": list(band.marks_before),
            "after": list(band.marks),
        }


def additive() -> Iterator[Case]:
    """Every preset of one axis with a formula, and all that a sinusoid can be; then the codes one would try first."""
    specs = [(each.name, each.spec) for each in presets() if isinstance(each.spec, (*ADDITIVE, NoPosition))]
    orders = ("sin-cos", "cos-sin", "sin-sin", "cos-cos", "-sin-cos", "cos--sin")
    spans = ("open", "closed", 4.0)
    specs += [
        (f"{layout} {order} {span}", Sinusoidal(12, spacing=Geometric(100.0, span), layout=layout, order=order))
        for layout in ("interleaved", "halves")
        for order in orders
        for span in spans[: 3 if order == "sin-cos" else 1]
    ]
    specs += [
        (
            f"odd {odd} {layout}, {width} {span}",
            Sinusoidal(width, spacing=Geometric(100.0, span), layout=layout, odd=odd),
        )
        for odd in ("zero", "extra", "cut")
        for layout in ("interleaved", "halves")
        for width in (7, 129)
        for span in ("open", "closed")
    ]
    specs += [
        ("even steps", Sinusoidal(16, spacing=EvenSteps(1.0, 0.01))),
        ("explicit", Sinusoidal(6, spacing=Explicit((1.0, 0.3, 0.0)))),
        ("zero rows", Sinusoidal(8, zero_rows=(0, 97), scale=2.5)),
        ("standardised", Sinusoidal(8, standardised=17, scale=0.3)),
        ("counter, narrow", Counter(4)),
        ("normalised", NormalizedCounter(4, length=2048)),
        ("binary, 24 digits", Binary(24)),
        ("binary, wide", Binary(66)),
        ("sine", SineOnly(8)),
        ("single", SingleFrequency(8)),
        ("single, slow", SingleFrequency(4, rate=0.01, layout="halves", order="cos-sin")),
        ("even", EvenlySpaced(16)),
        ("even, rising", EvenlySpaced(8, first_rate=0.1, last_rate=2.0)),
        ("none", NoPosition(4)),
        *(
            (f"{warp} {base}", WarpedPosition(8, warp, base))
            for warp in ("square", "log", "reciprocal")
            for base in (100.0, 1e4)
        ),  # type: ignore[arg-type]
    ]
    for name, spec in specs:
        channels = spread(spec.width, 8)
        positions = POSITIONS[1:] if isinstance(spec, WarpedPosition) else POSITIONS
        values = 0.125 if spec.learned else None
        numbers = table(spec, list(positions), "float64", values=values)[:, channels]
        yield {
            "name": name,
            "spec": to_dict(spec),
            "scale": values,
            "positions": list(positions),
            "channels": channels,
            "table": numbers.tolist(),
        }


def head(width: int, step: int) -> np.ndarray:
    """A query or key that JavaScript makes too: of small numbers that doubles hold exactly."""
    return ((np.arange(width) * step) % 11 - 5) / 4


def rotary() -> Iterator[Case]:
    """Every rotary preset of one axis, and every scaling: ladders, turned heads, scores by distance."""
    base = {"head_width": 64, "base": 10_000.0}
    short, long = tuple(1 + pair / 64 for pair in range(32)), tuple(1 + pair / 4 for pair in range(32))
    scalings = (
        Linear(4.0),
        Ntk(4.0),
        Ntk(1.5),
        Dynamic(4.0, 4096),
        Yarn(4.0, 4096),
        Yarn(16.0, 4096, truncate=False),
        Yarn(8.0, 2048, beta_fast=16.0, beta_slow=2.0, ramp="turns"),
        Yarn(8.0, 2048, beta_fast=3.0, beta_slow=3.0, ramp="turns"),
        Yarn(4.0, 2, truncate=True),
        Yarn(40.0, 4096, mscale=1.0, mscale_all_dim=0.5),
        Yarn(40.0, 4096, attention_factor=1.25),
        Llama3(4.0, 4096),
        Llama3(8.0, 8192, low_freq_factor=2.0, high_freq_factor=2.0),
        LongRope(short, long, 4096, 32.0),
        LongRope(short, long, 4096, 32.0, short_mscale=1.1, long_mscale=1.2),
        Proportional(0.3, 2.0),
        MixedNtk(2.0),
        MixedNtk(8.0, 0.625),
    )
    specs = [(each.name, each.spec) for each in presets() if isinstance(each.spec, Rotary) and each.spec.axes is None]
    specs += [
        (f"{type(each).__name__} at {length}", Rotary(**base, scaling=each, length=length))
        for each in scalings
        for length in ((None, 4096, 10_000) if isinstance(each, Dynamic | LongRope) else (None,))
    ]
    specs += [
        ("decay about a centre", Rotary(16, xpos=XPos(scale=100.0, smoothing=0.25, centre=40.0))),
        ("two pairs", Rotary(4, scaling=Ntk(4.0))),
        ("ramp beyond the last pair", Rotary(8, base=100.0, scaling=Yarn(4.0, 10**6, beta_fast=64.0))),
        ("blocks", Rotary(16, "halves", blocks=(3, 0, 5))),
        ("reordered part", Rotary(16, "interleaved", rotated=8, part="last", reordered=True)),
        ("backward interleaved", Rotary(8, "interleaved", direction="backward")),
    ]
    for name, spec in specs:
        chosen, channels = spread(spec.ladder.pairs, 7), spread(spec.head_width, 6)
        query, key = head(spec.head_width, 7), head(spec.head_width, 3)
        positions = [at for at in POSITIONS if spec.xpos is None or at <= 4096]
        role = {"role": "query"} if spec.xpos else {}
        other = {"role": "key"} if spec.xpos else {}
        rows = np.repeat(query[None], len(positions), 0)
        # Without a length `rotate` refuses far positions; the page turns them by the ladder of the original one.
        code = spec.at_original
        turned = rotate(rows, code, positions, **role)
        still = rotate(np.repeat(key[None], len(positions), 0), code, [0] * len(positions), **other)
        as_key = rotate(np.repeat(key[None], len(positions), 0), code, positions, **other)
        yield {
            "name": name,
            "spec": to_dict(spec),
            "chosen": chosen,
            "rates": [spec.rates[pair] for pair in chosen],
            "attention_factor": spec.attention_factor,
            "positions": positions,
            "channels": channels,
            "queries": turned[:, channels].tolist(),
            "keys": as_key[:, channels].tolist(),
            "scores": (turned * still).sum(1).tolist(),
        }


def biases() -> Iterator[Case]:
    """Every bias of one axis: slopes, boundaries, rows and numbers."""
    specs = [(each.name, each.spec) for each in presets() if isinstance(each.spec, (*LINES, *TABLES, Kerple, Fire))]
    specs += [
        (f"{form} {heads}", Alibi(heads, form))
        for form in ("distance", "past", "symmetric", "key", "last-key")
        for heads in (1, 6)
    ]
    specs += [(f"slopes of {heads}", Alibi(heads)) for heads in (3, 16, 20, 40, 71)]
    specs += [
        ("plain series", Alibi(12, series="plain")),
        ("octaves", Alibi(12, octaves=3.0)),
        ("decay", Decay(6, first=3)),
        ("slopes of one's own", Slopes((0.5, 0.0, 3.25), "past")),
        ("few buckets", Buckets(2, buckets=4, max_distance=5)),
        ("powers of two", Buckets(2, buckets=32, max_distance=2048)),
        ("far buckets", Buckets(2, buckets=64, max_distance=2**20, bidirectional=False)),
        ("bounds that are whole with an epsilon", Buckets(2, buckets=8, max_distance=64, epsilon=1.0)),
        ("one way, whole with an epsilon", Buckets(2, buckets=8, max_distance=64, bidirectional=False, epsilon=1.0)),
        ("ceilings", CeilingBuckets(2, span=8, max_distance=260)),
        ("ceilings, odd", CeilingBuckets(2, span=9, max_distance=260)),
        ("clipped", Clipped(2, span=5)),
        ("symmetric kerple", Kerple(2, "power", symmetric=True)),
    ]
    places = (
        (0, 0),
        (5, 4),
        (4, 5),
        (9, 1),
        (0, 16),
        (100, 3),
        (3, 100),
        (300, 172),
        (LAST, 0),
        (0, LAST),
        (LAST, LAST - 130),
    )
    for name, spec in specs:
        case: Case = {"name": name, "spec": to_dict(spec), "pairs": [list(place) for place in places]}
        heads = case["heads"] = spread(spec.heads, 4)
        if isinstance(spec, LINES):
            case["slopes"] = list(spec.slopes)
        if isinstance(spec, (Buckets, CeilingBuckets)):
            case["boundaries"] = list(spec.boundaries)
        values = values_of(spec)
        if isinstance(spec, TABLES):
            case["rows"] = [int(row_numbers(spec, [query], [key])[0, 0]) for query, key in places]
            case["count"] = spec.rows
        elif values is not None:
            case["values"] = {each: array.tolist() for each, array in values.items()}
        # The last key stands three tokens further than the one that is asked for.
        numbers = [
            bias(spec, [query], [key, key + 3], values=values, dtype="float64")[:, 0, 0] for query, key in places
        ]
        case["numbers"] = [each[heads].tolist() for each in numbers]
        yield case


def values_of(spec: Any) -> dict[str, np.ndarray] | None:
    """Trained numbers that could be: for tables, row r and head h hold r - h / 4, which JavaScript makes too."""
    if isinstance(spec, TABLES):
        return {"table": np.arange(spec.rows)[:, None] - np.arange(spec.heads) / 4}
    if isinstance(spec, Kerple):
        return {"p": 0.5 + np.arange(spec.heads) / 8, "a": 0.25 + np.arange(spec.heads) / 16}
    if not isinstance(spec, Fire):
        return None
    unit = np.arange(spec.hidden)
    return {
        "c": np.array(0.375),
        "threshold": np.array(64.0),
        "w1": ((unit % 7 - 3) / 4)[:, None],
        "b1": (unit % 5 - 2) / 8,
        "w2": (np.arange(spec.heads)[:, None] * 3 + unit) % 9 / 8 - 0.5,
        "b2": np.arange(spec.heads) / 4,
    }


def kernels() -> Iterator[Case]:
    """The kernel at distances, what is told of it, and how far apart rows of the table are."""
    for pairs, base, length in (
        (256, 10_000.0, 4096),
        (256, 100.0, 1000),
        (64, 500_000.0, 2048),
        (2, 10_000.0, 33),
        (4, 10.0, 1),
    ):
        spec = Sinusoidal(2 * pairs, base)
        values, error = kernel_by_distance(spec.ladder, length), kernel_bound(pairs)
        distances = sorted({0, 1, 2, 10, length // 3, length - 1} & set(range(length)))
        rows = table(spec, length, "float64")
        apart = np.linalg.norm(rows - rows[0], axis=1)
        yield {
            "pairs": pairs,
            "base": base,
            "length": length,
            "distances": distances,
            "values": [float(values[distance]) for distance in distances],
            "far": list(FAR),
            "far_values": kernel(spec, list(FAR)).tolist(),
            "bound": error,
            "first_rise": first_rise(values, error),
            "first_negative": first_negative(values, error),
            "apart": apart[distances].tolist(),
            "nearest": int(apart[1:].argmin()) + 1 if length > 1 else None,
        }


def shifts() -> Iterator[Case]:
    """Matrices of shifts, and the best single angle where there is none."""
    specs: list[Any] = [
        Sinusoidal(8, 100.0, layout=layout, order=order)
        for layout in ("interleaved", "halves")
        for order in ("sin-cos", "cos-sin", "-sin-cos", "cos--sin")
    ]
    specs += [Sinusoidal(9, odd="zero"), Rotary(8, rotated=4), Rotary(8, "interleaved", direction="backward")]
    for spec in specs:
        for k in (3, -40, LAST):
            yield {"spec": to_dict(spec), "k": k, "matrix": shift(spec, k).tolist()}
    for warp in ("square", "log", "reciprocal"):
        spec = WarpedPosition(8, warp, 100.0)  # type: ignore[arg-type]
        for k, first, last in ((1, 1, 40), (7, 5, 300)):
            rows = table(spec, range(first, last + k + 1), "float64")
            hands = rows[:, 1::2] + 1j * rows[:, 0::2]
            steps = hands[k:] / hands[:-k]
            best = steps.sum(0) / np.abs(steps.sum(0))
            left = np.abs(steps - best)
            yield {
                "warp": warp,
                "k": k,
                "from": first,
                "to": last,
                "cosines": best.real.tolist(),
                "sines": best.imag.tolist(),
                "largest": left.max(0).tolist(),
                "rms": np.sqrt((left**2).mean(0)).tolist(),
            }


def attention() -> Iterator[Case]:
    """Two sentences through one layer of drawn weights, with each code, and how much of a score is the distance's."""
    heads, width = 2, 32
    size = width // heads
    for seed in (0, 7):
        layer = sentence_layer(seed, width, heads)
        query, key, value, output = layer.query, layer.key, layer.value, layer.output
        for words in (["dog", "bites", "man"], ["man", "bites", "dog"]):
            plain = np.stack([word_vector(word, width, seed) for word in words])
            for code in ("none", "sinusoidal", "rotary", "alibi"):
                rows = table(Sinusoidal(width), len(words), "float64") * (code == "sinusoidal")
                x = plain + rows
                asked, offered = x @ query, x @ key
                if code == "rotary":
                    asked, offered = (rotate(each, Rotary(size)) for each in (asked, offered))
                scores = asked @ offered.swapaxes(1, 2) / math.sqrt(size)
                if code == "alibi":
                    scores = scores + bias(Alibi(heads, "symmetric"), len(words), len(words), dtype="float64")
                weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
                outputs = x + (weights @ (x @ value) @ output).sum(0)
                case = {
                    "words": words,
                    "code": code,
                    "seed": seed,
                    "weights": weights.tolist(),
                    "mean": outputs.mean(0).tolist(),
                }
                if code == "sinusoidal":
                    case["offset_share"] = offset_share((query[0], key[0]), table(Sinusoidal(width), 64, "float64"))
                yield case
    form = commuting_form(4, "halves", np.arange(4.0), np.arange(4.0) - 1.5)
    rows = table(Sinusoidal(8, 100.0), 20, "float64")
    yield {"form": form.tolist(), "offset_share": offset_share(form, rows)}


def lookback() -> Iterator[Case]:
    """Queries that find the right token by a head built by hand, with tokens beside the table; one query's scores."""
    length, deviations = 40, (0.0, 0.15, 0.3, 0.6, 1.0)
    for width, base, back, seed in ((64, 1e4, 3, 0), (16, 100.0, 1, 5), (32, 1e4, 12, 2)):
        # Cosine before sine, as the page has them; no score depends on it.
        spec = Sinusoidal(width, spacing=Geometric(base), order="cos-sin")
        rows, made, query = table(spec, length, "float64"), relative_head(spec, back), (length + back) // 2
        found, shown = np.zeros((2, len(deviations))), []
        for text in range(2):
            drawn = SeededDraw(seed + text).normal(length, width)
            for place, deviation in enumerate(deviations):
                tokens = rows + deviation * drawn
                scores = tokens @ made.query.T @ (tokens @ made.key.T).T
                found[text, place] = np.mean(scores.argmax(1)[back:] == np.arange(length - back))
                shown += [scores[query].tolist()] if text == 0 else []
        yield {
            "width": width,
            "base": base,
            "back": back,
            "seed": seed,
            "length": length,
            "deviations": list(deviations),
            "right": found.mean(0).tolist(),
            "query": query,
            "scores": shown,
            "margin": margin(spec, length),
        }


def precision() -> Iterator[Case]:
    """Rounded numbers, midpoints among them, and the errors of angles in each way and dtype."""
    rng = np.random.default_rng(0)
    dtypes = ("float32", "bfloat16", "float16")
    numbers = [0.0, 1.0, 65504.0, 65519.99, 65520.0, 3.3895e38, 3.4e38, 3.4028235677973366e38, 1e300, 5e-324]
    numbers += (2.0 ** rng.uniform(-160, 140, 40) * rng.choice([-1, 1], 40)).tolist()
    numbers += (2.0 ** rng.uniform(-30, 16, 20)).tolist()
    for bits, least in ((23, -126), (7, -126), (10, -14)):
        for exponent in (least - bits - 1, least - bits, least - 1, least, 0, 11):
            unit = 2.0 ** (max(exponent, least) - bits)
            for steps in (0.5, 1.5, 2.5, 0.5 + 2.0**-30, 1.5 - 2.0**-30):
                numbers.append(2.0**exponent + steps * unit)
    with np.errstate(over="ignore"):
        for dtype in dtypes:
            kept = rounded(np.array(numbers), output_dtype(dtype)).tolist()
            yield {"dtype": dtype, "numbers": numbers, "rounded": [None if math.isinf(each) else each for each in kept]}
    for pairs, base, given in ((64, 10_000.0, None), (64, 500_000.0, 500_000.0)):
        ladder, chosen, positions = geometric(pairs, base), spread(pairs, 6), [1, 257, 1000, 131_071, 16_777_217, 10**9]
        for dtype in ("float64", *dtypes):
            # In double precision the last bit of a power is the library's own.
            for way in [way for way in WAYS if dtype != "float64" or way not in FROM_A_BASE]:
                errors = phase_errors(ladder, positions, dtype, way, base=given)[:, chosen]
                yield {
                    "pairs": pairs,
                    "base": base,
                    "given": given,
                    "dtype": dtype,
                    "way": way,
                    "chosen": chosen,
                    "positions": positions,
                    "errors": [[float(each) if np.isfinite(each) else None for each in row] for row in errors],
                }


def formula() -> Iterator[Case]:
    """The numbers on the way from a position to its sine and cosine; the angle as a text of eight decimals."""
    spans: tuple[tuple[int, float, str | float, float], ...] = (
        (512, 1e4, "open", 1.0), (2, 2.0, "open", 1.0), (8, 100.0, "closed", 1.0), (2048, 1e8, "closed", 1.0),
        (12, 1e4, 4.0, 1.0), (64, 1e6, "open", 1000.0), (10, 2.0, "open", 1.0),
    )  # fmt: skip
    for width, base, span, multiplier in spans:
        spec = Sinusoidal(width, spacing=Geometric(base, span, multiplier))
        for pair in spread(width // 2, 4):
            for position in (0, 1, 100, 2**20, 2**40, 2**53 - 1):
                exact, at = spec.ladder.exact[pair], units(spec.ladder, positions_of([position]))[0, pair]
                angle = exact * position
                yield {
                    "spec": to_dict(spec),
                    "pair": pair,
                    "position": position,
                    "exponent": pair / (span if isinstance(span, float) else width / 2 - (span == "closed")),
                    "divisor": float(Decimal(multiplier) / exact),
                    "angle": f"{angle:.8f}",
                    "sine": at.imag,
                    "cosine": at.real,
                }


def added() -> Iterator[Case]:
    """Tokens that are nearest to their own vector after the row is added, and the lengths of both and of the sum."""
    deviations = (0.05, 0.1, 0.3, 0.6, 1.0)
    for width, base, seed, length in ((64, 1e4, 0, 2048), (8, 100.0, 3, 50), (2, 2.0, 1, 2), (512, 1e4, 5, 1)):
        spec, positions = Sinusoidal(width, base), np.linspace(0, length - 1, min(length, 32))
        rows, drawn = table(spec, [round(each) for each in positions], "float64"), SeededDraw(seed).normal(64, width)
        found = []
        for deviation in deviations:
            tokens = deviation * drawn
            sums = tokens[None] + rows[:, None]
            apart = ((sums[:, :, None] - tokens) ** 2).sum(-1) if width < 512 else None
            near = apart.argmin(-1) if apart is not None else ((tokens**2).sum(-1) - 2 * sums @ tokens.T).argmin(-1)
            found.append(float((near == np.arange(64)).mean()))
        yield {
            "width": width,
            "base": base,
            "seed": seed,
            "length": length,
            "deviations": list(deviations),
            "found": found,
            "norms": np.linalg.norm(rows, axis=1).tolist(),
            "cosine": float(drawn[0] @ rows[-1] / np.linalg.norm(drawn[0]) / np.linalg.norm(rows[-1])),
        }


def difference() -> Iterator[Case]:
    """Where the phases of two ladders are first more than a tenth of a radian apart, counted position by position."""
    pairs_of_ladders = (
        (geometric(32, 1e4), geometric(32, 1e4 + 1)),
        (geometric(256, 1e4), Geometric(1e4, "closed").ladder(256, 512)),
        (geometric(64, 1e4), geometric(64, 5e5)),
        (geometric(8, 1e4), geometric(64, 1e4)),
        (geometric(64, 5e5), Rotary(128, base=5e5, scaling=Llama3(8.0, 8192)).ladder),
        (geometric(4, 10.0), geometric(4, 10.0)),
        (EvenSteps(40.0, 1.0).ladder(4, 8), EvenSteps(40.0, 1.001).ladder(4, 8)),
    )
    for one, other in pairs_of_ladders:
        common, first = min(one.pairs, other.pairs), None
        for start in range(0, 2**16, 4096):
            at = [units(each, positions_of(range(start, start + 4096)))[:, :common] for each in (one, other)]
            off = np.abs(np.angle(at[0] * at[1].conj()))
            if (off > 0.1).any():
                row = int((off > 0.1).any(1).argmax())
                first = [start + row, int(off[row].argmax()), float(off[row].max())]
                break
        rates = [[[float(rate), float(rate - type(rate)(float(rate)))] for rate in each.exact] for each in (one, other)]
        yield {"rates": rates, "first": first}


FILES: dict[str, Callable[[], Iterator[Case]]] = {
    each.__name__: each
    for each in (
        ladders,
        turning,
        additive,
        rotary,
        biases,
        kernels,
        shifts,
        lookback,
        attention,
        precision,
        formula,
        added,
        difference,
    )
}


def text_of(cases: list[Case]) -> str:
    """A file's text, a case on each line."""
    lines = ",\n".join(json.dumps(case, allow_nan=False, separators=(",", ":")) for case in cases)
    return f"[\n{lines}\n]\n"


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make in FILES.items():
        (FOLDER / f"{name}.json").write_text(text_of(list(make())), encoding="utf-8")


if __name__ == "__main__":
    main()
