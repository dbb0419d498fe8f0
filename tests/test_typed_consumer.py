# pyright: strict
"""A strictly typed program that uses the package: `make types` checks it, and this test runs it."""

from pathlib import Path
from typing import assert_type

import numpy as np

import clockhands as ch
from clockhands.auditing import Audit
from clockhands.encodings.rotary import CosSin, cos_sin
from clockhands.encodings.scaling import Yarn
from clockhands.errors import ClockhandsError


def main(folder: Path) -> list[str]:
    spec = ch.Rotary(head_width=64, base=500_000.0, scaling=Yarn(factor=4.0, original=8192))
    queries = np.zeros((1, 2, 3, 64), np.float32)
    pair = assert_type(cos_sin(spec, range(3), like=queries), CosSin)
    said: list[str] = [type(ch.rotate(queries, spec, cos_sin=pair)).__name__]
    rates = assert_type(spec.rates, tuple[float, ...])
    said.append(f"{len(rates)} pairs")
    said.append(assert_type(ch.to_json(spec), str)[:1])
    config = folder / "config.json"
    config.write_text('{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}', encoding="utf-8")
    audit = assert_type(ch.audit(config), Audit)
    said.extend(finding.code for finding in audit.errors)
    try:
        ch.preset("no such preset")
    except ClockhandsError as error:
        said.append(assert_type(error.hint, str)[:1])
    return said


def test_it_runs(tmp_path: Path):
    assert main(tmp_path)[:3] == ["ndarray", "32 pairs", "{"]
