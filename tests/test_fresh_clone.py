"""A fresh clone needs Python, git and make, and nothing else."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import extras
import release_check
from release_check import bare_environment


@pytest.mark.slow
def test_make_run_audits_a_real_model_in_a_fresh_clone(repository: Path, tmp_path: Path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(repository), str(clone)], check=True)
    environment = {**bare_environment(), "COLUMNS": "120"}
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
    # 2.65 MB: 1.84 of Python, 0.21 of JavaScript, 0.25 of JSON, 0.15 of TOML, 0.15 of lists of files, 0.03 of the
    # course. A file of weights would be far above.
    assert wheel.stat().st_size < 2_700_000
    assert max(each.compress_size for each in zipfile.ZipFile(wheel).infolist()) < 60_000


# Those that train are left to `make release-check`: their use is tested elsewhere, and they take a minute or more each.
@pytest.mark.slow
@pytest.mark.parametrize("extra", [each for each in release_check.EXTRAS if each not in ("lab", "ray")])
def test_the_wheel_with_an_extra_alone_does_what_the_extra_is_for(wheel: Path, tmp_path: Path, extra: str):
    """In an environment that has nothing else: no other framework, no test tool."""
    release_check.try_extra(wheel, extra, sys.executable, tmp_path / "environment")


def test_every_extra_has_a_use_that_is_tried():
    assert extras.SMOKE.keys() == release_check.EXTRAS.keys()


@pytest.mark.slow
def test_an_extra_that_brings_too_little_is_noticed(wheel: Path, tmp_path: Path):
    python = release_check.environment(sys.executable, tmp_path / "environment", str(wheel))
    with pytest.raises(RuntimeError, match="anywidget"):
        release_check.run(python, Path(extras.__file__), "notebook", "")
