"""The Python files beside a config: what the code of a model computes about positions, read and never run."""

from clockhands.configs.model_code._beside import CodeFiles, code_beside
from clockhands.configs.model_code._code_facts import CodeFacts, read_code

__all__ = ["CodeFacts", "CodeFiles", "code_beside", "read_code"]
