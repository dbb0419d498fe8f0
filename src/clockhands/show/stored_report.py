"""The report of a model as stored by a survey, for files that have changed or disappeared since."""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from clockhands.auditing.findings import spoken
from clockhands.jobs.survey.rows import SurveyRow
from clockhands.show._markup import Markup, document, element
from clockhands.show.explorer.page import source
from clockhands.show.findings import IN_TITLES, cut, short_name

AUDIT = "clockhands-audit"


def stored_report(row: SurveyRow, told: Mapping[str, Any]) -> str:
    """The page.

    Args:
        row: The row of the survey.
        told: Its stored report, as one element of `targets` in the JSON of `clockhands audit`.

    Returns:
        A whole HTML document.
    """
    style = source("style.css") + files("clockhands.show").joinpath("report.css").read_text("utf-8")
    shown = element("main", _main(row, told), class_="clockhands report")
    title = f"Audit of {cut(short_name(row.target), IN_TITLES)}"
    return document(title, style, "", {AUDIT: {"schema": 1, "targets": [told]}}, shown)


def _main(row: SurveyRow, told: Mapping[str, Any]) -> Iterator[Markup]:
    yield element("h1", cut(short_name(row.target)), class_="report-name")
    yield element("p", cut(row.target), class_="note path")
    yield element("p", row.verdict, class_="report-verdict")
    since = (
        "The files have changed since or are gone, there were none, or another version of clockhands is installed now"
    )
    yield element("p", f"Found at {row.audited_at} by clockhands {row.version}. {since}.", class_="answer")
    for found in told["findings"]:
        yield element("section", _finding(found))
    for code in told["layers"]:
        named = ((name.replace("_", " "), value) for name, value in code.items() if name not in ("source", "rates"))
        facts = [(name, _spoken(value)) for name, value in named if value is not None]
        yield element("section", element("h2", f"Layers {code['layers'] or ''}"), _pairs(facts, "report-facts"))


def _finding(found: Mapping[str, Any]) -> Iterator[Markup]:
    layers = f", layers {found['layers']}" if found["layers"] else ""
    yield element("p", element("strong", found["severity"]), " ", element("code", found["code"]), layers,
                  class_="report-code")  # fmt: skip
    yield element("p", found["message"], class_="answer")
    if found["evidence"]:
        yield _pairs([(name, _spoken(value)) for name, value in found["evidence"].items()], "report-evidence")
    yield element("p", found["hint"], class_="answer")


def _pairs(rows: list[tuple[str, str]], kind: str) -> Markup:
    lines = (element("div", element("dt", cut(name)), element("dd", cut(value))) for name, value in rows)
    return element("dl", lines, class_=kind)


def _spoken(value: object) -> str:
    return value if isinstance(value, str) else spoken(value)
