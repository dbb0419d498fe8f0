"""`clockhands explore`: writes the interactive explorer, one HTML page that needs no network."""

import tempfile
import webbrowser
from pathlib import Path

import click

from clockhands.auditing import Audit
from clockhands.cli.audit import Failure, audited
from clockhands.cli.group import complain, talk
from clockhands.cli.output import OutPath, not_there, write_text
from clockhands.configs.callables import IN_FILE

EXAMPLES = """\b
Examples:
  clockhands explore
  clockhands explore path/to/model
  clockhands explore model.gguf config.json --out page.html
  clockhands explore vaswani2017:width=8 --out toy.html
  clockhands explore my_codes.py:Mine llama3 --out mine.html
  clockhands explore --model glassllm --out model.html
"""


@click.command("explore", epilog=EXAMPLES)
@click.argument("targets", metavar="[TARGET]...", nargs=-1)
@click.option(
    "--out", type=OutPath(), metavar="PAGE.html", help="Write the page to this file; without it a browser opens it."
)
@click.option(
    "--model",
    type=click.Choice(["glassllm"]),
    help="Run this trained model on the page, to see what wrong positions cost it. Needs the package of this name.",
)
@click.option("--force", is_flag=True, help="Replace PAGE.html if it already exists.")
def command(targets: tuple[str, ...], out: Path | None, model: str | None, force: bool) -> int:
    """Interactive explorer: one HTML page with the presets, or with your models.

    A TARGET is what `clockhands audit` takes: a model folder, a config.json, a .gguf file, a preset, ... The page opens
    with the first TARGET that has frequencies, and shows the findings of every TARGET. It is a single file that works
    without a network and sends nothing. FILE.py:NAME is an encoding of your own: the file is run.
    """
    if force and out is None:
        raise click.UsageError("--force is for --out, which says what to replace.")
    if out is not None:
        not_there(out, force=force, reads=targets)
    failures: list[Failure] = []
    audits = [found for target in targets if (found := _audited(target, failures, len(targets) == 1)) is not None]
    if targets and not audits:
        return 2
    # Imported when there is something to show.
    from clockhands.show.explorer.data import data
    from clockhands.show.explorer.page import page

    text = page(data(audits, model), _title(audits))
    if out is not None:
        write_text(out, text, force=force, reads=targets)
        talk(f"note: {out} holds the page.")
        opened = True
    else:
        opened = _browser_shows(text)
    return 0 if opened and not failures else 2


def _audited(target: str, failures: list[Failure], alone: bool) -> Audit | None:
    """The audit of a target; of an encoding of the user's own, of the spec that gives its numbers."""
    if not IN_FILE.fullmatch(target):
        return audited(target, failures, alone=alone)
    # Imported when a file of code is named.
    from clockhands.auditing.sampled_encodings import audit_of_own
    from clockhands.configs.own_encodings import named_encoding

    return audit_of_own(named_encoding(target))


def _title(audits: list[Audit]) -> str:
    """The window's title: the name of the model, if there is only one."""
    if len(audits) != 1:
        return "clockhands"
    # Imported when there is something to show.
    from clockhands.show.findings import IN_TITLES, cut, short_name

    return f"clockhands: {cut(short_name(audits[0].target), IN_TITLES)}"


def _browser_shows(text: str) -> bool:
    """Show the page in a browser, from a file that is kept, since the browser may reload it."""
    with tempfile.NamedTemporaryFile(prefix="clockhands-", suffix=".html", delete=False) as file:
        path = Path(file.name)
    path.write_text(text, encoding="utf-8")
    if webbrowser.open(path.as_uri()):
        talk(f"note: the page is {path}")
        return True
    complain("No browser could be opened.", f"Open {path} yourself, or pass a file for the page with --out.")
    return False
