"""Patterns of misreading: each changes the files that it can change, and no others."""

import copy
import json
from pathlib import Path

import pytest

from clockhands.configs import open_target
from clockhands.configs.resolve import resolve
from clockhands.runtimes import misreadings

FILES = json.loads(Path(__file__).with_name("patterns.json").read_text(encoding="utf-8"))["files"]


def config_of(name):
    return copy.deepcopy(FILES[name]["config"])


def found(tmp_path, config):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    opened = open_target(path)
    resolved = resolve(opened, None).with_lengths()
    return {each.reader: each for each in misreadings(opened, resolved, resolved.length)}


def test_the_patterns_that_change_a_file(tmp_path, cases):
    for name, file in FILES.items():
        with cases(name):
            assert set(found(tmp_path, file["config"])) == set(file["changed by"])


PLAIN = pytest.approx([10000.0 ** (-pair / 48) for pair in range(48)])
# A file, a pattern that changes one group of its layers, what is asked of the group, and the answer.
OF_ONE_GROUP = [
    ("llama", "default-base", lambda it: (it.theirs.base, it.theirs.scaling["type"]), (10000.0, "llama3")),
    ("llama", "default-base-no-scaling", lambda it: (it.theirs.base, it.theirs.scaling), (10000.0, None)),
    # The slowest pair of heads of 128 dimensions.
    ("llama", "default-base-no-scaling", lambda it: it.ladder.ratio, pytest.approx(8 * 50 ** (126 / 128))),
    # One base for all layers is wrong in the layers of the other kind.
    ("gemma3_old", "full-block-everywhere", lambda it: (it.layers, it.ours.base, it.theirs.base),
     ("0-4,6-10,12-16,18-22,24-25", 1e4, 1e6)),
    ("gemma3_old", "sliding-block-everywhere", lambda it: (it.layers, it.ours.base, it.theirs.base),
     ("5,11,17,23", 1e6, 1e4)),
    # Each layer keeps its base where one scaling is used for all.
    ("gemma3_old", "scaling-everywhere", lambda it: (it.theirs.base, it.theirs.scaling["factor"], it.ours.scaling),
     (1e4, 8.0, None)),
    # The top level alone has neither base nor scaling.
    ("nested", "outer-level", lambda it: (it.theirs.base, it.theirs.scaling), (10000.0, None)),
    ("nested", "no-magnitude", lambda it: it.theirs.attention_factor, 1.0),
    ("nested", "magnitude-twice", lambda it: it.theirs.attention_factor / it.ours.attention_factor**2,
     pytest.approx(1)),
    ("laguna", "formula-magnitude", lambda it: (it.ours.attention_factor, it.theirs.attention_factor),
     pytest.approx((1.0, 1.4158883))),
    # A list of LongRoPE is compared at the length at which it is wrong.
    ("phi3", "long-list-everywhere", lambda it: it.ladder.ratio, pytest.approx(48.0)),
    ("phi3", "long-list-everywhere", lambda it: it.ours.rates, PLAIN),
    ("phi3", "short-list-everywhere", lambda it: it.theirs.rates, PLAIN),
    ("smollm3", "every-layer-rotated", lambda it: (it.layers, it.ours.kind, it.theirs.kind), ("3,7", "none", "rotary")),
    # A proportional rotation is read as a partial one, and a partial one as a proportional one.
    ("gemma4", "ordinary-partial", lambda it: (it.layers, it.theirs.rates[1]), ("5", pytest.approx(1e6 ** (-2 / 128)))),
    ("glm4", "proportional-partial", lambda it: (it.says, it.theirs.rates[1], any(it.theirs.rates[32:])),
     (("32 pairs against 64",), pytest.approx(10000.0 ** (-2 / 128)), False)),
]  # fmt: skip


def test_what_a_pattern_makes_of_a_group_of_layers(tmp_path, cases):
    for name, pattern, asked, answer in OF_ONE_GROUP:
        with cases(name, pattern):
            (group,) = found(tmp_path, config_of(name))[pattern].parted
            assert asked(group) == answer


def test_the_layers_that_rotate_are_exchanged_with_those_that_do_not(tmp_path):
    groups = found(tmp_path, config_of("smollm3"))["nope-inverted"].parted
    assert [group.layers for group in groups] == ["0-2,4-6", "3,7"]


def test_a_scale_of_the_scores_is_left_out(tmp_path):
    text = config_of("nested")["text_config"]
    scaled = text | {"rope_parameters": text["rope_parameters"] | {"llama_4_scaling_beta": 0.1}}
    assert "no-score-scale" not in found(tmp_path, config_of("nested"))
    (group,) = found(tmp_path, config_of("nested") | {"text_config": scaled})["no-score-scale"].parted
    (says,) = group.says
    assert says.startswith("scores ")
    assert says.endswith(" against not scaled")


