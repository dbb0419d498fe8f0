"""Hostile texts: YAML, JSON and Modelfiles."""
# ruff: noqa: PLW0108 - what makes a file is a function, also where it is one text

import json

import numpy as np

from written_files import gguf_bytes, gguf_key

from .hostile_rows import FILES, HEADS, LLAMA, MiB, folder_of, many, nested, one

NEOX = "num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\npos_emb: rotary\n"
NEMO = "model:\n  num_layers: 2\n  hidden_size: 64\n  num_attention_heads: 4\n  encoder_seq_length: 64\n"
ARCHITECTURE = [gguf_key("general.architecture", "string", "llama")]
Y, J = MiB - 100, 8 * MiB - 100
ROPES = "rope_" * 800


def nested_keys(levels: int, size: int, indent: int = 1) -> bytes:
    """Deep in mappings with long names, as many keys as go into ``size``."""
    name = "k" * 1000
    lines = [f"{' ' * indent * level}{name}:\n" for level in range(levels)]
    made = NEOX + "".join(lines)
    return many(" " * indent * levels + "k#: 1\n", size, start=made)


def spaced(text: str, blanks: str = " ") -> bytes:
    """A text with a run of blanks for each ``#``."""
    return text.replace("#", blanks * ((MiB - len(text)) // text.count("#") - 1)).encode()


# YAML
one("yaml many keys", "yaml", lambda: many("key_#: #\n", Y, start=NEOX))
one("yaml near-miss keys", "yaml", lambda: many("rotary-Emb_base#: 1\n", Y, start=NEOX))
one("yaml keys with dashes", "yaml", lambda: many("-" * 40 + "rotary-emb-base-#: 1\n", Y, start=NEOX))
one("yaml nested keys", "yaml", lambda: many("  rotary-base#: 1\n", Y, start=NEMO))
one("yaml not of a dialect", "yaml", lambda: many("a#: 1\n", Y))
one("yaml short values", "yaml", lambda: many("a,", Y, start=NEOX + "x: [", end="]\n"))
one("yaml empty mappings", "yaml", lambda: many("{},", Y, start=NEOX + "x: [", end="]\n"))
one("yaml deep flow", "yaml", lambda: NEOX.encode() + b"x: " + nested("[", "1", "]", Y // 2 - 50))
one("yaml deep flow, open", "yaml", lambda: NEOX.encode() + b"x: " + b"[" * (Y - 100))
one("yaml deep block", "yaml", lambda: b"".join(b" " * level + b"a:\n" for level in range(1400)))
one("yaml deep sequence", "yaml", lambda: NEOX.encode() + b"x: " + b"- " * (Y // 2 - 100) + b"1\n")
one("yaml laughs", "yaml", lambda: many("a#: &a# [*A,*A,*A,*A,*A,*A,*A,*A,*A]\n", 4000, start="A: &A [1,1]\n" + NEOX))
one(
    "yaml laughs in laughs",
    "yaml",
    lambda: (
        "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 60)) + NEOX
    ).encode(),
)
one("yaml alias in itself", "yaml", lambda: (NEOX + "x: &x [*x, *x]\n").encode())
one(
    "yaml merges",
    "yaml",
    lambda: (
        "a0: &a0 {k: 1}\n"
        + "".join(f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 60))
        + NEOX
    ).encode(),
)
one(
    "yaml merges of one large mapping",
    "yaml",
    lambda: many(
        "m#: {<<: *big}\n",
        Y,
        start=NEOX + many("k#: 1\n  ", 200_000, start="big: &big\n  ", end="\n").decode().rstrip() + "\n",
    ),
)
one("yaml many merges in one mapping", "yaml", lambda: many("  <<: {k#: 1}\n", Y, start=NEOX + "m:\n"))
one(
    "yaml merges of lists of lists",
    "yaml",
    lambda: NEOX.encode() + b"m:\n  <<: " + nested("[", "{a: 1}", "]", 5000) + b"\n",
)
one(
    "yaml merges that hold nothing",
    "yaml",
    lambda: (
        "a0: &a0 []\n"
        + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
        + "m:\n  <<: *a11\n"
        + NEOX
    ).encode(),
)
one("yaml paths", "yaml", lambda: nested_keys(90, Y))
one("yaml long key", "yaml", lambda: NEOX.encode() + b"? " + b"k" * (Y - 200) + b"\n: 1\n")
one("yaml long text", "yaml", lambda: NEOX.encode() + b"x: " + b"k" * (Y - 200))
one("yaml huge int", "yaml", lambda: NEOX.encode() + b"x: " + b"9" * (Y - 200))
one("yaml huge ints", "yaml", lambda: many("x#: " + "9" * 300 + "\n", Y, start=NEOX))
one("yaml base 60", "yaml", lambda: NEOX.encode() + b"x: 1" + b":59" * 90 + b"\ny: 1" + b":59" * 90 + b".5\n")
one("yaml base 60, long", "yaml", lambda: NEOX.encode() + b"x: 1" + b":59" * 90_000 + b"\n")
one("yaml binary int", "yaml", lambda: NEOX.encode() + b"x: 0b" + b"1" * 250 + b"\ny: 0b_\nz: 0x_\nw: ._\nv: 1e999\n")
one("yaml bad dates", "yaml", lambda: NEOX.encode() + b"x: 2001-99-99\ny: !!timestamp 9999-99-99T99:99:99Z\n")
one("yaml tags", "yaml", lambda: NEOX.encode() + b"x: !!python/object/apply:os.system [id]\n")
one("yaml binary", "yaml", lambda: NEOX.encode() + b"x: !!binary " + b"A" * (Y - 200))
one("yaml odd constructs", "yaml", lambda: NEOX.encode() + b"x: !!int {a: 1}\ny: !!float ''\nz: !!bool maybe\n")
one("yaml empty float", "yaml", lambda: NEOX.encode() + b"rotary_pct: !!float ''\nx: !!int ''\n")
one("yaml key of a mapping", "yaml", lambda: NEOX.encode() + b"? {a: 1}\n: 2\n")
one("yaml blanks", "yaml", lambda: NEOX.encode() + b"x:" + b" " * (Y - 200) + b"1\n")
one("yaml blank lines", "yaml", lambda: NEOX.encode() + b"\n" * (Y - 200))
one("yaml indented blanks", "yaml", lambda: many("x#:" + " " * 500 + "1\n", Y, start=NEOX))
one("yaml block text", "yaml", lambda: many("  a\n\n", Y, start=NEOX + "x: >\n"))
one("yaml comments", "yaml", lambda: many("# c\n", Y, start=NEOX))
one("yaml documents", "yaml", lambda: many("---\na: #\n", Y))
one("yaml empty documents", "yaml", lambda: many("---\n", Y))
one("yaml directives", "yaml", lambda: many("%X# a\n", Y, end="---\n" + NEOX))
one("yaml tag directives", "yaml", lambda: many("%TAG !a#! tag:a#\n", Y, end="---\n" + NEOX))
one("yaml anchors", "yaml", lambda: many("x#: &a# 1\n", Y, start=NEOX))
one(
    "yaml references",
    "yaml",
    lambda: (NEOX + "max_position_embeddings: ${" + "." * 5000 + "a}\nrotary_pct: ${rotary_pct}\n").encode(),
)
one("yaml same keys", "yaml", lambda: many("a: #\n", Y, start=NEOX))
one("yaml quoted", "yaml", lambda: NEOX.encode() + b'x: "' + b"\\x41" * (Y // 4 - 100) + b'"\n')
one("yaml question marks", "yaml", lambda: many("? ", Y, start=NEOX))
one("yaml colons", "yaml", lambda: NEOX.encode() + b"x" + b":x" * (Y // 2 - 100))
one("yaml exponents", "yaml", lambda: many("x#: 1e5\n", Y, start=NEOX))
one(
    "yaml exponents below long keys",
    "yaml",
    lambda: many(" " * 90 + "k#: 1e5\n", Y, start=NEOX + "".join(f"{' ' * n}{'k' * 1000}:\n" for n in range(90))),
)
# JSON
one("json many keys", "config.json", lambda: many('"k#":#', 1_600_000, ",", "{" + LLAMA + ",", "}"))
one("json near-miss keys", "config.json", lambda: many('"rope_thet#":1', J, ",", "{" + LLAMA + ",", "}"))
one(
    "json near-miss keys within the facts",
    "config.json",
    lambda: many('"rope_thet_#":1', 5000, ",", "{" + LLAMA + ",", "}"),
)
one("json long near-miss keys", "config.json", lambda: many(f'"{ROPES}#":1', J, ",", "{" + LLAMA + ",", "}"))
one(
    "json long unknown keys in a block",
    "config.json",
    lambda: many(
        f'"{ROPES}#":1', 1_000_000, ",", "{" + LLAMA + ',"rope_scaling":{"rope_type":"yarn","factor":2,', "}}"
    ),
)
one(
    "json keys of words",
    "config.json",
    lambda: many('"position_window_attention_bias_rope_scale_#":1', J // 2, ",", "{" + LLAMA + ",", "}"),
)
one("json keys of blanks", "config.json", lambda: many('"' + " " * 4000 + '#":1', J, ",", "{" + LLAMA + ",", "}"))
one("json keys of digits", "config.json", lambda: many('"rope_' + "0" * 4000 + '#":1', J, ",", "{" + LLAMA + ",", "}"))
one("json same keys", "config.json", lambda: many('"k#":1,"k#":2', 3000, ",", "{" + LLAMA + ",", "}"))
one(
    "json one key again and again",
    "config.json",
    lambda: many('"rope_theta":#', 1_600_000, ",", "{" + LLAMA + ",", "}"),
)
one("json deep", "config.json", lambda: nested('{"a":', "1", "}", MiB))
one("json deep lists", "config.json", lambda: nested("[", "", "]", 4 * MiB - 100))
one(
    "json paths",
    "config.json",
    lambda: many('"k#":1', 1_000_000, ",", "{" + LLAMA + "," + f'"{"k" * 4000}":{{' * 90, "}" * 91),
)
one(
    "json rope keys below long paths",
    "config.json",
    lambda: many('"rope_x#":1', 5000, ",", "{" + LLAMA + "," + f'"text_config_{"k" * 4000}":{{' * 90, "}" * 91),
)
one("json huge int", "config.json", lambda: ("{" + LLAMA + ',"rope_theta":' + "9" * (J - 1000) + "}").encode())
one("json many ints", "config.json", lambda: many("9" * 299, J, ",", "{" + LLAMA + ',"rope_scaling":[', "]}"))
one("json a list where a number is", "config.json", lambda: many("1", J, ",", "{" + LLAMA + ',"rope_theta":[', "]}"))
one("json long text", "config.json", lambda: ("{" + LLAMA + ',"rope_theta":"' + "1" * (J - 1000) + '"}').encode())
one(
    "json long text of blanks",
    "config.json",
    lambda: ("{" + LLAMA + ',"rope_theta":"1' + " " * (J - 1000) + 'x"}').encode(),
)
one("json long type", "config.json", lambda: ('{"model_type":"' + "x" * (J - 1000) + '","rope_theta":1e4}').encode())
one(
    "json long class",
    "config.json",
    lambda: ('{"architectures":["' + "ForCausalLM" * 600_000 + '"],"rope_theta":1e4}').encode(),
)
one("json many classes", "config.json", lambda: many('"A#ForX"', J, ",", '{"architectures":[', '],"rope_theta":1e4}'))
one("json layer types", "config.json", lambda: many('"t#"', J, ",", "{" + LLAMA + ',"layer_types":[', "]}"))
one(
    "json many layers",
    "config.json",
    lambda: json.dumps(HEADS | {"num_hidden_layers": 10_000, "layer_types": [f"t{n}" for n in range(10_000)]}).encode(),
)
one(
    "json many windows",
    "config.json",
    lambda: json.dumps(HEADS | {"num_hidden_layers": 10_000, "attention_window": list(range(10_000))}).encode(),
)
one(
    "json many sections",
    "config.json",
    lambda: many('"s#_config":{"model_type":"llama","rope_theta":1}', J, ",", "{" + LLAMA + ",", "}"),
)
one("json sections in sections", "config.json", lambda: nested('{"text_config":', "{" + LLAMA + "}", "}", 98))
one(
    "json many rates",
    "config.json",
    lambda: json.dumps(
        HEADS
        | {
            "rope_scaling": {
                "rope_type": "longrope",
                "short_factor": [1.5] * 1_000_000,
                "long_factor": [1.5] * 1_000_000,
                "factor": 8,
            }
        }
    ).encode(),
)
one(
    "json labels",
    "config.json",
    lambda: json.dumps(
        HEADS | {"id2label": {str(n): f"l{n}" for n in range(60_000)}, "label2id": {f"l{n}": n for n in range(60_000)}}
    ).encode(),
)
one("json surrogates", "config.json", lambda: many("\\ud83d\\ude00", J, "", "{" + LLAMA + ',"x":"', '"}'))
one("json blanks", "config.json", lambda: ("{" + LLAMA + " " * (J - 1000) + "}").encode())
one("json commas", "config.json", lambda: ("{" + LLAMA + "," * (J - 1000) + "}").encode())
one(
    "json of a tokenizer",
    "config.json",
    lambda: many('["a#","b#"]', J, ",", '{"version":"1.0","model":{"type":"BPE","merges":[', "]}}"),
)
one("json of a vocabulary", "config.json", lambda: many('"w#":#', J, ",", '{"model":{"vocab":{', "}}}"))
one(
    "json of a spec",
    "config.json",
    lambda: ('{"type":"Rotary","head_width":64,"base":1e4,"x":' + "[" * 90 + "]" * 90 + "}").encode(),
)
one(
    "json of a spec with many rates",
    "config.json",
    lambda: many(
        "1.5", J, ",", '{"type":"Rotary","head_width":64,"scaling":{"type":"LongRope","short_factor":[', "]}}"
    ),
)
FILES["json beside a config"] = folder_of(
    HEADS,
    **{
        "tokenizer_config.json": many('"k#":1', 1_500_000, ",", "{", "}"),
        "generation_config.json": nested("[", "", "]", MiB),
        "params.json": many('"rope_k#":1', 1_500_000, ",", "{", "}"),
    },
)
one(
    "index of many shards",
    "safetensors.index.json",
    lambda: many('"t#":"f#.safetensors"', 8 * MiB, ",", '{"weight_map":{', "}}"),
)
one(
    "index of one shard",
    "safetensors.index.json",
    lambda: many('"t#":"f.safetensors"', 16 * MiB, ",", '{"weight_map":{', "}}"),
)
# Modelfile, other texts
one("Modelfile blanks", "Modelfile", lambda: spaced("FROM a#b"))
one("Modelfile blanks in a parameter", "Modelfile", lambda: spaced("FROM a\nPARAMETER num_ctx#1 # x"))
one("Modelfile blanks before", "Modelfile", lambda: spaced("#FRO\n"))
one("Modelfile lines", "Modelfile", lambda: many("FROM a#\n", MiB))
one("Modelfile parameters", "Modelfile", lambda: many("PARAMETER k# #\n", MiB, start="FROM a\n"))
one("Modelfile quotes", "Modelfile", lambda: b"FROM a\n" + b'"""' * (MiB // 3 - 10))
one("Modelfile quotes, open", "Modelfile", lambda: b"FROM a\n" + b'"""x' * (MiB // 4 - 10))
one("Modelfile tabs", "Modelfile", lambda: spaced("FROM#a", "\t"))
one("Modelfile other ends of lines", "Modelfile", lambda: b"FROM a\n" + b"\x0b\x0c\x1c\x1d" * (MiB // 4 - 10))
FILES["Modelfile num_ctx"] = lambda: {
    "Modelfile": b"FROM ./x.gguf\nPARAMETER num_ctx " + b"9" * 900_000 + b"\n",
    "x.gguf": gguf_bytes(ARCHITECTURE),
}
FILES["Modelfile rope"] = lambda: {
    "Modelfile": b"FROM ./x.gguf\nPARAMETER rope_frequency_base " + b"[" * 900_000 + b"\n",
    "x.gguf": gguf_bytes(ARCHITECTURE),
}
one("a text", "txt", lambda: b"x" * MiB)
one("noise", "json", lambda: np.random.default_rng(0).bytes(MiB))
