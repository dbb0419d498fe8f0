"""Programs whose names say nothing of positions: where their queries and keys are is measured inside."""

import pytest

from clockhands.testing import CannotCheck, check_generation

torch = pytest.importorskip("torch")

VOCABULARY, HEADS, CHANNELS, LAYERS = 61, 2, 16, 2
WIDTH = HEADS * CHANNELS


class Reader(torch.nn.Module):
    """A causal model with rotated queries and keys; the cache of a text is a list of two tensors for each layer."""

    def __init__(self, seed=0):
        super().__init__()
        draw = torch.Generator().manual_seed(seed)

        def weights(*shape):
            return torch.nn.Parameter(2 * torch.randn(*shape, generator=draw) / shape[0] ** 0.5)

        self.words = torch.nn.Parameter(torch.randn(VOCABULARY, WIDTH, generator=draw))
        self.mixes = torch.nn.ParameterList(weights(WIDTH, 3 * WIDTH) for _ in range(LAYERS))
        self.outs = torch.nn.ParameterList(weights(WIDTH, WIDTH) for _ in range(LAYERS))

    def turned(self, x, first):
        angles = (first + torch.arange(x.shape[2]))[:, None] * 100.0 ** (-torch.arange(0, CHANNELS, 2) / CHANNELS)
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1).to(x.dtype)

    def forward(self, words, kept, first, asks=None):
        """Logits; ``first`` is where the first key of the call is, and ``asks`` its query, if that is elsewhere."""
        x = torch.nn.functional.embedding(words, self.words)
        for layer, (mix, out) in enumerate(zip(self.mixes, self.outs, strict=True)):
            q, k, v = (
                (torch.nn.functional.rms_norm(x, (WIDTH,)) @ mix)
                .unflatten(-1, (3, HEADS, CHANNELS))
                .permute(2, 0, 3, 1, 4)
            )
            q, k = self.turned(q, first if asks is None else asks), self.turned(k, first)
            if len(kept) > layer:
                k, v = (torch.cat([old, new], 2) for old, new in zip(kept[layer], (k, v), strict=True))
            kept[layer : layer + 1] = [(k, v)]
            seen = torch.ones(k.shape[2], k.shape[2], dtype=torch.bool).tril()[-q.shape[2] :]
            x = x + torch.nn.functional.scaled_dot_product_attention(q, k, v, seen).transpose(1, 2).flatten(2) @ out
        return x @ self.words.T


MODEL = Reader()


def size_of(kept):
    return kept[0][0].shape[2] if kept else 0


def program(*, piece=64, first=lambda size, _: size, asks=None):
    """Reads a prompt in pieces and then token by token; ``first`` says where a call begins."""

    def generate(prompt, max_new_tokens):
        kept, new = [], []
        waiting = list(prompt)
        with torch.no_grad():
            while len(new) < max_new_tokens:
                part, waiting = waiting[:piece], waiting[piece:]
                size = size_of(kept)
                logits = MODEL(torch.tensor([part]), kept, first(size, part), asks and asks(size, part))
                if not waiting:
                    new.append(int(logits[0, -1].argmax()))
                    waiting = new[-1:]
        return new

    return generate


def drafted(trimmed):
    """Tokens of a draft of three, of which the model keeps its own; ``trimmed`` rows too many are taken back."""
    draft = Reader()
    with torch.no_grad():
        for each in draft.parameters():
            each.add_(0.1 * each.std() * torch.randn(each.shape, generator=torch.Generator().manual_seed(5)))

    def read(model, words, kept):
        return model(torch.tensor([words]), kept, size_of(kept))[0].argmax(-1).tolist()

    def cut(kept, size):
        kept[:] = [tuple(each[:, :, :size] for each in pair) for pair in kept]

    def generate(prompt, max_new_tokens):
        main, side, new = [], [], []
        with torch.no_grad():
            new.append(read(MODEL, list(prompt), main)[-1])
            read(draft, list(prompt), side)
            while len(new) < max_new_tokens:
                guesses = new[-1:]
                for _ in range(3):
                    guesses.append(read(draft, guesses[-1:], side)[-1])
                right = read(MODEL, guesses, main)
                kept = next((at for at in range(3) if guesses[at + 1] != right[at]), 3)
                new += right[: kept + 1]
                cut(main, len(prompt) + len(new) - 1)
                wrong = 3 - kept
                if wrong:
                    cut(side, size_of(side) - max(wrong - 1, 0) - (trimmed if wrong > 1 else 0))
                else:
                    read(draft, guesses[-1:], side)
        return new[:max_new_tokens]

    return generate


