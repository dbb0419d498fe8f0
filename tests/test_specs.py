"""Specs as values: JSON both ways, other fields, a line of words; and whatever else may stand in JSON."""

import copy
import dataclasses
import json
import pickle
import re
from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import clockhands as ch
from clockhands.encodings import specs
from clockhands.encodings.additive import (
    AxialSinusoidal,
    Binary,
    Counter,
    EvenlySpaced,
    FourierFeatures,
    NormalizedCounter,
    SineOnly,
    SingleFrequency,
    WarpedPosition,
)
from clockhands.encodings.additive.axial import Channels
from clockhands.encodings.additive.waves import Waves
from clockhands.encodings.ladders import EvenSteps, Explicit, Geometric
from clockhands.encodings.scaling import Dynamic, Linear, Llama3, LongRope, MixedNtk, Ntk, Proportional, Yarn
from clockhands.encodings.specs import describe, from_dict, from_json, to_dict, to_json, with_fields
from clockhands.errors import ClockhandsError, InvalidType, InvalidValue
from oracles import sentences
from oracles.rows import every

# --- any spec --------------------------------------------------------------------------------------------------

WIDTHS = st.integers(1, 8).map(lambda half: 2 * half)
BASES = st.floats(1e-3, 1e9).filter(lambda base: abs(base - 1) > 1e-6)
RATES = st.floats(0, 1e6)
LAYOUTS = st.sampled_from(["interleaved", "halves"])
ORDERS = st.sampled_from(["sin-cos", "cos-sin"])
WAVES = st.sampled_from(get_args(Waves))
FACTORS = st.floats(1, 1e4)
LENGTHS = st.integers(2, 2**40)
POSITIVE = st.floats(1e-3, 1e3)


@st.composite
def spacings(draw, pairs):
    return draw(
        st.builds(Geometric, BASES, st.just("open") | st.floats(1, 1e3), POSITIVE)
        | (st.builds(Geometric, BASES, st.just("closed"), POSITIVE) if pairs > 1 else st.nothing())
        | st.builds(EvenSteps, RATES, RATES, POSITIVE)
        | st.lists(RATES, min_size=pairs, max_size=pairs).map(lambda rates: Explicit(tuple(rates)))
    )


