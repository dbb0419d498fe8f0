"""Presets beside the code of the libraries that they are named after, at widths and sizes that no table was kept of."""

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.grids import Grid

pytestmark = pytest.mark.slow
torch: Any = None


@pytest.fixture(autouse=True, scope="module")
def peers():
    """Imported when the first test runs: the quick tests read this file too."""
    for name in ("torch", "transformers", "diffusers"):
        globals()[name] = pytest.importorskip(name)


def model(name):
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


def diffusion(path):
    return importlib.import_module(f"diffusers.{path}")


def held_to(theirs, spec, positions, values=None, largest=1.0):
    """Theirs is float32 (or better) at phases of at most ``largest``, each rounded a few times on the way."""
    ours = ch.table(spec, positions, "float64", values=values)
    theirs = np.asarray(theirs, np.float64).reshape(-1, spec.width)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= (4 * largest + 4) * 2.0**-24


@pytest.mark.parametrize("width", [8, 64, 65])
def test_musicgen(width):
    theirs = model("musicgen").MusicgenSinusoidalPositionalEmbedding.get_embedding(50, width)
    held_to(theirs, ch.preset("musicgen", width=width), 50, largest=50)


@pytest.mark.parametrize("width", [8, 62])
def test_funnel(width):
    config = SimpleNamespace(d_model=width, attention_type="factorized", num_blocks=1)
    structure = SimpleNamespace(config=config, sin_dropout=lambda x: x, cos_dropout=lambda x: x)
    call = model("funnel").FunnelAttentionStructure.get_position_embeds
    tables = call(structure, 40, torch.float32, "cpu")
    for name, theirs in zip(("phi", "pi", "psi", "omega"), tables, strict=True):
        held_to(theirs, ch.preset(f"funnel-{name}", width=width), 40, largest=40)


def test_kimi():
    call = model("kimi_k25").Kimi_K25VisionPositionEmbeddings.compute_pos_embed
    held_to(
        call(SimpleNamespace(dim=48, num_frames=9)), ch.preset("kimi-k2.5-time", width=48), Grid(9, prefix=1), largest=9
    )


@pytest.mark.parametrize("width", [8, 20, 256])
def test_omdet_turbo_runs_down_the_columns(width):
    call = model("omdet_turbo").OmDetTurboHybridEncoder.build_2d_sincos_position_embedding
    held_to(call(5, 3, width), ch.preset("rt-detr", width=width), Grid((5, 3)), largest=5)


@pytest.mark.parametrize("width", [6, 31, 320])
def test_timesteps_in_diffusers(width):
    call = diffusion("models.embeddings").get_timestep_embedding
    at = torch.tensor([0.0, 1.0, 17.5, 999.0])
    for name, fields in {
        "ddpm": {},
        "stable-diffusion-timestep": {"flip_sin_to_cos": True, "downscale_freq_shift": 0},
        "diffusers-dit-timestep": {"flip_sin_to_cos": True},
    }.items():
        held_to(call(at, width, **fields), ch.preset(name, width=width), at.numpy(), largest=1_000)
    thousand = call(at / 1_000, width, flip_sin_to_cos=True, downscale_freq_shift=0, scale=1_000)
    held_to(thousand, ch.preset("flux-timestep", width=width), (at / 1_000).numpy(), largest=1_000)


def test_random_and_trained_frequencies_in_diffusers():
    torch.manual_seed(0)
    at = torch.tensor([0.25, 1.0, 47.0])
    seconds = diffusion("pipelines.stable_audio.modeling_stable_audio").StableAudioPositionalEmbedding(32)
    rates = seconds.weights.detach().numpy()
    held_to(seconds(at).detach(), ch.preset("stable-audio-seconds", width=33), at.numpy(), rates, largest=1_000)
    kind = diffusion("models.transformers.stable_audio_transformer").StableAudioGaussianFourierProjection
    projection = kind(16, flip_sin_to_cos=True, log=False, set_W_to_weight=False)
    # A matrix product with one row for each timestep.
    rates = projection.weight.detach().numpy()
    held_to(
        projection(at[:, None][:, 0]), ch.preset("stable-audio-timestep", width=32), at.numpy(), rates, largest=1_000
    )
    logarithmic = diffusion("models.embeddings").GaussianFourierProjection(16, scale=16)
    rates = logarithmic.weight.detach().numpy()
    held_to(logarithmic(at), ch.preset("gaussian-fourier", width=32), torch.log(at).numpy(), rates, largest=2_000)


def test_the_check_can_fail():
    theirs = model("rt_detr").build_2d_sinusoidal_position_embedding(3, 5, 12)
    with pytest.raises(AssertionError):
        held_to(theirs, ch.preset("transformers-2d", width=12), Grid((3, 5), order=(1, 0)))
    with pytest.raises(AssertionError):
        held_to(theirs, ch.preset("mae", width=12), Grid((3, 5), step=1.001))
