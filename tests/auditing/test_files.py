"""Two files of one folder: where they disagree about one quantity, and where they only say it in other words."""

import collections
import io
import itertools
import json
import logging
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from auditing.faulty_containers import llama3_factors
from auditing.model_files import Gguf, audited, of_code
from auditing.published_fields import GGUF_LLAMA as LLAMA
from auditing.published_fields import LLAMA3 as SCALED
from auditing.published_fields import LLAMA_31 as CONFIG
from auditing.published_fields import LLAMA_31_PARAMS as PARAMS
from clockhands.auditing import audit
from clockhands.formats import pickled_names

YARN = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16384}
MISTRAL = CONFIG | {"rope_scaling": YARN, "max_position_embeddings": 262144}
ITS_PARAMS = {
    "dim": 4096, "n_layers": 32, "n_heads": 32, "rope_theta": 500000.0,
    "yarn": {"factor": 16, "original_max_position_embeddings": 16384, "apply_scale": True, "beta": 32, "alpha": 1},
}  # fmt: skip


def found(folder, config, **files):
    model = {"config.json": config} | {name.replace("__", "."): content for name, content in files.items()}
    return of_code(audited(folder, model), "files-disagree")


def gguf(keys, **tensors):
    return Gguf(keys, {"token_embd.weight": np.zeros((2, 8), np.float32), **tensors})


def test_two_files_that_agree(tmp_path):
    assert not found(tmp_path, CONFIG, params__json=PARAMS)
    assert not found(tmp_path, MISTRAL, params__json=ITS_PARAMS)
    assert not found(tmp_path, CONFIG, params__json={"dim": 4096})


def test_meta_s_file_says_otherwise(tmp_path, cases):
    for key, value, said in (
        ("rope_theta", 10000.0, "about the base"),
        ("n_layers", 40, "about the number of layers"),
        ("n_heads", 40, "about the number of heads"),
        ("use_scaled_rope", False, "about the scaling"),
    ):
        with cases(key):
            (finding,) = found(tmp_path, CONFIG, params__json=PARAMS | {key: value})
            assert (finding.severity, finding.blames) == ("warning", "ambiguous")
            assert said in finding.message
            assert f"params.json:{key}" in finding.evidence


def test_the_factor_that_meta_s_code_takes_is_another_than_the_config_s(tmp_path):
    # Llama 3.2: 32 in the config of its release, where Meta's own code has 8 for every use_scaled_rope.
    config = CONFIG | {"rope_scaling": SCALED | {"factor": 32.0}}
    (finding,) = found(tmp_path, config, params__json=PARAMS)
    assert (finding.severity, finding.blames) == ("warning", "ambiguous")
    assert finding.message.startswith(
        "Two files contradict each other about the scaling's factor: config.json:rope_scaling.factor is 32 but"
        " params.json:use_scaled_rope is true, for which llama-models 0.3.0, llama3/model.py, uses 8;"
    )


def test_a_factor_that_is_written_in_meta_s_file_is_the_one_that_counts(tmp_path):
    config = CONFIG | {"rope_scaling": SCALED | {"factor": 32.0}}
    assert not found(tmp_path, config, params__json=PARAMS | {"rope_scale_factor": 32})
    (finding,) = found(tmp_path, config, params__json=PARAMS | {"rope_scale_factor": 8})
    assert finding.evidence["params.json:rope_scale_factor"] == 8


def test_a_scaling_that_was_lost(tmp_path):
    (finding,) = found(tmp_path, CONFIG | {"rope_scaling": None}, params__json=PARAMS)
    assert finding.evidence["lost"] is True
    (finding,) = found(tmp_path, MISTRAL | {"rope_scaling": None}, params__json=ITS_PARAMS)
    assert "params.json:yarn.factor is 16" in finding.message


def test_mistral_s_yarn_with_other_numbers(tmp_path):
    for key, value in (("factor", 8), ("original_max_position_embeddings", 8192)):
        other = ITS_PARAMS | {"yarn": ITS_PARAMS["yarn"] | {key: value}}
        evidence = found(tmp_path, MISTRAL, params__json=other)[0].evidence
        assert evidence[f"params.json:yarn.{key}"] == value
        assert evidence[f"config.json:rope_scaling.{key}"] == YARN[key]


