"""`clockhands presets`: the published position codes that are known by name."""

import click

from clockhands.cli.output import json_option, print_json
from clockhands.presets import presets
from clockhands.specs import describe, to_dict


@click.command("presets")
@json_option
def command(as_json: bool) -> None:
    """List the published position codes that are known by name.

    Use one as a target: clockhands table NAME, or with other fields: clockhands table NAME:width=64.
    """
    known = presets()
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
            click.echo()
        click.echo(click.style(each.name, bold=True))
        for text in (each.says, describe(each.spec), f"Source: {each.source}"):
            click.echo(click.wrap_text(text, width=80, initial_indent="  ", subsequent_indent="  "))
