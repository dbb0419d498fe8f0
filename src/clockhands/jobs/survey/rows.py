"""One row of a survey: what an audit found, in columns to sort and filter by."""

from collections.abc import Iterable
from typing import NamedTuple

from clockhands.auditing import CORRECT, Audit
from clockhands.configs.resolved import TEXT, LayerEncoding

# A kind that a row may list: an encoding that was not recognised.
UNKNOWN = "unknown"
# A kind that a row may list: RoPE of a text part whose frequencies could not be computed.
UNCOMPUTED = "rotary-uncomputed"

_LETTERS = 200  # The limit for a text from a file: a row stays small whatever the file contains.


class SurveyRow(NamedTuple):
    """One target at one revision, audited by one version of clockhands.

    Lists are text with a space between their words, so that the store and the CSV file hold the same.

    Attributes:
        target: The absolute path, or the name of a preset or model.
        revision: Its hash from `revision_of`.
        version: The version of clockhands that audited it.
        state: ``done``, or ``failed`` where there is no audit.
        message: Why it failed.
        hint: What to do about that.
        verdict: The audit in one sentence.
        severity: The worst severity of a finding; "" where nothing was found.
        model_type: The type that the files name.
        errors: Codes of the findings that are errors.
        warnings: Codes of those that are warnings.
        notes: Codes of the others.
        kinds: Kinds of position encodings.
        base: RoPE base of the layers that see farthest.
        scaling: Type of their RoPE scaling.
        factor: Factor of that scaling.
        context: Usable positions (token) that the files declare.
        head_width: Channels of a head that RoPE is applied in.
        differs_in: Runtimes that compute other frequencies than the files declare.
        refused_by: Runtimes that do not load the files.
        seconds: Time that the audit took.
        audited_at: When it ended, in UTC.
    """

    target: str
    revision: str
    version: str
    state: str
    message: str = ""
    hint: str = ""
    verdict: str = ""
    severity: str = ""
    model_type: str = ""
    errors: str = ""
    warnings: str = ""
    notes: str = ""
    kinds: str = ""
    base: float | None = None
    scaling: str = ""
    factor: float | None = None
    context: int | None = None
    head_width: int | None = None
    differs_in: str = ""
    refused_by: str = ""
    seconds: float | None = None
    audited_at: str = ""

    @property
    def problems(self) -> tuple[str, ...]:
        """Codes of the errors, then of the warnings."""
        return (*self.errors.split(), *self.warnings.split())

    @property
    def grade(self) -> str:
        """``error`` or ``warning`` where there is such a problem, ``failed``, ``unknown`` or ``correct``.

        It is ``unknown`` where the verdict does not say that the settings look correct: no position encoding was
        recognised, frequencies could not be computed, or something that the file says is not known.
        """
        if self.state == "failed":
            return "failed"
        known = self.verdict.startswith(CORRECT)
        return "error" if self.errors else "warning" if self.warnings else "correct" if known else "unknown"


def row_of(audit: Audit, target: str, revision: str, version: str) -> SurveyRow:
    """The row of an audit, without its time."""
    code = _main(audit.layers)
    scaling = (code.scaling if code else None) or {}
    readings = [reading for reading in audit.readings if reading.of_program]
    return SurveyRow(
        target=target,
        revision=revision,
        version=version,
        state="done",
        verdict=audit.verdict,
        severity=audit.findings[0].severity if audit.findings else "",
        model_type=(audit.model_type or "")[:_LETTERS],
        errors=_words(finding.code for finding in audit.errors),
        warnings=_words(finding.code for finding in audit.warnings),
        notes=_words(finding.code for finding in audit.findings if finding.severity == "note"),
        kinds=_words(_kind(code) for code in audit.layers),
        base=_number(code.base if code else None),
        scaling=str(scaling.get("type") or "")[:_LETTERS],
        factor=_number(scaling.get("factor")),
        context=_whole(audit.context),
        head_width=_whole(code.width if code else None),
        differs_in=_words(reading.reader for reading in readings if reading.verdict == "differs"),
        refused_by=_words(reading.reader for reading in readings if reading.verdict == "refuses"),
    )


def _main(codes: Iterable[LayerEncoding]) -> LayerEncoding | None:
    """The rotary code that a row describes: the first without a window, of the text part if there is one."""
    rotary = [code for code in codes if code.kind == "rotary"]
    return min(rotary, key=lambda code: (code.part not in TEXT, code.farthest is not None), default=None)


def _kind(code: LayerEncoding) -> str:
    """The kind of a code; for a spec without a config, the name of its class."""
    if code.kind == "rotary" and code.part in TEXT and not code.rates:
        return UNCOMPUTED
    return code.kind or (UNKNOWN if code.spec is None else type(code.spec).__name__.lower())


def _words(each: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(each))


def _number(value: object) -> float | None:
    """A number as SQLite and JSON can store it; None for other values and for NaN and infinities."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < float("inf") else None


def _whole(value: int | None) -> int | None:
    return value if value is not None and abs(value) < 2**63 else None
