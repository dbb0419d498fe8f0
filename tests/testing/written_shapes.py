"""Rotary code in the shapes that libraries have, in NumPy: each follows one convention, with nothing around it."""

import numpy as np

from clockhands.encodings.sharding import rank_positions


def halves(x):
    first, second = np.split(x, 2, -1)
    return np.concatenate([-second, first], -1)


def neighbours(x):
    return np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)


def waves(positions, width=16, base=1e4, repeat=lambda row: np.concatenate([row, row], -1)):
    angles = repeat(np.asarray(positions)[..., None] * base ** (-np.arange(0, width, 2) / width))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rotated(x, positions, base=1e4):
    """By itself, for tokens [..., seq, width]."""
    cos, sin = waves(positions, x.shape[-1], base)
    return (x * cos + halves(x) * sin).astype(x.dtype)


# Given cosines and sines


def transformers(q, k, cos, sin, unsqueeze_dim=1):
    cos, sin = np.expand_dims(cos, unsqueeze_dim), np.expand_dims(sin, unsqueeze_dim)
    return q * cos + halves(q) * sin, k * cos + halves(k) * sin


def transformers_4(q, k, cos, sin, position_ids):
    """Before release 4.36: the table of all positions, and which rows to take."""
    return transformers(q, k, cos[position_ids], sin[position_ids])


def neox(query, key, cos, sin):
    """As many dimensions as there are cosines are rotated."""
    cos, sin, width = cos[:, None], sin[:, None], cos.shape[-1]

    def of(x):
        return np.concatenate([x[..., :width] * cos + halves(x[..., :width]) * sin, x[..., width:]], -1)

    return of(query), of(key)


def esm(x, cos, sin):
    cos, sin = cos[:, :, : x.shape[-2], :], sin[:, :, : x.shape[-2], :]
    return x * cos + halves(x) * sin


def timm(x, sin_emb, cos_emb):
    return x * cos_emb + neighbours(x) * sin_emb


def timm_cat(x, emb):
    return timm(x, *np.split(emb, 2, -1))


def flash(x, cos, sin):
    """[batch, seq, heads, width], with one cosine for each pair: [seq, width / 2]."""
    width = 2 * cos.shape[-1]
    assert cos.ndim == 2
    assert width <= x.shape[-1]
    cos, sin = (np.concatenate([wave, wave], -1)[:, None] for wave in (cos, sin))
    return np.concatenate([x[..., :width] * cos + halves(x[..., :width]) * sin, x[..., width:]], -1)


def megatron(t, freqs):
    return t * np.cos(freqs) + halves(t) * np.sin(freqs)


def meta_table(dim, end, theta=10000.0):
    angles = np.outer(np.arange(end), theta ** (-np.arange(0, dim, 2) / dim))
    return np.exp(1j * angles).astype(np.complex64)


def meta(xq, xk, freqs_cis):
    factors = freqs_cis.reshape(1, xq.shape[1], 1, xq.shape[-1] // 2)

    def of(x):
        pairs = x.reshape(*x.shape[:-1], -1, 2)
        turned = (pairs[..., 0] + 1j * pairs[..., 1]) * factors
        return np.stack([turned.real, turned.imag], -1).reshape(x.shape).astype(x.dtype)

    return of(xq), of(xk)


class Drawn:
    """Code for one layout of tokens and of cosines, with a mistake or none.

    Args:
        axes: The axes of tokens, as a check names them.
        rows: The axes of cosines before the last one; "1" is an axis of size 1.
        order: How the last axis repeats cosines: "halves", "interleaved", or "pairs" for not at all.
        layout: Which dimensions are rotated together.
        slip: "exchanged" cosines and sines, "backward", or "keys" or "queries" that stay as they are.
    """

    _ORDER = ("batch", "heads", "seq", "width")

    def __init__(self, axes, rows, order, layout, slip):
        self.words, self.flat = axes.replace("*", " ").split(), "*" in axes
        self.rows, self.order, self.layout, self.slip = rows.split(), order, layout, slip

    def __call__(self, q, k, cos, sin):
        cos, sin = self._waves(cos), self._waves(sin)
        if self.slip == "exchanged":
            cos, sin = sin, cos
        if self.slip == "backward":
            sin = -sin
        one = q if self.slip == "queries" else self._rotated(q, cos, sin)
        return one, k if self.slip == "keys" else self._rotated(k, cos, sin)

    def _waves(self, wave):
        """One number for each dimension of a pair, [batch, 1, seq, width]."""
        assert wave.ndim == len(self.rows) + 1
        wave = wave.reshape([size for size, word in zip(wave.shape, self.rows, strict=False) if word != "1"] + [-1])
        wave = wave if "batch" in self.rows else wave[None]
        half = wave.shape[-1] // 2
        alone = {"pairs": wave, "halves": wave[..., :half], "interleaved": wave[..., ::2]}[self.order]
        repeated = np.repeat(alone, 2, -1) if self.layout == "interleaved" else np.concatenate([alone, alone], -1)
        return repeated[:, None]

    def _rotated(self, x, cos, sin):
        there = [word for word in self._ORDER if word in self.words]
        apart = x.reshape(*x.shape[:-1], -1, cos.shape[-1]) if self.flat else x
        inner = np.transpose(apart, [self.words.index(word) for word in there])
        inner = np.expand_dims(inner, [place for place, word in enumerate(self._ORDER) if word not in there])
        turned = halves(inner) if self.layout == "halves" else neighbours(inner)
        y = inner * cos + turned * sin
        y = y.squeeze(tuple(place for place, word in enumerate(self._ORDER) if word not in there))
        return np.transpose(y, [there.index(word) for word in self.words]).reshape(x.shape)


# From positions


def llama(base=1e4, **more):
    """Cosines and sines of position ids, as a module's forward."""

    def forward(x, position_ids):
        return tuple(wave.astype(x.dtype) for wave in waves(position_ids, x.shape[-1], base, **more))

    return forward


def of_length(x, seq_len):
    """The first releases of Transformers with Llama: all rows, with two more axes in front."""
    return tuple(wave[None, None].astype(x.dtype) for wave in waves(np.arange(seq_len)))


def table_of_length(dim, end, base=1e4):
    return waves(np.arange(end), dim, base, lambda row: row)


def backward(x, cos, sin):
    """As nanochat writes it."""
    first, second = np.split(x, 2, -1)
    return np.concatenate([first * cos + second * sin, second * cos - first * sin], -1)


def mrope(spec):
    """Cosines and sines of three rows of positions, [3, batch, seq]."""

    def forward(x, position_ids):
        angles = np.moveaxis(position_ids, 0, -1)[..., list(spec.axes)] * np.array(spec.rates)
        angles = np.concatenate([angles, angles], -1)
        return np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)

    return forward


