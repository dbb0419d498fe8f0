"""The function `probe`: measures what a trained model does with its positions, by running it."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.arguments import count
from clockhands.auditing import Audit, Finding
from clockhands.encodings.memory import available, readable
from clockhands.errors import InvalidType, InvalidValue, TooLarge, Unreadable
from clockhands.lab.kept_models import KeptModel, kept_model
from clockhands.models.opened_modules import text_config
from clockhands.models.running_models import RunningModel, load, of_module, windows_of
from clockhands.models.text_parts import text_parts
from clockhands.models.torch_threads import faster_alone, in_one_thread
from clockhands.phrases import shown
from clockhands.probes.behaviour import measure_behaviour
from clockhands.probes.finding_prices import with_prices
from clockhands.probes.live import check_live, measure_live
from clockhands.probes.mechanism import measure_mechanism
from clockhands.probes.pricing import check_price, measure_price
from clockhands.probes.results import ProbeResult, Progress, Stopped
from clockhands.probes.training_steps import check_steps, measure_steps

# Windows and tokens of random tokens, whose loss says nothing: a model passes them to show that its parts act together.
_RANDOM = 2, 128
# Logits of a window, their logarithms and one more copy are held in float32.
_COPIES, _BYTES = 3, 4


@dataclass(frozen=True)
class ProbeMeasurement:
    """One kind of measurement.

    Attributes:
        name: As ``measure`` takes it.
        run: Makes it on windows of token ids, [windows, tokens].
        check: Raises a `ClockhandsError` where a model does not allow it, before any long work.
        reads: Whether it needs a text; others take random token ids where there is none.
        usual: Whether it is made where none is chosen.
    """

    name: str
    run: Callable[[RunningModel, Tensor, Progress], ProbeResult]
    check: Callable[[RunningModel], None] = lambda _: None
    reads: bool = True
    usual: bool = True


def _check_live(model: RunningModel) -> None:
    """As `check_live`, and refuse a model that the lab kept."""
    if isinstance(model, KeptModel):
        raise InvalidValue(
            "A model of the lab has no config that it could differ from: its encoding is made from the study's spec.",
            "Leave `live` out.",
        )
    check_live(model)


MEASUREMENTS = (
    ProbeMeasurement("price", measure_price, check_price),
    ProbeMeasurement("behaviour", measure_behaviour),
    ProbeMeasurement("live", measure_live, _check_live, reads=False),
    ProbeMeasurement("mechanism", measure_mechanism),
    ProbeMeasurement("steps", measure_steps, check_steps, usual=False),
)


@dataclass(frozen=True)
class Probe:
    """What the measurements found.

    Attributes:
        target: The model as the caller named it, or the class of a module.
        windows: Number of windows.
        length: Tokens of each.
        results: One for each measurement, in the order of `MEASUREMENTS`.
        left_out: Measurements that this model does not allow, with the reason.
        interrupted: The measurement that Ctrl-C ended; its result holds a part, or is absent. None: all are whole.
    """

    target: str
    windows: int
    length: int
    results: tuple[ProbeResult, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    interrupted: str | None = None

    @property
    def wrong(self) -> bool:
        """Whether a finding of severity error was made."""
        findings = (each for result in self.results for each in result.numbers.get("findings", ()))
        return any(each["severity"] == "error" for each in findings)

    def __repr__(self) -> str:
        """The target and the names of the measurements."""
        return f"<Probe of {self.target}: {', '.join(each.name for each in self.results) or 'nothing measured'}>"

    def __str__(self) -> str:
        """The model, each measurement with its answers and tables, and what was left out, as plain text."""
        return "\n\n".join([f"{self.target}\n  {self.size}", *map(str, self.results), *self.notes])

    @property
    def size(self) -> str:
        """What was read, in words."""
        if not self.windows:
            return "no text"
        return f"{self.windows:,} window{'s' * (self.windows != 1)} of {self.length:,} tokens"

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not measured, a sentence each."""
        stopped = f"Interrupted during {self.interrupted}: what was measured until then is shown."
        left_out = (f"Left out: {name}. {reason}" for name, reason in self.left_out)
        return (*([] if self.interrupted is None else [stopped]), *left_out)

    def __getitem__(self, name: str) -> ProbeResult:
        """The result of a measurement."""
        for each in self.results:
            if each.name == name:
                return each
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """The document that ``clockhands probe --json`` prints."""
        prices = [each for result in self.results for each in result.numbers.get("prices", ())]
        return {
            "schema": 1,
            "target": self.target,
            "windows": self.windows,
            "length": self.length,
            "prices": prices,
            "results": [
                {name: value for name, value in result.to_dict().items() if name != "prices"} for result in self.results
            ],
            "left_out": dict(self.left_out),
            "interrupted": self.interrupted,
        }


