from __future__ import annotations

from pathlib import Path

import pytest

from builders import capture_units
from sinks.running import Native, drive, lines_of


def test_a_range_reaches_nvtx_without_a_session(native: Native) -> None:
    output = drive(
        native,
        """
        print(native.opspan_push(own("load", category=b"io", color=0xff112233, payload=42), TO_ALL))
        print(native.opspan_push(own("step", detail=b"x = 1", payload=1.5), TO_ALL))
        native.opspan_mark(own("here", category=b"io"), TO_ALL)
        print(native.opspan_pop(TO_ALL), native.opspan_pop(TO_ALL), native.opspan_pop(TO_ALL))
        print(taken())
        """,
        tool="nvtx",
    )

    assert output.splitlines()[:3] == ["0", "1", "1 0 -1"]
    load, step, mark = lines_of(output, ["push", "mark"])
    assert load.fields == ["opspan", "ascii", "load", "100", "ff112233", "int64", "42"]
    assert step.fields == ["opspan", "ascii", "step, args = x = 1", "4", "ff54a24b", "double", "1.5"]
    assert mark.fields[:4] == ["opspan", "ascii", "here", "100"]
    assert lines_of(output, ["category"])[-1].fields == ["opspan", "", "io", "100"]
    assert len(lines_of(output, ["pop"])) == 2


def test_modules_are_registered_and_say_their_class(native: Native) -> None:
    output = drive(
        native, "native.opspan_push(own('net.0', kind=MODULE, detail=b'Linear'), 1); print(taken())", tool="nvtx"
    )

    (module,) = lines_of(output, ["push"])
    assert module.fields[:4] == ["opspan", "registered", "net.0, class = Linear", "5"]


def test_under_torch_labels_ranges_are_plain(native: Native) -> None:
    output = drive(
        native,
        """
        start_nvtx(TORCH)
        native.opspan_push(own("load", category=b"io", payload=42, detail=b"x"), TO_NVTX)
        native.opspan_mark(own("here"), TO_NVTX)
        stop(NVTX)
        native.opspan_pop(TO_NVTX)
        print(taken())
        """,
        tool="nvtx",
    )

    lines = [[line.call, *line.fields] for line in lines_of(output, ["push", "mark", "pop"])]
    assert lines == [["push", "", "ascii", "load"], ["mark", "", "ascii", "here"], ["pop", ""]]


def test_a_range_that_may_end_anywhere_reaches_nvtx(native: Native) -> None:
    output = drive(
        native,
        """
        import threading
        id = native.opspan_range_start(own("async"), TO_ALL)
        thread = threading.Thread(target=native.opspan_range_end, args=(id,))
        thread.start()
        thread.join()
        native.opspan_range_end(id)
        print(taken())
        """,
        tool="nvtx",
    )

    assert [line.call for line in lines_of(output, ["start", "end"])] == ["start", "end"]


def test_itt_tells_what_a_range_carries(native: Native) -> None:
    output = drive(
        native,
        """
        start_itt()
        native.opspan_push(own("load", category=b"io", detail=b"x", payload=42), TO_ALL)
        begin(ITT, 9, "aten::mm")
        native.opspan_mark(own("here"), TO_ALL)
        end(ITT, 9)
        native.opspan_pop(TO_ALL)
        id = native.opspan_range_start(own("async", payload=0.5), TO_ALL)
        native.opspan_range_end(id)
        print(taken())
        """,
        tool="itt",
    )

    lines = [[line.call, *line.fields] for line in lines_of(output)]
    assert lines == [
        ["begin", "opspan", "1/6f7073/1", "0/0/0", "load"],
        ["metadata", "opspan", "1/6f7073/1", "category", "str io"],
        ["metadata", "opspan", "1/6f7073/1", "args", "str x"],
        ["metadata", "opspan", "1/6f7073/1", "payload", "s64 42"],
        ["begin", "opspan", "9/6f7073/0", "1/6f7073/1", "aten::mm"],
        ["metadata", "opspan", "9/6f7073/0", "op_id", "u64 9"],
        ["marker", "opspan", "2/6f7073/1", "3", "here"],
        ["end", "opspan"],
        ["end", "opspan"],
        ["begin_overlapped", "opspan", "3/6f7073/1", "0/0/0", "async"],
        ["metadata", "opspan", "3/6f7073/1", "payload", "double 0.5"],
        ["end_overlapped", "opspan", "3/6f7073/1", ""],
    ]