def checked(generate):
    return check_generation(generate, raises=False, vocabulary=VOCABULARY)


def warmed(prompt, max_new_tokens):
    """Reads its prompt once before, as engines do that warm up."""
    with torch.no_grad():
        MODEL(torch.tensor([prompt]), [], 0)
    return program()(prompt, max_new_tokens)


def cut_by_one(prompt, max_new_tokens):
    """Reads the last token of its prompt twice: the row of the first time is taken out of the cache."""
    kept, new, words = [], [], list(prompt)
    with torch.no_grad():
        MODEL(torch.tensor([words]), kept, 0)
        kept[:] = [tuple(each[:, :, :-1] for each in pair) for pair in kept]
        words = words[-1:]
        for _ in range(max_new_tokens):
            new.append(int(MODEL(torch.tensor([words]), kept, size_of(kept))[0, -1].argmax()))
            words = new[-1:]
    return new


def looking(prompt, max_new_tokens):
    """Reads no row of a table first, as where a cache is made with room and cut at its size, 0."""
    assert MODEL.words[:0].shape[0] == 0
    return program()(prompt, max_new_tokens)


def test_sound_programs_pass(cases):
    sound = {"whole": program(), "in pieces": program(piece=4), "drafted": drafted(0)}
    sound |= {"warmed": warmed, "cut by one": cut_by_one, "no row": looking}
    for name, generate in sound.items():
        with cases(name):
            report = checked(generate)
            assert report.sound, str(report)


