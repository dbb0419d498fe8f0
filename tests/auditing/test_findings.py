import json
import math

import numpy as np
import pytest

from clockhands.auditing.findings import Finding, case_of, json_value
from clockhands.phrases import filled, spoken


def test_a_finding_is_strict_json_whatever_its_evidence_holds():
    evidence = {"config.json:rope_theta": math.nan, "x": -math.inf, "row": np.int64(3), "list": (np.float32(0.5), None)}
    found = Finding("impossible-value", "error", "It is.", "Mend it.", evidence, "0-3").to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == {
        "code": "impossible-value",
        "severity": "error",
        "message": "It is.",
        "evidence": {"config.json:rope_theta": "NaN", "x": "-Infinity", "row": 3, "list": [0.5, None]},
        "hint": "Mend it.",
        "layers": "0-3",
        "blames": None,
        "edit": None,
    }


def test_evidence_keeps_its_order_and_its_types():
    evidence = {"b": True, "a": 1, "c": 10**30, "d": 0.1}
    assert list(json_value(evidence).items()) == [("b", True), ("a", 1), ("c", 10**30), ("d", 0.1)]
    assert json_value(evidence)["b"] is True


# Numbers and other values as a sentence has them.
SPOKEN = [
    (8192, "8,192"), (100_000.0, "100,000"), (11_158_840.0, "11,158,840"), (0.25, "0.25"),
    (1.4330125702369627e-05, "1.43301e-05"), (438_459.9, "438,460"), (45_122_677.4, "45,122,677"),
    (999_999_999_999_999.5, "1,000,000,000,000,000"), (1.5e15, "1.5e+15"), (10**17, "100,000,000,000,000,000"),
    (10**20, "1.000000e+20"), (10**400, "a whole number of more than 300 digits"), (math.nan, "NaN"),
    (-math.inf, "-Infinity"), (True, "true"), (None, "null"), ("yarn", '"yarn"'), ("x" * 100, '"' + "x" * 77 + '..."'),
    ([1, 2, 3, 4, 5], "[1, 2, 3, 4, ...]"), ({"factor": 8.0}, "{factor: 8}"),
]  # fmt: skip


def test_numbers_in_a_sentence(cases):
    for value, text in SPOKEN:
        with cases(text):
            assert spoken(value) == text


def test_templates_of_sentences():
    case = case_of("recognised", {"rows": 1, "largest ratio": 1234.5, "name": "", "names": ["a", "b"], "pair": 0})
    for template, text in {
        "{rows} {rows:row is/rows are} {names:and}": "1 row is a and b",
        "{names:is/are} {names!r} {largest_ratio:times} {largest_ratio:.3g}": 'are ["a", "b"] 1,234 1.23e+03',
        "pairs[ of {name}][, {absent}][ from {pair}][{rows:?} to {pair}]": "pairs to 0",
    }.items():
        assert filled(template, case) == text
    with pytest.raises(KeyError, match="absent"):
        filled("{absent}", case)
