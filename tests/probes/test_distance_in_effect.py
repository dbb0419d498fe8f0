"""Queries that are rotated as if they were elsewhere than their keys: the distance is measured in every layer."""

import importlib
import types
from contextlib import contextmanager

import pytest

from clockhands.configs.resolved import layer_ranges
from late import Late
from probes import probed_models as models
from probes.probed_models import live
from probes.test_scores_in_effect import found, measured
from probes.tiny_models import small

torch, transformers = Late("torch"), Late("transformers")


@contextmanager
def rotated_elsewhere(model, queries=0, keys=0, when=lambda _: True):
    """The model while its queries and keys are rotated by positions that are later; ``when`` it is so, for a cosine."""
    further = {}
    with pytest.MonkeyPatch.context() as patch:
        for rotary in (each for each in model.modules() if "inv_freq" in " ".join(each._buffers)):

            def forward(x, position_ids, *more, right=rotary.forward, **named):
                made = right(x, position_ids, *more, **named)
                further[made[0].data_ptr()] = [right(x, position_ids + by, *more, **named) for by in (queries, keys)]
                further.setdefault("kept", []).append(made)  # so that no other cosine is put in its place
                return made

            patch.setattr(rotary, "forward", forward)
        module = importlib.import_module(type(model).__module__)
        for name in ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave"):
            if (right := getattr(module, name, None)) is not None:

                def apply(q, k, cos, sin, *more, right=right, **named):
                    if not when(cos):
                        return right(q, k, cos, sin, *more, **named)
                    both = further[cos.data_ptr()]
                    return tuple(right(q, k, *at, *more, **named)[side] for side, at in enumerate(both))

                patch.setattr(module, name, apply)
        yield model


def test_queries_or_keys_that_are_rotated_later_are_named_with_the_distance_and_its_sign(cases):
    for queries, keys, apart in ((1, 0, 1), (0, 1, -1), (0, -100, 100), (5, 3, 2)):
        with cases(queries, keys), rotated_elsewhere(models.llama(), queries, keys) as model:
            result = live(model)
            ((layers, message),) = [(each["layers"], each["message"]) for each in result.numbers["findings"]]
            assert layers == "0-2"
            assert result.numbers["offsets"] == {layer: [apart] for layer in "012"}
            how = "later" if apart > 0 else "earlier"
            assert f"{abs(apart)} token{'s' * (abs(apart) > 1)} {how} than the keys of the same tokens" in message
            assert not result.numbers["reference"]["same"]
    with cases("both"), rotated_elsewhere(models.llama(), 3, 3) as model:
        result = live(model)
        assert result.numbers["findings"] == []
        assert result.numbers["offsets"] == {layer: [0] for layer in "012"}
        assert result.numbers["reference"]["same"]


@pytest.mark.parametrize(
    "name", ["gpt_neox", "phi", "cohere", "glm4", "deepseek_v3", "gemma3_text", "hunyuan_v1_dense", "qwen3", "olmo2"]
)
def test_it_is_named_in_families_that_rotate_in_other_ways(name):
    """A part of a head, neighbouring channels, latent attention, and norms before and after the rotation."""
    model = small(name)
    assert found(model) == []
    with rotated_elsewhere(model, queries=1):
        ((layers, message),) = found(model)
    assert layers == "0-2"
    assert "1 token later than the keys" in message


