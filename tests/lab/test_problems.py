"""Tasks of published suites: each by an independent slow formula, its bounds by enumeration or simulation."""

from itertools import product

import numpy as np
import pytest

from best_answers import best_by_bag
from clockhands.errors import InvalidValue
from clockhands.lab.arms import check as check_arms
from clockhands.lab.arms import setting, sizes_of
from clockhands.lab.problems import PROBLEMS, RETRIEVALS, Algorithm, Neighbour, Retrieval
from clockhands.lab.store import Key
from clockhands.lab.study import parse
from clockhands.lab.tasks import IGNORED


def rng(seed=0):
    return np.random.default_rng(seed)


def rows(batch):
    """Each sequence of a batch with its targets, as lists."""
    return zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True)


def said(problem, question, symbols):
    """The answer to a question, from its definition."""
    if problem == "addition":
        one, other = (
            sum(digit * symbols**place for place, digit in enumerate(part))
            for part in (question[: len(question) // 2], question[len(question) // 2 + 1 :])
        )
        return [(one + other) // symbols**place % symbols for place in range(len(question) // 2 + 1)]
    return {
        "copy": question, "reversal": question[::-1], "sorting": sorted(question),
        "parity": [sum(question) % 2], "counting": [question.count(0) % symbols],
    }[problem]  # fmt: skip


def questions(problem, size, symbols):
    """All questions of a size; all are equally likely."""
    if problem == "addition":
        for drawn in product(range(symbols), repeat=2 * size):
            yield [*drawn[:size], symbols + 1, *drawn[size:]]
    else:
        yield from map(list, product(range(2 if problem == "parity" else symbols), repeat=size))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_algorithms_are_answered_after_a_separator(problem):
    task, sizes = Algorithm(problem, symbols=4), set()
    largest = next(task.evaluation(rng(), 20, 23))
    for batch in (task.batch(rng(), 400, 23), largest, Algorithm(problem, 4, varied=False).batch(rng(), 5, 23)):
        for tokens, targets in rows(batch):
            start = tokens.index(4)
            question, answer = tokens[:start], said(problem, tokens[:start], 4)
            end = start + len(answer)
            assert targets == [IGNORED] * start + answer + [IGNORED] * (23 - end)
            assert tokens[start + 1 :] == answer[:-1] + [6] * (23 - end)
            sizes.add(len(question))
    each, more = PROBLEMS[problem].tokens
    most = max(sizes)
    assert len(sizes) == (23 - more) // each  # every size from 1 on
    assert all(tokens.index(4) == most for tokens in largest.tokens.tolist())
    assert task.least_length == each + more


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(("size", "symbols"), [(1, 2), (3, 2), (3, 3), (4, 2), (2, 4)])
def test_the_bounds_of_algorithms_are_those_of_all_questions(problem, size, symbols):
    task = Algorithm(problem, symbols)
    each, more = PROBLEMS[problem].tokens
    blind, by_bag = [], []
    for question in questions(problem, size, symbols):
        answer = said(problem, question, symbols)
        for place, token in enumerate(answer):
            blind.append((place, token))
            by_bag.append(((place, tuple(sorted([*question, symbols, *answer[:place]]))), token))
    found = task.bounds(each * size + more)
    assert found["chance_accuracy"] == pytest.approx(best_by_bag(blind), abs=1e-12)
    assert found.get("bag_accuracy", 1.0) == 1.0
    if "bag_accuracy" in found:
        assert best_by_bag(by_bag) == 1.0


def test_bounds_of_long_questions_are_finite():
    for problem in PROBLEMS:
        assert 0 < Algorithm(problem).bounds(9_000)["chance_accuracy"] < 1


@pytest.mark.parametrize("problem", RETRIEVALS)
@pytest.mark.parametrize("steps", [1, 3])
def test_answers_are_values_of_the_sequence(problem, steps):
    task = Retrieval(problem, pairs=3, keys=15, values=5, fillers=2, steps=steps)
    for length in (task.least_length, 40):
        batch = task.batch(rng(), 200, length)
        for (tokens, targets), places in zip(rows(batch), batch.places.tolist(), strict=True):
            asked = [at for at, target in enumerate(targets) if target != IGNORED]
            if problem == "mqar":
                told = dict(zip(tokens[:6:2], tokens[1:6:2], strict=True))
                assert sorted(tokens[at] for at in asked) == sorted(told)
                assert all(targets[at] == told[tokens[at]] for at in asked)
            elif problem == "needle":
                start = tokens.index(tokens[asked[0]]) + 1
                assert targets[asked[0] :] == tokens[start : start + steps]
                assert tokens[asked[0] + 1 :] == targets[asked[0] : -1]
                assert len({token for token in tokens if token < 15}) == 3
            else:
                name, hops = tokens[-1], 0
                while name < 15:  # a name is defined before it is used, so the first time it comes is its definition
                    name, hops = tokens[tokens.index(name) + 1], hops + 1
                assert (name, hops) == (targets[-1], 1 + steps)
            assert all(tokens[at - places[at]] == targets[at] for at in asked)
            assert [place != IGNORED for place in places] == [target != IGNORED for target in targets]


def test_keys_of_mqar_come_back_soon_more_often():
    batch = Retrieval(pairs=4, values=2).batch(rng(), 4_000, 72)
    first = np.where(batch.targets != IGNORED, np.arange(72), 72).min(1) - 8
    # The nearest of 64 places has the weight 1 of sum of place^-0.99; 4 draws without replacement.
    weights = np.arange(1, 65) ** -0.99
    drawn = rng(1)
    wanted = np.mean([drawn.choice(64, 4, replace=False, p=weights / weights.sum()).min() == 0 for _ in range(4_000)])
    assert (first == 0).mean() == pytest.approx(wanted, abs=5 * (2 * 0.25 / 4_000) ** 0.5)


@pytest.mark.parametrize("problem", RETRIEVALS)
def test_the_bag_of_retrieval_is_the_commonest_value(problem):
    task = Retrieval(problem, pairs=4, values=3, steps=1)
    batch = task.batch(rng(), 4_000, 64)
    right = []
    for tokens, targets in rows(batch):
        asked = [at for at, target in enumerate(targets) if target != IGNORED]
        seen = [token for token in tokens if 32 <= token < 35]
        right += [targets[at] == max(range(32, 35), key=seen.count) for at in asked]
    found = task.bounds(64)
    error = (0.25 / 4_000) ** 0.5
    assert np.mean(right) == pytest.approx(found["bag_accuracy"], abs=5 * error)
    assert found["chance_accuracy"] == 1 / 3
    assert "bag_accuracy" not in Retrieval("needle", steps=2).bounds(64)


def test_a_neighbour_is_rows_above_and_columns_to_the_left():
    task = Neighbour(vocabulary=5, down=1, right=2)
    batch = task.batch(rng(), 4, 16)
    for tokens, targets in rows(batch):
        for at in range(16):
            row, column = divmod(at, 4)
            there = row >= 1 and column >= 2
            assert targets[at] == (tokens[(row - 1) * 4 + column - 2] if there else IGNORED)
    assert task.least_length == 9
    assert task.axes == 2
    assert not task.causal
    seen = [((cells[3], tuple(sorted(cells))), cells[0]) for cells in product(range(2), repeat=4)]
    assert best_by_bag(seen) == pytest.approx(Neighbour(2).bounds(4)["bag_accuracy"], abs=1e-12)
    assert "bag_accuracy" not in Neighbour().bounds(33**2)


STUDY = """
question = "?"
seeds = [0]

[tasks.one]
kind = "{kind}"
training = {{ length = 16, sequences = 2, duration = "2 steps" }}
evaluation = {{ lengths = [16, 36], sequences = 2 }}

[arms.one]
code = {code}
"""
TWO = '{ type = "Rotary", axes = [0, 0, 0, 0, 1, 1, 1, 1], spacing = "per-axis" }'


def test_an_image_gives_rows_and_columns_to_two_axes_and_a_text_refuses_them():
    torch = pytest.importorskip("torch")
    from clockhands.lab._model_codes import ModelCode, check

    study = parse(STUDY.format(kind="neighbour", code=TWO))
    check_arms(study)
    check(study)
    with pytest.raises(InvalidValue, match="has 2 axes, but the sequences of this task are lines of tokens"):
        check_arms(parse(STUDY.format(kind="copy", code=TWO)))
    arm, model = study.arms["one"], sizes_of(study, Key("one", "one", 0))
    code = ModelCode(setting(arm, model, 16, 36, causal=False), arm, False, 0)
    x = torch.zeros(1, model.heads, 36, model.head_width)
    x[..., 0], x[..., 4] = 1, 1
    (ready, *_) = code.prepare(2, 36, None, x)
    turned, _ = ready.turn(x, x)
    half = model.head_width // 2
    for at in (0, 7, 35):
        row, column = divmod(at, 6)
        for pair, angle in ((0, row), (4, column)):
            assert float(turned[0, 0, at, pair]) == pytest.approx(np.cos(angle), abs=1e-6)
            assert float(turned[0, 0, at, pair + half]) == pytest.approx(np.sin(angle), abs=1e-6)
