"""A trace that opspan exports in Perfetto's own form has each row in Perfetto, at its place and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from opspan.analysis.autograd import BY_NESTING
from opspan.tables import side_by_side
from opspan.trace import Trace
from readers.samples import samples
from tiers import before_release
from views.perfetto_seen import Seen, by_bindings, by_trace_processor
from views.sources import UTC_NS, capture, nsys
from views.test_chrome_back import hostile

SAMPLES = samples(with_ranges=True) | {
    "small nsys": lambda folder: nsys(folder / "run.sqlite"),
    "small capture": lambda folder: capture(folder / "run"),
}
REAL = (
    "nsys/train_fsdp_2gpu.sqlite",
    "kineto/norm_layers.json.gz",
    "kineto/mi300_ddp_resnet18.json.gz",
    "nsys/open_ranges.sqlite",
    *before_release(["nsys/graph_nodes.sqlite", "rocpd/torch_autograd.rpd", "vtune/r010hs_tasks/r010hs"]),
)
TABLES = ("functions", "ranges", "calls", "work")
Place = tuple[Any, ...]


def seen(trace: Trace, folder: Path, reader: Callable[[Path], Seen], name: str = "out.perfetto-trace") -> Seen:
    trace.export(folder / name)
    found = reader(folder / name)
    assert not found.problems
    return found


def last_ns(trace: Trace) -> int:
    ends = [trace.frames[name][column].max() for name in TABLES for column in ("start_ns", "end_ns")]
    return max(end for end in ends if isinstance(end, int))


def place_of(row: dict[str, Any]) -> Place:
    if row.get("device_id") is not None:
        context = "" if row["context_id"] is None else f" of context {row['context_id']}"
        stream = "of unknown number" if row["stream_id"] is None else row["stream_id"]
        return (f"device {row['device_id']}", f"stream {stream}{context}")
    return ("thread", row["pid"], row["tid"]) if row["tid"] else ("process", row["pid"], "thread 0")


def expected_slices(trace: Trace) -> Counter[tuple[int, int, str, Place]]:
    found: Counter[tuple[int, int, str, Place]] = Counter()
    last = last_ns(trace)
    for table in TABLES:
        for row in trace.frames[table].iter_rows(named=True):
            if row["start_ns"] is None:
                continue
            end = row["start_ns"] if row.get("is_mark") else last if row["end_ns"] is None else row["end_ns"]
            took = max(0, end - row["start_ns"])
            name = row.get("full_name") or row["name"]
            found[row["start_ns"], took, "(no name)" if name is None else name, place_of(row)] += 1
    return found


def expected_arrows(trace: Trace) -> Counter[Any]:
    done = trace.analysed.attributed
    name = pl.coalesce("full_name", "name").cast(pl.String)
    work = done.work.select("start_ns", "call", name=name)
    ranges = done.ranges.with_columns(pl.col("name").cast(pl.String))
    linked = ranges.filter(pl.col("forward").is_not_null(), pl.col("link") != BY_NESTING)
    calls = done.calls.select("start_ns", pl.col("name").cast(pl.String))
    found: Counter[Any] = Counter()
    for targets, sources, column in ((work, calls, "call"), (linked, ranges, "forward")):
        starts, names = sources["start_ns"].to_list(), sources["name"].to_list()
        for at, name_to, source in targets.select("start_ns", "name", column).iter_rows():
            if source is not None and at is not None and starts[source] <= at:
                found[(starts[source], names[source]), (at, name_to)] += 1
    return found


READERS = [pytest.param(by_bindings, id="bindings"), pytest.param(by_trace_processor, id="trace_processor")]


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", REAL)
def test_all_of_a_real_file_is_there(
    name: str, reader: Callable[[Path], Seen], traces_dir: Path, tmp_path: Path
) -> None:
    if not (traces_dir / name).exists():
        pytest.skip(f"{name} is not among the recorded traces")
    trace = opspan.load(traces_dir / name)
    found = seen(trace, tmp_path, reader)
    slices: Counter[Any] = Counter()
    instants = 0
    for (start, took, title, _, place), count in found.slices.items():
        if place[-1] == "memory":
            instants += count
        else:
            slices[start, took, title, place] += count
    assert slices == expected_slices(trace)
    assert instants == trace.memory["time_ns"].count()
    assert found.arrows == expected_arrows(trace)
    counters = Counter(zip(trace.counters["time_ns"], trace.counters["value"], strict=True))
    own = Counter((at, value) for at, name, _, value in found.counters.elements() if name in names_of(trace))
    assert own == counters
    queued = [value for _, name, _, value in found.counters if name == "launches waiting"]
    assert bool(queued) == (trace.analysed.queues.height > 0)


def names_of(trace: Trace) -> set[str]:
    names = trace.counters.select(pl.col("name", "domain").cast(pl.String)).unique()
    return {name if domain is None else f"{name} ({domain})" for name, domain in names.iter_rows()}


@pytest.mark.parametrize("name", SAMPLES)
def test_every_source(name: str, tmp_path: Path) -> None:
    trace = opspan.load(SAMPLES[name](tmp_path))
    found = seen(trace, tmp_path, by_bindings)
    titles = Counter((start, took, title) for start, took, title, _, _ in found.slices.elements())
    expected = Counter((start, took, title) for start, took, title, _ in expected_slices(trace).elements())
    assert not expected - titles
    assert titles.total() - expected.total() == trace.memory["time_ns"].count()


@pytest.mark.parametrize("reader", [READERS[0], pytest.param(by_trace_processor, marks=pytest.mark.slow)])
def test_nothing_of_hostile_cells_is_lost(reader: Callable[[Path], Seen], tmp_path: Path) -> None:
    trace = hostile()
    found = seen(trace, tmp_path, reader)
    points = trace.memory["time_ns"].count()
    assert found.slices.total() == sum(trace.frames[name]["start_ns"].count() for name in TABLES) + points
    values = found.args[5, trace.ranges["name"][0]]
    assert values["Payload without sign"] in (-1, (1 << 64) - 1)
    assert values["Sequence number"] == trace.ranges["seq"][0]


@pytest.mark.parametrize("reader", [READERS[0], pytest.param(by_trace_processor, marks=pytest.mark.slow)])
def test_args_are_those_of_the_rows(reader: Callable[[Path], Seen], tmp_path: Path) -> None:
    trace = opspan.load(capture(tmp_path / "run"))
    found = seen(trace, tmp_path, reader, "out.pftrace.gz")
    with_sizes = trace.ranges.filter(pl.col("sizes").is_not_null(), pl.col("seq").is_not_null())
    assert with_sizes.height
    for row in with_sizes.iter_rows(named=True):
        args = found.args[row["start_ns"], row["name"]]
        assert (args["Input Dims"], args["Sequence number"], args["Kind"]) == (row["sizes"], row["seq"], row["kind"])


def test_ranks_with_equal_processes_are_tracks_with_names(tmp_path: Path) -> None:
    one = opspan.load(nsys(tmp_path / "one.sqlite"))
    trace = Trace.of(side_by_side([one, opspan.load(nsys(tmp_path / "other.sqlite", 3))]))
    found = seen(trace, tmp_path, by_bindings)
    assert {place[0][:6] for _, _, _, _, place in found.slices} == {"rank 0", "rank 1"}
    assert found.slices.total() == sum(trace.frames[name]["start_ns"].count() for name in TABLES)


def test_what_ends_before_it_begins_is_no_arrow_and_is_said(tmp_path: Path) -> None:
    trace = opspan.load(nsys(tmp_path / "run.sqlite"))
    work = trace.work.with_columns(start_ns=pl.lit(0, pl.Int64), end_ns=pl.lit(1, pl.Int64))
    trace = trace.replace(work=work)
    assert trace.analysed.attributed.work["call"].count()
    said = trace.export(tmp_path / "out.perfetto-trace")
    found = by_bindings(tmp_path / "out.perfetto-trace")
    assert not [arrow for arrow in found.arrows if arrow[1][0] == 0]
    assert any("arrows" in sentence for sentence in said or [])


def test_times_are_those_of_the_clock_of_the_trace(tmp_path: Path) -> None:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

    opspan.load(nsys(tmp_path / "run.sqlite")).export(tmp_path / "out.perfetto-trace")
    trace = pb.Trace.FromString((tmp_path / "out.perfetto-trace").read_bytes())
    (clocks,) = [packet.clock_snapshot.clocks for packet in trace.packet if packet.HasField("clock_snapshot")]
    assert [(clock.clock_id, clock.timestamp) for clock in clocks] == [(6, 0), (1, UTC_NS)]


def test_an_empty_trace_has_no_events(tmp_path: Path) -> None:
    trace = opspan.load(nsys(tmp_path / "run.sqlite"))
    empty = trace.replace(**{name: frame.clear() for name, frame in trace.frames.items()})
    found = seen(empty, tmp_path, by_bindings)
    assert not found.slices
    assert not found.counters
