"""GGUF headers: whole, in either byte order, with keys in any order; every lie is refused."""

import os
import struct

import ml_dtypes
import numpy as np
import pytest

from clockhands.formats import arrays, gguf
from memory_peaks import traced
from packaged_weights import smollm2_file
from written_files import (
    GGUF_KINDS,
    gguf_bytes,
    gguf_key,
    gguf_string,
    gguf_tensor,
    small_gguf,
    written,
)

LLAMA = gguf_key("general.architecture", "string", "llama")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(("order", "name"), [("<", "little"), (">", "big")])
def test_a_whole_file_is_read(tmp_path, order, name, version):
    path = written(tmp_path / "model.gguf", small_gguf(order, version))
    header = gguf.read_header(path)
    assert (header.path, header.version, header.byte_order) == (path, version, name)
    for kind in GGUF_KINDS:
        assert header.fields[f"kind.{kind}"] == (True if kind == "bool" else 3)
    assert header.fields["general.architecture"] == "llama"
    assert header.fields["general.languages"] == ["en", "de"]
    assert header.fields["kind.sections"] == [16, 24, 24, 0]
    assert header.fields["llama.rope.freq_base"] == 100_000.0
    assert list(header.tensors) == ["rope_freqs.weight", "half", "brain", "quantised"]
    assert header.tensors["half"].shape == (2, 3)
    assert arrays.read(header.tensors["rope_freqs.weight"]).tolist() == [1, 2, 3, 4]
    half, brain = arrays.read(header.tensors["half"]), arrays.read(header.tensors["brain"])
    assert (half.dtype, half.tolist()) == (np.float16, [[1, 2, 3], [4, 5, 6]])
    assert (brain.dtype, brain.tolist()) == (ml_dtypes.bfloat16, [1, -2])


def test_long_and_nested_arrays_and_long_texts_stay_in_the_file(tmp_path):
    data = small_gguf()
    fields = gguf.read_header(written(tmp_path / "model.gguf", data)).fields
    tokens = fields["tokenizer.ggml.tokens"]
    assert tokens == gguf.Unread("string", 2100, data.index(gguf_string("a") + gguf_string("bc")))
    assert len(tokens) == 2100
    nested = fields["kind.nested"]
    assert (nested.item, nested.length) == ("array", 2)
    data = gguf_bytes([gguf_key("t", "string", "x" * (2**20 + 1)), gguf_key("u", "string", "y" * 2**20)])
    fields = gguf.read_header(written(tmp_path / "model.gguf", data)).fields
    assert fields["t"] == gguf.Unread("character", 2**20 + 1, data.index(b"xxxx"))
    assert fields["u"] == "y" * 2**20


def test_texts_are_kept_up_to_a_bound_in_all(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf, "_KEPT_IN_ALL", 10)
    keys = [gguf_key("a", "string", "12345678"), gguf_key("b", "string", "12345678"), gguf_key("c", "string", "12")]
    fields = gguf.read_header(written(tmp_path / "model.gguf", gguf_bytes(keys))).fields
    assert fields["a"] == "12345678"
    assert isinstance(fields["b"], gguf.Unread)
    assert fields["c"] == "12"


def test_a_file_without_keys_or_tensors_is_read(tmp_path):
    header = gguf.read_header(written(tmp_path / "model.gguf", gguf_bytes([])))
    assert (header.fields, header.tensors) == ({}, {})


def test_another_alignment_moves_the_data(tmp_path):
    keys = [gguf_key("general.alignment", "uint32", 256)]
    tensors = [gguf_tensor("a", (2,), 0, 0), gguf_tensor("b", (1,), 28, 256)]
    data = struct.pack("<2f", 5, 6).ljust(256, b"\0") + struct.pack("<d", 7)
    path = written(tmp_path / "model.gguf", gguf_bytes(keys, tensors, data, alignment=256))
    read = gguf.read_header(path).tensors
    assert arrays.read(read["a"]).tolist() == [5, 6]
    assert arrays.read(read["b"]).tolist() == [7]


