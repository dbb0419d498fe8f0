"""Laws of additive encodings."""

import itertools

import numpy as np

from clockhands.encodings.clocks import kernel, shift
from clockhands.encodings.layouts import pair_channels
from clockhands.errors import InvalidValue
from clockhands.testing.laws._subjects import ADDITIVE, LawBroken, Subject, close, demand, laws_of

_STEPS = (1, 2, 17, -5, 1_000)


def bounded(subject: Subject) -> None:
    """No number of the code is larger than 1, wherever it stands."""
    rows = subject.rows(subject.some(256))
    worst = float(np.abs(rows).max())
    demand(worst <= 1, f"a number of the code is {worst:.6g} in size")


def shifted_by_one_matrix(subject: Subject) -> None:
    """One matrix moves the rows by k tokens, wherever they stand."""
    # The matrix is fitted to the rows alone, so that the law tests the numbers and not the spec.
    width = subject.spec.width
    for step in _STEPS[:3]:
        at = _with_room(subject, step, 8 * width)
        before, after = subject.rows(at).astype(np.float64), subject.rows(at + step).astype(np.float64)
        matrix, *_ = np.linalg.lstsq(before[::2], after[::2], rcond=1e-7)
        # The error of each row, and that of the matrix, which is fitted to rows with the same error.
        allowed = 4 * (width + 1) * (subject.tolerance + 2.0**-24)
        close(before @ matrix, after, allowed, f"no one matrix moves all rows by {step}")
        demand(np.abs(before).any(), "every row is zero, so every matrix moves it")


def shift_is_a_rotation(subject: Subject) -> None:
    """The shift matrix is orthogonal, turns pairs apart from each other, and moves the rows."""
    width = subject.spec.width
    for step in _STEPS:
        matrix = _shift(subject, step)
        demand(matrix.shape == (width, width), f"the matrix of shift {step} is of shape {matrix.shape}")
        close(matrix @ matrix.T, np.eye(width), 8 * 2.0**-53, f"the matrix of shift {step} is not orthogonal")
        clock = subject.spec.clock()
        channels = pair_channels(clock.ladder.pairs, clock.layout) if clock.channels is None else clock.channels
        first, second = channels.T
        apart = matrix.copy()
        for a, b in itertools.product((first, second), repeat=2):
            apart[a, b] = 0
        demand(not apart.any(), f"the matrix of shift {step} mixes pairs")
        at = _with_room(subject, step, 64)
        moved = subject.rows(at).astype(np.float64) @ matrix.T
        # The matrix rotates pairs: at most sqrt(2) times the error of a row, plus the error of the expected row.
        close(moved, subject.rows(at + step), (1 + np.sqrt(2)) * subject.tolerance + 2.0**-50, f"shift by {step}")


def shifts_compose(subject: Subject) -> None:
    """A shift by j and one by k are a shift by j + k."""
    for j, k in itertools.product(_STEPS, repeat=2):
        both = _shift(subject, j) @ _shift(subject, k)
        close(both, _shift(subject, j + k), 8 * 2.0**-53, f"shifts by {j} and by {k} are not one by {j + k}")


def kernel_of_distance(subject: Subject) -> None:
    """The dot product of two rows depends on their distance only, and is the kernel."""
    width = subject.spec.width
    for step in _STEPS:
        at = _with_room(subject, step, 64)
        before, after = subject.rows(at).astype(np.float64), subject.rows(at + step).astype(np.float64)
        dots = (before * after).sum(axis=-1)
        try:
            wanted = kernel(subject.spec, subject.at(np.array([step])))
        except InvalidValue as error:
            raise LawBroken(error.message) from None
        # The numbers are at most 1, so each product has the errors of its two factors.
        allowed = 2.1 * width * subject.tolerance + width * 2.0**-50
        close(dots, np.full(len(at), wanted[0]), allowed, f"the dot product at distance {step}")


def _shift(subject: Subject, step: int) -> np.ndarray:
    try:
        # For several axes a distance has several coordinates.
        distance = subject.at(np.array([step]))[0]
        return shift(subject.spec, distance)
    except InvalidValue as error:
        raise LawBroken(error.message) from None


def _with_room(subject: Subject, step: int, number: int) -> np.ndarray:
    """Positions that remain valid when they are moved by this distance."""
    at = subject.some(number)
    kept = subject.among(at + step) - step
    demand(len(kept) > number // 8, f"the code has too few positions for a shift by {step}")
    return kept


LAWS = laws_of(
    frozenset({ADDITIVE}), bounded, shifted_by_one_matrix, shift_is_a_rotation, shifts_compose, kernel_of_distance
)
