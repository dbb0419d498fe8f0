"""What is told of values, keys, model types and tables: a case of every finding, for the tests of all rows."""

C = "config.json:"
LLAMA3 = {
    f"{C}rope_scaling.factor": 32.0,
    f"{C}rope_scaling.original_max_position_embeddings": 8192,
    "factor x original": 262144.0,
    f"{C}max_position_embeddings": 131072,
}

RECOGNISED = {
    "code": "sinusoidal, width 8",
    "name": "whisper",
    "positions": "positions 0 to 63",
    "error": 1.2e-7,
    "computed in": "float32",
    "computed": True,
}

VALUES = [
    (
        "impossible-value",
        {f"{C}hidden_size / {C}num_attention_heads": 64, "allowed": "`rotated` must be even, got 25."},
        "error",
        "hidden_size / num_attention_heads is 64, which cannot be used (`rotated` must be even, got 25). The audit"
        " did not compute what depends on this value.",
    ),
    (
        "impossible-value",
        {f"{C}rope_theta": 0, "allowed": "a finite number above 1"},
        "error",
        "rope_theta is 0, which cannot be used (allowed: a finite number above 1). The audit did not compute what"
        " depends on this value.",
    ),
    (
        "impossible-value",
        {f"{C}rope_scaling.factor": 32.0, "allowed": "`beta_fast` must be above `beta_slow`, got 1 and 2."},
        "error",
        "rope_scaling.factor is 32, which cannot be used (`beta_fast` must be above `beta_slow`, got 1 and 2). The"
        " audit did not compute what depends on this value.",
    ),
    (
        "unknown-scaling",
        {f"{C}rope_scaling.type": "yarnn", "known": "linear, yarn"},
        "error",
        'rope_scaling.type is "yarnn", which is not a known scaling (known scalings: linear, yarn). No RoPE'
        ' frequencies can be computed. Did you mean "yarn"?',
    ),
    (
        "unknown-scaling",
        {f"{C}rope_scaling.type": "foo", "known": "linear, yarn"},
        "error",
        'rope_scaling.type is "foo", which is not a known scaling (known scalings: linear, yarn). No RoPE frequencies'
        " can be computed.",
    ),
    (
        "incomplete-scaling",
        {f"{C}rope_scaling.rope_type": "llama3", "missing": "low_freq_factor"},
        "error",
        'The scaling block (rope_scaling.rope_type is "llama3") lacks low_freq_factor.',
    ),
    (
        "incomplete-scaling",
        {f"{C}use_dynamic_ntk": True, "missing": "a scaling block with its numbers"},
        "note",
        "use_dynamic_ntk is true: only the model's original code knows the numbers of this scaling. The audit did not"
        " compute the RoPE frequencies.",
    ),
    (
        "short-table",
        {"rows": 514, "offset": 2, "usable": 512, "context": 1024},
        "error",
        "The learned table has 514 rows, 2 of these rows before position 0: the table ends after 512 positions, but"
        " the declared context length is 1,024.",
    ),
    (
        "short-table",
        {"rows": 512, "offset": 0, "usable": 512, "context": 1024},
        "error",
        "The learned table has 512 rows: the table ends after 512 positions, but the declared context length is 1,024.",
    ),
    (
        "non-finite-rows",
        {"rows with NaN or infinity": 2, "rows": 512, "first such row": 3},
        "error",
        "2 of 512 rows hold NaN or infinity; the first such row is row 3.",
    ),
    (
        "non-finite-rows",
        {"rows with NaN or infinity": 1, "rows": 512, "first such row": 3},
        "error",
        "1 of 512 rows holds NaN or infinity; the first such row is row 3.",
    ),
    (
        "conflicting-keys",
        {f"{C}rope_theta": 1e4, f"{C}rope_parameters.rope_theta": 5e5, "used": f"{C}rope_parameters.rope_theta"},
        "warning",
        "One quantity has two values: rope_theta is 10,000 but rope_parameters.rope_theta is 500,000. Runtimes that"
        " read only one of these keys build different models. The audit uses rope_parameters.rope_theta.",
    ),
    (
        "conflicting-keys",
        {
            f"{C}max_position_embeddings": 512,
            "model.safetensors:wpe.weight": 1024,
            "used": f"{C}max_position_embeddings",
        },
        "warning",
        "One quantity has two values: config.json:max_position_embeddings is 512 but model.safetensors:wpe.weight is"
        " 1,024. Runtimes that read only one of these keys build different models. The audit uses"
        " config.json:max_position_embeddings.",
    ),
    (
        "converted-layout",
        {f"{C}clockhands_layout": "interleaved", "type": "architecture of llama (transformers 5)", "pairs": "halves"},
        "warning",
        'clockhands_layout is "interleaved", but the code of this model type (architecture of llama (transformers 5))'
        ' does not read this key and uses the RoPE layout "halves". This code therefore rotates wrong pairs of'
        " dimensions.",
    ),
    (
        "duplicate-key",
        {f"{C}rope_theta": "given more than once", "used": "the last value"},
        "warning",
        "rope_theta occurs more than once. The audit uses the last value; some runtimes may use the first value.",
    ),
    (
        "duplicate-key",
        {f"{C}vocab": "given more than once", "used": "the last value"},
        "note",
        "vocab occurs more than once. The audit uses the last value; some runtimes may use the first value.",
    ),
    (
        "ignored-key",
        {f"{C}rope_theta": 5e5, "because": "gpt_neox does not read it", "read instead": "rotary_emb_base"},
        "warning",
        "rope_theta is 500,000, but runtimes ignore this key without a warning (gpt_neox does not read it). Runtimes"
        " use rotary_emb_base instead.",
    ),
    (
        "ignored-key",
        {f"{C}n_positions": 2048, "because": "llama (transformers 5.23.0) does not read it"},
        "note",
        "n_positions is 2,048, but runtimes ignore this key without a warning (llama (transformers 5.23.0) does not"
        " read it).",
    ),
    (
        "table-size",
        {"model.safetensors:wpe.weight": [256, 768], f"{C}n_positions": 1024, "used": "model.safetensors:wpe.weight"},
        "warning",
        "model.safetensors:wpe.weight is [256, 768] but config.json:n_positions is 1,024. The weights do not match the"
        " declared values.",
    ),
    (
        "table-size",
        {"model.safetensors:wpe.weight": [224, 64], "class default of whisper (transformers 5.23.0)": 448},
        "warning",
        "wpe.weight is [224, 64] but the class default of whisper (transformers 5.23.0) is 448. The weights do not"
        " match the declared values.",
    ),
    (
        "table-size",
        {"model.gguf:position_embd.weight": [256, 768], "declared": [512, 768]},
        "warning",
        "position_embd.weight is [256, 768] but [512, 768] is declared. The weights do not match the declared values.",
    ),
    (
        "table-size",
        {"model.safetensors:wpe.weight": [1, 256, 768], "expected": "a table of rows and columns"},
        "warning",
        "wpe.weight is [1, 256, 768]; a table of rows and columns was expected. The weights do not match the declared"
        " values.",
    ),
    (
        "nothing-declared",
        {"model.safetensors": "12 tensors, but none has the name of a known position tensor"},
        "note",
        "model.safetensors holds 12 tensors, but none has the name of a known position tensor.",
    ),
    (
        "ignored-key",
        {f"{C}rope_parameters.factor": 8.0, "because": "this model type reads one RoPE block for all layers"},
        "warning",
        "rope_parameters.factor is 8, but runtimes ignore this key without a warning (this model type reads one RoPE"
        " block for all layers).",
    ),
    (
        "missing-value",
        {"missing": "rope_theta", "needed for": "the frequencies"},
        "note",
        "rope_theta is not in the file. The frequencies cannot be computed without this value.",
    ),
    (
        "default-base",
        {f"{C}rope_theta": None, "used": 1e6, "default of": "mixtral (transformers 5.23.0)", "documented": True},
        "note",
        "The base is not in the file (rope_theta is null), so the audit uses the documented default of mixtral"
        " (transformers 5.23.0): 1,000,000.",
    ),
    (
        "unknown-key",
        {f"{C}rope_scaling.factr": 8, "known": "type, factor"},
        "warning",
        "rope_scaling.factr (8) is not a key of this block (known keys: type, factor). Runtimes ignore this key"
        " without a warning. Did you mean factor?",
    ),
    (
        "unreadable-field",
        {f"{C}rope_scaling": [1, 2], "expected": "an object or null"},
        "warning",
        "rope_scaling is [1, 2], which the audit cannot read (expected: an object or null) and ignores.",
    ),
    (
        "text-number",
        {"neox.yml:rotary-emb-base": "1e6", "read as": 1e6},
        "warning",
        'rotary-emb-base is "1e6", which is text in YAML 1.1 (used by PyYAML): a number with an exponent needs a dot'
        " and a sign (1.0e+6). The audit uses 1,000,000; a program that reads the text fails or uses a default.",
    ),
    (
        "text-number",
        {f"{C}rope_theta": "500000", "read as": 500000.0},
        "warning",
        'rope_theta is "500000", which is text, not a number. The audit uses 500,000; some runtimes refuse the text'
        " or use a default instead.",
    ),
    (
        "missing-original",
        {"used": 131072, f"{C}max_position_embeddings": 131072},
        "warning",
        "The scaling lacks the original length, so runtimes use 131,072 (max_position_embeddings is 131,072). If the"
        " model was trained on shorter texts, every scaled RoPE frequency is wrong.",
    ),
    (
        "default-base",
        {"used": 10000.0, "default of": "llama (transformers 5.23.0)", "documented": True},
        "note",
        "The base is not in the file, so the audit uses the documented default of llama (transformers 5.23.0): 10,000.",
    ),
    (
        "default-base",
        {"used": 10000.0, "default of": "GGUF readers", "documented": False},
        "warning",
        "The base is not in the file, so the audit uses the default of GGUF readers: 10,000. Other runtimes may use"
        " another default.",
    ),
    (
        "default-value",
        {"field": "partial_rotary_factor", "used": 0.5, "default of": "glm (transformers 5.23.0)", "documented": True},
        "note",
        "partial_rotary_factor is not in the file, so the audit uses the documented default of glm (transformers"
        " 5.23.0): 0.5.",
    ),
    (
        "factor-times-original",
        LLAMA3 | {"scaling": "llama3"},
        "note",
        "Factor x original length is 262,144, which differs from the declared length (rope_scaling.factor is 32,"
        " rope_scaling.original_max_position_embeddings is 8,192 and max_position_embeddings is 131,072). Models of"
        " the Llama-3 family are published with such a difference: their factor is tuned, not a ratio of lengths.",
    ),
    (
        "factor-times-original",
        LLAMA3 | {"scaling": "yarn"},
        "warning",
        "Factor x original length is 262,144, which differs from the declared length (rope_scaling.factor is 32,"
        " rope_scaling.original_max_position_embeddings is 8,192 and max_position_embeddings is 131,072). Runtimes"
        " that compute one of these numbers from the two others use another number than the file has.",
    ),
    (
        "factor-times-original",
        {
            "llama3_1_8b of torchtune": 131072,
            "factor x original": 65536.0,
            "scaling": "llama3",
            "declared": 131072,
            "declared in": "llama3_1_8b of torchtune",
        },
        "note",
        "Factor x original length is 65,536, which differs from the declared length (131,072 in llama3_1_8b of"
        " torchtune). Models of the Llama-3 family are published with such a difference: their factor is tuned, not a"
        " ratio of lengths.",
    ),
    (
        "beyond-context",
        {"length": 32768, "context": 8192},
        "warning",
        "The requested length is 32,768, but the declared context length is 8,192. Outputs for longer texts may be"
        " bad.",
    ),
    (
        "beyond-context",
        {"length": 16384, "context": 4096, "scaling": "linear", "unless counted": 16384},
        "warning",
        "The requested length is 16,384, but the declared context length is 4,096. The linear scaling of the file is"
        " for up to 16,384 positions, unless the context length counts its factor already. Outputs for longer texts may"
        " be bad.",
    ),
    (
        "beyond-context",
        {"length": 1024, "context": 512, "kind": "learned"},
        "warning",
        "The requested length is 1,024, but the learned table ends after 512 positions. The table has no rows for"
        " later positions.",
    ),
    (
        "never-turning",
        {"pairs that never complete a turn": 12, "pairs": 32, "length": 8192, "longest wavelength": 438459.86},
        "note",
        "12 of 32 pairs never complete a rotation within 8,192 positions (the longest wavelength is 438,460 tokens)."
        " In training, the model has seen only some of the angles of these pairs.",
    ),
    (
        "never-turning",
        {"pairs that never complete a turn": 1, "pairs": 4, "length": 3000, "longest wavelength": 62831.853},
        "note",
        "1 of 4 pairs never completes a rotation within 3,000 positions (the longest wavelength is 62,831.9 tokens)."
        " In training, the model has seen only some of the angles of these pairs.",
    ),
    (
        "unknown-model-type",
        {f"{C}model_type": "foo"},
        "note",
        'clockhands does not know the model type "foo". The audit reads only the file; what the model'
        "'s code decides, such as the RoPE layout, is unknown.",
    ),
    (
        "unknown-model-type",
        {f"{C}model_type": None},
        "note",
        "The file names no model type. The audit reads only the file; what the model's code decides, such as the"
        " RoPE layout, is unknown.",
    ),
    (
        "own-code",
        {f"{C}auto_map": "CustomLM", "read as": "llama"},
        "note",
        "The config names a class of custom code, CustomLM, which clockhands does not know. The audit reads the model"
        " as llama of the library; the custom code may compute something else.",
    ),
    (
        "not-recognised",
        {
            "shape": [512, 384],
            "dtype": "float32",
            "reason": "No dimension pair has a constant frequency from row to row.",
        },
        "note",
        "The array of shape [512, 384] and dtype float32 is no known position encoding. No dimension pair has a "
        "constant frequency from row to row.",
    ),
    (
        "recognised",
        RECOGNISED,
        "note",
        "The table is sinusoidal, width 8 (whisper), for positions 0 to 63, computed in float32. No number is off by"
        " more than 1.2e-07.",
    ),
    (
        "recognised",
        {"code": "sinusoidal, width 8", "name": None, "positions": None, "error": 0.0, "computed": True},
        "note",
        "The table is sinusoidal, width 8. No number is off by more than 0.",
    ),
    (
        "recognised",
        RECOGNISED | {"code": "Learned, width 8, rows 64", "computed": False},
        "note",
        "The table is Learned, width 8, rows 64: the rows are trained, not computed by a formula.",
    ),
    (
        "moved-table",
        {"code": "sinusoidal, width 8", "share": 0.01234, "largest difference": 0.1, "furthest row": 1000},
        "note",
        "The table started as sinusoidal, width 8 and was trained further. The root mean square of the changes is"
        " 0.012 times the root mean square of the original table; the largest change is 0.1, in row 1,000.",
    ),
    (
        "wrong-rows",
        {"code": "sinusoidal, width 8", "rows that differ": [5], "largest difference": 0.5},
        "warning",
        "The table is sinusoidal, width 8, but row 5 is wrong by up to 0.5.",
    ),
    (
        "wrong-rows",
        {"code": "sinusoidal, width 8", "rows that differ": [5, 7], "largest difference": 0.5},
        "warning",
        "The table is sinusoidal, width 8, but rows 5 and 7 are wrong by up to 0.5.",
    ),
    (
        "low-precision",
        {
            "code": "sinusoidal, width 8",
            "name": "whisper",
            "computed in": "bfloat16",
            "rounded": ["positions", "phases"],
            "error": 1.9,
        },
        "warning",
        "The table is sinusoidal, width 8 (whisper), computed in bfloat16. Its positions and phases are rounded: the"
        " numbers are off by up to 1.9, and the error grows with the position.",
    ),
    (
        "repeated-rows",
        {"rows like the one before": 256, "rows": 1024, "first such row": 257, "kind": "sinusoidal"},
        "error",
        "256 of 1,024 rows are the same as the row before; the first such row is row 257. The model cannot"
        " distinguish the positions of equal rows.",
    ),
    (
        "repeated-rows",
        {"rows like the one before": 1, "rows": 1024, "first such row": 1023, "kind": "learned"},
        "warning",
        "1 of 1,024 rows is the same as the row before; the first such row is row 1,023. The model cannot distinguish"
        " the positions of equal rows.",
    ),
    (
        "repeated-rows",
        {
            "rows like the one before": 256,
            "rows": 1024,
            "first such row": 257,
            "kind": None,
            "positions rounded to": "bfloat16",
        },
        "error",
        "256 of 1,024 rows are the same as the row before; the first such row is row 257, because bfloat16 cannot"
        " represent this position. The model cannot distinguish the positions of equal rows.",
    ),
    (
        "zero-table",
        {"rows": 197, "width": 768},
        "error",
        "All 197 rows of 768 dimensions are zero: the table has no information about any position.",
    ),
    (
        "zero-rows",
        {"rows of zeros": 12, "rows": 512, "first such row": 500},
        "warning",
        "12 of 512 rows are zero; the first is row 500. The model cannot distinguish their positions.",
    ),
    (
        "table-differs",
        {
            "declared": "sinusoidal, width 8",
            "largest difference": 1.987,
            "furthest row": 1000,
            "table": "tensor2tensor",
            "positions": "positions 2 to 513",
        },
        "warning",
        "The declared table is sinusoidal, width 8; the table in the weights is tensor2tensor for positions 2 to 513."
        " The two tables differ by up to 2, in row 1,000.",
    ),
    (
        "table-differs",
        {
            "declared": "sinusoidal, width 8",
            "largest difference": 1.987,
            "furthest row": 1,
            "table": None,
            "reason": "No dimension pair has a constant frequency from row to row.",
        },
        "warning",
        "The declared table is sinusoidal, width 8; the table in the weights follows no known formula: No dimension"
        " pair has a constant frequency from row to row. The two tables differ by up to 2, in row 1.",
    ),
    (
        "override-replaces-block",
        {"block": "rope_scaling", "lost": {"rope_parameters.rope_theta": 500000.0}},
        "error",
        "The override replaces the whole rope_scaling, but lacks values that the file has: rope_parameters.rope_theta"
        " (500,000). Transformers 5.23.0 then raises an error, or uses another value without a warning.",
    ),
    (
        "override-replaces-block",
        {"block": "rope_scaling", "lost": {"rope_theta": 500000.0, "partial_rotary_factor": 0.5}},
        "warning",
        "The override replaces the whole rope_scaling, but lacks values that the file has: rope_theta (500,000) and"
        " partial_rotary_factor (0.5). Transformers 5.23.0 then raises an error, or uses another value without a"
        " warning.",
    ),
]
