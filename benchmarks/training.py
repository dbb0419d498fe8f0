"""Training the lab's model with each position code, beside the same model written by hand without clockhands.

What is written by hand is what people write: rotary by a cache and ``rotate_half``, ALiBi as a mask made beforehand,
T5 as an embedding of a matrix of buckets, each made once a step for all layers. Both models have the same weights, and
no figure is taken before they gave the same loss, before and after some steps.

Time is that of the processor, on one thread: a core that others use too does not count as slow.
"""

import math
import tempfile
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from time import process_time
from typing import Any
from unittest import mock

import torch
from rich.console import Console
from rich.table import Table
from timing import Target, interleaved
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

from clockhands.encodings import rotary
from clockhands.lab._model import EPSILON, Transformer
from clockhands.lab._model_codes import ModelCode
from clockhands.lab._training import TrialRun
from clockhands.lab.arms import setting
from clockhands.lab.store import Key
from clockhands.lab.study import Arm, Model, parse, read

LAYERS, WIDTH, HEADS, VOCABULARY = 2, 64, 4, 256
HEAD_WIDTH = WIDTH // HEADS

# Sequences and tokens of a step, and steps at a time: short, and yet most of it with its own numbers in the cache.
SIZES = ((32, 64, 2), (4, 1_024, 1))

STUDY = """
question = "How long does a step take?"
[model]
layers = 2
width = 64
heads = 4
[training]
length = 64
sequences = 32
duration = "1_000_000 steps"
checkpoint = 1_000_000
[tasks.copy]
kind = "copy"
vocabulary = 256
[arms.rotary]
code = { type = "Rotary" }
"""
# The same encoding as a file of a user's own, written as most people write it.
OWN = """
import torch

class Rope:
    def __init__(self, head_width):
        self.rates = 10000.0 ** (-torch.arange(0, head_width, 2) / head_width)

    def rotate(self, q, k, positions):
        angles = positions[:, None] * self.rates
        return self.turned(q, angles), self.turned(k, angles)

    def turned(self, x, angles):
        a, b = x.chunk(2, -1)
        cosine, sine = angles.cos(), angles.sin()
        return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)
"""
OF_BUILT_IN = 0.9


# The model by hand


def causal(length: int) -> torch.Tensor:
    return torch.full((length, length), -math.inf).triu(1)


def apart(length: int) -> torch.Tensor:
    at = torch.arange(length)
    return (at[:, None] - at).clamp(min=0)


