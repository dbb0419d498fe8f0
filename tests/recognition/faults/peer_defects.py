"""What is right and wrong in libraries: the report on each of `peers.toml`, and what is found by other means."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import clockhands as ch
from recognition.faults.peer_calls import model, peers, times_fm

RIGHT, DEFECTS = peers("right"), peers("defect")


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
    call = model("omdet_turbo").OmDetTurboHybridEncoder.build_2d_sincos_position_embedding
    found = ch.identify(call(width=7, height=5, embed_dim=64)[0])[0]
    down, across = found.positions.sizes
    return f"{found.name}, on a map of {down} rows and {across} columns; asked for were 5 rows and 7 columns"


def odd_times_fm() -> str:
    testing = import_module("clockhands.testing")
    spec = ch.preset("timesfm", width=65)
    try:
        testing.check_additive(times_fm(spec), spec, call="positions", backend="torch")
    except testing.CannotCheck as error:
        return str(error)
    return "nothing"


def bamba() -> str:
    package, torch = import_module("transformers"), import_module("torch")
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "mamba_n_heads": 8}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "attn_layer_indices": [1], "initializer_range": 0.3}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        checked = package.BambaForCausalLM(package.BambaConfig(**sizes)).eval()
    report = import_module("clockhands.testing").check_generation(checked, raises=False)
    return "\n".join(f"It {one.message}\n  code: {' | '.join(one.codes)}" for one in report.explanations)


def said_of(module: Any, like: Any, **options: Any) -> str:
    report = import_module("clockhands.testing").check_module(module, like, raises=False, **options)
    return "\n".join(
        f"{f'{one.where}: it' if one.where else 'It'} {one.message}\n  code: {' | '.join(one.codes)}"
        for one in report.explanations
    )


def llama_module() -> str:
    package = import_module("transformers.models.llama.modeling_llama")
    module = package.LlamaRotaryEmbedding(package.LlamaConfig(head_dim=64))
    return said_of(module, ch.Rotary(64), call="x, positions -> cos, sin", without={"to_empty"})


def x_transformers_module() -> str:
    package = import_module("x_transformers.x_transformers")

    def turned(module, x, positions):
        return package.apply_rotary_pos_emb(x, module(positions)[0])

    return said_of(package.RotaryEmbedding(64), ch.Rotary(64, "interleaved"), call=turned, axes="batch heads seq width")


def positional_encodings_module() -> str:
    module = import_module("positional_encodings.torch_encodings").PositionalEncoding1D(64)
    return said_of(
        module, ch.preset("vaswani2017", width=64), call=lambda module, x: x + module(x), axes="batch seq width"
    )


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
    Otherwise("Transformers, Bamba", bamba, ("chunk-restarts",)),
)
