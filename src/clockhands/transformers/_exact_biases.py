"""Exact biases for Transformers models: ALiBi of BLOOM and MPT, and the relative-position buckets of the T5 family."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.encodings.biases import Alibi, Buckets
from clockhands.encodings.biases.matrices import row_numbers
from clockhands.transformers._exact_tables import RowsBeside


class ExactBloom(nn.Module):
    """BLOOM's model: a key's bias is the slope times the number of unpadded tokens before the key."""

    clockhands_spec: Alibi

    def build_alibi_tensor(self, attention_mask: Tensor, num_heads: int, dtype: torch.dtype) -> Tensor:
        """Biases [batch x heads, 1, keys]."""
        places = ((attention_mask.cumsum(dim=-1) - 1) * attention_mask)[:, None, :]
        return _lines(self.clockhands_spec, places).reshape(-1, 1, attention_mask.shape[-1]).to(dtype)


class ExactMpt(nn.Module):
    """MPT's model: the biases of the last query, up to the longest text."""

    clockhands_spec: Alibi

    def build_mpt_alibi_tensor(
        self, num_heads: int, sequence_length: int, alibi_bias_max: int = 8, device: Any = None
    ) -> Tensor:
        """Biases [heads, 1, keys]."""
        places = torch.arange(1 - sequence_length, 1, device=device)[None, None, :]
        return _lines(self.clockhands_spec, places)[0][:, None].float()


def _lines(spec: Alibi, places: Tensor) -> Tensor:
    """Slope times place, in float64 [batch, heads, keys]; it is rounded once afterwards."""
    slopes = torch.tensor(spec.slopes, dtype=torch.float64, device=places.device)
    return slopes[:, None] * places


class ExactBuckets(RowsBeside):
    """An attention module of the T5 family that looks buckets up instead of computing float32 logarithms."""

    clockhands_spec: Buckets

    def _relative_position_bucket(self, relative_position: Tensor, *_: Any, **__: Any) -> Tensor:
        """The bucket of each key position minus query position; T5's other arguments come from the spec."""
        far = self.clockhands_spec.max_distance
        return self.clockhands_rows[relative_position.clamp(-far, far) + far]


def buckets_of(spec: Buckets) -> np.ndarray:
    """The bucket of each distance from -max_distance to max_distance; farther distances use the end buckets."""
    keys = np.arange(-spec.max_distance, spec.max_distance + 1)
    return row_numbers(spec, np.zeros(1, np.int64), keys)[0].astype(np.int64)
