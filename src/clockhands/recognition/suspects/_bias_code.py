"""An implementation of a bias in stages, its measured learned numbers, and suspects that keep state.

The stages are ``places -> tokens -> numbers``: positions are read and become numbers of tokens, which are multiplied by
slopes or looked up in a table. Everything is float64, so that rounding does not hide the effect of a fault.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from clockhands.encodings.biases import BiasCode, TableCode, bias, row_numbers
from clockhands.recognition.suspects._fault_model import FaultModel
from clockhands.recognition.suspects._stages import SuspectMaker, shared

Apply = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""``apply(queries [queries], keys [keys]) -> [heads, queries, keys]``, float64."""

Places = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
Numbers = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
Rows = Callable[[np.ndarray], np.ndarray]

FORMS: Mapping[str, tuple[str, Apply]] = {
    "distance": ("-slope (q - k)", lambda queries, keys: keys - queries),
    "past": ("-slope max(q - k, 0)", lambda queries, keys: -np.maximum(queries - keys, 0)),
    "symmetric": ("-slope |q - k|", lambda queries, keys: -np.abs(queries - keys)),
    "key": ("slope k", lambda _, keys: keys),
    "last-key": ("slope (k - last key)", lambda _, keys: keys - keys.max(initial=0)),
}
"""The forms of a linear bias: in words, and the tokens of queries [queries, 1] and keys [1, keys]."""


@dataclass(eq=False)
class StagedBias:
    """A correct implementation, or one with some stages replaced.

    Attributes:
        spec: The code.
        values: Learned numbers.
        slopes: Slopes of a linear bias, [heads].
        form: Form of a linear bias.
        places: Maps positions of queries and keys to those that are used.
        tokens: Maps numbers of tokens to those that are used.
        rows: Table row of each distance, if different from the code's.
        numbers: Maps the bias, queries and keys to the result.
    """

    spec: BiasCode
    values: Any = None
    _: KW_ONLY
    slopes: np.ndarray | None = None
    form: str | None = None
    places: Places | None = None
    tokens: Rows | None = None
    rows: Rows | None = None
    numbers: Numbers | None = None

    def __call__(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """The bias, float64 [heads, queries, keys]."""
        at = (queries, keys) if self.places is None else self.places(queries, keys)
        if self.spec.slopes is not None:
            found = self._line(*at)
        elif self.rows is not None:
            table = np.asarray(self.values, np.float64)
            found = np.moveaxis(table[self.rows(at[0][:, None] - at[1][None, :])], -1, 0)
        else:
            found = bias(self.spec, *at, values=self.values, dtype="float64")
        return found if self.numbers is None else self.numbers(found, queries, keys)

    def _line(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        slopes: Any = self.spec.slopes if self.slopes is None else self.slopes
        _, tokens_of = FORMS[self.form or self.spec.form]  # type: ignore[attr-defined]
        made = tokens_of(np.asarray(queries, np.float64)[:, None], np.asarray(keys, np.float64)[None, :])
        tokens = np.broadcast_to(made, (len(queries), len(keys)))
        return np.array(slopes)[:, None, None] * (tokens if self.tokens is None else self.tokens(tokens))


def table_of(parts: list[tuple[np.ndarray, np.ndarray]], rows: int) -> np.ndarray:
    """The mean of the numbers [heads, ...] of each row [...], [rows, heads]; NaN for rows that do not occur."""
    heads = len(parts[0][1])
    total, count = np.zeros((rows, heads)), np.zeros(rows)
    for taken, numbers in parts:
        flat, columns = taken.reshape(-1), numbers.reshape(heads, -1)
        known = np.isfinite(columns).all(axis=0)
        flat, columns = flat[known], columns[:, known]
        count += np.bincount(flat, minlength=rows)
        for head in range(heads):
            total[:, head] += np.bincount(flat, columns[head], minlength=rows)
    return np.where(count[:, None] > 0, total / np.maximum(count, 1)[:, None], np.nan)


def alone(table: np.ndarray, within: float = 1e-6) -> np.ndarray:
    """Which rows differ from all others in some head, by more than ``within`` times the largest number."""
    apart = np.abs(table[:, None] - table[None]).max(axis=-1)
    return (apart <= within * np.abs(table).max(initial=0)).sum(axis=-1) == 1


class GivenValues:
    """The learned numbers of a code, also for a code with another number of rows."""

    def __init__(self, values: Any) -> None:
        """Keep the learned numbers."""
        self.values = values

    def __call__(self, spec: BiasCode) -> Any:
        """The numbers for this code; a table that is too short gives its last row again."""
        if self.values is None or not isinstance(spec, TableCode) or len(spec.shapes) != 1:
            return self.values
        table = self.values
        if isinstance(table, dict):
            table = next(iter(table.values()))
        table = np.asarray(table, np.float64)
        return table[np.minimum(np.arange(spec.rows), len(table) - 1)]


class Behind:
    """The learned numbers of a user's function, measured under the assumption that it is a certain code."""

    def __init__(
        self, blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]], known: dict[BiasCode, np.ndarray | None]
    ) -> None:
        """Keep the measurements (queries, keys and numbers [heads, queries, keys]) and the known tables."""
        self.blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = blocks
        self.known: dict[BiasCode, np.ndarray | None] = known

    def __call__(self, spec: BiasCode) -> Any:
        """The table of this code; None if two of its rows are equal, so that the code has too many rows."""
        assert isinstance(spec, TableCode)
        if spec not in self.known:
            self.known[spec] = self._if_distinct(self.table(spec))
        return self.known[spec]

    def table(self, spec: TableCode) -> np.ndarray:
        """The table that gives the measured numbers, [rows, heads]; NaN for rows that were not measured."""
        parts = [(row_numbers(spec, queries, keys), numbers) for queries, keys, numbers in self.blocks]
        return self._scaled(parts, spec)

    def behind(self, rows: Rows, spec: Any) -> np.ndarray | None:
        """The measured table for this assignment of rows."""
        parts = [(rows(queries[:, None] - keys[None, :]), numbers) for queries, keys, numbers in self.blocks]
        return self._if_distinct(self._scaled(parts, spec))

    @staticmethod
    def _scaled(parts: list[tuple[np.ndarray, np.ndarray]], spec: Any) -> np.ndarray:
        return table_of(parts, spec.rows) / getattr(spec, "scale", 1.0)

    @staticmethod
    def _if_distinct(table: np.ndarray) -> np.ndarray | None:
        if not alone(table[np.isfinite(table).all(axis=-1)]).all():
            return None
        return np.nan_to_num(table)


