"""What a row holds, what counts as another revision, and what the store and the CSV file keep of it."""

import csv
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clockhands.auditing import audit
from clockhands.jobs.databases.store_errors import NotAStore, OtherVersion, ReadOnly
from clockhands.jobs.survey import revisions, worker
from clockhands.jobs.survey.revisions import revision_of
from clockhands.jobs.survey.rows import SurveyRow, row_of
from clockhands.jobs.survey.running import read_names, targets_of
from clockhands.jobs.survey.store import SurveyStore, write_csv
from clockhands.jobs.survey.summary import headline, outliers, survey_to_dict
from clockhands.jobs.survey.worker import failed, surveyed
from clockhands.lab.store import Store
from clockhands.show.survey import print_survey

LLAMA3 = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
    "max_position_embeddings": 131072, "rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3",
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
}  # fmt: skip
GEMMA3 = {
    "model_type": "gemma3_text", "hidden_size": 640, "head_dim": 256, "num_attention_heads": 4, "num_hidden_layers": 18,
    "max_position_embeddings": 32768, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "sliding_window": 512,
    "sliding_window_pattern": 6,
}  # fmt: skip


def write(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SurveyStore]:
    with SurveyStore.open(tmp_path / "survey.sqlite") as opened:
        yield opened


def done(target: str = "/a", revision: str = "r", **fields: Any) -> SurveyRow:
    verdict = "The position settings look correct."
    return SurveyRow(target, revision, "1", "done", **{"kinds": "rotary", "verdict": verdict, **fields})


def test_a_row_has_what_the_audit_says(tmp_path: Path):
    found = audit(write(tmp_path / "llama", LLAMA3))
    row = row_of(found, "/llama", "r", "1")
    assert (row.model_type, row.context, row.base, row.scaling) == ("llama", 131072, 5e5, "llama3")
    assert (row.factor, row.head_width, row.kinds) == (8, 128, "rotary")
    assert (row.severity, row.errors, row.warnings) == ("warning", "", "new-shape-only")
    assert row.notes.split() == [each.code for each in found.findings if each.severity == "note"]
    assert "transformers-4" in row.differs_in.split()
    assert "no-scaling" not in row.differs_in.split(), "it is no runtime"
    assert (row.grade, row.problems, row.verdict) == ("warning", ("new-shape-only",), found.verdict)
    config = LLAMA3 | {"model_type": "x" * 10_000, "rope_parameters": {"rope_type": "y" * 10_000}}
    long = row_of(audit(write(tmp_path / "long", config)), "/long", "r", "1")
    assert len(json.dumps(long)) < 2000
    assert long.model_type == "x" * 200
    far = row_of(audit(write(tmp_path / "gemma", GEMMA3)), "/gemma", "r", "1")
    assert far.base == 1e6, "that of the layers that see farthest"
    row, report = surveyed("vaswani2017", "1")
    assert (row.revision, row.kinds, row.base, row.grade) == ("", "sinusoidal", None, "correct")
    assert json.loads(report)["target"] == "vaswani2017"


def test_a_target_whose_files_come_with_the_audit_has_their_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = write(tmp_path / "a", LLAMA3)
    answers = iter(["", "downloaded"])
    monkeypatch.setattr(worker, "revision_of", lambda _: next(answers))
    assert surveyed(str(folder), "1")[0].revision == "downloaded"


def test_a_model_whose_frequencies_cannot_be_computed_is_not_counted_as_correct(tmp_path: Path):
    config = {"model_type": "of-nobody", "rope_theta": 10000.0}
    row = row_of(audit(write(tmp_path / "a", config)), "/a", "r", "1")
    assert (row.grade, row.kinds, row.base) == ("unknown", "rotary-uncomputed", 1e4)
    assert "cannot be computed: hidden_size and num_attention_heads are not in the file" in row.verdict
    whole = config | {"hidden_size": 64, "num_attention_heads": 4}
    row = row_of(audit(write(tmp_path / "b", whole)), "/b", "r", "1")
    assert row.verdict == 'No problem was found, but the model type "of-nobody" is not known.'
    assert row.grade == "unknown"