def test_the_switch_of_the_attention_factor(tmp_path):
    off = ITS_PARAMS | {"yarn": ITS_PARAMS["yarn"] | {"apply_scale": False}}
    (finding,) = found(tmp_path, MISTRAL, params__json=off)
    assert "multiplied by 1.27726; by params.json, cosine and sine are multiplied by 1." in finding.message
    even = MISTRAL | {"rope_scaling": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}}
    assert not found(tmp_path, even, params__json=off)
    (finding,) = found(tmp_path, even, params__json=ITS_PARAMS)
    assert "multiplied by 1; by params.json, cosine and sine are multiplied by 1.27726." in finding.message


def test_the_scale_of_scores(tmp_path):
    steps = {"llama_4_scaling": {"original_max_position_embeddings": 16384, "beta": 0.1}}
    block = YARN | {"rope_theta": 5e5, "llama_4_scaling_beta": 0.1}
    config = {key: value for key, value in MISTRAL.items() if key not in ("rope_theta", "rope_scaling")}
    config |= {"model_type": "ministral3", "rope_parameters": block}
    assert not found(tmp_path, config, params__json=ITS_PARAMS | steps)
    off = config | {"rope_parameters": block | {"llama_4_scaling_beta": 0.0}}
    (finding,) = found(tmp_path, off, params__json=ITS_PARAMS | steps)
    assert "contradict each other about the scale of scores" in finding.message
    assert finding.evidence["params.json:llama_4_scaling.beta"] == 0.1
    other = {"llama_4_scaling": {"original_max_position_embeddings": 8192, "beta": 0.1}}
    (finding,) = found(tmp_path, config, params__json=ITS_PARAMS | other)
    assert finding.evidence["config.json:rope_parameters.original_max_position_embeddings"] == 16384
    assert not found(tmp_path, config | {"model_type": "nobody"}, params__json=ITS_PARAMS | steps)


def test_the_switch_of_the_attention_factor_is_about_scores_in_latent_attention(tmp_path):
    latent = {"qk_rope_head_dim": 64, "qk_nope_head_dim": 64}
    config = {
        **MISTRAL, **latent, "model_type": "deepseek_v3", "kv_lora_rank": 512,
        "rope_scaling": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
    }  # fmt: skip
    assert not found(tmp_path, config, params__json=ITS_PARAMS | latent)
    assert found(tmp_path, config, params__json=ITS_PARAMS)


def test_a_gguf_file_beside_the_config(tmp_path):
    factors = {"rope_freqs.weight": llama3_factors()}
    assert not found(tmp_path, CONFIG, model__gguf=gguf(LLAMA, **factors))
    (finding,) = found(tmp_path, CONFIG, model__gguf=gguf(LLAMA))
    assert "about the scaling" in finding.message
    assert finding.evidence["ratio"] == pytest.approx(8, rel=1e-6)
    (finding,) = found(tmp_path, CONFIG, model__gguf=gguf(LLAMA | {"llama.rope.freq_base": 1e4}, **factors))
    assert finding.evidence["model.gguf:llama.rope.freq_base"] == pytest.approx(1e4)
    cases = found(tmp_path, CONFIG, model__gguf=gguf(LLAMA | {"llama.block_count": 30}, **factors))
    assert [case.evidence["what"] for case in cases] == ["number of layers"]


def test_the_config_beside_a_gguf_file(tmp_path):
    def seen(keys, **tensors):
        audited(tmp_path, {"config.json": CONFIG, "model.gguf": gguf(keys, **tensors)})
        return of_code(audit(tmp_path / "model.gguf"), "files-disagree")

    assert not seen(LLAMA, **{"rope_freqs.weight": llama3_factors()})
    (finding,) = seen(LLAMA)
    assert (finding.evidence["what"], finding.evidence["lost"]) == ("scaling", True)
    assert not seen(LLAMA | {"llama.block_count": 30})  # another model, whose config this is not
    assert not seen(LLAMA | {"llama.embedding_length": 2048})


def test_a_draft_beside_the_model_is_another_model(tmp_path):
    draft = LLAMA | {"llama.embedding_length": 2048, "llama.rope.freq_base": 1e4}
    assert not found(tmp_path, CONFIG, draft__gguf=gguf(draft))


