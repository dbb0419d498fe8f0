"""The window of each layer, as the audit reads it, against the attention of small models of the library's types."""

import inspect
import json
import warnings
from pathlib import Path

import pytest

import clockhands as ch
from clockhands.configs.resolved import TEXT, layer_numbers
from configs.expected import reasons

pytestmark = pytest.mark.slow

WINDOW, TOKENS, LAYERS = 4, 12, 6
SMALL = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": LAYERS, "max_position_embeddings": 64, "head_dim": 16, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "attention_dropout": 0.0, "num_local_experts": 2, "num_experts": 2, "num_experts_per_tok": 1,
    "moe_intermediate_size": 32, "n_routed_experts": 2, "n_group": 1, "topk_group": 1, "query_pre_attn_scalar": 16,
    "rope_scaling": None,
}  # fmt: skip
MIXED = ["sliding_attention", "full_attention"] * (LAYERS // 2)
SETTINGS = {
    "window": {"sliding_window": WINDOW},
    "from layer 3": {"sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 3},
    "listed": {"sliding_window": WINDOW, "use_sliding_window": True, "layer_types": MIXED},
}
LARGEST = 60_000_000
ENOUGH = 100


def test_each_layer_of_each_type_has_the_window_that_the_audit_says(tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    wrong, compared, otherwise = [], 0, reasons("other_windows")
    for name in types_with_windows(transformers):
        for label, setting in SETTINGS.items():
            config = {**SMALL, **setting}
            seen = windows_of_the_model(torch, transformers, name, config)
            if seen is None:
                continue
            path = tmp_path / "config.json"
            path.write_text(json.dumps({"model_type": name, **config}), encoding="utf-8")
            said = windows_of_the_audit(path)
            compared += 1
            # Fewer than there are layers: those that do not attend report nothing.
            of_those = [window for window, rotates in said if rotates or len(seen) == LAYERS]
            if of_those != seen and name not in otherwise:
                wrong.append((name, label, said, seen))
    assert not wrong
    assert compared >= ENOUGH


def test_a_null_for_the_window_is_an_error_where_the_class_of_the_type_needs_one(tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    wrong, refused, otherwise = [], 0, reasons("refused_otherwise")
    for name in types_with_windows(transformers):
        if windows_of_the_model(torch, transformers, name, {**SMALL, "sliding_window": WINDOW}) is None:
            continue
        config = {**SMALL, "sliding_window": None}
        refuses = windows_of_the_model(torch, transformers, name, config) is None
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"model_type": name, **config}), encoding="utf-8")
        refused += refuses
        if refuses != bool(ch.audit(path).errors) and name not in otherwise:
            wrong.append((name, refuses))
    assert not wrong
    assert refused > len(otherwise)


def types_with_windows(transformers):
    """Types of language models whose code has windows."""
    mapping = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    for name in mapping:
        if name in transformers.CONFIG_MAPPING:
            folder = Path(inspect.getfile(transformers.CONFIG_MAPPING[name])).parent
            if any("sliding_window" in file.read_text(encoding="utf-8") for file in folder.glob("modeling_*.py")):
                yield name


def windows_of_the_model(torch, transformers, name, config):
    """How far the last token sees in each layer that attends; None for all, and where there is no such small model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = transformers.CONFIG_MAPPING[name](**config)
            with torch.device("meta"):
                sized = transformers.AutoModelForCausalLM.from_config(made)
            if sum(weight.numel() for weight in sized.parameters()) > LARGEST:
                return None
            torch.manual_seed(0)
            model = transformers.AutoModelForCausalLM.from_config(made, attn_implementation="eager").float().eval()
            with torch.no_grad():
                found = model(input_ids=torch.randint(3, 60, (1, TOKENS)), output_attentions=True).attentions
        except Exception:  # noqa: BLE001 - each type has its own ways not to be made of these sizes
            return None
    if not found:
        return None
    rows = [scores[0, :, -1, :TOKENS].abs().sum(0) for scores in found]
    firsts = [int((row > 0).nonzero()[0]) for row in rows]
    return [None if first == 0 else TOKENS - first for first in firsts]


def windows_of_the_audit(path):
    """The window of each layer, and whether it rotates."""
    each: list[tuple[int | None, bool]] = [(None, False)] * LAYERS
    for code in ch.audit(path).layers:
        if code.part in TEXT and code.layers != "input":
            for layer in range(LAYERS) if code.layers is None else layer_numbers(code.layers):
                each[layer] = (code.farthest, code.kind != "none")
    return each
