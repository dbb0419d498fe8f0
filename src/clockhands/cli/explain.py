"""`clockhands explain`: what a finding means, whom it blames, how to mend it."""

from typing import Any

import click

from clockhands.auditing import CODES
from clockhands.cli.group import did_you_mean
from clockhands.cli.output import print_json

EXAMPLES = """\b
Examples:
  clockhands explain default-base
  clockhands explain
"""


def _code(ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and value not in CODES:
        near = did_you_mean(value, CODES)
        raise click.BadParameter(
            f"{value!r} is not the code of a finding.{near} `clockhands explain` without a code lists all.", ctx
        )
    return value


@click.command("explain", epilog=EXAMPLES)
@click.argument("code", required=False, callback=_code)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(code: str | None, as_json: bool) -> int:
    """Say what a finding of `clockhands audit` means, and how to mend it.

    CODE is the code of a finding, such as default-base. Without one, all codes are listed with their severity.
    """
    if as_json:
        print_json({"findings": [_told(each) for each in ([code] if code else CODES)]})
        return 0
    # A program that asks for JSON does not pay for the drawing.
    from clockhands.show.explanation import print_codes, print_explanation

    if code is None:
        print_codes(CODES)
    else:
        print_explanation(code, CODES[code])
    return 0


def _told(code: str) -> dict[str, Any]:
    rule = CODES[code]
    return {
        "code": code,
        "severity": rule.severity if isinstance(rule.severity, str) else None,
        "title": rule.title,
        "means": rule.means,
        "blames": rule.blames if isinstance(rule.blames, str) else None,
        "hint": rule.hint if isinstance(rule.hint, str) else None,
        "cases": list(rule.cases),
    }
