"""The faults of additive codes: what each looks like, and where it was met.

Cases are public threads, named as ``repository#number``, or a library with its version; the evidence is described in
`docs/checking.md`.
"""

from collections.abc import Mapping

from clockhands.faults.fault import Fault, row_maker

_FEW, _EVERY = "a few positions", "every position"
_KEY = (
    "Make everything that the numbers depend on a part of the key: base, width, order, dtype. A make= that does not "
    "read its spec looks the same."
)

_spec, _code = row_maker("spec", "additive", _FEW), row_maker("code", "additive", _FEW)

FAULTS = (
    _spec(
        "another-base",
        "has the rates of base {base:,.10g}, not {declared:,.10g}",
        "Pass the base on to where the rates are made, and look for a default that stands in for it.",
    ),
    _spec(
        "closed-span",
        "spaces its rates so that the last one is 1/base (it divides by d/2 - 1, where d/2 is right)",
        "Divide the exponent by d/2; in diffusers that is downscale_freq_shift=0.",
        "sd-scripts#1187",
        "diffusers#12791",
    ),
    _spec(
        "open-span",
        "ends its rates one step before 1/base (it divides by d/2, where d/2 - 1 is right)",
        "Divide the exponent by d/2 - 1; in diffusers that is downscale_freq_shift=1.",
        "wenet#2141",
    ),
    _spec(
        "other-denominator",
        "makes its rates over {used:g} channels, not over {declared:g}",
        "Divide the exponent by the width that the convention names.",
    ),
    _spec(
        "sine-and-cosine-swapped",
        "has sine and cosine exchanged: {used}, where {declared} is right",
        "Check which wave stands first; in diffusers that is flip_sin_to_cos.",
        "flashinfer#3819",
        "diffusers#1369",
    ),
    _spec(
        "other-layout",
        "lays its channels out as {used}, not as {declared}",
        "Interleave sines and cosines, or put all of one before all of the other, as the weights were trained.",
        "OpenNMT-py#2288",
        "wenet#2141",
    ),
    _code(
        "exponent",
        "has a wrong exponent: {which}",
        "Give the two channels of pair i one exponent, 2i/d: from i = channel // 2, not from the channel.",
        "PapersReimplementations#9",
        "jadore800120#32",
    ),
    _spec(
        "another-scale",
        "multiplies the code by {scale:.6g}, where {declared:.6g} is right",
        "Look for a scale that stands in the config, or is applied to the tokens.",
    ),
    _spec(
        "scale-forgotten",
        "forgets the scale of the code: it is 1, where {declared:.6g} is right",
        "Multiply the table by the scale, once.",
    ),
    _code(
        "added-twice",
        "adds the code twice",
        "Add it in one place: the embedding and the first layer both do.",
    ),
    _code(
        "not-added",
        "adds nothing: {what}",
        "Look for a table of zeros, a sum that is not assigned, or a branch that is not taken.",
        "transformers 5.23.0 ViTMAE",
    ),
    _code(
        "tokens-scaled",
        "multiplies the tokens by {factor:.6g}, where {declared:.6g} is right",
        "Multiply the embeddings once (by sqrt(width) in the paper), and say token_scale= where that is a part of it.",
        shown_by="tokens come through",
    ),
    _code(
        "sum-scaled",
        "multiplies tokens and code together by {factor:.6g}",
        "Multiply the tokens before the code is added, not after.",
        shown_by="tokens come through",
    ),
    _code(
        "code-multiplied",
        "multiplies the tokens by the code, and does not add it",
        "Write x + table.",
        shown_by="tokens of zeros",
    ),
    _spec(
        "odd-width",
        "treats the odd width as {used!r}, not as {declared!r}",
        "See `Sinusoidal.odd`: a column of zeros, a last hand without its cosine, or a column cut off.",
        "transformers 5.23.0 TimesFm",
    ),
    _spec(
        "padding-row",
        "has a row at position {row:,} that is not zero, as a padding's row should be",
        "Set the row of the padding to zeros after the table is made.",
    ),
    _spec(
        "axes-exchanged",
        "exchanges the coordinates: {which}",
        "Check whether x or y comes first, and in which order meshgrid gives them.",
        shown_by="coordinates of their own",
    ),
    _code(
        "rows-in-another-order",
        "has the rows of its grid in another order: {used}, where {declared}",
        "Check the indexing of meshgrid (ij or xy), and how the axes are flattened.",
        "transformers 5.23.0 OmDet-Turbo",
    ),
    _code(
        "cells-elsewhere",
        "has the cells of its grid elsewhere: {used}, where {declared}",
        "Check what coordinates are divided by, whether cells stand at their centres, and the interpolation scale.",
    ),
    _code(
        "axis-dropped",
        "ignores {which}: every hand follows the first one",
        "Give each axis the coordinate of its own.",
        shown_by="coordinates of their own",
    ),
    _spec(
        "another-code",
        "is another code: {used}",
        "Compare it with the code that it should be, field by field.",
    ),
    _code(
        "positions-rounded",
        "behaves as if positions were rounded to {dtype} (first wrong at {first:,})",
        "Make positions as integers, or in float32, whatever the dtype of the tokens.",
        "keras-hub 0.32.0 SinePositionEncoding",
        "positional-encodings",
    ),
    _code(
        "rates-rounded",
        "behaves as if its rates were rounded to {dtype}",
        "Keep the rates in float32: casting the module casts its buffers too.",
    ),
    _code(
        "phases-rounded",
        "behaves as if position times rate were rounded to {dtype}",
        "Multiply in float32 and cast sine and cosine, not the angle.",
        "transformers 5.23.0 Pegasus-X",
    ),
    _code(
        "table-rounded",
        "behaves as if its table were rounded to {dtype}",
        "Keep the table in float32 where the tokens are float32.",
    ),
    _code(
        "positions-offset",
        "stands {offset:+,} rows off: position p gets the row of position p {offset:+,}",
        "Count positions from where the convention starts: 0, or padding + 1 for the tables of RoBERTa and fairseq.",
        "sentence-transformers#3879",
        "transformers#47525",
        "ANEForge#257",
    ),
    _code(
        "positions-scaled",
        "behaves as if positions were multiplied by {factor:.6g}",
        "Interpolate positions, or give them another unit, only where the convention says so.",
    ),
    _code(
        "positions-ignored",
        "ignores the positions and counts its rows from {start:,}",
        "Use the positions that are passed in: packed, padded and cached tokens do not start at 0.",
        shown_by="positions that start later",
    ),
    _code(
        "positions-from-first",
        "counts from the first position of each call: only differences within a call matter",
        "Use the positions as they are.",
        shown_by="positions that start later",
    ),
    _code(
        "positions-of-first-sequence",
        "gives every sequence of a batch the positions of the first one",
        "Take positions [batch, seq] and give each sequence its own.",
        shown_by="positions of their own",
    ),
    _code(
        "first-sequence-only",
        "adds the code to the first sequence of a batch only{when}",
        "Add it to every sequence.",
        shown_by="sequences beside each other",
    ),
    _code(
        "sign-for-negative-positions",
        "gives +k and -k the same row: it cannot tell before from after",
        "The sine is odd: sin(-p r) is -sin(p r).",
        "speechbrain 1.1.2 RelPosEncXL",
        shown_by="positions below zero",
    ),
    _code(
        "table-ends",
        "has a table of {rows:,} rows and {how} beyond it",
        "Make the table as long as the context, count the past in its length, or refuse positions beyond it.",
        "transformers#15444",
        shown_by=_EVERY,
    ),
    _code(
        "table-rebuilt-rounded",
        "makes positions from {rows:,} on in {dtype}: the table was built again in another precision",
        "Build the longer table in float32 too.",
        shown_by=_EVERY,
    ),
    _code(
        "rows-moved",
        "has a learned table whose rows stand elsewhere: {used}, where {declared} is right",
        "Resize with the align_corners that the weights were trained for.",
        "llama.cpp#25781",
        "sglang#22052",
    ),
    _code(
        "rows-rescaled",
        "has a learned table that is resized otherwise: {used}, where {declared} is right",
        "Resize with the interpolation, and the antialias, that the weights were trained for.",
        "llama.cpp#17577",
        "timm#2543",
    ),
    _code(
        "cache-without-base",
        "gives the second model the first one's table: the cache does not know its base",
        _KEY,
        shown_by="two models of another base",
    ),
    _code(
        "cache-without-width",
        "gives the second model the first one's rates: the cache does not know its width",
        _KEY,
        shown_by="two models of another width",
    ),
    _code(
        "cache-without-order",
        "gives the second model the first one's table: the cache does not know whether sine or cosine stands first",
        _KEY,
        shown_by="two models of another order",
    ),
    _code(
        "cache-keeps-first-dtype",
        "keeps a table that was made for {dtype} tokens, and gives it to float32 tokens too",
        "Keep the table in float32, or make the dtype a part of its key.",
        "positional-encodings",
        shown_by="coarser tokens before",
    ),
    _code(
        "cache-keeps-offset",
        "keeps the rows of the first call of a length and gives them to later calls that start elsewhere",
        "Key the cache by positions, or keep a table from 0 and index it.",
        shown_by="positions that start later",
    ),
    _code(
        "changes-its-arguments",
        "changes its arguments: {names}",
        "Write x + table, not x += table.",
        shown_by="arguments stay as they are",
    ),
    _code(
        "coarse-path-differs",
        "is another code for {dtype} tokens than for float32 ones",
        "Compare the two paths: a kernel, a cast before the product, a table of its own.",
        shown_by="coarser tokens",
    ),
    _code(
        "one-number-wrong",
        "is right but for {which}",
        "Look at how this entry is made: an edge of a block, an overflow, a row that is written twice.",
        shown_by=_EVERY,
    ),
)

ADDITIVE: Mapping[str, Fault] = {fault.code: fault for fault in FAULTS}
"""The faults of additive codes, by their codes, in the words of additive codes."""
