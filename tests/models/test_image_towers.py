"""Towers for images are run on a small image: sound ones pass, and each fault is named with its layers and numbers."""

import clockhands as ch
from auditing import loaded_models
from late import Late

torch = Late("torch")


def reading(model, number=0):
    """What running a tower of a model shows."""
    from clockhands.models.image_towers import image_towers, tower_reading

    return tower_reading(image_towers(model, ch.audit(model).layers)[number])


def said(model):
    """What is wrong with the tower of a model."""
    return [each.evidence["says"] for each in reading(model).found]


def test_sound_towers_are_as_declared(cases):
    turned = "RoPE by rows and columns and the {} that layers see are as the config declares"
    table = "the rows of its table are as the config declares."
    for name, size, says in (
        ("qwen2_vl", "4 x 6", turned.format("patches") + "."),
        ("qwen2_5_vl", "10 x 18", turned.format("windows") + "."),
        ("qwen3_vl", "4 x 6", turned.format("patches") + "; the rows of its table were not measured."),
        ("mistral3", "4 x 5", turned.format("patches") + "."),
        ("gemma3", "4 x 4", table),
        ("llava", "4 x 4", table),
        ("clip", "4 x 4", table),
    ):
        with cases(name):
            model = loaded_models.model_of(name)
            before = {path: value.clone() for path, value in model.state_dict().items()}
            result = reading(model)
            assert result.found == ()
            assert result.left == ("the table of the vision part" if name == "qwen3_vl" else "")
            assert f"ran on an image of {size} patches: {says}" in result.says
            assert all(torch.equal(value, before[path]) for path, value in model.state_dict().items())


def test_a_wrong_rotation_of_patches_is_named(cases, monkeypatch):
    from transformers.models.qwen2_vl import modeling_qwen2_vl as module

    def neighbours(q, k, cos, sin):
        half = cos.shape[-1] // 2
        cos, sin = (wave[..., :half].repeat_interleave(2, -1)[:, None] for wave in (cos, sin))
        return tuple(x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * sin for x in (q, k))

    model = loaded_models.model_of("qwen2_vl")
    right = model.visual.rotary_pos_emb.forward
    for says, change in (
        ("rows and columns exchanged", lambda cells: cells.flip(-1)),
        ("no rotation", lambda cells: 0 * cells),
        ("the cells of merged patches in place of those of patches", lambda cells: cells // 2),
        (
            "patches counted row by row, where they are given in blocks",
            lambda cells: torch.stack((torch.arange(len(cells)) // 6, torch.arange(len(cells)) % 6), -1),
        ),
    ):
        model.visual.rotary_pos_emb.forward = lambda x, cells, change=change: right(x, change(cells))
        with cases(says):
            (found,) = said(model)
            assert found.startswith("visual, layers 0-1: pair ")
            assert found.endswith(f"That is {says}.")
    model.visual.rotary_pos_emb.forward = right
    monkeypatch.setattr(module, "apply_rotary_pos_emb_vision", neighbours)
    (found,) = said(model)
    assert found.endswith("That is the layout interleaved, where halves is declared.")
    model = loaded_models.model_of("qwen2_5_vl")
    model.visual.rotary_pos_emb.inv_freq.copy_(model.visual.rotary_pos_emb.inv_freq**1.2)
    assert all("That is base 63,09" in found for found in said(model))


def test_wrong_windows_and_rows_are_named():
    model = loaded_models.model_of("qwen2_5_vl")
    model.visual.fullatt_block_indexes = []
    says = "visual, layer 1: a patch sees 4 to 64 patches of an image of 10 x 18, where 180 are declared."
    assert said(model) == [says]
    model = loaded_models.model_of("qwen2_5_vl")
    model.visual.window_size //= 2
    assert said(model) == [
        "visual, layer 0: a patch sees 4 to 16 patches of an image of 10 x 18, where 4 to 64 are declared."
    ]
    model = loaded_models.model_of("siglip")
    numbers = model.vision_model.embeddings.position_ids
    numbers.copy_(numbers.flip(1))
    assert said(model) == ["vision_model.embeddings.position_embedding: token 0 gets row 15, where row 0 is declared."]
    model = loaded_models.model_of("siglip")
    torch.nn.init.normal_(model.vision_model.embeddings.position_embedding.weight)
    model.vision_model.embeddings.register_forward_hook(lambda *given: 0 * given[2])
    assert said(model) == [
        "vision_model.embeddings.position_embedding: the rows of the table are not added to the patches as they are."
    ]


def test_a_tower_that_cannot_be_run_is_named_with_the_reason():
    model = loaded_models.model_of("qwen2_vl")

    def broken(*_, **__):
        raise RuntimeError("no kernel for this device")

    model.visual.patch_embed.forward = broken
    result = reading(model)
    assert (result.found, result.left) == ((), "the vision part")
    assert result.says == "The vision part (visual) was not run: no kernel for this device."
    model = loaded_models.model_of("qwen2_vl")
    rows = torch.randn(24, 32, generator=torch.Generator().manual_seed(0))  # a table that no module holds
    model.visual.patch_embed.register_forward_hook(lambda *given: given[2] + rows)
    result = reading(model)
    assert (result.found, result.left) == ((), "the vision part")
    assert result.says.endswith("was not measured: its tokens differ although all patches are equal.")
