"""``.npy`` and ``.npz``: read when they hold numbers, refused before memory is taken when they do not."""

import io
import pickle
import re
import struct
import subprocess
import sys
import tracemalloc
import zipfile

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from clockhands.errors import TooLarge, Unreadable
from clockhands.sources import arrays
from written_files import gguf_bytes, gguf_key, onnx_bytes, onnx_tensor, refusal, written

AGAIN = "Write or download the file again."


def saved(path, array, **named):
    np.save(path, array, **named)
    return path


def npy_bytes(header: str | bytes, data: bytes = b"", version: tuple[int, int] = (1, 0), length: int | None = None):
    """A .npy file with any header text and any declared length of it."""
    text = header.encode() if isinstance(header, str) else header
    form = "<H" if version == (1, 0) else "<I"
    declared = struct.pack(form, len(text) if length is None else length)
    return b"\x93NUMPY" + bytes(version) + declared + text + data


def descr(dtype: str = "<f4", shape: str = "(2,)", fortran: str = "False") -> str:
    return f"{{'descr': '{dtype}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8", "<f2", ">i8", "|u1", "|b1", ">c8", "<u2"])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 4), (2, 3, 4), (0, 5)])
def test_what_numpy_writes_is_read(tmp_path, dtype, order, shape):
    array = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape), dtype=dtype, order=order)
    info = arrays.npy_header(saved(tmp_path / "a.npy", array))
    read = arrays.read(info)
    assert (info.name, info.shape, info.dtype) == ("a.npy", shape, array.dtype.name)
    assert read.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(read, array)
    np.savez_compressed(tmp_path / "b.npz", it=array)
    np.testing.assert_array_equal(arrays.read(arrays.npz_header(tmp_path / "b.npz", "it")), array)


def test_a_header_of_version_2_is_read(tmp_path):
    path = written(tmp_path / "a.npy", npy_bytes(descr(), struct.pack("<2f", 1, 2), (2, 0)))
    np.testing.assert_array_equal(arrays.read(arrays.npy_header(path)), [1, 2])


def test_a_header_written_by_python_2_is_read(tmp_path):
    path = written(tmp_path / "a.npy", npy_bytes(descr(shape="(2L,)"), struct.pack("<2f", 1, 2)))
    np.testing.assert_array_equal(arrays.read(arrays.npy_header(path)), [1, 2])


def test_big_endian_bfloat16_is_read(tmp_path):
    path = written(tmp_path / "block", bytes.fromhex("3f80c000"))
    info = arrays.TensorInfo("a", "bfloat16", (2,), path, big_endian=True)
    read = arrays.read(info)
    assert read.dtype == ml_dtypes.bfloat16
    assert read.tolist() == [1, -2]


def test_a_bool_of_another_byte_is_true(tmp_path):
    path = written(tmp_path / "block", bytes([0, 1, 2, 255]))
    assert arrays.read(arrays.TensorInfo("a", "bool", (4,), path)).tolist() == [False, True, True, True]


