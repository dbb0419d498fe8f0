"""`clockhands audit`: what a model declares about positions, and what is wrong with it."""

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clockhands.auditing import CODES, Audit, audit
from clockhands.auditing.findings import SEVERITIES
from clockhands.cli.group import complain, known_codes, say, talk
from clockhands.cli.lengths import Length
from clockhands.cli.output import OutPath, not_there, print_json, showing_what_is_fetched, write_text, write_whole
from clockhands.errors import ClockhandsError, InvalidValue, Unreadable
from clockhands.phrases import number_of

if TYPE_CHECKING:
    from clockhands.auditing.fixes import Fix
    from clockhands.jobs.survey.batches import TargetOutcome
    from clockhands.probes.results import ProbeResult

EXAMPLES = """\b
Examples:
  clockhands audit path/to/model
  clockhands audit model.gguf --length 32768
  clockhands audit config.json --set rope_theta=1000000
  clockhands audit models/*/config.json --strict --baseline known.json --format sarif
  clockhands audit positions.npy
  clockhands audit org/name@v1.0
  clockhands audit vaswani2017:width=64
  clockhands audit path/to/model --html report.html
  clockhands audit path/to/model --diff
  clockhands audit path/to/model --fix
  clockhands audit -r path/to/models
  clockhands audit path/to/model --for vllm@0.25
  clockhands audit path/to/model --hf-overrides '{"rope_theta": 1000000}'
  clockhands audit path/to/model --with transformers
  clockhands audit path/to/model --live --price --text book.txt
"""

FORMATS = ("text", "json", "sarif", "github")
MANY = 10  # number of targets from which a progress bar is shown, and several processes audit them
EACH = "clockhands.jobs.survey.worker:audit_each"

Failure = dict[str, str]


