"""Runs the image towers of a loaded model on a small image, and compares rotation, tables and windows with the config.

In an image whose patches are all equal, every query is the same before the rotation, and attention over equal values
changes nothing: so the queries and keys of each layer show the rotation of each patch beside that of the first one.
Tables of rows that are added to patches are replaced by zeros for this.
"""

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.configs.resolved import TEXT, LayerEncoding, layer_numbers, layer_ranges
from clockhands.encodings.layouts import Layout, pair_channels
from clockhands.encodings.rotary import Rotary
from clockhands.errors import InvalidValue
from clockhands.models.attention_inputs import Attended, attended
from clockhands.models.layer_rotations import fitted, tolerance
from clockhands.models.observations import Observation
from clockhands.phrases import listed

_IMAGES = ("pixel_values", "grid_thw")
"""Arguments of a tower that takes images: pixels, or patches with the numbers of their rows and columns."""

_RUN_WITH_INPUT = ("vision", "audio")
"""Parts that a text does not run."""

_LEAST = 4  # patches in a column of the image, so that windows and blocks of patches show
_HIDDEN = -1e4
_REMEDY = "Compare the attention of the tower, and the function that makes its rows and columns, with the release."


@dataclass(frozen=True, eq=False)
class ImageTower:
    """A part of a model that takes images.

    Attributes:
        path: Where it is.
        module: The part.
        codes: What the config declares of it.
    """

    path: str
    module: nn.Module
    codes: tuple[LayerEncoding, ...]


@dataclass(frozen=True)
class _PatchedImage:
    """What a tower is given, without its content.

    Attributes:
        rows: Patches in a column.
        columns: Patches in a row.
        block: Patches on each side of a block whose patches are given one after the other; 1 for row by row.
        shape: Of the numbers of one patch.
    """

    rows: int
    columns: int
    block: int
    shape: tuple[int, ...]

    @property
    def cells(self) -> np.ndarray:
        """Row and column of each patch in the order in which a tower is given them, [patches, 2]."""
        places = np.moveaxis(np.indices((self.rows, self.columns)), 0, -1)
        blocks = places.reshape(self.rows // self.block, self.block, self.columns // self.block, self.block, 2)
        return blocks.transpose(0, 2, 1, 3, 4).reshape(-1, 2)


@dataclass(frozen=True)
class TowerReading:
    """What running a tower showed.

    Attributes:
        found: What is not as declared.
        says: What was measured, in a sentence; or that it was not run, and why.
        left: What of the declared codes was not measured, as a phrase; empty where all was.
    """

    found: tuple[Observation, ...]
    says: str
    left: str


@dataclass
class PartsBesideText:
    """What running the parts of a model that read no text showed.

    Attributes:
        found: What is not as declared.
        answers: A sentence for each part: what was measured, or that it was not run and why.
        left_out: For each kind of part of which something was not measured, what that is, as a phrase.
    """

    found: list[Observation]
    answers: list[str]
    left_out: dict[str, str]


def parts_beside_text(module: nn.Module, codes: Sequence[LayerEncoding]) -> PartsBesideText:
    """Run every tower for images; other parts are named as not run."""
    # Layers for multi-token prediction are run by no forward pass.
    parts = list(dict.fromkeys(code.part for code in codes if code.part not in (*TEXT, "mtp")))
    readings = [tower_reading(each) for each in image_towers(module, codes)] if "vision" in parts else []
    left = {part: f"the {part} part" for part in parts}
    if readings and (phrase := next((each.left for each in readings if each.left), "")):
        left["vision"] = phrase
    elif readings:
        del left["vision"]
    answers = [each.says for each in readings]
    for part in left:
        if part not in _RUN_WITH_INPUT:
            answers.append(f"The positions of the {part} part were not measured.")
        elif part != "vision" or not readings:
            answers.append(f"The {part} part was not run: no input of its kind is made here.")
    return PartsBesideText([found for each in readings for found in each.found], answers, left)


def image_towers(module: nn.Module, codes: Sequence[LayerEncoding]) -> list[ImageTower]:
    """The outermost parts of a model that take images and no tokens."""
    found: list[ImageTower] = []
    own = tuple(code for code in codes if code.part == "vision")
    for path, each in module.named_modules():
        taken = inspect.signature(each.forward).parameters
        inside = any(path.startswith(f"{tower.path}.") for tower in found)
        if path and not inside and hasattr(each, "config") and "input_ids" not in taken and {*_IMAGES} & {*taken}:
            found.append(ImageTower(path, each, own))
    return found


def tower_reading(tower: ImageTower) -> TowerReading:
    """Run a tower on small images, and compare what it does with what is declared."""
    where = f"The vision part ({tower.path})"
    rotary = [code for code in tower.codes if code.kind == "rotary"]
    tables = [code for code in tower.codes if code.kind == "learned"]
    if (reason := _not_comparable(tower.codes)) is not None:
        return TowerReading((), f"{where} was not run: {reason}.", "the vision part")
    areas = [code.window_area for code in tower.codes if code.window_area is not None]
    try:
        image = _image(tower.module, areas, rotates=bool(rotary))
        with _without_tables(tower.module) if rotary else _tables_heard(tower.module) as heard:
            passes = [_run(tower.module, image, seed) for seed in (0, 1)]
            first = tower.module.get_submodule(passes[0][min(passes[0])][0].path)
            order = _order(tower.module, image, first) if rotary else np.arange(0)
    except Exception as error:  # noqa: BLE001 - a tower may refuse an image in any way
        what = "measured" if isinstance(error, InvalidValue) else "run"
        return TowerReading((), f"{where} was not {what}: {_line(error)}.", "the vision part")
    wrong, measured = _tables(tower, heard, len(image.cells)) if not rotary else ([], not _tables_of(tower.module))
    done = ["the rows of its table"] if measured and tables else []
    if rotary:
        wrong += _rotations(tower, rotary, passes, image, order)
        wrong += _windows(tower, rotary, passes[0], image)
        done += ["RoPE by rows and columns", f"the {'windows' if areas else 'patches'} that layers see"]
    says = f"{where} ran on an image of {image.rows} x {image.columns} patches"
    if done:
        says += f": {listed(done)} {'are not all as the config declares' if wrong else 'are as the config declares'}"
    says += "." if measured else "; the rows of its table were not measured."
    found = [Observation("run-differs", {"says": each, "remedy": _REMEDY}) for each in wrong]
    return TowerReading(tuple(found), says, "" if measured else "the table of the vision part")


def _not_comparable(codes: Sequence[LayerEncoding]) -> str | None:
    """Why what a tower does cannot be compared with what is declared; None if it can."""
    if not codes:
        return "the config declares no positions for it"
    if len({code.component for code in codes}) > 1:
        return "the config has several parts for images"
    if any(code.kind not in ("rotary", "learned") for code in codes):
        return "the config declares other positions for it than RoPE and rows of a table"
    for code in codes:
        if code.kind == "rotary" and (
            not isinstance(code.spec, Rotary)
            or code.layout not in ("halves", "interleaved")
            or code.coordinates is not None
            or code.rotating_heads is not None
            or code.spec.number_of_axes != 2
        ):
            return "its declared rotation is not one by whole rows and columns in a known layout"
    return None


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160].rstrip(".")


