"""Finds patterns in runs without marked steps: kernels that come in the same order again and again.

A *turn* is one repetition of a pattern. It may be a step, a layer or a part of these, so turns never count as steps.

    patterns(work) -> rank, pid, turns, turn_ns: for each process, how many turns there are, and their median time.
    repeating(work) -> rank, pid, start_ns, end_ns: for each process, the turns on one device: on the busiest device
        on which anything repeats (at most 16 devices are tried).
    period(codes, lengths) -> the starts of turns, and how many kernels a regular turn has; None if nothing repeats.

Only the order of kernels (and whole graphs) on the busiest stream counts. A *marker* is a kernel, or a sequence of a
few kernels, that mostly comes again after the same number of kernels. This number is the *period*. A turn goes from one
marker to the next. A turn is *regular* if its number of kernels is the period, and it is like the turn before or after
it: nine in ten kernels are at the same positions. docs/analysis.md, "patterns", says when turns are a pattern.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.analysis.averages import on_device
from opspan.analysis.spans import DEVICE, PROCESS, apart, length, only, sum_by, union
from opspan.tables.same import is_one

_col = pl.col
_STREAM = ("context_id", "stream_id")
_LEAST = 3  # a pattern has at least this many regular turns
_MOST_DEVICES = 16  # at most this many devices of each process are tried
# From the first regular turn to the last, at least this share of the turns must be regular. At least the same share of
# the kernels must fit the period.
_REGULAR = 0.75
# a regular turn has at least this share of its kernels at the same positions as the turn before or after it
_SAME = 0.9
_SHARE = 0.5  # the turns of a pattern must cover at least this share of the device's busy time
# a period explains a run if at most this share of the kernels does not fit it
_UNEXPLAINED = 1 / 200
_WIDTHS = (1, 2, 4, 8, 16, 32, 64)  # a marker may have these numbers of kernels
# The period is looked for in this many kernels, in the middle of the run. After that, its turns are looked for in the
# whole run.
_SAMPLE = 2**18
# for each number of kernels in a marker, at most this many periods are tried: those whose turns cover most kernels
_PERIODS = 16
_TOLD_BY = 8  # this many kernels are compared to recognise a position in a turn
_ODD, _ODDER = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F

Codes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_SCHEMA = {"start_ns": pl.Int64, "end_ns": pl.Int64}


def patterns(work: pl.DataFrame) -> pl.DataFrame:
    turns = repeating(work).with_columns(ns=length())
    rows = turns.group_by(PROCESS, maintain_order=True).agg(turns=pl.len().cast(pl.Int64), turn_ns=_col("ns").median())
    return rows.with_columns(_col("turn_ns").cast(pl.Int64))


def repeating(work: pl.DataFrame) -> pl.DataFrame:
    columns = (*DEVICE, *_STREAM, "start_ns", "end_ns", "kind", "is_overhead", "name", "full_name")
    ran = only(on_device(work.select(columns)), _col("end_ns") > _col("start_ns"))
    devices = _devices(ran)
    if not is_one(ran, *DEVICE):
        ran = ran.join(devices, on=DEVICE, how="semi", nulls_equal=True, maintain_order="left")
    of_device = apart(ran, DEVICE)
    parts = [pl.DataFrame(schema={**{name: work.schema[name] for name in PROCESS}, **_SCHEMA})]
    done = set()
    for rank, pid, device_id in devices.iter_rows():
        if (rank, pid) not in done and (regular_turns := _of_device(of_device[rank, pid, device_id])).height:
            done.add((rank, pid))
            process = (
                pl.lit(key, work.schema[name]).alias(name) for name, key in zip(PROCESS, (rank, pid), strict=True)
            )
            parts.append(regular_turns.select(*process, "start_ns", "end_ns"))
    return pl.concat(parts)


def _devices(ran: pl.DataFrame) -> pl.DataFrame:
    """Returns the devices with enough kernels on their busiest stream, the busiest device first, at most _MOST_DEVICES
    of each process."""
    busy = sum_by(ran, DEVICE, ns=length().sum())
    streams = sum_by(_kernels(ran), (*DEVICE, *_STREAM), ns=length().sum(), kernels=pl.len())
    streams = _longest_first(streams, _STREAM).unique(DEVICE, keep="first", maintain_order=True)
    enough = streams.filter(_col("kernels") >= 2 * _LEAST)
    devices = _longest_first(busy.join(enough, on=DEVICE, how="semi", nulls_equal=True), ("device_id",))
    return devices.group_by(PROCESS, maintain_order=True).head(_MOST_DEVICES).select(DEVICE)


def _longest_first(rows: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    return rows.sort("ns", *by, descending=[True] + [False] * len(by))


def _kernels(ran: pl.DataFrame) -> pl.DataFrame:
    return only(ran, _col("kind").is_in(["kernel", "graph"]))


def _of_busiest_stream(kernels: pl.DataFrame) -> pl.DataFrame:
    if is_one(kernels, *_STREAM):
        return kernels
    streams = _longest_first(sum_by(kernels, _STREAM, ns=length().sum()), _STREAM)
    return kernels.join(streams.head(1), on=_STREAM, how="semi", nulls_equal=True, maintain_order="left")


def _of_device(ran: pl.DataFrame) -> pl.DataFrame:
    order = _of_busiest_stream(_kernels(ran)).select("kind", "name", "full_name", "start_ns", "end_ns")
    if not order["start_ns"].is_sorted():
        order = order.sort("start_ns", "end_ns", maintain_order=True)
    codes = order.select(_col("kind", "name", "full_name").to_physical()).hash_rows()
    starts, ends = order["start_ns"].to_numpy(), order["end_ns"].to_numpy()
    pauses = starts - np.maximum.accumulate(np.append(starts[:1], ends[:-1]))
    pattern = period(codes, ends - starts, pauses)
    if pattern is None:
        return pl.DataFrame(schema=_SCHEMA)
    begins, kernels_of_turn = pattern
    first, last = int(starts[begins[0]]), int(ends[begins[-1] : begins[-1] + kernels_of_turn].max())
    edges = [*starts[begins].tolist(), last]
    turns = pl.DataFrame({"start_ns": edges[:-1], "end_ns": edges[1:]}, schema=_SCHEMA)
    # Turns follow each other without a gap. So their busy time is all busy time from the start of the first to the end
    # of the last.
    busy = union(ran, ())
    inside = busy.select(_col("start_ns").clip(lower_bound=first), _col("end_ns").clip(upper_bound=last))
    is_most = inside.select(length().sum()).item() >= _SHARE * busy.select(length().sum()).item()
    return turns if is_most else turns.clear()


@dataclass(frozen=True)
class _Turns:
    """The turns of a pattern, from the first regular turn to the last."""

    begins: Numbers
    is_regular: Flags
    period: int
    unexplained: float  # share of the kernels that do not fit the period

    @property
    def part(self) -> slice:
        """The positions of the kernels from the first turn to the last."""
        return slice(self.begins[0], self.begins[-1] + self.period)

    def is_better(self, other: _Turns) -> bool:
        """Returns whether these turns describe the run better than `other`. Turns that explain nearly all kernels are
        better than turns that do not. If both do, the shorter period is better. If neither does, the longer period is
        better."""
        explains, others = (some.unexplained <= _UNEXPLAINED for some in (self, other))
        if explains != others:
            return explains
        return (self.period < other.period) if explains else (self.period > other.period)


def period(codes: pl.Series, lengths: Numbers, pauses: Numbers | None = None) -> tuple[Numbers, int] | None:
    """Returns the starts of turns, and the number of kernels in a regular turn. The last turn has as many kernels, too.

    Each argument has one number for each kernel, in order. `codes` (UInt64) are equal for kernels of the same name.
    `lengths` are the times that the kernels took. `pauses` tells for how long nothing ran just before each kernel.
    """
    if len(codes) < 2 * _LEAST:
        return None
    begin = max(0, (len(codes) - _SAMPLE) // 2)
    some, times = codes.slice(begin, _SAMPLE), lengths[begin : begin + _SAMPLE].astype(np.float64)
    names = some.to_numpy()
    best: tuple[_Turns, int] | None = None
    for width, markers in _markers(some):
        for at in _places(markers):
            turns = _turns(names, at, int(np.median(np.diff(at))))
            takes_most = turns is not None and times[turns.part].sum() >= _SHARE * times.sum()
            if turns is not None and takes_most and (best is None or turns.is_better(best[0])):
                best = turns, width
        if best is not None and best[0].unexplained <= _UNEXPLAINED:
            break
    if best is None:
        return None
    turns, width = best
    if len(some) < len(codes):
        names, where = codes.to_numpy(), int(turns.begins[0] + begin)
        markers = next(markers for wide, markers in _markers(codes) if wide == width)
        all_turns = _turns(names, _where(markers == markers.slice(where, 1)), turns.period)
        if all_turns is None:
            return None
        turns = all_turns
    if pauses is not None:
        turns = _from_the_longest_pause(names, turns, pauses)
    return turns.begins, turns.period


# Markers are columns of polars. Making a Series of a numpy array would load numpy.ma, which takes longer than the whole
# search.


def _markers(codes: pl.Series) -> Iterator[tuple[int, pl.Series]]:
    """Yields each number of kernels that a marker may have (`width`). Also yields, for each position, a hash of the
    `width` kernels that begin there."""
    markers = codes
    for width in _WIDTHS:
        if width > 1:
            if len(codes) < width:
                return
            one, other = markers.head(len(markers) - width // 2), markers.slice(width // 2)
            mixed = (one ^ (one // 2**29)) * _ODD + other * _ODDER
            markers = mixed ^ (mixed // 2**32)
        yield width, markers


def _places(markers: pl.Series) -> Iterator[Numbers]:
    """Yields, for each period to try, the positions of one marker: the marker that comes again after this
    period most often."""
    rows = pl.DataFrame({"marker": markers}).with_row_index("at").sort("marker", maintain_order=True)
    rows = rows.with_columns(_col("at").cast(pl.Int64))
    gaps = rows.with_columns(gap=_col("at").diff()).filter(_col("marker") == _col("marker").shift(1))
    markers_of_gaps = gaps.group_by("marker", maintain_order=True).agg(
        period=_col("gap").median(),
        often=(_col("gap") == _col("gap").median()).sum(),
        times=pl.len(),
        first=_col("at").first(),
    )
    markers_of_gaps = markers_of_gaps.filter(
        _col("period") > 1, _col("often") >= _LEAST - 1, _col("often") * 2 >= _col("times")
    )
    markers_of_gaps = markers_of_gaps.sort("often", "first", descending=[True, False])
    best = markers_of_gaps.unique("period", keep="first", maintain_order=True).with_columns(
        kernels=_col("often") * _col("period")
    )
    best = best.sort("kernels", "period", descending=True).head(_PERIODS)
    for number in range(best.height):
        yield _where(markers == best["marker"].slice(number, 1))


def _where(flags: pl.Series) -> Numbers:
    return flags.arg_true().cast(pl.Int64).to_numpy()


def _turns(codes: Codes, at: Numbers, period: int) -> _Turns | None:
    """Returns the turns that begin at the positions `at`; None if they cannot be a pattern."""
    edges = np.append(at, at[-1] + period) if at[-1] + period <= len(codes) else at
    gaps = np.diff(edges)
    as_long = gaps == period
    # A running count of the kernels that equal the kernel one period later.
    agree = np.concatenate([[0], np.cumsum(codes[:-period] == codes[period:])])
    pairs = np.flatnonzero(as_long[:-1] & as_long[1:])
    again = np.zeros(len(gaps) + 1, dtype=np.int64)
    again[pairs + 1] = agree[edges[pairs] + period] - agree[edges[pairs]]
    same = np.maximum(again[:-1], again[1:])
    is_regular = same >= _SAME * period
    regular = np.flatnonzero(is_regular)
    if len(regular) < _LEAST:
        return None
    part = slice(regular[0], regular[-1] + 1)
    begin = edges[regular[0]]
    if len(regular) < _REGULAR * len(gaps[part]) or (codes[begin : begin + period] == codes[begin]).all():
        return None
    strange = np.where(is_regular, period - same, np.where(as_long, period, np.abs(gaps - period)))[part]
    unexplained = float(strange.sum() / gaps[part].sum())
    return _Turns(edges[part], is_regular[part], period, unexplained) if unexplained <= 1 - _REGULAR else None


def _from_the_longest_pause(codes: Codes, turns: _Turns, pauses: Numbers) -> _Turns:
    """Moves the starts of turns to the kernel before which the device usually pauses longest."""
    regular = turns.begins[turns.is_regular]
    some = regular[: max(_LEAST, _SAMPLE // turns.period)]
    later = int(np.median(pauses[some[:, None] + np.arange(turns.period)], axis=0).argmax())
    after = np.append(turns.begins[1:], turns.begins[-1] + turns.period)
    # Irregular turns have missing or additional kernels. If these kernels come after the new start, the new start
    # is found by counting from the old start (`ahead`), otherwise by counting back from the end of the turn (`back`).
    ahead, back = turns.begins + later, np.maximum(turns.begins, after - (turns.period - later))
    few = np.arange(min(_TOLD_BY, turns.period - later))
    places = ahead[:, None] + few
    is_ahead = (codes[np.minimum(places, len(codes) - 1)] == codes[regular[0] + later + few]).all(axis=1)
    at = np.where(turns.is_regular | (is_ahead & (ahead < after)), ahead, back)
    at = at[np.append(True, np.diff(at) > 0)]
    before = at[0] - turns.period
    return _turns(codes, np.append(before, at) if before >= 0 else at, turns.period) or turns
