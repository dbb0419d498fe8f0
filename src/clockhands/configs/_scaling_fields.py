"""Reads the scaling that a file declares, with defaults for missing keys.

Files spell the same scalings in several ways and omit keys. A missing key is replaced as in Transformers, and each
replacement is a fact. A scaling that cannot be known (an unknown type, a required key missing) does not count as none:
the frequencies are then unknown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clockhands.configs.fields import Fields, Sourced, above_zero, value_of
from clockhands.configs.model_types import table
from clockhands.configs.released_code import line_of
from clockhands.configs.resolved import REGISTERED
from clockhands.configs.section_fields import misspelt
from clockhands.encodings.scaling import SCALINGS, Scaling
from clockhands.errors import ClockhandsError

# Names that are spelt differently and mean the same; "mrope" and "axial" only say how axes share the pairs.
ALIASES = {
    "su": "longrope", "mrope": "default", "axial": "default", "none": "default", "deepseek_yarn": "yarn",
    "telechat3-yarn": "yarn",
}  # fmt: skip

# How each scaling is declared; "default" declares that there is none.
SPELLINGS = {each.name: each for kind in SCALINGS for each in kind.SPELLINGS}
NEEDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "default": ((), ()),
    **{name: (each.needs, each.may) for name, each in SPELLINGS.items()},
}

# Not a name in files: what a few classes do with `dynamic` if an alpha is given, whatever else is given.
BY_ALPHA = "ntk_alpha"

# Scalings that only types with an entry in the table have.
_OF_SOME_TYPES = (BY_ALPHA, "ntk")

# Position keys of a block that do not change frequencies.
BESIDE = frozenset([
    "mrope_section", "mrope_interleaved", "interleaved", "llama_4_scaling_beta", "finetuned",
    "max_position_embeddings", "apply_scale", "xdrope_section",
])  # fmt: skip


@dataclass(frozen=True)
class DeclaredScaling:
    """A declared scaling.

    Attributes:
        scaling: The scaling; None if there is none, or it cannot be known.
        summary: ``{"type", "factor", "original"}`` as declared, or None for no scaling.
        known: Whether the frequencies can be known.
        original: The original length, if it is declared or follows.
        source: Where the summary comes from.
        values: Every value that it uses, by source: evidence if they are impossible.
    """

    scaling: Scaling | None = None
    summary: Mapping[str, Any] | None = None
    known: bool = True
    original: int | None = None
    source: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ScalingContext:
    """Values outside its block that a scaling needs.

    Attributes:
        context: The longest context that the file declares.
        original: An original length outside the block.
        pairs: How many pairs the ladder has.
        share: The partial rotary factor, for proportional RoPE.
        aliases: Scaling names that this model type reads as others.
        allowed: The scalings that this model type has; empty means all.
        alpha: Whether this model type reads a dynamic scaling with an ``alpha`` as a fixed factor.
    """

    context: Sourced[int] | None = None
    original: Sourced[int] | None = None
    pairs: int | None = None
    share: float | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    allowed: Sequence[str] = ()
    alpha: bool = False


def scaling_type(block: Fields | None, aliases: Mapping[str, str] | None = None) -> Sourced[str] | None:
    """The type of scaling that a block names, in one spelling for each; None without a block or a name."""
    found = None if block is None else block.text("type")
    if found is None or found.value is None:
        return found
    return Sourced(_canonical(found.value, aliases or {}), found.source)


def _canonical(name: str, aliases: Mapping[str, str]) -> str:
    name = name.strip().lower().removeprefix(REGISTERED)
    return aliases.get(name) or ALIASES.get(name) or name


def read_scaling(block: Fields | None, around: ScalingContext) -> DeclaredScaling:
    """The scaling of a block, with facts about everything that is missing, unknown or impossible in it."""
    if block is None:
        return DeclaredScaling()
    kind = scaling_type(block, around.aliases)
    if kind is None:
        return _typeless(block)
    if kind.value is None:
        return DeclaredScaling(known=False, source={"scaling": kind.source})
    _one_type(block, around)
    known = around.allowed or tuple(name for name in NEEDS if name not in _OF_SOME_TYPES)
    if kind.value not in known:
        block.note("unknown-scaling", {kind.source: kind.value, "known": ", ".join(known)})
        summary = {"type": kind.value, "factor": value_of(block.number("factor")), "original": None}
        return DeclaredScaling(summary=summary, known=False, source={"scaling": kind.source})
    held = block.raw("type")
    written = kind.value if held is None else str(held.value).removeprefix(REGISTERED)
    if written != written.strip().lower():
        # The frequencies are those that are meant, so that the report can say what the correct spelling gives.
        block.note(
            "unknown-scaling", {kind.source: written, "known": ", ".join(known), "meant": written.strip().lower()}
        )
    if around.alpha and kind.value == "dynamic" and block.declares("alpha"):
        kind = Sourced(BY_ALPHA, kind.source)
    _unknown_keys(block, kind.value)
    if kind.value == "default":
        return DeclaredScaling(source={"scaling": kind.source})
    return _read(block, kind, around)


def _one_type(block: Fields, around: ScalingContext) -> None:
    """Check the two keys for a scaling's name; names that mean the same do not contradict each other."""
    said = {key: block.values[key] for key in block.present("type") if isinstance(block.values[key], str)}
    meant = {_canonical(value, around.aliases) for value in said.values()}
    if len(meant) > 1:
        evidence = {block.source(key): value for key, value in said.items()}
        block.note("conflicting-spellings", {**evidence, "used": next(iter(evidence))})


