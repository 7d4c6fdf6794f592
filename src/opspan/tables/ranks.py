"""Who a rank is: what the traces say, else the names of their files, else the order in which they were given.

    decided(ranks, recorded) -> the same with their numbers, and what is wrong with them together, as issues; files that
        one process wrote one after the other are one rank, and have numbers of their cycles

A wrong rank is worse than none, so a name counts only where it can hardly mean anything else. docs/ranks.md has the
rules. Nothing is read here: whoever keeps small results of many traces asks with their metadata alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath

from opspan.printable import LONGEST_LINE, listed
from opspan.tables import cycles
from opspan.tables.cycles import Recorded
from opspan.tables.issues import Issues
from opspan.tables.metadata import NAME, ORDER, Metadata

# A rank in the run: not on a node, nor in a group of those that share a model; and lora_rank16 is no process.
_OF_OTHERS = "local|node|host|group|lora|mp|tp|pp|dp|cp|ep|sp|model|data|tensor|pipeline|expert"
_RANK = rf"(?i)(?:(?<![a-z])({_OF_OTHERS})[-_. ]?|(?<![a-z]))rank[-_. =]?([0-9]{{1,7}})(?![0-9])"
_SHORT = r"(?i)(?<![a-z0-9])()r[-_]?([0-9]{1,7})(?![a-z0-9])"
_NUMBERS = "([0-9]+)"
# What was recorded on one machine is of one run only if it lies no further apart than this, nor than it is long; on
# several, whose clocks may be apart.
_APART_NS, _APART_OF_HOSTS_NS = 10**9, 60 * 10**9


def decided(ranks: Sequence[Metadata], recorded: Sequence[Recorded | None] = ()) -> tuple[list[Metadata], Issues]:
    """In the order given. `recorded`: when each was recorded and by whom, if that is known."""
    issues = Issues()
    processes = cycles.found(ranks, [_said(one) for one in ranks], recorded, issues)
    of_cycle = cycles.numbered(processes, recorded)
    firsts = _decided([ranks[places[0]] for places in processes], issues)
    if len(processes) > 1:
        _note_mixed(ranks, _spans(processes, recorded, ranks), issues)
    number = {at: first for places, first in zip(processes, firsts, strict=True) for at in places}
    return [
        replace(one, rank=number[at].rank, rank_by=number[at].rank_by, cycle=of_cycle.get(at, one.cycle))
        for at, one in enumerate(ranks)
    ], issues


def have_other_cycles(
    ranks: Sequence[tuple[Metadata, Recorded | None]], others: Sequence[tuple[Metadata, Recorded | None]]
) -> bool:
    """Whether each of the ranks is a cycle of a process that is one of the others, too."""
    every = [one for one, _ in (*ranks, *others)]
    groups = cycles.found(every, [_said(one) for one in every], [when for _, when in (*ranks, *others)], Issues())
    return all(max(places) >= len(ranks) for places in groups if min(places) < len(ranks))


def _decided(ranks: Sequence[Metadata], issues: Issues) -> list[Metadata]:
    known = _known(ranks)
    if all(number is None for number, _ in known):
        return [replace(one, rank=number, rank_by=ORDER) for number, one in enumerate(ranks)]
    sizes = [one.told.world_size or 0 for one in ranks]
    free = max([*sizes, *(number + 1 for number, _ in known if number is not None)])
    found: list[Metadata] = []
    first: dict[int, Metadata] = {}
    for one, (number, by) in zip(ranks, known, strict=True):
        if number is not None and number not in first:
            first[number] = one
            found.append(replace(one, rank=number, rank_by=by))
            continue
        if number is None:
            issues.add("unknown_rank", detail=f"{_file(one)} is number {free} here")
        else:
            issues.add(
                "doubled_rank", detail=f"{number} in {_file(first[number])} and in {_file(one)}, number {free} here"
            )
        found.append(replace(one, rank=free, rank_by=ORDER))
        free += 1
    if len(ranks) > 1:
        _note_missing(first, max(sizes), issues)
    return found


def _said(one: Metadata) -> int | None:
    """What hardly means anything but a rank: a mere number in a name may be that of a cycle."""
    if one.told.rank is not None:
        return one.told.rank
    return _named("/".join(PurePath(one.paths[0]).parts[-3:])) if len(one.paths) == 1 else None


def _spans(
    processes: Sequence[Sequence[int]], recorded: Sequence[Recorded | None], ranks: Sequence[Metadata]
) -> list[tuple[tuple[int, int], str]]:
    """UTC of the first begin and the last end of each process of which that is known, with its file."""
    found = []
    for places in processes:
        known = [when for at in places if at < len(recorded) and (when := recorded[at]) is not None and when.is_utc]
        if known:
            span = min(when.begin_ns for when in known), max(when.end_ns for when in known)
            found.append((span, _file(ranks[places[0]])))
    return sorted(found)


def _known(ranks: Sequence[Metadata]) -> list[tuple[int | None, str]]:
    """Returns, for each trace, its rank number and the source of that number."""
    # A rank in one of NCCL's groups is the rank in the run only where all are of that group.
    groups = {one.told.by for one in ranks if (one.told.by or "").startswith("NCCL")}
    names = _of_names(ranks)
    known: list[tuple[int | None, str]] = []
    for one, named in zip(ranks, names, strict=True):
        by = one.told.by or ""
        if one.told.rank is not None and not (by in groups and len(groups) > 1):
            known.append((one.told.rank, by))
        elif one.rank_by == NAME:
            known.append((one.rank, NAME))
        else:
            known.append((named, NAME))
    return known


def _note_missing(known: Iterable[int], size: int, issues: Issues) -> None:
    numbers = set(known)
    # Where nobody says how many there are, those between the lowest and the highest are missing for certain.
    every = range(size) if size else range(min(numbers), max(numbers) + 1)
    count = len(every) - sum(number in every for number in numbers)
    if count:
        missing = [number for number in every if number not in numbers]
        of = f" of {size}" if size else ""
        issues.add("missing_rank", count, f"{listed(_stretches(missing), longest=LONGEST_LINE)}{of}")


def _stretches(numbers: Sequence[int]) -> list[str]:
    """2, 5 to 7"""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return [str(first) if first == last else f"{first} to {last}" for first, last in found]


def _file(one: Metadata) -> str:
    return PurePath(one.paths[0]).name if one.paths else one.source


# --- names of files


def _of_names(ranks: Sequence[Metadata]) -> list[int | None]:
    """A path that several ranks come from is the name of none of them."""
    count = Counter(one.paths for one in ranks)
    paths = [one.paths[0] if len(one.paths) == 1 and count[one.paths] == 1 else None for one in ranks]
    return of_names(paths)


def of_names(paths: Sequence[str | None]) -> list[int | None]:
    """Returns the rank named in each path, or None."""
    told: list[int | None] = [None] * len(paths)
    named = [PurePath(path) if path is not None else None for path in paths]
    for at, path in enumerate(named):
        told[at] = None if path is None else _named(path.name)
    given = [path for path in named if path is not None]
    # What all names have in common tells none of them from the others.
    if len(told) > 1 and len(set(told)) == 1:
        told = [None] * len(paths)
    if len(paths) < 2 or len(given) < len(paths) or None not in told:
        return told
    for found in (_in_folders(given), [_only(_SHORT, path.name) for path in given], _alike(given)):
        if None not in found and len(set(found)) == len(found):
            return found
    return told


def _only(pattern: str, text: str) -> int | None:
    numbers = {int(number) for others, number in re.findall(pattern, text) if not others}
    return numbers.pop() if len(numbers) == 1 else None


def _named(text: str) -> int | None:
    # Most files are not called so, and the pattern takes longer to compile than all else here.
    return _only(_RANK, text) if "rank" in text.lower() else None


def _in_folders(paths: Sequence[PurePath]) -> list[int | None]:
    """rank0/trace.json, rank1/trace.json: in what of their paths is not the same."""
    common = 0
    while len({path.parts[: common + 1] for path in paths}) == 1 and common < len(paths[0].parts):
        common += 1
    return [_named("/".join(path.parts[common:])) for path in paths]


def _alike(paths: Sequence[PurePath]) -> list[int | None]:
    """report.0.nsys-rep, report.1.nsys-rep: the same but for one number, which begins at 0 and has few holes. Numbers
    of processes and times are not so."""
    parts = [re.split(_NUMBERS, str(path)) for path in paths]
    nothing: list[int | None] = [None] * len(paths)
    if len({len(each) for each in parts}) > 1:
        return nothing
    differ = [at for at, texts in enumerate(zip(*parts, strict=True)) if len(set(texts)) > 1]
    if len(differ) != 1 or differ[0] % 2 == 0:
        return nothing
    numbers = [each[differ[0]] for each in parts]
    found = [int(number) for number in numbers if len(number) < 8]
    if len(found) < len(parts) or min(found) != 0 or max(found) >= 2 * len(found):
        return nothing
    return [*found]


# --- of several runs


def runs_of(ranks: Sequence[Metadata]) -> dict[str, str]:
    """What tells several runs apart, each with a file that says so; nothing where, for all one knows, they are one."""
    runs: dict[str, dict[str, str]] = {}
    for one in ranks:
        if one.told.run is not None:
            runs.setdefault(one.told.run.partition(" ")[0], {}).setdefault(one.told.run, _file(one))
    sizes: dict[str, str] = {}
    for one in ranks:
        if one.told.world_size is not None:
            sizes.setdefault(f"world size {one.told.world_size}", _file(one))
    return next((several for several in (*runs.values(), sizes) if len(several) > 1), {})


def _note_mixed(ranks: Sequence[Metadata], timed: Sequence[tuple[tuple[int, int], str]], issues: Issues) -> None:
    if several := runs_of(ranks):
        said = [f"{what} ({file})" for what, file in several.items()]
        issues.add("mixed_runs", len(several), listed(said, longest=LONGEST_LINE))
    # A port is the same for most runs.
    elif any(one.told.run is None or one.told.run.startswith("port ") for one in ranks):
        _note_apart(ranks, timed, issues)


def _note_apart(ranks: Sequence[Metadata], timed: Sequence[tuple[tuple[int, int], str]], issues: Issues) -> None:
    """Nothing is said of runs, but they were hours apart. `timed`: in order of time."""
    hosts = {one.host for one in ranks}
    least = _APART_NS if len(hosts) == 1 and None not in hosts else _APART_OF_HOSTS_NS
    least = max([least, *(end - begin for (begin, end), _ in timed)])
    until, before, parts, said = None, "", 1, ""
    for (begin, end), file in timed:
        if until is not None and begin - until > least:
            parts += 1
            said = said or f"{file} begins {(begin - until) / 1e9:,.0f} s after {before} ended"
        if until is None or end > until:
            until, before = end, file
    issues.add("mixed_runs", parts if parts > 1 else 0, said)
