"""The model: tables as data, frames that conform to them, traces side by side, saving and loading."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import opspan
from opspan.errors import NotATrace, OpspanError, ReadError, StrictError, TooNew, UsageError, WriteError
from opspan.tables import CODES, TABLES, Issues, Metadata, schema, side_by_side
from opspan.trace import Trace


def trace(
    path: str = "a",
    host: str = "box",
    origin: int | None = 10**18,
    clock: str | None = "CLOCK_MONOTONIC",
    **frames: pl.DataFrame,
) -> Trace:
    ranges = {"id": [0, 1], "start_ns": [5, 6], "end_ns": [9, None], "name": ["mm", "t"], "kind": ["op", "user"]}
    frames.setdefault("ranges", pl.DataFrame({**ranges, "parent_id": [None, 0]}, strict=False))
    return Trace((Metadata("capture", (path,), host=host, clock=clock, origin_utc_ns=origin),), **frames)


def test_a_trace_has_every_table_and_every_column() -> None:
    made = trace()

    for name, table in TABLES.items():
        assert dict(getattr(made, name).schema) == table.schema
    assert made.ranges["seq"].to_list() == [None, None]
    assert made.frames.keys() == TABLES.keys()


def test_columns_of_an_analysis_are_kept_behind_the_others() -> None:
    made = trace()
    more = made.replace(ranges=made.ranges.with_columns(depth=pl.lit(1)))

    assert more.ranges.columns == [*TABLES["ranges"].schema, "depth"]
    assert "depth" not in made.ranges.columns


def test_every_column_is_described() -> None:
    for table in TABLES.values():
        names = [column.name for column in table.columns]
        assert len(names) == len(set(names))
        for column in table.columns:
            assert column.sentence.endswith("."), column
            assert column.name.endswith("_ns") == (column.unit == "ns"), column
            if column.refers:
                other, name = column.refers.split(".")
                assert name in TABLES[other].schema


def test_every_issue_has_a_severity_and_advice() -> None:
    for name, code in CODES.items():
        assert code.severity in schema.SEVERITY.categories, name
        assert code.message
        assert code.advice.endswith(".")


def test_repr_says_what_is_in_it() -> None:
    assert repr(trace()) == "Trace(capture, host box, 2 ranges, 0.000 s)"


# --- issues


def test_an_issue_without_a_count_is_none() -> None:
    issues = Issues("x.opspan")
    issues.add("open_ranges", 0)
    issues.add("lost_events", 3, "here")

    frame = issues.frame()

    assert frame.row(0, named=True) == {
        "rank": 0,
        "code": "lost_events",
        "severity": "warning",
        "count": 3,
        "message": "events could not be written while capturing (3): here",
        "advice": CODES["lost_events"].advice,
        "path": "x.opspan",
    }
    assert frame.height == 1


def test_an_unknown_issue_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        Issues().add("no_such_thing")


def test_check_names_the_first_bad_issue() -> None:
    issues = Issues("x.opspan")
    issues.add("open_ranges")
    assert trace(issues=issues.frame()).check().issues.height == 1

    issues.add("lost_events", 3)
    issues.add("disk_full")
    with pytest.raises(StrictError, match=r"x\.opspan: events could not .* \(3\) and 1 more; .*Free some disk space"):
        trace(issues=issues.frame()).check()


# --- side by side


def test_ranks_are_numbered_and_ids_stay_unique() -> None:
    relations = pl.DataFrame({"range_id": [1], "other_id": [0]})
    whole = side_by_side([trace(), trace(relations=relations), trace()])

    assert whole.ranges["rank"].to_list() == [0, 0, 1, 1, 2, 2]
    assert whole.ranges["id"].to_list() == [0, 1, 2, 3, 4, 5]
    assert whole.ranges["parent_id"].to_list() == [None, 0, None, 2, None, 4]
    assert whole.relations.select("rank", "range_id", "other_id").rows() == [(1, 3, 2)]
    assert len(whole.ranks) == 3


def test_ids_of_a_filtered_trace_stay_unique() -> None:
    some = trace()
    some = some.replace(ranges=some.ranges.filter(pl.col("id") == 1))

    assert side_by_side([some, trace()]).ranges["id"].to_list() == [1, 2, 3]


def test_other_machines_are_moved_to_the_first_ones_clock() -> None:
    whole = side_by_side([trace(), trace(host="other", origin=10**18 + 1_000)])

    assert whole.ranges["start_ns"].to_list() == [5, 6, 1005, 1006]
    assert whole.ranges["end_ns"].to_list() == [9, None, 1009, None]
    assert {rank.origin_utc_ns for rank in whole.ranks} == {10**18}
    assert whole.ranks[1].options["shifted_ns"] == 1_000


def test_one_machines_clock_is_not_moved_by_what_utc_did_meanwhile() -> None:
    whole = side_by_side([trace(), trace(origin=10**18 + 1_000)])
    assert whole.ranges["start_ns"].to_list() == [5, 6, 5, 6]


def test_a_machine_that_was_restarted_has_another_clock() -> None:
    whole = side_by_side([trace(), trace(origin=10**18 + 10**12)])
    assert whole.ranges["start_ns"].to_list() == [5, 6, 10**12 + 5, 10**12 + 6]


def test_a_trace_without_utc_time_is_an_issue() -> None:
    whole = side_by_side([trace(), trace(origin=None)])

    assert whole.ranges["start_ns"].to_list() == [5, 6, 5, 6]
    assert whole.issues["code"].to_list() == ["clocks_not_aligned"]


def test_side_by_side_of_nothing_and_of_one() -> None:
    one = trace()
    assert side_by_side([one]) is one
    with pytest.raises(UsageError):
        side_by_side([])


# --- saving


def test_saving_and_loading_is_exact(tmp_path: Path) -> None:
    made = Trace.of(side_by_side([trace(), trace(host="ü", origin=None)]))
    made = made.replace(
        ranges=made.ranges.with_columns(depth=pl.Series([0, 1, None, 3]), tags=pl.Series([["a"], [], None, ["b"]]))
    )

    made.save(tmp_path / "run.trace")
    loaded = opspan.load(tmp_path / "run.trace")

    assert loaded.ranks == made.ranks
    for name, frame in made.frames.items():
        assert_frame_equal(loaded.frames[name], frame, check_exact=True)


def test_saving_leaves_nothing_beside_it(tmp_path: Path) -> None:
    trace().save(tmp_path / "run.trace")
    trace().save(tmp_path / "run.trace", overwrite=True)

    assert [entry.name for entry in tmp_path.iterdir()] == ["run.trace"]


def test_saving_replaces_nothing_unasked(tmp_path: Path) -> None:
    trace().save(tmp_path / "run.trace")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("keep")

    with pytest.raises(WriteError, match="overwrite=True"):
        trace().save(tmp_path / "run.trace")
    with pytest.raises(WriteError, match="not a saved trace"):
        trace().save(tmp_path / "notes", overwrite=True)
    assert (tmp_path / "notes" / "mine.txt").read_text() == "keep"


def test_saving_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="cannot write"):
        trace().save(tmp_path / "file" / "run.trace")


def test_options_that_are_not_json_are_refused_before_anything_is_replaced(tmp_path: Path) -> None:
    odd = Trace((Metadata("capture", options={"when": object()}),))
    with pytest.raises(WriteError):
        odd.save(tmp_path / "run.trace")
    assert list(tmp_path.iterdir()) == []


def test_a_newer_saved_trace_is_refused(tmp_path: Path) -> None:
    trace().save(tmp_path / "run.trace")
    index = tmp_path / "run.trace" / "trace.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "version": 99}))

    with pytest.raises(TooNew, match="version 99"):
        opspan.load(tmp_path / "run.trace")


def test_columns_that_a_saved_trace_does_not_have_are_null(tmp_path: Path) -> None:
    trace().save(tmp_path / "run.trace")
    table = tmp_path / "run.trace" / "ranges.parquet"
    pl.read_parquet(table).drop("seq").write_parquet(table)

    assert opspan.load(tmp_path / "run.trace").ranges["seq"].to_list() == [None, None]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ranges.parquet", None),
        ("ranges.parquet", b"PAR1 no more"),
        ("ranges.parquet", b""),
        ("trace.json", b'{"format": "opspan trace", "version": 1}'),
        ("trace.json", b'{"format": "opspan trace", "version": 1, "ranks": [{"no": 1}], "tables": {}}'),
        ("trace.json", b'{"format": "opspan trace", "version": 1, "ranks": 3, "tables": ["ranges"]}'),
    ],
)
def test_a_damaged_saved_trace_is_one_error(name: str, content: bytes | None, tmp_path: Path) -> None:
    trace().save(tmp_path / "run.trace")
    file = tmp_path / "run.trace" / name
    file.unlink()
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ReadError, match="damaged"):
        opspan.load(tmp_path / "run.trace")


@pytest.mark.slow
def test_flipped_bytes_in_a_saved_trace_never_raise_anything_else(tmp_path: Path) -> None:
    import random

    trace().save(tmp_path / "run.trace")
    chance = random.Random(3)
    files = sorted((tmp_path / "run.trace").iterdir())
    for _ in range(150):
        file = chance.choice(files)
        sound = file.read_bytes()
        raw = bytearray(sound)
        for _ in range(chance.choice([1, 5])):
            raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        file.write_bytes(raw)
        with contextlib.suppress(OpspanError):
            assert repr(opspan.load(tmp_path / "run.trace"))
        file.write_bytes(sound)


def test_a_folder_that_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("[]")
    with pytest.raises(NotATrace, match=r"a folder with trace\.json"):
        opspan.load(tmp_path)
    with pytest.raises(NotATrace, match="not a saved trace"):
        opspan.load(tmp_path, source="saved")
