"""Modules written by hand, wrapped, half loaded, or changed in one layer: what is found, and where."""

import copy

import pytest

import clockhands as ch

pytest.importorskip("torch")

import torch

from auditing import written_modules as written
from auditing.written_modules import BASE, CONFIG, LENGTH, WIDTH, Model, ladder
from clockhands.errors import InvalidType, Unreadable


def firing(audited):
    return [found for found in audited.findings if found.severity != "note"]


def told(audited):
    return sorted((found.code, found.layers) for found in firing(audited))


WAYS = (written.Halves, written.Cached, written.Beside, written.Complex)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sound_module_has_no_fault(way, dtype):
    audited = ch.audit(Model(way).to(dtype))
    assert [found.message for found in firing(audited)] == []
    assert [(code.kind, code.layers, code.base) for code in audited.layers] == [("rotary", "0-2", BASE)]
    assert audited.target == "Model (loaded)"


def test_what_is_found_stands_at_its_path_and_layer():
    model = Model()
    model.layers[1].rotary_emb.inv_freq.zero_()
    (found,) = firing(ch.audit(model))
    assert (found.code, found.layers, found.blames) == ("buffer-zero", "1", "module")
    assert "model:layers.1.rotary_emb.inv_freq" in found.evidence
    assert "layers.1.rotary_emb.inv_freq" in found.message


def test_layers_that_are_wrong_in_one_way_are_told_together():
    model = Model()
    for layer in (0, 2):
        model.layers[layer].rotary_emb.inv_freq.copy_(ladder(base=500.0))
    (found,) = firing(ch.audit(model))
    assert (found.code, found.layers) == ("buffer-of-another-base", "0,2")
    assert (found.evidence["base in effect"], found.evidence["declared base"]) == (500, BASE)
    assert found.evidence["tensors"] == 2


SCALED = {**CONFIG, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}


@pytest.mark.parametrize(
    ("rates", "code", "seen"),
    [
        (ladder(factor=4.0), None, {}),
        (ladder(), "buffer-unscaled", {"effective factor": 1, "declared factor": 4}),
        (ladder(factor=16.0), "buffer-scaled-twice", {"effective factor": 16, "declared factor": 4}),
        (ladder(factor=8.0), "buffer-of-another-factor", {"effective factor": 8, "declared factor": 4}),
        (ladder(base=5e5, factor=4.0), "buffer-of-another-base", {"base in effect": 5e5}),
        (ladder(base=5e5), "buffer-of-another-base", {"base in effect": 5e5, "scaling dropped": True}),
        (ladder(factor=4.0).bfloat16().float(), "buffer-rounded", {"rounded to": "bfloat16"}),
        (ladder(factor=4.0).half().float(), "buffer-rounded", {"rounded to": "float16"}),
        (ladder().bfloat16().float(), "buffer-unscaled", {"rounded to": "bfloat16"}),
        (ladder(factor=4.0) * 1.01, "buffer-of-another-factor", {"effective factor": 3.9604}),
        (ladder(factor=4.0) * (1 + torch.arange(8) % 2 / 50), "buffer-differs", {}),
        (ladder(factor=4.0).flip(0), "buffer-differs", {"it is": "the declared frequencies in another order of pairs"}),
        (1e3 * ladder(factor=4.0)[[3, 1, 0, 2, 5, 4, 7, 6]] ** 2, "buffer-uninitialised", {"pairs": 8}),
    ],
)
def test_a_ladder_is_named_for_what_it_is(rates, code, seen):
    model = Model(config=SCALED)
    for layer in model.layers:
        layer.rotary_emb.inv_freq = rates.clone()
    found = firing(ch.audit(model))
    assert [(each.code, each.layers) for each in found] == ([] if code is None else [(code, "0-2")])
    if found:
        assert {name: found[0].evidence.get(name) for name in seen} == seen


