"""A survey as one HTML file: how many models are correct, the findings, and a table of all to sort and filter.

It opens from disk and fetches nothing. The rows are in it as JSON; the script draws one page of the table at a time.
Reports of single models are files beside it, which it links to.
"""

import hashlib
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from clockhands.auditing import CODES
from clockhands.jobs.survey.rows import SurveyRow
from clockhands.jobs.survey.summary import GRADES, headline, outliers
from clockhands.phrases import number_of
from clockhands.runtimes import READERS, facts
from clockhands.show._html import SIGNS, foot, mark, page, table
from clockhands.show._markup import Markup, element, joined
from clockhands.show._page import safe
from clockhands.show._survey_charts import histogram
from clockhands.show.findings import cut, short_name

ROWS = "survey"
"""The id of the script element that holds the rows."""

_LABELS = {
    "name": "model",
    "grade": "result",
    "type": "type",
    "problems": "findings",
    "kinds": "encoding",
    "base": "base",
    "scaling": "scaling",
    "factor": "factor",
    "context": "length",
    "head": "head size",
    "differs": "computed differently in",
    "refused": "refused by",
}
"""Columns of the table and what they are called."""

_LETTERS = 40  # of a text of a file in the table

_COLUMNS = (*_LABELS, "notes", "verdict", "page")

_MARKS = {"error": "error", "warning": "warning", "failed": "note", "unknown": "note", "correct": "sound"}
_KINDS = {
    "rotary": "RoPE",
    "alibi": "ALiBi",
    "buckets": "T5 buckets",
    "none": "no encoding",
    "unknown": "not recognised",
    "rotary-uncomputed": "RoPE, frequencies unknown",
}
_WORDS = {
    "error": "errors",
    "warning": "warnings",
    "failed": "not audited",
    "unknown": "not known",
    "correct": "correct",
}


def gallery(rows: Sequence[SurveyRow], pages: Mapping[str, str] | None = None) -> str:
    """The page.

    Args:
        rows: One for each model.
        pages: The address of the report of a model, relative to the page, by target; models may lack one.

    Returns:
        A whole HTML document.
    """
    root, runtimes = _root(row.target for row in rows), {name: _runtime(name) for name in READERS}
    held = {
        "columns": list(_COLUMNS),
        "labels": _LABELS,
        "grades": _WORDS,
        "marks": {grade: (f"is-{kind}", SIGNS[kind]) for grade, kind in _MARKS.items()},
        "words": {"kinds": _KINDS, "differs": runtimes, "refused": runtimes},
        "rows": [_cells(row, root, (pages or {}).get(row.target, "")) for row in rows],
    }
    script = files("clockhands.show").joinpath("survey.js").read_text("utf-8")
    title = f"Survey of {number_of(len(rows), 'model')}"
    return page(title, {ROWS: held}, _main(rows, root), kind="survey", sheets=["survey.css"], script=script)


def file_name(row: SurveyRow) -> str:
    """The name of the file for the report of a model: readable, and unique for each target."""
    words = re.sub(r"[^A-Za-z0-9.]+", "-", short_name(row.target)).strip("-.")[:60]
    return f"{words or 'model'}-{hashlib.sha256(row.target.encode()).hexdigest()[:12]}.html"


def _main(rows: Sequence[SurveyRow], root: str) -> Iterator[Markup]:
    yield element("h1", f"Survey of {number_of(len(rows), 'model')}")
    yield element("p", headline(rows), class_="report-verdict")
    yield element("div", _findings(rows), _runtimes(rows), class_="survey-found")
    differing = list(_outliers(rows, root))
    if differing:
        says = "A group is ten or more models of one folder, type, encoding and head size, of which nine in ten agree."
        heading = element("h2", "Which models differ from their group?")
        yield element("section", heading, element("p", says, class_="answer"), element("ul", differing))
    charts = _charts(rows)
    if charts:
        yield element(
            "section",
            element("h2", "Which bases, factors and lengths do the models have?"),
            element("div", charts, class_="survey-charts"),
        )
    yield element("section", _table(rows))
    where = f" Names are paths in {cut(root)}." if root else ""
    yield foot(where)


