"""A small transformer: padded on the left, packed, and decoded from a cache, its logits are those of plain passes.

The same code runs in PyTorch and JAX, on the same weights; only the position codes are held by each library's own.
"""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.rotary import rerotate
from conftest import Backend, load_backend

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

DRAWN = np.random.default_rng(17)
WEIGHTS = {
    "embedding": DRAWN.standard_normal((WORDS, WIDTH)),
    **{
        f"{layer}.{name}": DRAWN.standard_normal(shape) / np.sqrt(shape[0])
        for layer in range(LAYERS)
        for name, shape in {
            "q": (WIDTH, HEADS * HEAD),
            "k": (WIDTH, HEADS * HEAD),
            "v": (WIDTH, HEADS * HEAD),
            "o": (HEADS * HEAD, WIDTH),
            "up": (WIDTH, 2 * WIDTH),
            "down": (2 * WIDTH, WIDTH),
        }.items()
    },
}
TEXTS = [DRAWN.integers(0, WORDS, length) for length in (4, 6, 3)]


class Transformer:
    """Pre-norm attention and a network, with a cache of turned keys; written in what both libraries share."""

    def __init__(self, backend: Backend, name: str) -> None:
        from array_api_compat import array_namespace

        held = importlib.import_module(f"clockhands.{backend.name}")
        self.weights = {key: backend.asarray(array, "float32") for key, array in WEIGHTS.items()}
        self.xp = array_namespace(self.weights["embedding"])
        self.rotary = held.Rotary(SPECS[name])
        self.additive = held.Additive(ch.Sinusoidal(WIDTH)) if name == "with sinusoids" else None
        self.asarray = backend.asarray
        # JAX, untraced, takes a second for a step: the shortest text alone is decoded there.
        self.texts = TEXTS[-1:] if backend.name == "jax" else TEXTS

    def norm(self, x: Any) -> Any:
        return x / self.xp.sqrt(self.xp.mean(x * x, axis=-1, keepdims=True) + 1e-6)

    def heads(self, x: Any, weight: str) -> Any:
        xp = self.xp
        split = xp.reshape(x @ self.weights[weight], (*x.shape[:-1], HEADS, HEAD))
        return xp.permute_dims(split, (0, 2, 1, 3))

    def __call__(self, tokens: np.ndarray, positions: Any, mask: Any, cache: Any = None) -> tuple[Any, Any]:
        """Logits [batch, seq, words] of tokens [batch, seq]; ``mask`` [batch, seq, keys] is True for what is seen."""
        xp = self.xp
        x = xp.reshape(
            xp.take(self.weights["embedding"], self.asarray(tokens.reshape(-1)), axis=0), (*tokens.shape, -1)
        )
        if self.additive is not None:
            x = self.additive(x, positions)
        kept = []
        for layer in range(LAYERS):
            y = self.norm(x)
            q, k, v = (self.heads(y, f"{layer}.{name}") for name in "qkv")
            q, k = self.rotary.both(q, k, positions)
            if cache is not None:
                k, v = (xp.concat([old, new], axis=2) for old, new in zip(cache[layer], (k, v), strict=True))
            kept.append((k, v))
            scores = q @ xp.permute_dims(k, (0, 1, 3, 2)) / np.sqrt(HEAD)
            scores = xp.where(mask[:, None], scores, xp.full_like(scores, -1e30))
            scores = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
            mixed = (scores / xp.sum(scores, axis=-1, keepdims=True)) @ v
            joined = xp.reshape(xp.permute_dims(mixed, (0, 2, 1, 3)), (*tokens.shape, HEADS * HEAD))
            x = x + joined @ self.weights[f"{layer}.o"]
            y = self.norm(x) @ self.weights[f"{layer}.up"]
            x = x + xp.where(y > 0, y, xp.zeros_like(y)) @ self.weights[f"{layer}.down"]
        return self.norm(x) @ self.weights["embedding"].T, kept

    def plain(self, text: np.ndarray) -> np.ndarray:
        """The logits of one text by itself."""
        return self.shown(self(text[None], None, self.asarray(causal(len(text))[None]))[0])[0]

    def shown(self, logits: Any) -> np.ndarray:
        return np.asarray(logits)


def causal(length: int) -> np.ndarray:
    return np.tril(np.ones((length, length), bool))


# JAX, untraced, takes its time.
CASES = [
    pytest.param(
        (library, name),
        id=f"{library}, {name}",
        marks=[pytest.mark.slow] if library == "jax" and name != "with sinusoids" else [],
    )
    for library in ("torch", "jax")
    for name in SPECS
]


@pytest.fixture(params=CASES)
def transformer(request: pytest.FixtureRequest) -> Transformer:
    library, name = request.param
    pytest.importorskip(library)
    return Transformer(load_backend(library), name)


