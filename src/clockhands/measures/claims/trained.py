"""Claims that only training can decide: what the lab's studies measured on trained models."""

import math
from statistics import fmean

from clockhands.measures.claims.claim import Numbers, claim
from clockhands.measures.claims.studies import measured, real_model


@claim("counter-harms-training")
def counter_harms_training() -> Numbers:
    """Copies and losses of models of 0.1 million parameters, after 200 steps at 64 tokens."""
    study = measured("naive")
    copies = {
        arm: study.value("copy", arm, "accuracy").mean for arm in ("none", "counter", "counter_one", "sinusoidal")
    }
    less = study.difference("language", "counter_one", "none")
    return {
        "measured_right_copies_with_a_counter_in_one_channel": copies["counter_one"],
        "measured_right_copies_with_a_counter_in_all_channels": copies["counter"],
        "measured_right_copies_without_a_code": copies["none"],
        "measured_right_copies_with_sinusoids": copies["sinusoidal"],
        "measured_loss_of_text_less_that_without_a_code": less.mean,
        "measured_loss_of_text_less_that_without_a_code_least": less.least,
        "measured_loss_of_text_less_that_without_a_code_most": less.most,
        "measured_loss_of_text_less_that_of_sinusoids": study.difference("language", "counter_one", "sinusoidal").mean,
        "measured_loss_at_256_tokens_less_that_without_a_code": study.difference(
            "language", "counter_one", "none", length=256
        ).mean,
        **of_unnormalised(),
        "measured_first_gradient_norm_with_a_counter_in_one_channel": study.value(
            "language", "counter_one", "gradient_norm_start"
        ).mean,
        "measured_first_gradient_norm_with_sinusoids": study.value(
            "language", "sinusoidal", "gradient_norm_start"
        ).mean,
    }


def of_unnormalised() -> Numbers:
    """First gradients and losses of copying models without normalisation, and the loss of guessing one of 32 tokens."""
    models = real_model("lab_counters")["models"]["copy"]
    names = {
        "counter": "a_counter_in_all_channels",
        "counter_one": "a_counter_in_one_channel",
        "sinusoidal": "sinusoids",
    }
    found: Numbers = {
        f"first_gradient_without_norms_with_{name}": fmean(models[arm]["first_gradient"]) for arm, name in names.items()
    }
    return found | {
        "loss_of_copies_without_norms_with_a_counter_in_all_channels": fmean(models["counter"]["loss_64_whole"]),
        **{
            f"right_copies_without_norms_with_{names[arm]}": fmean(models[arm]["accuracy_64_whole"])
            for arm in ("counter_one", "sinusoidal")
        },
        "loss_of_copies_by_guessing": math.log(32),
    }


@claim("learned-and-sinusoidal-alike")
def learned_and_sinusoidal_alike() -> Numbers:
    """Losses and copies of both tables at the trained length."""
    short, long = measured("naive"), measured("extrapolation")
    early, late = (each.difference("language", "learned", "sinusoidal") for each in (short, long))
    return {
        "measured_loss_of_learned_less_sinusoidal_after_200_steps": early.mean,
        "measured_loss_of_learned_less_sinusoidal_after_200_steps_least": early.least,
        "measured_loss_of_learned_less_sinusoidal_after_500_steps": late.mean,
        "measured_loss_of_learned_less_sinusoidal_after_500_steps_least": late.least,
        "measured_right_copies_with_learned_after_200_steps": short.value("copy", "learned", "accuracy").mean,
        "measured_right_copies_with_sinusoidal_after_200_steps": short.value("copy", "sinusoidal", "accuracy").mean,
    }


