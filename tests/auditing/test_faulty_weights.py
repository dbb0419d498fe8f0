"""Faults that only the numbers of the weights show: rows permuted for other heads (D1-43), pairs of another container
(D1-44)."""

import pytest

from auditing.faulty_weights import HEADS, KEY_HEADS, in_gguf, in_safetensors, projections, reordered
from auditing.model_files import audited, fired, of_code


def caught(found, code):
    (finding,) = of_code(found, code)
    assert finding.severity == "warning"
    return finding.message


@pytest.mark.parametrize("container", ["safetensors", "gguf"])
def test_weights_that_fit_their_container_do_not_fire(container, tmp_path):
    queries, keys = projections()
    model = (
        in_safetensors(queries, keys)
        if container == "safetensors"
        else in_gguf(reordered(queries, HEADS), reordered(keys, KEY_HEADS))
    )
    assert fired(audited(tmp_path, model, weights=True)) == []


def test_d1_43_keys_permuted_for_the_heads_of_the_queries(tmp_path):
    # llama.cpp#3364, TinyLlama#24. Eight heads of queries, two of keys, and eight for both.
    queries, keys = projections()
    found = audited(tmp_path, in_gguf(reordered(queries, HEADS), reordered(keys, HEADS)), weights=True)
    message = caught(found, "permuted-heads")
    assert "the key weights are in the order for 8 or 4 heads" in message
    assert "the model has 2 key heads" in message


def test_d1_44_rows_of_interleaved_pairs_in_a_checkpoint_of_halves(tmp_path):
    # AiDotNet#2074, imp#503. The rows that the GGUF file needs, in a checkpoint that pairs halves.
    queries, keys = projections()
    found = audited(tmp_path, in_safetensors(reordered(queries, HEADS), reordered(keys, KEY_HEADS)), weights=True)
    message = caught(found, "pairing-against-format")
    assert "interleaved" in message
    assert "halves" in message


def test_d1_44_rows_of_halves_in_a_file_of_interleaved_pairs(tmp_path):
    found = audited(tmp_path, in_gguf(*projections()), weights=True)
    message = caught(found, "pairing-against-format")
    assert "interleaved" in message
    assert "halves" in message


def test_no_such_finding_without_looking_at_the_weights(tmp_path):
    found = audited(tmp_path, in_gguf(*projections()))
    assert of_code(found, "pairing-against-format", "permuted-heads") == []
    assert fired(found) == []
