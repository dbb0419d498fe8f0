"""Rotary position encodings (RoPE): queries and keys are rotated by position times frequency."""

from clockhands.encodings.rotary._cosines import CosSin
from clockhands.encodings.rotary._spec import Rotary, XPos
from clockhands.encodings.rotary.axes import alternating, chunked, grid, imrope, interleaved
from clockhands.encodings.rotary.limiting import within
from clockhands.encodings.rotary.rotating import as_cos_sin, cos_sin, rerotate, rotate, rotate_both

__all__ = [
    "CosSin",
    "Rotary",
    "XPos",
    "alternating",
    "as_cos_sin",
    "chunked",
    "cos_sin",
    "grid",
    "imrope",
    "interleaved",
    "rerotate",
    "rotate",
    "rotate_both",
    "within",
]
