"""The code beside a config is parsed and followed, never run: layout, base, tables and biases, each with its line."""

import ast
import inspect
import json
import random
import re
import textwrap
from pathlib import Path

import pytest

import clockhands as ch
from clockhands.configs.model_code._following import FollowedCode
from clockhands.configs.model_code.code_facts import read_code
from clockhands.configs.model_types import model_type, model_types
from clockhands.configs.opened import Opened
from clockhands.configs.resolve import resolve
from clockhands.configs.section_fields import sections
from clockhands.formats import python_files

NAMES = random.Random(45)

HALVES = {
    "slices": "a = x[..., : x.shape[-1] // 2]\nb = x[..., x.shape[-1] // 2 :]\nreturn torch.cat((-b, a), dim=-1)",
    "chunk": "a, b = x.chunk(2, dim=-1)\nreturn torch.cat([-b, a], dim=-1)",
    "torch.chunk": "a, b = torch.chunk(x, 2, -1)\nreturn torch.cat((-b, a), -1)",
    "half": "half = x.shape[-1] // 2\nreturn torch.cat((-x[..., half:], x[..., :half]), dim=-1)",
    "einops": "x = rearrange(x, '... (j d) -> ... j d', j=2)\na, b = x.unbind(dim=-2)\nreturn torch.cat((-b, a), -1)",
    "products": "a, b = torch.chunk(x, 2, dim=-1)\nreturn torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)",
}
INTERLEAVED = {
    "strides": "a, b = x[..., ::2], x[..., 1::2]\nreturn torch.stack((-b, a), dim=-1).flatten(-2)",
    "strides from 0": "a = x[..., 0::2]\nb = x[..., 1::2]\nreturn torch.stack([-b, a], -1).reshape(x.shape)",
    "reshape": (
        "y = x.float().reshape(*x.shape[:-1], -1, 2)\n"
        "return torch.stack([y[..., 0] * cos - y[..., 1] * sin, y[..., 1] * cos + y[..., 0] * sin], -1).flatten(3)"
    ),
    "unflatten": "a, b = x.unflatten(-1, (-1, 2)).unbind(-1)\nreturn torch.stack((-b, a), dim=-1).flatten(-2)",
    "complex": "return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * cos).flatten(3)",
    "einops": (
        "x = rearrange(x, '... (d r) -> ... d r', r=2)\na, b = x.unbind(dim=-1)\n"
        "return rearrange(torch.stack((-b, a), dim=-1), '... d r -> ... (d r)')"
    ),
    "into halves first": (
        "n, h, s, d = x.shape\nx = x.view(n, h, s, d // 2, 2).transpose(4, 3).reshape(n, h, s, d)\n"
        "return torch.cat((-x[..., d // 2 :], x[..., : d // 2]), dim=-1)"
    ),
}
DOUBLED = {False: "torch.cat((angles, angles), dim=-1)", True: "angles.repeat_interleave(2, dim=-1)"}
FREQUENCIES = "1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))"


def drawn(stem):
    """A name that no table knows."""
    return f"{stem}{NAMES.randrange(10**6)}"


def source(rotation=HALVES["chunk"], *, frequencies=FREQUENCIES, base="config.rope_theta", more="", body="", dim=None):
    """The code of a small model around a rotation, and its names."""
    names = {name: drawn(name) for name in ("Config", "Rope", "Attention", "Layer", "Model", "turned")}
    code = f"""
    import torch
    from torch import nn

    class {names["Config"]}(PretrainedConfig):
        def __init__(self, hidden_size=512, num_attention_heads=8, num_hidden_layers=2, rope_theta=10000.0, **kwargs):
            self.hidden_size = hidden_size
            self.num_attention_heads = num_attention_heads
            self.num_hidden_layers = num_hidden_layers
            self.rope_theta = rope_theta
            super().__init__(**kwargs)

    class {names["Rope"]}(nn.Module):
        def __init__(self, dim, base=10000):
            super().__init__()
            self.register_buffer("inv_freq", {frequencies}, persistent=False)

        def forward(self, x, position_ids):
            angles = torch.outer(position_ids.float(), self.inv_freq)
            angles = {DOUBLED[rotation in INTERLEAVED.values() and "transpose" not in rotation]}
            return angles.cos(), angles.sin()

    def {names["turned"]}(x, cos, sin):
{textwrap.indent(rotation, " " * 8)}

    class {names["Attention"]}(nn.Module):
        def __init__(self, config, layer):
            super().__init__()
            self.config = config
            self.head_dim = config.hidden_size // config.num_attention_heads
            self.q = nn.Linear(config.hidden_size, config.hidden_size)
            self.rope = {names["Rope"]}({dim or "self.head_dim"}, base={base})

        def forward(self, x, position_ids=None):
            q = self.q(x).view(1, -1, 8, self.head_dim)
            cos, sin = self.rope(q, position_ids)
            return q * cos + {names["turned"]}(q, cos, sin) * sin

    class {names["Layer"]}(nn.Module):
        def __init__(self, config, layer):
            super().__init__()
            self.attention = {names["Attention"]}(config, layer)

        def forward(self, x):
            return self.attention(x)

    class {names["Model"]}(PreTrainedModel):
        def __init__(self, config):
            super().__init__(config)
            self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
            self.layers = nn.ModuleList([{names["Layer"]}(config, n) for n in range(config.num_hidden_layers)])
            {body}

        def forward(self, ids):
            x = self.embed_tokens(ids)
            for layer in self.layers:
                x = layer(x)
            return x
    """
    return textwrap.dedent(code) + textwrap.dedent(more), names


