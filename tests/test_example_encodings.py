"""The encodings of `examples/encodings`: short files that go through every door, held to their papers' equations."""

import ast
import dataclasses
import json
from itertools import product as product_of
from pathlib import Path

import numpy as np
import pytest

import clockhands as ch
from clockhands.auditing.sampled_encodings import own_properties
from clockhands.cli import main
from clockhands.configs.own_encodings import named_encoding
from clockhands.encodings.protocols import ModelSizes
from clockhands.encodings.scaling import LongRope
from clockhands.errors import InvalidType, Unreadable
from clockhands.lab.study import read
from clockhands.testing import check_encoding
from late import Late

torch = Late("torch")
FOLDER = Path(__file__).parents[1] / "examples" / "encodings"
NAMES = {
    path.stem: each.name
    for path in sorted(FOLDER.glob("*.py"))
    for each in ast.parse(path.read_text(encoding="utf-8")).body
    if isinstance(each, ast.ClassDef)
}
SIZES = ModelSizes(width=8, heads=2, head_width=4)
SEQ = 7


def made(name, sizes=SIZES, **fields):
    torch.manual_seed(0)
    return named_encoding(f"{FOLDER / name}.py:{NAMES[name]}", **fields).made(sizes)


def drawn():
    generator = torch.Generator().manual_seed(1)
    q, k = torch.randn(2, 1, 2, SEQ, 4, generator=generator)
    return q, k, torch.randn(1, SEQ, 8, generator=generator), torch.arange(SEQ)


def by_hand(score):
    """A score of one head for each query and an earlier key, by a function of their places."""
    return {(i, j): float(torch.as_tensor(score(i, j)).detach()) for i in range(SEQ) for j in range(i + 1)}


def close(got, wanted):
    for (i, j), number in wanted.items():
        assert float(got[i, j].detach()) == pytest.approx(number, abs=2e-5), (i, j)


