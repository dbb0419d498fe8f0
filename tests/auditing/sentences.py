"""What is told of lengths, tables, files, GGUF and weights: a case of every finding, for the tests of all rows."""

C = "config.json:"

LENGTHS = [
    (
        "lengths-differ",
        {"context": 8192, "other": 131072, f"{C}max_position_embeddings": 8192, f"{C}model_max_length": 131072,
         "leaves": "context"},
        "warning",
        "Two lengths disagree: max_position_embeddings is 8,192 but model_max_length is 131,072; a reader that goes by"
        " the longer one passes the declared context of 8,192.",
    ),
    (
        "lengths-differ",
        {"context": 512, "other": 1024, f"{C}max_position_embeddings": 512,
         "tokenizer_config.json:model_max_length": 1024, "leaves": "table"},
        "warning",
        "Two lengths disagree: config.json:max_position_embeddings is 512 but tokenizer_config.json:model_max_length is"
        " 1,024; a reader that goes by the longer one asks for rows past the end of a table of 512 positions.",
    ),
    (
        "lengths-differ",
        {"context": 8192, "other": 131072, f"{C}max_position_embeddings": 8192, f"{C}model_max_length": 131072,
         "leaves": "context", "because": "the family is published so"},
        "note",
        "Two lengths disagree: max_position_embeddings is 8,192 but model_max_length is 131,072; a reader that goes by"
        " the longer one passes the declared context of 8,192. It is no fault here: the family is published so.",
    ),
    (
        "lengths-differ",
        {"context": 8192, "other": 2048, f"{C}max_position_embeddings": 8192, f"{C}seq_length": 2048},
        "note",
        "Two lengths disagree: max_position_embeddings is 8,192 but seq_length is 2,048; a reader that goes by the"
        " shorter one cuts a text at 2,048 of 8,192 positions.",
    ),
    (
        "base-below-bound",
        {"first failing distance": 1707, "reach": 4096, "scaled": False, f"{C}rope_theta": 1e4},
        "note",
        "With this base the cosines of all pairs add up to less than 0 at a distance of 1,707 already, within the 4,096"
        " positions that a query may look back: there a head that looks for a like token scores it below a random one.",
    ),
    (
        "base-below-bound",
        {"first failing distance": 85133, "reach": 131072, "scaled": True, f"{C}rope_theta": 5e5},
        "note",
        "With this base and its scaling the cosines of all pairs add up to less than 0 at a distance of 85,133 already,"
        " within the 131,072 positions that a query may look back: there a head that looks for a like token scores it"
        " below a random one.",
    ),
    (
        "padding-offset",
        {"rows": 514, "offset": 2, "usable": 512},
        "note",
        "Position 0 is row 2 of the table: 2 of its 514 rows belong to no position, and 512 can be used.",
    ),
    (
        "padding-offset",
        {"rows": 1025, "offset": 1, "usable": 1024, "part": "decoder"},
        "note",
        "Position 0 is row 1 of the table of the decoder: 1 of its 1,025 rows belongs to no position, and 1,024 can be"
        " used.",
    ),
    (
        "colliding-positions",
        {"dtype": "bfloat16", "first": 257, "context": 8192, f"{C}torch_dtype": "bfloat16"},
        "note",
        "The checkpoint is in bfloat16, which does not hold position 257 nor many after it, up to the context of 8,192:"
        " harmless as long as no reader casts positions or phases to it.",
    ),
]  # fmt: skip

SENTENCES = [*LENGTHS]
