"""Coverage-guided fuzzing of every reader: ``python fuzz_readers.py READER --seconds N [--found FOLDER]``.

Whatever a file holds, it is audited or refused with a ``ClockhandsError``; nothing else may come out, nothing may hang,
and memory stays below a bound. The fuzzer starts from sound files and learns from the branches of clockhands that an
input reaches. Archives and headers with lengths and check sums are packed here, so that changes reach what is inside.

What stops it is written to FOLDER, and the process ends with another code than 0.
"""

import argparse
import io
import itertools
import json
import os
import random
import sqlite3
import struct
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import atheris
import numpy as np
import yaml

with atheris.instrument_imports(include=["clockhands"]):
    from clockhands.auditing import audit
    from clockhands.configs import open_target
    from clockhands.errors import ClockhandsError
    from clockhands.jobs.survey.store import SurveyStore
    from clockhands.lab.store import Store

from auditing.everyday_models import CONFIGS, llama_32_gguf
from written_files import (
    checkpoint_bytes,
    entry,
    gguf_bytes,
    gguf_key,
    onnx_bytes,
    onnx_tensor,
    safetensors_bytes,
    small_checkpoint,
    small_gguf,
)

# MiB of the whole process, which has about 200 when it starts. What Atheris compares for its guidance it keeps where it
# is an array of NumPy: about 4 KiB for each audit with frequencies, 230,000 of them in half an hour.
MEMORY = 4096
SECONDS = 20  # for one input; the slowest sound one takes a hundredth of that

HERE = Path(__file__).resolve().parent
DIALECTS = HERE.parent / "published" / "dialects"
CASES = HERE.parent / "configs" / "cases.json"

# Values at which something turns over, and values of other kinds than are expected.
ODD = [
    None, True, False, 0, 1, -1, 2, 3, 7, 64, 0.5, -0.5, 1e-300, 1e300, 1e400, -1e400, float("nan"), 2**31, 2**53,
    2**63, 2**64, 10**400, "", "yarn", "llama3", "longrope", "dynamic", "mrope", "proportional", "default", "8",
    "\u202e\x1b[31m", [], {}, [0], [1.0] * 64, [None], {"rope_type": "yarn"}, {"factor": 0}, [[]], {"": {}},
    ["full_attention"] * 3,
]  # fmt: skip


@dataclass(frozen=True)
class Reader:
    """One reader: the files that an input becomes, the one that is opened, and sound inputs to start from."""

    opened: str
    files: Callable[[bytes], dict[str, bytes]]
    seeds: Callable[[], list[bytes]]
    json: bool = False
    look: "Callable[[Path], None] | None" = None


def configs() -> list[bytes]:
    """The position fields of published models, everyday models with and without faults, and a spec."""
    cases = json.loads(CASES.read_text(encoding="utf-8"))["cases"]
    spec = {"type": "Rotary", "head_width": 64, "base": 1e4}
    return [json.dumps(config).encode() for config in (*(case["config"] for case in cases), *CONFIGS.values(), spec)]


def folder(data: bytes) -> dict[str, bytes]:
    """A model folder; the documents in it follow each other, with a zero byte between them."""
    names = ("tokenizer_config.json", "generation_config.json", "params.json", "config.json")
    parts = data.split(b"\0", 3)
    whole = dict(zip(names, parts, strict=False))
    return {"config.json": b'{"model_type": "llama", "max_position_embeddings": 4096}'} | whole


def folders() -> list[bytes]:
    sound = {"dim": 64, "n_heads": 4, "n_layers": 2, "rope_theta": 1e6, "use_scaled_rope": True}
    block = {"factor": 16, "original_max_position_embeddings": 8192, "apply_scale": False}
    yarn = sound | {"head_dim": 16, "yarn": block}
    lengths = [b'{"model_max_length": 1e30}', b'{"max_length": 20}']
    packed = [b"\0".join([*lengths, json.dumps(params).encode()]) for params in (sound, yarn)]
    # An everyday model in its folder: the config is the last of the four documents.
    return packed + [b"\0".join([*lengths, b"{}", json.dumps(config).encode()]) for config in CONFIGS.values()]


