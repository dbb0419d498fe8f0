"""Every reader under the fuzzer of ``fuzz_readers.py``, two at a time, a minute each.

FUZZ_SECONDS is another time, FUZZ_SEED another walk: the tests take the same one each time.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

FUZZER = Path(__file__).with_name("fuzz_readers.py")
SECONDS = int(os.environ.get("FUZZ_SECONDS", "60"))
SEED = os.environ.get("FUZZ_SEED", "17")
PAIRS = [("config", "gguf"), ("folder", "safetensors"), ("checkpoint", "array"), ("onnx", "index")]
PAIRS += [("yaml", "dialect"), ("modelfile", "names"), ("survey", "lab")]


def started(reader: str, found: Path, seconds: int) -> subprocess.Popen:
    # A process begins with the peak of the one that started it, and the fuzzer goes by its peak: these tests may have
    # held PyTorch before. So a small one stands between.
    between = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    command = [sys.executable, "-S", "-E", "-c", between]
    command += [sys.executable, str(FUZZER), reader, "--seconds", str(seconds), "--found", str(found)]
    command += ["--seed", SEED]
    environment = os.environ | {
        "PYTHONPATH": str(FUZZER.parents[1]),
        "PYTHONWARNINGS": "error",
        # With the fuzzer's seed: a minute tries what the minute before it tried, as far as it gets.
        "PYTHONHASHSEED": "0",
    }
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )


@pytest.mark.parametrize("readers", PAIRS, ids="-and-".join)
def test_whatever_a_file_holds_is_audited_or_refused(tmp_path, readers, capsys):
    pytest.importorskip("atheris")
    running = [started(reader, tmp_path, SECONDS) for reader in readers]
    # Both are waited for before either is judged: none is left running.
    told_by = [process.communicate()[0] for process in running]
    for reader, process, told in zip(readers, running, told_by, strict=True):
        found = [path.read_bytes()[:2000] for path in tmp_path.glob(f"{reader}-*")]
        assert process.returncode == 0, f"{reader} is stopped by {found}:\n{told[-3000:]}"
        tried = int(told.partition("stat::number_of_executed_units:")[2].split()[0])
        with capsys.disabled():
            print(f"\n{reader}: {tried:,} files in {SECONDS} s")
        assert tried > 10
