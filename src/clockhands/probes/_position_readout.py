"""Measures where in a model the position can be read: ridge regression from hidden states, on held-out text."""

from contextlib import ExitStack

import numpy as np
import torch
from torch import Tensor, nn

MOST_LAYERS = 7
_PENALTIES = np.geomspace(1e-7, 10, 17)
"""Of the largest eigenvalue."""
_FOLDS, _ALONE = 3, 1e-3


def layers_read(number: int) -> list[int]:
    """At most `MOST_LAYERS` of so many hidden states, evenly spaced, the first and the last among them.

    >>> layers_read(7), layers_read(31)
    ([0, 1, 2, 3, 4, 5, 6], [0, 5, 10, 15, 20, 25, 30])
    """
    return sorted({int(each) for each in np.linspace(0, number - 1, min(number, MOST_LAYERS)).round()})


def read_position(states: np.ndarray, fitted: int) -> float:
    """R2 of the position in the last windows, by ridge regression on the first ones.

    The penalty is chosen by cross-validation over the first windows. Whole windows are held out, since all windows have
    the same positions, so holding out single tokens would hold out nothing.

    Args:
        states: Hidden states, [windows, length, width].
        fitted: Windows that are fitted, at least 1; the rest is judged.
    """
    places = np.arange(states.shape[1], dtype=np.float64)
    places -= places.mean()
    known = states[:fitted].astype(np.float64)
    folds = np.array_split(np.arange(fitted), min(_FOLDS, fitted)) if fitted > 1 else []
    errors = np.zeros(len(_PENALTIES))
    for fold in folds:
        left_out = np.isin(np.arange(fitted), fold)
        errors += _errors(known[~left_out], known[left_out], places)
    best = int(errors.argmin()) if folds else int(np.searchsorted(_PENALTIES, _ALONE))
    judged = states[fitted:].astype(np.float64)
    return 1 - float(_errors(known, judged, places)[best] / (len(judged) * (places**2).sum()))


def _errors(known: np.ndarray, judged: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Sum of squared errors of the position in the judged windows, for each penalty."""
    width = known.shape[-1]
    mean = known.mean((0, 1))
    x, other = (each.reshape(-1, width) - mean for each in (known, judged))
    y, expected = np.tile(places, len(known)), np.tile(places, len(judged))
    sizes, directions = np.linalg.eigh(x.T @ x)
    if not sizes[-1] > 0:
        return np.full(len(_PENALTIES), float((expected**2).sum()))
    meets, seen = directions.T @ (x.T @ y), other @ directions
    weights = meets[:, None] / (sizes.clip(0)[:, None] + _PENALTIES * sizes[-1])
    return ((expected[:, None] - seen @ weights) ** 2).sum(0)


def hidden_states(module: nn.Module, window: Tensor, positions: Tensor | None) -> list[Tensor]:
    """The input of the first layer and the output of each layer, [length, width] each."""
    base: nn.Module = getattr(module, "base_model", module)
    with torch.no_grad():
        if hasattr(base, "config"):
            given = {} if positions is None else {"position_ids": positions[None]}
            return [each[0] for each in base(window[None], output_hidden_states=True, **given).hidden_states]
        kept: list[Tensor] = []
        own: object = base.blocks
        assert isinstance(own, nn.ModuleList)
        with ExitStack() as hooks:
            hooks.enter_context(own[0].register_forward_pre_hook(lambda _, args: kept.append(args[0][0])))
            for block in own:
                hooks.enter_context(block.register_forward_hook(lambda _, __, y: kept.append(y[0])))
            base(window[None], positions)
        return kept