def safetensors(data: bytes) -> dict[str, bytes]:
    """A file as it is, or a header with its length in front and zeros behind."""
    if data[:1] == b"\0":
        return {"x.safetensors": data[1:]}
    return {"x.safetensors": struct.pack("<Q", len(data)) + data + bytes(64)}


def index(data: bytes) -> dict[str, bytes]:
    shard = safetensors_bytes({"a": entry()}, bytes(8))
    return {"model.safetensors.index.json": data, "x.safetensors": shard, "y.safetensors": shard}


def array(data: bytes) -> dict[str, bytes]:
    """An array by itself, or in an archive that is whole, stored or deflated."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED if data[:1] == b"\1" else zipfile.ZIP_STORED) as archive:
        archive.writestr("a.npy", data[1:])
    return {"x": data[1:] if data[:1] == b"\0" else stream.getvalue()}


def arrays() -> list[bytes]:
    made = []
    for dtype in ("<f4", ">f8", "<i2", "|b1"):
        stream = io.BytesIO()
        np.save(stream, np.arange(24).astype(dtype).reshape(4, 6))
        made += [bytes([kind]) + stream.getvalue() for kind in range(3)]
    archive = io.BytesIO()
    np.savez_compressed(archive, a=np.ones((4, 2)))
    return [*made, b"\0" + archive.getvalue()]


def checkpoint(data: bytes) -> dict[str, bytes]:
    """A file as it is, or a pickle inside an archive."""
    if data[:1] == b"\0":
        return {"x.pt": data[1:]}
    return {"x.pt": checkpoint_bytes(data, {"0": bytes(24)})}


def checkpoints() -> list[bytes]:
    with zipfile.ZipFile(io.BytesIO(small_checkpoint())) as archive:
        body = archive.read("model/data.pkl")[2:-1]
    legacy = b"\0\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}."
    return [body, b"\0" + small_checkpoint(), legacy]


def ggufs() -> list[bytes]:
    gemma = [
        gguf_key("general.architecture", "string", "gemma3"),
        gguf_key("gemma3.block_count", "uint32", 6),
        gguf_key("gemma3.attention.head_count", "array of uint32", [4] * 6),
        gguf_key("gemma3.attention.key_length", "uint32", 64),
        gguf_key("gemma3.attention.sliding_window", "uint32", 512),
        gguf_key("gemma3.rope.scaling.type", "string", "yarn"),
        gguf_key("gemma3.rope.scaling.factor", "float32", 8.0),
    ]
    llama = [llama_32_gguf(np.ones(32)), llama_32_gguf(None, base=None)]
    return [small_gguf(), small_gguf(">"), *llama, gguf_bytes(gemma)]


def headers() -> list[bytes]:
    plain = {"wpe.weight": entry("F32", (4, 4), (0, 64)), "__metadata__": {"format": "pt"}}
    return [json.dumps(plain).encode(), b"\0" + safetensors_bytes({"a": entry("F8_E4M3", (8,), (0, 8))}, bytes(8))]


def indices() -> list[bytes]:
    return [json.dumps({"weight_map": {"a": "x.safetensors"}, "metadata": {"total_size": 8}}).encode()]


def models() -> list[bytes]:
    return [onnx_bytes([onnx_tensor("pe", (2, 3), raw=bytes(24))]), onnx_bytes([])]


def yamls() -> list[bytes]:
    """Configs of programs, and what YAML has beyond JSON."""
    made = [yaml.safe_dump(case["config"], sort_keys=False).encode() for case in published_dialects()]
    own = b"a: &a {rotary_base: 1_0, x: 1:30, y: 0o7}\nmodel:\n  <<: [*a, {z: .inf}]\n  ? k\n  : !!str 1e6\n"
    return [*made, own, b"%YAML 1.1\n---\n- [~, 2001-01-01, 0x1F, 'x', \"\\u0041\"]\n...\n---\nx: 1\n"]


def dialects() -> list[bytes]:
    return [json.dumps(case["config"]).encode() for case in published_dialects()]


def published_dialects() -> list[dict]:
    held = (json.loads(path.read_text(encoding="utf-8")) for path in sorted(DIALECTS.glob("*.json")))
    return [each for each in held if isinstance(each.get("config"), dict)]


def modelfile(data: bytes) -> dict[str, bytes]:
    """A Modelfile beside what it may be built from."""
    return {"Modelfile": data, "x.gguf": small_gguf(), "config.json": configs()[-2]}


def modelfiles() -> list[bytes]:
    text = b"FROM ./x.gguf\nPARAMETER num_ctx 4096\nPARAMETER rope_frequency_base 1e6\n"
    return [
        text + b"parameter rope_frequency_scale 0.5\n",
        b'TEMPLATE """{{ .Prompt }}\nFROM x"""\nFROM "." # here\nSYSTEM x\n',
        b"from llama3:8b\n",
    ]


def names(data: bytes) -> dict[str, bytes]:
    """A pickle that asks for the names in the lines, module and name in turn, by one instruction or by the other."""
    words = [line[:255] for line in data.split(b"\n")]
    body = b""
    for number, (module, name) in enumerate(itertools.pairwise(words)):
        texts = b"".join(b"\x8c" + bytes([len(word)]) + word for word in (module, name))
        body += b"c" + module + b"\n" + name + b"\n" if number % 2 else texts + b"\x93"
    return {"x.pt": checkpoint_bytes(b"(" + body + b"t", {"0": bytes(8)})}


def stores(kind: type) -> Callable[[], list[bytes]]:
    """A store of this kind without rows, and one whose tables hold other things."""

    def made() -> list[bytes]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x"
            kind.open(path).close()
            with closing(sqlite3.connect(path)) as opened:
                opened.execute("PRAGMA journal_mode = DELETE")
            whole = path.read_bytes()
            with closing(sqlite3.connect(path)) as opened, opened:
                names = [name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
                for name in names:
                    columns = opened.execute(f'SELECT count(*) FROM pragma_table_info("{name}")').fetchone()[0]
                    with suppress(sqlite3.Error):
                        values = ", ".join(["'done'"] * columns)
                        opened.execute(f'INSERT INTO "{name}" VALUES ({values})')
            return [whole, path.read_bytes()]

    return made


def look_into_survey(path: Path) -> None:
    with suppress(ClockhandsError), SurveyStore.open(path, create=False, write=False, patience=0) as opened:
        list(opened.rows())
        opened.length  # noqa: B018 - it is read


def look_into_lab(path: Path) -> None:
    with suppress(ClockhandsError), Store.open(path, create=False, write=False, patience=0) as opened:
        for study in opened.studies():
            opened.rows(study.hash)
            opened.trials(study.hash)


def alone(name: str) -> Callable[[bytes], dict[str, bytes]]:
    return lambda data: {name: data}


READERS = {
    "config": Reader("config.json", alone("config.json"), configs, json=True),
    "gguf": Reader("x.gguf", alone("x.gguf"), ggufs),
    "safetensors": Reader("x.safetensors", safetensors, headers, json=True),
    "index": Reader("model.safetensors.index.json", index, indices, json=True),
    "array": Reader("x", array, arrays),
    "onnx": Reader("x.onnx", alone("x.onnx"), models),
    "checkpoint": Reader("x.pt", checkpoint, checkpoints),
    "folder": Reader("", folder, folders, json=True),
    "yaml": Reader("x.yaml", alone("x.yaml"), yamls),
    "dialect": Reader("x.json", alone("x.json"), dialects, json=True),
    "modelfile": Reader("Modelfile", modelfile, modelfiles),
    "names": Reader("x.pt", names, lambda: [b"os\nsystem", b"torch\nFloatStorage\ntorch._utils\n_rebuild_tensor_v2"]),
    "survey": Reader("x", alone("x"), stores(SurveyStore), look=look_into_survey),
    "lab": Reader("x", alone("x"), stores(Store), look=look_into_lab),
}


def look(path: Path) -> None:
    """Audit a target, and read what tensors it has; only what clockhands raises itself may come out."""
    for length in (None, 100_000):
        with suppress(ClockhandsError):
            json.dumps(audit(path, length).to_dict(), allow_nan=False).encode()
    with suppress(ClockhandsError):
        opened = open_target(path)
        for name in list(opened.tensors)[:4]:
            with suppress(ClockhandsError):
                opened.array(name)


def changed(data: bytes, largest: int, seed: int) -> bytes:
    """A JSON document with an odd value somewhere, or with some bytes changed."""
    chance = random.Random(seed)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return atheris.Mutate(data, largest)
    if chance.random() < 0.3 or not isinstance(document, dict):
        return atheris.Mutate(data, largest)
    for _ in range(chance.randint(1, 3)):
        place: dict | list = document
        while (
            inner := [each for each in _values(place) if isinstance(each, dict | list) and each]
        ) and chance.random() < 0.5:
            place = chance.choice(inner)
        if isinstance(place, dict):
            key = chance.choice([*place, *KEYS])
            place[key] = json.loads(json.dumps(chance.choice([*ODD, *_values(place)])))
        else:
            place[chance.randrange(len(place))] = json.loads(json.dumps(chance.choice(ODD)))
    made = json.dumps(document).encode()
    return made if len(made) <= largest else data


def _values(place: dict | list) -> list:
    return list(place.values()) if isinstance(place, dict) else place


def _keys() -> list[str]:
    """Keys that published configs have at any depth."""
    found: dict[str, None] = {}
    waiting = [case["config"] for case in json.loads(CASES.read_text(encoding="utf-8"))["cases"]]
    while waiting:
        place = waiting.pop()
        found |= dict.fromkeys(place if isinstance(place, dict) else ())
        waiting += [each for each in _values(place) if isinstance(each, dict | list)]
    return list(found)


KEYS = _keys()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reader", choices=READERS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="0 is another one each time")
    parser.add_argument("--found", type=Path, default=Path.cwd())
    chosen = parser.parse_args()
    reader = READERS[chosen.reader]
    with tempfile.TemporaryDirectory() as scratch:
        corpus, target = Path(scratch) / "corpus", Path(scratch) / "target"
        corpus.mkdir()
        target.mkdir()
        for number, seed in enumerate(reader.seeds()):
            (corpus / f"seed-{number}").write_bytes(seed)

        def once(data: bytes) -> None:
            for name, content in reader.files(data).items():
                (target / name).write_bytes(content)
            (reader.look or look)(target / reader.opened)

        words = Path(scratch) / "words"
        words.write_text("".join(f'"{word}"\n' for word in KEYS if word.isidentifier()), encoding="utf-8")
        chosen.found.mkdir(parents=True, exist_ok=True)
        found = f"{chosen.found}{os.sep}{chosen.reader}-"
        options = [
            f"-max_total_time={chosen.seconds}", f"-seed={chosen.seed}", f"-rss_limit_mb={MEMORY}",
            f"-timeout={SECONDS}", "-max_len=8192", "-print_final_stats=1", f"-artifact_prefix={found}",
        ]  # fmt: skip
        options += [f"-dict={words}"] if reader.json else []
        more = {"custom_mutator": changed} if reader.json else {}
        atheris.Setup([sys.argv[0], *options, str(corpus)], once, **more)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
