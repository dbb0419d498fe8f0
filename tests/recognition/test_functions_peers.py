"""Other libraries' own functions are identified: those that are installed here, called as they call them."""

import importlib
import inspect
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.ladders import Geometric
from clockhands.recognition.functions import identify_function
from clockhands.scaling import Dynamic, Linear, Llama3, LongRope, Proportional, Yarn

pytestmark = pytest.mark.slow
torch: Any = None
transformers: Any = None


@pytest.fixture(autouse=True, scope="module")
def peers():
    """Imported when the first test runs: the quick tests read this file too."""
    for name in ("torch", "transformers"):
        globals()[name] = pytest.importorskip(name)


def modeling(name, folder=None):
    return importlib.import_module(f"transformers.models.{folder or name}.modeling_{name}")


def config_of(kind, **fields):
    return getattr(transformers, kind)(**fields)


def on_heads(apply, rotary, take=lambda found: found[0]):
    """The usual pair of a module that makes cosines and sines and a function that applies them to [batch, head, …]."""

    def function(x, positions):
        cosine, sine = rotary(x[None], positions[None])
        heads = x[None, None]
        return take(apply(heads, heads, cosine, sine))[0, 0]

    return function


def llama(rope=None, **fields):
    rope = {"rope_type": "default", "rope_theta": 10_000.0} | (rope or {})
    fields = {"hidden_size": 256, "num_attention_heads": 4, "head_dim": 64, "max_position_embeddings": 4_096} | fields
    config = config_of("LlamaConfig", rope_parameters=rope, **fields)
    module = modeling("llama")
    return on_heads(module.apply_rotary_pos_emb, module.LlamaRotaryEmbedding(config))


def usual(name, kind, *, rotary, **fields):
    config = config_of(kind, **fields)
    module = modeling(name)
    return on_heads(module.apply_rotary_pos_emb, getattr(module, rotary)(config))


def identified(function, width, **options):
    found = identify_function(function, width, **options)
    assert found, found.reason
    return found[0], found.reason


SHORT = [round(1 + 0.02 * pair, 2) for pair in range(32)]
LONG = [round(1 + 0.5 * pair, 2) for pair in range(32)]

