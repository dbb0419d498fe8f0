"""The layers for multi-token prediction: a second use of the rotation, after the layers of the model."""

import importlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from clockhands.auditing import audit
from clockhands.configs.model_types import table
from clockhands.configs.resolved import MTP
from configs import test_indexers
from configs.expected import resolved
from written_files import entry, gguf_bytes, gguf_key, safetensors_bytes

DEEPSEEK = test_indexers.DEEPSEEK | {"model_type": "deepseek_v3"}
QWEN = {
    "model_type": "qwen3_next", "hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 8,
    "head_dim": 256, "partial_rotary_factor": 0.25, "rope_theta": 1e7, "max_position_embeddings": 262144,
    "full_attention_interval": 4,
}  # fmt: skip
MELLUM = {"model_type": "mellum", "num_hidden_layers": 4, "layer_types": ["full_attention", "sliding_attention"] * 2}
V4 = {"model_type": "deepseek_v4", "num_hidden_layers": 4, "num_nextn_predict_layers": 1}
TABLE = {name: says for name, says in table()["multi_token_prediction"].items() if name != "says"}


def audited(tmp_path, config, *names):
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if names:
        held = {name: entry(offsets=(8 * place, 8 * place + 8)) for place, name in enumerate(names)}
        (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(held, bytes(8 * len(names))))
    return audit(tmp_path)


def further(found):
    return [code for code in found.layers if code.part == MTP]


@pytest.mark.parametrize("key", ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"])
def test_declared_layers_follow_those_of_the_model_with_the_same_code(tmp_path, key):
    found = audited(tmp_path, DEEPSEEK | {key: 2})
    (text, code) = found.layers
    assert (text.part, text.layers, code.layers) == ("text", "0-3", "4-5")
    assert (code.spec, code.rates, code.score_scale) == (text.spec, text.rates, text.score_scale)
    assert code.usable_length == text.usable_length == 163840
    assert code.source["layers"] == f"config.json:{key}"
    assert code.source["kind"].startswith("as the other layers")


def test_what_is_no_number_of_layers_declares_none(cases):
    for number in (0, None, -1, "1", 1000, True, [1]):
        with cases(number):
            codes = resolved(DEEPSEEK | {"num_nextn_predict_layers": number}).codes
            assert [code.part for code in codes] == ["text"]


def test_keys_that_contradict_each_other_leave_the_number_open(tmp_path):
    (code,) = further(audited(tmp_path, DEEPSEEK | {"num_nextn_predict_layers": 1, "num_mtp_modules": 7}))
    assert code.layers is None
    assert code.source["layers"] == "config.json:num_nextn_predict_layers, config.json:num_mtp_modules"


def test_where_layers_differ_the_type_says_which_the_further_ones_are_like(cases):
    for config, expected in (
        (QWEN | {"num_nextn_predict_layers": 1}, [("8", "rotary", 1e7, None)]),
        (V4 | {"compress_ratios": [4, 128, 4, 128, 0]}, [("4", "rotary", 10000.0, 128)]),
        (V4 | {"compress_ratios": [0, 128, 4, 128, 4]}, [("4", "rotary", 160000.0, None)]),
        (MELLUM | {"num_mtp_layers": 1}, [("4", "rotary", 10000.0, 1024)]),
        (MELLUM | {"num_mtp_layers": 1, "mtp_layer_types": ["full_attention"]}, [("4", "rotary", 500000.0, None)]),
        # Lists may go on with layers of several kinds.
        (
            V4 | {"compress_ratios": [4, 128, 4, 128, 0, 4, 4], "num_nextn_predict_layers": 3},
            [("4", "rotary", 10000.0, 128), ("5-6", "rotary", 160000.0, None)],
        ),
    ):
        with cases(config):
            codes = [code for code in resolved(config).codes if code.part == MTP]
            assert sorted((code.layers, code.kind, code.base, code.window) for code in codes) == expected


def test_what_no_code_was_read_for_is_said_not_to_be_known(cases):
    for config in (
        {"model_type": "dots3_note_text", "num_nextn_predict_layers": 1},
        V4 | {"compress_ratios": [4, 128, 0, 0]},
        {"model_type": "gemma3_text", "num_nextn_predict_layers": 1},
    ):
        with cases(config):
            found = resolved(config)
            assert MTP not in [code.part for code in found.codes]
            said = "clockhands does not know the position encoding of the layers for multi-token"
            assert said in " ".join(found.notes)
            assert "multi-token" in " ".join(found.not_covered)  # so that nothing is called correct


def test_what_transformers_does_with_such_layers_is_a_note(tmp_path):
    (built,) = audited(tmp_path, DEEPSEEK | {"num_nextn_predict_layers": 1}).notes
    assert built == (
        "Transformers 5.23.0 makes the layers for multi-token prediction (4) for generate(use_mtp=True) only."
    )
    (left,) = audited(tmp_path, QWEN | {"num_nextn_predict_layers": 1}).notes
    said = (
        "Transformers 5.23.0 does not make the layers for multi-token prediction (8) of qwen3_next, and ignores their"
    )
    place = r"Qwen3NextModel, transformers/models/qwen3_next/modeling_qwen3_next\.py:\d+"
    assert re.fullmatch(rf"{re.escape(said)} weights \({place}\)\.", left)
    assert audited(tmp_path, DEEPSEEK).notes == audited(tmp_path, {"model_type": "llama"}).notes == ()


def test_weights_show_layers_that_no_key_declares(tmp_path, cases):
    for names, layers in (
        (["model.layers.4.eh_proj.weight", "model.layers.4.self_attn.o_proj.weight"], "4"),
        (["model.layers.4.enorm.weight", "model.layers.5.enorm.weight"], "4-5"),
        (["mtp.fc.weight", "mtp.layers.0.mlp.gate.weight"], "4"),
        (["model.mtp_layers.0.norm.weight", "model.mtp_layers.1.norm.weight"], "4-5"),
        (["mtp.0.attn.wkv.weight"], "4"),
    ):
        with cases(names):
            (code,) = further(audited(tmp_path, DEEPSEEK, *names))
            assert code.layers == layers
            assert code.source["layers"] == f"model.safetensors:{names[0]}"
    names = ["model.layers.3.self_attn.o_proj.weight", "model.layers.3.enorm.weight", "smtp.weight"]
    assert not further(audited(tmp_path, DEEPSEEK, *names))


def test_the_layers_of_a_gguf_file_count_the_further_ones(tmp_path):
    keys = {"block_count": 29, "context_length": 131072, "embedding_length": 2560, "attention.head_count": 20}
    entries = [gguf_key("general.architecture", "string", "ernie4_5-moe")]
    entries += [gguf_key(f"ernie4_5-moe.{key}", "uint32", value) for key, value in keys.items()]
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(entries))
    assert [(code.part, code.layers) for code in audit(path).layers] == [("text", "0-28")]
    path.write_bytes(gguf_bytes([*entries, gguf_key("ernie4_5-moe.nextn_predict_layers", "uint32", 1)]))
    text, code = audit(path).layers
    assert (text.part, text.layers, code.part, code.layers) == ("text", "0-27", MTP, "28")
    assert code.spec == text.spec
    assert code.source["layers"] == "model.gguf:ernie4_5-moe.nextn_predict_layers"


