"""The faults of biases: what each looks like, and where it was met.

Cases are public threads, named as ``repository#number``; the evidence is described in `docs/checking.md`.
"""

from clockhands.faults.fault import row_maker

_FULL, _DECODING, _FAR, _TWO = (
    "full pass",
    "decoding equals the full pass",
    "far distances",
    "two models in one process",
)

_spec, _code = row_maker("spec", "bias", _FULL), row_maker("code", "bias", _FULL)

FAULTS = (
    _spec(
        "first-slope-one",
        "starts its slopes one head too early: {used}, where {declared} is right",
        "The first slope of n heads is 2 ** (-8 / n), a half for 8 heads: raise to head + 1, not to head.",
        "aprender#2143",
    ),
    _spec(
        "slopes-rule",
        "has other slopes, {rule}: {used}, where {declared} is right",
        "For a number of heads that is no power of two the published models take the slopes of the power below, then "
        "every other one of the power above; the paper's text has one series. Use the rule that the model was trained "
        "with.",
        "mlx#3071",
        "TensorRT-LLM#1611",
        "ggml#143",
    ),
    _spec(
        "slope-sign",
        "has the sign of its slopes wrong: it rewards distance",
        "Subtract slope times distance, or add slope times the key's position.",
    ),
    _spec(
        "other-form",
        "computes {used}, where {declared} is right",
        "Forms that are the same below a causal mask differ at keys after the query; say causal=True where these are "
        "masked.",
    ),
    _spec(
        "bias-from-key-only",
        "computes {used}, where {declared} is right: each row has a constant added, which softmax does not see",
        "Leave out exact=True if a softmax follows.",
    ),
    _spec(
        "bias-scaled",
        "is {factor:.6g} times what it should be{why}",
        "Look for a scale that is left out, applied twice, or applied to scores and bias together: a bias that is "
        "added before scores are divided by the root of the head width is divided too.",
    ),
    _spec(
        "heads-exchanged",
        "has its heads in another order: {heads}",
        "Look at how heads are split, gathered or sharded: a bias has the order of the query heads.",
    ),
    _spec(
        "other-direction",
        "exchanges query and key: a key before the query gets what a key after it should get",
        "Distances are query minus key; T5 writes key minus query, and its upper half of buckets is for keys after.",
    ),
    _spec(
        "axes-exchanged",
        "reads its window column by column, where rows come first",
        "Token numbers run along a row first: the row of a token is its number divided by the width.",
    ),
    _spec(
        "one-sided-buckets",
        "has no buckets for keys after the query: all buckets are for keys before, as in a decoder",
        "Pass bidirectional=True for encoders.",
    ),
    _spec(
        "two-sided-buckets",
        "has half of its buckets for keys after the query, as in an encoder",
        "Pass bidirectional=False for decoders.",
        shown_by=_FAR,
    ),
    _spec(
        "another-number-of-buckets",
        "has {used} buckets, where {declared} are right",
        "Pass the number of buckets on; the default of 32 fits most models and hides it.",
        shown_by=_FAR,
    ),
    _spec(
        "another-max-distance",
        "ends its buckets at a distance of {used}, where {declared} is right",
        "Pass the largest distance on; the default of 128 fits most models and hides it.",
        shown_by=_FAR,
    ),
    _spec(
        "buckets-rounded-up",
        "rounds the logarithm of the distance up, as DeBERTa does, where T5 rounds down",
        "Round towards zero: (...).to(int64), or floor.",
        shown_by=_FAR,
    ),
    _spec(
        "buckets-rounded-down",
        "rounds the logarithm of the distance down, as T5 does, where DeBERTa rounds up",
        "Round up, by ceil, as DeBERTa does.",
        shown_by=_FAR,
    ),
    _code(
        "buckets-not-apart",
        "gives the same numbers to distances of different buckets: {which}",
        "Look at how the bucket of a distance is made, or at rows of the table that were never trained.",
        shown_by="buckets of their own",
    ),
    _code(
        "slopes-rounded",
        "has its slopes in {dtype}",
        "Keep slopes in float32: a module that is cast takes its buffers with it.",
        "flash-attention#845",
        "flash-attention#846",
        shown_by=_FAR,
    ),
    _code(
        "distances-rounded",
        "makes its distances in {dtype}, which has no number {ties:,}: keys that far away share a bias",
        "Make distances of whole numbers, multiply in float32, and round once at the end.",
        "transformers 5.23.0, Falcon's build_alibi_tensor",
        "gpt-neox, AliBi",
        shown_by=_FAR,
    ),
    _code(
        "bias-rounded",
        "rounds its bias to {dtype}",
        'Add the bias to scores in float32; or say dtype="{dtype}" if that is meant.',
        "HabanaAI/vllm-fork#503",
        shown_by=_FAR,
    ),
    _code(
        "positions-rounded",
        "rounds positions to {dtype}, which has no number {ties:,}",
        "Keep positions as whole numbers until they are subtracted.",
        shown_by=_FAR,
    ),
    _code(
        "positions-ignored",
        "ignores where queries and keys stand, and takes them for {where}",
        "Use the positions, or number the keys in the cache.",
        shown_by="positions that start later",
    ),
    _code(
        "bias-of-first-rows",
        "gives queries the rows of the first ones{when}: the matrix is cut at its top, where a query after a cache "
        "stands at the bottom",
        'Cut the last rows, bias[:, -queries:, :keys]; or say aligned="start" where queries do stand at the first '
        "keys.",
        "OpenNMT-py 3.5.1, AlibiPositionalBias",
        shown_by=_DECODING,
    ),
    _code(
        "bias-dropped",
        "gives no bias{when}",
        "Add the bias in every path: full pass, chunks and single queries.",
        "HabanaAI/vllm-fork#503",
        "TensorRT-LLM#13870",
        shown_by=_DECODING,
    ),
    _code(
        "later-keys-masked",
        "masks keys after the query, which this code sees",
        "Say causal=True if that is meant.",
    ),
    _code(
        "distance-offset",
        "is off by {by} in its distances{when}",
        "A query that follows n cached keys stands at n, and its own key is the last one.",
        shown_by=_DECODING,
    ),
    _code(
        "distances-clipped",
        "gives every distance beyond {end:,} the bias of {end:,}",
        "Make the bias of the distance, or a longer table.",
        shown_by="every distance",
    ),
    _code(
        "cache-keeps-first-length",
        "keeps the bias of the first call with so many queries and keys, and gives it to later ones that stand "
        "elsewhere",
        "Key the cache by positions too.",
        shown_by="positions that start later",
    ),
    _code(
        "cache-without-heads",
        "gives the second model the first one's bias: the cache does not know the number of heads",
        "Make everything that the numbers depend on a part of the key.",
        "mlx#3071",
        shown_by=_TWO,
    ),
    _code(
        "cache-without-slopes",
        "gives the second model the first one's bias: the cache does not know the slopes",
        "Make everything that the numbers depend on a part of the key.",
        "mlx#3071",
        shown_by=_TWO,
    ),
    _code(
        "cache-without-max-distance",
        "gives the second model the first one's buckets: the cache does not know the largest distance",
        "Make everything that the numbers depend on a part of the key.",
        shown_by=_TWO,
    ),
    _code(
        "changes-its-arguments",
        "changes its arguments: {names}",
        "Work on a copy.",
        shown_by="arguments stay as they are",
    ),
    _code(
        "one-number-wrong",
        "is right but for {which}",
        "Look at how this entry is made: an edge of a block, an overflow, a row that is written twice.",
        shown_by="every distance",
    ),
)
