"""Presets beside the code of the libraries that they are named after, at widths and sizes that no table was kept of."""

import importlib
import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.grids import Grid
from clockhands.ladders import EvenSteps

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


@pytest.mark.parametrize(("rows", "columns", "width"), [(3, 5, 12), (7, 2, 256)])
def test_two_axes_in_transformers(rows, columns, width):
    call = model("rt_detr").build_2d_sinusoidal_position_embedding
    held_to(call(rows, columns, width), ch.preset("transformers-2d", width=width), Grid((rows, columns)), largest=7)


@pytest.mark.parametrize(("rows", "columns", "features"), [(3, 5, 6), (7, 2, 128)])
def test_detr(rows, columns, features):
    module = model("detr").DetrSinePositionEmbedding(features, normalize=True)
    theirs = module(torch.Size((1, 1, rows, columns)), "cpu", torch.float32)[0].permute(1, 2, 0)
    steps = tuple(2 * math.pi / (size + 1e-6) for size in (rows, columns))
    grid = Grid((rows, columns), start=steps, step=steps)
    held_to(theirs, ch.preset("detr", width=2 * features), grid, largest=2 * math.pi)


@pytest.mark.parametrize(("rows", "columns", "width"), [(3, 5, 12), (8, 4, 64)])
def test_two_axes_in_diffusers(rows, columns, width):
    call = diffusion("models.embeddings").get_2d_sincos_pos_embed
    theirs = call(width, (rows, columns), base_size=12, interpolation_scale=1.5, output_type="pt")
    grid = Grid((columns, rows), step=(Fraction(8, columns), Fraction(8, rows)), order=(1, 0))
    held_to(theirs, ch.preset("diffusers-2d", width=width), grid, largest=8)


@pytest.mark.parametrize("width", [16, 48, 160])
def test_three_axes_in_diffusers(width):
    call = diffusion("models.embeddings").get_3d_sincos_pos_embed
    theirs = call(width, (5, 3), 4, 1.875, 1.0, output_type="pt")
    grid = Grid((4, 5, 3), step=(1, 1 / 1.875, 1 / 1.875), order=(0, 2, 1))
    held_to(theirs, ch.preset("cogvideox-2b", width=width), grid, largest=5)


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


def test_fourier_features_of_points_in_diffusers():
    points = torch.rand(6, 3, generator=torch.Generator().manual_seed(1)) * 2 - 1
    shap_e = diffusion("pipelines.shap_e.renderer").posenc_nerf
    for octaves in (1, 4, 15):
        spec = ch.preset("shap-e", width=3 + 6 * octaves)
        held_to(shap_e(points, 0, octaves), spec, points.numpy(), largest=2.0**octaves)
    boxes = torch.rand(1, 6, 4, generator=torch.Generator().manual_seed(2))
    gligen = diffusion("models.embeddings").get_fourier_embeds_from_boundingbox
    for rates in (1, 5, 8):
        held_to(gligen(rates, boxes), ch.preset("gligen", width=8 * rates), boxes[0].numpy(), largest=100)
    mochi = diffusion("models.autoencoders.autoencoder_kl_mochi").FourierFeatures(6, 8)
    theirs = mochi(points.T[None, :, :, None, None])[0, :, :, 0, 0].T
    held_to(theirs, ch.preset("mochi"), points.numpy(), largest=1_000)


@pytest.mark.parametrize(("rows", "columns", "bands"), [(4, 6, 3), (5, 2, 8)])
def test_perceiver(rows, columns, bands):
    perceiver = model("perceiver")
    points = perceiver.build_linear_positions((rows, columns)).reshape(1, -1, 2)
    theirs = perceiver.generate_fourier_features(points, bands, (64, 32))
    spacing = (EvenSteps(1, 32, math.pi), EvenSteps(1, 16, math.pi))
    spec = ch.preset("perceiver", width=2 + 4 * bands, spacing=spacing)
    held_to(theirs[0], spec, Grid.between((rows, columns), -1, 1), largest=32 * math.pi)


def test_sam():
    config = SimpleNamespace(scale=8, num_pos_feats=16)
    torch.manual_seed(3)
    module = model("sam").SamPositionalEmbedding(config)
    points = torch.rand(1, 1, 7, 2) * 64
    theirs = module(points.clone(), (64, 64))
    at = 2 * points[0, 0].numpy().astype(np.float64) / 64 - 1
    rates = module.positional_embedding.detach().numpy()
    held_to(theirs.detach(), ch.preset("sam", width=32), at, rates, largest=300)


def test_the_check_can_fail():
    theirs = model("rt_detr").build_2d_sinusoidal_position_embedding(3, 5, 12)
    with pytest.raises(AssertionError):
        held_to(theirs, ch.preset("transformers-2d", width=12), Grid((3, 5), order=(1, 0)))
    with pytest.raises(AssertionError):
        held_to(theirs, ch.preset("mae", width=12), Grid((3, 5), step=1.001))
