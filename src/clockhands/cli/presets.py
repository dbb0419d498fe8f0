"""`clockhands presets`: published encodings by name."""

import click

from clockhands.cli.group import say
from clockhands.cli.output import json_option, print_json
from clockhands.encodings.presets import presets
from clockhands.encodings.specs import describe, to_dict


@click.command("presets")
@click.argument("words", metavar="[WORD]...", nargs=-1)
@json_option
def command(words: tuple[str, ...], as_json: bool) -> None:
    """List published encodings by name; with WORDs, those whose name or description has all of them.

    Use a preset by its name: clockhands table NAME; or with other fields: clockhands table NAME:width=64.
    """
    known = [
        each
        for each in presets()
        if all(word.lower() in f"{each.name} {each.says} {describe(each.spec)}".lower() for word in words)
    ]
    if not known:
        raise click.UsageError(f"No preset has {' and '.join(map(repr, words))} in its name or description.")
    if as_json:
        print_json(
            {
                "presets": [
                    {"name": each.name, "says": each.says, "source": each.source, "spec": to_dict(each.spec)}
                    for each in known
                ]
            }
        )
        return
    for number, each in enumerate(known):
        if number:
            say()
        say(each.name, bold=True)
        for text in (each.says, describe(each.spec), f"Source: {each.source}"):
            say(click.wrap_text(text, width=80, initial_indent="  ", subsequent_indent="  "))
