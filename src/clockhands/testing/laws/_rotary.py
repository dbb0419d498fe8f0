"""Laws of rotary encodings; they hold after division by the attention factor."""

from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.encodings.rotary import Rotary
from clockhands.testing.laws._subjects import ROTARY, Subject, close, demand, laws_of

# The allowed error of a score, as a share of |q| |k|; the range of positions; and the number of tokens.
_SCORE = 1e-5
_FAR = 131_072
_TOKENS = 32


def norms_are_kept(subject: Subject) -> None:
    """A head is as long as it was before it was turned."""
    at = _places(subject, _TOKENS)
    x = _heads(subject)
    lengths = np.linalg.norm(x, axis=-1)
    turned = np.linalg.norm(_rotated(subject, x, at), axis=-1)
    close(turned / lengths, np.ones(_TOKENS), 8 * subject.tolerance, "a head changed its length")


def position_zero_is_the_identity(subject: Subject) -> None:
    """At position 0 nothing is turned."""
    demand(0 in subject.positions, "the code has no position 0")
    x = _heads(subject)
    at = subject.at(np.zeros(_TOKENS, np.int64))
    close(_rotated(subject, x, at), x, subject.allowed(x), "position 0 changes a head")


def scores_depend_on_distance_only(subject: Subject) -> None:
    """The dot product of a query and a key stays as it is when both move by as many tokens."""
    queries, keys = _heads(subject), _heads(subject, seed=1)
    there, here = _places(subject, _TOKENS, seed=2), _places(subject, _TOKENS, seed=3)
    if subject.spec.xpos is not None:  # the factor of a key after its query would grow without limit
        there, here = np.maximum(there, here), np.minimum(there, here)
    allowed = _SCORE * np.linalg.norm(queries, axis=-1) * np.linalg.norm(keys, axis=-1)
    wanted = _scores(subject, queries, keys, there, here)
    for step in _steps(subject, there, here):
        moved = _scores(subject, queries, keys, there + step, here + step)
        worst = (np.abs(moved - wanted) / allowed).max()
        demand(worst <= 1, f"moved by {step}, a score is off by {worst * _SCORE:.3g} |q| |k|")


def the_inverse_is_the_negative_position(subject: Subject) -> None:
    """What was turned by p tokens is turned back by -p."""
    at = _places(subject, _TOKENS)
    demand(-int(at.max()) in subject.positions, "the code has no negative positions")
    x = _heads(subject)
    turned = _rotated(subject, x, at)
    back = _rotated(subject, turned.astype(np.float32), -at)
    close(back, x, 8 * subject.allowed(turned), "the negative position does not rotate back")


def unrotated_channels_stay(subject: Subject) -> None:
    """Channels that do not turn are left as they are, bit for bit."""
    still = np.setdiff1d(np.arange(subject.width), subject.spec.channels)
    at = _places(subject, _TOKENS)
    for dtype in (np.float32, subject.coarse or np.float32):
        x = _heads(subject).astype(dtype)
        x[:4] = np.array([-0.0, np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max, 1 / 3])[:, None]
        x[:4, subject.spec.channels.reshape(-1)] = 1
        bits = f"u{x.itemsize}"
        same = subject.apply(x, at)[:, still].view(bits) == x[:, still].view(bits)
        demand(same.all(), f"a dimension that is not rotated was changed ({x.dtype})")


def layouts_agree_under_the_permutation(subject: Subject) -> None:
    """The other layout, given the same channels in its own order, gives the same channels in its own order."""
    spec: Rotary = subject.spec
    layout = {"halves": "interleaved", "interleaved": "halves"}[spec.layout]
    wanted: Any = replace(spec, layout=layout, reordered=False)
    for other in subject.others:
        if other.spec == wanted:
            at, x = _places(subject, _TOKENS), _heads(subject)
            theirs = x.copy()
            theirs[:, wanted.channels] = x[:, spec.channels]
            got, there = _rotated(subject, x, at), _rotated(other, theirs, at)
            close(there[:, wanted.channels], got[:, spec.channels], 2 * subject.allowed(got), "the other layout")


