"""Published configs: the library's own numbers and facts written by hand, against what is resolved.

Where ours and theirs part, the reason stands in `parted.toml`; an exception that is none any more fails.
"""

import json
import tomllib
from pathlib import Path

import pytest

from configs.expected import fact_gaps, library_gaps, resolved

# What the facts are of, where a file has a text part and they are of another.
TOWER = {"siglip-so400m-patch14-384": "vision"}


@pytest.fixture(scope="module")
def configs(published):
    paths = sorted((published / "configs").glob("*.json"))
    assert len(paths) > 200
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


@pytest.fixture(scope="module")
def own():
    return json.loads(Path(__file__).with_name("cases.json").read_text(encoding="utf-8"))["cases"]


def library_tables(case):
    tables = case["library"].get("tables")
    if tables is None:
        return case["library"]
    return {f"{kind}.{name}": table for kind, held in tables.items() for name, table in held.items()}


def case_gaps(case):
    """Quantity to how the facts of a config part from what is resolved."""
    found = fact_gaps(resolved(case["config"]), case["facts"], TOWER.get(case["name"]))
    return {gap.partition(":")[0]: gap for gap in found}


@pytest.fixture(scope="module")
def parted():
    """Config to the quantities in which its facts part; configs from which the library computes another ladder."""
    held = tomllib.loads(Path(__file__).with_name("parted.toml").read_text(encoding="utf-8"))
    quantities = {}
    for row in held["parted"]:
        quantities.setdefault(row["config"], set()).update(row["quantities"])
    return quantities, set(held["library"])


def test_the_library_computes_the_same_ladders(configs, parted, cases):
    held = [case for case in configs if "library" in case]
    assert len(held) >= 114
    assert parted[1] <= {case["name"] for case in held}
    for case in held:
        with cases(case["name"]):
            gaps = list(library_gaps(resolved(case["config"]), library_tables(case)))
            assert bool(gaps) == (case["name"] in parted[1]), gaps


def test_facts_written_by_hand_agree(configs, parted, cases):
    assert len(configs) >= 232
    assert parted[0].keys() <= {case["name"] for case in configs}
    for case in configs:
        with cases(case["name"]):
            gaps = case_gaps(case)
            assert gaps.keys() == parted[0].get(case["name"], set()), gaps
            found = resolved(case["config"])
            assert found.codes
            assert found.model_type == case["config"].get("model_type")


def test_own_cases(own, parted, cases):
    for case in own:
        with cases(case["name"]):
            assert case_gaps(case).keys() <= parted[0].get(case["name"], set())
            if "library" in case and case["name"] not in parted[1]:
                assert list(library_gaps(resolved(case["config"]), library_tables(case))) == []
            assert case["source"]["repo"].count("/") == 1
            assert case["source"]["path"]
            assert len(case["source"]["commit"]) == 40


def test_the_oracles_can_fail(own, cases):
    case = next(case for case in own if case["name"] == "llama-3.1-8b")
    for wrong in ({"first": 0.5}, {"last": 1e-4}, {"mid": 0.02}, {"factor": 1.1}, {"pairs": 32}):
        with cases(wrong):
            tables = {name: {**table, **wrong} for name, table in library_tables(case).items()}
            assert list(library_gaps(resolved(case["config"]), tables))
    for wrong in (
        *({"rotated": 64}, {"head_dim": 64}, {"base": 10000.0}, {"scaling": None}, {"layers": 31}, {"window": 4096}),
        *({"sections": [16, 24, 24]}, {"layers_without_position": [3]}, {"max_length": 8192}, {"kind": "learned"}),
        {"rows": 512, "offset": 0},
        {"per_layer_type": {"full_attention": {"head_dim": 128, "rotated": 128, "base": 1e6, "scaling": None}}},
    ):
        with cases(wrong):
            assert list(fact_gaps(resolved(case["config"]), {**case["facts"], **wrong}))
