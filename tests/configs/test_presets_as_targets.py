"""A preset is its own source; the length that the caller asks for still chooses the regime."""

from clockhands.configs.resolve import resolve
from clockhands.configs.targets import Opened
from clockhands.encodings.additive import AdditiveCode, Counter, Learned, NoPosition, Sinusoidal
from clockhands.encodings.biases import Alibi, Buckets, Kerple, Window
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Dynamic, Llama3


def only(spec, length=None):
    (code,) = resolve(Opened(target="mine", form="preset", spec=spec), length).codes
    return code


def test_a_rotary_spec():
    spec = Rotary(128, base=500000.0, rotated=64)
    code = only(spec)
    assert (code.kind, code.layers, code.spec, code.scaling) == ("rotary", None, spec, None)
    assert (code.width, code.rotated, code.base, len(code.rates), code.attention_factor) == (128, 64, 5e5, 32, 1.0)
    assert set(code.source.values()) == {"preset mine"}
    code = only(Rotary(128, base=5e5, scaling=Llama3(8.0, 8192)))
    assert code.scaling == {"type": "llama3", "factor": 8.0, "original": 8192}
    assert code.source["scaling"] == "preset mine"


def test_the_length_chooses_the_regime():
    spec = Rotary(128, scaling=Dynamic(2.0, 2048))
    assert only(spec).rates == Rotary(128).rates
    assert only(spec, 8192).rates[-1] < only(spec).rates[-1]


def test_specs_of_other_kinds(cases):
    """What is added has a width and stands at the input; a bias has neither."""
    for spec, kind, rows in (
        (Sinusoidal(width=4), "sinusoidal", None),
        (Learned(width=4, rows=10), "learned", 10),
        (NoPosition(width=4), "none", None),
        (Counter(width=4), None, None),
        (Alibi(8), "alibi", None),
        (Buckets(8), "buckets", None),
        (Window(3, 7, 7), "relative", None),
        (Kerple(4), None, None),
    ):
        with cases(spec):
            code = only(spec)
            added = isinstance(spec, AdditiveCode)
            assert (code.kind, code.spec, code.rows) == (kind, spec, rows)
            assert (code.layers, code.width) == (("input", 4) if added else (None, None))
            assert (code.rates is not None) == (kind == "sinusoidal")
    learned = only(Learned(8, 514, 2))
    assert (learned.usable_length, learned.source["usable_length"]) == (512, "preset mine")
    (code,) = resolve(Opened(target="preset:mine", form="preset", spec=Sinusoidal(width=4))).codes
    assert set(code.source.values()) == {"preset mine"}
