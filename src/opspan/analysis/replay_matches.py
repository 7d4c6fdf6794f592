"""Finds, for each replay of a CUDA graph, the captured launches that the replay's work repeats.

    replays(trace) -> a row for each call that launched a graph and whose work was recorded: call, start_ns, range, rank
        and pid (of the call). The columns work (row of the work), what (see `what`) and kind are lists with one value
        for each piece of the call's work, in the order in which the work began. Calls whose captured launches are
        already known are left out.
    matches(replays, lists) -> for each replay a Match, or None if it fits nowhere:
        first: row of the captured launch that its first work repeats; the next work repeats the next row.
        how: how this row was found. A place is a sequence of captured launches that fits the replay.
            "unique": only one place has the names of its work, in their order.
            "capture": several places have these names, and only one of them is a whole capture.
            "batch size": several places fit, and one of them was captured for the batch size of the replay's step.
            "order": the step has as many replays as a recording has captures, and each replay fits the capture at the
                same position. This value also stands for a single place that fits, if its names were not compared.
            "ambiguous": several places fit, and nothing tells which. `first` is one of them.
        places: all rows that `first` might be. If the batch size is known, only places that were captured for it.
        is_named: whether names were compared, and not only kinds.

Work is compared by its name. CUDA's captured launches may lack names. A replay fits these only as a whole capture, by
the kinds of its work, and `how` is never "unique".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from opspan.analysis.launches import launches_graph
from opspan.row_numbers import ROW_NUMBER
from opspan.tables import Tables

KINDS = {"kernel": "k", "memcpy": "c", "memset": "s"}  # kinds of work, and the letter that stands for each
NO_NAME = "\0"  # stands for a captured launch without a name; never stands for the work of a replay
_MOST_PLACES = 4096  # at most this many places are looked at for one replay; more only repeat the same few launches
_col = pl.col


class Launched(NamedTuple):
    """A replay: a letter for the name of each piece of work, and one for its kind. `step` is the row of the engine's
    step that the replay is in, or None. `batch_size` is taken from the label of this step."""

    names: str
    kinds: str
    step: int | None
    batch_size: int | None
    process: tuple[int, int] = (0, 0)  # rank and pid


class LaunchList(NamedTuple):
    """The captured launches of one thread of a recording, for one batch size.

    first: the row of the first launch.
    names: a letter for the name of each launch, NO_NAME if it is unknown.
    kinds: a letter for the kind of each launch.
    captures: the first row of each capture and its number of rows, in order.
    process: the rank and the pid that a replay must have. None stands for any.
    """

    first: int
    names: str
    kinds: str
    batch_size: int | None
    captures: Sequence[tuple[int, int]]
    process: tuple[int | None, int | None] = (None, None)

    def may_be_of(self, replay: Launched) -> bool:
        return all(own in (None, other) for own, other in zip(self.process, replay.process, strict=True))

    def runs(self, replay: Launched) -> list[int]:
        """Returns the rows at which a sequence of launches with the names of the replay begins. A replay is one graph,
        so a sequence does not cross from one capture into the next."""
        firsts = [first for first, _ in self.captures]
        places: list[int] = []
        at = self.names.find(replay.names)
        while at >= 0 and len(places) < _MOST_PLACES:
            place = self.first + at
            number = bisect_right(firsts, place) - 1
            if not firsts or (number >= 0 and place + len(replay.names) <= sum(self.captures[number])):
                places.append(place)
            at = self.names.find(replay.names, at + 1)
        return places

    def whole_captures(self, replay: Launched) -> dict[int, bool]:
        """Returns the captures that consist of exactly the launches of the replay, by their first row. The value is
        True if all names are known and equal. It is False if some launches have no name and were compared only by
        kind."""
        whole = {}
        for first, count in self.captures:
            begin = first - self.first
            names, kinds = self.names[begin : begin + count], self.kinds[begin : begin + count]
            if names == replay.names:
                whole[first] = True
            elif NO_NAME in names and kinds == replay.kinds:
                pairs = zip(names, replay.names, strict=True)
                if all(name in (NO_NAME, other) for name, other in pairs):
                    whole[first] = False
        return whole


class Fits(NamedTuple):
    """The places at which a replay fits. A place is the first row of a sequence of captured launches."""

    places: tuple[int, ...]
    sized: tuple[int, ...]  # the places that were captured for the replay's batch size; all places if it is unknown
    runs: int  # at how many places a series of launches begins that has the same names as the replay's work
    is_named: bool  # whether names were compared, and no place was left out


class Match(NamedTuple):
    """The captured launches that a replay repeats (see the module's docstring)."""

    first: int
    how: str
    places: tuple[int, ...]
    is_named: bool


def what(kernel: pl.Expr, kind: pl.Expr) -> pl.Expr:
    """Returns the text by which work is compared: a kernel's name, otherwise the kind. Tools name copies and fills
    differently when they are captured and when they run."""
    return pl.when(kind == "kernel").then(kernel).otherwise(kind)


def letters(texts: pl.Series) -> dict[str, str]:
    """Returns a letter for each distinct text. So a sequence of texts becomes one string, in which sequences can be
    searched."""
    distinct = texts.drop_nulls().unique().sort().head(0x110000 - 0xE000)
    return {text: chr(0xE000 + number) for number, text in enumerate(distinct)}


def matches(replays: Sequence[Launched], lists: Sequence[LaunchList]) -> list[Match | None]:
    known: dict[tuple[object, ...], Fits] = {}
    fits = []
    for replay in replays:
        key = (replay.names, replay.kinds, replay.batch_size, replay.process)
        if key not in known:
            known[key] = _fits(replay, lists)
        fits.append(known[key])
    result: list[Match | None] = [None] * len(replays)
    for step in _by_step(replays):
        in_order = _in_order([fits[row] for row in step], lists) if replays[step[0]].step is not None else None
        for number, row in enumerate(step):
            result[row] = _chosen(fits[row], in_order[number] if in_order else None)
    return result


def _fits(replay: Launched, lists: Sequence[LaunchList]) -> Fits:
    own = {number: one for number, one in enumerate(lists) if one.may_be_of(replay)}
    runs = {number: one.runs(replay) for number, one in own.items()}
    whole = {number: one.whole_captures(replay) for number, one in own.items()}
    named = {number: [at for at, is_named in places.items() if is_named] for number, places in whole.items()}
    count = sum(map(len, runs.values()))
    # A whole capture is better evidence than a part of one, and names are better than kinds.
    places: Mapping[int, Iterable[int]] = named if any(named.values()) else runs if count else whole
    fitting = {number: tuple(at) for number, at in places.items() if at}
    sized = _of_batch_size(replay, fitting, lists)
    every = tuple(place for at in fitting.values() for place in at)
    return Fits(every, tuple(place for at in sized.values() for place in at), count, 0 < count < _MOST_PLACES)


def _by_step(replays: Sequence[Launched]) -> Iterator[list[int]]:
    groups: dict[int, list[int]] = {}
    for row, replay in enumerate(replays):
        if replay.step is None:
            yield [row]
        else:
            groups.setdefault(replay.step, []).append(row)
    yield from groups.values()


def _chosen(fits: Fits, in_order: int | None) -> Match | None:
    if not fits.places:
        return None
    if fits.is_named:
        for how, count in (("unique", fits.runs), ("capture", len(fits.places)), ("batch size", len(fits.sized))):
            if count == 1:
                return Match(fits.sized[0], how, fits.sized, is_named=True)
    if in_order is not None or len(fits.places) == 1:
        return Match(fits.sized[0] if in_order is None else in_order, "order", fits.sized, fits.is_named)
    return Match(fits.sized[0], "ambiguous", fits.sized, fits.is_named)


def _of_batch_size(
    replay: Launched, places: Mapping[int, tuple[int, ...]], lists: Sequence[LaunchList]
) -> Mapping[int, tuple[int, ...]]:
    """Returns the places that were captured for the replay's batch size. Engines pad a batch to the next captured size,
    so the smallest captured size that is large enough counts. If no size is large enough, returns all places."""
    sizes = {size for number in places if (size := lists[number].batch_size) is not None}
    large_enough = [size for size in sizes if replay.batch_size is not None and size >= replay.batch_size]
    if not large_enough:
        return places
    return {number: at for number, at in places.items() if lists[number].batch_size == min(large_enough)}


def _in_order(fits: Sequence[Fits], lists: Sequence[LaunchList]) -> list[int] | None:
    """Returns the place of each replay of a step. This needs a list that has as many captures as the step has replays,
    and each replay must fit the capture at the same position. Returns None if no list is like this, or several are."""
    fitting = []
    for one in lists:
        firsts = [first for first, _ in one.captures]
        if len(firsts) == len(fits) and all(first in own.sized for first, own in zip(firsts, fits, strict=True)):
            fitting.append(firsts)
    return fitting[0] if len(fitting) == 1 else None


def replays(trace: Tables) -> pl.DataFrame:
    calls = (
        trace.calls.select("start_ns", "range", "rank", "pid")
        .with_row_index("call")
        .filter(launches_graph(trace.calls))
    )
    work = trace.work.select("call", "kind", "full_name", "name", "start_ns", "range", "launch_range", "replay")
    work = work.select(
        _col("call").cast(ROW_NUMBER),
        _col("kind").cast(pl.String),
        begun_ns="start_ns",
        what=what(pl.coalesce("full_name", "name").cast(pl.String), _col("kind").cast(pl.String)),
        # A captured launch may be known already, because the tool itself stated the range of the capture, or because
        # the trace was saved after `matches` had found the launch.
        is_known=_col("range").ne_missing(_col("launch_range")) | _col("replay").is_not_null(),
        work=pl.int_range(pl.len(), dtype=ROW_NUMBER),
    )
    work = work.filter(_col("kind").is_in(list(KINDS))).join(calls, on="call")
    rows = work.sort("call", "begun_ns", "work").group_by("call", maintain_order=True)
    return (
        rows.agg(
            _col("start_ns", "range", "rank", "pid").first(), "work", "what", "kind", is_known=_col("is_known").any()
        )
        .filter(~_col("is_known"))
        .drop("is_known")
        .sort("start_ns", "call")
    )
