"""Functions that apply a position code as people write them, right but for the slip that a keyword names.

``xp`` is the module of arrays: `numpy`, `torch` or `jax.numpy`. Each of the builders that rotary and additive codes
share takes a spec, for its fields alone, and ``wrong``: its right twin is the same code with the slip left out.
"""

import clockhands as ch
from clockhands.encodings.specs import with_fields
from recognition.faults.rates import factor_of, geometric, rates_of
from recognition.faults.rows import cast, through


def waves(spec, positions, xp, *, ladder=None, rates=None, moved=0, stretched=1.0, phases=None, product=None,
          added=None, factor=None, table=None, at_dtype=None):  # fmt: skip
    """Cosine and sine [..., seq, pairs] of a rotary code, in float32 unless a keyword names the dtype that rounds."""
    held = through(xp, xp.asarray(ladder if ladder is not None else rates_of(spec)), rates)
    t = through(xp, positions + moved, at_dtype)
    t = t[..., list(spec.axes)] if spec.axes is not None else t[..., None]
    if product is not None:  # as `inv_freq.to(x.dtype) * t.to(x.dtype)` (Modalities, cactus)
        t, held = cast(xp, t, product), cast(xp, held, product)
    turns = through(xp, t * held if stretched == 1 else t * stretched * held, phases)
    turns = turns if added is None else turns + added
    if spec.direction == "backward":
        turns = -turns
    factor = factor_of(spec) if factor is None else factor
    return tuple(through(xp, wave(turns) * factor, table) for wave in (xp.cos, xp.sin))


def turned(x, cos, sin, layout, xp):
    """The first channels of x turned in float32 and rounded once; the others kept."""
    pairs = cos.shape[-1]
    head, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    cos, sin, wide = (cast(xp, a, "float32") for a in (cos, sin, head))
    if layout == "halves":
        a, b = wide[..., :pairs], wide[..., pairs:]
        out = xp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    else:
        a, b = wide[..., 0::2], wide[..., 1::2]
        out = xp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(head.shape)
    return xp.concatenate([cast(xp, out, x.dtype), rest], axis=-1)


def rotated(x, positions, spec, xp, **slip):
    """x [..., seq, width] turned, its positions [seq], [batch, seq] or [seq, axes]."""
    both = waves(spec, positions, xp, **slip)
    if positions.ndim == 2 and spec.axes is None:  # batch first, whatever stands between it and the sequence
        both = (wave.reshape(wave.shape[0], *(1,) * (x.ndim - 3), *wave.shape[1:]) for wave in both)
    if spec.part == "first":
        return turned(x, *both, spec.layout, xp)
    kept = spec.head_width - spec.rotated
    out = turned(xp.concatenate([x[..., kept:], x[..., :kept]], axis=-1), *both, spec.layout, xp)
    return xp.concatenate([out[..., spec.rotated :], out[..., : spec.rotated]], axis=-1)


def rows_of(spec, positions, xp, *, rates=None, moved=0, mirrored=False, at_dtype=None, phases=None, product=None,
            table=None):  # fmt: skip
    """The rows of a sinusoidal code at these positions [..., seq], float32, without its scale."""
    closed = spec.spacing.span == "closed"
    ladder = through(xp, xp.asarray(geometric(spec.width, spec.base, spec.width - 2 * closed)), rates)
    t = through(xp, positions, None) + moved
    t = through(xp, xp.abs(t) if mirrored else t, at_dtype)[..., None]
    if product is not None:
        t, ladder = cast(xp, t, product), cast(xp, ladder, product)
    turns = through(xp, t * ladder, phases)
    both = [xp.sin(turns), xp.cos(turns)][:: -1 if spec.order == "cos-sin" else 1]
    if spec.layout == "halves":
        out = xp.concatenate(both, axis=-1)
    else:
        out = xp.stack(both, axis=-1).reshape(*positions.shape, spec.width)
    return through(xp, out, table)


def added(x, positions, spec, xp, *, scale=None, tokens=1.0, total=1.0, **slip):
    """x with its rows on it, in float32, rounded once."""
    rows = rows_of(spec, positions, xp, **slip) * (spec.scale if scale is None else scale)
    return cast(xp, (cast(xp, x, "float32") * tokens + rows) * total, x.dtype)


def applied(x, positions, spec, xp, **slip):
    """Rotated or added, as the spec says."""
    return (rotated if isinstance(spec, ch.Rotary) else added)(x, positions, spec, xp, **slip)


# --- what rotary and additive functions have in common ---


def on_the_fly(spec, wrong, xp, **slip):
    slip = slip if wrong else {}
    return lambda x, positions: applied(x, positions, spec, xp, **slip)


def of_another(spec, wrong, xp, change):
    """The same code with fields read wrongly, for example the base a default (SpecForge#265)."""
    return on_the_fly(change(spec) if wrong else spec, False, xp)


