"""Functions whose arguments say what they compute, as people write them: right ones, and each with one fault."""

import numpy as np

import clockhands as ch

SIDE = 8


# Positions of a decoding step.
def range_from(start, n):
    return np.arange(start, start + n)


def one_later(start, n):
    return np.arange(start, start + n) + 1


def in_all_rows(past_key_values_length, seq_length, batch_size):
    return np.tile(np.arange(past_key_values_length, past_key_values_length + seq_length), (batch_size, 1))


def of_all_tokens(length, cache_len):
    return np.arange(cache_len, length)


def without_cache(cache_len, q_len):
    return np.arange(q_len) + 0 * cache_len


def with_delta(position_ids, rope_deltas):
    return position_ids + rope_deltas[:, None]


def with_first_delta(position_ids, rope_deltas):
    return position_ids + rope_deltas[0]


def delta_lost(cache_offsets, rope_deltas, seq_len):
    return np.tile(cache_offsets[:, None] + 0 * rope_deltas[:, None] + np.arange(seq_len), (3, 1, 1))


def delta_subtracted(cache_offset, rope_delta, seq_len):
    return cache_offset - rope_delta + np.arange(seq_len)[None]


def at_one_position(cache_offset, rope_delta, seq_len):
    return np.full((3, 1, seq_len), cache_offset + rope_delta)


def of_step(prefill_len, step):
    return np.array([prefill_len + step])


def step_skips_one(prefill_len, step):
    return np.array([prefill_len + step + 1])


def step_at_zero(prefill_len, step):
    return np.array([0 * (prefill_len + step)])


def table_of_a_step(start, n):
    return ch.table(ch.Sinusoidal(16), range(start, start + n))


def bounds(start, n):
    return start, start + n


