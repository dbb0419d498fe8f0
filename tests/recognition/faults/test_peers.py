"""Libraries' own code: what is wrong in it is found and named, what is right passes, and the document shows both."""

import contextlib
import importlib.metadata
import os
import re
import warnings
from pathlib import Path

import pytest

from recognition.faults.peer_defects import DEFECTS, OTHERWISE, RIGHT, report_of

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.slow

by_name = {"ids": lambda peer: peer.name.replace(" ", "-")}


@pytest.fixture(autouse=True, scope="module")
def peers():
    """Keras on PyTorch; what libraries warn of when they are imported is theirs."""
    for name in ("torch", "jax"):
        pytest.importorskip(name)
    before = os.environ.setdefault("KERAS_BACKEND", "torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in ("equinox", "keras", "x_transformers.x_transformers"):
            with contextlib.suppress(ImportError):
                __import__(module)
    yield
    if before != "torch":
        os.environ["KERAS_BACKEND"] = before


def installed(peer):
    try:
        importlib.metadata.version(peer.library)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{peer.library} is not installed: make test-slow installs it")


@pytest.fixture(scope="module")
def document():
    import defects_document

    return defects_document


@pytest.mark.parametrize("peer", DEFECTS, **by_name)
def test_a_defect_is_found_and_named(peer):
    installed(peer)
    report = report_of(peer.name)
    assert report.codes & set(peer.codes), str(report)
    told = " ".join(one.message for one in report.explanations)
    assert [word for word in peer.words if word not in told] == [], told


@pytest.mark.parametrize("peer", RIGHT, **by_name)
def test_what_is_right_passes(peer):
    installed(peer)
    report = peer.run()
    assert report.sound, str(report)


@pytest.mark.parametrize("other", OTHERWISE, **by_name)
def test_what_no_check_of_a_function_shows_is_said_otherwise(other):
    installed(other)
    told = other.say()
    assert [word for word in other.words if word not in told] == [], told


def entries(document):
    text = document.DOCUMENT.read_text(encoding="utf-8")
    return text, list(document.LINES.finditer(text)), [found["name"] for found in document.CHECK.finditer(text)]


def test_every_defect_has_its_entry_and_its_lines(document):
    text, lines, checked = entries(document)
    assert checked == sorted(set(checked), key=checked.index)
    assert set(checked) == {one.name for one in (*DEFECTS, *OTHERWISE)}
    assert len(lines) == text.count("\n### ") == text.count("```python (not run:")
    sections = text.split("\n### ")[1:]
    assert [section[:40] for section in sections if "```python" not in section or "<!-- check" not in section] == []
    assert max(len(found["code"].splitlines()) for found in lines) <= 6
    assert "clockhands" not in "".join(found["code"] for found in lines)


def test_an_entry_names_the_version_that_is_pinned():
    pinned = dict(
        line.lower().split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    )
    text = (ROOT / "docs" / "defects-in-libraries.md").read_text(encoding="utf-8")
    named = re.findall(r"^### ([\w-]+) ([\d.]+):", text, re.MULTILINE)
    assert len(named) == text.count("\n### ")
    assert [(name, version) for name, version in named if pinned[name.lower()] != version] == []


@pytest.mark.filterwarnings("ignore")  # what a library warns of when it is used as its users use it is not ours
def test_the_document_is_what_is_printed_and_said_now(document):
    for one in (*DEFECTS, *OTHERWISE):
        installed(one)
    text = document.DOCUMENT.read_text(encoding="utf-8")
    assert document.refreshed(text) == text, "run `KERAS_BACKEND=torch .venv/bin/python tools/defects_document.py`"


def test_what_is_printed_otherwise_is_noticed(document):
    text = "```python (not run: here)\nprint(1 + 1)\n```\n\n```text\n3\n```\n"
    assert document.refreshed(text) == text.replace("3", "2")
