"""Random configs that describe a sound model: all rope types, both shapes, one block or one for each kind of layer."""

import random
from typing import Any

# Types whose classes read one block for all layers; what their configs need beyond the usual keys.
FLAT: dict[str, dict[str, Any]] = {
    "llama": {}, "mistral": {}, "qwen2": {}, "qwen3": {}, "gemma": {}, "gemma2": {}, "granite": {}, "olmo2": {},
    "phi": {}, "stablelm": {}, "glm": {}, "glm4_moe": {}, "nemotron": {}, "persimmon": {}, "gpt_neox": {}, "cohere": {},
    "ernie4_5": {}, "smollm3": {"no_rope_layers": [1, 1, 1, 0]}, "seed_oss": {}, "helium": {}, "arcee": {},
    "qwen2_moe": {}, "mixtral": {}, "phi3": {}, "deepseek_v3": {"qk_rope_head_dim": 64, "qk_nope_head_dim": 128},
    "deepseek_v2": {"qk_rope_head_dim": 32, "qk_nope_head_dim": 64}, "starcoder2": {}, "olmoe": {}, "minimax_m2": {},
    "qwen3_next": {}, "lfm2": {"full_attn_idxs": [0, 2]}, "cohere2": {}, "exaone4": {}, "ministral": {},
}  # fmt: skip
NESTED = ("gemma3_text", "olmo3", "modernbert", "gemma3n_text", "mimo_v2_flash", "laguna", "mellum")
SHARED = {"phi", "stablelm", "glm", "glm4_moe", "nemotron", "persimmon", "gpt_neox", "phi3", "minimax_m2", "qwen3_next"}
# Whose heads are what the model's width and their number say, or have two parts.
DIVIDED = {"deepseek_v2", "deepseek_v3", "modernbert"}
# Whose classes fail at a scaling where the width of a head is not written out, or have one of their own.
NEEDS_WIDTH = {"mixtral", "ministral", "gemma3_text", "gemma3n_text", "olmo3", "mimo_v2_flash", "laguna", "mellum"}
# Whose classes know no other scalings.
ONLY = {"phi3": ("default", "longrope")}
# Whose new shape alone was ever published: their classes read no old keys.
NEW_ONLY = {"mimo_v2_flash", "laguna", "mellum"}
SCALINGS = ("default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional")
BASES = (10_000.0, 25_000.0, 500_000.0, 1_000_000.0, 8_000_000.0, 12_000_000.0)


def drawn(seed: int) -> dict[str, Any]:
    """The config of one seed."""
    draw = random.Random(seed)
    name = draw.choice([*FLAT, *NESTED, *NESTED])
    heads = draw.choice((4, 8, 16, 32))
    width = draw.choice((32, 64, 80, 96, 128, 256))
    config: dict[str, Any] = {"model_type": name, "num_attention_heads": heads, "hidden_size": heads * width}
    config |= {"num_hidden_layers": draw.choice((4, 6, 12)), **FLAT.get(name, {})}
    if "no_rope_layers" in config:
        config["num_hidden_layers"] = 4
    config["max_position_embeddings"] = draw.choice((2048, 4096, 8192, 32768, 131072))
    if name not in DIVIDED and (name in NEEDS_WIDTH or draw.random() < 0.5):
        # Where the class has a width of its own, the model's says nothing.
        width = width if name == "phi3" or draw.random() < 0.5 else draw.choice((64, 128))
        config["head_dim"] = width
    share = draw.choice((0.25, 0.5, 0.75, 1.0)) if name in SHARED else None
    rotated = config.get("qk_rope_head_dim") or int(width * (share or 1.0))
    if name in NESTED:
        return _nested(draw, config, width)
    if "head_dim" not in config and name in OWN_WIDTH:
        rotated = int(OWN_WIDTH[name] * (share or 1.0))
    block = _block(draw, config, draw.choice(ONLY.get(name, SCALINGS)), rotated)
    base = draw.choice((*BASES, None))
    old = draw.random() < 0.5
    if old:
        return config | _old(draw, name, block, base, share)
    block |= {} if base is None else {"rope_theta": base}
    block |= {} if share is None else {"partial_rotary_factor": share}
    return config | {"rope_parameters": block}


# What classes take for the width of a head where the config has none.
OWN_WIDTH = {
    "gemma": 256, "gemma2": 256, "glm": 128, "qwen3": 128, "helium": 128, "ernie4_5": 128, "seed_oss": 128,
    "minimax_m2": 128, "qwen3_next": 256,
}  # fmt: skip


