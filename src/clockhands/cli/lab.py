"""`clockhands lab`: small models trained with each position encoding, compared, and their encodings dropped."""

import shlex
import sys
import tomllib
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from clockhands.cli.group import say, talk
from clockhands.cli.lengths import Length
from clockhands.cli.output import (
    OutPath,
    json_option,
    not_there,
    options,
    print_json,
    store_option,
    write_text,
    write_whole,
)
from clockhands.errors import ClockhandsError, InvalidValue

if TYPE_CHECKING:
    from clockhands.lab.results import Results
    from clockhands.lab.running import Options
    from clockhands.lab.store import Store, StoredStudy
    from clockhands.lab.study import Study

STORE = "lab.sqlite"

_EXTENSIONS = 4  # rates that are tried beyond a grid that ends at its best

_AS_BEGUN = "(default: {}). It cannot change after the first run of a study."

EXAMPLES = """\b
Examples:
  clockhands lab list
  clockhands lab run quick
  clockhands lab run my-study.toml --store results.sqlite
  clockhands lab resume --store results.sqlite
  clockhands lab report quick --html report.html
  clockhands lab probe --store results.sqlite
  clockhands lab tune my-study.toml
"""


@click.group("lab", epilog=EXAMPLES, no_args_is_help=True)
def command() -> None:
    """Train small models with each position encoding, compare them, and drop encodings after training.

    A STUDY is a TOML file, or the name of one that comes with clockhands (`clockhands lab list`). Results go to a
    store: one SQLite file. An interrupted study continues from its last checkpoints when it is run again. A gate is a
    condition on the results that the study file states.

    Exit codes: 0 every trial is finished and the bounds of every gate are met, even if by chance; 1 a gate fails or
    cannot be judged, or a trial failed or is not finished; 2 the command could not run; 130 interrupted.
    """


_store_option = store_option(STORE)
_full_option = click.option(
    "--full", is_flag=True, help="Also train every combination of the values of the study's grid, and its full sizes."
)
_running_options = options(
    click.option("--engine", type=click.Choice(("local", "ray")), default="local", show_default=True,
                 help="Where trials run: in processes of this machine, or on a Ray cluster."),
    click.option("--address", metavar="A",
                 help="Address of the Ray cluster (default: Ray is started on this machine)."),
    click.option("--jobs", type=click.IntRange(1, 256), metavar="N",
                 help="Trials that run at the same time (default: set by the number of cores)."),
    click.option("--threads", type=click.IntRange(1, 256), metavar="N",
                 help=f"Number of threads for each trial {_AS_BEGUN.format(1)}"),
    click.option("--device", metavar="D",
                 help=f"Device of the models: cpu, cuda or cuda:1 {_AS_BEGUN.format('cpu')}"),
    click.option("--gpus", type=click.FloatRange(min=0), default=0.0, show_default=True, metavar="X",
                 help="GPUs that Ray reserves for a trial."),
    click.option("--workers", type=click.IntRange(min=1), metavar="N",
                 help=f"Number of processes for each trial, with Ray Train {_AS_BEGUN.format(1)}"),
)  # fmt: skip


def _steps(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, ...]:
    words = [] if value is None else value.split(",")
    if not all(each.strip().isdecimal() for each in words):
        raise click.BadParameter("Give whole numbers of steps with commas between them, such as 0,100,400.")
    return tuple(sorted({int(each) for each in words}))


@command.command("run")
@click.argument("study", metavar="STUDY")
@_store_option
@_running_options
@_full_option
@click.option("--html", type=OutPath(), metavar="FILE", help="Also write the report as one HTML page.")
@click.option("--force", is_flag=True, help="Replace the HTML file if it already exists.")
@click.option("--keep", is_flag=True, help="Keep the model of each trial at some steps, for `clockhands probe`.")
@click.option("--keep-at", callback=_steps, metavar="STEPS", help="Keep it at these steps and at the end: 0,100,400.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only say what the whole study would cost: trials, parameters, memory and time, from a few steps.",
)
def run(
    *,
    study: str,
    store: Path,
    full: bool,
    html: Path | None,
    force: bool,
    dry_run: bool,
    keep: bool,
    keep_at: tuple[int, ...],
    **how: Any,
) -> int:
    """Run the missing parts of a study, and print the results.

    With --keep, models are in the folder STORE.kept; `clockhands probe STORE:ARM:SEED@STEP` looks into one.
    """
    from clockhands.lab.study import read

    whole = replace(read(study), full=full)
    how["keep"] = keep_at if keep or keep_at else None
    if dry_run:
        from clockhands.lab.forecast import forecast
        from clockhands.show.lab import print_forecast

        print_forecast(forecast(whole, _checked(whole, store, how), lambda arm: talk(f"measuring {arm}")))
        return 0
    if html is not None:
        not_there(html, force=force)
    return _report(_run(whole, store, how), html, force)


