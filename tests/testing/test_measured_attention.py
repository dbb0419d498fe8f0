"""What is measured inside models: each fault is named with its numbers, and a sound twin is correct."""

from types import SimpleNamespace

import numpy as np
import pytest

from clockhands.errors import InvalidType
from clockhands.testing import CannotCheck, check_generation


@pytest.fixture(scope="module")
def models():
    pytest.importorskip("torch")
    from . import small_torch_models

    return small_torch_models


def said(report):
    return " ".join(one.message for one in report.explanations)


OF_CALLS = {
    "queries further": ("decode-positions", "the queries of later calls are at positions 10, 11, 12, … instead of 8"),
    "all at the first": ("decode-positions", "the queries and keys of later calls of several tokens are at positions"),
    "second layer further": ("decode-positions", "(1 too high), in attention 1 of 2"),
    "another base": ("decode-positions", "the right size, and an angle that no position of one pass gives"),
    "another size": ("decode-positions", "the right position and another size than in one pass"),
    "keys again": ("cached-keys-rotated-again", "(twice the right one)"),
    "a key less": ("other-keys-seen", "sees 8 keys instead of 9; the first key that differs is that of position 0"),
}


def test_what_later_calls_rotate_or_see_is_measured(models, cases):
    assert check_generation(models.Model(), raises=False).sound
    for slip, (code, sentence) in OF_CALLS.items():
        with cases(slip):
            report = check_generation(models.Model(slip), raises=False)
            assert report.codes == {code}, str(report)
            assert sentence in said(report)


def test_what_depends_on_the_length_of_a_call_is_not_said_to_depend_on_later_tokens(models):
    report = check_generation(models.Model("queries by length"), raises=False)
    assert report.codes == {"positions-by-call-length"}, str(report)
    wanted = "with each token more of a call its queries are 1 position later, and its keys are not, in attention 1"
    assert f"{wanted} of 2" in said(report)


def test_what_later_calls_add_is_measured(models, cases):
    rows = [
        (models.Linear, "bias lost", "bias-lost-in-decode", "loses its bias"),
        (models.Linear, "bias of the call", "decode-bias", "from key to key instead of 0.5"),
        (models.Added, "no row alone", "table-not-read", "table.weight"),
        (models.Added, "half the row", "decode-positions", "read the rows 4, 4, 5, … of the table table.weight"),
    ]
    for attention, slip, code, sentence in rows:
        with cases(slip):
            assert check_generation(models.Model(None, attention), raises=False).sound
            report = check_generation(models.Model(slip, attention), raises=False)
            assert code in report.codes, str(report)
            assert sentence in said(report)


def test_scores_of_one_token_are_measured_in_blocks_of_keys_and_as_sums(models, cases):
    rows = [
        (models.Paged, "half the slope", "decode-bias", "what is added to the scores is 0.5 times that of one pass"),
        (models.Summed, "second layer further", "decode-positions", "(1 too high), in attention 1 of 2"),
    ]
    for attention, slip, code, sentence in rows:
        with cases(slip):
            assert check_generation(models.Model(None, attention), raises=False).sound
            report = check_generation(models.Model(slip, attention), raises=False)
            assert report.codes == {code}, str(report)
            assert sentence in said(report), said(report)


