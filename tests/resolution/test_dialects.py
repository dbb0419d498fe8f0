"""Configs of other programs: what each says of position, held to facts written by hand from its text and its program.

The configs are those of `published/dialects`, whose README says where they are from. They are written out as their
program has them, YAML or JSON, and read from there.
"""

import json

import pytest

from clockhands.sources import open_target
from clockhands.sources.dialects import dialects
from clockhands.sources.resolve import resolve
from resolution.expected import fact_gaps

LEAST = 30  # files; a file fewer is one that was lost


@pytest.fixture(scope="module")
def cases(published):
    paths = sorted((published / "dialects").glob("*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def written(folder, case):
    """The file of a case; JSON is YAML too."""
    path = folder / case["file"]
    path.write_text(json.dumps(case["config"]), encoding="utf-8")
    return path


def gaps(found, facts):
    yield from fact_gaps(found, facts)
    layouts = {code.layout for code in found.codes if code.kind == "rotary"}
    if layouts and layouts != {facts["layout"]}:
        yield f"layout: resolved {layouts}, facts {facts['layout']}"
    if facts.get("base", 0) is None and any(code.base or code.rates for code in found.codes):
        yield "base: resolved, where the file cannot say it"


def test_facts_written_by_hand_agree(cases, tmp_path, capsys):
    parted = {}
    for case in cases:
        opened = open_target(written(tmp_path, case))
        assert opened.notes[0].endswith(f"is read as a config of {case['dialect']}."), case["name"]
        found = list(gaps(resolve(opened), case["facts"]))
        if found:
            parted[case["name"]] = found
    with capsys.disabled():
        print(f"\n{len(cases)} configs of other programs, {len(parted)} that part from their facts")
    assert parted == {}
    assert len(cases) >= LEAST


def test_a_wrong_fact_is_noticed(cases, tmp_path):
    case = next(case for case in cases if case["name"] == "neox-20b")
    found = resolve(open_target(written(tmp_path, case)))
    for name, wrong in {"rotated": 96, "base": 1e6, "layers": 43, "max_length": 4096, "layout": "interleaved"}.items():
        assert [gap.partition(":")[0] for gap in gaps(found, {**case["facts"], name: wrong})], name


def test_every_value_names_a_key_of_the_file_or_the_program(cases, tmp_path):
    rows = {dialect.name: dialect for dialect in dialects()}
    for case in cases:
        for code in resolve(open_target(written(tmp_path, case))).codes:
            for source in code.source.values():
                places = (case["file"], rows[case["dialect"]].library, "computed from no scaling")
                assert any(place in source for place in places), (case["name"], source)
