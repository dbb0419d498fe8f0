"""A fresh clone needs Python, git and make, and nothing else."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


def bare_environment() -> dict[str, str]:
    """What a new shell has: nothing of the environment that runs this test."""
    hidden = ("PYTHON", "VIRTUAL_ENV", "PYTEST", "MAKE", "MFLAGS", "COVERAGE", "EXPECT_")
    return {key: value for key, value in os.environ.items() if not key.startswith(hidden)}


@pytest.mark.slow
def test_make_run_audits_a_real_model_in_a_fresh_clone(repository: Path, tmp_path: Path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(repository), str(clone)], check=True)
    environment = {**bare_environment(), "NO_COLOR": "1", "COLUMNS": "120"}
    for attempt in ("first", "second"):
        done = subprocess.run(
            ["make", "run"], cwd=clone, env=environment, capture_output=True, text=True, check=False, timeout=900
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "vaswani2017" in done.stdout
        assert "SmolLM2" in done.stdout
        assert re.search(r"interleaved", done.stdout)
        assert re.search(r"100,?000", done.stdout), "the base of the real model's ladder"
        installs = "pip" in done.stderr + done.stdout
        assert installs == (attempt == "first"), "a second run installs nothing"
    left = subprocess.run(
        ["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True
    ).stdout
    assert left == "", "what a run leaves behind is ignored by git"
    python = clone / ".venv" / "bin" / "python"
    heavy = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
    assert heavy.returncode != 0, "running needs no framework"


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, repository]
    subprocess.run(command, check=True, capture_output=True, env=bare_environment())
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(repository: Path, wheel: Path):
    """Data files too: presets and class defaults are read at run time."""
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("clockhands/")}
    tracked = subprocess.run(
        ["git", "ls-files", "src/clockhands"], cwd=repository, capture_output=True, text=True, check=True
    ).stdout.split()
    assert {str(Path(name).relative_to("src")) for name in tracked} <= held
    assert "clockhands/py.typed" in held
    assert wheel.stat().st_size < 2_000_000


@pytest.mark.slow
def test_the_wheel_alone_runs_the_readme_and_the_commands(repository: Path, wheel: Path, tmp_path: Path):
    """In an environment that has nothing else: no framework, no test tool."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, env=bare_environment())
    bin_ = folder / "bin"
    constraints = ["--constraint", repository / "constraints.txt"]
    install = [bin_ / "python", "-m", "pip", "install", "--quiet", *constraints, wheel]
    subprocess.run(install, check=True, capture_output=True, env=bare_environment())

    def run(*command: str, expected: int = 0) -> str:
        done = subprocess.run(
            [bin_ / command[0], *command[1:]],
            cwd=tmp_path,
            env={**bare_environment(), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == expected, done.stdout + done.stderr
        return done.stdout

    readme = re.findall(
        r"^```python\n(.*?)^```", (repository / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    ran = 0
    for block in readme:
        if "torch" not in block and "jax" not in block:
            run("python", "-c", block)
            ran += 1
    assert ran >= 2
    assert (tmp_path / "config.json").exists(), "a block of the README writes it"
    assert "RoPE" in run("clockhands", "audit", "config.json")
    assert "62,832" in run("clockhands", "claims", "slowest-wavelength-62832")
    run("clockhands", "explore", "vaswani2017", "--out", "explorer.html")
    assert "<html" in (tmp_path / "explorer.html").read_text(encoding="utf-8")[:1000]
    assert "probe" in run("python", "-c", "import clockhands; help(clockhands)")
