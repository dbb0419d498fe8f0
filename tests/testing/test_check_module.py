"""Modules as people write them, in pairs that differ by one fault: the wrong one is named, the right one passes."""

import functools
import importlib

import pytest

import clockhands as ch
from clockhands.encodings.additive import AxialSinusoidal
from clockhands.encodings.scaling import Linear
from clockhands.errors import InvalidType, InvalidValue
from clockhands.testing import CannotCheck, CheckFailed, check_module

LAYOUTS = ("halves", "interleaved")


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def twins():
    pytest.importorskip("torch")
    return importlib.import_module("testing.module_twins")


def spec_of(layout, **more):
    return ch.Rotary(32, base=500_000.0, layout=layout, **more)


# Wrong and right, the code, the treatment that fails, the tensor to blame.
PAIRS = {
    "D2#1": ("NeverReset", "Guarded", "lost-by-to-empty", "to_empty", "inv_freq"),
    "D2#7": ("CastAlong", "Guarded", "cast-changes-numbers", "cast to bfloat16", "inv_freq"),
    "default": ("DefaultDtype", "Guarded", "buffer-rounded", "built with bfloat16 as default", "inv_freq"),
    "called per layer": ("HalvedCalls", "Formula", "shared-object-mutated", "repeated call", None),
    "counted": ("Counted", "Formula", "changes-with-each-call", "repeated call", None),
    "deepcopy": ("DefaultWhenCopied", "Formula", "lost-by-deepcopy", "deepcopy", None),
    "pickle": ("BaseWrittenOff", "Formula", "lost-by-pickle", "pickle", None),
    "state dict": ("GrowingTable", "HiddenTable", "lost-by-state-dict", "state dict", None),
    "training": ("CoarseWhenTrained", "Formula", "mode-changes-numbers", "training mode", None),
    "autocast": ("MatrixProduct", "GuardedProduct", "autocast-changes-numbers", "autocast", None),
    "first dtype": ("FirstDtype", "EachDtype", "cache-keeps-first-dtype", "after bfloat16 tokens", None),
    "D2#24": ("Longest", "Recomputed", "remembers-longest", "after a longer sequence", None),
}


def test_a_fault_is_named_and_its_twin_passes(twins, cases):
    right_ones = set()
    for number, (name, (wrong, right, code, treatment, where)) in enumerate(PAIRS.items()):
        layout = LAYOUTS[number % 2]
        with cases(name, layout):
            make = functools.partial(twins.built, wrong, layout)
            report = check_module(make(), make=make, raises=False)
            assert treatment in {failure.experiment for failure in report.failures}, report
            explanation = next(one for one in report.explanations if code in one.codes)
            assert explanation.where == where
            right_ones.add((right, layout))
    for each in right_ones:
        with cases(*each):
            check_module(twins.built(*each), make=functools.partial(twins.built, *each))


def test_only_the_fault_that_there_is_gets_named(twins, cases):
    for number, name in enumerate(("D2#1", "D2#7", "training", "autocast", "D2#24")):
        layout, (wrong, _, code, _, _) = LAYOUTS[number % 2], PAIRS[name]
        with cases(name):
            like = spec_of(layout) if name != "D2#24" else None
            report = check_module(twins.built(wrong, layout), like, raises=False)
            assert [code] == [one for each in report.explanations for one in each.codes], report


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_module_of_a_spec_is_held_to_its_exact_numbers(twins, layout):
    spec = spec_of(layout)
    for kind in (twins.Formula, twins.Guarded):
        report = check_module(
            twins.built(kind, layout), spec, make=lambda own, kind=kind: kind(own.head_width, own.base, layout=layout)
        )
        assert {"every position", "two models of different bases", "cast to bfloat16"} <= set(report.experiments)
    with pytest.raises(CheckFailed, match="base 10,000 instead of 500,000") as caught:
        check_module(twins.Formula(32, layout=layout), spec)
    assert caught.value.report.kind == "module"


def deep_call(module, x, positions):
    return module["attention"]["rotary"](x, positions)


# D2 #3 to #6: the numbers are wrong before anything is done.
HELD = {
    "zeros": (("buffer-zero",), ""),
    "garbage": (
        ("buffer-uninitialised",),
        "16 of 16 are wrong, pair 15 has 0.009904617 rad/token, expected 4.54167e-06",
    ),
    "rounded": (("buffer-rounded",), "bfloat16"),
    "another base": (("buffer-of-another-base",), "base 10,000 instead of 500,000"),
    "no scaling": (("scaling-inert", "buffer-unscaled"), "factor 8"),
}