@pytest.mark.parametrize("first", ["op", "range"])
def test_ranges_and_ops_that_cross_are_closed_as_a_stack(native: Native, first: str) -> None:
    ends = ["end(NVTX, 1)", "native.opspan_pop(TO_NVTX)"]
    output = drive(
        native,
        f"""
        start_nvtx(PAYLOAD)
        begin(NVTX, 1, "op")
        native.opspan_push(own("mine"), TO_NVTX)
        {"; ".join(ends if first == "op" else reversed(ends))}
        print(taken())
        """,
        tool="nvtx",
    )

    assert [line.call for line in lines_of(output, ["push", "pop"])] == ["push", "push", "pop", "pop"]


def test_a_pop_undoes_its_own_push_when_a_session_began_in_between(native: Native, tmp_path: Path) -> None:
    drive(
        native,
        f"""
        start_capture({str(tmp_path)!r})
        native.opspan_push(own("outer"), TO_ALL)
        stop(CAPTURE)
        native.opspan_push(own("between"), TO_ALL)  # reaches NVTX alone
        start_capture({str(tmp_path)!r})
        native.opspan_push(own("inner"), TO_ALL)
        for _ in range(2):
            native.opspan_pop(TO_ALL)
        native.opspan_push(own("last"), TO_ALL)
        for _ in range(2):
            native.opspan_pop(TO_ALL)
        stop(CAPTURE)
        print(native.opspan_pop(TO_ALL))
        """,
        tool="nvtx",
    )

    first, second = sorted(capture_units.read_folder(tmp_path), key=lambda capture: capture.clock[0])
    assert [unit.name for unit in first.units(capture_units.RANGE)] == ["outer"]
    assert [(unit.name, bool(unit.end_ns)) for unit in second.units(capture_units.RANGE)] == [
        ("inner", True),
        ("last", True),
    ]


def test_pushes_that_are_only_forgotten_have_no_ceiling(native: Native, tmp_path: Path) -> None:
    output = drive(
        native,
        """
        import os
        start_capture(os.environ["FOLDER"])
        forgotten = own("forgotten")
        for _ in range(40_000): native.opspan_push(forgotten, TO_ALL)
        print(native.opspan_push(own("last"), TO_ALL))
        begin(CAPTURE, 1, "aten::mm")
        end(CAPTURE, 1)
        print(native.opspan_pop(TO_ALL))
        print(stop(CAPTURE))
        """,
        FOLDER=str(tmp_path),
    )

    (capture,) = capture_units.read_folder(tmp_path)
    ranges = capture.units(capture_units.RANGE)
    assert len(ranges) == 40_002
    assert all(unit.end_ns for unit in ranges[-2:])
    assert not any(unit.end_ns for unit in ranges[:-2])
    level, popped, stats = output.splitlines()
    assert (level, popped) == ("40000", "40000")
    given_up = 40_002 - 16_384
    assert f"given_up={given_up}" in stats


def test_where_too_many_are_open_the_innermost_still_end(native: Native, tmp_path: Path) -> None:
    drive(
        native,
        """
        import os
        start_capture(os.environ["FOLDER"])
        deep = own("deep")
        for _ in range(20_000): native.opspan_push(deep, TO_ALL)
        depths = [native.opspan_pop(TO_ALL) for _ in range(20_000)]
        assert depths == [*range(19_999, 19_999 - 16_384, -1), *[-1] * (20_000 - 16_384)], depths[-3:]
        native.opspan_push(own("after"), TO_ALL)
        assert native.opspan_pop(TO_ALL) >= 0
        stop(CAPTURE)
        """,
        FOLDER=str(tmp_path),
    )

    (capture,) = capture_units.read_folder(tmp_path)
    ended = [unit.end_ns > 0 for unit in capture.units(capture_units.RANGE)]
    assert ended == [False] * (20_000 - 16_384) + [True] * 16_385


def test_what_torchs_form_has_no_place_for_is_counted(native: Native) -> None:
    output = drive(
        native,
        """
        start_nvtx(TORCH)
        native.opspan_push(own("bare"), TO_NVTX)
        native.opspan_push(own("net.0", kind=MODULE, detail=b"Linear"), TO_NVTX)
        for fields in ({"category": b"io"}, {"color": 0xff112233}, {"payload": 0}, {"detail": b"x"}):
            native.opspan_push(own("more", **fields), TO_NVTX)
        native.opspan_mark(own("mark", payload=1.5), TO_NVTX)
        print(stop(NVTX))
        """,
        tool="nvtx",
    )

    assert "fields_dropped=5" in output
