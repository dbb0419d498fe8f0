"""Finds which declared position codes a part of a module serves, by its path, its layer and the kind of layer."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from clockhands.configs.expected_rates import Expected, expected_of
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import LayerEncoding, Resolved, layer_numbers, layer_ranges
from clockhands.models.held_tensors import HeldTensor, Walked, layers_in, walked
from clockhands.models.opened_modules import config_root, open_module, within

# Words in a path that name the part of the model; the first match counts.
_PARTS = (
    (re.compile(r"vision|visual|image|patch"), ("vision",)),
    (re.compile(r"audio|speech"), ("audio",)),
    (re.compile(r"(^|[._])encoder([._]|$)"), ("encoder", "text", "other")),
    (re.compile(r"(^|[._])decoder([._]|$)"), ("decoder", "text", "other")),
)
_TEXT = ("text", "encoder", "decoder", "other")


@dataclass(frozen=True)
class DeclaredCodes:
    """What a module's config declares, organised for its parts.

    Attributes:
        resolved: The position codes.
        layer_types: The kind of each layer, if a config lists it, by part of the model.
        root: The path of the module whose config it is; modules outside are not compared.
        with_local: The modules that have one part for windows (``rotary_emb_local``), so that the other is for the
            remaining layers.
    """

    resolved: Resolved
    layer_types: tuple[str, ...]
    root: str = ""
    with_local: frozenset[str] = frozenset()

    def serving(
        self,
        owner: Any,
        paths: Iterable[str],
        layers: tuple[int, ...],
        layer_type: str | None = None,
        *,
        which: str | None = None,
        reach: int | None = None,
    ) -> tuple[Expected, ...]:
        """The codes that a part should hold: one, or several if it is not known which of them it serves."""
        paths = [path for path in paths if within(path, self.root)]
        if not paths:
            return ()
        codes = [code for code in self.resolved.codes if code.kind == "rotary" and code.rates]
        codes = in_part(codes, tuple(paths))
        if layers:
            codes = [code for code in codes if code.layers is None or _share(code.layers, layers)] or codes
        own = getattr(owner, "config", None)
        # A part that received the config of a model with several parts may serve any of them.
        sure = getattr(own, "text_config", None) is None
        if layer_type is not None:
            types = getattr(own, "layer_types", None) or self.layer_types
            of_type = {layer for layer, kind in enumerate(types) if kind == layer_type}
            sure = sure and bool(of_type)
            codes = [code for code in codes if code.layers is not None and _share(code.layers, of_type)] or codes
        elif not self.with_local.isdisjoint(path.rpartition(".")[0] for path in paths):
            local = _is_local(paths)
            codes = [code for code in codes if (code.window is not None) is local] or codes
        named = layer_ranges(layers) if layers else None
        alike: dict[Any, list[LayerEncoding]] = {}
        for code in codes:
            alike.setdefault((code.rates, code.attention_factor), []).append(code)
        made = (
            expected_of(group[0], named or joined(code.layers for code in group), which, reach, sure=sure)
            for group in alike.values()
        )
        return tuple(one for one in made if one is not None)

    def of(self, held: HeldTensor, reach: int | None = None) -> tuple[Expected, ...]:
        """The codes that a tensor should be made from; ``reach`` as in `expected_of`."""
        return self.serving(held.owner, held.paths, held.layers, held.layer_type, which=held.which, reach=reach)

    def layers_of(self, held: HeldTensor) -> str | None:
        """The layers that a tensor serves, as findings name them."""
        found = [one.layers for one in self.of(held)]
        return joined(found) or held.in_layers


@dataclass(frozen=True, eq=False)
class DeclaredPart:
    """A part of a module that computes cosines and sines, or rotates by them.

    Attributes:
        paths: Every path under which it is found.
        owner: The part.
        codes: For each kind of layer (None if there is one kind) what it should compute.
    """

    paths: tuple[str, ...]
    owner: Any
    codes: Mapping[str | None, tuple[Expected, ...]]


def declared_parts(module: Any) -> tuple[Resolved, tuple[DeclaredPart, ...]]:
    """What a module's config declares, and every part that computes cosines and sines with what it should return.

    Raises:
        Unreadable: The module has no values.
    """
    found = walked(module)
    opened = open_module(module, found)
    resolved = resolve(opened, None)
    return resolved, _parts_of(found, declared_by(resolved, opened.config, config_root(module)[0], found))


def _parts_of(found: Walked, declared: DeclaredCodes) -> tuple[DeclaredPart, ...]:
    """Every part that holds frequencies, or cosines and sines, with the declared codes that it serves."""
    parts = []
    for path, owner in found.turning.items():
        own = [held for held in (*found.of("rates"), *found.of("waves")) if held.owner is owner]
        paths = own[0].paths if own else (path,)
        layers = layers_in(paths)
        kinds = dict.fromkeys(held.layer_type for held in own if held.which is None) or {None: None}
        codes = {kind: declared.serving(owner, paths, layers, kind) for kind in kinds}
        parts.append(DeclaredPart(paths, owner, codes))
    return tuple(parts)


def declared_by(resolved: Resolved, config: Mapping[str, Any] | None, root: str | None, found: Walked) -> DeclaredCodes:
    """What a resolved config of the module at a path declares for the parts of a walked module."""
    sections = [config or {}, *(value for value in (config or {}).values() if isinstance(value, Mapping))]
    types = next((section["layer_types"] for section in sections if isinstance(section.get("layer_types"), list)), ())
    with_local = frozenset(path.rpartition(".")[0] for path in found.turning if _is_local((path,)))
    return DeclaredCodes(resolved, tuple(map(str, types)), root or "", with_local)


def _is_local(paths: Iterable[str]) -> bool:
    return any("local" in path.rpartition(".")[2] for path in paths)


def in_part(codes: Iterable[LayerEncoding], paths: tuple[str, ...]) -> list[LayerEncoding]:
    """Codes of the part of a model that a path leads to."""
    codes = list(codes)
    for word, parts in _PARTS:
        if any(word.search(path.lower()) for path in paths):
            return [code for code in codes if code.part in parts]
    return [code for code in codes if code.part in _TEXT]


def joined(ranges: Iterable[str | None]) -> str | None:
    """The layers of several parts together; None if one is not known."""
    given = list(ranges)
    if any(one is None for one in given):
        return None
    numbers = {layer for one in given if one is not None for layer in layer_numbers(one)}
    return layer_ranges(sorted(numbers)) if numbers else None


def _share(ranges: str, layers: Iterable[int]) -> bool:
    return not layer_numbers(ranges).isdisjoint(layers)