def test_what_a_module_holds_is_named(twins, cases):
    right_ones = {}
    for number, (what, (codes, words)) in enumerate(HELD.items()):
        layout, factor = LAYOUTS[number % 2], twins.FACTOR if "scal" in what else 1.0
        spec = spec_of(layout, scaling=Linear(factor) if factor > 1 else None)
        with cases(what, layout):
            module = twins.deep(twins.holding(what, layout=layout, factor=factor))
            report = check_module(module, spec, call=deep_call, raises=False)
            first = report.explanations[0]
            assert first.where == "attention.rotary.inv_freq"
            assert set(first.codes) == set(codes)
            assert words in first.message
            if what == "zeros":
                assert "position-argument-ignored" not in report.codes or len(report.explanations) == 2
            if what == "another base":
                assert len(report.explanations) == 1
            right_ones[layout, factor] = spec
    for (layout, factor), spec in right_ones.items():
        with cases(layout, factor):
            check_module(twins.deep(twins.built(twins.Guarded, layout, factor=factor)), spec, call=deep_call)


def test_a_base_and_a_scaling_that_are_lost_together_are_both_said(twins):
    module, spec = twins.holding("another base", factor=8.0), spec_of("halves", scaling=Linear(8.0))
    (first, *_) = check_module(module, spec, raises=False).explanations
    assert first.codes == ("buffer-of-another-base",)
    assert first.message == (
        "has the frequencies of base 10,000 instead of 500,000, and no scaling: Linear, factor 8 is missing."
    )


def test_frequencies_that_are_filled_anew(twins):
    """D2 #6, #3, #4: by whoever builds it again, by what repairs the buffer after `to_empty`, by the caller."""
    spec = spec_of("halves", scaling=Linear(8.0))
    report = check_module(twins.built(twins.Guarded), spec, make=lambda: twins.built(twins.Guarded), raises=False)
    assert report.explanations[0].codes == ("scaling-inert",)
    spec = spec_of("interleaved", scaling=Linear(8.0))
    (one,) = check_module(twins.built(twins.ResetPlain, "interleaved", factor=8.0), spec, raises=False).explanations
    assert (one.codes, one.where) == (("buffer-unscaled", "lost-by-to-empty"), "inv_freq")
    (one,) = check_module(twins.built(twins.ResetZero), spec_of("halves"), raises=False).explanations
    assert one.codes == ("buffer-zero", "lost-by-to-empty")
    rates = twins.rates(32, twins.BASE)
    check_module(twins.built(twins.NeverReset), restore=lambda module: module.inv_freq.copy_(rates))


def test_a_table_without_its_base(twins):
    """D2 #13."""
    for kind, codes in ((twins.SharedTable, [("shared-table", "cache-without-base")]), (twins.WholeKey, [])):
        tables = {}

        def make(own, kind=kind, tables=tables):
            return kind(own.head_width, own.base, layout="interleaved", tables=tables)

        report = check_module(make=make, like=spec_of("interleaved"), raises=False)
        assert [one.codes for one in report.explanations[:1]] == codes, report
        assert report.sound != bool(codes)


def test_what_a_freed_model_leaves_to_later_ones(torch, twins):
    """D2 #14: queries are left as they are, by one object for all and by a copy that is a new one."""
    known = twins.built(twins.Known)
    report = check_module(make=lambda: known, raises=False)
    assert "after another was freed" in {failure.experiment for failure in report.failures}
    assert "shared-table" in report.codes
    # What others of the process hold is as it was.
    assert not known.inv_freq.is_meta
    assert known.inv_freq.dtype == torch.float32
    assert check_module(make=lambda: twins.built(twins.Known)).sound
    make = functools.partial(twins.built, "Lost", models=[])
    report = check_module(make=make, like=spec_of("halves"), raises=False)
    (one,) = [one for one in report.explanations if "shared-table" in one.codes]
    assert "it returns its tokens unchanged" in one.message


