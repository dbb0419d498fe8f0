"""What fires on published configs: what was written down by hand before the rules, and what the document says."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

import field_document
import published_findings as tool
from clockhands.auditing import Audit
from clockhands.auditing.findings._published_models import releases

EXPECTED = json.loads(Path(__file__).with_name("expected_findings.json").read_text(encoding="utf-8"))
CONFIGS = EXPECTED["configs"]

# Config, code and, of what fires, severity.
Found = set[tuple[str, ...]]


@pytest.fixture(scope="module")
def all_audited(published):
    return tool.audits(published / "configs")


@pytest.fixture(scope="module")
def audited(all_audited):
    return {each.name: each.audit for each in all_audited}


@pytest.fixture(scope="module")
def reasons():
    return json.loads(tool.REASONS.read_text(encoding="utf-8"))


def because() -> Mapping[str, str]:
    return {config["name"]: config["because"] for config in CONFIGS}


def differences(expected: Found, found: Found) -> list[str]:
    reasons = because()
    return [
        *(f"{row} fires and should not: {reasons.get(row[0])}" for row in sorted(found - expected)),
        *(f"{row} is missing: {reasons.get(row[0])}" for row in sorted(expected - found)),
    ]


def fires(audits: Mapping[str, Audit], names: Iterable[str]) -> Found:
    return {
        (name, found.code, found.severity)
        for name in names
        for found in audits[name].findings
        if found.severity != "note"
    }


def test_what_fires_is_what_was_expected_and_expected_notes_are_there(audited):
    expected = {(each["name"], code, severity) for each in CONFIGS for code, severity in each["fires"].items()}
    notes = {(each["name"], code, "note") for each in CONFIGS for code in each["notes"]}
    there = {(name, found.code, found.severity) for name, audit in audited.items() for found in audit.findings}
    gaps = differences(expected | notes, fires(audited, [each["name"] for each in CONFIGS]) | (notes & there))
    assert not gaps, "\n".join(gaps)


def test_every_config_is_expected_or_left_out_by_name(audited):
    told = [each["name"] for each in CONFIGS]
    assert len(set(told)) == len(told) >= 80
    assert sum(each["sound_but_odd"] for each in CONFIGS) >= 25
    assert {*told, *EXPECTED["left_out"]} <= set(audited)
    assert not set(told) & set(EXPECTED["left_out"])


def test_every_family_is_expected_or_left_out(published):
    families = {}
    for path in (published / "configs").glob("*.json"):
        config = json.loads(path.read_text(encoding="utf-8"))["config"]
        families[path.stem] = config.get("model_type") or config.get("_class_name") or "none stated"
    assert all(each["family"] == families[each["name"]] for each in CONFIGS)
    missing = set(families.values()) - {each["family"] for each in CONFIGS}
    assert missing <= {families[name] for name in EXPECTED["left_out"]}


def test_what_fires_too_much_or_not_or_as_another_severity_is_a_difference(cases):
    expected = {("a", "x", "warning"), ("b", "y", "error")}
    for found in (set(), {("a", "x", "warning")}, {*expected, ("c", "x", "warning")}, {("a", "x", "error")} | expected):
        with cases(found):
            assert differences(expected, found)
    assert differences(expected, expected) == []


def test_the_table_of_releases_says_what_the_copies_say(published, all_audited, cases):
    """Every config that the table names, read again."""
    copies = {}
    for each in all_audited:
        source = json.loads((published / "configs" / f"{each.name}.json").read_text(encoding="utf-8"))["source"]
        copies[f"{source['repo']}, {source['path']}, {source['commit'][:7]}"] = each.audit
    named = [release for release in releases() if release.source in copies]
    for release in named:
        audited = copies[release.source]
        codes = [code for code in audited.layers if code.kind == "rotary" and code.part == "text"]
        code = next((code for code in codes if code.window is None), codes[0])
        nothing = code.scaling in (None, {"type": "linear", "factor": 1.0, "original": None})
        there = release.scaling and (release.scaling["rope_type"], release.scaling.get("factor"))
        with cases(release.name):
            assert code.base == release.base
            assert (None if nothing else (code.scaling["type"], code.scaling["factor"])) == there
            assert release.context in (None, audited.context)
            assert "differs-from-release" not in {found.code for found in audited.findings}
    assert len(named) > 60


# The document: what the audit finds in them now, each firing with a reason


def test_the_document_is_what_the_code_makes_now(all_audited, reasons):
    written = tool.DOCUMENT.read_text(encoding="utf-8")
    assert written == tool.rendered(all_audited, reasons), "run `python tools/published_findings.py`"


def test_the_page_of_the_field_is_what_the_data_say_now(all_audited):
    audits = [each.audit for each in all_audited]
    written = field_document.DOCUMENT.read_text(encoding="utf-8")
    assert written == field_document.document(audits), "run `python tools/field_document.py`"
    hybrids = {each.name for each in all_audited if field_document.hybrid(each.audit)}
    assert {"llama-4-scout-17b-16e", "smollm3-3b-executorch"} <= hybrids
    assert not {"llama-2-7b-chat", "bloom-1layer"} & hybrids


def test_each_firing_has_its_own_sentence(all_audited, reasons):
    assert tool.reasons_astray(all_audited, reasons) == []
    sentences = [sentence for codes in reasons.values() for sentence in codes.values()]
    assert all(sentence.endswith(".") and len(sentence.split()) > 5 for sentence in sentences)


def test_a_missing_and_a_superfluous_sentence_are_refused(all_audited, reasons):
    name, codes = next(iter(reasons.items()))
    code = next(iter(codes))
    less = {other: {**told} for other, told in reasons.items()}
    del less[name][code]
    with pytest.raises(ValueError, match=f"{name}: {code} fires, and .* does not say why"):
        tool.rendered(all_audited, less)
    more = {**reasons, name: {**codes, "zero-table": "It is not there."}}
    with pytest.raises(ValueError, match=f"{name}: .* says why zero-table fires, but it does not"):
        tool.rendered(all_audited, more)


def test_a_firing_that_is_lost_is_noticed(all_audited, reasons):
    place = next(place for place, each in enumerate(all_audited) if each.firing)
    lost = all_audited[place]._replace(audit=dataclasses.replace(all_audited[place].audit, findings=()))
    with pytest.raises(ValueError, match=f"{lost.name}: .* says why"):
        tool.rendered([*all_audited[:place], lost, *all_audited[place + 1 :]], reasons)
