"""Hostile weights: safetensors, GGUF, ONNX, NumPy and PyTorch, and a database."""
# ruff: noqa: PLW0108 - what makes a file is a function, also where it is one text

import io
import json
import sqlite3
import struct
import tempfile
import zipfile
from pathlib import Path

from written_files import (
    checkpoint_bytes,
    entry,
    gguf_bytes,
    gguf_key,
    gguf_string,
    gguf_tensor,
    onnx_bytes,
    onnx_field,
    onnx_node,
    onnx_outside,
    onnx_tensor,
    pickled_tensor,
    pickled_text,
    safetensors_bytes,
    varint,
)

from .hostile_rows import FILES, HEADS, MiB, folder_of, many, one


def npz(names: list[str], shape: str = "(2,)") -> bytes:
    stream = io.BytesIO()
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    with zipfile.ZipFile(stream, "w") as archive:
        for name in names:
            archive.writestr(
                zipfile.ZipInfo(name + ".npy"), b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + bytes(8)
            )
    return stream.getvalue()


def twice_in_npz() -> bytes:
    """Sixty thousand names, of which the last two are the same."""
    data = bytearray(npz([f"a{number:05}" for number in range(60_000)]))
    return bytes(data).replace(b"a59999.npy", b"a59998.npy")


def long_folder_in_pt() -> bytes:
    """A name of 60 kB, and tens of thousands of short ones."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo("n" * 60_000 + "/data.pkl"), b"\x80\x02}.")
        for number in range(80_000):
            archive.writestr(zipfile.ZipInfo(f"d/{number}"), b"")
    return stream.getvalue()


def pickle(body: bytes) -> bytes:
    return checkpoint_bytes(body, {"0": bytes(24)})


def shared_pickle(levels: int, width: int, name: str) -> bytes:
    """Dictionaries that hold one dictionary many times, which again does; the innermost holds a tensor."""
    body = b"}" + pickled_text("w") + pickled_tensor("0", (2,), numel=6, strides=(1,)) + b"s"
    for level in range(levels):
        made = b"".join(pickled_text(f"{name}{number}") + b"h" + bytes([level]) for number in range(width))
        body += b"q" + bytes([level]) + b"0}(" + made + b"u"
    return pickle(body)


def long_path_pickle() -> bytes:
    """Tens of thousands of tensors below keys of a megabyte in all."""
    tensor = pickled_tensor("0", (2,), numel=6, strides=(1,))
    inner = b"".join(pickled_text(f"t{number}") + b"h\1" for number in range(200_000))
    body = tensor + b"q\1" + b"0}(" + inner + b"u"
    return pickle(body.replace(b"0}(", b"0}" + pickled_text("n" * 60_000) + b"}(", 1) + b"s")


def graphs(levels: int, name: int, tensors: int) -> bytes:
    """Graphs in graphs with long names, and many tensors in the innermost."""
    held = b"".join(onnx_field(5, onnx_tensor(f"t{each}", (2,), raw=bytes(8))) for each in range(tensors))
    graph = onnx_field(2, b"n" * name) + held
    for _ in range(levels):
        branch = onnx_field(5, onnx_field(1, b"then_branch") + onnx_field(6, graph))
        graph = onnx_field(2, b"n" * name) + onnx_node("If", branch)
    return onnx_bytes([], onnx_node("If", onnx_field(5, onnx_field(1, b"b") + onnx_field(6, graph))))


def outside_in_onnx() -> bytes:
    """Many tensors in as many files that are not there."""
    tensors = [onnx_outside(f"t{each}", (2,), location=f"f{each}", offset="0", length="8") for each in range(50_000)]
    return onnx_bytes(tensors)


def store(rows: int) -> bytes:
    """A database that is no store of ours, with a view that never ends."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        with sqlite3.connect(path) as opened:
            opened.execute(
                "CREATE VIEW models AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT * FROM n"
            )
            opened.execute("CREATE TABLE t (x)")
            opened.executemany("INSERT INTO t VALUES (?)", [["x" * 1000]] * rows)
        return path.read_bytes()


