"""What the installed Transformers makes of a config: ladders of its rotary modules, pairs of its code."""

import copy
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

# Rotary modules of other parts than the text, which lie in the same files.
ELSEWHERE = re.compile(r"Vision|Audio|Code2Wav|Talker|DiT|ViT")

# What DeepSeek-V4 calls the ladders of its kinds of layers.
LABELS = {"main": "sliding", "compress": "full"}

# The label of a module that has one ladder for all layers.
ALL = ""

KINDS: dict[str, str] = {
    "full_attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "none",
    "conv": "none",
    "mamba": "none",
    "hybrid": "full",
    "attention": "full",
    "indexed_attention": "full",
    "heavily_compressed_attention": "full",
    "compressed_sparse_attention": "full",
}


@dataclass(frozen=True)
class Ladder:
    """The rates of a module, in radians per token, and what it multiplies cosine and sine by."""

    rates: tuple[float, ...]
    factor: float


def read_config(values: Mapping[str, Any]) -> Any:
    """The config object that the library makes of a config file."""
    import transformers

    # A copy: the library writes into the objects that it is given.
    held = copy.deepcopy({key: value for key, value in values.items() if key != "model_type"})
    return transformers.CONFIG_MAPPING[values["model_type"]].from_dict(held)


def modeling(config: Any) -> Any:
    """The file with the code of a type."""
    package, _, name = type(config).__module__.rpartition(".")
    return importlib.import_module(f"{package}.{name.replace('configuration_', 'modeling_')}")


def rotary_module(config: Any) -> Any:
    """The rotary module of the text part of a type, made for this config."""
    import torch

    module = modeling(config)
    classes = [
        each
        for name, each in inspect.getmembers(module, inspect.isclass)
        if name.endswith("RotaryEmbedding") and each.__module__ == module.__name__ and issubclass(each, torch.nn.Module)
    ]
    named = type(config).__name__
    # A file may hold several: that whose config is this one comes first.
    classes.sort(key=lambda each: named not in str(inspect.signature(each.__init__)))
    return next(each for each in classes if not ELSEWHERE.search(each.__name__))(config)


@contextmanager
def in_double(values: Mapping[str, Any]) -> Iterator[None]:
    """The library's formulas for a config in double precision, where they ask for single: its rounding is no matter.

    A module that is imported meanwhile would hold the wrong types for as long as the process runs: the table of sizes
    in ``safetensors.torch`` would have no float32. So the code of the config's type is imported before.

    Raises:
        AssertionError: Another module was imported for the first time.
    """
    importlib.import_module("safetensors.torch")
    modeling(read_config(values))
    before = set(sys.modules)
    with float32_is_double():
        yield
    late = sorted(name for name in set(sys.modules) - before if name.partition(".")[0] not in sys.stdlib_module_names)
    assert not late, f"imported while float32 was float64, so import them before: {late}"


@contextmanager
def float32_is_double() -> Iterator[None]:
    """Whoever asks PyTorch for single precision gets double, and so does what is imported meanwhile."""
    import torch

    with pytest.MonkeyPatch.context() as patch:
        for name in ("float", "float32"):
            patch.setattr(torch, name, torch.float64)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def ladders(config: Any, length: int | None = None) -> dict[str, Ladder]:
    """The ladders of the text part by kind of layer, as they are after a sequence of that many tokens."""
    import torch

    rotary = rotary_module(config)
    labels = [name.removesuffix("inv_freq").rstrip("_") for name, _ in rotary.named_buffers() if "inv_freq" in name]
    labels = [label for label in dict.fromkeys(labels) if "original" not in label]
    if length is not None:
        positions = torch.tensor([[length - 1]])
        for label in labels:
            try:
                rotary(torch.zeros(1, 1, 2), positions, **({"layer_type": label} if label else {}))
            except (IndexError, RuntimeError):  # several axes
                rotary(torch.zeros(1, 1, 2), positions[None].expand(3, 1, 1))
    made = {}
    for label in labels:
        prefix = f"{label}_" if label else ""
        factor = getattr(rotary, f"{prefix}attention_scaling", None)
        rates = getattr(rotary, f"{prefix}inv_freq")
        made[label] = Ladder(
            tuple(float(rate) for rate in rates.ravel()),
            float(getattr(rotary, "attention_scaling", 1.0) if factor is None else factor),
        )
    return made


