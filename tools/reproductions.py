"""Write docs/reproductions.md: published results beside ours, computed from the stored results of the lab's studies.

What was published lies in reproductions.toml beside this file, with where it was read. Whether sign, order and size are
the same is computed, never written by hand.
"""

import math
import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from clockhands.lab.results import bracket
from clockhands.measures.claims import CLAIMS, recompute
from clockhands.measures.claims.studies import AS_TRAINED, Estimate, estimated, measured, real_model

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = Path(__file__).with_name("reproductions.toml")
DOCUMENT = ROOT / "docs" / "reproductions.md"

ALIKE = 0.01
"""A ratio this near to 1 is neither above nor below it; the digits of published perplexities say no more."""

SINK = 0.3
"""The share of its attention that makes a head have a sink on the first token (Gu et al. 2025, section 3)."""


class Unit(NamedTuple):
    """How a published and a stored number are made comparable.

    Attributes:
        says: What it is.
        ours: Ours of one arm, from `ours` of the row and the arm with its change at test time.
        neutral: The value that is neither more nor less; None where a number has no sign.
    """

    says: str
    ours: Callable[[Mapping[str, Any], Sequence[str]], Estimate]
    neutral: float | None


def longer(where: Mapping[str, Any], arm: Sequence[str]) -> Estimate:
    """Perplexity at a length over that of the same model at the trained length, without a change at test time there."""
    return quotients(losses(where, arm), losses({**where, "length": 0}, arm))


def against(where: Mapping[str, Any], arm: Sequence[str]) -> Estimate:
    """Perplexity over that of another arm, seed by seed."""
    return quotients(losses(where, arm), losses(where, where["against"]))


def quotients(above: Estimate, below: Estimate) -> Estimate:
    """The quotients of two perplexities, seed by seed, of the seeds that both have."""
    return estimated(
        {seed: math.exp(above.seeds[seed] - loss) for seed, loss in below.seeds.items() if seed in above.seeds}
    )


def losses(where: Mapping[str, Any], arm: Sequence[str], measure: str = "loss") -> Estimate:
    """A stored measure of an arm."""
    name, variant = (*arm, AS_TRAINED)[:2]
    given = {key: where[key] for key in ("length", "protocol") if key in where}
    return measured(where["study"]).value(where["task"], name, measure, variant=variant, **given)


def points(where: Mapping[str, Any], arm: Sequence[str]) -> Estimate:
    """Accuracy in points of 100."""
    return estimated({seed: 100 * each for seed, each in losses(where, arm, "accuracy").seeds.items()})


def gain(where: Mapping[str, Any], arm: Sequence[str]) -> Estimate:
    """Points of accuracy above those of another arm, seed by seed."""
    own, other = points(where, arm).seeds, points(where, where["against"]).seeds
    return estimated({seed: own[seed] - each for seed, each in other.items() if seed in own})


def heads(where: Mapping[str, Any], arm: Sequence[str]) -> Estimate:
    """The share of heads with a sink, in %, model by model."""
    models = real_model(where["model"])["models"][where["task"]][arm[0]]["first_token_shares"]
    shares = [[share >= SINK for layer in model for share in layer] for model in models]
    return estimated({seed: 100 * sum(each) / len(each) for seed, each in enumerate(shares)})


def base(where: Mapping[str, Any], _: Sequence[str]) -> Estimate:
    """A number of a claim, which is computed."""
    return estimated({0: float(recompute(CLAIMS[where["claim"]]).numbers[where["number"]])})


UNITS: Mapping[str, Unit] = {
    "longer": Unit("ratio of perplexities, longer over trained length", longer, 1.0),
    "against": Unit("ratio of perplexities of two models", against, 1.0),
    "points": Unit("accuracy, points of 100", points, None),
    "gain": Unit("points of 100 above another arm", gain, 0.0),
    "heads": Unit("% of heads", heads, None),
    "base": Unit("thousands", base, None),
}


class Row(NamedTuple):
    """A published number beside ours."""

    name: str
    theirs: float | None
    ours: Estimate


def rows_of(result: Mapping[str, Any]) -> list[Row]:
    """The numbers of one published result, in its order: the largest first, those without a number last."""
    unit = UNITS[result["unit"]]
    rows = [
        Row(name, number_of(result["theirs"].get(name)), unit.ours(result["ours"], arm))
        for name, arm in result["arms"].items()
    ]
    return sorted(rows, key=lambda row: -math.inf if row.theirs is None else row.theirs, reverse=True)


def number_of(published: Any) -> float | None:
    """A published number; of two, the quotient."""
    if isinstance(published, list):
        return published[0] / published[1]
    return None if published is None else float(published)


# Sign, order and size


def ends(value: Estimate) -> tuple[float, float]:
    """The ends of what the lab writes in brackets; twice the mean of a single model."""
    return bracket(value) or (value.mean, value.mean)


def side(low: float, high: float, neutral: float) -> str:
    """Where an interval lies: above, below or about at the neutral value; ``both`` where not in one of these alone."""
    near = ALIKE * neutral
    of_ends = ["below" if end < neutral - near else "above" if end > neutral + near else "alike" for end in (low, high)]
    return of_ends[0] if of_ends[0] == of_ends[1] else "both"


def sign(row: Row, neutral: float | None) -> str:
    """Whether ours lies on the same side of the neutral value."""
    if neutral is None or row.theirs is None:
        return "–"
    ours = side(*ends(row.ours), neutral)
    return "not known" if ours == "both" else "yes" if ours == side(row.theirs, row.theirs, neutral) else "no"


