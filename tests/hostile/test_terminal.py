"""What others named or wrote acts on no terminal: names of files, tensors and keys, values, in every command."""

import json
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

from clockhands.cli import main
from clockhands.cli.group import COMMANDS
from clockhands.jobs.survey.rows import SurveyRow
from clockhands.jobs.survey.store import SurveyStore
from written_files import gguf_bytes, gguf_key, gguf_tensor

SOURCE = Path(__file__).resolve().parents[2] / "src" / "clockhands"

# Llama-3.1-8B with a tenth of its base.
WRONG_BASE = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 32, "vocab_size": 128256, "max_position_embeddings": 131072, "rope_theta": 50000.0,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}  # fmt: skip

# Clears the screen, writes into the title and the clipboard, goes up a line, turns text round; C1, line breaks.
ODD = "e\x1b[2J\x1b]0;t\x07\x1b]52;c;ZQ==\x1b\\\x9b1A\x85\rc\nd\u202ee\u2066f\u2028g\x7f\u200b"


def unsafe(text: str) -> set[str]:
    return {char for char in text if not char.isprintable()} - {"\n"}


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """A folder of models, of which all names and values are odd."""
    folder = tmp_path / f"models {ODD.replace('/', '')}"
    model = folder / ODD
    model.mkdir(parents=True)
    config = {
        "model_type": ODD, "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "rope_theta": ODD,
        "rope_scaling": {"rope_type": ODD, ODD: 1, "factor": ODD}, ODD: ODD, "layer_types": [ODD, ODD],
        "architectures": [ODD], "position_embedding_type": ODD, "max_position_embeddings": ODD,
    }  # fmt: skip
    (model / "config.json").write_text(json.dumps(config))
    table = np.sin(np.arange(64.0).reshape(16, 4)).astype(np.float32)
    save_file({ODD: table, f"{ODD}.q_proj.weight": table}, model / "model.safetensors", {ODD: ODD})
    np.savez(folder / "tables.npz", **{ODD.replace("\n", ""): table})
    entries = [gguf_key("general.architecture", "string", ODD), gguf_key(ODD, "string", ODD)]
    (folder / f"{ODD}.gguf").write_bytes(gguf_bytes(entries, [gguf_tensor(ODD, (4, 4), 0, 0)]))
    (folder / "mergekit.yaml").write_text(json.dumps({"base_model": ODD, "sequence_len": 9, "rope_scaling": ODD}))
    (folder / "Modelfile").write_text(f"FROM {ODD}\n")
    (folder / "study.toml").write_text(f"name = {json.dumps(ODD)}\n[arms.{json.dumps(ODD)}]\n")
    with SurveyStore.open(folder / "s.sqlite") as store:
        store.add(SurveyRow(ODD, "", "1", "failed", ODD, ODD, model_type=ODD), "")
        store.add(SurveyRow(ODD + "2", "", "1", "done", "", "", ODD, "error", ODD, ODD, ODD, ODD, ODD), "{}")
    monkeypatch.chdir(folder)
    return folder


