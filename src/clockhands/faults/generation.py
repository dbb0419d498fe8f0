"""The faults of models that keep a cache: what each looks like, and where it was met.

A model is asked the same text in ways in which it should not matter; what it says in one pass with other positions, or
seeing other keys, is what a fault would make of it.
"""

from clockhands.faults.fault import row_maker

_code = row_maker("code", "generation")

FAULTS = (
    _code(
        "padding-shifts",
        "counts pads as positions: after {pads} a text starts at position {start}, not at 0",
        "Number the tokens that the mask shows, not the rows: position = cumulative sum of the mask - 1, for each text "
        "of the batch, when decoding too.",
        "unsloth#3699",
        "unsloth#4078",
        "nnsight#673",
        shown_by="left padding",
    ),
    _code(
        "padding-seen",
        "sees the pads as tokens: {pads} in front of a text are read like a text",
        "Hide the keys that the mask leaves out, in every layer.",
        shown_by="left padding",
    ),
    _code(
        "packing-ignored",
        "does not start anew for the second document of a packed row",
        "Restart positions with every document, and hide the keys of the others: pass positions and the mask on to "
        "every layer.",
        "OLMo-core#591",
        "nanoVLM#201",
        "torchtitan#2559",
        shown_by="packing",
    ),
    _code(
        "decode-positions",
        "goes on at other positions once there is a cache: {how}",
        "A new token stands at the number of tokens before it; count them once, in one place.",
        "sglang#25015",
        "unsloth#3699",
        shown_by="one token at a time",
    ),
    _code(
        "chunk-restarts",
        "starts again at position 0 with every piece of a text",
        "Add the number of tokens in the cache to the positions of a piece.",
        "Megatron-LM#4075",
        shown_by="pieces",
    ),
    _code(
        "cache-not-read",
        "does not see the keys of its cache: every piece of a text is read alone",
        "Attend to the cached keys and the new ones together.",
        shown_by="pieces",
    ),
    _code(
        "first-keys-seen",
        "hides the wrong keys once there is a cache: the first query of a piece sees the first key alone",
        "Align the causal mask with the end of the keys: the last query sees all of them.",
        shown_by="pieces",
    ),
    _code(
        "chunk-mixes-lists",
        "turns by other rates as soon as a text has more than {threshold} tokens, and what is cached keeps those of "
        "before: the cache then mixes two lists of factors",
        "Make the cache anew when the length crosses that of the original training, or fix the list before a text "
        "begins; in one pass and in pieces the answers differ by nature until then.",
        "uzu#604",
        "unsloth#10681",
        "vllm#27431",
        "llama.cpp#24875",
        shown_by="a longer text",
    ),
    _code(
        "cache-older-base",
        "raises its base with every token beyond {threshold}, and cached keys stay on an older one",
        "Fix the base for the longest text before it begins, or cache keys that are not turned yet; in one pass and in "
        "pieces the answers differ by nature until then.",
        "transformers#25104",
        "vllm#52665",
        "vllm#52675",
        shown_by="a longer text",
    ),
    _code(
        "later-tokens-seen",
        "changes what it says of a token with the tokens that come after it",
        "A model that keeps a cache must be causal: hide the later keys in every layer.",
        shown_by="a longer text",
    ),
    _code(
        "cached-keys-keep-positions",
        "leaves cached keys at their old positions when a cache is {moved}",
        "Turn the keys on by the difference of the positions (clockhands.rotary.rerotate), or cache them unturned.",
        "MemOS#2315",
        shown_by="a shifted cache",
    ),
    _code(
        "bias-lost-in-decode",
        "forgets its bias once there is a cache: a new token does not see in which order the keys stand",
        "Compute the bias for the queries that are asked and all keys, and add it when decoding too.",
        "HabanaAI/vllm-fork#503",
        "TensorRT-LLM#13870",
        shown_by="one token at a time",
    ),
    _code(
        "eviction-stops-positions",
        "counts the rows of its cache as positions: after {kept} of {begun} were kept, the next token stands at {kept}",
        "Keep the number of tokens seen beside the cache; a position goes on when old keys are gone.",
        "VeloxQuant-MLX#138",
        "VeloxQuant-MLX#195",
        shown_by="rows taken out of the cache",
    ),
    _code(
        "remembers-longest",
        "remembers the longest text that it has seen: a short one after it gets other answers",
        "Make the rates from the length in use, each time, or from a length that is fixed.",
        "transformers#25104",
        shown_by="asked again",
    ),
    _code(
        "model-keeps-state",
        "keeps something outside of its cache: what it says depends on the texts that it was given between",
        "Keep what belongs to a text in its cache, its number of tokens too.",
        shown_by="two texts by turns",
    ),
)
