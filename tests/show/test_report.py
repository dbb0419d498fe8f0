"""The report as one file: all that the audit says stands in it, as text, whatever a model is called."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from clockhands.auditing import audit
from clockhands.auditing.fixes import changed_lines
from clockhands.auditing.frequency_bands import bands_of
from clockhands.cli import main
from clockhands.encodings.presets import presets
from clockhands.show._ladder_picture import ladder_picture
from clockhands.show.findings import AUDIT
from clockhands.show.report import report
from show.audited import GEMMA3, LLAMA, LLAMA3, TWO_SHAPES
from show.pages import HOSTILE, Parts, check_nothing_comes_from_elsewhere


@pytest.fixture
def config(tmp_path: Path):
    def written(values: dict, folder: str = "model") -> str:
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        (place / "config.json").write_text(json.dumps(values), encoding="utf-8")
        return str(place / "config.json")

    return written


def said(page: str) -> str:
    return " ".join(Parts(page).text.split())


@pytest.mark.parametrize("values", [LLAMA, TWO_SHAPES, GEMMA3])
def test_all_that_the_audit_found_stands_in_it_with_files_and_keys(config, values, cases):
    found = audit(config(values))
    page = report([found])
    text = said(page)
    with cases("verdict"):
        assert found.verdict in text
    for finding in found.findings:
        with cases(finding.code):
            assert " ".join(finding.message.split()) in text
            assert f"{finding.severity} {finding.code}" in text
            if finding.edit is not None:
                for words in (finding.edit.says, *changed_lines(found, finding)):
                    assert " ".join(words.split()) in text
    for one in found.properties:
        for each in one.properties.values():
            with cases(each.says):
                assert " ".join(each.says.split()) in text
    sources = text.split("Sources of all values")[1]
    for code in found.layers:
        for name, place in code.source.items():
            with cases(name, place):
                assert getattr(code, name, None) is None or " ".join(place.split()) in sources
    held = Parts(page).scripts[AUDIT]
    done = CliRunner().invoke(main, ["audit", config(values), "--json"])
    assert json.loads(held) == json.loads(done.stdout)
    assert "<" not in held
    check_nothing_comes_from_elsewhere(page)


def test_a_price_stands_beside_its_problem(config):
    found = audit(config(TWO_SHAPES))
    price = {"nats": 0.14, "interval": [0.11, 0.17], "visible": True, "windows": 4, "length": 512, "of": "as loaded"}
    first = found.problems[0]
    priced = replace(found, findings=tuple(replace(each, price=price) if each is first else each
                                           for each in found.findings))  # fmt: skip
    shown = Parts(report([priced], explorer=False)).text
    assert shown.count("Price: ") == 1
    assert "0.14 nats per token (0.11 to 0.17) on 4 windows of 512 tokens." in shown
    assert "Price: " not in Parts(report([found], explorer=False)).text


def test_the_first_screen_has_the_verdict_and_the_edit_before_anything_else(config):
    text = said(report([audit(config(TWO_SHAPES))]))
    order = ["model/config.json", "1 problem:", "conflicting-shapes", "Fix: ", "Position encoding of the layers",
             "Frequencies and the context length", "Properties", "Sources of all values"]  # fmt: skip
    places = [text.index(words) for words in order]
    assert places == sorted(places)


def test_the_command_writes_it_and_prints_the_same_as_without(config, tmp_path):
    path, out = config(TWO_SHAPES), tmp_path / "report.html"
    out.write_text("older", encoding="utf-8")
    runner = CliRunner()
    refused = runner.invoke(main, ["audit", path, "--html", str(out)])
    assert (refused.exit_code, refused.stdout, out.read_text("utf-8")) == (2, "", "older")
    assert f"{out} is already there.\nhint: Give another name, or `--force` to replace it." in refused.stderr
    assert "cannot be written" in runner.invoke(main, ["audit", path, "--html", str(out / "x")]).stderr
    assert "--force is for --html" in runner.invoke(main, ["audit", path, "--force"]).stderr
    alone = runner.invoke(main, ["audit", path, "nowhere.json"])
    done = runner.invoke(main, ["audit", path, "nowhere.json", "--html", str(out), "--force"])
    assert (done.exit_code, done.stdout) == (alone.exit_code, alone.stdout)
    assert f"note: {out} holds the report." in done.stderr
    told = json.loads(Parts(out.read_text("utf-8")).scripts[AUDIT])
    assert [each["target"] for each in told["unread"]] == ["nowhere.json"]
    text = said(out.read_text("utf-8"))
    assert "Audit of 2 targets" in text
    assert "It could not be read. nowhere.json does not exist." in text


def test_hostile_names_stay_text(config):
    values = LLAMA | {"model_type": HOSTILE, "rope_scaling": {"rope_type": HOSTILE, "factor": 2.0}, HOSTILE: 1}
    found = audit(config(values, "a<b>&"))
    parts = Parts(report([found]))
    assert len(parts.of("script")) == 3
    assert parts.of("img") == []
    assert "<img src=x onerror=alert(2)>" in parts.text
    assert "\u202e" not in parts.text  # what turns the direction of writing is spelt out
    assert "\\u202e" in parts.text
    assert json.loads(parts.scripts[AUDIT])["targets"][0]["model_type"] == HOSTILE


def test_presets_have_a_report_too_and_a_ladder_where_they_have_hands(draw):
    codes = ["vaswani2017", "bloom", "t5", "edm2"]
    text = said(report([audit(name) for name in codes]))
    assert text.count("Position encoding of the layers") == len(codes)
    assert text.count("Frequencies and the context length") == 1
    assert said(report([audit(each.name) for each in draw(presets(), 8)])).count("Position encoding of the layers") == 8


def test_the_picture_has_a_mark_for_every_pair_where_its_wavelength_is(config):
    found = audit(config(LLAMA | {"num_attention_heads": 256}))  # 8 pairs, far apart
    (band,) = bands_of(found)
    picture = Parts(ladder_picture([band], 800))
    marks = [float(x) for path in picture.of("path") if "mark" in str(path["class"])
             for x in re.findall(r"M([\d.]+),", str(path["d"]))]  # fmt: skip
    assert len(marks) == len(band.rates) == 8
    context = next(line for line in picture.of("line") if line["class"] == "served")
    # Wavelengths stand on a logarithmic axis, the context among them.
    waves = [2 * math.pi / rate for rate in band.rates]
    slope = (marks[-1] - marks[0]) / math.log(waves[-1] / waves[0])
    for mark, wave in zip(sorted(marks), waves, strict=True):
        assert mark == pytest.approx(marks[0] + slope * math.log(wave / waves[0]), abs=0.2)
    assert float(context["x1"]) == pytest.approx(marks[0] + slope * math.log(131072 / waves[0]), abs=0.2)


def test_the_sentence_counts_the_pairs_that_never_come_round(config):
    (band,) = bands_of(audit(config(LLAMA | {"rope_scaling": LLAMA3})))
    assert band.before is not None
    before = sum(rate * 8192 < 2 * math.pi for rate in band.before)
    after = sum(rate * 131072 < 2 * math.pi for rate in band.rates)
    assert f"{after} of 64 pairs never complete a rotation within 131,072 tokens with the scaling;" in band.says
    assert f"; without it {before} within 8,192;" in band.says
    # What is drawn is what is said: marks of the two rows, each at the length of its own line.
    assert band.marks_before.count("never") == before
    assert [mark == "never" for mark in band.marks] == [
        rate * 131072 < 2 * math.pi and not far for rate, far in zip(band.rates, band.beyond, strict=True)
    ]
    beyond = [
        old * 8192 < 2 * math.pi and new * 131072 > old * 8192 * (1 + 1e-9)
        for old, new in zip(band.before, band.rates, strict=True)
    ]
    assert list(band.beyond) == beyond
    assert band.says.endswith(f"; {sum(beyond)} rotate further than within 8,192.")


def test_layers_with_a_window_are_held_to_it(config):
    near, far = bands_of(audit(config(GEMMA3)))
    assert (near.trained, near.served, near.window) == (1024, 1024, True)
    assert (far.trained, far.window) == (131072, False)
    assert "within the window of 1,024 tokens" in near.says


LONG = "llama-" + "x" * 3000


def first_screen(page):
    """What stands before the findings and the layers."""
    return Parts(page).text.partition("Position encoding of the layers")[0]


def test_a_type_of_thousands_of_letters_is_cut_in_what_is_read_first_and_whole_where_it_stands(config):
    page = report([audit(config(LLAMA | {"model_type": LONG}))])
    assert f"{LONG[:79]}…" in first_screen(page)
    assert LONG not in first_screen(page)
    places = Parts(page).text.partition("Sources of all values")[2]
    assert LONG in places


def test_the_name_of_a_target_is_cut_in_headings_and_in_the_title(tmp_path):
    folder = tmp_path
    for _ in range(4):
        folder /= "n" * 150
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    target = str(folder / "config.json")
    page = report(
        [audit(target)],
        [{"target": LONG, "message": "It does not name a model, a file or a preset.", "hint": "Name another."}],
    )
    assert target not in first_screen(page)
    assert f"{target[:399]}…" in first_screen(page)
    assert Parts(page).text.partition("Sources of all values")[2].count(target) == 1
    assert LONG not in Parts(page).text
    title = re.search("<title>(.*)</title>", report([audit(target)]))
    assert len(title[1]) <= len("Audit of ") + 80
    assert title[1].endswith("…")
