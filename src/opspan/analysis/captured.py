"""Gives the work of graph replays the ops that were captured into the graphs.

    Replays.of(trace).with_captures(captures, issues) -> the trace with more rows of ranges, and in `work`:
        replayed_range_id: the captured op that the work repeats.
        replay: how the captured launch was found (`replay_matches`); null for work that is no part of a replay, and for
            replays that fit no capture.
        is_replay_sure: whether all launches that the work may repeat have the same op and sizes, and have its name.

A graph that a program captures once and launches many times runs without its ops: a replay is one call of the host. The
added ranges are the captured ops, once for each replay, below the range that launched the replay. They have no times,
because they did not run then. If several captures fit and nothing tells which, only ops that all of them have at this
place are added, without module and stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from opspan.analysis.analysed import Analysis
from opspan.analysis.captured_launches import BEGIN_CAPTURE
from opspan.analysis.captured_ops import KEPT, Capture, above, captured_ops
from opspan.analysis.engine_labels import engine_labels
from opspan.analysis.nest import nearest
from opspan.analysis.replay_matches import KINDS, Launched, LaunchList, Match, letters, matches, replays, what
from opspan.row_numbers import ROW_NUMBER
from opspan.tables import Issues, Tables, schema
from opspan.tables.schema import REPLAY
from opspan.tables.tables import ids_of

_col = pl.col
_NO_NAME = "\0"  # the letter of work without a name, which no launch has


class Replays(NamedTuple):
    """The replays of a trace that has some whose captured ops are not known. `launched` has a row for each."""

    trace: Tables
    attributed: Tables
    launched: pl.DataFrame

    @classmethod
    def of(cls, trace: Tables) -> Replays | None:
        attributed = Analysis(trace).attributed
        launched = replays(attributed)
        return cls(trace, attributed, launched) if launched.height else None

    def with_captures(self, captures: Sequence[Capture], issues: Issues) -> Tables:
        # The trace may have begun before its own captures.
        own = [Capture(self.trace)] if _calls_named(self.trace, BEGIN_CAPTURE) else []
        trace, recordings = self.trace, [*captures, *own]
        captured = captured_ops(recordings) if recordings else None
        if captured is not None and captured.launches.height:
            matched = _matches(self.attributed.ranges, self.launched, captured.launches)
            issues.add("unmatched_replays", sum(match is None for match in matched))
            repeats = _repeats(self.launched, matched, captured.launches)
            trace = _joined(trace, self.attributed, self.launched, repeats, captured.ranges)
        return trace.replace(issues=pl.concat([trace.issues, issues.frame()]))


def _calls_named(trace: Tables, part: str) -> bool:
    names = trace.calls["name"].unique().drop_nulls().cast(pl.String)
    return bool(names.str.contains(part, literal=True).any())


def _matches(ranges: pl.DataFrame, launched: pl.DataFrame, launches: pl.DataFrame) -> list[Match | None]:
    launches = launches.with_columns(what(_col("kernel"), _col("kind")).alias("what"))
    names = letters(pl.concat([launched["what"].explode(), launches["what"]]))
    return matches(_replays(ranges, launched, names), _recordings(launches, names))


def _replays(ranges: pl.DataFrame, launched: pl.DataFrame, names: Mapping[str, str]) -> list[Launched]:
    labels = engine_labels(ranges["name"]).select("name", "batch_size")
    steps = nearest(ranges, ranges["name"].is_in(labels["name"].implode())).gather(launched["range"])
    sizes = ranges["name"].gather(steps).to_frame().join(labels, on="name", how="left", maintain_order="left")
    rows = zip(launched["what"], launched["kind"], steps, sizes["batch_size"], strict=True)
    return [Launched(_text(whats, names), _text(kinds, KINDS), step, size) for whats, kinds, step, size in rows]


def _recordings(launches: pl.DataFrame, names: Mapping[str, str]) -> list[LaunchList]:
    recordings = []
    part = pl.struct("recording", "batch_size").rle_id()
    for own in launches.with_row_index("row").with_columns(part=part).partition_by("part", maintain_order=True):
        spans = own.filter(_col("capture").is_not_null()).group_by("capture", maintain_order=True)
        recordings.append(
            LaunchList(
                own["row"][0],
                None if own["what"].null_count() else _text(own["what"].to_list(), names),
                _text(own["kind"].to_list(), KINDS),
                own["batch_size"][0],
                spans.agg(_col("row").first(), count=pl.len()).select("row", "count").rows(),
            )
        )
    return recordings


def _text(values: Iterable[str | None], letter_of: Mapping[str, str]) -> str:
    return "".join([_NO_NAME if value is None else letter_of.get(value, _NO_NAME) for value in values])


def _repeats(launched: pl.DataFrame, replayed: Sequence[Match | None], launches: pl.DataFrame) -> pl.DataFrame:
    """Returns a row for each work of the replays that fit: replay (a row of `launched`), work and range (rows; the
    range is null where it is not known), how, is_sure, and with_chain: whether the ranges around are known, too."""
    sets: dict[tuple[tuple[int, ...], int], int] = {}
    rows = []
    for number, match in enumerate(replayed):
        if match is not None:
            key = (match.places, len(launched["work"][number]))
            rows.append((number, match.first, match.how, match.is_named, sets.setdefault(key, len(sets))))
    schema = {"replay": ROW_NUMBER, "first": ROW_NUMBER, "how": pl.String, "is_named": pl.Boolean, "set": ROW_NUMBER}
    matched = pl.DataFrame(rows, schema=schema, orient="row")
    work = launched.select("work").with_row_index("replay").cast({"replay": ROW_NUMBER})
    repeats = matched.join(work, on="replay", maintain_order="left").with_columns(
        at=pl.int_ranges(0, _col("work").list.len(), dtype=ROW_NUMBER)
    )
    repeats = repeats.explode("work", "at").join(_agreements(sets, launches), on=["set", "at"], how="left")
    repeats = repeats.with_columns(is_sure=_col("is_sure") & _col("is_named"))
    is_known = _col("is_sure") | (_col("how") != "ambiguous")
    return repeats.with_columns(
        range=pl.when(is_known).then(launches["range"].gather(repeats["first"] + repeats["at"])),
        with_chain=_col("is_same_chain") | (_col("how") != "ambiguous"),
    )


def _agreements(sets: Mapping[tuple[tuple[int, ...], int], int], launches: pl.DataFrame) -> pl.DataFrame:
    """Returns, for each set of places and each launch from there on (at), whether all places have the same op there
    (is_sure), and the same ops around it (is_same_chain)."""
    parts = []
    for (places, count), number in sets.items():
        offsets = pl.DataFrame({"at": pl.int_range(count, dtype=ROW_NUMBER, eager=True)})
        pairs = offsets.join(pl.DataFrame({"place": places}, schema={"place": ROW_NUMBER}), how="cross")
        codes = launches.select("own", "chain")[pairs["at"] + pairs["place"]]
        same = pairs.hstack(codes).group_by("at", maintain_order=True)
        # A launch outside of all ops has no code.
        agreed = (_col(code).n_unique() == 1 for code in ("own", "chain"))
        parts.append(same.agg(*agreed, set=pl.lit(number, dtype=ROW_NUMBER)))
    empty = pl.DataFrame(schema={"at": ROW_NUMBER, "own": pl.Boolean, "chain": pl.Boolean, "set": ROW_NUMBER})
    return pl.concat([empty, *parts]).rename({"own": "is_sure", "chain": "is_same_chain"})


def _copies(repeats: pl.DataFrame, parent: pl.Series) -> pl.DataFrame:
    """Returns the captured ranges of each replay, those around a range before it: replay, range, parent (rows of the
    captured ranges; the parent is null if it is no range of the replay), is_ambiguous."""
    known = repeats.drop_nulls("range").select("replay", "range", "with_chain", is_ambiguous=_col("how") == "ambiguous")
    pairs = known.unique().join(above(parent, known["range"]), left_on="range", right_on="of", maintain_order="left")
    pairs = pairs.filter(_col("with_chain") | (_col("row") == _col("range")))
    copies = pairs.group_by("replay", range="row").agg(_col("is_ambiguous").first()).sort("replay", "range")
    copies = copies.with_columns(parent.gather(copies["range"]).alias("parent"))
    is_there = copies.select("replay", parent="range", is_there=pl.lit(value=True))
    copies = copies.join(is_there, on=["replay", "parent"], how="left", maintain_order="left")
    return copies.with_columns(pl.when("is_there").then("parent").alias("parent")).drop("is_there")


def _joined(
    trace: Tables, attributed: Tables, launched: pl.DataFrame, repeats: pl.DataFrame, captured: pl.DataFrame
) -> Tables:
    copies = _copies(repeats, captured["parent"])
    ids = ids_of(trace.ranges)
    copies = copies.with_columns(id=_next(ids) + pl.int_range(pl.len(), dtype=pl.Int64))
    around = copies.select("replay", parent="range", parent_id="id")
    copies = copies.join(around, on=["replay", "parent"], how="left", maintain_order="left")
    kept, calls = captured[copies["range"]], attributed.calls[launched["call"].gather(copies["replay"])]
    rows = kept.select(*KEPT, "stack", module_path="module").with_columns(
        pl.when(~copies["is_ambiguous"]).then(name).alias(name) for name in ("stack", "module_path")
    )
    rows = rows.with_columns(
        *(calls[name] for name in ("rank", "pid", "tid")),
        copies["id"],
        copies["parent_id"].fill_null(ids.gather(calls["range"])).alias("parent_id"),
    )
    places = repeats.join(copies.select("replay", "range", "id"), on=["replay", "range"], how="left")
    places = places.select("work", replayed_range_id="id", replay=_col("how").cast(REPLAY), is_replay_sure="is_sure")
    row = pl.int_range(pl.len(), dtype=ROW_NUMBER)
    columns = trace.work.select(work=row).join(places, on="work", how="left", maintain_order="left").drop("work")
    return trace.replace(
        ranges=pl.concat([trace.ranges, schema.conform("ranges", rows)], how="diagonal"),
        work=trace.work.with_columns(columns),
    )


def _next(ids: pl.Series) -> int:
    highest = ids.max()
    return highest + 1 if isinstance(highest, int) else 0
