"""What is said of the numbers of a study: intervals, pairs, drops, thresholds and the verdicts of gates."""

import itertools
import json
import math
from collections.abc import Mapping

import numpy as np
import pytest

from clockhands.lab import study as studies
from clockhands.lab.results import GateResult, Results, chance_above, holm
from clockhands.lab.store import Key, StoredRow, StoredStudy, Trial
from clockhands.lab.tuning import best, tuning_study
from clockhands.measures.claims import coverage, estimated

STUDY = """\
question = "Which is better?"
seeds = [0, 1, 2]
training = {{ length = 8, duration = "40 steps" }}
evaluation = {{ lengths = [8, 32], curve = 10, threshold = 0.9 }}
tasks.copy = {{ kind = "copy" }}
arms.one = {{ code = "none" }}
arms.two = {{ code = {{ type = "Rotary" }}, drop = {{ at = "50 %" }} }}
{more}
"""


def results(rows: list[StoredRow], more: str = "", failed: tuple[Key, ...] = ()) -> Results:
    study = studies.parse(STUDY.format(more=more))
    keys = study.trial_keys()
    facts = {"parameters": 100, "code_parameters": 0, "tokens_per_second": 10.0}
    trials = [
        Trial(
            *key, *(("failed", "It is nan.", None, {}, None) if key in failed else ("finished", "", 2.0, facts, "now"))
        )
        for key in keys
    ]
    stored = StoredStudy(study.hash, study.name, study.text, "now", "lab run", "0.1.0", "abc", {}, {})
    return Results(study, stored, trials, rows)


def rows(arm: str, values: Mapping[int, float], kind: str = "evaluation", measure: str = "loss", **more):
    more = {"step": 40, "length": 8, "protocol": "whole"} | more
    more |= {"variant": "", "place": None} | more
    return [StoredRow("", "copy", arm, seed, kind=kind, measure=measure, value=value, **more)
            for seed, value in values.items()]  # fmt: skip


# Intervals


