"""Builds the stacks of samples of processors. Outermost are the ranges that were open on the sample's thread, then come
the functions of the sample's own stack.

    process 100;thread 100 main;step;aten::linear;aten::addmm;main;PyEval_Vector;at::native::addmm;sgemm 12345

The tree of ranges and Python functions is that of stacks.py. The whole native stack is below the innermost range,
because nobody knows at which of its functions the range began. Samples that are in no range are below a frame (in no
range) of their thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.hardware_events import is_ns
from opspan.analysis.nest import innermost, nearest
from opspan.analysis.samples import SHORT, counted_event, functions_of, is_of, is_short, name_by_itself
from opspan.analysis.stacks import DEEPEST, levels
from opspan.printable import plural, printable
from opspan.row_numbers import ROW_NUMBER
from opspan.tables import Tables
from opspan.views.device_stacks import NO_RANGE
from opspan.views.merged_stacks import PLACE, kinds
from opspan.views.stacks import tree, with_calls, write_lines

NATIVE = "native"  # the kind of functions of samples; the other kinds are those of merged_stacks.py
_THREAD = ["rank", "pid", "tid"]
_SUMS = ("samples", "weight")
_DEEPEST_RANGE = DEEPEST - 1  # at least one function fits below each range
_LARGEST_SUM = 2.0**63  # damaged files may have weights whose sum is larger
_col = pl.col


@dataclass(frozen=True)
class SampledStacks:
    """`rows` has the columns that `levels` in analysis/stacks.py needs, and kind, samples and weight. These sums do not
    include the rows inside a row."""

    rows: pl.DataFrame
    roots: pl.DataFrame  # columns: root, rank, pid, tid, process, thread
    event: str | None  # the event that was counted between samples; None if the tool does not name it
    has_weights: bool  # False: the samples have no weights that can be added, so each has the weight 1
    left_out: list[str]  # sentences on what was left out

    @property
    def is_ns(self) -> bool:
        return self.has_weights and is_ns(self.event)

    @property
    def title(self) -> str:
        """Says what the sum of the weights is."""
        if self.is_ns:
            return "CPU time of samples"
        quantity = "Weight of samples" if self.has_weights else "Number of samples"
        return quantity if self.event is None else f"{quantity} of {printable(self.event)}"

    @property
    def unit_notes(self) -> list[str]:
        """Returns a sentence on the unit for files that do not show the title; none for nanoseconds."""
        return [] if self.is_ns else [f"The numbers are not nanoseconds: {self.title[0].lower()}{self.title[1:]}"]

    def stacks(self) -> pl.DataFrame:
        """Returns each different stack once, after the stacks around it: stack, parent, root, level, frame, kind,
        samples and weight."""
        return pl.concat(levels(self.rows, [_col(_SUMS).sum()], ("frame", "kind")))


def write_samples(analysis: Analysis, path: Path) -> list[str]:
    """Writes the stacks as lines, as stacks.py does."""
    sampled = sampled_stacks(analysis)
    write_lines(sampled.rows, sampled.roots, path)
    return [*sampled.unit_notes, *sampled.left_out]


def sampled_stacks(analysis: Analysis) -> SampledStacks:
    """Returns the stacks of a trace that has samples. Only the samples of one event are in them, because weights of
    different events cannot be added."""
    trace = analysis.attributed
    counts = trace.samples.group_by(_col("event").cast(pl.String), maintain_order=True).agg(samples=pl.len())
    event = counted_event(counts)
    samples = trace.samples.filter(is_of(event))
    notes = []
    if negative := samples.filter(_col("weight") < 0).height:
        notes.append(f"{plural(negative, 'sample')} with a negative weight count as 0")
    weight = samples["weight"].fill_null(0).clip(lower_bound=0)
    has_weights = 0 < weight.cast(pl.Float64).sum() < _LARGEST_SUM
    samples = samples.with_columns(weight=weight if has_weights else pl.lit(1, dtype=pl.Int64))
    if others := trace.samples.height - samples.height:
        name = "the one without a name" if event is None else printable(event)
        notes.append(f"{plural(others, 'sample')} of other events than {name} were left out")
    if short := samples.filter(is_short()).height:
        share = f"{100 * short / samples.height:.1f} %"
        notes.append(f"{share} of the samples have {SHORT}: their frames stand beside those of whole stacks")
    rows, row = _with_places(trace, samples)
    in_tree, lines = with_calls(trace, rows)
    merged, stacks = _merged(in_tree.rows, samples.select("stack", "libraries", "weight", row=row))
    functions, cut = _functions(stacks, merged)
    if cut:
        notes.append(f"{plural(cut, 'stack')} would have more than {DEEPEST} frames: outer functions were left out")
    below = pl.concat([merged, functions], how="diagonal_relaxed")
    if lines is not None:
        below = lines.below(below, _SUMS)
    return SampledStacks(below, in_tree.roots, event, has_weights, [*notes, *in_tree.left_out])


def _with_places(trace: Tables, samples: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """Returns the tree of functions and ranges, with a row (in no range) for each thread that needs one, and the row
    that each sample is in."""
    rows = tree(trace)
    is_apart = pl.any_horizontal(_col("is_mark", "is_async").fill_null(value=False))
    is_in_tree = rows.select(~is_apart & (_col("depth") < _DEEPEST_RANGE)).to_series()
    # Async ranges are not in the tree. So their samples go to the nearest range around them that is in the tree.
    owner = nearest(rows, is_in_tree).gather(innermost(rows, samples)).cast(ROW_NUMBER)
    threads = samples.filter(owner.is_null()).select(_THREAD).unique(maintain_order=True)
    lone = threads.with_row_index("lone", offset=rows.height)
    place = samples.select(_THREAD).join(lone, on=_THREAD, how="left", nulls_equal=True, maintain_order="left")["lone"]
    added = threads.with_columns(name=pl.lit(NO_RANGE, dtype=pl.Categorical), depth=pl.lit(0, dtype=ROW_NUMBER))
    both = pl.concat([rows.select(*PLACE, kind=kinds(trace)), added], how="diagonal_relaxed")
    return both, owner.zip_with(owner.is_not_null(), place.cast(ROW_NUMBER))


def _merged(rows: pl.DataFrame, samples: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Merges equal rows of the tree, and then the equal stacks in each of them. Samples without a stack are added to
    the rows that they are in. Returns the rows of the tree, and the stacks of the other samples: stack, libraries,
    parent (a row of the tree), samples and weight."""
    keys = [name for name in ("frame", "kind", "call") if name in rows.columns]
    merged = pl.concat(levels(rows, [_col("row")], keys))
    node = merged.select("row", parent="stack").explode("row")
    stacks = (
        samples.join(node, on="row", how="left", maintain_order="left")
        .group_by("stack", "libraries", "parent", maintain_order=True)
        .agg(samples=pl.len().cast(pl.Int64), weight=_col("weight").sum())
    )
    own = stacks.filter(_col("stack").is_null()).group_by(stack="parent").agg(_col(_SUMS).sum())
    merged = merged.drop("row").join(own, on="stack", how="left", maintain_order="left")
    merged = merged.with_columns(_col(_SUMS).fill_null(0)).rename({"stack": "row", "level": "depth"})
    return merged, stacks.filter(_col("stack").is_not_null())


