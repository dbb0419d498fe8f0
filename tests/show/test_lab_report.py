"""The lab's report as one file: what a study found is in it as text, whatever its arms are called."""

import io
import json
import math
import re
from itertools import pairwise

import pytest

import clockhands
from clockhands.lab import study as studies
from clockhands.lab.answers import Ranking, answers, lines_of
from clockhands.lab.drops import references_of
from clockhands.lab.result_words import Line, of_range, verdict
from clockhands.lab.results import Results
from clockhands.lab.store import Key
from clockhands.measures.claims import Estimate, estimated
from clockhands.show import _lab_charts as charts
from clockhands.show._lab_charts import LOOKS
from clockhands.show._lab_tasks import looks
from clockhands.show.lab import print_results, print_stored
from clockhands.show.lab_report import RESULTS, report
from show.lab_studies import (
    CHECKPOINT,
    DROP,
    DROPS,
    LENGTHS,
    LOSSES,
    MANY,
    ONE,
    ONE_OF_SOME,
    ONE_SEED,
    STARTED,
    TEXT,
    from_arms,
    hostile,
    made,
)
from show.pages import HOSTILE, Parts, check_nothing_comes_from_elsewhere

FAILED = [Key("copy", "none", 1), Key("copy", "rotary", 2)]
WAITING = [Key("copy", "alibi", 0), Key("copy", "alibi", 2)]


def kept(text: str) -> str:
    """Without what differs: the place of the text, the hash of a study that names it, and the version."""
    text = text.replace(f"clockhands {clockhands.__version__}. ", "clockhands VERSION. ")
    text = re.sub(r"\bStudy [0-9a-f]{12}\b", "Study HASH", text)  # it follows from where the checkout is
    return re.sub(r"\b[0-9a-f]{64}\b", "HASH", text.replace("f" * 64, "SHA256").replace(TEXT, "TEXT"))


def lines(page: str) -> list[str]:
    return [kept(line) for line in Parts(page).lines]


def text(page: str) -> str:
    return "\n".join(lines(page))


def results_of(name: str) -> Results:
    """Studies of each kind: the usual one, those that lack something, those of many arms and of drops."""
    waiting = studies.parse(LENGTHS).trial_keys() if name == "nothing measured" else WAITING
    return {
        "lengths": lambda: made(LENGTHS, LOSSES),
        "one arm": lambda: made(ONE),
        "one seed": lambda: made(ONE_SEED, LOSSES),
        "one task of one seed": lambda: made(ONE_OF_SOME, LOSSES),
        "failed and waiting": lambda: made(LENGTHS, LOSSES, failed=FAILED, waiting=waiting),
        "nothing measured": lambda: made(LENGTHS, waiting=waiting),
        "not finite": lambda: made(LENGTHS, LOSSES, nan=("rotary",)),
        "many": lambda: made(MANY),
        "drop": lambda: made(DROP, DROPS),
        "checkpoint": lambda: made(CHECKPOINT, STARTED),
    }[name]()


@pytest.mark.parametrize(
    "name",
    ["lengths", "one arm", "one seed", "failed and waiting", "nothing measured", "not finite", "many", "drop",
     "checkpoint"],
)  # fmt: skip
def test_every_line_of_the_page_is_the_frozen_one(name, snapshot):
    assert lines(report([results_of(name)])) == snapshot


@pytest.mark.parametrize("name", ["lengths", "one seed", "one task of one seed", "failed and waiting", "drop"])
def test_every_line_on_the_terminal_is_the_frozen_one(name, snapshot):
    out = io.StringIO()
    print_results(results_of(name), out, 200)
    assert [kept(line) for line in out.getvalue().splitlines()] == snapshot


def ranking_of(*values) -> Ranking:
    names = [Line(f"arm {number}") for number in range(len(values))]
    return Ranking(from_arms(*values), "copy", 64, "whole", names)


