"""The stored results of studies: complete, consistent, of the shipped studies, and missed loudly."""

import copy
import hashlib
import math
from importlib import resources
from types import MappingProxyType

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from clockhands.errors import InvalidValue
from clockhands.measures.claims import CLAIMS, recompute
from clockhands.measures.claims import studies as module
from clockhands.measures.claims.sentences import evidence_in_words
from clockhands.measures.claims.studies import AS_TRAINED, MeasuredStudy, measured, stored
from measures.claims.trained import RESULTS, STUDIES

OF_TRAINED = [name for name, told in CLAIMS.items() if told.measured]


def rows(name):
    """Every stored estimate of a study: where it is, and its seeds."""
    for task, data in STUDIES[name]["tasks"].items():
        for arm, variants in data["cells"].items():
            for variant, protocols in variants.items():
                for protocol, measures in protocols.items():
                    for measure, lengths in measures.items():
                        for length, row in lengths.items():
                            yield (task, arm, variant, protocol, measure, length), row
        for arm, measures in data["training"].items():
            for measure, row in measures.items():
                yield (task, arm, measure), row


def test_a_study_says_how_it_was_run_and_is_the_shipped_one(cases):
    for name, study in STUDIES.items():
        with cases(name):
            text = resources.files("clockhands.lab").joinpath("studies", f"{name}.toml").read_bytes()
            run = study["run"]
            assert run["hash"] == hashlib.sha256(text).hexdigest(), f"run {name} again: its file was changed"
            assert run["command"].startswith(f"clockhands lab run {name}")
            assert "/" not in run["command"], "the folders of a machine are nobody's business"
            assert run["commit"]
            assert not run["commit"].endswith("+"), "it was run from a checkout with changed files"
            assert min(run["wall_seconds"], run["finished"], run["machine"]["threads"]) > 0
            assert {"python", "numpy", "torch", "scipy"} <= set(run["versions"])


def test_every_mean_and_interval_follow_from_the_seeds(cases):
    for name in STUDIES:
        found = list(rows(name))
        assert found
        for where, (mean, low, high, *seeds) in found:
            with cases(name, where):
                numbers = [float(each) for each in seeds if each is not None]
                if not all(map(math.isfinite, numbers)):
                    assert low is high is None
                    continue
                within = {"rel": 2e-3 if len(where) == 3 else 2e-5, "abs": 1e-6}  # 4 digits of what has no length
                assert mean == pytest.approx(math.fsum(numbers) / len(numbers), **within)
                if len(numbers) == 1:
                    assert low is high is None
                    continue
                assert (low, high) == pytest.approx((min(numbers), max(numbers)), **within)


def test_every_gate_and_claim_on_trained_models_says_its_grid_seeds_coverage_and_correction(cases, repository):
    """On the page of the study, and of the claim, in words that its data give: none is written by hand."""
    claims = [each for each in CLAIMS.values() if each.measured]
    pages = {path: " ".join(path.read_text("utf-8").split()) for path in repository.glob("docs/claims/*.md")}
    for name, study in STUDIES.items():
        says = evidence_in_words(measured(name))
        with cases(name):
            for task in study["tasks"].values():
                model = task["model"]
                size = f"of {model['start']}" if model["start"] else f"of width {model['width']}"
                assert f"{size} trained at {task['length']} tokens" in says
                assert f"{len(task['seeds'])} seed" in says
                assert ("95 % interval" if len(task["seeds"]) >= 8 else "range") in says
            found, _ = chances_of(study)
            tested = [each for each in found if each[1]] or list(found)
            assert f"corrected for {len(tested)} test" in says
            page = (repository / "docs" / "studies" / f"{name}.md").read_text("utf-8")
            assert says in " ".join(page.split())
    for each in claims:
        with cases(each.id):
            (page,) = [text for text in pages.values() if f"## {each.id} " in text]
            section = page.partition(f"## {each.id} ")[2].partition(" ## ")[0]
            assert all(evidence_in_words(measured(name)) in section for name in each.measured)
    for name, told in CLAIMS.items():
        taken = {number for number in told.numbers if number.startswith("measured_")}
        with cases(name, "measured"):
            assert bool(taken) <= bool(told.measured), "it says which studies these are of"


