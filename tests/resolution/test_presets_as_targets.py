"""A preset is its own source; the length that the caller asks for still chooses the regime."""

import pytest

from clockhands.additive import Counter, Learned, NoPosition, Sinusoidal
from clockhands.biases import Alibi, Buckets, Kerple, Window
from clockhands.rotary import Rotary
from clockhands.scaling import Dynamic, Llama3
from clockhands.sources.resolve import resolve
from clockhands.sources.targets import Opened


def only(spec, length=None):
    (code,) = resolve(Opened(target="mine", form="preset", spec=spec), length).codes
    return code


def test_a_rotary_spec():
    spec = Rotary(128, base=500000.0, rotated=64)
    code = only(spec)
    assert (code.kind, code.layers, code.spec) == ("rotary", None, spec)
    assert (code.width, code.rotated, code.base, len(code.rates), code.attention_factor) == (128, 64, 5e5, 32, 1.0)
    assert set(code.source.values()) == {"preset mine"}


def test_the_scaling_of_a_preset_is_told():
    assert only(Rotary(128)).scaling is None
    code = only(Rotary(128, base=5e5, scaling=Llama3(8.0, 8192)))
    assert code.scaling == {"type": "llama3", "factor": 8.0, "original": 8192}
    assert code.source["scaling"] == "preset mine"


def test_the_length_chooses_the_regime():
    spec = Rotary(128, scaling=Dynamic(2.0, 2048))
    assert only(spec).rates == Rotary(128).rates
    assert only(spec, 8192).rates[-1] < only(spec).rates[-1]


@pytest.mark.parametrize(
    ("spec", "kind", "rows"),
    [
        (Sinusoidal(width=4), "sinusoidal", None),
        (Learned(width=4, rows=10), "learned", 10),
        (NoPosition(width=4), "none", None),
        (Counter(width=4), None, None),
    ],
)
def test_specs_that_are_added(spec, kind, rows):
    code = only(spec)
    assert (code.kind, code.layers, code.width, code.rows) == (kind, "input", 4, rows)
    assert (code.rates is not None) == (kind == "sinusoidal")


def test_a_forced_preset_is_named_once():
    (code,) = resolve(Opened(target="preset:mine", form="preset", spec=Sinusoidal(width=4))).codes
    assert set(code.source.values()) == {"preset mine"}


@pytest.mark.parametrize(
    ("spec", "kind"),
    [(Alibi(8), "alibi"), (Buckets(8), "buckets"), (Window(3, 7, 7), "relative"), (Kerple(4), None)],
)
def test_specs_of_biases(spec, kind):
    code = only(spec)
    assert (code.kind, code.layers, code.spec, code.width, code.rates) == (kind, None, spec, None, None)
