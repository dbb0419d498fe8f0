"""The presets there are, opened as targets."""

import pytest

from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.presets import preset, presets
from clockhands.sources import open_target
from written_files import refusal


@pytest.mark.parametrize("name", [each.name for each in presets()])
@pytest.mark.parametrize("force", ["", "preset:"])
def test_every_preset_is_a_target(name, force, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opened = open_target(force + name)
    assert (opened.form, opened.spec) == ("preset", preset(name))


def test_a_field_reaches_the_preset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_target("vaswani2017:width=4,base=1e5").spec == preset("vaswani2017", width=4, base=1e5)


def test_a_whole_number_may_be_written_short(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_target("vaswani2017:width=1e3,base=5E5").spec == preset("vaswani2017", width=1000, base=500000)
    refusal(open_target, "vaswani2017:width=512.0", error=ClockhandsError)
    refusal(open_target, "vaswani2017:base=1e999", error=ClockhandsError)


@pytest.mark.parametrize("fields", ["width=0", "width=3.5", "width=four", "base=nan", "colour=red"])
def test_an_impossible_field_is_refused_by_the_preset(fields, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message, hint = refusal(open_target, f"vaswani2017:{fields}", error=ClockhandsError)
    assert fields.partition("=")[0] in message
    assert hint


def test_a_width_below_one_is_a_wrong_value(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refusal(open_target, "vaswani2017:width=-2", error=InvalidValue)
