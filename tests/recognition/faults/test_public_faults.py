"""Every public fault, written again as a small wrong function, is caught and named; its right twin passes.

The quick tests draw a third of the faults, in NumPy, and a few in PyTorch; the slow ones take each in all libraries.
"""

import pytest

from clockhands.recognition.faults import ADDITIVE, BIAS
from recognition.faults import wrong_additive, wrong_biases, wrong_rotary
from recognition.faults.rows import expected

FAMILIES = {"rotary": wrong_rotary.ROWS, "additive": wrong_additive.ROWS, "bias": wrong_biases.ROWS}


def named(row, framework, layout, **options):
    report = row.report(framework, layout, **options)
    called = [one.codes for one in report.explanations]
    assert not report.sound, "it passes"
    assert expected(report, row.codes), f"it is {' or '.join(sorted(row.codes))}, and called {called}:\n{report}"
    if framework == "numpy" and row.exact:
        assert report.codes <= row.codes, report
        assert not row.every or report.codes == row.codes, report


def passes(row, framework, layout, **options):
    report = row.report(framework, layout, wrong=False, **options)
    assert report.sound, f"the right twin fails:\n{report}"


@pytest.mark.parametrize("kind", FAMILIES)
def test_public_faults_are_named(kind, cases, draw):
    for number, row in draw(enumerate(FAMILIES[kind]), -(-len(FAMILIES[kind]) // 3)):
        layout = row.layouts[number % len(row.layouts)]
        short = {"length": 2500} if kind == "additive" and not row.values else {}
        with cases(row.name, layout):
            named(row, "numpy", layout, **short)


@pytest.mark.parametrize("kind", FAMILIES)
def test_right_twins_pass(kind, cases, draw):
    for number, row in draw(enumerate(FAMILIES[kind]), 8):
        layout = row.layouts[number % len(row.layouts)]
        with cases(row.name, layout):
            passes(row, "numpy", layout)


def test_public_faults_are_named_in_torch(cases, draw):
    pytest.importorskip("torch")
    for rows in FAMILIES.values():
        for row in draw([row for row in rows if "torch" in row.frameworks], 1):
            with cases(row.name):
                named(row, "torch", row.layouts[-1])


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_public_fault_is_named_and_its_twin_passes_in_every_library(kind, framework, cases):
    pytest.importorskip(framework)
    for number, row in enumerate(FAMILIES[kind]):
        if framework in row.frameworks:
            layout = row.layouts[(number + (framework != "torch")) % len(row.layouts)]
            with cases(row.name, layout):
                passes(row, framework, layout)
                named(row, framework, layout)


def test_every_fault_of_an_added_code_and_of_a_bias_has_a_function_that_shows_it():
    shown = {kind: set().union(*(row.codes for row in rows)) for kind, rows in FAMILIES.items()}
    assert set(ADDITIVE) - shown["additive"] == {"rows-in-another-order", "cells-elsewhere", "rows-of-old-grid"}, (
        "of grids"
    )
    elsewhere = {"cache-without-heads", "cache-without-slopes", "cache-without-max-distance", "axes-exchanged"}
    elsewhere |= {
        "bias-from-key-only",
        "constant-for-each-row",
        "buckets-not-apart",
        "changes-its-arguments",
        "one-number-wrong",
        "term-of-opposite-distance",  # of scores that depend on content
        "term-of-row-beside",
    }
    assert set(BIAS) - shown["bias"] == elsewhere | {"overwrites-its-answers"}
