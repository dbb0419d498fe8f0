"""What older or other runtimes compute from configs, in a process whose PYTHONPATH has them; one JSON line each way.

Standard input is a list of cases of `misread.json`; standard output a list of what the rotary modules of the model
compute: ``[{"rates": [...], "attention_factor": ...}, ...]``.
"""

import importlib
import json
import math
import sys
from typing import Any

# What the classes need and no rotation depends on.
SIZES = {
    "vocab_size": 64, "intermediate_size": 64, "rms_norm_eps": 1e-6, "norm_eps": 1e-6, "layer_norm_eps": 1e-6,
    "tie_word_embeddings": True, "attention_bias": False, "num_experts": 2, "num_experts_per_tok": 1,
    "num_local_experts": 2, "moe_intermediate_size": 16, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "norm_topk_prob": False, "use_qkv_bias": False, "mlp_bias": False, "use_bias": False, "hidden_act": "silu",
}  # fmt: skip


def of_transformers(config: dict[str, Any]) -> list[dict[str, Any]]:
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


def of_mlx_lm(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The angles by which the rotations of mlx-lm's model turn a vector of ones at position 1."""
    mx: Any = importlib.import_module("mlx.core")
    utils: Any = importlib.import_module("mlx_lm.utils")
    name = utils.MODEL_REMAPPING.get(config["model_type"], config["model_type"])
    module: Any = importlib.import_module(f"mlx_lm.models.{name}")
    small = SIZES | {"num_key_value_heads": config["num_attention_heads"]} | config
    model = module.Model(module.ModelArgs.from_dict(small))
    found = []
    for name, each in model.named_modules():
        if not name.endswith(("rope", "rotary_emb")):
            continue
        width = small.get("head_dim") or small["hidden_size"] // small["num_attention_heads"]
        turned = each(mx.ones((1, 1, 1, width)), offset=1)[0, 0, 0].tolist()
        found.append(_angles(turned, traditional=bool(getattr(each, "traditional", False)), width=width, of=each))
    return found


def _angles(turned: list[float], *, traditional: bool, width: int, of: Any) -> dict[str, Any]:
    dims = int(getattr(of, "dims", width))
    pairs = [(2 * i, 2 * i + 1) if traditional else (i, i + dims // 2) for i in range(dims // 2)]
    rates = [math.atan2(turned[b], turned[a]) - math.pi / 4 for a, b in pairs]
    return {"rates": rates, "attention_factor": math.hypot(*(turned[at] for at in pairs[0])) / math.sqrt(2)}


if __name__ == "__main__":
    RUN = {"transformers": of_transformers, "mlx-lm": of_mlx_lm}
    print(json.dumps([RUN[case["runtime"]](case["config"]) for case in json.load(sys.stdin)]))
