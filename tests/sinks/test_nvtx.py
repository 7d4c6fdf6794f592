from __future__ import annotations

import os

import pytest

from sinks.running import Line, Native, drive, lines_of

# A list of tensors, one of its items undefined; a tensor; a number.
SIZES = "[*several(tensor(2, 4), NONE, tensor(3)), *tensor(5, 6), NONE]"
SIZES_TEXT = "[[[2, 4], [], [3]], [5, 6], []]"


def pushes(output: str) -> list[Line]:
    return lines_of(output, ["push"])


def test_nobody_listening_is_said_and_nothing_starts(native: Native) -> None:
    output = drive(native, "print(native.opspan_listening(NVTX), start_nvtx(), native.opspan_push(own('x'), TO_NVTX))")

    listening, start = output.split(" ", 1)
    assert listening == "0"
    assert "no NVTX tool is attached" in start
    assert start.strip().endswith("-1")


def test_auto_is_payload_when_the_tool_knows_no_schemas(native: Native) -> None:
    output = drive(
        native,
        f"""
        assert start_nvtx() == PAYLOAD
        begin(NVTX, 1, "aten::linear", sequence=7, sizes={SIZES})
        begin(NVTX, 2, "aten::t")
        end(NVTX, 2)
        end(NVTX, 1)
        print(taken())
        """,
        tool="nvtx",
    )

    linear, transpose = pushes(output)
    assert linear.fields == [
        "opspan",
        "registered",
        f"aten::linear, sizes = {SIZES_TEXT}",
        "1",
        "ff4c78a8",
        "int64",
        "7",
    ]
    assert transpose.fields == ["opspan", "registered", "aten::t", "1", "ff4c78a8", "none", ""]
    assert [line.call for line in lines_of(output, ["push", "pop"])] == ["push", "push", "pop", "pop"]
    categories = {line[3]: line[2] for line in lines_of(output, ["category"])}
    assert categories["1"] == "op"
    assert categories["2"] == "backward"
    assert len(categories) == 13


def test_auto_is_schema_when_the_tool_knows_schemas(native: Native) -> None:
    output = drive(
        native,
        f"""
        assert start_nvtx() == SCHEMA
        begin(NVTX, 5, "MmBackward0", kind=BACKWARD, sequence=7, forward_thread=1, sizes={SIZES})
        begin(NVTX, 6, "aten::mm")
        print(taken())
        """,
        tool="nvtx",
        OPSPAN_RECORDER_SCHEMA="1",
    )

    (schema,) = lines_of(output, ["schema"])
    assert schema[2] == "opspan.op seq:17@0 op_id:18@8 fwd_tid:16@16 kind:16@20 sizes:80@24"
    backward, mm = pushes(output)
    assert backward.fields[:6] == ["opspan", "registered", "MmBackward0", "2", "fff58518", "schema"]
    assert backward[6] == f"seq=7 op_id=5 fwd_tid={backward.thread} kind=2 sizes={SIZES_TEXT}"
    assert mm[6] == "seq=-1 op_id=6 fwd_tid=0 kind=1 sizes="


def test_schema_is_refused_by_a_tool_without_schemas(native: Native) -> None:
    assert "does not know NVTX payload schemas" in drive(native, "print(start_nvtx(SCHEMA))", tool="nvtx")


def test_the_forward_thread_is_named_unless_it_is_the_main_thread(native: Native) -> None:
    output = drive(
        native,
        """
        import threading
        start_nvtx(PAYLOAD)
        begin(NVTX, 1, "aten::mm", thread=1)
        def other():
            begin(NVTX, 2, "aten::mm", thread=2)
            print("forward", threading.get_native_id())
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        for forward in (1, 2, 3):
            begin(NVTX, 10 + forward, "MmBackward0", kind=BACKWARD, forward_thread=forward, sizes=tensor(forward))
            begin(NVTX, 20 + forward, "MmBackward0", kind=BACKWARD, forward_thread=forward)
        print(taken())
        """,
        tool="nvtx",
    )

    forward = output.splitlines()[0].split()[1]
    names = [line[2] for line in pushes(output) if line[2].startswith("MmBackward0")]
    assert names == [
        "MmBackward0, sizes = [[1]]",
        "MmBackward0",
        f"MmBackward0, fwd_tid = {forward}, sizes = [[2]]",
        f"MmBackward0, fwd_tid = {forward}",
        "MmBackward0, fwd_tid = 0, sizes = [[3]]",
        "MmBackward0, fwd_tid = 0",
    ]


