"""Nothing fires on models that look wrong and are right, and what is read of them is what they are."""

import numpy as np

import clockhands as ch
from auditing.model_files import audited, fired
from auditing.odd_looking_files import right, sine_then_cosine

# Layers, turned channels and layout of each group of layers that turns.
READ = {
    "D6-07 DeepSeek: 64 of 192 dimensions rotate, head_dim is 64": [("0-60", 64, "interleaved")],
    "D6-13 GLM: half turns by the class's default": [("0-39", 64, "interleaved")],
    "D6-14 Command-R: 8,192 beside 131,072": [("0-39", 128, "interleaved")],
    "D6-15 SmolLM3: 1 in the list means that a layer turns": [
        (",".join(f"{first}-{first + 2}" for first in range(0, 36, 4)), 128, "halves")
    ],
    "D6-17 Nemotron-H: a base that no code reads": [],
    "D6-17 Jamba: no position encoding": [],
    "D6-18 Mllama: cross-attention does not turn": [("0-2,4-7,9-12,14-17,19-22,24-27,29-32,34-37,39", 128, "halves")],
    "D6-33 StableLM: a quarter turns by the class's default": [("0-31", 20, "halves")],
}


def test_a_model_that_looks_wrong_and_is_right_does_not_fire_and_is_read_as_what_it_is(cases, tmp_path):
    turning = {}
    for name, model in right().items():
        found = audited(tmp_path / name[:5] / str(len(turning)), model)
        turning[name] = [code for code in found.layers if code.kind == "rotary"]
        with cases(name):
            assert fired(found) == []
            read = [(code.layers, code.rotated, code.layout) for code in turning[name]]
            assert read == READ.get(name, read)
    assert READ.keys() < turning.keys()
    full = next(code for code in turning["D6-09 Gemma 4: three quarters of the pairs stand still"] if code.width == 512)
    assert (len(full.rates), full.rates.count(0.0)) == (256, 192)


def test_every_number_of_the_list_is_here():
    assert {name[:5] for name in right()} == {f"D6-{number:02}" for number in range(1, 35)}


def test_a_convention_that_looks_wrong_and_is_right_does_not_fire(cases, tmp_path):
    for preset in ("nanochat", "alibi", "alibi-symmetric", "bloom", "mpt", "whisper", "tensor2tensor"):
        with cases(preset):
            assert fired(ch.audit(preset)) == []
    for closed in (True, False):
        path = tmp_path / "table.npy"
        np.save(path, sine_then_cosine(512, 64, closed=closed))
        found = ch.audit(path)
        with cases("sines, then cosines", closed):
            assert fired(found) == []
            assert [finding.code for finding in found.findings if finding.code == "recognised"] == ["recognised"]
