"""Opens files for reading, and determines their kind from their names and first bytes.

Nothing here reads more than the beginning of a file. Every failure to open a file ends in one ``Unreadable``, so that
the modules above need not handle operating-system errors. Finished files are also given their final names here.
"""

import errno
import glob
import io
import os
import re
import select
import stat
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PureWindowsPath
from typing import IO, Any, BinaryIO

from clockhands.errors import Unreadable
from clockhands.phrases import nearest

# Kinds of targets by the ending of the name. Longer endings come first.
KINDS = {
    ".safetensors.index.json": "index",
    ".safetensors": "safetensors",
    ".bin.index.json": "checkpoint-index",
    ".gguf": "gguf",
    ".json": "json",
    ".npy": "npy",
    ".npz": "npz",
    ".bin": "checkpoint",
    ".pt": "checkpoint",
    ".pth": "checkpoint",
    ".ckpt": "checkpoint",
    ".pkl": "checkpoint",
    ".onnx": "onnx",
    ".yaml": "yaml",
    ".yml": "yaml",
    "modelfile": "modelfile",
}

_MOST_NEIGHBOURS = 1000  # names of a folder that are compared with a misspelt one

# Kinds that hold tensors which can be selected by name.
CONTAINERS = frozenset({"index", "safetensors", "gguf", "npy", "npz", "onnx", "checkpoint", "checkpoint-index"})

# First bytes that identify a file, and its name in messages. Files in download caches have no endings.
SIGNATURES = (
    (b"GGUF", "gguf", "a GGUF file"),
    (b"\x93NUMPY", "npy", "a .npy array"),
    (b"PK\x03\x04", "npz", "a zip archive"),
    (b"version https://git-lfs", "pointer", "a Git LFS pointer, not the file itself"),
    (b"<!DOCTYPE", "page", "a web page"),
    (b"<!doctype", "page", "a web page"),
    (b"<html", "page", "a web page"),
    (b"\x80", "checkpoint", "a Python pickle"),
    (b"{", "json", "JSON text"),
    (b"\xef\xbb\xbf{", "json", "JSON text"),
)

# What to do about a file that is damaged.
WRITE_AGAIN = "Write or download the file again."
_PULL = "Run `git lfs pull` in the model folder."

_HEAD = 32

# The file part of a source, which may contain a colon.
_PLACE = re.compile(rf"(.+?(?:{'|'.join(map(re.escape, KINDS))})):(.*)", re.DOTALL | re.IGNORECASE)

# How files are named until they are complete.
_UNFINISHED = ".unfinished"
_LONGEST_NAME = 200  # bytes of a name that are kept in the temporary one

# The function that exchanges two names, what it takes before each path (the current folder), and its flag.
_EXCHANGES = {"linux": ("renameat2", (-100,), 2), "darwin": ("renamex_np", (), 2)}

_TRIES = 10  # attempts to find the writer of a pipe, in one second


def open_binary(path: Path) -> BinaryIO:
    """Open ``path`` for reading bytes; also a pipe, if it has a writer, and a device with something to read.

    Raises:
        Unreadable: There is no such file, it is a directory, or it may not be read; a pipe without a writer.
    """
    try:
        if path.is_char_device() and os.name == "posix":
            return _open_device(path)
        return _open_pipe(path) if path.is_fifo() else path.open("rb")
    except FileNotFoundError:
        raise missing(path) from None
    except (IsADirectoryError, PermissionError) as error:
        if path.is_dir():  # Windows reports a directory as a permission error.
            raise Unreadable(
                f"{path} is a directory, but a file is expected.", "Name a file inside it, or the model folder itself."
            ) from None
        raise Unreadable(
            f"{path} cannot be read: {error.strerror}.", "Get read permission, or copy the file."
        ) from None
    except OSError as error:
        raise unreadable(path, error) from None


def damaged(said: str) -> Unreadable:
    """The error for a file that has changed since it was written, or arrived so."""
    return Unreadable(said, "Download or write the file again.")


