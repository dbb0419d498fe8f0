"""What the documents show runs, and what they name is there."""

import contextlib
import doctest
import importlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

import readme_picture
from clockhands.cli import main
from clockhands.measures.adding import drawn_tokens
from conftest import BACKENDS, expected_backends

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
FIRST_STEPS = ROOT / "docs" / "first-steps.md"
LONGEST = 700  # words of the README
DOCUMENTS = [path for path in (README, ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")) if path.is_file()]
BLOCK = re.compile(r"^```(?P<language>\w*)(?P<note>[^\n]*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
# A block that is not run says so: ```sh (not run: why)
NOT_RUN = "(not run:"
# A block that the others need as a file says its name: ```python (saved as name.py)
SAVED = re.compile(r"\(saved as (?P<name>[\w.]+)\)")


def test_each_promise_of_the_security_policy_names_tests_that_are_there():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| (?!promise|-)(.+?) \| (.+) \|$", text)
    assert len(rows) > 10
    for promise, tests in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests)
        assert named, promise
        assert re.sub(r"`[^`]+`|, ", "", tests) == "", f"names only: {tests}"
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{test}"


def blocks(document: Path, *languages: str) -> list[tuple[int, str]]:
    """Code blocks that are to be run, each with the line it starts at."""
    text = document.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, found.start()) + 1, found["text"])
        for found in BLOCK.finditer(text)
        if found["language"] in languages and NOT_RUN not in found["note"] and not SAVED.search(found["note"])
    ]


def save_files(document: Path, folder: Path) -> None:
    """Save the blocks of a document that are files."""
    for found in BLOCK.finditer(document.read_text(encoding="utf-8")):
        if saved := SAVED.search(found["note"]):
            (folder / saved["name"]).write_text(found["text"], encoding="utf-8")


def run_python(document: Path, folder: Path) -> int:
    """Run a document's Python blocks as one session, doctest prompts included; how many examples there were.

    A plain block is run as it stands, and ``print(...)  # text`` must print that text.
    """
    namespace: dict[str, object] = {"__name__": "document"}
    count = 0
    save_files(document, folder)
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        for line, text in blocks(document, "python", "pycon"):
            where = f"{document.name}:{line}"
            if ">>>" in text:
                parsed = doctest.DocTestParser().get_doctest(text, namespace, where, str(document), line)
                report = io.StringIO()
                runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
                # the session goes on in the next block
                failed, tried = runner.run(parsed, out=report.write, clear_globs=False)
                namespace.update(parsed.globs)
                assert not failed, report.getvalue()
                count += tried
                continue
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * line + text, str(document), "exec"), namespace)
            expected = re.findall(r"^print\(.*\)\s+# (.*)$", text, re.MULTILINE)
            for sentence in expected:
                assert sentence in printed.getvalue(), f"{where} says {sentence!r}; it prints {printed.getvalue()!r}"
            count += 1
    return count


@pytest.mark.parametrize("document", [README, FIRST_STEPS], ids=lambda path: path.stem)
def test_the_first_pages_show_python_that_runs(tmp_path: Path, document: Path):
    assert run_python(document, tmp_path) > 0


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8").split()) <= LONGEST


def test_the_picture_of_the_readme_is_what_its_tool_draws():
    written = readme_picture.PICTURE.read_text(encoding="utf-8")
    assert written == readme_picture.picture(), "run `python tools/readme_picture.py`"


def run_python_of(documents: Iterable[Path], folder: Path, cases) -> None:
    """Run the Python blocks of documents that need PyTorch and Transformers, each in a folder of its own."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    for number, document in enumerate(documents):
        own = folder / str(number)
        own.mkdir()
        with cases(document.relative_to(ROOT)):
            run_python(document, own)


# They train, compile, or check many functions: 2 to 4 s each.
LONG = [ROOT / "docs" / name for name in ("probing.md", "checking.md", "guides/frameworks.md")]
FLEX = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")  # the text says so


@FLEX
def test_python_blocks_run(tmp_path: Path, cases):
    run_python_of([document for document in DOCUMENTS if document not in (README, FIRST_STEPS, *LONG)], tmp_path, cases)


@FLEX
@pytest.mark.slow
def test_python_blocks_of_long_documents_run(tmp_path: Path, cases):
    run_python_of(LONG, tmp_path, cases)


def test_examples_in_docstrings_print_what_they_say(cases):
    """Not by pytest's own collection of doctests: it looks at every object of 850 files in each process, for 16 s."""
    source = ROOT / "src"
    tried = 0
    for path in sorted(source.rglob("*.py")):
        if ">>>" not in path.read_text(encoding="utf-8"):
            continue
        name = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name in BACKENDS and error.name not in expected_backends():
                continue  # what needs a library that is not here
            raise
        report = io.StringIO()
        runner = doctest.DocTestRunner(verbose=False)
        for example in doctest.DocTestFinder().find(module, name):
            with cases(example.name):
                failed, examples = runner.run(example, out=report.write)
                tried += examples
                assert not failed, report.getvalue()
    assert tried > 100


