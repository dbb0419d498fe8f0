"""What is looked for beyond what a reader of files notices: every check, in one module for each thing it is about.

Each check takes a `Subject` and yields (code, evidence, layers) for every case that it sees; `rules` tells it.
"""

from clockhands.auditing.checks.codes import beyond_context, never_turning, short_table
from clockhands.auditing.checks.files import files_disagree
from clockhands.auditing.checks.gguf import (
    dimension_count,
    longrope_factors,
    missing_keys,
    releases_of_the_architecture,
    rope_freqs,
    yarn_without_type,
)
from clockhands.auditing.checks.heads import head_width
from clockhands.auditing.checks.layers import (
    inert_window,
    layer_type_scaling,
    mrope_order,
    nope_inverted,
    partial_meaning,
)
from clockhands.auditing.checks.lengths import base_below_bound, colliding_positions, lengths_differ, padding_offset
from clockhands.auditing.checks.readers import CHECKS as OF_READERS
from clockhands.auditing.checks.releases import missing_sections, releases_of_the_shape, with_release
from clockhands.auditing.checks.scalings import longrope_swapped, wrong_original
from clockhands.auditing.checks.stored import position_numbers, stored_frequencies
from clockhands.auditing.checks.subject import Case, Check, Subject, declared, in_a_file

__all__ = ["CHECKS", "Case", "Check", "Subject", "declared", "in_a_file", "with_release"]

CHECKS: tuple[Check, ...] = (
    short_table,
    head_width,
    rope_freqs,
    longrope_factors,
    dimension_count,
    missing_keys,
    releases_of_the_architecture,
    yarn_without_type,
    releases_of_the_shape,
    missing_sections,
    wrong_original,
    longrope_swapped,
    layer_type_scaling,
    nope_inverted,
    mrope_order,
    partial_meaning,
    inert_window,
    beyond_context,
    lengths_differ,
    files_disagree,
    never_turning,
    base_below_bound,
    padding_offset,
    colliding_positions,
    stored_frequencies,
    position_numbers,
    *OF_READERS,
)
