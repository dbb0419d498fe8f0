"""Claims of introductions to sinusoidal embeddings: what they say of language, of other encodings and of training."""

import math
from itertools import pairwise

import numpy as np

from clockhands.encodings.additive import Sinusoidal, add, table
from clockhands.encodings.clocks import shift
from clockhands.encodings.ladders import geometric
from clockhands.measures import dot_products_by_distance, judged
from clockhands.measures.claims.attention import through
from clockhands.measures.claims.claim import Numbers, claim
from clockhands.measures.claims.studies import AS_TRAINED, measured, real_model

_SCALES = (6, 20, 50, 200, 1000)
"""Tokens of a word, a phrase, a sentence, a paragraph and a document, as the statement has them."""


@claim("scales-of-language")
def scales_of_language() -> Numbers:
    """Tokens of words and sentences of speeches; the wavelengths of 256 pairs between those of the statement."""
    waves, found = np.array(geometric(256).wavelengths), real_model("smollm2_text")
    return {
        "in_speeches_tokens_per_word": found["tokens"] / found["words"],
        "in_speeches_tokens_per_sentence": found["tokens"] / found["sentences"],
        "pairs_with_wavelengths_up_to_6_tokens": int((waves <= _SCALES[0]).sum()),
        **{
            f"pairs_with_wavelengths_of_{low}_to_{high}_tokens": int(((waves > low) & (waves <= high)).sum())
            for low, high in pairwise(_SCALES)
        },
        "pairs_with_wavelengths_above_1000_tokens": int((waves > _SCALES[-1]).sum()),
    }


@claim("position-tells-meanings-apart")
def position_tells_meanings_apart() -> Numbers:
    """The last of two words, with sinusoids added, and after one layer of attention without them."""
    texts = np.eye(3)[[[1, 0], [2, 0]]]
    placed = [add(np.repeat(rows, 2, axis=1), Sinusoidal(6))[1] for rows in texts]
    one, other = (through(rows, 1, causal=False, scores=1.0)[1] for rows in texts)
    return {
        "one_word_at_one_position_in_two_texts_apart": float(np.abs(placed[0] - placed[1]).max()),
        "the_same_after_one_layer_of_attention": float(np.linalg.norm(one - other)),
    }


@claim("short-patterns-transfer")
def short_patterns_transfer() -> Numbers:
    """Copies of the token three before, of models trained at 64 tokens."""
    study = measured("quick")
    return {
        f"measured_right_copies_with_{arm}_at_{length}_tokens": study.value("copy", arm, "accuracy", length=length).mean
        for arm in ("sinusoidal", "rotary", "t5")
        for length in (64, 128, 256)
    }


@claim("added-codes-fail-because-they-are-added")
def added_codes_fail_because_they_are_added() -> Numbers:
    """Losses at 8 times the trained length over those at it."""
    study = measured("extrapolation")
    return {
        f"measured_loss_ratio_of_512_to_64_trained_tokens_with_{arm}": study.value(
            "language", arm, "loss_ratio", length=512
        ).mean
        for arm in ("sinusoidal", "rotary", "t5", "alibi")
    }


@claim("no-scale-is-starved")
def no_scale_is_starved() -> Numbers:
    """Pairs of a doubling of the wavelength, and those that a text of 512 tokens shows a part of."""
    ladder = geometric(256)
    waves = np.array(ladder.wavelengths)
    return {
        "pairs_for_each_doubling_of_the_wavelength": math.log(2) / math.log(ladder.rates[0] / ladder.rates[1]),
        "pairs_that_complete_no_rotation_in_512_tokens": int((waves > 512).sum()),
    }


@claim("simplest-function-with-all-properties")
def simplest_function_with_all_properties() -> Numbers:
    """One pair, and the two pairs of width 4: their shift, their size and the number of their wavelengths."""
    found: Numbers = {}
    for name, spec in (("one_pair", Sinusoidal(width=2)), ("two_pairs", Sinusoidal(width=4))):
        before, after = (table(spec, [place + k for place in (0, 1000)], "float64") for k in (0, 7))
        found[f"largest_difference_of_a_shift_with_{name}"] = float(np.abs(after - before @ shift(spec, 7).T).max())
        found[f"wavelengths_of_{name}"] = len(set(spec.clock().ladder.rates))
        found[f"norm_with_{name}"] = float(np.linalg.norm(before[1]))
    return found


@claim("how-positions-are-learned")
def how_positions_are_learned() -> Numbers:
    """What a linear map reads of the position after layers of MiniLM, and after those whose positions are all 0."""
    read = real_model("minilm")["position_r2"]
    return {
        "in_minilm_share_of_the_position_read_after_layer_0": read["own"]["0"],
        "in_minilm_share_of_the_position_read_after_layer_6": read["own"]["6"],
        "in_minilm_the_same_if_all_positions_are_0": read["frozen"]["6"],
        "in_minilm_share_of_its_table_that_four_sinusoids_explain": real_model("minilm")["table"]["four_waves_r2"],
    }


