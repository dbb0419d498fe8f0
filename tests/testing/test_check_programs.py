"""Programs that choose their tokens: `generate` functions and engines, right ones and wrong ones that are named."""

import dataclasses

import numpy as np
import pytest

from clockhands.testing import CannotCheck, check_generation
from clockhands.testing.generation import generates_text

from .small_models import VOCABULARY, SmallModel

MODEL = SmallModel("numpy", "learned")


def forward(tokens, positions, mask, cache):
    return MODEL(np.asarray(tokens), np.asarray(positions), mask, cache)


def continued(prompt, count, further=0):
    """The tokens after a prompt, those after the first at positions that are ``further`` too high."""
    size, cache, new = len(prompt), None, []
    tokens, at = np.array([prompt]), np.arange(size)[None]
    for _ in range(count):
        logits, cache = forward(tokens, at, None, cache)
        new.append(int(logits[0, -1].argmax()))
        tokens, at = np.array([new[-1:]]), np.array([[size + len(new) - 1 + further]])
    return new


def batched(ids, mask, count, how=None):
    """Tokens after prompts with pads on the left, all together."""
    keys = mask = np.asarray(mask, bool)
    if how == "pads are read":
        keys = np.ones_like(mask)
    slots = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    at = slots if how == "pads are counted" else np.maximum(mask.cumsum(-1) - 1, 0)
    tokens, cache, new = np.asarray(ids), None, []
    for step in range(count):
        logits, cache = forward(tokens, at, keys, cache)
        new.append(logits[:, -1].argmax(-1))
        tokens = new[-1][:, None]
        counted = how in {"pads are counted", "pads are counted later"}
        at = step + (slots[:, -1:] + 1 if counted else mask.sum(-1, keepdims=True))
        keys = np.concatenate([keys, np.ones((len(ids), 1), bool)], 1)
    return np.concatenate([ids, np.stack(new, 1)], 1)


class Engine:
    """Requests that are continued together, one token a step."""

    def __init__(self, counts=None, ends=False):
        self.counts, self.ends, self.running, self.served = counts, ends, {}, 0

    def add_request(self, prompt):
        self.served += 1
        self.running[self.served] = {"tokens": list(prompt), "cache": None, "read": 0}
        return self.served

    def step(self):
        said = {}
        for key, each in self.running.items():
            new, start = each["tokens"][each["read"] :], each["read"]
            if start and self.counts == "most":
                start = max(one["read"] for one in self.running.values())
            if start and self.counts == "last":
                start = next(reversed(self.running.values()))["read"]
            at = start + np.arange(len(new))[None]
            logits, each["cache"] = forward(np.array([new]), at, None, each["cache"])
            each["read"] = len(each["tokens"])
            said[key] = int(logits[0, -1].argmax())
            each["tokens"].append(said[key])
        return said


def checked(program):
    return check_generation(program, raises=False)


def generate(prompt, max_new_tokens):
    return continued(prompt, max_new_tokens)


def test_right_programs_of_several_styles_pass(cases):
    def whole(prompt_tokens, n):
        return [*prompt_tokens, *continued(prompt_tokens, n)]

    def streamed(prompt, max_new_tokens):
        yield from continued(prompt, max_new_tokens)

    def of_rows(idx, max_new_tokens, temperature=1.0, top_k=None):
        assert (temperature, top_k) == (1.0, 1)
        return np.concatenate([idx, [continued(row.tolist(), max_new_tokens) for row in idx]], 1)

    def of_texts(prompts, max_tokens=16):
        return [{"token_ids": continued(each, max_tokens)} for each in prompts]

    def with_mask(input_ids, attention_mask=None, max_new_tokens=8):
        return batched(input_ids, attention_mask, max_new_tokens)

    def in_all(prompt_ids, max_length, eos_token_id=7):
        assert eos_token_id is None
        return np.array([*prompt_ids, *continued(prompt_ids, max_length - len(prompt_ids))])

    def ending(prompt, max_new_tokens):
        new = continued(prompt, max_new_tokens)
        return new[: new.index(7) + 1] if 7 in new else new

    class Server:
        def serve(self, requests, tokens_to_generate):
            return [continued(each, tokens_to_generate) for each in requests]

    for program in (generate, whole, streamed, of_rows, of_texts, with_mask, in_all, ending, Engine(), Server()):
        with cases(getattr(program, "__name__", "engine")):
            report = checked(program)
            assert report.sound, str(report)
            assert "one token at a time" in report.experiments
            assert not {"not", "wrong"} & set(report.left_out)


def test_wrong_programs_are_named(cases):
    def decoding(prompt, max_new_tokens):
        return continued(prompt, max_new_tokens, 1)

    def padded(how):
        def generate(input_ids, attention_mask, max_new_tokens):
            return batched(input_ids, attention_mask, max_new_tokens, how)

        return generate

    wrong = {
        "decoding": (decoding, "decode-positions", "one token at a time", "instead of 9, 10 and 11"),
        "counted": (padded("pads are counted"), "padding-shifts", "texts of several lengths", "instead of 0, 1 and 2"),
        "late": (padded("pads are counted later"), "decode-positions", "texts of several lengths", "passed to"),
        "read": (padded("pads are read"), "padding-seen", "texts of several lengths", "attends to padding"),
        "most": (Engine("most"), "decode-positions", "texts of several lengths", "are passed to forward"),
        "last": (Engine("last"), "decode-positions", "texts that begin later", "are passed to forward"),
    }
    for name, (program, code, experiment, words) in wrong.items():
        with cases(name):
            report = checked(program)
            assert report.codes == {code}, str(report)
            assert experiment in {failure.experiment for failure in report.failures}
            assert words in report.explanations[0].message