def packed_equals_separate(subject: Subject) -> None:
    """Sequences that stand in one, or beside each other with positions of their own, get what each gets alone."""
    start = max(0, subject.positions.start)
    parts = [subject.at(np.arange(start + first, start + first + 8)) for first in (0, 3, 1)]
    x = [_heads(subject, seed)[:8] for seed in range(3)]
    alone = [subject.apply(*part) for part in zip(x, parts, strict=True)]
    allowed = 2 * subject.allowed(np.stack(alone))
    together = subject.apply(np.concatenate(x), np.concatenate(parts))
    close(together, np.concatenate(alone), allowed, "a packed sequence is not what it is alone")
    # With two heads, so that the batch axis is not next to the axis of the tokens.
    beside = subject.apply(np.stack([np.stack([part, part]) for part in x]), np.stack(parts))
    close(beside[:, 1], np.stack(alone), allowed, "a sequence of a batch is not what it is alone")


def decoding_equals_the_full_pass(subject: Subject) -> None:
    """Tokens that come one at a time, each with its position, are turned as in the full pass."""
    start = max(0, subject.positions.start)
    at, x = subject.at(np.arange(start, start + 16)), _heads(subject)[:16]
    whole = subject.apply(x, at)
    single = [subject.apply(x[token : token + 1], at[token : token + 1]) for token in range(16)]
    close(np.concatenate(single), whole, 2 * subject.allowed(whole), "a single token is rotated differently")


def _heads(subject: Subject, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((_TOKENS, subject.width)).astype(np.float32)


def _places(subject: Subject, number: int, seed: int = 0) -> np.ndarray:
    """Positions within 131,072 tokens, independent on each axis."""
    start = max(subject.positions.start, 0)
    room = min(_FAR, subject.positions.stop - 1 - start)
    demand(room > 0, "the encoding has too few positions")
    return start + 1 + np.random.default_rng(seed).integers(0, room, subject.at(np.zeros(number)).shape)


def _steps(subject: Subject, *places: np.ndarray) -> list[Any]:
    """Shifts that keep all tokens at valid positions: small, large, to both ends; on all axes, then on one axis."""
    lowest, highest = (int(extreme(places)) for extreme in (np.min, np.max))
    least, most = subject.positions.start - lowest, subject.positions.stop - 1 - highest
    steps: list[Any] = [step for step in {1, 4_097, _FAR, least, most} if least <= step <= most and step]
    if subject.spec.axes is not None:
        steps += [np.eye(subject.spec.number_of_axes, dtype=np.int64)[axis] * min(most, 4_097) for axis in (0, -1)]
    demand(steps, "the code has too few positions to move anything")
    return steps


def _rotated(subject: Subject, x: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The rotated ``x``, float64, divided by the attention factor."""
    return _without_factor(subject, subject.apply(x, at))


def _without_factor(subject: Subject, turned: np.ndarray) -> np.ndarray:
    turned = np.array(turned, np.float64)
    turned[..., subject.spec.channels.reshape(-1)] /= subject.spec.attention_factor
    return turned


def _scores(subject: Subject, q: np.ndarray, k: np.ndarray, there: np.ndarray, here: np.ndarray) -> np.ndarray:
    keys = (subject.keys or subject.apply)(k, here)
    return (_rotated(subject, q, there) * _without_factor(subject, keys)).sum(axis=-1)


LAWS = laws_of(
    frozenset({ROTARY}),
    norms_are_kept,
    position_zero_is_the_identity,
    scores_depend_on_distance_only,
    the_inverse_is_the_negative_position,
    unrotated_channels_stay,
    layouts_agree_under_the_permutation,
    packed_equals_separate,
    decoding_equals_the_full_pass,
)
