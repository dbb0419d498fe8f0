"""`clockhands learn`: the lesson and the course as two pages that need no network."""

import tempfile
import webbrowser
from pathlib import Path

import click

from clockhands.cli.group import complain, talk
from clockhands.cli.output import not_there, write_text

EXAMPLES = """\b
Examples:
  clockhands learn
  clockhands learn --out course
"""


@click.command("learn", epilog=EXAMPLES)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write the pages into this folder; without it a browser opens them.",
)
@click.option("--force", is_flag=True, help="Replace pages that already exist in FOLDER.")
def command(out: Path | None, force: bool) -> int:
    """The lesson in twelve pictures, and the six chapters of the course that take 20 minutes.

    Two pages are written, index.html with the chapters and explorer.html with the lesson and every view. They work
    without a network and send nothing.
    """
    if force and out is None:
        raise click.UsageError("--force is for --out, which says what to replace.")
    # Imported when the command is called.
    from clockhands.show.explorer.data import data
    from clockhands.show.explorer.page import page, source

    folder = Path(tempfile.mkdtemp(prefix="clockhands-")) if out is None else out
    texts = {folder / "explorer.html": page(data()), folder / "index.html": source("course.html")}
    folder.mkdir(parents=True, exist_ok=True)
    for path in texts:
        not_there(path, force=force)
    for path, text in texts.items():
        write_text(path, text, force=force)
    if out is not None or webbrowser.open((folder / "index.html").as_uri()):
        talk(f"note: {folder / 'index.html'} is the course; it leads to the lesson.")
        return 0
    complain("No browser could be opened.", f"Open {folder / 'index.html'} yourself, or pass a folder with --out.")
    return 2
