"""Walks the wire format of protocol buffers: the fields of a message and their places in a file.

A message is a sequence of fields, each with a key (number and kind) and a value. A value with a length is not read: its
place is enough to walk into it, if it is a message, or to read its numbers later.

Source: https://protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clockhands.errors import Unreadable
from clockhands.formats.files import ReadAround, miswritten, truncated

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

_LONGEST_VARINT = 10  # bytes of 7 bits each, for 64 bits
# A field needs two bytes and a microsecond: a small file could keep a parser busy for minutes. Models have ten to
# twenty fields for each node, and thousands of nodes.
MOST_FIELDS = 2**21
_MESSAGE = 4

_AT_ONCE = 2**20  # bytes of varints that `varints` holds at once


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the file."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


Field = tuple[int, int, int | Span]
"""Number, kind, and the value: an integer for a varint, else where its bytes lie."""


@dataclass
class MessageFile:
    """A file of one message.

    Attributes:
        path: The file.
        data: Its bytes.
        what: What the file claims to be, for messages: "an ONNX model".
        left: Fields that may still be walked through; a message costs as much as four.
    """

    path: Path
    data: ReadAround
    what: str
    left: int = MOST_FIELDS

    @property
    def whole(self) -> Span:
        """All of the file."""
        return Span(0, len(self.data))

    def fields(self, span: Span) -> Iterator[Field]:
        """The fields of the message in ``span``, in the order of the file.

        Raises:
            Unreadable: A field reaches beyond the message, has an unknown kind, or there are too many.
        """
        data, at, stop = self.data, span.start, span.stop
        held, start, end = b"", 0, 0
        self.left -= _MESSAGE
        while at < stop:
            self.left -= 1
            if self.left < 0:
                raise Unreadable(
                    f"{self.path} has more than {MOST_FIELDS:,} fields, but a model has only thousands.",
                    "Check that this is the file you mean.",
                )
            if not start <= at < end:
                held, offset = data.around(at, 1)
                start = at - offset
                end = start + len(held)
            key = held[at - start]
            at += 1
            if key >= 128:
                key, at = self._varint(at - 1, stop)
            number, kind = key >> 3, key & 7
            short = held[at - start] if at < min(end, stop) else 128
            length = 0
            if kind in (VARINT, LENGTH):
                length, at = (short, at + 1) if short < 128 else self._varint(at, stop)
            if kind == VARINT:
                yield number, kind, length
                continue
            if kind in (FIXED32, FIXED64):
                length = 4 if kind == FIXED32 else 8
            elif kind != LENGTH:
                raise self.wrong(f"byte {at - 1:,} begins a field of kind {kind}, which no such file has")
            if not number:
                raise self.wrong(f"byte {at - 1:,} begins a field without a number")
            if length > stop - at:
                raise self._beyond(at, length, stop)
            yield number, kind, Span(at, at + length)
            at += length

    def text(self, span: Span) -> str:
        """The text at a place; bytes that are not UTF-8 are made visible."""
        return self.data[span.start : span.stop].decode("utf-8", errors="backslashreplace")

    def integers(self, kind: int, value: int | Span, most: int) -> list[int]:
        """The signed 64-bit integers of one field, packed or not; at most ``most + 1`` are read."""
        if isinstance(value, int):
            return [_signed(value)]
        if kind != LENGTH:
            raise self.wrong(f"byte {value.start:,} holds {len(value)} bytes where an integer is expected")
        numbers, at = [], value.start
        while at < value.stop and len(numbers) <= most:
            number, at = self._varint(at, value.stop)
            numbers.append(_signed(number))
        return numbers

    def varints(self, span: Span) -> np.ndarray:
        """The integers that are packed in ``span``, as uint64."""
        made, left = [], b""
        for start in range(span.start, span.stop, _AT_ONCE):
            block = left + self.data[start : min(start + _AT_ONCE, span.stop)]
            numbers, used = _decoded(np.frombuffer(block, np.uint8))
            made.append(numbers)
            left = block[used:]
            if len(left) >= _LONGEST_VARINT:
                break
        if left:
            raise self.wrong(f"the numbers that end at byte {span.stop:,} are damaged")
        return np.concatenate(made) if made else np.empty(0, np.uint64)

    def wrong(self, fault: str) -> Unreadable:
        """The error for bytes that are not such a message."""
        return miswritten(f"{self.path} is not {self.what}, or damaged: {fault}.")

    def _varint(self, at: int, stop: int) -> tuple[int, int]:
        """The integer that begins at ``at``, and where it ends."""
        number, shift = 0, 0
        longest = max(0, min(_LONGEST_VARINT, stop - at))
        held, offset = self.data.around(at, longest)
        for place in range(longest):
            byte = held[offset + place]
            number |= (byte & 127) << shift
            if byte < 128:
                return number & (2**64 - 1), at + place + 1
            shift += 7
        if stop - at >= _LONGEST_VARINT:
            raise self.wrong(f"the number at byte {at:,} does not end")
        raise self._beyond(at, 1 + stop - at, stop)

    def _beyond(self, at: int, length: int, stop: int) -> Unreadable:
        size = len(self.data)
        if at + length > size:
            return truncated(
                f"{self.path} ends after {size:,} bytes, inside a field of {length:,} that begins at byte {at:,}."
            )
        return self.wrong(f"the {length:,} bytes from byte {at:,} on reach beyond the message that ends at {stop:,}")


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _decoded(data: np.ndarray) -> tuple[np.ndarray, int]:
    """The varints at the start of some bytes, and how many bytes they take; one that is not complete is left."""
    ends = np.flatnonzero(data < 128)
    if not ends.size:
        return np.empty(0, np.uint64), 0
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    too_long = np.flatnonzero(lengths > _LONGEST_VARINT)
    count = int(too_long[0]) if too_long.size else ends.size
    numbers = np.zeros(count, np.uint64)
    for byte in range(int(lengths[:count].max(initial=0))):
        has = np.flatnonzero(lengths[:count] > byte)
        numbers[has] |= (data[starts[has] + byte] & np.uint8(127)).astype(np.uint64) << np.uint64(7 * byte)
    return numbers, int(ends[count - 1]) + 1 if count else 0
