"""Memory of the key-value cache at a length: what each layer keeps, for how many positions, and what is assumed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clockhands.auditing._length_sentences import said
from clockhands.auditing.findings import as_json
from clockhands.auditing.findings._parts import AuditSubject
from clockhands.configs.fields import is_count
from clockhands.configs.gguf_fields import ARCHITECTURE
from clockhands.configs.opened import Opened
from clockhands.configs.resolved import INDEXER, TEXT, LayerEncoding, Resolved, layer_numbers
from clockhands.configs.section_fields import model_in
from clockhands.packaged import packaged
from clockhands.phrases import listed, number_of

_KEYS = packaged(__file__, "cache_keys.json")
# What else a quantity is than a number of heads, and its least value: 0 says that the model has none.
_MEANT = {
    "value width": ("head width", 0),
    "latent": ("width of a latent vector", 0),
    "shared": ("number of layers", 0),
}
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class CacheMemory:
    """The key-value cache of one text.

    Attributes:
        length: Positions of the text.
        bytes: Its size; None if it does not follow from the files, or only an upper bound does.
        says: The size with what each group of layers keeps, or why it is not known.
        assumes: What the number assumes beyond the files.
    """

    length: int
    bytes: int | None
    says: str
    assumes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The memory as JSON values."""
        return as_json(self, "length", "bytes", "says", "assumes")


def cache_memory(opened: Opened, resolved: Resolved, length: int) -> CacheMemory | None:
    """The memory of the key-value cache of one text; None for a target that is no model's config.

    For each layer the cache has, at each position that a query can still see, a key and a value for each key-value
    head; with multi-head latent attention one latent vector and the rotated part of the key (DeepSeek-V2,
    arXiv:2405.04434, section 2.1).
    """
    if not isinstance(opened.config, Mapping) or opened.form not in ("config", "gguf"):
        return None
    codes = [code for code in resolved.codes if code.part in TEXT]
    model = _CachedModel(opened, AuditSubject(opened, resolved), length)
    why = model.unknown(codes)
    if why:
        return CacheMemory(length, None, said("cache-unknown", length=length, why=why))
    kept = [group for code in codes for group in model.groups(code)]
    size = sum(group.bytes for group in kept)
    layers = listed([group.says for group in kept])
    bound = "" if model.kv_heads_known else "at most "
    words = said("cache", size=f"{bound}{size_in_words(size)}", length=length, dtype=model.dtype[0], layers=layers)
    return CacheMemory(length, None if bound else size, words, tuple(model.assumed(codes)))


def size_in_words(size: int) -> str:
    """A number of bytes in binary units.

    >>> size_in_words(7 * 2**30), size_in_words(3 * 2**19)
    ('7 GiB', '1.5 MiB')
    """
    unit, name = (2**30, "GiB") if size >= 2**30 else (2**20, "MiB")
    return f"{size / unit:,.4g} {name}"


def _of_layer(value: Any, layer: int) -> Any:
    """A quantity that is one number for all layers, or a list of one for each."""
    return value[layer] if isinstance(value, list) else value


@dataclass(frozen=True)
class _CachedGroup:
    """Layers that keep the same numbers at each position."""

    bytes: int
    says: str


