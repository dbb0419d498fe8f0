"""Findings on values that a loaded module holds and that differ from what its own config declares."""

from collections.abc import Mapping

from clockhands.auditing.findings._kind import Kind, spoken
from clockhands.recognition.diagnosis import hint_of
from clockhands.recognition.faults import FAULTS


class Loaded(Kind):
    """A wrong value or behaviour of a part of a loaded model.

    If there is a fault (`clockhands check`) of the same code, the finding gives the same advice.
    """

    hint = (
        "Load the model again, and check which code changed the model after it was built. The values of the buffer are"
        " computed, not loaded: code that moves or empties a module must compute the values again."
    )
    blames = "module"
    unmended = "The config is correct; the values in the loaded module are wrong."
    pair: int
    tensors: int = 1
    what: str = "rates"
    wave: str = "cosine"
    declared: float | None = None
    stored: float | None = None
    head: int | None = None
    position: int | None = None
    rounded_to: str | None = None
    it_is: str | None = None

    def __init_subclass__(cls, code: str = "") -> None:
        super().__init_subclass__(code)
        if code in FAULTS:
            cls.hint = FAULTS[code].hint

    def _part(self) -> str:
        return (self.place or "the module").removeprefix("model:")

    def _parts(self) -> str:
        more = self.tensors - 1
        return self._part() + (f" and {spoken(more)} similar tensor{'s' if more > 1 else ''}" if more > 0 else "")

    def _head(self) -> str:
        what = {"rates": "RoPE frequencies", "numbers of positions": "position ids"}.get(self.what, self.what)
        return f"The {what} in {self._parts()}"

    def _at(self) -> str:
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

    def _rounded_too(self) -> str:
        return f" The values are also rounded to {self.rounded_to}." if self.rounded_to else ""

    def _it_is(self) -> str:
        return f" The buffer holds {self.it_is}." if self.it_is else ""


class BufferUninitialised(Loaded, code="buffer-uninitialised"):
    title = "The RoPE frequency buffer is uninitialised"
    severity = "error"
    wrong: int
    pairs: int
    of: str = "pairs"

    def message(self) -> str:
        wrong, pairs = spoken(self.wrong), spoken(self.pairs)
        unit = self.of
        partly = ", at least in part" if self.wrong < self.pairs else ""
        where = f" ({self._at()})" if self._at() else ""
        return (
            f"{self._head()} are uninitialised{partly}: {wrong} of {pairs} {unit} hold values that no formula gives,"
            f" such as earlier memory contents{where}."
        )


class BufferZero(Loaded, code="buffer-zero"):
    title = "The RoPE frequency buffer is all zeros"
    severity = "error"

    def message(self) -> str:
        turns = "" if self.what == "slopes" else "nothing rotates, and "
        return f"{self._head()} are all zero: {turns}the model cannot distinguish positions."


class BufferUnscaled(Loaded, code="buffer-unscaled"):
    title = "The RoPE frequency buffer lacks the declared scaling"
    severity = "error"
    base: float | None = None
    declared_factor: float | None = None

    def message(self) -> str:
        base = f" of base {spoken(self.base)}" if self.base else ""
        declared = self.declared_factor
        factors = f" The config declares a scaling factor of {spoken(declared)}." if declared else ""
        return (
            f"{self._head()} are those{base} without the declared scaling ({self._at()})."
            f"{factors}{self._it_is()}{self._rounded_too()}"
        )


class BufferScaledTwice(Loaded, code="buffer-scaled-twice"):
    title = "The RoPE frequency buffer is scaled twice"
    severity = "error"
    effective_factor: float
    declared_factor: float | None = None

    def message(self) -> str:
        factors = ""
        if self.declared_factor:
            effect, declared = spoken(self.effective_factor), spoken(self.declared_factor)
            factors = f" The slowest pair has a scaling factor of {effect}, but the config declares {declared}."
        return f"{self._head()} are scaled twice ({self._at()}).{factors}{self._rounded_too()}"


class BufferReread(Loaded, code="buffer-reread"):
    title = "The bytes of the RoPE frequency buffer were read as another dtype"
    severity = "error"
    bytes_of: str
    read_as: str

    def message(self) -> str:
        return (
            f"The bytes of {self._head()[:1].lower()}{self._head()[1:]} were read as {self.read_as}. If the bytes"
            f" are read as {self.bytes_of}, the frequencies are those of the config."
        )


class BufferOfAnotherFactor(Loaded, code="buffer-of-another-factor"):
    title = "The RoPE frequency buffer has another scaling factor than the config"
    severity = "error"
    effective_factor: float
    declared_factor: float

    def message(self) -> str:
        effect, declared = spoken(self.effective_factor), spoken(self.declared_factor)
        return (
            f"{self._head()} are scaled by a factor of {effect}, but the config declares a factor of {declared}"
            f" ({self._at()})."
            f"{self._rounded_too()}"
        )


