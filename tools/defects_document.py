"""Run the lines of docs/defects-in-libraries.md, ask the checks, and write what both say below them.

The prose is written by hand; a block of text behind a block of Python is what that prints, and one behind a comment
``check: NAME`` is what clockhands says of the peer of that name in ``tests/recognition/faults/peer_defects.py``. Run it
after a sentence of a fault has changed or another version of a library is pinned; a slow test holds the document to it.
"""

import contextlib
import io
import os
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "defects-in-libraries.md"
LINES = re.compile(
    r"^```python \(not run:[^\n]*\n(?P<code>.*?)^```\n\n```text\n(?P<printed>.*?)^```", re.MULTILINE | re.DOTALL
)
CHECK = re.compile(r"^<!-- check: (?P<name>[^\n]*) -->\n```text\n(?P<said>.*?)^```", re.MULTILINE | re.DOTALL)
PASSING = re.compile(r"<!-- right -->\n(?P<list>.*?)<!-- end -->", re.DOTALL)


def printed(code: str) -> str:
    """What these lines print, run by themselves."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, str(DOCUMENT), "exec"), {"__name__": "document"})
    return out.getvalue()


def said(name: str) -> str:
    """What clockhands says of a peer, in lines for a terminal."""
    from recognition.faults.peer_defects import OTHERWISE, report_of

    other = {one.name: one for one in OTHERWISE}
    if name in other:
        lines = other[name].say().splitlines()
    else:
        told = report_of(name).explanations
        lines = [line for one in told for line in (f"It {one.message}", f"  code: {' | '.join(one.codes)}")]
    return "".join(f"{textwrap.fill(line, 110, break_on_hyphens=False)}\n" for line in lines)


def right() -> str:
    """What passes, library by library."""
    from recognition.faults.peer_defects import RIGHT

    found: dict[str, list[str]] = {}
    for peer in RIGHT:
        found.setdefault(peer.library, []).append(peer.name.partition(", ")[2])
    lines = [f"- {library}: {'; '.join(names)}" for library, names in found.items()]
    return "".join(f"{textwrap.fill(line, 118, subsequent_indent='  ')}\n" for line in lines)


def refreshed(text: str) -> str:
    """The document with what is printed and said today."""

    def lines(found: re.Match[str]) -> str:
        return found[0].replace(f"```text\n{found['printed']}```", f"```text\n{printed(found['code'])}```")

    def check(found: re.Match[str]) -> str:
        return f"<!-- check: {found['name']} -->\n```text\n{said(found['name'])}```"

    text = PASSING.sub(lambda _: f"<!-- right -->\n{right()}<!-- end -->", text)
    return CHECK.sub(check, LINES.sub(lines, text))


if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = "torch"
    sys.path.insert(0, str(ROOT / "tests"))
    DOCUMENT.write_text(refreshed(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
