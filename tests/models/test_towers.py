"""Towers are run on small images and sounds: sound ones pass, and each fault is named with its layers and numbers."""

import math

import clockhands as ch
from auditing import loaded_models
from late import Late
from models.tower_models import MODELS, small

torch = Late("torch")


def reading(model, number=0):
    """What running a tower of a model shows."""
    from clockhands.models.towers import tower_reading, towers

    return tower_reading(towers(model, ch.audit(model).layers)[number])


def said(model):
    """What is wrong with the tower of a model."""
    return [each.evidence["says"] for each in reading(model).found]


def test_sound_towers_are_as_declared(cases):
    turned = "RoPE by rows and columns and the {} that layers see are as the config declares"
    table = "the rows of its table are as the config declares; its table is interpolated to an image of 6 x 8 patches."
    for name, size, says in (
        ("qwen2_vl", "4 x 6", turned.format("patches") + "."),
        ("qwen2_5_vl", "10 x 18", turned.format("windows") + "."),
        ("qwen3_vl", "4 x 6", turned.format("patches") + "; on an image of 8 x 8 patches: the rows of its table are"),
        ("mistral3", "4 x 5", turned.format("patches") + "."),
        ("gemma3", "4 x 4", table),
        ("llava", "4 x 4", table),
        ("clip", "4 x 4", table),
    ):
        with cases(name):
            model = small(name)
            before = {path: value.clone() for path, value in model.state_dict().items()}
            result = reading(model)
            assert result.found == ()
            assert result.left == ""
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
    assert said(model) == ["vision_model.embeddings.position_embedding: no row of the table is added to any token."]


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
    assert (result.found, result.left) == ((), "what else is added to patches")
    assert "the patches that layers see are as the config declares" in result.says
    assert result.says.endswith("was not measured: its tokens differ although all patches are equal.")


TABLE, ROPE, SEEN = "the rows of its table", "RoPE by rows and columns", "the patches that layers see"
FIRST = f"{TABLE} for the first {{}} tokens".format
MEASURED = {
    "aimv2_vision_model": {"vision": TABLE},
    "bart": {"encoder": FIRST(32), "decoder": FIRST(32)},
    "beit": {},
    "bert": {"text": FIRST(32)},
    "clip_text_model": {"text": TABLE},
    "clip_vision_model": {"vision": TABLE},
    "deit": {"vision": TABLE},
    "dinov2": {"vision": TABLE},
    "dinov2_with_registers": {"vision": TABLE},
    "dinov3_vit": {"vision": f"{ROPE} and {SEEN}"},
    "gpt2": {"text": FIRST(32)},
    "hubert": {},
    "ijepa": {"vision": TABLE},
    "llama4": {"vision": f"{ROPE}, {SEEN} and {TABLE}"},
    "mllama": {"vision": TABLE},
    "modernbert": {},
    "opt": {"text": FIRST(32)},
    "pixtral": {"vision": f"{ROPE} and {SEEN}"},
    "qwen2_audio": {"audio": TABLE},
    "roberta": {"text": FIRST(31)},
    "siglip2": {"vision": TABLE, "text": TABLE},
    "siglip_vision_model": {"vision": TABLE},
    "speech_to_text": {"audio": TABLE, "decoder": FIRST(16)},
    "vit": {"vision": TABLE},
    "vitdet": {},  # its table is that of larger images
    "voxtral": {"audio": TABLE},
    "wav2vec2": {},
    "wav2vec2-conformer": {},
    "wavlm": {},
    "whisper": {"audio": TABLE, "decoder": FIRST(16)},
}
"""What is measured of each kind of part of the sound models."""


def live(model):
    return ch.probe(model, measure=["live"], windows=1, length=16)["live"]


def test_every_model_gets_a_verdict_of_what_was_measured_and_none_a_false_alarm(cases):
    assert sorted(MEASURED) == sorted(MODELS)
    for name, measured in MEASURED.items():
        with cases(name):
            model = small(name)
            before = {path: value.clone() for path, value in model.state_dict().items()}
            result = live(model)
            assert result.numbers["findings"] == []
            assert result.numbers["measured"] == measured
            text = result.numbers["text_ran"]
            assert result.numbers["ran"] == (text or bool(measured))
            assert result.answers[0].startswith(
                "The declared positions are in effect" if text or measured else "The pos"
            )
            for part in measured:
                assert result.numbers.get("layers_checked") or f"in the {part} part" in result.answers[0]
            assert all(torch.equal(value, before[path]) for path, value in model.state_dict().items())
    assert live(small("beit")).answers == (
        "The positions were not measured: no part of the model that shows them was run.",
        "The vision part was not run: the kind relative is not measured here.",
    )