def _codes(ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> frozenset[str]:
    return known_codes(ctx, values, CODES, "finding")


class _Command(click.Command):
    """Takes options of servers as the servers do: ``--hf-overrides.rope_parameters.factor 4`` is one key of the JSON.

    Source: vLLM's documentation of its engine arguments, which says that an option for JSON may be given key by key.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line."""
        kept: list[str] = []
        given: dict[str, Any] = {}
        words = iter(args)
        for word in words:
            name, equals, value = word.partition("=")
            option, *keys = name.split(".")
            option = option.replace("_", "-")
            if option not in _OF_SERVERS or (keys and option != "--hf-overrides") or "" in keys:
                kept.append(word)
            elif not keys:
                kept.append(option + equals + value)
            else:
                value = value if equals else next(words, None)
                if value is None:
                    raise click.UsageError(f"Option {name!r} requires an argument.", ctx)
                held = given
                for key in keys[:-1]:
                    inner = held.setdefault(key, {})
                    held = inner if isinstance(inner, dict) else given
                with suppress(ValueError):
                    value = json.loads(value)
                held[keys[-1]] = value
        return super().parse_args(ctx, [*([f"--hf-overrides={json.dumps(given)}"] if given else []), *kept])


_OF_SERVERS = {
    "--hf-overrides": "vllm",
    "--max-model-len": "vllm",
    "--json-model-override-args": "sglang",
    "--context-length": "sglang",
}


def _of_a_server(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> None:
    """Keep an option of a server as it is written, for `read_overrides`, and the server's name."""
    option = param.opts[0]
    for value in values:
        ctx.meta.setdefault("settings", []).append(f"{option.lstrip('-')}={value}")
        ctx.meta.setdefault("servers", []).append(_OF_SERVERS[option])


def _server_option(name: str, metavar: str, words: str) -> Callable[[Any], Any]:
    return click.option(name, multiple=True, metavar=metavar, expose_value=False, callback=_of_a_server, help=words)


@click.command("audit", cls=_Command, epilog=EXAMPLES)
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option(
    "--length",
    type=Length(),
    metavar="N",
    help="Length in tokens (131072, 128k, 1M) for which the frequencies are computed.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Audit as if KEY had this VALUE in the config (a.b=1 for nested keys); an object alone is taken as vLLM's"
    " --hf-overrides, json-model-override-args={...} as SGLang's. Can be repeated.",
)
@_server_option("--hf-overrides", "JSON", "vLLM's option; implies --for vllm.")
@_server_option("--max-model-len", "N", "vLLM's option; implies --for vllm.")
@_server_option("--json-model-override-args", "JSON", "SGLang's option; implies --for sglang.")
@_server_option("--context-length", "N", "SGLang's option; implies --for sglang.")
@click.option(
    "--for",
    "runtime",
    metavar="RUNTIME[@RELEASE]",
    help="Check what this runtime computes from the files: vllm, vllm@0.25. What other runtimes do is left out.",
)
@click.option("--weights", is_flag=True, help="Measure the layout from the query and key weights (reads all of them).")
@click.option(
    "--with",
    "classes",
    type=click.Choice(("transformers",)),
    help="Build the model's class of the installed library, without weights, and compare it with the file.",
)
@click.option("--live", is_flag=True, help="Run the model: are the declared positions in effect in every layer?")
@click.option("--price", is_flag=True, help="Run the model on --text: what each problem costs in nats per token.")
@click.option(
    "--text", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="The text for --live and --price."
)
@click.option("--verbose", "-v", is_flag=True, help="Show every value with its source, the properties and the notes.")
@click.option("--quiet", "-q", is_flag=True, help="Show only problems.")
@click.option("--diff", is_flag=True, help="Print the fixes as a unified diff in place of the report.")
@click.option("--fix", is_flag=True, help="Write each fixed config to NAME.fixed.json in the same folder.")
@click.option("--in-place", is_flag=True, help="With --fix: replace the config itself.")
@click.option("--out", type=OutPath(), metavar="FILE", help="With --fix: write the fixed config of one target to FILE.")
@click.option("--recursive", "-r", is_flag=True, help="Audit every model in these folders and the folders inside.")
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Number of processes (default: one for each core)."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=600.0,
    show_default=True,
    metavar="S",
    help="Seconds that the audit of one target may take.",
)
@click.option(
    "--fail-on",
    type=click.Choice(("error", "warning", "note", "never")),
    help="The lowest severity that makes the exit code 1 (default: error).",
)
@click.option("--strict", is_flag=True, help="Fail on warnings, and on a file that a current runtime refuses.")
@click.option(
    "--ignore", multiple=True, metavar="CODE", callback=_codes, help="Leave out findings of this code (repeatable)."
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Leave out the findings listed in this file.",
)
@click.option(
    "--write-baseline", type=OutPath(), metavar="FILE", help="Write the current findings to this file, for --baseline."
)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), help="How to print: text (the default), json, sarif, github."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--html", type=OutPath(), metavar="FILE", help="Write the report as one HTML page to this file too.")
@click.option("--force", is_flag=True, help="Let --html, --fix and --out replace existing files.")
def command(  # noqa: PLR0917 - click passes them by name
    targets: tuple[str, ...],
    length: int | None,
    settings: tuple[str, ...],
    runtime: str | None,
    weights: bool,
    classes: str | None,
    live: bool,
    price: bool,
    text: Path | None,
    verbose: bool,
    quiet: bool,
    diff: bool,
    fix: bool,
    in_place: bool,
    out: Path | None,
    recursive: bool,
    jobs: int | None,
    timeout: float,
    fail_on: str | None,
    strict: bool,
    ignore: frozenset[str],
    baseline: Path | None,
    write_baseline: Path | None,
    form: str | None,
    as_json: bool,
    html: Path | None,
    force: bool,
) -> int:
    """Audit the position settings of a model or config.

    A TARGET is a model folder, a config.json or params.json, a .safetensors or .bin file (or its index), a .gguf, .pt
    or .onnx file, a .npy or .npz file (FILE:NAME picks one array), a preset (PRESET:field=value,...), or - for a config
    on standard input; or the name of a model: org/name[@revision] in the local Hugging Face cache or, with the extra
    hub, on the hub (only the config and headers are fetched), ollama:NAME[:TAG], lmstudio:PUBLISHER/MODEL.
    """
    servers: list[str] = click.get_current_context().meta.get("servers", [])
    settings = (*settings, *click.get_current_context().meta.get("settings", ()))
    runtime = servers[0] if runtime is None and len({*servers}) == 1 else runtime  # an override is no other runtime's
    if as_json and form not in (None, "json"):
        raise click.UsageError(f"--json and --format {form} contradict each other.")
    if verbose and quiet:
        raise click.UsageError("--verbose and --quiet contradict each other.")
    if force and html is None and not fix:
        raise click.UsageError("--force is for --html and --fix, which say what to replace.")
    if in_place and not fix:
        raise click.UsageError("--in-place is for --fix.")
    if out is not None and (not fix or in_place or recursive or len(targets) > 1):
        raise click.UsageError("--out is for --fix of one target, without --in-place.")
    if strict and fail_on not in (None, "warning"):
        raise click.UsageError(f"--strict and --fail-on {fail_on} contradict each other.")
    if settings and (diff or fix):
        raise click.UsageError("--set and overrides audit values that are not in the file, so there is nothing to fix.")
    if price and text is None:
        raise click.UsageError("--price measures the loss on a text: name one with --text FILE.")
    if text is not None and not (price or live):
        raise click.UsageError("--text is for --live and --price.")
    if (price or live) and (settings or fix):
        raise click.UsageError("--live and --price run the model as its files are: leave out --set and --fix.")
    if diff and (as_json or form is not None):
        raise click.UsageError("--diff prints a diff; leave out --format and --json.")
    if None not in (html, write_baseline) and Path(html or "").resolve() == Path(write_baseline or "").resolve():
        raise click.UsageError("--html and --write-baseline name the same file.")
    # Imported when called: the help of all commands does not need it.
    from clockhands.auditing.baselines import baseline_of, known_in, without_known
    from clockhands.configs.overriding import read_overrides
    from clockhands.runtimes.releases import runtime_of

    if runtime is not None:
        runtime_of(runtime)  # an unknown name is reported before any target is read
    reads = [*targets, *([] if baseline is None else [baseline])]
    if html is not None:
        not_there(html, force=force, reads=reads)
    if write_baseline is not None and not _is_baseline(write_baseline):  # there is one that would be overwritten
        not_there(write_baseline, force=True, reads=targets)
    overrides = read_overrides(settings)
    known = None if baseline is None else known_in(baseline)
    audits: list[Audit] = []
    failures: list[Failure] = []
    if recursive:
        targets = _models_under(targets)

    def kept_of(found: Audit) -> Audit:
        kept = found.without(ignore)
        return kept if known is None else without_known(kept, known)

    how = {"length": length, "overrides": overrides, "weights": weights, "runtime": runtime, "classes": classes}
    apart = recursive or len(targets) >= MANY
    for found in _all_audited(targets, failures, jobs, timeout=timeout, apart=apart, **how):
        audits.append(kept_of(found))
        _left_out(found, found.without(ignore), "by --ignore")
        _left_out(found.without(ignore), audits[-1], f"that {baseline} knows")
    measured: list[ProbeResult] = []
    if live or price:
        audits = _run(
            audits, failures, measured, live=live, price=price, text=text, quiet=quiet or form not in (None, "text")
        )
        audits = [kept_of(each) for each in audits]
    form = form or ("json" if as_json else "text")
    remarks: list[str] = []
    if diff or fix:

        def again(path: Path) -> Audit:
            return kept_of(audit(path, length, weights=weights, runtime=runtime, classes=classes))

        place = None if not fix else (lambda path: path) if in_place else _beside if out is None else (lambda _: out)
        shown = diff or (form == "text" and not quiet)
        audits = _fixed(audits, failures, again, remarks, place=place, force=force or in_place, shown=shown)
    if write_baseline is not None:
        held = baseline_of(audits)
        write_text(write_baseline, json.dumps(held, indent=1, sort_keys=True, allow_nan=False) + "\n", force=True)
        talk(f"note: {write_baseline} holds {len(held['findings'])} findings.")
    if html is not None:
        from clockhands.show.report import report

        write_text(html, report(audits, failures), force=force, reads=reads)
        talk(f"note: {html} holds the report.")
    if not diff:
        _print(form, audits, failures, verbose=verbose, quiet=quiet)
    if form == "text" and measured and not (diff or quiet):
        from clockhands.show.probe import print_results

        print_results(measured)
    for remark in remarks:
        talk(remark)
    if failures:
        return 2
    counted = {"never": (), "error": SEVERITIES[:1], "warning": SEVERITIES[:2], "note": SEVERITIES}
    fails = counted["warning" if strict else fail_on or "error"]
    refused = strict and any(found.refusals for found in audits)
    return int(refused or any(finding.severity in fails for found in audits for finding in found.findings))


