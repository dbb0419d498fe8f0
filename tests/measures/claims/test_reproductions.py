"""docs/reproductions.md: each number is computed again from the stored results, and each answer can be a no."""

import math
import re
import tomllib
from pathlib import Path

import pytest

from clockhands.measures.claims.studies import estimated
from late import Late
from measures.claims.test_measured import alone_of, gates_tested
from measures.claims.trained import STUDIES

reproductions = Late("reproductions")


def published():
    return tomllib.loads(reproductions.PUBLISHED.read_text(encoding="utf-8"))["results"]


def seeds(result, arm, length=None, measure="loss"):
    """The stored numbers of an arm, seed by seed, read without the package."""
    ours = result["ours"]
    task = STUDIES[ours["study"]]["tasks"][ours["task"]]
    name, variant = (*arm, "as trained")[:2]
    cell = task["cells"][name][variant][ours.get("protocol", "whole")][measure]
    return cell[str(length or ours["length"])][3:]


def means():
    """Ours of every row that is taken from a study, computed another way: by name of the row."""
    for result in published():
        if "study" not in result.get("ours", {}):
            continue
        trained = STUDIES[result["ours"]["study"]]["tasks"][result["ours"]["task"]]["length"]
        for name, arm in result["arms"].items():
            if result["unit"] == "gain":
                below = seeds(result, result["ours"]["against"], measure="accuracy")
                numbers = [100 * (a - b) for a, b in zip(seeds(result, arm, measure="accuracy"), below, strict=True)]
            elif result["unit"] == "points":
                numbers = [100 * each for each in seeds(result, arm, measure="accuracy")]
            else:
                below = (
                    seeds(result, arm, trained)
                    if result["unit"] == "longer"
                    else seeds(result, result["ours"]["against"])
                )
                numbers = [math.exp(a - b) for a, b in zip(seeds(result, arm), below, strict=True)]
            yield result["id"], name, sum(numbers) / len(numbers)


def test_the_page_is_made_of_the_stored_results():
    written = reproductions.DOCUMENT.read_text(encoding="utf-8")
    assert written == reproductions.document(), "run `python tools/reproductions.py`"


def test_every_mean_of_a_study_follows_from_the_numbers_of_its_seeds(cases):
    sections = dict(re.findall(r"(?ms)^## (\S+)\n(.*?)(?=^## |\Z)", reproductions.DOCUMENT.read_text(encoding="utf-8")))
    found = list(means())
    assert len(found) >= 25
    for result, name, mean in found:
        with cases(result, name):
            (line,) = [each for each in sections[result].splitlines() if each.startswith(f"| {name} |")]
            assert float(line.split("|")[3].split()[0].replace(",", "")) == pytest.approx(mean, rel=6e-4, abs=6e-4)


def test_what_was_not_run_says_what_would_give_it(cases):
    for result in published():
        with cases(result["id"]):
            assert {"paper", "says", "where", "read"} <= set(result)
            if "missing" in result:
                assert re.search(r"about \d+", result["missing"]), "the cost in CPU minutes"
                assert "ours" not in result
            else:
                assert result["differs"]
                assert set(result["theirs"]) <= set(result["arms"])


def rows(*numbers):
    return [
        reproductions.Row(f"arm {n}", theirs, estimated(dict(enumerate(ours))))
        for n, (theirs, ours) in enumerate(numbers)
    ]


def test_sign_order_and_size_can_each_be_no():
    (higher, near, open_) = rows((2.0, [1.5, 1.6]), (0.5, [0.995, 1.004]), (1.5, [0.9, 1.2]))
    assert [reproductions.sign(each, 1.0) for each in (higher, near, open_)] == ["yes", "no", "not known"]
    assert reproductions.sign(near._replace(theirs=1.005), 1.0) == "yes"
    assert reproductions.sign(higher._replace(theirs=None), 1.0) == "–"
    assert reproductions.order(rows((3.0, [5, 6]), (2.0, [3, 4]))) == "yes"
    assert reproductions.order(rows((3.0, [3, 4]), (2.0, [5, 6]))) == "no: arm 0 and arm 1 are reversed"
    assert reproductions.order(rows((3.0, [3, 5]), (2.0, [4, 4]))) == "arm 0 and arm 1 not distinguishable"
    assert reproductions.order(rows((3.0, [3, 5]))) == "–"
    assert [reproductions.size(each, "") for each in (higher, higher._replace(theirs=1.55))] == ["no", "yes"]
    assert reproductions.size(higher, "other units") == "–"


def test_an_interval_whose_mean_is_alike_and_whose_ends_are_not_has_no_side():
    found = [reproductions.side(*ends, 1.0) for ends in ((0.9, 1.005), (0.995, 1.1), (0.8, 0.9), (0.989, 0.992))]
    assert found == ["both", "both", "below", "both"]


def test_no_other_page_says_that_a_result_has_the_published_shape(cases):
    """What is the same and what is not stands in one place, computed."""
    docs = Path(reproductions.DOCUMENT).parent
    for page in docs.rglob("*.md"):
        with cases(page.name):
            text = " ".join(page.read_text(encoding="utf-8").split())
            assert not re.search(
                r"(?i)(the (same|published) shape as|shape of the paper|published shape|same shape as in)", text
            )


def test_the_numbers_of_the_attacks_on_the_evidence_are_those_of_the_stored_results():
    """How many gates hold corrected within their study and over all studies, and how many studies were changed."""
    chances, held = [], 0
    for study in STUDIES.values():
        for gate in study["gates"]:
            if gate["chance"] is not None:
                said = [own for own in gates_tested(gate).values() if own.get("said", True)]
                chances.append((max(alone_of(gate | own) for own in said), gate["holds"]))
                held += gate["holds"] and gate["chance"] <= 0.05
    corrected, over_all = 0.0, 0
    for rank, (alone, holds) in enumerate(sorted(chances)):
        corrected = max(corrected, min(1, (len(chances) - rank) * alone))
        over_all += holds and corrected <= 0.05
    said = (
        f"of {len(chances)} gates with a chance, {held} hold within their study and {over_all} hold corrected over all"
    )
    changed = sum(bool(study["changed"]) for study in STUDIES.values())
    text = (reproductions.DOCUMENT.parent / "lab.md").read_text(encoding="utf-8")
    assert said in text
    assert f"{changed} of {len(STUDIES)} studies were changed" in text
    same = [
        STUDIES[name]["tasks"]["language"]["cells"]["rotary"]["as trained"] for name in ("extrapolation", "scaling")
    ]
    assert same[0]["whole"]["loss"]["256"] == same[1]["whole"]["loss"]["256"]
