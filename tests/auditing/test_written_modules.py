"""Modules written by hand, wrapped, half loaded, or changed in one layer: what is found, and where."""

import copy
from typing import Any

import pytest

import clockhands as ch
from auditing.loaded_models import firing, told
from clockhands.errors import InvalidType, Unreadable

torch: Any = None
written: Any = None


@pytest.fixture(scope="module", autouse=True)
def library():
    """Imported when the first test runs, and the modules that are made of it."""
    globals()["torch"] = pytest.importorskip("torch")
    from auditing import written_modules

    globals()["written"] = written_modules


def test_a_sound_module_has_no_fault(cases):
    for way in (written.Halves, written.Cached, written.Beside, written.Complex):
        for dtype in (torch.float32, torch.float64):
            audited = ch.audit(written.Model(way).to(dtype))
            with cases(way, dtype):
                assert [found.message for found in firing(audited)] == []
                layers = [(code.kind, code.layers, code.base, code.width) for code in audited.layers]
                assert layers == [("rotary", "0-2", written.BASE, written.WIDTH)]
                assert audited.target == "Model (loaded)"


def test_what_is_found_stands_at_its_path_and_layer():
    model = written.Model()
    model.layers[1].rotary_emb.inv_freq.zero_()
    (found,) = firing(ch.audit(model))
    assert (found.code, found.layers, found.blames) == ("buffer-zero", "1", "module")
    assert "model:layers.1.rotary_emb.inv_freq" in found.evidence
    assert "layers.1.rotary_emb.inv_freq" in found.message


def test_layers_that_are_wrong_in_one_way_are_told_together():
    model = written.Model()
    for layer in (0, 2):
        model.layers[layer].rotary_emb.inv_freq.copy_(written.ladder(base=500.0))
    (found,) = firing(ch.audit(model))
    assert (found.code, found.layers) == ("buffer-of-another-base", "0,2")
    assert (found.evidence["base in effect"], found.evidence["declared base"]) == (500, written.BASE)
    assert found.evidence["tensors"] == 2


