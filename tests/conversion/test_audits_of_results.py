"""What an audit says of the layout that a conversion writes into a config."""

import json

import pytest

import clockhands as ch

from .conftest import LLAMA


def audit(tmp_path, config):
    """The layout of its layers, and what is not a mere note."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = ch.audit(tmp_path / "config.json")
    return done.layers[0].layout, [finding for finding in done.findings if finding.severity != "note"]


@pytest.mark.parametrize("value", ["neox", 1, [], {"halves": 1}])
def test_what_is_no_layout_is_left_out_and_named(tmp_path, value):
    layout, (finding,) = audit(tmp_path, LLAMA | {"clockhands_layout": value})
    assert layout == "halves"
    assert (finding.code, finding.severity) == ("unreadable-field", "warning")
    assert "(expected: halves or interleaved)" in finding.message


@pytest.mark.parametrize("more", [{}, {"clockhands_layout": "halves"}, {"clockhands_layout": None}])
def test_the_layout_of_the_class_is_no_matter(tmp_path, more):
    assert audit(tmp_path, LLAMA | more) == ("halves", [])
