"""Rows of the table of model types: those of people say why, and those read from classes are what the tool writes."""

import json
from pathlib import Path

import pytest

from clockhands.configs import model_types as known

CONFIGS = Path(known.__file__).parent


def rows(file, key):
    return json.loads((CONFIGS / file).read_text(encoding="utf-8"))[key]


def test_a_row_by_a_person_says_why_and_no_other_does(cases):
    by_hand, read = rows("model_types.json", "types"), rows("types_of_classes.json", "types_of_classes")
    assert not by_hand.keys() & read.keys()
    for name, row in by_hand.items():
        with cases(name):
            assert 20 <= len(row.get("why", "")) <= 140
    assert [name for name, row in read.items() if "why" in row or "class" not in row] == []


def test_remarks_are_about_types_whose_rows_were_read(cases):
    read = rows("types_of_classes.json", "types_of_classes")
    remarks = rows("type_details.json", "remarks")
    named = [name for remark in remarks for name in remark["types"]]
    assert len(named) == len(set(named))
    for name in named:
        with cases(name):
            found = known.model_type(name)
            assert name in read
            assert found is not None
            assert found.remark in [remark["says"] for remark in remarks]


@pytest.mark.slow
def test_rows_read_from_classes_are_what_the_tool_writes(cases, draw, library):
    import model_types as tool

    read = rows("types_of_classes.json", "types_of_classes")
    assert known.table()["library_of_classes"] == f"transformers {library.__version__}"
    for name in draw(sorted(read), 12):
        with cases(name):
            reasons = []
            assert tool.row_of(name, reasons) == read[name], reasons