def test_every_class_that_ignores_such_weights_is_in_the_table():
    """Found by machine: classes that ignore weights named mtp, or layers of a fixed number."""
    found = importlib.util.find_spec("transformers")
    if found is None or found.origin is None:
        pytest.skip("Transformers is not installed")
    ignoring: dict[str, str] = {}
    for file in Path(found.origin).parent.glob("models/*/modeling_*.py"):
        listed = re.findall(r"_keys_to_ignore_on_load_unexpected = \[(.*?)\]", file.read_text("utf-8"), re.DOTALL)
        said = " ".join(listed).replace("\\", "")
        if re.search(r"mtp|layers\.\d", said):
            ignoring[file.parent.name] = said
    # The parts of a model that has its own class for them, and a draft that is no head of the model.
    others = {"granite_docling", "nemotron3_5_transcribe", "mistral_large4"}
    named = {name.removesuffix("_text"): says for name, says in TABLE.items()}
    assert set(ignoring) - others == set(named) - {"step3p5"}
    for name, said in ignoring.items():
        for place in named[name]["ignored"].split(" and ") if name in named else ():
            assert place.removeprefix("model.") in said.replace("(language_model.)?", "")


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_a_class_makes_these_layers_if_its_config_counts_them(name):
    transformers: Any = importlib.import_module("transformers")
    config = transformers.CONFIG_MAPPING["step3p7" if name == "step3p5" else name]()
    assert hasattr(config.get_text_config(), "num_mtp_layers") == TABLE[name].get("built", False)


@pytest.mark.slow
def test_the_layers_that_transformers_makes_have_the_rotation_of_the_model(tmp_path):
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    layers: Any = importlib.import_module("transformers.modeling_layers")
    small = {
        "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2,
        "intermediate_size": 32, "moe_intermediate_size": 16, "vocab_size": 32, "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8, "v_head_dim": 8, "q_lora_rank": 16, "kv_lora_rank": 16, "n_routed_experts": 8,
        "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "num_nextn_predict_layers": 2,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 5e4, "factor": 3.0},
    }  # fmt: skip
    config = transformers.AutoConfig.for_model("deepseek_v3", **small)
    main = transformers.AutoModelForCausalLM.from_config(config)
    head = layers.MtpModel(main, 2)
    assert len(head.layers) == 2
    assert head.rotary_emb is main.model.rotary_emb
    kinds = {type(layer.mtp_block.self_attn) for layer in head.layers}
    assert kinds == {type(main.model.layers[0].self_attn)}
    (code,) = further(audited(tmp_path, {"model_type": "deepseek_v3", **small}))
    assert code.layers == "2-3"
    assert torch.allclose(head.rotary_emb.inv_freq.double(), torch.tensor(code.rates, dtype=torch.float64), rtol=1e-6)
