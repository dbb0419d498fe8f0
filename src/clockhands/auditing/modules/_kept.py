"""Checks what a loaded module holds besides frequencies: cosine and sine tables, position numbers, rows, slopes."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from clockhands.auditing.findings import Case, case_of
from clockhands.auditing.modules._held import WHERE, HeldTensor, Walked, numbers_of
from clockhands.auditing.modules._serving import DeclaredCodes, joined
from clockhands.configs.resolved import Code, layer_ranges
from clockhands.encodings.biases import Alibi
from clockhands.encodings.layouts import Layout
from clockhands.encodings.rotary import Rotary
from clockhands.recognition.diagnosis import (
    ROUNDED,
    SLOPES,
    Verdict,
    cosines_of,
    fits,
    measured_rates,
    of_slopes,
    of_table,
    recognised_spec,
    reference_of,
)

_WAVES = "cosines and sines"
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_FINER = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}  # bits

# The values of one row, random or trained, are mostly within a few factors of two of each other: for a normal
# distribution, the logarithm to base 2 has a standard deviation of 1.6. For random bits it is 9 (float16) or 73.
_SPREAD = 5.0
_MOST_ROWS = 4096

# Attribute names under which modules keep the base of their table.
_BASES = ("base", "rope_theta", "theta")
_LARGEST_BASE = 1e15

# No rounding, merging or offset makes a position this many times larger than the number of positions.
_FURTHEST = 16


def waves_cases(walked: Walked, declared: DeclaredCodes) -> tuple[list[Case], frozenset[int]]:
    """The facts about all tables of cosines and sines, and the ids of the modules whose table is wrong."""
    alike: dict[Any, list[tuple[HeldTensor, str | None, Verdict]]] = {}
    for held in walked.of("waves"):
        if held.on_meta or (array := held.numbers()) is None or array.ndim < 2:
            continue
        expected = declared.serving(held.owner, held.paths, held.layers, held.layer_type, which=held.which)
        verdicts = []
        for one in expected:
            if getattr(one.code.spec, "axes", None) is not None or not one.sure:
                continue
            for rates in one.ladders.values():
                waves = cosines_of(array, held.name, held.dtype, len(rates))
                if waves is not None:
                    verdicts.append(of_table(waves, one, one.factor_on_cosines, rates))
        if not verdicts:
            verdicts = [_by_itself(array)]
        best = next((one for one in verdicts if one.code is None), verdicts[0])
        if best.code is None:
            best = _of_another_type(held, walked)
        layers = layer_ranges(held.layers) if held.layers else (expected[0].layers if len(expected) == 1 else None)
        if best.code is not None:
            key = (best.code, best.evidence.get("rounded to"), best.evidence.get("base in effect"))
            alike.setdefault(key, []).append((held, layers, best))
    wrong = frozenset(id(held.owner) for group in alike.values() for held, _, _ in group)
    return list(_together(alike.values())), wrong


def _together(groups: Iterable[list[tuple[HeldTensor, str | None, Verdict]]]) -> Iterator[Case]:
    """One case for all tables that are wrong in the same way."""
    for group in groups:
        held, _, verdict = group[0]
        place = {held.place: f"{list(held.tensor.shape)} in {held.dtype}", "tensors": len(group), "what": _WAVES}
        evidence = {name: value for name, value in verdict.evidence.items() if name != "behaves as"}
        if verdict.code == "attention-factor-differs":
            evidence = {held.place: evidence["factor"], "declared": evidence["declared factor on cosines"]}
            place = {}
        if verdict.evidence.get("behaves as") and verdict.code == "buffer-differs":
            evidence["it is"] = verdict.evidence["behaves as"]
        assert verdict.code is not None
        yield case_of(verdict.code, {**place, **evidence}, joined(layers for _, layers, _ in group))


def _by_itself(array: np.ndarray) -> Verdict:
    """What can be said about a table for which nothing is declared."""
    bad = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
    if bad.any():
        return Verdict("buffer-uninitialised", {"wrong": int(bad.sum()), "pairs": len(array), "of": "rows"})
    return Verdict(None if array.any() else "buffer-zero", {})


def _of_another_type(held: HeldTensor, walked: Walked) -> Verdict:
    """A table that is correct for its dtype, which is less precise than the model's."""
    right = walked.dtype
    if held.dtype not in ROUNDED or right is None or _FINER.get(right, 0) <= _FINER[held.dtype]:
        return Verdict(None, {})
    return Verdict("buffer-of-another-dtype", {"dtype": held.dtype, "right": right, "error": ROUNDED[held.dtype]})


