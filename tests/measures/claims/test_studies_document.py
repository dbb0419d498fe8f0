"""docs/studies.md and the pages of the studies are made of the stored results, and these of a store of the lab."""

import copy
import json
from pathlib import Path

import pytest

from measures.claims.trained import STUDIES

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def maker():
    import studies_document

    return studies_document


@pytest.fixture(scope="module")
def keeper():
    import studies_data

    return studies_data


def test_the_pages_are_made_of_the_stored_results_one_of_each_study(maker, keeper):
    written = {path: path.read_text(encoding="utf-8") for path in (maker.DOCUMENT, *maker.FOLDER.glob("*.md"))}
    pages = maker.documents({name: maker.MeasuredStudy(name, data) for name, data in STUDIES.items()})
    assert written == pages, "run tools/studies_document.py"
    assert set(STUDIES) <= set(maker.ORDER)
    for name, study in STUDIES.items():
        kept = (maker.RESULTS / f"{name}.json").read_text(encoding="utf-8")
        assert kept == keeper.written(study), "its layout is the tool's"
        assert f"| [{name}](studies/{name}.md) |" in pages[maker.DOCUMENT]
        text = pages[maker.FOLDER / f"{name}.md"]
        assert study["run"]["commit"] in text
        assert f"`{study['run']['command']}`" in text
        assert study["run"]["hash"][:12] in text


def test_every_shipped_study_has_a_place(maker):
    studies = pytest.importorskip("clockhands.lab.study")
    assert sorted(maker.ORDER) == studies.shipped()


def test_another_number_makes_another_page(maker):
    quick = copy.deepcopy(STUDIES["quick"])
    before = maker.section(maker.MeasuredStudy("quick", quick))
    quick["tasks"]["copy"]["cells"]["rotary"]["as trained"]["whole"]["accuracy"]["256"][0] += 0.01
    assert maker.section(maker.MeasuredStudy("quick", quick)) != before


def test_a_failed_gate_and_one_without_a_number_are_said(maker):
    quick = copy.deepcopy(STUDIES["quick"])
    quick["gates"][0]["holds"] = False
    quick["gates"][1] |= {"holds": None, "value": None}
    text = maker.section(maker.MeasuredStudy("quick", quick))
    assert (
        "4 of 9 gates hold, 1 fails, 3 are met by their only seed, 1 cannot be judged. Fails: “Sinusoidal copies at "
        "the trained length.” Not judged: “Rotary copies at the trained length.”"
    ) in " ".join(text.split())
    assert "Changed after it was first written" not in text
    quick["changed"] = "there was another arm."
    assert "Changed after it was first written: there was another arm." in maker.section(
        maker.MeasuredStudy("quick", quick)
    )
    assert "| **fails** | Sinusoidal copies at the trained length. |" in text
    assert "| **not judged** | Rotary copies at the trained length. |" in text


SMALL = Path(__file__).with_name("small_study.toml").read_text(encoding="utf-8")


GRID = """
[[gates]]
says = "Rotary is as good."
task = "copy"
arm = "rotary"
minus = "none"
measure = "loss"
at_most = 1
grid = ["size large"]
[grid]
tasks = ["copy"]
[grid.axes.size]
large = { model = { width = 128 } }
unrun = { model = { width = 256 } }
"""


@pytest.fixture
def store(tmp_path, monkeypatch, request):
    """A store of a small study with made-up numbers: a loss is the length over 100, and the seed.

    It may have a grid; no trial of the cell "unrun" has ended.
    """
    pytest.importorskip("scipy")
    from clockhands.lab import study as studies
    from clockhands.lab.store import Measurement, Store

    small = studies.parse(SMALL + getattr(request, "param", ""), "quick")
    monkeypatch.setattr(studies, "shipped", lambda: ["quick"])
    monkeypatch.setattr(studies, "read", lambda _: small)
    path = tmp_path / "quick.sqlite"
    provenance = {
        "command": "clockhands lab run quick", "commit_id": "abc", "version": "0", "versions": {"torch": "9"},
        "created": "2026-01-02T00:00:00+00:00",
        "machine": {"processor": "P", "cores": 2, "system": "S", "device": "cpu", "threads": 1, "texts": {}},
    }  # fmt: skip
    with Store.open(path) as opened:
        opened.add_study(small.hash, "quick", small.text, provenance)
        opened.add_trials(small.hash, small.trial_keys())
        for key in small.trial_keys():
            protocols = small.tasks[key.task].evaluation.protocols
            variants = ("", "yarn") if key.arm == "rotary" else ("",)
            rows = [
                Measurement("evaluation", each, length / 100 + key.seed, 400, length, None, protocol, variant)
                for length in (64, 128)
                for protocol in protocols
                for variant in variants
                for each in ("loss", "accuracy")
            ]
            rows += [Measurement("evaluation", "loss", at, 400, 128, at, "whole") for at in range(0, 128, 8)]
            rows += [Measurement("training", "gradient_norm_largest", step, step, 64) for step in (1, 20)]
            rows += [Measurement("training", "gradient_norm", step / 2, step, 64) for step in (1, 20)]
            if key.arm == "dropped":
                curve = {("before drop", 200): 1.0, ("dropped", 200): 3.0, ("", 400): 1.5}
                rows += [
                    Measurement("curve", "loss", loss, step, 64, None, "whole", variant)
                    for (variant, step), loss in curve.items()
                ]
            facts = {"parameters": 7, "code_parameters": 3, "tokens_per_second": 1000.4, "device": "cpu"}
            if key == ("copy", "none", 2):
                opened.fail(small.hash, key, "The loss is NaN at step 3.")
            elif "unrun" not in key.task:
                opened.finish(small.hash, key, rows, facts, 2.0)
    return path