def test_coordinates_of_images_and_layers_of_one_kind(cases):
    block = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
    text = models.of_sizes(num_hidden_layers=2).config.to_dict() | {"head_dim": 16, "rope_parameters": block}
    vision = {"depth": 1, "hidden_size": 32, "num_heads": 4, "intermediate_size": 32, "out_hidden_size": 64}
    config = transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision)
    torch.manual_seed(0)
    model = transformers.Qwen2_5_VLForConditionalGeneration(config).eval()
    with cases("M-RoPE"), rotated_elsewhere(model, keys=1):
        ((layers, message),) = found(model)
        assert (layers, "1 token earlier" in message) == ("0-1", True)
    model = small("gemma3_text")
    kinds = model.config.layer_types
    local = layer_ranges(layer for layer, kind in enumerate(kinds) if kind == "sliding_attention")
    rates = {float(model.model.rotary_emb.sliding_attention_inv_freq[1])}

    def sliding(cosine):
        """Whether the cosines are those of the sliding layers, by their second frequency at position 5."""
        return any(abs(float(torch.cos(torch.tensor(5 * rate))) - float(cosine[-1, -1, 1])) < 1e-4 for rate in rates)

    with cases("sliding layers"), rotated_elsewhere(model, queries=1, when=sliding):
        result = measured(model)
        assert [each["layers"] for each in result.numbers["findings"]] == [local]


def rotating_by_modules(model, apart):
    """The model with a rotation that is a module of each attention, which rotates queries ``apart`` later."""

    class Rotation(torch.nn.Module):
        def __init__(self, rates, by):
            super().__init__()
            self.rates, self.by = rates, by

        def forward(self, x, positions):
            angles = ((positions + self.by)[..., None] * self.rates).repeat(1, 1, 2)
            return models.rotated(x, angles.cos(), angles.sin())

    def forward(attention, hidden_states, position_ids, **_):
        shape = (*hidden_states.shape[:-1], -1, attention.head_dim)
        q, k, v = (
            getattr(attention, f"{name}_proj")(hidden_states).view(shape).transpose(1, 2) for name in ("q", "k", "v")
        )
        q, k = attention.rotate_queries(q, position_ids), attention.rotate_keys(k, position_ids)
        k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], 1) for each in (k, v))
        made = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)
        return attention.o_proj(made.transpose(1, 2).flatten(2)), None

    for layer in model.model.layers:
        attention = layer.self_attn
        attention.rotate_queries = Rotation(model.model.rotary_emb.inv_freq, apart)
        attention.rotate_keys = Rotation(model.model.rotary_emb.inv_freq, 0)
        attention.forward = types.MethodType(forward, attention)
    return model


def counting(model):
    """The model with no argument for positions."""
    model.forward = types.MethodType(lambda own, input_ids: type(own).forward(own, input_ids), model)
    return model


def test_rotations_that_are_modules_and_models_that_count_tokens_themselves(cases):
    for itself in (False, True):
        for apart in (0, 1, -2):
            model = rotating_by_modules(models.llama(), apart)
            with cases(itself, apart):
                result = measured(counting(model) if itself else model)
                assert result.numbers["offsets"] == {layer: [apart] for layer in "012"}
                assert [each["evidence"].get("offset") for each in result.numbers["findings"]] == [apart] * bool(apart)


def test_distances_that_nothing_shows_are_said_to_be_unmeasured():
    """A rotation of projections in a function of the model's own, which are mixed before: no projection gives them."""
    model = models.llama()

    def mixed(q, k, cos, sin, *_, **__):
        order = torch.tensor([3, 0, 2, 1, *range(4, q.shape[-1])])
        return models.rotated(q[..., order], cos, sin), models.rotated(k[..., order], cos, sin)

    with models.rotating_by(mixed):
        result = live(model)
    assert result.numbers["findings"] == []
    assert result.answers[0] == (
        "The declared positions are in effect in all 3 layers checked, in text; the distance between queries and keys "
        "in layers 0-2 was not checked."
    )


def test_a_shift_along_a_text_is_named(cases):
    """Cosines that are cut one row too late show nothing at a single token."""
    for side, says in ((0, "queries are rotated 1 token too far"), (1, "keys are rotated 1 token too far")):

        def rolled(q, k, cos, sin, *_, side=side, **__):
            both = [(cos, sin), (cos, sin)]
            both[side] = tuple(wave.roll(-1, 1) for wave in (cos, sin))
            return models.rotated(q, *both[0]), models.rotated(k, *both[1])

        with cases(side), models.rotating_by(rolled):
            ((where, message),) = [(f["layers"], f["message"]) for f in live(models.llama()).numbers["findings"]]
            assert where == "0"
            assert says in message