@dataclass(frozen=True)
class BiasObservations(SuspectMaker):
    """Measurements of a bias implementation, made before suspects are tried.

    Attributes:
        values: Maps another code to the learned numbers that the implementation would have for it, or to None if it
            cannot have any.
        causal: Whether only keys up to the query are compared.
        exact: Whether numbers are compared unchanged, instead of relative to the nearest visible key of each row.
        placed: Whether it gets the positions of queries and keys, not only their counts.
        length: Number of positions at which it was called.
        first_wrong: The smallest distance at which it is wrong, or None.
        factors: The factor of each head's numbers relative to the correct ones, by least squares, [heads]; NaN if they
            are not proportional.
        order: For each head the head whose correct numbers it has, [heads], if the order is another one; else None.
        later_keys_differ: Whether keys after a query have several numbers, and others than keys as far before it.
    """

    values: Callable[[BiasCode], Any]
    causal: bool
    exact: bool
    placed: bool
    length: int
    first_wrong: int | None
    factors: np.ndarray
    order: np.ndarray | None
    later_keys_differ: bool = False

    def right(self, spec: BiasCode, **stages: Any) -> StagedBias:
        """A correct implementation with some stages replaced."""
        return StagedBias(spec, self.values(spec), **stages)


def bias_stateful(spec: BiasCode, seen: BiasObservations) -> Iterator[FaultModel]:
    """Suspects with state between calls: a cached matrix, caches with an incomplete key."""

    def cached(code: str, without: tuple[str, ...] | None) -> FaultModel:
        return FaultModel((code,), {}, lambda: shared(without, seen.right, lambda held, _: held))

    if spec.ordered:
        for words, square in (("a longer pass", False), ("a pass as long", True)):
            when = {"when": f", after {words}"}
            yield seen.built("bias-of-first-rows", when, lambda it, square=square: _KeptMatrix(seen.right(it), square))
        when = {"when": " after a longer pass"}
        yield seen.built("bias-dropped", when, lambda it: _dropped_once_longer(seen.right(it)))
        yield seen.built("cache-keeps-first-length", {}, lambda it: _first_of_each_length(seen.right(it)))
    for code, field in (("cache-without-slopes", "octaves"), ("cache-without-max-distance", "max_distance")):
        if hasattr(spec, field):
            yield cached(code, (field,))
    if not spec.learned:
        yield cached("cache-without-heads", ("heads",))
        yield cached("cache-without-heads", None)


class _KeptMatrix:
    """Caches the matrix of the longest pass and takes later ones from its first rows and columns."""

    def __init__(self, right: StagedBias, square: bool) -> None:
        self.right, self.square = right, square
        self.kept: np.ndarray | None = None

    def __call__(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        rows, columns = len(queries), len(keys)
        if self.kept is None or self.kept.shape[-1] < columns or (self.square and self.kept.shape[-2] < rows):
            self.kept = self.right(queries, keys)
        cut = self.kept[:, :rows, :columns]
        # A single cached row is broadcast to all; another number of rows does not fit, and the call fails.
        if cut.shape[1] not in (1, rows):
            return np.full((len(cut), rows, columns), np.nan)
        return np.broadcast_to(cut, (len(cut), rows, columns))


def _dropped_once_longer(right: StagedBias) -> Apply:
    """Adds no bias after a longer pass was made."""
    longest = 0

    def apply(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        nonlocal longest
        dropped, longest = len(keys) <= longest, max(longest, len(keys))
        found = right(queries, keys)
        return np.zeros_like(found) if dropped else found

    return apply


def _first_of_each_length(right: StagedBias) -> Apply:
    """Caches the numbers of the first call for each number of queries and keys, ignoring positions."""
    kept: dict[tuple[int, int], np.ndarray] = {}
    return lambda queries, keys: kept.setdefault((len(queries), len(keys)), right(queries, keys))
