"""What is asked of an implementation of an additive code, and what is right.

Tokens are drawn once, of sizes around 1, and rounded to the dtype in which they are given, so that nothing is lost on
the way in. Right is the token, times its scale, plus `clockhands.table` in float64.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.additive import AdditiveCode, AxialSinusoidal, Sinusoidal
from clockhands.calling import Refused
from clockhands.errors import ClockhandsError
from clockhands.faults.adding import hands_of
from clockhands.ladders import Geometric
from clockhands.testing.additive_asking import answer, at_axes, tokens
from clockhands.testing.experiments import Answer, Experiment, Unasked
from clockhands.testing.rotary_experiments import ROWS, telling

_COUNTS = "it counts its rows itself"
_ALONE = "it gives a table and takes no tokens"


def asked_at(it: Any, positions: Any) -> np.ndarray:
    """These positions, as near as the code has them."""
    return np.clip(np.asarray(positions), it.lowest, it.length - 1)


def far(it: Any) -> np.ndarray:
    """Positions at which roundings show."""
    at = telling(it.length)
    return at[at >= it.lowest]


def near(it: Any) -> np.ndarray:
    """The same, not so far where every row up to them has to be made."""
    at = telling(min(it.length, 2100)) if it.call == "x" else telling(it.length)
    return at[at >= it.lowest]


def a_few_positions(it: Any) -> list[Answer]:
    """Tokens at positions near and far get the rows of these positions."""
    at = far(it)
    return [answer(it, "a few positions", tokens(it, 1, 1, len(at)), at)]


def tokens_of_zeros(it: Any) -> list[Answer]:
    """A token of zeros becomes the row of its position: the code is added, and does not depend on the token."""
    if it.call == "positions":
        raise Unasked(_ALONE)
    at = near(it)
    return [answer(it, "tokens of zeros", np.zeros((1, 1, len(at), it.spec.width)), at)]


def tokens_come_through(it: Any) -> list[Answer]:
    """The token comes through unchanged: what is added does not depend on it."""
    if it.call == "positions":
        raise Unasked(_ALONE)
    at = near(it)
    x = tokens(it, 1, 1, len(at), seed=21)
    some = answer(it, "tokens, less what tokens of zeros get", x, at)
    zeros = answer(it, "", np.zeros_like(x), at)
    return [
        replace(
            some,
            got=some.got - zeros.got,
            wanted=it.right.token_scale * x,
            allowed=some.allowed + zeros.allowed,
        )
    ]


def positions_that_start_later(it: Any) -> list[Answer]:
    """Tokens that start later get the rows of where they stand, not of their number in the call."""
    if it.call == "x":
        raise Unasked(_COUNTS)
    answers = []
    for start in (5, it.length // 2):
        first = max(it.lowest, min(start, it.length - 1))
        at = np.arange(first, min(first + ROWS, it.length))
        answers.append(answer(it, f"{len(at)} tokens from position {first:,}", tokens(it, 1, 1, len(at)), at))
    return answers


def any_order(it: Any) -> list[Answer]:
    """Packed sequences, repeated positions and positions out of order get what each token gets alone."""
    if it.call == "x":
        raise Unasked(_COUNTS)
    parts = [np.arange(8), np.arange(8), np.arange(3, 11), np.arange(30, 38), np.array([9, 2, 2, 6, 5, 40, 7, 0])]
    at = asked_at(it, np.concatenate(parts))
    return [answer(it, "sequences packed into one", tokens(it, 1, 1, len(at), seed=1), at)]


def one_at_a_time(it: Any) -> list[Answer]:
    """A token that comes alone, with its position, gets what it gets in the whole."""
    if it.call == "x":
        raise Unasked(_COUNTS)
    x, at = tokens(it, 1, 1, 6, seed=2), asked_at(it, [0, 1, 2, 5, 40, 300])
    return [
        answer(it, f"position {place} alone", x[:, :, row : row + 1], at[row : row + 1]) for row, place in enumerate(at)
    ]


def asked_again(it: Any) -> list[Answer]:
    """The same question has the same answer, whatever was asked between."""
    at = telling(min(it.length, 600))
    at = at[at >= it.lowest]
    return [answer(it, "the same positions again", tokens(it, 1, 1, len(at), seed=3), at) for _ in range(2)]


def sequences_beside_each_other(it: Any) -> list[Answer]:
    """Sequences beside each other, at the same positions, get the same rows."""
    at = asked_at(it, np.arange(2, 7))
    return [answer(it, "3 sequences", tokens(it, 3, 1, 5, seed=4), at)]


def positions_of_their_own(it: Any) -> list[Answer]:
    """Sequences of a batch that have positions of their own, as with padding on the left, get what each gets alone."""
    if it.call == "x":
        raise Unasked(_COUNTS)
    at = asked_at(it, np.stack([np.arange(6), np.arange(3, 9), np.maximum(np.arange(6) - 2, 0)]))
    return [answer(it, "3 sequences, each with positions of its own", tokens(it, 3, 1, 6, seed=5), at)]


def one_token_of_many_sequences(it: Any) -> list[Answer]:
    """One token of each of several sequences, as in decoding a batch, gets its row in each."""
    at = asked_at(it, [9])
    return [answer(it, "one token of each of 3 sequences", tokens(it, 3, 1, 1, seed=6), at)]


def coordinates_of_their_own(it: Any) -> list[Answer]:
    """Tokens whose coordinates differ, as those of an image, get the hands of each coordinate."""
    axes = it.right.axes
    if axes == 1:
        raise Unasked("the code has one axis, or its positions are the rows of a grid")
    at = np.random.default_rng(8).integers(0, min(it.length, 40), (ROWS, axes))
    return [answer(it, "coordinates that differ", tokens(it, 1, 1, ROWS, seed=7), at, given=True)]


def positions_below_zero(it: Any) -> list[Answer]:
    """Positions below 0 have rows of their own: one token before is not one token after."""
    if it.call == "x" or not it.right.goes_below_zero:
        raise Unasked(_COUNTS if it.call == "x" else "the code has no rows below position 0")
    if it.negative is False:
        raise Unasked("negative=False was said")
    after = np.array([*range(1, 13), 16, 31, 40, 100, 255, 257, 300, 1001])
    x = np.tile(tokens(it, 1, 1, len(after), seed=22), (1, 1, 2, 1))
    asked = answer(it, "positions below 0, and the same above", x, np.concatenate([-after, after]))
    if it.negative is None and (asked.shares > 1).any():
        before, above = np.split(asked.got, 2, axis=-2)
        same = np.abs(before - above) <= 2 * np.split(asked.allowed, 2, axis=-2)[1]
        if not same.all():
            raise Unasked(
                "below position 0 it gives something else altogether, such as rows counted from the end of a table; "
                "say negative=True if it should take these positions"
            )
    return [asked]


def coarser_tokens(it: Any) -> list[Answer]:
    """Tokens of a coarser dtype get the same code, rounded to it at the end."""
    _needs_coarser(it)
    at = near(it)
    x = tokens(it, 1, 1, len(at), seed=10, dtype=it.coarse)
    return [answer(it, f"{it.coarse} tokens", x, at, dtype=it.coarse)]


def coarser_tokens_before(it: Any) -> list[Answer]:
    """Tokens of a coarser dtype leave nothing behind for those after them."""
    _needs_coarser(it)
    at = near(it)
    it(tokens(it, 1, 1, len(at), seed=10, dtype=it.coarse), at_axes(it.right.axes, at), dtype=it.coarse)
    return [answer(it, f"the same positions after {it.coarse} tokens", tokens(it, 1, 1, len(at), seed=11), at)]


def coarser_model_first(it: Any) -> list[Answer]:
    """A model whose first tokens are of a coarser dtype gives later ones the same code."""
    _needs_coarser(it)
    return coarser_tokens_before(it.of(it.spec, first=it.coarse))


def _needs_coarser(it: Any) -> None:
    if it.call == "positions":
        raise Unasked(_ALONE)
    if it.coarse is None or it.coarse == it.dtype:
        raise Unasked("its library or its dtype has no coarser one")


def bounded(it: Any) -> list[Answer]:
    """The code is bounded: no wave is larger than its scale."""
    hands = hands_of(it.spec, it.right.values)
    if hands is None or (hands.raw >= 0).any() or getattr(it.spec, "standardised", None) is not None:
        raise Unasked("the code has no bound of waves")
    at = far(it)
    asked = answer(it, "the size of the code", np.zeros((1, 1, len(at), it.spec.width)), at)
    largest = np.abs(asked.wanted).max()
    return [replace(asked, got=np.maximum(np.abs(asked.got), largest), wanted=np.full(asked.got.shape, largest))]


def scores_depend_on_distance(it: Any) -> list[Answer]:
    """The dot product of two rows depends on their distance only."""
    try:
        it.spec.clock()
    except ClockhandsError as error:
        raise Unasked("the dot products of its rows depend on more than the distance") from error
    if getattr(it.spec, "zero_rows", ()) or it.length < 520:
        raise Unasked("it has rows of zeros, or few rows")
    at = telling(520)
    at = at[at >= it.lowest]
    first, second = np.arange(len(at)), np.roll(np.arange(len(at)), -1)
    zeros = np.zeros((1, 1, len(at), it.spec.width))
    one = answer(it, "the dot products of neighbouring rows of these positions", zeros, at)
    rows, size, off = one.got[0, 0], np.abs(one.wanted[0, 0]), one.allowed[0, 0]
    # Each product is off by the errors of both numbers.
    allowed = (size[first] * off[second] + size[second] * off[first] + off[first] * off[second]).sum(axis=-1)
    right = (one.wanted[0, 0][first] * one.wanted[0, 0][second]).sum(axis=-1)
    got = (rows[first] * rows[second]).sum(axis=-1)
    return [Answer(one.asked, got[None, :, None], right[None, :, None], allowed[None, :, None], at[None, :])]


def siblings(spec: AdditiveCode) -> dict[str, Callable[[], AdditiveCode]]:
    """Codes that differ in one thing that a cache may forget, by what that is."""
    found: dict[str, Callable[[], AdditiveCode]] = {}
    if not isinstance(spec, Sinusoidal | AxialSinusoidal):
        return found
    if isinstance(spec.spacing, Geometric):
        base = 1e6 if spec.spacing.base < 1e5 else 1e4
        found["base"] = lambda: replace(spec, spacing=replace(spec.spacing, base=base))  # type: ignore[arg-type]
    # The narrower one second: a table that is kept without its width is cut to fit, and nothing is raised.
    width = spec.width // 2 if spec.width % 4 == 0 and spec.width >= 8 else 2 * spec.width
    found["width"] = lambda: replace(spec, width=width)
    if isinstance(spec, Sinusoidal) and spec.order in {"sin-cos", "cos-sin"}:
        other = {"sin-cos": "cos-sin", "cos-sin": "sin-cos"}[spec.order]
        found["order"] = lambda: replace(spec, order=other)  # type: ignore[arg-type]
    return found


def two_models(what: str) -> Experiment:
    """Two models of one process that differ in one thing."""

    def run(it: Any) -> list[Answer]:
        changes = siblings(it.spec)
        if what not in changes:
            raise Unasked(f"the code has no {what} to be another")
        try:
            other = changes[what]()
        except ClockhandsError as error:
            raise Unasked(str(error)) from error
        at = asked_at(it, np.arange(ROWS))
        first, second = it.of(it.spec), it.of(other)
        x = tokens(it, 1, 1, len(at), seed=14)
        return [
            answer(first, "the first model", x, at),
            answer(second, f"a second model, of another {what}", tokens(second, 1, 1, len(at), seed=15), at),
            answer(first, f"the first model after that of another {what}", x, at),
        ]

    asks = f"Two models in one process, of another {what} each, each get their own numbers."
    return Experiment(f"two models of another {what}", asks, run)


def every_position(it: Any) -> list[Answer]:
    """Every position below the length gets its own row."""
    at, axes = np.arange(it.lowest, it.length), it.right.axes
    # Uniform numbers are drawn in a fraction of the time, and there may be millions.
    x = np.zeros((1, 1, len(at), it.spec.width))
    if it.call != "positions":
        x += np.random.default_rng(17).integers(-96, 97, x.shape, np.int8) / 64
    what = f"positions {it.lowest} to {it.length - 1:,}"
    if axes == 1:
        return [answer(it, what, x, at)]
    turned = np.stack([np.roll(at, axis * len(at) // axes) for axis in range(axes)], axis=-1)
    return [answer(it, what, x, turned, given=True)]


def _experiment(name: str, run: Callable[[Any], list[Answer]], *, needed: bool = False) -> Experiment:
    return Experiment(name, (run.__doc__ or "").partition("\n")[0], run, needed)


SMALL = (
    _experiment("a few positions", a_few_positions, needed=True),
    _experiment("tokens of zeros", tokens_of_zeros, needed=True),
    _experiment("tokens come through", tokens_come_through, needed=True),
    _experiment("bounded", bounded),
    _experiment("scores depend on distance only", scores_depend_on_distance),
    _experiment("positions that start later", positions_that_start_later),
    _experiment("packed equals separate", any_order),
    _experiment("decoding equals the full pass", one_at_a_time),
    _experiment("sequences beside each other", sequences_beside_each_other),
    _experiment("positions of their own", positions_of_their_own),
    _experiment("one token of many sequences", one_token_of_many_sequences),
    _experiment("coordinates of their own", coordinates_of_their_own),
    _experiment("positions below zero", positions_below_zero),
    _experiment("asked again", asked_again),
    _experiment("coarser tokens", coarser_tokens),
    _experiment("coarser tokens before", coarser_tokens_before),
    two_models("base"),
    two_models("width"),
    two_models("order"),
    _experiment("a model of coarser tokens first", coarser_model_first),
)
"""Quick to ask: a suspect is asked all of them."""

EVERY = _experiment("every position", every_position, needed=True)

__all__ = ["EVERY", "SMALL", "Refused", "answer", "tokens"]
