"""Rotary functions in PyTorch that keep something, a table, a width, the longest sequence, and what comes of it."""

import torch

from faults.wrong_rotary_torch import BF16, RotaryEmbedding, apply, doubled, inverse_frequencies


class Cached:
    """A table of cosine and sine, made for so many rows and grown when more are asked for."""

    def __init__(self, spec, rows=16384, grown=None, past="grow"):
        self.spec, self.grown, self.past = spec, grown, past
        self.inv_freq = inverse_frequencies(spec)
        self.make(rows, torch.float32)

    def make(self, rows, dtype):
        t = torch.arange(rows).to(dtype)
        freqs = torch.outer(t, self.inv_freq.to(dtype))
        emb = doubled(freqs, self.spec.layout).float()
        self.cos_cached, self.sin_cached = emb.cos(), emb.sin()

    def __call__(self, x, positions):
        rows, needed = len(self.cos_cached), int(positions.max()) + 1
        if self.past == "repeat":
            positions = positions.clamp(max=rows - 1)
        elif self.past == "wrap":
            positions = positions % rows
        elif needed > rows:
            self.make(needed, self.grown or torch.float32)
        return apply(x, self.cos_cached[positions], self.sin_cached[positions], self.spec.layout)


def rebuilt(spec, wrong=True, rows=2048):
    """Past its rows the table is made again, in the model's dtype (transformers#29496)."""
    return Cached(spec, rows, BF16 if wrong else None)


def table_ends(spec, wrong=True, rows=4096, past="repeat"):
    """A table of 4096 rows read to 40960 (pegainfer), its index clamped."""
    return Cached(spec, rows if wrong else 16384, None, past if wrong else "grow")


def shrinking():
    """A rotary object that all layers share, whose width each of them halves (vllm#16904)."""

    def build(spec, wrong=True):
        state = {"rotary_dim": spec.rotated}

        def forward(x, positions):
            rotary_dim = state["rotary_dim"]
            if wrong:
                state["rotary_dim"] = max(2, rotary_dim // 2)
            inv_freq = inverse_frequencies(spec)[: rotary_dim // 2]
            emb = doubled(positions.float()[..., None] * inv_freq, spec.layout)
            return apply(x, emb.cos(), emb.sin(), spec.layout)

        return forward

    return build


def dynamic(spec, wrong=True, trained=4096):
    """Past the trained length the base grows, and it stays grown for the short sequences after (transformers#25104)."""
    longest = {"seen": trained}

    def forward(x, positions):
        width, length = spec.rotated, int(positions.max()) + 1
        if wrong:
            longest["seen"] = max(longest["seen"], length)
        base = spec.base * (longest["seen"] / trained) ** (width / (width - 2))
        inv_freq = 1.0 / (base ** (torch.arange(0, width, 2).float() / width))
        emb = doubled(positions.float()[..., None] * inv_freq, spec.layout)
        return apply(x, emb.cos(), emb.sin(), spec.layout)

    return forward


def keyed_cache(key):
    """Builders that share one table among models: `key(spec)` is what the cache knows of a model."""
    tables = {}

    def build(spec, wrong=True):
        known = key(spec) if wrong else (spec.base, spec.rotated, spec.layout, repr(spec.scaling))
        if known not in tables:
            emb = doubled(torch.outer(torch.arange(16384).float(), inverse_frequencies(spec)), spec.layout)
            tables[known] = emb.cos(), emb.sin()
        cos, sin = tables[known]

        def forward(x, positions):
            return apply(x, cos[positions], sin[positions], spec.layout)

        return forward

    return build


def keyed_rates():
    """Rates kept by their base alone, so that a head of another width finds the first one's (mlx#561)."""
    tables = {}

    def build(spec, wrong=True):
        key = spec.base if wrong else (spec.base, spec.rotated)
        if key not in tables:
            tables[key] = inverse_frequencies(spec)
        rates = tables[key]
        pairs = spec.rotated // 2  # the first model's ladder, cut or repeated to this one's number of pairs
        rates = rates.repeat(-(-pairs // len(rates)))[:pairs]

        def forward(x, positions):
            emb = doubled(positions.float()[..., None] * rates, spec.layout)
            return apply(x, emb.cos(), emb.sin(), spec.layout)

        return forward

    return build


def freed_cache():
    """The table of the first model is kept for all, and a second one finds it on meta: nothing turns (sglang#33575)."""
    built = []

    def build(spec, wrong=True):
        rope = RotaryEmbedding(spec)
        built.append(spec)
        lost = wrong and len(built) > 1

        def forward(x, positions):
            return x.clone() if lost else apply(x, *rope(x, positions), spec.layout)

        return forward

    return build


def first_dtype(spec, wrong=True):
    """The table is made in the dtype of whoever asks first, and kept (rotary-embedding-torch)."""
    kept = {}

    def forward(x, positions):
        dtype = x.dtype if wrong else torch.float32
        if "cos" not in kept:
            emb = doubled(torch.outer(torch.arange(16384).to(dtype), inverse_frequencies(spec).to(dtype)), spec.layout)
            kept["cos"], kept["sin"] = emb.float().cos(), emb.float().sin()
        return apply(x, kept["cos"][positions], kept["sin"][positions], spec.layout)

    return forward


def offset_cache(spec, wrong=True):
    """`forward(x, offset)`: the rows of the first offset are cached by the length alone (rotary-embedding-torch)."""
    kept = {}

    def forward(x, offset):
        rows = x.shape[-2]
        key = rows if wrong else (rows, offset)
        if key not in kept:
            t = torch.arange(offset, offset + rows).float()
            emb = doubled(t[:, None] * inverse_frequencies(spec), spec.layout)
            kept[key] = emb.cos(), emb.sin()
        return apply(x, *kept[key], spec.layout)

    return forward


def evicting(spec, wrong=True, window=1024):
    """`forward(x, offset)` with the number of rows kept in the cache for the offset (VeloxQuant-MLX#138)."""
    rope = RotaryEmbedding(spec)

    def forward(x, offset):
        if wrong:
            offset = min(offset, window)
        return apply(x, *rope(x, torch.arange(offset, offset + x.shape[-2])), spec.layout)

    return forward


def restarting(spec, wrong=True):
    """`forward(x, offset)` that turns each part from 0, as shards do that know only themselves (Megatron-LM)."""
    rope = RotaryEmbedding(spec)

    def forward(x, offset):
        return apply(x, *rope(x, torch.arange(x.shape[-2]) + (0 if wrong else offset)), spec.layout)

    return forward
