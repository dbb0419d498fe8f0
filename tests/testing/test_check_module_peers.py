"""Modules of Transformers: those that lose their rates are told so, however that comes about.

What is wrong in the modules of other libraries as they are stands in tests/recognition/faults/peer_defects.py.
"""

import pytest

import clockhands as ch
from clockhands.encodings.scaling import Dynamic, Llama3
from clockhands.testing import check_module
from late import Late

torch = Late("torch")
pytestmark = pytest.mark.slow
WAVES = "x, positions -> cos, sin"

SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALED |= {"original_max_position_embeddings": 1024}


def named(report):
    return {(one.codes[0], one.where) for one in report.explanations}


def failed(report):
    return {one.experiment for one in report.failures}


def llama(**parameters):
    transformers = pytest.importorskip("transformers")
    modeling = pytest.importorskip("transformers.models.llama.modeling_llama")
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "head_dim": 32, "num_hidden_layers": 1}
    sizes |= {"intermediate_size": 64, "vocab_size": 50, "max_position_embeddings": 2048}
    parameters = {"rope_type": "default", "rope_theta": 10_000.0, **parameters}
    return modeling, transformers.LlamaConfig(**sizes, rope_parameters=parameters)


CAST = {("cast-changes-numbers", "inv_freq"), ("lost-by-to-empty", "inv_freq")}


class TestLlama:
    def test_its_rates_are_cast_along(self):
        modeling, config = llama()

        def make():
            return modeling.LlamaRotaryEmbedding(config)

        report = check_module(make(), ch.Rotary(32), call=WAVES, make=make, raises=False)
        assert named(report) == CAST
        assert not {"every position", "deepcopy", "autocast", "state dict"} & failed(report)

    def test_its_model_fills_them_anew(self):
        modeling, config = llama()
        model = modeling.LlamaForCausalLM(config)
        options = {"call": WAVES, "restore": model._init_weights, "raises": False}
        report = check_module(model.model.rotary_emb, ch.Rotary(32), **options)
        assert named(report) == {("cast-changes-numbers", "inv_freq")}

    def test_a_scaling_that_was_set_too_late(self):
        modeling, config = llama()
        module = modeling.LlamaRotaryEmbedding(config)
        config.rope_parameters = SCALED | {"rope_theta": 10_000.0}
        report = check_module(module, ch.Rotary(32, scaling=Llama3(8.0, 1024)), call=WAVES, raises=False)
        assert report.explanations[0].codes == ("scaling-inert",)
        assert report.explanations[0].where == "inv_freq"

    def test_dynamic(self):
        modeling, config = llama(rope_type="dynamic", factor=2.0)
        module = modeling.LlamaRotaryEmbedding(config)
        found = named(check_module(module, call=WAVES, raises=False))
        # What a long sequence makes anew is right again; the kept original is not.
        assert found == {("cast-changes-numbers", "original_inv_freq"), ("lost-by-to-empty", "original_inv_freq")}
        spec = ch.Rotary(32, scaling=Dynamic(2.0, 2048))
        assert "every position" not in failed(check_module(module, spec, call=WAVES, raises=False))


def test_glm_turns_neighbours_by_tiled_waves():
    transformers = pytest.importorskip("transformers")
    modeling = pytest.importorskip("transformers.models.glm.modeling_glm")
    config = transformers.GlmConfig(hidden_size=128, num_attention_heads=2, head_dim=64)
    spec = ch.Rotary(64, layout="interleaved", rotated=32)
    assert named(check_module(modeling.GlmRotaryEmbedding(config), spec, call=WAVES, raises=False)) == CAST