def _functions(stacks: pl.DataFrame, merged: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Returns a row for each function of each stack, like the rows of `merged`, and the number of stacks whose
    outermost functions were left out. Only the innermost function of a stack has its samples and weight."""
    around = merged.select(*(name for name in ("depth", "root", "call") if name in merged.columns), parent="row")
    stacks = stacks.with_row_index("number").join(around, on="parent", how="left", maintain_order="left")
    frames = functions_of(stacks).with_columns(
        inside=pl.len().over("number") - pl.int_range(pl.len()).over("number") - 1
    )
    is_shown = _col("inside").cast(pl.Int64) < DEEPEST - 1 - _col("depth").cast(pl.Int64)
    shown = frames.filter(is_shown)
    cut = frames.filter(~is_shown)["number"].n_unique()
    row, place = pl.int_range(pl.len(), dtype=ROW_NUMBER) + merged.height, pl.int_range(pl.len()).over("number")
    return shown.select(
        *(name for name in ("root", "call") if name in shown.columns),
        row=row.cast(ROW_NUMBER),
        parent=pl.when(place == 0).then("parent").otherwise(row - 1).cast(ROW_NUMBER),
        depth=(_col("depth") + 1 + place).cast(ROW_NUMBER),
        frame=name_by_itself(),
        kind=pl.lit(NATIVE, dtype=pl.Categorical),
        **{name: pl.when(_col("inside") == 0).then(name).otherwise(0) for name in _SUMS},
    ), cut