WRONG = {
    "late": (program(first=lambda size, part: size + 3 * (len(part) == 1 and size > 0)), "decode-positions",
             "at positions 12, 13, 14, … instead of 9, 10, 11, … (3 too high)"),
    "restarts": (program(piece=4, first=lambda size, part: size * (len(part) == 1)), "chunk-restarts", "every chunk"),
    "queries": (program(asks=lambda *_: 0), "queries-restart", "queries of every chunk"),
    "drafts": (drafted(2), "decode-positions", "in model 2 of the 2 that read the text, the queries"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_inside_is_named(name):
    generate, code, words = WRONG[name]
    report = checked(generate)
    assert report.codes == {code}, str(report)
    assert words in report.explanations[0].message


def test_queries_that_depend_on_more_than_a_token_are_not_called_displaced():
    """Layers that read hidden states of an earlier call, as drafts do: where a query is elsewhere, it says nothing."""

    def generate(prompt, max_new_tokens):
        kept, new, words = [], [], list(prompt)
        with torch.no_grad():
            for _ in range(max_new_tokens):
                before = MODEL.words.detach().clone()
                MODEL.words.data += 0.5 * len(new) * MODEL.words.std()
                logits = MODEL(torch.tensor([words]), kept, size_of(kept))
                MODEL.words.data = before
                new.append(int(logits[0, -1].argmax()))
                words = new[-1:]
        return new

    report = checked(generate)
    assert not report.sound
    assert not report.explanations
    assert "the fault is in the calls with a cache" in str(report)


class Stateful(torch.nn.Module):
    """A model that is not called itself: it reads a prompt and goes on by a token, and keeps the cache."""

    def __init__(self, behind=0):
        super().__init__()
        self.reader, self.behind, self.kept = MODEL, behind, []

    def forward(self, input_ids, batch):
        """Logits [tokens, vocabulary] of one text, whose cache the batch holds."""
        size = size_of(batch.kept)
        return self.reader(input_ids[None], batch.kept, size - self.behind * (size > 0))[0]

    def extend(self, input_ids):
        self.kept = []
        with torch.no_grad():
            return self(torch.as_tensor(input_ids), self)

    def decode(self, token):
        with torch.no_grad():
            return self(torch.tensor([token]), self)[0]


def test_a_module_that_is_called_by_methods_of_its_own_is_checked_by_them():
    report = check_generation(Stateful(), raises=False)
    assert report.sound, str(report)
    assert "one token at a time" in report.experiments
    report = check_generation(Stateful(behind=2), raises=False)
    assert report.codes == {"decode-positions"}, str(report)
    assert "(2 too low)" in report.explanations[0].message


def test_functions_of_one_text_without_an_axis_of_texts_are_checked(cases):
    def of(behind):
        def forward(input_ids, past_key_values=None):
            kept = [] if past_key_values is None else list(past_key_values)
            first = size_of(kept) - behind * (past_key_values is not None)
            with torch.no_grad():
                return MODEL(input_ids[None], kept, first)[0], kept

        return forward

    with cases("sound"):
        report = check_generation(of(0), raises=False)
        assert report.sound, str(report)
        assert "with other texts" in report.experiments
    with cases("two behind"):
        assert check_generation(of(2), raises=False).codes == {"decode-positions"}


def test_engines_whose_steps_return_logits_are_asked_for_the_likeliest_token():
    class Server:
        def __init__(self, behind=0):
            self.behind, self.running = behind, []

        def add(self, prompt):
            self.running.append((list(prompt), []))

        def step(self):
            said = []
            for words, kept in self.running:
                size = size_of(kept)
                with torch.no_grad():
                    said.append(MODEL(torch.tensor([words[size:]]), kept, size - self.behind * (size > 0))[0, -1])
                words.append(int(said[-1].argmax()))
            return said

    assert checked(Server()).sound
    assert checked(Server(2)).codes == {"decode-positions"}


def test_a_generate_that_needs_images_gets_none():
    def generate(input_ids, attention_mask, image_grid_thw, max_new_tokens):
        assert image_grid_thw.shape == (0, 3)
        assert attention_mask.all()
        return torch.tensor([[*row, *program()(row, max_new_tokens)] for row in input_ids.tolist()])

    report = checked(generate)
    assert report.sound, str(report)


def test_a_model_that_takes_a_text_in_one_way_alone_is_refused():
    def forward(tokens):
        if tokens.shape[1] not in {3, 16}:
            raise ValueError("the ranks have unlike parts")
        return MODEL(tokens, [], 0)

    with pytest.raises(CannotCheck, match="the ranks have unlike parts"):
        check_generation(forward)


def test_an_engine_whose_decode_takes_its_state_is_passed_it():
    class Engine:
        def prefill(self, tokens):
            kept = []
            with torch.no_grad():
                return MODEL(torch.as_tensor(tokens)[None], kept, 0)[0, -1], kept

        def decode(self, token, cache=None):
            kept = [] if cache is None else list(cache)
            with torch.no_grad():
                return MODEL(torch.as_tensor(token).reshape(1, 1), kept, size_of(kept))[0, -1], kept

    report = check_generation(Engine(), raises=False)
    assert report.sound, str(report)
    assert "one token at a time" in report.experiments


def test_rows_that_are_rounded_to_half_precision_are_not_judged():
    half = Reader(1).half()

    def generate(prompt, max_new_tokens):
        kept, new, words = [], [], list(prompt)
        with torch.no_grad():
            for _ in range(max_new_tokens):
                new.append(int(half(torch.tensor([words]), kept, size_of(kept))[0, -1].argmax()))
                words = new[-1:]
        return new

    assert "positions in its models" not in checked(generate).experiments


class PlainReader(torch.nn.Module):
    """One head over arrays without an axis of texts or of heads: ids [tokens] to logits [tokens, vocabulary]."""

    def __init__(self, slip=None):
        super().__init__()
        draw = torch.Generator().manual_seed(4)
        self.words = torch.nn.Parameter(torch.randn(VOCABULARY, WIDTH, generator=draw))
        self.mix = torch.nn.Parameter(2 * torch.randn(WIDTH, 3 * WIDTH, generator=draw) / WIDTH**0.5)
        self.slip, self.kept = slip, torch.zeros(2, 0, WIDTH)

    @staticmethod
    def turned(x, positions):
        angles = positions[..., None] * 100.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

    def states(self, x, past):
        q, k, v = (x @ self.mix).chunk(3, -1)
        at = torch.arange(len(x)) + (0 if self.slip and past else past)
        k = self.turned(k, at if self.slip == "both" else past + torch.arange(len(x)))
        keys, values = (torch.cat([old, new]) for old, new in zip(self.kept, (k, v), strict=True))
        self.kept = torch.stack([keys, values])
        seen = torch.arange(len(keys)) <= past + torch.arange(len(x))[:, None]
        scores = (self.turned(q, at) @ keys.T / WIDTH**0.5).masked_fill(~seen, float("-inf"))
        return x + torch.softmax(scores, -1) @ values

    @torch.no_grad()
    def prefill(self, ids):
        self.kept = torch.zeros(2, 0, WIDTH)
        return self.states(self.words[torch.tensor(ids)], 0) @ self.words.T

    @torch.no_grad()
    def decode(self, token):
        return (self.states(self.words[torch.tensor([token])], self.kept.shape[1]) @ self.words.T)[0]


class PlainLayer(PlainReader):
    """The same as a layer of hidden states [tokens, width], with a dict as its cache."""

    def forward(self, x, state=None):
        self.kept = torch.zeros(2, 0, WIDTH) if state is None or "rows" not in state else state["rows"]
        made = self.states(x, self.kept.shape[1])
        if state is not None:
            state["rows"] = self.kept
        return made


def test_arrays_without_an_axis_of_texts_and_heads_are_measured(cases):
    for kind in (PlainReader, PlainLayer):
        with cases(kind):
            report = check_generation(kind(), raises=False)
            assert report.sound, str(report)
            assert "one token at a time" in report.experiments
            report = check_generation(kind("both"), raises=False)
            assert report.codes == {"decode-positions"}, str(report)
    assert check_generation(PlainLayer("queries"), raises=False).codes == {"queries-restart"}


def of_several(own_places):
    """A program that pads prompts on the right; later tokens are where their text goes on, or behind the longest."""

    @torch.no_grad()
    def generate(prompts, max_new_tokens):
        sizes = torch.tensor([len(each) for each in prompts])
        most, rows = int(sizes.max()), torch.arange(len(prompts))
        ids = torch.tensor([[*each, *[0] * (most - len(each))] for each in prompts])
        room = most + max_new_tokens
        keys, values = torch.zeros(2, len(prompts), room, WIDTH)
        model, new = PlainReader(), []

        def read(ids, at, slots):
            x = model.words[ids]
            q, k, v = (x @ model.mix).chunk(3, -1)
            keys[rows[:, None], slots], values[rows[:, None], slots] = model.turned(k, at), v
            seen = torch.arange(room) <= slots[..., None]
            scores = model.turned(q, at) @ keys.transpose(1, 2) / WIDTH**0.5
            return (x + torch.softmax(scores.masked_fill(~seen, -1e9), -1) @ values) @ model.words.T

        slots = torch.arange(most).expand(len(prompts), -1)
        last = read(ids, slots, slots)[rows, sizes - 1]
        for step in range(max_new_tokens):
            new.append(last.argmax(-1))
            slots = (sizes + step)[:, None]
            last = read(new[-1][:, None], slots if own_places else torch.full_like(slots, most + step), slots)[:, 0]
        return torch.stack(new, 1).tolist()

    return generate


def test_a_batch_of_several_lengths_is_followed_inside():
    report = checked(of_several(own_places=True))
    assert report.sound, str(report)
    report = checked(of_several(own_places=False))
    assert report.codes == {"decode-positions"}, str(report)
