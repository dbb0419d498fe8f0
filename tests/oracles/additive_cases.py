"""Which preset makes each published additive table, at which positions: the conventions in our own words."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

import clockhands as ch
from clockhands.encodings.grids import Grid
from clockhands.encodings.ladders import EvenSteps

FAMILIES = ("sinusoidal", "sinusoidal_relative", "timestep", "sinusoidal_2d", "sinusoidal_3d", "fourier")

TURN = 2 * math.pi
IMAGE = (6, 9)  # rows and columns of the published maps
ALONG_ROWS = (1, 0)  # for axes (x, y): rows of the image follow one another

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A preset with fields, and where its table's rows stand: a value, or made from the arrays beside the table."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    positions: Any = 128
    values: float | Callable[[Arrays], np.ndarray] | None = None

    @property
    def spec(self) -> Any:
        return ch.preset(self.name, **self.fields)

    def at(self, arrays: Arrays) -> Any:
        return self.positions(arrays) if callable(self.positions) else self.positions

    def given(self, arrays: Arrays) -> Any:
        return self.values(arrays) if callable(self.values) else self.values

    def table(self, arrays: Arrays, dtype: str = "float64") -> np.ndarray:
        return ch.table(self.spec, self.at(arrays), dtype, values=self.given(arrays))


def case(name: str, positions: Any = 128, *, values: Any = None, **fields: Any) -> Case:
    return Case(name, {"width": 64, **fields}, positions, values)


def array(name: str) -> Callable[[Arrays], np.ndarray]:
    return lambda arrays: arrays[name].reshape(-1)


def columns(*names: str) -> Callable[[Arrays], np.ndarray]:
    """Points whose coordinates are arrays of their own."""
    return lambda arrays: np.stack([arrays[name] for name in names], axis=-1)


def normalised(sizes: tuple[int, ...], before: float = 0.0) -> Grid:
    """DETR's: cells count from 1 (less ``before``), over the last one, times 2 pi."""
    step = tuple(TURN / (size + 1e-6) for size in sizes)
    return Grid(sizes, start=tuple(each * (1 - before) for each in step), step=step)


rows, cols = IMAGE
IMAGE_YX, IMAGE_XY = Grid(IMAGE), Grid((cols, rows), order=ALONG_ROWS)
SPAN_YX = Grid.between(IMAGE, -1, 1)
MAE = Grid((7, 7), order=ALONG_ROWS, prefix=1)
POINTS = columns("c0", "c1", "c2")

