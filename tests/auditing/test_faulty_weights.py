"""Faults that only the numbers of the weights show: rows permuted for other heads (D1-43), pairs of another container
(D1-44)."""

from auditing.faulty_weights import HEADS, KEY_HEADS, in_gguf, projections, reordered
from auditing.model_files import audited, fired, of_code


def caught(found, code):
    (finding,) = of_code(found, code)
    assert finding.severity == "warning"
    return finding.message


def test_weights_that_fit_their_container_do_not_fire(tmp_path):
    # `test_weights` has the checkpoint.
    queries, keys = projections()
    in_order = in_gguf(reordered(queries, HEADS), reordered(keys, KEY_HEADS))
    assert fired(audited(tmp_path, in_order, weights=True)) == []


def test_d1_43_keys_permuted_for_the_heads_of_the_queries(tmp_path):
    # llama.cpp#3364, TinyLlama#24. Eight heads of queries, two of keys, and eight for both.
    queries, keys = projections()
    found = audited(tmp_path, in_gguf(reordered(queries, HEADS), reordered(keys, HEADS)), weights=True)
    message = caught(found, "permuted-heads")
    assert "the key weights are in the order for 8 or 4 heads" in message
    assert "the model has 2 key heads" in message


def test_d1_44_rows_of_the_other_pairs_than_the_container_s(tmp_path):
    # AiDotNet#2074, imp#503. The rows that a checkpoint needs, in a GGUF file; `test_weights` has the other way.
    model = in_gguf(*projections())
    message = caught(audited(tmp_path, model, weights=True), "pairing-against-format")
    assert "interleaved" in message
    assert "halves" in message
    unlooked = audited(tmp_path, model)
    assert of_code(unlooked, "pairing-against-format", "permuted-heads") == []
    assert fired(unlooked) == []
