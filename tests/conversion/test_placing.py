"""Where a result goes: whole under its name or not there, and nothing that stands there is lost or left to mislead."""

import itertools
import os
import random
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from clockhands.auditing import audit
from clockhands.conversion import CannotConvert, convert
from clockhands.conversion import _writing as writing
from clockhands.conversion._placing import is_unfinished
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.formats import files
from written_files import refusal

from .conftest import llama_tensors


def held(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fails(*_):
    raise OSError(28, "No space left on device")


# Weights that would stay beside the new ones


def test_other_weights_are_not_left_beside_the_new_ones(checkpoint, tmp_path, cases):
    """A loader that finds one file and an index of shards takes the one or the other, and never says which."""
    three = "model-00001-of-00003.safetensors, model-00002-of-00003.safetensors, model-00003-of-00003.safetensors"
    for before, after, named in (
        (1, 2, "model.safetensors"),
        (2, 1, "model-00001-of-00002.safetensors, model-00002-of-00002.safetensors, model.safetensors.index.json"),
        (3, 2, three),
    ):
        with cases(before, after):
            out = tmp_path / f"out {before}"
            convert(checkpoint(f"old {before}", shards=before), out, "interleaved")
            kept = held(out)
            new = checkpoint(f"new {before}", shards=after)
            message, hint = refusal(convert, new, out, "interleaved", force=True, error=InvalidValue)
            assert message == (
                f"{out} holds {named}, which would stay next to the new weights; a loader could use the old ones."
            )
            assert hint == "Remove the files that you no longer need, or name another folder."
            assert held(out) == kept


def test_a_folder_under_the_name_of_a_file_is_refused_before_any_file_is_replaced(checkpoint, tmp_path):
    out = tmp_path / "out"
    (out / "config.json").mkdir(parents=True)
    (out / "model.safetensors").write_bytes(b"old")
    message, _ = refusal(convert, checkpoint(), out, "interleaved", force=True, error=InvalidValue)
    assert message == f"{out / 'config.json'} is a folder, but a file must be written there."
    assert (out / "model.safetensors").read_bytes() == b"old"


# The way to it


def test_folders_on_the_way_are_made_and_taken_back_if_nothing_comes_of_it(checkpoint, tmp_path, monkeypatch):
    model = checkpoint()
    done = convert(model, tmp_path / "a" / "b" / "out", "interleaved")
    assert [file.parent for file in done.files] == [tmp_path / "a" / "b" / "out"] * 2
    convert(model / "model.safetensors", tmp_path / "c" / "d" / "x.safetensors", "interleaved")
    assert (tmp_path / "c" / "d" / "x.safetensors").is_file()
    monkeypatch.setattr(writing, "_copy", fails)
    with pytest.raises(OSError, match="No space left"):
        convert(model, tmp_path / "a" / "e" / "f" / "out", "interleaved")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_a_link_to_nowhere_is_refused_by_its_name(checkpoint, tmp_path):
    checkpoint()
    for name, ending, inside in (("model", "", "out"), ("model/model.safetensors", ".safetensors", None)):
        link = tmp_path / f"link{ending}"
        link.symlink_to(tmp_path / "absent")
        for out in [link, *([link / inside] if inside else [])]:
            message, hint = refusal(convert, tmp_path / name, out, "interleaved", force=True, error=InvalidValue)
            assert message == f"{link} is a link to {tmp_path / 'absent'}, which does not exist."
            assert hint == "Create the target of the link, or remove the link."
        assert link.is_symlink()
        assert not (tmp_path / "absent").exists()


def test_a_place_below_a_file_is_refused_by_its_name(checkpoint, tmp_path):
    (tmp_path / "file").write_text("mine")
    message, _ = refusal(convert, checkpoint(), tmp_path / "file" / "x" / "out", "interleaved", error=InvalidValue)
    assert message == f"{tmp_path / 'file'} is a file, so it cannot contain the output."


def test_a_name_that_no_file_can_have_is_refused_before_anything_is_written(checkpoint, tmp_path):
    model = checkpoint()
    for name, why in (("x" * 300, "File name too long"), ("a\0b", "embedded null byte")):
        out = tmp_path / "way" / name
        message, hint = refusal(convert, model, out, "interleaved", error=InvalidValue)
        assert message.startswith(f"{out} cannot be written: ")
        assert why in message or os.name != "posix"
        assert hint == "Name another output, or get permission to write there."
        assert not (tmp_path / "way").exists()


def test_a_folder_that_cannot_be_made_is_named(checkpoint, tmp_path, monkeypatch):
    def denied(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    model = checkpoint()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", denied)  # who runs the tests may be allowed everything
        message, _ = refusal(convert, model, tmp_path / "out", "interleaved", error=InvalidValue)
    assert message == f"{tmp_path / 'out'} cannot be written: Permission denied."


def test_long_names_that_a_file_can_have_are_made(checkpoint, tmp_path):
    model = checkpoint()
    for name in ("x" * 255, "\N{MATHEMATICAL BOLD SMALL X}" * 63):
        convert(model, tmp_path / name, "interleaved")
        assert sorted(held(tmp_path / name)) == ["config.json", "model.safetensors"]


def test_an_existing_folder_is_filled_from_inside_it(checkpoint, tmp_path, monkeypatch):
    """It may be a disk of its own, whose files cannot be named from beside it, or a link to one."""
    model, disk, seen = checkpoint(), tmp_path / "disk", []
    disk.mkdir()
    (tmp_path / "link").symlink_to(disk)
    write = writing.write

    def watched(out, *arguments):
        seen.append(out.parent.parent)
        write(out, *arguments)

    monkeypatch.setattr("clockhands.conversion._converting.write", watched)
    convert(model, tmp_path / "link", "interleaved")
    assert seen == [disk]
    assert sorted(held(disk)) == ["config.json", "model.safetensors"]


def test_up_from_a_link_is_where_the_system_says(checkpoint, tmp_path):
    """`link/..` is the folder above what the link points to: what is looked at and what is written are one place."""
    model = checkpoint()
    (tmp_path / "far" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "below")
    (tmp_path / "x.safetensors").write_bytes(b"mine")
    convert(model / "model.safetensors", tmp_path / "link" / ".." / "x.safetensors", "interleaved")
    assert (tmp_path / "x.safetensors").read_bytes() == b"mine"
    assert load_file(tmp_path / "far" / "x.safetensors")


# Replaced


@pytest.fixture
def old_and_new(checkpoint, tmp_path):
    """A folder with the result of an older model and other things, and what `convert` makes of it."""
    out, new = tmp_path / "out", checkpoint("model", shards=2)
    convert(checkpoint("older", tensors={name: -2 * held for name, held in llama_tensors().items()}, shards=2), out, TO)
    (out / "mine" / "deep").mkdir(parents=True)
    for name in ("mine/deep/log.txt", "notes.txt"):
        (out / name).write_text(name)
    (out / "link").symlink_to("notes.txt")
    out.chmod(0o750)
    old = held(out)
    convert(new, tmp_path / "sample", TO)
    return new, out, old, old | held(tmp_path / "sample")


TO = "interleaved"
# Whatever a conversion does to the disk, by the function that does it.
STEPS = ("os.rename", "os.replace", "os.link", "os.fsync", "os.mkdir", "os.symlink", "shutil.copystat", "io.open")


@pytest.mark.parametrize("at_once", [True, False])
def test_replaced_files_are_all_old_or_all_new_whatever_step_fails(old_and_new, monkeypatch, cases, at_once):
    model, out, old, new = old_and_new
    if not at_once:  # a system that cannot exchange two names
        monkeypatch.setattr(files, "_exchanged", lambda *_: False)
    real = {name: getattr(sys.modules[name.split(".")[0]], name.split(".")[1]) for name in STEPS}
    ends = []
    for fails_at in itertools.count():
        steps = itertools.count()

        def step(*arguments, called, steps=steps, fails_at=fails_at, **named):
            if next(steps) == fails_at:
                raise OSError(5, "Input/output error")
            return called(*arguments, **named)

        before = (out / "config.json").stat().st_ino
        with monkeypatch.context() as patched:
            for name, function in real.items():
                patched.setattr(name, partial(step, called=function))
            failed = None
            try:
                convert(model, out, TO, force=True)
            except (OSError, ClockhandsError) as error:
                failed = error
        with cases(fails_at, failed):
            stayed = (out / "config.json").stat().st_ino == before
            ends.append((failed is not None, stayed))
            assert held(out) == (old if stayed else new)
            assert (out / "link").readlink() == Path("notes.txt")
            assert sorted(each.name for each in out.parent.iterdir()) == ["model", "older", "out", "sample"]
        if not stayed:
            break
    assert ends[-1] == (False, False)
    assert ends.count((True, True)) >= 12
    assert out.stat().st_mode & 0o777 == 0o750


def test_a_file_is_replaced_with_its_config_or_not_at_all(checkpoint, tmp_path, monkeypatch):
    model, out = checkpoint(), tmp_path / "place" / "x.safetensors"
    out.parent.mkdir()
    out.write_bytes(b"old")
    rename = files.rename

    def failing(unfinished, path, **named):
        if path.name == "config.json":
            fails()
        rename(unfinished, path, **named)

    monkeypatch.setattr(files, "rename", failing)
    with pytest.raises(OSError, match="No space left"):
        convert(model / "model.safetensors", out, TO, force=True)
    assert held(out.parent) == {"x.safetensors": b"old"}


def test_a_folder_whose_place_cannot_be_taken_is_refused_before_the_work(old_and_new, monkeypatch):
    model, out, old, _ = old_and_new
    monkeypatch.chdir(out / "mine")
    message, hint = refusal(convert, model, out, TO, force=True, error=InvalidValue)
    assert message == f"The files of {out} cannot be replaced all at once, since the current folder is in it."
    assert hint == "Run the command in another folder. Or remove the old files first."
    monkeypatch.chdir(out.parent)
    monkeypatch.setattr(os.path, "ismount", lambda _: True)
    assert "another file system is mounted there" in refusal(convert, model, out, TO, force=True, error=InvalidValue)[0]
    assert held(out) == old


def test_a_folder_that_lost_its_name_while_it_was_replaced_gets_it_back(old_and_new):
    """By a kill between the two renames of a system that cannot exchange names."""
    model, out, old, _ = old_and_new
    out.rename(out.with_name(".out.0f3a99c1.replaced"))
    assert refusal(convert, model, out, TO, error=InvalidValue)[0] == f"{out} is already there."
    assert held(out) == old


def test_no_link_out_of_the_folder_is_copied(checkpoint, tmp_path, cases):
    secret = tmp_path / "secret"
    secret.write_text('{"secret": 1}')
    for name in ("tokenizer.json", "adapter_config.json", "model.safetensors", "config.json"):
        with cases(name):
            model, out = checkpoint(f"model {name}"), tmp_path / f"out {name}"
            if name in held(model):
                (model / name).rename(tmp_path / f"moved {name}")
            (model / name).symlink_to(
                tmp_path / f"moved {name}" if name in ("config.json", "model.safetensors") else secret
            )
            if name == "tokenizer.json":
                assert (
                    "left where they are: tokenizer.json (a link out of"
                    in convert(model, out, TO, others=True).notes[0]
                )
                assert not (out / name).exists()
                continue
            message, _ = refusal(convert, model, out, TO, others=True, error=CannotConvert)
            assert message.startswith(f"{model / name} is a link out of the model folder, to {tmp_path}")
            assert not out.exists()


def test_shards_of_different_conversions_are_an_error_of_the_audit(checkpoint, tmp_path):
    model, out = checkpoint(shards=3), tmp_path / "out"
    convert(model, out, TO)
    assert not audit(out).errors
    name = "model-00002-of-00003.safetensors"
    (out / name).write_bytes((model / name).read_bytes())
    (found,) = audit(out).errors
    assert found.message == (
        "The metadata of the files contradict each other about the RoPE layout: 2 files say interleaved"
        f" (model-00001-of-00003.safetensors first) and 1 file says nothing ({name})."
    )


# Killed in the middle

REPLACED = """
import sys
from clockhands.conversion import convert

print("ready", flush=True)
for number in range(1000):
    convert(sys.argv[1 + number % 2], sys.argv[3], "interleaved", force=True)
"""


@pytest.mark.slow
def test_replaced_files_are_all_old_or_all_new_whenever_it_is_killed(old_and_new, tmp_path):
    """Thirty kills at random moments of a process that replaces one result by another without a pause."""
    model, out, old, new = old_and_new
    seen, chance = set(), random.Random(30)
    for _ in range(30):
        words = [sys.executable, "-c", REPLACED, tmp_path / "older", model, out]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(0, 0.3))
            running.kill()
        found = {name: data for name, data in held(out).items() if not is_unfinished(name.split(os.sep)[0])}
        assert found in (old, new)
        seen.add(found == new)
        for left in (*out.parent.glob(".out.*.unfinished"), *out.glob(".out.*.unfinished")):
            shutil.rmtree(left)
    assert seen == {True, False}


KILLED = """
import os, signal, sys
from clockhands.conversion import _writing as writing, convert

# The first tensors of the file are written by then.
writing._copy = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
for out in sys.argv[2:]:
    copy = os.fork()
    if not copy:
        convert(sys.argv[1], out, "interleaved", force=True)
    assert os.waitpid(copy, 0)[1] == signal.SIGKILL
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a copy of the process is killed")
def test_a_killed_conversion_leaves_no_half_file_under_its_name_and_the_next_succeeds(checkpoint, tmp_path):
    model, new, empty, old = checkpoint(shards=2), *(tmp_path / name / "out" for name in ("new", "empty", "old"))
    new.parent.mkdir()
    empty.mkdir(parents=True)
    convert(model, old, "interleaved")
    before, clean = held(model), held(old)
    subprocess.run([sys.executable, "-c", KILLED, model, new, empty, old], check=True)
    assert held(model) == before
    left = {out: [path for path in out.parent.rglob("*") if is_unfinished(path.name)] for out in (new, empty, old)}
    assert [[path.parent for path in paths] for paths in left.values()] == [[new.parent], [empty], [old]]
    assert not new.exists()
    assert list(empty.iterdir()) == left[empty]
    # What was there is whole.
    assert clean.items() <= held(old).items()
    assert all(is_unfinished(name.split(os.sep)[0]) for name in held(old).keys() - clean.keys())
    for out in (new, empty):
        done = convert(model, out, "interleaved")
        note = f"{left[out][0]} is of a conversion that is still running or was killed; if it was, remove it."
        assert done.notes[0] == note
        assert clean.items() <= held(out).items()
    assert held(model) == before
