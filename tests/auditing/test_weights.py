"""`audit(..., weights=True)`: how the weights pair channels, on real models in both orders and in wrong ones."""

import io
import json
import shlex

import numpy as np
import pytest
from click.testing import CliRunner

import packaged_weights
from auditing.model_files import Gguf, audited, fired, of_code
from clockhands.auditing import audit
from clockhands.auditing.findings.weights import LIMITS
from clockhands.cli import main
from clockhands.configs import projections as places
from clockhands.formats import gguf
from clockhands.show.terminal import print_audit

HEADS, KEYS = 9, 3
# Files of fewer matrices are taken for ones of tables; the file itself, with all its 30 layers, is `real`.
LAYERS = 10
CONFIG = {
    "model_type": "llama", "hidden_size": 576, "num_attention_heads": HEADS, "num_key_value_heads": KEYS,
    "head_dim": 64, "num_hidden_layers": 30, "max_position_embeddings": 8192, "rope_theta": 100000.0,
}  # fmt: skip


def rows_as_packaged():
    held = packaged_weights.smollm2(LAYERS)
    return held["q"], held["k"]


def rows_in_halves():
    queries, keys = rows_as_packaged()
    return (
        [packaged_weights.halves(rows, HEADS) for rows in queries],
        [packaged_weights.halves(rows, KEYS) for rows in keys],
    )


def checkpoint(queries, keys, config=CONFIG, names="model.layers.{}.self_attn.{}_proj.weight"):
    tensors = {}
    for layer, (query, key) in enumerate(zip(queries, keys, strict=True)):
        tensors[names.format(layer, "q")] = np.ascontiguousarray(query, np.float16)
        tensors[names.format(layer, "k")] = np.ascontiguousarray(key, np.float16)
    return {"config.json": config | {"num_hidden_layers": len(queries)}, "model.safetensors": tensors}


PAIRED = ("pairing-against-format", "permuted-heads")


@pytest.fixture(scope="module")
def real():
    return audit(str(packaged_weights.smollm2_file()), weights=True)


def test_the_real_file_pairs_as_its_readers_do(real):
    weights = real.weights
    assert (weights.layout, weights.confidence, weights.layers, weights.left_out) == ("interleaved", 0.99, "0-29", ())
    assert weights.queries.z["interleaved"] > 250
    assert weights.queries.z["interleaved"] - weights.queries.z["halves"] > 250
    assert weights.keys.verdict() == "interleaved"
    assert [one.layout for one in weights.by_layer.values()] == ["interleaved"] * 30
    assert weights.permuted == ()
    assert fired(real) == []


def test_the_report_says_what_was_seen_and_what_weights_do_not_tell(real):
    out = io.StringIO()
    print_audit(real, out, 200)
    assert "weights: pairs interleaved, confidence 0.99, z 311 against 2.0 (queries of 30 layers)" in out.getvalue()
    assert LIMITS in " ".join(out.getvalue().split())


def test_without_being_asked_the_report_says_that_nothing_was_looked_at(monkeypatch):
    monkeypatch.setattr(places, "read_rows", lambda info, _rows: pytest.fail(f"{info.name} was read"))
    monkeypatch.setattr(gguf, "quantised_rows", lambda info, _rows: pytest.fail(f"{info.name} was read"))
    found = audit(str(packaged_weights.smollm2_file()))
    assert not found.weights.examined
    out = io.StringIO()
    print_audit(found, out, 200, verbose=True)
    assert "weights: not examined (use --weights)" in out.getvalue()
    assert LIMITS not in " ".join(out.getvalue().split())


def test_the_json_is_what_the_published_schema_says_and_holds_every_number_that_the_verdict_rests_on(
    real, tmp_path, audit_schema
):
    queries, keys = rows_in_halves()
    permuted = [packaged_weights.interleaved(rows, KEYS) for rows in queries]
    audits = [
        real,
        audit(str(packaged_weights.smollm2_file())),
        audited(tmp_path, checkpoint(permuted, keys), weights=True),
    ]
    document = json.loads(json.dumps({"schema": 1, "targets": [found.to_dict() for found in audits]}, allow_nan=False))
    audit_schema.validate(document)
    assert document["targets"][2]["weights"]["permuted"]
    told = document["targets"][0]["weights"]
    assert (told["examined"], told["layout"], told["confidence"]) == (True, "interleaved", 0.99)
    assert (len(told["by_layer"]), told["limits"]) == (30, LIMITS)
    z = {name: round(z, 3) for name, z in real.weights.by_layer[0].z.items()}
    assert told["by_layer"][0] == {"layer": 0, "layout": "interleaved", "z": z}
    for target in document["targets"]:
        assert set(target["weights"]) == set(audit_schema.schema["$defs"]["weights"]["properties"])


def test_put_back_in_order_for_halves_it_is_sound_in_a_checkpoint(tmp_path):
    found = audited(tmp_path, checkpoint(*rows_in_halves()), weights=True)
    assert found.weights.layout == "halves"
    assert found.weights.queries.z["halves"] > found.weights.queries.z["interleaved"] + 100
    assert fired(found) == []


