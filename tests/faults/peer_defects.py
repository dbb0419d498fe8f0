"""What is wrong in libraries: the check that finds it, the fault that must be named and the words that must be said."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import clockhands as ch
from clockhands.scaling import Dynamic, Ntk, Yarn
from faults import peer_calls as peers
from faults.peer_calls import PeerCall

HEADS = "batch heads seq width"
HALVES = ch.Rotary(head_width=64, layout="halves")
INTERLEAVED = ch.Rotary(head_width=64, layout="interleaved")
SINUSOID = ch.preset("vaswani2017", width=64)
SYMMETRIC = ch.preset("alibi-symmetric")
# Where positions, rates and phases are all rounded, the last of them covers the others.
ALL_ROUNDED = {"positions-rounded", "rates-rounded", "phases-rounded"}


def yarn(**fields: Any) -> ch.Rotary:
    return ch.Rotary(head_width=64, layout="halves", base=1e6, scaling=Yarn(factor=4, original=32768, **fields))


def rotary(name: str, like: Any, build: Any, codes: set[str], *words: str, each: bool = False, **options: Any):
    return PeerCall(name, "check_rotary", like, build, options, each, frozenset(codes), words)


def additive(name: str, like: Any, build: Any, codes: set[str], *words: str, **options: Any):
    return PeerCall(name, "check_additive", like, build, options, False, frozenset(codes), words)


def bias(name: str, like: Any, build: Any, codes: set[str], *words: str):
    return PeerCall(name, "check_bias", like, build, {"call": "counts"}, False, frozenset(codes), words)


counting = functools.partial(rotary, axes=HEADS, call="x")
turning = functools.partial(rotary, axes=HEADS)
tokens = functools.partial(additive, axes="batch seq width", call="x")
rows = functools.partial(additive, call="positions", backend="torch")

DEFECTS = (
    rotary(
        "equinox, two bases",
        ch.Rotary(head_width=48, layout="halves"),
        peers.equinox,
        {"cache-without-base"},
        "second",
        "base",
        call="x",
        backend="jax",
        each=True,
    ),
    counting(
        "rotary-embedding-torch, bfloat16 and then float32",
        INTERLEAVED,
        peers.lucidrains,
        {"cache-keeps-first-dtype"},
        "bfloat16",
        "float32",
        each=True,
    ),
    rotary(
        "rotary-embedding-torch, offsets of axes",
        INTERLEAVED,
        peers.lucidrains_axis,
        {"cache-keeps-offset"},
        "get the angles of the first call, at whatever position they start",
        call="x, offset",
        backend="torch",
    ),
    tokens(
        "positional-encodings, bfloat16 and then float32",
        SINUSOID,
        peers.positional_encodings,
        {"cache-keeps-first-dtype"},
        "bfloat16",
        "float32",
    ),
    bias("OpenNMT-py, decoding after a full pass", SYMMETRIC, peers.opennmt, {"bias-of-first-rows"}, "top rows"),
    turning(
        "Transformers, dynamic NTK",
        ch.Rotary(head_width=64, layout="halves", scaling=Dynamic(factor=2, original=2048)),
        peers.llama_dynamic,
        {"remembers-longest"},
        "longest",
    ),
    counting(
        "rotary-embedding-torch, bfloat16",
        INTERLEAVED,
        peers.lucidrains,
        {"positions-rounded"},
        "positions",
        "bfloat16",
        "257",
        dtype="bfloat16",
    ),
    tokens(
        "keras-hub, sinusoid in bfloat16",
        SINUSOID,
        functools.partial(peers.keras_hub_sine, dtype="bfloat16"),
        ALL_ROUNDED,
        "bfloat16",
        dtype="bfloat16",
    ),
    bias(
        "keras-hub, ALiBi in bfloat16",
        ch.Alibi(heads=8),
        functools.partial(peers.keras_hub_alibi, dtype="bfloat16"),
        {"distances-rounded"},
        "bfloat16",
    ),
    tokens(
        "positional-encodings, cast to bfloat16",
        SINUSOID,
        functools.partial(peers.positional_encodings, cast=True),
        ALL_ROUNDED,
        "bfloat16",
    ),
    turning(
        "Transformers, Llama cast to bfloat16",
        HALVES,
        functools.partial(peers.llama, cast=True),
        {"rates-rounded"},
        "frequencies",
        "bfloat16",
    ),
    turning(
        "x-transformers, cast to bfloat16",
        INTERLEAVED,
        functools.partial(peers.x_transformers, cast=True),
        ALL_ROUNDED,
        "bfloat16",
    ),
    tokens(
        "Transformers, Pegasus-X in bfloat16",
        ch.preset("pegasus-x", width=64),
        peers.pegasus_x,
        ALL_ROUNDED,
        "bfloat16",
        dtype="bfloat16",
    ),
    rotary(
        "keras-hub, dynamic",
        ch.Rotary(head_width=64, layout="halves", scaling=Ntk(factor=4)),
        functools.partial(peers.keras_hub, rope_type="dynamic", scaling_factor=4.0),
        {"another-scaling", "positions-scaled"},
        "4.18",
        axes="batch seq heads width",
    ),
    turning("litgpt, YaRN", yarn(), functools.partial(peers.litgpt_yarn, mscale=1.0), {"ramp-reversed"}, "reverse"),
    turning(
        "Transformers, truncate of nested parameters",
        yarn(truncate=False),
        peers.gemma3_yarn,
        {"another-scaling"},
        "truncate",
    ),
    rows("diffusers, timesteps of DiT", ch.preset("dit"), peers.timesteps_of_dit, {"closed-span"}, "- 1", length=1000),
    rotary(
        "rotary-embedding-torch, xPos one query at a time",
        ch.preset("xpos", head_width=64),
        peers.lucidrains_xpos,
        {"xpos-centre"},
        "centre",
        call="q, k, positions",
        backend="torch",
        length=500,
    ),
    turning(
        "Transformers, V-JEPA 2",
        INTERLEAVED,
        peers.v_jepa_2,
        {"table-and-pairs-disagree"},
        "is not a rotation",
        "half-split",
        "interleaved",
    ),
    rows(
        "Transformers, SAM 2's object pointers",
        ch.preset("ctrl", width=64),
        peers.object_pointer,
        {"exponent"},
        "exponent",
    ),
    bias(
        "Transformers, Falcon's ALiBi",
        ch.preset("falcon-rw", heads=8),
        functools.partial(peers.by_mask, "falcon"),
        {"distances-rounded"},
        "bfloat16",
    ),
)


@functools.cache
def report_of(name: str) -> Any:
    """The report on one of them, made once: what a library keeps for its process is then as a user finds it."""
    return next(peer for peer in DEFECTS if peer.name == name).run()


@dataclass(frozen=True)
class Otherwise:
    """A defect that is found by other means than the check of a function: in a module, a model, a map, a shape.

    Attributes:
        name: The distribution and what of it, with a comma between.
        say: What clockhands says of it.
        words: What that must contain.
    """

    name: str
    say: Callable[[], str]
    words: tuple[str, ...]

    @property
    def library(self) -> str:
        """The distribution that must be installed."""
        return self.name.partition(",")[0]


def new_vit_mae() -> str:
    package = import_module("transformers")
    config = package.ViTMAEConfig(num_hidden_layers=1, decoder_num_hidden_layers=1)
    findings = ch.audit(package.ViTMAEForPreTraining(config)).findings
    return "\n".join(
        f"{', '.join(name for name in one.evidence if name.startswith('model:'))}: {one.message}\n  code: {one.code}"
        for one in findings
        if one.severity in {"error", "warning"}
    )


def omdet_turbo() -> str:
    call = peers.model("omdet_turbo").OmDetTurboHybridEncoder.build_2d_sincos_position_embedding
    found = ch.identify(call(width=7, height=5, embed_dim=64)[0])[0]
    down, across = found.positions.sizes
    return f"{found.name}, on a map of {down} rows and {across} columns; asked for were 5 rows and 7 columns"


def odd_times_fm() -> str:
    testing = import_module("clockhands.testing")
    spec = ch.preset("timesfm", width=65)
    try:
        testing.check_additive(peers.times_fm(spec), spec, call="positions", backend="torch")
    except testing.CannotCheck as error:
        return str(error)
    return "nothing"


def said_of(module: Any, like: ch.Rotary | Any, **options: Any) -> str:
    report = import_module("clockhands.testing").check_module(module, like, raises=False, **options)
    return "\n".join(
        f"{f'{one.where}: it' if one.where else 'It'} {one.message}\n  code: {' | '.join(one.codes)}"
        for one in report.explanations
    )


def llama_module() -> str:
    package = import_module("transformers.models.llama.modeling_llama")
    module = package.LlamaRotaryEmbedding(package.LlamaConfig(head_dim=64))
    return said_of(module, HALVES, call="x, positions -> cos, sin", without={"to_empty"})


def x_transformers_module() -> str:
    package = import_module("x_transformers.x_transformers")

    def turned(module, x, positions):
        return package.apply_rotary_pos_emb(x, module(positions)[0])

    return said_of(package.RotaryEmbedding(64), INTERLEAVED, call=turned, axes=HEADS)


def positional_encodings_module() -> str:
    module = import_module("positional_encodings.torch_encodings").PositionalEncoding1D(64)
    return said_of(module, SINUSOID, call=lambda module, x: x + module(x), axes="batch seq width")


CAST = ("the cast rounds its buffer `inv_freq`", "cast-changes-numbers")
OTHERWISE = (
    Otherwise("Transformers, Llama's module", llama_module, CAST),
    Otherwise("x-transformers, its module", x_transformers_module, CAST),
    Otherwise("positional-encodings, its module", positional_encodings_module, CAST),
    Otherwise(
        "Transformers, a new ViT-MAE",
        new_vit_mae,
        ("vit.embeddings.position_embeddings", "decoder_pos_embed", "zero-table"),
    ),
    Otherwise("Transformers, OmDet-Turbo", omdet_turbo, ("7 rows and 5 columns",)),
    Otherwise("Transformers, TimesFM of odd width", odd_times_fm, ("64",)),
)
