"""The part of a model that runs on token ids: the whole model, or one of its towers or its decoder."""

import re
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.configs.resolved import LayerEncoding
from clockhands.errors import InvalidValue
from clockhands.models.attention_inputs import attended_once
from clockhands.models.opened_modules import config_values, text_config
from clockhands.models.running_models import runner, takes
from clockhands.models.tower_inputs import reason
from clockhands.models.tower_tables import TableReading, table_reading

_FEW, _MANY = 16, 64  # tokens of a text, at most half as many as its table has rows: late ones still get a row
_STACK = re.compile("(Encoder|Decoder)(Layer|Block)?$")


@dataclass(frozen=True, eq=False)
class TokenPart:
    """A part of a model that takes token ids.

    Attributes:
        path: Where it is; empty for the whole model.
        module: The part.
    """

    path: str
    module: nn.Module


def text_parts(module: nn.Module) -> list[TokenPart]:
    """The parts that take token ids and have a config, the outermost ones first."""
    found = [
        TokenPart(path, each)
        for path, each in module.named_modules()
        if takes(each, "input_ids") and hasattr(each, "config")
    ]
    return sorted(found, key=lambda each: each.path.count(".") + bool(each.path))


def running_text(module: nn.Module) -> TokenPart:
    """The outermost part that runs on token ids alone.

    Raises:
        InvalidValue: None does; the reason is that of the outermost one.
    """
    refused: list[InvalidValue] = []
    for each in text_parts(module) or [TokenPart("", module)]:
        ids = torch.zeros(1, 4, dtype=torch.long, device=next(module.parameters()).device)
        try:
            attended_once(each.module, ids)
        except InvalidValue as error:
            refused.append(error)
        else:
            return each
    raise refused[0]


def is_absent(module: nn.Module, part: str) -> bool:
    """Whether a model has only one of encoder and decoder, and this part is the other one.

    The names of its modules and of their classes tell: the config of an encoder-decoder declares both.
    """
    other = {"encoder": "decoder", "decoder": "encoder"}.get(part)
    names = {path.rpartition(".")[2] for path, _ in module.named_modules()}
    names |= {match[1].lower() for each in module.modules() if (match := _STACK.search(type(each).__name__))}
    return other in names and part not in names


def text_table_reading(text: TokenPart, code: LayerEncoding) -> TableReading:
    """Compare the rows of a table that the tokens of a text get with the declared ones."""
    if code.rows is None or not hasattr(text.module, "config"):
        return TableReading(reason="the number of its rows is not known")
    inside = [each for each in text_parts(text.module) if each.path.rpartition(".")[2] == code.part]
    part = inside[0].module if inside else text.module
    path = f"{inside[0].path}." if inside and inside[0].path else ""
    rows = code.rows - (code.offset or 0)
    length = min(rows, max(_FEW, min(_MANY, rows // 2)))

    def run(seed: int) -> Any:
        ids = _ordinary_tokens(part)
        drawn = torch.randint(len(ids), (1, length), generator=torch.Generator().manual_seed(seed))
        return runner(part)(ids[drawn].to(next(part.parameters()).device))

    try:
        reading = table_reading(part, code, run)
        reading = replace(reading, wrong=tuple(f"{path}{each}" for each in reading.wrong))
    except Exception as error:  # noqa: BLE001 - a part may refuse a text in any way
        return TableReading(reason=reason(error))
    if reading.measured is None or length == rows:
        return reading
    return replace(reading, measured=f"{reading.measured} for the first {length} tokens")


def _ordinary_tokens(part: nn.Module) -> Tensor:
    """Token ids without those that the config names, such as that of padding, which some models do not number."""
    values = config_values(text_config(part)) or {}
    named = {value for key, value in values.items() if key.endswith("token_id") and isinstance(value, int)}
    return torch.tensor([each for each in range(int(values["vocab_size"])) if each not in named])
