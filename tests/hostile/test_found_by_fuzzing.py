"""What the fuzzer of ``fuzz_readers.py`` found, as small as it gets; each was a traceback once.

Two more are with their readers: a dictionary of what are no pairs (``test_checkpoints.py``), and heads of a million
channels, whose ladder took 16 seconds (``test_hostile_targets.py``).
"""

import json
import warnings

import numpy as np
import pytest

from clockhands.auditing import audit
from clockhands.configs.resolve import resolve
from clockhands.configs.targets import Opened
from clockhands.encodings.additive import Learned
from clockhands.errors import InvalidValue
from clockhands.measures import properties
from clockhands.recognition import identify
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


@pytest.mark.parametrize("kind", [{"": {}}, [[]], ["Rotary"]])
def test_a_config_whose_type_is_no_string(tmp_path, kind):
    """``TypeError: unhashable type``, where a file of a spec was looked for by its type."""
    config = {"type": kind, "rope_theta": 1e4, "hidden_size": 64, "num_attention_heads": 4}
    told = audit(written(tmp_path / "config.json", json.dumps(config).encode())).to_dict()
    assert [layer["base"] for layer in told["layers"]] == [1e4]


@pytest.mark.parametrize("bits", [0xFF800001, 0xFFFFFFB0, 0x7FC00000])
def test_a_table_with_any_nan(tmp_path, bits):
    """``RuntimeWarning: invalid value encountered in cast``, as a warning is an error: zero rows were looked for."""
    table = np.array([[0, 1, 0], [bits, bits, 1]], np.uint32).view(np.float32)
    np.save(tmp_path / "x.npy", table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = audit(tmp_path / "x.npy")
    assert found.to_dict()


def test_two_text_parts_with_different_encodings(tmp_path):
    """``"layers": 0``, against the schema: two encodings at one layer, told apart by their order."""
    shape = {"num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 16384, "rope_theta": 1e4}
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    longrope = {"type": "longrope", "short_factor": [1.0] * 16, "long_factor": [2.0] * 16}
    config = {
        "text_config": shape | {"model_type": "llama", "hidden_size": 64, "rope_scaling": yarn},
        "llm_config": shape | {"model_type": "phi3", "hidden_size": 128, "rope_scaling": longrope},
    }
    config["llm_config"]["original_max_position_embeddings"] = 4096
    told = audit(written(tmp_path / "config.json", json.dumps(config).encode())).to_dict()
    layers = [group["layers"] for reader in told["readers"] for group in reader["differs"]]
    assert layers
    assert all(each is None or isinstance(each, str) for each in layers)


def test_a_table_with_an_entry_whose_square_no_float_holds():
    """``LinAlgError: Eigenvalues did not converge``, from sums of squares."""
    rows = np.zeros((16, 8))
    rows[3, 2] = 1e200
    with pytest.raises(InvalidValue, match="from -1e"):
        properties(Learned(8, 16), 16, values=rows)


def test_a_table_of_noise_whose_positions_no_float_counts():
    """``OverflowError: math range error``, where a sinusoid was fitted to rows that are all but equal."""
    rows = np.full((4, 3), 1.3563156e-19, np.float32)
    rows[0] = 1.3563115e-19, 1.3563156e-19, 1.0852651e-19
    rows[1, 0], rows[2, 1] = 1.3563390e-19, 1.3631647e-19
    assert identify(rows) is not None
    assert "is one row" in identify(np.eye(4, 6)[::-1] * [[0], [0], [0], [1]]).reason  # ``not enough values to unpack``
