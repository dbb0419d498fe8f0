"""Small programs that make hostile files: each is at the bound of its reader, or costs more than its size explains.

``FILES`` holds them all: a name, and what makes the files of a folder, of which the first is opened. What a file costs
is its reader's promise: 5 seconds of the processor and 500 MB.
"""

# ruff: noqa: PLW0108 - what makes a file is a function, also where it is one text

import io
import json
import sqlite3
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

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

MiB = 2**20
# Sound parts, so that a reader goes on to what is hostile.
LLAMA = '"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2'
HEADS = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
NEOX = "num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\npos_emb: rotary\n"
NEMO = "model:\n  num_layers: 2\n  hidden_size: 64\n  num_attention_heads: 4\n  encoder_seq_length: 64\n"


def many(text: str, size: int, joint: str = "", start: str = "", end: str = "") -> bytes:
    """A text with a number for each ``#``, as often as goes into ``size`` bytes."""
    made, left = [], size - len(start) - len(end)
    while left > 0:
        made.append(text.replace("#", str(len(made))))
        left -= len(made[-1]) + len(joint)
    return (start + joint.join(made[:-1]) + end).encode()


def nested(start: str, middle: str, end: str, levels: int) -> bytes:
    return (start * levels + middle + end * levels).encode()


def nested_keys(levels: int, size: int, indent: int = 1) -> bytes:
    """Deep in mappings with long names, as many keys as go into ``size``."""
    name = "k" * 1000
    lines = [f"{' ' * indent * level}{name}:\n" for level in range(levels)]
    made = NEOX + "".join(lines)
    return many(" " * indent * levels + "k#: 1\n", size, start=made)


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


