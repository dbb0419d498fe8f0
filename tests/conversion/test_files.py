"""What a conversion reads and writes: whole files or none, in pieces, with everything else as it was."""

import json
import os
import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from clockhands.auditing import audit
from clockhands.conversion import CannotConvert, convert, convert_rows
from clockhands.conversion import _writing as writing
from clockhands.errors import InvalidValue, Unreadable
from clockhands.formats import safetensors
from written_files import refusal, small_checkpoint, written

from .conftest import ATTENTION, LLAMA, llama_tensors, numbered


def expected(tensors, to="interleaved"):
    """Llama's tensors with q and k moved by the function for single arrays."""
    from_ = "halves" if to == "interleaved" else "interleaved"
    heads = {"q_proj": 4, "k_proj": 2}
    return {
        name: convert_rows(array, heads[name.split(".")[-2]], 4, None, "first", from_, to)
        if name.split(".")[-2] in heads
        else array
        for name, array in tensors.items()
    }


def same(folder, tensors):
    read = {}
    for file in folder.glob("*.safetensors"):
        read |= load_file(file)
    assert read.keys() == tensors.keys()
    for name, array in tensors.items():
        np.testing.assert_array_equal(read[name], array, err_msg=name)


def metadata(file):
    with safe_open(file, "np") as opened:
        return opened.metadata()


def test_queries_and_keys_move_and_all_else_is_as_it_was(checkpoint, tmp_path):
    done = convert(checkpoint(), tmp_path / "out", "interleaved")
    same(tmp_path / "out", expected(llama_tensors()))
    assert (done.from_, done.layout) == ("halves", "interleaved")
    assert done.because == "architecture of llama (transformers 5.23.0)"
    assert set(done.moved) == {f"{ATTENTION.format(n, name)}.weight" for n in (0, 1) for name in ("q_proj", "k_proj")}
    assert done.kept == 5
    assert [file.name for file in done.files] == ["model.safetensors", "config.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out"]


def test_the_result_says_how_it_pairs_and_the_way_back_forgets_it(checkpoint, tmp_path):
    model = checkpoint()
    done = convert(model, tmp_path / "there", "interleaved")
    assert metadata(tmp_path / "there" / "model.safetensors") == {
        "format": "pt",
        "clockhands.layout": "interleaved",
        "clockhands.layout_from": "halves",
    }
    said = json.loads((tmp_path / "there" / "config.json").read_text())
    assert said == LLAMA | {"clockhands_layout": "interleaved"}
    assert done.notes[-1] == (
        "A llama pairs halves in Transformers, which reads no other layout: "
        f"{tmp_path / 'there'} is for code that pairs interleaved."
    )
    (code,) = audit(tmp_path / "there").layers
    assert (code.layout, code.source["layout"]) == ("interleaved", "config.json:clockhands_layout")
    back = convert(tmp_path / "there", tmp_path / "back", "halves")
    assert back.because == "clockhands.layout in the metadata"
    assert back.notes == ()
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "back" / name).read_bytes() == (model / name).read_bytes()


def test_the_config_alone_says_it_too(checkpoint, tmp_path):
    model = checkpoint(config=LLAMA | {"clockhands_layout": "interleaved"})
    done = convert(model, tmp_path / "out", "halves")
    assert done.because == "config.json:clockhands_layout"
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == LLAMA


def test_a_config_that_says_no_layout_is_not_guessed_at(checkpoint, tmp_path, cases):
    for value in ("neox", 1, ["halves"]):
        with cases(value):
            model, out = checkpoint(str(value), config=LLAMA | {"clockhands_layout": value}), tmp_path / f"{value} out"
            message, hint = refusal(convert, model, out, "interleaved", error=CannotConvert)
            assert message == f"config.json:clockhands_layout is {value!r}, which is no layout."
            assert hint == 'Correct it to "halves" or "interleaved", or pass the order of the rows with --from.'
            convert(model, out, "interleaved", from_="halves")
            assert json.loads((out / "config.json").read_text())["clockhands_layout"] == "interleaved"


def test_what_the_caller_says_goes_before_all(checkpoint, tmp_path):
    done = convert(checkpoint(), tmp_path / "out", "halves", from_="interleaved")
    assert done.because == "as the caller says"
    same(tmp_path / "out", expected(llama_tensors(), "halves"))
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == LLAMA
    assert done.notes == ()