def _run(
    audits: Sequence[Audit],
    failures: list[Failure],
    measured: list["ProbeResult"],
    *,
    live: bool,
    price: bool,
    text: Path | None,
    quiet: bool,
) -> list[Audit]:
    """The audits with the results of the running models; a model that cannot be run is added to the failures."""
    # Imported when models are run: PyTorch and Transformers are optional.
    from clockhands.cli.probe import shown_progress
    from clockhands.probes import audit_running

    made = []
    for found in audits:
        try:
            with shown_progress(quiet=quiet) as progress:
                kept, result = audit_running(found, live=live, price=price, text=text, progress=progress)
        except ClockhandsError as error:
            _audit_with_notes(found.target, None, (error.message, error.hint), failures)
            made.append(found)
            continue
        made.append(kept)
        if result is not None:
            measured.append(result)
            if not result.numbers["ran"]:
                why = result.answers[0], "docs/probing.md says which parts of a model are run."
                _audit_with_notes(found.target, None, why, failures)
    return made


def audited(
    target: str,
    failures: list[Failure],
    length: int | None = None,
    timeout: float = 600.0,
    *,
    alone: bool = True,
    **how: Any,
) -> Audit | None:
    """The audit of a target, with its notes on stderr; None if it fails, with the reason on stderr and in the failures.

    Args:
        target: What `clockhands.audit` takes, as ``length`` and ``how``.
        failures: The list to which a failure is added.
        length: The length in tokens.
        timeout: The limit in seconds.
        alone: Whether it is the only target, which may take all memory, and for which a fault of clockhands is raised.
        how: Further arguments.
    """
    from clockhands.encodings.memory import limit_memory
    from clockhands.jobs.survey.limits import MEMORY, within_limits

    unlimited = alone or how.get("weights")  # weights are mapped into memory, which the limit counts
    take_back = (lambda: None) if unlimited else limit_memory(MEMORY)
    try:
        with showing_what_is_fetched():
            found, failure = within_limits(lambda: audit(target, length, **how), timeout, ends=False, raises=alone)
    finally:
        take_back()
    return _audit_with_notes(target, found, failure, failures)


