"""Write the tables of docs/probing.md that are measured on real models, from real_models.json of `measures.claims`.

The text around them is kept. Run it after `tools/real_models.py` has measured anew; a test holds the document to it.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from clockhands.lab.results import interval
from clockhands.measures.claims.studies import Estimate, estimated, real_model

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "probing.md"
END = "<!-- end -->\n"
PLACES = ("before layer 1", "after layer 1", "after layer 2")
"""Where the hidden states of the lab's models of two layers are read."""


def begin(name: str) -> str:
    """The line before a table."""
    return f"<!-- {name}: made by tools/probing_document.py -->\n"


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose first column is text."""
    heads = list(heads)
    lines = [f"| {' | '.join(line)} |" for line in (heads, *rows)]
    lines.insert(1, f"|---|{'---:|' * (len(heads) - 1)}")
    return "\n".join(lines) + "\n"


def rounded(number: float) -> str:
    """Three digits after the point, and no sign of a zero."""
    return f"{round(number, 3) + 0.0:.3f}"


def minilm() -> str:
    """What MiniLM does with its table."""
    found = real_model("minilm")
    read, shape, terms = found["position_r2"], found["table"], found["score_terms"]
    last = max(read["own"], key=int)
    shifts = [
        ", ".join(rounded(shape[name][k]) for k in shape["shift_residuals"])
        for name in ("shift_residuals", "shift_residuals_same_fourier_spectrum")
    ]
    explained = terms["distance_explains"]
    return table(
        ("measurement", "MiniLM", "control"),
        (
            (
                "R² of the position, before the first layer",
                rounded(read["own"]["0"]),
                f"{rounded(read['frozen']['0'])} with ids of 0, "
                f"{rounded(read['relabelled']['0'])} with rows in another order",
            ),
            (
                f"R² of the position, after layer {last}",
                rounded(read["own"][last]),
                f"{rounded(read['frozen'][last])} and {rounded(read['relabelled'][last])}",
            ),
            (
                "R² of four sinusoids on rows that were left out",
                rounded(shape["four_waves_r2"]),
                f"{rounded(shape['four_waves_r2_of_noise'])} at most for 8 noise tables",
            ),
            (
                f"residual of a shift by {', '.join(shape['shift_residuals'])} rows",
                shifts[0],
                f"{shifts[1]} for noise of the same spectrum",
            ),
            ("share of position-position in the scores of layer 0", rounded(terms["shares"]["position_position"]), ""),
            (
                "share of that which the distance explains",
                rounded(np.mean(explained["trained"])),
                f"{rounded(explained['random'])} behind random projections",
            ),
        ),
    )


def smollm2() -> str:
    """What SmolLM2 keeps in its dimension pairs."""
    found = real_model("smollm2")
    rows = (
        (
            f"{group['first']} to {group['last']}",
            rounded(sum(found["share_of_query_and_key"][group["first"] : group["last"] + 1])),
            f"{group['removed']['nats']:.2f}",
            rounded(group["unrotated"]["nats"]),
        )
        for group in found["groups"]
    )
    return table(
        ("pairs, fast to slow", "share of query and key norms", "nats if removed", "nats if not rotated"), rows
    )


def sinusoids() -> str:
    """What trained projections make of fixed sinusoids."""
    rows = []
    for name, says in (("lab_language", "text"), ("lab_copy", "copying the token 3 before")):
        found = real_model(name)
        for state in ("untrained", "trained"):
            steps = f", {found['steps']} steps" if state == "trained" else ""
            explained = found[state]["distance_explains"]
            rows.append(
                (
                    f"{says}, {state}{steps}",
                    rounded(explained["before"]),
                    rounded(explained["random"]),
                    f"{rounded(np.mean(explained['trained']))} ({rounded(min(explained['trained']))} to "
                    f"{rounded(max(explained['trained']))})",
                    rounded(found[state]["shares"]["position_position"]),
                )
            )
    heads = ("model", "as it is", "random projections", "projections of its 4 heads", "position-position in the scores")
    return table(heads, rows)


def recall() -> str:
    """What SmolLM2 recalls at its context and past it."""
    rows = []
    for name in ("smollm2_in_its_context", "smollm2_in_twice_its_context"):
        found = real_model(name)
        (without,) = (each for each in found["recall"] if each["depth"] is None)
        for each in found["recall"]:
            if each["depth"] is not None:
                scaling = {None: "none", "yarn": "YaRN"}[each["scaling"]]
                rows.append(
                    (
                        f"{found['length']:,}",
                        f"{each['depth']:.0%}",
                        scaling,
                        "yes" if each["greedy"] == 1 else "no",
                        f"{each['log_probability']:.2f}",
                        f"{without['log_probability']:.2f}",
                    )
                )
    heads = ("tokens", "depth", "scaling", "recalled", "log-probability", "without the fact")
    return table(heads, rows)


def along_training() -> str:
    """What six models do with fixed sinusoids along their training: means over three seeds."""
    columns = {
        "loss": "loss: of the task",
        "rise without the encoding": "rise of the loss: encoding-removed",
        "position-position": "terms of the scores of layer 0: position-position",
        "explained by the distance": "part of the distance in the position-position term: heads of layer 0, mean",
        "position read before layer 1": "position read after layer: 0",
        "after layer 2": "position read after layer: 2",
        "heads at one distance": "heads at one distance: at least half of the attention",
    }
    rows = (
        (f"{arm.removeprefix('width_')}, step {step}", *(rounded(np.mean(measured[name])) for name in columns.values()))
        for arm, by_step in real_model("lab_steps")["models"].items()
        for step, measured in by_step.items()
    )
    return table(("width", *columns), rows)


def before_and_after(measures: Mapping[str, str]) -> str:
    """Measures of the same models before and after the training, smallest to largest of three seeds, by width."""
    heads, columns = ["measurement"], []
    for arm, by_step in real_model("lab_steps")["models"].items():
        for step in (min(by_step, key=int), max(by_step, key=int)):
            heads.append(f"{arm.removeprefix('width_')}, step {step}")
            columns.append(by_step[step])
    ranges = {
        says: [(rounded(min(each[name])), rounded(max(each[name]))) for each in columns]
        for says, name in measures.items()
    }
    rows = (
        (says, *(low if low == high else f"{low} to {high}" for low, high in of_columns))
        for says, of_columns in ranges.items()
    )
    return table(heads, rows)


def removed() -> str:
    """Whether the models break without their encoding."""
    return before_and_after(
        {
            "loss, nats per answer": "loss: of the task",
            "its rise without the encoding": "rise of the loss: encoding-removed",
            "its rise with the mean row at each position": "rise of the loss: mean-row",
        }
    )


def learned() -> str:
    """What the models make of their positions, and what goes along with positions."""
    return before_and_after(
        {
            "R² of the position, before layer 1": "position read after layer: 0",
            "R² of the position, after layer 2": "position read after layer: 2",
            "after layer 2, all tokens at position 0": "position read with all tokens at position 0, after layer: 2",
            "position-position in the scores of layer 0": "terms of the scores of layer 0: position-position",
            "share of it that the distance explains": (
                "part of the distance in the position-position term: heads of layer 0, mean"
            ),
            "heads of 8 at one distance": "heads at one distance: at least half of the attention",
        }
    )


def distorted() -> str:
    """What the layers leave of the positions."""
    read, left = "position read after layer", "position part left by R_k after layer"
    return before_and_after(
        {
            **{f"R² of the position, {where}": f"{read}: {layer}" for layer, where in enumerate(PLACES)},
            **{f"left by R_k of a shift, {where}": f"{left}: {layer}" for layer, where in enumerate(PLACES)},
        }
    )


def prices() -> str:
    """What faults cost SmolLM2 on texts of three kinds, the dearest on speeches first."""
    kinds = real_model("smollm2_prices")["kinds"]
    heads = ("nats per token", *(f"{kind}, {len(of_texts['loss'])} texts" for kind, of_texts in kinds.items()))
    names = [name for name in next(iter(kinds.values())) if name != "sha256"]
    found = {name: [estimated(dict(enumerate(each[name]))) for each in kinds.values()] for name in names}
    dearest = sorted(names, key=lambda name: -found[name][0].mean)
    rows = ((LOSS if name == "loss" else f"`{name}`", *map(with_interval, found[name])) for name in dearest)
    return table(heads, rows)


LOSS = "loss without a fault"


def with_interval(value: Estimate) -> str:
    """A mean over texts, with its 95 % interval by Student's t."""
    low, high = interval(value.seeds.values()) or (value.mean, value.mean)
    return f"{rounded(value.mean)} [{rounded(low)}, {rounded(high)}]"


TABLES: dict[str, Callable[[], str]] = {
    each.__name__: each
    for each in (prices, minilm, smollm2, sinusoids, recall, along_training, removed, learned, distorted)
}


def document(text: str) -> str:
    """A document with each table in its place."""
    for name, make in TABLES.items():
        before, _, rest = text.partition(begin(name))
        _, _, after = rest.partition(END)
        text = f"{before}{begin(name)}\n{make()}\n{END}{after}"
    return text


def main() -> None:
    """Write the document."""
    DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
