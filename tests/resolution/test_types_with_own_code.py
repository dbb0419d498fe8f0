"""Types whose code is published beside their weights, and configs that name a type by their classes alone."""

import math
from dataclasses import replace

import pytest

from clockhands.additive import Learned
from clockhands.auditing import audit
from clockhands.auditing._audits import judged
from clockhands.biases import Alibi
from clockhands.ladders import Geometric, Joined
from clockhands.rotary import Rotary, rotate
from clockhands.scaling import MixedNtk, Ntk, Yarn
from clockhands.show.terminal import layout_in_words
from clockhands.testing import check_rotary
from resolution.expected import layer_numbers, opened, resolved

QWEN = {
    "model_type": "qwen",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "kv_channels": 128,
    "rotary_emb_base": 10000,
    "rotary_pct": 1.0,
    "seq_length": 8192,
    "max_position_embeddings": 32768,
    "use_dynamic_ntk": True,
    "use_logn_attn": True,
}
CHATGLM = {
    "model_type": "chatglm",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_layers": 28,
    "seq_length": 8192,
}


@pytest.mark.parametrize(
    ("length", "factor"), [(None, 1), (8192, 1), (8193, 3), (16384, 3), (16385, 7), (32768, 7), (32769, 15)]
)
def test_qwen_doubles_with_the_length(length, factor):
    """Its code: base times ``alpha ** (d / (d - 2))``, alpha = 2 ** ceil(log2(L / L0) + 1) - 1, not below 1."""
    (code,) = resolved(QWEN, length).codes
    base = 10000.0 * factor ** (128 / 126)
    expected = [base ** (-pair / 64) for pair in range(64)]
    assert code.rates == pytest.approx(expected, rel=1e-12)
    assert code.spec == Rotary(128, "halves", 10000.0, scaling=None if factor == 1 else Ntk(float(factor)))
    assert code.scaling == {"type": "dynamic", "factor": None, "original": 8192}
    assert code.source["scaling"] == "config.json:use_dynamic_ntk, config.json:seq_length"


def test_qwen_without_its_switch_stays_as_it_is():
    (code,) = resolved({**QWEN, "use_dynamic_ntk": False}, 100_000).codes
    assert code.spec == Rotary(128, "halves", 10000.0)
    assert code.scaling is None


def test_telechat_is_not_known_beyond_its_training():
    config = {"model_type": "telechat", "hidden_size": 4096, "n_head": 32, "n_layer": 30, "seq_length": 8192}
    config["training_seqlen"] = 8192
    assert resolved(config, 8192).codes[0].spec == Rotary(128, "halves", 10000.0)
    found = resolved(config, 8193)
    assert found.codes[0].rates is None
    assert [fact.code for fact in found.facts] == ["missing-value"]


@pytest.mark.parametrize(("ratio", "base"), [(None, 10_000.0), (1, 10_000.0), (50, 500_000.0), (500, 5_000_000.0)])
def test_chatglm_multiplies_its_base(ratio, base):
    (code,) = resolved({**CHATGLM, "kv_channels": 128, "rope_ratio": ratio}).codes
    assert code.spec == Rotary(128, "interleaved", base, rotated=64)
    assert ("config.json:rope_ratio" in code.source["base"]) == (base != 10_000.0)


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


def test_the_heads_tell_the_two_baichuans_apart():
    seven = {"model_type": "baichuan", "num_attention_heads": 32, "hidden_size": 4096, "max_position_embeddings": 4096}
    thirteen = {"model_type": "baichuan", "num_attention_heads": 40, "hidden_size": 5120, "model_max_length": 4096}
    assert resolved(seven).codes[0].spec == Rotary(128, "halves", 10000.0)
    assert [code.kind for code in resolved(thirteen).codes] == ["alibi"]
    assert resolved(thirteen).context == 4096
    assert [code.kind for code in resolved({**seven, "num_attention_heads": 16}).codes] == [None]


