"""Rotary functions in NumPy and JAX as people write them, each with the slip that somebody made, or without it.

``xp`` is `numpy` or `jax.numpy`; the builders are named as those of PyTorch beside them.
"""

import ml_dtypes
import numpy as np

from faults.rates import factor_of, rates_of

BF16, F16 = ml_dtypes.bfloat16, np.float16


def rates(spec, xp):
    return xp.asarray(rates_of(spec))


def as_float32(xp, positions):
    return xp.asarray(positions).astype(xp.float32)


def turned(x, phases, layout, xp, factor=1.0):
    """x with its first channels turned by phases [..., seq, pairs]; float32, rounded once."""
    cos, sin = xp.cos(phases) * xp.float32(factor), xp.sin(phases) * xp.float32(factor)
    return applied(x, cos, sin, layout, xp)


def applied(x, cos, sin, layout, xp):
    pairs = cos.shape[-1]
    turning, rest = x[..., : 2 * pairs].astype(cos.dtype), x[..., 2 * pairs :]
    if layout == "halves":
        a, b = turning[..., :pairs], turning[..., pairs:]
        out = xp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
    else:
        a, b = turning[..., 0::2], turning[..., 1::2]
        out = xp.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(turning.shape)
    return xp.concatenate([out.astype(x.dtype), rest], axis=-1)


def on_the_fly(spec, wrong=True, xp=np, **slip):
    slip = slip if wrong else {}
    inv_freq = rates(spec, xp).astype(slip.get("rates", xp.float32)).astype(xp.float32)

    def forward(x, positions):
        t = xp.asarray(positions) + slip.get("moved", 0)
        t = t.astype(slip.get("positions", xp.float32)).astype(xp.float32) * xp.float32(slip.get("stretched", 1.0))
        phases = (t[..., None] * inv_freq).astype(slip.get("phases", xp.float32)).astype(xp.float32)
        factor = xp.float32(slip.get("factor", factor_of(spec)))
        cos, sin = xp.cos(phases) * factor, xp.sin(phases) * factor
        low = slip.get("table", xp.float32)
        return applied(x, cos.astype(low).astype(xp.float32), sin.astype(low).astype(xp.float32), spec.layout, xp)

    return forward


def product_in(spec, wrong=True, xp=np, dtype=BF16):
    def forward(x, positions):
        t, inv_freq = as_float32(xp, positions), rates(spec, xp)
        if wrong:
            t, inv_freq = t.astype(dtype), inv_freq.astype(dtype)
        return turned(x, (t[..., None] * inv_freq).astype(xp.float32), spec.layout, xp)

    return forward


def table(spec, rows, xp, dtype=np.float32):
    t = xp.arange(rows).astype(xp.float32).astype(dtype)
    phases = (t[:, None] * rates(spec, xp).astype(dtype)).astype(xp.float32)
    return xp.cos(phases), xp.sin(phases)


def rebuilt(spec, wrong=True, xp=np, rows=2048):
    kept = {"table": table(spec, rows, xp)}

    def forward(x, positions):
        needed = int(positions.max()) + 1
        if needed > len(kept["table"][0]):
            kept["table"] = table(spec, needed, xp, BF16 if wrong else np.float32)
        cos, sin = kept["table"]
        return applied(x, cos[positions], sin[positions], spec.layout, xp)

    return forward


def table_ends(spec, wrong=True, xp=np, rows=4096, past="repeat"):
    """JAX clamps an index that is past the end; in NumPy people clip it, or take it modulo the rows."""
    cos, sin = table(spec, rows if wrong else 16384, xp)

    def forward(x, positions):
        if wrong:
            positions = xp.minimum(positions, rows - 1) if past == "repeat" else positions % rows
        return applied(x, cos[positions], sin[positions], spec.layout, xp)

    return forward


def ignoring(spec, wrong=True, xp=np, what="ignored"):
    def forward(x, positions):
        rows = positions.shape[-1]
        if wrong and what == "ignored":
            positions = xp.arange(rows)
        elif wrong and what == "from first":
            positions = positions[..., :1] + xp.arange(rows)
        elif wrong and what == "first sequence":
            positions = positions.reshape(-1, rows)[0]
        phases = as_float32(xp, positions)[..., None] * rates(spec, xp)
        if phases.ndim > 2:
            phases = phases.reshape(phases.shape[0], *(1,) * (x.ndim - 3), *phases.shape[1:])
        return turned(x, phases, spec.layout, xp)

    return forward


def polar(spec, wrong=True, xp=np, what="heads"):
    """x [batch, seq, heads, width]."""

    def forward(x, positions):
        phases = as_float32(xp, positions)[:, None] * rates(spec, xp)
        if wrong and what == "heads":
            phases = phases[np.arange(x.shape[2]) % len(phases)][None, None]
        elif wrong and what == "batch":
            phases = phases[np.arange(x.shape[0]) % len(phases)][:, None, None]
        else:
            phases = phases[None, :, None]
        return turned(x, phases, spec.layout, xp)

    return forward


