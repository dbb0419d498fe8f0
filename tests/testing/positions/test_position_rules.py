"""The rules of families against the functions of the pinned Transformers, over drawn prompts."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import clockhands as ch
from clockhands.recognition.token_positions import (
    PromptPart,
    delta,
    given_batch,
    positions,
    prompt_of,
    rules_of,
    rules_of_config,
)
from clockhands.testing.positions._position_calls import PositionFunction
from testing.positions.rope_indices import FAMILIES, rope_index, transformers

DRAWS = 40
RATES = (1, 2, 3, 5, 10, 23.976, 24, 25, 29.97, 30, 50, 60)  # frames per second
PUBLISHED = Path(__file__).parents[2] / "published" / "configs"


def drawn_prompt(rule, chance):
    """A batch of one to three rows, each a few words, images, videos and audio; in some all videos have audio."""
    audible = rule.audio_order != "none" and chance.random() < 0.5

    def document():
        parts = [PromptPart("text", chance.randint(1, 6))]
        for _ in range(chance.randint(0, 3)):
            kind = chance.choice(["image", "video", *(["audio"] if rule.audio_rate else [])])
            frames = chance.randint(1, 9) if kind == "video" else 1
            cells = (frames, chance.randint(1, 6), chance.randint(1, 6))
            audio = chance.randint(1, 12) if kind == "audio" else chance.randint(1, 99) * (kind == "video" and audible)
            parts += [
                PromptPart(kind, audio, cells, chance.choice([chance.randint(1, 64) / 16, 2 / chance.choice(RATES)])),
                PromptPart("text", chance.randint(1, 4)),
            ]
        return tuple(parts)

    # Each prompt has an image: without one, some of these functions count text in another branch.
    image = (PromptPart("text", 2), PromptPart("image", cells=(1, 2, 3)))
    rows = [(image + document(),), *((document(),) for _ in range(chance.randint(0, 2)))]
    return prompt_of("drawn", tuple(rows), rule, left=chance.random() < 0.5)


@pytest.mark.parametrize("family", FAMILIES)
def test_positions_of_drawn_prompts_are_those_of_transformers(family, request, cases):
    rule = rules_of(family)[-1]
    called = PositionFunction(rope_index(family), rule, None, None)
    seed = request.config.getoption("randomly_seed", 0)
    rounding = 2.0**-20 if rule.times == "exact" else 0
    assert called.find_library("torch", lambda: None) == []
    for number in range(DRAWS * (1 + (rule.audio_order != "none"))):
        prompt = drawn_prompt(rule, random.Random(f"{seed} {family} {number}"))
        with cases(family, number, prompt.rows):
            got, deltas = called.positions(prompt)
            wanted = positions(rule, prompt)
            np.testing.assert_allclose(np.where(prompt.mask, got, np.nan), wanted, rtol=rounding, atol=0)
            np.testing.assert_allclose(deltas, delta(wanted, prompt), rtol=0, atol=rounding * 2048)
            batch = given_batch(
                rule, prompt.ids, mask=prompt.mask, grids={kind: prompt.grids(kind) for kind in ("image", "video")},
                seconds=[part.seconds for part in prompt.parts if part.kind == "video"],
            )  # fmt: skip
            np.testing.assert_array_equal(positions(rule, batch), wanted)
            videos = [part.seconds for part in prompt.parts if part.kind == "video"]
            batch = {
                "input_ids": prompt.ids, "attention_mask": prompt.mask, "position_ids": got,
                "mm_token_type_ids": prompt.types, "second_per_grid_ts": videos,
                **{f"{kind}_grid_thw": prompt.grids(kind) for kind in ("image", "video")},
            }  # fmt: skip
            assert ch.check_batch(family, {name: held for name, held in batch.items() if held is not None}).sound


def test_the_rules_of_a_loaded_config_are_those_of_its_family(cases):
    for family in FAMILIES:
        with cases(family):
            assert rules_of_config(rope_index(family).args[0].config) == rules_of(family)
    omni = {"model_type": "qwen3_omni_moe", "thinker_config": {"position_id_per_seconds": 11, "audio_token_id": 5}}
    assert {(rule.per_second, rule.tokens.audio) for rule in rules_of_config(omni)} == {(11, 5)}
    config = rope_index("qwen2_5_vl", tokens_per_second=2, image_token_id=7).args[0].config
    assert {(rule.per_second, rule.tokens.image) for rule in rules_of_config(config)} == {(2.0, 7)}
    assert rules_of_config(transformers.LlamaConfig()) is None


def test_positions_per_second_are_those_of_the_published_file(cases):
    published = json.loads((PUBLISHED / "qwen2.5-vl-7b.json").read_text(encoding="utf-8"))["config"]
    default = transformers.Qwen2_5_VLConfig()
    for config, per_second in ((published, 2.0), (default, default.vision_config.tokens_per_second)):
        with cases(per_second):
            assert rules_of_config(config)[0].per_second == per_second
    assert rules_of("qwen2_5_vl")[0].per_second == 2.0
    del published["vision_config"]["tokens_per_second"]
    assert rules_of_config(published)[0].per_second == default.vision_config.tokens_per_second


def test_another_rule_has_other_positions():
    prompt = drawn_prompt(rules_of("qwen2_vl")[0], random.Random(1))
    right = positions(prompt.rule, prompt)
    assert not np.array_equal(positions(replace(prompt.rule, scan="tcr"), prompt), right, equal_nan=True)
