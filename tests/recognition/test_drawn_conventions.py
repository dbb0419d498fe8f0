"""Tables of conventions that nobody has named are read back: ladder, order, layout, positions, scale and rows."""

import dataclasses

import numpy as np
import pytest

import clockhands as ch
from recognition.drawn_conventions import ROUNDING, drawn

SHARE = 0.98


def why_not(convention, table, matches):
    """Why a table is not identified, or None: every row within 4 roundings, and the convention or an equivalent."""
    if not matches:
        return matches.reason
    match = matches[0]
    made = ch.table(match.spec, match.positions, "float64", values=match.values)
    rounding = ROUNDING[convention.dtype]
    error = np.abs(made - table.astype(np.float64)).max() / (rounding * convention.scale)
    if not error <= 4:
        return f"off by {error:.3g} roundings"
    if match.residual is not None:
        return "something is left over"
    if dict(match.evidence)["dtype"] != convention.dtype:
        return "another dtype is seen"
    if (match.rows.prepended, match.rows.zeroed) != rows_of(convention, match):
        return f"the rows are {match.rows}"
    reach = np.abs(convention.positions).max()
    for spec in (match.spec, *match.equivalents):
        if isinstance(spec, str) or (spec.layout, spec.order) != (convention.layout, convention.order):
            continue
        # Rates are told as far as they move a phase by more than the rows were rounded by; a base that is not the one
        # of the table, for another span, is a float64 and says rates to a few 2**-53 of themselves.
        if spec.spacing.span == convention.span and len(spec.rates) == convention.hands:
            off = np.abs(np.array(spec.rates) - convention.rates.astype(np.float64)).max() * reach
            if off <= 16 * rounding + 16 * 2.0**-53 * reach:
                return None
    return f"the ladder is {ch.describe(match.spec)}"


def rows_of(convention, match):
    """Rows of zeros as a match says them: those at positions that count are padding, wherever they stand."""
    zeroed = () if convention.zeroed is None else (convention.zeroed,)
    lead = convention.prepended + (1 if convention.zeroed == 0 else 0)
    if convention.zeroed == 0:
        zeroed = ()
    if lead and match.rows.prepended == 0:
        return 0, (*range(lead), *zeroed)
    return lead, zeroed


def identified(seeds):
    """The failures among conventions of these seeds, each with why."""
    failures = []
    for seed in seeds:
        convention = drawn(seed)
        table = convention.table()
        reason = why_not(convention, table, ch.identify(table))
        if reason is not None:
            failures.append((reason, convention))
    return failures


def listed(failures):
    return "\n".join(f"{reason}: {dataclasses.asdict(convention)}" for reason, convention in failures)


def test_drawn_conventions_are_identified(draw):
    failures = identified(draw(range(55), 18))  # all 55 are
    assert failures == [], listed(failures)


@pytest.mark.slow
def test_a_thousand_drawn_conventions_are_identified():
    failures = identified(range(1000))
    print(listed(failures))
    assert len(failures) <= (1 - SHARE) * 1000, listed(failures)


def test_the_check_can_fail(cases):
    """A table of another convention than the one that it is checked against."""
    true = dataclasses.replace(drawn(0), dtype="float32", rising=False, zeroed=None, prepended=0, scale=1.0, rows=60)
    order = "cos-sin" if true.order == "sin-cos" else "sin-cos"
    layout = "halves" if true.layout == "interleaved" else "interleaved"
    for wrong in (
        {"base": 1.001 * true.base},
        {"order": order},
        {"layout": layout},
        {"start": true.start + 0.01},
        {"step": true.step + 0.001},
        {"scale": 1.01 * true.scale},
    ):
        with cases(wrong):
            other = dataclasses.replace(true, **wrong)
            matches = ch.identify(other.table())
            assert why_not(other, other.table(), matches) is None
            assert why_not(true, true.table(), matches) is not None
