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


def test_what_is_only_just_wrong_is_not_called_what_is_right_too():
    """A ladder multiplied up in float32 is a tenth beyond its bound; faults that do nothing here do not explain it."""
    ratio = np.float32(10_000.0 ** (-1 / 64))
    rates = np.cumprod(np.r_[np.float32(1), np.full(63, ratio)], dtype=np.float32)

    def multiplied_up(x, positions):
        phases = positions[:, None].astype(np.float32) * rates
        cosine, sine = np.cos(phases), np.sin(phases)
        a, b = np.split(x, 2, -1)
        return np.concatenate([a * cosine - b * sine, a * sine + b * cosine], -1)

    report = check_rotary(multiplied_up, ch.Rotary(128), backend="numpy", raises=False)
    assert not report.sound
    assert not report.codes & {"positions-rounded", "no-rotation", "first-sequence-only", "cache-without-base"}
