"""Claims in words: their condition, what they wait for, how they were measured, and their numbers."""

from collections.abc import Sequence
from decimal import Decimal
from typing import get_args

from clockhands.measures.claims.claim import Claim, Number, Recomputed, Stated, Verdict
from clockhands.measures.claims.studies import SEEDS, MeasuredStudy, coverage, measured
from clockhands.phrases import listed


def summary(found: Sequence[Recomputed]) -> str:
    """How many claims there are of each verdict, and how many numbers moved.

    >>> from clockhands.measures.claims import CLAIMS, recompute
    >>> summary([recompute(CLAIMS["ratio-1.036"])])
    '1 claim: 0 true, 1 false, 0 only if, 0 not known. 4 numbers were recomputed, and none moved.'
    """
    verdicts = [each.claim.verdict for each in found]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in get_args(Verdict))
    numbers, moved = sum(len(each.numbers) for each in found), sum(len(each.moved) for each in found)
    claims = f"{len(found)} claim{'s' if len(found) != 1 else ''}"
    are = f"{numbers} numbers were" if numbers != 1 else "1 number was"
    return f"{claims}: {counts}. {are} recomputed, and {moved or 'none'} moved."


def moved_in_words(found: Recomputed, name: str) -> str:
    """A moved number, with the stated one."""
    stated = found.claim.numbers[name]
    limit = "at most " if stated.limit else ""
    return f"{name_in_words(name)} is {found.numbers[name]!r}, stated is {limit}{stated_in_words(stated)}."


def condition_in_words(told: Claim) -> str:
    """The condition as a sentence; empty if there is none.

    >>> from clockhands.measures.claims import CLAIMS
    >>> condition_in_words(CLAIMS["positions-1-and-100-alike"])
    'Only if 99 tokens are a whole number of wavelengths, as for wavelengths of 99, 33, 11 or 9 tokens.'
    """
    return f"Only if {told.condition}" if told.condition else ""


def measured_in_words(told: Claim) -> list[str]:
    """How each study behind the claim was run, and how to run it again: one sentence or two for each."""
    sentences = []
    for each in (measured(name).to_dict() for name in told.measured):
        minutes = max(1, round(each["seconds"] / 60))
        sentences.append(
            f"Measured by `{each['command']}`, commit {each['commit'] or 'unknown'}, in {minutes} "
            f"minute{'s' if minutes != 1 else ''}. Run the study again with this command. "
            f"{evidence_in_words(measured(each['study']))} The numbers of a claim are no tests."
            + (f" Changed after it was first written: {each['changed']}" if each["changed"] else "")
        )
    return sentences


def evidence_in_words(study: MeasuredStudy) -> str:
    """What the gates of a study, and claims on it, are said of: sizes and lengths, seeds, coverage, and correction.

    >>> for part in evidence_in_words(measured("scaling")).split("; "):
    ...     print(part)
    Said of 2 layers of width 64 trained at 64 tokens alone, unless an arm has its own size
    3 seeds, whose range holds the median of such models in 75 % of cases
    chances by Student's t, corrected for 2 tests (Holm).
    """
    numbers = sorted({len(task["seeds"]) for task in study.data["tasks"].values()})
    tests = f"{study.tests} test{'s' if study.tests != 1 else ''}"
    return (
        f"Said of {listed(study.settings)} alone, unless an arm has its own size; {listed(map(_coverage, numbers))}; "
        f"chances by Student's t, corrected for {tests} (Holm)."
    )


def _coverage(seeds: int) -> str:
    if seeds == 1:
        return "1 seed, which has no range"
    if seeds >= SEEDS:
        return f"{seeds} seeds, with 95 % intervals by Student's t"
    return f"{seeds} seeds, whose range holds the median of such models in {100 * coverage(seeds):.3g} % of cases"


def waits_in_words(told: Claim) -> str:
    r"""What is not shown yet, and what is missing; empty if nothing is.

    >>> from clockhands.measures.claims import CLAIMS
    >>> print(waits_in_words(CLAIMS["modern-models-prefer-rotary-or-alibi"]).replace(". ", ".\n"))
    Formulas alone do not settle this claim.
    What is missing is the date and the context of each model type.
    """
    if not told.waits_for:
        return ""
    tried = "The small models of these studies" if told.measured else "Formulas alone"
    return f"{tried} do not settle this claim. What is missing is {told.waits_for}"


def name_in_words(name: str) -> str:
    """The name of a number, for people.

    >>> name_in_words("distance_at_width_64")
    'distance at width 64'
    """
    return name.replace("_", " ")


def number_in_words(stated: Stated, number: Number) -> str:
    """A recomputed number with as many digits as are stated; with all digits if it moved.

    >>> from clockhands.measures.claims.claim import at_most, exactly, near
    >>> number_in_words(near("60,611.5"), 60611.4778), number_in_words(near("5.66e-7"), 5.6584e-7)
    ('60,611.5', '5.66e-7')
    >>> number_in_words(exactly(True), True), number_in_words(at_most("1e-12"), 2.0e-16), number_in_words(exactly(7), 8)
    ('yes', '2e-16 (at most 1e-12)', '8, stated is 7')
    """
    if isinstance(number, bool):
        written = "yes" if number else "no"
    elif stated.limit:
        written = _short(f"{number:.0e}") if number else "0"
    elif isinstance(number, int):
        written = f"{number:,}"
    elif not stated.holds(number):
        written = repr(number)
    elif "e-" in stated.text:
        digits = len(Decimal(stated.text).as_tuple().digits) - 1
        written = _short(f"{number:.{digits}e}")
    else:
        written = f"{number:,.{len(stated.text.partition('.')[2])}f}"
    if stated.limit:
        return f"{written} (at most {stated.text})"
    return written if stated.holds(number) else f"{written}, stated is {stated_in_words(stated)}"


def stated_in_words(stated: Stated) -> str:
    """The stated number, in the same form.

    >>> from clockhands.measures.claims.claim import near
    >>> stated_in_words(near("60611.5"))
    '60,611.5'
    """
    written_out = not stated.limit and "e-" not in stated.text
    return number_in_words(stated, stated.value) if written_out else stated.text


def _short(scientific: str) -> str:
    """``5.66e-07`` as ``5.66e-7``."""
    mantissa, _, exponent = scientific.partition("e")
    return f"{mantissa}e{int(exponent)}"
