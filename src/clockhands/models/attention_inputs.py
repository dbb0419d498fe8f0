"""Captures queries and keys as attention receives them, after the rotation, in every layer of a running model.

Attention is a product of queries and keys in every model: a call of PyTorch's ``scaled_dot_product_attention`` or
``flex_attention``, or a product of two arrays, also written as ``einsum``, whose result goes into a softmax in the same
module. A `TorchFunctionMode` sees all of them, so no model family needs special code. Queries, keys and scores can be
changed there.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from clockhands.encodings.dtypes import UNIT_ROUNDOFF
from clockhands.errors import InvalidValue
from clockhands.models.product_axes import ProductAxes, product_axes
from clockhands.models.running_models import runner

HIDDEN = -5_000.0
"""A score below is that of a key that is not seen: the oldest models subtract 10,000."""

FUSED = nn.functional.scaled_dot_product_attention
_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm)
PRODUCTS_WITH_SUM = (torch.baddbmm, Tensor.baddbmm)
_SUMS = (torch.add, Tensor.add, Tensor.__add__, Tensor.add_, Tensor.__iadd__)
MULTIPLICATIONS = (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)
SOFTMAX = (nn.functional.softmax, torch.softmax, Tensor.softmax)

_FLEX = "flex_attention"  # the name of the operator that PyTorch's function of this name calls

_OF_ANOTHER_TEXT = re.compile(r"EncDecAttention|cross_?att|encoder_attn", re.IGNORECASE)
"""Names of attention over the text of an encoder."""


@dataclass(frozen=True, eq=False)
class Attended:
    """What one layer's attention was given.

    Attributes:
        layer: Its number.
        path: The path of the attention module; of a model that computes all layers itself, with their number.
        queries: [batch, heads, tokens, channels].
        keys: [batch, heads of keys, tokens, channels].
        scores: The input of the softmax, [batch, heads, tokens, keys], if requested.
        product: Which product of the module it is; None for the fused function.
        held: Whether the input of its layer was held, as `clockhands.models.layer_inputs` does.
        summed: Whether it is the sum of two products, each of some channels of a head.
    """

    layer: int
    path: str
    queries: Tensor
    keys: Tensor
    scores: Tensor | None
    product: int | None
    held: bool = False
    summed: bool = False

    def distance(self, queries: Tensor, keys: Tensor) -> float:
        """How far its queries or keys are from others, as a share of their size."""
        return max(_distance(self.queries, queries), _distance(self.keys, keys))


def _distance(own: Tensor, other: Tensor) -> float:
    # Keys stand once for all their queries, or are repeated: some releases decide that by whether a mask is given.
    heads = max(own.shape[-3], other.shape[-3])
    own, other = (each.repeat_interleave(heads // each.shape[-3], -3) for each in (own, other))
    return float((own.float() - other.float()).norm() / other.float().norm().clamp_min(1e-30))


Turn = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]
"""From a layer's number, queries and keys to others."""

Add = Callable[[str, Tensor], Tensor]
"""From the path of an attention and its scores, which say the shape, to what is added to them."""


def module_path(path: str) -> str:
    """The path of the module that computes an attention.

    >>> module_path("layers.0:3"), module_path("layers.3.attention")
    ('layers.0', 'layers.3.attention')
    """
    return path.partition(":")[0]


def roundoff(dtype: torch.dtype) -> float:
    """The rounding of a number of this dtype, as a share; that of float32 for integers."""
    return UNIT_ROUNDOFF.get(str(dtype).removeprefix("torch."), 2.0**-24)