@pytest.mark.parametrize("way", [written.Cached, written.Beside, written.Complex])
@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda phases: phases, None),
        (lambda phases: phases * 0, "buffer-differs"),
        (lambda _: torch.outer(torch.arange(LENGTH).bfloat16().float(), ladder()), "buffer-rounded"),
        (lambda phases: phases.half().float(), "buffer-rounded"),
        (lambda _: torch.outer(torch.arange(LENGTH).float(), ladder().bfloat16().float()), "buffer-rounded"),
        (lambda _: torch.outer(torch.arange(LENGTH).float() + 1, ladder()), "buffer-differs"),
        (lambda phases: -phases, "buffer-differs"),
        (lambda _: torch.outer(torch.arange(LENGTH).float(), ladder(base=1e6)), "buffer-of-another-base"),
    ],
)
def test_a_table_is_named_for_what_it_is(way, make, code):
    model = Model(lambda: table_of(way, make))
    if way is written.Cached and code == "buffer-of-another-base":
        code = "buffer-differs"  # two tables apart from each other do not tell which ladder they are of
    expected = [] if code is None else [(code, "0-2")]
    found = {(each.code, each.layers) for each in firing(ch.audit(model)) if each.code != "rotation-differs"}
    assert sorted(found) == expected


def table_of(way, make):
    """A rotary part whose table is made from other phases."""
    part = way()
    phases = make(torch.outer(torch.arange(LENGTH).float(), ladder()))
    both = torch.cat((phases, phases), dim=-1)
    if way is written.Cached:
        part.cos_cached, part.sin_cached = both.cos()[None, None], both.sin()[None, None]
    elif way is written.Beside:
        part.cos_sin_cache = torch.cat((phases.cos(), phases.sin()), dim=-1)
    else:
        part.freqs_cis = torch.polar(torch.ones_like(phases), phases)
    return part


@pytest.mark.parametrize("way", [written.Cached, written.Beside])
def test_a_table_that_was_never_filled_is_told(way):
    model = Model(way)
    for name, buffer in model.layers[2].rotary_emb.named_buffers():
        if name != "inv_freq":
            buffer.copy_(torch.randint(0, 2**31 - 1, buffer.shape, dtype=torch.int32).view(torch.float32))
    assert ("buffer-uninitialised", "2") in told(ch.audit(model))


def test_a_table_kept_in_the_type_of_its_first_call_is_told():
    model = Model(written.Cached)
    part = model.layers[0].rotary_emb
    part.cos_cached, part.sin_cached = part.cos_cached.bfloat16(), part.sin_cached.bfloat16()
    assert told(ch.audit(model)) == [("buffer-of-another-dtype", "0")]
    assert told(ch.audit(Model(written.Beside).to(torch.bfloat16))) == [], "in a bfloat16 model it is what is usual"


def test_layers_that_change_what_they_share_are_told():
    (found,) = firing(ch.audit(written.shrinking()))
    assert (found.code, found.layers) == ("shared-object-mutated", "1-2")
    assert found.evidence["pairs by layer"] == {"0": 8, "1": 4, "2": 2}


def test_one_part_for_all_layers_is_one_finding():
    model = Model()
    for layer in model.layers[1:]:
        layer.rotary_emb = model.layers[0].rotary_emb
    model.layers[0].rotary_emb.inv_freq.zero_()
    assert told(ch.audit(model)) == [("buffer-zero", "0-2")]


def test_a_ladder_of_another_width_is_told():
    model = Model(lambda: written.Halves(8))
    (found,) = firing(ch.audit(model))
    assert (found.code, found.evidence["pairs"], found.evidence["declared pairs"]) == ("buffer-of-another-width", 4, 8)


# What is in effect


class RoundedProduct(written.Halves):
    def forward(self, x, position_ids):
        phases = (position_ids[..., None].bfloat16() * self.inv_freq.bfloat16()).float()
        both = torch.cat((phases, phases), dim=-1)
        return both.cos(), both.sin()


class RoundedPositions(written.Halves):
    def forward(self, x, position_ids):
        return super().forward(x, position_ids.bfloat16().float())


class OneAhead(written.Halves):
    def forward(self, x, position_ids):
        return super().forward(x, position_ids + 1)


class Ignoring(written.Halves):
    def forward(self, x, position_ids):
        return super().forward(x, torch.zeros_like(position_ids))


class OtherBase(written.Halves):
    def forward(self, x, position_ids):
        phases = position_ids[..., None].float() * ladder(base=1e6)
        both = torch.cat((phases, phases), dim=-1)
        return both.cos(), both.sin()


class TimesFactor(written.Halves):
    def forward(self, x, position_ids):
        return tuple(1.25 * wave for wave in super().forward(x, position_ids))


