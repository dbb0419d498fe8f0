"""What a class of the installed Transformers computes: RoPE frequencies, layout, and the layers with a window."""

import inspect
import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.models.class_modules import (
    PositionModules,
    class_default,
    config_keys,
    is_number,
    modeling_code,
    own_modules,
)
from clockhands.models.class_readings import ClassLadder

# Rotary modules of other parts than the text, which lie in the same files.
_ELSEWHERE = re.compile(r"Vision|Audio|Code2Wav|Talker|DiT|ViT")


def rotary_module(config: Any) -> Any:
    """The rotary module of the text part of a type, made for this config.

    Raises:
        StopIteration: The code of the type has none.
    """
    code = modeling_code(config)
    classes = [
        each
        for name, each in inspect.getmembers(code, inspect.isclass)
        if name.endswith("RotaryEmbedding") and each.__module__ == code.__name__ and issubclass(each, nn.Module)
    ]
    named = type(config).__name__
    # A file may hold several: that whose config is this one comes first.
    classes.sort(key=lambda each: named not in str(inspect.signature(each.__init__)))
    return next(each for each in classes if not _ELSEWHERE.search(each.__name__))(config)


def ladders(rotary: nn.Module, length: int | None = None) -> dict[str, ClassLadder]:
    """The frequencies of a rotary module by kind of layer; ``""`` for all layers.

    Args:
        rotary: The module.
        length: Tokens of a sequence that the module is called for before; None calls it for none.
    """
    labels = [name.removesuffix("inv_freq").rstrip("_") for name, _ in rotary.named_buffers() if "inv_freq" in name]
    labels = [label for label in dict.fromkeys(labels) if "original" not in label]
    made = {}
    for label in labels:
        if length is not None:
            cosine_sine(rotary, torch.zeros(1, 1, 2), torch.tensor([[length - 1]]), label)
        prefix = f"{label}_" if label else ""
        factor = getattr(rotary, f"{prefix}attention_scaling", None)
        rates = getattr(rotary, f"{prefix}inv_freq").double()
        factor = getattr(rotary, "attention_scaling", 1.0) if factor is None else factor
        made[label] = ClassLadder(tuple(map(float, rates.ravel())), float(factor), label, type(rotary).__name__)
    return made


def layout(config: Any) -> str:
    """``halves`` or ``interleaved``: which channels of a query the code of the text part of a type rotates together."""
    rotary = rotary_module(config)
    label = next(iter(ladders(rotary)))
    return layout_of(rotary, label, _rotation(modeling_code(config), config))


def direction(config: Any) -> str | None:
    """``forward`` or ``backward``: which way the code of the text part of a type rotates queries."""
    rotary, function = rotary_module(config), _rotation(modeling_code(config), config)
    label = next(iter(ladders(rotary)))
    return direction_of(rotary, label, function, layout_of(rotary, label, function))


