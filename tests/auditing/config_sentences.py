"""What is told of shapes, spellings, scalings, releases, layers and axes: a case of every finding about a config."""

C = "config.json:"
P = f"{C}rope_parameters."
S = f"{C}rope_scaling."

CONFIGS = [
    (
        "conflicting-shapes",
        {f"{C}rope_theta": 10000.0, f"{P}rope_theta": 500000.0, "used": f"{P}rope_theta"},
        "warning",
        "The old and the new config format contradict each other: rope_theta is 10,000 but rope_parameters.rope_theta"
        " is 500,000. Runtimes that read the old format and runtimes that read the new format build different models,"
        " without a warning. Transformers 5 and the audit use rope_parameters.rope_theta.",
    ),
    (
        "conflicting-shapes",
        {
            f"{S}factor": 8.0,
            f"{P}factor": 32.0,
            f"{S}low_freq_factor": 1.0,
            f"{P}low_freq_factor": None,
            "used": f"{C}rope_scaling",
        },
        "warning",
        "The old and the new config format contradict each other: rope_scaling.factor is 8 but rope_parameters.factor"
        " is 32; low_freq_factor is only in rope_scaling. Runtimes that read the old format and runtimes that read"
        " the new format build different models, without a warning. Transformers 5 and the audit use rope_scaling.",
    ),
    (
        "conflicting-spellings",
        {f"{S}rope_type": "yarn", f"{S}type": "linear", "used": f"{S}rope_type"},
        "warning",
        'type and rope_type name different scalings: rope_scaling.rope_type is "yarn" but rope_scaling.type is'
        ' "linear". Runtimes that read only one of the two keys apply the scaling of that key; Transformers 5 and the'
        " audit use rope_type.",
    ),
    (
        "flat-layer-types",
        {
            f"{P}rope_type": "linear",
            f"{P}factor": 8.0,
            "kinds of layers": ["sliding_attention", "full_attention"],
            "base of sliding_attention": 10000.0,
            "base of full_attention": 1000000.0,
            "scaled": ["full_attention"],
        },
        "warning",
        'The file has a single RoPE block (rope_parameters.rope_type is "linear" and rope_parameters.factor is 8), but'
        " this model type needs one block for each layer type (sliding_attention and full_attention). Some runtimes"
        " ignore the single block; others apply it to all layers. Transformers 5 uses the base 10,000 for"
        " sliding_attention and 1,000,000 for full_attention, and no scaling.",
    ),
    (
        "layer-type-scaling",
        {
            f"{P}sliding_attention.rope_type": "linear",
            f"{P}sliding_attention.factor": 8.0,
            "stands on": "sliding",
            "belongs on": "full",
            "block": f"{P}sliding_attention",
            "belongs in": f"{P}full_attention",
            "missing there": True,
            "factor": 8.0,
        },
        "warning",
        'The RoPE scaling is on sliding-window layers (rope_parameters.sliding_attention.rope_type is "linear" and'
        " rope_parameters.sliding_attention.factor is 8) and full-attention layers have no scaling, but this model"
        " type scales only full-attention layers. The scaling makes the RoPE frequencies of sliding-window layers too"
        " low by a factor of 8.",
    ),
    (
        "layer-type-scaling",
        {
            f"{P}sliding_attention.rope_type": "linear",
            f"{P}sliding_attention.factor": 8.0,
            "stands on": "sliding",
            "belongs on": "full",
            "block": f"{P}sliding_attention",
            "belongs in": f"{P}full_attention",
            "missing there": False,
            "factor": 8.0,
        },
        "warning",
        'The RoPE scaling is on sliding-window layers (rope_parameters.sliding_attention.rope_type is "linear" and'
        " rope_parameters.sliding_attention.factor is 8), but this model type scales only full-attention layers. The"
        " scaling makes the RoPE frequencies of sliding-window layers too low by a factor of 8.",
    ),
    (
        "nope-inverted",
        {
            f"{C}no_rope_layers": [0, 0, 0, 1],
            "layers without rotation": 3,
            "layers": 4,
            "one layer without rotation in": 4,
        },
        "warning",
        "By the list, 3 of 4 layers do not rotate (no_rope_layers is [0, 0, 0, 1]), but in this model family one"
        " layer in 4 does not rotate. In this list, 1 means that the layer rotates, and 0 means that the layer does"
        " not rotate. The 1s and 0s were probably exchanged.",
    ),
    (
        "nope-inverted",
        {
            f"{C}no_rope_layers": [1, 1, 1, 1],
            f"{C}no_rope_layer_interval": 4,
            "layers without rotation": 0,
            "layers": 4,
            "one layer without rotation in": 4,
        },
        "warning",
        "By the list, all 4 layers rotate (no_rope_layers is [1, 1, 1, 1] and no_rope_layer_interval is 4), but by"
        " the interval one layer in 4 does not rotate. If the interval is right, runtimes that use the list rotate"
        " layers that were trained without rotation.",
    ),
    (
        "mrope-sections",
        {f"{S}mrope_section": [16, 24, 16], "together": 56, "pairs": 64, "order": "chunked"},
        "error",
        "rope_scaling.mrope_section is [16, 24, 16]: the sum is 56 pairs, but there are 64 RoPE pairs. Code of this"
        " model type fails when it splits the pairs into sections.",
    ),
    (
        "mrope-sections",
        {f"{S}mrope_section": [18, 23, 23], "together": 64, "pairs": 64, "order": "interleaved"},
        "warning",
        "rope_scaling.mrope_section is [18, 23, 23]: the sum of 64 pairs is right, but this model type interleaves"
        " the sections, so rows can have at most 21 pairs and columns at most 21 pairs. Code of this model type"
        " rotates the pairs above these limits by time, without a warning.",
    ),
    (
        "mrope-sections",
        {f"{S}mrope_section": [64, 0, 0], "together": 64, "pairs": 64, "order": "chunked"},
        "warning",
        "rope_scaling.mrope_section is [64, 0, 0]: the sum of 64 pairs is right, but there must be one section for"
        " time, one for rows and one for columns. At least one of these three coordinates has no pairs.",
    ),
    (
        "mrope-order",
        {f"{S}mrope_interleaved": False, "class order": "interleaved", "type": "qwen3_vl_text, transformers 5.23.0"},
        "warning",
        "rope_scaling.mrope_interleaved is false, but in code of this model type (qwen3_vl_text, transformers 5.23.0)"
        " the pairs of time, rows and columns are interleaved. Runtimes that use mrope_interleaved rotate pairs by"
        " the wrong coordinate. mrope_interleaved does not set the layout (which two dimensions form a pair).",
    ),
    (
        "mrope-order",
        {f"{S}mrope_interleaved": True, "class order": "chunked", "type": "qwen2_vl_text, transformers 5.23.0"},
        "warning",
        "rope_scaling.mrope_interleaved is true, but in code of this model type (qwen2_vl_text, transformers 5.23.0)"
        " the pairs of time, rows and columns are consecutive. Runtimes that use mrope_interleaved rotate pairs by"
        " the wrong coordinate. mrope_interleaved does not set the layout (which two dimensions form a pair).",
    ),
    (
        "partial-meaning",
        {
            f"{P}rope_type": "default",
            f"{P}partial_rotary_factor": 0.25,
            "share": 0.25,
            "class meaning": "proportional",
            "type": "gemma4_text, transformers 5.23.0",
            "as the class has it": False,
        },
        "warning",
        'rope_parameters.rope_type is "default" and rope_parameters.partial_rotary_factor is 0.25, but this model'
        " type computes the frequencies over the whole head and rotates only the fastest 25 % of the pairs (rope_type"
        ' "proportional"). With "default", the frequencies are computed over the RoPE dimensions instead, so all'
        " frequencies but the first are wrong.",
    ),
    (
        "partial-meaning",
        {
            f"{S}rope_type": "proportional",
            "share": 0.4,
            "class meaning": "default",
            "type": "phi, transformers 5.23.0",
            "as the class has it": False,
        },
        "warning",
        'rope_scaling.rope_type is "proportional", but code of this model type (phi, transformers 5.23.0) computes'
        ' the frequencies over the RoPE dimensions (40 % of the head). With "proportional", the frequencies are'
        " computed over the whole head instead, so all frequencies but the first are wrong, and the slow pairs do not"
        " rotate.",
    ),
    (
        "partial-meaning",
        {
            f"{P}rope_type": "proportional",
            f"{P}partial_rotary_factor": 0.25,
            "share": 0.25,
            "class meaning": "proportional",
            "type": "gemma4_text, transformers 5.23.0",
            "as the class has it": True,
        },
        "note",
        'rope_parameters.rope_type is "proportional" and rope_parameters.partial_rotary_factor is 0.25: the RoPE'
        " frequencies are computed over the whole head, but only the fastest 25 % of the pairs rotate. The model's"
        " class computes the same. Runtimes that ignore rope_type compute the frequencies over the RoPE dimensions"
        " instead, so all frequencies but the first are wrong.",
    ),
    (
        "partial-meaning",
        {f"{P}partial_rotary_factor": 0.25, f"{P}mrope_section": [11, 11, 10], "share": 0.25, "axes": True},
        "note",
        "rope_parameters.partial_rotary_factor is 0.25 and rope_parameters.mrope_section is [11, 11, 10]: only 25 %"
        " of the dimensions of each head rotate, and the RoPE pairs are divided among time, rows and columns. Some"
        " runtimes ignore partial_rotary_factor if there is an mrope_section, and rotate the whole head.",
    ),
    (
        "inert-window",
        {f"{C}sliding_window": 4096, f"{C}use_sliding_window": False},
        "note",
        "sliding_window is 4,096 and use_sliding_window is false: the sliding window is switched off for all layers.",
    ),
    (
        "wrong-original",
        {
            f"{S}original_max_position_embeddings": 163840,
            f"{C}max_position_embeddings": 163840,
            "original": 163840,
            "context": 163840,
            "factor": 40,
            "first bad distance": 725,
            "base": 10000.0,
            "pairs": 32,
        },
        "warning",
        "The original length of the scaling is 163,840, equal to the context length. But with a base of 10,000 and 32"
        " pairs, a query scores a matching token below a random token from distance 725 on, so the true original"
        " length must be far shorter. With the wrong original length, the scaling changes the wrong pairs.",
    ),
    (
        "wrong-original",
        {
            f"{S}original_max_position_embeddings": 8192,
            f"{C}max_position_embeddings": 4096,
            "original": 8192,
            "context": 4096,
            "factor": 4.0,
        },
        "warning",
        "The original length of the scaling is 8,192, more than the context length of 4,096"
        " (rope_scaling.original_max_position_embeddings is 8,192 and max_position_embeddings is 4,096). The original"
        " length cannot be longer than the extended length.",
    ),
    (
        "wrong-original",
        {
            f"{S}original_max_position_embeddings": 4096,
            f"{C}max_position_embeddings": 4096,
            "original": 4096,
            "context": 4096,
            "factor": 8.0,
        },
        "warning",
        "The original length of the scaling is 4,096, equal to the context length"
        " (rope_scaling.original_max_position_embeddings is 4,096 and max_position_embeddings is 4,096), but the"
        " factor of the scaling is 8. Either the context was not extended, or the extended length was written in"
        " place of the original length.",
    ),
    (
        "wrong-original",
        {
            f"{S}original_max_position_embeddings": 4096,
            f"{C}max_position_embeddings": 4096,
            "original": 4096,
            "context": 4096,
            "factor": 1.0,
            "long list": 64.76,
        },
        "warning",
        "The original length of the scaling is 4,096, equal to the context length"
        " (rope_scaling.original_max_position_embeddings is 4,096 and max_position_embeddings is 4,096), so the long"
        " list, with numbers up to 64.76, is never used, and the attention factor is 1. One of the two lengths is"
        " wrong.",
    ),
    (
        "missing-scaling",
        {
            f"{C}max_position_embeddings": 131072,
            f"{C}rope_theta": 500000.0,
            "context": 131072,
            "base": 500000.0,
            "type": "llama",
            "reach": 8192,
            "release": "Llama-3.1-8B",
            "its scaling": "the scaling llama3 with a factor of 8",
        },
        "warning",
        "The context length is 131,072, the base is 500,000, and there is no RoPE scaling. Published models of type"
        ' "llama" with this base and no scaling have a context length of 8,192; Llama-3.1-8B, a published model of'
        " the same size, has the scaling llama3 with a factor of 8. Without the scaling, positions beyond the"
        " original length give angles that the model has not seen in training.",
    ),
    (
        "differs-from-release",
        {
            f"{S}factor": 8.0,
            "release": "Llama-3.2-1B",
            "shape": "llama, width 2,048, 16 layers, 32 heads",
            "published": "the scaling llama3 with a factor of 32",
            "because": "8 is the factor of Llama 3.1 and a default of converters",
        },
        "warning",
        "rope_scaling.factor is 8, but a published model of the same size, Llama-3.2-1B, has the scaling llama3 with a"
        " factor of 32. 8 is the factor of Llama 3.1 and a default of converters: the value was probably lost or"
        " mistyped.",
    ),
    (
        "differs-from-release",
        {
            f"{C}rope_theta": 12000000.0,
            "release": "Llama-3.1-8B",
            "shape": "llama, width 4,096, 32 layers, 32 heads",
            "published": "a base of 500,000",
            "because": None,
        },
        "note",
        "rope_theta is 12,000,000, but a published model of the same size, Llama-3.1-8B, has a base of 500,000."
        " Either the file is of another model, or the model was extended or trained further with other RoPE settings.",
    ),
    (
        "differs-from-release",
        {
            "here": "There is no scaling",
            "release": "Gemma-3-4B",
            "shape": "gemma3_text, width 2,560, 34 layers, 8 heads",
            "published": "the scaling linear with a factor of 8",
            "because": "the file has nothing else in its place",
        },
        "warning",
        "There is no scaling, but a published model of the same size, Gemma-3-4B, has the scaling linear with a factor"
        " of 8. The file has nothing else in its place: the value was probably lost or mistyped.",
    ),
    (
        "differs-from-release",
        {
            "here": "The M-RoPE sections (of time, rows and columns) are not in the file",
            "release": "Qwen3-VL-32B",
            "shape": None,
            "published": "mrope_section [24, 20, 20]",
            "because": "the file has nothing else in their place",
        },
        "warning",
        "The M-RoPE sections (of time, rows and columns) are not in the file, but a published model of this type,"
        " Qwen3-VL-32B, has mrope_section [24, 20, 20]. The file has nothing else in their place: the value was"
        " probably lost or mistyped.",
    ),
    (
        "factor-times-original",
        {
            f"{S}factor": 4.0,
            f"{S}original_max_position_embeddings": 32768,
            "factor x original": 131072.0,
            f"{C}max_position_embeddings": 40960,
            "scaling": "yarn",
            "switched on in": "Qwen3-8B",
        },
        "note",
        "Factor x original length is 131,072, which differs from the declared length (rope_scaling.factor is 4,"
        " rope_scaling.original_max_position_embeddings is 32,768 and max_position_embeddings is 40,960). The"
        " declared length is that of Qwen3-8B, which has no scaling, so the scaling was added by hand. Runtimes that"
        " use the declared length do not accept texts of the extended length.",
    ),
    (
        "longrope-lists",
        {f"{S}long_factor": "a list of 64", "numbers": 64, "pairs": 48},
        "error",
        "rope_scaling.long_factor has 64 numbers for 48 RoPE pairs. The list needs one number for each pair, so no"
        " RoPE frequencies can be computed.",
    ),
    (
        "longrope-swapped",
        {f"{S}short_factor": [4.0] * 48, f"{S}long_factor": [1.0] * 48, "largest short": 4.0, "largest long": 1.0},
        "warning",
        "The largest number of the short list is 4, and the largest number of the long list is 1. The long list must"
        " have the larger numbers, so rope_scaling.short_factor and rope_scaling.long_factor are swapped.",
    ),
    (
        "default-base",
        {
            "used": 10000.0,
            "default of": "llama (transformers 5.23.0)",
            "documented": True,
            "context": 131072,
            "scaling": "llama3",
        },
        "warning",
        "The base is not in the file, so the audit uses the documented default of llama (transformers 5.23.0):"
        ' 10,000. The scaling "llama3" is usually published with a larger base.',
    ),
    (
        "default-base",
        {
            "used": 10000.0,
            "default of": "qwen2 (transformers 5.23.0)",
            "documented": True,
            "context": 32768,
            "scaling": None,
            "window": None,
        },
        "warning",
        "The base is not in the file, so the audit uses the documented default of qwen2 (transformers 5.23.0):"
        " 10,000. The base 10,000 is small for 32,768 positions without a scaling, so the model was probably trained"
        " with a larger base.",
    ),
    (
        "default-base",
        {
            "used": 10000.0,
            "default of": "mistral (transformers 5.23.0)",
            "documented": True,
            "context": 32768,
            "scaling": None,
            "window": 4096,
        },
        "note",
        "The base is not in the file, so the audit uses the documented default of mistral (transformers 5.23.0):"
        " 10,000.",
    ),
    (
        "default-base",
        {
            "used": 10000.0,
            "default of": "GGUF readers",
            "documented": True,
            "context": 4096,
            "never": "their base is 1,000,000",
        },
        "warning",
        "The base is not in the file, so the audit uses the documented default of GGUF readers: 10,000. No release of"
        " this architecture has the base 10,000: their base is 1,000,000.",
    ),
    (
        "unknown-key",
        {f"{S}finetune": True, "known": "type, factor"},
        "warning",
        "rope_scaling.finetune (true) is not a key of this block (known keys: type, factor). Runtimes ignore this key"
        " without a warning.",
    ),
    (
        "ignored-key",
        {f"{C}rotary": True, "because": "bert does not read it"},
        "warning",
        "rotary is true, but runtimes ignore this key without a warning (bert does not read it).",
    ),
]
