"""What is promised (bounds) and what is tested (exact versions) belong together."""

import re
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import pytest
import yaml


def pins(file: Path) -> dict[str, str]:
    """Exact versions by normalised name."""
    lines = [line.split("#")[0].strip() for line in file.read_text(encoding="utf-8").splitlines()]
    pairs = [line.split("==") for line in lines if line]
    return {normal(name): number for name, number in pairs}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def project(repository: Path) -> dict:
    return tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def bounds(requirements: list[str]) -> dict[str, str]:
    found = {}
    for requirement in requirements:
        name, _, least = requirement.partition(">=")
        name = re.sub(r"\[[\w,-]+\]$", "", name)  # an extra of the package, such as ray[train]
        assert re.fullmatch(r"[\w.-]+", name), f"only a lower bound, if any: {requirement}"
        found[normal(name)] = least
    return found


def test_everything_that_is_installed_is_pinned(repository: Path, project: dict):
    pinned = pins(repository / "constraints.txt")
    asked = bounds(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        asked |= bounds(extra)
    assert set(asked) - set(pinned) == set()


def test_the_oldest_versions_are_the_lower_bounds(repository: Path, project: dict):
    oldest = pins(repository / "constraints-oldest.txt")
    for name, least in bounds(project["dependencies"]).items():
        assert re.sub(r"(\.0)+$", "", oldest[name]) == least, f"{name}: {oldest[name]} is tested, {least} is promised"


def test_what_builds_and_runs_a_release_is_pinned_by_hashes(repository: Path, project: dict):
    """All of it: pip refuses a file of hashes that lacks a package that another one needs."""
    text = (repository / "constraints-hashed.txt").read_text(encoding="utf-8")
    assert "//" not in text, "no address of an index"
    block = r"(?m)^([\w.-]+)==([\w.]+)(?: ;.*)? \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+"
    hashed = {normal(name): number for name, number in re.findall(block, text)}
    assert re.sub(r"(?m)^#.*\n", "", re.sub(block, "", text)) == "", "nothing else is in it"
    pinned = pins(repository / "constraints.txt")
    assert {name: number for name, number in hashed.items() if pinned.get(name, number) != number} == {}
    build = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    left = [*bounds(project["dependencies"]), *bounds(build)]
    for name in left:
        assert name in hashed
        with suppress(PackageNotFoundError):  # what only builds is not installed here
            needed = [each for each in requires(name) or () if ";" not in each]
            left += {normal(re.split(r"[^\w.-]", each)[0]) for each in needed}.difference(left)


@pytest.mark.parametrize("name", ["pytest", "hypothesis", "pytest-randomly", "mpmath"])
def test_this_run_uses_the_pinned_tools(repository: Path, name: str):
    assert version(name) == pins(repository / "constraints.txt")[name]


def test_workflows_pin_actions_by_hash_may_only_read_and_call_what_exists(repository: Path):
    files = sorted((repository / ".github" / "workflows").glob("*.yml"))
    assert [file.stem for file in files] == ["nightly", "push", "release"]
    targets = set(re.findall(r"^([a-z][a-z-]*):", (repository / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for file in files:
        text = file.read_text(encoding="utf-8")
        used = re.findall(r"uses: (\S+)(.*)", text)
        assert used
        for action, tag in used:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action), action
            assert re.fullmatch(r" # v[\d.]+", tag), tag
        workflow = yaml.safe_load(text)
        assert workflow["permissions"] == {"contents": "read"}
        assert all("permissions" not in job and job["timeout-minutes"] for job in workflow["jobs"].values())
        assert set(re.findall(r"\bmake ([a-z-]+)", re.sub(r"#.*", "", text))) <= targets