def commands(folder: Path) -> list[list[str]]:
    """Every command, with odd names of files that are there, and with odd words for everything that it takes."""
    model, gguf = str(folder / ODD), f"{ODD}.gguf"
    audits = [
        [model], [model, "--verbose"], [model, "--format", "github"], [gguf], [f"{ODD}/model.safetensors"], [ODD, gguf],
        [f"{ODD}/config.json", "--diff"], ["tables.npz"], ["mergekit.yaml"], ["Modelfile"], [ODD, "--set", f"{ODD}=1"],
        [ODD, "--for", ODD], [ODD, "--baseline", ODD], [ODD, "--ignore", ODD], [ODD, "--length", ODD], ["absent" + ODD],
        [f"tables.npz:{ODD}"], [ODD, "--html", f"{ODD}/x/y"], [ODD, f"--{ODD}"], [f"ollama:{ODD}"],
        ["study.toml"], ["s.sqlite"], [model, "--json"], [model, "--format", "sarif"],
    ]  # fmt: skip
    return [
        *(["audit", *words] for words in audits),
        ["probe", "absent" + ODD],
        ["survey", "report", "--store", "s.sqlite"], ["survey", "report", "--store", ODD], ["survey", ODD],
        ["survey", "run", ODD, "--names", "absent" + ODD], ["survey", "report", "--store", "s.sqlite", "--json"],
        ["explore", "absent" + ODD, "--out", "x.html"], ["explore", ODD, "--out", f"{ODD}/none/x.html"],
        ["learn", "--out", f"learned{ODD}"], ["learn", "--out", f"{ODD}.gguf"],
        ["properties", model], ["properties", ODD + ":x=1"], ["properties", gguf],
        ["order", ODD, f"{ODD} {ODD}"], ["order", "dog bites man", "man bites dog", "--encoding", ODD],
        ["claims", ODD], ["claims", "--subject", ODD],
        ["check", f"{ODD}:{ODD}", "--expect", ODD], ["check", "absent" + ODD],
        ["explain", ODD], ["presets", ODD],
        ["diff", model, gguf], ["diff", model, "absent" + ODD], ["diff", model, model, "--json"],
        ["identify", f"{ODD}/model.safetensors"], ["identify", "tables.npz"], ["identify", f"tables.npz:{ODD}"],
        ["table", ODD], ["table", "vaswani2017", "--positions", ODD], ["table", "vaswani2017", "--out", ODD],
        ["convert", model, f"out{ODD}", "--layout", "halves"], ["convert", "absent" + ODD, "out"],
        ["lab", "run", "study.toml"], ["lab", "run", ODD], ["lab", "report", "--store", ODD],
        [ODD], [f"--{ODD}"],
    ]  # fmt: skip


def test_no_command_lets_a_name_or_a_value_act_on_the_terminal(odd, cases):
    walked = commands(odd)
    assert {words[0] for words in walked} >= set(COMMANDS)
    for words in walked:
        done = CliRunner().invoke(main, words, prog_name="clockhands")
        with cases(*map(ascii, words)):
            assert "Traceback" not in done.stderr, done.stderr
            assert not unsafe(done.stdout + done.stderr)
            assert not any(line.startswith(("d\u202e", "d\\")) for line in done.output.split("\n")), (
                "a name broke a line"
            )
            if words[0] == "audit" and "--json" in words:
                assert json.loads(done.stdout)["targets"][0]["model_type"] == ODD, "JSON is exact"


def test_errors_warnings_and_faults_of_ours_are_printed_without_acting(monkeypatch):
    def warns():
        warnings.warn(ODD, stacklevel=1)
        raise RuntimeError(ODD)

    def told(message, category, file, line, *_):
        sys.stderr.write(warnings.formatwarning(message, category, file, line))

    monkeypatch.setattr("clockhands.cli.presets.presets", warns)
    monkeypatch.setattr(warnings, "showwarning", told)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        done = CliRunner().invoke(main, ["presets"])
    assert "UserWarning: e\\x1b[2J" in done.stderr
    assert "RuntimeError: e\\x1b[2J" in done.stderr
    assert not unsafe(done.stderr)


def test_a_name_cannot_end_its_line_in_a_diff_for_patch(tmp_path):
    """Else the patch of a file would change another one."""
    path = tmp_path / "a\n+++ b/other.json\n" / "config.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(WRONG_BASE))
    done = CliRunner().invoke(main, ["audit", str(path), "--diff"])
    assert done.stdout.startswith('--- "a/')
    assert re.findall(r"(?m)^(\+\+\+|---) (.*)$", done.stdout) == [
        (sign, f'"{side}{path}"'.replace("\n", "\\012")) for sign, side in (("---", "a"), ("+++", "b"))
    ]


# Where a command writes what is no page, with why nothing from outside is in it; everything else gives it to these.
DOORS = {
    "cli/group.py": "cleans what it writes",
    "show/_page.py": "cleans what it writes",
    "cli/audit.py": "a diff, exact in a pipe and cleaned on a terminal; a bar without words",
    "cli/probe.py": "the console of a bar, whose words are cleaned",
    "cli/survey.py": "two counts",
    "show/lab.py": "the console of a bar, and of a table whose cells are cleaned",
}


def test_text_is_written_to_a_terminal_in_few_places():
    writes = re.compile(
        r"click\.s?echo|click\.progressbar|\bConsole\(|console\)?\.print\(|(?<![.\w])(?<!def )(?<!>>> )print\("
    )
    files = [*SOURCE.glob("cli/*.py"), *SOURCE.glob("show/*.py")]
    found = {file.relative_to(SOURCE).as_posix() for file in files if writes.search(file.read_text(encoding="utf-8"))}
    assert found == set(DOORS)
