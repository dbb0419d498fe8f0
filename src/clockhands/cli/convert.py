"""`clockhands convert`: converts a checkpoint to the other layout (interleaved or half-split)."""

from pathlib import Path
from typing import Literal

import click

from clockhands.cli.group import talk
from clockhands.cli.output import OutPath, print_json
from clockhands.conversion import convert
from clockhands.encodings.layouts import Layout

LAYOUTS = ("halves", "interleaved")

EXAMPLES = """\b
Examples:
  clockhands convert path/to/llama path/to/converted --layout interleaved
  clockhands convert model.safetensors out/model.safetensors --layout halves
  clockhands convert adapter converted --layout interleaved --config base/config.json
"""


@click.command("convert", epilog=EXAMPLES)
@click.argument("source", metavar="IN")
@click.argument("out", metavar="OUT", type=OutPath(folder=True))
@click.option("--layout", type=click.Choice(LAYOUTS), required=True, help="Layout to convert to.")
@click.option(
    "--from",
    "from_",
    type=click.Choice(LAYOUTS),
    help="Current layout (default: found from the files and the model type).",
)
@click.option(
    "--only",
    type=click.Choice(("q", "k")),
    help="Convert only queries or only keys, where the others have the declared layout already.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The model's config.json, if it is not in the folder; for an adapter: config.json of the base model.",
)
@click.option("--others", is_flag=True, help="Copy tokenizers, texts and code of the folder too, but no other weights.")
@click.option("--force", is_flag=True, help="Replace existing files; no other file is removed.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def command(  # noqa: PLR0917 - click passes them by name
    source: str,
    out: Path,
    layout: Layout,
    from_: Layout | None,
    only: Literal["q", "k"] | None,
    config: Path | None,
    others: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Convert a checkpoint's query and key weights to the other layout.

    IN is a model folder, a .safetensors file or an index of shards. OUT is a folder, or a file if IN is a single file.
    Weights, biases and norms of queries and keys are converted, with their adapters and scales; all other tensors are
    copied bit for bit. If a tensor cannot be converted exactly, the command names it and writes nothing.
    """
    done = convert(
        source, out, layout, from_=from_, only=only, config=config, force=force, others=others, progress=talk
    )
    if as_json:
        print_json(done.to_dict())
    moved = f"{len(done.moved):,} of {len(done.moved) + done.kept:,} tensors moved"
    talk(f"{out}: {moved} from {done.from_} ({done.because}) to {done.layout}.")
    for note in done.notes:
        talk(f"note: {note}")
