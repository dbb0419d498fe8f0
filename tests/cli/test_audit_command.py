"""`clockhands audit` on small files of its own: exit codes, streams, JSON, several targets."""

import ast
import json
import re
import shlex
from pathlib import Path

import pytest

import packaged_weights

from .conftest import LLAMA, LLAMA3, LLAMA_31


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


def test_whatever_a_config_holds_the_output_is_strict_json(run, config, cases):
    for value in (float("nan"), float("inf"), -1, 1, "x", [1], True):
        with cases(value):
            done = run("audit", config("config.json", rope_theta=value), "--json")
            assert done.code in (0, 1)
            json.loads(done.out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_a_named_runtime_is_the_only_one_in_json(run, config):
    block = LLAMA3 | {"rope_theta": 500000.0}
    name = config("config.json", rope_theta=None, max_position_embeddings=131072, rope_parameters=block)
    (target,) = json.loads(run("audit", name, "--for", "transformers@4", "--json").out)["targets"]
    assert codes(target, "error") == ["misread-by-runtime"]
    assert codes(target, "warning") == []
    assert [each["reader"] for each in target["readers"]] == ["transformers-4"]
    assert target["verdict"] == "The config is correct, but Transformers 4 misreads it."


def test_all_targets_are_reported_and_the_gravest_decides(run, config, cases):
    names = {"sound": config("sound.json"), "broken": config("broken.json", rope_theta=-1), "missing": "missing.json"}
    for words, code in (
        *(("sound sound", 0), ("sound broken", 1), ("broken sound", 1)),
        *(("missing broken sound", 2), ("broken missing", 2), ("missing", 2)),
    ):
        with cases(words):
            order = words.split()
            readable = [names[kind] for kind in order if kind != "missing"]
            done = run("audit", "--json", *(names[kind] for kind in order))
            assert done.code == code
            told = json.loads(done.out)
            assert [target["target"] for target in told["targets"]] == readable
            assert ("missing.json does not exist" in done.err) == ("missing" in order)
            assert [each["target"] for each in told.get("unread", [])] == ["missing.json"] * order.count("missing")


def test_a_config_on_standard_input(run):
    done = run("audit", "-", "--format", "json", stdin=json.dumps(LLAMA).encode())
    assert done.code == 0
    (target,) = json.loads(done.out)["targets"]
    assert target["target"] == "-"
    assert target["layers"][0]["source"]["base"] == "<stdin>:rope_theta"


def test_rates_hold_at_the_length_that_is_asked_for(run, config):
    name = config("config.json", rope_scaling={"type": "dynamic", "factor": 4.0})
    (near,) = json.loads(run("audit", name, "--json").out)["targets"]
    (far,) = json.loads(run("audit", name, "--json", "--length", "8192").out)["targets"]
    assert (near["length"], far["length"]) == (2048, 8192)
    assert near["layers"][0]["rates"][-1] > 2 * far["layers"][0]["rates"][-1]
    assert codes(far, "warning") == []
    assert "beyond-context" in codes(far, "note")  # 4 times 2,048 tokens are what the scaling is for


def test_a_length_beyond_the_context_is_answered_before_the_problems(run, config):
    done = run("audit", config("config.json", LLAMA_31), "--length", "256k", "--for", "llama.cpp")
    lines = [line.strip() for line in done.out.splitlines()]
    order = ("for 262,144 positions: llama3", "llama.cpp:", "warning beyond-context")
    places = [next((at for at, line in enumerate(lines) if line.startswith(words)), None) for words in order]
    assert None not in places
    assert places == sorted(places)
    assert "vLLM:" not in lines
    assert any(line.startswith("KV cache     32 GiB for one text of 262,144 tokens") for line in lines[: places[2]])
    told = json.loads(run("audit", "config.json", "--length", "256k", "--json").out)["targets"][0]
    assert (told["extension"]["answer"]["scaling"], told["cache"]["bytes"]) == ("llama3", 32 * 2**30)
    tables = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}
    none = run("audit", config("gpt2.json", tables), "--length", "4k").out
    assert "for 4,096 positions: no setting" in none
    assert none.index("the learned table ends after 1,024") < none.index("warning beyond-context")


def test_the_weights_are_looked_at_when_the_flag_asks_for_it_and_the_report_says_what_they_say(run):
    file = str(packaged_weights.smollm2_file())
    done = run("audit", file, "--weights")
    assert done.code == 0
    assert "weights: pairs interleaved, confidence 0.99, z 311 against 2.0" in done.out
    assert "weights: not examined (use --weights)" in run("audit", file, "--verbose").out
    weights = json.loads(run("audit", file, "--json").out)["targets"][0]["weights"]
    assert (weights["examined"], weights["layout"], weights["by_layer"]) == (False, None, [])
    made = json.loads(run("audit", "vaswani2017", "--weights", "--json").out)["targets"][0]["weights"]
    assert (made["examined"], made["says"]) == (False, "not examined, because no layer is known to rotate")


def test_overrides_are_taken_as_servers_spell_them(run, repository, tmp_path, monkeypatch):
    """The command of the guide on a longer context, as vLLM has it, is right; without the base it is not."""
    guide = (repository / "docs" / "guides" / "extend-context.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^vllm serve path/to/model (.+)$", guide, re.MULTILINE)
    assert f"clockhands audit config.json --strict {command}\n" in guide
    (config,) = re.findall(r"^config = (\{.*?^\})$", guide, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(ast.literal_eval(config)), encoding="utf-8")
    words = shlex.split(command)
    right = run("audit", "config.json", "--strict", *words)
    assert (right.code, "look correct, and vLLM computes these values" in right.out) == (0, True)
    _, block, *length = words
    keys = json.loads(block)["rope_parameters"]
    dotted = {key: [f"--hf_overrides.rope_parameters.{key}", str(value)] for key, value in keys.items()}
    one_by_one = [word for each in dotted.values() for word in each]
    assert run("audit", "config.json", "--strict", *one_by_one, *length).out == right.out
    lacking = [word for key, each in dotted.items() for word in each if key != "rope_theta"]
    assert run("audit", "config.json", "--strict", *lacking, *length).code == 1
    sglang = run("audit", "config.json", "--json-model-override-args", block, "--context-length=131072")
    assert (sglang.code, "What SGLang computes is not known" in sglang.out) == (0, True)
    assert run("audit", "config.json", "--hf-overrides.rope_theta").code == 2
    assert run("audit", "config.json", "--fix", *words).code == 2