def test_a_revision_is_the_content_that_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, copy = write(tmp_path / "a", LLAMA3), write(tmp_path / "b", LLAMA3)
    before = revision_of(str(first))
    assert len(before) == 64
    assert revision_of(str(copy)) == before
    (first / "README.md").write_text("words", encoding="utf-8")
    assert revision_of(str(first)) == before
    (copy / "generation_config.json").write_text("{}", encoding="utf-8")
    assert revision_of(str(copy)) != before
    (first / "model.safetensors").write_bytes(b"12345678")
    with_weights = revision_of(str(first))
    assert with_weights != before
    monkeypatch.setattr(revisions, "WHOLE", 4)
    by_time = revision_of(str(first))
    os.utime(first / "model.safetensors", (1, 1))
    assert revision_of(str(first)) not in (by_time, with_weights)


def test_files_count_with_what_is_read_beside_them(tmp_path: Path):
    folder = write(tmp_path / "a", LLAMA3)
    for name in ("x.gguf", "x.safetensors", "x.safetensors.index.json"):
        (folder / name).write_bytes(b"content")
    names = ("x.gguf", "config.json", "x.safetensors", "x.safetensors.index.json")
    before = {name: revision_of(str(folder / name)) for name in names}
    assert len({*before.values()}) == 4
    write(folder, LLAMA3 | {"hidden_size": 64})
    changed = {name for name in names if revision_of(str(folder / name)) != before[name]}
    assert changed == {"config.json", "x.safetensors", "x.safetensors.index.json"}
    (folder / "x.safetensors").write_bytes(b"another")
    assert revision_of(str(folder / "x.safetensors.index.json")) != before["x.safetensors.index.json"]


def test_a_pipe_and_a_lost_link_have_revisions(tmp_path: Path):
    os.mkfifo(tmp_path / "config.json")
    piped = revision_of(str(tmp_path))
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").symlink_to(tmp_path / "absent")
    assert len({piped, revision_of(str(tmp_path))}) == 2


def test_a_row_is_stored_once_and_a_failed_one_is_replaced(store: SurveyStore):
    assert store.add(failed("/a", "r", "1", "It failed.", "Try again."), "") is True
    assert store.known("/a", "r", "1") == "failed"
    assert store.add(done(), "{}") is True
    assert store.add(done(verdict="another"), "{}") is False
    assert (store.known("/a", "r", "1"), store.known("/a", "s", "1")) == ("done", None)
    assert store.rows(latest=False) == [done()]
    assert store.add(done(revision="s"), '{"x": 1}') is True
    assert store.rows() == [done(revision="s")]
    assert store.report_of(done(revision="s")) == {"x": 1}


def test_names_that_are_no_text_are_stored(store: SurveyStore, tmp_path: Path):
    name = os.fsdecode(bytes(tmp_path) + b"/\xff")
    assert store.add(done(name), "{}") is True
    assert store.add(done(name), "{}") is False
    assert store.known(name, "r", "1") == "done"
    assert store.rows()[0].target == f"{tmp_path}/\\udcff"


def test_other_files_are_no_store_of_a_survey(tmp_path: Path, store: SurveyStore):
    with Store.open(tmp_path / "lab.sqlite"):
        pass
    with pytest.raises(NotAStore, match="is a database of another program, not a store of a survey"):
        SurveyStore.open(tmp_path / "lab.sqlite")
    with pytest.raises(NotAStore, match="Check the name, or run a survey into it first"):
        SurveyStore.open(tmp_path / "absent.sqlite", create=False)
    store._connection.execute("PRAGMA user_version = 2")
    with pytest.raises(OtherVersion, match="or run a survey into a new file"):
        SurveyStore.open(store.path)


def test_only_results_that_take_long_wait_for_the_disk(store: SurveyStore, tmp_path: Path):
    with Store.open(tmp_path / "lab.sqlite") as lab:
        waits = [each._connection.execute("PRAGMA synchronous").fetchone()[0] for each in (store, lab)]
    assert waits == [1, 2], "NORMAL and FULL: a power loss takes no trial of hours"


def test_a_store_that_is_only_read_is_not_written(store: SurveyStore):
    with SurveyStore.open(store.path, write=False) as reader:
        with pytest.raises(ReadOnly), reader.driving():
            pass
        with pytest.raises(ReadOnly):
            reader.add(done(), "{}")