def spaced(text: str, blanks: str = " ") -> bytes:
    """A text with a run of blanks for each ``#``."""
    return text.replace("#", blanks * ((MiB - len(text)) // text.count("#") - 1)).encode()


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


def folder_of(config: dict, **others: bytes) -> Callable[[], dict[str, bytes]]:
    return lambda: {"config.json": json.dumps(config).encode(), **others}


Y, J = MiB - 100, 8 * MiB - 100
ROPES = "rope_" * 800
FILES: dict[str, Callable[[], dict[str, bytes]]] = {}


def one(kind: str, ending: str, make: Callable[[], bytes]) -> None:
    """One row: a file by itself."""
    name = ending if ending in ("Modelfile", "config.json") or "/" in ending else f"x.{ending}"
    FILES[kind] = lambda: {name: make()}


# YAML
one("yaml many keys", "yaml", lambda: many("key_#: #\n", Y, start=NEOX))
one("yaml near-miss keys", "yaml", lambda: many("rotary-Emb_base#: 1\n", Y, start=NEOX))
one("yaml keys with dashes", "yaml", lambda: many("-" * 40 + "rotary-emb-base-#: 1\n", Y, start=NEOX))
one("yaml nested keys", "yaml", lambda: many("  rotary-base#: 1\n", Y, start=NEMO))
one("yaml not of a dialect", "yaml", lambda: many("a#: 1\n", Y))
one("yaml short values", "yaml", lambda: many("a,", Y, start=NEOX + "x: [", end="]\n"))
one("yaml empty mappings", "yaml", lambda: many("{},", Y, start=NEOX + "x: [", end="]\n"))
one("yaml deep flow", "yaml", lambda: NEOX.encode() + b"x: " + nested("[", "1", "]", Y // 2 - 50))
one("yaml deep flow, open", "yaml", lambda: NEOX.encode() + b"x: " + b"[" * (Y - 100))
one("yaml deep block", "yaml", lambda: b"".join(b" " * level + b"a:\n" for level in range(1400)))
one("yaml deep sequence", "yaml", lambda: NEOX.encode() + b"x: " + b"- " * (Y // 2 - 100) + b"1\n")
one("yaml laughs", "yaml", lambda: many("a#: &a# [*A,*A,*A,*A,*A,*A,*A,*A,*A]\n", 4000, start="A: &A [1,1]\n" + NEOX))
one(
    "yaml laughs in laughs",
    "yaml",
    lambda: (
        "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 60)) + NEOX
    ).encode(),
)
one("yaml alias in itself", "yaml", lambda: (NEOX + "x: &x [*x, *x]\n").encode())
one(
    "yaml merges",
    "yaml",
    lambda: (
        "a0: &a0 {k: 1}\n"
        + "".join(f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 60))
        + NEOX
    ).encode(),
)
one(
    "yaml merges of one large mapping",
    "yaml",
    lambda: many(
        "m#: {<<: *big}\n",
        Y,
        start=NEOX + many("k#: 1\n  ", 200_000, start="big: &big\n  ", end="\n").decode().rstrip() + "\n",
    ),
)
one("yaml many merges in one mapping", "yaml", lambda: many("  <<: {k#: 1}\n", Y, start=NEOX + "m:\n"))
one(
    "yaml merges of lists of lists",
    "yaml",
    lambda: NEOX.encode() + b"m:\n  <<: " + nested("[", "{a: 1}", "]", 5000) + b"\n",
)
one(
    "yaml merges that hold nothing",
    "yaml",
    lambda: (
        "a0: &a0 []\n"
        + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
        + "m:\n  <<: *a11\n"
        + NEOX
    ).encode(),
)
one("yaml paths", "yaml", lambda: nested_keys(90, Y))
one("yaml long key", "yaml", lambda: NEOX.encode() + b"? " + b"k" * (Y - 200) + b"\n: 1\n")
one("yaml long text", "yaml", lambda: NEOX.encode() + b"x: " + b"k" * (Y - 200))
one("yaml huge int", "yaml", lambda: NEOX.encode() + b"x: " + b"9" * (Y - 200))
one("yaml huge ints", "yaml", lambda: many("x#: " + "9" * 300 + "\n", Y, start=NEOX))
one("yaml base 60", "yaml", lambda: NEOX.encode() + b"x: 1" + b":59" * 90 + b"\ny: 1" + b":59" * 90 + b".5\n")
one("yaml base 60, long", "yaml", lambda: NEOX.encode() + b"x: 1" + b":59" * 90_000 + b"\n")
one("yaml binary int", "yaml", lambda: NEOX.encode() + b"x: 0b" + b"1" * 250 + b"\ny: 0b_\nz: 0x_\nw: ._\nv: 1e999\n")
one("yaml bad dates", "yaml", lambda: NEOX.encode() + b"x: 2001-99-99\ny: !!timestamp 9999-99-99T99:99:99Z\n")
one("yaml tags", "yaml", lambda: NEOX.encode() + b"x: !!python/object/apply:os.system [id]\n")
one("yaml binary", "yaml", lambda: NEOX.encode() + b"x: !!binary " + b"A" * (Y - 200))
one("yaml odd constructs", "yaml", lambda: NEOX.encode() + b"x: !!int {a: 1}\ny: !!float ''\nz: !!bool maybe\n")
one("yaml empty float", "yaml", lambda: NEOX.encode() + b"rotary_pct: !!float ''\nx: !!int ''\n")
one("yaml key of a mapping", "yaml", lambda: NEOX.encode() + b"? {a: 1}\n: 2\n")
one("yaml blanks", "yaml", lambda: NEOX.encode() + b"x:" + b" " * (Y - 200) + b"1\n")
one("yaml blank lines", "yaml", lambda: NEOX.encode() + b"\n" * (Y - 200))
one("yaml indented blanks", "yaml", lambda: many("x#:" + " " * 500 + "1\n", Y, start=NEOX))
one("yaml block text", "yaml", lambda: many("  a\n\n", Y, start=NEOX + "x: >\n"))
one("yaml comments", "yaml", lambda: many("# c\n", Y, start=NEOX))
one("yaml documents", "yaml", lambda: many("---\na: #\n", Y))
one("yaml empty documents", "yaml", lambda: many("---\n", Y))
one("yaml directives", "yaml", lambda: many("%X# a\n", Y, end="---\n" + NEOX))
one("yaml tag directives", "yaml", lambda: many("%TAG !a#! tag:a#\n", Y, end="---\n" + NEOX))
one("yaml anchors", "yaml", lambda: many("x#: &a# 1\n", Y, start=NEOX))
one(
    "yaml references",
    "yaml",
    lambda: (NEOX + "max_position_embeddings: ${" + "." * 5000 + "a}\nrotary_pct: ${rotary_pct}\n").encode(),
)
one("yaml same keys", "yaml", lambda: many("a: #\n", Y, start=NEOX))
one("yaml quoted", "yaml", lambda: NEOX.encode() + b'x: "' + b"\\x41" * (Y // 4 - 100) + b'"\n')
one("yaml question marks", "yaml", lambda: many("? ", Y, start=NEOX))
one("yaml colons", "yaml", lambda: NEOX.encode() + b"x" + b":x" * (Y // 2 - 100))
one("yaml exponents", "yaml", lambda: many("x#: 1e5\n", Y, start=NEOX))
one(
    "yaml exponents below long keys",
    "yaml",
    lambda: many(" " * 90 + "k#: 1e5\n", Y, start=NEOX + "".join(f"{' ' * n}{'k' * 1000}:\n" for n in range(90))),
)
# JSON
one("json many keys", "config.json", lambda: many('"k#":#', 1_600_000, ",", "{" + LLAMA + ",", "}"))
one("json near-miss keys", "config.json", lambda: many('"rope_thet#":1', J, ",", "{" + LLAMA + ",", "}"))
one(
    "json near-miss keys within the facts",
    "config.json",
    lambda: many('"rope_thet_#":1', 5000, ",", "{" + LLAMA + ",", "}"),
)
one("json long near-miss keys", "config.json", lambda: many(f'"{ROPES}#":1', J, ",", "{" + LLAMA + ",", "}"))
one(
    "json long unknown keys in a block",
    "config.json",
    lambda: many(
        f'"{ROPES}#":1', 1_000_000, ",", "{" + LLAMA + ',"rope_scaling":{"rope_type":"yarn","factor":2,', "}}"
    ),
)
one(
    "json keys of words",
    "config.json",
    lambda: many('"position_window_attention_bias_rope_scale_#":1', J // 2, ",", "{" + LLAMA + ",", "}"),
)
one("json keys of blanks", "config.json", lambda: many('"' + " " * 4000 + '#":1', J, ",", "{" + LLAMA + ",", "}"))
one("json keys of digits", "config.json", lambda: many('"rope_' + "0" * 4000 + '#":1', J, ",", "{" + LLAMA + ",", "}"))
one("json same keys", "config.json", lambda: many('"k#":1,"k#":2', 3000, ",", "{" + LLAMA + ",", "}"))
one(
    "json one key again and again",
    "config.json",
    lambda: many('"rope_theta":#', 1_600_000, ",", "{" + LLAMA + ",", "}"),
)
one("json deep", "config.json", lambda: nested('{"a":', "1", "}", MiB))
one("json deep lists", "config.json", lambda: nested("[", "", "]", 4 * MiB - 100))
one(
    "json paths",
    "config.json",
    lambda: many('"k#":1', 1_000_000, ",", "{" + LLAMA + "," + f'"{"k" * 4000}":{{' * 90, "}" * 91),
)
one(
    "json rope keys below long paths",
    "config.json",
    lambda: many('"rope_x#":1', 5000, ",", "{" + LLAMA + "," + f'"text_config_{"k" * 4000}":{{' * 90, "}" * 91),
)
one("json huge int", "config.json", lambda: ("{" + LLAMA + ',"rope_theta":' + "9" * (J - 1000) + "}").encode())
one("json many ints", "config.json", lambda: many("9" * 299, J, ",", "{" + LLAMA + ',"rope_scaling":[', "]}"))
one("json a list where a number is", "config.json", lambda: many("1", J, ",", "{" + LLAMA + ',"rope_theta":[', "]}"))
one("json long text", "config.json", lambda: ("{" + LLAMA + ',"rope_theta":"' + "1" * (J - 1000) + '"}').encode())
one(
    "json long text of blanks",
    "config.json",
    lambda: ("{" + LLAMA + ',"rope_theta":"1' + " " * (J - 1000) + 'x"}').encode(),
)
one("json long type", "config.json", lambda: ('{"model_type":"' + "x" * (J - 1000) + '","rope_theta":1e4}').encode())
one(
    "json long class",
    "config.json",
    lambda: ('{"architectures":["' + "ForCausalLM" * 600_000 + '"],"rope_theta":1e4}').encode(),
)
one("json many classes", "config.json", lambda: many('"A#ForX"', J, ",", '{"architectures":[', '],"rope_theta":1e4}'))
one("json layer types", "config.json", lambda: many('"t#"', J, ",", "{" + LLAMA + ',"layer_types":[', "]}"))
one(
    "json many layers",
    "config.json",
    lambda: json.dumps(HEADS | {"num_hidden_layers": 10_000, "layer_types": [f"t{n}" for n in range(10_000)]}).encode(),
)
one(
    "json many windows",
    "config.json",
    lambda: json.dumps(HEADS | {"num_hidden_layers": 10_000, "attention_window": list(range(10_000))}).encode(),
)
one(
    "json many sections",
    "config.json",
    lambda: many('"s#_config":{"model_type":"llama","rope_theta":1}', J, ",", "{" + LLAMA + ",", "}"),
)
one("json sections in sections", "config.json", lambda: nested('{"text_config":', "{" + LLAMA + "}", "}", 98))
one(
    "json many rates",
    "config.json",
    lambda: json.dumps(
        HEADS
        | {
            "rope_scaling": {
                "rope_type": "longrope",
                "short_factor": [1.5] * 1_000_000,
                "long_factor": [1.5] * 1_000_000,
                "factor": 8,
            }
        }
    ).encode(),
)
one(
    "json labels",
    "config.json",
    lambda: json.dumps(
        HEADS | {"id2label": {str(n): f"l{n}" for n in range(60_000)}, "label2id": {f"l{n}": n for n in range(60_000)}}
    ).encode(),
)
one("json surrogates", "config.json", lambda: many("\\ud83d\\ude00", J, "", "{" + LLAMA + ',"x":"', '"}'))
one("json blanks", "config.json", lambda: ("{" + LLAMA + " " * (J - 1000) + "}").encode())
one("json commas", "config.json", lambda: ("{" + LLAMA + "," * (J - 1000) + "}").encode())
one(
    "json of a tokenizer",
    "config.json",
    lambda: many('["a#","b#"]', J, ",", '{"version":"1.0","model":{"type":"BPE","merges":[', "]}}"),
)
one("json of a vocabulary", "config.json", lambda: many('"w#":#', J, ",", '{"model":{"vocab":{', "}}}"))
one(
    "json of a spec",
    "config.json",
    lambda: ('{"type":"Rotary","head_width":64,"base":1e4,"x":' + "[" * 90 + "]" * 90 + "}").encode(),
)
one(
    "json of a spec with many rates",
    "config.json",
    lambda: many(
        "1.5", J, ",", '{"type":"Rotary","head_width":64,"scaling":{"type":"LongRope","short_factor":[', "]}}"
    ),
)
FILES["json beside a config"] = folder_of(
    HEADS,
    **{
        "tokenizer_config.json": many('"k#":1', 1_500_000, ",", "{", "}"),
        "generation_config.json": nested("[", "", "]", MiB),
        "params.json": many('"rope_k#":1', 1_500_000, ",", "{", "}"),
    },
)
one(
    "index of many shards",
    "safetensors.index.json",
    lambda: many('"t#":"f#.safetensors"', 8 * MiB, ",", '{"weight_map":{', "}}"),
)
one(
    "index of one shard",
    "safetensors.index.json",
    lambda: many('"t#":"f.safetensors"', 16 * MiB, ",", '{"weight_map":{', "}}"),
)
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
# Modelfile, other texts
one("Modelfile blanks", "Modelfile", lambda: spaced("FROM a#b"))
one("Modelfile blanks in a parameter", "Modelfile", lambda: spaced("FROM a\nPARAMETER num_ctx#1 # x"))
one("Modelfile blanks before", "Modelfile", lambda: spaced("#FRO\n"))
one("Modelfile lines", "Modelfile", lambda: many("FROM a#\n", MiB))
one("Modelfile parameters", "Modelfile", lambda: many("PARAMETER k# #\n", MiB, start="FROM a\n"))
one("Modelfile quotes", "Modelfile", lambda: b"FROM a\n" + b'"""' * (MiB // 3 - 10))
one("Modelfile quotes, open", "Modelfile", lambda: b"FROM a\n" + b'"""x' * (MiB // 4 - 10))
one("Modelfile tabs", "Modelfile", lambda: spaced("FROM#a", "\t"))
one("Modelfile other ends of lines", "Modelfile", lambda: b"FROM a\n" + b"\x0b\x0c\x1c\x1d" * (MiB // 4 - 10))
FILES["Modelfile num_ctx"] = lambda: {
    "Modelfile": b"FROM ./x.gguf\nPARAMETER num_ctx " + b"9" * 900_000 + b"\n",
    "x.gguf": gguf_bytes(ARCHITECTURE),
}
FILES["Modelfile rope"] = lambda: {
    "Modelfile": b"FROM ./x.gguf\nPARAMETER rope_frequency_base " + b"[" * 900_000 + b"\n",
    "x.gguf": gguf_bytes(ARCHITECTURE),
}
one("a text", "txt", lambda: b"x" * MiB)
one("a store", "sqlite", lambda: store(10))
one("noise", "json", lambda: np.random.default_rng(0).bytes(MiB))
