"""`clockhands lab`: small models trained with each position encoding, compared, and their encodings dropped."""

import shlex
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clockhands.cli.group import talk
from clockhands.cli.output import OutPath, not_there, print_json, write_whole
from clockhands.errors import ClockhandsError, InvalidValue

if TYPE_CHECKING:
    from clockhands.lab.results import Results
    from clockhands.lab.running import Options
    from clockhands.lab.store import Key, Store, StoredStudy
    from clockhands.lab.study import Study

STORE = "lab.sqlite"

EXAMPLES = """\b
Examples:
  clockhands lab list
  clockhands lab run quick
  clockhands lab run my-study.toml --store results.sqlite
  clockhands lab resume --store results.sqlite
  clockhands lab report quick --html report.html
  clockhands lab tune my-study.toml
"""


@click.group("lab", epilog=EXAMPLES, no_args_is_help=True)
def command() -> None:
    """Train small models with each position encoding, compare them, and drop encodings after training.

    A STUDY is a TOML file, or the name of one that comes with clockhands (`clockhands lab list`). Results go to a
    store, one SQLite file. A study that was interrupted goes on from its last checkpoints when it is run again.

    Exit codes: 0 all gates of the study hold, 1 a gate or a trial failed, 2 could not, 130 interrupted.
    """


def _store_option(function: Any) -> Any:
    return click.option(
        "--store", type=OutPath(), default=STORE, show_default=True, help="The SQLite file that holds the results."
    )(function)


def _running_options(function: Any) -> Any:
    for option in reversed(
        (
            click.option("--engine", type=click.Choice(("local", "ray")), default="local", show_default=True,
                         help="Where trials run: processes of this machine, or a Ray cluster."),
            click.option("--address", metavar="A", help="The Ray cluster to connect to; without it, Ray starts here."),
            click.option("--jobs", type=click.IntRange(1, 256), metavar="N",
                         help="Trials at the same time; without it, as many as there are cores for."),
            click.option("--threads", type=click.IntRange(1, 256), default=1, show_default=True, metavar="N",
                         help="Threads of a trial. Results are the same only for the same number."),
            click.option("--device", default="cpu", show_default=True, help="Where models are: cpu, cuda, cuda:1, ..."),
            click.option("--gpus", type=click.FloatRange(min=0), default=0.0, show_default=True, metavar="X",
                         help="GPUs that Ray reserves for a trial."),
            click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
                         help="Processes of one trial, through Ray Train."),
            click.option("--tensorboard", type=OutPath(folder=True), metavar="DIR",
                         help="Write TensorBoard event files of every finished trial to this folder."),
        )
    ):  # fmt: skip
        function = option(function)
    return function


@command.command("run")
@click.argument("study", metavar="STUDY")
@_store_option
@_running_options
@click.option("--html", type=OutPath(), metavar="FILE", help="Write the report as one HTML page, too.")
@click.option("--force", is_flag=True, help="Replace the HTML file if it is there.")
def run(study: str, store: Path, html: Path | None, force: bool, **how: Any) -> int:
    """Run what is missing of a study, and print the results."""
    from clockhands.lab.store import Store
    from clockhands.lab.study import read

    if html is not None:
        not_there(html, force=force)
    chosen = read(study)
    options = _checked(chosen, **how)
    with Store.open(store) as opened:
        failed = _run(chosen, opened, options, how["tensorboard"])
        code = _report(_results(opened, chosen.hash), html, force)
    return max(code, 1 if failed else 0)


@command.command("resume")
@click.argument("study", metavar="[STUDY]", required=False)
@_store_option
@_running_options
def resume(study: str | None, store: Path, **how: Any) -> int:
    """Go on with what was interrupted, and try failed trials again.

    Without STUDY, all studies of the store go on, each as it was written when it was first run.
    """
    from clockhands.lab.store import Store
    from clockhands.lab.study import parse

    code = 0
    with Store.open(store, create=False) as opened:
        for stored in _chosen(opened, study):
            talk(f"{stored.name} ({stored.hash[:12]})")
            chosen = parse(stored.text, stored.name)
            options = _checked(chosen, **how)
            opened.retry(stored.hash)
            failed = _run(chosen, opened, options, how["tensorboard"])
            code = max(code, _report(_results(opened, stored.hash), None, False), 1 if failed else 0)
    return code


