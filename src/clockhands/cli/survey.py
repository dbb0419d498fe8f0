"""`clockhands survey`: many models audited in parallel, one row for each in a store, and a page of them all."""

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from clockhands.cli import output
from clockhands.cli.group import talk
from clockhands.cli.lengths import Length
from clockhands.errors import InvalidValue, Unreadable
from clockhands.phrases import number_of

if TYPE_CHECKING:
    from clockhands.jobs.survey.rows import SurveyRow
    from clockhands.jobs.survey.running import SurveyProgress
    from clockhands.jobs.survey.store import SurveyStore

STORE = "survey.sqlite"
PAGES = 1000

EXAMPLES = """\b
Examples:
  clockhands survey run path/to/models
  clockhands survey run --names names.txt --store names.sqlite
  clockhands survey run path/to/models --engine ray --address auto
  clockhands survey report --html survey.html --csv survey.csv
"""


@click.group("survey", epilog=EXAMPLES, no_args_is_help=True)
def command() -> None:
    """Audit many models in parallel, and show them on one page.

    Results go to a store: one SQLite file with a row for each model, revision of its files and version of clockhands.
    An interrupted survey continues when it is run again. A file that crashes its audit, or takes too long, costs its
    own row only.

    Exit codes: 0 every model was audited and has no error; 1 a model has an error or could not be audited; 2 the
    command could not run; 130 interrupted.
    """


_store = output.store_option(STORE)
_page = output.options(
    click.option("--html", type=output.OutPath(), metavar="FILE", help="Write a page to sort and filter all models."),
    click.option("--pages", type=click.IntRange(min=0), default=PAGES, show_default=True, metavar="N",
                 help="With --html: models that get a page of their own, those with problems first."),
    click.option("--csv", type=output.OutPath(), metavar="FILE", help="Write all rows as CSV."),
    click.option("--force", is_flag=True, help="Replace the files if they already exist."),
    output.json_option,
)  # fmt: skip


@command.command("run")
@click.argument("targets", metavar="[TARGET]...", nargs=-1)
@click.option("--names", type=click.Path(dir_okay=False, allow_dash=True), metavar="FILE",
              help="A file that lists further targets, one on each line (- for standard input).")  # fmt: skip
@_store
@output.options(
    click.option("--engine", type=click.Choice(("local", "ray")), default="local", show_default=True,
                 help="Where models are audited: in processes of this machine, or on a Ray cluster."),
    click.option("--address", metavar="A",
                 help="Address of the Ray cluster (default: Ray is started on this machine)."),
    click.option("--jobs", type=click.IntRange(1, 4096), metavar="N",
                 help="Number of processes (default: one for each core)."),
    click.option("--length", type=Length(), metavar="N",
                 help="Length in tokens for which the frequencies are computed. It cannot change later."),
    click.option("--timeout", type=click.FloatRange(min=0.1), default=60.0, show_default=True, metavar="S",
                 help="Seconds that an audit may take."),
    click.option("--retry", is_flag=True, help="Audit models again that could not be audited."),
)  # fmt: skip
@_page
def run(targets: tuple[str, ...], names: str | None, store: Path, **how: Any) -> int:
    """Audit all models that have no row in the store yet.

    A TARGET is a folder, in which every model is audited, or what `clockhands audit` takes.
    """
    if not targets and names is None:
        raise click.UsageError("Name a folder, a model, or a list of them with --names.")
    from clockhands.jobs.survey.batches import Workers
    from clockhands.jobs.survey.running import SurveyOptions, survey, targets_of
    from clockhands.jobs.survey.store import SurveyStore

    _check_files(how)
    workers = Workers(how["engine"], how["address"], how["jobs"], timeout=how["timeout"])
    options = SurveyOptions(workers, how["length"], how["retry"])
    progress = None
    with SurveyStore.open(store) as opened:
        try:
            with _listed(targets, names) as listed:
                meant, total = targets_of(listed), None
                if names != "-":  # whose names may come one by one
                    meant = list(meant)
                    total = len(meant)
                with closing(survey(meant, opened, options)) as running:
                    shown = _Progress(total)
                    for progress in running:
                        shown.update(progress)
                    shown.end()
        except KeyboardInterrupt:
            stored = 0 if progress is None else progress.stored
            was = "was" if stored == 1 else "were"
            talk(f"Interrupted: {number_of(stored, 'row')} {was} stored in this run. The same command continues.")
            raise
        if progress is not None:
            failed = f", {progress.failed:,} could not be audited" if progress.failed else ""
            audited = number_of(progress.stored - progress.failed, "model")
            talk(f"{audited} audited{failed}, {progress.known:,} known from an earlier run.")
            again = f"clockhands survey report --store {shlex.quote(str(store))}"
            talk(f"All rows are in {store}: `{again}` shows them again.")
        return _report(opened, how)


