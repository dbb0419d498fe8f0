"""How far a ladder reaches, and lengths that disagree: each finding where it belongs, and not where it does not."""

import json

import numpy as np

import clockhands as ch
from auditing.model_files import audit_of, audited, of_code
from clockhands.auditing.layer_words import in_short

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
    return of_code(audit_of(config | more), code)


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


def test_a_family_that_is_published_so_a_scaling_that_reaches_it_and_a_shorter_one_are_notes(cases):
    for config, more in (
        (COHERE, {"model_max_length": 131072}),
        (LLAMA, {"rope_scaling": {"type": "linear", "factor": 4.0}, "model_max_length": 16384}),
        (LLAMA, {"seq_length": 2048}),
    ):
        with cases(more):
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
    for length in (514, 512):  # rows before the first position are counted by some
        assert not in_a_folder(tmp_path, ROBERTA, tokenizer_config={"model_max_length": length}), length


def test_what_is_no_length_is_left_alone():
    for value in ("4096", True, None, -1, [1]):
        assert not findings(LLAMA, "lengths-differ", model_max_length=value), value


def test_a_short_table_is_mended_by_the_length_that_it_has(tmp_path):
    bert = ROBERTA | {"model_type": "bert", "max_position_embeddings": 1024, "hidden_size": 48}
    table = np.random.default_rng(1).normal(size=(512, 48)).astype(np.float32)
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


def test_positions_that_the_dtype_cannot_tell_apart(cases):
    for dtype, first in (("bfloat16", 257), ("float16", 2049)):
        with cases(dtype):
            (finding,) = findings(LLAMA, "colliding-positions", torch_dtype=dtype)
            assert (finding.severity, finding.evidence["first"]) == ("note", first)
            assert finding.evidence["<stdin>:torch_dtype"] == dtype
            assert findings(LLAMA, "colliding-positions", dtype=dtype)
            assert not findings(LLAMA, "colliding-positions", torch_dtype=dtype, max_position_embeddings=first)
            # A table is looked up by whole numbers.
            assert not findings(ROBERTA, "colliding-positions", torch_dtype=dtype)
    assert not findings(LLAMA, "colliding-positions", torch_dtype="float32")
    assert not findings(LLAMA, "colliding-positions")


NEOX = {"num-layers": 2, "hidden-size": 64, "num-attention-heads": 4, "max-position-embeddings": 2048}
MEGATRON = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "position_embedding_type": "rope",
            "max_position_embeddings": 2048}  # fmt: skip
LITGPT = {"n_layer": 2, "n_embd": 128, "n_head": 4, "block_size": 2048}
TENSORRT = {"architecture": "LlamaForCausalLM", "position_embedding_type": "rope_gpt_neox", "num_hidden_layers": 2,
            "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 2048}  # fmt: skip
GENAI = {"context_length": 2048, "type": "llama", "decoder": {"head_size": 64, "num_hidden_layers": 2}}
TORCHTUNE = {"_component_": "torchtune.models.llama2.llama2_7b"}


# A file, its config for so many positions more than the context, the keys of the length, and the severity.
GIVEN = [
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
    ("config.json", lambda more: {"pretrained_config": TENSORRT | {"position_embedding_type": "learned_absolute"},
                                  "build_config": {"max_input_len": 2000, "max_output_len": 48 + more}},
     "build_config.max_input_len build_config.max_output_len", "error"),
    ("genai_config.json", lambda more: {"model": GENAI, "search": {"max_length": 2048 + more}},
     "search.max_length", "error"),
    ("recipe.yaml", lambda more: {"model": TORCHTUNE, "tokenizer": {"max_seq_len": 4096 + more}},
     "tokenizer.max_seq_len", "error"),
]  # fmt: skip


def test_a_length_that_a_program_is_given_beyond_the_context(cases, tmp_path):
    for name, config, keys, severity in GIVEN:
        found = {}
        for more in (0, 1):
            (tmp_path / name).write_text(json.dumps(config(more)), encoding="utf-8")
            found[more] = of_code(ch.audit(tmp_path / name), "set-beyond-context", "lengths-differ")
        with cases(name, keys):
            assert found[0] == []
            (finding,) = found[1]
            assert (finding.code, finding.severity, finding.blames) == ("set-beyond-context", severity, "file")
            assert all(f"{name}:{key}" in finding.evidence for key in keys.split())
            assert finding.evidence["length"] == finding.evidence["context"] + 1


def test_an_engine_of_the_length_that_a_scaling_reaches_is_right(tmp_path):
    path = tmp_path / "config.json"
    for length, codes in ((8192, []), (8193, ["set-beyond-context"])):
        scaled = TENSORRT | {"rotary_scaling": {"type": "linear", "factor": 4.0}}
        path.write_text(json.dumps({"pretrained_config": scaled, "build_config": {"max_seq_len": length}}))
        assert [finding.code for finding in ch.audit(path).warnings if "context" in finding.code] == codes


def test_the_advice_beyond_the_context_is_for_the_encoding(cases):
    deberta = {"model_type": "deberta-v2", "max_position_embeddings": 512, "position_biased_input": False}
    nothing = "There is no scaling to declare: "
    for config, said in (
        ({"model_type": "t5", "n_positions": 512}, f"{nothing}relative position buckets"),
        ({"model_type": "bloom", "seq_length": 2048}, f"{nothing}ALiBi has no frequencies."),
        (deberta | {"relative_attention": True}, f"{nothing}configs have"),
        # Its class has relative positions only where the config switches them on.
        (deberta, f"{nothing}the model has no"),
        ({"model_type": "marian", "max_position_embeddings": 512}, f"{nothing}configs have"),
        ({"model_type": "jamba", "max_position_embeddings": 512}, f"{nothing}the model has no"),
        ({"model_type": "llama", "max_position_embeddings": 2048}, "or declare the scaling"),
    ):
        beyond = audit_of(config, 4096)
        with cases(config):
            (found,) = of_code(beyond, "beyond-context")
            assert said in found.hint
            assert not any("usable positions" in in_short(code) for code in beyond.layers)
