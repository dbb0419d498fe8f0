"""Classes and programs beside a config: the first command that a user writes builds them, and names their fault."""

import json

import pytest
from click.testing import CliRunner

from clockhands.cli import main

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "head_dim": 16, "intermediate_size": 128, "vocab_size": 97, "rope_theta": 500000.0,
    "max_position_embeddings": 512,
}  # fmt: skip

MODEL = """
import json
from dataclasses import dataclass
from pathlib import Path
import torch
from torch import nn

BASE = None
BEHIND = 0

def rotated(x, positions, base):
    angles = positions[..., None].float() / base ** (torch.arange(0, x.shape[-1], 2).float() / x.shape[-1])
    angles = torch.cat([angles, angles], -1)[:, None]
    first, second = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()

class Rotary(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        self.base = BASE or base
        self.dim = dim
    def forward(self, x, positions):
        return rotated(x, positions, self.base)

class Attention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.heads, self.base = config.num_attention_heads, BASE or config.rope_theta
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.out = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
    def forward(self, x, positions, past=None):
        parts = self.qkv(x).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        q, k = rotated(q, positions, self.base), rotated(k, positions, self.base)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        shown = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=shown)
        return self.out(y.transpose(1, 2).flatten(2)), (k, v)

@dataclass
class Sizes:
    hidden_size: int
    num_attention_heads: int
    n_layers: int
    vocab_size: int
    rope_theta: float = 10000.0

class Model(nn.Module):
    def __init__(self, config: Sizes):
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Attention(config, number) for number in range(config.n_layers))
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
    def forward(self, input_ids, kv_caches=None):
        start = 0 if kv_caches is None else kv_caches[0][0].shape[2] - BEHIND
        positions = torch.arange(start, start + input_ids.shape[1])[None].expand(len(input_ids), -1)
        x, kept = self.embed(input_ids), []
        for number, layer in enumerate(self.layers):
            y, cache = layer(x, positions, None if kv_caches is None else kv_caches[number])
            x = x + y
            kept.append(cache)
        return self.head(x), kept

def loud(model):
    torch.manual_seed(0)
    for each in model.parameters():
        nn.init.normal_(each, std=0.3)
    return model.eval()

class Session:
    def __init__(self, model):
        self.model, self.past = model, None
    @torch.no_grad()
    def append(self, ids):
        logits, self.past = self.model(torch.tensor([ids]), self.past)
        self.last = logits[0, -1]
    def sample(self):
        token = int(self.last.argmax())
        self.append([token])
        return token

class Engine:
    def __init__(self, model_path):
        found = json.loads((Path(model_path) / "config.json").read_text())
        names = ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size", "rope_theta")
        self.model = loud(Model(Sizes(*map(found.get, names))))
    def new_session(self):
        return Session(self.model)

class Stepping:
    def __init__(self, model: Model):
        self.model = loud(model)
    @torch.no_grad()
    def prefill(self, input_ids):
        logits, past = self.model(input_ids)
        return logits[:, -1], past
    @torch.no_grad()
    def decode(self, token, state):
        logits, past = self.model(token, state)
        return logits[:, -1], past

def generate(model_path, prompt_ids, max_new_tokens):
    session, found = Engine(model_path).new_session(), []
    session.append(prompt_ids)
    return [session.sample() for _ in range(max_new_tokens)]

def rope(q, k, seq_len, offset=0):
    positions = torch.arange(seq_len)[None] + offset
    return rotated(q, positions, BASE or 500000.0), rotated(k, positions, BASE or 500000.0)
"""


