"""Exact position tables for Transformers models: sinusoids, and the sines and cosines of GPT-J."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.encodings.additive import Sinusoidal, table
from clockhands.encodings.rotary import Rotary, cos_sin


def exact_rows(spec: Sinusoidal | Rotary, like: Tensor) -> Tensor:
    """Exact rows of positions 0, 1, 2, … in the shape of another table, [rows, width], rounded once to its dtype.

    For a rotary code a row is all sines and then all cosines. A row that is zero in ``like``, such as fairseq's row for
    padding, stays zero.
    """
    wide = torch.zeros(0, dtype=torch.float64)
    if isinstance(spec, Rotary):
        pair = cos_sin(spec.at_original, np.arange(len(like)), like=wide)
        rows = torch.cat((pair.sine, pair.cosine), dim=-1)
    else:
        rows = torch.from_numpy(np.asarray(table(spec, len(like), dtype="float64")))
    rows = rows.to(device=like.device, dtype=like.dtype)
    return torch.where((like != 0).any(dim=-1, keepdim=True), rows, torch.zeros_like(rows))


class ExactTable(nn.Module):
    """A module that keeps its table in a buffer, ``weights``, and extends it for longer texts (fairseq's classes)."""

    clockhands_spec: Sinusoidal

    def get_embedding(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None) -> Tensor:
        """The table, with a row of zeros for padding."""
        like = torch.ones(num_embeddings, embedding_dim, dtype=torch.get_default_dtype())
        if padding_idx is not None:
            like[padding_idx] = 0
        return exact_rows(self.clockhands_spec, like)


class ExactAttentionTable(nn.Module):
    """An attention module that keeps sines and cosines of all positions in a buffer (GPT-J, CodeGen)."""


class RowsBeside(nn.Module):
    """A part with an additional table, in a buffer that is not saved and moves to devices with the part.

    ``to_empty`` leaves buffers uninitialised, and casting twice rounds twice: after either, the table is filled again.
    """

    clockhands_rows: Tensor
    clockhands_numbers: np.ndarray

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        moved = super()._apply(fn, recurse)
        if not self.clockhands_rows.is_meta:
            with torch.no_grad():
                self.clockhands_rows.copy_(torch.from_numpy(self.clockhands_numbers))
        return moved


class ExactRows(RowsBeside, nn.Embedding):
    """An embedding whose weights are a sinusoid and are saved: rows are looked up in an exact table beside them."""

    def forward(self, input: Tensor) -> Any:  # noqa: A002 - PyTorch's own name
        """The rows of the given positions."""
        return nn.functional.embedding(input, self.clockhands_rows)
