"""Prices of faults on a small trained model: what costs, what cannot, and who is refused."""

from functools import partial

import numpy as np
import pytest

import clockhands as ch
from clockhands.errors import InvalidValue
from late import Late
from probes import probed_models as models

torch, transformers, pricing = Late("torch"), Late("transformers"), Late("clockhands.probes.pricing")

REQUIRED = {"rotation-off", "layout-swapped", "another-base", "half-width", "positions-shifted"}


@pytest.fixture(scope="module")
def taught():
    return models.taught(), models.repeated(32, seed=99, rows=12)


@pytest.fixture(scope="module")
def priced(taught):
    model, ids = taught
    return ch.probe(model, ids=ids, measure=["price"])


def test_a_model_that_uses_its_rotation_pays_and_a_shift_costs_nothing(priced):
    assert priced.to_dict()["schema"] == 1
    prices = {each["fault"]: each for each in priced.to_dict()["prices"]}
    assert prices.keys() >= REQUIRED
    for each in prices.values():
        low, high = each["interval"]
        assert low <= each["nats"] <= high or abs(each["nats"]) < 1e-5, each
        assert isinstance(each["visible"], bool)
    assert prices["rotation-off"]["visible"]
    assert prices["rotation-off"]["nats"] > 0.5
    assert not prices["positions-shifted"]["visible"]
    assert abs(prices["positions-shifted"]["nats"]) < 1e-3
    answer = next(each for each in priced["price"].answers if "cannot show" in each)
    assert "66 tokens" in answer
    hidden = {name for name, each in prices.items() if not each["visible"]} - {"positions-shifted"}
    assert all(name in answer for name in hidden)


def priced_alone(model, ids, name):
    """The price of one fault in a model as it runs now."""
    at = pricing.rotating_of(ch.probes.probing.of_module(model), None)
    fault = next(each for each in pricing.rotary_faults(at, None, 256) if each.name == name)
    losses = partial(pricing.losses, model)
    return pricing.price(losses, at, fault, ids, losses(ids)).nats


def test_a_model_whose_code_depends_on_absolute_positions_is_not_called_invariant(taught):
    """The twin of the test above: right up to position 255, and no rotation at all beyond."""
    model, ids = taught
    rotary = model.model.rotary_emb
    kept = rotary.forward
    rotary.forward = lambda x, position_ids: kept(x, torch.where(position_ids < 256, position_ids, 0))
    try:
        assert priced_alone(model, ids, "positions-shifted").visible
    finally:
        rotary.forward = kept


def test_a_model_without_rotation_pays_nothing_for_it():
    """The control: where no layer rotates, every fault of the rotation is free."""
    model, ids = models.llama(), torch.tensor(models.IDS)
    models.with_waves(model, range(models.LAYERS), lambda cos, sin: (torch.ones_like(cos), torch.zeros_like(sin)))
    for name in ("rotation-off", "another-base"):
        assert priced_alone(model, ids, name).mean == pytest.approx(0, abs=1e-5), name


def test_ctrl_c_keeps_the_prices_until_then(taught, monkeypatch):
    model, ids = taught
    calls = []

    def stopping(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return price(*args, **kwargs)

    price = pricing.price
    monkeypatch.setattr("clockhands.probes.pricing.price", stopping)
    found = ch.probe(model, ids=ids, measure=["price"])
    assert found.interrupted == "price"
    assert len(found.to_dict()["prices"]) == 2


def test_an_encoder_has_no_price_and_a_rotation_that_cannot_be_reached_is_refused_with_the_families():
    config = transformers.BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    with pytest.raises(InvalidValue, match="does not predict the next token"):
        ch.probe(transformers.BertModel(config).eval(), ids=np.zeros((1, 16), int), measure=["price"])
    config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2, n_positions=64)
    small = transformers.GPT2LMHeadModel(config).eval()
    with pytest.raises(InvalidValue, match="rotation of GPT2LMHeadModel cannot be reached") as refused:
        ch.probe(small, ids=np.zeros((1, 16), int), measure=["price"])
    assert "Llama, Mistral" in refused.value.hint
    left = dict(ch.probe(small, ids=np.ones((1, 16), int)).left_out)
    assert "price" in left


class Characters:
    """A tokenizer of letters."""

    def __call__(self, text, **_):
        return {"input_ids": [ord(letter) % 128 for letter in text]}


def test_bad_input_is_refused(cases):
    model, letters = models.llama(), {"tokenizer": Characters(), "windows": 2}
    short = "The text has 25 tokens for each of 2 windows, and a window has 64"
    for given, message in (
        ({"measure": ["prize"]}, "'prize' is not a measurement"),
        ({"measure": []}, "No measurement was chosen"),
        ({"measure": ["price"]}, "No text was given"),
        ({"text": "a", "ids": [[1]]}, "A text and token ids were given"),
        ({"text": "a text", "measure": ["price"]}, "has no tokenizer"),
        ({"ids": [1, 2, 3]}, "`ids` must be whole numbers"),
        ({"ids": [[1, 2]], "length": 2}, "`length`"),
        ({"text": "x" * 50, "length": 64, **letters}, short),
        ({"text": "x" * 5000, "length": 512, **letters}, "longer than the context of 256"),
    ):
        with cases(message), pytest.raises(InvalidValue, match=message):
            ch.probe(model, **given)


def test_a_price_of_few_blocks_is_not_judged(taught):
    """Eleven windows of 66 tokens are eleven blocks."""
    model, ids = taught
    found = ch.probe(model, ids=ids[:11], measure=["price"])
    assert [each["visible"] for each in found.to_dict()["prices"]] == [None] * len(found.to_dict()["prices"])
    assert found["price"].answers[0].startswith("No price can be judged: 11 windows of 66 tokens are 11 blocks")
    assert not any("visible" in each or "costs" in each for each in found["price"].answers)


def test_the_interval_is_of_all_tokens():
    """511 tokens are no whole number of blocks; what differs in the last ones alone is in mean and interval."""
    apart = np.zeros((8, 511))
    apart[:, -40:] = 1.0
    from clockhands.probes._paired_differences import difference

    found = difference(apart, np.zeros_like(apart))
    assert found.mean == pytest.approx(40 / 511)
    assert found.low < found.mean < found.high


def test_a_masked_model_made_from_a_config_does_not_predict_the_next_token():
    sizes = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    configs = (transformers.BertConfig(**sizes, intermediate_size=16, is_decoder=each) for each in (False, True))
    masked, causal = transformers.BertForMaskedLM(next(configs)), transformers.BertLMHeadModel(next(configs))
    assert [ch.probes.probing.of_module(each).predicts for each in (masked, causal)] == [False, True]