def probe(
    model: "str | PathLike[str] | nn.Module | RunningModel",
    text: "str | Path | None" = None,
    *,
    tokenizer: Any = None,
    ids: Any = None,
    measure: Sequence[str] | None = None,
    windows: int = 4,
    length: int = 512,
    progress: Progress | bool | None = None,
) -> Probe:
    """Measure what a trained model does with its positions.

    The model is run and not changed: hooks put each change in place and remove it again. Ctrl-C keeps what was measured
    until then.

    Args:
        model: A folder, a name in the local Hugging Face cache, a GGUF file, ``STORE:ARM:SEED@STEP`` for a model that
            the lab kept, or a module that is already loaded.
        text: The text that the model reads; a `Path` is read as UTF-8. A model of the lab reads held-out sequences of
            its task where there is none.
        tokenizer: The tokenizer of a module, for a text.
        ids: Token ids in place of a text, [windows, tokens].
        measure: Names of measurements; None makes all that the model allows.
        windows: Number of pieces of the text, at equal distances.
        length: Tokens of each.
        progress: Called as ``progress(what, share)`` before each step; True writes a line for each to stderr.

    Raises:
        InvalidValue: A measurement is not known or this model does not allow it; the text is shorter than a window; a
            window is longer than the context.
        Unreadable: The model or the text cannot be read.
        TooLarge: The model or a window does not fit into memory.
    """
    chosen = _chosen(measure)
    windows, length = count("windows", windows), count("length", length, least=8)
    if text is not None and ids is not None:
        raise InvalidValue("A text and token ids were given.", "Give one of the two.")
    kept = kept_model(os.fspath(model)) if isinstance(model, str | PathLike) else None
    model = model if kept is None else kept
    if text is None and ids is None and not isinstance(model, KeptModel) and any(each.reads for each in chosen):
        named = ", ".join(each.name for each in chosen if each.reads)
        raise InvalidValue(
            f"No text was given, and these measurements read one: {named}.",
            "Give a text in the language of the model: --text FILE, or text= in Python.",
        )
    read = _read(text)
    say = progress if callable(progress) else _written if progress else (lambda _what, _share: None)
    say("loading the model", 0.0)
    running = _running(model, tokenizer, read, length=length, count=windows)
    kept, left_out = _allowed(running, chosen, asked=measure is not None)
    pieces = _pieces(running, read, ids, windows, length)
    _refuse_without_memory(running, pieces.shape[1])
    results, interrupted = [], None
    for number, each in enumerate(kept):

        def within(what: str, share: float, number: int = number, name: str = each.name) -> None:
            say(f"{name}: {what}", (number + share) / len(kept))

        try:
            with in_one_thread() if faster_alone(running.module) else nullcontext():
                results.append(each.run(running, pieces, within))
        except (InvalidValue, Unreadable) as error:
            if len(kept) == 1:
                raise
            left_out = (*left_out, (each.name, error.message))
        except KeyboardInterrupt as stop:
            results += [stop.result] if isinstance(stop, Stopped) else []
            interrupted = each.name
            break
    return Probe(running.name, pieces.shape[0], pieces.shape[1], tuple(results), left_out, interrupted)


def _written(what: str, share: float) -> None:
    """Write a step to stderr, as the command does where stderr is no terminal, with the share that is done."""
    sys.stderr.write(f"{share:4.0%} {what} ...\n")


def _chosen(measure: Iterable[str] | None) -> list[ProbeMeasurement]:
    if measure is None:
        return [each for each in MEASUREMENTS if each.usual]
    names = [measure] if isinstance(measure, str) else list(measure)
    known = [each.name for each in MEASUREMENTS]
    for name in names:
        if name not in known:
            raise InvalidValue(f"{shown(name)} is not a measurement.", f"Choose among: {', '.join(known)}.")
    if not names:
        raise InvalidValue("No measurement was chosen.", f"Choose among: {', '.join(known)}.")
    return [each for each in MEASUREMENTS if each.name in names]


def _read(text: "str | Path | None") -> str | None:
    if not isinstance(text, Path):
        return text
    try:
        return text.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{shown(str(text))} cannot be read as a text: {error}.", "Give a UTF-8 text file.") from error