class BufferOfAnotherBase(Loaded, code="buffer-of-another-base"):
    title = "The RoPE frequency buffer has another base than the config"
    severity = "error"
    base_in_effect: float
    declared_base: float
    scaling_dropped: bool | None = None
    scaled_twice: bool | None = None
    effective_factor: float | None = None

    def message(self) -> str:
        too = " Also, the declared scaling is missing." if self.scaling_dropped else ""
        if self.scaled_twice:
            too = " Also, the frequencies are scaled twice."
        elif self.effective_factor:
            too = f" The frequencies are scaled by a factor of {spoken(self.effective_factor)}."
        return (
            f"{self._head()} are those of base {spoken(self.base_in_effect)}, but the config declares base"
            f" {spoken(self.declared_base)} ({self._at()}).{too}{self._it_is()}{self._rounded_too()}"
        )


class BufferOfAnotherScaling(Loaded, code="buffer-of-another-scaling"):
    title = "The RoPE frequency buffer has another scaling type than the config"
    severity = "error"
    scaling_in_effect: str
    declared_scaling: str
    effective_factor: float | None = None

    def message(self) -> str:
        factor = f" with factor {spoken(self.effective_factor)}" if self.effective_factor else ""
        declared = "no scaling" if self.declared_scaling == "none" else f"{self.declared_scaling} scaling"
        return (
            f"{self._head()} have {self.scaling_in_effect} scaling{factor}, but the config declares {declared}"
            f" ({self._at()}).{self._rounded_too()}"
        )


class BufferOfAnotherWidth(Loaded, code="buffer-of-another-width"):
    title = "The RoPE frequency buffer has another number of pairs than the config"
    severity = "error"
    pairs: int
    declared_pairs: int

    def message(self) -> str:
        held, declared = spoken(self.pairs), spoken(self.declared_pairs)
        return f"{self._head()} are for {held} pairs, but the config declares {declared} pairs.{self._it_is()}"


class SharedObjectMutated(Loaded, code="shared-object-mutated"):
    title = "A shared RoPE frequency buffer shrinks from layer to layer"
    severity = "error"
    pairs_by_layer: Mapping[str, int]
    declared_pairs: int

    def message(self) -> str:
        sizes = self.pairs_by_layer
        told = ", ".join(f"{spoken(size)} in layer {layer}" for layer, size in list(sizes.items())[:4])
        return (
            f"The number of RoPE frequencies in {self._parts()} falls from layer to layer: {told}."
            f" The config declares {spoken(self.declared_pairs)} for every layer. All layers share one settings"
            " object, and"
            " each layer changed this object."
        )


class BufferDiffers(Loaded, code="buffer-differs"):
    title = "The RoPE frequency buffer differs from the declared frequencies"
    severity = "error"

    def message(self) -> str:
        return f"{self._head()} differ from the config: {self._at()}.{self._it_is()}"


class BufferOnMeta(Loaded, code="buffer-on-meta"):
    title = "The RoPE frequency buffer has no data (meta device)"
    severity = "error"

    def message(self) -> str:
        return (
            f"{self._head()} have a shape but no data (meta device), although the rest of the model is loaded."
            " If other code fills this memory, the values are not those of the config."
        )


class SlopesDiffer(Loaded, code="slopes-differ"):
    title = "The ALiBi slopes do not match the number of heads"
    severity = "error"
    hint = hint_of("slopes-differ")

    def message(self) -> str:
        it_is = f" The slopes are {self.it_is}." if self.it_is else ""
        return f"{self._head()} do not match the number of heads: {self._at()}.{it_is}"


class AttentionFactorDiffers(Loaded, code="attention-factor-differs"):
    title = "The attention factor of the loaded model differs from its config"
    severity = "error"
    hint = hint_of("attention-factor-differs")

    def message(self) -> str:
        name, kept = next((name.removeprefix("model:"), value) for name, value in self.stated)
        return (
            f"The module multiplies cosine and sine by {spoken(kept)} ({name}), but the attention factor of the config"
            f" is {spoken(self.declared)}."
        )


