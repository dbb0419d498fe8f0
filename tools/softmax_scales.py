"""Write configs/softmax_scales.json: what the classes of the installed Transformers multiply q k by, and by which key.

The attention of every model type is called with its default config, without memory for its weights, and again with each
number and each switch changed that the code of its attention reads. A type is written down only if all its layers that
can be called agree, and one formula gives the numbers of all calls: 1 / sqrt(width of a head), a power of a key, or 1.
Of types that do not rotate, a small model is run in place of that, and the factor is measured as `audit --live` does.

Run it after the pinned version of Transformers changed, and read the difference.
"""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import torch
import transformers

import clockhands as ch
from class_gaps import as_file
from clockhands.configs import model_types as known
from clockhands.configs.resolved import LayerEncoding
from clockhands.encodings.scores import score_scale
from clockhands.errors import ClockhandsError
from clockhands.models import built_classes
from clockhands.models.attention_inputs import attended_once
from clockhands.models.class_modules import is_number, modeling_code
from clockhands.models.layer_rotations import DeclaredLayer
from clockhands.models.layer_scores import scores_at_zero
from clockhands.models.running_models import takes

PLACE = Path(known.__file__).with_name("softmax_scales.json")
CHANGED = 1.5  # a number of the config is multiplied by this
POWERS = (1.0, -0.5)  # of the keys that classes take a scale from
CLOSE = 1e-6
LAYERS = 8  # of a class that is built: more than the period of any pattern of layers
SIZES = re.compile(
    r"(^|_)(num|n|size|dim|rank|heads?|layers?|hidden|width|length|dropout|bias|eps|theta|window|topk)(_|$)"
)
"""Names of keys that make the shapes of weights: a class with other shapes says nothing of its scale."""
SMALL = {
    "vocab_size": 64, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "ffn_dim": 64, "decoder_ffn_dim": 64, "encoder_ffn_dim": 64, "word_embed_proj_dim": 64, "embedding_size": 64,
    "decoder_layers": 2, "encoder_layers": 2, "num_layers": 2, "max_position_embeddings": 64,
}  # fmt: skip
"""Sizes of the models that are run, where a config has such a key."""
UNASKED = {"output_attentions", "use_cache", "is_encoder_decoder", "is_decoder", "add_cross_attention", "layer_idx"}
"""Keys that change what a model returns and keeps, and not its attention over its own text."""


def scale_of(config: dict[str, Any]) -> float | None:
    """What a type multiplies q k by, times sqrt(width); None where layers differ or cannot be called."""
    part = next((each for each in built_classes.reading(config).parts if each.model_type == config["model_type"]), None)
    factors = {round(each.factors[0], 7) for each in (part.attention if part else ()) if each.factors is not None}
    return factors.pop() if len(factors) == 1 else None


def keys_read(name: str) -> list[str]:
    """The keys of the config that the code of a type's attention mentions."""
    code = modeling_code(transformers.CONFIG_MAPPING[name]())
    classes = [each for key, each in vars(code).items() if "Attention" in key and inspect.isclass(each)]
    reads = r"config(?:\.|, \")(\w+)"  # of an attribute, by a dot or by getattr
    read = {key for each in classes for key in re.findall(reads, inspect.getsource(each))}
    return sorted(read)


