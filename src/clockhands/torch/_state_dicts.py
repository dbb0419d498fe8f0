"""Other people's state dicts: what in them follows from the spec is checked against it, and never loaded.

Much published code keeps rates (``inv_freq``), cosines (``cos_cached``) or whole tables (``embed_positions.weights``)
in its state dict. Here they follow from the spec, so there is no place for them. What such a tensor holds is either
what the spec makes, within the rounding of its dtype and of the float32 arithmetic that usually makes it: then it is
left out and nothing is said. Or it is something else (another base, a forgotten scaling, rates that were rounded to
bfloat16, memory that nobody filled): then loading fails and says by how much it differs, and from which pair on.

What rates of a rotary code are is asked of `clockhands.diagnosis`, which derives how far they may be off. For the
others: a rate made in float32 is off by at most ``|ln base| <= 21`` roundings, from the exponent, and those of eight
further operations: ``29 x 2**-24 < ARITHMETIC = 2**-19``, relative. A number of a table is off by that much of its
phase and two units of a float32 function; everything by one rounding to the dtype that it is held in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from clockhands import additive, biases, rotary
from clockhands.diagnosis import Cosines, Verdict, cosines_of, of_rates, of_slopes, of_table, reference_of
from clockhands.errors import InvalidType, InvalidValue
from clockhands.faults import FAULTS
from clockhands.layouts import pair_channels
from clockhands.phases import units
from clockhands.positions import positions_of

ARITHMETIC = 2.0**-19
_FUNCTION = 2.0**-22

_RATES = {"inv_freq", "original_inv_freq", "freqs"}
_COSINES, _SINES = {"cos_cached", "cos_cache", "cos"}, {"sin_cached", "sin_cache", "sin"}
_TURNS = {"freqs_cis", "rope_cache"}
_TABLES = {"weights", "pe", "pos_table", "positional_encoding", "position_encoding"}
_SLOPES = {"slopes", "alibi_slopes"}
_ROWS = {"relative_position_index", "relative_position_bucket"}
_NUMBERS, _MARKS = {"position_ids"}, {"_float_tensor"}  # of tokens; of the dtype, in fairseq


class _Made(NamedTuple):
    """What the spec makes in the place of a tensor."""

    what: str
    numbers: np.ndarray
    allowed: np.ndarray  # how far off they may be, before the rounding to the tensor's dtype
    pair: np.ndarray  # which pair each channel belongs to
    each: str = "pair"  # or "head"


def without_computed(state_dict: Mapping[str, Any], spec: Any, under: str = "") -> dict[str, Any]:
    """A state dict without the tensors that follow from the spec, each compared with it before it is left out.

    For models whose modules have other names than these, so that `torch.nn.Module.load_state_dict` would not bring
    tensor and module together. Tensors are known by the names that published code gives them.

    Args:
        state_dict: Any state dict; it is not changed.
        spec: A rotary code, an additive code or a bias.
        under: Only names that start with this are looked at, such as ``"model.layers.0."``.

    Raises:
        InvalidValue: A tensor differs from what the spec makes: by how much, and from which pair on.
        InvalidType: ``spec`` is no spec.

    >>> import clockhands as ch
    >>> peers = {"rotary_emb.inv_freq": torch.tensor([1.0, 0.01]), "q_proj.weight": torch.zeros(4, 4)}
    >>> list(without_computed(peers, ch.Rotary(head_width=4)))
    ['q_proj.weight']
    """
    if not isinstance(state_dict, Mapping):
        raise InvalidType(
            f"`state_dict` must be a dict of tensors, got {type(state_dict).__name__}.", "Pass module.state_dict()."
        )
    if not isinstance(spec, (rotary.Rotary, additive.AdditiveCode, biases.BiasCode)):
        raise InvalidType(f"`spec` must be a position code, got {type(spec).__name__}.", "Give the module's spec.")
    return {
        key: tensor
        for key, tensor in state_dict.items()
        if not (key.startswith(under) and _is_named_for_one(key) and judged(spec, key, tensor))
    }


def judged(spec: Any, key: str, tensor: Any) -> bool:
    """Whether a tensor of this name is what the spec makes; False where it is nothing that a spec makes.

    Raises:
        InvalidValue: It is that kind of thing, and holds something else.
    """
    if not isinstance(tensor, torch.Tensor) or tensor.device.type == "meta":
        return False
    name = key.rpartition(".")[2]
    if name in _MARKS:
        return True
    if name in _NUMBERS:
        return _is_counted(key, tensor)
    if isinstance(spec, rotary.Rotary):
        return _of_rotary(spec, key, name, tensor)
    if isinstance(spec, additive.AdditiveCode):
        return not spec.learned and _of_additive(spec, key, name, tensor)
    return _of_bias(spec, key, name, tensor)


def _is_named_for_one(key: str) -> bool:
    *parents, name = key.split(".")
    if name == "weight":
        return any("pos" in parent for parent in parents[-1:])
    return name in _RATES | _COSINES | _SINES | _TURNS | _TABLES | _SLOPES | _ROWS | _NUMBERS | _MARKS


def _of_rotary(spec: rotary.Rotary, key: str, name: str, tensor: torch.Tensor) -> bool:
    rates = np.array(spec.rates)
    if name in _RATES and not tensor.is_complex() and tensor.dim() <= 1:
        if not _one_each(tensor, spec.rates):
            return _rates(key, tensor, rates)
        verdict = of_rates(_held(tensor), spec, str(tensor.dtype).removeprefix("torch."), length=spec.length)
        return _diagnosed(key, tensor, rates, verdict)
    if name not in _COSINES | _SINES | _TURNS or spec.axes is not None:
        return False
    dtype = tensor.dtype
    if name in _TURNS and not tensor.is_complex():
        if tensor.shape[-1:] != (2,):
            return False
        tensor = torch.view_as_complex(tensor.double().contiguous())
    held = _rows_of(tensor)
    if held is None:
        return False
    turn = _turns(spec, len(held))
    made = turn if name in _TURNS else np.real(turn) if name in _COSINES else np.imag(turn)
    if held.shape[1] == 2 * len(rates):  # each number twice, in the places of its two channels
        in_halves = spec.layout == "halves" or spec.reordered
        pair = np.arange(2 * len(rates)) % len(rates) if in_halves else np.arange(2 * len(rates)) // 2
        made, rates = made[:, pair], rates[pair]
    else:
        pair = np.arange(len(rates))
    allowed = spec.attention_factor * (np.outer(np.arange(len(held)), rates) * ARITHMETIC + _FUNCTION)

    def of_them() -> Verdict | None:
        table = cosines_of(held, name, str(dtype).removeprefix("torch."), len(spec.rates))
        return None if table is None else of_table(table, reference_of(spec, reach=len(held)), spec.attention_factor)

    _compare(key, held, _Made("turns", made, allowed, pair), dtype, of_them)
    return True


def _of_additive(spec: additive.AdditiveCode, key: str, name: str, tensor: torch.Tensor) -> bool:
    ladder = getattr(spec, "ladder", None)
    if name in _RATES and ladder is not None and tensor.dim() <= 1:
        return _rates(key, tensor, ladder.rates)
    held = _rows_of(tensor)
    if held is None or spec.number_of_axes > 1:  # a table of several axes does not say where its rows stand
        return False
    made = additive.table(spec, len(held), "float64")
    pair, rates = np.arange(spec.width), np.zeros(spec.width)
    if ladder is not None and ladder.pairs < spec.width:
        width = min(spec.width, 2 * ladder.pairs)
        for channel in pair_channels(ladder.pairs, getattr(spec, "layout", "interleaved")).T:
            inside = channel < width
            pair[channel[inside]] = np.arange(ladder.pairs)[inside]
            rates[channel[inside]] = np.array(ladder.rates)[inside]
    allowed = np.outer(np.arange(len(held)), rates) * ARITHMETIC + _FUNCTION * np.maximum(np.abs(made), 1)
    _compare(key, held, _Made("numbers", made, allowed, pair), tensor.dtype, lambda: _of_sinusoids(spec, held, tensor))
    return True


def _of_sinusoids(spec: additive.AdditiveCode, held: np.ndarray, tensor: torch.Tensor) -> Verdict | None:
    """What a sinusoidal table holds; None for codes whose numbers are other things, too."""
    if not isinstance(spec, additive.Sinusoidal) or spec.order not in ("sin-cos", "cos-sin"):
        return None
    plain = (spec.odd, spec.zero_rows, spec.scale, spec.scaled, spec.standardised) == ("refuse", (), 1.0, False, None)
    if not plain or held.shape[1] != spec.width:
        return None
    first, second = (held[:, channels] for channels in pair_channels(spec.width // 2, spec.layout).T)
    cos, sin = (second, first) if spec.order == "sin-cos" else (first, second)
    table = Cosines(np.arange(len(held), dtype=np.float64), cos, sin, str(tensor.dtype).removeprefix("torch."))
    verdict = of_table(table, reference_of(rotary.Rotary(spec.width, spacing=spec.spacing)))  # of the same rates
    # No factor on cosines is known of a table that is added.
    return replace(verdict, code="buffer-differs") if verdict.code == "attention-factor-differs" else verdict


def _of_bias(spec: biases.BiasCode, key: str, name: str, tensor: torch.Tensor) -> bool:
    slopes = getattr(spec, "slopes", None)
    if name in _SLOPES and slopes is not None:
        if not (isinstance(spec, biases.Alibi) and _one_each(tensor, slopes)):
            return _rates(key, tensor, slopes, "slopes", "head")
        verdict = of_slopes(_held(tensor).reshape(-1), spec, str(tensor.dtype).removeprefix("torch."))
        return _diagnosed(key, tensor, np.array(slopes), verdict, what="slopes", each="head")
    if name in _ROWS and isinstance(spec, biases.TableCode) and tensor.dim() == 2:
        made = biases.row_numbers(spec, *tensor.shape)
        wrong = int((tensor.cpu().numpy() != made).sum())
        if wrong:
            raise InvalidValue(f"`{key}` holds other rows of the table for {wrong} of {made.size} pairs.", _HINT)
        return True
    return False


_HINT = (
    "If the model was trained with them, give the module a spec that makes them; else leave the key out of the state "
    "dict, and the spec's own are used."
)


def _compare(key: str, held: np.ndarray, made: _Made, dtype: torch.dtype, why: Callable[[], Verdict | None]) -> None:
    """Refuse numbers that differ by more than is allowed and one rounding to their dtype, and say why."""
    what, numbers, allowed, pair, each = made
    if not (dtype.is_floating_point or dtype.is_complex):
        raise InvalidType(
            f"`{key}` holds {what} in {str(dtype).removeprefix('torch.')}, and they are no whole numbers.", _HINT
        )
    if held.shape[-1:] != numbers.shape[-1:]:
        raise InvalidValue(
            f"`{key}` holds {what} of {held.shape[-1]} {each if held.ndim == 1 else 'channel'}s, and this code makes "
            f"{numbers.shape[-1]}.",
            "It belongs to a code of another width; give the module the spec of the model.",
        )
    if dtype in (torch.float64, torch.complex128):
        allowed = allowed * 2.0**-29
    info = torch.finfo(dtype)
    off = np.abs(held - numbers)
    wrong = ~(off <= allowed + np.abs(numbers) * info.eps / 2 + info.tiny * info.eps)
    if not wrong.any():
        return
    off = np.where(np.isfinite(off), off, np.inf)
    worst = np.unravel_index(int(np.argmax(np.where(wrong, off, -1.0))), off.shape)
    first = int(pair[np.nonzero(wrong)[-1]].min())
    where = f"{each} {int(pair[worst[-1]])}" + (f" at position {worst[0]}" if numbers.ndim == 2 else "")
    verdict = why()
    known = None if verdict is None or verdict.code is None else verdict
    raise InvalidValue(
        f"`{key}` holds {what} that this code does not make{f' ({known.code})' if known else ''}: from {each} {first} "
        f"on, off by up to {off[worst]:.2g} ({where}: {held[worst]:.6g} there, {numbers[worst]:.6g} here)."
        + (_in_words(known) if known else _why(held, numbers, dtype)),
        _hint(known),
    )


def _diagnosed(
    key: str, tensor: torch.Tensor, made: np.ndarray, verdict: Verdict, *, what: str = "rates", each: str = "pair"
) -> bool:
    """Whether rates, or slopes, are right; rounded to the type that they are held in, they are left out too."""
    held, dtype = _held(tensor).reshape(-1), str(tensor.dtype).removeprefix("torch.")
    if verdict.code is None or (verdict.code == "buffer-rounded" and verdict.evidence["rounded to"] == dtype):
        return True
    off = np.abs(held - made)
    off = np.where(np.isfinite(off), off, np.inf)
    worst, first = int(np.argmax(off)), int(np.argmax(off > ARITHMETIC * made))
    raise InvalidValue(
        f"`{key}` holds {what} that this code does not make ({verdict.code}): from {each} {first} on, off by up to "
        f"{off[worst]:.2g} ({each} {worst}: {held[worst]:.6g} there, {made[worst]:.6g} here).{_in_words(verdict)}",
        _hint(verdict),
    )


def _hint(verdict: Verdict | None) -> str:
    """What to do: what the fault's hint says, where the fault is known."""
    fault = None if verdict is None else FAULTS.get(str(verdict.code))
    if fault is None:
        return _HINT
    return f"{fault.hint} Left out of the state dict, the spec's own are used."


