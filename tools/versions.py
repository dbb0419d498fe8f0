"""Run a stated part of the tests with other releases of the libraries around clockhands: `make test-versions`.

`tests/releases/environments.toml` says which. Each environment is a folder of `.venv-versions` that holds only what
differs, over the environment of the tests, and is kept. `--write` puts what was run into `docs/releases.md`.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "releases" / "environments.toml"
DOCUMENT = ROOT / "docs" / "releases.md"
FOLDER = ROOT / ".venv-versions"
BEGIN, END = "<!-- rows: tools/versions.py -->", "<!-- end of rows -->"
# What an environment could bring in newer, and has to keep.
KEPT = ("torch", "numpy")


@dataclass(frozen=True)
class Environment:
    """One release of one library, with what is installed beside it and which tests are run.

    Attributes:
        library: Its name on PyPI.
        release: Its version; ``newest`` for the newest there is.
        beside: Other packages, in the same release.
        tests: What pytest is given.
        drawn: Whether CI may draw it.
        without_gpu: Whether its GPU libraries are left out and empty ones stand in their place.
    """

    library: str
    release: str
    tests: tuple[str, ...]
    beside: tuple[str, ...] = field(default=())
    drawn: bool = False
    without_gpu: bool = False

    @property
    def name(self) -> str:
        """As the table and the command line name it."""
        return f"{self.library}-{self.release}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return FOLDER / self.name / "bin" / "python"

    def install(self) -> None:
        """Make it, unless it is there.

        Raises:
            RuntimeError: Its packages cannot be installed; with pip's output.
        """
        exact = "" if self.release == "newest" else f"=={self.release}"
        wanted = [f"{name}{exact}" for name in (self.library, *self.beside)]
        stamp = FOLDER / self.name / "installed"
        if stamp.exists() and stamp.read_text(encoding="utf-8") == "\n".join(wanted) and self.release != "newest":
            return
        _run(sys.executable, "-m", "venv", "--without-pip", "--clear", FOLDER / self.name)
        (site,) = (FOLDER / self.name / "lib").glob("python*/site-packages")
        below = next(each for each in sys.path if each.endswith("site-packages"))
        (site / "tests.pth").write_text(f"{below}\n", encoding="utf-8")
        # pip sees the packages below as well: it installs what a release needs otherwise, and nothing else.
        kept = [f"{name}=={version_of(self.python, name)}" for name in KEPT if name != self.library]
        more = ["--no-deps"] if self.without_gpu else kept
        _run(self.python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--upgrade", *wanted, *more)
        if self.without_gpu:
            stand_in(site / "torch" / "lib")
        stamp.write_text("\n".join(wanted), encoding="utf-8")

    def run(self) -> tuple[bool, str, list[str]]:
        """Run its tests: whether all passed, how many did, and why others were left out."""
        results = FOLDER / self.name / "results.xml"
        results.unlink(missing_ok=True)
        hidden = ("CI", "EXPECT_")
        own = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        own["PYTHONPATH"] = str(ROOT / "src")  # the package itself: what a .pth file below names is not read
        command = (self.python, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", f"--junitxml={results}")
        done = subprocess.run([*command, *self.tests], cwd=ROOT, env=own, capture_output=True, text=True, check=False)
        if not results.exists():
            return False, done.stdout + done.stderr, []
        cases = ET.parse(results).getroot().iter("testcase")
        skipped, passed = [], 0
        for case in cases:
            reason = case.find("skipped")
            passed += not [each for each in case if each.tag in ("skipped", "failure", "error")]
            if reason is not None:
                skipped.append(reason.get("message", ""))
        if done.returncode:
            return False, done.stdout[-6000:], skipped
        return True, str(passed), list(dict.fromkeys(skipped))


def environments() -> list[Environment]:
    """All that are listed."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return [
        Environment(
            library, release, tuple(given["tests"]), tuple(given.get("beside", ())), given.get("drawn", False),
            given.get("without_gpu", False),
        )
        for library, given in listed.items() for release in given["releases"]
    ]  # fmt: skip


