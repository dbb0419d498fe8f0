"""Parts of a rank: which tokens of a split sequence, or which heads, a function has, and how these are mistaken."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.encodings.biases import BiasCode, bias
from clockhands.encodings.sharding import rank_positions
from clockhands.errors import ClockhandsError, InvalidType, InvalidValue
from clockhands.phrases import shown
from clockhands.recognition.suspects import FaultModel
from clockhands.testing._experiments import Answer, Unasked, experiment

# Eighths of a packed row. The first is the shortest: no other one gets its rows by counting from 0. With these sizes no
# two orders of parts give a rank of 2, 3, 4 or 8 the same positions, and few other mistakes do.
_DOCUMENTS = np.array([1, 5, 2])
ROWS = 16
"""The tokens of a part are a multiple of this, so that every document can be split."""


@dataclass(frozen=True)
class SequencePart:
    """The tokens of one rank, of a sequence that is split over ranks.

    Attributes:
        rank: The rank, from 0.
        ranks: The number of ranks.
        zigzag: Whether a rank has chunks r and 2 R - 1 - r of 2 R.
        packed: Whether the sequence is three documents that are packed into one row.
        each: Whether every document is split, not the row: usual if the order is zig-zag, see `sequence_part`.
    """

    rank: int
    ranks: int
    zigzag: bool = False
    packed: bool = False
    each: bool = False

    def positions(self, rows: int) -> np.ndarray:
        """The positions of the rank's tokens, [rows]: in its document, of a packed row."""
        return self.whole(rows)[self._taken(rows)]

    def whole(self, rows: int) -> np.ndarray:
        """The positions of all tokens of the sequence, of which the rank has ``rows``."""
        return np.concatenate([np.arange(size) for size in self._sizes(rows)])

    def starts(self, rows: int) -> np.ndarray:
        """Where the documents of the whole sequence start, and where the last one ends (``cu_seqlens``)."""
        return np.cumsum([0, *self._sizes(rows)])

    def _sizes(self, rows: int) -> np.ndarray:
        tokens = rows * self.ranks
        return tokens // 8 * _DOCUMENTS if self.packed else np.array([tokens])

    def _taken(self, rows: int) -> np.ndarray:
        """The rank's tokens among all."""
        sizes = self._sizes(rows) if self.each else np.array([rows * self.ranks])
        starts = np.cumsum(sizes) - sizes
        parts = (rank_positions(int(size), self.rank, self.ranks, zigzag=self.zigzag) for size in sizes)
        return np.concatenate([start + part for start, part in zip(starts, parts, strict=True)])

    def _restarted(self, rows: int) -> np.ndarray:
        """Positions that start at 0 with every document on this rank."""
        taken = self._taken(rows)
        document = np.searchsorted(self.starts(rows), taken, side="right")
        first = np.r_[True, document[1:] != document[:-1]]
        return np.arange(rows) - np.maximum.accumulate(np.where(first, np.arange(rows), 0))

    @property
    def text(self) -> str:
        """Which tokens the rank has, for messages."""
        split = (" of each document" if self.each else " of the whole row") if self.packed else ""
        if not self.zigzag:
            return f"part {self.rank} of {self.ranks} contiguous ones{split}"
        return f"chunks {self.rank} and {2 * self.ranks - 1 - self.rank} of {2 * self.ranks} (zig-zag){split}"

    @property
    def is_usual(self) -> bool:
        """Whether the order is one of the usual two: contiguous of the whole row, or zig-zag of each document."""
        return not self.packed or self.zigzag == self.each

    def other_orders(self) -> Iterator["SequencePart"]:
        """The same rank's part in every other order that gives it other positions, the usual ones first."""
        tried = [self.positions(4 * ROWS)]
        for zigzag, each in (
            (not self.zigzag, not self.each),
            (not self.zigzag, self.each),
            (self.zigzag, not self.each),
        ):
            other = replace(self, zigzag=zigzag, each=each and self.packed)
            given = other.positions(4 * ROWS)
            if not any(np.array_equal(given, before) for before in tried):
                tried.append(given)
                yield other

    def mistaken(self) -> Iterator[tuple[str, dict[str, Any], Callable[[int], np.ndarray]]]:
        """Known mistakes: the code of a fault, its parameters, and the positions of ``rows`` tokens that it gives."""
        rank, ranks = self.rank, self.ranks
        if self.packed:
            yield "document-offset-lost", {}, self._restarted
            yield "documents-not-restarted", {}, self._taken
            yield "documents-not-restarted", {}, replace(self, packed=False, each=False).positions
        yield "part-starts-at-zero", {"rank": rank}, np.arange
        for other in self.other_orders():
            yield "parts-in-another-order", {"used": other.text, "declared": self.text}, other.positions
        words = f"chunks {rank} and {rank + ranks} of {2 * ranks}"
        yield "parts-in-another-order", {"used": words, "declared": self.text}, self._in_order
        words = f"every token number {rank} of {ranks}"
        yield "parts-in-another-order", {"used": words, "declared": self.text}, self._striped
        for used in range(ranks):
            if used != rank:
                words = {"rank": rank, "used": used, "ranks": ranks}
                yield "part-of-another-rank", words, replace(self, rank=used).positions

    def _in_order(self, rows: int) -> np.ndarray:
        half = self.whole(rows).reshape(2 * self.ranks, -1)
        return half[[self.rank, self.rank + self.ranks]].ravel()

    def _striped(self, rows: int) -> np.ndarray:
        return self.whole(rows)[self.rank :: self.ranks]

    def suspects(self, seen: Any) -> Iterator[FaultModel]:
        """Suspects with the mistakes that give other positions."""
        tried = [(self.positions(4 * ROWS), "")]
        for code, parameters, positions in self.mistaken():
            given = positions(4 * ROWS)
            same = {other for before, other in tried if np.array_equal(given, before)}
            # Another order remains possible beside another mistake: with some ranks both give the same positions.
            if not same or (code == "parts-in-another-order" and not same & {"", code}):
                tried.append((given, code))
                yield seen.suspect(
                    code, parameters, places=lambda at, _, positions=positions: positions(at.shape[-1]).astype(float)
                )


