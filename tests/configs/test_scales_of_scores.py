"""What files say of the scale of attention scores, against what the classes of Transformers multiply queries by.

`stated/scales_of_scores.json` states what configs and GGUF files are resolved to.
"""

import importlib
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from clockhands.auditing import audit
from clockhands.cli import main
from clockhands.configs.model_types import model_type
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import INDEXER
from clockhands.configs.targets import Opened
from clockhands.encodings.scaling import yarn_magnitude
from clockhands.encodings.scores import ConstantScale, FloorLogScale, score_scale
from clockhands.encodings.specs import from_dict
from clockhands.runtimes.views import facts
from clockhands.show.report import report
from clockhands.show.terminal import print_audit

ROOT = Path(__file__).resolve().parents[2]

# Small models: steps of 16 tokens, so that a text of 64 has three of them.
ORIGINAL, TOKENS = 16, 64
POSITIONS = (0, ORIGINAL - 1, ORIGINAL, 3 * ORIGINAL)
SIZES = {
    "vocab_size": 32, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 16.0, "original_max_position_embeddings": ORIGINAL,
    "mscale": 1.0, "mscale_all_dim": 1.0,
}  # fmt: skip
LLAMA4 = SIZES | {
    "model_type": "llama4_text", "intermediate_size_mlp": 32, "num_local_experts": 1, "use_qk_norm": False,
    "attention_chunk_size": 16, "floor_scale": ORIGINAL, "attn_scale": 0.3,
}  # fmt: skip
MINISTRAL3 = SIZES | {"model_type": "ministral3", "rope_parameters": YARN | {"llama_4_scaling_beta": 0.3}}
MISTRAL4 = {name: size for name, size in SIZES.items() if name != "head_dim"} | {
    "model_type": "mistral4", "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 2, "num_experts_per_tok": 1, "n_shared_experts": 1,
    "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1, "rope_parameters": YARN | {"llama_4_scaling_beta": 0.3},
}  # fmt: skip


def resolved(config, name="config.json", form="config", **named):
    return resolve(Opened("x", form, config=config, config_name=name), **named)


