"""What the pages of the course settle: statements of articles, each with the verdict of clockhands and a link.

A page lists the claims that it settles in its header, under `claims`; `statements.toml` lists what else articles say
and where it is answered. Nothing is listed twice, so the last page cannot leave one out.
"""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from IPython.display import Markdown

from clockhands.measures.claims import CLAIMS, recompute

HERE = Path(__file__).parent
VIEW = re.compile(r'<iframe class="view" src="\.\./explorer\.html#only=(?P<view>\w+)(?P<state>[^"]*)" title="')


def chapters() -> dict[str, str]:
    """The text of every page with cells, by name, in the order of the course's contents."""
    contents = (HERE / "index.md").read_text(encoding="utf-8")
    names = re.search(r"```\{toctree\}.*?\n\n(?P<names>.*?)```", contents, re.DOTALL)
    assert names is not None
    return {name: (HERE / f"{name}.md").read_text(encoding="utf-8") for name in names["names"].split()}


def header(page: str) -> dict[str, Any]:
    """What a page says of itself, above its text."""
    return yaml.safe_load(page.split("---\n")[1])


def title(page: str) -> str:
    """The question of a chapter."""
    found = re.search(r"^# (.+)$", page, re.MULTILINE)
    assert found is not None
    return found[1]


def listed() -> dict[str, list[str]]:
    """The chapters that settle each claim, by its ID."""
    found: dict[str, list[str]] = {}
    for name, page in chapters().items():
        for claim in header(page).get("claims", []):
            found.setdefault(claim, []).append(name)
    return found


def statements() -> list[dict[str, Any]]:
    """What else articles say or show: each with the claims, views and chapters that answer it."""
    return tomllib.loads((HERE / "statements.toml").read_text(encoding="utf-8"))["statement"]


def settled(name: str) -> Markdown:
    """The statements that a chapter settles: their verdicts, and whether their numbers came out as stated."""
    told = [recompute(CLAIMS[claim]) for claim in header((HERE / f"{name}.md").read_text(encoding="utf-8"))["claims"]]
    lines = [f"- {_verdict(each.claim.id)} {_link(each.claim.id)}" for each in told]
    numbers, moved = (sum(map(len, parts)) for parts in ([x.numbers for x in told], [x.moved for x in told]))
    counted = f"{len(told)} statements. Of the {numbers} numbers behind them, computed again just now, {moved} differ."
    return Markdown("\n".join([*lines, "", counted]))


def every_claim() -> Markdown:
    """A table of all claims, with the chapters that settle them."""
    pages, where = chapters(), listed()
    rows = [
        f"| {_escaped(told.statement)} | {told.verdict} | {_link(name)} | {_chapters(where[name], pages)} |"
        for name, told in CLAIMS.items()
    ]
    return Markdown("\n".join(["| statement | verdict | claim | chapter |", "|---|---|---|---|", *rows]))


def every_statement() -> Markdown:
    """A table of what else articles say or show, with what answers it."""
    pages = chapters()
    rows = [f"| {_escaped(each['says'])} | {', '.join(_answers(each, pages))} |" for each in statements()]
    return Markdown("\n".join(["| what is said or shown | answered by |", "|---|---|", *rows]))


def _answers(each: dict[str, Any], pages: dict[str, str]) -> Iterator[str]:
    yield from map(_link, each.get("claims", []))
    yield from (f'view <a href="../explorer.html#only={view}">{view}</a>' for view in each.get("views", []))
    yield from (_chapters([name], pages) for name in each.get("chapters", []))


def _verdict(claim: str) -> str:
    told = CLAIMS[claim]
    condition = f" {told.condition}" if told.condition else ""
    return f"“{_escaped(told.statement)}” **{told.verdict.capitalize()}**{_escaped(condition)}"


def _link(claim: str) -> str:
    return f"[{_escaped(claim)}](../{_pages_of_claims()[claim]})"


@cache
def _pages_of_claims() -> dict[str, str]:
    """Page and anchor of each claim below the folder of documents, from the index of claims."""
    found = dict(re.findall(r'<a id="([^"]+)"></a>.*\]\(([^)\s]+)\)', (HERE.parent / "claims.md").read_text("utf-8")))
    return {claim: found["".join(char for char in claim if char.isalnum() or char in "-_")] for claim in CLAIMS}


def _chapters(names: list[str], pages: dict[str, str]) -> str:
    return ", ".join(f"[{title(pages[name])}]({name}.md)" for name in names)


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]|<>$])", r"\\\1", text)