def tensors_header(names: list[str]) -> bytes:
    header = {name: entry("F32", (2,), (8 * at, 8 * at + 8)) for at, name in enumerate(names)}
    return safetensors_bytes(header, bytes(8 * len(names)))


def different_tables() -> bytes:
    """Tables of 1 to 3,000 rows."""
    header, at = {}, 0
    for rows in range(1, 3000):
        header[f"a.{rows}.position_embeddings.weight"] = entry("F32", (rows, 1), (at, at + 4 * rows))
        at += 4 * rows
    return safetensors_bytes(header, bytes(at))


# safetensors
one("safetensors many entries", "safetensors", lambda: tensors_header([f"model.layers.{n}.w" for n in range(100_000)]))
one(
    "safetensors tables of positions",
    "safetensors",
    lambda: tensors_header([f"a.{n}.position_embeddings.weight" for n in range(50_000)]),
)
one("safetensors tables of different sizes", "safetensors", lambda: different_tables())
one(
    "safetensors frequencies",
    "safetensors",
    lambda: tensors_header([f"a.layers.{n}.rotary_emb.inv_freq" for n in range(50_000)]),
)
one(
    "safetensors projections",
    "safetensors",
    lambda: tensors_header([f"model.layers.{n}.self_attn.{p}_proj.weight" for n in range(25_000) for p in "qk"]),
)
one("safetensors one huge name", "safetensors", lambda: tensors_header(["layers." * MiB + "inv_freq"]))
one(
    "safetensors huge names",
    "safetensors",
    lambda: tensors_header([f"{'layers.1.' * 20_000}{n}.inv_freq" for n in range(50)]),
)
one(
    "safetensors huge numbers in names",
    "safetensors",
    lambda: tensors_header([f"layers.{'9' * 5000}.{n}.self_attn.q_proj.weight" for n in range(200)]),
)
one(
    "safetensors same names",
    "safetensors",
    lambda: safetensors_bytes(
        many('"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}', 8 * MiB, ",", "{", "}"), bytes(8)
    ),
)
one(
    "safetensors contradictory entries",
    "safetensors",
    lambda: safetensors_bytes(
        many('"a#":{"dtype":"F32","shape":[2],"data_offsets":[#,8]}', 8 * MiB, ",", "{", "}"), bytes(8)
    ),
)
one(
    "safetensors huge shape",
    "safetensors",
    lambda: safetensors_bytes({"a": entry("F32", [1] * 300_000, (0, 4))}, bytes(4)),
)
one(
    "safetensors huge sizes",
    "safetensors",
    lambda: safetensors_bytes({"a": entry("F32", [2**63] * 60, (0, 4))}, bytes(4)),
)
one("safetensors blanks", "safetensors", lambda: safetensors_bytes(b"{" + b" " * 16 * MiB + b"}"))
one(
    "safetensors metadata",
    "safetensors",
    lambda: safetensors_bytes(
        many('"k#":"v"', 8 * MiB, ",", '{"__metadata__":{', '},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'),
        bytes(8),
    ),
)
FILES["safetensors beside a config"] = folder_of(
    HEADS,
    **{
        "model.safetensors": tensors_header(
            [f"model.layers.{n}.self_attn.{p}_proj.weight" for n in range(25_000) for p in "qk"]
        )
    },
)
# GGUF
ARCHITECTURE = [gguf_key("general.architecture", "string", "llama")]
one(
    "gguf many keys",
    "gguf",
    lambda: gguf_bytes(ARCHITECTURE + [gguf_key(f"llama.rope.k{n}", "uint32", 1) for n in range(65_000)]),
)
one(
    "gguf same keys",
    "gguf",
    lambda: gguf_bytes(ARCHITECTURE + [gguf_key("llama.rope.k", "uint32", 1) for _ in range(65_000)]),
)
one(
    "gguf near-miss keys",
    "gguf",
    lambda: gguf_bytes(ARCHITECTURE + [gguf_key(f"llama.rope.freq_bas{n}", "float32", 1.0) for n in range(65_000)]),
)
one(
    "gguf long keys",
    "gguf",
    lambda: gguf_bytes(
        ARCHITECTURE + [gguf_key("llama." + "rope.scaling." * 5000 + str(n), "uint32", 1) for n in range(400)]
    ),
)
one("gguf long architecture", "gguf", lambda: gguf_bytes([gguf_key("general.architecture", "string", "llama" * MiB)]))
one(
    "gguf many strings",
    "gguf",
    lambda: gguf_bytes(
        [*ARCHITECTURE, gguf_string("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2**20) + bytes(8 * 2**20)]
    ),
)
one("gguf huge counts", "gguf", lambda: b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63) + bytes(1000))
one(
    "gguf nested arrays",
    "gguf",
    lambda: gguf_bytes([gguf_string("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 100_000]),
)
one(
    "gguf many tensors",
    "gguf",
    lambda: gguf_bytes(
        ARCHITECTURE,
        [gguf_tensor(f"blk.{n}.attn_q.weight", (4, 4), 0, 64 * n) for n in range(50_000)],
        bytes(64 * 50_000),
    ),
)
one(
    "gguf tensors with long names",
    "gguf",
    lambda: gguf_bytes(
        ARCHITECTURE, [gguf_tensor("blk." * 10_000 + str(n), (4, 4), 0, 64 * n) for n in range(500)], bytes(64 * 500)
    ),
)
one(
    "gguf lists of layers",
    "gguf",
    lambda: gguf_bytes(
        [
            *ARCHITECTURE,
            gguf_key("llama.block_count", "uint32", 4000),
            gguf_key("llama.attention.head_count", "array of uint32", [4] * 100_000),
        ]
    ),
)
# ONNX
one("onnx many tensors", "onnx", lambda: onnx_bytes([onnx_tensor(f"t{n}", (2,), raw=bytes(8)) for n in range(200_000)]))
one("onnx same names", "onnx", lambda: onnx_bytes([onnx_tensor("t", (2,), raw=bytes(8)) for _ in range(100_000)]))
one(
    "onnx names that collide",
    "onnx",
    lambda: onnx_bytes(
        [onnx_tensor(name, (2,), raw=bytes(8)) for name in [f"t#{n}" for n in range(30_000, 60_000)] + ["t"] * 30_000]
    ),
)
one(
    "onnx same long names",
    "onnx",
    lambda: onnx_bytes([onnx_tensor("t" * 100_000, (2,), raw=bytes(8)) for _ in range(300)]),
)
one("onnx nested graphs", "onnx", lambda: graphs(30, 10, 10))
one("onnx nested graphs with long names", "onnx", lambda: graphs(30, 100_000, 50_000))
one("onnx deep graphs", "onnx", lambda: graphs(400, 10, 10))
one(
    "onnx many nodes",
    "onnx",
    lambda: onnx_bytes([], b"".join(onnx_node("Add", b"", ("a", f"b{n}")) for n in range(200_000))),
)
one(
    "onnx many nodes of one long name",
    "onnx",
    lambda: onnx_bytes([], b"".join(onnx_node("Add", b"", ("a" * 10_000, f"b{n}")) for n in range(2000))),
)
one(
    "onnx many functions with long names",
    "onnx",
    lambda: (
        onnx_bytes([])
        + onnx_field(
            25,
            onnx_field(1, b"n" * 100_000)
            + b"".join(
                onnx_field(
                    7,
                    onnx_node(
                        "Constant",
                        onnx_field(5, onnx_field(1, b"value") + onnx_field(5, onnx_tensor("", (2,), raw=bytes(8)))),
                        (),
                        f"y{n}",
                    )[1 + (n > 40) :][1:],
                )
                for n in range(10)
            ),
        )
    ),
)
one("onnx empty fields", "onnx", lambda: varint(8) + b"\x08" + b"\x12\0" * 4 * MiB)
one("onnx files that are not there", "onnx", outside_in_onnx)
one("onnx many axes", "onnx", lambda: onnx_bytes([onnx_tensor("t", (1,) * 100_000, raw=bytes(4))]))
one(
    "onnx scattered numbers",
    "onnx",
    lambda: onnx_bytes([onnx_tensor("t", (500_000,), more=b"".join(b"\x25" + bytes(4) for _ in range(500_000)))]),
)
# NumPy
one("npz many names", "npz", lambda: npz([f"a{n}" for n in range(60_000)]))
one("npz two of one name at the end", "npz", twice_in_npz)
one("npz one huge name", "npz", lambda: npz(["a" * 60_000]))
one("npz huge names", "npz", lambda: npz([f"{n}" + "a" * 60_000 for n in range(130)]))
FILES["npz of a model"] = lambda: {
    "x.npz": npz([f"layers.{n}.q_proj.weight" for n in range(20_000)]),
    "config.json": json.dumps(HEADS).encode(),
}
one("npy deep header", "npy", lambda: b"\x93NUMPY\1\0" + struct.pack("<H", 9000) + b"(" * 8999 + b"\n")
one(
    "npy long shape",
    "npy",
    lambda: (
        b"\x93NUMPY\1\0"
        + struct.pack("<H", 9000)
        + (b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1," * 4400 + b")}").ljust(8999)
        + b"\n"
    ),
)
one(
    "npy huge digits",
    "npy",
    lambda: (
        b"\x93NUMPY\1\0"
        + struct.pack("<H", 9000)
        + (b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"9" * 8000 + b",)}").ljust(8999)
        + b"\n"
    ),
)
# Checkpoints
one(
    "pt many keys",
    "pt",
    lambda: pickle(b"}(" + b"".join(pickled_text(f"k{n}") + b"K\1" for n in range(500_000)) + b"u"),
)
one("pt shared dictionaries", "pt", lambda: shared_pickle(12, 200, "k"))
one("pt shared dictionaries with long keys", "pt", lambda: shared_pickle(8, 40, "k" * 3000))
one("pt tensors below a long key", "pt", long_path_pickle)
one("pt deep", "pt", lambda: pickle(b"(" * 1_000_000 + b"t" * 1_000_000))
one("pt nested lists", "pt", lambda: pickle(b"]" * 500_000 + b"a" * 499_999))
one("pt names", "pt", lambda: pickle(b"cos\nsystem\n"))
one("pt long names", "pt", lambda: pickle(b"c" + b"o" * MiB + b"\nsystem\n"))
one("pt huge int", "pt", lambda: pickle(b"\x8b" + struct.pack("<i", MiB - 8) + b"\x7f" * (MiB - 8)))
one(
    "pt many huge ints",
    "pt",
    lambda: pickle(b"(" + (b"\x8b" + struct.pack("<i", 500_000) + b"\x7f" * 500_000) * 40 + b"t"),
)
one("pt huge digits", "pt", lambda: pickle(b"(" + (b"I" + b"9" * 4200 + b"\n") * 5000 + b"t"))
one(
    "pt huge key",
    "pt",
    lambda: pickle(
        b"}\x8b" + struct.pack("<i", 1000) + b"\x7f" * 1000 + pickled_tensor("0", (2,), numel=6, strides=(1,)) + b"s"
    ),
)
one("pt long folder", "pt", long_folder_in_pt)
one("pt many pieces", "pt", lambda: pickle(b"}" + b"h\0" * 10 + b"2" * 2_000_000))
one("a store", "sqlite", lambda: store(10))
