"""Rules about samples of processors: threads that wait in a loop, and collections of garbage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import polars as pl

from opspan.analysis.samples import FEW
from opspan.analysis.spans import PROCESS, THREAD
from opspan.findings.rule import Evidence, Rule
from opspan.findings.run import Run, ranks_of
from opspan.findings.sampled import NAMELESS, UNNAMED, Frame, frame_text, samples_of, shares, with_functions

_col = pl.col
_LEAST = 100  # samples of a process: a share of 30 % is then right to within 5 points
# Functions in which runtimes of threads wait: those of LLVM and Intel, of GCC, and of OpenBLAS. A sample counts if its
# thread was in the function itself, or in one of _INSIDE that the function called. Other functions that it calls may
# be work: waiting threads of OpenMP execute tasks.
_WAITS = re.compile(
    r"\b(__kmp_wait_template|__kmp_wait_sleep|__kmp_hyper_barrier_release|gomp_(team_)?barrier_wait(_end|_final|_last)?"
    r"|blas_thread_server)\b|\bkmp_flag_\w+(<.*>)?::wait\b"
)
_WAITS_OF_GCC = re.compile(r"do_(spin|wait)\b")  # other libraries have functions with these names, too
_INSIDE = re.compile(
    r"(__)?sched_yield$|__kmp_(x86_pause|yield)$|.*\b__kmp_execute_tasks_|.*\bkmp_flag_\w+(<.*>)?::execute_tasks\b"
)
# Libraries without functions that compute. Their functions often have no names in the file, because wheels of torch
# have a libgomp without symbols.
_RUNTIME = re.compile(r"lib(gomp|iomp5|omp)\b")
# The collector of CPython. Other libraries may have functions with the names in the second line.
_COLLECTS = re.compile(r"(gc_collect_(main|generations|with_callback|young|full|increment)|_?PyGC_Collect\w*)\b")
_COLLECTS_INSIDE = re.compile(r"(deduce_unreachable|visit_decref|visit_reachable|subtract_refs|update_refs)\b")
_PYTHON = re.compile(r"(lib)?python", re.IGNORECASE)


def _spinning(run: Run, threshold: float) -> Iterator[Evidence]:
    samples = samples_of(run)
    rows = shares(samples, with_functions(samples, _waiting), PROCESS).filter(_col("all_samples") >= _LEAST)
    rows = rows.filter(_col("share") > threshold)
    if not rows.height:
        return
    first = rows.row(0, named=True)
    is_named = first["named_share"] > threshold
    yield Evidence(
        None,  # threads that wait need not make a run end later
        {"waiting_share": first["share"], "samples": first["samples"], "all_samples": first["all_samples"]},
        {"function": first["function"]},
        confidence="certain" if is_named else "likely",
        ranks=ranks_of(rows),
        sentence="" if is_named else _IN_A_RUNTIME,
    )


def _collecting(run: Run, threshold: float) -> Iterator[Evidence]:
    samples = samples_of(run)
    rows = shares(samples, with_functions(samples, _collector), THREAD).filter(_col("samples") >= FEW)
    rows = rows.filter(_col("share") > threshold)
    if not rows.height:
        return
    first = rows.row(0, named=True)
    yield Evidence(
        None,  # time on a processor: a thread that waits for a device loses none by collecting
        {"collecting_share": first["share"], "samples": first["samples"], "all_samples": first["all_samples"]},
        {"thread": "a thread" if first["tid"] is None else f"thread {first['tid']}"},
        confidence="certain",
        ranks=ranks_of(rows),
    )


def _waiting(frames: Sequence[Frame]) -> str | None:
    """Returns the function that the thread waited in, or None if it did not wait."""
    if frames and _RUNTIME.match(frames[-1][1]) and NAMELESS.fullmatch(frames[-1][0]):
        return f"{UNNAMED} ({frames[-1][1]})"
    outer = next((frame for frame in reversed(frames) if not _INSIDE.match(frame[0])), None)
    if outer is None:
        return None
    function, library = outer
    is_wait = _WAITS.search(function) or (_WAITS_OF_GCC.match(function) and library.startswith("libgomp"))
    return frame_text(function, library) if is_wait else None


def _collector(frames: Sequence[Frame]) -> str | None:
    """Returns "gc" if the thread was collecting garbage."""
    is_collecting = any(
        _COLLECTS.match(function) or (_COLLECTS_INSIDE.match(function) and _PYTHON.match(library))
        for function, library in frames
    )
    return "gc" if is_collecting else None


_IN_A_RUNTIME = (
    "in {waiting_share} of the sampled CPU time of a process ({samples} of {all_samples} samples), threads were in the "
    "own code of a library that hands out work to threads and lets them wait, most in {function}"
)

RULES = (
    Rule(
        id="spinning-threads",
        title="Threads that wait for work in a loop",
        looks_at="samples of processors in functions in which OpenMP and OpenBLAS let threads wait, by the weight of "
        "all samples of the process, of which there must be at least 100. Functions of OpenMP's libraries that have no "
        "name in the file count as well: these libraries hand out work and wait, and compute nothing",
        threshold=0.3,
        because="three tenths of the CPU time: threads wait for a while after each piece of work, as they should",
        sentence="in {waiting_share} of the sampled CPU time of a process ({samples} of {all_samples} samples), "
        "threads waited for work or for each other, most in {function}",
        remedy="Fewer threads (torch.set_num_threads, OMP_NUM_THREADS, OPENBLAS_NUM_THREADS), larger pieces of work, "
        "or OMP_WAIT_POLICY=passive so that threads that wait leave the processor to others",
        command="opspan functions FILE",
        read="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        look=_spinning,
        needs_time=False,
    ),
    Rule(
        id="garbage-collection",
        title="Collections of Python's garbage",
        looks_at="samples of processors in the functions in which CPython collects garbage, by the weight of all "
        "samples of the thread; of at least 30 samples",
        threshold=0.05,
        because="a twentieth of the thread's CPU time: a program that makes few cycles of objects needs far less",
        sentence="in {collecting_share} of the sampled CPU time of {thread} ({samples} of {all_samples} samples), "
        "Python collected garbage",
        remedy="gc.freeze() once the model and the data are there, so that collections leave these objects out; or "
        "gc.disable() and gc.collect() every so many steps",
        command="opspan functions FILE --by function",
        read="https://docs.python.org/3/library/gc.html",
        look=_collecting,
        needs_time=False,
    ),
)
