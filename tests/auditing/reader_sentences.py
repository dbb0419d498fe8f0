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
            "right": "base 500,000 and the scaling llama3 with factor 8",
            "reader": "Transformers 4.57.1",
            "largest ratio": 353.97,
            "pair": 31,
            "pairs": 32,
            "off by a radian from": 8,
        },
        "warning",
        "The RoPE settings are only in rope_parameters, a key that Transformers 4.57.1 and other old runtimes do not"
        " read. These runtimes use base 10,000 and no scaling instead of base 500,000 and the scaling llama3 with"
        " factor 8, without a warning. The RoPE frequency of pair 31 is then wrong by a factor of 354, and at least"
        " one pair is off by 1 radian from distance 8 on.",
    ),
    (
        "legacy-layer-bases",
        {f"{C}global_rope_theta": 160000.0, f"{C}local_rope_theta": 10000.0, "largest ratio": 14.68, "pair": 31},
        "note",
        "global_rope_theta is 160,000 and local_rope_theta is 10,000: the bases of two layer types are only in keys"
        " of the old config format. A runtime that knows only one of these keys gives all layers the same base, so"
        " one layer type has wrong RoPE frequencies (the frequency of pair 31 is wrong by a factor of 14.7).",
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
        'Only some runtimes know the scaling name "deepseek_yarn"; the common name is "yarn". Transformers 4.57.1 and'
        ' Transformers 5.23.0 refuse "deepseek_yarn". The declared length already includes the factor, but some'
        " runtimes, such as vLLM 0.11.0, multiply the length by the factor again if the name is not common: 163,840 x"
        " 40 = 6,553,600 positions.",
    ),
    (
        "explicit-attention-factor",
        {f"{S}attention_factor": 1.0, "formula": 1.4158883, "readers": ["vLLM 0.11.0", "llama.cpp"]},
        "note",
        "attention_factor is 1, but the formula of the scaling gives 1.4159. vLLM 0.11.0 and llama.cpp ignore"
        " attention_factor and use the value of the formula.",
    ),
    (
        "explicit-attention-factor",
        {f"{S}attention_factor": 1.0, "formula": 1.4158883, "readers": []},
        "note",
        "attention_factor is 1, but the formula of the scaling gives 1.4159. A runtime that ignores attention_factor"
        " uses the value of the formula.",
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
        "Runtimes compute different attention factors if mscale is 1 and mscale_all_dim is 1. The magnitude of mscale"
        " divided by the magnitude of mscale_all_dim is 1.0000 (used by Transformers 5.23.0 and vLLM 0.33.0); the"
        " formula of YaRN's paper, 0.1 ln(factor) + 1, gives 1.2773 (used by no runtime that was compared). The audit"
        " shows 1.0000, but does not know which of the two factors is right.",
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
        "mscale_all_dim also scales the attention scores: the model multiplies the scores by (0.1 mscale_all_dim"
        " ln(factor) + 1)^2 = 1.874. The RoPE frequencies do not include this scale. Transformers 5.23.0 applies this"
        " scale for this model type, Transformers 4.57.1 does not apply this scale.",
    ),
    (
        "uncommon-betas",
        {f"{P}beta_fast": 4.0, "readers": [], "first pair": 14, "last pair": 30, "largest ratio": 2.2113},
        "note",
        "The file changes YaRN's usual settings (rope_parameters.beta_fast is 4). Whatever the file says, a runtime"
        " that does not read these keys uses beta_fast 32, beta_slow 1 and truncate true. With these constants, the"
        " RoPE frequencies of pairs 14 to 30 are wrong by a factor of up to 2.21.",
    ),
    (
        "uncommon-betas",
        {f"{S}truncate": False, "readers": ["llama.cpp"]},
        "note",
        "The file changes YaRN's usual settings (rope_scaling.truncate is false). Whatever the file says, llama.cpp"
        " uses beta_fast 32, beta_slow 1 and truncate true.",
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
        "rope_scaling.original_max_position_embeddings is 4,096 inside the scaling block, but the class of phi3 reads"
        " this key outside the block. A runtime that looks only outside the block finds no original length and uses"
        " another length; Transformers 4.57.1 refuses the scaling block.",
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
        " 0.33.0 multiply the two and use 8,192 positions as the maximum length; Transformers uses 4,096."
        " tokenizer_config.json:model_max_length is 4,096 as well, so the length already includes the factor. A"
        " runtime that multiplies by the factor again accepts texts that are too long for the model.",
    ),
    (
        "length-times-factor",
        {f"{C}max_position_embeddings": 512, f"{S}factor": 2.0, "length x factor": 1024.0, "confirmed": False},
        "note",
        "max_position_embeddings is 512 and rope_scaling.factor is 2: vLLM multiplies the two and uses 1,024"
        " positions as the maximum length; Transformers uses 512. The file does not say which of the two lengths is"
        " meant.",
    ),
    (
        "flat-vision-language",
        {f"{C}rope_theta": 10000.0, f"{C}partial_rotary_factor": 0.5, "type": "glm4v", "text type": "glm4v_text"},
        "warning",
        "The text settings are at the top level of the config (rope_theta is 10,000 and partial_rotary_factor is"
        " 0.5), but the config class of glm4v in Transformers 5.23.0 reads only text_config. This class ignores the"
        " values at the top level, and uses the defaults of glm4v_text.",
    ),
    (
        "misread-by-runtime",
        {
            "runtime": "Transformers 4.57.1",
            "certain": True,
            "instead": ["base 10,000 and no scaling instead of base 500,000 and the scaling llama3 with factor 8"],
            "lost": True,
            "other layers": 0,
            "off by a radian from": 8,
        },
        "error",
        "Transformers 4.57.1 uses base 10,000 and no scaling instead of base 500,000 and the scaling llama3 with factor"
        " 8. At least one pair is off by 1 radian from distance 8 on.",
    ),
    (
        "misread-by-runtime",
        {
            "runtime": "vLLM 0.11.0",
            "certain": False,
            "not read": "The code of release 0.25 was not read. vLLM 0.33.0 reads the file right.",
            "instead": ["the last 513 positions instead of the last 512 positions"],
            "lost": False,
            "other layers": 2,
        },
        "warning",
        "vLLM 0.11.0 uses the last 513 positions instead of the last 512 positions. 2 more groups of layers differ"
        " from the file. The code of release 0.25 was not read. vLLM 0.33.0 reads the file right.",
    ),
    (
        "misread-by-runtime",
        {
            "runtime": "DeepSpeed",
            "certain": True,
            "does": "It reads rope_theta only.",
            "source": "deepspeedai/DeepSpeed#8341",
            "instead": ["base 10,000 instead of base 500,000"],
            "lost": True,
            "other layers": 1,
            "off by a radian from": 8,
        },
        "error",
        "DeepSpeed uses base 10,000 instead of base 500,000. At least one pair is off by 1 radian from distance 8 on."
        " It reads rope_theta only. Source: deepspeedai/DeepSpeed#8341. 1 more group of layers differs from the file.",
    ),
    (
        "refused-by-runtime",
        {"runtime": "vLLM 0.33.0", "certain": True, "because": "Scaling of type 'x' is not known."},
        "error",
        "vLLM 0.33.0 does not load this file (Scaling of type 'x' is not known).",
    ),
    (
        "refused-by-runtime",
        {
            "runtime": "vLLM 0.11.0",
            "certain": False,
            "because": "Scaling of type 'x' is not known.",
            "not read": "The code of release 0.25 was not read.",
        },
        "warning",
        "vLLM 0.11.0 does not load this file (Scaling of type 'x' is not known). The code of release 0.25"
        " was not read.",
    ),
    (
        "runtime-not-known",
        {"runtime": "DeepSpeed 0.18", "because": "Its code was not read for such files."},
        "note",
        "clockhands does not know what DeepSpeed 0.18 computes from this file. Its code was not read for such files.",
    ),
    (
        "often-misread",
        {
            "mistakes": ["base 10,000 instead of the base in the file", "no sliding windows"],
            "known": 1,
            "base 10,000 instead of the base in the file": "off by 1 radian from distance 8 on; made by AirLLM (a/b#1)",
            "no sliding windows": "all positions instead of the last 512 positions",
        },
        "note",
        "2 common mistakes of runtimes change the position encoding of this file: base 10,000 instead of the base in"
        " the file; no sliding windows. Known runtimes make 1 of these 2 mistakes.",
    ),
    (
        "often-misread",
        {
            "mistakes": ["no sliding windows"],
            "known": 0,
            "no sliding windows": "all positions instead of the last 512 positions",
        },
        "note",
        "1 common mistake of runtimes changes the position encoding of this file: no sliding windows. No known"
        " runtime makes this mistake.",
    ),
]
