"""Faults that no file shows are shown by the rows of the readers: what each makes of a file that is right."""

import numpy as np
import pytest

from auditing.faulty_files import NARROW, QWEN2_YARN
from auditing.model_files import audit_of, audited, of_code
from auditing.published_fields import (
    DEEPSEEK_V3,
    GLM46V,
    LLAMA_3,
    LLAMA_31,
    LLAMA_32_1B,
    OLMO3,
    block_with,
    new_shape,
    without,
)
from clockhands.measures import difference


def rows(folder, config):
    found = audited(folder, {"config.json": config})
    return {reading.reader: reading for reading in found.readings}


def parted(reading):
    (group,) = reading.parted
    return group.ladder


def test_d1_11_a_parser_of_one_spelling_skips_the_scaling(tmp_path):
    # mlxcel#1355: the parser looked for `type`, the files say `rope_type`; the slow pairs are 8 and 32 times too fast.
    for config, factor in ((LLAMA_31, 8.0), (LLAMA_32_1B, 32.0)):
        row = rows(tmp_path, config)["no-scaling"]
        assert row.verdict == "differs"
        assert parted(row).ratio == pytest.approx(factor, rel=1e-9)


def test_d1_13_a_block_that_is_declared_and_not_used(tmp_path):
    # Blaizzy/mlx-vlm#1710 in ten models; the figures are the closed form of those that it measured.
    row = rows(tmp_path, LLAMA_31)["no-scaling"]
    cosines = [parted(row).mean_cosine(distance) for distance in (1000, 8192, 20000, 60000)]
    assert cosines == pytest.approx([0.963, 0.769, 0.627, 0.539], abs=6e-4)


def test_d1_01_and_02_readers_of_the_old_shape(tmp_path):
    found = rows(tmp_path, new_shape(NARROW))
    assert found["transformers-5"].verdict == found["vllm"].verdict == "same"
    assert found["transformers-4"].verdict == "differs"
    assert [code.base for code in found["transformers-4"].codes] == [10000.0]
    assert parted(found["transformers-4"]).ratio == pytest.approx(8 * 50 ** (62 / 64), rel=1e-9)


def test_d1_04_and_05_a_default_that_stands_in_for_the_real_base(tmp_path):
    for config in (LLAMA_3, GLM46V):
        found = rows(tmp_path, new_shape(config))["transformers-4"]
        assert [code.base for code in found.codes] == [10000.0]
        assert [code.base for code in audited(tmp_path, {"config.json": new_shape(config)}).layers] == [500000.0]


def test_a_file_of_the_old_shape_is_read_alike(tmp_path):
    found = rows(tmp_path, LLAMA_31)
    assert {name for name, row in found.items() if row.verdict != "same"} == {"no-scaling"}


def test_a_name_that_few_readers_know_and_no_length_that_another_multiplies(tmp_path):
    block = without(DEEPSEEK_V3["rope_scaling"], "type") | {"rope_type": "deepseek_yarn"}
    config = without(DEEPSEEK_V3, "max_position_embeddings") | {"model_type": "mystery", "rope_scaling": block}
    found = audited(tmp_path, {"config.json": config})
    (said,) = of_code(found, "uncommon-scaling-name")
    assert said.message == 'Only some runtimes know the scaling name "deepseek_yarn"; the common name is "yarn".'
    verdict = "The config is correct, but some runtimes misread it: only some runtimes know this scaling name."
    assert found.verdict == verdict


def test_the_ramp_moves_from_23_40_to_30_47_without_the_original_length():
    # YaRN of factor 4 on base 1,000,000 and heads of 128 channels, trained on 32,768 positions of 131,072.
    lost = block_with(QWEN2_YARN, original_max_position_embeddings=None)
    plain, right, wrong = (
        np.array(audit_of(config).layers[0].rates) for config in (without(QWEN2_YARN, "rope_scaling"), QWEN2_YARN, lost)
    )
    for scaled, ends in ((right, (23, 40)), (wrong, (30, 47))):
        kept, stretched = np.flatnonzero(plain / scaled < 1 + 1e-9), np.flatnonzero(plain / scaled > 4 - 1e-9)
        assert (kept[-1], stretched[0]) == ends
    found = difference(right, wrong)
    assert (found.first, found.last) == (24, 46)


def test_what_constant_betas_change_is_told_of_the_layers_that_are_scaled():
    block = OLMO3["rope_scaling"] | {"beta_fast": 16}
    (said,) = of_code(audit_of(OLMO3 | {"rope_scaling": block}), "uncommon-betas")
    assert (said.evidence["first pair"], said.evidence["last pair"]) == (19, 34)
    assert said.evidence["largest ratio"] == pytest.approx(1.1826, abs=1e-4)
    unread = QWEN2_YARN | {"hidden_size": "x", "rope_scaling": QWEN2_YARN["rope_scaling"] | {"beta_fast": 16.0}}
    (said,) = of_code(audit_of(unread), "uncommon-betas")
    assert "first pair" not in said.evidence
