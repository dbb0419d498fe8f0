"""Every public fault that a file shows is caught, and the sound file beside it does not fire."""

import jsonpatch
import pytest

from auditing.faulty_containers import CONTAINER_FAULTS
from auditing.faulty_files import CONFIG_FAULTS
from auditing.model_files import audited, fired, of_code
from clockhands.auditing import CODES, SEVERITIES

FAULTS = {each.name: each for each in (*CONFIG_FAULTS, *CONTAINER_FAULTS)}


def as_grave(found, fault):
    """The findings that would catch the fault: of its code, and as grave as it is."""
    grave = SEVERITIES[: SEVERITIES.index(fault.severity) + 1]
    return [finding for finding in of_code(found, fault.code) if finding.severity in grave]


@pytest.mark.parametrize("name", FAULTS)
def test_a_public_fault_is_caught(name, tmp_path):
    fault = FAULTS[name]
    found = audited(tmp_path, fault.faulty)
    caught = as_grave(found, fault)
    assert caught, fired(found)
    assert [word for word in fault.said if not any(word in finding.message for finding in caught)] == []


@pytest.mark.parametrize("name", FAULTS)
def test_the_sound_file_beside_it_does_not_fire(name, tmp_path):
    fault = FAULTS[name]
    found = audited(tmp_path, fault.sound)
    assert as_grave(found, fault) == []
    assert fired(found) == []


def mended(model, edit):
    """The model with the patch of an edit applied."""
    return {**model, edit.file: jsonpatch.apply_patch(model[edit.file], [dict(step) for step in edit.patch])}


def test_the_patch_of_a_finding_mends_the_fault(tmp_path):
    count = 0
    for place, fault in enumerate(FAULTS.values()):
        for number, finding in enumerate(as_grave(audited(tmp_path / f"{place}", fault.faulty), fault)):
            if finding.severity != "note" and finding.edit is not None and finding.edit.patch:
                count += 1
                found = audited(tmp_path / f"{place}-{number}", mended(fault.faulty, finding.edit))
                assert as_grave(found, fault) == [], fault.name
    print(f"{count} patches mend the faults that they are for")
    assert count >= 30


def test_every_code_that_a_case_names_is_one():
    assert {fault.code for fault in FAULTS.values()} <= set(CODES)


def test_every_number_of_the_list_is_here():
    # The numbers of faults of readers are in `test_what_readers_take`, those of weights in `test_faulty_weights`.
    numbered = {int(name[3:5]) for name in FAULTS if name[3:5].isdecimal()}
    assert numbered == set(range(1, 45)) - {11, 13, 43, 44}
