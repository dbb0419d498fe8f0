"""One common statement about position encodings: whether it is true, and the numbers that show it.

The statements are data: each subject has a TOML file with the sentence, the verdict, the argument, the source, and the
numbers as they were when the claim was written. Each is recomputed every time: from the quantity that its row names
(`clockhands.measures.claims.quantities`; what training showed is there, as stored results), or by the function of the
same ID in the Python file beside it. A number that no longer agrees with the stated one has *moved*::

    [step-of-one-token]                                            @claim("step-of-one-token")
    statement = "Neighbouring positions are closer …"              def step_of_one_token() -> Numbers:
    verdict = "false"                                                  return {"distance_in_the_limit": …}
    argument = "…"
    source = "…"
    [step-of-one-token.numbers]
    distance_in_the_limit = "0.161"
    distance_at_width_512 = { is = "3.714", ladder = "distance_of_rows", offset = 1 }
    measured_loss = { is = "1.97", study = "extrapolation", task = "language", arm = "sinusoidal" }

A number is stated as text; the recomputed one may differ by half a unit of its last digit. "at most 1e-12" means zero
up to rounding. A bare number is a count, which must match exactly.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from clockhands.measures.claims.quantities import quantity
from clockhands.measures.claims.studies import measured as study_of
from clockhands.packaged import packaged

Verdict = Literal["true", "false", "only if", "not known"]
Number = float | int | bool
Numbers = dict[str, Number]


@dataclass(frozen=True)
class Stated:
    """A stated number, and how far the recomputed one may differ from it.

    Attributes:
        text: The number as written in the file.
        within: The largest allowed difference: half a unit of the last written digit, or 0.
        limit: Whether the number is a bound, which the absolute value of the recomputed one may not exceed.
    """

    text: str
    within: Decimal
    limit: bool = False

    @property
    def value(self) -> Number:
        """The number: True or False, an integer where it is exact, else a float."""
        if self.text in ("True", "False"):
            return self.text == "True"
        return int(self.text) if self.within == 0 and not self.limit else float(self.text)

    def holds(self, number: Number) -> bool:
        """Whether a recomputed number agrees with the stated one; NaN and infinity never do.

        >>> near("3.714").holds(3.71449), near("3.714").holds(3.7146), near("3.714").holds(float("nan"))
        (True, False, False)
        """
        if isinstance(self.value, bool) or isinstance(number, bool):
            return isinstance(number, bool) and number is self.value
        if not math.isfinite(number):
            return False
        if self.limit:
            return abs(number) <= float(self.text)
        return abs(Decimal(number) - Decimal(self.text)) <= self.within

    def to_dict(self) -> dict[str, Any]:
        """The stated number as JSON values."""
        if self.limit:
            return {"at_most": self.value}
        return {"value": self.value, "tolerance": float(self.within)}


def exactly(number: int | bool) -> Stated:
    """A count, or a yes or no: only the same value agrees."""
    if not isinstance(number, int):
        raise TypeError(f"`exactly` takes a count, True or False, got {number!r}. Write the digits: near('{number}').")
    return Stated(str(number), Decimal(0))


def near(digits: str) -> Stated:
    """A number given as text; it may differ by half a unit of its last written digit.

    >>> near("60,611.5").within, near("2.10e-3").within
    (Decimal('0.05'), Decimal('0.000005'))
    """
    if not isinstance(digits, str):
        raise TypeError(f"`near` takes the digits as text, got {digits!r}: a float forgets its last zeros.")
    text = digits.replace(",", "")
    exponent = Decimal(text).as_tuple().exponent
    assert isinstance(exponent, int), "NaN and infinity are stated of nothing"
    return Stated(text, Decimal(5).scaleb(exponent - 1))


def at_most(bound: str) -> Stated:
    """Zero, up to rounding: the absolute value of the recomputed number may not exceed the bound.

    >>> at_most("1e-12").holds(-3e-15), at_most("1e-12").holds(2e-12)
    (True, False)
    """
    return Stated(bound, Decimal(0), limit=True)


@dataclass(frozen=True, eq=False)
class Claim:
    """A common statement, with its verdict and the numbers that show it.

    Attributes:
        id: Its name, as words joined by hyphens.
        statement: The sentence as people say it.
        verdict: ``"true"``, ``"false"``, ``"only if"`` with the ``condition``, or ``"not known"``, where nothing here
            decides it, with what it ``waits_for``.
        condition: When it is true; for the other verdicts empty, or the case that the verdict covers.
        numbers: The stated numbers that show it, by name.
        argument: The reason, in a few sentences that can each be understood alone.
        source: Where it is stated, or who showed it.
        compute: Recomputes the numbers.
        waits_for: The measurement that would decide what is not shown yet; empty if none is missing.
        measured: The lab studies from whose stored results the numbers are taken.
    """

    id: str
    statement: str
    verdict: Verdict
    condition: str
    numbers: Mapping[str, Stated]
    argument: str
    source: str
    compute: Callable[[], Numbers]
    waits_for: str = ""
    measured: tuple[str, ...] = ()


_Compute = Callable[[], Numbers]
_COMPUTED: dict[str, _Compute] = {}


def claim(id: str) -> Callable[[_Compute], _Compute]:  # noqa: A002 - it is what the claim calls it
    """Decorator for the function that computes those numbers of a claim that its file takes from no quantity."""

    def made(compute: _Compute) -> _Compute:
        _COMPUTED[id] = compute
        return compute

    return made


def claims_of(subject: str) -> tuple[Claim, ...]:
    """The claims that the TOML file of a subject states, in its order."""
    return tuple(_claim(name, fields) for name, fields in data_of(subject).items())


def _claim(name: str, fields: Mapping[str, Any]) -> Claim:
    rows = {number: row for number, row in fields["numbers"].items() if isinstance(row, dict)}
    written = fields["numbers"] | {number: row["is"] for number, row in rows.items()}
    numbers = {number: stated(each) for number, each in written.items()}
    texts: dict[str, Any] = {text: " ".join(fields.get(text, "").split()) for text in _TEXTS}

    def compute() -> Numbers:
        taken = {number: quantity({of: row[of] for of in row if of != "is"}) for number, row in rows.items()}
        return _COMPUTED.get(name, dict)() | taken

    return Claim(name, numbers=numbers, compute=compute, measured=tuple(fields.get("measured", ())), **texts)


_TEXTS = ("statement", "verdict", "condition", "argument", "source", "waits_for")


def data_of(subject: str) -> Mapping[str, Any]:
    """What the claims of a subject state, by ID."""
    return packaged(__file__, f"{subject}.toml")


def stated(written: str | int | bool) -> Stated:
    """A number of a claim's file, parsed.

    >>> stated("at most 1e-12").limit, stated("60,611.5").within, stated(64).within
    (True, Decimal('0.05'), Decimal('0'))
    """
    if not isinstance(written, str):
        return exactly(written)
    bound = written.removeprefix("at most ")
    return near(written) if bound == written else at_most(bound)


@dataclass(frozen=True)
class Recomputed:
    """A claim with its numbers, computed just now.

    Attributes:
        claim: The claim.
        numbers: The recomputed numbers by name.
        moved: The names of those that do not agree with the stated ones.
    """

    claim: Claim
    numbers: Numbers
    moved: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether every number agrees with the stated one."""
        return not self.moved

    def to_dict(self) -> dict[str, Any]:
        """The claim as JSON values; a number that is not finite is null."""
        told = self.claim
        return {
            "id": told.id,
            "statement": told.statement,
            "verdict": told.verdict,
            "condition": told.condition,
            "numbers": {name: number if math.isfinite(number) else None for name, number in self.numbers.items()},
            "expected": {name: stated.to_dict() for name, stated in told.numbers.items()},
            "argument": told.argument,
            "source": told.source,
            "waits_for": told.waits_for,
            "measured": [study_of(name).to_dict() for name in told.measured],
            "holds": self.holds,
        }


def recompute(told: Claim) -> Recomputed:
    """Recompute the numbers of a claim, and compare them with the stated ones."""
    numbers = {name: _as_python(number) for name, number in told.compute().items()}
    assert set(numbers) == set(told.numbers), f"{told.id} states {set(told.numbers)} and computes {set(numbers)}"
    ordered = {name: numbers[name] for name in told.numbers}
    return Recomputed(told, ordered, tuple(n for n, stated in told.numbers.items() if not stated.holds(ordered[n])))


def _as_python(number: Any) -> Number:
    """NumPy's scalars as Python's."""
    return number.item() if hasattr(number, "item") else number
