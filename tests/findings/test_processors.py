"""Samples of processors: threads that wait in a loop, collections of garbage, and functions between ops."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import opspan
from findings.made import Case, Made, case_tests
from opspan.findings import findings
from opspan.findings.sampled import FEW
from opspan.views.functions import FEW as FEW_OF_THE_VIEW

WORKER, COMPUTING = 2, 3
GOMP, BLAS, PYTHON, TORCH = "/opt/libgomp-a34b.so.1", "/opt/libopenblas.so.0", "/usr/bin/python3.12", "/opt/libtorch.so"


def waiting(of_hundred: int, stack: str, libraries: str | None = None, **more: int) -> Made:
    """In each of ten steps, a hundred samples of the same weight; some of them have the stack."""
    made = Made().range("aten::mm", 0, 900)
    made.sample(stack, 100, of_hundred, libraries=libraries, tid=WORKER, **more)
    return made.sample("main;gemm", 100, 100 - of_hundred, tid=COMPUTING)


def collecting(of_hundred: int, function: str = "gc_collect_main", library: str = PYTHON, steps: int = 10) -> Made:
    """Another thread has as many samples again: each thread is looked at by itself."""
    made = Made(steps).range("aten::mm", 0, 900).sample("gemm", 100, 100, tid=WORKER)
    libraries = f"{PYTHON};{library};{TORCH}"
    made.sample(f"main;{function};subtype_dealloc", 100, of_hundred, libraries=libraries)
    return made.sample("main;gemm", 100, 100 - of_hundred)


IN_TASKS = "__kmp_launch_thread;kmp_flag_64::wait;__kmp_wait_template<kmp_flag_64>;__kmp_execute_tasks_64"
CASES = [
    Case(
        "spinning-threads",
        lambda: waiting(31, "gomp_thread_start;gomp_team_barrier_wait_end", f"{GOMP};{GOMP}"),
        None,
        None,
        {"waiting_share": 0.31, "samples": 310, "all_samples": 1000},
        {
            "30%": lambda: waiting(30, "gomp_thread_start;gomp_team_barrier_wait_end"),
            "few samples": lambda: Made().sample("gomp_barrier_wait_end", 100, 9),
            "outside of the steps": lambda: waiting(30, "gemm").sample("gomp_barrier_wait_end", 10_000, 900, [0]),
            "a thread that waits executes a task": lambda: waiting(90, f"{IN_TASKS};__kmp_invoke_task;run"),
            "a worker of OpenBLAS computes": lambda: waiting(90, "blas_thread_server;exec_blas;sgemm_kernel"),
            "another function of that name": lambda: waiting(90, "main;do_wait", f"{PYTHON};[kernel.kallsyms]"),
            "a library without names that computes": lambda: waiting(90, "main;0x7f00", f"{PYTHON};{TORCH}"),
            "a name that has the name in it": lambda: waiting(90, "main;my_blas_thread_server_of"),
            "an event that counts no time": lambda: waiting(0, "").sample(
                "gomp_barrier_wait_end", 100, 900, event="INST_RETIRED.ANY"
            ),
        },
        words={"function": "gomp_team_barrier_wait_end (libgomp-a34b.so.1)"},
    ),
    Case(
        "garbage-collection",
        lambda: collecting(6),
        None,
        None,
        {"collecting_share": 0.06, "samples": 60, "all_samples": 1000},
        {
            "5%": lambda: collecting(5),
            "few samples": lambda: collecting(29, steps=1),
            "another collector": lambda: collecting(50, "visit_decref", "/opt/libruby.so"),
            "outside of the steps": lambda: collecting(0).sample("gc_collect_main", 10_000, 900, [0]),
        },
        words={"thread": "thread 1"},
    ),
]

test_it_fires, test_it_is_silent = case_tests(CASES)


@pytest.mark.parametrize(
    ("stack", "libraries", "function"),
    [
        (IN_TASKS, None, "__kmp_wait_template<kmp_flag_64>"),
        ("start;void __kmp_wait_template<kmp_flag_64<false, true>, true>(kmp_info*);__sched_yield", None, None),
        ("start;kmp_flag_64<false, true>::wait(kmp_info*, int, void*)", None, None),
        ("__kmp_hyper_barrier_release;__kmp_yield", None, "__kmp_hyper_barrier_release"),
        ("start;do_spin", f"{GOMP};{GOMP}", "do_spin (libgomp-a34b.so.1)"),
        ("start;blas_thread_server;sched_yield", None, "blas_thread_server"),
        ("blas_thread_server", BLAS, "blas_thread_server (libopenblas.so.0)"),
    ],
)
def test_threads_wait_in_functions_of_all_runtimes(stack: str, libraries: str | None, function: str | None) -> None:
    evidence = waiting(50, stack, libraries).findings()["spinning-threads"].evidence
    assert evidence.confidence == "certain"
    assert evidence.words["function"] == (function or stack.split(";")[1])


@pytest.mark.parametrize("name", ["0x7f01", "func@0x10e920", "[unknown]"])
@pytest.mark.parametrize("library", [GOMP, "/opt/libiomp5.so", "/usr/lib/libomp.so.5"])
def test_functions_without_names_of_a_runtime_are_likely_to_wait(name: str, library: str) -> None:
    finding = waiting(50, f"main;{name}", f"{PYTHON};{library}").findings()["spinning-threads"]
    assert finding.evidence.confidence == "likely"
    assert finding.evidence.words["function"] == f"functions without a name ({library.rpartition('/')[2]})"
    assert "waited" not in finding.template


def test_each_process_is_looked_at_by_itself() -> None:
    made = waiting(50, "gomp_barrier_wait_end")
    for row in made.rows["samples"]:
        row["pid"] = row["tid"]
    evidence = made.findings()["spinning-threads"].evidence
    assert (evidence.figures["waiting_share"], evidence.figures["all_samples"]) == (1, 500)


def test_weights_count_and_not_samples() -> None:
    assert "spinning-threads" not in waiting(50, "gomp_barrier_wait_end").sample("gemm", 0, weight=2000).findings()
    assert waiting(10, "gomp_barrier_wait_end", weight=9).findings()["spinning-threads"].evidence.figures == {
        "waiting_share": 0.5,
        "samples": 100,
        "all_samples": 1000,
    }


def test_a_file_with_samples_alone_has_findings_about_them() -> None:
    made = Made(0).sample("gomp_barrier_wait_end", 0, 100, [0])
    assert list(made.findings()) == ["spinning-threads"]
    assert not Made(0).sample("gemm", 0, 100, [0]).findings()


@pytest.mark.parametrize("function", ["gc_collect_generations", "_PyGC_Collect", "deduce_unreachable.lto_priv.0"])
def test_the_collector_has_several_functions(function: str) -> None:
    assert collecting(6, function).findings()["garbage-collection"].evidence.figures["samples"] == 60


def test_few_is_what_the_view_of_functions_takes_for_few() -> None:
    assert FEW == FEW_OF_THE_VIEW


# --- real files


def found_in(path: Path) -> dict[str, dict[str, float]]:
    if not path.exists():
        pytest.skip(f"{path.name} is not among the recorded traces")
    reported = findings(opspan.load(path).analysed)
    rules = ("spinning-threads", "garbage-collection")
    return {one.rule.id: dict(one.evidence.figures) for one in reported if one.rule.id in rules}


def test_threads_of_a_real_program_spin(traces_dir: Path) -> None:
    path = traces_dir / "vtune/r000cc_2015"
    found = found_in(path)
    assert list(found) == ["spinning-threads"]
    # The same from whole stacks: threads that wait have no function of the program inside of the wait.
    trace = opspan.load(path)
    times = pl.concat(frame.select("start_ns", "end_ns") for frame in (trace.ranges, trace.calls))
    begin, end = times["start_ns"].min(), times["end_ns"].max()
    samples = trace.samples.filter(pl.col("time_ns").is_between(begin, end))
    inside = samples["stack"].cast(pl.String).str.extract("__kmp_hyper_barrier_release(.*)$")
    waits = samples.filter(inside.is_not_null() & ~inside.str.contains("__kmp_invoke_task"))
    assert found["spinning-threads"]["samples"] == waits.height
    assert found["spinning-threads"]["waiting_share"] == waits["weight"].sum() / samples["weight"].sum()


@pytest.mark.parametrize(
    "name",
    [
        "nsys/mpi_saxpy_2022.sqlite",
        "vtune/r000hs_2022/r000hs",
        "vtune/r010hs_tasks/r010hs",
        "vtune/r001hs_2013/r001hs",  # threads wait for a quarter of the time
        "nsys/torch_lm_2025.sqlite",  # threads spin while libraries are loaded, and garbage is collected at the end
    ],
)
def test_other_real_programs_have_no_such_findings(name: str, traces_dir: Path) -> None:
    assert not found_in(traces_dir / name)
