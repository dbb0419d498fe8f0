"""Small causal models in three libraries: the right ones pass, and each wrong one is named for what it is."""

import functools
import json
import time
import types

import numpy as np
import pytest

import clockhands as ch
from clockhands.errors import InvalidType, InvalidValue
from clockhands.testing import CannotCheck, CheckFailed, check_generation

from .small_models import HEAD, ORIGINAL, VOCABULARY, SmallModel, joined, shifted

ROTARY, ADDED = ("halves", "interleaved"), ("sinusoidal", "learned")
EVERY = (*ROTARY, *ADDED, "alibi", "none")

# Slip: the code that it is named by, the experiment that shows it, and the position codes in which it can be seen at
# all (where all positions shift alike, a relative code says the same).
SLIPS = {
    "slots are counted": ("padding-shifts", "left padding", ADDED),
    "slots are counted in decoding": ("padding-shifts", "left padding and decoding", (*ROTARY, *ADDED)),
    "documents are not told apart": ("packing-ignored", "packing", ADDED),
    "leaks": ("packing-ignored", "packing", (*ROTARY, *ADDED, "alibi")),
    "first row's positions": ("decode-positions", "left padding and decoding", (*ROTARY, *ADDED)),
    "one further": ("decode-positions", "one token at a time", (*ROTARY, *ADDED)),
    "one back": ("decode-positions", "one token at a time", (*ROTARY, *ADDED)),
    "stuck": ("decode-positions", "one token at a time", (*ROTARY, *ADDED)),
    "every second": ("decode-positions", "one token at a time", (*ROTARY, *ADDED)),
    "restarts": ("chunk-restarts", "chunks", (*ROTARY, *ADDED)),
    "counts each call": ("chunk-restarts", "chunks", (*ROTARY, *ADDED)),
    "a piece stands at its start": ("decode-positions", "chunks", (*ROTARY, *ADDED)),
    "no rows in later calls": ("late-calls-without-rows", "chunks", ROTARY),
    "queries restart": ("queries-restart", "chunks", ROTARY),
    "one count for all": ("model-keeps-state", "two alternating texts", (*ROTARY, *ADDED)),
    "mask of the first rows": ("first-keys-seen", "chunks", (*ROTARY, *ADDED, "alibi")),
    "sees what comes": ("later-tokens-seen", "a longer text", EVERY),
    "cache is not read": ("cache-not-read", "chunks", EVERY),
    "pads are seen": ("padding-seen", "left padding", EVERY),
    "minus infinity": ("masked-row-not-finite", "left padding", EVERY),
    "minus infinity, in the last layer": ("masked-row-not-finite", "a query without keys", EVERY),
    "no bias in decoding": ("bias-lost-in-decode", "one token at a time", ("alibi",)),
}


def checked(model, **options):
    return check_generation(model, vocabulary=VOCABULARY, raises=False, **options)


def failed(report):
    return {failure.experiment for failure in report.failures}


def test_a_right_model_passes(cases):
    for code in EVERY:
        with cases(code):
            report = checked(SmallModel("numpy", code))
            assert report.sound, str(report)
            assert report.worst < 0.5
            # Where positions matter, what a slip of one would do is thousands of times what rounding explains.
            assert code == "none" or report.called["a slip of one position"] > 1000 * report.called["rounding explains"]
            assert len(report.experiments) >= 13


@pytest.mark.parametrize("library", ["torch", pytest.param("jax", marks=pytest.mark.slow)])
def test_a_right_model_passes_in_other_libraries(library):
    pytest.importorskip(library)
    report = checked(SmallModel(library, "halves"), length=8)
    assert report.sound, str(report)
    assert report.called["library"] == library


# Without positions, what is seen of a later token or of padding is told by other means.
ALWAYS = {"sees what comes": ("none",), "pads are seen": ("none",)}


@pytest.mark.parametrize("number", [1, pytest.param(len(EVERY), marks=pytest.mark.slow)])
def test_a_wrong_model_is_named(number, cases, draw):
    """Each slip in one of the codes in which it can be seen, and in all of them."""
    for slip, (named, experiment, seen_in) in SLIPS.items():
        for code in dict.fromkeys([*ALWAYS.get(slip, ()), *draw(seen_in, number)]):
            with cases(slip, code):
                report = checked(SmallModel("numpy", code, slip))
                assert not report.sound
                assert experiment in failed(report)
                (explanation,) = [one for one in report.explanations if named in one.codes]
                assert experiment in explanation.evidence["explains"], str(report)