def layout_swapped(spec, wrong=True, xp=np):
    other = {"halves": "interleaved", "interleaved": "halves"}[spec.layout] if wrong else spec.layout
    return lambda x, positions: turned(x, as_float32(xp, positions)[..., None] * rates(spec, xp), other, xp)


def tiled(spec, wrong=True, xp=np):
    def forward(x, positions):
        phases = as_float32(xp, positions)[..., None] * rates(spec, xp)
        tile = (spec.layout == "interleaved") == wrong
        wide = xp.concatenate([phases, phases], axis=-1) if tile else xp.repeat(phases, 2, axis=-1)
        cos, sin = xp.cos(wide), xp.sin(wide)
        if spec.layout == "halves":
            half = x.shape[-1] // 2
            other = xp.concatenate([-x[..., half:], x[..., :half]], axis=-1)
        else:
            other = xp.stack([-x[..., 1::2], x[..., 0::2]], axis=-1).reshape(x.shape)
        return (x.astype(xp.float32) * cos + other.astype(xp.float32) * sin).astype(x.dtype)

    return forward


def first_sequence(spec, wrong=True, xp=np, one_token=False):
    def forward(x, positions):
        if positions.ndim == 1:
            positions = positions[None]
        out = turned(x, as_float32(xp, positions)[..., None] * rates(spec, xp), spec.layout, xp)
        if wrong and (x.shape[-2] == 1 or not one_token):
            out = xp.concatenate([out[:1], x[1:]], axis=0)
        return out

    return forward


def one_token_kernel(spec, wrong=True, xp=np):
    return first_sequence(spec, wrong, xp, one_token=True)


def fused(spec, wrong=True, xp=np):
    def forward(q, k, positions):
        phases = as_float32(xp, positions)[..., None] * rates(spec, xp)
        q, k = turned(q, phases, spec.layout, xp), turned(k, phases, spec.layout, xp)
        return (k, q) if wrong else (q, k)

    return forward


def padded_sine(spec, wrong=True, xp=np):
    def forward(x, positions):
        out = turned(x, as_float32(xp, positions)[..., None] * rates(spec, xp), spec.layout, xp)
        keep = out[..., spec.rotated :]
        half = keep.shape[-1] // 2
        if spec.layout == "halves":
            other = xp.concatenate([-keep[..., half:], keep[..., :half]], axis=-1)
        else:
            other = xp.stack([-keep[..., 1::2], keep[..., 0::2]], axis=-1).reshape(keep.shape)
        keep = keep + other * (1 if wrong else 0)
        return xp.concatenate([out[..., : spec.rotated], keep], axis=-1)

    return forward


def half_turned(spec, wrong=True, xp=np):
    def forward(x, positions):
        out = turned(x, as_float32(xp, positions)[..., None] * rates(spec, xp), spec.layout, xp)
        channels = np.arange(spec.head_width)
        second = channels >= spec.rotated // 2 if spec.layout == "halves" else channels % 2 == 1
        return xp.where(xp.asarray(second & (channels < spec.rotated) & wrong), x, out)

    return forward


def several_axes(spec, wrong=True, xp=np, what="dropped"):
    axes = np.array(spec.axes)
    if wrong and what == "order":
        sections = np.bincount(axes)
        chunks = np.repeat(np.arange(len(sections)), sections)
        if (axes == chunks).all():
            robin = np.zeros_like(axes)
            for axis in range(1, len(sections)):
                robin[axis : axis + len(sections) * sections[axis] : len(sections)] = axis
            axes = robin
        else:
            axes = chunks

    def forward(x, positions):
        t = as_float32(xp, positions)
        if wrong and what == "dropped":
            t = xp.broadcast_to(t[..., :1], t.shape)
        return turned(x, t[..., axes] * rates(spec, xp), spec.layout, xp)

    return forward