def _one_each(tensor: torch.Tensor, made: Sequence[float]) -> bool:
    """Whether a tensor has a float for each of them; `_rates` says what is wrong with any other."""
    return tensor.is_floating_point() and tensor.numel() == len(made)


def _in_words(verdict: Verdict) -> str:
    found = verdict.evidence
    words = {
        "buffer-zero": "They are all zero, as memory that nobody filled.",
        "buffer-uninitialised": "No rule makes them, as memory that nobody filled.",
        "buffer-unscaled": "They are those without the scaling.",
        "buffer-scaled-twice": "They are scaled twice.",
        "buffer-of-another-base": "They are those of base {base in effect:,.7g}.",
        "buffer-of-another-factor": "They are scaled by {effective factor:.7g}, not {declared factor:.7g}.",
        "buffer-of-another-scaling": "They have the scaling {scaling in effect}, not {declared scaling}.",
        "buffer-rounded": "They are this code's, rounded to {rounded to}.",
    }.get(str(verdict.code), "They are {it is}." if "it is" in found else "")
    if "position" in found:  # of a table
        return f" It is {found['behaves as']}." if "behaves as" in found else ""
    rounded = f" They are rounded to {found['rounded to']}, too." if "rounded to" in found else ""
    return " " + words.format(**found) + ("" if verdict.code == "buffer-rounded" else rounded) if words else rounded


