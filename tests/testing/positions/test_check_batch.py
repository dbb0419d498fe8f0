"""`check_batch`: the positions of a batch of one's own, in Python and from a file."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import clockhands as ch
from clockhands.cli import main
from clockhands.errors import ClockhandsError
from clockhands.testing import CannotCheck, CheckFailed, check_batch, check_positions
from testing.positions.rope_indices import rope_index, transformers

IMAGE = 151655
IDS = np.array([[0, 0, 1, 2, 151652, *[IMAGE] * 12, 151653, 3], [1, 2, 3, 4, 151652, *[IMAGE] * 12, 151653, 3]])
MASK = np.array([[0, 0, *[1] * 17], [1] * 19])
GRIDS = np.array([[1, 6, 8], [1, 8, 6]])
AUDIBLE = [5, 151652, 151647, 151656, 151646, 151656, 151648, 151653, 6]


def right():
    """The positions of the batch, row by row."""
    rows = []
    for pads, height, width in ((2, 3, 4), (0, 4, 3)):
        start = 5 - pads
        text = np.tile(np.concatenate([np.zeros(pads), np.arange(start)]), (3, 1))
        cells = np.array([(start, start + row, start + column) for row in range(height) for column in range(width)]).T
        rows.append(np.concatenate([text, cells, np.tile([start + 4, start + 5], (3, 1))], axis=1))
    return np.stack(rows, axis=1).astype(int)


def test_right_positions_are_sound_in_each_shape_and_library(cases):
    for wanted in (right(), np.concatenate([np.zeros_like(right()[:1]), right()])):
        with cases(wanted.shape):
            assert ch.check_batch("qwen2_vl", IDS, MASK, wanted, image_grid_thw=GRIDS).sound
    with cases("torch"):
        import torch

        ids, mask, wanted, grids = map(torch.tensor, (IDS, MASK, right(), GRIDS))
        assert check_batch("qwen2_vl", ids, mask, wanted, image_grid_thw=grids).sound
    with cases("one row"):
        assert check_batch("text", [5, 6, 7], position_ids=[0, 1, 2]).sound
    with cases("the config of a model"):
        config = rope_index("qwen2_vl").args[0].config
        assert check_batch(config, IDS, MASK, right(), image_grid_thw=GRIDS).sound


def test_wrong_positions_are_named(cases):
    for wrong, code in (
        (right()[[0, 2, 1]], "rows-and-columns-exchanged"),
        (np.tile(np.arange(19) - [[2], [0]], (3, 1, 1)), "image-as-text"),
        (np.where(MASK, right() + np.array([[2], [0]]), 0), "padding-shifts"),
    ):
        with cases(code), pytest.raises(CheckFailed) as caught:
            check_batch("qwen2_vl", IDS, MASK, wrong, image_grid_thw=GRIDS)
        assert code in caught.value.report.codes, str(caught.value)
    with cases("packed"):
        counted, documents = np.arange(6)[None], np.array([[0, 0, 0, 1, 1, 1]])
        report = check_batch("text", counted, None, counted, document_ids=documents, raises=False)
        assert report.codes == {"documents-continue"}
        assert report.failures[0].message.endswith("the first is token 3 (text): expected 0, got 3.")


def test_padding_that_no_mask_names_is_taken_from_the_ids(cases):
    mask = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
    ids = np.where(mask, [[5, 6, 7, 8, 9, 4]], 0)
    counted = np.where(mask, np.arange(6), 1)
    report = check_batch("text", ids, None, counted)
    assert report.left_out["padding"].startswith("it has no attention_mask: 2 tokens of one id")
    assert "Not checked: padding" in " ".join(str(report).split())
    with cases("an inverted mask"):
        report = check_batch("text", ids, None, np.where(mask, 1, [[0, 0, 0, 0, 0, 1]]), raises=False)
        assert report.codes == {"mask-inverted"}
    with cases("with its mask"):
        report = check_batch("text", ids, mask, np.where(mask, 1, 0), raises=False)
        assert report.codes == {"mask-inverted"}
    with cases("nothing that could be padding"):
        wrong = check_batch("text", [[1, 2, 3, 4]], None, [[0, 1, 2, 2]], raises=False)
        assert "padding" not in wrong.left_out


def test_a_report_on_a_batch_is_about_the_batch():
    report = check_batch("qwen2_vl", IDS, MASK, right()[[0, 2, 1]], image_grid_thw=GRIDS, raises=False)
    assert "The batch exchanges rows and columns." in str(report)
    assert "The function" not in str(report)


def test_a_batch_of_text_alone_says_what_was_not_checked(cases):
    for family, missing in (
        ("qwen2_vl", "Not checked: images, videos (it has none)."),
        ("qwen2_5_omni", "Not checked: images, videos, audio (it has none)."),
        ("gemma3", "Not checked: images (it has none)."),
        ("text", None),
    ):
        with cases(family):
            report = check_batch(family, [[5, 6, 7, 0]], [[1, 1, 1, 0]], [[0, 1, 2, 9]])
            verdict = str(report).replace("\n", " ")
            assert verdict.startswith(f"the batch is {'correct as far as checked' if missing else 'correct'}: ")
            assert ("Not checked" in verdict) == (missing is not None)
            assert missing is None or missing in verdict
    with cases("with an image"):
        assert "Not checked" not in str(check_batch("qwen2_vl", IDS, MASK, right(), image_grid_thw=GRIDS))


def test_alternatives_of_one_fault_are_all_told():
    positions = np.array([[0, 1, 3, 4], [0, 1, 1, 4], [0, 1, 1, 4]])[:, None]  # the second frame is at 1 + 2 * 1.5
    given = {"video_grid_thw": [[2, 2, 2]], "second_per_grid_ts": [1.5], "raises": False}
    report = check_batch("qwen2_5_vl", [1, 151656, 151656, 2], None, positions, **given)
    assert report.codes == {"seconds-cut"}
    for words in ("1, not those that are given", "the fraction is cut", " or ", "cannot tell"):
        assert words in report.explanations[0].message


def test_without_seconds_positions_are_told_per_frame():
    positions = [[0, 1, 3, 4], [0, 1, 1, 4], [0, 1, 1, 4]]
    report = check_batch(
        "qwen2_vl", [1, 151656, 151656, 2], position_ids=positions, video_grid_thw=[[2, 2, 2]], raises=False
    )
    assert report.codes == {"time-step"}
    assert report.explanations[0].message == (
        "counts 2 positions per frame in a video instead of one position per frame."
    )


def test_packed_documents_by_their_starts(tmp_path, cases):
    packed, counted = [0, 1, 2, 0, 1], [0, 1, 2, 3, 4]
    for positions, codes in ((packed, set()), (counted, {"documents-continue"})):
        with cases(positions):
            report = check_batch("text", [5] * 5, position_ids=positions, cu_seqlens=[0, 3, 5], raises=False)
            assert report.codes == codes
        for name in ("cu_seqlens", "cu_seq_lens_q"):
            with cases("a file", name, positions):
                starts = {name: np.array([0, 3, 5])}
                np.savez(tmp_path / "batch.npz", input_ids=[[5] * 5], position_ids=[positions], **starts)
                words = ["check", str(tmp_path / "batch.npz"), "--kind", "positions", "--like", "text"]
                assert CliRunner().invoke(main, words).exit_code == bool(codes)


def test_a_mask_may_number_packed_documents(cases):
    mask = [1, 1, 1, 2, 2, 0]
    for positions, codes, words in (
        ([0, 1, 2, 0, 1, 9], set(), "restart with every document"),
        ([0, 1, 2, 3, 4, 9], set(), "count on: right for rotary and relative positions alone"),
        ([0, 1, 2, 1, 1, 1], {"documents-left-out"}, "restart with every document"),
        ([0, 1, 2, 0, 0, 0], {"documents-left-out"}, "restart with every document"),
    ):
        with cases(positions):
            report = check_batch("text", [5] * 6, mask, positions, raises=False)
            assert report.codes == codes
            assert report.sound == (not codes)
            assert words in report.like
    with cases("without positions they are counted, which a model with a table does not bear"):
        table = {"model_type": "gpt2", "n_positions": 64, "n_embd": 8, "n_head": 2, "n_layer": 1, "vocab_size": 9}
        rotary = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
        rotary |= {"max_position_embeddings": 64, "vocab_size": 9}
        seen = np.tri(6, dtype=bool) & (np.array(mask)[:, None] == np.array(mask)) & (np.array(mask) > 0)
        seen |= np.eye(6, dtype=bool)
        hides = ~seen
        for given in (
            mask,
            seen,
            seen[None],
            np.repeat(seen[None, None], 4, 1),
            np.where(seen, 0.0, -1e9)[None],
            hides,
        ):
            report = check_batch(table, [5] * 6, given, raises=False)
            assert report.codes == {"documents-continue"}
            assert [*report.left_out] == ["position_ids"]
            for positions in ([0, 1, 2, 0, 1, 9], [0, 1, 2, 3, 4, 9]):
                assert check_batch(rotary, [5] * 6, given, positions).sound
        assert check_batch(table, [5] * 6, seen[None], [0, 1, 2, 0, 1, 9]).sound
        with pytest.raises(ClockhandsError, match="`position_ids` is missing"):
            check_batch(rotary, [5] * 6, seen[None])
        with pytest.raises(ClockhandsError, match="of which all heads are alike"):
            check_batch(table, [5] * 6, np.stack([seen, np.tri(6, dtype=bool)])[None])
    causal = np.tri(6, dtype=bool)
    right, left = np.array([1, 1, 1, 1, 0, 0], bool), np.array([0, 0, 1, 1, 1, 1], bool)
    numbers = np.array([0, 0, 1, 1, 2, 2])
    for words, seen, positions in (
        ("padding on the right", causal & right, [0, 1, 2, 3, 1, 1]),
        ("padding on the left that sees all", np.where(left[:, None], causal & left, True), [1, 1, 0, 1, 2, 3]),
        ("padding as a document", causal & (numbers[:, None] == numbers), [0, 0, 0, 1, 0, 1]),
        ("a document of one token", causal & (numbers[:, None] == [0, 0, 1, 1, 2, 3]), [0, 1, 2, 3, 4, 5]),
        ("a window", causal & ~np.tri(6, k=-3, dtype=bool), [0, 1, 2, 3, 4, 5]),
    ):
        with cases(words):
            assert check_batch("text", [5] * 6, seen[None, None], [positions], raises=False).sound
    with cases("padding on the left that is counted"):
        report = check_batch("text", [5] * 6, (causal & left)[None, None], [[0, 1, 2, 3, 4, 5]], raises=False)
        assert "padding-shifts" in report.codes
    with cases("of documents that are given the mask says only which tokens are padding"):
        report = check_batch("text", [5] * 6, mask, [0, 1, 2, 3, 4, 9], document_ids=[1] * 6, raises=False)
        assert report.sound


def test_a_mapping_of_a_processor_is_a_batch(cases):
    batch = {"input_ids": IDS, "attention_mask": MASK, "image_grids": GRIDS, "pixel_values": np.zeros((96, 4))}
    with cases("all in it"):
        assert check_batch("qwen2_vl", {**batch, "position_ids": right()}).sound
    with cases("what is passed comes first"):
        report = check_batch("qwen2_vl", {**batch, "position_ids": right()}, position_ids=right() + 1, raises=False)
        assert report.codes == {"first-position"}


def test_a_video_with_audio(cases):
    """One frame, its audio, the second frame: by time as in Qwen3-Omni."""
    ids = [5, *AUDIBLE[1:3], 151656, 151675, 151656, 151670, 151653, 6]
    ids[2] = 151669
    given = {"video_grid_thw": [[2, 2, 2]], "second_per_grid_ts": [1 / 13], "raises": False}
    right = np.array([0, 1, 2, 3, 3, 4, 5, 6, 7])
    for positions, codes in (
        (right, set()),
        ([0, 1, 1, 2, 2, 3, 4, 4, 5], {"audio-marks"}),
        ([0, 1, 2, 3, 5, 4, 5, 6, 7], {"audio-after-video"}),
    ):
        time = np.array(positions)
        rows = np.where(np.array(ids) == 151656, time[3], time)
        with cases(positions):
            report = check_batch("qwen3_omni", ids, position_ids=[time, rows, rows], **given)
            assert report.codes == codes, str(report)
            assert report.sound == (not codes)


def test_a_row_of_padding_has_no_positions(cases):
    mask = np.array([[0, 0, 0], [1, 1, 1]])
    for positions, codes in (([0, 1, 2], set()), ([1, 2, 3], {"first-position"}), ([0, 2, 1], set())):
        with cases(positions):
            report = check_batch("text", mask, mask, [[0, 0, 0], positions], raises=False)
            assert report.codes == codes
            assert report.sound == (positions == [0, 1, 2])


def test_arrays_that_do_not_belong_together_are_refused(cases):
    for words, call in {
        "`position_ids` is missing": lambda: check_batch("text", IDS),
        "has another shape than the batch": lambda: check_batch("text", IDS, MASK, IDS[:, 1:]),
        "`attention_mask` has the shape [1, 19]": lambda: check_batch("text", IDS, MASK[:1], IDS),
        "tokens of images without a grid": lambda: check_batch("qwen2_vl", IDS, MASK, right()),
        "has 20 tokens, but the batch has 12": lambda: check_batch(
            "qwen2_vl", IDS, MASK, right(), image_grid_thw=[[1, 8, 10], [1, 8, 6]]
        ),
        "1 grid of images have no tokens": lambda: check_batch(
            "qwen2_vl", IDS, MASK, right(), image_grid_thw=[*GRIDS.tolist(), [1, 2, 2]]
        ),
        "come in another order than in this family": lambda: check_batch(
            "qwen2_5_omni", AUDIBLE, position_ids=[range(9)], video_grid_thw=[[2, 2, 2]]
        ),
        "`attention_mask` has the value -1e+09": lambda: check_batch("text", IDS, (1 - MASK) * -1e9, IDS),
        "`attention_mask` has the value 0.5": lambda: check_batch("text", [5] * 2, [1, 0.5], [0, 1]),
        "The batch has no input_ids": lambda: check_batch("text", {"position_ids": [0, 1]}),
        "`attention_mask` is 0 everywhere": lambda: check_batch("text", IDS, 0 * MASK, IDS),
        "`input_ids` has the shape [1, 2, 19]": lambda: check_batch("text", IDS[None], position_ids=IDS),
        "`input_ids` has the shape [1, 0]": lambda: check_batch("text", [], position_ids=[]),
        "`input_ids` is no array of real numbers": lambda: check_batch("text", ["a"], position_ids=[0]),
        "`position_ids` is no array of real numbers": lambda: check_batch("text", [5], position_ids=["0"]),
        "`position_ids` is no array": lambda: check_batch("text", [5, 6], position_ids=np.array([0, 1j])),
        "`mm_token_type_ids` has the type 7": lambda: check_batch(
            "qwen2_vl", [5], position_ids=[0], mm_token_type_ids=[7]
        ),
        "`mm_token_type_ids` has values that are no whole": lambda: check_batch(
            "qwen2_vl", [5], position_ids=[0], mm_token_type_ids=[0.5]
        ),
        "`image_grid_thw` has the shape [1, 4]": lambda: check_batch(
            "qwen2_vl", IDS, MASK, right(), image_grid_thw=[[1, 6, 8, 1]]
        ),
        "`second_per_grid_ts` has 0 values for 1 video": lambda: check_batch(
            "qwen2_5_vl", [151656], position_ids=[0], video_grid_thw=[[1, 2, 2]], second_per_grid_ts=[]
        ),
        "`cu_seqlens` must rise from 0 to the 3 tokens": lambda: check_batch(
            "text", [5] * 3, position_ids=[0, 1, 0], cu_seqlens=[0, 2]
        ),
        "both say where documents start": lambda: check_batch(
            "text", [5] * 3, position_ids=[0, 1, 0], cu_seqlens=[0, 2, 3], document_ids=[0, 0, 1]
        ),
        "No position rule is known for 'roberta'": lambda: check_batch(transformers.RobertaConfig(), IDS, MASK, IDS),
    }.items():
        with cases(words), pytest.raises(ClockhandsError) as caught:
            call()
        assert words in caught.value.message


PROCESSORS = """
class ByName:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
    def __call__(self, text, images=None, return_tensors=None):
        return {}
