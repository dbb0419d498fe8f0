"""The report of a model as stored by a survey, for files that have changed or disappeared since."""

from collections.abc import Iterator, Mapping
from typing import Any

from clockhands.jobs.survey.rows import SurveyRow
from clockhands.show._html import facts, heading, page
from clockhands.show._markup import Markup, element
from clockhands.show.findings import AUDIT, IN_TITLES, as_text, cut, short_name


def stored_report(row: SurveyRow, told: Mapping[str, Any]) -> str:
    """The page.

    Args:
        row: The row of the survey.
        told: Its stored report, as one element of `targets` in the JSON of `clockhands audit`.

    Returns:
        A whole HTML document.
    """
    title = f"Audit of {cut(short_name(row.target), IN_TITLES)}"
    return page(title, {AUDIT: {"schema": 1, "targets": [told]}}, _main(row, told))


def _main(row: SurveyRow, told: Mapping[str, Any]) -> Iterator[Markup]:
    yield heading(short_name(row.target))
    yield element("p", cut(row.target), class_="note path")
    yield element("p", row.verdict, class_="report-verdict")
    since = (
        "The files have changed since or are gone, there were none, or another version of clockhands is installed now"
    )
    yield element("p", f"Found at {row.audited_at} by clockhands {row.version}. {since}.", class_="answer")
    for found in told["findings"]:
        yield element("section", _finding(found))
    for code in told["layers"]:
        named = {name.replace("_", " "): value for name, value in code.items() if name not in ("source", "rates")}
        known = {name: value for name, value in named.items() if value is not None}
        yield element("section", element("h2", f"Layers {code['layers'] or ''}"), _facts(known, "report-facts"))


def _finding(found: Mapping[str, Any]) -> Iterator[Markup]:
    layers = f", layers {found['layers']}" if found["layers"] else ""
    yield element("p", element("strong", found["severity"]), " ", element("code", found["code"]), layers,
                  class_="report-code")  # fmt: skip
    yield element("p", found["message"], class_="answer")
    if found["evidence"]:
        yield _facts(found["evidence"], "report-evidence")
    yield element("p", found["hint"], class_="answer")


def _facts(values: Mapping[str, Any], kind: str) -> Markup:
    return facts(((cut(name), cut(as_text(value))) for name, value in values.items()), kind)
