"""Trace: what opspan.load gives. The tables that a reader filled, their analysis, and events, tables and exports."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from opspan import forked
from opspan.analysis import Analysis
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
    """Frames by name (docs/schema.md has every column), and a Metadata for each rank.

    Frames that are not given are empty, columns that are not given are null. Frames are never changed in place:
    `trace.replace(ranges=...)` is another trace.
    """

    @classmethod
    def of(cls, tables: Tables) -> Trace:
        return tables if isinstance(tables, Trace) else cls(tables.ranks, **tables.frames)

    @cached_property
    def analysed(self) -> Analysis:
        """The trace and its analysis: `trace.analysed.complete.ranges` has all columns of docs/analysis.md."""
        return Analysis(Tables(self.ranks, **self.frames))  # not of self: a circle keeps what nobody needs any more

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        from opspan.html_columns import or_why_not
        from opspan.views.notebook import trace_html

        return or_why_not(lambda: trace_html(self.analysed), "The trace")

    @property
    def coverage(self) -> Coverage:
        """How much could be attributed, in figures."""
        return self.analysed.coverage

    def events(self, with_flops: bool = False) -> EventList:
        """Torch's kind of list over the same rows, with the floating-point operations of each op if asked for:
        docs/events.md."""
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
        """The table that `opspan table` prints, by name, shape, stack, module, step, phase, stream or kernel: printed,
        it is the text, `.rows` are its rows as columns. The arguments are the options of that command."""
        from opspan.views.table import Asked, table_of

        return table_of(self.analysed, Asked(by, sort_by, op, kernels, memory, step))

    def kernels(self, *, copies: bool = False) -> pl.DataFrame:
        """Every kernel, joined to the op, module, phase and step that it belongs to, in the order in which they began.

        Returns a row for each kernel with its name, device, stream, times in nanoseconds, op, shape (sizes of the op's
        inputs), module, phase, step, stack and launch call; null where the trace does not say it. Without kernels the
        frame is empty and has the same columns. A kernel of a CUDA graph has the op in which it was captured, if the
        trace has that, and the step in which the graph was launched.

        Args:
            copies: also return copies and fills.
        """
        from opspan.analysis.kernel_rows import kernel_rows

        return kernel_rows(self.analysed.complete, copies)

    def steps(self, name: str | None = None) -> pl.DataFrame:
        """The steps of the run and where the time of each went, as `opspan steps` has them (docs/json.md). `name`: what
        the ranges of steps are called (* stands for any text), where they are not torch's."""
        from opspan.views.steps import rows_of

        return rows_of(self.analysed, name)

    def idle(self, by: str = "op") -> pl.DataFrame:
        """When devices had nothing to do, by the op, module, phase, step, function, device or gap, as `opspan idle`."""
        from opspan.views.idle import rows_of

        return rows_of(self.analysed, by)

    def launches(self, by: str = "op") -> pl.DataFrame:
        """How launches keep up with devices, by the op, module, phase, step, function, kernel or stream, or copies by
        their direction (copy), as `opspan launches`."""
        from opspan.views.launches import rows_of

        return rows_of(self.analysed, by)

    def waits(self, by: str = "op") -> pl.DataFrame:
        """What the host waited for, by the op, module, phase, step, function, reason or call, as `opspan waits`."""
        from opspan.views.waits import rows_of

        return rows_of(self.analysed, by)

    def flops(self, by: str = "op", *, peak: Sequence[str] = ()) -> pl.DataFrame:
        """Operations and bytes of ops, how fast that was and which bound it is near, by op, shape, module, phase, step
        or run, as `opspan flops`. `peak`: what devices can do, each as that command's option --peak has it."""
        from opspan.views.flops import rows_of

        return rows_of(self.analysed, by, peak)

    def path(self, by: str = "op", what_if: Mapping[str, float] | None = None) -> pl.DataFrame:
        """The critical path, by the op, kind, module, phase or step, as `opspan path`. `what_if`: factors by name of an
        op or kind; the rows are then steps, with what each would take if these took that much of their time."""
        from opspan.views.path import rows_of

        return rows_of(self.analysed, by, what_if)

    def memory_use(self, by: str = "op") -> pl.DataFrame:
        """Who took memory, by op; the blocks that there were at the peak (block); or the peaks (device), as
        `opspan memory`. The events themselves are `trace.memory`."""
        from opspan.views.memory import rows_of

        return rows_of(self.analysed, by)

    def findings(self) -> pl.DataFrame:
        """What is wrong with the run, the costliest first, with what to do: the rows of `opspan findings`. The rules
        are in docs/findings.md."""
        from opspan.views.findings import rows_of

        return rows_of(self.analysed)

    def comm(self, by: str = "kind") -> pl.DataFrame:
        """The collectives, by kind, group, rank, size, op, module, phase, step, function or call (each one), as
        `opspan comm`: how long, how much, how fast, and who of the ranks that were loaded together waited for whom."""
        from opspan.views.comm import rows_of

        return rows_of(self.analysed, by)

    def compare(self, other: Tables, by: str = "op") -> pl.DataFrame:
        """What another run does differently, by op, shape, module, phase, kernel or place: the rows of `opspan diff`,
        which docs/json.md describes, with this run as the first."""
        from opspan.analysis.compare import compared
        from opspan.views.diff import figures_of

        return compared(figures_of(self.analysed, by), figures_of(Trace.of(other).analysed, by))

    def compare_to_baseline(self, path: str | os.PathLike[str], by: str = "op") -> pl.DataFrame:
        """What this run does differently from the one that the baseline was saved of, which is the first here."""
        from opspan.analysis.compare import compared
        from opspan.views import baseline
        from opspan.views.diff import figures_of

        return compared(baseline.load(path, by), figures_of(self.analysed, by))

    def save_baseline(self, path: str | os.PathLike[str]) -> list[str]:
        """Write what of this run is compared to a small file, as `opspan diff --save-baseline`; an earlier baseline is
        replaced, and nothing else. Returns a sentence for each thing that was too large for it."""
        from opspan.views import baseline

        return baseline.save(self.analysed, Path(path))

    def export(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> list[str]:
        """Write the trace as the suffix of the name says, as `opspan export` does: a Chrome trace (.json, .json.gz), an
        analysis database (.sqlite), a flame graph (.svg), a workbook (.xlsx), ...: docs/outputs.md. Returns a sentence
        for each thing that the format cannot hold."""
        from opspan.views import export

        return export(self.analysed, Path(path), overwrite=overwrite)

    def report(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        against: Tables | None = None,
        overwrite: bool = False,
    ) -> Report:
        """All that opspan finds, as one page that opens anywhere: written to `path`, as `opspan report` does, and shown
        where a notebook shows what this returns. `against`: a run to compare this one to."""
        from opspan.views.page.report import report

        other = None if against is None else Trace.of(against).analysed
        return report(self.analysed, None if path is None else Path(path), other, overwrite=overwrite)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the trace to a folder of Parquet files; `opspan.load` reads it back exactly."""
        from opspan.tables import storage

        storage.save(self, Path(path), overwrite=overwrite)

    def with_metrics(self, report: pl.DataFrame, issues: Issues | None = None) -> Self:
        """The trace with what a report says of its names, such as opspan.load_vtune_report(path): further columns of
        the table by name. Sums stay sums: no event gets one. `issues`: those of reading the report."""
        from opspan.tables.metrics import with_metrics

        return with_metrics(self, report, issues)


@forked.elsewhere
def merge(one: Tables, other: Tables) -> Trace:
    """One trace of two that different tools took of the same processes at once, aligned: docs/analysis.md.
    `merged.metadata.options["alignment"]` says how, and how sure that is."""
    from opspan.analysis.merge import merge as merge_tables

    return Trace.of(merge_tables(one, other))
