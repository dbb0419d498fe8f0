"""docs/properties.md is what the code says now, and has every encoding with every property."""

import re
from pathlib import Path

import pytest

import clockhands as ch
from clockhands.encodings.mixtures import LayerMixture
from clockhands.encodings.specs import SPECS

ROOT = Path(__file__).resolve().parents[2]
CELL = re.compile(r"(?<!\\)\|")


@pytest.fixture(scope="module")
def tool():
    import properties_document

    return properties_document


@pytest.fixture(scope="module")
def written():
    return (ROOT / "docs" / "properties.md").read_text(encoding="utf-8")


def rows_of(tool):
    return [*tool.added(), *tool.turned(), *tool.biases()]


def test_every_encoding_is_a_row(tool):
    kinds = {type(spec) for _, spec, _ in rows_of(tool)}
    # Layers that differ are the codes of the layers, each a row.
    assert kinds == set(SPECS) - {LayerMixture}


def test_every_property_is_explained_and_is_a_column(tool, written):
    columns = {name for _, names in tool.TABLES for name in names} | set(tool.BIASES)
    assert columns == set(tool.QUESTIONS) == set(tool.MEANS)
    for name in tool.QUESTIONS:
        assert f"**{name}**: " in written


def test_no_cell_is_empty_or_too_long(written):
    for line in written.splitlines():
        if line.startswith("| ") and "---" not in line:
            cells = [cell.strip() for cell in CELL.split(line)[1:-1]]
            assert all(0 < len(cell) <= 80 for cell in cells), line
            assert not any(cell in ("nan", "None", "inf") for cell in cells), line


@pytest.mark.parametrize("name", ["Sinusoidal, width 64", "NoPosition", "Alibi, by distance", "Rotary with xPos"])
def test_a_row_is_what_properties_says(tool, written, name):
    """A few of them, which cost little: the slow test below has all."""
    ((_, spec, values),) = [row for row in rows_of(tool) if row[0] == name]
    found = ch.properties(spec, tool.LENGTH, tool.DTYPE, values=values)
    columns = [tool.BIASES] if hasattr(spec, "heads") else [names for _, names in tool.TABLES]
    for names in columns:
        line = " | ".join([f"| {name}", *(tool.cell(getattr(found, each).brief) for each in names)])
        assert f"{line} |\n" in written, "run `python tools/properties_document.py`"


def test_every_figure_is_explained_by_its_name(tool, written):
    explained = written.partition("## The figures by name")[2]
    dtype = "(?:float16|float32|float64|bfloat16)"
    for row, spec, values in rows_of(tool):
        for name, each in ch.properties(spec, min(64, getattr(spec, "usable", 64)), values=values):
            for figure in each.numbers:
                # One name stands for those of every dtype, way and base.
                plain = re.sub("^(base_[0-9]+|evenly_spaced)_", "", figure)
                said = re.sub(f"^{dtype}_[a-z]+$", "float32_throughout", plain)
                said = re.sub(f"^{dtype}_[a-z]+_first_off", "float32_throughout_first_off", said)
                said = re.sub(f"^{dtype}_(largest|first|most|merged)_", r"float32_\1_", said)
                said = said.replace("float32_throughout_first_off_by_one", "…_first_off_by_one")
                assert any(f"`{word}`" in explained for word in (figure, plain, said)), (row, name, figure)


@pytest.mark.slow
def test_the_document_is_what_the_code_makes_now(tool, written):
    assert written == tool.document(), "run `python tools/properties_document.py`"