def test_every_example_is_short_and_has_one_class():
    assert sorted(NAMES) == sorted(path.stem for path in FOLDER.glob("*.py"))
    assert all(len(path.read_text(encoding="utf-8").splitlines()) <= 60 for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_examples_break_no_law_and_are_measured(name):
    pytest.importorskip("torch")
    named = named_encoding(f"{FOLDER / name}.py:{NAMES[name]}")
    assert check_encoding(named.made(ModelSizes()), raises=False).failures == ()
    (code,) = own_properties(named, 128).codes
    assert code.properties is not None
    json.dumps(code.to_dict())


def test_path_is_a_product_of_reflections():
    path = made("path_products")
    q, k, x, at = drawn()
    ways = path.ways(x).view(SEQ, 2, 4)[:, 0]
    ways = ways / ways.norm(dim=-1, keepdim=True)
    beta = 2 * torch.sigmoid(path.strengths(x))[0, :, 0]
    reflections = [torch.eye(4) - b * torch.outer(w, w) for b, w in zip(beta, ways, strict=True)]

    def score(i, j):
        between = torch.eye(4)
        for t in range(j + 1, i + 1):
            between = between @ reflections[t]
        return k[0, 0, j] @ between @ q[0, 0, i] / 2

    close(path.scores(q, k, at, at, x=x)[0, 0], by_hand(score))


def test_cope_counts_gates_and_interpolates_rows():
    cope = made("contextual_cope", rows=3)
    q, k, _, at = drawn()

    def score(i, j):
        gates = torch.sigmoid(q[0, 0, i] @ k[0, 0, j : i + 1].T / 2)
        place = min(float(gates.sum()), 2.0)
        low, part = int(place), place - int(place)
        rows = q[0, 0, i] @ cope.rows
        return rows[low] * (1 - part) + (rows[low + 1] * part if part else 0)

    close(cope.bias(at, at, 2, q=q, k=k)[0, 0], by_hand(score))


def test_fox_adds_the_logarithms_of_gates_between():
    fox = made("forgetting_fox")
    _, _, x, at = drawn()
    kept = torch.sigmoid(fox.gates(x))[0, :, 1].log()
    close(fox.bias(at, at, 2, x=x)[0, 1], by_hand(lambda i, j: kept[j + 1 : i + 1].sum()))


def test_pope_is_lengths_times_cosines():
    pope = made("polar_pope")
    q, k, _, at = drawn()
    with torch.no_grad():
        pope.delta.uniform_(-3, 0)
    turned_q, turned_k = pope.rotate(q, k, at)

    def score(i, j):
        lengths = torch.nn.functional.softplus(q[0, 1, i]) * torch.nn.functional.softplus(k[0, 1, j])
        rates = torch.tensor([10_000.0 ** (-c / 4) for c in range(4)])
        return (lengths * ((j - i) * rates + pope.delta[1, 0]).cos()).sum()

    close(turned_q[0, 1] @ turned_k[0, 1].T, by_hand(score))


@pytest.mark.parametrize(("name", "distance"), [
    ("leaky_rerope", lambda i, j: min(i - j, 2) + 0.5 * max(0, i - j - 2)),
    ("self_extend", lambda i, j: i - j if i - j < 2 else i // 2 - j // 2 + 2 - 1),
    ("dual_chunk", lambda i, j: (i % 2 - j % 2, min(i % 2 + 2, 3) - j % 2, 3 - j % 2)[min(i // 2 - j // 2, 2)]),
    ("lm_infinite", lambda i, j: i - j if i - j < 3 else 3 if j < 2 else None),
])  # fmt: skip
def test_distances_past_a_window_are_others(name, distance):
    fields = {
        "leaky_rerope": {"window": 2, "leak": 0.5},
        "self_extend": {"window": 2, "group": 2},
        "dual_chunk": {"size": 3, "local": 1},
        "lm_infinite": {"window": 3, "first": 2},
    }[name]
    q, k, _, at = drawn()

    def score(i, j):
        if distance(i, j) is None:
            return float("-inf")
        angles = distance(i, j) * torch.tensor([1.0, 0.01])
        (a, b), (c, d) = q[0, 0, i].chunk(2), k[0, 0, j].chunk(2)
        return ((a * c + b * d) * angles.cos() + (a * d - b * c) * angles.sin()).sum() / 2

    encoding = made(name, **fields)
    close(encoding.scores(q, k, at, at)[0, 0], by_hand(score))
    assert check_encoding(encoding, sizes=SIZES, raises=False).failures == ()


@torch.no_grad()
def moved(encoding):
    """An encoding whose learned numbers were moved from where training begins."""
    for each in encoding.parameters():
        each.add_(0.3 * torch.randn(each.shape))
    return encoding


def product(encoding, head=0):
    """The products of rotated queries and keys of a head."""
    q, k, _, at = drawn()
    turned_q, turned_k = encoding.rotate(q, k, at)
    return turned_q[0, head] @ turned_k[0, head].T


def test_grape_turns_by_the_exponential_of_a_plane():
    grape = moved(made("grape_multiplicative"))
    q, k, _, _ = drawn()
    a, b = grape.planes[:, 1, 0].detach().double().numpy()
    # i L is Hermitian: its eigenvectors give the exponential without the closed form.
    values, vectors = np.linalg.eigh(1j * (np.outer(a, b) - np.outer(b, a)) * grape.log_rates[1].exp().item())

    def score(i, j):
        turn = (vectors * np.exp(-1j * values * (j - i))) @ vectors.conj().T
        return float(q[0, 1, i].double().numpy() @ turn.real @ k[0, 1, j].double().numpy())

    close(product(grape, 1), by_hand(score))


def test_rope_is_the_case_of_grape_with_an_axis_plane():
    grape = made("grape_multiplicative")
    with torch.no_grad():
        grape.planes.zero_()
        grape.planes[0, :, 0, 2], grape.planes[1, :, 0, 0] = 1, 1  # channels 0 and 2 are a pair of halves
    x = np.eye(4)[None, [0, 0, 2, 2]].astype(np.float32)
    wanted = ch.rotate(x, ch.Rotary(head_width=4, base=10_000), [3, 5, 3, 5])
    got, _ = grape.rotate(torch.tensor(x)[None], torch.tensor(x)[None], torch.tensor([3, 5, 3, 5]))
    assert np.allclose(got.detach()[0, 0].numpy(), wanted[0], atol=1e-6)


def test_additive_grape_is_a_unipotent_action():
    grape = moved(made("grape_additive"))
    q, k, _, at = drawn()
    way, slope = grape.ways[1] / grape.ways[1].norm(), torch.log1p(grape.strengths[1].exp()) / 2**8

    def score(i, j):  # q and k with one more channel, which is 1, and exp(n A) for a nilpotent A
        gate = torch.log1p((way @ k[0, 1, j] / 2).exp())
        nilpotent = torch.zeros(5, 5)
        nilpotent[4, :4] = k[0, 1, j] / (k[0, 1, j] @ k[0, 1, j]) * gate * slope
        wide_q, wide_k = (torch.cat([each, torch.ones(1)]) for each in (q[0, 1, i], k[0, 1, j]))
        return wide_q @ torch.matrix_exp((j - i) * nilpotent) @ wide_k - wide_q @ wide_k

    close(grape.bias(at, at, 2, k=k)[0, 1], by_hand(score))


def test_cable_is_fox_with_gates_of_the_other_sign():
    cable, fox = moved(made("cable_biases")), made("forgetting_fox")
    _, _, x, at = drawn()
    sums = [torch.log1p(cable.lengths(each).exp())[1] for each in x[0]]
    close(cable.bias(at, at, 2, x=x)[0, 1], by_hand(lambda i, j: -sum(sums[j + 1 : i + 1], torch.zeros(()))))
    with torch.no_grad():
        fox.gates.weight.copy_(-cable.lengths.weight)
        fox.gates.bias.copy_(-cable.lengths.bias)
    assert torch.allclose(fox.bias(at, at, 2, x=x), cable.bias(at, at, 2, x=x), atol=1e-6)


def test_clipped_rope_fades_the_lowest_frequencies():
    rates = (
        named_encoding(f"{FOLDER / 'clipped_cope'}.py:{NAMES['clipped_cope']}").made(ModelSizes(head_width=128)).rates
    )
    wanted = [10_000 ** (-pair / 64) for pair in range(64)]
    for step in range(20):  # 20 of 64, as in the authors' code
        wanted[44 + step] *= np.cos(np.pi * step / 38) ** 2
    assert np.allclose(rates, wanted, rtol=1e-12, atol=1e-18)


def test_fope_sums_the_frequencies_that_complete_a_turn():
    fope = made("fourier_fope", ModelSizes(heads=2, head_width=8, length=100))
    kept = [1.0, 0.1]  # 0.01 and 0.001 complete no turn in 100 tokens
    assert fope.rates == pytest.approx(kept)
    x = torch.randn(1, 2, SEQ, 8, generator=torch.Generator().manual_seed(1))
    got, _ = fope.rotate(x, x, torch.arange(SEQ))
    for p, pair in product_of(range(SEQ), range(4)):
        cosine, sine = 1.0, 1.0
        if pair < 2:
            cosine = sum(np.cos(p * kept[row]) * float(fope.cosines[1, row, pair]) for row in range(2))
            sine = sum(np.sin(p * kept[row]) * float(fope.sines[1, row, pair]) for row in range(2))
        turned = complex(x[0, 1, p, pair], x[0, 1, p, pair + 4]) * complex(cosine, sine)
        assert complex(got[0, 1, p, pair], got[0, 1, p, pair + 4]) == pytest.approx(turned, abs=1e-5)


def test_mixed_axes_are_those_of_timm():
    """The numbers are those of RotaryEmbeddingMixed and apply_rot_embed_cat of timm 1.0.31, on a grid of 2 x 3."""
    mixed = made("mixed_axes", ModelSizes(heads=2, head_width=8), side=3)
    lengths = mixed.rates.norm(dim=0)
    assert torch.allclose(lengths, 10.0 ** -torch.tensor([0.0, 0.5, 0.0, 0.5]).expand(2, 4))
    assert torch.allclose((mixed.rates[:, :, :2] * mixed.rates[:, :, 2:]).sum(0), torch.zeros(2, 2), atol=1e-6)
    columns = [[1.0, -0.5, 0.25, 0.75], [0.5, 1.0, -1.0, 0.125]]
    rows = [[0.25, 1.0, -0.75, 0.5], [-1.0, 0.5, 0.125, 1.0]]
    with torch.no_grad():
        mixed.rates.copy_(torch.tensor([columns, rows]))
    x = torch.arange(1.0, 97).reshape(1, 2, 6, 8) / 16
    got, _ = mixed.rotate(x, x, torch.arange(6))
    assert got[0, 0, 4].tolist() == pytest.approx(
        [-1.36623991, 2.62734079, 0.84100437, 3.02330399, 3.16804528, 0.97558701, -1.60386324, 3.10145593], abs=2e-6
    )
    assert got[0, 1, 5].tolist() == pytest.approx(
        [5.5625, 5.625, -7.99771881, -1.20276523, 3.86421514, -7.30538273, -3.82168102, 7.52653027], abs=4e-6
    )


def test_liere_turns_by_the_exponential_of_two_axes():
    liere = moved(made("liere_generators", side=3))
    q, k, _, _ = drawn()
    upper = np.triu(liere.upper[:, 1].detach().double().numpy(), 1)
    skew = upper - upper.swapaxes(-1, -2)

    def turned(x, p):
        values, vectors = np.linalg.eigh(1j * (p % 3 * skew[0] + p // 3 * skew[1]))
        return ((vectors * np.exp(-1j * values)) @ vectors.conj().T).real @ x.double().numpy()

    close(product(liere, 1), by_hand(lambda i, j: turned(q[0, 1, i], i) @ turned(k[0, 1, j], j)))


def test_harope_has_a_matrix_before_the_rotation_and_keeps_products():
    harope = moved(made("head_adaptive_harope")).double()
    q, k, _, _ = (each.double() for each in drawn())
    left, right = (each[1] - each[1].T for each in (harope.left, harope.right))
    u, v = torch.matrix_exp(left / 2), torch.matrix_exp(right / 2)
    matrix = (u @ torch.diag(torch.log1p(harope.sizes[1].exp()) + 1e-6) @ v.T).detach()
    inverse = torch.linalg.inv(matrix)

    def score(i, j):
        (a, b), (c, d) = (matrix @ q[0, 1, i]).chunk(2), (inverse.T @ k[0, 1, j]).chunk(2)
        angles = (i - j) * torch.tensor([1.0, 0.01], dtype=torch.float64)
        return ((a * c + b * d) * angles.cos() + (a * d - b * c) * angles.sin()).sum()

    got = product(harope, 1)
    close(got, by_hand(score))
    assert torch.allclose(got.diagonal().double(), (q[0, 1] * k[0, 1]).sum(-1), atol=1e-5)


def test_resonance_has_whole_wavelengths():
    rates = made("resonance_rope").rates
    assert np.allclose(2 * np.pi / rates, [6, 628])


def test_longrope2_and_irope_are_specs_of_the_package():
    """LongRoPE2: RoPE as it was up to the trained length, and beyond it one searched divisor for each pair.

    Shang et al. 2025, arXiv:2502.20082: rescaled RoPE for long sequences, the original RoPE for short ones. Numbers as
    in the authors' code, microsoft/LongRoPE, rope/longrope.py: ``1 / (divisor base^(2 i / d))``, magnitude ``su``.
    """
    divisors, original, factor = (1.0, 1.1, 3.5, 8.25), 4_096, 16
    scaling = LongRope((1.0,) * 4, divisors, original, factor, short_mscale=1.0)
    code = ch.Rotary(head_width=8, base=500_000, scaling=scaling)
    rates = [500_000 ** (-2 * pair / 8) for pair in range(4)]
    beyond = [rate / divisor for rate, divisor in zip(rates, divisors, strict=True)]
    magnitudes = {4_096: 1.0, 4_097: np.sqrt(1 + np.log(factor) / np.log(original))}
    for length, wanted in {4_096: rates, 4_097: beyond}.items():
        turned = ch.rotate(np.eye(8)[None, :4], dataclasses.replace(code, length=length), [1] * 4)[0]
        turned = turned[range(4), range(4)] + 1j * turned[range(4), range(4, 8)]
        assert np.allclose(turned, magnitudes[length] * np.exp(1j * np.array(wanted)), rtol=1e-6)
    model = ch.audit(SCOUT)
    kinds = {layer.layers: (layer.kind, layer.score_scale is not None) for layer in model.layers}
    preset = ch.preset("llama4-scout")
    assert [preset.layer(layer) is None for layer in range(8)] == [False, False, False, True] * 2
    assert kinds == {"0-2,4-6": ("rotary", False), "3,7": ("none", True)}


SCOUT = {
    "model_type": "llama4_text", "hidden_size": 5120, "num_attention_heads": 40, "num_hidden_layers": 8,
    "head_dim": 128, "num_key_value_heads": 8, "max_position_embeddings": 10_485_760, "rope_theta": 500_000.0,
    "rope_scaling": {
        "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
}  # fmt: skip


def test_a_file_goes_through_the_command_line(tmp_path, capsys, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_codes.py").write_text((FOLDER / "learned_frequencies.py").read_text(encoding="utf-8"))
    target = "my_codes.py:LearnedFrequencies:base=500"

    def told(*words):
        with pytest.raises(SystemExit) as ended:
            main([*words, target])
        return ended.value.code, capsys.readouterr().out

    code, text = told("check", "--json")
    assert (code, json.loads(text)["sound"]) == (0, True)
    code, text = told("properties", "--json")
    assert (code, json.loads(text)["codes"][0]["spec"]["type"]) == (0, "Rotary")
    code, _ = told("explore", "--out", "page.html", "llama3")
    assert code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "does not read its code: what is shown was sampled by calls" in page


SAMPLED = """
import numpy as np


class Bias:
    def bias(self, q_positions, k_positions, heads):
        away = q_positions[:, None] - k_positions
        return -(2.0 ** -np.arange(1.0, heads + 1))[:, None, None] * self.of(away)


class Tail(Bias):
    def of(self, away):
        return np.abs(away).clip(max=40)


class Masked(Bias):
    def of(self, away):
        return np.where(away < 8, 0.0, np.inf)


class Grow(Bias):
    def of(self, away):
        return away**2.0


class Rope:
    def rotate(self, q, k, positions):
        return self.turned(q, positions), self.turned(k, positions)

    def turned(self, x, positions):
        angles = positions[:, None] * 10000.0 ** (-np.arange(8) / 8)
        a, b = np.split(x.astype(np.float64), 2, -1)
        turned = a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)
        return np.concatenate(turned, -1).astype(x.dtype)


class StopsAt511(Rope):
    def turned(self, x, positions):
        return super().turned(x, positions.clip(max=511))


class KeysStand(Rope):
    def rotate(self, q, k, positions):
        return self.turned(q, positions), k
"""


def test_only_what_was_compared_is_recognised(tmp_path):
    (tmp_path / "sampled.py").write_text(SAMPLED, encoding="utf-8")

    def code(name):
        return own_properties(named_encoding(f"{tmp_path / 'sampled.py'}:{name}")).codes[0]

    assert type(code("Rope").spec).__name__ == "Rotary"
    for name in ("StopsAt511", "KeysStand", "Tail", "Grow"):
        found = code(name)
        assert found.sampled == "a number for each distance, sampled", name
        states = {each: one.state for each, one in found.properties}
        assert states["bounded"] == states["longer_texts"] == states["edges"] == "not computed"
        assert not any("table" in one.says for _, one in found.properties if one.state == "measured")
    with pytest.raises(Unreadable, match="masks some keys"):
        code("Masked")


def test_the_study_of_the_guide_is_valid(tmp_path):
    from test_documents import save_files

    guide = FOLDER.parents[1] / "docs" / "guides" / "your-own-encoding.md"
    save_files(guide, tmp_path)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["mine.toml", "my_codes.py"]
    assert list(read(tmp_path / "mine.toml").arms) == ["rope", "alibi", "mine"]


def test_an_own_encoding_is_refused_where_it_has_no_name():
    own = made("learned_frequencies")
    with pytest.raises(InvalidType, match="is an encoding of your own, which has no JSON") as refused:
        ch.to_json(own)
    assert "path/file.py:NAME" in refused.value.hint
    with pytest.raises(InvalidType, match="takes a position encoding"):
        ch.properties(own, 64)
    with pytest.raises(Unreadable, match="is code, and an audit runs no code"):
        ch.audit(f"{FOLDER / 'learned_frequencies.py'}:LearnedFrequencies")
