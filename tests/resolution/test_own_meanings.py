"""Keys and absent keys that some types take in a way of their own, held against the library."""

import json

import pytest

from clockhands.auditing import audit
from clockhands.scaling import Dynamic, Ntk
from clockhands.sources.resolved import layer_numbers
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


# A type, what its file says, and its codes: part, layers, kind, then what else of it is stated.
SECOND_ENCODINGS = [
    ("led", {}, [("encoder", "input", "learned", {"rows": 16384}), ("decoder", "input", "learned", {"rows": 1024})]),
    ("layoutlmv3", {}, [("text", "input", "learned", {"rows": 512}), ("text", "0-11", "buckets", {})]),
    ("layoutlmv3", {"has_relative_attention_bias": False}, [("text", "input", "learned", {"rows": 512})]),
    ("trocr", {}, [("text", "input", "learned", {"rows": 514, "offset": 2})]),
    ("trocr", {"use_learned_position_embeddings": False}, [("text", "input", "sinusoidal", {"rows": 514})]),
    ("xlm", {}, [("text", "input", "learned", {"rows": 512})]),
    ("flaubert", {"sinusoidal_embeddings": True}, [("text", "input", "sinusoidal", {"layout": "interleaved"})]),
    ("wav2vec2-conformer", {}, [("audio", "0-11", "relative", {})]),
    (
        "wav2vec2-conformer",
        {"position_embeddings_type": "rotary", "rotary_embedding_base": 500},
        [("audio", "0-11", "rotary", {"base": 500.0, "rotated": 64, "layout": "halves"})],
    ),
    ("wav2vec2-bert", {"position_embeddings_type": "rotary"}, [("audio", "0-23", "rotary", {"base": 10000.0})]),
    (
        "seamless_m4t",
        {"speech_encoder_layers": 3},
        [
            ("encoder", "input", "sinusoidal", {"rows": 1026, "offset": 1}),
            ("decoder", "input", "sinusoidal", {"rows": 1026, "offset": 1}),
            ("audio", "0-2", "relative", {}),
        ],
    ),
    ("qwen2_audio_encoder", {}, [("audio", "input", "sinusoidal", {"rows": 1500, "layout": "halves"})]),
    ("convbert", {"embedding_size": 128}, [("text", "input", "learned", {"width": 128})]),
    ("decision_transformer", {"n_positions": 7, "max_ep_len": 50}, [("text", "input", "learned", {"rows": 50})]),
    (
        "udop",
        {"num_decoder_layers": 24},
        [
            ("encoder", "0-23", "buckets", {}),
            ("decoder", "0-23", "buckets", {}),
            ("encoder", "input", "learned", {"rows": 1024}),
        ],
    ),
    (
        "grounding-dino",
        {"text_config": {"model_type": "bert"}, "backbone_config": {"model_type": "swin"}},
        [
            ("text", "input", "learned", {"rows": 512}),
            ("vision", "0-11", "relative", {}),
            ("vision", "0-5", "sinusoidal", {}),
        ],
    ),
    ("swin", {"depths": [2, 2, 18, 2], "num_layers": 4}, [("vision", "0-23", "relative", {})]),
    (
        "musicgen",
        {"text_encoder": {"model_type": "t5"}, "decoder": {"model_type": "musicgen_decoder"}},
        [("encoder", "0-5", "buckets", {}), ("decoder", "0-23", "sinusoidal", {})],
    ),
    (
        "timesformer",
        {"num_frames": 96},
        [("vision", "input", "learned", {"rows": 197}), ("vision", "input", "learned", {"rows": 96})],
    ),
    ("parakeet_encoder", {"hidden_size": 64}, [("audio", "0-23", "relative", {"base": 10000.0, "width": 64})]),
    (
        "evolla",
        {"protein_encoder_config": {"model_type": "", "position_embedding_type": "rotary"}},
        [("text", "0-31", "rotary", {"base": 500000.0}), ("other", "0-11", "rotary", {"base": 10000.0})],
    ),
    (
        "qwen2_5_omni",
        {
            "thinker_config": {"text_config": {"hidden_size": 3584}},
            "token2wav_config": {
                "model_type": "qwen2_5_omni_token2wav",
                "dit_config": {"model_type": "qwen2_5_omni_dit"},
            },
        },
        [("text", "0-27", "rotary", {"layout": "halves"}), ("audio", "0-21", "rotary", {"layout": "interleaved"})],
    ),
    ("lightglue", {}, [("vision", "0-8", "rotary", {"base": None, "rates": None})]),
]


