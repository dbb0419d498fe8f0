"""The encodings of `examples/encodings`: short files that go through every door, held to their papers' equations."""

import json
from pathlib import Path

import numpy as np
import pytest

import clockhands as ch
from clockhands.auditing.sampled_encodings import own_properties
from clockhands.cli import main
from clockhands.configs.own_encodings import named_encoding
from clockhands.encodings.protocols import ModelSizes
from clockhands.errors import InvalidType, Unreadable
from clockhands.lab.study import read
from clockhands.testing import check_encoding
from late import Late

torch = Late("torch")
FOLDER = Path(__file__).parents[1] / "examples" / "encodings"
NAMES = {
    "contextual_cope": "Cope",
    "forgetting_fox": "Fox",
    "leaky_rerope": "ReRope",
    "learned_frequencies": "LearnedFrequencies",
    "path_products": "Path",
    "polar_pope": "Pope",
    "resonance_rope": "ResonanceRope",
    "self_extend": "SelfExtend",
}
SIZES = ModelSizes(width=8, heads=2, head_width=4)
SEQ = 7


def made(name, **fields):
    torch.manual_seed(0)
    return named_encoding(f"{FOLDER / name}.py:{NAMES[name]}", **fields).made(SIZES)


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


def test_every_example_is_short_and_named_here():
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
])  # fmt: skip
def test_distances_past_a_window_are_others(name, distance):
    fields = {"window": 2, "leak": 0.5} if name == "leaky_rerope" else {"window": 2, "group": 2}
    q, k, _, at = drawn()

    def score(i, j):
        angles = distance(i, j) * torch.tensor([1.0, 0.01])
        (a, b), (c, d) = q[0, 0, i].chunk(2), k[0, 0, j].chunk(2)
        return ((a * c + b * d) * angles.cos() + (a * d - b * c) * angles.sin()).sum() / 2

    close(made(name, **fields).scores(q, k, at, at)[0, 0], by_hand(score))


def test_resonance_has_whole_wavelengths():
    rates = made("resonance_rope").rates
    assert np.allclose(2 * np.pi / rates, [6, 628])


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
