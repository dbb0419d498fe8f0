"""`clockhands audit` for programs: SARIF, annotations of a workflow, the published schema of its JSON."""

import contextlib
import copy
import io
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import clockhands as ch
from clockhands.auditing.findings import CODES
from clockhands.cli import audit
from clockhands.cli.audit import MANY
from clockhands.recognition.faults import FAULTS
from clockhands.recognition.symptoms import SYMPTOMS
from late import Late

from .conftest import LLAMA, WRONG_BASE

jsonschema = Late("jsonschema")
pydantic = Late("sarif_pydantic")

DOCS = Path(__file__).resolve().parents[2] / "docs"
CONFIGS = {
    "sound": LLAMA,
    "a base that is impossible": LLAMA | {"rope_theta": 0},
    "a scaling": LLAMA | {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "facter": 3}},
    "nothing known": {"model_type": "nobody's"},
    "hostile": LLAMA | {
        "model_type": "a\u202e::error::\n\x1b[2Jb", "rope_scaling": {"type": "x,y:z%0A::warning::\r\n"}
    },
}  # fmt: skip


@pytest.fixture
def written(tmp_path, monkeypatch):
    """All configs in folders of the current folder, by name."""
    monkeypatch.chdir(tmp_path)
    paths = {}
    for name, config in CONFIGS.items():
        folder = tmp_path / name.replace("'", "")
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
        paths[name] = f"{folder.name}/config.json"
    return paths


def sarif(run, *words):
    done = run("audit", *words, "--format", "sarif", "--verbose")
    return json.loads(done.out), done


def test_sarif_is_valid_and_holds_every_finding(run, written):
    document, done = sarif(run, *written.values())
    model = pydantic.Sarif.model_validate(document)
    # A model that drops what it does not know would let a misspelt key pass.
    again = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert again == document
    (ran,) = document["runs"]
    expected = [
        (path, finding.code, finding.severity) for path in written.values() for finding in ch.audit(path).findings
    ]
    got = [(each["properties"]["target"], each["ruleId"], each["level"]) for each in ran["results"]]
    assert got == expected
    assert {"error", "warning", "note"} <= {level for _, _, level in got}
    rules = [rule["id"] for rule in ran["tool"]["driver"]["rules"]]
    assert all(rules[each["ruleIndex"]] == each["ruleId"] for each in ran["results"])
    assert done.code == 1


def test_notes_that_correct_models_have_are_reported_only_when_asked(run, written):
    path = written["sound"]
    notes = len(ch.audit(path).findings)
    assert notes
    assert not ch.audit(path).problems
    for words, count in (((), 0), (("--verbose",), notes)):
        document = json.loads(run("audit", path, "--format", "sarif", *words).out)
        assert len(document["runs"][0]["results"]) == count
        assert len(run("audit", path, "--format", "github", *words).out.splitlines()) == count


