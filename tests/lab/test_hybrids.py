"""What models of now have in the lab: layers that differ, scales of scores, sinks, latent heads, norms, bfloat16."""

import math
from pathlib import Path

import pytest

from clockhands.encodings import rotary
from clockhands.errors import ClockhandsError
from clockhands.lab import study as studies
from clockhands.lab.store import Key
from late import Late

torch, training, models = Late("torch"), Late("clockhands.lab._training"), Late("clockhands.lab._model")
codes, arms, running = Late("clockhands.lab._model_codes"), Late("clockhands.lab.arms"), Late("clockhands.lab.running")

OWN = Path(__file__).with_name("my_codes.py").read_text(encoding="utf-8")
STUDY = """\
question = "What do hybrids do?"
seeds = [0]
model = {{ layers = 4, width = 16, heads = 2 {model} }}
training = {{ length = 8, sequences = 4, duration = "4 steps", learning_rate = 0.01, warmup = 1 {training} }}
evaluation = {{ lengths = [8, 16], sequences = 4 }}
tasks.copy = {{ kind = "copy" }}
[arms.arm]
{arm}
"""
ROTARY = 'code = { type = "Rotary" }'
HYBRID = 'code = { codes = [{ type = "Rotary" }, "none"], pattern = [0, 0, 0, 1] }'


@pytest.fixture
def trial(tmp_path: Path):
    """A trial of one arm."""
    (tmp_path / "my_codes.py").write_text(OWN, encoding="utf-8")

    def made(arm: str = ROTARY, *, model: str = "", training: str = ""):
        (tmp_path / "mine.toml").write_text(STUDY.format(arm=arm, model=model, training=training), encoding="utf-8")
        study = studies.read(tmp_path / "mine.toml")
        running.check(study, running.Options())
        return Late("clockhands.lab._training").TrialRun(
            study, Key("copy", "arm", 0), tmp_path / "state.pt", "cpu", lambda _: None
        )

    return made


def stepped(trial, steps: int = 2) -> list[float]:
    return [trial._train_step() for _ in range(steps)]


