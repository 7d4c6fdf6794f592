"""What logs of the compiler say: functions that were compiled again, graph breaks, and how long compiling took."""

from __future__ import annotations

from typing import Any

import pytest

from findings.made import Case, Made, case_tests
from findings.test_host import compiling, regions

S = 1_000_000_000


def logged(made: Made, *rows: dict[str, Any], table: str = "compilations") -> Made:
    defaults = {"rank": 0, "pid": 1, "file": "src/model.py", "line": 3, "function": "f"}
    if table == "compilations":
        defaults |= {"compile_id": "0/0", "is_backward": False, "duration_ns": S, "attempt": 0}
    made.rows.setdefault(table, []).extend(defaults | row for row in rows)
    return made


def plain() -> Made:
    return Made().launch(900, "gemm", 910, 90)


def long(seconds: int, **row: Any) -> Made:
    whole = {"dynamo_ns": seconds * S, "aot_autograd_ns": 50 * S, "inductor_ns": 49 * S, "code_gen_ns": 5 * S}
    one = {"duration_ns": (seconds - 2) * S, "cache": "miss", **whole, **row}
    return logged(plain(), one, {"compile_id": "1/0", "duration_ns": 2 * S, "cache": "hit", "line": 9, "function": "g"})


def recorded(*rows: dict[str, Any]) -> Made:
    return logged(plain(), *({"duration_ns": 500, **row} for row in rows))


CASES = [
    Case(
        "compile-time",
        lambda: long(60),
        None,
        None,
        {"ns": 60 * S, "compilations": 2, "misses": 1, "phase_ns": 44 * S},
        {
            "59 s": lambda: long(59),
            "no log": plain,
            "nobody says how long": lambda: logged(plain(), {"duration_ns": None}),
            "it was recorded, for less than a tenth": lambda: recorded({"end_ns": 900}, {"end_ns": 600, "rank": 0}),
            "before the recording": lambda: recorded({"end_ns": -1, "duration_ns": 70 * S}),
            "two processes of 40 s": lambda: logged(
                plain(), {"duration_ns": 40 * S}, {"duration_ns": 40 * S, "pid": 2}
            ),
        },
        words={"phase": "Inductor"},
    ),
]

test_it_fires, test_it_is_silent = case_tests(CASES)


def test_compiling_that_was_recorded_is_a_share_of_the_recording() -> None:
    # 200 to 700 and 500 to 1500; a third one ended before the recording began.
    made = recorded({"end_ns": 700}, {"end_ns": 1500, "duration_ns": 1000}, {"end_ns": -5})
    evidence = made.findings()["compile-time"].evidence

    assert evidence.figures["ns"] == 1300
    assert evidence.figures["recorded_share"] == 0.13
    assert "perhaps" not in evidence.sentence


def test_a_program_that_compiles_each_function_once_has_no_finding() -> None:
    rows = [{"compile_id": f"{number}/0", "function": f"f{number}", "line": number} for number in range(5)]
    backward = {"compile_id": "2/1", "is_backward": True, "line": 2, "function": "f2"}
    found = logged(plain(), *rows, backward).findings()

    assert not {"recompilation", "graph-breaks", "compile-time"} & found.keys()


def test_a_function_that_was_compiled_again_is_named_with_the_guard() -> None:
    again = {
        "compile_id": "0/1",
        "recompile_reason": "0/0: tensor 'x' size mismatch at index 0. expected 3, actual 4\nat",
    }
    more = {"compile_id": "0/2", "duration_ns": 2 * S, "recompile_reason": "0/1: n == 0   # if n  # model.py:4 in f"}
    evidence = logged(plain(), {}, again, more).findings()["recompilation"].evidence

    assert evidence.at_stake_ns is None
    assert evidence.figures == {"functions": 1, "again": 2, "again_ns": 3 * S, "place_times": 3, "reasons": 2}
    assert evidence.words == {
        "place": "model.py:3 f",
        "reason": "tensor 'x' size mismatch at index 0. expected 3, actual 4",
        "when": "perhaps not in this recording",
    }
    assert evidence.ranks == (0,)


def test_several_functions_are_counted_and_the_costliest_is_named() -> None:
    others = {"compile_id": "7/1", "line": 70, "function": "g", "duration_ns": 9 * S}
    made = logged(plain(), {}, {"compile_id": "0/1"}, others | {"compile_id": "7/0"}, others)
    evidence = made.findings()["recompilation"].evidence

    assert (evidence.figures["functions"], evidence.figures["again_ns"]) == (2, 10 * S)
    assert evidence.words["place"] == "model.py:70 g"
    assert evidence.words["reason"] == "for an unknown reason"


def test_a_log_names_the_function_of_what_the_trace_shows() -> None:
    made = logged(compiling(100), {}, {"compile_id": "0/1", "recompile_reason": "0/0: x"})
    finding = made.findings()["recompilation"]

    assert (finding.evidence.at_stake_ns, finding.share) == (100, 0.01)
    assert finding.evidence.figures == {"ns": 100, "ns_share": 0.01, "times": 1, "place_times": 2}
    assert finding.evidence.words["place"] == "model.py:3 f"


def test_a_log_of_all_ranks_counts_once() -> None:
    rows = [{"rank": rank, "compile_id": f"0/{number}"} for rank in (0, 1) for number in (0, 1)]
    made = Made(ranks=(0, 1)).launch(900, "gemm", 910, 90)
    evidence = logged(made, *rows).findings()["recompilation"].evidence

    assert evidence.figures["again"] == 1


def test_graph_breaks_are_named_with_line_and_reason() -> None:
    some = [{"reason": "Failed to trace"}, {"reason": "Failed to trace"}, {"line": 8, "reason": "Data-dependent"}]
    evidence = logged(plain(), *some, table="graph_breaks").findings()["graph-breaks"].evidence
    (one,) = (logged(plain(), row, table="graph_breaks").findings()["graph-breaks"] for row in some[:1])

    assert (evidence.at_stake_ns, evidence.confidence) == (None, "certain")
    assert evidence.figures == {"breaks": 3, "lines": 2}
    assert evidence.words == {"place": "model.py:3 f", "reason": "Failed to trace"}
    assert one.template == "a graph broke at {place}: {reason}"


def test_graph_breaks_of_a_log_are_added_to_what_the_trace_shows() -> None:
    made = logged(regions("0/0", "1/0", "2/0"), {"reason": None, "file": None, "line": None}, table="graph_breaks")
    evidence = made.findings()["graph-breaks"].evidence

    assert evidence.at_stake_ns == 300
    assert evidence.figures == {"breaks": 1, "lines": 1, "frames": 3, "ns": 300, "ns_share": 0.03, "calls": 30}
    assert evidence.words == {"place": "?:? f", "reason": "for an unknown reason"}


@pytest.mark.parametrize("end_ns", [-(2**63), 2**63 - 1, 0])
def test_absurd_times_are_no_error(end_ns: int) -> None:
    recorded({"end_ns": end_ns, "duration_ns": 2**62}, {"end_ns": end_ns, "duration_ns": 2**62}).findings()
