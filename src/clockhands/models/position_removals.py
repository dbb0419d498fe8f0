"""Where positions enter the layers of Transformers models, by family as data, and hooks that remove them.

A family is found by the names in its code. To add one, add a row to one of three tables: `HANDED` for arguments of
every attention (rotation, biases), `TABLES` for modules that compute a row for each position which is added to tokens,
`KEPT` for what every attention stores itself.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clockhands.errors import InvalidValue
from clockhands.models.layer_stacks import Run

Removal = Literal["off", "zeroed", "averaged"]


def _unrotated(waves: Any) -> Any:
    cosine, sine = waves
    return torch.ones_like(cosine), torch.zeros_like(sine)


def _no_bias(bias: Tensor) -> Tensor:
    # T5 of Transformers 5.0 and before hands on the sum of bias and mask: keys that the mask hides stay hidden.
    return torch.where(_hides(bias), bias, torch.zeros_like(bias))


def _hides(mask: Tensor) -> Tensor:
    return mask <= torch.finfo(mask.dtype).min / 2


HANDED: Mapping[str, tuple[str, Callable[[Any], Any], str]] = {
    "alibi": ("ALiBi", _no_bias, "BLOOM, Falcon with ALiBi"),
    "position_bias": ("relative bias", _no_bias, "MPT, T5, MT5, UMT5"),
    "position_embeddings": ("rotary", _unrotated, "Llama, Mistral, Qwen, Gemma, GPT-NeoX, Phi, OLMo, SmolLM, Falcon"),
}
"""Argument of an attention: the code, what it is without positions, and families that have it."""

TABLES: Mapping[str, str] = {
    "wpe": "GPT-2, GPT-BigCode, ImageGPT",
    "position_embeddings": "BERT, RoBERTa, DistilBERT, ELECTRA, MPNet, ALBERT",
    "embed_positions": "OPT, BART, Marian, Pegasus, XGLM, BioGPT",
    "position_embedding": "CLIP's text model, SigLIP's text model",
    "positions_embed": "OpenAI GPT",
}
"""Name of a module that makes the rows added to tokens, learned or sinusoids, and families that have it."""

KEPT: Mapping[str, str] = {"embed_positions": "GPT-J, CodeGen"}
"""Name of a buffer of an attention with sines and then cosines of each position, and families that have it."""


@dataclass(frozen=True, eq=False)
class Reached:
    """One position code of a model, at a place where it can be removed.

    Attributes:
        code: ``rotary``, ``ALiBi``, ``relative bias`` or ``table``.
        modules: The attention modules that it reaches in order, or the table.
        name: The argument, the module or the buffer.
        kind: Which of the three tables above has the name.
    """

    code: str
    modules: tuple[nn.Module, ...]
    name: str
    kind: Literal["handed", "table", "kept"]

    @property
    def removals(self) -> tuple[Removal, ...]:
        """The ways in which it can be removed."""
        return ("zeroed", "averaged") if self.kind == "table" else ("off",)

    @property
    def layers(self) -> int:
        """In how many layers it can be removed separately; 0 for a code that is added before the first layer."""
        return 0 if self.kind == "table" else len(self.modules)

    @contextmanager
    def removed(self, how: Removal = "off", layers: Sequence[int] | None = None) -> Iterator[None]:
        """Remove the code, in the whole model or in some layers."""
        chosen = self.modules if layers is None else [self.modules[number] for number in layers]
        with ExitStack() as stack:
            for module in chosen:
                if self.kind == "table":
                    stack.enter_context(module.register_forward_hook(_tabled(how)))
                elif self.kind == "kept":
                    stack.enter_context(_kept_without(module, self.name))
                else:
                    stack.enter_context(_handed_without(module, self.name))
            yield


def reached(model: nn.Module, run: Run, ids: Tensor) -> tuple[Reached, ...]:
    """Every position code of a model that can be removed; found by one run on token ids [1, tokens].

    Raises:
        InvalidValue: There is none at a known place.
    """
    attentions = [each for each in model.modules() if _innermost(each)]
    used: dict[str, list[nn.Module]] = {}
    with ExitStack() as stack:
        for attention in attentions:

            def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
                given = _named(module, args, kwargs)
                for name in HANDED:
                    own = getattr(module, "has_relative_attention_bias", False) and name == "position_bias"
                    if given.get("key_value_states") is None and (given.get(name) is not None or own):
                        used.setdefault(name, []).append(module)
                        return

            stack.enter_context(attention.register_forward_pre_hook(hook, with_kwargs=True))
        called: list[nn.Module] = []
        for path, module in model.named_modules():
            if path.rpartition(".")[2] in TABLES:
                stack.enter_context(module.register_forward_pre_hook(lambda it, _: called.append(it)))
        with torch.no_grad():
            run(ids)
    tables = tuple({id(each): each for each in called}.values())
    keeping = {
        name: tuple(each for each in model.modules() if name in dict(each.named_buffers(recurse=False)))
        for name in KEPT
    }
    found = [Reached(HANDED[name][0], tuple(modules), name, "handed") for name, modules in used.items()]
    found += [Reached("rotary", modules, name, "kept") for name, modules in keeping.items() if modules]
    if tables:
        found.append(Reached("table", tables, "table", "table"))
    if not found:
        raise InvalidValue(
            f"The positions of {type(model).__name__} cannot be reached: no attention gets one of the arguments "
            f"{', '.join(HANDED)}, no module that was run is named {', '.join(TABLES)}, and no attention keeps "
            f"{', '.join(KEPT)}.",
            f"Known families: {families()}. A family is added by a row in clockhands/models/position_removals.py.",
        )
    return tuple(found)


def families() -> str:
    """The families whose positions can be removed."""
    return "; ".join([*(each for _, _, each in HANDED.values()), *TABLES.values(), *KEPT.values()])


@contextmanager
def all_removed(places: Sequence[Reached], layers: Sequence[int] | None = None) -> Iterator[None]:
    """Remove every code; tables are replaced by zeros."""
    with ExitStack() as stack:
        for place in places:
            stack.enter_context(place.removed(place.removals[0], layers))
        yield


def _parameters(module: nn.Module) -> tuple[str, ...]:
    return tuple(inspect.signature(module.forward).parameters)


def _innermost(module: nn.Module) -> bool:
    """Whether a module takes one of the arguments, and no module inside it does."""
    names = set(HANDED) & set(_parameters(module))
    return bool(names) and not any(names & set(_parameters(each)) for each in module.modules() if each is not module)


def _named(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {**dict(zip(_parameters(module), args, strict=False)), **kwargs}


@contextmanager
def _handed_without(attention: Any, name: str) -> Iterator[None]:
    """Give an attention inputs without positions, and later layers their usual inputs."""
    given: dict[str, Any] = {}
    place = _parameters(attention).index(name)
    table = getattr(attention, "relative_attention_bias", None)

    def before(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        named = _named(module, args, kwargs)
        if named.get("key_value_states") is not None:  # attention over another text has no positions
            return None
        given["sound"] = sound = named.get(name)
        if sound is None:  # this layer looks its bias up
            given["looked up"] = True
            return None
        given["none"] = none = HANDED[name][1](sound)
        if name == "alibi" and _float_mask(named.get("attention_mask")):
            # Falcon adds its biases to the mask as well.
            kwargs = {**kwargs, "attention_mask": _no_bias(named["attention_mask"])}
        if place < len(args):
            return (*args[:place], none, *args[place + 1 :]), kwargs
        return args, {**kwargs, name: none}

    def looked_up(_: Any, __: Any, rows: Tensor) -> Tensor | None:
        return torch.zeros_like(rows) if given.get("looked up") else None

    def after(module: Any, _: Any, output: Any) -> Any:
        made = given.pop("looked up", False)
        none = given.pop("none", None)
        if not isinstance(output, tuple) or not (made or any(each is none for each in output)):
            return None

        def usual(each: Any) -> Any:
            """What later layers get: T5 hands the bias of its first layer on to the others."""
            if made and _is_no_bias(each):
                return module.compute_bias(*each.shape[-2:]).to(each.dtype) + each
            return given["sound"] if each is none and each is not None else each

        return tuple(map(usual, output))

    with ExitStack() as stack:
        stack.enter_context(attention.register_forward_pre_hook(before, with_kwargs=True))
        stack.enter_context(attention.register_forward_hook(after))
        if isinstance(table, nn.Module):
            stack.enter_context(table.register_forward_hook(looked_up))
        yield


def _is_no_bias(each: Any) -> bool:
    """Whether an output of an attention is a bias [batch, heads, queries, keys] of zeros, or hides keys."""
    return _float_mask(each) and each.ndim == 4 and bool((_hides(each) | (each == 0)).all())


def _float_mask(mask: Any) -> bool:
    return isinstance(mask, Tensor) and mask.is_floating_point()


def _tabled(how: Removal) -> Any:
    def hook(_: nn.Module, __: Any, rows: Tensor) -> Tensor:
        return torch.zeros_like(rows) if how == "zeroed" else rows.mean(dim=-2, keepdim=True).expand_as(rows)

    return hook


@contextmanager
def _kept_without(attention: nn.Module, name: str) -> Iterator[None]:
    kept: Tensor = getattr(attention, name)
    half = kept.shape[-1] // 2
    none = torch.cat((torch.zeros_like(kept[..., :half]), torch.ones_like(kept[..., half:])), dim=-1)
    setattr(attention, name, none)
    try:
        yield
    finally:
        setattr(attention, name, kept)
