"""Published conventions by name."""

import json
import re
from importlib.resources import files

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.additive import AdditiveCode
from clockhands.encodings.grids import Grid
from clockhands.encodings.presets import Preset, preset, presets
from clockhands.errors import InvalidValue
from oracles import sentences
from oracles.rows import every

NAMES = tuple(known.name for known in presets())


def test_the_presets():
    assert list(NAMES) == sorted(set(NAMES))
    assert {"ddpm", "dit", "fairseq", "marian", "tensor2tensor", "vaswani2017", "whisper"} <= set(NAMES)
    assert presets() == presets()


@every("known", presets())
def test_a_preset_says_what_it_is_and_where_it_was_published(known):
    assert isinstance(known, Preset)
    assert known.says.endswith(".")
    # The frequencies of a scaling are in use at every position.
    assert not re.search(r"from [\d,]+ tokens on", known.says)
    assert re.search(r"\d", known.source), "a source has a version, a commit or a number"
    assert preset(known.name) == known.spec
    assert ch.preset(known.name) == known.spec
    assert ch.from_json(ch.to_json(known.spec)) == known.spec
    if isinstance(known.spec, AdditiveCode) and not known.spec.learned:
        axes = known.spec.number_of_axes
        assert np.isfinite(ch.table(known.spec, 3 if axes == 1 else Grid((2,) * axes))).all()


def test_the_data_name_each_key_once():
    def no_key_twice(pairs):
        names = [name for name, _ in pairs]
        assert len(set(names)) == len(names)
        return dict(pairs)

    data = [each for each in files("clockhands.encodings.presets").iterdir() if each.name.endswith(".json")]
    read = [json.loads(each.read_text("utf-8"), object_pairs_hook=no_key_twice) for each in data]
    assert sorted(name for names in read for name in names) == sorted(NAMES)


def test_what_is_no_preset_is_refused_in_words(cases):
    sentences.hold("presets", cases)
    known = f"Presets are {', '.join(NAMES)}."
    for name in ("xyz", ""):
        with pytest.raises(InvalidValue, match=f"^There is no preset {name!r}\\.\nhint: {re.escape(known)}$"):
            preset(name)
