"""`clockhands audit`: what a model is told about position, and what is wrong with it."""

import click

from clockhands.auditing import CODES, Audit, audit
from clockhands.cli.group import complain, did_you_mean, talk
from clockhands.cli.output import print_json
from clockhands.errors import ClockhandsError

EXAMPLES = """\b
Examples:
  clockhands audit path/to/model
  clockhands audit model.gguf --length 32768
  clockhands audit config.json --json
  clockhands audit positions.npy
  clockhands audit vaswani2017:width=64
"""


def _codes(ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> frozenset[str]:
    codes = [code.strip() for value in values for code in value.split(",")]
    for code in codes:
        if code not in CODES:
            raise click.BadParameter(
                f"{code!r} is not the code of a finding.{did_you_mean(code, CODES)} The codes are {', '.join(CODES)}.",
                ctx,
            )
    return frozenset(codes)


@click.command("audit", epilog=EXAMPLES)
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option(
    "--length", type=click.IntRange(min=1), metavar="N", help="Length in tokens at which the rates shall hold."
)
@click.option("--strict", is_flag=True, help="Count warnings as errors in the exit code.")
@click.option(
    "--ignore", multiple=True, metavar="CODE", callback=_codes, help="Leave out findings of this code (repeatable)."
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), help="How to print: text (the default) or json.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def command(  # noqa: PLR0917 - click passes them by name
    targets: tuple[str, ...], length: int | None, strict: bool, ignore: frozenset[str], form: str | None, as_json: bool
) -> int:
    """Say what a model is told about position, and what is wrong with it.

    A TARGET is a model folder, a config.json, a .gguf, .onnx or .safetensors file (or its index), a .npy or .npz file
    (FILE:NAME picks one array), a preset (PRESET:field=value,...), or - for a config on standard input.
    """
    if as_json and form == "text":
        raise click.UsageError("--json and --format text contradict each other.")
    as_json = as_json or form == "json"
    audits: list[Audit] = []
    failures: list[dict[str, str]] = []
    for target in targets:
        try:
            found = audit(target, length)
        except ClockhandsError as error:
            complain(f"{target}: {error.message}" if target not in error.message else error.message, error.hint)
            failures.append({"target": target, "message": error.message, "hint": error.hint})
            continue
        for note in found.notes:
            talk(f"note: {note}")
        kept = found.without(ignore)
        if len(kept.findings) < len(found.findings):
            count = len(found.findings) - len(kept.findings)
            talk(f"note: {target}: {count} finding{'s' if count > 1 else ''} left out by --ignore.")
        audits.append(kept)
    if as_json:
        print_json({"targets": [found.to_dict() for found in audits]} | ({"unread": failures} if failures else {}))
    else:
        _show(audits)
    if failures:
        return 2
    return int(any(found.errors or (strict and found.warnings) for found in audits))


def _show(audits: list[Audit]) -> None:
    # A program that asks for JSON does not pay for the drawing.
    from clockhands.show.terminal import print_audit

    for number, found in enumerate(audits):
        if number:
            click.echo()
        print_audit(found)