def _audit_with_notes(
    target: str, found: Audit | None, failure: tuple[str, str] | None, failures: list[Failure]
) -> Audit | None:
    """The audit, with its notes on stderr; or None, with the reason on stderr and in the failures."""
    if failure is not None:
        message, hint = failure
        complain(f"{target}: {message}" if target not in message else message, hint)
        failures.append({"target": target, "message": message, "hint": hint})
    for note in () if found is None else found.notes:
        talk(f"note: {note}")
    return found


def _fixed(
    audits: Sequence[Audit],
    failures: list[Failure],
    again: Callable[[Path], Audit],
    remarks: list[str],
    *,
    place: Callable[[Path], Path] | None,
    force: bool,
    shown: bool,
) -> list[Audit]:
    """Print the fixes as diffs, and write them if requested; return the audits of the files afterwards.

    Args:
        audits: Of the models.
        failures: The list for models whose fixes contradict each other, or cannot be written.
        again: Audits a file or folder with the same options.
        remarks: The list to which is added what was written, and how to verify it.
        place: The path for the fixed text of a file; None to write nothing.
        force: Whether an existing file may be replaced.
        shown: Whether diffs are printed.
    """
    # Imported when called, like everything that reads files.
    from clockhands.auditing.fixes import fix_of
    from clockhands.show.findings import on_terminal

    kept = []
    for found in audits:
        left = found
        try:
            fixes = [fix_of(found, name, again) for name in _fixable(found)]
            written = [fix for fix in fixes if fix.after != fix.before]
            if place is not None and len({place(fix.path) for fix in written}) < len(written):
                names = " and ".join(fix.path.name for fix in written)
                raise InvalidValue(f"The fixes change {names}, and --out names one file.", "Leave out --out.")
            for fix in fixes:
                if shown:
                    click.echo(on_terminal(fix.diff()) if sys.stdout.isatty() else fix.diff(), nl=False)
                if place is not None and fix in written:
                    to = place(fix.path)
                    remarks += _written(found, fix, to, force=force)
                    left = fix.left if to == fix.path else left
            if place is not None and found.path is not None and not written:
                why = f"no fix for {_codes_of(found)} changes the file" if found.problems else "no problem was found"
                remarks.append(f"note: {found.target}: nothing was written, since {why}.")
        except ClockhandsError as error:
            complain(error.message, error.hint)
            failures.append({"target": found.target, "message": error.message, "hint": error.hint})
        kept.append(left)
    return kept


def _written(found: Audit, fix: "Fix", to: Path, *, force: bool) -> Iterator[str]:
    """Write a fixed file, and say what it holds and how to verify it."""
    content = fix.after.encode("utf-8")
    if not (to.is_file() and to.read_bytes() == content):
        if to.is_symlink():
            talk(f"note: {to} was a symbolic link and becomes a file; what it led to is not changed.")

        def write(path: Path) -> None:
            path.write_bytes(content)
            if to == fix.path and to.read_bytes() != fix.before.encode("utf-8"):
                raise InvalidValue(f"{to} has changed since it was read.", "Run the command again.")

        write_whole(to, write, force=force)
        yield f"note: wrote {to}, with these fixes:"
    else:
        yield f"note: {to} has these fixes already:"
    for each in fix.made:
        yield f"  {each.code}: {each.edit.says if each.edit else each.hint}"
    if fix.left.problems:
        yield f"note: it does not fix {_codes_of(fix.left)}."
    released = list(dict.fromkeys(str(each.evidence["release"]) for each in fix.made if "release" in each.evidence))
    if released:
        yield f"note: use it only if the model was made from {' or '.join(released)}."
    if to == fix.path:
        yield f"note: verify it with `clockhands audit {shlex.quote(found.target)}`."
    else:
        new, old = shlex.quote(str(to)), shlex.quote(str(fix.path))
        yield f"note: verify it with `clockhands audit {new}` and `clockhands diff {old} {new}`."


