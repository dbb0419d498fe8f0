"""The laws of encodings without a reference: sound ones keep them, each fault breaks the law that names it."""

import dataclasses
import json
from typing import ClassVar

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.protocols import METHODS, ModelSizes, Rotates, encoding_of, methods_of
from clockhands.errors import InvalidType, InvalidValue
from clockhands.testing import CannotCheck, CheckFailed, check_encoding
from late import Late

torch = Late("torch")
RATES = 10_000.0 ** (-np.arange(8) / 8)


def turned(x, angles):
    a, b = np.split(x.astype(np.float64), 2, -1)
    return np.concatenate(
        [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)], -1
    ).astype(x.dtype)


class Rope:
    def rotate(self, q, k, positions):
        angles = positions[:, None] * RATES
        return turned(q, angles), turned(k, angles)


class Slopes:
    def bias(self, q_positions, k_positions, heads):
        away = q_positions[:, None] - k_positions
        return -(np.float32(2.0) ** -np.arange(1.0, heads + 1)[:, None, None]) * np.abs(away)


class Waves:
    def embed(self, positions, width):
        angles = positions[:, None] * 10_000.0 ** (-np.arange(width // 2) * 2 / width)
        return np.concatenate([np.sin(angles), np.cos(angles)], -1)


class HalfPrecisionPositions(Rope):
    def rotate(self, q, k, positions):
        return super().rotate(q, k, positions.astype(np.float16).astype(np.float64))


class QueriesAlone(Rope):
    def rotate(self, q, k, positions):
        return super().rotate(q, k, positions)[0], k


class OtherBaseForKeys(Rope):
    def rotate(self, q, k, positions):
        return super().rotate(q, k, positions)[0], turned(k, positions[:, None] * RATES**1.1)


class CountsFromZero(Rope):
    def rotate(self, q, k, positions):
        return super().rotate(q, k, np.arange(len(positions)))


class OneLongKey(Rope):
    def rotate(self, q, k, positions):
        q, k = super().rotate(q, k, positions)
        k[:, :, positions == 7] *= 1.5
        return q, k


class RemembersTheFirstCall(Rope):
    def __init__(self):
        self.angles = None

    def rotate(self, q, k, positions):
        if self.angles is None or len(self.angles) < len(positions):
            self.angles = positions[:, None] * RATES
        angles = self.angles[: len(positions)]
        return turned(q, angles), turned(k, angles)


class MeanOfTheBatch(Rope):
    def rotate(self, q, k, positions):
        q, k = super().rotate(q, k, positions)
        return q - 0.1 * q.mean(0, keepdims=True), k


class ChangesItsArgument(Rope):
    def rotate(self, q, k, positions):
        q[..., 0] += 0.0 if (q[..., 0] == 0).all() else 1e-3
        return super().rotate(q, k, positions)


class LogOfZero(Slopes):
    def bias(self, q_positions, k_positions, heads):
        with np.errstate(divide="ignore"):
            return np.log(k_positions.astype(np.float32)) + 0 * super().bias(q_positions, k_positions, heads)


class SeesLaterKeys(Slopes):
    def bias(self, q_positions, k_positions, heads, k=None):
        assert k is not None
        return super().bias(q_positions, k_positions, heads) + k.mean((-1, -2))[..., None, None]


class OneRowTwice(Waves):
    def embed(self, positions, width):
        return super().embed(np.minimum(positions, 500), width)


class Float64Back(Waves):
    def add(self, x, positions):
        return x + super().embed(positions, x.shape[-1])


class DocumentsShareACount(Slopes):
    def bias(self, q_positions, k_positions, heads):
        return super().bias(q_positions + len(k_positions) // 24, k_positions, heads) * len(k_positions)


class RoundedSlopes(Slopes):
    def bias(self, q_positions, k_positions, heads):
        return super().bias(q_positions.astype(np.float16).astype(np.float64), k_positions, heads)


class CoarseSlopes(Slopes):
    def bias(self, q_positions, k_positions, heads):
        return super().bias(q_positions, k_positions, heads).astype(np.float16)


class KeysOneLate(Rope):
    def rotate(self, q, k, positions):
        return super().rotate(q, k, positions)[0], super().rotate(q, k, positions + 1)[1]


BROKEN = {
    RoundedSlopes: "distance only",
    CoarseSlopes: "dtype",
    KeysOneLate: "position 0",
    HalfPrecisionPositions: "distance only",
    QueriesAlone: "distance only",
    OtherBaseForKeys: "distance only",
    CountsFromZero: "order",
    OneLongKey: "norms",
    RemembersTheFirstCall: "repeatable",
    MeanOfTheBatch: "batches",
    ChangesItsArgument: "repeatable",
    LogOfZero: "position 0",
    SeesLaterKeys: "causality",
    OneRowTwice: "order",
    Float64Back: "dtype",
    DocumentsShareACount: "packed",
}


@pytest.mark.parametrize("sound", [Rope, Slopes, Waves])
def test_sound_encodings_break_no_law(sound):
    report = check_encoding(sound())
    assert report.sound
    assert "broken" not in {law.state for law in report.laws}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda kind: kind.__name__)
def test_a_fault_breaks_the_law_that_names_it(broken):
    report = check_encoding(broken(), raises=False)
    assert BROKEN[broken] in {failure.experiment for failure in report.failures}
    with pytest.raises(CheckFailed, match=BROKEN[broken]):
        check_encoding(broken())


def law_of_casts(made):
    """The law of casts for a RoPE in PyTorch whose rates are held as ``made`` says."""
    nn = pytest.importorskip("torch").nn
    torch = nn.functional.torch

    class Held(nn.Module):
        def __init__(self):
            super().__init__()
            rates = torch.tensor(RATES, dtype=torch.float32)
            if made == "buffer":
                self.register_buffer("inv_freq", rates, persistent=False)
            elif made == "parameter":
                self.inv_freq = nn.Parameter(rates)
            else:
                self.scale = nn.Parameter(torch.ones(()))
                self.inv_freq = rates  # no tensor that a cast of the module reaches

        def rotate(self, q, k, positions):
            angles = positions[:, None] * self.inv_freq.float()
            return tuple(self.turned(each, angles).to(each.dtype) for each in (q, k))

        def turned(self, x, angles):
            a, b = x.float().chunk(2, -1)
            return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

    return next(law for law in check_encoding(Held(), raises=False).laws if law.law == "cast")


def test_a_cast_of_the_model_rounds_frequencies_that_are_held_as_a_buffer():
    assert law_of_casts("attribute").state == "holds"
    learned, held = law_of_casts("parameter"), law_of_casts("buffer")
    assert (learned.state, held.state) == ("broken by nature", "broken")
    assert "inv_freq is rounded with the model" in held.says
    assert law_of(Slopes(), "cast") == "not applicable"


def law_of(encoding, name):
    return next(law.state for law in check_encoding(encoding, raises=False).laws if law.law == name)


SPECS = [
    ch.Sinusoidal(width=64),
    ch.Rotary(head_width=16),
    ch.Rotary(head_width=16, layout="interleaved", rotated=8),
    ch.Alibi(heads=4),
    ch.preset("xpos", head_width=16),
    ch.preset("llama3.1", head_width=16),
    ch.preset("qwen2.5-yarn", head_width=16),
    ch.preset("binary", width=64),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
def test_specs_of_the_library_break_no_law(spec):
    assert check_encoding(encoding_of(spec), raises=False).failures == ()
    assert isinstance(encoding_of(ch.Rotary(8)), Rotates)


def test_what_an_encoding_says_of_itself_is_by_nature():
    class Meant(QueriesAlone):
        by_nature: ClassVar = {"distance only": "keys stay where they are"}

    law = next(law for law in check_encoding(Meant()).laws if law.law == "distance only")
    assert law.state == "broken by nature"
    assert "keys stay where they are" in law.says


def test_gradients_are_those_of_differences():
    class Learned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.slopes = torch.nn.Parameter(torch.rand(4))

        def bias(self, q_positions, k_positions, heads):
            return -self.slopes[:, None, None] * (q_positions[:, None] - k_positions).abs()

    class Detached(Learned):
        def bias(self, q_positions, k_positions, heads):
            return super().bias(q_positions, k_positions, heads).detach()

    class Doubled(Learned):
        def bias(self, q_positions, k_positions, heads):
            made = super().bias(q_positions, k_positions, heads)
            return 2 * made - made.detach()

    states = {law.law: law.state for law in check_encoding(Learned()).laws}
    assert states["gradients"] == "holds"
    for broken, says in ((Detached, "no gradient"), (Doubled, "differs from differences")):
        (failure,) = check_encoding(broken(), raises=False).failures
        assert (failure.experiment, says in failure.message) == ("gradients", True)


def test_fast_and_exact_forms_are_compared():
    class Both(Rope):
        def scores(self, q, k, q_positions, k_positions):
            angles = (q_positions[:, None] * RATES, k_positions[:, None] * RATES)
            return turned(q, angles[0]) @ np.swapaxes(turned(k, angles[1]), -1, -2) / q.shape[-1] ** 0.5

    class Apart(Both):
        def scores(self, q, k, q_positions, k_positions):
            return super().scores(q, k, q_positions, k_positions + 1)

    assert check_encoding(Both()).sound
    assert {failure.experiment for failure in check_encoding(Apart(), raises=False).failures} == {"fast equals exact"}


def test_what_depends_on_positions_by_nature_is_not_broken():
    class Fire(Slopes):
        def bias(self, q_positions, k_positions, heads):
            share = (
                np.log1p(np.abs(q_positions[:, None] - k_positions)) / np.log1p(np.maximum(64, q_positions))[:, None]
            )
            return -np.arange(1.0, heads + 1)[:, None, None] * share

    class Nothing:
        def rotate(self, q, k, positions):
            return q, k

    class NoBias:
        def bias(self, q_positions, k_positions, heads):
            return np.zeros((heads, len(q_positions), len(k_positions)))

    for kind, law in ((Fire, "distance only"), (Nothing, "order"), (NoBias, "order")):
        states = {one.law: one.state for one in check_encoding(kind()).laws}
        assert states[law] == "broken by nature", kind


def test_kinks_and_dropout_are_no_fault():
    class Kinked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.LeakyReLU(), torch.nn.Linear(16, 4))
            self.dropout = torch.nn.Dropout(0.5)

        def bias(self, q_positions, k_positions, heads, q=None, k=None):
            scores = (q @ k.transpose(-1, -2)).mean(1)[..., None]
            return self.dropout(self.mlp(scores)).permute(0, 3, 1, 2)

    for seed in range(4):
        torch.manual_seed(seed)
        assert check_encoding(Kinked(), raises=False).failures == ()


def test_noise_is_told_as_such():
    class Noise(Slopes):
        def bias(self, q_positions, k_positions, heads):
            made = super().bias(q_positions, k_positions, heads)
            return made + np.random.default_rng().standard_normal(made.shape)

    report = check_encoding(Noise(), raises=False)
    assert [failure.experiment for failure in report.failures] == ["repeatable"]
    assert {law.state for law in report.laws[1:]} == {"not applicable"}


def test_reports_are_text_and_json():
    report = check_encoding(QueriesAlone(), raises=False)
    assert str(report).startswith("QueriesAlone (rotate) breaks 1 law: distance only.")
    told = json.loads(json.dumps(report.to_dict()))
    assert {law["law"]: law["state"] for law in told["laws"]}["distance only"] == "broken"
    assert dataclasses.replace(report, subject="x").subject == "x"


def test_what_cannot_be_checked_says_why():
    class Wrong:
        def rotate(self, q, k, positions):
            return q

    with pytest.raises(CannotCheck, match="not queries and keys"):
        check_encoding(Wrong())
    with pytest.raises(InvalidType, match="method embed, add, rotate, bias or scores"):
        check_encoding(object())
    for name, value in (("cache", "token"), ("by_nature", {"distance-only": "so"})):
        with pytest.raises(InvalidValue, match=f"`{name}` must be one of"):
            check_encoding(type("Own", (Rope,), {name: value})())
    with pytest.raises(InvalidValue, match="at least 8"):
        check_encoding(Rope(), length=3)
    assert methods_of(Float64Back()) == METHODS[:2]
    assert ModelSizes(width=8).named_in(lambda width, other=1: (width, other)) == {"width": 8}
