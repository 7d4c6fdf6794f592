"""Links the work of graph replays to the ops that were captured into the graphs.

    Replays.of(trace).with_captures(captures, issues) -> the trace with added ranges, and with these columns of work:
        replayed_range_id: the added range of the op whose captured launch the work repeats.
        replay: how the captured launch was found (`replay_matches`); null for work outside of replays, and for replays
            that fit no capture.
        is_replay_sure: True if all captured launches that the work may repeat have the name of the work, and all have
            the same op and sizes.

A program captures a graph (such as a CUDA graph) once and launches it many times. Each launch is a replay: one call of
the host, which does not run the ops again. So the captured ops are added as ranges for each replay, inside the range
that launched the replay. They have no times, because they did not run during the replay. If several captures fit
equally well, work gets an op only if all these captures have the same op. This op is added without module and stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from opspan.analysis.analysed import Analysis
from opspan.analysis.captured_launches import has_captures
from opspan.analysis.captured_ops import KEPT, Capture, above, captured_ops
from opspan.analysis.engine_labels import engine_labels
from opspan.analysis.nest import nearest
from opspan.analysis.replay_matches import KINDS, NO_NAME, Launched, LaunchList, Match, letters, matches, replays, what
from opspan.row_numbers import ROW_NUMBER
from opspan.tables import Issues, Tables, schema
from opspan.tables.schema import REPLAY
from opspan.tables.tables import id_count, ids_of

_col = pl.col
_THREAD = ("rank", "pid", "tid")
_OF_WORK = ("replayed_range_id", "replay", "is_replay_sure")
_UNKNOWN = "\1"  # the letter for work without a name (see `letters`); captured launches have NO_NAME instead


class Replays(NamedTuple):
    """The graph replays of a trace; their captured ops are not known yet. `launched` has a row for each replay."""

    trace: Tables
    attributed: Tables
    launched: pl.DataFrame

    @classmethod
    def of(cls, trace: Tables) -> Replays | None:
        attributed = Analysis(trace).attributed
        launched = replays(attributed)
        return cls(trace, attributed, launched) if launched.height else None

    def with_captures(self, captures: Sequence[Capture], issues: Issues) -> Tables:
        trace, launched = self.trace, self.launched
        if not captures and has_captures(trace.calls):
            captures = [Capture(trace, is_own=True)]  # the recording of the replays also has their captures
        captured = captured_ops(captures) if captures else None
        unmatched = launched.height if captures else 0
        # Only damaged files have several ranges with the same id. Nothing is added to such traces.
        if captured is not None and captured.launches.height and ids_of(trace.ranges).equals(trace.ranges["id"]):
            matched = _matches(self.attributed.ranges, launched, captured.launches)
            unmatched = sum(match is None for match in matched)
            repeats = _repeats(launched, matched, captured.launches)
            trace = _joined(trace, self.attributed, launched, repeats, captured.ranges)
        if "unmatched_replays" not in trace.issues["code"].to_list():
            issues.add("unmatched_replays", unmatched)
        return trace.replace(issues=pl.concat([trace.issues, issues.frame()]))


def _matches(ranges: pl.DataFrame, launched: pl.DataFrame, launches: pl.DataFrame) -> list[Match | None]:
    launches = launches.with_columns(what(_col("kernel"), _col("kind")).alias("what"))
    names = letters(pl.concat([launched["what"].explode(), launches["what"]]))
    return matches(_replays(ranges, launched, names), _launch_lists(launches, names))


def _replays(ranges: pl.DataFrame, launched: pl.DataFrame, names: Mapping[str, str]) -> list[Launched]:
    labels = engine_labels(ranges["name"]).select("name", "batch_size")
    steps = nearest(ranges, ranges["name"].is_in(labels["name"].implode())).gather(launched["range"])
    sizes = ranges["name"].gather(steps).to_frame().join(labels, on="name", how="left", maintain_order="left")
    processes = zip(launched["rank"], launched["pid"], strict=True)
    rows = zip(launched["what"], launched["kind"], steps, sizes["batch_size"], processes, strict=True)
    return [Launched(_text(whats, names), _text(kinds, KINDS), *context) for whats, kinds, *context in rows]


def _launch_lists(launches: pl.DataFrame, names: Mapping[str, str]) -> list[LaunchList]:
    lists = []
    part = pl.struct("recording", "rank", "pid", "tid", "batch_size").rle_id()
    for own in launches.with_row_index("row").with_columns(part=part).partition_by("part", maintain_order=True):
        spans = own.filter(_col("capture").is_not_null()).group_by("capture", maintain_order=True)
        lists.append(
            LaunchList(
                own["row"][0],
                _text(own["what"].to_list(), names, NO_NAME),
                _text(own["kind"].to_list(), KINDS, NO_NAME),
                own["batch_size"][0],
                spans.agg(_col("row").first(), count=pl.len()).select("row", "count").rows(),
                (own["of_rank"][0], own["of_pid"][0]),
            )
        )
    return lists


def _text(values: Iterable[str | None], letter_of: Mapping[str, str], without: str = _UNKNOWN) -> str:
    return "".join([without if value is None else letter_of.get(value, without) for value in values])


def _repeats(launched: pl.DataFrame, replayed: Sequence[Match | None], launches: pl.DataFrame) -> pl.DataFrame:
    """Returns a row for each piece of work of the replays that fit a capture. The columns are replay (row of
    `launched`), work (row of the table work), range (row of the captured ranges; null if it is not known), how (later
    the column `replay` of work) and is_sure."""
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
    )


def _agreements(sets: Mapping[tuple[tuple[int, ...], int], int], launches: pl.DataFrame) -> pl.DataFrame:
    """Compares the ops of the launches that a replay may repeat. A set has the rows of `launches` at which a replay may
    begin, and how many launches the replay has. Returns a row for each set and each offset `at` from these rows:
    `is_sure` is True if the launches at this offset from all these rows have the same op."""
    parts = []
    for (places, count), number in sets.items():
        offsets = pl.DataFrame({"at": pl.int_range(count, dtype=ROW_NUMBER, eager=True)})
        pairs = offsets.join(pl.DataFrame({"place": places}, schema={"place": ROW_NUMBER}), how="cross")
        ops = pairs.with_columns(launches["op"].gather(pairs["at"] + pairs["place"]))
        # Launches outside of all ops have a null instead of an op. Nulls count as equal.
        is_sure = (_col("op").n_unique() == 1).alias("is_sure")
        parts.append(ops.group_by("at", maintain_order=True).agg(is_sure, set=pl.lit(number, dtype=ROW_NUMBER)))
    return pl.concat([pl.DataFrame(schema={"at": ROW_NUMBER, "is_sure": pl.Boolean, "set": ROW_NUMBER}), *parts])


def _copies(repeats: pl.DataFrame, parent: pl.Series) -> pl.DataFrame:
    """Returns a row for each range to add for a replay, outer ranges first. The columns are replay, range, parent and
    is_ambiguous. Range and parent are rows of the captured ranges. The parent is null if it is not added itself."""
    known = repeats.drop_nulls("range").select("replay", "range", is_ambiguous=_col("how") == "ambiguous")
    pairs = known.unique().join(above(parent, known["range"]), left_on="range", right_on="of", maintain_order="left")
    # For an ambiguous replay, only the ops are known, and not the ranges around them.
    pairs = pairs.filter(~_col("is_ambiguous") | (_col("row") == _col("range")))
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
    copies = copies.with_columns(id=id_count(trace.ranges) + pl.int_range(pl.len(), dtype=pl.Int64))
    around = copies.select("replay", parent="range", parent_id="id")
    copies = copies.join(around, on=["replay", "parent"], how="left", maintain_order="left")
    kept, calls = captured[copies["range"]], attributed.calls[launched["call"].gather(copies["replay"])]
    rows = kept.select(*KEPT, "stack", module_path="module").with_columns(
        pl.when(~copies["is_ambiguous"]).then(name).alias(name)
        for name in ("stack", "module_path", "class_name", "args")
    )
    alone = _alone(copies, calls)
    around = (
        copies["replay"].to_frame().join(alone.select("replay", "id"), on="replay", how="left", maintain_order="left")
    )
    launching = ids.gather(calls["range"]).zip_with(calls["range"].is_not_null(), around["id"])
    rows = rows.with_columns(
        *(calls[name] for name in _THREAD),
        copies["id"],
        copies["parent_id"].fill_null(launching).alias("parent_id"),
    )
    rows = pl.concat([alone.drop("replay"), rows], how="diagonal_relaxed")
    places = repeats.join(copies.select("replay", "range", "id"), on=["replay", "range"], how="left")
    places = places.select("work", replayed_range_id="id", replay=_col("how").cast(REPLAY), is_replay_sure="is_sure")
    row = pl.int_range(pl.len(), dtype=ROW_NUMBER)
    columns = trace.work.select(work=row).join(places, on="work", how="left", maintain_order="left").drop("work")
    # A saved trace may already have values in these columns. They are kept for work that has no match now.
    columns = columns.with_columns(
        trace.work[name].zip_with(columns["replay"].is_null(), columns[name]) for name in _OF_WORK
    )
    return trace.replace(
        ranges=pl.concat([trace.ranges, schema.conform("ranges", rows)], how="diagonal"),
        work=trace.work.with_columns(columns),
    )


def _alone(copies: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Returns a range for each replay that was launched outside of all ranges. It has the name and the start of the
    call that launched the replay. Its duration is 0, so that the host's time still counts as outside of ranges."""
    rows = copies.select("replay").hstack(calls.select(*_THREAD, "name", "start_ns", "range"))
    rows = rows.filter(_col("range").is_null()).unique("replay", keep="first", maintain_order=True).drop("range")
    kind = pl.lit("unknown", dtype=schema.KIND)
    return rows.with_columns(end_ns="start_ns", kind=kind, id=id_count(copies) + pl.int_range(pl.len(), dtype=pl.Int64))