def _codes_of(found: Audit) -> str:
    return ", ".join(dict.fromkeys(each.code for each in found.problems))


def _fixable(found: Audit) -> list[str]:
    """The files of a model for which its problems have edits."""
    if found.path is None:
        if found.problems:
            talk(f"note: {found.target} has no file to fix.")
        return []
    edits = [finding.edit for finding in found.problems if finding.edit is not None and finding.edit.patch]
    return sorted({edit.file for edit in edits if edit.file is not None})


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.stem}.fixed{path.suffix}")


def _models_under(targets: Sequence[str]) -> tuple[str, ...]:
    from clockhands.configs.models_under import models_under

    found: list[str] = []
    for target in targets:
        if not Path(target).is_dir():
            raise click.UsageError(f"{target} is no folder: --recursive looks for models in folders.")
        found += [str(path) for path in models_under(Path(target))]
    if not found:
        raise click.UsageError(f"No model was found in {' or '.join(map(repr, targets))}.")
    return tuple(found)


def _all_audited(
    targets: Sequence[str], failures: list[Failure], jobs: int | None, *, timeout: float, apart: bool, **how: Any
) -> Iterator[Audit]:
    """The audits of the targets, in their order; those that cannot be audited are added to the failures.

    Those that are audited ``apart`` from this process cost only themselves, whatever becomes of their process.
    """
    # Imported when many targets are audited: a single audit needs no processes.
    if apart:
        from multiprocessing import get_all_start_methods

        apart = "-" not in targets and "forkserver" in get_all_start_methods()
    if not apart:
        for target in _with_progress(targets):
            found = audited(target, failures, timeout=timeout, alone=len(targets) == 1, **how)
            if found is not None:
                yield found
        return
    from clockhands.jobs.survey.batches import Workers, outcomes

    jobs = min(jobs or os.cpu_count() or 1, len(targets))
    workers = Workers(at_once=jobs, batch=max(1, min(16, len(targets) // jobs)), timeout=timeout)
    known: dict[str, TargetOutcome] = {}
    with closing(outcomes(dict.fromkeys(targets), EACH, {"how": how}, workers)) as running:
        for target in _with_progress(targets):
            while target not in known:
                outcome = next(running)
                known[outcome.target] = outcome
            found = _audit_with_notes(target, known[target].result, known[target].failure, failures)
            if found is not None:
                yield found


def _is_baseline(path: Path) -> bool:
    # Imported when called, like everything that reads files.
    from clockhands.auditing.baselines import known_in

    try:
        known_in(path)
    except Unreadable:
        return False
    return True


def _left_out(found: Audit, kept: Audit, why: str) -> None:
    count = len(found.findings) - len(kept.findings)
    if count:
        talk(f"note: {found.target}: {number_of(count, 'finding')} left out {why}.")


def _with_progress(targets: Sequence[str]) -> Iterable[str]:
    """The targets one by one; for many targets on a terminal, with a progress bar."""
    terminal = sys.stderr is not None and sys.stderr.isatty()  # pyright: ignore[reportUnnecessaryComparison] - closed
    return _bar(targets) if terminal and len(targets) >= MANY else targets


def _bar(targets: Sequence[str]) -> Iterator[str]:
    with click.progressbar(targets, label="auditing", file=sys.stderr) as bar:
        yield from bar


def _print(form: str, audits: list[Audit], failures: list[Failure], *, verbose: bool, quiet: bool) -> None:
    # Not imported for output as data.
    if form == "json":
        told: dict[str, Any] = {"targets": [found.to_dict() for found in audits]}
        print_json(told | ({"unread": failures} if failures else {}))
    elif form == "sarif":
        from clockhands.show.sarif import sarif_of

        say(json.dumps(sarif_of(audits, failures, verbose=verbose), indent=2, allow_nan=False))
    elif form == "github":
        from clockhands.show.sarif import annotations_of

        for line in annotations_of(audits, failures, verbose=verbose):
            say(line)
    else:
        from clockhands.show.terminal import print_audits

        print_audits(audits, failures, verbose=verbose, quiet=quiet)