def test_layers_without_attention_by_the_object_that_describes_each():
    blocks = [
        {"attention": {"no_op": False}},
        {"attention": {"no_op": True}},
        {"attention": {"replace_with_linear": True}},
    ]
    config = {"model_type": "nemotron-nas", "num_hidden_layers": 3, "block_configs": blocks}
    found = resolved({**config, "hidden_size": 512, "num_attention_heads": 4, "rope_theta": 5e5})
    kinds = {code.kind: code.layers for code in found.codes}
    assert kinds == {"rotary": "0", "none": "1-2"}


def test_kinds_of_deepseek_v4_layers_by_how_much_they_compress():
    config = {
        "model_type": "deepseek_v4",
        "num_hidden_layers": 4,
        "compress_ratios": [0, 4, 128, 4, 4],
        "rope_theta": 10000,
        "compress_rope_theta": 160000,
        "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536},
    }
    sliding, full, indexer = resolved(config).codes
    assert (sliding.layers, sliding.window, full.layers, full.window) == ("0", 128, "1-3", None)
    assert sliding.spec == Rotary(512, "interleaved", 10000.0, rotated=64, part="last")
    # The code of the type takes no magnitude for the scaling of these layers.
    yarn = Yarn(16.0, 65536, attention_factor=1.0)
    assert full.spec == Rotary(512, "interleaved", 160000.0, rotated=64, part="last", scaling=yarn)
    assert full.source["attention_factor"].startswith("class default of deepseek_v4")
    assert (indexer.layers, indexer.spec) == ("1,3", replace(full.spec, head_width=128))


@pytest.mark.parametrize(
    ("config", "name", "said"),
    [
        (
            {"architectures": ["MistralForCausalLM"]},
            "mistral",
            "The file names no model type, but the file names the classes of mistral.",
        ),
        (
            {"architectures": ["GPTNeoXForCausalLM"], "model_type": "mine"},
            "gpt_neox",
            'clockhands does not know the model type "mine", but the file names the classes of gpt_neox.',
        ),
        ({"architectures": ["XLMRobertaModel"]}, "xlm-roberta", "names the classes of xlm-roberta."),
    ],
)
def test_classes_name_a_type_where_none_is_known(config, name, said):
    found = resolved(config)
    assert found.codes == resolved({"model_type": name}).codes
    (fact,) = [fact for fact in found.facts if fact.code == "unknown-model-type"]
    assert fact.evidence["read as"] == name
    (finding,) = [each for each in judged(opened(config), found).findings if each.code == "unknown-model-type"]
    assert said in finding.message


@pytest.mark.parametrize("classes", [None, [], "LlamaForCausalLM", [3], ["NoSuchModel"], ["ForCausalLM"]])
def test_classes_that_say_nothing(classes):
    found = resolved({"architectures": classes, "model_type": "mine", "rope_theta": 1e4})
    assert "read as" not in found.facts[0].evidence
    assert found.codes[0].layout is None


def test_patches_of_an_image_are_rows():
    vision = {"model_type": "vit", "image_size": 384, "patch_size": 14, "hidden_size": 768}
    found = resolved(vision)
    (code,) = found.codes
    rows = math.floor(384 / 14) ** 2 + 1
    assert (code.part, code.kind, code.rows, code.offset, code.usable_length) == ("vision", "learned", rows, 0, rows)
    assert found.context == rows
    assert resolved({**vision, "patch_size": 500}).codes[0].rows is None


def test_layers_that_see_all_turn_nothing_where_the_type_says_so():
    for name in ("cohere2", "afmoe", "exaone4"):
        codes = resolved({"model_type": name, "num_hidden_layers": 8}).codes
        assert {(code.kind, code.layers) for code in codes} == {("rotary", "0-2,4-6"), ("none", "3,7")}
    whole = resolved({"model_type": "exaone4", "num_hidden_layers": 8, "sliding_window": None}).codes
    assert [(code.kind, code.layers) for code in whole] == [("rotary", "0-7")]


def test_a_base_for_each_layer():
    config = {"model_type": "granite_swa", "num_hidden_layers": 4, "layer_rope_theta": [1e4, 1e4, 5e5, 0]}
    codes = resolved(config).codes
    told = {code.layers: (code.kind, code.base) for code in codes}
    assert told == {"0": ("rotary", 1e4), "1": ("rotary", 1e4), "2": ("rotary", 5e5), "3": ("none", None)}
    assert sorted(layer for code in codes for layer in layer_numbers(code)) == [0, 1, 2, 3]
    for wrong in ([1e4], [1e4, 1e4, -1, 0], ["x", 1, 1, 1]):
        facts = resolved({**config, "layer_rope_theta": wrong}).facts
        assert "impossible-value" in [fact.code for fact in facts]


