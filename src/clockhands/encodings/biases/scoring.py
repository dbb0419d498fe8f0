"""Shape checks for adding a bias to attention scores, so that no wrong broadcasting happens silently."""

from typing import Any

from clockhands.encodings.biases.codes import BiasCode
from clockhands.encodings.dtypes import float_of
from clockhands.encodings.positions import refuse_no_array, refuse_single
from clockhands.encodings.sharding import refuse_sharded
from clockhands.encodings.traces import counted
from clockhands.errors import InvalidValue
from clockhands.phrases import shown


def positions_beside(scores: Any, spec: BiasCode, queries: Any, keys: Any) -> tuple[Any, Any]:
    """The positions of the rows and columns of scores, as arguments of `clockhands.bias`; counts where none are given.

    Raises:
        InvalidValue: The scores are not [..., heads, queries, keys] for the heads of this bias.
        InvalidType: The scores are not a float array, or an array without axes was given as positions.
    """
    refuse_no_array(scores, "scores", "Give queries @ keys.")
    refuse_sharded(scores, "scores", "Pass scores.to_local(), to a bias with heads=range(…) if they are of some heads.")
    shape = tuple(scores.shape)
    float_of(scores, "scores", "Convert them to float32 first: whole numbers would lose the bias.")
    if len(shape) < 3 or shape[-3] != spec.heads:
        raise InvalidValue(
            f"`scores` must be of shape [..., {spec.heads}, queries, keys] for a bias of {spec.heads} heads, "
            f"got {list(shape)}.",
            "The axis of the heads must come directly before queries and keys.",
        )
    for given, name in ((queries, "queries"), (keys, "keys")):
        if not isinstance(given, int):  # a count, as `clockhands.bias` takes it
            refuse_single(given, name)
    rows, columns = shape[-2:]
    if queries is None:  # an exported graph may have symbolic sizes
        queries = rows if isinstance(rows, int) else counted(columns - rows, rows, scores)
    if keys is None:
        keys = columns if isinstance(columns, int) else counted(0, columns, scores)
    return queries, keys


def beside(scores: Any, bias: Any) -> Any:
    """The bias reshaped to the axes of the scores; a batch of positions is axis 0.

    Raises:
        InvalidValue: The sizes differ from those of the scores.
    """
    made, shape = tuple(bias.shape), tuple(scores.shape)
    batched = len(made) == 4
    if made[-3:] == shape[-3:] and (not batched or (len(shape) > 3 and made[0] in (1, shape[0]))):
        return bias.reshape((made[0], *(1,) * (len(shape) - 4), *made[1:])) if batched else bias
    raise InvalidValue(
        f"These positions give a bias of shape {shown(list(made))}, but `scores` are of shape {list(shape)}.",
        "Give a position for each row and each column of the scores: [seq], or [batch, seq] where batch is axis 0.",
    )
