"""How far a ladder reaches, and lengths that disagree: each finding where it belongs, and not where it does not."""

import io
import json

import numpy as np
import pytest

import clockhands as ch
from auditing.model_files import audited, of_code
from clockhands.show.terminal import in_short

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 2,
    "max_position_embeddings": 4096, "rope_theta": 10000.0,
}  # fmt: skip
ROBERTA = {
    "model_type": "roberta", "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 2,
    "max_position_embeddings": 514, "pad_token_id": 1, "vocab_size": 50265,
}  # fmt: skip
COHERE = {
    "model_type": "cohere", "hidden_size": 8192, "num_attention_heads": 64, "num_hidden_layers": 2,
    "max_position_embeddings": 8192, "rope_theta": 8e6,
}  # fmt: skip


def findings(config, code, **more):
    audit = ch.audit("-", stdin=io.BytesIO(json.dumps(config | more).encode()))
    return [finding for finding in audit.findings if finding.code == code]


def in_a_folder(folder, config, **documents):
    for name, document in {"config": config, **documents}.items():
        (folder / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    return [finding for finding in ch.audit(folder).findings if finding.code == "lengths-differ"]


def test_a_base_that_is_low_for_the_context_is_a_note():
    (finding,) = findings(LLAMA, "base-below-bound")
    assert (finding.severity, finding.layers) == ("note", "0-1")
    assert finding.evidence["first failing distance"] == 1707
    assert finding.evidence["<stdin>:rope_theta"] == 10000.0
    assert not findings(LLAMA, "base-below-bound", max_position_embeddings=1707)
    assert not findings(LLAMA, "base-below-bound", rope_theta=1e6)


def test_a_window_within_which_the_base_holds_is_enough():
    mistral = LLAMA | {"model_type": "mistral"}
    assert not findings(mistral, "base-below-bound", sliding_window=1024)
    (finding,) = findings(mistral, "base-below-bound", sliding_window=2048)
    assert (finding.evidence["reach"], finding.evidence["<stdin>:sliding_window"]) == (2048, 2048)


def test_a_head_of_which_half_turns_is_not_bound():
    phi = LLAMA | {"model_type": "phi", "max_position_embeddings": 65536}
    assert not findings(phi, "base-below-bound", partial_rotary_factor=0.5)
    assert findings(phi, "base-below-bound", partial_rotary_factor=1.0)


def test_tokens_that_stand_at_two_counters_have_no_single_distance():
    chatglm = {"model_type": "chatglm", "hidden_size": 4096, "num_attention_heads": 32, "num_layers": 28}
    assert not findings(chatglm, "base-below-bound", max_sequence_length=2048, position_encoding_2d=True)


def test_a_scaling_that_depends_on_the_length_is_looked_at_where_it_is_used():
    """LongRoPE's rates at its original length are not those at the context."""
    block = {"type": "longrope", "short_factor": [1.0] * 64, "long_factor": [1e4] * 64}
    long = LLAMA | {"model_type": "phi3", "rope_scaling": block, "original_max_position_embeddings": 4096}
    assert not findings(long, "base-below-bound", max_position_embeddings=16384)
    block["long_factor"] = [1.0] * 64
    assert findings(long, "base-below-bound", max_position_embeddings=16384)


def test_a_longer_length_in_the_config_is_a_warning():
    (finding,) = findings(LLAMA, "lengths-differ", model_max_length=131072)
    assert (finding.severity, finding.blames) == ("warning", "ambiguous")
    assert finding.evidence["<stdin>:model_max_length"] == 131072
    assert not findings(LLAMA, "lengths-differ", model_max_length=4096)
    assert not findings(LLAMA, "lengths-differ", model_max_length=int(1e30))


@pytest.mark.parametrize(
    ("config", "more"),
    [
        (COHERE, {"model_max_length": 131072}),
        (LLAMA, {"rope_scaling": {"type": "linear", "factor": 4.0}, "model_max_length": 16384}),
        (LLAMA, {"seq_length": 2048}),
    ],
)
def test_a_family_that_is_published_so_a_scaling_that_reaches_it_and_a_shorter_one_are_notes(config, more):
    (finding,) = findings(config, "lengths-differ", **more)
    assert (finding.severity, finding.blames) == ("note", None)


def test_lengths_beside_the_config(tmp_path):
    (finding,) = in_a_folder(tmp_path, LLAMA, tokenizer_config={"model_max_length": 8192})
    assert finding.severity == "warning"
    assert finding.evidence["tokenizer_config.json:model_max_length"] == 8192
    assert not in_a_folder(tmp_path, LLAMA, tokenizer_config={"model_max_length": 1000000000000000019884624838656})
    (finding,) = in_a_folder(tmp_path, LLAMA, tokenizer_config={}, generation_config={"max_length": 32768})
    assert finding.evidence["generation_config.json:max_length"] == 32768
    assert not in_a_folder(tmp_path, LLAMA, tokenizer_config={}, generation_config={"max_length": 20})


def test_a_tokenizer_of_qwen_gives_the_length_of_another_model(tmp_path):
    qwen = LLAMA | {"model_type": "qwen2", "rope_theta": 1e6, "max_position_embeddings": 32768}
    (finding,) = in_a_folder(tmp_path, qwen, tokenizer_config={"model_max_length": 131072})
    assert finding.severity == "note"
    assert "longest model of the family" in finding.message


def test_the_length_of_a_table_is_a_wall(tmp_path):
    (finding,) = in_a_folder(tmp_path, ROBERTA, tokenizer_config={"model_max_length": 1024})
    assert finding.severity == "warning"
    assert "read past the end of the table of 512 positions" in finding.message
    assert not in_a_folder(tmp_path, ROBERTA, tokenizer_config={"model_max_length": 512})


@pytest.mark.parametrize("length", [514, 512])
def test_rows_before_the_first_position_are_counted_by_some(tmp_path, length):
    assert not in_a_folder(tmp_path, ROBERTA, tokenizer_config={"model_max_length": length})


@pytest.mark.parametrize("value", ["4096", True, None, -1, [1]])
def test_what_is_no_length_is_left_alone(value):
    assert not findings(LLAMA, "lengths-differ", model_max_length=value)


def test_a_short_table_is_mended_by_the_length_that_it_has(tmp_path):
    bert = ROBERTA | {"model_type": "bert", "max_position_embeddings": 1024}
    table = np.random.default_rng(1).normal(size=(512, 768)).astype(np.float32)
    model = {"config.json": bert, "model.safetensors": {"embeddings.position_embeddings.weight": table}}
    (finding,) = of_code(audited(tmp_path, model), "short-table")
    assert finding.edit is not None
    assert finding.edit.patch == ({"op": "replace", "path": "/max_position_embeddings", "value": 512},)
    mended = model | {"config.json": bert | {"max_position_embeddings": 512}}
    assert not of_code(audited(tmp_path, mended), "short-table", "table-size")


def test_rows_before_the_first_position_are_a_note():
    (finding,) = findings(ROBERTA, "padding-offset")
    assert (finding.severity, finding.evidence["usable"]) == ("note", 512)
    bert = ROBERTA | {"model_type": "bert"}
    assert not findings(bert, "padding-offset")


@pytest.mark.parametrize(("dtype", "first"), [("bfloat16", 257), ("float16", 2049)])
def test_positions_that_the_dtype_cannot_tell_apart(dtype, first):
    (finding,) = findings(LLAMA, "colliding-positions", torch_dtype=dtype)
    assert (finding.severity, finding.evidence["first"]) == ("note", first)
    assert finding.evidence["<stdin>:torch_dtype"] == dtype
    assert findings(LLAMA, "colliding-positions", dtype=dtype)
    assert not findings(LLAMA, "colliding-positions", torch_dtype=dtype, max_position_embeddings=first)
    assert not findings(ROBERTA, "colliding-positions", torch_dtype=dtype)  # a table is looked up by whole numbers


def test_float32_tells_all_positions_apart():
    assert not findings(LLAMA, "colliding-positions", torch_dtype="float32")
    assert not findings(LLAMA, "colliding-positions")


NEOX = {"num-layers": 2, "hidden-size": 64, "num-attention-heads": 4, "max-position-embeddings": 2048}
MEGATRON = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "position_embedding_type": "rope",
            "max_position_embeddings": 2048}  # fmt: skip
