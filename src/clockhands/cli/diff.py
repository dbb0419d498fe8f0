"""`clockhands diff`: compares two position encodings, or one encoding as two runtimes read it."""

from dataclasses import dataclass

import click

from clockhands.auditing import Audit, audit_opened
from clockhands.auditing.findings import json_value
from clockhands.cli.group import guess, say, talk
from clockhands.cli.lengths import Length
from clockhands.cli.output import json_option, print_json, showing_what_is_fetched
from clockhands.configs import Opened, open_target
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import LayerEncoding
from clockhands.errors import InvalidValue, Unreadable
from clockhands.runtimes import READERS, compared
from clockhands.runtimes import readings as readings_of
from clockhands.runtimes.drafts import contexts_differ, is_draft, of_draft
from clockhands.runtimes.telling import parted_to_dict, reach_of, release

OWN = "clockhands"
"""The name of the audit's own reading, beside those of other readers."""

EXAMPLES = """\b
Examples:
  clockhands diff path/to/original path/to/converted
  clockhands diff config.json model.gguf --length 32768
  clockhands diff old/config.json new/config.json --reader vllm
  clockhands diff config.json --readers transformers-4,transformers-5
  clockhands diff config.json --readers clockhands,no-scaling
  clockhands diff path/to/target path/to/draft --draft
"""


@dataclass(frozen=True)
class ComparedSide:
    """One of the two compared sides."""

    label: str
    codes: tuple[LayerEncoding, ...]
    context: int | None
    reach: int | None
    draft: bool = False
    weights: bool = False