@pytest.fixture
def told(tmp_path, monkeypatch):
    """From a name in the file of a model, with edits, to the exit code and the report of the first command."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")

    def checked(name, *edits, code=MODEL):
        for old, new in edits:
            assert old in code
            code = code.replace(old, new)
        (tmp_path / "mine.py").write_text(code, encoding="utf-8")
        done = CliRunner().invoke(main, ["check", f"mine.py:{name}", "--json"])
        report = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        return done.exit_code, [code for one in report.get("explanations", ()) for code in one["codes"]], done.output

    return checked


OTHER_BASE = ("BASE = None", "BASE = 10000.0")
ONE_BEHIND = ("BEHIND = 0", "BEHIND = 1")


FAULTS = {
    "Rotary": {OTHER_BASE: "another-base"},
    "rope": {OTHER_BASE: "another-base"},
    "Attention": {OTHER_BASE: "layer-rotation"},
    "Model": {OTHER_BASE: "layer-rotation", ONE_BEHIND: "decode-positions"},
    "Engine": {OTHER_BASE: "layer-rotation", ONE_BEHIND: "decode-positions"},
    "Stepping": {OTHER_BASE: "layer-rotation", ONE_BEHIND: "decode-positions"},
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_a_config_builds_is_named_by_the_first_command_and_sound_without_the_fault(told, name):
    pytest.importorskip("torch")
    status, codes, output = told(name)
    assert (status, codes) == (0, []), output
    for edit, code in FAULTS[name].items():
        status, codes, output = told(name, edit)
        assert (status, codes) == (1, [code]), output


IN_ONE = """
import json
from pathlib import Path
import torch
from torch import nn

HERE = Path(__file__).parent
BASE, SCALE, BEHIND = 500000.0, 1.0, 0

