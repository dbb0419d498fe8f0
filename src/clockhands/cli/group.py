"""The `clockhands` group: its commands, how errors are printed, and the exit codes.

Exit codes: 0 finished without errors in the target, 1 finished and errors found, 2 could not run, 130 interrupted, 141
the reader of the output has closed it, 143 ended by SIGTERM and 129 by SIGHUP, which keep what an interrupt keeps.
"""

import gc
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from clockhands.errors import ClockhandsError
from clockhands.phrases import did_you_mean, safe

COMMANDS = {
    "audit": "Audit the position settings of a model or config.",
    "probe": "Measure what a trained model does with its positions.",
    "survey": "Audit many models in parallel; show them on one page.",
    "explore": "Open an interactive HTML page of the presets, or of your models.",
    "learn": "Open the lesson and the course on positions, without a network.",
    "properties": "Measure the properties of a position encoding.",
    "order": "Show whether attention distinguishes two word orders.",
    "claims": "Show which claims about positional encodings are true.",
    "check": "Check a function or module against the expected encoding.",
    "explain": "Explain what a finding or a fault means, and how to fix it.",
    "diff": "Compare two encodings or models, or two runtimes on one model.",
    "identify": "Identify the encoding of a table or of a function.",
    "table": "Print the values of an encoding, exact at every position.",
    "convert": "Convert a model's query and key weights to the other layout.",
    "lab": "Train small models with each position encoding; compare them.",
    "presets": "List the presets: published encodings by name.",
}
"""Every command with its line in the help; `clockhands.cli.NAME` holds it as `command`."""


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Load modules without the garbage collector, and keep what they made out of its later searches.

    Modules stay, so there is nothing to find among them: searching them takes a fifth of the time of a short command.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


class UnknownCommand(click.UsageError):
    """A command that does not exist, with similar command names."""


class Ended(KeyboardInterrupt):
    """Another program, or the closed terminal, ends this one.

    Attributes:
        number: The signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class CommandGroup(click.Group):
    """A group that knows its commands by name and imports one when it is called.

    The help of the whole group imports no command, so it only takes the time of click.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order in which a new user needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        name = f"clockhands.cli.{cmd_name}"
        with _nothing_collected() if name not in sys.modules else nullcontext():
            return import_module(name).command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for a misspelt one, suggest a similar name."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            raise UnknownCommand(f"There is no command {name!r}.{guess(name, COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run a command line and exit; every failure ends in one line `error:` and one line `hint:`."""
        if os.environ.get("NO_COLOR"):
            extra["color"] = False
        if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison] - closed by the caller: only files count
            sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - it lives as long as the process
        for stream in (sys.stdout, sys.stderr):
            # A file name that the terminal's encoding cannot represent must not end the report.
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            with _safe_warnings(), _signals_as_interrupts():
                code = super().main(  # pyright: ignore[reportCallIssue] - click's overloads forget this way to call it
                    args, prog_name or "clockhands", complete_var, False, windows_expand_args, **extra
                )
            sys.stdout.flush()
        except click.UsageError as error:
            complain(_usage_message(error), _usage_hint(error))
            code = 2
        except click.ClickException as error:
            complain(error.format_message(), "See `clockhands --help`.")
            code = 2
        except ClockhandsError as error:
            complain(error.message, error.hint)
            code = 2
        except (BrokenPipeError, SystemExit):
            # click itself turns a broken pipe into SystemExit; nothing else raises it here.
            _silence()
            code = 141
        except (click.Abort, KeyboardInterrupt) as error:
            cause = error.__cause__ if isinstance(error, click.Abort) else error  # click makes one of an interrupt
            code = 128 + cause.number if isinstance(cause, Ended) else 130
        except MemoryError:
            complain("There was not enough memory.", "Ask for less at once, or write it in several parts.")
            code = 2
        except OSError as error:
            complain(f"The result could not be written: {error.strerror or error}.", "Send it somewhere else.")
            code = 2
        except Exception:  # noqa: BLE001 - 1 means that a model is wrong, so a fault of our own must not end in it
            for line in traceback.format_exc().splitlines():
                talk(line)
            complain(
                "This is a fault of clockhands, not of what you gave it.", "Please report it with the lines above."
            )
            code = 2
        sys.exit(code if isinstance(code, int) else 0)


def guess(word: str, known: Iterable[str]) -> str:
    """` Did you mean …?` after a sentence, for a word that is similar to one or two known ones, else "".

    >>> guess("tabel", ["table", "audit"])
    ' Did you mean table?'
    """
    question = did_you_mean(word, list(known), most=2)
    return f" {question}" if question else ""


def known_codes(ctx: click.Context, values: Iterable[str], known: Iterable[str], what: str) -> frozenset[str]:
    """The codes given by a repeatable option, each value one or several codes separated by commas."""
    known = list(known)
    codes = [code.strip() for value in values for code in value.split(",")]
    for code in codes:
        if code not in known:
            raise click.BadParameter(
                f"{code!r} is not the code of a {what}.{guess(code, known)} `clockhands explain` lists all.", ctx
            )
    return frozenset(codes)


def one_thread() -> None:
    """Make the linear algebra library use one thread, unless the user has set a number.

    The threads of small products mostly wait on each other: one takes a third of the time, and on a busy machine far
    less. The variable is read when NumPy is first imported, so this comes before that.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def complain(message: str, hint: str) -> None:
    """Print one error on stderr: what is wrong, and what to do."""
    talk(f"error: {message}")
    talk(f"hint: {hint}")


def talk(message: str) -> None:
    """Print a remark that is not data, on stderr: one line, whatever it holds."""
    click.echo(safe(message), err=True)


def say(text: str = "", *, bold: bool = False) -> None:
    """Print a result that is not a page, on stdout: its lines, in which nothing acts on the terminal.

    With `talk` and `clockhands.show._page.Page.line` this is all that writes text of a command; JSON has no character
    that this changes.
    """
    text = "\n".join(map(safe, text.split("\n")))
    click.echo(click.style(text, bold=True) if bold else text)


@contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command as an interrupt does, which ends workers and takes away unfinished files.

    Where the caller has set what they do (``nohup``), or this is no main thread, nothing is changed.
    """
    names = ("SIGTERM", "SIGHUP") if threading.current_thread() is threading.main_thread() else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    numbers = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    process = os.getpid()

    def end(number: int, _frame: FrameType | None) -> None:
        if os.getpid() != process:  # a child that a user's function has forked
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)  # what follows is taking away what is unfinished
        raise Ended(number)

    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _safe_warnings() -> Iterator[None]:
    """Let warnings of other libraries, which may repeat what a file says, print nothing that acts on the terminal."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda *args, **named: f"{safe(before(*args, **named).rstrip())}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def _usage_message(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        # click names every similar option; the most similar one is enough.
        nearest = get_close_matches(error.option_name, error.possibilities, n=1, cutoff=0.0)
        return click.NoSuchOption(error.option_name, possibilities=nearest).format_message()
    return error.format_message()


def _usage_hint(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else "clockhands"
    return f"See `{path} --help`."


def _silence() -> None:
    # Buffered output would raise again when the interpreter flushes at exit.
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - it lives as long as the process


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version  # only here: it reads the installed packages

        click.echo(f"clockhands {version('clockhands')}")
        ctx.exit()


@click.command(
    cls=CommandGroup,
    name="clockhands",
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    epilog="Exit codes: 0 no errors found, 1 errors found, 2 could not run.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit."
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Compute, audit and compare positional encodings of transformer models.

    Begin with `clockhands audit` and your model's folder, config.json or .gguf file.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)