class NoneByHand(nn.Module):
    """What a code does in a model: something added to the tokens, heads turned, and a mask."""

    def __init__(self, length: int) -> None:
        super().__init__()

    def embed(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def turn(self, heads: torch.Tensor) -> torch.Tensor:
        return heads

    def mask(self) -> torch.Tensor | None:
        return None


class SinusoidalByHand(NoneByHand):
    def __init__(self, length: int) -> None:
        super().__init__(length)
        phases = torch.arange(length)[:, None] * torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10_000.0) / WIDTH))
        table = torch.zeros(length, WIDTH)
        table[:, 0::2], table[:, 1::2] = phases.sin(), phases.cos()
        self.register_buffer("table", table)

    def embed(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table[: x.shape[1]]


class LearnedByHand(NoneByHand):
    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.weight = nn.Embedding(length, WIDTH)
        self.register_buffer("at", torch.arange(length))

    def embed(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight(self.at[: x.shape[1]])


class RotaryByHand(NoneByHand):
    def __init__(self, length: int) -> None:
        super().__init__(length)
        phases = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH)
        phases = torch.cat([phases, phases], -1)
        self.register_buffer("cosine", phases.cos())
        self.register_buffer("sine", phases.sin())

    def turn(self, heads: torch.Tensor) -> torch.Tensor:
        length = heads.shape[-2]
        first, second = heads.chunk(2, -1)
        return heads * self.cosine[:length] + torch.cat([-second, first], -1) * self.sine[:length]


class AlibiByHand(NoneByHand):
    def __init__(self, length: int) -> None:
        super().__init__(length)
        slopes = torch.tensor([2 ** (-8 * (head + 1) / HEADS) for head in range(HEADS)])
        self.register_buffer("bias", (causal(length) - slopes[:, None, None] * apart(length))[None])

    def mask(self) -> torch.Tensor:
        return self.bias


class T5ByHand(NoneByHand):
    def __init__(self, length: int) -> None:
        super().__init__(length)
        away, exact, buckets, furthest = apart(length), 16, 32, 128
        beyond = exact + (
            torch.log(away.clamp(min=1) / exact) / math.log(furthest / exact) * (buckets - exact)
        ).long().clamp(max=buckets - exact - 1)
        self.register_buffer("buckets", torch.where(away < exact, away, beyond))
        self.register_buffer("later", causal(length))
        self.table = nn.Embedding(buckets, HEADS)

    def mask(self) -> torch.Tensor:
        return self.table(self.buckets).permute(2, 0, 1)[None] + self.later


class KerpleByHand(NoneByHand):
    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.register_buffer("away", apart(length).float())
        self.register_buffer("later", causal(length))
        self.p, self.a = nn.Parameter(torch.ones(HEADS)), nn.Parameter(torch.ones(HEADS))

    def mask(self) -> torch.Tensor:
        p, a = (each.clamp(min=0.01)[:, None, None] for each in (self.p, self.a))
        return (-p * torch.log(1 + a * self.away) + self.later)[None]


class FireByHand(NoneByHand):
    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.register_buffer("away", apart(length).float())
        self.register_buffer("at", torch.arange(length).float()[:, None])
        self.register_buffer("later", causal(length))
        self.c, self.threshold = nn.Parameter(torch.tensor(0.1)), nn.Parameter(torch.tensor(512.0))
        self.network = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, HEADS))

    def mask(self) -> torch.Tensor:
        reach = torch.log((self.c * torch.maximum(self.at, self.threshold)).abs() + 1) + 1e-6
        shares = torch.log((self.c * self.away).abs() + 1) / reach
        return self.network(shares[..., None]).permute(2, 0, 1)[None] + self.later


class AttentionByHand(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, code: NoneByHand, mask: torch.Tensor | None) -> torch.Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            part.view(batch, length, HEADS, HEAD_WIDTH).transpose(1, 2) for part in self.into(x).chunk(3, -1)
        )
        query, key = code.turn(query), code.turn(key)
        seen = scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None)
        return self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))


class FeedForwardByHand(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(gelu(self.into(x)))


class BlockByHand(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(WIDTH, eps=EPSILON), AttentionByHand()
        self.feed_forward_norm, self.feed_forward = nn.LayerNorm(WIDTH, eps=EPSILON), FeedForwardByHand()

    def forward(self, x: torch.Tensor, code: NoneByHand, mask: torch.Tensor | None) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), code, mask)
        return x + self.feed_forward(self.feed_forward_norm(x))


