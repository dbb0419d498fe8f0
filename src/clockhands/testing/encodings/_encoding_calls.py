"""Calls of an encoding through the protocol, with arrays of its own library, and the scores that follow from them."""

import copy
import sys
import types
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from clockhands.encodings.protocols import ModelSizes, accepted, methods_of
from clockhands.recognition.calling import ForeignFunction, Refused, likely_libraries, refusals
from clockhands.testing.reports import CannotCheck

BATCH = 2


@dataclass(frozen=True)
class DrawnTokens:
    """Tokens that an encoding is called with.

    Attributes:
        x: States, [batch, seq, width].
        q, k: Queries and keys before any rotation, [batch, heads, seq, head_width].
        positions: [seq].
    """

    x: np.ndarray
    q: np.ndarray
    k: np.ndarray
    positions: np.ndarray

    def only(self, rows: Any) -> "DrawnTokens":
        """These tokens alone, or in this order."""
        return DrawnTokens(self.x[:, rows], self.q[:, :, rows], self.k[:, :, rows], self.positions[rows])

    def sequences(self, rows: slice) -> "DrawnTokens":
        """These sequences of the batch alone."""
        return DrawnTokens(self.x[rows], self.q[rows], self.k[rows], self.positions)

    def at(self, positions: np.ndarray) -> "DrawnTokens":
        """The same tokens at other positions."""
        return replace(self, positions=np.asarray(positions))


def drawn_tokens(sizes: ModelSizes, positions: Any, seed: int = 0, batch: int = BATCH) -> DrawnTokens:
    """Tokens with normal numbers, rounded so that every dtype represents them exactly."""
    generator = np.random.default_rng([seed, 0x9D])
    at = np.asarray(positions, np.int64)

    def normal(*shape: int) -> np.ndarray:
        return np.clip(np.round(generator.standard_normal(shape) * 16), -64, 64) / 16

    head = batch, sizes.heads, len(at), sizes.head_width
    return DrawnTokens(normal(batch, len(at), sizes.width), normal(*head), normal(*head), at)