def rule_of(name: str) -> dict[str, Any] | None:
    """What gives the scale of a type; empty for 1 / sqrt(width of a head), None where no formula does."""
    kind = transformers.CONFIG_MAPPING[name]
    config = as_file(kind())
    if config.get("head_dim", 0) is None and config.get("hidden_size") and config.get("num_attention_heads"):
        config["head_dim"] = config["hidden_size"] // config["num_attention_heads"]  # some classes need it
    codes = [code for code in ch.audit(config).layers if code.kind == "rotary" and code.part != "indexer"]
    widths = {code.width for code in codes}
    plain = scale_of(config) if codes and None not in widths else None
    if plain is None:
        return None
    moved: dict[str, float] = {}
    switches: dict[str, bool] = {}
    for key in keys_read(name):
        value: Any = config.get(key)
        if SIZES.search(key) or (not isinstance(value, bool) and not is_number(value)):
            continue
        other: Any = not value if isinstance(value, bool) else type(value)(value * CHANGED)
        try:
            changed = scale_of({**config, key: other})
        except ClockhandsError:  # a value that does not fit the others
            continue
        if changed is not None and changed != plain:
            if isinstance(value, bool):
                switches[key] = value
            else:
                moved[key] = changed / plain
    factors = {1.0 if code.score_scale is None else float(score_scale(code.score_scale, [0])[0]) for code in codes}
    absolute = {plain / width**0.5 / factor for width in widths if width for factor in factors}
    more = {"only": switches} if switches else {}
    if not moved:
        # Heads of several widths have one fixed scale, or one of each width.
        usual = len(factors) == 1 and abs(plain / min(factors) - 1) < CLOSE
        fixed = len(absolute) == 1 and abs(min(absolute) - 1) < CLOSE
        return more if usual else more | {"fixed": 1.0} if fixed else None
    for key, ratio in moved.items():
        for power in POWERS:
            given = float(config[key]) ** power
            if (
                len(moved) == 1
                and abs(ratio / CHANGED**power - 1) < CLOSE
                and all(abs(each / given - 1) < CLOSE for each in absolute)
            ):
                literal = getattr(kind, key, None)  # others are computed from the sizes
                return more | {"key": key, "power": power} | ({"default": literal} if is_number(literal) else {})
    return None


def run_scale(name: str, **changed: Any) -> str | None:
    """What a small random model of a type multiplies q k by in all its layers; None where that is not one formula."""
    config = transformers.CONFIG_MAPPING[name]()
    for key, value in {**SMALL, **changed}.items():
        if key in changed or hasattr(config, key):
            setattr(config, key, value)
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config).eval()
    texts = torch.arange(3, 19).reshape(2, 8)
    seen = attended_once(model, texts, scores=True)
    layers = {each.layer: DeclaredLayer(LayerEncoding("text", "input", "learned"), None, None) for each in seen}
    made = scores_at_zero(model, texts[0], layers, seen, places=takes(model, "position_ids"))
    if {each.path for each in made} != {each.path for each in seen} or not all(each.factors for each in made):
        return None
    factors = [(factor, each.width) for each in made for factor in each.factors.values()]
    formulas = {"of width": lambda width: width**-0.5, "fixed": lambda _: 1.0}
    fits = [
        name
        for name, made_of in formulas.items()
        if all(abs(got / made_of(width) - 1) < 1e-4 for got, width in factors)
    ]
    return fits[0] if len(fits) == 1 else None


def measured_rule(name: str) -> dict[str, Any] | None:
    """What gives the scale of a type that does not rotate; None where it is not one of the formulas."""
    config = transformers.CONFIG_MAPPING[name]()
    codes = ch.audit(as_file(config)).layers
    if not codes or not {code.kind for code in codes} <= {"learned", "sinusoidal", "alibi", "buckets"}:
        return None
    plain = run_scale(name)
    if plain is None:
        return None
    switches = {}
    for key in keys_read(name):
        value: Any = getattr(config, key, None)
        if key in UNASKED or not (isinstance(value, bool) or (is_number(value) and not SIZES.search(key))):
            continue
        other: Any = not value if isinstance(value, bool) else type(value)(value * CHANGED)
        try:
            same = run_scale(name, **{key: other}) == plain
        except Exception:  # noqa: BLE001 - the library's own code, on a value that it does not take
            same = False
        if not same and not isinstance(value, bool):
            return None
        if not same:
            switches[key] = value
    return ({"only": switches} if switches else {}) | ({"fixed": 1.0} if plain == "fixed" else {})


def main() -> None:
    """Write the file."""
    transformers.logging.set_verbosity_error()
    built_classes.MOST_LAYERS = LAYERS
    rules = {}
    for name in sorted(transformers.CONFIG_MAPPING):
        if transformers.CONFIG_MAPPING[name].sub_configs:
            continue  # a composite: the types of its parts are read by themselves
        try:
            rule = rule_of(name)
            rule = measured_rule(name) if rule is None else rule
        except Exception as error:  # noqa: BLE001 - a class that has no default config
            print(f"{name}: {type(error).__name__}: {error}"[:150])
            continue
        if rule is not None:
            rules[name] = rule
    held = {
        "library": f"transformers {transformers.__version__}",
        "of_width": [name for name, rule in rules.items() if not rule],
        "others": {name: rule for name, rule in rules.items() if rule},
    }
    PLACE.write_text(json.dumps({"softmax_scales": held}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
