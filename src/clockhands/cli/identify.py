"""`clockhands identify`: recognises which encoding produced a table or a function."""

import contextlib
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from clockhands.cli.group import complain, say, talk
from clockhands.cli.output import BACKENDS, hanging, json_option, keep_stdout, leave, print_json
from clockhands.cli.table import parse_positions
from clockhands.configs.callables import load, refuse_source
from clockhands.configs.targets import Opened, is_function, open_target
from clockhands.errors import ClockhandsError, InvalidValue, Unreadable
from clockhands.formats import arrays, files
from clockhands.formats.arrays import TensorInfo
from clockhands.phrases import shown
from clockhands.recognition import Matches, identify

DTYPES = ("float32", "float64", "float16", "bfloat16")

_NAME = (
    "Name a .npy, .npz, .safetensors, .onnx or .gguf file, a model folder that holds one, or a function as "
    "package.module:callable."
)

EXAMPLES = """\b
Examples:
  clockhands identify positions.npy
  clockhands identify model.safetensors:encoder.embed_positions.weight
  clockhands identify table.npy --positions 2:514
  clockhands identify mymodel.rotary:apply_rotary --width 64 --backend torch

A table that is not recognised is an answer too: the reason is printed, and the exit code is 0.
"""


@click.command("identify", epilog=EXAMPLES)
@click.argument("target", metavar="FILE[:TENSOR]|PACKAGE.MODULE:CALLABLE")
@click.option(
    "--positions",
    metavar="P",
    help="Positions of the rows of a table: a count, start:stop[:step] or a list (0,7,0.5).",
)
@click.option("--width", type=click.IntRange(min=1), metavar="N", help="Width of x, the input of a function.")
@click.option("--backend", type=click.Choice(BACKENDS), help="Type of a function's arrays (default: detected).")
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    metavar="D",
    help="Dtype of a function's input (default: float32): float64, float16 or bfloat16.",
)
@click.option("--longest", type=click.IntRange(min=1), metavar="P", help="Largest position to call a function with.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Time limit of each call of a function in seconds (default: 60).",
)
@json_option
def command(target: str, positions: str | None, width: int | None, as_json: bool, **chosen: Any) -> int:
    """Identify the encoding of a table or of a function.

    FILE is a .npy, .npz, .safetensors (or its index), .pt, .onnx or .gguf file, or a model folder. Without TENSOR,
    all tables that are named like position embeddings are identified, or all tables if there are only a few.
    CALLABLE(x [seq, width], positions [seq]) is imported from the current folder, an installed package or FILE.py, and
    called.
    """
    options = {name: chosen[name] for name in ("backend", "dtype", "longest", "timeout") if chosen[name] is not None}
    refuse_source(target)
    if is_function(target):
        if positions is not None:
            raise InvalidValue("--positions is for tables, but a function was given.", "Leave it out.")
        results: list[tuple[str, TensorInfo | None, Matches]] = [(target, None, _function(target, width, options))]
        failed = False
    else:
        for name, value in (("--width", width), *((f"--{name}", value) for name, value in options.items())):
            if value is not None:
                raise InvalidValue(f"{name} is for functions, but a table was given.", "Leave it out.")
        results, failed = _tables(target, positions)
    if as_json:
        from clockhands.cli.identified_json import result_to_dict

        described = (
            result_to_dict(what, *((None, None) if info is None else (info.shape, info.dtype)), matches)
            for what, info, matches in results
        )
        print_json({"target": target, "results": list(described)})
    else:
        _show(results, target, positions)
    return 2 if failed else 0


def _function(target: str, width: int | None, options: dict[str, Any]) -> Matches:
    from clockhands.recognition.calling import outliving

    running = hanging()
    keep_stdout()
    try:
        # What the function prints goes to stderr: only the answer may be on stdout.
        with contextlib.redirect_stdout(sys.stderr), outliving():
            return _of_function(target, width, options)
    except ClockhandsError as error:
        if hanging() <= running:
            raise
        complain(error.message, error.hint)
        leave(2)


def _of_function(target: str, width: int | None, options: dict[str, Any]) -> Matches:
    function = load(target)
    if width is None:
        raise InvalidValue(
            "The width of the function's input is missing.",
            "Pass --width N, such as --width 64; for RoPE it is the head width.",
        )
    return identify(function, width=width, **options)


def _tables(target: str, positions: str | None) -> tuple[list[tuple[str, TensorInfo | None, Matches]], bool]:
    """The result for each table of a file, and whether one could not be read."""
    from clockhands.configs.position_tables import rows_of

    opened = _opened(target)
    for note in opened.notes:
        talk(f"note: {note}")
    names = _chosen(opened)
    at = None if positions is None else parse_positions(positions)
    results, failed = [], False
    for name in names:
        info = opened.tensor(name)
        try:
            results.append((_what(info), info, identify(rows_of(info), positions=at)))
        except ClockhandsError as error:
            if len(names) == 1:
                raise
            complain(error.message, error.hint)
            failed = True
    return results, failed


def _opened(target: str) -> Opened:
    path = Path(target.removeprefix("file:"))
    if files.place(path) != "file" or files.kind(path) != "npz" or len(names := arrays.npz_names(path)) < 2:
        try:
            return open_target(target)
        except Unreadable as error:
            if "preset" in error.hint or "config.json" in error.hint:  # of what other commands read
                raise Unreadable(error.message, _NAME) from error
            raise
    tensors, notes = {}, []
    for name in names:
        try:
            tensors[name] = arrays.npz_header(path, name)
        except Unreadable as error:  # a text beside the table, as `clockhands table` writes it
            notes.append(f"left out: {error.message}")
    return Opened(target, "array", path, None, path.name, tensors, notes=tuple(notes))


def _chosen(opened: Opened) -> tuple[str, ...]:
    """The tables to identify."""
    from clockhands.configs.position_tables import position_tables

    if len(opened.tensors) == 1:
        return tuple(opened.tensors)
    if not opened.tensors:
        raise Unreadable(
            f"{opened.target} holds no tables.",
            "Name a .npy, .npz, .safetensors, .onnx or .gguf file; `clockhands audit` reads configs and presets.",
        )
    names = position_tables(opened)
    if not names:
        raise Unreadable(
            f"None of the {len(opened.tensors):,} tensors of {opened.target} is named like a table of positions.",
            f"Pick one as {opened.target}:NAME. " + arrays.listed("It holds", tuple(opened.tensors)),
        )
    return names


def _what(info: TensorInfo) -> str:
    """The name of a table: that of the file which declares it, and the tensor's where a file has several."""
    name = info.declared_in.name
    return name if info.name == name else f"{name}:{shown(info.name)[1:-1]}"


def _command_for_one_table(target: str, info: TensorInfo | None, positions: str | None, alone: bool) -> str:
    """The command that selects this table and no other."""
    picked = target if alone or info is None else f"{info.declared_in}:{info.name}"
    words = ["clockhands", "identify", picked, *(() if positions is None else ("--positions", positions))]
    return shlex.join(words)


def _show(results: list[tuple[str, TensorInfo | None, Matches]], target: str, positions: str | None) -> None:
    # A program that asks for JSON does not pay for the drawing.
    from clockhands.cli.identified_json import command_of
    from clockhands.show.matches import print_matches

    for number, (what, info, matches) in enumerate(results):
        if number:
            say()
        commands = [command_of(match) for match in matches]
        shape, dtype = (None, None) if info is None else (info.shape, info.dtype)
        asked = _command_for_one_table(target, info, positions, len(results) == 1)
        print_matches(what, matches, shape=shape, dtype=dtype, commands=commands, asked=asked)
