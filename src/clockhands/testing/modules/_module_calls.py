"""Calls of a module under test, with the same inputs before and after a treatment.

Tokens are +1 and -1, so that every pair has the same norm and every dtype represents them exactly. Outputs are compared
row by row; each row belongs to a position.
"""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from clockhands.encodings.rotary import Rotary
from clockhands.recognition.calling import Refused, answered, as_numpy, dtype_of
from clockhands.recognition.probe_positions import probe_positions
from clockhands.testing._experiments import Answer, Unasked
from clockhands.testing.bounds import treated_error
from clockhands.testing.functions._call_shapes import CallShape
from clockhands.testing.functions._calls import Called
from clockhands.testing.modules._module_tensors import as_it_was, put_parameters
from clockhands.testing.reports import CannotCheck

_HINT = (
    "Pass call=, axes=, positions=, width= or length= for what it takes; call= may be a function(module, x, positions),"
    ' or "x, positions -> cos, sin" if it returns cosines and sines.'
)
LENGTHS = (10_000, 4096, 2048, 1024, 512, 128, 32, 8)

Around = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class ModuleOutput:
    """The output of a module for the test inputs.

    Attributes:
        rows: [rows, channels], float64; for a bias [queries, heads x keys].
        positions: The positions of the rows, [rows].
        dtype: The dtype of the output.
    """

    rows: np.ndarray
    positions: np.ndarray
    dtype: str

    @property
    def size(self) -> float:
        """The largest finite absolute value; 0 if there is none."""
        finite = np.abs(self.rows[np.isfinite(self.rows)])
        return float(finite.max(initial=0.0))


