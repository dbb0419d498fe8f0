"""`clockhands claims`: what is said about position codes, recomputed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from clockhands.cli.group import did_you_mean, one_thread
from clockhands.cli.output import json_option, print_json

if TYPE_CHECKING:
    from clockhands.claims import Claim

EXAMPLES = """\b
Examples:
  clockhands claims
  clockhands claims unique-for-every-position monotone-decay
  clockhands claims --json
"""


def _claims() -> "Mapping[str, Claim]":
    """All claims, imported when they are asked for: the help of all commands needs none of it."""
    one_thread()
    from clockhands.claims import CLAIMS

    return CLAIMS


def _known(ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        if name not in _claims():
            near = did_you_mean(name, _claims())
            raise click.BadParameter(
                f"there is no claim {name!r}.{near} `clockhands claims` without an ID lists all.", ctx
            )
    return value


@click.command("claims", epilog=EXAMPLES)
@click.argument("ids", metavar="[ID]...", nargs=-1, callback=_known)
@json_option
def command(ids: tuple[str, ...], as_json: bool) -> int:
    """Say what is true of what people say about position codes, with numbers that are computed again each time.

    ID is the name of a claim, such as ten-thousand-is-a-length-limit; without one, all are told. If a number is no
    longer what is stated beside it, to the digits that are stated, the claim is named and the exit code is 1.
    """
    chosen = [each for name, each in _claims().items() if not ids or name in ids]
    from clockhands.claims import recompute

    found = [recompute(each) for each in chosen]
    if as_json:
        print_json({"claims": [each.to_dict() for each in found]})
    else:
        from clockhands.show.claims import print_claims

        print_claims(found)
    return 0 if all(each.holds for each in found) else 1
