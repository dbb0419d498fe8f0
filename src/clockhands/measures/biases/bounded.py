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
from clockhands.measures.property import Property, measured, not_computed, said
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
        says = "The bias is 16 times a sigmoid, so the bias adds between 0 and 16 to a score, for any trained values."
        return _within(_WINDOW, says)
    if isinstance(spec, TableCode):
        return _looked_up(spec, subject.values)
    values = subject.values
    if isinstance(spec, Kerple):
        return _kerple(spec, values, last)
    if isinstance(spec, Fire):
        return _fire(values)
    return not_computed(f"No bound of the bias {type(spec).__name__} is known.")


def _line(spec: LinearCode, last: int) -> Property:
    slope = max(spec.slopes)
    if spec.form == "key":
        what = "adds {} to a score for each position before the key"
    elif spec.form == "last-key":
        what = "subtracts {} from a score for each token between the key and the last key"
    else:
        what = "subtracts {} from a score for each token of distance"
    end = "key position" if spec.form == "key" else "distance"
    says = (
        f"The head with the largest slope {what.format(f'{slope:.4g}')}, without limit: the total is "
        f"{slope * last:,.6g} at {end} {last:,}."
    )
    slopes = {"largest_slope": slope, "smallest_slope": min(spec.slopes), "growth_per_token": slope}
    return _without_end(slope * last, last, says, **slopes)


def _within(limit: float | None, says: str) -> Property:
    """A bias that stays within a limit; the limit is None where the learned values are not known."""
    brief = "yes: by learned numbers" if limit is None else f"yes: at most {limit:.4g}"
    return measured(brief, says, holds=True, largest=None, limit=limit)


def _without_end(largest: float, last: int, says: str, **more: float) -> Property:
    """A bias that grows with the distance, with its size at the last distance."""
    brief = f"no: {said(largest)} at distance {last:,}"
    return measured(brief, says, holds=False, largest=largest, limit=None, **more)


def _looked_up(spec: TableCode, values: Any) -> Property:
    if values is None:
        return _within(
            None,
            "The bias values are read from a trained table, so the largest value in this table is the bound. To know "
            "the bound, pass the table to clockhands.properties as values=.",
        )
    limit = float(np.abs(values[spec.name]).max()) * getattr(spec, "scale", 1.0)
    return _within(limit, f"The bias values are read from a table, whose largest absolute value is {limit:.4g}.")


def _kerple(spec: Kerple, values: Any, last: int) -> Property:
    what = "logarithm" if spec.kernel == "log" else "power"
    if values is None:
        return measured(
            f"no: grows as a {what}",
            f"The bias subtracts a {what} of the distance from a score, without limit. To know how much, pass the "
            "trained values to clockhands.properties as values=.",
            holds=False,
            largest=None,
            limit=None,
        )
    p, a = values["p"], values["a"]
    heads = p * np.log1p(a * last) if spec.kernel == "log" else a * float(last) ** p
    largest = float(heads.max())
    return _without_end(
        largest,
        last,
        f"The head with the largest bias subtracts a {what} of the distance from a score, without limit: the bias is "
        f"-{largest:.6g} at distance {last:,}.",
    )


def _fire(values: Any) -> Property:
    says = "A small network computes the bias from a number between 0 and 1, so the bias is bounded"
    if values is None:
        says += ". To know the bound, pass the trained weights of the network to clockhands.properties as values=."
        return _within(None, says)
    weights, begins = values["w1"][:, 0], values["b1"]
    with np.errstate(divide="ignore", invalid="ignore"):
        corners = -begins / weights
    shares = np.concatenate([[0.0, 1.0], corners[(corners > 0) & (corners < 1)]])
    hidden = np.maximum(0.0, shares[:, None] * weights + begins)
    limit = float(np.abs(hidden @ values["w2"].T + values["b2"]).max())
    return _within(limit, f"{says}: its absolute value is at most {limit:.4g} at any distance.")
