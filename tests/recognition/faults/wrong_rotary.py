"""The slips of rotary codes, one row each, with the code that names it."""

import dataclasses
import functools

import numpy as np

import clockhands as ch
from clockhands.encodings.rotary import chunked, interleaved
from clockhands.encodings.scaling import Linear, Llama3, LongRope, Ntk, Yarn
from clockhands.encodings.specs import with_fields
from recognition.faults import written
from recognition.faults.rates import plain as ladder_of
from recognition.faults.rates import rates_of
from recognition.faults.rows import NO_JAX, cast, named, one_of, row
from recognition.faults.written import changed, of_another, on_the_fly, other_layout, rotated, turned, waves

HEAD = 32
LENGTH = 10_000  # positions that are asked

# --- builders that only rotary codes have ---


def polar(spec, wrong, xp, axis=2):
    """Llama's `freqs_cis` for x [batch, seq, heads, width]; the slip broadcasts it along another axis (open_lm)."""

    def forward(x, positions):
        along, shape = axis if wrong else 1, [1, 1, 1, -1]
        shape[along] = x.shape[along]
        both = waves(spec, positions, xp)
        cos, sin = (wave[xp.arange(x.shape[along]) % len(wave)].reshape(*shape) for wave in both)
        return turned(x, cos, sin, spec.layout, xp)

    return forward


def tiled(spec, wrong, xp):
    """Table and pairs disagree: tiled for interleaved pairs, or the reverse (mmpretrain, V-JEPA 2)."""

    def forward(x, positions):
        tile, half = (spec.layout == "interleaved") == wrong, x.shape[-1] // 2
        both = waves(spec, positions, xp)
        cos, sin = (
            xp.concatenate([wave, wave], axis=-1)
            if tile
            else xp.stack([wave, wave], axis=-1).reshape(*wave.shape[:-1], 2 * wave.shape[-1])
            for wave in both
        )
        wide = cast(xp, x, "float32")
        if spec.layout == "halves":
            other = xp.concatenate([-wide[..., half:], wide[..., :half]], axis=-1)
        else:
            other = xp.stack([-wide[..., 1::2], wide[..., 0::2]], axis=-1).reshape(x.shape)
        return cast(xp, wide * cos + other * sin, x.dtype)

    return forward


def fused(spec, wrong, xp):
    """A kernel that turns both and gives them back crossed (ColossalAI#6428)."""

    def forward(q, k, positions):
        both = rotated(q, positions, spec, xp), rotated(k, positions, spec, xp)
        return both[::-1] if wrong else both

    return forward


def padded_sine(spec, wrong, xp):
    """Cosine and sine padded to the whole head: 1 and 0 leave a channel alone, 1 and 1 do not (vllm#55204)."""

    def forward(x, positions):
        out = rotated(x, positions, spec, xp)
        keep = out[..., spec.rotated :]
        half = keep.shape[-1] // 2
        if spec.layout == "halves":
            other = xp.concatenate([-keep[..., half:], keep[..., :half]], axis=-1)
        else:
            other = xp.stack([-keep[..., 1::2], keep[..., 0::2]], axis=-1).reshape(keep.shape)
        return xp.concatenate([out[..., : spec.rotated], keep + other if wrong else keep], axis=-1)

    return forward


def half_turned(spec, wrong, xp):
    """Only one channel of each pair is written back."""
    channels = np.arange(spec.head_width)
    second = channels >= spec.rotated // 2 if spec.layout == "halves" else channels % 2 == 1
    kept = xp.asarray(second & (channels < spec.rotated) & wrong)
    return lambda x, positions: xp.where(kept, x, rotated(x, positions, spec, xp))


