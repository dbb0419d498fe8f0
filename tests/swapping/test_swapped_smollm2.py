"""SmolLM2-135M with exact positions in place: the same logits, gradients, texts and audit."""

import pytest

import clockhands as ch
from late import Late
from packaged_weights import smollm2_file

torch, exactly, models = Late("torch"), Late("clockhands.transformers"), Late("clockhands.probes.models")

pytestmark = pytest.mark.slow

CLOSE = 1e-6  # of the largest number, where all arithmetic but that of cosine and sine is float64


@pytest.fixture(scope="module")
def model():
    pytest.importorskip("gguf")
    return models.load(str(smollm2_file())).module.eval()


def test_the_real_model_is_the_same_model(model):
    ids = torch.randint(3, 49_000, (2, 24), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, :9] = 0
    more = {"attention_mask": mask, "do_sample": False, "max_new_tokens": 8, "pad_token_id": 0}
    weight = model.model.layers[3].self_attn.q_proj.weight

    def answered():
        model.zero_grad()
        logits = model(ids, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(min=0)).logits
        logits[mask.bool()].logsumexp(-1).mean().backward()
        return logits.detach()[mask.bool()], weight.grad.clone(), model.generate(ids, **more)

    before, keys = answered(), list(model.state_dict())
    assert exactly.spec_of(model).base == 100_000
    assert exactly.swap(model) == ("model.rotary_emb",)
    after = answered()
    assert list(model.state_dict()) == keys
    assert torch.equal(before[2], after[2])
    assert not ch.audit(model).errors
    exactly.restore(model)
    assert torch.equal(answered()[0], before[0])
    model.double()
    wide = answered()
    exactly.swap(model)
    for own, exact, own64, exact64 in zip(before[:2], after[:2], wide[:2], answered()[:2], strict=True):
        assert (own64 - exact64).abs().max() <= CLOSE * own64.abs().max()
        # In float32, 30 layers of rounding move the model itself as far.
        assert (own - exact).abs().max() <= 2 * (own - own64).abs().max()
    exactly.restore(model)
