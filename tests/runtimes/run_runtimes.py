"""What a release of a runtime computes from configs, in a process whose PYTHONPATH has it; one JSON line each way.

The argument is the runtime's name; standard input is a list of cases of `misread.json`; standard output a list of what
each module, or the one setting that the runtime makes, has: ``[{"rates": [...], "attention_factor": ...}, ...]``, or
``base`` and ``scaling``, or ``window``, or ``refuses`` with the error.
"""

import importlib
import json
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from absent_modules import stand_in_for, without_init

# What the classes need and no rotation depends on.
SIZES = {
    "vocab_size": 64, "intermediate_size": 64, "rms_norm_eps": 1e-6, "norm_eps": 1e-6, "layer_norm_eps": 1e-6,
    "tie_word_embeddings": True, "attention_bias": False, "num_experts": 2, "num_experts_per_tok": 1,
    "num_local_experts": 2, "moe_intermediate_size": 16, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "norm_topk_prob": False, "use_qkv_bias": False, "mlp_bias": False, "use_bias": False, "hidden_act": "silu",
}  # fmt: skip

Found = list[dict[str, Any]]


def of_transformers(config: dict[str, Any]) -> Found:
    """The frequencies and the attention factor of the class that Transformers has for a type."""
    transformers: Any = importlib.import_module("transformers")
    made = transformers.AutoConfig.for_model(**config)
    module = sys.modules[type(made).__module__].__name__.replace("configuration_", "modeling_")
    held = vars(importlib.import_module(module))
    classes = [held[name] for name in held if name.endswith("RotaryEmbedding") and held[name].__module__ == module]
    built = [each(config=made) for each in classes]
    return [
        {"rates": each.inv_freq.tolist(), "attention_factor": float(getattr(each, "attention_scaling", 1.0))}
        for each in built
    ]


def of_mlx_lm(config: dict[str, Any]) -> Found:
    """The angles by which the rotations of mlx-lm's model turn the first of each pair at position 1."""
    utils: Any = importlib.import_module("mlx_lm.utils")
    name = utils.MODEL_REMAPPING.get(config["model_type"], config["model_type"])
    module: Any = importlib.import_module(f"mlx_lm.models.{name}")
    small = SIZES | {"num_key_value_heads": config["num_attention_heads"]} | config
    return _turned(module.Model(module.ModelArgs.from_dict(small)), small)


def of_mlx_vlm(config: dict[str, Any]) -> Found:
    """The same of the text part of mlx-vlm's model."""
    module: Any = importlib.import_module(f"mlx_vlm.models.{config['model_type']}.language")
    settings: Any = importlib.import_module(f"mlx_vlm.models.{config['model_type']}.config")
    small = SIZES | {"num_key_value_heads": config["num_attention_heads"]} | config
    made = settings.TextConfig.from_dict(small)
    return _turned(module.LanguageModel(made), small)


