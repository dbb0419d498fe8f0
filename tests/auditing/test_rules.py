"""The table of findings: severity, text and hint of every row, as people read them."""

import json
import re
from collections import defaultdict
from pathlib import Path

import clockhands.configs
from clockhands.auditing.findings import CODES, DEPENDS, SEVERITIES, make_finding

# Code and evidence: of every kind of finding a case for each sentence that it can say.
CASES = [
    (code, evidence)
    for code, cases in json.loads(Path(__file__).with_name("finding_cases.json").read_text(encoding="utf-8")).items()
    for evidence in cases
]
# Nobody is wrong where the caller asks for more than the file promises.
NOBODY = {"beyond-context"}


def test_the_sentences_of_every_finding(snapshot, cases):
    told = defaultdict(list)
    for code, evidence in CASES:
        found = make_finding(code, evidence, "0-3")
        told[code].append([f"{found.severity}: {found.message}", f"hint: {found.hint}", f"blames: {found.blames}"])
        if found.edit is not None:
            told[code][-1].append(f"edit: {found.edit.says}")
        with cases(code, evidence):
            assert (found.layers, found.evidence, found.severity in SEVERITIES) == ("0-3", evidence, True)
            assert re.fullmatch(r"[A-Z].*\.", found.hint)
            assert len(found.hint.split()) > 4
            assert found.blames in (None, "file", "reader", "ambiguous", "module")
            assert found.severity == "note" or code in NOBODY or found.blames is not None
    assert dict(told) == snapshot
    assert told.keys() == CODES.keys(), "every row has a case"


def test_the_grave_findings_come_first_in_the_table():
    gravest = {}
    for code, evidence in CASES:
        gravest[code] = min(gravest.get(code, 2), SEVERITIES.index(make_finding(code, evidence).severity))
    fixed = [gravest[code] for code, rule in CODES.items() if rule.severity != DEPENDS]
    assert fixed == sorted(fixed)


def test_every_fact_that_the_readers_note_has_a_row():
    noted = set()
    for path in Path(clockhands.configs.__file__).parent.rglob("*.py"):
        noted |= set(re.findall(r"""(?:\bFact|\bnote)\(\s*"([a-z0-9-]+)\"""", path.read_text(encoding="utf-8")))
    assert len(noted) >= 5, "the pattern no longer finds what the readers note"
    assert noted <= set(CODES)


def test_every_row_is_explained_says_whom_it_blames_and_how_it_is_mended_or_why_not(cases):
    for code, rule in CODES.items():
        with cases(code):
            assert not rule.title.endswith(".")
            assert 3 <= len(rule.title.split()) <= 15
            assert 2 <= len(re.findall(r"[.!?](?= [A-Z]|$)", rule.means)) <= 5, "two to five sentences"
            assert rule.means.endswith(".")
            assert re.fullmatch(r"[A-Z].*\.", rule.advice), "advice without a case"
            for case in rule.cases:
                assert re.search(r"#\d+|Hub", case), case
            if rule.severity != "note" and code not in NOBODY:
                assert rule.blames in (DEPENDS, "file", "reader", "ambiguous", "module")
                assert rule.has_edit or rule.unmended.endswith(".")
