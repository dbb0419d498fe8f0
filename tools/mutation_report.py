"""Say how many small changes of the core the tests noticed, and list those that they did not."""

import json
import subprocess
import sys
from pathlib import Path

# Share of the mutants that must be noticed.
AT_LEAST = 0.85
FIGURES = Path("mutants/mutmut-cicd-stats.json")


def main() -> int:
    mutmut = Path(sys.executable).with_name("mutmut")
    subprocess.run([mutmut, "export-cicd-stats"], check=True, stdout=subprocess.DEVNULL)
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    listed = subprocess.run([mutmut, "results"], check=True, capture_output=True, text=True).stdout.splitlines()
    survivors = sorted(line.strip() for line in listed if line.strip())
    # A change that makes the tests hang or crash was noticed.
    noticed = figures["killed"] + figures["timeout"] + figures["segfault"]
    total = figures["total"] - figures["skipped"]
    modules = sorted({line.split(".")[1] for line in survivors})
    for module in modules:
        print(f"{module}: {sum(line.split('.')[1] == module for line in survivors)} not noticed")
    print(*survivors, sep="\n")
    print(f"noticed: {noticed} of {total}, {noticed / total:.1%}; to reach: {AT_LEAST:.0%}")
    print("one of them: .venv/bin/mutmut show NAME")
    return 0 if total and noticed / total >= AT_LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
