"""`clockhands properties`: measures the properties of a target's position codes."""

import click

from clockhands.cli.group import one_thread, talk
from clockhands.cli.lengths import Length
from clockhands.cli.output import DTYPES, json_option, print_json, showing_what_is_fetched
from clockhands.configs.callables import IN_FILE

EXAMPLES = """\b
Examples:
  clockhands properties path/to/model
  clockhands properties model.gguf --length 32768
  clockhands properties positions.npy --dtype bfloat16
  clockhands properties vaswani2017:width=64 --json
  clockhands properties my_codes.py:Mine
"""


@click.command("properties", epilog=EXAMPLES)
@click.argument("target", metavar="TARGET")
@click.option(
    "--length",
    type=Length(),
    metavar="N",
    help="Number of tokens to measure (default: all that are supported, at most 8,192, or 4,096 for a learned table).",
)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    default="float32",
    show_default=True,
    help="Dtype to which the values are rounded.",
)
@json_option
def command(target: str, length: int | None, dtype: str, as_json: bool) -> None:
    """Measure properties of a model's position encodings: are codes unique, smooth, rotated by a shift, and so on.

    TARGET is as for `clockhands audit`: a model folder, a config, a file of weights (its learned tables are measured),
    a .npy or .npz file (FILE:NAME picks one array), a preset (PRESET:field=value,...), - for a config on standard
    input, or the name of a model, such as org/name. FILE.py:NAME is an encoding of your own: the file is run, and the
    encoding is sampled by calls.
    """
    one_thread()
    # Imported when it is called: the help of all commands needs none of it.
    if IN_FILE.fullmatch(target):
        from clockhands.auditing.sampled_encodings import own_properties
        from clockhands.configs.own_encodings import named_encoding

        report = own_properties(named_encoding(target), length, dtype)
    else:
        from clockhands.auditing.target_properties import target_properties

        with showing_what_is_fetched():
            report = target_properties(target, length, dtype)
    for note in report.notes:
        talk(f"note: {note}")
    if as_json:
        print_json(report.to_dict())
        return
    from clockhands.show.properties import print_properties

    print_properties(report)
