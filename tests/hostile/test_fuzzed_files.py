"""Sound files with some bytes changed: whatever comes, it is a whole answer or one ``Unreadable``.

A file is changed where it hurts: at its lengths and counts, with the numbers at which integers turn
over, as well as at random and by cutting it. Memory is bounded by a multiple of the file's size.
"""

import contextlib
import io
import json
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clockhands.configs import open_target
from clockhands.errors import TooLarge, Unreadable
from formats.test_arrays import npy_of
from memory_peaks import traced
from written_files import (
    entry,
    onnx_bytes,
    onnx_field,
    onnx_node,
    onnx_outside,
    onnx_tensor,
    safetensors_bytes,
    small_checkpoint,
    small_gguf,
    written,
)

ARRAY = npy_of(np.arange(24, dtype=">f4").reshape(4, 6, order="F"))


def npz_file() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", ARRAY)
    return stream.getvalue()


def onnx_file() -> bytes:
    """Tensors raw, one by one, as varints and outside; a constant, and a graph inside a node."""
    constant = onnx_field(5, onnx_field(1, b"value") + onnx_field(5, onnx_tensor("", (2,), raw=bytes(8))))
    inner = onnx_field(5, onnx_field(1, b"then_branch") + onnx_field(6, onnx_node("Constant", constant)))
    tensors = [
        onnx_tensor("a", (2, 3), raw=bytes(24)),
        onnx_tensor("b", (3,), more=onnx_field(4, bytes(12))),
        onnx_tensor("c", (3,), kind=10, more=onnx_field(5, bytes([1, 2, 128, 1]))),
        onnx_outside("d", (2,), offset="16", length="8"),
    ]
    return onnx_bytes(tensors, onnx_node("Constant", constant) + onnx_node("If", inner) + onnx_node("Add", b"", ("a",)))


SOUND = {
    "model.gguf": small_gguf(),
    "big-endian.gguf": small_gguf(">"),
    "model.safetensors": safetensors_bytes(
        {"a": entry(), "b": entry("BF16", (2, 2), (8, 16)), "__metadata__": {"format": "pt"}}, bytes(16)
    ),
    "model.safetensors.index.json": json.dumps({"weight_map": {"a": "x.safetensors"}}).encode(),
    "model.onnx": onnx_file(),
    "table.npy": ARRAY,
    "table.npz": npz_file(),
    "model.pt": small_checkpoint(),
    "config.json": b'{"model_type": "llama", "rope_theta": 1e4, "rope_scaling": {"factor": 8.0, "list": [1, 2]}}',
}

HEALTH = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
# Where unsigned and signed integers of 8 to 64 bits turn over, and what lies beside.
TURNING = [0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1]


@st.composite
def changed(draw, sound: bytes) -> bytes:
    data = bytearray(sound)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.sampled_from(["byte", "number", "cut", "repeat", "insert"])):
            case "byte":
                data[at] = draw(st.integers(0, 255))
            case "number":
                number = struct.pack(draw(st.sampled_from("<>")) + "Q", draw(st.sampled_from(TURNING)))
                size = draw(st.sampled_from([1, 2, 4, 8]))
                data[at : at + size] = number[:size]
            case "cut":
                del data[at : at + draw(st.integers(1, 64))]
            case "repeat":
                data[at:at] = data[at : at + draw(st.integers(1, 64))]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=16))
        if not data:
            break
    return bytes(data)


def look(path) -> None:
    """Open a file, and read all that it holds."""
    opened = open_target(f"file:{path}")
    for name in opened.tensors:
        with contextlib.suppress(Unreadable, TooLarge):
            opened.array(name)


def _looked(path) -> tuple[bool, int]:
    """Whether the file was opened, and the most memory that was held at once meanwhile, in bytes."""
    opened = False
    with traced() as peak:
        with contextlib.suppress(Unreadable):
            look(path)
            opened = True
        return opened, peak()


def check(folder, name: str, data: bytes) -> bool:
    """Whether the file was opened; anything but an answer or an ``Unreadable`` raises."""
    path, most = written(folder / name, data), 4 * 2**20 + 100 * len(data)
    opened, peak = _looked(path)
    if peak >= most:  # first imports and threads of other tests are counted too, and do not come twice: the file's do
        opened, peak = _looked(path)
    assert peak < most, peak
    return opened


def test_the_sound_files_are_sound_and_every_cut_is_read_or_refused(tmp_path, cases):
    """Whatever the length, a start of a file is refused, or the file does not need its end."""
    for name, whole in SOUND.items():
        with cases(name):
            assert check(tmp_path, name, whole) == (name != "model.safetensors.index.json")  # its shard is not there
        for length in range(0, len(whole), 1 + len(whole) // 50):
            with cases(name, length):
                assert not check(tmp_path, name, whole[:length])


@pytest.mark.parametrize("name", SOUND)
@given(data=st.data())
@settings(settings.get_profile("calm"), suppress_health_check=HEALTH, max_examples=25)
def test_changed_files_are_read_or_refused(tmp_path, name, data):
    check(tmp_path, name, data.draw(changed(SOUND[name])))


@given(data=st.binary(max_size=200))
@settings(settings.get_profile("calm"), suppress_health_check=HEALTH, max_examples=25)
def test_noise_is_refused(tmp_path, data):
    for name in SOUND:
        assert not check(tmp_path, name, b"\0" + data)
