"""Libraries' own position code, each function wrapped in as little as a check needs.

A builder takes the spec that the function should be and gives a fresh function; one that has no choice ignores it.
"""

import functools
import runpy
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import clockhands as ch
from clockhands.encodings import scaling


@dataclass(frozen=True)
class PeerCall:
    """A library's function and the code that it is asked to be: a row of `peers.toml`.

    Attributes:
        name: The distribution and what of it, with a comma between; unique.
        check: The name of the check, in `clockhands.testing`.
        like: What the function should be.
        build: ``spec -> function``: a fresh one.
        options: Keywords of the check.
        each: Whether ``build`` follows whatever spec it is given, so that two models can be asked.
        codes: Of a faulty one: the fault is one of these.
        words: Of a faulty one: what the explanation must say.
    """

    name: str
    check: str
    like: Any
    build: Callable[[Any], Callable[..., Any]]
    options: Mapping[str, Any] = field(default_factory=dict)
    each: bool = False
    codes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def library(self) -> str:
        """The distribution that must be installed."""
        return self.name.partition(",")[0]

    def run(self, **options: Any) -> Any:
        """The report of its check."""
        function = {"make": self.build} if self.each else {"fn": self.build(self.like)}
        check = getattr(import_module("clockhands.testing"), self.check)
        return check(like=self.like, raises=False, **function, **self.options, **options)


def peers(table: str) -> tuple[PeerCall, ...]:
    """Those of one table: "right" or "defect"."""
    rows = tomllib.loads(Path(__file__).with_name("peers.toml").read_text(encoding="utf-8"))[table]
    return tuple(
        PeerCall(
            **{key: value for key, value in row.items() if key not in ("like", "build", "given")},
            like=spec_of(row["like"]),
            build=functools.partial(globals()[row["build"]], **row.get("given", {})),
        )
        for row in rows
    )


def spec_of(like: Any) -> Any:
    """The spec of a preset or of fields."""
    if isinstance(like, str):
        name, _, given = like.partition(":")
        return ch.preset(name, **{key: int(number) for key, _, number in [given.partition("=")] if key})
    fields = dict(like)
    kind, made = fields.pop("kind", "Rotary"), dict(fields.pop("scaling", {}))
    if made:
        fields["scaling"] = getattr(scaling, made.pop("type"))(**made)
    return getattr(ch, kind)(**fields)


def torch() -> Any:
    return import_module("torch")


def model(name: str) -> Any:
    """A module of models in Transformers."""
    return import_module(f"transformers.models.{name}.modeling_{name}")


def configured(kind: str, **fields: Any) -> Any:
    """A small config: heads of 64 channels."""
    return getattr(import_module("transformers"), f"{kind}Config")(hidden_size=256, num_attention_heads=4, **fields)


# Rotary


def of_transformers(name: str, kind: str, cast: bool = False, layer: str | None = None, **fields: Any) -> Callable:
    """``function(x, positions)`` of a family's rotary class and its ``apply_rotary_pos_emb``."""
    apply = model(name).apply_rotary_pos_emb
    rope = getattr(model(name), f"{kind}RotaryEmbedding")(configured(fields.pop("config", kind), **fields))
    rope = rope.bfloat16() if cast else rope

    def turned(x, positions):
        places = positions if positions.ndim == 2 else positions[None]
        cos, sin = rope(x, places) if layer is None else rope(x, places, layer)
        return apply(x, x, cos, sin)[0]

    return turned


def family(_: Any, **given: Any) -> Callable:
    return of_transformers(**given)


def llama(spec: Any, cast: bool = False) -> Callable:
    parameters: dict[str, Any] = {"rope_type": "default", "rope_theta": spec.base}
    fields: dict[str, Any] = {"max_position_embeddings": 2048}
    if spec.scaling is not None:
        parameters |= {"rope_type": "llama3", "original_max_position_embeddings": spec.scaling.original}
        parameters |= {name: getattr(spec.scaling, name) for name in ("factor", "low_freq_factor", "high_freq_factor")}
        fields["max_position_embeddings"] = 16 * spec.scaling.original
    return of_transformers("llama", "Llama", cast, head_dim=spec.head_width, rope_parameters=parameters, **fields)


def gpt_j(spec: Any) -> Callable:
    apply = model("gptj").apply_rotary_pos_emb
    tables = model("gptj").create_sinusoidal_positions(20_000, spec.head_width)

    def turned(x, positions):
        sin, cos = tables[positions][None].to(x.dtype).chunk(2, dim=-1)
        return apply(x, sin, cos)

    return turned


