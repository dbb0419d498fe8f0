"""Exact positions in small models of Transformers: same logits, gradients, texts and files, and out again."""

import copy
import pickle
from dataclasses import replace
from types import SimpleNamespace

import pytest

import clockhands as ch
from auditing import loaded_models as models
from clockhands.errors import InvalidType, InvalidValue
from late import Late
from probes.tiny_models import small, tiny

torch, transformers, exactly = Late("torch"), Late("transformers"), Late("clockhands.transformers")

CLOSE = 1e-6  # of the largest logit, or of 1
TOKENS = 20
QUICK = ("llama", "gemma3_text", "gpt_oss", "llama4_text", "cohere", "gptj", "m2m_100", "bloom", "t5", "umt5")
FAMILIES = (
    "mistral", "qwen2", "qwen3", "gemma2", "phi3", "gpt_neox", "modernbert", "falcon", "smollm3", "glm", "olmo3",
    "deepseek_v3", "gemma4_text", "stablelm", "mixtral", "codegen", "mpt", "marian", "olmo", "olmo2", "granite",
    "starcoder2", "cohere2", "nemotron", "arcee", "apertus", "bitnet", "diffllama", "gemma", "helium", "ministral",
    "roformer", "esm", "seed_oss", "ernie4_5", "hunyuan_v1_dense", "phi", "persimmon", "glm4", "olmoe", "qwen3_moe",
    "exaone4",
)  # fmt: skip
# Gemma 4 normalises queries and keys to the square root of the head width, 16, and does not divide their product: a
# score may be 16 (4 where it is divided), and an error in a phase of float32 counts so many times.
SCORES = {"gemma4_text": 16.0}
_SPAN = "relative_attention_max_distance"
# These small models have no head for text.
WITHOUT_GENERATION = {"modernbert", "roformer", "esm", "t5", "umt5", "m2m_100"}


def made(name):
    model = small(name)
    vocabulary = model.config.get_text_config().vocab_size
    ids = torch.randint(3, vocabulary, (2, TOKENS), generator=torch.Generator().manual_seed(1))
    given = {"input_ids": ids}
    if model.config.is_encoder_decoder and model.config.model_type in ("t5", "umt5", "m2m_100"):
        given["decoder_input_ids"] = ids[:, :12]
    return model, given


def answer(model, given):
    """The first output, and the gradients of its sum of squares."""
    model.zero_grad()
    output = model(**given)[0]
    output.square().mean().backward()
    grads = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
    return output.detach(), grads


def written(model, folder):
    model.save_pretrained(folder)
    return {each.name: each.read_bytes() for each in sorted(folder.iterdir())}


def generated(model, given):
    """Tokens after a text, and after a shorter one that is padded on the left."""
    mask = torch.ones_like(given["input_ids"])
    mask[1, :7] = 0
    more = {"do_sample": False, "max_new_tokens": 6, "pad_token_id": 0, "eos_token_id": None}
    return model.generate(given["input_ids"], attention_mask=mask, **more)


def check(name, model, before, given):
    """Whether a model gives what it gave before."""
    output, grads = answer(model, given)
    bound = CLOSE * SCORES.get(name, 1.0)
    assert (output - before[0]).abs().max() <= bound * max(1.0, before[0].abs().max())
    assert grads.keys() == before[1].keys()
    for key, grad in grads.items():
        assert (grad - before[1][key]).abs().max() <= bound * max(1.0, before[1][key].abs().max()), key


def codes(audit):
    return [(each.code, each.layers, each.severity) for each in audit.findings]


def test_a_swapped_model_is_the_same_model(tmp_path, cases, draw):
    for name in draw(QUICK, 5):  # all of them below
        with cases(name):
            stays(name, tmp_path / name)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK + FAMILIES)
def test_a_swapped_model_of_every_family_is_the_same_model(name, tmp_path):
    stays(name, tmp_path)


def stays(name, tmp_path):
    model, given = made(name)
    before, files, judged = answer(model, given), written(model, tmp_path / "before"), codes(ch.audit(model))
    keys = list(model.state_dict())
    texts = None if name in WITHOUT_GENERATION else generated(model, given)

    changed = exactly.swap(model)
    assert changed
    check(name, model, before, given)
    assert list(model.state_dict()) == keys
    assert written(model, tmp_path / "after") == files
    assert codes(ch.audit(model)) == judged
    assert not ch.audit(model).errors
    if texts is not None:
        assert torch.equal(generated(model, given), texts)
    check(name, copy.deepcopy(model), before, given)

    assert exactly.restore(model) == changed
    assert torch.equal(answer(model, given)[0], before[0])
    assert written(model, tmp_path / "restored") == files


