"""`clockhands audit` on small files of its own: exit codes, streams, JSON, several targets."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
}
BERT = {
    "model_type": "bert",
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 512,
}


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Write configs into the current folder: config("a.json", rope_theta=0)."""
    monkeypatch.chdir(tmp_path)

    def write(name, base=LLAMA, **fields):
        (tmp_path / name).write_text(json.dumps(base | fields), encoding="utf-8")
        return name

    return write


def codes(target, severity):
    return [finding["code"] for finding in target["findings"] if finding["severity"] == severity]


def test_a_sound_model_is_exit_code_0_with_every_value_and_its_source(run, config):
    done = run("audit", config("config.json"), "--json")
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    assert list(told) == ["schema", "targets"]
    assert told["schema"] == 1
    (target,) = told["targets"]
    assert (target["target"], target["model_type"], target["context"]) == ("config.json", "llama", 2048)
    (layer,) = target["layers"]
    assert (layer["kind"], layer["layout"], layer["layers"], layer["part"]) == ("rotary", "halves", "0-2", "text")
    assert (layer["width"], layer["rotated"], layer["base"]) == (32, 32, 10_000.0)
    assert layer["rates"] == pytest.approx([10_000.0 ** (-pair / 16) for pair in range(16)], rel=1e-14)
    assert layer["source"]["base"] == "config.json:rope_theta"
    assert codes(target, "error") == codes(target, "warning") == []


def test_an_impossible_value_in_a_readable_config_is_exit_code_1(run, config):
    done = run("audit", config("config.json", rope_theta=0), "--json")
    assert done.code == 1
    (target,) = json.loads(done.out)["targets"]
    assert target["layers"][0]["rates"] is None
    (finding,) = [found for found in target["findings"] if found["severity"] == "error"]
    assert finding["code"] == "impossible-value"
    assert finding["evidence"]["config.json:rope_theta"] == 0
    assert finding["message"].startswith("rope_theta is 0, which cannot be used")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 1, "x", [1], True])
