"""Modules of libraries: those that lose their rates by a cast are told so, those that are right pass."""

import pytest

import clockhands as ch
from clockhands.scaling import Dynamic, Llama3
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

    def test_scaled(self):
        modeling, config = llama(**SCALED, rope_theta=500_000.0)
        spec = ch.Rotary(32, base=500_000.0, scaling=Llama3(8.0, 1024))
        module = modeling.LlamaRotaryEmbedding(config)
        assert named(check_module(module, spec, call=WAVES, raises=False)) == CAST

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


def test_gemma3_has_a_buffer_for_each_kind_of_layer():
    transformers = pytest.importorskip("transformers")
    modeling = pytest.importorskip("transformers.models.gemma3.modeling_gemma3")
    from clockhands.testing.modules._asking import turned_by

    config = transformers.Gemma3TextConfig(hidden_size=64, num_attention_heads=2, head_dim=32)
    for layers in ("full_attention", "sliding_attention"):
        report = check_module(
            modeling.Gemma3RotaryEmbedding(config),
            call=lambda module, x, at, layers=layers: turned_by(x, module(x, at, layers), "halves"),
            axes="batch heads seq width",
            positions="batch seq",
            width=32,
            raises=False,
        )
        assert ("cast-changes-numbers", f"{layers}_inv_freq") in named(report)


def test_glm_turns_neighbours_by_tiled_waves():
    transformers = pytest.importorskip("transformers")
    modeling = pytest.importorskip("transformers.models.glm.modeling_glm")
    config = transformers.GlmConfig(hidden_size=128, num_attention_heads=2, head_dim=64)
    spec = ch.Rotary(64, layout="interleaved", rotated=32)
    assert named(check_module(modeling.GlmRotaryEmbedding(config), spec, call=WAVES, raises=False)) == CAST


def test_positional_encodings():
    encodings = pytest.importorskip("positional_encodings.torch_encodings")

    def added(module, x):
        return x + module(x)

    report = check_module(
        encodings.PositionalEncoding1D(64), ch.Sinusoidal(width=64), call=added, axes="batch seq width", raises=False
    )
    assert named(report) == {("cache-keeps-first-dtype", None), ("cast-changes-numbers", "inv_freq")}


def test_rotary_embedding_torch():
    peer = pytest.importorskip("rotary_embedding_torch")
    report = check_module(peer.RotaryEmbedding(32), method="rotate_queries_or_keys", call="x", raises=False)
    assert {"coarse-path-differs", "cache-keeps-first-dtype"} == set(report.codes)


def test_diffusers_tables_are_right():
    embeddings = pytest.importorskip("diffusers.models.embeddings")
    table = embeddings.SinusoidalPositionalEmbedding(64, 1000)
    check_module(table, ch.Sinusoidal(width=64), call="x", axes="batch seq width")
    steps = embeddings.Timesteps(64, flip_sin_to_cos=True, downscale_freq_shift=0)
    check_module(steps, call=lambda module, x, positions: x + module(positions).to(x.dtype), width=64)