def test_a_text_that_is_cut_inside_a_character_is_shown_as_far_as_it_goes(tmp_path):
    path = written(tmp_path / "model.gguf", gguf_bytes([gguf_key("a", "string", b"ab\xe2\x82")]))
    assert gguf.read_header(path).fields["a"] == "ab\N{REPLACEMENT CHARACTER}"


def test_a_tensor_whose_numbers_cannot_be_read_is_refused_by_name(tmp_path, refused, snapshot):
    tensors = [gguf_tensor("quantised", (32,), 2, 0), gguf_tensor("new", (32,), 999, 32)]
    path = written(tmp_path / "model.gguf", gguf_bytes([], tensors, bytes(64)))
    for name, info in gguf.read_header(path).tensors.items():
        assert refused(arrays.read, info) == snapshot(name=name)


def nested_arrays(depth):
    return gguf_string("n") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * depth + struct.pack("<IQ", 4, 0)


def tensor_file(*tensors, data=b"", keys=()):
    return gguf_bytes(list(keys), list(tensors), data)


def lies() -> dict[str, bytes]:
    return {
        "empty": b"",
        "bad magic": b"GGML" + bytes(40),
        "a pointer": b"version https://git-lfs.github.com/spec/v1\n",
        "only magic": b"GGUF",
        "version 1": gguf_bytes([], version=1),
        "version 4": gguf_bytes([], version=4),
        "version 4, big endian": gguf_bytes([], version=4, order=">"),
        "more keys than bytes": gguf_bytes([LLAMA], key_count=10**15),
        "more tensors than bytes": gguf_bytes([LLAMA], tensor_count=2**64 - 1),
        "too many keys": gguf_bytes([], key_count=70_000) + bytes(70_000 * 13),
        "a key twice": gguf_bytes([LLAMA, LLAMA]),
        "a key beyond the file": gguf_bytes([struct.pack("<Q", 10**12) + bytes(20)]),
        "a key past the end": gguf_bytes([struct.pack("<Q", 40) + bytes(20)]),
        "a long key": gguf_bytes([gguf_key("k" * 65_536, "bool", True)]),
        "a key that is no text": gguf_bytes([gguf_key(b"\xff\xfe", "bool", True)]),
        "an unknown kind": gguf_bytes([gguf_string("a") + struct.pack("<IQ", 13, 0)]),
        "an unknown kind in an array": gguf_bytes([gguf_string("a") + struct.pack("<IIQ", 9, 77, 0)]),
        "a text beyond the file": gguf_bytes([gguf_string("a") + struct.pack("<IQ", 8, 2**63)]),
        "an array beyond the file": gguf_bytes([gguf_string("a") + struct.pack("<IIQ", 9, 12, 10**15)]),
        "strings beyond the file": gguf_bytes([gguf_string("a") + struct.pack("<IIQ", 9, 8, 10**15)]),
        "a string in an array beyond the file": gguf_bytes(
            [gguf_string("a") + struct.pack("<IIQQQ", 9, 8, 2, 2**64 - 1, 0)]
        ),
        "the last string in an array beyond the file": gguf_bytes(
            [gguf_string("a") + struct.pack("<IIQQ", 9, 8, 1, 1)]
        ),
        "arrays beyond the file": gguf_bytes([gguf_string("a") + struct.pack("<IIQ", 9, 9, 10**15)]),
        "a million nested arrays": gguf_bytes([nested_arrays(10**6)]),
        "alignment 0": gguf_bytes([gguf_key("general.alignment", "uint32", 0)]),
        "alignment 24": gguf_bytes([gguf_key("general.alignment", "uint32", 24)]),
        "alignment true": gguf_bytes([gguf_key("general.alignment", "bool", True)]),
        "a tensor twice": tensor_file(gguf_tensor("a", (2,), 0, 0), gguf_tensor("a", (2,), 0, 32), data=bytes(64)),
        "five axes": tensor_file(gguf_tensor("a", (1, 1, 1, 1, 1), 0, 0), data=bytes(4)),
        "4 billion axes": gguf_bytes([], [gguf_string("a") + struct.pack("<I", 2**32 - 1) + bytes(20)]),
        "absurd sizes": tensor_file(gguf_tensor("a", (2**63, 2**63), 0, 0)),
        "rows that are no whole blocks": tensor_file(gguf_tensor("a", (33,), 2, 0), data=bytes(64)),
        "a tensor off the grid": tensor_file(gguf_tensor("a", (2,), 0, 4), data=bytes(64)),
        "a tensor beyond the file": tensor_file(gguf_tensor("a", (1000,), 0, 0), data=bytes(64)),
        "an offset beyond the file": tensor_file(gguf_tensor("a", (2,), 0, 2**63), data=bytes(64)),
        "overlapping tensors": tensor_file(gguf_tensor("a", (9,), 0, 0), gguf_tensor("b", (2,), 0, 32), data=bytes(64)),
    }


