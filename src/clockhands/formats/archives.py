"""Opens zip archives as NumPy and PyTorch write them, with limits against hostile files.

The standard library reads an archive's whole directory, at about 600 bytes of memory for an entry, and unpacks any
member. Here a directory has at most 8 MiB, a member is stored or deflated, and a member with a compression ratio that
no table of numbers reaches is refused without unpacking.

Source: APPNOTE.TXT of the .ZIP format, sections 4.3 and 4.4 (local headers, methods of compression).
"""

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from clockhands.encodings import memory
from clockhands.errors import Unreadable
from clockhands.formats.files import miswritten, open_regular, seems
from clockhands.phrases import shown

if TYPE_CHECKING:
    import zipfile

# A checkpoint of 90,000 tensors has a directory of about 7 MB.
LARGEST_DIRECTORY = 8 * 2**20

# Noise cannot be compressed, and half the bytes of trained numbers are noise; only nearly constant data shrink a
# hundredfold. Small members are unpacked anyway: a table of zeros is a fault worth reporting.
_MOST_RATIO = 100
_SMALL = 192 * 2**20

_LOCAL = struct.Struct("<4s5H3I2H")


class _BoundedFile:
    """A file that refuses to read more bytes at once than a directory may have."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def __getattr__(self, name: str) -> Any:  # seek, tell, seekable, close
        return getattr(self.file, name)

    def read(self, count: int = -1) -> bytes:
        if count < 0:  # the end of the file, where the directory is described
            at = self.file.tell()
            count = self.file.seek(0, io.SEEK_END) - at
            self.file.seek(at)
        if count > LARGEST_DIRECTORY:
            raise ValueError(f"its directory is said to have {count:,} bytes, of at most {LARGEST_DIRECTORY:,}")
        return self.file.read(count)


@contextmanager
def open_archive(path: Path, kind: str) -> Iterator["zipfile.ZipFile"]:
    """The archive at ``path``; ``kind`` is what messages call it, such as "an .npz archive".

    Raises:
        Unreadable: It is not a zip archive, or its directory is damaged or has more than 8 MiB.
    """
    # Imported here: most targets are not archives.
    import zipfile

    with open_regular(path) as file:
        try:
            archive = zipfile.ZipFile(_BoundedFile(file))  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - zipfile has a dozen exceptions for a damaged directory
            file.seek(0)
            start = file.read(32)
            if start.startswith(b"PK"):
                raise damaged(path, error) from None
            hint = "Give the file the ending of its real type, or save it again."
            raise Unreadable(f"{path} is not {kind}: {seems(start)}.", hint) from None
        with archive:
            yield archive


@contextmanager
def open_member(archive: "zipfile.ZipFile", path: Path, name: str) -> Iterator[IO[bytes]]:
    """One member of an archive, unpacked as it is read.

    Raises:
        Unreadable: It is damaged, encrypted, compressed in a way that neither library uses, or a zip bomb.
    """
    info = archive.getinfo(name)
    if info.compress_type not in (0, 8):
        raise Unreadable(
            f"{path} keeps {shown(name)} compressed by method {info.compress_type}, but only the methods "
            "0 (stored) and 8 (deflated) are read.",
            "Write the file again with np.savez, np.savez_compressed or torch.save.",
        )
    if info.file_size > max(_SMALL, _MOST_RATIO * info.compress_size):
        raise Unreadable(
            f"{shown(name)} in {path} would grow from {memory.readable(info.compress_size)} to "
            f"{memory.readable(info.file_size)} when unpacked, far more than a table of numbers can.",
            "Do not trust this file; if you made it, save the array with np.save.",
        )
    try:
        stream = archive.open(name)
    except Exception as error:  # noqa: BLE001 - zipfile has a dozen exceptions for a damaged member
        raise damaged(path, error) from None
    # Imported here: most targets are not archives.
    import zipfile
    import zlib

    with stream:
        try:
            yield stream
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:  # noticed only when the damaged bytes are read
            raise damaged(path, error) from None


def place_of(archive: "zipfile.ZipFile", path: Path, name: str) -> int:
    """Where the bytes of a stored member begin in the file.

    Raises:
        Unreadable: The member is compressed or encrypted, or its own header is not where the directory says.
    """
    info = archive.getinfo(name)
    if info.compress_type or info.flag_bits & 1 or info.compress_size != info.file_size:
        raise Unreadable(
            f"{path} keeps {shown(name)} compressed or encrypted, which torch.save never does.",
            "Write the file again with torch.save.",
        )
    file: Any = archive.fp
    try:
        file.seek(info.header_offset)
        header = file.read(_LOCAL.size)
        at = info.header_offset + _LOCAL.size
        signature, *_, name_size, more_size = _LOCAL.unpack(header)
    except (OSError, ValueError, struct.error) as error:
        raise damaged(path, error) from None
    start = at + name_size + more_size
    if signature != b"PK\x03\x04" or start + info.file_size > file.seek(0, io.SEEK_END):
        raise miswritten(f"{path} ends inside {shown(name)}, or its directory gives a wrong offset for it.")
    return start


def damaged(path: Path, error: Exception) -> Unreadable:
    """The error for an archive that the standard library cannot read."""
    said = str(error) or type(error).__name__
    return miswritten(f"{path} cannot be read as a zip archive: {said.rstrip('.')}.")
