"""Models whose layers keep a state: padding that gets into it is named, alone and behind a layer of attention."""

import numpy as np

from clockhands.testing import check_generation

TOKENS, WIDTH = 53, 16


class KeepsState:
    """Attention or none, then a layer whose state decays; each token is mixed with the one before it.

    Args:
        how: What padding does: it updates the ``state``, is the token ``before``, or is ``kept`` of a first call.
        attention: Whether there is a layer of attention in front.
    """

    def __init__(self, how=None, attention=False):
        self.how, self.attention = how, attention
        draw = np.random.default_rng(1)
        self.rows = draw.standard_normal((TOKENS, WIDTH)).astype(np.float32)
        shapes = [(WIDTH, WIDTH)] * 8 + [(WIDTH, TOKENS)]
        self.weights = [(draw.standard_normal(one) / 3).astype(np.float32) for one in shapes]

    def __call__(self, tokens, positions, mask, cache):
        batch, size = tokens.shape
        cache = cache or {"past": 0, "keys": np.zeros((batch, 0, WIDTH), np.float32)}
        past = cache["past"]
        mask = np.ones((batch, past + size), bool) if mask is None else mask
        q, k, v, out, key, value, query, mixed, head = self.weights
        x = self.rows[tokens]
        keys, values = cache["keys"], cache.get("values", cache["keys"])
        if self.attention:
            keys = np.concatenate([keys, turned(x @ k, positions)], 1)
            values = np.concatenate([values, x @ v], 1)
            seen = mask[:, None] & (np.arange(past + size) <= past + np.arange(size)[:, None])
            scores = np.where(seen, turned(x @ q, positions) @ keys.swapaxes(1, 2) / 4, -1e9)
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            x = x + shares / shares.sum(-1, keepdims=True) @ values @ out
        state = cache.get("state", np.zeros((batch, WIDTH, WIDTH), np.float32))
        before = cache.get("before", np.zeros((batch, WIDTH), np.float32))
        said = []
        for place in range(size):
            kept = mask[:, past + place, None]
            both = x[:, place] + before
            after = 0.9 * state + (both @ key)[:, :, None] * (both @ value)[:, None]
            state = np.where(kept[:, :, None] | (self.how == "state"), after, state)
            before = np.where(kept | (self.how == "before"), x[:, place], before)
            said.append(np.einsum("bd,bde->be", both @ query, state))
        logits = (x + np.stack(said, 1) @ mixed) @ head
        if self.how == "kept" and not past:
            state = state + (~mask).sum(-1).astype(np.float32)[:, None, None]
        return logits, {
            "past": past + size, "keys": keys, "values": values, "state": state, "before": before,
        }  # fmt: skip


def turned(x, positions):
    angles = positions[..., None] * 100.0 ** (-np.arange(WIDTH // 2) / (WIDTH // 2))
    one, other = np.split(x, 2, axis=-1)
    cosine, sine = np.cos(angles), np.sin(angles)
    return np.concatenate([one * cosine - other * sine, one * sine + other * cosine], -1).astype(np.float32)


def test_padding_that_gets_into_a_state_is_named(cases):
    for attention in (False, True):
        for how in (None, "state", "before", "kept"):
            with cases(how, attention):
                report = check_generation(KeepsState(how, attention), vocabulary=TOKENS, raises=False)
                assert report.codes == ({"padding-in-state"} if how else set()), str(report)
                assert report.sound is (how is None)
                failed = {failure.experiment for failure in report.failures}
                assert ("left padding" in failed) is (how in {"state", "before"})
                if how:
                    assert "of its cache differs from that of the text alone" in report.explanations[0].message
                    assert set(report.explanations[0].evidence["explains"]) == failed
