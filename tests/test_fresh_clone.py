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


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(repository: Path, tmp_path: Path):
    """Data files too: presets and class defaults are read at run time."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(tmp_path),
        str(repository),
    ]
    subprocess.run(command, check=True, capture_output=True, env=bare_environment())
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("clockhands/")}
    tracked = subprocess.run(
        ["git", "ls-files", "src/clockhands"], cwd=repository, capture_output=True, text=True, check=True
    ).stdout.split()
    assert {str(Path(name).relative_to("src")) for name in tracked} <= held
    assert "clockhands/py.typed" in held