def _running(model: Any, tokenizer: Any, text: str | None, *, length: int, count: int) -> RunningModel:
    if isinstance(model, RunningModel):
        return model
    if isinstance(model, nn.Module):
        return of_module(model, tokenizer)
    if isinstance(model, str | PathLike):
        return load(str(model), text, length=length, count=count)
    raise InvalidType(
        f"Expected a model, got {shown(model)}.", "Give a folder, a name, a .gguf file or a torch.nn.Module."
    )


def _allowed(
    model: RunningModel, chosen: Sequence[ProbeMeasurement], *, asked: bool
) -> tuple[list[ProbeMeasurement], tuple[tuple[str, str], ...]]:
    """The measurements that the model allows; the others are left out, or refused if the caller requested them."""
    kept, left_out = [], []
    for each in chosen:
        try:
            each.check(model)
        except (InvalidValue, Unreadable) as error:
            if asked or len(chosen) == 1:
                raise
            left_out.append((each.name, error.message))
        else:
            kept.append(each)
    return kept, tuple(left_out)


def _pieces(model: RunningModel, text: str | None, ids: Any, windows: int, length: int) -> Tensor:
    if ids is not None:
        found = torch.as_tensor(ids)
        if found.ndim != 2 or found.is_floating_point() or min(found.shape) < 1:
            raise InvalidValue(
                f"`ids` must be whole numbers [windows, tokens], got shape {list(found.shape)} of {found.dtype}.",
                "Give the token ids of one window in each row.",
            )
        return found.long()
    if text is not None:
        return windows_of(model, text, length=length, count=windows)
    if isinstance(model, KeptModel):
        return torch.from_numpy(model.batch(windows, length).tokens)
    if not text_parts(model.module):
        return torch.zeros(0, 0, dtype=torch.long)  # a model of images or audio
    vocabulary = int(getattr(text_config(model.module), "vocab_size", 0))
    if vocabulary < 1:
        raise InvalidValue(
            f"{model.name} does not say how many tokens it knows, so no random text can be made.", "Pass ids=."
        )
    length = min(length, model.context or length)
    return torch.from_numpy(np.random.default_rng(0).integers(0, vocabulary, (windows, length)))


def _refuse_without_memory(model: RunningModel, length: int) -> None:
    vocabulary = getattr(text_config(model.module), "vocab_size", None)
    left = available()
    if not model.predicts or not isinstance(vocabulary, int) or left is None:
        return
    needed = _COPIES * _BYTES * vocabulary * length
    if needed > left:
        raise TooLarge(
            f"The logits of {length:,} tokens would take about {readable(needed)}; {readable(left)} are available.",
            "Choose shorter windows: --length.",
        )


def audit_running(
    audited: Audit, *, live: bool, price: bool, text: "str | Path | None" = None, progress: Progress | None = None
) -> tuple[Audit, ProbeResult | None]:
    """Extend an audit of files by what the running model shows.

    Args:
        audited: The audit.
        live: Whether to measure the positions in effect; problems become findings.
        price: Whether to put the price beside each problem whose fault can be built.
        text: The text that the model reads; without one, ``live`` takes random tokens.
        progress: Called as ``progress(what, share)`` before each step.

    Returns:
        The audit, and the result of ``live``; None without it. Ctrl-C keeps what ``live`` found, and leaves out prices.

    Raises:
        InvalidValue, Unreadable, TooLarge: As `probe`.
    """
    say = progress or (lambda _what, _share: None)
    read = _read(text)
    say("loading the model", 0.0)
    target = audited.target if audited.path is None else str(audited.path)
    model = kept_model(target) or load(target)
    windows, length = _RANDOM if read is None else (4, 512)
    length = min(length, model.context or length)
    size = f"{windows} windows of {length} {'random ' if read is None else ''}tokens"
    pieces = _pieces(model, read, None, windows, length)
    _refuse_without_memory(model, length)
    result = None
    if live:
        _check_live(model)
        try:
            result = measure_live(model, pieces, lambda what, share: say(f"live: {what}", share))
        except Stopped as stop:
            ended = "Ctrl-C ended the measurement: this is what was found until then."
            result, price = replace(stop.result, answers=(*stop.result.answers, ended)), False
        if result.numbers["text_ran"]:
            passes = f"Whole passes read {size}; each layer was also measured by itself, up to its full context."
            result = replace(result, answers=(*result.answers, passes))
        findings = [Finding(**(each | {"edit": None})) for each in result.numbers["findings"]]
        audited = audited.with_live(findings, {k: v for k, v in result.numbers.items() if k != "findings"})
    if price:
        audited = with_prices(audited, model, pieces, lambda what, share: say(f"price: {what}", share))
    return audited, result