@command.command("list")
@click.option(
    "--store", type=OutPath(), metavar="FILE", help="List the studies of a store instead of the shipped ones."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_(store: Path | None, as_json: bool) -> None:
    """List the studies that come with clockhands, or those of a store."""
    from clockhands.show.lab import print_shipped, print_stored

    if store is None:
        from clockhands.lab.study import shipped_studies

        studies = shipped_studies()
        if not as_json:
            print_shipped(studies)
            return
        listed = [
            {"name": name, "needs": found.hint}
            if isinstance(found, ClockhandsError)
            else {"name": name, "question": found.question, "trials": len(found.trial_keys())}
            for name, found in studies.items()
        ]
    else:
        from clockhands.lab.store import STATES, Store

        with Store.open(store, create=False, write=False) as opened:
            found = [(each, opened.trials(each.hash)) for each in opened.studies()]
        if not as_json:
            print_stored(found)
            return
        listed = [
            {
                "name": each.name,
                "hash": each.hash,
                "created": each.created,
                "commit": each.commit_id,
                "trials": {state: sum(trial.state == state for trial in trials) for state in STATES},
            }
            for each, trials in found
        ]
    print_json({"studies": listed})


@command.command("report")
@click.argument("study", metavar="[STUDY]", required=False)
@_store_option
@click.option("--html", type=OutPath(), metavar="FILE", help="Write the report as one HTML page.")
@click.option("--force", is_flag=True, help="Replace the HTML file if it is there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--csv", type=OutPath(), metavar="FILE", help="Write every measured number as CSV.")
def report(*, study: str | None, store: Path, html: Path | None, force: bool, as_json: bool, csv: Path | None) -> int:
    """Print the gates and the numbers of a study.

    Each number is a mean over seeds with its 95 % interval. STUDY is a name, a TOML file, or the beginning of a hash;
    without it, the newest study of the store is shown.
    """
    from clockhands.lab.store import Store

    for path in (html, csv):
        if path is not None:
            not_there(path, force=force)
    with Store.open(store, create=False, write=False) as opened:
        stored = _chosen(opened, study)[-1]
        results = _results(opened, stored.hash)
        if csv is not None:

            def write_csv(path: Path) -> None:
                opened.export_csv(stored.hash, path)

            write_whole(csv, write_csv, force=force)
    return _report(results, html, force, as_json=as_json)


@command.command("tune")
@click.argument("study", metavar="STUDY")
@_store_option
@_running_options
def tune(study: str, store: Path, **how: Any) -> None:
    """Find the best learning rate for every arm and task.

    The rates that are tried, and the seeds, are in the section `tuning` of the study; its own seeds are not used. The
    best rate is the one with the lowest held-out loss at the training length, averaged over the tuning seeds.
    """
    from clockhands.lab.store import Store
    from clockhands.lab.study import read
    from clockhands.lab.tuning import best, tuning_study
    from clockhands.show.lab import print_tuned

    read_study = read(study)
    tuned = tuning_study(read_study)
    options = _checked(tuned, **how)
    with Store.open(store) as opened:
        _run(tuned, opened, options, how["tensorboard"])
        found = best(read_study, _results(opened, tuned.hash))
    print_tuned(found)


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of a study file."""
    import json

    from clockhands.lab.study import schema as made

    click.echo(json.dumps(made(), indent=2))


def _checked(study: "Study", *, tensorboard: Path | None, jobs: int | None, **how: Any) -> "Options":
    """The options of a run; refuses what cannot be run before anything is written."""
    from importlib.util import find_spec

    for package, extra in (("torch", "lab"), ("scipy", "lab"), ("tensorboard", "tensorboard")):
        if find_spec(package) is None and (package != "tensorboard" or tensorboard is not None):
            raise InvalidValue(f"This needs {package}, which is not installed.", f"pip install 'clockhands[{extra}]'")
    from clockhands.lab.running import Options, check

    options = Options(at_once=jobs, **how)
    check(study, options)
    return options


def _run(study: "Study", store: "Store", options: "Options", tensorboard: Path | None) -> bool:
    """Run what is missing of a study, with progress; whether a trial failed."""
    from clockhands.engines import Failed, Finished, Lost, Started, Told
    from clockhands.lab.running import events, prepare
    from clockhands.show.lab import Progress

    progress = prepare(study, store, shlex.join(["clockhands", *sys.argv[1:]]), options)
    trials = store.trials(study.hash)
    for each in trials:
        if each.state == "finished":
            _write_events(tensorboard, study, store, each.key)
    failed = any(each.state == "failed" for each in trials)
    if not progress.tokens:
        return failed
    try:
        with Progress(len(progress.tokens)) as shown, closing(events(study, store, options, progress)) as running:
            for event in running:
                match event:
                    case Finished():
                        shown.trial_ended(event.job.name, progress.share)
                        _write_events(tensorboard, study, store, progress.keys[event.job.name])
                    case Failed():
                        failed = True
                        shown.trial_ended(event.job.name, progress.share)
                        shown.say(f"failed: {event.job.name}: {event.message} {event.hint}".strip())
                    case Lost():
                        shown.say(f"lost: {event.job.name}: {event.reason} It goes on from its last checkpoint.")
                    case Told(message={"warning": warning}):
                        shown.say(f"warning: {warning}")
                    case Started() | Told():
                        shown.update(progress.share)
    except KeyboardInterrupt:
        done = sum(each.state == "finished" for each in store.trials(study.hash))
        again = shlex.join(["clockhands", "lab", "resume", "--store", str(store.path)])
        talk(f"Interrupted: {done} of {len(trials)} trials are finished and kept. `{again}` goes on.")
        raise
    if progress.elsewhere:
        count = len(progress.elsewhere)
        talk(f"{count} trials are run by another lab on this store; run this again to see their results.")
    return failed


def _write_events(folder: Path | None, study: "Study", store: "Store", key: "Key") -> None:
    """The event file of a trial, where a folder for them was given."""
    if folder is not None:
        from clockhands.lab.tensorboard import write_trial

        write_trial(folder, study, store.rows(study.hash, **key._asdict()))


def _results(store: "Store", hash_: str) -> "Results":
    from clockhands.lab.results import Results

    return Results.load(store, next(each for each in store.studies() if each.hash == hash_))


def _chosen(store: "Store", study: str | None) -> "list[StoredStudy]":
    """The studies of a store that are meant, the newest last."""
    found = store.studies()
    if study is not None:
        hashes = set()
        if study.endswith(".toml"):
            from clockhands.lab.study import read

            hashes = {read(study).hash}
        chosen = [
            each
            for each in found
            if study == each.name or each.hash in hashes or (len(study) >= 6 and each.hash.startswith(study))
        ]
    else:
        chosen = found
    if not chosen:
        names = ", ".join(dict.fromkeys(each.name for each in found)) or "none"
        what = "no study" if study is None else f"no study {study!r}"
        raise InvalidValue(f"The store {store.path} holds {what}.", f"It holds: {names}.")
    return chosen


def _report(results: "Results", html: Path | None, force: bool, *, as_json: bool = False) -> int:
    if as_json:
        print_json(results.to_dict())
    else:
        from clockhands.show.lab import print_results

        print_results(results)
    if html is not None:
        from clockhands.show.lab_report import report as page

        def write_page(path: Path) -> None:
            path.write_text(page([results]), encoding="utf-8")

        write_whole(html, write_page, force=force)
        talk(f"wrote {html}")
    return _exit_code(results)


def _exit_code(results: "Results") -> int:
    if any(gate.holds is False for gate in results.gates()) or results.states["failed"]:
        return 1
    return 0
