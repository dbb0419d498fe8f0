"""Measures how large a bias gets, within a length and at any length.

The numbers:

* ``largest``: the largest absolute value of the bias between two tokens within the length; ``limit``: the largest
  absolute value of the bias at any length. Each is None where no such value exists or the learned values are not known.
* ``largest_slope``, ``smallest_slope``: for a bias that is a straight line (ALiBi, retention), the largest and the
  smallest slope of all heads, in 1/token; ``growth_per_token`` is the largest slope.

Accuracy: a relative 8 x 2**-53; of networks the rounding of their products in float64.
"""

from typing import Any

import numpy as np

from clockhands.encodings.biases import Fire, Kerple, LogWindow
from clockhands.encodings.biases.codes import TableCode
from clockhands.encodings.biases.linear import LinearCode
from clockhands.measures.property import Property, answer, not_computed, sentence
from clockhands.measures.subject import MeasuredCode

_WINDOW = 16.0  # the factor by which Swin-V2 multiplies a sigmoid


def bounded_bias(subject: MeasuredCode) -> Property:
    """Whether a bias stays within a bound at any distance.

    Linear biases (ALiBi, the decay of retention) and KERPLE's kernels fall without limit, so the softmax weight goes to
    0. Biases from a table are bounded by the values of the table, and Swin-V2's by 16. FIRE's network gets inputs
    between 0 and 1 only; it is linear between the points where a hidden channel becomes active, so its largest value is
    at one of these points or at an end.
    """
    spec, last = subject.spec, subject.length - 1
    if isinstance(spec, LinearCode):
        return _line(spec, last)
    if isinstance(spec, LogWindow):
        return _within(_WINDOW, "sigmoid")
    if isinstance(spec, TableCode):
        return _looked_up(spec, subject.values)
    values = subject.values
    if isinstance(spec, Kerple):
        return _kerple(spec, values, last)
    if isinstance(spec, Fire):
        return _fire(values)
    return not_computed(sentence("bounded.bias.unknown", bias=type(spec).__name__))


def _line(spec: LinearCode, last: int) -> Property:
    slope = max(spec.slopes)
    form = spec.form if spec.form in ("key", "last-key") else "distance"
    slopes = {"largest_slope": slope, "smallest_slope": min(spec.slopes), "growth_per_token": slope}
    return _without_end(f"line.{form}", slope * last, last, **slopes)


def _within(limit: float | None, case: str, **words: Any) -> Property:
    """A bias that stays within a limit; the limit is None where the learned values are not known."""
    says = sentence(f"bounded.bias.{case}", limit=limit, **words)
    brief = "unknown_limit" if limit is None else "limit"
    return answer(f"bounded.bias.{brief}", holds=True, words={"why": says}, largest=None, limit=limit)


def _without_end(case: str, largest: float, last: int, **more: float) -> Property:
    """A bias that grows with the distance, with its size at the last distance."""
    total = {"what": sentence(f"bounded.bias.{case}", largest=largest, last=last, **more), "last": last}
    return answer("bounded.bias.without_end", holds=False, words=total, largest=largest, limit=None, **more)


def _looked_up(spec: TableCode, values: Any) -> Property:
    if values is None:
        return _within(None, "unknown_table")
    limit = float(np.abs(values[spec.name]).max()) * getattr(spec, "scale", 1.0)
    return _within(limit, "table")


def _kerple(spec: Kerple, values: Any, last: int) -> Property:
    what = "logarithm" if spec.kernel == "log" else "power"
    if values is None:
        return answer("bounded.bias.unknown_kernel", holds=False, words={"what": what}, largest=None, limit=None)
    p, a = values["p"], values["a"]
    heads = p * np.log1p(a * last) if spec.kernel == "log" else a * float(last) ** p
    return _without_end(what, float(heads.max()), last)


def _fire(values: Any) -> Property:
    if values is None:
        return _within(None, "unknown_network")
    weights, begins = values["w1"][:, 0], values["b1"]
    with np.errstate(divide="ignore", invalid="ignore"):
        corners = -begins / weights
    shares = np.concatenate([[0.0, 1.0], corners[(corners > 0) & (corners < 1)]])
    hidden = np.maximum(0.0, shares[:, None] * weights + begins)
    return _within(float(np.abs(hidden @ values["w2"].T + values["b2"]).max()), "network")
