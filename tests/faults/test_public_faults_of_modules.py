"""The public faults of modules and of models that keep a cache are caught and named; their right twins pass."""

import pytest

pytest.importorskip("torch")

from clockhands.testing import check_generation, check_module
from faults import wrong_generation, wrong_modules
from faults.rows import LAYOUTS, expected
from faults.wrong_generation import VOCABULARY


def _module(row, layout, wrong):
    spec, build = row.spec(layout), wrong_modules.built(row, wrong)
    options = dict(row.options, raises=False)
    if row.factory:
        return check_module(like=spec, make=build, **options)
    return check_module(build(spec), spec, **options)


def _generation(row, code, wrong):
    model = wrong_generation.built(row, code, wrong)
    return check_generation(forward=model, vocabulary=VOCABULARY, length=row.length, raises=False)


def _told(report, row):
    assert not report.sound, f"{row.name} passes"
    assert expected(report, row.codes), (
        f"{row.name} is {' or '.join(sorted(row.codes))}, and called {[one.codes for one in report.explanations]}:\n"
        f"{report}"
    )


MODULES = [pytest.param(row, layout, id=f"{row.name}-{layout}") for row in wrong_modules.ROWS for layout in LAYOUTS]
MODELS = [pytest.param(row, code, id=f"{row.name}-{code}") for row in wrong_generation.ROWS for code in row.model_codes]


@pytest.mark.parametrize(("row", "layout"), MODULES[::9])
def test_fault_of_a_module_is_named(row, layout):
    _told(_module(row, layout, wrong=True), row)


@pytest.mark.slow
@pytest.mark.parametrize(("row", "layout"), MODULES)
def test_fault_of_a_module_is_named_in_both_layouts(row, layout):
    report = _module(row, layout, wrong=False)
    assert report.sound, f"the right twin of {row.name} fails:\n{report}"
    _told(_module(row, layout, wrong=True), row)


@pytest.mark.parametrize(("row", "layout"), MODULES[1::14])
def test_right_twin_of_a_module_passes(row, layout):
    report = _module(row, layout, wrong=False)
    assert report.sound, str(report)


@pytest.mark.parametrize(("row", "code"), MODELS[::4])
def test_fault_of_a_model_is_named(row, code):
    _told(_generation(row, code, wrong=True), row)


@pytest.mark.slow
@pytest.mark.parametrize(("row", "code"), MODELS)
def test_fault_of_a_model_is_named_whatever_its_code(row, code):
    report = _generation(row, code, wrong=False)
    assert report.sound, f"the right twin of {row.name} fails:\n{report}"
    _told(_generation(row, code, wrong=True), row)


@pytest.mark.parametrize("code", ["halves", "alibi", "sinusoidal"])
def test_right_model_passes(code):
    report = _generation(wrong_generation.ROWS[0], code, wrong=False)
    assert report.sound, str(report)


@pytest.mark.parametrize("length", [16, 48, 64])
def test_right_model_passes_at_any_length(length):
    """What sums in another order do to a single token is not what its position does."""
    report = check_generation(
        forward=wrong_generation.Model("halves"), vocabulary=VOCABULARY, length=length, raises=False
    )
    assert report.sound, str(report)
