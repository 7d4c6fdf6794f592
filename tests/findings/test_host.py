"""Data, steps that take longer, backward, compiling."""

from __future__ import annotations

import pytest

from findings.made import FIRST, STEP, Case, Made, case_tests, each


def loading(length: int, busy: int = 900) -> Made:
    """From 900 on the next batch is loaded, and then a kernel is launched; the device is done with it at `busy`."""
    made = Made().range("enumerate(DataLoader)#_SingleProcess.__next__", 900, length, kind="user")
    return made.launch(0, "gemm", 10, busy - 20).launch(900 + length, "more", max(910 + length, busy), 10)


def slow(longer: int, steps: int = 10) -> Made:
    """Step 4 is longer, and the host is in aten::slow meanwhile, but for the last 100."""
    made = Made(steps, {4: longer}).launch(0, "gemm", 10, 990)
    return made.range("aten::slow", 1000, longer - 100, [4]) if longer > 100 else made


def backward(length: int) -> Made:
    """A forward of 100 on the device and its backward, on a thread of its own; the host waits for both."""
    made = Made().range("aten::embedding", 0, 50, seq=1).launch(5, "gather", 60, 100)
    made.range("EmbeddingBackward0", 50, 50, kind="backward", seq=1, forward_tid=1, tid=2)
    made.launch(55, "scatter", 160, length, tid=2)
    return made.call("cudaStreamSynchronize", 110, 55 + length)


def compiling(length: int, step: int = 3) -> Made:
    made = Made().launch(900, "gemm", 910, 90)
    # 500 in the first step, which is as it should be, and what compiles inside of what compiles counts once.
    made.range("entire_frame_compile", 100, 500, [0], kind="user")
    return made.range("entire_frame_compile", 100, length, [step], kind="user").range(
        "backend_compile", 110, 20, [step]
    )


def regions(*names: str, lookup: str = "TorchDynamo Cache Lookup") -> Made:
    made = Made().launch(900, "gemm", 910, 90)
    for number, name in enumerate(names):
        made.range(lookup, 100 * number, 10, kind="user")
        made.range(f"Torch-Compiled Region: {name}", 100 * number + 10, 80, kind="user")
    return made


MS = 1_000_000


def pausing(ns: int, busy: str = "", longer: int = 0, steps: range = range(10)) -> Made:
    """Steps of 10 ms on a host alone: a module in which no op runs for a while, and `busy` at that time."""
    made = Made(longer=dict.fromkeys(range(10), 10 * MS - STEP) | {5: 10 * MS - STEP + longer})
    made.range("aten::mul", 3 * MS, ns, [step for step in range(10) if step not in steps])
    made.range("Slow", 0, 3 * MS + ns, kind="module").range("aten::mm", 0, 3 * MS)
    made.range("aten::add", 3 * MS + ns, 7 * MS - ns).range("aten::add", 10 * MS, longer, [5])
    if busy == "kernel":
        made.work("gemm", 0, 1)
    elif busy:
        kind = "user" if busy.startswith("enumerate") else "op"
        made.range(busy, 3 * MS, ns, kind=kind, tid=2)
    return made


