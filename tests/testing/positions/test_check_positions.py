"""`check_positions`: every seeded fault is named, nothing sound is, and what is unknown is said to be unknown."""

import functools
import json

import numpy as np
import pytest
from click.testing import CliRunner

from clockhands.cli import main
from clockhands.errors import ClockhandsError
from clockhands.recognition.token_positions import FAMILIES, rules_of
from clockhands.testing import CannotCheck, CheckFailed, check_positions
from testing.positions import rope_indices
from testing.positions.written_positions import (
    AUDIO_FAULTS,
    GRID_FAULTS,
    IMAGE_FAULTS,
    TEXT_FAULTS,
    TIME_FAULTS,
    Numbering,
)

WRITTEN = [family for family, rules in FAMILIES.items() if not rules[0].latent]


def faults_of(family):
    """The seeded faults of a family, with the code of each."""
    rule = rules_of(family)[0]
    if rule.image == "none":
        return TEXT_FAULTS
    if rule.image == "text":
        return IMAGE_FAULTS
    timed = TIME_FAULTS if rule.per_second else {} if rule.frames_apart else {"twice the time": "time-step"}
    return {**GRID_FAULTS, **timed, **(AUDIO_FAULTS if rule.audio_order != "none" else {})}


@pytest.mark.parametrize("family", WRITTEN)
def test_a_sound_function_is_sound(family):
    report = check_positions(Numbering(family), like=family, raises=False)
    assert report.sound, str(report)
    assert len(report.experiments) >= 5


@pytest.mark.parametrize("family", WRITTEN)
def test_every_seeded_fault_is_named(family, cases):
    for fault, code in faults_of(family).items():
        with cases(family, fault):
            report = check_positions(Numbering(family, fault), like=family, raises=False)
            assert not report.sound
            assert report.codes == {code}, str(report)


@pytest.mark.parametrize("family", rope_indices.FAMILIES)
def test_the_function_of_transformers_is_sound(family):
    report = check_positions(rope_indices.rope_index(family), like=family, raises=False)
    assert report.sound, str(report)
    assert report.called["library"] == "torch"
    assert "a video" in report.experiments


def test_an_unknown_fault_is_not_named():
    sound = Numbering("qwen2_vl")

    def odd(input_ids, attention_mask, image_grid_thw, mm_token_type_ids, document_ids):
        given = {"mm_token_type_ids": mm_token_type_ids, "document_ids": document_ids}
        out = sound(input_ids, attention_mask, image_grid_thw, **given)
        return out + (np.arange(out.shape[-1]) % 7 == 5)

    report = check_positions(odd, like="qwen2_vl", raises=False)
    assert not report.sound
    assert report.explanations == ()
    assert "No known fault" in str(report)
    assert report.failures[0].evidence["token"] == 5


def image_prompt(input_ids, image_grid_thw, scale=1, after="largest"):
    """Positions of text with images of Qwen2-VL, in NumPy, for one row of tokens."""
    grids, runs, start, place = list(image_grid_thw if image_grid_thw is not None else ()), [], 0, 0
    while place < len(input_ids):
        if input_ids[place] == 151655:
            frames, rows, columns = grids.pop(0) // [1, 2, 2]
            run = np.indices((frames, rows, columns)).reshape(3, -1) + np.array([[start * scale], [start], [start]])
            start = run[1:].max() + 1 if after == "largest" else start + run.shape[1]
        else:
            run, start = np.full((3, 1), start), start + 1
        runs.append(run)
        place += run.shape[1]
    return np.concatenate(runs, axis=1)


def test_signatures_and_answers_of_other_code(cases):
    def in_torch(input_ids, image_grid_thw):
        import torch

        out = image_prompt(input_ids[0].tolist(), image_grid_thw.numpy() if image_grid_thw is not None else None)
        return torch.from_numpy(out)[:, None], torch.tensor([[int(out.max()) + 1 - out.shape[1]]])

    def processor(input_ids, image_grid_thw, **_kwargs):
        return {"position_ids": image_prompt(input_ids[0], image_grid_thw)[:, None], "input_ids": input_ids}

    def tokens_last(input_ids, image_grid_thw):
        return image_prompt(input_ids[0], image_grid_thw).T

    def one_row(input_tokens, hf_config, image_grid_thw, context_len=0):
        assert (hf_config.vision_config.spatial_merge_size, context_len) == (2, 0)
        return image_prompt(list(input_tokens), image_grid_thw)

    def as_list(input_ids, image_grid_thw):
        out = image_prompt(input_ids[0], image_grid_thw)
        return [out[:, None], np.array([[out.max() + 1 - out.shape[1]]])]

    for function in (in_torch, processor, tokens_last, one_row, as_list):
        with cases(function.__name__):
            backend = "torch" if function is in_torch else None
            assert check_positions(function, like="qwen2_vl", backend=backend, raises=False).sound
    with cases("by place"):
        report = check_positions(
            lambda a, b: image_prompt(a[0], b), like="Qwen2-VL", call="input_ids, image_grids", raises=False
        )
        assert report.sound, str(report)


