"""Faults of GGUF files and weights in other models than those that they were reported in, and sound files nearby."""

import numpy as np

import clockhands as ch
from auditing import published_fields as of
from auditing.faulty_containers import FACTORS, gguf
from auditing.model_files import audited, fired, of_code

SHORT, LONG = np.array(of.PHI3_SHORT, np.float32), np.array(of.PHI3_LONG, np.float32)
QUERIES = np.zeros((2048, 8), np.float32)
NO_WIDTH = {
    name: value for name, value in of.GGUF_GEMMA2_2B.items() if not name.endswith("_length") or "attention" not in name
}


def with_weights(config, tensors):
    return {"config.json": config, "model.safetensors": tensors}


def trained(rows):
    """A learned table, a narrow part of it, as numbers that no formula makes."""
    return np.random.default_rng(0).normal(0, 0.02, (rows, 48)).astype(np.float32)


FAULTY = {
    "factors that multiply instead of divide": (
        gguf(of.GGUF_LLAMA, rope_freqs__weight=1 / FACTORS), "rope-freqs-differ",
    ),
    "lists of Phi-3 swapped": (
        gguf(of.GGUF_PHI3, rope_factors_short__weight=LONG, rope_factors_long__weight=SHORT), "longrope-swapped",
    ),
    "no width of a head in Gemma 2": (gguf(NO_WIDTH, blk__0__attn_q__weight=QUERIES), "head-width"),
}  # fmt: skip

SOUND = {
    "Gemma 2": gguf(of.GGUF_GEMMA2_2B, blk__0__attn_q__weight=QUERIES),
    "GPT-NeoX, whose files never hold the base": gguf(of.GGUF_GPT_NEOX),
    "as many gates as queries": gguf(of.GGUF_QWEN3_NEXT, blk__3__attn_q__weight=np.zeros((8192, 8), np.float32)),
    "a part of a model that is spread over eight devices": with_weights(
        of.LLAMA_3, {"layers.0.attention.wq.weight": np.zeros((512, 8), np.float16)}
    ),
    "projections of latent heads": with_weights(
        of.DEEPSEEK_V3, {"model.layers.0.self_attn.q_b_proj.weight": np.zeros((24576, 8), np.float16)}
    ),
    "RoBERTa: 514 rows for 512 tokens": with_weights(
        of.ROBERTA | {"hidden_size": 48}, {"roberta.embeddings.position_embeddings.weight": trained(514)}
    ),
    "BART: two rows more than positions, in each part": with_weights(
        of.BART | {"d_model": 48},
        {f"model.{part}.embed_positions.weight": trained(1026) for part in ("encoder", "decoder")},
    ),
    "Whisper: sines first, then cosines": with_weights(
        of.WHISPER, {"model.encoder.embed_positions.weight": ch.table(ch.preset("whisper", width=384), 1500)}
    ),
}  # fmt: skip


def test_a_fault_is_caught_in_another_model_too(cases, tmp_path):
    for number, (name, (model, code)) in enumerate(FAULTY.items()):
        with cases(name):
            found = audited(tmp_path / str(number), model)
            assert {finding.severity for finding in of_code(found, code)} == {"warning"}, fired(found)


def test_a_sound_model_near_it_does_not_fire(cases, tmp_path):
    for number, (name, model) in enumerate(SOUND.items()):
        with cases(name):
            assert fired(audited(tmp_path / str(number), model)) == []
