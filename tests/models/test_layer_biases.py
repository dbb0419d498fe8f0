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


def test_a_sign_that_leaves_one_bucket_is_told_for_each_stack(monkeypatch):
    """With distances of the other sign, all keys of a decoder are in bucket 0: a constant shows no distance."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers.models.t5.modeling_t5 import T5Attention

    from probes.tiny_models import tiny

    right = T5Attention._relative_position_bucket
    turned = staticmethod(lambda distances, *more, **how: right(-distances, *more, **how))
    monkeypatch.setattr(T5Attention, "_relative_position_bucket", turned)
    found = ch.probe(tiny("t5"), measure=["live"], windows=1, length=16)["live"].numbers["findings"]
    encoder, decoder = (
        next(each for each in found if f"scores of {stack}.block.0" in each["message"])
        for stack in ("encoder", "decoder")
    )
    assert "differs from the declared one: head" in encoder["message"]
    assert decoder["message"].startswith("No bias, or the same at each distance, is added to the scores of decoder.")
    assert {each["layers"] for each in (encoder, decoder)} == {"0-2"}


def test_each_layer_may_hold_its_own_buckets():
    """UMT5: the table of each layer is its own, and that of the layer that differs is named."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from probes.tiny_models import small

    model = small("umt5")
    result = ch.probe(model, measure=["live"], windows=1, length=16)["live"]
    assert result.numbers["findings"] == []
    assert result.numbers["biases_checked"] > 0
    assert result.answers[0].startswith("The declared positions are in effect in all")
    table = model.encoder.block[1].layer[0].SelfAttention.relative_attention_bias
    table.register_forward_hook(lambda *given: -given[-1])
    (found,) = ch.probe(model, measure=["live"], windows=1, length=16)["live"].numbers["findings"]
    assert (found["code"], found["layers"]) == ("run-differs", "1")
