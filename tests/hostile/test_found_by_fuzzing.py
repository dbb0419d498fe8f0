"""What the fuzzer of ``fuzz_readers.py`` found, as small as it gets; each was a traceback once.

Two more are with their readers: a dictionary of what are no pairs (``test_checkpoints.py``), and heads of a million
channels, whose ladder took 16 seconds (``test_hostile_targets.py``).
"""

import json

import pytest

from clockhands.auditing import audit
from clockhands.sources.resolve import resolve
from clockhands.sources.targets import Opened
from written_files import written

PHI = {"model_type": "phi3", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


@pytest.mark.parametrize("name", ["short_factor", "long_factor"])
@pytest.mark.parametrize("digits", [299, 400])
def test_a_factor_of_more_digits_than_a_float_holds(tmp_path, name, digits):
    """``OverflowError: int too large to convert to float``, in the list of factors of LongRoPE."""
    block = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    config = PHI | {"rope_scaling": block | {name: [10**digits] * 8}, "max_position_embeddings": 4096}
    found = resolve(Opened("x", "config", config=config, config_name="config.json"))
    if digits < 300:
        audit(written(tmp_path / "config.json", json.dumps(config).encode())).to_dict()
    else:
        assert found.codes[0].rates is None
        assert "impossible-value" in {fact.code for fact in found.facts}
