"""Bad input that test_golden.py has not: a table beyond memory, an impossible scaling, an array that would run code."""

import json
import re
from pathlib import Path

import numpy as np

from .conftest import LLAMA


def test_a_table_larger_than_memory_is_refused_with_its_size(run):
    done = run("table", "vaswani2017", "--positions", "0:1000000000000")
    assert (done.code, done.out) == (2, "")
    assert re.fullmatch(
        r"error: A table of shape \[1000000000000, 512\] would take 1\.82 PiB; .+ available\.\n"
        r"hint: Make it in parts: .+\n",
        done.err,
    )


def test_a_factor_below_1_in_a_config_is_a_finding_and_exit_code_1(run, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"rope_scaling": {"type": "linear", "factor": 0.5}}))
    done = run("audit", "--json", tmp_path)
    assert done.code == 1
    (target,) = json.loads(done.out)["targets"]
    assert target["layers"][0]["rates"] is None
    (finding,) = [found for found in target["findings"] if found["severity"] == "error"]
    assert finding["code"] == "impossible-value"
    assert finding["evidence"]["config.json:rope_scaling.factor"] == 0.5


def test_an_array_of_pickled_objects_is_refused_and_not_loaded(run, tmp_path):
    class Trap:
        def __reduce__(self):
            return Path.touch, (tmp_path / "sprung",)

    np.save(tmp_path / "a.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    done = run("audit", tmp_path / "a.npy")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"error: {tmp_path / 'a.npy'} holds Python objects (a pickle), which could run code when loaded; only numbers "
        "are read.\nhint: Save it again as numbers, for instance np.save(file, array.astype(np.float32)).\n"
    )
    assert not (tmp_path / "sprung").exists()