def test_sarif_points_at_the_line_of_the_key(run, written):
    path = written["a base that is impossible"]
    document, _ = sarif(run, path)
    (result,) = [each for each in document["runs"][0]["results"] if each["ruleId"] == "impossible-value"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": path.replace(" ", "%20"), "uriBaseId": "%SRCROOT%"}
    line = Path(path).read_text(encoding="utf-8").splitlines()[place["region"]["startLine"] - 1]
    assert line.strip().startswith('"rope_theta"')


def test_a_folder_is_pointed_at_by_the_file_inside(run, written):
    document, _ = sarif(run, Path(written["sound"]).parent)
    places = [each["locations"][0]["physicalLocation"] for each in document["runs"][0]["results"]]
    assert {place["artifactLocation"]["uri"] for place in places} == {"sound/config.json"}


@pytest.mark.skipif(os.name == "nt", reason="names are UTF-16 there")
def test_a_name_that_is_not_utf_8_is_given_by_its_bytes_in_sarif(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, folder in itertools.product((b"caf\xe9.json", b"d\xe9/config.json"), ("", f"{tmp_path}/")):
        path = Path(os.fsdecode(name))
        try:
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(CONFIGS["a scaling"]), encoding="utf-8")
        except OSError:
            pytest.skip("the file system takes only names in UTF-8")
        document, done = sarif(run, folder + os.fsdecode(name), os.fsdecode(b"no\xe9.json"))
        json.dumps(document, ensure_ascii=False).encode("utf-8")  # fails on half a surrogate pair
        pydantic.Sarif.model_validate(document)
        assert "\\udc" not in done.out.replace("\\\\udc", "")
        places = [result["locations"][0]["physicalLocation"] for result in document["runs"][0]["results"]]
        assert {place["artifactLocation"]["uri"] for place in places} == {name.decode("latin-1").replace("é", "%E9")}
        assert document["runs"][0]["results"][0]["properties"]["target"].endswith(name.decode("utf-8", "replace")[-5:])


@pytest.mark.skipif(os.name == "nt", reason="no name has a colon there")
def test_a_name_with_a_colon_is_told_as_another_is(run, tmp_path, monkeypatch, cases):
    monkeypatch.chdir(tmp_path)
    for words in ("", "-v", "--json", "--format=sarif --verbose", "--format=github --verbose", "--diff", "--fix"):
        with cases(words):
            told = []
            for name in ("a:b.json", "a_b.json"):
                Path(name).write_text(json.dumps(WRONG_BASE, indent=2), encoding="utf-8")
                done = run("audit", name, *words.split())
                assert name.removesuffix(".json") in done.out.replace("%3A", ":")
                out = re.sub(r"a(:|%3A)b", "a_b", done.out)
                told.append(re.sub(r'"clockhands/1": "\w+"', "", out))  # a hash of the name
            assert told[0] == told[1]
            assert Path("a:b.fixed.json").exists() == (words == "--fix")


def test_what_cannot_be_read_is_told_in_sarif_too(run, written):
    document, done = sarif(run, written["sound"], "missing.json")
    pydantic.Sarif.model_validate(document)
    (invocation,) = document["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is False
    assert "missing.json does not exist" in invocation["toolExecutionNotifications"][0]["message"]["text"]
    assert done.code == 2


def test_a_preset_has_no_file_to_point_at(run):
    document, _ = sarif(run, "llama2", "--length", "100")
    assert document["runs"][0]["results"], "the length leaves pairs that never turn"
    assert all("locations" not in each for each in document["runs"][0]["results"])


def test_annotations_are_one_command_a_line_and_nothing_ends_one_early(run, written):
    done = run("audit", *written.values(), "missing.json", "--format", "github", "--verbose")
    lines = done.out.splitlines()
    findings = [finding for path in written.values() for finding in ch.audit(path).findings]
    assert len(lines) == len(findings) + 1
    command = re.compile(r"::(error|warning|notice) [a-z]+=[^,:\n]*(,[a-z]+=[^,:\n]*)*::[^\x00-\x1f\u202e]+")
    for line in lines:
        assert command.fullmatch(line), line
    severities = {"error": "error", "warning": "warning", "note": "notice"}
    for line, finding in zip(lines, findings, strict=False):
        assert line.startswith(f"::{severities[finding.severity]} ")
        assert f"title={finding.code}" in line
    assert lines[-1].startswith("::error title=unreadable::missing.json")


def described(schema, document, root, where="$"):
    """Keys of a document that its schema does not describe."""
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    if isinstance(document, dict):
        known = schema.get("properties", {})
        for key, value in document.items():
            if key in known:
                yield from described(known[key], value, root, f"{where}.{key}")
            elif not isinstance(schema.get("additionalProperties"), dict | bool):
                yield f"{where}.{key}"
    elif isinstance(document, list):
        for value in document:
            yield from described(schema.get("items", {}), value, root, f"{where}[]")


def test_json_is_what_the_published_schema_says(run, written, cases):
    schema = json.loads((DOCS / "audit.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    for words in (["sound"], list(CONFIGS), ["sound", "missing"]):
        with cases(words):
            document = json.loads(run("audit", *[written.get(word, word) for word in words], "--json").out)
            jsonschema.Draft202012Validator(schema).validate(document)
            assert not list(described(schema, document, schema))
    for path, value in (["schema"], 2), (["targets", 0, "findings", 0, "severity"], "grave"), (["targets"], None):
        with cases("the schema can fail", path):
            wrong = holder = copy.deepcopy(document)
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = value
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.Draft202012Validator(schema).validate(wrong)


def test_explain_tells_every_code(run):
    listed = run("explain")
    assert listed.code == 0
    # A fault that needs several lines goes on further in.
    first = [line.split()[0] for line in listed.out.splitlines() if line and not line.startswith(" ")]
    assert first == ["Findings", *CODES, "Faults", *FAULTS]
    told = json.loads(run("explain", "--json").out)
    assert [each["sees"] for each in told["symptoms"]] == [each.sees for each in SYMPTOMS]
    assert [each["code"] for each in told["findings"]] == list(CODES)
    assert [each["code"] for each in told["faults"]] == list(FAULTS)
    for code in (*CODES, *FAULTS):
        done = run("explain", code)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith(code)
    told = json.loads(run("explain", "buffer-unscaled", "--json").out)  # a code of both
    assert len(told["findings"]) == len(told["faults"]) == 1
    assert told["findings"][0]["hint"] == told["faults"][0]["hint"]
    assert told["symptoms"] == []
    found = run("explain", "wrong", "with", "padding")
    assert (found.code, found.err) == (0, "")
    assert "clockhands check FILE.py:MODEL --kind generation" in found.out
    told = json.loads(run("explain", "wrong", "with", "padding", "--json").out)
    assert {"padding-shifts"} <= set(told["symptoms"][0]["codes"]) & {each["code"] for each in told["faults"]}
    assert run("explain", "qwertz", "asdf").code == 2


def test_a_baseline_leaves_out_what_is_known_and_nothing_else(run, written):
    path = written["a base that is impossible"]
    assert run("audit", path, "--write-baseline", "known.json").code == 1
    again = run("audit", path, "--baseline", "known.json")
    assert again.code == 0
    assert "left out that known.json knows" in again.err
    assert "No new problems (1 known)" in again.out
    (problem,) = json.loads(run("audit", path, "--json").out)["targets"][0]["findings"][:1]
    assert "No other problems (1 ignored)" in run("audit", path, "--ignore", problem["code"]).out
    # Written anew beside itself, a baseline keeps what it knows.
    before = Path("known.json").read_text(encoding="utf-8")
    assert run("audit", path, "--baseline", "known.json", "--write-baseline", "known.json").code == 0
    assert json.loads(Path("known.json").read_text(encoding="utf-8")) == json.loads(before)
    Path(path).write_text(json.dumps(LLAMA | {"rope_theta": -5}), encoding="utf-8")
    assert run("audit", path, "--baseline", "known.json").code == 1, "another value is another finding"
    other = written["a scaling"]
    assert run("audit", other, "--strict", "--baseline", "known.json").code == 1, "another file is another finding"


def test_progress_shows_on_a_terminal_when_there_are_many(run, monkeypatch):
    for count, shown in ((MANY, True), (MANY - 1, False)):
        terminal = io.StringIO()
        terminal.isatty = lambda: True
        real = audit._with_progress

        def on_a_terminal(targets, terminal=terminal, real=real):
            with contextlib.redirect_stderr(terminal):
                yield from real(targets)

        with monkeypatch.context() as patched:
            patched.setattr(audit, "_with_progress", on_a_terminal)
            done = run("audit", "--json", "--jobs", 1, *["alibi"] * count)
        assert done.code == 0
        assert ("auditing" in terminal.getvalue() and "100%" in terminal.getvalue()) == shown
        assert len(json.loads(done.out)["targets"]) == count, "the data stays whole"


@pytest.mark.slow
def test_pre_commit_takes_the_hook_and_runs_it(written, tmp_path):
    """In a repository of its own, with the command that is installed here in place of a download."""
    yaml = pytest.importorskip("yaml")
    root = DOCS.parent
    program = [sys.executable, "-m", "pre_commit"]
    manifest = root / ".pre-commit-hooks.yaml"
    subprocess.run([*program, "validate-manifest", str(manifest)], check=True)
    (hook,) = yaml.safe_load(manifest.read_text(encoding="utf-8"))
    (asked,) = yaml.safe_load(pasted("repos"))["repos"]
    assert asked["hooks"] == [{"id": hook["id"]}]
    hook |= {"entry": f"{sys.executable} -m {hook['entry']}", "language": "system"}
    config = tmp_path / ".pre-commit-config.yaml"
    config.write_text(json.dumps({"repos": [{"repo": "local", "hooks": [hook]}]}), encoding="utf-8")
    (tmp_path / "config.txt").write_text("{", encoding="utf-8")
    subprocess.run(["git", "init", "--quiet", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    environment = os.environ | {"PRE_COMMIT_HOME": str(tmp_path / "home")}

    def run_on(*files):
        command = [*program, "run", "--files", *files]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    sound = run_on(written["sound"], "config.txt")
    assert sound.returncode == 0, sound.stdout
    wrong = run_on(written["sound"], written["a base that is impossible"])
    assert wrong.returncode == 1
    assert "impossible-value" in wrong.stdout


def pasted(key):
    """The block of the page about audits that begins with this key."""
    blocks = re.findall(
        r"^```yaml\n(.*?)^```",
        (DOCS / "guides" / "audit-before-release.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    (block,) = [block for block in blocks if block.startswith(f"{key}:")]
    return block


@pytest.mark.slow
def test_the_workflow_of_the_page_annotates_a_wrong_model(tmp_path):
    yaml = pytest.importorskip("yaml")
    *_, step = yaml.safe_load(pasted("name"))["jobs"]["audit"]["steps"]
    command = step["run"].replace("clockhands", f"{sys.executable} -m clockhands", 1)
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"model_type": "llama", "rope_theta": -1}), encoding="utf-8")
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "::error file=model/config.json" in done.stdout
