"""Types whose code is published beside their weights, and configs that name a type by their classes alone.

`stated/types_with_own_code.json` states what most of them are resolved to.
"""

import pytest

from clockhands.auditing import audit
from clockhands.auditing._audits import judged
from clockhands.auditing.layer_words import layout_in_words
from clockhands.encodings.ladders import Geometric, Joined
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Ntk
from clockhands.testing import check_rotary
from configs.expected import opened, resolved


def test_the_first_chatglm_has_two_counters():
    first = {"model_type": "chatglm", "num_layers": 28, "max_sequence_length": 2048, "position_encoding_2d": True}
    (code,) = resolved({**first, "hidden_size": 4096, "num_attention_heads": 32}).codes
    ladder = Joined(((32, Geometric(10000.0)), (32, Geometric(10000.0))))
    assert isinstance(code.spec, Rotary)
    assert code.spec.spacing == ladder
    assert code.spec.axes == (0,) * 32 + (1,) * 32
    assert (code.rotated, code.usable_length) == (128, 2048)
    assert code.rates is not None
    assert code.rates[1] == code.rates[33] == pytest.approx(10000 ** (-1 / 32))


@pytest.mark.parametrize(
    ("config", "name", "said"),
    [
        (
            {"architectures": ["MistralForCausalLM"]},
            "mistral",
            "The file names no model type, but the classes of mistral. The audit reads the model as mistral.",
        ),
        ({"architectures": ["XLMRobertaModel"]}, "xlm-roberta", "but the classes of xlm-roberta."),
    ],
)
def test_classes_name_a_type_where_none_is_known(config, name, said):
    found = resolved(config)
    assert found.codes == resolved({"model_type": name}).codes
    (fact,) = [fact for fact in found.facts if fact.code == "unknown-model-type"]
    assert fact.evidence["read as"] == name
    (finding,) = [each for each in judged(opened(config), found).findings if each.code == "unknown-model-type"]
    assert said in finding.message


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"model_type": "mine", "architectures": ["GPTNeoXForCausalLM"]},
            'the model type "mine" is not known',
        ),
        (
            {"model_type": "t5", "architectures": ["AnotherModel"], "rope_theta": 10000.0},
            'the class AnotherModel is not one of the model type "t5"',
        ),
        (
            {"model_type": "mixtral", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1},
            'the class LlamaForCausalLM is not one of the model type "mixtral"',
        ),
        (
            {"model_type": "llama", "architectures": ["LlamaForCausalLMEagle2"], "num_hidden_layers": 1},
            'the class LlamaForCausalLMEagle2 is not one of the model type "llama"',
        ),
        (
            {"model_type": "opt", "num_layers": 24, "n_head": 16, "hidden_dim": 1024, "max_seq_len": 2048},
            'the keys are not those of the model type "opt"',
        ),
    ],
)
def test_a_type_that_says_nothing_of_the_code_is_not_known(config, said):
    found = judged(opened(config), resolved(config))
    (told,) = [each for each in found.findings if each.code == "unknown-model-type"]
    assert told.severity == "note"
    assert said in found.doubts
    assert "correct" not in found.verdict
    assert not found.problems


def test_the_width_that_heads_leave_over():
    """22 of 42 channels turn, by a ladder spread over 21, as the class of the library makes it."""
    (code,) = resolved({"model_type": "glm4_moe"}).codes
    assert (code.width, code.rotated) == (42, 22)
    assert code.rates == pytest.approx([10000 ** (-2 * pair / 21) for pair in range(11)], rel=1e-12)


def test_gemma_4_pairs_half_a_head_apart_as_its_class_does(tmp_path):
    """A quarter of the pairs of a global layer rotates, and each is still made of dimensions i and i + 256."""
    pytest.importorskip("torch")
    gemma4 = pytest.importorskip("transformers.models.gemma4.modeling_gemma4")
    config = gemma4.Gemma4TextConfig(num_hidden_layers=6)
    config.save_pretrained(tmp_path)
    module = gemma4.Gemma4TextRotaryEmbedding(config)
    codes = {code.base: code for code in audit(tmp_path).layers}
    for kind, base, words in (
        ("full_attention", 1e6, "half-split: pairs (i, i+256)"),
        ("sliding_attention", 1e4, "half-split: pairs (i, i+128)"),
    ):

        def turned(x, positions, kind=kind):
            return gemma4.apply_rotary_pos_emb(x, *module(x, positions, kind))

        assert layout_in_words(codes[base]) == words
        check_rotary(turned, codes[base].spec, axes="batch heads seq width", positions="batch seq", length=600)


@pytest.mark.parametrize("block", ["rope_parameters", "rope_scaling"])
def test_xdrope_with_alpha_is_what_the_class_of_hunyuan_vl_takes_it_for(block):
    """A base that alpha stretches, by whatever name; ``xdrope_section`` changes no frequency."""
    hunyuan = pytest.importorskip("transformers.models.hunyuan_vl.modeling_hunyuan_vl")
    written = {"hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 2, "head_dim": 128}
    rope = {"alpha": 1000.0, "factor": 1.0, "rope_type": "xdrope", "xdrope_section": [16, 16, 16, 16]}
    if block == "rope_parameters":
        rope["rope_theta"] = 10000.0
    written |= {block: rope, "rope_theta": 10000.0, "max_position_embeddings": 32768}
    found = resolved({"model_type": "hunyuan_vl_text", **written})
    assert found.codes[0].spec == Rotary(128, "halves", 10000.0, scaling=Ntk(1000.0))
    assert not {fact.code for fact in found.facts} & {"unknown-scaling", "unknown-key"}
    rates = hunyuan.HunYuanVLRotaryEmbedding(hunyuan.HunYuanVLTextConfig(**written)).inv_freq
    assert rates.tolist() == pytest.approx(found.codes[0].rates, rel=1e-5)


@pytest.mark.parametrize("name", ["LlamaForCausalLMEagle", "EagleLlamaForCausalLM", "Eagle3LlamaForCausalLM"])
def test_drafts_of_vllm_and_sglang_have_the_attention_of_llama(name):
    config = {"model_type": "llama", "architectures": [name], "hidden_size": 64, "num_attention_heads": 4}
    (code,) = audit(config).layers
    assert (code.kind, code.layout, code.assumed) == ("rotary", "halves", ())