LITGPT = {"n_layer": 2, "n_embd": 128, "n_head": 4, "block_size": 2048}
TENSORRT = {"architecture": "LlamaForCausalLM", "position_embedding_type": "rope_gpt_neox", "num_hidden_layers": 2,
            "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 2048}  # fmt: skip
TABLE = {"position_embedding_type": "learned_absolute"}
GENAI = {"context_length": 2048, "type": "llama", "decoder": {"head_size": 64, "num_hidden_layers": 2}}
TORCHTUNE = {"_component_": "torchtune.models.llama2.llama2_7b"}


@pytest.mark.parametrize(
    ("name", "config", "keys", "severity"),
    [
        ("neox.yml", lambda more: NEOX | {"pos-emb": "rotary", "seq-length": 2048 + more}, "seq-length", "error"),
        ("args.yaml", lambda more: MEGATRON | {"seq_length": 2048 + more}, "seq_length", "error"),
        ("args.yaml", lambda more: {"language_model": MEGATRON, "seq_length": 2048 + more}, "seq_length", "error"),
        ("nemo.yaml", lambda more: {"model": MEGATRON | {"encoder_seq_length": 2048 + more}},
         "model.encoder_seq_length", "warning"),
        ("nemo.yaml", lambda more: {"model": MEGATRON | {"data": {"seq_length": 2048 + more}}},
         "model.data.seq_length", "warning"),
        ("pretrain.yaml", lambda more: {"model_config": LITGPT, "train": {"max_seq_length": 2048 + more}},
         "train.max_seq_length", "error"),
        ("config.json", lambda more: {"pretrained_config": TENSORRT, "build_config": {"max_seq_len": 2048 + more}},
         "build_config.max_seq_len", "warning"),
        ("config.json", lambda more: {"pretrained_config": TENSORRT | TABLE,
                                      "build_config": {"max_input_len": 2000, "max_output_len": 48 + more}},
         "build_config.max_input_len build_config.max_output_len", "error"),
        ("genai_config.json", lambda more: {"model": GENAI, "search": {"max_length": 2048 + more}},
         "search.max_length", "error"),
        ("recipe.yaml", lambda more: {"model": TORCHTUNE, "tokenizer": {"max_seq_len": 4096 + more}},
         "tokenizer.max_seq_len", "error"),
    ],
)  # fmt: skip
def test_a_length_that_a_program_is_given_beyond_the_context(tmp_path, name, config, keys, severity):
    def found(more):
        (tmp_path / name).write_text(json.dumps(config(more)), encoding="utf-8")
        codes = ("set-beyond-context", "lengths-differ")
        return [finding for finding in ch.audit(tmp_path / name).findings if finding.code in codes]

    assert found(0) == []
    (finding,) = found(1)
    assert (finding.code, finding.severity, finding.blames) == ("set-beyond-context", severity, "file")
    assert all(f"{name}:{key}" in finding.evidence for key in keys.split())
    assert finding.evidence["length"] == finding.evidence["context"] + 1


def test_an_engine_of_the_length_that_a_scaling_reaches_is_right(tmp_path):
    path = tmp_path / "config.json"
    for length, codes in ((8192, []), (8193, ["set-beyond-context"])):
        scaled = TENSORRT | {"rotary_scaling": {"type": "linear", "factor": 4.0}}
        path.write_text(json.dumps({"pretrained_config": scaled, "build_config": {"max_seq_len": length}}))
        assert [finding.code for finding in ch.audit(path).warnings if "context" in finding.code] == codes


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "t5", "n_positions": 512}, "There is no scaling to declare: relative position buckets"),
        ({"model_type": "bloom", "seq_length": 2048}, "There is no scaling to declare: ALiBi has no frequencies."),
        (
            {"model_type": "deberta-v2", "max_position_embeddings": 512, "position_biased_input": False}
            | {"relative_attention": True},
            "There is no scaling to declare: configs have",
        ),
        (  # its class has relative positions only where the config switches them on
            {"model_type": "deberta-v2", "max_position_embeddings": 512, "position_biased_input": False},
            "There is no scaling to declare: the model has no",
        ),
        ({"model_type": "marian", "max_position_embeddings": 512}, "There is no scaling to declare: configs have"),
        ({"model_type": "jamba", "max_position_embeddings": 512}, "There is no scaling to declare: the model has no"),
        ({"model_type": "llama", "max_position_embeddings": 2048}, "or declare the scaling"),
    ],
)
def test_the_advice_beyond_the_context_is_for_the_encoding(config, said):
    beyond = ch.audit("-", 4096, stdin=io.BytesIO(json.dumps(config).encode()))
    (found,) = [each for each in beyond.findings if each.code == "beyond-context"]
    assert said in found.hint
    assert not any("usable positions" in in_short(code) for code in beyond.layers)
