"""`clockhands order`: attention with and without a position code, on the same words in two orders."""

import click

from clockhands.cli.group import one_thread
from clockhands.cli.output import json_option, print_json

EXAMPLES = """\b
Examples:
  clockhands order
  clockhands order --text "who let the cat out" --other "who let out the cat"
  clockhands order --json --seed 7
"""


@click.command("order", epilog=EXAMPLES)
@click.option("--text", metavar="WORDS", default="dog bites man", help="A sentence (default: 'dog bites man').")
@click.option("--other", metavar="WORDS", help="The same words in another order (default: reversed).")
@click.option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="Random seed.")
@json_option
def command(text: str, other: str | None, seed: int, as_json: bool) -> int:
    """Show whether attention distinguishes two orders of the same words.

    Both orders go through networks with random, untrained weights in float64: without a position encoding and with each
    kind of encoding, without a mask and with a causal mask. If no random network distinguishes the two orders, their
    outputs are the same for all weights, so training cannot distinguish them either. Then the command shows the effect
    of adding a position to a token.
    """
    one_thread()
    from clockhands.measures.adding.drawn_tokens import adding_measured
    from clockhands.measures.order import order

    found, added = order(text, other, seed=seed), adding_measured(seed=seed)
    if as_json:
        print_json({**found.to_dict(), "adding": added.to_dict()})
        return 0
    # A program that asks for JSON does not pay for the drawing.
    from clockhands.show.order import print_order

    print_order(found, added)
    return 0
