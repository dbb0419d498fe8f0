"""Nothing fires on models that look wrong and are right, and what is read of them is what they are.

`test_expected_findings` has the published configs, of which many look wrong, and `test_containers_elsewhere` files with
weights. Here are class defaults, numbers that only a thread names, and what is read of the oddest.
"""

import numpy as np

import clockhands as ch
from auditing import published_fields as of
from auditing.model_files import audit_of, fired
from auditing.published_fields import LLAMA3, LLAMA_31, without

UNPUBLISHED = (
    "APERTUS", "BARE_BASE", "DINOV3", "DOTS3_NOTE", "FUYU", "GEMMA3_4B", "GLM52", "GRANITE_SWA", "HY_V3", "LONGFORMER",
    "NANOCHAT", "PHI35", "PHI4_MINI", "QWEN25_VL",
)  # fmt: skip
GLM = without(of.GLM4_9B, "partial_rotary_factor")
# Layers, turned channels and layout of each group of layers that turns.
READ = {
    "DeepSeek: 64 of 192 dimensions rotate, head_dim is 64": (
        of.DEEPSEEK_V3 | {"head_dim": 64}, [("0-60", 64, "interleaved")],
    ),
    "GLM: half turns by the class's default": (GLM, [("0-39", 64, "interleaved")]),
    "Command-R: 8,192 beside 131,072": (of.COMMAND_R, [("0-39", 128, "interleaved")]),
    "SmolLM3: 1 in the list means that a layer turns": (
        of.SMOLLM3, [(",".join(f"{first}-{first + 2}" for first in range(0, 36, 4)), 128, "halves")],
    ),
    "Nemotron-H: a base that no code reads": (of.NEMOTRON_H, []),
    "Jamba: no position encoding": (of.JAMBA, []),
    "Mllama: cross-attention does not turn": (
        of.MLLAMA, [("0-2,4-7,9-12,14-17,19-22,24-27,29-32,34-37,39", 128, "halves")],
    ),
    "StableLM: a quarter turns by the class's default": (of.STABLELM, [("0-31", 20, "halves")]),
    "YaRN whose maximum is still the original length": (
        of.QWEN2 | {"rope_scaling": of.QWEN_YARN}, [("0-27", 128, "halves")],
    ),
    "both spellings of the type, equal": (
        LLAMA_31 | {"rope_scaling": LLAMA3 | {"type": "llama3"}}, [("0-31", 128, "halves")],
    ),
}  # fmt: skip


def test_a_model_that_looks_wrong_and_is_right_does_not_fire_and_is_read_as_what_it_is(cases):
    for name in UNPUBLISHED:
        with cases(name):
            assert fired(audit_of(getattr(of, name))) == []
    for name, (config, read) in READ.items():
        with cases(name):
            found = audit_of(config)
            assert fired(found) == []
            turning = [code for code in found.layers if code.kind == "rotary"]
            assert [(code.layers, code.rotated, code.layout) for code in turning] == read
    full = next(code for code in audit_of(of.GEMMA4).layers if code.kind == "rotary" and code.width == 512)
    assert (len(full.rates), full.rates.count(0.0)) == (256, 192)


def test_a_convention_that_looks_wrong_and_is_right_does_not_fire(cases, tmp_path):
    for preset in ("nanochat", "alibi", "alibi-symmetric", "bloom", "mpt", "whisper", "tensor2tensor"):
        with cases(preset):
            assert fired(ch.audit(preset)) == []
    np.save(tmp_path / "table.npy", ch.table(ch.preset("marian", width=64), 512))
    found = ch.audit(tmp_path / "table.npy")
    assert fired(found) == []
    assert [finding.code for finding in found.findings if finding.code == "recognised"] == ["recognised"]
