"""`clockhands claims`: common statements about position encodings, recomputed."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from clockhands.cli.group import guess, one_thread
from clockhands.cli.output import json_option, print_json

if TYPE_CHECKING:
    from clockhands.measures.claims import Claim

# 9956, 9,956 or 1.036, and not a part of a longer number.
NUMBER = re.compile(r"(?<![\d.])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")

EXAMPLES = """\b
Examples:
  clockhands claims
  clockhands claims unique-for-every-position monotone-decay
  clockhands claims 9,956
  clockhands claims --json
"""


def _claims() -> "Mapping[str, Claim]":
    """All claims, imported on first use: the help of all commands does not need them."""
    one_thread()
    from clockhands.measures.claims import CLAIMS

    return CLAIMS


def _known(ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    chosen: list[str] = []
    for word in value:
        claims = _claims()
        with_it = [word] if word in claims else _naming(word, claims)
        if not with_it:
            near = guess(word, claims)
            raise click.BadParameter(
                f"no claim has {word!r} in its ID, text or numbers.{near} `clockhands claims` lists all.",
                ctx,
            )
        chosen += with_it
    return tuple(chosen)


def _naming(word: str, claims: "Mapping[str, Claim]") -> list[str]:
    """The claims with a word or a whole number in ID or statement; if there is none, in the rest of the claim."""
    number = NUMBER.fullmatch(word)
    wanted = word.replace(",", "") if number else word.lower()

    def has(text: str) -> bool:
        return wanted in (each.replace(",", "") for each in NUMBER.findall(text)) if number else wanted in text.lower()

    stated = [name for name, each in claims.items() if has(f"{name} {each.statement}")]
    return stated or [
        name
        for name, each in claims.items()
        if has(" ".join([each.condition, each.argument, each.source, *(n.text for n in each.numbers.values())]))
    ]


@click.command("claims", epilog=EXAMPLES)
@click.argument("ids", metavar="[WORD]...", nargs=-1, callback=_known)
@json_option
def command(ids: tuple[str, ...], as_json: bool) -> int:
    """Say which statements about positional encodings are true, with numbers that are computed again each time.

    WORD is the ID of a claim, such as ten-thousand-is-a-length-limit, or a word or a number of its ID or statement
    (9956 and 9,956 are the same). A word that no ID and no statement has is searched in arguments, sources and numbers.
    Without WORD, all claims are printed. The exit code is 1 if a computed number does not agree with the stated one in
    all stated digits.
    """
    chosen = [each for name, each in _claims().items() if not ids or name in ids]
    from clockhands.measures.claims import recompute

    found = [recompute(each) for each in chosen]
    if as_json:
        print_json({"claims": [each.to_dict() for each in found]})
    else:
        from clockhands.show.claims import print_claims

        print_claims(found)
    return 0 if all(each.holds for each in found) else 1
