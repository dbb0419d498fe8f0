"""Change the package in small ways, one at a time, and say which test notices each change.

A *mutant* is one small change of an expression or a statement inside a function: a comparison, an operator, a number, a
text, an argument, a condition, a statement that is left out. The sample is drawn with a seed, so many mutants in the
exact core and so many above it: first the kind of change, each kind with the same probability, then the place.

No file is changed. An import hook compiles the modules of the package with every mutant of the sample inside, each
behind a switch, also in processes that the tests start. Then:

1. the tests run once, and each mutant notes which tests reach it;
2. for each mutant a process, forked after the tests were collected, turns its switch on and runs the tests that reach
   it, those named after its module first, until one fails.

Left out: code that runs while a module is imported (constants, defaults, decorators), docstrings, JavaScript, and the
kernel that needs a GPU. mutmut, which knows no samples, leaves decorated functions out and collects the tests anew for
each mutant: 39 s of CPU here.

    make mutation-sample MUTATION_ARGS="--seed 40 --core 40 --above 160"
"""

import argparse
import ast
import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from mutants import NOTES, PACKAGE, RESULTS, SAMPLE, WORK, changed, places

ROOT = Path(__file__).resolve().parents[1]
LEAST = 0.85  # the share that the quick tests must notice
CORE = "encodings/"  # everything else is "above" it
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "mutants", "--assert=plain"]
WITHOUT = {"encodings/rotary/_triton_way.py"}  # it needs a GPU


def in_core(file: str) -> bool:
    return file.startswith(CORE)


def draw(seed: int, core: int, above: int, only: str) -> list[dict[str, Any]]:
    """A sample: kinds of change with the same probability, places of a kind with the same probability."""
    source = ROOT / "src" / PACKAGE
    found: dict[bool, dict[str, list[dict[str, Any]]]] = {True: defaultdict(list), False: defaultdict(list)}
    for file in sorted(source.rglob("*.py")):
        name = file.relative_to(source).as_posix()
        if name in WITHOUT or not name.startswith(only):
            continue
        for place, node, function in places(ast.parse(file.read_bytes())):
            kind, new = changed(node) or ("", None)
            mutant = {
                "file": name,
                "place": place,
                "line": getattr(node, "lineno", 0),
                "function": function,
                "kind": kind,
            }
            mutant["was"] = ast.unparse(node)[:200]
            mutant["is"] = ast.unparse(ast.fix_missing_locations(new))[:200] if new else ""
            found[in_core(name)][kind].append(mutant)
    random_ = random.Random(seed)
    sample = []
    for inside, number in ((True, core), (False, above)):
        kinds = {kind: random_.sample(each, len(each)) for kind, each in sorted(found[inside].items())}
        for _ in range(number):
            left = [kind for kind in kinds if kinds[kind]]
            if left:
                sample.append(kinds[random_.choice(left)].pop())
    return sample


def environment(folder: Path, **values: str) -> dict[str, str]:
    """The environment of a run whose every process has the mutants."""
    hook = folder / "hook"
    hook.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text("import mutants\n\nmutants.install()\n", encoding="utf-8")
    path = [str(hook), str(ROOT / "tools"), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    sample = str(folder / "sample.json")
    own = {"OMP_NUM_THREADS": threads, "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"), SAMPLE: sample}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **own, **values}


def reach(folder: Path, pytest_arguments: list[str], processes: int) -> None:
    """Run the tests once and note which test reaches which mutant."""
    notes = folder / "notes.jsonl"
    notes.unlink(missing_ok=True)
    command = [*PYTEST, "-n", str(processes), *pytest_arguments]
    with (folder / "reach.log").open("w") as log:
        subprocess.run(command, cwd=ROOT, env=environment(folder, **{NOTES: str(notes)}), stdout=log, check=False)