@pytest.mark.parametrize(("name", "says", "codes"), SECOND_ENCODINGS)
def test_types_with_more_than_one_encoding(name, says, codes):
    found = resolved({"model_type": name, **says})
    told = [
        (code.part, code.layers, code.kind, {field: getattr(code, field) for field in more})
        for code, (*_, more) in zip(found.codes, codes, strict=True)
    ]
    assert told == codes
    assert "missing-value" not in [fact.code for fact in found.facts]


def test_a_decoder_with_a_length_of_its_own_is_no_short_table(tmp_path):
    path = tmp_path / "config.json"
    says = {"model_type": "led", "max_encoder_position_embeddings": 16384, "max_decoder_position_embeddings": 1024}
    path.write_text(json.dumps(says), encoding="utf-8")
    assert "short-table" not in [finding.code for finding in audit(path).findings]


# A type, its number of layers, and the layers that see all; the others slide.
FULL_LAYERS = [
    ("kolibri1", 12, "4,9"),
    ("flint", 12, "0-1,5,9,11"),
    ("muse_glimmer_text", 10, "1,5,9"),
    ("muse_spark_text", 8, "3,7"),
    ("ultrabert", 7, "2,5"),
    ("qwen2_moe", 4, "0-3"),
]


@pytest.mark.parametrize(("name", "layers", "full"), FULL_LAYERS)
def test_rules_hold_for_any_number_of_layers(name, layers, full):
    found = resolved({"model_type": name, "num_hidden_layers": layers})
    assert ",".join(code.layers for code in found.codes if code.window is None) == full
    assert "missing-value" not in [fact.code for fact in found.facts]


@pytest.mark.parametrize(
    ("name", "window"),
    [("openai_privacy_filter", 2 * 128 + 1), ("embedding_gemma2_text", 2 * 512 + 1), ("ultrabert", 2 * 128 + 1)],
)
def test_a_window_that_is_a_radius(name, window):
    found = resolved({"model_type": name})
    assert {code.window for code in found.codes} - {None} == {window}


@pytest.mark.parametrize(
    ("more", "rotated", "width"),
    [
        ({}, 64, 256),
        ({"swa_head_dim": 224, "swa_qk_rope_head_dim": 32}, 32, 224),
        ({"swa_head_dim": 224, "swa_qk_nope_head_dim": 128}, 96, 224),
        ({"per_layer_config": {"2": {"qk_nope_head_dim": 64, "qk_rope_head_dim": 32}}}, 32, 96),
    ],
)
def test_sliding_layers_of_dots3_have_heads_of_their_own(more, rotated, width):
    # As the config class of Transformers 5.23.0 makes them from the keys that begin with swa_.
    found = resolved({"model_type": "dots3_note_text", **more})
    (code, *_) = [code for code in found.codes if code.window is not None and "2" in str(code.layers)]
    assert (code.rotated, code.width, code.base) == (rotated, width, 50000.0)
    assert {(code.part, code.width) for code in found.codes if code.window is None} == {("text", 192), ("indexer", 128)}


@pytest.mark.parametrize(
    ("name", "says"), [("sam", "prompt encoder"), ("sam2_video", "prompt encoder"), ("inkling_mm_model", "windows")]
)
def test_what_is_not_read_of_a_type_is_named(name, says):
    (note,) = resolved({"model_type": name}).notes
    assert "clockhands does not read" in note
    assert says in note
    assert resolved({"model_type": "llama"}).notes == ()