def sliced(spec, wrong, xp, offsets="exchanged"):
    """Rows of a table are copied from 0 to the start of the call (nntile#360), or the table has as many as the call."""

    def forward(x, offset):
        rows = xp.arange(x.shape[-2])
        absent, at = (
            (rows < offset, rows - offset) if offsets == "exchanged" else (rows >= len(rows) - offset, rows + offset)
        )
        if not wrong:
            return rotated(x, rows + offset, spec, xp)
        return xp.where(absent[:, None], 0 * x, rotated(x, xp.where(absent, 0 * at, at), spec, xp))

    return forward


def shrinking(xp):
    """A rotary object that all layers share, whose width each of them halves (vllm#16904)."""

    def build(spec, wrong):
        state = {"pairs": spec.rotated // 2}

        def forward(x, positions):
            pairs = state["pairs"]
            state["pairs"] = max(1, pairs // 2) if wrong else pairs
            return rotated(x, positions, spec, xp, ladder=rates_of(spec)[:pairs])

        return forward

    return build


def dynamic(spec, wrong, xp, trained=4096):
    """Past the trained length the base grows, and it stays grown for the short sequences after (transformers#25104)."""
    longest = {"seen": trained}

    def forward(x, positions):
        width = spec.rotated
        if wrong:
            longest["seen"] = max(longest["seen"], int(positions.max()) + 1)
        base = spec.base * (longest["seen"] / trained) ** (width / (width - 2))
        return rotated(x, positions, with_fields(spec, base=base), xp)

    return forward


def keyed_rates(xp):
    """Rates kept by their base alone, so that a head of another width finds the first one's (mlx#561)."""
    tables = {}

    def build(spec, wrong):
        ladder = tables.setdefault(spec.base if wrong else (spec.base, spec.rotated), rates_of(spec))
        return functools.partial(rotated, spec=spec, xp=xp, ladder=np.resize(ladder, spec.rotated // 2))

    return build


def freed_cache(xp):
    """The table of the first model is kept for all, and a second one finds it on meta: nothing turns (sglang#33575)."""
    built = []

    def build(spec, wrong):
        built.append(spec)
        return functools.partial(rotated, spec=spec, xp=xp, stretched=0.0 if wrong and len(built) > 1 else 1)

    return build


def of_rates(spec, wrong, xp, ladder):
    """A ladder that is made otherwise."""
    return functools.partial(rotated, spec=spec, xp=xp, ladder=ladder(spec) if wrong else None)


def one_number(spec, wrong, xp, *, pair=3, position=4711, by=0.01):
    """Right everywhere but in one pair at one position."""
    bump = np.zeros(spec.rotated // 2, np.float32)
    bump[pair] = by if wrong else 0

    def forward(x, positions):
        here = cast(xp, positions == position, "float32")[..., None] * xp.asarray(bump)
        return rotated(x, positions, spec, xp, added=here)

    return forward


# --- what they should be ---


plain = named("plain", lambda layout: ch.Rotary(HEAD, layout))
large_base = named("large_base", lambda layout: ch.Rotary(HEAD, layout, base=1e6))
partial = named("partial", lambda layout: ch.Rotary(HEAD, layout, rotated=16))
mrope = named("mrope", lambda layout: ch.Rotary(HEAD, layout, base=1e6, axes=chunked([6, 5, 5])))


def mrope_interleaved(layout):
    return ch.Rotary(HEAD, layout, base=1e6, axes=interleaved([6, 5, 5]))


def scaled(scaling, **fields):
    def of_scaling(layout):
        return ch.Rotary(HEAD, layout, scaling=scaling, **fields)

    of_scaling.__name__ = type(scaling).__name__.lower()
    return of_scaling


LLAMA3, YARN, LINEAR = scaled(Llama3(8.0, 8192), base=5e5), scaled(Yarn(4.0, 4096)), scaled(Linear(4.0))
LONGROPE = scaled(
    LongRope(tuple(1 + pair / 32 for pair in range(16)), tuple(1 + pair * 3 for pair in range(16)), 4096, 32.0),
    length=4096,
)

# --- fields that are read wrongly ---


def scaling(**fields):
    """A reader that takes these fields of the scaling for the right ones."""

    def change(spec):
        return with_fields(spec, scaling=dataclasses.replace(spec.scaling, **fields))

    change.__name__ = "-".join(fields)
    return change


def as_if_longer(spec):
    """`seq_len >= original` where `>` is meant."""
    return with_fields(spec, length=4097)


first_axis_only = named("first_axis_only", lambda spec: with_fields(spec, axes=(0,) * len(spec.axes)))


def other_axes_order(spec):
    chunks, turns = mrope("halves").axes, mrope_interleaved("halves").axes
    return with_fields(spec, axes=turns if spec.axes == chunks else chunks)


zero = named("zero", lambda spec: 0 * rates_of(spec))


def garbage(spec):
    """As memory happened to be (torchtitan#4783, Bacformer#33)."""
    ladder = (10.0 ** np.random.default_rng(7).uniform(-38, 2, spec.rotated // 2)).astype(np.float32)
    ladder[0] = 6.93e-18
    return ladder


def closed(spec):
    return (ladder_of(spec.base, spec.rotated, np.float64) ** (spec.rotated / (spec.rotated - 2))).astype(np.float32)


over_the_head = named("over_the_head", lambda spec: ladder_of(spec.base, spec.head_width)[: spec.rotated // 2])
twice_scaled = named("twice_scaled", lambda spec: rates_of(spec) / np.float32(spec.scaling.factor))


# --- drawn slips: (draw, spec) -> slip, None where it would change nothing that can be seen ---


def visible(spec, change):
    """The change, if some phase differs by a radian within the positions that are asked."""
    other = change(spec)
    right, wrong = rates_of(spec, np.float64), rates_of(other, np.float64)
    seen = len(right) != len(wrong) or float(np.max(np.abs(right - wrong))) * LENGTH > 1
    return {"change": change} if seen else None


def another_base(draw, spec):
    return visible(spec, changed(base=spec.base * 10.0 ** (draw.choice((-1, 1)) * draw.uniform(0.1, 1.5))))


def another_factor(draw, spec):
    return visible(spec, scaling(factor=draw.choice([f for f in (2.0, 3.0, 8.0, 32.0) if f != spec.scaling.factor])))


def another_original(draw, spec):
    return visible(spec, scaling(original=spec.scaling.original * draw.choice((2, 4, 8, 16))))


def another_rotated(draw, spec):
    widths = (spec.rotated // 2, 2 * spec.rotated, spec.head_width)
    widths = [each for each in widths if 4 <= each <= spec.head_width and each % 4 == 0 and each != spec.rotated]
    return {"change": changed(rotated=draw.choice(widths))} if widths else None


def unscaled(_, spec):
    return visible(spec, changed(scaling=None))


def low(key):
    def slip(draw, spec):
        dtype = draw.choice(("bfloat16", "float16"))
        rates = rates_of(spec)
        off = np.abs(rates - cast(np, cast(np, rates, dtype), "float32")).max() * LENGTH
        return None if key == "rates" and off < 1 else {key: dtype}

    return slip


def a_place(draw, spec):
    pair, position = draw.randrange(spec.rotated // 2), draw.randrange(1, LENGTH)
    return {"pair": pair, "position": position, "by": draw.choice((0.3, 1.0))}


PACKED = {"axes": "batch heads seq width", "positions": "batch seq"}
BATCH = {"axes": "batch seq width"}
HEADS_LAST = {"axes": "batch seq heads width"}
OFFSET = {"call": "x, offset"}
SEVERAL = {"positions": "seq axes"}
LOW_PRODUCT = ("phases-rounded", "rates-rounded", "positions-rounded")
WHOLE = {"partial": False}
SOME = {"partial": True, "scaled": False}


by_width = named("by_width", lambda spec: spec.rotated)


_row = functools.partial(row, spec=plain)

D2 = (
    _row("D2#1", of_rates, "rates-uninitialised", slip={"ladder": garbage}, drawn="spec"),
    _row("D2#3", of_another, "scaling-dropped", spec=LLAMA3, slip={"change": changed(scaling=None)}, drawn=unscaled,
         limits={"scaled": True}),
    _row("D2#4", of_rates, "no-rotation", slip={"ladder": zero}, drawn="spec"),
    _row("D2#7", on_the_fly, "rates-rounded", slip={"rates": "bfloat16"}, drawn=low("rates")),
    _row("D2#8", on_the_fly, *LOW_PRODUCT, slip={"product": "bfloat16"}),
    _row("D2#9", on_the_fly, "positions-rounded", slip={"at_dtype": "bfloat16"}, drawn=low("at_dtype")),
    _row("D2#10", on_the_fly, "phases-rounded", slip={"phases": "float16"}, drawn=low("phases")),
    _row("D2#10", on_the_fly, *LOW_PRODUCT, slip={"product": "float16"}, drawn=low("product")),
    _row("D2#11", written.rebuilt, "table-rebuilt-rounded", drawn=one_of(rows=(512, 1024, 2048, 4096))),
    _row("D2#12", written.coarse_path, "coarse-path-differs", drawn="spec"),
    _row("D2#13", written.keyed_cache, "cache-without-base", slip={"key": by_width}, factory=True, drawn="spec",
         limits=WHOLE),
    _row("D2#13", keyed_rates, "cache-without-width", factory=True, drawn="spec", limits=WHOLE),
    _row("D2#14", freed_cache, "no-rotation", factory=True, drawn="spec", limits=WHOLE),
    _row("D2#15", shrinking, "shrinks-each-call", factory=True, drawn="spec", limits=WHOLE),
    _row("D2#16", on_the_fly, "positions-offset", slip={"moved": 1}, drawn=one_of(moved=(-1, 1, 2, 3, 7, 16, 64, 100))),
    _row("D2#17", of_another, "another-base", spec=large_base, slip={"change": changed(base=10000.0)},
         drawn=another_base),
    _row("D2#18", written.ignoring, "positions-of-first-sequence", slip={"what": "first sequence"}, options=PACKED,
         drawn="spec"),
    _row("D2#19", written.ignoring, "positions-ignored", drawn="spec"),
    _row("D2#19", written.ignoring, "positions-ignored", options=PACKED),
    _row("D2#20", written.restarting, "positions-ignored", options=OFFSET, drawn="spec", exact=False),
    _row("D2#20", written.ignoring, "positions-from-first", slip={"what": "from first"}, drawn="spec"),
    _row("window", written.ignoring, "positions-from-first", slip={"what": "the first"}, drawn="spec"),
    _row("D2#21", written.evicting, "table-ends", "eviction-stops-positions", options=OFFSET),
    _row("D2#23", of_another, "lists-swapped", spec=LONGROPE, slip={"change": as_if_longer}),
    _row("D2#24", dynamic, "remembers-longest", drawn="spec", limits=WHOLE),
    _row("D2#25", of_another, "axis-dropped", spec=mrope, slip={"change": first_axis_only}, options=SEVERAL),
    _row("D2#26", of_another, "other-axes-order", spec=mrope_interleaved, slip={"change": other_axes_order},
         options=SEVERAL),
    _row("D2#26", of_another, "other-axes-order", spec=mrope, slip={"change": other_axes_order}, options=SEVERAL),
    _row("D2#27", of_another, "other-layout", slip={"change": other_layout}, drawn="spec", limits={"scaled": None}),
    _row("D2#28", polar, "turns-other-axis", slip={"axis": 2}, options=HEADS_LAST, drawn="spec", limits=WHOLE),
    _row("D2#29", written.first_sequence, "first-sequence-only", slip={"one_token": True}, options=BATCH),
    _row("D2#29", written.first_sequence, "first-sequence-only", options=BATCH, drawn="spec"),
    _row("D2#30", fused, "queries-and-keys-crossed", options={"call": "q, k, positions"}, drawn="spec"),
    _row("D2#30", padded_sine, "unrotated-channels-turned", spec=partial, drawn="spec", limits=SOME),
    _row("D2#30", written.table_ends, "table-ends",
         drawn=one_of(rows=(512, 1000, 1024, 2048, 4096), past=("repeat", "wrap"))),
)  # fmt: skip

# What libraries do, or files make a reader do, beyond that list.
FURTHER = (
    _row("pegainfer", written.table_ends, "table-ends", slip={"past": "wrap"}),
    _row("nntile", sliced, "late-calls-without-rows", options=OFFSET, drawn=one_of(offsets=("exchanged", "none"))),
    _row("open_lm", polar, "turns-other-axis", slip={"axis": 0}, options=HEADS_LAST),
    _row("mmpretrain", tiled, "table-and-pairs-disagree", drawn="spec", limits=WHOLE),
    _row("half", half_turned, "one-half-only", drawn="spec"),
    _row("table", on_the_fly, "table-rounded", slip={"table": "bfloat16"}, drawn=low("table")),
    _row("stretched", on_the_fly, "positions-scaled", "scaling-dropped", "another-scaling", slip={"stretched": 0.25},
         drawn=one_of(stretched=(0.125, 0.25, 0.5, 2.0, 4.0))),
    _row("in place", written.in_place, "changes-its-arguments", frameworks=NO_JAX),
    _row("one buffer", written.one_buffer, "overwrites-its-answers", frameworks=NO_JAX),
    _row("rotary-embedding-torch", written.first_dtype, "cache-keeps-first-dtype", fresh=True, drawn="spec"),
    _row("rotary-embedding-torch", written.offset_cache, "cache-keeps-offset", options=OFFSET, drawn="spec"),
    _row("one number", one_number, "one-number-wrong", drawn=a_place),
    _row("closed", of_rates, "closed-span", slip={"ladder": closed}, drawn="spec", limits=WHOLE,
         exact=False),
    _row("over the head", of_rates, "other-denominator", spec=partial, slip={"ladder": over_the_head}, drawn="spec",
         limits=SOME, exact=False),
    _row("last", of_another, "other-part", spec=partial, slip={"change": changed(part="last")}, drawn="spec",
         limits=SOME),
    _row("backward", of_another, "other-direction", slip={"change": changed(direction="backward")}, drawn="spec",
         limits={"scaled": None}),
    _row("D1#14", of_another, "another-original-length", spec=YARN, slip={"change": scaling(original=16384)},
         drawn=another_original, limits={"scaled": "yarn"}),
    _row("D1#18", of_another, "another-factor", spec=LLAMA3, slip={"change": scaling(factor=32.0)},
         drawn=another_factor, limits={"scaled": "llama3"}),
    _row("D1#20", on_the_fly, "attention-factor", spec=YARN, slip={"factor": 1.0}, drawn="spec",
         limits={"scaled": "yarn"}),
    _row("D1#31", of_another, "other-rotated-width", spec=partial, slip={"change": changed(rotated=32)},
         drawn=another_rotated, limits=SOME),
    _row("D1#11", of_another, "scaling-dropped", spec=LINEAR, slip={"change": changed(scaling=None)},
         exact=False),
    _row("D1#16", of_rates, "scaling-twice", "another-factor", spec=LINEAR, slip={"ladder": twice_scaled},
         drawn="spec", limits={"scaled": "linear"}, exact=False),
    _row("keras-hub", of_another, "another-scaling", spec=scaled(Ntk(4.0)),
         slip={"change": changed(scaling=Linear(4.0))}),
)  # fmt: skip

ROWS = D2 + FURTHER
# Not seen, or not the same fault, in coarser tokens.
FINE = {
    "table-rounded", "attention-factor", "coarse-path-differs", "cache-keeps-first-dtype", "one-number-wrong",
    "positions-rounded", "rates-rounded", "phases-rounded", "table-rebuilt-rounded", "changes-its-arguments",
}  # fmt: skip
