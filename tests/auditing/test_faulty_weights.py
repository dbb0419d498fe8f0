"""Faults that only the numbers of the weights show: rows permuted for other heads (D1-43), pairs of another container
(D1-44)."""

from auditing.faulty_weights import HEADS, KEY_HEADS, in_gguf, in_safetensors, projections, reordered
from auditing.model_files import audited, fired, of_code


def caught(found, code):
    (finding,) = of_code(found, code)
    assert finding.severity == "warning"
    return finding.message


def test_weights_that_fit_their_container_do_not_fire(tmp_path):
    queries, keys = projections()
    assert fired(audited(tmp_path / "checkpoint", in_safetensors(queries, keys), weights=True)) == []
    in_order = in_gguf(reordered(queries, HEADS), reordered(keys, KEY_HEADS))
    assert fired(audited(tmp_path / "gguf", in_order, weights=True)) == []


def test_d1_43_keys_permuted_for_the_heads_of_the_queries(tmp_path):
    # llama.cpp#3364, TinyLlama#24. Eight heads of queries, two of keys, and eight for both.
    queries, keys = projections()
    found = audited(tmp_path, in_gguf(reordered(queries, HEADS), reordered(keys, HEADS)), weights=True)
    message = caught(found, "permuted-heads")
    assert "the key weights are in the order for 8 or 4 heads" in message
    assert "the model has 2 key heads" in message


def test_d1_44_rows_of_the_other_pairs_than_the_container_s(tmp_path):
    # AiDotNet#2074, imp#503. The rows that the GGUF file needs, in a checkpoint that pairs halves; and the other way.
    queries, keys = projections()
    in_order = in_safetensors(reordered(queries, HEADS), reordered(keys, KEY_HEADS))
    for number, model in enumerate((in_order, in_gguf(queries, keys))):
        found = audited(tmp_path / str(number), model, weights=True)
        message = caught(found, "pairing-against-format")
        assert "interleaved" in message
        assert "halves" in message
    unlooked = audited(tmp_path / "unlooked", in_gguf(queries, keys))
    assert of_code(unlooked, "pairing-against-format", "permuted-heads") == []
    assert fired(unlooked) == []
