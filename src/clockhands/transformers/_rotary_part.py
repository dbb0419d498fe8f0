"""Computes cosine and sine in the form of a Transformers rotary module, from exact phases."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clockhands.encodings.mixtures import LayerMixture
from clockhands.encodings.rotary import Rotary, cos_sin
from clockhands.encodings.scaling import Dynamic, LongRope
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown
from clockhands.transformers._reading import spec_of

Form = Literal["halves", "interleaved", "pairs", "complex"]
"""How cosines and sines of pairs lie in what a module returns: ``halves`` is ``cat(c, c)``, ``interleaved`` each twice
in a row, ``pairs`` each once (GPT-OSS), ``complex`` as ``cos + i sin`` (Llama 4, DeepSeek-V2)."""


@dataclass(frozen=True)
class RotaryOutput:
    """What a rotary module returns for one kind of layer.

    Attributes:
        spec: The code; only its frequencies and factor are used.
        form: How pairs are arranged in the output.
        padded: Number of pairs after those of the spec that never rotate.
        dtype: The output's dtype; None for that of ``x``.
        of_axes: The code with the axis of each pair, where positions of three coordinates, [3, batch, seq], give one
            row for each token (Qwen 2 and 3 VL); without it each coordinate gives a row.
    """

    spec: Rotary
    form: Form
    padded: int = 0
    dtype: torch.dtype | None = None
    of_axes: Rotary | None = None

    def at(self, length: int | None) -> Rotary:
        """The code at a length in use."""
        scaling = self.spec.scaling
        if length is None or not isinstance(scaling, LongRope | Dynamic):
            return self.spec
        if isinstance(scaling, LongRope):
            length = scaling.original + (length > scaling.original)
        return replace(self.spec, length=length)

    def __call__(self, x: Tensor, position_ids: Tensor, length: int | None = None) -> Any:
        """Cosine and sine at positions [..., seq]: each [..., seq, channels], or one complex array."""
        like = x if x.dtype == torch.float64 else x.new_empty(0, dtype=torch.float32)
        position_ids = position_ids.to(x.device)
        if self.of_axes is not None and position_ids.ndim > 2:
            cosine, sine = cos_sin(self.of_axes, position_ids.movedim(0, -1), like=like)
        else:
            flat = position_ids.reshape(-1, position_ids.shape[-1])
            pair = cos_sin(self.at(length), flat, like=like)
            cosine, sine = (part.reshape(*position_ids.shape, -1) for part in pair)
        if self.padded:
            cosine = nn.functional.pad(cosine, (0, self.padded), value=1.0)
            sine = nn.functional.pad(sine, (0, self.padded))
        if self.form == "complex":
            return torch.complex(cosine, sine)
        dtype = self.dtype or x.dtype
        return tuple(_to_channels(part, self.form).to(dtype) for part in (cosine, sine))


def _to_channels(part: Tensor, form: Form) -> Tensor:
    """The values of pairs, repeated for both channels of each pair."""
    if form == "halves":
        return torch.cat((part, part), dim=-1)
    return part.repeat_interleave(2, dim=-1) if form == "interleaved" else part


def _shown(value: object) -> str:
    if not isinstance(value, Tensor):
        return shown(value)
    return f"a tensor of the shape {list(value.shape)} in {str(value.dtype).removeprefix('torch.')}"


def frequencies_of(spec: Rotary) -> Rotary:
    """The code reduced to what a rotary module of Transformers can compute: one row for each position."""
    return replace(spec, axes=None, blocks=(), direction="forward", xpos=None, reordered=False)


class ExactRotary(nn.Module):
    """The forward method of a rotary module of Transformers; what it returns is described by ``clockhands_output``."""

    clockhands_output: Mapping[str | None, RotaryOutput]
    clockhands_length: dict[str | None, int]

    @torch.no_grad()
    def forward(self, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> Any:
        """Cosine and sine for the positions of ``x``, in its dtype."""
        if layer_type not in self.clockhands_output:
            known = ", ".join(repr(kind) for kind in self.clockhands_output)
            raise InvalidValue(
                f"`layer_type` must be one of {known}, got {shown(layer_type)}.",
                "Pass the layer's entry of `config.layer_types`; layers of other types have no rotary encoding.",
            )
        if not isinstance(x, Tensor) or not x.is_floating_point():
            raise InvalidType(
                f"`x` must be a tensor of floats, got {_shown(x)}.",
                "Pass the hidden states: cosines and sines have their dtype and device.",
            )
        if not isinstance(position_ids, Tensor) or not position_ids.ndim:
            raise InvalidType(
                f"`position_ids` must be a tensor [batch, seq], got {_shown(position_ids)}.",
                "Pass for example torch.arange(length)[None].",
            )
        output = self.clockhands_output[layer_type]
        return output(x, position_ids, self._length(output.spec, position_ids, layer_type))

    def _length(self, spec: Rotary, position_ids: Tensor, layer_type: str | None) -> int | None:
        """The current length, for scalings that depend on it, derived from the positions as Transformers does."""
        if not isinstance(spec.scaling, LongRope | Dynamic):
            return None
        length = int(position_ids.max()) + 1
        if isinstance(spec.scaling, LongRope):
            return length
        # A dynamic scaling keeps the longest length so far until a text is shorter than the original length.
        original = spec.scaling.original
        longest = max(length, self.clockhands_length.get(layer_type, original))
        self.clockhands_length[layer_type] = longest = original if length < original else longest
        return longest


def rotary_by_kind(config: object) -> dict[str | None, Rotary]:
    """The code of each kind of layer; the key None has that of all layers, or of the first layer that has one."""
    spec = spec_of(config)
    mixed = spec if isinstance(spec, LayerMixture) else LayerMixture((spec,), (0,))
    rotary = [code for code in mixed.codes if isinstance(code, Rotary)]
    if not rotary:
        raise InvalidValue(
            f"{type(config).__name__} declares no rotary encoding.", "Give the config of a model that rotates."
        )
    found: dict[str | None, Rotary] = {None: rotary[0]}
    types = config.get("layer_types") if isinstance(config, Mapping) else getattr(config, "layer_types", None)
    for layer, kind in enumerate(types or ()):
        code = mixed.layer(layer)
        if isinstance(code, Rotary):
            found.setdefault(kind, code)
    return found
