"""Claims about attention: what it can tell about the order of tokens without a position encoding, and with one."""

import math
from functools import cache
from typing import Any

import numpy as np

from clockhands.encodings.additive import AdditiveCode, Sinusoidal, add, table
from clockhands.encodings.heads import margin, relative_head
from clockhands.encodings.rotary import Rotary, rotate
from clockhands.measures.claims.claim import Numbers, claim
from clockhands.measures.claims.studies import real_model
from clockhands.measures.order import CodeOrder, OrderMatters, order
from clockhands.measures.order.attention import Layer, attend


@cache
def _found() -> OrderMatters:
    """The result of `clockhands order`: nine random networks, "dog bites man" and "man bites dog"."""
    return order()


def _code(name: str) -> CodeOrder:
    return next(code for code in _found().codes if code.member.name == name)


def _handing_on(width: int, scores: float = 0.0) -> Layer:
    """A layer of one head that copies tokens unchanged, with scores of ``x . y`` times ``scores``."""
    eye = np.eye(width)[None]
    return Layer(scores * math.sqrt(width) * eye, eye, eye, eye)


def through(rows: np.ndarray, layers: int, *, causal: bool, scores: float = 0.0) -> np.ndarray:
    """The output of several copying layers for some tokens."""
    for _ in range(layers):
        rows = attend(rows, _handing_on(rows.shape[1], scores), causal=causal).numbers
    return rows


@claim("permutation-equivariant")
def permutation_equivariant() -> Numbers:
    """Random networks on 16 permuted tokens, and two orthogonal words whose scores are 0."""
    a_first, b_first = (through(rows, 1, causal=True) for rows in (np.eye(2), np.eye(2)[::-1]))
    one, other = (through(rows, 1, causal=False, scores=1.0) for rows in (np.eye(2), np.eye(2)[::-1]))
    return {
        "three_layers_without_a_mask_apart": _found().without["permuted"].largest,
        "first_outputs_of_two_exchanged_words_apart": float(np.linalg.norm(one[0] - other[0])),
        "means_of_their_outputs_apart": float(np.abs(one.mean(axis=0) - other.mean(axis=0)).max()),
        "two_even_words_with_a_causal_mask_apart": float(np.linalg.norm(a_first[0] - b_first[1])),
    }


@claim("bag-of-words")
def bag_of_words() -> Numbers:
    """The means of the outputs for both sentences."""
    without = _found().without
    return {
        "means_of_three_layers_apart": without["pooled"].largest,
        "means_of_one_masked_layer_apart_least": without["causal_pooled_one_layer"].smallest,
        "means_of_one_masked_layer_apart_most": without["causal_pooled_one_layer"].largest,
    }


@claim("causal-mask-tells-the-order")
def causal_mask_tells_the_order() -> Numbers:
    """The last output of random networks, and of two layers computed by hand: (a − b) / 3, for words of length 1."""
    one, other = (through(np.eye(3)[rows], 2, causal=True)[2] for rows in ([0, 1, 2], [1, 0, 2]))
    without = _found().without
    return {
        "one_layer_apart": without["causal_last_one_layer"].largest,
        "two_layers_of_scores_0_apart": float(one[0] - other[0]),
        "two_drawn_layers_apart_least": without["causal_last_two_layers"].smallest,
        "two_drawn_layers_apart_most": without["causal_last_two_layers"].largest,
    }


@claim("language-models-need-a-code")
def language_models_need_a_code() -> Numbers:
    """How the last outputs differ over all orders of three words before a fourth."""
    orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]

    def order_accuracy(*, causal: bool) -> int:
        outputs = [through(np.eye(4)[[*rows, 3]], 2, causal=causal)[3] for rows in orders]
        return len({tuple(output.round(9).tolist()) for output in outputs})

    return {
        "encoder_tells_orders_of_3": order_accuracy(causal=False),
        "two_masked_layers_tell_orders_of_3_before_the_last": order_accuracy(causal=True),
    }


@claim("decoders-count-without-a-code")
def decoders_count_without_a_code() -> Numbers:
    """Random networks on equal words, and a head with scores of 0 after another word."""
    words = np.eye(2)[[0] + [1] * 16]
    shares = (through(words, 1, causal=True) - words)[1:, 0]
    return {
        "one_word_16_times_apart": _found().without["causal_constant"].largest,
        "outputs_told_apart_of_16_after_another_word": len(set(shares.round(9).tolist())),
        "share_of_that_word_at_the_16th": shares[-1],
    }


@claim("previous-token-without-a-code")
def previous_token_without_a_code() -> Numbers:
    """Scores of 16 equal words, without an encoding and with a rotary head built by hand."""
    equal = np.zeros((16, 16))
    spec = Rotary(64)
    head = relative_head(spec, back=1)
    assert head.constant is not None, "a rotary head reads a vector that all tokens hold"
    tokens = np.tile(head.constant, (16, 1))
    scores = rotate(tokens @ head.query.T, spec) @ rotate(tokens @ head.key.T, spec).T
    return {
        "share_of_the_previous_of_16_equal_words": float(softmax(equal)[15, 14]),
        "previous_words_found_by_a_rotary_head": int((scores.argmax(axis=1)[1:] == np.arange(15)).sum()),
        "margin_of_the_rotary_head": margin(spec, 4096),
    }


def softmax(scores: np.ndarray) -> np.ndarray:
    """The shares of attention, over the last axis."""
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


