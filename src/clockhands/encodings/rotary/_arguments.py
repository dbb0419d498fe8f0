"""The arguments of rotations: heads, positions and roles, checked, with messages in the words of the caller."""

from typing import Any

from clockhands.encodings import traces
from clockhands.encodings.dtypes import float_of
from clockhands.encodings.positions import Positions, refuse_no_array, refuse_single
from clockhands.encodings.rotary._cosines import of_other_axis
from clockhands.encodings.rotary._spec import Rotary
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

OF_TEXT = "For text, whose tokens have the same coordinate on every axis, give positions[..., None]"


def check_lengths(queries: tuple[int, ...], axis: int, keys: tuple[int, ...], axis_of_keys: int) -> None:
    """Refuse queries and keys of different lengths, such as heads that are taken for tokens."""
    if queries[axis] == keys[axis_of_keys]:
        return
    hint = (
        "Rotate queries and keys separately, with positions= for each. In a decoding step the query is at the "
        "position of the last key."
    )
    if len(queries) == len(keys) == 4 and axis == 2 and queries[1] == keys[1] > 1:
        hint = f"{of_other_axis(queries, axis, queries[1])}. Else: {hint[0].lower()}{hint[1:]}"
    raise InvalidValue(
        "Queries and keys must have the same length to have the same positions, got "
        f"{queries[axis]} and {keys[axis_of_keys]}.",
        hint,
    )


def check_spec(spec: object, call: str) -> None:
    """Refuse what is not the spec of a rotary code."""
    if not isinstance(spec, Rotary):
        raise InvalidType(
            f"`{call}` takes a Rotary spec, got {type(spec).__name__}.",
            "Take the code of a layer, spec.layer(0)."
            if hasattr(spec, "layer")
            else "Make one with clockhands.Rotary(head_width=…); additive encodings are added with clockhands.add.",
        )


def heads_of(x: Any, spec: Rotary, seq_axis: int, call: str, name: str = "x") -> tuple[tuple[int, ...], str, int]:
    """The shape of queries or keys, the name of their dtype, and their sequence axis."""
    check_spec(spec, call)
    refuse_no_array(x, name)
    traces.refuse_recording(x)
    shape = tuple(x.shape)
    if len(shape) < 2 or shape[-1] != spec.head_width:
        raise InvalidValue(
            f"`{name}` must be of shape [..., seq, {spec.head_width}], got {list(shape)}.",
            "The last axis must be the width of one head: split the heads first.",
        )
    kind = float_of(x, name, "Rotate queries and keys, not token ids.")
    if isinstance(seq_axis, bool) or not hasattr(seq_axis, "__index__") or not -len(shape) <= seq_axis < len(shape):
        raise InvalidValue(
            f"`seq_axis` must be an axis of x of shape {list(shape)}, got {shown(seq_axis)}.", "Its default is -2."
        )
    axis = seq_axis % len(shape)
    if axis == len(shape) - 1:
        raise InvalidValue(f"`seq_axis` must not be the last axis, got {seq_axis}.", "The last axis is a head's width.")
    return shape, kind, axis


def check_role(spec: Rotary, role: str | None) -> None:
    """Refuse a role where the code has none, and anything but a role where it needs one."""
    if spec.xpos is None:
        if role is not None:
            raise InvalidValue(
                f"`role` is for encodings that treat queries and keys differently, got {shown(role)}.",
                "Leave it out: this encoding rotates both in the same way.",
            )
    elif not isinstance(role, str) or role not in ("query", "key"):
        raise InvalidValue(
            f'This encoding has xPos, so `role` must be "query" or "key", got {shown(role)}.',
            "xPos multiplies queries by a growing factor and keys by a shrinking one.",
        )


def given_positions(positions: Any, spec: Rotary, x: Any, axis: int, name: str = "positions") -> Any:
    """The positions, or the default ones for None, with their shape checked; values of traced ones stay unknown."""
    shape = tuple(x.shape)
    if positions is None:
        if name != "positions":
            raise InvalidType(f"`{name}` must be given, got None.", "Pass the positions of the keys.")
        if spec.axes is not None:
            hint = "Give positions of shape [seq, axes]; see clockhands.rotary.grid and clockhands.grids.Grid"
            raise InvalidValue(
                f"An encoding of {spec.number_of_axes} axes has no default positions.", f"{hint}. {OF_TEXT}."
            )
        positions = traces.counted(0, shape[axis], x)
    refuse_single(positions, name)
    positions = traces.beside(positions, x, name, "x")
    if traces.stay(positions):
        check_shape(tuple(positions.shape), spec, shape, axis, name)
    return positions


def checked(at: Positions, spec: Rotary, shape: tuple[int, ...], axis: int, name: str = "positions") -> Positions:
    """The positions, if their shape fits the heads."""
    check_shape(at.shape, spec, shape, axis, name)
    return at


def are_coordinates(number: int, spec: Rotary) -> bool:
    """Whether positions may have so many coordinates: one for each axis, one for all, or llama.cpp's four for three.

    llama.cpp gives every code with sections of pairs four coordinates, of which the fourth is 0.
    """
    return number in (1, spec.number_of_axes) or (number, spec.number_of_axes) == (4, 3)


def check_unread(spec: Rotary, at: Positions) -> None:
    """Refuse a fourth coordinate other than 0 for a code of three axes: no pair reads it."""
    if at.shape[-1] <= spec.number_of_axes:
        return
    unread = at.coordinate(spec.number_of_axes).as_float64()
    if unread.any():
        raise InvalidValue(
            f"`positions` have a fourth coordinate, {unread[unread != 0][0]:g}, but the encoding has three axes, so "
            "no pair reads it.",
            "Leave it out, or give 0, as llama.cpp does.",
        )


def check_shape(given: tuple[int, ...], spec: Rotary, shape: tuple[int, ...], axis: int, name: str) -> None:
    """Refuse positions whose shape does not fit the heads; the hint says what may have been meant."""
    seq, axes, several = shape[axis], spec.number_of_axes, spec.axes is not None
    body = given[:-1] if several else given
    coordinates = not several or (len(given) > 1 and are_coordinates(given[-1], spec))
    batched = len(body) == 2 and len(shape) >= 3 and axis != 0 and body[0] in (1, shape[0])
    if coordinates and body[-1:] == (seq,) and (len(body) == 1 or batched):
        return
    tail = f", {axes}]" if several else "]"
    allowed = f"[{seq}{tail}" + (f" or [{shape[0]}, {seq}{tail}" if len(shape) >= 3 and axis != 0 else "")
    hint = "They are [seq], or [batch, seq] where batch is axis 0 of x"
    if coordinates and len(body) in (1, 2):
        hint = of_other_axis(shape, axis, body[-1]) or hint
    if several and hint.startswith("They"):
        moved = len(given) > 1 and given[0] == axes
        hints = ["Move the axis of the coordinates to the end, [seq, axes] or [batch, seq, axes]"] * moved
        hints += [OF_TEXT] * (len(given) < 3 and given[-1:] == (seq,))
        hint = ". ".join(hints) or hint
    raise InvalidValue(
        f"`{name}` must be of shape {allowed} for x of shape {list(shape)}, got {list(given)}.", f"{hint}."
    )