def test_a_config_alone_is_not_held_against_its_neighbours(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "params.json").write_text(json.dumps(PARAMS | {"rope_theta": 1e4}), encoding="utf-8")
    assert of_code(audit(tmp_path), "files-disagree")
    assert not of_code(audit(tmp_path / "config.json"), "files-disagree")


# Pickles


class Calls:
    """Pickled as a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def by_name(module: str, name: str) -> bytes:
    """A pickle of protocol 4 that imports a name, which may have dots."""
    words = (pickle.SHORT_BINUNICODE + bytes([len(each)]) + each.encode() for each in (module, name))
    return (
        pickle.PROTO + b"\4" + b"".join(words) + pickle.STACK_GLOBAL + pickle.EMPTY_TUPLE + pickle.REDUCE + pickle.STOP
    )


def zipped(data: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("model/data.pkl", data)
    return made.getvalue()


EVIL = pickle.dumps({"weight": Calls(os.system, "true")})
RUN = {
    "protocol 4": (EVIL, "posix.system"),
    "protocol 0": (pickle.dumps(Calls(os.system, "true"), 0), "posix.system"),
    "a class of Python 2": (b"(S'true'\nios\nsystem\n.", "os.system"),
    "an archive": (zipped(EVIL), "posix.system"),
    "after harmless ones": (pickle.dumps(1) * 3 + EVIL, "posix.system"),
    "in the bytes of another": (pickle.dumps([b"x", EVIL]), "posix.system"),
    "through another module": (by_name("torch.serialization", "os.system"), "torch.serialization.os.system"),
    "through a function": (by_name("numpy", "load.__globals__"), "numpy.load.__globals__"),
    "by attributes": (pickle.dumps([Calls(getattr, int, "__class__"), "__globals__"]), "builtins.getattr"),
    "a name from the memo": (by_name("os", "system")[:2] + b"\x8c\x02os\x94h\0\x8c\x06system\x93.", "os.system"),
    "no name at all": (b"\x80\4NN\x93.", "a name that is put together when it is loaded"),
}
HARMLESS = {
    "arguments of a training": pickle.dumps([Path("out"), collections.OrderedDict(a=1), logging.INFO, range(3)]),
    "a member of an enumeration": pickle.dumps(Calls(getattr, int, "real")),
    "no pickle": b"\0\1\2",
    "nothing": b"",
    "a page": b"<html>os.system</html>",
    "half of it": EVIL[:12],
}


def test_a_pickle_beside_a_good_config_that_would_run_code_is_an_error_of_its_own(tmp_path, cases):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    files = itertools.cycle(("pytorch_model.bin", "optimizer.pt", "a.PKL"))
    for (name, (data, asked)), file in zip(RUN.items(), files, strict=False):
        with cases(name):
            (tmp_path / file).write_bytes(data)
            made = audit(tmp_path)
            (finding,) = of_code(made, "pickle-runs-code")
            assert (finding.severity, finding.blames) == ("error", "file")
            assert dict(finding.evidence) == {f"{file}:names": asked}
            assert [code.base for code in made.layers] == [500000.0], "the config is audited all the same"
            (tmp_path / file).unlink()
    for name, data in HARMLESS.items():
        with cases(name):
            (tmp_path / "training_args.bin").write_bytes(data)
            assert not of_code(audit(tmp_path), "pickle-runs-code")


def test_a_pickle_that_is_not_read_to_its_end_is_said_to_be_so(tmp_path, monkeypatch):
    """All pickles of a folder share the instructions that are read of them."""
    monkeypatch.setattr(pickled_names, "MOST_STEPS", 1000)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    for name in ("a.pkl", "b.pkl", "c.pkl", "d.pkl"):
        (tmp_path / name).write_bytes(b"\x80\4" + b"N0" * 200 + by_name("numpy", "array")[2:])
    (finding,) = of_code(audit(tmp_path), "pickle-runs-code")
    assert (finding.severity, finding.blames) == ("note", None)
    assert finding.message == (
        "c.pkl is a pickle of more than was read of it, so it is not known what it would run when it is loaded."
    )


def test_weights_are_no_pickles_that_run_code(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    torch = pytest.importorskip("torch")
    tensors = {"a.weight": torch.zeros(2, 2), "b": torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))}
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    torch.save(tensors, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(tensors))
    os.mkfifo(tmp_path / "pipe.bin")
    assert not of_code(audit(tmp_path), "pickle-runs-code")
