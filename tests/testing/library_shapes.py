"""Rotary code with the parameters, layouts and tables of published libraries, sound or with one fault, in NumPy.

Every function here takes a `Slip` first: what it does wrongly, or nothing.
"""

from typing import Any, NamedTuple

import numpy as np

SLIPS = {
    None: set(),
    "base": {"another-base"},
    "direction": {"other-direction"},
    "layout": {"other-layout"},
    "first": {"positions-from-first"},
    "start": {"positions-from-first", "positions-ignored"},  # one and the same, where only the first one is given
}
"""Each mistake with the code of the fault."""


def angles(slip, positions, width=16, base=1e4):
    at = np.asarray(positions, np.float64)
    if slip in {"first", "start"}:
        at = at - at[..., :1]
    return at[..., None] * (5e5 if slip == "base" else base) ** (-np.arange(0, width, 2) / width)


def rotated(slip, x, cos, sin, layout="halves"):
    """Tokens by cosines and sines [..., width / 2] that have as many axes."""
    if slip == "layout":
        layout = "interleaved" if layout == "halves" else "halves"
    sin = -sin if slip == "direction" else sin
    a, b = (x[..., ::2], x[..., 1::2]) if layout == "interleaved" else np.split(x, 2, -1)
    pair = a * cos - b * sin, b * cos + a * sin
    y = np.stack(pair, -1).reshape(x.shape) if layout == "interleaved" else np.concatenate(pair, -1)
    return y.astype(x.dtype)


def by_angles(slip, x, at, layout="halves"):
    return rotated(slip, x, np.cos(at), np.sin(at), layout)


def heads_third(table):
    """A table [seq, n] or [batch, seq, n] for tokens [batch, seq, heads, width]."""
    return table[..., None, :]


# Positions


def torchtune(slip):
    def forward(x, *, input_pos=None):
        _, seq, _, width = x.shape
        at = np.arange(seq) if input_pos is None else input_pos
        return by_angles(slip, x, heads_third(angles(slip, at, width)), "interleaved")

    return forward


def keyword_alone(slip):
    def apply(x, *, positions):
        return by_angles(slip, x, angles(slip, positions, x.shape[-1]))

    return apply


def after_unknown(slip):
    def apply(q, k, unsqueeze_dim=1, position_ids=None, cache=None):  # noqa: ARG001
        at = np.expand_dims(angles(slip, position_ids, q.shape[-1]), unsqueeze_dim)
        return by_angles(slip, q, at), by_angles(slip, k, at)

    return apply


def gemma(slip):
    def apply_rope(inputs, positions, *, base_frequency, scale_factor=1.0):
        at = angles(slip, positions, inputs.shape[-1], base_frequency) / scale_factor
        return by_angles(slip, inputs, heads_third(at))

    return apply_rope


def with_base(slip):
    def rope(x, positions, base):
        return by_angles(slip, x, angles(slip, positions, x.shape[-1], base))

    return rope


def gemma_1(slip):
    def apply_rope(inputs, positions, head_dim, max_wavelength=10_000):
        at = angles(slip, positions, head_dim, max_wavelength)
        return by_angles(slip, inputs, heads_third(at))

    return apply_rope


def mlx(slip):
    def rope(x, dims, *, traditional, base, scale, offset):
        at = angles(slip, (np.arange(x.shape[-2]) + offset) * scale, dims, base)
        return by_angles(slip, x, at, "interleaved" if traditional else "halves")

    return rope


def start_pos(slip):
    def forward(x, start_pos=0):
        return by_angles(slip, x, angles(slip, np.arange(x.shape[1]) + start_pos, x.shape[-1])[:, None])

    return forward


def seqlen_offset(slip):
    def forward(q, k, seqlen_offset):
        at = angles(slip, np.arange(q.shape[-2]) + seqlen_offset, q.shape[-1])
        return by_angles(slip, q, at), by_angles(slip, k, at)

    return forward


def sequence_first(slip):
    def forward(hidden_states, position_ids):
        """[seq, batch, heads, width], positions [seq]."""
        at = angles(slip, position_ids, hidden_states.shape[-1])
        assert hidden_states.ndim == 4
        assert at.shape[0] == hidden_states.shape[0]
        return by_angles(slip, hidden_states, at[:, None, None])

    return forward


def batch_of_heads(slip):
    """One letter for each parameter, and no annotation."""

    def f(a, b):
        assert a.ndim == 4
        at = angles(slip, b, a.shape[-1])
        return by_angles(slip, a, at)

    return f