def fused_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `scaled_dot_product_attention` by their names."""
    return dict(zip(_ARGUMENTS, args, strict=False)) | dict(kwargs)


def fused_scores(given: Mapping[str, Any]) -> Tensor:
    """The scores that `scaled_dot_product_attention` computes with these arguments; those of hidden keys are -inf."""
    query, key, attn_mask, scale = given["query"], given["key"], given.get("attn_mask"), given.get("scale")
    heads = query.shape[-3] // key.shape[-3]
    of_keys = key.repeat_interleave(heads, -3) if heads > 1 else key
    scores = (query @ of_keys.transpose(-1, -2)).float() * (scale or query.shape[-1] ** -0.5)
    hidden = None
    if given.get("is_causal", False):
        hidden = ~torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        hidden = ~attn_mask
    elif attn_mask is not None:
        scores = scores + attn_mask
    return scores if hidden is None else scores.masked_fill(hidden, float("-inf"))


def inner(module: nn.Module) -> nn.Module:
    """The model inside a compiled or PEFT-wrapped one."""
    found: Any = getattr(module, "_orig_mod", module)
    base: Any = getattr(found, "get_base_model", None)
    found = found if base is None else base()
    return found if found is module else inner(found)


def is_compiled(module: nn.Module) -> bool:
    """Whether a model or a part of it was compiled by `torch.compile`."""
    return any(hasattr(each, "_orig_mod") or getattr(each, "_compiled_call_impl", None) for each in module.modules())


def uncompiled() -> Any:
    """A context in which compiled modules run their own Python code."""
    stance = getattr(torch.compiler, "set_stance", None)  # since PyTorch 2.6
    return nullcontext() if stance is None else stance("force_eager")


class _Watch(TorchFunctionMode):
    """Sees the products of a model while it runs."""

    def __init__(
        self, paths: Mapping[int, str], turn: Turn | None, add: Add | None, known: Sequence[Attended], *, scores: bool
    ) -> None:
        super().__init__()
        self.paths, self.turn, self.add, self.keep = paths, turn, add, scores
        self.known: dict[str, list[Attended]] = {}
        for each in known:
            self.known.setdefault(module_path(each.path), []).append(each)
        self.running: list[_Running] = []
        self.seen: list[Attended] = []
        self.batch = 1
        self.several = False

    def enter(self, module: nn.Module, _: Any) -> None:
        if id(module) in self.paths and not isinstance(module, nn.Softmax):
            self.running.append(_Running(module))

    def leave(self, module: nn.Module, _: Any, __: Any) -> None:
        while self.running and any(each.module is module for each in self.running):
            self.running.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.running:
            return func(*args, **kwargs)
        if func is FUSED:
            return self._fused(args, kwargs)
        if func in PRODUCTS and len(args) == 2:
            return self._product(func, *args)
        if func in PRODUCTS_WITH_SUM:
            given = dict(zip(("input", "batch1", "batch2"), args, strict=False)) | kwargs
            one, other = given.pop("batch1"), given.pop("batch2")
            return self._product(lambda a, b: torch.baddbmm(batch1=a, batch2=b, **given), one, other)
        if func is torch.einsum and not kwargs and (axes := product_axes(*args)) is not None:
            return self._product(lambda one, other: func(args[0], one, other), *args[1:], axes=axes)
        if func in SOFTMAX:
            return self._softmax(func, args, kwargs)
        if (func in _SUMS or func in MULTIPLICATIONS) and len(args) == 2:
            return self._combined(func, args, kwargs)
        if getattr(func, "__name__", "") == _FLEX and len(args) > 5:
            return self._flex(func, args, kwargs)
        return func(*args, **kwargs)

    def _of(self, running: "_Running") -> tuple[int, str] | None:
        """The layer of an attention over its own text, and its path."""
        module, path = running.module, self.paths[id(running.module)]
        if self.several:
            return running.attentions, f"{path}:{running.attentions}"
        number = getattr(module, "layer_idx", None)
        if not isinstance(number, int):
            found = re.search(r"(?:^|\.)(\d+)(?=\.|$)", path)
            number = None if found is None else int(found[1])
        other = getattr(module, "is_cross_attention", False) or _OF_ANOTHER_TEXT.search(path)
        return None if number is None or other else (number, path)

    def _note(
        self, where: tuple[int, str], queries: Tensor, keys: Tensor, scores: Any, product: int | None,
        *, summed: bool = False,
    ) -> None:  # fmt: skip
        kept = self._of_texts(scores).detach().float().clone() if self.keep else None
        queries, keys = self._of_texts(queries).detach(), self._of_texts(keys).detach()
        self.seen.append(Attended(*where, queries, keys, kept, product, summed=summed))
        self.running[-1].attentions += 1

    def _of_texts(self, array: Tensor) -> Tensor:
        """[batch, heads, tokens, channels], where batch and heads may be one axis, or heads several."""
        return array.unflatten(0, (self.batch, -1)) if array.ndim == 3 else array.flatten(1, -3)

    def _flex(self, func: Any, args: Any, kwargs: Any) -> Any:
        query, key, value, score_mod, block_mask, scale, *others = args
        where = self._of(self.running[-1])
        if where is None:
            return func(*args, **kwargs)
        scores = _flex_scores(query, key, score_mod, block_mask[-1], scale) if self.keep or self.add else None
        self._note(where, query, key, scores, None)
        if self.turn is not None:
            query, key = self.turn(where[0], query, key)
        if self.add is not None:
            added, kept = self.add(where[1], scores), score_mod  # type: ignore[arg-type]

            def score_mod(score: Tensor, batch: Tensor, head: Tensor, of: Tensor, to: Tensor) -> Tensor:
                return kept(score, batch, head, of, to) + added[batch % len(added), head, of, to]

        return func(query, key, value, score_mod, block_mask, scale, *others, **kwargs)

    def _fused(self, args: Any, kwargs: Any) -> Tensor:
        given = fused_arguments(args, kwargs)
        query, key = given["query"], given["key"]
        attn_mask, is_causal = given.get("attn_mask"), given.get("is_causal", False)
        where = self._of(self.running[-1])
        if where is not None:
            scores = fused_scores(given) if self.keep or self.add is not None else None
            self._note(where, query, key, scores, None)
            if self.turn is not None:
                query, key = self.turn(where[0], query, key)
            if self.add is not None:
                assert scores is not None
                added = self.add(where[1], scores).to(query.dtype)
                hidden = torch.zeros_like(scores).masked_fill(scores <= _hidden(scores), float("-inf"))
                if attn_mask is not None and attn_mask.is_floating_point():
                    added = added + attn_mask
                attn_mask, is_causal = (hidden + added).to(query.dtype), False
        given |= {"query": query, "key": key, "attn_mask": attn_mask, "is_causal": is_causal}
        return FUSED(**given)

    def _product(self, func: Any, one: Any, other: Any, *, axes: ProductAxes | None = None) -> Any:
        products, path = self.running[-1].products, self.paths[id(self.running[-1].module)]
        both = isinstance(one, Tensor) and isinstance(other, Tensor) and one.is_floating_point()
        alike = both and (axes is not None or (one.ndim >= 3 and other.ndim == one.ndim))
        if not alike or isinstance(other, nn.Parameter):
            return func(one, other)
        queries, keys = (one, other.mT) if axes is None else (axes.queries_of(one), axes.keys_of(other))
        own = next((each for each in self.known.get(path, ()) if each.product == len(products)), None)
        if self.turn is not None and own is not None:
            turned = self.turn(own.layer, *(self._of_texts(each) for each in (queries, keys)))
            new = [each.reshape(old.shape) for each, old in zip(turned, (queries, keys), strict=True)]
            one, other = (new[0], new[1].mT) if axes is None else axes.back(new[0], new[1], (one.shape, other.shape))
        made = func(one, other)
        products.append(_Product(queries, keys, made, axes))
        return made

    def _combined(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A product times a number, or the sum of two: a head whose channels are multiplied in two parts."""
        products = self.running[-1].products
        parts = [each for arg in args for each in products if each.made is arg]
        made = func(*args, **kwargs)
        if func in MULTIPLICATIONS and len(parts) == 1:
            (number,) = [arg for arg in args if arg is not parts[0].made]
            if isinstance(number, float | int):
                products.append(replace(parts[0], queries=parts[0].queries * number, made=made, derived=True))
        elif func in _SUMS and len(parts) == 2 and (both := parts[0].beside(parts[1], made)) is not None:
            products.append(both)
        return made

    def _softmax(self, func: Any, args: Any, kwargs: Any) -> Any:
        products, where = self.running[-1].products, self._of(self.running[-1])
        scores = args[0] if args else kwargs.get("input")
        if where is None or not isinstance(scores, Tensor) or scores.ndim < 3:
            return func(*args, **kwargs)
        fits = [each for each in products if each.gives(scores)]
        found = next((each for each in fits if each.summed), next((each for each in fits if not each.derived), None))
        if found is None:
            return func(*args, **kwargs)
        shape, number = found.made.shape, products.index(found)
        own = found.in_order(scores[..., : shape[-1]])
        self._note(where, found.queries, found.keys, own, number, summed=found.summed)
        if self.add is not None and found.axes is None:
            changed = self._of_texts(scores).clone()
            seen = changed[..., : shape[-1]]
            seen += self.add(where[1], seen).to(scores.dtype)
            args = (changed.reshape(scores.shape), *args[1:]) if args else args
            kwargs = kwargs if args else {**kwargs, "input": changed.reshape(scores.shape)}
        return func(*args, **kwargs)


