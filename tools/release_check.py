"""Build the wheel and the source archive, and try them with each extra on each Python: `make release-check`.

Both are built twice, from clones made at different times, and have to be the same to the byte; so has the wheel that
is built from the source archive. They are built with files whose hashes are in constraints-hashed.txt, and so is what
the wheel alone needs. Then each extra is installed from the wheel, with the versions of constraints.txt, into an
environment of its own, where `tools/extras.py` puts it to its main use.

On Linux, PyTorch from PyPI brings gigabytes of CUDA packages. Where pip would install those, extras with PyTorch are
passed over, and the table says so; `--cuda` installs them.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from pathlib import Path

import packaged_model

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_DEVELOPERS = {"bench", "docs", "lint", "mutation", "peers", "test"}
EXTRAS = {"none": [], **{k: v for k, v in PROJECT["optional-dependencies"].items() if k not in FOR_DEVELOPERS}}
"""What the extras that users install consist of; `none` is the wheel alone."""
CONSTRAINTS = ("--constraint", str(ROOT / "constraints.txt"))
HASHED = ("--require-hashes", "--requirement", str(ROOT / "constraints-hashed.txt"))
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def bare_environment() -> dict[str, str]:
    """What a new shell has: nothing of the environment that runs this."""
    hidden = ("PYTHON", "VIRTUAL_ENV", "PYTEST", "MAKE", "MFLAGS", "COVERAGE", "EXPECT_", "CI")
    return {key: value for key, value in os.environ.items() if not key.startswith(hidden)} | {"NO_COLOR": "1"}


def run(*command: str | Path, **more: object) -> str:
    """What a program prints; if it fails, an error with all of it."""
    done = subprocess.run(command, env=bare_environment(), capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(python: str | Path, folder: Path, *packages: str, how: tuple[str, ...] = CONSTRAINTS) -> Path:
    """The Python of a new environment, or of one that was made before, that holds these packages and what they need."""
    run(python, "-m", "venv", "--without-pip", folder)
    # The pip of this environment installs into the other: a third of the time, and no pip of its own.
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", folder / "bin" / "python")
    run(*pip, "install", "--quiet", "--no-compile", *how, *packages)
    return folder / "bin" / "python"


def try_extra(wheel: Path, extra: str, python: str | Path, folder: Path) -> None:
    """Install the wheel with one extra into a new environment, and put it to its main use.

    Raises:
        RuntimeError: It cannot be installed, or its use failed; with the output.
    """
    if extra == "none":
        environment(python, folder, *HASHED, how=())
        made = environment(python, folder, str(wheel), how=("--no-deps",))
    else:
        made = environment(python, folder, f"{wheel}[{extra}]")
    run(made, ROOT / "tools" / "extras.py", extra, packaged_model.packaged_model(), cwd=folder)


def build(folder: Path) -> dict[str, str]:
    """Build everything twice from clones, and the wheel from the source archive too; the SHA-256 of each file by name.

    Raises:
        RuntimeError: Two builds differ.
    """
    hatchling = environment(sys.executable, folder / "builder", *HASHED, how=())
    sums: list[dict[str, str]] = []
    for number in ("first", "second"):
        clone, out = folder / f"{number} clone", folder / number
        run("git", "clone", "--quiet", ROOT, clone)
        if sums:  # what is not in a commit must not show: the time and the mode of a file
            for file in clone.rglob("*"):
                if file.is_file() and ".git" not in file.parts:
                    os.utime(file, (10**9, 10**9))
                    file.chmod(0o600)
        run(hatchling, "-m", "hatchling", "build", "-d", out, cwd=clone)
        sums.append({file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(out.iterdir())})
    (archive,) = (folder / "first").glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder / "unpacked", filter="data")
    run(
        hatchling,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        folder / "third",
        cwd=next((folder / "unpacked").iterdir()),
    )
    (again,) = (folder / "third").iterdir()
    sums.append(sums[0] | {again.name: hashlib.sha256(again.read_bytes()).hexdigest()})
    if not sums[0] == sums[1] == sums[2]:
        raise RuntimeError(f"Two builds of one commit differ: {sums}")
    return sums[0]


def found_pythons() -> list[str]:
    """The Pythons on the path, one of each version that is promised to work."""
    found = []
    for version in VERSIONS:
        try:
            run(f"python{version}", "-c", "")
            found.append(f"python{version}")
        except (OSError, RuntimeError):
            print(f"Python {version}: not found on the path", flush=True)
    return found


def brings_cuda(python: str, folder: Path) -> bool:
    """Whether pip would install CUDA packages with PyTorch for this Python."""
    run(python, "-m", "venv", "--without-pip", folder)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", folder / "bin" / "python")
    report = run(*pip, "install", "--dry-run", "--quiet", "--report", "-", *CONSTRAINTS, "torch")
    return any(one["metadata"]["name"].startswith("nvidia") for one in json.loads(report)["install"])


def main() -> int:
    """Check all of it, one line for each step; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pythons", nargs="*", help="Pythons to try (default: those on the path)")
    parser.add_argument("--cuda", action="store_true", help="install PyTorch also where it brings CUDA packages")
    parser.add_argument("--extra", action="append", choices=EXTRAS, help="only these extras")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keep the wheel and the source archive here")
    given = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, digest in build(folder).items():
            print(f"{file}: the same in all builds, {(folder / 'first' / file).stat().st_size:,} bytes, {digest}")
        if given.out is not None:
            shutil.copytree(folder / "first", given.out, dirs_exist_ok=True)
        (wheel,) = (folder / "first").glob("*.whl")
        for place, python in enumerate(given.pythons or found_pythons()):
            version = run(python, "-c", "import platform; print(platform.python_version())").strip()
            cuda = not given.cuda and brings_cuda(python, folder / f"cuda {place}")
            for extra in given.extra or EXTRAS:
                began, said = time.monotonic(), "passed"
                if cuda and any(each.startswith("torch") for each in EXTRAS[extra]):
                    said = "not tried: for this Python, pip installs PyTorch with CUDA packages (--cuda allows it)"
                else:
                    with tempfile.TemporaryDirectory(dir=folder) as inside:
                        try:
                            try_extra(wheel, extra, python, Path(inside) / "environment")
                        except RuntimeError as error:
                            said, failed = f"FAILED\n{error}", failed + 1
                print(f"Python {version}, {extra}: {said} ({time.monotonic() - began:.0f} s)", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
