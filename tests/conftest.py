"""What all tests share: backends, published tables, and a record of what was really tested.

A promise of several backends is worth nothing if their tests are skipped unseen, so a run can be
told what to expect, by three variables of the environment:

* ``EXPECT_BACKENDS=numpy,torch,jax``: one that is absent fails instead of skipping, and the run
  fails unless a test of each passed.
* ``EXPECT_TESTS=500``: the run fails unless at least so many tests passed.
* ``CI=true``: the run fails if any test was skipped, for whatever reason.
"""

import contextlib
import ctypes
import gc
import hashlib
import importlib
import importlib.metadata
import os
import platform
import random
import resource
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings

# Programs of their own, run by the slow tests: one instruments what it imports, one has other packages on its path.
collect_ignore = ["hostile/fuzz_readers.py", "runtimes/run_runtimes.py"]

BACKENDS = ("numpy", "torch", "jax")
# The standard that they share, and nothing beyond it: for what must work in any array library.
STRICT = "array_api_strict"

# No test may ask a hub on the network for a name that is missing here. Those that serve one on this machine say so.
os.environ["HF_HUB_OFFLINE"] = "1"

# Jupyter brings it: jsonschema would make 38 grammars with it, which takes 4 seconds and nothing here uses.
sys.modules.setdefault("rfc3987_syntax", None)  # pyright: ignore[reportArgumentType]

