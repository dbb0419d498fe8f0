"""Loaded models of many families: sound ones have no fault, and each of the public faults is named, with its layers."""

import json
from typing import Any

import pytest

import clockhands as ch
from auditing import loaded_models as models
from auditing.loaded_models import firing, told
from clockhands.show.terminal import print_audit
from packaged_weights import smollm2_file

torch: Any = None


@pytest.fixture(scope="module", autouse=True)
def libraries():
    """Imported when the first test runs."""
    globals()["torch"] = pytest.importorskip("torch")
    models.transformers()


def said(audited):
    return [(found.code, found.message) for found in firing(audited)]


@pytest.mark.parametrize("some", [16, pytest.param(99, marks=pytest.mark.slow)], ids=["some", "all"])
def test_a_sound_model_has_no_fault(cases, draw, some):
    for name in draw(models.FAMILIES, some):
        with cases(name):
            audited = ch.audit(models.model_of(name))
            assert said(audited) == []
            assert audited.target.endswith("Model (loaded)")
            assert audited.model_type == name
            json.dumps(audited.to_dict(), allow_nan=False)


def test_a_sound_model_of_several_parts_has_no_fault_and_one_in_its_text_is_told_of_its_layers(cases):
    for name in models.COMPOSED:
        model = models.model_of(name)
        with cases(name):
            assert said(ch.audit(model)) == []
        if name not in ("clip", "siglip"):  # whose text does not rotate
            ladder = "sliding_attention_inv_freq" if name == "gemma3" else "inv_freq"
            getattr(model.language_model.rotary_emb, ladder).zero_()
            with cases(name, "zero"):
                (found,) = firing(ch.audit(model))
                assert (found.code, found.layers) == ("buffer-zero", "0-2")
                assert "language_model.rotary_emb" in found.message


