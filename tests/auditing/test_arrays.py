"""Tables in audits: what they are, what is wrong with them, and that no other tensor is touched."""

import json
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import clockhands as ch
from clockhands.auditing.findings import _table_rows as auditing_arrays
from clockhands.auditing.findings._table_rows import _rows
from clockhands.encodings.grids import Grid
from clockhands.formats import arrays
from clockhands.recognition.tables import _grid_cells, _recognising
from written_files import onnx_bytes, onnx_node, onnx_outside, onnx_tensor, written

PAPER = ch.preset("vaswani2017", width=64)
WHISPER = {
    "model_type": "whisper", "d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "max_source_positions": 300,
    "max_target_positions": 32,
}  # fmt: skip
ENCODER, DECODER = "model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"


def learned(rows=32, width=64):
    """Rows that know their neighbours, as trained ones do."""
    steps = np.random.default_rng(5).normal(size=(rows, width))
    return (0.02 * steps.cumsum(axis=0)).astype(np.float32)


def found(audit):
    """Code to finding, but for the slow pairs, which every sinusoid has."""
    return {finding.code: finding for finding in audit.findings if finding.code != "never-turning"}


def audited(tmp_path, array, name="t.npy"):
    np.save(tmp_path / name, array)
    return ch.audit(tmp_path / name)


def in_float32(rows, width=64, positions=None, rates=None):
    """The paper's table as most code makes it."""
    at = np.arange(rows, dtype=np.float32) if positions is None else positions
    rates = 10_000.0 ** (-np.arange(0, width, 2, dtype=np.float32) / width) if rates is None else rates
    phases = (at[:, None] * rates).astype(np.float32)
    return np.stack([np.sin(phases), np.cos(phases)], axis=-1).reshape(rows, width)


def test_a_table_says_what_it_is(tmp_path):
    audit = audited(tmp_path, ch.table(ch.preset("whisper", width=64), 300))
    (code,) = audit.to_dict()["layers"]
    assert (code["kind"], code["layout"], code["order"], code["base"]) == ("sinusoidal", "halves", "sin-cos", 10_000.0)
    assert (code["rows"], code["width"], code["offset"]) == (300, 64, 0)
    assert code["rates"] == pytest.approx([10_000 ** (-pair / 31) for pair in range(32)], rel=1e-12)
    assert code["source"]["base"] == "t.npy:shape (recognised)"
    assert code["source"]["rows"] == "t.npy:shape"
    ((name, finding),) = found(audit).items()
    assert (name, finding.severity) == ("recognised", "note")
    assert "sinusoidal, width 64, half-split, sin-cos, geometric (base 10000, closed)" in finding.message
    assert "for positions 0 to 299" in finding.message
    assert finding.evidence["t.npy:shape"] == [300, 64]
    assert json.loads(json.dumps(audit.to_dict(), allow_nan=False)) == audit.to_dict()


def test_where_the_rows_stand(tmp_path):
    assert audited(tmp_path, ch.table(PAPER, range(-10, 90))).layers[0].offset == 10
    audit = audited(tmp_path, ch.table(PAPER, range(2, 90)))
    assert audit.layers[0].offset is None
    assert "for positions 2 to 89" in found(audit)["recognised"].message
    assert "in steps of 2" in found(audited(tmp_path, ch.table(PAPER, range(0, 200, 2))))["recognised"].message


def test_one_tensor_of_any_container(tmp_path, cases):
    table = ch.table(PAPER, 128)
    np.savez(tmp_path / "t.npz", pe=table)
    save_file({"pe": table, "w": table}, tmp_path / "t.safetensors")
    written(tmp_path / "t.onnx", onnx_bytes([onnx_tensor("pe", (128, 64), raw=table.tobytes())]))
    for name in ("t.npz", "t.npz:pe", "t.safetensors:pe", "t.onnx:pe"):
        audit = ch.audit(f"{tmp_path}/{name}")
        with cases(name):
            (code,) = audit.layers
            assert (code.kind, code.part, code.layers) == ("sinusoidal", "other", None)
            assert set(found(audit)) == {"recognised"}


