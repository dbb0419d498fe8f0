"""Models of Ollama and LM Studio by name."""

import hashlib
import json
from functools import partial
from pathlib import Path

import pytest

from clockhands.auditing import audit
from clockhands.configs import is_function, open_target, path_of
from written_files import small_gguf, written

USUAL = "registry.ollama.ai/library/llama3.2/latest"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    return tmp_path


def pulled(models: Path, place: str = USUAL, **contents: bytes) -> dict[str, Path]:
    """A model of Ollama with a blob for each layer."""
    layers, blobs = [], {}
    for kind, content in contents.items():
        digest = hashlib.sha256(content).hexdigest()
        layers.append({"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{digest}", "size": 1})
        blobs[kind] = models / f"blobs/sha256-{digest}"
        blobs[kind].parent.mkdir(parents=True, exist_ok=True)
        blobs[kind].write_bytes(content)
    manifest = models / "manifests" / place
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return blobs


@pytest.fixture
def refused(refused):
    """What a name is refused with."""
    return partial(refused, open_target)


PLACES = {
    "llama3.2": USUAL,
    "llama3.2:1b": "registry.ollama.ai/library/llama3.2/1b",
    "user/llama": "registry.ollama.ai/user/llama/latest",
    "hf.co/org/llama-GGUF:Q4_K_M": "hf.co/org/llama-GGUF/Q4_K_M",
}


def test_a_model_of_ollama_is_opened(home, cases):
    for name, place in PLACES.items():
        blob = pulled(home / ".ollama/models", place, model=small_gguf(), license=b"free")["model"]
        with cases(name):
            opened = open_target(f"ollama:{name}")
            assert (opened.form, opened.path, opened.target) == ("gguf", blob, f"ollama:{name}")
            assert opened.notes == (f"ollama:{name} is read from {blob}.",)
            assert path_of(f"ollama:{name}") == blob
            assert not is_function(f"ollama:{name}")


def test_the_context_that_ollama_uses_is_said(home):
    pulled(home / ".ollama/models", model=small_gguf(), params=b'{"num_ctx": 32768, "stop": ["x"]}')
    notes = audit("ollama:llama3.2").notes
    assert "Ollama runs it with num_ctx 32,768, the length that is audited." in notes
    pulled(home / ".ollama/models", model=small_gguf(), params=b"{")
    assert open_target("ollama:llama3.2").notes[1].startswith("Its parameters are not examined: ")


def test_models_that_ollama_does_not_have(home, monkeypatch, refused, snapshot):
    monkeypatch.setenv("OLLAMA_MODELS", str(home))
    assert refused("ollama:llama3") == snapshot(name="none")
    pulled(home, model=small_gguf())
    pulled(home, "hf.co/org/other/Q4", model=small_gguf())
    assert refused("ollama:llama3.1") == snapshot(name="another")
    assert path_of("ollama:llama3.1") is None
    assert open_target("ollama:llama3.2").form == "gguf", "the folder of Ollama is the one of the variable"
    for name in ("", "../../x", "a/b/c/d", "a:b:c"):
        assert refused(f"ollama:{name}")[1] == "Write it as `ollama list` does."


def test_a_model_of_ollama_that_is_not_whole(home, refused):
    blobs = pulled(home / ".ollama/models", model=small_gguf())
    blobs["model"].unlink()
    assert refused("ollama:llama3.2") == (
        f"Ollama lists ollama:llama3.2, but its file FOLDER/{blobs['model'].relative_to(home)} is not there.",
        "Download it again: `ollama pull llama3.2`.",
    )
    pulled(home / ".ollama/models", license=b"free")
    assert refused("ollama:llama3.2")[0].startswith("The manifest of ollama:llama3.2 names no GGUF file (")
    # A manifest cannot lead elsewhere.
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../../../secret"}
    for text in (json.dumps({"layers": [layer, 5, {"mediaType": 5}]}), '{"layers": 5}'):
        (home / ".ollama/models/manifests" / USUAL).write_text(text)
        assert "names no GGUF file" in refused("ollama:llama3.2")[0]


@pytest.mark.parametrize("folder", [".lmstudio/models", ".cache/lm-studio/models"])
def test_a_model_of_lm_studio_is_opened(home, folder, refused, snapshot):
    model, name = home / folder / "publisher/model-GGUF", "lmstudio:publisher/model-GGUF"
    model.mkdir(parents=True)
    file = written(model / "m.Q4.gguf", small_gguf())
    written(model / "mmproj-m.gguf", small_gguf())
    opened = open_target(name)
    assert (opened.form, opened.path, opened.notes) == ("gguf", file, (f"{name} is read from {file}.",))
    assert path_of(name) == model
    written(model / "m.Q8.gguf", small_gguf())
    assert refused(name) == snapshot
    assert open_target(f"{name}/m.Q4.gguf").path == file


def test_models_that_lm_studio_does_not_have(home, refused, snapshot):
    assert refused("lmstudio:a/b") == snapshot
    (home / ".lmstudio/models/publisher/model").mkdir(parents=True)
    assert refused("lmstudio:publisher/modle")[1].startswith("Did you mean lmstudio:publisher/model? ")
    for name in ("", "model", "../../x", "a/../b"):
        assert refused(f"lmstudio:{name}")[1] == "Write it as lmstudio:PUBLISHER/MODEL[/FILE]."
