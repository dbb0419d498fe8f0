"""Measures how the attention of a running tower rotates queries and keys, and which patches its layers see.

Every attention is given the same vector for all tokens: queries and keys of a layer then differ by the rotation alone,
whatever other tokens, tables and layers do. Those of two vectors are rows to which a rotation is fitted.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.configs.resolved import LayerEncoding, layer_numbers, numbered_layers
from clockhands.encodings.layouts import Layout, pair_channels
from clockhands.encodings.rotary import Rotary
from clockhands.errors import InvalidValue
from clockhands.models.attention_inputs import HIDDEN, Attended, attended
from clockhands.models.first_attention import NO_PATCH
from clockhands.models.fitted_rotations import fitted
from clockhands.models.layer_rotations import tolerance
from clockhands.models.tower_inputs import PatchedImage, SmallInput
from clockhands.phrases import listed

Layers = Mapping[int, Sequence[Attended]]
"""What the attention of each layer is given; a layer is called once for each of its windows."""


def equal_tokens(part: nn.Module, given: SmallInput, paths: Sequence[str]) -> list[Layers]:
    """Two passes in which each attention gets one vector for all tokens, another one in each pass.

    Raises:
        InvalidValue: Positions are in what its projections give, or it has none.
    """
    return [_pass(part, given, paths, seed) for seed in (0, 1)]


def _pass(part: nn.Module, given: SmallInput, paths: Sequence[str], seed: int) -> Layers:
    with attended(part, scores=True) as seen, _equal_states(part, paths, seed, seen), torch.no_grad():
        part(**given.given(0))
    layers: dict[int, list[Attended]] = {}
    for each in seen:
        layers.setdefault(each.layer, []).append(each)
    return layers


@contextmanager
def _equal_states(part: nn.Module, paths: Sequence[str], seed: int, seen: Sequence[Attended]) -> Iterator[None]:
    """The same vector for all tokens in each of these modules, whose projections before the attention are watched."""
    projected: dict[str, int] = {}

    def enters(module: nn.Module, args: Any, kwargs: Any, path: str) -> Any:
        projected[path] = len(seen)
        name = next(iter(inspect.signature(module.forward).parameters))
        states: Tensor = args[0] if args else kwargs[name]
        drawn = torch.randn(states.shape[-1], generator=torch.Generator().manual_seed(seed)).to(states)
        same = drawn.expand_as(states).contiguous()
        return ((same, *args[1:]), kwargs) if args else (args, {**kwargs, name: same})

    def projects(_: nn.Module, __: Any, output: Any, path: str) -> None:
        if len(seen) > projected.get(path, 0) or not isinstance(output, Tensor):
            return
        rows = output.detach().reshape(-1, output.shape[-1])
        if float((rows - rows[:1]).abs().max()) > tolerance(rows.dtype) * float(rows.abs().max()):
            raise InvalidValue("positions are already in what the projections of its attention give", "")
        found.add(path)

    found: set[str] = set()
    with ExitStack() as hooks:
        for path in paths:
            module = part.get_submodule(path)
            hooks.enter_context(module.register_forward_pre_hook(_of(enters, path), with_kwargs=True))
            for each in module.modules():
                if isinstance(each, nn.Linear):
                    hooks.enter_context(each.register_forward_hook(_of(projects, path)))
        yield
    if found != set(paths):
        raise InvalidValue("its attention module holds no projections", "")


def _of(hook: Callable[..., Any], path: str) -> Callable[..., Any]:
    return lambda *given: hook(*given, path)


# Rotation


def wrong_rotations(
    codes: Sequence[LayerEncoding], passes: Sequence[Layers], image: PatchedImage | None, order: np.ndarray
) -> Iterator[str]:
    """What is wrong with the rotation of each layer; layers that differ in the same way are one sentence.

    Args:
        codes: What the config declares: rotations by row and column, or by the number of a token.
        passes: As `equal_tokens` gives them.
        image: The patches; None for audio.
        order: Which of the given patches each token is, or `NO_PATCH`; for audio the numbers of tokens.
    """
    wrong: dict[tuple[str, str], list[int]] = {}
    first: dict[tuple[str, str], str] = {}
    tokens, others = np.flatnonzero(order != NO_PATCH), np.flatnonzero(order == NO_PATCH)
    for code in codes:
        for layer in _layers_of(code, passes[0]):
            sides = {
                which: np.concatenate([_by_token(each[layer], which) for each in passes], axis=1)
                for which in ("queries", "keys")
            }
            rows = np.concatenate(list(sides.values()), axis=1)
            allowed = tolerance(passes[0][layer][0].queries.dtype)
            found = _rotation(rows[tokens], code, image, order[tokens], allowed)
            if found is not None and not found[0]:
                of_sides = {which: _rotation(each[tokens], code, image, order[tokens], allowed)
                            for which, each in sides.items()}  # fmt: skip
                found = _of_one_side(of_sides) or found
            elif found is None and code.coordinates is not None and len(others):
                found = _moved(rows[[others[0], *tokens]], code, image, order[tokens], allowed)
            if found is not None:
                fault, evidence = found
                wrong.setdefault((fault, str(code.layers)), []).append(layer)
                first.setdefault((fault, str(code.layers)), evidence)
    for key, layers in wrong.items():
        yield f"{numbered_layers(layers)}: {first[key]} {key[0]}".strip()


def _layers_of(code: LayerEncoding, layers: Layers) -> list[int]:
    """The layers of a code that ran."""
    return sorted(set(layers) & set(layer_numbers(code.layers) if code.layers is not None else layers))


def _by_token(calls: Sequence[Attended], which: str) -> np.ndarray:
    """Queries or keys of one layer as [tokens, heads, channels], float64; windows are calls of their own."""
    heads = [getattr(each, which)[0].double().cpu().numpy() for each in calls]
    return np.concatenate(heads, axis=1).transpose(1, 0, 2)


def _coordinates(code: LayerEncoding, cells: np.ndarray, image: PatchedImage | None) -> np.ndarray:
    """What tokens at these cells are rotated by."""
    if code.coordinates is None or image is None:
        return cells
    factor, first, last = (code.coordinates[name] for name in ("factor", "first", "last"))
    return factor * (first + (last - first) * (cells + 0.5) / (image.rows, image.columns))


def _rotation(
    rows: np.ndarray, code: LayerEncoding, image: PatchedImage | None, order: np.ndarray, allowed: float
) -> tuple[str, str] | None:
    """What is wrong with the rotation of tokens [tokens, rows, channels]: the fault, and the first numbers."""
    spec = code.spec
    assert isinstance(spec, Rotary)
    layout: Layout = "interleaved" if code.layout == "interleaved" else "halves"
    other: Layout = "interleaved" if layout == "halves" else "halves"
    axes = np.array(spec.axes if spec.axes is not None else (0,) * len(spec.rates))
    rates = np.array(spec.rates)
    cells = order[:, None] if image is None else image.cells[order]
    inside, places = rows[..., : spec.rotated], _coordinates(code, cells, image)
    made = {each: fitted(inside, pair_channels(len(rates), each)) for each in (layout, other)}

    def apart(reals: np.ndarray, paired: Layout = layout, speeds: np.ndarray = rates, start: int = 0) -> np.ndarray:
        """How far pairs are from phases beside those of the first token, or of another one from which on is looked."""
        pairs = pair_channels(len(rates), paired)
        cosine, sine, left = made[paired] if start == 0 else fitted(inside[start:], pairs)
        phases = (reals[start:] - reals[start])[:, axes] * speeds
        far = np.maximum(np.abs(cosine - np.cos(phases)), np.abs(sine - np.sin(phases)))
        return np.where(left <= allowed, far, np.maximum(far, left))

    far = apart(places)
    if float(far.max()) <= 4 * allowed:
        return None
    token, pair = (int(at) for at in np.unravel_index(int(far.argmax()), far.shape))
    phase = float((places[token] - places[0])[axes[pair]] * rates[pair])
    cosine, sine, left = made[layout]
    where = f"token {token}" if image is None else "the patch at row {}, column {}".format(*cells[token])
    evidence = (
        f"the channels of layout {layout} are not rotated in pairs, {left:.2g} of their size is left over."
        if left > allowed
        else f"pair {pair} of {where} has cosine {cosine[token, pair]:.4f} and sine {sine[token, pair]:.4f}, where "
        f"{math.cos(phase):.4f} and {math.sin(phase):.4f} are declared."
    )
    suspects: dict[str, np.ndarray] = {
        "no rotation": apart(0 * places),
        f"the layout {other}, where {layout} is declared": apart(places, other),
    }
    if image is not None:
        suspects |= {
            phrase: apart(_coordinates(code, at, image)) for phrase, at in _misplaced(code, image, cells, order)
        }
        suspects["rows and columns exchanged"] = apart(places[:, ::-1])
        suspects[f"rows and columns exchanged and the layout {other}"] = apart(places[:, ::-1], other)
        for which, by in (("before", -1), ("after", 1)):  # the first or the last patch may have any place
            beside = np.stack(np.divmod(cells @ (image.columns, 1) + by, image.columns), axis=-1)
            suspects[f"each patch rotated as the one {which} it"] = apart(_coordinates(code, beside, image), start=1)[
                :-1
            ]
    speeds = _speeds(cosine, sine, places[:, axes])
    if (base := _base(speeds, code)) is not None:
        powers = rates ** (math.log(base) / math.log(code.base or 1))
        suspects[f"base {base:,.6g}, where {code.base:,.6g} is declared"] = apart(places, speeds=powers)
    slow = np.isfinite(speeds)
    if set(axes[slow]) == set(axes):
        factors = [float(np.median((speeds / rates)[slow & (axes == axis)])) for axis in sorted(set(axes))]
        times = listed([*dict.fromkeys(f"{each:.4g}" for each in factors)])
        suspects[f"positions multiplied by {times}"] = apart(places * factors)
    fits = [phrase for phrase, far in suspects.items() if float(far.max()) <= 4 * allowed]
    return (f"That is {fits[0]}." if fits else ""), evidence


def _of_one_side(of_sides: Mapping[str, tuple[str, str] | None]) -> tuple[str, str] | None:
    """What is wrong where queries or keys alone are as declared; None where that is not so."""
    wrong = {which: found for which, found in of_sides.items() if found is not None}
    if len(wrong) != 1:
        return None
    ((which, (fault, evidence)),) = wrong.items()
    return fault, f"{which} alone are not rotated as declared: {evidence}"


def _moved(
    rows: np.ndarray, code: LayerEncoding, image: PatchedImage | None, order: np.ndarray, allowed: float
) -> tuple[str, str] | None:
    """What is wrong with the coordinates of patches beside a token that does not rotate, the first of these rows.

    Differences between patches are as declared: all coordinates may still be moved by a constant.
    """
    assert isinstance(code.spec, Rotary)
    assert image is not None
    axes, rates = np.array(code.spec.axes), np.array(code.spec.rates)
    cells = image.cells[order]
    places = np.concatenate([np.zeros((1, 2)), _coordinates(code, cells, image)])
    layout: Layout = "interleaved" if code.layout == "interleaved" else "halves"
    cosine, sine, left = fitted(rows[..., : code.spec.rotated], pair_channels(len(rates), layout))
    found = (cosine + 1j * sine)[1:]
    wanted = np.exp(1j * places[1:, axes] * rates)
    if left > allowed or float(np.abs(found - wanted).max()) <= 4 * allowed:
        return None
    token, pair = (int(at) for at in np.unravel_index(int(np.abs(found - wanted).argmax()), found.shape))
    evidence = (
        f"beside tokens that are no patches, pair {pair} of the patch at row {cells[token, 0]}, column "
        f"{cells[token, 1]} has cosine {found[token, pair].real:.4f} and sine {found[token, pair].imag:.4f}, where "
        f"{wanted[token, pair].real:.4f} and {wanted[token, pair].imag:.4f} are declared; differences between patches "
        "are as declared."
    )
    turned = np.angle((found / wanted).mean(axis=0))
    slowest = [min(np.flatnonzero(axes == axis), key=lambda pair: rates[pair]) for axis in (0, 1)]
    by = np.round(turned[slowest] / rates[slowest], 4) + 0.0
    if float(np.abs(found - wanted * np.exp(1j * by[axes] * rates)).max()) > 8 * allowed:
        return "", evidence
    return f"That is the coordinates of rows moved by {by[0]:.4g} and those of columns by {by[1]:.4g}.", evidence


def _misplaced(
    code: LayerEncoding, image: PatchedImage, cells: np.ndarray, order: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """Usual faults of patches at cells, each with the cells that it gives."""
    if image.block > 1:
        in_rows = np.stack(np.divmod(order, image.columns), axis=-1)
        yield "patches counted row by row, where they are given in blocks", in_rows
        yield "tokens in windows rotated as patches in the order in which they are given", image.cells
        yield "the cells of merged patches in place of those of patches", cells // image.block
    if code.window_area is not None:
        yield "rows and columns counted from the beginning of each window", cells % code.window_area


def _speeds(cosine: np.ndarray, sine: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The frequency of each pair over the shortest step along its axis; NaN where none is smaller than half a turn."""
    steps, pairs = places - places[0], range(places.shape[1])
    step = np.where(steps > 0, steps, np.inf).argmin(axis=0)
    speeds = np.arctan2(sine[step, pairs], cosine[step, pairs]) / np.maximum(steps[step, pairs], 1e-30)
    return np.where(np.abs(speeds) * steps[step, pairs] < math.pi / 2, speeds, np.nan)