def noted(folder: Path, sample: list[dict[str, Any]]) -> tuple[list[list[str]], dict[str, float]]:
    """The tests that reach each mutant, those named after its module first, and how long each test takes."""
    reaching: list[set[str]] = [set() for _ in sample]
    took: dict[str, float] = {}
    failing: set[str] = set()  # without a mutant, so they notice nothing
    for line in (folder / "notes.jsonl").read_text(encoding="utf-8").splitlines():
        first, second, *outcome = json.loads(line)
        if isinstance(first, int):
            reaching[first].add(second)
        else:
            took[first] = second
            (failing.add if outcome == ["failed"] else failing.discard)(first)
    ordered = []
    for mutant, tests in zip(sample, reaching, strict=True):
        files: dict[str, list[str]] = defaultdict(list)
        for test in sorted(tests - failing - {""}):
            files[test.partition("::")[0]].append(test)
        words = {each.strip("_") for each in mutant["file"].removesuffix(".py").split("/")}

        def rank(file: str, words: set[str] = words, files: dict[str, list[str]] = files) -> tuple[int, float]:
            parts = {part.removeprefix("test_") for part in file.removesuffix(".py").split("/")}
            return -len(parts & words), sum(took.get(test, 0.1) for test in files[file])

        ordered.append([test for file in sorted(files, key=rank) for test in files[file]])
    return ordered, took


def notice(folder: Path, pytest_arguments: list[str], processes: int, numbers: list[int] | None = None) -> None:
    """Turn on each mutant by itself and run the tests that reach it."""
    sample = json.loads((folder / "sample.json").read_text(encoding="utf-8"))
    tests, took = noted(folder, sample)
    results = folder / "results.jsonl"
    results.unlink(missing_ok=True)
    work: list[list[str]] = [[] for _ in range(processes)]
    ahead = [0.0] * processes
    for number in sorted(range(len(sample)), key=lambda each: -sum(took.get(test, 0.1) for test in tests[each])):
        if not tests[number] or (numbers is not None and number not in numbers):
            continue
        seconds = sum(took.get(test, 0.1) for test in tests[number])
        least = ahead.index(min(ahead))
        ahead[least] += seconds
        work[least].append(json.dumps({"number": number, "tests": tests[number], "limit": 60 + 3 * seconds}))
    running = []
    for number, lines in enumerate(work):
        file = folder / f"work-{number}.jsonl"
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        variables = environment(folder, **{WORK: str(file), RESULTS: str(results)})
        log = (folder / f"notice-{number}.log").open("w")
        running.append(
            subprocess.Popen(
                [*PYTEST, "-p", "no:randomly", "-p", "no:xdist", *pytest_arguments], cwd=ROOT, env=variables, stdout=log
            )
        )
    for each in running:
        each.wait()


def report(folder: Path) -> float:
    """Print the figures and every mutant that no test notices; return the share that is noticed."""
    sample = json.loads((folder / "sample.json").read_text(encoding="utf-8"))
    file = folder / "results.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    results = {each["number"]: each for each in map(json.loads, lines)}
    noticed = {number for number, each in results.items() if each["noticed"]}
    for number, mutant in enumerate(sample):
        if number not in noticed:
            why = "survives" if number in results else "is reached by no test"
            print(f"{number}: {mutant['file']}:{mutant['line']} {mutant['function']} ({mutant['kind']}) {why}")
            print(f"    was {mutant['was']}\n    is  {mutant['is'] or 'left out'}")
    for name, inside in (("in the core", True), ("above it", False)):
        own = [n for n, each in enumerate(sample) if in_core(each["file"]) == inside]
        print(f"{name}: {sum(n in noticed for n in own)} of {len(own)} noticed")
    share = len(noticed) / max(1, len(sample))
    print(f"noticed: {len(noticed)} of {len(sample)}, {share:.1%}")
    return share


def main() -> int:
    """Draw, run and report; 0 where the share that is asked for is noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**16))
    parser.add_argument("--core", type=int, default=40, help="mutants in the exact core")
    parser.add_argument("--above", type=int, default=160, help="mutants above the core")
    parser.add_argument("--only", default="", help="draw below this path of src/clockhands, such as encodings/scaling/")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutation-sample")
    parser.add_argument("--least", type=float, default=LEAST, help="the share that must be noticed")
    parser.add_argument("--step", choices=("draw", "reach", "notice", "report"), help="only this step")
    parser.add_argument("--number", type=int, action="append", help="only these mutants, in the step `notice`")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if given.step in {None, "draw"}:
        sample = draw(given.seed, given.core, given.above, given.only)
        (folder / "sample.json").write_text(json.dumps(sample, indent=1), encoding="utf-8")
        print(f"seed {given.seed}: {len(sample)} mutants")
    if given.step in {None, "reach"}:
        reach(folder, given.pytest, given.processes)
    if given.step in {None, "notice"}:
        notice(folder, given.pytest, given.processes, given.number)
    if given.step in {None, "report"}:
        return int(report(folder) < given.least)
    return 0


if __name__ == "__main__":
    sys.exit(main())