def written(folder, code, names, **config):
    """A folder with a config of an unknown type and its code."""
    (folder / "modeling_own.py").write_text(code, encoding="utf-8")
    model_map = {"AutoConfig": f"modeling_own.{names['Config']}", "AutoModel": f"modeling_own.{names['Model']}"}
    sizes = {"hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2, "vocab_size": 100}
    held = {"model_type": drawn("mystery"), "auto_map": model_map, **sizes, "rope_theta": 50000.0, **config}
    (folder / "config.json").write_text(json.dumps(held), encoding="utf-8")
    return folder


def only_layers(folder):
    (found,) = ch.audit(str(folder)).layers
    return found


def note(folder, code):
    return next((each for each in ch.audit(str(folder)).findings if each.code == code), None)


@pytest.mark.parametrize(
    ("layout", "rotation"),
    [("halves", each) for each in HALVES.values()] + [("interleaved", each) for each in INTERLEAVED.values()],
    ids=[*HALVES, *(f"interleaved {name}" for name in INTERLEAVED)],
)
def test_each_spelling_of_a_rotation_gives_its_layout_and_line(tmp_path, layout, rotation):
    code, names = source(rotation)
    found = only_layers(written(tmp_path, code, names))
    assert (found.kind, found.layout, found.base, found.rotated) == ("rotary", layout, 50000.0, 64)
    assert found.spec == ch.Rotary(64, layout, base=50000.0)
    file, line = found.source["layout"].split(":")
    assert file == "modeling_own.py"
    assert any(word in code.splitlines()[int(line) - 1] for word in ("cat", "stack", "complex"))
    assert "parsed, not run" in str(note(tmp_path, "unknown-model-type"))


@pytest.mark.parametrize(
    ("base", "config", "expected", "said"),
    [
        ("config.rope_theta", {}, 50000.0, "config.json:rope_theta"),
        ("config.rope_theta", {"rope_theta": None}, None, None),
        ("getattr(config, 'theta', 30000.0)", {}, 30000.0, "modeling_own.py:"),
        ("getattr(config, 'theta', 30000.0)", {"theta": 7000}, 7000.0, "config.json:theta"),
        ("10000 * config.ratio", {"ratio": 50}, 500000.0, "config.json:ratio"),
        ("20000", {}, 20000.0, "modeling_own.py:"),
        ("config.text['theta']", {"text": {"theta": 900.0}}, 900.0, "config.json:text.theta"),
        ("config.absent", {}, None, None),
        ("5000 if config.small else 6000", {"small": True}, 5000.0, "modeling_own.py:"),
        ("5000 if layer else 6000", {}, None, None),
    ],
)
def test_the_base_that_reaches_the_cosine_is_the_one_of_the_code(tmp_path, base, config, expected, said):
    code, names = source(base=base)
    found = only_layers(written(tmp_path, code, names, **config))
    assert found.base == expected
    if expected is not None:
        assert said in found.source["base"]
        assert found.rates == ch.Rotary(64, "halves", base=expected).rates
    else:
        assert found.rates is None


@pytest.mark.parametrize(
    "frequencies",
    [
        "base ** -(torch.arange(0, dim, 2).float() / dim)",
        "1 / torch.pow(base, torch.arange(0, dim, 2) / dim)",
        "1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.int64)[: (dim // 2)].float() / dim))",
    ],
)
def test_each_spelling_of_the_frequencies(tmp_path, frequencies):
    code, names = source(frequencies=frequencies)
    assert only_layers(written(tmp_path, code, names)).rates == ch.Rotary(64, "halves", base=50000.0).rates


def test_another_divisor_is_not_taken_for_the_usual_frequencies(tmp_path):
    code, names = source(frequencies="1.0 / (base ** (torch.arange(0, dim, 2).float() / 512))")
    assert only_layers(written(tmp_path, code, names)).rates is None


def test_part_of_a_head_is_rotated(tmp_path):
    code, names = source(dim="int(self.head_dim * config.share)")
    found = only_layers(written(tmp_path, code, names, share=0.25))
    assert (found.rotated, found.width) == (16, 64)


def test_code_that_nothing_calls_says_nothing(tmp_path):
    dead = "\ndef rotate_half(x):\n    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1)\n"
    gate = "\ndef gate(x):\n    a, b = x[..., ::2], x[..., 1::2]\n    return a * torch.sigmoid(a) * (b + 1)\n"
    code, names = source(more=dead + gate)
    assert only_layers(written(tmp_path, code, names)).layout == "halves"


def test_layouts_that_contradict_each_other_are_not_known(tmp_path):
    more = """
    class Experts(nn.Module):
        def forward(self, x):
            return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1)
    """
    code, names = source(more=more, body="self.experts = Experts()")
    found = only_layers(written(tmp_path, code, names))
    assert (found.layout, found.base) == (None, 50000.0)


def test_a_tower_for_images_is_not_the_text(tmp_path):
    more = """
    class VisionRope(nn.Module):
        def forward(self, x):
            return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1)
    """
    code, names = source(more=more, body="self.visual = VisionRope()")
    assert only_layers(written(tmp_path, code, names)).layout == "halves"


def test_axes_of_a_head_are_no_layout_of_it(tmp_path):
    code, names = source()
    split = f"{names['turned']}(q.chunk(2, dim=-1)[0], cos, sin)"
    found = only_layers(written(tmp_path, code.replace(f"{names['turned']}(q, cos, sin)", split), names))
    assert (found.layout, found.rates) == (None, None)


def test_a_flag_of_the_config_chooses_the_layout(tmp_path):
    rotation = f"if sin:\n{textwrap.indent(HALVES['chunk'], '    ')}\n{INTERLEAVED['strides']}"
    code, names = source(rotation)
    code = code.replace("(q, cos, sin) * sin", "(q, cos, self.config.neox) * sin")
    code = code.replace(DOUBLED[False], "doubled(angles)")
    for flag, layout in ((True, "halves"), (False, "interleaved")):
        assert only_layers(written(tmp_path, code, names, neox=flag)).layout == layout


def test_a_base_that_grows_with_the_length_is_said_and_nothing_promised_beyond(tmp_path):
    code, names = source(frequencies="1.0 / ((base * alpha() ** (dim / (dim - 2))) ** (torch.arange(0, dim, 2) / dim))")
    folder = written(tmp_path, code, names)
    found = only_layers(folder)
    assert found.base == 50000.0
    assert found.scaling is not None
    assert found.scaling["type"] == "dynamic"
    (longer,) = ch.audit(str(folder), length=100_000).layers
    assert longer.rates is None


def test_keys_of_rope_that_the_code_does_not_use_make_no_rope(tmp_path):
    code, names = source()
    code = code.replace(f"{names['Attention']}(config, layer)", "nn.Linear(1, 1)")
    assert only_layers(written(tmp_path, code, names)).kind is None
    shared = code.replace("import torch\n", "import torch\nfrom transformers.models.llama.modeling_llama import Any\n")
    assert only_layers(written(tmp_path, shared, names)).kind == "rotary"


def test_a_window_that_no_code_reads_is_no_window(tmp_path):
    code, names = source()
    assert only_layers(written(tmp_path, code, names, sliding_window=64)).window is None
    code = code.replace("self.config = config", "self.config = config\n        self.window = config.sliding_window")
    assert only_layers(written(tmp_path, code, names, sliding_window=64)).window == 64


def test_a_list_of_tensors_is_followed_item_by_item(tmp_path):
    rotation = "a, b = x.chunk(2, dim=-1)\na, b = [each.float() for each in (a, b)]\nreturn torch.cat((-b, a), dim=-1)"
    code, names = source(rotation)
    assert only_layers(written(tmp_path, code, names)).layout == "halves"


def test_layers_of_several_classes_are_said(tmp_path):
    code, names = source()
    layers = f"{names['Layer']}(config, n) for n in range"
    more = "\nclass Linear(nn.Module):\n    def forward(self, x):\n        return x\n"
    other = code.replace(layers, f"({names['Layer']}(config, n) if n % 8 else Linear()) for n in range") + more
    assert "perhaps not every layer" in str(note(written(tmp_path, other, names), "unknown-model-type"))
    assert "perhaps not every layer" not in str(note(written(tmp_path, code, names), "unknown-model-type"))


def test_sines_that_nothing_rotates_by_are_no_rope(tmp_path):
    code, names = source("return x", base="20000")
    folder = written(tmp_path, code, names, rope_theta=None)
    assert only_layers(folder).kind is None
    assert "perhaps of a table" in str(note(folder, "unknown-model-type"))


def test_the_names_of_scalings_that_the_code_knows_are_said(tmp_path):
    body = """kind = config.rope_scaling["type"] if config.rope_scaling else None
            if config.rope_scaling and config.rope_scaling.get("type") in ("linear", "dynamic"):
                self.scaled = True"""
    code, names = source(body=body)
    scaling = {"type": "linear", "factor": 2.0}
    said = str(note(written(tmp_path, code, names, rope_scaling=scaling), "unknown-model-type"))
    assert re.search(r"type with linear \(modeling_own\.py:\d+\) and dynamic \(modeling_own\.py:\d+\)", said)
    assert "scaling's type" not in str(note(written(tmp_path, code, names), "unknown-model-type"))


def test_decays_of_linear_attention_are_no_alibi(tmp_path):
    more = "\ndef slopes(n):\n    return 2 ** (-(2 ** -(math.log2(n) - 3)))\n"
    code, names = source(more=more, body="self.decays = slopes(8)")
    assert only_layers(written(tmp_path, code, names)).kind == "rotary"


def test_a_copy_of_the_config_is_followed(tmp_path):
    code, names = source()
    code = code.replace("= config\n", "= copy.deepcopy(config)\n        config = copy.deepcopy(config)\n", 1)
    assert only_layers(written(tmp_path, code, names)).base == 50000.0


def test_log_n_attention_is_said_with_its_length(tmp_path):
    body = "self.factors = [math.log(i, config.seq_length) if i > config.seq_length else 1 for i in range(1, 32768)]"
    code, names = source(body=body)
    said = str(note(written(tmp_path, code, names, seq_length=2048), "unknown-model-type"))
    assert re.search(r"log-n attention beyond 2,048 tokens \(modeling_own\.py:\d+, config\.json:seq_length\)", said)


def test_a_class_that_makes_itself_from_the_config_is_followed(tmp_path):
    code, names = source()
    made = f"{names['Rope']}(self.head_dim, base=config.rope_theta)"
    assert made in code
    own = "\n    @classmethod\n    def of(cls, config, dim):\n        return cls(dim, base=config.rope_theta)\n"
    code = code.replace("return angles.cos(), angles.sin()\n", f"return angles.cos(), angles.sin()\n{own}")
    code = code.replace(made, f"{names['Rope']}.of(config, self.head_dim)")
    assert only_layers(written(tmp_path, code, names)).rates == ch.Rotary(64, "halves", base=50000.0).rates


def test_an_unknown_type_without_a_map_is_read_from_the_files_of_the_usual_names(tmp_path):
    code, names = source(base="config.theta")
    code = code.replace("PretrainedConfig):", "PretrainedConfig):\n    model_type = 'new_kind'", 1)
    code = code.replace("rope_theta=10000.0, **kwargs", "theta=40.0, **kwargs")
    code = code.replace("self.rope_theta = rope_theta", "self.theta = theta")
    folder = written(tmp_path, code, names, architectures=[names["Model"]], model_type="new_kind")
    config = json.loads((folder / "config.json").read_text())
    del config["auto_map"], config["rope_theta"]
    (folder / "config.json").write_text(json.dumps(config))
    assert only_layers(folder).base == 40.0


def test_the_files_of_a_snapshot_are_links(tmp_path):
    code, names = source()
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    written(blobs, code, names)
    for name in ("modeling_own.py", "config.json"):
        (blobs / name).rename(blobs / f"{name}.blob")
        (snapshot / name).symlink_to(blobs / f"{name}.blob")
    assert only_layers(snapshot).layout == "halves"


def test_tables_and_slopes_are_found(tmp_path):
    code, names = source(body="self.wpe = nn.Embedding(config.max_length + 2, config.hidden_size)")
    layers = ch.audit(str(written(tmp_path, code, names, max_length=30))).layers
    assert {each.kind: each.rows for each in layers} == {"rotary": None, "learned": 32}
    slopes = "a = 2 ** (-(2 ** -(math.log2(8) - 3)))\nreturn a * position_ids"
    more = f"\nclass Biases(nn.Module):\n    def forward(self, position_ids):\n{textwrap.indent(slopes, ' ' * 8)}\n"
    code, names = source(body="self.biases = Biases()", more=more)
    code = code.replace(f"{names['Attention']}(config, layer)", "nn.Linear(1, 1)")
    assert only_layers(written(tmp_path, code, names)).kind == "alibi"


def test_what_else_the_code_reads_is_said(tmp_path):
    code, names = source(body="self.window = config.rope_window")
    config = {"rope_window": 128, "rotary_unused": 3}
    says = " ".join(ch.audit(str(written(tmp_path, code, names, **config))).notes)
    assert re.search(r"reads rope_window \(modeling_own\.py:\d+\)", says)
    assert "No code beside the config (modeling_own.py) reads rotary_unused." in says


def test_code_of_another_repository_is_not_looked_for_here(tmp_path):
    code, names = source()
    folder = written(tmp_path, code, names)
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {key: f"org/other--{place}" for key, place in config["auto_map"].items()}
    (folder / "config.json").write_text(json.dumps(config))
    assert only_layers(folder).layout is None


def test_a_difference_from_a_known_type_is_a_note(tmp_path):
    code, names = source(INTERLEAVED["strides"], base="70000")
    folder = written(tmp_path, code, names, model_type="llama", architectures=["LlamaForCausalLM"])
    found = [each for each in ch.audit(str(folder)).findings if each.code == "code-differs"]
    assert {each.evidence["what"]: each.evidence["code"] for each in found} == {
        "layout": "interleaved",
        "base": 70000.0,
    }
    assert {each.severity for each in found} == {"note"}
    code, names = source()
    same = written(tmp_path, code, names, model_type="llama", architectures=["LlamaForCausalLM"])
    assert note(same, "code-differs") is None


def test_nothing_is_run(tmp_path):
    code, names = source()
    code += f"\nopen({str(tmp_path / 'ran')!r}, 'w').close()\nraise SystemExit\n"
    assert only_layers(written(tmp_path, code, names)).layout == "halves"
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_the_code_of_transformers_agrees_with_what_is_known_of_its_types(cases):
    from huggingface_hub.errors import StrictDataclassError
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES

    seen = 0
    for name in sorted(set(model_types()) & set(CONFIG_MAPPING)):
        row = model_type(name)
        if row is None or row.sections or all(each.kind != "rotary" for each in row.rows):
            continue
        kind, model = CONFIG_MAPPING[name], MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(name, MODEL_MAPPING_NAMES.get(name))
        try:
            config = json.loads(json.dumps(kind().to_dict(), default=str)) | {"model_type": name}
        except (StrictDataclassError, ValueError):  # a few classes refuse their own defaults
            continue
        known = resolve(Opened(name, "config", None, config, "config.json")).codes
        rotary = [each for each in known if each.kind == "rotary" and each.part == "text"]
        if not rotary or not isinstance(model, str) or any(section.path for section in sections(config)):
            continue
        folder = Path(inspect.getfile(kind)).parent
        trees = {each.name: python_files.read(each) for each in folder.glob("*.py")}
        own = {file: tree for file, tree in trees.items() if not file.startswith("modular_")}
        modules = {
            each.name: file[:-3] for file, tree in own.items() for each in ast.walk(tree) if hasattr(each, "name")
        }
        if model not in modules:  # a class of another type
            continue
        named = {"AutoConfig": f"{modules[kind.__name__]}.{kind.__name__}", "AutoModel": f"{modules[model]}.{model}"}
        code = read_code(trees, config | {"auto_map": named}, "config.json")
        seen += code.layout is not None
        for quantity in ("layout", "base", "rotated"):
            shown = getattr(code, quantity)
            with cases(name, quantity, shown):
                assert shown is None or shown.value in {getattr(each, quantity) for each in rotary}
    assert seen > 60


@pytest.mark.parametrize(
    "content",
    [b"a = 1\0", b"(" * 10_000, b"x = " + b"-" * 100_000 + b"1", b"#" * (3 * 2**20), b"\xff\xfe", b"def f(:"],
    ids=["null", "nesting", "signs", "size", "bytes", "syntax"],
)
def test_hostile_files_are_refused_with_a_note(tmp_path, content):
    code, names = source()
    folder = written(tmp_path, code, names)
    (folder / "modeling_own.py").write_bytes(content)
    audit = ch.audit(str(folder))
    assert any("modeling_own.py" in each and "its code is not read" in each for each in audit.notes)
    assert audit.layers[0].layout is None


@pytest.mark.parametrize("value", [[1, 2], {"a": [1]}, "much", 1e300, -1, True, [], [[0]]], ids=str)
def test_values_of_any_kind_do_not_stop_the_code_from_being_followed(tmp_path, value):
    code, names = source(body="self.odd = config.hidden_size if config.rope_theta in config.table else None")
    found = only_layers(written(tmp_path, code, names, rope_theta=value, table={"a": 1}))
    assert (found.layout, found.rates) == ("halves", None)


def test_code_without_end_is_given_up(tmp_path):
    code, names = source(body="self.f0 = f0(1)")
    calls = "".join(f"\ndef f{n}(x):\n    return f{n + 1}(x) + f{n + 1}(x + f{n + 1}(x))\n" for n in range(23))
    found = only_layers(written(tmp_path, code + calls + "\ndef f23(x):\n    return x\n", names))
    assert (found.layout, found.kind) == (None, "rotary")


def test_a_class_that_is_inherited_many_times_is_visited_once():
    kinds = "".join(f"class C{n}(C{n - 1}, C{n - 1}): pass\n" for n in range(1, 15))
    code = FollowedCode({"own.py": ast.parse(f"class C0: pass\n{kinds}")})
    last = code.class_named("C14")
    assert last is not None
    assert [each.node.name for each in code.bases(last)] == [f"C{n}" for n in reversed(range(15))]


def test_methods_are_those_of_the_class_that_python_finds_first(tmp_path):
    more = """
    class Root:
        def theta(self):
            return 100.0

    class Left(Root):
        pass

    class Right(Root):
        def theta(self):
            return 300.0

        def theta(self):
            return 200.0

    class Own(Left, Right):
        pass
    """
    code, names = source(base="Own().theta()", more=more)
    assert only_layers(written(tmp_path, code, names)).base == 200.0


def test_branches_that_copy_very_many_names_are_given_up(tmp_path):
    assigned = "".join(f"    a{n} = {n}\n" for n in range(1000))
    branches = "".join(f"    if x:\n        b{n} = 1\n" for n in range(1000))
    code, names = source(more=f"\ndef many(x):\n{assigned}{branches}", body="self.many = many(torch.rand(1))")
    found = only_layers(written(tmp_path, code, names))
    assert (found.layout, found.kind) == (None, "rotary")


@pytest.mark.parametrize(
    ("base", "more", "expected"),
    [
        ("grown(config.rope_theta)", "def grown(b):\n    for i in range(3):\n        b = b * 2\n    return b", None),
        ("grown(config.rope_theta)", "def grown(b):\n    while b < 1e9:\n        b *= 10\n    return b", None),
        ("Held().b", "class Held:\n    def __init__(self):\n        self.b = 5\n        self.grow()\n"
         "    def grow(self):\n        for i in range(3):\n            self.b *= 2", None),
        ("once(config.rope_theta)", "def once(b):\n    for i in range(3):\n        print(i)\n    return b", 50000.0),
        ("BASE", "BASE = 10000.0\nBASE = BASE * 5", None),
        ("BASE", "BASE = 10000.0\nBASE *= 5", None),
        ("BASE", "BASE = 10000.0\nfor i in range(3):\n    BASE = 5.0", None),
        ("BASE", "BASE = 10000.0\ndef other():\n    global BASE\n    BASE = 5.0", None),
        ("BASE", "BASE = 10000.0", 10000.0),
        ("base_of()", "def base_of():\n    return 5.0\ndef base_of():\n    return 6.0", 6.0),
        ("base_of()", "if NEW:\n  def base_of():\n    return 5.0\nelse:\n  def base_of():\n    return 6.0", None),
    ],
)  # fmt: skip
def test_a_base_that_is_changed_while_the_code_runs_is_the_last_one_or_not_known(tmp_path, base, more, expected):
    code, names = source(base=base, more=f"\n{more}\n")
    assert only_layers(written(tmp_path, code, names)).base == expected


@pytest.mark.parametrize(
    ("kept", "body", "expected"),
    [
        ("kept", "@property\n    def rope_theta(self):\n        return self.kept * 10", 500000.0),
        ("rope_theta", "other = 1", 50000.0),
        ("rope_theta = 1\n        setattr(self, 'rope_theta', 99.0); self.other", "other = 1", 99.0),
    ],
    ids=["property", "attribute", "setattr"],
)
def test_what_the_class_of_the_config_makes_of_a_key_goes_before_the_key(tmp_path, kept, body, expected):
    code, names = source()
    code = code.replace("self.rope_theta = rope_theta", f"self.{kept} = rope_theta")
    code = code.replace("super().__init__(**kwargs)\n", f"super().__init__(**kwargs)\n\n    {body}\n", 1)
    assert only_layers(written(tmp_path, code, names)).base == expected


@pytest.mark.parametrize(
    ("frequencies", "config", "known"),
    [
        (f"{FREQUENCIES} / 8.0", {}, False),
        (f"({FREQUENCIES}).flip(0)", {}, False),
        (f"own_order({FREQUENCIES})", {}, False),
        (f"({FREQUENCIES}).float().to('cuda')", {}, True),
        (f"torch.ones_like({FREQUENCIES}) * ({FREQUENCIES})", {}, True),
        (f"{FREQUENCIES} / 8.0", {"rope_scaling": {"type": "linear", "factor": 2.0}}, False),
        (f"{FREQUENCIES} / 8.0", {"rope_scaling": {"type": "linear", "factor": 8.0}}, True),
    ],
)
def test_frequencies_that_are_changed_after_the_base_are_not_those_of_the_base(tmp_path, frequencies, config, known):
    code, names = source(frequencies=frequencies, body="self.scaling = config.rope_scaling")
    folder = written(tmp_path, code, names, **config)
    found = only_layers(folder)
    assert (found.base, found.rates is not None) == ((50000.0, True) if known else (None, False))
    assert ("changed after" in str(note(folder, "unknown-model-type"))) is not known


def test_a_scaling_that_no_code_reads_is_no_scaling(tmp_path):
    scaling = {"type": "linear", "factor": 4.0}
    code, names = source()
    folder = written(tmp_path, code, names, rope_scaling=scaling)
    found = only_layers(folder)
    assert (found.scaling, found.rates) == (None, ch.Rotary(64, "halves", base=50000.0).rates)
    assert "No code beside the config (modeling_own.py) reads rope_scaling" in " ".join(ch.audit(str(folder)).notes)
    shared = code.replace("import torch\n", "import torch\nfrom transformers.models.llama.modeling_llama import Any\n")
    unknown = only_layers(written(tmp_path, shared, names, rope_scaling=scaling)).scaling
    assert unknown is not None
    assert unknown["type"] == "linear"


def test_code_that_is_quoted_is_not_said_to_be_unread(tmp_path):
    code, names = source()
    text = str(ch.audit(str(written(tmp_path, code, names))).to_dict())
    assert "(modeling_own.py:" in text
    assert "custom code of the model, which clockhands never runs" in text


def test_the_table_of_sinusoids_of_a_class_of_positions_is_found(tmp_path):
    more = """
    class PositionalEncoding(nn.Module):
        def __init__(self, width, rows):
            super().__init__()
            table, places = torch.zeros(rows, width), torch.arange(0, rows).unsqueeze(1)
            rates = torch.exp(torch.arange(0, width, 2).float() * (-math.log(10000.0) / width))
            table[:, 0::2] = torch.sin(places * rates)
            table[:, 1::2] = torch.cos(places * rates)
            self.register_buffer("table", table)

        def forward(self, x):
            return x + self.table[: x.shape[1]]
    """
    code, names = source(more=more, body="self.positions = PositionalEncoding(config.hidden_size, 512)")
    still = code.replace(f"q * cos + {names['turned']}(q, cos, sin) * sin", "q")
    still = still.replace(f"self.rope = {names['Rope']}(self.head_dim, base=config.rope_theta)", "pass")
    found = only_layers(written(tmp_path, still, names))
    assert (found.kind, found.layers) == ("sinusoidal", "input")
    assert "a table of sinusoids (modeling_own.py:" in note(tmp_path, "unknown-model-type").message
    assert only_layers(written(tmp_path, code, names)).kind == "rotary"


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        ("q * cos + turned(q, cos, sin) * sin", "q * sin + turned(q, cos, sin) * cos"),
        ("q * cos + turned(q, cos, sin) * sin", "q * cos - turned(q, cos, sin) * sin"),
        (DOUBLED[False], DOUBLED[True]),
        (DOUBLED[False], "torch.stack((angles, angles), dim=-1).flatten(-2)"),
    ],
    ids=["cosine and sine exchanged", "the other direction", "doubled for the other layout", "stacked for it"],
)
def test_channels_that_meet_other_cosines_than_in_rope_have_no_known_rotation(tmp_path, usual, other):
    code, names = source()
    usual, other = (each.replace("turned", names["turned"]) for each in (usual, other))
    assert usual in code
    found = only_layers(written(tmp_path, code.replace(usual, other), names))
    assert (found.layout, found.base, found.rates) == (None, None, None)
    assert "otherwise than in RoPE (modeling_own.py:" in note(tmp_path, "unknown-model-type").message