@pytest.mark.parametrize(
    ("config", "allowed"),
    [
        ({"model_type": "mistral", "sliding_window": 0}, "a window of 1 or more tokens, or null for none"),
        ({"model_type": "mistral", "sliding_window": None}, None),
        ({"model_type": "qwen3", "sliding_window": 0, "use_sliding_window": False}, None),
        ({"model_type": "qwen3", "sliding_window": None, "use_sliding_window": True}, None),
        *(
            (
                {"model_type": name, "sliding_window": None},
                "a window of 1 or more tokens, which layers of this type need",
            )
            for name in ("gemma2", "gemma3_text", "cohere2", "gpt_oss", "ministral")
        ),
        ({"model_type": "cohere2", "sliding_window": None, "sliding_window_pattern": 1}, None),
        ({"model_type": "cohere2", "sliding_window": None, "layer_types": ["full_attention"] * 2}, None),
        *(
            ({"model_type": name, **more, "layer_types": ["sliding_attention"] * 2}, listed)
            for listed in ["a window of 1 or more tokens, which the listed layers need"]
            for name, more in [
                ("qwen3", {"sliding_window": None, "use_sliding_window": True}),
                ("qwen3", {"sliding_window": 8, "use_sliding_window": False}),
                ("gemma2", {"sliding_window": 0}),
            ]
        ),
    ],
)
def test_a_window_that_layers_cannot_have(config, allowed):
    # Small models of Transformers 5.23.0 fail at the same configs: a TypeError for null, a RuntimeError for 0.
    found = resolved({"num_hidden_layers": 2, **config})
    assert [fact.evidence["allowed"] for fact in found.facts if fact.code == "impossible-value"] == [allowed] * bool(
        allowed
    )
    assert {code.window for code in found.codes} == {None}


STEP = {
    "model_type": "step3p5", "num_hidden_layers": 4, "num_nextn_predict_layers": 1, "hidden_size": 4096,
    "num_attention_heads": 64, "head_dim": 128, "max_position_embeddings": 262144, "sliding_window": 512,
    "layer_types": ["full_attention", *["sliding_attention"] * 3, "full_attention"],
    "rope_theta": [5_000_000.0, 10_000.0, 10_000.0, 10_000.0, 5_000_000.0],
    "partial_rotary_factors": [0.5, 1.0, 1.0, 1.0, 0.5],
}  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "ignored"),
    [
        ({"rotary_pct": 1.0, "position_embedding_type": "rope_gptj"}, []),  # as Command R7B was published
        ({"rotary_pct": 0.5, "position_embedding_type": "rope_gpt_neox"}, ["position_embedding_type", "rotary_pct"]),
    ],
)
def test_keys_that_are_not_read_but_say_what_is_computed_are_no_news(keys, ignored):
    shape = {"num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8}
    found = resolved({"model_type": "cohere2", **shape, **keys})
    held = [fact.evidence for fact in found.facts if fact.code == "ignored-key"]
    assert sorted(name.partition(":")[2] for evidence in held for name in evidence if ":" in name) == ignored


ENCODER = {
    "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8,
    "local_attention": 8,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "window", "seen"),
    [
        ({"model_type": "modernbert"}, 9, "4 positions on either side"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, 9, "4 positions on either side"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": False}, 8, "the last 8 positions"),
        ({"model_type": "gemma4_text", "use_bidirectional_attention": "all"}, 11, "5 positions on either side"),
        ({"model_type": "gemma4_text", "use_bidirectional_attention": "vision"}, 8, "the last 8 positions"),
    ],
)
def test_windows_on_both_sides_of_the_query(config, window, seen):
    # The attentions of two small layers of Transformers 5.23.0 reach as far.
    (code,) = [code for code in resolved({**ENCODER, **config}).codes if code.window]
    assert (code.window, code.seen) == (window, seen)
    assert code.farthest == (code.window // 2 + 1 if code.two_sided else code.window)


def test_windows_on_both_sides_of_encoders_alone():
    part = {"model_type": "t5_gemma_module", **ENCODER}
    codes = resolved({"model_type": "t5gemma", "encoder": part, "decoder": part}).codes
    held = {code.part: (code.window, code.two_sided) for code in codes if code.window}
    assert held == {"encoder": (17, True), "decoder": (8, False)}


def test_a_base_and_a_share_for_each_layer():
    """The lists go on with the layer that predicts further tokens, which is no layer of the model itself."""
    full, sliding, further = resolved(STEP).codes
    assert (full.layers, full.base, full.rotated, full.window) == ("0", 5_000_000.0, 64, None)
    assert (sliding.layers, sliding.base, sliding.rotated, sliding.window) == ("1-3", 10_000.0, 128, 512)
    assert (further.part, further.layers, further.spec) == ("mtp", "4", full.spec)
    assert resolved({**STEP, "rope_theta": 70_000.0}).codes[0].base == 70_000.0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rope_theta", [5e6, 1e4, 1e4]),
        ("rope_theta", [5e6, 1e4, 1e4, 1e4, "many"]),
        ("partial_rotary_factors", [0.5, 1.0, 1.0, 2.0, 0.5]),
        ("partial_rotary_factors", [0.5]),
    ],
)
def test_lists_that_do_not_fit_the_layers(key, value):
    found = resolved({**STEP, key: value})
    assert "impossible-value" in [fact.code for fact in found.facts]