def test_a_swapped_base_model_is_saved_under_the_name_of_its_class(tmp_path, cases):
    """Here the part that is changed is the model itself."""
    sizes, tokens = {"vocab_size": 50, "hidden_size": 32, "n_layers": 2, "n_heads": 4}, torch.arange(9)[None]
    for name in ("Bloom", "Mpt"):
        with cases(name):
            own = getattr(transformers, f"{name}Model")
            model = own(getattr(transformers, f"{name}Config")(**sizes)).eval()
            files = written(model, tmp_path / name / "before")
            states = model(tokens, output_hidden_states=True).hidden_states
            exactly.swap(model)
            names = own.__name__, own.__qualname__, str(own)
            assert (type(model).__name__, type(model).__qualname__, str(type(model))) == names
            assert written(model, tmp_path / name / "after") == files
            assert len(model(tokens, output_hidden_states=True).hidden_states) == len(states)
            copied = pickle.loads(pickle.dumps(model))
            assert isinstance(copied, own)
            exactly.restore(copied)
            assert type(copied) is own


def test_a_wrong_swap_is_noticed(cases):
    """The twin: the test above fails where the part that was put in place is of another base or layout."""
    model, given = made("llama")
    before = answer(model, given)
    exactly.swap(model)
    part = next(part for part in model.modules() if getattr(part, "clockhands_output", None))
    output = part.clockhands_output[None]
    for fault, wrong in {
        "base": replace(output, spec=ch.Rotary(16, base=10_000.0)),
        "layout": replace(output, form="interleaved"),
        "padded": replace(output, spec=ch.Rotary(14, base=500_000.0, scaling=output.spec.scaling), padded=1),
    }.items():
        part.clockhands_output = {None: wrong}
        with cases(fault), pytest.raises(AssertionError):
            check("llama", model, before, given)


def rolled(model):
    attention = model.transformer.h[1].attn
    attention.embed_positions = attention.embed_positions.roll(1, 0)


DAMAGES = (
    ("llama", lambda model: model.model.rotary_emb.inv_freq.mul_(1.01)),
    ("llama", lambda model: setattr(model.config, "rope_parameters", {"rope_type": "default", "rope_theta": 1e6})),
    ("gemma3_text", lambda model: model.model.rotary_emb.full_attention_inv_freq.mul_(0.5)),
    ("gptj", rolled),
    ("gptj", lambda model: model.transformer.h[2].attn.embed_positions.mul_(0.999)),
    ("m2m_100", lambda model: model.decoder.embed_positions.weights.add_(0.01)),
    ("marian", lambda model: model.model.decoder.embed_positions.weight.data.mul_(-1)),
    ("t5", lambda model: setattr(model.decoder.block[0].layer[0].SelfAttention, _SPAN, 64)),
)


def test_a_model_that_is_not_what_its_config_declares_is_refused_whole(cases):
    for place, (name, damage) in enumerate(DAMAGES):
        with cases(name, place):
            model, given = made(name)
            damage(model)
            classes = {path: type(part) for path, part in model.named_modules()}
            before = answer(model, given)[0]
            with pytest.raises(InvalidValue, match="nothing was changed") as caught:
                exactly.swap(model)
            assert caught.value.hint
            assert {path: type(part) for path, part in model.named_modules()} == classes
            assert torch.equal(answer(model, given)[0], before)


def test_models_without_a_place_that_is_known_are_refused_with_cause_and_cure(cases):
    nowhere = r"nothing to change|does not know which part|is recognised"
    relative = "has relative positions in layers 0-1, and `swap` does not know which"
    narrow = r"model\.rotary_emb of \w+ has inv_freq in bfloat16"
    for make, says, hint in (
        (lambda: small("gpt2"), nowhere, ""),
        (lambda: small("bert"), nowhere, ""),
        (lambda: tiny("falcon with alibi"), nowhere, ""),
        (lambda: small("xlnet"), relative, "families"),
        (lambda: small("llama").to(torch.bfloat16), narrow, "swap first and cast"),
    ):
        with cases(says):
            with pytest.raises(InvalidValue, match=says) as caught:
                exactly.swap(make())
            assert hint in caught.value.hint