class ModuleCaller:
    """Calls a module with the test inputs.

    Attributes:
        kind: ``"tokens"`` or ``"bias"``.
        width: The number of dimensions of its tokens.
        length: Positions 0 to ``length - 1`` are checked.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        call: str | Callable[..., Any] | None,
        method: str | None,
        axes: str | None,
        positions: str | None,
        dtype: str,
        layout: str,
        width: int | None,
        length: int | None,
        coordinates: int,
        rotary: Rotary | None,
        additive: bool,
        is_bias: bool,
        timeout: float,
    ) -> None:
        """Detect the width of its tokens and the number of its positions, unless they are given."""
        self.call, self.method, self.layout, self.timeout = call, method, layout, timeout
        self.given_axes, self.given_places, self.rotary, self.additive = axes, positions, rotary, additive
        self.shape: CallShape | None = None
        self.shape_words: Mapping[str, Any] = {}
        self.dtype, self.coordinates = dtype, coordinates
        self.kind = "bias" if is_bias else "tokens"
        self.width = width or 0
        self.calls = 0
        self.length = length or 0
        if self.kind == "tokens" and width is None:
            self.width = self._find_width(module)
        self._find_length(module, length)

    def function(self, module: torch.nn.Module, around: Around = nullcontext) -> Callable[..., Any]:
        """The module as a function of tensors; every call runs inside the context ``around``."""
        bound = module if self.method is None else getattr(module, self.method)
        call = self.call
        if callable(call):
            given = call

            def called_module(*arguments: Any, **named: Any) -> Any:
                with around():
                    return given(module, *arguments, **named)
        else:

            def called_module(*arguments: Any, **named: Any) -> Any:
                with around():
                    return bound(*arguments, **named)

            # The names of its arguments are read from it.
            called_module.__wrapped__ = getattr(bound, "forward", bound)  # type: ignore[attr-defined]
        called_module.__qualname__ = type(module).__name__
        return called_module

    @property
    def axes(self) -> str:
        """The axes of its tokens."""
        return "" if self.shape is None else self.shape.axes_text

    @property
    def places(self) -> str:
        """The axes of its positions."""
        return "" if self.shape is None else " ".join(self.shape.places)

    @property
    def positions_given(self) -> bool:
        """Whether it takes positions or an offset."""
        return self.shape is None or not self.shape.counts

    def hear(
        self,
        module: torch.nn.Module,
        *,
        dtype: str | None = None,
        around: Around = nullcontext,
        positions: np.ndarray | None = None,
    ) -> ModuleOutput:
        """Call a module with the test inputs, at ``positions`` if given, and return its output."""
        self.calls += 1
        if self.kind == "bias":
            at = probe_positions(self.length) if positions is None else positions
            return self._hear_bias(module, at[-40:], around)
        # A short sequence first: in a long one, frequencies that depend on the length are computed again, which hides
        # wrong stored ones.
        usual = [probe_positions(min(self.length, 40)), probe_positions(self.length)]
        asked = usual if positions is None else [positions]
        rows = []
        try:
            called = self.called(module, self.width, dtype or self.dtype, around)
            for at in asked:
                x = np.random.default_rng(7).choice([-1.0, 1.0], (1, 1, len(at), self.width))
                places = at if self.coordinates == 1 else np.repeat(at[:, None], self.coordinates, axis=-1)
                rows.append(called(x, places)[0, 0])
        except CannotCheck as error:
            raise Refused(str(error.args[0]) if error.args else str(error)) from error
        return ModuleOutput(np.concatenate(rows), np.concatenate(asked), called.output)

    def called(self, module: torch.nn.Module, width: int, dtype: str, around: Around = nullcontext) -> Called:
        """The module as a function of NumPy arrays."""
        given: Any = self.shape or self.call
        if callable(given):
            given = "x" if len(inspect.signature(given).parameters) == 2 else "x, positions"
        rotary = self.rotary
        if rotary is None and not self.additive and width % 2 == 0:  # which turns tokens by the cosines that it returns
            rotary = Rotary(width, layout=self.layout)  # type: ignore[arg-type]
        made = Called(
            self.function(module, around),
            width,
            axes=self.given_axes,
            call=given,
            positions=self.given_places,
            rotary=rotary,
            coordinates=self.coordinates,
            backend="torch",
            dtype=dtype,
            timeout=self.timeout,
        )
        if self.shape is None:
            self.shape, self.shape_words = made.shape, made.shape_words
        return made

    def arguments(self, device: str) -> tuple[torch.Tensor, ...]:
        """The arguments of a call with 3 tokens on a device: tokens and positions; raises `Unasked` for others."""
        assert self.shape is not None
        if self.shape.by_name or not {*self.shape.takes} <= {"x", "positions"}:
            raise Unasked("it takes other arguments than tokens and positions")
        sizes = {"batch": 1, "heads": 1, "seq": 3, "width": self.width, "axes": self.coordinates}
        x = torch.ones([sizes[word] for word in self.shape.axes], device=device)
        places = torch.zeros([sizes[word] for word in self.shape.places], dtype=torch.int64, device=device)
        return tuple({"x": x, "positions": places}[word] for word in self.shape.takes)

    def _hear_bias(self, module: torch.nn.Module, at: np.ndarray, around: Around) -> ModuleOutput:
        function = self.function(module, around)
        if self.call == "counts":
            number = min(self.length, 300)
            questions: list[tuple[Any, ...]] = [(12, 12), (1, number)]
            places = [np.arange(12), np.array([number - 1])]
        else:
            keys = torch.from_numpy(at.astype(np.int64))
            questions, places = [(keys, keys), (keys[-1:], keys)], [at, at[-1:]]
        rows, dtype = [], "float32"
        for question in questions:

            def ask(question: tuple[Any, ...] = question) -> Any:
                with torch.no_grad():
                    return function(*question)

            answer = answered(ask, self.timeout)
            if not isinstance(answer, torch.Tensor) or answer.ndim < 3:
                what = list(answer.shape) if isinstance(answer, torch.Tensor) else type(answer).__name__
                raise Refused(f"it returned {what}, not a bias of [heads, queries, keys]")
            dtype = dtype_of(answer)
            heads, queries, keys_asked = answer.shape[-3:]
            bias = as_numpy(answer).astype(np.float64).reshape(heads, queries, keys_asked)
            rows.append(np.moveaxis(bias, 0, 1).reshape(queries, -1))
        widest = max(row.shape[-1] for row in rows)
        held = np.concatenate([np.pad(row, ((0, 0), (0, widest - row.shape[-1]))) for row in rows])
        return ModuleOutput(held, np.concatenate(places), dtype)

    def _find_width(self, module: torch.nn.Module) -> int:
        said = ""
        for width in dict.fromkeys(_likely_widths(module)):
            try:
                self.called(module, width, self.dtype)
            except CannotCheck as error:
                said = said or error.message
            else:
                return width
        raise CannotCheck(
            said or "The width of its tokens is not known.", _HINT if said else "Pass width=, the width of its tokens."
        )

    def _find_length(self, module: torch.nn.Module, length: int | None) -> None:
        refused = ""
        for self.length in (length,) if length is not None else LENGTHS:
            try:
                self.hear(module)
            except Refused as error:
                refused = refused or str(error)
            else:
                return
        last = LENGTHS[0] - 1 if length is None else length - 1
        raise CannotCheck(
            f"The module failed when it was called for positions up to {last:,}: {refused.removesuffix('.')}.",
            _HINT,
        )


def _likely_widths(module: torch.nn.Module) -> Iterator[int]:
    """Possible widths: from its attributes and tensors, then common ones."""
    for owner in module.modules():
        for name in ("head_dim", "head_width", "dim", "width", "d_model", "embed_dim", "embedding_dim", "hidden_size"):
            value = getattr(owner, name, None)
            if isinstance(value, int) and 1 <= value <= 65_536:
                yield value
        for tensor in (*owner.parameters(recurse=False), *owner.buffers(recurse=False)):
            if tensor.ndim and tensor.is_floating_point():
                yield from (2 * tensor.shape[-1], tensor.shape[-1])
    yield from (64, 128, 32, 16, 8, 256, 512, 768, 1024)


@dataclass
class ModuleSubject:
    """A module under test.

    Attributes:
        original: The caller's module, which is never changed.
        asking: Calls the module.
        make: Builds another module like it, or None.
        build: Builds a module of another spec, or None.
        restore: The caller's function for a module after ``to_empty``, or None.
        spec: The expected encoding, or None.
        alike: Whether ``make`` builds the same module each time, as far as is known.
        notes: Observations that are no failures.
        copies: Whether copies by copy.deepcopy give the same output; if not, new modules are built instead.
        before: Its output before any treatment.
    """

    original: torch.nn.Module
    asking: ModuleCaller
    make: Callable[[], torch.nn.Module] | None
    build: Callable[[Any], torch.nn.Module] | None
    restore: Callable[[torch.nn.Module], Any] | None
    spec: Any
    alike: bool = field(init=False, default=True)
    notes: list[str] = field(init=False, default_factory=list)
    copies: bool = field(init=False, default=True)
    before: ModuleOutput = field(init=False)

    def __post_init__(self) -> None:
        """Call the module before any treatment, and test whether it can be copied."""
        with as_it_was(self.original):
            self.before = self.asking.hear(self.original.eval())
        try:
            self.copies = not self.differs(self.asking.hear(copy.deepcopy(self.original).eval()), self.before)
        except Exception:  # noqa: BLE001 - the treatment "deepcopy" reports it
            self.copies = False

    @property
    def fastest(self) -> float:
        """The largest frequency of its spec in rad/token, at least 1."""
        rates = getattr(self.spec, "rates", None)
        each = () if rates is None else (np.abs(np.atleast_1d(one)) for one in rates)  # one row for each axis
        return max([1.0, *(float(one.max(initial=0)) for one in each)])

    def compared(
        self, heard: ModuleOutput, wanted: ModuleOutput, treated: "Treated | None" = None, asked: str = ""
    ) -> Answer:
        """An output after a treatment with the expected output and the bounds; NaN in both is replaced by 0 in both."""
        rounded, another = (None, False) if treated is None else (treated.rounded, treated.another)
        is_bias = self.asking.kind == "bias"
        room = treated_error(wanted, rounded or heard.dtype, is_bias=is_bias, another=another, fastest=self.fastest)
        both = np.isnan(heard.rows) & np.isnan(wanted.rows)
        got, right = (np.where(both, 0.0, rows) for rows in (heard.rows, wanted.rows))
        return Answer(asked, got, right, room, wanted.positions)

    def differs(self, heard: ModuleOutput, wanted: ModuleOutput, treated: "Treated | None" = None) -> bool:
        """Whether two outputs differ in shape, or by more than rounding."""
        if heard.rows.shape != wanted.rows.shape:
            return True
        return bool((self.compared(heard, wanted, treated).shares > 1).any())

    def copied(self) -> torch.nn.Module:
        """A copy in eval mode that may be changed; raises `Unasked` if none can be made."""
        if not self.copies:
            if self.make is None:
                raise Unasked("its copies by copy.deepcopy differ from it, and there is no make= to build others")
            return self.made()
        return copy.deepcopy(self.original).eval()

    def made(self) -> torch.nn.Module:
        """A new module with the learned numbers of the original; raises `Unasked` if none can be built."""
        if self.make is None:
            raise Unasked("pass make=, a function that builds the module, to check new ones")
        if not self.alike:
            raise Unasked("make= does not build the same module each time")
        module = self.make().eval()
        put_parameters(module, self.original)
        return module


@dataclass
class Treated:
    """A module after a treatment.

    Attributes:
        module: The module.
        what: What was done, as a phrase that follows "when it".
        dtype: The dtype of the tokens for its call, if not the default.
        around: The context of its call.
        wanted: The expected output, if not the output before any treatment.
        another: Whether its numbers may have been computed by other, equally correct arithmetic.
        rounded: The dtype to which its numbers may be rounded once, if coarser than that of the output.
        kept: The context to exit afterwards.
        heard: Its output, if the treatment has called it already.
    """

    module: torch.nn.Module
    what: str
    dtype: str | None = None
    around: Around = nullcontext
    wanted: ModuleOutput | None = None
    another: bool = False
    rounded: str | None = None
    kept: AbstractContextManager[Any] | None = None
    heard: ModuleOutput | None = None


class Broke(Exception):
    """The treatment itself fails; the message follows the word "it"."""


@dataclass(frozen=True)
class Treatment:
    """Something that is done to modules in use.

    Attributes:
        name: The name of the experiment.
        group: Treatments whose failures have a common explanation.
        run: Treats a copy; raises `Unasked` if it cannot, `Broke` if the treatment fails.
    """

    name: str
    group: str
    run: Callable[[ModuleSubject], Treated]


@contextmanager
def undone(kept: AbstractContextManager[Any] | None) -> Iterator[None]:
    """Exit the context that a treatment left open, to undo its effect on shared state."""
    try:
        yield
    finally:
        if kept is not None:
            kept.__exit__(None, None, None)