def sequence_part(rank: Any, ranks: Any, zigzag: Any, words: tuple[str, ...] | None) -> SequencePart | None:
    """The part that the arguments of a check name, or None; raises `InvalidValue` for one that cannot be.

    Args:
        rank: The rank, or None.
        ranks: The number of ranks, or None.
        zigzag: Whether the order is zig-zag.
        words: What the function takes, if it is known.
    """
    packed = words is not None and "cu_seqlens" in words
    if rank is None and ranks is None and not packed:
        if zigzag:
            raise InvalidValue("`zigzag` is for a rank's part.", "Give rank= and ranks= too.")
        return None
    if (rank is None) != (ranks is None):
        raise InvalidValue("`rank` and `ranks` belong together.", "Give both, such as rank=1, ranks=4.")
    if words is not None and {"positions", "offset"} & {*words}:
        raise InvalidValue(
            "`rank` is for a function that finds out which tokens it has, but this one is given positions.",
            "Leave rank= and ranks= out: the positions that are passed are those of any tokens.",
        )
    part = SequencePart(
        0 if rank is None else rank, 1 if ranks is None else ranks, bool(zigzag), packed, each=packed and bool(zigzag)
    )
    part.positions(ROWS)  # raises for a rank that there is not
    return part


def head_part(heads: Any, number: int | None) -> range | None:
    """The heads that ``heads`` names, such as ``"4:8"``; of ``number`` heads, or of any number.

    Raises:
        InvalidValue, InvalidType: It is no such text, or there are no such heads.
    """
    if heads is None:
        return None
    if not isinstance(heads, str):
        raise InvalidType(
            f"`heads` must be text, got {shown(heads)}.", 'Write the first head and the end: heads="4:8".'
        )
    first, _, end = heads.partition(":")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end) <= (number or int(end))):
        there = "" if number is None else f" of {number}"
        raise InvalidValue(
            f"`heads` must name heads{there}, got {shown(heads)}.", 'Write the first head and the end: heads="4:8".'
        )
    return range(int(first), int(end))


