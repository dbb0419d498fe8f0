"""Whether a model has a position code, seen from its outputs alone."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from clockhands.errors import InvalidValue
from clockhands.probes._layers import begun_at, kept_outputs, stacks
from clockhands.probes._places import all_removed, reached
from clockhands.probes._positions_used import ROUNDING, positions_used
from clockhands.probes._yardsticks import runner
from probes.tiny_models import FAMILIES, hidden_bias, tiny, tokens, without_positions

IDS = tokens(1, 24)[0]


def seen(model):
    return positions_used(model, IDS, runner(model))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_code_is_seen_where_it_is_and_is_gone_when_it_is_removed(family):
    model, code = tiny(family), FAMILIES[family][3]
    sound = runner(model)(IDS[None])[0].clone()
    found = seen(model)
    assert found.uses
    assert (found.added > ROUNDING) == (code == "table")
    assert found.in_layers == (() if code == "table" else found.paths)
    places = reached(model, runner(model), IDS[None])
    assert [each.code for each in places] == [code]
    with all_removed(places):
        without = seen(model)
    assert without.uses is False
    assert max((without.added, *without.layers, without.whole or 0)) < ROUNDING / 20
    assert torch.equal(runner(model)(IDS[None])[0], sound)


@pytest.mark.parametrize("family", [name for name, row in FAMILIES.items() if row[3] != "table"])
def test_a_code_is_removed_in_one_layer_alone(family):
    model = tiny(family)
    (place,) = reached(model, runner(model), IDS[None])
    found = seen(model)
    assert place.layers == len(found.paths)
    for layer in range(place.layers):
        with place.removed("off", [layer]):
            without = seen(model)
        assert without.in_layers == tuple(path for path in found.paths if path != found.paths[layer])


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_that_are_not_computed_again_change_nothing(family):
    model = tiny(family)
    run = runner(model)
    with torch.no_grad():
        for stack in stacks(model, run, IDS[None]):
            with kept_outputs(stack) as kept:
                sound = run(IDS[None])[0]
            for number in range(len(stack.layers)):
                with begun_at(stack, number, kept):
                    assert torch.equal(run(IDS[None])[0], sound)
            kept[0] = nothing(kept[0])
            with begun_at(stack, 1, kept):  # the control: it is these outputs that are used
                assert not torch.equal(run(IDS[None])[0], sound)


def nothing(output):
    if isinstance(output, tuple):
        return (0 * output[0], *output[1:])
    return 0 * output


def test_a_decoder_without_positions():
    model = without_positions()
    found = seen(model)
    assert found.uses is False
    assert found.causal
    assert found.whole is None
    # Why layers are looked at one by one: with a causal mask two layers tell orders apart without any code.
    order = torch.cat((torch.arange(23).flip(0), torch.tensor([23])))
    with torch.no_grad():
        last = [model(input_ids=ids[None]).logits[0, -1] for ids in (IDS, IDS[order])]
    assert float((last[0] - last[1]).abs().max() / last[0].abs().max()) > 10 * ROUNDING


def test_an_encoder_without_positions():
    model = tiny("bert")
    assert seen(model).uses
    nn.init.zeros_(model.bert.embeddings.position_embeddings.weight)
    found = seen(model)
    assert found.uses is False
    assert not found.causal
    assert found.whole < ROUNDING / 20


def test_layers_with_and_without_are_told_apart():
    found = seen(without_positions(rotated=(1, 0)))
    assert found.in_layers == ("model.layers.0",)


def test_a_hidden_bias_is_seen():
    model = without_positions()
    with hidden_bias(model, [1]):
        found = seen(model)
        assert found.in_layers == ("model.layers.1",)
        places = reached(model, runner(model), IDS[None])
        with all_removed(places):
            assert seen(model).uses
    assert seen(model).uses is False


class Block(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.bias = bias

    def forward(self, x):
        places = torch.arange(x.shape[1]).float()
        mask = torch.full((x.shape[1],) * 2, float("-inf")).triu(1) + self.bias * (places - places[:, None]).tril()
        return x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


class Plain(nn.Module):
    """A model that knows nothing of Transformers."""

    def __init__(self, bias):
        super().__init__()
        self.embed = nn.Embedding(48, 32)
        self.blocks = nn.ModuleList([Block(32, 0.0), Block(32, bias)])

    def forward(self, input_ids, use_cache=False):
        x = self.embed(input_ids)
        for block in self.blocks:
            x = block(x)
        return SimpleNamespace(logits=x @ self.embed.weight.T)


@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_a_model_that_is_not_of_transformers(bias):
    torch.manual_seed(0)
    found = positions_used(Plain(bias).eval(), IDS)
    assert found.causal
    assert found.in_layers == (("blocks.1",) if bias else ())
    assert found.uses == bool(bias)


def test_what_cannot_be_seen_is_not_claimed():
    class Single(Plain):
        def __init__(self):
            super().__init__(0.5)
            self.one, self.two = self.blocks
            del self.blocks

        def forward(self, input_ids, use_cache=False):
            return SimpleNamespace(logits=self.two(self.one(self.embed(input_ids))))

    assert positions_used(Single().eval(), IDS).uses is None


def test_a_model_whose_positions_cannot_be_reached():
    model = Plain(0.5)
    with pytest.raises(InvalidValue, match="positions of Plain cannot be reached") as caught:
        reached(model, runner(model), IDS[None])
    for family in ("Llama", "GPT-2", "BERT", "OPT", "BLOOM", "MPT", "T5", "Falcon", "GPT-NeoX", "GPT-J"):
        assert family in caught.value.hint
    assert "_places.py" in caught.value.hint