def number_cases(walked: Walked) -> Iterator[Case]:
    """Position numbers stored as floats, or that are not consecutive whole numbers."""
    for held in walked.of("numbers"):
        shape = tuple(held.tensor.shape)
        count = math.prod(shape)
        if held.on_meta or count != max(shape, default=0) or not count or (numbers := held.numbers()) is None:
            continue
        numbers = numbers.ravel()
        first = numbers[0] if np.isfinite(numbers[0]) and 0 <= numbers[0] <= 16 and numbers[0] % 1 == 0 else 0
        wrong = np.flatnonzero(numbers != np.arange(count) + first)
        if not wrong.size and held.dtype not in _FLOATS:
            continue
        layers = layer_ranges(held.layers) if held.layers else None
        evidence: dict[str, Any] = {held.place: list(shape), "dtype": held.dtype, "count": count}
        never = ~np.isfinite(numbers) | (np.abs(numbers) > _FURTHEST * count)
        if never.any():
            told = {held.place: list(shape), "what": "numbers of positions", "of": "numbers"}
            yield case_of("buffer-uninitialised", {**told, "wrong": int(never.sum()), "pairs": count}, layers)
            continue
        if wrong.size:
            evidence |= {"wrong": int(wrong.size), "first wrong": int(wrong[0]), "stored": float(numbers[wrong[0]])}
        yield case_of("ids-of-floats", evidence, layers)