def gemma3_yarn(spec: Any) -> Callable:
    yarn = {"rope_type": "yarn", "rope_theta": spec.base, "factor": spec.scaling.factor}
    yarn |= {"original_max_position_embeddings": spec.scaling.original, "truncate": spec.scaling.truncate}
    plain = {"rope_type": "default", "rope_theta": 1e4}
    return of_transformers(
        "gemma3",
        "Gemma3",
        config="Gemma3Text",
        layer="full_attention",
        head_dim=spec.head_width,
        rope_parameters={"full_attention": yarn, "sliding_attention": plain},
    )


def equinox(spec: Any) -> Callable:
    return import_module("equinox").nn.RotaryPositionalEmbedding(spec.head_width, theta=spec.base)


def lucidrains(spec: Any, **fields: Any) -> Callable:
    """rotary-embedding-torch, the function of a fresh module."""
    rope = import_module("rotary_embedding_torch").RotaryEmbedding(spec.head_width, theta=spec.base, **fields)
    return rope.rotate_queries_or_keys


def lucidrains_exact(spec: Any, **fields: Any) -> Callable:
    """The way around: it counts in float32, and keeps nothing."""
    turned = lucidrains(spec, cache_if_possible=False, **fields)
    return lambda x: turned(x.float()).to(x.dtype)


def lucidrains_axis(spec: Any) -> Callable:
    package = import_module("rotary_embedding_torch")
    rope = package.RotaryEmbedding(spec.head_width, theta=spec.base)

    def turned(x, offset):
        return package.apply_rotary_emb(rope.get_axial_freqs(len(x), offsets=(offset,)), x)

    return turned


def lucidrains_xpos(spec: Any) -> Callable:
    """Each query alone against the keys up to it, as a cache is decoded; the keys as the last of them finds them."""
    rope = import_module("rotary_embedding_torch").RotaryEmbedding(spec.head_width, use_xpos=True)

    def turned(q, k, positions):
        places = positions.tolist()
        cache = torch().zeros(max(places) + 1, spec.head_width, dtype=k.dtype)
        cache[positions] = k
        pairs = [
            rope.rotate_queries_with_cached_keys(q[row : row + 1], cache[: place + 1])
            for row, place in enumerate(places)
        ]
        longest = max(pairs, key=lambda pair: len(pair[1]))[1]
        return torch().cat([query for query, _ in pairs]), longest[positions]

    return turned


def x_transformers(spec: Any, cast: bool = False) -> Callable:
    package = import_module("x_transformers.x_transformers")
    rope = package.RotaryEmbedding(spec.head_width, base=spec.base)
    rope = rope.bfloat16() if cast else rope

    def turned(x, positions):
        return package.apply_rotary_pos_emb(x, rope(positions)[0])

    return turned


def keras_hub(spec: Any, **fields: Any) -> Callable:
    layer = import_module("keras_hub").layers.RotaryEmbedding(**{"max_wavelength": spec.base, **fields})

    def turned(x, positions):
        return layer(x, positions=positions)

    return turned


def litgpt(spec: Any, **extra: Any) -> Callable:
    package = import_module("litgpt.model")
    cos, sin = package.build_rope_cache(20_000, spec.head_width, base=spec.base, extra_config=extra or None)

    def turned(x, positions):
        return package.apply_rope(x, cos[positions][None], sin[positions][None])

    return turned


def diffusers_rotary(spec: Any) -> Callable:
    package = import_module("diffusers.models.embeddings")

    def turned(x, positions):
        tables = package.get_1d_rotary_pos_embed(spec.head_width, positions, theta=spec.base, use_real=True)
        return package.apply_rotary_emb(x, tables)

    return turned


def esm_rotary(spec: Any) -> Callable:
    rope = import_module("esm.rotary_embedding").RotaryEmbedding(spec.head_width)

    def turned(x):
        return rope(x, x)[0]

    return turned


def v_jepa_2(_: Any) -> Callable:
    return model("vjepa2").rotate_queries_or_keys


# Additive: ``function(x)`` and ``function(x, positions)`` give x with the code on it, ``function(positions)`` its rows


def added(code: Callable[[Any], Any]) -> Callable:
    """``function(x)`` of a code that looks at a batch of tokens."""

    def placed(x):
        return x + code(x)

    return placed


def positional_encodings(spec: Any, cast: bool = False) -> Callable:
    code = import_module("positional_encodings.torch_encodings").PositionalEncoding1D(spec.width)
    return added(code.bfloat16() if cast else code)


def positional_encodings_afresh(spec: Any) -> Callable:
    code = import_module("positional_encodings.torch_encodings").PositionalEncoding1D(spec.width)

    def placed(x):
        code.cached_penc = None
        return x + code(x)

    return placed


def keras_hub_sine(_: Any, dtype: str = "float32") -> Callable:
    return added(import_module("keras_hub").layers.SinePositionEncoding(dtype=dtype))


def pegasus_x(spec: Any) -> Callable:
    return added(model("pegasus_x").PegasusXSinusoidalPositionalEmbedding(spec.width))


