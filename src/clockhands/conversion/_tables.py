"""`convert_table`, which rewrites a position table in another convention with the same frequencies."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.arguments import count
from clockhands.encodings.additive import AdditiveCode, FourierFeatures, WarpedPosition
from clockhands.encodings.additive import table as table_of
from clockhands.encodings.positions import numpy_of
from clockhands.encodings.presets import preset
from clockhands.encodings.specs import describe
from clockhands.encodings.traces import device_of, is_traced, library
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown
from clockhands.recognition.channel_waves import ChannelWaves, sinusoid_channels

SAME_RATE = 1e-6
"""Rates that differ by at most a relative 1e-6 count as equal: bases are published with six digits."""

# How near to a code's own row another row is taken for it, in numbers of size 1.
_ROW = 2.0**-16

_ULPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_WAVES = {"sin": "sine", "cos": "cosine"}


@dataclass(frozen=True)
class _Channel:
    """The content of a channel: ``sign * wave(position[axis] * rate)``, a coordinate, or zero.

    Attributes:
        kind: ``sin``, ``cos``, ``raw`` or ``zero``.
        axis: Which coordinate of a position.
        rate: Radians per token.
        sign: 1 or -1.
    """

    kind: str
    axis: int = 0
    rate: float = 0.0
    sign: int = 1


@dataclass(frozen=True)
class _Written:
    """A convention described by its channels: each number is the channel's content, minus ``mean``, times ``factor``.

    Attributes:
        said: A description of the spec, with the name that the caller gave.
        spec: The spec.
        channels: The content of each channel.
        axes: Number of coordinates of a position.
        mean: Subtracted from every number.
        factor: Multiplied with the difference.
    """

    said: str
    spec: Any
    channels: tuple[_Channel, ...]
    axes: int = 1
    mean: float = 0.0
    factor: float = 1.0


def convert_table(x: Any, from_: Any, to: Any, *, axes: Sequence[int] | None = None) -> Any:
    """A position table converted to another convention of the same ladder: the same positions, in the format of ``to``.

    Two conventions share a ladder if they have the same rates, within a relative 1e-6, however these are declared or
    ordered: base 10,000 open equals base 9,646.62 closed at width 512 (a published base has six digits, so the phases
    of such a pair differ by up to 2e-8 rad per token). Then both tables contain the same numbers, and these differences
    are converted:

    * ``layout``, ``order``, ``channels`` and rates in the opposite order: channels are permuted, bit for bit;
    * waves with a minus: signs, bit for bit;
    * ``scale`` and ``standardised``: one product and sum in float32 (float64 for float64), rounded once;
    * columns of zeros: added, or left out if they are zero;
    * ``zero_rows``: a row that is zero only in ``to`` is set to zero; a row that is zero only in ``from_`` is computed,
      because its position is known from ``from_``.

    Not converted: different rates (another base, span or scaling), a missing channel (of the last pair of an odd
    width), trained numbers, and positions: ``first`` and the order of rows stay as they are.

    Args:
        x: A table [..., rows, width] of ``from_``: an array of NumPy, PyTorch, JAX or any array-API library.
        from_: The present convention: a spec, or the name of a preset, which then gets the width of ``x``.
        to: The new convention: a spec, or the name of a preset, which then gets the width of ``from_``.
        axes: For codes of several axes, the axis of ``from_`` for each axis of ``to``: ``(1, 0)`` from a code of
            x and y to one of y and x. None means the same order.

    Returns:
        An array [..., rows, to.width] of ``x``'s library and dtype, in the machine's byte order; ``x`` is not changed.

    Raises:
        InvalidValue: The ladders differ, or ``to`` would lose or invent a channel or a row; the message says which.
        InvalidType: An argument has a type that cannot be converted.

    >>> import clockhands as ch
    >>> table = ch.table(ch.preset("vaswani2017", width=8), 5)
    >>> paper, halves = ch.preset("vaswani2017", width=8), ch.preset("transformer-xl", width=8)
    >>> bool((ch.convert_table(table, paper, halves) == ch.table(halves, 5)).all())
    True
    """
    if isinstance(x, np.ndarray) and not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    shape = _shape_of(x)
    source = _written(_spec("from_", from_, shape[-1]), from_, "from_")
    target = _written(_spec("to", to, source.spec.width), to, "to")
    if shape[-1] != source.spec.width:
        raise InvalidValue(
            f"`x` must be of shape [..., rows, {source.spec.width}], got {list(shape)}.",
            "The last axis is the width of `from_`.",
        )
    if getattr(source.spec, "scaled", False) != getattr(target.spec, "scaled", False):
        raise InvalidValue(
            "Only one of `from_` and `to` has a trained scale, and the specs do not contain its value.",
            "Divide or multiply x by the scale yourself, and convert between specs with the same `scaled`.",
        )
    order = _axis_order(axes, source, target)
    places, signs = _matched(source, target, order)
    _check_zeros(x, source)
    xp = library(x)
    made = _moved(x, places, xp)
    made = _rescaled(made, source, target, signs, xp)
    return _rows(x, made, source, target, xp)


def _shape_of(x: Any) -> tuple[int, ...]:
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        raise InvalidType(f"`x` must be an array, got {type(x).__name__}.", "Give a NumPy, PyTorch or JAX array.")
    shape, kind = tuple(x.shape), str(x.dtype).rpartition(".")[2]
    if len(shape) < 2:
        raise InvalidValue(f"`x` must be of shape [..., rows, width], got {list(shape)}.", "Give a whole table.")
    if kind not in ("float64", "float32", "float16", "bfloat16"):
        raise InvalidType(f"`x` must be of a float dtype, got {kind}.", "Pass the rows of the table.")
    return shape


def _spec(name: str, given: Any, width: int) -> Any:
    if isinstance(given, str):
        found = preset(given)
        return preset(given, width=width) if isinstance(found, AdditiveCode) else found
    if not isinstance(given, AdditiveCode) and not hasattr(given, "head_width"):
        raise InvalidType(
            f"`{name}` must be a spec or a preset's name, got {shown(given)}.",
            'Write clockhands.preset("vaswani2017", width=512), or a spec such as Sinusoidal(width=512).',
        )
    return given


def _written(spec: Any, given: Any, name: str) -> _Written:
    """The channels of a spec, one by one."""
    said = f"{given} ({describe(spec)})" if isinstance(given, str) else describe(spec)
    waves = None if isinstance(spec, FourierFeatures | WarpedPosition) else sinusoid_channels(spec)
    if waves is None:
        raise InvalidType(
            f"`{name}` is {said}, whose values are not sines and cosines of fixed frequencies.",
            "Give Sinusoidal or AxialSinusoidal; to resize learned rows, use clockhands.additive.resize.",
        )
    mean, factor = getattr(spec, "affine", (0.0, getattr(spec, "scale", 1.0)))
    channels = tuple(_channel(waves, number) for number in range(spec.width))
    return _Written(said, spec, channels, spec.number_of_axes, mean, factor)


def _channel(waves: ChannelWaves, number: int) -> _Channel:
    if waves.raw[number] >= 0:
        return _Channel("raw", int(waves.raw[number]))
    quarter, axis = int(waves.quarters[number]), int(waves.axes[number])
    if quarter < 0:
        return _Channel("zero")
    kind = "cos" if quarter % 2 else "sin"
    return _Channel(kind, axis, float(waves.rates[axis, number]), -1 if quarter >= 2 else 1)


def _axis_order(axes: Sequence[int] | None, source: _Written, target: _Written) -> tuple[int, ...]:
    """The axis of ``from_`` for each axis of ``to``."""
    if source.axes != target.axes:
        raise InvalidValue(
            f"The two encodings have {_axes(source.axes)} and {_axes(target.axes)}: {source.said}, and {target.said}.",
            "Give two encodings with the same number of axes: converting does not change the positions.",
        )
    if axes is None:
        return tuple(range(source.axes))
    try:
        order = tuple(count("axes", axis, least=0) for axis in axes)
    except TypeError as error:
        if isinstance(error, InvalidType):
            raise
        raise InvalidType(
            f"`axes` must be a list of axis numbers, one for each axis, got {shown(axes)}.",
            "Write (1, 0) if one encoding has the axes x, y and the other y, x.",
        ) from None
    if sorted(order) != list(range(source.axes)):
        raise InvalidValue(
            f"`axes` must name each of the {_axes(source.axes)} of `from_` once, got {shown(order)}.",
            "Write (1, 0) if one encoding has the axes x, y and the other y, x.",
        )
    return order


def _axes(number: int) -> str:
    return f"{number} ax{'i' if number == 1 else 'e'}s"


def _matched(source: _Written, target: _Written, order: tuple[int, ...]) -> tuple[list[int], np.ndarray]:
    """The channel of ``from_`` for each channel of ``to`` (the width of ``from_`` for a zero), and its sign."""
    places, signs = [-1] * len(target.channels), np.ones(len(target.channels))
    for place, channel in enumerate(target.channels):
        if channel.kind == "zero":
            places[place] = len(source.channels)
    for axis in range(target.axes):
        _same_ladder(source, target, order[axis], axis)
        for kind in ("sin", "cos", "raw"):
            wanted = _sorted(target.channels, (kind,), axis)
            there = _sorted(source.channels, (kind,), order[axis])
            for place, found in _paired(wanted, there, target, source):
                places[place] = found
                signs[place] = target.channels[place].sign * source.channels[found].sign
    return places, signs


def _sorted(channels: tuple[_Channel, ...], kinds: Collection[str], axis: int) -> list[int]:
    """Channels of these kinds of one axis, from the highest to the lowest frequency."""
    found = [place for place, each in enumerate(channels) if each.kind in kinds and each.axis == axis]
    return sorted(found, key=lambda place: -channels[place].rate)


def _paired(wanted: list[int], there: list[int], target: _Written, source: _Written) -> Iterator[tuple[int, int]]:
    """Channels of the same rate: as many of either where it stands more than once, else the only one for all."""
    groups, held = _groups(wanted, target), _groups(there, source)
    for group in _unlike(held, groups, source, target):
        raise _missing(source.channels[group[0]], source, target, lost=True)
    for group in _unlike(groups, held, target, source):
        raise _missing(target.channels[group[0]], source, target, lost=False)
    for group, have in zip(groups, held, strict=True):
        for number, place in enumerate(group):
            yield place, have[number % len(have)]


def _groups(places: list[int], written: _Written) -> list[list[int]]:
    """Channels that follow one another by their rate, those of the same rate together."""
    groups: list[list[int]] = []
    for place in places:
        if groups and _alike(written.channels[groups[-1][0]].rate, written.channels[place].rate):
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _unlike(some: list[list[int]], others: list[list[int]], mine: _Written, theirs: _Written) -> Iterator[list[int]]:
    """Groups of which the others have none."""
    left = [theirs.channels[group[0]].rate for group in others]
    at = 0
    for group in some:
        rate = mine.channels[group[0]].rate
        while at < len(left) and left[at] > rate and not _alike(left[at], rate):
            at += 1
        if at == len(left) or not _alike(left[at], rate):
            yield group


def _alike(first: float, second: float) -> bool:
    return abs(first - second) <= SAME_RATE * max(first, second)


def _same_ladder(source: _Written, target: _Written, axis: int, to_axis: int) -> None:
    """Refuse two ladders with different rates."""
    mine, theirs = (
        [written.channels[group[0]].rate for group in _groups(_sorted(written.channels, _WAVES, one), written)]
        for written, one in ((source, axis), (target, to_axis))
    )
    if len(mine) == len(theirs) and all(map(_alike, mine, theirs)):
        return
    where = f" along axis {to_axis}" if source.axes > 1 else ""
    if len(mine) != len(theirs):
        fault = f"the first has {len(mine)} frequencies{where}, the second {len(theirs)}"
    else:
        at = next(pair for pair, (one, other) in enumerate(zip(mine, theirs, strict=True)) if not _alike(one, other))
        fault = f"pair {at}{where} has {mine[at]:.7g} rad/token in the first, {theirs[at]:.7g} in the second"
    raise InvalidValue(
        f"{source.said} and {target.said} have different frequencies: {fault}.",
        "No order of dimensions converts one to the other; compute the table again: clockhands.table(to, positions).",
    )


def _missing(channel: _Channel, source: _Written, target: _Written, *, lost: bool) -> InvalidValue:
    what = f"coordinate {channel.axis}"
    if channel.kind != "raw":
        what = f"{_WAVES[channel.kind]} of the pair at {channel.rate:.7g} rad/token"
    fault = f"it has no place for the {what}, which would be lost" if lost else f"the {what} is not in it"
    return InvalidValue(
        f"A table of {source.said} cannot become one of {target.said}: {fault}.",
        "Compute the table again: clockhands.table(to, positions).",
    )


def _check_zeros(x: Any, source: _Written) -> None:
    """Refuse a table whose zero columns are not zero."""
    zeros = [place for place, channel in enumerate(source.channels) if channel.kind == "zero"]
    if not zeros or is_traced(x):
        return
    beyond = np.asarray(numpy_of(x[..., zeros[0] : zeros[-1] + 1], "x"))[..., [place - zeros[0] for place in zeros]]
    if np.any(beyond != 0):
        raise InvalidValue(
            f"Column {zeros[int(np.argwhere(beyond != 0)[0][-1])]} of `x` is not zero, but in {source.said} it is.",
            "Check that `x` is a table of `from_`.",
        )


def _moved(x: Any, places: list[int], xp: Any) -> Any:
    """The channels in their new places."""
    if max(places) >= x.shape[-1]:
        x = xp.concat([x, xp.zeros_like(x[..., :1])], axis=-1)
    return xp.take(x, xp.asarray(np.array(places), device=device_of(x)), axis=-1)


def _rescaled(made: Any, source: _Written, target: _Written, signs: np.ndarray, xp: Any) -> Any:
    """The numbers with their signs, means and scales."""
    factor = target.factor / source.factor
    shifts = signs * source.mean - target.mean
    place = device_of(made)
    if factor == 1 and not shifts.any():
        if (signs > 0).all():
            return made
        return made * xp.astype(xp.asarray(signs, device=place, dtype=xp.float32), made.dtype)
    wave = np.array([channel.kind != "zero" for channel in target.channels])
    offset = np.where(wave, shifts * target.factor, 0.0)
    # Without a mean the product alone: 0 stays 0 and a power of two is exact.
    work = xp.float64 if made.dtype == xp.float64 else xp.float32
    numbers = xp.astype(made, work) * xp.asarray(signs * factor, device=place, dtype=work)
    if offset.any():
        numbers = numbers + xp.asarray(offset, device=place, dtype=work)
    return xp.astype(numbers, made.dtype)


def _rows(x: Any, made: Any, source: _Written, target: _Written, xp: Any) -> Any:
    """The rows that only one of the two conventions has as zeros."""
    before, after = (set(getattr(each.spec, "zero_rows", ())) for each in (source, target))
    if before == after:
        return made
    if is_traced(x):
        raise InvalidType(
            "`from_` and `to` have different rows of zeros, which cannot be found inside a trace.",
            "Convert the table outside of jit, vmap and compile.",
        )
    given = numpy_of(x, "x").astype(np.float64)
    kind = str(made.dtype).rpartition(".")[2]
    zero = ~given.any(axis=-1)
    place = device_of(made)
    if zero.any() and before - after:
        if len(before) > 1:
            raise InvalidValue(
                f"`x` has rows of zeros, but it is not known which of the positions {sorted(before)} they have.",
                "Compute the table again: clockhands.table(to, positions).",
            )
        row = table_of(target.spec, sorted(before), dtype=kind)[0]
        # By way of a dtype that every library takes from NumPy.
        row = row.astype(np.float64 if kind == "float64" else np.float32)
        filled = xp.astype(xp.asarray(row, device=place), made.dtype)
        made = xp.where(xp.asarray(zero, device=place)[..., None], filled, made)
    for position in sorted(after - before):
        own = table_of(source.spec, [position], dtype="float64")[0]
        size = abs(source.factor) * (1 + abs(source.mean))
        near = np.abs(given - own).max(axis=-1) <= max(_ROW, 8 * _ULPS[kind]) * size
        made = xp.where(xp.asarray(near, device=place)[..., None], xp.zeros_like(made), made)
    return made
