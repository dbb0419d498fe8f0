"""Suspects: runnable implementations with a fault, which get the same inputs as the user's implementation."""

from clockhands.recognition.suspects._additive_code import (
    ChannelWaves,
    SeenAdditive,
    StagedAdditive,
    additive_stateful,
    sinusoid_channels,
)
from clockhands.recognition.suspects._additive_specs import additive_suspects, further_suspects
from clockhands.recognition.suspects._bias_code import (
    Behind,
    GivenValues,
    SeenBias,
    StagedBias,
    alone,
    bias_stateful,
    table_of,
)
from clockhands.recognition.suspects._bias_specs import bias_suspects
from clockhands.recognition.suspects._rotary_code import (
    Samples,
    SeenRotary,
    StagedRotary,
    pair_factors,
    rotary_stateful,
)
from clockhands.recognition.suspects._rotary_specs import axis_ladders, rotary_suspects, scaling_name
from clockhands.recognition.suspects._suspect import Suspect

__all__ = [
    "Behind",
    "ChannelWaves",
    "GivenValues",
    "Samples",
    "SeenAdditive",
    "SeenBias",
    "SeenRotary",
    "StagedAdditive",
    "StagedBias",
    "StagedRotary",
    "Suspect",
    "additive_stateful",
    "additive_suspects",
    "alone",
    "axis_ladders",
    "bias_stateful",
    "bias_suspects",
    "further_suspects",
    "pair_factors",
    "rotary_stateful",
    "rotary_suspects",
    "scaling_name",
    "sinusoid_channels",
    "table_of",
]