def test_rows_as_the_gguf_file_has_them_are_against_a_checkpoint_that_does_not_say_so(tmp_path):
    found = audited(tmp_path, checkpoint(*rows_as_packaged()), weights=True)
    (finding,) = of_code(found, "pairing-against-format")
    assert (finding.severity, finding.layers) == ("error", f"0-{LAYERS - 1}")
    assert finding.evidence["layout in the weights"] == "interleaved"
    assert finding.evidence["layout of readers"] == "halves"
    assert len(fired(found)) == 1
    converted = checkpoint(*rows_as_packaged(), CONFIG | {"clockhands_layout": "interleaved"})
    assert of_code(audited(tmp_path, converted, weights=True), *PAIRED) == []


def test_the_command_of_a_finding_mends_queries_keys_or_both(cases, tmp_path):
    halves, packaged = rows_in_halves(), rows_as_packaged()
    for name, queries, keys in (("both", packaged, packaged), ("q", packaged, halves), ("k", halves, packaged)):
        folder = tmp_path / f"of {name}"
        with cases(name):
            found = audited(folder, checkpoint(queries[0], keys[1]), weights=True)
            (finding,) = of_code(found, "pairing-against-format")
            assert finding.severity == "error"
            assert finding.evidence.get("projection") == {"q": "queries", "k": "keys"}.get(name)
            command = finding.hint.split("`")[1]
            assert ("--only" in command) == (name != "both")
            words = shlex.split(command)
            assert CliRunner().invoke(main, words[1:]).exit_code == 0
            mended = audit(words[3], weights=True)
            assert mended.weights.layout == "halves"
            assert fired(mended) == []


def test_layers_in_another_order_than_the_rest_are_named(tmp_path):
    queries, keys = rows_in_halves()
    for layer in (3, 4, 8):
        queries[layer] = packaged_weights.interleaved(queries[layer], HEADS)
    found = audited(tmp_path, checkpoint(queries, keys), weights=True)
    (finding,) = of_code(found, "pairing-against-format")
    assert (finding.layers, finding.evidence["layers that pair so"]) == ("3-4,8", 3)


def test_queries_in_order_for_other_heads_are_caught_in_either_direction(cases, tmp_path):
    # A converter that is told 1 or 3 heads, where there are 9: towards interleaved pairs, and back from them.
    queries, keys = rows_in_halves()
    for wrong, permuted in (
        (1, [packaged_weights.interleaved(rows, 1) for rows in queries]),
        (3, [packaged_weights.halves(rows, 3) for rows in rows_as_packaged()[0]]),
    ):
        with cases(wrong):
            found = audited(tmp_path, checkpoint(permuted, keys), weights=True)
            assert found.weights.layout is None
            (finding,) = of_code(found, *PAIRED)
            assert (finding.code, finding.evidence["projection"]) == ("permuted-heads", "queries")
            assert (finding.evidence["heads"], finding.evidence["put in order for heads"]) == (9, wrong)


def test_keys_in_order_for_other_heads_are_caught(cases, tmp_path):
    # Eight query heads and two of keys: with 9 and 3 the usual mistakes are impossible or no mistakes. 8: all heads, as
    # in huggingface/transformers#31766; 4: queries over keys, as in ggml-org/llama.cpp#3364.
    queries, keys = rows_in_halves()
    config = CONFIG | {"num_attention_heads": 8, "num_key_value_heads": 2}
    for wrong in (1, 4, 8):
        permuted = [packaged_weights.halves(packaged_weights.interleaved(rows[:128], 2), wrong) for rows in keys]
        with cases(wrong):
            found = audited(tmp_path, checkpoint([rows[:512] for rows in queries], permuted, config), weights=True)
            assert found.weights.layout == "halves"
            (finding,) = of_code(found, *PAIRED)
            assert (finding.code, finding.evidence["projection"]) == ("permuted-heads", "keys")
            assert (finding.evidence["heads"], finding.evidence["put in order for heads"]) == (2, wrong)
            assert finding.evidence["or for heads"] == []


# The position fields of SmolLM2-135M, as its GGUF file has them, for a part of its heads: with its 9 and 3 the usual
# mistakes about heads cancel out or do not fit the rows.
GGUF_KEYS = {
    "general.architecture": "llama", "llama.block_count": LAYERS, "llama.context_length": 8192,
    "llama.embedding_length": 576, "llama.attention.head_count": 8, "llama.attention.head_count_kv": 2,
    "llama.attention.key_length": 64, "llama.attention.value_length": 64, "llama.rope.freq_base": 100000.0,
    "llama.rope.dimension_count": 64,
}  # fmt: skip


