"""What does not fit is refused before anything is allocated."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clockhands as ch
from clockhands.encodings import memory
from clockhands.encodings.memory import available, readable, refuse_larger
from clockhands.errors import TooLarge

HINT = "Make it in parts: table(spec, range(a, b)) gives the same rows."


def test_a_table_larger_than_memory_is_refused_with_its_size(monkeypatch):
    # Nothing is allocated: what would be is more than any machine has.
    monkeypatch.setattr(memory, "available", lambda: 8 * 2**30)
    message = "A table of shape [1000000000000, 512] would take 1.82 PiB; 8 GiB are available."
    with pytest.raises(TooLarge, match=f"^{re.escape(message)}\nhint: {re.escape(HINT)}$"):
        ch.table(ch.preset("vaswani2017"), 10**12)
    message = "A kernel of shape [1000000000000] would take 7.28 TiB; 8 GiB are available."
    with pytest.raises(TooLarge, match=re.escape(message)):
        ch.kernel(ch.preset("vaswani2017"), 10**12)


def test_a_machine_that_says_nothing_has_less_than_any(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: None)
    message = "A table of shape [9223372036854775808, 512] would take 1.64e+04 EiB; more than any machine has."
    with pytest.raises(TooLarge, match=re.escape(message)):
        ch.table(ch.preset("vaswani2017"), 2**63)
    refuse_larger((2**40,), 4, "A table")


def test_what_just_fits_is_not_refused(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 2**30)
    refuse_larger((2**28,), 4, "A table")
    with pytest.raises(TooLarge, match=r"\[268435457\] would take 1 GiB; 1 GiB are available"):
        refuse_larger((2**28 + 1,), 4, "A table")


def test_small_ones_are_made_without_asking(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: pytest.fail("asked for a small table"))
    refuse_larger((2**22,), 4, "A table")
    assert ch.table(ch.preset("vaswani2017"), 10).shape == (10, 512)


def test_dtypes_count(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 2**25)
    spec = ch.preset("vaswani2017")
    for dtype, size in (("float64", "64 MiB"), ("float32", "32 MiB"), ("bfloat16", "16 MiB")):
        if size == "64 MiB":
            with pytest.raises(TooLarge, match=size):
                ch.table(spec, 2**14, dtype)
        else:
            assert ch.table(spec, 2**14, dtype).nbytes <= 2**25


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 bytes"),
        (1_000, "0.977 KiB"),
        (1_024, "1 KiB"),
        (1_536, "1.5 KiB"),
        (1_000 * 1_024, "0.977 MiB"),
        (5 * 2**40, "5 TiB"),
        (2**80, "1.05e+06 EiB"),
    ],
)
def test_sizes_are_readable(size, text):
    assert readable(size) == text


@given(st.integers(0, 2**70))
def test_readable_sizes_are_near(size):
    number, unit = readable(size).split()
    power = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB").index(unit)
    assert float(number) * 1024**power == pytest.approx(size, rel=0.006)
    assert float(number) < 1_000 or unit == "EiB"


def files(monkeypatch, **texts):
    """Let the system's files read like this; those not named are absent. Paths of others stay what they are."""

    class Progress(type(Path())):
        def read_text(self, *_, **__):
            text = texts.get(self.name.replace(".", "_"))
            if text is None:
                raise FileNotFoundError(self)
            return text

    monkeypatch.setattr(memory, "Path", Progress)


def test_what_the_machine_has_left_and_what_a_control_group_leaves(monkeypatch):
    meminfo = "MemTotal: 9 kB\nMemAvailable:   2048 kB\n"
    files(monkeypatch, meminfo=meminfo)
    assert available() == 2 * 2**20
    files(monkeypatch, meminfo=meminfo, memory_max="1000000\n", memory_current="400000\n")
    assert available() == 600_000
    files(monkeypatch, meminfo=meminfo, memory_max="max\n", memory_current="400000\n")
    assert available() == 2 * 2**20
    files(monkeypatch, meminfo=meminfo, memory_max="1000\n", memory_current="4000\n")
    assert available() == 0
    files(monkeypatch, meminfo=meminfo, memory_max="9000000\n", memory_current="0\n")
    assert available() == 2 * 2**20


def test_other_systems_say_how_much_there_is_in_all_or_nothing(monkeypatch):
    for meminfo in (None, "nothing here", "MemAvailable:", "MemAvailable: many kB"):
        files(monkeypatch, **({} if meminfo is None else {"meminfo": meminfo}))
        sysconf = {"SC_PAGE_SIZE": 4_096, "SC_PHYS_PAGES": 10}.__getitem__
        monkeypatch.setattr(memory, "os", SimpleNamespace(sysconf=sysconf))
        assert available() == 40_960
    files(monkeypatch)
    monkeypatch.setattr(memory, "os", SimpleNamespace())
    assert available() is None


def test_this_machine_has_memory():
    left = available()
    assert left is not None
    assert left > 2**20
