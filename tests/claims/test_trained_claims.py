"""What was measured of trained models, taken from the seeds of the stored results without clockhands."""

import json
from pathlib import Path
from statistics import fmean

import pytest

import clockhands.claims
from clockhands.claims import CLAIMS

STUDIES = json.loads((Path(clockhands.claims.__file__).parent / "studies.json").read_text(encoding="utf-8"))["studies"]


def seeds(study, *path):
    """The number of each seed, as it is stored: task, arm, [variant, protocol,] measure and length."""
    task, arm, *path = path
    *where, measure, length = path
    if not where:
        where = ["as trained", "whole"]
    found = STUDIES[study]["tasks"][task]["cells"][arm]
    for step in (*where, measure, str(length)):
        found = found[step]
    return found[3:]


def of_training(study, task, arm, measure):
    """The number of each seed, of a measure without a length."""
    return STUDIES[study]["tasks"][task]["training"][arm][measure][3:]


def less(one, other):
    """Differences seed by seed."""
    return [a - b for a, b in zip(one, other, strict=True)]


def over(one, other):
    """Ratios seed by seed."""
    return [a / b for a, b in zip(one, other, strict=True)]


def ratio(arm, length, protocol="whole"):
    """Losses over those at 64 tokens, in the study `extrapolation`."""
    own, trained = (seeds("extrapolation", "language", arm, "as trained", protocol, "loss", n) for n in (length, 64))
    return over(own, trained)


def text(study, arm, length=64, variant="as trained"):
    """Losses of text."""
    return seeds(study, "language", arm, variant, "whole", "loss", length)


def right(study, task, arm, length=64):
    """The mean share of right answers."""
    return fmean(seeds(study, task, arm, "accuracy", length))


def that_recall(*bases):
    """How many seeds recall at least 0.9 of the keys, by base."""
    return {
        f"seeds_of_3_that_learn_to_recall_with_base_{base}": len(
            [share for share in seeds("base-bound", "recall", f"base_{base}", "accuracy", 64) if share >= 0.9]
        )
        for base in bases
    }


