"""A loaded ``torch.nn.Module``: the position data that it holds and computes, compared with what its config declares.

`clockhands.models` walks the module, finds the declared code of each part and calls copies of parts;
`clockhands.recognition.diagnosis` compares numbers with the correct ones.
"""

from dataclasses import replace
from typing import Any

from clockhands.auditing.findings import Case, case_of
from clockhands.auditing.findings._table_rows import audit_tables
from clockhands.auditing.loaded_values import (
    kept_cases,
    number_cases,
    rates_cases,
    rotation_cases,
    row_cases,
    slope_cases,
    waves_cases,
)
from clockhands.configs.opened import Opened
from clockhands.configs.openers import open_file
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import TEXT, Resolved
from clockhands.configs.targets import path_of
from clockhands.errors import ClockhandsError
from clockhands.formats.documents import CONFIGS
from clockhands.formats.files import file_and_key, place
from clockhands.models.declared_parts import declared_by
from clockhands.models.held_tensors import Walked
from clockhands.models.opened_modules import config_root, name_of
from clockhands.models.shown_codes import codes_of
from clockhands.runtimes import compared
from clockhands.runtimes.drafts import contexts_differ
from clockhands.runtimes.telling import first_difference

NAME = "_name_or_path"
"""Where Transformers keeps what a model was loaded from: a folder, or a model's name on the hub."""


def resolve_module(module: Any, found: Walked, opened: Opened, length: int | None) -> tuple[Resolved, list[Case]]:
    """The position codes of a module, and every fact about the position data that it holds."""
    resolved, cases = audit_tables(opened, resolve(opened, length))
    if opened.config is None:
        resolved = _with_codes(resolved, codes_of(found), module)
    declared = declared_by(resolved, opened.config, config_root(module)[0], found)
    of_rates, wrong_parts = rates_cases(found, declared)
    of_waves, wrong_tables = waves_cases(found, declared)
    made = [*of_rates, *of_waves, *number_cases(found), *slope_cases(found, declared)]
    made += rotation_cases(found, declared, wrong_parts | wrong_tables)
    made += kept_cases(found, declared, _places(made))
    return resolved, [*made, *row_cases(found, _of_texts(resolved), cases)]


def config_cases(opened: Opened, length: int | None) -> list[Case]:
    """The fact that the config of a loaded module is not that of the file which it was loaded from, if this is here.

    Both configs are read in the same way, without tensors. Only differences of positions count.
    """
    name = (opened.config or {}).get(NAME)
    try:
        folder = path_of(name) if isinstance(name, str) and name else None
        path = None if folder is None else folder / CONFIGS[0]
        if path is None or place(path) != "file":
            return []
        kept = resolve(replace(open_file(path, str(path), None), tensors={}), length)
    except ClockhandsError:
        return []  # the loaded config is judged without it
    loaded = resolve(replace(opened, tensors={}), length)
    groups, contexts = compared(kept.codes, loaded.codes, scores=True), (kept.context, loaded.context)
    if all(group.equivalent for group in groups) and not contexts_differ(*contexts, draft=False):
        return []
    difference = first_difference(groups, contexts, ("file", "loaded config"), exact=False).removeprefix("Different")
    return [case_of("config-changed", {"file": str(path), "difference": difference.strip(" :.")})]


def _of_texts(resolved: Resolved) -> frozenset[str]:
    """The names of the tables that are declared for the positions of a text."""
    codes = (code for code in resolved.codes if code.kind in ("learned", "sinusoidal") and code.part in TEXT)
    return frozenset(file_and_key(code.source.get("rows", ""))[1] for code in codes)


def _places(cases: list[Case]) -> frozenset[str]:
    """The names of the tensors of these facts."""
    return frozenset(file_and_key(name)[1] for case in cases for name in case.evidence if ":" in name)


def _with_codes(resolved: Resolved, more: list[Any], module: Any) -> Resolved:
    """The codes that the module itself shows, where nothing is declared."""
    if not more:
        count = sum(1 for _ in (*module.parameters(), *module.buffers()))
        says = {f"{name_of(module)} (loaded)": f"{count} tensors, but none has the name of a known position tensor"}
        kept = (replace(fact, evidence=says) if fact.code == "nothing-declared" else fact for fact in resolved.facts)
        return replace(resolved, facts=tuple(kept))
    known = tuple(code for code in resolved.codes if code.kind is not None or code.rows is not None)
    facts = tuple(fact for fact in resolved.facts if fact.code != "nothing-declared")
    return replace(resolved, codes=(*known, *more), facts=facts)
