"""The figures of a run as a page in Markdown: what was measured, beside what is wanted, with versions and machine."""

from collections.abc import Iterable, Mapping
from typing import Any

HEAD = """# Benchmarks

Time and memory beside other libraries, measured by one run of

```sh (not run: it takes many minutes)
{command}
```

which writes this page; without `--quick` and `--only` it measures every part, and more often. Times are medians of runs
that alternate between the contestants: read the ratios, since other machines and other loads give other times. A target
that is not met is listed as it was measured.
"""


def page(figures: Mapping[str, Any], command: str) -> str:
    """The whole page.

    Args:
        figures: What `benchmarks/run.py --json` writes: versions, machine, units, what was measured, targets.
        command: The command of the run.
    """
    versions = ", ".join(f"{name} {number}" for name, number in figures["versions"].items())
    parts = [HEAD.format(command=command), f"{figures['machine']}. {versions}.\n"]
    if figures["targets"]:
        parts.append("\n## Targets\n")
        parts.append(
            table(
                {
                    "what": each["what"],
                    "measured": f"{each['measured']:.2f} {each['unit']}".strip(),
                    "wanted": f"{'at least' if each['more'] else 'at most'} {each['limit']:g} {each['unit']}".strip(),
                    "met": "yes" if each["met"] else "**no**",
                }
                for each in figures["targets"]
            )
        )
    for name, measured in figures.items():
        if name not in {"versions", "machine", "units", "targets"}:
            unit = figures["units"].get(name, "")
            parts.append(f"\n## {name[0].upper()}{name[1:]}{f' ({unit})' if unit else ''}\n")
            parts.append(table(rows_of(measured)))
    return "\n".join(parts)


def rows_of(measured: Any) -> list[dict[str, Any]]:
    """What was measured as rows; of figures by name, a row for each."""
    if isinstance(measured, Mapping):
        return [
            {"what": name, **(row if isinstance(row, Mapping) else {"measured": row})} for name, row in measured.items()
        ]
    return [dict(row) for row in measured]


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as a table; a column that a row lacks is empty."""
    rows = list(rows)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(cell(row.get(name, '')) for name in columns)} |" for row in rows]
    return "\n".join(lines) + "\n"


def cell(value: Any) -> str:
    """A value of a table."""
    text = f"{value:.3g}" if isinstance(value, float) and abs(value) < 1000 else str(value)
    text = f"{value:,.0f}" if isinstance(value, float) and abs(value) >= 1000 else text
    return text.replace("|", r"\|")