def test_a_small_module_of_torch_is_asked_in_one_thread():
    torch = pytest.importorskip("torch")
    model, threads = SmallModel("torch", "interleaved", "one further"), []

    class Module(torch.nn.Module):
        def forward(self, tokens, positions, mask, cache):
            threads.append(torch.get_num_threads())
            return model.forward(tokens, positions, mask, cache)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        report = checked(None, forward=Module(), length=8)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(threads[1:]) == {1}
    assert report.called["library"] == "torch"
    assert SLIPS["one further"][0] in report.codes, str(report)


def test_arrays_and_caches_of_jax_are_taken():
    jnp = pytest.importorskip("jax.numpy")
    model = SmallModel("numpy", "halves", "restarts")

    # The slow tests have models of JAX itself, which compiles anew for every shape.
    def forward(tokens, positions, mask, cache):
        assert isinstance(tokens, jnp.ndarray)
        assert isinstance(positions, jnp.ndarray)
        own = cache and {name: in_each(np.asarray, value) for name, value in cache.items()}
        logits, cache = model(
            np.asarray(tokens), np.asarray(positions), None if mask is None else np.asarray(mask), own
        )
        return jnp.asarray(logits), {name: in_each(jnp.asarray, value) for name, value in cache.items()}

    report = checked(forward, length=8)
    assert report.called["library"] == "jax"
    assert report.codes == {"chunk-restarts"}, str(report)


def in_each(change, value):
    return [change(one) for one in value] if isinstance(value, list) else change(value)


def test_relative_codes_say_the_same_where_all_is_shifted_alike():
    report = checked(SmallModel("numpy", "halves", "slots are counted"))
    assert "left padding" not in failed(report)
    report = checked(SmallModel("numpy", "sinusoidal"), like=right_spec())
    assert failed(report) == {"a shifted text"}


def test_positions_that_nobody_thought_of_are_found_by_trying_all():
    report = checked(SmallModel("numpy", "halves", "every odd one"))
    (message,) = [one.message for one in report.explanations if "decode-positions" in one.codes]
    assert "positions 17, 19, 21 instead of 8, 9, 10" in message


@pytest.mark.parametrize(("scaling", "code"), [("dynamic", "cache-older-base"), ("lists", "chunk-mixes-lists")])
@pytest.mark.parametrize("layout", ROTARY)
def test_rates_that_follow_the_length_are_told(scaling, code, layout):
    model = functools.partial(SmallModel, "numpy", layout, scaling=scaling)
    report = checked(model(), length=32)
    assert report.codes == {code}
    (explanation,) = report.explanations
    assert explanation.evidence["threshold"] == ORIGINAL
    # It accounts for all that failed: with texts up to there nothing does.
    assert set(explanation.evidence["explains"]) == failed(report)
    assert checked(model(), length=ORIGINAL).sound


@pytest.mark.parametrize("scaling", ["dynamic", "lists"])
def test_a_model_that_remembers_the_longest_text_is_told(scaling):
    report = checked(SmallModel("numpy", "halves", "remembers", scaling), length=32)
    assert report.codes == {"remembers-longest"}


def right_spec():
    return ch.Rotary(HEAD, base=500.0, layout="halves")


def test_a_cache_whose_keys_are_turned_on_is_right():
    options = {"like": right_spec(), "shift": shifted(True), "join": joined(True)}
    report = checked(SmallModel("numpy", "halves"), **options)
    assert report.sound, str(report)
    assert {"a shifted text", "a shifted cache", "joined caches"} <= set(report.experiments)


@pytest.mark.parametrize(
    ("options", "experiment"),
    [({"shift": shifted(False)}, "a shifted cache"), ({"join": joined(False)}, "joined caches")],
    ids=["shifted", "joined"],
)
def test_a_cache_whose_keys_stay_where_they_were_is_named(options, experiment):
    report = checked(SmallModel("numpy", "halves"), **options)
    assert failed(report) == {experiment}
    assert report.codes == {"cached-keys-keep-positions"}


