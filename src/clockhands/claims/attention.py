"""Claims about attention: what it can tell of order without a code, and with one."""

import math
from functools import cache

import numpy as np

from clockhands.additive import AdditiveCode, Sinusoidal, add
from clockhands.claims.claim import Numbers, at_most, claim, exactly, near
from clockhands.claims.measured import measured
from clockhands.heads import margin, relative_head
from clockhands.measures.order import CodeOrder, OrderMatters, order
from clockhands.measures.order.attention import Layer, attend
from clockhands.rotary import Rotary, rotate

NO_CODE = "Haviv et al. 2022, arXiv:2203.16634"
COUNTING = "Kazemnejad et al. 2023, arXiv:2305.19466, theorems 1 and 2"
ROUNDS = "Barbero et al. 2024, arXiv:2410.06205"


@cache
def _found() -> OrderMatters:
    """What `clockhands order` finds: nine drawn networks, "dog bites man" and "man bites dog"."""
    return order()


def _code(name: str) -> CodeOrder:
    return next(code for code in _found().codes if code.member.name == name)


def _handing_on(width: int, scores: float = 0.0) -> Layer:
    """A layer of one head that hands tokens on as they are, with scores of ``x . y`` times ``scores``."""
    eye = np.eye(width)[None]
    return Layer(scores * math.sqrt(width) * eye, eye, eye, eye)


def _through(rows: np.ndarray, layers: int, *, causal: bool, scores: float = 0.0) -> np.ndarray:
    """What layers that hand on make of tokens."""
    for _ in range(layers):
        rows = attend(rows, _handing_on(rows.shape[1], scores), causal=causal).numbers
    return rows


@claim(
    "permutation-equivariant",
    "Without a position code attention is permutation equivariant: permuted words give permuted outputs.",
    "only if",
    condition="nothing is masked; a causal mask is a code of order by itself.",
    numbers={
        "three_layers_without_a_mask_apart": at_most("1e-14"),
        "two_even_words_with_a_causal_mask_apart": near("0.7071"),
    },
    argument=(
        "Scores of permuted words are permuted in rows and columns, and a softmax does not ask where a column stands. "
        "Below a mask the first of two words sees itself alone and the second both, so half of a − b changes places."
    ),
    source="Lee et al. 2019, arXiv:1810.00825 (Set Transformer)",
)
def permutation_equivariant() -> Numbers:
    """Drawn networks on 16 permuted tokens, and two orthogonal words whose scores are 0."""
    a_first, b_first = (_through(rows, 1, causal=True) for rows in (np.eye(2), np.eye(2)[::-1]))
    return {
        "three_layers_without_a_mask_apart": _found().without["permuted"].largest,
        "two_even_words_with_a_causal_mask_apart": float(np.linalg.norm(a_first[0] - b_first[1])),
    }


@claim(
    "bag-of-words",
    'Without a position code a transformer sees a bag of words: "dog bites man" is "man bites dog".',
    "only if",
    condition="nothing is masked, as in encoders; decoders mask.",
    numbers={
        "means_of_three_layers_apart": at_most("1e-14"),
        "means_of_one_masked_layer_apart_least": near("0.41"),
        "means_of_one_masked_layer_apart_most": near("1.4"),
    },
    argument=(
        "Unmasked, the mean of the outputs is the same for every order, at any depth and with any weights. With a "
        "causal mask one drawn layer moves it by 41 to 140 %: a language model without a code sees no bag."
    ),
    source=f"{NO_CODE}: a masked language model without a code has perplexity 147.18, with one 4.06",
)
def bag_of_words() -> Numbers:
    """Means of the outputs for both sentences."""
    without = _found().without
    return {
        "means_of_three_layers_apart": without["pooled"].largest,
        "means_of_one_masked_layer_apart_least": without["causal_pooled_one_layer"].smallest,
        "means_of_one_masked_layer_apart_most": without["causal_pooled_one_layer"].largest,
    }