def row_cases(walked: Walked, told: frozenset[str], cases: Iterable[Case]) -> Iterator[Case]:
    """Uninitialised tables of rows and distance biases, in addition to what was found about tables by their names.

    ``told`` are declared tables of text positions: they are initialised with random rows. Tables for images are
    initialised with zeros, so zeros in a trainable table may be correct there.
    """
    begun = {held.full_name for held in walked.of("rows") if held.learned and held.full_name not in told}
    known: set[str] = set()
    for case in cases:
        name = next((name.removeprefix("model:") for name in case.evidence if name.startswith("model:")), "")
        known |= {name} if case.code == "zero-table" else set()
        begins = case.code == "zero-table" and name in begun
        yield case_of("table-zero", case.evidence, case.layers) if begins else case
    for held in (*walked.of("rows"), *walked.of("biases")):
        if held.on_meta or held.dtype not in _FLOATS or held.tensor.ndim < 2 or not held.tensor.numel():
            continue
        rows = held.tensor.detach().reshape(-1, held.tensor.shape[-1])
        if held.kind == "rows" and not bool(rows.any()):
            code = "table-zero" if held.full_name in begun else "zero-table"
            place = {"rows": len(rows), "width": rows.shape[1], held.place: list(held.tensor.shape)}
            if held.full_name not in known:
                yield case_of(code, place, "input")
            continue
        rows = numbers_of(rows[:: max(1, len(rows) // _MOST_ROWS)])
        if rows is None:
            continue
        size = np.abs(rows[np.isfinite(rows).all(axis=1) & (rows != 0).all(axis=1)])
        if not size.size or size.shape[1] < 4:
            continue
        if float(np.median(np.log2(size).std(axis=1))) > _SPREAD:
            evidence = {held.place: list(held.tensor.shape), "least": float(size.min()), "most": float(size.max())}
            yield case_of("table-uninitialised", evidence, layer_ranges(held.layers) if held.layers else "input")


def kept_cases(walked: Walked, declared: DeclaredCodes, wrong: frozenset[str]) -> Iterator[Case]:
    """Computed tensors that are saved with the weights, and tensors without values in a model that has some."""
    computed = (*walked.of("rates"), *walked.of("waves"))
    written = [held for held in computed if held.persistent and not held.learned and held.full_name not in wrong]
    if written:
        place = {written[0].place: f"{list(written[0].tensor.shape)} in {written[0].dtype}", "tensors": len(written)}
        what = "rates" if written[0].kind == "rates" else _WAVES
        yield case_of("buffer-persistent", {**place, "what": what}, joined(_layers(held, declared) for held in written))
    empty = [
        held for held in (*computed, *walked.of("numbers")) if held.on_meta and not hasattr(held.owner, "_hf_hook")
    ]
    if empty and not walked.only_meta:
        what = {"rates": "rates", "waves": _WAVES}.get(empty[0].kind, "numbers of positions")
        place = {empty[0].place: list(empty[0].tensor.shape), "tensors": len(empty), "what": what}
        yield case_of("buffer-on-meta", place, joined(_layers(held, declared) for held in empty))


def _layers(held: HeldTensor, declared: DeclaredCodes) -> str | None:
    return declared.layers_of(held.owner, held.paths, held.layers, held.layer_type)


def slope_cases(walked: Walked, declared: DeclaredCodes) -> Iterator[Case]:
    """The facts about every list of slopes; all that are wrong in the same way give one fact."""
    codes = [code for code in declared.resolved.codes if code.kind == "alibi" and isinstance(code.spec, Alibi)]
    alike: dict[tuple[object, ...], list[tuple[HeldTensor, Verdict]]] = {}
    for held in walked.of("slopes"):
        slopes = _slopes(held)
        if slopes is None:
            continue
        known = [code.spec for code in codes if isinstance(code.spec, Alibi) and code.spec.heads == len(slopes)]
        verdict = of_slopes(slopes, known[0] if known else None, held.dtype)
        if verdict.code is not None:
            alike.setdefault((verdict.code, verdict.evidence.get("it is")), []).append((held, verdict))
    for group in alike.values():
        held, verdict = group[0]
        assert verdict.code is not None
        place = {held.place: f"{held.tensor.numel()} numbers in {held.dtype}", "tensors": len(group), "what": "slopes"}
        layers = [layer_ranges(one.layers) if one.layers else None for one, _ in group]
        yield case_of(
            verdict.code, {**place, **verdict.evidence}, joined(layers) or (codes[0].layers if codes else None)
        )


def slope_codes(walked: Walked) -> list[Code]:
    """The biases of a module without a config: slopes as published for that number of heads."""
    for held in walked.of("slopes"):
        slopes = _slopes(held)
        if slopes is not None and fits(slopes, np.array(Alibi(len(slopes)).slopes), SLOPES, held.dtype) is not None:
            return [Code("text", None, "alibi", Alibi(len(slopes)), source={"kind": f"{held.place} (recognised)"})]
    return []


def wave_codes(walked: Walked) -> list[Code]:
    """The rotary codes of a module without a config, from its cosine and sine tables, such as those of vLLM."""
    holding_rates = {id(held.owner) for held in walked.of("rates")}
    alike: dict[tuple[Rotary, float, Layout | None, int | None], list[HeldTensor]] = {}
    for held in walked.of("waves"):
        made = None if id(held.owner) in holding_rates else _made_by(held)
        if made is not None:
            alike.setdefault((*made, _layout(held.owner), _head_width(held.owner, made[0])), []).append(held)
    return [_wave_code(*key, group) for key, group in alike.items()]


def _made_by(held: HeldTensor) -> tuple[Rotary, float] | None:
    """The code that gives every row of a table, and the factor on it; the base is stated by the module, or measured."""
    array = held.numbers()
    if array is None or array.ndim < 2 or array.size < 2:
        return None
    # Pairs are on the last axis, or before a last axis of two; if cosines and sines are concatenated, each has one
    # half.
    whole = array.shape[-2] if array.shape[-1] == 2 else array.shape[-1]
    pairs = whole if np.iscomplexobj(array) or array.shape[-1] == 2 else whole // 2
    waves = cosines_of(array, held.name, held.dtype, pairs)
    measured = None if waves is None else measured_rates(waves)
    if waves is None or waves.cos is None or measured is None:
        return None
    rates, bound = measured
    factor = float(waves.cos[0, 0])
    stated: list[Any] = [getattr(held.owner, name, None) for name in _BASES]
    bases = [float(base) for base in stated if type(base) in (int, float) and 1 < base < _LARGEST_BASE]
    seen = np.isfinite(bound)
    measured_spec = recognised_spec(rates, float((bound[seen] / rates[seen]).max()))
    for spec in (*(Rotary(2 * len(rates), base=base) for base in bases), measured_spec):
        if spec is not None and of_table(waves, reference_of(spec), factor).code in (None, "buffer-rounded"):
            return spec, factor
    return None


def _wave_code(spec: Rotary, factor: float, layout: Layout | None, width: int | None, group: list[HeldTensor]) -> Code:
    layers = joined(layer_ranges(held.layers) if held.layers else None for held in group)
    fields: dict[str, Any] = {
        "layers": layers,
        "kind": "rotary",
        "layout": layout,
        "width": width,
        "rotated": spec.rotated,
    }
    fields |= {"rates": spec.rates, "attention_factor": factor}
    source = {name: group[0].place for name, value in fields.items() if value is not None}
    if spec.base is not None:
        source["base"] = f"{group[0].place} (recognised)"
    for name, stated in (("layout", "is_neox_style"), ("width", "head_size")):
        if name in source:
            source[name] = f"{WHERE}:{'.'.join(filter(None, (group[0].paths[0], stated)))}"
    return Code("text", base=spec.base, source=source, **fields)


def _layout(owner: Any) -> Layout | None:
    """The layout that a module states, as vLLM and SGLang modules do."""
    stated = getattr(owner, "is_neox_style", None)
    return ("halves" if stated else "interleaved") if isinstance(stated, bool) else None


def _head_width(owner: Any, spec: Rotary) -> int | None:
    """The width of a head that a module states."""
    stated = getattr(owner, "head_size", None)
    return stated if type(stated) is int and stated >= spec.rotated else None


def _slopes(held: HeldTensor) -> np.ndarray | None:
    """Slopes as they are published: positive, one for each head."""
    numbers = held.numbers()
    if numbers is None or np.iscomplexobj(numbers) or numbers.size != max(numbers.shape, default=0) or not numbers.size:
        return None
    flat = numbers.ravel()
    return -flat if np.isfinite(flat).all() and (flat <= 0).all() else flat
