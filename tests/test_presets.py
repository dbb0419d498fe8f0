"""Published conventions by name."""

import json
import re
from importlib.resources import files

import numpy as np
import pytest

import clockhands as ch
from clockhands.additive import (
    AdditiveCode,
    Binary,
    Counter,
    EvenlySpaced,
    NormalizedCounter,
    SineOnly,
    SingleFrequency,
    WarpedPosition,
)
from clockhands.errors import InvalidValue
from clockhands.grids import Grid
from clockhands.ladders import Geometric
from clockhands.presets import Preset, preset, presets
from oracles import sentences

NAMES = tuple(known.name for known in presets())
each = pytest.mark.parametrize("known", presets(), ids=lambda known: known.name)


def test_the_presets():
    assert list(NAMES) == sorted(set(NAMES))
    assert {"ddpm", "dit", "fairseq", "marian", "tensor2tensor", "vaswani2017", "whisper"} <= set(NAMES)
    assert presets() == presets()


@each
def test_a_preset_says_what_it_is_and_where_it_was_published(known):
    assert isinstance(known, Preset)
    assert known.says.endswith(".")
    assert re.search(r"\d", known.source), "a source has a version, a commit or a number"
    assert preset(known.name) == known.spec
    assert ch.preset(known.name) == known.spec
    assert ch.from_json(ch.to_json(known.spec)) == known.spec
    if isinstance(known.spec, AdditiveCode) and not known.spec.learned:
        axes = known.spec.number_of_axes
        assert np.isfinite(ch.table(known.spec, 3 if axes == 1 else Grid((2,) * axes))).all()


def test_presets_are_what_the_conventions_say():
    closed = Geometric(span="closed")
    assert preset("vaswani2017") == ch.Sinusoidal(512)
    assert preset("tensor2tensor") == ch.Sinusoidal(512, spacing=closed, layout="halves", odd="zero")
    assert preset("fairseq") == ch.Sinusoidal(512, spacing=closed, layout="halves", odd="zero", first=2, zero_rows=(1,))
    assert preset("whisper") == ch.Sinusoidal(512, spacing=closed, layout="halves")
    assert preset("marian") == ch.Sinusoidal(512, layout="halves", odd="extra")
    assert preset("ddpm") == ch.Sinusoidal(128, spacing=closed, layout="halves", odd="zero")
    assert preset("dit") == ch.Sinusoidal(256, layout="halves", order="cos-sin", odd="zero")


def test_fields_can_be_overridden():
    assert preset("vaswani2017", width=4).rates == (1.0, 0.01)
    assert preset("vaswani2017", base=100.0, layout="halves") == ch.Sinusoidal(512, 100.0, layout="halves")
    assert preset("whisper", span="open").spacing == Geometric()
    assert preset("vaswani2017") == ch.Sinusoidal(512)


def test_a_preset_may_be_named_name():
    with pytest.raises(InvalidValue, match="has no field 'nam'"):
        preset("vaswani2017", nam=3)


def test_the_data_name_each_key_once():
    def no_key_twice(pairs):
        names = [name for name, _ in pairs]
        assert len(set(names)) == len(names)
        return dict(pairs)

    data = [each for each in files("clockhands.presets").iterdir() if each.name.endswith(".json")]
    read = [json.loads(each.read_text("utf-8"), object_pairs_hook=no_key_twice) for each in data]
    assert sorted(name for names in read for name in names) == sorted(NAMES)


def test_what_is_no_preset_is_refused_in_words(cases):
    sentences.hold("presets", cases)
    known = f"Presets are {', '.join(NAMES)}."
    for name in ("xyz", ""):
        with pytest.raises(InvalidValue, match=f"^There is no preset {name!r}\\.\nhint: {re.escape(known)}$"):
            preset(name)


def test_codes_that_fail_have_names_too():
    assert preset("counter", width=8) == Counter(8)
    assert preset("normalised-counter", length=10) == NormalizedCounter(512, 10)
    assert preset("binary") == Binary(16)
    assert preset("sine-only", width=8) == SineOnly(8)
    assert preset("single-frequency", width=8, rate=0.5) == SingleFrequency(8, rate=0.5)
    assert preset("evenly-spaced", width=8) == EvenlySpaced(8)
    assert preset("squared-position", width=8) == WarpedPosition(8, "square")


@each
def test_no_preset_says_that_a_scaling_begins_at_a_position(known):
    # The frequencies of a scaling are in use at every position.
    assert not re.search(r"from [\d,]+ tokens on", known.says)