def test_text_form_says_everything_in_the_name(native: Native) -> None:
    output = drive(
        native,
        f"""
        assert start_nvtx(TEXT) == TEXT
        begin(NVTX, 1, "aten::cat", sequence=3, sizes={SIZES})
        begin(NVTX, 2, "CatBackward0", kind=BACKWARD, sequence=3, forward_thread=9)
        print(taken())
        """,
        tool="nvtx",
    )

    cat, backward = pushes(output)
    assert cat.fields[:4] == ["opspan", "ascii", f"aten::cat, seq = 3, op_id = 1, sizes = {SIZES_TEXT}", "1"]
    assert backward[2] == "CatBackward0, seq = 3, op_id = 2, fwd_tid = 0"


def test_torch_form_is_torchs_text_in_the_default_domain(native: Native) -> None:
    output = drive(
        native,
        f"""
        assert start_nvtx(TORCH) == TORCH
        begin(NVTX, 1, "aten::linear")
        end(NVTX, 1, outputs=[0, 4096])
        begin(NVTX, 2, "aten::cat", sequence=3, sizes={SIZES}, tensors=[4096, 0, 512])
        begin(NVTX, 3, "aten::cat", sizes=several(NONE), tensors=[0])
        print(taken())
        """,
        tool="nvtx",
    )

    texts = [line.fields for line in pushes(output)]
    assert texts == [
        ["", "ascii", "aten::linear, op_id = 1"],
        ["", "ascii", "aten::cat, seq = 3, op_id = 2, sizes = [[2, 4], [3], [5, 6], []], "
         "input_op_ids = [(1,1), (0,-1), (0,-1)]"],
        ["", "ascii", "aten::cat, op_id = 3, sizes = [[]], input_op_ids = [(0,-1)]"],
    ]  # fmt: skip


def test_past_max_strings_sizes_are_left_out_and_counted(native: Native) -> None:
    output = drive(
        native,
        """
        start_nvtx(PAYLOAD, max_strings=2)
        for round in range(2):
            for size in range(4):
                begin(NVTX, 1, "aten::mm", sizes=tensor(size))
                end(NVTX, 1)
        print(taken(), stop(NVTX))
        """,
        tool="nvtx",
    )

    names = [line[2] for line in pushes(output)]
    assert names == ["aten::mm, sizes = [[0]]", "aten::mm, sizes = [[1]]", "aten::mm", "aten::mm"] * 2
    assert "ranges=8 late_ends=0 sizes_dropped=4" in output


def test_names_that_users_number_are_never_registered(native: Native) -> None:
    output = drive(
        native,
        """
        start_nvtx(PAYLOAD)
        for i in range(100):
            begin(NVTX, 1, f"iteration {i}", kind=USER)
            end(NVTX, 1)
        print(taken())
        """,
        tool="nvtx",
    )

    assert not lines_of(output, ["register"])
    assert pushes(output)[99].fields[:3] == ["opspan", "ascii", "iteration 99"]


def test_each_name_is_registered_once_over_sessions_and_threads(native: Native) -> None:
    output = drive(
        native,
        """
        import threading
        def ops():
            for i in range(50):
                begin(NVTX, 1, f"aten::op{i % 5}", thread=threading.get_native_id())
                end(NVTX, 1, thread=threading.get_native_id())
        for session in range(3):
            start_nvtx(PAYLOAD)
            ops()
            thread = threading.Thread(target=ops)
            thread.start()
            thread.join()
            stop(NVTX)
        print(taken())
        """,
        tool="nvtx",
    )

    assert len(lines_of(output, ["register"])) == 5
    assert len(pushes(output)) == 300


