"""Every public fault that a file shows is caught, and the sound file beside it is not blamed."""

import pytest

from auditing.faulty_containers import CONTAINER_FAULTS
from auditing.faulty_files import CONFIG_FAULTS
from auditing.model_files import audited, fired, of_code
from clockhands.auditing import CODES, SEVERITIES

FAULTS = {each.name: each for each in (*CONFIG_FAULTS, *CONTAINER_FAULTS)}

# Cases that no rule catches yet. A case that is caught has to leave this list.
NOT_YET: set[str] = {}

WAITING = pytest.mark.xfail(reason="no rule catches it yet", strict=True)
CAUGHT = [pytest.param(name, marks=WAITING) if name in NOT_YET else name for name in FAULTS]


def as_grave(found, fault):
    """The findings that would catch the fault: of its codes, and as grave as it is."""
    grave = SEVERITIES[: SEVERITIES.index(fault.severity) + 1]
    return [finding for finding in of_code(found, *fault.codes) if finding.severity in grave]


@pytest.mark.parametrize("name", CAUGHT)
def test_a_public_fault_is_caught(name, tmp_path):
    fault = FAULTS[name]
    found = audited(tmp_path, fault.faulty)
    caught = as_grave(found, fault)
    assert caught, fired(found)
    assert [word for word in fault.said if not any(word in finding.message for finding in caught)] == []


@pytest.mark.parametrize("name", FAULTS)
def test_the_sound_file_beside_it_is_not_blamed(name, tmp_path):
    fault = FAULTS[name]
    found = audited(tmp_path, fault.sound)
    assert as_grave(found, fault) == []
    # A file that is right may have readers that take it otherwise.
    assert [finding for finding in found.findings if finding.severity != "note" and finding.blames != "reader"] == []


def test_every_code_that_a_case_names_is_one():
    assert {code for fault in FAULTS.values() if fault.name not in NOT_YET for code in fault.codes} <= set(CODES)


def test_every_case_that_waits_for_a_rule_is_one():
    assert set(FAULTS) >= NOT_YET