def test_a_still_image_whose_time_starts_at_its_start_times_tokens_per_second():
    def scaled(input_ids, image_grid_thw):
        return image_prompt(input_ids[0], image_grid_thw, scale=2)[:, None]

    with pytest.raises(CheckFailed, match="multiplies the start of images by 2 in their times") as caught:
        check_positions(scaled, like="qwen2_5_vl:per_second=2")
    report = caught.value.report
    assert report.codes == {"image-time-scaled"}
    assert report.explanations[0].cases == ("transformers#45325",)
    first = report.failures[0].evidence
    assert (first["token"], first["right"], first["got"]) == (5, [5, 5, 5], [10, 5, 5])


def test_both_published_continuations_after_a_long_video_are_sound():
    paper = check_positions(Numbering("qwen2_vl"), like="qwen2_vl", raises=False)
    transformers = check_positions(Numbering("qwen2_vl", "sides"), like="qwen2_vl", raises=False)
    assert paper.sound
    assert transformers.sound
    assert "larger side" in transformers.like
    assert "larger side" not in paper.like


def test_what_a_function_cannot_take_is_wrong_or_stands_in_the_verdict(cases):
    sound, timed = Numbering("qwen3_vl"), Numbering("qwen2_5_vl")

    def types(input_ids):
        return (input_ids == 151655) * 1 + (input_ids == 151656) * 2

    def numbered(function, input_ids, *given):
        tokens = {"mm_token_type_ids": types(input_ids), "document_ids": np.zeros_like(input_ids)}
        return function(input_ids, *given, **tokens)

    def no_grids(input_ids, attention_mask):  # noqa: ARG001 - it drops the images
        return np.cumsum(attention_mask, axis=1) - 1

    def no_seconds(input_ids, attention_mask, image_grid_thw, video_grid_thw, constant=1.0):
        videos = 0 if video_grid_thw is None else len(video_grid_thw)
        return numbered(timed, input_ids, attention_mask, image_grid_thw, video_grid_thw, [constant] * videos)

    def two_seconds(input_ids, attention_mask, image_grid_thw, video_grid_thw):  # one fault, not another step as well
        return no_seconds(input_ids, attention_mask, image_grid_thw, video_grid_thw, 2.0)

    def no_mask(input_ids, image_grid_thw, video_grid_thw):
        return numbered(sound, input_ids, None, image_grid_thw, video_grid_thw)

    def images_alone(input_ids, attention_mask, image_grid_thw):
        return numbered(sound, input_ids, attention_mask, image_grid_thw)

    for function, family, code in (
        (no_grids, "qwen3_vl", "image-as-text"),
        (no_seconds, "qwen2_5_vl", "seconds-cut"),
        (two_seconds, "qwen2_5_vl", "seconds-cut"),
    ):
        with cases(function.__name__):
            assert check_positions(function, like=family, raises=False).codes == {code}
    for function, lacks in ((no_mask, "attention_mask"), (images_alone, "video_grid_thw")):
        with cases(function.__name__):
            report = check_positions(function, like="qwen3_vl", raises=False)
            verdict = next(report.lines()).text
            assert "correct as far as checked" in verdict
            assert f"(it takes no {lacks})" in verdict