def of_positions(positions):
    return waves(positions)


def vllm(base=1e4, width=16, apart=halves, repeat=lambda row: np.concatenate([row, row], -1)):
    """Tokens [tokens, heads * width]."""

    def forward(positions, query, key):
        cos, sin = (wave[:, None] for wave in waves(positions, width, base, repeat))

        def of(x):
            heads = x.reshape(len(positions), -1, width)
            return (heads * cos + apart(heads) * sin).reshape(x.shape)

        return of(query), of(key)

    return forward


def esm_module(base=1e4):
    """Counts the tokens itself."""

    def forward(q, k):
        return rotated(q, np.arange(q.shape[-2]), base), rotated(k, np.arange(k.shape[-2]), base)

    return forward


def of_two(q, k, q_positions, k_positions):
    return rotated(q, q_positions), rotated(k, k_positions)


# A rank's part


class Rank:
    """The code of one rank of ``ranks``, with a mistake or none.

    Args:
        rank, ranks: The rank, and their number.
        taken: Which positions a part of so many tokens has.
    """

    def __init__(self, rank, ranks, taken=None):
        self.rank, self.ranks = rank, ranks
        self.taken = taken or self.contiguous

    def contiguous(self, rows):
        return rank_positions(rows * self.ranks, self.rank, self.ranks)

    def zigzag(self, rows):
        return rank_positions(rows * self.ranks, self.rank, self.ranks, zigzag=True)

    def counted(self, x):
        return rotated(x, self.taken(x.shape[-2]))

    def of_whole_table(self, q, k, cos, sin):
        rows = self.taken(q.shape[2])
        return transformers(q, k, cos[:, rows], sin[:, rows])

    def packed(self, t, cu_seqlens):
        """[tokens, heads, width], the documents in a row."""
        whole = np.concatenate([np.arange(size) for size in np.diff(cu_seqlens)])
        return self._at(t, whole[self.taken(t.shape[0])])

    def packed_zigzag(self, t, cu_seqlens):
        """Every document split for itself, as Megatron does."""
        parts = [rank_positions(int(size), self.rank, self.ranks, zigzag=True) for size in np.diff(cu_seqlens)]
        return self._at(t, np.concatenate(parts))

    def packed_without_offset(self, t, cu_seqlens):
        rows = self.taken(t.shape[0])
        starts = np.asarray(cu_seqlens)[np.searchsorted(cu_seqlens, rows, side="right") - 1]
        return self._at(t, rows - np.maximum(starts, rows[0]))

    def packed_zigzag_without_offset(self, t, cu_seqlens):
        return self._at(t, np.concatenate([np.arange(size // self.ranks) for size in np.diff(cu_seqlens)]))

    def packed_without_restart(self, t, cu_seqlens):
        return self._at(t, self.taken(t.shape[0]))

    def _at(self, t, positions):
        return np.moveaxis(rotated(np.moveaxis(t, 0, -2), positions), -2, 0)