def test_whatever_a_config_holds_the_output_is_strict_json(run, config, value):
    done = run("audit", config("config.json", rope_theta=value), "--json")
    assert done.code in (0, 1)
    json.loads(done.out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_two_schemas_that_disagree_are_a_warning_and_strict_makes_it_count(run, config):
    name = config("config.json", rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    done = run("audit", name, "--json")
    assert done.code == 0
    assert codes(json.loads(done.out)["targets"][0], "warning") == ["conflicting-shapes"]
    assert run("audit", name, "--json", "--strict").code == 1
    ignored = run("audit", name, "--json", "--strict", "--ignore", "conflicting-shapes, never-turning, often-misread")
    assert ignored.code == 0
    assert json.loads(ignored.out)["targets"][0]["findings"] == []
    assert ignored.err == "note: config.json: 3 findings left out by --ignore.\n"


def test_a_named_runtime_that_misreads_a_correct_file_fails_the_audit_and_others_are_left_out(run, config):
    block = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 8192, "rope_theta": 500000.0}  # fmt: skip
    name = config("config.json", rope_theta=None, max_position_embeddings=131072, rope_parameters=block)
    misread = run("audit", name, "--for", "transformers@4", "--json")
    assert misread.code == 1
    (target,) = json.loads(misread.out)["targets"]
    assert codes(target, "error") == ["misread-by-runtime"]
    assert codes(target, "warning") == []
    assert [each["reader"] for each in target["readers"]] == ["transformers-4"]
    assert target["verdict"] == "The config is correct, but Transformers 4 misreads it."
    right = run("audit", name, "--for", "transformers@5")
    assert right.code == 0
    assert "The position settings look correct, and Transformers 5 computes these values." in right.out
    unknown = run("audit", name, "--for", "transformer")
    assert unknown.code == 2
    assert "'transformer' is not a runtime that clockhands knows." in unknown.err
    assert "Did you mean transformers?" in unknown.err


@pytest.mark.parametrize(
    ("order", "code"),
    [
        (["sound", "sound"], 0),
        (["sound", "broken"], 1),
        (["broken", "sound"], 1),
        (["missing", "broken", "sound"], 2),
        (["broken", "missing"], 2),
        (["missing"], 2),
    ],
)
def test_all_targets_are_reported_and_the_gravest_decides(run, config, order, code):
    names = {"sound": config("sound.json"), "broken": config("broken.json", rope_theta=-1), "missing": "missing.json"}
    readable = [names[kind] for kind in order if kind != "missing"]
    done = run("audit", "--json", *(names[kind] for kind in order))
    assert done.code == code
    told = json.loads(done.out)
    assert [target["target"] for target in told["targets"]] == readable
    assert ("missing.json does not exist" in done.err) == ("missing" in order)
    assert [each["target"] for each in told.get("unread", [])] == ["missing.json"] * order.count("missing")
    text = run("audit", *(names[kind] for kind in order))
    assert text.code == code
    assert all(names[kind] in text.out for kind in order if kind != "missing")
    if set(readable) == {names["sound"], names["broken"]}:  # the worst first, and problems below
        lines = text.out.splitlines()
        at = lines.index(f"1 correct: {names['sound']}")
        assert lines[at - 1].split() == [names["broken"], "1", "problem", "error", "impossible-value"]
        assert names["sound"] not in "".join(lines[at + 1 :])


def test_a_config_on_standard_input(run):
    done = run("audit", "-", "--format", "json", stdin=json.dumps(LLAMA).encode())
    assert done.code == 0
    (target,) = json.loads(done.out)["targets"]
    assert target["target"] == "-"
    assert target["layers"][0]["source"]["base"] == "<stdin>:rope_theta"


def test_frequencies_that_cannot_be_computed_are_not_called_correct(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, more in {"lacking": {}, "whole": {"hidden_size": 64, "num_attention_heads": 2}}.items():
        (tmp_path / name).mkdir()
        config = {"model_type": "of-nobody", "rope_theta": 10000.0, **more}
        (tmp_path / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    done = run("audit", "lacking", "--html", "page.html")
    assert done.code == 0
    verdict = "No problem was found, but the RoPE frequencies cannot be computed: hidden_size and num_attention_heads"
    assert verdict in " ".join(done.out.split())
    assert verdict in (tmp_path / "page.html").read_text(encoding="utf-8")
    (target,) = json.loads(run("audit", "lacking", "--json").out)["targets"]
    assert target["verdict"].startswith(verdict)
    lines = run("audit", "lacking", "whole").out.splitlines()
    assert lines[:2] == [
        "1 with no problem found, but RoPE frequencies that cannot be computed: lacking",
        "1 correct: whole",
    ]


def test_rates_hold_at_the_length_that_is_asked_for(run, config):
    name = config("config.json", rope_scaling={"type": "dynamic", "factor": 4.0})
    (near,) = json.loads(run("audit", name, "--json").out)["targets"]
    (far,) = json.loads(run("audit", name, "--json", "--length", "8192").out)["targets"]
    assert (near["length"], far["length"]) == (2048, 8192)
    assert near["layers"][0]["rates"][-1] > 2 * far["layers"][0]["rates"][-1]
    assert codes(far, "warning") == []
    assert "beyond-context" in codes(far, "note")  # 4 times 2,048 tokens are what the scaling is for


def test_a_model_folder_whose_table_is_too_short_and_broken(run, config, tmp_path):
    config("config.json", BERT)
    table = np.arange(2048, dtype=np.float32).reshape(256, 8)
    table[[7, 9], 3] = np.nan
    save_file({"embeddings.position_embeddings.weight": table}, tmp_path / "model.safetensors")
    done = run("audit", tmp_path, "--json")
    assert done.code == 1
    (target,) = json.loads(done.out)["targets"]
    assert codes(target, "error") == ["short-table", "non-finite-rows"]
    short, broken = target["findings"][:2]
    assert short["evidence"]["model.safetensors:embeddings.position_embeddings.weight"] == 256
    assert broken["message"] == "2 of 256 rows hold NaN or infinity; the first such row is row 7."


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_a_bare_array_that_is_no_position_code(run, config, tmp_path, suffix):
    config("unused.json")
    array = np.ones((6, 4), np.float16)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", inside=array)
    done = run("audit", f"a.{suffix}", "--json")
    assert done.code == 0
    (target,) = json.loads(done.out)["targets"]
    (layer,) = target["layers"]
    assert (layer["kind"], layer["rows"], layer["width"]) == (None, 6, 4)
    (finding,) = target["findings"]
    assert finding["code"] == "not-recognised"
    assert (finding["evidence"]["shape"], finding["evidence"]["dtype"]) == ([6, 4], "float16")
    assert "is no known position encoding" in finding["message"]


def test_rows_that_hold_no_numbers_are_an_error(run, tmp_path):
    array = np.zeros((4, 3))
    array[2, 1] = np.inf
    np.save(tmp_path / "a.npy", array)
    done = run("audit", tmp_path / "a.npy", "--json")
    assert done.code == 1
    assert codes(json.loads(done.out)["targets"][0], "error") == ["non-finite-rows"]


def test_a_key_that_is_given_twice_counts_if_it_is_about_positions(run, tmp_path):
    text = json.dumps(LLAMA)
    (tmp_path / "a.json").write_text(text[:-1] + ', "rope_theta": 500000.0, "vocab": 1, "vocab": 2}')
    (target,) = json.loads(run("audit", tmp_path / "a.json", "--json").out)["targets"]
    assert codes(target, "warning") == ["duplicate-key"]
    assert [finding["evidence"] for finding in target["findings"] if "duplicate" in finding["code"]] == [
        {"a.json:rope_theta": "given more than once", "used": "the last value"},
        {"a.json:vocab": "given more than once", "used": "the last value"},
    ]
    assert target["layers"][0]["base"] == 500_000.0


def test_how_a_target_was_understood_is_said_on_stderr(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "whisper").mkdir()
    (tmp_path / "whisper" / "config.json").write_text(json.dumps(LLAMA))
    done = run("audit", "whisper", "--json")
    assert done.code == 0
    assert done.err == "note: whisper is read as a path; preset:whisper fits too.\n"
    assert json.loads(done.out)["targets"][0]["model_type"] == "llama"
