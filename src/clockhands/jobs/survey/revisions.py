"""A hash of the content of an audit target, so that a survey notices when the content has changed."""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from clockhands.configs.openers import BESIDE
from clockhands.configs.targets import path_of
from clockhands.formats import files
from clockhands.formats.documents import CONFIGS
from clockhands.jobs.survey.rows import SurveyRow

# Larger files count by size, time of the last change and first bytes: a survey does not read all weights.
WHOLE = 1 << 20
_HEAD = 1 << 16

_DOCUMENTS = frozenset({*CONFIGS, *BESIDE, "hparams.json"})
_ALONE = ("gguf", "npy")  # other files beside such a file are not read


def revision_of(target: str) -> str:
    """SHA-256 (hexadecimal) of the files that an audit of a target looks at, with their names.

    Files of up to 1 MiB count by their bytes, wherever they are; larger ones, which hold weights, by size, time of the
    last change and first bytes. So a copied config keeps its revision, and copied weights may get another.

    Returns:
        The digest; "" for a preset and for what has no file.
    """
    path = path_of(target)
    if path is None:
        return ""
    made = hashlib.sha256()
    for name, file in _read_of(path):
        made.update(_state(name, file))
    return made.hexdigest()


def still_there(rows: Iterable[SurveyRow]) -> tuple[list[SurveyRow], list[SurveyRow]]:
    """The rows whose targets still exist; rows whose files were deleted or moved since are left out."""
    rows = list(rows)
    # Only a row with a revision had files; a name that was never found is not a deleted file.
    of_files = [row.target for row in rows if row.revision and os.path.isabs(row.target)]
    gone = {target for target in of_files if path_of(target) is None}
    if gone and len(gone) == len(of_files):
        root = os.path.commonpath([os.path.dirname(target) for target in of_files])
        if root == os.sep or not os.path.isdir(root):
            return rows, []
    return [row for row in rows if row.target not in gone], [row for row in rows if row.target in gone]


def _read_of(path: Path) -> Iterator[tuple[str, Path]]:
    """The files of a target with the names under which they enter the hash, in a fixed order."""
    if path.is_dir():
        yield from _in_folder(path, weights=True)
        return
    yield "", path
    kind = _kind(path)
    if kind in (None, "json", *_ALONE):
        return
    yield from _in_folder(path.parent, weights=kind in ("index", "checkpoint-index"))
    if path.parent.name == "onnx":  # its config lies in the folder above
        yield from ((f"../{name}", file) for name, file in _in_folder(path.parent.parent, weights=False))


def _in_folder(folder: Path, *, weights: bool) -> Iterator[tuple[str, Path]]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        yield f"cannot be listed: {error.errno}", folder
        return
    for name in names:
        if name in _DOCUMENTS or (weights and _kind(Path(name)) not in (None, "json")):
            yield name, folder / name


def _kind(path: Path) -> str | None:
    """The kind of a file by its name alone."""
    name = path.name.lower()
    return next((kind for ending, kind in files.KINDS.items() if name.endswith(ending)), None)


def _state(name: str, file: Path) -> bytes:
    """What enters the hash for a file; an unreadable file is recorded as such, and pipes and devices are not opened."""
    start = os.fsencode(name) + b"\0"
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            return start + b"not a file\0"
        with file.open("rb") as opened:
            _, _, size, changed = files.state(opened)
            content = opened.read(WHOLE if size <= WHOLE else _HEAD)
    except (OSError, ValueError) as error:
        return start + f"unreadable {getattr(error, 'errno', '')}\0".encode()
    by_time = "" if size <= WHOLE else f"{size} {changed} "
    return start + by_time.encode() + hashlib.sha256(content).digest()