def test_a_table_that_a_class_leaves_at_zero_is_told():
    """ViTMAE of Transformers 5.23.0 makes zeros where its sines and cosines should be, and never trains them."""
    sizes = models.FAMILIES["vit"].config
    decoder = {"decoder_hidden_size": 32, "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2}
    made = models.transformers().ViTMAEForPreTraining(models.transformers().ViTMAEConfig(**sizes, **decoder))
    assert not made.vit.embeddings.position_embeddings.any(), "the library has mended it"
    found = firing(ch.audit(made))
    assert [each.code for each in found] == ["zero-table", "zero-table"]
    assert {name for each in found for name in each.evidence if ":" in name} == {
        "model:vit.embeddings.position_embeddings",
        "model:decoder.decoder_pos_embed",
    }


def test_a_table_that_training_begins_at_zero_is_no_fault(cases):
    library = models.transformers()
    for name in ("deit", "vit_msn", "vivit"):
        made = library.AutoModel.from_config(library.AutoConfig.for_model(name, **models.FAMILIES["vit"].config))
        audited = ch.audit(made)
        with cases(name):
            assert not made.embeddings.position_embeddings.any()
            assert told(audited) == []
            assert "table-zero" in [found.code for found in audited.findings]


def test_a_table_of_a_text_is_never_zero():
    model = models.model_of("gpt2")
    model.wpe.weight.data.zero_()
    assert told(ch.audit(model)) == [("zero-table", "input")]


def made_in_bfloat16(name):
    model = models.transformers().AutoModel.from_config(models.config_of(name), dtype=torch.bfloat16)
    assert next(model.parameters()).dtype == torch.bfloat16
    return model


# Three classes of Transformers 5.23.0 compute their tables with the default type, which `dtype=` sets meanwhile.
ROUNDED_AS_MADE = {"gptj": "buffer-rounded", "codegen": "buffer-rounded", "whisper": "table-differs"}


def test_a_model_made_in_bfloat16_is_sound_but_for_tables_that_were_made_so(cases, draw):
    for name in {*draw(models.FAMILIES, 10), *ROUNDED_AS_MADE}:
        model = made_in_bfloat16(name)
        with cases(name):
            codes = [found.code for found in firing(ch.audit(model))]
            assert codes == ([ROUNDED_AS_MADE[name]] if name in ROUNDED_AS_MADE else [])
        if name in ROUNDED_AS_MADE:
            find = "encoder.embed_positions.weight" if name == "whisper" else "h.0.attn.embed_positions"
            pair = (model, models.model_of(name))
            tables = [{**dict(each.named_buffers()), **each.state_dict()}[find].float() for each in pair]
            mended = "the library has mended it: take the family out of this list"
            assert (tables[0] - tables[1]).abs().max() > 0.1, mended


def test_a_model_loaded_in_any_type_is_sound(cases, draw, tmp_path):
    names = ("llama", "gemma3_text", "phi3", "gptj", "whisper", "m2m_100", "bert", "esm")
    rows = [(name, dtype) for name in names for dtype in ("bfloat16", "float16", "float32")]
    for name, dtype in draw(rows, 8):
        models.model_of(name).save_pretrained(tmp_path / name)
        model = models.transformers().AutoModel.from_pretrained(tmp_path / name, dtype=getattr(torch, dtype))
        with cases(name, dtype):
            assert next(model.parameters()).dtype == getattr(torch, dtype)
            assert said(ch.audit(model)) == []


def test_a_loaded_config_is_compared_with_its_file(cases, draw, tmp_path):
    """Llama's file has a scaling that an argument drops; the families are loaded as they were saved."""
    library = models.transformers()
    for name in {*draw(models.FAMILIES, 12), "llama"}:
        models.model_of(name).save_pretrained(tmp_path / name)
        with cases(name):
            found = ch.audit(library.AutoModel.from_pretrained(tmp_path / name))
            assert "config-changed" not in [each.code for each in found.findings]
    kept = json.loads((tmp_path / "llama" / "config.json").read_text())
    block = {"rope_theta": 500000.0, "rope_type": "linear", "factor": 4.0}
    (tmp_path / "llama" / "config.json").write_text(json.dumps(kept | {"rope_parameters": block}))

    def told_of(**changes):
        audited = ch.audit(library.AutoModel.from_pretrained(tmp_path / "llama", **changes))
        return [each.message for each in audited.findings if each.code == "config-changed"]

    assert told_of() == []
    (lost,) = told_of(rope_parameters={"rope_theta": 500000.0, "rope_type": "default"})
    assert "base 500,000, linear by 4 in the file; base 500,000, no scaling in the loaded config" in lost
    (shorter,) = told_of(max_position_embeddings=kept["max_position_embeddings"] // 2)
    assert "context length" in shorter


def test_rates_that_nobody_filled_are_named_with_their_layers(cases, draw):
    for name in {*draw(models.TURNING, 8), "esm"}:
        family = models.FAMILIES[name]
        expected = [("buffer-uninitialised", layers) for layers in family.ladders.values()]
        if family.written:  # the checkpoint brings the rates, and not the numbers of positions
            expected = [("buffer-uninitialised", None)]
        with cases(name):
            assert told(ch.audit(models.emptied(name))) == sorted(expected)


# What is done to the rates, and what it is named.
WRONG = (
    (models.recycled, "buffer-uninitialised"),
    (models.zeroed, "buffer-zero"),
    (models.first_wrong, "buffer-uninitialised"),
    (models.cast, "buffer-rounded"),
)


def test_wrong_rates_are_named_with_their_layers(cases, draw):
    for name in models.TURNING:
        for fault, code in draw(WRONG, 2):
            expected = [(code, layers) for layers in models.FAMILIES[name].ladders.values()]
            with cases(name, code):
                assert told(ch.audit(fault(name))) == sorted(expected)


def test_a_repair_that_forgot_the_scaling_is_named_with_its_layers(cases):
    for name in models.TURNING:
        family = models.FAMILIES[name]
        if family.scaled:
            expected = [("buffer-unscaled", family.ladders[buffer]) for buffer in family.scaled]
            audited = ch.audit(models.repaired_without_scaling(name))
            with cases(name):
                assert told(audited) == sorted(expected)
                evidence = firing(audited)[0].evidence
                assert evidence["effective factor"] == 1
                assert evidence.get("declared factor", 8.0) > 1


LATE = [name for name in models.TURNING if not models.FAMILIES[name].scaled and name not in ("esm", "gemma4_text")]


def test_a_scaling_that_came_too_late_is_named_with_its_layers(cases):
    for name in LATE:
        ladders = models.FAMILIES[name].ladders.values()
        late = [found for found in firing(ch.audit(models.configured_late(name))) if found.code == "scaling-inert"]
        with cases(name):
            assert sorted(found.layers for found in late) == sorted(ladders)
            assert [found.evidence["declared factor"] for found in late] == [4] * len(ladders)


# Scalings whose rates depend on the length: what a model holds after a long text is as right as before


def after(model, length):
    """The model after a text of so many tokens, as its rotary part sees it."""
    rotary = models.rotary_of(model)
    rotary(torch.zeros(1, length, 16), torch.arange(length)[None])
    return model


def test_a_long_text_switches_longrope_and_back():
    model = models.model_of("phi3")
    for length, rate in ((500, 1 / 4.5), (10, 1 / 1.875), (64, 1 / 1.875), (65, 1 / 4.5)):
        held = models.rotary_of(after(model, length)).inv_freq[-1]
        assert held == pytest.approx(10_000 ** (-7 / 8) * rate)
        assert told(ch.audit(model)) == []
    models.rotary_of(model).inv_freq.mul_(0.5)
    assert [code for code, _ in told(ch.audit(model))] == ["buffer-differs"]


def test_a_long_text_grows_a_dynamic_scaling():
    dynamic = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}
    model = models.model_of("mistral", max_position_embeddings=64, rope_parameters=dynamic)
    for length in (10, 100, 300, 200, 10):
        assert told(ch.audit(after(model, length))) == [], length
    plain = models.rotary_of(model).inv_freq.clone()
    after(model, 300)
    assert models.rotary_of(model).inv_freq[-1] < 0.3 * plain[-1]
    models.rotary_of(model).inv_freq.copy_(plain)
    assert [code for code, _ in told(ch.audit(model))] == ["buffer-unscaled"]


def test_a_factor_that_is_not_the_declared_one_is_told():
    model = models.model_of("gpt_oss")
    assert models.rotary_of(model).attention_scaling == pytest.approx(1.3465735902799727)
    models.rotary_of(model).attention_scaling = 1.0
    audited = ch.audit(model)
    assert told(audited)[0] == ("attention-factor-differs", "0-2")
    assert firing(audited)[0].evidence["declared"] == pytest.approx(1.3465735902799727)


def test_a_factor_that_the_module_holds_and_does_not_use_is_no_fault():
    """The module of PhiMoE multiplies by a field of its config, whatever else it holds."""
    model = models.model_of("gpt_oss")
    part = models.rotary_of(model)
    right, own = part.attention_scaling, type(part)

    class Fixed(own):
        used = right

        def forward(self, x, position_ids):
            held, self.attention_scaling = self.attention_scaling, self.used
            answer = own.forward(self, x, position_ids)
            self.attention_scaling = held
            return answer

    part.__class__, part.attention_scaling = Fixed, 1.0
    assert told(ch.audit(model)) == []
    Fixed.used = 1.2
    (found,) = [each for each in firing(ch.audit(model)) if each.code == "attention-factor-differs"]
    assert "multiplies cosine and sine by 1.2 (" in found.message
    assert "rotary_emb.forward)" in found.message


# What a person and a program see


def test_a_wrapped_forward_is_asked_for_each_kind_of_layer():
    """It takes the kind among other keyword arguments, which its signature does not name."""
    model = models.model_of("gemma3_text")
    own = type(model.rotary_emb)

    class Late(own):
        def forward(self, x, position_ids, **more):
            return own.forward(self, x, position_ids + 1, **more)

    model.rotary_emb.__class__ = Late
    found = firing(ch.audit(model))
    assert {(each.code, each.layers) for each in found} == {("rotation-differs", "0-1"), ("rotation-differs", "2")}
    assert all("takes each position for the one after it" in each.message for each in found)


def test_the_report_is_printed_as_that_of_a_file_and_its_json_is_of_the_schema(capsys, audit_schema):
    audited = ch.audit(models.cast("gemma3_text"))
    assert repr(audited) == f"<Audit of Gemma3TextModel (loaded): {audited.verdict}>"
    print_audit(audited, width=100, verbose=True)
    said = capsys.readouterr().out
    assert "warning buffer-rounded, layers 0-1" in said
    assert "warning buffer-rounded, layer 2" in said
    assert "The loaded module is wrong." in said
    assert "model:rotary_emb.full_attention_inv_freq" in said
    assert "config:rope_parameters" in said
    targets = [each.to_dict() for each in (audited, *(ch.audit(models.model_of(name)) for name in ("t5", "whisper")))]
    assert list(audit_schema.iter_errors({"schema": 1, "targets": targets})) == []


@pytest.mark.slow
def test_the_real_smollm2_is_sound():
    pytest.importorskip("accelerate")
    file = smollm2_file()
    model = models.transformers().AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
    audited = ch.audit(model)
    assert told(audited) == []
    (code,) = audited.layers
    assert (audited.target, audited.model_type, audited.context) == ("LlamaForCausalLM (loaded)", "llama", 8192)
    assert (code.layers, code.base, code.layout) == ("0-29", 100_000, "halves")
    assert told(ch.audit(model.to(torch.bfloat16))) == [("buffer-rounded", "0-29")]


def test_a_loaded_model_has_the_note_on_its_softmax_scale(cases):
    """The audit of its config has it; a model without the key has none."""
    for factor, expected in ((8.0, True), (1.0, False)):
        block = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": 64, "mscale": 1.0,
                 "mscale_all_dim": 1.0, "rope_theta": 1e4}  # fmt: skip
        model = torch.nn.Module()
        model.register_buffer("held", torch.ones(2))
        model.config = {
            "model_type": "deepseek_v3", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
            "max_position_embeddings": 512, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
            "kv_lora_rank": 16, "q_lora_rank": 16, "rope_parameters": block,
        }  # fmt: skip
        with cases(factor):
            for target in (model, model.config):
                found = [each for each in ch.audit(target).findings if each.code == "softmax-scale"]
                assert bool(found) == expected
                assert all(" = 1.459." in each.message for each in found)