@claim("positions-fade-with-depth")
def positions_fade_with_depth() -> Numbers:
    """What a linear map reads of the position after layers of MiniLM."""
    read = real_model("minilm")["position_r2"]["own"]
    return {f"in_minilm_share_of_the_position_read_after_layer_{layer}": read[layer] for layer in ("0", "3", "6")}


@claim("dropped-rotary-has-no-limit")
def dropped_rotary_has_no_limit() -> Numbers:
    """Losses and recall at the trained length and at 4 times it, of models whose RoPE was dropped."""
    study = measured("drope")
    recall = {
        name: study.value("recall", arm, "accuracy", length=256, variant=variant).mean
        for name, arm, variant in (
            ("when_dropped", "drop_75_long", AS_TRAINED),
            ("with_rotary", "rotary", AS_TRAINED),
            ("with_rotary_and_yarn", "rotary", "yarn"),
        )
    }
    return {
        "measured_loss_at_64_tokens_when_dropped": study.value("language", "drop_75").mean,
        "measured_loss_at_256_tokens_when_dropped": study.value("language", "drop_75", length=256).mean,
        "measured_loss_at_64_tokens_with_rotary": study.value("language", "rotary").mean,
        "measured_loss_at_256_tokens_with_rotary_and_yarn": study.value(
            "language", "rotary", length=256, variant="yarn"
        ).mean,
        **{f"measured_right_recalls_at_256_tokens_{name}": share for name, share in recall.items()},
    }


@claim("chosen-for-its-shifts")
def chosen_for_its_shifts() -> Numbers:
    """The best linear map from rows to the rows 3 tokens later, on held-out rows: of bits and of random frequencies."""
    places, rates = np.arange(512), np.random.default_rng(0).uniform(1e-4, 1, 32)
    bits = np.asarray((places[:, None] >> np.arange(9)) % 2 * 2.0 - 1, np.float64)
    waves = np.concatenate([np.cos(np.outer(places, rates)), np.sin(np.outer(places, rates))], axis=1)
    found = {}
    for name, rows in (("the_bits_of_the_position", bits), ("frequencies_drawn_at_random", waves)):
        (best,) = judged(rows, [3])
        assert best is not None, "512 rows are enough"
        found[f"share_left_by_the_best_map_with_{name}"] = best.share
    return found


@claim("sinusoids-were-the-default")
def sinusoids_were_the_default() -> Numbers:
    """Model types of clockhands' table by the encoding of their text."""
    found = real_model("model_types")
    return {f"model_types_{name}": found[name] for name in ("with_text", "sinusoidal", "learned", "rotary")}


@claim("all-schemes-are-about-offsets")
def all_schemes_are_about_offsets() -> Numbers:
    """What the offset explains of the dot products of 512 rows: of a table before its training, and of sinusoids."""
    tables = {
        "random_rows": np.random.default_rng(0).standard_normal((512, 64)),
        "sinusoids": table(Sinusoidal(width=64), 512, "float64"),
    }
    shares = {name: dot_products_by_distance(rows)[1] for name, rows in tables.items()}
    return {f"share_that_the_offset_explains_with_{name}": share or 0.0 for name, share in shares.items()}


@claim("a-formula-cannot-be-tuned")
def a_formula_cannot_be_tuned() -> Numbers:
    """The longest wavelengths of 64 pairs by base."""
    return {
        f"longest_wavelength_with_base_{base}": geometric(64, float(base)).wavelengths[-1] for base in (10_000, 500_000)
    }


@claim("modern-models-prefer-rotary-or-alibi")
def modern_models_prefer_rotary_or_alibi() -> Numbers:
    """Model types of clockhands' table by the encoding of their text."""
    found = real_model("model_types")
    return {f"model_types_{name}": found[name] for name in ("with_text", "rotary", "alibi")}


@claim("learned-was-refused-for-its-cost")
def learned_was_refused_for_its_cost() -> Numbers:
    """The numbers of a table of the width of Vaswani et al. 2017, and their share in its base model of 65 million."""
    numbers = 512 * 512
    return {"numbers_of_512_rows_of_width_512": numbers, "share_of_65_million": numbers / 65e6}


@claim("corpora-are-huge-because-of-positions")
def corpora_are_huge_because_of_positions() -> Numbers:
    """How far a learned table is behind fixed sinusoids after 200 and after 500 steps of 32 texts of 64 tokens."""
    early, late = (
        measured(name).difference("language", "learned", "sinusoidal") for name in ("naive", "extrapolation")
    )
    return {
        "measured_learned_less_sinusoidal_after_410_thousand_tokens": early.mean,
        "measured_learned_less_sinusoidal_after_a_million_tokens": late.mean,
    }
