"""Targets made to hurt: what they cost is bounded, what they say is a sentence, and what they hold never runs.

Memory is that of a whole process that audits the target, as the operating system counts it. Time is not asserted; the
README of this folder says what was measured.
"""

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import zipfile
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from clockhands.auditing import audit
from clockhands.cli import main
from clockhands.configs import open_target
from clockhands.configs.models_under import models_under
from clockhands.errors import Unreadable
from memory_peaks import AT_HAND
from written_files import entry, refusal, safetensors_bytes, written

# Runs one command after the other, and says the most memory that it had and what each of them said.
MEASURED = (
    AT_HAND
    + """
import contextlib, io, json
from clockhands.cli import main
told = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as ended:
            code = ended.code
    told.append([code, out.getvalue(), err.getvalue().strip()])
print(json.dumps([peak_bytes(), told]))
"""
)

resource = pytest.importorskip("resource", reason="this system does not count the memory of processes")


def measured(*commands: list[str]) -> tuple[int, list[tuple[int, str, str]]]:
    """The peak of memory of a process of its own, in bytes, and the exit code and both outputs of each command."""
    told = subprocess.run([sys.executable, "-c", MEASURED, json.dumps(commands)], check=True, capture_output=True)
    return json.loads(told.stdout)


def test_a_checkpoint_of_a_terabyte_is_audited_within_200_megabytes(tmp_path):
    """400 shards of 120 layers, sparse: as long as a real one, of which the headers alone take room."""
    per_layer = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.up_proj")
    names = [f"model.layers.{layer}.{part}.weight" for layer in range(120) for part in per_layer]
    names += [f"model.layers.{layer}.mlp.{part}_proj.weight" for layer in range(120) for part in ("gate", "down")]
    shards, width = 400, 16384
    weight_map = {}
    for number in range(shards):
        held = names[number::shards]
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        rows = 10**12 // shards // len(held) // (2 * width)
        size = 2 * rows * width
        header = {name: entry("BF16", (rows, width), (at * size, (at + 1) * size)) for at, name in enumerate(held)}
        weight_map |= dict.fromkeys(held, file)
        start = safetensors_bytes(header)
        with (tmp_path / file).open("wb") as stream:
            stream.write(start)
            stream.truncate(len(start) + size * len(held))
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert total > 0.99e12
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    written(tmp_path / "model.safetensors.index.json", json.dumps(index).encode())
    config = {"model_type": "llama", "hidden_size": width, "num_attention_heads": 128, "num_hidden_layers": 120}
    config |= {"max_position_embeddings": 8192, "rope_theta": 500000.0}
    written(tmp_path / "config.json", json.dumps(config).encode())
    assert len(open_target(tmp_path).tensors) == len(names)
    peak, [(code, said, _)] = measured(["audit", str(tmp_path), "--json"])
    assert code == 0
    assert json.loads(said)["targets"][0]["layers"][0]["layers"] == "0-119"
    assert peak < 200e6


def repeated(middle: bytes, count: int) -> bytes:
    return b",".join(middle.replace(b"#", b"%d" % number) for number in range(count))


def test_hostile_configs_cost_little_and_are_refused_in_a_sentence_or_have_findings(tmp_path, cases):
    """What ``test_json_documents.py`` refuses one by one is refused in little memory; so is what nobody knows.

    Numbers that no model has are findings.
    """
    heads = b'"hidden_size": 64, "num_attention_heads": 4'
    unknown = b'"rope_theta": 1e4, "rope_scaling": {"rope_type": "yarn", "factor": 2, ' + repeated(b'"k#":1', 130_000)
    hostile = {
        "nests objects or lists deeper than 100 levels": b'{"a":' * 300_000 + b"1" + b"}" * 300_000,
        "holds more than 131,072 keys": b"{" + repeated(b'"#":0', 200_000) + b"}",
        "holds a whole number of 2,000,000 digits": b'{"rope_theta":' + b"9" * 2_000_000 + b"}",
        "holds more than 300 unknown keys and values": b'{"model_type": "llama", ' + heads + b", " + unknown + b"}}",
        "holds more than 300 unknown keys": b"{" + heads + b", " + repeated(b'"rope_theta_#":1', 90_000) + b"}",
    }
    wide = {"model_type": "llama", "hidden_size": 2**20, "num_attention_heads": 1, "num_hidden_layers": 9999}
    impossible = {
        "heads": wide,
        "declared heads": wide | {"head_dim": 2**16, "hidden_size": 64, "num_hidden_layers": 2},
        "sinusoids": {
            "model_type": "marian", "d_model": 2**20, "max_position_embeddings": 2**53, "encoder_layers": 9999,
        },
        "unknown type": {"rope_theta": 1e4, "hidden_size": 2**16, "num_attention_heads": 1},
    }  # fmt: skip
    texts = [*hostile.values(), *(json.dumps(config).encode() for config in impossible.values())]
    paths = [written(tmp_path / f"{number}.json", data) for number, data in enumerate(texts)]
    commands = [["audit", str(path)] for path in paths[: len(hostile)]]
    commands += [["audit", str(path), "--json"] for path in paths[len(hostile) :]]
    peak, answers = measured(*commands)
    assert peak < 200e6
    for told, path, (code, said, complaint) in zip(hostile, paths, answers, strict=False):
        with cases(told):
            assert (code, said) == (2, "")
            assert complaint.startswith((f"error: {path} {told}", f"error: {path}: {path.name} {told}"))
            assert complaint.count("\n") == 1
            assert "hint: " in complaint
    for name, (code, said, _) in zip(impossible, answers[len(hostile) :], strict=True):
        with cases(name):
            assert code == 1
            assert "impossible-value" in {finding["code"] for finding in json.loads(said)["targets"][0]["findings"]}