def shrinking(xp=np):
    def build(spec, wrong=True):
        state = {"rotary_dim": spec.rotated}

        def forward(x, positions):
            pairs = state["rotary_dim"] // 2
            if wrong:
                state["rotary_dim"] = max(2, state["rotary_dim"] // 2)
            return turned(x, as_float32(xp, positions)[..., None] * rates(spec, xp)[:pairs], spec.layout, xp)

        return forward

    return build


def dynamic(spec, wrong=True, xp=np, trained=4096):
    longest = {"seen": trained}

    def forward(x, positions):
        width = spec.rotated
        if wrong:
            longest["seen"] = max(longest["seen"], int(positions.max()) + 1)
        base = spec.base * (longest["seen"] / trained) ** (width / (width - 2))
        inv_freq = 1.0 / (base ** (xp.arange(0, width, 2).astype(xp.float32) / width))
        return turned(x, as_float32(xp, positions)[..., None] * inv_freq.astype(xp.float32), spec.layout, xp)

    return forward


def coarse_path(spec, wrong=True, xp=np):
    def forward(x, positions):
        t, inv_freq = as_float32(xp, positions), rates(spec, xp)
        if wrong and x.dtype.itemsize == 2:  # both of the coarse dtypes
            t, inv_freq = t.astype(BF16), inv_freq.astype(BF16)
        return turned(x, (t[..., None] * inv_freq).astype(xp.float32), spec.layout, xp)

    return forward


def keyed_cache(key, xp=np):
    tables = {}

    def build(spec, wrong=True):
        known = key(spec) if wrong else (spec.base, spec.rotated, repr(spec.scaling))
        if known not in tables:
            tables[known] = table(spec, 16384, xp)
        cos, sin = tables[known]
        return lambda x, positions: applied(x, cos[positions], sin[positions], spec.layout, xp)

    return build


def keyed_rates(xp=np):
    tables = {}

    def build(spec, wrong=True):
        ladder = tables.setdefault(spec.base if wrong else (spec.base, spec.rotated), rates_of(spec))
        ladder = xp.asarray(np.resize(ladder, spec.rotated // 2))
        return lambda x, positions: turned(x, as_float32(xp, positions)[..., None] * ladder, spec.layout, xp)

    return build


def freed_cache(xp=np):
    built = []

    def build(spec, wrong=True):
        built.append(spec)
        lost = wrong and len(built) > 1

        def forward(x, positions):
            phases = as_float32(xp, positions)[..., None] * rates(spec, xp)
            return turned(x, phases * (0 if lost else 1), spec.layout, xp)

        return forward

    return build


def first_dtype(spec, wrong=True, xp=np):
    kept = []

    def forward(x, positions):
        if not kept:
            kept.append(table(spec, 16384, xp, x.dtype if wrong else np.float32))
        cos, sin = kept[0]
        return applied(x, cos[positions], sin[positions], spec.layout, xp)

    return forward


def offset_cache(spec, wrong=True, xp=np):
    kept = {}

    def forward(x, offset):
        rows = x.shape[-2]
        key = rows if wrong else (rows, offset)
        if key not in kept:
            kept[key] = (offset + xp.arange(rows)).astype(xp.float32)[:, None] * rates(spec, xp)
        return turned(x, kept[key], spec.layout, xp)

    return forward


def evicting(spec, wrong=True, xp=np, window=1024):
    def forward(x, offset):
        start = min(offset, window) if wrong else offset
        return turned(
            x, (start + xp.arange(x.shape[-2])).astype(xp.float32)[:, None] * rates(spec, xp), spec.layout, xp
        )

    return forward


def restarting(spec, wrong=True, xp=np):
    def forward(x, offset):
        start = 0 if wrong else offset
        return turned(
            x, (start + xp.arange(x.shape[-2])).astype(xp.float32)[:, None] * rates(spec, xp), spec.layout, xp
        )

    return forward


def in_place(spec, wrong=True, xp=np):
    def forward(x, positions):
        out = turned(x, as_float32(xp, positions)[..., None] * rates(spec, xp), spec.layout, xp)
        if wrong:
            x[...] = out
            return x
        return out

    return forward


def one_buffer(spec, wrong=True, xp=np):
    """What one call returns is written again by the next one of its shape."""
    kept = {}

    def forward(x, positions):
        out = turned(x, as_float32(xp, positions)[..., None] * rates(spec, xp), spec.layout, xp)
        if not wrong:
            return out
        buffer = kept.setdefault((tuple(out.shape), str(out.dtype)), out)
        buffer[...] = out
        return buffer

    return forward


def uninitialised(spec, wrong=True, xp=np, what="garbage"):
    ladder = rates_of(spec)
    if wrong and what == "zero":
        ladder = np.zeros_like(ladder)
    elif wrong:
        ladder = (10.0 ** np.random.default_rng(7).uniform(-38, 2, len(ladder))).astype(np.float32)
        ladder[0] = 6.93e-18
    return lambda x, positions: turned(x, as_float32(xp, positions)[..., None] * xp.asarray(ladder), spec.layout, xp)


def one_number(spec, wrong=True, xp=np, *, pair=3, position=4711, by=0.01):
    bump = np.zeros(spec.rotated // 2, np.float32)
    bump[pair] = by if wrong else 0

    def forward(x, positions):
        phases = as_float32(xp, positions)[..., None] * rates(spec, xp)
        return turned(x, phases + (positions == position)[..., None] * xp.asarray(bump), spec.layout, xp)

    return forward


def of_another(spec, wrong=True, xp=np, change=None):
    return on_the_fly(change(spec) if wrong else spec, xp=xp)
