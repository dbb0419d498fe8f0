"""Safetensors headers and tensors, held to the library that defines the format."""

import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from clockhands.errors import TooLarge, Unreadable
from clockhands.formats import arrays, safetensors
from written_files import entry, safetensors_bytes, written

LIBRARY_TYPES = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16"]
LIBRARY_TYPES += ["uint8", "bool", "bfloat16"]
FLOAT8 = {
    "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip


def dtype_named(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def test_what_the_library_writes_is_read(tmp_path):
    rng = np.random.default_rng(0)
    saved = {name: (rng.normal(size=(3, 5)) * 9).astype(dtype_named(name)) for name in LIBRARY_TYPES}
    saved |= {"complex64": np.array([1 + 2j], "complex64"), "scalar": np.array(7, "float32"), "none": np.zeros((0, 4))}
    path = tmp_path / "model.safetensors"
    save_file(saved, path, metadata={"format": "np"})
    header = safetensors.read_header(path)
    assert header.metadata == {"format": "np"}
    assert header.tensors.keys() == saved.keys()
    for name, array in saved.items():
        read = arrays.read(header.tensors[name])
        assert read.dtype == array.dtype
        assert header.tensors[name].dtype == array.dtype.name
        np.testing.assert_array_equal(read, array)


def test_float8_is_read(tmp_path, cases):
    for code, name in FLOAT8.items():
        array = np.array([[1, 2], [0.5, 4]]).astype(dtype_named(name))
        data = safetensors_bytes({"a": entry(code, (2, 2), (0, 4))}, array.tobytes())
        with cases(name):
            read = arrays.read(safetensors.read_header(written(tmp_path / "x.safetensors", data)).tensors["a"])
            assert read.dtype == array.dtype
            np.testing.assert_array_equal(read.astype("float64"), array.astype("float64"))


def test_numbers_narrower_than_a_byte_are_listed_but_not_read(tmp_path, refused, snapshot):
    path = written(tmp_path / "x.safetensors", safetensors_bytes({"a": entry("F4", (16,))}, bytes(8)))
    info = safetensors.read_header(path).tensors["a"]
    assert (info.dtype, info.shape) == ("F4", (16,))
    assert refused(arrays.read, info) == snapshot


def test_a_tensor_larger_than_memory_is_refused(tmp_path, monkeypatch, refused, snapshot):
    path = tmp_path / "model.safetensors"
    save_file({"a": np.zeros(1024)}, path)
    told = set()
    for left, largest in ((4096, arrays.LARGEST), (None, 4096)):
        monkeypatch.setattr(arrays.memory, "available", lambda left=left: left)
        monkeypatch.setattr(arrays, "LARGEST", largest)
        told.add(refused(arrays.read, safetensors.read_header(path).tensors["a"], error=TooLarge))
    (one,) = told
    assert one == snapshot


LIES = {
    "empty": b"",
    "7 bytes": b"\0" * 7,
    "length beyond the file": safetensors_bytes({"a": entry()}, length=10**15),
    "not safetensors": b"GGUF\3\0\0\0" + bytes(100),
    "no JSON": safetensors_bytes(b"abc"),
    "no object": safetensors_bytes(b"[1]"),
    "empty header": safetensors_bytes(b""),
    "a name twice": safetensors_bytes(
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        bytes(8),
    ),
    "metadata not text": safetensors_bytes({"__metadata__": {"a": 1}}),
    "metadata a list": safetensors_bytes({"__metadata__": ["a"]}),
    "entry no object": safetensors_bytes({"a": 5}),
    "unknown type": safetensors_bytes({"a": entry("F33")}, bytes(8)),
    "type no text": safetensors_bytes({"a": entry(["F32"])}, bytes(8)),
    "negative size": safetensors_bytes({"a": entry(shape=(-2,))}, bytes(8)),
    "size no whole number": safetensors_bytes({"a": entry(shape=(2.0,))}, bytes(8)),
    "size a bool": safetensors_bytes({"a": entry(shape=(True,))}, bytes(8)),
    "absurd shape": safetensors_bytes({"a": entry(shape=(2**63, 2**63, 0), offsets=(0, 0))}),
    "65 axes": safetensors_bytes({"a": entry(shape=(1,) * 65, offsets=(0, 4))}, bytes(4)),
    "negative offset": safetensors_bytes({"a": entry(offsets=(-8, 0))}, bytes(8)),
    "offsets backwards": safetensors_bytes({"a": entry(offsets=(8, 0))}, bytes(8)),
    "three offsets": safetensors_bytes({"a": entry(offsets=(0, 8, 8))}, bytes(8)),
    "no offsets": safetensors_bytes({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)),
    "wrong size of the type": safetensors_bytes({"a": entry("F64")}, bytes(8)),
    "half a byte": safetensors_bytes({"a": entry("F4", (15,))}, bytes(8)),
    "overlap": safetensors_bytes({"a": entry(), "b": entry(offsets=(4, 12))}, bytes(12)),
    "hole": safetensors_bytes({"a": entry(), "b": entry(offsets=(16, 24))}, bytes(24)),
    "hole at the start": safetensors_bytes({"a": entry(offsets=(8, 16))}, bytes(16)),
    "truncated data": safetensors_bytes({"a": entry()}, bytes(7)),
    "more data": safetensors_bytes({"a": entry()}, bytes(9)),
    "cut inside its header": safetensors_bytes({"a": entry()}, bytes(8))[:20],
    "a pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 8\n",
}


def test_a_file_that_lies_is_refused(tmp_path, refused, snapshot, cases):
    for name, data in LIES.items():
        path = written(tmp_path / "model.safetensors", data)
        with cases(name):
            assert refused(safetensors.read_header, path) == snapshot(name=name)
            assert library_opens(path) == (name in {"a name twice", "65 axes"})


def library_opens(path) -> bool:
    try:
        with safe_open(path, "np") as file:
            file.keys()
    except (SafetensorError, ValueError, OSError):
        return False
    return True


def test_headers_longer_or_deeper_than_the_format_allows_are_refused(tmp_path, refused, snapshot, cases):
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write((10**8 + 1).to_bytes(8, "little") + b"{")
        file.truncate(2 * 10**8)  # sparse: nothing is stored
    assert refused(safetensors.read_header, path) == snapshot(name="longer")
    for opening in (b'{"a":', b"[", b'{"__metadata__":['):
        written(path, safetensors_bytes(b'{"a":' + opening * 10**6))
        with cases(opening):
            assert refused(safetensors.read_header, path) == snapshot(name="deeper")


def test_a_file_that_shrinks_after_its_header_was_read_is_refused(tmp_path, refused, snapshot):
    data = safetensors_bytes({"a": entry()}, bytes(8))
    path = written(tmp_path / "model.safetensors", data)
    header = safetensors.read_header(path)
    written(path, data[:-1])
    assert refused(arrays.read, header.tensors["a"]) == snapshot


SIZES = st.lists(st.integers(0, 5), max_size=3)
NUMBERS = st.one_of(st.integers(-2, 40), st.sampled_from([2**63, 2**64, 1.5, None, "8", True]))
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.one_of(st.sampled_from(list(safetensors.TYPES)), st.just("F99")),
        "shape": st.one_of(SIZES, st.lists(NUMBERS, max_size=3)),
        "data_offsets": st.one_of(st.lists(st.integers(0, 40), min_size=2, max_size=2), st.lists(NUMBERS, max_size=3)),
    }
)


