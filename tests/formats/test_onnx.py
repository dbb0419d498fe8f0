"""ONNX: tensors are found where the ``onnx`` package finds them, and lies are refused before memory is taken."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest

import clockhands as ch
from clockhands.configs import open_target
from clockhands.formats import arrays, protobuf
from clockhands.formats import onnx as reader
from late import Late
from memory_peaks import traced
from written_files import onnx_bytes, onnx_field, onnx_node, onnx_outside, onnx_tensor, varint, written

onnx, helper, numpy_helper = Late("onnx"), Late("onnx.helper"), Late("onnx.numpy_helper")


def model_of(*tensors, nodes=(), functions=(), opset=20):
    """A model of the package's own making that holds these tensors."""
    value = helper.make_tensor_value_info("x", 1, [1])
    nodes = nodes or [helper.make_node("Identity", ["x"], ["y"])]
    output = helper.make_tensor_value_info("y", 1, [1])
    graph = helper.make_graph(list(nodes), "main", [value], [output], list(tensors))
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions))


def saved(path, model) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def same(path, expected: dict[str, np.ndarray]) -> None:
    """Every tensor has the numbers of the package, bit for bit."""
    header = reader.read_header(path)
    assert set(expected) <= set(header.tensors)
    for name, array in expected.items():
        read = arrays.read(header.tensors[name])
        assert (read.dtype, read.shape) == (array.dtype, array.shape), name
        assert read.tobytes() == np.ascontiguousarray(array).tobytes(), name


KINDS = [
    "FLOAT", "UINT8", "INT8", "UINT16", "INT16", "INT32", "INT64", "BOOL", "FLOAT16", "DOUBLE", "UINT32", "UINT64",
    "COMPLEX64", "COMPLEX128", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ",
]  # fmt: skip


def test_what_the_package_writes_is_read(tmp_path, cases):
    for kind in KINDS:
        number = getattr(onnx.TensorProto, kind)
        dtype = helper.tensor_dtype_to_np_dtype(number)
        signed = dtype.kind in "ifcV" and not kind.startswith("FLOAT8")
        tensors, expected = [], {}
        for shape in [(2, 3), (6,), (), (0, 4)]:
            array = (np.arange(np.prod(shape, dtype=int)) % 5 - (2 if signed else 0)).reshape(shape).astype(dtype)
            tensors.append(helper.make_tensor(f"raw {shape}", number, shape, array.tobytes(), raw=True))
            tensors.append(helper.make_tensor(f"typed {shape}", number, shape, array.flatten().tolist()))
            expected |= {each.name: array for each in tensors[-2:]}
        with cases(kind):
            for tensor in tensors:
                assert numpy_helper.to_array(tensor).tobytes() == expected[tensor.name].tobytes()
            same(saved(tmp_path / "m.onnx", model_of(*tensors)), expected)


def test_text_newer_types_and_numbers_that_share_a_byte_have_a_shape_and_no_numbers(tmp_path, refused, snapshot):
    text = helper.make_tensor("text", onnx.TensorProto.STRING, [2], [b"a", b"b"])
    narrow = helper.make_tensor("narrow", onnx.TensorProto.INT4, [3], [1, -2, 3])
    opened = open_target(saved(tmp_path / "m.onnx", model_of(text, narrow)))
    assert {name: (info.dtype, info.shape) for name, info in opened.tensors.items()} == {
        "text": ("STRING", (2,)), "narrow": ("INT4", (3,)),
    }  # fmt: skip
    assert refused(opened.array, "narrow") == snapshot(name="narrow")
    opened = open_target(written(tmp_path / "m.onnx", onnx_bytes([onnx_tensor("t", (4,), kind=99, raw=bytes(5))])))
    assert opened.tensor("t").dtype == "type 99"
    assert refused(opened.array, "t") == snapshot(name="newer")


def constant(name, array):
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, "inner name"))


def branch(name, *nodes, tensors=()):
    return helper.make_graph(list(nodes), name, [], [helper.make_tensor_value_info("r", 1, [2])], list(tensors))


