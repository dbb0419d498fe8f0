"""Public incidents of whole models with a cache, rebuilt in a small model, and the fault that is named for each."""

import numpy as np

import clockhands as ch
from clockhands.testing import check_generation

from .small_models import HEAD, ORIGINAL, VOCABULARY, SmallModel


def checked(model, **options):
    return check_generation(model, vocabulary=VOCABULARY, raises=False, **options)


def explains(report):
    return {name for one in report.explanations for name in one.evidence["explains"]}


class Placed(SmallModel):
    """A model with positions of its own: how(positions, mask, cached tokens)."""

    def __init__(self, how, code="halves", slip=None):
        super().__init__("numpy", code, slip)
        self.how = how

    def placed(self, tokens, positions, mask, cache):
        return self.how(positions, mask, 0 if cache is None else cache["keys"][0].shape[2])


def negative_after_padding(positions, mask, past):
    """flash-linear-attention#902: the first call of a padded text starts at minus its padding."""
    if mask is None or mask.ndim != 2 or past:
        return positions
    return positions - (mask.shape[1] - mask.sum(-1, keepdims=True))


def end_of_the_prompt(positions, _, __):
    """mistral.rs#2083: every chunk gets the positions of the last tokens of the prompt, here of 16."""
    size = positions.shape[1]
    return np.broadcast_to(np.arange(16 - size, 16), positions.shape) if 1 < size < 16 else positions


def rows_of_padding(positions, _, past):
    """ComfyUI#15698: later tokens of a padded batch count its rows."""
    return np.broadcast_to(past + np.arange(positions.shape[1]), positions.shape) if past else positions


def documents_twice(positions, mask, _):
    """Documents that count from 0 have their start subtracted again."""
    several = mask is not None and mask.ndim == 3
    return np.maximum(2 * positions - np.arange(positions.shape[1]), -8) if several else positions


def documents_from_one(positions, mask, _):
    """Documents after the first start at 1."""
    several = mask is not None and mask.ndim == 3
    return positions + (np.cumsum(positions == 0, axis=1) > 1) if several else positions


def for_each_text(positions, _, past):
    """The counter advances by the tokens of the whole batch."""
    return positions + (len(positions) - 1) * past


def no_further(positions, _, past):
    """Once there is a cache, positions end at 11."""
    return np.minimum(positions, 11) if past else positions


def restarts_in_chunks(positions, _, past):
    """Every later call of several tokens starts at 0, and single tokens are right."""
    return (
        np.broadcast_to(np.arange(positions.shape[1]), positions.shape)
        if past and positions.shape[1] > 1
        else positions
    )


def sum_of_the_mask(positions, mask, past):
    """A token that comes alone gets `mask.sum()`, which counts it too."""
    if not past or positions.shape[1] > 1 or mask is None or mask.ndim != 2:
        return positions
    return mask.sum(-1, keepdims=True)


NAMED = {
    documents_from_one: ("sinusoidal", {"documents-restart-at-one"}),
    for_each_text: ("halves", {"decode-positions"}),
    no_further: ("halves", {"decode-positions"}),
    negative_after_padding: ("halves", {"padding-shifts"}),
    rows_of_padding: ("halves", {"padding-shifts", "eviction-stops-positions"}),
    end_of_the_prompt: ("halves", {"decode-positions"}),
    documents_twice: ("sinusoidal", {"documents-restart-twice"}),
    restarts_in_chunks: ("halves", {"chunk-restarts"}),
    sum_of_the_mask: ("halves", {"decode-positions"}),
}


def test_wrong_positions_are_named(cases):
    for how, (code, named) in NAMED.items():
        with cases(how.__name__):
            report = checked(Placed(how, code))
            assert report.codes == named, str(report)
            assert explains(report) == {failure.experiment for failure in report.failures}


def test_clamped_positions_are_named_with_their_limit(cases):
    for limit in (5, 20):
        with cases(limit):
            model = Placed(lambda positions, _, __, limit=limit: np.minimum(positions, limit))
            report = checked(model, like=ch.Rotary(HEAD, base=500.0, layout="halves"))
            assert report.codes == {"positions-clamped"}, str(report)
            assert f"gives every token after position {limit} the position {limit}" in report.explanations[0].message