def test_shards_are_converted_one_by_one(checkpoint, tmp_path):
    model, name = checkpoint(shards=3), "model.safetensors.index.json"
    for source in (model, model / name):
        out, told = tmp_path / source.name / "out", []
        convert(source, out, "interleaved", progress=told.append)
        same(out, expected(llama_tensors()))
        assert told == [f"model-0000{n}-of-00003.safetensors ({n} of 3)" for n in (1, 2, 3)]
        assert (out / name).read_bytes() == (model / name).read_bytes()
    convert(out, tmp_path / "back", "halves")
    for file in model.glob("*.safetensors"):
        assert load_file(tmp_path / "back" / file.name).keys() == load_file(file).keys()
    same(tmp_path / "back", llama_tensors())


def test_a_shard_is_converted_whatever_it_is_called(checkpoint, tmp_path, cases):
    moved = expected(llama_tensors())
    for name in ("adapter_config.json", "weights.bin", "tokenizer.json"):
        with cases(name):
            model, out = checkpoint(f"of {name}", shards=2), tmp_path / f"{name} out"
            (model / "model-00001-of-00002.safetensors").rename(model / name)
            index = model / "model.safetensors.index.json"
            index.write_text(index.read_text().replace("model-00001-of-00002.safetensors", name))
            convert(model, out, "interleaved", others=True)
            for tensor, array in load_file(out / name).items():
                np.testing.assert_array_equal(array, moved[tensor])
            assert metadata(out / name)["clockhands.layout"] == "interleaved"


def test_a_file_becomes_a_file(checkpoint, tmp_path):
    model = checkpoint()
    (tmp_path / "new").mkdir()
    done = convert(model / "model.safetensors", tmp_path / "new" / "x.safetensors", "interleaved")
    assert [file.name for file in done.files] == ["x.safetensors", "config.json"]
    assert json.loads((tmp_path / "new" / "config.json").read_text())["clockhands_layout"] == "interleaved"
    assert done.notes[0] == f"{model / 'config.json'} in the same folder is read too."


def test_beside_the_original_its_config_stays(checkpoint):
    model = checkpoint()
    before = (model / "config.json").read_bytes()
    done = convert(model / "model.safetensors", model / "x.safetensors", "interleaved", force=True)
    assert [file.name for file in done.files] == ["x.safetensors"]
    assert (model / "config.json").read_bytes() == before
    note = f"{model / 'config.json'} was there already and is left as it is: it does not know of the layout."
    assert note in done.notes


ALONG = (
    "tokenizer.json", "merges.txt", "tokenizer.model", "source.spm", "qwen.tiktoken", "chat_template.jinja",
    "README.md", "LICENSE", "modeling_new.py", "bpe.codes", "generation_config.json", ".gitattributes",
)  # fmt: skip
LEFT = (
    "consolidated.safetensors", "diffusion.safetensors.index.json", "flax_model.msgpack", "model.ckpt", "model.nemo",
    "model.onnx", "model.onnx_data", "model.pth", "model.torchscript", "old.gguf", "optimizer.pt", "pytorch_model.bin",
    "pytorch_model.bin.index.json", "rust_model.ot", "tf_model.h5",
)  # fmt: skip


def test_only_texts_tokenizers_and_code_go_along_if_asked_and_what_stays_is_named(checkpoint, tmp_path):
    """In however many formats the weights are there: any of them would be in the old layout."""
    model = checkpoint(shards=2)
    for name in ALONG + LEFT:
        (model / name).write_text("{}")
    (model / "weights.model").write_bytes(b"PK\x03\x04 a zip archive, as PyTorch saves")
    (model / "model.mlpackage").mkdir()
    convert(model, tmp_path / "few", "interleaved")
    shards = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    made = {*shards, "config.json", "model.safetensors.index.json"}
    assert {path.name for path in (tmp_path / "few").iterdir()} == made
    done = convert(model, tmp_path / "all", "interleaved", others=True)
    assert {path.name for path in (tmp_path / "all").iterdir()} == {*made, *ALONG}
    assert json.loads((tmp_path / "all" / "config.json").read_text())["clockhands_layout"] == "interleaved"
    left = sorted({*LEFT, "model.mlpackage/", "weights.model"})
    (note,) = [note for note in done.notes if note.startswith("Only tokenizers")]
    assert note == (
        f"Only tokenizers, texts and code are copied too; left where they are: {', '.join(left[:8])} and 9 more."
    )


def test_a_result_inside_what_is_converted_is_not_named_as_left(checkpoint):
    model = checkpoint()
    done = convert(model, model / "converted", "interleaved", others=True)
    assert not any("left where" in note for note in done.notes)