def miswritten(said: str) -> Unreadable:
    """The error for a file that the program that wrote it may have written wrongly."""
    return Unreadable(said, WRITE_AGAIN)


def truncated(said: str) -> Unreadable:
    """The error for a file whose end is missing."""
    return Unreadable(said, "The file is truncated: download it again.")


def unreadable(where: Path | str, error: OSError | ValueError) -> Unreadable:
    """The error for a file or a stream that fails while it is opened or read."""
    said = getattr(error, "strerror", None) or str(error).rstrip(".")
    return Unreadable(f"{where} cannot be read: {said}.", "Check the path and the disk.")


def _open_device(path: Path) -> BinaryIO:
    """Open a device; wait a second for something to read, since a terminal of nobody never gives anything."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    if not select.select([number], [], [], 1.0)[0]:
        os.close(number)
        raise Unreadable(f"{path} is a device that gives nothing to read.", "Name a file, or - for standard input.")
    os.set_blocking(number, True)
    return os.fdopen(number, "rb")


def _open_pipe(path: Path) -> BinaryIO:
    """Open a pipe; wait for a writer only as long as a program needs to start."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for _ in range(_TRIES):
            try:
                first = os.read(number, 1)
            except BlockingIOError:  # a writer has it open, and has written nothing yet
                first = None
            if first != b"":
                os.set_blocking(number, True)
                return io.BufferedReader(_Begun(first or b"", io.FileIO(number)))
            time.sleep(1 / _TRIES)
    except BaseException:
        os.close(number)
        raise
    os.close(number)
    raise Unreadable(f"{path} is a pipe without a writer.", "Start the program that writes to it, or name a file.")


class _Begun(io.RawIOBase):
    """A stream whose first byte has been read already."""

    def __init__(self, first: bytes, rest: io.FileIO) -> None:
        self.first = first
        self.rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if not self.first:
            return self.rest.readinto(buffer)
        buffer[:1], self.first = self.first, b""
        return 1

    def close(self) -> None:
        self.rest.close()
        super().close()


def open_regular(path: Path) -> BinaryIO:
    """Open ``path`` for random access; a pipe or a device is refused.

    Raises:
        Unreadable: ``open_binary`` refuses it, or it is not a regular file.
    """
    # Checked before it is opened: opening a pipe waits for a writer.
    if place(path) == "file" and path.exists() and not path.is_file():
        raise Unreadable(
            f"{path} is not a regular file, but this kind of file cannot be read as a stream.",
            "Save it as a file first; only JSON can come through a pipe.",
        )
    return open_binary(path)


def state(file: IO[bytes]) -> tuple[int, int, int, int]:
    """Which file is open and in which version: device, inode, bytes and time of the last change, in nanoseconds."""
    now = os.fstat(file.fileno())
    return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns


def fresh_beside(path: Path) -> Path:
    """A new empty file in the folder of a path, under a name that nobody can have known: no planted link is followed.

    Raises:
        OSError: It cannot be made.
    """
    fresh = unknown_beside(path)
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return fresh


def unknown_beside(path: Path) -> Path:
    """A path in the folder of another, under a name that nobody can have known; nothing is made there."""
    return path.with_name(f"{_before_token(path)}{os.urandom(8).hex()}{_UNFINISHED}")


def left_beside(path: Path) -> Iterator[Path]:
    """What ``unknown_beside`` named for this path and a killed process left, or one that still runs."""
    yield from path.parent.glob(f"{glob.escape(_before_token(path))}{'[0-9a-f]' * 16}{_UNFINISHED}")


