"""`clockhands table`: the numbers of a position code, exact at every position."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from clockhands.cli.group import say, talk
from clockhands.cli.output import DTYPES, OutPath, not_there, write_whole
from clockhands.configs.targets import open_target
from clockhands.encodings.additive import table
from clockhands.encodings.grids import Grid, without_prefix
from clockhands.encodings.positions import Positions, positions_of
from clockhands.encodings.specs import to_json
from clockhands.errors import InvalidValue

_WHOLE = r"[+-]?\d[\d_]*"
_SLICE = re.compile(rf"^({_WHOLE}):({_WHOLE})(?::({_WHOLE}))?$")
_GRID = re.compile(r"^(?:(?P<prefix>\d+)\+)?(?P<sizes>[1-9]\d*(?:x[1-9]\d*)*)(?:/(?P<order>\d+(?:,\d+)*))?$")
_HINT = (
    "Write a count (5 is 0 to 4), start:stop or start:stop:step, a list (0,7,0.5; one position: 7,), or a grid (14x14)."
)


EXAMPLES = """\b
Examples:
  clockhands table vaswani2017:width=4 --positions 5
  clockhands table whisper --positions 0:1500 --out positions.npy
  clockhands table vaswani2017 --positions 0,7,1000000000000000000 --dtype float64
  clockhands table detr --positions 20x30 --out image.npy
  clockhands table mae --positions 1+14x14/1,0    (a row of zeros, then cells, axis 1 slowest)
  clockhands table found.json --out again.npy     (from clockhands identify --json)
