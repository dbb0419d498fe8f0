"""Configs of other programs on the command line: the names of the user's file, in folders too."""

import json

from clockhands.configs.models_under import models_under

from .conftest import NEMO

LITGPT = "n_layer: 2\nn_embd: 128\nn_head: 4\nrotary_percentage: 0.25\nrope_base: 10000\nblock_size: 512\n"
GENAI = {"model": {"context_length": 512, "type": "llama", "decoder": {"head_size": 64, "num_hidden_layers": 2}}}


def test_a_folder_is_known_by_such_a_config_and_no_runtime_is_said_to_read_it(run, tmp_path):
    for name, program, text in (
        ("model_config.yaml", "LitGPT", LITGPT),
        ("genai_config.json", "ONNX Runtime GenAI", json.dumps(GENAI)),
    ):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_text(text)
        (target,) = json.loads(run("audit", folder, "--json").out)["targets"]
        assert target["context"] == 512
        assert {each["because"] for each in target["readers"]} == {
            f"The compared runtimes read configs of Transformers, and this is a file of {program}."
        }
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model_config.yaml").write_text("learning_rate: 1\n")
    assert [path.name for path in models_under(tmp_path)] == ["genai_config", "model_config"]


def test_files_of_other_programs_are_found_by_what_they_hold(run, tmp_path):
    texts = {
        "a.yml": NEMO.replace("0.5", "10000"),
        "Modelfile": "FROM ./x.gguf\n",
        "my.Modelfile": "FROM ./x.gguf\n",
        "lora.yaml": "base_model: org/name\ndatasets: []\n",
        "workflow.yaml": "jobs: {}\n",
        "broken.yaml": "num_layers: [hidden_size, pos_emb\n",
        ".hidden.yml": NEMO,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "config.json").write_text("[1, 2]")
    # A config.json that is no object may be a damaged one: an audit says so.
    assert [path.name for path in models_under(tmp_path)] == ["Modelfile", "a.yml", "my.Modelfile", "list"]
    for name in ("Modelfile", "my.Modelfile", "list/config.json"):
        (tmp_path / name).unlink()
    done = run("audit", "-r", tmp_path)
    assert done.code == 0
    assert done.out.splitlines()[0] == str(tmp_path / "a.yml")
