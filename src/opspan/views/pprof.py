"""A profile for pprof (`go tool pprof` and other readers of its files), gzipped: a sample for each stack.

A sample has the count, the host time and the device time of a stack, without the stacks inside it. The labels of a
sample are the process, the thread, and the kind of the innermost frame, such as op or kernel.

`write_samples` writes the stacks of samples of processors instead (sampled_stacks.py), with the number of samples and
the sum of their weights.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.nest import trace_end_ns
from opspan.errors import MissingPackage
from opspan.tables import Tables
from opspan.views.merged_stacks import SMALLER, bounded, stack_tree
from opspan.views.names import python_file, python_line
from opspan.views.sampled_stacks import sampled_stacks
from opspan.views.stacks import no_time

_MAPPING = 1  # number of the only mapping: pprof shows its file name as the program, and looks for no symbols in it
_col = pl.col


class _ValueType(NamedTuple):
    """A number that each sample of a profile has."""

    name: str
    unit: str
    column: str


_VALUES = (
    _ValueType("count", "count", "count"),
    _ValueType("host", "nanoseconds", "host_ns"),
    _ValueType("device", "nanoseconds", "device_ns"),
)


@dataclass(frozen=True)
class _ProfileContent:
    stacks: pl.DataFrame  # columns: stack, parent, root, level, frame, kind, and those of `values`
    roots: pl.DataFrame
    values: tuple[_ValueType, ...]
    default: str  # the name of the value that pprof shows first
    begin_ns: int
    end_ns: int


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


def write_samples(analysis: Analysis, path: Path) -> list[str]:
    _check_protobuf()
    trace, sampled = analysis.attributed, sampled_stacks(analysis)
    values = [_ValueType("samples", "count", "samples")]
    if sampled.has_weights:
        name, unit = ("cpu", "nanoseconds") if sampled.is_ns else (sampled.event or "weight", "count")
        values.append(_ValueType(name, unit, "weight"))
    times = trace.samples["time_ns"]
    begin, end = (time if isinstance(time, int) else 0 for time in (times.min(), times.max()))
    content = _ProfileContent(sampled.stacks(), sampled.roots, tuple(values), values[-1].name, begin, end)
    data, notes = _profile(trace, content, sampled.left_out)
    path.write_bytes(data)
    return notes


def profile_of(analysis: Analysis, only: str | None = None, begin_utc_ns: int | None = None) -> tuple[bytes, list[str]]:
    """Returns the profile, and sentences on what is left out. `only` is passed to `stack_tree`. If `begin_utc_ns` is
    given, it is the time of the profile, instead of the time in the trace."""
    _check_protobuf()
    trace = analysis.attributed
    tree = stack_tree(trace, only)
    host_ns, device_ns = (tree.stacks[name].sum() for name in ("host_ns", "device_ns"))
    notes = tree.left_out if host_ns or device_ns else [no_time(trace)]
    begin = trace.begin_ns("ranges", "functions", "work") or 0
    end = trace_end_ns(trace.ranges, trace.functions, trace.work)
    default = "host" if host_ns or not device_ns else "device"
    return _profile(trace, _ProfileContent(tree.stacks, tree.roots, _VALUES, default, begin, end), notes, begin_utc_ns)


def _check_protobuf() -> None:
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        raise MissingPackage("a profile for pprof needs protobuf: pip install 'opspan[pprof]'")


def _profile(
    trace: Tables, content: _ProfileContent, notes: list[str], begin_utc_ns: int | None = None
) -> tuple[bytes, list[str]]:
    columns = [value.column for value in content.values]
    samples, tree = bounded(content.stacks, columns[1:] or columns, columns)
    if left_out := content.stacks.height - samples["stack"].is_in(content.stacks["stack"].implode()).sum():
        notes = [f"{left_out:,} stacks that take less than the others are one for each thread: {SMALLER}", *notes]
    from opspan.views.pprof_messages import new_profile

    profile = new_profile()
    strings = _Strings()
    _add_places(profile, tree, strings)
    _add_samples(profile, samples.filter(pl.any_horizontal(_col(columns) != 0)), tree, content, strings)
    _add_head(profile, trace, content, strings, notes)
    if begin_utc_ns is not None:
        profile.time_nanos = begin_utc_ns
    profile.string_table.extend(strings.numbers)
    return gzip.compress(profile.SerializeToString(deterministic=True), compresslevel=6, mtime=0), notes


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
    profile: Any, samples: pl.DataFrame, tree: pl.DataFrame, content: _ProfileContent, strings: _Strings
) -> None:
    names = tree.select(_col("frame").unique(maintain_order=True)).with_row_index("number", offset=1)
    place = tree.join(names, on="frame", how="left", maintain_order="left")["number"].to_list()
    around = tree["parent"].to_list()
    process, thread, kind = strings("process"), strings("thread"), strings("kind")
    of_root = {
        root: (strings(of_process), strings(of_thread))
        for root, of_process, of_thread in content.roots.select("root", "process", "thread").iter_rows()
    }
    columns = samples.select("stack", "root", _col("kind").cast(pl.String), *(value.column for value in content.values))
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


def _add_head(profile: Any, trace: Tables, content: _ProfileContent, strings: _Strings, notes: list[str]) -> None:
    for value in content.values:
        profile.sample_type.add(type=strings(value.name), unit=strings(value.unit))
    # Servers require a sampling period. It is one unit of the second value, because the values are sums, and do not
    # say how often the tool took samples.
    of_period = content.values[1:2] or content.values
    profile.period_type.type, profile.period_type.unit = strings(of_period[0].name), strings(of_period[0].unit)
    profile.period = 1
    program = Path(trace.paths[0]).name if trace.paths else ""
    profile.mapping.add(id=_MAPPING, filename=strings(program), has_functions=True)
    profile.default_sample_type = strings(content.default)
    profile.comment.extend(strings(sentence) for sentence in notes)
    profile.time_nanos = (trace.origin_utc_ns or 0) + content.begin_ns
    profile.duration_nanos = max(content.end_ns - content.begin_ns, 0)
