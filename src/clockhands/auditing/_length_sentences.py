"""Sentences about serving a model at a length: ``extending.toml``."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from clockhands.phrases import filled
from clockhands.recognition.faults import rows_in


@cache
def _sentences() -> Mapping[str, Mapping[str, str]]:
    return rows_in(__file__, "extending")


def said(row: str, /, **values: Any) -> str:
    """A sentence of `extending.toml`, with the values in it."""
    return filled(_sentences()[row]["says"], values)
