"""Small causal models that keep a cache, written once for any array library; each right, or wrong in one way.

``SmallModel(...)(tokens, positions, mask, cache)`` is what a person would hand to the check. Weights are random: what
is asked is whether a model agrees with itself. Nothing of the package is used to make them.
"""

import importlib
import math

import numpy as np

VOCABULARY, WIDTH, HEADS, LAYERS = 53, 32, 4, 2
HEAD = WIDTH // HEADS
# Tokens of the training that rates which follow the length scale from.
ORIGINAL = 24


def rates(length, scaling):
    """Radians per token, [HEAD / 2], in use for so many tokens."""
    base = 500.0
    if scaling == "dynamic" and length > ORIGINAL:
        base *= (4.0 * length / ORIGINAL - 3.0) ** (HEAD / (HEAD - 2))
    made = base ** (-np.arange(0, HEAD, 2) / HEAD)
    if scaling == "lists":
        made = made / (np.arange(HEAD // 2) * 3.0 + 2.0 if length > ORIGINAL else 1.0)
    return made.astype(np.float32)


class SmallModel:
    """Two layers of attention and a feed-forward part.

    Args:
        library: ``"numpy"``, ``"torch"`` or ``"jax"``.
        code: ``"halves"``, ``"interleaved"``, ``"sinusoidal"``, ``"learned"``, ``"alibi"`` or ``"none"``.
        slip: What is wrong, or None.
        scaling: Whether rates follow the length: ``"dynamic"``, ``"lists"`` or None.
    """

    def __init__(self, library="numpy", code="halves", slip=None, scaling=None):
        self.xp = importlib.import_module({"jax": "jax.numpy"}.get(library, library))
        self.library, self.code, self.slip, self.scaling = library, code, slip, scaling
        draw = np.random.default_rng(7)

        def weights(*shape):
            return self.array((draw.standard_normal(shape) * 1.5 / math.sqrt(shape[0])).astype(np.float32))

        self.embedding = self.array(draw.standard_normal((VOCABULARY, WIDTH)).astype(np.float32))
        self.rows = self.array(draw.standard_normal((96, WIDTH)).astype(np.float32))
        self.layers = [
            {
                "in": weights(WIDTH, 3 * WIDTH),
                "out": weights(WIDTH, WIDTH),
                "up": weights(WIDTH, 64),
                "down": weights(64, WIDTH),
            }
            for _ in range(LAYERS)
        ]
        self.head = weights(WIDTH, VOCABULARY)
        self.count = 0  # only slips use it
        self.longest = 0

    def array(self, numbers):
        if self.library == "torch":
            return self.xp.from_numpy(np.ascontiguousarray(numbers))
        return self.xp.asarray(numbers)

    def joined(self, arrays, axis):
        return self.xp.cat(arrays, axis) if self.library == "torch" else self.xp.concatenate(arrays, axis)

    def numbers(self, array):
        return np.asarray(array)

    def placed(self, tokens, positions, mask, cache):
        """Where tokens stand: where they are told to, unless something slipped."""
        batch, seq = tokens.shape
        past = 0 if cache is None else cache["keys"][0].shape[2]
        slots = np.broadcast_to(np.arange(past, past + seq), (batch, seq))
        restarted = np.broadcast_to(np.arange(seq), (batch, seq))
        one = past > 0 and seq == 1
        # When a slip takes effect, and the positions that it then makes.
        applies, moved = {
            "slots are counted": (True, slots),
            "slots are counted in decoding": (past, slots),
            "documents are not told apart": (mask is not None and mask.ndim == 3, slots),
            "first row's positions": (past, np.broadcast_to(positions[:1], (batch, seq))),
            "restarts": (past, restarted),
            "counts each call": (True, restarted),
            "a piece stands at its start": (past, np.broadcast_to(positions[:, :1], (batch, seq))),
            "one further": (one, positions + 1),
            "one back": (past, positions - 1),
            "stuck": (one, np.full_like(positions, 7)),
            "every second": (one, 2 * positions),
            "every odd one": (one, 2 * positions + 1),
            # Of incidents, which name them in incidents.json.
            "padding is counted": (mask is not None and mask.ndim == 2, slots),
            "prefix without its last": (past and seq > 1, positions - 1),
            "counted twice": (seq > 1, positions + past),
        }.get(self.slip, (False, positions))
        if applies:
            return moved
        if self.slip == "one count for all":
            start = 0 if cache is None else self.count
            self.count = start + seq
            return np.broadcast_to(np.arange(start, start + seq), (batch, seq))
        return positions

    def turned(self, x, positions, length):
        """Queries or keys [batch, heads, seq, HEAD], turned by their positions."""
        if self.slip == "remembers" and self.scaling:
            self.longest = length = max(length, self.longest)
        phases = positions.astype(np.float32)[:, None, :, None] * rates(length, self.scaling)
        cosine, sine = self.array(np.cos(phases)), self.array(np.sin(phases))
        if self.slip == "no rows in later calls" and positions.min() > 0:
            cosine, sine = 0 * cosine, 0 * sine
        if self.code == "halves":
            a, b = x[..., : HEAD // 2], x[..., HEAD // 2 :]
            return self.joined([a * cosine - b * sine, a * sine + b * cosine], -1)
        a, b = x[..., 0::2], x[..., 1::2]
        return self.xp.stack([a * cosine - b * sine, a * sine + b * cosine], -1).reshape(x.shape)

    def added(self, positions):
        if self.code == "learned":
            return self.rows[self.array(np.array(positions))]
        phases = positions.astype(np.float32)[..., None] * (300.0 ** (-np.arange(0, WIDTH, 2) / WIDTH)).astype(
            np.float32
        )
        return self.array(np.concatenate([np.sin(phases), np.cos(phases)], -1))

    def seen(self, tokens, mask, past):
        """Which keys each query sees, [batch, seq, keys]."""
        batch, seq = tokens.shape
        keys = past + seq
        first = 0 if self.slip == "mask of the first rows" else past
        causal = np.arange(keys) <= np.arange(first, first + seq)[:, None]
        if self.slip == "sees what comes":
            causal = np.ones((seq, keys), bool)
        if self.slip == "cache is not read":
            causal = causal & (np.arange(keys) >= past)
        seen = np.broadcast_to(causal, (batch, seq, keys))
        if (
            mask is None
            or (self.slip == "pads are seen" and mask.ndim == 2)
            or (self.slip == "leaks" and mask.ndim == 3)
        ):
            return seen
        return seen & (mask[:, None] if mask.ndim == 2 else mask)

    def bias(self, positions, keys_at, past):
        """ALiBi's, [batch, heads, seq, keys]."""
        if self.slip == "no bias in decoding" and past:
            return np.float32(0)
        slopes = (2.0 ** (-8.0 * np.arange(1, HEADS + 1) / HEADS)).astype(np.float32)[:, None, None]
        return -slopes * np.abs(positions[:, :, None] - keys_at[:, None, :]).astype(np.float32)[:, None]

    def __call__(self, tokens, positions, mask, cache):
        if self.library != "torch":
            return self.forward(tokens, positions, mask, cache)
        threads = self.xp.get_num_threads()
        self.xp.set_num_threads(1)  # for products as small as these, more are slower
        try:
            return self.forward(tokens, positions, mask, cache)
        finally:
            self.xp.set_num_threads(threads)

    def forward(self, tokens, positions, mask, cache):
        xp = self.xp
        known, positions = self.numbers(tokens), self.numbers(positions)
        mask = None if mask is None else self.numbers(mask)
        batch, seq = known.shape
        past = 0 if cache is None else cache["keys"][0].shape[2]
        at = self.placed(known, positions, mask, cache)
        keys_at = np.array(at) if cache is None else np.concatenate([self.numbers(cache["at"]), at], 1)
        x = self.embedding[tokens]
        if self.code in ("sinusoidal", "learned"):
            x = x + self.added(at)
        seen = self.seen(known, mask, past)
        lowest = -np.inf if self.slip == "minus infinity" else -1e9
        hidden = self.array(np.where(seen, 0, lowest).astype(np.float32))[:, None]
        kept = {"keys": [], "values": [], "at": self.array(keys_at)}
        for number, layer in enumerate(self.layers):
            both = self.normed(x) @ layer["in"]
            q, k, v = (
                self.swapped(both[..., place * WIDTH : (place + 1) * WIDTH].reshape(batch, seq, HEADS, HEAD))
                for place in range(3)
            )
            if self.code in ("halves", "interleaved"):
                restarted = self.slip == "queries restart" and past
                queries_at = np.broadcast_to(np.arange(seq), (batch, seq)) if restarted else at
                q, k = self.turned(q, queries_at, past + seq), self.turned(k, at, past + seq)
            if cache is not None:
                k, v = self.joined([cache["keys"][number], k], 2), self.joined([cache["values"][number], v], 2)
            kept["keys"].append(k)
            kept["values"].append(v)
            scores = q @ self.swapped(k, 2, 3) / math.sqrt(HEAD) + hidden
            if self.code == "alibi":
                scores = scores + self.array(self.bias(at, keys_at, past))
            if self.slip == "minus infinity, in the last layer" and number == len(self.layers) - 1:
                scores = scores + self.array(np.where(seen, 0, -np.inf).astype(np.float32))[:, None]
            with np.errstate(invalid="ignore"):
                weights = xp.exp(scores - self.highest(scores))
            mixed = (weights / weights.sum(-1)[..., None]) @ v
            x = x + self.swapped(mixed).reshape(batch, seq, WIDTH) @ layer["out"]
            x = x + xp.tanh(self.normed(x) @ layer["up"]) @ layer["down"]
        return self.normed(x) @ self.head, kept

    def normed(self, x):
        return x / (((x * x).mean(-1) + 1e-6) ** 0.5)[..., None]

    def swapped(self, x, one=1, other=2):
        return x.swapaxes(one, other)

    def highest(self, scores):
        return scores.amax(-1)[..., None] if self.library == "torch" else scores.max(-1)[..., None]


def shifted(keys_turned):
    """A function(cache, by) that moves a cache: with its keys turned on, or left as they are."""
    return lambda cache, by: moved(cache, by if keys_turned else 0, by)


def moved(cache, turned, by, rows=slice(None)):
    """A cache whose keys, of some texts, are turned on by ``turned`` and said to be further by ``by``."""
    keys = [np.array(each) for each in cache["keys"]]
    for each in keys:
        each[rows] = _turned_on(each[rows], turned)
    return dict(cache, keys=keys, at=cache["at"] + by)


def joined(keys_turned):
    """A function(cache, cache) that joins two: the second's keys turned on, or left as they are."""

    def join(first, second):
        by = first["keys"][0].shape[2]
        second = shifted(keys_turned)(second, by if keys_turned else 0)
        return {
            "keys": [np.concatenate(pair, 2) for pair in zip(first["keys"], second["keys"], strict=True)],
            "values": [np.concatenate(pair, 2) for pair in zip(first["values"], second["values"], strict=True)],
            "at": np.concatenate([first["at"], second["at"]], 1),
        }

    return join


def _turned_on(keys, by):
    phases = np.float32(by) * rates(0, None)
    a, b = keys[..., : HEAD // 2], keys[..., HEAD // 2 :]
    return np.concatenate([a * np.cos(phases) - b * np.sin(phases), a * np.sin(phases) + b * np.cos(phases)], -1)
