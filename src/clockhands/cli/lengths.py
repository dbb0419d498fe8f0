"""The type of options that take a length in tokens: ``262144``, ``262,144``, ``256k`` and ``1M``."""

import re
from fractions import Fraction
from typing import Any

import click

_UNITS = {"": 1, "k": 1024, "m": 1024**2}
_WRITTEN = re.compile(r"(?P<number>\d+(?:\.\d+)?|\d{1,3}(?:[,_]\d{3})+)(?P<unit>[kKmM]?)", re.ASCII)


class Length(click.IntRange):
    """A whole number of tokens; ``k`` stands for 1,024 and ``M`` for 1,048,576, as in the names of models.

    >>> [Length().convert(written, None, None) for written in ("256k", "1M", "1.5K", "131,072", "128000")]
    [262144, 1048576, 1536, 131072, 128000]
    """

    name = "length"

    def __init__(self, least: int = 1) -> None:
        super().__init__(min=least)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of tokens.

        Raises:
            click.BadParameter: It is not written in one of these ways, is no whole number, or is too small.
        """
        if not isinstance(value, str):
            return super().convert(value, param, ctx)
        written = _WRITTEN.fullmatch(value.strip())
        if written is None:
            ways = "262144, 262,144, 256k (256 times 1,024) or 1M (1,048,576)"
            self.fail(f"{value!r} is not a length in tokens, written as {ways}.", param, ctx)
        tokens = Fraction(re.sub("[,_]", "", written["number"])) * _UNITS[written["unit"].lower()]
        if tokens.denominator != 1:
            self.fail(f"{value!r} is {float(tokens):,} tokens, which is no whole number.", param, ctx)
        return super().convert(int(tokens), param, ctx)