@claim("one-matrix-looks-back")
def one_matrix_looks_back() -> Numbers:
    """Queries 3 to 199 whose largest score is that of the token 3 before, over 16 random draws of the tokens."""
    spec, back = Sinusoidal(512), 3
    rows, head = table(spec, 200, "float64"), relative_head(spec, back)
    places = np.arange(back, len(rows))
    by_step = np.repeat(np.sqrt(1 - np.cos(spec.clock().ladder.rates)), 2)

    def found(deviation: float, *, weights: Any = 1.0, itself: bool = True, tokens_before: int = back) -> float:
        """The share of queries whose largest score is that of the token so many before it."""
        shares = []
        for seed in range(16):
            tokens = rows + deviation * np.random.default_rng(seed).standard_normal(rows.shape)
            scores = (weights * (tokens @ head.query.T)) @ (tokens @ head.key.T).T
            if not itself:
                np.fill_diagonal(scores, -np.inf)
            shares.append(np.mean(scores.argmax(axis=1)[back:] == places - tokens_before))
        return float(np.mean(shares))

    return {
        "right_without_tokens": found(0.0),
        "right_at_token_deviation_0_1": found(0.1),
        "right_at_token_deviation_0_3": found(0.3),
        "right_at_token_deviation_1": found(1.0),
        "find_themselves_at_token_deviation_1": found(1.0, tokens_before=0),
        "right_at_token_deviation_1_without_themselves": found(1.0, itself=False),
        **{
            f"right_at_token_deviation_{str(deviation).replace('.', '_')}_with_weighted_pairs": found(
                deviation, weights=by_step
            )
            for deviation in (0.3, 0.5, 1)
        },
        "margin_at_200_tokens": margin(spec, 200),
        "largest_score": float(len(rows[0]) / 2),
    }


@claim("any-code-tells-the-order")
def any_code_tells_the_order() -> Numbers:
    """Every kind of encoding on both sentences, and the symmetric form of ALiBi."""
    codes = [code for code in _found().codes if code.member.name != "none"]
    symmetric = _code("ALiBi symmetric")
    return {
        "kinds_of_code": len(codes),
        "kinds_that_tell_a_sentence_from_its_mirror_image": sum(code.swapped.apart is True for code in codes),
        "symmetric_alibi_mirrored_apart": symmetric.swapped.largest,
        "symmetric_alibi_tells_another_order": symmetric.another is not None and symmetric.another.apart is True,
        "symmetric_alibi_tells_both_with_a_causal_mask": symmetric.causal_last.apart is True,
    }


@claim("rotary-tells-the-position")
def rotary_tells_the_position() -> Numbers:
    """One word repeated 16 times, through three layers, with every kind of encoding."""
    codes = [code for code in _found().codes if code.member.name != "none"]
    added = [code for code in codes if isinstance(code.member.spec, AdditiveCode)]
    return {
        "one_word_16_times_apart_with_any_of_them": max(code.alike.largest for code in codes if code not in added),
        "added_codes_that_tell_it_apart": sum(code.alike.apart is True for code in added),
        "added_codes": len(added),
    }


@claim("rotary-is-blind-to-direction")
def rotary_is_blind_to_direction() -> Numbers:
    """Scores of one pair of frequency 1, of a query at position 1 with keys at 0 and at 2."""
    spec = Rotary(2)

    def sides(key: list[float]) -> float:
        query = rotate(np.array([[1.0, 0.0]]), spec, [1])
        before, after = rotate(np.array([key, key]), spec, [0, 2]) @ query[0]
        return float(before - after)

    return {
        "parallel_one_before_less_one_after": sides([1.0, 0.0]),
        "a_quarter_turn_apart_one_before_less_one_after": sides([0.0, 1.0]),
    }


@claim("adding-a-code-is-enough")
def adding_a_code_is_enough() -> Numbers:
    """The mean output for a b and b a, with scores of 0 and with identity queries and keys."""
    words = np.array([[1.0, 0.0], [0.5, 2.0]])

    def apart(scores: float) -> float:
        means = [
            through(add(rows, Sinusoidal(2)), 1, causal=False, scores=scores).mean(axis=0)
            for rows in (words, words[::-1])
        ]
        return float(np.linalg.norm(means[0] - means[1]) / np.linalg.norm(means[0]))

    return {"with_scores_of_0_apart": apart(0.0), "with_scores_of_its_own_apart": apart(1 / math.sqrt(2))}


@claim("pooling-loses-the-order")
def pooling_loses_the_order() -> Numbers:
    """The means of the outputs for both sentences."""
    return {
        "means_apart_without_a_code": _code("none").swapped.largest,
        "means_apart_with_a_sinusoid_least": _code("sinusoidal").swapped.smallest,
        "means_apart_with_a_sinusoid_most": _code("sinusoidal").swapped.largest,
        "means_apart_with_a_rotary_code_least": _code("rotary halves").swapped.smallest,
    }


@claim("sinks-come-from-the-code")
def sinks_come_from_the_code() -> Numbers:
    """The mean attention to the first of 64 words: the 64th harmonic number over 64; shares by head."""
    words = np.eye(64)
    shares = through(words, 1, causal=True) - words
    heads = {
        arm: [share for model in each["first_token_shares"] for layer in model for share in layer]
        for arm, each in real_model("lab_sinks")["models"]["language"].items()
    }
    return {
        "first_of_64_by_the_mask_alone": float(shares[:, 0].mean()),
        "even_share_of_64": 1 / 64,
        "heads_of_6_models": sum(map(len, heads.values())),
        "largest_share_of_a_head": max(map(max, heads.values())),
        "largest_share_of_a_head_without_a_code": max(heads["none"]),
    }
