"""The document of the year is what the audit and the checks answer now."""

import pytest

import incidents_document as maker
from incidents.replayed import incidents


@pytest.mark.slow  # every incident is replayed; the quick tests do that too, and hold each answer
def test_the_document_says_what_names_each_incident_now():
    assert maker.DOCUMENT.read_text(encoding="utf-8") == maker.document(), "run tools/incidents_document.py"


def test_an_incident_that_is_named_otherwise_changes_the_document():
    record = next(record for record in incidents() if "open" not in record and "code" in record)
    assert maker.row(record) != maker.row({**record, "open": {"code": "It is not named."}})
    assert maker.row(record) in maker.DOCUMENT.read_text(encoding="utf-8")
