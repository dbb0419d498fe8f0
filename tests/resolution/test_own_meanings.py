"""Keys and absent keys that some types take in a way of their own, held against the library."""

import pytest

from clockhands.scaling import Dynamic, Ntk
from resolution.expected import resolved
from resolution.library import gaps, read_config

# What tencent's files of this type hold, as a public test has it (Hy-MT2-1.8B); the numbers beside alpha do nothing.
ALPHA = {
    "type": "dynamic", "alpha": 1000.0, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32,
    "beta_slow": 1,
}  # fmt: skip
SHAPE = {
    "hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 32, "max_position_embeddings": 32768,
    "rope_theta": 10000.0,
}  # fmt: skip
HUNYUAN = {"model_type": "hunyuan_v1_dense", **SHAPE, "head_dim": 128, "rope_scaling": ALPHA}


@pytest.mark.parametrize("name", ["hunyuan_v1_dense", "hunyuan_v1_moe"])
@pytest.mark.parametrize("length", [None, 1024, 100_000])
def test_an_alpha_stretches_once_whatever_the_length(name, length):
    config = {**HUNYUAN, "model_type": name}
    found = resolved(config, length)
    (code,) = found.codes
    assert code.rates == pytest.approx([(10000.0 * 1000.0 ** (128 / 126)) ** (-pair / 64) for pair in range(64)])
    assert code.spec.scaling == Ntk(1000.0)
    assert code.scaling == {"type": "ntk_alpha", "factor": 1000.0, "original": None}
    assert not [fact.code for fact in found.facts]


@pytest.mark.parametrize("length", [None, 100_000])
def test_the_library_stretches_as_much(length):
    pytest.importorskip("torch")
    pytest.importorskip("transformers").logging.set_verbosity_error()
    assert list(gaps(read_config(HUNYUAN), resolved(HUNYUAN, length), length)) == []


def test_an_alpha_is_nothing_to_other_types_and_nothing_without_the_name():
    found = resolved({**HUNYUAN, "model_type": "llama"})
    assert isinstance(found.codes[0].spec.scaling, Dynamic)
    assert "unknown-key" in [fact.code for fact in found.facts]
    named = resolved({**HUNYUAN, "rope_scaling": {**ALPHA, "type": "ntk_alpha"}})
    assert "unknown-scaling" in [fact.code for fact in named.facts]
    without = {key: value for key, value in ALPHA.items() if key != "alpha"}
    assert isinstance(resolved({**HUNYUAN, "rope_scaling": without}).codes[0].spec.scaling, Dynamic)


@pytest.mark.parametrize("alpha", [0.5, -1, "wide"])
def test_an_alpha_that_cannot_be_used(alpha):
    found = resolved({**HUNYUAN, "rope_scaling": {**ALPHA, "alpha": alpha}})
    assert found.codes[0].rates is None
    assert {"impossible-value", "unreadable-field"} & {fact.code for fact in found.facts}


@pytest.mark.parametrize("name", ["csm", "hyperclovax", "jais2", "nomic_bert"])
def test_a_width_that_follows_from_the_heads(name):
    """What these classes have without a file is a quotient of their own width, no default that stands."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers").logging.set_verbosity_error()
    config = {"model_type": name, "hidden_size": 1024, "num_attention_heads": 4, "num_key_value_heads": 4}
    assert resolved(config).codes[0].width == 256
    assert list(gaps(read_config(config), resolved(config))) == []


def test_a_list_of_the_class_is_for_its_own_number_of_layers():
    """Zamba2 with 81 layers and no list: no exception, and what is missing is named."""
    found = resolved({"model_type": "zamba2", "num_hidden_layers": 81, "use_mem_rope": True})
    assert [dict(fact.evidence)["missing"] for fact in found.facts if fact.code == "missing-value"] == [
        "layers_block_type"
    ]
    assert [code.layers for code in found.codes] == ["0-80"]


@pytest.mark.parametrize(
    ("written", "rotated", "conflicts"),
    [
        ({"rotary_dim": 64}, 64, 0),
        ({"rotary_dim": 64, "partial_rotary_factor": 0.5}, 64, 0),
        ({"rotary_dim": 64, "partial_rotary_factor": 1.0}, 128, 1),
        ({"rotary_dim": 64, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}}, 32, 1),
        ({}, 128, 0),
    ],
)
def test_minimax_m2_was_published_with_a_number_of_channels(written, rotated, conflicts):
    """MiniMaxM2Config makes a share of it, unless one is written."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers").logging.set_verbosity_error()
    config = {"model_type": "minimax_m2", "num_hidden_layers": 2, "rope_theta": 5e6, **written}
    found = resolved(config)
    assert [code.rotated for code in found.codes] == [rotated]
    assert list(gaps(read_config(config), found)) == []
    assert [fact.code for fact in found.facts].count("conflicting-keys") == conflicts
    assert "ignored-key" not in [fact.code for fact in found.facts]


LLAMA_4 = {"model_type": "llama4_text", "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0], "rope_theta": 5e5}


@pytest.mark.parametrize(
    ("more", "chunked", "chunk"),
    [
        ({}, "0-2", 8192),  # the default of the class
        ({"attention_chunk_size": 4096}, "0-2", 4096),
        ({"attention_chunk_size": None}, None, None),
        ({"attention_chunk_size": 64, "layer_types": ["chunked_attention", *["full_attention"] * 3]}, "0", 64),
    ],
)
def test_layers_of_llama_4_attend_inside_of_chunks(more, chunked, chunk):
    codes = resolved(LLAMA_4 | more).codes
    assert [(code.layers, code.chunk) for code in codes if code.chunk] == (
        [] if chunked is None else [(chunked, chunk)]
    )
    assert all(code.window is None for code in codes)
    assert [code.layers for code in codes if code.kind == "none"] == ["3"]
    if chunked is not None:
        assert codes[0].seen == f"chunks of {chunk:,} positions"


def test_one_side_of_a_model_has_the_tables_of_that_side_alone():
    """Donut: the decoder is mBART's, whose type has an encoder too."""
    decoder = {"model_type": "mbart", "d_model": 64, "decoder_layers": 2, "max_position_embeddings": 30}
    config = {"model_type": "vision-encoder-decoder", "encoder": {"model_type": "donut-swin"}, "decoder": decoder}
    assert [(code.part, code.kind, code.rows) for code in resolved(config).codes] == [
        ("vision", "relative", None),
        ("decoder", "learned", 32),
    ]


def test_an_empty_type_in_a_part_is_that_of_the_model_around_it():
    """SAM: its published configs have ``"model_type": ""`` in each part."""
    tower = {"model_type": "", "hidden_size": 1280, "num_hidden_layers": 32}
    found = resolved({"model_type": "sam", "vision_config": tower})
    assert [(code.kind, code.width) for code in found.codes if code.part == "vision"][-2:] == [
        ("relative", 1280),
        ("learned", 1280),
    ]
    assert "unknown-model-type" not in {fact.code for fact in found.facts}


def test_a_list_of_one_kind_in_a_class_is_for_any_number_of_layers():
    (code,) = resolved({"model_type": "qwen2_5_omni_text", "num_hidden_layers": 36}).codes
    assert code.layers == "0-35"