def test_positions_in_low_precision_are_an_error_once_rows_fall_together(tmp_path, cases):
    for dtype, rows in (("bfloat16", 200), ("float16", 200), ("bfloat16", 5000), ("float16", 5000)):
        at = np.arange(rows).astype(getattr(ml_dtypes, dtype, None) or dtype).astype(np.float32)
        together = np.flatnonzero(np.diff(at) == 0)
        assert bool(together.size) == (rows == 5000)
        audit = audited(tmp_path, in_float32(rows, positions=at))
        with cases(dtype, rows):
            if not together.size:
                assert set(found(audit)) == {"recognised"}
                continue
            assert set(found(audit)) == {"repeated-rows", "low-precision"}
            finding = found(audit)["repeated-rows"]
            assert finding.severity == "error"
            assert finding.evidence["rows like the one before"] == together.size
            assert finding.evidence["first such row"] == together[0] + 1
            assert f"because {dtype} cannot represent this position" in finding.message
            finding = found(audit)["low-precision"]
            assert finding.severity == "warning"
            assert f"computed in {dtype}. Its positions are rounded" in finding.message
            (code,) = audit.layers
            assert (code.kind, code.base, code.offset) == ("sinusoidal", 10_000.0, 0)


def test_rates_in_low_precision_are_a_warning(tmp_path, cases):
    rates = (10_000.0 ** (-np.arange(0, 64, 2) / 64)).astype(ml_dtypes.bfloat16).astype(np.float32)
    for rows in (128, 1000):
        table = in_float32(rows, rates=rates)
        off = np.abs(table - ch.table(PAPER, rows, "float64")).max()
        with cases(rows):
            ((name, finding),) = found(audited(tmp_path, table)).items()
            assert (name, finding.severity, finding.evidence["rounded"]) == ("low-precision", "warning", ["rates"])
            assert finding.evidence["error"] == pytest.approx(off)


def test_float32_is_not_low_precision(tmp_path):
    audit = audited(tmp_path, in_float32(4096))
    assert set(found(audit)) == {"recognised"}
    assert found(audit)["recognised"].evidence["computed in"] == "float32"


def test_a_table_of_zeros_is_an_error(tmp_path):
    audit = audited(tmp_path, np.zeros((197, 64), np.float32))
    assert found(audit)["zero-table"].message.startswith("All 197 rows of 64 dimensions are zero")
    assert audit.errors
    save_file({"vit.embeddings.position_embeddings": np.zeros((1, 197, 64), np.float32)}, tmp_path / "m.safetensors")
    assert found(ch.audit(tmp_path / "m.safetensors"))["zero-table"].severity == "error"


def test_zeros_where_rows_are_expected_are_a_warning_and_padding_is_none(tmp_path):
    table = ch.table(PAPER, 512)
    table[400:] = 0
    finding = found(audited(tmp_path, table))["zero-rows"]
    assert (finding.severity, finding.evidence["rows of zeros"], finding.evidence["first such row"]) == (
        "warning",
        112,
        400,
    )
    assert set(found(audited(tmp_path, ch.table(ch.preset("fairseq", width=64), 300)))) == {"recognised"}


def test_a_row_that_is_wrong_is_a_warning_that_names_it(tmp_path):
    table = ch.table(PAPER, 512)
    table[321] = table[5]
    ((name, finding),) = found(audited(tmp_path, table)).items()
    assert (name, finding.severity, finding.evidence["rows that differ"]) == ("wrong-rows", "warning", [321])


def test_a_table_that_was_trained_further_is_a_note(tmp_path):
    moved = ch.table(PAPER, 512) + np.random.default_rng(0).normal(scale=0.02, size=(512, 64)).astype(np.float32)
    ((name, finding),) = found(audited(tmp_path, moved)).items()
    assert (name, finding.severity) == ("moved-table", "note")
    assert finding.evidence["share"] == pytest.approx(0.02 * np.sqrt(2), rel=0.1)


def test_a_grid_says_which_and_is_not_counted_as_a_sequence(tmp_path):
    grid = Grid((12, 16), order=(1, 0), prefix=1)
    table = ch.table(ch.preset("mae", width=64), grid)
    audit = audited(tmp_path, table)
    assert [finding.code for finding in audit.findings] == ["recognised"]
    assert "for the cells of a grid of 12 x 16, 1 row before them" in audit.findings[0].message
    (code,) = audit.layers
    assert (code.kind, code.rows, code.base, len(code.rates)) == ("sinusoidal", 193, 10_000.0, 32)
    save_file({"vit.embeddings.position_embeddings": table[None], "w": learned()}, tmp_path / "m.safetensors")
    (code,) = ch.audit(tmp_path / "m.safetensors").layers
    assert (code.kind, code.rows) == ("sinusoidal", 193)


