"""``.npy`` and ``.npz``: read when they hold numbers, refused before memory is taken when they do not."""

import io
import pickle
import re
import struct
import subprocess
import sys
import zipfile
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from clockhands.formats import arrays
from written_files import gguf_bytes, gguf_key, onnx_bytes, onnx_tensor, written


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


def test_what_numpy_writes_is_read(tmp_path, cases):
    for dtype in ("<f4", ">f4", "<f8", ">f8", "<f2", ">i8", "|u1", "|b1", ">c8", "<u2"):
        for shape, order in product([(), (0,), (7,), (3, 4), (2, 3, 4), (0, 5)], "CF"):
            array = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape), dtype=dtype, order=order)
            with cases(dtype, shape, order):
                info = arrays.npy_header(saved(tmp_path / "a.npy", array))
                read = arrays.read(info)
                assert (info.name, info.shape, info.dtype) == ("a.npy", shape, array.dtype.name)
                assert read.dtype == array.dtype.newbyteorder("=")
                np.testing.assert_array_equal(read, array)
                np.savez_compressed(tmp_path / "b.npz", it=array)
                np.testing.assert_array_equal(arrays.read(arrays.npz_header(tmp_path / "b.npz", "it")), array)


def test_headers_of_version_2_and_of_python_2_are_read(tmp_path):
    numbers = struct.pack("<2f", 1, 2)
    for data in (npy_bytes(descr(), numbers, (2, 0)), npy_bytes(descr(shape="(2L,)"), numbers)):
        np.testing.assert_array_equal(arrays.read(arrays.npy_header(written(tmp_path / "a.npy", data))), [1, 2])


def test_big_endian_bfloat16_and_a_bool_of_another_byte_are_read(tmp_path):
    path = written(tmp_path / "block", bytes.fromhex("3f80c000"))
    read = arrays.read(arrays.TensorInfo("a", "bfloat16", (2,), path, big_endian=True))
    assert (read.dtype, read.tolist()) == (ml_dtypes.bfloat16, [1, -2])
    path = written(tmp_path / "block", bytes([0, 1, 2, 255]))
    assert arrays.read(arrays.TensorInfo("a", "bool", (4,), path)).tolist() == [False, True, True, True]