def test_a_file_that_lies_is_refused(tmp_path, refused, snapshot, cases):
    for name, data in lies().items():
        path = written(tmp_path / "model.gguf", data)
        with cases(name):
            with traced() as peak:
                told = refused(gguf.read_header, path)
                assert peak() < 2**20
            assert told == snapshot(name=name)


def test_counts_that_no_model_has_are_refused_before_they_are_walked(tmp_path, monkeypatch, refused, snapshot):
    """Sparse files: empty strings, tensors and empty arrays of which nothing is stored."""
    path = tmp_path / "model.gguf"

    def sparse(item: int, count: int, size: int) -> tuple[str, str]:
        path.write_bytes(gguf_bytes([gguf_string("t") + struct.pack("<IIQ", 9, item, count)]))
        os.truncate(path, path.stat().st_size + size * count)
        return refused(gguf.read_header, path)

    assert sparse(8, 2**24 + 1, 8) == snapshot(name="strings")
    path.write_bytes(gguf_bytes([], tensor_count=2**20 + 1))
    os.truncate(path, 24 * (2**20 + 2))
    assert refused(gguf.read_header, path) == snapshot(name="tensors")
    monkeypatch.setattr(gguf, "MOST_STEPS", 2**17)  # 2**24 of them are walked for seconds
    assert sparse(9, 2**13 + 1, 12) == snapshot(name="arrays")


def test_a_real_model_is_read_whole_and_lean():
    path = smollm2_file()
    gguf.read_header(path)  # imports and caches are not the walk's
    with traced() as peak:
        header = gguf.read_header(path)
        assert peak() < 2**20
    assert (header.version, header.byte_order, len(header.tensors)) == (3, "little", 272)
    assert header.fields["general.architecture"] == "llama"
    assert header.fields["llama.rope.freq_base"] == 100_000.0
    assert header.fields["llama.rope.dimension_count"] == 64
    assert header.fields["llama.context_length"] == 8192
    assert header.fields["tokenizer.ggml.tokens"].length == 49_152
    assert header.tensors["blk.29.attn_q.weight"].shape == (576, 576)
    norm = arrays.read(header.tensors["blk.0.attn_norm.weight"])
    assert (norm.shape, norm.dtype) == ((576,), np.float32)
    assert np.isfinite(norm).all()


def test_a_real_model_with_its_position_keys_last_is_read(tmp_path):
    """The position keys are moved behind the vocabulary; the numbers after the header move with it."""
    whole = smollm2_file().read_bytes()
    base = gguf_key("llama.rope.freq_base", "float32", 100_000.0)
    width = gguf_key("llama.rope.dimension_count", "uint32", 64)
    last = gguf_key("general.quantization_version", "uint32", 2)
    for part in (base, width, last):
        assert whole.count(part) == 1
    moved = whole.replace(base, b"").replace(width, b"").replace(last, last + base + width)
    assert len(moved) == len(whole)
    before = gguf.read_header(smollm2_file())
    after = gguf.read_header(written(tmp_path / "moved.gguf", moved))
    assert list(after.fields)[-2:] == ["llama.rope.freq_base", "llama.rope.dimension_count"]
    short = {key: value for key, value in before.fields.items() if not isinstance(value, gguf.Unread)}
    assert short == {key: after.fields[key] for key in short}
    assert [info.offset for info in after.tensors.values()] == [info.offset for info in before.tensors.values()]
