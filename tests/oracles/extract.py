"""Make ``published.json`` from the full tables: ``python tests/oracles/extract.py ../shared``.

Each number is what the library named beside it computed, in float32, written with as many digits as it takes.
"""

import json
import sys
from pathlib import Path

import numpy as np

PUBLISHED = Path(__file__).with_name("published.json")
SINUSOIDS = (
    "sin_annotated_transformer",
    "sin_fairseq_pad1_d64",
    "sin_hf_distilbert_d65",
    "sin_hf_m2m100_forward_padded",
    "sin_hf_marian_d64",
    "sin_openai_whisper",
    "sin_t2t_1d_even",
    "sin_t2t_1d_odd",
    "time_diffusers_ddpm_default",
    "time_diffusers_odd",
    "time_guided_diffusion_odd",
    "time_diffusers_sd_unet",
)
ROPE_TABLES = ("rope_litgpt_yarn", "rope_yarn_original")
ROWS = (0, 1, 2, 127)


def numbers(array: np.ndarray) -> list:
    """Nested lists of the shortest decimals that give the same float32 back."""
    return [numbers(row) for row in array] if array.ndim else float(str(np.float32(array)))


def extract(shared: Path) -> dict:
    folder = shared / "conventions"
    entries = {entry["key"]: entry for entry in json.loads((folder / "index.json").read_text("utf-8"))["tables"]}

    def source(key: str) -> str:
        return "{library} {version}, {object} ({file})".format(**entries[key])

    def arrays(key: str) -> dict[str, np.ndarray]:
        with np.load(folder / "tables" / f"{key}.npz") as loaded:
            return dict(loaded)

    data: dict = {"rates": {}, "first_turns": {}, "sinusoids": {}}
    for key in sorted(key for key, entry in entries.items() if entry["family"] == "rotary_inv_freq"):
        made = arrays(key)
        data["rates"][key] = {
            "source": source(key),
            "attention_factor": float(made["attention_factor"]),
            "rates": numbers(made["inv_freq"]),
        }
    for key in ROPE_TABLES:
        made = arrays(key)
        half = made["cos"].shape[1] // 2
        data["first_turns"][key] = {
            "source": source(key),
            "cos": numbers(made["cos"][1, :half]),
            "sin": numbers(made["sin"][1, :half]),
        }
    for key in SINUSOIDS:
        made = arrays(key)
        table = made["table"]
        if "t" in made:
            positions = made["t"].tolist()
        elif "position_ids" in made:
            positions = made["position_ids"][0].tolist()
        else:
            positions, table = list(ROWS), table[list(ROWS)]
        data["sinusoids"][key] = {"source": source(key), "positions": positions, "rows": numbers(table)}
    return data


def as_text(data: dict) -> str:
    """One line for each list of numbers."""
    lines = ["{"]
    for group, entries in data.items():
        lines.append(f' "{group}": {{')
        for key, entry in entries.items():
            fields = [f'   "{name}": {json.dumps(value)}' for name, value in entry.items() if name != "rows"]
            if "rows" in entry:
                fields.append(
                    '   "rows": [\n' + ",\n".join(f"    {json.dumps(row)}" for row in entry["rows"]) + "\n   ]"
                )
            lines.append(f'  "{key}": {{\n' + ",\n".join(fields) + "\n  },")
        lines[-1] = lines[-1].removesuffix(",")
        lines.append(" },")
    lines[-1] = lines[-1].removesuffix(",")
    return "\n".join([*lines, "}", ""])


if __name__ == "__main__":
    PUBLISHED.write_text(as_text(extract(Path(sys.argv[1]))), encoding="utf-8")