def vllm(slip):
    def forward_native(positions, query, key=None, offsets=None):
        at = angles(slip, positions.reshape(-1) if offsets is None else positions + offsets)[:, None]

        def of(x):
            return by_angles(slip, x.reshape(len(positions), -1, 16), at).reshape(x.shape)

        return of(query), None if key is None else of(key)

    return forward_native


def in_a_dictionary(slip):
    def forward(q, k, positions):
        at = angles(slip, positions, q.shape[-1])
        return {"k": by_angles(slip, k, at), "q": by_angles(slip, q, at)}

    return forward


def in_a_list(slip):
    def forward(x, positions):
        return [by_angles(slip, x, angles(slip, positions, x.shape[-1]))]

    return forward


# Cosines and sines


def diffusers(slip):
    """The cosines and sines in a tuple, each number twice, [seq, width]."""

    def apply_rotary_emb(x, freqs_cis, use_real=True, use_real_unbind_dim=-1, sequence_dim=2):  # noqa: ARG001
        assert use_real
        assert sequence_dim == 2
        cos, sin = (wave[None, None, :, ::2] for wave in freqs_cis)
        assert not np.iscomplexobj(cos)
        return rotated(slip, x, cos, sin, "interleaved")

    return apply_rotary_emb


def flux(slip):
    """Rotation matrices [batch, 1, seq, width / 2, 2, 2]."""

    def apply_rope(xq, xk, freqs_cis):
        assert freqs_cis.shape[-2:] == (2, 2)

        def of(x):
            pairs = x.reshape(*x.shape[:-1], -1, 1, 2) if slip != "layout" else _halves(x)[..., None, :]
            matrix = np.swapaxes(freqs_cis, -1, -2) if slip == "direction" else freqs_cis
            y = matrix[..., 0] * pairs[..., 0] + matrix[..., 1] * pairs[..., 1]
            return (np.moveaxis(y, -1, -2) if slip == "layout" else y).reshape(x.shape).astype(x.dtype)

        return of(xq), of(xk)

    return apply_rope


def _halves(x):
    return np.stack(np.split(x, 2, -1), -1)


def litgpt(slip):
    def apply_rope(x, cos, sin):
        half = x.shape[-1] // 2
        cos, sin = (wave[:, None] if wave.ndim == 3 else wave for wave in (cos, sin))
        return rotated(slip, x, cos[..., :half], sin[..., :half])

    return apply_rope


