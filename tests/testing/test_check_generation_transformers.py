"""Models of the Transformers library: right as they are, and wrong where one line of them is changed."""

import numpy as np
import pytest

from clockhands.testing import CannotCheck, check_generation
from clockhands.testing.generation._opened_models import opened
from late import Late
from packaged_weights import smollm2_file

torch, transformers = Late("torch"), Late("transformers")

pytestmark = pytest.mark.slow

# Large weights, so that a slip of one position shows.
_NAMED = {"vocab_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SIZES = {**_NAMED, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_LLAMA = {**_SIZES, "intermediate_size": 48, "num_key_value_heads": 2, "max_position_embeddings": 96}
_LLAMA |= {"initializer_range": 0.3}
_GPT2 = {**_NAMED, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "initializer_range": 0.3}
_LLAMA3 = {"rope_type": "llama3", "rope_theta": 500_000.0, "factor": 4.0, "low_freq_factor": 1.0}
_LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 24}
_OPT = {**_SIZES, "ffn_dim": 48, "max_position_embeddings": 64, "word_embed_proj_dim": 32, "init_std": 0.3}
_ROBERTA = {**_SIZES, "intermediate_size": 48, "max_position_embeddings": 96, "is_decoder": True, "pad_token_id": 1}
_ROBERTA |= {"initializer_range": 0.3}
_TWO = {"head_dim": 8, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
_LATENT = {"moe_intermediate_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
_LATENT |= {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8}
FAMILIES = {
    "DeepSeek-V2": ("DeepseekV2", _LLAMA | _LATENT | {"num_key_value_heads": 4}),
    "DeepSeek-V3": ("DeepseekV3", _LLAMA | _LATENT | {"num_key_value_heads": 4, "kv_lora_rank": 8}),
    "Llama": ("Llama", _LLAMA),
    "Llama in bfloat16": ("Llama", _LLAMA),
    "Llama 3": ("Llama", _LLAMA | {"rope_parameters": _LLAMA3}),
    "GPT-2": ("GPT2", _GPT2),
    "GPT-J": ("GPTJ", _GPT2 | {"rotary_dim": 4}),
    "GPT-NeoX": ("GPTNeoX", {name: value for name, value in _LLAMA.items() if name != "num_key_value_heads"}),
    "Bloom": ("Bloom", _NAMED | {"hidden_size": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.3}),
    "Falcon": ("Falcon", _SIZES | {"initializer_range": 0.3}),
    "OPT": ("OPT", _OPT),
    "RoBERTa": ("Roberta", _ROBERTA),
    "Mistral": ("Mistral", _LLAMA | {"sliding_window": 8}),
    "Gemma": ("Gemma", _LLAMA | {"num_key_value_heads": 1, "head_dim": 8}),
    "Gemma 3": ("Gemma3", _LLAMA | _TWO),
    "Qwen 2": ("Qwen2", _LLAMA),
    "Phi-3": ("Phi3", _LLAMA),
}
TURNED_ON = {"DeepSeek-V2", "DeepSeek-V3", "Llama", "GPT-NeoX", "GPT-J", "Phi-3", "Qwen 2"}


def built(family, **changed):
    name, fields = FAMILIES[family]
    fields = fields | changed
    config = getattr(transformers, f"{name}TextConfig" if name == "Gemma3" else f"{name}Config")
    kind = getattr(transformers, f"{name}LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM")
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = kind(config(**fields))
    return model.to(torch.bfloat16) if "bfloat16" in family else model


def checked(model, **options):
    return check_generation(model, raises=False, **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_right_model_passes(family):
    report = checked(built(family))
    assert report.sound, str(report)
    asked = {"left padding", "right padding", "chunks", "one token at a time", "a pickled cache"}
    if family in TURNED_ON:  # keys are turned on by the config's own code, and stand where they were moved to
        asked |= {"a shifted text", "a shifted cache", "rows removed from the cache"}
    assert asked <= set(report.experiments)


def test_roundings_that_deep_layers_amplify_are_measured():
    # Without other roundings of its products, nine tenths of what was allowed were used up.
    report = checked(built("Llama", num_hidden_layers=8, initializer_range=1.0, hidden_size=64))
    assert report.sound, str(report)
    assert report.worst < 0.5
    assert report.called["rounding explains"] < report.called["a slip of one position"] / 4


def test_logits_of_a_part_of_a_large_output_head_are_those_of_the_whole(monkeypatch):
    model = built("Llama", vocab_size=9_000, tie_word_embeddings=True).eval()
    whole = opened(model, None, None, None, 60.0)
    monkeypatch.setattr("clockhands.testing.generation._opened_models._COPIED", 0)
    part = opened(model, None, None, None, 60.0)
    assert part.returned == 3_000
    assert whole.returned == 9_000
    tokens = np.arange(0, 8_000, 1_000)[None]
    got, wanted = part(tokens)[0], whole(tokens)[0]
    assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()
    assert model.lm_head.weight.shape == (9_000, 32)


def test_position_ids_begin_where_the_class_counts_from():
    left_out = checked(built("RoBERTa")).left_out
    assert left_out["position ids from 0"] == "they begin at 2, as the model counts where none are passed"
    assert "position ids from 0" not in checked(built("OPT")).left_out


def test_the_callers_model_stays_as_it_is():
    model = built("Llama").train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    check_generation(model)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_pads_that_count_unless_positions_are_given_are_a_note():
    report = checked(built("GPT-2"))
    assert report.sound
    assert report.left_out["left padding without positions"].startswith("it counts padding as positions unless")


class Slip:
    """A hook before a model's forward: what it is given is changed as a wrong serving loop would."""

    def __init__(self, how):
        self.how = how

    def __call__(self, module, arguments, given):
        past = given.get("past_key_values")
        length = 0 if past is None else past.get_seq_length()
        return arguments, self.how(dict(given), length)


def skips(given, length):
    if length and given.get("position_ids") is not None:
        given["position_ids"] = given["position_ids"] + 1
    return given


def drops_mask(given, _):
    if given.get("attention_mask") is not None and given["attention_mask"].ndim == 4:
        given["attention_mask"] = None
    return given


def counts_rows(given, length):
    size = given["input_ids"].shape[1]
    if given.get("position_ids") is not None:
        given["position_ids"] = (length + torch.arange(size)).expand(given["input_ids"].shape)
    return given


@pytest.mark.parametrize(
    ("slip", "family", "code"),
    [
        (skips, "GPT-2", "decode-positions"),
        (drops_mask, "Llama", "packing-ignored"),
        (counts_rows, "Llama", "eviction-stops-positions"),
    ],
)
def test_a_wrong_model_is_named(slip, family, code):
    model = built(family)
    model.register_forward_pre_hook(Slip(slip), with_kwargs=True)
    report = checked(model)
    assert code in report.codes, str(report)


def test_a_model_without_numbers_is_refused():
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**_LLAMA))
    with pytest.raises(CannotCheck, match="on the device meta"):
        check_generation(model)


def test_an_encoder_is_said_to_be_one(cases):
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=97, initializer_range=0.3, **sizes)
    for kind in (transformers.BertModel, transformers.BertForMaskedLM):
        with cases(kind.__name__):
            with pytest.raises(CannotCheck) as caught:
                checked(kind(config).eval())
            assert f"{kind.__name__} is an encoder" in str(caught.value)
            assert "clockhands audit MODEL --live" in str(caught.value)