def _base(speeds: np.ndarray, code: LayerEncoding) -> float | None:
    """The base whose frequencies were measured, if a power of the declared frequencies gives them."""
    assert isinstance(code.spec, Rotary)
    rates = np.array(code.spec.rates)
    slower = (rates < 1) & (speeds > 0)
    if code.base is None or not slower.any():
        return None
    return float(code.base ** np.median(np.log(speeds[slower]) / np.log(rates[slower])))


# Windows


def wrong_windows(codes: Sequence[LayerEncoding], layers: Layers, image: PatchedImage, others: int) -> Iterator[str]:
    """Layers in which patches see another number of patches than declared.

    Args:
        codes: What the config declares.
        layers: What the attention of each layer is given, with scores.
        image: The patches.
        others: Tokens that are no patches; all tokens see them.
    """
    wrong: dict[tuple[str, str], list[int]] = {}
    for code in codes:
        height, width = code.window_area or (image.rows, image.columns)
        tall, wide = (
            np.minimum(size, total - np.arange(total) // size * size)
            for size, total in ((height, image.rows), (width, image.columns))
        )
        of_others = np.full(others, image.rows * image.columns + others)
        declares = np.sort(np.append(np.outer(tall, wide) + others, of_others))
        for layer in _layers_of(code, layers):
            seen = np.sort(np.concatenate([_seen_by(each) for each in layers[layer]]))
            if len(seen) != len(declares) or (seen != declares).any():
                sees = tuple(f"{each.min()} to {each.max()}" if each.min() < each.max() else f"{each.max()}"
                             for each in (seen, declares))  # fmt: skip
                wrong.setdefault((sees[0], sees[1]), []).append(layer)
    for (sees, declares), numbers in wrong.items():
        yield (
            f"{numbered_layers(numbers)}: a patch sees {sees} patches of an image of {image.rows} x "
            f"{image.columns}, where {declares} are declared."
        )


def _seen_by(call: Attended) -> np.ndarray:
    """How many keys each query sees in the first head."""
    assert call.scores is not None
    return (call.scores[0, 0] > HIDDEN).sum(dim=-1).cpu().numpy()
