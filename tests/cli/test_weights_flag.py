"""`clockhands audit --weights`: the flag, its line in the report and its field in the JSON."""

import json

import packaged_weights


def test_the_flag_looks_at_the_weights_and_the_report_says_what_they_say(run):
    done = run("audit", str(packaged_weights.smollm2_file()), "--weights")
    assert done.code == 0
    assert "weights: pairs interleaved, confidence 0.99, z 311 against 2.0" in done.out


def test_without_the_flag_nothing_is_looked_at(run):
    file = str(packaged_weights.smollm2_file())
    assert "weights: not examined (use --weights)" in run("audit", file, "--verbose").out
    weights = json.loads(run("audit", file, "--json").out)["targets"][0]["weights"]
    assert (weights["examined"], weights["layout"], weights["by_layer"]) == (False, None, [])


def test_a_preset_has_no_weights_that_turn(run):
    made = json.loads(run("audit", "vaswani2017", "--weights", "--json").out)["targets"][0]["weights"]
    assert (made["examined"], made["says"]) == (False, "not examined, because no layer is known to rotate")