def test_the_first_layer_that_answers_otherwise_is_told():
    model = built("Llama")

    def stuck(_, arguments, given):
        if given["position_embeddings"][0].shape[1] == 1:
            given["position_embeddings"] = tuple(wave * 0 + 1 for wave in given["position_embeddings"])
        return arguments, given

    model.model.layers[1].register_forward_pre_hook(stuck, with_kwargs=True)
    report = checked(model)
    (failure,) = [one for one in report.failures if one.experiment == "one token at a time"]
    assert failure.message.endswith("The first layer with a different output is model.layers.1, at position 8.")
    assert failure.evidence["layer"] == "model.layers.1"


def test_a_real_model_passes(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    file = smollm2_file()
    model = transformers.AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name)
    report = checked(model.eval(), length=8)
    assert report.sound, str(report)
    assert {"a shifted text", "a shifted cache", "rows removed from the cache", "packing"} <= set(report.experiments)
    # The tokens of a trained model depend on their order: a slip of one position is far above rounding.
    assert report.called["a slip of one position"] > 1000 * report.called["rounding explains"]
    with pytest.raises(CannotCheck, match="in training mode"):
        check_generation(model.train())


def test_rates_other_than_those_of_the_config_are_not_called_a_cache_that_stands_still():
    """Keys are turned on by the check itself, at the declared rates, so the model cannot have left them behind."""
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**_LLAMA))
    model.model.rotary_emb.inv_freq.mul_(0.5)
    report = check_generation(model, raises=False)
    (failure,) = report.failures
    assert failure.experiment == "a shifted cache"
    assert "with the frequencies of its spec" in failure.message
    assert "cached-keys-keep-positions" not in report.codes


