"""Transformers of diffusers, by the class that they name: facts, and the numbers of the library's own code."""

import importlib
import inspect

import numpy as np
import pytest

from clockhands.auditing._audits import judged
from clockhands.configs._diffusers_fields import _classes
from clockhands.configs.resolve import resolve
from clockhands.configs.targets import Opened

CLASSES = _classes()
ROTARY = [name for name, known in CLASSES.items() if known.kind == "rotary" and known.library.startswith("diffusers")]


def opened(config):
    return Opened("x", "config", config=config, config_name="config.json")


def resolved(**config):
    return resolve(opened(config))


def facts(found):
    return {fact.code: dict(fact.evidence) for fact in found.facts}


def test_flux_turns_each_axis_by_a_ladder_of_its_own():
    found = resolved(_class_name="FluxTransformer2DModel", attention_head_dim=128, num_layers=19, num_single_layers=38)
    (code,) = found.codes
    assert (code.part, code.layers, code.kind, code.layout) == ("vision", "0-56", "rotary", "interleaved")
    assert (code.width, code.rotated, code.base) == (128, 128, 10000.0)
    ladder = [10000.0 ** (-2 * pair / width) for width in (16, 56, 56) for pair in range(width // 2)]
    np.testing.assert_allclose(code.rates, ladder, rtol=1e-15)
    assert code.spec.axes == (0,) * 8 + (1,) * 28 + (2,) * 28
    assert code.source["width"] == "config.json:attention_head_dim"
    assert code.source["axes"] == "class default of FluxTransformer2DModel (diffusers 0.42.1)"
    assert code.source["base"] == "architecture of FluxTransformer2DModel (diffusers 0.42.1)"
    assert found.model_type is None
    assert facts(found)["default-value"]["used"] == [16, 56, 56]
    stated = resolved(_class_name="FluxTransformer2DModel", attention_head_dim=128, axes_dims_rope=[16, 56, 56])
    assert facts(stated) == {}


def test_a_type_that_names_a_task_is_no_type():
    found = resolved(_class_name="WanModel", model_type="i2v", dim=5120, num_heads=40, num_layers=40)
    (code,) = found.codes
    assert (code.width, code.spec.axes.count(0), code.spec.axes.count(1), code.layers) == (128, 22, 21, "0-39")
    assert found.model_type == "i2v"


def test_shares_that_are_not_those_of_a_head_are_a_fact(cases):
    for axes in ([16, 56], [16, 56, 57], [15, 57, 56], [0, 64, 64], ["a"], 5, [128, -0.5]):
        found = resolved(_class_name="FluxTransformer2DModel", axes_dims_rope=axes)
        with cases(axes):
            assert found.codes[0].rates is None
            assert set(facts(found)) & {"impossible-value", "unreadable-field"}


def test_a_learned_table_and_a_grid_of_sinusoids():
    (learned,) = resolved(_class_name="AuraFlowTransformer2DModel", pos_embed_max_size=9216).codes
    assert (learned.kind, learned.rows, learned.width, learned.layers) == ("learned", 9216, 3072, "input")
    (grid,) = resolved(_class_name="SD3Transformer2DModel", num_attention_heads=24, pos_embed_max_size=192).codes
    assert (grid.kind, grid.rows, grid.width) == ("sinusoidal", 192 * 192, 1536)
    ladder = 10000.0 ** (-np.arange(384) / 384)
    np.testing.assert_allclose(grid.rates, [*ladder, *ladder], rtol=1e-15)
    (pixart,) = resolved(_class_name="PixArtTransformer2DModel").codes
    assert (pixart.rows, pixart.width) == (64 * 64, 1152)
    impossible = resolved(_class_name="AuraFlowTransformer2DModel", num_attention_heads="many")
    assert (impossible.codes[0].rows, impossible.codes[0].width) == (1024, None), "no width without a number of heads"
    assert "impossible-value" in facts(impossible)


def test_a_switch_chooses_between_rotation_and_sinusoids():
    (off,) = resolved(_class_name="CogVideoXTransformer3DModel").codes
    (on,) = resolved(_class_name="CogVideoXTransformer3DModel", use_rotary_positional_embeddings=True).codes
    assert (off.kind, on.kind) == ("sinusoidal", "rotary")
    assert off.source == {"kind": "class default of CogVideoXTransformer3DModel (diffusers 0.42.1)"}
    (stated,) = resolved(_class_name="CogVideoXTransformer3DModel", use_rotary_positional_embeddings=False).codes
    assert stated.source == {"kind": "config.json:use_rotary_positional_embeddings"}
    assert [on.spec.axes.count(axis) for axis in range(3)] == [8, 12, 12]


def test_bases_of_axes_are_stretched_by_the_factors_of_the_file():
    """The transformer of Cosmos-Predict2 2B Video2World: diffusers' ``CosmosRotaryPosEmbed`` has the formula."""
    config = {"_class_name": "CosmosTransformer3DModel", "attention_head_dim": 128, "rope_scale": [1.0, 3.0, 3.0]}
    (code,) = resolved(**config).codes
    assert (code.kind, code.layout, code.layers, code.base) == ("rotary", "halves", "0-27", None)
    bases = [(44, 10000.0), (42, 10000.0 * 3 ** (42 / 40)), (42, 10000.0 * 3 ** (42 / 40))]
    ladder = [base ** (-2 * pair / width) for width, base in bases for pair in range(width // 2)]
    np.testing.assert_allclose(code.rates, ladder, rtol=1e-14)
    plain = resolved(**{**config, "rope_scale": [1.0, 1.0, 1.0]}).codes[0]
    assert plain.base == 10000.0
    for wrong in ([1.0, 3.0], [0, 1, 1], ["a"], 3):
        found = resolved(**{**config, "rope_scale": wrong})
        assert found.codes[0].rates is None
        assert set(facts(found)) & {"impossible-value", "unreadable-field"}, wrong


def test_a_class_without_the_key_that_it_needs_has_no_positions():
    without = {"_class_name": "SanaTransformer2DModel", "num_layers": 20, "interpolation_scale": None}
    (code,) = resolved(**without).codes
    assert (code.kind, code.layers) == ("none", "0-19")
    (code,) = resolved(**{**without, "interpolation_scale": 1}).codes
    assert (code.kind, code.rows, code.width) == ("sinusoidal", 32 * 32, 2240)


def test_a_class_that_is_not_known_is_read_by_its_fields():
    config = {"_class_name": "NobodyTransformer2DModel", "rope_theta": 1e4}
    found = resolved(**config)
    assert facts(found)["unknown-model-type"] == {"config.json:_class_name": "NobodyTransformer2DModel"}
    (finding,) = (each for each in judged(opened(config), found).findings if each.code == "unknown-model-type")
    assert finding.message.startswith('clockhands does not know the class of diffusers "NobodyTransformer2DModel". ')


# Against the library


@pytest.fixture(scope="module")
def transformers():
    pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    from diffusers.models import transformers

    return transformers


@pytest.mark.slow
def test_defaults_are_those_of_the_class(transformers, cases):
    for name, known in CLASSES.items():
        if known.library.startswith("diffusers"):
            taken = inspect.signature(getattr(transformers, name).__init__).parameters
            for key, value in known.defaults.items():
                default = taken[key].default
                with cases(name, key):
                    assert (list(default) if isinstance(default, tuple | list) else default) == value


def embeddings(transformers, name, config):
    """Cosines that the class's own code makes at coordinates 0 to 3 of each axis, one row for each pair."""
    import torch
    from diffusers.models import embeddings as shared

    # Chroma has taken its rotation over from Flux.
    written_in = "FluxTransformer2DModel" if name == "ChromaTransformer2DModel" else name
    module = importlib.import_module(getattr(transformers, written_in).__module__)
    width, theta = config["width"], config["base"]
    axes = [int(size) for size in config["axes"]]
    if name.startswith(("Wan", "SanaVideo", "SkyReelsV2")):
        made = module.SkyReelsV2RotaryPosEmbed if name.startswith("Sky") else module.WanRotaryPosEmbed
        return made(width, (1, 2, 2), 16).freqs_cos[:4, ::2]
    if name in ("CogVideoXTransformer3DModel", "ConsisIDTransformer3DModel"):
        cosines, _ = shared.get_3d_rotary_pos_embed(width, None, (4, 4), 4, grid_type="slice", max_size=(4, 4))
        return cosines.reshape(4, 4, 4, -1)[range(4), range(4), range(4)][:, ::2]
    if name == "EasyAnimateTransformer3DModel":
        # Its grid of 60 by 90, on which tokens of two by two lie, is the one on which coordinates are whole numbers.
        cosines, _ = module.EasyAnimateRotaryPosEmbed(2, width)(torch.zeros(1, 1, 4, 60, 90))
        return cosines.reshape(4, 30, 45, -1)[range(4), range(4), range(4)][:, ::2]
    if name == "CosmosTransformer3DModel":
        made = module.CosmosRotaryPosEmbed(width, rope_scale=CLASSES[name].defaults["rope_scale"])
        cosines, _ = made(torch.zeros(1, 1, 4, 8, 8))
        return cosines.reshape(4, 4, 4, -1)[range(4), range(4), range(4)][:, : width // 2]
    if name == "HunyuanDiT2DModel":
        cosines, _ = shared.get_2d_rotary_pos_embed(width, ((0, 0), (4, 4)), (4, 4))
        return cosines.reshape(4, 4, -1)[range(4), range(4)][:, ::2]
    ids = torch.arange(4)[:, None].expand(4, len(axes))
    if name == "QwenImageTransformer2DModel":
        return module.QwenEmbedRope(theta, axes).pos_freqs[:4].real
    if name == "Lumina2Transformer2DModel":
        tables = module.Lumina2RotaryPosEmbed(theta, axes, [16] * len(axes)).freqs_cis
        return torch.cat([table[:4].real for table in tables], dim=1)
    if name == "ZImageTransformer2DModel":
        return module.RopeEmbedder(theta, axes, [16] * len(axes))(ids).real
    if name == "HiDreamImageTransformer2DModel":
        return module.HiDreamImageEmbedND(int(theta), axes)(ids[None])[0, :, 0, :, 0, 0]
    if name.startswith("Hunyuan"):
        rotary = {key: each for key, each in vars(module).items() if key.endswith("RotaryPosEmbed")}
        (made,) = [each for key, each in rotary.items() if "Image" in key] or rotary.values()
        if len(axes) == 2:
            cosines, _ = made((1, 1), axes, theta)(torch.zeros(1, 1, 4, 4))
            return cosines.reshape(4, 4, -1)[range(4), range(4)][:, ::2]
        if "Framepack" in name:
            cosines, _ = made(1, 1, axes, theta)(torch.arange(4), 4, 4, torch.device("cpu"))
        else:
            cosines, _ = made(1, 1, axes, theta)(torch.zeros(1, 1, 4, 4, 4))
        return cosines.reshape(4, 4, 4, -1)[range(4), range(4), range(4)][:, ::2]
    known = ("FluxPosEmbed", "Flux2PosEmbed", "OvisImagePosEmbed", "LongCatImagePosEmbed", "BriaEmbedND")
    (made,) = [each for key, each in vars(module).items() if key in known]
    return made(theta, axes)(ids)[0][:, ::2]


@pytest.mark.slow
def test_the_ladders_are_those_of_the_library_s_code(transformers, cases):
    for name in ROTARY:
        switch = CLASSES[name].switch
        # The class's own default does not fill a head, and no release is without the key.
        more = {"axes_dims_rope": [64, 32, 32]} if name == "HiDreamImageTransformer2DModel" else {}
        with cases(name):
            (code,) = resolved(_class_name=name, **({switch: True} if switch else {}), **more).codes
            axes = [2 * code.spec.axes.count(axis) for axis in range(max(code.spec.axes) + 1)]
            theirs = embeddings(transformers, name, {"width": code.width, "base": code.base, "axes": axes})
            ours = np.cos(np.arange(4)[:, None] * np.array(code.rates))
            assert theirs.shape == ours.shape
            np.testing.assert_allclose(np.asarray(theirs, dtype="float64"), ours, atol=1e-6)
            # What is compared is more than ones.
            assert np.ptp(ours, axis=0).max() > 1
