"""The position encoding of an arm inside a model: `clockhands.torch.module`, with what an arm changes about it."""

import copy
import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import numpy as np
import torch
from torch import nn

import clockhands.torch as held
from clockhands.configs.own_encodings import NamedEncoding
from clockhands.encodings import additive, biases, rotary, traces
from clockhands.encodings.grids import Grid
from clockhands.encodings.mixtures import LayerCode, LayerMixture
from clockhands.encodings.protocols import ModelSizes
from clockhands.encodings.rotary import formula
from clockhands.encodings.scores import score_scale
from clockhands.errors import ClockhandsError, InvalidValue, Unreadable
from clockhands.lab.arms import Code, LayerCodes, Setting, codes_of, in_arm, setting, sizes_of, wanted
from clockhands.lab.sections import of_layer
from clockhands.lab.study import Arm, Model, Study
from clockhands.phrases import listed
from clockhands.recognition.calling import error_text
from clockhands.recognition.faults import FAULTS, Fault, fault_in_words
from clockhands.recognition.suspects import (
    AdditiveObservations,
    BiasObservations,
    FaultModel,
    RotaryObservations,
    additive_stateful,
    additive_suspects,
    bias_stateful,
    bias_suspects,
    rotary_stateful,
    rotary_suspects,
)

_FEW = 9  # the length in tokens with which a code is built as a test; a square, for encodings of two axes


def check(study: Study) -> None:
    """Build every code of a study once, as every evaluation needs it, before anything is trained.

    Raises:
        InvalidValue, InvalidType: A code cannot be built into a model, such as a fault that it cannot have.
    """
    for key in dict.fromkeys(each._replace(seed=0) for each in study.trial_keys()):
        arm, model, trained = study.arms[key.arm], sizes_of(study, key), study.training_of(key).length
        causal, learned = study.tasks[key.task].task.causal, None
        for variant, length, dropped in wanted(study, key):
            made = Setting(None)
            try:
                made = setting(arm, model, trained, length, variant, dropped=dropped, causal=causal)
                code = ModelCode(made, arm, causal, 0, sizes_for(model, trained), sinks=model.sinks)
                numbers = {name: each.shape for name, each in code.named_parameters()}
                learned = numbers if learned is None else learned
                if not numbers.items() <= ({} if dropped else learned).items():
                    raise InvalidValue(
                        f"{type(code.spec).__name__} is used at test time, but has learned numbers that were not "
                        "trained.",
                        "Use an encoding without learned numbers at test time.",
                    )
                own = any(isinstance(each, NamedEncoding) for each in codes_of(made.spec))
                few = model.sinks + (length if code.faulty or own else min(length, _FEW))
                x = code.embed(torch.zeros(1, few, model.width))
                heads = x.new_zeros(1, model.heads, few, model.head_width)
                for ready in code.prepare(model.layers, few, None, x):
                    ready.attend(*ready.turn(heads, heads, x=x), heads)
                code.score_scales(model.layers, few, None, x)
            except ClockhandsError as wrong:
                raise in_arm(key, wrong, variant) from None
            except Exception as error:
                named = [each for each in codes_of(made.spec) if isinstance(each, NamedEncoding)]
                if not named:
                    raise
                commands = listed(f"`clockhands check {each.file}:{each.name}`" for each in named)
                wrong = Unreadable(
                    f"{listed((f'{each.name} of {each.file}' for each in named), 'or')} raised {error_text(error)}.",
                    f"Here its methods get tensors of PyTorch. {commands} tests it by itself.",
                )
                raise in_arm(key, wrong, variant) from error