def test_the_library_gives_layers_the_same_bases_and_shares():
    pytest.importorskip("torch")
    pytest.importorskip("transformers").logging.set_verbosity_error()
    assert list(gaps(read_config(STEP), resolved(STEP), None)) == []


def test_the_share_of_minimax_m3_is_the_one_that_its_class_reads():
    """``rotary_dim`` alone changes nothing in the class."""
    shares = [
        {},
        {"rotary_dim": 64},
        {"partial_rotary_factor": 0.5},
        {"rope_parameters": {"partial_rotary_factor": 0.5}},
    ]
    rotated = [resolved({"model_type": "minimax_m3_vl_text", **says}).codes[0].rotated for says in shares]
    assert rotated == [128, 128, 64, 64]


GEMMA4 = {"model_type": "gemma4_text", "num_hidden_layers": 6, "head_dim": 256, "sliding_window": 512}


@pytest.mark.parametrize("number", ["5", "05"])
def test_single_layers_have_heads_of_their_own(number):
    """Transformers 5 writes what single layers have apart from the others, in place of ``global_head_dim``."""
    sliding, full = resolved({**GEMMA4, "per_layer_config": {number: {"head_dim": 384}}}).codes
    assert (sliding.layers, sliding.width, full.layers, full.width) == ("0-4", 256, "5", 384)
    assert full.source["width"] == f"config.json:per_layer_config.{number}.head_dim"
    without = resolved({**GEMMA4, "per_layer_config": {}}).codes
    assert [code.width for code in without] == [256, 256]
    assert [code.width for code in resolved(GEMMA4).codes] == [256, 512]


def test_single_layers_have_windows_of_their_own():
    own = {"0": {"sliding_window": 1024}, "5": {"sliding_window": None}}
    config = {"model_type": "neomme", "num_hidden_layers": 6, "sliding_window": 256, "per_layer_config": own}
    found = resolved(config)
    assert {code.layers: code.window for code in found.codes} == {"0": 2049, "1-4": 513, "5": None}
    assert {fact.code for fact in found.facts} == {"default-value"}


def test_single_layers_of_two_part_heads():
    own = {str(layer): {"qk_nope_head_dim": 192, "num_attention_heads": 64} for layer in (2, 3, 4)}
    found = resolved({"model_type": "dots3_note_text", "per_layer_config": own})
    assert {code.layers: code.width for code in found.codes if code.layers == "2-4"} == {"2-4": 256}


@pytest.mark.parametrize(
    "own", [7, {"6": {"head_dim": 8}}, {"full": {"head_dim": 8}}, {"1": {"head_dim": "wide"}}, {"1": 3}]
)
def test_values_of_single_layers_that_cannot_be_read(own):
    found = resolved({**GEMMA4, "per_layer_config": own})
    assert "unreadable-field" in [fact.code for fact in found.facts]
    assert all(code.rates for code in found.codes)