def _read(block: Fields, kind: Sourced[str], around: ScalingContext) -> DeclaredScaling:
    assert kind.value is not None
    original = _original(block, kind.value, around)
    factor = _factor(block, kind.value, original, around.context)
    summary = {"type": kind.value, "factor": value_of(factor), "original": value_of(original)}
    found = [found for found in (kind, factor, original) if found is not None]
    source = {"scaling": ", ".join(dict.fromkeys(part.source for part in found))}
    magnitude = _magnitude_source(block, kind.value, factor, original)
    if magnitude:
        source["attention_factor"] = magnitude
    values = {part.source: part.value for part in found}
    missing = [_key(block, name) for name in NEEDS[kind.value][0] if not block.declares(name) and name != "factor"]
    spelling = SPELLINGS[kind.value]
    if factor is None and ("factor" in spelling.needs or spelling.original != "none"):
        missing.insert(0, _key(block, "factor"))
    if original is None and spelling.original != "none":
        missing.append(f"{_key(block, 'original')} or max_position_embeddings")
    if missing:
        block.note("incomplete-scaling", {kind.source: kind.value, "missing": ", ".join(missing)})
        return DeclaredScaling(None, summary, known=False, original=value_of(original), source=source)
    if kind.value == "yarn" and block.declares("mscale") and not block.declares("mscale_all"):
        said = block.raw("mscale")
        assert said is not None
        release = table()["library"]
        because = (
            f"{release}, {line_of(release, 'mscale_all_dim')}, uses it only together with {_key(block, 'mscale_all')}"
        )
        block.ignored(said.source, said.value, because, "0.1 ln(factor) + 1")
    arguments, sound = _arguments(block, kind.value, around)
    sound = sound and all(part.value is not None for part in found)
    made = None
    if sound:
        _length_mismatch(block, kind.value, factor, original, around.context)
        try:
            said = {**arguments, "factor": value_of(factor), "original": value_of(original), "share": around.share}
            made = spelling.make(said)
        except ClockhandsError as error:
            block.note("impossible-value", {**values, "allowed": error.message})
            sound = False
    return DeclaredScaling(made, summary, sound, value_of(original), source, values)


def _magnitude_source(
    block: Fields, kind: str, factor: Sourced[float] | None, original: Sourced[int] | None
) -> str | None:
    """The keys that determine the attention factor, for scalings that have one."""
    if not SPELLINGS[kind].magnitude:
        return None
    for names in SPELLINGS[kind].magnitude:
        if all(block.declares(name) for name in names):
            said = [block.raw(name) for name in names]
            # A ratio of two magnitudes still depends on the factor.
            found = [*said, factor] if names[0] == "mscale" else said
            break
    else:
        found = [factor, original] if kind == "longrope" else [factor]
    return ", ".join(dict.fromkeys(part.source for part in found if part is not None)) or None


def _arguments(block: Fields, kind: str, around: ScalingContext) -> tuple[dict[str, Any], bool]:
    """The arguments of the scaling beyond factor and original length, and whether all of them can be used."""
    arguments: dict[str, Any] = {}
    sound = True
    for name in (*NEEDS[kind][0], *NEEDS[kind][1]):
        if name in ("factor", "original") or kind == BY_ALPHA or not block.declares(name):
            continue
        found: Sourced[Any] | None
        if name == "truncate":
            found = block.flag(name)
        elif name in ("short", "long"):
            found = block.numbers(name, around.pairs, "longrope-lists")
        elif name in ("mscale", "mscale_all"):
            found = block.number(name, lambda value: value >= 0, "a number not below 0")
        else:
            found = block.number(name, above_zero, "a number above 0")
        arguments[name] = None if found is None else found.value
        sound = sound and arguments[name] is not None
    return arguments, sound


