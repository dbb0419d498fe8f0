"""What files say of the scale of attention scores, against what the classes of Transformers multiply queries by."""

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
from clockhands.readers.views import facts
from clockhands.scaling import yarn_magnitude
from clockhands.scores import ConstantScale, FloorLogScale, LogScale, score_scale
from clockhands.show.report import report
from clockhands.show.terminal import print_audit
from clockhands.sources.model_types import model_type
from clockhands.sources.resolve import resolve
from clockhands.sources.resolved import INDEXER
from clockhands.sources.targets import Opened
from clockhands.specs import from_dict

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


def scales(config, **named) -> dict[str | None, Any]:
    """Layers to the scale of their scores; an indexer's scores only select tokens, and no class scales them."""
    return {code.layers: code.score_scale for code in resolved(config, **named).codes if code.part != INDEXER}


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


@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v3", "glm_moe_dsa", "longcat_flash", "mistral4", "youtu"])
@pytest.mark.parametrize(
    "changed", [{}, {"mscale_all_dim": 0.707}, {"mscale_all_dim": 0.0}, {"factor": 1.0}, {"rope_type": "default"}]
)
def test_the_magnitude_on_scores_is_that_of_the_class(name, changed):
    pytest.importorskip("transformers")
    held = YARN | changed
    code = __import__(f"transformers.models.{name}.modeling_{name}", fromlist=["yarn_apply_mscale"])
    factor = code.yarn_apply_mscale(held, 1.0)
    parameters = held if name != "mistral4" else held | {"llama_4_scaling_beta": 0.0}
    (scale,) = scales({"model_type": name, "num_hidden_layers": 2, "rope_parameters": parameters}).values()
    assert (1.0 if scale is None else scale.factor) == pytest.approx(factor, rel=1e-12)


# --- configs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "qwen", "seq_length": 8192, "use_logn_attn": True}, LogScale(8192)),
        ({"model_type": "qwen", "seq_length": 8192}, LogScale(8192)),
        ({"model_type": "qwen", "seq_length": 8192, "use_logn_attn": False}, None),
        (LLAMA4 | {"no_rope_layers": [0, 0], "attn_temperature_tuning": 4}, FloorLogScale(ORIGINAL, 0.3, first=1)),
        (LLAMA4 | {"no_rope_layers": [0, 0], "attn_temperature_tuning": 0}, None),
        (LLAMA4 | {"no_rope_layers": [0, 0], "attn_scale": 0.0}, None),
        (block(MINISTRAL3, llama_4_scaling_beta=None), None),
        (block(MINISTRAL3, llama_4_scaling_beta=0.0), None),
        ({"model_type": "llama", "rope_scaling": YARN | {"llama_4_scaling_beta": 0.3}}, None),
    ],
)
def test_what_configs_say(config, expected):
    assert set(scales(config | {"num_hidden_layers": 2}).values()) == {expected}


def test_every_value_has_its_place_and_none_is_ignored():
    code = resolved(MINISTRAL3).codes[0]
    place = "config.json:rope_parameters"
    assert code.source["score_scale"] == f"{place}.llama_4_scaling_beta, {place}.original_max_position_embeddings"
    assert resolved(MINISTRAL3).ignored == {}
    llama = resolved({"model_type": "llama", "rope_scaling": YARN | {"llama_4_scaling_beta": 0.3}})
    assert llama.ignored == {"config.json:rope_scaling.llama_4_scaling_beta": 0.3}
    tuned = LLAMA4 | {"attn_temperature_tuning": True}
    (_, still) = resolved(tuned | {"num_hidden_layers": 4}).codes
    names = ("attn_temperature_tuning", "attn_scale", "floor_scale")
    assert still.source["score_scale"] == ", ".join(f"config.json:{name}" for name in names)
    unknown = resolved({"model_type": "nobody", "rope_theta": 1e4, "attn_temperature_tuning": True, "floor_scale": 64})
    assert set(unknown.ignored) == {"config.json:attn_temperature_tuning", "config.json:floor_scale"}


