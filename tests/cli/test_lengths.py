"""Lengths on the command line are read by one type, in every command that takes one."""

import click
import pytest

from clockhands.cli.group import main
from clockhands.cli.lengths import Length


def parameters(command, context, path=()):
    """Every parameter below a command, with the name of its command."""
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        yield from parameters(command.get_command(context, name), context, (*path, name))
    for each in command.params:
        yield " ".join(path), each


def test_every_length_is_of_this_type():
    taking = {name: each.type for name, each in parameters(main, click.Context(main)) if "--length" in each.opts}
    assert {"audit", "check", "diff", "probe", "properties", "survey run"} <= set(taking)
    assert all(isinstance(each, Length) for each in taking.values())


def test_how_a_length_may_be_written(cases):
    for written, tokens in (
        ("131072", 131072), ("128000", 128000), ("131,072", 131072), ("1_000_000", 1_000_000), ("256k", 262144),
        ("256K", 262144), ("1M", 1048576), ("10m", 10485760), ("1.5k", 1536), (512, 512),
    ):  # fmt: skip
        with cases(written):
            assert Length().convert(written, None, None) == tokens


def test_what_is_unclear_is_refused_with_the_ways_to_write_it(cases):
    for written, says in (
        ("1e6", "'1e6' is not a length in tokens, written as 262144, 262,144, 256k"),
        ("128kb", "not a length"),
        ("12,34", "not a length"),
        ("k", "not a length"),
        ("", "not a length"),
        ("-5", "not a length"),
        ("٣", "not a length"),
        ("1.0001k", "'1.0001k' is 1,024.1024 tokens, which is no whole number"),
        ("0", "0 is not in the range"),
        ("0k", "0 is not in the range"),
    ):
        with cases(written), pytest.raises(click.BadParameter, match=says):
            Length().convert(written, None, None)
