"""What looks like a known fault and is none is not called one."""

import numpy as np

import clockhands as ch
from clockhands.testing import check_rotary


def test_a_table_that_ends_at_256_is_not_made_in_bfloat16():
    """Positions 256 and 257 are one in bfloat16; in a table of 257 rows all later ones are one."""
    spec = ch.Rotary(32)

    def ends(x, positions):
        at = np.minimum(positions, 256)
        return ch.rotate(x, spec, at) + (0.3 * np.cos(at))[:, None].astype(x.dtype)  # wrong in another way too

    report = check_rotary(ends, spec, length=3000, backend="numpy", raises=False)
    assert not report.sound
    assert "positions-rounded" not in report.codes