def test_a_store_is_kept(maker, keeper, store):
    found = keeper.collect(store)
    assert list(found) == ["quick"]
    quick = json.loads(json.dumps(found["quick"]))
    study = maker.MeasuredStudy("quick", quick)
    run = quick["run"]
    assert run["command"] == "clockhands lab run quick"
    assert (run["finished"], run["trial_seconds"]) == (7, 14)
    assert run["failed"] == [{"task": "copy", "arm": "none", "seed": 2, "message": "The loss is NaN at step 3."}]
    value = study.value("copy", "rotary", length=128)
    assert (value.mean, value.low, value.high) == (2.28, 1.28, 3.28)
    assert study.value("copy", "none").seeds == {0: 0.64, 1: 1.64}
    assert study.value("language", "rotary", "loss_ratio", length=128, protocol="sliding").seeds == {0: 2.0}
    assert study.value("copy", "rotary", "gradient_norm_largest").mean == 20
    assert study.value("copy", "rotary", "gradient_norm_start").mean == 0.5
    assert study.value("language", "dropped", "spike").mean == 2
    assert study.value("language", "dropped", "won_back").mean == 0.75
    assert study.places("language", "rotary")["32–47"].mean == (32 + 40) / 2
    assert quick["gates"][0]["value"] == [0.0, 0.0, 0.0, 0.0, 0.0, None]
    text = " ".join("".join(maker.documents({"quick": study}).values()).split())
    assert "0 of 1 gates hold, 1 cannot be judged. Not judged: “Rotary is better.”" in text
    assert "- Failed: copy, none, seed 2: The loss is NaN at step 3." in text
    assert "7 trials finished, 1 failed" in text
    assert "| dropped | 400 | 2.000 | 0.750 |" in text.replace("| dropped | |", "| dropped |")
    assert "| dropped | rotary | 0.000 | 0.000 |" in text
    assert "| dropped | rotary (yarn at test time) | 0.000 | 0.000 |" in text
    assert json.loads(keeper.written(found["quick"])) == quick


@pytest.mark.parametrize("store", [GRID], indirect=True)
def test_the_cells_of_a_grid_that_are_complete_are_kept_and_the_others_said_to_be_not_run(maker, keeper, store):
    quick = json.loads(json.dumps(keeper.collect(store)["quick"]))
    assert set(quick["tasks"]) == {"copy", "language", "copy @ size large"}
    assert quick["tasks"]["copy @ size large"]["at"] == {"size": "large"}
    cells = quick["gates"][-1]["cells"]
    assert {cell: each["said"] for cell, each in cells.items()} == {
        "copy": True, "copy @ size large": True, "copy @ size unrun": False,
    }  # fmt: skip
    text = " ".join(maker.section(maker.MeasuredStudy("quick", quick)).split())
    assert "Not run, and so neither judged nor counted in the correction: copy @ size unrun." in text
    assert "| copy @ size unrun |" not in text
    lines = maker.orders_of(maker.MeasuredStudy("quick", quick)).splitlines()
    row = next(each for each in lines if each.startswith("| Rotary is as good. | copy @ size large"))
    cells = ["copy @ size large", "yes", "seeds alike", "0.000 [0.000, 0.000]", "–", "cpu, commit unknown"]
    assert row == f"| Rotary is as good. | {' | '.join(cells)} |"
    tested = quick["gates"][-1]["cells"]
    for own in (quick["gates"][-1], *tested.values()):
        own |= {"holds": None, "chance": None}
    for cell in ("copy", "copy @ size large"):
        tested[cell] |= {"holds": True, "chance": 0.01}
    tested["copy @ size unrun"]["said"] = True
    study = maker.MeasuredStudy("quick", quick)
    assert (maker.word_of(study, quick["gates"][-1]), maker.holding_so_far(study)) == ("2 of 3 cells", 1)
    tested["copy"]["chance"] = 0.2
    assert maker.holding_so_far(study) == 0


