"""Rows of a survey: one of each grade, and any number."""

from clockhands.auditing import CORRECT
from clockhands.jobs.survey.rows import SurveyRow
from clockhands.jobs.survey.worker import failed

ROWS = [
    SurveyRow("/m/a", "r", "1", "done", verdict=f"{CORRECT}.", model_type="llama", kinds="rotary", base=1e4,
              context=4096, head_width=128, notes="never-turning"),
    SurveyRow("/m/b", "r", "1", "done", verdict="1 problem: lost.", severity="warning", model_type="qwen2",
              warnings="default-base", kinds="rotary learned", base=1e6, scaling="yarn", factor=4.0, context=131072,
              differs_in="vllm transformers-4", refused_by="mlx-lm"),
    SurveyRow("/m/c", "r", "1", "done", verdict="1 problem: wrong.", severity="error", errors="default-base"),
    failed("/m/deep/d", "r", "1", "/m/deep/d/config.json cannot be read.", "Download it again."),
]  # fmt: skip


def many(count: int) -> list[SurveyRow]:
    return [
        SurveyRow(f"/m/model-{number:05d}", "r", "1", "done", verdict=f"{CORRECT}.", model_type=f"type{number % 50}",
                  kinds="rotary", base=1e4 * (1 + number * 7919 % count), context=4096, severity="note",
                  warnings="default-base" if number % 10 == 0 else "")
        for number in range(count)
    ]  # fmt: skip
