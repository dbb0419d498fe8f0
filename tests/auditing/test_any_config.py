"""Whatever stands in a config, its audit ends without a traceback, is strict JSON, and its patches fit the file."""

import copy
import json

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditing.faulty_files import CONFIG_FAULTS
from clockhands.auditing._audits import judged
from clockhands.errors import ClockhandsError
from clockhands.sources.resolve import resolve
from resolution.expected import opened
from resolution.test_any_json import CONFIGS, JSON, places

FILES = [*CONFIGS, *(fault.faulty["config.json"] for fault in CONFIG_FAULTS)]


@settings(max_examples=25)
@given(data=st.data())
def test_any_value_in_any_field_is_audited(data):
    audit_changed(data)


@pytest.mark.slow
@settings(max_examples=1000)
@given(data=st.data())
def test_more_values_in_any_field_are_audited(data):
    audit_changed(data)


def audit_changed(data):
    """Audit a config with other values in some of its fields, or without them."""
    config = copy.deepcopy(data.draw(st.sampled_from(FILES)))
    for _ in range(data.draw(st.integers(1, 3))):
        *around, key = data.draw(st.sampled_from(sorted(places(config))))
        inside = config
        for name in around:
            inside = inside[name]
        if data.draw(st.booleans()):
            inside[key] = data.draw(JSON)
        else:
            del inside[key]
            if not config:
                break
    length = data.draw(st.one_of(st.none(), st.integers(1, 10**9)))
    target = opened(config)
    try:
        found = judged(target, resolve(target, length))
    except ClockhandsError:
        return
    json.dumps(found.to_dict(), allow_nan=False)
    for finding in found.findings:
        assert finding.message.endswith(".")
        assert finding.hint.endswith(".")
        if finding.edit is not None and finding.edit.patch:
            assert finding.edit.file == "config.json"
            jsonpatch.apply_patch(config, [dict(step) for step in finding.edit.patch])