def pegasus_x_rows(spec: Any) -> Callable:
    code = model("pegasus_x").PegasusXSinusoidalPositionalEmbedding(spec.width)
    return lambda at: code(torch().zeros(1, len(at), spec.width), position_ids=at[:, None])[0]


def rows_of(table: Any) -> Callable:
    """``function(positions)`` of a table that is there."""

    def rows(positions):
        return table[positions]

    return rows


def m2m100(spec: Any) -> Callable:
    return added(lambda x: model("m2m_100").M2M100SinusoidalPositionalEmbedding(8, spec.width, 1)(inputs_embeds=x))


def esm_sinusoid(spec: Any) -> Callable:
    code = import_module("esm.modules").SinusoidalPositionalEmbedding(spec.width, 1)
    return added(lambda x: code(torch().zeros(x.shape[:2], dtype=torch().long)))


def whisper(spec: Any) -> Callable:
    return rows_of(model("whisper").sinusoids(20_000, spec.width))


def marian(spec: Any) -> Callable:
    code = model("marian").MarianSinusoidalPositionalEmbedding(2_000, spec.width)
    return rows_of(code.create_weight())


def distilbert(spec: Any) -> Callable:
    table = torch().empty(2_000, spec.width)
    model("distilbert").create_sinusoidal_embeddings(2_000, spec.width, table)
    return rows_of(table)


def timesteps(spec: Any, **fields: Any) -> Callable:
    call = import_module("diffusers.models.embeddings").get_timestep_embedding
    return functools.partial(call, embedding_dim=spec.width, **fields)


def timesteps_of_dit(_: Any) -> Callable:
    return import_module("diffusers.models.embeddings").CombinedTimestepLabelEmbeddings(10, 16).time_proj


def diffusers_sinusoid(spec: Any) -> Callable:
    return import_module("diffusers.models.embeddings").SinusoidalPositionalEmbedding(spec.width, 20_000)


def times_fm(spec: Any) -> Callable:
    config = import_module("transformers").TimesFmConfig(hidden_size=spec.width)
    code = model("timesfm").TimesFmPositionalEmbedding(config)
    return lambda positions: code(position=positions[None])[0]


def object_pointer(spec: Any) -> Callable:
    call = model("sam2_video").get_1d_sine_pe
    return lambda positions: call(positions, spec.width)


# Biases: ``function(queries, keys)`` of their numbers gives [heads, queries, keys]


def scores(spec: Any, queries: int, keys: int) -> Any:
    return torch().zeros(1, spec.heads, queries, keys)


def opennmt_module(spec: Any) -> Any:
    # The package imports spaCy; this file does not.
    file = distribution("OpenNMT-py").locate_file("onmt/modules/alibi_position_bias.py")
    return runpy.run_path(str(file))["AlibiPositionalBias"](spec.heads)


def opennmt(spec: Any) -> Callable:
    bias = opennmt_module(spec)
    return lambda queries, keys: bias(scores(spec, queries, keys))[0]


def opennmt_afresh(spec: Any) -> Callable:
    module = opennmt_module(spec)

    def bias(queries, keys):
        module.bias = None
        return module(scores(spec, queries, keys))[0]

    return bias


def x_transformers_alibi(spec: Any) -> Callable:
    return import_module("x_transformers.x_transformers").AlibiPositionalBias(spec.heads)


def keras_hub_alibi(spec: Any, dtype: str = "float32") -> Callable:
    layer = import_module("keras_hub").layers.AlibiBias(dtype=dtype)
    return lambda queries, keys: layer(scores(spec, queries, keys))[0]


def by_mask(spec: Any, name: str) -> Callable:
    """Bloom's and Falcon's: a row for each head, the same for every query."""
    call = model(name).build_alibi_tensor

    def bias(queries, keys):
        rows = call(torch().ones(1, keys, dtype=torch().long), spec.heads, torch().float32)
        return rows.expand(spec.heads, queries, keys)

    return bias


def mpt(spec: Any) -> Callable:
    call = model("mpt").build_mpt_alibi_tensor
    return lambda queries, keys: call(spec.heads, keys).expand(spec.heads, queries, keys)


def t5(spec: Any) -> Callable:
    config = import_module("transformers").T5Config(
        num_heads=spec.heads,
        relative_attention_num_buckets=spec.buckets,
        relative_attention_max_distance=spec.max_distance,
        is_decoder=not spec.bidirectional,
    )
    attention = model("t5").T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    return lambda queries, keys: attention.compute_bias(queries, keys, past_seen_tokens=keys - queries)[0].detach()


def x_transformers_t5(spec: Any) -> Callable:
    bias = import_module("x_transformers.x_transformers").RelativePositionBias(
        scale=8.0,
        causal=not spec.bidirectional,
        num_buckets=spec.buckets,
        max_distance=spec.max_distance,
        heads=spec.heads,
    )
    return lambda queries, keys: bias(queries, keys).detach()
