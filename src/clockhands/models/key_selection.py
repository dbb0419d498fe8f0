"""Whether a model selects the keys that a query sees, as the indexer of a sparse attention does."""

from typing import Any

SELECTED = "keys are selected by an indexer"


def selects_keys(module: Any, ids: Any) -> bool:
    """Whether the largest of as many scores as there are tokens are selected in this text [1, tokens], fewer than all.

    Two lengths tell the scores of keys from those of experts, whose number does not change.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    sizes: set[int] = set()

    class Selections(TorchFunctionMode):
        """Collects from how many numbers the largest are selected."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func in (torch.topk, torch.Tensor.topk):
                given = dict(zip(("input", "k"), args, strict=False)) | kwargs
                size = given["input"].shape[-1]
                sizes.update([size] if given["k"] < size else [])
            return func(*args, **kwargs)

    for text in (ids, ids[:, :-1]):
        sizes.clear()
        with Selections(), torch.no_grad():
            module(input_ids=text)
        if text.shape[-1] not in sizes:
            return False
    return True