def test_a_ladder_is_named_for_what_it_is(cases):
    ladder = written.ladder
    scaled = {**written.CONFIG, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    right = ladder(factor=4.0)
    another_order = {"it is": "the declared frequencies in another order of pairs"}
    for rates, code, seen in (
        (right, None, {}),
        (ladder(), "buffer-unscaled", {"effective factor": 1, "declared factor": 4}),
        (ladder(factor=16.0), "buffer-scaled-twice", {"effective factor": 16, "declared factor": 4}),
        (ladder(base=5e5, factor=4.0), "buffer-of-another-base", {"base in effect": 5e5}),
        (ladder(base=5e5), "buffer-of-another-base", {"base in effect": 5e5, "scaling dropped": True}),
        (right.bfloat16().float(), "buffer-rounded", {"rounded to": "bfloat16"}),
        (ladder().bfloat16().float(), "buffer-unscaled", {"rounded to": "bfloat16"}),
        (right * 1.01, "buffer-of-another-factor", {"effective factor": 3.9604}),
        (right.flip(0), "buffer-differs", another_order),
        (1e3 * right[[3, 1, 0, 2, 5, 4, 7, 6]] ** 2, "buffer-uninitialised", {"pairs": 8}),
    ):
        model = written.Model(config=scaled)
        for layer in model.layers:
            layer.rotary_emb.inv_freq = rates.clone()
        found = firing(ch.audit(model))
        with cases(code, seen):
            assert [(each.code, each.layers) for each in found] == ([] if code is None else [(code, "0-2")])
            assert all({name: each.evidence.get(name) for name in seen} == seen for each in found)


def test_a_table_is_named_for_what_it_is(cases):
    at, ladder = torch.arange(written.LENGTH).float(), written.ladder
    for make, code in (
        (lambda phases: phases, None),
        (lambda _: torch.outer(at.bfloat16().float(), ladder()), "buffer-rounded"),
        (lambda phases: phases.half().float(), "buffer-rounded"),
        (lambda _: torch.outer(at, ladder(base=1e6)), "buffer-of-another-base"),
    ):
        for way in (written.Cached, written.Beside, written.Complex):
            audited = ch.audit(written.Model(lambda way=way, make=make: written.table_of(way, make)))
            # Two tables apart from each other do not tell which ladder they are of.
            apart = way is written.Cached and code == "buffer-of-another-base"
            said = "buffer-differs" if apart else code
            found = {(each.code, each.layers) for each in firing(audited) if each.code != "rotation-differs"}
            with cases(way, code):
                assert sorted(found) == ([] if said is None else [(said, "0-2")])


def test_a_table_that_was_never_filled_is_told(cases):
    for way in (written.Cached, written.Beside):
        model = written.Model(way)
        for name, buffer in model.layers[2].rotary_emb.named_buffers():
            if name != "inv_freq":
                buffer.copy_(torch.randint(0, 2**31 - 1, buffer.shape, dtype=torch.int32).view(torch.float32))
        with cases(way):
            assert ("buffer-uninitialised", "2") in told(ch.audit(model))


def test_a_table_kept_in_the_type_of_its_first_call_is_told():
    model = written.Model(written.Cached)
    part = model.layers[0].rotary_emb
    part.cos_cached, part.sin_cached = part.cos_cached.bfloat16(), part.sin_cached.bfloat16()
    assert told(ch.audit(model)) == [("buffer-of-another-dtype", "0")]
    usual = written.Model(written.Beside).to(torch.bfloat16)
    assert told(ch.audit(usual)) == [], "in a bfloat16 model it is what is usual"


def test_layers_that_change_what_they_share_are_told():
    (found,) = firing(ch.audit(written.shrinking()))
    assert (found.code, found.layers) == ("shared-object-mutated", "1-2")
    assert found.evidence["pairs by layer"] == {"0": 8, "1": 4, "2": 2}


def test_one_part_for_all_layers_is_one_finding():
    model = written.Model()
    for layer in model.layers[1:]:
        layer.rotary_emb = model.layers[0].rotary_emb
    model.layers[0].rotary_emb.inv_freq.zero_()
    assert told(ch.audit(model)) == [("buffer-zero", "0-2")]


def test_a_ladder_of_another_width_is_told():
    model = written.Model(lambda: written.Halves(8))
    (found,) = firing(ch.audit(model))
    assert (found.code, found.evidence["pairs"], found.evidence["declared pairs"]) == ("buffer-of-another-width", 4, 8)


# What is in effect


def test_what_a_part_does_with_right_rates_is_read_off_it(cases):
    for phases, times, words in (
        # The first position at which a phase is off by more than a hundredth of a radian.
        (lambda at, rates: (at.bfloat16() * rates.bfloat16()).float(), 1.0,
         "positions, frequencies and angles were rounded to bfloat16 (first wrong at position 13)"),
        (lambda at, rates: at.bfloat16().float() * rates, 1.0,
         "positions were rounded to bfloat16 (first wrong at position 257)"),
        (lambda at, rates: (at + 1).float() * rates, 1.0, "takes each position for the one after it"),
        (lambda at, rates: 0 * at.float() * rates, 1.0, "rotates nothing"),
        (lambda at, _: at.float() * written.ladder(base=1e6), 1.0, "frequencies of base 1e+06"),
        (lambda at, rates: at.float() * rates, 1.25, "the declared one times 1.25"),
    ):  # fmt: skip
        with cases(words):
            (found,) = firing(ch.audit(written.Model(lambda phases=phases, times=times: written.Doing(phases, times))))
            assert (found.code, found.layers) == ("rotation-differs", "0-2")
            assert words in found.message
            assert (found.evidence["module"], found.evidence["parts"]) == ("layers.0.rotary_emb", 3)


def test_a_part_that_turns_by_itself_is_identified():
    config = {**written.CONFIG, "model_type": "cohere"}
    (found,) = firing(ch.audit(written.Model(lambda: written.OnTheFly(1e6), config=config)))
    assert found.code == "rotation-differs"
    assert "base 1e6" in found.message
    assert told(ch.audit(written.Model(written.OnTheFly, config=config))) == []


def test_the_model_is_not_changed():
    model = written.Model(written.Growing).train()
    before = copy.deepcopy(model.state_dict()), model.layers[0].rotary_emb.inv_freq.clone()
    ch.audit(model)
    assert torch.equal(model.layers[0].rotary_emb.inv_freq, before[1])
    assert not hasattr(model.layers[0].rotary_emb, "calls")
    assert model.training
    assert all(torch.equal(value, before[0][name]) for name, value in model.state_dict().items())


# What is around it


def audit_around(around):
    """The audit of a model with one fault, inside something else."""
    model = written.Model()
    model.layers[2].rotary_emb.inv_freq.zero_()
    audited = ch.audit(around(model))
    assert (audited.model_type, audited.context) == ("llama", written.LENGTH)
    assert told(audited) == [("buffer-zero", "2")]


def test_whatever_is_around_a_model_its_own_config_is_found(cases):
    for around in (
        lambda model: model,
        written.Wrapper,
        torch.nn.DataParallel,
        written.Compiled,
        lambda model: torch.nn.Sequential(torch.nn.Linear(2, 2), model),
        copy.deepcopy,
    ):
        with cases(around):
            audit_around(around)


@pytest.mark.slow
def test_the_config_of_a_compiled_model_is_found():
    audit_around(lambda model: torch.compile(model, backend="eager"))


def test_of_two_models_side_by_side_the_larger_is_held_to_its_config():
    other = written.Model(lambda: written.Halves(base=1e6), config={**written.CONFIG, "rope_theta": 1e6}, layers=1)
    both = torch.nn.ModuleDict({"draft": other, "target": written.Model()})
    audited = ch.audit(both)
    assert told(audited) == []
    assert [code.base for code in audited.layers] == [written.BASE]
    assert audited.notes == ("draft has its own config and cannot be compared with another: audit it separately.",)
    both["draft"].layers[0].rotary_emb.inv_freq.zero_()
    assert told(ch.audit(both)) == [("buffer-zero", "0")]


def test_a_part_alone_is_audited():
    assert told(ch.audit(written.Model().layers[0])) == []
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
        model = written.Model()
    with pytest.raises(Unreadable, match="Model is on the meta device: its tensors have shapes but no values"):
        ch.audit(model)


def test_a_part_that_was_left_without_numbers_is_told():
    model = written.Model()
    model.layers[1].rotary_emb.inv_freq = model.layers[1].rotary_emb.inv_freq.to("meta")
    assert told(ch.audit(model)) == [("buffer-on-meta", "1")]


def test_weights_that_lie_elsewhere_are_no_fault():
    """As libraries that offload leave a model: parameters on the meta device, buffers where they were."""
    model = written.Model()
    for layer in model.layers:
        layer.q_proj.to("meta")
    assert told(ch.audit(model)) == []
    rows = written.Embeddings()
    rows.wpe.to("meta")
    audited = ch.audit(rows)
    assert told(audited) == []
    assert audited.notes == ("wpe.weight is on the meta device, has no values and was not examined.",)
    assert audited.notes[0] in str(audited)


def test_a_tensor_of_whole_numbers_of_few_bits_is_left_alone():
    model = written.Model()
    model.layers[0].q_proj.weight = torch.nn.Parameter(torch.zeros(4, 4, dtype=torch.int8), requires_grad=False)
    assert told(ch.audit(model)) == []


def test_a_persistent_buffer_is_worth_a_note():
    model = written.Model()
    for layer in model.layers:
        layer.rotary_emb.register_buffer("inv_freq", written.ladder(), persistent=True)
    (found,) = [found for found in ch.audit(model).findings if found.code == "buffer-persistent"]
    assert (found.severity, found.layers, found.blames) == ("note", "0-2", None)


def test_rates_that_are_trained_are_no_buffer():
    model = written.Model()
    for layer in model.layers:
        del layer.rotary_emb.inv_freq
        layer.rotary_emb.inv_freq = torch.nn.Parameter(written.ladder())
    assert [found.code for found in ch.audit(model).findings if found.code.startswith("buffer")] == []


# Numbers and rows


def test_rows_of_any_size_are_no_fault(cases):
    for trained in (1e-6, 1.0, 300.0):
        model = written.Embeddings()
        with torch.no_grad():
            model.wpe.weight.mul_(trained)
            model.wpe.weight[50:].mul_(1e-25)  # decayed away, where no text was so long
        with cases(trained):
            assert told(ch.audit(model)) == []


def test_rows_that_nobody_filled_are_told(cases):
    for dtype, bits in ((torch.float32, torch.int32), (torch.bfloat16, torch.int16), (torch.float16, torch.int16)):
        model, info = written.Embeddings().to(dtype), torch.iinfo(bits)
        drawn = torch.Generator().manual_seed(0)
        with torch.no_grad():
            numbers = torch.randint(info.min, info.max, (64, 32), dtype=bits, generator=drawn)
            model.wpe.weight.copy_(numbers.view(dtype).nan_to_num(1.0))
        with cases(dtype):
            assert ("table-uninitialised", "input") in told(ch.audit(model))


def test_fewer_rows_than_positions_are_told():
    assert "table-size" in [code for code, _ in told(ch.audit(written.Embeddings(rows=40)))]


def test_numbers_of_positions(cases):
    for numbers, codes in (
        (torch.arange(64)[None], []),
        (torch.arange(64)[None].float(), ["ids-of-floats"]),
        (torch.arange(64)[None].half() - 0.1, ["ids-of-floats"]),
        (torch.cat([torch.arange(63), torch.tensor([2])])[None], ["ids-of-floats"]),
        (torch.full((1, 64), 2**62), ["buffer-uninitialised"]),
    ):
        model = written.Embeddings()
        model.position_ids = numbers
        with cases(numbers.dtype, codes):
            assert [each for each, _ in told(ch.audit(model))] == codes


def test_the_weights_of_a_module_are_looked_at_in_files():
    with pytest.raises(InvalidType, match="`weights` is for files, but a loaded module was given") as raised:
        ch.audit(written.Model(), weights=True)
    assert "folder" in raised.value.hint


def test_a_length_and_values_may_be_set_as_for_a_file():
    audited = ch.audit(written.Model(), 2048, overrides={"rope_theta": 1e6})
    assert (audited.length, audited.extension.context) == (2048, written.LENGTH)
    assert told(audited) == [("beyond-context", None), ("buffer-of-another-base", "0-2")]


def test_a_table_of_pairs_of_numbers_is_held_to_the_config():
    config = {**written.CONFIG, "model_type": "cohere"}
    assert told(ch.audit(written.Model(written.RotaryWithCache, config=config))) == []
    made = ch.audit(written.Model(lambda: written.RotaryWithCache(base=1e6), config=config))
    assert told(made) == [("buffer-of-another-base", "0-2")]
    made = ch.audit(written.Model(lambda: written.RotaryWithCache(rates=1e6), config=config))
    assert told(made) == [("buffer-of-another-base", "0-2")]
    assert firing(made)[0].evidence["base in effect"] == 1e6


# Slopes


EIGHT = [2.0**-power for power in range(1, 9)]
SIX = [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]


def test_slopes_are_held_to_the_number_of_heads(cases):
    whole = [2.0 ** (-8 * head / 6) for head in range(1, 7)]
    for slopes, heads, code, words in (
        (EIGHT, 8, None, ""),
        ([-slope for slope in SIX], 6, None, ""),
        ([2.0 * slope for slope in EIGHT], 8, "slopes-differ", "a series that begins at 1"),
        (whole, 6, "slopes-differ", "one geometric series through all heads"),
        (sorted(SIX, reverse=True), 6, "slopes-differ", "the declared ones in another order of heads"),
        ([0.0] * 8, 8, "buffer-zero", "all zero: the model cannot distinguish positions"),
        ([float("nan")] * 8, 8, "buffer-uninitialised", "8 of 8 heads"),
    ):
        found = firing(ch.audit(written.sloped(slopes, heads)))
        with cases(slopes):
            assert [(each.code, each.layers) for each in found] == ([] if code is None else [(code, "0-1")])
            assert all(words in each.message for each in found)


def test_slopes_without_a_config_are_recognised():
    (code,) = ch.audit(written.Sloped(EIGHT)).layers
    assert (code.kind, code.spec) == ("alibi", ch.Alibi(8))


def test_rates_of_a_table_that_is_added_are_not_called_a_rotation():
    (code,) = ch.audit(written.PositionalEncoding()).layers
    assert (code.kind, code.width, code.rotated, code.base) == ("sinusoidal", 32, None, written.BASE)


def test_a_part_of_vllm_is_recognised_by_its_table(cases):
    width = written.WIDTH
    for base, neox, layout in ((10_000.0, True, "halves"), (123_456.0, False, "interleaved")):
        part = written.OfVllm(head_size=width, rotary_dim=width // 2, base=base, is_neox_style=neox)
        audited = ch.audit(part)
        with cases(base, layout):
            assert audited.verdict == "The position settings look correct."
            (code,) = audited.layers
            assert (code.kind, code.layout, code.width, code.rotated) == ("rotary", layout, width, width // 2)
            assert (code.base, code.rates) == (base, ch.Rotary(width // 2, base=base).rates)
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
    assert (code.layers, code.base, code.attention_factor) == ("0-2", written.BASE, 1.25)


def test_a_table_that_no_code_makes_is_not_recognised(cases):
    part = written.OfVllm()
    for numbers in (torch.rand(50, written.WIDTH), torch.zeros(50, written.WIDTH), torch.ones(1, written.WIDTH)):
        part.cos_sin_cache = numbers
        with cases(numbers.shape):
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
