"""A rotary module for models that are written with the classes of Transformers."""

import copy
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, get_args

import torch
from transformers import AutoConfig, AutoModel

from clockhands.arguments import one_of
from clockhands.encodings.rotary import Rotary
from clockhands.errors import InvalidType, InvalidValue
from clockhands.models.declared_parts import declared_parts
from clockhands.models.held_tensors import module_of, walked
from clockhands.phrases import shown
from clockhands.transformers._comparing import outputs_of
from clockhands.transformers._rotary_part import ExactRotary, Form, RotaryOutput, frequencies_of, rotary_by_kind


class RotaryEmbedding(ExactRotary):
    """A rotary module with the signature of Transformers' own that computes exact phases.

    ``forward(x, position_ids, layer_type=None)`` returns ``(cos, sin)``, [batch, seq, rotated channels] each, in the
    dtype of ``x``: the cosine and sine of position times frequency, times the attention factor of the scaling.

    Args:
        config: A config of Transformers, or its dict.
        device: Accepted because Transformers passes it; not used, since nothing is stored.
        form: How the values of pairs are arranged: ``"halves"`` for ``cat(c, c)``, as Llama has it; ``"interleaved"``
            for each number twice in a row; ``"pairs"`` for each once; ``"complex"`` for ``cos + i sin``. None: as the
            module of Transformers has them for this ``model_type``, which is made from the config, called and compared.

    Accuracy: float32 numbers are correctly rounded at known positions up to 2**63, and within 2**-22 on a GPU or inside
    a trace; Transformers' own are off by 9e-3 at position 131,072.

    Raises:
        InvalidType: This is no config.
        InvalidValue: The config does not decide the frequencies, its layers have no rotary encoding, or the form is not
            given and Transformers has no module for it that can be called.

    Source: ``modeling_rope_utils.py`` and ``LlamaRotaryEmbedding`` of Transformers 5.23.

    >>> config = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    >>> rotary = RotaryEmbedding(config | {"rope_theta": 100.0})
    >>> cos, sin = rotary(torch.zeros(1, 2, 8), torch.tensor([[0, 1]]))
    >>> sin[0, 1]
    tensor([0.8415, 0.0998, 0.8415, 0.0998])
    """

    def __init__(self, config: object, device: Any = None, form: Form | None = None) -> None:
        """Read the config."""
        super().__init__()
        config = getattr(module_of(config), "config", config)
        if not isinstance(config, Mapping) and not hasattr(config, "to_dict"):
            raise InvalidType(
                f"`config` must be a config of Transformers or its dict, got {shown(config)}.",
                "Pass `model.config`, or AutoConfig.from_pretrained(name).",
            )
        by_kind = rotary_by_kind(config)
        if form is None:
            own = _own_outputs(config)
            rates = by_kind[None].rates
            first = next((each for each in own.values() if each.spec.rates == rates), next(iter(own.values())))
            outputs = dict.fromkeys(by_kind, first) | own
        else:
            one_of("form", form, get_args(Form), "Leave it out for the form of the config's own model.")
            outputs = {kind: _of_form(spec, form) for kind, spec in by_kind.items()}
        self.config: object = config
        self.clockhands_output: Mapping[str | None, RotaryOutput] = outputs
        self.clockhands_length: dict[str | None, int] = {}


def _of_form(spec: Rotary, form: Form) -> RotaryOutput:
    output = RotaryOutput(frequencies_of(spec), form)
    return output if spec.axes is None else replace(output, of_axes=replace(output.spec, axes=spec.axes))


_asking: ContextVar[bool] = ContextVar("_asking", default=False)


def _own_outputs(config: Any) -> dict[str | None, RotaryOutput]:
    """What the rotary modules of the model class of a config return for each kind of layer, checked against the config.

    The model is built without weights; its rotary modules, which have none, are then built again with real buffers.
    """
    name = type(config).__name__
    if _asking.get():  # a model class that is itself built with this class
        raise InvalidValue("its model is made with a RotaryEmbedding.", _PASS)
    token = _asking.set(True)
    try:
        values = AutoConfig.for_model(**config) if isinstance(config, Mapping) else copy.deepcopy(config)
        with torch.device("meta"):
            model = AutoModel.from_config(values)
        own = [path for path, part in walked(model).turning.items() if next(part.parameters(), None) is None]
        with torch.device("cpu"):
            for path in own:
                part: Any = model.get_submodule(path)
                model.set_submodule(path, type(part)(part.config))
            parts = declared_parts(model)[1] if own else ()
            found = [each for part in parts for each in outputs_of(name, part).items()]
        if not found or len(set(found)) != len(dict(found)):
            raise InvalidValue(f"its model has {'several' if found else 'no'} modules of cosines and sines.", _PASS)
        return dict(found)
    except Exception as error:
        why = error.message if isinstance(error, InvalidValue) else str(error).partition("\n")[0]
        why = why.removesuffix(": nothing was changed.")
        raise InvalidValue(f"The form of the cosines of {name} is not found in Transformers: {why}", _PASS) from error
    finally:
        _asking.reset(token)


_PASS = f"Pass form=, one of {', '.join(get_args(Form))}; Llama's is halves."