# No test may fail because the machine is busy.
settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
# For mutation testing: whether a change is noticed, not the smallest example that shows it.
settings.register_profile(
    "brief", settings.get_profile("calm"), derandomize=True, max_examples=50, phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("calm")


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true"}


def expected_backends() -> tuple[str, ...]:
    return tuple(name for name in os.environ.get("EXPECT_BACKENDS", "").replace(" ", "").split(",") if name)


def installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Backend:
    """One array library: its name, its module, and the way in and out of it."""

    name: str
    module: Any
    asarray: Callable[..., Any]  # (array_like, dtype: str | None = None) -> the library's array

    def to_numpy(self, array: Any) -> np.ndarray:
        if self.name == "torch":
            array = array.detach().cpu()
            if array.dtype == self.module.bfloat16:  # NumPy has no such type; float32 holds all its values
                array = array.float()
        return np.asarray(array)

    def dtype(self, name: str) -> Any:
        return getattr(self.module, name)


def load_backend(name: str) -> Backend:
    """Import one array library.

    Raises:
        ImportError: It is not installed.
    """
    if name == "numpy":
        return Backend(name, np, lambda values, dtype=None: np.asarray(values, dtype=dtype))
    if name == "torch":
        torch = importlib.import_module("torch")

        def tensor(values: Any, dtype: str | None = None) -> Any:
            made = torch.from_numpy(np.array(values))
            return made if dtype is None else made.to(getattr(torch, dtype))

        return Backend(name, torch, tensor)
    if name == STRICT:
        xp = importlib.import_module(name)
        return Backend(name, xp, lambda values, dtype=None: xp.asarray(np.array(values, dtype=dtype)))
    jnp = importlib.import_module("jax.numpy")
    return Backend(name, jnp, lambda values, dtype=None: jnp.asarray(values, dtype=dtype))


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each array library in turn; one that is absent skips, unless the run expects it."""
    return _backend(request)


def _backend(request: pytest.FixtureRequest) -> Backend:
    name = request.param
    try:
        loaded = load_backend(name)
    except ImportError as error:
        if name in expected_backends():
            pytest.fail(f"{name} is expected (EXPECT_BACKENDS) but cannot be imported: {error}")
        pytest.skip(f"{name} is not installed")
    request.node.user_properties.append(("backend", name))
    return loaded


@pytest.fixture(params=(*BACKENDS, STRICT))
def any_backend(request: pytest.FixtureRequest) -> Backend:
    """Each array library in turn, and the bare standard."""
    return _backend(request)


# --- the slow tests in parts ----------------------------------------------------------------------------------------

PARTS = 10
# Slow tests that every part has: they guard files, processes, a killed run, what a browser shows, or documents
# that a change anywhere may make wrong.
GUARDS = (
    "tests/conversion/test_placing.py",
    "tests/jobs/engines/test_ray.py",
    "tests/explorer/test_links.py",
    "tests/explorer/test_nothing_keeps_people_out.py",
    "tests/explorer/test_views_in_the_browser.py",
    "tests/hostile/test_fuzzed_files.py",
    "tests/incidents/test_incidents_document.py",
    "tests/lab/test_interrupted.py",
    "tests/show/test_pages_in_a_browser.py",
    "tests/test_course.py",
    "tests/jobs/survey/test_killed.py",
    "tests/test_ended.py",
    "tests/test_two_processes.py",
)


def in_part(nodeid: str, number: int) -> bool:
    """Whether a slow test belongs to the run of this number: in ten runs in a row each slow test runs once."""
    return (int.from_bytes(hashlib.sha256(nodeid.encode()).digest()[:8]) - number) % PARTS == 0


def next_number() -> int:
    """The number of this run: of the hosted workflow, or one more than that of the last run of this user."""
    hosted = os.environ.get("GITHUB_RUN_NUMBER")
    if hosted:
        return int(hosted)
    kept = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "clockhands" / "slow-part"
    number = int(kept.read_text(encoding="utf-8")) + 1 if kept.exists() else random.SystemRandom().randrange(10**6)
    with contextlib.suppress(OSError):  # where nothing can be kept, the next number is a new random one
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(str(number), encoding="utf-8")
    return number


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        metavar="next|NUMBER",
        help=f"of the slow tests those of GUARDS, and one of {PARTS} parts: the next one, or that of a number",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.part is None:
        return
    number = int(config.option.part)
    kept, left = [], []
    for item in items:
        drawn = item.get_closest_marker("slow") is not None and not item.nodeid.startswith(GUARDS)
        (left if drawn and not in_part(item.nodeid, number) else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)


# --- fixtures -------------------------------------------------------------------------------------------------------


class Cases:
    """Many cases of one idea in one test: every case is tried, and every failure is reported at the end.

    ``with cases(name): assert ...`` goes on after a failure. (pytest's own `subtests` report each case by itself, which
    takes 3 ms a case; a parameter takes 4.5 ms, both measured with xdist, and this one 2 microseconds.)
    """

    def __init__(self) -> None:
        self.tried = 0
        self.failures: list[str] = []

    @contextlib.contextmanager
    def __call__(self, *case: object) -> Iterator[None]:
        self.tried += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever fails is reported
            place = traceback.extract_tb(error.__traceback__)[1]  # the first is the line above
            what = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            named = ", ".join(map(str, case))
            self.failures.append(f"{named}\n  {Path(place.filename).name}:{place.lineno}: {place.line}\n  {what}")

    def judge(self) -> None:
        """Fail with everything that failed.

        Raises:
            AssertionError: A case failed, or none was tried.
        """
        assert self.tried, "no case was tried"
        assert not self.failures, f"{len(self.failures)} of {self.tried} cases failed:\n" + "\n".join(self.failures)


@pytest.fixture
def cases() -> Cases:
    """Collects the failures of a loop; the test fails at its end, with all of them."""
    return Cases()


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> Callable[..., list[Any]]:
    """Draws a sample with the seed that the run prints: ``draw(items, 5)`` are 5 of them, in their order."""
    seed = request.config.getoption("randomly_seed", 0)
    chance = random.Random(f"{seed} {request.node.nodeid}")

    def drawn(items: Iterable[Any], number: int) -> list[Any]:
        known = list(items)
        return [known[place] for place in sorted(chance.sample(range(len(known)), min(number, len(known))))]

    return drawn


@pytest.fixture(scope="session")
def published() -> Path:
    """The folder of published tables and of what published configs say of position."""
    return Path(__file__).resolve().with_name("published")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., tuple[str, str]]:
    """The message and the hint with which a call is refused; the folder of the test is FOLDER in them."""
    from clockhands.errors import Unreadable
    from written_files import refusal

    def told(call, *arguments, error=Unreadable, **named):
        message, hint = refusal(call, *arguments, error=error, **named)
        return message.replace(str(tmp_path), "FOLDER"), hint.replace(str(tmp_path), "FOLDER")

    return told


@pytest.fixture
def empty_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[Any, None, None]:
    """A hub on this machine without models, an empty cache for what is fetched, and a token."""
    # Taken before the test, which may hide the library: huggingface_hub imports its functions at their first use.
    from huggingface_hub import close_session, constants

    from clockhands.formats import transfers
    from hub_server import Hub, serving

    for name in (
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE",
        "HUGGINGFACE_HUB_CACHE",
        "HF_HOME",
        "ALL_PROXY",
        "HTTP_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ASSETS_CACHE", str(tmp_path / "assets"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    # These the library has read when it was imported.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", False)
    monkeypatch.setattr(transfers, "_PAUSES", (0.0, 0.0))
    hub = Hub()
    with serving(hub):
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub
        for thread in threading.enumerate():  # requests that had begun when another one failed
            if thread.name == transfers.THREADS:
                thread.join()
        close_session()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """A test that itself imports a library that is absent skips; the package may need none. `cases` is judged."""
    try:
        answer = yield
    except ModuleNotFoundError as error:
        *_, innermost = traceback.extract_tb(error.__traceback__)
        by_test = Path(innermost.filename).is_relative_to(Path(__file__).parent)
        if by_test and error.name in BACKENDS and error.name not in expected_backends():
            pytest.skip(f"{error.name} is not installed")
        raise
    if "cases" in getattr(item, "funcargs", {}):
        item.funcargs["cases"].judge()
    return answer


class Record:
    """What a run really did, and what of it was asked for in vain."""

    def __init__(self) -> None:
        self.passed = 0
        self.skipped: list[str] = []
        self.backends: Counter[str] = Counter()
        self.broken: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skipped.append(f"{report.nodeid}: {reason}")
        if report.when == "call" and report.passed:
            self.passed += 1
            self.backends.update(value for key, value in report.user_properties if key == "backend")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.skipped.append(f"{report.nodeid} (whole file): {report.longrepr}")

    def judge(self) -> list[str]:
        """What the environment asks of the run, and the run did not do: one sentence each."""
        least = int(os.environ.get("EXPECT_TESTS", "0"))
        broken = [
            f"no test of the backend {name} passed, but EXPECT_BACKENDS names it"
            for name in expected_backends()
            if not self.backends[name]
        ]
        if self.passed < least:
            broken.append(f"{self.passed} tests passed, but EXPECT_TESTS asks for at least {least}")
        if in_ci():
            broken += [f"skipped, which CI forbids: {what}" for what in self.skipped]
        return broken

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.config.option.collectonly or hasattr(session.config, "workerinput"):
            return  # one of several processes sees a part only; the one that started them sees all
        self.broken = self.judge()
        if self.broken and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        backends = ", ".join(f"{name} {self.backends[name]}" for name in BACKENDS)
        terminalreporter.section("what was tested")
        terminalreporter.line(f"{self.passed} passed, {len(self.skipped)} skipped; tests by backend: {backends}")
        for sentence in self.broken:
            terminalreporter.line(f"EXPECTED OTHERWISE: {sentence}", red=True)


def resident() -> int:
    """MiB of memory that this process holds; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize() >> 20
    except OSError:
        return 0


class Memory:
    """Drops what libraries keep of tests that have ended: compiled functions took 4 GB in each process."""

    held = 0

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self) -> None:
        if resident() > self.held + 150:
            if "jax" in sys.modules:
                sys.modules["jax"].clear_caches()
            if "torch._dynamo" in sys.modules:
                sys.modules["torch"].compiler.reset()
            gc.collect()
            with contextlib.suppress(OSError, AttributeError):  # only the GNU library has it
                ctypes.CDLL(None).malloc_trim(0)
            self.held = resident()


def pytest_collection_finish() -> None:
    """What was collected stays: the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # one of several processes: the one that started them has drawn
        config.option.part = config.workerinput["part"]
    elif config.option.part == "next":
        config.option.part = str(next_number())
    config.pluginmanager.register(Record(), "what-was-tested")
    config.pluginmanager.register(Memory(), "memory-of-tests")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """What a process of xdist is told."""
    node.workerinput["part"] = node.config.option.part


def pytest_report_header(config: pytest.Config) -> list[str]:
    versions = [f"{name} {installed(name) or 'absent'}" for name in ("clockhands", *BACKENDS, "mpmath", "hypothesis")]
    expected = ", ".join(expected_backends()) or "none"
    part = "" if config.option.part is None else f"; part of the slow tests: --part {config.option.part}"
    return [
        f"python {platform.python_version()}; " + "; ".join(versions),
        f"expected backends: {expected}; CI: {in_ci()}{part}",
    ]
