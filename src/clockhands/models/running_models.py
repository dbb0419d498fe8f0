"""Loads models to run: a folder, a name or a GGUF file becomes a PyTorch module, and a text becomes token ids."""

import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from clockhands.configs.resolve import resolve
from clockhands.configs.targets import Opened, open_target
from clockhands.encodings.memory import available, readable
from clockhands.errors import ClockhandsError, InvalidValue, TooLarge, Unreadable
from clockhands.models.opened_modules import text_config
from clockhands.phrases import shown

# Weights are held in float32; activations, logits and what the loader holds at once are beside them.
_BYTES, _BESIDE = 4, 1.5
# A token of English text has about 4 characters; a length that is certainly enough is read.
_CHARACTERS = 12

_RUNS = "Name a folder with config.json and weights, a model in the local Hugging Face cache, or a .gguf file."


@dataclass(frozen=True, eq=False)
class RunningModel:
    """A model that runs.

    Attributes:
        name: As the caller named it, or the class of a module.
        module: In float32 and in evaluation mode.
        encode: From a text to token ids; None where there is no tokenizer.
        context: Usable positions, as its config declares them; None where it does not.
    """

    name: str
    module: nn.Module
    encode: Callable[[str], list[int]] | None
    context: int | None

    @property
    def predicts(self) -> bool:
        """Whether its outputs are logits of the next token."""
        config = getattr(self.module, "config", None)
        head = getattr(self.module, "get_output_embeddings", lambda: None)()
        # A model that was built from a config has no architecture name there.
        names = (type(self.module).__name__, *(getattr(config, "architectures", None) or ()))
        return head is not None and not any("MaskedLM" in each or "Conditional" in each for each in names)


def load(target: str, text: str | None = None, *, length: int = 0, count: int = 1) -> RunningModel:
    """Load a model with Transformers, from files on this machine; code in its folder is never executed.

    Args:
        target: A folder, a file or a name.
        text: What the model will read, if it is known: refused before the model is loaded where that cannot work.
        length: Tokens of a window of the text.
        count: Windows.

    Raises:
        InvalidValue: The context of the model is shorter than a window, or the text is too short.
        Unreadable: The target holds no model that Transformers can run, or its files cannot be loaded.
        TooLarge: The weights in float32 would not fit into the memory that is available.
    """
    _refuse_without("transformers")
    opened = open_target(target)
    if opened.path is None or opened.hub is not None or not opened.tensors:
        then = f" Download it: `{opened.hub}`." if opened.hub else ""
        raise Unreadable(f"{shown(target)} has no weights on this machine, and a probe runs the model.{then}", _RUNS)
    if opened.form == "gguf":
        _refuse_without("gguf", "accelerate")
    if text is not None:
        _refuse_beyond(resolve(opened).context, length)
        _refuse_short(text, length=length, count=count)
    _refuse_without_memory(opened)
    _refuse_kernels(opened.config, opened.config_name)
    import transformers

    from clockhands.models.installed_transformers import dtype_option

    path, options = opened.path, {"local_files_only": True, "trust_remote_code": False}
    if opened.form == "gguf":
        folder, options = path.parent, {**options, "gguf_file": path.name}
    else:
        folder = path if path.is_dir() else path.parent
    with _quiet(), _read_once():
        try:
            config = transformers.AutoConfig.from_pretrained(folder, **options)
            module = _class_of(config, transformers).from_pretrained(
                folder, config=config, **dtype_option(torch.float32), **options
            )
        except ClockhandsError:
            raise
        except Exception as error:
            raise Unreadable(f"Transformers cannot load {shown(target)}: {_first_line(error)}", _RUNS) from error
        encode = _tokenizer(folder, options, transformers)
    return RunningModel(target, module.eval(), encode, _context(module))


