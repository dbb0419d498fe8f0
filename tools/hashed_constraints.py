"""Write `constraints-hashed.txt`: what builds and runs a release, each file with its SHA-256.

`make release-check` builds the release with nothing else, and installs it with nothing else: a file that an index has
exchanged since is refused. Versions are those of `constraints.txt`; run this again when it, or a requirement in
`pyproject.toml`, changes. It needs `uv` on the path. Extras are not in the file: PyTorch's wheels are others on each
index, and whoever installs an extra chooses one.
"""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "constraints-hashed.txt"
HEADER = f"""\
# What builds and runs a release, each file with its SHA-256: `python tools/{Path(__file__).name}` writes it.
# pip install --require-hashes --requirement {FILE.name}
"""


def compiled() -> str:
    """The packages with their hashes, for every platform and every Python from the lowest that is promised on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    least = project["project"]["requires-python"].removeprefix(">=")
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "wanted.txt"
        file.write_text("\n".join(wanted), encoding="utf-8")
        command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", least, "--generate-hashes"]
        command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--constraint"]
        done = subprocess.run([*command, ROOT / "constraints.txt", file], check=True, capture_output=True, text=True)
    return done.stdout


if __name__ == "__main__":
    FILE.write_text(HEADER + compiled(), encoding="utf-8")
    sys.exit()