def test_a_loss_ratio_is_the_loss_over_that_at_the_training_length():
    data = copy.deepcopy(STUDIES["quick"])
    losses = {"64": [0, 0, 0, 1.0, 2.0, 4.0], "128": [0, 0, 0, 3.0, 3.0, 4.0]}
    data["tasks"]["copy"]["cells"]["rotary"] = {"as trained": {"whole": {"loss": losses}}}
    found = MeasuredStudy("quick", data).value("copy", "rotary", "loss_ratio", length=128)
    assert found.seeds == {0: 3.0, 1: 1.5, 2: 1.0}
    assert (found.mean, found.low, found.high) == (5.5 / 3, 1.0, 3.0)


def test_chances_of_gates_are_students_t_corrected_by_holm(cases):
    for name, study in STUDIES.items():
        with cases(name):
            found, corrected = chances_of(study)
            assert found == pytest.approx(corrected, rel=0.06)


def test_the_cells_of_a_grid_are_tests_of_the_study_each():
    """A gate over a grid has the largest chance of the cells of which it is said; the others are tests too."""
    numbers = {"copy": [1, 2, 3], "copy @ size large": [4, 5, 6.5], "copy @ size unsaid": [-1, 1, 3]}
    alone = {cell: ttest_1samp(each, 0, alternative="greater").pvalue for cell, each in numbers.items()}
    large, own, unsaid = alone["copy @ size large"] * 3, alone["copy"] * 2, alone["copy @ size unsaid"]
    assert large < own < unsaid
    cells = {
        cell: {"value": [0, 0, 0, *each], "chance": chance, "said": "unsaid" not in cell}
        for (cell, each), chance in zip(numbers.items(), (own, large, unsaid), strict=True)
    }
    gate = {"at_least": 0, "value": cells["copy"]["value"], "chance": own, "cells": cells}
    found, corrected = chances_of({"gates": [gate]})
    assert found == pytest.approx(corrected)
    assert len(found) == 4
    cells["copy @ size large"]["said"] = False
    cells["copy @ size unsaid"]["said"] = True
    assert chances_of({"gates": [gate]})[1][0, ""] == pytest.approx(unsaid)


def chances_of(study):
    """The stored chances of gates, and those in each cell of the grid; and both from the seeds, corrected by Holm."""
    gates = dict(enumerate(study["gates"]))
    cells = {(place, cell): own for place, gate in gates.items() for cell, own in gates_tested(gate).items()}
    alone = {each: chance for each, own in cells.items() if (chance := alone_of(gates[each[0]] | own)) is not None}
    order = sorted(alone, key=alone.__getitem__)
    corrected = {
        each: min(1, max((len(order) - rank) * alone[before] for rank, before in enumerate(order[: at + 1])))
        for at, each in enumerate(order)
    }
    for place, gate in gates.items():
        said = [(place, cell) for cell, own in gates_tested(gate).items() if own.get("said", True)]
        if all(each in corrected for each in said):
            corrected[place, ""] = max(corrected[each] for each in said)
    found = {each: own["chance"] for each, own in cells.items()}
    found |= {(place, ""): gate["chance"] for place, gate in gates.items()}
    return {each: chance for each, chance in found.items() if chance is not None}, corrected


def gates_tested(gate):
    """What a gate tests: itself, or it in each cell of its grid."""
    return gate.get("cells", {"": gate})


