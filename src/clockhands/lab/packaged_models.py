"""A pretrained model of a package as plain arrays, for code that computes it without PyTorch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from clockhands.encodings.rotary import Rotary
from clockhands.lab import _start as starts
from clockhands.lab import _tokens as tokens


@dataclass(frozen=True, eq=False)
class PackagedModel:
    """A decoder with RMSNorm, SwiGLU, rotary positions and tied embeddings.

    Attributes:
        name: The package.
        layers, width, heads, kv_heads, feed_forward: Its sizes.
        epsilon: What RMSNorm adds to the mean square.
        rotary: The position encoding that it was trained with.
        length: The length that it was trained for (token).
        weights: float32 by the name of the parameter; matrices have outputs first.
        tokens: Every token, in the order of their numbers.
        merges: The pairs of tokens that are joined, the first one first.
    """

    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    epsilon: float
    rotary: Rotary
    length: int
    weights: Mapping[str, np.ndarray] = field(repr=False)
    tokens: Sequence[str] = field(repr=False)
    merges: Sequence[tuple[str, str]] = field(repr=False)


def packaged_model(name: str) -> PackagedModel:
    """Read a model and its tokens from the files of its package, which is not imported.

    Args:
        name: ``glassllm``.

    Raises:
        InvalidValue: The package is not installed.
        Unreadable: A file is missing or damaged.
    """
    start, tokenizer = starts.read_start(name), tokens.read(name)
    sizes = {key: start.sizes[key] for key in ("layers", "width", "heads", "kv_heads", "feed_forward")}
    return PackagedModel(
        name,
        **sizes,
        epsilon=start.epsilon,
        rotary=Rotary(start.sizes["width"] // start.sizes["heads"], base=start.base, layout="interleaved"),
        length=start.length,
        weights={key: starts.weights(start, key) for key in start.tensors},
        tokens=tokenizer.tokens,
        merges=tokenizer.merges,
    )