def test_two_arms_are_not_distinguishable_where_chance_may_be_the_reason():
    # The second arm is better by mean, and worse at one seed; the third is worse than both at every seed.
    ranking = ranking_of((0.80, 0.90, 0.85), (0.79, 0.95, 0.87), (0.5, 0.61, 0.55))
    assert ranking.sentence == (
        "At 64 tokens (the trained length), arm 1 has the highest accuracy: 0.870 [0.790, 0.950]; not distinguishable "
        "from it: arm 0 (0.850). Worse: arm 2, 0.553."
    )
    assert ranking.ranks == {Line("arm 1"): 1, Line("arm 0"): 1, Line("arm 2"): 3}
    # Pairs matter: this one is better at each seed by less than the seeds differ.
    assert ranking_of((0.50, 0.90, 0.70), (0.51, 0.911, 0.71)).best == [Line("arm 1")]
    # Two of ten that differ so much by chance in 3 % of cases are no result: 45 pairs are compared.
    pair = (0.50, 0.60, 0.70), (0.52, 0.63, 0.715)
    assert ranking_of(*pair).best == [Line("arm 1")]
    assert len(ranking_of(*pair, *[(0.1 + n / 100, 0.3, 0.2) for n in range(8)]).best) > 1


def test_arms_that_were_not_compared_with_each_other_are_not_called_equal():
    # Both are within reach of the best, and one is better than the other at every seed, by nearly the same.
    ranking = ranking_of((0.80, 0.90, 0.85), (0.78, 0.91, 0.84), (0.77, 0.8999, 0.8301))
    assert ranking.best == [Line("arm 0"), Line("arm 1"), Line("arm 2")]
    assert ranking.better(Line("arm 1"), Line("arm 2"))
    told = "arm 0 has the highest accuracy: 0.850 [0.800, 0.900]; not distinguishable from it: arm 1 (0.843) and"
    assert told in ranking.sentence
    assert " tie" not in ranking.sentence
    assert ranking.ranks[Line("arm 2")] == 2


def test_many_arms_that_are_not_distinguishable_are_counted_and_named():
    crossing = [(0.5 + n / 100, 0.6 - n / 90, 0.55) for n in range(6)]
    names = "(arm 1, arm 2, arm 3, arm 4 and arm 5), 0.550 to 0.548."
    assert f"not distinguishable from it: all 5 others {names}" in ranking_of(*crossing).sentence
    told = ranking_of(*crossing, (0.1, 0.21, 0.15)).sentence
    assert f"arm 0 has the highest accuracy: 0.550 [0.500, 0.600]; not distinguishable from it: 5 arms {names}" in told
    assert told.endswith("Worse: arm 6, 0.153.")


def test_what_was_measured_once_is_not_compared_with_what_was_measured_thrice():
    ranking = ranking_of((0.5, 0.6), (0.9, None), (math.nan, 0.4))
    assert list(ranking.ranks) == [Line("arm 0")]
    assert "arm 0 has an accuracy of 0.550" in ranking.sentence
    assert "Not a number: arm 2. Measured with one seed, so not compared: arm 1." in ranking.sentence


def test_how_many_of_the_medians_a_range_holds():
    for seeds, said in (
        (2, "50 % of cases: it is no 95 %"),
        (5, "93.8 % of cases: it is no 95 %"),
        (6, "96.9 % of cases."),
    ):
        assert said in of_range(seeds)


def test_verdicts_are_counted_and_differ_by_shape():
    alike = "1 of 3 gates holds, 1 fails, 1 is met by seeds that are all alike."
    assert verdict(made(LENGTHS, LOSSES)) == alike
    assert verdict(made(ONE)) == "The study has no gates."
    page = report([made(LENGTHS, LOSSES, waiting=[Key("language", "alibi", seed) for seed in range(3)])])
    assert "1 of 3 gates holds, 1 fails, 1 cannot be judged." in text(page)
    section = page.partition("Do the gates hold?")[2].partition("</section>")[0]
    shapes = re.findall(r'lab-verdict (is-\w+)"><svg[^>]*><path d="([^"]+)"></path></svg>([\w ]+)<', section)
    words = [(kind, word) for kind, _, word in shapes]
    assert words == [("is-sound", "holds"), ("is-note", "not measured"), ("is-error", "fails")]
    assert len({shape for _, shape, _ in shapes}) == 3