def test_constants_subgraphs_and_functions_are_looked_into(tmp_path):
    first, second, third, fourth = (np.full((2, 4), number, np.float32) for number in range(4))
    ways = {"then_branch": branch("inner", constant("k", third)), "else_branch": branch("empty")}
    deep = helper.make_node("If", ["c"], ["r"], **ways)
    table = numpy_helper.from_array(fourth, "table")
    ways = {"then_branch": branch("then", constant("k", second)), "else_branch": branch("else", deep, tensors=[table])}
    both = helper.make_node("If", ["c"], ["y"], **ways)
    ten = constant("k", first + 10)
    function = helper.make_function("own", "Positions", [], ["k"], [ten], [helper.make_opsetid("", 20)])
    floats = helper.make_node("Constant", [], ["floats"], value_floats=[1.0, 0.5, 0.25])
    other = helper.make_node("Constant", [], ["other"], value=numpy_helper.from_array(first), domain="own")
    nodes = [constant("k", first), floats, both, other]
    model = model_of(numpy_helper.from_array(first + 20, "table"), nodes=nodes, functions=[function])
    expected = {
        "k": first, "then/k": second, "else/inner/k": third, "else/table": fourth, "table": first + 20,
        "Positions/k": first + 10, "floats": np.array([1, 0.5, 0.25], np.float32),
    }  # fmt: skip
    same(saved(tmp_path / "m.onnx", model), expected)
    assert "other" not in reader.read_header(tmp_path / "m.onnx").tensors


def test_what_is_added_is_told_from_what_is_multiplied(tmp_path):
    tensors = [numpy_helper.from_array(np.zeros((4, 2), np.float32), name) for name in ("pe", "rows", "weight")]
    nodes = [
        helper.make_node("Add", ["x", "pe"], ["a"]),
        helper.make_node("Gather", ["rows", "x"], ["b"]),
        helper.make_node("MatMul", ["a", "weight"], ["y"]),
    ]
    assert reader.read_header(saved(tmp_path / "m.onnx", model_of(*tensors, nodes=nodes))).added == {"pe", "rows"}


def test_data_beside_the_model(tmp_path):
    weight = np.arange(4096, dtype=np.float32).reshape(64, 64)
    tensors = [numpy_helper.from_array(weight * factor, name) for factor, name in ((1, "a"), (2, "b"))]
    path = tmp_path / "m.onnx"
    onnx.save(model_of(*tensors), path, save_as_external_data=True, location="m.onnx_data", size_threshold=0)
    assert (tmp_path / "m.onnx_data").stat().st_size >= 2 * weight.nbytes
    same(path, {"a": weight, "b": weight * 2})
    assert reader.read_header(path).absent == ()


def test_links_are_followed_wherever_they_lead(tmp_path):
    """As in the Hugging Face cache, where a model's files are links out of its folder."""
    weight = np.arange(64, dtype=np.float32).reshape(8, 8)
    (tmp_path / "blobs").mkdir()
    path = tmp_path / "snapshots" / "1" / "m.onnx"
    path.parent.mkdir(parents=True)
    model = model_of(numpy_helper.from_array(weight, "a"))
    onnx.save(model, path, save_as_external_data=True, location="m.onnx_data", size_threshold=0)
    for name in ("m.onnx", "m.onnx_data"):
        (path.parent / name).rename(tmp_path / "blobs" / name)
        (path.parent / name).symlink_to(Path("../../blobs") / name)
    same(path, {"a": weight})


def test_absent_data_is_a_note_and_an_error_only_where_it_is_read(tmp_path, refused, snapshot):
    opened = open_target(written(tmp_path / "m.onnx", onnx_bytes([onnx_outside("t", (4, 2), location="data/part")])))
    assert opened.notes == ("data/part, which holds tensors of m.onnx, is not there.",)
    assert opened.tensor("t").shape == (4, 2)
    assert refused(opened.array, "t") == snapshot


OUTSIDE = [
    "/etc/hostname",
    "../up",
    "a/../../up",
    "C:\\x",
    "\\\\server\\x",
    "a\\b",
    "",
    "C:x",
    "x\0y",
    "..",
    "a/..",
    "/",
]