def test_a_range_that_another_thread_ends_is_popped_on_its_own_thread(native: Native) -> None:
    output = drive(
        native,
        """
        import threading
        start_nvtx(PAYLOAD)
        begin(NVTX, 1, "async", thread=1)
        thread = threading.Thread(target=lambda: (begin(NVTX, 2, "other", thread=2), end(NVTX, 1), end(NVTX, 2, 2)))
        thread.start()
        thread.join()
        begin(NVTX, 3, "next")
        print(taken(), stop(NVTX))
        """,
        tool="nvtx",
    )

    calls = [(line.call, line.fields[2:3]) for line in lines_of(output, ["push", "pop"])]
    assert calls == [("push", ["async"]), ("push", ["other"]), ("pop", []), ("pop", []), ("push", ["next"])]
    threads = [line.thread for line in lines_of(output, ["push", "pop"])]
    assert threads[3] == threads[0] == threads[4] != threads[1] == threads[2]
    assert "late_ends=1" in output


def test_a_range_that_ends_out_of_order_is_popped_when_it_is_on_top(native: Native) -> None:
    output = drive(
        native,
        """
        start_nvtx(PAYLOAD)
        for key in (1, 2, 3):
            begin(NVTX, key, f"op{key}")
        end(NVTX, 1)
        end(NVTX, 2)
        before = taken()
        end(NVTX, 3)
        print(before.count("pop"), taken().count("pop"))
        """,
        tool="nvtx",
    )

    assert output.split() == ["0", "3"]


def test_what_began_before_stop_is_popped_after_it(native: Native) -> None:
    output = drive(
        native,
        """
        start_nvtx(PAYLOAD)
        begin(NVTX, 1, "op")
        stop(NVTX)
        begin(NVTX, 2, "between")
        end(NVTX, 2)
        end(NVTX, 1)
        print(taken())
        """,
        tool="nvtx",
    )

    assert [line.call for line in lines_of(output, ["push", "pop"])] == ["push", "pop"]


def test_a_second_session_is_refused_and_the_first_goes_on(native: Native) -> None:
    output = drive(native, "start_nvtx(); print(start_nvtx()); begin(NVTX, 1, 'op'); print(taken())", tool="nvtx")

    refusal, _, rest = output.partition("\n")
    assert "is on already" in refusal
    assert len(pushes(rest)) == 1


@pytest.mark.parametrize("name", ["naïve ☃", 'quo"ted', "x" * 100_000, ""])
def test_any_name_arrives_as_it_is(native: Native, name: str) -> None:
    output = drive(
        native,
        """
        import os
        start_nvtx()
        begin(NVTX, 1, os.environ["NAME"])
        native.opspan_push(own(os.environ["NAME"]), TO_NVTX)
        print(taken())
        """,
        tool="nvtx",
        NAME=name,
    )

    assert [line[2] for line in pushes(output)] == [name, name]


def test_a_child_of_fork_is_its_own_main_thread(native: Native) -> None:
    output = drive(
        native,
        """
        import os
        start_nvtx(PAYLOAD)
        begin(NVTX, 1, "parent's")
        if os.fork() == 0:
            taken()
            begin(NVTX, 2, "aten::mm")
            begin(NVTX, 3, "MmBackward0", kind=BACKWARD, forward_thread=1)
            for key in (3, 2, 1):
                end(NVTX, key)
            print(taken(), flush=True)
            os._exit(0)
        os.wait()
        """,
        tool="nvtx",
    )

    assert [line[2] for line in pushes(output)] == ["aten::mm", "MmBackward0"]
    assert {line.thread for line in lines_of(output, ["push"])} != {os.getpid()}
    assert len(lines_of(output, ["pop"])) == 3