def queries(config, monkeypatch) -> np.ndarray:
    """The queries of the first layer, as they reach the scores, times what the scores are scaled by."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    held = json.loads(json.dumps({key: value for key, value in config.items() if key != "model_type"}))
    built = transformers.CONFIG_MAPPING[config["model_type"]](**held)
    built._attn_implementation = "eager"
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(built).eval()
    seen: list[Any] = []
    code = __import__(type(model).__module__, fromlist=["eager_attention_forward"])
    attend = code.eager_attention_forward

    def watched(module, query, *given, scaling, **named):
        seen.append(query * scaling)
        return attend(module, query, *given, scaling=scaling, **named)

    monkeypatch.setattr(code, "eager_attention_forward", watched)
    with torch.no_grad():
        model(1 + torch.arange(TOKENS)[None] % 31)  # the row of token 0 is zero
    monkeypatch.setattr(code, "eager_attention_forward", attend)
    return seen[0][0].double().numpy()


def multiplied(config, without, monkeypatch) -> np.ndarray:
    """What the class multiplies queries by at each position: one number, the same for all heads and channels."""
    ratio = queries(config, monkeypatch) / queries(without, monkeypatch)
    numbers = np.median(ratio, axis=(0, 2))
    assert np.abs(ratio / numbers[None, :, None] - 1).max() < 1e-4
    return numbers


def block(config, **changed):
    """The config with other values in its rotary block; None takes one away."""
    held = {**config["rope_parameters"], **changed}
    return config | {"rope_parameters": {key: value for key, value in held.items() if value is not None}}


CASES = {
    "llama4_text, a layer that does not rotate": (
        LLAMA4 | {"no_rope_layers": [0, 1]},
        {"attn_temperature_tuning": False},
        FloorLogScale(ORIGINAL, 0.3, first=1),
    ),
    "llama4_text, a layer that rotates": (
        LLAMA4 | {"no_rope_layers": [1, 0]},
        {"attn_temperature_tuning": False},
        ConstantScale(1.0),
    ),
    "ministral3": (MINISTRAL3, block(MINISTRAL3, llama_4_scaling_beta=0.0), FloorLogScale(ORIGINAL, 0.3)),
    "mistral4": (
        MISTRAL4,
        block(MISTRAL4, llama_4_scaling_beta=0.0, mscale_all_dim=None, attention_factor=1.0),
        FloorLogScale(ORIGINAL, 0.3, factor=yarn_magnitude(16.0) ** 2),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_scale_is_what_the_class_multiplies_queries_by(case, monkeypatch):
    config, without, expected = CASES[case]
    numbers = multiplied(config, config | without, monkeypatch)
    assert numbers == pytest.approx(score_scale(expected, TOKENS), rel=1e-5)
    (first,) = [code for code in resolved(config).codes if code.layers in ("0", "0-1")]
    read = first.score_scale or ConstantScale(1.0)
    assert score_scale(read, POSITIONS) == pytest.approx(numbers[list(POSITIONS)], rel=1e-5)
    assert first.score_scale is None or first.score_scale == expected
    other = FloorLogScale(ORIGINAL, 0.3, first=0 if "llama4" in case else 1)
    assert score_scale(other, TOKENS) != pytest.approx(numbers, rel=1e-3), "this test must be able to fail"


def test_the_defaults_are_those_of_the_classes():
    transformers = pytest.importorskip("transformers")
    plain = transformers.Llama4TextConfig()
    assert plain.attn_temperature_tuning is True
    expected = FloorLogScale(plain.floor_scale, plain.attn_scale, first=1)
    found = resolved({"model_type": "llama4_text"}).codes
    assert [code.score_scale for code in found] == [None, expected]
    assert found[1].source["score_scale"] == "class default of llama4_text (transformers 5.23.0)"
    for name in ("ministral3", "mistral4"):
        held = transformers.CONFIG_MAPPING[name]().rope_parameters
        (code,) = resolved({"model_type": name}).codes
        assert isinstance(code.score_scale, FloorLogScale)
        assert code.score_scale.beta == held["llama_4_scaling_beta"]
        assert code.score_scale.original == held["original_max_position_embeddings"]


def test_the_types_with_a_magnitude_on_scores_are_those_whose_classes_have_one():
    transformers = pytest.importorskip("transformers")
    known = {name: found for name in transformers.CONFIG_MAPPING if (found := model_type(name)) and not found.sections}
    ours = {name.removesuffix("_text") for name, found in known.items() if found.scores.get("magnitude")}
    assert len(ours) > 10
    assert ours == {name for name in facts()["transformers-5"]["scores"] if model_type(name) is not None}


def test_the_magnitude_on_scores_is_that_of_the_class(cases):
    pytest.importorskip("transformers")
    changes = ({}, {"mscale_all_dim": 0.707}, {"mscale_all_dim": 0.0}, {"factor": 1.0}, {"rope_type": "default"})
    for name in ("deepseek_v2", "deepseek_v3", "glm_moe_dsa", "longcat_flash", "mistral4", "youtu"):
        code = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
        for changed in changes:
            with cases(name, changed):
                held = YARN | changed
                parameters = held if name != "mistral4" else held | {"llama_4_scaling_beta": 0.0}
                config = {"model_type": name, "num_hidden_layers": 2, "rope_parameters": parameters}
                (scale,) = (each.score_scale for each in resolved(config).codes if each.part != INDEXER)
                factor = code.yarn_apply_mscale(held, 1.0)
                assert (1.0 if scale is None else scale.factor) == pytest.approx(factor, rel=1e-12)


PARAMS = {
    "dim": 4096, "n_layers": 8, "n_heads": 32, "vocab_size": 202048, "rope_theta": 5e5, "head_dim": 128,
    "hidden_dim": 14336, "max_position_embeddings": 262144, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "kv_lora_rank": 512,
}  # fmt: skip
STEPS = {"llama_4_scaling": {"original_max_position_embeddings": 16384, "beta": 0.1}}
WIDE = {"original_max_position_embeddings": 16384, "factor": 16, "beta": 32, "alpha": 1}


def test_params_of_mistral_with_latent_attention():
    square = yarn_magnitude(16) ** 2
    for applied, factor in (({}, square), ({"apply_scale": True}, square), ({"apply_scale": False}, 1.0)):
        params = PARAMS | {"yarn": WIDE | applied}
        (code,) = resolved(params | STEPS, name="params.json").codes
        assert code.attention_factor == 1.0
        assert code.score_scale == FloorLogScale(16384, 0.1, factor=factor)
        (code,) = resolved(params, name="params.json").codes
        assert code.score_scale == (None if factor == 1 else ConstantScale(square))


def test_the_magnitude_of_a_gguf_file_is_one_on_the_scores():
    keys = {
        "block_count": 8, "context_length": 262144, "embedding_length": 4096, "attention.head_count": 32,
        "rope.freq_base": 1e6, "rope.dimension_count": 64, "rope.scaling.type": "yarn", "rope.scaling.factor": 16.0,
        "rope.scaling.original_context_length": 16384, "rope.scaling.yarn_log_multiplier": 0.1,
    }  # fmt: skip
    config = {"general.architecture": "deepseek2", **{f"deepseek2.{key}": value for key, value in keys.items()}}
    (code,) = resolved(config, name="model.gguf", form="gguf").codes
    assert (code.layers, type(code.score_scale)) == ("0-7", ConstantScale)
    assert code.score_scale.factor == pytest.approx((0.1 * math.log(16) + 1) ** 2, rel=1e-12)


def written(folder: Path, config) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def test_the_audit_shows_it(tmp_path):
    made = audit(written(tmp_path / "model", MINISTRAL3))
    layer = made.to_dict()["layers"][0]
    assert layer["score_scale"] == {"type": "FloorLogScale", "original": 16, "beta": 0.3, "first": 0, "factor": 1.0}
    assert from_dict(layer["score_scale"]) == made.layers[0].score_scale
    assert layer["source"]["score_scale"].startswith("config.json:rope_parameters.llama_4_scaling_beta")
    text = {}
    for verbose in (False, True):
        stream = io.StringIO()
        print_audit(made, file=stream, width=200, verbose=verbose)
        text[verbose] = " ".join(stream.getvalue().split())
    short = "scores multiplied by 1 + 0.3 ln(1 + floor(p / 16)) at position p"
    assert short in text[False]
    line = "scores multiplied by 1 + 0.3 ln(1 + floor(p / 16)) at position p: grows from position 16, 1.83178 at 255"
    assert line in text[True]
    assert "multiplied by 1 + 0.3 ln(1 + floor(p / 16)) at position p" in report([made], explorer=False)
    plain = audit(written(tmp_path / "plain", block(MINISTRAL3, llama_4_scaling_beta=0.0)))
    assert plain.to_dict()["layers"][0]["score_scale"] is None
    assert "ln(1 + floor" not in report([plain], explorer=False)


def test_two_models_that_differ_in_it_alone(tmp_path):
    first, second = (
        written(tmp_path / "a", MINISTRAL3),
        written(tmp_path / "b", block(MINISTRAL3, llama_4_scaling_beta=0.2)),
    )
    done = CliRunner().invoke(main, ["diff", str(first), str(second)], env={"COLUMNS": "300"})
    assert done.exit_code == 1
    assert (
        "scores multiplied by 1 + 0.3 ln(1 + floor(p / 16)) at position p against multiplied by"
        " 1 + 0.2 ln(1 + floor(p / 16)) at position p"
    ) in " ".join(done.output.split())


def test_the_scale_of_the_softmax_is_that_of_the_class_and_of_its_key(cases):
    """As the classes of Transformers compute it; nothing is said of a type whose class was not read."""
    for changed, scale, source in (
        ({"model_type": "llama"}, 8**-0.5, "config.json:head_dim, architecture of llama"),
        ({"model_type": "granite", "attention_multiplier": 0.25}, 0.25, "config.json:attention_multiplier"),
        ({"model_type": "granite"}, 1.0, "class default of granite"),
        ({"model_type": "gemma2", "query_pre_attn_scalar": 64}, 0.125, "config.json:query_pre_attn_scalar"),
        ({"model_type": "gemma2"}, 0.0625, "class default of gemma2"),
        ({"model_type": "hyperclovax"}, None, None),  # its default depends on the sizes
        ({"model_type": "gemma2", "query_pre_attn_scalar": "x"}, None, None),
        ({"model_type": "unheard-of"}, None, None),
        (MISTRAL4, 16**-0.5, "config.json:qk_nope_head_dim"),
    ):
        with cases(changed):
            code = next(each for each in resolved(SIZES | changed).codes if each.part == "text")
            assert code.softmax_scale == (scale and pytest.approx(scale))
            assert source is None or code.source["softmax_scale"].startswith(source)


def test_the_report_names_a_scale_of_the_softmax_that_is_not_that_of_the_width():
    unusual = audit(SIZES | {"model_type": "granite", "attention_multiplier": 0.25})
    assert "q k times 0.25, where 1 / sqrt(width of a head) is 0.353553" in report([unusual], explorer=False)
    assert "q k times" not in report([audit(SIZES | {"model_type": "llama"})], explorer=False)
    assert unusual.to_dict()["layers"][0]["softmax_scale"] == 0.25


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "granite", "gemma2", "deepseek_v3", "vaultgemma", "qwen3_next"])
def test_the_rules_are_those_of_the_classes(name):
    """The tool that reads the classes writes the same again."""
    pytest.importorskip("transformers")
    from clockhands.configs.softmax_scales import softmax_rules
    from softmax_scales import rule_of

    assert rule_of(name) == softmax_rules()[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "bloom", "opt", "t5"])
def test_the_rules_of_types_that_do_not_rotate_are_measured(name):
    """The tool that runs small models of them writes the same again."""
    pytest.importorskip("transformers")
    from clockhands.configs.softmax_scales import softmax_rules
    from softmax_scales import measured_rule

    assert measured_rule(name) == softmax_rules()[name]
