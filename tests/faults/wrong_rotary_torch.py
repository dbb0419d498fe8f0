"""Rotary functions in PyTorch as people write them, each with the slip that somebody made, or without it.

Every builder takes a spec, for its fields alone, and ``wrong``: its right twin is the same code with the slip left out.
"""

import torch

from faults.rates import factor_of, rates_of

BF16, F16 = torch.bfloat16, torch.float16


def inverse_frequencies(spec):
    if spec.scaling is None:
        width = spec.rotated
        return 1.0 / (spec.base ** (torch.arange(0, width, 2, dtype=torch.int64).float() / width))
    return torch.from_numpy(rates_of(spec))


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def rotate_every_two(x):
    return torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)


def doubled(freqs, layout):
    """One phase for each channel of the rotated part."""
    return torch.cat((freqs, freqs), dim=-1) if layout == "halves" else torch.repeat_interleave(freqs, 2, dim=-1)


def apply(x, cos, sin, layout):
    """Cosine and sine [..., seq, rotated] to the first channels of x, computed in float32."""
    turning, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    turned = rotate_half if layout == "halves" else rotate_every_two
    wide = turning.to(cos.dtype)
    return torch.cat(((wide * cos + turned(wide) * sin).to(x.dtype), rest), dim=-1)


class RotaryEmbedding(torch.nn.Module):
    """cos, sin = forward(x, positions), made on the fly from `inv_freq`; each slip is a keyword."""

    def __init__(
        self, spec, *, rates=None, positions=None, phases=None, table=None, moved=0, stretched=1.0, factor=None
    ):
        super().__init__()
        self.register_buffer("inv_freq", inverse_frequencies(spec), persistent=False)
        if rates is not None:
            self.inv_freq = self.inv_freq.to(rates)
        self.layout, self.attention_scaling = spec.layout, factor_of(spec) if factor is None else factor
        self.positions, self.phases, self.table = positions, phases, table
        self.moved, self.stretched = moved, stretched

    def forward(self, x, positions):
        t = positions + self.moved
        t = t.to(self.positions) if self.positions is not None else t.float()
        freqs = (t[..., None] * self.stretched) * self.inv_freq
        freqs = (freqs.to(self.phases) if self.phases is not None else freqs).float()
        emb = doubled(freqs, self.layout)
        cos, sin = emb.cos() * self.attention_scaling, emb.sin() * self.attention_scaling
        if self.table is not None:
            cos, sin = cos.to(self.table).float(), sin.to(self.table).float()
        return cos, sin


def on_the_fly(spec, wrong=True, **slip):
    """Rates, phases, table: each in the dtype that the slip says."""
    rope = RotaryEmbedding(spec, **(slip if wrong else {}))
    return lambda x, positions: apply(x, *rope(x, positions), spec.layout)


def product_in(spec, wrong=True, dtype=BF16):
    """`inv_freq.to(x.dtype) * t.to(x.dtype)`, all of it in the low dtype (Modalities, cactus)."""
    inv_freq = inverse_frequencies(spec)

    def forward(x, positions):
        t, rates = positions.float(), inv_freq
        if wrong:
            t, rates = t.to(dtype), rates.to(dtype)
        emb = doubled(torch.einsum("...s,d->...sd", t, rates), spec.layout).float()
        return apply(x, emb.cos(), emb.sin(), spec.layout)

    return forward


def ignoring(spec, wrong=True, what="ignored"):
    """Rows are counted, from 0 or from the first, or one row of positions is taken for all."""
    rope = RotaryEmbedding(spec)

    def forward(x, positions):
        if wrong and what == "ignored":
            positions = torch.arange(positions.shape[-1])
        elif wrong and what == "from first":
            positions = positions[..., :1] + torch.arange(positions.shape[-1])
        elif wrong and what == "first sequence":
            positions = positions.reshape(-1, positions.shape[-1])[0]
        cos, sin = rope(x, positions)
        if cos.ndim > 2:  # batch first, whatever stands between it and the sequence
            cos, sin = (a.reshape(a.shape[0], *(1,) * (x.ndim - 3), *a.shape[1:]) for a in (cos, sin))
        return apply(x, cos, sin, spec.layout)

    return forward