def test_an_input_on_which_a_function_fails_is_a_failure(cases):
    def failing(answer, of):
        sound = Numbering("qwen2_vl")

        def function(input_ids, attention_mask, image_grid_thw, video_grid_thw, *, mm_token_type_ids, document_ids):
            given = {"mm_token_type_ids": mm_token_type_ids, "document_ids": document_ids}
            out = sound(input_ids, attention_mask, image_grid_thw, video_grid_thw, **given)
            return answer(out) if {"batch": len(input_ids) > 1, "video": video_grid_thw is not None}[of] else out

        return function

    for answer, of, words in (
        (lambda out: out[:, 5:, 1000], "batch", "it raised IndexError"),
        (lambda out: out[:, 5:, 1000], "video", "it raised IndexError"),
        (lambda _out: None, "batch", "it returned nothing"),
        (lambda out: out[:, :1], "batch", "it returned positions of shape [3, 1, 22]; expected [3, 2, 22]"),
    ):
        with cases(words, of):
            report = check_positions(failing(answer, of), like="qwen2_vl", raises=False)
            assert not report.sound
            assert report.explanations == ()
            assert words in report.failures[0].message
            assert {"a batch", "a video"} & {failure.experiment for failure in report.failures} == {f"a {of}"}


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl"])
def test_one_position_off_after_the_larger_side_is_named(family, cases):
    for fault, how in (("sides and one", "one position too late"), ("sides less one", "one position too early")):
        with cases(fault):
            report = check_positions(Numbering(family, fault), like=family, raises=False)
            assert report.codes == {"offset-after-image"}
            assert report.explanations[0].message.endswith(f"{how}.")


def test_two_faults_at_once_are_both_named():
    def twice_wrong(input_ids, image_grid_thw):
        return image_prompt(input_ids[0], image_grid_thw, after="tokens")[[0, 2, 1]][:, None]

    report = check_positions(twice_wrong, like="qwen2_vl", raises=False)
    assert report.codes == {"rows-and-columns-exchanged", "offset-after-image"}