def test_what_cannot_be_used_is_a_fact():
    for config in (
        LLAMA4 | {"floor_scale": 0},
        LLAMA4 | {"attn_scale": -0.1},
        block(MINISTRAL3, llama_4_scaling_beta="x"),
    ):
        found = resolved(config | {"num_hidden_layers": 4})
        assert {code.score_scale for code in found.codes} == {None}
        assert [fact.code for fact in found.facts if fact.code != "default-base"] == ["impossible-value"]


# --- params.json --------------------------------------------------------------------------------------------------

PARAMS = {"dim": 4096, "n_layers": 8, "n_heads": 32, "vocab_size": 202048, "rope_theta": 5e5}
META = PARAMS | {"multiple_of": 2048, "nope_layer_interval": 4}
MISTRAL = PARAMS | {"head_dim": 128, "hidden_dim": 14336, "max_position_embeddings": 262144}
STEPS = {"llama_4_scaling": {"original_max_position_embeddings": 16384, "beta": 0.1}}
WIDE = {"yarn": {"original_max_position_embeddings": 16384, "factor": 16, "beta": 32, "alpha": 1}}
LATENT = {"qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "kv_lora_rank": 512}


def test_params_of_meta():
    off = scales(META, name="params.json")
    assert off == {"0-2,4-6": None, "3,7": None}
    on = scales(META | {"attn_temperature_tuning": True}, name="params.json")
    assert on == {"0-2,4-6": None, "3,7": FloorLogScale(8192, 0.1, first=1)}
    changed = scales(
        META | {"attn_temperature_tuning": True, "floor_scale": 4096.0, "attn_scale": 0.2}, name="params.json"
    )
    assert changed["3,7"] == FloorLogScale(4096, 0.2, first=1)


def test_params_of_mistral():
    found = resolved(MISTRAL | WIDE | STEPS, name="params.json")
    (code,) = found.codes
    assert (code.score_scale, code.attention_factor) == (FloorLogScale(16384, 0.1), pytest.approx(yarn_magnitude(16)))
    place = "params.json:llama_4_scaling"
    assert code.source["score_scale"] == f"{place}.beta, {place}.original_max_position_embeddings"
    assert found.ignored == {}
    assert scales(MISTRAL | WIDE, name="params.json") == {"0-7": None}
    half = resolved(MISTRAL | WIDE | {"llama_4_scaling": {"beta": 0.1}}, name="params.json")
    assert half.codes[0].score_scale is None


def test_params_of_mistral_with_latent_attention():
    square = yarn_magnitude(16) ** 2
    for applied, factor in (({}, square), ({"apply_scale": True}, square), ({"apply_scale": False}, 1.0)):
        params = MISTRAL | LATENT | {"yarn": WIDE["yarn"] | applied}
        (code,) = resolved(params | STEPS, name="params.json").codes
        assert code.attention_factor == 1.0
        assert code.score_scale == FloorLogScale(16384, 0.1, factor=factor)
        (code,) = resolved(params, name="params.json").codes
        assert code.score_scale == (None if factor == 1 else ConstantScale(square))


# --- GGUF ---------------------------------------------------------------------------------------------------------


def gguf(name, **keys):
    own = {
        "block_count": 8, "context_length": 262144, "embedding_length": 4096, "attention.head_count": 32,
        "rope.freq_base": 1e6, "rope.dimension_count": 64,
    }  # fmt: skip
    own |= {key.replace("__", "."): value for key, value in keys.items()}
    return {"general.architecture": name, **{f"{name}.{key}": value for key, value in own.items()}}


@pytest.mark.parametrize("name", ["ministral3", "mistral4"])
@pytest.mark.parametrize("beta", [{}, {"llama_4_scaling_beta": 0.1}])
def test_a_block_without_the_growth_is_incomplete(name, beta):
    # Transformers 5.23.0 multiplies None, and mlx-lm 0.32.2 raises a KeyError.
    block = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384, **beta}
    found = resolved({"model_type": name, "rope_parameters": block})
    said = [fact.evidence["missing"] for fact in found.facts if fact.code == "incomplete-scaling"]
    assert said == ([] if beta else ["llama_4_scaling_beta"])