@command.command("resume")
@click.argument("study", metavar="[STUDY]", required=False)
@_store_option
@_running_options
def resume(study: str | None, store: Path, **how: Any) -> int:
    """Continue interrupted studies, and run failed trials again.

    Without STUDY, all studies in the store continue, each with its study file as it was at the first run, and in its
    full form if it was begun in that.
    """
    from clockhands.lab.own_codes import refuse_other_code
    from clockhands.lab.store import Store
    from clockhands.lab.study import parse

    with Store.open(store, create=False) as opened:
        chosen = [(each, {trial.key for trial in opened.trials(each.hash)}) for each in _chosen(opened, study)]
    code = 0
    for stored, keys in chosen:
        talk(f"{stored.name} ({stored.hash[:12]})")
        refuse_other_code(tomllib.loads(stored.text), Path.cwd())
        whole = parse(stored.text, stored.name)
        whole = replace(whole, full=not keys <= {*whole.trial_keys()})
        code = max(code, _report(_run(whole, store, how, again=True), None, False))
    return code


@command.command("list")
@click.option("--store", type=OutPath(), metavar="FILE", help="List the studies in this results file instead.")
@json_option
def list_(store: Path | None, as_json: bool) -> None:
    """List built-in studies, or those in a results file."""
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
@click.option("--force", is_flag=True, help="Replace the HTML file if it already exists.")
@json_option
@click.option("--csv", type=OutPath(), metavar="FILE", help="Write every measured number as CSV.")
@click.option(
    "--table", type=OutPath(), metavar="FILE", help="Write a table of the means: FILE ends in .md, .csv or .tex."
)
@click.option(
    "--figure", type=OutPath(), metavar="FILE", help="Draw the charts for a paper: FILE ends in .svg, .pdf or .png."
)
def report(*, study: str | None, store: Path, html: Path | None, force: bool, as_json: bool, csv: Path | None,
           table: Path | None, figure: Path | None) -> int:  # fmt: skip
    """Print the gates and the numbers of a study.

    Each number is a mean over seeds with the range of the seeds, or of 8 and more with a 95 % interval. STUDY is the
    name of a study, a TOML file, or the first characters of a study's hash; without STUDY, the newest study in the
    results file is shown. Of a study that comes with clockhands, the results that come with it are shown where there is
    no results file.
    """
    from clockhands.lab.results import Results
    from clockhands.lab.store import Store
    from clockhands.measures.claims import stored as with_results

    _need("scipy", "lab")
    if figure is not None:
        _need("matplotlib", "figures")
    for path in (html, csv, table, figure):
        if path is not None:
            not_there(path, force=force)
    if study in with_results() and csv is None and not store.exists() and _is_default("store"):
        from clockhands.lab.shipped_results import NOTE, shipped_results

        results = shipped_results(study)
        talk(NOTE.format(name=study, day=results.stored.created[:10]))
        return _report(results, html, force, as_json=as_json, table=table, figure=figure)
    with Store.open(store, create=False, write=False) as opened:
        stored = _chosen(opened, study)[-1]
        results = Results.load(opened, stored)
        if csv is not None:
            write_whole(csv, lambda path: opened.export_csv(stored.hash, path), force=force)
    return _report(results, html, force, as_json=as_json, table=table, figure=figure)