@pytest.mark.parametrize("name", ["llama", "mistral", "of-nobody"])
def test_values_of_single_layers_are_not_for_every_type(name):
    """Classes of most types take none: Transformers 5 fails where they look for a value that single layers have."""
    config = {"model_type": name, "num_hidden_layers": 4, "head_dim": 64, "rope_theta": 1e4, "sliding_window": 512}
    found = resolved({**config, "per_layer_config": {"3": {"head_dim": 128, "sliding_window": 64}}})
    assert [(code.layers, code.width) for code in found.codes] == [("0-3", 64)]
    assert {code.window for code in found.codes} <= {None, 512}
    assert "config.json:per_layer_config" in found.ignored


class Counted(dict):
    """Values of layers that count how often somebody goes through them."""

    times = 0

    def __iter__(self):
        self.times += 1
        return super().__iter__()


def test_values_of_layers_are_gone_through_as_often_for_many_groups():
    times = set()
    for layers in (6, 60):
        own = Counted({str(layer): {"sliding_window": layer + 1} for layer in range(layers)})
        kinds = ["sliding_attention"] * layers
        config = {**GEMMA4, "num_hidden_layers": layers, "layer_types": kinds, "per_layer_config": own}
        # The last layer sees all, whatever is listed.
        assert len(resolved(config).codes) == layers
        times.add(own.times)
    assert len(times) == 1


@pytest.mark.parametrize("name", ["gemma4_text", "dots3_note_text"])
def test_the_library_gives_single_layers_the_same_heads(name):
    pytest.importorskip("torch")
    pytest.importorskip("transformers").logging.set_verbosity_error()
    config = read_config({"model_type": name})
    written = json.loads(json.dumps(config.to_dict(), default=str))
    assert written["per_layer_config"]
    assert list(gaps(config, resolved(written))) == []


EXAONE4 = {"model_type": "exaone4", "num_hidden_layers": 8, "sliding_window": 4096, "rope_theta": 1e6}


@pytest.mark.parametrize("name", ["exaone4", "exaone_moe"])
@pytest.mark.parametrize(
    ("pattern", "still"),
    [("LLLG", [3, 7]), ("LG", [1, 3, 5, 7]), ("GL", [0, 2, 4, 6, 7]), ("LLG", [2, 5, 7]), ("L", [7]), (4, [3, 7])],
)
def test_a_pattern_of_letters_says_which_layers_slide(name, pattern, still):
    """As the class documents it: it repeats from the first layer on, and the last layer sees all."""
    found = resolved({**EXAONE4, "model_type": name, "sliding_window_pattern": pattern})
    of_layers = {layer: code for code in found.codes for layer in layer_numbers(code.layers or "")}
    assert [layer for layer in range(8) if of_layers[layer].kind == "none"] == still
    assert {of_layers[layer].window for layer in range(8) if layer not in still} == {4096}
    assert "impossible-value" not in [fact.code for fact in found.facts]


@pytest.mark.parametrize("pattern", ["", "LLLX", "lllg", 0, -4, [4], True])
def test_a_pattern_that_cannot_be_used_is_not_one_without_rotation(pattern):
    found = resolved({**EXAONE4, "sliding_window_pattern": pattern})
    assert "rotary" in [code.kind for code in found.codes]
    assert [code.layers for code in found.codes if code.kind == "none"] == []
    (fact,) = [fact for fact in found.facts if fact.code == "impossible-value"]
    assert "config.json:sliding_window_pattern" in fact.evidence
    assert ("letters L and G" in str(fact.evidence["allowed"])) == isinstance(pattern, str)


SMOLLM3 = {
    "model_type": "smollm3", "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 4,
    "no_rope_layers": [1, 1, 0, 0], "sliding_window": 8,
}  # fmt: skip
SLIDING_FIRST = ["sliding_attention", "full_attention"] * 2


