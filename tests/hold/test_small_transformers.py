"""A small transformer: padded on the left, packed, and decoded from a cache, its logits are those of plain passes.

The same code runs in PyTorch and JAX, on the same weights, with the position codes that each library holds; the plain
passes are those of NumPy.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from array_api_compat import array_namespace

import clockhands as ch
from clockhands.rotary import rerotate, rotate_both
from conftest import load_backend

LAYERS, HEADS, WIDTH, HEAD, WORDS = 2, 4, 32, 16, 29
CLOSE = 1e-5
SPECS = {
    "halves": ch.Rotary(head_width=HEAD),
    "interleaved": ch.Rotary(head_width=HEAD, layout="interleaved", base=5e5),
    "in part": ch.Rotary(head_width=HEAD, rotated=8, part="last"),
    "scaled": ch.Rotary(head_width=HEAD, scaling=ch.scaling.Yarn(factor=8.0, original=64)),
    # Its logits do depend on where the text starts, as those of rotary codes alone do not.
    "with sinusoids": ch.Rotary(head_width=HEAD),
}
SINUSOIDS = ch.Sinusoidal(WIDTH)

DRAWN = np.random.default_rng(17)
EMBEDDING = DRAWN.standard_normal((WORDS, WIDTH))
SHAPES = {
    **dict.fromkeys("qkv", (WIDTH, HEADS * HEAD)),
    "o": (HEADS * HEAD, WIDTH),
    "up": (WIDTH, 2 * WIDTH),
    "down": (2 * WIDTH, WIDTH),
}
WEIGHTS = [
    {name: DRAWN.standard_normal(shape) / np.sqrt(shape[0]) for name, shape in SHAPES.items()} for _ in range(LAYERS)
]
TEXTS = [DRAWN.integers(0, WORDS, length) for length in (4, 6, 3)]


def norm(x: Any) -> Any:
    xp = array_namespace(x)
    return x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def projected(layer: dict[str, Any], x: Any) -> tuple[Any, ...]:
    xp, y = array_namespace(x), norm(x)
    split = (xp.reshape(y @ layer[name], (*x.shape[:-1], HEADS, HEAD)) for name in "qkv")
    return tuple(xp.permute_dims(heads, (0, 2, 1, 3)) for heads in split)


def mixed(layer: dict[str, Any], x: Any, mask: Any, heads: tuple[Any, ...]) -> Any:
    """Attention and a network, each added to ``x``."""
    xp, (q, k, v) = array_namespace(x), heads
    scores = q @ xp.permute_dims(k, (0, 1, 3, 2)) / HEAD**0.5
    scores = xp.where(mask[:, None], scores, xp.full_like(scores, -1e30))
    scores = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    seen = (scores / xp.sum(scores, axis=-1, keepdims=True)) @ v
    x = x + xp.reshape(xp.permute_dims(seen, (0, 2, 1, 3)), (*x.shape[:-1], HEADS * HEAD)) @ layer["o"]
    y = norm(x) @ layer["up"]
    return x + xp.where(y > 0, y, xp.zeros_like(y)) @ layer["down"]


class Transformer:
    """Pre-norm attention and a network, with a cache of turned keys; written in what the libraries share."""

    def __init__(self, library: str, name: str) -> None:
        backend = load_backend(library)
        self.asarray, self.spec = backend.asarray, SPECS[name]
        self.layers = [{key: backend.asarray(array, "float32") for key, array in layer.items()} for layer in WEIGHTS]
        self.embedding = backend.asarray(EMBEDDING, "float32")
        self.sinusoids = name == "with sinusoids"
        if library == "numpy":
            self.turned: Any = lambda q, k, at: rotate_both(q, k, self.spec, at)
            self.added: Any = lambda x, at: ch.add(x, SINUSOIDS, at)
        else:
            held = importlib.import_module(f"clockhands.{library}")
            self.turned, self.added = held.Rotary(self.spec).both, held.Additive(SINUSOIDS)
        # JAX, which compiles each operation for each shape, takes a second for what is not compiled together.
        compiled = importlib.import_module("jax").jit if library == "jax" else lambda function: function
        self.projected, self.mixed = compiled(projected), compiled(mixed)
        self.texts = TEXTS[-1:] if library == "jax" else TEXTS

    def __call__(self, tokens: np.ndarray, positions: Any, mask: Any, cache: Any = None) -> tuple[np.ndarray, Any]:
        """Logits [batch, seq, words] of tokens [batch, seq]; ``mask`` [batch, seq, keys] is True for what is seen."""
        mask, x = self.asarray(mask), self.asarray(EMBEDDING[tokens], "float32")
        xp = array_namespace(x)
        if self.sinusoids:
            x = self.added(x, positions)
        kept = []
        for index, layer in enumerate(self.layers):
            q, k, v = self.projected(layer, x)
            q, k = self.turned(q, k, positions)
            if cache is not None:
                k, v = (xp.concat([old, new], axis=2) for old, new in zip(cache[index], (k, v), strict=True))
            kept.append((k, v))
            x = self.mixed(layer, x, mask, (q, k, v))
        return np.asarray(norm(x) @ self.embedding.T), kept

    def plain(self, text: np.ndarray) -> np.ndarray:
        """The logits of one text by itself."""
        return self(text[None], None, causal(len(text))[None])[0][0]


@functools.cache
def wanted(name: str) -> list[np.ndarray]:
    """The logits of each text by itself."""
    return [Transformer("numpy", name).plain(text) for text in TEXTS]


def causal(length: int) -> np.ndarray:
    return np.tril(np.ones((length, length), bool))


def padded(transformer: Transformer, count: Callable[[int, int], np.ndarray]) -> list[np.ndarray]:
    """The logits of texts in one batch, padded on the left; ``count(padding, length)`` are the positions of a row."""
    length = max(map(len, TEXTS))
    tokens = np.stack([np.concatenate([np.zeros(length - len(text), int), text]) for text in TEXTS])
    real = np.stack([np.arange(length) >= length - len(text) for text in TEXTS])
    # Padding sees itself, so that its softmax is of something; nobody sees padding.
    mask = causal(length) & (real[:, None, :] | np.eye(length, dtype=bool))
    positions = np.stack([count(length - len(text), length) for text in TEXTS])
    logits = transformer(tokens, positions, mask)[0]
    return [row[length - len(text) :] for row, text in zip(logits, TEXTS, strict=True)]


def packed(transformer: Transformer, positions: np.ndarray) -> list[np.ndarray]:
    """The logits of texts in one row, each seeing itself only."""
    owner = np.repeat(np.arange(len(TEXTS)), [len(text) for text in TEXTS])
    mask = causal(len(owner)) & (owner[:, None] == owner)
    logits = transformer(np.concatenate(TEXTS)[None], positions, mask[None])[0][0]
    return [logits[owner == text] for text in range(len(TEXTS))]


def decoded(transformer: Transformer, position: Callable[[int], int]) -> list[np.ndarray]:
    """The logits of texts, each token by token."""
    found = []
    for text in transformer.texts:
        cache, rows = None, []
        for index in range(len(text)):
            seen = np.ones((1, 1, index + 1), bool)
            logits, cache = transformer(text[None, index : index + 1], [[position(index)]], seen, cache)
            rows.append(logits[0, 0])
        found.append(np.stack(rows))
    return found


def from_padding(padding: int, length: int) -> np.ndarray:
    return np.maximum(np.arange(length) - padding, 0)


RESTARTING = np.concatenate([np.arange(len(text)) for text in TEXTS])
RIGHT = {
    "plain": lambda model: [model.plain(text) for text in model.texts],
    "padded on the left": lambda model: padded(model, from_padding),
    "packed": lambda model: packed(model, RESTARTING),
    "token by token": lambda model: decoded(model, lambda index: index),
}
# A rotary code knows distances only: these give the same logits, and other ones where sinusoids are added.
MOVED = {
    "far away": lambda model: decoded(model, lambda index: 2**40 + index),
    "one vector for all rows": lambda model: padded(model, lambda _, length: np.arange(length)),
    "documents that do not start at 0": lambda model: packed(model, np.arange(len(RESTARTING))),
}
WRONG = {
    "one document's order turned round": lambda model: packed(model, RESTARTING[::-1].copy()),
    "every step at 0": lambda model: decoded(model, lambda _: 0),
    "a step too far at the end": lambda model: decoded(model, lambda index: index + (index > 1)),
    "every second": lambda model: padded(model, lambda _, length: from_padding(0, length) // 2),
}


@pytest.mark.parametrize(
    ("library", "names"),
    [
        ("torch", list(SPECS)),
        ("jax", ["with sinusoids"]),
        pytest.param("jax", [name for name in SPECS if name != "with sinusoids"], marks=pytest.mark.slow),
    ],
)
def test_logits_are_those_of_plain_passes_and_wrong_positions_are_seen(library: str, names: list[str], cases):
    pytest.importorskip(library)
    for name in names:
        model = Transformer(library, name)
        for how, logits in (RIGHT | MOVED | WRONG).items():
            with cases(name, how):
                found = logits(model)  # of all texts, or of the last ones
                pairs = zip(found, wanted(name)[-len(found) :], strict=True)
                farthest = max(float(np.abs(one - other).max()) for one, other in pairs)
                if how in WRONG or (how in MOVED and model.sinusoids):
                    assert farthest > 100 * CLOSE
                else:
                    assert farthest < CLOSE


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_cached_keys_are_moved(library: str, cases):
    """Keys turned for other positions are the keys turned afresh, and their scores too."""
    backend, held = load_backend(library), pytest.importorskip(f"clockhands.{library}")
    keys = backend.asarray(np.random.default_rng(4).standard_normal((2, HEADS, 9, HEAD)), "float32")
    for name, spec in SPECS.items():
        turned = held.Rotary(spec)
        for by in (1000, -7, 2**40):
            start = np.arange(9) + (2000 if by < 0 else 0)
            stale = turned(keys, start)
            moved, fresh = np.asarray(rerotate(stale, spec, start, start + by)), np.asarray(turned(keys, start + by))
            largest = np.abs(fresh).max()
            with cases(name, by):
                assert np.abs(moved - fresh).max() < 2.0**-21 * largest
                assert np.abs(np.asarray(stale) - fresh).max() > 0.1 * largest