def polar(spec, wrong=True, what="heads"):
    """Llama's `freqs_cis`, for x [batch, seq, heads, width]; the slip broadcasts it along another axis (open_lm)."""

    def forward(x, positions):
        freqs = torch.outer(positions.float(), inverse_frequencies(spec))
        cis = torch.polar(torch.ones_like(freqs), freqs)
        if spec.layout == "interleaved":
            z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        else:
            first, second = x.float().chunk(2, dim=-1)
            z = torch.complex(first, second)
        if wrong and what == "heads":
            cis = cis[torch.arange(x.shape[2]) % len(cis)].reshape(1, 1, x.shape[2], -1)
        elif wrong and what == "batch":
            cis = cis[torch.arange(x.shape[0]) % len(cis)].reshape(x.shape[0], 1, 1, -1)
        else:
            cis = cis.reshape(1, x.shape[1], 1, -1)
        z = z * cis
        if spec.layout == "interleaved":
            return torch.view_as_real(z).flatten(-2).to(x.dtype)
        return torch.cat((z.real, z.imag), dim=-1).to(x.dtype)

    return forward


def layout_swapped(spec, wrong=True):
    """The other pairs (shainet#111, nanotron#214)."""
    rope = RotaryEmbedding(spec)
    other = {"halves": "interleaved", "interleaved": "halves"}[spec.layout] if wrong else spec.layout

    def forward(x, positions):
        freqs = positions.float()[..., None] * rope.inv_freq
        emb = doubled(freqs, other)
        return apply(x, emb.cos(), emb.sin(), other)

    return forward


def tiled(spec, wrong=True):
    """Table and pairs disagree: tiled for interleaved pairs, or the reverse (mmpretrain, V-JEPA 2)."""
    inv_freq = inverse_frequencies(spec)
    other = {"halves": "interleaved", "interleaved": "halves"}[spec.layout] if wrong else spec.layout

    def forward(x, positions):
        emb = doubled(positions.float()[..., None] * inv_freq, other)
        return apply(x, emb.cos(), emb.sin(), spec.layout)

    return forward


def one_token_kernel(spec, wrong=True):
    """With one token and many sequences only the first is turned (mlx#3498)."""
    rope = RotaryEmbedding(spec)

    def forward(x, positions):
        if positions.ndim == 1:
            positions = positions[None]
        cos, sin = rope(x, positions)
        out = apply(x, cos, sin, spec.layout)
        if wrong and x.shape[-2] == 1 and x.shape[0] > 1:
            out = torch.cat((out[:1], x[1:]), dim=0)
        return out

    return forward


def first_sequence(spec, wrong=True):
    """However many tokens, only the first sequence is turned (mlx-rs#359)."""
    rope = RotaryEmbedding(spec)

    def forward(x, positions):
        if positions.ndim == 1:
            positions = positions[None]
        out = apply(x, *rope(x, positions), spec.layout)
        return torch.cat((out[:1], x[1:]), dim=0) if wrong else out

    return forward


def fused(spec, wrong=True):
    """A kernel that turns both and gives them back crossed (ColossalAI#6428)."""
    rope = RotaryEmbedding(spec)

    def forward(q, k, positions):
        cos, sin = rope(q, positions)
        q, k = apply(q, cos, sin, spec.layout), apply(k, cos, sin, spec.layout)
        return (k, q) if wrong else (q, k)

    return forward


def padded_sine(spec, wrong=True):
    """Cosine and sine padded to the whole head: 1 and 0 leave a channel alone, 1 and 1 do not (vllm#55204)."""
    rope, rest = RotaryEmbedding(spec), spec.head_width - spec.rotated

    def forward(x, positions):
        cos, sin = rope(x, positions)
        keep = x[..., spec.rotated :]
        cos_rest = torch.ones_like(keep, dtype=cos.dtype)
        sin_rest = torch.ones_like(cos_rest) if wrong else torch.zeros_like(cos_rest)
        turned = rotate_half if spec.layout == "halves" else rotate_every_two
        out = keep.to(cos.dtype) * cos_rest + turned(keep.to(cos.dtype)) * sin_rest
        return torch.cat((apply(x[..., : spec.rotated], cos, sin, spec.layout), out.to(x.dtype)), dim=-1)

    assert rest
    return forward


