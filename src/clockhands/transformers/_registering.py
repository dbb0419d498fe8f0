"""Adds clockhands' scalings to Transformers' rope functions, so that a ``rope_type`` in a config selects them."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clockhands.configs.resolved import REGISTERED
from clockhands.encodings.scaling import Dynamic
from clockhands.errors import InvalidValue
from clockhands.models.installed_transformers import add_rope_type
from clockhands.transformers._rotary_part import rotary_by_kind

TYPES = ("default", "linear", "dynamic", "yarn", "llama3")


def register() -> tuple[str, ...]:
    """Give Transformers the scalings of clockhands, as rope types ``clockhands_llama3``, ``clockhands_yarn`` and so on.

    A config with ``"rope_type": "clockhands_llama3"`` and the keys of ``llama3`` beside it makes a model whose
    ``inv_freq`` are the exact frequencies, each rounded once to float32. Types: default, linear, dynamic, yarn and
    llama3. LongRoPE is left out: Transformers changes its frequencies with the length under the one name
    ``longrope``. Other programs do not know these names; `swap` needs no change of the config.

    Returns:
        The names; a second call changes nothing.

    Accuracy: frequencies within half a unit of the last place of float32; those of Transformers are off by up to a few
    units (``clockhands.recognition.diagnosis.slack_of``).

    Raises:
        InvalidValue: From a model with such a type, when its config does not decide the frequencies.

    Source: ``ROPE_INIT_FUNCTIONS`` in ``modeling_rope_utils.py`` of Transformers 4.50 to 5.24.

    >>> register()[:2]
    ('clockhands_default', 'clockhands_linear')
    """
    for kind in TYPES:
        add_rope_type(REGISTERED + kind, kind, _frequencies)
    return tuple(REGISTERED + kind for kind in TYPES)


def _frequencies(
    config: Any, device: Any = None, seq_len: Any = None, layer_type: str | None = None, **_: Any
) -> tuple[Tensor, float]:
    """The frequencies [pairs] in float32 and the attention factor of one kind of layer."""
    found = rotary_by_kind(config)
    if layer_type is not None and layer_type not in found:
        raise InvalidValue(
            f"The layers of the type {layer_type} declare no rotary encoding.",
            f"Known here: {', '.join(map(str, found))}.",
        )
    spec = found[layer_type]
    if isinstance(spec.scaling, Dynamic) and seq_len is not None:
        spec = replace(spec, length=max(int(seq_len), spec.scaling.original))
    rates = torch.tensor(spec.rates, dtype=torch.float64)
    return rates.to(device=device, dtype=torch.float32), spec.attention_factor
