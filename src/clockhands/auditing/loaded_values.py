"""Compares what a loaded module holds with its config: frequencies, cosines and sines, slopes, ids, tables of rows."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from clockhands.auditing.findings import Case, case_of
from clockhands.auditing.findings._stored import numbered
from clockhands.configs.expected_rates import Expected
from clockhands.configs.resolved import layer_ranges
from clockhands.encodings.biases import Alibi
from clockhands.encodings.dtypes import NAMES, UNIT_ROUNDOFF
from clockhands.models.declared_parts import DeclaredCodes, joined
from clockhands.models.held_tensors import HeldTensor, Walked, layers_in, numbers_of, slopes_of
from clockhands.models.measured_rotations import RotaryPart, rotation_of, without_numbers
from clockhands.recognition.diagnosis import ROUNDED, Verdict, cosines_of, judged, of_slopes, of_table, unlike_any

WAVES = "cosines and sines"

# A factor on cosine and sine is computed in double precision, or kept in float32.
_SAME_FACTOR = 2.0**-20


class JudgedTensor(NamedTuple):
    """A tensor, the layers that it serves, and what is wrong with it."""

    held: HeldTensor
    layers: str | None
    verdict: Verdict


def _cases(found: Iterable[JudgedTensor], alike: tuple[str, ...], **more: str) -> Iterator[Case]:
    """One case for all tensors that are wrong in the same way; copies under other names are counted.

    Args:
        found: The tensors.
        alike: The evidence that is equal for tensors that are wrong in the same way.
        more: Evidence of all of them.
    """
    groups: dict[Any, list[JudgedTensor]] = {}
    for each in found:
        held, _, verdict = each
        if verdict.code is not None:
            key = (verdict.code, held.layer_type, held.which == "long", *map(verdict.evidence.get, alike))
            groups.setdefault(key, []).append(each)
    for group in groups.values():
        # A copy that is kept for later (`original_inv_freq`) is reported if only it is wrong.
        held, _, verdict = min(group, key=lambda each: each.held.which is not None)
        assert verdict.code is not None
        evidence = {} if held.place in verdict.evidence else {held.place: held.says, "tensors": len(group), **more}
        evidence |= verdict.evidence
        if held.which is not None:
            evidence["copy"] = held.which
        yield case_of(verdict.code, evidence, joined(each.layers for each in group))


def _wrong(found: Iterable[JudgedTensor]) -> frozenset[int]:
    """The ids of the modules that hold wrong tensors."""
    return frozenset(id(held.owner) for held, _, verdict in found if verdict.code is not None)


_ALIKE = ("rounded to", "base in effect")


# Frequencies


def rates_cases(walked: Walked, declared: DeclaredCodes) -> tuple[list[Case], frozenset[int]]:
    """The facts about every ladder, and the ids of the modules whose ladder is wrong."""
    found: list[JudgedTensor] = []
    # Layers mostly hold the same values, and a wrong ladder is compared with many others.
    judged_before: dict[Any, Verdict] = {}
    for held in walked.of("rates"):
        if hasattr(held.owner, "clockhands_output"):
            continue  # `clockhands.transformers.swap` has replaced the code that read them
        numbers = held.numbers()
        if numbers is None or numbers.ndim != 1 or not numbers.size or np.iscomplexobj(numbers):
            continue
        expected = declared.of(held, _reach(held.owner, held.layer_type))
        key = (numbers.tobytes(), held.dtype, tuple((id(one.code), *one.ladders, one.sure) for one in expected))
        verdict = _inert(held, expected) or judged_before.get(key)
        if verdict is None:
            verdict = judged_before[key] = _verdict(held, numbers, expected, declared.resolved.context)
        found.append(JudgedTensor(held, _layers(held, expected), verdict))
    wrong = _wrong(found)
    return [*_cases(_shrinking(found), _ALIKE), *_factors(walked, declared, wrong)], wrong


def _verdict(held: HeldTensor, numbers: np.ndarray, expected: tuple[Expected, ...], context: int | None) -> Verdict:
    """A ladder compared with the closest one that it may be."""
    if not expected:
        return unlike_any(numbers)
    verdicts = [judged(numbers, held.dtype, one, context) for one in expected]
    best = next((one for one in verdicts if one.code is None), None)
    best = best or next((one for one in verdicts if one.code == "buffer-rounded"), verdicts[0])
    unknown = ("buffer-of-another-width", "buffer-of-another-scaling", "buffer-differs")
    if best.code in unknown and expected[0].code.part in ("vision", "audio"):
        return Verdict(None, {})  # a vision tower rotates along several axes, each of which may have another ladder
    if best.code is None and held.dtype in ROUNDED:
        return Verdict("buffer-of-another-dtype", {"dtype": held.dtype, "right": "float32", "exact": True})
    return best


def _inert(held: HeldTensor, expected: tuple[Expected, ...]) -> Verdict | None:
    """A scaling that the config has and the module was built without, as the module itself states."""
    built = getattr(held.owner, "rope_type", None)
    if isinstance(built, Mapping):
        built = built.get(held.layer_type)
    if built != "default" or len(expected) != 1 or not expected[0].sure:
        return None
    one = expected[0]
    scaling = one.code.scaling
    if not scaling or one.plain is None or scaling.get("type") in (None, "default", "proportional"):
        return None
    evidence = {"declared factor": one.factor, "scaling": scaling.get("type"), "built as": built}
    return Verdict("scaling-inert", {name: value for name, value in evidence.items() if value is not None})


def _reach(owner: Any, layer_type: str | None) -> int | None:
    """The longest length for which a module with a dynamic scaling has been called."""
    for name in (f"{layer_type}_max_seq_len_cached", "max_seq_len_cached"):
        value = getattr(owner, name, None)
        if value is not None:
            try:
                return int(value)
            except (TypeError, ValueError, RuntimeError):
                return None
    return None


def _layers(held: HeldTensor, expected: tuple[Expected, ...]) -> str | None:
    return held.in_layers or (expected[0].layers if len(expected) == 1 else None)


def _shrinking(found: list[JudgedTensor]) -> list[JudgedTensor]:
    """Ladders of several layers that become shorter from one to the next: a shared object was changed."""
    pairs = sorted((held.layers[0], held.tensor.shape[0]) for held, _, _ in found if len(held.layers) == 1)
    sizes = [size for _, size in pairs]
    grows = any(after > before for before, after in itertools.pairwise(sizes))
    if len(sizes) < 2 or sizes[-1] == sizes[0] or grows:
        return found
    told = {"pairs by layer": {str(layer): size for layer, size in pairs[:16]}}
    return [
        each._replace(verdict=Verdict("shared-object-mutated", {**each.verdict.evidence, **told}))
        if each.verdict.code == "buffer-of-another-width"
        else each
        for each in found
    ]


def _factors(walked: Walked, declared: DeclaredCodes, wrong: frozenset[int]) -> Iterator[Case]:
    """The factor on cosine and sine that a module keeps, compared with the config's."""
    seen: set[tuple[int, str]] = set()
    for held in walked.of("rates"):
        name = f"{held.layer_type}_attention_scaling" if held.layer_type else "attention_scaling"
        value = getattr(held.owner, name, None)
        if id(held.owner) in wrong or (id(held.owner), name) in seen or isinstance(value, bool):
            continue
        seen.add((id(held.owner), name))
        expected = declared.of(held)
        factors = {one.code.attention_factor for one in expected if one.sure}
        try:
            kept = None if value is None else float(value)
        except (TypeError, ValueError, RuntimeError):
            continue
        if kept is None or len(factors) != 1 or (factor := factors.pop()) is None:
            continue
        in_effect = _factor_in_effect(held)
        if in_effect is not None and abs(in_effect - kept) > _SAME_FACTOR * kept:
            kept, name = in_effect, "forward"  # which does not multiply by the attribute
        if abs(kept - factor) > _SAME_FACTOR * factor:
            evidence = {replace(held, name=name).place: kept, "declared": factor}
            yield case_of("attention-factor-differs", evidence, _layers(held, expected))


