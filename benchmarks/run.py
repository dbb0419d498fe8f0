"""Time and memory of tables, rotations, imports, audits, checks, training and the explorer; run by `make bench`.

Every figure is a ratio of medians of interleaved runs: one repetition times every contestant once, in an order that
is drawn anew, and positions start elsewhere in each repetition. Read ratios, not milliseconds.
"""

import argparse
import json
import math
import os
import platform
import random
import resource
import shlex
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from audits import audits
from checks import checks
from rich.console import Console
from rich.table import Table
from running import running
from timing import Target, command, interleaved, keep_memory, say_free_cores

from explorer import frames

ROOT = Path(__file__).resolve().parents[1]
MIB = 2**20
BIN = Path(sys.executable).parent
SMALL, LARGE = (5_000, 512), (32_768, 1_024)


def size(shape: tuple[int, int]) -> str:
    return f"{shape[0]:,} x {shape[1]:,}"


# Tables beside peers


def race(contestants: Iterable[Any], shape: tuple[int, int], repetitions: int) -> dict[str, float]:
    """Median seconds of each contestant, every repetition at other positions."""

    def prepared(contestant: Any) -> Callable[[int], Callable[[], object]]:
        return lambda repetition: contestant.prepare(*shape, 10_000 + 7_919 * repetition)

    memory = 4 * shape[0] * shape[1] * 4  # the table, and what some peers hold beside it
    return interleaved({each.name: prepared(each) for each in contestants}, repetitions, memory)


def tables(repetitions: dict[tuple[int, int], int], show: Console) -> tuple[list[dict], list[Target]]:
    import table_makers as makers
    import torch

    rows: list[dict] = []
    targets: list[Target] = []
    for shape in (SMALL, LARGE):
        fill_alone = 0.0
        for threads in (1, 2):
            torch.set_num_threads(threads)
            os.environ["CLOCKHANDS_THREADS"] = str(threads)
            everybody = makers.contestants()
            taking_part = [each for each in everybody if shape[0] * shape[1] <= (each.most_entries or math.inf)]
            # Those that take seconds would stretch the run: they are timed once, after the others.
            medians = race([each for each in taking_part if each.most_entries is None], shape, repetitions[shape])
            medians |= race([each for each in taking_part if each.most_entries is not None], shape, 1)
            left_out = [each.name for each in everybody if each not in taking_part]
            fill = medians[makers.FILL]
            fill_alone = fill_alone or fill
            ours = medians[makers.OURS]
            fastest = min(medians[each.name] for each in taking_part if makers.is_peer(each))
            rows += [
                {
                    "shape": size(shape),
                    "threads": threads,
                    "name": name,
                    "milliseconds": seconds * 1e3,
                    "of the fill": seconds / fill,
                    "of clockhands": seconds / ours,
                }
                for name, seconds in medians.items()
            ]
            where = f"{size(shape)}, {threads} thread{'s' * (threads > 1)}"
            if shape == LARGE:
                most = 4.0 if threads == 1 else 2.5
                targets.append(Target(f"{where}: multiple of the one-thread fill", ours / fill_alone, most))
                targets.append(Target(f"{where}: part of the fastest peer's time", ours / fastest, 1 / 4))
            else:
                most = 1.0 if threads == 1 else 1.1
                targets.append(Target(f"{where}: part of the fastest peer's time", ours / fastest, most))
            if left_out:
                show.print(f"{where}: left out, being too slow: {', '.join(left_out)}")
            draw_tables(show, [row for row in rows if row["shape"] == size(shape) and row["threads"] == threads], where)
    del os.environ["CLOCKHANDS_THREADS"]
    return rows, targets


def draw_tables(show: Console, rows: list[dict], title: str) -> None:
    drawn = Table(title=title, title_justify="left")
    drawn.add_column("who")
    for column in ("ms", "x fill", "x clockhands"):
        drawn.add_column(column, justify="right")
    for row in sorted(rows, key=lambda row: row["milliseconds"]):
        drawn.add_row(
            row["name"], f"{row['milliseconds']:.2f}", f"{row['of the fill']:.2f}", f"{row['of clockhands']:.2f}"
        )
    show.print(drawn)