def test_a_wrong_block_fails(tmp_path: Path, cases):
    document = tmp_path / "wrong.md"
    for block in ("raise ValueError('wrong')", ">>> 1 + 1\n3", "print(1 + 1)  # 3"):
        document.write_text(f"```python\n{block}\n```\n", encoding="utf-8")
        with cases(block), pytest.raises((AssertionError, ValueError)):
            run_python(document, tmp_path)


def commands(document: Path) -> list[tuple[int, str]]:
    """Lines of shell blocks that call clockhands, continued lines joined."""
    return [
        (line, command.strip().removeprefix("$ "))
        for line, text in blocks(document, "sh", "bash", "console")
        for command in text.replace("\\\n", " ").splitlines()
        if command.strip().removeprefix("$ ").startswith("clockhands ")
    ]


def run_command(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    beside = Path(sys.executable).with_name("clockhands")
    program = str(beside) if beside.exists() else shutil.which("clockhands")
    assert program, "the script `clockhands` is not installed"
    line = command.split("#", maxsplit=1)[0].replace("clockhands", shlex.quote(program), 1)
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80"}
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def run_command_here(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The same in this process, for a command without pipes: each new one takes a second to import the package."""
    _, *words = shlex.split(command, comments=True)
    with contextlib.chdir(folder):
        done = CliRunner().invoke(main, words, env={"NO_COLOR": "1", "COLUMNS": "80"})
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def run_commands(documents: list[Path], folder: Path, cases, run=run_command) -> dict[str, str]:
    """Run what shell blocks show, each document in a folder of its own; what each command printed."""
    printed = {}
    for number, document in enumerate(documents):
        own = folder / str(number)
        own.mkdir()
        save_files(document, own)
        for line, command in commands(document):
            with cases(f"{document.relative_to(ROOT)}:{line}", command):
                done = run(command, own)
                assert done.returncode == 0, f"{done.stdout}{done.stderr}"
                printed[command] = done.stdout
    return printed


def test_commands_of_the_first_pages_run_and_print_what_they_show(
    tmp_path: Path, cases, monkeypatch: pytest.MonkeyPatch
):
    # What adding does is measured for one width and one small vocabulary: the whole takes seconds.
    monkeypatch.setattr(drawn_tokens, "adding_measured", partial(drawn_tokens.adding_measured, (16,), (1_000,)))
    printed = run_commands([README, FIRST_STEPS], tmp_path, cases, run_command_here)
    identified = [out for command, out in printed.items() if command.startswith("clockhands identify table.npy")]
    assert identified, "the first steps make no table to identify"
    excerpts = [text for _, text in blocks(FIRST_STEPS, "text") if text.startswith("table.npy")]
    assert excerpts, "the first steps show nothing identified"
    for text in excerpts:
        assert text.strip() in identified[-1]


@pytest.mark.slow
def test_commands_of_every_document_run(tmp_path: Path, cases):
    run_commands(DOCUMENTS, tmp_path, cases)


def test_make_targets_in_documents_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    named = {
        name
        for document in DOCUMENTS
        for name in re.findall(r"\bmake ([a-z][a-z-]*)\b(?=[`\n]|\s+#)", document.read_text(encoding="utf-8"))
    }
    assert named, "the documents name no make target"
    assert named <= targets


def test_the_report_that_the_readme_shows_is_the_real_one(tmp_path: Path):
    """The beginning of the report on the faulty copy of a real config, which `make run` makes, line by line."""
    subprocess.run([sys.executable, str(ROOT / "tools" / "packaged_model.py"), "demo"], cwd=tmp_path, check=True)
    done = run_command("clockhands audit demo", tmp_path)
    assert done.returncode == 0, done.stderr
    excerpts = [text for _, text in blocks(README, "text") if text.startswith("1 problem")]
    assert excerpts, "the README shows no report"
    for text in excerpts:
        assert text.strip() in done.stdout, f"the README shows\n{text}\nbut the command prints\n{done.stdout}"


def test_the_changelog_knows_this_version():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "(.+)"$', project, re.MULTILINE)
    assert version
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{version[1]}]" in changelog or "## [Unreleased]" in changelog


def test_the_index_names_every_page():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    missing = [path.name for path in (ROOT / "docs").iterdir() if path.is_file() and f"({path.name})" not in index]
    assert missing == ["README.md"]


@pytest.mark.parametrize("folder", ["course", "guides"])
def test_the_index_of_a_folder_names_every_page(folder: str):
    pages = ROOT / "docs" / folder
    index = (pages / "index.md").read_text(encoding="utf-8")
    missing = [path.stem for path in pages.glob("*.md") if not re.search(rf"\b{path.stem}\b", index)]
    assert missing in ([], ["index"])


def test_every_finding_and_every_fault_is_in_its_document():
    maker = importlib.import_module("findings_document")
    assert maker.DOCUMENT.read_text(encoding="utf-8") == maker.document(), "run tools/findings_document.py"
    maker = importlib.import_module("checking_document")
    written = maker.DOCUMENT.read_text(encoding="utf-8")
    assert written == maker.document(written), "run tools/checking_document.py"
    assert maker.document(written.replace("| `positions-rounded` |", "| `positions-round` |")) == written
