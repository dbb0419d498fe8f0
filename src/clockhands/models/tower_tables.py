"""Measures which row of a table of positions each token of a running part gets.

The table is replaced by one of known random rows, and by zeros: what differs between the two, before the first
attention, is what was added. A difference that does not depend on the content of the input is the sum itself; behind a
norm it does.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.configs.resolved import TEXT, LayerEncoding
from clockhands.configs.weights import TABLE, rows_and_width
from clockhands.encodings.additive import Sinusoidal
from clockhands.encodings.additive import table as position_table
from clockhands.encodings.specs import describe
from clockhands.models.attention_inputs import roundoff
from clockhands.models.declared_parts import in_part
from clockhands.models.first_attention import NO_PATCH, first_attention, patch_tokens, tokens_before
from clockhands.models.held_tensors import tensors_of
from clockhands.models.tower_inputs import PatchedImage, SmallInput, other_image
from clockhands.recognition import identify

_ROUNDINGS = 16
"""Of a token and of the row that is added to it."""

_NO_ROW, _OTHER = -1, -2
"""In the place of the number of a row: nothing is added, or what is no row of the table."""

_BETWEEN = 0.3
"""Rows or columns of a table by which ways to interpolate differ at the edges."""

_AS_THEY_ARE = (None, "interpolated", "in each tile")
"""Placements whose row t is that of token t in an image, or a tile, of the declared size."""


@dataclass(frozen=True)
class TableReading:
    """What running a part showed of one table.

    Attributes:
        wrong: What is not as declared, in sentences.
        measured: What was measured, as a phrase; None where nothing was.
        resized: How the table is placed in an image of another size, as a clause; empty where that was not measured.
        reason: Why nothing was measured, as a clause.
    """

    wrong: tuple[str, ...] = ()
    measured: str | None = None
    resized: str = ""
    reason: str = ""


@dataclass(frozen=True, eq=False)
class _HeldTable:
    """A table of rows that a part holds: its path and name, and its numbers, before which axes of 1 may stand."""

    name: str
    tensor: Tensor


def table_reading(
    part: nn.Module, code: LayerEncoding, run: Callable[[int], Any], given: SmallInput | None = None
) -> TableReading:
    """Compare the rows that tokens get with the declared ones.

    Args:
        part: The part of the model.
        code: What the config declares: a table of rows.
        run: Runs the part on the content of a seed.
        given: The image that ``run`` gives it, or the audio; None for a text.
    """
    if code.placement not in _AS_THEY_ARE:
        return TableReading(reason=f"the rows of its table are placed {code.placement}")
    table = _held_table(part, code)
    if table is None:
        return TableReading(reason="no tensor of the part has the declared size and the name of positions")
    first = first_attention(part, run)
    if first is None:
        return TableReading(reason="the attention of its layers cannot be reached")
    stop = part.get_submodule(first.path)
    drawn = torch.randn(_size(table), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    drawn = drawn.to(table.tensor.dtype).double()
    added = _added(part, stop, run, table, drawn)
    if added is None:
        return TableReading(reason="what it adds to tokens cannot be separated from their content")
    numbers, factor = _rows_of_tokens(added, drawn)
    if (numbers == _NO_ROW).all() and _has_effect(run, table, drawn):
        return TableReading(reason="it is added elsewhere than to the tokens")
    image = None if given is None else given.image
    if image is not None and len(numbers) < len(drawn) - (code.offset or 0):
        return TableReading(reason=f"it has more rows than {given.says if given else 'its input'} has tokens")
    order = None if given is None or image is None else _order(part, stop, given, len(numbers))
    if code.placement == "in each tile" and len(numbers) % len(drawn) == 0:
        numbers = numbers[: len(drawn)] if (numbers.reshape(-1, len(drawn)) == numbers[: len(drawn)]).all() else numbers
    wrong = _wrong_rows(numbers, len(drawn), code.offset or 0, order, image)
    wrong = wrong or _other_numbers(table, code)
    if wrong is None and factor != 1 and code.placement is None:
        wrong = f"its rows are multiplied by {factor:.4g} before they are added."
    resized = ""
    if wrong is None and image is not None:
        with suppress(Exception):  # an image of another size may be refused in any way
            wrong, resized = _interpolation(part, table, stop, image)
    name = table.name.removesuffix(".weight")
    return TableReading(() if wrong is None else (f"{name}: {wrong}",), "the rows of its table", resized)


def _held_table(part: nn.Module, code: LayerEncoding) -> _HeldTable | None:
    """The one tensor of the declared size with the name of positions; None where there is none, or several."""
    found: dict[int, _HeldTable] = {}
    for path, owner in part.named_modules():
        for name, tensor, _ in tensors_of(owner):
            full = f"{path}.{name}" if path else name
            if tensor.is_floating_point() and ("pos" in full.lower() or TABLE.search(full)):
                size = rows_and_width(tuple(tensor.shape))
                if code.part in TEXT and not in_part([code], (full,)):
                    continue  # the table of the other part of an encoder-decoder, which may have the same size
                if size is not None and size[0] == code.rows and code.width in (None, size[1]):
                    found.setdefault(id(tensor), _HeldTable(full, tensor))
    return next(iter(found.values())) if len(found) == 1 else None


def _size(table: _HeldTable) -> tuple[int, int]:
    return table.tensor.shape[-2], table.tensor.shape[-1]


@contextmanager
def _filled(table: _HeldTable, rows: Tensor) -> Iterator[None]:
    """Other numbers in a table while the context is open."""
    kept = table.tensor.data
    try:
        table.tensor.data = rows.reshape(kept.shape).to(kept)
        yield
    finally:
        table.tensor.data = kept


@dataclass(frozen=True, eq=False)
class _AddedRows:
    """What a table adds to tokens, [tokens, width], and how far rounding may move a number of it."""

    rows: Tensor
    rounding: float


def _added(
    part: nn.Module, stop: nn.Module, run: Callable[[int], Any], table: _HeldTable, rows: Tensor
) -> _AddedRows | None:
    """What rows in place of those of the table add; None where no sum of content and rows is seen."""
    passes: list[list[Tensor]] = []
    for seed in (0, 1):
        for numbers in (torch.zeros_like(rows), rows):
            with _filled(table, numbers):
                passes.append(tokens_before(part, stop, lambda seed=seed: run(seed), rows.shape[-1]))
    whatever: _AddedRows | None = None
    for arrays in zip(*map(reversed, passes), strict=True):
        if len({each.shape for each in arrays}) > 1 or len(arrays[0]) < 2:
            continue
        plain, filled, other, filled_other = arrays
        rounding = _ROUNDINGS * roundoff(table.tensor.dtype) * max(float(each.abs().max()) for each in arrays)
        added = filled - plain
        if float((added - (filled_other - other)).abs().max()) <= rounding:
            found = _AddedRows(added, rounding)
            if float((plain - other).abs().max()) > rounding and float(added.abs().max()) > rounding:
                return found
            # It may be something else than tokens, such as a mask, or what the table gives before it is added.
            whatever = whatever or found
    return whatever


def _rows_of_tokens(added: _AddedRows, rows: Tensor) -> tuple[np.ndarray, float]:
    """The number of the row that each token gets, and the one factor by which rows are multiplied."""
    shares = added.rows @ (rows / (rows**2).sum(dim=-1, keepdim=True)).T
    nearest = (shares.abs() * rows.norm(dim=-1)).argmax(dim=-1)
    none = added.rows.abs().amax(dim=-1) <= added.rounding
    factors = shares.gather(1, nearest[:, None])[~none]
    factor = float(factors.median()) if len(factors) else 1.0
    factor = 1.0 if abs(factor - 1) <= added.rounding else factor
    same = (added.rows - factor * rows[nearest]).abs().amax(dim=-1) <= added.rounding
    return torch.where(none, _NO_ROW, torch.where(same, nearest, _OTHER)).numpy(), factor


def _has_effect(run: Callable[[int], Any], table: _HeldTable, rows: Tensor) -> bool:
    """Whether the table changes what the part gives."""
    outputs: list[list[Tensor]] = []
    for numbers in (torch.zeros_like(rows), rows):
        with _filled(table, numbers), torch.no_grad():
            made = run(0)
        values = made.values() if hasattr(made, "values") else made if isinstance(made, tuple) else (made,)
        outputs.append([each for each in values if isinstance(each, Tensor)])
    return any(not torch.equal(one, other) for one, other in zip(*outputs, strict=True))


# Rows


def _order(part: nn.Module, stop: nn.Module, given: SmallInput, count: int) -> np.ndarray | None:
    """Which patch each of the tokens of an image is; None where they are no patches.

    Where the tokens of a small image are its patches in turn, those of a large one are so: it need not run for each.
    """
    assert given.image is not None
    patches = given.image.rows * given.image.columns
    with suppress(Exception):  # an image of another size may be refused in any way
        small = patch_tokens(part, other_image(part, given.image), stop)
        which = np.flatnonzero(small.order != NO_PATCH) if small is not None else np.arange(0)
        if small is not None and (np.diff(which) == 1).all() and (np.diff(small.order[which]) == 1).all():
            order = np.full(count, NO_PATCH)
            order[which[0] : which[0] + patches] = np.arange(patches)
            return order if count - patches == len(small.order) - len(which) else None
    tokens = patch_tokens(part, given, stop)
    return None if tokens is None else tokens.order


def _wrong_rows(
    numbers: np.ndarray, rows: int, offset: int, order: np.ndarray | None, image: PatchedImage | None
) -> str | None:
    """What is wrong with the rows that tokens get; None where nothing is."""
    if (numbers == _NO_ROW).all():
        return "no row of the table is added to any token."
    in_turn = np.arange(offset, offset + len(numbers))
    if len(numbers) > rows - offset:  # registers get no row
        got = numbers != _NO_ROW
        in_turn = np.where(got, offset + np.cumsum(got) - 1, _NO_ROW)
    declares, suspects, one = in_turn.copy(), {}, "token"
    patches = np.arange(len(numbers))
    if order is not None and image is not None:
        patches, one = np.flatnonzero(order != NO_PATCH), "patch"
        (row, column), columns = image.cells[order[patches]].T, image.columns
        declares[patches] = in_turn[patches][columns * row + column]
        if image.rows == columns:
            exchanged = in_turn[patches][columns * column + row]
            suspects["Rows and columns of the image are exchanged."] = exchanged
        suspects["The rows follow the order in which patches are given, not their places."] = in_turn[patches]
    for which, by in (("before", -1), ("after", 1)):
        suspects[f"Each {one} gets the row of the one {which} it."] = declares[patches] + by
    wrong = np.flatnonzero(numbers != declares)
    if not len(wrong):
        return None
    at = int(wrong[0])
    gets = {_NO_ROW: "no row", _OTHER: "what is no row of the table"}.get(int(numbers[at]), f"row {numbers[at]}")
    # What gives these patches the declared rows explains nothing: the fault is at other tokens.
    fits = [phrase for phrase, made in suspects.items()
            if (numbers[patches][1:] == made[1:]).all() and (made[1:] != declares[patches][1:]).any()]  # fmt: skip
    return " ".join([f"token {at} gets {gets}, where row {declares[at]} is declared.", *fits[:1]])


def _other_numbers(table: _HeldTable, code: LayerEncoding) -> str | None:
    """How a table differs from the sinusoid that is declared; None where it does not, or none is."""
    rows, width = _size(table)
    spec = code.spec
    if not isinstance(spec, Sinusoidal) or spec.scaled or spec.width != width:
        return None
    held = table.tensor.detach().double().cpu().numpy().reshape(rows, width)
    apart = np.abs(held - position_table(spec, rows, dtype="float64"))
    # Frequencies are mostly computed in float32, to an ulp or two, and phases too.
    if apart.max() <= 2 * roundoff(table.tensor.dtype) + 2.0**-24 + rows * max(spec.rates) * 2.0**-22:
        return None
    row, channel = np.unravel_index(int(apart.argmax()), apart.shape)
    found = identify(held)
    named = f" It is {describe(found[0].spec)}." if found else ""
    return (
        f"channel {channel} of row {row} is {held[row, channel]:.4f}, {apart[row, channel]:.4f} away from the "
        f"declared {describe(spec)}.{named}"
    )


# Images of another size


def _interpolation(part: nn.Module, table: _HeldTable, stop: nn.Module, native: PatchedImage) -> tuple[str | None, str]:
    """Where in the table the patches of an image of another size are: what is wrong, and what was seen, as a clause.

    The table is filled with the numbers of its own rows and columns: a patch shows the place that it gets.
    """
    side, (rows, width) = native.rows, _size(table)
    given = other_image(part, native)
    ramps = torch.zeros(rows, width, dtype=torch.float64)
    for axis in (0, 1):
        ramps[rows - side * side :, axis::2] = torch.from_numpy(np.indices((side, side))[axis].reshape(-1, 1) + 0.0)
    added = _added(part, stop, lambda seed: part(**given.given(seed)), table, ramps)
    tokens, image = patch_tokens(part, given, stop), given.image
    if added is None or tokens is None or image is None or not added.rows.any():
        return None, ""
    patches = np.flatnonzero(tokens.order != NO_PATCH)
    found = np.stack([added.rows[patches, axis::2].mean(dim=-1).numpy() for axis in (0, 1)], axis=-1)
    cells, shape = image.cells[tokens.order[patches]], np.array([image.rows, image.columns])
    usual = _interpolated(cells, side, shape)
    # A filter that takes the mean of more rows at a smaller size takes that of fewer ones at the edges.
    allowed = _BETWEEN * np.maximum(1, side / shape)

    def fits(ways: Sequence[np.ndarray]) -> bool:
        return any((np.abs(found - places) <= allowed).all() for places in ways)

    if fits(usual):
        return None, f"its table is interpolated to an image of {image.rows} x {image.columns} patches"
    in_turn = cells @ (image.columns, 1)
    turned = np.stack(np.divmod(in_turn, image.rows), axis=-1)
    suspects = {
        "Rows and columns are exchanged.": [each[:, ::-1] for each in usual],
        "The table was interpolated to its width by its height.": _interpolated(turned, side, shape[::-1]),
        "The table was not interpolated.": [np.stack(np.divmod(in_turn, side), axis=-1)],
    }
    named = [phrase for phrase, places in suspects.items() if fits(places)]
    at = int(np.abs(found - usual[0]).max(axis=-1).argmax())
    wrong = (
        f"in an image of {image.rows} x {image.columns} patches, the one at row {cells[at, 0]}, column {cells[at, 1]} "
        f"gets row {found[at, 0]:.2f}, column {found[at, 1]:.2f} of the grid of the table, where "
        f"{usual[0][at, 0]:.2f} and {usual[0][at, 1]:.2f} are usual."
    )
    return " ".join([wrong, *named[:1]]), ""


def _interpolated(cells: np.ndarray, side: int, shape: np.ndarray) -> list[np.ndarray]:
    """Places in a square table for cells of an image: by centres of cells, by corners, and by the nearest row."""
    centres = np.clip((cells + 0.5) * side / shape - 0.5, 0, side - 1)
    return [centres, cells * (side - 1) / (shape - 1), np.floor(cells * side / shape)]
