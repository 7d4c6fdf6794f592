"""The recording: what the profiler cost, memory near its end, and what a file cannot answer."""

from __future__ import annotations

from findings.made import FIRST, Case, Made, case_tests, each


def overhead(length: int, name: str = "Buffer Flush") -> Made:
    made = Made().launch(900, "gemm", 910, 90)
    # Twice at the same time, on two threads: that is one time.
    for tid in (1, 2):
        made.work(name, 100, length, kind="other", is_overhead=True, tid=tid, device_id=None)
    return made


def memory(used: int, size: int | None = 1000) -> Made:
    return Made().device(memory_bytes=size).memory(bytes=used)


def replayed(time: int) -> Made:
    """Kernels of a graph take this time in each step, and another kernel the rest of 100 ns."""
    made = Made().call("cudaGraphLaunch", 0, 10, correlation_id=1).work("gemm", 20, time, correlation_id=1)
    return made.launch(12, "other", 200, 100 - time)


def labelled(of_ten: int) -> Made:
    """A run in which `of_ten` of ten equally long kernels per step were launched in a range."""
    made = Made()
    for number in range(10):
        if number < of_ten:
            made.launch(100 * number, "gemm", 100 * number, 100)
        else:
            made.work("gemm", 100 * number, 100)
    return made


def ops(of_ten: int, **known: str) -> Made:
    """A run in which `of_ten` of ten ops per step have the fields `known`."""
    made = Made()
    for number in range(10):
        made.range("aten::mm", 100 * number, 50, **(known if number < of_ten else {}))
    return made


def in_modules(of_ten: int) -> Made:
    made = Made()
    for number in range(10):
        if number < of_ten:
            made.range("net.head", 100 * number, 90, kind="module")
        made.range("aten::mm", 100 * number, 50)
    return made


CASES = [
    Case(
        "profiler-overhead",
        lambda: overhead(30),
        300,
        0.03,
        {"ns": 300, "ns_share": 0.03, "times": 20},
        {
            "1.9%": lambda: overhead(19),
            "the queue was full": lambda: overhead(30, "Command Buffer Full"),
            "code was loaded": lambda: overhead(30, "Lazy Function Loading"),
        },
        steps=FIRST,
        ranges=[time for time in each(100, 30, range(5)) for _ in range(2)],
        words={"names": "Buffer Flush"},
    ),
    Case(
        "memory-limit",
        lambda: memory(950),
        None,
        None,
        {"used_share": 0.95, "memory_bytes": 1000},
        {"94.9%": lambda: memory(949), "nobody knows the device": lambda: memory(950, None)},
    ),
    Case(
        "unlabelled",
        lambda: labelled(4),
        None,
        None,
        {"known_share": 0.4, "kernels": 60},
        {"half": lambda: labelled(5), "no device": lambda: ops(10)},
    ),
    Case(
        "no-sizes",
        lambda: ops(4, sizes="[[8, 8]]"),
        None,
        None,
        {"known_share": 0.4, "ops": 100},
        {"half": lambda: ops(5, sizes="[[8, 8]]"), "no ops": lambda: labelled(10)},
    ),
    Case(
        "no-modules",
        lambda: in_modules(0),
        None,
        None,
        {"known_share": 0.0, "ops": 100},
        {"a tenth": lambda: in_modules(1), "no ops": lambda: labelled(10)},
    ),
    Case(
        "no-steps",
        lambda: Made(steps=0).work("gemm", 0, 1000, [0]),
        None,
        None,
        {"time_ns": 1000},
        {"one": lambda: Made(steps=1).work("gemm", 0, 1000)},
    ),
    Case(
        "whole-graphs",
        lambda: Made().work("graph 1", 0, 100, kind="graph"),
        None,
        None,
        {"graphs": 10, "ns": 1000, "ns_share": 0.1},
        {
            "9.9%": lambda: Made().work("graph 1", 0, 99, kind="graph"),
            "its kernels": lambda: Made().work("gemm", 0, 100),
        },
    ),
    Case(
        "unknown-replays",
        lambda: replayed(10),
        None,
        None,
        {"device_share": 0.1, "kernels": 10},
        {"9 %": lambda: replayed(9), "no graph": lambda: labelled(10)},
    ),
]


test_it_fires, test_it_is_silent = case_tests(CASES)


def test_what_is_missing_is_recorded_by_the_tool_that_recorded_the_rest() -> None:
    found = ops(4, sizes="[[8, 8]]").findings()
    commands = [found[name].evidence.command for name in ("no-sizes", "no-modules")]
    assert all("torch.profiler.profile(" in command for command in commands), commands
    assert ["record_shapes" in command for command in commands] == [True, False]