def _factor_in_effect(held: HeldTensor) -> float | None:
    """What a part multiplies the cosines of position 0 by; None if it cannot be called or that is not one number."""
    if without_numbers(held.owner):
        return None
    waves = RotaryPart(held.owner, held.layer_type).cosines(np.array([0]), held.tensor.shape[0])
    if waves is None or waves.cos is None or np.ptp(waves.cos):
        return None
    return float(waves.cos[0, 0])


# Cosines and sines


def waves_cases(walked: Walked, declared: DeclaredCodes) -> tuple[list[Case], frozenset[int]]:
    """The facts about all tables of cosines and sines, and the ids of the modules whose table is wrong."""
    found: list[JudgedTensor] = []
    for held in walked.of("waves"):
        if held.on_meta or (array := held.numbers()) is None or array.ndim < 2:
            continue
        expected = declared.of(held)
        verdicts = []
        for one in expected:
            if getattr(one.code.spec, "axes", None) is not None or not one.sure:
                continue
            for rates in one.ladders.values():
                waves = cosines_of(array, held.name, held.dtype, len(rates))
                if waves is not None:
                    verdicts.append(of_table(waves, one, one.factor_on_cosines, rates))
        verdicts = verdicts or [_by_itself(array)]
        best = next((one for one in verdicts if one.code is None), None)
        best = verdicts[0] if best is None else _of_another_type(held, walked)
        found.append(JudgedTensor(held, _layers(held, expected), _in_words(held, best)))
    return list(_cases(found, _ALIKE, what=WAVES)), _wrong(found)


