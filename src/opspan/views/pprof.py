"""A profile for pprof (`go tool pprof` and other readers of its files), gzipped: a sample for each stack.

A sample has the count, the host time and the device time of a stack, without the stacks inside it. The labels of a
sample are the process, the thread, and the kind of the innermost frame, such as op or kernel.
"""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.nest import trace_end_ns
from opspan.errors import MissingPackage
from opspan.tables import Tables
from opspan.views.merged_stacks import stack_tree
from opspan.views.names import python_file, python_line
from opspan.views.stacks import no_time

MOST_FRAMES = 5_000_000  # maximum number of frames in all stacks together
_VALUES = (("count", "count", "count"), ("host", "nanoseconds", "host_ns"), ("device", "nanoseconds", "device_ns"))
_COLUMNS = [column for _, _, column in _VALUES]
_SMALLER = "(stacks that take less)"
_MAPPING = 1  # number of the only mapping: pprof shows its file name as the program, and looks for no symbols in it
_col = pl.col


class _Strings:
    """Numbers the texts of a profile. The profile stores each text once, and its other fields refer to the text by
    number."""

    def __init__(self) -> None:
        self.numbers = {"": 0}

    def __call__(self, text: str | None) -> int:
        return self.numbers.setdefault(text or "", len(self.numbers))


def write(analysis: Analysis, path: Path) -> list[str]:
    data, notes = profile_of(analysis)
    path.write_bytes(data)
    return notes


def profile_of(analysis: Analysis, only: str | None = None, begin_utc_ns: int | None = None) -> tuple[bytes, list[str]]:
    """Returns the profile, and sentences on what is left out. `only` is passed to `stack_tree`. If `begin_utc_ns` is
    given, it is the time of the profile, instead of the time in the trace."""
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        raise MissingPackage("a profile for pprof needs protobuf: pip install 'opspan[pprof]'")
    trace = analysis.attributed
    stacks = stack_tree(trace, only)
    samples, tree = _bounded(stacks.stacks)
    notes = stacks.left_out if tree[_COLUMNS[1:]].sum_horizontal().sum() else [no_time(trace)]
    if left_out := stacks.stacks.height - samples["stack"].is_in(stacks.stacks["stack"].implode()).sum():
        notes = [f"{left_out:,} stacks that take less than the others are one for each thread: {_SMALLER}", *notes]
    from opspan.views.pprof_messages import new_profile

    profile = new_profile()
    strings = _Strings()
    _add_places(profile, tree, strings)
    _add_samples(profile, samples, tree, stacks.roots, strings)
    _add_head(profile, trace, samples, strings, notes)
    if begin_utc_ns is not None:
        profile.time_nanos = begin_utc_ns
    profile.string_table.extend(strings.numbers)
    return gzip.compress(profile.SerializeToString(deterministic=True), compresslevel=6, mtime=0), notes


def _bounded(stacks: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the stacks to write, and the tree of all stacks. If there are too many stacks, those with the most time
    are written. For each thread, the other stacks are merged into one extra stack, which is also in the tree."""
    frames = _col("level").cast(pl.Int64) + 1
    if stacks.select(frames.sum()).item() <= MOST_FRAMES:
        return stacks, stacks
    ordered = stacks.sort(_col("host_ns") + _col("device_ns"), descending=True, maintain_order=True)
    is_kept = ordered.select(frames.cum_sum() <= MOST_FRAMES).to_series()
    sums = ordered.filter(~is_kept).group_by("root", maintain_order=True).agg(_col(_COLUMNS).sum())
    sums = sums.with_row_index("stack", offset=stacks.height).with_columns(frame=pl.lit(_SMALLER))
    tree = pl.concat([stacks, sums], how="diagonal_relaxed")
    return pl.concat([ordered.filter(is_kept), tree.slice(stacks.height)]), tree


def _add_places(profile: Any, tree: pl.DataFrame, strings: _Strings) -> None:
    """Adds a function for each name of a frame, and a location with the same id, which lies in this function."""
    names = tree.select(_col("frame").unique(maintain_order=True))
    frame = _col("frame")
    rows = names.select(frame, file=python_file(frame), line=python_line(frame).fill_null(0)).iter_rows()
    for number, (name, file, line) in enumerate(rows, start=1):
        # `system_name` is not set, because pprof would take it for a name of C++ and shorten it.
        profile.function.add(id=number, name=strings(name), filename=strings(file), start_line=line)
        profile.location.add(id=number, mapping_id=_MAPPING).line.add(function_id=number, line=line)


def _add_samples(
    profile: Any, samples: pl.DataFrame, tree: pl.DataFrame, roots: pl.DataFrame, strings: _Strings
) -> None:
    names = tree.select(_col("frame").unique(maintain_order=True)).with_row_index("number", offset=1)
    place = tree.join(names, on="frame", how="left", maintain_order="left")["number"].to_list()
    around = tree["parent"].to_list()
    process, thread, kind = strings("process"), strings("thread"), strings("kind")
    of_root = {
        root: (strings(of_process), strings(of_thread))
        for root, of_process, of_thread in roots.select("root", "process", "thread").iter_rows()
    }
    columns = samples.select("stack", "root", _col("kind").cast(pl.String), *_COLUMNS)
    for stack, root, of, *values in columns.iter_rows():
        path, at = [], stack
        while at is not None:
            path.append(place[at])
            at = around[at]
        sample = profile.sample.add(location_id=path, value=values)
        of_process, of_thread = of_root[root]
        sample.label.add(key=process, str=of_process)
        sample.label.add(key=thread, str=of_thread)
        if of is not None:
            sample.label.add(key=kind, str=strings(of))


def _add_head(profile: Any, trace: Tables, samples: pl.DataFrame, strings: _Strings, notes: list[str]) -> None:
    for name, unit, _ in _VALUES:
        profile.sample_type.add(type=strings(name), unit=strings(unit))
    # Servers require a sampling period. It is one nanosecond, because times are sums, not counts of samples.
    profile.period_type.type, profile.period_type.unit, profile.period = strings("host"), strings("nanoseconds"), 1
    program = Path(trace.paths[0]).name if trace.paths else ""
    profile.mapping.add(id=_MAPPING, filename=strings(program), has_functions=True)
    profile.default_sample_type = strings(
        "host" if samples["host_ns"].sum() or not samples["device_ns"].sum() else "device"
    )
    profile.comment.extend(strings(sentence) for sentence in notes)
    begin = trace.begin_ns("ranges", "functions", "work") or 0
    profile.time_nanos = (trace.origin_utc_ns or 0) + begin
    profile.duration_nanos = max(trace_end_ns(trace.ranges, trace.functions, trace.work) - begin, 0)