class Model(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads, width = cfg.heads, cfg.wide
        self.embed = nn.Embedding(97, width)
        linear = lambda: nn.ModuleDict({name: nn.Linear(width, width, bias=False) for name in "qkvo"})
        self.layers = nn.ModuleList(linear() for _ in range(cfg.layers))
        self.head = nn.Linear(width, 97, bias=False)

    def rotated(self, x, at):
        angles = at[:, None] * SCALE / BASE ** (torch.arange(0, x.shape[-1], 2) / x.shape[-1])
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

    @torch.no_grad()
    def forward(self, input_ids, cache=None):
        past = 0 if cache is None else cache[0][0].shape[2]
        at = torch.arange(past, past + input_ids.shape[1]) - BEHIND * bool(past)
        x, kept = self.embed(input_ids), []
        for number, layer in enumerate(self.layers):
            q, k, v = (layer[name](x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for name in "qkv")
            q, k = self.rotated(q, at), self.rotated(k, at)
            if cache is not None:
                k, v = (torch.cat(each, 2) for each in zip(cache[number], (k, v)))
            kept.append((k, v))
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
            weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
            x = x + layer["o"]((weights @ v).transpose(1, 2).flatten(2))
        return self.head(x), x, kept

class Settings:
    def __init__(self):
        found = json.loads((HERE / "config.json").read_text())
        self.heads, self.wide, self.layers = (
            found[name] for name in ("num_attention_heads", "hidden_size", "num_hidden_layers")
        )

def load_model():
    torch.manual_seed(0)
    model = Model(Settings())
    for each in model.parameters():
        nn.init.normal_(each, std=0.3)
    return model.eval()

class Context:
    def __init__(self, weights):
        self.weights, self.cache = weights, None

    def decode(self, tokens):
        logits, _, self.cache = self.weights(torch.as_tensor(tokens)[None], self.cache)
        return logits[0]

def generate(model, draft, ids, n):
    cache, new = None, ids
    found = []
    for _ in range(n):
        logits, _, cache = model(new, cache)
        new = logits[:, -1:].argmax(-1)
        found.append(new)
    return torch.cat(found, 1), len(found)
"""


def test_layers_that_one_forward_pass_computes_are_checked_beside_the_config(told, cases):
    pytest.importorskip("torch")
    edits = {
        ("BASE, SCALE, BEHIND = 500000.0", "BASE, SCALE, BEHIND = 10000.0"): "layer-rotation",
        ("500000.0, 1.0", "500000.0, 2.0"): "layer-rotation",
        ("1.0, 0", "1.0, 1"): "decode-positions",
    }
    for name in ("load_model", "Model", "Context"):
        with cases(name):
            assert told(name, code=IN_ONE)[:2] == (0, [])
            for edit, code in edits.items():
                assert told(name, edit, code=IN_ONE)[:2] == (1, [code]), (name, edit)
    with cases("generate"):
        assert told("generate", code=IN_ONE)[:2] == (0, [])
        assert told("generate", ("1.0, 0", "1.0, 1"), code=IN_ONE)[0] == 1


def test_a_model_is_loaded_by_the_one_file_beside_that_only_defines_it(told, tmp_path):
    pytest.importorskip("torch")
    told("Model")
    (tmp_path / "models.py").write_text(
        "import json\nfrom mine import Model, Sizes, loud\n\ndef load_model():\n"
        "    return loud(Model(Sizes(32, 4, 2, 64)))\n",
        encoding="utf-8",
    )
    (tmp_path / "train.py").write_text("def load_model():\n    return None\n\nraise SystemExit(3)\n", encoding="utf-8")
    stepping = MODEL[MODEL.index("class Stepping:") : MODEL.index("def generate(")]
    engine = f"import torch\n\n{stepping.replace('model: Model', 'model').replace('loud(model)', 'model')}"
    (tmp_path / "serving.py").write_text(engine, encoding="utf-8")
    done = CliRunner().invoke(main, ["check", "serving.py:Stepping", "--json"])
    assert (done.exit_code, json.loads(done.stdout)["kind"]) == (0, "generation"), done.output
    (tmp_path / "more.py").write_text("def load_model():\n    return None\n", encoding="utf-8")
    done = CliRunner().invoke(main, ["check", "serving.py:Stepping", "--json"])
    assert "missing 1 required positional argument: 'model'" in done.output


def test_an_engine_that_a_named_config_builds_is_checked_as_a_model(told):
    pytest.importorskip("torch")
    told("generate")
    done = CliRunner().invoke(main, ["check", "mine.py:Engine", "--like", "config.json", "--json"])
    assert (done.exit_code, json.loads(done.stdout)["kind"]) == (0, "generation")


def test_a_program_is_given_the_folder_of_its_model(told):
    pytest.importorskip("torch")
    status, _, output = told("generate")
    assert status == 0, output


def test_a_config_of_a_large_model_is_cut_to_what_can_be_drawn(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    large = {**CONFIG, "vocab_size": 4_000_000, "num_hidden_layers": 20_000, "pad_token_id": 2_000_000}
    (tmp_path / "config.json").write_text(json.dumps(large), encoding="utf-8")
    from clockhands.testing.built_subjects import cut_of

    assert cut_of(tmp_path / "config.json") == "6,100 of 20,000 layers and 1,024 of 4,000,000 tokens"
    wide = {**large, "hidden_size": 65_536}
    (tmp_path / "config.json").write_text(json.dumps(wide), encoding="utf-8")
    (tmp_path / "mine.py").write_text(MODEL, encoding="utf-8")
    done = CliRunner().invoke(main, ["check", "mine.py:Model"])
    assert done.exit_code == 2
    assert "which is too many to draw" in done.output


def test_a_class_that_cannot_be_built_says_what_it_raised(told):
    pytest.importorskip("torch")
    status, _, output = told("Attention", ("config.num_attention_heads", "config.number_of_ears"))
    assert status == 2
    assert "has no 'number_of_ears'" in output or "no attribute 'number_of_ears'" in output
    assert "def built(): return Attention(...)" in output


def test_an_encoding_of_ones_own_beside_a_config_is_checked_by_its_laws(told):
    code = """
class Mine:
    def __init__(self, heads):
        self.heads = heads
    def bias(self, q_positions, k_positions, heads):
        return -abs(q_positions[:, None] - k_positions[None])[None].repeat(heads, 0) * 0.1
"""
    status, _, output = told("Mine", code=code)
    assert status == 0, output
    assert '"kind": "encoding"' in output


NUMBERS = """
import torch
class Numbers:
    def __init__(self, config, step=STEP):
        self.step, self.image = step, config["image_token_id"]
    def get_rope_index(self, input_ids, image_grid_thw=None, attention_mask=None):
        rows = torch.cumsum(torch.ones_like(input_ids), 1) - 1
        return rows.expand(3, -1, -1) * self.step
    def other(self, x):
        return x
"""


def test_a_method_of_a_class_is_checked_on_an_object_of_it(tmp_path, monkeypatch, cases):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"image_token_id": 7}), encoding="utf-8")
    (tmp_path / "mine.py").write_text(NUMBERS.replace("STEP", "1"), encoding="utf-8")
    for name in ("Numbers.get_rope_index", "Numbers"):
        with cases(name):
            done = CliRunner().invoke(main, ["check", f"mine.py:{name}", "--like", "qwen2_vl:image=7"])
            assert done.exit_code == 1, done.output
            assert "image-as-text" in done.output
    done = CliRunner().invoke(main, ["check", "mine.py:Numbers"])
    assert done.exit_code == 2
    assert "Name the method or function that handles positions, as in mine.py:Numbers.get_rope_index" in " ".join(
        done.output.split()
    )
