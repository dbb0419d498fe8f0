"""`clockhands check`: whether a function or a module computes the expected position code."""

import contextlib
import inspect
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from clockhands.cli.group import complain, known_codes, talk
from clockhands.cli.lengths import Length
from clockhands.cli.output import BACKENDS, hanging, json_option, keep_stdout, leave, print_json
from clockhands.configs.callables import IN_FILE, load, refuse_source
from clockhands.errors import ClockhandsError, InvalidValue, Unreadable
from clockhands.phrases import listed, number_of, shown
from clockhands.testing import CannotCheck, Report

KINDS = ("rotary", "additive", "bias", "module", "attention", "generation", "positions", "encoding")
DTYPES = ("float32", "float64", "float16", "bfloat16")

EXAMPLES = """\b
Examples:
  clockhands check mymodel.rotary:apply_rotary --like llama3.1
  clockhands check mymodel.rotary:apply_rotary --like spec.json --axes "batch heads seq width"
  clockhands check mymodel/rotary.py:apply_rotary --like path/to/model
  clockhands check mymodel.rotary:build --make --like llama3.1:head_width=64
  clockhands check mymodel.embeddings:add_positions --like vaswani2017 --width 64
  clockhands check mymodel.model:small_model --kind generation
  clockhands check lab.sqlite:rotary:0 --kind generation
  clockhands check my_codes.py:Mine
  clockhands check mymodel.processing:get_rope_index --kind positions --like qwen2_vl
  clockhands check batch.npz --kind positions --like path/to/config.json
"""