def patched(model, change):
    """A model whose ``forward`` was replaced by a function that calls the original: copies of it share the function."""
    original = model.forward

    def forward(input_ids=None, position_ids=None, past_key_values=None, **given):
        if position_ids is not None:
            past = 0 if past_key_values is None else past_key_values.get_seq_length()
            position_ids = change(position_ids, past)
        return original(input_ids=input_ids, position_ids=position_ids, past_key_values=past_key_values, **given)

    model.forward = forward
    return model


def counting(model, change):
    """A model that is copied, and whose positions are changed as if it had counted them itself."""

    def placed(_, arguments, given):
        if given.get("position_ids") is None:
            given["position_ids"] = torch.arange(given["input_ids"].shape[1])[None]
        return arguments, {**given, "position_ids": change(given["position_ids"], 0)}

    model.register_forward_pre_hook(placed, with_kwargs=True)
    return model


def test_a_function_assigned_to_forward_is_checked():
    assert checked(patched(built("Llama").eval(), lambda at, _: at)).sound
    report = checked(patched(built("Llama").eval(), lambda at, past: at + (past > 0)))
    assert report.codes == {"decode-positions"}
    (failure,) = [one for one in report.failures if one.experiment == "one token at a time"]
    assert failure.evidence["layer"] == "model.layers.0"
    with pytest.raises(CannotCheck, match="in training mode"):
        checked(patched(built("Llama").train(), lambda at, _: at))


def test_the_verdict_names_what_was_left_out_where_a_fault_may_be_the_cause():
    def not_restarted(at, _):
        return torch.arange(at.shape[1]).expand_as(at) if (at.diff(dim=1) < 0).any() else at

    report = checked(patched(built("Llama").eval(), not_restarted))
    assert "packing by positions alone" in checked(built("Llama")).experiments
    assert report.sound
    verdict = next(report.lines()).text
    assert "Not checked: packing by positions alone (restarting positions do not separate" in verdict
    ignored = checked(patched(built("Gemma 3").eval(), lambda at, past: past + torch.arange(at.shape[1]).expand_as(at)))
    assert "the positions passed in have no effect" in next(ignored.lines()).text
    # What an argument enables is told beside it, with the argument.
    assert "joined caches" not in verdict
    assert "Skipped: joined caches (pass join=" in str(report)


def test_calls_that_each_count_from_0_are_named_behind_a_window():
    def from_zero(at, _):
        return torch.arange(at.shape[1]).expand_as(at)

    for family in ("Gemma 3", "Llama"):
        report = checked(counting(built(family), from_zero))
        assert report.codes == {"chunk-restarts"}, str(report)


def test_positions_of_the_first_text_for_all_are_named():
    first = checked(patched(built("Llama").eval(), lambda at, _: at[:1].expand_as(at)))
    assert first.codes == {"padding-shifts"}, str(first)
    assert "every text of a batch gets the positions of its first text" in first.explanations[0].message


def test_positions_of_an_earlier_call_of_the_same_length_are_named():
    model, kept = built("Llama").eval(), {}

    def forward(tokens, positions, mask, cache):
        cache = transformers.DynamicCache(config=model.config) if cache is None else cache
        key = tokens.shape[1], cache.get_seq_length()
        at = kept.setdefault(key, positions)[:1].expand_as(positions)
        if mask is not None and mask.ndim == 3:
            mask = torch.where(mask[:, None], 0.0, torch.finfo(torch.float32).min)
        with torch.no_grad():
            return model(input_ids=tokens, position_ids=at, attention_mask=mask, past_key_values=cache)

    report = checked(None, forward=forward, vocabulary=64)
    assert report.codes == {"model-keeps-state"}, str(report)


def hooked(family, change):
    """A model whose positions are changed before each call: change(given, cached tokens, what the model keeps)."""
    model = built(family).eval()

    def placed(module, arguments, given):
        past = 0 if given.get("past_key_values") is None else given["past_key_values"].get_seq_length()
        return arguments, change(given, past, module.__dict__.setdefault("kept", {}))

    model.register_forward_pre_hook(placed, with_kwargs=True)
    return model


def at_zero_if_given(given, past, _):
    if past and given["input_ids"].shape[1] == 1 and given.get("position_ids") is not None:
        given["position_ids"] = torch.zeros_like(given["input_ids"])
    return given