def failing(prompt, max_new_tokens):
    raise RuntimeError(f"no such kernel for {len(prompt)} and {max_new_tokens}")


def drawing(prompt, max_new_tokens, draw=np.random.default_rng(0)):  # noqa: B008 - a state that stays
    return draw.integers(0, 50, max_new_tokens + 0 * len(prompt)).tolist()


def writing(prompt, max_new_tokens):
    return "words" * len(prompt) * max_new_tokens


def sampling(prompt, max_new_tokens, sampler):
    return sampler(prompt, max_new_tokens)


class Silent(Engine):
    def step(self):
        super().step()


def test_programs_and_models_are_known_by_their_names(cases):
    def model(tokens, positions, mask, cache):
        return forward(tokens, positions, mask, cache)

    def other(x, n):
        return x[:n]

    known = (generate, Engine, Engine(), model)
    for value in (*known, other, 7, np.cos):
        with cases(str(value)):
            assert generates_text(value) is (value in known)


REFUSED = [
    (failing, "failing(list of ids, number of tokens): it raised RuntimeError: no such kernel for 3 and 2"),
    (drawing, "it gave one prompt different tokens twice"),
    (writing, "it returned a value of type str, expected token ids"),
    (sampling, "sampling needs sampler, whose meaning is not known"),
    (Silent(), "1 of 1 requests got no token from step()"),
]


def test_the_output_of_a_model_may_be_a_dataclass():
    @dataclasses.dataclass
    class Output:
        outputs: np.ndarray
        cache: object

    report = check_generation(
        forward=lambda tokens, positions, mask, cache: Output(*forward(tokens, positions, mask, cache)), length=8
    )
    assert report.sound, report
    assert "one token at a time" in report.experiments


def test_a_method_that_takes_no_prompt_is_refused_with_what_to_write():
    class Engine:
        def generate(self, max_tokens=6):
            return [1] * max_tokens

    with pytest.raises(CannotCheck, match="no argument that is known to take a prompt") as refused:
        check_generation(Engine())
    assert "def generate(prompt, max_new_tokens)" in str(refused.value.hint)


def test_what_cannot_be_called_says_which_calls_were_tried(cases):
    for program, words in REFUSED:
        with cases(words):
            with pytest.raises(CannotCheck) as caught:
                checked(program)
            assert words in str(caught.value)
            assert "def generate(prompt" in str(caught.value)


def test_logits_or_tokens_of_the_last_token_alone_are_taken(cases):
    def last_logits(tokens, positions, mask, cache):
        logits, cache = forward(tokens, positions + (further if cache else 0), mask, cache)
        return logits[:, -1], cache

    def next_tokens(tokens, positions, mask, cache):
        logits, cache = last_logits(tokens, positions, mask, cache)
        return logits.argmax(-1), cache

    def all_tokens(tokens, positions, mask, cache):
        logits, cache = forward(tokens, positions + (further if cache else 0), mask, cache)
        return logits.argmax(-1), cache

    for model, further in ((last_logits, 1), (next_tokens, 1), (all_tokens, 0)):
        with cases(model.__name__):
            report = check_generation(forward=model, raises=False, length=10)
            assert report.codes == ({"decode-positions"} if further else set()), str(report)
            assert report.sound is not bool(further)
            assert ("logits" in report.left_out) is (model is not last_logits)


class Chat:
    """Keeps the text of the last request; ``leaves`` so many tokens of it that an edited prompt does not have."""

    def __init__(self, leaves=0):
        self.kept, self.leaves = [], leaves

    def generate(self, prompt, max_new_tokens):
        same = [one == other for one, other in zip(prompt, self.kept, strict=False)]
        shared = same.index(False) if False in same else len(same)
        left = self.kept[shared : shared + self.leaves] if 0 < shared < len(prompt) else []
        new = continued([*prompt[:shared], *left, *prompt[shared:]], max_new_tokens)
        self.kept = [*prompt, *new]
        return new


def test_a_prefix_that_is_kept_of_the_prompt_before_is_asked_for_again():
    assert check_generation(Chat(), vocabulary=VOCABULARY).sound
    report = check_generation(Chat(leaves=1), vocabulary=VOCABULARY, raises=False)
    assert report.codes == {"kept-prefix-wrong"}
    assert [failure.experiment for failure in report.failures] == ["an edited prompt"]


class Session:
    """Is fed arrays of ids, and counts them before it reads them: a list that it refuses has changed it."""

    def __init__(self, further=0):
        self.further, self.read, self.cache = further, 0, None

    def append(self, ids):
        start, self.read = self.read, self.read + len(ids)
        at = np.arange(start, self.read) + (self.further if start else 0)
        logits, self.cache = forward(ids.reshape(1, -1), at[None], None, self.cache)
        self.last = logits[0, -1]

    def logits(self):
        return self.last


def test_a_session_is_fed_in_the_shape_that_it_takes_alone():
    report = check_generation(Session(), vocabulary=VOCABULARY, raises=False)
    assert report.sound, str(report)
    assert not check_generation(Session(1), vocabulary=VOCABULARY, raises=False).sound
