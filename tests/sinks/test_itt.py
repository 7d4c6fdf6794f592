from __future__ import annotations

import pytest

from collectors.running import package_folder
from sinks.running import Native, drive, lines_of


def test_nobody_listening_is_said_and_nothing_starts(native: Native) -> None:
    library = next(package_folder("ittapi").glob("native*.so"))
    output = drive(
        native,
        """
        print(open_itt(), native.opspan_listening(ITT), native.opspan_push(own("x"), TO_ITT))
        print(start_itt())
        """,
        ITT=str(library),
    )

    first, second = output.splitlines()
    assert first == "0 0 -1"
    assert "no ITT collector is attached" in second


def test_a_library_without_itt_is_refused(native: Native) -> None:
    output = drive(native, "import os; print(open_itt(os.environ['SINKS'])); print(open_itt('/nowhere.so'))")

    without, missing = output.splitlines()
    assert "exports no ITT" in without
    assert "/nowhere.so" in missing


@pytest.mark.slow
def test_a_task_carries_ids_metadata_and_its_parent(native: Native) -> None:
    output = drive(
        native,
        """
        assert start_itt() == TASK
        begin(ITT, 5, "aten::linear", sequence=7, sizes=[*tensor(2, 4), NONE])
        begin(ITT, 6, "aten::t")
        end(ITT, 6)
        end(ITT, 5)
        print(taken())
        """,
        tool="itt",
    )

    assert [[line.call, *line.fields] for line in lines_of(output)] == [
        ["begin", "opspan", "5/6f7073/0", "0/0/0", "aten::linear"],
        ["metadata", "opspan", "5/6f7073/0", "seq", "s64 7"],
        ["metadata", "opspan", "5/6f7073/0", "op_id", "u64 5"],
        ["metadata", "opspan", "5/6f7073/0", "sizes", "str [[2, 4], []]"],
        ["begin", "opspan", "6/6f7073/0", "5/6f7073/0", "aten::t"],
        ["metadata", "opspan", "6/6f7073/0", "op_id", "u64 6"],
        ["end", "opspan"],
        ["end", "opspan"],
    ]


def test_a_backward_task_depends_on_the_last_forward_op_with_its_number(native: Native) -> None:
    output = drive(
        native,
        """
        import threading
        start_itt()
        for key, name in ((1, "aten::linear"), (2, "aten::addmm")):
            begin(ITT, key, name, sequence=7)
        for key in (2, 1):
            end(ITT, key)
        thread = threading.Thread(target=lambda: (begin(ITT, 3, "aten::mm", thread=2, sequence=7), end(ITT, 3, 2)))
        thread.start()
        thread.join()
        begin(ITT, 11, "AddmmBackward0", kind=BACKWARD, sequence=7, forward_thread=1)
        begin(ITT, 12, "MmBackward0", kind=BACKWARD, sequence=7, forward_thread=2)
        begin(ITT, 13, "LostBackward0", kind=BACKWARD, sequence=8, forward_thread=1)
        begin(ITT, 14, "torch::autograd::AccumulateGrad", kind=BACKWARD, forward_thread=1)
        print(taken(), stop(ITT))
        """,
        tool="itt",
    )

    relations = [line.fields for line in lines_of(output, ["relation"])]
    assert relations == [
        ["opspan", "11/6f7073/0", "1", "2/6f7073/0"],
        ["opspan", "12/6f7073/0", "1", "3/6f7073/0"],
    ]
    assert "relations_missed=1" in output
    begun = {line[3]: line.thread for line in lines_of(output, ["begin"])}
    forward = {line[1]: line[3] for line in lines_of(output, ["metadata"]) if line[2] == "fwd_tid"}
    assert forward["11/6f7073/0"] == f"u64 {begun['aten::linear']}"
    assert forward["12/6f7073/0"] == f"u64 {begun['aten::mm']}"


def test_forwards_of_a_thread_that_has_ended_are_still_found(native: Native) -> None:
    output = drive(
        native,
        """
        import threading
        start_itt()
        def forward(number):
            begin(ITT, number, "f", thread=number, sequence=0)
            end(ITT, number, number)
        for number in range(2, 30):
            thread = threading.Thread(target=forward, args=(number,))
            thread.start()
            thread.join()
        for number in range(2, 30):
            begin(ITT, 100 + number, "FBackward", kind=BACKWARD, sequence=0, forward_thread=number)
        print(taken())
        """,
        tool="itt",
    )

    pairs = [(line[1], line[3]) for line in lines_of(output, ["relation"])]
    assert pairs == [(f"{100 + number}/6f7073/0", f"{number}/6f7073/0") for number in range(2, 30)]


def test_torch_form_is_as_bare_as_torchs(native: Native) -> None:
    output = drive(
        native,
        "start_itt(TORCH); begin(ITT, 5, 'aten::mm', sequence=7, sizes=tensor(2)); end(ITT, 5); print(taken())",
        tool="itt",
    )

    lines = [[line.call, *line.fields] for line in lines_of(output)]
    assert lines == [["begin", "PyTorch", "0/0/0", "0/0/0", "aten::mm"], ["end", "PyTorch"]]


def test_text_form_names_the_task_with_everything_until_the_table_is_full(native: Native) -> None:
    output = drive(
        native,
        """
        start_itt(TEXT, max_strings=2)
        for key in (1, 2, 3, 4):
            begin(ITT, key, "aten::mm", sequence=key, sizes=tensor(2))
        print(taken(), stop(ITT))
        """,
        tool="itt",
    )

    assert [line[3] for line in lines_of(output, ["begin"])] == [
        "aten::mm, seq = 1, op_id = 1, sizes = [[2]]",
        "aten::mm, seq = 2, op_id = 2, sizes = [[2]]",
        "aten::mm",
        "aten::mm",
    ]
    assert "sizes_dropped=2" in output


def test_a_domain_that_the_collector_has_switched_off_gets_nothing(native: Native) -> None:
    output = drive(
        native,
        "print(start_itt()); begin(ITT, 1, 'aten::mm'); end(ITT, 1); print(taken(), stop(ITT))",
        tool="itt",
        OPSPAN_RECORDER_DISABLE="opspan",
    )

    assert not lines_of(output)
    assert "ranges=0" in output


def test_collect_pauses_and_resumes(native: Native) -> None:
    output = drive(
        native, "open_itt(); native.opspan_itt_collect(0); native.opspan_itt_collect(1); print(taken())", tool="itt"
    )

    assert [line.call for line in lines_of(output)] == ["pause", "resume"]


def test_a_task_that_another_thread_ends_is_ended_on_its_own_thread(native: Native) -> None:
    output = drive(
        native,
        """
        import threading
        start_itt()
        begin(ITT, 1, "async", thread=1)
        thread = threading.Thread(target=lambda: end(ITT, 1, 1))
        thread.start()
        thread.join()
        begin(ITT, 2, "next")
        print(taken(), stop(ITT))
        """,
        tool="itt",
    )

    lines = lines_of(output, ["begin", "end"])
    assert [line.call for line in lines] == ["begin", "end", "begin"]
    assert len({line.thread for line in lines}) == 1
    assert lines[2][2] == "0/0/0"  # not a child of what has ended
    assert "late_ends=1" in output