def test_what_all_layers_halve(twins):
    """D2 #15: an object, beside a spec, and a config; what differs at each call is told once."""
    report = check_module(twins.built("HalvedCalls"), spec_of("halves"), raises=False)
    assert report.explanations[0].codes == ("shared-object-mutated", "shrinks-each-call")
    assert "remembers-longest" not in report.codes
    wrong, right = {"width": 32, "rotated": 32}, {"width": 32, "rotated": 32}
    report = check_module(make=lambda: twins.HalvedConfig(wrong), raises=False, without=("after another was freed",))
    assert report.explanations[0].codes == ("shared-object-mutated",)
    assert "16 of its dimensions rotate, 32 rotated before" in report.explanations[0].message
    assert check_module(make=lambda: twins.ReadConfig(right, "interleaved")).sound


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cosines_and_sines(twins, layout):
    spec = spec_of(layout)
    report = check_module(twins.built(twins.Waves, layout), spec, call="x, positions -> cos, sin")
    assert "every position" in report.experiments
    check_module(twins.built(twins.Waves, layout), call="x, positions -> cos, sin", layout=layout)
    report = check_module(twins.built(twins.CastWaves, layout), spec, call="x, positions -> cos, sin", raises=False)
    assert report.explanations[0].codes == ("cast-changes-numbers",)


def test_a_module_of_cosines_and_sines_needs_no_word_on_how_it_is_called(twins):
    """By itself and beside a spec, as if the call were given."""
    for like in (None, spec_of("halves")):
        told, read = (
            check_module(twins.built(twins.Waves), like, call=call, raises=False)
            for call in ("x, positions -> cos, sin", None)
        )
        assert (read.codes, read.experiments) == (told.codes, told.experiments)
        assert read.called["shape"] == "function(x [batch, heads, seq, width], positions [batch, seq]) -> cos, sin"


