"""What the code of a release does not read: the data, held to the files and the classes of the installed release."""

import re
import textwrap
from functools import cache
from pathlib import Path

import pytest

import released_code as tool
from clockhands.configs.model_types import table
from clockhands.configs.released_code import class_in, line_of
from release_trees import POSITION_KEYS, Release

PINNED = "transformers 5.23.0"
TYPES = sorted(tool.written()["releases"][PINNED]["types"])


@cache
def installed():
    transformers = pytest.importorskip("transformers")
    assert f"transformers {transformers.__version__}" == PINNED == table()["library"]
    return Path(transformers.__file__).parents[1]


@cache
def lines(file):
    return (installed() / file).read_text(encoding="utf-8").splitlines()


def line(place):
    file, _, number = place.rpartition(":")
    return lines(file)[int(number) - 1]


def lacked(name):
    code = class_in(PINNED, name)
    return sorted(key for key in code.known if code.lacks(key))


def test_every_class_is_at_its_file_and_line(cases):
    for name in TYPES:
        with cases(name):
            code = class_in(PINNED, name)
            assert line(code.place).startswith(f"class {code.name}(")


def test_the_lines_of_common_code_name_their_keys(cases):
    release = tool.written()["releases"][PINNED]
    for within in ("shared", "config", "block"):
        for key, place in release[within].items():
            with cases(within, key):
                assert re.search(rf"\b{key}\b", line(place))
    assert line_of(PINNED, "type") == release["block"]["type"]


def test_files_of_a_type_do_not_mention_what_it_is_said_not_to_read(draw, cases):
    """By the text alone, without a syntax tree."""
    for name in draw(TYPES, 50):
        code = class_in(PINNED, name)
        model = code.place.partition(":")[0]
        config = model.replace("modeling_", "configuration_")
        held = [each for file in (model, config) if (installed() / file).is_file() for each in lines(file)]
        text = re.sub(r'""".*?"""|#.*?$', "", "\n".join(held), flags=re.DOTALL | re.MULTILINE)
        text = re.sub(r"\(\s+", "(", text)  # a call in several lines
        text = re.sub(".*rope_(parameters|scaling|params).*", "", text)
        for key in lacked(name):
            with cases(name, key):
                assert not re.search(rf"\.{key}\b(?! = )|['\"]{key}['\"]", text)


# A value for each kind of key; what a class does not declare, it takes in any form.
_BLOCK = {"rope_type": "linear", "factor": 2.0, "rope_theta": 12345.0}
VALUES = {"rope_scaling": _BLOCK, "rope_parameters": _BLOCK, "position_embedding_type": "rope", "alibi": True}


def state(config, key):
    """All that a config holds and computes, without the key itself."""
    cls = type(config)
    computed = {name for name in dir(cls) if isinstance(getattr(cls, name, None), property)}
    held = {}
    for name in sorted(computed | config.to_dict().keys()):
        try:
            held[name] = re.sub(" at 0x[0-9a-f]+", "", repr(getattr(config, name)))
        except Exception as error:  # noqa: BLE001 -- a property may need what no default config has
            held[name] = type(error).__name__
    # rope_scaling is the old name of rope_parameters, which such a type does not use either.
    same = {key, "rope_parameters"} if key == "rope_scaling" else {key}
    return {name: value for name, value in held.items() if name not in same and not name.startswith("_")}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.rope_scaling. is deprecated:FutureWarning")
def test_classes_of_configs_are_the_same_with_a_key_that_is_not_read(draw, cases):
    """The class itself: a key that its code does not read changes nothing but the attribute of its name."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for name in draw([name for name in TYPES if name in CONFIG_MAPPING], 60):
        made = CONFIG_MAPPING[name]
        try:
            plain = made()
        except Exception:  # noqa: BLE001 -- a class without defaults
            continue
        for key in lacked(name):
            with cases(name, key):
                assert state(made(**{key: VALUES.get(key, 24)}), key) == state(plain, key)


TOY = {
    "modeling_utils.py": """
        class PreTrainedModel:
            def cut(self):
                return self.config.sliding_window
    """,
    "generation/__init__.py": "",
    "generation/utils.py": "class GenerationMixin:\n    keys = ['n_ctx']",
    "configuration_utils.py": """
        from .modeling_rope_utils import RotaryEmbeddingConfigMixin
        class PreTrainedConfig(RotaryEmbeddingConfigMixin):
            pass
    """,
    "modeling_rope_utils.py": """
        class RotaryEmbeddingConfigMixin:
            def convert_rope_params_to_dict(self, **kwargs):
                self.rope_parameters.setdefault("rope_theta", kwargs.pop("rope_theta", 10000.0))
    """,
    "shared_layers.py": """
        import functools as tools
        def rows(config):
            return getattr(config, "n_positions") + _more(config)
        def _more(config):
            return config["rotary_dim"]
        def never(config):
            return config.alibi
    """,
    "models/toy/configuration_toy.py": """
        from ...configuration_utils import PreTrainedConfig
        class ToyConfig(PreTrainedConfig):
            model_type = "toy"
        class OwnConfig(PreTrainedConfig):
            model_type = "own"
            def convert_rope_params_to_dict(self, **kwargs):
                self.rope_parameters.setdefault("rope_theta", kwargs.pop("rotary_emb_base"))
    """,
    "models/toy/modeling_toy.py": """
        from ... import shared_layers
        from ...modeling_utils import PreTrainedModel
        from ...shared_layers import rows as counted
        from .configuration_toy import ToyConfig
        class ToyModel(PreTrainedModel):
            def __init__(self, config):
                self.base = config.rope_parameters["rope_theta"]
                self.rows = counted(config)
                self.seen = getattr(config, f"{self.part}_embedding_type")
    """,
}


@pytest.fixture
def toy(tmp_path, request):
    files = TOY | getattr(request, "param", {})
    for name, text in files.items():
        path = tmp_path / "transformers" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tool.as_json(Release("transformers", "5.23.0", tmp_path))


def keys_of(found, name):
    return found["sets"][found["types"][name][1]]


def test_keys_are_followed_through_base_classes_functions_and_other_names(toy):
    assert toy["types"]["toy"][0] == "ToyModel transformers/models/toy/modeling_toy.py:6"
    assert toy["shared"] == {"sliding_window": "transformers/modeling_utils.py:4"}, "a list of texts reads nothing"
    assert {"n_positions", "rotary_dim", "position_embedding_type"} <= set(keys_of(toy, "toy"))
    assert "alibi" not in keys_of(toy, "toy"), "no code of the type calls the function"


def test_the_common_class_takes_rope_keys_where_the_type_has_rope(toy):
    assert "rope_theta" in keys_of(toy, "toy")
    assert "rope_theta" not in keys_of(toy, "own"), "a key of the block alone, since the class takes out its own key"
    assert "rotary_emb_base" in keys_of(toy, "own")


HANDED_ON = """
    class ToyModel:
        def f(self, config):
            return Auto.from_config(config)
"""


@pytest.mark.parametrize("toy", [{"models/toy/modeling_toy.py": HANDED_ON}], indirect=True)
def test_a_model_that_makes_another_of_the_whole_config_may_read_every_key(toy):
    assert set(keys_of(toy, "toy")) == POSITION_KEYS - {"sliding_window"}
