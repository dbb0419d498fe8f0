"""Every public fault, written again as a small wrong function, is caught and named; its right twin passes.

The quick tests take a few rows of each kind; the slow ones take them all, in two
frameworks and in both layouts.
"""

import pytest

from clockhands import testing
from faults import wrong_additive, wrong_biases, wrong_rotary
from faults.rows import arrays_of, expected

FAMILIES = {
    "rotary": ("check_rotary", wrong_rotary.ROWS, wrong_rotary.made),
    "additive": ("check_additive", wrong_additive.ROWS, wrong_additive.made),
    "bias": ("check_bias", wrong_biases.ROWS, wrong_biases.made),
}


def _all():
    """Each row in both layouts and in two frameworks: PyTorch, and NumPy or JAX in turn."""
    for kind, (_, rows, _) in FAMILIES.items():
        for number, row in enumerate(rows):
            first, *others = row.frameworks
            for framework in (first, others[number % len(others)]):
                for layout in row.layouts:
                    yield pytest.param(kind, row, framework, layout, id=f"{kind}-{row.name}-{framework}-{layout}")


def _some(step):
    """A few rows of each kind; neighbours differ in framework and layout."""
    for kind, (_, rows, _) in FAMILIES.items():
        for number, row in enumerate(rows[::step]):
            framework = row.frameworks[number % len(row.frameworks)]
            layout = row.layouts[number // 2 % len(row.layouts)]
            yield pytest.param(kind, row, framework, layout, id=f"{kind}-{row.name}-{framework}-{layout}")


def checked(kind, row, framework, layout, wrong, **options):
    """The report on the wrong function of a row, or on its right twin."""
    arrays_of(framework)
    name, _, made = FAMILIES[kind]
    check = getattr(testing, name)
    spec, build = row.spec(layout), made(row, framework, wrong)
    if row.values:
        options["values"] = row.values(spec)
    if row.factory or row.fresh:
        return check(make=build, like=spec, backend=framework, raises=False, **row.options, **options)
    return check(build(spec), spec, backend=framework, raises=False, **row.options, **options)


def _named(kind, row, framework, layout):
    report = checked(kind, row, framework, layout, wrong=True)
    assert not report.sound, f"{row.name} passes"
    assert expected(report, row.codes), (
        f"{row.name} is {' or '.join(sorted(row.codes))}, and called {[one.codes for one in report.explanations]}:\n"
        f"{report}"
    )


def _passes(kind, row, framework, layout):
    report = checked(kind, row, framework, layout, wrong=False)
    assert report.sound, f"the right twin of {row.name} fails:\n{report}"


@pytest.mark.parametrize(("kind", "row", "framework", "layout"), list(_some(6)))
def test_public_fault_is_named(kind, row, framework, layout):
    _named(kind, row, framework, layout)


@pytest.mark.parametrize(("kind", "row", "framework", "layout"), list(_some(12)))
def test_right_twin_passes(kind, row, framework, layout):
    _passes(kind, row, framework, layout)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "row", "framework", "layout"), list(_all()))
def test_public_fault_is_named_everywhere(kind, row, framework, layout):
    _passes(kind, row, framework, layout)
    _named(kind, row, framework, layout)


def test_enough_of_the_public_faults_are_written_again():
    cases = {row.case for _, rows, _ in FAMILIES.values() for row in rows}
    assert len({case for case in cases if case.startswith("D3#")}) >= 15
    assert len({case for case in cases if case.startswith("D2#")}) >= 24
