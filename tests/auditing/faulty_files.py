"""Public faults that a file shows, each made by the edit that makes it on a sound file.

A row is one reported fault: where it was reported, the sound model, the faulty one, the code that catches it, and words
that its message must have. `faulty_containers` holds the rows about GGUF files and weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from auditing import published_fields as of
from auditing.model_files import Model
from auditing.published_fields import Config, block_with, in_text, new_shape, without


@dataclass(frozen=True)
class Fault:
    """One reported fault.

    Attributes:
        name: Its number in the list of public faults, and the case in a few words.
        reported: Where: repository and thread.
        sound: The model before the edit, in which no such finding may be.
        faulty: The model after it.
        code: The code that catches it.
        severity: How grave the finding is.
        said: What the message has, each of them.
    """

    name: str
    reported: str
    sound: Model
    faulty: Model
    code: str
    severity: str
    said: tuple[str, ...] = ()


def config(values: Config, **beside: Mapping[str, Any]) -> Model:
    """A model of a config and documents beside it (`tokenizer_config`, `params`)."""
    return {"config.json": values} | {f"{name}.json": document for name, document in beside.items()}


def fault(name: str, reported: str, sound: Config, faulty: Config, caught: str, *said: str) -> Fault:
    """A fault of one config; ``caught`` is the severity, a colon, and the code."""
    severity, code = caught.split(": ")
    return Fault(name, reported, config(sound), config(faulty), code, severity, said)


# Heads of 64 channels, as the model of the report has them: the slowest pair is then 8 x 50^(62/64) times too fast.
NARROW = of.LLAMA_31 | {"num_attention_heads": 64, "head_dim": 64}
GEMMA3_NEW = without(of.GEMMA3_4B, "rope_theta", "rope_local_base_freq", "rope_scaling")
GEMMA3_SLIDING = {"rope_type": "default", "rope_theta": 10000.0}
GEMMA3_FULL = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0}
GEMMA3_NESTED = GEMMA3_NEW | {"rope_parameters": {"sliding_attention": GEMMA3_SLIDING, "full_attention": GEMMA3_FULL}}
# Sound for readers of either shape, where the nested blocks alone are lost on those of the old one.
GEMMA3_BOTH = of.GEMMA3_4B | {"rope_parameters": GEMMA3_NESTED["rope_parameters"]}
MODERNBERT_NESTED = without(of.MODERNBERT, "global_rope_theta", "local_rope_theta") | {
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    }
}
QWEN2_YARN = of.QWEN2 | {"max_position_embeddings": 131072, "rope_scaling": of.QWEN_YARN}
PHI3_INSIDE = without(of.PHI3, "original_max_position_embeddings") | {
    "rope_scaling": of.PHI3["rope_scaling"] | {"original_max_position_embeddings": 4096}
}


def qwen3_vl(**changes: Any) -> Config:
    """Qwen3-VL with another scaling block."""
    return in_text(of.QWEN3_VL, rope_scaling=of.QWEN3_VL["text_config"]["rope_scaling"] | changes)


def gemma4_full(**changes: Any) -> Config:
    """Gemma 4 with another block for the layers that see all."""
    blocks = of.GEMMA4["text_config"]["rope_parameters"]
    return in_text(of.GEMMA4, rope_parameters=blocks | {"full_attention": blocks["full_attention"] | changes})


SHAPES = [
    fault(
        "D1-01 base and scaling in the new shape only", "MarinFold#184",
        of.LLAMA_31, new_shape(of.LLAMA_31), "warning: new-shape-only", "500,000", "10,000",
    ),
    fault(
        "D1-02 the slowest pair is 354 times too fast", "MarinFold#198",
        NARROW, new_shape(NARROW), "warning: new-shape-only", "354",
    ),
    fault(
        "D1-03 another default base in each class", "run of transformers 4.57.1",
        of.SMOLLM3, new_shape(of.SMOLLM3), "warning: new-shape-only", "5,000,000", "2,000,000",
    ),
    fault(
        "D1-03 0.4 of a head turns, half by default", "run of transformers 4.57.1",
        of.PHI2, new_shape(of.PHI2), "warning: new-shape-only", "0.4", "0.5",
    ),
    fault(
        "D1-03 Gemma 3 loses its factor of 8", "run of transformers 4.57.1",
        of.GEMMA3_4B, GEMMA3_NESTED, "warning: new-shape-only", "8",
    ),
    fault(
        "D1-04 the default saved beside the real base", "vllm#42624, #44158",
        of.LLAMA_3, new_shape(of.LLAMA_3) | {"rope_theta": 10000.0}, "warning: conflicting-shapes", "500,000", "10,000",
    ),
    fault(
        "D1-05 readers that look at the top level only", "DeepSpeed#8341, #8345, #8373",
        of.GLM46V, new_shape(of.GLM46V), "warning: new-shape-only", "500,000", "10,000",
    ),
    fault(
        "D1-06 two bases in keys of the old shape only", "TensorRT-Model-Connect#692",
        MODERNBERT_NESTED, of.MODERNBERT, "note: legacy-layer-bases", "160,000", "10,000",
    ),
    fault(
        "D1-07 two shapes disagree", "run of transformers 5.23.0",
        of.LLAMA_31, of.LLAMA_31 | {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        "warning: conflicting-shapes", "500,000", "10,000",
    ),
    fault(
        "D1-08 no base beside a declared scaling", "realizar#78, aprender#324",
        of.LLAMA_31, without(of.LLAMA_31, "rope_theta"), "warning: default-base", "10,000",
    ),
    fault(
        "D1-12 two spellings disagree", "run of transformers 5.23.0",
        QWEN2_YARN, block_with(QWEN2_YARN, type="linear"), "warning: conflicting-spellings", "linear", "yarn",
    ),
]  # fmt: skip

SCALINGS = [
    fault(
        "the length of a training", "NVIDIA-NeMo/Megatron-Bridge#5994",
        of.LLAMA_31, of.LLAMA_31 | {"max_position_embeddings": 8192}, "note: context-of-no-release", "8,192", "131,072",
    ),
    fault(
        "D1-09 the scaling set to null", "TroyDoesAI and hugging-quants: Llama 3.1 copies",
        of.LLAMA_31, of.LLAMA_31 | {"rope_scaling": None}, "warning: missing-scaling", "131,072", "500,000",
    ),
    fault(
        "D1-10 the block cut short", "abhiraj1/llm-judge-llama-3.1",
        of.LLAMA_31, of.LLAMA_31 | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
        "error: incomplete-scaling", "low_freq_factor", "high_freq_factor",
    ),
    fault(
        "D1-14 YaRN without its original length", "LlamaFactory#8101",
        QWEN2_YARN, block_with(QWEN2_YARN, original_max_position_embeddings=None),
        "warning: missing-original", "131,072",
    ),
    fault(
        "D1-15 a name that other readers multiply the length by", "vllm#56446, #53634",
        block_with(of.DEEPSEEK_V3, type=None, rope_type="yarn"),
        block_with(of.DEEPSEEK_V3, type=None, rope_type="deepseek_yarn"),
        "warning: uncommon-scaling-name", "deepseek_yarn", "163,840",
    ),
    Fault(
        "D1-16 the length extended and a factor as well", "Safe-Synthesizer#623",
        config(of.TINYLLAMA, tokenizer_config={"model_max_length": 2048}),
        config(
            of.TINYLLAMA | {"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 2.0}},
            tokenizer_config={"model_max_length": 4096},
        ),
        "length-times-factor", "warning", ("4,096", "8,192"),
    ),
    fault(
        "D1-17 the extended length as the original one", "Megatron-LM#1418",
        of.DEEPSEEK_V3, block_with(of.DEEPSEEK_V3, original_max_position_embeddings=163840),
        "warning: wrong-original", "163,840",
    ),
    fault(
        "D1-18 the default factor 8 in a model of 32", "Megatron-LM#6305",
        of.LLAMA_32_1B, block_with(of.LLAMA_32_1B, factor=8.0), "warning: differs-from-release", "8", "32",
    ),
    fault(
        "D1-19 the scaling dropped on export", "Megatron-Bridge#5097",
        of.GEMMA3_4B, of.GEMMA3_4B | {"rope_scaling": None}, "warning: differs-from-release", "8",
    ),
    Fault(
        "D1-19 the scaling in one of two files", "Megatron-Bridge#5097",
        config(of.LLAMA_31, params=of.LLAMA_31_PARAMS),
        config(of.LLAMA_31 | {"rope_scaling": None}, params=of.LLAMA_31_PARAMS),
        "files-disagree", "warning", ("params.json", "config.json"),
    ),
    fault(
        "D1-20 an attention factor that a reader drops", "vllm#46280, #48351",
        QWEN2_YARN, block_with(QWEN2_YARN, factor=64.0, attention_factor=1.0, original_max_position_embeddings=2048),
        "note: explicit-attention-factor", "1.4159",
    ),
    fault(
        "D1-21 mscale and mscale_all_dim are equal", "vllm#48621, sglang#22711",
        without(of.MINISTRAL3, "rope_parameters") | {
            "rope_parameters": {
                key: value for key, value in of.MINISTRAL3["rope_parameters"].items() if not key.startswith("mscale")
            }
        },
        of.MINISTRAL3, "note: disputed-attention-factor", "1.2773",
    ),
    fault(
        "D1-22 the same block has no verdict", "exllamav3#259",
        block_with(of.MINISTRAL3, mscale=None, mscale_all_dim=None),
        of.MINISTRAL3, "note: disputed-attention-factor", "1.0",
    ),
    fault(
        "D1-23 a scale of the scores as well", "transformers#47435",
        block_with(of.DEEPSEEK_V3, mscale=None, mscale_all_dim=None), of.DEEPSEEK_V3, "note: softmax-scale", "1.874",
    ),
    Fault(
        "D1-24 apply_scale converted as off", "llama.cpp#22612, transformers#45744",
        config(of.DEVSTRAL2, params=of.DEVSTRAL2_PARAMS),
        config(block_with(of.DEVSTRAL2, mscale_all_dim=1.0), params=of.DEVSTRAL2_PARAMS),
        "files-disagree", "warning", ("apply_scale",),
    ),
    fault(
        "D1-25 betas that are not 32 and 1", "daScript#3479",
        block_with(of.DEVSTRAL2 | {"num_hidden_layers": 80}, beta_fast=32.0), of.DEVSTRAL2,  # 32 is not the release's
        "note: uncommon-betas", "4", "32",
    ),
    fault(
        "D1-26 the original length inside the block", "mlxcel#1580",
        of.PHI3, PHI3_INSIDE, "warning: misplaced-original", "original_max_position_embeddings",
    ),
    fault(
        "D1-27 lists of 64 for 48 pairs", "run of transformers 5.23.0",
        of.PHI3, block_with(of.PHI3, short_factor=[1.0] * 64, long_factor=[4.0] * 64),
        "error: longrope-lists", "48", "64",
    ),
    fault(
        "D1-27 short and long lists swapped", "run of transformers 5.23.0",
        of.PHI3, block_with(of.PHI3, short_factor=of.PHI3_LONG, long_factor=of.PHI3_SHORT), "warning: longrope-swapped",
    ),
    fault(
        "D1-28 a length without a scaling behind it", "Qwen#1287",
        of.CODELLAMA, of.CODELLAMA | {"max_position_embeddings": 131072}, "note: base-below-bound", "131,072",
    ),
    fault(
        "D1-29 two lengths in one config", "exllamav2#404, vllm#3919",
        without(of.COMMAND_R, "model_max_length"), of.COMMAND_R, "note: lengths-differ", "8,192", "131,072",
    ),
    Fault(
        "D1-29 the context lowered below the tokenizer's", "gemma_pytorch#95",
        config(of.LLAMA_31, tokenizer_config={"model_max_length": 131072}),
        config(of.LLAMA_31 | {"max_position_embeddings": 8192, "rope_scaling": None},
               tokenizer_config={"model_max_length": 131072}),
        "lengths-differ", "warning", ("8,192", "131,072"),
    ),
]  # fmt: skip

CHANNELS = [
    fault(
        "D1-30 an absent share that the class knows", "mlx-lm#1698",
        of.GLM4_9B, without(of.GLM4_9B, "partial_rotary_factor"), "note: default-value", "0.5",
    ),
    fault(
        "D1-31 two keys for the turned channels", "vllm#43770",
        of.LING, of.LING | {"partial_rotary_factor": 1.0}, "warning: conflicting-keys", "64",
    ),
    fault(
        "D1-32 a share beside sections", "maxtext#4616",
        of.QWEN3_VL, of.QWEN35, "note: partial-meaning", "0.25",
    ),
    fault(
        "D1-33 default where the class is proportional", "pie#603",
        of.GEMMA4, gemma4_full(rope_type="default"), "warning: partial-meaning", "0.25", "proportional",
    ),
    fault(
        "D1-33 proportional where the class recomputes", "pie#603",
        of.PHI2, of.PHI2 | {"rope_scaling": {"rope_type": "proportional"}}, "warning: partial-meaning", "40 %",
    ),
    fault(
        "D1-34 sections of 56 for 64 pairs", "run of transformers 5.23.0",
        of.QWEN25_VL, block_with(of.QWEN25_VL, mrope_section=[16, 24, 16]), "error: mrope-sections", "56", "64",
    ),
    fault(
        "D1-34 sections too large for their stride", "mflux#483",
        of.QWEN3_VL, qwen3_vl(mrope_section=[18, 23, 23]), "warning: mrope-sections", "23",
    ),
    fault(
        "D1-35 axes that the class interleaves", "lattice#96",
        of.QWEN3_VL, qwen3_vl(mrope_interleaved=False), "warning: mrope-order", "mrope_interleaved",
    ),
    fault(
        "D1-36 one flat block for two bases", "atlas#276",
        of.DEEPSEEK_V4,
        without(of.DEEPSEEK_V4, "rope_theta", "compress_rope_theta", "rope_scaling")
        | {"rope_parameters": of.DEEPSEEK_V4["rope_scaling"] | {"rope_theta": 160000}},
        "warning: flat-layer-types", "160,000",
    ),
    fault(
        "D1-37 the factor on the sliding layers", "mlx-vlm#1709, mlxcel#1340",
        GEMMA3_BOTH,
        GEMMA3_NEW | {
            "rope_parameters": {
                "sliding_attention": GEMMA3_SLIDING | {"rope_type": "linear", "factor": 8.0},
                "full_attention": without(GEMMA3_FULL, "factor") | {"rope_type": "default"},
            }
        },
        "warning: layer-type-scaling", "8", "sliding",
    ),
    fault(
        "D1-37 no factor on the layers that see all", "mlx-vlm#1709, vllm#29111",
        GEMMA3_BOTH,
        GEMMA3_NEW | {
            "rope_parameters": {
                "sliding_attention": GEMMA3_SLIDING,
                "full_attention": without(GEMMA3_FULL, "factor") | {"rope_type": "default"},
            }
        },
        "warning: differs-from-release", "8",
    ),
    fault(
        "D1-38 a factor of 8 forced to 1", "ollama#12360, #12348, #13452",
        of.GEMMA3_4B, block_with(of.GEMMA3_4B, factor=1.0), "warning: differs-from-release", "8",
    ),
    fault(
        "D1-39 a flat block for two kinds of layers", "run of transformers 5.23.0",
        GEMMA3_BOTH, GEMMA3_NEW | {"rope_parameters": GEMMA3_FULL}, "warning: flat-layer-types", "8",
    ),
    fault(
        "D1-40 the list of turning layers inverted", "mobius#233, Camelid#535",
        of.SMOLLM3, of.SMOLLM3 | {"no_rope_layers": [0, 0, 0, 1] * 9}, "warning: nope-inverted", "27", "36",
    ),
]  # fmt: skip

VALUES = [
    fault(
        "D1-also the base as a text", "run of transformers 5.23.0",
        of.LLAMA_31, of.LLAMA_31 | {"rope_theta": "500000"}, "warning: text-number", "500000",
    ),
    fault(
        "D1-also a base of 0", "run of transformers 5.23.0",
        of.LLAMA_31, of.LLAMA_31 | {"rope_theta": 0}, "error: impossible-value", "0",
    ),
    fault(
        "D1-also one and a half heads turn", "run of transformers 5.23.0",
        of.PHI2, of.PHI2 | {"partial_rotary_factor": 1.5}, "error: impossible-value", "1.5",
    ),
    fault(
        "D1-also CodeLlama without its base", "llama.cpp#2768",
        of.CODELLAMA, without(of.CODELLAMA, "rope_theta"), "warning: default-base", "10,000",
    ),
]  # fmt: skip

CONFIG_FAULTS = (*SHAPES, *SCALINGS, *CHANNELS, *VALUES)
