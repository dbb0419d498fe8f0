"""Bounded, unique and smooth of every published convention, at short and long lengths and in every dtype."""

import json

import pytest

from clockhands.measures.subject import subject_of
from clockhands.measures.tokens._unique import unique
from clockhands.measures.tokens.bounded import bounded
from clockhands.measures.tokens.smooth import smooth
from clockhands.mixtures import LayerMixture
from clockhands.presets import presets

SPECS = {each.name: each.spec for each in presets() if not isinstance(each.spec, LayerMixture)}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("length", [1, 2, 17, 512])
def test_each_has_an_answer_in_json_and_a_cell_of_a_table(length, dtype):
    for name, spec in SPECS.items():
        subject = subject_of(spec, length, dtype, None)
        for measure in (bounded, unique, smooth):
            found = measure(subject)
            assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict(), name
            assert 0 < len(found.brief) <= 40, (name, found.brief)
            assert found.says.endswith("."), (name, found.says)
            if measure is not smooth and found.state == "measured":
                assert found.holds is not None, name
