"""The same faults in other models, shapes and parts than those that they were reported in, and sound files nearby."""

import pytest

from auditing import published_fields as of
from auditing.faulty_files import GEMMA3_SLIDING, QWEN2_YARN
from auditing.model_files import audit_of, findings, fired, of_code
from auditing.published_fields import block_with, in_text, new_shape, without

# A shape of no release: no number of tokens.
LLAMA = without(of.LLAMA_31, "vocab_size", "rope_scaling")
QWEN35_BLOCK = of.QWEN35["text_config"]["rope_parameters"]


def beside_images(config):
    """A language model as the text of a model that sees."""
    return {"model_type": "llava", "text_config": config, "vision_config": {"model_type": "clip_vision_model"}}


FAULTY = {
    "no scaling in the text of Mllama": (in_text(of.MLLAMA, rope_scaling=None), "missing-scaling"),
    "no base in the text of LLaVA": (beside_images(without(of.LLAMA_31, "rope_theta")), "default-base"),
    "no base in the new shape": (
        without(of.LLAMA_31, "rope_theta", "rope_scaling") | {"rope_parameters": of.LLAMA3}, "default-base",
    ),
    "the new shape alone in a text": (
        in_text(of.QWEN3_VL, rope_theta=None, rope_scaling=None, rope_parameters={
            "rope_type": "default", "rope_theta": 5000000, "mrope_section": [24, 20, 20], "mrope_interleaved": True,
        }),
        "new-shape-only",
    ),
    "the new shape alone in Qwen3": (new_shape(of.QWEN3_MOE), "new-shape-only"),
    "two shapes, one of them nested": (
        of.GEMMA3_4B | {
            "rope_parameters": {
                "sliding_attention": GEMMA3_SLIDING,
                "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
            }
        },
        "conflicting-shapes",
    ),
    "spellings that contradict each other in llama3": (
        of.LLAMA_31 | {"rope_scaling": of.LLAMA3 | {"type": "default"}}, "conflicting-spellings",
    ),
    "no original length in the new shape": (
        block_with(new_shape(QWEN2_YARN), original_max_position_embeddings=None), "missing-original",
    ),
    "an original length beyond the context": (
        block_with(of.LLAMA_31, original_max_position_embeddings=262144), "wrong-original",
    ),
    "a flat block in ModernBERT": (
        without(of.MODERNBERT, "global_rope_theta", "local_rope_theta")
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 160000.0}},
        "flat-layer-types",
    ),
    "the factor on sliding layers of the text": (
        in_text(of.GEMMA3_27B, rope_scaling=None, rope_parameters={
            "sliding_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 10000.0},
            "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
        }),
        "layer-type-scaling",
    ),
    "an inverted list without its interval": (
        without(of.SMOLLM3, "no_rope_layer_interval") | {"no_rope_layers": [0, 0, 0, 1] * 9}, "nope-inverted",
    ),
    "sections of 33 for 32 pairs of a part": (
        in_text(of.QWEN35, rope_parameters=QWEN35_BLOCK | {"mrope_section": [11, 11, 11]}), "mrope-sections",
    ),
    "lists of 64 for the part that turns": (
        block_with(of.PHI4_MINI, short_factor=[1.0] * 64, long_factor=[2.0] * 64), "longrope-lists",
    ),
    "the old spelling alone in Gemma 3": (block_with(of.GEMMA3_4B, rope_type=None, type="linear"), "ignored-key"),
    "a factor below 1": (LLAMA | {"rope_scaling": {"type": "linear", "factor": 0.25}}, "impossible-value"),
    "a scaling of a name that is no misspelling": (
        LLAMA | {"rope_scaling": {"type": "stretchy", "factor": 2.0}}, "unknown-scaling",
    ),
}  # fmt: skip