@dataclass(frozen=True)
class _CachedModel:
    """What the files say of keys and values."""

    opened: Opened
    subject: AuditSubject
    length: int

    def key(self, name: str) -> str | None:
        """The key of a quantity, in the text part of a config or in an architecture; None if it is not there."""
        keys = _KEYS["gguf" if self.opened.form == "gguf" else "config"].get(name, ())
        return next((key for key in keys if self.values.get(key) is not None), None)

    def value(self, name: str) -> Any:
        """The value of a quantity; None if it is not there."""
        key = self.key(name)
        return None if key is None else self.values[key]

    @property
    def values(self) -> Mapping[str, Any]:
        """The keys of the text part, those of a GGUF file without its architecture."""
        config = self.opened.config or {}
        if self.opened.form == "gguf":
            prefix = f"{config.get(ARCHITECTURE)}."
            return {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}
        parts = (part.section.values for part in self.subject.rotary_parts if part.section.part in TEXT)
        return next(parts, config)

    @property
    def kv_heads_known(self) -> bool:
        """Whether the files say how many key-value heads there are, or that latent vectors are kept."""
        return any(self.value(name) is not None for name in ("kv heads", "latent")) or self.one_head

    @property
    def one_head(self) -> bool:
        """Whether all query heads share one key and one value: multi-query attention, as in Falcon-7B."""
        return self.values.get("multi_query") is True and not self.values.get("new_decoder_architecture")

    @property
    def dtype(self) -> tuple[str, bool]:
        """The dtype of the cache, and whether the files say it."""
        top, part = model_in(self.opened.config or {})[1], self.values
        named = next((holder[key] for holder in (part, top) for key in ("dtype", "torch_dtype") if holder.get(key)), "")
        known = str(named).removeprefix("torch.")
        return (known, True) if known in _BYTES else ("float16", False)

    def unknown(self, codes: list[LayerEncoding]) -> str:
        """Why the memory does not follow from the files, as a clause; empty if it does."""
        other = [key for key in _KEYS["otherwise"] if self.values.get(key)]
        if other:
            return f"{other[0]} changes what its layers keep"
        names = model_in(self.opened.config or {})[1].get("architectures") or ()
        if names and not any(word in str(name) for name in names for word in _KEYS["generating"]):
            return f"{names[0]} is not known to generate text"
        kinds = {code.kind for code in codes}
        numbered = all(code.part == "text" and layer_numbers(code.layers or "") for code in codes)
        if "rotary" not in kinds or not kinds <= {"rotary", "none"} or not numbered:
            return "what its layers keep was not read"
        if any(code.kind == "rotary" and code.width is None for code in codes) or self.value("heads") is None:
            return "the files do not say the width or the number of its heads"
        impossible = next(self.impossible(max(max(layer_numbers(code.layers or "")) for code in codes)), "")
        if impossible:
            return impossible
        if any(code.kind == "none" and self.attending(code) is None for code in codes):
            return "the files do not say which layers without positions have attention"
        return ""

    def impossible(self, last: int) -> Iterator[str]:
        """The quantities that no model can have, as clauses.

        Args:
            last: The number of the last layer, up to which a list of heads has a number for each layer.
        """
        names = ("latent", "shared") if self.value("latent") else tuple(_KEYS["config"])
        for name in names:
            key, value = self.key(name), self.value(name)
            what, least = _MEANT.get(name, ("number of heads", 1))
            if isinstance(value, list) and "heads" in name:
                # A list may have 0 for layers without attention.
                if len(value) <= last:
                    yield said("too-few-heads", key=key, numbers=len(value), layers=last + 1)
                elif not all(is_count(each, 0) for each in value):
                    yield said("impossible-heads", key=key, value=value, what=what)
            elif value is not None and not is_count(value, least):
                yield said("impossible-heads", key=key, value=value, what=what)
        if self.one_head or self.value("latent"):
            return
        queries, keys = self.value("heads"), self.value("kv heads")
        for heads, kept in {(_of_layer(queries, layer), _of_layer(keys, layer)) for layer in range(last + 1)}:
            if heads and kept and heads % kept:
                yield said("heads-not-divided", key=self.key("kv heads"), kept=kept, heads=heads)

    def attending(self, code: LayerEncoding) -> frozenset[int] | None:
        """The layers of a group that have attention, whose cache grows with the text; None if that is not known."""
        layers = layer_numbers(code.layers or "")
        if code.kind == "rotary":
            return layers
        kinds = self.values.get("layer_types")
        if isinstance(kinds, list) and max(layers) < len(kinds):
            names = {layer: str(kinds[layer]) for layer in layers}
            return frozenset(layer for layer, name in names.items() if "attention" in name and "linear" not in name)
        named = any(self.values.get(key) is not None for key in ("no_rope_layers", "no_rope_layer_interval"))
        return layers if named else None

    def groups(self, code: LayerEncoding) -> Iterator[_CachedGroup]:
        """What the layers of a group keep."""
        shared, last = self.value("shared") or 0, self.values.get("num_hidden_layers") or self.values.get("block_count")
        own = range(last - shared) if shared and isinstance(last, int) else None
        held = [layer for layer in self.attending(code) or () if own is None or layer in own]
        seen = min(self.length, code.farthest or self.length)
        by_numbers: dict[str, tuple[int, list[int]]] = {}
        for layer in held:
            numbers, words = self.numbers(code, layer)
            by_numbers.setdefault(words, (numbers, []))[1].append(layer)
        for words, (numbers, layers) in by_numbers.items():
            size = len(layers) * numbers * seen * _BYTES[self.dtype[0]]
            yield _CachedGroup(size, said("cached-layers", number=len(layers), words=words, seen=seen))

    def numbers(self, code: LayerEncoding, layer: int) -> tuple[int, str]:
        """How many numbers a layer keeps at a position, and of what they consist."""
        latent = self.value("latent")
        if latent:
            rotated = code.rotated or 0
            return latent + rotated, f"a latent vector of {latent} + {rotated} numbers"
        width = code.width or self.width()
        heads = self.value("kv heads of windows" if code.farthest else "kv heads of all positions")
        heads = 1 if self.one_head else heads or self.value("kv heads") or self.value("heads")
        heads = _of_layer(heads, layer)
        values = self.value("value width") or width
        return heads * (width + values), f"{number_of(heads, 'head')} of {width} + {values} channels"

    def width(self) -> int:
        """The head width of the rotary layers, which layers without positions have too."""
        codes = self.subject.resolved.codes
        return next((code.width for code in codes if code.kind == "rotary" and code.part in TEXT and code.width), 0)

    def assumed(self, codes: list[LayerEncoding]) -> Iterator[str]:
        """What the number assumes, in sentences."""
        if not self.dtype[1]:
            yield said("assumed-dtype")
        if self.value("latent"):
            yield said("assumed-latent")
        elif not self.kv_heads_known:
            yield said("assumed-heads")
        if any(code.farthest for code in codes):
            yield said("assumed-window")
        if any(code.part == INDEXER for code in self.subject.resolved.codes):
            yield said("assumed-indexer")
        if any(code.kind == "none" and not self.attending(code) for code in codes):
            yield said("assumed-state")