@st.composite
def nearly_sound(draw):
    """A sound file of a few tensors, in which sometimes one thing is changed."""
    fields, at = {}, 0
    for number in range(draw(st.integers(0, 4))):
        code = draw(st.sampled_from(list(safetensors.TYPES)))
        shape = draw(SIZES)
        bits = int(np.prod(shape, dtype=int)) * arrays.bits_of(safetensors.TYPES[code] or code)
        fields[f"t{number}"] = {"dtype": code, "shape": shape, "data_offsets": [at, at + bits // 8]}
        at += bits // 8
    if fields and draw(st.booleans()):
        fields[draw(st.sampled_from(sorted(fields)))] = draw(ENTRIES)
    return safetensors_bytes(fields, bytes(max(0, at + draw(st.sampled_from([0, 0, 0, -1, 1])))))


@settings(max_examples=50)
@given(data=nearly_sound())
def test_what_the_library_opens_is_opened_and_what_it_refuses_is_refused(tmp_path_factory, data):
    path = written(tmp_path_factory.mktemp("held") / "x.safetensors", data)
    try:
        header = safetensors.read_header(path)
    except Unreadable as error:
        refused = error.message
    else:
        refused = None
    if refused:
        assert "absurd" in refused or not library_opens(path), refused
        return
    with safe_open(path, "np") as library:
        assert set(library.keys()) == set(header.tensors)
        for name, info in header.tensors.items():
            assert tuple(library.get_slice(name).get_shape()) == info.shape


def sharded(folder, weight_map=None, **index):
    save_file({"a": np.arange(2.0), "b": np.arange(3.0)}, folder / "model-00001-of-00002.safetensors", {"format": "np"})
    save_file({"c": np.arange(4.0)}, folder / "model-00002-of-00002.safetensors")
    names = {"a": 1, "b": 1, "c": 2}
    weight_map = weight_map or {name: f"model-0000{number}-of-00002.safetensors" for name, number in names.items()}
    path = folder / "model.safetensors.index.json"
    return written(path, json.dumps({"metadata": {"total_size": 72}, "weight_map": weight_map} | index).encode())


def test_a_missing_shard_is_refused_or_listed(tmp_path, refused, snapshot):
    index = sharded(tmp_path)
    gone = tmp_path / "model-00002-of-00002.safetensors"
    gone.unlink()
    assert refused(safetensors.read_index, index) == snapshot
    header = safetensors.read_index(index, allow_absent=True)
    assert (list(header.tensors), header.absent) == (["a", "b"], (gone.name,))
    assert header.metadata == {"format": "np"}
    written(gone, b"version https://git-lfs.github.com/spec/v1\n")
    assert safetensors.read_index(index, allow_absent=True).absent == (gone.name,)


OUTSIDE = ["../x.safetensors", "/etc/passwd", "a/../../x", "sub/x.safetensors", "..", ".", "", "C:\\x", "C:x", "..\\x"]


def test_a_shard_outside_the_folder_is_refused(tmp_path, refused, cases):
    for name in [*OUTSIDE, "\\\\h\\s", "a\0b"]:
        index = sharded(tmp_path, {"a": name})
        for allowed in (False, True):
            with cases(repr(name), allowed):
                assert refused(safetensors.read_index, index, allow_absent=allowed) == (
                    f"FOLDER/{index.name} names the shard {name!r}, which is not a file name in its own folder.",
                    "Do not trust this checkpoint: shards must be in the folder of their index.",
                )


def test_a_shard_that_is_a_link_out_of_the_folder_is_refused(tmp_path, refused, snapshot):
    (tmp_path / "model").mkdir()
    index = sharded(tmp_path / "model")
    shard = tmp_path / "model" / "model-00002-of-00002.safetensors"
    shard.rename(tmp_path / "other.safetensors")
    shard.symlink_to("../other.safetensors")
    assert refused(safetensors.read_index, index, allow_absent=True) == snapshot


@pytest.mark.parametrize("place", ["model/inside.safetensors", "models--a--b/blobs/0123"])
def test_links_inside_the_folder_and_into_a_download_cache_are_followed(tmp_path, place):
    folder = tmp_path / "model"
    folder.mkdir()
    index = sharded(folder)
    shard = folder / "model-00002-of-00002.safetensors"
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    shard.rename(tmp_path / place)
    shard.symlink_to(tmp_path / place)
    assert list(safetensors.read_index(index).tensors) == ["a", "b", "c"]


def test_an_index_of_another_checkpoint_or_without_a_map_is_refused(tmp_path, refused, snapshot, cases):
    index = sharded(tmp_path, {"z": "model-00001-of-00002.safetensors"})
    assert refused(safetensors.read_index, index) == snapshot(name="another")
    for weight_map in (None, [], {"a": 1}, "x"):
        written(index, json.dumps({"weight_map": weight_map}).encode())
        with cases(weight_map):
            assert refused(safetensors.read_index, index) == snapshot(name="without a map")