def _original(block: Fields, kind: str, around: ScalingContext) -> Sourced[int] | None:
    """The original length: outside the block before inside it, as in Transformers; else the whole context."""
    if SPELLINGS[kind].original == "none":
        return None
    if SPELLINGS[kind].original == "context":
        return around.context
    inner = block.whole("original")
    outer = around.original
    if outer is not None and outer.value is not None:
        if inner is not None and inner.value not in (None, outer.value) and ":" in outer.source:
            block.conflict(outer, inner, outer)
        elif inner is not None and inner.value not in (None, outer.value):
            release = table()["library"]
            line = line_of(release, "original_max_position_embeddings", "config")
            because = f"{release}, {line}, overwrites that of the block by that outside it, here the {outer.source}"
            block.ignored(inner.source, inner.value, because, f"{outer.value:,}")
        return outer
    if inner is not None:
        return inner
    if around.context is not None:
        block.note("missing-original", {"used": around.context.value, around.context.source: around.context.value})
    return around.context


def _factor(
    block: Fields, kind: str, original: Sourced[int] | None, context: Sourced[int] | None
) -> Sourced[float] | None:
    """The factor; if LongRoPE has none, or YaRN a null, the declared context over the original length."""
    if kind == BY_ALPHA:
        return _stretching_factor(block, "alpha")
    found = _stretching_factor(block, "factor")
    nulled = kind == "yarn" and any(key in block.values for key in block.spellings.get("factor", ()))
    if found is not None or not (kind == "longrope" or nulled):
        return found
    if original is None or context is None or not original.value or not context.value:
        return None
    # A context below the original length leaves nothing to scale.
    ratio = max(context.value / original.value, 1.0)
    return Sourced(ratio, f"{context.source} / {original.source}" if context != original else context.source)


def _stretching_factor(block: Fields, quantity: str) -> Sourced[float] | None:
    return block.number(quantity, lambda value: value >= 1, "a number of at least 1")


def _length_mismatch(
    block: Fields, kind: str, factor: Sourced[float] | None, original: Sourced[int] | None, context: Sourced[int] | None
) -> None:
    """Check that factor times original length is the declared context, unless that is still the original one."""
    if not SPELLINGS[kind].reaches_context or not block.declares("factor"):
        return
    if factor is None or original is None or context is None:
        return
    if factor.value is None or original.value is None or context.value is None or context.value == original.value:
        return
    reach = factor.value * original.value
    if abs(reach - context.value) > 1e-6 * context.value:
        evidence: dict[str, Any] = {factor.source: factor.value, original.source: original.value}
        evidence |= {"factor x original": reach, context.source: context.value, "scaling": kind}
        if ":" not in context.source:  # a constant in a program's code is in no file
            evidence |= {"declared": context.value, "declared in": context.source}
        block.note("factor-times-original", evidence)


def _typeless(block: Fields) -> DeclaredScaling:
    """Read a block without a type: correct if it only has a base, unknown if it has keys of a scaling."""
    held = [key for name in ("factor", "low", "high", "fast", "slow", "short", "long") for key in block.present(name)]
    _unknown_keys(block, None)
    if not held:
        return DeclaredScaling()
    factor = _stretching_factor(block, "factor")
    evidence = {block.source(key): block.values[key] for key in held}
    block.note("incomplete-scaling", {**evidence, "missing": _key(block, "type")})
    summary = {"type": None, "factor": value_of(factor), "original": value_of(block.whole("original"))}
    return DeclaredScaling(None, summary, known=False, source={"scaling": block.source(held[0])})


def _unknown_keys(block: Fields, kind: str | None) -> None:
    """Keys that this scaling does not read."""
    takes = {"type", "base", "share", "original"}
    takes |= set(block.spellings) if kind is None else {*NEEDS[kind][0], *NEEDS[kind][1]}
    for name in takes:
        block.present(name)
    known = [key for name in sorted(takes) for key in block.spellings.get(name, ())]
    for key, value in block.values.items():
        if value is None or key in BESIDE or key in known or isinstance(value, Mapping):
            continue
        meant = misspelt(str(key), [each for each in known if block.values.get(each) is None])
        evidence = {"known": ", ".join(known)} if meant is None else {"meant": meant, "of": "this block"}
        block.note("unknown-key", {block.source(str(key)): value, **evidence})


def _key(block: Fields, quantity: str) -> str:
    return (block.spellings.get(quantity) or (quantity,))[0]