def test_a_type_with_a_key_of_its_own_says_it_there(checkpoint, tmp_path):
    config = {
        "model_type": "deepseek_v3", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1,
        "qk_nope_head_dim": 2, "qk_rope_head_dim": 4, "kv_lora_rank": 3, "q_lora_rank": None,
    }  # fmt: skip
    q, k = numbered(12, 8), numbered(7, 8, start=100)
    tensors = {
        ATTENTION.format(0, "q_proj.weight"): q,
        ATTENTION.format(0, "kv_a_proj_with_mqa.weight"): k,
        ATTENTION.format(0, "kv_b_proj.weight"): numbered(8, 3),
        ATTENTION.format(0, "kv_a_layernorm.weight"): numbered(3),
        ATTENTION.format(1, "q_proj.weight"): q,  # the layer that predicts a further token
        ATTENTION.format(1, "kv_a_proj_with_mqa.weight"): k,
    }
    done = convert(checkpoint(config=config, tensors=tensors), tmp_path / "out", "halves")
    said = json.loads((tmp_path / "out" / "config.json").read_text())
    assert said == config | {"rope_interleave": False}
    assert done.notes == ()
    rope = [0, 2, 1, 3]
    heads = np.concatenate([[0, 1], np.array(rope) + 2, [6, 7], np.array(rope) + 8])
    shared = [0, 1, 2, *(np.array(rope) + 3)]
    moved = {"q_proj.weight": q[heads], "kv_a_proj_with_mqa.weight": k[shared]}
    same(tmp_path / "out", tensors | {ATTENTION.format(n, name): x for n in (0, 1) for name, x in moved.items()})
    assert convert(tmp_path / "out", tmp_path / "back", "interleaved").because == "clockhands.layout in the metadata"


def test_layers_that_do_not_rotate_stay(checkpoint, tmp_path):
    config = LLAMA | {"model_type": "smollm3", "no_rope_layers": [1, 0]}
    done = convert(checkpoint(config=config), tmp_path / "out", "interleaved")
    assert {name.split(".")[2] for name in done.moved} == {"0"}


def test_memory_is_bounded_by_a_piece_and_not_by_a_tensor(checkpoint, tmp_path, monkeypatch):
    config = LLAMA | {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 16, "num_hidden_layers": 1}
    name = "model.layers.0.self_attn.{}_proj.weight"
    tensors = {name.format(each): np.ones((1024, 1024), "float32") for each in "qkv"}  # 4 MiB each
    model = checkpoint(config=config, tensors=tensors)
    del tensors
    convert(model, tmp_path / "first", "interleaved")  # whatever is imported and remembered is there by now

    def peak(out):
        tracemalloc.start()
        try:
            convert(model, out, "interleaved")
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(tmp_path / "whole") > 2**22, "what holds a tensor must be seen"
    monkeypatch.setattr(writing, "PIECE", 2**18)
    assert peak(tmp_path / "out") < 2 * 2**18 + 2**20
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (
        tmp_path / "first" / "model.safetensors"
    ).read_bytes()


def test_a_file_that_shrinks_meanwhile_is_refused(checkpoint, tmp_path, monkeypatch):
    model = checkpoint()
    header_bytes = writing.header_bytes

    def shrinking(*arguments):
        with (model / "model.safetensors").open("r+b") as file:
            file.truncate(2000)
        return header_bytes(*arguments)

    monkeypatch.setattr(writing, "header_bytes", shrinking)
    message, hint = refusal(convert, model, tmp_path / "out", "interleaved", error=Unreadable)
    assert message.startswith(f"{model / 'model.safetensors'} ends inside 'model.")
    assert hint == "The file changed during the conversion: convert it again."


def replaced(path, data):
    path.with_name("new").write_bytes(data)
    path.with_name("new").replace(path)


def rewritten(path, data):
    path.write_bytes(data)


def rewritten_within_a_tick(path, data):
    """The time of the last change stays, as it does where the clock of the file system is coarse."""
    before = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [replaced, rewritten, rewritten_within_a_tick])
