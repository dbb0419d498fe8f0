"""Figures of the effect of a code on attention: kernel, wavelengths and a length, rounding, biases, two sentences."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from clockhands.arguments import count, one_of, shown
from clockhands.encodings.biases import bias as bias_of
from clockhands.encodings.biases.codes import BiasCode
from clockhands.encodings.rotary import Rotary
from clockhands.errors import InvalidType
from clockhands.measures import (
    completes,
    first_negative,
    first_rise,
    kernel_bound,
    kernel_by_distance,
    phase_errors,
    turned_beyond,
)
from clockhands.measures.order.sentences import sentence_weights
from clockhands.show._asked import evenly, extremes, several, two_sentences
from clockhands.show._colours import Theme, colours, signed_colours
from clockhands.show._frames import clock_of, dressed, frame, name_end, said

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TURN = 2 * math.pi
_EXACT = 2.0**-53 * 2 * 0.78  # 0.78 ulp of 1, the bound that `clockhands.encodings.phases` derives
_LINES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
_SENTENCES = ("dog bites man", "man bites dog")
_CODES = {"sinusoidal": "the sinusoidal code", "rotary": "RoPE", "alibi": "ALiBi"}
_DTYPES = ("float64", "float32", "float16", "bfloat16")
_SAME_WEIGHT = 1e-12  # a smaller difference of two weights is rounding


def kernel(spec: Any, other: Any = None, *, length: int = 2048, theme: Theme = "light") -> "Figure":
    """What does a dot product know? ``sum_i cos(rate_i distance)``, its mean over the pairs, against distance.

    Args:
        spec: A code with dimension pairs.
        other: A second one to compare with.
        length: Number of distances, from 0 on.
        theme: The set of colours.

    Raises:
        InvalidType, InvalidValue: A spec has no pairs along one axis, or the length is invalid.
        NotInstalled: matplotlib is not installed.
    """
    length = count("length", length, 2)
    told, curves = [], []
    specs = [spec] if other is None else [spec, other]
    names = [type(each).__name__ for each in specs]
    if len(set(names)) < len(names):
        names = ["the first", "the second"]
    for each, name in zip(specs, names, strict=True):
        ladder = clock_of(each).ladder
        values, bound = kernel_by_distance(ladder, length), kernel_bound(ladder.pairs)
        rise, negative = first_rise(values, bound), first_negative(values, bound)
        curves.append((name, values / ladder.pairs, rise, negative))
        falls = "never rises" if rise is None else f"first rises after distance {rise:,}"
        below = "stays above 0" if negative is None else f"is first negative at {negative:,}"
        told.append(
            f"{'It' if other is None else name[0].upper() + name[1:]} {falls} and {below}, of {length:,} distances."
        )
    figure = frame(theme, 2.8, "What does a dot product know?", " ".join(told))
    axes = dressed(figure.add_subplot(), theme, "distance (token)", "mean cosine over the pairs")
    chosen = colours(theme)
    axes.axhline(0, color=chosen["rule"], lw=1)
    for (name, values, rise, negative), hue, dash in zip(curves, ("ink", "quiet"), _LINES, strict=False):
        axes.plot(*extremes(values), color=chosen[hue], lw=1.25, ls=dash)
        if other is not None:
            name_end(axes, len(values) - 1, float(values[-1]), name, chosen.get(f"{hue}-ink", chosen[hue]))
        for at, shape in ((rise, "^"), (negative, "v")):
            if at is not None:
                axes.plot([at], [values[at]], shape, color=chosen["ink"], mec=chosen["paper"], ms=9)
    kinds = (("▲ first rise", 2), ("▼ first negative", 3))
    marks = "  ".join(words for words, place in kinds if any(curve[place] is not None for curve in curves))
    axes.text(1, 1, marks, ha="right", va="bottom", transform=axes.transAxes, size=8.5, color=chosen["quiet"])
    axes.set_xlim(0, length - 1)
    return figure


def ladder(spec: Any, length: int | None = None, *, served: int | None = None, theme: Theme = "light") -> "Figure":
    """Is this ladder fit for this length? The wavelengths on a logarithmic axis, before a scaling and after it.

    Args:
        spec: A code with dimension pairs; for a rotary code with a scaling, the wavelengths without it are also shown.
        length: The trained length in tokens; by default the original length of the scaling, or 2,048 without a scaling.
        served: The length in tokens at which it is used.
        theme: The set of colours.

    Raises:
        InvalidType, InvalidValue: The spec has no pairs along one axis, or a length is invalid.
        NotInstalled: matplotlib is not installed.
    """
    original = getattr(getattr(spec, "scaling", None), "original", None)
    known = length is not None or original is not None
    length = count("length", (original or 2048) if length is None else length)
    served = None if served is None else count("served", served)
    rates = clock_of(spec).ladder.rates
    plain = replace(spec, scaling=None, length=None) if isinstance(spec, Rotary) and spec.scaling is not None else None
    before = None if plain is None else clock_of(plain).ladder.rates
    old = before or rates
    never = [not completes(rate, length) for rate in old]
    unscaled, trained = "" if before is None else " before the scaling", "the trained " if known else ""
    complete = "completes" if sum(never) == 1 else "complete"
    answer = (
        f"{sum(never)} of {len(rates)} pairs never {complete} a rotation within {trained}{length:,} tokens{unscaled}."
    )
    beyond = (False,) * len(rates)
    if served is not None:
        beyond = turned_beyond(old, rates, length, served)
        answer += f" At {served:,} {sum(beyond) or 'none'} of them rotate further than in training."
    figure = frame(theme, 1.3 if before is None else 1.9, "Do these frequencies fit this length?", answer)
    chosen = colours(theme)
    axes = dressed(figure.add_subplot(), theme, "wavelength (token), log", "")
    axes.set_xscale("log")
    rows = [(0.0, rates, length if served is None or before is None else served, beyond)]
    if before is not None:
        rows.append((1.0, before, length, (False,) * len(rates)))
        for first, last in zip(before, rates, strict=True):
            if first and last:
                axes.plot([_TURN / first, _TURN / last], [0.75, 0.25], color=chosen["rule"], lw=0.6, zorder=0)
    for row, ladder, within, far in rows:
        for kind, colour, low in (("turning", "ink", -0.1), ("never", "cosine-ink", -0.25), ("beyond", "error", -0.25)):
            waves = [
                _TURN / rate
                for rate, further in zip(ladder, far, strict=True)
                if rate and (("beyond" if further else "turning" if completes(rate, within) else "never") == kind)
            ]
            axes.vlines(waves, row + low, row + 0.25, color=chosen[colour], lw=1.1)
            if kind == "beyond":
                axes.plot(waves, [row + low] * len(waves), "v", color=chosen[colour], ms=3)
    named = [(length, f"trained {length:,}" if known or served is not None else f"{length:,} tokens", (0, (2, 2)))]
    named += [] if served is None else [(served, f"served {served:,}", "-")]
    for place, (at, words, dash) in enumerate(named):
        axes.axvline(at, color=chosen["ink"], lw=1.25, ls=dash)
        above: Any = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "annotation_clip": False}
        axes.annotate(words, (at, 1), (3, 1 + 11 * place), size=8.5, color=chosen["quiet"], **above)
    axes.set_yticks([row for row, *_ in rows], ["pairs"] if before is None else ["scaled", "as trained"])
    axes.set_ylim(-0.5, 0.6 if before is None else 1.5)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def precision(
    spec: Any, dtypes: Sequence[str] = ("float64", "float32", "float16", "bfloat16"), *, way: str = "throughout",
    theme: Theme = "light",
) -> "Figure":  # fmt: skip
    """When do numbers lie? The largest error of any pair's angle against position, a line for each dtype.

    Positions are odd, one in each half octave, because every dtype represents powers of two exactly.

    Args:
        spec: A code with dimension pairs.
        dtypes: The dtypes to which each step is rounded.
        way: Which steps are rounded, one of `clockhands.measures.ladders._angle_errors.WAYS`.
        theme: The set of colours.

    Raises:
        InvalidType, InvalidValue: The spec has no pairs along one axis, or a name is unknown.
        NotInstalled: matplotlib is not installed.
    """
    found = clock_of(spec).ladder
    at = sorted({int(2 ** (half / 2)) | 1 for half in range(2, 61)})
    errors: dict[str, NDArray[np.float64]] = {}
    for dtype in several("dtypes", dtypes, f"names such as {_DTYPES[0]}", len(_DTYPES)):
        one_of("dtypes", dtype, _DTYPES, "Give some of these names.")
        with np.errstate(invalid="ignore"):
            sizes = np.abs(phase_errors(found, at, dtype, way)).max(axis=1)
        errors[dtype] = np.where(np.isfinite(sizes), sizes, np.nan)
    told = []
    for dtype, sizes in errors.items():
        lost = np.flatnonzero(~(sizes < 1))
        off = (
            f"by a radian from position {at[lost[0]]:,} on" if lost.size else f"by less than a radian up to {at[-1]:,}"
        )
        told.append(f"{dtype} is off {off}")
    answer = f"Computed {'in each dtype throughout' if way == 'throughout' else way}, {'; '.join(told)}."
    figure = frame(theme, 3.0, "When do numbers lie?", answer)
    axes = dressed(figure.add_subplot(), theme, "position (token), log", "largest error of an angle (rad), log")
    chosen = colours(theme)
    axes.set_xscale("log")
    axes.set_yscale("log")
    hues = ("quiet", "ink", "quiet", "error")
    for number, (dtype, sizes) in enumerate(errors.items()):
        shown_at = np.where(sizes > 0, sizes, np.nan)
        hue = hues[number % len(hues)]
        axes.plot(at, shown_at, color=chosen[hue], lw=1.5, ls=_LINES[number % len(_LINES)])
        last = np.flatnonzero(np.isfinite(shown_at))
        if last.size:
            name_end(axes, at[last[-1]], float(shown_at[last[-1]]), dtype, chosen.get(f"{hue}-ink", chosen[hue]))
    axes.axhline(_EXACT, color=chosen["ink"], lw=1.5)
    name_end(axes, at[-1], _EXACT, "exact", chosen["ink"])
    axes.axhline(_TURN, color=chosen["rule"], lw=1)
    axes.text(at[0], _TURN, "a whole rotation", va="bottom", size=8.5, color=chosen["quiet"])
    axes.set_xlim(at[0], at[-1])
    return figure


def bias(spec: Any, length: int = 256, *, values: Any = None, theme: Theme = "light") -> "Figure":
    """How far does each head look? The bias of a key by its distance before the query, a line for each head.

    Args:
        spec: A bias.
        length: Number of distances, from 0 on.
        values: Learned numbers, if the code has some.
        theme: The set of colours.

    Raises:
        InvalidType, InvalidValue: It is not a bias, or its learned numbers are missing or of another shape.
        NotInstalled: matplotlib is not installed.
    """
    if not isinstance(spec, BiasCode):
        raise InvalidType(f"This figure shows a bias, got {shown(spec)}.", "Give a bias such as Alibi(heads=8).")
    length = count("length", length, 2)
    distances = sorted({*evenly(length), length - 1})
    keys = [length - 1 - distance for distance in distances]
    made = np.asarray(bias_of(spec, [length - 1], keys, values=values, dtype="float64"), np.float64)
    numbers = made[:, 0]
    heads = len(numbers)
    last = numbers[:, -1] - numbers[:, 0]
    least, most = int(last.argmin()), int(last.argmax())
    answer = (
        f"{heads} heads over {length:,} tokens. A key {length - 1:,} tokens back gets {said(float(last[least]), 3)}"
        f" beside one at the query in head {least}, and {said(float(last[most]), 3)} in head {most}."
    )
    figure = frame(theme, 2.8, "How far does each head look?", answer)
    axes = dressed(figure.add_subplot(), theme, "distance (token)", "added to the score")
    chosen = colours(theme)
    for head in range(heads):
        axes.plot(distances, numbers[head], color=chosen["ink"], lw=1.25, alpha=1 - 0.7 * head / max(heads - 1, 1))
    room = max(float(np.ptp(numbers)), 1e-9) / 18
    ends: list[float] = []
    for head in np.argsort(numbers[:, -1]):
        end = float(numbers[head, -1])
        if not ends or end - ends[-1] > room:
            name_end(axes, length - 1, end, f"head {head}", chosen["quiet"])
            ends.append(end)
    axes.set_xlim(0, length - 1)
    return figure


def attention(
    code: Literal["sinusoidal", "rotary", "alibi"] = "sinusoidal",
    *,
    sentences: tuple[str, str] = _SENTENCES,
    seed: int = 0,
    theme: Theme = "light",
) -> "Figure":
    """Can it see order? Attention weights of two orders of the same words, without a code and with one.

    One head of a layer with random weights and words, 32 channels and two heads, as on the explorer's page. Rows and
    columns are in the order of the first sentence in all four, so that equal weights look equal.

    Args:
        code: ``sinusoidal``, ``rotary``, or ``alibi`` in its symmetric form, since nothing is masked.
        sentences: Two orders of the same words, each once.
        seed: The random seed.
        theme: The set of colours.

    Raises:
        InvalidValue, InvalidType: The code is unknown, the sentences are not the same words, or too long, or the seed
            is not a whole number from 0 on.
        NotInstalled: matplotlib is not installed.
    """
    one_of("code", code, _CODES, "Pass one of them.")
    words, others = two_sentences("sentences", sentences)
    seed = count("seed", seed, 0)
    order = np.array([others.index(word) for word in words])
    made = {}
    for which in ("none", code):
        first, second = sentence_weights(words, which, seed), sentence_weights(others, which, seed)
        second = second[np.ix_(order, order)]
        made[which] = (first, second, float(np.abs(first - second).max()))
    moved = made[code][2]
    if moved > _SAME_WEIGHT:
        with_code = f"With {_CODES[code]} it can: a weight moves by up to {said(moved, 2)}."
    else:
        same = f"differ by {said(moved, 2)}, which is rounding" if moved else "are the same to the last bit"
        with_code = f"With {_CODES[code]} it cannot either: the weights {same}."
        if code == "alibi" and others == words[::-1]:
            with_code += " Without a causal mask, ALiBi depends on the distance of a word, not on its side."
    answer = (
        "Without a position encoding it cannot: in both sentences each word gives the same weight to every word"
        f"{', but for rounding' if made['none'][2] else ''}. {with_code}"
    )
    figure = frame(theme, 4.6, "Can it see order?", answer)
    chosen = colours(theme)
    grid = figure.subplots(2, 2)
    for line, which in enumerate(("none", code)):
        for column, text in enumerate(sentences):
            axes = dressed(grid[line][column], theme, "", "")
            matrix = made[which][column]
            axes.imshow(matrix, cmap=_upper_half(theme), vmin=0, vmax=1)
            title = f"“{text}”, {'no code' if which == 'none' else code}".replace("$", r"\$")
            axes.set_title(title, size=9.5, color=chosen["ink"], loc="left")
            axes.set_xticks(range(len(words)), words)
            axes.set_yticks(range(len(words)), words)
            axes.tick_params(length=0)
            for (row, key), weight in np.ndenumerate(matrix):
                ink = chosen["paper"] if weight > 0.55 else chosen["ink"]
                axes.text(key, row, f"{weight:.2f}", ha="center", va="center", size=9, color=ink)
            if column == 0:
                axes.set_ylabel("query", size=9, color=chosen["quiet"], loc="top")
            if line == 1:
                axes.set_xlabel("key; weight of each", size=9, color=chosen["quiet"], loc="right")
    return figure


def _upper_half(theme: Theme) -> Any:
    """A colour map for numbers from 0 up: the upper half of the signed one."""
    from matplotlib.colors import ListedColormap

    return ListedColormap(signed_colours(np.linspace(0, 1, 257), theme).tolist())
