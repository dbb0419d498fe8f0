"""Small models that are run, sound ones and ones with a single fault at run time."""

import types
from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest

import clockhands as ch
from late import Late

torch, modeling_llama = Late("torch"), Late("transformers.models.llama.modeling_llama")

LAYERS = 3
IDS = np.random.default_rng(0).integers(0, 128, (2, 64))
_SIZES = {
    "vocab_size": 128, "hidden_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 256, "initializer_range": 0.3,
}  # fmt: skip


def live(model, *, decoded=False):
    """What `probe` says of the positions in effect; unless asked for, without cached decoding, as Ctrl-C leaves it."""

    def stopped(what, _):
        if not decoded and "cached decoding" in what:
            raise KeyboardInterrupt

    return ch.probe(model, ids=IDS[:1, :32], measure=["live"], progress=stopped)["live"]


def faults(result):
    """Code, layers and fault of each finding."""
    return [(each["code"], each["layers"], each["evidence"].get("fault")) for each in result.numbers["findings"]]


def of_sizes(**changed):
    return modeling_llama.LlamaForCausalLM(modeling_llama.LlamaConfig(**{**_SIZES, **changed}))


def llama(**changed):
    """Weights that are large enough for positions to matter."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return of_sizes(**changed).eval()


LATENT = {
    "num_key_value_heads": 4, "moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 3, "q_lora_rank": 48, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16, "v_head_dim": 16,
    "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10_000.0, "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 16,
    },
}  # fmt: skip


def latent(version, rank=32, **changed):
    """DeepSeek-V2 or V3: a head has an unrotated and a rotated part, and YaRN's factor is on the scores."""
    transformers = pytest.importorskip("transformers")

    config = getattr(transformers, f"DeepseekV{version}Config")(**{**_SIZES, **LATENT, **changed}, kv_lora_rank=rank)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return getattr(transformers, f"DeepseekV{version}ForCausalLM")(config).eval()


def taught(vocabulary=32, steps=100):
    """A model that was trained for a moment to repeat three tokens, so that losing its positions costs."""
    model = of_sizes(vocab_size=vocabulary)
    model.load_state_dict(_trained(vocabulary, steps))
    return model.eval()


@cache
def _trained(vocabulary, steps):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = of_sizes(vocab_size=vocabulary, initializer_range=0.1)
        optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
        for step in range(steps):
            ids = repeated(vocabulary, 1000 + step, rows=16, times=10)
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
    return model.state_dict()


def repeated(vocabulary, seed, rows=4, period=3, times=22):
    """Random tokens, each row the same three again and again."""
    drawn = torch.randint(vocabulary, (rows, period), generator=torch.Generator().manual_seed(seed))
    return drawn.repeat(1, times)


def another_base(model, base=500_000.0):
    """Every layer rotates by another base, though the buffer holds the declared one."""
    pairs = len(model.model.rotary_emb.inv_freq)

    def forward(_, x, position_ids):
        rates = base ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
        angles = position_ids[..., None].double() * rates
        angles = torch.cat((angles, angles), -1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    model.model.rotary_emb.forward = types.MethodType(forward, model.model.rotary_emb)
    return model


def with_waves(model, layers, change):
    """Some layers get other cosines and sines."""
    for layer in layers:

        def before(_, args, kwargs):
            return args, {**kwargs, "position_embeddings": change(*kwargs["position_embeddings"])}

        model.model.layers[layer].self_attn.register_forward_pre_hook(before, with_kwargs=True)
    return model


def without_rotation(model, layer):
    return with_waves(model, [layer], lambda cosine, sine: (torch.ones_like(cosine), torch.zeros_like(sine)))


@contextmanager
def rotating_by(function):
    """All Llama models rotate by another function while this lasts."""
    from transformers.models.llama import modeling_llama as module

    kept, module.apply_rotary_pos_emb = module.apply_rotary_pos_emb, function
    try:
        yield
    finally:
        module.apply_rotary_pos_emb = kept


def rotated(x, cos, sin):
    return x * cos[:, None] + modeling_llama.rotate_half(x) * sin[:, None]


def neighbours(q, k, cos, sin, *_, **__):
    """Pairs are neighbouring channels."""
    half = q.shape[-1] // 2
    cos, sin = (wave[..., :half].repeat_interleave(2, -1)[:, None] for wave in (cos, sin))

    def turned(x):
        return x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * sin

    return turned(q), turned(k)


def half_of_the_width(q, k, cos, sin, *_, **__):
    """The first half of the channels is rotated, as a head of half the width."""
    half = q.shape[-1] // 2
    cos, sin = (torch.cat((wave[..., :half:2],) * 2, -1) for wave in (cos, sin))

    def turned(x):
        return torch.cat((rotated(x[..., :half], cos, sin), x[..., half:]), -1)

    return turned(q), turned(k)


def keys_cached_late(model, layer):
    """One layer puts queries and keys one position later as soon as the cache holds something."""
    rotary = model.model.rotary_emb

    def before(_, args, kwargs):
        cache = kwargs.get("past_key_values")
        if cache is None or not cache.get_seq_length(layer):
            return None
        cosine, sine = kwargs["position_embeddings"]
        angles = torch.cat((rotary.inv_freq, rotary.inv_freq))
        turned = (cosine * angles.cos() - sine * angles.sin(), sine * angles.cos() + cosine * angles.sin())
        return args, {**kwargs, "position_embeddings": turned}

    model.model.layers[layer].self_attn.register_forward_pre_hook(before, with_kwargs=True)
    return model