@dataclass(eq=False)
class _Running:
    """A module whose forward pass runs, its products so far, and how many of them were of attention."""

    module: nn.Module
    products: list["_Product"] = field(default_factory=list)
    attentions: int = 0


@dataclass(frozen=True, eq=False)
class _Product:
    """A product that may be one of queries and keys.

    Attributes:
        queries: [..., tokens, channels].
        keys: [..., tokens, channels].
        made: The product.
        axes: Its axes, where it was written as ``einsum``.
        derived: Whether it is one of the others times a number, or a sum of others.
        summed: Whether it is a sum of two.
    """

    queries: Tensor
    keys: Tensor
    made: Tensor
    axes: ProductAxes | None
    derived: bool = False
    summed: bool = False

    def gives(self, scores: Tensor) -> bool:
        """Whether the input of a softmax has its shape; with one key more, for a sink."""
        more, shape = scores.shape[-1] - self.made.shape[-1], self.made.shape
        if self.axes is not None:
            return more in (0, 1) and scores.shape[:-1] == shape[:-1]
        return more in (0, 1) and scores.shape[-2] == shape[-2]

    def beside(self, other: "_Product", made: Tensor) -> "_Product | None":
        """The sum of both as one product of longer queries and keys; None where that is none."""
        if self.made.shape != other.made.shape or self.queries.shape[:-1] != other.queries.shape[:-1]:
            return None
        sides = ((self.queries, other.queries), (self.keys, other.keys))
        if any(one.ndim != another.ndim for one, another in sides):
            return None
        queries, keys = (torch.cat(_alike(one, another), dim=-1) for one, another in sides)
        return _Product(queries, keys, made, self.axes, derived=True, summed=True)

    def in_order(self, scores: Tensor) -> Tensor:
        """Scores of its shape as [..., tokens, keys]."""
        return scores if self.axes is None else self.axes.scores_of(scores)


