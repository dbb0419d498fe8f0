"""Suspects: runnable implementations with a fault, which get the same inputs as the user's implementation."""

from clockhands.recognition.suspects._additive_code import (
    AdditiveObservations,
    StagedAdditive,
    additive_stateful,
)
from clockhands.recognition.suspects._additive_specs import additive_suspects, further_suspects
from clockhands.recognition.suspects._bias_code import (
    Behind,
    BiasObservations,
    GivenValues,
    StagedBias,
    alone,
    bias_stateful,
    table_of,
)
from clockhands.recognition.suspects._bias_specs import bias_suspects
from clockhands.recognition.suspects._fault_model import FaultModel
from clockhands.recognition.suspects._measured_ladders import axis_ladders
from clockhands.recognition.suspects._resized_tables import resizing_mistakes, resizing_ways
from clockhands.recognition.suspects._rotary_code import (
    RotaryObservations,
    Samples,
    StagedRotary,
    pair_factors,
)
from clockhands.recognition.suspects._rotary_specs import recognised, rotary_suspects, rotation_suspects, scaling_name
from clockhands.recognition.suspects._stateful_rotary import rotary_stateful