ROPES = {
    "default": ({}, ch.Rotary(64)),
    "another base": ({"rope_theta": 500_000.0}, ch.Rotary(64, base=500_000.0)),
    "linear": ({"rope_type": "linear", "factor": 4.0}, ch.Rotary(64, scaling=Linear(4.0))),
    "yarn": (
        {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4_096},
        ch.Rotary(64, scaling=Yarn(8.0, 4_096)),
    ),
    "yarn as in gpt-oss": (
        {
            "rope_type": "yarn",
            "rope_theta": 150_000.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4_096,
            "truncate": False,
        },
        ch.Rotary(64, base=150_000.0, scaling=Yarn(32.0, 4_096, truncate=False)),
    ),
    "llama 3": (
        {
            "rope_type": "llama3",
            "rope_theta": 500_000.0,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8_192,
        },
        ch.Rotary(64, base=500_000.0, scaling=Llama3(32.0, 8_192)),
    ),
    "proportional": (
        {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
        ch.Rotary(64, base=1e6, scaling=Proportional(0.25)),
    ),
}


@pytest.mark.parametrize("name", ROPES)
def test_rope_types_of_transformers(name):
    rope, spec = ROPES[name]
    match, _ = identified(llama(rope), 64)
    assert match.spec == spec
    evidence = dict(match.evidence)
    assert (evidence["rates_in"] or "float32", evidence["phases_in"], evidence["table_in"]) == ("float32",) * 3
    assert match.computed_in == "float32"
    # Phases of 131,072 rad in float32, and rates that are off by some units in the 24th bit.
    assert match.error < 131_072 * 8 * 2.0**-24 * 2
    assert match.confidence == 1


def test_dynamic_scaling_of_transformers():
    rope = {"rope_type": "dynamic", "factor": 2.0}
    found, reason = identified(llama(rope), 64)
    assert found.spec == ch.Rotary(64, scaling=Dynamic(2.0, 4_096))
    assert "Up to position 4,095" in reason
    assert "keeps the frequencies of the longest call" in reason


def test_longrope_of_transformers():
    rope = {
        "rope_type": "longrope",
        "short_factor": SHORT,
        "long_factor": LONG,
        "original_max_position_embeddings": 4_096,
        "factor": 32.0,
    }
    module = modeling("phi3")
    config = config_of(
        "Phi3Config",
        hidden_size=256,
        num_attention_heads=4,
        max_position_embeddings=131_072,
        original_max_position_embeddings=4_096,
        rope_parameters=rope | {"rope_theta": 10_000.0},
        pad_token_id=0,
    )
    found, reason = identified(on_heads(module.apply_rotary_pos_emb, module.Phi3RotaryEmbedding(config)), 64)
    scaling = found.spec.scaling
    assert isinstance(scaling, LongRope)
    assert scaling.short == tuple(SHORT)
    assert scaling.long == pytest.approx(LONG, rel=1e-3)
    assert (scaling.original, scaling.factor) == (4_096, 32.0)
    assert "Up to position 4,095" in reason


def gptj(width=64):
    module = modeling("gptj")
    table = module.create_sinusoidal_positions(2_048, width)

    def function(x, positions):
        sine, cosine = torch.split(table[positions], width // 2, dim=-1)
        return module.apply_rotary_pos_emb(x[None, :, None], sine[None], cosine[None])[0, :, 0]

    return function


def roformer():
    module = modeling("roformer")
    table = module.RoFormerSinusoidalPositionalEmbedding(1_536, 64)
    table.weight = torch.nn.Parameter(table.create_weight(), requires_grad=False)

    def function(x, positions):
        sinusoidal = table.weight[positions][None, None]
        turned, _ = module.RoFormerSelfAttention.apply_rotary_position_embeddings(
            sinusoidal, x[None, None], x[None, None]
        )
        return turned[0, 0]

    return function


def deepseek_v2():
    module = modeling("deepseek_v2")
    config = config_of(
        "DeepseekV2Config", hidden_size=256, num_attention_heads=4, qk_rope_head_dim=64, max_position_embeddings=4_096
    )
    rotary = module.DeepseekV2RotaryEmbedding(config)

    def function(x, positions):
        turned, _ = module.apply_rotary_emb(x[None, None], x[None, None], rotary(x[None], positions[None]))
        return turned[0, 0]

    return function


def deepseek_v3():
    module = modeling("deepseek_v3")
    config = config_of("DeepseekV3Config", hidden_size=256, num_attention_heads=4, max_position_embeddings=4_096)
    config.head_dim = config.qk_rope_head_dim
    rotary = module.DeepseekV3RotaryEmbedding(config)

    def function(x, positions):
        cosine, sine = rotary(x[None], positions[None])
        still, heads = x[None, None, :, :-64], x[None, None, :, -64:]
        turned, _ = module.apply_rotary_pos_emb_interleave(heads, heads, cosine, sine)
        return torch.cat([still, turned], dim=-1)[0, 0]

    return function


def llama4():
    module = modeling("llama4")
    config = config_of(
        "Llama4TextConfig", hidden_size=256, num_attention_heads=4, head_dim=64, max_position_embeddings=4_096,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
    )  # fmt: skip
    rotary = module.Llama4TextRotaryEmbedding(config)

    def function(x, positions):
        turned, _ = module.apply_rotary_emb(x[None, :, None], x[None, :, None], rotary(x[None], positions[None]))
        return turned[0, :, 0]

    return function


def neox():
    return usual("gpt_neox", "GPTNeoXConfig", rotary="GPTNeoXRotaryEmbedding", hidden_size=256, num_attention_heads=4)


def cohere():
    return usual("cohere", "CohereConfig", rotary="CohereRotaryEmbedding", hidden_size=256, num_attention_heads=4)


def glm4():
    return usual(
        "glm4", "Glm4Config", rotary="Glm4RotaryEmbedding", hidden_size=256, num_attention_heads=4, head_dim=64,
        max_position_embeddings=4_096,
    )  # fmt: skip


def nanochat():
    return usual("nanochat", "NanoChatConfig", rotary="NanoChatRotaryEmbedding", hidden_size=256, num_attention_heads=4)


def codegen():
    module = modeling("codegen")
    table = module.create_sinusoidal_positions(2_048, 32)

    def function(x, positions):
        sine, cosine = torch.split(table[positions], 16, dim=-1)
        heads = x[None, :, None]
        turned = module.apply_rotary_pos_emb(heads[..., :32], sine[None], cosine[None])
        return torch.cat([turned, heads[..., 32:]], dim=-1)[0, :, 0]

    return function


def esm():
    config = config_of("EsmConfig", vocab_size=33, hidden_size=256, num_attention_heads=4, pad_token_id=1)
    module = modeling("esm")
    return on_heads(module.apply_rotary_pos_emb, module.EsmRotaryEmbedding(config))


def diffusers_1d(real, side):
    embeddings = pytest.importorskip("diffusers.models.embeddings")

    def function(x, positions):
        made = embeddings.get_1d_rotary_pos_embed(
            64, positions, use_real=True, repeat_interleave_real=real, freqs_dtype=torch.float64
        )
        return embeddings.apply_rotary_emb(x[None, None], made, use_real=True, use_real_unbind_dim=side)[0, 0]

    return function


def diffusers_complex():
    embeddings = pytest.importorskip("diffusers.models.embeddings")

    def function(x, positions):
        made = embeddings.get_1d_rotary_pos_embed(64, positions, linear_factor=2.0, ntk_factor=3.0)[None]
        return embeddings.apply_rotary_emb(x[None, :, None], made, use_real=False)[0, :, 0]

    return function


PEERS = {
    "gpt-j": (gptj, 64, ch.Rotary(64, "interleaved")),
    "codegen": (codegen, 64, ch.Rotary(64, "interleaved", rotated=32)),
    "roformer": (roformer, 64, ch.Rotary(64, "interleaved")),
    "gpt-neox": (neox, 64, ch.Rotary(64, rotated=16)),
    "cohere": (cohere, 64, ch.Rotary(64, "interleaved", base=500_000.0)),
    "deepseek-v2": (deepseek_v2, 64, ch.Rotary(64, "interleaved")),
    "deepseek-v3": (
        deepseek_v3,
        192,
        ch.Rotary(192, "interleaved", rotated=64, part="last", reordered=True),
    ),
    "glm-4": (glm4, 64, ch.Rotary(64, "interleaved", rotated=32)),
    "llama 4": (llama4, 64, ch.Rotary(64, "interleaved", base=500_000.0)),
    "nanochat": (nanochat, 64, ch.Rotary(64, direction="backward")),
    "esm": (esm, 64, ch.Rotary(64)),
}


@pytest.mark.parametrize("name", PEERS)
def test_functions_of_transformers(name):
    make, width, spec = PEERS[name]
    match, _ = identified(make(), width)
    assert match.spec == spec
    assert match.confidence == 1
    assert match.error < 131_072 * 8 * 2.0**-24 * 2


@pytest.mark.parametrize(("real", "side", "layout"), [(True, -1, "interleaved"), (False, -2, "halves")])
def test_functions_of_diffusers(real, side, layout):
    match, _ = identified(diffusers_1d(real, side), 64)
    assert match.spec == ch.Rotary(64, layout)
    assert dict(match.evidence)["phases_in"] == "float64"
    assert match.error < 1e-6


def test_diffusers_multiplies_the_base_itself():
    """Its ``ntk_factor`` is one of the base, 30,000 here, and its positions are divided."""
    match, _ = identified(diffusers_complex(), 64)
    assert match.spec == ch.Rotary(64, "interleaved", base=30_000.0, scaling=Linear(2.0))


def test_a_table_that_ends_is_read_as_far_as_it_goes():
    match, reason = identified(gptj(), 64)
    assert dict(match.evidence)["longest_position"] == 2_047
    assert "positions up to 2,047 only" in reason


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ROPES)
def test_rates_of_few_bits_are_seen(name, dtype):
    """After ``model.to(bfloat16)``; the ladder they were rounded from is still told."""
    rope, spec = ROPES[name]
    module = modeling("llama")
    rope = {"rope_type": "default", "rope_theta": 10_000.0} | rope
    config = config_of(
        "LlamaConfig", rope_parameters=rope, hidden_size=256, num_attention_heads=4, head_dim=64,
        max_position_embeddings=4_096,
    )  # fmt: skip
    rotary = module.LlamaRotaryEmbedding(config).to(getattr(torch, dtype))
    match, reason = identified(on_heads(module.apply_rotary_pos_emb, rotary), 64)
    evidence = dict(match.evidence)
    assert match.spec == spec
    assert evidence["rates_in"] == match.computed_in == dtype
    assert f"Frequencies are stored in {dtype}." in reason
    assert 1 <= evidence["first_wrong_position"] <= 300
    assert match.error > 0.5
    # The measured rates are what the dtype makes of the ladder's.
    held = torch.tensor(spec.rates, dtype=torch.float32).to(getattr(torch, dtype)).double().numpy()
    assert np.allclose(evidence["rates"], held, atol=1e-9)


def test_vjepa2_is_no_rotation():
    module = modeling("vjepa2")

    def function(x, positions):
        return module.rotate_queries_or_keys(x[None, None], positions[None, None].to(x.dtype))[0, 0]

    found = identify_function(function, 64)
    assert not found
    assert "It is not a rotation: it changes lengths by factors from 0." in found.reason
    assert "interleaved, its angles are written twice as halves are" in found.reason


def test_positional_encodings_adds_a_table():
    encodings = pytest.importorskip("positional_encodings.torch_encodings")
    module = encodings.Summer(encodings.PositionalEncoding1D(64))

    def function(x, _):
        return module(x[None])[0]

    match, reason = identified(function, 64)
    assert match.spec.layout == "interleaved"
    assert match.spec.spacing == Geometric()
    assert "It adds a table to x" in reason
    assert "counts its rows" in reason
    assert match.error < 4_096 * 4 * 2.0**-24


# Types with one module of cosines and sines, whose function takes the whole head, that the resolver knows.
DECLARED = (
    "cohere", "falcon", "gemma", "gemma2", "glm", "glm4", "gpt_neox", "gpt_oss", "granite", "helium", "llama",
    "minicpm3", "mistral", "mixtral", "mllama", "olmo", "olmo2", "phi3", "phimoe", "qwen2", "qwen2_moe", "qwen3",
    "qwen3_moe", "smollm3", "starcoder2",
)  # fmt: skip


@pytest.mark.parametrize("name", DECLARED)
def test_what_a_function_does_is_what_its_config_declares(name, tmp_path):
    """Two ways to one code that share nothing: reading the config, and asking the code."""
    module = modeling(name)
    kind = next(
        kind
        for own, kind in inspect.getmembers(module, inspect.isclass)
        if own.endswith("RotaryEmbedding") and kind.__module__ == module.__name__
    )
    given = inspect.signature(kind.__init__).parameters["config"].annotation
    config = (given if inspect.isclass(given) else getattr(module, given))()
    config.save_pretrained(tmp_path)
    declared = [layer.spec for layer in ch.audit(tmp_path).layers if layer.kind == "rotary"]
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    match, _ = identified(on_heads(module.apply_rotary_pos_emb, kind(config)), width)
    spec: Any = match.spec
    assert match.confidence == 1
    for other in declared:
        assert (other.layout, other.rotated, other.direction) == (spec.layout, spec.rotated, spec.direction)
        assert np.allclose(other.rates, spec.rates, rtol=1e-6, atol=0)
        assert other.attention_factor == pytest.approx(spec.attention_factor, abs=1e-6)
    assert declared
