"""`check_encoding`: whether an encoding of one's own keeps the laws, without a reference."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from clockhands.arguments import one_of
from clockhands.encodings.protocols import CACHES, ModelSizes
from clockhands.errors import InvalidValue
from clockhands.phrases import number_of
from clockhands.recognition.calling import Refused
from clockhands.testing.encodings._encoding_calls import DrawnTokens, EncodingCalls, drawn_tokens
from clockhands.testing.encodings._laws import LAWS, LENGTH, EncodingSubject, LawResult, asks, judged
from clockhands.testing.reports import CannotCheck, Failure, Report, ReportLine, settled

__all__ = [
    "LAWS",
    "DrawnTokens",
    "EncodingCalls",
    "EncodingReport",
    "EncodingSubject",
    "LawResult",
    "check_encoding",
    "drawn_tokens",
]


@dataclass(frozen=True)
class EncodingReport(Report):
    """What was found of an encoding's laws: those that are broken are the failures.

    Attributes:
        methods: Its methods of the protocol.
        laws: What was found of each law.
    """

    methods: tuple[str, ...] = ()
    laws: tuple[LawResult, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The report as values that JSON can represent."""
        laws = [{**vars(law), "numbers": dict(law.numbers)} for law in self.laws]
        return {**super().to_dict(), "methods": list(self.methods), "laws": laws}

    def lines(self, *, verbose: bool = False) -> Iterator[ReportLine]:
        """The verdict, then each law with its state and what was found; what each law says if ``verbose``."""
        broken = [one.experiment for one in self.failures]
        by = f"{self.subject} ({', '.join(self.methods)})"
        if broken:
            yield ReportLine("failed", f"{by} breaks {number_of(len(broken), 'law')}: {', '.join(broken)}.")
        else:
            yield ReportLine("sound", f"{by} breaks no law.")
        yield ReportLine("rest", f"{self.called['calls']:,} calls with arrays of {self.called['library']}.")
        width = max(len(law.law) for law in self.laws)
        for state, style in _STYLES.items():
            found = [law for law in self.laws if law.state == state]
            if found:
                yield ReportLine()
                yield ReportLine(style, f"{state[:1].upper()}{state[1:]}:")
            for law in found:
                yield ReportLine("evidence" if state == "broken" else "rest", f"{law.law:<{width}}  {law.says}", 2)
                if verbose:
                    yield ReportLine("rest", law.asks, 6)
        if broken:
            yield ReportLine()
            yield ReportLine("hint", "hint: If a law is not meant to hold, say so: by_nature = {law: reason}.", 2)


_STYLES = {"broken": "failed", "broken by nature": "heading", "holds": "heading", "not applicable": "heading"}


def check_encoding(
    encoding: Any,
    *,
    sizes: ModelSizes | None = None,
    length: int = LENGTH,
    backend: Any = None,
    timeout: float | None = 60.0,
    raises: bool = True,
) -> EncodingReport:
    """Check the laws of an encoding that has no reference.

    It is called with drawn tokens in one pass, in batches, in pieces, in another order, packed, in other dtypes, at
    other positions and with other tokens, and what must not change is compared; see `LAWS`. A law is reported as
    ``holds``, ``broken by nature`` (the encoding shows or says why it cannot hold), ``broken`` or ``not applicable``.

    Args:
        encoding: An object of `clockhands.encodings.protocols`.
        sizes: The sizes of tokens and heads; 64 channels, 4 heads of 16 by default.
        length: Tokens of a sequence, at least 8.
        backend: ``"numpy"``, ``"torch"``, ``"jax"`` or a module of the array API; detected by default.
        timeout: The time limit of a call, in seconds; None for none.
        raises: Whether a broken law is raised.

    Accuracy: allowed errors are derived in `clockhands.testing.encodings._laws`.

    Raises:
        CheckFailed: A law is broken; the message is the report.
        CannotCheck: It cannot be called like that; the message gives the call and its result.
        InvalidType, InvalidValue: It has no method of the protocol, or an argument cannot be used.

    >>> import numpy as np
    >>> class Wave:
    ...     def embed(self, positions, width):
    ...         angles = positions[:, None] / 100.0 ** (np.arange(width // 2) * 2 / width)
    ...         return np.concatenate([np.sin(angles), np.cos(angles)], -1)
    >>> check_encoding(Wave()).sound
    True
    """
    __tracebackhide__ = True
    if length < 8:
        raise InvalidValue(f"`length` must be at least 8, got {length}.", "24 tokens are enough.")
    for name in getattr(encoding, "by_nature", {}):
        one_of("by_nature", name, LAWS, f"The laws are: {', '.join(LAWS)}.")
    one_of("cache", getattr(encoding, "cache", "keys"), CACHES, "See clockhands.encodings.protocols.")
    sizes = sizes or ModelSizes()
    calls = EncodingCalls(encoding, sizes, backend, timeout)
    it = EncodingSubject(calls, length)
    try:
        it.whole  # noqa: B018 - the first call with tokens of this length
    except Refused as error:
        raise CannotCheck(
            f"{length} tokens were given in one pass, but {error}.", "Pass length=, the most that it takes."
        ) from error.__cause__
    first = judged(it, "repeatable")
    others = [name for name in LAWS if name != "repeatable"]
    if first.state == "broken" and not it.repeats:
        why = "the same call gives other numbers each time, so nothing can be compared."
        laws = (first, *(LawResult(name, asks(name), "not applicable", why) for name in others))
    else:
        laws = (first, *(judged(it, name) for name in others))
    called = {"library": calls.library, "calls": calls.calls, **vars(sizes)}
    report = EncodingReport(
        type(encoding).__name__,
        "encoding",
        "an encoding without a reference",
        experiments=tuple(law.law for law in laws if law.state != "not applicable"),
        left_out={law.law: law.says for law in laws if law.state == "not applicable"},
        failures=tuple(Failure(law.law, law.says, law.numbers) for law in laws if law.state == "broken"),
        called=called,
        methods=calls.methods,
        laws=laws,
    )
    settled(report, raises)
    return report