@st.composite
def sinusoids(draw):
    width = draw(WIDTHS)
    return ch.Sinusoidal(
        width,
        spacing=draw(spacings(width // 2)),
        layout=draw(LAYOUTS),
        order=draw(WAVES),
        scale=draw(POSITIVE),
        odd=draw(st.sampled_from(["refuse", "zero", "extra", "cut"])),
        first=draw(st.integers(0, 5)),
        zero_rows=tuple(draw(st.lists(st.integers(0, 2**63), max_size=3))),
    )


@st.composite
def axials(draw):
    shares = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    pairs = AxialSinusoidal(2 * sum(shares), shares).pairs
    spacing = tuple(draw(spacings(each)) for each in pairs)
    raw = draw(st.sampled_from([None, "before", "after"]))
    return AxialSinusoidal(
        2 * sum(pairs) + (len(shares) if raw else 0),
        shares,
        spacing=spacing if draw(st.booleans()) or len(shares) > 1 else spacing[0],
        channels=draw(st.sampled_from(get_args(Channels))),
        order=draw(WAVES),
        uneven=draw(st.sampled_from(["refuse", "zero"])),
        raw=raw,
        scale=draw(POSITIVE),
    )


@st.composite
def scalings(draw, pairs):
    divisors = st.lists(POSITIVE, min_size=pairs, max_size=pairs).map(tuple)
    kinds = [
        st.builds(Linear, FACTORS),
        st.builds(
            Yarn,
            FACTORS,
            LENGTHS,
            beta_fast=st.floats(2, 64),
            beta_slow=st.floats(0.1, 1),
            truncate=st.booleans(),
            mscale=st.none() | st.floats(0, 2),
            mscale_all_dim=st.none() | st.floats(0, 2),
            attention_factor=st.none() | POSITIVE,
            ramp=st.just("turns"),
        ),
        st.builds(LongRope, divisors, divisors, LENGTHS, FACTORS, attention_factor=st.none() | POSITIVE),
        st.builds(Llama3, FACTORS, LENGTHS, st.floats(0.5, 1), st.floats(1, 8)),
        st.builds(Proportional, st.floats(0.01, 1), FACTORS),
        st.builds(MixedNtk, FACTORS, st.floats(0.1, 3)),
    ]
    if pairs > 1:
        kinds += [st.builds(Ntk, FACTORS), st.builds(Dynamic, FACTORS, LENGTHS)]
    return draw(st.one_of(kinds))


@st.composite
def rotaries(draw):
    pairs = draw(st.integers(1, 6))
    return ch.Rotary(
        2 * pairs + draw(st.integers(0, 3)),
        draw(LAYOUTS),
        rotated=2 * pairs,
        spacing=draw(spacings(pairs)),
        scaling=draw(st.none() | scalings(pairs)),
        length=draw(st.none() | LENGTHS),
    )


NAIVE = st.one_of(
    st.builds(Counter, WIDTHS),
    st.builds(NormalizedCounter, WIDTHS, LENGTHS),
    st.builds(Binary, WIDTHS),
    st.builds(SineOnly, WIDTHS, BASES.filter(lambda base: base > 1)),
    st.builds(SingleFrequency, WIDTHS, POSITIVE, layout=LAYOUTS, order=ORDERS),
    st.builds(EvenlySpaced, WIDTHS, RATES, RATES, layout=LAYOUTS, order=ORDERS),
    st.builds(WarpedPosition, WIDTHS, st.sampled_from(["square", "log", "reciprocal"]), layout=LAYOUTS, order=ORDERS),
)
ANY = st.one_of(
    sinusoids(),
    axials(),
    st.builds(FourierFeatures, WIDTHS, st.integers(1, 3), POSITIVE, layout=LAYOUTS, order=WAVES, scale=POSITIVE),
    rotaries(),
    NAIVE,
    st.builds(ch.NoPosition, WIDTHS),
    st.builds(ch.Learned, WIDTHS, st.integers(10, 20), st.integers(0, 9)),
)


@given(ANY)
@settings(max_examples=60)
def test_a_spec_survives_json_pickling_and_copying_and_can_be_described(spec):
    text = to_json(spec)
    assert "\n" not in text
    for back in (
        from_json(text),
        from_json(text.encode()),
        from_dict(to_dict(spec)),
        from_dict(json.loads(text)),
        pickle.loads(pickle.dumps(spec)),
        copy.deepcopy(spec),
        with_fields(spec),
    ):
        assert back == spec
        assert hash(back) == hash(spec)
        assert type(back) is type(spec)
        assert repr(back) == repr(spec)
        assert to_json(back) == text
    words = describe(spec)
    assert words
    assert "\n" not in words
    assert describe(copy.copy(spec)) == words


@given(
    ANY, st.lists(st.integers(1, 2**31), min_size=1, max_size=5), st.sampled_from(["float64", "float32", "bfloat16"])
)
@settings(max_examples=60)
def test_an_additive_spec_gives_a_table_of_any_dtype(spec, positions, dtype):
    if isinstance(spec, ch.Rotary):
        assert len(spec.rates) == spec.rotated // 2
        return
    values = None
    if isinstance(spec, ch.Learned):
        positions = [position % spec.usable for position in positions]
    if spec.learned:
        values = np.arange(float(np.prod(spec.values_shape))).reshape(spec.values_shape)
    if spec.number_of_axes > 1:
        positions = [[position + axis for axis in range(spec.number_of_axes)] for position in positions]
    table = ch.table(spec, positions, dtype, values=values)
    assert table.shape == (len(positions), spec.width)
    assert str(table.dtype) == dtype
    assert np.isfinite(table.astype(np.float64)).all()
    for i, position in enumerate(positions):
        assert np.array_equal(ch.table(spec, [position], dtype, values=values)[0], table[i])


@given(ANY, ANY)
@settings(max_examples=50)
def test_specs_are_equal_where_their_json_is(one, other):
    assert (one == other) == (to_json(one) == to_json(other))


def test_specs_are_frozen():
    for kind in (*specs.WRITTEN, *specs.PARTS):
        assert dataclasses.is_dataclass(kind)
        assert kind.__dataclass_params__.frozen
        assert kind.__hash__ is not None
    with pytest.raises(dataclasses.FrozenInstanceError):
        ch.Sinusoidal(4).width = 6


def test_every_public_code_and_part_has_a_name_in_json():
    from clockhands.encodings import additive, biases, ladders, rotary, scaling
    from clockhands.encodings.mixtures import LayerMixture

    public = {getattr(module, name) for module in (additive, biases, rotary) for name in module.__all__}
    codes = {value for value in public if isinstance(value, type)} - {rotary.XPos, rotary.CosSin}
    assert {code for code in codes if dataclasses.is_dataclass(code)} | {LayerMixture} == set(specs.SPECS)
    parts = {value for value in vars(scaling).values() if isinstance(value, type) and dataclasses.is_dataclass(value)}
    parts -= {ladders.Ladder, scaling.Mistake}
    spacings = {Geometric, EvenSteps, Explicit, ladders.Joined, ladders.Repeated}
    assert parts | spacings | {rotary.XPos} == set(specs.PARTS)


# --- JSON as it is written -------------------------------------------------------------------------------------

WRITTEN = {
    '{"type": "Sinusoidal", "width": 4}': ch.Sinusoidal(4),
    '{"type": "Sinusoidal", "width": 4, "spacing": {"type": "Geometric", "base": 50}}': ch.Sinusoidal(4, 50.0),
    '{"type": "Sinusoidal", "width": 4, "zero_rows": [3, 1]}': ch.Sinusoidal(4, zero_rows=(1, 3)),
    '{"type": "Rotary", "head_width": 4, "scaling": {"type": "Linear", "factor": 2}}': ch.Rotary(
        4, scaling=Linear(2.0)
    ),
    '{"width": 4, "type": "Learned", "rows": 9}': ch.Learned(4, 9),
    '{"type": "Sinusoidal", "width": 2, "spacing": {"type": "Explicit", "rates": [0.5]}}': ch.Sinusoidal(
        2, spacing=Explicit((0.5,))
    ),
}


@every("text, spec", WRITTEN.items())
def test_short_json_is_taken(text, spec):
    assert from_json(text) == spec


def test_numpy_numbers_are_written_as_numbers():
    assert from_json(to_json(ch.Sinusoidal(np.int64(4), base=np.float32(10)))) == ch.Sinusoidal(4, base=10.0)


TYPES = f"Specs are {', '.join(kind.__name__ for kind in specs.WRITTEN)}."


def test_specs_in_words_and_what_is_none(cases):
    sentences.hold("specs", cases)
    known = f"Types are {', '.join(kind.__name__ for kind in (*specs.WRITTEN, *specs.PARTS))}."
    for text, message, hint in (
        ('{"type": "RoPE9"}', "There is no spec of type 'RoPE9'.", known),
        ('{"type": "Geometric"}', "Geometric is a part of a spec, not a spec.", TYPES),
    ):
        with cases(text), pytest.raises(InvalidValue, match=f"^{re.escape(message)}\nhint: {re.escape(hint)}$"):
            from_json(text)


@every("depth", [50, 300, 900, 5_000])
def test_deep_nests_are_refused(depth):
    text = '{"type": "Sinusoidal", "width": ' * depth + "4" + "}" * depth
    with pytest.raises(ClockhandsError):
        from_json(text)
    data = 4
    for _ in range(depth):
        data = {"type": "Sinusoidal", "width": data}
    with pytest.raises(ClockhandsError):
        from_dict(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["open", "halves"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
NAMES = [kind.__name__ for kind in (*specs.WRITTEN, *specs.PARTS)]
FIELDS = sorted({field.name for kind in (*specs.WRITTEN, *specs.PARTS) for field in dataclasses.fields(kind)})


def like_specs(values):
    return st.builds(
        lambda name, fields: {"type": name, **fields},
        st.sampled_from(NAMES),
        st.dictionaries(st.sampled_from(FIELDS), values, max_size=4),
    )


@given(JSON | like_specs(JSON | like_specs(JSON)))
@example({"type": "Sinusoidal", "width": 4, "layout": {}})
@example({"type": "WarpedPosition", "width": 4, "warp": [[]]})
@example({"type": "Geometric", "base": 0.5, "span": 1e-300})
@example({"type": "EvenlySpaced", "width": 2, "first_rate": 1e300})
@settings(max_examples=60)
def test_any_json_is_a_spec_or_refused_in_words(data):
    for make in (lambda: from_json(json.dumps(data)), lambda: from_dict(data)):
        refusal = None
        try:
            spec = make()
        except ClockhandsError as error:
            refusal = error
        if refusal is None:
            assert from_json(to_json(spec)) == spec
        else:
            assert refusal.message.endswith(".")
            assert refusal.hint.endswith((".", "?"))


@pytest.mark.slow
@given(like_specs(JSON | like_specs(JSON)))
@settings(max_examples=5_000)
def test_much_json_is_a_spec_or_refused_in_words(data):
    try:
        spec = from_dict(data)
    except ClockhandsError:
        return
    assert from_json(to_json(spec)) == spec


@given(st.sampled_from([*WRITTEN]), st.data())
@settings(max_examples=60)
def test_one_value_of_a_spec_may_be_anything(text, data):
    known = json.loads(text)
    name = data.draw(st.sampled_from(sorted(known)))
    known[name] = data.draw(JSON)
    try:
        spec = from_dict(known)
    except ClockhandsError:
        return
    assert from_dict(to_dict(spec)) == spec


@given(st.text(max_size=20) | st.binary(max_size=20))
def test_any_text_is_a_spec_or_refused_in_words(text):
    with pytest.raises(ClockhandsError):
        from_json(text)


def test_a_spec_is_shown_in_one_line_by_the_call_that_makes_it(cases):
    names = {kind.__name__: kind for kind in (*specs.WRITTEN, *specs.PARTS)}
    whole = 0
    for row in (*ch.presets.presets(), *scores_and_parts()):
        spec = getattr(row, "spec", row)
        with cases(repr(spec)):
            assert len(repr(spec)) <= 120
            assert "\n" not in repr(spec)
            if "..." not in repr(spec):
                assert eval(repr(spec), names) == spec
                whole += 1
    assert whole > 100
    assert repr(ch.Rotary(64, base=5e5)) == "Rotary(head_width=64, spacing=Geometric(base=500000.0))"
    assert repr(ch.Rotary(64, axes=(0,) * 16 + (1,) * 16)) == "Rotary(head_width=64, axes=(0, 0, 0, 0, ... 32 in all))"


def scores_and_parts():
    yield from (Yarn(4.0, 4096), Yarn(4.0, 4096, attention_factor=1.0), Dynamic(2.0, 64), Explicit((1.0,) * 900))
    yield from (LongRope((1.0,) * 64, (2.0,) * 64, 4096, 32.0), EvenSteps(1.0, 2.0), ch.biases.Slopes((0.5,) * 40))
    yield ch.scores.LogScale(4096)


# --- what is no spec -------------------------------------------------------------------------------------------


@every("make", [to_dict, to_json, describe, with_fields])
@every(
    "value, shown",
    [
        (3, "int 3"),
        (Geometric(), "Geometric Geometric()"),
        (None, "NoneType None"),
    ],
)
def test_only_specs_are_written_described_and_changed(make, value, shown):
    with pytest.raises(InvalidType, match=f"^{re.escape(f'Expected a spec, got {shown}.')}\nhint: {re.escape(TYPES)}$"):
        make(value)


def test_scalings_of_the_callers_own_are_described_and_not_written():
    def own(ladder, _=None):
        return ladder

    spec = ch.Rotary(8, scaling=own)
    assert "own" in describe(spec)
    expected = r"^function cannot be written as JSON in a spec\.\nhint: Use one of Geometric, EvenSteps, Explicit,"
    with pytest.raises(InvalidType, match=expected):
        to_json(spec)
