"""Claims about trained models that only training can settle: what the lab's studies measured."""

from clockhands.claims.claim import Numbers, claim, near
from clockhands.claims.measured import measured

VASWANI = "Vaswani et al. 2017, arXiv:1706.03762"


@claim(
    "counter-harms-training",
    "Adding the position as a counter, 0, 1, 2, …, ruins training.",
    "only if",
    condition='"ruins" is against sinusoids; against no code at all a counter is no worse within the trained length.',
    numbers={
        "measured_right_copies_with_a_counter_in_one_channel": near("0.440"),
        "measured_right_copies_with_a_counter_in_all_channels": near("0.189"),
        "measured_right_copies_without_a_code": near("0.189"),
        "measured_right_copies_with_sinusoids": near("1.000"),
        "measured_loss_of_text_less_that_without_a_code": near("0.011"),
        "measured_loss_of_text_less_that_without_a_code_least": near("-0.069"),
        "measured_loss_of_text_less_that_without_a_code_most": near("0.053"),
        "measured_loss_of_text_less_that_of_sinusoids": near("0.246"),
        "measured_loss_at_256_tokens_less_that_without_a_code": near("0.270"),
        "measured_first_gradient_norm_with_a_counter_in_one_channel": near("1.932"),
        "measured_first_gradient_norm_with_sinusoids": near("1.285"),
    },
    argument=(
        "In all channels LayerNorm removes it: copies are as without a code. In one channel the first gradient is 1.5 "
        "times that of sinusoids, training goes on, and 44 % of the copies are right instead of 19 %. Past the 64 "
        "trained tokens it is worse than no code. All at 0.1 million parameters, 200 steps, gradients clipped."
    ),
    source="measured; most introductions to position codes say it",
    measured=("naive",),
    waits_for="the same in a model without LayerNorm, or without clipped gradients.",
)
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
        "measured_first_gradient_norm_with_a_counter_in_one_channel": study.value(
            "language", "counter_one", "gradient_norm_start"
        ).mean,
        "measured_first_gradient_norm_with_sinusoids": study.value(
            "language", "sinusoidal", "gradient_norm_start"
        ).mean,
    }


@claim(
    "learned-and-sinusoidal-alike",
    "Learned and sinusoidal tables do nearly alike within the trained length.",
    "only if",
    condition="the learned table is trained long enough: it starts from small random numbers.",
    numbers={
        "measured_loss_of_learned_less_sinusoidal_after_200_steps": near("0.185"),
        "measured_loss_of_learned_less_sinusoidal_after_200_steps_least": near("0.151"),
        "measured_loss_of_learned_less_sinusoidal_after_500_steps": near("0.035"),
        "measured_loss_of_learned_less_sinusoidal_after_500_steps_least": near("0.026"),
        "measured_right_copies_with_learned_after_200_steps": near("0.998"),
        "measured_right_copies_with_sinusoidal_after_200_steps": near("1.000"),
    },
    argument=(
        "On text sinusoids are ahead by 0.19 nats after 200 steps and by 0.04 after 500; both copy nearly all tokens. "
        "In translation the paper has 25.7 BLEU for learned and 25.8 for sinusoidal tables. Measured at 0.1 million "
        "parameters and 64 tokens, with one learning rate for both."
    ),
    source=f"{VASWANI}, Table 3, row E: nearly identical",
    measured=("naive", "extrapolation"),
)
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


@claim(
    "sinusoids-extrapolate-better-than-learned",
    "Past the trained length sinusoids do better than a learned table.",
    "only if",
    condition='"better" means a smaller loss; both are worse there than no code at all.',
    numbers={
        "measured_loss_at_128_tokens_with_sinusoids": near("2.554"),
        "measured_loss_at_128_tokens_with_untrained_rows": near("2.676"),
        "measured_loss_at_128_tokens_without_a_code": near("2.446"),
        "measured_sinusoids_ahead_at_128_tokens_by": near("0.122"),
        "measured_sinusoids_ahead_at_128_tokens_by_at_least": near("0.105"),
        "measured_sinusoids_ahead_at_512_tokens_by": near("0.161"),
        "measured_sinusoids_ahead_at_512_tokens_by_at_least": near("0.069"),
    },
    argument=(
        "A learned table of 512 rows, of which training at 64 tokens reaches 64, holds small random numbers in "
        "the others. At 128 tokens sinusoids are 0.12 nats better, and 0.11 worse than no code. Most models with a "
        "learned table have no such rows and refuse longer texts. Measured at 0.13 million parameters."
    ),
    source=f"{VASWANI}, section 3.5, chose sinusoids because they may extrapolate, and did not test it",
    measured=("extrapolation",),
)
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


