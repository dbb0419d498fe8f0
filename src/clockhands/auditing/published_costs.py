"""What is published about serving a model at longer lengths than it was trained on, each figure with its source."""

from collections.abc import Mapping
from dataclasses import dataclass

LABELS: Mapping[str, str] = {
    "read": "read in the source",
    "transcribed": "from a transcription of the paper's tables, not checked against the paper",
    "computed": "follows from its formula",
    "none": "no figure was found",
}


@dataclass(frozen=True)
class Cost:
    """One thing that is known of a way to reach further.

    Attributes:
        says: What, with the model and the data that it was measured on.
        source: Where it stands; empty where it follows from the formula, or where nothing was found.
        label: How it is known: a key of `LABELS`.
    """

    says: str
    source: str
    label: str


_PI = "Chen et al. 2023, arXiv:2306.15595"
_NTK = "bloc97 2023, NTK-aware scaled RoPE"
_YARN = "Peng et al. 2023, arXiv:2309.00071"
_LONGROPE = "Ding et al. 2024, arXiv:2402.13753"
_ALIBI = "Press et al. 2021, arXiv:2108.12409"
_KERPLE = "Chi et al. 2022, arXiv:2205.09921"
_NOPE = "Kazemnejad et al. 2023, arXiv:2305.19466"

OF_SCALINGS: Mapping[str, tuple[Cost, ...]] = {
    "linear": (
        Cost(
            "untuned, LLaMA-7B on PG19 went from 7.20 in perplexity at 2,048 positions to 16.10 at 8,192 and 112.13 at"
            " 16,384; after 1,000 steps of training it had 6.95 and 6.83",
            _PI,
            "transcribed",
        ),
        Cost("short texts pay: BoolQ fell from 76.1 to 64.7 for a model stretched to 32k", _PI, "transcribed"),
    ),
    "dynamic": (
        Cost("untuned, LLaMA2-7B on PG19 had 10.21 at 8,192 positions and 23.29 at 16,384", _LONGROPE, "transcribed"),
        Cost("it is the better without training and behind linear scaling after it", _NTK, "transcribed"),
        Cost(
            "the ladder changes as a text grows: keys cached before hold other phases than later ones",
            "",
            "computed",
        ),
    ),
    "yarn": (
        Cost(
            "Llama-2-7B stretched by 2 had 3.91, 3.35 and 6.04 in perplexity on Proof-pile at 2,048, 8,192 and 10,240"
            " positions: it ends soon past the length that it is made for",
            _YARN,
            "transcribed",
        ),
        Cost("its training took 400 and 200 steps, about 0.1 % of the first training's data", _YARN, "transcribed"),
        Cost("untuned, LLaMA2-7B on PG19 had 32.64 at 8,192 positions and 87.89 at 16,384", _LONGROPE, "transcribed"),
        Cost("most readers apply it at every length, to short texts too", "", "computed"),
    ),
    "llama3": (
        Cost(
            "Llama 3 was taken from 8K to 128K in six stages of training, on about 800 billion tokens",
            "The Llama 3 Herd of Models",
            "transcribed",
        ),
        Cost("no figure is known for a model that was not trained with it", "", "none"),
    ),
    "longrope": (
        Cost(
            "untuned with lists found by a search, LLaMA2-7B on PG19 had 9.37 at 8,192 positions and 11.34 at 16,384",
            _LONGROPE,
            "transcribed",
        ),
    ),
    "proportional": (Cost("no figure is known for a factor that the model was not trained with", "", "none"),),
}
"""Scaling to what is known of it."""

OF_KINDS: Mapping[str, tuple[Cost, ...]] = {
    "sinusoidal": (
        Cost(
            "trained at 512 positions on WikiText-103, a model with a sinusoid had 20.05 in perplexity there, 43.54 at"
            " 1,012 and 178.97 at 3,512",
            _ALIBI,
            "transcribed",
        ),
    ),
    "alibi": (
        Cost(
            "trained at 512 positions on WikiText-103, perplexity fell from 19.73 there to 18.31 at 15,512; with a"
            " window that slides by one token it was flat (17.98 at 512, 18.3 at 3,072): the gain came from fewer"
            " tokens with little context, not from the farther ones",
            _ALIBI,
            "transcribed",
        ),
    ),
    "buckets": (
        Cost(
            "trained at 512 positions on OpenWebText2, perplexity was 23.7 there, 22.5 at 4,096 and 31.4 at 16,384",
            _KERPLE,
            "read",
        ),
    ),
    "none": (
        Cost(
            "a code model of 1.3B trained at 1,024 positions held to about 1.8 times that, and failed at 2,560",
            _NOPE,
            "transcribed",
        ),
    ),
}
"""Kind of position code to what is known of it past the trained length."""
