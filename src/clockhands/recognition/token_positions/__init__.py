"""How model families number their tokens, and the faults of code that numbers them."""

from clockhands.recognition.token_positions.given_batches import given_batch
from clockhands.recognition.token_positions.numbering import delta, positions
from clockhands.recognition.token_positions.prompts import (
    KINDS,
    Prompt,
    PromptPart,
    Run,
    TokenBatch,
    prompt_of,
    prompts_of,
)
from clockhands.recognition.token_positions.rules import (
    FAMILIES,
    PositionRule,
    TokenIds,
    is_family,
    rules_of,
    rules_of_config,
)
from clockhands.recognition.token_positions.suspects import PositionSuspect, position_suspects