@pytest.mark.parametrize(
    "condition",
    ["if self.layer % 2 == 0:", "if self.layer in self.config.turning:", "if self.config.kinds[self.layer] == 'full':"],
)
def test_which_layers_rotate_is_not_known_where_their_number_decides(tmp_path, condition):
    code, names = source()
    code = code.replace("self.config = config\n", "self.config = config\n        self.layer = layer\n")
    turned = f"return q * cos + {names['turned']}(q, cos, sin) * sin"
    for some in (
        f"{condition}\n            {turned}\n        return q",
        f"{condition}\n            return q\n        {turned}",
    ):
        folder = written(tmp_path, code.replace(turned, some), names, turning=[0], kinds=["full", "linear"])
        assert only_layers(folder).layers is None
        assert "a rotation that perhaps not every layer has" in note(folder, "unknown-model-type").message
    assert only_layers(written(tmp_path, code, names)).layers == "0-1"


def test_a_name_is_that_of_its_own_file_then_of_the_file_that_it_is_imported_from(tmp_path):
    rotation = f"\ndef turned(x, cos, sin):\n{textwrap.indent(INTERLEAVED['strides'], '    ')}\n"
    code, names = source()
    written(tmp_path, code.replace(names["turned"], "turned"), names)
    (tmp_path / "other.py").write_text(rotation, encoding="utf-8")
    start = (tmp_path / "modeling_own.py").read_text(encoding="utf-8")
    (tmp_path / "modeling_own.py").write_text(f"from .other import something\n{start}", encoding="utf-8")
    assert only_layers(tmp_path).layout == "halves"
    taken = start.replace("def turned(", "def unused(").replace(DOUBLED[False], DOUBLED[True])
    (tmp_path / "modeling_own.py").write_text(f"from .other import turned\n{taken}", encoding="utf-8")
    (tmp_path / "third.py").write_text("def turned(x, cos, sin):\n    return x\n", encoding="utf-8")
    assert only_layers(tmp_path).layout == "interleaved"


def test_the_code_of_a_text_inside_a_model_is_followed_from_the_model(tmp_path):
    code, names = source(base="config.rope_theta * 2")
    code += textwrap.dedent(f"""
    class Whole(PreTrainedModel):
        def __init__(self, config):
            super().__init__(config)
            self.language_model = {names["Model"]}(config.text_config)
    """)
    folder = written(tmp_path, code, names)
    inner = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    whole = {"model_type": drawn("whole"), "auto_map": {"AutoModel": "modeling_own.Whole"}}
    text = {key: value for key, value in inner.items() if key != "auto_map"}
    (folder / "config.json").write_text(json.dumps(whole | {"text_config": text}), encoding="utf-8")
    found = only_layers(folder)
    assert (found.layout, found.base) == ("halves", 100000.0)
    assert "config.json:text_config.rope_theta" in found.source["base"]