def test_a_shard_that_is_changed_after_its_header_was_read_is_refused(checkpoint, tmp_path, change):
    model = checkpoint(shards=2)
    second = sorted(model.glob("*.safetensors"))[1]
    # A header of the same length, in which two names have changed places: what was planned is wrong now.
    one, other = next(pair for pair in combinations(load_file(second), 2) if len(pair[0]) == len(pair[1]))
    data = second.read_bytes()
    changed = data.replace(one.encode(), b"?" * len(one)).replace(other.encode(), one.encode())
    changed = changed.replace(b"?" * len(one), other.encode())
    assert (len(changed), changed != data) == (len(data), True)

    def progress(told):
        if told.startswith(second.name):
            change(second, changed)

    message, hint = refusal(convert, model, tmp_path / "out", "interleaved", progress=progress, error=Unreadable)
    assert message == f"{second} has changed since its header was read, so its tensors may lie elsewhere."
    assert hint == "Convert it again when no other program writes to it."
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_shard_that_is_changed_while_it_is_copied_is_refused(checkpoint, tmp_path, monkeypatch):
    model, copy = checkpoint(), writing._copy
    file = model / "model.safetensors"

    def changing(*arguments):
        copy(*arguments)
        os.utime(file, ns=(0, 0))

    monkeypatch.setattr(writing, "_copy", changing)
    message, _ = refusal(convert, model, tmp_path / "out", "interleaved", error=Unreadable)
    assert message.startswith(f"{file} has changed since its header was read")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("there", [True, False])
def test_a_file_that_appears_during_the_conversion_is_not_replaced(checkpoint, tmp_path, monkeypatch, there):
    model, out, copy = checkpoint(), tmp_path / "out", writing._copy
    if there:
        out.mkdir()
    mine = out / "model.safetensors"

    def appearing(*arguments):
        copy(*arguments)
        mine.parent.mkdir(exist_ok=True)
        mine.write_text("mine")

    monkeypatch.setattr(writing, "_copy", appearing)
    message, hint = refusal(convert, model, out, "interleaved", error=InvalidValue)
    assert message == f"{mine if there else out} is already there: it was created during the conversion."
    assert hint == "Give another name, or `--force` to replace its files."
    assert ([path.name for path in out.iterdir()], mine.read_text()) == ([mine.name], "mine")
    file = tmp_path / "x.safetensors"
    mine = file
    message, _ = refusal(convert, model / "model.safetensors", file, "interleaved", error=InvalidValue)
    assert (message.startswith(f"{file} is already there"), file.read_text()) == (True, "mine")
    assert not file.with_name("config.json").exists()


def test_what_is_written_is_synced_before_it_gets_its_name(checkpoint, tmp_path, monkeypatch):
    model, synced = checkpoint(), []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: (synced.append(os.fstat(number).st_ino), fsync(number)))
    for out in ("new", "new"):
        done = convert(model, tmp_path / out, "interleaved", force=True)
        assert {path.stat().st_ino for path in done.files} <= set(synced)


def test_what_is_there_is_not_replaced_unless_forced(checkpoint, tmp_path):
    model, out = checkpoint(), tmp_path / "out"
    out.mkdir()
    convert(model, out, "interleaved")  # an empty folder is no result
    message, hint = refusal(convert, model, out, "interleaved", error=InvalidValue)
    assert message == f"{out} is already there."
    assert hint == "Give another name, or `--force` to replace its files."
    (out / "mine.bin").write_text("kept")
    (out / "model.safetensors").write_text("old")
    convert(model, out, "interleaved", force=True)
    same(out, expected(llama_tensors()))
    assert (out / "mine.bin").read_text() == "kept"
    file = tmp_path / "x.safetensors"
    convert(model / "model.safetensors", file, "interleaved")
    message, _ = refusal(convert, model / "model.safetensors", file, "interleaved", error=InvalidValue)
    assert message == f"{file} is already there."
    convert(model / "model.safetensors", file, "interleaved", force=True)


def test_nothing_is_converted_in_place(checkpoint, tmp_path):
    model = checkpoint()
    (tmp_path / "link").symlink_to(model)
    (tmp_path / "hard.safetensors").hardlink_to(model / "model.safetensors")
    file = model / "model.safetensors"
    for source, out in [
        (model, model),
        (model, tmp_path / "link"),
        (tmp_path / "link", model),
        (file, file),
        (file, tmp_path / "link" / "model.safetensors"),
        (file, tmp_path / "hard.safetensors"),
    ]:
        message, hint = refusal(convert, source, out, "interleaved", force=True, error=InvalidValue)
        assert message == f"{out} is also the input, which would be lost if the conversion failed."
        assert hint == "Name another output."


def test_a_file_for_a_folder_and_a_folder_for_a_file_are_refused(checkpoint, tmp_path):
    model = checkpoint()
    message, hint = refusal(convert, model, tmp_path / "x.safetensors", "interleaved", error=InvalidValue)
    assert message == f"{tmp_path / 'x.safetensors'} is the name of a file, but a folder is converted."
    assert hint == "Name a folder for the result."
    message, hint = refusal(convert, model / "model.safetensors", tmp_path / "x", "interleaved", error=InvalidValue)
    assert message == f"{tmp_path / 'x'} does not end in .safetensors, but a single file is converted."
    assert hint == "Name a .safetensors file for the result."