# Where the phases of the first of them are first off by more than a hundredth of a radian.
_EXACT = torch.outer(torch.arange(LENGTH).double(), BASE ** (-torch.arange(0, WIDTH, 2).double() / WIDTH))
_HELD = torch.arange(LENGTH)[:, None].bfloat16() * ladder().bfloat16()
ROUNDED = int(((_HELD.double() - _EXACT).abs() > 0.01).any(dim=1).nonzero()[0])


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (
            RoundedProduct,
            f"positions, frequencies and angles were rounded to bfloat16 (first wrong at position {ROUNDED})",
        ),
        (RoundedPositions, "positions were rounded to bfloat16 (first wrong at position 257)"),
        (OneAhead, "takes each position for the one after it"),
        (Ignoring, "rotates nothing"),
        (OtherBase, "frequencies of base 1e+06"),
        (TimesFactor, "the declared one times 1.25"),
    ],
)
def test_what_a_part_does_with_right_rates_is_read_off_it(way, words):
    (found,) = firing(ch.audit(Model(way)))
    assert (found.code, found.layers) == ("rotation-differs", "0-2")
    assert words in found.message
    assert (found.evidence["module"], found.evidence["parts"]) == ("layers.0.rotary_emb", 3)


def test_a_part_that_turns_by_itself_is_identified():
    (found,) = firing(ch.audit(Model(lambda: written.OnTheFly(1e6), config={**CONFIG, "model_type": "cohere"})))
    assert found.code == "rotation-differs"
    assert "base 1e6" in found.message
    sound = Model(written.OnTheFly, config={**CONFIG, "model_type": "cohere"})
    assert told(ch.audit(sound)) == []


class Growing(written.Halves):
    """Changes what it holds when it is called, as dynamic scalings do."""

    def forward(self, x, position_ids):
        self.inv_freq.mul_(0.5)
        self.calls = getattr(self, "calls", 0) + 1
        return super().forward(x, position_ids)


def test_the_model_is_not_changed():
    model = Model(Growing).train()
    before = copy.deepcopy(model.state_dict()), model.layers[0].rotary_emb.inv_freq.clone()
    ch.audit(model)
    assert torch.equal(model.layers[0].rotary_emb.inv_freq, before[1])
    assert not hasattr(model.layers[0].rotary_emb, "calls")
    assert model.training
    assert all(torch.equal(value, before[0][name]) for name, value in model.state_dict().items())


# What is around it


@pytest.mark.parametrize(
    "around",
    [
        lambda model: model,
        written.Wrapper,
        torch.nn.DataParallel,
        lambda model: torch.compile(model, backend="eager"),
        lambda model: torch.nn.Sequential(torch.nn.Linear(2, 2), model),
        copy.deepcopy,
    ],
    ids=["bare", "wrapper", "parallel", "compiled", "sequential", "copy"],
)
def test_whatever_is_around_a_model_its_own_config_is_found(around):
    model = Model()
    model.layers[2].rotary_emb.inv_freq.zero_()
    audited = ch.audit(around(model))
    assert (audited.model_type, audited.context) == ("llama", LENGTH)
    assert told(audited) == [("buffer-zero", "2")]


def test_of_two_models_side_by_side_the_larger_is_held_to_its_config():
    other = Model(lambda: written.Halves(base=1e6), config={**CONFIG, "rope_theta": 1e6}, layers=1)
    both = torch.nn.ModuleDict({"draft": other, "target": Model()})
    audited = ch.audit(both)
    assert told(audited) == []
    assert [code.base for code in audited.layers] == [BASE]
    assert audited.notes == ("draft has its own config and cannot be compared with another: audit it separately.",)
    both["draft"].layers[0].rotary_emb.inv_freq.zero_()
    assert told(ch.audit(both)) == [("buffer-zero", "0")]


def test_a_part_alone_is_audited():
    assert told(ch.audit(Model().layers[0])) == []
    broken = written.Halves()
    broken.inv_freq[3] = float("nan")
    (found,) = firing(ch.audit(broken))
    assert (found.code, found.evidence["pair"]) == ("buffer-uninitialised", 3)


def test_a_module_without_a_config_is_told_what_it_is():
    audited = ch.audit(written.Halves(32, 500_000.0))
    (code,) = audited.layers
    assert (code.kind, code.rotated, code.base) == ("rotary", 32, 500_000)
    assert code.source["rates"] == "model:inv_freq"
    assert firing(audited) == []
    (code,) = ch.audit(written.OnTheFly(250.0)).layers
    assert (code.kind, code.layout, code.base) == ("rotary", "interleaved", 250)


