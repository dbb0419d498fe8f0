"""What is wrong with rates, tables and slopes: one word and one advice at every place where clockhands meets them."""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import clockhands as ch
from auditing.model_files import audited
from clockhands.auditing import CODES
from clockhands.configs.resolve import code_of
from clockhands.encodings.scaling import Linear, Llama3, LongRope, Ntk, Yarn
from clockhands.errors import InvalidValue
from clockhands.recognition.diagnosis import hint_of, of_array, of_rates
from clockhands.recognition.faults import FAULTS
from clockhands.runtimes import compared
from recognition.faults import drawn

WIDTH, PAIRS = 128, 64
_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_SHORT, _LONG = np.linspace(1.0, 1.3, PAIRS), np.linspace(1.0, 40.0, PAIRS)
_LONGROPE = {
    "rope_type": "longrope",
    "short_factor": _SHORT.tolist(),
    "long_factor": _LONG.tolist(),
    "original_max_position_embeddings": 4096,
}
# Each code, and the keys of a config that declare it.
SPECS: dict[str, tuple[ch.Rotary, dict[str, Any]]] = {
    "plain": (ch.Rotary(WIDTH, base=500_000), {}),
    "linear": (ch.Rotary(WIDTH, scaling=Linear(4)), {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "llama3": (
        ch.Rotary(WIDTH, base=500_000, scaling=Llama3(8, 8192)),
        {"rope_scaling": _LLAMA3 | {"original_max_position_embeddings": 8192}},
    ),
    "yarn": (
        ch.Rotary(WIDTH, base=1_000_000, scaling=Yarn(4, 32768)),
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
    ),
    "longrope": (
        ch.Rotary(WIDTH, scaling=LongRope(tuple(_SHORT), tuple(_LONG), 4096, 32.0), length=4096),
        {"model_type": "phi3", "original_max_position_embeddings": 4096, "rope_scaling": _LONGROPE},
    ),
}


def other_base(spec: ch.Rotary) -> ch.Rotary:
    return replace(spec, spacing=replace(spec.spacing, base=20_000.0))


def other_factor(spec: ch.Rotary) -> ch.Rotary:
    assert spec.scaling is not None
    return replace(spec, scaling=replace(spec.scaling, factor=12.0))


def plain(spec: ch.Rotary) -> ch.Rotary:
    return replace(spec, scaling=None)


def other_scaling(spec: ch.Rotary) -> ch.Rotary:
    return replace(spec, scaling=Ntk(4.0) if isinstance(spec.scaling, Linear) else Linear(4.0))


def twice(spec: ch.Rotary) -> np.ndarray:
    once, before = np.array(spec.rates), np.array(plain(spec).rates)
    return once * once / before


def bfloat16(rates: Any) -> np.ndarray:
    return np.array(rates).astype(ml_dtypes.bfloat16).astype(np.float64)


def float16(rates: Any) -> np.ndarray:
    return np.array(rates).astype(np.float16).astype(np.float64)


def permuted(rates: Any) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.array(rates))


def mirrored(rates: Any) -> np.ndarray:
    """The bytes of each number in the other order; some are no numbers then."""
    with np.errstate(invalid="ignore"):
        return np.array(rates, "<f4").view(">f4").astype(np.float64)


def memory() -> np.ndarray:
    """What a buffer holds that nobody filled: some zeros, some numbers of any size."""
    found = np.random.default_rng(0).standard_normal(PAIRS) * 10.0 ** np.random.default_rng(1).integers(-30, 20, PAIRS)
    return np.where(np.arange(PAIRS) % 3, found, 0.0)


Make = Callable[[ch.Rotary], Any]
# The cause, and what makes it of the right code. A cause "" is right.
CASES: dict[str, tuple[str, Make]] = {
    "right": ("", lambda spec: spec.rates),
    "another base": ("of-another-base", lambda spec: other_base(spec).rates),
    "another factor": ("of-another-factor", lambda spec: other_factor(spec).rates),
    "unscaled": ("unscaled", lambda spec: plain(spec).rates),
    "unscaled, bfloat16": ("unscaled", lambda spec: bfloat16(plain(spec).rates)),
    "unscaled, float16": ("unscaled", lambda spec: float16(plain(spec).rates)),
    "twice": ("scaled-twice", twice),
    "another scaling": ("of-another-scaling", lambda spec: other_scaling(spec).rates),
    "off by 1e-5": ("differs", lambda spec: np.array(spec.rates) * (1 + 1e-5)),
    "off by 1e-4": ("differs", lambda spec: np.array(spec.rates) * (1 + 1e-4)),
    "off by 2**-17": ("differs", lambda spec: np.array(spec.rates) * (1 + 2.0**-17)),
    "bfloat16": ("rounded", lambda spec: bfloat16(spec.rates)),
    "float16": ("rounded", lambda spec: float16(spec.rates)),
    "zeros": ("zero", lambda _: np.zeros(PAIRS)),
    "memory": ("uninitialised", lambda _: memory()),
    "permuted": ("differs", lambda spec: permuted(spec.rates)),
    "NaN": ("uninitialised", lambda _: np.full(PAIRS, np.nan)),
    "bytes in another order": ("reread", lambda spec: mirrored(spec.rates)),
    # Combinations that no rule names.
    "another base, unscaled": ("of-another-base", lambda spec: other_base(plain(spec)).rates),
    "another base, another factor": ("of-another-base", lambda spec: other_factor(other_base(spec)).rates),
    "another base, twice": ("of-another-base", lambda spec: twice(other_base(spec))),
    "another base, bfloat16": ("of-another-base", lambda spec: bfloat16(other_base(spec).rates)),
    "another factor, bfloat16": (
        "of-another-factor",
        lambda spec: bfloat16(other_factor(spec).rates),
    ),
    "unscaled, permuted": ("unscaled", lambda spec: permuted(plain(spec).rates)),
}
# LongRoPE's rates do not follow from a factor, and what its lists do to other ladders is not asked.
NOT_FOR = {
    "plain": {name for name in CASES if any(word in name for word in ("scal", "factor", "twice"))},
    "longrope": {name for name in CASES if any(word in name for word in ("another factor", "another scaling"))},
}

HEADS, ROWS = 16, 256
ADDED = ch.Sinusoidal(WIDTH)
WAVES = ch.Rotary(WIDTH)  # of the same rates
SLOPED = ch.Alibi(HEADS)


def rounded(to: Callable[[Any], np.ndarray], spec: ch.Rotary, rates: Any) -> np.ndarray:
    """The table of these rates, rounded number by number."""
    table = spec.attention_factor * turns(rates)
    return to(table.real) + 1j * to(table.imag)


def turns(rates: Any) -> np.ndarray:
    """``cos + i sin`` of the first positions."""
    return np.exp(1j * np.outer(np.arange(ROWS), rates))


# What is wrong with a table beside its rates.
OF_NUMBERS: dict[str, tuple[str, Make]] = {
    "numbers, bfloat16": ("rounded", lambda spec: rounded(bfloat16, spec, spec.rates)),
    "numbers, float16": ("rounded", lambda spec: rounded(float16, spec, spec.rates)),
    "zero numbers": ("zero", lambda _: np.zeros((ROWS, PAIRS), complex)),
    "numbers of memory": ("uninitialised", lambda _: np.outer(np.ones(ROWS), memory() * (1 + 1j))),
    "one row of NaN": (
        "uninitialised",
        lambda spec: np.where(np.arange(ROWS)[:, None] == 200, np.nan, spec.attention_factor * turns(spec.rates)),
    ),
    "backward": ("differs", lambda spec: spec.attention_factor * turns(spec.rates).conj()),
    "one position late": ("differs", lambda spec: np.roll(spec.attention_factor * turns(spec.rates), 1, axis=0)),
    # Combinations that no rule names.
    "another base, numbers in bfloat16": (
        "of-another-base",
        lambda spec: rounded(bfloat16, spec, other_base(spec).rates),
    ),
    "unscaled, numbers in float16": ("unscaled", lambda spec: rounded(float16, spec, plain(spec).rates)),
}
# A table of no rates has cosines of 1: memory and zeros are asked as numbers.
NO_RATES = {"zeros", "memory", "NaN", "bytes in another order"}
OF_TABLES = {name: case for name, case in CASES.items() if name not in NO_RATES} | OF_NUMBERS
OF_SLOPES: dict[str, tuple[str, Any]] = {
    "right": ("", SLOPED.slopes),
    "bfloat16": ("rounded", bfloat16(SLOPED.slopes)),
    "float16": ("rounded", float16(SLOPED.slopes)),
    "zeros": ("zero", np.zeros(HEADS)),
    "memory": ("uninitialised", memory()[:HEADS]),
    "NaN": ("uninitialised", np.full(HEADS, np.nan)),
    "permuted": ("differs", permuted(SLOPED.slopes)),
    "off by 1e-5": ("differs", np.array(SLOPED.slopes) * (1 + 1e-5)),
    "off by 1e-4": ("differs", np.array(SLOPED.slopes) * (1 + 1e-4)),
    "of twice as many heads": ("differs", ch.Alibi(2 * HEADS).slopes[:HEADS]),
    "permuted, bfloat16": ("differs", bfloat16(permuted(SLOPED.slopes))),
}


def pairs_of(cases: dict[str, Any], ladders: Iterable[str] = SPECS) -> list[tuple[str, str]]:
    """Each ladder with each case that it can have."""
    left_out = NOT_FOR | {"plain": {*NOT_FOR["plain"], *(case for case in cases if case.startswith("unscaled"))}}
    return [(name, case) for name in ladders for case in cases if case not in left_out.get(name, ())]


def one_of_each_cause(table: dict[str, Any], pairs: list[tuple[str, str]], draw: Any) -> list[tuple[str, str]]:
    """Of the pairs of each cause, one that is drawn."""
    causes = sorted({table[case][0] for _, case in pairs})
    return [one for cause in causes for one in draw([pair for pair in pairs if table[pair[1]][0] == cause], 1)]


@dataclass(frozen=True)
class Met:
    """Wrong numbers, as an entry point meets them."""

    spec: Any
    keys: dict[str, Any]
    numbers: np.ndarray
    kind: str
    folder: Path

    @property
    def name(self) -> str:
        return {"rates": "inv_freq", "turns": "freqs_cis", "rows": "pe", "slopes": "slopes"}[self.kind]

    @property
    def config(self) -> dict[str, Any]:
        if self.kind == "slopes":
            return {"model_type": "bloom", "hidden_size": 64, "n_layer": 2, "n_head": HEADS, "vocab_size": 100}
        return {
            "model_type": "llama", "hidden_size": WIDTH * 2, "num_hidden_layers": 2, "num_attention_heads": 2,
            "head_dim": WIDTH, "vocab_size": 100, "max_position_embeddings": 131072, "rope_theta": self.spec.base,
        } | self.keys  # fmt: skip

    @property
    def tensor(self) -> Any:
        torch = pytest.importorskip("torch")
        return torch.from_numpy(self.numbers.astype(np.complex64 if np.iscomplexobj(self.numbers) else np.float32))

    @property
    def model(self) -> Any:
        """A model whose layers hold these numbers."""
        torch = pytest.importorskip("torch")
        from auditing import written_modules as written

        model = written.Model(
            lambda: written.Halves(WIDTH) if self.kind == "rates" else torch.nn.Module(), self.config, layers=2
        )
        for layer in model.layers:
            part = layer.rotary_emb
            if self.kind == "rates":
                part.inv_freq = self.tensor
            else:
                part.register_buffer(self.name, self.tensor, persistent=False)
        return model


def of_verdict(verdict: Any) -> tuple[str, str]:
    return (verdict.cause or "", verdict.hint) if verdict is not None else ("", "")


def of_engine(met: Met) -> tuple[str, str]:
    if met.kind == "rates":
        return of_verdict(of_rates(met.numbers, met.spec))
    kind = met.kind if met.kind == "slopes" else "table"
    found = of_array(met.numbers, met.spec, kind, met.name)
    assert found is not None
    return of_verdict(found.verdict)


def of_finding(audit: Any, prefixes: tuple[str, ...]) -> tuple[str, str]:
    found = [one for one in audit.findings if one.code.startswith(prefixes) and one.code != "stored-frequencies"]
    assert len(found) <= 1, [one.code for one in found]
    return (found[0].code, found[0].hint) if found else ("", "")


def of_file(met: Met) -> tuple[str, str]:
    tensors = {"model.layers.0.self_attn.rotary_emb.inv_freq": met.numbers.astype(np.float32)}
    found = audited(met.folder, {"config.json": met.config, "model.safetensors": tensors})
    return of_finding(found, ("stored-frequencies-",))


def of_loaded(met: Met) -> tuple[str, str]:
    return of_finding(ch.audit(met.model), ("buffer-", "slopes-"))


def of_check(met: Met) -> tuple[str, str]:
    pytest.importorskip("torch")
    from clockhands.testing.modules._module_tensors import wrong_tensors

    found = wrong_tensors(met.model, met.spec)
    return (found[0].code, hint_of(found[0].code)) if found else ("", "")


def of_state_dict(met: Met) -> tuple[str, str]:
    pytest.importorskip("torch")
    from clockhands.torch import without_computed

    try:
        assert without_computed({met.name: met.tensor}, met.spec) == {}
    except InvalidValue as wrong:
        code = wrong.message.partition("does not make (")[2].partition(")")[0]
        return code, wrong.hint.removesuffix(" If the key is removed from the state dict, the spec's numbers are used.")
    return "", ""


def of_readers(met: Met) -> tuple[str, str]:
    """Another reader of the same file, whose rates these are."""
    ours = code_of(met.spec, None, None)
    (parted,) = compared([ours], [replace(ours, spec=None, rates=tuple(met.numbers.tolist()))])
    return of_verdict(parted.verdict)


RATES = {
    "engine": of_engine, "file": of_file, "loaded": of_loaded, "check": of_check, "state dict": of_state_dict,
    "readers": of_readers,
}  # fmt: skip
TABLES = {"engine": of_engine, "loaded": of_loaded, "check": of_check, "state dict": of_state_dict}


def same(found: tuple[str, str], cause: str) -> None:
    """The word of the cause is in the code, and the advice is the engine's."""
    code, hint = found
    assert (cause.removesuffix("s") if cause == "differs" else cause) in code
    assert bool(code) == bool(cause)
    if cause:
        wanted = code if code == "slopes-differ" else f"buffer-{cause}"
        assert hint == hint_of(wanted)


def rates_at(entry: str, name: str, case: str, folder: Path) -> None:
    (spec, keys), (cause, make) = SPECS[name], CASES[case]
    # A linear scaling was a division of positions in older code, whose stored rates are therefore the plain ones.
    if (entry, name, case) == ("file", "linear", "unscaled"):
        cause = ""
    same(RATES[entry](Met(spec, keys, np.array(make(spec), np.float32).astype(np.float64), "rates", folder)), cause)


def table_at(entry: str, name: str, case: str, folder: Path) -> None:
    (spec, keys), (cause, make) = SPECS[name], OF_TABLES[case]
    made = np.array(make(spec))
    # Rates in bfloat16 make a table of rounded rates, not of rounded numbers: it is the same word.
    table = made if made.ndim == 2 else spec.attention_factor * turns(made)
    same(TABLES[entry](Met(spec, keys, table.astype(np.complex64).astype(complex), "turns", folder)), cause)


def rows_at(entry: str, case: str, folder: Path) -> None:
    cause, make = OF_TABLES[case]
    made = np.array(make(WAVES))
    table = made if made.ndim == 2 else turns(made)
    rows = np.stack([table.imag, table.real], axis=-1).reshape(ROWS, WIDTH)
    same(TABLES[entry](Met(ADDED, {}, rows, "rows", folder)), cause)


def slopes_at(entry: str, case: str, folder: Path) -> None:
    cause, numbers = OF_SLOPES[case]
    same(TABLES[entry](Met(SLOPED, {}, np.array(numbers), "slopes", folder)), cause)


# Every case with some of its ladders, which are drawn, or with all.
some_or_all = pytest.mark.parametrize("number", [2, pytest.param(len(SPECS), marks=pytest.mark.slow)])


def ladders_of(table: dict[str, Any], number: int, draw: Any) -> list[tuple[str, str]]:
    pairs = pairs_of(table)
    return [one for case in table for one in draw([pair for pair in pairs if pair[1] == case], number)]


@some_or_all
def test_the_engine_names_the_cause_of_wrong_rates(number: int, cases, draw, tmp_path: Path):
    for pair in ladders_of(CASES, number, draw):
        with cases(*pair):
            rates_at("engine", *pair, tmp_path)


@pytest.mark.parametrize("number", [8, pytest.param(400, marks=pytest.mark.slow)])
def test_the_engine_names_the_cause_of_wrong_rates_of_random_ladders(number: int):
    """Two causes may make the same rates of a few pairs; what differs beyond float32 is always told."""
    draw, named = random.Random(number), Counter()
    for _ in range(number):
        spec = drawn.rotary(draw, "numpy", partial=False)
        right, kind = np.float32(spec.rates).astype(float), type(spec.scaling)
        assert of_verdict(of_rates(right, spec)) == ("", ""), spec
        left_out = NOT_FOR["plain"] if spec.scaling is None else NOT_FOR["longrope"] if kind is LongRope else set()
        for name in ("another base", "another factor", "unscaled", "off by 1e-4", "bfloat16", "float16"):
            cause, make = CASES[name]
            wrong = right if name in left_out else np.float32(make(spec)).astype(float)
            if not np.allclose(wrong, right, rtol=2.0**-18, atol=0):
                found = of_rates(wrong, spec)
                assert found is not None, (spec, name)
                named[found.cause == cause] += 1
    assert named[True] >= 0.95 * named.total(), named


def test_rates_made_by_an_exponential_are_right(cases):
    for base, width in ((1e4, 32), (5e5, 64), (1e6, 128), (8e6, 64), (11158840.0, 128), (8e7, 32)):
        steps, logarithm, whole = np.arange(0, width, 2, dtype=np.float32), np.log(np.float32(base)), np.float32(width)
        for way, rates in {
            "a constant": np.exp(steps * (-logarithm / whole)),
            "three factors": np.exp(-logarithm * steps / whole),
            "a quotient": 1 / np.exp(logarithm * (steps / whole)),
        }.items():
            with cases(base, width, way):
                assert of_verdict(of_rates(rates.astype(float), ch.Rotary(width, base=base))) == ("", "")


@some_or_all
def test_the_engine_names_the_cause_of_a_wrong_table(number: int, cases, draw, tmp_path: Path):
    """Of wrong rates, all of which are asked as rates, the quick test makes a table with one ladder each."""
    alone = {name: case for name, case in OF_TABLES.items() if name not in OF_NUMBERS}
    for pair in ladders_of(OF_NUMBERS, number, draw) + ladders_of(alone, number if number > 2 else 1, draw):
        with cases(*pair):
            table_at("engine", *pair, tmp_path)


def test_the_engine_names_the_cause_of_wrong_rows_and_slopes(cases, tmp_path: Path):
    for _, case in pairs_of(OF_TABLES, ["plain"]):
        with cases("rows", case):
            rows_at("engine", case, tmp_path)
    for case in OF_SLOPES:
        with cases("slopes", case):
            slopes_at("engine", case, tmp_path)


@pytest.mark.parametrize("entry", [name for name in RATES if name != "engine"])
def test_rates_have_the_same_word_and_the_same_advice_everywhere(entry: str, cases, draw, tmp_path: Path):
    for pair in [("linear", "unscaled"), *one_of_each_cause(CASES, pairs_of(CASES), draw)]:
        with cases(*pair):
            rates_at(entry, *pair, tmp_path)


@pytest.mark.parametrize("entry", [name for name in TABLES if name != "engine"])
def test_numbers_have_the_same_word_and_the_same_advice_everywhere(entry: str, cases, draw, tmp_path: Path):
    for pair in one_of_each_cause(OF_TABLES, pairs_of(OF_TABLES), draw):
        with cases("table", *pair):
            table_at(entry, *pair, tmp_path)
    for _, case in one_of_each_cause(OF_SLOPES, [("", case) for case in OF_SLOPES], draw):
        with cases("slopes", case):
            slopes_at(entry, case, tmp_path)
    for _, case in one_of_each_cause(OF_TABLES, pairs_of(OF_TABLES, ["plain"]), draw) if entry != "loaded" else ():
        with cases("rows", case):
            rows_at(entry, case, tmp_path)


def test_rates_of_a_code_that_is_added_are_held_to_its_ladder(tmp_path: Path):
    for numbers, cause in (
        (ADDED.rates, ""),
        (np.zeros(PAIRS), "zero"),
        (ch.Rotary(WIDTH, base=500.0).rates, "differs"),
    ):
        same(of_state_dict(Met(ADDED, {}, np.array(numbers), "rates", tmp_path)), cause)


def test_what_a_table_behaves_as_is_said_where_it_holds_for_every_number(cases):
    """Only of rounded numbers a few may differ, on an edge between two."""
    for words, make in (
        ("one that rotates backward", lambda spec: turns(spec.rates).conj()),
        ("the declared one times 1.5", lambda spec: 1.5 * turns(spec.rates)),
    ):
        table = make(WAVES)
        with cases(words):
            assert of_array(table, WAVES, "table", "freqs_cis").verdict.evidence["behaves as"] == words
            table[100, 3] += 0.25
            assert "behaves as" not in of_array(table, WAVES, "table", "freqs_cis").verdict.evidence


def test_one_hint_for_each_code():
    for code in set(CODES) & set(FAULTS):
        assert CODES[code].hint == FAULTS[code].hint


KEPT: dict[str, tuple[Any, Any, str]] = {
    "freqs_cis": (WAVES, other_base(WAVES), "cosines and sines"),
    "pe": (ADDED, ch.Sinusoidal(WIDTH, base=20_000.0), "rows"),
}


@pytest.mark.parametrize("name", KEPT)
def test_check_module_says_which_base_the_table_has_that_it_turns_by(name: str):
    torch = pytest.importorskip("torch")
    from clockhands.testing import check_module

    spec, other, what = KEPT[name]

    class Kept(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            made = turns(other.rates) if name == "freqs_cis" else ch.table(other, ROWS)
            kind = torch.complex64 if name == "freqs_cis" else torch.float32
            self.register_buffer(name, torch.from_numpy(made).to(kind), persistent=False)

        def forward(self, x: Any, positions: Any) -> Any:
            if name == "pe":
                return x + self.pe[positions].to(x.dtype)
            first, second = x.chunk(2, dim=-1)
            turned = torch.complex(first.float(), second.float()) * self.freqs_cis[positions]
            return torch.cat([turned.real, turned.imag], dim=-1).to(x.dtype)

    report = check_module(Kept(), spec, length=ROWS, raises=False)
    first = report.explanations[0]
    assert (first.codes, first.where) == (("buffer-of-another-base",), name)
    assert first.message == f"has the {what} of base 20,000 instead of 10,000."
    assert first.hint == hint_of("buffer-of-another-base")


FLOATS = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_bytes_that_were_read_as_another_type_are_told_from_memory(cases):
    for name, held_as, read_as in itertools.product(("plain", "llama3"), FLOATS, FLOATS):
        with cases(name, held_as, read_as):
            spec, _ = SPECS[name]
            read = np.array(spec.rates).astype(FLOATS[held_as]).view(FLOATS[read_as]).astype(np.float64)
            verdict = of_rates(read, spec, read_as)
            if held_as == read_as:
                assert verdict.code in {None, "buffer-rounded"}
            else:
                assert verdict.code == "buffer-reread"
                assert (verdict.evidence["bytes of"], verdict.evidence["read as"]) == (held_as, read_as)


def test_whole_numbers_that_are_the_bits_of_rates_are_told():
    spec, _ = SPECS["llama3"]
    bits = np.array(spec.rates, np.float32).view(np.int32).astype(np.float32).astype(np.float64)
    assert of_rates(bits, spec).evidence["read as"] == "int32"


def test_a_loaded_model_whose_frequencies_were_viewed_says_so():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=32
    )
    model = transformers.LlamaModel(config)
    model.rotary_emb.inv_freq = model.rotary_emb.inv_freq.view(torch.bfloat16)
    found = {one.code: one.message for one in ch.audit(model).findings}
    assert (
        "were read as bfloat16. If the bytes are read as float32, the frequencies are those" in found["buffer-reread"]
    )
    assert "buffer-uninitialised" not in found
