"""Reads position codes from headers of weights alone: tensor names and shapes."""

import re
from typing import TYPE_CHECKING

from clockhands.configs.fields import MOST_FACTS
from clockhands.configs.resolved import Fact, LayerEncoding
from clockhands.errors import ClockhandsError, Unreadable

if TYPE_CHECKING:
    from clockhands.configs.opened import Opened

# Names under which libraries store trained tables, fixed tables, frequencies and biases; only the name may show the
# part.
TABLE = re.compile(
    r"(^|[./])(position_embeddings?|embed_positions|positional_embeddings?|positional_encodings?|position_encodings?"
    r"|pos_embed(ding)?s?|pos_enc(oding)?|position_enc|pos_table|wpe|pe|position_embd)(\.weights?|\.embedding|\.pe)?$"
)
RATES = re.compile(r"(^|\.)(inv_freq|inverse_frequency)$")
BUCKETS = re.compile(r"(^|\.)(relative_attention_bias)\.weight$")
_MOST_READ = 4096  # tensors of frequencies: models store the same ones once for each layer
PARTS = (("encoder", "encoder"), ("decoder", "decoder"), ("vision", "vision"), ("visual", "vision"), ("audio", "audio"))


def tensor_codes(opened: "Opened", facts: list[Fact]) -> tuple[LayerEncoding, ...]:
    """The codes that a file of weights shows without a config; None for what a file cannot show."""
    codes: list[LayerEncoding] = []
    read = 0
    for name, tensor in opened.tensors.items():
        where = f"{tensor.declared_in.name}:{name}"
        found = rows_and_width(tensor.shape)
        if TABLE.search(name) and found is not None:
            rows, width = found
            source = {"rows": where, "width": where, "layers": where}
            codes.append(LayerEncoding(part_in(name), "input", None, rows=rows, width=width, source=source))
        elif BUCKETS.search(name):
            codes.append(LayerEncoding(part_in(name), None, "buckets", source={"kind": where}))
        elif RATES.search(name) and len(tensor.shape) == 1:
            read += 1
            if read <= _MOST_READ:
                codes.append(_rates(opened, name, where, facts))
    kept: list[LayerEncoding] = []
    seen = set()
    for code in codes:
        # Models store the same frequencies once for each layer.
        same = (code.part, code.kind, code.rates, code.rows, code.width)
        if code.kind is None or same not in seen:
            kept.append(code)
        seen.add(same)
        if len(kept) > MOST_FACTS:
            raise Unreadable(
                f"{opened.target} holds more than {MOST_FACTS} different tensors of positions.",
                "No model does; check that this is the file you mean.",
            )
    if not kept:
        file = next((tensor.declared_in.name for tensor in opened.tensors.values()), opened.target)
        facts.append(
            Fact(
                "nothing-declared",
                {file: f"{len(opened.tensors)} tensors, but none has the name of a known position tensor"},
            )
        )
        kept = [LayerEncoding("other", None, None)]
    return tuple(kept)


def rows_and_width(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """Rows and channels of a table, if all other axes have size 1; else None.

    >>> rows_and_width((1, 512, 64)), rows_and_width((5000, 1, 64)), rows_and_width((2, 3, 4))
    ((512, 64), (5000, 64), None)
    """
    if len(shape) < 2:
        return None
    *others, width = shape
    rows = [size for size in others if size != 1] or [1]
    return (rows[0], width) if len(rows) == 1 else None


def _rates(opened: "Opened", name: str, where: str, facts: list[Fact]) -> LayerEncoding:
    source = {"kind": where, "rates": where, "rotated": where}
    rates = None
    try:
        rates = tuple(float(rate) for rate in opened.array(name))
    except ClockhandsError as error:
        facts.append(Fact("unreadable-field", {where: error.message, "expected": "a list of frequencies"}))
    pairs = opened.tensors[name].shape[0]
    return LayerEncoding(part_in(name), None, "rotary", rotated=2 * pairs, rates=rates, source=source)


def part_in(name: str) -> str:
    """The part of a model to which a tensor belongs, by its name.

    >>> part_in("vision_model.embeddings.position_embedding.weight"), part_in("wpe.weight")
    ('vision', 'text')
    """
    return next((part for word, part in PARTS if word in name.split(".")[:2] or f"{word}_" in name), "text")