def test_a_module_without_positions_has_none():
    audited = ch.audit(torch.nn.Linear(3, 4))
    assert audited.verdict.startswith("No position encoding was recognised")


def test_a_model_without_numbers_is_refused():
    with torch.device("meta"):
        model = Model()
    with pytest.raises(Unreadable, match="Model is on the meta device: its tensors have shapes but no values"):
        ch.audit(model)


def test_a_part_that_was_left_without_numbers_is_told():
    model = Model()
    model.layers[1].rotary_emb.inv_freq = model.layers[1].rotary_emb.inv_freq.to("meta")
    assert told(ch.audit(model)) == [("buffer-on-meta", "1")]


def test_weights_that_lie_elsewhere_are_no_fault():
    """As libraries that offload leave a model: parameters on the meta device, buffers where they were."""
    model = Model()
    for layer in model.layers:
        layer.q_proj.to("meta")
    assert told(ch.audit(model)) == []
    rows = Embeddings()
    rows.wpe.to("meta")
    audited = ch.audit(rows)
    assert told(audited) == []
    assert audited.notes == ("wpe.weight is on the meta device, has no values and was not examined.",)
    assert audited.notes[0] in str(audited)


def test_a_tensor_of_whole_numbers_of_few_bits_is_left_alone():
    model = Model()
    model.layers[0].q_proj.weight = torch.nn.Parameter(torch.zeros(4, 4, dtype=torch.int8), requires_grad=False)
    assert told(ch.audit(model)) == []


def test_a_persistent_buffer_is_worth_a_note():
    model = Model()
    for layer in model.layers:
        layer.rotary_emb.register_buffer("inv_freq", ladder(), persistent=True)
    (found,) = [found for found in ch.audit(model).findings if found.code == "buffer-persistent"]
    assert (found.severity, found.layers, found.blames) == ("note", "0-2", None)


def test_rates_that_are_trained_are_no_buffer():
    model = Model()
    for layer in model.layers:
        del layer.rotary_emb.inv_freq
        layer.rotary_emb.inv_freq = torch.nn.Parameter(ladder())
    assert [found.code for found in ch.audit(model).findings if found.code.startswith("buffer")] == []


# Numbers and rows


class Embeddings(torch.nn.Module):
    def __init__(self, rows=64):
        super().__init__()
        self.wpe = torch.nn.Embedding(rows, 32)
        self.register_buffer("position_ids", torch.arange(rows)[None], persistent=False)
        self.config = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}


def test_random_rows_are_no_fault():
    assert told(ch.audit(Embeddings())) == []


@pytest.mark.parametrize("trained", [1e-6, 1.0, 300.0])
def test_rows_of_any_size_are_no_fault(trained):
    model = Embeddings()
    with torch.no_grad():
        model.wpe.weight.mul_(trained)
        model.wpe.weight[50:].mul_(1e-25)  # decayed away, where no text was so long
    assert told(ch.audit(model)) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_that_nobody_filled_are_told(dtype):
    model = Embeddings().to(dtype)
    bits = {2: torch.int16, 4: torch.int32}[model.wpe.weight.element_size()]
    drawn = torch.Generator().manual_seed(0)
    with torch.no_grad():
        info = torch.iinfo(bits)
        model.wpe.weight.copy_(
            torch.randint(info.min, info.max, (64, 32), dtype=bits, generator=drawn).view(dtype).nan_to_num(1.0)
        )
    assert ("table-uninitialised", "input") in told(ch.audit(model))


def test_fewer_rows_than_positions_are_told():
    assert "table-size" in [code for code, _ in told(ch.audit(Embeddings(rows=40)))]


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        (torch.arange(64)[None], None),
        (torch.arange(64)[None].float(), "ids-of-floats"),
        (torch.arange(64)[None].half() - 0.1, "ids-of-floats"),
        (torch.cat([torch.arange(63), torch.tensor([2])])[None], "ids-of-floats"),
        (torch.full((1, 64), 2**62), "buffer-uninitialised"),
    ],
)
def test_numbers_of_positions(numbers, code):
    model = Embeddings()
    model.position_ids = numbers
    assert [each for each, _ in told(ch.audit(model))] == ([] if code is None else [code])


