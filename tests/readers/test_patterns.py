"""Patterns of misreading: each changes the files that it can change, and no others."""

import copy
import json
from pathlib import Path

import pytest

from clockhands.readers import misreadings
from clockhands.sources import open_target
from clockhands.sources.resolve import resolve

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


def test_a_lost_base_is_that_of_ten_thousand_and_the_scaling_stays(tmp_path):
    (group,) = found(tmp_path, config_of("llama"))["default-base"].parted
    assert (group.theirs.base, group.theirs.scaling["type"]) == (10000.0, "llama3")
    (group,) = found(tmp_path, config_of("llama"))["default-base-no-scaling"].parted
    assert (group.theirs.base, group.theirs.scaling) == (10000.0, None)
    # The slowest pair of heads of 128 dimensions: 8 x 50^(126/128).
    assert group.ladder.ratio == pytest.approx(8 * 50 ** (126 / 128))


def test_one_base_for_all_layers_is_wrong_in_the_layers_of_the_other_kind(tmp_path):
    read = found(tmp_path, config_of("gemma3_old"))
    (full,) = read["full-block-everywhere"].parted
    assert (full.layers, full.ours.base, full.theirs.base) == ("0-4,6-10,12-16,18-22,24-25", 1e4, 1e6)
    (sliding,) = read["sliding-block-everywhere"].parted
    assert (sliding.layers, sliding.ours.base, sliding.theirs.base) == ("5,11,17,23", 1e6, 1e4)


def test_the_top_level_alone_has_neither_base_nor_scaling(tmp_path):
    (group,) = found(tmp_path, config_of("nested"))["outer-level"].parted
    assert (group.theirs.base, group.theirs.scaling) == (10000.0, None)


def test_a_scale_of_the_scores_is_left_out(tmp_path):
    text = config_of("nested")["text_config"]
    scaled = text | {"rope_parameters": text["rope_parameters"] | {"llama_4_scaling_beta": 0.1}}
    assert "no-score-scale" not in found(tmp_path, config_of("nested"))
    (group,) = found(tmp_path, config_of("nested") | {"text_config": scaled})["no-score-scale"].parted
    (says,) = group.says
    assert says.startswith("scores ")
    assert says.endswith(" against not scaled")


def test_a_magnitude_is_left_out_or_applied_twice(tmp_path):
    read = found(tmp_path, config_of("nested"))
    factor = read["no-magnitude"].parted[0].ours.attention_factor
    assert read["no-magnitude"].parted[0].theirs.attention_factor == 1.0
    assert read["magnitude-twice"].parted[0].theirs.attention_factor == pytest.approx(factor**2)


def test_each_layer_keeps_its_base_where_one_scaling_is_used_for_all(tmp_path):
    (sliding,) = found(tmp_path, config_of("gemma3_old"))["scaling-everywhere"].parted
    assert (sliding.theirs.base, sliding.theirs.scaling["factor"], sliding.ours.scaling) == (1e4, 8.0, None)


def test_layers_without_a_scaling_have_none_for_the_others(tmp_path):
    config = config_of("gemma3")
    config["rope_parameters"]["full_attention"] = {"rope_type": "default", "rope_theta": 1e6}
    assert set(found(tmp_path, config)) == set(FILES["gemma3"]["changed by"]) - {
        "no-scaling", "default-base-no-scaling", "scaling-everywhere",
    }  # fmt: skip


def test_a_list_of_longrope_is_compared_at_the_length_at_which_it_is_wrong(tmp_path):
    read = found(tmp_path, config_of("phi3"))
    (early,) = read["long-list-everywhere"].parted
    assert early.ladder.ratio == pytest.approx(48.0)
    assert early.ours.rates == pytest.approx([10000.0 ** (-pair / 48) for pair in range(48)])
    (late,) = read["short-list-everywhere"].parted
    assert late.theirs.rates == pytest.approx(early.ours.rates)


def test_a_declared_magnitude_is_passed_over(tmp_path):
    (group,) = found(tmp_path, config_of("laguna"))["formula-magnitude"].parted
    assert (group.ours.attention_factor, group.theirs.attention_factor) == pytest.approx((1.0, 1.4158883))


def test_layers_without_rope_are_rotated_or_exchanged_with_the_others(tmp_path):
    read = found(tmp_path, config_of("smollm3"))
    (still,) = read["every-layer-rotated"].parted
    assert (still.layers, still.ours.kind, still.theirs.kind) == ("3,7", "none", "rotary")
    assert [group.layers for group in read["nope-inverted"].parted] == ["0-2,4-6", "3,7"]


def test_a_proportional_rotation_is_read_as_a_partial_one(tmp_path):
    (group,) = found(tmp_path, config_of("gemma4"))["ordinary-partial"].parted
    assert (group.layers, group.theirs.rates[1]) == ("5", pytest.approx(1e6 ** (-2 / 128)))


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


def test_a_partial_rotation_is_read_as_a_proportional_one(tmp_path):
    (group,) = found(tmp_path, config_of("glm4"))["proportional-partial"].parted
    assert group.says == ("32 pairs against 64",)
    assert group.theirs.rates[1] == pytest.approx(10000.0 ** (-2 / 128))
    assert not any(group.theirs.rates[32:])
