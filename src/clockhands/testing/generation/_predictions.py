"""Which faults of the catalogue give what a model gave: each is imposed on the model's own single passes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clockhands.recognition.calling import Refused
from clockhands.testing._experiments import Answer, ExperimentRun, Unasked, shares
from clockhands.testing.generation._causal_models import CausalModel
from clockhands.testing.generation._changed_calls import ROOM
from clockhands.testing.generation._fault_catalogue import faults_of
from clockhands.testing.generation._imposed_faults import (
    Excluded,
    ExpectedCall,
    FaultyModel,
    ImposedFault,
    both_faults,
    imposed,
)
from clockhands.testing.generation.texts import GenerationSubject

_MOST_PASSES = 500
_NONE = ImposedFault("")


@dataclass(frozen=True)
class RecordedRun(ExperimentRun):
    """An experiment that was run.

    Attributes:
        heard: What the model answered to each of its calls.
    """

    heard: tuple[np.ndarray, ...] = ()


Runs = Mapping[str, RecordedRun]
Parameters = Mapping[str, Any]


@dataclass
class Predictions:
    """What the model would give under each fault of the catalogue.

    Attributes:
        it: The subject.
        passed: Experiments in which nothing was wrong.
        sound: A model whose single passes are right.
        faults: Those that can show in this model.
        passes: Those that were made.
        telling: Those of them that a fault can contradict; None before they were asked for.
        fitting: Faults that give the answers of some experiment, also where others contradict them.
        found: Those that explain some experiment.
    """

    it: GenerationSubject
    passed: Sequence[RecordedRun]
    sound: CausalModel = field(init=False)
    faults: list[ImposedFault] = field(init=False)
    passes: dict[bytes, np.ndarray] = field(default_factory=dict)
    telling: list[RecordedRun] | None = None
    fitting: set[ImposedFault] = field(default_factory=set)
    found: list[ImposedFault] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Copy the model."""
        self.sound = self.it.model.fresh()
        self.faults = [fault for fault in faults_of(self.it) if self._can_show(fault)]

    def single_faults(self, failed: Runs) -> Iterator[tuple[tuple[str, ...], Parameters, list[str]]]:
        """Faults that give all answers of experiments, the one that explains most of them first."""
        faults = self.faults
        left = dict(sorted(self._imposable(failed).items(), key=lambda item: len(item[1].heard)))
        fits: dict[str, list[ImposedFault]] = {}
        for name, one in left.items():
            known = [fault for fault in faults if any(fault in others for others in fits.values())]
            rest = [fault for fault in faults if fault not in known]
            fits[name] = [fault for fault in known if self._gives(fault, one)]
            if all(map(self._contradicted, fits[name])):
                fits[name] += [fault for fault in rest if self._gives(fault, one)]
        fitting = {fault for some in fits.values() for fault in some}
        self.fitting = fitting
        possible = {fault for fault in fitting if not self._contradicted(fault)}
        fits = {
            name: found for name in failed if name in fits and (found := [one for one in fits[name] if one in possible])
        }
        while fits:
            explains = {id(fault): [name for name in fits if fault in fits[name]] for fault in faults}
            best = max(faults, key=lambda fault: len(explains[id(fault)]))
            names = explains[id(best)]
            # Faults that fit wherever this one does are not told apart from it.
            same = [fault for fault in faults if set(names) <= set(explains[id(fault)])]
            self.found.append(best)
            codes = tuple(dict.fromkeys([best.code, *(fault.code for fault in same)]))
            yield codes, self._parameters_of(best, same), names
            fits = {name: found for name, found in fits.items() if name not in names}

    def _parameters_of(self, best: ImposedFault, same: Iterable[ImposedFault]) -> Parameters:
        """What the sentence of a fault names, with what else its code would be."""
        every = [fault.parameters(self.it) for fault in same if fault.code == best.code]
        return {
            name: " or ".join(dict.fromkeys([value, *(one[name] for one in every if name in one)]))
            for name, value in best.parameters(self.it).items()
        }

    def positions_found(self, failed: Runs) -> Iterator[tuple[str, Parameters, list[str]]]:
        """Experiments in which each call has positions of its own that were found by trying all: those of the first."""
        how: Parameters = {}
        if not self.it.slip:
            return
        for name in sorted(failed, key=lambda name: not name.startswith("one token")):
            places: list[tuple[int, int]] = []
            tried = ImposedFault("decode-positions", keys=_tried_positions(len(self.it.texts[0]), places))
            fits = self._gives(tried, failed[name])
            first = next((place for place, (got, right) in enumerate(places) if got != right), None)
            if fits and first is not None:
                got, right = (", ".join(map(str, each)) for each in zip(*places[first : first + 3], strict=True))
                how = how or {"how": f"positions {got} instead of {right}"}
                yield "decode-positions", how, [name]

    def two_faults(self, failed: Runs) -> Iterator[list[tuple[tuple[str, ...], Parameters, list[str]]]]:
        """Two faults at once that give the answers of an experiment which none of them gives alone."""
        if not self.it.model.copied and self.it.model.counting:
            return
        faults = [fault for fault in self.faults if fault in self.found or fault not in self.fitting]
        sight = [fault for fault in faults if fault.sees or fault.removed]
        pairs = [(one, other) for one in self.found for other in faults if one.code != other.code]
        pairs += [(one, other) for one in faults for other in sight if not one.sees and not one.removed]
        fitting: list[tuple[ImposedFault, ImposedFault]] = []
        for name, one in sorted(self._imposable(failed).items(), key=lambda item: len(item[1].heard)):
            for pair in dict.fromkeys([*fitting, *pairs]):
                if len(self.passes) > _MOST_PASSES:
                    return
                both = both_faults(*pair)
                if self._gives(both, one) and not self._contradicted(both):
                    fitting.append(pair)
                    yield [((fault.code,), fault.parameters(self.it), [name]) for fault in pair]
                    break

    def refuted(self, fault: ImposedFault, failed: Runs) -> bool:
        """Whether a fault changes the answers of a failed experiment, and does not give them, alone or with another."""
        for name, one in self._imposable(failed).items():
            pairs = [both_faults(*pair) for other in self.found for pair in ((fault, other), (other, fault))]
            if self._changes(fault, one) and not any(self._gives(each, failed[name]) for each in (fault, *pairs)):
                return True
        return False

    def _changes(self, fault: ImposedFault, one: RecordedRun) -> bool:
        with suppress(Refused, Unasked):
            under, right = (one.experiment.run(self._under(each)) for each in (fault, _NONE))
            return len(under) != len(right) or any(
                (shares(each.got, other.got, _room(each)) > 1).any() for each, other in zip(under, right, strict=True)
            )
        return False

    def _under(self, fault: ImposedFault) -> GenerationSubject:
        return imposed(self.it, self.sound, fault, self.passes)

    def _imposable(self, failed: Runs) -> dict[str, RecordedRun]:
        """Experiments whose answers are not those of single passes without any fault, which then explain nothing."""
        return {name: one for name, one in failed.items() if not self._gives(_NONE, one)}

    def _can_show(self, fault: ImposedFault) -> bool:
        if fault.moved is not None:
            return self.it.shift is not None or self.it.join is not None
        return bool(self.it.slip) or fault.sees is not None or fault.removed is not None

    def _gives(self, fault: ImposedFault, one: RecordedRun) -> bool:
        """Whether a fault gives all answers of an experiment, and makes wrong what is wrong."""
        with suppress(Refused, Unasked, Excluded):
            said = self._answers(fault, one)
            # What would be right too explains nothing.
            right = [shares(each.got, answer.wanted, _room(answer)).max(initial=0) <= 1 for each, answer in said]
            wrong = [answer.wrong.any() for _, answer in said]
            return not any(map(bool, np.logical_and(right, wrong)))
        return False

    def _contradicted(self, fault: ImposedFault) -> bool:
        """Whether a fault would show in an experiment in which nothing is wrong."""
        if self.telling is None:
            # Those that single passes without a fault give as well, and in which it matters which numbers they are.
            asked = [one for one in self.passed if all(np.all(answer.allowed) for answer in one.answers)]
            self.telling = [one for one in asked if self._gives(_NONE, one)]
        for one in self.telling:
            with suppress(Refused, Unasked):
                try:
                    self._answers(fault, one)
                except Excluded:
                    return True
        return False

    def _answers(self, fault: ImposedFault, one: RecordedRun) -> list[tuple[Answer, Answer]]:
        """The answers of an experiment under a fault, each with that of the model.

        Raises:
            Excluded: They are not those of the model.
            Refused, Unasked: It cannot be asked with this fault, or asks something else.
        """
        under = self._under(fault)
        assert isinstance(under.model, FaultyModel)
        under.model.heard = list(one.heard)
        under.model.room = max((float(_room(answer).max()) for answer in one.answers), default=0.0)
        answers = one.experiment.run(under)
        if len(answers) != len(one.answers):
            raise Unasked("it asks of a model with a fault what it does not ask of this one")
        said = list(zip(answers, one.answers, strict=True))
        if not all((shares(answer.got, each.got, _room(answer)) <= 1).all() for each, answer in said):
            raise Excluded
        return said


def _room(answer: Answer) -> np.ndarray:
    return ROOM * np.asarray(answer.allowed)


def _tried_positions(size: int, places: list[tuple[int, int]]) -> Any:
    """Positions of each later call that its answer shows: those of its tokens are consecutive."""

    def keys(call: ExpectedCall) -> np.ndarray:
        if not call.past or call.answered(call.right):
            found = call.right
        else:
            starts = range(-call.past, 2 * size + 4)
            tried = (np.maximum(call.right - call.right[:, :1] + start, 0) for start in starts)
            found = next((at for at in tried if call.answered(at)), None)
            if found is None:
                raise Excluded
        if call.past:
            places.extend(zip(found[0].tolist(), call.right[0].tolist(), strict=True))
        return found

    return keys