def half_turned(spec, wrong=True):
    """Only one channel of each pair is written back."""
    rope = RotaryEmbedding(spec)

    def forward(x, positions):
        out = apply(x, *rope(x, positions), spec.layout)
        if wrong:
            out = out.clone()
            if spec.layout == "halves":
                out[..., spec.rotated // 2 : spec.rotated] = x[..., spec.rotated // 2 : spec.rotated]
            else:
                out[..., 1 : spec.rotated : 2] = x[..., 1 : spec.rotated : 2]
        return out

    return forward


def several_axes(spec, wrong=True, what="dropped"):
    """M-RoPE: positions [seq, axes]; height and width dropped, or the sections laid out the other way."""
    inv_freq, axes = inverse_frequencies(spec), torch.tensor(spec.axes)
    if wrong and what == "order":
        sections = [int((axes == axis).sum()) for axis in range(int(axes.max()) + 1)]
        chunks = [axis for axis, pairs in enumerate(sections) for _ in range(pairs)]
        axes = torch.tensor(chunks if list(spec.axes) != chunks else _round_robin(sections))

    def forward(x, positions):
        if wrong and what == "dropped":
            positions = positions[..., :1].expand_as(positions)
        emb = doubled(positions.float()[..., axes] * inv_freq, spec.layout)
        return apply(x, emb.cos(), emb.sin(), spec.layout)

    return forward


def _round_robin(sections):
    """T H W T H W ..., the rest T, as Qwen3-VL lays them."""
    axes = [0] * sum(sections)
    for axis, pairs in enumerate(sections[1:], start=1):
        for place in range(axis, axis + len(sections) * pairs, len(sections)):
            axes[place] = axis
    return axes


def coarse_path(spec, wrong=True):
    """A fused kernel for bfloat16 that makes its phases there, beside a sound float32 path (TransformerEngine#1245)."""
    inv_freq = inverse_frequencies(spec)

    def forward(x, positions):
        t, rates = positions.float(), inv_freq
        if wrong and x.dtype == BF16:
            t, rates = t.to(BF16), rates.to(BF16)
        emb = doubled(t[..., None] * rates, spec.layout).float()
        return apply(x, emb.cos(), emb.sin(), spec.layout)

    return forward


def in_place(spec, wrong=True):
    """`x.mul_(cos)`: what was given is what comes back."""
    rope = RotaryEmbedding(spec)

    def forward(x, positions):
        out = apply(x, *rope(x, positions), spec.layout)
        return x.copy_(out) if wrong else out

    return forward


def one_buffer(spec, wrong=True):
    """What one call returns is written again by the next one of its shape."""
    rope, kept = RotaryEmbedding(spec), {}

    def forward(x, positions):
        out = apply(x, *rope(x, positions), spec.layout)
        if not wrong:
            return out
        buffer = kept.setdefault((tuple(out.shape), str(out.dtype)), out)
        buffer[...] = out
        return buffer

    return forward


def uninitialised(spec, wrong=True, what="garbage"):
    """The rates' buffer as memory happened to be (torchtitan#4783, Bacformer#33), or zero (chronos-forecasting#491)."""
    rope = RotaryEmbedding(spec)
    if wrong and what == "zero":
        rope.inv_freq = torch.zeros_like(rope.inv_freq)
    elif wrong:
        generator = torch.Generator().manual_seed(7)
        rope.inv_freq = 10.0 ** (torch.rand(rope.inv_freq.shape, generator=generator) * 40 - 38)
        rope.inv_freq[0] = 6.93e-18
    return lambda x, positions: apply(x, *rope(x, positions), spec.layout)


def one_number(spec, wrong=True, pair=3, position=4711, by=0.01):
    """Right everywhere but in one pair at one position."""
    rope = RotaryEmbedding(spec)

    def forward(x, positions):
        freqs = positions.float()[..., None] * rope.inv_freq
        if wrong:
            freqs = freqs.clone()
            freqs[..., pair] = torch.where(positions == position, freqs[..., pair] + by, freqs[..., pair])
        emb = doubled(freqs, spec.layout)
        return apply(x, emb.cos(), emb.sin(), spec.layout)

    return forward


def of_another(spec, wrong=True, change=None):
    """The same code with a field read wrongly, for example the base a default (SpecForge#265)."""
    return on_the_fly(change(spec) if wrong else spec)
