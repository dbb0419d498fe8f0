"""The faults of modules: what happens to their numbers when they are cast, moved, emptied, copied, shared or compiled.

Rows only: there is nothing to try. A treatment of the module shows each, and its tensors say which of them it was; see
`clockhands.testing.check_module`.
"""

from clockhands.faults.fault import row_maker

_row = row_maker("code", "module", "a few positions")

# One hint for each code, whoever finds it: a check of a module, the audit of a loaded model, or that of a checkpoint.
_FILL = (
    "Compute the values again after the module is moved or emptied: in reset_parameters, in the framework's init hook,"
    " or in forward. They are computed, so no checkpoint brings them."
)
_TABLE = (
    "Load a learned table from the checkpoint, and look at which names the loader reports as missing; compute any other"
    " again after the module is moved or emptied."
)
_FLOAT32 = (
    "Compute the rates again in float32 after the cast, or keep them out of it: load the model in that type instead of"
    " casting it, compute the rates in forward, or override _apply."
)

FAULTS = (
    _row(
        "buffer-uninitialised",
        "holds rates that nobody wrote: {told}",
        _FILL,
        "torchtitan#4783",
        "unsloth#4112",
        "FastPLMs#47",
        "Bacformer#33",
    ),
    _row("buffer-zero", "holds rates that are all zero: nothing turns", _FILL, "chronos-forecasting#491"),
    _row(
        "buffer-rounded",
        "holds rates that are rounded to {dtype}: {told}",
        _FLOAT32,
        "Automodel#2549",
        "transformers 5.23.0",
        shown_by="built where bfloat16 is the default",
    ),
    _row(
        "buffer-unscaled",
        "holds the plain rates, without the scaling ({scaling}): {told}",
        "Compute the rates again with the declared scaling, by the class's own function; do so also in code that"
        " computes them again after loading.",
        "unsloth#6907",
    ),
    _row(
        "scaling-inert",
        "was built without the scaling ({scaling}) and has the plain rates: {told}",
        "Set the scaling in the config first, and make the module from it: a config that is changed afterwards changes"
        " no number in it.",
        "Soup#793",
    ),
    _row(
        "buffer-of-another-base",
        "holds the rates of base {base:,.7g}, not {declared:,.7g}",
        "Pass the config's base to the code that makes the rates, and make them again; look for a file or a cache that"
        " brings rates of its own.",
        "SpecForge#265",
    ),
    _row(
        "buffer-of-another-factor",
        "holds rates that are scaled by {factor:.7g}, not {declared:.7g}: {told}",
        "Make the rates again from the config that the model was trained with; a config that is changed afterwards"
        " changes no number in the module.",
    ),
    _row(
        "buffer-of-another-scaling",
        "holds rates with the scaling {other}, not {scaling}: {told}",
        "Make the rates again with the type of scaling that the model was trained with.",
    ),
    _row(
        "buffer-of-another-width",
        "holds rates of {held} pairs, not {pairs}",
        "Make the rates for the channels that turn: a part of each head where a share is declared.",
    ),
    _row(
        "buffer-differs",
        "holds other rates than its code: {told}",
        "Find out which of the two the model was trained with; make the rates again from the right config.",
    ),
    _row(
        "buffer-scaled-twice",
        "holds rates to which the scaling ({scaling}) was applied twice: {told}",
        "Scale either the rates or the positions, once: look for a repair or a patch that scales what the class has"
        " scaled.",
        "Safe-Synthesizer#623",
    ),
    _row(
        "buffer-of-another-dtype",
        "holds its rates in {dtype}: {told}",
        _FLOAT32,
    ),
    _row(
        "buffer-persistent",
        "writes `{path}` with its weights, although it is computed: a file of another base brings its own",
        "Nothing to mend while it is right: sound models have this too. Register it with persistent=False, so that a"
        " file of another base cannot bring its own.",
        "transformers#35255",
        shown_by="state dict",
    ),
    _row(
        "ids-of-floats",
        "keeps numbers of positions as floats in `{path}`, and {what} rounds them: {told}",
        "Set the numbers again, from 0 on in int64, and keep them as integers: casts leave those alone.",
        "A1111#6728",
        "model-toolkit#6",
        shown_by="cast to bfloat16",
    ),
    _row("table-uninitialised", "holds a table that nobody wrote: {told}", _TABLE, "torchtitan#4783"),
    _row(
        "table-zero",
        "holds a table that is all zero: no position differs from another",
        f"Nothing to mend before training: tables that are learned may start at zero. {_TABLE}",
        "transformers 5.23.0",
    ),
    _row(
        "shared-table",
        "gets what another module made: {told}",
        "Make all that the numbers follow from (base, width, scaling, dtype, device) a part of the cache's key, or keep"
        " nothing that modules share.",
        "aprender#1607",
        "mlx#561",
        "sglang#33575",
        "mlx#3071",
        shown_by="two models of different bases",
    ),
    _row(
        "shared-object-mutated",
        "changes what is shared: it {what}: {told}",
        "Give each layer a copy of the settings, or compute the rotary width once, from the config, into a name of its"
        " own; then make the model again.",
        "vllm#16904",
        shown_by="one for each of four layers",
    ),
    _row(
        "cast-changes-numbers",
        "has other numbers when it {what}: {told}",
        _FLOAT32,
        "Automodel#2549",
        "flash-attention#845",
        "transformers 5.23.0",
        "positional-encodings",
        shown_by="cast to bfloat16",
    ),
    _row(
        "autocast-changes-numbers",
        "has other numbers when it {what}: {told}",
        "Make the phases outside of autocast, with enabled=False, by multiplication and not by a matrix product.",
        shown_by="autocast",
    ),
    _row(
        "mode-changes-numbers",
        "has other numbers when it {what}: {told}",
        "Make the numbers in the same way whether the module trains, evaluates or infers.",
        shown_by="training mode",
    ),
    _row(
        "changes-with-each-call",
        "has other numbers when it {what}: {told}",
        "Let forward write to nothing that the next call reads, but what follows from the arguments alone.",
        shown_by="asked again",
    ),
    _row(
        "lost-by-deepcopy",
        "has other numbers when it {what}: {told}",
        "Let copies hold what the module holds: no numbers outside of it, none that depend on its identity.",
        shown_by="deepcopy",
    ),
    _row(
        "lost-by-pickle",
        "has other numbers when it {what}: {told}",
        "Let __getstate__ and __setstate__ keep all that the numbers follow from.",
        shown_by="pickle",
    ),
    _row(
        "lost-by-state-dict",
        "has other numbers when it {what}: {told}",
        "Register what is computed with persistent=False, and let its shape not depend on what was asked before.",
        shown_by="state dict",
    ),
    _row(
        "lost-by-to-empty",
        "has no right numbers when it {what}: {told}",
        _FILL,
        "torchtitan#4783",
        "unsloth#4112",
        shown_by="to_empty",
    ),
    _row(
        "left-behind-by-move",
        "leaves numbers behind when it is moved to another device: {told}",
        "Register tensors as buffers, or make them on the device of the tokens.",
        shown_by="moved to another device",
    ),
    _row(
        "compile-changes-numbers",
        "has other numbers when it {what}: {told}",
        "Let forward be the same function of its arguments when it is traced: no branches on values, no state.",
        shown_by="compiled",
    ),
    _row(
        "position-argument-ignored",
        "gives the same whatever position it is told: {told}",
        "Use the positions that are passed in.",
        shown_by="positions matter",
    ),
)
