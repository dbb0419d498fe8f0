"""`check_batch`: whether the positions of a user's own batch are those that a model expects."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import listed, number_of, shown
from clockhands.recognition.calling import Refused
from clockhands.recognition.token_positions import PositionRule, TokenBatch, given_batch
from clockhands.testing.positions._known_rules import adds_a_table, known_rules
from clockhands.testing.positions._position_calls import KNOWN, arranged, numbers
from clockhands.testing.positions._position_check import MEASURED, Numbered, judged
from clockhands.testing.reports import Report, settled

COUNTED = "it has no position_ids: tokens are counted along each row, as models do then"


def check_batch(
    model: Any,
    input_ids: Any,
    attention_mask: Any = None,
    position_ids: Any = None,
    *,
    image_grid_thw: Any = None,
    video_grid_thw: Any = None,
    second_per_grid_ts: Any = None,
    mm_token_type_ids: Any = None,
    document_ids: Any = None,
    cu_seqlens: Any = None,
    raises: bool = True,
) -> Report:
    """Check that the positions of a batch are those that a model expects, and name the fault if they are not.

    Args:
        model: A loaded model of Transformers, its config, its folder or name, or the name of a family as in
            `check_positions`: ``"text"`` is any model whose tokens are counted from 0.
        input_ids: The ids of its tokens, [batch, seq] or [seq], an array of any library; or a mapping of these
            arguments, as a processor returns it, from which those are taken that are not passed.
        attention_mask: Which tokens are no padding, as `input_ids`: 1 or True, and 0 or False for padding. With larger
            numbers it numbers packed documents from 1, and so does a mask of queries and keys, [batch, seq, seq] or
            [batch, 1, seq, seq], of booleans or added to scores: positions restart with each document, or go on, unless
            the model adds rows of a table. Without it no token is padding, or, where that leaves positions wrong, one
            id that fills rows up at one end may be.
        position_ids: The positions to check, [axes, batch, seq], [batch, seq] or [seq]; a first axis more than the
            family has (the positions of text, as Transformers passes them to packed models) is left out. Where a mask
            numbers documents, a model that adds rows of a table counts along each row if there are none.
        image_grid_thw: The grids of all images in patches, [number, 3].
        video_grid_thw: The grids of all videos, as `image_grid_thw`.
        second_per_grid_ts: The seconds between the frames of each video; 1 unless given.
        mm_token_type_ids: The type of each token; from the ids unless given.
        document_ids: The number of the packed document of each token, as `input_ids`; one document a row unless given.
        cu_seqlens: In place of `document_ids`, for one row: where its packed documents start, and the end of the last.
        raises: Whether wrong positions are raised; else they are in the report.

    Returns:
        The report; where positions are wrong and ``raises`` is false too.

    Accuracy: whole positions are compared exactly, fractions of one within 2**-20; those of padding are not compared.

    Raises:
        CheckFailed: Positions are wrong; the message is the report.
        InvalidValue, InvalidType: The family is not known, an array has other values, or they do not belong together.

    Source: as `check_positions`.

    >>> import numpy as np
    >>> mask = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    >>> check_batch("text", mask, mask, np.array([[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]), raises=False).codes
    frozenset({'padding-shifts'})
    """
    __tracebackhide__ = True
    if isinstance(input_ids, Mapping):
        passed = {
            "attention_mask": attention_mask, "position_ids": position_ids, "image_grid_thw": image_grid_thw,
            "video_grid_thw": video_grid_thw, "second_per_grid_ts": second_per_grid_ts,
            "mm_token_type_ids": mm_token_type_ids, "document_ids": document_ids, "cu_seqlens": cu_seqlens,
        }  # fmt: skip
        given = {meant: input_ids[name] for meant, name in taken(input_ids).items()}
        given |= {name: value for name, value in passed.items() if value is not None}
        if "input_ids" not in given:
            raise InvalidValue("The batch has no input_ids.", f"Name its arrays {listed(['input_ids', *passed])}.")
        return check_batch(model, **given, raises=raises)
    rules = known_rules(model)
    ids = np.atleast_2d(_whole("input_ids", input_ids))
    if ids.ndim != 2 or not ids.size:
        raise InvalidValue(
            f"`input_ids` has the shape {list(ids.shape)}.", "Pass ids of tokens, [batch, seq] or [seq]."
        )
    if cu_seqlens is not None and document_ids is not None:
        raise InvalidType("`cu_seqlens` and `document_ids` both say where documents start.", "Pass one of them.")
    numbered = _numbered_documents(attention_mask, ids)
    if len(numbered) > 1 and position_ids is not None:
        # What is padding and what a document of its own is not in such a mask: right is what is so with either.
        reports = (
            check_batch(
                model, ids, each, position_ids, image_grid_thw=image_grid_thw, video_grid_thw=video_grid_thw,
                second_per_grid_ts=second_per_grid_ts, mm_token_type_ids=mm_token_type_ids, document_ids=document_ids,
                cu_seqlens=cu_seqlens, raises=False,
            )
            for each in numbered
        )  # fmt: skip
        first = next(reports)
        return settled(first if first.sound else next((each for each in reports if each.sound), first), raises)
    mask = _mask(numbered[0] if numbered else attention_mask, ids)
    documents = _of_tokens("document_ids", document_ids, ids) if cu_seqlens is None else _documents(cu_seqlens, ids)
    left_out: dict[str, str] = {}
    if documents is None and mask is not None and mask.max() > 1:
        documents = mask
        from_a_table = adds_a_table(model)
        if position_ids is None and from_a_table:
            position_ids = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
            left_out["position_ids"] = COUNTED
        noted = "documents, which the mask numbers, count on: right for rotary and relative positions alone"
        if not from_a_table:
            rules += tuple(replace(rule, documents="continue", noted=noted) for rule in rules)
    if position_ids is None:
        raise InvalidType("`position_ids` is missing: the positions to check.", "Pass the positions of the batch.")
    batch = given_batch(
        rules[0],
        ids,
        mask=mask,
        grids={"image": _grids("image", image_grid_thw), "video": _grids("video", video_grid_thw)},
        seconds=None
        if second_per_grid_ts is None
        else _real("second_per_grid_ts", second_per_grid_ts).ravel().tolist(),
        types=_of_tokens("mm_token_type_ids", mm_token_type_ids, ids),
        documents=documents,
    )
    if left_out:
        batch = replace(batch, name=f"{batch.name} ({COUNTED})")
    axes = len(rules[0].axes)
    got = _real("position_ids", position_ids)
    if got.ndim == 3 and got.shape[0] == axes + 1:
        got = got[1:]
    try:
        answer = Numbered(batch, arranged(got, axes, *batch.shape).astype(np.float64), None)
    except Refused as error:
        raise InvalidValue(
            f"`position_ids` has another shape than the batch: {str(error).removeprefix('it returned ')}.",
            "Pass the positions of all tokens of the batch.",
        ) from None
    called = {"library": "numpy", "dtype": str(got.dtype)}
    report = judged("the batch", rules, [answer], left_out | _missing(batch, rules[0]), called)
    assumed = _assumed_mask(ids, answer.got) if mask is None and not report.sound else None
    if assumed is not None:
        other = check_batch(
            model, ids, assumed, position_ids, image_grid_thw=image_grid_thw, video_grid_thw=video_grid_thw,
            second_per_grid_ts=second_per_grid_ts, mm_token_type_ids=mm_token_type_ids, document_ids=document_ids,
            cu_seqlens=cu_seqlens, raises=False,
        )  # fmt: skip
        if other.sound or (MEASURED.issuperset(report.codes) and not MEASURED.issuperset(other.codes)):
            count = number_of(int((assumed == 0).sum()), "token")
            why = f"it has no attention_mask: {count} of one id at the ends of rows were taken for padding"
            report = replace(other, left_out={**other.left_out, "padding": why})
    return settled(replace(report, noun="the batch"), raises)


def _assumed_mask(ids: np.ndarray, got: np.ndarray) -> np.ndarray | None:
    """The mask of padding that ids show: one id fills rows up at one end; None if none does so twice in a row.

    Tokens behind a text whose positions grow are no padding: one token may be generated again and again.
    """
    ends = np.concatenate([ids[:, -1], ids[:, 0]])
    for pad in np.unique(ends):
        same = ids == pad
        after = np.logical_and.accumulate(same[:, ::-1], axis=1)[:, ::-1]
        before = np.logical_and.accumulate(same, axis=1)
        for filled in (after, before):
            on = (np.diff(got) > 0).all(axis=0) | ~filled[:, 1:]
            if filled is after and (on.all(axis=1) & filled.any(axis=1)).any():
                continue
            if filled.sum() > 1 and not filled.all(axis=1).any():
                return (~filled).astype(np.int64)
    return None


def _missing(batch: TokenBatch, rule: PositionRule) -> dict[str, str]:
    """What a batch of text alone says nothing about: the images, videos and audio that the family has."""
    known = {"images": rule.image != "none", "videos": rule.video != "none", "audio": bool(rule.audio_rate)}
    only_text = not batch.types[batch.mask].any()
    return {name: "it has none" for name, has in known.items() if has and only_text}


def taken(names: Iterable[str]) -> dict[str, str]:
    """Of these names of arrays the one of each argument of `check_batch`: its own before another for the same."""
    arguments = inspect.signature(check_batch).parameters
    by_own = sorted((KNOWN.get(name, name) == name, name) for name in names)
    return {KNOWN.get(name, name): name for _, name in by_own if KNOWN.get(name, name) in arguments}


def _real(name: str, value: Any, kinds: str = "iuf") -> np.ndarray:
    array = numbers(value, kinds)
    if array is None:
        raise InvalidValue(
            f"`{name}` is no array of real numbers.", f"Pass `{name}` as an array, or as lists of one length."
        )
    return array


def _whole(name: str, value: Any) -> np.ndarray:
    array = _real(name, value)
    if not np.isfinite(array).all() or (array != np.floor(array)).any():
        raise InvalidValue(f"`{name}` has values that are no whole numbers.", f"Pass `{name}` as integers.")
    return array.astype(np.int64)


def _grids(kind: str, value: Any) -> np.ndarray | None:
    if value is None:
        return None
    grids = np.atleast_2d(_whole(f"{kind}_grid_thw", value))
    if grids.ndim != 2 or grids.shape[1] != 3:
        raise InvalidValue(
            f"`{kind}_grid_thw` has the shape {list(grids.shape)}, but a grid is (frames, rows, columns).",
            "Pass the grids in patches, [number, 3].",
        )
    return grids


def _documents(cu_seqlens: Any, ids: np.ndarray) -> np.ndarray:
    """The number of the document of each token of one row, from the starts of documents and the end of the last."""
    starts = _whole("cu_seqlens", cu_seqlens).ravel()
    tokens = ids.shape[1]
    if len(ids) > 1 or len(starts) < 2 or (starts[0], starts[-1]) != (0, tokens) or (np.diff(starts) < 0).any():
        raise InvalidValue(
            f"`cu_seqlens` must rise from 0 to the {tokens} tokens of one row, got {shown(starts.tolist())} for "
            f"`input_ids` of the shape {list(ids.shape)}.",
            "Pass document_ids, a number for each token, [batch, seq].",
        )
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))[None]


def _mask(value: Any, ids: np.ndarray) -> np.ndarray | None:
    """A mask of 0 and 1, or the numbers of documents from 1; a mask of tokens that is added to scores is refused."""
    if value is None:
        return None
    mask = _of_tokens("attention_mask", value, ids, "iufb")
    assert mask is not None
    others = mask[(mask < 0) | (mask != np.floor(mask))]
    if others.size:
        raise InvalidValue(
            f"`attention_mask` has the value {others.min():g}; it has 1 or True for tokens, 0 or False for padding.",
            "Of a mask that is added to scores, pass mask == 0.",
        )
    if not mask.any():
        raise InvalidValue(
            "`attention_mask` is 0 everywhere: the batch has no tokens.",
            "Pass 1 or True for tokens that are no padding.",
        )
    return mask.astype(np.int64)


def _numbered_documents(value: Any, ids: np.ndarray) -> list[np.ndarray]:
    """The numberings of documents from 1, 0 for padding, that a mask of queries and keys may mean; none of another.

    A document starts where a query sees no earlier key. Padding is what does not see itself, what alone sees later
    keys, what sees nothing and is seen by nothing at the ends of a row, or a whole document there.
    """
    mask = None if value is None else numbers(value, "iufb")
    size = ids.shape[1]
    if mask is None or mask.shape[-2:] != (size, size) or (mask.ndim == 2 and len(ids) > 1) or size < 2:
        return []
    shape, mask = mask.shape, mask.reshape(-1, size, size)
    if len(mask) % len(ids) == 0 and len(mask) > len(ids):
        mask = mask.reshape(len(ids), -1, size, size)
        mask = mask[:, 0] if (mask == mask[:, :1]).all() else mask.reshape(-1, size, size)
    if len(mask) not in {1, len(ids)}:
        raise InvalidValue(
            f"`attention_mask` has the shape {list(shape)}, but `input_ids` has {list(ids.shape)}.",
            "Pass a mask [batch, 1, seq, seq], of which all heads are alike.",
        )
    mask = np.broadcast_to(mask, (*ids.shape, size))
    adds = mask.dtype.kind == "f" and (mask <= 0).all() and (mask < 0).any()
    sees = mask == 0 if adds else mask > 0
    itself = np.eye(size, dtype=bool)
    if not sees[:, itself].any():
        sees = ~sees  # where it says what is hidden
    later = np.triu(sees, 1).any(axis=2)
    unmasked = later & sees.all(axis=2) & (later.mean() < 0.5)
    pads = ~sees[:, itself] | unmasked
    others = sees & ~itself & ~unmasked[:, :, None]
    alone = ~(others.any(axis=2) | others.any(axis=1)) & ~pads
    made = []
    for single in (_at_ends(alone), np.zeros_like(alone)):
        starts = ~np.tril(others).any(axis=2) & ~pads & ~single
        documents = np.where(pads | single, 0, np.cumsum(starts, axis=1))
        last = documents.max(axis=1, keepdims=True)
        made += [documents, np.where((documents == last) & (last > 1), 0, documents)]
        made.append(np.where(last > 1, np.maximum(documents - 1, 0), documents))
    return list({each.tobytes(): each for each in made if each.any()}.values())


def _at_ends(alone: np.ndarray) -> np.ndarray:
    """Of such tokens those with only such ones before them, or behind them."""
    before = np.logical_and.accumulate(alone, axis=1)
    return before | np.logical_and.accumulate(alone[:, ::-1], axis=1)[:, ::-1]


def _of_tokens(name: str, value: Any, ids: np.ndarray, kinds: str | None = None) -> np.ndarray | None:
    """An array with a number for each token, whole unless of other kinds; raises `InvalidValue` for another shape."""
    if value is None:
        return None
    array = np.atleast_2d(_whole(name, value) if kinds is None else _real(name, value, kinds))
    if array.shape != ids.shape:
        raise InvalidValue(
            f"`{name}` has the shape {list(array.shape)}, but `input_ids` has {list(ids.shape)}.",
            f"Pass `{name}` with one number for each token.",
        )
    return array
