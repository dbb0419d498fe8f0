"""The Python files beside a config: what the code of a model computes about positions, read and never run."""

from clockhands.configs.model_code._beside import CodeFiles, code_beside

__all__ = ["CodeFiles", "code_beside"]