def _in_words(held: HeldTensor, verdict: Verdict) -> Verdict:
    """The verdict on a table with the evidence of the findings on loaded modules."""
    evidence = {name: value for name, value in verdict.evidence.items() if name != "behaves as"}
    if verdict.code == "attention-factor-differs":
        evidence = {held.place: evidence["factor"], "declared": evidence["declared factor on cosines"]}
    if verdict.evidence.get("behaves as") and verdict.code == "buffer-differs":
        evidence["it is"] = verdict.evidence["behaves as"]
    return Verdict(verdict.code, evidence)


def _by_itself(array: np.ndarray) -> Verdict:
    """What can be said about a table for which nothing is declared."""
    bad = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
    if bad.any():
        return Verdict("buffer-uninitialised", {"wrong": int(bad.sum()), "pairs": len(array), "of": "rows"})
    return Verdict(None if array.any() else "buffer-zero", {})


def _of_another_type(held: HeldTensor, walked: Walked) -> Verdict:
    """A table that is correct for its dtype, which is less precise than the model's."""
    right = walked.dtype
    if held.dtype not in ROUNDED or UNIT_ROUNDOFF.get(right or "", 1.0) >= ROUNDED[held.dtype]:
        return Verdict(None, {})
    return Verdict("buffer-of-another-dtype", {"dtype": held.dtype, "right": right, "error": ROUNDED[held.dtype]})


# Rotations


def rotation_cases(walked: Walked, declared: DeclaredCodes, wrong: frozenset[int]) -> Iterator[Case]:
    """Every part whose rotation is not the declared one; ``wrong`` are parts known to hold wrong numbers."""
    alike: dict[Any, list[tuple[dict[str, Any], str | None]]] = {}
    for path, owner in walked.turning.items():
        if id(owner) in wrong or without_numbers(owner):
            continue
        own = [held for held in walked.of("rates") if held.owner is owner and held.which is None]
        for held in own or [None]:
            found = _of_part(path, owner, held, declared, walked.dtype or "float32")
            if found is not None:
                # One case is reported for all parts that behave the same, with the layers of all.
                evidence = {name: value for name, value in found[0].items() if name != "module"}
                alike.setdefault(str(evidence), []).append(found)
    for group in alike.values():
        evidence, _ = group[0]
        yield case_of("rotation-differs", {**evidence, "parts": len(group)}, joined(layers for _, layers in group))