def path_of(chart: str, name: str) -> list[float]:
    """Where the points of a line are across."""
    path = re.search(rf'<title>{name}</title>.*?class="line" d="([^"]+)"', chart)[1]
    return [float(point.split(",")[0]) for point in re.split("[ML]", path)[1:]]


def test_a_drop_has_a_mark_and_both_heights_at_its_step():
    page = report([made(DROP, DROPS)])
    assert text(page).count("drop 300") == 6  # three charts, each for a wide page and for a phone
    across = path_of(page.partition('aria-label="held-out loss (nats per token)"')[2].partition("</svg>")[0], "dropped")
    assert len(across) == len(set(across)) + 1


def test_a_drop_that_changes_nothing_is_not_called_a_rise(monkeypatch):
    results = made(DROP)
    real = results.value
    for spike, back, end in (
        (
            Estimate(0.001, -0.2, 0.2, {0: 0.001}), 541.0,
            "dropped: removing the position encoding at step 300 does not clearly raise the held-out loss: it changes "
            "by 0.001 [-0.200, 0.200] nats per token.",
        ),
        (estimated({0: 1.0}), -0.5, "-0.500 of that rise; the loss is higher than after the drop."),
        (estimated({0: 1.0}), 1.2, "1.200 of that rise."),
    ):  # fmt: skip
        changed = {"spike": spike, "won_back": estimated({0: back})}

        def value(task, arm, measure, changed=changed, **where):
            dropped = arm == "dropped" and measure in changed
            return changed[measure] if dropped else real(task, arm, measure, **where)

        monkeypatch.setattr(results, "value", value)
        assert answers(results, "copy")[0].endswith(end)


def test_the_by_position_chart_marks_the_trained_length():
    page = report([made(LENGTHS, LOSSES)])
    chart = page.partition('aria-label="loss (nats per token) by position"')[2].partition("</svg>")[0]
    assert ">trained 64</text>" in chart
    edge = float(re.search(r'class="edge" x1="([\d.]+)"', chart)[1])
    # Buckets of 32 positions: two before the trained length, and the others past it.
    assert [x < edge for x in path_of(chart, "rotary")] == [True] * 2 + [False] * 6


def test_a_link_leads_from_what_is_missing_to_its_list():
    parts = Parts(report([made(LENGTHS, LOSSES, failed=FAILED, waiting=WAITING)]))
    assert [each["href"] for each in parts.of("a")] == ["#missing-1"]
    assert any(each.get("id") == "missing-1" for _, each in parts.elements)


def test_numbers_that_are_not_finite_leave_valid_json():
    page = report([made(LENGTHS, LOSSES, nan=("rotary",))])
    assert "NaN" not in Parts(page).scripts[RESULTS]
    assert "nan" not in re.sub(r"<script.*?</script>", "", page.replace("nan at", ""))


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
    # All arms are in every table, the best first.
    table = [line for line in lines(page) if line.startswith("arm ") and "tie" not in line and line[4].isdigit()]
    assert len({line.split()[1] for line in table}) == 18


