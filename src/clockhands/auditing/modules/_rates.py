"""Compares the frequencies that a loaded module holds with those that its config declares, module by module."""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from clockhands.auditing._held_numbers import Expected
from clockhands.auditing.findings import Case, case_of
from clockhands.auditing.modules._held import HeldTensor, Walked, parameters_of
from clockhands.auditing.modules._serving import DeclaredCodes, joined
from clockhands.configs.resolved import Code, layer_ranges
from clockhands.recognition.diagnosis import ROUNDED, Verdict, judged, recognised_spec, unlike_any

# A factor on cosine and sine is computed in double precision, or kept in float32.
_SAME_FACTOR = 2.0**-20


def rates_cases(walked: Walked, declared: DeclaredCodes) -> tuple[list[Case], frozenset[int]]:
    """The facts about every ladder, and the ids of the modules whose ladder is wrong."""
    found: list[tuple[HeldTensor, str | None, Verdict]] = []
    # Layers mostly hold the same values, and a wrong ladder is compared with many others.
    judged_before: dict[Any, Verdict] = {}
    for held in walked.of("rates"):
        if hasattr(held.owner, "clockhands_output"):
            continue  # `clockhands.transformers.swap` has replaced the code that read them
        numbers = held.numbers()
        if numbers is None or numbers.ndim != 1 or not numbers.size or np.iscomplexobj(numbers):
            continue
        expected = declared.serving(
            held.owner,
            held.paths,
            held.layers,
            held.layer_type,
            which=held.which,
            reach=_reach(held.owner, held.layer_type),
        )
        layers = _layers(held, expected)
        key = (numbers.tobytes(), held.dtype, tuple((id(one.code), *one.ladders, one.sure) for one in expected))
        verdict = _inert(held, expected) or judged_before.get(key)
        if verdict is None:
            verdict = judged_before[key] = _verdict(held, numbers, expected, declared.resolved.context)
        found.append((held, layers, verdict))
    wrong = frozenset(id(held.owner) for held, _, verdict in found if verdict.code is not None)
    cases = [*_together(_shrinking(found)), *_factors(walked, declared, wrong)]
    return cases, wrong


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
    if held.layers:
        return layer_ranges(held.layers)
    return expected[0].layers if len(expected) == 1 else None


def _shrinking(found: list[tuple[HeldTensor, str | None, Verdict]]) -> list[tuple[HeldTensor, str | None, Verdict]]:
    """Ladders of several layers that become shorter from one to the next: a shared object was changed."""
    pairs = [(held.layers[0], held.tensor.shape[0]) for held, _, _ in found if len(held.layers) == 1]
    pairs.sort()
    sizes = [size for _, size in pairs]
    grows = any(after > before for before, after in itertools.pairwise(sizes))
    if len(sizes) < 2 or sizes[-1] == sizes[0] or grows:
        return found
    told = {"pairs by layer": {str(layer): size for layer, size in pairs[:16]}}
    return [
        (held, layers, Verdict("shared-object-mutated", {**verdict.evidence, **told}))
        if verdict.code == "buffer-of-another-width"
        else (held, layers, verdict)
        for held, layers, verdict in found
    ]


def _together(found: list[tuple[HeldTensor, str | None, Verdict]]) -> Iterator[Case]:
    """One case for all ladders that are wrong in the same way; copies under other names are counted."""
    alike: dict[Any, list[tuple[HeldTensor, str | None, Verdict]]] = {}
    for held, layers, verdict in found:
        if verdict.code is not None:
            shown = {
                name: value for name, value in verdict.evidence.items() if name in ("rounded to", "base in effect")
            }
            key = (verdict.code, held.layer_type, held.which == "long", *shown.items())
            alike.setdefault(key, []).append((held, layers, verdict))
    for group in alike.values():
        # A copy that is kept for later (`original_inv_freq`) is reported if only it is wrong.
        group.sort(key=lambda each: each[0].which is not None)
        held, _, verdict = group[0]
        assert verdict.code is not None
        what = f"{held.tensor.shape[0]} numbers in {held.dtype}"
        evidence = {held.place: what, "tensors": len(group), **verdict.evidence}
        if held.which is not None:
            evidence["copy"] = held.which
        yield case_of(verdict.code, evidence, joined(layers for _, layers, _ in group))


def _factors(walked: Walked, declared: DeclaredCodes, wrong: frozenset[int]) -> Iterator[Case]:
    """The factor on cosine and sine that a module keeps, compared with the config's."""
    seen: set[tuple[int, str]] = set()
    for held in walked.of("rates"):
        name = f"{held.layer_type}_attention_scaling" if held.layer_type else "attention_scaling"
        value = getattr(held.owner, name, None)
        if id(held.owner) in wrong or (id(held.owner), name) in seen or isinstance(value, bool):
            continue
        seen.add((id(held.owner), name))
        expected = declared.serving(held.owner, held.paths, held.layers, held.layer_type)
        factors = {one.code.attention_factor for one in expected if one.sure}
        try:
            kept = None if value is None else float(value)
        except (TypeError, ValueError, RuntimeError):
            continue
        if kept is None or len(factors) != 1 or (factor := factors.pop()) is None:
            continue
        if abs(kept - factor) > _SAME_FACTOR * factor:
            path = f"{held.paths[0]}.{name}" if held.paths[0] else name
            yield case_of(
                "attention-factor-differs", {f"model:{path}": kept, "declared": factor}, _layers(held, expected)
            )


def ladder_codes(walked: Walked) -> list[Code]:
    """The codes of a module without a config, from its ladders: one for all layers with the same frequencies."""
    alike: dict[tuple[float, ...], list[HeldTensor]] = {}
    for held in walked.of("rates"):
        numbers = held.numbers()
        if held.which is None and numbers is not None and numbers.ndim == 1 and numbers.size and numbers.any():
            alike.setdefault(tuple(map(float, numbers)), []).append(held)
    codes = []
    for rates, group in alike.items():
        if not np.isfinite(rates).all():
            continue
        place = group[0].place
        layers = joined(layer_ranges(held.layers) if held.layers else None for held in group)
        kind = kind_of(group[0])
        width = {"rotary": "rotated", "sinusoidal": "width"}.get(kind or "", "rates")
        known = ("rates", width, *(("kind",) if kind else ()), *(("layers",) if layers else ()))
        source: dict[str, str] = dict.fromkeys(known, place)
        slack = 2.0**-20 if group[0].dtype not in ROUNDED else 2 * ROUNDED[group[0].dtype]
        spec = recognised_spec(np.array(rates), slack) if min(rates) >= 0 else None
        base = None if spec is None else spec.base
        if base is not None:
            source["base"] = f"{place} (recognised)"
        channels = {"width": None, "rotated": None} | ({} if width == "rates" else {width: 2 * len(rates)})
        codes.append(
            Code(
                "text",
                layers,
                kind,
                width=channels["width"],
                rotated=channels["rotated"],
                base=base,
                rates=rates,
                source=source,
            )
        )
    return codes


def kind_of(held: HeldTensor) -> str | None:
    """What frequencies are used for, by the name and the arguments of their module; None if neither shows it."""
    name = f"{held.paths[0].rpartition('.')[2]} {type(held.owner).__name__}".lower()
    if re.search(r"rotary|rope", name):
        return "rotary"
    if re.search(r"sinus|posit\w*_?enc|timestep", name):
        return "sinusoidal"
    return "rotary" if parameters_of(held.owner) & {"position_ids", "seq_len"} else None
