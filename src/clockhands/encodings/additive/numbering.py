"""The position, and the row of a learned table, of each token of a padded batch.

Model families number the same tokens differently. Some count all tokens, padding included; others count only real
tokens and give padding a separate row. A spec says which: `Learned.offset` and `Learned.padding_row`, or
`Sinusoidal.first` and `Sinusoidal.zero_rows`.
"""

from typing import Any

from clockhands.arguments import count
from clockhands.encodings.additive._learned import Learned
from clockhands.encodings.additive.codes import AdditiveCode
from clockhands.encodings.traces import is_traced, library, library_of
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown


def token_positions(tokens: Any, spec: AdditiveCode, padding: int | None = None) -> Any:
    """The position of each token by the rule of ``spec``: integers with the shape, library and device of ``tokens``.

    With ``real`` 1 for tokens and 0 for padding, and ``first`` the position of a sequence's first token:

    * padding is counted (BERT, GPT-2, BART): ``first + (0, 1, 2, …)`` for all tokens;
    * padding is not counted (RoBERTa, ESM, OPT, fairseq): ``first - 1 + cumsum(real)`` for real tokens, and
      ``spec.padding_position`` for every padding token.

    `add` and `table` take the result as ``positions``. Nothing is cached, so this works inside ``jit``, ``vmap`` and
    ``compile`` as well.

    Args:
        tokens: [..., seq]: token ids if ``padding`` is given; else a mask, True or 1 for real tokens. Inside a trace,
            where values cannot be checked, every nonzero value is a real token.
        spec: The additive code.
        padding: The id of the padding token.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used; the message says which and why.

    Source: fairseq at 3d262bb2, ``utils.make_positions``; transformers 5.23.0, ``create_position_ids_from_input_ids``.

    >>> import numpy as np
    >>> roberta = Learned(width=8, rows=514, offset=2, padding_row=1)
    >>> token_positions(np.array([[1, 1, 5, 6]]), roberta, padding=1).tolist()
    [[-1, -1, 0, 1]]
    """
    real = _real(tokens, spec, padding)
    xp = library(real)
    stands = spec.padding_position
    if stands is None:
        real = xp.ones_like(real)
    # PyTorch's compiler cannot trace the array API's function for it.
    direct = library_of(real) == "torch" or hasattr(real, "cumsum")
    summed = real.cumsum(-1) if direct else xp.cumulative_sum(real, axis=-1)
    counted = summed + (spec.first - 1)
    if stands is None:
        return counted
    return xp.where(real == 1, counted, xp.full_like(counted, stands))


def token_rows(tokens: Any, spec: AdditiveCode, padding: int | None = None) -> Any:
    """The row of a table for each token: `token_positions` plus the offset of a learned table.

    These are the ``position_ids`` of RoBERTa, ESM and fairseq, whose ids are rows. The ids of OPT and BART are
    positions: their code adds the offset itself.

    Args:
        tokens: As in `token_positions`.
        spec: The additive code.
        padding: The id of padding.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used, or a token is beyond the table. Inside a trace only the
            length is known, so a sequence longer than the table is refused there even if few of its tokens are real.

    >>> import numpy as np
    >>> token_rows(np.array([[0, 0, 1, 1]]), Learned(width=8, rows=514, offset=2, padding_row=1)).tolist()
    [[1, 1, 2, 3]]
    """
    places = token_positions(tokens, spec, padding)
    if not isinstance(spec, Learned):
        return places
    longest = _longest(places, spec)
    if longest > spec.usable:
        raise InvalidValue(
            f"The table has rows for {spec.usable} tokens, got {longest}.",
            f"Cut the sequence, or resize the table: clockhands.additive.resize(values, …, kept={spec.offset}).",
        )
    return places + spec.offset


def _real(tokens: Any, spec: object, padding: object) -> Any:
    """1 for real tokens and 0 for padding."""
    if not isinstance(spec, AdditiveCode):
        raise InvalidType(
            f"`spec` must be an additive encoding, got {type(spec).__name__} {shown(spec)}.",
            "Give a spec such as Learned or Sinusoidal: it defines how tokens are numbered.",
        )
    if spec.number_of_axes > 1:
        raise InvalidValue(
            f"`spec` must number tokens along one axis, got an encoding of {spec.number_of_axes} axes.",
            "For several axes, compute positions from the image or the boxes; clockhands.grids.Grid makes the "
            "positions of a grid.",
        )
    if not hasattr(tokens, "shape") or not hasattr(tokens, "dtype"):
        raise InvalidType(
            f"`tokens` must be an array, got {type(tokens).__name__}.", "Give a NumPy, PyTorch or JAX array."
        )
    if not tokens.shape:
        raise InvalidValue("`tokens` must be of shape [..., seq], got one number.", "Give a whole sequence.")
    xp = library(tokens)
    kind = str(tokens.dtype).rpartition(".")[2]
    if padding is not None:
        if not kind.startswith(("int", "uint")):
            raise InvalidType(
                f"`tokens` must be integer token ids if `padding` is given, got {kind}.",
                "If `tokens` is a mask, leave `padding` out.",
            )
        return xp.astype(tokens != count("padding", padding, least=0), xp.int32)
    if not kind.startswith(("bool", "int", "uint")):
        raise InvalidType(
            f"`tokens` must be a mask of booleans or of 0 and 1, got {kind}.",
            "Write mask > 0.5; for a mask that is added to scores, write mask == 0.",
        )
    if not kind.startswith("bool") and not is_traced(tokens) and bool(xp.any((tokens != 0) & (tokens != 1))):
        raise InvalidValue(
            "`tokens` is taken for a mask because `padding` is missing, but it holds numbers other than 0 and 1.",
            "If these are token ids, pass the id of the padding token as padding=….",
        )
    return xp.astype(tokens != 0, xp.int32)  # traced values are unknown; every nonzero one counts as 1


def _longest(places: Any, spec: Learned) -> int:
    """The number of counted tokens in the longest sequence; 0 where the values are traced."""
    if spec.padding_position is None:
        return places.shape[-1]
    if is_traced(places) or 0 in places.shape:
        return 0
    return int(places.max()) + 1