def test_what_others_are_compared_with_stands_out():
    changes = "".join(f'[arms.rotary.at_test."c{number}"]\nlogit_scale = 0.{number + 1}\n' for number in range(9))
    results = made(DROP + changes)
    assert len(looks(results)) == LOOKS
    assert {Line("rotary"), Line("dropped")} < set(looks(results))
    assert "lab-rows" in report([results])
    # A reference without a code.
    one = MANY.replace('[arms."arm 0"]\ncode = "none"', '[arms."arm 0"]\ncode = "none"\nlengths = [64]')
    others = one.replace('"none"', '{ type = "Rotary" }').replace('{ type = "Rotary" }', '"none"', 1)
    assert looks(made(others, {"arm 0": (9.0, 0.0)}))[Line("arm 0")] == 0
    # Dropped arms, and what they are compared with.
    others = "".join(f'[arms."other {number}"]\ncode = "none"\n' for number in range(12))
    drops = "".join(
        f'[arms.d{number}]\ncode = {{ type = "Rotary" }}\ndrop = {{ at = "75 %" }}\n' for number in range(4)
    )
    chosen = looks(made(DROP + others + drops))
    assert set(chosen) == {Line(each) for each in ("rotary", "dropped", "d0", "d1", "d2", "d3")}
    assert len(set(chosen.values())) == 6


def test_the_rise_of_one_checkpoint_is_one_number(monkeypatch, snapshot):
    results = made(CHECKPOINT, STARTED)
    real = results.by_seed

    def by_seed(task, arm, measure, *where, **more):
        rises = {"dropped": 0.5, "normed": 0.25}
        at_drop = {"spike": rises, "won_back": dict.fromkeys(rises, 3.0)}.get(measure, {})
        return dict.fromkeys(range(3), at_drop[arm]) if arm in at_drop else real(task, arm, measure, *where, **more)

    monkeypatch.setattr(results, "by_seed", by_seed)
    assert answers(results, "language")[0] == snapshot(name="answer")
    page = lines(report([results]))
    assert "0.500 (the same for every seed)dropped on language" in page[page.index("Do the gates hold?") + 3]
    said = "dropped: removing the position encoding at step 0 raises the held-out loss by 0.500 (the same for"
    assert any(said in line for line in page)
    (row,) = (line for line in page if "the same for every seed" in line and line.startswith("dropped 0 "))
    assert row == snapshot(name="row")
    assert not any("3.000" in line for line in page)


def test_a_study_of_drops_answers_that_first(snapshot):
    assert answers(made(CHECKPOINT, STARTED), "language")[1:] == snapshot(name="checkpoint")
    assert answers(made(DROP, DROPS), "copy") == snapshot(name="drop")
    both = CHECKPOINT.replace("curve = 50", 'curve = 50, protocols = ["whole", "sliding"]')
    assert "At 64 tokens (the trained length) under `whole`, against" in answers(made(both), "language")[1]


def test_a_drop_is_compared_with_the_arm_that_differs_in_nothing_else():
    """Not with the first of the same code: here one with drawn positions and a window stands before it."""
    wrong = '[arms.wrong]\ncode = { type = "Rotary" }\npositions = { draw = "randomised", largest = 512 }\nwindow = 2\n'
    text = DROP.replace("[arms.rotary]", f"{wrong}[arms.rotary]")
    losses = {"wrong": (1.0, 0.5), "rotary": (1.0, 0.2), "dropped": (1.5, 0.1)}
    (kept, *_) = references_of(made(text, losses), "copy", ["dropped"], scaled=False)
    assert kept == ("the same model with its encoding kept (rotary)", {"dropped": Line("rotary")})
    longer = DROP.replace("[arms.dropped]\n", '[arms.dropped]\ntraining = { duration = "150 %" }\n')
    (kept, *_) = references_of(made(longer, losses), "copy", ["dropped"], scaled=False)
    assert kept[0].startswith("the same model with its encoding kept (rotary; dropped trained for ")


def test_a_wide_table_scrolls_in_a_box_with_an_edge():
    page = report([made(LENGTHS, LOSSES)])
    assert re.search(r"\.lab-figure \.scrolled \{[^}]*border: 1px solid", Parts(page).style)
    figures = re.findall(r'<figure class="(lab-figure[^"]*)">.*?<thead>(.*?)</thead>', page, re.DOTALL)
    assert {kind for kind, head in figures if head.count("<th") > 3} == {"lab-figure is-wide"}
    assert all('class="scrolled"' in each for each in re.findall(r"<figure class=.*?</figure>", page, re.DOTALL))