# Rotation


QUERIES = (1, 16, 2_048, 128)


def rotations(repetitions: int, show: Console) -> tuple[list[dict], list[Target]]:
    """Rotating queries beside copying them, float32."""
    import rotators
    import torch

    keep_memory()
    rows: list[dict] = []
    targets: list[Target] = []
    shape = " x ".join(str(number) for number in QUERIES)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        os.environ["CLOCKHANDS_THREADS"] = str(threads)
        q = torch.randn(QUERIES)
        prepared = {each.name: each.prepare(q) for each in rotators.rotators()}
        medians = interleaved(
            {name: lambda _, rotate=rotate: rotate for name, rotate in prepared.items()},
            repetitions,
            4 * q.numel() * q.element_size(),  # what comes out, and what some peers hold beside it
        )
        trained = interleaved(
            {name: lambda _, call=call: call for name, call in rotators.training(q).items()},
            repetitions,
            4 * q.numel() * q.element_size(),
        )
        copy = medians[rotators.COPY]
        where = f"rotating {shape}, {threads} thread{'s' * (threads > 1)}"
        most, most_of_halves = (1.3, 2.5) if threads == 1 else (1.8, 3.0)
        targets += [
            Target(f"{where}, interleaved: multiple of the copy", medians[rotators.INTERLEAVED] / copy, most),
            Target(f"{where}, halves: multiple of the copy", medians[rotators.HALVES] / copy, most_of_halves),
            Target(
                f"{where}, halves: part of transformers' time", medians[rotators.HALVES] / medians[rotators.LLAMA], 0.6
            ),
            Target(
                f"{where}, halves, forward and backward: part of transformers' time",
                trained[rotators.HALVES] / trained[rotators.LLAMA],
                0.5,
            ),
        ]
        drawn = Table(title=where, title_justify="left")
        drawn.add_column("who")
        drawn.add_column("ms", justify="right")
        drawn.add_column("x copy", justify="right")
        for name, seconds in sorted(medians.items(), key=lambda row: row[1]):
            drawn.add_row(name, f"{seconds * 1e3:.2f}", f"{seconds / copy:.2f}")
            rows.append(
                {"threads": threads, "name": name, "milliseconds": seconds * 1e3, "of the copy": seconds / copy}
            )
        show.print(drawn)
    del os.environ["CLOCKHANDS_THREADS"]
    return rows, targets


def decoding(repetitions: int, show: Console) -> tuple[dict[str, float], list[Target]]:
    """One new token through the layers of a model, eager, on one thread: microseconds a layer."""
    import rotators
    import torch

    torch.set_num_threads(1)
    with torch.no_grad():
        medians = interleaved(
            {
                name: lambda repetition, step=step: lambda: step(1_000 + repetition)
                for name, step in rotators.decoding().items()
            },
            4 * repetitions,
        )
    micro = {name: seconds / rotators.DECODING_LAYERS * 1e6 for name, seconds in medians.items()}
    where = f"decoding one token, {rotators.DECODING_LAYERS} layers"
    drawn = Table(title=where, title_justify="left")
    drawn.add_column("who")
    drawn.add_column("microseconds a layer", justify="right")
    for name, figure in sorted(micro.items(), key=lambda row: row[1]):
        drawn.add_row(name, f"{figure:.1f}")
    show.print(drawn)
    limits = {rotators.SHARED: 1.1, rotators.EACH: 1.5, rotators.EACH_SPEC: 1.5}
    return micro, [
        Target(f"{where}, {name}: part of transformers' time", medians[name] / medians[rotators.LLAMA], limit)
        for name, limit in limits.items()
    ]


# Long tables


