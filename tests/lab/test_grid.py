"""A conclusion over a grid: the cells of a study, gates judged in each of them, and the intervals of eight seeds."""

import csv
import dataclasses
import json
import math
import re
import sys
from collections.abc import Mapping

import numpy as np
import pytest

from clockhands.errors import InvalidValue
from clockhands.lab import study as studies
from clockhands.lab.answers import Ranking
from clockhands.lab.result_words import Line, order_by_cell, verdict_of
from clockhands.lab.results import Results, interval
from clockhands.lab.shipped_results import shipped_results
from clockhands.lab.store import Key, Store, StoredRow, StoredStudy, Trial
from clockhands.lab.tuning import best, extension, tuning_study
from clockhands.measures.claims.studies import AS_TRAINED, measured
from clockhands.show.lab_report import report
from clockhands.show.lab_tables import FORMS, table_of
from measures.claims.trained import STUDIES

STUDY = """\
question = "Does it hold elsewhere?"
seeds = [0, 1, 2]
model = { width = 16, heads = 2 }
training = { length = 8, sequences = 4, duration = "6 steps" }
evaluation = { lengths = [8, 16, 32], threshold = 0.5 }
tuning = { learning_rates = [0.01, 0.03], seeds = [7] }
tasks.copy = { kind = "copy" }
tasks.order = { kind = "order" }
arms.none = { code = "none", learning_rate = { copy = 0.1, "copy @ size large" = 0.2 } }
arms.rotary = { code = { type = "Rotary" }, lengths = [8, 32] }

[grid]
tasks = ["copy"]
[grid.axes.size.large]
model = { width = 32 }
training = { learning_rate = 0.001 }
[grid.axes.size.huge]
model = { layers = 4 }
full = true
[grid.axes.length.16]
training = { length = 16, sequences = 2 }

[[gates]]
says = "Rotary is better at 4 times the length."
task = "copy"
arm = "rotary"
minus = "none"
measure = "accuracy"
length = 32
at_least = 0
grid = PART
"""
LARGE, LONGER = "copy @ size large", "copy @ length 16"
GOOD, BAD = (0.5, 0.51, 0.52), (-0.5, -0.51, -0.52)


def study(part: str = '["size", "length 16"]') -> studies.Study:
    return studies.parse(STUDY.replace("PART", part))


def results(values: Mapping[str, tuple[float, ...]], part: str = '["size", "length 16"]', **facts: object) -> Results:
    """Results in which rotary is better than no code by these numbers, in each of some tasks and cells."""
    made = study(part)
    rows = [
        StoredRow("", task, arm, seed, "evaluation", "", 6, "whole", length, None, "accuracy", value)
        for task, lead in values.items()
        for seed, own in enumerate(lead)
        for length in made.lengths_of(Key(task, "rotary", 0))
        for arm, value in (("none", 0.1 * seed), ("rotary", 0.1 * seed + own))
    ]
    finished = {(row.task, row.arm, row.seed) for row in rows}
    facts = {"parameters": 1, "code_parameters": 0, "tokens_per_second": 1.0, **facts}
    trials = [
        Trial(*key, "finished" if tuple(key) in finished else "waiting", "", 1.0, facts, "now")
        for key in made.trial_keys()
    ]
    stored = StoredStudy(made.hash, made.name, made.text, "now", "lab run", "0.1.0", "abc", {}, {})
    return Results(made, stored, trials, rows)


def test_a_cell_is_the_task_with_other_values_at_the_same_multiples_of_the_trained_length():
    made = study()
    assert [name for name, plan in made.tasks.items() if not plan.full] == ["copy", "order", LARGE, LONGER]
    assert set(made.own_tasks) == {"copy", "order"}
    large, longer = made.tasks[LARGE], made.tasks[LONGER]
    assert (large.model.width, large.model.layers, large.training.learning_rate) == (32, 2, 0.001)
    assert (longer.training.length, longer.training.sequences, longer.evaluation.lengths) == (16, 2, (16, 32, 64))
    assert made.lengths_of(Key(LONGER, "rotary", 0)) == (16, 64)
    both = made.tasks["copy @ size huge + length 16"]
    assert (both.model.layers, both.model.width, both.training.length, both.full) == (4, 16, 16, True)
    rates = [made.training_of(Key(task, "none", 0)).learning_rate for task in ("copy", LARGE, LONGER)]
    assert rates == [0.1, 0.2, 0.1]  # of the arm for the task, or for one cell of it