@command.command("report")
@_store
@_page
def report(store: Path, **how: Any) -> int:
    """Show what a survey found: as text, as a page, as CSV, as JSON."""
    from clockhands.jobs.survey.store import SurveyStore

    _check_files(how)
    with SurveyStore.open(store, create=False, write=False) as opened:
        return _report(opened, how)


@contextmanager
def _listed(targets: tuple[str, ...], names: str | None) -> Iterator[Iterator[str]]:
    """The named targets, then those of the list."""
    from clockhands.jobs.survey.running import read_names

    if names is None:
        yield iter(targets)
        return
    try:
        # A file name may have bytes that are no UTF-8; some editors begin a file with a byte order mark.
        with click.open_file(names, encoding="utf-8-sig", errors="surrogateescape") as file:
            yield (each for group in (targets, read_names(file)) for each in group)
    except OSError as error:
        raise Unreadable(f"{names} cannot be read: {error.strerror or error}.", "Check the path.") from None


def _check_files(how: dict[str, Any]) -> None:
    for path in (how["html"], how["csv"]):
        if path is not None:
            output.not_there(path, force=how["force"])
    if how["html"] is not None and how["pages"] and not how["force"] and _folder_of(how["html"]).exists():
        raise InvalidValue(
            f"The folder {_folder_of(how['html'])} for the reports of the models is already there.",
            "Give another name to --html, or `--force` to write into it.",
        )


def _report(store: "SurveyStore", how: dict[str, Any]) -> int:
    """Print the survey, and write the requested files."""
    from clockhands.jobs.survey.revisions import still_there
    from clockhands.jobs.survey.store import export_csv
    from clockhands.jobs.survey.summary import survey_to_dict

    rows, gone = still_there(store.rows())
    # A program that asks for data does not pay for the drawing.
    if how["as_json"]:
        output.print_json(survey_to_dict(rows, gone))
    else:
        from clockhands.show.survey import print_survey

        print_survey(rows, gone=gone)
    if how["csv"] is not None:
        output.write_whole(how["csv"], lambda path: export_csv(rows, path), force=how["force"])
        talk(f"wrote {how['csv']}")
    if how["html"] is not None:
        _write_page(store, rows, how["html"], how["pages"], force=how["force"])
    return int(any(row.grade in ("error", "failed") for row in rows))


def _write_page(store: "SurveyStore", rows: "list[SurveyRow]", path: Path, most: int, *, force: bool) -> None:
    """Write the reports of models into a folder beside the page, those with problems first, and the page."""
    from clockhands.jobs.survey.summary import worst_first
    from clockhands.show.survey_page import file_name, gallery

    chosen = [row for row in worst_first(rows) if row.state == "done"][:most]
    folder = _folder_of(path)
    if chosen:
        folder.mkdir(exist_ok=True)
    pages = {}
    for row in chosen:
        name = file_name(row)
        output.write_text(folder / name, _model_page(store, row), force=force)
        pages[row.target] = f"{quote(folder.name)}/{name}"
    output.write_text(path, gallery(rows, pages), force=force)
    talk(f"wrote {path}" + (f", and {number_of(len(chosen), 'report')} in {folder}" if chosen else ""))


def _folder_of(path: Path) -> Path:
    return path.with_name(f"{path.stem}-models")


def _model_page(store: "SurveyStore", row: "SurveyRow") -> str:
    """The report of a model: audited again if its files are the same, else as it was stored.

    A store may be from elsewhere: what it names without a file is not looked for, on a hub or on standard input.
    """
    from importlib.metadata import version

    from clockhands.jobs.survey.revisions import revision_of
    from clockhands.jobs.survey.worker import audited
    from clockhands.show.report import report as page
    from clockhands.show.stored_report import stored_report

    if row.revision and row.version == version("clockhands") and row.revision == revision_of(row.target):
        return page([audited(row.target, store.length)], explorer=False)
    try:
        return stored_report(row, store.report_of(row))
    except (KeyError, TypeError, AttributeError, ValueError):  # of a store from elsewhere
        raise store.corrupted(f"the report of {row.target} is none of an audit") from None


class _Progress:
    """The progress of a survey: one line on a terminal, and nothing elsewhere."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        stream = sys.stderr
        self.shown = stream is not None and stream.isatty()  # pyright: ignore[reportUnnecessaryComparison] - closed
        self.next = 0.0

    def update(self, progress: "SurveyProgress") -> None:
        """Show the numbers, a few times a second."""
        if self.shown and time.monotonic() >= self.next:
            self.next = time.monotonic() + 0.2
            failed = f", {progress.failed:,} failed" if progress.failed else ""
            done = f"{progress.stored + progress.known:,}" + (f" of {self.total:,}" if self.total is not None else "")
            says = f"\r{done} models: audited {progress.stored:,}{failed}, known {progress.known:,} "
            click.echo(says, nl=False, err=True)

    def end(self) -> None:
        """End the progress line."""
        if self.shown and self.next:
            click.echo("\r" + " " * 60 + "\r", nl=False, err=True)