@claim(
    "removing-the-code-breaks-the-model",
    "Remove the position code from a trained model and the model breaks.",
    "only if",
    condition="the task needs the code, as text and copying do.",
    numbers={
        "measured_rise_of_the_loss_of_text_when_learned_is_removed": near("0.404"),
        "measured_rise_of_the_loss_of_text_when_sinusoidal_is_removed": near("0.742"),
        "measured_rise_of_the_loss_of_text_when_rotary_is_removed": near("1.159"),
        "measured_rise_of_the_loss_of_text_when_alibi_is_removed": near("0.619"),
        "measured_least_loss_of_text_above_a_model_that_never_had_a_code": near("0.163"),
        "measured_rise_of_the_loss_of_glassllm": near("0.544"),
        "measured_right_copies_with_rotary": near("1.000"),
        "measured_right_copies_when_it_is_removed": near("0.055"),
        "measured_right_copies_of_a_model_that_never_had_a_code": near("0.211"),
        "measured_largest_change_where_alibi_is_of_no_use": near("0.002"),
    },
    argument=(
        "Removed at test time, each of four codes costs 0.4 to 1.2 nats on text and nearly all right copies: more than "
        "never having had one. glassllm, trained by others, loses 0.54 nats. Where ALiBi is of no use, for saying the "
        "position modulo 8, nothing changes. Models of 0.1 and 0.85 million parameters."
    ),
    source="measured; Haviv et al. 2022, arXiv:2203.16634: models that never had a code model text nearly as well",
    measured=("ablation", "drope"),
)
def removing_the_code_breaks_the_model() -> Numbers:
    """Losses and right answers with the code and, in the same model, without it."""
    study = measured("ablation")
    rises = {
        arm: study.difference("language", arm, arm, variant="removed").mean
        for arm in ("learned", "sinusoidal", "rotary", "alibi")
    }
    above = [study.difference("language", arm, "none", variant="removed").mean for arm in rises]
    useless = study.difference("absolute", "alibi", "alibi", "accuracy", variant="removed")
    return {
        **{f"measured_rise_of_the_loss_of_text_when_{arm}_is_removed": rise for arm, rise in rises.items()},
        "measured_least_loss_of_text_above_a_model_that_never_had_a_code": min(above),
        "measured_rise_of_the_loss_of_glassllm": measured("drope").value("glassllm", "glass_dropped", "spike").mean,
        "measured_right_copies_with_rotary": study.value("copy", "rotary", "accuracy").mean,
        "measured_right_copies_when_it_is_removed": study.value("copy", "rotary", "accuracy", variant="removed").mean,
        "measured_right_copies_of_a_model_that_never_had_a_code": study.value("copy", "none", "accuracy").mean,
        "measured_largest_change_where_alibi_is_of_no_use": max(map(abs, useless.seeds.values())),
    }


@claim(
    "dropped-rotary-recovers",
    "A rotary code can be dropped after training: a short recalibration makes the model as good as before.",
    "only if",
    condition="the model is large: the paper reports it of 494 million parameters; at 0.13 million it is not so.",
    numbers={
        "measured_rise_of_the_loss_when_dropped": near("1.393"),
        "measured_part_won_back_in_150_steps_after_450": near("0.60"),
        "measured_part_won_back_in_450_steps_after_450": near("0.66"),
        "measured_loss_at_64_tokens_less_that_of_rotary": near("0.620"),
        "measured_loss_at_64_tokens_less_that_without_a_code": near("0.078"),
        "measured_the_same_after_450_steps": near("-0.006"),
        "measured_loss_at_256_tokens_less_that_of_rotary": near("-0.357"),
        "measured_loss_at_256_tokens_less_that_of_rotary_with_yarn": near("0.474"),
        "measured_right_recalls_of_rotary": near("1.000"),
        "measured_right_recalls_when_dropped_and_675_steps_later": near("0.845"),
        "measured_loss_of_glassllm_less_that_with_its_code_after_300_steps": near("0.622"),
    },
    argument=(
        "At 0.13 million parameters dropping costs 1.39 nats. 150 steps win back 60 % of it, 450 steps 66 %: after 900 "
        "steps in all the model is as good as one that never had a code after 600, and 0.54 nats behind rotary. Rates, "
        "norms and depth change that little. At 4 times the length it beats rotary, and not rotary with YaRN."
    ),
    source=(
        "Gelberg et al. 2025 (DroPE), arXiv:2512.12167: perplexity 21.73 dropped at 87.5 % of the training and 21.72 "
        "with rotary to the end"
    ),
    measured=("drope",),
    waits_for="the same at the paper's size: 494 million parameters, 14.7 billion tokens before and 2.1 billion after.",
)
def dropped_rotary_recovers() -> Numbers:
    """Arms of the study of dropping: at three quarters of 600 steps, and with 450 steps before and after."""
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