def padded(transformer: Transformer, count: Callable[[int, int], np.ndarray]) -> list[np.ndarray]:
    """The logits of texts in one batch, padded on the left; ``count(padding, length)`` are the positions of a row."""
    length = max(map(len, TEXTS))
    tokens = np.stack([np.concatenate([np.zeros(length - len(text), int), text]) for text in TEXTS])
    real = np.stack([np.arange(length) >= length - len(text) for text in TEXTS])
    # Padding sees itself, so that its softmax is of something; nobody sees padding.
    mask = causal(length) & (real[:, None, :] | np.eye(length, dtype=bool))
    positions = np.stack([count(length - len(text), length) for text in TEXTS])
    logits = transformer.shown(transformer(tokens, positions, transformer.asarray(mask))[0])
    return [row[length - len(text) :] for row, text in zip(logits, TEXTS, strict=True)]


def packed(transformer: Transformer, positions: np.ndarray) -> list[np.ndarray]:
    """The logits of texts in one row, each seeing itself only."""
    owner = np.repeat(np.arange(len(TEXTS)), [len(text) for text in TEXTS])
    mask = causal(len(owner)) & (owner[:, None] == owner)
    tokens = np.concatenate(TEXTS)[None]
    logits = transformer.shown(transformer(tokens, positions, transformer.asarray(mask[None]))[0])[0]
    return [logits[owner == text] for text in range(len(TEXTS))]


def decoded(transformer: Transformer, text: np.ndarray, position: Callable[[int], Any]) -> np.ndarray:
    """The logits of one text, token by token."""
    cache, rows = None, []
    for index in range(len(text)):
        mask = transformer.asarray(np.ones((1, 1, index + 1), bool))
        logits, cache = transformer(text[None, index : index + 1], position(index), mask, cache)
        rows.append(transformer.shown(logits)[0, 0])
    return np.stack(rows)


def farthest(given: list[np.ndarray], transformer: Transformer) -> float:
    texts = TEXTS[-len(given) :]
    return max(float(np.abs(rows - transformer.plain(text)).max()) for rows, text in zip(given, texts, strict=True))


def from_padding(padding: int, length: int) -> np.ndarray:
    return np.maximum(np.arange(length) - padding, 0)


RESTARTING = np.concatenate([np.arange(len(text)) for text in TEXTS])


def test_padded_on_the_left(transformer: Transformer):
    assert farthest(padded(transformer, from_padding), transformer) < CLOSE


def test_packed(transformer: Transformer):
    assert farthest(packed(transformer, RESTARTING), transformer) < CLOSE


def test_decoded_token_by_token(transformer: Transformer):
    given = [decoded(transformer, text, lambda index: [[index]]) for text in transformer.texts]
    assert farthest(given, transformer) < CLOSE


def test_decoded_from_far_away(transformer: Transformer):
    """A rotary code knows distances only: the logits are the same wherever the text stands."""
    given = [decoded(transformer, text, lambda index: [[2**40 + index]]) for text in transformer.texts]
    assert (farthest(given, transformer) < CLOSE) == (transformer.additive is None)


@pytest.mark.parametrize(
    "wrong",
    [
        # One vector of positions for all rows; documents that do not start at 0; one document's order turned round.
        lambda model: padded(model, lambda _, length: np.arange(length)) if model.additive else None,
        lambda model: packed(model, np.arange(len(RESTARTING))) if model.additive else None,
        lambda model: packed(model, RESTARTING[::-1].copy()),
        # Every step at 0, a step too far at the end, the position of another row.
        lambda model: [decoded(model, text, lambda _: [[0]]) for text in model.texts],
        lambda model: [decoded(model, text, lambda index: [[index + (index > 1)]]) for text in model.texts],
        lambda model: padded(model, lambda _, length: from_padding(0, length) // 2),
    ],
)
def test_wrong_positions_are_seen(transformer: Transformer, wrong: Callable[[Transformer], Any]):
    given = wrong(transformer)
    if given is not None:
        assert farthest(given, transformer) > 100 * CLOSE


def test_both_libraries_agree():
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    for name in SPECS:
        one, other = (Transformer(load_backend(library), name).plain(TEXTS[1]) for library in ("torch", "jax"))
        assert np.abs(one - other).max() < CLOSE


@pytest.mark.parametrize("by", [1000, -7, 2**40])
def test_cached_keys_are_moved(transformer: Transformer, by: int):
    """Keys turned for other positions are the keys turned afresh, and their scores too."""
    keys = transformer.asarray(np.random.default_rng(4).standard_normal((2, HEADS, 9, HEAD)), "float32")
    start = np.arange(9) + (2000 if by < 0 else 0)
    spec = transformer.rotary.spec
    moved = np.asarray(rerotate(transformer.rotary(keys, start), spec, start, start + by))
    fresh = np.asarray(transformer.rotary(keys, start + by))
    largest = np.abs(fresh).max()
    assert np.abs(moved - fresh).max() < 2.0**-21 * largest
    stale = np.asarray(transformer.rotary(keys, start))
    assert np.abs(stale - fresh).max() > 0.1 * largest
