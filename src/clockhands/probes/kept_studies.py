"""Measures every kept model of a study, and stores the numbers with the trials, for the report of the study."""

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from clockhands.arguments import one_of
from clockhands.errors import InvalidValue
from clockhands.lab import study as studies
from clockhands.lab.store import KEPT_MODEL, Key, Measurement, Store, StoredStudy
from clockhands.probes.probing import probe
from clockhands.probes.results import Progress

WINDOWS = 16
"""Held-out sequences that each model reads."""


def probe_study(
    store: Store,
    stored: StoredStudy,
    arms: Sequence[str] = (),
    *,
    windows: int = WINDOWS,
    length: int | None = None,
    progress: Progress = lambda _what, _share: None,
) -> int:
    """Measure the kept models of a study at each kept step.

    A trial that was measured in the same way before is left as it is. What was measured otherwise is removed once the
    first trial is measured, so that all seeds are comparable.

    Args:
        store: The store, open for writing.
        stored: The study.
        arms: Only these arms; all by default.
        windows: Number of held-out sequences.
        length: Tokens of each; the trained length by default.
        progress: Called before each step.

    Returns:
        How many trials were measured now. Those that are measured before an interrupt stay.

    Raises:
        InvalidValue: The study has no such arm, or no kept models of it; or the sequences are not to be had.
    """
    study = studies.parse(stored.text, stored.name)
    for each in arms:
        one_of("arm", each, study.arms, f"Choose among: {', '.join(study.arms)}.")
    kept = list(_kept(store, stored.hash, arms))
    if not kept:
        raise InvalidValue(
            f"{store.path} has no kept models of {'these arms' if arms else 'this study'}.",
            "Train with `clockhands lab run STUDY --keep`, into a new store where the study was run before.",
        )
    known = {each.key: each.facts.get("probed") for each in store.trials(stored.hash)}
    asked = {
        key: {
            "windows": windows,
            "length": length or study.training_of(key).length,
            "clockhands": version("clockhands"),
        }
        for key, _ in kept
    }
    waiting = [(key, model) for key, model in kept if known[key] != asked[key]]
    for number, (key, model) in enumerate(waiting):

        def within(what: str, share: float, number: int = number, key: Key = key) -> None:
            progress(f"{key}: {what}", (number + share) / len(waiting))

        size = asked[key]["length"]
        found = probe(model, measure=["steps"], windows=windows, length=size, progress=within)
        if found.interrupted is not None:
            raise KeyboardInterrupt
        for other, _ in [] if number else waiting:  # once it is known that such windows can be read
            store.put_probe(stored.hash, other, None)
        rows = [
            Measurement("curve", measure, value, int(step), size, variant=KEPT_MODEL)
            for step, measured in found["steps"].numbers["steps"].items()
            for measure, value in measured.items()
        ]
        store.put_probe(stored.hash, key, asked[key], rows)
    return len(waiting)


def _kept(store: Store, study: str, arms: Sequence[str]) -> Iterator[tuple[Key, Path]]:
    """Each finished trial that kept models, with the last of them."""
    for each in store.trials(study):
        files = sorted(store.kept_folder(study, each.key).glob("*.safetensors"))
        if files and each.state == "finished" and (not arms or each.arm in arms):
            yield each.key, files[-1]
