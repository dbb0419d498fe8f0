"""The faults of modules: what happens to their numbers when they are cast, moved, emptied, copied, shared or compiled.

Rows only: there is nothing to try. A treatment of the module shows each, and its tensors say which of them it was; see
`clockhands.testing.check_module`.
"""

from clockhands.faults.fault import row_maker

_row = row_maker("code", "module", "a few positions")

_FILL = (
    "Compute it where the loader looks for that (reset_parameters, or the init hook of the framework), or in forward,"
    " from numbers that are no tensors."
)
_FLOAT32 = (
    "Compute the rates in float32 in forward, from the base, or keep them out of casts (override _apply, or hold them"
    " as a plain number)."
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
        "Apply the scaling wherever the rates are computed anew, also in what repairs them after loading.",
        "unsloth#6907",
    ),
    _row(
        "scaling-inert",
        "was built without the scaling ({scaling}) and has the plain rates: {told}",
        "Set the scaling before the module is built: a config that is changed afterwards changes no number in it.",
        "Soup#793",
    ),
    _row(
        "buffer-of-another-base",
        "holds the rates of base {base:,.7g}, not {declared:,.7g}",
        "Pass the base on to where the rates are made, and look for a file that brings its own.",
        "SpecForge#265",
    ),
    _row(
        "buffer-scaled-twice",
        "holds rates to which the scaling ({scaling}) was applied twice: {told}",
        "Scale either the rates or the positions, once.",
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
        "Register it with persistent=False.",
        "transformers#35255",
        shown_by="state dict",
    ),
    _row(
        "ids-of-floats",
        "keeps numbers of positions as floats in `{path}`, and {what} rounds them: {told}",
        "Keep numbers of positions as integers: casts leave those alone.",
        "A1111#6728",
        "model-toolkit#6",
        shown_by="cast to bfloat16",
    ),
    _row("table-uninitialised", "holds a table that nobody wrote: {told}", _FILL, "torchtitan#4783"),
    _row(
        "table-zero", "holds a table that is all zero: no position differs from another", _FILL, "transformers 5.23.0"
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
        "Do not write to what layers or calls share; compute the rotary width once, from the config, into a name of"
        " its own.",
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