def test_the_weights_of_a_module_are_looked_at_in_files():
    with pytest.raises(InvalidType, match="`weights` is for files, but a loaded module was given") as raised:
        ch.audit(Model(), weights=True)
    assert "folder" in raised.value.hint


def test_a_length_and_values_may_be_set_as_for_a_file():
    audited = ch.audit(Model(), 2048, overrides={"rope_theta": 1e6})
    assert (audited.length, audited.extension.context) == (2048, LENGTH)
    assert told(audited) == [("beyond-context", None), ("buffer-of-another-base", "0-2")]


def test_a_ladder_with_a_rate_that_is_off_by_little_more_than_float32_is_told():
    model = Model()
    model.layers[0].rotary_emb.inv_freq[5] *= 1 + 2.0**-16
    assert told(ch.audit(model)) == [("buffer-differs", "0")]
    model.layers[0].rotary_emb.inv_freq = ladder() * (1 + 2.0**-22)
    assert told(ch.audit(model)) == []


def test_the_width_of_a_head_is_what_the_config_says():
    assert ch.audit(Model()).layers[0].width == WIDTH


class RotaryWithCache(torch.nn.Module):
    """Rates called ``theta`` and a table [positions, pairs, 2] called ``cache``, as in torchtune."""

    def __init__(self, base=BASE, rates=BASE):
        super().__init__()
        self.register_buffer("theta", ladder(base=rates), persistent=False)
        phases = torch.outer(torch.arange(LENGTH).float(), ladder(base=base))
        self.register_buffer("cache", torch.stack((phases.cos(), phases.sin()), dim=-1), persistent=False)

    def forward(self, x, *, input_pos=None):
        waves = self.cache[input_pos if input_pos is not None else torch.arange(x.shape[1])]
        waves = waves.view(-1, x.shape[1], 1, x.shape[-1] // 2, 2)
        pairs = x.float().reshape(*x.shape[:-1], -1, 2)
        cos, sin = waves[..., 0], waves[..., 1]
        turned = (pairs[..., 0] * cos - pairs[..., 1] * sin, pairs[..., 1] * cos + pairs[..., 0] * sin)
        return torch.stack(turned, dim=-1).flatten(3).type_as(x)


def test_a_table_of_pairs_of_numbers_is_held_to_the_config():
    config = {**CONFIG, "model_type": "cohere"}
    assert told(ch.audit(Model(RotaryWithCache, config=config))) == []
    made = ch.audit(Model(lambda: RotaryWithCache(base=1e6), config=config))
    assert told(made) == [("buffer-of-another-base", "0-2")]
    made = ch.audit(Model(lambda: RotaryWithCache(rates=1e6), config=config))
    assert told(made) == [("buffer-of-another-base", "0-2")]
    assert firing(made)[0].evidence["base in effect"] == 1e6


# Slopes


class Sloped(torch.nn.Module):
    """Attention of so many heads whose scores fall with the distance."""

    def __init__(self, slopes):
        super().__init__()
        self.register_buffer("slopes", torch.tensor(slopes).reshape(-1, 1, 1), persistent=False)


def sloped(slopes, heads):
    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList(Sloped(slopes) for _ in range(2))
    model.config = {"model_type": "bloom", "hidden_size": 64, "n_layer": 2, "n_head": heads, "vocab_size": 100}
    return model


EIGHT = [2.0**-power for power in range(1, 9)]
SIX = [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]


@pytest.mark.parametrize(
    ("slopes", "heads", "code", "words"),
    [
        (EIGHT, 8, None, ""),
        ([-slope for slope in EIGHT], 8, None, ""),
        (SIX, 6, None, ""),
        ([2.0 * slope for slope in EIGHT], 8, "slopes-differ", "a series that begins at 1"),
        (
            [2.0 ** (-8 * head / 6) for head in range(1, 7)],
            6,
            "slopes-differ",
            "one geometric series through all heads",
        ),
        (sorted(SIX, reverse=True), 6, "slopes-differ", "the declared ones in another order of heads"),
        ([0.0] * 8, 8, "buffer-zero", "all zero: the model cannot distinguish positions"),
        ([float("nan")] * 8, 8, "buffer-uninitialised", "8 of 8 heads"),
    ],
)
def test_slopes_are_held_to_the_number_of_heads(slopes, heads, code, words):
    found = firing(ch.audit(sloped(slopes, heads)))
    assert [(each.code, each.layers) for each in found] == ([] if code is None else [(code, "0-1")])
    assert all(words in each.message for each in found)


def test_slopes_that_were_cast_are_told():
    heads = 32  # 2 ** -0.25 and the like, which few bits do not hold
    slopes = [2.0 ** (-8 * head / heads) for head in range(1, heads + 1)]
    assert told(ch.audit(sloped(slopes, heads))) == []
    assert told(ch.audit(sloped(slopes, heads).half())) == [("buffer-rounded", "0-1")]


def test_slopes_without_a_config_are_recognised():
    (code,) = ch.audit(Sloped(EIGHT)).layers
    assert (code.kind, code.spec) == ("alibi", ch.Alibi(8))


class PositionalEncoding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("inv_freq", ladder(32), persistent=False)


def test_rates_of_a_table_that_is_added_are_not_called_a_rotation():
    (code,) = ch.audit(PositionalEncoding()).layers
    assert (code.kind, code.width, code.rotated, code.base) == ("sinusoidal", 32, None, BASE)


@pytest.mark.parametrize("base", [10_000.0, 123_456.0])
@pytest.mark.parametrize(("neox", "layout"), [(True, "halves"), (False, "interleaved")])
def test_a_part_of_vllm_is_recognised_by_its_table(base, neox, layout):
    part = written.OfVllm(head_size=WIDTH, rotary_dim=WIDTH // 2, base=base, is_neox_style=neox)
    audited = ch.audit(part)
    assert audited.verdict == "The position settings look correct."
    (code,) = audited.layers
    assert (code.kind, code.layout, code.width, code.rotated) == ("rotary", layout, WIDTH, WIDTH // 2)
    assert (code.base, code.rates) == (base, ch.Rotary(WIDTH // 2, base=base).rates)
    assert code.source["layout"] == "model:is_neox_style"
    assert code.source["width"] == "model:head_size"
    assert code.source["rates"] == "model:cos_sin_cache"


def test_the_numbers_of_a_table_say_its_base_and_not_the_module():
    part = written.OfVllm(base=500_000.0, length=4096)
    for stated in (None, 10_000.0, "500000", True, float("inf"), 10**400):
        part.base = stated
        assert [code.base for code in ch.audit(part).layers] == [500_000.0]
    part.cos_sin_cache = part.cos_sin_cache.bfloat16()
    part.base = 500_000.0
    assert [code.base for code in ch.audit(part).layers] == [500_000.0]


def test_tables_of_several_layers_are_one_code_with_the_factor_on_them():
    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList(written.OfVllm() for _ in range(3))
    for layer in model.layers:
        layer.cos_sin_cache *= 1.25
    (code,) = ch.audit(model).layers
    assert (code.layers, code.base, code.attention_factor) == ("0-2", BASE, 1.25)


@pytest.mark.parametrize("numbers", ["random", "zero", "short"])
def test_a_table_that_no_code_makes_is_not_recognised(numbers):
    part = written.OfVllm()
    made = {"random": torch.rand(50, WIDTH), "zero": torch.zeros(50, WIDTH), "short": torch.ones(1, WIDTH)}
    part.cos_sin_cache = made[numbers]
    assert [code for code in ch.audit(part).layers if code.kind == "rotary"] == []


@pytest.mark.slow
def test_a_transformer_of_diffusers_is_known_by_its_class():
    diffusers = pytest.importorskip("diffusers")
    sizes = {"num_layers": 1, "num_single_layers": 2, "attention_head_dim": 16, "num_attention_heads": 2}
    sizes |= {"in_channels": 4, "joint_attention_dim": 8, "pooled_projection_dim": 8, "axes_dims_rope": [4, 4, 8]}
    model = diffusers.FluxTransformer2DModel(**sizes)
    assert "_class_name" not in model.config
    for audited in (ch.audit(model), ch.audit(type("Mine", (diffusers.FluxTransformer2DModel,), {})(**sizes))):
        assert audited.verdict == "The position settings look correct."
        (code,) = audited.layers
        assert (code.kind, code.layers, code.layout, code.width) == ("rotary", "0-2", "interleaved", 16)
        assert code.sections["pairs"] == (2, 2, 4)
