"""The report of an audit as one HTML file: it opens from disk, makes no requests, and prints on paper.

First the target, the verdict and the problems, each with its fix as a diff; then the layers, their frequencies and the
context length, and the properties; then the source of every value, and notes. Of several targets, the worst come first,
and correct ones are folded. The audit itself is in the file as JSON, under the id `AUDIT`, so that the file can be
dropped on the explorer, which also opens at its end. Only the explorer needs a script.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from clockhands.auditing import CODES, Audit, Finding
from clockhands.auditing.extending import Extension
from clockhands.auditing.findings import price_in_words
from clockhands.auditing.fixes import changed_lines
from clockhands.auditing.frequency_bands import bands_of
from clockhands.auditing.layer_words import LISTED, rates_in_words, rows_of, title_of, where_of
from clockhands.auditing.length_answers import OPTIONS, lines_of_change
from clockhands.auditing.main_properties import MainProperties
from clockhands.configs.resolved import LayerEncoding
from clockhands.measures import SHORT
from clockhands.phrases import number_of, spoken
from clockhands.runtimes.telling import layers_in_words, runtime_rows
from clockhands.show._html import facts, foot, heading, mark, page, paragraphs, preformatted, table
from clockhands.show._ladder_picture import ladder_picture
from clockhands.show._markup import Markup, element, joined
from clockhands.show._svg import path, sign
from clockhands.show.explorer.data import data
from clockhands.show.explorer.page import module
from clockhands.show.findings import (
    AUDIT,
    IN_TITLES,
    as_text,
    cut,
    evidence_to_show,
    grade_of,
    short_name,
    worst_first,
)

_WIDE, _NARROW = 800, 320  # px of the two drawings of a ladder: for a page or paper, and for a phone
_LONGEST = 600  # letters of a step of an edit; the JSON has all of it

_START = f"""
const held = (id) => JSON.parse(document.getElementById(id).textContent);
const place = document.getElementById("turn");
let opened = false;
place.addEventListener("toggle", () => {{
  if (!place.open || opened) return;
  opened = true;
  const data = {{ ...held("data"), models: held("{AUDIT}").targets }};
  explore(document.getElementById("explorer"), data, {{ fragment: "" }});
}});
"""


def report(audits: Sequence[Audit], unread: Sequence[Mapping[str, str]] = (), *, explorer: bool = True) -> str:
    """The page.

    Args:
        audits: What was audited, in the order in which it is shown.
        unread: The targets that could not be read, each with its ``target``, ``message`` and ``hint``.
        explorer: Whether the explorer is in the page; without it the page needs a tenth of the space.

    Returns:
        A whole HTML document.
    """
    told: dict[str, Any] = {"schema": 1, "targets": [audit.to_dict() for audit in audits]}
    if unread:
        told["unread"] = [dict(each) for each in unread]
    script, held = "", {AUDIT: told}
    if explorer:
        script, held = f"{module()}\n{_START}", {**held, "data": {**data(audits), "models": []}}
    names = [each.target for each in audits] + [each["target"] for each in unread]
    title = f"Audit of {cut(short_name(names[0]), IN_TITLES) if len(names) == 1 else f'{len(names)} targets'}"
    shown = _main(sorted(audits, key=worst_first), unread)
    return page(title, held, shown, _explorer(audits) if explorer else None, _foot(), script=script)


def _main(audits: Sequence[Audit], unread: Sequence[Mapping[str, str]]) -> Iterator[Markup]:
    several = len(audits) + len(unread) > 1
    if several:
        yield element("h1", f"Audit of {len(audits) + len(unread)} targets")
        yield _overview(audits, unread)
    for number, audit in enumerate(audits):
        shown: Any = _target(audit, several=several)
        if several and not audit.problems:
            summary = element("summary", mark(grade_of(audit)), cut(short_name(audit.target)), class_="report-name")
            shown = element("details", summary, shown)
        yield element("article", shown, id=f"target-{number + 1}", class_="report-target")
    for number, each in enumerate(unread):
        name = heading(each["target"], 1 + several)
        said = _verdict("error", f"It could not be read. {each['message']}")
        hint = element("p", each["hint"], class_="answer")
        yield element("article", name, said, hint, id=f"target-{len(audits) + number + 1}", class_="report-target")


def _overview(audits: Sequence[Audit], unread: Sequence[Mapping[str, str]]) -> Markup:
    """All targets with their verdicts, before any of them."""
    graded = [(audit.target, grade_of(audit), audit.verdict) for audit in audits]
    graded += [(each["target"], "error", "It could not be read.") for each in unread]
    rows = (
        (element("a", cut(target), href=f"#target-{number + 1}"), joined(mark(grade), verdict))
        for number, (target, grade, verdict) in enumerate(graded)
    )
    return table("of-targets", ("target", "verdict"), rows)


def _target(audit: Audit, *, several: bool) -> Iterator[Markup]:
    name = short_name(audit.target)
    below = "h3" if several else "h2"
    yield heading(name, 1 + several)
    if name != audit.target:
        yield element("p", cut(audit.target), class_="note path")
    yield _verdict(grade_of(audit), audit.verdict)
    yield element("p", _in_short(audit), class_="note")
    for note in audit.notes:
        yield element("p", f"Note: {note}", class_="note")
    if audit.problems:
        yield element("section", element(below, "Problems"), (_finding(audit, each) for each in audit.problems))
    if audit.cache is not None:
        yield element("section", element(below, "KV cache"), paragraphs(audit.cache.says, *audit.cache.assumes))
    if audit.extension is not None:
        yield element(
            "section", element(below, f"At {audit.extension.length:,} positions"), _extension(audit.extension)
        )
    if audit.layers:
        yield element("section", element(below, "Position encoding of the layers"), map(_code, audit.layers))
    if bands := bands_of(audit):
        says = [element("p", band.says, class_="answer") for band in bands]
        wide, narrow = (element("div", ladder_picture(bands, width), class_=f"figure report-{kind}")
                        for kind, width in (("wide", _WIDE), ("narrow", _NARROW)))  # fmt: skip
        yield element("section", element(below, "Frequencies and the context length"), says, _key(), wide, narrow)
    if audit.properties:
        yield element("section", element(below, "Properties"), _properties(audit.properties))
    yield element("section", element(below, "Sources of all values"), _provenance(audit))
    notes = [finding for finding in audit.findings if finding.severity == "note"]
    if notes:
        count = number_of(len(notes), "note")
        news = any(CODES[finding.code].news for finding in notes)
        summary = element("summary", count if news else f"{count}, expected for this model")
        opened = "" if news else None
        yield element("details", summary, (_finding(audit, each) for each in notes), class_="report-notes", open=opened)


def _in_short(audit: Audit) -> str:
    parts = [f"Model type {cut(audit.model_type, IN_TITLES)}" if audit.model_type else "No model type is named"]
    parts.append(f"context length {spoken(audit.context)}" if audit.context else "no context length is declared")
    if audit.length is not None and any(code.by_length for code in audit.layers):
        parts.append(f"frequencies computed for a length of {spoken(audit.length)}")
    return f"{'; '.join(parts)}."


def _verdict(grade: str, says: str) -> Markup:
    return element("p", mark(grade), says, class_=f"report-verdict is-{grade}")


def _finding(audit: Audit, finding: Finding) -> Markup:
    layers = f", {layers_in_words(finding.layers, LISTED)}" if finding.layers else ""
    evidence = [(_place(name), value) for name, value in evidence_to_show(finding)]
    mends = finding.change
    fix = element("strong", "Fix: ")
    return element(
        "section",
        element("p", mark(finding.severity), element("strong", finding.severity), " ",
                element("code", finding.code), layers, class_="report-code"),
        element("p", finding.problem, class_="answer"),
        None if finding.price is None else
        element("p", element("strong", "Price: "), price_in_words(finding.price), class_="answer"),
        facts(evidence, "report-evidence") if evidence else None,
        element("p", fix, mends, class_="answer") if mends else None,
        _patch(audit, finding),
        element("p", fix if finding.severity != "note" and not mends else None, finding.hint, class_="answer"),
        class_=f"report-finding is-{finding.severity}",
    )  # fmt: skip


def _patch(audit: Audit, finding: Finding) -> Markup | None:
    """The edit as changed lines; as JSON Patch, one step a line, if the file cannot be read."""
    if finding.edit is None or not finding.edit.patch:
        return None
    if changed := list(changed_lines(audit, finding)):
        lines, caption = changed, f"The change of {finding.edit.file or 'the file'}"
    else:
        lines = [json.dumps(dict(step), ensure_ascii=False) for step in finding.edit.patch]
        caption = f"The same for {finding.edit.file or 'the file'}, as JSON Patch (RFC 6902)"
    shown = preformatted(cut(line, _LONGEST) for line in lines)
    return element("figure", element("figcaption", caption), shown, class_="report-patch")


def _place(text: str) -> Markup:
    """A source, which may be broken after each of its steps."""
    pieces: list[Markup | str] = []
    for letter in text:
        pieces.append(letter)
        if letter in "./:_":
            pieces.append(element("wbr"))
    return joined(pieces)


def _code(code: LayerEncoding) -> Markup:
    rows = [(label, value) for label, value, _ in rows_of(code)]
    title = element("p", title_of(code, LISTED), class_="report-code")
    return element("section", title, facts(rows) if rows else None)


def _key() -> Markup:
    """The legend of the marks of a ladder."""
    marks = (
        ("turning", "M6,3V13", "completes a rotation within the length"),
        ("never", "M6,0V16", "never completes a rotation within it"),
        ("beyond", "M6,2V14m-3,-4l3,4l3,-4", "rotates further than in training"),
    )
    signs = ((sign("report-ladder", path(f"mark {kind}", shape), 12), words) for kind, shape, words in marks)
    return element("p", (element("span", drawn, f" {words}") for drawn, words in signs), class_="note report-key")


def _properties(found: Sequence[MainProperties]) -> Iterator[Markup]:
    for (over, _), group in groupby(found, key=lambda one: (one.over, tuple(one.properties.items()))):
        same = list(group)
        where = "; ".join(filter(None, (where_of(one, LISTED) for one in same)))
        yield element("p", f"{where or 'The encoding'}, {over}", class_="report-code")
        rows = ((SHORT[name], each.brief, each.says) for name, each in same[0].properties.items())
        yield table("of-properties", ("property", "answer", "with its numbers"), rows)


def _extension(extension: Extension) -> Iterator[Markup]:
    if extension.answer is not None:
        answer = extension.answer
        yield element("p", f"To begin with: {answer.scaling}. {answer.why}", class_="answer")
        for setting in answer.settings:
            yield element("p", OPTIONS[setting.runtime], class_="report-code")
            yield preformatted(setting.lines)
        yield element("p", answer.untrained, class_="answer")
    for sentence in extension.sound:
        yield element("p", sentence, class_="answer")
    for way in extension.ways:
        yield element("p", way.scaling, class_="report-code")
        for sentence in way.says:
            yield element("p", sentence, class_="answer")
        for shape, values in way.values.items():
            yield preformatted(lines_of_change(shape, values))
        for cost in way.costs:
            yield element("p", f"Known: {cost.in_words}", class_="note")
    for sentence in (*extension.without, *extension.cannot):
        yield element("p", sentence, class_="note")


def _provenance(audit: Audit) -> Iterator[Markup]:
    """A row for each value: the layers, the field, the value, and the file and key."""
    of_model = [
        (name.replace("_", " "), as_text(value), audit.source[name])
        for name, value in (("model_type", audit.model_type), ("context", audit.context), ("length", audit.length))
        if name in audit.source
    ]
    if cut(audit.target) != audit.target:
        of_model.insert(0, ("target", audit.target, "the command line"))
    if of_model:
        yield _places("model", of_model)
    for code in audit.layers:
        stated = ((name, _field(code, name), place) for name, place in code.source.items() if hasattr(code, name))
        rows = [(name.replace("_", " "), value, place) for name, value, place in stated if value]
        if rows:
            yield _places(title_of(code, LISTED), rows)
    if audit.weights is not None:
        yield element("p", f"Weights: {audit.weights.says}", class_="note")
    others = list(runtime_rows(audit.readings, audit.reach))
    if others:
        yield element("p", "Runtimes", class_="report-code")
        yield facts(others)
    if audit.ignored:
        yield element("p", "Position keys that nothing reads", class_="report-code")
        yield facts([(_place(place), spoken(value)) for place, value in audit.ignored.items()], "report-evidence")


def _places(whose: str, rows: Iterable[tuple[str, str, str]]) -> Markup:
    """A table of values and their sources."""
    lines = ((name, value, _place(place)) for name, value, place in rows)
    caption = element("caption", whose, class_="report-code")
    return table("of-places", ("value", "is", "source"), lines, caption)


def _field(code: LayerEncoding, name: str) -> str:
    """A field of a code as a short text; empty if it has none."""
    value = getattr(code, name)
    if value is None:
        return ""
    if name == "layers":
        return layers_in_words(value)
    if name == "rates":
        return rates_in_words(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {as_text(item)}" for key, item in value.items() if item is not None)
    return as_text(value)


def _explorer(audits: Sequence[Audit]) -> Markup | None:
    if not any(audit.layers for audit in audits):
        return None
    summary = element("summary", "Interactive explorer of the audited models")
    return element("details", summary, element("div", id="explorer"), id="turn", class_="report-explorer")


def _foot() -> Markup:
    return foot(
        " The audit is in this file as JSON: drop the file on the page that ",
        element("code", "clockhands explore"),
        " opens, or read the element with the id ",
        element("code", AUDIT),
        ".",
    )