def test_images_that_a_function_misses_where_there_are_several_are_named():
    def last_only(input_ids, image_grid_thw):
        ids = input_ids[0].copy()
        if image_grid_thw is not None:
            before = sum(int(np.prod(grid)) // 4 for grid in image_grid_thw[:-1])
            ids[np.flatnonzero(ids == 151655)[:before]] = 1
            image_grid_thw = image_grid_thw[-1:]
        return image_prompt(ids, image_grid_thw)[:, None]

    report = check_positions(last_only, like="qwen2_vl", raises=False)
    assert report.codes == {"image-as-text"}
    assert "the tokens of some images or videos of prompts with several like text" in report.explanations[0].message


def test_a_wrong_delta_is_named():
    def off(input_ids, image_grid_thw):
        out = image_prompt(input_ids[0], image_grid_thw)
        return out[:, None], np.array([[out.max() - out.shape[1]]])

    report = check_positions(off, like="qwen2_vl", raises=False)
    assert report.codes == {"delta-wrong"}
    assert "returns a delta of -9 where -8 is right" in report.explanations[0].message


def test_a_function_that_changes_its_arguments_is_named():
    def changing(input_ids, image_grid_thw):
        out = image_prompt(input_ids[0], image_grid_thw)
        input_ids[:] = 0
        return out[:, None]

    report = check_positions(changing, like="qwen2_vl", raises=False)
    assert report.codes == {"changes-its-arguments"}
    assert [failure.experiment for failure in report.failures] == ["arguments stay as they are"]


def grid_ids(height, width, frames=1, text_length=0, *, fault=None, family="flux"):
    """Position ids of a latent image or video, [tokens, axes]."""
    time, row, column = (axis.ravel() for axis in np.indices((frames, height, width)))
    if fault == "by column":
        column, row = (axis.ravel() for axis in np.indices((width, height)))
        time, row, column = np.repeat(range(frames), height * width), np.tile(row, frames), np.tile(column, frames)
    if (family == "qwen_image") != (fault == "origin"):
        row, column = row - (height - height // 2), column - (width - width // 2)
    axes = {"exchanged": [time, column, row], "order": [row, column, time]}.get(fault, [time, row, column])
    if family == "gemma4_patches":
        axes = [row, column] if fault == "exchanged" else [column, row]
    ids = np.stack(axes, axis=-1) + (fault == "one more")
    if fault == "time":
        ids[:, 0] *= 2
    if fault == "still":
        ids[:, 0] = 0
    if fault == "counted":
        ids = np.tile(np.arange(len(ids))[:, None], len(axes))
    text = np.zeros((text_length, len(axes)), int)
    if (family == "qwen_image") != (fault == "text"):
        text += max(height, width) // (1 if fault == "after" else 2) + np.arange(text_length)[:, None]
    if fault == "text" and family == "flux":
        text = np.tile(np.arange(text_length)[:, None], len(axes))
    return np.concatenate([ids, text] if fault == "image first" else [text, ids])


PATCH_FAULTS = {
    "exchanged": "rows-and-columns-exchanged",
    "by column": "cells-reordered",
    "counted": "image-as-text",
    "one more": "grid-shifted",
    "origin": "grid-origin",
}
LATENT_FAULTS = {**PATCH_FAULTS, "order": "axes-reordered", "time": "time-step", "still": "time-step"}
FAULTS_OF_LATENTS = {
    "gemma4_patches": PATCH_FAULTS,
    "flux": {**LATENT_FAULTS, "text": "text-counted"},
    "wan": LATENT_FAULTS,
    # Where the tokens of an image are counted like text, it depends on the code whether text comes first.
    "qwen_image": {
        **{fault: code for fault, code in LATENT_FAULTS.items() if fault != "counted"},
        "text": "text-at-zero",
        "after": "offset-after-image",
    },
}


def test_latents_and_their_faults(cases):
    def latent(height, width, frames, text_length, **seeded):
        return grid_ids(height, width, frames, text_length, **seeded)

    def patches(height, width, **seeded):
        return grid_ids(height, width, **seeded)

    for family, faults in FAULTS_OF_LATENTS.items():
        function = patches if family == "gemma4_patches" else latent
        sound = (None, "image first") if family == "qwen_image" else (None,)
        for fault, code in {**dict.fromkeys(sound), **faults}.items():
            with cases(family, fault):
                seeded = functools.partial(function, family=family, fault=fault)
                report = check_positions(seeded, like=family, raises=False)
                assert report.sound == (code is None), str(report)
                assert report.codes == {code} - {None}, str(report)


def ltx_bounds(
    num_frames, height, width, fps=24.0, offset_sec=0.0, *, fault=None, causal=True, stride=(8, 32, 32), cell="bounds"
):
    """Where the cells of a latent video start and end, in seconds and pixels, [1, 3, tokens, 2]; or one coordinate."""
    cells = np.indices((num_frames, width, height) if fault == "by column" else (num_frames, height, width))
    if fault == "by column":
        cells = cells.swapaxes(2, 3)[[0, 2, 1]].swapaxes(2, 3)
    cells = cells.reshape(3, -1)
    ends = np.stack([cells, cells + 1], axis=-1) * np.array(stride, np.float32)[:, None, None]
    if causal:
        ends[0] = np.maximum(ends[0] + 1 - stride[0], 0)
    ends[0] /= {"24 a second": 24.0, "frames": 1.0}.get(fault, fps)
    ends[0] += offset_sec * (fault != "begin")
    if fault == "exchanged":
        ends = ends[[0, 2, 1]]
    return {"bounds": ends[None], "start": ends[..., 0], "middle": ends.mean(-1), "end": ends[..., 1]}[cell]


LTX_FAULTS = [
    ({}, None),
    ({"cell": "middle"}, None),
    ({"cell": "start"}, "cells-at-another-place"),
    ({"cell": "end"}, "cells-at-another-place"),
    ({"causal": False}, "first-frame-not-causal"),
    ({"stride": (8, 1, 1)}, "cells-not-scaled"),
    ({"stride": (4.0, 16.0, 16.0)}, "cells-not-scaled"),
    ({"stride": (1, 1, 1)}, "cells-not-scaled"),
    ({"fault": "begin"}, "begin-ignored"),
    ({"fault": "frames"}, "time-step"),
    ({"fault": "24 a second"}, "seconds-cut"),
    ({"fault": "exchanged"}, "rows-and-columns-exchanged"),
    ({"fault": "by column"}, "cells-reordered"),
]


def test_seconds_and_pixels_of_latents_and_their_faults(cases):
    for seeded, code in LTX_FAULTS:
        with cases(seeded):
            report = check_positions(functools.partial(ltx_bounds, **seeded), like="ltx2", raises=False)
            assert report.codes == {code} - {None}, str(report)
            assert report.sound == (code is None), str(report)
    assert check_positions(functools.partial(ltx_bounds, cell="start"), like="ltx_video").sound


def test_seconds_before_a_video_are_not_checked_where_a_function_takes_none():
    def bounds(num_frames, height, width, fps, **_):
        return ltx_bounds(num_frames, height, width, fps)

    report = check_positions(bounds, like="ltx2")
    assert report.left_out == {"a latent video that continues at 2.5 s": "it takes no offset_seconds"}


def test_frames_per_second_are_given_in_place_of_seconds():
    numbered = rope_indices.rope_index("qwen2_5_omni")

    def of_frames(input_ids, video_grid_thw, sample_fps, fixed=None):
        seconds = None if sample_fps is None else 2 / (sample_fps if fixed is None else sample_fps * 0 + fixed)
        return numbered(input_ids, video_grid_thw=video_grid_thw, second_per_grids=seconds)

    assert check_positions(of_frames, like="qwen2_5_omni").sound
    report = check_positions(functools.partial(of_frames, fixed=1), like="qwen2_5_omni", raises=False)
    assert report.codes == {"seconds-cut"}


def unknown_name(tokens_of_mine):
    return tokens_of_mine


def raising(attention_mask):
    raise KeyError(attention_mask.shape[0])


def text(attention_mask):
    return f"positions {attention_mask.shape}"


def too_few(input_ids):
    return input_ids[..., :3]


def without_tokens(spatial_merge_size):
    return [spatial_merge_size]


def test_what_a_function_must_take_is_said(cases):
    for function, words in {
        unknown_name: "takes `tokens_of_mine`; a check gives input_ids",
        raising: "it raised KeyError: 1",
        text: "it returned a value of type str, not an array of positions",
        too_few: "it returned positions of shape [1, 3]; expected [3, 1, ",
        without_tokens: "which is not enough for any prompt",
    }.items():
        with cases(words), pytest.raises(CannotCheck) as caught:
            check_positions(function, like="qwen2_vl")
        assert words in caught.value.message


class Model:
    """A loaded model, as far as its numbering is concerned."""

    def __init__(self, model_type="qwen2_vl", **parts):
        self.parts = parts
        self.config = {"model_type": model_type, "image_token_id": 77, "vision_config": {"spatial_merge_size": 2}}

    def named_modules(self):
        return [("", self), *self.parts.items()]


class Numbered(Model):
    def get_rope_index(self, input_ids, image_grid_thw=None):
        ids = np.where(input_ids == self.config["image_token_id"], 151655, input_ids)
        return image_prompt(ids[0], image_grid_thw, after="tokens")[:, None]


def test_of_a_model_its_own_function_is_checked(cases):
    for model, like in (
        (Numbered(), None),
        (Model(inner=Numbered()), None),
        (Numbered("mine"), "qwen2_vl:image=77"),
    ):
        with cases(like, model.parts):
            report = check_positions(model, like=like, raises=False)
            assert report.codes == {"offset-after-image"}
            assert report.subject == "Numbered.get_rope_index"
    with cases("a family without a known rule"), pytest.raises(ClockhandsError, match="The family whose rule"):
        check_positions(Numbered("mine"))
    with cases("none"), pytest.raises(CannotCheck, match="Model has no get_rope_index"):
        check_positions(Model())


def test_a_function_of_one_mapping_is_given_the_batch_of_a_processor(cases):
    def features_of(held, fault=None):
        names = ("attention_mask", "image_grid_thw", "video_grid_thw", "second_per_grid_ts", "mm_token_type_ids")
        given = [held["input_ids"], *(held.get(name) for name in names), np.zeros_like(held["input_ids"])]
        return {**held, "position_ids": Numbering("qwen2_5_vl", fault)(*given)}

    def by_name(features):
        return features_of(features)

    def wrong(batch):
        return features_of(batch, "exchanged")

    for function, call, codes in (
        (by_name, None, set()),
        (wrong, None, {"rows-and-columns-exchanged"}),
        (functools.partial(features_of, fault="seconds"), "features", {"seconds-cut"}),
    ):
        with cases(function):
            report = check_positions(function, like="qwen2_5_vl", call=call, backend="numpy", raises=False)
            assert report.codes == codes, str(report)
            assert set(report.left_out) == {"packed text", "packed images"}


def test_what_people_write_is_taken_or_answered_with_what_to_pass(tmp_path, cases):
    class Passing(Numbered):
        def get_rope_index(self, *args, **kwargs):
            return super().get_rope_index(*args, **kwargs)

    def no_grids_is_an_array(input_ids, image_grid_thw):
        return image_prompt(input_ids[0], [*image_grid_thw])

    def of_first_row(input_ids, attention_mask, image_grid_thw, video_grid_thw, *, mm_token_type_ids, document_ids):
        given = {"mm_token_type_ids": mm_token_type_ids, "document_ids": document_ids}
        out = Numbering("qwen2_vl", "twice the time")(
            input_ids, attention_mask, image_grid_thw, video_grid_thw, **given
        )
        return out + 3 * (np.arange(out.shape[1])[:, None] > 0)

    with cases("a method that passes all on"):
        assert check_positions(Passing(), raises=False).codes == {"offset-after-image"}
    with cases("no images are an empty array of grids"):
        assert "text" in check_positions(no_grids_is_an_array, like="qwen2_vl", raises=False).experiments
        assert check_positions(no_grids_is_an_array, like="qwen2_vl", raises=False).sound
    with cases("what batches add has another cause"):
        report = check_positions(of_first_row, like="qwen2_vl", raises=False)
        assert report.codes == {"time-step"}
        assert report.explanations[0].message.endswith("batches of several rows are wrong too has another cause.")
    for function, words in ((Numbered, "torch.save(dict(batch), FILE)"), (Numbered.get_rope_index, "of an instance")):
        with cases(words), pytest.raises(CannotCheck) as caught:
            check_positions(function, like="qwen2_vl")
        assert words in caught.value.hint
    (tmp_path / "config.json").write_text(json.dumps(Numbered().config))
    for like in (str(tmp_path), tmp_path / "config.json", Numbered()):
        with cases("the model in place of the family", like):
            report = check_positions(Numbered().get_rope_index, like=like, raises=False)
            assert report.codes == {"offset-after-image"}
    with cases("without --kind"):
        (tmp_path / "mine.py").write_text("def number(input_ids, image_grid_thw):\n    return input_ids * 0\n")
        result = CliRunner().invoke(main, ["check", f"{tmp_path / 'mine.py'}:number", "--like", "qwen2_vl"])
        assert "expected token positions of qwen2_vl" in " ".join(result.output.split())


def test_families_are_names_with_fields(cases):
    for like, words in {
        "qwen2_vx": "no family of position rules called 'qwen2_vx'",
        "qwen2_vl:merg=2": "has no field 'merg'",
        "qwen2_vl:merge=0": "`merge` must be a number",
        "ltx2:stride=4x16": "`stride` must be three numbers",
        "ltx2:stride=4x0x16": "`stride` must be three numbers",
        None: "is missing",
    }.items():
        with cases(like), pytest.raises(ClockhandsError) as caught:
            check_positions(lambda input_ids: input_ids, like=like)
        assert words in caught.value.message


def test_the_command_names_the_fault(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "counting.py").write_text(
        "import numpy as np\n\ndef count(input_ids, attention_mask):\n"
        "    return np.broadcast_to(np.arange(input_ids.shape[1]), input_ids.shape)\n"
    )
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["check", "counting:count", "--kind", "positions", "--like", "llama4", "--json"])
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert [one["codes"] for one in found["explanations"]] == [["padding-shifts"]]
    assert found["failures"][0]["evidence"]["right"] == [0]


def test_the_command_builds_a_model_by_a_function_without_arguments(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from testing.positions.test_check_positions import Model, Numbered\n\n"
        "def load():\n    return Numbered()\n\ndef plain():\n    return Model()\n"
    )
    result = CliRunner().invoke(main, ["check", f"{tmp_path / 'mine.py'}:load", "--kind", "positions"])
    assert result.exit_code == 1
    assert "offset-after-image" in result.output
    result = CliRunner().invoke(main, ["check", f"{tmp_path / 'mine.py'}:plain", "--kind", "positions"])
    assert result.exit_code == 2
    assert "--kind generation" in result.output


def test_an_argument_that_may_be_a_grid_by_another_name_is_not_judged_without():
    def alone(input_ids):
        rows = np.cumsum(np.ones_like(input_ids), axis=1) - 1
        return np.broadcast_to(rows, (3, *rows.shape))

    def numbered(input_ids, grid=None):
        return alone(input_ids) if grid is None else grid

    report = check_positions(numbered, like="qwen2_vl")
    assert report.left_out["an image"] == "it takes no image_grid_thw or video_grid_thw"
    with pytest.raises(CheckFailed, match="like text"):
        check_positions(alone, like="qwen2_vl")