def _alike(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Both with as many heads: keys of one head serve all."""
    shape = torch.broadcast_shapes(one.shape[:-1], other.shape[:-1])
    return one.expand(*shape, -1), other.expand(*shape, -1)


def _flex_scores(query: Tensor, key: Tensor, score_mod: Any, mask_mod: Any, scale: float) -> Tensor:
    """The scores that ``flex_attention`` computes; those of hidden keys are -inf."""
    scores = fused_scores({"query": query, "key": key, "scale": scale})
    batch, head, of, to = torch.meshgrid(
        *(torch.arange(size, device=scores.device) for size in scores.shape), indexing="ij"
    )
    return score_mod(scores, batch, head, of, to).masked_fill(~mask_mod(batch, head, of, to), float("-inf"))


def _hidden(scores: Tensor) -> float:
    return torch.finfo(scores.dtype).min / 2


def _side_by_side(seen: Sequence[Attended]) -> list[Attended]:
    """The records of calls with one text each as those of one call with all texts."""
    texts: dict[tuple[str, int | None], list[Attended]] = {}
    for each in seen:
        texts.setdefault((each.path, each.product), []).append(each)
    return [
        replace(
            own[0],
            queries=torch.cat([each.queries for each in own]),
            keys=torch.cat([each.keys for each in own]),
            scores=None
            if own[0].scores is None
            else torch.cat([each.scores for each in own if each.scores is not None]),
        )
        for own in texts.values()
    ]


@contextmanager
def attended(
    module: nn.Module,
    turn: Turn | None = None,
    add: Add | None = None,
    *,
    known: Sequence[Attended] = (),
    scores: bool = False,
) -> Iterator[list[Attended]]:
    """Record the inputs of attention in all passes while the context is open.

    Args:
        module: The model; one that is ``apart`` calls itself once for each text, and one with ``several`` computes the
            attention of all its layers in the forward pass of one module, one layer after the other.
        turn: Changes queries and keys before attention.
        add: Makes what is added to the scores.
        known: The records of an earlier pass, which say which product of each module ``turn`` changes.
        scores: Whether scores are kept.
    """
    watch = _Watch({id(each): path for path, each in module.named_modules()}, turn, add, known, scores=scores)
    watch.several = getattr(module, "several", False)

    def begins(_: nn.Module, args: Any, kwargs: Any) -> None:
        ids = args[0] if args else kwargs.get("input_ids")
        watch.batch = ids.shape[0] if isinstance(ids, Tensor) and not getattr(module, "apart", False) else 1
        watch.running.clear()
        started.append(len(watch.seen))

    def ends(_: nn.Module, __: Any, ___: Any) -> None:
        if getattr(module, "apart", False):
            watch.seen[started[-1] :] = _side_by_side(watch.seen[started[-1] :])

    started: list[int] = []
    with ExitStack() as stack:
        stack.enter_context(module.register_forward_pre_hook(begins, with_kwargs=True, prepend=True))
        stack.enter_context(module.register_forward_hook(ends))
        stack.enter_context(register_module_forward_pre_hook(watch.enter))
        stack.enter_context(register_module_forward_hook(watch.leave))
        stack.enter_context(uncompiled())
        stack.enter_context(watch)
        yield watch.seen


def attended_once(module: nn.Module, ids: Tensor, *, scores: bool = False) -> list[Attended]:
    """The inputs of attention in one pass; ``scores``: with its scores.

    Raises:
        InvalidValue: The model does not run on token ids, or no attention was seen.
    """
    try:
        with attended(module, scores=scores) as seen, torch.no_grad():
            runner(module)(ids)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidValue(
            f"{type(module).__name__} cannot be run on token ids alone: {str(error).splitlines()[0][:200]}.",
            "Probe its decoder, or a model that reads one text.",
        ) from error
    if not seen:
        raise InvalidValue(
            f"The attention of {type(module).__name__} cannot be reached: no layer calls scaled_dot_product_attention, "
            "or puts a product of queries and keys into a softmax.",
            "If it uses another kernel, load it with attn_implementation='sdpa' or 'eager'; docs/probing.md says which "
            "families are examined, and how attention of your own is reached.",
        )
    return seen
