"""Calls of a user's position function: which arguments it takes, what they are for a prompt, what it returns."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from clockhands.phrases import listed
from clockhands.recognition.calling import ForeignFunction, Refused, as_numpy, kind_of
from clockhands.recognition.token_positions import PositionRule, Prompt
from clockhands.testing._checks import wrapper
from clockhands.testing._usual_names import meanings, usual_names
from clockhands.testing.built_subjects import ReadConfig
from clockhands.testing.reports import CannotCheck

FEATURES = (
    "input_ids", "attention_mask", "image_grid_thw", "video_grid_thw", "second_per_grid_ts", "mm_token_type_ids",
)  # fmt: skip
"""What a mapping of a processor holds."""

_CONSTANTS = (
    "spatial_merge_size", "temporal_merge_size", "tokens_per_second", "seconds_per_chunk", "image_token_id",
    "video_token_id", "audio_token_id", "vision_start_token_id", "vision_end_token_id", "video_start_token_id",
    "video_end_token_id", "audio_start_token_id", "audio_end_token_id",
)  # fmt: skip
QUANTITIES = (
    "features", *FEATURES, "fps", "offset_seconds", "audio_seqlens", "use_audio_in_video", "cu_seqlens",
    "document_lengths", "document_ids", "seq_len", "batch_size", "frames", "height", "width", "text_length", "config",
    *_CONSTANTS, "latents",
)  # fmt: skip
# Of a model's forward pass, a padding mask may as well be true where there is padding.
KNOWN: Mapping[str, str] = meanings(*QUANTITIES) | {"padding_mask": "attention_mask"}
"""The quantity that each usual name means, of those that a position function may be given."""

_GIVEN = f"a check gives {', '.join(FEATURES)} and {len(QUANTITIES) - len(FEATURES)} others (docs/checking.md)."
_HINT = (
    "Name the arguments so, or say what they are, in their order: call='input_ids, image_grid_thw'; "
    "call='features' for one mapping of them."
)

_NONE: Mapping[str, tuple[int, ...]] = {
    "image_grid_thw": (0, 3), "video_grid_thw": (0, 3), "second_per_grid_ts": (0,), "fps": (0,), "audio_seqlens": (0,),
}  # fmt: skip
"""The shape of an argument of which there is none."""

_GRID_FRAMES = 2
"""Frames of a video for each frame of its grid: transformers 5.23.0, models/qwen2_vl/video_processing_qwen2_vl.py,
temporal_patch_size, which models/qwen2_5_vl/processing_qwen2_5_vl.py divides by the frames per second."""
_BY_TOKEN = ("input_ids", "attention_mask", "mm_token_type_ids", "document_ids")
_DOCUMENTS = frozenset({"cu_seqlens", "document_lengths", "document_ids"})


class PositionFunction(ForeignFunction):
    """A user's position function, called with the arguments that it names.

    Attributes:
        takes: What it takes, as quantities, by the names of its parameters.
        flat: Whether it is given one row of tokens, [seq], in place of a batch.
        may_take_grids: Whether it has an argument of another name that may be a grid, which is not passed.
        by_name: The parameters that are passed by name: all of them, or none where a caller says what they are.
    """

    _raised = "it raised "

    def __init__(
        self, function: Callable[..., Any], rule: PositionRule, call: str | None, timeout: float | None
    ) -> None:
        """Find out what the function takes: from ``call``, or from the names of its parameters."""
        self.rule: PositionRule = rule
        self.flat: bool = False
        self.takes: dict[str, str] = _parameters(function) if call is None else _called(call)
        self.by_name: tuple[str, ...] = tuple(self.takes) if call is None else ()
        left = [one.name for one in _named_parameters(function) if one.default is None]
        unknown = [name for name in left if name not in self.takes]
        self.may_take_grids: bool = call is None and any(map(_OF_GRIDS.search, unknown))
        super().__init__(function, "", timeout)

    def lacks(self, prompt: Prompt) -> str | None:
        """Which argument the function would have to take for this prompt; None if it takes all.

        A function that takes no grid at all has to number images and videos without: their tokens are in the ids. One
        with an argument of another name that may be a grid is not asked for them.
        """
        if self.flat and prompt.shape[0] > 1:
            return "batch of rows"
        have = set(self.takes.values())
        if "features" in have:
            have.update(FEATURES)
        needed: list[tuple[bool, set[str]]] = [
            (not self.rule.latent, {*_BY_TOKEN, *_DOCUMENTS, "seq_len"}),
            (not prompt.mask.all(), {"attention_mask"}),
            (any(len(row) > 1 for row in prompt.rows), set(_DOCUMENTS)),
            (prompt.audio_in_video, {"use_audio_in_video"}),
        ]
        for kind in ("image", "video") if self.rule.latent or have & {"image_grid_thw", "video_grid_thw"} else ():
            grid = getattr(self.rule, kind) == "grid" and prompt.grids(kind) is not None
            needed.append((grid, {"height", "latents"} if self.rule.latent else {f"{kind}_grid_thw"}))
        if self.may_take_grids and not self.rule.latent:
            grids = any(prompt.grids(kind) is not None for kind in ("image", "video"))
            needed.append((grids, {"image_grid_thw", "video_grid_thw"}))
        if self.rule.latent:
            needed.append((any(part.kind == "text" for part in prompt.parts), {"text_length"}))
            needed.append((prompt.grids("video") is not None, {"frames", "latents"}))
            needed.append((self.rule.per_second > 0, {"fps", "second_per_grid_ts"}))
            needed.append((any(part.begins for part in prompt.parts), {"offset_seconds"}))
        if prompt.shape[0] > 1:
            needed.append((True, {"batch_size", "latents"} if self.rule.latent else {"input_ids", "attention_mask"}))
        missing = next((names for wanted, names in needed if wanted and not names & have), None)
        return None if missing is None else listed(sorted(missing), "or")

    def positions(self, prompt: Prompt) -> tuple[np.ndarray, np.ndarray | None]:
        """The positions of a prompt, [axes, batch, seq] in float64, and the deltas of its rows, if it returns them.

        Raises:
            Refused: The function raised, timed out, or returned something else.
        """
        given = _arguments(prompt)
        if self.flat:
            given |= {name: given[name][0] for name in _BY_TOKEN}
        given["features"] = {name: given[name] for name in FEATURES if given[name] is not None}
        answer = self._answer(given, prompt.mask.size)
        ids, deltas = _parts(answer)
        if not hasattr(ids, "shape") and not isinstance(ids, list):
            raise Refused(f"it returned {kind_of(ids)}, not an array of positions")
        array = numbers(ids)
        if array is None:
            raise Refused(f"it returned {kind_of(ids)}, not numbers of one shape")
        self.output = str(array.dtype)
        axes = len(self.rule.axes)
        if self.rule.cell == "middle" and array.ndim > 2 and array.shape[-1] == 2:  # where cells start and end
            array = array.mean(-1)
        return arranged(array, axes, *prompt.shape).astype(np.float64), None if deltas is None else _deltas(deltas)

    def _answer(self, given: dict[str, Any], tokens: int) -> Any:
        """What it returns; where it fails for None in place of grids, what it returns for no grids."""
        held = {name: self._held(given[what]) for name, what in self.takes.items()}
        none = {name: _NONE[what] for name, what in self.takes.items() if what in _NONE and given[what] is None}
        try:
            return self.ask(held, tokens, self.by_name)
        except Refused as error:
            if not none:
                raise
            try:
                empty = {name: self._held(np.zeros(shape, np.int64)) for name, shape in none.items()}
                return self.ask(held | empty, tokens, self.by_name)
            except Refused:
                raise error from None

    def _held(self, value: Any) -> Any:
        if type(value) is dict:  # a config is passed as it is
            return {name: self._held(each) for name, each in value.items()}
        return self.library.positions(value) if isinstance(value, np.ndarray) else value


_OF_GRIDS = re.compile(r"grid|thw|(^|_)(images?|videos?|shapes?|hw)(_|$)")
"""What the name of an argument has that may be a grid."""


def _parameters(function: Callable[..., Any]) -> dict[str, str]:
    """What each parameter of a function stands for, by its name; those with a default may be unknown.

    A method that only passes all on (*args, **kwargs) takes what the method takes that it overrides.

    Raises:
        CannotCheck: A parameter without a default has no usual name.
    """
    named = _named_parameters(function)
    takes = {one.name: KNOWN[one.name] for one in named if one.name in KNOWN}
    if list(takes) == ["batch"]:  # alone it is no number of rows
        takes = {"batch": "features"}
    unknown = [one.name for one in named if one.name not in KNOWN and one.default is one.empty]
    if unknown or not takes:
        what = f"takes {listed(f'`{name}`' for name in unknown)}" if unknown else "names none of its arguments"
        name = getattr(function, "__qualname__", "")
        wrapped = f"{_HINT} Or wrap it: {wrapper('positions(input_ids, video_grid_thw, fps)', function, KNOWN)}"
        hint = f"Pass the method of an instance in place of {name}." if "self" in unknown else wrapped
        raise CannotCheck(f"The function {what}; {_GIVEN}", hint)
    return takes


def _named_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    owner, name = type(getattr(function, "__self__", None)), getattr(function, "__name__", "")
    overridden = [vars(each)[name] for each in owner.__mro__ if name in vars(each)]
    for number, each in enumerate((function, *overridden)):
        try:
            parameters = list(inspect.signature(each).parameters.values())[number > 0 :]  # without `self`
        except (TypeError, ValueError):
            continue
        named = [one for one in parameters if one.kind in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY}]
        if named:
            return named
    return []


def numbers_tokens(function: Any) -> bool:
    """Whether a function numbers tokens, by its names: it takes grids of images or videos, or makes ids of a latent.

    A latent is one argument, or its height and width; other functions take these too, so its name has to say ``ids``.
    """
    parameters = _named_parameters(function) if callable(function) and not isinstance(function, type) else []
    named = {KNOWN.get(one.name) for one in parameters}
    if named & {"image_grid_thw", "video_grid_thw"}:
        return True
    needed = {KNOWN.get(one.name) for one in parameters if one.default is one.empty}
    says = re.search(r"(ids|coords|positions)$", getattr(function, "__name__", ""))
    return bool(says) and None not in needed and ({"height", "width"} <= needed or "latents" in needed)


def is_processor(value: Any) -> bool:
    """Whether a class, an object or a function makes batches of images and texts, by the names that it takes."""
    owner = value if isinstance(value, type) else type(value)
    if hasattr(owner, "named_modules") or not callable(value):
        return False
    named = {one.name for one in _named_parameters(owner.__call__ if isinstance(value, type) else value)} - {"self"}
    if named:  # images alone may be the latents of some, which are numbers to number
        seen = "videos" in named or {"images", "text"} <= named
        return seen and not (named - {"images"}) & KNOWN.keys()
    return any(each.__name__.endswith(("Processor", "ProcessorMixin")) for each in owner.__mro__)


def _called(call: str) -> dict[str, str]:
    words = [word.strip() for word in call.split(",")]
    unknown = [word for word in words if word not in KNOWN]
    if unknown:
        raise CannotCheck(f"`call` names {listed(f'`{word}`' for word in unknown)}; {_GIVEN}", _HINT)
    return {word: KNOWN[word] for word in words}


def _arguments(prompt: Prompt) -> dict[str, Any]:
    """The values of all arguments for a prompt."""
    rule, tokens = prompt.rule, prompt.rule.tokens
    videos = [part for part in prompt.parts if part.kind == "video"]
    cells = next((part.cells for part in prompt.parts if part.kind in {"image", "video"}), (1, 1, 1))
    lengths = [count for row in prompt.lengths for count in row]
    audio = [rule.audio_features(part.tokens) for part in prompt.parts if part.kind != "text" and part.tokens]
    values = (
        rule.merge, rule.frame_merge, rule.per_second, rule.chunk, tokens.image, tokens.video, tokens.audio,
        tokens.image_start, tokens.image_end, tokens.video_start, tokens.video_end, tokens.audio_start,
        tokens.audio_end,
    )  # fmt: skip
    constants = dict(zip(_CONSTANTS, values, strict=True))
    held = {name: value for one, value in constants.items() for name in (one, *usual_names(one))}
    return constants | {
        "config": ReadConfig(held, vision_config=held),
        "input_ids": prompt.ids,
        "attention_mask": prompt.mask.astype(np.int64),
        "image_grid_thw": prompt.grids("image"),
        "video_grid_thw": prompt.grids("video"),
        "second_per_grid_ts": np.array([part.seconds for part in videos]) if videos else None,
        "offset_seconds": sum(part.begins for part in prompt.parts),
        "fps": _frames_per_second(rule, [part.seconds for part in videos]),
        "mm_token_type_ids": prompt.types,
        "audio_seqlens": np.array(audio, np.int64) if audio else None,
        "use_audio_in_video": prompt.audio_in_video,
        "cu_seqlens": np.cumsum([0, *lengths]),
        "document_lengths": np.array(lengths, np.int64),
        "document_ids": prompt.documents,
        "seq_len": prompt.shape[1],
        "batch_size": prompt.shape[0],
        "frames": cells[0] * rule.frame_merge,
        "latents": _latents(rule, prompt, cells),
        "height": cells[1] * rule.merge,
        "width": cells[2] * rule.merge,
        "text_length": sum(part.tokens for part in prompt.parts if part.kind == "text"),
    }


def _latents(rule: PositionRule, prompt: Prompt, cells: Sequence[int]) -> np.ndarray:
    """A latent of one channel, [batch, channels, rows, columns], of a video with frames before the rows."""
    frames = [cells[0] * rule.frame_merge] if prompt.grids("video") is not None else []
    return np.zeros((prompt.shape[0], 1, *frames, cells[1] * rule.merge, cells[2] * rule.merge), np.float32)


def _frames_per_second(rule: PositionRule, seconds: Sequence[float]) -> Any:
    """The frames per second of videos, or of one latent; None without any."""
    if rule.latent:
        return 1 / seconds[0] if seconds else None
    return np.array([_GRID_FRAMES / each for each in seconds]) if seconds else None


def _parts(answer: Any) -> tuple[Any, Any]:
    """The positions of an answer and its deltas: a pair, a mapping as processors return it, or positions alone."""
    if isinstance(answer, Mapping):
        return answer.get("position_ids"), answer.get("rope_deltas", answer.get("mrope_position_deltas"))
    if hasattr(answer, "position_ids"):
        return answer.position_ids, getattr(answer, "rope_deltas", None)
    pair = isinstance(answer, list) and len(answer) == 2 and numbers(answer) is None  # else an axis each
    if (isinstance(answer, tuple) or pair) and answer and hasattr(answer[0], "shape"):
        return answer[0], answer[1] if len(answer) > 1 and np.size(as_numpy(answer[1])) else None
    return answer, None


def numbers(value: Any, kinds: str = "iuf") -> np.ndarray | None:
    """An array or nested lists as an array of real numbers, of these kinds of NumPy; None for anything else."""
    try:
        array = as_numpy(value)
    except (TypeError, ValueError):  # lists of different lengths
        return None
    return array if array.dtype.kind in kinds else None


def _deltas(deltas: Any) -> np.ndarray:
    return np.atleast_1d(as_numpy(deltas).astype(np.float64).ravel())


def arranged(array: np.ndarray, axes: int, batch: int, seq: int) -> np.ndarray:
    """Positions as [axes, batch, seq], from one of the usual shapes; one number a token stands for all axes.

    Raises:
        Refused: The shape is another one.
    """
    shapes: Sequence[tuple[tuple[int, ...], Callable[[], np.ndarray]]] = (
        ((axes, batch, seq), lambda: array),
        ((batch, seq, axes), lambda: np.moveaxis(array, -1, 0)),
        ((batch, seq), lambda: np.tile(array, (axes, 1, 1))),
        ((1, seq), lambda: np.tile(array, (axes, batch, 1))),
        *(
            (
                ((axes, seq), lambda: array[:, None]),
                ((1, axes, seq), lambda: array[0][:, None]),
                ((seq, axes), lambda: array.T[:, None]),
                ((seq,), lambda: np.tile(array, (axes, 1, 1))),
            )
            if batch == 1
            else ()
        ),
    )
    for shape, arranged in shapes:
        if array.shape == shape:
            return arranged()
    raise Refused(
        f"it returned positions of shape {list(array.shape)}; expected [{axes}, {batch}, {seq}] (axes, batch, tokens)"
        + (f", [{batch}, {seq}]" if axes == 1 else "")
    )