def test_an_interval_is_the_range_of_the_seeds_and_says_what_it_covers(cases):
    """The coverage is counted, over all ways in which models lie above and below their median."""
    for seeds, left_out in ((2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (8, 0), (9, 1), (12, 2)):
        with cases(seeds):
            values = np.random.default_rng(seeds).normal(size=seeds)
            found = estimated(dict(enumerate(values)))
            assert (found.low, found.high) == (np.sort(values)[left_out], np.sort(values)[-1 - left_out])
            above = [sum(way) for way in itertools.product((0, 1), repeat=seeds)]
            share = np.mean([left_out < each < seeds - left_out for each in above])
            assert found.to_dict()["coverage"] == coverage(seeds) == share
            assert (share < 0.95) == (seeds < 6)
    assert coverage(3) == 0.75


def test_what_may_be_chance_is_students_t_corrected_for_the_number_of_tests(cases):
    from scipy.stats import ttest_1samp

    rng = np.random.default_rng(4)
    for seeds in (2, 3, 7):
        values = rng.normal(0.3, 1, size=seeds)
        with cases(seeds):
            assert chance_above(values, 0.1) == pytest.approx(ttest_1samp(values, 0.1, alternative="greater").pvalue)
    chances = [0.03, None, 0.01, 0.2, 0.04]
    assert holm(chances) == [pytest.approx(0.09), None, pytest.approx(0.04), pytest.approx(0.2), pytest.approx(0.09)]
    gates = "".join(f"{GATE}at_least = {bound}" for bound in (0.9, 1.4, 1.9))  # 1, 2, 3: t = 1.9, 1.04, 0.17
    found = results(rows("one", THREE), gates).gates()
    alone = [ttest_1samp(list(THREE.values()), bound, alternative="greater").pvalue for bound in (0.9, 1.4, 1.9)]
    assert [each.chance for each in found] == pytest.approx([3 * alone[0], 2 * alone[1], alone[2]])
    assert [(each.holds, each.known) for each in found] == [(True, None)] * 3
    (sure,) = results(rows("one", {0: 1.0, 1: 1.1, 2: 1.2}), GATE + "at_least = 0").gates()
    assert (sure.known, judged("at_least = 3", rows("one", THREE)).known) == (True, False)
    for values in ({0: 1.0, 1: 1.0, 2: 1.0}, {0: 1.0, 1: 2.0, 2: math.inf}):  # of these the spread is not known
        assert judged("at_least = 0", rows("one", values)).chance is None


def test_one_seed_has_no_interval_and_equal_ones_have_none_to_speak_of():
    assert estimated({3: 2.0}).to_dict() == {
        "mean": 2.0,
        "low": None,
        "high": None,
        "coverage": None,
        "seeds": {"3": 2.0},
    }
    equal = {"mean": 2.0, "low": 2.0, "high": 2.0, "coverage": 0.5, "seeds": {"0": 2.0, "1": 2.0}}
    assert estimated({0: 2.0, 1: 2.0}).to_dict() == equal
    for special in (math.nan, math.inf):
        found = estimated({0: 1.0, 1: special})
        assert (found.low, found.high) == (None, None)
        assert found.to_dict()["mean"] is None
        assert found.to_dict()["seeds"] == {"0": 1.0, "1": None}


def test_an_interval_that_holds_zero_is_a_tie():
    for values, verdict in {
        (1, 2, 3): "above", (-3, -2, -1): "below", (-1, 2, 3): "tie", (0, 0, 0): "tie", (5,): "tie",
    }.items():  # fmt: skip
        assert estimated(dict(enumerate(values))).verdict == verdict, values


def test_differences_are_paired_by_seed():
    """Seeds differ by 10 and the arms by 0.1 in every one: unpaired, that would be a tie."""
    one = rows("one", {0: 10.1, 1: 20.1, 2: 30.1, 7: 99.0})
    two = rows("two", {2: 30.0, 1: 20.0, 0: 10.0, 8: 0.0})
    found = results(one + two).difference("copy", "one", "two", "loss")
    assert found.seeds == {seed: pytest.approx(0.1) for seed in range(3)}
    assert found.verdict == "above"
    alone, other = (results(one + two).value("copy", arm, "loss") for arm in ("one", "two"))
    assert alone.low < 20 < other.high
    assert results(one).difference("copy", "one", "two", "loss") is None


# What is derived


def test_a_loss_ratio_is_of_the_same_seed_and_change():
    measured = results([
        *rows("one", {0: 2.0, 1: 4.0}), *rows("one", {0: 3.0, 1: 5.0, 2: 6.0}, length=32),
        *rows("one", {0: 8.0}, variant="x"), *rows("one", {0: 4.0}, variant="x", length=32),
    ])  # fmt: skip
    assert measured.by_seed("copy", "one", "loss_ratio", 32) == {0: 1.5, 1: 1.25}
    assert measured.by_seed("copy", "one", "loss_ratio") == {0: 1.0, 1: 1.0}
    assert measured.by_seed("copy", "one", "loss_ratio", 32, variant="x") == {0: 0.5}
    assert measured.by_seed("copy", "one", "loss", 32) == {0: 3.0, 1: 5.0, 2: 6.0}


def drop(before: float, after: float, curve: Mapping[int, float]) -> list[StoredRow]:
    return [
        *rows("two", {0: before}, "curve", step=20, variant="before drop"),
        *rows("two", {0: after}, "curve", step=20, variant="dropped"),
        *(row for step, value in curve.items() for row in rows("two", {0: value}, "curve", step=step)),
    ]


def test_a_drop_has_a_spike_and_what_is_won_back(cases):
    for before, after, curve, spike, back in (
        (1.0, 5.0, {10: 2.0, 20: 1.0, 30: 3.0, 40: 2.0}, 4.0, 0.75),
        (1.0, 5.0, {40: 1.0}, 4.0, 1.0),
        (1.0, 5.0, {40: 6.0}, 4.0, -0.25),
        (1.0, 5.0, {10: 2.0, 20: 1.0}, 4.0, None),  # nothing was trained after the drop
        (2.0, 1.0, {40: 1.0}, -1.0, math.nan),
    ):
        with cases(before, after, curve):
            found = results(drop(before, after, curve))
            assert found.by_seed("copy", "two", "spike") == {0: spike}
            expected = {} if back is None else {0: pytest.approx(back, nan_ok=True)}
            assert found.by_seed("copy", "two", "won_back") == expected
            assert found.by_seed("copy", "one", "spike") == {}
            steps = {step: each.mean for step, each in found.curve("copy", "two", "loss", "curve").items()}
            assert steps == {**curve, 20: after}


def test_steps_to_a_threshold_are_the_first_or_infinite():
    found = results(
        [row for seed, curve in enumerate(({10: 0.1, 20: 0.9, 30: 0.5}, {10: 0.95}, {10: 0.2, 40: 0.89}))
         for step, value in curve.items() for row in rows("one", {seed: value}, "curve", "accuracy", step=step)]
    )  # fmt: skip
    assert found.by_seed("copy", "one", "steps_to_threshold") == {0: 20.0, 1: 10.0, 2: math.inf}
    assert found.value("copy", "one", "steps_to_threshold").mean == math.inf


def test_gradient_norms_are_those_of_the_first_and_the_last_record():
    found = results([row for step, value in ((1, 9.0), (20, 2.0), (40, 1.0))
                     for row in rows("one", {0: value}, "training", "gradient_norm", step=step)])  # fmt: skip
    assert found.by_seed("copy", "one", "gradient_norm_start") == {0: 9.0}
    assert found.by_seed("copy", "one", "gradient_norm") == {0: 1.0}


def test_places_are_averaged_over_the_seeds_that_have_them():
    measured = [
        *(row for place in range(3) for row in rows("one", {0: place, 1: place + 2}, place=place)),
        *rows("one", {0: 7.0}, place=5),
    ]
    found = results(measured).places("copy", "one", "loss", 8)
    assert {place: each.mean for place, each in found.items()} == {0: 1.0, 1: 2.0, 2: 3.0, 5: 7.0}


# Gates

GATE = '\n[[gates]]\nsays = "It holds."\ntask = "copy"\narm = "one"\n'


def judged(gate: str, measured: list[StoredRow]) -> GateResult:
    (found,) = results(measured, GATE + gate).gates()
    return found


THREE = {0: 1.0, 1: 2.0, 2: 3.0}


def test_each_bound_is_held_to_the_mean_or_to_the_interval(cases):
    for holding, failing in (
        ("at_least = 2.0", "at_least = 2.01"),
        ("at_most = 2.0", "at_most = 1.99"),
        ("interval_above = 0.99", "interval_above = 1.0"),
        ("interval_below = 3.01", "interval_below = 3.0"),
        ("at_least = 1.5\nat_most = 2.5", "at_least = 1.5\nat_most = 1.9"),
        ("at_least = 0", "at_most = 0"),
    ):
        with cases(holding):
            assert [judged(bound, rows("one", THREE)).holds for bound in (holding, failing)] == [True, False]
            assert judged(holding, rows("one", THREE)).value.mean == 2.0
    more = rows("two", {0: 1.5, 1: 2.5, 2: 3.5})  # a gate compares two arms or two changes
    assert judged('minus = "two"\ninterval_below = 0', rows("one", THREE) + more).holds is True
    assert judged('minus = "two"\ninterval_above = 0', rows("one", THREE) + more).holds is False
    never = rows("one", dict.fromkeys(range(3), 0.1), "curve", "accuracy", step=40)  # an infinite number is judged
    assert judged('measure = "steps_to_threshold"\nat_most = 40', never).holds is False
    assert judged('measure = "steps_to_threshold"\nat_least = 40', never).holds is True


def test_a_gate_is_not_judged_while_the_number_of_a_seed_is_missing():
    """A seed that failed is no reason to leave it out of the mean."""
    for values in ({}, {0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0, 2: math.nan}, {0: 1.0, 1: 1.0, 5: 1.0}):
        assert judged("at_least = 0", rows("one", values)).holds is None, values
    assert judged("at_least = 0", rows("one", THREE)).holds is True
    more = rows("two", {0: 0.0, 1: 0.0})
    assert judged('minus = "two"\ninterval_above = 0', rows("one", THREE) + more).holds is None


# As JSON


def test_results_are_json_whatever_was_measured():
    failed = Key("copy", "two", 2)
    measured = rows("one", {0: 1.0, 1: math.inf, 2: math.nan}) + rows("one", {0: 1.0}, measure="accuracy")
    measured += drop(1.0, 5.0, {40: 2.0})
    found = results(measured, GATE + "at_least = 1", failed=(failed,))
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["trials"] == {"finished": 5, "failed": 1, "waiting": 0}
    assert document["failures"] == [{"task": "copy", "arm": "two", "seed": 2, "message": "It is nan."}]
    assert document["gates"][0]["holds"] is None
    assert document["gates"][0]["bounds"] == {"at_least": 1}
    assert document["tasks"]["copy"]["drops"]["two"]["won_back"]["mean"] == 0.75
    assert document["arms"]["two"]["code"].startswith("RoPE, half-split, 16 of 16 dimensions")
    assert document["arms"]["one"]["tasks"]["copy"] == {
        "parameters": 100, "code_parameters": 0, "tokens_per_second": 10.0,
    }  # fmt: skip
    assert found.seconds == 10.0
    (cell,) = (each for each in document["tasks"]["copy"]["cells"] if each["measure"] == "accuracy")
    assert (cell["mean"], cell["length"], cell["protocol"]) == (1.0, 8, "whole")


# Tuning


def test_the_best_rate_has_the_lowest_loss_of_all_its_seeds():
    study = studies.parse(STUDY.format(more="[tuning]\nseeds = [7, 8]\n"))
    tuned = tuning_study(study)
    assert {key.seed for key in tuned.trial_keys()} == {7, 8}
    losses = {"0.001": (3.0, 3.0), "0.003": (1.0, 2.0), "0.01": (0.5, math.nan)}
    measured = [
        StoredRow("", "copy", f"one at {rate}", seed, "evaluation", "", 40, "whole", 8, None, "loss", value)
        for rate, values in losses.items()
        for seed, value in zip((7, 8), values, strict=True)
    ]
    stored = StoredStudy(tuned.hash, "", tuned.text, "", "", "", "", {}, {})
    one, two = best(study, Results(tuned, stored, [], measured))
    assert (one.arm, one.best, one.current, one.at_end) == ("one", 0.003, 0.003, False)
    assert one.losses == {0.001: 3.0, 0.003: 1.5, 0.01: pytest.approx(math.nan, nan_ok=True)}
    assert (two.arm, two.best, two.at_end) == ("two", None, False)
    last = [row._replace(value=0.1) if row.arm.endswith("0.01") else row for row in measured]
    assert best(study, Results(tuned, stored, [], last))[0][3:] == (0.01, 0.003, True)
