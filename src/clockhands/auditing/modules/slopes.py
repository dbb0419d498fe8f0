"""The slopes of biases in a straight line that a loaded module keeps, beside those of its number of heads."""

from collections.abc import Iterator

import numpy as np

from clockhands.auditing.findings import CODES, Kind
from clockhands.auditing.modules.held import Held, Walked
from clockhands.auditing.modules.serving import Declared, joined
from clockhands.biases import Alibi
from clockhands.diagnosis import SLOPES, Verdict, fits, of_slopes
from clockhands.sources.resolved import Code, layer_ranges


def slope_cases(walked: Walked, declared: Declared) -> Iterator[Kind]:
    """What there is to say of every list of slopes; all that are wrong in one way are told together."""
    codes = [code for code in declared.resolved.codes if code.kind == "alibi" and isinstance(code.spec, Alibi)]
    alike: dict[tuple[object, ...], list[tuple[Held, Verdict]]] = {}
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
        yield CODES[verdict.code]({**place, **verdict.evidence}, joined(layers) or (codes[0].layers if codes else None))


def slope_codes(walked: Walked) -> list[Code]:
    """The biases that a module without a config shows: slopes as published for so many heads."""
    for held in walked.of("slopes"):
        slopes = _slopes(held)
        if slopes is not None and fits(slopes, np.array(Alibi(len(slopes)).slopes), SLOPES, held.dtype) is not None:
            return [Code("text", None, "alibi", Alibi(len(slopes)), source={"kind": f"{held.place} (recognised)"})]
    return []


def _slopes(held: Held) -> np.ndarray | None:
    """Slopes as they are published: positive, one for each head."""
    numbers = held.numbers()
    if numbers is None or np.iscomplexobj(numbers) or numbers.size != max(numbers.shape, default=0) or not numbers.size:
        return None
    flat = numbers.ravel()
    return -flat if np.isfinite(flat).all() and (flat <= 0).all() else flat
