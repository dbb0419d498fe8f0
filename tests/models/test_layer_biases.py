"""Biases that layers of a running model add to their scores, beside the declared ones."""

import ml_dtypes
import numpy as np
import pytest

import clockhands as ch
from clockhands.configs.resolved import LayerEncoding


def test_the_bias_of_a_head_may_be_off_by_its_own_rounding_and_no_more(cases):
    """In bfloat16, whose roundings of the first head are as large as the numbers of the last one."""
    pytest.importorskip("torch")
    from clockhands.models.layer_biases import DeclaredBias, LayerBias, differing_biases

    spec = ch.Alibi(8)
    code = LayerEncoding("text", "0", "alibi", spec=spec)
    rounded = np.array(ch.bias(spec, 24, 24)).astype(ml_dtypes.bfloat16).astype(float)
    for head, found in ((None, []), (0, ["slopes-differ"]), (7, ["slopes-differ"])):
        added = rounded.copy()
        if head is not None:
            added[head] *= 1 + 2.0**-4
        with cases(head):
            measured = {"h.0": LayerBias(0, "h.0", added, 0.0)}
            declared = {"h.0": DeclaredBias(code, spec, dtype="bfloat16")}
            assert [each.code for each in differing_biases(measured, declared)] == found
