"""Every file of ``hostile_files.py`` is answered in little time and memory, in sentences: audited, or refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from clockhands.phrases import shown
from memory_peaks import AT_HAND

from .hostile_files import FILES

pytest.importorskip("resource", reason="this system does not bound the time of processes")

# Seconds of the processor and bytes, of a process that has imported all. The promise is 5 seconds; a machine whose
# cores are shared takes up to twice as long for the same work.
SECONDS, MEMORY = 10, 500e6

# Each file is made and audited in processes of their own, so that none pays for another.
MEASURED = (
    f"""{AT_HAND}
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
"""
    """
import contextlib, io, json, os, resource, tempfile
from pathlib import Path
from clockhands.auditing import audit
from clockhands.cli import main
from hostile.hostile_files import FILES

audit({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4})  # imports what an audit needs

def apart(call):
    if not os.fork():
        call()
        os._exit(0)
    return os.wait()[1]

def asked(folder, first):
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]),) * 2)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(["audit", str(folder / first), "--json"])
        except SystemExit as ended:
            code = ended.code
    (folder / "told").write_text(json.dumps([code, err.getvalue(), peak_bytes()]))

for name in sys.argv[2:]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        made = lambda: [(folder / each).write_bytes(data) for each, data in FILES[name]().items()]
        assert not apart(made), name
        files = sorted(each.name for each in folder.iterdir())
        first = "" if len(files) > 1 and "Modelfile" not in files and "x.npz" not in files else files[0]
        first = next((each for each in files if each in ("Modelfile", "x.npz")), first)
        killed = apart(lambda: asked(folder, first))
        told = json.loads((folder / "told").read_text()) if not killed else [f"killed: {killed}", "", 0]
        print(json.dumps([name, *told]), flush=True)
"""
)


def answered(names: list[str], cases) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(SECONDS), *names], capture_output=True, text=True, check=False
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [name for name, *_ in told] == names, done.stderr
    for name, code, complaint, memory in told:
        with cases(name):
            assert code in (0, 1, 2), code
            assert "Traceback" not in complaint, complaint[-2000:]
            assert (code == 2) == ("error: " in complaint), complaint
            assert len(complaint) < 5000
            assert memory < MEMORY


def test_a_hostile_file_of_each_kind_is_answered(draw, cases):
    """Some that once took minutes, gigabytes or a traceback, and another one each time."""
    once = ["yaml exponents below long keys", "yaml empty float", "yaml documents", "Modelfile blanks"]
    answered([*once, *draw([name for name in FILES if name not in once], 1)], cases)


def test_no_more_of_a_value_is_spelt_out_than_is_shown():
    class Loud:
        asked = 0

        def __repr__(self):
            Loud.asked += 1
            return "x"

    held = [Loud()] * 1000
    for value in (held, tuple(held), dict.fromkeys(range(1000), held), [[held] * 1000]):
        assert len(shown(value)) == 60
    assert Loud.asked < 200
    assert shown("x" * 1000) == f"'{'x' * 56}..."


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({name.partition(" ")[0] for name in FILES}))
def test_every_hostile_file_is_answered(kind, cases):
    answered([name for name in FILES if name.partition(" ")[0] == kind], cases)
