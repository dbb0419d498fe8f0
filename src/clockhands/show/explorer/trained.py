"""A small trained model as JSON values, so that the explorer's page can run it."""

import base64
from importlib.resources import files
from typing import Any

import numpy as np

from clockhands.encodings.specs import to_dict
from clockhands.errors import InvalidValue
from clockhands.lab.packaged_models import PackagedModel, packaged_model


def trained(name: str) -> dict[str, Any]:
    """The model of a package, ``glassllm``, with its tokens and weights.

    The weights are float16 in base64, one parameter after another in the order of ``parameters``. ``text`` is what the
    model reads until another text is typed.

    Raises:
        InvalidValue: Its package is not installed, or a weight exceeds float16.
        Unreadable: A file of the package is damaged.
    """
    model = packaged_model(name)
    return {
        "name": model.name,
        "layers": model.layers,
        "width": model.width,
        "heads": model.heads,
        "kvHeads": model.kv_heads,
        "feedForward": model.feed_forward,
        "epsilon": model.epsilon,
        "spec": to_dict(model.rotary),
        "length": model.length,
        "tokens": list(model.tokens),
        "merges": [" ".join(pair) for pair in model.merges],
        "parameters": {key: each.size for key, each in model.weights.items()},
        "weights": base64.b64encode(_halves(model)).decode(),
        "text": files("clockhands.show.explorer").joinpath("trained.txt").read_text("utf-8").rstrip("\n"),
    }


def _halves(model: PackagedModel) -> bytes:
    """The weights as float16, little-endian."""
    with np.errstate(over="ignore"):
        halves = [each.astype("<f2") for each in model.weights.values()]
    if not all(np.isfinite(each).all() for each in halves):
        raise InvalidValue(f"A weight of {model.name} is beyond float16.", "Use the package as it was published.")
    return b"".join(each.tobytes() for each in halves)