def wrong(model):
    """The sentences of all findings of a model that runs."""
    return [each["message"] for each in live(model).numbers["findings"]]


def changed(module, forward):
    """Let a module run another forward pass, which gets the right one."""
    right = module.forward
    module.forward = lambda *args, **more: forward(right, *args, **more)


def test_wrong_rows_of_tables_are_named(cases):
    def late(right, *given, table, **more):
        kept = table.data
        table.data = kept.roll(1, -2)
        try:
            return right(*given, **more)
        finally:
            table.data = kept

    for name, path in (("vit", "embeddings"), ("deit", "embeddings"), ("dinov2_with_registers", "embeddings")):
        with cases(name):
            model = small(name)
            module = model.get_submodule(path)
            table = module.position_embeddings
            changed(module, lambda *given, table=table, **more: late(*given, table=table, **more))
            (says,) = wrong(model)
            assert says.startswith(f"{path}.position_embeddings: token 0 gets row {table.shape[1] - 1}, where row 0")
            assert says.endswith("Each patch gets the row of the one before it.")
    for name, path in (("bert", "embeddings.position_embeddings"), ("gpt2", "wpe")):
        with cases(name):
            model = small(name)
            changed(model.get_submodule(path), lambda right, ids: right(ids + 1))
            (says,) = wrong(model)
            assert (
                says
                == f"{path}: token 0 gets row 1, where row 0 is declared. Each token gets the row of the one after it."
            )
    model = small("gpt2", n_positions=128)  # more rows than the text has tokens: how many were measured is said
    assert live(model).numbers["measured"] == {"text": FIRST(64)}
    changed(model.wpe, lambda right, ids: right(ids.clamp(max=40)))
    assert wrong(model) == ["wpe: token 41 gets row 40, where row 41 is declared."]
    model = small("siglip2")
    module = model.vision_model.embeddings
    right = module.resize_positional_embeddings
    for says, other in (
        (
            "Rows and columns of the image are exchanged.",
            lambda rows, *more, **how: right(rows.transpose(0, 1), *more, **how),
        ),
        (
            "The table was interpolated to its width by its height.",
            lambda rows, shapes, **how: right(rows, shapes.flip(-1), **how),
        ),
    ):
        module.resize_positional_embeddings = other
        with cases(says):
            (found,) = wrong(model)
            assert found.startswith("vision_model.embeddings.position_embedding: ")
            assert found.endswith(says)


def test_another_sinusoid_in_the_weights_is_named(cases):
    def rows(**changed):
        return torch.tensor(ch.table(ch.Sinusoidal(width=32, layout="halves", **changed), 32))

    for says, table in (
        ("base 500", rows(base=500)),
        ("cos-sin", rows(order="cos-sin")),
        ("1.0000 away", torch.zeros(32, 32)),
    ):
        model = small("whisper")
        model.encoder.embed_positions.weight.data = table
        with cases(says):
            (found,) = wrong(model)
            assert found.startswith("encoder.embed_positions: channel ")
            assert says in found