def _named_runtimes(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """The named readers: none, the one of --reader, or the two of --readers."""
    if value is None:
        return ()
    names = tuple(name.strip() for name in value.split(",")) if param.name == "readers" else (value,)
    known = (OWN, *READERS)
    for name in names:
        if name not in known:
            near = guess(name, known)
            raise click.BadParameter(
                f"{name!r} is not a known runtime.{near} The runtimes are {', '.join(known)}.", ctx
            )
    if param.name == "readers" and len(names) != 2:
        raise click.BadParameter("Name two runtimes with a comma between them.", ctx)
    if param.name == "readers" and len(set(names)) == 1:
        raise click.BadParameter(f"Name two different runtimes: {names[0]} is named twice.", ctx)
    return names


@click.command("diff", epilog=EXAMPLES)
@click.argument("targets", metavar="TARGET [TARGET]", nargs=-1, required=True)
@click.option(
    "--reader",
    metavar="NAME",
    callback=_named_runtimes,
    help="Compare what this runtime computes from the two targets.",
)
@click.option(
    "--readers", metavar="A,B", callback=_named_runtimes, help="Compare what two runtimes compute from one target."
)
@click.option("--length", type=Length(), metavar="N", help="Length in tokens at which the frequencies are compared.")
@click.option(
    "--draft",
    is_flag=True,
    help="The second target is a draft model of the first (speculative decoding); drafts by class, such as EAGLE,"
    " are recognised.",
)
@click.option("--exact", is_flag=True, help="Count float32 rounding and a converted layout as differences.")
@json_option
def command(  # noqa: PLR0917 - click passes them by name
    targets: tuple[str, ...],
    reader: tuple[str, ...],
    readers: tuple[str, ...],
    length: int | None,
    draft: bool,
    exact: bool,
    as_json: bool,
) -> int:
    """Say where two position encodings differ: at which pair, from which distance on, by how much.

    Each TARGET is what `clockhands audit` takes. With one TARGET, --readers names two runtimes to compare:
    transformers-4, transformers-5, vllm-0.11, vllm, llama.cpp, mlx-lm, or clockhands for the audit itself; or a common
    mistake of runtimes, such as no-scaling or default-base.
    A draft of speculative decoding must have the base, scaling, layout and context of its target; its width, its
    layers and windows may differ.
    Pairs are counted from 0. Exit code 0 means no difference; float32 rounding, and the layout change that converters
    to GGUF make, do not count. Exit code 1 means that there is a difference.
    """
    first, second = _sides(targets, reader, readers, length)
    of_a_draft = () if readers else of_draft(first.codes, second.codes)
    draft = bool(of_a_draft) and (draft or (second.draft and not first.draft))
    groups = of_a_draft if draft else compared(first.codes, second.codes, scores=not (reader or readers))
    alike = all(group.alike(exact=exact) for group in groups)
    differ = contexts_differ(first.context, second.context, draft=draft) or not alike
    reach = max((side.reach for side in (first, second) if side.reach is not None), default=None)
    if as_json:
        print_json(
            {
                "same": not differ,
                "draft": draft,
                "weights": "not compared" if first.weights and second.weights else None,
                "first": {"label": first.label, "context": first.context},
                "second": {"label": second.label, "context": second.context},
                "groups": [
                    {"same": group.alike(exact=exact)} | _json(parted_to_dict(group, reach, length)) for group in groups
                ],
            }
        )
    else:
        # A program that asks for JSON does not pay for the drawing.
        from clockhands.show.differences import print_differences

        contexts = (first.context, second.context)
        print_differences(
            first.label, second.label, groups, contexts, reach=reach, length=length, exact=exact, draft=draft
        )
        if first.weights and second.weights:
            say("The weights were not compared: `clockhands audit MODEL --weights` says which layout they have.")
    if any(group.layout_changed for group in groups) and not (first.weights and second.weights):
        talk("note: `clockhands audit MODEL --weights` says which layout the weights of a file have.")
    return int(differ)


def _sides(
    targets: tuple[str, ...], reader: tuple[str, ...], readers: tuple[str, ...], length: int | None
) -> tuple[ComparedSide, ComparedSide]:
    if reader and readers:
        raise click.UsageError("--reader is for two targets and --readers for one: use only one of them.")
    if readers:
        if len(targets) != 1:
            raise click.UsageError("--readers compares two runtimes on one target: pass one target.")
        opened, found = _audited(targets[0], length)
        return _side(opened, found, readers[0], length), _side(opened, found, readers[1], length)
    if len(targets) != 2:
        raise click.UsageError("Pass two targets, or one with --readers A,B.")
    (one,) = reader or (OWN,)
    first, second = (_side(*_audited(target, length), one, length) for target in targets)
    return first, second


def _audited(target: str, length: int | None) -> tuple[Opened, Audit]:
    with showing_what_is_fetched():
        opened = open_target(target)
        found = audit_opened(opened, length)
    for note in found.notes:
        talk(f"note: {note}")
    return opened, found


def _side(opened: Opened, found: Audit, reader: str, length: int | None) -> ComparedSide:
    """A target as one reader reads it.

    Raises:
        Unreadable: The reader does not load it, or its result cannot be determined from the files.
        InvalidValue: What it does with such a file is not known.
    """
    reach = reach_of(found.layers, found.context, found.length)
    if reader == OWN:
        _check_known(found)
        return ComparedSide(
            found.target, found.layers, found.context, reach, is_draft(opened.config), bool(opened.tensors)
        )
    reading = next((each for each in found.readings if each.reader == reader), None)
    if reading is None:  # a pattern of misreading, which an audit does not list
        resolved = resolve(opened, length).with_lengths()
        (reading,) = readings_of(opened, resolved, resolved.length, only=(reader,))
    if all(each.verdict == "unknown" for each in found.readings):
        raise InvalidValue(
            f"Runtimes cannot be compared on {found.target}: {reading.because}",
            "Compare it with a second target, without --readers.",
        )
    if reading.verdict == "refuses":
        raise Unreadable(f"{release(reading)} does not load {found.target}: {reading.because}", "Name another runtime.")
    if reading.verdict == "unknown":
        raise InvalidValue(
            f"clockhands does not know what {release(reading)} computes from {found.target}: {reading.because}",
            "Name another runtime; `clockhands audit --json` lists the runtimes that are known for this file.",
        )
    context = reading.longest or found.context
    label = f"{found.target}, as {release(reading)} reads it"
    return ComparedSide(label, reading.codes, context, reach, is_draft(opened.config))


def _check_known(found: Audit) -> None:
    """Refuse two targets of which nothing is known: they are not equal for that reason."""
    if all(code.kind is None and code.spec is None for code in found.layers):
        raise Unreadable(
            f"{found.target} has no known position encoding, so it cannot be compared.",
            f"`clockhands audit {found.target}` says what was read.",
        )
    for code in found.layers:
        if code.kind == "rotary" and code.rates is None and code.part in ("text", "encoder", "decoder"):
            raise Unreadable(
                f"{found.target} does not define its frequencies, so they cannot be compared.",
                f"`clockhands audit {found.target}` says what is missing or impossible.",
            )


def _json(value: dict[str, object]) -> dict[str, object]:
    made = json_value(value)
    assert isinstance(made, dict)
    return made
