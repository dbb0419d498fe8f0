"""Rotary codes: queries and keys turned by the clock."""

from clockhands.rotary.axes import alternating, chunked, grid, interleaved
from clockhands.rotary.rotating import rerotate, rotate, rotate_both
from clockhands.rotary.spec import Rotary, XPos

__all__ = ["Rotary", "XPos", "alternating", "chunked", "grid", "interleaved", "rerotate", "rotate", "rotate_both"]
