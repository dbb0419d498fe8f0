"""What other readers compute, in a few lines of a report."""

from collections.abc import Iterable, Iterator

from clockhands.readers import TEXT, Reading
from clockhands.readers.telling import code_in_words, listed, parted_in_words, release

_PATTERN = "no-scaling"  # not a program, but what many ports do
_PORT = "a port that leaves the scaling out"


def rows_of_readers(readings: Iterable[Reading], context: int | None) -> Iterator[tuple[str, str]]:
    """Label and text of each line: who computes the same, then who does not and how far apart, then who refuses.

    Readers whose code for such a file was not read are left out: nothing is known of them.
    """
    held = list(readings)
    same = [release(each) for each in held if each.verdict == "same" and each.reader != _PATTERN]
    if same:
        yield "the same", listed(same)
    differing: dict[str, list[str]] = {}
    for each in held:
        if each.verdict == "differs":
            for text in _differences(each, context):
                differing.setdefault(text, []).append(_who(each))
    # Last what no program does by its name, unless one of the others does it too.
    for text, names in sorted(differing.items(), key=lambda entry: entry[1] == [_PORT]):
        yield "differs", f"{listed(name for name in names if names == [_PORT] or name != _PORT)}: {text}"
    refusing: dict[str | None, list[str]] = {}
    for each in held:
        if each.verdict == "refuses":
            refusing.setdefault(each.because, []).append(release(each))
    for because, names in refusing.items():
        yield "refuses", f"{listed(names)}: {because}"
    for each in held:
        if each.longest is not None and each.verdict != "refuses" and each.reader != _PATTERN:
            yield "longest", f"{release(each)} serves up to {each.longest:,} positions"


def _who(reading: Reading) -> str:
    return _PORT if reading.reader == _PATTERN else release(reading)


def _differences(reading: Reading, context: int | None) -> Iterator[str]:
    """One text for each way in which it differs, with its layers where not all differ alike."""
    texts: dict[str, list[str | None]] = {}
    for group in reading.parted:
        how = parted_in_words(group, context)
        texts.setdefault(f"{code_in_words(group.theirs)}; {how}", []).append(group.layers)
    turned = [code for code in reading.codes if code.kind == "rotary" and code.part in TEXT]
    everywhere = len(texts) == 1 and len(reading.parted) >= len(turned)
    for text, layers in texts.items():
        known = [each for each in layers if each is not None]
        yield f"layers {','.join(known)}: {text}" if known and not everywhere else text