def _old(draw: random.Random, name: str, block: dict[str, Any], base: float | None, share: float | None) -> Any:
    """The keys of old files: a base and a share of their own, and a block only where there is a scaling."""
    base_key, share_key = (
        ("rotary_emb_base", "rotary_pct") if name == "gpt_neox" else ("rope_theta", "partial_rotary_factor")
    )
    keys: dict[str, Any] = {} if base is None else {base_key: base}
    keys |= {} if share is None else {share_key: share}
    if block["rope_type"] == "default":
        return keys | draw.choice(({}, {"rope_scaling": None}))
    spelt = draw.choice(("type", "rope_type", "both"))
    kind = block.pop("rope_type")
    block |= {"type": kind} if spelt != "rope_type" else {}
    block |= {"rope_type": kind} if spelt != "type" else {}
    if kind == "longrope" and name == "phi3":
        # Phi-3 keeps the original length outside.
        keys["original_max_position_embeddings"] = block.pop("original_max_position_embeddings")
    return keys | {"rope_scaling": block}


def _nested(draw: random.Random, config: dict[str, Any], width: int) -> dict[str, Any]:
    """One block for each kind of layer, in the new shape; in the old one the scaling of the layers that see all."""
    name = config["model_type"]
    count = config["num_hidden_layers"]
    config["layer_types"] = [draw.choice(("full_attention", "sliding_attention")) for _ in range(count - 2)]
    config["layer_types"] += ["full_attention", "sliding_attention"]
    kinds = ("full_attention", "sliding_attention")
    if name not in NEW_ONLY and draw.random() < 0.5:
        bases = {"modernbert": ("global_rope_theta", "local_rope_theta")}.get(
            name, ("rope_theta", "rope_local_base_freq")
        )
        config |= {} if name == "olmo3" else {bases[0]: draw.choice(BASES), bases[1]: draw.choice(BASES)}
        kind = draw.choice(("default", "linear", "llama3", "longrope", "yarn")) if name != "modernbert" else "default"
        block = _block(draw, config, kind, width, nested=True)
        return config | ({} if kind == "default" else {"rope_scaling": block})
    share = draw.choice((0.25, 0.5, 1.0)) if name in NEW_ONLY else None
    blocks = {}
    for label in kinds:
        kind = draw.choice(("default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"))
        block = _block(draw, config, kind, int(width * (share or 1.0)), nested=True)
        block["rope_theta"] = draw.choice(BASES)
        blocks[label] = block | ({} if share is None else {"partial_rotary_factor": share})
    return config | {"rope_parameters": blocks}


def _block(
    draw: random.Random, config: dict[str, Any], kind: str, rotated: int, *, nested: bool = False
) -> dict[str, Any]:
    """A block of one type with what it needs, and some of what it may have."""
    context = config["max_position_embeddings"]
    factor = draw.choice((2.0, 4.0, 8.0, 32.0))
    # Whole numbers of the context, as releases have them; those that have not extended it have the same.
    original = draw.choice((context, context // 2, context // 4))
    block: dict[str, Any] = {"rope_type": kind}
    if kind in ("linear", "dynamic", "yarn", "llama3"):
        block["factor"] = draw.choice((factor, int(factor)))
    if kind == "llama3":
        block |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": original}
    if kind == "yarn":
        if nested or draw.random() < 0.7:
            block["original_max_position_embeddings"] = original
        block |= draw.choice(({}, {"beta_fast": 32.0, "beta_slow": 1.0}, {"beta_fast": 4, "beta_slow": 2}))
        block |= draw.choice(
            (
                {},
                {"mscale": 1.0, "mscale_all_dim": 1.0},
                {"mscale": 0.707, "mscale_all_dim": 1.0},
                {"attention_factor": 1.25},
            )
        )
        # Inside one block for each kind of layer the library looks for this key in the wrong place.
        block |= {} if nested else draw.choice(({}, {"truncate": True}, {"truncate": False}))
    if kind == "longrope":
        for key, most in (("short_factor", 3.0), ("long_factor", 60.0)):
            block[key] = [1.0 + draw.random() * most for _ in range(rotated // 2)]
        block["original_max_position_embeddings"] = max(original // 2, 16)
        block |= draw.choice(({}, {"factor": factor}, {"attention_factor": 1.1}))
    if kind == "proportional":
        block |= draw.choice(({}, {"factor": factor}))
    return block
