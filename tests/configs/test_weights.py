"""Headers of weights: beside a config, and alone."""

from pathlib import Path

import numpy as np
import pytest

from clockhands.configs.resolve import resolve
from clockhands.configs.targets import Opened
from clockhands.formats.arrays import TensorInfo


class InMemory(Opened):
    """An opened file whose tensors are at hand."""

    def array(self, name):
        return np.array([1.0, 0.1], np.float32)


def opened(shapes, config=None):
    infos = {name: TensorInfo(name, "float32", shape, Path("model.safetensors"), 0) for name, shape in shapes.items()}
    form = "safetensors" if config is None else "config"
    name = None if config is None else "config.json"
    return InMemory(target="model", form=form, config=config, config_name=name, tensors=infos)


BERT = {"model_type": "bert", "max_position_embeddings": 512, "hidden_size": 384}
TABLE = "embeddings.position_embeddings.weight"


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_a_table_counts_its_own_rows(prefix):
    found = resolve(opened({f"{prefix}{TABLE}": (512, 384)}, BERT))
    assert found.codes[0].source["rows"] == f"model.safetensors:{prefix}{TABLE}"
    assert not found.facts


@pytest.mark.parametrize("shape", [(510, 384), (512, 128)])
def test_a_table_of_another_shape_is_a_fact(shape):
    found = resolve(opened({TABLE: shape}, BERT))
    assert (found.codes[0].rows, found.codes[0].width) == shape
    assert found.context == 512
    (fact,) = found.facts
    assert fact.code == "table-size"
    assert fact.evidence[f"model.safetensors:{TABLE}"] == list(shape)


def test_a_table_of_three_axes_is_taken_where_one_has_the_size_1():
    found = resolve(opened({TABLE: (2, 512, 384)}, BERT))
    assert (found.codes[0].rows, found.facts[0].code) == (512, "table-size")
    found = resolve(opened({TABLE: (1, 512, 384)}, BERT))  # as the class of ViT has it
    assert (found.codes[0].rows, found.codes[0].width, found.facts) == (512, 384, ())


def test_headers_alone():
    shapes = {
        "model.encoder.embed_positions.weight": (1026, 1024),
        "layers.0.self_attn.rotary_emb.inv_freq": (2,),
        "layers.1.self_attn.rotary_emb.inv_freq": (2,),
        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": (32, 8),
        "lm_head.weight": (100, 1024),
    }
    found = resolve(opened(shapes))
    assert [(code.part, code.kind, code.rows, code.rates) for code in found.codes] == [
        ("encoder", None, 1026, None),
        ("text", "rotary", None, (1.0, pytest.approx(0.1))),
        ("decoder", "buckets", None, None),
    ]
    assert found.model_type is found.context is None


def test_headers_that_say_nothing():
    found = resolve(opened({"lm_head.weight": (100, 1024)}))
    assert [code.kind for code in found.codes] == [None]
    assert found.facts[0].code == "nothing-declared"