def apart(ns: int, *, busy: str = "") -> Made:
    """Steps of 10 ms with a hundred ops, and time without an op after each of them."""
    made = Made(longer=dict.fromkeys(range(10), 10 * MS - STEP))
    for number in range(100):
        made.range("aten::mm", number * MS // 10, MS // 10 - ns)
    if busy == "kernel":
        made.work("gemm", 0, 1)
    elif busy:
        made.range(busy, 0, 10 * MS, kind="op" if busy.startswith("aten") else "user", tid=2)
    return made


def small(calls: int, ns: int = 4_000, threads: int = 1) -> Made:
    """Steps of a millisecond: on each thread an op with small ones in it, one every 5 us."""
    made = Made(longer=dict.fromkeys(range(10), MS - STEP))
    for tid in range(1, threads + 1):
        made.range("aten::outer", 0, MS, tid=tid)
        for number in range(calls):
            made.range("aten::view", number * 5_000, ns, tid=tid)
    return made


CASES = [
    Case(
        "between-ops",
        lambda: apart(20_000),
        20 * MS,
        0.2,
        {"outside_ns": 20 * MS, "outside_share": 0.2, "pauses": 1000, "most_ns": MS // 2},
        {
            "19.9%": lambda: apart(19_900),
            "longer pauses": lambda: pausing(6 * MS),
            "a device is there": lambda: apart(20_000, busy="kernel"),
            "another thread is in an op": lambda: apart(20_000, busy="aten::mul"),
            "data is loaded": lambda: apart(20_000, busy="enumerate(DataLoader)#_SingleProcess.__next__"),
            "no ops are in the file": lambda: Made().range("enumerate(DataLoader)#x", 0, 100, kind="user"),
        },
        steps=FIRST,
        ranges=[(MS // 10 * number - 20_000, MS // 10 * number) for number in range(1, 11)],
    ),
    Case(
        "small-ops",
        lambda: small(38),
        None,
        None,
        {
            "small_ns": 10 * 38 * 4_000,
            "small_share": 0.152,
            "calls": 380,
            "all_calls": 390,
            "self_ns": 4_000,
            "least_ns": 5_000,
        },
        {
            "14.8%": lambda: small(37),
            "5 us": lambda: small(50, 5_000),
            "a device is there": lambda: small(50).work("gemm", 0, 1),
            "on several threads": lambda: small(30, threads=2),
        },
        ops=("aten::view",),
        steps=FIRST,
        ranges=[(5_000 * number, 5_000 * number + 4_000) for number in range(10)],
        words={"op": "aten::view"},
    ),
    Case(
        "host-outside-ops",
        lambda: pausing(2 * MS),
        20 * MS,
        0.2,
        {"outside_ns": 20 * MS, "outside_share": 0.2, "pauses": 10, "least_ns": MS // 2, "most_ns": 20 * MS},
        {
            "0.5 ms": lambda: pausing(MS // 2),
            "a device is there": lambda: pausing(2 * MS, "kernel"),
            "another thread is in an op": lambda: pausing(2 * MS, "aten::mm"),
            "data is loaded": lambda: pausing(2 * MS, "enumerate(DataLoader)#_SingleProcess.__next__"),
            "compiled code runs": lambda: pausing(2 * MS, "CompiledFunctionBackward"),
            "in two steps of ten": lambda: pausing(6 * MS, steps=range(2)),
        },
        modules=("Slow",),
        steps=FIRST,
        ranges=[(10 * MS * step + 3 * MS, 10 * MS * step + 5 * MS) for step in range(10)],
        words={"place": "in Slow"},
    ),
    Case(
        "data-loading",
        lambda: loading(30),
        300,
        0.03,
        {"loading_ns": 300, "loading_share": 0.03, "loads": 10},
        {"2.9%": lambda: loading(29), "a kernel ran meanwhile": lambda: loading(30, 1000)},
        ops=("enumerate(DataLoader)#_SingleProcess.__next__",),
        steps=FIRST,
        ranges=each(900, 30),
    ),
    Case(
        "step-outliers",
        lambda: slow(1000),
        1000,
        1000 / 11_000,
        {"more_ns": 1000, "saved_ns": 1000, "saved_share": 1000 / 11_000, "steps": 1, "all_steps": 10}
        | {"usual_ns": 1000, "name_ns": 900, "name_usual_ns": 0},
        {
            "by a tenth": lambda: slow(100),
            "0.9% of the run": lambda: slow(900, 100),
            "a third of the steps": lambda: Made(9, {1: 2000, 4: 2000, 7: 2000}).work("gemm", 0, 1000),
        },
        ops=("aten::slow",),
        steps=("ProfilerStep#4",),
        ranges=[(4000, 6000)],
        words={"which": "ProfilerStep#4", "most": "ops on the host", "name": "aten::slow"},
    ),
    Case(
        "heavy-backward",
        lambda: backward(750),
        10 * (750 - 2 * 100),
        0.55,
        {"forward_ns": 1000, "backward_ns": 7500, "times": 7.5, "ops": 1},
        {"five times": lambda: backward(500), "no forward": lambda: Made().work("scatter", 160, 800)},
        ops=("aten::embedding",),
        ranges=each(0, 50),
        words={"op": "aten::embedding"},
    ),
    Case(
        "recompilation",
        lambda: compiling(100),
        100,
        0.01,
        {"ns": 100, "ns_share": 0.01, "times": 1},
        {
            "0.99%": lambda: compiling(99),
            "in the first step": lambda: compiling(100, 0),
            "without steps": lambda: Made(0).work("gemm", 0, 1000, [0]).range("entire_frame_compile", 100, 500, [0]),
            "after the last step": lambda: compiling(99).range("entire_frame_compile", 10_000, 5000, [0]),
        },
        ops=("entire_frame_compile",),
        ranges=[(3100, 3200)],
    ),
    Case(
        "graph-breaks",
        lambda: regions("0/0", "1/0", "2/0"),
        300,
        0.03,
        {"frames": 3, "ns": 300, "ns_share": 0.03, "calls": 30},
        {
            "two frames": lambda: regions("0/0", "1/0"),
            "one that is compiled again": lambda: regions("0/0", "0/1", "0/2"),
            "nobody recorded how long looking took": lambda: regions("0/0", "1/0", "2/0", lookup="another"),
        },
        ops=tuple(f"Torch-Compiled Region: {number}/0" for number in range(3)),
        # Thirty of 10 each: the first ten.
        ranges=[
            (1000 * step + 100 * number, 1000 * step + 100 * number + 10) for step in range(4) for number in range(3)
        ][:10],
    ),
]


test_it_fires, test_it_is_silent = case_tests(CASES)


def test_a_pause_is_an_outlier_and_counts_for_no_rule_but_that_of_what_the_profiler_did() -> None:
    # In step 4 all is wrong: data, waits, allocations, collectives, idle time.
    made = Made(longer={4: 9000}).work("gemm", 0, 1000, [step for step in range(10) if step != 4])
    made.range("enumerate(DataLoader)#x", 0, 2000, [4], kind="user").call("cudaMalloc", 2000, 1000, [4])
    made.work("ncclDevKernel_AllReduce", 3000, 1000, [4]).call("cudaDeviceSynchronize", 3000, 1000, [4])
    made.launch(9000, "late", 9100, 100, [4]).work("Buffer Flush", 5000, 1000, [4], kind="other", is_overhead=True)
    found = {name: one.evidence.at_stake_ns for name, one in made.findings().items() if one.share is not None}
    # But for the collective: nobody knows whether it waited for another rank.
    assert found == {"step-outliers": pytest.approx(8 * STEP, abs=50), "profiler-overhead": 1000}


@pytest.mark.parametrize("rule", ["host-outside-ops", "between-ops"])
def test_samples_name_the_functions_between_ops(rule: str) -> None:
    def sampled(count: int) -> Made:
        made, at = (pausing(2 * MS), 4 * MS) if rule == "host-outside-ops" else (apart(20_000), 90_000)
        made.sample("main;dumps", at, count, [0], libraries="/bin/python;/lib/json.so").sample("main;few", at, 29, [0])
        made.sample("main;0x7f01", at, 90, [0], libraries="/bin/python;/lib/json.so")
        # In an op, and on a thread that runs none.
        return made.sample("main;gemm", at - 2 * MS if at > MS else at - MS // 50, 99, [0]).sample(
            "spin", at, 99, [0], tid=2
        )

    finding = sampled(30).findings()[rule]
    assert finding.evidence.words["functions"] == "dumps (json.so)"
    assert finding.template.endswith("in these pauses: {functions}")
    assert finding.template.startswith(finding.rule.sentence)
    few = sampled(29).findings()[rule]
    assert "functions" not in few.evidence.words
    assert few.template == few.rule.sentence


@pytest.mark.parametrize(("kind", "name"), [("module", "Late"), ("backward", "LateBackward"), ("user", "log")])
def test_a_pause_lies_in_the_range_that_has_most_of_it(kind: str, name: str) -> None:
    # The pause begins with the end of an op of another module, and ends with an op after the range.
    made = Made(longer=dict.fromkeys(range(10), 10 * MS - STEP))
    made.range("Whole", 0, 10 * MS, kind="module").range("Before", 0, 3 * MS, kind="module")
    made.range("aten::mm", 0, 2 * MS).range(name, 3 * MS, 4 * MS, kind=kind).range("aten::add", 8 * MS, 2 * MS)
    found = made.findings()["host-outside-ops"].evidence
    assert found.at_stake_ns == 10 * 6 * MS
    assert found.words["place"] == f"in {name}"
    assert name in (found.modules if kind == "module" else found.ops)


def test_what_an_outlier_compiled_is_recompilation() -> None:
    made = Made(longer={4: 9000}).launch(900, "gemm", 910, 90)
    made.range("entire_frame_compile", 1000, 8000, [4], kind="user")
    found = {name: one.evidence.at_stake_ns for name, one in made.findings().items() if one.share is not None}
    # In each step the device has nothing to do until the host launches, whatever compiles: in step 4 for 1,000 more.
    assert found.pop("launch-bound") == pytest.approx(9 * 910 + 1000, rel=0.06)
    assert found == {"recompilation": 8000, "step-outliers": 1000}


def marked(step: int) -> Made:
    """A run with the marks that torch's Python writes into a recording of another profiler: only where a compilation
    begins."""
    made = Made(longer={step: 9000}).work("gemm", 0, 1000)
    for at, name in ((1000, "dynamo"), (1200, "entire_frame_compile"), (1900, "backend_compile"), (8990, "gc")):
        made.range(f"{name}_data: fn_name=x, compile_id=0/1", at, 10, [step], kind="user")
    made.range("entire_backward_compile_data: fn_name=x, compile_id=0/1", 9500, 10, [step], kind="user")
    return made.range("build_guards_data: compile_id=0/1", 9600, 100, [step], kind="user")


def test_marks_say_from_when_to_when_torch_compiled() -> None:
    found = marked(4).findings()["recompilation"].evidence
    assert (found.at_stake_ns, found.figures["times"]) == (8000 + 200, 2)
    assert "recompilation" not in marked(0).findings()


def test_what_the_first_step_compiled_makes_it_an_outlier() -> None:
    made = Made(longer={0: 9000}).work("gemm", 0, 1000).range("entire_frame_compile", 1000, 8000, [0], kind="user")
    found = {name: one.evidence for name, one in made.findings().items() if one.share is not None}
    assert list(found) == ["step-outliers"]
    assert found["step-outliers"].at_stake_ns == 9000


def test_the_op_that_the_program_called_is_what_took_longer() -> None:
    made = slow(1000).range("aten::inner", 1100, 600, [4])
    assert made.findings()["step-outliers"].evidence.words["name"] == "aten::slow"


def test_no_more_is_at_stake_than_all_time() -> None:
    # Four threads compile at once after the first step, in all but the end, and one lookup ends before it begins.
    made = regions("0/0", "1/0", "2/0").range("TorchDynamo Cache Lookup", 500, -400, kind="user")
    for tid in range(1, 5):
        made.range("entire_frame_compile", 300, 600, range(1, 10), kind="user", tid=tid)
    found = made.findings()
    assert found["recompilation"].evidence.figures["ns"] == 4 * 9 * 600
    assert (found["recompilation"].evidence.at_stake_ns, found["recompilation"].share) == (9 * 600, 0.54)
    assert found["graph-breaks"].evidence.at_stake_ns == 300


def test_of_many_outliers_those_that_took_longest_are_named() -> None:
    longer = {5 * number: 2000 + 10 * (number * 7 % 12) for number in range(12)}
    worst = [f"ProfilerStep#{step}" for step in sorted(longer, key=lambda step: -longer[step])]
    found = Made(60, longer).work("gemm", 0, 1000).findings()["step-outliers"].evidence
    assert found.steps == tuple(worst[:10])
    assert found.words["which"] == ", ".join(worst[:3])