# Images


def _image(tower: nn.Module, areas: Sequence[tuple[int, int]], *, rotates: bool) -> _PatchedImage:
    """A small image that is wider than high; one of the declared size for a tower with a table alone."""
    config: Any = tower.config
    first = next(each for each in tower.modules() if isinstance(each, nn.Conv2d | nn.Conv3d | nn.Linear))
    size = (first.in_features,) if isinstance(first, nn.Linear) else (first.in_channels, *first.kernel_size)
    if not rotates:
        if getattr(config, "image_size", None) is None:
            raise InvalidValue("its config names no size of an image", "")
        whole, patch = (np.ravel(each)[0] for each in (config.image_size, config.patch_size))
        side = int(whole // patch)
        return _PatchedImage(side, side, 1, size)
    taken = inspect.signature(tower.forward).parameters
    block = int(getattr(config, "spatial_merge_size", 1)) if "grid_thw" in taken else 1
    height, width = (max((area[axis] for area in areas), default=0) for axis in (0, 1))
    rows = block * math.ceil(max(_LEAST, height + 1) / block)
    return _PatchedImage(rows, block * math.ceil(max(rows + 1, 2 * width + 1) / block), block, size)


def _given(tower: nn.Module, image: _PatchedImage, patches: Tensor) -> dict[str, Tensor]:
    """The arguments of a tower for these patches, [patches, numbers of one]."""
    taken = list(inspect.signature(tower.forward).parameters)
    if "grid_thw" in taken:
        return {taken[0]: patches, "grid_thw": torch.tensor([[1, image.rows, image.columns]], device=patches.device)}
    channels, height, width = image.shape
    pixels = patches.reshape(image.rows, image.columns, channels, height, width).permute(2, 0, 3, 1, 4)
    pixels = pixels.reshape(1, channels, image.rows * height, image.columns * width)
    sizes = {"image_sizes": torch.tensor([pixels.shape[2:]], device=patches.device)} if "image_sizes" in taken else {}
    return {"pixel_values": pixels, **sizes}


def _patches(tower: nn.Module, image: _PatchedImage, seed: int) -> Tensor:
    """Equal patches of noise."""
    drawn = torch.randn(1, math.prod(image.shape), generator=torch.Generator().manual_seed(seed))
    like = next(tower.parameters())
    return drawn.expand(image.rows * image.columns, -1).to(like.device, like.dtype)


def _run(tower: nn.Module, image: _PatchedImage, seed: int) -> dict[int, list[Attended]]:
    """What the attention of each layer is given; a layer is called once for each of its windows."""
    with attended(tower, scores=True) as seen, torch.no_grad():
        tower(**_given(tower, image, _patches(tower, image, seed)))
    layers: dict[int, list[Attended]] = {}
    for each in seen:
        layers.setdefault(each.layer, []).append(each)
    return layers


class _FirstAttentionReached(Exception):
    """The first attention was reached."""


def _order(tower: nn.Module, image: _PatchedImage, attention: nn.Module) -> np.ndarray:
    """Which of the given patches each token of the first attention is.

    Images of two kinds of patches are embedded, one for each binary digit of the number of a patch: a token that
    differs from that of an image of equal patches is a patch with this digit.
    """
    count = image.rows * image.columns
    one, other = (_patches(tower, image, seed) for seed in (0, 1))
    entered: list[np.ndarray] = []

    def enters(_: nn.Module, args: Any, kwargs: Any) -> None:
        given = args[0] if args else kwargs["hidden_states"]
        entered.append(given.double().cpu().numpy().reshape(-1, given.shape[-1]))
        raise _FirstAttentionReached

    hook = attention.register_forward_pre_hook(enters, with_kwargs=True)
    digits = [1 << digit for digit in range((count - 1).bit_length())]
    try:
        for digit in (0, *digits):
            has = (torch.arange(count, device=one.device) & digit > 0)[:, None]
            with suppress(_FirstAttentionReached), torch.no_grad():
                tower(**_given(tower, image, torch.where(has, other, one)))
    finally:
        hook.remove()
    places = np.zeros(count, dtype=np.int64)
    if all(len(each) == count for each in entered):
        for digit, each in zip(digits, entered[1:], strict=True):
            places += digit * (each != entered[0]).any(axis=1)
    if sorted(places) != list(range(count)):
        raise InvalidValue("its layers do not get each patch as one token", "")
    if float(np.ptp(entered[0], axis=0).max()) > tolerance(one.dtype) * float(np.abs(entered[0]).max()):
        raise InvalidValue("its tokens differ although all patches are equal", "")
    return places


# Tables


@dataclass(frozen=True, eq=False)
class _LookedUpRows:
    """A table of rows, as a tower asks it, and what the module around it makes of the rows.

    Attributes:
        path: Where the table is.
        numbers: Of the rows.
        rows: What it gave, [tokens, channels].
        made: The tokens after it, of the same shape; None if the module around returns something else.
    """

    path: str
    numbers: Tensor
    rows: Tensor
    made: Tensor | None


def _tables_of(tower: nn.Module) -> dict[str, nn.Embedding]:
    """Towers have no tokens: their embeddings are tables of positions."""
    return {path: each for path, each in tower.named_modules() if isinstance(each, nn.Embedding)}


@contextmanager
def _without_tables(tower: nn.Module) -> Iterator[list[_LookedUpRows]]:
    """Zeros in place of the rows of each table: some towers interpolate the weights themselves."""
    kept = [(each.weight, each.weight.data) for each in _tables_of(tower).values()]
    try:
        for weight, data in kept:
            weight.data = torch.zeros_like(data)
        yield []
    finally:
        for weight, data in kept:
            weight.data = data


@contextmanager
def _tables_heard(tower: nn.Module) -> Iterator[list[_LookedUpRows]]:
    """Collect what each table is asked for, once the module around it is done."""
    asked: list[_LookedUpRows] = []
    with ExitStack() as hooks:
        for path, each in _tables_of(tower).items():
            given: list[tuple[Tensor, Tensor]] = []

            def heard(_: nn.Module, args: Any, rows: Tensor, given: list[tuple[Tensor, Tensor]] = given) -> None:
                given.append((args[0].flatten().cpu(), rows.detach().flatten(0, -2)))

            def done(_: nn.Module, __: Any, made: Any, path: str = path, given: Any = given) -> None:
                for numbers, rows in given:
                    same = isinstance(made, Tensor) and made.numel() == rows.numel()
                    asked.append(
                        _LookedUpRows(path, numbers, rows, made.detach().reshape(rows.shape) if same else None)
                    )
                given.clear()

            hooks.enter_context(each.register_forward_hook(heard))
            hooks.enter_context(tower.get_submodule(path.rpartition(".")[0]).register_forward_hook(done))
        yield asked


def _tables(tower: ImageTower, asked: Sequence[_LookedUpRows], patches: int) -> tuple[list[str], bool]:
    """What is wrong with the rows that equal patches get, and whether it was measured."""
    if len({each.path for each in asked}) != 1 or asked[0].made is None:
        return [], False
    (path, numbers, rows, made) = (asked[0].path, asked[0].numbers, asked[0].rows, asked[0].made)
    wrong = (numbers != torch.arange(len(numbers))).nonzero().flatten()
    if len(wrong):
        at = int(wrong[0])
        return [f"{tower.path}.{path}: token {at} gets row {int(numbers[at])}, where row {at} is declared."], True
    left = (made - rows)[-patches:].float()
    if float((left - left[0]).abs().max()) > tolerance(rows.dtype) * float(rows.float().abs().max()):
        return [f"{tower.path}.{path}: the rows of the table are not added to the patches as they are."], True
    return [], True


# Rotation


def _rotations(
    tower: ImageTower,
    codes: Sequence[LayerEncoding],
    passes: Sequence[Mapping[int, list[Attended]]],
    image: _PatchedImage,
    order: np.ndarray,
) -> Iterator[str]:
    """Layers whose patches are not rotated by their row and column as declared; all that differ alike are one."""
    wrong: dict[tuple[str, str], list[int]] = {}
    first: dict[tuple[str, str], str] = {}
    for code in codes:
        numbers = layer_numbers(code.layers) if code.layers is not None else set(passes[0])
        for layer in sorted(set(passes[0]) & set(numbers)):
            heads = [_by_patch(each[layer], which) for each in passes for which in ("queries", "keys")]
            dtype = passes[0][layer][0].queries.dtype
            found = _rotation(np.concatenate(heads, axis=1), code, image, order, tolerance(dtype))
            if found is not None:
                fault, evidence = found
                wrong.setdefault((fault, str(code.layers)), []).append(layer)
                first.setdefault((fault, str(code.layers)), evidence)
    for key, layers in wrong.items():
        says = f"{tower.path}, {_layers(layers)}: {first[key]} {key[0]}".strip()
        yield says


def _layers(numbers: Sequence[int]) -> str:
    return f"layer{'s' if len(numbers) > 1 else ''} {layer_ranges(numbers)}"


def _by_patch(calls: Sequence[Attended], which: str) -> np.ndarray:
    """Queries or keys of one layer as [patches, heads, channels], float64; windows are calls of their own."""
    heads = [getattr(each, which)[0].double().cpu().numpy() for each in calls]
    return np.concatenate(heads, axis=1).transpose(1, 0, 2)


def _rotation(
    rows: np.ndarray, code: LayerEncoding, image: _PatchedImage, order: np.ndarray, allowed: float
) -> tuple[str, str] | None:
    """What is wrong with the rotation of patches [patches, rows, channels]: the fault, and the first numbers."""
    spec = code.spec
    assert isinstance(spec, Rotary)
    layout: Layout = "interleaved" if code.layout == "interleaved" else "halves"
    other: Layout = "interleaved" if layout == "halves" else "halves"
    axes = np.array(spec.axes if spec.axes is not None else (0,) * len(spec.rates))
    rates = np.array(spec.rates)
    cells = image.cells[order]
    # The first token of the layers is the patch in the corner, at row 0 and column 0.
    inside = rows[..., : spec.rotated]
    made = {each: fitted(inside, pair_channels(len(rates), each)) for each in (layout, other)}

    def apart(places: np.ndarray, paired: Layout, speeds: np.ndarray = rates) -> np.ndarray:
        cosine, sine, left = made[paired]
        phases = places[:, axes] * speeds
        far = np.maximum(np.abs(cosine - np.cos(phases)), np.abs(sine - np.sin(phases)))
        return np.where(left <= allowed, far, np.maximum(far, left))

    far = apart(cells, layout)
    if float(far.max()) <= 4 * allowed:
        return None
    patch, pair = (int(at) for at in np.unravel_index(int(far.argmax()), far.shape))
    row, column = cells[patch]
    phase = float(cells[patch, axes[pair]] * rates[pair])
    cosine, sine, left = made[layout]
    evidence = (
        f"the channels of layout {layout} are not rotated in pairs, {left:.2g} of their size is left over."
        if left > allowed
        else f"pair {pair} of the patch at row {row}, column {column} has cosine {cosine[patch, pair]:.4f} and sine "
        f"{sine[patch, pair]:.4f}, where {math.cos(phase):.4f} and {math.sin(phase):.4f} are declared."
    )
    in_rows = np.stack(np.divmod(np.arange(len(rows)), image.columns), axis=-1)
    suspects: dict[str, tuple[np.ndarray, Layout]] = {
        "no rotation": (0 * cells, layout),
        "rows and columns exchanged": (cells[:, ::-1], layout),
        "patches counted row by row, where they are given in blocks": (in_rows[order], layout),
        "tokens in windows rotated as patches in the order in which they are given": (image.cells, layout),
        "the cells of merged patches in place of those of patches": (cells // image.block, layout),
        f"the layout {other}, where {layout} is declared": (cells, other),
        f"rows and columns exchanged and the layout {other}": (cells[:, ::-1], other),
    }
    if code.window_area is not None:
        suspects["rows and columns counted from the beginning of each window"] = (cells % code.window_area, layout)
    fits = [
        phrase for phrase, (places, paired) in suspects.items() if float(apart(places, paired).max()) <= 4 * allowed
    ]
    step = np.argmax((cells == 1) & (cells == 0)[:, ::-1], axis=0)[axes]  # the patches below and beside the first one
    speeds = np.arctan2(sine[step, range(len(rates))], cosine[step, range(len(rates))])
    base = _base(speeds, rates, code.base)
    if (
        base is not None
        and float(apart(cells, layout, rates ** (math.log(base) / math.log(code.base or 1))).max()) <= 4 * allowed
    ):
        fits.append(f"base {base:,.6g}, where {code.base:,.6g} is declared")
    return (f"That is {fits[0]}." if fits else ""), evidence


def _base(speeds: np.ndarray, rates: np.ndarray, declared: float | None) -> float | None:
    """The base whose frequencies were measured, if a power of the declared frequencies gives them."""
    slower = rates < 1
    if declared is None or not slower.any() or (speeds[slower] <= 0).any():
        return None
    return float(declared ** np.median(np.log(speeds[slower]) / np.log(rates[slower])))


# Windows


def _windows(
    tower: ImageTower, codes: Sequence[LayerEncoding], layers: Mapping[int, list[Attended]], image: _PatchedImage
) -> Iterator[str]:
    """Layers in which patches see another number of patches than declared."""
    wrong: dict[tuple[str, str], list[int]] = {}
    for code in codes:
        numbers = layer_numbers(code.layers) if code.layers is not None else set(layers)
        height, width = code.window_area or (image.rows, image.columns)
        tall, wide = (
            np.minimum(size, total - np.arange(total) // size * size)
            for size, total in ((height, image.rows), (width, image.columns))
        )
        declares = np.sort(np.outer(tall, wide), axis=None)
        for layer in sorted(set(layers) & set(numbers)):
            seen = np.sort(np.concatenate([_seen_by(each) for each in layers[layer]]))
            if len(seen) != len(declares) or (seen != declares).any():
                sees = tuple(f"{each.min()} to {each.max()}" if each.min() < each.max() else f"{each.max()}"
                             for each in (seen, declares))  # fmt: skip
                wrong.setdefault((sees[0], sees[1]), []).append(layer)
    for (sees, declares), numbers in wrong.items():
        says = (
            f"{tower.path}, {_layers(numbers)}: a patch sees {sees} patches of an image of {image.rows} x "
            f"{image.columns}, where {declares} are declared."
        )
        yield says


def _seen_by(call: Attended) -> np.ndarray:
    """How many keys each query sees in the first head."""
    assert call.scores is not None
    return (call.scores[0, 0] > _HIDDEN).sum(dim=-1).cpu().numpy()