class EncodingCalls:
    """An encoding, called with arrays of its library.

    Attributes:
        encoding: The object; a copy in evaluation mode of a module, so that nothing is dropped at random.
        sizes: The sizes of the tokens that it is called with.
        methods: Its methods of the protocol.
        library: The name of the library of its arrays.
        other_dtypes: By the dtype of the tokens, what came back in another one.
    """

    def __init__(self, encoding: Any, sizes: ModelSizes, backend: Any = None, timeout: float | None = 60.0) -> None:
        self.encoding: Any = _as_evaluated(encoding)
        self.sizes: ModelSizes = sizes
        self.methods: tuple[str, ...] = methods_of(encoding)
        self.other_dtypes: dict[str, str] = {}
        self._foreign = {
            name: ForeignFunction(getattr(self.encoding, name), "float32", timeout) for name in self.methods
        }
        few = drawn_tokens(sizes, range(4))
        tried: list[tuple[str, Refused]] = []
        for name in _libraries(encoding, self.methods) if backend is None else (backend,):
            for each in self._foreign.values():
                refused = each.find_library(name, partial(self._once, few))
                if refused:
                    tried += refused
                    break
            else:
                break
        else:
            raise CannotCheck(
                f"{type(encoding).__name__} was called with 4 tokens, but {refusals(tried)}.",
                "See clockhands.encodings.protocols for the arguments of each method, and what it returns.",
            )
        self.library: str = next(iter(self._foreign.values())).library.name

    def _once(self, few: DrawnTokens) -> None:
        """Every method once, all with the library that the first one has just been given."""
        library = next(each.library for each in self._foreign.values() if hasattr(each, "library"))
        for each in self._foreign.values():
            each.library = library
        if self.adds:
            self.added(few)
        if self.scored:
            self.scores(few)

    @property
    def adds(self) -> bool:
        """Whether it is added to the tokens."""
        return bool({"embed", "add"} & set(self.methods))

    @property
    def scored(self) -> bool:
        """Whether it changes the scores."""
        return bool({"rotate", "bias", "scores"} & set(self.methods))

    @property
    def causal(self) -> bool:
        """Whether a number depends on no later token."""
        return bool(getattr(self.encoding, "causal", True))

    @property
    def cache(self) -> str:
        """What decoding keeps of past tokens."""
        return getattr(self.encoding, "cache", "keys")

    @property
    def by_nature(self) -> Mapping[str, str]:
        """The laws that it says it does not keep, with the reasons."""
        return getattr(self.encoding, "by_nature", {})

    @cached_property
    def learned_in(self) -> frozenset[str]:
        """The dtypes of its learned numbers, to which PyTorch promotes tokens of lower precision."""
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(self.encoding, torch.nn.Module):
            return frozenset()
        return frozenset(str(each.dtype).removeprefix("torch.") for each in self.encoding.parameters())

    def held_numbers(self) -> dict[str, str]:
        """Tensors of real numbers that a PyTorch module holds, by name: ``parameter`` or ``buffer``."""
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(self.encoding, torch.nn.Module):
            return {}
        parts = {"parameter": self.encoding.named_parameters(), "buffer": self.encoding.named_buffers()}
        return {name: part for part, held in parts.items() for name, each in held if each.is_floating_point()}

    def cast(self, names: Collection[str]) -> "EncodingCalls":
        """A copy of a PyTorch module that was cast to bfloat16, except for the tensors that are not named."""
        import torch

        coarse = copy.deepcopy(self.encoding).to(torch.bfloat16)
        exact = {**dict(self.encoding.named_parameters()), **dict(self.encoding.named_buffers())}
        for name, each in (*coarse.named_parameters(), *coarse.named_buffers()):
            if name not in names:
                each.data = exact[name].detach().clone()
        foreign = {}
        for name, held in self._foreign.items():
            foreign[name] = ForeignFunction(getattr(coarse, name), "float32", held.timeout)
            foreign[name].library = held.library
        calls = copy.copy(self)
        vars(calls).update(encoding=coarse, other_dtypes={}, _foreign=foreign)
        vars(calls).pop("learned_in", None)  # of the encoding as it was
        return calls

    @property
    def changed(self) -> set[str]:
        """Arguments that it changed, by the method and their names."""
        return {f"{name}'s {one}" for name, each in self._foreign.items() for one in each.changed}

    @property
    def overwrites(self) -> bool:
        """Whether a call changed what an earlier call had returned."""
        return any(each.overwrites for each in self._foreign.values())

    @property
    def calls(self) -> int:
        """Number of calls."""
        return sum(each.calls for each in self._foreign.values())

    def added(self, tokens: DrawnTokens, dtype: str = "float32") -> np.ndarray:
        """The tokens [batch, seq, width] with their positions."""
        if "add" in self.methods:
            given = {"x": self._floats("add", tokens.x, dtype), "positions": self._whole("add", tokens.positions)}
            return self._array("add", self._ask("add", given), tokens.x.shape, dtype)
        width = tokens.x.shape[-1]
        rows = self._ask("embed", {"positions": self._whole("embed", tokens.positions), "width": width})
        return tokens.x + self._array("embed", rows, (len(tokens.positions), width), "float32")

    def rotated(self, tokens: DrawnTokens, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
        """Queries and keys [batch, heads, seq, head_width] with their positions."""
        if "rotate" not in self.methods:
            return tokens.q, tokens.k
        given = {
            "q": self._floats("rotate", tokens.q, dtype),
            "k": self._floats("rotate", tokens.k, dtype),
            "positions": self._whole("rotate", tokens.positions),
        }
        both = self._ask("rotate", given, x=self._floats("rotate", tokens.x, dtype))
        if not isinstance(both, tuple | list) or len(both) != 2:
            raise Refused(f"`rotate` returned {type(both).__name__}, not queries and keys")
        shape = tokens.q.shape[:3]
        q, k = (self._array("rotate", each, (*shape, None), dtype) for each in both)
        return q, k

    def biased(self, tokens: DrawnTokens, rows: Any = slice(None), dtype: str = "float32") -> np.ndarray:
        """The numbers [batch, heads, queries, keys] that are added to the scores of these rows."""
        queries = tokens.only(rows)
        many, most = len(queries.positions), len(tokens.positions)
        batch, heads = tokens.q.shape[:2]
        if "bias" not in self.methods:
            return np.zeros((batch, heads, many, most))
        given = {
            "q_positions": self._whole("bias", queries.positions),
            "k_positions": self._whole("bias", tokens.positions),
            "heads": heads,
        }
        more = {
            name: self._floats("bias", held, dtype)
            for name, held in zip("qkx", (queries.q, tokens.k, tokens.x), strict=True)
        }
        made = self._array("bias", self._ask("bias", given, **more), None, dtype)
        if made.shape not in ((heads, many, most), (batch, heads, many, most), (1, heads, many, most)):
            raise Refused(
                f"`bias` returned shape {list(made.shape)} for {many} queries, {most} keys and {heads} heads, not "
                "[heads, queries, keys] or [batch, heads, queries, keys]"
            )
        return np.broadcast_to(made, (batch, heads, many, most))

    def scores(self, tokens: DrawnTokens, dtype: str = "float32") -> np.ndarray:
        """What enters the softmax, [batch, heads, queries, keys], by `rotate` and `bias`, else by `scores`."""
        if not {"rotate", "bias"} & set(self.methods):
            return self.exact_scores(tokens, dtype=dtype)
        q, k = self.rotated(tokens, dtype)
        return self._product(q, k) + self.biased(tokens, dtype=dtype)

    def exact_scores(self, tokens: DrawnTokens, rows: Any = slice(None), dtype: str = "float32") -> np.ndarray:
        """What enters the softmax for these rows, by the method ``scores``."""
        queries = tokens.only(rows)
        given = {
            "q": self._floats("scores", queries.q, dtype),
            "k": self._floats("scores", tokens.k, dtype),
            "q_positions": self._whole("scores", queries.positions),
            "k_positions": self._whole("scores", tokens.positions),
        }
        made = self._ask("scores", given, x=self._floats("scores", tokens.x, dtype))
        return self._array("scores", made, (*queries.q.shape[:3], len(tokens.positions)), dtype)

    def decoded_scores(self, tokens: DrawnTokens, first: int) -> np.ndarray:
        """The scores of tokens ``first`` to the last as decoding gives them; not a number at later keys."""
        length = len(tokens.positions)
        out = np.full((*tokens.q.shape[:2], length - first, length), np.nan)
        kept = self.rotated(tokens.only(slice(first)))[1] if first else None
        for row in range(first, length):
            past = tokens.only(slice(row + 1))
            if self.cache == "tokens":
                seen = self.scores(past)[:, :, -1]
            elif not {"rotate", "bias"} & set(self.methods):
                seen = self.exact_scores(past, slice(row, row + 1))[:, :, 0]
            else:
                q, k = self.rotated(tokens.only(slice(row, row + 1)))
                kept = k if kept is None else np.concatenate([kept, k], axis=2)
                seen = (self._product(q, kept) + self.biased(past, slice(row, row + 1)))[:, :, 0]
            out[:, :, row - first, : row + 1] = seen
        return out

    def native(self, tokens: DrawnTokens, dtype: str) -> dict[str, Any]:
        """The tokens as arrays of the library, for experiments with gradients."""
        library = next(iter(self._foreign.values())).library
        return {name: library.floats(getattr(tokens, name), dtype) for name in ("x", "q", "k")} | {
            "positions": library.positions(tokens.positions)
        }

    def _product(self, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        return q @ np.swapaxes(k, -1, -2) / np.sqrt(self.sizes.head_width)

    def _floats(self, method: str, array: np.ndarray, dtype: str) -> Any:
        return self._foreign[method].library.floats(array, dtype)

    def _whole(self, method: str, positions: np.ndarray) -> Any:
        return self._foreign[method].library.positions(positions)

    def _ask(self, method: str, given: dict[str, Any], **optional: Any) -> Any:
        foreign, bound = self._foreign[method], getattr(self.encoding, method)
        more = accepted(bound, **optional)
        names = list(more)

        def called(*values: Any) -> Any:
            return bound(*values[: len(given)], **dict(zip(names, values[len(given) :], strict=True)))

        foreign.function = called
        return foreign.ask({**given, **more}, BATCH)

    def _array(self, method: str, answer: Any, shape: Any, dtype: str) -> np.ndarray:
        """An answer as float64, of this shape (None is any number); one in another dtype than its input is noted.

        Tokens, queries and keys keep their dtype. Rows, biases and scores may be more precise, but not less.
        """
        foreign = self._foreign[method]
        made = foreign.numbers(foreign.array_or_refuse(answer, f"{type(answer).__name__} from `{method}`"))
        if shape is not None and (
            made.ndim != len(shape) or any(size not in (None, got) for size, got in zip(shape, made.shape, strict=True))
        ):
            wanted = "[" + ", ".join("any" if size is None else str(size) for size in shape) + "]"
            raise Refused(f"`{method}` returned shape {list(made.shape)}, not {wanted}")
        held = foreign.library.held(dtype)
        kept = foreign.output in {held, *self.learned_in}
        finer = method in ("embed", "bias", "scores") and _BITS.get(foreign.output, 64) > _BITS[held]
        if not (kept or finer):
            self.other_dtypes.setdefault(dtype, f"`{method}` returned {foreign.output} for {dtype}")
        return made


_BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""Bits of the significand of each dtype."""


def _as_evaluated(encoding: Any) -> Any:
    """A copy of a module in evaluation mode; any other object itself."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(encoding, torch.nn.Module):
        return encoding
    return copy.deepcopy(encoding).eval()


def _libraries(encoding: Any, methods: tuple[str, ...]) -> list[str]:
    """The libraries to try: those that the code of its class refers to, then those that its file imports."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(encoding, torch.nn.Module):
        return ["torch"]
    functions = [
        each for kind in type(encoding).__mro__ for each in vars(kind).values() if isinstance(each, types.FunctionType)
    ]
    named = [each.__globals__.get(name) for each in functions for name in each.__code__.co_names]
    imported = list(vars(sys.modules[type(encoding).__module__]).values())
    found: dict[str, None] = {}
    for things in (named, imported):
        homes = {thing.__name__.partition(".")[0] for thing in things if isinstance(thing, types.ModuleType)}
        found |= dict.fromkeys(name for name in ("torch", "jax", "numpy") if name in homes)
    return list(found | dict.fromkeys(likely_libraries(getattr(encoding, methods[0]))))