def test_the_trials_of_a_task_do_not_depend_on_its_grid_and_the_full_form_only_adds_some():
    made = study()
    alone = studies.parse(STUDY.partition("[grid]")[0].replace(', "copy @ size large" = 0.2', ""))
    keys = made.trial_keys()
    assert keys[: len(alone.trial_keys())] == alone.trial_keys()
    assert [key.task for key in keys[12:]] == [LARGE] * 6 + [LONGER] * 6
    full = dataclasses.replace(made, full=True).trial_keys()
    assert full[:12] == keys[:12]
    assert {*keys} < {*full}
    assert len(full) == 12 + 5 * 6
    assert {key.task: made.model_of(key) for key in keys[:12]} == {
        key.task: alone.model_of(key) for key in alone.trial_keys()
    }


def test_a_gate_holds_where_it_holds_in_every_cell_of_which_it_is_said(cases):
    good, bad, near = GOOD, BAD, (0.01, -0.1, 0.2)
    for name, values, part, holds, verdict in (
        ("all", {"copy": good, LARGE: good, LONGER: good}, '["size large", "length"]', True, "holds"),
        ("one cell fails", {"copy": good, LARGE: bad, LONGER: good}, '["size", "length"]', False, "fails"),
        ("not said of the cell that fails", {"copy": good, LARGE: bad, LONGER: good}, '["length"]', True, "holds"),
        ("by chance", {"copy": good, LARGE: near, LONGER: good}, '["size large"]', True, "may be chance"),
        ("not run", {"copy": good, LONGER: good}, '["size large", "length"]', None, "2 of 3 cells"),
        ("some seeds", {"copy": good, LONGER: good[:2]}, '["length"]', None, "1 of 2 cells"),
        ("its own task alone", {"copy": good}, "[]", True, "holds"),
    ):
        with cases(name):
            found = results(values, part)
            (gate,) = found.gates()
            assert (gate.holds, verdict_of(found, gate)) == (holds, verdict)


def test_the_report_says_where_the_order_does_not_hold_and_where_it_was_not_run():
    found = results({"copy": GOOD, LARGE: BAD}, '["length"]', device="cuda", commit="1a")
    (gate,) = found.gates()
    cells = "size huge, length 16, size large + length 16, size huge + length 16"
    assert order_by_cell(found, gate) == f"yes: own size; no: size large (not said of it); not run: {cells}"
    stated = json.loads(json.dumps(found.to_dict()))
    cells = {each["task"]: each for each in stated["gates"][0]["cells"]}
    assert (cells["copy"]["holds"], cells[LARGE]["holds"], cells[LONGER]["holds"]) == (True, False, None)
    assert (cells[LARGE]["at"], cells[LARGE]["said"], cells[LONGER]["length"]) == ({"size": "large"}, False, 64)
    assert cells[LARGE]["value"]["mean"] == pytest.approx(-0.51)
    assert stated["tasks"][LARGE]["origins"] == [
        {"device": "cuda", "torch": "", "clockhands": "", "commit": "1a", "trials": 6}
    ]


def test_a_gate_is_said_of_the_full_form_where_it_was_begun():
    found = results({"copy": GOOD, LARGE: GOOD, LONGER: GOOD})
    assert found.gates()[0].known
    begun = [*found.trials, Trial("copy @ size huge", "rotary", 0, "waiting", "", None, {}, None)]
    (gate,) = Results(found.study, found.stored, begun, ()).gates()
    assert [cell for cell, own in gate.cells.items() if own.said] == ["copy", LARGE, "copy @ size huge", LONGER]
    assert gate.holds is None


