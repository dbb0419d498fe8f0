"""The command line: one file for each command, imported when the command is called."""

from clockhands.cli.group import main

__all__ = ["main"]
