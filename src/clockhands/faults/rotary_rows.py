"""The faults of rotary codes: what each looks like, and where it was met.

Cases are public threads, named as ``repository#number``; the evidence is described in `docs/checking.md`.
"""

from collections.abc import Mapping

from clockhands.faults.fault import Fault

_ROTARY = ("rotary",)
_FEW, _EVERY, _TWO = "a few positions", "every position", "two models of different bases"


def _spec(code: str, sentence: str, hint: str, *cases: str, shown_by: str = _FEW) -> Fault:
    return Fault(code, "spec", _ROTARY, sentence, hint, cases, shown_by)


def _code(code: str, sentence: str, hint: str, *cases: str, shown_by: str = _FEW) -> Fault:
    return Fault(code, "code", _ROTARY, sentence, hint, cases, shown_by)


FAULTS = (
    _spec(
        "another-base",
        "turns with base {base:,.10g}, not {declared:,.10g}",
        "Pass the base on to where the rates are made, and look for a default that stands in for it.",
        "SpecForge#265",
        "DeepSpeed#8341",
        "MarinFold#184",
    ),
    _spec(
        "scaling-dropped",
        "turns without the scaling ({scaling}): every rate is the plain one",
        "Apply the scaling to the rates before they are used; setting it in a config after the build changes nothing.",
        "unsloth#6907",
        "Soup#793",
        "mlx-vlm#1710",
        "mlxcel#1355",
    ),
    _spec(
        "scaling-twice",
        "applies the scaling ({scaling}) twice",
        "Scale either the rates or the positions, once.",
        "Safe-Synthesizer#623",
    ),
    _spec(
        "another-original-length",
        "computes the scaling from an original length of {original:,}, not {declared:,}",
        "Take original_max_position_embeddings, not the extended length.",
        "Megatron-LM#1418",
        "LlamaFactory#8101",
    ),
    _spec(
        "another-factor",
        "scales by a factor of {factor:g}, not {declared:g}",
        "Pass the factor on; a default that fits one model hides it.",
        "Megatron-LM#6305",
    ),
    _spec(
        "another-scaling",
        "scales by {scaling}, not by {declared}",
        "Use the formula that the rope type names.",
        "keras-hub 0.32.0 'dynamic'",
    ),
    _spec(
        "ramp-reversed",
        "has YaRN's ramp in reverse: fast pairs are slowed down and slow ones are left",
        "Interpolate the pairs that make few turns in the original length, and leave those that make many.",
        "litgpt 0.5.13",
    ),
    _spec(
        "lists-swapped",
        "uses LongRoPE's {used} factors where the {declared} ones belong",
        "Use the short factors up to the original length and the long ones beyond it.",
        "mlxcel#1580",
    ),
    _spec(
        "attention-factor",
        "multiplies what turns by {factor:.6g}, where {declared:.6g} is right",
        "Multiply cosine and sine by the scaling's attention factor, once.",
        "vllm#46280",
        "vllm#48621",
    ),
    _spec(
        "other-layout",
        "pairs channels as {used}, not as {declared}",
        "Pair channels as the weights were trained, or permute the rows of the query and key projections.",
        "shainet#111",
        "AiDotNet#2074",
        "lattice#96",
    ),
    _spec(
        "other-rotated-width",
        "turns {used} channels, not {declared}",
        "Read partial_rotary_factor (or rotary_dim); an absent key means the class's own default.",
        "mlx-lm#1698",
        "vllm#43770",
        "vllm#16904",
    ),
    _spec("other-part", "turns the {used} channels of a head, not the {declared}", "Split the head at the other end."),
    _spec(
        "other-denominator",
        "makes its rates over {used:g} channels, not over {declared:g}",
        "Divide the exponent by the width that the convention names: the rotated channels, or the whole head.",
        "pie#603",
    ),
    _spec(
        "closed-span",
        "spaces its rates so that the last one is the base's (d/2 - 1 in the exponent, not d/2)",
        "Divide the exponent by d/2.",
    ),
    _spec(
        "other-direction",
        "turns {used}, not {declared}",
        "Change the sign of the sine; scores of queries and keys that both turn so are the same, cached keys are not.",
        "nanochat#489",
    ),
    _spec(
        "other-axes-order",
        "gives pairs to the coordinates as {used}, not as {declared}",
        "Follow mrope_interleaved: sections stand one after another, or take turns.",
        "vllm-gaudi#1437",
        shown_by="coordinates of their own",
    ),
    _spec(
        "axis-dropped",
        "ignores {which}: every pair turns by the first one",
        "Give each pair the coordinate of its own axis.",
        "sglang#34446",
        shown_by="coordinates of their own",
    ),
    _spec(
        "xpos-centre",
        "centres the decay of xPos at {centre}, not at {declared:g}",
        "Fix the centre: one that follows the length in use changes keys that are cached already.",
        "rotary-embedding-torch 0.9.1",
    ),
    _spec("xpos-dropped", "does not decay: xPos is missing", "Multiply queries by the decay and divide keys by it."),
    _code(
        "positions-rounded",
        "behaves as if positions were rounded to {dtype} (first wrong at {first:,})",
        "Make positions as integers, or in float32, whatever the dtype of the tokens.",
        "gpt-neox#1016",
        "UNI-D2#6",
    ),
    _code(
        "rates-rounded",
        "behaves as if its rates were rounded to {dtype}",
        "Keep inv_freq in float32: casting the module casts its buffers too.",
        "Automodel#2549",
        "Modalities#462",
    ),
    _code(
        "phases-rounded",
        "behaves as if position times rate were rounded to {dtype}",
        "Multiply in float32 and cast cosine and sine, not the angle.",
        "cactus#688",
        "Modalities#462",
    ),
    _code(
        "table-rounded",
        "behaves as if cosine and sine were rounded to {dtype}",
        "Keep the table in float32 where the tokens are float32.",
    ),
    _code(
        "positions-offset",
        "stands {offset:+,} tokens off: position p is turned as position p {offset:+,} is",
        "Count positions from 0, and once.",
        "sglang#25015",
    ),
    _code(
        "positions-scaled",
        "turns as if positions were multiplied by {factor:.6g}",
        "Interpolate positions only where the scaling says so.",
    ),
    _code(
        "positions-ignored",
        "ignores the positions and counts its rows from 0",
        "Use the positions that are passed in: packed, padded and cached tokens do not start at 0.",
        "OLMo-core#591",
        "nanoVLM#201",
        "Megatron-LM#4075",
        shown_by="positions that start later",
    ),
    _code(
        "positions-from-first",
        "counts from the first position of each call: {how}",
        "Use the positions as they are: a cached key and a later query must be counted from one start.",
        shown_by="positions that start later",
    ),
    _code(
        "positions-of-first-sequence",
        "gives every sequence of a batch the positions of the first one",
        "Take positions [batch, seq] and give each sequence its own.",
        "unsloth#3699",
        "nnsight#673",
        shown_by="positions of their own",
    ),
    _code(
        "first-sequence-only",
        "turns the first sequence of a batch only{when}",
        "Turn every sequence; one token for each of many sequences is a batch, not a sequence.",
        "mlx#3498",
        "mlx-rs#359",
        shown_by="one token of many sequences",
    ),
    _code(
        "turns-other-axis",
        "turns along the axis of {axis}, not along the tokens: the angle follows the number of the {one}",
        "Say which axis is the sequence, or move it there before turning.",
        "open_lm#4",
        shown_by="heads beside each other",
    ),
    _code(
        "no-rotation",
        "turns nothing{when}: tokens come back as they were",
        "Look for a table of zeros or an empty cache: cosine 1 and sine 0.",
        "chronos-forecasting#491",
        "sglang#33575",
    ),
    _code(
        "queries-and-keys-crossed",
        "crosses queries and keys: what comes back for one is made of the other",
        "Write each to its own output.",
        "ColossalAI#6428",
    ),
    _code(
        "unrotated-channels-turned",
        "changes channels that do not turn: {channels}",
        "Pad cosine with 1 and sine with 0, or leave these channels out.",
        "vllm#55204",
    ),
    _code(
        "table-and-pairs-disagree",
        "is no rotation: its table is laid out for {table}, and its pairs are {pairs}, so the two channels of a pair "
        "turn by different angles",
        "Repeat each angle for the two channels of its pair: tiled for halves, interleaved for interleaved pairs.",
        "vjepa2#15",
        "mmpretrain 1.2.0 RotaryEmbeddingFast",
    ),
    _code(
        "one-half-only",
        "is no rotation: the sine has {signs}",
        "Subtract in the first channel of a pair and add in the second.",
    ),
    _code(
        "sine-and-cosine-swapped",
        "has cosine and sine exchanged: position 0 is turned by a quarter",
        "Check the order in which the table stores them.",
        "flashinfer#3819",
    ),
    _code(
        "table-ends",
        "has a table of {rows:,} rows and {how} beyond it",
        "Make the table as long as the context, or refuse positions beyond it.",
        "pegainfer#220",
        shown_by=_EVERY,
    ),
    _code(
        "eviction-stops-positions",
        "stands still from position {last:,} on: a call that starts later is turned as if it started there",
        "Count the tokens that were seen, not those that a cache still holds.",
        "VeloxQuant-MLX#138",
        shown_by="decoding equals the full pass",
    ),
    _code(
        "table-rebuilt-rounded",
        "makes positions from {rows:,} on in {dtype}: the table was built again in another precision",
        "Build the longer table in float32 too.",
        "transformers#29496",
        shown_by=_EVERY,
    ),
    _code(
        "cache-without-base",
        "gives the second model the first one's table: the cache does not know its base",
        "Make everything that the numbers depend on a part of the key: base, scaling, width, dtype.",
        "aprender#1607",
        "equinox 0.13.8",
        shown_by=_TWO,
    ),
    _code(
        "cache-without-scaling",
        "gives the second model the first one's table: the cache does not know its scaling",
        "Make everything that the numbers depend on a part of the key: base, scaling, width, dtype.",
        shown_by="two models of different scalings",
    ),
    _code(
        "cache-without-width",
        "gives the second model the first one's table: the cache does not know its width",
        "Make everything that the numbers depend on a part of the key: base, scaling, width, dtype.",
        "mlx#561",
        shown_by="two models of different widths",
    ),
    _code(
        "cache-keeps-first-dtype",
        "keeps a table that was made for {dtype} tokens, and gives it to float32 tokens too",
        "Keep the table in float32, or make the dtype a part of its key.",
        "rotary-embedding-torch 0.9.1",
        "positional-encodings",
        shown_by="coarser tokens before",
    ),
    _code(
        "cache-keeps-offset",
        "keeps the angles of the first call of a length and gives them to later calls that start elsewhere",
        "Key the cache by positions, or keep a table from 0 and index it.",
        "rotary-embedding-torch 0.9.1",
        shown_by="positions that start later",
    ),
    _code(
        "remembers-longest",
        "remembers the longest sequence that it has seen: a short one after it is another code",
        "Make the rates from the length in use, each time, or from a length that is fixed.",
        "transformers#25104",
        "vllm#27431",
        shown_by="after a longer sequence",
    ),
    _code(
        "shrinks-each-call",
        "turns fewer channels with every call",
        "Do not write to what the calls share: its rotary width is halved each time.",
        "vllm#16904",
        shown_by="asked again",
    ),
    _code(
        "changes-its-arguments",
        "changes its arguments: {names}",
        "Work on a copy.",
        shown_by="arguments stay as they are",
    ),
    _code(
        "coarse-path-differs",
        "is another code for {dtype} tokens than for float32 ones",
        "Compare the two paths: a kernel, a cast before the product, a table of its own.",
        "TransformerEngine#1245",
        shown_by="coarser tokens",
    ),
    _code(
        "rates-uninitialised",
        "turns by rates that are no ladder: {wrong} of {pairs} are wrong, pair {pair} turns by {rate:.4g} rad/token, "
        "where {declared:.4g} is right",
        "Make the rates again after to_empty or a move from the meta device.",
        "torchtitan#4783",
        "unsloth#4112",
        "FastPLMs#47",
    ),
    _spec(
        "other-rates",
        "turns evenly by other rates: {wrong} of {pairs} are wrong, pair {pair} turns by {rate:.4g} rad/token, where "
        "{declared:.4g} is right",
        "Compare the rates with those of the code, pair by pair.",
    ),
    Fault(
        "not-finite",
        "code",
        ("rotary", "additive"),
        "gives back {what}{where}",
        "Look for a division by zero, an overflow of a coarse dtype, or memory that was never filled.",
        ("vllm#52665",),
        _FEW,
    ),
    _code(
        "one-number-wrong",
        "is right but for {which}",
        "Look at how this entry is made: an edge of a block, an overflow, a row that is written twice.",
        shown_by=_EVERY,
    ),
)

ROTARY: Mapping[str, Fault] = {fault.code: fault for fault in FAULTS}
"""The faults of rotary codes by their codes, with the cases that were rotary."""