@claim(
    "causal-mask-tells-the-order",
    "A causal mask is enough: the last word's output depends on the order of those before it.",
    "only if",
    condition="there are at least two layers, and no code.",
    numbers={
        "one_layer_apart": at_most("1e-14"),
        "two_layers_of_scores_0_apart": near("0.3333"),
        "two_drawn_layers_apart_least": near("0.15"),
        "two_drawn_layers_apart_most": near("0.58"),
    },
    argument=(
        "In one layer the last word sees a set. In the second it sees what the words before have seen: of a b c with "
        "scores of 0, a third of a − b is left of exchanging a and b. Drawn weights make it 15 to 58 %."
    ),
    source="computed by `clockhands order`",
)
def causal_mask_tells_the_order() -> Numbers:
    """The last output of drawn networks, and of two layers worked out by hand: (a − b) / 3, for words of length 1."""
    one, other = (_through(np.eye(3)[rows], 2, causal=True)[2] for rows in ([0, 1, 2], [1, 0, 2]))
    without = _found().without
    return {
        "one_layer_apart": without["causal_last_one_layer"].largest,
        "two_layers_of_scores_0_apart": float(one[0] - other[0]),
        "two_drawn_layers_apart_least": without["causal_last_two_layers"].smallest,
        "two_drawn_layers_apart_most": without["causal_last_two_layers"].largest,
    }


@claim(
    "language-models-need-a-code",
    "A language model needs a position code to know the order of its words.",
    "only if",
    condition="nothing is masked; below a causal mask order can be told without one.",
    numbers={"encoder_tells_orders_of_3": exactly(1), "two_masked_layers_tell_orders_of_3_before_the_last": exactly(6)},
    argument=(
        "Two masked layers of scores 0 give the word after three others six outputs for their six orders; unmasked "
        "there is one. Trained, perplexity on WikiText-103 is 20.97 without a code, 20.42 with learned positions."
    ),
    source=NO_CODE,
)
def language_models_need_a_code() -> Numbers:
    """Different last outputs over all orders of three words before a fourth."""
    orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]

    def told(*, causal: bool) -> int:
        outputs = [_through(np.eye(4)[[*rows, 3]], 2, causal=causal)[3] for rows in orders]
        return len({tuple(output.round(9).tolist()) for output in outputs})

    return {
        "encoder_tells_orders_of_3": told(causal=False),
        "two_masked_layers_tell_orders_of_3_before_the_last": told(causal=True),
    }


@claim(
    "decoders-count-without-a-code",
    "A decoder without a position code can count its positions.",
    "only if",
    condition="one word, such as a first token of its own, differs from the others.",
    numbers={
        "one_word_16_times_apart": at_most("1e-14"),
        "outputs_told_apart_of_16_after_another_word": exactly(16),
        "share_of_that_word_at_the_16th": near("0.0588"),
    },
    argument=(
        "If all words are equal, every weighing of them is that word, at any depth. After another word, a head of "
        "scores 0 takes 1/2, 1/3, … 1/17 of it: that is a count, and a second layer can read it."
    ),
    source=COUNTING,
)
def decoders_count_without_a_code() -> Numbers:
    """Drawn networks on equal words, and a head of scores 0 after another word."""
    words = np.eye(2)[[0] + [1] * 16]
    shares = (_through(words, 1, causal=True) - words)[1:, 0]
    return {
        "one_word_16_times_apart": _found().without["causal_constant"].largest,
        "outputs_told_apart_of_16_after_another_word": len(set(shares.round(9).tolist())),
        "share_of_that_word_at_the_16th": shares[-1],
    }


@claim(
    "previous-token-without-a-code",
    "A head of a decoder without a position code can look at the previous word.",
    "only if",
    condition="the words differ in a way that says where they stand; equal words it weighs equally.",
    numbers={
        "share_of_the_previous_of_16_equal_words": near("0.0625"),
        "previous_words_found_by_a_rotary_head": exactly(15),
        "margin_of_the_rotary_head": near("1.083"),
    },
    argument=(
        "Equal words have equal scores, so each of 16 gets a sixteenth. A rotary head of width 64 with the same vector "
        "in every token finds the word before by turning its queries one step back: 15 of 15, by a margin of 1.083."
    ),
    source=f"{ROUNDS}, proposition 5.2",
)
def previous_token_without_a_code() -> Numbers:
    """Scores of 16 equal words, without a code and with a rotary head made by hand."""
    equal = np.zeros((16, 16))
    spec = Rotary(64)
    head = relative_head(spec, back=1)
    assert head.constant is not None, "a rotary head reads a vector that all tokens hold"
    tokens = np.tile(head.constant, (16, 1))
    scores = rotate(tokens @ head.query.T, spec) @ rotate(tokens @ head.key.T, spec).T
    return {
        "share_of_the_previous_of_16_equal_words": float(_softmax(equal)[15, 14]),
        "previous_words_found_by_a_rotary_head": int((scores.argmax(axis=1)[1:] == np.arange(15)).sum()),
        "margin_of_the_rotary_head": margin(spec, 4096),
    }