def npz_of(path: Path, megabytes: int, method: int = zipfile.ZIP_DEFLATED) -> Path:
    """An archive of one array of zeros."""
    told = {"descr": "<f4", "fortran_order": False, "shape": (megabytes * 2**14, 16)}
    with (
        zipfile.ZipFile(path, "w", method, compresslevel=1) as archive,
        archive.open("a.npy", "w", force_zip64=True) as member,
    ):
        np.lib.format.write_array_header_1_0(member, told)
        for _ in range(megabytes):
            member.write(bytes(2**20))
    return path


def test_a_bomb_in_an_archive_and_a_directory_larger_than_any_are_refused_unopened(tmp_path):
    bomb, large = npz_of(tmp_path / "bomb.npz", 260), npz_of(tmp_path / "x.npz", 1)
    assert bomb.stat().st_size < 2e6
    data = bytearray(large.read_bytes())
    end = data.rindex(b"PK\5\6")
    with large.open("r+b") as stream:  # sparse: a directory of 512 MiB of nothing
        stream.seek(2**29)
        stream.write(data[end : end + 12] + struct.pack("<II", 2**29 - 4, 4) + data[end + 20 :])
    peak, [(code, _, of_bomb), (other, _, of_directory)] = measured(["audit", str(bomb)], ["audit", str(large)])
    assert (code, other) == (2, 2)
    assert of_bomb.startswith(f"error: 'a.npy' in {bomb} would grow from ")
    assert " to 260 MiB when unpacked, far more than a table of numbers can.\nhint: " in of_bomb
    assert of_directory.startswith(
        f"error: {large} cannot be read as a zip archive: its directory is said to have 536,870,908"
    )
    assert peak < 100e6
    assert open_target(npz_of(tmp_path / "zeros.npz", 4)).array("a").any() == 0, "a small table of zeros is still read"


def test_other_ways_to_compress_are_refused(tmp_path):
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        message, _ = refusal(open_target, npz_of(tmp_path / "x.npz", 1, method), error=Unreadable)
        told = (
            f"keeps 'a.npy' compressed by method {method}, but only the methods 0 (stored) and 8 (deflated) are read."
        )
        assert told in message


# Pipes