def chatglm(slip):
    """Cosines and sines of a pair beside each other, for tokens [seq, batch, heads, width]."""

    def apply_rotary_pos_emb(x, rope_cache):
        assert not np.iscomplexobj(rope_cache)
        table = rope_cache.reshape(x.shape[0], -1, 1, x.shape[-1] // 2, 2)
        return rotated(slip, x, table[..., 0], table[..., 1], "interleaved")

    return apply_rotary_pos_emb


def gpt_fast(slip):
    def apply_rotary_emb(x, freqs_cis):
        table = freqs_cis.reshape(1, x.shape[1], 1, x.shape[-1] // 2, 2)
        return rotated(slip, x, table[..., 0], table[..., 1], "interleaved")

    return apply_rotary_emb


def complex_alone(slip):
    def apply_rotary_emb(x, freqs_cis):
        assert np.iscomplexobj(freqs_cis)
        table = freqs_cis[None, :, None]
        return rotated(slip, x, table.real, table.imag, "interleaved")

    return apply_rotary_emb


def megatron(slip):
    def apply_rotary_pos_emb(t, freqs, rotary_interleaved=False, mscale=1.0):
        assert freqs.shape[1:3] == (1, 1)
        at = freqs[..., ::2] if rotary_interleaved else freqs[..., : freqs.shape[-1] // 2]
        layout = "interleaved" if rotary_interleaved else "halves"
        return by_angles(slip, t, at, layout) * np.float32(mscale)

    return apply_rotary_pos_emb


def megatron_packed(slip):
    """Documents in a row; each starts with the first row of the table."""

    def apply_rotary_pos_emb(t, cu_seqlens, freqs):
        rows = np.concatenate([np.arange(size) for size in np.diff(cu_seqlens)])
        at = freqs[rows, ..., : freqs.shape[-1] // 2].reshape(len(t), 1, -1)
        return by_angles(slip, t, at)

    return apply_rotary_pos_emb


def flash(slip):
    def apply_rotary(x, cos, sin, seqlen_offsets=0, cu_seqlens=None, interleaved=False, inplace=False):  # noqa: ARG001, PLR0917
        assert cos.shape == (x.shape[1], x.shape[-1] // 2)
        layout = "interleaved" if interleaved else "halves"
        return rotated(slip, x, cos[:, None], sin[:, None], layout)

    return apply_rotary


# Builders of tables


def litgpt_builder(slip):
    def build_rope_cache(seq_len, n_elem, device=None, base=10000, condense_ratio=1):  # noqa: ARG001
        at = angles(slip, np.arange(seq_len) / condense_ratio, n_elem, base)
        at = np.concatenate([at, at], -1).astype(np.float32)
        sin = -np.sin(at) if slip == "direction" else np.sin(at)
        return np.cos(at), sin

    return build_rope_cache


def gpt_fast_builder(slip):
    def precompute_freqs_cis(seq_len, n_elem, base=10000):
        at = angles(slip, np.arange(seq_len), n_elem, base)
        return np.stack([np.cos(at), -np.sin(at) if slip == "direction" else np.sin(at)], -1).astype(np.float32)

    return precompute_freqs_cis


def megatron_builder(slip):
    def forward(max_seq_len, offset=0, packed_seq=False):  # noqa: ARG001
        at = angles(slip, np.arange(max_seq_len) + offset)
        at = -at if slip == "direction" else at
        return np.concatenate([at, at], -1)[:, None, None].astype(np.float64)

    return forward


def flux_builder(slip):
    def rope(pos, dim, theta):
        at = angles(slip, pos, dim, theta)
        sin = -np.sin(at) if slip == "direction" else np.sin(at)
        made = np.stack([np.cos(at), -sin, sin, np.cos(at)], -1)
        return made.reshape(*made.shape[:-1], 2, 2).astype(np.float32)

    return rope


class Waves(NamedTuple):
    cos: Any
    sin: Any


def waves_by_name(slip):
    def forward(x, position_ids):
        at = angles(slip, position_ids, x.shape[-1])
        at = np.concatenate([at, at], -1)
        sin = -np.sin(at) if slip == "direction" else np.sin(at)
        return {"sin": sin.astype(x.dtype), "cos": np.cos(at).astype(x.dtype)}

    return forward


def in_a_named_tuple(slip):
    def forward(position_ids):
        at = angles(slip, position_ids)
        return Waves(np.cos(at), -np.sin(at) if slip == "direction" else np.sin(at))

    return forward


HALVES, INTERLEAVED = "halves", "interleaved"
POSITIONS = ("base", "direction", "layout", "first")
COUNTED = ("base", "direction", "layout", "start")
GIVEN = ("direction", "layout")
BUILT = ("base", "direction")

SHAPES = [
    (torchtune, INTERLEAVED, POSITIONS),
    (keyword_alone, HALVES, POSITIONS),
    (after_unknown, HALVES, POSITIONS),
    (gemma, HALVES, POSITIONS),
    (gemma_1, HALVES, POSITIONS),
    (with_base, HALVES, POSITIONS),
    (mlx, HALVES, COUNTED),
    (mlx, INTERLEAVED, COUNTED),
    (start_pos, HALVES, COUNTED),
    (seqlen_offset, HALVES, COUNTED),
    (sequence_first, HALVES, POSITIONS),
    (batch_of_heads, HALVES, ()),
    (vllm, HALVES, POSITIONS),
    (in_a_dictionary, HALVES, POSITIONS),
    (in_a_list, HALVES, POSITIONS),
    (diffusers, INTERLEAVED, GIVEN),
    (flux, INTERLEAVED, GIVEN),
    (litgpt, HALVES, GIVEN),
    (chatglm, INTERLEAVED, GIVEN),
    (gpt_fast, INTERLEAVED, GIVEN),
    (complex_alone, INTERLEAVED, GIVEN),
    (megatron, HALVES, GIVEN),
    (megatron, INTERLEAVED, GIVEN),
    (megatron_packed, HALVES, GIVEN),
    (flash, HALVES, GIVEN),
    (flash, INTERLEAVED, GIVEN),
    (litgpt_builder, HALVES, BUILT),
    (gpt_fast_builder, INTERLEAVED, BUILT),
    (megatron_builder, HALVES, BUILT),
    (flux_builder, INTERLEAVED, BUILT),
    (waves_by_name, HALVES, BUILT),
    (in_a_named_tuple, HALVES, BUILT),
]
"""Each function with the layout in which it rotates, and the mistakes that it can have."""