class IdsOfFloats(Loaded, code="ids-of-floats"):
    title = "Position ids of the loaded model are floats or wrong"
    severity = "error"
    dtype: str
    count: int
    first_wrong: int
    wrong: int | None = None

    def message(self) -> str:
        kind = f" as {self.dtype}" if "float" in self.dtype else ""
        if self.wrong is None:
            return (
                f"The position ids in {self._parts()} are stored{kind} instead of integers. The ids are still whole"
                " numbers, but the next cast of the model rounds the ids."
            )
        are = "is" if self.wrong == 1 else "are"
        return (
            f"The {spoken(self.count)} position ids in {self._parts()} are stored{kind}, and"
            f" {spoken(self.wrong)} of them {are} wrong: the id of position {spoken(self.first_wrong)} is"
            f" {spoken(self.stored)}."
        )


class TableUninitialised(Loaded, code="table-uninitialised"):
    title = "The position table is uninitialised"
    severity = "error"
    least: float
    most: float

    def message(self) -> str:
        return (
            f"The position table in {self._parts()} is uninitialised: the magnitudes of its numbers go from"
            f" {spoken(self.least)} to {spoken(self.most)}, which is impossible in a trained or random table."
        )


class RotationDiffers(Loaded, code="rotation-differs"):
    title = "The loaded model rotates differently from its config"
    severity = "error"
    hint = "Check how the module computes its phases: dtype, positions and RoPE frequencies."
    parts: int = 1
    module: str | None = None
    behaves_as: str | None = None

    def message(self) -> str:
        more = self.parts - 1
        name = str(self.module or "the module") + (
            f" (and {spoken(more)} similar module{'s' if more > 1 else ''})" if more > 0 else ""
        )
        behaves = f" The module behaves like {self.behaves_as}." if self.behaves_as else ""
        return f"The rotation in {name} differs from the config: {self._at()}.{behaves}"


class RunDiffers(Loaded, code="run-differs"):
    title = "The running model differs from what its config declares"
    severity = "error"
    says: str
    fault: str | None = None
    remedy: str | None = None

    def hint(self) -> str:
        if self.remedy is not None:
            return self.remedy
        if self.fault is not None and self.fault in FAULTS:
            return FAULTS[self.fault].hint
        return (
            "Look at the first layer that differs, and at where its positions come from: the arguments of the call, the"
            " cache, or a count that the layer keeps."
        )

    def message(self) -> str:
        return self.says


class ScalingInert(Loaded, code="scaling-inert"):
    title = "The loaded model lacks the declared scaling"
    severity = "warning"
    scaling: str
    declared_factor: float | None = None
    built_as: str | None = None

    def message(self) -> str:
        factor = self.declared_factor
        declared = f" with factor {spoken(factor)}" if factor else ""
        module = self._part().rpartition(".")[0] or "the module"
        built = f" (its type is {spoken(self.built_as)})" if self.built_as else ""
        return (
            f"The config declares {self.scaling} scaling{declared}, but {module} was built without scaling"
            f"{built}. Changing the config after the model is built does not change the model."
        )


class BufferRounded(Loaded, code="buffer-rounded"):
    title = "The RoPE frequency buffer is rounded to few bits"
    severity = "warning"
    context: int
    phase_error: float | None = None
    of: str | None = None

    def message(self) -> str:
        off = ""
        if self.phase_error:
            end = spoken(self.context)
            off = f"; phases are off by up to {self.phase_error:.2g} rad at the end of the context ({end} positions)"
        of = f" of their {self.of}" if self.of else ""
        return f"{self._head()} are the values of the config, rounded to {self.rounded_to}{of}: {self._at()}{off}."


class BufferOfAnotherDtype(Loaded, code="buffer-of-another-dtype"):
    title = "A computed position buffer has another dtype than the model"
    dtype: str
    right: str
    error: float
    exact: bool | None = None

    def severity(self) -> str:
        return "note" if self.exact else "warning"

    def message(self) -> str:
        held, right = self.dtype, self.right
        if self.exact:
            return (
                f"{self._head()} are in {held}, but {right} is usual. The dtype has no effect here, because {held}"
                " represents"
                " these values exactly."
            )
        return (
            f"{self._head()} are in {held}, but the model computes in {right}. The values were computed for a call"
            f" in another dtype and kept for later calls, so the values are off by up to {self.error:.2g}."
        )


class TableZero(Loaded, code="table-zero"):
    title = "A trainable position table is all zeros"
    news = True
    severity = "note"
    blames = None
    unmended = ""
    rows: int

    def message(self) -> str:
        rows = spoken(self.rows)
        return (
            f"All {rows} rows of {self._parts()} are zero and trainable. Image models often start training with"
            " a table of zeros."
        )


class BufferPersistent(Loaded, code="buffer-persistent"):
    title = "A computed position buffer is saved with the weights"
    severity = "note"
    blames = None
    unmended = ""

    def message(self) -> str:
        return (
            f"{self._head()} are saved with the weights, although they can be computed. Loading a checkpoint may"
            " overwrite the buffer with wrong values."
        )
