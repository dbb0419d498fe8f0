"""Claims of introductions to sinusoidal embeddings: what they say of language, of other encodings and of training."""

import numpy as np

from clockhands.encodings.additive import Sinusoidal, add, table
from clockhands.measures import dot_products_by_distance, judged
from clockhands.measures.claims.attention import through
from clockhands.measures.claims.claim import Numbers, claim
from clockhands.measures.claims.studies import real_model


@claim("scales-of-language")
def scales_of_language() -> Numbers:
    """Tokens of words and sentences of speeches."""
    found = real_model("smollm2_text")
    return {
        "in_speeches_tokens_per_word": found["tokens"] / found["words"],
        "in_speeches_tokens_per_sentence": found["tokens"] / found["sentences"],
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


@claim("all-schemes-are-about-offsets")
def all_schemes_are_about_offsets() -> Numbers:
    """What the offset explains of the dot products of 512 rows: of a table before its training, and of sinusoids."""
    tables = {
        "random_rows": np.random.default_rng(0).standard_normal((512, 64)),
        "sinusoids": table(Sinusoidal(width=64), 512, "float64"),
    }
    shares = {name: dot_products_by_distance(rows)[1] for name, rows in tables.items()}
    return {f"share_that_the_offset_explains_with_{name}": share or 0.0 for name, share in shares.items()}


@claim("learned-was-refused-for-its-cost")
def learned_was_refused_for_its_cost() -> Numbers:
    """The numbers of a table of the width of Vaswani et al. 2017, and their share in its base model of 65 million."""
    numbers = 512 * 512
    return {"numbers_of_512_rows_of_width_512": numbers, "share_of_65_million": numbers / 65e6}
