"""A table far larger than what may be held in memory is read from its file, every row of it."""

import os
import subprocess
import sys

import pytest

ROWS, WIDTH = 131_072, 4096

# In a process of its own, so that what it holds can be measured. Anonymous memory is what does not come from the file.
CODE = """
import sys, threading, time
import numpy as np
import clockhands as ch

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 2**20

peak, done = [0.0], threading.Event()
def watch():
    while not done.wait(0.005):
        peak[0] = max(peak[0], anonymous())
threading.Thread(target=watch, daemon=True).start()
begin = time.perf_counter()
match = ch.identify(np.load(sys.argv[1], mmap_mode="r"))[0]
seconds = time.perf_counter() - begin
done.set()
print(match.name, match.residual.rows if match.residual else (), match.confidence, peak[0], seconds)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_one_wrong_row_of_a_large_table_is_seen_in_little_memory(tmp_path):
    import numpy as np

    import clockhands as ch

    file = tmp_path / "table.npy"
    rows = np.lib.format.open_memmap(file, "w+", np.float32, (ROWS, WIDTH))
    spec = ch.preset("vaswani2017", width=WIDTH)
    for begin in range(0, ROWS, 4096):
        rows[begin : begin + 4096] = ch.table(spec, range(begin, begin + 4096))
    rows[100_000, 7] += 1e-3
    rows.flush()
    del rows
    run = subprocess.run(
        [sys.executable, "-c", CODE, str(file)], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    name, *row, confidence, gigabytes, seconds = run.stdout.replace("(", "").replace(")", "").replace(",", "").split()
    print(f"{seconds} s, {gigabytes} GiB")
    assert (name, row) == ("vaswani2017", ["100000"])
    assert float(confidence) == 1 - 1 / ROWS
    assert float(gigabytes) < 1
