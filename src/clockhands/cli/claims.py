"""`clockhands claims`: statements about positional encodings, recomputed."""

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
    chosen: list[str] = []
    for word in value:
        claims = _claims()
        with_it = [name for name, each in claims.items() if word.lower() in f"{name} {each.statement}".lower()]
        if word not in claims and not with_it:
            near = did_you_mean(word, claims)
            raise click.BadParameter(
                f"no claim has {word!r} in its ID or statement.{near} `clockhands claims` lists all.",
                ctx,
            )
        chosen += [word] if word in claims else with_it
    return tuple(chosen)


@click.command("claims", epilog=EXAMPLES)
@click.argument("ids", metavar="[WORD]...", nargs=-1, callback=_known)
@json_option
def command(ids: tuple[str, ...], as_json: bool) -> int:
    """Say which statements about positional encodings are true, with numbers that are computed again each time.

    WORD is the ID of a claim, such as ten-thousand-is-a-length-limit, or a word of its ID or statement; without
    WORD, all claims are printed. The exit code is 1 if a computed number does not agree with
    the stated one in all stated digits.
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