def _rates(key: str, tensor: torch.Tensor, rates: Any, what: str = "rates", each: str = "pair") -> bool:
    """Compare rates, or slopes, one a pair or head."""
    made = np.array(rates)
    held = _held(tensor).reshape(-1)
    _compare(
        key, held, _Made(what, made, np.abs(made) * ARITHMETIC, np.arange(len(made)), each), tensor.dtype, lambda: None
    )
    return True


def _why(held: np.ndarray, made: np.ndarray, dtype: torch.dtype) -> str:
    """What the difference looks like, where it is a well-known one."""
    if not held.any():
        return " They are all zero, as memory that nobody filled."
    for narrow in (torch.bfloat16, torch.float16):
        parts = torch.from_numpy(np.stack([np.real(held), np.imag(held)]))
        off, info = np.abs(held - made), torch.finfo(narrow)
        near = np.all(off <= np.abs(made) * info.eps * 0.51 + info.tiny * info.eps)
        if dtype != narrow and near and torch.equal(parts.to(narrow).double(), parts):
            return f" They are this code's, rounded to {str(narrow).removeprefix('torch.')}."
    return ""


def _turns(spec: rotary.Rotary, rows: int) -> np.ndarray:
    """``cos + i sin`` of the pairs at the first positions, times the factor: turning forward, as tables are kept."""
    return spec.attention_factor * units(spec.ladder, positions_of(range(rows)))


def _held(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's numbers in double precision."""
    return tensor.detach().cpu().to(torch.complex128 if tensor.is_complex() else torch.float64).numpy()


def _rows_of(tensor: torch.Tensor) -> np.ndarray | None:
    """A table [rows, channels], whatever axes of one stand around its rows; else None."""
    if tensor.dim() < 2 or not (tensor.is_floating_point() or tensor.is_complex()):
        return None
    if sum(size != 1 for size in tensor.shape[:-1]) > 1:
        return None
    return _held(tensor).reshape(-1, tensor.shape[-1])


def _is_counted(key: str, tensor: torch.Tensor) -> bool:
    numbers = tensor.detach().cpu().reshape(-1)
    if not torch.equal(numbers, torch.arange(len(numbers), dtype=numbers.dtype)):
        raise InvalidValue(
            f"`{key}` holds other numbers than 0, 1, 2 and so on.", "Pass such positions to the forward."
        )
    return True
