"""What a model does with its positions, on models in which the answer is known."""

from types import SimpleNamespace

import numpy as np
import pytest

from clockhands.errors import InvalidValue
from late import Late
from probes.tiny_models import CONTEXT, VOCABULARY, hidden_bias, tiny, tokens, without_positions

torch, nn, models = Late("torch"), Late("torch.nn"), Late("clockhands.models.running_models")
behaviour, changes = Late("clockhands.probes.behaviour"), Late("clockhands.models.rotation_changes")
places, yardsticks = Late("clockhands.models.position_removals"), Late("clockhands.probes._yardsticks")

LENGTH = 40


def measured(model, ids, encode=None, **more):
    steps = []
    running = models.RunningModel(type(model).__name__, model, encode, CONTEXT)
    found = behaviour.measure_behaviour(running, ids, lambda what, _: steps.append(what), **more)
    assert steps
    return found


def repeated(windows, seed):
    """Four drawn tokens over and over: the next token is the one 4 positions back."""
    drawn = torch.randint(4, 8, (windows, 4), generator=torch.Generator().manual_seed(seed))
    return drawn.repeat(1, LENGTH // 4)


def by_place(windows, seed):
    """Every second token is drawn, and every other one is that of its place."""
    ids = torch.randint(4, 8, (windows, LENGTH), generator=torch.Generator().manual_seed(seed))
    ids[:, 1::2] = torch.randint(4, 8, (LENGTH // 2,), generator=torch.Generator().manual_seed(0))
    return ids


def trained(model, texts, steps, rate):
    optimiser = torch.optim.Adam(model.parameters(), rate)
    for step in range(steps):
        ids = texts(16, 1000 + step)
        loss = nn.functional.cross_entropy(model(input_ids=ids).logits[:, 4:-1].flatten(0, 1), ids[:, 5:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


@pytest.fixture(scope="module")
def rotary():
    """A rotary model that has learned to look 4 tokens back."""
    return trained(tiny("llama"), repeated, steps=120, rate=3e-3)


@pytest.fixture(scope="module")
def learned():
    """A model with a learned table that has learned which token has which place."""
    return trained(tiny("gpt-2"), by_place, steps=100, rate=1e-2)


def test_a_rotary_model_that_needs_its_positions(rotary):
    found = measured(rotary, repeated(12, 1)).numbers
    assert found["unit"] == "loss of the next token, in nats per token"
    assert found["positions"]["uses"]
    assert not found["positions"]["remains"]
    first, *_, last = found["bands"]
    assert (first["first"], last["last"]) == (1, LENGTH - 1) or first["first"] == 0
    assert last["nats"] < 0.3 < first["nats"]
    assert found["removed"]["rotary off"]["interval"][0] > 0.5
    assert found["shuffled"]["interval"][0] > 0.5
    assert [row["by"] for row in found["shifts"]] == [1, CONTEXT - LENGTH]
    assert all(abs(row["nats"]) < 1e-4 and row["kl"] < 1e-6 for row in found["shifts"])
    assert found["rotary by layer"]["apart"]


def test_a_model_without_positions_loses_nothing():
    """The control of every removal: nothing is lost where there is nothing to lose."""
    found = measured(without_positions(), tokens(4, LENGTH))
    assert "no position code" in found.answers[0]
    numbers = found.numbers
    assert numbers["removed"]["rotary off"]["nats"] == 0
    assert numbers["rotary by layer"]["apart"] == []
    assert all(row["nats"] == 0 for row in numbers["shifts"])


def test_a_table_of_equal_rows_costs_nothing_shifted_shuffled_or_averaged():
    """The control of a table: every position has the same row."""
    model = tiny("bert")
    sound = measured(model, tokens(3, LENGTH)).numbers
    with torch.no_grad():
        rows = model.base_model.embeddings.position_embeddings.weight
        rows[:] = rows.mean(dim=0)
    spoiled = measured(model, tokens(3, LENGTH)).numbers
    for found, changed in ((sound, True), (spoiled, False)):
        assert (found["shuffled"]["nats"] > 1e-4) is changed
        assert (found["removed"]["table averaged"]["nats"] > 1e-4) is changed
        assert all((row["nats"] > 1e-4) is changed for row in found["shifts"])


def test_a_shift_is_seen_where_it_matters(rotary, learned):
    """Positions of a table are other rows; a rotary model that squares its angles depends on positions too."""
    found = measured(learned, by_place(6, 1)).numbers
    assert found["positions"]["added"] > 0.1
    assert all(row["nats"] > 0.2 for row in found["shifts"])
    assert all(row["kl"] > 0.1 for row in found["shifts"])
    assert set(found["removed"]) == {"table zeroed", "table averaged"}
    assert all(each["nats"] > 0.2 for each in found["removed"].values())
    with changes.of_waves(angles=lambda given: given**2 / CONTEXT)(changes.rotating(rotary)):
        assert max(row["kl"] for row in measured(rotary, repeated(6, 1)).numbers["shifts"]) > 1e-3


def test_the_layer_that_uses_positions_is_named(rotary):
    """A model in which one layer's rotation is off already: removing it there changes nothing, and is not named."""
    ids = repeated(6, 1)
    sound = measured(rotary, ids).numbers["rotary by layer"]
    with off(rotary, 0):
        spoiled = measured(rotary, ids).numbers
    assert spoiled["rotary by layer"]["layers"]["model.layers.0"]["nats"] == 0
    assert "model.layers.0" not in spoiled["rotary by layer"]["apart"]
    assert spoiled["positions"]["layers"]["model.layers.0"] < spoiled["positions"]["rounding"]
    assert any(each["nats"] > 0.1 for each in sound["layers"].values())


def off(model, layer):
    (place,) = places.reached(model, models.runner(model), tokens(1, 16))
    return place.removed("off", [layer])


def test_one_layer_at_a_time_is_what_a_whole_run_gives(rotary):
    """Layers before are not computed again; the numbers are those of a plain run."""
    ids = repeated(3, 2)
    found = measured(rotary, ids).numbers["rotary by layer"]["layers"]

    def loss():
        with torch.no_grad():
            logits = rotary(input_ids=ids).logits[:, :-1]
        return float(nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()))

    before = loss()
    for layer in range(2):
        with off(rotary, layer):
            assert found[f"model.layers.{layer}"]["nats"] == pytest.approx(loss() - before, abs=1e-5)


def test_an_undeclared_code_is_named_and_what_remains_after_removal_is_said(rotary):
    model = without_positions()
    with hidden_bias(model, [0, 1]):
        found = measured(model, tokens(2, LENGTH))
    assert "has a position code that its config does not declare" in found.answers[0]
    assert found.numbers["positions"]["declared"] is False
    assert found.numbers["positions"]["remains"]
    assert any("a position code remains" in each for each in found.answers)
    with hidden_bias(rotary, [1]):
        found = measured(rotary, repeated(2, 1))
    assert found.numbers["positions"]["remains"]
    assert any("a position code remains: attention depends on the order in 1 of 2 layers" in it for it in found.answers)


def test_each_kind_of_output_has_its_unit():
    ids = tokens(3, LENGTH)
    encode = {"[MASK]": [3], "\uffff": [1]}.get
    masked = measured(tiny("bert"), ids, lambda text: encode(text, [9, 9])).numbers
    assert masked["unit"].startswith("loss of masked tokens")
    assert sum(row["tokens"] for row in masked["bands"]) == 3 * round(0.15 * LENGTH)
    without = measured(tiny("bert"), ids)
    assert without.numbers["unit"].startswith("change of the final hidden states (1 - cosine)")
    assert any("Recall was not measured" in each for each in without.answers)
    assert without.numbers["removed"]["table zeroed"]["nats"] > 0.05
    both = measured(tiny("t5"), ids).numbers
    assert both["unit"].startswith("loss of the second half of each window")
    assert set(both["relative bias by layer"]["layers"]) == {
        f"{part}.block.{layer}" for part in ("encoder", "decoder") for layer in range(3)
    }


def test_masked_loss_depends_on_the_words_around():
    """The masked tokens stay, the others are shuffled: a model that copies its own position loses nothing."""
    encode = {"[MASK]": [3], "\uffff": [1]}.get

    class ByPlace(torch.nn.Module):
        def forward(self, input_ids, use_cache=False):
            own = nn.functional.one_hot(torch.arange(input_ids.shape[1]) % VOCABULARY, VOCABULARY)[None]
            return SimpleNamespace(logits=5 * own.float() + input_ids.min() * 0)

    model = models.RunningModel("by place", ByPlace(), lambda text: encode(text, [9, 9]), None)
    ids = torch.arange(LENGTH).expand(2, -1) % VOCABULARY
    by = yardsticks.yardstick(model, ids, causal=False)
    order = torch.randperm(LENGTH)
    assert np.array_equal(by.all_numbers(order), by.all_numbers())
    given = by.given(0, order)
    assert (given == 3).sum() >= round(0.15 * LENGTH)
    assert sorted(given[given != 3].tolist()) == sorted(by.given(0)[by.given(0) != 3].tolist())
    assert not torch.equal(given, by.given(0))


def test_too_short_windows():
    with pytest.raises(InvalidValue, match="at least 32 tokens") as caught:
        behaviour.measure_behaviour(models.of_module(tiny("llama")), tokens(2, 20), print)
    assert "--length" in caught.value.hint
