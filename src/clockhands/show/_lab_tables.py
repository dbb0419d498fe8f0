"""Cells of the lab's report: names with the look of their line, numbers with their intervals, encodings in words."""

import re
from collections.abc import Mapping
from typing import Any

from clockhands.lab.result_words import interval_of, some_seeds, value_of
from clockhands.measures.claims import Estimate
from clockhands.show._html import NONE
from clockhands.show._lab_charts import swatch
from clockhands.show._markup import Markup, element, joined
from clockhands.show.findings import as_text, cut

_NAME = 48  # letters of an arm's name in a table


def with_look(name: str, look: int | None) -> Markup:
    """A name with the look of its line."""
    return joined(swatch(look), f" {cut(name, _NAME)}")


def number(value: Estimate | None, measure: str, seeds: int = 0) -> Markup | str:
    """A mean, with its interval below it, and how many seeds were measured where it is fewer than ``seeds``."""
    if value is None:
        return NONE
    return with_note(value_of(value.mean, measure), interval_of(value, measure), some_seeds(value, seeds))


def with_note(text: str, *notes: str) -> Markup:
    """A cell with lines of small print."""
    return joined(text, [element("span", each, class_="lab-interval") for each in notes if each])


_TERMS = (
    (r"^rotary\b", "RoPE"),
    (r"\bhalves\b|\bhalf-split\b(?! layout)", "half-split layout"),
    (r"\binterleaved\b", "interleaved layout"),
    (r"\blayout (\S+ layout)", r"\1"),
    (r"(\d+) of (\d+) (?:channels|dimensions)", r"RoPE dimensions \1 of \2 per head"),
    (r"geometric \(base ([^,]+), open\)", r"base \1"),
    (r"^Alibi\b", "ALiBi"),
    (r"^Buckets\b", "T5 buckets"),
    (r"^Kerple\b", "KERPLE"),
    (r"^Fire\b", "FIRE"),
    (r", [a-z ]+ False\b", ""),
    (r"(, [a-z ]+) True\b", r"\1"),
    (r"(\d)\.0\b(?!\d)", r"\1"),
)


def in_terms(described: str) -> str:
    """What `clockhands.describe` says about a spec, with the terms that papers and model configs use.

    >>> in_terms("RoPE, half-split, 16 of 16 dimensions, geometric (base 10000, open)")
    'RoPE, half-split layout, RoPE dimensions 16 of 16 per head, base 10000'
    >>> in_terms("Buckets, heads 4, buckets 32, max distance 128, bidirectional False, epsilon 0.0, scale 1.0")
    'T5 buckets, heads 4, buckets 32, max distance 128, epsilon 0, scale 1'
    """
    for pattern, words in _TERMS:
        described = re.sub(pattern, words, described)
    return described


def in_words(values: Mapping[str, Any]) -> str:
    """Names and values on one line.

    >>> in_words({"name": "sotu", "scored_tokens": 16384})
    'name sotu, scored tokens 16,384'
    """
    said = (f"{name.replace('_', ' ')} {as_text(value)}" for name, value in values.items())
    return ", ".join(said) or "unknown"
