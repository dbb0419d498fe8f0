"""Rotation of NumPy arrays: written directly into the result; interleaved pairs are multiplied as complex numbers."""

import numpy as np

from clockhands.encodings.memory import refuse_larger
from clockhands.encodings.rotary._spec import Rotary
from clockhands.encodings.rotary.formula import in_cache, members, regions


def rotated_by_library(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, spec: Rotary) -> np.ndarray:
    """See `clockhands.rotary.formula.plain`, to which this is equal."""
    refuse_larger(x.shape, 2 * cosine.dtype.itemsize, "Rotating heads", "Rotate fewer at once.")
    work = np.asarray(x, cosine.dtype)
    out = np.empty(x.shape, cosine.dtype)
    if spec.rotated < spec.head_width:
        out[..., : spec.start] = work[..., : spec.start]
        out[..., spec.start + spec.rotated :] = work[..., spec.start + spec.rotated :]
    for channels, pairs in regions(spec):
        block, result, cos, sin = work[..., channels], out[..., channels], cosine[..., pairs], sine[..., pairs]
        if spec.layout == "interleaved" and not spec.reordered and block.strides[-1] == block.itemsize:
            kind = np.result_type(block.dtype, np.complex64)
            turn = np.empty(cos.shape, kind)
            turn.real, turn.imag = cos, sin
            np.multiply(block.view(kind), turn, out=result.view(kind))
            continue
        half = block.shape[-1] // 2
        kept = spec.layout == "interleaved" and not spec.reordered
        cos, sin = (np.broadcast_to(part, (*block.shape[:-1], half)) for part in (cos, sin))
        scratch = None
        for part in in_cache(block.shape):
            first, second = members(block[part], spec)
            into, beside = members(result[part], spec) if kept else (result[part][..., :half], result[part][..., half:])
            np.multiply(first, cos[part], out=into)
            scratch = np.multiply(second, sin[part], out=scratch)
            into -= scratch
            np.multiply(first, sin[part], out=beside)
            beside += np.multiply(second, cos[part], out=scratch)
    return out.astype(x.dtype, copy=False)
