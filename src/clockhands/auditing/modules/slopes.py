"""The slopes of biases in a straight line that a loaded module keeps, beside those of its number of heads."""

from collections.abc import Iterator

import numpy as np

from clockhands.auditing.checks import Case
from clockhands.auditing.modules.held import Held, Walked
from clockhands.auditing.modules.serving import Declared, joined
from clockhands.biases import Alibi
from clockhands.diagnosis import Verdict, fits
from clockhands.sources.resolved import Code, layer_ranges

# Powers of two, made by `pow` in float32.
_SLACK = 2.0**-20


def slope_cases(walked: Walked, declared: Declared) -> Iterator[Case]:
    """What there is to say of every list of slopes; all that are wrong in one way are told together."""
    codes = [code for code in declared.resolved.codes if code.kind == "alibi" and isinstance(code.spec, Alibi)]
    alike: dict[tuple[object, ...], list[tuple[Held, Verdict]]] = {}
    for held in walked.of("slopes"):
        slopes = _slopes(held)
        if slopes is None:
            continue
        known = [code.spec.slopes for code in codes if isinstance(code.spec, Alibi) and code.spec.heads == len(slopes)]
        verdict = _verdict(slopes, np.array(known[0]) if known else None, held.dtype)
        if verdict.code is not None:
            alike.setdefault((verdict.code, verdict.evidence.get("it is")), []).append((held, verdict))
    for group in alike.values():
        held, verdict = group[0]
        assert verdict.code is not None
        place = {held.place: f"{held.tensor.numel()} numbers in {held.dtype}", "tensors": len(group), "what": "slopes"}
        layers = [layer_ranges(one.layers) if one.layers else None for one, _ in group]
        yield verdict.code, {**place, **verdict.evidence}, joined(layers) or (codes[0].layers if codes else None)


def slope_codes(walked: Walked) -> list[Code]:
    """The biases that a module without a config shows: slopes as published for so many heads."""
    for held in walked.of("slopes"):
        slopes = _slopes(held)
        if slopes is not None and fits(slopes, np.array(Alibi(len(slopes)).slopes), _SLACK, held.dtype) is not None:
            return [Code("text", None, "alibi", Alibi(len(slopes)), source={"kind": f"{held.place} (recognised)"})]
    return []


def _slopes(held: Held) -> np.ndarray | None:
    """Slopes as they are published: positive, one for each head."""
    numbers = held.numbers()
    if numbers is None or np.iscomplexobj(numbers) or numbers.size != max(numbers.shape, default=0) or not numbers.size:
        return None
    flat = numbers.ravel()
    return -flat if np.isfinite(flat).all() and (flat <= 0).all() else flat


def _verdict(slopes: np.ndarray, right: np.ndarray | None, dtype: str) -> Verdict:
    bad = ~np.isfinite(slopes) | (np.abs(slopes) > 1e3)
    if bad.any():
        return Verdict("buffer-uninitialised", {"wrong": int(bad.sum()), "pairs": len(slopes), "of": "heads"})
    if right is None:
        return Verdict(None, {})
    how = fits(slopes, right, _SLACK, dtype)
    head = int(np.argmax(np.abs(slopes - right) / right))
    seen = {"head": head, "stored": float(slopes[head]), "declared": float(right[head])}
    if how == "exact":
        return Verdict(None, {})
    if how is not None:
        return Verdict("buffer-rounded", {**seen, "rounded to": how})
    return Verdict("slopes-differ", seen | _named(slopes, right, dtype))


def _named(slopes: np.ndarray, right: np.ndarray, dtype: str) -> dict[str, str]:
    """The rule that makes these slopes, where it is one that is known to be taken by mistake."""
    heads = len(slopes)
    rules = {
        "one geometric series through all heads": np.array(Alibi(heads, series="plain").slopes),
        "a series that begins at 1": np.array([2.0 ** (-8 * head / heads) for head in range(heads)]),
        "the declared ones in another order of heads": np.sort(right)[::-1],
        "all zero": np.zeros(heads),
    }
    for name, rule in rules.items():
        seen = np.sort(slopes)[::-1] if name.startswith("the declared") else slopes
        if fits(seen, rule, _SLACK, dtype) is not None:
            return {"it is": name}
    return {}