YARN_KEYS = {
    "rope__scaling__type": "yarn", "rope__scaling__factor": 16.0, "rope__scaling__original_context_length": 16384,
}  # fmt: skip
TEMPERATURE = {"attention__temperature_scale": 0.1}
LENGTH = {"attention__temperature_length": 8192}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (gguf("llama4"), {"0-2,4-6": None, "3,7": FloorLogScale(8192, 0.1, first=1)}),
        (gguf("mistral3", **YARN_KEYS, **TEMPERATURE), {"0-7": FloorLogScale(16384, 0.1)}),
        (gguf("mistral3", **TEMPERATURE), {"0-7": FloorLogScale(262144, 0.1)}),
        (gguf("mistral3", **YARN_KEYS, attention__temperature_scale=0.0), {"0-7": None}),
        (gguf("mistral3", **YARN_KEYS), {"0-7": None}),
        (gguf("deepseek2", **TEMPERATURE, **LENGTH), {"0-7": FloorLogScale(8192, 0.1)}),
        (gguf("deepseek2", **TEMPERATURE), {"0-7": None}),
        (
            gguf("deepseek2", **YARN_KEYS, rope__scaling__yarn_log_multiplier=0.1),
            {"0-7": ConstantScale((0.1 * math.log(16) + 1) ** 2)},
        ),
        (gguf("llama", **TEMPERATURE, **LENGTH), {"0-7": None}),
    ],
)
def test_what_gguf_files_say(config, expected):
    found = scales(config, name="model.gguf", form="gguf")
    assert found == {layers: scale if scale is None else found[layers] for layers, scale in expected.items()}
    for layers, scale in expected.items():
        if scale is not None:
            assert score_scale(found[layers], [0, 8191, 16384]) == pytest.approx(
                score_scale(scale, [0, 8191, 16384]), rel=1e-12
            )


def test_temperature_keys_of_an_architecture_without_one_are_not_read():
    unread = resolved(gguf("llama", **TEMPERATURE, **LENGTH), name="model.gguf", form="gguf").ignored
    assert set(unread) == {
        "model.gguf:llama.attention.temperature_scale",
        "model.gguf:llama.attention.temperature_length",
    }
    read = resolved(gguf("deepseek2", **TEMPERATURE, **LENGTH), name="model.gguf", form="gguf").ignored
    assert read == {}


# --- what is said -------------------------------------------------------------------------------------------------


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


def test_the_schema_has_it(tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "docs" / "audit.schema.json").read_text(encoding="utf-8"))
    configs = {"a": {"model_type": "qwen", "num_hidden_layers": 2}, "b": MISTRAL4, "c": MINISTRAL3}
    document: dict[str, Any] = {"schema": 1}
    for name, config in configs.items():
        document["targets"] = [audit(written(tmp_path / name, config)).to_dict()]
        jsonschema.validate(document, schema)
    document["targets"][0]["layers"][0]["score_scale"]["type"] = "Rotary"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)


def test_two_models_that_differ_in_it_alone(tmp_path):
    first, second = (
        written(tmp_path / "a", MINISTRAL3),
        written(tmp_path / "b", block(MINISTRAL3, llama_4_scaling_beta=0.2)),
    )
    off = written(tmp_path / "c", block(MINISTRAL3, llama_4_scaling_beta=0.0))
    done = CliRunner().invoke(main, ["diff", str(first), str(second)], env={"COLUMNS": "300"})
    assert done.exit_code == 1
    assert (
        "scores multiplied by 1 + 0.3 ln(1 + floor(p / 16)) at position p against multiplied by"
        " 1 + 0.2 ln(1 + floor(p / 16)) at position p"
    ) in " ".join(done.output.split())
    done = CliRunner().invoke(main, ["diff", str(off), str(second)])
    assert "scores not scaled against multiplied by" in " ".join(done.output.split())
    assert CliRunner().invoke(main, ["diff", str(first), str(first)]).exit_code == 0