def npy_of(array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


class Explosive:
    """Unpickling it runs code."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


NO_ARRAYS = [
    b"",
    b"\x93NUM",
    b"GGUF0000",
    pickle.dumps(Explosive()),
    b"\x93NUMPY\x03\x00" + bytes(100),
    b"\x93NUMPY\x01\x00",
    npy_bytes(descr(), length=60_000),
    npy_bytes(descr(), bytes(8), (2, 0), length=2**32 - 1),
    npy_bytes(descr(shape="(1000000000000000,)"), bytes(128)),
    npy_bytes(descr(), bytes(7)),
    npy_bytes(descr(shape="(-2,)"), bytes(8)),
    npy_bytes(descr(shape=f"({2**62}, 0, {2**62})")),
    npy_bytes("{'descr': '<f4'}"),
    npy_bytes("__import__('os')"),
    npy_bytes("(" * 9000),
    npy_bytes("-" * 9000 + "1"),
    npy_bytes("'\\d\x00"),
    npy_bytes(descr("<q9")),
    npy_bytes(descr("|O"), pickle.dumps(Explosive())),
    npy_bytes(descr("|V2", "(4,)"), bytes(8)),
    npy_bytes(descr("<U4"), bytes(32)),
    npy_bytes(descr("<M8[s]"), bytes(16)),
    npy_of(np.zeros(3, dtype=[("x", "<f4"), ("y", "<i4")])),
]


def test_what_is_no_array_of_numbers_is_refused(tmp_path, refused, snapshot, cases):
    for number, data in enumerate(NO_ARRAYS):
        path = written(tmp_path / "a.npy", data)
        with cases(data[:100]):
            assert refused(arrays.npy_header, path) == snapshot(name=f"{number:02}")


def npz(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def test_an_archive_lists_its_arrays_and_nothing_else(tmp_path, refused, snapshot):
    members = {"a.npy": npy_of(np.ones(2)), "deep/b:0.npy": npy_of(np.ones(3)), "notes.txt": b"x"}
    path = npz(tmp_path / "x.npz", members)
    assert arrays.npz_names(path) == ("a", "deep/b:0")
    np.testing.assert_array_equal(arrays.read(arrays.npz_header(path, "deep/b:0")), [1, 1, 1])
    assert refused(arrays.npz_header, path, "notes.txt") == snapshot(name="two")
    np.savez(path, **{f"t{number}": np.ones(1) for number in range(10)})
    assert refused(arrays.npz_header, path, "t10") == snapshot(name="a long list is cut")
    assert refused(arrays.npz_header, npz(path, {}), "a") == snapshot(name="none")


def test_archives_that_are_none_or_damaged_are_refused(tmp_path, refused, snapshot):
    path = written(tmp_path / "x.npz", b"\x93NUMPY")
    assert refused(arrays.npz_names, path) == snapshot(name="an array")
    whole = npz(path, {"a.npy": npy_of(np.ones(100))}).read_bytes()
    assert refused(arrays.npz_names, written(path, whole[:-30])) == snapshot(name="truncated")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", npy_of(np.ones(1)))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.npy", npy_of(np.zeros(1)))
    assert refused(arrays.npz_names, path) == snapshot(name="two of one name")
    data = bytearray(npz(path, {"a.npy": npy_of(np.arange(1000.0))}).read_bytes())
    data[200] ^= 0xFF
    message, hint = refused(lambda: arrays.read(arrays.npz_header(written(path, bytes(data)), "a")))
    assert message.startswith("FOLDER/x.npz cannot be read as a zip archive: ")
    assert hint == "Write or download the file again."
    data = bytearray(npz(path, {"a.npy": npy_of(np.ones(4))}).read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + flags] |= 1
    message, _ = refused(arrays.npz_header, written(path, bytes(data)), "a")
    assert message.startswith("FOLDER/x.npz cannot be read as a zip archive: File 'a.npy' is encrypted")


def test_a_member_that_declares_more_than_it_holds_is_refused(tmp_path, refused, snapshot):
    path = npz(tmp_path / "x.npz", {"a.npy": npy_bytes(descr(shape="(1000000000000000,)"), bytes(72))})
    assert refused(arrays.npz_header, path, "a") == snapshot
    data = bytearray(npz(path, {"a.npy": npy_bytes(descr(shape="(1000000,)"), bytes(72))}).read_bytes())
    size = data.index(b"PK\x01\x02") + 24
    data[size : size + 4] = struct.pack("<I", 5_000_000)  # the archive lies about the size as well
    message, _ = refused(arrays.read, arrays.npz_header(written(path, bytes(data)), "a"))
    assert message in {
        "FOLDER/x.npz ends inside 'a'.",
        "FOLDER/x.npz cannot be read as a zip archive: Bad CRC-32 for file 'a.npy'.",
    }


def test_a_mapped_tensor_is_the_one_that_is_read(tmp_path, monkeypatch, cases):
    monkeypatch.setattr(arrays, "_MAPPED_FROM", 0)
    shapes = [(), (0, 3), (7,), (3, 4), (2, 3, 4)]
    for dtype, shape, order in product(["<f4", ">f4", "<f2", "|b1", "<i8"], shapes, "CF"):
        array = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape), dtype=dtype, order=order)
        (tmp_path / "a.npy").unlink(missing_ok=True)  # the last one may be mapped still
        info = arrays.npy_header(saved(tmp_path / "a.npy", array))
        np.savez(tmp_path / "b.npz", it=array)
        with cases(dtype, shape, order):
            for place in (info, arrays.npz_header(tmp_path / "b.npz", "it")):
                mapped = arrays.mapped(place)
                assert (mapped.dtype, mapped.shape) == (array.dtype.newbyteorder("="), shape)
                np.testing.assert_array_equal(mapped, array)
            plain = dtype in {"<f4", "<f2", "<i8"} and array.size
            assert isinstance(arrays.mapped(info), np.memmap) == bool(plain)


def test_some_rows_are_those_of_the_whole(tmp_path, monkeypatch, cases):
    monkeypatch.setattr(arrays, "_PIECE", 100)  # fewer bytes than neighbouring rows have
    for dtype, shape, order in product(["<f4", ">f4", "|b1"], [(7,), (40, 4), (40, 3, 4)], "CF"):
        array = np.asarray(np.arange(np.prod(shape)).reshape(shape) % 251, dtype=dtype, order=order)
        info = arrays.npy_header(saved(tmp_path / "a.npy", array))
        for rows in ([], [3], [0, 1, 2], [6, 5, 5, 0], list(range(len(array)))):
            with cases(dtype, shape, order, rows[:4]):
                taken = arrays.read_rows(info, np.array(rows, np.int64))
                assert taken.dtype == array.dtype.newbyteorder("=")
                np.testing.assert_array_equal(taken, array[rows])


# Truncates the file when its header begins to be walked, or when a table was opened, and goes on.
TRUNCATED_MEANWHILE = """
import os, sys
from clockhands.errors import Unreadable
from clockhands.formats import onnx, arrays, gguf
from clockhands.configs import open_target
from clockhands.configs.position_tables import rows_of

def after_truncation(function):
    def called(*arguments):
        os.truncate(path, 0)
        return function(*arguments)
    return called

gguf._walk = after_truncation(gguf._walk)
onnx._Walk.model = after_truncation(onnx._Walk.model)
for path in sys.argv[1:]:
    try:
        opened = open_target(path)
        rows = rows_of(next(iter(opened.tensors.values())))
        os.truncate(path, 0)
        print(rows.sum())
    except Unreadable as error:
        print(error.message)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be truncated there")
def test_a_file_that_is_truncated_meanwhile_does_not_end_the_process(tmp_path):
    table = np.ones((300, 100), np.float32)
    tensors = [onnx_tensor(f"t{each}", table.shape, raw=table.tobytes()) for each in range(3)]
    gguf = gguf_bytes([gguf_key("words", "array of string", ["word"] * 5000)])
    paths = [written(tmp_path / "t.gguf", gguf), written(tmp_path / "t.onnx", onnx_bytes(tensors))]
    words = [sys.executable, "-c", TRUNCATED_MEANWHILE, *map(str, paths), str(saved(tmp_path / "t.npy", table))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    *refusals, whole = done.stdout.splitlines()
    assert len(refusals) == 2
    for told in refusals:
        assert re.search(r"ends after [\d,]+ bytes, but had [\d,]+ when it was opened\.", told)
    assert whole == "30000.0", "it was read whole"


def test_a_tensor_that_ends_early_is_not_mapped(tmp_path, refused, snapshot):
    path = written(tmp_path / "block", bytes(8))
    assert refused(arrays.mapped, arrays.TensorInfo("a", "float32", (3,), path)) == snapshot