def test_a_cache_of_ones_own_is_cut_by_ones_own_function():
    def cut(cache, rows):
        taken = {name: [array[:, :, rows] for array in cache[name]] for name in ("keys", "values")}
        return {**taken, "at": cache["at"][:, rows]}

    assert checked(SmallModel("numpy", "halves"), evict=cut).sound
    wrong = checked(SmallModel("numpy", "halves", "slots are counted in decoding"), evict=cut)
    assert "eviction-stops-positions" in wrong.codes


def test_eviction_stops_positions_is_named_with_its_rows():
    report = checked(SmallModel("numpy", "learned", "slots are counted in decoding"))
    (explanation,) = [one for one in report.explanations if "eviction-stops-positions" in one.codes]
    assert "after 8 of 12 rows were kept, the next token gets position 8" in explanation.message


def test_a_failure_is_raised_and_reads_well():
    with pytest.raises(CheckFailed) as caught:
        check_generation(SmallModel("numpy", "halves", "one further"), vocabulary=VOCABULARY)
    text = " ".join(str(caught.value).split())
    assert "every later token gets a position that is 1 too high" in text
    assert "sglang#25015" in text
    failure = next(one for one in caught.value.report.failures if one.experiment == "one token at a time")
    assert failure.message.startswith("8 tokens, then one at a time: the logits of 8 of 8 tokens are wrong")
    assert failure.evidence["first wrong position"] == 8


def test_a_model_in_which_positions_show_nothing_says_so():
    model = SmallModel("numpy", "halves")
    for layer in model.layers:
        layer["in"] = layer["in"] * np.float32(3e-3)
    report = checked(model)
    assert report.sound
    assert "use larger weights" in report.left_out["faults of one position"]
    report = checked(SmallModel("numpy", "none"))
    assert report.left_out["faults of one position"].startswith("the positions passed in have no effect")


def test_arguments_that_it_has_no_use_for_may_be_absent():
    model = SmallModel("numpy", "none")

    def forward(tokens, cache):
        return model(tokens, np.zeros_like(tokens), None, cache)

    report = checked(None, forward=forward)
    assert report.sound, str(report)
    assert report.left_out["left padding"] == "it takes no mask"
    assert "one token at a time" in report.experiments


def test_the_vocabulary_is_the_last_axis_of_the_logits_unless_given():
    report = check_generation(SmallModel("numpy", "halves", "one further"), raises=False)
    assert report.codes == {"decode-positions"}, str(report)


def test_arguments_are_known_by_their_usual_names_in_any_order():
    model = SmallModel("numpy", "halves", "one further")

    def forward(input_ids, past_key_values=None, attention_mask=None, position_ids=None, labels=None):
        assert labels is None
        return model(input_ids, position_ids, attention_mask, past_key_values)

    report = check_generation(forward=forward, raises=False)
    assert report.codes == {"decode-positions"}, str(report)
    assert "left padding" in report.experiments


def test_an_offset_is_the_position_of_the_first_token_of_a_call():
    def forward_of(slip):
        model = SmallModel("numpy", "halves", slip)
        return lambda x, start_pos, kv_cache=None: model(
            x, start_pos + np.broadcast_to(np.arange(x.shape[1]), x.shape), None, kv_cache
        )

    right, wrong = (check_generation(forward=forward_of(slip), raises=False) for slip in (None, "one further"))
    assert right.sound, str(right)
    assert {"chunks", "one token at a time"} <= set(right.experiments)
    assert right.left_out["faults of one position"].startswith("it takes one position for a call")
    assert failed(wrong) >= {"one token at a time"}


def test_a_model_without_a_cache_is_asked_the_rest():
    model = SmallModel("numpy", "halves")
    report = checked(lambda tokens, positions, mask, _: (model(tokens, positions, mask, None)[0], None))
    assert report.sound
    assert report.left_out["one token at a time"] == "it returns no cache"
    assert "left padding" in report.experiments


def test_logits_alone_outputs_of_transformers_and_a_function_of_tokens_are_taken():
    model = SmallModel("numpy", "halves")

    def alone(input_ids):
        return model(input_ids, np.broadcast_to(np.arange(input_ids.shape[1]), input_ids.shape), None, None)[0]

    report = checked(None, forward=alone)
    assert report.sound, str(report)
    first = " ".join(str(report).split())
    assert "Not checked: left padding, " in first
    assert "(it takes no mask)" in first
    assert "one token at a time" not in report.experiments

    def output(tokens, positions, mask, cache):
        logits, cache = model(tokens, positions, mask, cache)
        return types.SimpleNamespace(logits=logits, past_key_values=cache)

    assert "one token at a time" in checked(None, forward=output).experiments


