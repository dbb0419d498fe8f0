"""`check_batch`: whether the positions of a user's own batch are those that a model expects."""

from typing import Any

import numpy as np

from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown
from clockhands.recognition.calling import Refused, as_numpy
from clockhands.recognition.token_positions import PositionRule, given_batch, rules_of, rules_of_config
from clockhands.testing.positions._position_calls import arranged
from clockhands.testing.positions._position_check import Numbered, judged
from clockhands.testing.reports import Report, settled


def check_batch(
    model: Any,
    input_ids: Any,
    attention_mask: Any = None,
    position_ids: Any = None,
    *,
    image_grid_thw: Any = None,
    video_grid_thw: Any = None,
    second_per_grid_ts: Any = None,
    mm_token_type_ids: Any = None,
    document_ids: Any = None,
    raises: bool = True,
) -> Report:
    """Check that the positions of a batch are those that a model expects, and name the fault if they are not.

    Args:
        model: A loaded model of Transformers, its config, or the name of a family as in `check_positions`: ``"text"``
            is any model whose tokens are counted from 0.
        input_ids: The ids of its tokens, [batch, seq] or [seq], an array of any library.
        attention_mask: Which tokens are no padding, as `input_ids`.
        position_ids: The positions to check, [axes, batch, seq], [batch, seq] or [seq]; a first axis more than the
            family has (the positions of text, as Transformers passes them to packed models) is left out.
        image_grid_thw: The grids of all images in patches, [number, 3].
        video_grid_thw: The grids of all videos, as `image_grid_thw`.
        second_per_grid_ts: The seconds between the frames of each video; 1 unless given.
        mm_token_type_ids: The type of each token; from the ids unless given.
        document_ids: The number of the packed document of each token, as `input_ids`; one document a row unless given.
        raises: Whether wrong positions are raised; else they are in the report.

    Returns:
        The report; where positions are wrong and ``raises`` is false too.

    Accuracy: positions are compared exactly; those of padding are not compared.

    Raises:
        CheckFailed: Positions are wrong; the message is the report.
        InvalidValue, InvalidType: The family is not known, or the arrays do not belong together.

    Source: as `check_positions`.

    >>> import numpy as np
    >>> mask = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    >>> check_batch("text", mask, mask, np.array([[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]), raises=False).codes
    frozenset({'padding-shifts'})
    """
    __tracebackhide__ = True
    rules = _rules(model)
    if position_ids is None:
        raise InvalidType("`position_ids` is missing: the positions to check.", "Pass the positions of the batch.")
    ids = np.atleast_2d(as_numpy(input_ids))
    batch = given_batch(
        rules[0],
        ids,
        mask=_of_tokens("attention_mask", attention_mask, ids),
        grids={"image": _array(image_grid_thw), "video": _array(video_grid_thw)},
        seconds=None if second_per_grid_ts is None else as_numpy(second_per_grid_ts).ravel().tolist(),
        types=_of_tokens("mm_token_type_ids", mm_token_type_ids, ids),
        documents=_of_tokens("document_ids", document_ids, ids),
    )
    axes = len(rules[0].axes)
    got = as_numpy(position_ids)
    if got.ndim == 3 and got.shape[0] == axes + 1:
        got = got[1:]
    try:
        answer = Numbered(batch, arranged(got, axes, *batch.shape).astype(np.float64), None)
    except Refused as error:
        raise InvalidValue(
            f"`position_ids` has another shape than the batch: {str(error).removeprefix('it returned ')}.",
            "Pass the positions of all tokens of the batch.",
        ) from None
    return settled(judged("the batch", rules, [answer], {}, {"library": "numpy", "dtype": str(got.dtype)}), raises)


def _rules(model: Any) -> tuple[PositionRule, ...]:
    if isinstance(model, str | PositionRule | tuple):
        return rules_of(model)
    config = getattr(model, "config", model)
    rules = rules_of_config(config)
    if rules is None:
        raise InvalidValue(
            f"No position rule is known for {shown(getattr(config, 'model_type', type(model).__name__))}.",
            'Pass the family in place of the model: "text" if its tokens are counted from 0.',
        )
    return rules


def _array(value: Any) -> np.ndarray | None:
    return None if value is None else as_numpy(value).reshape(-1, 3)


def _of_tokens(name: str, value: Any, ids: np.ndarray) -> np.ndarray | None:
    """An array with a number for each token, or None; raises `InvalidValue` for another shape."""
    if value is None:
        return None
    array = np.atleast_2d(as_numpy(value))
    if array.shape != ids.shape:
        raise InvalidValue(
            f"`{name}` has the shape {list(array.shape)}, but `input_ids` has {list(ids.shape)}.",
            f"Pass `{name}` with one number for each token.",
        )
    return array