def test_three_coordinates_of_a_token_are_rotated_as_before(cases, monkeypatch):
    """Also by a part that asks for as many tokens as positions."""
    ids = torch.stack((torch.arange(40), torch.arange(40) // 7, torch.arange(40) % 7))[:, None].expand(3, 2, 40)
    x = torch.zeros(2, 40, 64)
    for name in ("qwen2_vl", "qwen3_vl"):
        model = models.model_of(name)
        kind = type(model.language_model.rotary_emb)

        def strict(self, x, position_ids, forward=kind.forward):
            assert x.shape[-2] == position_ids.shape[-1]
            return forward(self, x, position_ids)

        monkeypatch.setattr(kind, "forward", strict)
        own = model.language_model.rotary_emb(x, ids)
        with cases(name):
            assert exactly.swap(model) == ("language_model.rotary_emb",)
            for mine, theirs in zip(model.language_model.rotary_emb(x, ids), own, strict=True):
                assert mine.shape == theirs.shape
                assert (mine - theirs).abs().max() <= 4 * CLOSE  # phases up to 40 of float32


def test_a_part_that_names_its_positions_otherwise_is_swapped(monkeypatch):
    model, _ = made("llama")
    kind = type(model.model.rotary_emb)
    monkeypatch.setattr(kind, "forward", lambda self, x, at, forward=kind.forward: forward(self, x, at))
    assert exactly.swap(model) == ("model.rotary_emb",)


def test_repeated_frequencies_are_recognised_in_the_whole_width(monkeypatch):
    """Half of the frequencies twice: cosines have equal halves, as those of a narrower rotation have."""
    model, _ = made("llama")
    part = model.model.rotary_emb
    half = part.inv_freq[::2]

    def forward(_self, _x, position_ids):
        phases = position_ids[..., None].float() * torch.cat((half, half, half, half))
        return phases.cos(), phases.sin()

    monkeypatch.setattr(type(part), "forward", forward)
    said = [each.evidence["behaves as"] for each in ch.audit(model).findings if "behaves as" in each.evidence]
    width = 2 * len(part.inv_freq)
    assert len(said) == 1
    assert f"{width} of {width} dimensions" in said[0]


def test_what_is_swapped_exact_or_replaced_already_is_refused():
    model, given = made("llama")
    with pytest.raises(InvalidValue, match="is not swapped"):
        exactly.restore(model)
    exactly.swap(model)
    with pytest.raises(InvalidValue, match="swapped already"):
        exactly.swap(model)
    exactly.restore(model)
    with pytest.raises(InvalidType, match="must be a PyTorch module"):
        exactly.swap("llama")
    model.model.rotary_emb.forward = model.model.rotary_emb.forward
    with pytest.raises(InvalidValue, match="was replaced on the object"):
        exactly.swap(model)
    model.model.rotary_emb = exactly.RotaryEmbedding(config=model.config)
    before = answer(model, given)[0]
    words = r"model\.rotary_emb of LlamaForCausalLM is exact already.*nothing was changed"
    with pytest.raises(InvalidValue, match=words):
        exactly.swap(model)
    assert torch.equal(answer(model, given)[0], before)


@pytest.mark.parametrize("name", ["m2m_100", "t5"])
def test_an_error_on_the_way_takes_back_what_was_changed(name):
    """The class of the last part refuses subclasses, by an exception of its own."""
    model, given = made(name)
    path = exactly.swap(model)[-1]
    exactly.restore(model)
    last = model.get_submodule(path)

    class Final(type(last)):
        def __init_subclass__(cls, **_):
            raise RuntimeError("no subclasses")

    last.__class__ = Final
    classes = {place: type(part) for place, part in model.named_modules()}
    before, buffers = answer(model, given)[0], dict(model.named_buffers())
    with pytest.raises(InvalidValue, match=r"RuntimeError: no subclasses\. Nothing was changed"):
        exactly.swap(model)
    assert {place: type(part) for place, part in model.named_modules()} == classes
    assert dict(model.named_buffers()).keys() == buffers.keys()
    assert torch.equal(answer(model, given)[0], before)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_scalings_that_depend_on_the_length_change_as_those_of_transformers(kind):
    """Short, beyond the original length, decoding there, and short again."""
    scaling = {"rope_type": kind, "rope_theta": 10_000.0, "factor": 4.0}
    if kind == "longrope":
        scaling |= {"original_max_position_embeddings": 32, "short_factor": [1.0] * 8, "long_factor": [3.0] * 8}
    model = small("mistral", rope_parameters=scaling, max_position_embeddings=32, sliding_window=None)
    exact = copy.deepcopy(model)
    exactly.swap(exact)
    for length in (16, 48, 40, 64, 33, 32, 20):
        ids = torch.arange(length)[None] % 90 + 3
        with torch.no_grad():
            own, other = model(ids)[0], exact(ids)[0]
        assert (own - other).abs().max() <= 2 * CLOSE, length


def test_a_swapped_model_is_pickled_and_cast():
    model, given = made("llama")
    before = answer(model, given)
    exactly.swap(model)
    check("llama", pickle.loads(pickle.dumps(model)), before, given)
    narrow = copy.deepcopy(model).to(torch.bfloat16)
    cos, sin = narrow.model.rotary_emb(torch.zeros(1, 3, 64, dtype=torch.bfloat16), torch.arange(3)[None])
    assert cos.dtype == sin.dtype == torch.bfloat16
    far = torch.tensor([[131_071]])
    cos, _ = narrow.model.rotary_emb(torch.zeros(1, 1, 64), far)
    pair = ch.rotary.cos_sin(narrow.model.rotary_emb.clockhands_output[None].spec, [131_071], like=torch.zeros(1))
    assert torch.equal(cos[0, :, :8], pair.cosine)
    exactly.restore(narrow)


@pytest.mark.parametrize("name", ["t5", "umt5", "marian"])
def test_tables_beside_weights_are_made_again_after_to_empty_and_casts(name):
    model, given = made(name)
    weights = copy.deepcopy(model.state_dict())
    exactly.swap(model)
    before = model(**given)[0]
    rows = {path: buffer.clone() for path, buffer in model.named_buffers() if path.endswith("clockhands_rows")}
    assert rows
    assert not set(model.state_dict()) & set(rows)
    model.to(torch.float16).float()
    for path, buffer in model.named_buffers():
        if path in rows:
            assert torch.equal(buffer, rows[path]), path
    model.to("meta").to_empty(device="cpu")
    model.load_state_dict(weights)
    assert torch.equal(model(**given)[0], before)


def test_weights_that_a_swapped_model_does_not_read_are_refused_when_they_are_loaded_first():
    model, given = made("marian")
    weights = copy.deepcopy(model.state_dict())
    weights["model.decoder.embed_positions.weight"].neg_()
    exactly.swap(model)
    before = answer(model, given)[0]
    model.load_state_dict(weights)
    assert torch.equal(answer(model, given)[0], before)
    exactly.restore(model)
    with pytest.raises(InvalidValue, match="does not compute the positions"):
        exactly.swap(model)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gemma3_text", "t5", "marian"])
def test_a_swapped_model_compiles_in_one_graph(name):
    model, given = made(name)
    before = model(**given)[0]
    exactly.swap(model)
    after = torch.compile(model, backend="eager", fullgraph=True)(**given)[0]
    assert (after - before).abs().max() <= CLOSE * max(1.0, before.abs().max())


def test_a_pipeline_is_audited_and_swapped():
    model, _ = made("llama")
    pipeline = SimpleNamespace(model=model)
    assert codes(ch.audit(pipeline)) == codes(ch.audit(model))
    assert exactly.swap(pipeline) == ("model.rotary_emb",)
    assert exactly.restore(model) == ("model.rotary_emb",)


def test_frequencies_that_a_swapped_model_no_longer_reads_are_not_audited():
    """Casting rounds the buffer of frequencies, which decides nothing any more; restored, it does."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, vocab_size=50))
    exactly.swap(model)
    cosine, _ = model.model.rotary_emb(torch.zeros(1), torch.tensor([[1000]]))
    model.to(torch.bfloat16)
    assert [found.code for found in ch.audit(model).findings if "buffer" in found.code] == []
    assert torch.equal(model.model.rotary_emb(torch.zeros(1), torch.tensor([[1000]]))[0], cosine)
    exactly.restore(model)
    assert "buffer-rounded" in [found.code for found in ch.audit(model).findings]