class ByHand(nn.Module):
    def __init__(self, code: NoneByHand) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(BlockByHand() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.code = code

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.code.embed(self.embedding(tokens))
        mask = self.code.mask()
        for block in self.blocks:
            x = block(x, self.code, mask)
        return self.head(self.norm(x))


# The code of each arm as a study writes it, by hand, and what it learns there by the names that clockhands gives.
ARMS: dict[str, tuple[Any, type[NoneByHand], dict[str, str]]] = {
    "none": ("none", NoneByHand, {}),
    "sinusoidal": ({"type": "Sinusoidal"}, SinusoidalByHand, {}),
    "learned": ({"type": "Learned"}, LearnedByHand, {"weight.weight": "weight"}),
    "rotary": ({"type": "Rotary"}, RotaryByHand, {}),
    "alibi": ({"type": "Alibi"}, AlibiByHand, {}),
    "t5": ({"type": "Buckets"}, T5ByHand, {"table.weight": "table"}),
    "kerple": ({"type": "Kerple"}, KerpleByHand, {"p": "p", "a": "a"}),
    "fire": (
        {"type": "Fire"},
        FireByHand,
        {
            "c": "c",
            "threshold": "threshold",
            "network.0.weight": "w1",
            "network.0.bias": "b1",
            "network.2.weight": "w2",
            "network.2.bias": "b2",
        },
    ),
}

# How much of the speed of no code an arm must have at 1,024 tokens.
OF_NONE = {"alibi": 0.6, "t5": 0.25}
OF_BY_HAND = 0.95


def pair(arm: str, length: int) -> tuple[Transformer, ByHand]:
    """The lab's model, and the one by hand with the same weights."""
    code, by_hand, learned = ARMS[arm]
    sizes = Model(layers=LAYERS, width=WIDTH, heads=HEADS)
    plan = Arm(code=code)
    ours = Transformer(
        sizes, VOCABULARY, ModelCode(setting(plan, sizes, length, length), plan, True, seed=1), causal=True, seed=1
    )
    theirs = ByHand(by_hand(length))
    state = {name: each for name, each in ours.state_dict().items() if not name.startswith("code.")}
    state |= {f"code.{name}": ours.code.module.get_parameter(named) for name, named in learned.items()}
    buffers = {name: each for name, each in theirs.state_dict().items() if name not in dict(theirs.named_parameters())}
    theirs.load_state_dict(state | buffers)
    return ours, theirs


def stepper(model: nn.Module, batches: torch.Tensor, *, clip: bool = False) -> Callable[[], torch.Tensor]:
    """One training step on the next of the batches [batches, sequences, length + 1]; it returns the loss before it.

    One batch would be known by heart soon, and processors are slow at the tiny gradients of a model that knows all.
    """
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    coming = cycle(batches)

    def step() -> torch.Tensor:
        tokens = next(coming)
        loss = cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        return loss.detach()

    return step


def same(arm: str, ours: Callable[[], torch.Tensor], theirs: Callable[[], torch.Tensor], length: int) -> None:
    """Refuse to compare models that are not the same: each of the first steps must find the same loss."""
    for number in range(4):
        losses = float(ours()), float(theirs())
        if not abs(losses[0] - losses[1]) <= 1e-4:
            raise RuntimeError(
                f"{arm} at {length} tokens, step {number}: loss {losses[0]} by clockhands and {losses[1]} by hand"
            )


def drawn(sequences: int, length: int) -> torch.Tensor:
    """Batches of tokens, the same ones for every model."""
    return torch.randint(VOCABULARY, (32, sequences, length + 1), generator=torch.Generator().manual_seed(1))


def repeated(step: Callable[[], object], times: int) -> Callable[[int], Callable[[], None]]:
    def steps() -> None:
        for _ in range(times):
            step()

    return lambda _: steps


# What is measured


def training(repetitions: int, show: Console) -> tuple[list[dict], list[Target]]:
    """Tokens a second of a step, forward, backward and AdamW, on one thread."""
    torch.set_num_threads(1)
    rows: list[dict] = []
    targets: list[Target] = [once_a_step()]
    for sequences, length, times in SIZES:
        batches = drawn(sequences, length)
        calls = {}
        for arm in ARMS:
            ours, theirs = (stepper(each, batches) for each in pair(arm, length))
            same(arm, ours, theirs, length)
            calls[f"{arm}, clockhands"], calls[f"{arm}, by hand"] = repeated(ours, times), repeated(theirs, times)
        medians = interleaved(calls, repetitions if times > 1 else max(3, repetitions // 4), clock=process_time)
        speeds = {name: sequences * length * times / seconds for name, seconds in medians.items()}
        where = f"a step of {sequences} x {length:,} tokens"
        shown = Table(title=f"{where}, 1 thread", title_justify="left")
        shown.add_column("code")
        for column in ("tokens/s", "by hand", "x by hand", "x none"):
            shown.add_column(column, justify="right")
        for arm in ARMS:
            ours, theirs = speeds[f"{arm}, clockhands"], speeds[f"{arm}, by hand"]
            of_hand, of_none = ours / theirs, ours / speeds["none, clockhands"]
            shown.add_row(arm, f"{ours:,.0f}", f"{theirs:,.0f}", f"{of_hand:.3f}", f"{of_none:.2f}")
            rows.append(
                {
                    "sequences": sequences,
                    "length": length,
                    "code": arm,
                    "tokens a second": ours,
                    "of by hand": of_hand,
                    "of none": of_none,
                }
            )
            targets.append(Target(f"{where}, {arm}: tokens a second, of by hand", of_hand, OF_BY_HAND, more=True))
            if length == SIZES[-1][1] and arm in OF_NONE:
                targets.append(Target(f"{where}, {arm}: tokens a second, of none", of_none, OF_NONE[arm], more=True))
        show.print(shown)
    rows.append(trainer(repetitions, show))
    own, target = own_encoding(repetitions, show)
    return [*rows, own], [*targets, target]


def once_a_step() -> Target:
    """How often cosine and sine are made in a step of several layers."""
    ours, _ = pair("rotary", 64)
    step = stepper(ours, drawn(2, 64))
    with mock.patch.object(rotary, "cos_sin", wraps=rotary.cos_sin) as made:
        step()
    return Target(f"rotary, {LAYERS} layers: times that cosine and sine are made in a step", made.call_count, 1)


def own_encoding(repetitions: int, show: Console) -> tuple[dict, Target]:
    """A step of the lab's trainer with RoPE from a user's file, beside the same with the built-in one."""
    with tempfile.TemporaryDirectory() as folder:
        study, trials = Path(folder) / "study.toml", {}
        study.write_text(STUDY + '[arms.own]\ncode = { python = "my_codes.py:Rope" }\n')
        study.with_name("my_codes.py").write_text(OWN)
        for arm in ("rotary", "own"):
            trials[arm] = TrialRun(read(study), Key("copy", arm, 1), Path(folder) / arm, "cpu", lambda _: None)
        losses = {arm: trial._train_step() for arm, trial in trials.items()}
        if abs(losses["own"] - losses["rotary"]) > 1e-4:
            raise RuntimeError(f"two encodings that should be the same have the losses {losses}")
        calls = {arm: repeated(trial._train_step, 2) for arm, trial in trials.items()}
        medians = interleaved(calls, repetitions, clock=process_time)
    ratio = medians["rotary"] / medians["own"]
    show.print(f"the lab's trainer, RoPE from a user's file: {ratio:.3f} of the speed of the built-in one")
    target = Target("the lab's trainer, RoPE from a user's file: speed, of built in", ratio, OF_BUILT_IN, more=True)
    return {"code": "RoPE from a user's file", "of built in": ratio}, target


def trainer(repetitions: int, show: Console) -> dict:
    """A step of the lab's trainer, which draws its batch, clips and records, beside a bare loop over one batch."""
    length, sequences, times = 64, 32, 2
    with tempfile.TemporaryDirectory() as folder:
        trial = TrialRun(parse(STUDY), Key("copy", "rotary", 1), Path(folder) / "state", "cpu", lambda _: None)
        bare = stepper(pair("rotary", length)[0], drawn(sequences, length), clip=True)

        def train() -> None:
            torch.use_deterministic_algorithms(True)  # as a trial does
            trial._train_step()
            torch.use_deterministic_algorithms(False)

        calls = {"trainer": repeated(train, times), "bare": repeated(bare, times)}
        medians = interleaved(calls, repetitions, clock=process_time)
    ratio = medians["bare"] / medians["trainer"]
    show.print(
        f"the lab's trainer, rotary, {sequences} x {length} tokens: {medians['trainer'] / times * 1e3:.2f} ms a step, "
        f"{ratio:.3f} of the speed of a bare loop that clips too"
    )
    return {"code": "rotary, the trainer", "of a bare loop": ratio}
