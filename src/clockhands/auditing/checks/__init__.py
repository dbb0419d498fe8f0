"""What is looked for beyond what a reader of files notices: every check, in one module for each thing it is about.

Each check takes a `Subject` and yields (code, evidence, layers) for every case that it sees; `rules` tells it.
"""

from clockhands.auditing.checks.codes import beyond_context, never_turning, short_table
from clockhands.auditing.checks.lengths import base_below_bound, colliding_positions, lengths_differ, padding_offset
from clockhands.auditing.checks.subject import Case, Check, Subject, declared, in_a_file

__all__ = ["CHECKS", "Case", "Check", "Subject", "declared", "in_a_file"]

CHECKS: tuple[Check, ...] = (
    short_table,
    beyond_context,
    lengths_differ,
    never_turning,
    base_below_bound,
    padding_offset,
    colliding_positions,
)