def of_the_first_text(given, past, kept):
    """The delta of positions and places is computed for the first text alone."""
    rows, size = given["input_ids"].shape
    if "delta" not in kept:
        known = given.get("position_ids")
        kept["delta"] = torch.zeros(rows, 1, dtype=torch.int64) if known is None else known[:, -1:] + 1 - size
    if past:
        delta = kept["delta"] if len(kept["delta"]) == rows else kept["delta"][:1]
        given["position_ids"] = past + torch.arange(size).expand(rows, size) + delta
    return given


def test_one_fault_has_one_name_where_positions_are_passed_and_where_they_are_not():
    report = checked(hooked("Llama", at_zero_if_given))
    assert report.codes == {"decode-positions"}, str(report)
    (told,) = report.explanations
    assert "position 0 if it comes alone, only if positions are passed" in told.message
    assert set(told.evidence["explains"]) == {failure.experiment for failure in report.failures}
    assert checked(hooked("Llama", of_the_first_text)).codes == {"offset-of-earlier-text"}


def test_padding_that_a_class_counts_by_design_is_said_and_is_no_failure(cases):
    sizes = {**_NAMED, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "init_std": 0.3}
    sizes |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "is_decoder": True}
    for name in ("Bart", "Marian", "Whisper"):
        with cases(name), torch.random.fork_rng():
            torch.manual_seed(3)
            config = getattr(transformers, f"{name}Config")(**sizes, decoder_start_token_id=1)
            report = checked(getattr(transformers, f"{name}ForCausalLM")(config).eval())
            assert report.sound, str(report)
            assert report.left_out["left padding"].startswith("by design of the class, whose positions are absolute")
            assert "by design of the class" in next(report.lines()).text


_LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_EXPERTS |= {"shared_expert_intermediate_size": 16}
_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1}
HYBRIDS = {
    "Lfm2": {"full_attn_idxs": [1]},
    "Qwen3Next": {**_LINEAR, **_EXPERTS, "head_dim": 8, "layer_types": ["linear_attention", "full_attention"]},
    "FalconH1": {**_MAMBA, "mamba_d_ssm": 64, "head_dim": 8},
}


def test_a_state_that_keeps_no_documents_apart_is_said_and_is_no_failure(cases):
    for name, more in HYBRIDS.items():
        with cases(name), torch.random.fork_rng():
            torch.manual_seed(3)
            config = getattr(transformers, f"{name}Config")(**_LLAMA, **more)
            model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
            report = checked(model)
            assert report.sound, str(report)
            for experiment in ("packing", "rejected tokens"):
                assert report.left_out[experiment].startswith("by design of the class, which keeps a state")


def test_what_fails_without_a_state_or_beside_one_stays_a_failure(cases):
    """Llama that sees the first document from the second one, and a hybrid whose cached decoding is wrong."""
    with cases("no state"):
        report = checked(hooked("Llama", without_mask_of_documents))
        assert "packing" in {failure.experiment for failure in report.failures}
    with cases("another failure"), torch.random.fork_rng():
        torch.manual_seed(3)
        model = transformers.Lfm2ForCausalLM(transformers.Lfm2Config(**_LLAMA, **HYBRIDS["Lfm2"])).eval()
        model.model.layers[1].self_attn.register_forward_pre_hook(without_cache, with_kwargs=True)
        failed = {failure.experiment for failure in checked(model).failures}
        assert "one token at a time" in failed


def without_mask_of_documents(given, *_):
    mask = given.get("attention_mask")
    return {**given, "attention_mask": None} if mask is not None and mask.ndim == 4 else given


def without_cache(_, args, kwargs):
    return args, {**kwargs, "past_key_values": None, "attention_mask": None}


def model_of(name, **more):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, f"{name}Config")(**more)).eval()


JAMBA = {
    **_LLAMA, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 8, "num_experts": 2,
    "pad_token_id": 0,
}  # fmt: skip


def test_a_state_that_is_read_for_a_single_token_alone_is_said_and_decoding_is_still_compared(cases):
    report = checked(model_of("Jamba", **JAMBA))
    assert report.sound, str(report)
    assert report.left_out["chunks"].startswith("by design of the class, whose layers that keep a state read it for a")
    assert "one token at a time" in report.experiments
    with cases("a wrong decoding stays a failure"):
        model = model_of("Jamba", **JAMBA)
        model.model.layers[1].self_attn.register_forward_pre_hook(without_cache, with_kwargs=True)
        assert "one token at a time" in {failure.experiment for failure in checked(model).failures}