def _findings(rows: Sequence[SurveyRow]) -> Markup:
    counted = Counter(code for row in rows for code in row.problems)
    errors = {code for row in rows for code in row.errors.split()}
    problems = sorted(counted, key=lambda code: (code not in errors, -counted[code], code))
    failed = sum(row.state == "failed" for row in rows)
    with_problems = sum(bool(row.problems) for row in rows)
    have = "has" if with_problems == 1 else "have"
    says = f"{with_problems:,} of {number_of(len(rows), 'model')} {have} a problem." + (
        f" {failed:,} could not be audited: choose the result “not audited” for the reasons." if failed else ""
    )
    cells = (
        (
            joined(
                mark("error" if code in errors else "warning"),
                _filter("finding", f"problems {code}", code),
                element("span", CODES[code].title, class_="survey-title") if code in CODES else None,
            ),
            f"{counted[code]:,}",
        )
        for code in problems
    )
    return _section("What is wrong?", says, table("survey-list", ("finding", "models"), cells, numbers=[1]), problems)


def _outliers(rows: Sequence[SurveyRow], root: str) -> Iterator[Markup]:
    """A line for each outlier, whose name filters the table for it."""
    for outlier in outliers(rows):
        name = safe(_name(outlier.target, root))
        yield element("li", _filter("text", name, name), outlier.says(""))


def _runtimes(rows: Sequence[SurveyRow]) -> Markup:
    differs = Counter(name for row in rows for name in row.differs_in.split())
    refused = Counter(name for row in rows for name in row.refused_by.split())
    some = number_of(sum(bool(row.differs_in) for row in rows), "model")
    says = (
        f"{some} would be computed with other frequencies in at least one runtime than the files mean. "
        f"{number_of(sum(bool(row.refused_by) for row in rows), 'model')} would not be loaded by at least one. "
        "Only RoPE of texts is compared."
    )
    order = sorted(differs.keys() | refused.keys(), key=lambda name: (-differs[name], -refused[name], name))
    cells = (
        (
            _runtime(name),
            _count(f"differs {name}", differs[name], name, "computes differently"),
            _count(f"refused {name}", refused[name], name, "refuses"),
        )
        for name in order
    )
    found = table("survey-list", ("runtime", "other frequencies", "refused"), cells, numbers=[1, 2])
    return _section("Where do runtimes disagree?", says, found, order)


def _section(title: str, says: str, found: Markup, names: Sequence[str]) -> Markup:
    """A question, its answer, and a table if there are ``names`` for its rows."""
    heading, answer = element("h2", title), element("p", says, class_="answer")
    return element("section", heading, answer, found if names else None)


def _charts(rows: Sequence[SurveyRow]) -> list[Markup]:
    """The distributions of base, factor and length, as far as known."""
    made = (
        ("RoPE base", "models by base, log", math.sqrt(10), [row.base for row in rows if row.base]),
        ("factor of the RoPE scaling", "models by factor, log", 2.0, [row.factor for row in rows if row.factor]),
        ("context length", "models by length (token), log", 2.0, [float(row.context) for row in rows if row.context]),
    )
    found = []
    for what, axis, step, given in made:
        values = [value for value in given if value > 0]
        if not values:
            continue
        usual, count = max(Counter(values).items(), key=lambda each: (each[1], -each[0]))
        caption = (
            f"The {what} is {usual:,.10g} in {count:,} of {number_of(len(values), 'model')} that have one; "
            f"the smallest is {min(values):,.10g}, the largest {max(values):,.10g}."
        )
        found.append(element("figure", element("figcaption", caption), histogram(values, step, axis)))
    return found


def _table(rows: Sequence[SurveyRow]) -> Iterator[Markup]:
    yield element("h2", "Which models are these?")
    yield element("noscript", element("p", "The table needs JavaScript to be sorted and filtered."))
    yield element("div", _filters(rows), class_="survey-filters", role="search")
    yield element(
        "div",
        element("p", id="survey-count", role="status"),
        element("button", "Previous 200", type="button", id="survey-back"),
        element("button", "Next 200", type="button", id="survey-on"),
        class_="survey-pages",
    )
    head = (
        element("th", element("button", label, type="button"), scope="col", data_column=name, aria_sort="none",
                class_="is-number" if name in ("base", "factor", "context", "head") else None)
        for name, label in _LABELS.items()
    )  # fmt: skip
    yield element(
        "table",
        element("thead", element("tr", head)),
        element("tbody", id="survey-rows"),
        class_="report-table survey-rows",
        id="survey-table",
    )