def test_csv_has_a_line_for_each_row_and_no_formulas():
    rows = [done("=1+1", base=5e5, context=-1, model_type="\t@x"), done("/b", verdict="one, two\nthree", factor=0.5)]
    file = io.StringIO()
    write_csv(rows, file)
    read = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert [list(each) for each in read] == [list(SurveyRow._fields)] * 2
    assert (read[0]["target"], read[0]["model_type"], read[0]["base"], read[0]["context"]) == (
        *("'=1+1", "'\t@x"),
        *("500000.0", "-1"),
    )
    assert (read[1]["verdict"], read[1]["factor"], read[1]["base"]) == ("one, two\nthree", "0.5", "")


def test_the_document_names_every_column():
    text = (Path(__file__).resolve().parents[3] / "docs" / "survey.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)))
    assert sorted(named) == sorted(SurveyRow._fields)


def test_lists_of_names_and_folders_become_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a", LLAMA3)
    (tmp_path / "empty").mkdir()
    assert list(read_names(["# models\n", "\n", " a \n", "vaswani2017\n"])) == ["a", "vaswani2017"]
    named = ["a", "a/config.json", "empty", "vaswani2017", "org/name", "."]
    here = str(tmp_path)
    assert list(targets_of(named)) == [
        *(f"{here}/a", f"{here}/a/config.json", f"{here}/empty"),
        *("vaswani2017", "org/name", f"{here}/a"),
    ]


def test_the_summary_counts_models_findings_and_runtimes(capsys: pytest.CaptureFixture[str]):
    rows = [
        done("/a"),
        done("/b", severity="warning", warnings="x y", differs_in="vllm"),
        done("/c", severity="error", errors="z", warnings="x", refused_by="vllm"),
        failed("/d\x1b[2J", "r", "1", "It cannot be read.", "Try."),
    ]
    unknown = done("/e", verdict="No position encoding was recognised.")
    assert headline([unknown]) == "1 model: 1 without a problem, but not fully known."
    assert headline(rows) == "4 models: 1 with errors, 1 with warnings, 1 not audited, 1 correct."
    print_survey(rows)
    out = capsys.readouterr().out
    assert "models with a problem\n        2  x\n           b, c\n" in out
    assert "models that a runtime refuses to load\n        1  vllm\n           c\n" in out
    assert "d\\x1b[2J\n    It cannot be read." in out
    made = survey_to_dict(rows)
    assert made["grades"] == {"error": 1, "warning": 1, "failed": 1, "unknown": 0, "correct": 1}
    assert (made["findings"], made["rows"][1]["warnings"]) == ({"x": 2, "y": 1, "z": 1}, "x y")
    assert headline([]) == "0 models: nothing is stored."


def test_an_outlier_is_named_with_its_group_and_its_value(capsys: pytest.CaptureFixture[str]):
    """A group whose models have several bases has none, and so has a small one; what several have is another kind."""

    def models(folder: str, bases: list[float], **more: Any) -> list[SurveyRow]:
        return [done(f"/{folder}/{number}", head_width=128, base=base, context=4096, **more)
                for number, base in enumerate(bases)]  # fmt: skip

    rows = models("a", [1e4] * 49 + [1e5], model_type="llama") + models("b", [1e4] * 8 + [1e5], model_type="qwen2")
    rows += models("c", [1e4] * 12 + [1e6] * 4, model_type="mistral")
    rows += [row._replace(base=None) for row in models("e", [1e4] * 19)] + models("e", [1e4])
    rows += models("d", [1e4] * 60 + [5e5] * 3, model_type="llama")
    says = "a/49 differs from its group, in base: 100,000; 49 of 50 models of type llama have 10,000."
    assert [outlier.says("a/49") for outlier in outliers(rows)] == [says]
    assert survey_to_dict(rows)["outliers"][0] == {
        "target": "/a/49", "field": "base", "value": 1e5, "usual": 1e4, "group": "llama", "size": 50, "share": 49,
    }  # fmt: skip
    print_survey(rows, width=120)
    out = " ".join(capsys.readouterr().out.split())
    assert f"models that differ from their group {says}" in out
    rows = [row._replace(scaling="yarn", factor=4.0) if row.target == "/a/7" else row for row in rows]
    assert [outlier.says("x").partition(" differs from its group, in ")[2] for outlier in outliers(rows)] == [
        "base: 100,000; 49 of 50 models of type llama have 10,000.",
        "scaling: yarn by 4; 49 of 50 models of type llama have none.",
    ]