def test_data_outside_the_folder_are_refused(tmp_path, refused, cases):
    for location in OUTSIDE:
        path = written(tmp_path / "m.onnx", onnx_bytes([onnx_outside("t", (4, 2), location=location)]))
        with cases(repr(location)):
            assert refused(reader.read_header, path) == (
                f"FOLDER/m.onnx: tensor 't' declares its data at {ch.arguments.shown(location)}, a path that does not "
                "stay in the model's folder.",
                "Do not trust this model: a valid model keeps its data in its own folder.",
            )


def test_places_outside_that_cannot_be(tmp_path, refused, snapshot, cases):
    written(tmp_path / "data", bytes(100))
    for key, value in [("offset", "-1"), ("offset", "1e3"), ("offset", "9" * 30), ("length", "31"), ("offset", "69")]:
        path = written(tmp_path / "m.onnx", onnx_bytes([onnx_outside("t", (4, 2), **{key: value})]))
        with cases(key, value):
            assert refused(reader.read_header, path) == snapshot(name=f"{key} {value}")


def test_a_pipe_as_data_is_not_waited_for(tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes here")
    os.mkfifo(tmp_path / "data")
    path = written(tmp_path / "m.onnx", onnx_bytes([onnx_outside("t", (4, 2))]))
    assert reader.read_header(path).absent == ("data",)


VERSION, OPSET = onnx_field(1, 8), onnx_field(8, onnx_field(2, 20))


FAULTY = {
    "empty": b"",
    "no graph": VERSION + OPSET,
    "no version": onnx_field(7, b"") + OPSET,
    "no operators": VERSION + onnx_field(7, b""),
    "a number as the graph": onnx_field(7, 3),
    "field of kind 3": b"\x0b",
    "field without a number": b"\x02\x00",
    "a number without an end": b"\x08" + b"\xff" * 10,
    "beyond its message": onnx_field(7, onnx_field(5, b"") + b"\x2a\x05") + bytes(9),
    "truncated": onnx_bytes([onnx_tensor("t", (4, 2), raw=bytes(32))])[:-20],
    "31 bytes": onnx_bytes([onnx_tensor("t", (4, 2), raw=bytes(31))]),
    "no bytes": onnx_bytes([onnx_tensor("t", (4, 2))]),
    "overflow": onnx_bytes([onnx_tensor("t", (2**62, 2**62), raw=bytes(8))]),
    "negative": onnx_bytes([onnx_tensor("t", (2**64 - 1,), raw=bytes(8))]),
    "a pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
}


def test_what_is_no_model_is_refused(tmp_path, refused, snapshot, cases):
    for name, data in FAULTY.items():
        path = written(tmp_path / "m.onnx", data)
        with cases(name):
            assert refused(reader.read_header, path) == refused(open_target, path) == snapshot(name=name)


def test_numbers_one_by_one_and_in_several_parts(tmp_path):
    """What a writer may do and none does: fields that are not packed, or packed in several parts."""
    numbers = np.array([1, -2, 0.5], np.float32)
    single = b"".join(varint(4 << 3 | 5) + struct.pack("<f", number) for number in numbers)
    parts = onnx_field(4, numbers[:1].tobytes()) + onnx_field(4, numbers[1:].tobytes())
    bits = numbers.astype(np.float16).view(np.uint16)
    halves = b"".join(onnx_field(5, int(number)) for number in bits)
    tensors = [
        onnx_tensor("single", (3,), more=single),
        onnx_tensor("parts", (3,), more=parts),
        onnx_tensor("halves", (3,), kind=10, more=halves),
        onnx_tensor("wide", (2,), kind=7, more=onnx_field(7, varint(2**64 - 5) + varint(2**63 - 1))),
    ]
    wide = np.array([-5, 2**63 - 1], np.int64)
    expected = {"single": numbers, "parts": numbers, "halves": numbers.astype(np.float16), "wide": wide}
    same(written(tmp_path / "m.onnx", onnx_bytes(tensors)), expected)


def test_numbers_that_would_have_to_be_kept_are_bounded(tmp_path, monkeypatch, refused, snapshot):
    monkeypatch.setattr(reader, "_KEPT_IN_ALL", 16)
    tensors = [onnx_tensor(name, (3,), kind=7, more=onnx_field(7, bytes([1, 2, 3]))) for name in "ab"]
    opened = open_target(written(tmp_path / "m.onnx", onnx_bytes(tensors)))
    assert refused(opened.array, "b") == snapshot


def test_graphs_are_not_followed_without_end(tmp_path, refused, snapshot):
    graph = b""
    for _ in range(40):
        graph = onnx_node("If", onnx_field(5, onnx_field(1, b"then_branch") + onnx_field(6, graph)))
    path = written(tmp_path / "m.onnx", VERSION + onnx_field(7, graph) + OPSET)
    assert refused(reader.read_header, path) == snapshot


def test_tensors_without_end_are_refused(tmp_path, monkeypatch, refused, snapshot):
    monkeypatch.setattr(reader, "MOST_TENSORS", 8)
    path = written(tmp_path / "m.onnx", onnx_bytes([onnx_tensor("", (1,), raw=bytes(4))] * 9))
    assert refused(reader.read_header, path) == snapshot(name="tensors")
    monkeypatch.setattr(reader, "MOST_NODES", 4)
    few, many = (onnx_node("Identity") * number for number in (4, 5))
    reader.read_header(written(path, onnx_bytes([], few)))
    assert refused(reader.read_header, written(path, onnx_bytes([], many))) == snapshot(name="nodes")


@pytest.mark.parametrize("packed", [True, False])
def test_axes_without_end_are_refused_before_they_are_collected(tmp_path, packed, refused, snapshot):
    """With 64 axes it is a shape that NumPy has; of more, no more than 65 are looked at."""
    few, many = (onnx_field(1, b"\1" * n) if packed else b"\x08\1" * n for n in (64, 100_000))
    rest = b"\x10\1" + onnx_field(8, b"t") + onnx_field(9, bytes(4))
    path = written(tmp_path / "m.onnx", onnx_bytes([few + rest]))
    assert reader.read_header(path).tensors["t"].shape == (1,) * 64
    path = written(tmp_path / "m.onnx", onnx_bytes([many + rest]))
    with traced() as peak:
        told = refused(reader.read_header, path)
        assert peak() < 200_000
    assert told == snapshot


def test_fields_without_end_are_refused(tmp_path, monkeypatch, refused, snapshot):
    """A small file of nothing but fields takes as long as it is allowed to."""
    monkeypatch.setattr(protobuf.MessageFile.__init__, "__defaults__", (4_000,))
    path = tmp_path / "m.onnx"
    for each, few, many in ((b"\x50\1", 2_000, 4_000), (onnx_field(1, b""), 500, 900)):
        reader.read_header(written(path, VERSION + onnx_field(7, each * few) + OPSET))
        written(path, VERSION + onnx_field(7, each * many) + OPSET)
        assert refused(reader.read_header, path) == snapshot(name="fields")


def test_tensors_of_one_name_are_all_kept(tmp_path):
    many = [onnx_tensor("t", (1,), raw=struct.pack("<f", number)) for number in range(3)]
    opened = open_target(written(tmp_path / "m.onnx", onnx_bytes(many)))
    assert [float(opened.array(name)[0]) for name in opened.tensors] == [0, 1, 2]


def test_a_large_model_is_not_read(tmp_path):
    """4 GiB of weights in a sparse file, more than the package can open: only the way to the table is walked."""
    table = ch.table(ch.preset("vaswani2017", width=8), 16)
    inside = onnx_tensor("pe", (16, 8), raw=table.tobytes())
    beginning = onnx_tensor("w", (2**30,), raw=b"")[:-2] + varint(9 << 3 | 2) + varint(2**32)
    weight = varint(5 << 3 | 2) + varint(len(beginning) + 2**32) + beginning
    ending = onnx_field(5, inside)
    start = VERSION + varint(7 << 3 | 2) + varint(len(weight) + 2**32 + len(ending)) + weight
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        file.write(start)
        file.seek(len(start) + 2**32)
        file.write(ending + OPSET)
    opened = open_target(path)
    assert opened.tensor("w").shape == (2**30,)
    assert np.array_equal(opened.array("pe"), table)


def test_the_comparison_can_fail(tmp_path):
    path = saved(tmp_path / "m.onnx", model_of(numpy_helper.from_array(np.ones(3, np.float32), "t")))
    with pytest.raises(AssertionError):
        same(path, {"t": np.ones(3, np.float32) * 2})
    with pytest.raises(AssertionError):
        same(path, {"u": np.ones(3, np.float32)})
