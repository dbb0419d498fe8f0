"""The nearest number of a format, by the bytes that `struct` makes of it."""

import struct


def single(number):
    """The nearest float32."""
    return struct.unpack("<f", struct.pack("<f", number))[0]


def half(number):
    """The nearest float16."""
    return struct.unpack("<e", struct.pack("<e", number))[0]


def brain(number):
    """The nearest bfloat16: a double cut to 8 significant bits, ties to even, by hand on its bits."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    return struct.unpack("<d", struct.pack("<Q", (bits + (1 << 44) - 1 + ((bits >> 45) & 1)) >> 45 << 45))[0]