def _is_default(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is ParameterSource.DEFAULT


@command.command("probe")
@click.argument("study", metavar="[STUDY]", required=False)
@_store_option
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="Only this arm; may be repeated (default: all).")
@click.option(
    "--windows", type=click.IntRange(min=1), metavar="N", help="Held-out sequences that each model reads (default: 16)."
)
@click.option("--length", type=Length(least=8), metavar="L", help="Tokens of each (default: the trained length).")
def probe(*, study: str | None, store: Path, arms: tuple[str, ...], windows: int | None, length: int | None) -> int:
    """Measure the kept models of a study along their training.

    Of each arm and seed, at each step that `clockhands lab run --keep` kept: what each fault costs, and the removal of
    the encoding; what its matrix, and the best one, leave of a shift by one token; how many heads look at one distance;
    and the position that a linear map reads after each layer. The numbers are stored with the results, and
    `clockhands lab report` draws them; the results are printed with them. A model that was measured so before is not
    measured again.
    """
    from clockhands.cli.probe import shown_progress
    from clockhands.lab.results import Results
    from clockhands.lab.store import Store
    from clockhands.probes.kept_studies import WINDOWS, probe_study

    with Store.open(store, create=False) as opened:
        stored = _chosen(opened, study)[-1]
        with shown_progress() as progress:
            measured = probe_study(opened, stored, arms, windows=windows or WINDOWS, length=length, progress=progress)
        talk(f"{measured} trials were measured, and are stored in {store}.")
        return _report(Results.load(opened, stored), None, False)


