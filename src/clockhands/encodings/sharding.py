"""Sequences split over ranks (context and sequence parallelism): a rank's positions, and PyTorch's DTensor.

Rotating a token, or adding to it, needs no other token. So a rank works on its part with the positions of its tokens,
and nothing is communicated.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from clockhands.arguments import count, truth
from clockhands.encodings.positions import Positions
from clockhands.errors import InvalidType, InvalidValue


def rank_positions(tokens: int, rank: int, ranks: int, *, zigzag: bool = False) -> np.ndarray:
    """The positions of the tokens of one rank, int64, where a sequence is split over ranks (context parallelism).

    Args:
        tokens: Length of the whole sequence.
        rank: Index of the rank, from 0.
        ranks: Number of ranks.
        zigzag: Whether each rank has two chunks, one of the first half and one of the second, as far from the start as
            the other is from the end, so that causal attention costs the same on all ranks. This is the order of
            PyTorch's ``context_parallel`` (its head-tail load balancer), Megatron and Transformer Engine. False:
            one chunk each, in order.

    Raises:
        InvalidType: A number is not whole, or ``zigzag`` not True or False.
        InvalidValue: There is no such rank, or the tokens cannot be split evenly.

    >>> [rank_positions(8, rank, 2).tolist() for rank in range(2)]
    [[0, 1, 2, 3], [4, 5, 6, 7]]
    >>> [rank_positions(8, rank, 2, zigzag=True).tolist() for rank in range(2)]
    [[0, 1, 6, 7], [2, 3, 4, 5]]
    """
    tokens, ranks, rank = count("tokens", tokens, least=0), count("ranks", ranks), count("rank", rank, least=0)
    if rank >= ranks:
        raise InvalidValue(f"`rank` must be from 0 to {ranks - 1}, got {rank}.", "The first rank is 0.")
    truth("zigzag", zigzag, "It says which tokens a rank has.")
    chunks = 2 * ranks if zigzag else ranks
    if tokens % chunks:
        raise InvalidValue(
            f"{tokens} tokens cannot be split into {chunks} equal chunks.",
            f"Pad the sequence to {-(-tokens // chunks) * chunks} tokens.",
        )
    size = tokens // chunks
    mine = (rank, chunks - 1 - rank) if zigzag else (rank,)
    return np.concatenate([np.arange(chunk * size, (chunk + 1) * size) for chunk in mine])


def is_sharded(*arrays: Any) -> bool:
    """Whether any of these is a DTensor."""
    module = sys.modules.get("torch.distributed.tensor")
    if module is None:
        return False
    # By type, in a loop: `isinstance` and `any` take four and two times as long, in every call.
    for array in arrays:  # noqa: SIM110
        if type(array) is module.DTensor:
            return True
    return False


def refuse_sharded(array: Any, name: str, hint: str) -> None:
    """Refuse a DTensor where a rank's local part is required.

    Raises:
        InvalidType: ``array`` is a DTensor.
    """
    if is_sharded(array):
        raise InvalidType(f"`{name}` must be the tensor of this rank, got a DTensor.", hint)


def refuse_unsummed(array: Any, name: str, *, last: bool) -> None:
    """Refuse a DTensor with partial sums (`Partial`), and with ``last`` also one that is split along its last axis.

    Raises:
        InvalidValue: ``array`` is such a DTensor.
    """
    for placement in array.placements:
        if placement.is_partial():
            raise InvalidValue(
                f"`{name}` is a DTensor with the placement {placement}: its parts are not summed yet.",
                f"Write {name}.redistribute(placements=…) with Shard or Replicate first.",
            )
        if last and getattr(placement, "dim", None) == len(array.shape) - 1:
            raise InvalidValue(
                f"`{name}` is a DTensor that is split along its last axis, {placement}, so that no rank has a whole "
                "vector.",
                "Split it along the batch, the heads or the sequence, or redistribute it first.",
            )


class RankPart:
    """The part of a DTensor [..., seq, ..., channels] that this rank holds.

    Attributes:
        whole: The DTensor.
        axis: Which of its axes is the sequence, counted from 0.

    Raises:
        InvalidType: ``whole`` is a plain tensor, and another argument is a DTensor.
        InvalidValue: It holds partial sums, or a token's channels are split over ranks.
    """

    def __init__(self, whole: Any, axis: int, name: str = "x") -> None:
        if not is_sharded(whole):
            raise InvalidType(
                f"`{name}` is a plain tensor, but what is given with it is a DTensor.",
                f"Make `{name}` a DTensor of the same mesh, or pass plain tensors of this rank (to_local()).",
            )
        self.whole: Any = whole
        self.axis: int = axis
        self.name: str = name
        refuse_unsummed(whole, name, last=True)
        for placement in whole.placements:
            if getattr(placement, "dim", None) in (0, axis) and hasattr(placement, "split_factor"):
                raise InvalidValue(
                    f"`{name}` is a DTensor whose tokens are not split in order, {placement}.",
                    f"Write {name}.redistribute(placements=…) with Shard first.",
                )

    @property
    def local(self) -> Any:
        """The local tensor of this rank; gradients pass through."""
        return local_of(self.whole)

    @property
    def splits_tokens(self) -> bool:
        """Whether each rank has only a part of the tokens."""
        return any(hasattr(placement, "dim") for placement in self.whole.placements)

    def wrapped(self, made: Any) -> Any:
        """This rank's result as a DTensor with the shape and placements of ``whole``."""
        return wrapped(made, self.whole.shape, self.whole)

    def positions(self, given: Any, axes: int, name: str = "positions") -> Any:
        """This rank's part of positions, or of values computed from them.

        Args:
            given: The positions of all tokens: exact positions, a tensor, or a DTensor.
            axes: 1 for [seq, …], 2 for [batch, seq, …].
            name: The argument's name in error messages.

        Raises:
            InvalidValue: ``given`` is a DTensor on another mesh, or split in a different way.
        """
        shape = tuple(given.shape)
        if not is_sharded(given):
            which = [self._shards(axis, shape, axes) for axis in range(axes)]
            mine = [self.tokens(shape[axis], which[axis]) for axis in range(axes)]
            if not any(map(any, which)):
                return given
            return given.taken(*mine) if isinstance(given, Positions) else given[tuple(mine)]
        if given.device_mesh != self.whole.device_mesh:
            raise InvalidValue(
                f"`{name}` and `{self.name}` are DTensors of two device meshes.",
                f"Distribute `{name}` over the mesh of `{self.name}`.",
            )
        split = zip(*(self._shards(axis, shape, axes) for axis in range(axes)), strict=True)
        placements = [_of("Shard")(each.index(True)) if any(each) else _of("Replicate")() for each in split]
        if any(own not in (want, _of("Replicate")()) for own, want in zip(given.placements, placements, strict=True)):
            raise InvalidValue(
                f"`{name}` has the placements {_shown(given.placements)}, but `{self.name}` has "
                f"{_shown(self.whole.placements)} and needs {_shown(placements)}.",
                f"Write {name}.redistribute(placements=…), or leave them replicated.",
            )
        return local_of(given.redistribute(placements=placements))

    def values(self, given: Any) -> Any:
        """Learned numbers that every rank has, prepared so that their gradient sums over all tokens.

        Raises:
            InvalidValue: They are split, or they are a plain trained tensor while the tokens are split.
        """
        mesh, hint = self.whole.device_mesh, "Write distribute_module(module, mesh), which replicates its parameters."
        if is_sharded(given):
            if given.device_mesh != mesh or not all(each.is_replicate() for each in given.placements):
                raise InvalidValue(
                    f"`values` must be replicated over the mesh of `{self.name}`, got {_shown(given.placements)}.", hint
                )
            # Each rank has the gradient of its own tokens; the redistribution adds them up on the way back.
            partial = [_of("Partial" if hasattr(each, "dim") else "Replicate")() for each in self.whole.placements]
            return given.redistribute(placements=given.placements).to_local(grad_placements=partial)
        torch = sys.modules["torch"]
        if self.splits_tokens and torch.is_grad_enabled() and getattr(given, "requires_grad", False):
            raise InvalidValue(
                f"`values` is a plain tensor that is trained, but `{self.name}` is a DTensor of which each rank has a "
                "part of the tokens, so each rank would get another gradient.",
                hint,
            )
        return given

    def tokens(self, number: int, split: Sequence[bool] | None = None) -> slice:
        """The slice of the tokens that this rank has.

        Args:
            number: Number of tokens.
            split: For each mesh axis, whether it splits the tokens; by default the axes that split the sequence.
        """
        mesh, start = self.whole.device_mesh, 0
        for axis, over in enumerate(self._shards(0, (number,), 1) if split is None else split):
            if over:  # the same split as `torch.chunk`
                size = -(-number // mesh.size(axis))
                first = min(mesh.get_local_rank(axis) * size, number)
                start, number = start + first, min(size, number - first)
        return slice(start, start + number)

    def _shards(self, axis: int, shape: tuple[int, ...], axes: int) -> list[bool]:
        """For each axis of the mesh, whether this axis of positions, [seq, …] or [batch, seq, …], is split over it."""
        if axis < axes - 1 and shape[0] == 1:  # one sequence for the whole batch
            return [False] * len(self.whole.placements)
        dim = self.axis if axis == axes - 1 else 0
        return [getattr(placement, "dim", None) == dim for placement in self.whole.placements]


def local_of(array: Any) -> Any:
    """The local tensor of a DTensor, after any pending collective; gradients pass through."""
    local = array.to_local()
    return local.wait() if hasattr(local, "wait") else local  # the result of a collective that is still running


def wrapped(made: Any, shape: Sequence[int], like: Any) -> Any:
    """A rank's part as a DTensor of this shape, with the mesh and placements of ``like``."""
    made, strides, step = made.contiguous(), [1] * len(shape), 1
    for axis in reversed(range(len(shape))):
        strides[axis] = step
        step *= max(1, shape[axis])
    torch = sys.modules["torch"]
    return _of("DTensor").from_local(
        made, like.device_mesh, like.placements, run_check=False, shape=torch.Size(shape), stride=tuple(strides)
    )


def _of(name: str) -> Any:
    return getattr(sys.modules["torch.distributed.tensor"], name)


def _shown(placements: Sequence[Any]) -> str:
    return "[" + ", ".join(map(str, placements)) + "]"
