"""Compares what a file declares with what the class of the installed Transformers computes from it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import groupby
from typing import Any, NamedTuple

from clockhands.auditing.findings import Case, case_of
from clockhands.configs.model_types import model_type, table
from clockhands.configs.opened import Opened
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import SECOND, TEXT, LayerEncoding, Resolved, layer_numbers, layer_ranges
from clockhands.configs.section_fields import model_in
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scores import score_scale
from clockhands.errors import InvalidValue, Unreadable
from clockhands.models.class_readings import LAYER_KINDS, SCORED, ClassLadder, ClassPart, ClassReading, class_reading
from clockhands.phrases import listed
from clockhands.runtimes import FileReadings

CLOSE = 4e-6
"""Two frequencies are the same up to this share: classes compute them in float32."""

_WITHOUT_CLASS = ("gguf", "dialect", "preset", "array")
_LIBRARY = "transformers-5"
_FREQUENCIES, _LAYOUT, _WINDOWS, _TABLES, _RELATIVE = "frequencies", "layout", "windows", "tables", "relative terms"
_DIRECTION = "direction of rotation"
_AXES, _SCORES, _UNROTATED = "axes of images", "scales of scores", "layers without rotation"
_NARROW = 2e-5  # a logarithm of a position in float32


@dataclass(frozen=True)
class ClassDifference:
    """Something that a class computes otherwise than the file declares.

    Attributes:
        what: ``frequencies``, ``layout``, ``direction of rotation``, ``windows``, ``tables``, ``relative terms``,
            ``axes of images``, ``scales of scores`` or ``layers without rotation``.
        part: The class of the part.
        declared: What is declared, in words.
        computed: What the class has, in words.
        layers: The layers that it concerns; None for the whole part.
    """

    what: str
    part: str
    declared: str
    computed: str
    layers: str | None = None


@dataclass(frozen=True)
class ClassComparison:
    """What a class computes from a file, compared with what the file declares.

    Attributes:
        reading: What the class does; None if it could not be read.
        same: What is the same in both.
        differences: What is not.
        unread: What was not read from the class, in clauses.
        more: What the class has besides what is declared, in clauses.
        as_runtime: Whether the class computes what the audit says of this library, which differs from the file.
        used: Whether the layers of the audit are those of the class, since the type is in no table.
        refused: Why the class could not be read, in a sentence.
    """

    reading: ClassReading | None
    same: tuple[str, ...] = ()
    differences: tuple[ClassDifference, ...] = ()
    unread: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    as_runtime: bool = False
    used: bool = False
    refused: str | None = None

    def cases(self) -> Iterator[Case]:
        """A case of a finding for each difference."""
        for each in self.differences:
            assert self.reading is not None
            evidence = {
                "class": f"{each.part} in {self.reading.library}",
                "what": each.what,
                "declared": each.declared,
                "computed": each.computed,
            }
            yield case_of("class-differs", evidence, each.layers)

    @property
    def says(self) -> str:
        """The comparison in a line."""
        if self.reading is None:
            return f"not read: {self.refused}"
        left = f"; besides {listed(self.more)}" if self.more and not self.used else ""
        left += f"; not compared: {listed(self.unread)}" if self.unread else ""
        if self.used:
            told = "the layers are read from it"
        elif self.as_runtime:
            told = "computes what is said of this library, which differs from the file"
        elif self.differences:
            told = f"other {listed(dict.fromkeys(each.what for each in self.differences))}"
        else:
            told = f"the same {listed(self.same)}" if self.same else "nothing to compare"
        cut = [f"{count} of {whole:,} layers{f' of {part}' if part else ''}" for part, (count, whole) in self.cut]
        first = f" (built with {listed(cut)})" if cut else ""
        return f"{self.reading.name} of {self.reading.library}{first}: {told}{left}"

    @property
    def cut(self) -> list[tuple[str, tuple[int, int]]]:
        """The parts that were built with fewer layers: how many, and how many they have."""
        return [] if self.reading is None else list(self.reading.built.items())

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        reading = self.reading
        return {
            "library": None if reading is None else reading.library,
            "name": None if reading is None else reading.name,
            "says": self.says,
            "same": list(self.same),
            "differences": [vars(each) for each in self.differences],
            "unread": list(self.unread),
            "more": list(self.more),
            "used": self.used,
            "built": {path: list(counts) for path, counts in self.cut},
        }


def compared_with_class(opened: Opened, resolved: Resolved) -> ClassComparison:
    """What the class of a file computes, compared with what the file declares.

    Args:
        opened: The file.
        resolved: What it declares.

    Raises:
        InvalidValue: Transformers or PyTorch is not installed.
    """
    missing = [name for name in ("transformers", "torch") if find_spec(name) is None]
    if missing:
        raise InvalidValue(
            f"Reading the class of a model needs {listed(missing)}, not installed here.",
            "Install them with `pip install 'clockhands[probe]'`, or leave out --with.",
        )
    model = model_in(opened.config or {})[1]
    name = model.get("model_type")
    if opened.form in _WITHOUT_CLASS or not isinstance(name, str):
        return ClassComparison(None, refused="the target names no model type of Transformers.")
    try:
        reading = class_reading(model)
    except Unreadable as error:
        return ClassComparison(None, refused=error.message)
    return compared_reading(reading, opened, resolved if resolved.asked is None else resolve(opened, None))


def compared_reading(reading: ClassReading, opened: Opened, resolved: Resolved) -> ClassComparison:
    """A class, compared with what a file declares, or with what the audit says that this library makes of the file."""
    if model_type(model_in(opened.config or {})[1].get("model_type", "")) is None:
        unread = tuple(each for part in reading.parts for each in part.unread)
        held = any(part.ladders or part.tables or part.relative for part in reading.parts)
        return ClassComparison(reading, unread=unread, used=held)
    found = comparison(reading, resolved)
    if not found.differences:
        return found
    programs = FileReadings(opened, resolved, resolved.length).shown()
    theirs = next((each.codes for each in programs if each.reader == _LIBRARY), ())
    # What is said of the library may be of the text alone.
    other_parts = [code for code in resolved.codes if code.part not in {each.part for each in theirs}]
    others = {each.what for each in comparison(reading, replace(resolved, codes=(*theirs, *other_parts))).differences}
    left = tuple(each for each in found.differences if not theirs or each.what in others)
    return replace(found, differences=left, as_runtime=len(left) < len(found.differences))


def comparison(reading: ClassReading, resolved: Resolved) -> ClassComparison:
    """A class and what was resolved, compared part by part."""
    found = _Compared(resolved.codes, reading.parts)
    for part in reading.parts:
        found.part(part)
    found.whole()
    same = [what for what in found.seen if what not in {each.what for each in found.differences}]
    return ClassComparison(reading, tuple(same), tuple(found.differences), tuple(found.unread), tuple(found.more))


class _Table(NamedTuple):
    path: str
    rows: int
    width: int

    def __str__(self) -> str:
        return f"{self.path}: {self.rows:,} rows of {self.width}"


@dataclass
class _Compared:
    codes: Sequence[LayerEncoding]
    parts: Sequence[ClassPart]
    seen: dict[str, None] = field(default_factory=dict)
    differences: list[ClassDifference] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    more: list[str] = field(default_factory=list)

    def part(self, part: ClassPart) -> None:
        """What one part of a class computes, against the codes that may be its own."""
        self.unread += part.unread
        codes = _codes_of(part, self.codes)
        for ladder in part.ladders:
            self._ladder(part, ladder, codes)
        text = [code for code in codes if code.part in TEXT and code.either is None]
        if len(text) > 1:  # a single code is for all layers, also where their number is not known
            text = [code for code in text if code.layers]
        if len({code.part for code in text}) == 1:
            self._windows(part, text)
            self._attention(part, text)
        elif text and part.attention:
            self.unread.append(f"the {_SCORES} of {part.name}, which has several parts")
        self._areas(part, [code for code in codes if code.part == "vision" and code.layers not in (None, "input")])
        relative = [code for code in codes if code.kind in ("relative", "buckets", "alibi")]
        if part.relative and relative:
            self.seen[_RELATIVE] = None
            self._buckets(part, relative)
        elif part.relative:
            self.more.append(f"{listed(part.relative)} in {part.name}")

    def whole(self) -> None:
        """What is declared and no part of the class has, where the class has something of the kind."""
        self._tables()
        ladders = [ladder for part in self.parts for ladder in part.ladders]
        rotary = [code for code in self.codes if code.kind == "rotary" and code.rates and code.part not in SECOND]
        have = {code.part for code in rotary if any(_same(code, ladder) for ladder in ladders)}
        for part in dict.fromkeys(code.part for code in rotary):
            if part not in have and not any(each.what == _FREQUENCIES for each in self.differences):
                self.unread.append(f"the frequencies of the {part} part")
        if any(_FREQUENCIES in each for each in self.unread):
            return
        for code in rotary:
            if code.part not in have or any(_same(code, ladder) for ladder in ladders):
                continue
            if code.part not in TEXT and code.scaling:  # a class may scale the coordinates in place of the frequencies
                self.unread.append(f"the scaling of the coordinates in the {code.part} part")
            else:
                only = f"only {listed(map(_of_ladder, ladders[:3]))}"
                self.differences.append(ClassDifference(_FREQUENCIES, code.part, _of_code(code), only, code.layers))

    def _tables(self) -> None:
        """The tables of all parts: one of them may be where another part has it."""
        tables = [(part, _Table(*table)) for part in self.parts for table in part.tables]
        declared = [code for code in self.codes if code.rows and code.width]
        known = {(code.rows, code.width) for code in declared}
        further = [(part, each) for part, each in tables if (each.rows, each.width) not in known]
        for code in declared:
            if (code.rows, code.width) in {(each.rows, each.width) for _, each in tables}:
                self.seen[_TABLES] = None
                continue
            own = [(part, table) for part, table in further if code in _codes_of(part, self.codes)]
            if not own:
                self.unread.append(f"the table of {code.rows:,} rows")
            for part, other in own:
                self._differ(_TABLES, part, f"{code.rows:,} rows of {code.width}", str(other))
        if not self.differences or self.differences[-1].what != _TABLES:
            self.more += [f"a table in {part.name}, {each}" for part, each in further]

    def _ladder(self, part: ClassPart, ladder: ClassLadder, codes: Sequence[LayerEncoding]) -> None:
        # The audit may call a part otherwise than the object that describes it.
        named = any(code.part == section_of(part) for code in codes)
        own = [code for code in (codes if named else self.codes) if _same(code, ladder)]
        own = [code for code in own if code.part not in SECOND] or own
        if not own:
            rotary = [code for code in codes if code.rates]
            if not self._is_apart(part) and (rotary or _without_rotation(part, codes)):
                self._differ(_FREQUENCIES, part, listed(map(_of_code, rotary)) or "no rotation", _of_ladder(ladder))
            else:
                self.more.append(f"rotation in {part.name}, {_of_ladder(ladder)}")
            return
        self.seen[_FREQUENCIES] = None
        layouts = {code.layout for code in own} - {None}
        if ladder.layout is not None and layouts:
            self.seen[_LAYOUT] = None
            if layouts != {ladder.layout}:
                self._differ(_LAYOUT, part, listed(sorted(map(str, layouts))), ladder.layout, own[0].layers)
        ways = {code.spec.direction for code in own if isinstance(code.spec, Rotary)}
        if ladder.direction is not None and ways - {ladder.direction}:
            self._differ(_DIRECTION, part, listed(sorted(ways)), ladder.direction, own[0].layers)
        for axes in {axes for code in own if (axes := _axes_of(code)) is not None}:
            if ladder.axes is not None:
                self.seen[_AXES] = None
                if not _same_axes(axes, ladder.axes):
                    self._differ(_AXES, part, _of_axes(axes), _of_axes(ladder.axes), own[0].layers)

    def _is_apart(self, part: ClassPart) -> bool:
        """Whether the audit does not know what a part is: an object of no known name, or what is around the parts."""
        if not part.path:
            return any(other.ladders for other in self.parts if other.path)
        return section_of(part) is None

    def _windows(self, part: ClassPart, text: Sequence[LayerEncoding]) -> None:
        """The window of each layer of a text, and the layers without attention."""
        still = {layer for layer, kind in enumerate(part.layer_types or ()) if LAYER_KINDS.get(kind) == "none"}
        rotated = {layer for code in text if code.kind == "rotary" for layer in layer_numbers(code.layers or "")}
        if wrong := still & rotated:
            layers = layer_ranges(sorted(wrong))
            self._differ(_UNROTATED, part, "rotated", "no attention", layers)
        if part.windows is None:
            return
        self.seen[_WINDOWS] = None
        for code in text:
            numbers = [each for each in sorted(layer_numbers(code.layers or "")) if each < len(part.windows)]
            other = [each for each in numbers if not _same_window(code, part.windows[each])]
            for window, layers in groupby(other, key=lambda each: (part.windows or ())[each]):
                declared = "no window" if code.window is None else f"a window of {code.window:,}"
                computed = "no window" if window is None else f"a window of {window:,}"
                self._differ(_WINDOWS, part, declared, computed, layer_ranges(list(layers)))

    def _attention(self, part: ClassPart, text: Sequence[LayerEncoding]) -> None:
        """Whether each layer of a text rotates, and what its scores are multiplied by."""
        read: set[str] = set()
        wanted = (_SCORES, *([_UNROTATED] if any(code.kind == "rotary" for code in text) else []))
        # A table at the input is for all layers.
        for code in [code for code in text if code.layers != "input"] or text:
            numbers = sorted(layer_numbers(code.layers or "")) or range(len(part.attention))
            own = [(layer, part.attention[layer]) for layer in numbers if layer < len(part.attention)]
            read |= {_UNROTATED for _, each in own if each.rotates is not None and _UNROTATED in wanted}
            # Where no layer is declared to rotate, the frequencies differ.
            for kind, rotates in (("rotary", False), ("none", True)) if _UNROTATED in wanted else ():
                wrong = [layer for layer, each in own if code.kind == kind and each.rotates is rotates]
                if wrong:
                    says = {True: "rotated", False: "not rotated"}
                    self._differ(_UNROTATED, part, says[not rotates], says[rotates], layer_ranges(wrong))
            for factors, layers in groupby(own, key=lambda each: each[1].factors):
                if factors is not None:
                    read.add(_SCORES)
                    self._scores(part, code, factors, layer_ranges([layer for layer, _ in layers]))
        self.seen |= dict.fromkeys(sorted(read))
        if part.attention:
            self.unread += [f"the {what} of {part.name}" for what in wanted if what not in read]

    def _scores(self, part: ClassPart, code: LayerEncoding, factors: Sequence[float], layers: str) -> None:
        declared = [1.0] if code.score_scale is None else score_scale(code.score_scale, SCORED).tolist()
        known = factors if len(factors) > 1 else [*factors] * len(declared)
        declared = declared if len(declared) == len(known) else declared * len(known)
        if all(abs(mine - other) <= _NARROW * abs(other) for mine, other in zip(declared, known, strict=True)):
            return
        computed = f"{known[0]:.6g}"
        if len(factors) > 1:
            computed += f" at position 0 and {known[-1]:.6g} at position {SCORED[-1]:,}"
        if code.score_scale is None and len(factors) == 1:
            told = f"scores multiplied by {computed} besides 1 / sqrt(width of a head) in {part.name}"
            self.more += [told] if told not in self.more else []
        else:
            ours = "1" if code.score_scale is None else code.score_scale.formula
            self._differ(_SCORES, part, f"multiplied by {ours}", f"multiplied by {computed}", layers)

    def _areas(self, part: ClassPart, codes: Sequence[LayerEncoding]) -> None:
        """The window of an image that each layer sees."""
        numbers = [(code, layer) for code in codes for layer in sorted(layer_numbers(code.layers or ""))]
        if part.areas is None or not numbers:
            return
        if len(numbers) != len(part.areas):
            self.unread.append(f"the windows of the image in {part.name}")
            return
        self.seen[_WINDOWS] = None
        for code, layer in numbers:
            if code.window_area != part.areas[layer]:
                self._differ(_WINDOWS, part, _of_area(code.window_area), _of_area(part.areas[layer]), str(layer))

    def _buckets(self, part: ClassPart, codes: Sequence[LayerEncoding]) -> None:
        """The buckets of relative distances."""
        held = [code.relative for code in codes if code.relative is not None]
        declared = {(each.get("buckets"), each.get("max_distance")) for each in held if each.get("buckets")}
        if not declared or not part.buckets:
            self.unread.append(f"the distances of the relative terms in {part.name}")
        elif not declared <= set(part.buckets):
            ours, theirs = (
                listed([f"{number} up to distance {last}" for number, last in each])
                for each in (sorted(declared), part.buckets)
            )
            self._differ(_RELATIVE, part, f"buckets: {ours}", f"buckets: {theirs}", codes[0].layers)

    def _differ(self, what: str, part: ClassPart, declared: str, computed: str, layers: str | None = None) -> None:
        self.differences.append(ClassDifference(what, part.name, declared, computed, layers))


def section_of(part: ClassPart) -> str | None:
    """The part of a model that the object of a part in the config is; None for the config and for other objects."""
    return table()["sections"].get(part.path.rpartition(".")[2])


def _codes_of(part: ClassPart, codes: Sequence[LayerEncoding]) -> Sequence[LayerEncoding]:
    """The codes that the object of a part in the config may declare; all, if it is the config or an unknown object."""
    name = section_of(part)
    own = [code for code in codes if code.part == name]
    text = [code for code in codes if code.part in TEXT]
    return codes if name is None else own or (text if name in TEXT else own)


def _without_rotation(part: ClassPart, codes: Sequence[LayerEncoding]) -> bool:
    """Whether layers of exactly this part are declared, each of a kind that does not rotate."""
    own = [code for code in codes if code.part in TEXT and section_of(part) in (None, code.part)]
    kinds = {code.kind for code in own}
    return bool(kinds) and kinds.isdisjoint({None, "rotary"})


def _same(code: LayerEncoding, ladder: ClassLadder) -> bool:
    """Whether a code has the frequencies of a module: pair for pair in a text, in any order and number in an image."""
    ours, theirs = code.rates or (), ladder.rates
    if code.part not in TEXT:
        ours, theirs = sorted(set(ours)), sorted(set(theirs))
    elif abs((code.attention_factor or 1.0) - ladder.factor) > CLOSE * abs(ladder.factor):
        return False
    elif theirs != tuple(sorted(theirs, reverse=True)):  # the module puts them in place when it is called
        ours, theirs = sorted(ours), sorted(theirs)
    return len(ours) == len(theirs) and all(
        abs(mine - other) <= CLOSE * abs(other) for mine, other in zip(ours, theirs, strict=True)
    )


def _axes_of(code: LayerEncoding) -> tuple[tuple[int, float], ...] | None:
    """The axis of each channel of a head that rotates by two axes, and the angle of a step along it."""
    spec = code.spec
    if not isinstance(spec, Rotary) or spec.number_of_axes != 2 or spec.axes is None or code.rates is None:
        return None
    made: dict[int, tuple[int, float]] = {}
    for pair, axis, rate in zip(spec.channels.tolist(), spec.axes, code.rates, strict=True):
        made |= dict.fromkeys(pair, (axis, rate))
    return tuple(made[channel] for channel in sorted(made))


def _same_axes(ours: Sequence[tuple[int, float]], theirs: Sequence[tuple[int, float]]) -> bool:
    return len(ours) == len(theirs) and all(
        mine[0] == other[0] and abs(mine[1] - other[1]) <= 10 * CLOSE * abs(other[1])
        for mine, other in zip(ours, theirs, strict=True)
    )


def _of_axes(axes: Sequence[tuple[int, float]]) -> str:
    """Channels of rows and of columns, in their order."""
    runs = [f"{len(list(run))} of {('rows', 'columns')[axis]}" for axis, run in groupby(axes, key=lambda each: each[0])]
    return f"channels: {', '.join(runs[:4])}{', …' if len(runs) > 4 else ''}"


def _of_area(area: tuple[int, int] | None) -> str:
    return "the whole image" if area is None else f"a window of {area[0]} x {area[1]} patches"


def _same_window(code: LayerEncoding, window: int | None) -> bool:
    if code.two_sided:  # what a class calls the window is one side of it, or both
        return (code.window is None) == (window is None)
    return code.window == window


def _of_code(code: LayerEncoding) -> str:
    return _of_ladder(ClassLadder(code.rates or (), code.attention_factor or 1.0))


def _of_ladder(ladder: ClassLadder) -> str:
    scaled = "" if ladder.factor == 1.0 else f", attention factor {ladder.factor:.6g}"
    return f"{len(ladder.rates)} frequencies down to {ladder.rates[-1]:.6g}{scaled}"