@command.command("tune")
@click.argument("study", metavar="STUDY")
@_store_option
@_running_options
def tune(study: str, store: Path, **how: Any) -> int:
    """Find the best learning rate for every arm and task.

    An arm is one variant of the model, such as one encoding. The section `tuning` of the study lists the learning rates
    to try and the seeds to try them with; the study's own seeds are not used. The best learning rate has the lowest
    held-out loss at the training length, averaged over the tuning seeds. Where it is at the end of the list, further
    ones are tried beyond it, at most 4. The best learning rates are printed as TOML for the study file. The exit code
    is 1 if an arm has no learning rate for which training finished.
    """
    from clockhands.lab.study import read
    from clockhands.lab.tuning import best, extension, tuning_study
    from clockhands.show.lab import print_tuned

    read_study = read(study)
    results = [_run(tuning_study(read_study), store, how)]
    found = best(read_study, *results)
    for _ in range(_EXTENSIONS):
        if not (wider := extension(found)):
            break
        talk(f"the best of {sum(map(len, wider.values()))} is at the end of its learning rates: further ones are tried")
        results.append(_run(tuning_study(read_study, wider), store, how))
        found = best(read_study, *results)
    print_tuned(found)
    return 1 if any(each.best is None for each in found) else 0


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of a study file."""
    import json

    from clockhands.lab.study import schema as made

    say(json.dumps(made(), indent=2))


def _need(package: str, extra: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise InvalidValue(
            f"This command needs {package}, which is not installed.", f"pip install 'clockhands[{extra}]'"
        )


def _checked(study: "Study", path: Path, how: Mapping[str, Any]) -> "Options":
    """The options of a run; what cannot be run is refused before anything is written."""
    for package in ("torch", "scipy"):
        _need(package, "lab")
    if how["engine"] == "ray":
        _need("ray", "ray")
    from clockhands.jobs.databases.store_errors import NotAStore
    from clockhands.lab.running import AS_BEGUN, Options, check
    from clockhands.lab.store import Store

    given = {name: value for name, value in how.items() if value is not None and name != "jobs"}
    begun = None
    with suppress(NotAStore), Store.open(path, create=False, write=False) as store:  # if it is none, it will be one
        begun = store.study(study.hash)
    if begun is not None:
        before: dict[str, Any] = {name: begun.machine[name] for name in AS_BEGUN if name in begun.machine}
        if (kept := begun.machine.get("kept")) is not None:
            before["keep"] = tuple(kept)
        given = before | given
    options = Options(at_once=how["jobs"], **given)
    check(study, options)
    return options


def _run(study: "Study", path: Path, how: Mapping[str, Any], *, again: bool = False) -> "Results":
    """Check a study, run its missing parts (also failed trials if ``again``), and read the results."""
    from clockhands.lab.results import Results
    from clockhands.lab.store import Store

    try:
        options = _checked(study, path, how)
        with Store.open(path) as store:
            _train(study, store, options, again)
            stored = store.study(study.hash)
            assert stored is not None
            return Results.load(store, stored)
    except KeyboardInterrupt:
        _say_interrupted(study, path, how)
        raise


def _say_interrupted(study: "Study", path: Path, how: Mapping[str, Any]) -> None:
    """Print what was kept, and the command that continues, with the given options."""
    from clockhands.lab.store import Store

    held, trials = [], []
    with suppress(ClockhandsError), Store.open(path, create=False, write=False) as store:
        held = [each.hash for each in store.studies()]
        trials = store.trials(study.hash) if study.hash in held else []
    if not trials:
        talk("Interrupted before the first trial began: nothing was stored. The same command begins again.")
        return
    context = click.get_current_context()
    if context.info_name == "tune":  # `resume` would not say the best rates
        words = ["tune", context.params["study"]]
    else:
        words = ["resume", *([study.hash[:12]] if len(held) > 1 else [])]
    words += ["--store", str(path.resolve())]
    for name in (option.name or "" for option in context.command.params):  # in one order, however they were given
        if name in how and name != "keep" and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            words += [f"--{name}", str(how[name])]
    done = sum(each.state == "finished" for each in trials)
    talk(
        f"Interrupted: {done} of {len(trials)} trials are finished and kept. "
        f"`{shlex.join(['clockhands', 'lab', *words])}` goes on."
    )


def _train(study: "Study", store: "Store", options: "Options", again: bool) -> None:
    """Train what is missing of a study, with progress."""
    from clockhands.jobs.engines import Failed, Finished, JobMessage, Lost, Started
    from clockhands.lab.running import events, prepare
    from clockhands.show.lab import ProgressView

    progress = prepare(study, store, shlex.join(["clockhands", *sys.argv[1:]]), options, again=again)
    if progress.warning:
        talk(f"warning: {progress.warning}")
    if not progress.tokens:
        return
    with ProgressView(len(progress.tokens)) as shown, closing(events(study, store, options, progress)) as running:
        for event in running:
            match event:
                case Finished():
                    shown.trial_ended(event.job.name, progress.share)
                case Failed():
                    shown.trial_ended(event.job.name, progress.share)
                    shown.say(f"failed: {event.job.name}: {event.message} {event.hint}".strip())
                case Lost():
                    shown.say(f"lost: {event.job.name}: {event.reason} It goes on from its last checkpoint.")
                case JobMessage(message={"warning": warning}):
                    shown.say(f"warning: {warning}")
                case Started() | JobMessage():
                    shown.update(progress.share)
    if progress.elsewhere:
        count = len(progress.elsewhere)
        talk(f"{count} trials are run by another lab on this store; run this again to see their results.")


def _chosen(store: "Store", study: str | None) -> "list[StoredStudy]":
    """The selected studies of a store, the newest last."""
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
        raise InvalidValue(f"The results file {store.path} holds {what}.", f"Choose one of its studies: {names}.")
    return chosen


def _report(
    results: "Results",
    html: Path | None,
    force: bool,
    *,
    as_json: bool = False,
    table: Path | None = None,
    figure: Path | None = None,
) -> int:
    if as_json:
        print_json(results.to_dict())
    else:
        from clockhands.show.lab import print_results

        print_results(results)
    if table is not None:
        from clockhands.show.lab_tables import table_of

        write_text(table, table_of(results, table), force=force)
        talk(f"wrote {table}")
    if figure is not None:
        from clockhands.show.lab_figures import figure_of

        drawn = figure_of(results, figure)
        write_whole(figure, lambda path: path.write_bytes(drawn), force=force)
        talk(f"wrote {figure}")
    if html is not None:
        from clockhands.show.lab_report import report as page

        write_text(html, page([results]), force=force)
        talk(f"wrote {html}")
    # A gate that cannot be judged does not hold.
    ended = results.states["finished"] == len(results.trials)
    return 0 if ended and all(gate.holds for gate in results.gates()) else 1