def test_products_of_jax_are_recorded():
    pytest.importorskip("jax")
    from clockhands.models.recorded_jax_calls import recorded_into

    from . import small_jax_model

    calls = []
    for slip in (None, "window of the call"):
        model = small_jax_model.Model(slip)
        text = [3, 1, 4, 1, 5, 9, 2, 6]
        with recorded_into(calls):
            _, cache = model(text)
        with recorded_into(calls):
            model([5], cache)
    whole, later, _, wrong = (each.products for each in calls)
    assert [each.queries.shape for each in (*whole, *later)] == [(4, 8, 8)] * 2 + [(4, 1, 8)] * 2
    for number, (one, other) in enumerate(zip(whole, later, strict=True)):
        np.testing.assert_allclose(one.keys, other.keys[:, :8], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(
            np.ptp(one.scores[0, 5, 1:6] - (one.queries[0, 5] @ one.keys[0, 1:6].T) / 8**0.5), 0, atol=1e-5
        )
        assert [np.isfinite(each.scores[0, 0]).sum() for each in (other, wrong[number])] == [[9, 9], [6, 9]][number]


@pytest.mark.slow
def test_a_model_of_jax_is_measured():
    pytest.importorskip("jax")
    from . import small_jax_model

    assert check_generation(small_jax_model.Model(), raises=False).sound
    report = check_generation(small_jax_model.Model("window of the call"), raises=False)
    assert report.codes == {"other-keys-seen"}, str(report)
    assert "sees 9 keys instead of 6; the first key that differs is that of position 0, in attention 1" in said(report)


def test_the_cache_of_a_layer_or_of_the_module_itself_is_found(models, cases):
    for first in (False, True):
        with cases("sequence first" if first else "batch first"):
            sound = check_generation(models.StateLayer(sequence_first=first), raises=False)
            assert sound.sound, str(sound)
            assert "one token at a time" in sound.experiments
            report = check_generation(models.StateLayer("queries restart", sequence_first=first), raises=False)
            assert report.codes == {"queries-restart"}, str(report)
    with cases("its own cache"):
        report = check_generation(models.OwnCache(), raises=False)
        assert report.sound, str(report)
        assert "one token at a time" in report.experiments


OF_ONE_PASS = {
    "heads": ("positions-without-effect", "they follow the number of the head"),
    "texts": ("positions-without-effect", "they follow the number of the text in its batch"),
    "zeros": ("positions-without-effect", "rotate no query and no key from token to token"),
    "keys twice": ("keys-rotated-apart", "2 times that of a query: they are rotated twice"),
    "keys backward": ("keys-rotated-apart", "-1 times that of a query: in the other direction"),
    "keys not": ("keys-rotated-apart", "keys are not rotated, and queries are"),
}


def test_rotations_of_one_pass_are_measured(models, cases):
    for slip in (None, "none"):  # a model without positions is one by design
        assert check_generation(models.OnePass(slip), raises=False).sound
    for slip, (code, sentence) in OF_ONE_PASS.items():
        with cases(slip):
            report = check_generation(models.OnePass(slip), raises=False)
            assert report.codes == {code}, str(report)
            assert sentence in said(report)


def test_logits_of_more_numbers_than_tokens_are_cut_and_dropout_is_refused(models):
    report = check_generation(models.Padded(), raises=False)
    assert report.sound, str(report)
    with pytest.raises(CannotCheck, match="in training mode and gives one text different logits"):
        check_generation(models.Padded(dropout=0.5))


def test_any_config_or_none_is_taken_and_a_mask_of_queries_is_not_asked_of_a_class_that_takes_none(models, cases):
    values = {"vocab_size": models.VOCABULARY, "num_hidden_layers": models.LAYERS, "model_type": "llama"}
    for config in (None, values, SimpleNamespace(**values)):
        with cases(repr(config)):
            report = check_generation(models.OwnClass(config), raises=False)
            assert report.sound, str(report)
            assert "takes masks of keys alone" in report.left_out["packing"]
    with cases("wrong"):
        report = check_generation(models.OwnClass(SimpleNamespace(), "second layer further"), raises=False)
        assert report.codes == {"decode-positions"}, str(report)


def test_keys_of_another_text_and_learned_keys_do_not_hide_what_later_calls_do(models, cases):
    for attention in (models.Crossed, models.Prefixed):
        with cases(attention.__name__):
            assert check_generation(models.Model(None, attention), raises=False).sound
            report = check_generation(models.Model("second layer further", attention), raises=False)
            assert report.codes == {"decode-positions"}, str(report)
            assert "in attention 1 of 2" in said(report)


def test_a_bias_whose_queries_count_from_0_is_named_so(models):
    assert check_generation(models.Model(None, models.Bucketed), raises=False).sound
    report = check_generation(models.Model("bias of the call", models.Bucketed), raises=False)
    assert report.codes == {"decode-bias"}, str(report)
    assert "what is added to the scores is that of queries that count from 0" in said(report)


class Server:
    def run(self, prompt):
        return prompt


def test_an_engine_is_checked_by_its_own_prefill_merge_and_decode(models):
    report = check_generation(models.Engine(), raises=False)
    assert report.sound, str(report)
    assert {"left padding and decoding", "chunks", "a text beside a batch"} <= set(report.experiments)
    report = check_generation(models.Engine("padding counted"), raises=False)
    assert report.codes == {"padding-shifts"}, str(report)
    assert "after 6 pads, later calls get positions that are 6 too high" in said(report)
    with pytest.raises(InvalidType, match="Its methods are run"):
        check_generation(Server())


def test_an_engine_may_be_told_the_position_of_a_token_and_have_a_cache_of_one_size(models, cases):
    report = check_generation(models.PlacedEngine(), raises=False)
    assert report.sound, str(report)
    assert "a long text" in report.experiments
    assert "a long text" in check_generation(models.PlacedEngine(room=30), raises=False).left_out
    for slip, code, sentence in (
        ("one further", "decode-positions", "at positions 9, 10, 11, … instead of 8"),
        ("long calls", "long-calls-without-rows", "all but the first 18 tokens of a long call"),
    ):
        with cases(slip):
            report = check_generation(models.PlacedEngine(slip), raises=False)
            assert report.codes == {code}, str(report)
            assert sentence in said(report)


def test_an_engine_that_keeps_its_rows_is_called_in_the_one_shape_that_it_takes(models):
    report = check_generation(models.RowsEngine(), raises=False)
    assert report.sound, str(report)
    assert "one token at a time" in report.experiments


def test_frequencies_that_a_longer_call_changes_are_named_with_their_numbers(models):
    assert check_generation(models.OtherFrequencies(), raises=False).sound
    report = check_generation(models.OtherFrequencies("changes"), raises=False)
    assert report.codes == {"frequencies-by-length"}, str(report)
    assert "in calls of more than 12 tokens: frequencies changes, number 1 of it from 0.2115 to 0.3761" in said(report)


def test_what_the_last_text_left_is_no_part_of_another_text(models):
    """Texts of five first tokens show it, and what a caller is to pass on is passed on."""
    report = check_generation(models.KeepsOffset(), raises=False)
    assert report.sound, str(report)
    report = check_generation(models.KeepsOffset("kept"), raises=False)
    assert report.codes == {"model-keeps-state"}, str(report)
    assert "two alternating texts" in {failure.experiment for failure in report.failures}


def test_products_of_no_tokens_are_recorded():
    """As in a call with an empty text before a draft."""
    import torch

    from clockhands.models.recorded_calls import recorded_into
    from clockhands.models.recorded_products import RecordedCall

    calls: list[RecordedCall] = []
    with recorded_into(calls):
        (torch.ones(1, 2, 0, 4) @ torch.ones(1, 2, 4, 0)).softmax(-1)
    assert [each.queries.shape for each in calls[0].products] == [(2, 0, 4)]


def test_a_model_is_checked_as_one_unless_what_it_is_for_is_not_known(models):
    import torch

    from clockhands.testing.kinds import kind_for

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(8, 4)

        def forward(self, input_ids):
            return self.table(input_ids)

    assert kind_for(models.Model(None), None) == "generation"
    assert kind_for(torch.nn.Linear(4, 4), None) == "module"
    with pytest.raises(CannotCheck, match="takes token ids, input_ids, and no cache: whether it generates text"):
        kind_for(Encoder(), None)