def test_the_rounding_of_a_recurrence_is_measured_with_a_copy_in_float64():
    from clockhands.testing.generation._opened_models import opened
    from clockhands.testing.generation.texts import GenerationSubject, measured, texts_of

    model = opened(model_of("FalconH1", **{**_LLAMA, **HYBRIDS["FalconH1"]}), None, None, None, 60.0)
    subject = measured(GenerationSubject(model, texts_of(model.vocabulary, 16)))
    finer = subject.model.finer()
    assert finer is not None
    exact = [finer(text[None])[0][0] for text in subject.texts]
    own = max(abs(one - other).max() for one, other in zip(exact, subject.wanted, strict=True))
    assert subject.allowed >= 4 * own > 0


def test_what_differs_by_a_selection_of_keys_is_not_judged(cases):
    sparse = {
        **_LLAMA, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 16,
        "first_k_dense_replace": 2, "index_head_dim": 16, "index_n_heads": 2, "head_dim": 8, "num_key_value_heads": 4,
    }  # fmt: skip
    for keys in (8, 64):
        with cases(keys):
            report = checked(model_of("DeepseekV32", **sparse, index_topk=keys))
            assert report.sound, str(report)
            judged = [why for why in report.left_out.values() if why.startswith("keys are selected by an indexer")]
            # On some processors rounding selects other keys while it is measured, so that nothing fails.
            rounded = "rounding alone" in report.left_out.get("faults of one position", "")
            assert judged or rounded if keys == 8 else not judged


_READ = {**_NAMED, "d_model": 32, "decoder_start_token_id": 0}
_BART = {**_READ, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
_BART |= {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "init_std": 0.3}
_T5 = {**_READ, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "initializer_factor": 2.0}
DECODERS = {
    "T5ForConditionalGeneration": ("T5Config", _T5),
    "BartForConditionalGeneration": ("BartConfig", _BART | {"max_position_embeddings": 96}),
    "M2M100ForConditionalGeneration": ("M2M100Config", _BART | {"max_position_embeddings": 96}),
    "WhisperForConditionalGeneration": ("WhisperConfig", _BART | {"num_mel_bins": 8, "max_target_positions": 96}),
}


def test_decoders_are_checked_with_one_output_of_their_encoder(cases, monkeypatch):
    def decoder(kind):
        config, fields = DECODERS[kind]
        with torch.random.fork_rng():
            torch.manual_seed(3)
            return getattr(transformers, kind)(getattr(transformers, config)(**fields)).eval()

    for kind in DECODERS:
        with cases(kind):
            report = checked(decoder(kind))
            assert report.sound, str(report)
            assert {"chunks", "one token at a time", "two alternating texts"} <= set(report.experiments)
    from transformers.models.bart import modeling_bart as module

    table = module.BartLearnedPositionalEmbedding
    right = table.forward
    monkeypatch.setattr(table, "forward", lambda self, ids, *_, **__: right(self, ids))  # no earlier tokens
    with cases("counts from 0"):
        report = checked(decoder("BartForConditionalGeneration"))
        assert report.codes == {"decode-positions"}, str(report)
        assert "(each call counts from 0)" in report.explanations[0].message


def test_an_image_moves_the_positions_of_its_own_text_alone():
    text = _LLAMA | {"head_dim": 8, "max_position_embeddings": 256}
    text |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}}
    vision = {"depth": 1, "hidden_size": 32, "num_heads": 4, "intermediate_size": 32, "out_hidden_size": 32}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        config = transformers.Qwen2_5_VLConfig(
            text_config=text, vision_config=vision, image_token_id=60, video_token_id=61, vision_start_token_id=58
        )
        model = transformers.Qwen2_5_VLForConditionalGeneration(config).eval()
    report = checked(model)
    assert report.sound, str(report)
    assert "alternating images" in report.experiments

    def own_offset(_, args, given):  # later calls of an image take the offset that the last one left in the model
        cache, ids = given.get("past_key_values"), given.get("position_ids")
        if cache is not None and cache.get_seq_length() and ids is not None and ids.ndim == 3:
            given = {name: each for name, each in given.items() if name != "position_ids"}
        return args, given

    model.register_forward_pre_hook(own_offset, with_kwargs=True)
    report = checked(model)
    assert report.codes == {"model-keeps-state"}, str(report)
    assert [failure.experiment for failure in report.failures] == ["alternating images"]
