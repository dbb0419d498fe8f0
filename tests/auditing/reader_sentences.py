"""What is told of readers: a case of every finding, for the tests of all rows."""

C = "config.json:"
P = f"{C}rope_parameters."
S = f"{C}rope_scaling."

READERS = [
    (
        "new-shape-only",
        {
            f"{P}rope_theta": 500000.0,
            f"{P}rope_type": "llama3",
            "read instead": "base 10,000 and no scaling",
            "right": "base 500,000 and llama3 by 8",
            "reader": "Transformers 4.57.1",
            "largest ratio": 353.97,
            "pair": 31,
            "pairs": 32,
            "off by a radian from": 8,
        },
        "warning",
        "What the positions need stands in rope_parameters alone. Transformers 4.57.1, and what is built on releases of"
        " that age, does not look there: it takes base 10,000 and no scaling instead of base 500,000 and llama3 by 8,"
        " without a warning. The rates of pair 31 are then 354 times apart, and a pair is off by a radian from distance"
        " 8 on.",
    ),
    (
        "legacy-layer-bases",
        {f"{C}global_rope_theta": 160000.0, f"{C}local_rope_theta": 10000.0, "largest ratio": 14.68, "pair": 31},
        "note",
        "global_rope_theta is 160,000 and local_rope_theta is 10,000: two bases for two kinds of layers, in keys of the"
        " old shape only. A reader that knows one of the keys gives all layers the same base, and so turns the others"
        " at wrong rates, pair 31 by 14.7 times.",
    ),
    (
        "uncommon-scaling-name",
        {
            f"{S}rope_type": "deepseek_yarn",
            "common name": "yarn",
            "refused by": ["Transformers 4.57.1", "Transformers 5.23.0"],
            f"{C}max_position_embeddings": 163840,
            f"{S}factor": 40.0,
            "length x factor": 6553600.0,
        },
        "warning",
        'The scaling is called "deepseek_yarn", which only some readers know; the common name is "yarn". Transformers'
        " 4.57.1 and Transformers 5.23.0 refuse it. A reader that knows the length to hold the factor for common names"
        " only, such as vLLM 0.11.0, takes 163,840 x 40 = 6,553,600 positions.",
    ),
    (
        "explicit-attention-factor",
        {f"{S}attention_factor": 1.0, "formula": 1.4158883, "readers": ["vLLM 0.11.0", "llama.cpp"]},
        "note",
        "attention_factor is written out as 1, where the scaling's own formula gives 1.4159. vLLM 0.11.0 and llama.cpp"
        " drop the key and take the formula's.",
    ),
    (
        "explicit-attention-factor",
        {f"{S}attention_factor": 1.0, "formula": 1.4158883, "readers": []},
        "note",
        "attention_factor is written out as 1, where the scaling's own formula gives 1.4159. A reader that drops it"
        " takes the formula's.",
    ),
    (
        "disputed-attention-factor",
        {
            f"{P}mscale": 1.0,
            f"{P}mscale_all_dim": 1.0,
            f"{P}factor": 16.0,
            "ratio": 1.0,
            "formula": 1.2772589,
            "readers of the ratio": ["Transformers 5.23.0", "vLLM 0.33.0"],
            "readers of the formula": [],
        },
        "note",
        "Disputed: what multiplies cosine and sine where mscale is 1 and mscale_all_dim is 1. The ratio of the two"
        " magnitudes gives 1.0000 (Transformers 5.23.0 and vLLM 0.33.0); the formula of YaRN's paper, 0.1 ln(factor) +"
        " 1, gives 1.2773 (none of the readers described here does so). This audit shows the ratio and gives no"
        " verdict.",
    ),
    (
        "softmax-scale",
        {
            f"{S}mscale_all_dim": 1.0,
            f"{S}factor": 40,
            "scale of the scores": 1.8739,
            "type": "deepseek_v2",
            "Transformers 5.23.0": True,
            "Transformers 4.57.1": False,
        },
        "note",
        "mscale_all_dim asks for a factor on the scores as well, (0.1 mscale_all_dim ln(factor) + 1)^2 = 1.874, and no"
        " ladder shows it. Transformers 5.23.0 does so for this type, Transformers 4.57.1 does not.",
    ),
    (
        "uncommon-betas",
        {f"{P}beta_fast": 4.0, "readers": [], "first pair": 14, "last pair": 30, "largest ratio": 2.2113},
        "note",
        "The ramp of YaRN is not the usual one (rope_parameters.beta_fast is 4): readers with constants take beta_fast"
        " 32, beta_slow 1 and a ramp between whole pairs, whatever the file says. With those, pairs 14 to 30 turn at"
        " other rates, up to 2.21 times apart.",
    ),
    (
        "uncommon-betas",
        {f"{S}truncate": False, "readers": ["llama.cpp"]},
        "note",
        "The ramp of YaRN is not the usual one (rope_scaling.truncate is false): llama.cpp takes beta_fast 32,"
        " beta_slow 1 and a ramp between whole pairs, whatever the file says.",
    ),
    (
        "misplaced-original",
        {
            f"{S}original_max_position_embeddings": 4096,
            "type": "phi3",
            "outside": f"{C}original_max_position_embeddings",
            "refused by": ["Transformers 4.57.1"],
        },
        "warning",
        "rope_scaling.original_max_position_embeddings is 4,096, inside the block, where the class of phi3 looks for it"
        " outside: a reader finds no original length and takes another one; Transformers 4.57.1 refuses the block so.",
    ),
    (
        "length-times-factor",
        {
            f"{C}max_position_embeddings": 4096,
            f"{S}factor": 2.0,
            "length x factor": 8192.0,
            "multiplied by": ["vLLM 0.11.0", "vLLM 0.33.0"],
            "tokenizer_config.json:model_max_length": 4096,
            "confirmed": True,
        },
        "warning",
        "config.json:max_position_embeddings is 4,096 and config.json:rope_scaling.factor is 2: vLLM 0.11.0 and vLLM"
        " 0.33.0 multiply them and take 8,192 positions for the longest length, and Transformers takes 4,096."
        " tokenizer_config.json:model_max_length is 4,096 as well, so the length holds the factor already, and such a"
        " reader serves positions that the model was not made for.",
    ),
    (
        "length-times-factor",
        {f"{C}max_position_embeddings": 512, f"{S}factor": 2.0, "length x factor": 1024.0, "confirmed": False},
        "note",
        "max_position_embeddings is 512 and rope_scaling.factor is 2: vLLM multiplies them and takes 1,024 positions"
        " for the longest length, and Transformers takes 512. Which of the two is meant, the file does not say.",
    ),
    (
        "flat-vision-language",
        {f"{C}rope_theta": 10000.0, f"{C}partial_rotary_factor": 0.5, "type": "glm4v", "text type": "glm4v_text"},
        "warning",
        "The text part stands flat at the top (rope_theta is 10,000 and partial_rotary_factor is 0.5), and the class of"
        " glm4v in Transformers 5.23.0 reads text_config alone: it drops these and takes the defaults of glm4v_text.",
    ),
]