# With three seeds the 95 % interval is from the smallest to the largest.
BY_HAND = {
    "t5-any-distance": lambda: {
        "loss_ratio_of_128_to_64_trained_tokens": fmean(ratio("t5", 128)),
        "loss_ratio_of_128_to_64_trained_tokens_least": min(ratio("t5", 128)),
        "loss_ratio_of_256_to_64_trained_tokens": fmean(ratio("t5", 256)),
        "loss_ratio_of_512_to_64_trained_tokens": fmean(ratio("t5", 512)),
    },
    "alibi-uses-longer-context": lambda: {
        "loss_ratio_at_512_tokens_whole_windows": fmean(ratio("alibi", 512)),
        "loss_ratio_at_512_tokens_whole_windows_most": max(ratio("alibi", 512)),
        "loss_ratio_at_512_tokens_sliding_windows": fmean(ratio("alibi", 512, "sliding")),
        "loss_ratio_at_512_tokens_sliding_windows_least": min(ratio("alibi", 512, "sliding")),
    },
    "alibi-slopes-are-essential": lambda: {
        "loss_with_all_doubled_less_the_own": fmean(less(text("slopes", "doubled"), text("slopes", "alibi"))),
        "loss_with_all_halved_less_the_own": fmean(less(text("slopes", "halved"), text("slopes", "alibi"))),
        "loss_with_drawn_slopes_less_the_own": fmean(less(text("slopes", "drawn"), text("slopes", "alibi"))),
        "loss_with_drawn_slopes_less_the_own_least": min(less(text("slopes", "drawn"), text("slopes", "alibi"))),
        "loss_with_drawn_slopes_less_the_own_most": max(less(text("slopes", "drawn"), text("slopes", "alibi"))),
        "loss_without_a_code_less_the_own": fmean(less(text("slopes", "none"), text("slopes", "alibi"))),
        "largest_loss_ratio_of_256_to_64_trained_tokens": max(
            fmean(over(text("slopes", arm, 256), text("slopes", arm)))
            for arm in ("alibi", "doubled", "halved", "drawn")
        ),
    },
    "sinks-come-from-the-code": lambda: {
        "share_of_the_first_without_a_code": fmean(seeds("sinks", "language", "none", "sink_share", 64)),
        "largest_share_of_the_first_with_a_code": max(
            fmean(seeds("sinks", "language", arm, "sink_share", 64))
            for arm in ("learned", "sinusoidal", "rotary", "alibi", "t5")
        ),
        "even_share": fmean(1 / seen for seen in range(33, 65)),
    },
    "sinusoids-extrapolate": lambda: {
        "loss_at_64_trained_tokens": fmean(text("extrapolation", "sinusoidal")),
        "loss_at_128_tokens": fmean(text("extrapolation", "sinusoidal", 128)),
        "loss_at_128_tokens_without_a_code": fmean(text("extrapolation", "none", 128)),
        "loss_ratio_of_128_to_64_tokens": fmean(ratio("sinusoidal", 128)),
        "loss_ratio_of_128_to_64_tokens_least": min(ratio("sinusoidal", 128)),
        "loss_ratio_of_512_to_64_tokens": fmean(ratio("sinusoidal", 512)),
        "share_of_right_copies_at_64_trained_tokens": right("quick", "copy", "sinusoidal"),
        "share_of_right_copies_at_256_tokens": right("quick", "copy", "sinusoidal", 256),
    },
    "rotary-any-length": lambda: {
        "loss_ratio_of_128_to_64_trained_tokens": fmean(ratio("rotary", 128)),
        "loss_ratio_of_128_to_64_trained_tokens_least": min(ratio("rotary", 128)),
        "loss_ratio_of_256_to_64_trained_tokens": fmean(ratio("rotary", 256)),
        "loss_ratio_of_512_to_64_trained_tokens": fmean(ratio("rotary", 512)),
        "loss_ratio_of_512_to_64_trained_tokens_for_alibi": fmean(ratio("alibi", 512)),
    },
    "base-tuned-by-experiments": lambda: {
        **that_recall(100, 400, 10_000),
        **{f"right_recalls_with_base_{base}": right("base-bound", "recall", f"base_{base}") for base in (100, 10_000)},
    },
    "base-10000-for-any-length": lambda: {
        **that_recall(10, 100, 400, 10_000),
        # The last of the distances, the best seed
        "keys_found_at_56_to_62_tokens_with_base_100_once_learnt": max(
            STUDIES["base-bound"]["tasks"]["recall"]["places"]["arms"]["base_100"][-1][3:]
        ),
        "keys_found_with_base_10": right("base-bound", "recall", "base_10"),
    },
    "yarn-without-training": lambda: {
        "loss_ratio_of_256_to_64_trained_tokens": fmean(
            over(text("scaling", "rotary", 256, "yarn"), text("scaling", "rotary", 64, "yarn"))
        ),
        "the_same_without_yarn": fmean(over(text("scaling", "rotary", 256), text("scaling", "rotary", 64))),
        "right_recalls_at_256_tokens": fmean(seeds("drope", "recall", "rotary", "yarn", "whole", "accuracy", 256)),
        "right_recalls_at_256_tokens_without_yarn": right("drope", "recall", "rotary", 256),
        "loss_of_glassllm_at_128_trained_tokens": fmean(seeds("drope", "glassllm", "glass_rotary", "loss", 128)),
        "loss_of_glassllm_at_512_tokens_with_yarn": fmean(
            seeds("drope", "glassllm", "glass_rotary", "yarn", "whole", "loss", 512)
        ),
        "loss_of_glassllm_at_512_tokens_without_yarn": fmean(
            seeds("drope", "glassllm", "glass_rotary", "as trained", "whole", "loss", 512)
        ),
    },
    "counter-harms-training": lambda: {
        "right_copies_with_a_counter_in_one_channel": right("naive", "copy", "counter_one"),
        "right_copies_with_a_counter_in_all_channels": right("naive", "copy", "counter"),
        "right_copies_without_a_code": right("naive", "copy", "none"),
        "right_copies_with_sinusoids": right("naive", "copy", "sinusoidal"),
        "loss_of_text_less_that_without_a_code": fmean(less(text("naive", "counter_one"), text("naive", "none"))),
        "loss_of_text_less_that_without_a_code_least": min(less(text("naive", "counter_one"), text("naive", "none"))),
        "loss_of_text_less_that_without_a_code_most": max(less(text("naive", "counter_one"), text("naive", "none"))),
        "loss_of_text_less_that_of_sinusoids": fmean(less(text("naive", "counter_one"), text("naive", "sinusoidal"))),
        "loss_at_256_tokens_less_that_without_a_code": fmean(
            less(text("naive", "counter_one", 256), text("naive", "none", 256))
        ),
        "first_gradient_norm_with_a_counter_in_one_channel": fmean(
            of_training("naive", "language", "counter_one", "gradient_norm_start")
        ),
        "first_gradient_norm_with_sinusoids": fmean(
            of_training("naive", "language", "sinusoidal", "gradient_norm_start")
        ),
    },
    "learned-and-sinusoidal-alike": lambda: {
        "loss_of_learned_less_sinusoidal_after_200_steps": fmean(
            less(text("naive", "learned"), text("naive", "sinusoidal"))
        ),
        "loss_of_learned_less_sinusoidal_after_200_steps_least": min(
            less(text("naive", "learned"), text("naive", "sinusoidal"))
        ),
        "loss_of_learned_less_sinusoidal_after_500_steps": fmean(
            less(text("extrapolation", "learned"), text("extrapolation", "sinusoidal"))
        ),
        "loss_of_learned_less_sinusoidal_after_500_steps_least": min(
            less(text("extrapolation", "learned"), text("extrapolation", "sinusoidal"))
        ),
        "right_copies_with_learned_after_200_steps": right("naive", "copy", "learned"),
        "right_copies_with_sinusoidal_after_200_steps": right("naive", "copy", "sinusoidal"),
    },
    "sinusoids-extrapolate-better-than-learned": lambda: {
        "loss_at_128_tokens_with_sinusoids": fmean(text("extrapolation", "sinusoidal", 128)),
        "loss_at_128_tokens_with_untrained_rows": fmean(text("extrapolation", "learned_long", 128)),
        "loss_at_128_tokens_without_a_code": fmean(text("extrapolation", "none", 128)),
        "sinusoids_ahead_at_128_tokens_by": fmean(untrained_rows_cost(128)),
        "sinusoids_ahead_at_128_tokens_by_at_least": min(untrained_rows_cost(128)),
        "sinusoids_ahead_at_512_tokens_by": fmean(untrained_rows_cost(512)),
        "sinusoids_ahead_at_512_tokens_by_at_least": min(untrained_rows_cost(512)),
    },
    "removing-the-code-breaks-the-model": lambda: {
        **{
            f"rise_of_the_loss_of_text_when_{arm}_is_removed": fmean(
                less(text("ablation", arm, variant="removed"), text("ablation", arm))
            )
            for arm in ("learned", "sinusoidal", "rotary", "alibi")
        },
        "least_loss_of_text_above_a_model_that_never_had_a_code": min(
            fmean(less(text("ablation", arm, variant="removed"), text("ablation", "none")))
            for arm in ("learned", "sinusoidal", "rotary", "alibi")
        ),
        "rise_of_the_loss_of_glassllm": fmean(of_training("drope", "glassllm", "glass_dropped", "spike")),
        "right_copies_with_rotary": right("ablation", "copy", "rotary"),
        "right_copies_when_it_is_removed": fmean(
            seeds("ablation", "copy", "rotary", "removed", "whole", "accuracy", 64)
        ),
        "right_copies_of_a_model_that_never_had_a_code": right("ablation", "copy", "none"),
        "largest_change_where_alibi_is_of_no_use": max(
            abs(change)
            for change in less(
                seeds("ablation", "absolute", "alibi", "removed", "whole", "accuracy", 64),
                seeds("ablation", "absolute", "alibi", "accuracy", 64),
            )
        ),
    },
    "dropped-rotary-recovers": lambda: {
        "rise_of_the_loss_when_dropped": fmean(of_training("drope", "language", "drop_75", "spike")),
        "part_won_back_in_150_steps_after_450": fmean(of_training("drope", "language", "drop_75", "won_back")),
        "part_won_back_in_450_steps_after_450": fmean(of_training("drope", "language", "drop_75_long", "won_back")),
        "loss_at_64_tokens_less_that_of_rotary": fmean(less(text("drope", "drop_75"), text("drope", "rotary"))),
        "loss_at_64_tokens_less_that_without_a_code": fmean(less(text("drope", "drop_75"), text("drope", "none"))),
        "the_same_after_450_steps": fmean(less(text("drope", "drop_75_long"), text("drope", "none"))),
        "loss_at_256_tokens_less_that_of_rotary": fmean(
            less(text("drope", "drop_75", 256), text("drope", "rotary", 256))
        ),
        "loss_at_256_tokens_less_that_of_rotary_with_yarn": fmean(
            less(text("drope", "drop_75", 256), text("drope", "rotary", 256, "yarn"))
        ),
        "right_recalls_of_rotary": right("drope", "recall", "rotary"),
        "right_recalls_when_dropped_and_675_steps_later": right("drope", "recall", "drop_75_long"),
        "loss_of_glassllm_less_that_with_its_code_after_300_steps": fmean(
            less(
                seeds("drope", "glassllm", "glass_dropped", "loss", 128),
                seeds("drope", "glassllm", "glass_rotary", "loss", 128),
            )
        ),
    },
}


def untrained_rows_cost(length):
    """Losses with untrained rows of a learned table, less those of sinusoids."""
    return less(text("extrapolation", "learned_long", length), text("extrapolation", "sinusoidal", length))


@pytest.mark.parametrize("name", [name for name, told in CLAIMS.items() if told.measured])
def test_what_was_measured_follows_from_the_seeds(name):
    stated = {each: number for each, number in CLAIMS[name].numbers.items() if each.startswith("measured_")}
    found = {f"measured_{each}": number for each, number in BY_HAND[name]().items()}
    assert set(found) == set(stated)
    assert {each: (found[each], stated[each].text) for each in found if not stated[each].holds(found[each])} == {}
