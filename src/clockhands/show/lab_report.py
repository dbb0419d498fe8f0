"""The report of the lab as one HTML file: it opens from disk, fetches nothing, and prints on paper.

First the question, the answer in sentences made from the numbers, and the gates; then each task; then the published
figures, the costs, the trials without a result, and the provenance. The results are in the file as JSON, under the id
`RESULTS`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

from clockhands.lab.answers import answers
from clockhands.lab.drops import rise_of
from clockhands.lab.result_words import (
    EFFECT,
    TESTED,
    Line,
    bounds_in_words,
    brackets,
    effect_in_words,
    in_full,
    order_word,
    range_note,
    verdict,
    verdict_of,
)
from clockhands.lab.results import GateResult, Results
from clockhands.lab.store import Key
from clockhands.lab.study_words import arm_in_words, duration, measured_in_words
from clockhands.phrases import listed, number_of, spoken
from clockhands.show._html import (
    NONE,
    code_words,
    facts,
    foot,
    heading,
    mark,
    numbers_table,
    page,
    paragraphs,
    preformatted,
    table,
)
from clockhands.show._lab_tables import in_terms, in_words, with_look
from clockhands.show._lab_tasks import looks, task_parts, title_of
from clockhands.show._markup import Markup, element, joined
from clockhands.show.findings import IN_TITLES, as_text, cut

RESULTS = "clockhands-lab"
"""The id of the script element that holds what ``clockhands lab report --json`` prints, for each study."""

_NO_SCOPE = (
    "The study file states no scope. A small model shows the shape of a curve and the order of the arms at its size. "
    "It does not show the level that a large model reaches, nor that the order is the same there."
)
_OTHER_SIZES = "Published with other models, data and sizes: compare the order of methods, not the values."
_HOW_TO_READ = (
    "A number is a mean over seeds; {brackets}. Two arms are distinguishable if chance "
    "alone would make them differ so much, seed by seed, with a probability of at most 5 %, by Student's t, corrected "
    "for the number of pairs of the study that this page compares (Holm). The rank of an arm is 1 plus the number of "
    "arms that are distinguishably better; several arms may have the same rank."
)


def report(results: Sequence[Results]) -> str:
    """The page.

    Args:
        results: The studies, in the order in which they are shown.

    Returns:
        A whole HTML document.
    """
    stated = [each.to_dict() for each in results]
    several = len(results) != 1
    title = f"Lab: {len(results)} studies" if several else f"Lab: {cut(results[0].study.name, IN_TITLES)}"
    articles = (
        element(
            "article",
            _Page(each, values, place + 1, 2 if several else 1).parts(),
            id=f"study-{place + 1}",
            class_="report-target",
        )
        for place, (each, values) in enumerate(zip(results, stated, strict=True))
    )
    overview = _overview(results) if several else None
    where = foot(" The results are in this file as JSON, in the element with the id ", element("code", RESULTS), ".")
    held = {RESULTS: {"schema": 1, "studies": stated}}
    return page(title, held, overview, articles, where, kind="lab", sheets=["lab_report.css"])


def _overview(results: Sequence[Results]) -> Iterator[Markup]:
    yield element("h1", f"{len(results)} studies of the lab")
    rows = (
        [
            element("a", cut(each.study.name), href=f"#study-{place + 1}"),
            each.study.question,
            joined(mark(_grade(each)), verdict(each), f" {_states(each)}" if _incomplete(each) else None),
        ]
        for place, each in enumerate(results)
    )
    if results:
        yield table("of-studies", ("study", "question", "gates"), rows)


_GRADES = {True: "sound", False: "error", None: "note"}  # of a gate that holds, fails, or is not known to do either


def _grade(results: Results) -> str:
    """The grade of all gates together: where one is not known, or there are none, they are not known to hold."""
    found = [each.known for each in results.gates()]
    return _GRADES[False if False in found else None if None in found or not found else True]


def _incomplete(results: Results) -> bool:
    return bool(results.states["failed"] or results.states["waiting"])


def _states(results: Results) -> str:
    states = results.states
    parts = [f"{states['failed']} failed"] if states["failed"] else []
    parts += [f"{states['waiting']} not finished"] if states["waiting"] else []
    return f"{states['finished']} of {len(results.trials)} trials are finished, {listed(parts)}."


@dataclass(frozen=True)
class _Page:
    """The report of one study.

    Attributes:
        results: The study.
        stated: The same as JSON values.
        place: Which study of the page it is, from 1.
        level: The level of its first heading.
    """

    results: Results
    stated: Mapping[str, Any]
    place: int
    level: int

    def heading(self, below: int, text: str) -> Markup:
        return element(f"h{self.level + below}", text, class_="lab-ask" if below > 1 else None)

    def question(self, text: str) -> Markup:
        return self.heading(2, text)

    def section(self, title: str, *parts: Any, **more: object) -> Markup:
        return element("section", self.heading(1, title), *parts, **more)

    @cached_property
    def looks(self) -> dict[Line, int]:
        return looks(self.results)

    def parts(self) -> Iterator[Markup]:
        study = self.results.study
        yield from self.answer()
        if study.gates:
            yield self.section("Do the gates hold?", self.gates())
        if len(study.own_tasks) < len(study.tasks):
            yield self.section("Does the order hold?", self.orders())
        yield self.section("What is compared?", self.arms())
        for name in study.own_tasks:
            parts = task_parts(self.results, name, self.stated["tasks"][name], self.looks, self.question)
            yield self.section(title_of(self.results, name), parts)
        if study.history:
            items = (element("li", each) for each in study.history)
            yield self.section("What was run or changed before?", element("ul", items, class_="lab-list"))
        if study.published:
            note = paragraphs(_OTHER_SIZES, kind="note")
            items = (element("li", each) for each in study.published)
            yield self.section("What do publications report?", note, element("ul", items, class_="lab-list"))
        yield self.section("What did it cost?", self.costs())
        if _incomplete(self.results):
            yield self.section("Which trials have no result?", self.missing(), id=f"missing-{self.place}")
        yield self.section("How was it run?", self.provenance())

    def answer(self) -> Iterator[Markup]:
        results, study = self.results, self.results.study
        yield heading(study.name, self.level)
        yield element("p", study.question, class_="lab-question")
        grade = _grade(results)
        yield element("p", mark(grade), verdict(results), class_=f"report-verdict is-{grade}")
        if _incomplete(results):
            link = element("a", "Which ones", href=f"#missing-{self.place}")
            words = (
                mark("error" if results.states["failed"] else "note"),
                f"{_states(results)} ",
                link,
                ". All numbers are of finished trials.",
            )
            yield element("p", *words, class_="answer")
        for name in study.own_tasks:
            if len(study.own_tasks) > 1:
                yield element("p", f"Task {name}", class_="report-code")
            items = (element("li", code_words(each)) for each in answers(results, name))
            yield element("ul", items, class_="lab-list")
        yield element("p", element("strong", "Scope: "), study.scope or _NO_SCOPE, class_="answer")
        several = any(len(plan.seeds) > 1 for plan in study.tasks.values())
        yield from paragraphs(
            f"{_HOW_TO_READ.format(brackets=brackets(results)) if several else ''} {range_note(results)}".strip(),
            kind="note",
        )

    def gates(self) -> Iterator[Markup]:
        yield from paragraphs(
            f"{verdict(self.results)} The gates are part of the study file, written before the run. {TESTED} {EFFECT}"
        )
        yield table(
            "of-gates", ("verdict", "gate", "measured", "required", "effect"), map(self.gate, self.results.gates())
        )

    def gate(self, each: GateResult) -> list[Markup | str]:
        gate = each.gate
        one = gate.measure == "spike" and not gate.minus and each.value is not None
        found = rise_of(self.results, gate.task, gate.arm) if one else in_full(each.value, gate.measure)
        says, grade = verdict_of(self.results, each), _GRADES[each.known]
        return [
            element("span", mark(grade), says, class_=f"lab-verdict is-{grade}"),
            gate.says,
            joined(element("strong", found), element("br"), measured_in_words(gate)),
            bounds_in_words(gate.bounds),
            effect_in_words(each),
        ]

    def orders(self) -> Iterator[Markup]:
        """What each gate says, in every cell of the grid."""
        yield from paragraphs(
            "Each gate in every cell of the grid, at the same multiple of the trained length. A gate holds if it holds "
            "in every cell of which it is said; the chance is corrected for the number of all cells."
        )
        heads = ("cell", "does the order hold?", "measured", "effect", "chance", "said of it", "trials from")
        for gate in self.results.gates():
            rows = (
                [
                    cut(cell),
                    element("span", mark(_GRADES[each.known]), order_word(self.results, each)),
                    in_full(each.value, gate.gate.measure),
                    effect_in_words(each),
                    NONE if each.chance is None else f"{each.chance:.2g}",
                    "yes" if each.said else "no",
                    listed(_origin(own) for own in self.results.origins(cell)) or NONE,
                ]
                for cell, each in gate.cells.items()
            )
            yield numbers_table(f"{gate.gate.says} {measured_in_words(gate.gate)}", heads, rows, texts=(1, 5, 6))

    def arms(self) -> Markup:
        rows = (
            [with_look(name, self.looks.get(Line(name))), arm_in_words(arm) or NONE, in_terms(stated["code"])]
            for (name, arm), stated in zip(self.results.study.arms.items(), self.stated["arms"].values(), strict=True)
        )
        return table("of-arms", ("arm", "what it is", "position encoding"), rows)

    def costs(self) -> Iterator[Markup]:
        finished = self.results.states["finished"]
        trials = number_of(finished, "finished trial")
        yield from paragraphs(f"{duration(self.results.seconds)} of training and evaluation, the sum over {trials}.")
        heads = ("arm", "parameters", "of the encoding", "learning rate", "tokens per second", "seconds per trial")
        begun = {each.task for each in self.results.trials}
        for task, plan in self.results.study.tasks.items():
            if task not in begun:  # a cell of the full form
                continue
            caption = f"Task {task}: parameters, speed and time (medians over seeds)"
            yield numbers_table(caption, heads, (self.cost(Key(task, arm, 0)) for arm in plan.arms))

    def cost(self, key: Key) -> list[Markup | str]:
        trials = [each for each in self.results.trials if each[:2] == key[:2] and each.state == "finished"]
        first = trials[0].facts if trials else {}
        counted = [spoken(first[name]) if name in first else NONE for name in ("parameters", "code_parameters")]
        rate = f"{self.results.study.training_of(key).learning_rate:g}"
        speed = _median(each.facts.get("tokens_per_second") for each in trials)
        return [cut(key.arm), *counted, rate, speed, _median(each.seconds for each in trials)]

    def missing(self) -> Iterator[Markup]:
        failed = [each for each in self.results.trials if each.state == "failed"]
        if failed:
            yield element("p", mark("error"), f"{len(failed)} failed:", class_="answer")
            rows = ([each.task, each.arm, str(each.seed), each.message or "no message"] for each in failed)
            yield table("of-failures", ("task", "arm", "seed", "message"), rows)
        waiting: dict[tuple[str, str], list[str]] = {}
        for each in self.results.trials:
            if each.state == "waiting":
                waiting.setdefault((each.task, each.arm), []).append(str(each.seed))
        if waiting:
            says = f"{self.results.states['waiting']} not finished; `clockhands lab resume` goes on with them:"
            yield element("p", mark("note"), code_words(says), class_="answer")
            rows = ([task, arm, ", ".join(seeds)] for (task, arm), seeds in waiting.items())
            yield table("of-failures", ("task", "arm", "seeds"), rows)

    def provenance(self) -> Iterator[Markup]:
        study, stored = self.results.study, self.results.stored
        machine = dict(stored.machine)
        texts = machine.pop("texts", None) or {}
        yield facts(
            [
                ("command", element("code", stored.command or "unknown")),
                ("commit", stored.commit_id or "unknown"),
                ("study, SHA-256", study.hash),
                ("first run", stored.created or "unknown"),
                ("clockhands", stored.version or "unknown"),
                ("versions", in_words(stored.versions)),
                *((name.replace("_", " "), as_text(value)) for name, value in machine.items()),
                *((f"text of {task}", in_words({"name": "", **held})) for task, held in texts.items()),
                *((f"seeds of {task}", ", ".join(map(str, plan.seeds))) for task, plan in study.own_tasks.items()),
            ]
        )
        lines = preformatted(study.text.splitlines())
        yield element("details", element("summary", "The study file"), lines, class_="lab-file")


def _origin(own: Mapping[str, Any]) -> str:
    return f"{own['trials']} on {own['device'] or 'an unknown device'}, commit {own['commit'] or 'unknown'}"


def _median(values: Iterable[Any]) -> str:
    known = [float(each) for each in values if isinstance(each, int | float) and math.isfinite(each)]
    return f"{median(known):,.{0 if median(known) >= 100 else 1}f}" if known else NONE