class ModelCode(nn.Module):
    """The code of an arm in all layers of a model.

    Args:
        of: The spec and its fault.
        arm: What the arm changes about it: channels, a factor, drawn slopes, windows, chunks, scales of scores.
        causal: Whether a query sees only keys before it.
        seed: Of drawn slopes and of learned numbers.
        sizes: The sizes of the model, for an encoding of the user's own.
        sinks: Vectors before the tokens that every query sees.
    """

    arm: Arm
    spec: Code
    causal: bool
    faulty: bool
    module: held.PositionModule
    slopes: torch.Tensor | None

    def __init__(
        self, of: Setting, arm: Arm, causal: bool, seed: int, sizes: ModelSizes | None = None, *, sinks: int = 0
    ) -> None:
        super().__init__()
        self.arm, self.causal, self.spec, self.faulty = arm, causal, of.spec, bool(of.fault)
        self.sinks: int = sinks
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module = _module(of, arm, sizes or ModelSizes())
        self.register_buffer("slopes", _slope_factors(of.spec, arm, seed), persistent=False)

    def embed(self, x: torch.Tensor, positions: Any = None) -> torch.Tensor:
        """Tokens [batch, length, width] with an additive code added."""
        part = x[..., : self.arm.channels] if self.arm.channels else x
        coded = self.module.embed(part, positions)
        if coded is part:
            return x
        if self.arm.times != 1:
            coded = part + self.arm.times * (coded - part)
        return torch.cat([coded, x[..., self.arm.channels :]], dim=-1) if self.arm.channels else coded

    def prepare(self, layers: int, length: int, positions: Any, like: torch.Tensor) -> list[held.Prepared]:
        """What each layer needs, made once for a forward pass; layers that share a code share what is made for it."""
        at = cells(self.spec, length) if positions is None else positions
        ready = self.module.prepare(at, like=like, causal=self.causal)
        parts = [ready.layer(layer) for layer in range(layers)]
        made: dict[tuple[int, int, int], held.Prepared] = {}
        for layer, part in enumerate(parts):
            window, chunk = of_layer(self.arm.window, layer), of_layer(self.arm.chunk, layer)
            if (place := (id(part), window, chunk)) not in made:
                made[place] = self._changed(part, self._unseen(window, chunk, length, like), like)
            parts[layer] = made[place]
        return parts

    def score_scales(self, layers: int, length: int, positions: Any, like: torch.Tensor) -> list[torch.Tensor | None]:
        """The factor on the queries of each layer, [length, 1] or [batch, 1, length, 1]; None where there is none."""
        made: dict[Any, torch.Tensor | None] = {None: None}
        each = [of_layer(self.arm.scores, layer) for layer in range(layers)]
        for spec in each:
            if spec not in made:
                scale = score_scale(spec, length if positions is None else positions, like)[..., None]
                made[spec] = scale if scale.dim() == 2 else scale[:, None]
        return [made[spec] for spec in each]

    def _changed(self, ready: held.Prepared, unseen: torch.Tensor | None, like: torch.Tensor) -> held.Prepared:
        """What was prepared, with the arm's factor, and without the keys that are not seen."""
        mask, ready = ready.mask, copy.copy(ready)
        if mask is not None and mask.is_floating_point() and (self.arm.times != 1 or self.slopes is not None):
            mask = mask * (self.arm.times if self.slopes is None else self.slopes[:, None, None] * self.arm.times)
        if unseen is not None:
            mask = torch.zeros(unseen.shape, device=like.device, dtype=like.dtype) if mask is None else mask
            mask, ready.is_causal = mask.masked_fill(unseen, -math.inf), False
        ready.mask = mask
        return ready

    def _unseen(self, window: int, chunk: int, length: int, like: torch.Tensor) -> torch.Tensor | None:
        """The keys that a window or chunks hide, and those after the query, [length, length]; None if all are seen."""
        if not (0 < window < length or 0 < chunk < length - self.sinks):
            return None
        rows = torch.arange(length, device=like.device) - self.sinks
        away = rows[:, None] - rows
        unseen = torch.zeros_like(away, dtype=torch.bool)
        if window:
            unseen |= away.abs() >= window
        if chunk:
            unseen |= (rows[:, None] // chunk) != (rows // chunk)
        unseen &= rows >= 0
        return unseen | (away < 0) if self.causal else unseen


def cells(spec: Code, length: int) -> Any:
    """The positions of ``length`` tokens: 0 to length - 1, or for two axes the cells of a square image, row by row."""
    if all(getattr(each, "number_of_axes", 1) == 1 for each in codes_of(spec)):
        return length
    return Grid((math.isqrt(length),) * 2)


def sizes_for(model: Model, trained: int) -> ModelSizes:
    """The sizes of a model by the names of the protocol."""
    return ModelSizes(model.width, model.heads, model.head_width, model.layers, trained)


def _module(of: Setting, arm: Arm, sizes: ModelSizes) -> held.PositionModule:
    if not isinstance(of.spec, LayerCodes | LayerMixture) or of.fault:
        return _module_of_code(of.spec, of.fault, arm, sizes, sizes.layers)
    made = held.Mixture(of.spec.specs if isinstance(of.spec, LayerCodes) else of.spec)
    for number, code in enumerate(of.spec.codes):
        layers = sum(of_layer(of.spec.pattern, layer) == number for layer in range(sizes.layers))
        if isinstance(code, NamedEncoding) or arm.frequencies == "learned":
            made.codes[number] = own = _module_of_code(code, "", arm, sizes, layers)
            added = isinstance(own, held.OwnEncoding) and {"embed", "add"} & set(own.methods)
            if added and number != of.spec.pattern[0]:
                raise InvalidValue(
                    f"{code} is added to the tokens, which is done before layer 0, but layer 0 has another code.",
                    "Let `pattern` begin with it.",
                )
    return made


def _module_of_code(spec: Any, fault: str, arm: Arm, sizes: ModelSizes, layers: int) -> held.PositionModule:
    """The module of a code that so many layers have."""
    if isinstance(spec, NamedEncoding):
        first = spec.made(sizes)
        alone = not getattr(first, "shared", True)
        return held.OwnEncoding([first, *(spec.made(sizes) for _ in range(1, layers if alone else 1))])
    if isinstance(spec, rotary.Rotary) and arm.frequencies == "learned":
        return held.OwnEncoding([LearnedFrequencies(spec)])
    # A study only takes encodings (`specs.CODES`), so a spec is never a scale of scores.
    return FaultyCode(spec, fault) if fault else held.module(cast("LayerCode | LayerMixture", spec))


class LearnedFrequencies(nn.Module):
    """RoPE whose frequencies, ``exp(f)`` in radians per token, are trained; they begin as those of its spec."""

    def __init__(self, spec: rotary.Rotary) -> None:
        super().__init__()
        self.spec = spec
        self.log_rates = nn.Parameter(torch.tensor(spec.rates, dtype=torch.float64).log().float())

    def rotate(self, q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and keys [batch, heads, length, head_width], each rotated by its position times the frequencies."""
        sign = -1 if self.spec.direction == "backward" else 1
        phases = sign * positions[..., None] * self.log_rates.exp()
        phases = phases if phases.dim() == 2 else phases[:, None]
        factor = self.spec.ladder.attention_factor
        cosine, sine = phases.cos() * factor, phases.sin() * factor
        rotated = [formula.plain(each, cosine, sine, self.spec, traces.library(each)) for each in (q, k)]
        return rotated[0], rotated[1]


def _slope_factors(spec: Code, arm: Arm, seed: int) -> torch.Tensor | None:
    """The factor on each head's own slope that gives the drawn one; None if the slopes are not drawn."""
    if arm.slopes == "own" or spec is None:
        return None
    if not isinstance(spec, biases.Alibi):
        raise InvalidValue(f'slopes = "drawn" is for Alibi, got {type(spec).__name__}.', "Leave `slopes` out.")
    own = np.array(spec.slopes)
    low, high = np.log(own.min()), np.log(own.max())
    drawn = np.exp(np.random.default_rng([seed, 0x51]).uniform(low, high, len(own)))
    return torch.tensor(drawn / own, dtype=torch.float32)


class FaultyCode(held.PositionModule):
    """A code with one fault of `clockhands.recognition.faults`, as a module like those of `clockhands.torch`.

    The effect of a fault is taken from its suspect (a faulty function): an additive code is ``a x + t`` at each
    position, a rotary code a matrix at each position, a bias a matrix of numbers. Faults that depend on the token, on
    earlier calls, or that need learned numbers cannot be built in this way and are refused.

    Args:
        spec: The correct code.
        fault: The code of the fault.

    Raises:
        InvalidValue: The code cannot have this fault, or it cannot be built into a model.
    """

    def __init__(self, spec: Code, fault: str) -> None:
        super().__init__()
        self.spec, self.fault = spec, fault
        self._made: dict[int, Any] = {}
        if not _is_computed(spec):
            what = "no position encoding" if spec is None else type(spec).__name__
            raise InvalidValue(
                f"The fault {fault!r} cannot be built into {what}.",
                "Use an encoding that is computed, not learned, and that is the same in all layers.",
            )

    def embed(self, x: torch.Tensor, positions: Any = None) -> torch.Tensor:
        """Tokens with the faulty code added, if it is additive."""
        if not isinstance(self.spec, additive.AdditiveCode):
            return x
        factor, table = self._numbers(x.shape[-2], positions)
        return x * factor.to(x) + table.to(x)

    def prepare(self, queries: Any, keys: Any = None, *, like: torch.Tensor, causal: bool = True) -> held.Prepared:
        """The faulty rotation, or the faulty bias; nothing for an additive code."""
        if isinstance(self.spec, additive.AdditiveCode):
            return held.Prepared(is_causal=causal)
        if not isinstance(queries, int) or keys is not None:
            self._numbers(0, queries)
        numbers = self._numbers(queries, None)
        if isinstance(self.spec, rotary.Rotary):
            return _PreparedMatrices(numbers[0].to(like), numbers[1].to(like), is_causal=causal)
        mask = numbers.to(like)[None]
        if causal:
            later = torch.ones(queries, queries, dtype=torch.bool, device=like.device).triu(1)
            mask = mask.masked_fill(later, -math.inf)
        elif mask.isnan().any():
            raise InvalidValue(
                f"{type(self.spec).__name__} with the fault {self.fault!r} has no bias for keys after the query.",
                "Use it in a causal task.",
            )
        return held.Prepared(mask)

    def _numbers(self, length: int, positions: Any) -> Any:
        if positions is not None:
            raise InvalidValue(
                "A code with a fault has the positions 0, 1, 2 and so on, so random positions are not allowed.",
                "Remove `positions` from this arm.",
            )
        if length not in self._made:
            self._made[length] = _fault_effect(self.spec, self.fault, length)[1]
        return self._made[length]


class _PreparedMatrices(held.Prepared):
    """Queries and keys multiplied by the matrix of their position."""

    def __init__(self, for_queries: torch.Tensor, for_keys: torch.Tensor, *, is_causal: bool) -> None:
        super().__init__(is_causal=is_causal)
        self._matrices = for_queries, for_keys

    def turn(
        self, queries: torch.Tensor, keys: torch.Tensor, seq_axis: int = -2, *, x: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and keys [batch, heads, length, head_width], each multiplied."""
        return _times(self._matrices[0], queries), _times(self._matrices[1], keys)


def _is_computed(spec: Any) -> bool:
    """Whether a spec is one code without learned numbers."""
    one = isinstance(spec, additive.AdditiveCode | rotary.Rotary | biases.BiasCode)
    return one and not getattr(spec, "learned", False)


def buildable_faults(spec: Any, length: int) -> Iterator[tuple[str, str]]:
    """Each fault that can be built into a code at a length, and what the code does with it."""
    if not _is_computed(spec):
        return
    suspects, stateful = _suspects(spec, length)
    for fault in dict.fromkeys(each.codes[0] for each in suspects if len(each.codes) == 1):
        with suppress(InvalidValue):
            suspect, _ = _fault_effect(spec, fault, length)
            if fault not in stateful:
                yield fault, _in_words(FAULTS[fault], suspect)


def _in_words(fault: Fault, suspect: FaultModel) -> str:
    try:
        return fault.sentence.format(**suspect.parameters)
    except KeyError:  # a parameter that only a check of a function measures
        return fault_in_words(fault)


def _times(matrices: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Each token multiplied by the matrix of its position."""
    return torch.einsum("sij,bhsj->bhsi", matrices, x)


def _fault_effect(spec: Any, fault: str, length: int) -> tuple[FaultModel, Any]:
    """The suspect with a fault, and its effect on a code at the first positions, as tensors."""
    tried = 0
    suspects, stateful = _suspects(spec, length)
    for suspect in suspects:
        if fault not in suspect.codes or fault in stateful:
            tried += fault in suspect.codes
            continue
        tried += 1
        made = suspect.make()(spec)
        if isinstance(spec, rotary.Rotary):
            numbers = _matrices(made, spec, length)
        elif isinstance(spec, additive.AdditiveCode):
            numbers = _affine(made, spec.width, length)
        else:
            numbers = _scores(made, length)
        if numbers is not None:
            return suspect, numbers
    why = "depends on the tokens or on earlier calls" if tried else "is not a fault of this encoding"
    raise InvalidValue(
        f"The fault {fault!r} cannot be built into {type(spec).__name__} at length {length}: it {why}.",
        "Choose another fault; `clockhands explain` lists all of them.",
    )


def _suspects(spec: Any, length: int) -> tuple[Iterator[FaultModel], set[str]]:
    """The suspects of a code, and the codes of those that only show on a later call."""
    nothing = np.zeros((0, 0))
    if isinstance(spec, rotary.Rotary):
        seen = RotaryObservations("float32", "bfloat16", length, None, np.zeros(0), nothing.astype(complex), False)
        found, later = rotary_suspects(spec, seen), rotary_stateful(spec, seen)
    elif isinstance(spec, additive.AdditiveCode):
        seen = AdditiveObservations(
            "", "float32", "bfloat16", length, None, None, 1.0, np.zeros(0), nothing, nothing, 1.0
        )
        found, later = additive_suspects(spec, seen), additive_stateful(spec, seen)
    else:
        heads = np.full(spec.heads, np.nan)
        of_bias = BiasObservations(lambda _: None, True, False, False, length, None, heads, np.arange(spec.heads))
        found, later = bias_suspects(spec, of_bias), bias_stateful(spec, of_bias)
    return found, {code for suspect in later for code in suspect.codes}


def _matrices(made: Any, spec: rotary.Rotary, length: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The matrix of each position for queries and keys, [length, head_width, head_width]; None if not a matrix."""
    width, found = spec.head_width, []
    probe = np.random.default_rng(0).standard_normal((1, 2, length, width))
    basis = np.broadcast_to(np.eye(width)[None, :, None, :], (1, width, length, width)).copy()
    for role in ("query", "key") if spec.xpos is not None else (None, None):
        matrix = np.moveaxis(made(basis, np.arange(length), "float32", role)[0], 0, -1)
        expected = np.einsum("sij,bhsj->bhsi", matrix, probe)
        if not np.allclose(made(probe, np.arange(length), "float32", role), expected, atol=1e-6):
            return None
        found.append(torch.tensor(matrix, dtype=torch.float32))
    return found[0], found[1]


def _affine(made: Any, width: int, length: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Factor and table of ``a x + t``, [length, width] each; None if the code has another form."""
    probe = np.random.default_rng(0).standard_normal((1, 1, length, width))
    at = np.arange(length)
    zero = np.asarray(made(np.zeros_like(probe), at, "float32", None))[0, 0]
    factor = np.asarray(made(np.ones_like(probe), at, "float32", None))[0, 0] - zero
    if not np.allclose(made(probe, at, "float32", None)[0, 0], factor * probe[0, 0] + zero, atol=1e-5):
        return None
    return torch.tensor(factor, dtype=torch.float32), torch.tensor(zero, dtype=torch.float32)


def _scores(made: Any, length: int) -> torch.Tensor | None:
    """The bias, [heads, length, length], NaN where a key after its query has none; None if one before it has none."""
    at = np.arange(length)
    matrix = np.asarray(made(at, at), np.float64)
    finite = np.isfinite(matrix)
    if not finite[:, np.tri(length, dtype=bool)].all():
        return None
    return torch.tensor(np.where(finite, matrix, np.nan), dtype=torch.float32)
