"""Every public fault that a file shows is caught, and the sound file beside it does not fire."""

import jsonpatch

from auditing.faulty_containers import CONTAINER_FAULTS
from auditing.faulty_files import CONFIG_FAULTS
from auditing.model_files import audit_of, audited, fired, of_code
from clockhands.auditing import SEVERITIES

FAULTS = (*CONFIG_FAULTS, *CONTAINER_FAULTS)


def audit_in(folder, model):
    """The audit of a model's files; of a config alone that of standard input."""
    return audit_of(model["config.json"]) if list(model) == ["config.json"] else audited(folder, model)


def as_grave(found, fault):
    """The findings that would catch the fault: of its code, and as grave as it is."""
    grave = SEVERITIES[: SEVERITIES.index(fault.severity) + 1]
    return [finding for finding in of_code(found, fault.code) if finding.severity in grave]


def test_a_public_fault_is_caught(cases, tmp_path):
    for number, fault in enumerate(FAULTS):
        with cases(fault.name):
            found = audit_in(tmp_path / str(number), fault.faulty)
            caught = as_grave(found, fault)
            assert caught, fired(found)
            assert [word for word in fault.said if not any(word in finding.message for finding in caught)] == []


def test_the_sound_file_beside_it_does_not_fire(cases, tmp_path):
    for number, fault in enumerate(FAULTS):
        with cases(fault.name):
            found = audit_in(tmp_path / str(number), fault.sound)
            assert as_grave(found, fault) == []
            assert fired(found) == []


def test_the_patch_of_a_finding_in_a_folder_mends_the_fault(cases, tmp_path):
    # `test_mending` has the patches of configs alone.
    tried = 0
    for number, fault in enumerate(each for each in FAULTS if len(each.faulty) > 1):
        for finding in as_grave(audited(tmp_path / str(number), fault.faulty), fault):
            if finding.severity != "note" and finding.edit is not None and finding.edit.patch:
                tried += 1
                name, patch = finding.edit.file, [dict(step) for step in finding.edit.patch]
                mended = {**fault.faulty, name: jsonpatch.apply_patch(fault.faulty[name], patch)}
                with cases(fault.name):
                    assert as_grave(audited(tmp_path / str(number), mended), fault) == []
    assert tried >= 1