def test_layers_without_a_scaling_have_none_for_the_others(tmp_path):
    config = config_of("gemma3")
    config["rope_parameters"]["full_attention"] = {"rope_type": "default", "rope_theta": 1e6}
    assert set(found(tmp_path, config)) == set(FILES["gemma3"]["changed by"]) - {
        "no-scaling", "default-base-no-scaling", "scaling-everywhere",
    }  # fmt: skip


@pytest.mark.parametrize(("name", "base"), [("full-block-everywhere", 160000.0), ("sliding-block-everywhere", 1e4)])
def test_deepseek_v4_has_two_bases_that_one_block_cannot_hold(tmp_path, name, base):
    config = {
        "model_type": "deepseek_v4", "hidden_size": 4096, "num_attention_heads": 64, "num_hidden_layers": 4,
        "head_dim": 512, "qk_rope_head_dim": 64, "max_position_embeddings": 1048576, "sliding_window": 128,
        "rope_theta": 10000, "compress_rope_theta": 160000, "compress_ratios": [0, 4, 128, 4],
        "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536},
    }  # fmt: skip
    groups = found(tmp_path, config)[name].parted
    assert [group.part for group in groups] == ["text"] if base > 1e4 else ["text", "indexer"]  # as the full layers
    assert {group.theirs.base for group in groups} == {base}


def test_sections_that_are_too_large_for_turns_end_with_the_pairs(tmp_path):
    config = config_of("qwen3_vl") | {
        "model_type": "qwen2_5_vl_text", "head_dim": None, "hidden_size": 3584, "num_attention_heads": 28,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    }  # fmt: skip
    (group,) = found(tmp_path, config)["sections-in-turns"].parted
    axes = group.theirs.spec.axes
    assert (axes[:6], [axes.count(axis) for axis in range(3)]) == ((0, 1, 2, 0, 1, 2), [22, 21, 21])


LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 4,
    "max_position_embeddings": 131072, "rope_theta": 5e5,
}  # fmt: skip
GEMMA = {
    "model_type": "gemma3_text", "hidden_size": 1152, "head_dim": 256, "num_attention_heads": 4, "num_hidden_layers": 6,
    "max_position_embeddings": 32768, "sliding_window": 512, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
}  # fmt: skip
LISTS = {
    "rope_type": "longrope", "original_max_position_embeddings": 8192, "short_factor": [1.0] * 64,
    "long_factor": [2.0] * 64,
}  # fmt: skip
# A config, a pattern, and the layers, the base, the scaling's factor and the attention factor of what it makes of them.
WITH_EDGES = [
    # A factor that follows from the two lengths follows from the new ones.
    (LLAMA | {"rope_scaling": LISTS}, "context-as-original", ("0-3", 5e5, 1.0, 1.0)),
    (LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 4096}},
     "context-as-original", ("0-3", 5e5, 1.0, 1.0)),
    # An original length of 1 has no frequencies.
    (LLAMA | {"max_position_embeddings": 1, "rope_scaling": LISTS | {"factor": 4.0}}, "context-as-original",
     ("0-3", 5e5, 4.0, None)),
    # Frequencies that are not known stay so in other layers.
    (GEMMA | {"rope_scaling": {"rope_type": "foo", "factor": 8.0}}, "full-block-everywhere", ("0-4", 1e6, 8.0, None)),
    # The kind of a layer is that of its class, whatever it sees.
    (GEMMA | {"sliding_window": None}, "full-block-everywhere", ("0-4", 1e6, None, 1.0)),
    # A scaling that the other layers have themselves is replaced too.
    (GEMMA | {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                  "sliding_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}},
     "scaling-everywhere", ("0-4", 1e4, 8.0, 1.0)),
]  # fmt: skip


def test_what_is_derived_or_not_known_stays_so(tmp_path, cases):
    for config, pattern, (layers, base, factor, magnitude) in WITH_EDGES:
        with cases(config, pattern):
            group = found(tmp_path, config)[pattern].parted[0]
            made = group.theirs
            assert (group.layers, made.base, (made.scaling or {}).get("factor")) == (layers, base, factor)
            assert made.attention_factor == magnitude
            assert bool(made.rates) == (magnitude is not None)


def test_each_part_of_a_model_keeps_its_own_settings(tmp_path):
    encoder = {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                                   "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}  # fmt: skip
    decoder = {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6},
                                   "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}  # fmt: skip
    config = {"model_type": "t5gemma2", "encoder": {"text_config": encoder}, "decoder": decoder}
    groups = found(tmp_path, config)["full-block-everywhere"].parted
    bases = {group.part: {other.theirs.base for other in groups if other.part == group.part} for group in groups}
    assert bases == {"encoder": {1e6}, "decoder": {2e6}}


def test_a_number_of_dimensions_is_no_share_of_the_head(tmp_path):
    names = set(found(tmp_path, {"model_type": "deepseek_v3", "rope_scaling": {"rope_type": "proportional"}}))
    assert not names & {"no-scaling", "ordinary-partial", "whole-head"}
