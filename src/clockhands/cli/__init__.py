"""The command line: parse, call, show. One file a command, imported only when that command is called."""

from clockhands.cli.group import main

__all__ = ["main"]