def linear(repetitions: int) -> tuple[dict[str, float], list[Target]]:
    """Nanoseconds an entry as the table grows, and how far the largest is from the smallest."""
    import clockhands as ch

    os.environ["CLOCKHANDS_THREADS"] = "1"
    spec = ch.preset("vaswani2017", width=256)
    lengths = [62_500 * 2**k for k in range(5)]

    def prepare(length: int) -> Callable[[int], Callable[[], object]]:
        return lambda repetition: lambda: ch.table(spec, range(31 * repetition, 31 * repetition + length))

    medians = interleaved({f"{length:,}": prepare(length) for length in lengths}, repetitions, lengths[-1] * 256 * 4)
    del os.environ["CLOCKHANDS_THREADS"]
    each = {name: seconds / (int(name.replace(",", "")) * 256) * 1e9 for name, seconds in medians.items()}
    growth = each[f"{lengths[-1]:,}"] / each[f"{lengths[0]:,}"]
    return each, [Target("1,000,000 x 256: time an entry, of that at 62,500 x 256 (linear: 1)", growth, 1.25)]


def next_position(repetitions: int) -> tuple[dict[str, float], list[Target]]:
    """One more row at width 1,024 beside the sines and cosines that it has to hold at least."""
    import clockhands as ch

    spec = ch.preset("vaswani2017", width=1_024)
    rates = np.asarray(spec.ladder.rates)
    many = 4  # short, so that another process seldom cuts in

    def ours(repetition: int) -> Callable[[], object]:
        positions = [[100_000 + many * repetition + i] for i in range(many)]
        return lambda: [ch.table(spec, position) for position in positions]

    def least(repetition: int) -> Callable[[], object]:
        phases = [(100_000 + many * repetition + i) * rates for i in range(many)]
        return lambda: [(np.sin(phase), np.cos(phase)) for phase in phases]

    medians = interleaved({"clockhands": ours, "np.sin, np.cos": least}, repetitions)
    micro = {name: seconds / many * 1e6 for name, seconds in medians.items()}
    ratio = micro["clockhands"] / micro["np.sin, np.cos"]
    return micro, [Target("one next position, width 1,024: multiple of np.sin + np.cos of its 512 phases", ratio, 6.0)]


# Whole processes


PEAK = """
import sys
import numpy as np
import clockhands as ch
rows, width, build = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "table"
spec = ch.preset("vaswani2017", width=width)
ch.table(spec, range(5, 500))  # everything that is loaded on the way is loaded now, in both
if build:
    out = ch.table(spec, range(12_345, 12_345 + rows))
else:
    out = np.empty((rows, width), np.float32)
    out.fill(1.0)
"""


def peak(shape: tuple[int, int], threads: int) -> float:
    """MiB at the peak of making a table, beyond a process that only holds as much memory."""

    def maximum(what: str) -> float:
        arguments = [sys.executable, "-c", PEAK, str(shape[0]), str(shape[1]), what]
        return statistics.median(command(arguments, CLOCKHANDS_THREADS=str(threads))[1] for _ in range(3))

    return maximum("table") - maximum("fill")


def peaks() -> tuple[dict[str, float], list[Target]]:
    measured = {
        f"{size(shape)}, {threads} thread{'s' * (threads > 1)}": peak(shape, threads)
        for shape in (LARGE, (1_000_000, 256))
        for threads in (1, 2)
    }
    return measured, [
        Target(f"{name}: peak memory beyond the output", mib, 32.0, "MiB") for name, mib in measured.items()
    ]


