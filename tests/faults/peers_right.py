"""What is right in libraries, the ways around their defects among it."""

import functools
from typing import Any

import clockhands as ch
from clockhands.scaling import Linear, Llama3, Ntk, Yarn
from faults import peer_calls as peers
from faults.peer_calls import PeerCall

HEADS = "batch heads seq width"
HALVES = ch.Rotary(head_width=64, layout="halves")
INTERLEAVED = ch.Rotary(head_width=64, layout="interleaved")
NTK = ch.Rotary(head_width=64, layout="interleaved", scaling=Ntk(factor=4))
YARN = ch.Rotary(head_width=64, layout="halves", base=1e6, scaling=Yarn(factor=4, original=32768))
LLAMA_3 = ch.Rotary(head_width=64, layout="halves", base=500_000, scaling=Llama3(factor=32, original=8192))
SINUSOID = ch.preset("vaswani2017", width=64)
FAIRSEQ = ch.preset("fairseq", width=64)
SYMMETRIC = ch.preset("alibi-symmetric")
family = peers.of_transformers
part = functools.partial


def with_scaling(scaling: Any) -> ch.Rotary:
    return ch.Rotary(head_width=64, layout="halves", scaling=scaling)


def rotary(name: str, like: Any, build: Any, each: bool = False, **options: Any) -> PeerCall:
    return PeerCall(name, "check_rotary", like, build, {"axes": HEADS, **options}, each)


def tokens(name: str, like: Any, build: Any) -> PeerCall:
    return PeerCall(name, "check_additive", like, build, {"axes": "batch seq width", "call": "x"})


def rows(name: str, like: Any, build: Any, length: int = 10_000) -> PeerCall:
    return PeerCall(name, "check_additive", like, build, {"call": "positions", "backend": "torch", "length": length})


def bias(name: str, like: Any, build: Any) -> PeerCall:
    return PeerCall(name, "check_bias", like, build, {"call": "counts"})


KERAS = {"axes": "batch seq heads width"}
LOW = {"dtype": "bfloat16"}
RIGHT = (
    rotary("Transformers, Llama", HALVES, peers.llama, each=True),
    rotary("Transformers, Llama in bfloat16", HALVES, peers.llama, each=True, **LOW),
    rotary("Transformers, Llama 3.1", ch.preset("llama3.1"), peers.llama, each=True),
    rotary("Transformers, Llama with rows of positions", HALVES, peers.llama, each=True, positions="batch seq"),
    rotary("Transformers, YaRN", YARN, peers.gemma3_yarn, each=True),
    rotary("Transformers, GPT-J", INTERLEAVED, peers.gpt_j, axes="batch seq heads width"),
    rotary(
        "Transformers, GPT-NeoX",
        ch.Rotary(head_width=64, layout="halves", rotated=16),
        lambda _: family("gpt_neox", "GPTNeoX"),
    ),
    rotary(
        "Transformers, Cohere",
        ch.Rotary(head_width=64, layout="interleaved", base=500_000),
        lambda _: family("cohere", "Cohere"),
    ),
    rotary(
        "Transformers, GLM",
        ch.Rotary(head_width=128, layout="interleaved", rotated=64),
        lambda _: family("glm", "Glm"),
    ),
    rotary("diffusers, rotary", INTERLEAVED, peers.diffusers_rotary, each=True),
    rotary("diffusers, rotary in bfloat16", INTERLEAVED, peers.diffusers_rotary, each=True, **LOW),
    rotary("equinox, one base", HALVES, peers.equinox, axes="seq width", call="x", backend="jax"),
    rotary("rotary-embedding-torch, in float32, without its cache", INTERLEAVED, peers.lucidrains_exact, call="x"),
    rotary(
        "rotary-embedding-torch, NTK, likewise", NTK, part(peers.lucidrains_exact, theta_rescale_factor=4.0), call="x"
    ),
    rotary("x-transformers, rotary", INTERLEAVED, peers.x_transformers, each=True),
    rotary("x-transformers, rotary in bfloat16", INTERLEAVED, peers.x_transformers, each=True, **LOW),
    rotary("keras-hub, rotary", HALVES, peers.keras_hub, each=True, **KERAS),
    rotary("keras-hub, rotary in bfloat16", HALVES, part(peers.keras_hub, dtype="bfloat16"), **KERAS, **LOW),
    rotary("keras-hub, linear", with_scaling(Linear(factor=4)), part(peers.keras_hub, scaling_factor=4.0), **KERAS),
    rotary(
        "keras-hub, NTK by the base",
        with_scaling(Ntk(factor=4)),
        part(peers.keras_hub, max_wavelength=10_000 * 4 ** (64 / 62)),
        **KERAS,
    ),
    rotary("keras-hub, YaRN", YARN, peers.keras_hub_yarn, **KERAS),
    rotary("litgpt, rotary", HALVES, peers.litgpt, each=True),
    rotary("litgpt, Llama 3", LLAMA_3, peers.litgpt_llama3),
    rotary("fair-esm, rotary", HALVES, peers.esm_rotary, axes="batch seq width", call="x"),
    tokens("positional-encodings, its cache emptied", SINUSOID, peers.positional_encodings_afresh),
    tokens("keras-hub, sinusoid in float32", SINUSOID, peers.keras_hub_sine),
    tokens("diffusers, sinusoid", SINUSOID, peers.diffusers_sinusoid),
    tokens("Transformers, M2M100", FAIRSEQ, peers.m2m100),
    tokens("fair-esm, sinusoid", FAIRSEQ, peers.esm_sinusoid),
    rows("Transformers, Whisper", ch.preset("whisper", width=64), peers.whisper),
    rows("Transformers, Marian", ch.preset("marian", width=64), peers.marian, length=2_000),
    rows("Transformers, DistilBERT", ch.preset("distilbert", width=64), peers.distilbert, length=2_000),
    rows("Transformers, TimesFM", ch.preset("timesfm", width=64), peers.times_fm),
    rows("Transformers, Pegasus-X in float32", ch.preset("pegasus-x", width=64), peers.pegasus_x_rows),
    rows("diffusers, DDPM's timesteps", ch.preset("ddpm"), peers.timesteps),
    rows(
        "diffusers, Stable Diffusion's timesteps",
        ch.preset("stable-diffusion-timestep"),
        part(peers.timesteps, flip_sin_to_cos=True, downscale_freq_shift=0),
    ),
    bias("x-transformers, ALiBi", SYMMETRIC, peers.x_transformers_alibi),
    bias("OpenNMT-py, its cache emptied", SYMMETRIC, peers.opennmt_afresh),
    bias("keras-hub, ALiBi in float32", ch.Alibi(heads=8), peers.keras_hub_alibi),
    bias("keras-hub, ALiBi of 12 heads", ch.Alibi(heads=12), peers.keras_hub_alibi),
    bias("Transformers, Bloom", ch.preset("bloom", heads=12), part(peers.by_mask, "bloom")),
    bias("Transformers, T5's encoder", ch.preset("t5"), peers.t5),
    bias("Transformers, T5's decoder", ch.preset("t5-decoder"), peers.t5),
    bias("x-transformers, T5", ch.preset("x-transformers-t5"), peers.x_transformers_t5),
    bias("Transformers, MPT", ch.preset("mpt", heads=12), peers.mpt),
)
