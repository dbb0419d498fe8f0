"""What help and a command import: each starts as fast as what it needs."""

import subprocess
import sys
from importlib.util import find_spec

from clockhands.cli.group import COMMANDS


def imported(*words):
    """The modules that are there after a command line has been run in a fresh process."""
    code = (
        "import sys\nfrom clockhands.cli import main\n"
        f"sys.argv = ['clockhands', *{list(words)!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


# What the audit of one config does not need: of the standard library and NumPy, for other files, for other commands.
LATE = {
    *("asyncio", "concurrent.futures", "importlib.metadata", "importlib.resources", "multiprocessing", "sqlite3"),
    *("ssl", "tempfile", "zipfile", "numpy.random", "numpy.testing", "yaml"),
    *(f"clockhands.formats.{name}" for name in ("checkpoints", "gguf", "onnx", "yaml_documents")),
    *("clockhands.auditing.target_properties", "clockhands.measures._measuring"),
    *("clockhands.recognition.suspects", "clockhands.testing"),
}


def test_help_imports_neither_numpy_nor_rich_nor_any_command():
    loaded = imported("--help")
    assert "click" in loaded
    heavy = {"numpy", "rich", "torch", "jax", "importlib.metadata"}
    assert not loaded & (heavy | {f"clockhands.cli.{name}" for name in COMMANDS})


def test_a_command_imports_no_framework_and_json_no_drawing():
    loaded = imported("audit", "--json", "vaswani2017")
    assert {"numpy", "clockhands.cli.audit"} <= loaded, "the check sees what is imported"
    assert not loaded & {"rich", "torch", "jax", "clockhands.cli.table"}


def test_an_audit_of_a_config_imports_what_configs_need(tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}', encoding="utf-8")
    loaded = imported("audit", str(config))
    assert {"rich.text", "clockhands.configs.openers"} <= loaded, "the check sees what is imported"
    assert loaded & LATE == set()
    assert all(map(find_spec, LATE)), "every name is that of a module"
