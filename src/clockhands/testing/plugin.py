"""The pytest plugin: the fixture and the marker `clockhands`, and failures that read as reports.

Pytest imports this in every run in an environment with clockhands, so it imports nothing else until a test uses it.
"""

import sys
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any

import pytest

_MARKER = (
    "clockhands(like=None, **options): what clockhands.check(function) checks the function against: a preset's name "
    "or a spec, and options such as length=4096 or axes='batch heads seq width'."
)
_SOUND, _FAILED = "clockhands", "clockhands failed"  # names in `user_properties`, and so in JUnit files


def _of_testing(name: str) -> Callable[..., Any]:
    """A method of `Checks` that runs the check of this name and records its report."""

    def check(self: "Checks", *arguments: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        import clockhands.testing

        return self._noted(getattr(clockhands.testing, name), *arguments, **options)

    check.__name__, check.__doc__ = name, f"See `clockhands.testing.{name}`."
    return check


class Checks:
    """The value of the fixture: the checks of `clockhands.testing`, and `check`, which uses the marker's options."""

    def __init__(self, item: pytest.Item) -> None:
        """Store the test that uses the fixture."""
        self._item = item

    def __repr__(self) -> str:
        return "<checks of position encodings>"

    def check(self, fn: Any = None, **options: Any) -> Any:
        """Check a function or a PyTorch module with the marker's options; options passed here override them.

        Raises:
            CheckFailed, CannotCheck: See `clockhands.testing`.
        """
        __tracebackhide__ = True
        from clockhands.testing.kinds import check_any

        return self._noted(check_any, fn, **{**_marked(self._item), **options})

    check_rotary: Callable[..., Any] = _of_testing("check_rotary")
    check_additive: Callable[..., Any] = _of_testing("check_additive")
    check_bias: Callable[..., Any] = _of_testing("check_bias")
    check_module: Callable[..., Any] = _of_testing("check_module")
    check_generation: Callable[..., Any] = _of_testing("check_generation")
    check_positions: Callable[..., Any] = _of_testing("check_positions")
    check_batch: Callable[..., Any] = _of_testing("check_batch")

    def _noted(self, check: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        report = check(*arguments, **options)
        if report.sound:
            self._item.user_properties.append((_SOUND, next(report.lines()).text))
        return report


@pytest.fixture
def clockhands(request: pytest.FixtureRequest) -> Checks:
    """Checks of position encodings: clockhands.check(function), with the options of the marker `clockhands`."""
    return Checks(request.node)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test that has the marker but does not use the fixture: it would check nothing."""
    fixtures = getattr(item, "fixturenames", None)
    if fixtures is not None and "clockhands" not in fixtures and item.get_closest_marker("clockhands"):
        pytest.fail(
            "The test is marked `clockhands` and takes no fixture `clockhands`, so it checks nothing.\n"
            "hint: Write def test_...(clockhands): clockhands.check(function).",
            pytrace=False,
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """For a failed check, show the line of the test and the report, without the frames of clockhands between them."""
    try:
        return (yield)
    except Exception as error:
        if not _ours(error):
            raise
        report = getattr(error, "report", None)
        if report is not None:
            item.user_properties.append((_FAILED, _in_one_line(report)))
        _leave_out_our_frames(error)
        raise


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print one line for each failed check: the test and the first explanation."""
    failed = [
        (report.nodeid, text)
        for report in terminalreporter.stats.get("failed", [])
        for name, text in getattr(report, "user_properties", [])
        if name == _FAILED
    ]
    if failed:
        terminalreporter.section("wrong position encodings (clockhands)")
        for place, text in failed:
            terminalreporter.write_line(f"{place}: {text}")


def _marked(item: pytest.Item) -> dict[str, Any]:
    """The options of all markers of a test, merged: those of the test override those of its class and its module."""
    options: dict[str, Any] = {}
    for marker in item.iter_markers("clockhands"):
        said = dict(marker.kwargs)
        if marker.args:
            said = {"like": marker.args[0]} | said
        options = said | options
    return options


def _in_one_line(report: Any) -> str:
    """A failed report in one line, for the summary and for JUnit files."""
    if not report.explanations:
        return f"{report.subject} is wrong: it does not match {report.like}; no known fault has these symptoms"
    first = report.explanations[0]
    return f"{report.subject} {first.message} [{', '.join(first.codes)}]"


def _ours(error: BaseException) -> bool:
    """Whether a check raised this error: `CheckFailed`, or an error of clockhands raised inside a check."""
    reports, errors = (sys.modules.get(f"clockhands.{name}") for name in ("testing.reports", "errors"))
    if reports is not None and isinstance(error, reports.CheckFailed):
        return True
    if errors is None or not isinstance(error, errors.ClockhandsError):
        return False
    # The first frame is this hook itself.
    return any(name.startswith("clockhands.testing") for name, _ in _frames(error.__traceback__)[1:])


def _leave_out_our_frames(error: BaseException) -> None:
    """Remove the frames of clockhands from the traceback of an error and of the errors that caused it."""
    seen: BaseException | None = error
    while seen is not None:
        kept = [each for name, each in _frames(seen.__traceback__) if not name.startswith("clockhands.")]
        for number, one in enumerate(kept, 1):
            one.tb_next = kept[number] if number < len(kept) else None
        seen.__traceback__ = kept[0] if kept else None
        seen = seen.__cause__ if seen.__cause__ is not None or seen.__suppress_context__ else seen.__context__


def _frames(traceback: TracebackType | None) -> list[tuple[str, TracebackType]]:
    """The frames of a traceback, each as (module name, traceback entry)."""
    found = []
    while traceback is not None:
        found.append((str(traceback.tb_frame.f_globals.get("__name__", "")), traceback))
        traceback = traceback.tb_next
    return found