def test_clamped_positions_that_are_added_to_tokens_are_named_with_their_limit(cases):
    """Every way to pass a text has them, so no two ways differ: a token alone shows them."""
    for code in ("learned", "sinusoidal"):
        with cases(code):
            report = checked(SmallModel("numpy", code))
            assert report.sound
            assert "a token at each position" in report.experiments
        for limit in (0, 5, 13):
            with cases(code, limit):
                report = checked(Placed(lambda positions, _, __, limit=limit: np.minimum(positions, limit), code))
                assert report.codes == ({"positions-clamped"} if limit else set()), str(report)
                if limit:
                    assert explains(report) == {"a token at each position"}
                    assert f"position {limit} the position {limit}" in report.explanations[0].message
    for code in ("halves", "alibi", "none"):
        with cases(code):
            assert "a token at each position" not in checked(SmallModel("numpy", code)).experiments

    def some_alike(positions, _, __):
        return np.where((positions == 4) | (positions == 9), positions - 1, positions)

    with cases("two pairs of positions"):
        report = checked(Placed(some_alike, "learned"))
        assert [each.experiment for each in report.failures] == ["a token at each position"]
        assert "its logits at 4 and 9 are those at the position before" in " ".join(str(report).split())
        assert "No known fault" in str(report)


class OfTrees(SmallModel):
    """A call with a tree of drafts has other positions, or another mask: how(positions, mask, cached tokens)."""

    def __init__(self, how, code="halves"):
        super().__init__("numpy", code)
        self.how = how

    def forward(self, tokens, positions, mask, cache):
        if cache is not None and mask is not None and mask.ndim == 3:
            positions, mask = self.how(positions, mask, cache["keys"][0].shape[2])
        return super().forward(tokens, positions, mask, cache)


def test_faults_of_trees_of_drafts_are_named(cases):
    def by_place(positions, mask, past):
        return past + np.arange(positions.shape[1])[None], mask

    def one_further(positions, mask, _):
        return positions + 1, mask

    def depth_alone(positions, mask, past):
        return positions - past, mask

    def siblings_seen(positions, mask, past):
        return positions, np.tri(*mask.shape[1:], past, dtype=bool)[None]

    wrong = {
        by_place: ("tree-positions", "the place of the token in the tree counts, not its depth"),
        one_further: ("tree-positions", "every token has a position that is 1 too high"),
        depth_alone: ("tree-positions", "without the tokens before the tree"),
        siblings_seen: ("tree-siblings-seen", "attend to other branches"),
    }
    for how, (code, words) in wrong.items():
        for encoding in ("halves", "learned", "alibi") if how is by_place else ("halves",):
            with cases(how.__name__, encoding):
                report = checked(OfTrees(how, encoding))
                assert report.codes == {code}, str(report)
                assert words in report.explanations[0].message
                assert explains(report) == {"a tree of drafts", "an accepted branch"}


def test_a_tree_that_is_wrong_in_an_unknown_way_is_not_judged():
    def an_ancestor_less(positions, mask, past):
        return positions, mask & (np.arange(mask.shape[2]) != past)

    report = checked(OfTrees(an_ancestor_less))
    assert report.sound
    assert "one row for each position cannot hold them" in report.left_out["a tree of drafts"]