@pytest.mark.parametrize(
    ("more", "windows"),
    [
        ({"use_sliding_window": False}, [None] * 4),
        ({"use_sliding_window": True}, [None, None, 8, 8]),  # layers that do not rotate
        ({"use_sliding_window": True, "layer_types": SLIDING_FIRST}, [8, None, 8, None]),
        ({"use_sliding_window": False, "layer_types": SLIDING_FIRST}, [8, None, 8, None]),
        ({"use_sliding_window": True, "sliding_window": None}, [None] * 4),
        ({"use_sliding_window": True, "no_rope_layers": None, "no_rope_layer_interval": 2}, [None, 8, None, 8]),
    ],
)
def test_smollm3_has_windows_where_its_class_has_them(more, windows, tmp_path):
    config = {**SMOLLM3, **more}
    found = {layer: code for code in resolved(config).codes for layer in layer_numbers(code.layers or "")}
    assert [found[layer].window for layer in range(4)] == windows
    still = "no_rope_layers" if config["no_rope_layers"] else "no_rope_layer_interval"
    assert all(still in code.source["kind"] for code in found.values() if code.kind == "none")
    (tmp_path / "config.json").write_text(json.dumps(config))
    codes = {finding.code for finding in audit(tmp_path).findings}
    assert "ignored-key" not in codes
    assert ("inert-window" in codes) == (more == {"use_sliding_window": False})


@pytest.mark.parametrize("more", [{}, {"use_sliding_window": True}, {"layer_types": ["sliding_attention"] * 4}])
def test_the_library_gives_smollm3_the_same_windows(more):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    for still in ([1] * 4, [0] * 4):
        config = {**SMOLLM3, **more, "no_rope_layers": still}
        sizes = {"vocab_size": 9, "intermediate_size": 8, "num_key_value_heads": 2, "pad_token_id": 0}
        read = read_config({**config, **sizes, "bos_token_id": 1, "eos_token_id": 2})
        read.num_hidden_layers = 1
        model = transformers.SmolLM3Model(read).eval()
        tokens = torch.full((2, 30), 5)
        tokens[1, 0] = 6
        with torch.no_grad():
            first, second = model(tokens).last_hidden_state
        seen = int((first - second).abs().amax(-1).nonzero().max()) + 1
        assert {code.window or 30 for code in resolved(config).codes} == {seen}


@pytest.mark.parametrize("name", ["beam", "cohere_compass_text", "gemma3_text"])
def test_a_kind_of_layers_whose_block_is_null_does_not_turn(name):
    block = {"rope_type": "default", "rope_theta": 20_000.0}
    kinds = ["sliding_attention", "full_attention"]
    config = {"model_type": name, "num_hidden_layers": 2, "layer_types": kinds, "head_dim": 128, "sliding_window": 64}
    config["num_attention_heads"], config["hidden_size"] = 2, 256
    null = resolved({**config, "rope_parameters": {"sliding_attention": block, "full_attention": None}})
    assert [(code.layers, code.kind, code.base) for code in null.codes] == [("0", "rotary", 2e4), ("1", "none", None)]
    both = resolved({**config, "rope_parameters": {"sliding_attention": block, "full_attention": block}})
    assert [(code.layers, code.kind) for code in both.codes] == [("0", "rotary"), ("1", "rotary")]


QWEN3_OMNI = {
    "model_type": "qwen3_omni_moe_text", "hidden_size": 2048, "num_attention_heads": 32, "head_dim": 128,
    "num_hidden_layers": 48, "max_position_embeddings": 65536, "rope_theta": 1_000_000,
    "rope_scaling": {
        "interleaved": True, "mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default",
    },
}  # fmt: skip
MINISTRAL3 = {
    "model_type": "ministral3", "max_position_embeddings": 262144,
    "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
        "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1,
        "max_position_embeddings": 16384,
    },
}  # fmt: skip


@pytest.mark.parametrize("config", [QWEN3_OMNI, MINISTRAL3])
def test_keys_that_the_library_passes_over_are_no_fault(config):
    """Its classes list them as ``ignore_keys_at_rope_validation``."""
    assert "unknown-key" not in [fact.code for fact in resolved(config).facts]