def test_texts_of_ones_own_are_taken():
    texts = [list(range(12)), [5, 4, 3, 2], [7, 7]]
    assert checked(SmallModel("numpy", "halves"), tokens=texts).called["tokens"] == [12, 4, 2]


def not_a_number(tokens, *_):
    return np.full((*tokens.shape, VOCABULARY), np.nan), None


def test_what_is_not_a_number_is_a_failure():
    report = checked(not_a_number)
    assert not report.sound
    assert "not a number" in report.failures[0].message


def raising(*_):
    raise RuntimeError("no such kernel")


REFUSED = [
    (None, {}, InvalidType, "Expected a causal model, got None"),
    (lambda *_: np.zeros((1, 3)), {"vocabulary": None}, CannotCheck, "expected logits [1, 3, vocabulary]"),
    (raising, {}, CannotCheck, "with 3 tokens: with numpy arrays it raised RuntimeError: no such kernel"),
    (lambda *_: (np.zeros((1, 3, VOCABULARY)),) * 3, {}, CannotCheck, "expected logits, or logits and a cache"),
    (lambda *_: (np.zeros((1, 3, 4)), None), {}, CannotCheck, "it returned logits of shape [1, 3, 4]; expected"),
    (lambda *_: (None, None), {}, CannotCheck, "it returned a value of type NoneType, expected logits"),
    (lambda tokens, *_: (tokens > 0, None), {"vocabulary": 3}, CannotCheck, "it returned logits of shape [1, 3]"),
    (lambda *_: time.sleep(30), {"timeout": 0.2}, CannotCheck, "it did not return within 0.2 seconds"),
    (SmallModel("numpy"), {"length": 3}, InvalidValue, "`length` must be at least 8, got 3"),
    (SmallModel("numpy", "learned"), {"length": 200}, CannotCheck, "A text of 200 tokens was given in one pass"),
    (SmallModel("numpy"), {"tokens": [[1, 2]]}, InvalidType, "`tokens` must be three lists of token ids"),
    (SmallModel("numpy"), {"tokens": [[1] * 4, [1] * 9, [1] * 3]}, InvalidValue, "the longest first"),
    (SmallModel("numpy"), {"tokens": [[99] * 9, [1] * 4, [1] * 3]}, InvalidValue, "must be from 0 to 52"),
    (SmallModel("numpy"), {"like": "vaswani2017"}, InvalidType, "`like` must be a rotary encoding"),
]


def test_what_cannot_be_called_says_what_came_back(cases):
    for model, options, error, words in REFUSED:
        with cases(words):
            with pytest.raises(error) as caught:
                check_generation(model, **{"vocabulary": VOCABULARY, "backend": "numpy", **options})
            assert words in str(caught.value)


def test_a_report_is_json():
    for slip in (None, "one further"):
        text = json.dumps(checked(SmallModel("numpy", "halves", slip)).to_dict(), allow_nan=False)
        assert json.loads(text)["kind"] == "generation"


def test_a_large_vocabulary_is_compared_in_part():
    model = SmallModel("numpy", "halves", "one further")
    many = 20_000

    def forward(tokens, positions, mask, cache):
        logits, cache = model(tokens % VOCABULARY, positions, mask, cache)
        return np.concatenate([logits] * (many // VOCABULARY + 1), axis=-1)[..., :many], cache

    report = check_generation(forward, vocabulary=many, raises=False)
    assert report.codes == {"decode-positions"}


def test_masks_of_numbers_that_are_added_to_scores_are_given_as_such():
    """Booleans that a model adds hide nothing, and a sound one was failed for it."""
    model = SmallModel()

    def forward(tokens, positions, mask, cache):
        if mask is None:
            return model(tokens, positions, None, cache)
        if mask.dtype == bool:  # 1 is added to the scores of keys that should be seen
            return model(tokens, positions, np.ones((*tokens.shape, mask.shape[-1]), bool), cache)
        return model(tokens, positions, mask[:, 0] > -1, cache)

    report = check_generation(forward, raises=False)
    assert report.sound, str(report)
    assert {"packing", "left padding"} <= set(report.experiments)
