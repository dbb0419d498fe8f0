"""Other people's state dicts: what is computed there is compared, never loaded, and a difference is explained."""

from typing import Any

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.biases import Window, row_numbers
from clockhands.recognition.diagnosis import hint_of
from clockhands.recognition.faults import FAULTS
from late import Late

torch, held, written = Late("torch"), Late("clockhands.torch"), Late("torch_and_jax.written_models")

PAIRS, LENGTH = 32, 2048
OWN = "the spec's numbers are used."


def rates(base: float = 10_000.0) -> Any:
    """As published code makes them, in float32."""
    return 1.0 / (base ** (torch.arange(0, 2 * PAIRS, 2, dtype=torch.int64).float() / (2 * PAIRS)))


def phases(base: float = 10_000.0) -> Any:
    return torch.outer(torch.arange(LENGTH).float(), rates(base))


def twice(numbers: Any) -> Any:
    return torch.cat([numbers, numbers], dim=-1)


def sinusoid(base: float = 10_000.0) -> Any:
    """As published code makes it, in float32."""
    angle = torch.arange(LENGTH).float()[:, None] * torch.exp(torch.arange(0, 64, 2).float() * -(np.log(base) / 64))
    table = torch.zeros(LENGTH, 64)
    table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()
    return table


def load(**tensors: Any) -> Any:
    model = written.Positions()
    return model.load_state_dict({**model.state_dict(), **{key.replace("__", "."): t for key, t in tensors.items()}})


def equal() -> dict[str, Any]:
    return {
        "rates": {"rotary__inv_freq": rates()},
        "rates under the peer's own name": {"rotary__rotary_emb__inv_freq": rates()},
        "rates in bfloat16": {"rotary__inv_freq": rates().bfloat16()},
        "rates in float16": {"rotary__inv_freq": rates().half()},
        "tables": {
            "rotary__cos_cached": twice(phases()).cos(),
            "rotary__sin_cached": twice(phases()).sin()[None, None],
        },
        "tables in bfloat16": {"rotary__cos_cached": twice(phases()).cos().bfloat16()},
        "interleaved": {"meta__cos_cached": phases().cos().repeat_interleave(2, dim=-1)},
        "complex": {"meta__freqs_cis": torch.polar(torch.ones(LENGTH, PAIRS), phases())},
        "complex as pairs": {"meta__freqs_cis": torch.view_as_real(torch.polar(torch.ones(LENGTH, PAIRS), phases()))},
        "a table of sinusoids": {"sinusoid__embed_positions__weights": sinusoid()},
        "a table that stands across": {"sinusoid__pe": sinusoid()[:, None]},
        "positions": {"learned__position_ids": torch.arange(16)[None], "sinusoid___float_tensor": torch.zeros(1)},
        "slopes": {"alibi__slopes": torch.tensor(ch.Alibi(heads=6).slopes)[:, None, None]},
        "rows": {"window__relative_position_index": torch.from_numpy(row_numbers(Window(2, 3, 2), 6, 6))},
    }


def test_what_the_spec_makes_is_left_out_and_nothing_is_said(cases):
    for name, tensors in equal().items():
        with cases(name):
            assert str(load(**tensors)) == "<All keys matched successfully>"


def different() -> dict[str, Any]:
    spoilt = rates()
    spoilt[1] = 6.93e-18
    return {
        "another base": (
            {"rotary__inv_freq": rates(5e5)},
            "`rotary.inv_freq` holds rates that this code does not make (buffer-of-another-base): from pair 1 on, "
            "off by up to 0.13 (pair 3: 0.292228 there, 0.421697 here). They are those of base 500,000.",
        ),
        "rounded": (
            {"rotary__inv_freq": rates().bfloat16().float()},
            "`rotary.inv_freq` holds rates that this code does not make (buffer-rounded): from pair 1 on, off by up to "
            "0.00044 (pair 7: 0.133789 there, 0.133352 here). They are this code's, rounded to bfloat16.",
        ),
        "nothing there": (
            {"rotary__inv_freq": torch.zeros(PAIRS)},
            "`rotary.inv_freq` holds rates that this code does not make (buffer-zero): from pair 0 on, off by up to 1 "
            "(pair 0: 0 there, 1 here). They are all zero, like uninitialised memory.",
        ),
        "one of them": (
            {"rotary__inv_freq": spoilt},
            "`rotary.inv_freq` holds rates that this code does not make (buffer-uninitialised): from pair 1 on, off by "
            "up to 0.75 (pair 1: 6.93e-18 there, 0.749894 here).",
        ),
        "not a number": (
            {"rotary__inv_freq": torch.full((PAIRS,), torch.nan)},
            "`rotary.inv_freq` holds rates that this code does not make (buffer-uninitialised): from pair 0 on, off by "
            "up to inf (pair 0: nan there, 1 here).",
        ),
        "another width": (
            {"rotary__inv_freq": rates()[:16]},
            "`rotary.inv_freq` holds rates of 16 pairs, and this code makes 32.",
        ),
        "positions": (
            {"learned__position_ids": torch.arange(1, 17)[None]},
            "`learned.position_ids` holds positions other than 0, 1, 2 and so on.",
        ),
        "slopes": (
            {"alibi__slopes": torch.tensor([2.0 ** (-8 * (head + 1) / 6) for head in range(6)])},
            "`alibi.slopes` holds slopes that this code does not make (slopes-differ): from head 0 on, off by up to "
            "0.49 (head 4: 0.00984313 there, 0.5 here).",
        ),
        "rows": (
            {"window__relative_position_index": torch.zeros(6, 6, dtype=torch.int64)},
            "`window.relative_position_index` holds row numbers that differ from the spec's for 35 of 36 pairs "
            "of tokens.",
        ),
        # Tables, which hold cosines, sines, or both.
        "sines": (
            {"rotary__cos_cached": twice(phases()).sin()},
            "that this code does not make (buffer-differs): from pair 0",
        ),
        "positions in bfloat16": (
            {"rotary__sin_cached": (torch.arange(LENGTH).bfloat16()[:, None] * twice(rates())).sin()},
            "that this code does not make (buffer-rounded): from pair 0",
            "It is one whose positions were rounded to bfloat16 (first wrong at position 257).",
        ),
        "positions in bfloat16, kept in bfloat16": (
            {"rotary__sin_cached": (torch.arange(LENGTH).bfloat16()[:, None] * twice(rates())).sin().bfloat16()},
            "that this code does not make (buffer-rounded): from pair 0",
        ),
        "rounded sinusoids": (
            {"sinusoid__pe": sinusoid().bfloat16().float()},
            "that this code does not make (buffer-rounded): from pair 0",
            "It is one whose numbers were rounded to bfloat16.",
        ),
        "backward": (
            {"meta__freqs_cis": torch.polar(torch.ones(LENGTH, PAIRS), -phases())},
            "that this code does not make (buffer-differs): from pair 0",
            "It is one that rotates backward.",
        ),
        "another base, complex": (
            {"meta__freqs_cis": torch.polar(torch.ones(LENGTH, PAIRS), phases(5e5))},
            "that this code does not make (buffer-of-another-base): from pair 1",
            "It is one with frequencies of base 500,000.",
        ),
        "sinusoids of an eighth": (
            {"sinusoid__pe": sinusoid() / 8},
            "that this code does not make (buffer-differs): from pair 0",
            "It is the declared one times 0.125.",
        ),
        "sinusoids one position late": (
            {"sinusoid__pe": torch.roll(sinusoid(), 1, 0)},
            "that this code does not make (buffer-differs): from pair 0",
        ),
    }


