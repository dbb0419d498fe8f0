"""Tiny models of many families, with seeded random weights."""

import json
from contextlib import contextmanager
from pathlib import Path

from auditing import loaded_models as models
from auditing.loaded_models import transformers
from late import Late

torch = Late("torch")

_DATA = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
# Name: class, config, its fields, and the code that the class has.
FAMILIES = _DATA["families"]
# Families beside those of `auditing.loaded_models`: the name of their type, and the fields of their config.
MORE = _DATA["more"]
VOCABULARY, CONTEXT = 48, 128


def small(name, **fields):
    """A model of a type, of `auditing.loaded_models` or of `MORE`, with some fields of its config changed."""
    library = transformers()
    if name in models.FAMILIES:
        config = models.config_of(name, **fields)
    else:
        config = library.AutoConfig.for_model(name, **MORE[name], **fields)
    torch.manual_seed(0)
    try:
        return library.AutoModelForCausalLM.from_config(config).eval()
    except ValueError:
        return library.AutoModel.from_config(config).eval()


def tiny(family, **fields):
    """A model of a family, with some fields of its config changed."""
    made, library = FAMILIES[family], transformers()
    torch.manual_seed(0)
    return getattr(library, made["class"])(getattr(library, made["config"])(**{**made["fields"], **fields})).eval()


def without_positions(rotated=(0, 0)):
    """A decoder whose config says for each layer whether it rotates; none does unless said."""
    library, fields = transformers(), FAMILIES["llama"]["fields"]
    torch.manual_seed(0)
    return library.SmolLM3ForCausalLM(library.SmolLM3Config(**fields, no_rope_layers=list(rotated))).eval()


def tokens(windows, length, seed=1):
    return torch.randint(4, VOCABULARY, (windows, length), generator=torch.Generator().manual_seed(seed))


@contextmanager
def hidden_bias(model, layers):
    """Attention scores that fall with distance in some layers, which no config says: added to the mask."""

    def hook(_, args, kwargs):
        count = kwargs["hidden_states"].shape[1]
        places = torch.arange(count)
        apart = (places[:, None] - places).float()
        mask = torch.where(apart < 0, torch.finfo(torch.float32).min, -0.25 * apart)
        return args, {**kwargs, "attention_mask": mask[None, None]}

    hooks = [model.model.layers[layer].self_attn.register_forward_pre_hook(hook, with_kwargs=True) for layer in layers]
    try:
        yield model
    finally:
        for each in hooks:
            each.remove()
