"""Published configs: the library's own numbers and facts written by hand, against what is resolved.

Where ours and theirs part, the reason stands here; an exception that is none any more fails.
"""

import json
from pathlib import Path

import pytest

from resolution.expected import by_table, fact_gaps, library_gaps, resolved

CASES = json.loads(Path(__file__).with_name("cases.json").read_text(encoding="utf-8"))["cases"]

# Config to why its facts differ from what is resolved.
PARTED = {
    "qwen3.5-27b-ome": (
        "width, rotated and layers: the file was written by hand for a test and leaves them out, where the class has"
        " defaults"
    ),
    "gemma-3-1b-executorch-mediatek": (
        "window: the file has sliding_window_attention_size, which the Gemma 3 class does not read"
    ),
    "qwen2-audio-7b-sophgo": (
        "window: the file has a sliding_window and no use_sliding_window, and the Qwen 2 class takes false"
    ),
}


@pytest.fixture(scope="module")
def published(shared):
    paths = sorted((shared / "conventions" / "configs").glob("*.json"))
    assert len(paths) > 200
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def library_tables(case):
    tables = case["library"].get("tables")
    if tables is None:
        return case["library"]
    return {f"{kind}.{name}": table for kind, held in tables.items() for name, table in held.items()}


def test_the_library_computes_the_same_ladders(published, capsys):
    count, gaps = 0, []
    for case in published:
        found = resolved(case["config"])
        if "library" in case and by_table(found):
            count += 1
            gaps += [f"{case['name']}: {gap}" for gap in library_gaps(found, library_tables(case))]
    with capsys.disabled():
        print(f"\n{count} configs of types in the table with the library's own numbers, {len(gaps)} exceptions")
    assert not gaps
    assert count >= 70


def test_facts_written_by_hand_agree(published, capsys):
    count, parted = 0, {}
    for case in published:
        found = resolved(case["config"])
        if by_table(found):
            count += 1
            gaps = list(fact_gaps(found, case["facts"]))
            if gaps:
                parted[case["name"]] = gaps
    with capsys.disabled():
        print(f"\n{count} configs of types in the table with facts, {len(parted)} exceptions: {', '.join(parted)}")
    assert {name: gaps for name, gaps in parted.items() if name not in PARTED} == {}
    assert set(parted) == set(PARTED)
    assert count >= 90


def test_every_published_config_is_read_without_an_exception(published):
    for case in published:
        found = resolved(case["config"])
        assert found.codes, case["name"]
        assert found.model_type == case["config"].get("model_type")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_own_cases(case):
    found = resolved(case["config"])
    gaps = list(fact_gaps(found, case["facts"])) if by_table(found) else []
    if "library" in case:
        gaps += library_gaps(found, library_tables(case))
    assert not [gap for gap in gaps if case["name"] not in PARTED]


def test_own_cases_name_a_public_source():
    for case in CASES:
        assert case["source"]["repo"].count("/") == 1
        assert case["source"]["path"]
        assert len(case["source"]["commit"]) == 40


@pytest.mark.parametrize("wrong", [{"first": 0.5}, {"last": 1e-4}, {"mid": 0.02}, {"factor": 1.1}, {"pairs": 32}])
def test_the_oracle_can_fail(wrong):
    case = next(case for case in CASES if case["name"] == "llama-3.1-8b")
    tables = {name: {**table, **wrong} for name, table in library_tables(case).items()}
    assert list(library_gaps(resolved(case["config"]), tables))


@pytest.mark.parametrize(
    "wrong",
    [
        {"rotated": 64},
        {"head_dim": 64},
        {"base": 10000.0},
        {"scaling": None},
        {"layers": 31},
        {"sections": [16, 24, 24]},
        {"per_layer_type": {"full_attention": {"head_dim": 128, "rotated": 128, "base": 1e6, "scaling": None}}},
        {"window": 4096},
        {"layers_without_position": [3]},
        {"max_length": 8192},
        {"kind": "learned"},
        {"rows": 512, "offset": 0},
    ],
)
def test_the_facts_can_fail(wrong):
    case = next(case for case in CASES if case["name"] == "llama-3.1-8b")
    assert list(fact_gaps(resolved(case["config"]), {**case["facts"], **wrong}))
