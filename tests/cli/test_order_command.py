"""`clockhands order`: what it prints, what programs read, what it refuses."""

import json
import re
from dataclasses import replace
from inspect import signature

import pytest

import clockhands.measures.adding.drawn_tokens
import clockhands.measures.order
from clockhands.measures.adding.drawn_tokens import adding_measured
from clockhands.measures.order.permuting import FIGURES, order


@pytest.fixture(scope="module")
def measured():
    """What two orders do, as the command asks for it, and what adding does to one width and one small vocabulary."""
    return order(), adding_measured((16,), (1_000,))


@pytest.fixture
def document(measured, monkeypatch):
    """What is measured of the sentence of the command is kept; another seed is said of the same figures."""
    found, _ = measured
    measure = clockhands.measures.order.order
    monkeypatch.setattr(
        clockhands.measures.order,
        "order",
        lambda text, other, *, seed: (
            replace(found, seed=seed) if text == "dog bites man" else measure(text, other, seed=seed)
        ),
    )
    return found.to_dict()


@pytest.fixture
def few(measured, monkeypatch):
    """What adding does, for one width and one small vocabulary: the whole takes seconds on a busy machine."""
    _, figures = measured
    monkeypatch.setattr(
        clockhands.measures.adding.drawn_tokens, "adding_measured", lambda seed: replace(figures, seed=seed)
    )
    return figures


def test_the_json_is_the_functions(run, document, few):
    done = run("order", "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out) == json.loads(json.dumps({"schema": 1, **document, "adding": few.to_dict()}))
    # What it asks for by itself takes seconds.
    widths, vocabularies, *_ = (each.default for each in signature(adding_measured).parameters.values())
    assert ({16, 512} <= {*widths}, {1_000, 50_000} <= {*vocabularies}) == (True, True)
    assert {*few.to_dict()} == {"seed", "positions", "found", "pairs", "angles", "terms", "offsets"}
    told = json.loads(run("order", "--json", "--seed", "4").out)
    assert (told["seed"], told["adding"]["seed"]) == (4, 4)


def test_the_text_says_what_was_found(run, document, few):
    done = run("order")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "dog bites man / man bites dog"
    assert max(map(len, lines)) <= 80
    text = " ".join(done.out.split())
    codes = document["codes"]
    assert (
        f"with {len(codes) - 3} of {len(codes) - 1} encodings it can. ALiBi symmetric and KERPLE power symmetric"
        in text
    )
    assert text.count("is rounding") == sum(figure["apart"] is False for figure in document["without"].values())
    for name, figure in document["without"].items():
        words = f"{figure['median']:.2g} " + ("is rounding" if figure["apart"] is False else "apart")
        assert words in text, (name, FIGURES[name])
    for sentence in few.sentences():
        assert sentence in text
    for code in codes:
        line = next(each for each in lines if each.startswith(f"  {code['name']:25}"))
        figures = (code["swapped"], code["another"], code["causal_last"], code["alike"])
        shown = ["same" if figure["apart"] is False else f"{figure['median']:.2g}" for figure in figures]
        assert re.sub(r"\(.*?\)", "", line[27:]).split() == shown


@pytest.mark.usefixtures("few")
def test_other_words_and_another_seed(run):
    """And a word that would move the cursor of a terminal."""
    done = run("order", "--text", "the \x1b[2Jcat sat", "--other", "\x1b[2Jcat the sat", "--seed", "3")
    assert done.code == 0
    assert done.out.startswith("the \\x1b[2Jcat sat / \\x1b[2Jcat the sat\n")
    assert "\x1b[2J" not in done.out
    assert "random with seed 3" in " ".join(done.out.split())
    # No mirror image, so every code tells the two apart.
    count = re.search(r"with (\d+) of (\d+) encodings it can", " ".join(done.out.split()))
    assert count is not None
    assert count[1] == count[2]
    assert "cannot: one sentence" not in " ".join(done.out.split())


def test_what_is_not_told_is_said():
    found = order("a b c", networks=1)
    codes = [
        replace(code, swapped=replace(code.swapped, apart=None)) if code.member.name == "counter" else code
        for code in found.codes
    ]
    sentence = "For counter the result is unclear: rounding could explain the whole difference."
    unsure = replace(found, codes=tuple(codes))
    assert sentence in unsure.verdict
    assert f"with {len(codes) - 4} of {len(codes) - 1} encodings" in unsure.verdict
    assert sentence not in found.verdict