def test_what_is_no_checkpoint_is_refused(checkpoint, tmp_path):
    model = checkpoint()
    cases = [
        ("vaswani2017", "vaswani2017 is no checkpoint in safetensors files.", CannotConvert),
        (str(model / "config.json"), f"{model / 'config.json'} is a config, which holds no tensors.", CannotConvert),
        (str(tmp_path / "absent"), f"{tmp_path / 'absent'} does not exist.", Unreadable),
    ]
    for source, expected_message, error in cases:
        assert refusal(convert, source, tmp_path / "out", "interleaved", error=error)[0] == expected_message
    (model / "model.safetensors").unlink()
    message, _ = refusal(convert, model, tmp_path / "out", "interleaved", error=CannotConvert)
    assert message == f"{model} holds no tensors in safetensors files."
    written(model / "pytorch_model.bin", small_checkpoint())
    message, _ = refusal(convert, model, tmp_path / "out", "interleaved", error=CannotConvert)
    assert message == f"{model} holds no tensors in safetensors files."


def test_a_missing_shard_is_refused_by_the_reader(checkpoint, tmp_path):
    model = checkpoint(shards=2)
    (model / "model-00002-of-00002.safetensors").unlink()
    message, _ = refusal(convert, model, tmp_path / "out", "interleaved", error=Unreadable)
    assert message.endswith("names the shard 'model-00002-of-00002.safetensors', which is not in the same folder.")
    assert not (tmp_path / "out").exists()


def test_a_tensor_in_two_shards_is_refused(checkpoint, tmp_path):
    model = checkpoint(shards=2)
    first = load_file(model / "model-00001-of-00002.safetensors")
    second = load_file(model / "model-00002-of-00002.safetensors")
    name = next(iter(first))
    save_file(second | {name: first[name]}, model / "model-00002-of-00002.safetensors")
    message, hint = refusal(convert, model, tmp_path / "out", "interleaved", error=CannotConvert)
    assert message == f"'{name}' is in both model-00001-of-00002.safetensors and model-00002-of-00002.safetensors."
    assert hint == "Save the model again with each tensor in one file."


def test_files_of_different_conversions_are_refused(checkpoint, tmp_path):
    model = checkpoint(shards=2)
    convert(model, tmp_path / "out", "interleaved")
    name = "model-00001-of-00002.safetensors"
    (tmp_path / "out" / name).write_bytes((model / name).read_bytes())
    message, hint = refusal(convert, tmp_path / "out", tmp_path / "back", "halves", error=CannotConvert)
    assert message == (f"The files of {tmp_path / 'out'} say different layouts in their metadata: 'interleaved', none.")
    assert hint == "They are of different conversions: convert the original again."


def test_what_is_in_the_layout_already_is_refused(checkpoint, tmp_path):
    model = checkpoint()
    message, hint = refusal(convert, model, tmp_path / "out", "halves", error=CannotConvert)
    assert message == f"{model} is in the layout halves already (architecture of llama (transformers 5.23.0))."
    assert hint == "If its rows have another order, pass --from interleaved (from_= in Python)."
    convert(model, tmp_path / "out", "interleaved")
    message, _ = refusal(convert, tmp_path / "out", tmp_path / "again", "interleaved", error=CannotConvert)
    assert message.endswith("is in the layout interleaved already (clockhands.layout in the metadata).")


def test_a_header_is_what_the_library_writes(tmp_path):
    tensors = {
        "b": numbered(3, 2),
        "é": numbered(5, dtype="int8"),
        "a": np.zeros((0, 4), "float64"),
        "s": np.float32(1),
    }
    tensors = {name: np.asarray(array) for name, array in tensors.items()}
    save_file(tensors, tmp_path / "x.safetensors", metadata={"format": "np", "ö": "ü"})
    header = safetensors.read_header(tmp_path / "x.safetensors")
    writing.write(tmp_path / "y.safetensors", header, header.metadata, {})
    read, again = load_file(tmp_path / "y.safetensors"), safetensors.read_header(tmp_path / "y.safetensors")
    assert again.metadata == header.metadata
    assert read.keys() == tensors.keys()
    for name, array in tensors.items():
        np.testing.assert_array_equal(read[name], array)