def test_a_cell_may_be_trained_on_another_device_but_not_a_part_of_one(tmp_path):
    running = pytest.importorskip("clockhands.lab.running")
    made = study()
    full = dataclasses.replace(made, full=True)
    with Store.open(tmp_path / "lab.sqlite") as store:
        running.prepare(made, store, "", running.Options())
        for key in made.trial_keys():
            store.finish(made.hash, key, [], {"device": "cpu"})
        progress = running.prepare(full, store, "", running.Options(device="cuda"))
        assert set(progress.tokens) == {*full.trial_keys()} - {*made.trial_keys()}
        store.finish(made.hash, next(iter(progress.tokens)), [], {"device": "cuda"})
        assert (
            len(running.prepare(full, store, "", running.Options(device="cuda:1")).tokens) == len(progress.tokens) - 1
        )
        with pytest.raises(InvalidValue, match="was started with `--device cuda`, got `--device cpu`"):
            running.prepare(full, store, "", running.Options())


def test_the_page_has_a_row_for_each_gate_in_each_cell():
    page = report([results({"copy": GOOD, LARGE: BAD}, '["length"]', device="cuda", commit="1a")])
    section = re.sub(r"<[^>]+>", " ", page[page.index("Does the order hold?") :])
    cells = " ".join(section.split())
    assert "copy yes 0.510 [0.500, 0.520]" in cells
    assert "copy @ size large no -0.510 [-0.520, -0.500]" in cells
    assert "6 on cuda, commit 1a" in cells
    assert "copy @ length 16 not run not measured" in cells


def test_a_grid_or_a_part_of_one_that_does_not_exist_is_refused_with_the_nearest(cases):
    for name, text, says in (
        ("part", STUDY.replace("PART", '["sizes"]'), "the grid of copy has no 'sizes'."),
        ("value", STUDY.replace("PART", '["size giant"]'), "the grid of copy has no 'size giant'."),
        ("task", STUDY.replace("PART", "[]").replace('["copy"]', '["kopy"]'), "`grid.tasks` names the unknown task"),
        ("field", STUDY.replace("PART", "[]").replace("width = 32", "widht = 32"), "unknown field 'widht'"),
        ("sizes", STUDY.replace("PART", "[]").replace("width = 32", "width = 33"), "multiple of `heads`"),
    ):
        with cases(name), pytest.raises(InvalidValue) as refused:
            studies.parse(text)
        with cases(name):
            assert says in refused.value.message


# Intervals


def _spreads() -> list[np.ndarray]:
    """The numbers of the seeds of every loss that comes with the package and differs between them."""
    found = []
    for data in STUDIES.values():
        for task in data["tasks"].values():
            for arm in task["cells"].values():
                for row in arm[AS_TRAINED]["whole"].get("loss", {}).values():
                    numbers = np.array([each for each in row[3:] if isinstance(each, float)])
                    if len(numbers) > 2 and np.ptp(numbers) > 0:
                        found.append(numbers)
    return found


def test_95_percent_intervals_of_eight_seeds_cover_95_percent_at_the_spreads_of_the_shipped_studies():
    """Normal numbers with the stored variances, and the stored deviations themselves, which need not be normal."""
    spreads, rng = _spreads(), np.random.default_rng(0)
    assert len(spreads) > 100
    drawn = [rng.normal(each.mean(), each.std(ddof=1), 8) for each in spreads for _ in range(10)]
    means = [each.mean() for each in spreads for _ in range(10)]
    assert 0.93 < np.mean([_covers(own, mean) for own, mean in zip(drawn, means, strict=True)]) < 0.97
    # A deviation from the mean of n is smaller than one from the mean of all, by the root of (n - 1) / n.
    deviations = np.concatenate(
        [(each - each.mean()) / each.std(ddof=1) * math.sqrt(len(each) / (len(each) - 1)) for each in spreads]
    )
    pooled = [rng.choice(deviations, 8) for _ in range(4000)]
    assert 0.93 < np.mean([_covers(own, deviations.mean()) for own in pooled]) < 0.97


def _covers(numbers: np.ndarray, mean: float) -> bool:
    found = interval(numbers)
    assert found is not None
    return found[0] <= mean <= found[1]


def test_an_interval_is_students_t_and_needs_eight_seeds_that_differ():
    from scipy.stats import t

    numbers = np.random.default_rng(3).normal(size=9)
    half = t.ppf(0.975, 8) * numbers.std(ddof=1) / 3
    assert interval(numbers) == pytest.approx((numbers.mean() - half, numbers.mean() + half))
    for few in (numbers[:7], [0.5] * 8, [*numbers, math.inf]):
        assert interval(few) is None