"""


def parse_positions(text: str) -> int | range | list[int | float] | Grid:
    """Parse the value of ``--positions``.

    A single whole number is a count, as everywhere in this library; a comma makes it a position. A real number (1e3,
    5.0) is ambiguous and refused. A grid has a size for each axis of the code, in their order; the last one changes
    fastest, unless ``/1,0`` gives another order, slowest first; ``1+`` before it adds a row without a position.

    >>> parse_positions("5"), parse_positions("0:100:7"), parse_positions("7,"), parse_positions("0,0.5")
    (5, range(0, 100, 7), [7], [0, 0.5])
    >>> parse_positions("3x14x14"), parse_positions("1+14x16/1,0")
    (Grid((3, 14, 14)), Grid((14, 16), order=(1, 0), prefix=1))

    Raises:
        InvalidValue: It has none of these forms.
    """
    text = text.strip()
    grid = _GRID.match(text)
    if grid and not text.isdigit():
        sizes = tuple(map(int, grid["sizes"].split("x")))
        order = tuple(map(int, grid["order"].split(","))) if grid["order"] else None
        return Grid(sizes, order=order, prefix=int(grid["prefix"] or 0))
    found = _SLICE.match(text)
    try:
        if found:
            start, stop, step = (int(part) if part else 1 for part in found.groups())
            if step == 0:
                raise InvalidValue(
                    f"The step of `{text}` is 0, so the range never ends.", "Give a step above or below 0."
                )
            return range(start, stop, step)
        if re.match(rf"^{_WHOLE}$", text):
            return int(text)
        if text and ("," in text or not float(text).is_integer()):
            return [_number(part) for part in text.removesuffix(",").split(",")]
    except ValueError as error:
        if isinstance(error, InvalidValue):
            raise
    raise InvalidValue(f"`{text}` does not name positions.", _HINT)


def _number(text: str) -> int | float:
    return int(text) if re.match(rf"^\s*{_WHOLE}\s*$", text) else float(text)


@click.command("table", epilog=EXAMPLES)
@click.argument("preset", metavar="PRESET[:field=value,...]|FILE.json")
@click.option(
    "--positions",
    "asked",
    default="0:2048",
    show_default=True,
    metavar="P",
    help="A count (5 is 0 to 4), start:stop[:step], a list (0,7,0.5; one position: 7,), or a grid (14x14).",
)
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True, help="Dtype of the values.")
@click.option(
    "--out",
    type=OutPath(),
    metavar="FILE",
    help="Write the values, with all digits, to FILE (.npy, .npz, .safetensors or .csv).",
)
@click.option("--force", is_flag=True, help="Replace FILE if it already exists.")
@click.pass_context
def command(  # noqa: PLR0917 - click passes them by name
    context: click.Context, preset: str, asked: str, dtype: str, out: Path | None, force: bool
) -> None:
    """Print or write the values of a position encoding, exact at every position.

    PRESET is a name listed by `clockhands presets`, with changed fields after a colon. FILE.json is a spec written by
    clockhands.to_json, or the output of `clockhands identify --json`, whose positions are used unless --positions is
    given. Printed numbers have six digits; a terminal shows as many rows and columns as fit.
    """
    writer = None if out is None else _writer(out, dtype)
    reads = [Path(preset)] if preset.lower().endswith(".json") else []
    if out is not None:
        not_there(out, force=force, reads=reads)
    spec, own, values = _spec(preset)
    chosen = context.get_parameter_source("asked") != ParameterSource.DEFAULT
    wanted: Any = parse_positions(asked) if chosen or own is None else own
    numbers = table(spec, wanted, dtype=dtype, values=values)
    positions = _standing(wanted, numbers)
    if out is None or writer is None:
        _print(numbers, positions)
        return
    write_whole(out, lambda path: writer(path, numbers, positions, to_json(spec)), force=force, reads=reads)
    talk(f"{out}: {numbers.shape[0]:,} positions x {numbers.shape[1]:,} dimensions, {dtype}.")


def _spec(preset: str) -> tuple[Any, Any, Any]:
    """The spec, and the positions and learned numbers that come with it."""
    path = Path(preset)
    if preset.lower().endswith(".json") and path.exists():
        from clockhands.cli.identified_json import read_found

        return read_found(path)
    # A preset and nothing else: a file of the same name is not what is meant here.
    return open_target(preset if preset.startswith("preset:") else f"preset:{preset}").spec, None, None


@dataclass(frozen=True)
class _Cells:
    """Positions of several coordinates, after rows without a position."""

    at: Positions
    prefix: int
    size: int

    @property
    def axes(self) -> int:
        """Coordinates of a position."""
        return self.at.shape[-1] if len(self.at.shape) > 1 else 1

    def element(self, index: int) -> str:
        """The coordinates of a row, as text."""
        if index < self.prefix:
            return "none"
        first = (index - self.prefix) * self.axes
        return " ".join(str(self.at.element(first + axis)) for axis in range(self.axes))

    def array(self) -> np.ndarray:
        """The coordinates, float64 [rows, axes], NaN for rows without a position."""
        cells = self.at.as_float64().reshape(-1, self.axes)
        return np.concatenate([np.full((self.prefix, self.axes), np.nan), cells])


def _standing(wanted: Any, numbers: np.ndarray) -> "Positions | _Cells":
    prefix, cells = without_prefix(wanted)
    at = positions_of(cells)
    return at if len(at.shape) == 1 and not prefix else _Cells(at, prefix, len(numbers))


# Files


def _writer(out: Path, dtype: str) -> Callable[[Path, np.ndarray, Positions | _Cells, str], None]:
    writers = {".npy": _write_npy, ".npz": _write_npz, ".safetensors": _write_safetensors, ".csv": _write_csv}
    writer = writers.get(out.suffix.lower())
    if writer is None:
        raise InvalidValue(
            f"{out} does not end in a file type that can be written.", f"End it in one of {', '.join(writers)}."
        )
    if dtype == "bfloat16" and out.suffix.lower() in (".npy", ".npz"):
        raise InvalidValue(
            f"A {out.suffix} file cannot hold bfloat16.", "Write a .safetensors file, or use --dtype float32."
        )
    return writer


def _write_npy(path: Path, numbers: np.ndarray, _positions: Positions | _Cells, _spec: str) -> None:
    # np.save hides the cause of a failed write: for a full disk it only gives the number of numbers written.
    rows = np.ascontiguousarray(numbers)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(rows))
        file.write(rows.data)


def _write_npz(path: Path, numbers: np.ndarray, positions: Positions | _Cells, spec: str) -> None:
    # Like np.savez, which in NumPy 2.1 leaves its archive open after a failed write.
    import zipfile

    arrays = {"table": np.asarray(numbers), "positions": _exact_array(positions), "spec": np.array(spec)}
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _write_safetensors(path: Path, numbers: np.ndarray, positions: Positions | _Cells, spec: str) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    tensors = {"table": np.ascontiguousarray(numbers), "positions": _exact_array(positions)}
    try:
        save_file(tensors, str(path), metadata={"spec": spec})
    except SafetensorError as error:  # its own type, not an OSError, with the number of the cause in the text
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(*((int(number[1]), os.strerror(int(number[1]))) if number else (str(error),))) from error


def _write_csv(path: Path, numbers: np.ndarray, positions: Positions | _Cells, _spec: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(",".join(["position", *map(str, range(numbers.shape[1]))]) + "\n")
        for index, row in enumerate(numbers):
            # str of a NumPy number is the shortest text that reads back as the same number of its type.
            file.write(",".join([str(positions.element(index)), *map(str, row)]) + "\n")


def _exact_array(positions: Positions | _Cells) -> np.ndarray:
    if isinstance(positions, _Cells):
        return positions.array()
    values = [positions.element(index) for index in range(positions.size)]
    for dtype in (np.int64, np.float64):
        if all(_fits(value, dtype) for value in values):
            return np.array(values, dtype)
    raise InvalidValue(
        "The positions hold both fractions and whole numbers beyond 2**53, which no array type holds exactly.",
        "Write them to two files, or to a .csv or .npy file.",
    )


def _fits(value: float, dtype: type) -> bool:
    if dtype is np.int64:
        return isinstance(value, int) and -(2**63) <= value < 2**63
    return int(float(value)) == value if isinstance(value, int) else True


# Text

_CELL = 12  # a sign, six digits, a point, zeros in front, and a space
_MARGIN = 14  # the positions, and a gap where columns are left out


def _print(numbers: np.ndarray, positions: Positions | _Cells) -> None:
    size = shutil.get_terminal_size() if sys.stdout.isatty() else None
    columns = _ends(numbers.shape[1], None if size is None else max(2, (size.columns - _MARGIN) // _CELL))
    rows = _ends(numbers.shape[0], None if size is None else max(4, size.lines - 5))
    for line in _lines(numbers, positions, rows, columns):
        say(line)
    if None in rows or None in columns:
        count, width = (sum(place is not None for place in places) for places in (rows, columns))
        talk(
            f"{count:,} of {numbers.shape[0]:,} positions and {width:,} of {numbers.shape[1]:,} dimensions are "
            "shown; use --out FILE or a pipe for all."
        )


def _ends(count: int, room: int | None) -> list[int | None]:
    """The places to show: all, or as many as fit: the first ones, a gap (None) and the last ones."""
    if room is None or count <= room:
        return list(range(count))
    last = max(1, room // 4)
    return [*range(room - last), None, *range(count - last, count)]


def _lines(
    numbers: np.ndarray, positions: Positions | _Cells, rows: list[int | None], columns: list[int | None]
) -> Iterator[str]:
    names = ["..." if row is None else str(positions.element(row)) for row in rows]
    first = max([len("position"), *map(len, names)])
    yield _line("position", first, ("..." if column is None else str(column) for column in columns))
    for row, name in zip(rows, names, strict=True):
        if row is None:
            yield _line(name, first, ("..." for _ in columns))
            continue
        values = numbers[row].tolist()
        yield _line(name, first, ("..." if column is None else f"{values[column]:.6g}" for column in columns))


def _line(name: str, first: int, cells: Iterator[str]) -> str:
    return f"{name:>{first}}" + "".join(f"{cell:>{_CELL if cell != '...' else 5}}" for cell in cells)
