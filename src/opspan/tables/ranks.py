"""Chooses the rank number of each trace: the number that the trace states, else the number in the file's name, else a
number in the order of the files.

    decided(ranks, recordings) -> the metadata with rank numbers, and issues about the numbers. Files that one process
        wrote one after another become one rank, and get cycle numbers

A wrong rank is worse than an unknown rank, so a number in a file's name counts only if it is almost certainly a rank.
docs/ranks.md has the rules. This module reads no files, so code that keeps small results of many traces can call it
with metadata alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath

from opspan.printable import LONGEST_LINE, listed
from opspan.tables import cycles
from opspan.tables.cycles import RecordingSpan
from opspan.tables.issues import Issues
from opspan.tables.metadata import NAME, ORDER, Metadata

# A number after "rank" is not a rank of the whole run if one of these words is before "rank". local_rank3 and tp_rank3
# are ranks in a node or a group, and lora_rank16 is a rank of a matrix.
_OF_OTHERS = "local|node|host|group|lora|mp|tp|pp|dp|cp|ep|sp|model|data|tensor|pipeline|expert"
_RANK = rf"(?i)(?:(?<![a-z])({_OF_OTHERS})[-_. ]?|(?<![a-z]))rank[-_. =]?([0-9]{{1,7}})(?![0-9])"
_SHORT = r"(?i)(?<![a-z0-9])()r[-_]?([0-9]{1,7})(?![a-z0-9])"
_NUMBERS = "([0-9]+)"
# Recordings on one machine can be of one run only if the time between them is short: at most this long, or at most as
# long as the longest recording. The second value is for several machines, whose clocks may differ.
_APART_NS, _APART_OF_HOSTS_NS = 10**9, 60 * 10**9


def decided(
    ranks: Sequence[Metadata], recordings: Sequence[RecordingSpan | None] = ()
) -> tuple[list[Metadata], Issues]:
    """Returns the metadata with rank numbers, in the given order. `recordings` says when each rank was recorded, if
    known."""
    issues = Issues()
    processes = cycles.group_by_process(ranks, [_stated_rank(one) for one in ranks], recordings, issues)
    of_cycle = cycles.cycle_numbers(processes, recordings)
    firsts = _number_processes([ranks[places[0]] for places in processes], issues)
    if len(processes) > 1:
        _note_mixed(ranks, _spans(processes, recordings, ranks), issues)
    number = {at: first for places, first in zip(processes, firsts, strict=True) for at in places}
    return [
        replace(one, rank=number[at].rank, rank_by=number[at].rank_by, cycle=of_cycle.get(at, one.cycle))
        for at, one in enumerate(ranks)
    ], issues


def have_other_cycles(
    ranks: Sequence[tuple[Metadata, RecordingSpan | None]], others: Sequence[tuple[Metadata, RecordingSpan | None]]
) -> bool:
    """Returns whether, for each rank in `ranks`, `others` has another cycle of the same process."""
    every, recordings = [one for one, _ in (*ranks, *others)], [when for _, when in (*ranks, *others)]
    groups = cycles.group_by_process(every, [_stated_rank(one) for one in every], recordings, Issues())
    return all(max(places) >= len(ranks) for places in groups if min(places) < len(ranks))


def _number_processes(ranks: Sequence[Metadata], issues: Issues) -> list[Metadata]:
    known = _known(ranks)
    if all(number is None for number, _ in known):
        return [replace(one, rank=number, rank_by=ORDER) for number, one in enumerate(ranks)]
    sizes = [one.told.world_size or 0 for one in ranks]
    free = max([*sizes, *(number + 1 for number, _ in known if number is not None)])
    numbered: list[Metadata] = []
    first: dict[int, Metadata] = {}
    for one, (number, by) in zip(ranks, known, strict=True):
        if number is not None and number not in first:
            first[number] = one
            numbered.append(replace(one, rank=number, rank_by=by))
            continue
        if number is None:
            issues.add("unknown_rank", detail=f"{_file(one)} is number {free} here")
        else:
            issues.add(
                "doubled_rank", detail=f"{number} in {_file(first[number])} and in {_file(one)}, number {free} here"
            )
        numbered.append(replace(one, rank=free, rank_by=ORDER))
        free += 1
    if len(ranks) > 1:
        _note_missing(first, max(sizes), issues)
    return numbered


def _stated_rank(one: Metadata) -> int | None:
    """Returns the rank that the trace states, else the number after the word "rank" in its path. Other numbers in the
    path may be cycle numbers."""
    if one.told.rank is not None:
        return one.told.rank
    return rank_in_name("/".join(PurePath(one.paths[0]).parts[-3:])) if len(one.paths) == 1 else None


def _spans(
    processes: Sequence[Sequence[int]], recordings: Sequence[RecordingSpan | None], ranks: Sequence[Metadata]
) -> list[tuple[tuple[int, int], str]]:
    """Returns, for each process with UTC times, the begin and end of its recordings, and the name of its first file."""
    spans = []
    for places in processes:
        known = [when for at in places if at < len(recordings) and (when := recordings[at]) is not None and when.is_utc]
        if known:
            span = min(when.begin_ns for when in known), max(when.end_ns for when in known)
            spans.append((span, _file(ranks[places[0]])))
    return sorted(spans)


def _known(ranks: Sequence[Metadata]) -> list[tuple[int | None, str]]:
    """Returns, for each trace, its rank number and the source of that number."""
    # A rank in a group of NCCL is the rank in the run only if all traces are of that group.
    groups = {one.told.by for one in ranks if (one.told.by or "").startswith("NCCL")}
    # If several ranks come from one path, the path cannot state the rank of any of them.
    count = Counter(one.paths for one in ranks)
    paths = [one.paths[0] if len(one.paths) == 1 and count[one.paths] == 1 else None for one in ranks]
    known: list[tuple[int | None, str]] = []
    for one, named in zip(ranks, ranks_in_names(paths), strict=True):
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
    # If no trace states the world size, only ranks between the lowest and the highest are surely missing.
    every = range(size) if size else range(min(numbers), max(numbers) + 1)
    count = len(every) - sum(number in every for number in numbers)
    if count:
        missing = [number for number in every if number not in numbers]
        of = f" of {size}" if size else ""
        issues.add("missing_rank", count, f"{listed(_stretches(missing), longest=LONGEST_LINE)}{of}")


def _stretches(numbers: Sequence[int]) -> list[str]:
    """Returns a text such as "2" or "5 to 7" for each run of consecutive numbers."""
    stretches: list[list[int]] = []
    for number in numbers:
        if stretches and stretches[-1][1] == number - 1:
            stretches[-1][1] = number
        else:
            stretches.append([number, number])
    return [str(first) if first == last else f"{first} to {last}" for first, last in stretches]


def _file(one: Metadata) -> str:
    return PurePath(one.paths[0]).name if one.paths else one.source


# --- names of files


def ranks_in_names(paths: Sequence[str | None]) -> list[int | None]:
    """Returns, for each path, the rank in its name, or None."""
    ranks = [None if path is None else rank_in_name(PurePath(path).name) for path in paths]
    # A number that is the same in all names does not distinguish the files.
    if len(ranks) > 1 and len(set(ranks)) == 1:
        ranks = [None] * len(paths)
    if len(paths) < 2 or None in paths or None not in ranks:
        return ranks
    known_paths = [PurePath(path) for path in paths if path is not None]
    for numbers in (
        _in_folders(known_paths),
        [_only(_SHORT, path.name) for path in known_paths],
        _counted(known_paths),
    ):
        if None not in numbers and len(set(numbers)) == len(numbers):
            return numbers
    return ranks


def _only(pattern: str, text: str) -> int | None:
    numbers = {int(number) for others, number in re.findall(pattern, text) if not others}
    return numbers.pop() if len(numbers) == 1 else None


def rank_in_name(text: str) -> int | None:
    # Most names do not contain "rank", and compiling the pattern takes longer than everything else here.
    return _only(_RANK, text) if "rank" in text.lower() else None


def _in_folders(paths: Sequence[PurePath]) -> list[int | None]:
    """Finds ranks in the differing parts of the paths, as in rank0/trace.json and rank1/trace.json."""
    common = 0
    while len({path.parts[: common + 1] for path in paths}) == 1 and common < len(paths[0].parts):
        common += 1
    return [rank_in_name("/".join(path.parts[common:])) for path in paths]


def _counted(paths: Sequence[PurePath]) -> list[int | None]:
    """Finds the one number in which the paths differ, as in report.0.nsys-rep and report.1.nsys-rep. These numbers must
    begin at 0 and have few gaps, so that process ids and times are not taken for ranks."""
    parts = [re.split(_NUMBERS, str(path)) for path in paths]
    nothing: list[int | None] = [None] * len(paths)
    if len({len(texts) for texts in parts}) > 1:
        return nothing
    differ = [at for at, texts in enumerate(zip(*parts, strict=True)) if len(set(texts)) > 1]
    if len(differ) != 1 or differ[0] % 2 == 0:
        return nothing
    numbers = [int(texts[differ[0]]) for texts in parts if len(texts[differ[0]]) < 8]
    if len(numbers) < len(parts) or min(numbers) != 0 or max(numbers) >= 2 * len(numbers):
        return nothing
    return [*numbers]


# --- several runs


def runs_of(ranks: Sequence[Metadata]) -> dict[str, str]:
    """Returns, for each run, its name (or its world size) and a file that states this. Returns an empty dict if all
    files may be of one run."""
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
        texts = [f"{name} ({file})" for name, file in several.items()]
        issues.add("mixed_runs", len(several), listed(texts, longest=LONGEST_LINE))
    # A port does not identify a run, because most runs use the same port.
    elif any(one.told.run is None or one.told.run.startswith("port ") for one in ranks):
        _note_apart(ranks, timed, issues)


def _note_apart(ranks: Sequence[Metadata], timed: Sequence[tuple[tuple[int, int], str]], issues: Issues) -> None:
    """Adds an issue if the traces were recorded far apart in time. Used if some trace does not name its run. `timed` is
    in order of time."""
    hosts = {one.host for one in ranks}
    least = _APART_NS if len(hosts) == 1 and None not in hosts else _APART_OF_HOSTS_NS
    least = max([least, *(end - begin for (begin, end), _ in timed)])
    until, before, parts, detail = None, "", 1, ""
    for (begin, end), file in timed:
        if until is not None and begin - until > least:
            parts += 1
            detail = detail or f"{file} begins {(begin - until) / 1e9:,.0f} s after {before} ended"
        if until is None or end > until:
            until, before = end, file
    issues.add("mixed_runs", parts if parts > 1 else 0, detail)
