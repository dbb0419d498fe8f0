"""Every preset of a bias, at every length and in every dtype: something is said, in few words and in plain JSON."""

import json

import numpy as np
import pytest

from clockhands.biases import BiasCode, Buckets, Kerple
from clockhands.measures import properties
from clockhands.measures.biases.apart import told_apart
from clockhands.measures.biases.edges import edges
from clockhands.measures.biases.reach import reach
from clockhands.measures.subject import subject_of
from clockhands.presets import presets
from laws.bias_members import values_for

BIASES = {each.name: each.spec for each in presets() if isinstance(each.spec, BiasCode)}


@pytest.mark.parametrize("name", BIASES)
@pytest.mark.parametrize("length", [1, 2, 17, 2048])
def test_something_is_said_of_every_preset(name, length):
    spec = BIASES[name]
    for dtype in ("float32", "float16", "bfloat16"):
        for values in (None, values_for(spec)):
            subject = subject_of(spec, length, dtype, values)
            for measure in (reach, edges, told_apart):
                found = measure(subject)
                json.dumps(found.to_dict(), allow_nan=False)
                assert len(found.brief) <= 40
                assert found.says.endswith(".")
                known = not spec.learned or values is not None
                if known and length > 1:
                    assert found.state == ("not applicable" if measure is edges and not _has_rows(spec) else "measured")


def _has_rows(spec):
    return hasattr(spec, "rows")


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_learned_numbers_of_another_library_are_the_same_numbers(library):
    spec, table = Buckets(2), np.random.default_rng(3).standard_normal((32, 2)).astype(np.float32)
    if library == "torch":
        torch = pytest.importorskip("torch")
        given = torch.nn.Parameter(torch.from_numpy(table.copy()))
    else:
        given = pytest.importorskip("jax.numpy").asarray(table)
    assert properties(spec, 64, values=given).reach == properties(spec, 64, values=table).reach
    assert properties(spec, 64, "bfloat16", values=given).told_apart.holds is False
    with pytest.raises(TypeError, match="must be a dict"):
        properties(Kerple(2), 64, values=given)
