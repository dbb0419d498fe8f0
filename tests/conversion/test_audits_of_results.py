"""What an audit says of the layout that a conversion writes into a config."""

import json

import clockhands as ch

from .conftest import LLAMA


def audit(tmp_path, config):
    """The layout of its layers, and what is not a mere note."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = ch.audit(tmp_path / "config.json")
    return done.layers[0].layout, [finding for finding in done.findings if finding.severity != "note"]


def test_what_is_no_layout_is_left_out_and_named(tmp_path, cases):
    for value in ("neox", 1, [], {"halves": 1}):
        with cases(value):
            layout, (finding,) = audit(tmp_path, LLAMA | {"clockhands_layout": value})
            assert layout == "halves"
            assert (finding.code, finding.severity) == ("unreadable-field", "warning")
            assert "(expected: halves or interleaved)" in finding.message


def test_a_layout_that_is_not_the_one_of_the_class_is_a_warning(tmp_path):
    layout, (finding,) = audit(tmp_path, LLAMA | {"clockhands_layout": "interleaved"})
    assert layout == "interleaved"
    assert (finding.code, finding.severity) == ("converted-layout", "warning")
    assert finding.message.startswith('clockhands_layout is "interleaved", but the code of this model type (')
    inside = {"model_type": "llava", "text_config": LLAMA | {"clockhands_layout": "interleaved"}}
    _, found = audit(tmp_path, inside)
    assert "text_config.clockhands_layout" in next(each for each in found if each.code == "converted-layout").message


def test_a_type_that_is_not_known_pairs_as_it_says(tmp_path):
    layout, found = audit(tmp_path, LLAMA | {"model_type": "unheard-of", "clockhands_layout": "interleaved"})
    assert layout == "interleaved"
    assert "converted-layout" not in {finding.code for finding in found}
