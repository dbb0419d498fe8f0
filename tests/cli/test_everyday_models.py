"""Audits of twenty-six everyday models: each fault at the top of its report, sound ones short, together a page."""

import importlib
import json
import re

import numpy as np
import pytest

import clockhands as ch
from auditing.everyday_models import CONFIGS, FAULTY, write_everyday_models


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    write_everyday_models(folder)
    return folder


@pytest.fixture
def kept(models, monkeypatch):
    """The current folder; each model is audited once for both tests, which ask for it in the same way."""
    monkeypatch.chdir(models)
    monkeypatch.setattr(
        importlib.import_module("clockhands.cli.audit"),
        "audit",
        lambda target, *how, **more: AUDITS.get(target) or AUDITS.setdefault(target, ch.audit(target, *how, **more)),
    )


AUDITS = {}
# Sound models of which current runtimes compute something else, and a graph whose tables are not looked at.
NOT_KNOWN = ("mistral-7b", "phi-3", "phi-3-no-original", "sinusoid.onnx")


def rates(path):
    return [code.rates for code in ch.audit(path).layers if code.part == "text"]


@pytest.mark.usefixtures("kept")
def test_all_of_them_together_fit_on_sixty_lines(models, run):
    done = run("audit", "--jobs", 1, *sorted(path.name for path in models.iterdir()))
    lines = done.out.splitlines()
    assert done.code == 1
    assert len(lines) <= 60
    assert sum(re.search(r"\d problem", line) is not None for line in lines) == len(FAULTY)
    for name, (code, _) in FAULTY.items():
        assert any(line.startswith(name) and code in line for line in lines), name


@pytest.mark.usefixtures("kept")
def test_each_report_begins_with_the_fault_and_a_sound_one_is_short(models, run):
    for path in models.iterdir():
        lines = run("audit", path.name).out.splitlines()
        if path.name in FAULTY:
            assert any(FAULTY[path.name][0] in line for line in lines[:10]), path.name
        else:
            assert len(lines) <= 15, path.name
            sound = "No problem was found, but" if path.name in NOT_KNOWN else "The position settings look correct."
            assert lines[1].startswith(sound), path.name


def test_the_fix_of_a_config_gives_the_ladder_of_the_sound_one(models, run, monkeypatch, tmp_path, cases):
    monkeypatch.chdir(tmp_path)
    for name, (_, sound) in FAULTY.items():
        if sound is None or name not in CONFIGS:
            continue
        with cases(name):
            (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name], indent=2), encoding="utf-8")
            run("audit", "config.json", "--fix", "--in-place")
            assert not ch.audit(tmp_path / "config.json").problems
            (given,), (wanted,) = rates(tmp_path / "config.json"), rates(models / str(sound))
            assert given == pytest.approx(wanted, rel=1e-6)


def test_the_numbers_of_rope_freqs_name_the_base_that_was_lost(models):
    found = {finding.code: finding for finding in ch.audit(models / "llama-3.2-no-base.gguf").problems}
    assert found["rope-freqs-differ"].evidence["fitting base"] == 500000.0


def test_a_long_name_keeps_its_distance_and_many_correct_ones_are_counted(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [f"{'a-name-that-takes-room-' * 2}{number}.json" for number in range(20)]
    for name in names:
        (tmp_path / name).write_text(json.dumps(CONFIGS["llama-3.1"]), encoding="utf-8")
    (tmp_path / names[0]).write_text(json.dumps(CONFIGS["llama-3.1-no-base"]), encoding="utf-8")
    np.save("noise.npy", np.random.default_rng(0).normal(size=(64, 8)))
    lines = run("audit", "--jobs", 1, *names, "noise.npy").out.splitlines()
    assert lines[0] == f"{names[0]}  2 problems  warning differs-from-release"
    assert lines[1] == "1 with no encoding that was recognised: noise.npy"
    assert lines[2] == "19 correct (--verbose shows each of them)"