@pytest.fixture
def pipe(tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    path = tmp_path / "config.json"
    os.mkfifo(path)
    return path


def test_a_pipe_is_read_if_it_has_a_writer(pipe):
    assert refusal(open_target, pipe, error=Unreadable) == (
        f"{pipe} is a pipe without a writer.",
        "Start the program that writes to it, or name a file.",
    )
    writer = threading.Thread(target=pipe.write_bytes, args=(b'{"model_type": "llama"}',))
    writer.start()
    assert open_target(pipe).config == {"model_type": "llama"}
    writer.join()


def test_pipes_in_a_folder_are_refused_or_told(pipe, tmp_path):
    assert refusal(open_target, tmp_path, error=Unreadable) == (
        f"{pipe} is a pipe or a device, but in a model folder a file is expected.",
        "If you mean this pipe, give its own name instead of the folder.",
    )
    pipe.unlink()
    written(pipe, b'{"model_type": "llama"}')
    os.mkfifo(tmp_path / "tokenizer_config.json")
    assert "is a pipe or a device" in open_target(tmp_path).notes[0]
    os.mkfifo(tmp_path / "pytorch_model.bin")
    assert any("is not a regular file" in note for note in open_target(tmp_path).notes)
    os.mkfifo(tmp_path / "model.safetensors")
    message, _ = refusal(open_target, tmp_path, error=Unreadable)
    assert "model.safetensors is not a regular file" in message


# Strings

ODD = "\x1b[31mred\x1b[0m\n\r\u202eesrever\u2028\x07\x9b2J"


FORMS = ("text", "json", "github", "sarif")


def asked(target: str | Path) -> list[tuple[int, str, str]]:
    """An audit in each form, in this process: its memory is not the point."""
    answers = []
    for form in FORMS:
        done = CliRunner().invoke(main, ["audit", str(target), "--format", form])
        answers.append((done.exit_code, done.stdout, done.stderr.strip()))
    return answers


def test_strings_of_a_config_are_escaped(tmp_path):
    config = {
        "model_type": ODD, "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "rope_theta": ODD,
        "rope_scaling": {"rope_type": ODD, ODD: 1, "factor": ODD}, ODD: ODD, "layer_types": [ODD, ODD],
    }  # fmt: skip
    path = written(tmp_path / "config.json", json.dumps(config).encode())
    for form, (_, said, complaint) in zip(FORMS, asked(path), strict=True):
        for text in (said, complaint):
            odd = {char for char in text if not char.isprintable()} - {"\n"}
            assert not odd, f"{form}: {odd}"
            assert "red" in said


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are text there")
def test_names_of_files_that_are_no_text_are_escaped(tmp_path):
    folder = os.fsencode(tmp_path) + b"/\xff\x1b[31m\n.safetensors"
    try:
        os.mkdir(folder)
    except OSError:
        pytest.skip("this file system takes no such name")
    written(Path(os.fsdecode(folder)) / "config.json", b'{"model_type": "llama", "rope_theta": 1}')
    for form, (code, said, complaint) in zip(FORMS, asked(os.fsdecode(folder)), strict=True):
        assert code in (1, 2)
        for text in (said, complaint):
            assert not {char for char in text if not char.isprintable()} - {"\n"}, form
    audit(os.fsdecode(folder)).to_dict()


# Single targets of a folder

GOOD = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


def model(folder: Path, text: bytes = json.dumps(GOOD).encode(), name: str = "config.json") -> None:
    folder.mkdir()
    written(folder / name, text)


def bad_targets(root: Path) -> dict[str, str]:
    """Twenty-two targets that cannot be audited, each in a folder of its own, and a part of what is said of each."""
    texts = {
        "no json": (b"[", "is not JSON"),
        "list": (b"[1]", "holds a list at the top level"),
        "deep": (b'{"a":' * 10**5, "nests objects or lists deeper than 100 levels"),
        "digits": (b'{"rope_theta":' + b"9" * 10**6 + b"}", "holds a whole number of 1,000,000 digits"),
        "no text": (b"\xff\xfe\0", "is UTF-16 text"),
        "empty": (b"", "is empty"),
        "large": (b'{"a":"' + b"x" * 2**23 + b'"}', "has more than 8,388,608 bytes"),
        "surrogate": (b'{"model_type": "\\ud800"}', "holds an unpaired surrogate escape"),
        "deadly": (json.dumps(GOOD).encode(), "ended, 2 times"),
        "hanging": (json.dumps(GOOD).encode(), "took longer than 3 seconds"),
        "safetensors": (json.dumps(GOOD).encode(), "declares a header of 9,223,372,036,854,775,808 bytes"),
        "index": (json.dumps(GOOD).encode(), "names the shard '../../x'"),
    }
    for name in (
        *texts,
        "pipe",
        "zero",
        "terminal",
        "socket",
        "folder",
        "loop",
        "lost",
        "gguf",
        "gguf pipe",
        "modelfile",
    ):
        (root / name).mkdir()
    for name, (text, _) in texts.items():
        (root / name / "config.json").write_bytes(text)
    (root / "safetensors" / "model.safetensors").write_bytes(struct.pack("<Q", 2**63) + b"{}")
    (root / "index" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../../x"}}))
    os.mkfifo(root / "pipe" / "config.json")
    (root / "zero" / "config.json").symlink_to("/dev/zero")
    (root / "terminal" / "config.json").symlink_to("/dev/ptmx")
    with chdir(root / "socket"), socket.socket(socket.AF_UNIX) as made:  # its path may have 100 letters
        made.bind("config.json")
    (root / "folder" / "config.json").mkdir()
    (root / "loop" / "config.json").symlink_to("config.json")
    (root / "lost" / "config.json").symlink_to("absent")
    (root / "gguf" / "x.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**64 - 1, 2**64 - 1))
    os.mkfifo(root / "gguf pipe" / "x.gguf")
    (root / "modelfile" / "Modelfile").write_text("FROM /dev/zero\n")
    device = "is a pipe or a device"
    return {name: said for name, (_, said) in texts.items()} | {
        "pipe": device, "zero": device, "terminal": device, "socket": device, "folder": "is a folder, but",
        "loop": "Too many levels of symbolic links", "lost": "is a link to absent, which does not exist",
        "gguf": "declares 18,446,744,073,709,551,615 keys", "gguf pipe": "is not a regular file",
        "modelfile": "/dev/zero is not in the folder of Modelfile",
    }  # fmt: skip


def test_each_bad_target_costs_its_own_row(tmp_path, monkeypatch, cases):
    """Twelve good models, and twenty-two targets of which one ends its process and another does not end."""
    for number in range(12):
        model(tmp_path / f"{number:02}")
    bad = bad_targets(tmp_path)
    assert len(bad) == 22
    (tmp_path / "again").symlink_to(tmp_path)
    monkeypatch.setattr("clockhands.cli.audit.EACH", "jobs.survey.calls:deadly_each")
    done = CliRunner().invoke(main, ["audit", "-r", str(tmp_path), "--json", "--timeout", "3"])
    told = json.loads(done.stdout)
    assert [Path(each["target"]).name for each in told["targets"]] == [f"{number:02}" for number in range(12)]
    said = {Path(each["target"]).relative_to(tmp_path).parts[0]: each["message"] for each in told["unread"]}
    assert len(told["unread"]) == len(said) == 22
    for name, part in bad.items():
        with cases(name):
            assert part in said[name]
    assert done.exit_code == 2


def test_two_named_targets_have_the_limits_of_memory_and_time(tmp_path, monkeypatch):
    """They are audited in the process of the command, which has its own limit again afterwards."""
    names = ("hungry", "hanging", "good")
    for name in names:
        model(tmp_path / name)
    before = resource.getrlimit(resource.RLIMIT_AS)

    def fault(target, *more, **how):
        if Path(target).name == "hungry":
            bytearray(2**30)
        while Path(target).name == "hanging":
            pass
        return audit(target, *more, **how)

    monkeypatch.setattr("clockhands.cli.audit.audit", fault)
    monkeypatch.setattr("clockhands.jobs.survey.limits.MEMORY", 2**28)
    done = CliRunner().invoke(main, ["audit", *(str(tmp_path / name) for name in names), "--json", "--timeout", "2"])
    told = json.loads(done.stdout)
    assert [Path(each["target"]).name for each in told["targets"]] == ["good"]
    assert [each["message"].partition(" than")[0] for each in told["unread"]] == [
        "The audit needed more memory", "The audit took longer",
    ]  # fmt: skip
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_a_file_that_a_search_cannot_judge_is_told_by_its_audit(tmp_path, monkeypatch):
    """Whatever is raised, the search goes on to the next file."""
    for folder, name in (("a", "config.json"), ("b", "x.yaml"), ("c", "config.json")):
        model(tmp_path / folder, b'{"model": {"hidden_size": 1}}', name)
    monkeypatch.setattr("clockhands.configs.models_under.could_be_dialect", lambda _: 1 / 0)
    monkeypatch.setattr("clockhands.configs.models_under.dialect_of", lambda _: 1 / 0)
    assert [path.relative_to(tmp_path).as_posix() for path in models_under(tmp_path)] == ["a", "b/x.yaml", "c"]


def test_a_device_that_gives_nothing_is_refused():
    with pytest.raises(Unreadable, match="a device that gives nothing to read"):
        open_target(os.ttyname(os.openpty()[1]))


def test_a_tree_of_1100_folders_is_walked(tmp_path):
    folders = [tmp_path.joinpath(*["d"] * (number + 1)) for number in range(1100)]
    for folder in folders:
        folder.mkdir()
    written(folders[-1] / "config.json", b'{"model_type": "llama"}')
    assert list(models_under(tmp_path)) == [folders[-1]]
    (folders[-1] / "config.json").unlink()
    for folder in reversed(folders):  # as deep as this, pytest does not remove them
        folder.rmdir()


PLANTED = (
    "signal", "json", "random", "socket", "selectors", "struct", "tempfile", "threading", "pickle", "enum",
    "numpy", "yaml", "click",
)  # fmt: skip


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_python_files_beside_the_models_never_run(tmp_path, engine):
    """Each would be imported by a new Python process that looks into the current folder first."""
    if engine == "ray":
        pytest.importorskip("ray")
    for number in range(12):
        config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
        (tmp_path / f"model{number}").mkdir()
        (tmp_path / f"model{number}" / "config.json").write_text(json.dumps(config))
    for name in PLANTED:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\n")
    script = Path(sys.executable).with_name("clockhands")
    survey = ["survey", "run", ".", "--store", "s.sqlite", "--engine", engine, "--jobs", "2"]
    for words in (survey, *([["audit", "-r", ".", "--json"]] if engine == "local" else [])):
        done = subprocess.run([script, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
        assert "12 models audited" in done.stderr or len(json.loads(done.stdout)["targets"]) == 12
