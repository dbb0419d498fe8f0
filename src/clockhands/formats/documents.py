"""JSON documents: ``config.json``, a checkpoint's index, a config on standard input.

More is accepted than in RFC 8259 where real files need it: a byte order mark, and bare ``Infinity`` and ``NaN``
(Python's ``json`` writes them, and configs contain them). Everything else that is not JSON is refused in one sentence
that gives the place.
"""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from clockhands.errors import Unreadable
from clockhands.formats.files import open_binary, seems, unreadable
from clockhands.phrases import shown

# The config of a model, the first existing one: Hugging Face's, Meta's and Mistral's own, ONNX Runtime's, LitGPT's.
CONFIGS = ("config.json", "params.json", "genai_config.json", "model_config.yaml")

# The largest config seen has 34 kB, and one with the labels of ImageNet-21k has about 3 MB.
LARGEST = 8 * 2**20

# Real configs nest 5 levels. The limit keeps recursive functions far from Python's recursion limit.
DEEPEST = 100

# A config with the labels of ImageNet-21k, by number and by name, has 44,000 keys; the longest key seen has 60 letters.
LONGEST_KEY = 4096
KEYS, VALUES, TWICE, PATHS, TEXTS, TAGS = (
    "keys",
    "values, those that aliases repeat among them",
    "keys that are given more than once",
    "characters in the paths of its keys",
    "YAML documents",
    "directives %TAG",
)
MOST = {KEYS: 2**17, VALUES: 2**17, TWICE: 100, PATHS: 2**24, TEXTS: 100, TAGS: 100}
MOST_DIGITS = 300  # above this no float exists, and later computations use floats

_PIECE = 2**20  # bytes read at a time
_EXPECTED = {"JSON": "a JSON object", "YAML": "a YAML file"}


@dataclass
class Budget:
    """What one config may cost its reader; headers and indexes, which name each tensor in a key, have other limits.

    It is spent where the work is done, so that a small file cannot cause much of it.

    Attributes:
        where: The file, as messages call it.
        spent: What was spent so far.
    """

    where: str
    spent: dict[str, int] = field(default_factory=dict)

    def spend(self, what: str, amount: int = 1) -> None:
        """Count something of which `MOST` says the limit.

        Raises:
            Unreadable: There is more of it than in any config.
        """
        self.spent[what] = spent = self.spent.get(what, 0) + amount
        if spent > MOST[what]:
            raise self.refusal(f"more than {MOST[what]:,} {what}")

    def key(self, key: str) -> None:
        """Look at one key.

        Raises:
            Unreadable: It is longer than any key of a config.
        """
        if len(key) > LONGEST_KEY:
            raise self.refusal(f"a key of more than {LONGEST_KEY:,} characters")

    def whole(self, digits: str) -> int:
        """A whole number that fits a float.

        Raises:
            Unreadable: It does not.
        """
        if len(digits) > MOST_DIGITS:
            raise self.refusal(f"a whole number of {len(digits.lstrip('-')):,} digits")
        return int(digits)

    def refusal(self, what: str) -> Unreadable:
        """The error for what no config has."""
        return Unreadable(f"{self.where} holds {what}, which no config has.", "Check that this is the file you mean.")


@dataclass(frozen=True)
class Document:
    """A JSON object or a YAML mapping, with irregularities of its text.

    Attributes:
        where: The file, as messages call it.
        fields: The object. For a duplicate key the last value counts, as in all common parsers.
        duplicates: Keys that an object gives more than once, at any depth.
        exponents: The text of each number that PyYAML would read as a string, by path of its key.
    """

    where: str
    fields: dict[str, Any]
    duplicates: tuple[str, ...] = ()
    exponents: Mapping[str, str] = field(default_factory=dict)


def read(path: Path, largest: int = LARGEST, *, found: bool = False) -> Document:
    """Read the JSON object in a file; if it was ``found`` rather than named by the user, it must be a regular file.

    Raises:
        Unreadable: The file cannot be opened, has more than ``largest`` bytes, or is not a JSON object.
    """
    return parse(bytes_of(path, largest, found=found), str(path), many=largest > LARGEST)


def bytes_of(path: Path, largest: int, *, found: bool = False) -> bytes:
    """The bytes of a file, at most ``largest``; a ``found`` file must be a regular one.

    Raises:
        Unreadable: The file cannot be opened, or has more bytes.
    """
    if found and path.is_dir():
        raise Unreadable(
            f"{path} is a folder, but in a model folder a file is expected.",
            "If the model is in it, name it; else move it out of the way.",
        )
    if found and path.exists() and not path.is_file():
        raise Unreadable(
            f"{path} is a pipe or a device, but in a model folder a file is expected.",
            "If you mean this pipe, give its own name instead of the folder.",
        )
    with open_binary(path) as file:
        return bytes_in(file, str(path), largest)