class MadeWithoutArguments:
    def __call__(self, images=None, text=None, **options):
        return {}
class ProcessorMixin: ...
class Inherits(ProcessorMixin):
    def __call__(self, *args, **options):
        return {}
an_object = MadeWithoutArguments()
def a_function(text, images=None):
    return {}
"""


def test_a_processor_is_refused_with_how_to_check_its_batch(tmp_path, cases):
    file = tmp_path / "mine.py"
    file.write_text(PROCESSORS)
    positions = ["--kind", "positions", "--like", "qwen2_vl"]
    for name in ("ByName", "MadeWithoutArguments", "Inherits", "an_object", "a_function"):
        for options in ([], ["--like", "qwen2_vl"], positions):
            if name == "a_function" and options != positions:
                continue  # without the kind it may be an encoding of images
            with cases(name, options):
                result = CliRunner().invoke(main, ["check", f"{file}:{name}", *options])
                family = options[-1] if options else "FAMILY"
                assert result.exit_code == 2
                assert "torch.save(dict(batch), FILE)" in result.output
                assert f"clockhands check FILE --kind positions --like {family};" in result.output
    with cases("the file"):
        result = CliRunner().invoke(main, ["check", str(file)])
        assert result.exit_code == 2
        assert "clockhands check FILE --kind positions --like FAMILY." in result.output
    with cases("a file without one"):
        file.write_text("def positions(input_ids): ...\n")
        assert "torch.save" not in CliRunner().invoke(main, ["check", str(file)]).output
    for fn in (transformers.Qwen2VLProcessor, transformers.LlavaProcessor):
        with cases(fn), pytest.raises(CannotCheck, match="makes batches of images and texts"):
            check_positions(fn, like="qwen2_vl")


def test_a_batch_in_a_file_is_checked_by_the_command(tmp_path, cases):
    import torch

    config = {"model_type": "qwen2_vl", "image_token_id": IMAGE, "vision_config": {"spatial_merge_size": 2}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    batch = {"input_ids": IDS, "attention_mask": MASK, "image_grid_thw": GRIDS, "labels": IDS}
    with cases("an object of another class"):
        torch.save(transformers.BatchFeature(batch), tmp_path / "object.pt")
        result = CliRunner().invoke(main, ["check", str(tmp_path / "object.pt"), "--like", "qwen2_vl"])
        assert result.exit_code == 2
        assert "torch.save(dict(batch), FILE)" in result.output
    for positions, code in ((right(), 0), (right()[[0, 2, 1]], 1)):
        np.savez(tmp_path / "batch.npz", position_ids=positions, **batch)
        torch.save(
            {name: torch.tensor(held) for name, held in {**batch, "position_ids": positions}.items()},
            tmp_path / "batch.pt",
        )
        for file in ("batch.npz", "batch.pt"):
            for like in ("qwen2_vl", tmp_path / "config.json"):
                with cases(file, like, code):
                    words = ["check", str(tmp_path / file), "--kind", "positions", "--like", str(like)]
                    result = CliRunner().invoke(main, words)
                    assert result.exit_code == code, result.output
                    assert ("rows-and-columns-exchanged" in result.output) == bool(code)


def test_what_no_rule_predicts_is_said_by_what_is_seen(cases):
    with cases("the delta of an image is lost"):
        more = 3
        ids = np.concatenate([[1, 151652], [151655] * 4, [151653], [9] * (more + 1)])[None]
        grids = [[1, 4, 4]]
        wanted = right_of(ids, grids)
        wanted[..., -more:] = np.arange(ids.shape[1])[-more:]
        report = check_batch("qwen2_vl", ids, None, wanted, image_grid_thw=grids, raises=False)
        assert report.codes == {"delta-lost"}, str(report)
        assert "numbers the last 3 tokens of row 0" in str(report).replace("\n", " ")
        assert "without the rope delta of -2" in " ".join(str(report).split())
    with cases("positions go back inside a document"):
        report = check_batch("text", np.arange(8), None, [0, 1, 2, 3, 4, 0, 1, 2], raises=False)
        assert report.codes == {"restarts-inside"}, str(report)
        assert "goes back to position 0 at token 5 of row 0, after position 4" in " ".join(str(report).split())
    with cases("only the first frame has positions"):
        ids = np.concatenate([[1, 151652], [151656] * 12, [151653, 9]])[None]
        given = {"video_grid_thw": [[3, 4, 4]]}
        wanted = positions_by_hand(ids, given)
        wrong = wanted.copy()
        wrong[..., 6:14] = 0
        assert check_batch("qwen2_vl", ids, None, wanted, **given).sound
        report = check_batch("qwen2_vl", ids, None, wrong, raises=False, **given)
        assert report.codes == {"first-frame-alone"}, str(report)


def right_of(ids, grids):
    return positions_by_hand(ids, {"image_grid_thw": grids})


def positions_by_hand(ids, given):
    """The positions that the rule of Qwen2-VL gives to one row with one image or video."""
    ((frames, rows, columns),) = next(iter(given.values()))
    begin, cells = 2, np.indices((frames, rows // 2, columns // 2)).reshape(3, -1)
    size = cells.shape[1]
    text = np.arange(begin)
    after = begin + cells.max() + 1 + np.arange(ids.shape[1] - begin - size)
    return np.concatenate([np.tile(text, (3, 1)), cells + begin, np.tile(after, (3, 1))], axis=1)[:, None]
