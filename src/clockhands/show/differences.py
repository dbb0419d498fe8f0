"""Prints a comparison of two readings of position codes.

For each group of layers: both codes, which pairs differ by how much and from which distance on, and a table of the
phase error and the mean cosine by distance.
"""

from collections.abc import Sequence
from typing import IO

from rich.text import Text

from clockhands.measures import LadderDifference, distances
from clockhands.runtimes import LayerDifference
from clockhands.runtimes.drafts import contexts_differ
from clockhands.runtimes.telling import (
    FAR_OFF,
    code_in_words,
    cosine_in_words,
    expected_differences,
    first_difference,
    layers_in_words,
    pairs_in_words,
    part_in_words,
    ratio_in_words,
)
from clockhands.show._page import Page, console_on, safe


def print_differences(
    first: str,
    second: str,
    groups: Sequence[LayerDifference],
    contexts: tuple[int | None, int | None],
    *,
    reach: int | None = None,
    length: int | None = None,
    exact: bool = False,
    draft: bool = False,
    file: IO[str] | None = None,
    width: int | None = None,
) -> None:
    """Print how two readings differ.

    Args:
        first: What the first is, in a few words.
        second: What the second is.
        groups: The layers that share one code in either of them.
        contexts: The length that each declares.
        reach: The length up to which they are compared.
        length: A distance to show beside the usual ones.
        exact: Whether float32 rounding, and a layout that a conversion changes, are differences.
        draft: Whether the second is a draft model of the first.
        file: Where to print; None is standard output.
        width: Columns to use; None takes the terminal's.
    """
    page = Page(console_on(file, width))
    lengths = contexts_differ(*contexts, draft=draft)
    known = all(code.layout for each in groups for code in (each.ours, each.theirs) if code is not None)
    if all(group.alike(exact=exact) for group in groups) and not lengths:
        same = "The draft agrees with its target" if draft else "Same position encoding"
        page.line(Text(f"{same}: {safe(first)} and {safe(second)}{expected_differences(groups)}.", style="bold green"))
        if draft and not known:
            page.paragraph("The layout of the draft is not known, and was not compared.")
        return
    sides = ("target", "draft") if draft else ("first", "second")
    page.paragraph(first_difference(groups, contexts, sides, exact=exact), style="bold yellow")
    page.row(sides[0], first, None)
    page.row(sides[1], second, None)
    if draft:
        what = "base, scaling, layout and context" if known else "base, scaling and context; the layout is not known"
        page.row("compared", f"{what}; width, layers and windows may differ", None)
    if lengths:
        page.row("context", f"length {contexts[0]:,} against {contexts[1]:,}", None)
    for group in groups:
        page.line()
        _print_group(page, group, sides, distances(reach, length))


def _print_group(page: Page, group: LayerDifference, names: tuple[str, str], shown: Sequence[int]) -> None:
    where = group.layers and (group.layers if " of every " in group.layers else layers_in_words(group.layers))
    page.line(Text(": ".join(filter(None, (part_in_words(group.part), where))), style="bold"))
    if group.same:
        page.row("same", code_in_words(group.ours), None)
        return
    page.row(names[0], code_in_words(group.ours), None)
    page.row(names[1], code_in_words(group.theirs), None)
    for text in group.says:
        page.row("differs", text, None)
    ladder = group.ladder
    if ladder is None:
        return
    if not ladder.same_factor:
        page.row("factor", f"the {names[0]} scales cos and sin by {ladder.factor_ratio:.6g} times the {names[1]}", None)
    if ladder.same_rates:
        page.row("frequencies", "the same", None)
        return
    differ = "differs" if ladder.first == ladder.last else "differ"
    page.row(
        "frequencies", f"{pairs_in_words(ladder)} {differ}, {ratio_in_words(ladder)} (pair {ladder.ratio_pair})", None
    )
    reached = [f"{radians:g} rad from distance {ladder.reaches(radians):,}" for radians in FAR_OFF]
    page.row("off by", f"{', '.join(reached)} (pair {ladder.drift_pair} first)", None)
    _print_table(page, ladder, shown)


def _print_table(page: Page, ladder: LadderDifference, shown: Sequence[int]) -> None:
    page.line(f"  {'distance':>13}{'largest error':>17}{'mean cosine':>14}")
    for distance in shown:
        error = f"{_radians(ladder.angle_error(distance))} rad"
        page.line(f"  {distance:>13,}{error:>17}{cosine_in_words(ladder.mean_cosine(distance)):>14}")


def _radians(angle: float) -> str:
    """Four digits, and whole radians where that is less.

    >>> _radians(0.00088941), _radians(16970.4)
    ('0.0008894', '16,970')
    """
    return f"{angle:.4g}" if angle < 1000 else f"{angle:,.0f}"
