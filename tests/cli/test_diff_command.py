"""`clockhands diff` as JSON, and what it opens; what it prints stands in test_golden.py."""

import json

import pytest

from clockhands.configs import open_target

from .conftest import LLAMA3

OLD = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 64, "num_hidden_layers": 32,
    "max_position_embeddings": 131072, "rope_theta": 500000.0, "rope_scaling": LLAMA3,
}  # fmt: skip
NEW = {key: value for key, value in OLD.items() if not key.startswith("rope_")} | {
    "rope_parameters": LLAMA3 | {"rope_theta": 500000.0}
}


@pytest.fixture
def file(tmp_path):
    def write(name, config):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    return write


def test_two_readings_of_one_file(run, file):
    path = file("new", NEW)
    two = run("diff", path, "--readers", "clockhands,transformers-4", "--json")
    assert two.code == 1
    found = json.loads(two.out)
    assert (found["schema"], found["same"]) == (1, False)
    (group,) = found["groups"]
    assert group["rates"]["largest_ratio"] == pytest.approx(8 * 50 ** (62 / 64))
    assert group["rates"]["off_from"] == {"0.1": 1, "1.0": 8}
    assert [each["distance"] for each in group["rates"]["at"]][-2:] == [131072, 524288]


def test_only_the_layers_that_part_are_told_apart(run, file):
    gemma = {
        "model_type": "gemma3_text", "hidden_size": 2560, "num_attention_heads": 8, "head_dim": 256,
        "num_hidden_layers": 6, "max_position_embeddings": 131072, "sliding_window": 1024, "rope_theta": 1e6,
        "rope_local_base_freq": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }  # fmt: skip
    done = run("diff", file("a", gemma), file("b", gemma | {"rope_scaling": None}), "--json")
    groups = {group["layers"]: group["same"] for group in json.loads(done.out)["groups"]}
    assert groups == {"0-4": True, "5": False}


DRAFT = {
    "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 64,
    "num_hidden_layers": 1, "max_position_embeddings": 131072, "rope_theta": 500000.0, "rope_scaling": LLAMA3,
}  # fmt: skip


def test_a_draft_that_the_caller_names_is_one_in_json(run, file):
    small = DRAFT | {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4}
    done = run("diff", file("target", OLD), file("draft", small), "--draft", "--json")
    assert (done.code, json.loads(done.out)["draft"]) == (0, True)


def test_each_target_is_opened_once(run, file, monkeypatch):
    asked = []

    def counted(target, *rest):
        asked.append(target)
        return open_target(target, *rest)

    monkeypatch.setattr("clockhands.cli.diff.open_target", counted)
    monkeypatch.setattr("clockhands.auditing._audits.open_target", counted)
    targets = [str(file("target", OLD)), str(file("draft", DRAFT))]
    for options in ((), ("--reader", "vllm"), ("--reader", "no-scaling")):
        asked.clear()
        run("diff", *targets, *options)
        assert asked == targets
