"""Ways to rotate queries, ours and others', for `run.py` to time beside copying them.

Each peer is called as its library means it to be called, with its cosines and sines made before the clock starts; we
and rotary-embedding-torch remember ours after the first call. All write a new tensor, as the copy does into one that
is there already: the floor is lower than any of them can reach.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

import clockhands as ch

COPY = "out.copy_(q)"
HALVES, INTERLEAVED = "clockhands halves", "clockhands interleaved"
LLAMA = "transformers Llama (halves)"


@dataclass(frozen=True)
class Rotator:
    """One way to rotate queries of shape [batch, heads, seq, head_width].

    Attributes:
        name: As printed.
        prepare: ``q -> rotate``: what does not count. ``rotate()`` is timed and returns the rotated queries.
    """

    name: str
    prepare: Callable[[torch.Tensor], Callable[[], torch.Tensor]]


def _copy(q: torch.Tensor) -> Callable[[], torch.Tensor]:
    out = torch.empty_like(q)
    return lambda: out.copy_(q)


def _ours(layout: str) -> Callable[[torch.Tensor], Callable[[], torch.Tensor]]:
    def prepare(q: torch.Tensor) -> Callable[[], torch.Tensor]:
        spec = ch.Rotary(head_width=q.shape[-1], layout=layout)
        return lambda: ch.rotate(q, spec)

    return prepare


def _transformers() -> Iterator[Rotator]:
    from transformers import LlamaConfig
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj_rotate
    from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama_rotate

    def llama(q: torch.Tensor) -> Callable[[], torch.Tensor]:
        config = LlamaConfig(head_dim=q.shape[-1], hidden_size=q.shape[1] * q.shape[-1], num_attention_heads=q.shape[1])
        cos, sin = LlamaRotaryEmbedding(config)(q, torch.arange(q.shape[-2])[None])
        no_keys = q[:, :0]  # it rotates keys along; none are given
        return lambda: llama_rotate(q, no_keys, cos, sin)[0]

    def gptj(q: torch.Tensor) -> Callable[[], torch.Tensor]:
        sin, cos = create_sinusoidal_positions(q.shape[-2], q.shape[-1])[None].chunk(2, dim=-1)
        swapped = q.transpose(1, 2).contiguous()  # its own order of axes
        return lambda: gptj_rotate(swapped, sin, cos)

    yield Rotator(LLAMA, llama)
    yield Rotator("transformers GPT-J (interleaved)", gptj)


def _rotary_embedding_torch() -> Iterator[Rotator]:
    from rotary_embedding_torch import RotaryEmbedding

    def prepare(q: torch.Tensor) -> Callable[[], torch.Tensor]:
        module = RotaryEmbedding(dim=q.shape[-1])
        return lambda: module.rotate_queries_or_keys(q)

    yield Rotator("rotary-embedding-torch (interleaved)", prepare)


def _diffusers() -> Iterator[Rotator]:
    from diffusers.models.embeddings import apply_rotary_emb, get_1d_rotary_pos_embed

    def prepare(q: torch.Tensor) -> Callable[[], torch.Tensor]:
        freqs = get_1d_rotary_pos_embed(q.shape[-1], q.shape[-2], use_real=True)
        return lambda: apply_rotary_emb(q, freqs)

    yield Rotator("diffusers (interleaved)", prepare)


DECODING_LAYERS, DECODING_WIDTH, QUERY_HEADS, KEY_HEADS = 30, 64, 9, 3  # those of SmolLM2-135M
SHARED, EACH_SPEC, EACH = "cos_sin shared", "positions, a spec for each layer", "positions, one spec"


def decoding() -> dict[str, Callable[[int], object]]:
    """The rotary work of one new token in all layers of a model, eager: ``step(position)`` does it."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = LlamaConfig(head_dim=DECODING_WIDTH, hidden_size=QUERY_HEADS * DECODING_WIDTH)
    queries, keys = (torch.randn(1, heads, 1, DECODING_WIDTH) for heads in (QUERY_HEADS, KEY_HEADS))
    tokens, embedding = torch.randn(1, 1, QUERY_HEADS * DECODING_WIDTH), LlamaRotaryEmbedding(config)
    layers = [ch.Rotary(head_width=DECODING_WIDTH) for _ in range(DECODING_LAYERS)]

    def theirs(position: int) -> None:
        cos, sin = embedding(tokens, torch.tensor([[position]]))
        for _ in layers:
            apply_rotary_pos_emb(queries, keys, cos, sin)

    def shared(position: int) -> None:
        pair = ch.rotary.cos_sin(layers[0], torch.tensor([[position]]), like=tokens)
        for _ in layers:
            ch.rotary.rotate_both(queries, keys, layers[0], cos_sin=pair)

    def each(position: int, specs: list[ch.Rotary]) -> None:
        positions = torch.tensor([[position]])
        for spec in specs:
            ch.rotary.rotate_both(queries, keys, spec, positions)

    one = [layers[0]] * DECODING_LAYERS
    return {
        LLAMA: theirs,
        SHARED: shared,
        EACH: lambda position: each(position, one),
        EACH_SPEC: lambda position: each(position, layers),
    }


def training(q: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Rotation forward and backward, halves, cosine and sine made before."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    spec, no_keys, upstream = ch.Rotary(head_width=q.shape[-1]), q[:, :0], torch.randn_like(q)
    pair = ch.rotary.cos_sin(spec, range(q.shape[-2]), like=q)
    cos, sin = pair.repeated()
    wanted = q.clone().requires_grad_()

    def both(rotated: torch.Tensor) -> object:
        return torch.autograd.grad(rotated, wanted, upstream)

    return {
        HALVES: lambda: both(ch.rotate(wanted, spec, cos_sin=pair)),
        LLAMA: lambda: both(apply_rotary_pos_emb(wanted, no_keys, cos[None], sin[None])[0]),
    }


def rotators() -> list[Rotator]:
    """Everybody, the floor first and us second."""
    return [
        Rotator(COPY, _copy),
        Rotator(INTERLEAVED, _ours("interleaved")),
        Rotator(HALVES, _ours("halves")),
        *_transformers(),
        *_rotary_embedding_torch(),
        *_diffusers(),
    ]
