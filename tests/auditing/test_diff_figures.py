"""The figures that public reports give of how far two readings part, from the files that they are about."""

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

from auditing.faulty_files import NARROW, QWEN2_YARN
from auditing.model_files import audited
from auditing.published_fields import LLAMA_31, block_with, new_shape, without
from clockhands.cli import main
from clockhands.measures import difference

# As a reader of the old shape takes it: the class's base, and no scaling.
FALLEN_BACK = without(NARROW, "rope_scaling") | {"rope_theta": 10000.0}


def rates(folder, config):
    (code,) = audited(folder, {"config.json": config}).layers
    return code.rates


def test_the_slowest_pair_turns_354_times_too_fast(tmp_path):
    found = difference(rates(tmp_path, FALLEN_BACK), rates(tmp_path, new_shape(NARROW)))
    assert found.ratio_pair == 31
    assert found.ratio == pytest.approx(8 * 50 ** (62 / 64), rel=1e-9)
    assert round(found.ratio) == 354


DISTANCES = (1000, 8192, 20000, 60000)


def test_a_scaling_that_is_declared_and_not_applied_loses_a_known_share_of_the_score(tmp_path):
    # Blaizzy/mlx-vlm#1710: the block of Llama-3.2-Vision, dropped. For a score that lies evenly on all pairs.
    found = difference(rates(tmp_path, LLAMA_31), rates(tmp_path, without(LLAMA_31, "rope_scaling")))
    cosines = [found.mean_cosine(distance) for distance in DISTANCES]
    assert cosines == pytest.approx([0.963, 0.769, 0.627, 0.539], abs=6e-4)


def test_the_measured_share_is_one_draw_of_it(tmp_path):
    # The report measured one vector: its cosine is a mean over pairs with weights that are exponential for normal
    # numbers, so it deviates from the even mean by about the spread of the cosines over the root of 64.
    ours, theirs = (np.array(rates(tmp_path, each)) for each in (LLAMA_31, without(LLAMA_31, "rope_scaling")))
    for distance, measured in zip(DISTANCES, (0.959, 0.757, 0.619, 0.503), strict=True):
        cosines = np.cos(distance * (ours - theirs))
        assert abs(measured - cosines.mean()) < 2 * cosines.std() / math.sqrt(64)


def ramp(scaled, plain, factor):
    """The pairs that are left alone up to, and those that are stretched in full from."""
    share = np.array(plain) / np.array(scaled)
    return int(np.flatnonzero(share < 1 + 1e-9)[-1]), int(np.flatnonzero(share > factor - 1e-9)[0])


def test_the_ramp_moves_from_23_40_to_30_47_without_the_original_length(tmp_path):
    # YaRN of factor 4 on base 1,000,000 and heads of 128 channels, trained on 32,768 positions of 131,072.
    plain = rates(tmp_path, without(QWEN2_YARN, "rope_scaling"))
    right = rates(tmp_path, QWEN2_YARN)
    wrong = rates(tmp_path, block_with(QWEN2_YARN, original_max_position_embeddings=None))
    assert ramp(right, plain, 4.0) == (23, 40)
    assert ramp(wrong, plain, 4.0) == (30, 47)
    found = difference(right, wrong)
    assert (found.first, found.last) == (24, 46)


# The command prints the same figures.


@pytest.fixture
def diff(tmp_path):
    def run(*configs, **options):
        paths = []
        for number, config in enumerate(configs):
            path = tmp_path / f"{number}.json"
            path.write_text(json.dumps(config), encoding="utf-8")
            paths.append(str(path))
        named = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        done = CliRunner().invoke(main, ["diff", *paths, *named, "--json"], prog_name="clockhands")
        assert done.exit_code == 1, done.output
        (group,) = json.loads(done.stdout)["groups"]
        return group["rates"]

    return run


def test_the_command_says_354_times(diff):
    found = diff(new_shape(NARROW), readers="transformers-4,transformers-5")
    assert (round(found["largest_ratio"]), found["largest_ratio_pair"]) == (354, 31)


def test_the_command_says_the_cosine_of_the_length(diff):
    found = diff(LLAMA_31, readers="clockhands,no-scaling", length=20000)
    at = {row["distance"]: row["mean_cosine"] for row in found["at"]}
    assert at[20000] == pytest.approx(0.627, abs=6e-4)


def test_the_command_says_which_pairs_the_ramp_moved_over(diff):
    found = diff(QWEN2_YARN, block_with(QWEN2_YARN, original_max_position_embeddings=None))
    assert (found["first_pair"], found["last_pair"]) == (24, 46)