def pairing(config: Any) -> str:
    """``halves`` or ``interleaved``: which channels of a query the code of a type turns together.

    Two channels are a pair if they change the same channels of the result, wherever the code puts those.
    """
    import torch

    module, rotary = modeling(config), rotary_module(config)
    label, ladder = next(iter(ladders(config).items()))
    width = 2 * len(ladder.rates)
    # So far out that the slowest pair has moved, and in double precision, so that it shows.
    positions = torch.tensor([[10**6 + 1]])
    try:
        turns = rotary(torch.zeros(1, 1, width).double(), positions, **({"layer_type": label} if label else {}))
    except (IndexError, RuntimeError):
        turns = rotary(torch.zeros(1, 1, width).double(), positions[None].expand(3, 1, 1))
    function = _applied(module, config)

    def turned(query: torch.Tensor) -> torch.Tensor:
        if not isinstance(turns, tuple):  # complex numbers, for heads on the second axis from the end
            result = _first(function, query.transpose(1, 2), turns)
            return result.transpose(1, 2)
        return _first(function, query, *turns)

    query = torch.randn(1, 1, 1, width, dtype=torch.float64)
    before = turned(query)
    changed: dict[frozenset[int], list[int]] = {}
    for channel in range(width):
        moved = query.clone()
        moved[..., channel] += 1
        places = (turned(moved) - before).abs().flatten().gt(1e-9).nonzero().flatten().tolist()
        changed.setdefault(frozenset(places), []).append(channel)
    # A pair of rate 0 stands still: its channels change themselves alone.
    pairs = sorted(channels for channels in changed.values() if len(channels) > 1)
    if pairs and all(pair == [pair[0], pair[0] + width // 2] for pair in pairs):
        return "halves"
    if pairs and all(pair == [pair[0], pair[0] + 1] and pair[0] % 2 == 0 for pair in pairs):
        return "interleaved"
    return f"neither: {pairs[:4]}"


def kinds(config: Any) -> list[str] | None:
    """What each layer sees, where the config of the library says it."""
    listed: list[str] | None = getattr(config, "layer_types", None)
    return None if listed is None else [KINDS.get(name, name) for name in listed]


def _applied(module: Any, config: Any) -> Any:
    by_turns = getattr(module, "apply_rotary_pos_emb_interleave", None)
    if by_turns is not None and getattr(config, "rope_interleave", True) is not False:
        return by_turns
    return getattr(module, "apply_rotary_pos_emb", None) or module.apply_rotary_emb


def _first(function: Any, query: Any, *turns: Any) -> Any:
    """The query that comes back: some functions take it alone, some with a key."""
    parameters = list(inspect.signature(function).parameters)
    alone = len(parameters) < 2 or parameters[1] in ("cos", "freqs", "freqs_cis")
    result = function(query, *turns) if alone else function(query, query, *turns)
    return result[0] if isinstance(result, tuple) else result


def gaps(
    config: Any,
    found: Any,
    length: int | None = None,
    relative: float = 1e-6,
    theirs: Mapping[str, Ladder] | None = None,
) -> Iterator[str]:
    """Ladders of the library that the resolved codes of the text part do not have, and the other way round."""
    rotary = [code for code in found.codes if code.kind == "rotary" and code.part == "text"]
    theirs = ladders(config, length) if theirs is None else theirs
    listed = kinds(config)
    if listed is not None and len(theirs) > 1:
        # A module makes the ladders of all kinds, whether or not a layer is of that kind.
        theirs = {label: ladder for label, ladder in theirs.items() if LABELS.get(label, KINDS.get(label)) in listed}
    for label, ladder in theirs.items():
        if not any(same(code, ladder, relative) for code in rotary):
            ours = [
                (code.layers, code.rates and (len(code.rates), code.rates[-1]), code.attention_factor)
                for code in rotary
            ]
            yield f"{label or 'all'}: {len(ladder.rates)}, {ladder.rates[-1]}, {ladder.factor}; resolved {ours}"
    for code in rotary:
        if not any(same(code, ladder, relative) for ladder in theirs.values()):
            yield f"{code.layers}: no module of the library has the resolved ladder"


def same(code: Any, ladder: Ladder, relative: float) -> bool:
    """Whether a code has a ladder of the library, pair for pair."""
    if code.rates is None or code.attention_factor is None or len(code.rates) != len(ladder.rates):
        return False
    pairs = zip((*code.rates, code.attention_factor), (*ladder.rates, ladder.factor), strict=True)
    return all(abs(mine - other) <= relative * abs(other) for mine, other in pairs)
