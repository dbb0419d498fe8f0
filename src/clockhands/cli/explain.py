"""`clockhands explain`: the meaning of a finding or a fault, its cause, and its fix."""

import click

from clockhands.auditing import CODES
from clockhands.cli.group import guess, say
from clockhands.cli.output import json_option, print_json
from clockhands.recognition.faults import FAULTS

EXAMPLES = """\b
Examples:
  clockhands explain default-base
  clockhands explain positions-rounded
  clockhands explain
"""


def _code(ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and value not in CODES and value not in FAULTS:
        near = guess(value, [*CODES, *FAULTS])
        raise click.BadParameter(
            f"{value!r} is not the code of a finding or a fault.{near} `clockhands explain` without a code lists all.",
            ctx,
        )
    return value


@click.command("explain", epilog=EXAMPLES)
@click.argument("code", required=False, callback=_code)
@json_option
def command(code: str | None, as_json: bool) -> int:
    """Say what a finding of `clockhands audit` or a fault of `clockhands check` means, and how to fix it.

    CODE is the code of a finding, such as default-base, or of a fault, such as positions-rounded. Without CODE, all
    codes are listed: findings with their severity, and faults with their symptoms.
    """
    # A code that is both is printed once: the text on the check follows the finding.
    findings = [each for each in CODES if code in (None, each)]
    faults = [each for each in FAULTS if code in (None, each)]
    if as_json:
        known = {"findings": [CODES[each] for each in findings], "faults": [FAULTS[each] for each in faults]}
        print_json({kind: [each.to_dict() for each in held] for kind, held in known.items()})
        return 0
    # A program that asks for JSON does not pay for the drawing.
    from clockhands.show import explanation

    if code is None:
        say("Findings of `clockhands audit`:", bold=True)
        explanation.print_codes(CODES)
        say("\nFaults of `clockhands check`:", bold=True)
        explanation.print_faults(FAULTS)
        return 0
    for each in findings:
        explanation.print_explanation(each, CODES[each])
    for each in faults:
        from clockhands.testing.kinds import experiments

        explanation.print_fault(FAULTS[each], experiments(FAULTS[each].about[0]), above=CODES.get(each))
    return 0
