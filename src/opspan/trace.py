"""Defines Trace, which opspan.load returns. It has the tables that a reader filled, their analysis, and methods for
events, tables and exports."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from opspan import forked
from opspan.analysis import Analysis
from opspan.questions import Options, question
from opspan.tables import Tables

if TYPE_CHECKING:
    import polars as pl
    from typing_extensions import Self

    from opspan.analysis import Coverage
    from opspan.events import EventList
    from opspan.tables import Issues
    from opspan.views.page.report import Report
    from opspan.views.table import Table


@forked.methods_elsewhere
class Trace(Tables):
    """A trace has polars frames by name, a Metadata for each rank, and methods that answer questions about the run.

    `opspan.load` returns a trace. `Trace((Metadata("my profiler"),), ranges=..., work=...)` makes a trace from your own
    frames. Frames that are not given are empty, and columns that are not given are null. docs/schema.md has every
    column. Frames are never changed in place. `trace.replace(ranges=...)` returns another trace.
    """

    @classmethod
    def of(cls, tables: Tables) -> Trace:
        """Makes a Trace with these tables."""
        return tables if isinstance(tables, Trace) else cls(tables.ranks, **tables.frames)

    @cached_property
    def analysed(self) -> Analysis:
        """The trace with its analysis, which is computed once. docs/analysis.md has the columns of
        `.analysed.complete.ranges`."""
        # The analysis gets a copy of the tables. If it referred to this object, both would form a reference cycle,
        # which Python frees late.
        return Analysis(Tables(self.ranks, **self.frames))

    def _repr_html_(self) -> str:
        """Returns the HTML that a notebook shows."""
        from opspan.html_columns import or_why_not
        from opspan.views.notebook import trace_html

        return or_why_not(lambda: trace_html(self.analysed), "The trace")

    @property
    def coverage(self) -> Coverage:
        """Numbers that say how much of the trace could be attributed to ops. `coverage.lines()` has sentences."""
        return self.analysed.coverage

    def events(self, with_flops: bool = False) -> EventList:
        """Returns the events as a list like torch's, with methods such as `key_averages()` and `table()`
        (docs/events.md).

        Args:
            with_flops: also count the floating-point operations of each op.
        """
        from opspan.events import events_of

        return events_of(self.analysed, with_flops)

    def table(
        self,
        by: str = "name",
        *,
        sort_by: str | None = None,
        op: str | None = None,
        kernels: bool = False,
        memory: bool = False,
        step: str | None = None,
    ) -> Table:
        """Returns the table that `opspan table` prints. `str()` gives its text, and `.rows` has its rows as a polars
        frame.

        Args:
            by: "name", "shape", "stack", "module", "step", "phase", "function", "stream", "kernel", "line" or
                "source-op".
            sort_by: a column, or torch's name of one; the largest comes first.
            op: only ops of this name, or of names that match this pattern.
            kernels: also show rows of kernels and copies.
            memory: also show memory.
            step: a name or pattern of the ranges that are steps.
        """
        from opspan.views.table import table_of

        options = Options(by, step=step, sort_by=sort_by, op=op, kernels=kernels, memory=memory)
        return table_of(self.analysed, options)

    def kernels(self, *, copies: bool = False) -> pl.DataFrame:
        """Returns every kernel with its op, module, phase and step, in order of time.

        A row has the kernel's name, device, stream, times in nanoseconds, op, shape (sizes of the op's inputs), module,
        phase, step, stack and launch call. Values that the trace does not have are null. Without kernels the frame is
        empty, but has all columns. A kernel of a CUDA graph has the op in which it was captured, if the trace has this
        op, and the step in which the graph was launched.

        Args:
            copies: also return copies and fills.
        """
        from opspan.analysis.kernel_rows import kernel_rows

        return kernel_rows(self.analysed.complete, copies)

    def steps(self, name: str | None = None) -> pl.DataFrame:
        """Returns the steps of the run and how their time was spent, as `opspan steps` does (docs/json.md).

        Args:
            name: the name of the ranges that are steps (* matches any text), if they are not torch's.
        """
        return question("steps").rows_of(self.analysed, Options(step=name))

    def idle(self, by: str = "op") -> pl.DataFrame:
        """Returns the times when devices had nothing to do, as `opspan idle` does.

        Args:
            by: "op", "module", "phase", "step", "function", "device", "stream" or "gap".
        """
        return question("idle").rows_of(self.analysed, Options(by))

    def sampled_functions(
        self, by: str = "function", *, inside: tuple[str, str] | None = None, idle: bool = False
    ) -> pl.DataFrame:
        """Returns the functions that the host's processors executed, as `opspan functions` does.

        Args:
            by: "function", "library", "op", "module", "phase", "step", "line", "call" or "thread".
            inside: only samples inside these: "op", "module", "range" or "call", and the name or a pattern.
            idle: only samples that were taken while a device had nothing to do.
        """
        return question("functions").rows_of(self.analysed, Options(by, inside=inside, idle=idle))

    def launches(self, by: str = "op") -> pl.DataFrame:
        """Returns rows that show whether the CPU launches kernels fast enough, as `opspan launches` does.

        Args:
            by: "op", "module", "phase", "step", "function", "kernel" or "stream"; or "copy": copies by their direction.
        """
        return question("launches").rows_of(self.analysed, Options(by))

    def waits(self, by: str = "op") -> pl.DataFrame:
        """Returns the waits of the host, as `opspan waits` does.

        Args:
            by: "op", "module", "phase", "step", "function", "why" or "call".
        """
        return question("waits").rows_of(self.analysed, Options(by))

    def flops(self, by: str = "op", *, peak: Sequence[str] = ()) -> pl.DataFrame:
        """Returns the operations and bytes of ops, how fast the ops ran, and which limit of the device they are near,
        as `opspan flops` does.

        Args:
            by: "op", "shape", "module", "phase", "step" or "run".
            peak: the peaks of devices, in the form of the option --peak of `opspan flops`.
        """
        return question("flops").rows_of(self.analysed, Options(by, peak=tuple(peak)))

    def path(self, by: str = "op", what_if: Mapping[str, float] | None = None) -> pl.DataFrame:
        """Returns the critical path, as `opspan path` does.

        Args:
            by: "op", "kind", "module", "phase" or "step".
            what_if: factors by the name of an op or kind, such as `{"aten::mm": 0.5}`. Each row is then a step, and
                says how long the step would take if these ops or kinds took this share of their time.
        """
        return question("path").rows_of(self.analysed, Options(by, factors=what_if))

    def memory_use(self, by: str = "op") -> pl.DataFrame:
        """Returns what used memory, as `opspan memory` does. The individual events are in `trace.memory`.

        Args:
            by: "op"; "block": the blocks that existed at the peak; or "device": the peaks.
        """
        return question("memory").rows_of(self.analysed, Options(by))

    def findings(self) -> pl.DataFrame:
        """Returns problems of the run with advice, the costliest first, as `opspan findings` does
        (docs/findings.md)."""
        return question("findings").rows_of(self.analysed, Options())

    def comm(self, by: str = "kind") -> pl.DataFrame:
        """Returns the collectives as `opspan comm` does, with their times, bytes and rates, and which rank waited for
        which.

        Args:
            by: "kind", "group", "rank", "size", "op", "module", "phase", "step", "function"; or "call" for a row for
                each collective.
        """
        return question("comm").rows_of(self.analysed, Options(by))

    def compare(self, other: Tables, by: str = "op") -> pl.DataFrame:
        """Returns the differences between this run (the first) and another run (the second), as `opspan diff` does
        (docs/json.md).

        Args:
            other: the other run.
            by: "op", "shape", "module", "phase", "kernel" or "place".
        """
        from opspan.analysis.compare import compared
        from opspan.views.diff import figures_of

        return compared(figures_of(self.analysed, by), figures_of(Trace.of(other).analysed, by))

    def compare_to_baseline(self, path: str | os.PathLike[str], by: str = "op") -> pl.DataFrame:
        """Returns the differences between the run of a saved baseline (the first) and this run (the second).

        Args:
            path: the file that `save_baseline` wrote.
            by: as in `compare`.
        """
        from opspan.analysis.compare import compared
        from opspan.views import baseline
        from opspan.views.diff import figures_of

        return compared(baseline.load(path, by), figures_of(self.analysed, by))

    def save_baseline(self, path: str | os.PathLike[str]) -> list[str]:
        """Writes a small file with those numbers of this run that comparisons need, as `opspan diff --save-baseline`
        does.

        Replaces an existing baseline, but never another file. Returns a sentence for each thing that was too large to
        save.
        """
        from opspan.views import baseline

        return baseline.save(self.analysed, Path(path))

    def export(self, path: str | os.PathLike[str], *, overwrite: bool = False, samples: bool = False) -> list[str]:
        """Writes the trace in the format that the suffix names, as `opspan export` does (docs/outputs.md).

        The formats are Chrome trace (.json, .json.gz), analysis database (.sqlite), flame graph (.svg), workbook
        (.xlsx) and others. Returns a sentence for each thing that the format cannot hold.

        Args:
            path: the file to write.
            overwrite: replace an existing file.
            samples: write the stacks of samples of the host's processors, below the ranges that were open on their
                threads. This works for .stacks, .svg, .speedscope.json and .pb.gz.
        """
        from opspan.views import export

        return export(self.analysed, Path(path), overwrite=overwrite, samples=samples)

    def report(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        against: Tables | None = None,
        overwrite: bool = False,
    ) -> Report:
        """Returns all results of opspan as one page, which a notebook can show. Also writes the page to `path`, as
        `opspan report` does.

        Args:
            path: the file to write; None writes nothing.
            against: a run to compare this one with.
            overwrite: replace an existing file.
        """
        from opspan.views.page.report import report

        other = None if against is None else Trace.of(against).analysed
        return report(self.analysed, None if path is None else Path(path), other, overwrite=overwrite)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes the trace to a folder of Parquet files, which `opspan.load` reads back exactly.

        Args:
            path: the folder.
            overwrite: replace an existing saved trace.
        """
        from opspan.tables import storage

        storage.save(self, Path(path), overwrite=overwrite)

    def with_metrics(self, report: pl.DataFrame, issues: Issues | None = None) -> Self:
        """Returns the trace with the metrics of a VTune report. The table by name shows them in additional columns.
        Events do not have them.

        Args:
            report: what `opspan.load_vtune_report` returns.
            issues: the issues from reading the report.
        """
        from opspan.tables.metrics import with_metrics

        return with_metrics(self, report, issues)


@forked.elsewhere
def merge(one: Tables, other: Tables) -> Trace:
    """Merges two traces that two tools recorded of the same processes at the same time. The times of both are aligned
    (docs/analysis.md).

    In the result, `metadata.options["alignment"]` says how the times were aligned, and how sure that is.
    """
    from opspan.analysis.merge import merge as merge_tables

    return Trace.of(merge_tables(one, other))
