"""Keys that Python code reads from a config, found in its syntax tree."""

import textwrap

import pytest

from clockhands.configs.key_reads import KeyRead, key_reads
from clockhands.errors import Unreadable
from clockhands.formats import python_files


def found(code, *, declared=None):
    """Key, default and line of each read."""
    reads = key_reads(textwrap.dedent(code), "modeling_x.py")
    return [(read.key, read.default, read.line) for read in reads if declared in (None, read.declared)]


def keys(code):
    return [key for key, _, _ in found(code)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("config.rope_theta", [("rope_theta", None)]),
        ("self.config.rope_theta", [("rope_theta", None)]),
        ("text_config.rope_theta", [("rope_theta", None)]),
        ("self.hparams['rope_theta']", [("rope_theta", None)]),
        ("args.get('rope_theta', 1e6)", [("rope_theta", "1000000.0")]),
        ("getattr(config, 'rope_theta', None)", [("rope_theta", "None")]),
        ("hasattr(cfg, 'rope_theta')", [("rope_theta", None)]),
        ("config.text_config.head_dim", [("text_config", None), ("text_config.head_dim", None)]),
        ("config.rope_scaling['factor']", [("rope_scaling", None), ("rope_scaling.factor", None)]),
        ("config.rope_parameters[kind]['x']", [(f"rope_parameters{end}", None) for end in ("", ".*", ".*.x")]),
        ("config.get_text_config().head_dim", [("head_dim", None)]),
        ("vllm_config.model_config.hf_config.head_dim", [("head_dim", None)]),
        ("self.find_hparam(['n_ctx', 'max_length'], optional=True)", [("max_length", None), ("n_ctx", None)]),
        ("config.to_dict()", []),
        ("self.head_dim", []),
        ("cache_config.block_size", []),
        ("args[0]", []),
        ("getattr(module, 'weight')", []),
    ],
)
def test_each_spelling_of_a_read(expression, expected):
    reads = found(f"class A:\n    def f(self, module, kind, *args):\n        return {expression}\n")
    assert [(key, default) for key, default, _ in reads] == expected
    assert {line for *_, line in reads} <= {3}


def test_objects_keep_their_path_under_another_name():
    code = """
    class A:
        def __init__(self, config):
            self.scaling = config.rope_scaling
            inner = config.text_config
            self.width = inner.hidden_size
        def f(self):
            return self.scaling["factor"] + self.width
    """
    assert keys(code) == ["rope_scaling", "text_config", "text_config.hidden_size", "rope_scaling.factor"]
    twice = "def f(config, a):\n    x = config.rope_scaling\n    x = config.text_config\n    return x['factor']\n"
    assert keys(twice) == ["rope_scaling", "text_config"]


def test_a_parameter_hides_a_name_of_outside():
    code = "def f(config):\n    inner = config.text_config\n    def g(inner):\n        return inner.head_dim\n"
    assert keys(code) == ["text_config"]


def test_what_is_written_is_not_read():
    assert keys("def f(config):\n    config.rope_theta = 5\n    del config.head_dim\n") == []


def test_the_class_of_a_config_declares_its_parameters_fields_and_keyword_arguments():
    code = """
    class XConfig(PretrainedConfig):
        rope_theta: float = 10000.0
        def __init__(self, hidden_size=4096, *, theta=None, **kwargs):
            self.hidden_size = hidden_size
            self.rotary_pct = kwargs.pop("rotary_pct", 0.25)
        def check(self):
            return self.hidden_size
    """
    assert found(code, declared=True) == [
        ("rope_theta", "10000.0", 3),
        ("hidden_size", "4096", 4),
        ("theta", "None", 4),
        ("rotary_pct", "0.25", 6),
    ]
    assert found(code, declared=False) == [("hidden_size", None, 8)]


def test_a_read_says_its_class_and_function():
    code = "class Attention:\n    def forward(self, x):\n        return self.config.window\n"
    assert key_reads(code, "modeling_x.py") == [KeyRead("window", "modeling_x.py", 3, "Attention", "forward")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(:\n", "x.py is not valid Python at line 1"),
        ("a = 1\0", "x.py is not valid Python at line 1|x.py holds null bytes"),
        ("(" * 5000 + ")" * 5000, "x.py .*(nests more than 150 levels|not valid Python)"),
        ("a = " + "-" * 100_000 + "1", "x.py nests more than 150 levels"),
        ("a = " + "1 + " * 20_000 + "1", "x.py nests more than 150 levels"),
        ("a = '" + "b" * 3 * 2**20 + "'", "x.py is larger than 2 MiB"),
    ],
)
def test_hostile_code_is_refused_with_the_reason(text, said):
    with pytest.raises(Unreadable, match=said):
        key_reads(text, "x.py")


def test_files_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "modeling_x.py").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(Unreadable, match=r"modeling_x\.py is not UTF-8 text"):
        python_files.read(tmp_path / "modeling_x.py")


def test_an_escape_that_python_dislikes_does_not_warn():
    assert keys("def f(config):\n    return config.x + '\\d'\n") == ["x"]