def version_of(python: str | Path, name: str) -> str:
    """The version that an interpreter has of a package."""
    return _run(python, "-c", f"from importlib.metadata import version; print(version({name!r}))").strip()


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def stand_in(folder: Path) -> None:
    """Put libraries that do nothing in place of the GPU libraries that a build of PyTorch loads at its import.

    Every function of theirs that PyTorch calls returns 100, "no device", so that it computes on the CPU.
    """
    asked: dict[str, dict[str, set[str]]] = {}
    needed: set[str] = set()
    unversioned: set[str] = set()
    for file in folder.glob("*.so*"):
        needed |= set(re.findall(r"NEEDED.*\[(.+?)\]", _run("readelf", "-d", file)))
        libraries: dict[str, str] = {}
        library = ""
        for line in _run("readelf", "-V", file).splitlines():
            if found := re.search(r"File: (\S+)", line):
                library = found[1]
            elif found := re.search(r"Name: (\S+)\s+Flags", line):
                libraries[found[1]] = library
        names = re.findall(r" [Uw] (\S+?)(?:@(\S+))?$", _run("nm", "-D", "--undefined-only", file), re.MULTILINE)
        for name, version in names:
            if version in libraries:
                asked.setdefault(libraries[version], {}).setdefault(version, set()).add(name)
            elif re.match(r"(cu|nccl|nv)[A-Za-z]*[A-Z_]", name):
                unversioned.add(name)  # of which library is not said: each has it
    of_system = re.compile(r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so|ld-linux")
    present = {file.name for file in folder.iterdir()}
    for library in needed - present:
        if of_system.match(library):
            continue
        versions = asked.get(library, {})
        functions = unversioned.union(*versions.values())
        source, script = folder / "stand_in.c", folder / "stand_in.map"
        source.write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in sorted(functions)))
        script.write_text("".join(f"{each} {{ global: {'; '.join(sorted(of))}; }};\n" for each, of in versions.items()))
        exported = [f"-Wl,--version-script={script}"] if versions else []
        _run("gcc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{library}", *exported, "-o", folder / library, source)
        source.unlink()
        script.unlink()


def write(rows: dict[str, str]) -> None:
    """Put rows of the table into the document, in the order of the list; rows that were not run stay."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    known = {line.split("|")[1].strip(" `"): line for line in old.splitlines() if line.startswith("| `")} | rows
    kept = [known[each.name] for each in environments() if each.name in known]
    DOCUMENT.write_text(f"{before}{BEGIN}\n{chr(10).join(kept)}\n{END}{after}", encoding="utf-8")


def main() -> int:
    """Run environments, one line for each; 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="environments, such as transformers-4.57.6 (default: all)")
    parser.add_argument("--drawn", action="store_true", help="one of those that CI may draw, at random")
    parser.add_argument("--write", action="store_true", help="put the rows into docs/releases.md")
    given = parser.parse_args()
    known = {each.name: each for each in environments()}
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = [known[name] for name in given.names] or list(known.values())
    if given.drawn:
        chosen = [random.choice([each for each in known.values() if each.drawn])]
    failed, rows = 0, {}
    for each in chosen:
        print(f"{each.name}: ", end="", flush=True)
        each.install()
        sound, says, left_out = each.run()
        failed += not sound
        if not sound:
            print(f"failed; repeat with VERSIONS={each.name}\n{says}", flush=True)
            continue
        named = dict.fromkeys((each.library, *KEPT))
        versions = ", ".join(f"{name} {version_of(each.python, name)}" for name in named)
        print(f"{says} tests passed with {versions}", *left_out, sep="\n  left out: ", flush=True)
        rows[each.name] = f"| `{each.name}` | {versions} | {says} | {'; '.join(left_out) or 'nothing'} |"
    if given.write:
        write(rows)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
