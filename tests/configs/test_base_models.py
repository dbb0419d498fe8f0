"""Training files and Modelfiles: the model that they name is audited with what they change."""

import hashlib
import json
from contextlib import chdir
from itertools import product

import pytest

from clockhands.auditing import audit
from clockhands.configs import open_target
from clockhands.configs.resolve import resolve
from clockhands.errors import Unreadable
from written_files import gguf_bytes, gguf_key

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
    "max_position_embeddings": 4096, "rope_theta": 10000.0, "vocab_size": 32000,
}  # fmt: skip
AXOLOTL = """\
base_model: {base}
model_type: LlamaForCausalLM
overrides_of_model_config:
  rope_scaling:
    type: yarn
    factor: 2.0
    original_max_position_embeddings: 4096
  max_position_embeddings: 8192
  pad_token_id: 2
sequence_len: 6000
"""


@pytest.fixture
def base(tmp_path):
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    return folder


@pytest.fixture(autouse=True)
def no_stores(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))


def written(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def test_a_training_file_changes_the_config_of_its_base(tmp_path, base):
    path = written(tmp_path, "train.yaml", AXOLOTL.format(base="base"))
    found = audit(path)
    (code,) = found.layers
    assert (code.width, code.base, found.context, found.asked) == (128, 10000.0, 8192, 6000)
    assert dict(code.scaling) == {"type": "yarn", "factor": 2.0, "original": 4096}
    assert code.source["base"] == "config.json:rope_theta"
    assert code.source["scaling"].startswith("train.yaml:overrides_of_model_config.rope_scaling.type")
    assert found.source["context"] == "train.yaml:overrides_of_model_config.max_position_embeddings"
    assert found.notes[:2] == (
        "train.yaml is read as a config of axolotl.",
        f"The base model base is read from {base}.",
    )
    assert found.path is None  # a fix of the training file is not written into the base model
    assert json.loads((base / "config.json").read_text()) == LLAMA
    assert audit(path, 1000).asked == 1000, "a length of the caller comes before that of the file"


LENGTHS = [
    ("train.yaml", "base_model: {base}\nadapter: lora\nsequence_len: {length}\n", "sequence_len"),
    ("sft.yaml", "model_name_or_path: {base}\noutput_dir: out\nmax_length: {length}\n", "max_length"),
    ("Modelfile", "FROM {base}\nPARAMETER num_ctx {length}\n", "num_ctx"),
]


def test_a_length_of_the_file_is_named_by_its_key_and_must_be_one(tmp_path, base, refused, cases):
    for name, text, key in LENGTHS:
        with cases(name):
            found = audit(written(tmp_path, name, text.format(base=base, length=6000)))
            (said,) = [finding.message for finding in found.findings if finding.code == "beyond-context"]
            assert said.startswith(f"{name}:{key} is 6,000, but the declared context length is 4,096.")
            path = written(tmp_path, name, text.format(base=base, length="abc"))
            assert refused(audit, path)[0] == f"{name}:{key} must be a whole number above 0, got 'abc'."


def test_trl_sets_values_for_the_loader(tmp_path, base):
    text = f"model_name_or_path: {base}\nmodel_init_kwargs: {{rope_theta: 5e5}}\nmax_length: 2048\noutput_dir: out\n"
    found = audit(written(tmp_path, "sft.yaml", text))
    assert (found.layers[0].base, found.asked) == (500000.0, 2048)
    assert found.layers[0].source["base"] == "sft.yaml:model_init_kwargs.rope_theta"


def test_a_base_in_the_cache_of_hugging_face(tmp_path):
    snapshot = tmp_path / "hub" / "models--org--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(LLAMA))
    opened = open_target(written(tmp_path, "train.yaml", AXOLOTL.format(base="org/name")))
    assert (opened.form, opened.config_name) == ("config", "config.json")


def test_without_its_base_the_file_is_read_for_what_it_says(tmp_path, cases):
    (tmp_path / "empty").mkdir()
    for named, note in {
        "org/name": "The base model org/name is not on this machine, and was not read.",
        "empty": f"The base model empty was not read: {tmp_path}/empty has no config.json.",
    }.items():
        with cases(named):
            opened = open_target(written(tmp_path, "train.yaml", AXOLOTL.format(base=named)))
            assert opened.notes[-1] == note
            (code,) = resolve(opened).codes
            assert (code.kind, code.base, code.rates, code.scaling["factor"]) == ("rotary", None, None, 2.0)


@pytest.mark.parametrize("name", ["sub/train.yaml", "sub/Modelfile"])
def test_a_base_is_read_below_the_folder_of_the_file_only(tmp_path, base, weights, cases, name):
    """Neither above it, nor in the current folder, nor through a link."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/linked").symlink_to(base)
    (tmp_path / "sub/linked.gguf").symlink_to(weights)
    text = MODELFILE if name.endswith("Modelfile") else AXOLOTL.replace("{base}", "{source}")
    for named in ("../base", str(base), "base", "linked", "../model.gguf", "linked.gguf", "x/../../base"):
        with cases(named):
            path = written(tmp_path, name, text.format(source=named))
            try:
                with chdir(tmp_path):
                    opened = open_target(path)
            except Unreadable as error:
                told = error.message
            else:
                told = opened.notes[-1]
                assert opened.form == "dialect"
            outside = f" is not in the folder of {path.name}, and only what is there is read."
            assert (outside if named != "base" else "not on this machine") in told
    (tmp_path / "sub/base").mkdir()
    written(tmp_path, "sub/base/config.json", json.dumps(LLAMA))
    assert open_target(written(tmp_path, name, text.format(source="base"))).form == "config"


def test_a_file_of_ollamas_store_is_read_by_its_path(tmp_path, weights):
    """So does `ollama show --modelfile` write it."""
    blob = tmp_path / "ollama/blobs/sha256-0"
    blob.parent.mkdir(parents=True)
    weights.rename(blob)
    (tmp_path / "sub").mkdir()
    assert open_target(written(tmp_path, "sub/Modelfile", f"FROM {blob}\n")).form == "gguf"


def test_a_file_that_changes_no_positions_needs_its_base(tmp_path, refused, snapshot, cases):
    (tmp_path / "empty").mkdir()
    more = {"base_model": "adapter: lora\nsequence_len: 512", "model_name_or_path": "output_dir: out"}
    for key, named in product(more, ("org/name", "empty")):
        path = written(tmp_path, "lora.yaml", f"{key}: {named}\n{more[key]}\n")
        with cases(key, named):
            assert refused(open_target, path) == snapshot(name=f"{key} {named}")


MODELFILE = '''# a model
FROM {source}
parameter num_ctx 6000
PARAMETER rope_frequency_base 20000
PARAMETER rope_frequency_scale 0.5
SYSTEM """
FROM nowhere
"""
'''


@pytest.fixture
def weights(tmp_path):
    keys = {"embedding_length": 4096, "attention.head_count": 32, "block_count": 2, "context_length": 4096}
    entries = [gguf_key(f"llama.{key}", "uint32", value) for key, value in keys.items()]
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes([gguf_key("general.architecture", "string", "llama"), *entries]))
    return path


def test_a_modelfile_is_its_gguf_or_its_folder_at_its_length(tmp_path, weights, base):
    found = audit(written(tmp_path, "Modelfile", MODELFILE.format(source=f"./{weights.name}")))
    (code,) = found.layers
    assert (code.base, found.asked, found.context) == (20000.0, 6000, 4096)
    assert dict(code.scaling) | {"original": None} == {"type": "linear", "factor": 2.0, "original": None}
    assert code.source["base"] == "Modelfile:rope_frequency_base"
    assert "beyond-context" not in {finding.code for finding in found.findings}, "4096 by 2 is 8192"
    longer = MODELFILE.format(source=f"./{weights.name}").replace("6000", "9000")
    found = audit(written(tmp_path, "Modelfile", longer))
    assert "beyond-context" in {finding.code for finding in found.findings}
    found = audit(written(tmp_path, "my.Modelfile", MODELFILE.format(source=base.name)))
    assert (found.model_type, found.layers[0].base, found.layers[0].scaling["factor"]) == ("llama", 20000.0, 2.0)


def test_a_name_is_looked_up_in_the_store_of_ollama(tmp_path, weights):
    digest = hashlib.sha256(b"").hexdigest()
    blob = tmp_path / "ollama" / "blobs" / f"sha256-{digest}"
    blob.parent.mkdir(parents=True)
    weights.rename(blob)
    manifest = tmp_path / "ollama" / "manifests" / "registry.ollama.ai" / "library" / "tiny" / "latest"
    manifest.parent.mkdir(parents=True)
    layers = [{"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:x"}]
    layers.append({"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"})
    manifest.write_text(json.dumps({"layers": layers}))
    opened = open_target(written(tmp_path, "Modelfile", "FROM tiny\n"))
    assert (opened.form, opened.length) == ("gguf", None)
    assert opened.notes[0] == f"Modelfile is built from tiny, which is read from {blob}."


def test_a_modelfile_without_its_model_is_refused(tmp_path, refused, snapshot, cases):
    for text in ("FROM llama3.2:3b\n", "FROM ../../no/such\n", "PARAMETER num_ctx 1\n", ""):
        with cases(text):
            assert refused(open_target, written(tmp_path, "Modelfile", text)) == snapshot(name=text.strip())


@pytest.mark.parametrize("here", [True, False])
def test_axolotl_had_the_scaling_at_the_top_in_older_releases(tmp_path, base, here):
    name = base.name if here else "not/here"
    top = "rope_scaling:\n  type: linear\n  factor: 2.0\n"
    opened = open_target(written(tmp_path, "old.yaml", f"base_model: {name}\nsequence_len: 8192\n{top}"))
    (code,) = resolve(opened).codes
    assert dict(code.scaling)["factor"] == 2.0
    assert code.source["scaling"].startswith("old.yaml:rope_scaling.type")
    assert any("old.yaml:rope_scaling is read by older releases" in note for note in opened.notes)
    inside = "overrides_of_model_config:\n  rope_scaling:\n    type: linear\n    factor: 4.0\n"
    opened = open_target(written(tmp_path, "both.yaml", f"base_model: {name}\nsequence_len: 8192\n{top}{inside}"))
    assert dict(resolve(opened).codes[0].scaling)["factor"] == 4.0


@pytest.mark.usefixtures("base")
def test_trl_spelt_its_length_in_another_way_in_older_releases(tmp_path):
    text = "model_name_or_path: base\noutput_dir: out\nmax_seq_length: 8192\n"
    found = audit(written(tmp_path, "sft.yaml", text))
    assert found.asked == 8192
    assert "beyond-context" in {finding.code for finding in found.findings}
    scaled = text + "model_init_kwargs:\n  rope_scaling: {rope_type: dynamic, factor: 2.0}\n"
    found = audit(written(tmp_path, "sft.yaml", scaled))
    assert "beyond-context" not in {finding.code for finding in found.findings}