# Arms that have not learnt, and rates at the end of their grid


def test_an_arm_below_its_learned_threshold_is_not_ranked():
    found = results({"copy": (0.6, 0.61, 0.62)})
    lines = [Line("none"), Line("rotary")]
    ranking = Ranking(found, "copy", 8, "whole", lines)
    assert list(ranking.values) == [Line("rotary")]
    assert "Accuracy below 0.5 at the trained length, so not ranked: none." in ranking.sentence


def test_a_grid_of_rates_that_ends_at_its_best_is_extended_until_it_does_not():
    made = studies.parse(STUDY.partition("[grid]")[0].replace(', "copy @ size large" = 0.2', ""))

    def tried(tuned: studies.Study) -> Results:
        rows = [
            StoredRow("", key.task, key.arm, key.seed, "evaluation", "", 6, "whole", 8, None, "loss",
                      abs(math.log(tuned.training_of(key).learning_rate / 0.2)))
            for key in tuned.trial_keys()
        ]  # fmt: skip
        stored = StoredStudy(tuned.hash, tuned.name, tuned.text, "now", "lab tune", "0.1.0", "abc", {}, {})
        return Results(tuned, stored, [], rows)

    first = [tried(tuning_study(made))]
    wider = extension(best(made, *first))
    assert wider == {task: {"none": [0.09], "rotary": [0.09]} for task in ("copy", "order")}
    second = [*first, tried(tuning_study(made, wider))]
    assert extension(best(made, *second))["copy"] == {"none": [0.27], "rotary": [0.27]}
    third = [*second, tried(tuning_study(made, extension(best(made, *second))))]
    assert [(each.best, each.at_end) for each in best(made, *third)] == [(0.27, True)] * 4
    fourth = [*third, tried(tuning_study(made, extension(best(made, *third))))]
    assert [(each.best, each.at_end) for each in best(made, *fourth)] == [(0.27, False)] * 4
    assert list(best(made, *fourth)[0].losses) == [0.01, 0.03, 0.09, 0.27, 0.81]
    assert extension(best(made, *fourth)) == {}


# Results that come with the package


def test_the_shipped_results_are_judged_as_they_are_stored(cases):
    for name in ("quick", "extrapolation", "ablation"):
        own = measured(name)
        found = shipped_results(name)
        with cases(name):
            assert [each.holds for each in found.gates()] == [each["holds"] for each in own.data["gates"]]
            chances = [
                (each.chance, kept["chance"]) for each, kept in zip(found.gates(), own.data["gates"], strict=True)
            ]
            assert all(one is other is None or one == pytest.approx(other, rel=0.06) for one, other in chances)
            assert (found.seconds, found.states["waiting"]) == (own.data["run"]["trial_seconds"], 0)
            for task, data in own.data["tasks"].items():
                for arm in data["cells"]:
                    for measure in ("loss", "gradient_norm"):
                        assert found.by_seed(task, arm, measure) == own.value(task, arm, measure).seeds


def test_every_number_is_a_row_of_the_frame_and_of_the_columns_without_pandas(monkeypatch):
    found = results({"copy": GOOD})
    columns = found.to_columns()
    place = columns["value"].index(pytest.approx(0.61))
    row = {name: each[place] for name, each in columns.items()}
    assert row["arm"] == "rotary"
    assert (row["task"], row["measure"], row["length"], row["seed"]) == ("copy", "accuracy", 8, 1)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert found.to_frame() == columns


def test_a_table_is_markdown_csv_or_latex_with_the_same_cells(tmp_path):
    found = results({"copy": GOOD})
    texts = {form: table_of(found, tmp_path / f"table{form}") for form in FORMS}
    read = list(csv.DictReader(texts[".csv"].splitlines()))
    first = next(each for each in read if each["arm"] == "rotary")
    assert (first["mean"], first["brackets"]) == ("0.61", "range")
    markdown = [line.strip("| ").split(" | ") for line in texts[".md"].splitlines()]
    assert len(markdown) == len(read) + 2
    assert "copy & rotary &  & whole & 8 &  & accuracy & 3 & 0.61 & 0.5 & 0.72 & range \\\\" in texts[".tex"]
    with pytest.raises(InvalidValue, match="no known form"):
        table_of(found, tmp_path / "table.doc")