@claim("sinusoids-extrapolate-better-than-learned")
def sinusoids_extrapolate_better_than_learned() -> Numbers:
    """Losses of models trained at 64 tokens."""
    study = measured("extrapolation")
    twice, eight = (study.difference("language", "learned_long", "sinusoidal", length=each) for each in (128, 512))
    losses = {arm: study.value("language", arm, length=128).mean for arm in ("sinusoidal", "learned_long", "none")}
    return {
        "measured_loss_at_128_tokens_with_sinusoids": losses["sinusoidal"],
        "measured_loss_at_128_tokens_with_untrained_rows": losses["learned_long"],
        "measured_loss_at_128_tokens_without_a_code": losses["none"],
        "measured_sinusoids_ahead_at_128_tokens_by": twice.mean,
        "measured_sinusoids_ahead_at_128_tokens_by_at_least": twice.least,
        "measured_sinusoids_ahead_at_512_tokens_by": eight.mean,
        "measured_sinusoids_ahead_at_512_tokens_by_at_least": eight.least,
    }


@claim("removing-the-code-breaks-the-model")
def removing_the_code_breaks_the_model() -> Numbers:
    """Losses and right answers with the code and, in the same model, without it."""
    study = measured("ablation")
    rises = {
        arm: study.difference("language", arm, arm, variant="removed").mean
        for arm in ("learned", "sinusoidal", "rotary", "alibi")
    }
    models = {
        "rise": [study.difference("language", arm, arm, variant="removed") for arm in rises],
        "above": [study.difference("language", arm, "none", variant="removed") for arm in rises],
    }
    each = {name: [one for arm in found for one in arm.seeds.values()] for name, found in models.items()}
    useless = study.difference("absolute", "alibi", "alibi", "accuracy", variant="removed")
    return {
        **{f"measured_rise_of_the_loss_of_text_when_{arm}_is_removed": rise for arm, rise in rises.items()},
        "measured_smallest_rise_in_12_models": min(each["rise"]),
        "measured_largest_rise_in_12_models": max(each["rise"]),
        "measured_smallest_loss_of_12_above_a_model_without_a_code": min(each["above"]),
        "measured_rise_of_the_loss_of_glassllm": measured("drope").value("glassllm", "glass_dropped", "spike").mean,
        "measured_right_copies_with_rotary": study.value("copy", "rotary", "accuracy").mean,
        "measured_right_copies_when_it_is_removed": study.value("copy", "rotary", "accuracy", variant="removed").mean,
        "measured_right_copies_of_a_model_that_never_had_a_code": study.value("copy", "none", "accuracy").mean,
        "measured_largest_change_where_alibi_is_of_no_use": max(map(abs, useless.seeds.values())),
    }


@claim("dropped-rotary-recovers")
def dropped_rotary_recovers() -> Numbers:
    """Arms of the study that removes RoPE: at three quarters of 600 steps, and with 450 steps before and after."""
    study = measured("drope")
    return {
        "measured_rise_of_the_loss_when_dropped": study.value("language", "drop_75", "spike").mean,
        "measured_part_won_back_in_150_steps_after_450": study.value("language", "drop_75", "won_back").mean,
        "measured_part_won_back_in_450_steps_after_450": study.value("language", "drop_75_long", "won_back").mean,
        "measured_loss_at_64_tokens_less_that_of_rotary": study.difference("language", "drop_75", "rotary").mean,
        "measured_loss_at_64_tokens_less_that_without_a_code": study.difference("language", "drop_75", "none").mean,
        "measured_the_same_after_450_steps": study.difference("language", "drop_75_long", "none").mean,
        "measured_loss_at_256_tokens_less_that_of_rotary": study.difference(
            "language", "drop_75", "rotary", length=256
        ).mean,
        "measured_loss_at_256_tokens_less_that_of_rotary_with_yarn": study.difference(
            "language", "drop_75", "rotary", length=256, minus_variant="yarn"
        ).mean,
        "measured_right_recalls_of_rotary": study.value("recall", "rotary", "accuracy").mean,
        "measured_right_recalls_when_dropped_and_675_steps_later": study.value(
            "recall", "drop_75_long", "accuracy"
        ).mean,
        "measured_loss_of_glassllm_less_that_with_its_code_after_300_steps": study.difference(
            "glassllm", "glass_dropped", "glass_rotary"
        ).mean,
    }