def test_what_differs_is_an_error_that_says_how(cases):
    for name, (tensors, *words) in different().items():
        with cases(name), pytest.raises(RuntimeError) as caught:
            load(**tensors)
        for each in ("hint: ", *words):
            with cases(name, each):
                assert each in str(caught.value)


def test_a_difference_is_an_error_where_missing_keys_are_allowed_too():
    with pytest.raises(RuntimeError, match="from pair 1 on"):
        written.Positions().load_state_dict({"rotary.inv_freq": rates(5e5)}, strict=False)


def test_what_is_nothing_of_a_position_code_stays_unexpected():
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"rotary\.gate"'):
        load(rotary__gate=torch.zeros(PAIRS))


def test_nothing_given_is_changed():
    state = {**written.Positions().state_dict(), "rotary.inv_freq": rates()}
    written.Positions().load_state_dict(state)
    assert "rotary.inv_freq" in state


def test_without_computed():
    spec = ch.Rotary(head_width=2 * PAIRS)
    state = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": rates(),
        "model.layers.1.self_attn.rotary_emb.inv_freq": rates(),
        "model.layers.1.self_attn.q_proj.weight": torch.zeros(64, 32),
        "model.norm.weight": torch.ones(PAIRS),
    }
    assert list(held.without_computed(state, spec)) == [
        "model.layers.1.self_attn.q_proj.weight",
        "model.norm.weight",
    ]
    assert len(held.without_computed(state, spec, "model.layers.0.")) == 3
    assert len(state) == 4
    with pytest.raises(ch.errors.InvalidValue, match=r"layers\.0\.self_attn\.rotary_emb\.inv_freq. holds"):
        held.without_computed(state, ch.Rotary(head_width=2 * PAIRS, base=5e5))
    table = {"embed_positions.weight": sinusoid(), "fc1.weight": torch.zeros(10, 64)}
    assert list(held.without_computed(table, ch.Sinusoidal(64))) == ["fc1.weight"]
    with pytest.raises(ch.errors.InvalidType) as caught:
        held.without_computed(state, None)
    assert str(caught.value) == "`spec` must be a position code, got NoneType.\nhint: Give the module's spec."
    with pytest.raises(ch.errors.InvalidType, match="`state_dict` must be a dict of tensors, got NoneType"):
        held.without_computed(None, spec)


def test_the_hint_says_what_to_do():
    with pytest.raises(ch.errors.InvalidValue) as caught:
        held.without_computed({"inv_freq": rates(5e5)}, ch.Rotary(head_width=2 * PAIRS))
    assert (
        caught.value.hint == f"{FAULTS['buffer-of-another-base'].hint} If the key is removed from the state dict, {OWN}"
    )
    with pytest.raises(ch.errors.InvalidValue) as caught:
        held.without_computed({"slopes": torch.ones(6)}, ch.Alibi(heads=6))
    assert caught.value.hint == f"{hint_of('slopes-differ')} If the key is removed from the state dict, {OWN}"


def test_rates_made_in_float32_are_equal_for_every_usual_base():
    """The allowance is derived; here is what float32 really does, and what would be noticed."""
    for base in (1e2, 1e4, 5e5, 1e6, 1e7, 1e9):
        spec = ch.Rotary(head_width=2 * PAIRS, base=base)
        assert held.without_computed({"inv_freq": rates(base)}, spec) == {}
        with pytest.raises(ch.errors.InvalidValue):
            held.without_computed({"inv_freq": rates(base) * (1 + 2.0**-17)}, spec)


def test_whole_numbers_are_no_rates():
    module = held.Rotary(ch.Rotary(head_width=4))
    with pytest.raises(RuntimeError, match="holds rates as int64, but these numbers are not whole"):
        module.load_state_dict({"inv_freq": torch.tensor([1, 0])})
