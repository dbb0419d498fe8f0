"""Write the results that `measures.claims` keeps from stores of the lab, and docs/studies.md with its pages from them.

    tools/studies_document.py STORE...          the shipped studies in these stores, beside those that are kept already
    tools/studies_document.py --again STORE...  their verdicts alone, as those of another run of what is kept
    tools/studies_document.py                   the pages only

A store is read and never written. It must hold a shipped study as it is now, with no trial left to run but in cells of
its grid: these are left out, and those that are kept already stay.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clockhands.lab.result_words import bounds_in_words, gate_word, in_short, of_range
from clockhands.lab.results import effect_of
from clockhands.lab.sections import BOUNDS
from clockhands.measures.claims import AS_TRAINED, OF_TRAINING, Estimate, MeasuredStudy, estimate_of, measured, stored
from clockhands.measures.claims.sentences import evidence_in_words
from clockhands.phrases import listed
from studies_markdown import duration, escaped, in_numbers, number_of, table, wrapped

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "src" / "clockhands" / "measures" / "claims" / "results"
DOCUMENT = ROOT / "docs" / "studies.md"
FOLDER = DOCUMENT.with_suffix("")

ORDER = (
    "quick", "naive", "ablation", "extrapolation", "drope", "scaling", "spacing", "slopes", "base-bound", "sinks",
    "faults", "hybrids", "counters", "t5-distance", "randomised", "base-narrow", "conclusions",
)  # fmt: skip

BEGIN = """# What the lab's studies measured