def bytes_in(stream: IO[bytes] | IO[str] | None, where: str, largest: int) -> bytes:
    """The bytes of an open stream of bytes or text, at most ``largest``.

    Raises:
        Unreadable: The stream is closed or fails, or holds more bytes.
    """
    if stream is None:
        raise Unreadable(f"{where} is closed.", "Pipe a config.json into the command.")
    source = getattr(stream, "buffer", stream)  # the byte stream below a text stream, whose encoding may be anything
    raw = bytearray()
    try:
        # In pieces: for a single read, Python allocates the whole limit first.
        while len(raw) <= largest and (data := source.read(_PIECE)):
            raw += data.encode(errors="surrogatepass") if isinstance(data, str) else data
    except (OSError, ValueError) as error:
        raise unreadable(where, error) from None
    if len(raw) > largest:
        raise too_large(where, largest)
    return bytes(raw)


def too_large(where: str, largest: int) -> Unreadable:
    """The error for a document that is larger than any config."""
    return Unreadable(
        f"{where} has more than {largest:,} bytes, which no config has.", "Check that this is the file you mean."
    )


def parse(data: bytes, where: str, strict: bool = False, many: bool = False) -> Document:
    """Parse the bytes of a JSON object; ``where`` is their name in messages.

    ``strict`` refuses the extensions of JSON: a byte order mark, NaN, infinities. ``many`` allows any number of keys of
    any length: headers and indexes have one for each tensor.

    Raises:
        Unreadable: They are empty, not UTF-8, not JSON, nested deeper than 100 levels, not an object, or hold more or
            longer keys than any config.
    """
    text = decoded(data, where, "JSON", "utf-8" if strict else "utf-8-sig")
    duplicates: dict[str, None] = {}
    budget = None if many else Budget(where)

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(members)
        if len(made) < len(members):
            seen: set[str] = set()
            for key, _ in members:
                if key in seen and key not in duplicates and len(duplicates) < MOST[TWICE] + 1:
                    duplicates[key] = None
                    if budget is not None:
                        budget.spend(TWICE)
                seen.add(key)
        if budget is not None:
            budget.spend(KEYS, len(members))
            for key in made:
                budget.key(key)
        return made

    def refuse_constant(name: str) -> None:
        raise Unreadable(f"{where} holds {name}, which is not JSON.", _json_hint(data))

    constants = refuse_constant if strict else None
    try:
        whole = None if budget is None else budget.whole
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=constants, parse_int=whole)
    except json.JSONDecodeError as error:
        raise Unreadable(
            f"{where} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.", _json_hint(data)
        ) from None
    except RecursionError:
        raise too_deep(where) from None
    except Unreadable:
        raise
    except ValueError as error:  # an integer with more digits than Python converts
        raise Unreadable(
            f"{where} holds a number that cannot be read: {error}.", "Write the number with an exponent, such as 1e6."
        ) from None
    if not isinstance(value, dict):
        raise Unreadable(
            f"{where} holds {_called(value)} at the top level, but a config must be a JSON object.",
            "A model's config.json begins with `{`.",
        )
    _check_depth(value, where)
    if re.search(r"\\u[dD][89abAB]", text):
        _check_surrogates(value, where)
    return Document(where, value, tuple(duplicates))


def decoded(data: bytes, where: str, what: str, encoding: str = "utf-8-sig") -> str:
    """The text of a document that should be ``what`` (JSON, YAML); ``where`` is its name in messages.

    Raises:
        Unreadable: It is empty, or not UTF-8.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable(f"{where} is UTF-16 text, but {what} must be UTF-8.", "Save it again as UTF-8.")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise Unreadable(
            f"{where} is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}, and {seems(data)}.",
            f"Name a {what} file, or save this file as UTF-8.",
        ) from None
    if not text.strip():
        raise Unreadable(
            f"{where} is empty, but {_EXPECTED.get(what, f'a {what}')} is expected.",
            "Check that the file was written or piped completely.",
        )
    return text


def _json_hint(data: bytes) -> str:
    if data.startswith(b"version https://git-lfs"):
        return "This is a Git LFS pointer: run `git lfs pull` in the model folder."
    if data.lstrip()[:5].lower() in (b"<!doc", b"<html"):
        return "This is a web page: download the raw file instead."
    return "Correct the file there; comments and trailing commas are not JSON."


def _called(value: object) -> str:
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return "a string" if isinstance(value, str) else shown(value)


def too_deep(where: str) -> Unreadable:
    """The error for a document with deeper nesting than any config."""
    return Unreadable(
        f"{where} nests objects or lists deeper than {DEEPEST} levels.",
        "No config does; check that this is the file you mean.",
    )


def _check_depth(value: object, where: str) -> None:
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        inner = [child for parent in level for child in (parent.values() if isinstance(parent, dict) else parent)]
        level = [child for child in inner if isinstance(child, dict | list)]
        if not level:
            return
    raise too_deep(where)


def _check_surrogates(value: object, where: str) -> None:
    # Half of a surrogate pair is not text: it could not be printed or written as UTF-8 later.
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Unreadable(
            f"{where} holds an unpaired surrogate escape (\\ud800 to \\udfff), which is not text.",
            "Write the character itself, or both halves of the pair.",
        ) from None


def standard_input() -> IO[bytes] | IO[str] | None:
    """Standard input; None where a program has none."""
    return sys.stdin
