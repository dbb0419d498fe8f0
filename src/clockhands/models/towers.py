"""Runs the parts of a loaded model that read no text on small images and audio, and compares them with the config."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from clockhands.configs.resolved import TEXT, LayerEncoding
from clockhands.encodings.rotary import Rotary
from clockhands.errors import InvalidValue
from clockhands.models.attention_inputs import attended
from clockhands.models.first_attention import NO_PATCH, accepted, patch_tokens
from clockhands.models.observations import Observation
from clockhands.models.tower_inputs import AUDIO, IMAGES, SmallInput, audio_inputs, images, reason, takes_any
from clockhands.models.tower_rotations import equal_tokens, wrong_rotations, wrong_windows
from clockhands.models.tower_tables import table_reading
from clockhands.phrases import listed

_REMEDY = "Compare the attention of the tower, and the function that makes its rows and columns, with the release."
_TABLES = ("learned", "sinusoidal")


@dataclass(frozen=True, eq=False)
class Tower:
    """A part of a model that takes images or audio.

    Attributes:
        path: Where it is; empty for the whole model.
        module: The part.
        part: ``vision`` or ``audio``.
        codes: What the config declares of it.
    """

    path: str
    module: nn.Module
    part: str
    codes: tuple[LayerEncoding, ...]

    @property
    def where(self) -> str:
        """The part in words."""
        return f"The {self.part} part ({self.path})" if self.path else f"The {self.part} part"


@dataclass(frozen=True)
class TowerReading:
    """What running a tower showed.

    Attributes:
        found: What is not as declared.
        says: What was measured, in a sentence; or that it was not run, and why.
        measured: What was measured, as phrases.
        left: What of the declared codes was not measured, as a phrase; empty where all was.
    """

    found: tuple[Observation, ...]
    says: str
    measured: tuple[str, ...]
    left: str


@dataclass
class PartsBesideText:
    """What running the parts of a model that read no text showed.

    Attributes:
        found: What is not as declared.
        answers: A sentence for each part: what was measured, or that it was not run and why.
        measured: What was measured of each kind of part, as a phrase.
        left_out: For each kind of part of which something was not measured, what that is, as a phrase.
        codes: What the config declares of these parts.
    """

    found: list[Observation]
    answers: list[str]
    measured: dict[str, str]
    left_out: dict[str, str]
    codes: list[LayerEncoding]


def parts_beside_text(module: nn.Module, codes: Sequence[LayerEncoding]) -> PartsBesideText:
    """Run every tower; other parts are named as not run."""
    made = PartsBesideText([], [], {}, {}, [])
    found = towers(module, codes)
    for tower in found:
        reading = tower_reading(tower)
        made.codes += tower.codes
        made.found += reading.found
        made.answers.append(reading.says)
        if reading.measured:
            made.measured.setdefault(tower.part, listed(reading.measured))
        if reading.left:
            made.left_out.setdefault(tower.part, reading.left)
    # Layers for multi-token prediction are run by no forward pass.
    others = dict.fromkeys(code.part for code in codes if code.part not in (*TEXT, "mtp"))
    for part in others:
        if part in {each.part for each in found}:
            continue
        made.left_out[part] = f"the {part} part"
        if part in ("vision", "audio"):
            made.answers.append(f"The {part} part was not run: no input of its kind is made here.")
        else:
            made.answers.append(f"The positions of the {part} part were not measured.")
    return made


def towers(module: nn.Module, codes: Sequence[LayerEncoding]) -> list[Tower]:
    """The outermost parts of a model that take images or audio and no tokens."""
    found: list[Tower] = []
    for path, each in module.named_modules():
        if any(not tower.path or path.startswith(f"{tower.path}.") for tower in found) or not hasattr(each, "config"):
            continue
        for part, names in (("vision", IMAGES), ("audio", AUDIO)):
            if takes_any(each, names):
                own = [code for code in codes if code.part == part]
                # The encoder of a model that transcribes is declared as one of texts is.
                own = own or [code for code in codes if code.part == "encoder"]
                found.append(Tower(path, each, part, tuple(own)))
    return found


@dataclass
class _Measurements:
    """What was measured of a tower, and what was not.

    Attributes:
        wrong: What is not as declared, in sentences.
        measured: What was measured, as phrases.
        left: What was not: the phrase, and why.
        told: For each input what it showed, as a clause.
        ran: Whether the tower accepted an input.
    """

    wrong: list[str] = field(default_factory=list)
    measured: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    ran: bool = False

    def add(self, given: SmallInput, measured: Sequence[str], wrong: Sequence[str]) -> None:
        """Note what running an input showed."""
        does = "are not all as the config declares" if wrong else "are as the config declares"
        self.told.append(f"on {given.says}: {listed(measured)} {does}")
        self.measured += measured
        self.wrong += wrong


def tower_reading(tower: Tower) -> TowerReading:
    """Run a tower on small inputs, and compare what it does with what is declared."""
    made, whole = _Measurements(), f"the {tower.part} part"
    if (why := _not_comparable(tower.codes)) is not None:
        made.left[whole] = why
    else:
        _measure(tower, made, whole)
    if made.told:
        says = f"ran {'; '.join(made.told)}"
        says += "".join(f"; {what} was not measured: {why}" for what, why in made.left.items())
    else:
        says = f"was not {'measured' if made.ran else 'run'}: {'; '.join(dict.fromkeys(made.left.values()))}"
    found = [Observation("run-differs", {"says": each, "remedy": _REMEDY}) for each in made.wrong]
    left = listed(list(made.left)) if made.told else whole
    return TowerReading(tuple(found), f"{tower.where} {says}.", tuple(made.measured), left)


def _measure(tower: Tower, made: _Measurements, whole: str) -> None:
    """Measure what a config declares of a tower, one thing after the other."""
    rotary = [code for code in tower.codes if code.kind == "rotary"]
    steps: dict[str, Callable[[], None]] = {"RoPE": lambda: _rotation(tower, rotary, made)} if rotary else {}
    for code in tower.codes:
        if code.kind in _TABLES:
            steps[f"the table of {code.rows} rows"] = lambda code=code: _table(tower, code, made)
        elif code.kind != "rotary":
            made.left[f"positions of the kind {code.kind} of {whole}"] = f"the kind {code.kind} is not measured here"
    for what, measure in steps.items():
        try:
            measure()
        except Exception as error:  # noqa: BLE001 - a tower may refuse an image in any way
            made.left[f"{what} of {whole}"] = reason(error)


def _not_comparable(codes: Sequence[LayerEncoding]) -> str | None:
    """Why nothing of a tower can be compared with what is declared; None if something can."""
    if not codes:
        return "the config declares no positions for it"
    if all(code.kind == "none" for code in codes):
        return "the config declares that it has no positions"
    if len({code.component for code in codes}) > 1:
        return "the config has several parts of this kind"
    return None


def _input(tower: Tower, made: _Measurements, areas: Sequence[tuple[int, int]], *, of_any_size: bool) -> SmallInput:
    """The first small input that a tower accepts."""
    if tower.part == "audio":
        given = accepted(tower.module, list(audio_inputs(tower.module)))
    else:
        given = accepted(tower.module, list(images(tower.module, areas, of_any_size=of_any_size)))
    made.ran = True
    return given


def _table(tower: Tower, code: LayerEncoding, made: _Measurements) -> None:
    if code.rows is None:
        raise InvalidValue("the number of rows of its table is not known", "")
    given = _input(tower, made, (), of_any_size=False)
    reading = table_reading(tower.module, code, lambda seed: tower.module(**given.given(seed)), given)
    if reading.measured is None:
        raise InvalidValue(reading.reason, "")
    made.add(given, [reading.measured], [f"{tower.path}.{each}" if tower.path else each for each in reading.wrong])
    made.told += [reading.resized] if reading.resized else []


def _rotation(tower: Tower, codes: Sequence[LayerEncoding], made: _Measurements) -> None:
    if not all(_by_cells(code, tower.part) for code in codes):
        raise InvalidValue("its declared rotation is not one by whole rows and columns in a known layout", "")
    areas = [code.window_area for code in codes if code.window_area is not None]
    given = _input(tower, made, areas, of_any_size=True)
    with attended(tower.module) as seen, torch.no_grad():
        tower.module(**given.given(0))
    if not seen:
        raise InvalidValue("the attention of its layers cannot be reached", "")
    passes = equal_tokens(tower.module, given, list(dict.fromkeys(each.path for each in seen)))
    count = sum(each.queries.shape[-2] for each in passes[0][seen[0].layer])
    tokens = None
    if given.image is not None:
        tokens = patch_tokens(tower.module, given, tower.module.get_submodule(seen[0].path))
        if tokens is None:
            raise InvalidValue("its layers do not get each patch as one token", "")
    order = np.arange(count) if tokens is None else tokens.order
    if any(each.queries.shape[0] > 1 for each in seen):
        raise InvalidValue("its attention gets windows as rows of a batch, which are not put together here", "")
    if any(sum(each.queries.shape[-2] for each in calls) != len(order) for calls in passes[0].values()):
        raise InvalidValue("the attention of some layers gets another number of tokens than that of the first", "")
    wrong = list(wrong_rotations(codes, passes, given.image, order))
    measured = ["RoPE by the number of a token"]
    if given.image is not None:
        measured = ["RoPE by rows and columns"]
        wrong += wrong_windows(codes, passes[0], given.image, int((order == NO_PATCH).sum()))
        measured.append(f"the {'windows' if areas else 'patches'} that layers see")
    made.add(given, measured, [f"{tower.path}, {each}" if tower.path else each for each in wrong])
    if tokens is not None and not tokens.alike and not any(code.kind in _TABLES for code in tower.codes):
        made.left["what else is added to patches"] = "its tokens differ although all patches are equal"


def _by_cells(code: LayerEncoding, part: str) -> bool:
    """Whether a declared rotation is one by rows and columns of an image, or by numbers of tokens of audio."""
    return (
        isinstance(code.spec, Rotary)
        and code.layout in ("halves", "interleaved")
        and code.rotating_heads is None
        and code.spec.number_of_axes == (1 if part == "audio" else 2)
    )