def _refuse_without(*packages: str) -> None:
    """Refuse before anything is loaded where a package that will be needed is missing."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        are = "are" if len(missing) > 1 else "is"
        raise Unreadable(
            f"A probe runs the model with Transformers, and {' and '.join(missing)} {are} not installed.",
            "Install what it needs with `pip install 'clockhands[probe]'`.",
        )


def _refuse_kernels(held: object, place: object) -> None:
    """Refuse a config that names the attention of a hub: Transformers would fetch and run its code."""
    if isinstance(held, Mapping):
        for key, value in held.items():
            if str(key).endswith("_implementation") and "/" in json.dumps(value, default=str):
                raise Unreadable(
                    f"{place}:{key} is {shown(value)}, code that Transformers would fetch from a hub and run.",
                    f"Take {key} out of the config: a probe runs the attention that Transformers has.",
                )
            _refuse_kernels(value, f"{place}:{key}")


def of_module(module: nn.Module, tokenizer: Any = None) -> RunningModel:
    """Wrap a module that the caller has already loaded, with its tokenizer."""
    encode = None if tokenizer is None else lambda text: list(tokenizer(text, add_special_tokens=False)["input_ids"])
    return RunningModel(type(module).__name__, module, encode, _context(module))


def runner(module: nn.Module) -> Callable[..., Any]:
    """Runs a model on token ids [1, tokens] and further arguments; encoder and decoder get the same ids."""
    if takes(module, "decoder_input_ids"):
        return lambda ids, **more: module(input_ids=ids, decoder_input_ids=ids, use_cache=False, **more)
    without = {"use_cache": False} if takes(module, "use_cache") or takes(module, "kwargs") else {}
    return lambda ids, **more: module(input_ids=ids, **without, **more)


def takes(module: nn.Module, name: str) -> bool:
    """Whether a model has an argument of this name."""
    return name in inspect.signature(module.forward).parameters


def windows_of(model: RunningModel, text: str, *, length: int, count: int) -> torch.Tensor:
    """Token ids of windows that begin at equal distances in a text, [count, length].

    Raises:
        InvalidValue: The model has no tokenizer, a window is longer than its context, or the text is too short.
    """
    if model.encode is None:
        raise InvalidValue(
            f"{shown(model.name)} has no tokenizer that can be read, so a text has no token ids.",
            "Put its tokenizer.json beside the weights.",
        )
    _refuse_beyond(model.context, length)
    part = len(text) // count
    found = []
    for number in range(count):
        start = number * part
        ids = model.encode(text[start : start + min(part, _CHARACTERS * length)])
        if len(ids) < length:
            total = len(ids) if count == 1 else math.floor(len(model.encode(text)) / count)
            raise InvalidValue(
                f"The text has {total:,} tokens for each of {count} windows, and a window has {length:,}.",
                "Give a longer text, fewer windows (--windows) or shorter ones (--length).",
            )
        found.append(ids[:length])
    return torch.tensor(found)


def _refuse_short(text: str, *, length: int, count: int) -> None:
    """Refuse a text that cannot have so many tokens, whatever the tokenizer: a token is a byte or more of it.

    A tokenizer may put one token in front of each window.

    Raises:
        InvalidValue: The text is too short.
    """
    size = len(text.encode())
    if size + count < count * length:
        raise InvalidValue(
            f"The text has {size:,} bytes, too few for {count} windows of {length:,} tokens.",
            "Give a longer text, fewer windows (--windows) or shorter ones (--length).",
        )


def _refuse_beyond(context: int | None, length: int) -> None:
    if context is not None and length > context:
        raise InvalidValue(
            f"Windows of {length:,} tokens are longer than the context of {context:,} that the model declares.",
            f"Choose --length {context} or less.",
        )


def _refuse_without_memory(opened: Opened) -> None:
    numbers = sum(math.prod(each.shape) for each in opened.tensors.values())
    needed, left = int(numbers * _BYTES * _BESIDE), available()
    if left is not None and needed > left:
        raise TooLarge(
            f"{shown(opened.target)} has {numbers:,} parameters and would take about {readable(needed)} in float32; "
            f"{readable(left)} are available.",
            "Free memory, or probe a smaller model of the same family.",
        )


def _class_of(config: Any, transformers: Any) -> Any:
    """The class that the config names, else that of a causal language model, or of a model of another kind."""
    names: Sequence[str] = getattr(config, "architectures", None) or ()
    for name in names:
        found = getattr(transformers, name, None) or _class_of_a_part(name, config)
        if found is not None:
            return found
    if names and config.model_type == "":
        raise Unreadable(
            f"The class {names[0]} is not one of Transformers {transformers.__version__}.",
            "Load the model yourself and pass it to clockhands.probe(model, ...).",
        )
    predicts = type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    return transformers.AutoModelForCausalLM if predicts else transformers.AutoModel


def _class_of_a_part(name: str, config: Any) -> Any:
    """A class that is only in the file with the code of its type, as that of a tower; None if it is not."""
    from clockhands.models.class_modules import modeling_code

    try:
        return getattr(modeling_code(config), name, None)
    except ImportError:
        return None


def _tokenizer(folder: Path, options: dict[str, Any], transformers: Any) -> Callable[[str], list[int]] | None:
    try:
        found = transformers.AutoTokenizer.from_pretrained(folder, **options)
    except Exception:  # noqa: BLE001 - a model without one is still a model; a text is refused later
        return None
    return lambda text: list(found(text, add_special_tokens=False, verbose=False)["input_ids"])


def _context(module: nn.Module) -> int | None:
    text = text_config(module)
    for key in ("max_position_embeddings", "n_positions", "max_target_positions", "seq_length"):
        found = getattr(text, key, None)
        if isinstance(found, int) and found > 0:
            return found
    return None


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0][:300] if text else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress progress bars and warnings of the loader, which would mix with the report."""
    from transformers.utils import logging

    level, shown_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown_bars:
            logging.enable_progress_bar()


@contextmanager
def _read_once() -> Iterator[None]:
    """Let Transformers read a GGUF file once: it reads the file for the config, for the tokenizer and for the weights.

    It also builds the same map of tensor names for each of 400 modules, and reads 100,000 tokens one by one from a
    memory map, which takes ten times as long as from an array. Together this is most of the loading time.
    """
    try:
        import gguf
    except ImportError:
        yield
        return
    from clockhands.models.installed_transformers import gguf_reading

    loader: Any = gguf_reading()
    if loader is None:
        yield
        return

    class SilentGGUFReader(gguf.GGUFReader):
        @property
        def data(self) -> Any:
            return self._array

        @data.setter
        def data(self, mapped: Any) -> None:
            self._array = np.asarray(mapped)

    kept = gguf.GGUFReader, gguf.get_tensor_name_map, loader.tqdm
    gguf.GGUFReader, gguf.get_tensor_name_map = cache(SilentGGUFReader), cache(gguf.get_tensor_name_map)
    loader.tqdm = lambda tensors, **_: tensors
    try:
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map, loader.tqdm = kept
