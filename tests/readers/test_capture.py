"""Labels, own ranges and ends: one small example of each form in which a capture has them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from builders import capture as build
from builders.capture import BACKWARD, ITT, MODULE, OP, STEP, USER, USERS, Capture
from readers.loading import load, rows

LABEL = ["name", "kind", "seq", "op_id", "forward_tid", "sizes"]


# --- one label in every form


def in_record(thread: build.Thread) -> None:
    thread.torch("MmBackward0", 1, 2, seq=3, op_id=7, category=BACKWARD, forward=100, sizes="[[2], [[3], []]]")


def in_schema(thread: build.Thread) -> None:
    thread.schema(4096, "opspan.op", build.OWN_ENTRIES, domain="opspan", size=32)
    unit = thread.range("MmBackward0", 1, 2, domain="opspan", category=BACKWARD, color=0xFF123456, schema=4096)
    text = thread.capture.text("[[2], [[3], []]]")
    thread.blob(unit, build.own_payload(3, 7, 100, BACKWARD, text), 4096)


def in_payload(thread: build.Thread) -> None:
    thread.range("MmBackward0, sizes = [[2], [[3], []]]", 1, 2, domain="opspan", category=BACKWARD, value=3)


def in_text(thread: build.Thread) -> None:
    text = "MmBackward0, seq = 3, op_id = 7, sizes = [[2], [[3], []]]"
    thread.range(text, 1, 2, domain="opspan", category=BACKWARD)


def in_torchs_text(thread: build.Thread) -> None:
    thread.range("MmBackward0, seq = 3, op_id = 7, sizes = [[2], [3], []]", 1, 2)


def in_task(thread: build.Thread) -> None:
    unit = thread.range("MmBackward0", 1, 2, source=ITT, domain="opspan")
    thread.ids(unit, (7, 5, 0))
    thread.attribute(unit, "seq", 3)
    thread.attribute(unit, "op_id", 7, unsigned=True)
    thread.attribute(unit, "sizes", "[[2], [[3], []]]")
    thread.attribute(unit, "fwd_tid", 100, unsigned=True)


def in_collected_schema(thread: build.Thread) -> None:
    more = {"domain": "opspan", "category": BACKWARD, "color": 0xFF123456, "sizes": "[[2], [[3], []]]"}
    thread.range("MmBackward0", 1, 2, value=3, identity=7, forward=100, label=True, **more)


def in_collected_task(thread: build.Thread) -> None:
    more = {"source": ITT, "domain": "opspan", "sizes": "[[2], [[3], []]]"}
    thread.range("MmBackward0", 1, 2, value=3, identity=7, forward=100, label=True, **more)


def in_task_text(thread: build.Thread) -> None:
    text = "MmBackward0, seq = 3, op_id = 7, sizes = [[2], [[3], []]]"
    thread.range(text, 1, 2, source=ITT, domain="opspan")


def in_torchs_task(thread: build.Thread) -> None:
    thread.range("MmBackward0", 1, 2, source=ITT, domain="PyTorch")


@pytest.mark.parametrize(
    ("form", "lost"),
    [
        (in_record, {}),
        (in_schema, {}),
        (in_payload, {"op_id": None}),
        (in_text, {}),
        (in_torchs_text, {"forward_tid": None, "sizes": "[[2], [3], []]"}),
        (in_task, {}),
        (in_collected_schema, {}),
        (in_collected_task, {}),
        (in_task_text, {}),
        (in_torchs_task, {"seq": None, "op_id": None, "forward_tid": None, "sizes": None}),
    ],
    ids=lambda form: getattr(form, "__name__", ""),
)
def test_every_form_of_a_label_gives_the_same_columns(form, lost: dict, tmp_path: Path) -> None:
    made = Capture(pid=100)
    form(made.thread(101))

    trace = load(made, tmp_path)

    full = {"name": "MmBackward0", "kind": "backward", "seq": 3, "op_id": 7, "forward_tid": 100}
    assert trace.ranges.select(LABEL).row(0, named=True) == {**full, "sizes": "[[2], [[3], []]]", **lost}
    assert trace.ranges.select(pl.col("^payload_.*$").is_null().all()).row(0) == (True,) * 4
    assert trace.issues.is_empty()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("MmBackward0", 100), ("MmBackward0, fwd_tid = 812", 812), ("MmBackward0, fwd_tid = 0", None), ("aten::mm", None)],
)
def test_the_main_thread_is_meant_where_an_own_backward_label_names_none(
    text: str, expected: int | None, tmp_path: Path
) -> None:
    made = Capture(pid=100)
    made.thread(101).range(text, 1, 2, domain="opspan", category=BACKWARD if "Backward" in text else OP, value=3)

    assert load(made, tmp_path).ranges["forward_tid"].to_list() == [expected]


def test_nothing_means_not_known_where_the_thread_has_a_place_of_its_own(tmp_path: Path) -> None:
    made = Capture(pid=100)
    thread = made.thread(101)
    thread.torch("MmBackward0", 1, 2, seq=3, category=BACKWARD, forward=0)
    thread.schema(4096, "opspan.op", build.OWN_ENTRIES, domain="opspan", size=32)
    unit = thread.range("MmBackward0", 3, 4, domain="opspan", category=BACKWARD, schema=4096)
    thread.blob(unit, build.own_payload(-1, 0, 0, BACKWARD, 0), 4096)
    task = thread.range("MmBackward0", 5, 6, source=ITT, domain="opspan")
    thread.attribute(task, "op_id", 7)
    thread.range("MmBackward0", 7, 8, domain="opspan", category=BACKWARD, label=True)
    thread.range("MmBackward0", 9, 10, source=ITT, domain="opspan", identity=8, label=True)

    assert rows(load(made, tmp_path).ranges, "forward_tid", "seq", "op_id") == [
        (None, 3, None),
        (None, None, None),
        (None, None, 7),
        (None, None, None),
        (None, None, 8),
    ]


def test_parents_stand_in_the_units_of_own_tasks(tmp_path: Path) -> None:
    made = Capture()
    thread = made.thread(100)
    users = thread.range("step", 1, 20, source=ITT, domain="opspan")
    thread.ids(users, (5, 0x6F7073, 1))
    more = {"source": ITT, "domain": "opspan", "label": True}
    thread.range("aten::linear", 2, 9, identity=5, parent=5 | 1 << 63, **more)
    thread.range("aten::mm", 3, 4, identity=6, parent=5, **more)
    thread.range("aten::t", 10, 11, identity=7, **more)
    thread.relation(12, (7, 0x6F7073, 0), 1, (6, 0x6F7073, 0))

    trace = load(made, tmp_path)

    assert trace.ranges["parent_id"].to_list() == [None, 0, 1, None]
    assert rows(trace.relations, "range_id", "other_id") == [(3, 2)]
    assert trace.issues.is_empty()


def test_text_of_other_domains_is_only_text(tmp_path: Path) -> None:
    made = Capture()
    made.thread(100).range("allreduce, seq = 4", 1, 2, domain="NCCL", category=3, value=9)
    made.threads[0].name_category(3, "collective", "NCCL")

    trace = load(made, tmp_path)

    assert rows(trace.ranges, "name", "kind", "seq", "domain", "category", "payload_int") == [
        ("allreduce, seq = 4", "unknown", None, "NCCL", "collective", 9)
    ]


# --- a user's own ranges


def test_own_ranges_of_every_way_are_alike(tmp_path: Path) -> None:
    made = Capture()
    main = made.thread(100)
    unit = main.range("net.0", 1, 2, source=USER, category=MODULE)
    main.attribute(unit, "class", "torch.nn.Linear")
    main.range("net.0, class = torch.nn.Linear", 3, 4, domain="opspan", category=MODULE)
    unit = main.range("net.0", 5, 6, source=ITT, domain="opspan")  # not at once with NVTX's: that would be one range
    main.attribute(unit, "class", "torch.nn.Linear")

    assert (
        rows(load(made, tmp_path).ranges, "name", "kind", "class_name") == [("net.0", "module", "torch.nn.Linear")] * 3
    )


def test_payloads_of_own_ranges_are_no_sequence_numbers(tmp_path: Path) -> None:
    made = Capture()
    main = made.thread(100)
    main.range("load", 1, 2, source=USER, category=USERS, value=-5)
    main.range("load", 1, 2, domain="opspan", category=USERS, value=2**63 + 1, unsigned=True)
    main.range("load", 1, 2, domain="opspan", category=100, value=2.5)
    main.range("ProfilerStep#3", 1, 2, domain="opspan", category=STEP, value=3)
    task = main.range("load", 1, 2, source=ITT, domain="opspan")
    main.attribute(task, "payload", 0.5)
    main.name_category(100, "io", "opspan")

    assert rows(
        load(made, tmp_path).ranges, "kind", "seq", "category", "payload_int", "payload_uint", "payload_float"
    ) == [
        ("user", None, None, -5, None, None),
        ("user", None, None, None, 2**63 + 1, None),
        ("user", None, "io", None, None, 2.5),
        ("step", None, None, 3, None, None),
        ("user", None, None, None, None, 0.5),
    ]


def test_a_name_too_many_for_itts_table_is_read_from_beside_it(tmp_path: Path) -> None:
    made = Capture()
    main = made.thread(100)
    unit = main.range("other", 1, 2, source=ITT, domain="opspan")
    main.attribute(unit, "name", "aten::mm")
    main.attribute(unit, "seq", 4)

    assert rows(load(made, tmp_path).ranges, "name", "kind", "seq") == [("aten::mm", "op", 4)]


def test_a_name_that_looks_like_a_label_stays_a_name_where_the_label_stands_beside_it(tmp_path: Path) -> None:
    made = Capture()
    main = made.thread(100)
    name = "looks, like = a label, seq = 7"
    task = main.range(name, 1, 2, source=ITT, domain="opspan")
    main.ids(task, (1, 5, 0))
    main.schema(4096, "opspan.op", build.OWN_ENTRIES, domain="opspan", size=32)
    main.blob(
        main.range(name, 3, 4, domain="opspan", category=USERS, schema=4096),
        build.own_payload(-1, 0, 0, USERS, 0),
        4096,
    )
    main.torch(name, 1, 2, category=USERS)

    assert rows(load(made, tmp_path).ranges, "name", "text", "seq", "kind") == [(name, None, None, "user")] * 3


def test_colours_are_kept_where_there_are_any(tmp_path: Path) -> None:
    made = Capture()
    made.thread(100).range("a", 1, 2, color=0)
    made.threads[0].range("b", 1, 2)

    assert load(made, tmp_path).ranges["color"].to_list() == [0, None]


# --- ends


def test_ranges_end_on_other_threads(tmp_path: Path) -> None:
    made = Capture()
    main, other = made.thread(100), made.thread(101)
    main.range("async", 10, kind=build.ASYNC, identity=5)
    nested = main.range("nested", 20)
    other.end(40, 5)
    other.foreign_end(50, 100, nested)
    main.range("open", 60)
    main.range("mark", 70, kind=build.MARK)
    main.range(None, 80, 90, kind=build.FRAME, domain="game", source=ITT)

    trace = load(made, tmp_path)

    assert rows(trace.ranges, "name", "tid", "end_tid", "start_ns", "end_ns", "is_async", "is_mark") == [
        ("async", 100, 101, 10, 40, True, False),
        ("nested", 100, 101, 20, 50, False, False),
        ("open", 100, None, 60, None, False, False),
        ("mark", 100, None, 70, None, False, True),
        ("game", 100, None, 80, 90, True, False),
    ]
    assert rows(trace.issues, "code", "count") == [("open_ranges", 1)]


def test_an_id_may_be_used_again(tmp_path: Path) -> None:
    made = Capture()
    main = made.thread(100)
    for start in (10, 30):
        main.range("task", start, kind=build.ASYNC, identity=5)
        main.end(start + 5, 5)

    assert rows(load(made, tmp_path).ranges, "start_ns", "end_ns") == [(10, 15), (30, 35)]


def test_an_end_of_nothing_is_an_issue(tmp_path: Path) -> None:
    made = Capture()
    made.thread(100).end(40, 5)

    assert rows(load(made, tmp_path).issues, "code", "severity", "count") == [("end_without_start", "warning", 1)]


def test_a_thread_number_may_come_again(tmp_path: Path) -> None:
    made = Capture()
    first = made.thread(101, "first")
    lost = first.range("of the first", 10)
    second = made.thread(101, "second")
    second.range("of the second", 30, 35)
    made.thread(102).foreign_end(20, 101, lost)

    trace = load(made, tmp_path)

    assert rows(trace.ranges, "name", "tid", "end_ns") == [("of the first", 101, 20), ("of the second", 101, 35)]
    assert rows(trace.threads, "tid", "name") == [(101, "second"), (102, None)]


def test_ranges_over_several_chunks_keep_what_belongs_to_them(tmp_path: Path) -> None:
    made = Capture()
    threads = [made.thread(tid) for tid in (100, 101)]
    for i in range(100):
        for thread in threads:
            unit = thread.range("load", i, i + 1, source=USER, category=USERS)
            thread.attribute(unit, "args", f"{thread.tid}-{i}")

    trace = load(made, tmp_path)

    assert trace.ranges.height == 200
    assert trace.ranges.select((pl.format("{}-{}", "tid", "start_ns") == pl.col("args")).all()).item()
