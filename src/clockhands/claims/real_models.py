"""What was measured on real models, from the results that come with the package (`real_models.json`).

`tools/real_models.py` measures them again; nothing here needs PyTorch or the models.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any


@cache
def real_model(name: str) -> Mapping[str, Any]:
    """What is stored of a model, by name.

    >>> sorted(real_model("minilm"))
    ['centred', 'deviation', 'found', 'largest', 'mean']
    """
    text = resources.files("clockhands.claims").joinpath("real_models.json").read_text(encoding="utf-8")
    return json.loads(text)[name]
