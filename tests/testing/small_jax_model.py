"""A small causal model of JAX, one text at a time, with a cache that is returned."""

import jax
import jax.numpy as jnp

VOCABULARY, WIDTH, HEADS, HEAD, LAYERS, WINDOW = 41, 32, 4, 8, 2, 6


def rotated(x, positions):
    """Queries or keys [seq, heads, HEAD], by halves."""
    angles = positions[:, None, None] * 500.0 ** (-jnp.arange(0, HEAD, 2) / HEAD)
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * jnp.cos(angles) - b * jnp.sin(angles), b * jnp.cos(angles) + a * jnp.sin(angles)], -1)


class Model:
    """Every second layer has a window; ``slip`` is what is wrong, or None."""

    def __init__(self, slip=None):
        self.slip = slip
        drawn = iter(jax.random.split(jax.random.key(5), 1 + 2 * LAYERS))
        self.table = jax.random.normal(next(drawn), (VOCABULARY, WIDTH))
        shapes = ((WIDTH, 3, HEADS, HEAD), (HEADS, HEAD, WIDTH))
        self.layers = [[0.3 * jax.random.normal(next(drawn), shape) for shape in shapes] for _ in range(LAYERS)]

    def __call__(self, tokens, cache=None):
        kept, x = [], self.table[jnp.asarray(tokens)]
        for number, (read, write) in enumerate(self.layers):
            queries, keys, values = jnp.moveaxis(jnp.einsum("td,dphc->tphc", x, read), 1, 0)
            past = 0 if cache is None else len(cache[number][0])
            at = jnp.arange(past, past + len(x))
            of_queries = at + 1 if self.slip == "queries further" and past else at
            keys = rotated(keys, at)
            if past:
                keys, values = (jnp.concatenate(each) for each in zip(cache[number], (keys, values), strict=True))
            kept.append((keys, values))
            apart = at[:, None] - jnp.arange(len(keys))
            near = jnp.arange(len(x))[:, None] - jnp.arange(len(keys)) if self.slip == "window of the call" else apart
            seen = (apart >= 0) & ((near < WINDOW) | (number % 2 == 0))
            scores = jnp.einsum("qhc,khc->hqk", rotated(queries, of_queries), keys) / HEAD**0.5
            weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf))
            x = x + jnp.einsum("qhc,hcd->qd", jnp.einsum("hqk,khc->qhc", weights, values), write)
        return x @ self.table.T, kept