def test_a_wrong_rotation_beside_class_tokens_is_named_with_its_layer(cases, monkeypatch):
    from transformers.models.dinov3_vit import modeling_dinov3_vit as module

    right = module.get_patches_center_coordinates
    model = small("dinov3_vit")
    for says, places in (
        ("rows and columns exchanged", lambda *given, **how: right(*given, **how).flip(-1)),
        ("positions multiplied by 0.5", lambda *given, **how: right(*given, **how) / 2 + 0.5),
        ("each patch rotated as the one before it", lambda *given, **how: right(*given, **how).roll(1, 0)),
    ):
        monkeypatch.setattr(module, "get_patches_center_coordinates", places)
        with cases(says):
            (found,) = wrong(model)
            assert found.startswith("layers 0-1: pair ")
            assert f"That is {says}" in found
    # Differences between patches are right: the tokens beside them, which do not rotate, show a constant.
    for by in (0.3, -0.25):
        moved = lambda *given, by=by, **how: right(*given, **how) + torch.tensor([by, 0])  # noqa: E731
        monkeypatch.setattr(module, "get_patches_center_coordinates", moved)
        (found,) = wrong(model)
        assert found.startswith("layers 0-1: beside tokens that are no patches, pair ")
        rows = f"{2 * math.pi * by:.4g}"
        assert found.endswith(f"That is the coordinates of rows moved by {rows} and those of columns by 0.")
    monkeypatch.setattr(module, "get_patches_center_coordinates", right)
    rotate = module.apply_rotary_pos_emb

    def late(queries, keys, cosine, sine, **how):
        queries, _ = rotate(queries, keys, cosine.roll(1, -2), sine.roll(1, -2), **how)
        return queries, rotate(queries, keys, cosine, sine, **how)[1]

    for which, says, other in (
        ("keys", "no rotation", lambda queries, keys, *given, **how: (rotate(queries, keys, *given, **how)[0], keys)),
        ("queries", "each patch rotated as the one before it", late),
    ):
        monkeypatch.setattr(module, "apply_rotary_pos_emb", other)
        (found,) = wrong(model)
        assert found.startswith(f"layers 0-1: {which} alone are not rotated as declared: pair ")
        assert found.endswith(f"That is {says}.")
    monkeypatch.setattr(module, "apply_rotary_pos_emb", rotate)
    changed(
        model.model.layer[1].attention,
        lambda right, states, *more, position_embeddings, **how: right(
            states,
            *more,
            position_embeddings=(torch.ones_like(position_embeddings[0]), 0 * position_embeddings[1]),
            **how,
        ),
    )
    (found,) = wrong(model)
    assert found.startswith("layer 1: pair 0 of the patch at row 1, column 0 has cosine 1.0000")
    assert found.endswith("That is no rotation.")
    model = small("llama4")
    waves = model.vision_model.rotary_embedding.freqs_ci
    by_columns = [place % 4 * 4 + place // 4 for place in range(16)]
    waves.copy_(waves[[*by_columns, 16]].clone())
    (found,) = wrong(model)
    assert found.startswith("vision_model, layers 0-1: pair ")
    assert found.endswith("That is rows and columns exchanged.")


def alone(kind, name, **fields):
    """One class of the library from the config of a type, with seeded weights."""
    library = loaded_models.transformers()
    torch.manual_seed(0)
    return getattr(library, name)(library.AutoConfig.for_model(kind, **{**MODELS.get(kind, {}), **fields})).eval()


def test_only_the_tables_of_parts_that_a_model_has_are_told(cases):
    """The config declares both tables, of one size; the model has the decoder alone."""
    for model in (
        alone("whisper", "WhisperForCausalLM", max_source_positions=24, max_target_positions=24),
        alone("bart", "BartForCausalLM"),
    ):
        with cases(type(model).__name__):
            result = live(model)
            assert result.numbers["findings"] == []
            assert [*result.numbers["measured"]] == ["decoder"]
            assert result.answers[0].startswith("The declared positions are in effect in the decoder part (")
            assert "encoder" not in result.answers[0]
            assert "The model has no encoder part, whose table its config declares." in result.answers
            changed(
                model.model.decoder.embed_positions, lambda right, *given, **more: right(*given, **more).roll(1, -2)
            )
            assert any(says.startswith("model.decoder.embed_positions: token 0 gets row") for says in wrong(model))


def test_what_was_declared_and_not_measured_is_told():
    """A table that no part of this library's runs shows: the verdict names it, and nothing counts as measured."""
    model = alone("imagegpt", "ImageGPTModel", n_embd=32, n_layer=2, n_head=4, vocab_size=48, n_positions=64)
    result = live(model)
    assert result.answers[0] == "The positions were not measured: the vision part was not checked."
    assert not result.numbers["ran"]


def test_windows_in_rows_of_a_batch_are_the_reason():
    sizes = {**MODELS["vit"], "window_size": 3, "global_attn_indexes": []}
    result = reading(alone("sam3_vit_model", "Sam3ViTModel", **sizes))
    assert result.found == ()
    assert result.says == (
        "The vision part was not measured: its attention gets windows as rows of a batch, which are not put together "
        "here; the rows of its table are placed repeated."
    )


def test_a_class_token_without_its_row_says_nothing_of_patches():
    model = small("vit")

    def bare(right, *given, **more):
        made = right(*given, **more).clone()
        made[:, 0] -= model.embeddings.position_embeddings[0, 0]
        return made

    changed(model.embeddings, bare)
    assert wrong(model) == ["embeddings.position_embeddings: token 0 gets no row, where row 0 is declared."]


def test_wrong_integer_ids_are_no_matter_of_a_cast():
    model = small("clip_vision_model")
    ids = next(each for each in model.modules() if hasattr(each, "position_ids")).position_ids
    ids.copy_(ids.flip(-1).clone())
    (found,) = [each for each in ch.audit(model).findings if each.code == "ids-of-floats"]
    assert "They are integers, so no cast made them wrong" in found.hint