def _softmax(scores: np.ndarray) -> np.ndarray:
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


@claim(
    "any-code-tells-the-order",
    "Any position code makes attention sensitive to the order of words.",
    "only if",
    condition="it tells on which side a key stands, or a causal mask does.",
    numbers={
        "kinds_of_code": exactly(34),
        "kinds_that_tell_a_sentence_from_its_mirror_image": exactly(32),
        "symmetric_alibi_mirrored_apart": at_most("1e-14"),
        "symmetric_alibi_tells_another_order": exactly(True),
        "symmetric_alibi_tells_both_with_a_causal_mask": exactly(True),
    },
    argument=(
        "A bias of |q − k| does not change when the sentence is read from its end, so no depth tells the two apart; "
        "any other order it tells. ALiBi and KERPLE have such forms, for encoders. A causal mask gives the side."
    ),
    source="computed by `clockhands order`, without a mask unless said",
)
def any_code_tells_the_order() -> Numbers:
    """Every kind of code on both sentences, and the symmetric form of ALiBi."""
    codes = [code for code in _found().codes if code.member.name != "none"]
    symmetric = _code("ALiBi symmetric")
    return {
        "kinds_of_code": len(codes),
        "kinds_that_tell_a_sentence_from_its_mirror_image": sum(code.swapped.apart is True for code in codes),
        "symmetric_alibi_mirrored_apart": symmetric.swapped.largest,
        "symmetric_alibi_tells_another_order": symmetric.another is not None and symmetric.another.apart is True,
        "symmetric_alibi_tells_both_with_a_causal_mask": symmetric.causal_last.apart is True,
    }


@claim(
    "rotary-tells-the-position",
    "Rotary codes and biases tell each token at which position it stands.",
    "false",
    numbers={
        "one_word_16_times_apart_with_any_of_them": at_most("1e-14"),
        "added_codes_that_tell_it_apart": exactly(13),
        "added_codes": exactly(13),
    },
    argument=(
        "They change how values are weighed, not the values: of one word over and over every weighing is that word, so "
        "all outputs are equal, at any depth. Codes that are added to the tokens make them differ."
    ),
    source="computed by `clockhands order`",
)
def rotary_tells_the_position() -> Numbers:
    """One word 16 times through three layers, with every kind of code."""
    codes = [code for code in _found().codes if code.member.name != "none"]
    added = [code for code in codes if isinstance(code.member.spec, AdditiveCode)]
    return {
        "one_word_16_times_apart_with_any_of_them": max(code.alike.largest for code in codes if code not in added),
        "added_codes_that_tell_it_apart": sum(code.alike.apart is True for code in added),
        "added_codes": len(added),
    }


@claim(
    "rotary-is-blind-to-direction",
    "Rotary scores are cosines of the distance, so they cannot tell before from after.",
    "only if",
    condition="query and key are parallel in every pair; the kernel is even, a score is not.",
    numbers={
        "parallel_one_before_less_one_after": at_most("1e-15"),
        "a_quarter_turn_apart_one_before_less_one_after": near("1.6829"),
    },
    argument=(
        "A pair scores |q| |k| cos(distance × rate + angle between them). Only if that angle is 0 or π is it even; a "
        "quarter turn makes it a sine, and at rate 1 the two sides differ by 2 sin 1."
    ),
    source="Su et al. 2021, arXiv:2104.09864, section 3.2",
)
def rotary_is_blind_to_direction() -> Numbers:
    """Scores of one pair of rate 1, of a query at 1 with keys at 0 and at 2."""
    spec = Rotary(2)

    def sides(key: list[float]) -> float:
        query = rotate(np.array([[1.0, 0.0]]), spec, [1])
        before, after = rotate(np.array([key, key]), spec, [0, 2]) @ query[0]
        return float(before - after)

    return {
        "parallel_one_before_less_one_after": sides([1.0, 0.0]),
        "a_quarter_turn_apart_one_before_less_one_after": sides([0.0, 1.0]),
    }