def ignoring(spec, wrong, xp, what="ignored", start=0):
    """Rows are counted, from 0 or from the first, or one row of positions is taken for all."""

    def forward(x, positions):
        rows = positions.shape[-1]
        if wrong and what == "ignored":
            positions = xp.arange(rows) + start
        elif wrong and what == "from first":
            positions = positions[..., :1] + xp.arange(rows)
        elif wrong and what == "the first":
            positions = positions[..., :1] + 0 * xp.arange(rows)
        elif wrong and what == "less the first":
            positions = positions - positions[..., :1]
        elif wrong and what == "first sequence":
            positions = positions.reshape(-1, rows)[0]
        return applied(x, positions, spec, xp)

    return forward


def counting(spec, wrong, xp, moved=2):
    """`forward(x)` that counts its rows, from 0 or from padding + 1 (sentence-transformers#3879, ANEForge#257)."""
    return lambda x: applied(x, xp.arange(x.shape[-2]) + (moved if wrong else 0), spec, xp)


def table_ends(spec, wrong, xp, rows=4096, past="repeat"):
    """A table of 4096 rows read to 40960 (pegainfer): the index is clamped, as in JAX, or taken modulo the rows."""

    def forward(x, positions):
        if wrong:
            positions = xp.clip(positions, None, rows - 1) if past == "repeat" else positions % rows
        return applied(x, positions, spec, xp)

    return forward


def rebuilt(spec, wrong, xp, rows=2048):
    """Past its rows the table is made again, in the model's dtype (transformers#29496)."""
    made = {}

    def forward(x, positions):
        if wrong and int(positions.max()) >= rows:
            made["product"] = "bfloat16"
        return applied(x, positions, spec, xp, **made)

    return forward


def coarse_path(spec, wrong, xp, own=False):
    """A fused kernel for coarse dtypes that makes its phases there, beside a sound path (TransformerEngine#1245).

    In bfloat16, or in the tokens' own dtype.
    """

    def forward(x, positions):
        coarse = wrong and x.dtype.itemsize == 2
        return applied(x, positions, spec, xp, product=(x.dtype if own else "bfloat16") if coarse else None)

    return forward


def first_dtype(spec, wrong, xp):
    """The table is made in the dtype of whoever asks first, and kept (rotary-embedding-torch)."""
    kept = []

    def forward(x, positions):
        kept.append(x.dtype)
        return applied(x, positions, spec, xp, product=kept[0] if wrong and kept[0].itemsize == 2 else None)

    return forward


def offset_cache(spec, wrong, xp):
    """`forward(x, offset)`: the rows of the first offset are cached by the length alone (rotary-embedding-torch)."""
    kept = {}

    def forward(x, offset):
        rows = x.shape[-2]
        start = kept.setdefault(rows, offset) if wrong else offset
        return applied(x, start + xp.arange(rows), spec, xp)

    return forward


def evicting(spec, wrong, xp, window=1024):
    """`forward(x, offset)` with the number of rows kept in the cache for the offset (VeloxQuant-MLX#138)."""
    return lambda x, offset: applied(x, (min(offset, window) if wrong else offset) + xp.arange(x.shape[-2]), spec, xp)


def restarting(spec, wrong, xp):
    """`forward(x, offset)` that turns each part from 0, as shards do that know only themselves (Megatron-LM)."""
    return evicting(spec, wrong, xp, window=0)


def in_place(spec, wrong, xp):
    """`x.mul_(cos)`: what was given is what comes back."""

    def forward(x, positions):
        out = applied(x, positions, spec, xp)
        if wrong:
            x[...] = out
        return x if wrong else out

    return forward


def one_buffer(spec, wrong, xp):
    """What one call returns is written again by the next one of its shape."""
    kept = {}

    def forward(x, positions):
        out = applied(x, positions, spec, xp)
        if wrong:
            buffer = kept.setdefault((tuple(out.shape), str(out.dtype)), out)
            buffer[...] = out
            return buffer
        return out

    return forward


def first_sequence(spec, wrong, xp, one_token=False):
    """Only the first sequence is treated, always (mlx-rs#359) or with one token and many sequences (mlx#3498)."""

    def forward(x, positions):
        out = applied(x, positions, spec, xp)
        if wrong and (x.shape[-2] == 1 or not one_token):
            out = xp.concatenate([out[:1], x[1:]], axis=0)
        return out

    return forward


def keyed_cache(xp, key):
    """Builders that share one table among models: `key(spec)` is what the cache knows of a model."""
    tables = {}

    def build(spec, wrong):
        held = tables.setdefault(key(spec), spec) if wrong else spec
        return lambda x, positions: applied(x, positions, held, xp)

    return build


def changed(**fields):
    """A reader that takes these fields for the right ones."""

    def change(spec):
        return with_fields(spec, **fields)

    change.__name__ = "-".join(fields)
    return change


def other_layout(spec):
    return with_fields(spec, layout={"halves": "interleaved", "interleaved": "halves"}[spec.layout])
