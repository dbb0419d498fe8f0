"""Tables that other libraries made are read back bare, and named; their entries say what they should be."""

import numpy as np

import clockhands as ch
from clockhands.encodings.specs import with_fields
from oracles import published
from oracles.additive_cases import FAMILIES

LEAST_ROWS = 24


def entries_to_read_back():
    """By key, of the tables with enough rows that were made as their libraries say."""
    return {
        key: entry
        for key, entry in published.entries(*FAMILIES).items()
        if entry["deviation"] is None and entry["arrays"]["table"][0][0] >= LEAST_ROWS
    }


def table_of(key):
    return published.arrays(key)["table"]


def allowed(entry, table):
    """How far a table may lie from what makes it: more only where its entry says that its own arithmetic is off."""
    least = 4e-3 if table.dtype == np.float16 else 1e-4
    return max(least, 1.1 * (entry["repro_max_abs_diff"] or 0))


def wrong_about(entry, table, match):
    """What is wrong about a match, by the words of the table's entry."""
    made = ch.table(match.spec, match.positions, values=match.values)
    if made.shape != table.shape or np.abs(made - table).max() > allowed(entry, table):
        return "it makes another table"
    if match.name is None or match.residual is not None:
        return "it has no name"
    axes = entry["spec"]["axes"]
    if getattr(match.spec, "number_of_axes", 1) != len(axes):
        return "it has other axes"
    if entry["spec"].get("matrix"):
        return None
    named = ch.preset(match.name)
    for field in ("layout", "order", "channels", "raw"):
        if getattr(match.spec, field, None) != getattr(named, field, None):
            return f"it is not {match.name}"
    if isinstance(match.spec, ch.Sinusoidal):
        other = with_fields(named, width=match.spec.width, zero_rows=match.spec.zero_rows, first=match.spec.first)
        return None if other.spacing == match.spec.spacing else f"it has not the ladder of {match.name}"
    sizes = {axis["pos"]["n"] for axis in axes}
    return None if set(match.positions.sizes) == sizes else "it has another grid"


def test_every_published_table_is_read_back_and_named():
    entries = entries_to_read_back()
    assert len(entries) >= 40
    wrong = {}
    for key, entry in entries.items():
        table = table_of(key)
        matches = ch.identify(table)
        reason = wrong_about(entry, table, matches[0]) if matches else matches.reason
        if reason is not None:
            wrong[key] = reason
    assert wrong == {}


def test_the_check_of_published_tables_can_fail():
    entries, one, two = entries_to_read_back(), "sin_annotated_transformer", "sin_hf_marian_d64"
    (match,) = ch.identify(table_of(one))
    assert wrong_about(entries[one], table_of(one), match) is None
    assert wrong_about(entries[two], table_of(two), match) == "it makes another table"


def test_what_a_published_table_shows(cases):
    for key, name, evidence in (
        ("sin_fairseq_relpos", "vaswani2017", {"start": 63, "step": -1}),
        ("sin_transformer_xl", "transformer-xl", {"start": 127, "step": -1}),
        ("sin_hf_m2m100_table", "fairseq", {"start": 0, "step": 1}),
        ("sin_hf_speecht5_scaled", "speecht5", {"scale": 0.7}),
        ("sin_xtransformers_scaled", "x-transformers-sinusoidal", {"scale": 0.125}),
        ("sin_hf_patchtst", "patchtst", {"start": 0, "step": 1}),
        ("sin_hf_funnel_phi", "funnel-phi", {"start": 0, "step": 1}),
        ("sin2d_mae_original", "mae", {"grid": [7, 7], "start": [0, 0], "step": [1, 1]}),
        ("sin2d_timm_default", "timm-2d", {"grid": [6, 9]}),
        ("sin3d_diffusers_cogvideox", "cogvideox-2b", {"grid": [3, 6, 9], "step": [1 / 2, 2 / 3, 2 / 3]}),
        ("fourier_hf_perceiver", "perceiver", {"grid": [6, 9], "start": [-1, -1], "step": [0.4, 0.25]}),
        ("fourier_sam_original_grid", "sam", {"grid": [6, 9]}),
    ):
        with cases(key):
            (match,) = ch.identify(table_of(key))
            assert match.name == name
            seen = dict(match.evidence)
            for what, value in evidence.items():
                np.testing.assert_allclose(seen[what], value, rtol=1e-6, err_msg=what)

    (match,) = ch.identify(table_of("sin2d_mae_original"))
    assert match.rows.prepended == match.positions.prefix == 1, "a class row before the grid"