def _turned(model: Any, small: dict[str, Any]) -> Found:
    mx: Any = importlib.import_module("mlx.core")
    found = []
    for name, each in model.named_modules():
        if not name.endswith(("rope", "rotary_emb")):
            continue
        width = small.get("head_dim") or small["hidden_size"] // small["num_attention_heads"]
        traditional, dims = bool(getattr(each, "traditional", False)), int(getattr(each, "dims", width))
        pairs = [(2 * i, 2 * i + 1) if traditional else (i, i + dims // 2) for i in range(dims // 2)]
        first = mx.array([float(at in {one for one, _ in pairs}) for at in range(width)])
        turned = each(first[None, None, None], offset=1)[0, 0, 0].tolist()
        rates = [math.atan2(turned[two], turned[one]) for one, two in pairs]
        found.append({"rates": rates, "attention_factor": math.hypot(*(turned[at] for at in pairs[0]))})
    return found


DEEPSPEED = {
    "llama": ("llama_v2", "Llama2InferenceModel"),
    "mistral": ("mistral", "MistralInferenceModel"),
    "mixtral": ("mixtral", "MixtralInferenceModel"),
    "phi3": ("phi3", "Phi3InferenceModel"),
    "qwen2": ("qwen_v2", "Qwen2InferenceModel"),
    "qwen2_moe": ("qwen_v2_moe", "Qwen2MoeInferenceModel"),
}


def of_deepspeed(config: dict[str, Any]) -> Found:
    """What a model class of Inference V2 hands to its kernel of the rotation: a base alone."""
    transformers: Any = importlib.import_module("transformers")
    folder, name = DEEPSPEED[config["model_type"]]
    module: Any = importlib.import_module(f"deepspeed.inference.v2.model_implementations.{folder}.model")
    model = object.__new__(getattr(module, name))
    model._config = transformers.AutoConfig.for_model(**config)
    try:
        made = model.positional_embedding_config.model_dump()
    except (ValueError, NotImplementedError) as error:
        return [{"refuses": str(error)}]
    base, rest = made.pop("theta_base"), {key: value for key, value in made.items() if value is not None}
    if not set(rest) <= {"use_trained_freqs", "rotate_dim"} or rest.get("use_trained_freqs"):
        raise TypeError(f"The kernel is given more than a base: {rest}.")
    return [{"base": base, "scaling": None}]


MEGATRON = {
    "llama": ("llama.llama_bridge", "LlamaBridge"),
    "mistral": ("mistral.mistral_bridge", "MistralBridge"),
    "qwen2": ("qwen.qwen2_bridge", "Qwen2Bridge"),
    "qwen3": ("qwen.qwen3_bridge", "Qwen3Bridge"),
    "qwen3_moe": ("qwen.qwen3_moe_bridge", "Qwen3MoEBridge"),
    "gemma2": ("gemma.gemma2_bridge", "Gemma2Bridge"),
}


def of_megatron_bridge(config: dict[str, Any]) -> Found:
    """The rotation that Megatron Core builds from what the bridge converts, as its GPTModel builds it, and the window.

    The bridge's code for adapters (peft_bridge) and omegaconf stand in: nothing here comes from them.
    """
    transformers: Any = importlib.import_module("transformers")
    module, name = MEGATRON[config["model_type"]]
    bridge = getattr(importlib.import_module(f"megatron.bridge.models.{module}"), name)()
    made = transformers.AutoConfig.for_model(**config)
    model = type("Pretrained", (), {"config": made, "generation_config": None})()
    provider = bridge.provider_bridge(model)
    width = provider.kv_channels or provider.hidden_size // provider.num_attention_heads
    found = _yarn_of_megatron(provider, width) if provider.position_embedding_type == "yarn" else None
    if found is None:
        rotary: Any = importlib.import_module("megatron.core.models.common.embeddings.rotary_pos_embedding")
        built = rotary.RotaryEmbedding(
            kv_channels=width,
            rotary_percent=provider.rotary_percent,
            seq_len_interpolation_factor=provider.seq_len_interpolation_factor,
            rotary_base=provider.rotary_base,
            rope_scaling=provider.rope_scaling,
            rope_scaling_factor=provider.rope_scaling_factor,
            use_cpu_initialization=True,
            cp_group=0,
        )
        found = {"rates": built.inv_freq.tolist(), "attention_factor": 1.0}
    return [found | _window_of_megatron(provider)]


def _yarn_of_megatron(provider: Any, width: int) -> dict[str, Any]:
    yarn: Any = importlib.import_module("megatron.core.models.common.embeddings.yarn_rotary_pos_embedding")
    factor = provider.yarn_rotary_scaling_factor
    dims = int(width * provider.rotary_percent)
    low, high = yarn._yarn_find_correction_range(
        32 if provider.yarn_beta_fast is None else provider.yarn_beta_fast,
        1 if provider.yarn_beta_slow is None else provider.yarn_beta_slow,
        dims,
        provider.rotary_base,
        provider.yarn_original_max_position_embeddings,
    )
    mask = (1.0 - yarn._yarn_linear_ramp_mask(low, high, dims // 2, device="cpu")).tolist()
    plain = [provider.rotary_base ** (-2 * at / dims) for at in range(dims // 2)]
    rates = [rate / factor * (1 - share) + rate * share for rate, share in zip(plain, mask, strict=True)]
    magnitude = yarn._yarn_get_concentration_factor(factor, provider.yarn_mscale, provider.yarn_mscale_all_dim)
    return {"rates": rates, "attention_factor": float(magnitude)}


def _window_of_megatron(provider: Any) -> dict[str, Any]:
    """How many of the last positions a query sees, counted in the mask that Megatron Core makes of the window."""
    if not provider.window_size:
        return {}
    masks: Any = importlib.import_module("megatron.core.transformer.utils")
    earlier = provider.window_size[0]
    with _on_the_cpu():
        hidden = masks.get_sliding_window_causal_mask(2 * earlier, 2 * earlier, tuple(provider.window_size))
    return {"window": int((~hidden[-1]).sum())}


def _on_the_cpu() -> Any:
    """Tensors that are asked for on a GPU are made on the CPU."""
    overrides: Any = importlib.import_module("torch.overrides")

    class OnTheCpu(overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = {
                key: "cpu" if key == "device" and value == "cuda" else value for key, value in (kwargs or {}).items()
            }
            return func(*args, **named)

    return OnTheCpu()


ARCHITECTURES = {
    "cohere": "CohereForCausalLM", "cohere2": "Cohere2ForCausalLM", "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM", "glm4": "Glm4ForCausalLM", "granite": "GraniteForCausalLM",
    "internlm2": "InternLM2ForCausalLM", "llama": "LlamaForCausalLM", "ministral3": "Ministral3ForCausalLM",
    "mistral": "MistralForCausalLM", "mixtral": "MixtralForCausalLM", "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM",
    "starcoder2": "Starcoder2ForCausalLM",
}  # fmt: skip


def of_llama_cpp(config: dict[str, Any]) -> Found:
    """The base, the scaling and the factors that llama.cpp's converter writes into a GGUF file.

    The loader takes 10,000 for a base that is not written. mistral_common and sentencepiece, for tokenizers, stand in.
    """
    name = ARCHITECTURES[config["model_type"]]
    with tempfile.TemporaryDirectory() as folder:
        _written(folder, config)
        converter: Any = importlib.import_module("convert_hf_to_gguf")
        gguf: Any = importlib.import_module("gguf")
        # Since the code is split into files, a function finds the one of a class.
        find = getattr(converter, "get_model_class", None) or converter.ModelBase.from_model_architecture
        model = find(name)(Path(folder), gguf.LlamaFileType.MOSTLY_F16, Path(folder, "out.gguf"), hparams=None)
        model.set_gguf_parameters()
        extra = {name: values.tolist() for name, values in model.generate_extra_tensors()}
    written = {key: each.value for part in model.gguf_writer.kv_data for key, each in part.items()}
    arch = gguf.MODEL_ARCH_NAMES[model.model_arch]
    scaling = written.get(f"{arch}.rope.scaling.type")
    scaling = None if scaling in (None, "none") else scaling
    if "rope_freqs.weight" in extra:
        scaling = "llama3"
    return [{"base": written.get(f"{arch}.rope.freq_base", 10000.0), "scaling": scaling}]


def of_exllamav2(config: dict[str, Any]) -> Found:
    """The frequencies of ExLlamaV2 for the context of the file, as its device.py uses them.

    exllamav2.ext, the CUDA extension, stands in.
    """
    settings: Any = importlib.import_module("exllamav2.config")
    rope: Any = importlib.import_module("exllamav2.rope")
    with tempfile.TemporaryDirectory() as folder:
        _written(folder, config)
        made = settings.ExLlamaV2Config()
        made.model_dir = folder
        made.prepare(no_tensors=True)
    rates, magnitude = rope.get_rope_params("cpu", made, made.rotary_embedding_base)
    scale = made.scale_pos_emb or 1.0
    return [{"rates": (rates / scale).tolist(), "attention_factor": float(magnitude)}]


def of_exllamav3(config: dict[str, Any]) -> Found:
    """The frequencies of ExLlamaV3's RoPE for the settings that its config class reads.

    exllamav3.ext, the CUDA extension, and the packages that load weights and run layers stand in.
    """
    module: Any = importlib.import_module(f"exllamav3.architecture.{config['model_type']}")
    rope: Any = importlib.import_module("exllamav3.util.rope")
    (kind,) = {
        each
        for each in vars(module).values()
        if getattr(each, "arch_string", None) == ARCHITECTURES[config["model_type"]] and hasattr(each, "read_cfg")
    }
    with tempfile.TemporaryDirectory() as folder:
        _written(folder, config)
        made = kind(folder)
    built = rope.RoPE("cpu", made.rope_settings)
    return [{"rates": built.inv_freq.tolist(), "attention_factor": float(built.attn_factor)}]


def _written(folder: str, config: dict[str, Any]) -> None:
    gemma = {"hidden_act": "gelu_pytorch_tanh"} if config["model_type"].startswith("gemma") else {}
    kinds = {"order_of_interleaved_layers": "local_attn_first", "layer_switch": 4, "sliding_window_pattern": 4}
    held = SIZES | kinds | gemma | {"norm_topk_prob": True, "layer_norm_epsilon": 1e-6, "sliding_window": 64} | config
    held |= {"architectures": [ARCHITECTURES[config["model_type"]]]}
    del held["num_local_experts" if "moe" in config["model_type"] else "num_experts"]
    Path(folder, "config.json").write_text(json.dumps(held), "utf-8")


RUN: dict[str, Callable[[dict[str, Any]], Found]] = {
    "transformers": of_transformers,
    "mlx-lm": of_mlx_lm,
    "mlx-vlm": of_mlx_vlm,
    "deepspeed": of_deepspeed,
    "megatron-bridge": of_megatron_bridge,
    "llama-cpp-python": of_llama_cpp,
    "exllamav2": of_exllamav2,
    "exllamav3": of_exllamav3,
}
"""How each runtime is run, by its name in `misread.json` of the package."""

STANDING_IN: dict[str, tuple[str, ...]] = {
    "megatron-bridge": ("megatron.bridge.models.conversion.peft_bridge", "omegaconf"),
    "llama-cpp-python": ("mistral_common", "sentencepiece"),
    "exllamav2": ("exllamav2.ext",),
    "exllamav3": ("exllamav3.ext", "exllamav3.loader", "exllamav3.modules", "exllamav3.model.model"),
}
"""The modules of each that are not there, and that its position code does not use."""

WITHOUT_INIT: dict[str, tuple[str, ...]] = {
    "megatron-bridge": ("megatron", "megatron.bridge", "megatron.bridge.models"),
    "exllamav2": ("exllamav2",),
    "exllamav3": ("exllamav3", "exllamav3.model", "exllamav3.architecture"),
}
"""The packages of each whose ``__init__.py`` would import all of it."""


def main() -> None:
    """Run the cases of one runtime."""
    name = sys.argv[1]
    stand_in_for(*STANDING_IN.get(name, ()))
    without_init(*WITHOUT_INIT.get(name, ()))
    found = [RUN[name](case["config"]) for case in json.load(sys.stdin)]
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