def order(rows: Sequence[Row]) -> str:
    """Whether ours come in the same order: each neighbour is compared with the next, seed by seed."""
    known = [row for row in rows if row.theirs is not None]
    if len(known) < 2:
        return "–"
    reversed_, open_ = [], []
    for more, less in pairwise(known):
        seeds = {
            seed: each - less.ours.seeds[seed] for seed, each in more.ours.seeds.items() if seed in less.ours.seeds
        }
        low, high = ends(estimated(seeds))
        if len(seeds) == 1 or low <= 0:
            (reversed_ if len(seeds) > 1 and high < 0 else open_).append(f"{more.name} and {less.name}")
    said = [f"no: {', '.join(reversed_)} are reversed"] if reversed_ else []
    said += [f"{', '.join(open_)} not distinguishable"] if open_ else []
    return "; ".join(said) or "yes"


def size(row: Row, reason: str) -> str:
    """Whether the published number lies in our interval."""
    if reason or row.theirs is None:
        return "–"
    low, high = ends(row.ours)
    near = ALIKE * row.ours.mean if low == high else 0.0
    return "yes" if low - near <= row.theirs <= high + near else "no"


def answers(result: Mapping[str, Any]) -> tuple[str, str, str]:
    """Sign, order and size of a whole result, for the first table."""
    if "missing" in result:
        return "not run", "not run", "not run"
    rows, neutral = rows_of(result), UNITS[result["unit"]].neutral
    signs = [sign(row, neutral) for row in rows]
    sizes = [size(row, result.get("size", "")) for row in rows]
    return together(signs), order(rows), "not comparable" if "size" in result else together(sizes)


def together(said: Sequence[str]) -> str:
    """How many of several answers are yes."""
    asked = [each for each in said if each != "–"]
    if not asked:
        return "–"
    right = asked.count("yes")
    return asked[0] if len(asked) == 1 else "yes" if right == len(asked) else f"{right} of {len(asked)}"


# The page

BEGIN = f"""# Published results beside ours

Made by `tools/reproductions.py` from `tools/reproductions.toml` and the stored results of [the lab's
studies](studies.md); a test computes every row again. The models of the studies have about 0.1 million parameters.
Where the sign or the order is another one, that says what such a model does, and not that a paper is wrong.

- **Theirs** is the published number in its own unit, with its table and where it was read. Two numbers are
  given as their quotient.
- **Ours** is the same unit, a mean over seeds with what the lab writes in brackets: the 95 % interval by Student's t of
  8 seeds and more, the range of fewer ([how to read it](studies.md)). A ratio of perplexities is e to the difference of
  two losses, seed by seed.
- **Sign**: whether ours is above, below, or within {ALIKE:.0%} of 1 (of a gain: above or below 0) as the published one
  is, with all that is in its brackets; *not known* where the brackets hold an edge of these. Three seeds lie on one
  side of the true value by chance in one of four cases, and nothing corrects for the number of rows.
- **Order**: whether ours come in the same order; neighbours of the published order are compared seed by seed.
- **Size**: whether the published number lies in our interval. Perplexities per word, per token and per byte have
  different sizes and are not compared.
- Where `lab tune` chose a learning rate of these studies, it scored the same 16,384 tokens of text, with another seed:
  no loss below is of tokens that were kept for a test alone.
"""


def document() -> str:
    """The whole page."""
    results = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))["results"]
    heads = ("published", "sign", "order", "size")
    shown = [(f"[{each['paper'].split(',')[0]}: {each['id']}](#{each['id']})", *answers(each)) for each in results]
    return "\n".join((BEGIN, table(heads, shown), *map(section, results)))


def section(result: Mapping[str, Any]) -> str:
    """One published result."""
    parts = [f"## {result['id']}\n", wrapped(f"{result['paper']}. {result['says']}")]
    source = f"- Source: {result['where']} Read in {result['read']}."
    if "missing" in result:
        return "\n".join((*parts, wrapped(source) + wrapped(f"- {result['missing']}")))
    rows, unit, reason = rows_of(result), UNITS[result["unit"]], result.get("size", "")
    ours = result["ours"]
    place = f"[{ours['study']}](studies/{ours['study']}.md)" if "study" in ours else "computed"
    heads = (unit.says, "theirs", "ours", "sign", "size")
    if "model" in ours:
        place = f"`tools/real_models.py {ours['model']}`"
    shown = [
        (
            row.name,
            "–" if row.theirs is None else in_digits(row.theirs),
            in_numbers(row.ours),
            sign(row, unit.neutral),
            size(row, reason),
        )
        for row in rows
    ]
    notes = [
        wrapped(f"- Order: {order(rows)}."),
        wrapped(f"- Size: not comparable, {reason}.") if reason else "",
        wrapped(f"- Ours: {place}, seeds {', '.join(map(str, rows[0].ours.seeds))}.") if place != "computed" else "",
        wrapped(source),
        wrapped(f"- What differs: {result['differs']}"),
    ]
    return "\n".join((*parts, table(heads, shown), "".join(notes)))


def in_digits(number: float) -> str:
    """A number with about four digits."""
    if number == 0:
        return "0"
    return f"{number:.{max(0, min(3, 3 - math.floor(math.log10(abs(number)))))}f}"


def in_numbers(value: Estimate) -> str:
    """A mean with its interval where there is one."""
    found = bracket(value)
    return in_digits(value.mean) + (f" [{in_digits(found[0])}, {in_digits(found[1])}]" if found else "")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def wrapped(text: str) -> str:
    """A paragraph, or an item of a list, in lines of the width of the other documents."""
    indent = "  " if text.startswith("- ") else ""
    lines = textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page."""
    DOCUMENT.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
