"""Models by name, fetched from a hub on this machine: what is fetched, what is not, and what is said when it fails."""

import hashlib
import json
import struct
import sys
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub import constants
from safetensors.numpy import save

from clockhands.auditing import audit
from clockhands.configs import open_target
from clockhands.conversion import convert
from clockhands.encodings import memory
from clockhands.errors import ClockhandsError, Unreadable
from clockhands.formats import arrays, hub_cache, transfers
from hub_server import COMMIT, Hub, Sparse, breaks_off, drips, drips_headers, listed, never_answers, never_ends, sends
from written_files import gguf_bytes, gguf_key, gguf_tensor, refusal

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 4096, "rope_theta": 10000.0,
}  # fmt: skip
RATES = 10000.0 ** (-np.arange(8) / 8)


MATRIX = "model.layers.0.self_attn.q_proj.weight"
LIST = "/api/models/org/name/revision/main"
FILES = f"/org/name/resolve/{COMMIT}/"


@pytest.fixture
def hub(empty_hub, monkeypatch, tmp_path):
    """A hub with one model."""
    monkeypatch.chdir(tmp_path)
    empty_hub.models["org/name"] = {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": weights()}
    return empty_hub


def weights(**tensors) -> Sparse:
    """A file of a matrix of zeros, after other tensors."""
    data = save({MATRIX: np.zeros((64, 64), np.float32), **tensors})
    return Sparse(data, len(data))


def shard(size: int, name: str, declared: int | None = None) -> Sparse:
    """The start of a file of one tensor that fills it."""
    header = json.dumps({name: {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    length = len(header) if declared is None else declared
    return Sparse(struct.pack("<Q", length) + header, 8 + len(header) + size)


def shards(count: int, size: int, **named) -> dict[str, bytes | Sparse]:
    """An index and its files."""
    names = [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]
    index = {"weight_map": {f"tensor.{number}": name for number, name in enumerate(names)}}
    files = {name: shard(size, f"tensor.{number}", **named) for number, name in enumerate(names)}
    return {"model.safetensors.index.json": json.dumps(index).encode(), **files}


def listing(hub: Hub) -> int:
    """Bytes of what the hub lists of the model."""
    return len(json.dumps({"sha": COMMIT, "siblings": listed(hub.models["org/name"])}))


@pytest.fixture
def refused(refused, hub):
    """What the model of the hub is refused with; the hub's address is HUB in it."""

    def told(text="org/name"):
        message, hint = refused(open_target, text)
        return message.replace(hub.address, "HUB"), hint.replace(hub.address, "HUB")

    return told


# What is fetched


def test_a_model_is_opened_by_its_config_and_the_header_of_its_weights(hub, tmp_path):
    opened = open_target("org/name")
    assert (opened.form, opened.config, opened.hub) == ("config", CONFIG, "hf download org/name")
    assert opened.path == tmp_path / "cache/models--org--name/snapshots" / COMMIT
    assert opened.tensors[MATRIX].shape == (64, 64)
    file = hub.models["org/name"]["model.safetensors"]
    assert hub.sent == listing(hub) + len(json.dumps(CONFIG)) + file.size
    size = memory.readable(hub.sent)
    assert opened.notes == (
        f"read from {hub.address}/org/name at revision 0123456789ab: config.json, 1 header ({size} in all).",
    )
    weight = f"{FILES}model.safetensors"
    token = "Bearer hf_secret"  # it goes to the hub alone
    found = audit("org/name")
    assert (found.model_type, found.layers[0].base, found.errors) == ("llama", 10000.0, ())
    assert found.weights.says == "not examined, because only the headers of the weights were fetched"
    assert [(each.host, each.path, each.token) for each in hub.asked] == [
        ("hub", LIST, token), ("hub", f"{FILES}config.json", token), ("hub", weight, token), ("storage", weight, None),
    ]  # fmt: skip


def test_the_next_time_nothing_is_asked_and_the_same_is_read(hub, monkeypatch):
    hub.models["org/name"]["model.safetensors"] = weights(**{"z.inv_freq": RATES.astype(np.float32)})
    first = open_target("org/name")
    asked = len(hub.asked)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    again = open_target("org/name")
    assert len(hub.asked) == asked
    assert (again.config, again.tensors, again.hub) == (first.config, first.tensors, first.hub)
    assert again.array("z.inv_freq").tolist() == first.array("z.inv_freq").tolist()
    assert again.notes[0] == f"org/name is read from the local Hugging Face cache: {again.path}."
    assert again.notes[1] == "Of its weights only the headers are here, from when it was fetched."


def test_headers_that_were_kept_and_changed_are_not_read(hub, tmp_path):
    open_target("org/name")
    (kept,) = (tmp_path / "assets").rglob("*.json")
    for text in ("{", "{}", '{"index": null, "headers": {"m": {"size": "9", "text": 5}}, "held": {}}', "[]"):
        kept.write_text(text)
        again = open_target("org/name")
        assert (again.config, dict(again.tensors), again.hub) == (CONFIG, {}, None)
        assert again.notes[-1] == "The headers that were kept of its weights cannot be read."
    assert len(hub.asked) == 4


def test_where_headers_cannot_be_kept_they_are_read(hub, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HF_ASSETS_CACHE", str(tmp_path / "file/assets"))
    assert list(open_target("org/name").tensors) == [MATRIX]
    assert list(hub.models) == ["org/name"]


def test_weights_that_are_here_are_not_fetched(hub, tmp_path):
    """A download that stopped before the config came."""
    snapshot = tmp_path / "cache/models--org--name/snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").write_bytes(hub.models["org/name"]["model.safetensors"].start)
    (snapshot / "config.json").symlink_to("nothing")
    opened = open_target("org/name@main")
    assert (opened.tensors[MATRIX].hub, opened.hub) == (None, None)


@pytest.mark.usefixtures("hub")
def test_the_library_of_the_hub_finds_what_was_kept(tmp_path):
    open_target("org/name")
    found = huggingface_hub.hf_hub_download(
        "org/name", "config.json", cache_dir=tmp_path / "cache", local_files_only=True
    )
    assert json.loads(Path(found).read_text()) == CONFIG
    report = huggingface_hub.scan_cache_dir(tmp_path / "cache")
    assert not report.warnings
    (revision,) = next(iter(report.repos)).revisions
    assert (revision.commit_hash, set(revision.refs)) == (COMMIT, {"main"})


@pytest.mark.parametrize("revision", ["v1", "refs/pr/3"])
def test_a_revision_is_fetched(hub, tmp_path, revision):
    hub.revisions[revision] = COMMIT
    assert open_target(f"org/name@{revision}").config == CONFIG
    assert hub.asked[0].path == f"/api/models/org/name/revision/{revision}"
    assert (tmp_path / "cache/models--org--name/refs" / revision).read_text() == COMMIT
    asked = len(hub.asked)
    assert open_target(f"org/name@{revision}").config == CONFIG
    assert open_target(f"org/name@{COMMIT[:7]}").config == CONFIG
    assert len(hub.asked) == asked


def test_small_tensors_that_configs_leave_to_the_weights_are_fetched(hub):
    big = {f"a.{number}": np.zeros(20_000, np.float32) for number in range(3)}
    hub.models["org/name"]["model.safetensors"] = weights(**big, **{"z.inv_freq": RATES.astype(np.float32)})
    opened = open_target("org/name")
    np.testing.assert_array_equal(opened.array("z.inv_freq"), RATES.astype(np.float32))
    assert "1 header, 1 small tensor (" in opened.notes[0]
    assert hub.sent == listing(hub) + len(json.dumps(CONFIG)) + 2**15 + 32


@pytest.mark.usefixtures("hub")
def test_other_numbers_are_not_there_and_not_zero():
    opened = open_target("org/name")
    tensor = opened.tensors[MATRIX]
    for call, asked in (
        (opened.array, [MATRIX]), (arrays.mapped, [tensor]),
        (arrays.read_rows, [tensor, np.arange(2)]),
    ):  # fmt: skip
        assert refusal(call, *asked, error=Unreadable) == (
            f"The numbers of '{MATRIX}' were not fetched, only the header of model.safetensors.",
            "Download the model: `hf download org/name`.",
        )


def test_what_needs_all_weights_says_how_to_have_them(hub, snapshot):
    assert refusal(audit, "org/name", weights=True, error=Unreadable) == snapshot(name="layout")
    hub.models["org/other"] = hub.models["org/name"]
    told = refusal(convert, "org/other", "out", "interleaved", error=ClockhandsError)
    assert told == snapshot(name="conversion")


# Parts of a repository, and GGUF


def gguf_of(words: int, data: bytes = bytes(64)) -> Sparse:
    """A small Llama whose header has as many words in its vocabulary, then divisors, then a matrix."""
    keys = [
        gguf_key("general.architecture", "string", "llama"),
        gguf_key("llama.context_length", "uint32", 4096),
        gguf_key("llama.embedding_length", "uint32", 64),
        gguf_key("llama.block_count", "uint32", 2),
        gguf_key("llama.attention.head_count", "uint32", 4),
        gguf_key("llama.rope.freq_base", "float32", 5e5),
        gguf_key("tokenizer.ggml.tokens", "array of string", ["word" * 24] * words),
    ]
    tensors = [gguf_tensor("rope_freqs.weight", (8,), 0, 0), gguf_tensor("token_embd.weight", (2**28,), 0, 32)]
    start = gguf_bytes(keys, tensors, data)
    return Sparse(start, len(start) - len(data) + 32 + 2**30)


def test_the_header_of_a_gguf_file_is_read_to_its_end(hub):
    divisors = np.array([1, 1, 1, 2, 4, 8, 8, 8], np.float32)
    hub.models["org/name"] = {"README.md": b"", "m.Q4.gguf": gguf_of(34_000, divisors.tobytes())}
    opened = open_target("org/name")
    assert (opened.form, opened.config["llama.rope.freq_base"]) == ("gguf", 5e5)
    assert opened.hub == "hf download org/name", "its matrices are not here"
    assert opened.array("rope_freqs.weight").tolist() == divisors.tolist()
    refusal(opened.array, "token_embd.weight", error=Unreadable)
    assert hub.sent == listing(hub) + 2**22, "1 MiB, then 1, then 2: the header has 3.5 MB"
    assert audit("org/name").layers[0].rates[-1] == pytest.approx(5e5 ** (-7 / 8) / 8)


def test_each_repository_is_opened_or_refused_as_it_was(hub, tmp_path, refused, snapshot, cases):
    """What is fetched of it, what is left out with a note, and what is refused; the second time nothing is asked."""
    config, model = json.dumps(CONFIG).encode(), hub.models["org/name"]
    others = ("generation_config.json", "tokenizer.json", "README.md", "model.py")
    elsewhere = ("../config.json", "/config.json", "a/../../b.json", "c:\\config.json", "")
    for name, (files, parts) in {
        "beside": (model | dict.fromkeys(others, b"{}"), "/"),
        "parts": (model | {"weights.bin": b""}, "/ model.safetensors config.json weights.bin"),
        "pipeline": ({"model_index.json": b"{}"} | {f"unet/{file}": model[file] for file in model}, "/ unet"),
        "several-gguf": ({"m.Q4.gguf": gguf_of(3), "m.Q8.gguf": gguf_of(3)}, "/ m.Q8.gguf other.gguf"),
        "other-weights": ({"config.json": config, "pytorch_model.bin": b"x", "m.gguf": gguf_of(3)}, "/"),
        "no-config": ({"README.md": b"", "data.csv": b""}, "/"),
        "nothing": ({}, "/"),
        "elsewhere": (dict.fromkeys(elsewhere, b"{}"), "/"),
        "large-config": ({"config.json": b" " * 6_000_000}, "/"),
        "large-beside": (model | {"tokenizer_config.json": b" " * 6_000_000}, "/"),
        "shards": (model | shards(3, 5 * 10**9), "/"),
        "long-headers": (model | shards(40, 5 * 10**9, declared=90_000_000), "/"),
    }.items():  # fmt: skip
        hub.models[f"org/{name}"] = files
        for part in parts.split():
            target = f"org/{name}:{part}".removesuffix(":/")
            with cases(target):
                hub.asked.clear()
                try:
                    opened = open_target(target)
                except Unreadable:
                    assert refused(target) == snapshot(name=target)
                else:
                    asked = sorted({each.path.rpartition(f"{COMMIT}/")[2] for each in hub.asked if each.host == "hub"})
                    notes = [note.replace(hub.address, "HUB").replace(str(tmp_path), "FOLDER") for note in opened.notes]
                    tensors = [f"{name}: {info.dtype} {info.shape}" for name, info in opened.tensors.items()]
                    told = (opened.form, opened.beside, tensors, asked[:6], len(asked), notes)
                    assert told == snapshot(name=target)
                    assert opened.config == CONFIG or opened.form == "gguf"
                    before, again = len(hub.asked), open_target(target)
                    assert (again.tensors, again.config) == (opened.tensors, opened.config)
                    assert len(hub.asked) == before or "." in part, "a file that is named is asked for again"
                assert hub.sent < 20_000_000
    assert sorted(path.name for path in hub_cache.hub_folder().iterdir()) == snapshot(name="kept")


# How much


def test_long_headers_are_read_as_far_as_20_megabytes_go(hub, tmp_path):
    long = json.dumps({"__metadata__": {"x": "x" * 10**6}, "t": {"dtype": "U8", "shape": [9], "data_offsets": [0, 9]}})
    index = {"weight_map": {}}
    for number in range(40):
        name = f"model-{number:05}-of-00040.safetensors"
        text = long.replace('"t"', f'"tensor.{number}"').encode()
        index["weight_map"][f"tensor.{number}"] = name
        hub.models["org/name"][name] = Sparse(struct.pack("<Q", len(text)) + text, 8 + len(text) + 9)
    hub.models["org/name"]["model.safetensors.index.json"] = json.dumps(index).encode()
    opened = open_target("org/name")
    assert 5 < len(opened.tensors) < 17
    assert f"The headers of {40 - len(opened.tensors)} of 40 files of weights are not read." in opened.notes
    assert hub.sent < 20_000_000
    assert not list((tmp_path / "assets").rglob("*.json")), "a part of the headers is not kept for later"


def test_a_hub_without_ranges_is_asked_once(hub):
    hub.ranges = False
    hub.models["org/name"] |= shards(200, 5 * 10**9)
    opened = open_target("org/name")
    assert f"{hub.address} sends whole files only, so no header of the weights was fetched." in opened.notes
    assert len(hub.asked) == 5
    assert hub.sent < 20_000_000


def test_an_answer_without_an_end_is_cut(hub, refused):
    hub.fault("config.json", act=never_ends)
    size = len(json.dumps(CONFIG))
    assert refused()[0] == f"HUB{FILES}config.json has more than the {size} bytes that are fetched of it."
    assert hub.sent < 20_000_000
    assert not hub_cache.hub_folder().exists()


# What goes wrong


def test_what_the_hub_does_not_have_or_give_is_said(hub, refused, snapshot):
    assert refused("org/nme") == snapshot(name="name")
    assert refused("org/name@v9") == snapshot(name="revision")
    assert hub.sent == 0
    hub.gated.add("org/name")
    assert refused() == snapshot(name="gated")
    assert hub.sent == listing(hub)
    assert not hub_cache.hub_folder().exists()


def test_what_goes_wrong_is_said_and_leaves_nothing_behind(hub, refused, snapshot, cases):
    other = json.dumps(CONFIG).replace("64", "46").encode()
    no_hub = b'{"sha": "../..", "siblings": []}'
    faults = {
        "token not accepted": (LIST, {"status": 401, "X_Error_Message": "Invalid credentials in Authorization header"}),
        "busy for an hour": (LIST, {"status": 429, "Retry_After": "3600"}),
        "busy": (LIST, {"status": 429, "times": 3, "Retry_After": "0"}),
        "busy and silent": (LIST, {"status": 429, "times": 3}),
        "fails": ("config.json", {"status": 500, "times": 3}),
        "breaks off": ("config.json", {"act": breaks_off, "times": 3}),
        "another hash": ("config.json", {"act": lambda handler: handler.answer(200, other)}),
        "no hub": (LIST, {"act": lambda handler: handler.answer(200, no_hub)}),
    }
    for name, (path, fault) in faults.items():
        hub.fault(path, **fault)
        with cases(name):
            assert refused() == snapshot(name=name)
            assert hub.faults.pop().times == 0, "it was asked less often"
            assert not hub_cache.hub_folder().exists()
    assert open_target("org/name").config == CONFIG


def test_a_hub_that_is_busy_is_asked_again_as_it_wishes(hub):
    hub.fault(LIST, 429, Retry_After="0")
    hub.fault("config.json", 503)
    hub.fault("model.safetensors", 429, RateLimit='"api";r=0;t=0')
    assert open_target("org/name").tensors
    assert hub.paths().count(LIST) == 2
    assert hub.paths().count(f"{FILES}config.json") == 2


def test_what_breaks_off_is_fetched_again(hub):
    for path in (LIST, "config.json", "model.safetensors"):
        hub.fault(path, act=breaks_off)
    opened = open_target("org/name")
    assert (opened.config, list(opened.tensors)) == (CONFIG, [MATRIX])


def test_a_model_is_in_the_cache_when_all_of_it_was_fetched(hub, refused):
    hub.models["org/name"] |= shards(20, 5 * 10**9)
    hub.fault("-of-00020", 500, times=3)
    assert refused()[0] == "org/name was not fetched: HUB answers with status 500."
    assert len(hub.asked) == 6, "the list, the config, the index, and the first file three times"
    with pytest.raises(Unreadable):
        hub_cache.cached_model(hub_cache.HubName("org/name"))
    assert len(open_target("org/name").tensors) == 20


def test_after_a_failure_nothing_else_is_begun(hub, refused, snapshot):
    hub.models["org/name"] |= shards(60, 5 * 10**9)
    hub.fault("00010-of-00060", 404, times=9)
    assert refused() == snapshot
    assert len(hub.asked) < 2 * 40


@pytest.mark.parametrize("act", [never_answers, drips, drips_headers])
def test_a_slow_hub_is_not_waited_for(hub, monkeypatch, act, refused, snapshot):
    place = (constants, "HF_HUB_DOWNLOAD_TIMEOUT") if act is never_answers else (transfers, "_LONGEST")
    monkeypatch.setattr(*place, 0.05)
    hub.fault(LIST, act=act, times=3)
    assert refused() == snapshot


def test_a_hub_that_is_slow_with_everything_is_not_waited_for(hub, monkeypatch):
    """Each request is in time; all of them together are not."""
    hub.models["org/name"] |= (files := shards(200, 5 * 10**9))

    def late(handler):
        hub.done.wait(0.1)
        handler.piece(files[handler.path.rpartition("/")[2]])

    hub.fault("model-", times=999, act=late)
    monkeypatch.setattr(transfers, "_LONGEST_MODEL", 0.5)
    with pytest.raises(Unreadable, match=r"did not answer in time \(in 0.5 seconds\)"):
        open_target("org/name")
    assert len(hub.asked) < 100


def test_another_part_than_was_asked_for_is_refused_and_not_kept(hub, refused, tmp_path, cases):
    """The header that is asked for has 32 KiB; each answer has bytes that could be one, of elsewhere."""
    size = hub.models["org/name"]["model.safetensors"].size
    part = "org/name was not fetched: HUB sent another part of a file than the requested one (3 tries)."
    for span, data, said in (
        ("bytes 8-{end}/99999", None, part),
        ("bytes {begin}-{end}/*", b"\0" * 99, part),
        ("bytes 0-98/x", b"\0" * 99, part),
        ("", b"\0" * 99, part),
        (f"bytes 0-{size}/{size + 1}", bytes(size + 1), "sends a part of a file of"),
    ):
        hub.fault("model.safetensors", act=sends(span, data), times=3)
        with cases(span):
            assert said in refused()[0]
            assert not list((tmp_path / "assets").rglob("*.json"))
            assert not hub_cache.hub_folder().exists()
        hub.faults.clear()


def test_another_part_is_named_where_the_connection_breaks_too(hub, refused, cases):
    """The header says it before the body comes, and a try that breaks off says nothing about the others."""
    other = sends("bytes 8-{end}/99999", lost=8)
    for name, acts in {"in one answer": [other] * 3, "in other tries": [other, breaks_off, breaks_off]}.items():
        for act in acts:
            hub.fault("model.safetensors", act=act)
        with cases(name):
            assert "sent another part of a file than the requested one (3 tries)" in refused()[0]
        hub.faults.clear()


def test_what_cannot_be_checked_is_not_kept(hub, refused, monkeypatch):
    """A hub that lists no hash must give one with the file; a commit is not answered by another one."""
    monkeypatch.setattr("hub_server.listed", lambda files: [{"rfilename": name} for name in files])
    assert refused()[0] == "config.json of org/name cannot be checked: HUB gives no hash for it."
    other = "f" * 40
    hub.revisions[other] = COMMIT
    assert refused(f"org/name@{other}")[0] == (
        "HUB answers with the commit 0123456789ab of org/name, not with ffffffffffff."
    )
    assert not hub_cache.hub_folder().exists()
    data = hub.models["org/name"]["config.json"]
    etag = hashlib.sha1(b"blob %d\0%b" % (len(data), data)).hexdigest()
    hub.fault("config.json", act=lambda handler: handler.answer(200, data, {"ETag": f'"{etag}"'}))
    assert open_target("org/name").config == CONFIG


def test_a_hub_that_is_not_there(monkeypatch, refused):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert refused()[0] == (
        "org/name was not fetched: http://127.0.0.1:9 could not be reached, or broke off (3 tries)."
    )


# Where nothing may be fetched


def test_the_switch_for_the_network_is_respected(hub, monkeypatch, refused, cases):
    folder = "(FOLDER/cache)"
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        with cases(name), monkeypatch.context() as patched:
            patched.setenv(name, "1")
            assert refused() == (
                f"org/name is neither a path here nor a model in the local Hugging Face cache {folder}, and {name} is "
                "set.",
                f"Check the spelling; to fetch its config and headers, unset {name}; or download it: `hf download "
                "org/name`.",
            )
            assert refused("org/name:model.gguf")[1].endswith("or download it: `hf download org/name model.gguf`.")
    assert hub.asked == []


def test_without_the_extra_nothing_is_fetched(hub, monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    message, hint = refused()
    assert message.endswith("and the package that fetches from the hub is not installed.")
    assert 'install it with `pip install "clockhands[hub]"`' in hint
    assert hub.asked == []


def test_the_network_is_for_names_alone(hub, tmp_path, cases):
    for text in ("org/name/more", "org/model.gguf", "org", "./org/name", "org/na me", "ørg/name"):
        with cases(text):
            refusal(open_target, text, error=ClockhandsError)
    (tmp_path / "org/name").mkdir(parents=True)
    (tmp_path / "org/name/config.json").write_text(json.dumps(CONFIG))
    assert open_target("org/name").hub is None, "a path comes before the hub"
    assert hub.asked == []


def test_what_the_cache_lacks_is_said_or_fetched(tmp_path, monkeypatch, refused, snapshot):
    """A download that stopped before the config came."""
    folder = tmp_path / "cache/models--org--name/snapshots" / COMMIT
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text("{}")
    with monkeypatch.context() as patched:
        patched.setenv("HF_HUB_OFFLINE", "1")
        assert refused() == snapshot(name="config")
        assert refused("org/name@v2") == snapshot(name="revision")
    assert open_target("org/name").config == CONFIG
    assert (folder / "config.json").exists()


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch, refused):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "file/cache"))
    message, hint = refused()
    assert message.startswith("The cache FOLDER/file/cache cannot be written: ")
    assert hint == "Set HF_HUB_CACHE to a folder that can be written."
