"""What running a model costs: `audit --live` and `check_generation` of two layers, and of a whole real shape."""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers
from timing import Target

import clockhands as ch
from clockhands.testing import check_generation

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))
from packaged_model import CONFIG

# As `audit --live` reads them without a text.
WINDOWS, TOKENS = 2, 128
TWO_LAYERS = {**CONFIG, "num_hidden_layers": 2, "hidden_size": 144, "intermediate_size": 384, "vocab_size": 512}
TWO, WHOLE = 3.0, 20.0


def built(config: dict[str, object]) -> transformers.LlamaForCausalLM:
    """A model with random weights, the same in each run, in float32, large enough for positions to matter."""
    torch.manual_seed(0)
    fields = {name: value for name, value in config.items() if name not in {"architectures", "model_type"}}
    fields |= {"torch_dtype": "float32", "initializer_range": 0.3, "tie_word_embeddings": True}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**fields)).eval()


def running(repetitions: int) -> tuple[dict[str, float], list[Target]]:
    """Seconds of each once the model is loaded: of two layers the median, of the whole model one run."""
    small, whole = built(TWO_LAYERS), built(CONFIG)
    layers = CONFIG["num_hidden_layers"]
    figures = {
        "live, 2 layers": _seconds(lambda: _live(small), repetitions),
        "check_generation, 2 layers": _seconds(lambda: check_generation(small), repetitions),
        f"live, SmolLM2's {layers} layers": _seconds(lambda: _live(whole), 1),
    }
    limits = (TWO, TWO, WHOLE)
    return figures, [Target(what, figures[what], limit, "s") for what, limit in zip(figures, limits, strict=True)]


def _live(model: transformers.LlamaForCausalLM) -> None:
    ids = np.random.default_rng(0).integers(0, model.config.vocab_size, (WINDOWS, TOKENS))
    found = ch.probe(model, ids=ids, measure=["live"])["live"]
    assert found.answers[0].startswith("The declared positions are in effect"), found


def _seconds(call: Callable[[], object], repetitions: int) -> float:
    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
