"""Whether a model has a position code, seen from its outputs alone."""

from functools import cache
from types import SimpleNamespace

import pytest

from clockhands.errors import InvalidValue
from late import Late
from probes.tiny_models import FAMILIES, hidden_bias, tiny, tokens, without_positions

torch, nn = Late("torch"), Late("torch.nn")
places, used = Late("clockhands.models.position_removals"), Late("clockhands.probes._position_use")


@cache
def ids():
    return tokens(1, 24)[0]


def runner(model):
    from clockhands.models.running_models import runner

    return runner(model)


def seen(model):
    return used.positions_used(model, ids(), runner(model))


def reached(model):
    return places.reached(model, runner(model), ids()[None])


@pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some", "all"])
def test_a_code_is_seen_where_it_is_and_is_gone_when_it_is_removed_in_all_layers_or_one(cases, draw, all_of_them):
    codes = sorted({row["code"] for row in FAMILIES.values()})
    of_code = {code: [name for name, row in FAMILIES.items() if row["code"] == code] for code in codes}
    for code, family in ((code, name) for code, of in of_code.items() for name in draw(of, 99 if all_of_them else 2)):
        with cases(family):
            model = tiny(family)
            sound = runner(model)(ids()[None])[0].clone()
            found = seen(model)
            assert found.uses
            assert (found.added > used.ROUNDING) == (code == "table")
            assert found.in_layers == (() if code == "table" else found.paths)
            (place,) = reached(model)
            assert place.code == code
            with places.all_removed([place]):
                without = seen(model)
            assert without.uses is False
            assert max((without.added, *without.layers, without.whole or 0)) < used.ROUNDING / 20
            assert torch.equal(runner(model)(ids()[None])[0], sound)
            if code != "table":
                assert place.layers == len(found.paths)
                for layer in range(place.layers):
                    with place.removed("off", [layer]):
                        without = seen(model)
                    assert without.in_layers == tuple(path for path in found.paths if path != found.paths[layer])


def test_a_decoder_without_positions():
    model = without_positions()
    found = seen(model)
    assert found.uses is False
    assert found.causal
    assert found.whole is None
    # Why layers are looked at one by one: with a causal mask two layers tell orders apart without any code.
    order = torch.cat((torch.arange(23).flip(0), torch.tensor([23])))
    with torch.no_grad():
        last = [model(input_ids=each[None]).logits[0, -1] for each in (ids(), ids()[order])]
    assert float((last[0] - last[1]).abs().max() / last[0].abs().max()) > 10 * used.ROUNDING


def test_an_encoder_without_positions():
    model = tiny("bert")
    assert seen(model).uses
    nn.init.zeros_(model.bert.embeddings.position_embeddings.weight)
    found = seen(model)
    assert found.uses is False
    assert not found.causal
    assert found.whole < used.ROUNDING / 20


def test_a_hidden_bias_is_seen_and_layers_with_and_without_are_told_apart():
    assert seen(without_positions(rotated=(1, 0))).in_layers == ("model.layers.0",)
    model = without_positions()
    with hidden_bias(model, [1]):
        found = seen(model)
        assert found.in_layers == ("model.layers.1",)
        with places.all_removed(reached(model)):
            assert seen(model).uses
    assert seen(model).uses is False


@cache
def plain():
    """A kind of model that knows nothing of Transformers."""

    class Block(torch.nn.Module):
        def __init__(self, width, bias):
            super().__init__()
            self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
            self.bias = bias

        def forward(self, x):
            at = torch.arange(x.shape[1]).float()
            mask = torch.full((x.shape[1],) * 2, float("-inf")).triu(1) + self.bias * (at - at[:, None]).tril()
            return x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]

    class Plain(torch.nn.Module):
        def __init__(self, bias):
            super().__init__()
            self.embed = nn.Embedding(48, 32)
            self.blocks = nn.ModuleList([Block(32, 0.0), Block(32, bias)])

        def forward(self, input_ids, use_cache=False):
            x = self.embed(input_ids)
            for block in self.blocks:
                x = block(x)
            return SimpleNamespace(logits=x @ self.embed.weight.T)

    return Plain


def test_a_model_that_is_not_of_transformers_and_one_of_which_nothing_can_be_claimed():
    for bias in (0.0, 0.5):
        torch.manual_seed(0)
        found = used.positions_used(plain()(bias).eval(), ids())
        assert found.causal
        assert found.in_layers == (("blocks.1",) if bias else ())
        assert found.uses == bool(bias)

    class Single(plain()):
        def __init__(self):
            super().__init__(0.5)
            self.one, self.two = self.blocks
            del self.blocks

        def forward(self, input_ids, use_cache=False):
            return SimpleNamespace(logits=self.two(self.one(self.embed(input_ids))))

    assert used.positions_used(Single().eval(), ids()).uses is None


def test_a_model_whose_positions_cannot_be_reached():
    with pytest.raises(InvalidValue, match="positions of Plain cannot be reached") as caught:
        reached(plain()(0.5))
    for family in ("Llama", "GPT-2", "BERT", "OPT", "BLOOM", "MPT", "T5", "Falcon", "GPT-NeoX", "GPT-J"):
        assert family in caught.value.hint
    assert "models/position_removals.py" in caught.value.hint