def test_layers_have_their_own_windows_chunks_and_scales_by_hand(trial):
    """Llama 4's iRoPE in small: RoPE in chunks, and no encoding with a temperature in the last layer."""
    scale = '["none", "none", "none", { type = "FloorLogScale", original = 2, first = 1 }]'
    made = trial(f"{HYBRID}\nwindow = [0, 3, 0, 0]\nchunk = [4, 4, 4, 0]\nscores = {scale}").model.double()
    tokens = torch.randint(0, 16, (2, 9))
    place, weights = torch.arange(9).double(), dict(made.named_parameters())
    away, chunks = place[:, None] - place, place // 4
    angles = place[:, None] * 10_000.0 ** (-torch.arange(0, 8, 2).double() / 8)

    def rotated(x):
        one, two = x.chunk(2, -1)
        return torch.cat([one * angles.cos() - two * angles.sin(), two * angles.cos() + one * angles.sin()], -1)

    x = weights["embedding.weight"][tokens]
    for layer, block in enumerate(made.blocks):
        query, key, value = (
            part.unflatten(-1, (2, 8)).transpose(1, 2)
            for part in block.attention.into(block.attention_norm(x)).split(16, -1)
        )
        hidden = away < 0
        if layer < 3:
            query, key = rotated(query), rotated(key)
            hidden = hidden | (chunks[:, None] != chunks) | (away >= 3 if layer == 1 else hidden)
        else:
            query = query * (1 + 0.1 * torch.log1p((place + 1) // 2))[:, None]
        weight = (query @ key.mT / math.sqrt(8)).masked_fill(hidden, -math.inf).softmax(-1)
        x = x + block.attention.out((weight @ value).transpose(1, 2).flatten(2))
        x = x + block.feed_forward(block.feed_forward_norm(x))
    torch.testing.assert_close(made(tokens), made.head(made.norm(x)), atol=1e-6, rtol=0)


def test_norms_stand_before_after_or_nowhere(trial):
    tokens = torch.randint(0, 16, (2, 8))
    layer, pre, post, none = (trial(model=f', norm = "{norm}"').model for norm in ("layer", "pre", "post", "none"))
    assert torch.equal(layer(tokens), pre(tokens))
    for made in (post, none):
        x = made.embedding(tokens)
        for block, ready in zip(made.blocks, made.code.prepare(4, 8, None, x), strict=True):
            x = block.attention_norm(x + block.attention(x, ready, 1.0))
            x = block.feed_forward_norm(x + block.feed_forward(x))
        torch.testing.assert_close(made(tokens), made.head(x))
    assert not [name for name, _ in none.named_parameters() if "norm" in name]
    assert stepped(trial(model=', norm = "post"')) != stepped(trial(model=', norm = "none"'))


def test_a_sink_is_seen_by_every_query_through_windows_and_chunks(trial):
    made = trial(f"{ROTARY}\nwindow = [2, 0]\nchunk = [0, 3]", model=", sinks = 1").model
    asked = made.code.prepare(4, 9, None, torch.zeros(1, 9, 16))
    place = torch.arange(9) - 1
    for layer, near in ((0, place[:, None] - place < 2), (1, place[:, None] // 3 == place // 3)):
        seen = (near | (place < 0)) & (place[:, None] >= place)
        assert torch.equal(asked[layer].mask.isfinite(), seen)
    tokens = torch.randint(0, 16, (2, 8))
    before = made(tokens)
    assert before.shape == (2, 8, made.embedding.num_embeddings)
    with torch.no_grad():
        made.sinks.normal_()
    assert ((made(tokens) - before).abs().amax(-1) > 1e-4).all()
    sinks = trial(model=", sinks = 2")
    stepped(sinks)
    assert sinks.model.sinks.grad.abs().sum() > 0


def test_latent_attention_rotates_one_part_that_all_heads_share(trial):
    arm = 'code = { type = "Rotary", rotated = 4, part = "last" }'
    attention = trial(arm, model=", latent = 6, shared_channels = 4").model.blocks[0].attention
    x = torch.randn(2, 8, 16)
    query, key, value = attention.projected(x)
    assert query.shape == key.shape == value.shape == (2, 2, 8, 8)
    assert torch.equal(key[:, 0, :, 4:], key[:, 1, :, 4:])
    assert not torch.equal(key[:, 0, :, :4], key[:, 1, :, :4])
    spread = torch.cat([key[..., :4], value], -1).transpose(1, 2).flatten(2).flatten(0, 1)
    assert torch.linalg.matrix_rank(spread).item() == 6
    stepped(trial(arm, model=", latent = 6, shared_channels = 4"))


def test_learned_frequencies_begin_as_rope_and_have_its_gradient(trial):
    spec = rotary.Rotary(8, base=100.0, layout="interleaved", part="last", rotated=4)
    learned = codes.LearnedFrequencies(spec).double()
    q = torch.randn(1, 2, 5, 8, dtype=torch.float64)
    for found, given in zip(learned.rotate(q, 2 * q, torch.arange(5)), (q, 2 * q), strict=True):
        torch.testing.assert_close(found, rotary.rotate(given, spec), atol=1e-6, rtol=0)
    rates = learned.log_rates.detach().clone().requires_grad_()

    def rotated_by(log_rates):
        learned.__dict__["_parameters"]["log_rates"] = log_rates
        return learned.rotate(q, q, torch.arange(5))[0]

    assert torch.autograd.gradcheck(rotated_by, rates)
    plain, made = trial(), trial(f'{ROTARY}\nfrequencies = "learned"')
    assert stepped(made, 1) == pytest.approx(stepped(plain, 1), rel=1e-5)
    assert made.counted["code_parameters"] == 4
    stepped(made)
    rates = made.model.code.module.layers[0].log_rates.exp()
    assert not torch.allclose(rates, torch.tensor(rotary.Rotary(8).rates), rtol=1e-3)
    hybrid = trial(f'{HYBRID}\nfrequencies = "learned"')
    assert hybrid.counted["code_parameters"] == 4
    assert stepped(hybrid, 1) == pytest.approx(stepped(trial(HYBRID), 1), rel=1e-5)


def test_an_own_encoding_is_one_of_several_codes_of_layers(trial):
    own = 'code = { codes = [{ python = "my_codes.py:Rope" }, "none"], pattern = [0, 0, 0, 1] }'
    assert stepped(trial(own)) == pytest.approx(stepped(trial(HYBRID)), rel=1e-5)
    made = trial('code = { codes = [{ type = "Rotary" }, { python = "my_codes.py:Slopes" }], pattern = [1, 0] }')
    assert made.counted["code_parameters"] == 4  # two heads in each of two layers
    ready = made.model.code.prepare(4, 8, None, torch.zeros(1, 8, 16))
    heads = torch.randn(1, 2, 8, 8)
    for each in ready:
        each.turn(heads, heads)
    one, other = made.model.code.module.codes[1].layers
    for layer, slopes in ((0, one.slopes), (2, other.slopes)):
        torch.testing.assert_close(-ready[layer].mask[0, :, -1, 0] / 7, slopes)
    assert [each.is_causal for each in ready] == [False, True, False, True]
    first = trial('code = { codes = [{ python = "my_codes.py:Added" }, "none"], pattern = [0, 1] }').model.code
    torch.testing.assert_close(first.embed(torch.zeros(1, 3, 16))[0, :, 0], torch.arange(3.0))


def test_parts_of_a_step_give_the_gradient_of_the_whole(trial):
    whole, parts = trial(), trial(training=", accumulate = 3")
    assert stepped(whole, 1) == pytest.approx(stepped(parts, 1), rel=1e-6)
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-6, rtol=1e-4)


def test_bfloat16_is_the_arithmetic_of_steps_and_evaluation(trial):
    for arm in (ROTARY, 'code = { type = "Buckets" }\nwindow = 4', HYBRID):
        whole, narrow = stepped(trial(arm)), stepped(trial(arm, training=', dtype = "bf16"'))
        assert whole == pytest.approx(narrow, rel=0.01)
        assert whole != narrow


def test_the_learning_rate_falls_from_a_step_on_and_to_a_share(trial):
    made, found = trial(training=', decay = "linear", decay_from = "50 %", decay_to = 0.2'), []
    for made.step in range(4):
        found.append(made._learning_rate() / 0.01)
    assert found == pytest.approx([1, 1, 1, 0.6])


@pytest.mark.slow
def test_a_compiled_step_computes_the_same(trial):
    arm = f"{HYBRID}\nwindow = [4, 4, 4, 0]"
    assert stepped(trial(arm)) == pytest.approx(stepped(trial(arm, training=", compile = true")), rel=1e-4)


def test_what_does_not_go_together_is_refused(trial, cases):
    for arm, model, words in (
        (f"{ROTARY}\nscores = {{ type = 'Rotary' }}", "", "`scores` must be a table with the `type` of a scale"),
        (f"{ROTARY}\nwindow = []", "", "`window` must not be empty"),
        (f"{ROTARY}\nwindow = [1, -1]", "", "window"),
        ('code = "none"\nfrequencies = "learned"', "", "the arm has no RoPE"),
        ('code = { type = "Rotary", scaling = { type = "Proportional", fraction = 0.5 } }\nfrequencies = "learned"', "",
         "or a frequency of 0"),
        (f'{ROTARY}\nfrequencies = "learned"\nat_test.yarn.scaling = {{ type = "Yarn" }}', "", "is made of fixed ones"),
        ('code = { type = "Learned", rows = 16 }', ", sinks = 1", "length 16 is evaluated after 1 sinks"),
        (f"{ROTARY}\npositions = {{ draw = 'shifted', largest = 4 }}", ", sinks = 1", "`sinks` are before the tokens"),
        (ROTARY, ", shared_channels = 4", "`shared_channels` needs `latent`"),
        (ROTARY, ", latent = 4, kv_heads = 1", "Leave kv_heads out"),
        ('code = { codes = ["none", { python = "my_codes.py:Added" }] }', "", "is added to the tokens"),
    ):  # fmt: skip
        with cases(arm, model), pytest.raises(ClockhandsError, match=words.replace("(", r"\(")):
            trial(arm, model=model)
    with pytest.raises(ClockhandsError, match="`accumulate` must be at most"):
        trial(training=", accumulate = 5")


def test_a_forecast_counts_every_trial_and_stores_nothing(trial, tmp_path):
    from clockhands.lab.forecast import forecast

    study, told = trial(HYBRID).study, []
    found = forecast(study, running.Options(at_once=1), told.append)
    assert told == ["copy, arm"]
    assert [(each.trials, each.parameters) for each in found.arms] == [(1, trial(HYBRID).counted["parameters"])]
    assert found.seconds > 0
    assert found.peak is None or found.peak > 2**20
    assert not (tmp_path / "state.pt").exists()
