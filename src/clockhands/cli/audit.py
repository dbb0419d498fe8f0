"""`clockhands audit`: what a model is told about position, and what is wrong with it."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from clockhands.auditing import CODES, Audit, audit
from clockhands.cli.group import complain, did_you_mean, talk
from clockhands.cli.output import OutPath, not_there, print_json, write_text
from clockhands.errors import ClockhandsError, Unreadable

EXAMPLES = """\b
Examples:
  clockhands audit path/to/model
  clockhands audit model.gguf --length 32768
  clockhands audit config.json --set rope_theta=1000000
  clockhands audit models/*/config.json --strict --baseline known.json --format sarif
  clockhands audit positions.npy
  clockhands audit vaswani2017:width=64
  clockhands audit path/to/model --html report.html
"""

FORMATS = ("text", "json", "sarif", "github")
MANY = 10  # targets from which on a person may wonder how far it is

Failure = dict[str, str]


def _codes(ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> frozenset[str]:
    codes = [code.strip() for value in values for code in value.split(",")]
    for code in codes:
        if code not in CODES:
            raise click.BadParameter(
                f"{code!r} is not the code of a finding.{did_you_mean(code, CODES)} `clockhands explain` lists all.",
                ctx,
            )
    return frozenset(codes)


@click.command("audit", epilog=EXAMPLES)
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option(
    "--length", type=click.IntRange(min=1), metavar="N", help="Length in tokens at which the rates shall hold."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Audit as if the config held this, as servers take it (repeatable); dots lead into objects.",
)
@click.option("--weights", is_flag=True, help="Tell from the weights themselves how channels pair; reads all q and k.")
@click.option("--strict", is_flag=True, help="Count warnings as errors in the exit code.")
@click.option(
    "--ignore", multiple=True, metavar="CODE", callback=_codes, help="Leave out findings of this code (repeatable)."
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Leave out the findings that this file holds.",
)
@click.option(
    "--write-baseline", type=OutPath(), metavar="FILE", help="Write what is found now to this file, for --baseline."
)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), help="How to print: text (the default), json, sarif, github."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--html", type=OutPath(), metavar="FILE", help="Write the report as one HTML page to this file too.")
@click.option("--force", is_flag=True, help="Replace the report of --html if it is already there.")
def command(  # noqa: PLR0917 - click passes them by name
    targets: tuple[str, ...],
    length: int | None,
    settings: tuple[str, ...],
    weights: bool,
    strict: bool,
    ignore: frozenset[str],
    baseline: Path | None,
    write_baseline: Path | None,
    form: str | None,
    as_json: bool,
    html: Path | None,
    force: bool,
) -> int:
    """Say what a model is told about position, and what is wrong with it.

    A TARGET is a model folder, a config.json or params.json, a .safetensors or .bin file (or its index), a .gguf, .pt
    or .onnx file, a .npy or .npz file (FILE:NAME picks one array), org/name in the local Hugging Face cache, a preset
    (PRESET:field=value,...), or - for a config on standard input.
    """
    if as_json and form not in (None, "json"):
        raise click.UsageError(f"--json and --format {form} contradict each other.")
    if force and html is None:
        raise click.UsageError("--force is for --html, which says what to replace.")
    if None not in (html, write_baseline) and Path(html or "").resolve() == Path(write_baseline or "").resolve():
        raise click.UsageError("--html and --write-baseline name the same file.")
    # Imported when it is called: the help of all commands needs none of it.
    from clockhands.auditing.baselines import baseline_of, known_in, without_known
    from clockhands.sources.overriding import read_overrides

    reads = [*targets, *([] if baseline is None else [baseline])]
    if html is not None:
        not_there(html, force=force, reads=reads)
    if write_baseline is not None and not _is_baseline(write_baseline):  # one is there to be written anew
        not_there(write_baseline, force=True, reads=targets)
    overrides = read_overrides(settings)
    known = None if baseline is None else known_in(baseline)
    audits: list[Audit] = []
    failures: list[Failure] = []
    for target in _with_progress(targets):
        found = audited(target, failures, length, overrides=overrides, weights=weights)
        if found is None:
            continue
        kept = found.without(ignore)
        _left_out(found, kept, "by --ignore")
        if known is not None:
            new = without_known(kept, known)
            _left_out(kept, new, f"that {baseline} knows")
            kept = new
        audits.append(kept)
    if write_baseline is not None:
        text = json.dumps(baseline_of(audits), indent=1, sort_keys=True, allow_nan=False) + "\n"
        write_text(write_baseline, text, force=True)
        talk(f"note: {write_baseline} holds {sum(len(each.findings) for each in audits)} findings.")
    if html is not None:
        from clockhands.show.report import report

        write_text(html, report(audits, failures), force=force, reads=reads)
        talk(f"note: {html} holds the report.")
    _print(form or ("json" if as_json else "text"), audits, failures)
    if failures:
        return 2
    return int(any(found.errors or (strict and found.warnings) for found in audits))


def audited(target: str, failures: list[Failure], length: int | None = None, **how: Any) -> Audit | None:
    """What is found in a target, its notes on stderr; None, and the reason there and among the failures, if it fails.

    Args:
        target: What `clockhands.audit` takes, as ``length`` and ``how``.
        failures: To which one is added.
        length: Tokens.
        how: Further arguments.
    """
    try:
        found = audit(target, length, **how)
    except ClockhandsError as error:
        complain(f"{target}: {error.message}" if target not in error.message else error.message, error.hint)
        failures.append({"target": target, "message": error.message, "hint": error.hint})
        return None
    for note in found.notes:
        talk(f"note: {note}")
    return found


def _is_baseline(path: Path) -> bool:
    # Imported when it is called, as all that reads files.
    from clockhands.auditing.baselines import known_in

    try:
        known_in(path)
    except Unreadable:
        return False
    return True


def _left_out(found: Audit, kept: Audit, why: str) -> None:
    count = len(found.findings) - len(kept.findings)
    if count:
        talk(f"note: {found.target}: {count} finding{'s' if count > 1 else ''} left out {why}.")


def _with_progress(targets: Sequence[str]) -> Iterable[str]:
    """The targets one by one; on a terminal with a bar where there are many."""
    terminal = sys.stderr is not None and sys.stderr.isatty()  # pyright: ignore[reportUnnecessaryComparison] - closed
    return _bar(targets) if terminal and len(targets) >= MANY else targets


def _bar(targets: Sequence[str]) -> Iterator[str]:
    with click.progressbar(targets, label="auditing", file=sys.stderr) as bar:
        yield from bar


def _print(form: str, audits: list[Audit], failures: list[Failure]) -> None:
    # A program that asks for data does not pay for the drawing.
    if form == "json":
        told: dict[str, Any] = {"targets": [found.to_dict() for found in audits]}
        print_json(told | ({"unread": failures} if failures else {}))
    elif form == "sarif":
        from clockhands.show.sarif import sarif_of

        click.echo(json.dumps(sarif_of(audits, failures), indent=2, allow_nan=False))
    elif form == "github":
        from clockhands.show.sarif import annotations_of

        for line in annotations_of(audits, failures):
            click.echo(line)
    else:
        from clockhands.show.terminal import print_audit

        for number, found in enumerate(audits):
            if number:
                click.echo()
            print_audit(found)