def test_the_width_that_heads_leave_over():
    """22 of 42 channels turn, by a ladder spread over 21, as the class of the library makes it."""
    (code,) = resolved({"model_type": "glm4_moe"}).codes
    assert (code.width, code.rotated) == (42, 22)
    assert code.rates == pytest.approx([10000 ** (-2 * pair / 21) for pair in range(11)], rel=1e-12)
    assert [fact.code for fact in resolved({"model_type": "llama", "num_attention_heads": 96}).facts][:1] == [
        "impossible-value"
    ]


def test_blocks_that_repeat_a_cycle():
    """Every third layer of RecurrentGemma attends, within a window; the others keep a state."""
    codes = resolved({"model_type": "recurrent_gemma", "num_hidden_layers": 8}).codes
    assert {(code.kind, code.layers, code.window) for code in codes} == {
        ("rotary", "2,5", 2048),
        ("none", "0-1,3-4,6-7", None),
    }
    swapped = resolved(
        {"model_type": "recurrent_gemma", "num_hidden_layers": 4, "block_types": ["attention", "recurrent"]}
    )
    assert {(code.kind, code.layers) for code in swapped.codes} == {("rotary", "0,2"), ("none", "1,3")}


# Position fields of jinaai/jina-embeddings-v2-base-en, jinaai/jina-embeddings-v3 and nomic-ai/nomic-embed-text-v1.5.
JINA_2 = {
    "model_type": "bert",
    "auto_map": {"AutoConfig": "jinaai/jina-bert-implementation--configuration_bert.JinaBertConfig"},
    "hidden_size": 768,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "max_position_embeddings": 8192,
    "position_embedding_type": "alibi",
}
JINA_3 = {
    "model_type": "xlm-roberta",
    "auto_map": {"AutoModel": "jinaai/xlm-roberta-flash-implementation--modeling_lora.XLMRobertaLoRA"}
    | {"AutoConfig": "jinaai/xlm-roberta-flash-implementation--configuration_xlm_roberta.XLMRobertaFlashConfig"},
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "max_position_embeddings": 8194,
    "position_embedding_type": "rotary",
    "rotary_emb_base": 20000.0,
}
NOMIC = {
    "model_type": "nomic_bert",
    "auto_map": {"AutoConfig": "nomic-ai/nomic-bert-2048--configuration_hf_nomic_bert.NomicBertConfig"},
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 8192,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
}

# Position fields of Alibaba-NLP/gte-large-en-v1.5.
GTE = {
    "model_type": "new",
    "auto_map": {"AutoConfig": "configuration.NewConfig", "AutoModel": "modeling.NewModel"},
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "max_position_embeddings": 8192,
    "position_embedding_type": "rope",
    "rope_theta": 160000,
    "rope_scaling": {"factor": 2.0, "type": "ntk"},
}


@pytest.mark.parametrize(
    ("config", "spec"),
    [
        (GTE, Rotary(64, "halves", 160000.0, scaling=MixedNtk(2.0))),
        (GTE | {"rope_scaling": {"factor": 8.0, "type": "ntk", "mixed_b": 0.625}},
         Rotary(64, "halves", 160000.0, scaling=MixedNtk(8.0, 0.625))),
        (GTE | {"rope_scaling": None}, Rotary(64, "halves", 160000.0)),
        (JINA_2, Alibi(12, form="symmetric")),
        (JINA_2 | {"position_embedding_type": "absolute"}, Learned(768, 8192)),
        (JINA_3, Rotary(64, "halves", 20000.0)),
        (JINA_3 | {"position_embedding_type": "absolute"}, Learned(1024, 8194, 2, 1)),
        (NOMIC, Rotary(64, "halves", 1000.0)),
        (NOMIC | {"rotary_emb_interleaved": True}, Rotary(64, "interleaved", 1000.0)),
    ],
)  # fmt: skip
def test_the_code_that_a_config_names_decides(config, spec):
    found = resolved(config)
    assert [code.spec for code in found.codes] == [spec]
    assert not {fact.code for fact in found.facts} & {"own-code", "unknown-model-type", "ignored-key"}


