"""Models that are wrapped, compiled, quantised or in other precisions: sound ones pass, and a layer without rotation is
named in each.
"""

import numpy as np
import pytest

from late import Late
from probes import probed_models as models
from probes.probed_models import faults, live

torch = Late("torch")


def adapted(model):
    peft = pytest.importorskip("peft")
    with torch.random.fork_rng():
        config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        return peft.get_peft_model(model, config).eval()


def of_dtype(dtype):
    def cast(model):
        kept = {name: buffer.clone() for name, buffer in model.model.rotary_emb.named_buffers()}
        model.to(getattr(torch, dtype))
        for name, buffer in kept.items():  # as from_pretrained(dtype=...) leaves them
            setattr(model.model.rotary_emb, name, buffer)
        return model

    return cast


def compiled(model):
    return torch.compile(model, backend="eager")


def compiled_in_place(model):
    model.compile(backend="eager")
    return model


def compiled_by_layer(model):
    for number, layer in enumerate(model.model.layers):
        model.model.layers[number] = compiled(layer)
    return model


def dynamic_int8(model):
    return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)


WRAPPED = {
    "PEFT": adapted, "bfloat16": of_dtype("bfloat16"), "float16": of_dtype("float16"), "compiled": compiled,
    "compiled in place": compiled_in_place, "compiled by layer": compiled_by_layer, "dynamic int8": dynamic_int8,
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", WRAPPED)
def test_a_sound_model_passes_and_a_layer_without_rotation_is_named(kind):
    model = models.llama()
    sound = live(WRAPPED[kind](model), decoded=True)
    assert faults(sound) == []
    assert sound.numbers["layers_checked"] == models.LAYERS
    assert sound.numbers["shift"]["same"]
    assert sound.numbers["reference"]["same"]
    wrong = live(WRAPPED[kind](models.without_rotation(models.llama(), 1)))
    assert faults(wrong) == [("rotation-differs", "1", "no-rotation")]
    # The limit follows from the precision, and the fault is far beyond it.
    assert wrong.numbers["reference"]["kl"] > 4 * wrong.numbers["reference"]["limit"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_activations_that_are_quantised_are_said_not_to_be_compared_in_decoding():
    with pytest.warns(DeprecationWarning, match="torch.ao.quantization is deprecated"):
        model = dynamic_int8(models.llama())
    result = live(model, decoded=True)
    assert any("linear layers quantise activations" in answer for answer in result.answers)
    assert "generation" not in result.numbers


def test_a_compiler_that_changes_the_outputs_is_found():
    def wrong(graph, _):
        return lambda *given: tuple(
            each * 1.5 if isinstance(each, torch.Tensor) and each.is_floating_point() else each
            for each in graph.forward(*given)
        )

    result = live(torch.compile(models.llama(num_hidden_layers=1), backend=wrong), decoded=True)
    assert [each[0] for each in faults(result)] == ["run-differs"]
    assert not result.numbers["compiled"]["same"]
    assert "compiled model gives other outputs" in result.numbers["findings"][0]["message"]


def test_what_rounding_explains_grows_with_the_precision():
    """Each bit less makes the divergence four times larger, as the square of an error grows."""
    limits = {
        dtype: live(of_dtype(dtype)(models.llama())).numbers["reference"]["limit"]
        for dtype in ("float32", "float16", "bfloat16")
    }
    assert limits["float32"] == 1e-6
    assert np.log2(limits["bfloat16"] / limits["float16"]) == pytest.approx(6, abs=2)