def layout_of(rotary: nn.Module, label: str, function: Callable[..., Any]) -> str:
    """``halves`` or ``interleaved``: which channels of a query a function rotates together.

    Two channels are a pair if they change the same channels of the result, wherever the code puts those.

    Args:
        rotary: The module that makes the cosines and sines.
        label: The kind of layers for which it makes them.
        function: The function that takes queries, and cosines and sines.
    """
    # So far out that the slowest pair has moved, and in double precision, so that it shows.
    rotated, width = _rotated(rotary, label, function, 10**6 + 1)
    query = torch.randn(1, 1, 1, width, dtype=torch.float64)
    before = rotated(query)
    changed: dict[frozenset[int], list[int]] = {}
    for channel in range(width):
        moved = query.clone()
        moved[..., channel] += 1
        places = (rotated(moved) - before).abs().flatten().gt(1e-9).nonzero().flatten().tolist()
        changed.setdefault(frozenset(places), []).append(channel)
    # A pair of rate 0 stands still: its channels change themselves alone.
    pairs = sorted(channels for channels in changed.values() if len(channels) > 1)
    if pairs and all(pair == [pair[0], pair[0] + width // 2] for pair in pairs):
        return "halves"
    if pairs and all(pair == [pair[0], pair[0] + 1] and pair[0] % 2 == 0 for pair in pairs):
        return "interleaved"
    return f"neither: {pairs[:4]}"


def direction_of(rotary: nn.Module, label: str, function: Callable[..., Any], paired: str) -> str | None:
    """``forward`` or ``backward``: which way a function rotates queries; None if it rotates none.

    At position 1 the first channel of a pair becomes its cosine and plus its sine, the second one its cosine and minus
    its sine, wherever the code puts them; a phase of at most 1 rad has a positive sine.

    Args:
        rotary: As in `layout_of`, with ``label`` and ``function``.
        label: The kind of layers.
        function: The function.
        paired: The layout of the queries that it takes.
    """
    rotated, width = _rotated(rotary, label, function, 1)
    second = torch.arange(width) % 2 == 1 if paired == "interleaved" else torch.arange(width) >= width // 2
    of_first, of_second = (float(rotated(each.double().expand(1, 1, 1, -1)).sum()) for each in (~second, second))
    if of_first == of_second:
        return None
    return "forward" if of_first > of_second else "backward"


def _rotated(
    rotary: nn.Module, label: str, function: Callable[..., Any], position: int
) -> tuple[Callable[[Tensor], Tensor], int]:
    """The rotation of a query at a position by a function, and how many channels it takes."""
    waves = cosine_sine(rotary, torch.zeros(1, 1, 2).double(), torch.tensor([[position]]), label)
    width = waves[0].shape[-1] if isinstance(waves, tuple) else 2 * waves.shape[-1]

    def rotated(query: Tensor) -> Tensor:
        if not isinstance(waves, tuple):  # complex numbers, for heads on the second axis from the end
            return _first(function, query.transpose(1, 2), waves).transpose(1, 2)
        return _first(function, query, *waves)

    try:
        rotated(torch.zeros(1, 1, 1, width, dtype=torch.float64))
    except RuntimeError:  # one cosine for each pair, as in gpt-oss
        width *= 2
    return rotated, width


def cosine_sine(rotary: nn.Module, like: Tensor, positions: Tensor, label: str) -> Any:
    """What a rotary module returns for a position, on each of the axes of M-RoPE or of an image if it takes several."""
    kind = {"layer_type": label} if label else {}
    for taken in (positions, positions[None].expand(3, 1, 1)):
        with suppress(IndexError, RuntimeError):
            return rotary(like, taken, **kind)
    return rotary(like, positions.expand(1, 2))


def axes_of(rotary: nn.Module) -> tuple[tuple[int, float], ...] | None:
    """The axis of an image that the angle of each channel follows, and the angle of one step along it.

    None if the module takes no rows and columns, or an angle follows both.
    """
    places = torch.tensor([[0, 0], [1, 0], [0, 1]])
    try:
        try:
            cosine, sine = rotary(torch.zeros(1), places)
        except (IndexError, RuntimeError):  # it takes a batch
            cosine, sine = rotary(torch.zeros(1), places[None])
        angles = torch.atan2(sine.double(), cosine.double()).reshape(3, -1)
    except Exception:  # noqa: BLE001 - a module that takes something else
        return None
    steps = (angles[1:] - angles[0]).T.tolist()
    if any((row == 0) == (column == 0) for row, column in steps):
        return None
    return tuple((0, row) if row else (1, column) for row, column in steps)


def _rotation(code: Any, config: Any) -> Callable[..., Any]:
    """The function by which the code of a type rotates queries and keys."""
    by_turns = getattr(code, "apply_rotary_pos_emb_interleave", None)
    if by_turns is not None and getattr(config, "rope_interleave", True) is not False:
        return by_turns
    return getattr(code, "apply_rotary_pos_emb", None) or code.apply_rotary_emb


def _first(function: Callable[..., Any], query: Tensor, *waves: Tensor) -> Tensor:
    """The query that comes back: some functions take it alone, some with a key."""
    parameters = list(inspect.signature(function).parameters)
    alone = len(parameters) < 2 or parameters[1] in ("cos", "freqs", "freqs_cis")
    result = function(query, *waves) if alone else function(query, query, *waves)
    return result[0] if isinstance(result, tuple) else result


def windowed_layers(found: PositionModules, config: Any) -> set[int]:
    """The layers that see a window, by the list of the config or by the code of the class."""
    listed, count = getattr(config, "layer_types", None), class_default(config, config_keys(config, "layers"))
    if listed is not None:
        return {layer for layer, kind in enumerate(listed) if kind == "sliding_attention"}
    if not is_number(getattr(config, "sliding_window", None)) or not isinstance(count, int):
        return set()
    kinds = {type(module) for _, module in own_modules(found.model, [])}
    code = modeling_code(found.config).__name__
    return set(range(count)) if any(_uses_window(kind) for kind in kinds if kind.__module__ == code) else set()


def window_areas(modules: Sequence[nn.Module], config: Any) -> tuple[tuple[int, int] | None, ...] | None:
    """The window of an image that each layer of a part sees, in patches; None if no module keeps it.

    Layers keep a number of patches, 0 for the whole image. Qwen's towers keep one number of pixels and a list of the
    layers that see the whole image; a function of the library cuts the windows.
    """
    layers = [each for each in modules if re.search("Layer$|Block$", type(each).__name__)]
    kept = [size for each in layers if isinstance(size := getattr(each, "window_size", None), int)]
    if kept:
        return tuple((size, size) if size else None for size in kept)
    full, code = getattr(config, "fullatt_block_indexes", None), modeling_code(config)
    cut = getattr(code, "get_vision_window_index", None)
    if full is None or cut is None:
        return None
    merge, size = config.spatial_merge_size, config.window_size // config.patch_size
    _, ends = cut(torch.tensor([[1, 4 * size, 4 * size]]), merge, config.window_size, config.patch_size)
    side = math.isqrt(int(ends[1] - ends[0]))
    count = class_default(config, config_keys(config, "layers"))
    return tuple(None if layer in full else (side, side) for layer in range(count))


@cache
def _uses_window(kind: type) -> bool:
    """Whether the code of a class has to do with a window; a module may keep its size and use it nowhere."""
    return "sliding_window" in re.sub(r"self\.sliding_window = .*", "", inspect.getsource(kind))
