"""Rotations of other libraries, written again and held to their published numbers, are identified as what they are."""

import json

import numpy as np

import clockhands as ch
from clockhands.encodings.ladders import Explicit
from clockhands.recognition.functions import identify_function
from oracles import published, rotary_conventions

from .black_boxes import BOXES, BROKEN, qwen_image_text, rates


def test_the_boxes_are_the_libraries_own(cases):
    """The function gives what the library gave: rows of x where those were published, else cosines and sines."""
    entries = published.entries(*rotary_conventions.FAMILIES)
    for name, box in (BOXES | BROKEN).items():
        for key in box.keys:
            with cases(name, key):
                arrays = published.arrays(key)
                if "x" in arrays:
                    made = box.function(arrays["x"], np.arange(len(arrays["x"])))
                    assert np.abs(made - arrays["out"]).max() <= entries[key]["tolerance"]
                else:
                    own_cosines_and_sines(box, key, arrays)


def own_cosines_and_sines(box, key, arrays):
    table = rotary_conventions.TABLES.get(key)
    picked = {name: arrays[name] for name in ("cos", "sin")} if table is None else table.picked(arrays)
    number, width = len(picked["cos"]), box.width
    if key == "rope_hf_vjepa2":  # a column for each channel that goes out
        rows = np.tile(np.eye(width, dtype=np.float32), (number, 1))
        made = box.function(rows, np.repeat(np.arange(number), width)).reshape(number, width, width)
        assert np.abs(np.diagonal(made, axis1=1, axis2=2) - picked["cos"]).max() <= 1e-5
        return
    firsts = np.zeros((number, width), np.float32)
    channels = ch.Rotary(width).channels if box.spec is None else box.spec.channels
    firsts[:, channels[:, 0]] = 1
    made = box.function(firsts, np.arange(number))
    for part, name in enumerate(("cos", "sin")):
        assert np.abs(made[:, channels[:, part]] - picked[name][:, : width // 2]).max() <= 1e-5


def test_the_boxes_are_identified(cases):
    for name, box in BOXES.items():
        with cases(name):
            found = identify_function(box.function, box.width, **box.options)
            assert found, found.reason
            match, evidence = found[0], dict(found[0].evidence)
            assert (match.spec, match.computed_in) == (box.spec, box.computed_in)
            assert match.name == box.name or box.name in evidence.get("presets", ())
            assert match.confidence > 0.99
            assert all(words in found.reason for words in box.said), found.reason
            assert {key: evidence[key] for key in box.evidence} == box.evidence
            assert evidence["library"] == "numpy"
            assert json.loads(json.dumps(evidence, allow_nan=False)) == evidence
            assert evidence["rows"] < 60_000


def test_what_is_no_rotation_is_said_to_be_none(cases):
    for name, box in BROKEN.items():
        with cases(name):
            found = identify_function(box.function, box.width)
            assert not found
            assert all(words in found.reason for words in box.said), found.reason


def test_ladders_of_no_rule_are_given_rate_by_rate():
    """Three ladders one after another, which text turns by one number."""
    found = identify_function(qwen_image_text, 64)
    match = found[0]
    assert isinstance(match.spec.spacing, Explicit)
    assert "Its frequencies follow no known rule" in found.reason
    assert match.confidence == 1
    # Within the noise of float32 cosines over the longest position.
    x = np.random.default_rng(3).standard_normal((300, 64)).astype(np.float32)
    at = np.random.default_rng(4).integers(0, 2_000, 300)
    assert np.abs(ch.rotate(x, match.spec, at) - qwen_image_text(x, at)).max() < 2_000 * 4 * 2.0**-24 * 4
    assert np.allclose(match.spec.rates, [*rates(16), *rates(24), *rates(24)], rtol=1e-5, atol=1e-10)
