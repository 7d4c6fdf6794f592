"""Lists the outputs, which are the kinds of files that opspan writes. `trace.export(path)` and `opspan export` choose
an output by the file's name.

The module in views/ that has the name of an output writes this output.
"""

from __future__ import annotations

from typing import NamedTuple


class Output(NamedTuple):
    name: str  # the name of the output and of its module in views/
    suffixes: tuple[str, ...]
    writes: str  # a description for help and messages
    is_folder: bool = False  # True if the output is a folder; it replaces nothing but a saved trace
    pattern: str = ""  # a file name that matches this pattern selects this output, whatever its suffix

    # The module in views/ whose function `write_samples` writes the stacks of samples of processors, if there is one.
    samples: str = ""

    # The tables whose rows the output can show ("marks" are listed separately from "ranges"). An empty tuple means all.
    shows: tuple[str, ...] = ()


_ON_A_TIMELINE = ("ranges", "marks", "calls", "functions", "work", "counters")
OUTPUTS = (
    Output(
        "chrome",
        (".json", ".json.gz"),
        "Chrome trace, for chrome://tracing and tools for torch.profiler's files",
        shows=_ON_A_TIMELINE,
    ),
    Output(
        "perfetto",
        (".perfetto-trace", ".perfetto-trace.gz", ".pftrace", ".pftrace.gz"),
        "Perfetto's own form: smaller, with more tracks than a Chrome trace",
        shows=(*_ON_A_TIMELINE, "memory"),
    ),
    Output("sqlite", (".sqlite", ".db"), "analysis database, for the sqlite shell and Datasette"),
    Output(
        "parquet",
        (".parquet",),
        "folder with a Parquet file for each table, which opspan reads back exactly",
        is_folder=True,
    ),
    Output("csv", (".csv",), "a row for each range, with what the analysis found", shows=("ranges", "marks")),
    Output(
        "vtune_intervals",
        (),
        "ranges for VTune to import, as tasks and frames; put the host's name before .csv",
        pattern="?*-hostname-?*.csv",
        shows=("ranges",),
    ),
    Output(
        "stacks",
        (".stacks",),
        "Python functions and ranges as stacks, with CPU time in ns, for flame graphs",
        samples="sampled_stacks",
    ),
    Output("device_stacks", (".device.stacks",), "the same with the kernels below them, and device time"),
    Output("flame_graph", (".svg",), "flame graph of both, as a picture that needs no script", samples="flame_graph"),
    Output(
        "speedscope",
        (".speedscope.json",),
        "for speedscope: the timeline of each thread and stream",
        samples="speedscope",
    ),
    Output("pprof", (".pb.gz",), "both as a profile for pprof, with counts", samples="pprof"),
    Output("workbook", (".xlsx",), "Excel workbook with a sheet for each answer: ops, steps, idle, findings, ..."),
    Output("page", (".html",), "the page that `opspan report` writes"),
    Output("json_table", (".table.json",), "what `opspan table --format json` prints"),
)


def help_lines() -> str:
    """Returns a line for each output, with its suffixes and a description."""
    names = [" ".join([*output.suffixes, *filter(None, [output.pattern.replace("?*", "*")])]) for output in OUTPUTS]
    width = max(map(len, names))
    return "\n".join(f"  {name:{width}} {output.writes}" for name, output in zip(names, OUTPUTS, strict=True))