def test_noise_and_other_arrays_are_not_recognised(tmp_path):
    for array in (np.random.default_rng(0).normal(size=(64, 32)), np.arange(12.0), np.ones((5, 4)), np.float32(3)):
        ((name, finding),) = found(audited(tmp_path, array)).items()
        assert (name, finding.severity) == ("not-recognised", "note")
        assert finding.evidence["reason"] in finding.message


def test_a_table_past_a_size_is_not_tried_transposed(tmp_path, monkeypatch):
    turned = ch.table(PAPER, 128).T
    assert "Its columns are the rows" in found(audited(tmp_path, turned))["not-recognised"].message
    monkeypatch.setattr(_recognising, "TURNED", turned.size - 1)
    monkeypatch.setattr(_grid_cells, "_LOOSE", turned.size - 1)
    assert "Its columns are the rows" not in found(audited(tmp_path, turned))["not-recognised"].message


# Inside models


def model(tmp_path, config, tensors):
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, tmp_path / "model.safetensors")
    return ch.audit(tmp_path)


def test_a_declared_sinusoid_that_is_one_is_nothing_to_say(tmp_path):
    for dtype in ("float32", "float16"):
        made = ch.table(ch.preset("whisper", width=64), 300, dtype)
        audit = model(tmp_path, WHISPER, {ENCODER: made, DECODER: learned()})
        assert set(found(audit)) == set()


def test_a_declared_sinusoid_that_is_another(tmp_path, cases):
    noise = np.random.default_rng(0).normal(size=(300, 64)).astype(np.float32)
    for made, named in (
        (ch.table(ch.preset("ctrl", width=64), 300), "the table in the weights is "),
        (ch.table(ch.preset("whisper", width=64), range(2, 302)), "for positions 2 to 301"),
        (noise, "the table in the weights follows no known"),
    ):
        audit = model(tmp_path, WHISPER, {ENCODER: made, DECODER: learned()})
        with cases(named):
            finding = found(audit)["table-differs"]
            assert (finding.severity, finding.layers) == ("warning", "input")
            assert named in finding.message
            assert finding.evidence[f"model.safetensors:{ENCODER}"] == [300, 64]
            assert finding.evidence["largest difference"] > 0.1


def test_a_declared_sinusoid_of_zeros(tmp_path):
    audit = model(tmp_path, WHISPER, {ENCODER: np.zeros((300, 64), np.float32), DECODER: learned()})
    assert set(found(audit)) == {"zero-table"}


def test_a_learned_table_that_is_a_sinusoid_is_a_note(tmp_path):
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 1, "n_head": 2, "n_positions": 128}
    assert set(found(model(tmp_path, config, {"wpe.weight": learned(128)}))) == set()
    audit = model(tmp_path, config, {"wpe.weight": ch.table(PAPER, 128)})
    assert found(audit)["recognised"].severity == "note"
    assert audit.layers[0].kind == "learned"
    table = learned(128)
    table[100:] = table[99]
    assert found(model(tmp_path, config, {"wpe.weight": table}))["repeated-rows"].severity == "warning"


def test_data_beside_a_model_are_the_model_s(tmp_path):
    """Fields come from where a person would look for them: the tensor is picked as m.onnx:pos_embed."""
    model = written(tmp_path / "m.onnx", onnx_bytes([onnx_outside("pos_embed", (128, 64), location="d.bin")]))
    (tmp_path / "d.bin").write_bytes(ch.table(ch.preset("vaswani2017", width=64), 128).tobytes())
    for target in (model, f"{model}:pos_embed"):
        document = json.dumps(ch.audit(target).to_dict())
        assert "m.onnx:pos_embed" in document
        assert "d.bin" not in document