def processes(repetitions: int) -> tuple[dict[str, float], list[Target]]:
    """Start-up: medians of whole processes."""
    python = [sys.executable, "-c"]
    commands = {
        "import numpy": [*python, "import numpy"],
        "import clockhands": [*python, "import clockhands"],
        "import numpy, click": [*python, "import numpy, click"],
        "clockhands --help": [str(BIN / "clockhands"), "--help"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(repetitions):
        for name in random.sample(list(commands), len(commands)):
            seconds[name].append(command(commands[name])[0])
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    return {name: seconds * 1e3 for name, seconds in medians.items()}, [
        Target("import clockhands, of import numpy", medians["import clockhands"] / medians["import numpy"], 1.25),
        Target(
            "clockhands --help, of import numpy, click",
            medians["clockhands --help"] / medians["import numpy, click"],
            1.5,
        ),
    ]


PARTS = (
    "tables",
    "linear",
    "next",
    "memory",
    "start",
    "audit",
    "check",
    "running",
    "explorer",
    "training",
    "decoding",
    "rotations",
)


def draw_targets(show: Console, targets: Iterable[Target]) -> None:
    drawn = Table(title="targets", title_justify="left")
    drawn.add_column("what")
    for column in ("measured", "wanted"):
        drawn.add_column(column, justify="right")
    drawn.add_column("met")
    for target in targets:
        drawn.add_row(
            target.what,
            f"{target.measured:.2f} {target.unit}",
            f"{'>' if target.more else '<='} {target.limit:.2f} {target.unit}",
            "yes" if target.met else "[red]no[/red]",
        )
    show.print(drawn)


def installed(name: str) -> str:
    """The version of a package; without `make bench` not all are there, nor needed for all parts."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "is not installed"


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("--quick", action="store_true", help="a third of the repetitions")
    reader.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="parts to run")
    reader.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    reader.add_argument("--page", type=Path, metavar="FILE", help="write them as a page in Markdown too")
    asked = reader.parse_args()
    share = 3 if asked.quick else 1
    show = Console(width=None if sys.stdout.isatty() else 120)

    names = (
        "clockhands",
        "numpy",
        "torch",
        "transformers",
        "diffusers",
        "positional-encodings",
        "rotary-embedding-torch",
    )
    versions = {"python": sys.version.split()[0], **{name: installed(name) for name in names}}
    show.print("; ".join(f"{name} {number}" for name, number in versions.items()))
    show.print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}: medians of interleaved runs; read the ratios")
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        show.print("memory is limited here: large tables may not fit")

    say_free_cores(show)

    parts = {
        "linear": lambda: linear(9 // share),
        "next": lambda: next_position(900 // share),
        "memory": peaks,
        "start": lambda: processes(21 // share),
        "audit": lambda: audits(9 // share),
        "check": lambda: checks(9 // share),
        "running": lambda: running(9 // share),
    }
    machine = (
        f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}; load at the start {os.getloadavg()[0]:.1f}"
    )
    units = {
        "linear": "ns an entry",
        "next": "us",
        "memory": "MiB beyond the output",
        "start": "ms",
        "audit": "",
        "check": "s",
        "running": "s",
    }
    figures: dict[str, object] = {"versions": versions, "machine": machine}
    targets: list[Target] = []
    figures["units"] = units
    if "tables" in asked.only:
        figures["tables"], reached = tables({SMALL: 45 // share, LARGE: 15 // share}, show)
        targets += reached
    for name, measure in parts.items():
        if name in asked.only:
            measured, reached = measure()
            figures[name] = measured
            targets += reached
            show.print(f"{name} ({units[name]}): " + "; ".join(f"{key} {value:.2f}" for key, value in measured.items()))
    if "explorer" in asked.only:
        figures["explorer"], reached = frames(2.0 / share, show)
        targets += reached
    if "training" in asked.only:
        from training import training

        figures["training"], reached = training(63 // share, show)
        targets += reached
    if "decoding" in asked.only:
        figures["decoding"], reached = decoding(63 // share, show)
        targets += reached
    if "rotations" in asked.only:  # last: it changes how memory is kept
        figures["rotations"], reached = rotations(63 // share, show)
        targets += reached
    say_free_cores(show)
    draw_targets(show, targets)
    missed = [target for target in targets if not target.met]
    show.print(f"{len(targets) - len(missed)} of {len(targets)} targets met")
    figures["targets"] = [{**asdict(target), "met": target.met} for target in targets]
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if asked.page:
        from page import page

        called = f'make bench BENCH_ARGS="{shlex.join(sys.argv[1:])}"'
        asked.page.write_text(page(figures, called), encoding="utf-8")


if __name__ == "__main__":
    main()