@claim(
    "adding-a-code-is-enough",
    "Once a position code is added to the tokens, the network knows their order.",
    "only if",
    condition="something that is not linear follows, such as scores or a network for each token.",
    numbers={"with_scores_of_0_apart": at_most("1e-14"), "with_scores_of_its_own_apart": near("0.0809")},
    argument=(
        "The sum of tokens + codes is the same in every order, and so is the mean of what a linear layer makes of it. "
        "Order is read only where token and position meet: in a score, or in a nonlinear function of their sum."
    ),
    source="computed: the words (1, 0) and (1/2, 2), one head, sine and cosine of rate 1 added",
)
def adding_a_code_is_enough() -> Numbers:
    """The mean output for a b and b a, with scores of 0 and with identity queries and keys."""
    words = np.array([[1.0, 0.0], [0.5, 2.0]])

    def apart(scores: float) -> float:
        means = [
            _through(add(rows, Sinusoidal(2)), 1, causal=False, scores=scores).mean(axis=0)
            for rows in (words, words[::-1])
        ]
        return float(np.linalg.norm(means[0] - means[1]) / np.linalg.norm(means[0]))

    return {"with_scores_of_0_apart": apart(0.0), "with_scores_of_its_own_apart": apart(1 / math.sqrt(2))}


@claim(
    "pooling-loses-the-order",
    "Averaging the outputs throws the order of the words away.",
    "only if",
    condition="it was not in the outputs before: there is neither a code nor a mask.",
    numbers={
        "means_apart_without_a_code": at_most("1e-14"),
        "means_apart_with_a_sinusoid_least": near("0.13"),
        "means_apart_with_a_sinusoid_most": near("0.68"),
        "means_apart_with_a_rotary_code_least": near("0.16"),
    },
    argument=(
        "A mean forgets which output stood where, not what is in them: with a code each output already depends on the "
        "order. In drawn networks the means of the two sentences are 13 to 68 % apart with a sinusoid."
    ),
    source="computed by `clockhands order`",
)
def pooling_loses_the_order() -> Numbers:
    """Means of the outputs for both sentences."""
    return {
        "means_apart_without_a_code": _code("none").swapped.largest,
        "means_apart_with_a_sinusoid_least": _code("sinusoidal").swapped.smallest,
        "means_apart_with_a_sinusoid_most": _code("sinusoidal").swapped.largest,
        "means_apart_with_a_rotary_code_least": _code("rotary halves").swapped.smallest,
    }


@claim(
    "sinks-come-from-the-code",
    "Attention sinks, the weight on the first token, come from the position code.",
    "false",
    numbers={
        "first_of_64_by_the_mask_alone": near("0.0741"),
        "even_share_of_64": near("0.0156"),
        "measured_share_of_the_first_without_a_code": near("0.0144"),
        "measured_largest_share_of_the_first_with_a_code": near("0.0091"),
        "measured_even_share": near("0.0214"),
    },
    argument=(
        "With scores of 0, a causal mask and no code, the first of 64 words gets 7.4 % of the weight. Published models "
        "have sinks of 18 to 36 % with each of six codes; one of the six is no code. At 0.13 million parameters there "
        "is no sink with any code: queries 33 to 64 give the first token at most 1.4 %, less than the even 2.1 %, and "
        "that in the model without a code."
    ),
    source="Gu et al. 2025, arXiv:2410.10781, for the sinks of 18 to 36 %",
    measured=("sinks",),
    waits_for="the share of the first token in models that are large and trained enough to have a sink, by code.",
)
def sinks_come_from_the_code() -> Numbers:
    """The mean over queries of what the first of 64 words gets: the harmonic number of 64, over 64; measured shares."""
    words = np.eye(64)
    shares = _through(words, 1, causal=True) - words
    study = measured("sinks")
    of_codes = {arm: study.value("language", arm, "sink_share").mean for arm in study.data["arms"]}
    return {
        "first_of_64_by_the_mask_alone": float(shares[:, 0].mean()),
        "even_share_of_64": 1 / 64,
        "measured_share_of_the_first_without_a_code": of_codes.pop("none"),
        "measured_largest_share_of_the_first_with_a_code": max(of_codes.values()),
        "measured_even_share": study.value("language", "none", "even_share").mean,
    }