Each study below comes with clockhands and was run whole; of a grid, its page names the cells that were not. It has all
numbers: every gate as it was written before the run, also those that fail, every mean with its interval or the range of
its seeds, and what it cost. What was changed after a pilot, or before the run, is said there.
`tools/studies_document.py` makes the pages from the files of `src/clockhands/measures/claims/results`, and these from
the lab's stores; `clockhands claims` takes its verdicts on trained models from the same files. `clockhands lab run
NAME` measures a study again. On the same machine, with the same versions, it gives the same numbers.

**How to read it.** *0.336 [0.322, 0.346]* is a mean over the seeds of the study, and in brackets stands, with eight
seeds and more, the 95 % interval of the mean of all such models by Student's t (seeds taken as normal), with fewer the
range of the seeds. That of three holds the median of such models in 75 % of cases, that of five in 94 %: no 95 %
interval. It says whether the seeds agree, and no more. A gate that asks for a *range* above or below a number always
means that of the seeds. An *effect* is the distance from the asked bound in standard deviations of the seeds. Where all
seeds are the same, the range is shown; each study's page says what its brackets hold. A *difference* of two arms is
taken seed by seed: the same seed has the same initial weights and the same batches in both. A gate *holds* if its bound
is met and chance alone would meet it with a probability of at most 5 %, by Student's t over the seeds (taken as
normal), corrected for the number of gates of the study (Holm); *may be chance* if that is more probable; *one seed* and
*seeds alike* where there is no spread to judge it by. Losses are in nats for each token. A *loss ratio* is the loss
over the same arm's loss at the training length. *Whole* windows are cut one after another, so their first tokens have
little context; with *sliding* windows every scored token has a full context. Tokens per second (of training) and the
time taken were measured with one thread for each trial, on two cores that other work shared.

"""

NAMES = {
    "loss": "Loss (nats per token)",
    "accuracy": "Accuracy (share of right answers)",
    "loss_ratio": "Loss ratio",
    "sink_share": "Share of attention on the first token, queries of the second half, mean over layers",
    "spike": "loss right after the drop less that before",
    "won_back": "part of that won back at the end",
    "steps_to_threshold": "steps to the threshold",
    "gradient_norm_start": "gradient norm of the first step",
    "gradient_norm_largest": "largest of a step",
    "gradient_norm": "over the last steps",
}
FACTS = ("parameters", "code_parameters", "tokens_per_second")
ABOVE_ONE = (
    "A part above 1 is no sign of recovery: the whole model went on learning its text after the drop. The differences "
    "from the control that kept its code say what the drop cost."
)
TUNED_ON_THEM = (
    "Where `lab tune` chose a learning rate of this study, or of one whose rate it takes, it scored the same tokens, "
    "with another seed; since 30 November 2026 it scores others."
)

T5_NOTE = (
    "The arm t5 has T5's maximum distance of 128. Training at 64 tokens never reaches its last buckets, so past 64 "
    "tokens its numbers are those of untrained biases too; see [the claim](../claims.md#t5-any-distance)."
)
NAMES_IN_GATES = {
    "won_back": "part of the spike won back",
    "sink_share": "share of the first token",
    "loss_ratio": "loss ratio",
}


def documents(kept: Mapping[str, MeasuredStudy]) -> dict[Path, str]:
    """Every page: the index, and one for each study."""
    studies = {name: kept[name] for name in ORDER if name in kept}
    waiting = [f"`{name}`" for name in ORDER if name not in studies]
    note = f"\nNot run whole yet, and so without a page: {', '.join(waiting)}.\n" if waiting else ""
    return {
        DOCUMENT: BEGIN + runs_again(studies) + overview(studies) + note,
        **{FOLDER / f"{n}.md": section(each) for n, each in studies.items()},
    }


def runs_again(studies: Mapping[str, MeasuredStudy]) -> str:
    """How many verdicts another run of the studies has again, and which ones it has not."""
    again = {name: beside for name, each in studies.items() if (beside := verdicts_again(each))}
    if not again:
        return ""
    runs = [studies[name].data["again"]["run"] for name in again]
    machines = listed({machine_of(each) for each in runs})
    rows = [row for each in again.values() for row in each]
    says = (
        f"{len(again)} of {len(studies)} studies were run again, on {machines}, in "
        f"{duration(sum(each['wall_seconds'] for each in runs))} together. A processor rounds in its own order, and "
        f"training enlarges that, so that numbers differ. Of {len(rows)} verdicts {sum(map(same, rows))} are the same"
    )
    others = [f"{sum(not same(row) for row in each)} of [{name}](studies/{name}.md)"
              for name, each in again.items() if not all(map(same, each))]  # fmt: skip
    return wrapped(f"{says}{f'; those that differ are {listed(others)}' if others else ''}.") + "\n"


def overview(studies: Mapping[str, MeasuredStudy]) -> str:
    """One line for each study."""
    rows = [
        (
            f"[{name}](studies/{name}.md)",
            each.data["question"],
            gates_in_short(each),
            duration(each.data["run"]["wall_seconds"]),
        )
        for name, each in studies.items()
    ]
    return table(("study", "question", "gates", "time taken"), rows, right=3)


def gates_in_short(study: MeasuredStudy) -> str:
    """How many hold."""
    words = [word_of(study, each) for each in study.data["gates"]]
    held = f"{words.count('holds')} of {len(words)} hold"
    if so_far := holding_so_far(study):
        held += f", {so_far} in all cells run so far"
    return "none" if not words else held if words.count("holds") == len(words) else f"**{held}**"


def holding_so_far(study: MeasuredStudy) -> int:
    """How many gates hold in every cell that was run of those of which they are said, and wait for others."""
    held = 0
    for gate in study.data["gates"]:
        said = {cell: own for cell, own in gate.get("cells", {}).items() if own["said"]}
        run = [word_of(study, own | {"task": cell}) for cell, own in said.items() if cell in study.data["tasks"]]
        held += len(run) < len(said) and set(run) == {"holds"}
    return held


def word_of(study: MeasuredStudy, gate: Mapping[str, Any]) -> str:
    """The verdict of a gate."""
    if gate["holds"] is None and (said := [own for own in gate.get("cells", {}).values() if own["said"]]):
        return f"{sum(own['holds'] is not None for own in said)} of {len(said)} cells"
    if gate["holds"] is None or gate["value"] is None:
        return "not judged"
    return gate_word(gate["holds"], gate["chance"], len(study.data["tasks"][gate["task"]]["seeds"]))


def section(study: MeasuredStudy) -> str:
    """One study."""
    data = study.data
    parts = [f"# The study {study.name}\n", "[All studies](../studies.md), and how to read their numbers.\n"]
    parts += [wrapped(f"**{escaped(data['question'])}**"), gates_of(study)]
    parts += [orders_of(study)] if any("cells" in each for each in data["gates"]) else []
    parts += [each] if (each := again_of(study)) else []
    if data.get("history"):
        parts += ["Run or changed before:\n", "".join(wrapped(f"- {escaped(each)}", "  ") for each in data["history"])]
    if data.get("changed"):
        parts.append(wrapped(f"Changed after it was first written: {escaped(data['changed'])}"))
    if "t5" in data["arms"]:
        parts.append(wrapped(T5_NOTE))
    parts += [task_of(study, name) for name in data["tasks"]]
    if data["published"]:
        parts.append("Published figures to be read beside these:\n")
        parts.append("".join(wrapped(f"- {escaped(each)}", "  ") for each in data["published"]))
    parts.append(cost(study))
    return "\n".join(parts)


def gates_of(study: MeasuredStudy) -> str:
    """Every gate with its verdict and its number."""
    gates = study.data["gates"]
    if not gates:
        return "The study has no gates.\n"
    words = [word_of(study, each) for each in gates]
    say = in_short(words)
    if so_far := holding_so_far(study):
        say += f" {so_far} hold in each cell that was run so far, and wait for the others."
    for word in ("fails", "may be chance", "not judged"):
        if word in words:
            says = " ".join(f"“{gate['says']}”" for gate, own in zip(gates, words, strict=True) if own == word)
            say += f" {word.capitalize()}: {says}"
    rows = [
        (
            word if word == "holds" else f"**{word}**",
            each["says"],
            what_of(study, each),
            number_of(each["value"], study.data["tasks"][each["task"]]["seeds"]),
            bounds_in_words(bounds_of(each)),
            effect_in_digits(study, each, each["task"]),
            "–" if each["chance"] is None else f"{each['chance']:.2g}" if each["chance"] >= 0.0001 else "< 0.0001",
        )
        for each, word in zip(gates, words, strict=True)
    ]
    heads = (
        "verdict",
        "gate, as it was written before the run",
        "what is measured",
        "measured",
        "asked",
        "effect",
        "chance",
    )
    return wrapped(escaped(f"{say} {evidence_in_words(study)}")) + "\n" + table(heads, rows, right=3)


@dataclass(frozen=True)
class VerdictAgain:
    """The verdict of a gate, in one cell of the grid if there is one, and that of another run: words and numbers."""

    says: str
    cell: str
    words: tuple[str, str]
    values: tuple[str, str]


def same(row: VerdictAgain) -> bool:
    """Whether both runs have the same verdict."""
    return row.words[0] == row.words[1]


def verdicts_again(study: MeasuredStudy) -> list[VerdictAgain]:
    """Each gate that both runs judged, in each cell of the grid that both ran."""
    rows = []
    for gate, other in zip(study.data["gates"], study.data.get("again", {}).get("gates", ()), strict=False):
        for cell, own in gate.get("cells", {"": gate}).items():
            both = own, other.get("cells", {"": other}).get(cell, {"value": None})
            task = cell or gate["task"]
            if all(each["value"] is not None for each in both):
                seeds = study.data["tasks"][task]["seeds"]
                words = [word_of(study, each | {"task": task}) for each in both]
                values = [number_of(each["value"], seeds) for each in both]
                rows.append(VerdictAgain(gate["says"], cell, (words[0], words[1]), (values[0], values[1])))
    return rows


def again_of(study: MeasuredStudy) -> str:
    """What another run of the study gave."""
    rows = verdicts_again(study)
    if not rows:
        return ""
    run = study.data["again"]["run"]
    says = (
        f"Run again on {run['created'][:10]} at commit {run['commit'] or 'unknown'}, on {machine_of(run)}, in "
        f"{duration(run['wall_seconds'])}: {sum(map(same, rows))} of {len(rows)} verdicts are the same."
    )
    cells = any(row.cell for row in rows)
    # Of a grid, those that differ alone.
    lines = [
        (each.says, *([each.cell] if cells else []), each.words[0],
         each.words[1] if same(each) else f"**{each.words[1]}**", *each.values)
        for each in rows if not cells or not same(each)
    ]  # fmt: skip
    heads = ("gate", *(["cell"] if cells else []), "verdict", "again", "measured", "again")
    told = wrapped(escaped(says))
    return f"{told}\n{table(heads, lines, right=4 if cells else 3)}" if lines else told


def machine_of(run: Mapping[str, Any]) -> str:
    """On what a study was run."""
    machine = run["machine"]
    return f"{machine['processor']}, {machine['cores']} cores"


def bounds_of(gate: Mapping[str, Any]) -> dict[str, float]:
    """The bounds that a gate has."""
    return {name: gate[name] for name in BOUNDS if name in gate}


def effect_in_digits(study: MeasuredStudy, gate: Mapping[str, Any], task: str) -> str:
    """How far a gate, or it in a cell of the grid, is from its bound, in standard deviations of the seeds."""
    value = gate["value"] and estimate_of(gate["value"], study.data["tasks"][task]["seeds"])
    effect = effect_of(bounds_of(gate), value or None)
    return "–" if effect is None else f"{effect:.1f}"


def orders_of(study: MeasuredStudy) -> str:
    """Every gate in every cell of the grid that was run, and the cells that were not."""
    rows, unrun = [], dict[str, None]()
    for each in study.data["gates"]:
        for cell, own in each["cells"].items():
            data = study.data["tasks"].get(cell)
            if data is None:
                unrun[cell] = None
                continue
            word = word_of(study, own | {"task": cell})
            origin = ", ".join(
                f"{one['device']}, commit {one['commit'] or 'unknown'}" for one in data.get("origins", ())
            )
            value, said = number_of(own["value"], data["seeds"]), "yes" if own["said"] else "no"
            effect = effect_in_digits(study, each | own, cell)
            word = {"holds": "yes", "fails": "**no**"}.get(word, word)
            rows.append((each["says"], cell, said, word, value, effect, origin))
    heads = ("gate", "cell", "said of it", "does the order hold?", "measured", "effect", "run on")
    parts = ["Does the order hold in every cell of the grid that was run?\n", table(heads, rows, right=4)]
    if unrun:
        says = f"Not run, and so neither judged nor counted in the correction: {', '.join(unrun)}."
        parts.append(wrapped(escaped(says)))
    return "\n".join(parts)


def what_of(study: MeasuredStudy, gate: Mapping[str, Any]) -> str:
    """What a gate measures."""
    said = f"{gate['task']}: {NAMES_IN_GATES.get(gate['measure'], gate['measure'].replace('_', ' '))} of "
    said += labelled(gate["arm"], gate.get("variant", AS_TRAINED))
    if "minus" in gate:
        said += f" less {labelled(gate['minus'], gate.get('minus_variant', AS_TRAINED))}"
    if gate["measure"] in OF_TRAINING:
        return said
    said += f", {gate['length'] or study.data['tasks'][gate['task']]['length']} tokens"
    return f"{said}, sliding windows" if gate["protocol"] == "sliding" else said


def labelled(arm: str, variant: str) -> str:
    """An arm, with its change at test time."""
    return arm if variant == AS_TRAINED else f"{arm} ({variant} at test time)"


def task_of(study: MeasuredStudy, name: str) -> str:
    """The numbers of one task."""
    data = study.data["tasks"][name]
    seeds = ", ".join(map(str, data["seeds"]))
    model = data["model"]
    sizes = f"{model['layers']} layers of width {model['width']}, {model['heads']} heads"
    if model["start"]:
        sizes = f"the weights of {model['start']}"
    parts = [
        f"## {name[0].upper()}{name[1:]}\n",
        wrapped(
            f"Task {data['kind'].lower()}; {sizes}; {data['steps']} steps of {data['sequences']} sequences of "
            f"{data['length']} tokens unless the arm says otherwise; seeds {seeds}. {of_range(len(data['seeds']))}"
        ),
    ]
    for measure, protocol in shown_of(data):
        found = {
            labelled(arm, variant): known(study, name, (arm, variant), protocol, measure)
            for arm in data["cells"]
            for variant in data["cells"][arm]
        }
        if measure == "sink_share":
            found["an even share"] = known(study, name, (next(iter(data["cells"])), AS_TRAINED), protocol, "even_share")
        lengths = sorted(set().union(*found.values()))
        rows = [(arm, *(in_numbers(each.get(n)) for n in lengths)) for arm, each in found.items() if each]
        if measure == "loss_ratio" and lengths == [data["length"]]:
            continue  # it is 1
        windows = f", {protocol} windows" if data["kind"] == "Language" and measure != "sink_share" else ""
        parts += [f"{NAMES[measure]}{windows}, by length in tokens:\n", table(("arm", *map(str, lengths)), rows)]
    if data["kind"] != "Language":
        parts.append(wrapped(accuracies_without_positions(data["bounds"])))
    parts += [changes(study, name), drops(study, name), positions(data), training(data)]
    return "\n".join(filter(None, parts))


def shown_of(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Which measures a task shows, under which protocols."""
    measures = ("loss", "loss_ratio", "sink_share") if data["kind"] == "Language" else ("accuracy", "loss")
    protocols = [p for p in ("whole", "sliding") if any(p in each for each in variants(data))]
    stored = {(m, p) for each in variants(data) for p in each for m in each[p]}
    return [(m, p) for m in measures for p in protocols if ("loss" if m == "loss_ratio" else m, p) in stored]


def variants(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What was measured of every arm and change at test time."""
    return [each for arm in data["cells"].values() for each in arm.values()]


def known(study: MeasuredStudy, task: str, of: tuple[str, str], protocol: str, measure: str) -> dict[int, Estimate]:
    """A measure of an arm and its change at test time by length; empty where it was not measured."""
    arm, variant = of
    own = study.data["tasks"][task]["cells"][arm][variant].get(protocol, {})
    lengths = map(int, own.get("loss" if measure == "loss_ratio" else measure, {}))
    return {n: study.value(task, arm, measure, length=n, variant=variant, protocol=protocol) for n in lengths}


def accuracies_without_positions(bounds: Mapping[str, Mapping[str, float]]) -> str:
    """Accuracies that need no position."""
    says = {"chance_accuracy": "by guessing", "bag_accuracy": "by knowing the tokens and not their order"}
    parts = [
        f"{says[name]} {', '.join(f'{share:.3f} at {length}' for length, share in by_length.items())} tokens"
        for name, by_length in bounds.items()
    ]
    return f"Accuracy that needs no position: {'; '.join(parts)}."


def changes(study: MeasuredStudy, task: str) -> str:
    """What each change at test time does, against the same trained model."""
    cells = study.data["tasks"][task]["cells"]
    pairs = [
        ((labelled(arm, variant),), (arm, variant), (arm, AS_TRAINED))
        for arm in cells
        for variant in cells[arm]
        if variant != AS_TRAINED
    ]
    return compared(study, task, "Change at test time: {} less that of the same model as trained", ("change",), pairs)


def drops(study: MeasuredStudy, task: str) -> str:
    """What dropping a code did, and the final model against its controls."""
    data, arms = study.data["tasks"][task], study.data["arms"]
    if not data["drops"]:
        return ""
    rows = [
        (
            arm,
            arms[arm]["says"],
            str(arms[arm]["tasks"][task]["steps"]),
            *(number_of(data["training"].get(arm, {}).get(name), data["seeds"]) for name in ("spike", "won_back")),
        )
        for arm in data["drops"]
    ]
    sizes = {arm: [arms[arm]["tasks"][task][name] for name in ("layers", "parameters")] for arm in data["cells"]}
    pairs = []
    for arm in data["drops"]:
        for control in data["cells"]:
            # Of the same depth, and without normalisation that the dropped model lacks.
            if (
                control not in data["drops"]
                and sizes[arm][0] == sizes[control][0]
                and sizes[arm][1] >= sizes[control][1]
            ):
                for variant in data["cells"][control]:
                    own = variant if variant in data["cells"][arm] else AS_TRAINED
                    pairs.append(((labelled(arm, own), labelled(control, variant)), (arm, own), (control, variant)))
    heads = ("arm", "what it is", "steps", NAMES["spike"], NAMES["won_back"])
    more = any(row["won_back"][0] > 1 for row in data["training"].values() if "won_back" in row)
    return "\n".join(
        (
            "The drop, at the training length:\n",
            table(heads, rows, right=2),
            *filter(None, [wrapped(ABOVE_ONE) if more else ""]),
            compared(study, task, "After the drop: final {} less that of a control", ("dropped", "less"), pairs),
        )
    )


def compared(study: MeasuredStudy, task: str, says: str, heads: tuple[str, ...], pairs: list[Any]) -> str:
    """Tables of differences, seed by seed, by length: what is called so, which arm and variant, less which."""
    data = study.data["tasks"][task]
    measure = "loss" if data["kind"] == "Language" else "accuracy"
    parts = []
    for protocol in ("whole", "sliding"):
        rows, lengths = [], set()
        for labels, (arm, variant), (minus, other) in pairs:
            own = known(study, task, (arm, variant), protocol, measure)
            both = set(own) & set(known(study, task, (minus, other), protocol, measure))
            where = {"variant": variant, "minus_variant": other, "protocol": protocol}
            rows.append((labels, {n: study.difference(task, arm, minus, measure, length=n, **where) for n in both}))
            lengths |= both
        if lengths:
            windows = f", {protocol} windows" if data["kind"] == "Language" else ""
            parts.append(f"{says.format(measure)}{windows}, by length:\n")
            filled = [
                (*labels, *(in_numbers(found.get(n)) for n in sorted(lengths))) for labels, found in rows if found
            ]
            parts.append(table((*heads, *map(str, sorted(lengths))), filled, right=len(heads)))
    return "\n".join(parts)


def positions(data: Mapping[str, Any]) -> str:
    """By position, depth or distance."""
    found = data["places"]
    if not found or not found["arms"]:
        return ""
    rows = [
        (arm, *(number_of(row, data["seeds"], interval=False) for row in rows)) for arm, rows in found["arms"].items()
    ]
    return "\n".join(
        (
            wrapped(f"{found['measure'].capitalize()} by {found['what']} at {found['length']} tokens, means:"),
            table(("arm", *found["names"]), rows),
        )
    )


def training(data: Mapping[str, Any]) -> str:
    """Gradient norms, and steps to the threshold where there is one."""
    names = [
        name
        for name in ("gradient_norm_start", "gradient_norm_largest", "gradient_norm", "steps_to_threshold")
        if any(name in each for each in data["training"].values())
    ]
    rows = [
        (arm, *(number_of(each.get(name), data["seeds"]) for name in names)) for arm, each in data["training"].items()
    ]
    if not names:
        return ""
    heads = [NAMES[name] for name in names]
    if data["threshold"]:
        heads = [head.replace("the threshold", f"an accuracy of {data['threshold']:g}") for head in heads]
    return "\n".join(("While training:\n", table(("arm", *heads), rows)))


def cost(study: MeasuredStudy) -> str:
    """What it cost, and where the numbers are from."""
    run = study.data["run"]
    rows = [
        (
            name,
            each["says"],
            task,
            f"{own['learning_rate']:g}",
            *("–" if own[fact] is None else f"{own[fact]:,}" for fact in ("steps", *FACTS)),
        )
        for name, each in study.data["arms"].items()
        for task, own in each["tasks"].items()
    ]
    heads = ("arm", "what it is", "task", "learning rate", "steps", "parameters", "of the code", "tokens/s")
    machine, versions = run["machine"], run["versions"]
    trials = f"{run['finished']} trials finished, {len(run['failed'])} failed"
    parts = [
        "What it cost:\n",
        table(heads, rows, right=3),
        wrapped(
            f"Measured by `{run['command']}` on {run['created'][:10]}, at commit {run['commit'] or 'unknown'} of "
            f"clockhands {run['version']}. {trials}; {duration(run['wall_seconds'])} from the start to the last trial, "
            f"{duration(run['trial_seconds'])} of training and evaluation in all trials together. "
            f"{machine['processor']}, {machine['cores']} cores, {machine['system']}; device {machine['device']}, "
            f"{machine['threads']} thread{'s' if machine['threads'] != 1 else ''} for each trial. "
            f"{', '.join(f'{name} {number}' for name, number in versions.items())}. Study {run['hash'][:12]}."
        ),
    ]
    parts += [
        wrapped(
            f"Run apart, on {each['created'][:10]} at commit {each['commit'] or 'unknown'}: "
            f"{', '.join(map(escaped, each['tasks']))}. "
            f"{', '.join(f'{name} {number}' for name, number in each['versions'].items())}."
        )
        for each in run.get("apart", ())
    ]
    for task, text in run["texts"].items():
        parts.append(
            wrapped(
                f"Text of {escaped(task)}: {text['name']} {text['version']}, {text['bytes']:,} bytes, tokenizer "
                f"{text['tokenizer']}. {text['training_tokens']:,} tokens for training, of the others "
                f"{text['scored_tokens']:,} are scored. {TUNED_ON_THEM}"
            )
        )
    parts += [
        wrapped(f"- Failed: {each['task']}, {each['arm']}, seed {each['seed']}: {escaped(each['message'])}", "  ")
        for each in run["failed"]
    ]
    if study.data["scope"]:
        parts.append(wrapped(f"Scope: {escaped(study.data['scope'])}"))
    return "\n".join(parts)


def main() -> None:
    """Update the results from stores, then write the pages."""
    from studies_data import collect, repeated, written

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", nargs="*", type=Path, metavar="STORE")
    parser.add_argument("--again", action="store_true", help="the stores are another run of the studies that are kept")
    given = parser.parse_args()
    studies = {name: measured(name) for name in stored()}
    for path in given.stores:
        if given.again:
            found = {name: studies[name].data | {"again": each} for name, each in repeated(path).items()}
        else:  # what a person wrote stays
            found = {name: each | {"changed": studies[name].data["changed"] if name in studies else ""}
                     for name, each in collect(path).items()}  # fmt: skip
        for name, data in found.items():
            text = written(data)
            (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")
            studies[name] = MeasuredStudy(name, json.loads(text))
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.md"):
        old.unlink()
    for path, text in documents(studies).items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
