"""Findings on values that a loaded module holds and that differ from what its own config declares."""

from clockhands.auditing.findings._rules import Case, spoken
from clockhands.recognition.faults import FAULTS


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

    def rounded_too(self) -> str:
        return f" The values are also rounded to {self.rounded_to}." if self.rounded_to else ""

    def buffer_is(self) -> str:
        return f" The buffer holds {self.it_is}." if self.it_is else ""


class BufferUninitialised(Loaded, code="buffer-uninitialised"):
    of = "pairs"


class BufferZero(Loaded, code="buffer-zero"):
    def turns(self) -> bool:
        """Whether its values turn something."""
        return self.what != "slopes"


class SharedObjectMutated(Loaded, code="shared-object-mutated"):
    def sizes(self) -> str:
        """The number of pairs of the first layers, as text."""
        return ", ".join(f"{spoken(size)} in layer {layer}" for layer, size in [*self.pairs_by_layer.items()][:4])


class IdsOfFloats(Loaded, code="ids-of-floats"):
    def as_floats(self) -> bool:
        """Whether they are no integers."""
        return "float" in self.dtype


class RotationDiffers(Loaded, code="rotation-differs"):
    parts = 1

    def where(self) -> str:
        """The modules."""
        more = self.parts - 1
        return str(self.module or "the module") + (
            f" (and {spoken(more)} similar module{'s' if more > 1 else ''})" if more > 0 else ""
        )


class RunDiffers(Loaded, code="run-differs"):
    def hint(self) -> str:
        if self.remedy is not None:
            return self.remedy
        if self.fault is not None and self.fault in FAULTS:
            return FAULTS[self.fault].hint
        return (
            "Look at the first layer that differs, and at where its positions come from: the arguments of the call, the"
            " cache, or a count that the layer keeps."
        )


class ScalingInert(Loaded, code="scaling-inert"):
    def module(self) -> str:
        """The module that was built."""
        return self._part().rpartition(".")[0] or "the module"