@pytest.mark.parametrize("store", [GRID], indirect=True)
def test_a_cell_that_was_run_apart_joins_those_that_are_kept(maker, keeper, store, monkeypatch):
    whole = json.loads(json.dumps(keeper.collect(store)["quick"]))
    large = "copy @ size large"
    before = whole | {"tasks": {name: each for name, each in whole["tasks"].items() if name != large}}
    before["run"] = whole["run"] | {"commit": "earlier"}
    kept, finished = keeper.kept, whole["run"]["finished"]
    monkeypatch.setattr(keeper, "kept", lambda results: kept(results) | {"tasks": {large: whole["tasks"][large]}})
    monkeypatch.setattr(keeper, "measured", lambda name: maker.MeasuredStudy(name, before))
    joined = json.loads(json.dumps(keeper.collect(store)["quick"]))
    assert joined["tasks"] == whole["tasks"]
    assert [gate["holds"] for gate in joined["gates"]] == [gate["holds"] for gate in whole["gates"]]
    run = joined["run"]
    assert (run["commit"], run["finished"]) == ("earlier", 2 * finished)
    assert [each["tasks"] for each in run["apart"]] == [[large]]
    assert "Run apart, on 20" in " ".join(maker.cost(maker.MeasuredStudy("quick", joined)).split())
    monkeypatch.setattr(keeper, "measured", lambda name: maker.MeasuredStudy(name, before | {"tasks": {}}))
    with pytest.raises(SystemExit, match="No trial of quick is run of: "):
        keeper.collect(store)


@pytest.mark.parametrize("store", ["", GRID], indirect=True)
def test_the_verdicts_of_another_run_stand_beside_those_that_are_kept(maker, keeper, store, monkeypatch):
    quick = json.loads(json.dumps(keeper.collect(store)["quick"]))
    first = maker.MeasuredStudy("quick", quick)
    assert (maker.verdicts_again(first), maker.runs_again({"quick": first})) == ([], "")
    monkeypatch.setattr(keeper, "measured", lambda _: first)
    again = json.loads(json.dumps(keeper.repeated(store)["quick"]))
    both = maker.MeasuredStudy("quick", quick | {"again": again})
    rows = maker.verdicts_again(both)
    cells = ["copy", "copy @ size large"] if "cells" in quick["gates"][-1] else [""]
    assert [(row.cell, maker.same(row)) for row in rows[-len(cells) :]] == [(cell, True) for cell in cells]
    judged = [own for gate in again["gates"] for own in gate.get("cells", {"": gate}).values() if own["value"]]
    judged[0] |= {"holds": False, "value": [9.0, 8.0, 10.0, 9.0, 8.0, 10.0]}
    text = " ".join(maker.section(both).split())
    assert (
        f"Run again on 2026-01-02 at commit abc, on P, 2 cores, in {maker.duration(again['run']['wall_seconds'])}"
        in text
    )
    assert f"{len(rows) - 1} of {len(rows)} verdicts are the same" in text
    assert "| **fails** | 0.000 [0.000, 0.000] | 9.000 [8.000, 10.000] |" in text
    said = maker.runs_again({"quick": both, "other": first})
    assert "1 of 2 studies were run again, on P, 2 cores" in " ".join(said.split())
    assert "those that differ are 1 of [quick](studies/quick.md)." in " ".join(said.split())
    quick["run"]["hash"] = "of another form"
    with pytest.raises(SystemExit, match="its kept results are those of another form"):
        keeper.repeated(store)


def test_a_study_that_has_not_ended_or_was_changed_is_refused(keeper, store, tmp_path):
    from clockhands.lab import study as studies
    from clockhands.lab.store import Store

    with Store.open(store) as opened:
        opened.retry(studies.read("quick").hash)
    with pytest.raises(SystemExit, match="1 trials of quick are not run"):
        keeper.collect(store)
    with Store.open(tmp_path / "other.sqlite") as opened:
        opened.add_study("0" * 64, "quick", SMALL, {})
    with pytest.raises(SystemExit, match="not a shipped one as it is now"):
        keeper.collect(tmp_path / "other.sqlite")