def head_suspects(spec: BiasCode, heads: range, seen: Any) -> Iterator[FaultModel]:
    """Suspects of a bias that has the numbers of other heads than those of its rank."""
    number, part = len(heads), f"{heads.start} to {heads.stop - 1}"

    def of_part(numbers: Callable[[Any, Any], np.ndarray]) -> Callable[[Any], Any]:
        def built(_: BiasCode) -> Any:
            def apply(queries: Any, keys: Any) -> np.ndarray:
                held = numbers(queries, keys)
                whole = np.zeros((spec.heads, *held.shape[1:]))
                whole[heads.start : heads.stop] = held
                return whole

            return apply

        return built

    if not spec.learned:
        try:
            alone = replace(spec, heads=number)  # type: ignore[type-var]
        except ClockhandsError:
            alone = None
        if alone is not None:
            words = {"heads": number, "part": part, "declared": spec.heads}
            yield seen.built("local-slopes", words, of_part(lambda q, k: bias(alone, q, k, dtype="float64")))
    values = seen.values(spec) if spec.learned else None
    for start in range(0, spec.heads - number + 1, number):
        if start != heads.start:
            words = {"used": f"{start} to {start + number - 1}", "part": part}
            yield seen.built(
                "heads-of-another-rank",
                words,
                of_part(
                    lambda q, k, start=start: bias(spec, q, k, values=values, dtype="float64")[start : start + number]
                ),
            )


def _of_part(it: Any, rows: int, words: str, seed: int, *, beside: bool = False, **options: Any) -> Answer:
    """The tokens of a part of so many rows, with positions of the rank."""
    batch, heads = it.beside()[:2] if beside else (1, 1)
    part: SequencePart = it.called.part
    x = it.tokens(batch, heads, rows, seed=seed, dtype=options.get("dtype"))
    at = it.lowest + part.positions(rows)
    return it.answer(f"{words}{rows:,} tokens of rank {part.rank} of {part.ranks}", x, at, **options)


def few_tokens(it: Any) -> list[Answer]:
    """Parts of a few tokens, of a short and of a longer sequence."""
    return [_of_part(it, rows, "", 1) for rows in (ROWS, 4 * ROWS, 2 * ROWS)]


def many_tokens(it: Any) -> list[Answer]:
    """The part of a sequence of the length that is checked."""
    return [_of_part(it, max(it.length // it.called.part.ranks // ROWS, 1) * ROWS, "", 17)]


def beside_each_other(it: Any) -> list[Answer]:
    """Sequences and heads beside each other."""
    return [_of_part(it, ROWS, "of several sequences or heads, ", 4, beside=True)]


def repeated(it: Any) -> list[Answer]:
    """The same part again, after others."""
    return [_of_part(it, ROWS, "again ", 1) for _ in range(2)]


def coarser(it: Any) -> list[Answer]:
    """Tokens of a lower-precision dtype."""
    if it.coarse is None or it.coarse == it.dtype:
        raise Unasked("no lower-precision dtype is available")
    return [_of_part(it, ROWS, f"{it.coarse}, ", 10, dtype=it.coarse)]


def part_experiments(beside: str, *, keys: bool) -> tuple[Any, ...]:
    """The quick experiments on a part, by the names that they have for a whole sequence."""
    found = (
        experiment("a few positions", few_tokens, needed=True),
        experiment(beside, beside_each_other),
        experiment("repeated call", repeated),
        experiment("low-precision tokens", coarser),
    )
    if not keys:
        return found
    return (*found, experiment("keys", lambda it: [_of_part(it, ROWS, "keys, ", 9, role="key")], "Keys of the part."))


EVERY_OF_PART = experiment("every position", many_tokens, needed=True)
