"""Learned tables that a function resizes to another grid: every usual way passes, and other ways are named."""

import itertools

import numpy as np
import pytest
from clockhands.additive import resize

import clockhands as ch
from clockhands.encodings.grids import Grid
from clockhands.testing import check_additive

WIDTH = 8


def table(kept, grid=(7, 7), seed=3):
    return np.random.default_rng(seed).standard_normal((kept + grid[0] * grid[1], WIDTH)).astype(np.float32)


WAYS = [
    {"kind": "linear"},
    {"kind": "cubic"},
    {"kind": "cubic", "antialias": True},
    {"kind": "linear", "antialias": True},
    {"kind": "cubic", "align_corners": True},
    {"kind": "linear", "align_corners": True},
]


def resampled(how, kept):
    """In NumPy, with one more axis in front, as most libraries hold tables."""

    def resample(pos_embed, new_size):
        return resize(pos_embed, new_size, kept=kept, grid=(7, 7), **how)

    return resample


def test_every_usual_way_passes(cases):
    for how, size, kept in itertools.product(WAYS, ((10, 12), (5, 6), (14, 14)), (0, 1)):
        with cases(how, size, kept):
            given = {"rows": size, "grid": (7, 7), "kept": kept, **how}
            report = check_additive(resampled(how, kept), values=table(kept), resized=given)
            assert report.called["shape"] == "function(table [batch, seq, width], size)"


def test_sinusoids_of_a_grid_are_resized_too():
    rows = ch.table(ch.preset("mae", width=WIDTH), Grid((7, 7), order=(1, 0), prefix=1))
    how = {"rows": (9, 9), "grid": (7, 7), "kept": 1, "kind": "cubic"}
    assert check_additive(resampled({"kind": "cubic"}, 1), values=rows, resized=how).sound


def moved(new, old, offset):
    at = np.clip((np.arange(new) + offset) * old / new - offset, 0, old - 1)
    low = np.floor(at).astype(int)
    share = (at - low)[:, None]
    return (np.eye(old)[low] * (1 - share) + np.eye(old)[np.minimum(low + 1, old - 1)] * share).astype(np.float32)


def without_half_pixel(pos_embed, new_size):
    cells = pos_embed[0, 1:].reshape(7, 7, -1)
    cells = np.einsum("ih,jw,hwc->ijc", moved(new_size[0], 7, 0), moved(new_size[1], 7, 0), cells)
    return np.concatenate([pos_embed[:, :1], cells.reshape(1, -1, WIDTH)], 1)


def rows_of_the_old_grid(pos_embed, new_size):
    return pos_embed[:, : 1 + new_size[0] * new_size[1]]


def corner_of_the_old_grid(pos_embed, new_size):
    cells = pos_embed[:, 1:].reshape(1, 7, 7, -1)[:, : new_size[0], : new_size[1]]
    return np.concatenate([pos_embed[:, :1], cells.reshape(1, -1, WIDTH)], 1)


def nearest(pos_embed, new_size):
    down, across = (np.arange(new) * 7 // new for new in new_size)
    cells = pos_embed[:, 1:].reshape(1, 7, 7, -1)[:, down][:, :, across]
    return np.concatenate([pos_embed[:, :1], cells.reshape(1, -1, WIDTH)], 1)


def column_by_column(pos_embed, new_size):
    made = resampled({}, 1)(pos_embed, new_size)
    cells = np.swapaxes(made[:, 1:].reshape(1, *new_size, -1), 1, 2)
    return np.concatenate([made[:, :1], cells.reshape(1, -1, WIDTH)], 1)


def as_one_line(pos_embed, new_size):
    return resize(pos_embed, new_size[0] * new_size[1], kept=1)


def turned_size(pos_embed, new_size):
    return resampled({}, 1)(pos_embed, new_size[::-1])


def scaled_as_in_dino(pos_embed, new_size):
    factors = tuple((new + 0.1) / 7 for new in new_size)
    return resampled({"scale_factor": factors}, 1)(pos_embed, new_size)


FAULTY = [
    (rows_of_the_old_grid, {"rows-of-old-grid"}, "row p of the old table is taken for row p"),
    (corner_of_the_old_grid, {"rows-of-old-grid"}, "first rows and columns of the old grid"),
    (without_half_pixel, {"rows-moved"}, "row i is at i * old / new (no half pixel)"),
    (scaled_as_in_dino, {"rows-moved"}, "scale_factor="),
    (resampled({"align_corners": True}, 1), {"rows-moved"}, "align_corners=True; expected align_corners=False"),
    (turned_size, {"rows-moved"}, "rows=(6, 5); expected rows=(5, 6)"),
    (as_one_line, {"rows-moved"}, "all rows as one line"),
    (nearest, {"rows-rescaled"}, "the nearest row is taken"),
    (resampled({"kind": "cubic"}, 1), {"rows-rescaled"}, "kind='cubic'; expected kind='linear'"),
    (resampled({"antialias": True}, 1), {"rows-rescaled"}, "antialias=True; expected antialias=False"),
    (column_by_column, {"rows-in-another-order"}, "column by column"),
]


def test_other_ways_are_named(cases):
    how = {"rows": (5, 6), "grid": (7, 7), "kept": 1}
    for function, codes, said in FAULTY:
        with cases(said):
            report = check_additive(function, values=table(1), resized=how, raises=False)
            assert report.codes == codes
            assert said in report.explanations[0].message


def test_tables_in_pytorch_pass_in_the_layouts_that_are_usual(cases):
    torch = pytest.importorskip("torch")
    interpolate = torch.nn.functional.interpolate

    def resample_abs_pos_embed(posemb, new_size, old_size=None, num_prefix_tokens=1):
        first, cells = posemb[:, :num_prefix_tokens], posemb[:, num_prefix_tokens:]
        cells = cells.unflatten(1, old_size).movedim(-1, 1).float()
        cells = interpolate(cells, size=new_size, mode="bicubic", antialias=True)
        return torch.cat([first, cells.flatten(2).mT], 1)

    def of_channels(pos_embed, h, w):
        assert pos_embed.shape[-2:] == (7, 7)
        return interpolate(pos_embed, size=(h, w), mode="bicubic", antialias=True)

    for function, kept, size in itertools.product((resample_abs_pos_embed, of_channels), (0, 2), ((9, 12), (5, 6))):
        if function is resample_abs_pos_embed or not kept:
            with cases(function, kept, size):
                how = {"rows": size, "kept": kept, "kind": "cubic", "antialias": True}
                assert check_additive(function, values=table(kept), resized=how).called["library"] == "torch"


def test_the_grid_of_a_square_table_need_not_be_declared_for_a_fault_to_be_named():
    report = check_additive(scaled_as_in_dino, values=table(1), resized={"rows": (5, 6), "kept": 1}, raises=False)
    assert report.codes == {"rows-moved"}
    assert "scale_factor=" in report.explanations[0].message