def _before_token(path: Path) -> str:
    # A name has at most 255 bytes, and a character up to four.
    return f".{path.name if len(os.fsencode(path.name)) <= _LONGEST_NAME else path.name[: _LONGEST_NAME // 4]}."


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk.

    Raises:
        OSError: They cannot be synced.
    """
    if os.name != "posix":  # Windows opens no folder, and syncs only what is open for writing
        return
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def rename(unfinished: Path, path: Path, *, replace: bool) -> None:
    """Give a finished file its final name, after its content is on the disk.

    Args:
        unfinished: The file under its temporary name, which is removed.
        path: Its final name.
        replace: Whether a file that is there is replaced.

    Raises:
        FileExistsError: The name exists, and is not to be replaced.
        OSError: The file cannot be synced or renamed.
    """
    sync(unfinished)  # a rename may reach the disk before the content does
    if not replace:
        try:
            os.link(unfinished, path)  # the one way to name a file that replaces nothing
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        else:
            unfinished.unlink()
            return
    unfinished.replace(path)


def swap(new: Path, old: Path, aside: Path) -> None:
    """Let two folders of one file system change names, in one step where the system can.

    Where it cannot, ``old`` is named ``aside`` for a moment, and gets its name back if the second step fails. A process
    that is killed in that moment leaves ``aside``, and nothing under the name of ``old``.

    Raises:
        OSError: They cannot be renamed; both have their names.
    """
    if _exchanged(new, old):
        return
    old.rename(aside)
    try:
        new.rename(old)
    except BaseException:
        aside.rename(old)
        raise
    aside.rename(new)


def _exchanged(one: Path, other: Path) -> bool:
    """Whether the system has exchanged the names of two paths in one step.

    Source: renameat2(2) of Linux, renamex_np(2) of macOS.
    """
    name, before, flag = _EXCHANGES.get(sys.platform, ("", (), 0))
    # Imported when folders are exchanged: no other command needs it.
    import ctypes

    try:
        call = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # another system, or a C library without it
        return False
    here = [ctypes.c_int(number) for number in before]
    paths = [[*here, ctypes.c_char_p(os.fsencode(path))] for path in (one, other)]
    return call(*paths[0], *paths[1], ctypes.c_uint(flag)) == 0


def place(path: Path) -> str | None:
    """The kind of ``path``: "folder", "file" (anything else that exists), or None if it does not exist.

    A path that may not be accessed counts as a file: opening it will give the reason.
    """
    try:
        return "folder" if stat.S_ISDIR(path.stat().st_mode) else "file"
    except PermissionError:
        return "file"
    except (OSError, ValueError):  # a name that is too long, a loop of links
        return None


def link_target(path: Path) -> Path | None:
    """The target of a symbolic link; None if ``path`` is not a link."""
    try:
        return path.readlink()
    except (OSError, ValueError):
        return None


class ReadAround:
    """The bytes of an open file by offset, read in small pieces around the requested place.

    A memory map would need less code, but truncating the file would end the process (SIGBUS).

    Attributes:
        path: The file.
    """

    _AT_ONCE = 2**13  # bytes; a header is read front to back, with tensor data in between

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path: Path = path
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        self._held, self._start = b"", 0

    def __len__(self) -> int:
        return self._size

    def around(self, at: int, count: int) -> tuple[bytes, int]:
        """A buffer that holds the ``count`` bytes from ``at`` on, and where in it they begin.

        Raises:
            Unreadable: The file has become shorter since it was opened, or cannot be read.
        """
        if at < self._start or at + count > self._start + len(self._held):
            self._held = self._read(at, max(count, min(self._AT_ONCE, self._size - at)))
            self._start = at
        return self._held, at - self._start

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self._size)
        if stop - start > self._AT_ONCE:
            return self._read(start, stop - start)
        held, at = self.around(start, max(0, stop - start))
        return held[at : at + stop - start]

    def _read(self, at: int, count: int) -> bytes:
        try:
            self._file.seek(at)
            data = self._file.read(count)
        except OSError as error:
            raise unreadable(self.path, error) from None
        if len(data) < count:
            raise Unreadable(
                f"{self.path} ends after {at + len(data):,} bytes, but had {self._size:,} when it was opened.",
                "Read it again when no other program writes to it.",
            )
        return data


def missing(path: Path) -> Unreadable:
    """The error for a path that does not exist."""
    target = link_target(path)
    if target:
        return Unreadable(
            f"{path} is a link to {target}, which does not exist.", "Download or copy the file it points to."
        )
    near = _neighbour(path)
    meant = f"Did you mean {path.with_name(near)}? " if near else ""
    return Unreadable(f"{path} does not exist.", f"{meant}Check the spelling; the current folder is {Path.cwd()}.")


def _neighbour(path: Path) -> str | None:
    """The name in the folder of a path that is spelt most like it, if one is similar."""
    try:
        names = sorted(entry.name for entry in islice(os.scandir(path.parent), _MOST_NEIGHBOURS))
    except OSError:
        return None
    return nearest(path.name, names, 0.8)


def file_and_key(place: str) -> tuple[str, str]:
    """The file of a source `file:key`, and the key in it; only a name that ends as one of `KINDS` may hold a colon.

    >>> file_and_key("config.json:rope_theta"), file_and_key("a:b.json:rope_theta"), file_and_key("<stdin>:rope_theta")
    (('config.json', 'rope_theta'), ('a:b.json', 'rope_theta'), ('<stdin>', 'rope_theta'))
    """
    found = _PLACE.fullmatch(place)
    if found is not None:
        return found[1], found[2]
    file, _, key = place.partition(":")
    return file, key


def head(path: Path) -> bytes:
    """The first bytes of a file, enough for ``signature``."""
    with open_binary(path) as file:
        try:
            return file.read(_HEAD)
        except OSError as error:
            raise unreadable(path, error) from None


def signature(start: bytes) -> tuple[str, str] | None:
    """The kind of file that begins with ``start`` and its name in messages, if known."""
    for mark, name, words in SIGNATURES:
        if start.startswith(mark):
            return name, words
    if start.lstrip().startswith(b"{"):
        return "json", "JSON text"
    if start[8:9] == b"{":  # safetensors: eight bytes of length, then a JSON object.
        return "safetensors", "a safetensors file"
    return None


def seems(start: bytes) -> str:
    """What ``start`` looks like, as text, for a message about a file that is not what its name says."""
    if not start:
        return "it is empty"
    found = signature(start)
    return f"it starts like {found[1]}" if found else f"its first bytes are {start[:8]!r}"


def is_not(path: Path, what: str, start: bytes) -> Unreadable:
    """The error for a file that begins with ``start``, and so is not the expected kind, such as "a GGUF file"."""
    hint = "Give the file the ending of its real type, or download it again."
    if start.startswith(b"version https://git-lfs"):
        hint = _PULL
    return Unreadable(f"{path} is not {what}: {seems(start)}.", hint)


def not_pulled(path: Path, what: str) -> Unreadable:
    """The error for what Git left instead of a large file; ``what`` is meant to be there, such as "the model"."""
    return Unreadable(f"{path} is a Git LFS pointer, not {what}.", _PULL)


def too_many(path: Path, most: int, what: str) -> Unreadable:
    """The error for a file with more ``what``, such as "tensors", than any model has."""
    return Unreadable(
        f"{path} holds more than {most:,} {what}.", "No model has that many; check that this is the file you mean."
    )


def leaves_folder(name: str) -> bool:
    """Whether a path that a file declares may lead out of the file's folder, on this system or on another one.

    It is read as a path of Windows, which has the separators and the ``..`` of all systems, so that a file is refused
    on all of them or on none.
    """
    windows = PureWindowsPath(name)
    return not name or "\\" in name or "\0" in name or ".." in windows.parts or bool(windows.anchor)


def kind(path: Path) -> str | None:
    """What the file at ``path`` is: by the end of its name, else by its first bytes; None if neither tells."""
    name = path.name.lower()
    for ending, word in KINDS.items():
        if name.endswith(ending):
            return word
    if path.exists() and not path.is_file():
        return "json"  # a pipe: reading from it here would lose the bytes
    found = signature(head(path))
    return found[0] if found else None


def is_pointer(path: Path) -> bool:
    """Whether Git left a pointer instead of a large file (a clone without Git LFS)."""
    found = signature(head(path)) if path.is_file() else None
    return found is not None and found[0] == "pointer"