def _codes(ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> frozenset[str]:
    if not values:
        return frozenset()
    # Imported when needed: the help does not need it.
    from clockhands.recognition.faults import FAULTS

    return known_codes(ctx, values, FAULTS, "fault")


@click.command("check", epilog=EXAMPLES)
@click.argument("target", metavar="PACKAGE.MODULE:CALLABLE|FILE.py:NAME")
@click.option(
    "--like",
    metavar="SPEC",
    help="Expected encoding: PRESET[:field=value,...], a MODEL[:part=NAME][:layer=N] or its config.json, or a "
    "file of clockhands.to_json; for positions a family, for attention layers a MODEL.",
)
@click.option("--kind", type=click.Choice(KINDS), help="Kind of check, if --like does not determine it.")
@click.option(
    "--make",
    is_flag=True,
    help="CALLABLE builds what is checked, with a spec or no argument; what it builds for two specs is compared too.",
)
@click.option("--axes", metavar="WORDS", help="Axes of x (default: found out), such as 'batch heads seq width'.")
@click.option(
    "--call",
    metavar="WORDS",
    help="Arguments of the function (default: by their names), such as 'x' or 'q, k, cos, sin'.",
)
@click.option("--positions", metavar="WORDS", help="Axes of the positions (default: found out), such as 'batch seq'.")
@click.option("--heads", metavar="A:B", help="The heads of a rank, for a function that has only these, such as 4:8.")
@click.option(
    "--rank", type=click.IntRange(min=0), metavar="R", help="The rank, if the function has a sequence's part."
)
@click.option("--ranks", type=click.IntRange(min=1), metavar="N", help="The number of ranks.")
@click.option(
    "--aligned",
    type=click.Choice(("end", "start")),
    help="Whether the queries of a bias function that takes counts are at the last or the first keys (default: end).",
)
@click.option("--zigzag", is_flag=True, default=None, help="A rank has two chunks, one from each end.")
@click.option("--backend", type=click.Choice(BACKENDS), help="Type of the function's arrays (default: detected).")
@click.option(
    "--dtype", type=click.Choice(DTYPES), metavar="D", help="Dtype of the function's input (default: float32)."
)
@click.option("--length", type=Length(), metavar="N", help="Check positions 0 to N-1 (default: 10,000).")
@click.option(
    "--width",
    type=click.IntRange(min=1),
    metavar="N",
    help="Width of x; for RoPE, the head width (default: as in SPEC).",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Time limit of each call in seconds (default: 60).",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="CODE",
    callback=_codes,
    help="Leave out this fault and the failures that it explains (repeatable).",
)
@click.option("-v", "--verbose", is_flag=True, help="Show all evidence, and why parts of the check were skipped.")
@json_option
def command(  # noqa: PLR0917 - click passes them by name
    target: str,
    like: str | None,
    kind: str | None,
    make: bool,
    width: int | None,
    ignore: frozenset[str],
    verbose: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Check whether a function computes the right positional encoding; if not, name the fault.

    CALLABLE is imported from the current folder or from an installed package, and called many times: RoPE or an
    additive encoding with (x [seq, width], positions [seq]), or as the names of its arguments say, such as
    (q, k, cos, sin); a bias with (queries, keys), a PyTorch module with the arguments of its forward, and an attention
    layer or a model, with --like MODEL, as its config declares its layers. FILE.py:NAME
    without --like is an encoding of your own, with the methods of clockhands.encodings.protocols: its laws are checked
    without a reference. With --kind positions CALLABLE gives tokens their positions, or returns a model that does, or
    is a file, .npz or .pt, of a batch with its positions. With --kind generation CALLABLE may be a model that the lab
    kept, STORE:ARM:SEED@STEP. Exit code 0 means correct, 1 that something failed, 2 that
    CALLABLE cannot be called.
    """
    options = {name: value for name, value in (given | {"like": like, "width": width}).items() if value is not None}
    running = hanging()
    keep_stdout()
    try:
        report = _checked(target, kind, make, options)
    except ClockhandsError as error:
        if isinstance(error, CannotCheck):
            _note_other_parts(options.get("like"))
        if hanging() <= running:
            raise
        complain(error.message, error.hint)
        leave(2)
    if not report.sound:
        _note_other_parts(options.get("like"))
    failed, report = len(report.failures), report.without(ignore)
    left_out = failed - len(report.failures)
    if left_out:
        talk(f"note: {target}: {number_of(left_out, 'failure')} left out by --ignore.")
    _print(target, report, verbose, as_json)
    code = int(not report.sound)
    if hanging() > running:
        leave(code)
    return code


def _checked(target: str, kind: str | None, make: bool, options: dict[str, Any]) -> Report:
    from clockhands.recognition.calling import outliving

    refuse_source(target)
    # What the function prints goes to stderr: only the report may be on stdout.
    with contextlib.redirect_stdout(sys.stderr), outliving():
        return replace(_reported(target, kind, make, options), subject=target)


def _reported(target: str, kind: str | None, make: bool, options: dict[str, Any]) -> Report:
    from clockhands.testing.generation import generates_text
    from clockhands.testing.kinds import by_names, check_of, check_options, check_whole, is_module, kind_for

    if kind in {None, "positions"} and Path(target).is_file():
        return _batch(Path(target), options)
    others = {name: options[name] for name in ("backend", "timeout") if name in options}
    if make:
        options = _with_spec({**options, "make": load(target, accepts=generates_text)})
        if kind is None and "like" not in options:
            raise _without_encoding(target, None, options, None)
        check = check_of(kind or kind_for(None, options.get("like")))
        check_options(check, options)
        return check(raises=False, **options)
    function = _subject(target, kind, options)
    if function is None:
        return _laws(target, options)
    bare = kind is None and "like" not in options
    if bare and generates_text(function):
        if (report := _engine_beside(target, function, options)) is not None:
            return report
        kind, bare = "generation", False
    refused = None
    if bare or kind == "positions":
        try:
            if report := by_names(function, kind, **others):
                return report
        except CannotCheck as error:
            refused = error
    if kind is None:
        if "like" not in options:
            _expect_beside(target, function, options)
        function, kind = _kind_by_config(function, options)
    if kind == "whole":
        return check_whole(function, raises=False, **options)
    if kind not in {"positions", "attention"}:  # there `like` is a family of rules or a config, and no encoding
        options = _with_spec(options)
    if kind is None:
        if "like" not in options and not is_module(function):
            raise _without_encoding(target, function, options, refused)
        kind = kind_for(function, options.get("like"))
    if kind in {"rotary", "additive"} and (report := _of_grid(function, kind, options, others)):
        return report
    check = check_of(kind)
    check_options(check, options)
    builds = (
        _builds_model(function)
        if kind in {"generation", "attention"}
        else kind == "positions" and not _arguments(function)
    )
    return check(_built(function) if builds else function, raises=False, **options)


def _subject(target: str, kind: str | None, options: dict[str, Any]) -> Any:
    """What a target names, built where a config says how; None for an encoding of one's own, whose laws are checked."""
    from clockhands.testing.generation import generates_text
    from clockhands.testing.kinds import is_module
    from clockhands.testing.positions import refuse_processor

    if kind == "encoding":
        return None
    if kind == "generation" and (kept := _kept(target)) is not None:
        return kept
    value = load(target, accepts=generates_text)
    if (method := _named_method(value, kind, options.get("like"))) is not None:
        owner = target if isinstance(value, type) else target.removesuffix(f".{method}")
        value = getattr(_instance(owner, options), method)
    if kind in {None, "positions"} and not inspect.isroutine(value) and not generates_text(value):
        refuse_processor(value, options.get("like"))
    bare = kind is None and "like" not in options
    built = _built_beside(target, value, options)
    if bare and built is value and not generates_text(value) and IN_FILE.fullmatch(target):
        return _unless_encoding(target, value)
    if not (is_module(built) or callable(built) or generates_text(built)):
        built = next((getattr(built, name) for name in _CALLED if callable(getattr(built, name, None))), built)
        if not callable(built):
            _refuse_unknown(target, built)
    return built


def _named_method(value: Any, kind: str | None, like: Any) -> str | None:
    """The method that is meant, of an object of its class: one that is named, or the only one that numbers tokens."""
    from clockhands.recognition.token_positions import is_family
    from clockhands.testing.positions import numbers_tokens

    if inspect.isfunction(value):
        parameters = inspect.signature(value).parameters
        return value.__name__ if "." in value.__qualname__ and next(iter(parameters), "") == "self" else None
    if isinstance(value, type) and (kind == "positions" or (isinstance(like, str) and is_family(like))):
        methods = {name: each for name, each in vars(value).items() if inspect.isfunction(each)}
        found = [name for name, each in methods.items() if _NUMBERING.fullmatch(name) or numbers_tokens(each)]
        return found[0] if len(found) == 1 else None
    return None


_NUMBERING = re.compile(
    r"((get|make|compute|build)_)?(rope_index|((mrope|rope|token)_)?(positions|position_ids|pos_ids))"
)
"""The name of a method that numbers tokens."""


def _instance(target: str, options: dict[str, Any]) -> Any:
    """An object of a class: made for a config, by the function of its file that does so, or without arguments."""
    from clockhands.testing.built_subjects import loaded_instance

    made = _built_beside(target, load(target), options)
    return (loaded_instance(made) or _built(made)) if isinstance(made, type) else made


_CALLED = ("forward", "apply", "apply_rotary", "encode")
"""The methods of an object that is not called itself."""


def _config_beside(target: str) -> Path | None:
    """The config in the folder of a file of code."""
    from clockhands.testing.built_subjects import config_beside

    found = IN_FILE.fullmatch(target)
    return config_beside(Path(found["file"])) if found else None


def _built_beside(target: str, value: Any, options: dict[str, Any]) -> Any:
    """A class, or a function of a config, made for the config that is expected, or for the one beside its file.

    A class of an encoding of one's own is returned as it is, as is what needs no config.
    """
    from clockhands.encodings.specs import METHODS
    from clockhands.testing.built_subjects import (
        CONFIG,
        built_for,
        cut_of,
        loaded_instance,
        needed_of,
        takes_config,
        takes_whole,
        with_paths,
    )
    from clockhands.testing.generation import generates_text
    from clockhands.testing.kinds import chosen_in, is_config, is_module

    like, layer = options.get("like"), 0
    config = _config_beside(target)
    if isinstance(like, str) and is_config(like) and (named := Path((chosen := chosen_in(like)).target)).exists():
        config, layer = named / CONFIG if named.is_dir() else named, chosen.layer or 0
    if inspect.isroutine(value) and generates_text(value):
        return with_paths(value, config)
    own = any(callable(getattr(value, name, None)) for name in METHODS)
    runs = generates_text(value) or (is_module(value) and "forward" in vars(value))
    if not takes_config(value) or (own and not runs):
        return value
    if config is None:
        if not takes_whole(value):
            return value
        raise CannotCheck(
            f"{value.__name__} needs {listed(needed_of(value))}, and there is no config that gives them.",
            "Put the config.json of the model beside the file, or name it: --like path/to/config.json. Or name a "
            f"function without arguments: def built(): return {value.__name__}(...).",
        )
    weights = ", with random weights"
    try:
        built, cut = built_for(value, config, layer), cut_of(config)
        weights += f" and {cut}" if cut else ""
    except CannotCheck:
        if (built := loaded_instance(value)) is None:
            raise
        weights = ", by the function that loads it"
    if generates_text(built):
        options.pop("like", None)
    else:
        options.setdefault("like", str(config))
        talk(f"note: {value.__name__} was built for {config}{weights}.")
    return built


def _expect_beside(target: str, function: Any, options: dict[str, Any]) -> None:
    """Expect what the config beside a file of code declares, if there is one.

    What has no projections is a part of a model: it is checked without an encoding where several are declared, or none.
    """
    from clockhands.testing.kinds import attends, is_module, spec_of

    config = _config_beside(target)
    if config is None:
        return
    if not is_module(function) or not attends(function):
        try:
            spec_of(str(config))
        except ClockhandsError:
            return
    options["like"] = str(config)
    talk(f"note: compared with what {config} declares; --like names another config or encoding.")


def _engine_beside(target: str, function: Any, options: Mapping[str, Any]) -> Report | None:
    """The report on an engine beside the config of its folder; None for any other program, or without one."""
    from clockhands.testing.generation import is_engine
    from clockhands.testing.kinds import check_whole

    config = _config_beside(target)
    if config is None or isinstance(function, type) or not is_engine(function):
        return None
    return check_whole(function, str(config), raises=False, **options)


def _kind_by_config(function: Any, options: Mapping[str, Any]) -> tuple[Any, str | None]:
    """What is checked beside a family of position rules or a config, and as what; None where an encoding says it."""
    from clockhands.configs.targets import is_preset
    from clockhands.recognition.token_positions import is_family
    from clockhands.testing.generation import own_program
    from clockhands.testing.kinds import attends, is_config, is_module, keeps_cache, takes_tokens
    from clockhands.testing.positions import numbers_tokens

    like = options.get("like")
    if numbers_tokens(function) or (isinstance(like, str) and is_family(like) and not is_preset(like)):
        return function, "positions"
    if not _may_be_module(function) or not is_config(like):
        return function, None
    function = _built_module(function)
    if not is_module(function) or not attends(function):
        return function, None
    whole = (
        not isinstance(function, type)
        and takes_tokens(function)
        and (keeps_cache(function) or own_program(function) is not None)
    )
    return function, "whole" if whole else "attention"


def _of_grid(function: Any, kind: str, options: Mapping[str, Any], others: Mapping[str, Any]) -> Report | None:
    """The report on a function that makes the table of a grid from its sizes; None for any other function."""
    from clockhands.testing.functions import grid_taken, rows_at_positions
    from clockhands.testing.kinds import by_names, check_of

    axes = getattr(options.get("like"), "number_of_axes", 1)
    takes = grid_taken(function) if axes in {2, 3} else None
    if takes is None or "call" in options:
        return None
    with contextlib.suppress(CannotCheck):  # what only the encoding can say
        if (report := by_names(function, kind, **others)) and not report.sound:
            return report
    backend, timeout = others.get("backend"), others.get("timeout", 60.0)
    rows, length = rows_at_positions(function, takes, options["like"], backend, timeout)
    call = "positions -> cos, sin" if kind == "rotary" else "positions"
    how = {"raises": False, "length": length, **options, "call": call, "backend": "numpy"}
    report, first = check_of(kind)(rows, **how), "row"
    if kind != "additive" or axes != 2:
        return report
    # An additive encoding has no names for its coordinates, and published codes have both orders.
    if report.codes == {"axes-exchanged"}:
        other = check_of(kind)(lambda positions: rows(positions[:, ::-1]), **how)
        report, first = (other, "column") if other.sound else (report, first)
    why = f"no expected encoding names its coordinates; here the first one is the {first}"
    left_out = {**report.left_out, "which coordinate is the row": why}
    return replace(report, left_out=left_out) if report.sound else report


def _without_encoding(
    target: str, function: Any, options: Mapping[str, Any], refused: CannotCheck | None
) -> InvalidValue:
    """The error that asks for the expected encoding, with what the function computes if that is known."""
    from clockhands.testing.functions import computed_encoding

    found, width = "", 0
    if function is not None:
        given = options.get("width"), options.get("backend"), options.get("timeout", 60.0)
        found, width = computed_encoding(function, *given)
    if not found and refused is not None:
        return refused
    computes = f" The function computes {found}; whether that is right depends on the model." if found else ""
    such = f"; such as: clockhands check {target} --like llama2:head_width={width}" if width and "RoPE" in found else ""
    return InvalidValue(
        f"The expected encoding is missing.{computes}",
        f"Pass it: --like PRESET[:field=value,...], --like path/to/model, or --like FILE.json as written by "
        f"clockhands.to_json{such or '.'}",
    )


def _unless_encoding(target: str, value: Any) -> Any:
    """What a name in a file of code stands for, built if it needs no argument; None if that is an encoding."""
    from clockhands.testing.generation import generates_text
    from clockhands.testing.kinds import is_module

    found = IN_FILE.fullmatch(target)
    if (found is not None and found["fields"]) or not inspect.isroutine(value):
        if is_module(value) and not isinstance(value, type):
            return value
        if not (found is not None and found["fields"]) and (isinstance(value, type) or not callable(value)):
            _refuse_unknown(target, value)
        return None
    built = _built(value) if _builds_model(value) else value
    if built is value or is_module(built) or generates_text(built):
        return built
    _refuse_unknown(target, built)
    return None


def _refuse_unknown(target: str, value: Any) -> None:
    """Refuse what is no encoding and nothing else that a check knows, with what it offers."""
    from clockhands.encodings.specs import METHODS

    owner = value if isinstance(value, type) else type(value)
    if owner.__module__.startswith("clockhands.") or any(callable(getattr(value, name, None)) for name in METHODS):
        return
    names = [name for name, each in vars(owner).items() if inspect.isfunction(each) and not name.startswith("_")]
    methods = [f"{name}{inspect.signature(vars(owner)[name])}" for name in names]
    offers = f" Its methods are {listed(methods)}." if methods else ""
    raise CannotCheck(
        f"{target} is {shown(value)}, which is no encoding, function, module, engine or program that a check knows."
        f"{offers}",
        f"Name the method or function that handles positions, as in {target}.{(names or ['method'])[0]}; or write one "
        "that calls it: def forward(tokens) "
        "-> logits [batch, seq, vocabulary], def generate(prompt, max_new_tokens) -> tokens, or "
        "def rotated(x, positions).",
    )


def _kept(target: str) -> Any:
    """The model of the lab that a target names; None where it names none."""
    from clockhands.configs.kept_models import kept_path

    if kept_path(target) is None:
        return None
    from clockhands.lab.kept_models import kept_model

    kept = kept_model(target)
    return None if kept is None else kept.module


def _laws(target: str, options: Mapping[str, Any]) -> Report:
    """The laws of an encoding in a file of code."""
    from clockhands.configs.own_encodings import named_encoding
    from clockhands.encodings.protocols import ModelSizes
    from clockhands.testing import check_encoding
    from clockhands.testing.kinds import check_options

    sizes = replace(ModelSizes(), **{name: options[name] for name in ("width",) if name in options})
    others = {name: value for name, value in options.items() if name != "width"}
    check_options(check_encoding, others)
    return check_encoding(named_encoding(target).made(sizes, seed=0), sizes=sizes, **others, raises=False)


def _note_other_parts(like: Any) -> None:
    """Say what chooses other parts of the model that `like` names, if it names one and no part of it."""
    from clockhands.configs.resolve import resolve
    from clockhands.configs.targets import open_target
    from clockhands.testing.kinds import chosen_in, is_config, other_parts

    if not isinstance(like, str) or not is_config(like) or (chosen := chosen_in(like)).part is not None:
        return
    if others := other_parts(chosen, resolve(open_target(chosen.target)).codes):
        talk(f"note: {like} is compared; {listed(others, 'or')} chooses another part of that model.")


def _batch(path: Path, options: Mapping[str, Any]) -> Report:
    """A batch in a file, checked: of its arrays those that `check_batch` takes are read."""
    from clockhands.configs.targets import open_target
    from clockhands.formats import arrays, files
    from clockhands.testing.built_subjects import config_beside
    from clockhands.testing.positions import check_batch, taken

    others = [f"--{name}" for name in options if name != "like"]
    like = options.get("like")
    if like is None and (config := config_beside(path)) is not None:
        talk(f"note: compared with what {config} declares; --like names another config or family.")
        like = str(config)
    if like is None or others:
        raise InvalidValue(
            f"The check of a batch takes --like alone, got {', '.join(others) or 'nothing'}.",
            "Name the family, or the config of the model: --like qwen2_vl, --like path/to/config.json.",
        )
    if files.kind(path) == "npz":
        held = arrays.npz_headers(path, arrays.npz_names(path))
    else:
        try:
            held = open_target(path).tensors
        except Unreadable as error:
            raise Unreadable(error.message, "Save a dict of tensors: torch.save(dict(batch), FILE).") from None
    given = {meant: arrays.read(held[name]) for meant, name in taken(held).items()}
    return check_batch(like, given, raises=False)


def _arguments(function: Any) -> bool:
    """Whether a function takes arguments, or does not say."""
    try:
        return bool(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return True


def _builds_model(function: Any) -> bool:
    """Whether a callable builds a model, as a class does, and a function that needs no argument; else it is one."""
    if not callable(function):
        return False
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    open_ended = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return isinstance(function, type) or all(
        one.default is not one.empty or one.kind in open_ended for one in parameters
    )


def _may_be_module(function: Any) -> bool:
    """Whether a value is a module or a class, or a function that needs no argument, which may return one."""
    from clockhands.testing.kinds import is_module

    return isinstance(function, type) or is_module(function) or _builds_model(function)


def _built_module(function: Any) -> Any:
    """What a function that needs no argument returns if that is a module; else the function itself."""
    from clockhands.testing.kinds import is_module

    if isinstance(function, type) or is_module(function):
        return function
    made = _built(function)
    return made if is_module(made) else function


def _built(function: Any) -> Any:
    """A model: the object itself, or the result of a class or a function without arguments."""
    from clockhands.recognition.calling import EndsProcess
    from clockhands.testing.kinds import is_module

    if is_module(function) and not isinstance(function, type):
        return function
    try:
        return function()
    except (Exception, EndsProcess) as error:
        raise CannotCheck(
            f"The callable was called without arguments to build the model, but raised "
            f"{type(error).__name__}: {error}.",
            "Name a model, or a function that takes no arguments and returns a model.",
        ) from error


def _with_spec(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a check, with the expected code in place of what names it, and with its learned numbers."""
    from clockhands.encodings.specs import with_fields
    from clockhands.formats import documents
    from clockhands.testing.kinds import spec_of

    like, width = options.get("like"), options.get("width")
    if like is None:
        return dict(options)
    others = {name: value for name, value in options.items() if name != "width"}
    values = None
    if like.lower().endswith(".json") and "results" in documents.read(Path(like)).fields:  # of `identify --json`
        from clockhands.cli.identified_json import read_found

        spec, _, values = read_found(Path(like))
    else:
        spec = spec_of(like)
    if width is not None:
        spec = with_fields(spec, **{"head_width" if hasattr(spec, "head_width") else "width": width})
    return others | {"like": spec} | ({} if values is None else {"values": values})


def _print(target: str, report: Report, verbose: bool, as_json: bool) -> None:
    if as_json:
        from clockhands.encodings.specs import to_dict

        spec = None if report.spec is None else to_dict(report.spec)
        print_json({"target": target, "spec": spec, **report.to_dict()})
        return
    # Not imported for JSON output.
    from clockhands.show.explanation import print_report

    print_report(report, verbose=verbose)