def test_positions_are_whole_numbers_and_listened_to(twins):
    """D3 #3."""
    (one,) = check_module(twins.built(twins.FloatIds), call="x", raises=False).explanations
    assert (one.codes, one.where) == (("ids-of-floats",), "position_ids")
    assert "the first wrong position of those checked is 257" in one.message
    check_module(twins.built(twins.WholeIds), call="x")
    assert check_module(twins.built(twins.Deaf), raises=False).codes == {"position-argument-ignored"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_compiled(twins, layout):
    report = check_module(twins.built(twins.OtherWhenCompiled, layout), compile="eager", raises=False)
    assert report.codes == {"compile-changes-numbers"}
    if layout == "halves":
        assert "compiled" in check_module(twins.built(twins.Formula), compile=True).experiments
        assert "compiled" not in check_module(twins.built(twins.Formula)).experiments


def test_slopes_and_tables_that_are_added(twins):
    spec = ch.Alibi(heads=12)
    check_module(twins.Slopes(), spec)
    report = check_module(twins.CastSlopes(), call="queries, keys", raises=False)
    (one,) = report.explanations
    assert (one.codes, one.where) == (("cast-changes-numbers",), "slopes")
    assert one.message.startswith("returns different values after a cast (it is cast to bfloat16")
    spec = ch.Sinusoidal(width=32)
    check_module(twins.Sinusoids(), spec)
    report = check_module(twins.CastSinusoids(), spec, raises=False)
    assert [(one.codes, one.where) for one in report.explanations] == [(("cast-changes-numbers",), "frequencies")]
    assert report.called["notes"][0] == (
        "The module saves its computed buffer `frequencies` with its weights: loading a file with another base"
        " overwrites the buffer."
    )
    report = check_module(twins.Rows(), make=twins.Rows)
    assert {"cast to bfloat16", "cast to float16 and back", "to_empty", "built on the meta device"} <= set(
        report.experiments
    )


def test_the_package_s_own_modules():
    pytest.importorskip("torch")
    from clockhands.torch import Additive, Bias, Rotary

    for module, spec, make in (
        (Rotary, spec_of("halves"), Rotary),
        (Rotary, spec_of("interleaved"), Rotary),
        (Additive, ch.Sinusoidal(width=32), Additive),
    ):
        check_module(module(spec), spec, make=make, compile=spec.layout == "halves" and "eager")
    check_module(Bias(ch.Alibi(heads=4)), ch.Alibi(heads=4), method="matrix")


def test_the_caller_s_module_is_never_changed(torch, twins):
    module = twins.built(twins.CastAlong).train()
    module.kept = torch.ones(3)
    held, rates = module.inv_freq, module.inv_freq.clone()
    check_module(module, make=lambda: twins.built(twins.CastAlong), raises=False)
    assert module.inv_freq is held
    assert torch.equal(held, rates)
    assert module.training
    longest = twins.built(twins.Longest)
    check_module(longest, raises=False)
    assert longest.longest == 512
    growing = twins.built(twins.GrowingTable)
    check_module(growing, raises=False)
    assert len(growing.phases) == 0
    assert torch.get_default_dtype() == torch.float32


def test_treatments_can_be_left_out(twins):
    report = check_module(twins.built(twins.NeverReset), without=("to_empty",))
    assert report.left_out["to_empty"] == "left out by without="
    with pytest.raises(InvalidValue, match="without"):
        check_module(twins.built(twins.Formula), without=("melting",))


def test_what_cannot_be_checked(torch, twins):
    with pytest.raises(InvalidType, match=r"Expected a torch.nn.Module, or make=.*got 3"):
        check_module(3)
    with pytest.raises(InvalidType, match="got one that returns 3"):
        check_module(make=lambda: 3)
    with pytest.raises(CannotCheck, match=r"Linear|shape|raised"):
        check_module(torch.nn.Linear(4, 3))
    with pytest.raises(InvalidValue, match="`make` takes"):
        check_module(make=lambda spec: twins.Formula(spec.head_width))
    with pytest.raises(CannotCheck, match="positions up to 9,999"):
        check_module(twins.Rows(), length=10_000)


def test_what_stays_behind_when_the_module_moves(torch, twins):
    if torch.cuda.is_available():
        pytest.skip("with a GPU it is the GPU that is asked")
    report = check_module(twins.Kept(), raises=False)
    assert report.codes == {"left-behind-by-move"}
    assert "its attribute `kept` stays where it was" in report.explanations[0].message
    assert check_module(twins.Elsewhere()).sound


def test_the_bound_is_one_and_not_many_and_holds_at_one_position(twins):
    # Four roundings of a pair of length sqrt(2): the largest number of a turned pair is no larger.
    bound = 4 * 2.0**-24 * 2
    assert check_module(twins.Nudged(bound / 2)).sound
    report = check_module(twins.Nudged(2 * bound), raises=False)
    assert report.codes == {"mode-changes-numbers"}

    class At(twins.Nudged):
        def forward(self, x, positions):
            y = twins.Formula.forward(self, x, positions)
            return y + (positions == 257)[..., None] * (self.off if self.training else 0)

    report = check_module(At(1e-3), raises=False)
    (failure,) = report.failures
    assert failure.evidence["first wrong position"] == 257


def test_what_is_no_number_is_told_without_a_code_too(twins):
    module = twins.built(twins.Guarded)
    module.inv_freq[3] = float("nan")
    report = check_module(module, without=("to_empty",), raises=False)
    (one,) = report.explanations
    assert (one.codes, one.where) == (("buffer-uninitialised",), "inv_freq")
    assert "1 of 16 numbers of its buffer `inv_freq` are NaN" in one.message


def test_a_table_that_stays_rounded_is_a_note(torch, twins):
    class Table(twins.Sinusoids):
        def __init__(self):
            super().__init__()
            self.register_buffer("pe", super().forward(torch.zeros(64, 32), torch.arange(64)))

        def forward(self, x, positions):
            return x + self.pe[positions].to(x.dtype)

    report = check_module(Table(), ch.Sinusoidal(width=32))
    assert (
        "When it is cast to bfloat16 and back to float32, its values stay rounded, as learned ones do."
        in (report.called["notes"])
    )


def test_a_builder_that_fails_is_told():
    def make():
        raise KeyError("rope_theta")

    with pytest.raises(CannotCheck, match="`make` was called to build the module: it raised KeyError: 'rope_theta'"):
        check_module(make=make)


def test_a_module_in_bfloat16_is_asked_in_bfloat16(twins):
    report = check_module(twins.built(twins.Formula), spec_of("halves"), dtype="bfloat16")
    assert report.called["dtype"] == "bfloat16"
    assert "cast to bfloat16" not in report.experiments


def test_a_table_that_is_made_in_inference_mode(twins):
    report = check_module(twins.KeptPhases(), call="x", raises=False)
    assert report.codes == {"mode-changes-numbers"}
    assert "cannot be trained after it has run in torch.inference_mode" in report.explanations[0].message
    assert "training after inference" in check_module(twins.KeptNumbers(), call="x").experiments


def test_a_code_of_two_coordinates(torch):
    spec = AxialSinusoidal(width=16)

    class Cells(torch.nn.Module):
        def __init__(self, first=0):
            super().__init__()
            self.order = [first, 1 - first]

        def forward(self, x, positions):  # positions [seq, row and column]
            return ch.add(x, spec, positions[:, self.order])

    told = {"like": spec, "positions": "seq axes", "length": 100}
    check_module(Cells(), **told)
    assert check_module(Cells(first=1), raises=False, **told).codes == {"axes-exchanged"}