CASES = {
    "sin_annotated_transformer": case("vaswani2017"),
    "sin_t2t_1d_even": case("tensor2tensor"),
    "sin_t2t_1d_odd": case("tensor2tensor", width=65),
    "sin_t2t_1d_min_timescale10": case("tensor2tensor", base=1_000.0, multiplier=10.0),
    "sin_t2t_nd": case("tensor2tensor-2d", Grid((6, 8))),
    "sin_fairseq_pad1_d64": case("fairseq"),
    "sin_fairseq_relpos": case("espnet-relative", range(63, -64, -1)),
    "sin_hf_m2m100_table": case("fairseq", 130),
    "sin_hf_m2m100_forward_padded": case("fairseq", array("position_ids")),
    "sin_hf_whisper": case("whisper"),
    "sin_openai_whisper": case("whisper"),
    "sin_hf_pegasus_x": case("pegasus-x"),
    "sin_hf_pegasus_x_bf16": case("pegasus-x", 4_096),
    "sin_hf_marian_d64": case("marian-transformers"),
    "sin_hf_distilbert_d64": case("distilbert"),
    "sin_hf_distilbert_d65": case("distilbert", width=65),
    "sin_hf_videomae": case("videomae"),
    "sin_hf_ctrl": case("ctrl"),
    "sin_hf_gptj_positions": case("gpt-j-table"),
    "sin_transformer_xl": case("transformer-xl", range(127, -1, -1)),
    "sin_hf_funnel_phi": case("funnel-phi"),
    "sin_hf_funnel_pi": case("funnel-pi"),
    "sin_hf_funnel_psi": case("funnel-psi"),
    "sin_hf_patchtst": case("patchtst", standardised=128),
    "sin_hf_speecht5_scaled": case("speecht5", values=0.7),
    "sin_hf_timesfm": case("timesfm"),
    # A row of zeros where a column was meant: what a code of the width below makes.
    "sin_hf_timesfm_odd": case("timesfm"),
    "sin_xtransformers_scaled": case("x-transformers-sinusoidal", values=0.125),
    "sin_pospkg_1d_d64": case("positional-encodings-1d"),
    "sin_pospkg_1d_d65": case("positional-encodings-1d", width=65),
    "sin_pospkg_2d_d64": case("positional-encodings-2d", IMAGE_YX),
    "sin_pospkg_3d": case("positional-encodings-3d", Grid((3, 4, 5))),
    "sin_kerashub": case("keras-hub"),
    "sin_speechbrain": case("speechbrain"),
    # It means range(31, -32, -1); what it makes has lost the sign.
    "sin_speechbrain_relposxl": case("speechbrain-relative", [abs(distance) for distance in range(31, -32, -1)]),
    "sin_allennlp_odd": case("allennlp", width=65),
    "sin_opennmt_SinusoidalInterleaved": case("opennmt"),
    "sin_vitpytorch_cct": case("cct"),
    "sin_hf_sam2video_objptr": case("sam2-object-pointer", array("pos")),
    "sin_hf_ppdoclayoutv2_relation": case("pp-doclayoutv2", array("x"), width=16),
    "time_diffusers_ddpm_default": case("ddpm", array("t")),
    "time_diffusers_sd_unet": case("stable-diffusion-timestep", array("t")),
    "time_diffusers_flip_shift1": case("diffusers-dit-timestep", array("t")),
    "time_diffusers_odd": case("ddpm", array("t"), width=65),
    "time_diffusers_maxperiod": case("stable-diffusion-timestep", array("t"), base=100.0),
    "time_qwenimage_bf16": case("qwen-image-timestep", array("t")),
    "time_guided_diffusion_odd": case("dit", array("t"), width=65),
    "time_score_sde": case("score-sde", array("t")),
    "time_gaussian_fourier_log": case("gaussian-fourier", array("logt"), values=array("W")),
    "time_score_sde_gfp": case("score-sde-fourier", array("t"), values=array("W")),
    "time_hf_pi0": case("pi0-timestep", array("t")),
    "time_stable_audio3_expo": case("stable-audio-3-timestep", array("t")),
    "sin2d_diffusers": case(
        "diffusers-2d", Grid((cols, rows), step=(Fraction(8, cols), Fraction(8, rows)), order=ALONG_ROWS)
    ),
    "sin2d_mae_original": case("mae", MAE),
    "sin2d_hf_vitmae": case("mae", MAE),
    "sin2d_hf_canonical": case("transformers-2d", IMAGE_YX),
    "sin2d_vitpytorch": case("simple-vit", IMAGE_XY),
    "sin2d_timm_default": case("timm-2d", IMAGE_YX),
    "sin2d_timm_interleave": case("timm-2d-interleaved", IMAGE_YX),
    "sin2d_diffusers_sd3_patchembed": case(
        "stable-diffusion-3", Grid((24, 24), step=Fraction(16, 2 * 24), order=ALONG_ROWS)
    ),
    "sin2d_hf_detr_norm": case("detr", normalised(IMAGE)),
    "sin2d_hf_detr_raw": case("detr", Grid(IMAGE, start=1)),
    "sin2d_hf_detr_bf16": case("detr", normalised((40, 40))),
    "sin2d_detr_original": case("detr", normalised(IMAGE)),
    "sin2d_hf_deformable_detr": case("deformable-detr", normalised(IMAGE, before=0.5)),
    "sin2d_hf_encode_points_2": case("detr-points", columns("c1", "c0")),
    "sin2d_hf_encode_points_4": case("dab-detr-boxes", columns("c1", "c0", "c2", "c3"), width=128),
    "sin2d_dab_detr_original": case("dab-detr-boxes", columns("c1", "c0", "c2", "c3"), width=128),
    "sin3d_diffusers_cogvideox": case(
        "cogvideox-2b", Grid((3, cols, rows), step=(0.5, Fraction(2, 3), Fraction(2, 3)), order=(0, 2, 1))
    ),
    "fourier_timm_pixel": case("timm-fourier", SPAN_YX, width=34),
    "fourier_timm_linear": case("timm-fourier-linear", SPAN_YX, width=32, spacing=EvenSteps(1, 16, math.pi)),
    "fourier_hf_sam": case(
        "sam", lambda arrays: 2 * columns("x", "y")(arrays).astype(np.float64) - 1, values=lambda arrays: arrays["B"]
    ),
    "fourier_sam_original_grid": case(
        "sam", Grid.centres((cols, rows), -1, 1, order=ALONG_ROWS), values=lambda arrays: arrays["B"]
    ),
    "fourier_hf_perceiver": case(
        "perceiver", SPAN_YX, width=26, spacing=(EvenSteps(1, 16, math.pi), EvenSteps(1, 24, math.pi))
    ),
    "fourier_perceiver_pytorch": case("perceiver-pytorch", array("x"), width=13, shares=(1,)),
    "fourier_nerf_original": case("nerf", POINTS, width=39),
    "fourier_shap_e": case("shap-e", POINTS, width=39),
    "fourier_nerfstudio": case("nerfstudio", POINTS, width=36, raw=None, base=2.0**-5),
    "fourier_diffusers_gligen": case("gligen", columns("c0", "c1", "c2", "c3")),
    "fourier_diffusers_mochi": case("mochi", columns("c0", "c1"), width=10, shares=(1, 1)),
}