def test_several_studies_begin_with_all_verdicts():
    page = report([made(ONE), made(LENGTHS, LOSSES, failed=[Key("copy", "learned", 0)])])
    found = lines(page)
    assert found[1] == "2 studies of the lab"
    assert found[3:6] == [
        "one Does one arm run?",
        "The study has no gates.",
        "lengths Which codes still work past the trained length?",
    ]
    assert found[6].startswith("1 of 3 gates holds, 1 fails, 1 is met by seeds that are all alike. 20 of 21")
    parts = Parts(page)
    ids = [each["id"] for _, each in parts.elements if "id" in each]
    assert len(ids) == len(set(ids))
    assert [each["id"] for each in parts.of("article")] == ["study-1", "study-2"]
    assert [study["study"]["name"] for study in json.loads(parts.scripts[RESULTS])["studies"]] == ["one", "lengths"]
    headings = [int(name[1]) for name, _ in parts.elements if re.fullmatch("h[1-6]", name)]
    assert headings[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(headings))
    assert lines(report([]))[1] == "0 studies of the lab"


def test_the_json_in_it_is_that_of_the_results_and_nothing_comes_from_elsewhere():
    results = made(LENGTHS, LOSSES)
    page = report([results])
    held = Parts(page).scripts[RESULTS]
    assert json.loads(held) == {"schema": 1, "studies": [results.to_dict()]}
    assert "<" not in held
    check_nothing_comes_from_elsewhere(page)


def test_hostile_names_stay_text():
    parts = Parts(report([hostile()]))
    assert len(parts.of("script")) == 2
    assert parts.of("img") == []
    assert "<img src=x onerror=alert(2)>" in parts.text
    assert "\u202e" not in parts.text
    assert "\\u202e" in parts.text
    assert json.loads(parts.scripts[RESULTS])["studies"][0]["study"]["question"] == HOSTILE


def test_long_names_are_cut_in_charts_and_headings_and_stand_alone_in_lists(capsys):
    long = "rotary-" + "x" * 3000
    page = report([made(ONE.replace('name = "one"', f'name = "{long}"').replace("arms.rotary", f'arms."{long}"'))])
    charted = re.findall(r"<text[^>]*>([^<]*)</text>", page)
    assert max(map(len, charted)) <= 60
    assert len(re.search("<title>(.*?)</title>", page)[1]) <= len("Lab: ") + 80
    assert max(len(line) for line in lines(page) if line.startswith("rotary-")) < 500
    print_stored([(made(ONE).stored._replace(name=name), made(ONE).trials) for name in ("short", "x" * 40)])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("  short  ")
    assert printed[1] == "  " + "x" * 40
    assert printed[2].startswith(" " * 9)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_looks_can_be_told_apart_in_grey_and_read_on_paper_in_both_themes():
    """In grey, two lines differ by their marker, or by being filled."""
    assert len({(charts.marker(look, [(0, 0)])) for look in range(LOOKS)}) == LOOKS
    style = Parts(report([made(ONE)])).style
    dashes = re.findall(r"\.look-(\d) \{ --look: var\(--look-\d\);(?: --dash: ([\d. ]+);)? \}", style)
    assert [int(look) for look, _ in dashes] == list(range(LOOKS))
    assert len({(dash, int(look) >= 4) for look, dash in dashes}) == LOOKS
    paper = re.search(r"--paper: light-dark\((#\w+), (#\w+)\)", style).groups()
    found = re.findall(r"--look-\d: light-dark\((#\w+), (#\w+)\)", style)
    assert len(found) == LOOKS
    for pair in found:
        for colour, under in zip(pair, paper, strict=True):
            light, dark = sorted((luminance(colour), luminance(under)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5