def _of_part(
    path: str, owner: Any, held: HeldTensor | None, declared: DeclaredCodes, dtype: str
) -> tuple[dict[str, Any], str | None] | None:
    layers = held.layers if held is not None else layers_in((path,))
    part = RotaryPart(owner, None if held is None else held.layer_type)
    expected = [one for one in declared.serving(owner, (path,), layers, part.layer_type) if one.sure]
    verdicts = [rotation_of(part, one, declared.resolved.context, dtype) for one in expected]
    known = [verdict for verdict in verdicts if verdict is not None]
    if not known or any(one.code is None for one in known):
        return None
    told = layer_ranges(layers) if layers else (expected[0].layers if len(expected) == 1 else None)
    evidence = {name: value for name, value in known[0].evidence.items() if name not in ("of", "error")}
    name = f"{path or type(owner).__name__}{f' ({part.layer_type})' if part.layer_type else ''}"
    return {"module": name, **evidence}, told


# Slopes


def slope_cases(walked: Walked, declared: DeclaredCodes) -> Iterator[Case]:
    """The facts about every list of slopes; all that are wrong in the same way give one fact."""
    codes = [code for code in declared.resolved.codes if code.kind == "alibi" and isinstance(code.spec, Alibi)]
    found = []
    for held in walked.of("slopes"):
        slopes = slopes_of(held)
        if slopes is not None:
            known = next(
                (code.spec for code in codes if isinstance(code.spec, Alibi) and code.spec.heads == len(slopes)), None
            )
            found.append(
                JudgedTensor(
                    held, held.in_layers or (codes[0].layers if codes else None), of_slopes(slopes, known, held.dtype)
                )
            )
    yield from _cases(found, ("it is",), what="slopes")


# Position numbers, rows, and tensors that are saved or empty

# The values of one row, random or trained, are mostly within a few factors of two of each other: for a normal
# distribution, the logarithm to base 2 has a standard deviation of 1.6. For random bits it is 9 (float16) or 73.
_SPREAD = 5.0
_MOST_ROWS = 4096

# No rounding, merging or offset makes a position this many times larger than the number of positions.
_FURTHEST = 16


def number_cases(walked: Walked) -> Iterator[Case]:
    """Position numbers stored as floats, or that are not consecutive whole numbers."""
    for held in walked.of("numbers"):
        shape = tuple(held.tensor.shape)
        count = math.prod(shape)
        if held.on_meta or count != max(shape, default=0) or not count or (numbers := held.numbers()) is None:
            continue
        numbers = numbers.ravel()
        first = numbers[0] if np.isfinite(numbers[0]) and 0 <= numbers[0] <= 16 and numbers[0] % 1 == 0 else 0
        never = ~np.isfinite(numbers) | (np.abs(numbers) > _FURTHEST * count)
        evidence = numbered(held.place, shape, held.dtype, numbers, first)
        if never.any():
            told: dict[str, Any] = {held.place: list(shape), "what": "numbers of positions", "of": "numbers"}
            yield case_of("buffer-uninitialised", {**told, "wrong": int(never.sum()), "pairs": count}, held.in_layers)
        elif evidence is not None:
            yield case_of("ids-of-floats", evidence, held.in_layers)


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
        if held.on_meta or held.dtype not in NAMES or held.tensor.ndim < 2 or not held.tensor.numel():
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
            yield case_of("table-uninitialised", evidence, held.in_layers or "input")


def kept_cases(walked: Walked, declared: DeclaredCodes, wrong: frozenset[str]) -> Iterator[Case]:
    """Computed tensors that are saved with the weights, and tensors without values in a model that has some."""
    computed = (*walked.of("rates"), *walked.of("waves"))
    written = [held for held in computed if held.persistent and not held.learned and held.full_name not in wrong]
    if written:
        place = {written[0].place: f"{list(written[0].tensor.shape)} in {written[0].dtype}", "tensors": len(written)}
        what = "rates" if written[0].kind == "rates" else WAVES
        yield case_of(
            "buffer-persistent", {**place, "what": what}, joined(declared.layers_of(held) for held in written)
        )
    empty = [
        held for held in (*computed, *walked.of("numbers")) if held.on_meta and not hasattr(held.owner, "_hf_hook")
    ]
    if empty and not walked.only_meta:
        what = {"rates": "rates", "waves": WAVES}.get(empty[0].kind, "numbers of positions")
        place = {empty[0].place: list(empty[0].tensor.shape), "tensors": len(empty), "what": what}
        yield case_of("buffer-on-meta", place, joined(declared.layers_of(held) for held in empty))
