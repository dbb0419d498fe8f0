"""How model families number their tokens, and the faults of code that numbers them."""

from clockhands.recognition.token_positions.numbering import delta, positions
from clockhands.recognition.token_positions.prompts import KINDS, Prompt, PromptPart, Run, prompts_of
from clockhands.recognition.token_positions.rules import FAMILIES, PositionRule, TokenIds, rules_of, rules_of_config
from clockhands.recognition.token_positions.suspects import PositionSuspect, position_suspects

__all__ = [
    "FAMILIES",
    "KINDS",
    "PositionRule",
    "PositionSuspect",
    "Prompt",
    "PromptPart",
    "Run",
    "TokenIds",
    "delta",
    "position_suspects",
    "positions",
    "prompts_of",
    "rules_of",
    "rules_of_config",
]
