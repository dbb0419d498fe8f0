"""The presets there are, opened as targets."""

import pytest

from clockhands.configs import open_target
from clockhands.encodings.presets import preset, presets
from clockhands.errors import ClockhandsError, InvalidValue
from written_files import refusal


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_every_preset_is_a_target(cases):
    for each in presets():
        for force in ("", "preset:"):
            with cases(force, each.name):
                opened = open_target(force + each.name)
                assert (opened.form, opened.spec) == ("preset", preset(each.name))


def test_a_field_reaches_the_preset_and_a_whole_number_may_be_written_short():
    assert open_target("vaswani2017:width=4,base=1e5").spec == preset("vaswani2017", width=4, base=1e5)
    assert open_target("vaswani2017:width=1e3,base=5E5").spec == preset("vaswani2017", width=1000, base=500000)
    refusal(open_target, "vaswani2017:width=512.0", error=ClockhandsError)
    refusal(open_target, "vaswani2017:base=1e999", error=ClockhandsError)
    refusal(open_target, "vaswani2017:width=-2", error=InvalidValue)