class Explosive:
    """Unpickling it runs code."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (b"", "{path} is not a .npy array: it is empty.", AGAIN),
        (b"\x93NUM", "{path} is not a .npy array: its first bytes are b'\\x93NUM'.", AGAIN),
        (b"GGUF0000", "{path} is not a .npy array: it starts like a GGUF file.", AGAIN),
        (
            pickle.dumps(Explosive()),
            "{path} is not a .npy array: it starts like a Python pickle.",
            "Pickles can run code: save it with np.save.",
        ),
        (
            b"\x93NUMPY\x03\x00" + bytes(100),
            "{path} is a .npy array of version 3.0; plain numbers have version 1.0 or 2.0.",
            "Save it again with np.save as a plain array of numbers.",
        ),
        (
            b"\x93NUMPY\x01\x00",
            "{path} ends inside 'a.npy'.",
            AGAIN,
        ),
        (
            npy_bytes(descr(), length=60_000),
            "{path} declares a header of 60,000 bytes, and the file has 68; a header of an array of numbers has "
            "at most 10,000.",
            AGAIN,
        ),
        (
            npy_bytes(descr(), bytes(8), (2, 0), length=2**32 - 1),
            "{path} declares a header of 4,294,967,295 bytes, and the file has 78; a header of an array of numbers has "
            "at most 10,000.",
            AGAIN,
        ),
        (
            npy_bytes(descr(shape="(1000000000000000,)"), bytes(128)),
            "{path} declares 4,000,000,000,000,000 bytes of numbers (shape (1000000000000000,), float32), but holds "
            "128.",
            AGAIN,
        ),
        (
            npy_bytes(descr(), bytes(7)),
            "{path} declares 8 bytes of numbers (shape (2,), float32), but holds 7.",
            AGAIN,
        ),
        (npy_bytes(descr(shape="(-2,)"), bytes(8)), "{path} declares the shape (-2,), with a negative size.", AGAIN),
        (
            npy_bytes(descr(shape=f"({2**62}, 0, {2**62})")),
            "{path} declares the impossible shape (4611686018427387904, 0, 4611686018427387904).",
            AGAIN,
        ),
        (npy_bytes("{'descr': '<f4'}"), "{path} has a .npy header that NumPy cannot read.", AGAIN),
        (npy_bytes("__import__('os')"), "{path} has a .npy header that NumPy cannot read.", AGAIN),
        (npy_bytes("(" * 9000), "{path} has a .npy header that NumPy cannot read.", AGAIN),
        (npy_bytes("-" * 9000 + "1"), "{path} has a .npy header that NumPy cannot read.", AGAIN),
        (npy_bytes("'\\d\x00"), "{path} has a .npy header that NumPy cannot read.", AGAIN),
        (npy_bytes(descr("<q9")), "{path} has a .npy header that NumPy cannot read.", AGAIN),
        (
            npy_bytes(descr("|O"), pickle.dumps(Explosive())),
            "{path} holds Python objects (a pickle), which could run code when loaded; only numbers are read.",
            "Save it again as numbers, for instance np.save(file, array.astype(np.float32)).",
        ),
        (
            npy_bytes(descr("|V2", "(4,)"), bytes(8)),
            "{path} holds raw bytes (dtype void16), as .npy files do for bfloat16 and float8 arrays.",
            "Save it as float32, or in a .safetensors file, which keeps the type.",
        ),
        (
            npy_bytes(descr("<U4"), bytes(32)),
            "{path} holds str128 values, where plain numbers are expected.",
            "Save the numbers as an array of floats or integers.",
        ),
        (
            npy_bytes(descr("<M8[s]"), bytes(16)),
            "{path} holds datetime64[s] values, where plain numbers are expected.",
            "Save the numbers as an array of floats or integers.",
        ),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(tmp_path, data, message, hint):
    path = written(tmp_path / "a.npy", data)
    said, way_out = refusal(arrays.npy_header, path, error=Unreadable)
    assert said == message.format(path=path)
    assert way_out == hint


@pytest.mark.parametrize("inside", [Explosive(), None])
def test_a_pickled_object_array_is_refused_without_being_opened(tmp_path, inside):
    path = saved(tmp_path / "a.npy", np.array([inside], dtype=object), allow_pickle=True)
    message, _ = refusal(arrays.npy_header, path, error=Unreadable)
    assert "a pickle" in message


def test_structures_are_refused(tmp_path):
    path = saved(tmp_path / "a.npy", np.zeros(3, dtype=[("x", "<f4"), ("y", "<i4")]))
    message, hint = refusal(arrays.npy_header, path, error=Unreadable)
    assert message == (
        f"{path} holds structures (dtype \"[('x', '<f4'), ('y', '<i4')]\"), where plain numbers are expected."
    )
    assert hint == "Save the field that you need as a separate array."


def npz(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def npy_of(array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def test_an_archive_lists_its_arrays_and_nothing_else(tmp_path):
    members = {"a.npy": npy_of(np.ones(2)), "deep/b:0.npy": npy_of(np.ones(3)), "notes.txt": b"x"}
    path = npz(tmp_path / "x.npz", members)
    assert arrays.npz_names(path) == ("a", "deep/b:0")
    np.testing.assert_array_equal(arrays.read(arrays.npz_header(path, "deep/b:0")), [1, 1, 1])
    message, hint = refusal(arrays.npz_header, path, "notes.txt", error=Unreadable)
    assert message == f"{path} has no array 'notes.txt'."
    assert hint == "It holds a, deep/b:0."


def test_a_long_list_of_names_is_cut(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, **{f"t{number}": np.ones(1) for number in range(10)})
    _, hint = refusal(arrays.npz_header, path, "t10", error=Unreadable)
    assert hint == "It holds t0, t1, t2, t3, t4, t5, t6, t7 and 2 more."


def test_an_empty_archive_holds_nothing(tmp_path):
    path = npz(tmp_path / "x.npz", {})
    _, hint = refusal(arrays.npz_header, path, "a", error=Unreadable)
    assert hint == "It holds nothing."


def test_two_arrays_of_one_name_are_refused(tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", npy_of(np.ones(1)))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.npy", npy_of(np.zeros(1)))
    message, hint = refusal(arrays.npz_names, path, error=Unreadable)
    assert (message, hint) == (f"{path} holds two arrays named 'a'.", AGAIN)


def test_what_is_no_archive_is_refused(tmp_path):
    path = written(tmp_path / "x.npz", b"\x93NUMPY")
    message, hint = refusal(arrays.npz_names, path, error=Unreadable)
    assert message == f"{path} is not an .npz archive: it starts like a .npy array."
    assert hint == "Give the file the ending of its real type, or save it again."
    whole = npz(tmp_path / "y.npz", {"a.npy": npy_of(np.ones(100))}).read_bytes()
    path = written(tmp_path / "x.npz", whole[:-30])
    message, hint = refusal(arrays.npz_names, path, error=Unreadable)
    assert (message, hint) == (f"{path} cannot be read as a zip archive: File is not a zip file.", AGAIN)


def test_a_damaged_member_is_refused(tmp_path):
    data = bytearray(npz(tmp_path / "x.npz", {"a.npy": npy_of(np.arange(1000.0))}).read_bytes())
    data[200] ^= 0xFF
    path = written(tmp_path / "x.npz", bytes(data))
    message, hint = refusal(lambda: arrays.read(arrays.npz_header(path, "a")), error=Unreadable)
    assert message.startswith(f"{path} cannot be read as a zip archive: ")
    assert hint == AGAIN


def test_an_encrypted_member_is_refused(tmp_path):
    data = bytearray(npz(tmp_path / "x.npz", {"a.npy": npy_of(np.ones(4))}).read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + flags] |= 1
    path = written(tmp_path / "x.npz", bytes(data))
    message, _ = refusal(arrays.npz_header, path, "a", error=Unreadable)
    assert message.startswith(f"{path} cannot be read as a zip archive: File 'a.npy' is encrypted")


def test_a_member_that_declares_more_than_it_holds_is_refused(tmp_path):
    path = npz(tmp_path / "x.npz", {"a.npy": npy_bytes(descr(shape="(1000000000000000,)"), bytes(72))})
    message, hint = refusal(arrays.npz_header, path, "a", error=Unreadable)
    assert message == (
        f"'a' in {path} declares 4,000,000,000,000,000 bytes of numbers (shape (1000000000000000,), float32), but "
        "holds 72."
    )
    assert hint == AGAIN


def test_a_member_whose_archive_lies_about_its_size_is_refused(tmp_path):
    data = bytearray(npz(tmp_path / "x.npz", {"a.npy": npy_bytes(descr(shape="(1000000,)"), bytes(72))}).read_bytes())
    size = data.index(b"PK\x01\x02") + 24
    data[size : size + 4] = struct.pack("<I", 5_000_000)
    path = written(tmp_path / "x.npz", bytes(data))
    info = arrays.npz_header(path, "a")
    message, _ = refusal(arrays.read, info, error=Unreadable)
    assert message in {
        f"{path} ends inside 'a'.",
        f"{path} cannot be read as a zip archive: Bad CRC-32 for file 'a.npy'.",
    }


def reference(array):
    """Rows with a NaN or an infinity, by NumPy on the whole array."""
    rows = array.reshape(array.shape[0] if array.ndim else 1, -1) if array.size else np.zeros((0, 1))
    return np.flatnonzero(~np.isfinite(rows).all(axis=1)).tolist()


@given(
    array=hnp.arrays(
        st.sampled_from(["<f4", ">f8", "<f2", "<i4", "<c8"]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9),
    ),
    order=st.sampled_from("CF"),
    chunk=st.sampled_from([1, 3, 7, 1000]),
)
def test_a_summary_counts_what_numpy_counts(tmp_path_factory, array, order, chunk):
    path = saved(tmp_path_factory.mktemp("summary") / "a.npy", np.asarray(array, order=order))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "_CHUNK", chunk)
        summary = arrays.summarise(arrays.npy_header(path))
    expected = reference(array)
    assert summary == arrays.Summary(array.shape, array.dtype.name, len(expected), tuple(expected[:8]))


def test_the_reference_can_fail():
    assert reference(np.array([[1, 2], [np.nan, 1], [np.inf, np.nan]])) == [1, 2]
    assert reference(np.zeros((3, 2))) == []


def test_a_summary_of_bfloat16(tmp_path):
    array = np.array([[1, np.nan], [2, 3], [np.inf, 1]], ml_dtypes.bfloat16)
    path = written(tmp_path / "block", array.tobytes())
    summary = arrays.summarise(arrays.TensorInfo("a", "bfloat16", (3, 2), path))
    assert summary == arrays.Summary((3, 2), "bfloat16", 2, (0, 2))


@pytest.mark.parametrize("packed", [False, True])
def test_a_summary_holds_a_few_megabytes_of_a_large_file(tmp_path, packed):
    array = np.zeros((2**16, 2**7), "float32")  # 32 MiB
    array[-1, 3] = np.nan
    if packed:
        np.savez_compressed(tmp_path / "a.npz", a=array)
        info = arrays.npz_header(tmp_path / "a.npz", "a")
    else:
        info = arrays.npy_header(saved(tmp_path / "a.npy", array))
    del array
    tracemalloc.start()
    try:
        summary = arrays.summarise(info)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (summary.nonfinite_rows, summary.first_nonfinite) == (1, (2**16 - 1,))
    assert peak < 8 * 2**20


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "|b1", "<i8"])
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (3, 4), (2, 3, 4)])
def test_a_mapped_tensor_is_the_one_that_is_read(tmp_path, monkeypatch, dtype, order, shape):
    monkeypatch.setattr(arrays, "_MAPPED_FROM", 0)
    array = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape), dtype=dtype, order=order)
    info = arrays.npy_header(saved(tmp_path / "a.npy", array))
    np.savez(tmp_path / "b.npz", it=array)
    for place in (info, arrays.npz_header(tmp_path / "b.npz", "it")):
        mapped = arrays.mapped(place)
        assert (mapped.dtype, mapped.shape) == (array.dtype.newbyteorder("="), shape)
        np.testing.assert_array_equal(mapped, array)
    plain = dtype in {"<f4", "<f2", "<i8"} and array.size
    assert isinstance(arrays.mapped(info), np.memmap) == bool(plain)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "|b1"])
@pytest.mark.parametrize("shape", [(7,), (40, 4), (40, 3, 4)])
def test_some_rows_are_those_of_the_whole(tmp_path, monkeypatch, dtype, order, shape):
    monkeypatch.setattr(arrays, "_PIECE", 100)  # fewer bytes than neighbouring rows have
    array = np.asarray(np.arange(np.prod(shape)).reshape(shape) % 251, dtype=dtype, order=order)
    info = arrays.npy_header(saved(tmp_path / "a.npy", array))
    for rows in ([], [3], [0, 1, 2], [6, 5, 5, 0], list(range(len(array)))):
        taken = arrays.read_rows(info, np.array(rows, np.int64))
        assert taken.dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(taken, array[rows])


# Truncates the file when its header begins to be walked, or when a table was opened, and goes on.
TRUNCATED_MEANWHILE = """
import os, sys
from clockhands.errors import Unreadable
from clockhands.sources import _onnx, arrays, gguf, open_target
from clockhands.sources.position_tables import rows_of

