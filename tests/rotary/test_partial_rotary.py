"""The table of docs/guides/model-conventions.md: what the code of Transformers passes to its rotation, as it runs."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import clockhands as ch
from late import Late

torch, transformers = Late("torch"), Late("transformers")

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "guides" / "model-conventions.md"
WIDTH, ROTATED = 16, 8
SIZES = {
    "vocab_size": 32, "hidden_size": 64, "n_embd": 64, "num_attention_heads": 4, "n_head": 4, "num_key_value_heads": 4,
    "num_hidden_layers": 1, "n_layer": 1, "intermediate_size": 64, "n_inner": 64, "max_position_embeddings": 64,
    "n_positions": 64, "n_ctx": 64, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0,
    "layer_types": ["full_attention"], "first_k_dense_replace": 1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}, "rotary_dim": ROTATED,
}  # fmt: skip
LATENT = {
    "qk_rope_head_dim": ROTATED, "qk_nope_head_dim": 16, "v_head_dim": 16, "kv_lora_rank": 16, "q_lora_rank": 16,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}  # fmt: skip


def rows():
    """Model type and spec of each row of the table."""
    text = DOCUMENT.read_text(encoding="utf-8").partition("## Partial rotary")[2].partition("\n## ")[0]
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and (call := re.fullmatch(r"`ch\.Rotary\((.*)\)`", cells[2])):
            fields = dict(part.split("=") for part in call[1].split(", "))
            layout = fields.pop("layout", '"halves"').strip('"')
            spec = ch.Rotary(layout=layout, **{name: int(value) for name, value in fields.items()})
            yield from ((kind, spec) for kind in re.findall(r"`(\w+)`", cells[0]))


ROWS = dict(rows())


def given_to_the_rotation(kind, monkeypatch):
    """The queries of a head that the code of a small model passes to its rotation, and the result, [seq, width]."""
    latent = hasattr(transformers.AutoConfig.for_model(kind), "qk_rope_head_dim")
    config = transformers.AutoConfig.for_model(kind, **(SIZES | (LATENT if latent else {"head_dim": WIDTH})))
    module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    seen = []

    def noted(rotation):
        def call(queries, *args, **others):
            made = rotation(queries, *args, **others)
            turned = made[0] if isinstance(made, tuple) else made
            seen.append([part[0].transpose(0, 1) if part.shape[1] == 5 else part[0] for part in (queries, turned)])
            return made

        return call

    for name in [name for name in dir(module) if name.startswith("apply_rotary")]:
        monkeypatch.setattr(module, name, noted(getattr(module, name)))
    torch.manual_seed(0)
    with torch.no_grad():
        transformers.AutoModel.from_config(config, attn_implementation="eager").eval()(torch.tensor([[3, 1, 4, 1, 5]]))
    return seen[0]


def test_the_table_has_the_families_that_rotate_a_part():
    assert len(ROWS) > 15
    assert {"gpt_neox", "phi", "glm", "deepseek_v3"} <= ROWS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ROWS)
def test_the_code_passes_what_the_table_says(kind, monkeypatch):
    queries, turned = given_to_the_rotation(kind, monkeypatch)
    spec = ROWS[kind]
    assert queries.shape[-1] == spec.head_width
    wanted = ch.rotate(queries, spec)
    if not np.allclose(turned, wanted, atol=1e-5):  # DeepSeek's code returns the pairs of neighbours as halves
        wanted = ch.rotate(queries, ch.specs.with_fields(spec, reordered=True))
    assert np.allclose(turned, wanted, atol=1e-5)
    assert not np.allclose(turned, queries, atol=1e-2)


def test_both_specs_have_the_same_frequencies():
    x = np.random.default_rng(0).standard_normal((3, WIDTH)).astype(np.float32)
    narrow = ch.rotate(x[:, :ROTATED], ch.Rotary(head_width=ROTATED))
    assert np.array_equal(ch.rotate(x, ch.Rotary(head_width=WIDTH, rotated=ROTATED))[:, :ROTATED], narrow)
    last = ch.rotate(x, ch.Rotary(head_width=WIDTH, rotated=ROTATED, part="last"))
    assert np.array_equal(last[:, -ROTATED:], ch.rotate(x[:, -ROTATED:], ch.Rotary(head_width=ROTATED)))
