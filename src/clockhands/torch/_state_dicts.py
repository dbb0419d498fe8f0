"""State dicts of other libraries: tensors that follow from the spec are compared with it and never loaded.

Published code often stores frequencies (``inv_freq``), cosines (``cos_cached``) or whole tables
(``embed_positions.weights``) in its state dict. Here they are computed from the spec. If such a tensor equals the
computed one, within the rounding of its dtype and of usual float32 arithmetic, it is left out silently. Otherwise
(another base, a missing scaling, frequencies rounded to bfloat16, uninitialised memory) loading fails, and the message
says by how much the tensor differs, and from which pair on.

`clockhands.recognition.diagnosis` makes the comparison and derives the error bounds.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from clockhands.encodings import additive, biases, rotary
from clockhands.errors import InvalidType, InvalidValue
from clockhands.recognition.diagnosis import Computed, Verdict, of_array

_RATES = {"inv_freq", "original_inv_freq", "freqs"}
_COSINES, _SINES = {"cos_cached", "cos_cache", "cos"}, {"sin_cached", "sin_cache", "sin"}
_TURNS = {"freqs_cis", "rope_cache"}
_TABLES = {"weights", "pe", "pos_table", "positional_encoding", "position_encoding"}
_SLOPES = {"slopes", "alibi_slopes"}
_ROWS = {"relative_position_index", "relative_position_bucket"}
_NUMBERS, _MARKS = {"position_ids"}, {"_float_tensor"}  # of tokens; of the dtype, in fairseq


def without_computed(state_dict: Mapping[str, Any], spec: Any, under: str = "") -> dict[str, Any]:
    """A state dict without the tensors that follow from the spec, each compared with it before it is left out.

    For models whose module names differ, so that `torch.nn.Module.load_state_dict` would not match tensors and modules.
    Tensors are recognised by the names that published code gives them.

    Args:
        state_dict: Any state dict; it is not changed.
        spec: A rotary code, an additive code or a bias.
        under: Only names that start with this are checked, such as ``"model.layers.0."``.

    Raises:
        InvalidValue: A tensor differs from the computed one; the message says by how much, and from which pair on.
        InvalidType: ``spec`` is not a spec.

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
    """Whether a tensor of this name equals the computed one; False if the name is not that of a computed tensor.

    Raises:
        InvalidValue: The name is that of a computed tensor, and the values differ.
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
    if name in _RATES and not tensor.is_complex() and tensor.dim() <= 1:
        return _compare(spec, "rates", key, tensor)
    return name in _COSINES | _SINES | _TURNS and _compare(spec, "table", key, tensor)


def _of_additive(spec: additive.AdditiveCode, key: str, name: str, tensor: torch.Tensor) -> bool:
    if name in _RATES and hasattr(spec, "ladder") and tensor.dim() <= 1:
        return _compare(spec, "rates", key, tensor)
    return tensor.is_floating_point() and _compare(spec, "table", key, tensor)


def _of_bias(spec: biases.BiasCode, key: str, name: str, tensor: torch.Tensor) -> bool:
    if name in _SLOPES and hasattr(spec, "slopes"):
        return _compare(spec, "slopes", key, tensor)
    if name in _ROWS and isinstance(spec, biases.TableCode) and tensor.dim() == 2:
        made = biases.row_numbers(spec, *tensor.shape)
        wrong = int((tensor.cpu().numpy() != made).sum())
        if wrong:
            raise InvalidValue(
                f"`{key}` holds row numbers that differ from the spec's for {wrong} of {made.size} pairs of tokens.",
                _HINT,
            )
        return True
    return False


_HINT = (
    "If the model was trained with these numbers, give the module a spec that computes them; otherwise remove the key "
    "from the state dict: then the spec's numbers are used."
)


def _compare(spec: Any, kind: str, key: str, tensor: torch.Tensor) -> bool:
    """Whether a tensor is what a code computes in its place; rounded to the type that it is held in, it is."""
    dtype, name = str(tensor.dtype).removeprefix("torch."), key.rpartition(".")[2]
    if not (tensor.is_floating_point() or tensor.is_complex()):
        what = "a table" if kind == "table" else kind
        raise InvalidType(f"`{key}` holds {what} as {dtype}, but these numbers are not whole.", _HINT)
    numbers = tensor.detach().cpu().to(torch.complex128 if tensor.is_complex() else torch.float64).numpy()
    found = of_array(numbers, spec, kind, name, dtype)
    if found is None or found.verdict.code is None:
        return found is not None
    # Rates are made and then cast; what is made of rounded rates or positions is another table.
    cast = found.verdict.code == "buffer-rounded" and found.made.ndim == 1
    if cast and found.verdict.evidence["rounded to"] == dtype:
        return True
    raise InvalidValue(
        _tensor_contents(key, found),
        f"{found.verdict.hint} If the key is removed from the state dict, the spec's numbers are used.",
    )


def _tensor_contents(key: str, found: Computed) -> str:
    """What a tensor holds, from which pair on and by how much it differs."""
    held, made, each = found.held, found.made, "head" if found.what == "slopes" else "pair"
    if held.shape != made.shape:
        unit = f"{each}s" if held.ndim == 1 else "channels"
        return f"`{key}` holds {found.what} of {held.shape[-1]} {unit}, and this code makes {made.shape[-1]}."
    off = np.abs(held - made)
    off = np.where(np.isfinite(off), off, np.inf)
    worst = np.unravel_index(int(np.argmax(off)), off.shape)
    first = int(found.pair[np.nonzero(off > found.allowed)[-1]].min())
    where = f"{each} {int(found.pair[worst[-1]])}" + (f" at position {worst[0]}" if made.ndim == 2 else "")
    return (
        f"`{key}` holds {found.what} that this code does not make ({found.verdict.code}): from {each} {first} on, off "
        f"by up to {off[worst]:.2g} ({where}: {held[worst]:.6g} there, {made[worst]:.6g} here)."
        f"{_in_words(found.verdict)}"
    )


def _in_words(verdict: Verdict) -> str:
    found = verdict.evidence
    words = {
        "buffer-zero": "They are all zero, like uninitialised memory.",
        "buffer-uninitialised": "They follow no known rule, like uninitialised memory.",
        "buffer-unscaled": "They are those without the scaling.",
        "buffer-scaled-twice": "They are scaled twice.",
        "buffer-reread": "Their bytes were read as {read as}: read as {bytes of}, they are this code's.",
        "buffer-of-another-base": "They are those of base {base in effect:,.7g}.",
        "buffer-of-another-factor": "They are scaled by {effective factor:.7g}, not {declared factor:.7g}.",
        "buffer-of-another-scaling": "They have the scaling {scaling in effect}, not {declared scaling}.",
        "buffer-rounded": "They are this code's, rounded to {rounded to}.",
    }.get(str(verdict.code), "They are {it is}." if "it is" in found else "")
    if "position" in found:  # of a table
        return f" It is {found['behaves as']}." if "behaves as" in found else ""
    rounded = f" They are rounded to {found['rounded to']}, too." if "rounded to" in found else ""
    return " " + words.format(**found) + ("" if verdict.code == "buffer-rounded" else rounded) if words else rounded


def _is_counted(key: str, tensor: torch.Tensor) -> bool:
    numbers = tensor.detach().cpu().reshape(-1)
    if not torch.equal(numbers, torch.arange(len(numbers), dtype=numbers.dtype)):
        raise InvalidValue(
            f"`{key}` holds positions other than 0, 1, 2 and so on.",
            "Remove the key, and pass such positions to the module's forward.",
        )
    return True