def alone_of(gate):
    """The chance of a gate by itself; None where the spread of its seeds is not known."""
    seeds = [float(each) for each in gate["value"][3:]] if gate["value"] and None not in gate["value"] else []
    if len(seeds) < 2 or not np.isfinite(seeds).all() or len(set(seeds)) == 1:
        return None
    sides = {"at_least": "greater", "interval_above": "greater", "at_most": "less", "interval_below": "less"}
    return max(ttest_1samp(seeds, gate[each], alternative=side).pvalue for each, side in sides.items() if each in gate)


def test_differences_are_taken_seed_by_seed():
    data = copy.deepcopy(STUDIES["quick"])
    lengths = {"whole": {"loss": {"64": [0, 0, 0, 1.0, 2.0, 5.0]}}}
    other = {"whole": {"loss": {"64": [0, 0, 0, 0.5, None, 2.0]}}}
    data["tasks"]["copy"]["cells"] = {"one": {AS_TRAINED: lengths}, "other": {AS_TRAINED: other}}
    found = MeasuredStudy("quick", data).difference("copy", "one", "other")
    assert (found.mean, found.low, found.high) == (1.75, 0.5, 3.0)
    assert found.seeds == {0: 0.5, 2: 3.0}


def test_what_was_not_measured_is_an_error(cases):
    quick = measured("quick")
    missing = "for the arm {} in the task copy"
    for call, says in (
        (lambda: measured("extrapolatoin"), "The package has no results of the study 'extrapolatoin'."),
        (lambda: quick.value("copie", "rotary"), "has no task 'copie'"),
        (lambda: quick.value("copy", "rotari"), "has no loss " + missing.format("rotari")),
        (lambda: quick.value("copy", "rotary", length=65), "has no loss " + missing.format("rotary")),
        (lambda: quick.value("copy", "rotary", "spike"), "has no spike " + missing.format("rotary")),
        (lambda: quick.places("language", "learned"), "no results by position, depth or distance for the arm learned"),
    ):
        with cases(says), pytest.raises(InvalidValue) as raised:
            call()
        assert says in raised.value.message
        assert raised.value.hint


def test_all_stored_studies_are_named_and_their_files_are_small(cases):
    assert stored() == list(STUDIES)
    for name in STUDIES:
        with cases(name):
            assert (RESULTS / f"{name}.json").stat().st_size < 200_000


def given(monkeypatch, data):
    """Stored results in place of the package's."""
    made = MappingProxyType({name: MeasuredStudy(name, each) for name, each in data.items()})
    monkeypatch.setattr(module, "_studies", lambda: made)


def test_a_claim_whose_study_is_missing_fails(monkeypatch, cases):
    for name in OF_TRAINED:
        given(monkeypatch, {study: data for study, data in STUDIES.items() if study not in CLAIMS[name].measured})
        with cases(name), pytest.raises(InvalidValue, match="The package has no results of the study"):
            recompute(CLAIMS[name])


def test_a_claim_says_which_of_its_numbers_were_measured():
    assert OF_TRAINED
    for name, told in CLAIMS.items():
        of_trained = [number for number in told.numbers if number.startswith("measured_")]
        assert bool(of_trained) == bool(told.measured), name


def test_other_results_move_a_claim(monkeypatch, cases):
    data = copy.deepcopy(STUDIES)
    for study in data.values():
        for task in study["tasks"].values():
            change(task)
    given(monkeypatch, data)
    for name in OF_TRAINED:
        with cases(name):
            moved = recompute(CLAIMS[name]).moved
            assert moved
            assert all(number.startswith("measured_") for number in moved)


def change(data):
    """Multiplies every estimate below, each by another number."""
    factor = iter(1.1 + np.random.default_rng(1).random(100_000))

    def walk(each):
        if isinstance(each, dict):
            return {name: walk(inner) for name, inner in each.items()}
        if isinstance(each[0], list):
            return [walk(inner) for inner in each]
        by = next(factor)
        return [one * by if isinstance(one, float) else one for one in each]

    data |= {name: walk(data[name]) for name in ("cells", "training")}
    if data["places"]:
        data["places"] |= {"arms": walk(data["places"]["arms"])}
