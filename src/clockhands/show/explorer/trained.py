"""A small trained model as JSON values, so that the explorer's page can run it."""

import base64
from typing import Any

import numpy as np

from clockhands.errors import InvalidValue
from clockhands.lab.packaged_models import PackagedModel, packaged_model

MODELS = ("glassllm",)
"""Packages whose model is small enough for a page of 3 MB."""

TEXT = """\
The girl sat under the old tree by the river, and was very tired of having nothing to do. "I wonder," she said to
herself, "what the fish think about all day."

Just then a large grey cat came down the path, with a little hat on its head and a letter in its hand. "Oh dear, oh
dear!" said the cat, looking at the letter. "I shall be late, and the Queen will be so very angry with me!"

The girl got up at once, for she had never seen a cat with a hat before, and ran after it across the field. She was
just in time to see it go down some stairs under a great stone. Down she went, and the stairs seemed to have no end.

At last she found herself in a long hall. There was a small table in the middle of it, and on the table stood a cup
of tea and a key. "Shall I drink it?" thought the girl. "It may make me as small as a mouse, and then what would
become of my shoes?"

"You may as well," said the cat, who was sitting on the other side of the table. "The door is only as high as my hat,
and the Queen is waiting in the garden."
"""
"""What the model reads until another text is typed."""


def trained(name: str) -> dict[str, Any]:
    """A model of `MODELS` with its tokens and weights.

    The weights are float16 in base64, one parameter after another in the order of ``parameters``.

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
        "base": model.base,
        "length": model.length,
        "tokens": list(model.tokens),
        "merges": [" ".join(pair) for pair in model.merges],
        "parameters": {key: each.size for key, each in model.weights.items()},
        "weights": base64.b64encode(_halves(model)).decode(),
        "text": TEXT,
    }


def _halves(model: PackagedModel) -> bytes:
    """The weights as float16, little-endian."""
    with np.errstate(over="ignore"):
        halves = [each.astype("<f2") for each in model.weights.values()]
    if not all(np.isfinite(each).all() for each in halves):
        raise InvalidValue(f"A weight of {model.name} is beyond float16.", "Use the package as it was published.")
    return b"".join(each.tobytes() for each in halves)
