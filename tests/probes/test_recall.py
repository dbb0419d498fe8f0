"""Recall of a planted fact, by models that are made to recall it or not, and scalings beside Transformers' own."""

from functools import cache
from types import SimpleNamespace

import pytest

from late import Late
from probes.tiny_models import CONTEXT, tiny, tokens

torch, recall, models = Late("torch"), Late("clockhands.probes._recall"), Late("clockhands.models.running_models")


@cache
def copying(*sizes):
    class Copying(torch.nn.Module):
        """Predicts what came after the last tokens where they were there before, within some distance."""

        def __init__(self, reach, alike=2):
            super().__init__()
            self.reach, self.alike = reach, alike

        def forward(self, input_ids, use_cache=False):
            (ids,) = input_ids.tolist()
            logits = torch.zeros(1, len(ids), 1000)
            first = self.alike - 1
            for place in range(first, len(ids)):
                for before in range(place - 1, max(first - 1, place - self.reach), -1):
                    if ids[before - first : before + 1] == ids[place - first : place + 1]:
                        logits[0, place, ids[before + 1]] = 20.0
                        break
            return SimpleNamespace(logits=logits)

    return Copying(*sizes)


def recalled(module, plan, *, context=1000, rows=None, encode=None, filler=None):
    filler = tokens(2, 128) if filler is None else filler
    found, missing = recall.measure_recall(
        models.RunningModel("", module, encode, context), filler, plan, rows, lambda *_: None
    )
    return {(each.length, each.depth): each for each in found if each.scaling is None}, missing


def test_a_model_that_copies_recalls_at_every_depth_and_not_without_the_fact():
    # Each token of the filler is there once, so that only the fact repeats.
    found, _ = recalled(copying(1000), recall.RecallPlan(lengths=(128,)), filler=torch.arange(200, 328)[None])
    assert [found[128, depth].greedy for depth in (0.1, 0.5, 0.9)] == [1, 1, 1]
    assert found[128, 0.5].log_probability > -0.01
    assert found[128, None].greedy == 0
    assert found[128, None].log_probability == pytest.approx(-torch.tensor(1000.0).log().item())
    found, _ = recalled(copying(40), recall.RecallPlan(lengths=(128,)), filler=torch.arange(200, 328)[None])
    assert [found[128, depth].greedy for depth in (0.1, 0.5, 0.9)] == [0, 0, 1]  # one that sees few tokens


def test_a_fact_in_words():
    def encode(text):
        return [ord(letter) for letter in text]

    found, _ = recalled(
        copying(1000, 8), recall.RecallPlan(lengths=(512,), keys=2), encode=encode, filler=torch.arange(200, 712)[None]
    )
    assert found[512, 0.5].greedy == 1
    assert found[512, None].greedy == 0


def test_lengths_that_are_not_measured_are_said():
    _, missing = recalled(copying(10), recall.RecallPlan(), context=8192)
    assert any("8,192 tokens was not measured: a text of 16,384 tokens is longer than 2,048" in it for it in missing)
    found, _ = recalled(copying(10), recall.RecallPlan(), context=200)
    assert {length for length, _ in found} == {128, 400}
    assert [each.past for each in found.values()] == [False] * 4 + [True] * 4
    _, missing = recalled(copying(10), recall.RecallPlan(), context=128, rows=128)
    assert any("256 tokens: the position table has 128 rows" in it for it in missing)
    _, missing = recalled(copying(10), recall.RecallPlan(lengths=(20,)))
    assert any("fact and question need 64" in it for it in missing)
    assert any("Scalings at test time were not tried" in it for it in missing)


# What Transformers itself computes for a model that declares the scaling; NTK is a larger base.
DECLARED = {
    "linear": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0},
    "yarn": {
        "rope_type": "yarn", "factor": 4.0, "rope_theta": 10_000.0, "original_max_position_embeddings": CONTEXT,
    },
    "dynamic": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0},
    "ntk": {"rope_type": "default", "rope_theta": 10_000.0 * 4 ** (16 / 14)},
}  # fmt: skip


def test_a_scaling_is_what_transformers_computes_where_it_is_declared(cases):
    ids = tokens(1, 4 * CONTEXT)
    for name, parameters in DECLARED.items():
        plain, scaled = tiny("llama"), tiny("llama", rope_parameters=parameters)
        scaled.load_state_dict(plain.state_dict())
        with cases(name), torch.no_grad():
            tried, why = recall._scalings(models.RunningModel("", plain, None, CONTEXT))
            assert why is None
            wanted, without = scaled(input_ids=ids).logits, plain(input_ids=ids).logits
            with dict(tried(4.0, 4 * CONTEXT))[name]():
                found = plain(input_ids=ids).logits
            off = (without - wanted).abs().max()
            assert (found - wanted).abs().max() < off / 100  # the control: without the scaling it is another model
    scaled = tiny("llama", rope_parameters=DECLARED["linear"])
    _, why = recall._scalings(models.RunningModel("", scaled, None, CONTEXT))
    assert "has a scaling (linear)" in why
