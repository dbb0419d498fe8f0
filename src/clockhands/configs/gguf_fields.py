"""Position codes from the keys of a GGUF file.

A GGUF file does not say everything: defaults for missing keys, the layout and which layers slide follow from what
llama.cpp does for the architecture. That is data in ``gguf_architectures.json``.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.configs._head_fields import divided
from clockhands.configs._scaling_fields import DeclaredScaling, ScalingContext, read_scaling, scaling_type
from clockhands.configs._score_fields import score_scale_of, with_scores
from clockhands.configs._second_fields import counted_apart
from clockhands.configs.fields import (
    MOST_LAYERS,
    WIDEST,
    WIDEST_HEAD,
    Fields,
    Sourced,
    above_one,
    above_zero,
    code_from,
    value_of,
)
from clockhands.configs.model_types import table
from clockhands.configs.opened import Opened
from clockhands.configs.resolved import Fact, LayerEncoding, layer_ranges
from clockhands.configs.rotary_fields import BASE_ALLOWED, axes_in_order, built
from clockhands.configs.section_fields import unread
from clockhands.encodings.additive import Learned
from clockhands.encodings.ladders import Explicit, Geometric, geometric
from clockhands.encodings.scaling import Llama3, LongRope, Yarn, yarn_magnitude
from clockhands.errors import ClockhandsError
from clockhands.recognition import fit_ladder

ARCHITECTURE = "general.architecture"
FREQUENCIES = "rope_freqs.weight"
LISTS = {"short_factor": "rope_factors_short.weight", "long_factor": "rope_factors_long.weight"}

# The relative error of a frequency: divisor and base are float32, and each may be rounded twice.
_FLOAT32 = 2.0**-22

# The scaling keys of a file by quantity, under the names used in configs.
BLOCK_KEYS = {
    "type": "rope_type", "factor": "factor", "original": "original_max_position_embeddings", "fast": "beta_fast",
    "slow": "beta_slow",
}  # fmt: skip


@dataclass(frozen=True)
class GgufLayers:
    """Layers of one kind: their numbers, whether they rotate, whether they slide, what they see."""

    numbers: str | None
    turning: bool
    sliding: bool
    window: int | None
    source: Mapping[str, str]
    chunk: int | None = None
    two_sided: bool = False


def gguf_codes(
    opened: Opened, facts: list[Fact], length: int | None
) -> tuple[list[tuple[LayerEncoding, int | None]], Sourced[int] | None, Mapping[str, Any]]:
    """The codes of a GGUF file with the original length of each scaling, the declared context, and unread keys."""
    file = _File(opened, facts, length)
    codes, context = file.codes()
    apart = [(each, original) for code, original in codes for each in counted_apart(code, file.fields)]
    return apart, context, unread(file.fields)


def _recognised(code: LayerEncoding, spacing: Explicit | None) -> dict[str, Any]:
    """The scaling given by frequency divisors: a llama3, or factors without a formula."""
    if spacing is not None and code.base is not None:
        rates = np.array(spacing.rates)
        for fit in fit_ladder(rates, rates * _FLOAT32):
            ladder, scaling = fit.spacing, fit.scaling
            if isinstance(scaling, Llama3) and isinstance(ladder, Geometric) and math.isclose(ladder.base, code.base):
                return {"type": "llama3", "factor": scaling.factor, "original": scaling.original}
    return {"type": "factors", "factor": None, "original": None}


class _File:
    def __init__(self, opened: Opened, facts: list[Fact], length: int | None) -> None:
        self.opened = opened
        self.length = length
        self.table = table()["gguf"]
        values = opened.config or {}
        name = values.get(ARCHITECTURE)
        self.written = name if isinstance(name, str) else ""
        own = self.table["of_ollama"].get(self.written, {})
        self.name: str = own.get("as", self.written)
        spellings = {
            quantity: [f"{self.written}.{key}" for key in (*own.get("keys", {}).get(quantity, ()), *keys)]
            for quantity, keys in table()["gguf_keys"].items()
        }
        self.fields = Fields(
            values,
            opened.config_name or "",
            spellings,
            facts,
            defaults=self.table["defaults"],
            default_source=f"default of {self.table['reader']}",
        )

    @property
    def architecture(self) -> str:
        known = f"architecture {self.name} as {self.table['reader']} reads it"
        return known if self.name == self.written else f"{self.written} is {self.name} in Ollama, {known}"

    def codes(self) -> tuple[list[tuple[LayerEncoding, int | None]], Sourced[int] | None]:
        context = self.fields.whole("context")
        pairing = {name: layout for layout in ("interleaved", "halves") for name in self.table[layout]}
        kind = self.table["kinds"].get(self.name)
        if kind is None and self.name not in pairing:
            key = self.fields.source(ARCHITECTURE)
            self.fields.note("unknown-model-type", {key: self.name or None})
            kind = None if any(self.fields.declares(name) for name in ("base", "rotated")) else "unknown"
        if kind == "learned":
            return [(self._learned(context), None)], context
        if kind is not None:
            return [(self._without_ladder(None if kind == "unknown" else kind), None)], context
        layout = pairing.get(self.name)
        return [
            self._maybe_sliding(layers, layout, context)
            if layers.turning
            else (self._with_scores(LayerEncoding("text", layers.numbers, "none", source=layers.source), context), None)
            for layers in self._layers()
        ], context

    def _maybe_sliding(
        self, layers: GgufLayers, layout: str | None, context: Sourced[int] | None
    ) -> tuple[LayerEncoding, int | None]:
        """The code of some layers, with a sliding alternative if the file has a window but not which layers use it."""
        code, original = self._rotary(layers, layout, context)
        window = self.fields.whole("window", least=0)
        if layers.sliding or window is None or not window.value:
            return code, original
        count, pattern = self.fields.whole("layers", most=MOST_LAYERS), value_of(self.fields.raw("window_layers"))
        listed = isinstance(pattern, list | tuple) and count is not None and len(pattern) == count.value
        if listed or self.name in self.table["windows"]:
            return code, original
        source = {**layers.source, "window": window.source}
        sliding, _ = self._rotary(replace(layers, sliding=True, window=window.value, source=source), layout, context)
        base = f" and base {sliding.base:,.10g}" if sliding.base not in (None, code.base) else ""
        key = f"{self.written}.{table()['gguf_keys']['window_layers'][0]}"
        evidence = {
            window.source: window.value,
            "missing": key,
            "needed for": "the layers that slide",
            "without it": f"which layers have the window of {window.value:,} tokens{base} is not known",
        }
        self.fields.note("missing-value", evidence, layers.numbers)
        return replace(code, either=sliding), original

    def _rotary(
        self, layers: GgufLayers, layout: str | None, context: Sourced[int] | None
    ) -> tuple[LayerEncoding, int | None]:
        width, rotated = self._shape(layers.sliding)
        base = self._base(layers.sliding)
        local = layers.sliding and (self.fields.declares("local_base") or self.name in self.table["local_bases"])
        frequencies = f"{self.opened.config_name}:{FREQUENCIES}"  # their divisors beside the weights (Llama 3)
        divided_by = not local and rotated is not None and FREQUENCIES in self.opened.tensors
        divisors = self._tensor(FREQUENCIES, frequencies) if divided_by else None
        channels = value_of(rotated)
        around = ScalingContext(context=context, pairs=None if channels is None else channels // 2)
        declared = DeclaredScaling() if local else read_scaling(self._block(), around)
        pairing = None
        if layout is not None:
            rows = "adjacent rows" if layout == "interleaved" else "rows half a head apart"
            pairing = Sourced(layout, f"{self.architecture}, and the GGUF format ({rows} pair)")
        source = {"kind": self.architecture, **layers.source, **declared.source}
        found = {"width": width, "rotated": rotated, "base": base, "context": context, "layout": pairing}
        code = code_from("text", layers.numbers, "rotary", source, **found)
        code = replace(
            code, scaling=declared.summary, window=layers.window, two_sided=layers.two_sided, chunk=layers.chunk
        )
        spacing = None
        if divided_by:
            code = replace(code, source={**code.source, "rates": frequencies})
            spacing = self._explicit(code, divisors, frequencies)
            if declared.summary is None:
                said = {**code.source, "scaling": frequencies}
                code = replace(code, scaling=_recognised(code, spacing), source=said)
            if spacing is None:
                return code, declared.original
        more, whole = self._place(code)
        made = built(code, declared, self.fields, self.length, spacing=spacing, assumed=whole, more=more)
        return self._with_scores(self._magnified(made, declared), context), declared.original

    def _with_scores(self, code: LayerEncoding, context: Sourced[int] | None) -> LayerEncoding:
        """The code with the scale of its scores, as llama.cpp has it for the architecture."""
        says = self.table["scores"].get(self.name)
        if says is None or self._unchunked:
            return code
        spellings = {name: self.fields.spellings[name] for name in ("score_growth", "score_length")}
        defaults: dict[str, Any] = {name: says[name] for name in spellings if name in says}
        if defaults:  # llama.cpp has its own numbers, whatever the file says
            spellings = {name: [] for name in spellings}
        elif says.get("length") == "original":
            spellings["score_length"] = self.fields.spellings["original"]
            if context is not None and not self.fields.declares("original"):
                defaults["score_length"] = context.value
        own = Fields(
            self.fields.values, self.fields.file, spellings, self.fields.facts,
            defaults=defaults, default_source=self.architecture, read_at=self.fields.read_at,
        )  # fmt: skip
        return with_scores(code, score_scale_of(says, own, self._block(), rotating=code.kind != "none"))

    def _place(self, code: LayerEncoding) -> tuple[dict[str, Any], bool]:
        """Which channels rotate by which coordinate, as fields of the spec, and whether all of that is known."""
        more: dict[str, Any] = {}
        if self.name in self.table["latent"] or self.fields.declares("latent_width"):
            more["part"] = "last"
        sections = self.fields.items("sections")
        order = self.table["sections"].get(self.name)
        # There are four sections, of which the last ones stay empty.
        sizes = [size for size in (sections.value if sections else None) or () if size != 0]
        if sections is None or not sizes:
            return more, order is None
        axes = None if order is None or code.rotated is None else axes_in_order(sizes, order, code.rotated // 2)
        if axes is None and order is not None:
            allowed = "pairs of time, rows and columns that add up to all rotated pairs"
            self.fields.impossible_together(allowed, sections)
        if axes is not None:
            more["axes"] = axes
        return more, axes is not None

    def _magnified(self, code: LayerEncoding, declared: DeclaredScaling) -> LayerEncoding:
        """The code with the file's attention factor, if no scaling uses it: llama.cpp always applies it."""
        if isinstance(declared.scaling, Yarn | LongRope) or code.attention_factor is None:
            return code
        multiplier = self._multiplier()
        if multiplier is None or multiplier.value == 1.0:
            return code
        source = {**code.source, "attention_factor": multiplier.source}
        if multiplier.value is None:
            return replace(code, spec=None, rates=None, attention_factor=None, source=source)
        # No spec has an attention factor without a scaling.
        return replace(code, spec=None, attention_factor=code.attention_factor * multiplier.value, source=source)

    def _multiplier(self) -> Sourced[float] | None:
        return self.fields.number("attention_multiplier", above_zero, "a number above 0")

    def _explicit(self, code: LayerEncoding, divisors: tuple[float, ...] | None, where: str) -> Explicit | None:
        if divisors is None or code.rotated is None or code.base is None or code.rotated < 2:
            return None
        if len(divisors) != code.rotated // 2:
            return self._unusable(where, divisors, f"{code.rotated // 2} divisors, one for each pair")
        try:
            rates = geometric(code.rotated // 2, code.base).rates
            return Explicit(tuple(rate / divisor for rate, divisor in zip(rates, divisors, strict=True)))
        except ClockhandsError as error:
            return self._unusable(where, divisors, error.message)

    def _unusable(self, where: str, numbers: tuple[float, ...], allowed: str) -> None:
        self.fields.impossible_together(allowed, Sourced(f"{len(numbers)} numbers", where))

    def _tensor(self, name: str, where: str) -> tuple[float, ...] | None:
        try:
            numbers = tuple(float(number) for number in self.opened.array(name).ravel())
        except ClockhandsError as error:
            self.fields.note("unreadable-field", {where: error.message, "expected": "a tensor of numbers"})
            return None
        if not numbers or not all(0 < number < math.inf for number in numbers):
            return self._unusable(where, numbers, "positive finite numbers")
        return numbers

    def _base(self, sliding: bool) -> Sourced[float] | None:
        if sliding:
            local = self.fields.number("local_base", above_one, BASE_ALLOWED)
            if local is None and self.name in self.table["local_bases"]:
                local = Sourced(self.table["local_bases"][self.name], self.architecture)
            if local is not None:
                return local
        base = self.fields.number("base", above_one, BASE_ALLOWED)
        if base is not None and not self.fields.declares("base"):
            evidence = {"used": base.value, "default of": self.table["reader"], **self._beside_the_base()}
            self.fields.note("default-base", {**evidence, **self._of_another_program(), "documented": True})
        return base

    def _of_another_program(self) -> dict[str, Any]:
        """The keys of a base that another program reads in this file, and its name; empty if there are none."""
        known = self.table["of_other_programs"].get(self.name, {"keys": ()})
        held = {key: self.fields.values.get(f"{self.name}.{key}") for key in known["keys"]}
        held = {f"{self.name}.{key}": value for key, value in held.items() if isinstance(value, int | float)}
        self.fields.read.update(held)
        said = {self.fields.source(key): value for key, value in held.items()}
        return {**said, "read by": known["program"]} if said else {}

    def _beside_the_base(self) -> dict[str, Any]:
        """What a default base can be compared with: the length, the scaling and the window."""
        block, window = self._block(), self.fields.whole("window", least=0)
        kind = scaling_type(block)
        if kind is not None and kind.value == "default":
            kind = None  # "none" is what converters write where there is none
        released = self.table["released_bases"].get(self.name)
        found = {"context": self.fields.whole("context"), "scaling": kind, "window": window}
        beside: dict[str, Any] = {name: None if value is None else value.value or None for name, value in found.items()}
        return beside if released is None else {**beside, "never": f"their base is {released:,}"}

    def _shape(self, sliding: bool) -> tuple[Sourced[int] | None, Sourced[int] | None]:
        width = self.fields.whole("local_head_width", most=WIDEST_HEAD) if sliding else None
        for name in ("latent_width", "head_width"):
            width = width or self.fields.whole(name, most=WIDEST_HEAD)
        width = width or divided(self._uniform("heads"))
        rotated = self.fields.whole("local_rotated", most=WIDEST_HEAD) if sliding else None
        rotated = rotated or self.fields.whole("rotated", most=WIDEST_HEAD)
        if rotated is None and width is not None:
            rotated = Sourced(width.value, f"{width.source}, {self.fields.default_source}")
        return width, rotated

    def _uniform(self, quantity: str) -> Fields:
        """The fields, with one number instead of a list that has the same for every layer that has any."""
        found = self.fields.raw(quantity)
        if found is None or not isinstance(found.value, list | tuple):
            return self.fields
        numbers = {number for number in found.value if isinstance(number, int) and number}
        values = dict(self.fields.values)
        if len(numbers) == 1:
            values[self.fields.present(quantity)[0]] = numbers.pop()
        return Fields(values, self.fields.file, self.fields.spellings, self.fields.facts)

    def _layers(self) -> list[GgufLayers]:
        count = self.fields.whole("layers", most=MOST_LAYERS)
        if count is None or count.value is None:
            return [GgufLayers(None, True, False, None, {})]
        known = {"layers": count.source}
        still, because = self._still(count.value)
        sliding, rule = self._sliding(count.value)
        window, chunk = self.fields.whole("window", least=0), self._chunk
        groups = []
        for slides in (True, False):
            numbers = [layer for layer in range(count.value) if sliding[layer] == slides and layer not in still]
            if numbers and slides and chunk is not None:
                groups.append(GgufLayers(layer_ranges(numbers), True, True, None, {**known, "chunk": rule}, chunk))
            elif numbers:
                seen = window if slides else None
                source = {**known, **({"window": f"{seen.source}, {rule}"} if seen else {})}
                width, sides = value_of(seen), self._window_rule.get("both", False) and seen is not None
                width = 2 * (width // 2) + 1 if sides and width is not None else width
                groups.append(GgufLayers(layer_ranges(numbers), True, slides, width, source, two_sided=sides))
        if still:
            groups.append(GgufLayers(layer_ranges(sorted(still)), False, False, None, {**known, "kind": because}))
        return groups

    @property
    def _chunk(self) -> int | None:
        """The size of chunks that llama.cpp has for the architecture, whatever window the file declares."""
        return self._window_rule.get("chunk")

    @property
    def _window_rule(self) -> Mapping[str, Any]:
        """What llama.cpp does with a window of the architecture; empty if not known."""
        return self.table["windows"].get(self.name, {})

    @property
    def _unchunked(self) -> bool:
        """Whether the file disables chunks, together with layers without RoPE and the scale of scores."""
        window = self.fields.raw("window")
        return self._chunk is not None and window is not None and window.value == 0

    def _sliding(self, count: int) -> tuple[list[bool], str]:
        window = self.fields.raw("window")
        if self._unchunked:
            return [False] * count, ""
        if window is not None and self._chunk not in (None, window.value):
            self.fields.ignored(
                window.source, window.value, f"chunks are of {self._chunk:,} tokens in {self.architecture}"
            )
        pattern = self.fields.raw("window_layers")
        if pattern is not None and isinstance(pattern.value, list | tuple) and len(pattern.value) == count:
            return [bool(slides) for slides in pattern.value], pattern.source
        rule = self._window_rule
        # Which layers slide may also not be known: `_maybe_sliding` says so.
        if not rule or (self._chunk is None and (window is None or not window.value)):
            return [False] * count, ""
        period = rule["period"]
        if pattern is not None and isinstance(pattern.value, int) and pattern.value > 0:
            period = pattern.value
        return [layer % period != rule.get("turn", period - 1) for layer in range(count)], self.architecture

    def _still(self, count: int) -> tuple[frozenset[int], str]:
        """Layers without RoPE: at intervals by the architecture, or those without attention heads."""
        period = self.table["still"].get(self.name)
        if period and not self._unchunked:
            return frozenset(layer for layer in range(count) if (layer + 1) % period == 0), self.architecture
        still, because = frozenset[int](), ""
        # Layers with another token mixer have no heads, or none for keys.
        for key in (f"{self.written}.attention.head_count", f"{self.written}.attention.head_count_kv"):
            heads = self.fields.values.get(key)
            self.fields.read.add(key)
            if isinstance(heads, list | tuple) and len(heads) == count and 0 in heads:
                still |= {layer for layer, number in enumerate(heads) if number == 0}
                because = because or self.fields.source(key)
        return still, because

    def _block(self) -> Fields | None:
        """The scaling keys, under the names used in configs."""
        found = {target: self.fields.raw(quantity) for quantity, target in BLOCK_KEYS.items()}
        block: dict[str, Sourced[Any]] = {name: held for name, held in found.items() if held is not None}
        if "factor" in block and block["factor"].value == 0:
            del block["factor"]
        if "rope_type" not in block:
            if all(tensor in self.opened.tensors for tensor in LISTS.values()):
                # llama.cpp uses the lists wherever they are, and converters write no type beside them.
                block["rope_type"] = Sourced("longrope", f"{self.opened.config_name}:{LISTS['long_factor']}")
            elif "factor" in block:
                block["rope_type"] = Sourced("linear", f"{block['factor'].source}, {self.fields.default_source}")
            else:
                return None
        for target, tensor in LISTS.items() if block["rope_type"].value == "longrope" else ():
            if tensor in self.opened.tensors:
                where = f"{self.opened.config_name}:{tensor}"
                numbers = self._tensor(tensor, where)
                block[target] = Sourced(None if numbers is None else list(numbers), where)
        self._magnitude(block)
        values = {name: held.value for name, held in block.items() if held.value is not None}
        places = {name: held.source for name, held in block.items()}
        return Fields(values, self.fields.file, table()["spellings"]["block"], self.fields.facts, places=places)

    def _magnitude(self, block: dict[str, Sourced[Any]]) -> None:
        """The attention factor of llama.cpp, in the keys of configs.

        For YaRN it is ``g(m) / g(L)`` with ``g(m) = 0.1 m ln f + 1`` times a number of the file; only some
        architectures have an ``L``, each in its own unit.
        """
        multiplier, kind = self._multiplier(), block["rope_type"].value
        unit = self.table["log_multiplier_units"].get(self.name)
        log = self.fields.number("log_multiplier", lambda value: value >= 0, "a number not below 0") if unit else None
        scale, whole = 1.0, 0.0
        if log is not None and log.value and kind == "yarn":
            whole = round(log.value / unit, 6)
            scale = whole if self.name in self.table["cancelled_magnitude"] else 1.0
            block["mscale"], block["mscale_all_dim"] = Sourced(scale, log.source), Sourced(whole, log.source)
        if multiplier is None:
            if kind == "longrope":
                block["attention_factor"] = Sourced(1.0, self.fields.default_source)
        elif kind not in ("yarn", "longrope") or (kind == "yarn" and multiplier.value == 1.0):
            return
        elif multiplier.value is None:
            # Refused again where the scaling is made, so that no frequencies follow from it.
            refused = self.fields.values[self.fields.present("attention_multiplier")[0]]
            block["attention_factor"] = Sourced(refused, multiplier.source)
        else:
            factor, stretch = block["factor"].value if "factor" in block else None, 1.0
            if kind == "yarn" and isinstance(factor, int | float) and factor > 1:
                stretch = yarn_magnitude(factor, scale) / yarn_magnitude(factor, whole)
            block["attention_factor"] = Sourced(multiplier.value * stretch, multiplier.source)

    def _learned(self, context: Sourced[int] | None) -> LayerEncoding:
        width = self.fields.whole("hidden", most=WIDEST)
        learned = self.table["learned"]
        rows, offset = context, learned["offsets"].get(self.name)
        for name in learned["tensors"]:
            shape = self.opened.tensors[name].shape if name in self.opened.tensors else ()
            if len(shape) == 2:
                where = f"{self.opened.config_name}:{name}"
                said = (value_of(context), value_of(width))
                if any(value not in (None, real) for value, real in zip(said, shape, strict=True)):
                    evidence = {where: list(shape), "declared": list(said), "used": where}
                    self.fields.note("table-size", evidence, "input")
                rows, width = Sourced(shape[0], where), Sourced(shape[1], where)
        source = {"kind": self.architecture, "offset": self.architecture}
        code = code_from("text", "input", "learned", source, rows=rows, width=width, context=context)
        if code.width is None or code.rows is None or offset is None:
            return replace(code, offset=offset)
        return replace(code, offset=offset, spec=Learned(code.width, code.rows, offset))

    def _without_ladder(self, kind: str | None) -> LayerEncoding:
        count = self.fields.whole("layers", most=MOST_LAYERS)
        width = self.fields.whole("hidden", most=WIDEST)
        layers = None if count is None or count.value is None else layer_ranges(range(count.value))
        source = {"kind": self.architecture} if kind else {}
        return code_from("text", layers, kind, source, layers=count, width=width)
