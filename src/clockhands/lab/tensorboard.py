"""Writes measurements as TensorBoard event files: one run folder for each trial."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from clockhands.errors import ClockhandsError
from clockhands.formats import files
from clockhands.lab.store import StoredRow
from clockhands.lab.study import Study


def check_folder(folder: Path) -> None:
    """Make the folder for event files, and refuse one that cannot be written, before anything is trained.

    Raises:
        ClockhandsError: It is a file, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder) as file:
            file.write(b"0")
    except OSError as error:
        raise _unwritable(folder, error) from None


def write_trial(folder: Path, study: Study, rows: Iterable[StoredRow]) -> None:
    """Write the rows of one trial to ``folder/task/arm/seed``, in place of what is there.

    Rows of training and of its curve are scalars by step; those of the evaluation are scalars by length, without the
    parts for single positions.

    Args:
        folder: For all trials.
        study: Their study.
        rows: The rows of a trial.

    Raises:
        ClockhandsError: TensorBoard is not installed, or the folder cannot be written.
    """
    written = sorted((row for row in rows if row.place is None), key=lambda row: (row.step, row.length))
    if not written:
        return
    first = written[0]
    run = folder / first.task / first.arm / f"seed {first.seed}"
    unfinished = files.unknown_beside(run)
    try:
        for each in (*files.left_beside(run), run):
            shutil.rmtree(each, ignore_errors=True)
        with writer(unfinished) as events:
            events.add_text("study", f"{study.name} ({study.hash[:12]}): {study.question}")
            for row in written:
                tag = "/".join(part for part in (row.kind, row.measure, row.variant, row.protocol) if part)
                events.add_scalar(tag, row.value, row.length if row.kind == "evaluation" else row.step)
        unfinished.rename(run)
    except OSError as error:
        raise _unwritable(run, error) from None


def _unwritable(folder: Path, error: OSError) -> ClockhandsError:
    reason = "it is a file" if folder.is_file() else error.strerror or error
    return ClockhandsError(
        f"The folder {folder} for TensorBoard's event files cannot be written: {reason}.",
        "Name another folder by `--tensorboard`.",
    )


def writer(folder: Path) -> Any:
    """PyTorch's writer of event files.

    Raises:
        ClockhandsError: TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ClockhandsError(
            "TensorBoard event files need the package tensorboard, which is not installed.",
            "pip install 'clockhands[tensorboard]'",
        ) from None
    return SummaryWriter(str(folder))