path = sys.argv[1]

def after_truncation(function):
    def called(*arguments):
        os.truncate(path, 0)
        return function(*arguments)
    return called

gguf._walk = after_truncation(gguf._walk)
_onnx._Walk.model = after_truncation(_onnx._Walk.model)
try:
    opened = open_target(path)
    rows = rows_of(next(iter(opened.tensors.values())))
    os.truncate(path, 0)
    print(rows.sum())
except Unreadable as error:
    print(error.message)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be truncated there")
@pytest.mark.parametrize("kind", ["gguf", "onnx", "npy"])
def test_a_file_that_is_truncated_meanwhile_does_not_end_the_process(tmp_path, kind):
    table = np.ones((300, 100), np.float32)
    path = tmp_path / f"t.{kind}"
    if kind == "npy":
        np.save(path, table)
    elif kind == "onnx":
        path.write_bytes(onnx_bytes([onnx_tensor(f"t{each}", table.shape, raw=table.tobytes()) for each in range(3)]))
    else:
        path.write_bytes(gguf_bytes([gguf_key("words", "array of string", ["word"] * 5000)]))
    words = [sys.executable, "-c", TRUNCATED_MEANWHILE, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    if kind == "npy":
        assert done.stdout == "30000.0\n", "it was read whole"
    else:
        assert re.search(r"ends after [\d,]+ bytes, but had [\d,]+ when it was opened\.", done.stdout)


def test_a_tensor_that_ends_early_is_not_mapped(tmp_path):
    path = written(tmp_path / "block", bytes(8))
    message, hint = refusal(arrays.mapped, arrays.TensorInfo("a", "float32", (3,), path), error=Unreadable)
    assert (message, hint) == (f"{path} ends inside 'a'.", AGAIN)


def test_a_zip_bomb_is_not_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, a=np.zeros(2**20))  # 8 MiB of zeros in 8 kB: the ratio of a bomb, a size for a test
    monkeypatch.setattr(arrays, "LARGEST", 2**20)
    info = arrays.npz_header(path, "a")
    monkeypatch.setattr(arrays, "_exactly", None)  # from here on nothing may be read
    message, hint = refusal(arrays.read, info, error=TooLarge)
    assert message == f"'a' in {path} would take 8 MiB; at most 1 MiB can be read into memory."
    assert hint == "Save the part that you need as a separate array."