def test_fixed_ntk_is_known_to_no_other_type():
    config = {"model_type": "llama", "rope_scaling": {"rope_type": "ntk", "factor": 2.0}}
    assert "unknown-scaling" in {fact.code for fact in resolved(config).facts}


def test_code_that_is_not_known_is_said_to_decide():
    config = {"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 32}
    found = resolved(config | {"auto_map": {"AutoModel": "modeling_mine.MineModel"}})
    assert found.codes == resolved(config).codes
    (fact,) = [fact for fact in found.facts if fact.code == "own-code"]
    assert fact.evidence == {"config.json:auto_map": "MineModel", "read as": "bert"}


@pytest.mark.parametrize(
    "named", [None, [], "x.JinaBertConfig", {}, {"AutoConfig": 3}, {"AutoTokenizer": ["a.B", None]}]
)
def test_an_auto_map_that_names_no_class(named):
    config = {"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 32}
    assert resolved(config | {"auto_map": named}) == resolved(config)


def test_a_copy_of_the_class_of_the_library_is_that_type():
    config = {"hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 32}
    copied = resolved(config | {"model_type": "mine", "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}})
    assert [code.spec for code in copied.codes] == [Rotary(32, "halves", 10000.0)]
    assert not {fact.code for fact in copied.facts} & {"own-code", "unknown-model-type"}


def test_a_decoder_around_the_object_of_an_encoder_is_read_too():
    """Cohere ASR: the config of the decoder has that of the encoder, of another type, in it."""
    encoder = {"model_type": "parakeet_encoder", "hidden_size": 1280, "num_hidden_layers": 48}
    config = {"model_type": "cohere_asr", "hidden_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 512}
    codes = resolved(config | {"encoder_config": encoder}).codes
    assert [(code.kind, code.layers, code.rows) for code in codes] == [
        ("relative", "0-47", None),
        ("learned", "input", 512),
    ]
    # A type that only frames an encoder has nothing beside it.
    framed = resolved({"model_type": "parakeet_ctc", "encoder_config": encoder}).codes
    assert [code.layers for code in framed] == ["0-47"]


def test_sizes_under_other_usual_names_come_before_the_defaults_of_a_class():
    config = {"model_type": "llama", "dim": 2048, "n_layers": 16, "n_heads": 16, "max_position_embeddings": 4096}
    (code,) = resolved(config | {"rope_theta": 1e4}).codes
    assert (code.layers, code.width) == ("0-15", 128)
    assert code.source["width"] == "config.json:dim / config.json:n_heads"
    own = resolved(config | {"rope_theta": 1e4, "num_hidden_layers": 2}).codes
    assert [code.layers for code in own] == ["0-1"]


@pytest.mark.parametrize(
    ("listed", "layers"),
    [
        ({"hybrid_override_pattern": "M-M*-M"}, "0-5"),
        ({"layers_block_type": ["mamba", "attention", "moe"]}, "0-2"),
        ({"layers_block_type": ["mamba", "attention", "moe"], "num_hidden_layers": 2}, "0-1"),
        ({"layers_block_type": []}, "0-51"),
    ],
)
def test_layers_are_counted_where_only_their_kinds_are_listed(listed, layers):
    (code,) = resolved({"model_type": "nemotron_h", "hidden_size": 64} | listed).codes
    assert code.layers == layers
    assert code.source["layers"].startswith("length of config.json:") == (layers in {"0-5", "0-2"})


def test_phi_3_small_has_its_base_under_a_key_of_its_own():
    shape = {"model_type": "phi3small", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
    found = resolved({**shape, "max_position_embeddings": 8192, "rope_embedding_base": 500_000})
    (code,) = found.codes
    assert code.spec == Rotary(128, "halves", 500_000.0)
    assert (found.context, [fact.code for fact in found.facts]) == (8192, [])


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
    # The misreading that the words invited: pairs (i, i + 64) of the 128 dimensions that rotate.
    spec = codes[1e6].spec
    near = Rotary(512, spacing=Geometric(1e6, span=256.0), rotated=128)
    report = check_rotary(lambda x, at: rotate(x, near, at), spec, length=600, raises=False)
    assert report.codes == {"other-partners"}
    assert "pairs dimension i with dimension i + 64 instead of i + 256" in report.explanations[0].message


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


# Position fields of published configs, each with its source, and what the model's own code computes of them.
INTERNLM = {  # internlm/internlm-20b: config.json; modeling_internlm.py has rotate_half and the base of `rotary`
    "model_type": "internlm", "hidden_size": 5120, "num_attention_heads": 40, "num_hidden_layers": 60,
    "max_position_embeddings": 4096, "rotary": {"base": 10000, "type": "dynamic"},
}  # fmt: skip
LLADA = {  # GSAI-ML/LLaDA-8B-Instruct: config.json; modeling_llada.py (ML-GSAI/LLaDA, zhziszz/dllm) rotates halves
    "model_type": "llada", "d_model": 4096, "n_heads": 32, "n_kv_heads": 32, "n_layers": 32, "rope": True,
    "rope_theta": 500000.0, "max_sequence_length": 4096, "rope_full_precision": True, "alibi": False,
}  # fmt: skip
FALCON = {  # tiiuae/falcon-7b-instruct at its first release: modelling_RW.py has base 10,000 and rotate_half
    "model_type": "RefinedWebModel", "alibi": False, "hidden_size": 4544, "n_head": 71, "n_layer": 32,
    "auto_map": {"AutoConfig": "configuration_RW.RWConfig"},
}  # fmt: skip
DREAM = {  # Dream-org/Dream-v0-Instruct-7B: config.json; its layers are those of Qwen 2.5
    "model_type": "Dream", "hidden_size": 3584, "num_attention_heads": 28, "num_hidden_layers": 28,
    "rope_theta": 1000000.0, "max_position_embeddings": 131072,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "width", "base", "layers", "context"),
    [
        (INTERNLM, 128, 10000.0, "0-59", 4096),
        (LLADA, 128, 500000.0, "0-31", 4096),
        (FALCON, 64, 10000.0, "0-31", 2048),
        (DREAM, 128, 1000000.0, "0-27", 131072),
    ],
    ids=["internlm", "llada", "falcon", "dream"],
)
def test_code_beside_the_weights_that_rotates_half_split_heads(config, width, base, layers, context):
    found = resolved(config)
    (code,) = found.codes
    assert code.spec.layout == "halves"
    assert code.rates == pytest.approx(Rotary(width, "halves", base).rates, rel=1e-14)
    assert (code.layers, found.context, found.ignored) == (layers, context, {})
    assert {fact.code for fact in found.facts} <= {"default-value", "default-base"}


def test_the_rotary_block_of_internlm_has_names_of_its_own():
    """InternLM's dynamic NTK has a factor of 1 where the block has no ``scaling_factor``: it begins at the context."""
    (code,) = resolved({**INTERNLM, "rotary": {"base": 50000, "type": "origin"}}, 16384).codes
    assert code.spec == Rotary(128, "halves", 50000.0)
    assert code.source["base"] == "config.json:rotary.base"
    longer = resolved(INTERNLM, 16384).codes[0]
    assert longer.rates[1] == pytest.approx((10000.0 * 4 ** (128 / 126)) ** (-1 / 64), rel=1e-12)


def test_llada_without_rope_has_biases_or_a_table():
    (code,) = resolved({**LLADA, "rope": False, "alibi": True}).codes
    assert code.kind == "alibi"
    (code,) = resolved({**LLADA, "rope": False}).codes
    assert (code.kind, code.rows) == ("learned", 4096)


def test_ling_3_rotates_in_the_last_layer_of_each_group():
    """The text part of Ling-3.0-Flash-VL, as vLLM's configs/bailing_moe_v3_vl.py has it."""
    text = {
        "hidden_size": 2560, "num_hidden_layers": 42, "num_attention_heads": 32, "head_dim": 128, "rope_theta": 6000000,
        "layer_group_size": 6, "kv_lora_rank": 512, "partial_rotary_factor": 0.5, "max_position_embeddings": 131072,
    }  # fmt: skip
    vision = {"model_type": "qwen3_moe_vit", "depth": 27, "hidden_size": 1152, "num_heads": 16, "patch_size": 16}
    found = resolved({"model_type": "bailing_moe_v3_vl", "text_config": text, "vision_config": vision})
    still, turning, tower = found.codes
    assert (still.kind, list(layer_numbers(still))) == ("none", [layer for layer in range(42) if layer % 6 != 5])
    assert (turning.width, turning.rotated, turning.layout, turning.base) == (192, 64, "interleaved", 6000000.0)
    assert list(layer_numbers(turning)) == [5, 11, 17, 23, 29, 35, 41]
    assert (tower.part, tower.kind, tower.width, tower.layers) == ("vision", "rotary", 72, "0-26")
    # Ling 2.5 has the same type and another linear attention, which rotates.
    older = resolved({"model_type": "bailing_hybrid", **text, "group_norm_size": 4})
    assert [code.kind for code in older.codes] == [None]


def test_the_tower_of_dots_ocr_rotates_by_rows_and_columns():
    """dots.mocr: config.json; vLLM's dots_ocr.py has the rotation of Qwen2-VL at half of a head, base 10,000."""
    vision = {"embed_dim": 1536, "hidden_size": 1536, "num_hidden_layers": 42, "num_attention_heads": 12}
    config = {"model_type": "dots_ocr", "hidden_size": 1536, "num_attention_heads": 12, "num_hidden_layers": 28}
    config |= {"rope_theta": 1000000, "max_position_embeddings": 131072, "vision_config": vision}
    text, tower = resolved(config).codes
    assert (text.spec, text.layers) == (Rotary(128, "halves", 1000000.0), "0-27")
    assert (tower.part, tower.width, tower.layers, tower.layout) == ("vision", 128, "0-41", "halves")
    assert tower.rates == pytest.approx([10000.0 ** (-pair / 32) for pair in range(32)] * 2, rel=1e-12)


def test_a_tower_of_internvl_has_a_row_for_each_patch_and_one_more():
    """InternVL3-1B: 448 pixels in patches of 14."""
    vision = {"model_type": "intern_vit_6b", "hidden_size": 1024, "image_size": 448, "patch_size": 14}
    text = {"model_type": "qwen2", "hidden_size": 896, "num_attention_heads": 14, "num_hidden_layers": 24}
    found = resolved({"model_type": "internvl_chat", "llm_config": text, "vision_config": vision})
    assert [(code.part, code.kind, code.rows) for code in found.codes] == [
        ("text", "rotary", None),
        ("vision", "learned", 1025),
    ]


def test_sound_goes_into_an_encoder_alone():
    """Ultravox v0.5: config.json; its decoder is another model, which text_model_id names."""
    audio = {"model_type": "whisper", "d_model": 1280, "encoder_layers": 32, "max_source_positions": 1500}
    config = {"model_type": "ultravox", "text_model_id": "meta-llama/Llama-3.2-1B-Instruct", "audio_config": audio}
    found = resolved(config)
    assert [(code.part, code.kind, code.rows) for code in found.codes] == [("audio", "sinusoidal", 1500)]
    assert found.context is None
    assert "text_model_id" in found.notes[0]


def test_mosaic_bert_has_alibi_under_the_name_of_bert():
    """MosaicBERT and DNABERT-2: their code has no table of positions, and says ALiBi by one key alone."""
    config = {
        "model_type": "bert",
        "architectures": ["BertForMaskedLM"],
        "auto_map": {"AutoConfig": "configuration_bert.BertConfig"},
        "hidden_size": 768,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "max_position_embeddings": 512,
        "position_embedding_type": "absolute",
    }
    for published in ({**config, "alibi_starting_size": 512}, {"model_type": "bert", "alibi_starting_size": 1024}):
        found = resolved(published)
        (code,) = found.codes
        assert (code.kind, code.layers, code.rows) == ("alibi", "0-11", None)
        assert code.spec == Alibi(12, "symmetric")
        assert [fact.code for fact in found.facts if fact.code != "default-value"] == []
    assert [code.kind for code in resolved(config).codes] == ["learned"]
