"""PyTorch's own files: what torch.load reads of them is read, and what would run code is refused by its name."""

import os
import pickle
import struct

import numpy as np
import pytest

from clockhands.configs import open_target
from clockhands.formats import arrays, checkpoints, pickles
from written_files import (
    checkpoint_bytes,
    pickled_dictionary,
    pickled_name,
    pickled_tensor,
    pickled_text,
    pickled_tuple,
    small_checkpoint,
    written,
)

HINT = "Save the model as .safetensors, or its state_dict alone with torch.save; a config.json is read by itself."


class Attack:
    """Writes a file when it is unpickled, unless nothing of it is ever run."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def checkpoint(tmp_path, body: bytes, **storages: bytes):
    return written(tmp_path / "x.pt", checkpoint_bytes(body, storages))


@pytest.mark.parametrize("legacy", [False, True])
def test_what_torch_loads_is_read(tmp_path, legacy):
    torch = pytest.importorskip("torch")
    state = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Embedding(10, 4)).to(torch.bfloat16).state_dict()
    state |= {
        "transposed": torch.arange(12.0).reshape(3, 4).T,
        "part": torch.arange(10)[3:7],
        "parameter": torch.nn.Parameter(torch.ones(2, 3, dtype=torch.float64)),
        "flags": torch.tensor([True, False]),
        "number": torch.tensor(3, dtype=torch.int8),
        "empty": torch.ones(0, 3),
        "waves": torch.tensor([1 + 2j]),
    }
    if not legacy:
        state |= {"narrow": torch.ones(3).to(torch.float8_e4m3fn), "short": torch.ones(3, dtype=torch.uint16)}
    everything = {"state_dict": state, "epoch": 3, "betas": (0.9, torch.ones(2)), "dtype": torch.float16, "none": None}
    path = tmp_path / "x.pt"
    torch.save(everything, path, _use_new_zipfile_serialization=not legacy)
    expected = torch.load(path, weights_only=True)["state_dict"]
    found = checkpoints.read_header(path).tensors
    assert list(found) == [*(f"state_dict.{name}" for name in expected), "betas.1"]
    for name, tensor in expected.items():
        info = found[f"state_dict.{name}"]
        assert info.shape == tuple(tensor.shape)
        wide = torch.complex128 if tensor.is_complex() else torch.float64
        np.testing.assert_array_equal(arrays.read(info).astype(str(wide)[6:]), tensor.detach().to(wide).numpy())


def test_a_view_with_gaps_is_told_and_not_read(tmp_path, refused, snapshot):
    body = pickled_dictionary({"a": pickled_tensor("0", (2, 2), numel=6, strides=(3, 1))})
    info = checkpoints.read_header(checkpoint(tmp_path, body, **{"0": bytes(24)})).tensors["a"]
    assert (info.shape, info.dtype) == ((2, 2), "scattered float32")
    assert refused(arrays.read, info) == snapshot


def test_a_checkpoint_of_another_byte_order(tmp_path):
    body = pickled_dictionary({"a": pickled_tensor("0", (2,), numel=2, strides=(1,))})
    path = written(tmp_path / "x.pt", checkpoint_bytes(body, {"0": struct.pack(">2f", 1, 2)}, b"big"))
    assert open_target(path).array("a").tolist() == [1, 2]


def test_nothing_is_run(tmp_path, refused, cases):
    target = tmp_path / "made"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        plain = written(tmp_path / "plain.bin", pickle.dumps(Attack(target), protocol))
        body = pickle.dumps({"a": Attack(target)}, protocol)[:-1]
        archive = checkpoint(tmp_path, body.removeprefix(b"\x80\x02") if protocol == 2 else body)
        for path in (plain, archive):
            with cases(protocol, path.name):
                told = f"a pickle that asks for {os.system.__module__}.system, which no tensor needs and which may run "
                told += "code when it is loaded; it is not read further."
                assert refused(open_target, path) == (f"FOLDER/{path.name} is {told}", HINT)
                assert not target.exists()


NAMES = [
    ("builtins", "eval"), ("torch", "load"), ("torch._utils", "_rebuild_qtensor"), ("argparse", "Namespace"),
    ("torch.nn.modules.linear", "Linear"), ("numpy.core.multiarray", "_reconstruct"), ("torch", "os.systemStorage"),
    ("torch.hub", "FloatStorage"), ("collections", "OrderedDict.update"), ("a\x1b[2Jb", "c"),
]  # fmt: skip


def test_any_other_name_is_refused(tmp_path, refused, cases):
    for module, name in NAMES:
        told = repr(f"{module}.{name}")[1:-1]
        for body in (
            pickled_name(module, name),
            b"(" + pickled_name(module, name).replace(b"c", b"i", 1),
            pickled_text(module) + pickled_text(name) + b"\x93",
        ):
            with cases(module, name, body[:1]):
                assert refused(checkpoints.read_header, checkpoint(tmp_path, body)) == (
                    f"FOLDER/x.pt is a pickle that asks for {told}, which no tensor needs and which may run code when "
                    "it is loaded; it is not read further.",
                    HINT,
                )


OTHERS = [
    b")R",
    b"}}",
    b"h\1",
    pickled_name("collections", "OrderedDict") + b")\x81",
    b"Px\n",
    b"\x82\1",
    b"K\1(K\2e",
    b"}K\1a",  # a dictionary of what are no pairs: found by fuzzing
    b"](K\1K\2u",
    b"K\1)R",
    pickled_name("torch", "FloatStorage") + b")R",
    pickled_name("torch._utils", "_rebuild_parameter") + pickled_tuple(1) + b"R",
    pickled_tuple(1, 2, 3, 4, 5) + b"Q",
    b"K\1K\2b",
    b"\x8b\xff\xff\xff\x7f",
    b"0" * 3,
]


def test_other_pickles_are_refused_in_a_sentence(tmp_path, refused, snapshot, cases):
    for body in OTHERS:
        with cases(body):
            assert refused(checkpoints.read_header, checkpoint(tmp_path, body)) == snapshot(name=repr(body)[2:60])
    message, _ = refused(checkpoints.read_header, checkpoint(tmp_path, b"L" + b"9" * 5000 + b"L\n"))
    assert "Exceeds the limit" in message


def test_a_pickle_of_more_instructions_than_any_checkpoint_is_refused(tmp_path, monkeypatch, refused, snapshot):
    monkeypatch.setattr(pickles, "MOST_STEPS", 1000)
    assert refused(checkpoints.read_header, checkpoint(tmp_path, b"N0" * 600 + b"}")) == snapshot(name="instructions")
    monkeypatch.setattr(pickles, "LARGEST", 100)
    assert refused(checkpoints.read_header, checkpoint(tmp_path, b"N0" * 200 + b"}")) == snapshot(name="bytes")


def test_dictionaries_that_hold_themselves_end(tmp_path, monkeypatch, refused):
    monkeypatch.setattr(checkpoints, "_MOST_VALUES", 2**14)  # 2**21 take seconds
    itself = b"}q\1(" + pickled_text("a") + b"h\1u"
    doubling = b"]q\0" + b"".join(b"0](" + 8 * (b"h" + bytes([n])) + b"eq" + bytes([n + 1]) for n in range(12))
    for body in (itself, doubling):
        assert refused(checkpoints.read_header, checkpoint(tmp_path, body)) == (
            "FOLDER/x.pt has more or deeper nested dictionaries than any checkpoint.",
            "Check that this is the file you mean.",
        )


BEYOND = {
    "more": pickled_tensor("0", (7,), numel=7, strides=(1,)),
    "an offset": pickled_tensor("0", (2,), numel=6, strides=(1,), offset=5),
    "a stride": pickled_tensor("0", (2,), numel=6, strides=(2**30,)),
    "another storage": pickled_tensor("9", (2,), numel=6, strides=(1,)),
    "other axes": pickled_tensor("0", (2, 2), numel=6, strides=(1,)),
    "negative": pickled_tensor("0", (-2,), numel=6, strides=(1,)),
    "65 axes": pickled_tensor("0", (1,) * 65, numel=6, strides=(1,) * 65),
    "overflow": pickled_tensor("0", (2**30,) * 3, numel=6, strides=(0,) * 3),
}


def test_tensors_beyond_their_storage_are_refused(tmp_path, refused, snapshot, cases):
    for name, tensor in BEYOND.items():
        path = checkpoint(tmp_path, pickled_dictionary({"a": tensor}), **{"0": bytes(24)})
        with cases(name):
            assert refused(checkpoints.read_header, path) == snapshot(name=name)


def test_a_damaged_archive_is_refused(tmp_path, refused, snapshot):
    path = written(tmp_path / "x.pt", small_checkpoint().replace(b"PK\3\4", b"PK\3\5"))
    assert refused(checkpoints.read_header, path)[0].endswith(
        "cannot be read as a zip archive: Bad magic number for file header."
    )
    assert refused(checkpoints.read_header, written(path, b"hello")) == snapshot(name="hello")
    body = pickled_dictionary({"a": pickled_tensor("0", (2,), numel=2, strides=(1,))})
    held = checkpoint_bytes(body, {"0": bytes(8)})
    assert list(checkpoints.read_header(written(path, held)).tensors) == ["a"]
    assert held.count(b"little") == 1
    message, _ = refused(checkpoints.read_header, written(path, held.replace(b"little", b"kittle")))
    assert "x.pt" in message
    assert "CRC" in message