def _filters(rows: Sequence[SurveyRow]) -> Iterator[Markup]:
    yield element("label", "text", element("input", type="search", id="survey-text", placeholder="name, type, verdict"))
    grades = Counter(row.grade for row in rows)
    yield _select("grade", "result", [(name, f"{_WORDS[name]} ({grades[name]:,})") for name in GRADES if grades[name]])
    types = Counter(cut(row.model_type, _LETTERS) for row in rows if row.model_type)
    yield _select("type", "type", [(name, f"{name} ({types[name]:,})") for name in sorted(types)])
    problems = Counter(code for row in rows for code in row.problems)
    notes = Counter(code for row in rows for code in row.notes.split())
    found = [(f"problems {code}", f"{code} ({count:,})") for code, count in sorted(problems.items())]
    found += [(f"notes {code}", f"note: {code} ({count:,})") for code, count in sorted(notes.items())]
    yield _select("finding", "finding", found)
    runtimes = [
        (f"{column} {name}", f"{_runtime(name)} {says}")
        for column, says, held in (
            ("differs", "differs", (row.differs_in for row in rows)),
            ("refused", "refuses", (row.refused_by for row in rows)),
        )
        for name in sorted({name for each in held for name in each.split()})
    ]
    yield _select("runtime", "runtime", runtimes)
    for name, label in (("base", "base"), ("factor", "factor"), ("context", "length (token)")):
        ends = (
            element("input", type="number", min=0, step="any", id=f"survey-{name}-{end}", placeholder=end,
                    aria_label=f"{label}, {end}")
            for end in ("from", "to")
        )  # fmt: skip
        yield element("fieldset", element("legend", label), element("div", ends), class_="survey-range")
    options = (element("option", label, value=name) for name, label in _LABELS.items())
    yield element("label", "sort by", element("select", options, id="survey-sort"), class_="survey-narrow")
    ways = (element("option", "up", value="up"), element("option", "down", value="down"))
    yield element("label", "order", element("select", ways, id="survey-order"), class_="survey-narrow")
    yield element("button", "Clear all filters", type="button", id="survey-clear")


def _select(name: str, label: str, choices: Iterable[tuple[str, str]]) -> Markup:
    options = (element("option", cut(says, 60), value=value) for value, says in (("", "all"), *choices))
    return element("label", label, element("select", options, id=f"survey-{name}"))


def _filter(name: str, value: str, says: str, **attributes: object) -> Markup:
    return element("button", says, type="button", class_="survey-filter", data_filter=name, data_value=value,
                   aria_pressed="false", **attributes)  # fmt: skip


def _count(value: str, count: int, runtime: str, says: str) -> Markup | str:
    label = f"{count:,}: show the models that {_runtime(runtime)} {says}"
    return _filter("runtime", value, f"{count:,}", aria_label=label) if count else ""


def _cells(row: SurveyRow, root: str, page: str) -> list[Any]:
    cells = {
        "name": _name(row.target, root),
        "grade": row.grade,
        "type": cut(row.model_type, _LETTERS),
        "scaling": cut(row.scaling, _LETTERS),
        "problems": " ".join(row.problems),
        "verdict": (row.message.replace(f"{root}/", "") if root else row.message) or row.verdict,
        "context": row.context,
        "head": row.head_width,
        "differs": row.differs_in,
        "refused": row.refused_by,
        "page": page,
    } | {name: getattr(row, name) for name in ("notes", "kinds", "base", "factor")}
    # Text from files may contain characters that hide or reverse what follows.
    return [safe(cell) if isinstance(cell, str) else cell for cell in map(cells.get, _COLUMNS)]


def _name(target: str, root: str) -> str:
    """A target as it is called on the page: its path from the folder that contains all."""
    return os.path.relpath(target, root) if root and target.startswith(root) else target


def _root(targets: Iterable[str]) -> str:
    """The folder that contains all targets with a path; "" if there is none."""
    folders = {os.path.dirname(target) for target in targets if os.path.isabs(target)}
    return os.path.commonpath(folders) if folders else ""


def _runtime(name: str) -> str:
    """The name of a runtime for people."""
    held = facts()["readers"].get(name)
    return held["title"] if held else name