# Tables of grids.
def _waves(at, width):
    angle = np.asarray(at, float)[:, None] * 10000.0 ** (-np.arange(width // 2) * 2 / width)
    return np.concatenate([np.sin(angle), np.cos(angle)], 1)


def _cells(height, width):
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    return rows.ravel(), columns.ravel()


def rows_then_columns(embed_dim, grid_size):
    rows, columns = _cells(*grid_size)
    return np.concatenate([_waves(columns, embed_dim // 2), _waves(rows, embed_dim // 2)], 1)


def columns_then_rows(embed_dim, grid_size):
    columns, rows = _cells(*grid_size[::-1])
    return np.concatenate([_waves(columns, embed_dim // 2), _waves(rows, embed_dim // 2)], 1)


def as_channels_first(features):
    _, channels, height, width = features.shape
    return rows_then_columns(channels, (height, width)).T.reshape(1, channels, height, width)


def exchanged_channels_first(features):
    _, channels, height, width = features.shape
    return rows_then_columns(channels, (width, height)).T.reshape(1, channels, height, width)


def normalised(h, w):
    rows, columns = _cells(h, w)
    return np.concatenate([_waves((rows + 0.5) / h * 2 * np.pi, 16), _waves((columns + 0.5) / w * 2 * np.pi, 16)], 1)


def _phases(*coordinates, width=16, bases=None):
    bases = bases or [10000.0] * len(coordinates)
    ladders = [base ** (-np.arange(width // 2) * 2 / width) for base in bases]
    return np.concatenate([np.outer(at, rates) for at, rates in zip(coordinates, ladders, strict=True)], 1)


def rotary_of_rows(height, width):
    angle = _phases(*_cells(height, width))
    return np.cos(np.tile(angle, 2)).reshape(height, width, -1), np.sin(np.tile(angle, 2)).reshape(height, width, -1)


def rotary_turned(height, width):
    columns, rows = _cells(width, height)
    angle = _phases(rows, columns)
    return np.cos(angle), np.sin(angle)


def rotary_centred(height, width):
    rows, columns = _cells(height, width)
    angle = _phases(rows - height // 2, columns - width // 2)
    return np.cos(angle), np.sin(angle)


def video(num_frames, height, width):
    at = np.indices((num_frames, height, width)).reshape(3, -1)
    return np.exp(1j * _phases(*at, bases=[500.0, 10000.0, 10000.0]))


def video_frames_fastest(num_frames, height, width):
    at = np.indices((height, width, num_frames)).reshape(3, -1)
    return np.exp(1j * _phases(at[2], at[0], at[1]))


def video_stretched(num_frames, height, width):
    at = np.indices((num_frames, height, width)).reshape(3, -1)
    return np.exp(1j * _phases(at[0] * 1.5, at[1], at[2]))


def video_split_elsewhere(num_frames, height, width):
    at = np.indices((num_frames, height, width)).reshape(3, -1)
    wide = [_phases(coordinate) for coordinate in at]
    split = np.concatenate([np.outer(at[1], [wide[0][height * width, -1]]), wide[1], wide[2]], 1)
    return np.exp(1j * np.concatenate([wide[0][:, :-1], split], 1))


def rotary_merged(height, width):
    at = np.indices((height, width)).reshape(2, height // 2, 2, width // 2, 2).swapaxes(2, 3).reshape(2, -1)
    return np.exp(1j * _phases(*at))


def rotary_merged_elsewhere(height, width):
    at = np.indices((height, width)).reshape(2, height // 4, 4, width // 4, 4).swapaxes(2, 3).reshape(2, -1)
    return np.exp(1j * _phases(*at))


# Tables of a length.
def of_positions(max_len, d_model):
    return ch.table(ch.Sinusoidal(d_model), max_len)


def of_distances(seq_len, emb_dim=16):
    return ch.table(ch.Sinusoidal(emb_dim, layout="halves"), range(seq_len - 1, -seq_len, -1))[None]


def of_rising_distances(n_ctx):
    return ch.table(ch.preset("tensor2tensor", width=32), range(1 - n_ctx, n_ctx))


def of_unsigned_distances(seq_len):
    return ch.table(ch.Sinusoidal(16), abs(np.arange(1 - seq_len, seq_len)))


def of_distances_all_negative(seq_len, dim):
    return ch.table(ch.Sinusoidal(dim), -abs(np.arange(1 - seq_len, seq_len)))


def of_distances_with_base(seq_len, dim, theta=500.0):
    return ch.table(ch.Sinusoidal(dim, theta), abs(np.arange(1 - seq_len, seq_len)))


def of_cosines(seq_len, dim):
    return np.cos(np.arange(seq_len)[:, None] * 10000.0 ** (-np.arange(dim) / dim))


def sum_of_rows_and_columns(height, width):
    draw = np.random.default_rng(0)
    return (draw.normal(size=(height, 1, 16)) + draw.normal(size=(1, width, 16))).reshape(height * width, 16)


def squared(x):
    return x * x


# Learned tables for another grid.
def resized(pos_embed, h, w):
    return ch.additive.resize(pos_embed, (h, w), "cubic")


def resized_to(table, new_size):
    return ch.additive.resize(table[0], new_size, align_corners=True)[None]


def resized_image(pos_embed, grid_h, grid_w):
    assert pos_embed.ndim == 4
    rows = np.moveaxis(pos_embed[0], 0, -1).reshape(SIDE * SIDE, -1)
    return np.moveaxis(ch.additive.resize(rows, (grid_h, grid_w)).reshape(grid_h, grid_w, -1), -1, 0)[None]


def resized_with_class_token(pos_embed, height, width):
    if len(pos_embed) % 2 == 0:
        raise ValueError("no class token")
    return ch.additive.resize(pos_embed, (height, width), kept=1, antialias=True)


def resized_from(posemb, new_size, old_size):
    return ch.additive.resize(posemb, tuple(new_size), "cubic", grid=tuple(old_size), antialias=True)


def unchanged_if_as_many(posemb, new_size, old_size):
    as_many = len(posemb) == new_size[0] * new_size[1]
    return posemb if as_many else resized_from(posemb, new_size, old_size)


def from_a_square(posemb, new_size, old_size):
    del old_size  # the fault
    return ch.additive.resize(posemb, tuple(new_size), "cubic", antialias=True)


def old_size_exchanged(posemb, new_size, old_size):
    return resized_from(posemb, new_size, old_size[::-1])


def resized_exchanged(pos_embed, h, w):
    return ch.additive.resize(pos_embed, (w, h), "cubic")


def rows_of_the_old_grid(pos_embed, h, w):
    return pos_embed[: h * w]


def corner_of_the_old_grid(pos_embed, h, w):
    side = int(len(pos_embed) ** 0.5)
    return pos_embed.reshape(side, side, -1)[:h, :w].reshape(h * w, -1)


def columns_first(pos_embed, h, w):
    return np.swapaxes(ch.additive.resize(pos_embed, (h, w)).reshape(h, w, -1), 0, 1).reshape(h * w, -1)


def added_to_patches(patches, pos_embed, h, w):
    return patches + resized(pos_embed, h, w)


def nearest(pos_embed, h, w):
    side = int(len(pos_embed) ** 0.5)
    rows, columns = np.arange(h) * side // h, np.arange(w) * side // w
    return pos_embed.reshape(side, side, -1)[rows][:, columns].reshape(h * w, -1)


# Scores with position terms.
def _apart(length):
    return np.arange(length)[:, None] - np.arange(length)


def shaw(q, rel_k):
    return np.einsum("hid,hijd->hij", q, rel_k[:, np.clip(-_apart(q.shape[1]), -4, 4) + 4])


def _shift(scores):
    heads, length, number = scores.shape
    padded = np.concatenate([np.zeros((heads, length, 1)), scores], -1).reshape(heads, number + 1, length)
    return padded[:, 1:].reshape(heads, length, number)


def transformer_xl(q, r):
    if r.shape[1] != 2 * q.shape[1] - 1:
        raise ValueError("one row for each distance")
    return _shift(q @ np.swapaxes(r, 1, 2))[..., : q.shape[1]]


def transformer_xl_causal(q, r):
    if r.shape[1] != q.shape[1]:
        raise ValueError("one row for each distance")
    return _shift(q @ np.swapaxes(r, 1, 2))


def two_terms(query, key, pos_key, pos_query, turned=False):
    apart = np.clip(_apart(query.shape[1]), -6, 5) + 6
    other = np.clip(_apart(query.shape[1]).T if turned else _apart(query.shape[1]), -6, 5) + 6
    to_position = np.einsum("hid,hijd->hij", query, pos_key[:, apart])
    return (to_position + np.einsum("hjd,hijd->hij", key, pos_query[:, other])) / 4


def turned_term(query, key, pos_key, pos_query):
    return two_terms(query, key, pos_key, pos_query, turned=True)


def row_after(query, key, pos_key, pos_query):
    return two_terms(query, key, pos_key, np.roll(pos_query, -1, 1))


# Rows of a learned table for patches.
def by_fractions(patch_attention_mask, num_patches_per_side):
    out = np.zeros((len(patch_attention_mask), patch_attention_mask[0].size), int)
    for ids, mask in zip(out, patch_attention_mask, strict=True):
        high, wide = mask[:, 0].sum(), mask[0].sum()
        rows, columns = (np.arange(n) * num_patches_per_side // n for n in (high, wide))
        ids[mask.ravel()] = (rows[:, None] * num_patches_per_side + columns).ravel()
    return out


def by_columns(patch_attention_mask, num_patches_per_side):
    ids = by_fractions(patch_attention_mask, num_patches_per_side)
    return np.where(
        patch_attention_mask.reshape(len(ids), -1),
        ids % num_patches_per_side * num_patches_per_side + ids // num_patches_per_side,
        0,
    )


def by_padded_size(patch_attention_mask, num_patches_per_side):
    return by_fractions(np.ones_like(patch_attention_mask), num_patches_per_side)


RIGHT = (
    range_from, in_all_rows, of_all_tokens, with_delta, of_step, rows_then_columns, as_channels_first, normalised,
    rotary_of_rows, rotary_centred, rotary_merged, of_positions, of_distances, of_rising_distances, video,
    resized, resized_to, resized_image, resized_with_class_token,
    resized_from, added_to_patches, shaw, two_terms, transformer_xl, transformer_xl_causal, by_fractions,
)  # fmt: skip


def ids_after_padding(past_key_values_length, seq_length, padding_idx=1):
    """As in RoBERTa and OPT, where ids begin after that of padding: the default is no number of a known rule."""
    return np.arange(seq_length)[None] + past_key_values_length + padding_idx + 1


def row_of_nearest_cell(table, new_size):
    side = round(len(table) ** 0.5)
    rows, columns = (np.arange(each) * side // each for each in new_size)
    return table.reshape(side, side, -1)[rows][:, columns].reshape(-1, table.shape[-1])


NOT_KNOWN = (
    ids_after_padding,
    row_of_nearest_cell,
    table_of_a_step,
    bounds,
    sum_of_rows_and_columns,
    squared,
    nearest,
    video_stretched,
    rotary_merged_elsewhere,
    of_distances_with_base,
    of_cosines,
)
"""Of these only another encoding, or nothing, can say whether they are right."""

FAULTY = {
    one_later: "window-shifted",
    without_cache: "window-from-zero",
    with_first_delta: "delta-misused",
    delta_lost: "delta-misused",
    delta_subtracted: "delta-misused",
    at_one_position: "window-at-one-position",
    step_skips_one: "window-shifted",
    step_at_zero: "window-from-zero",
    columns_then_rows: "rows-in-another-order",
    exchanged_channels_first: "rows-in-another-order",
    rotary_turned: "rows-in-another-order",
    video_frames_fastest: "rows-in-another-order",
    video_split_elsewhere: "columns-of-next-axis",
    of_unsigned_distances: "sign-for-negative-positions",
    of_distances_all_negative: "sign-for-negative-positions",
    resized_exchanged: "rows-moved",
    unchanged_if_as_many: "rows-of-old-grid",
    from_a_square: "rows-moved",
    old_size_exchanged: "rows-moved",
    rows_of_the_old_grid: "rows-of-old-grid",
    corner_of_the_old_grid: "rows-of-old-grid",
    columns_first: "rows-in-another-order",
    row_after: "term-of-row-beside",
    turned_term: "term-of-opposite-distance",
    by_columns: "patches-misplaced",
    by_padded_size: "patches-misplaced",
}