def test_an_onnx_model_whose_exporter_has_taken_the_names_away(tmp_path):
    table = ch.table(PAPER, 128)
    matrix = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    tensors = [onnx_tensor("/Constant_3", (1, 128, 64), raw=table.tobytes())]
    tensors += [onnx_tensor("onnx::Add_9", (64, 64), raw=matrix.tobytes())]
    tensors += [onnx_tensor("onnx::MatMul_9", (128, 64), raw=table.tobytes())]
    nodes = b"".join(
        onnx_node(kind, b"", ("x", name))
        for kind, name in (("Slice", "/Constant_3"), ("Add", "onnx::Add_9"), ("MatMul", "onnx::MatMul_9"))
    )
    audit = ch.audit(written(tmp_path / "m.onnx", onnx_bytes(tensors, nodes)))
    (code,) = audit.layers
    assert (code.kind, code.source["rows"]) == ("sinusoidal", "m.onnx:/Constant_3")
    assert set(found(audit)) == {"recognised", "graph-not-examined"}
    none = ch.audit(written(tmp_path / "n.onnx", onnx_bytes(tensors[1:], nodes)))
    assert set(found(none)) == {"nothing-declared", "graph-not-examined"}


def test_of_words_that_a_graph_gathers_only_the_first_rows_are_read(tmp_path, monkeypatch):
    words = np.random.default_rng(0).normal(size=(4096, 64)).astype(np.float32)
    tensors = [onnx_tensor("words", (4096, 64), raw=words.tobytes())]
    path = written(tmp_path / "m.onnx", onnx_bytes(tensors, onnx_node("Gather", b"", ("words", "ids"))))
    monkeypatch.setattr(auditing_arrays, "_rows", None)  # what looks at every row
    assert set(found(ch.audit(path))) == {"nothing-declared", "graph-not-examined"}


def test_an_onnx_model_with_its_config(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(WHISPER), encoding="utf-8")
    tensors = [onnx_tensor(ENCODER, (300, 64), raw=ch.table(ch.preset("ctrl", width=64), 300).tobytes())]
    audit = ch.audit(written(tmp_path / "encoder.onnx", onnx_bytes(tensors)))
    assert audit.model_type == "whisper"
    assert found(audit)["table-differs"].evidence[f"encoder.onnx:{ENCODER}"] == [300, 64]


def test_only_tables_of_positions_are_read(tmp_path, monkeypatch):
    read = []
    for name in ("mapped", "read"):
        real = getattr(arrays, name)
        monkeypatch.setattr(arrays, name, lambda info, real=real: read.append(info.name) or real(info))
    tensors = {f"model.encoder.layers.{number}.fc1.weight": learned() for number in range(30)}
    model(tmp_path, WHISPER, tensors | {ENCODER: ch.table(ch.preset("whisper", width=64), 300), DECODER: learned()})
    assert set(read) == {ENCODER, DECODER}


def test_a_table_that_cannot_be_read_is_let_be(tmp_path):
    audit = model(tmp_path, WHISPER, {ENCODER: np.zeros((300, 64), np.uint8), DECODER: learned()})
    assert set(found(audit)) == set()


@pytest.mark.slow
def test_a_large_table_is_never_held_whole(tmp_path):
    rows = 2**16
    table = np.lib.format.open_memmap(tmp_path / "t.npy", "w+", np.float32, (rows, 256))
    spec = ch.preset("vaswani2017", width=256)
    for begin in range(0, rows, 2**13):
        table[begin : begin + 2**13] = ch.table(spec, range(begin, begin + 2**13))
    table[50_000, 7] = 3
    table.flush()
    del table
    tracemalloc.start()
    try:
        audit = ch.audit(tmp_path / "t.npy")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found(audit)["wrong-rows"].evidence["rows that differ"] == [50_000]
    assert peak < 2**28  # the table has 64 MiB; what recognises it takes blocks of 8 million numbers in float64


def test_rows_are_counted_whatever_the_blocks(monkeypatch, cases):
    array = np.ones((9, 3), np.float32)
    array[2] = 2
    array[4:6] = 0
    array[7, 1] = np.nan
    for block in (1, 5, 64, 10**6):
        monkeypatch.setattr(auditing_arrays, "_BLOCK", block)
        rows = _rows(array)
        with cases(block):
            assert [part.tolist() for part in (rows.nonfinite, rows.zero, rows.repeated)] == [[7], [4, 5], [1]]
