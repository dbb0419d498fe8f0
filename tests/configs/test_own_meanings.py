"""Keys and absent keys that some types take in a way of their own, held against the library.

`stated/own_meanings.json` states more of them, for which small models of Transformers 5.23.0 or its classes were read.
"""

import json

import pytest

from clockhands.auditing import audit
from clockhands.configs.resolved import layer_numbers
from configs.expected import resolved
from configs.library import gaps, read_config

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


STEP = {
    "model_type": "step3p5", "num_hidden_layers": 4, "num_nextn_predict_layers": 1, "hidden_size": 4096,
    "num_attention_heads": 64, "head_dim": 128, "max_position_embeddings": 262144, "sliding_window": 512,
    "layer_types": ["full_attention", *["sliding_attention"] * 3, "full_attention"],
    "rope_theta": [5_000_000.0, 10_000.0, 10_000.0, 10_000.0, 5_000_000.0],
    "partial_rotary_factors": [0.5, 1.0, 1.0, 1.0, 0.5],
}  # fmt: skip


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("config", "length"), [(HUNYUAN, None), (HUNYUAN, 100_000), (STEP, None)])
def test_the_library_stretches_as_much_and_gives_layers_the_same_bases_and_shares(config, length):
    assert list(gaps(read_config(config), resolved(config, length), length)) == []


@pytest.mark.usefixtures("library")
def test_a_width_that_follows_from_the_heads(cases):
    """What these classes have without a file is a quotient of their own width, no default that stands."""
    for name in ("csm", "hyperclovax", "jais2", "nomic_bert"):
        with cases(name):
            config = {"model_type": name, "hidden_size": 1024, "num_attention_heads": 4, "num_key_value_heads": 4}
            assert resolved(config).codes[0].width == 256
            assert list(gaps(read_config(config), resolved(config))) == []


@pytest.mark.usefixtures("library")
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
    config = {"model_type": "minimax_m2", "num_hidden_layers": 2, "rope_theta": 5e6, **written}
    found = resolved(config)
    assert [code.rotated for code in found.codes] == [rotated]
    assert list(gaps(read_config(config), found)) == []
    assert [fact.code for fact in found.facts].count("conflicting-keys") == conflicts
    assert "ignored-key" not in [fact.code for fact in found.facts]


def test_a_decoder_with_a_length_of_its_own_is_no_short_table(tmp_path):
    path = tmp_path / "config.json"
    says = {"model_type": "led", "max_encoder_position_embeddings": 16384, "max_decoder_position_embeddings": 1024}
    path.write_text(json.dumps(says), encoding="utf-8")
    assert "short-table" not in [finding.code for finding in audit(path).findings]


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
        config = {"model_type": "gemma4_text", "num_hidden_layers": layers, "per_layer_config": own}
        # The last layer sees all, whatever is listed.
        assert len(resolved(config | {"layer_types": ["sliding_attention"] * layers}).codes) == layers
        times.add(own.times)
    assert len(times) == 1


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("name", ["gemma4_text", "dots3_note_text"])
def test_the_library_gives_single_layers_the_same_heads(name):
    config = read_config({"model_type": name})
    written = json.loads(json.dumps(config.to_dict(), default=str))
    assert written["per_layer_config"]
    assert list(gaps(config, resolved(written))) == []


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
def test_the_library_gives_smollm3_the_same_windows(library, more):
    import torch

    for still in ([1] * 4, [0] * 4):
        config = {**SMOLLM3, **more, "no_rope_layers": still}
        sizes = {"vocab_size": 9, "intermediate_size": 8, "num_key_value_heads": 2, "pad_token_id": 0}
        read = read_config({**config, **sizes, "bos_token_id": 1, "eos_token_id": 2})
        read.num_hidden_layers = 1
        model = library.SmolLM3Model(read).eval()
        tokens = torch.full((2, 30), 5)
        tokens[1, 0] = 6
        with torch.no_grad():
            first, second = model(tokens).last_hidden_state
        seen = int((first - second).abs().amax(-1).nonzero().max()) + 1
        assert {code.window or 30 for code in resolved(config).codes} == {seen}


def test_a_window_under_its_own_key_takes_the_place_of_half_of_local_attention():
    """``ModernBertConfig`` has a setter that doubles it; that of the decoder is an attribute which a file replaces."""
    for name, own, half in (("modernbert", 21, 41), ("modernbert-decoder", 10, 20)):
        for keys, window in (({"sliding_window": 10}, own), ({"local_attention": 40}, half)):
            for more in ({}, {"local_attention": 40}):
                found = resolved({"model_type": name, "num_hidden_layers": 2, **more, **keys})
                assert [code.window for code in found.codes] == [None, window]
                assert "ignored-key" not in {fact.code for fact in found.facts}
