"""Rates and position numbers in a checkpoint: each finding where it belongs, and not where it does not."""

import json

import ml_dtypes
import numpy as np

import clockhands as ch
from auditing.model_files import audited, of_code
from written_files import onnx_bytes, onnx_tensor

LLAMA = {
    "model_type": "llama", "hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 4096, "rope_theta": 10000.0, "vocab_size": 100,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
ROTARY = "model.layers.{}.self_attn.rotary_emb.inv_freq"
PLAIN = 10000.0 ** (-np.arange(64) / 64)
CODES = ("low-precision", *(code for code in ch.auditing.CODES if code.startswith("stored-frequencies")))


def found(folder, tensors, config=LLAMA, codes=CODES):
    model = {"config.json": config, "model.safetensors": tensors} if config else {"model.safetensors": tensors}
    return of_code(audited(folder, model), *codes)


def test_rates_as_declared_are_a_note(tmp_path):
    (finding,) = found(tmp_path, {ROTARY.format(layer): PLAIN.astype(np.float32) for layer in (0, 1)})
    assert (finding.code, finding.severity, finding.evidence["tensors"]) == ("stored-frequencies", "note", 2)
    assert f"model.safetensors:{ROTARY.format(0)} and 1 more tensor" in finding.message
    assert not found(tmp_path, {"model.norm.weight": np.zeros(64, np.float32)})


def test_other_rates_are_a_warning(cases, tmp_path):
    for wrong, cause in (
        (np.full(64, 3e38), "uninitialised"),
        (np.full(64, -np.inf), "uninitialised"),
        (500000.0 ** (-np.arange(64) / 64), "of-another-base"),
    ):
        with cases(cause, wrong[0]):
            (finding,) = found(tmp_path, {ROTARY.format(0): wrong.astype(np.float32)})
            assert finding.code == f"stored-frequencies-{cause}"
            assert (finding.severity, finding.blames) == ("warning", "file")


def test_one_wrong_tensor_among_right_ones_is_found(tmp_path):
    wrong = PLAIN.copy()
    wrong[0] = 6.93e-18
    cases = found(tmp_path, {ROTARY.format(0): PLAIN.astype(np.float32), ROTARY.format(1): wrong.astype(np.float32)})
    assert sorted(case.code for case in cases) == ["stored-frequencies", "stored-frequencies-uninitialised"]
    assert "pair 0 has 6.93e-18 rad per token, but the config gives 1" in cases[0].message


def test_frequencies_of_a_formula_are_not_called_uninitialised(cases, tmp_path):
    pair = np.arange(64)
    for words, rates in (
        ("base 30,000", 1.5 * 3e4 ** (-pair / 64)),
        ("times 628", 628.3 * PLAIN),
        ("times 1000", 1000 * PLAIN),
        ("factor 1,000", 1e-3 * PLAIN),
        ("times 0.865964", 1e4 ** (-(pair + 1) / 64)),
        ("minus", -(3e4 ** (-pair / 64))),
        ("EvenSteps (first 200", np.linspace(200, 1, 64)),
    ):
        with cases(words):
            (finding,) = found(tmp_path, {ROTARY.format(0): rates.astype(np.float32)})
            assert "uninitialised" not in finding.code
            assert words in finding.message


def test_a_graph_computes_with_what_it_stores(cases, tmp_path):
    """Rounded frequencies of an ONNX file are a problem, none are to be deleted, and the file alone is not all."""
    name = ROTARY.format(0)
    for number, (dtype, shape, config) in enumerate(
        (dtype, shape, config)
        for dtype in (np.float32, np.float16, ml_dtypes.bfloat16)
        for shape in ((64,), (1, 64, 1))
        for config in (LLAMA, None)
    ):
        with cases(np.dtype(dtype).name, shape, config is not None):
            folder = tmp_path / str(number)
            folder.mkdir()
            raw = PLAIN.astype(dtype).astype(np.float32).tobytes()
            (folder / "model.onnx").write_bytes(onnx_bytes([onnx_tensor(name, shape, raw=raw)]))
            if config is not None:
                (folder / "config.json").write_text(json.dumps(config))
            made = ch.audit(folder / "model.onnx")
            (finding,) = of_code(made, *CODES)
            assert finding.severity == ("note" if dtype is np.float32 else "warning")
            assert "graph computes with" in finding.hint
            assert "delete" not in finding.hint
            assert made.correct == (dtype is np.float32 and config is not None)
    (tmp_path / "other.onnx").write_bytes(onnx_bytes([onnx_tensor("onnx::MatMul_1", (64,), raw=raw)]))
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert "what the graph of other.onnx computes" in ch.audit(tmp_path / "other.onnx").verdict


def test_rates_for_another_number_of_pairs(tmp_path):
    (finding,) = found(tmp_path, {ROTARY.format(0): PLAIN[:32].astype(np.float32)})
    assert "has 32 numbers, but there are 64 RoPE pairs" in finding.message


def test_the_ladder_without_its_scaling_is_said_to_be_it(tmp_path):
    scaled = LLAMA | {"rope_scaling": YARN, "max_position_embeddings": 16384}
    (finding,) = found(tmp_path, {ROTARY.format(0): PLAIN.astype(np.float32)}, scaled)
    assert finding.code == "stored-frequencies-unscaled"
    assert "are those of base 10,000 without the declared scaling" in finding.message


def test_before_a_linear_scaling_older_code_divided_positions_instead(tmp_path):
    scaled = LLAMA | {"rope_scaling": {"type": "linear", "factor": 4.0}}
    (finding,) = found(tmp_path, {ROTARY.format(0): PLAIN.astype(np.float32)}, scaled)
    assert finding.severity == "note"
    (finding,) = found(tmp_path, {ROTARY.format(0): (PLAIN / 4).astype(np.float32)}, scaled)
    assert finding.severity == "note"


def test_rounded_rates_matter_where_the_model_s_own_code_may_load_them(tmp_path):
    rounded = {ROTARY.format(0): PLAIN.astype(np.float16)}
    (finding,) = found(tmp_path, rounded)
    assert (finding.code, finding.severity) == ("stored-frequencies-rounded", "note")
    assert "rounded to float16" in finding.message
    (finding,) = found(tmp_path, rounded, LLAMA | {"model_type": "of_a_vendor"})
    assert (finding.code, finding.severity) == ("stored-frequencies-rounded", "warning")
    (tmp_path / "config.json").unlink()
    (finding,) = found(tmp_path, rounded, None)
    assert (finding.code, finding.severity) == ("low-precision", "warning")


def test_rates_cast_to_bfloat16_and_back_are_seen(tmp_path):
    cast = PLAIN.astype(ml_dtypes.bfloat16).astype(np.float32)
    (finding,) = found(tmp_path, {ROTARY.format(0): cast}, LLAMA | {"model_type": "of_a_vendor"})
    assert (finding.code, finding.evidence["rounded to"]) == ("stored-frequencies-rounded", "bfloat16")


def test_rates_of_an_image_tower_are_not_held_against_the_text(tmp_path):
    assert found(tmp_path, {"vision_model.rotary_emb.inv_freq": np.ones(8, np.float32)})[0].severity == "note"


BERT = {
    "model_type": "bert", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 77, "vocab_size": 100,
}  # fmt: skip
IDS = "embeddings.position_ids"


def numbers(folder, array):
    return found(folder, {IDS: array}, BERT, ("float-position-ids",))


def test_whole_numbers_of_positions_are_sound(tmp_path):
    assert not numbers(tmp_path, np.arange(77)[None])
    assert not numbers(tmp_path, np.arange(77))


def test_numbers_of_positions_as_floats(tmp_path):
    (finding,) = numbers(tmp_path, np.arange(77, dtype=np.float32)[None])
    assert (finding.severity, "wrong" in finding.evidence) == ("warning", False)
    merged = np.arange(77, dtype=np.float32)
    merged[76] = 75.9
    (finding,) = numbers(tmp_path, merged[None])
    assert "position 76 is 75.9" in finding.message


def test_whole_numbers_that_are_others(tmp_path):
    (finding,) = numbers(tmp_path, np.arange(2, 79)[None])
    assert (finding.evidence["wrong"], finding.evidence["first wrong"]) == (77, 0)