def test_a_gguf_file_is_held_to_its_own_pairs_and_to_its_heads_of_keys(cases, tmp_path):
    """Keys in order for the heads of the queries: llama.cpp#3364, TinyLlama#24; rows of a checkpoint: imp#503."""
    queries, keys = rows_in_halves()
    permuted = ("permuted-heads", ("the key weights are in the order for 8 or 4 heads", "the model has 2 key heads"))
    against = ("pairing-against-format", ("interleaved", "halves"))
    for heads, severity, code, words in ((2, "", None, ()), (8, "warning", *permuted), (None, "error", *against)):
        tensors = {}
        for layer in range(LAYERS):
            rows = {"q": queries[layer][: 8 * 64], "k": keys[layer][: 2 * 64]}
            if heads is not None:
                rows = {name: packaged_weights.interleaved(rows[name], 8 if name == "q" else heads) for name in rows}
            tensors |= {f"blk.{layer}.attn_{name}.weight": each for name, each in rows.items()}
        model = {"model.gguf": Gguf(GGUF_KEYS, tensors)}
        with cases(code):
            found = audited(tmp_path, model, weights=True).problems
            assert [(each.code, each.severity) for each in found] == ([] if code is None else [(code, severity)])
            assert all(word in found[0].message for word in words)
            assert fired(audited(tmp_path, model)) == []


GLASSLLM = {
    "model_type": "cohere", "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 128, "rope_theta": 10000.0, "pad_token_id": 0,
}  # fmt: skip


def test_weights_are_looked_at_as_a_package_of_its_own_names_stores_them(tmp_path):
    held = packaged_weights.glassllm()
    across = checkpoint(
        held["q"].swapaxes(1, 2), held["k"].swapaxes(1, 2), GLASSLLM | {"model_type": "glassllm"}, "blocks.{}.attn.{}"
    )
    across["model.safetensors"] = {
        name.replace("attn.q", "attn.W_Q").replace("attn.k", "attn.W_K"): rows
        for name, rows in across["model.safetensors"].items()
    }
    assert audited(tmp_path, across, weights=True).weights.layout == "interleaved"


def test_a_type_that_says_no_layout_gets_that_of_its_weights(tmp_path):
    held = packaged_weights.glassllm()
    model = checkpoint(held["q"], held["k"], GLASSLLM | {"model_type": "glassllm"})
    (unasked,) = audited(tmp_path, model).layers
    assert unasked.layout is None
    found = audited(tmp_path, model, weights=True)
    (code,) = found.layers
    assert (code.layout, code.source["layout"]) == ("interleaved", "the weights, confidence 0.99")
    assert of_code(found, "pairing-against-format") == []


def test_where_nothing_turns_nothing_is_told(tmp_path):
    """`recognition/test_pairing` has a model without rotation, and weights in a wrong order."""
    draw = np.random.default_rng(1)
    model = checkpoint(draw.standard_normal((LAYERS, 576, 576)), draw.standard_normal((LAYERS, 192, 576)))
    found = audited(tmp_path, model, weights=True)
    assert (found.weights.layout, found.weights.confidence) == (None, None)
    assert found.weights.says.startswith("layout unclear: z ")
    assert found.weights.says.endswith("where 5 and a lead of 3 are needed")
    assert of_code(found, *PAIRED) == []


def test_what_was_not_looked_at_is_said_with_its_reason(cases, tmp_path):
    unnamed = {"config.json": CONFIG, "model.safetensors": {"model.norm.weight": np.ones(4, np.float32)}}
    learned = {"wpe.weight": np.ones((1024, 768), np.float32)}
    for number, (model, says) in enumerate(
        (
            ({"config.json": CONFIG}, "the target holds no weights"),
            (unnamed, "no query projection has a name that is known"),
            ({"config.json": {"model_type": "gpt2"}, "model.safetensors": learned}, "no layer is known to rotate"),
        )
    ):
        found = audited(tmp_path / str(number), model, weights=True).weights
        with cases(says):
            assert (found.says, found.examined, found.layout) == (f"not examined, because {says}", False, None)


def test_rows_of_zeros_and_of_no_numbers_are_left_out_and_said_to_be(tmp_path):
    queries, keys = rows_in_halves()
    queries[5] = np.zeros((576, 576))
    queries[7] = np.full((576, 576), np.nan)
    queries[9] = queries[9].copy()
    queries[9][:64] = 0  # one head of nine
    found = audited(tmp_path, checkpoint(queries, keys), weights=True)
    assert found.weights.layout == "halves"
    assert found.weights.layers == f"0-4,6,8-{LAYERS - 1}"
    assert found.weights.by_layer[9].heads == 8
    (why,) = found.weights.left_out
    assert "model.layers.5.self_attn.q_proj.weight" in why
    assert why.endswith("(and 1 more like it)")


def test_no_two_layers_are_held_together(tmp_path, monkeypatch):
    import weakref

    alive, most = weakref.WeakSet(), []

    class Held(np.ndarray):
        pass

    real = places.WeightProjection.read

    def read(one):
        made = real(one).view(Held)
        alive.add(made)
        most.append(len(alive))
        return made

    Held.__hash__ = object.__hash__
    monkeypatch.setattr(places.WeightProjection, "read", read)
    audited(tmp_path, checkpoint(*rows_in_halves()), weights=True)
    assert len(most) > 2 * LAYERS
    assert max(most) <= 2  # one, and the one that it takes the place of