SOUND = {
    "a large base instead of a scaling": of.LLAMA_31
    | {"rope_theta": 283461213.0, "max_position_embeddings": 262144, "rope_scaling": None},
    "a base of 10,000 with a window of 4,096": of.MISTRAL
    | {"rope_theta": 10000.0, "sliding_window": 4096, "vocab_size": 32000},
    "no base where the class has 1,000,000": without(of.MISTRAL, "rope_theta") | {"model_type": "mixtral"},
    "the new shape alone in a class with the same defaults": new_shape(of.GPT_OSS),
    "both shapes, whole numbers in one": of.LLAMA_31
    | {"rope_parameters": of.LLAMA3 | {"rope_theta": 500000, "factor": 8}},
    "two names of one scaling": block_with(of.PHI3, type="su", rope_type="longrope"),
    "every layer turns, and no interval says otherwise": without(of.SMOLLM3, "no_rope_layer_interval")
    | {"no_rope_layers": [1] * 36},
}


def test_a_fault_is_caught_in_another_model_too(cases):
    for name, (config, code) in FAULTY.items():
        with cases(name):
            found = audit_of(config)
            assert {finding.severity for finding in of_code(found, code)} & {"warning", "error"}, fired(found)


def test_a_sound_model_near_it_does_not_fire(cases):
    for name, config in SOUND.items():
        with cases(name):
            assert fired(audit_of(config)) == []


def test_an_original_length_past_the_context_is_no_wish_of_the_caller():
    config, _ = FAULTY["an original length beyond the context"]
    assert of_code(audit_of(config), "beyond-context") == []


def test_a_key_of_some_readers_is_not_renamed_to_one_that_means_something_else():
    found = audit_of(of.DEEPSEEK_R1_QWEN3)
    (said,) = of_code(found, "unknown-key")
    assert said.edit is None
    assert "vLLM 0.11.0 multiplies" in said.message
    assert "Perhaps" not in said.message
    magnitudes = {each.reader: [code.attention_factor for code in each.codes] for each in found.readings}
    assert magnitudes["vllm-0.11"] == [pytest.approx(1.0)]
    assert magnitudes["transformers-5"] == [pytest.approx(1.1386294361)]


def test_the_key_of_dual_chunks_is_kept_for_the_runtime_that_reads_it():
    config = {"model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "num_hidden_layers": 28,
              "max_position_embeddings": 1_010_000, "rope_theta": 1e7,
              "dual_chunk_attention_config": {"chunk_size": 262_144}}  # fmt: skip
    (said,) = of_code(audit_of(config), "ignored-key")
    assert said.severity == "note"
    assert said.edit is None
    assert "vLLM 0.11.0 counts positions in chunks by it (dual chunk attention, vllm/config/model.py:" in said.hint


def test_a_key_that_says_what_the_class_does_anyway_loses_nothing(cases):
    gptj = {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_layer": 28, "n_positions": 2048, "rotary_dim": 64}
    bert = {"model_type": "nomic_bert", "hidden_size": 768, "num_attention_heads": 12, "max_position_embeddings": 2048}
    tiny = without(of.TINYLLAMA, "max_position_embeddings")
    for config, codes in (
        (gptj | {"rotary": True}, set()),
        (bert | {"rotary_emb_base": 1000}, set()),
        (bert | {"rotary_emb_base": 10000}, {"ignored-key"}),
        (tiny | {"max_sequence_length": 2048}, set()),
        (tiny | {"max_sequence_length": 16384}, {"ignored-key"}),
    ):
        with cases(config):
            assert {each.code for each in findings(config) if each.severity != "note"} == codes


def test_times_of_sound_around_a_text_contradict_nothing_in_it():
    text = {"model_type": "qwen2", "hidden_size": 896, "num_attention_heads": 14, "num_hidden_layers": 24}
    text |= {"max_position_embeddings": 32768, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
    times = {"rope_type": "default", "rope_theta": 1200.0, "partial_rotary_factor": 0.2}
    around = {"model_type": "musicflamingo", "text_config": text, "rope_parameters": times}
    assert not of_code(audit_of(around), "conflicting-keys")
    assert of_code(audit_of(around | {"model_type": "audioflamingo3"}), "conflicting-keys")


def test_names_of_layers_that_newer_classes_have():
    config = {"model_type": "some_new_model", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 4}
    config |= {"rope_theta": 10000.0, "max_position_embeddings": 2048}
    for name in ("window_attention", "reference_sliding_attention"):
        found = audit_of(config | {"layer_types": [name] * 3 + ["full_attention"]})
        assert not of_code(found, "unreadable-field"), name