class BehindSize(SmallModel):
    """Later calls are wrong behind some tokens: their keys, or their positions."""

    def __init__(self, how, size):
        super().__init__()
        self.how, self.size = how, size

    def seen(self, tokens, mask, past):
        seen = super().seen(tokens, mask, past)
        query, key = past + np.arange(tokens.shape[1])[:, None], np.arange(seen.shape[2])
        cut = {"window": query - self.size + 1, "block": query // self.size * self.size}.get(self.how, 0)
        return seen & (key >= cut) if past or (self.how == "window" and self.size < 16) else seen

    def placed(self, tokens, positions, mask, cache):
        moved = {
            "restarts": positions % self.size,
            "ends": np.minimum(positions, self.size - 1),
        }
        return positions if cache is None else moved.get(self.how, positions)


def test_faults_behind_a_window_a_chunk_or_a_block_are_named(cases):
    named = {
        ("window", 64): ("other-keys-seen", "a query attends to the last 64 keys, in one pass to all"),
        ("block", 16): ("other-keys-seen", "a query attends to the keys of its block of 16 tokens"),
        ("restarts", 64): ("decode-positions", "positions 0, 1, 2 instead of 64, 65, 66"),
        ("ends", 64): ("decode-positions", "no position is larger than 63"),
    }
    for (how, size), (code, words) in named.items():
        with cases(how, size):
            report = checked(BehindSize(how, size))
            assert report.codes == {code}, str(report)
            assert words in report.explanations[0].message
            assert explains(report) == {failure.experiment for failure in report.failures} == {"a long text"}


def test_rates_that_change_behind_the_length_of_training_are_named_without_a_length(cases):
    for scaling, code in (("dynamic", "cache-older-base"), ("lists", "chunk-mixes-lists")):
        with cases(scaling):
            report = checked(SmallModel("numpy", "halves", scaling=scaling))
            assert report.codes == {code}, str(report)
            assert report.explanations[0].evidence["threshold"] == ORIGINAL


def test_a_text_is_as_long_as_the_sizes_that_a_model_declares(cases):
    for size, longest, wrong in ((40, 48, "other-keys-seen"), (12, 72, None), (900, 72, None)):
        with cases(size):
            model = BehindSize("window", size)
            model.window_size = size
            report = checked(model)
            assert f"a text of up to {longest} tokens" in report.like
            assert report.codes == ({wrong} if wrong else set()), str(report)
            assert ("beyond its window_size" in report.left_out) is (size == 900)


class Apart(SmallModel):
    """Later calls rotate queries, or keys, one token later or earlier than the other side."""

    def __init__(self, side, by):
        super().__init__()
        self.side, self.by = side, by

    def turned(self, x, positions, length):
        self.count += 1  # queries and keys of a layer
        other = length > x.shape[2] and ("keys", "queries")[self.count % 2] == self.side
        return super().turned(x, positions + self.by * other, length)


def test_queries_and_keys_that_are_apart_only_with_a_cache_are_named(cases):
    for side, other in (("queries", "keys"), ("keys", "queries")):
        for by, how in ((1, "later"), (-1, "earlier")):
            with cases(side, by):
                report = checked(Apart(side, by))
                assert report.codes == {"decode-positions"}, str(report)
                (told,) = report.explanations
                assert f"the {side} of later calls are rotated 1 token {how} than their {other}" in told.message
                assert explains(report) == {failure.experiment for failure in report.failures}


class CountedTwice(SmallModel):
    """Positions advance by 2 for every token after the first call, whose length is in the cache."""

    def forward(self, tokens, positions, mask, cache):
        logits, kept = super().forward(tokens, positions, mask, cache)
        return logits, {**kept, "first": np.full(1, tokens.shape[1]) if cache is None else cache["first"]}

    def placed(self, tokens, positions, mask, cache):
        return positions if cache is None else positions + cache["keys"][0].shape[2] - int(cache["first"][0])


def test_positions_that_advance_by_two_are_named():
    report = checked(CountedTwice())
    assert report.codes == {"decode-positions"}, str(report)
    assert "every token after the first call counts twice" in report.explanations[0].message


def test_what_a_relative_code_cannot_tell_apart_is_said():
    (told,) = checked(Placed(negative_after_padding)).explanations
    assert "later calls get positions that are 6 too high or" in told.message
    assert "the first call starts at position -6 instead of 0" in told.message


class OffsetOfFirstText(SmallModel):
    """transformers#36013: the offset of the first text is added to the later tokens of every text."""

    offset = None

    def placed(self, tokens, positions, mask, cache):
        past = 0 if cache is None else cache["keys"][0].shape[2]
        slots = past + np.arange(positions.shape[1])
        if self.offset is None:
            self.offset = (positions - slots)[:1, -1:]
            return positions
        return slots + self.offset + 0 * positions if past else positions


def test_an_offset_of_an_earlier_text_is_named():
    # A model that is not copied keeps it from the first text that the check gives; this one gets a padded batch first.
    model = OffsetOfFirstText()
    model(np.zeros((1, 4), int), np.array([[0, 0, 0, 1]]), None, None)
    assert not checked(model).sound


def rotated(x, positions, base):
    phases = np.asarray(positions, np.float32)[..., None] * (base ** (-np.arange(0, HEAD, 2) / HEAD)).astype(np.float32)
    a, b = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return np.concatenate(
        [a * np.cos(phases) - b * np.sin(phases), a * np.sin(phases) + b * np.cos(phases)], -1, dtype=np.float32
    )


class LocalAndGlobal(SmallModel):
    """Two layers with a base each."""

    bases = (50.0, 500.0)

    def turned(self, x, positions, length):
        self.count += 1  # queries and keys of a layer
        return rotated(x, positions[:, None], self.bases[(self.count - 1) // 2 % 2])


def shift_with(*bases):
    def shift(cache, by):
        keys = [rotated(keys, by, base) if base else keys for keys, base in zip(cache["keys"], bases, strict=True)]
        return {**cache, "at": cache["at"] + by, "keys": keys}

    return shift


def test_cached_keys_that_are_rotated_with_the_base_of_another_layer_are_named():
    """llama.cpp#12373: the cache of Gemma 3 was shifted with the global base in all layers."""
    options = {"like": ch.Rotary(HEAD, base=500.0, layout="halves")}
    assert checked(LocalAndGlobal(), shift=shift_with(50.0, 500.0), **options).sound
    report = checked(LocalAndGlobal(), shift=shift_with(500.0, 500.0), **options)
    (told,) = report.explanations
    assert told.codes == ("cached-keys-other-rotation",)
    assert "those of layer 0 by the rotation of layer 1" in told.message
    report = checked(LocalAndGlobal(), shift=shift_with(50.0, None), **options)
    (told,) = report.explanations
    assert told.codes == ("cached-keys-keep-positions",)
    assert "shifted, in layer 1" in told.message
    (told,) = checked(LocalAndGlobal(), shift=shift_with(70.0, 500.0), **options).explanations
    assert told.codes == ("cached-keys-other-rotation",)
    assert "those of layer 0 by the angles of none of its layers" in told.message


class ShortTable(SmallModel):
    """tt-metal#55689: rows of cosine and sine end at the tenth token of a call."""

    def turned(self, x, positions, length):
        kept = np.arange(x.shape[2])[:, None] < 10
        return super().turned(x, positions, length) * kept


def test_zeros_at_the_end_of_a_long_call_are_named():
    report = checked(ShortTable())
    assert report.codes == {"long-calls-without-rows"}
    assert explains(report) == {failure.experiment for failure in report.failures}
    assert "the first 10 tokens of a long call" in report.explanations[0].message


def keep(more):
    def evict(cache, rows):
        rows = np.unique(np.minimum(np.append(rows, rows[-1] + more), cache["keys"][0].shape[2] - 1))
        taken = {name: [array[:, :, rows] for array in cache[name]] for name in ("keys", "values")}
        return {**cache, **taken, "at": cache["at"][:, rows]}

    return evict


def test_a_rejected_token_that_stays_in_the_cache_is_named():
    """buun-llama-cpp#58: one row too many stays when drafted tokens are rejected."""
    assert checked(SmallModel(), evict=keep(0)).sound
    report = checked(SmallModel(), evict=keep(1))
    assert report.codes == {"removed-rows-seen"}
    assert {failure.experiment for failure in report.failures} == {"rejected tokens"}


class Counted(SmallModel):
    """Its cache counts its tokens, and the mask goes by the count, as that of Llama 4 does."""

    def forward(self, tokens, positions, mask, cache):
        self.counted = 0 if cache is None else cache["counted"]
        logits, kept = super().forward(tokens, positions, mask, cache)
        return logits, {**kept, "counted": self.counted + tokens.shape[1]}

    def seen(self, tokens, mask, past):
        keys = past + tokens.shape[1]
        causal = np.arange(keys) <= self.counted + np.arange(tokens.shape[1])[:, None]
        seen = super().seen(tokens, mask, past)
        return np.broadcast_to(causal, seen.shape) if mask is None else seen


def test_rejected_tokens_are_taken_out_of_the_count_of_a_cache():
    """Transformers 4.57 kept the count of a cache of chunks apart from its rows, and a sound Llama 4 was failed."""
    report = checked(Counted())
    assert report.sound, str(report)
    assert {"rejected tokens", "an accepted branch"} <= set(report.experiments)


class Window(SmallModel):
    """Every query sees the last 8 rows, whichever tokens they are."""

    def seen(self, tokens, mask, past):
        queries, keys = past + np.arange(tokens.shape[1])[:, None], np.arange(past + tokens.shape[1])
        return super().seen(tokens, mask, past) & (keys > queries - 8)


def test_a_window_of_rows_is_measured():
    report = checked(Window())
    assert report.sound, str(report)
    assert "its window of 8 tokens" in report.left_out["rows removed from the cache"]


def test_two_faults_at_once_are_told_apart_from_none_that_is_known():
    def one_further(positions, _, past):
        return positions + 1 if past and positions.shape[1] == 1 else positions

    report = checked(Placed(one_further, slip="pads are seen"))
    assert report.codes == {"decode-positions", "padding-seen"}, str(report)
    for told in report.explanations:
        assert "left padding and decoding" in told.evidence["explains"]

    class Drifting(SmallModel):
        def turned(self, x, positions, length):
            return super().turned(x * (0.7 if length > x.shape[2] else 1), positions, length)

    unknown = checked(Drifting())
    assert not unknown.sound
    assert "No known fault has these symptoms." in str(unknown)


def test_what_no_known_fault_explains_is_told_as_the_calls_that_are_wrong(cases):
    class Weaker(SmallModel):
        """Queries and keys of some later calls are scaled."""

        def __init__(self, some):
            super().__init__()
            self.some = some

        def turned(self, x, positions, length):
            later = length > x.shape[2] and self.some(x.shape[2])
            return super().turned(x * (0.7 if later else 1), positions, length)

    said = {
        "Calls of one token after a cache are wrong, calls of several tokens after a cache are right.": lambda n: (
            n == 1
        ),
        "Calls of one token after a cache are right, calls of several tokens after a cache are wrong.": lambda n: n > 1,
        "Calls of one token after a cache are wrong, calls of several tokens after a cache are wrong.": lambda _: True,
    }
    for sentence, some in said.items():
        with cases(sentence):
            report = checked(Weaker(some), length=8)
            assert report.explanations == ()
            assert report.pattern == f"Single passes over a text agree with each other. {sentence}"
            assert report.pattern in " ".join(str(report).split())
    with cases("a single token"):
        model = SmallModel("numpy", "learned")

        def alone(tokens, positions, mask, cache):
            logits, cache = model(tokens, positions, mask, cache)
            return (logits if tokens.shape[1] > 1 else 0.7 * logits), cache

        report = checked(alone, length=8)
        assert report.pattern.startswith("One pass over a single token is unlike that of longer texts")
    with cases("a sound model"):
        assert not checked(SmallModel(), length=8).pattern


def counting(slip):
    """A function that takes no positions and counts them by its mask; all slots of a row in some calls if it slips."""
    model = SmallModel()

    def forward(tokens, mask, cache):
        past = 0 if cache is None else cache["keys"][0].shape[2]
        slots = np.broadcast_to(past + np.arange(tokens.shape[1]), tokens.shape)
        counted = slots if mask is None else np.maximum(mask.cumsum(-1) - 1, 0)[:, past:]
        wrong = {"later calls": past > 0, "first call": past == 0}.get(slip, False)
        return model(tokens, slots if wrong else counted, mask, cache)

    return forward


def test_padding_that_only_some_calls_count_is_named_where_no_positions_can_be_passed(cases):
    assert checked(counting(None)).sound
    for slip, sentence in {
        "later calls": "after 6 pads, later calls get positions that are 6 too high",
        "first call": "after 6 pads, the first call gets positions that are 6 too high, later calls do not",
    }.items():
        with cases(slip):
            report = checked(counting(slip))
            assert {failure.experiment for failure in report.failures} == {"left padding and decoding"}
            assert report.codes == {"padding-shifts"}, str(report)
            assert sentence in report.explanations[0].message
