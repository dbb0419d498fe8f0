"""`clockhands probe`: what a trained model does with its positions, measured on the running model."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from clockhands.cli.group import talk
from clockhands.cli.lengths import Length
from clockhands.cli.output import Option, OutPath, json_option, not_there, print_json, write_text
from clockhands.phrases import safe

EXAMPLES = """\b
Examples:
  clockhands probe path/to/model --text book.txt
  clockhands probe model.gguf --text book.txt --measure price --windows 8 --length 2048
  clockhands probe model.gguf --text book.txt --html probe.html
  clockhands probe org/name --text book.txt --json
  clockhands probe lab.sqlite:sinusoidal:0@400
  clockhands probe lab.sqlite:sinusoidal:0 --measure steps --html steps.html
"""

Progress = Callable[[str, float], None]


def _names(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(name.strip() for name in value.split(",") if name.strip())


text_option: Option = click.option(
    "--text",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The text that the model reads (UTF-8), in a language that it knows.",
)
windows_option: Option = click.option(
    "--windows", type=click.IntRange(min=1), default=4, show_default=True, metavar="N", help="Pieces of the text."
)
length_option: Option = click.option(
    "--length", type=Length(least=8), default=512, show_default=True, metavar="L", help="Tokens of each piece."
)


@click.command("probe", epilog=EXAMPLES)
@click.argument("target", metavar="TARGET")
@text_option
@click.option(
    "--measure",
    callback=_names,
    metavar="NAMES",
    help="Measurements with commas between them: price, behaviour, live, mechanism (default: all that are possible), "
    "and steps for a model that the lab kept.",
)
@windows_option
@length_option
@json_option
@click.option("--html", type=OutPath(), metavar="FILE", help="Write the results as one HTML page to this file too.")
@click.option("--force", is_flag=True, help="Let --html replace an existing file.")
def command(  # noqa: PLR0917 - click passes them by name
    target: str,
    text: Path | None,
    measure: tuple[str, ...] | None,
    windows: int,
    length: int,
    as_json: bool,
    html: Path | None,
    force: bool,
) -> int:
    """Measure what a trained model does with its positions.

    The model is run on pieces of a text: what each fault of positions costs in nats per token (price), what happens
    without positions, shifted, shuffled and past the context (behaviour), whether the positions in effect are the
    declared ones (live), and how heads, layers and dimension pairs use them (mechanism). TARGET is a model folder, a
    .gguf file, or a name in the local Hugging Face cache; it is run with PyTorch and Transformers. Or it is a model
    that `clockhands lab run --keep` kept, STORE:[STUDY:][TASK:]ARM:SEED[@STEP], which reads held-out sequences of the
    task that it was trained on. Ctrl-C keeps what was measured.
    """
    if force and html is None:
        raise click.UsageError("--force is for --html, which says what to replace.")
    reads = [target, *([] if text is None else [text])]
    if html is not None:
        not_there(html, force=force, reads=reads)
    # Imported when it is called: the help of all commands needs none of it.
    from clockhands.probes import probe

    with shown_progress(quiet=as_json) as progress:
        found = probe(target, text, measure=measure, windows=windows, length=length, progress=progress)
    if html is not None:
        from clockhands.show.probe import probe_page

        write_text(html, probe_page(found), force=force, reads=reads)
        talk(f"note: {html} holds the results.")
    if as_json:
        document = found.to_dict()
        print_json({name: value for name, value in document.items() if name != "schema"})
    else:
        from clockhands.show.probe import print_probe

        print_probe(found)
    if found.interrupted is not None:
        talk(f"note: interrupted during {found.interrupted}; the rest was not measured.")
        return 130
    return int(found.wrong)


@contextmanager
def shown_progress(*, quiet: bool = False) -> Iterator[Progress]:
    """A bar on stderr with the present measurement; a line for each step if stderr is not a terminal.

    Args:
        quiet: Whether a program reads the output: then there are no lines, only a bar on a terminal.
    """
    stderr = sys.stderr
    if stderr is None or not stderr.isatty():  # pyright: ignore[reportUnnecessaryComparison] - closed by the caller
        yield (lambda _what, _share: None) if quiet or stderr is None else (lambda what, _share: talk(f"{what} ..."))  # pyright: ignore[reportUnnecessaryComparison]
        return
    # Imported when a terminal shows it.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=stderr), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda what, share: bar.update(task, completed=share, description=safe(what))
