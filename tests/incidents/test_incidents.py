"""Each public incident is named by what its owner had, and by the file alone where one was involved.

By a file, an incident is *named* where a finding says the cause, and *pointed to* where the pattern of misreading that
the runtime followed changes the file and the runtime is known to follow it. By code it is named where the first
explanation of the check names one of its faults.
"""

import datetime as dt
import re

import pytest

from clockhands.runtimes import runtimes
from incidents.replayed import audited_file, checked, drafted, followers, incidents, pointed_to, row_of, runtime_of
from recognition.faults.rows import expected, kind_of

RECORDS = {record["id"]: record for record in incidents()}
OF_FILES = [name for name, record in RECORDS.items() if "file" in record]
OF_PAIRS = [name for name, record in RECORDS.items() if "pair" in record]
OF_CODE = [name for name, record in RECORDS.items() if "code" in record]


def opened(record, what):
    """Why it is not named by this; None where it is."""
    return record.get("open", {}).get(what)


def test_a_file_names_its_incident_or_points_to_it_and_does_not_mislead(cases):
    for name in OF_FILES:
        record = RECORDS[name]
        with cases(name):
            found = audited_file(record)
            # A warning or an error that is not the incident's own finding would send its owner after something else.
            assert {each.code for each in found.findings if each.severity != "note"} <= {record.get("finding")}
            if opened(record, "file"):
                assert not {"finding", "pattern"} & set(record), "what is open has nothing that names or points to it"
                continue
            assert "finding" in record or "pattern" in record
            if "finding" in record:
                assert record["finding"] in {finding.code for finding in found.findings}
            if "pattern" in record:
                assert runtimes()[record["runtime"]].title in (pointed_to(record, found) or "")


def test_a_file_that_a_runtime_misreads_is_a_problem_for_that_runtime(cases):
    for name in OF_FILES:
        record = RECORDS[name]
        if "pattern" not in record:
            continue
        with cases(name):
            runtime = runtime_of(record)
            if runtime is None:
                assert all(statement.of_some_release for statement in followers(record))
                found = audited_file(record, f"{record['runtime']}@0.0.1")
                assert found.problems or any("is known from" in each.message for each in found.findings)
                continue
            problems = {finding.code for finding in audited_file(record, runtime).problems}
            assert problems == (set() if opened(record, "runtime") else {"misread-by-runtime"})


def test_code_that_is_a_public_fault_has_the_names_of_that_fault(cases):
    """tests/recognition/faults holds that the fault is called one of them."""
    for name in OF_CODE:
        record = RECORDS[name]
        if "row" in record["code"]:
            with cases(name):
                row = row_of(record)
                assert row.codes <= set(record["names"])
                assert kind_of(row.spec("halves")) == record["code"]["check"]


# Here another spec is recognised in what the function does, and named by its differences.
RECOGNISED = ["Avarok-Cybersecurity/atlas#276"]


@pytest.mark.parametrize("number", [4, pytest.param(len(RECORDS), marks=pytest.mark.slow)])
def test_other_code_is_called_what_its_owner_found(number, cases, draw):
    others = [name for name in OF_CODE if "row" not in RECORDS[name]["code"]]
    for name in dict.fromkeys([*RECOGNISED, *draw(others, number)]):
        record = RECORDS[name]
        with cases(name):
            report = checked(record)
            assert not report.sound
            if opened(record, "code"):
                assert not expected(report, frozenset(record["names"])), (
                    "it is named now: take its reason out of the data"
                )
            else:
                assert expected(report, frozenset(record["names"])), [one.codes for one in report.explanations]


def test_a_draft_is_told_to_differ_from_its_target(cases):
    for name in OF_PAIRS:
        record = RECORDS[name]
        with cases(name):
            agree, said = drafted(record)
            assert not agree
            assert record["says"] in said


def test_every_record_is_of_the_year_and_has_its_thread():
    first, last = dt.date(2025, 9, 1), dt.date(2026, 11, 30)
    for name, record in RECORDS.items():
        for thread in (name, *record.get("also", ())):
            assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", thread), thread
        date = record["date"]
        assert first <= dt.date.fromisoformat(date if len(date) > 7 else f"{date}-01") <= last, name
        assert record["read"] in ("excerpt", "whole", "evidence table")
        assert all(record[key].endswith(".") for key in ("cause",))
        assert record["had"] in ("file", "code", "pair")
        assert record["had"] in record
