"""Findings on values that a loaded module holds and that differ from what its own config declares."""

from clockhands.auditing.findings._rules import Case
from clockhands.phrases import spoken
from clockhands.recognition.faults import FAULTS

_SET_INTEGERS = (
    "Set the position ids to 0, 1, 2, ... again. They are integers, so no cast made them wrong: look for what wrote "
    "them, or loaded them from a file."
)


class Loaded(Case, family="loaded"):
    """A wrong value or behaviour of a part of a loaded model."""

    tensors = 1
    what = "rates"
    wave = "cosine"

    def _part(self) -> str:
        return (self.place or "the module").removeprefix("model:")

    def places(self) -> str:
        more = self.tensors - 1
        return self._part() + (f" and {spoken(more)} similar tensor{'s' if more > 1 else ''}" if more > 0 else "")

    def name(self) -> str:
        """What the values are."""
        return {"rates": "RoPE frequencies", "numbers of positions": "position ids"}.get(self.what, self.what)

    def subject(self) -> str:
        """What is wrong, at the beginning of a sentence."""
        return f"The {self.name()} in {self.places()}"

    def at(self) -> str:
        """Where the values differ most."""
        if self.declared is None or self.stored is None:
            return ""
        stored, declared = spoken(self.stored), spoken(self.declared)
        if self.head is not None:
            return f"the slope of head {spoken(self.head)} is {stored}, expected {declared}"
        if self.position is not None:
            wave = self.wave
            pair, position = spoken(self.pair), spoken(self.position)
            return f"the {wave} of pair {pair} at position {position} is {stored}, but the config gives {declared}"
        return f"pair {spoken(self.pair)} has {stored} rad per token, but the config gives {declared}"


class BufferUninitialised(Loaded, code="buffer-uninitialised"):
    of = "pairs"


class SharedObjectMutated(Loaded, code="shared-object-mutated"):
    def sizes(self) -> str:
        """The number of pairs of the first layers, as text."""
        return ", ".join(f"{spoken(size)} in layer {layer}" for layer, size in [*self.pairs_by_layer.items()][:4])


class IdsOfFloats(Loaded, code=("ids-of-floats", "float-position-ids")):
    def as_floats(self) -> bool:
        """Whether they are no integers."""
        return "float" in self.dtype

    def hint(self) -> str:
        return super().hint() if self.dtype is None or self.as_floats() else _SET_INTEGERS


class RotationDiffers(Loaded, code="rotation-differs"):
    module = "the module"

    def more(self) -> int:
        """How many further modules rotate so."""
        return (self.parts or 1) - 1


class RunDiffers(Loaded, code="run-differs"):
    def hint(self) -> str:
        fault = None if self.remedy else FAULTS.get(self.fault or "")
        return super().hint() if fault is None else fault.hint


class ScalingInert(Loaded, code="scaling-inert"):
    def module(self) -> str:
        """The module that was built."""
        return self._part().rpartition(".")[0] or "the module"
