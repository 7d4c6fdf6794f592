"""A rule about memory that the kernel hands out anew in each step: page faults, and memory that is given back.

Two kinds of samples of processors show it. Samples of time have the kernel's functions in their stacks, if the tool may
see the kernel:

    ffffffff8160a3b2 handle_mm_fault ([kernel.kallsyms])
    ffffffff82262f1e exc_page_fault ([kernel.kallsyms])
             1f3c02a at::native::add_kernel (/opt/libtorch_cpu.so)

Samples of the event page-faults count faults and no time, so they say only how many there were. The first step is left
out: memory that is used for the first time has to come from the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import polars as pl

from opspan.analysis.nest import innermost
from opspan.analysis.samples import is_of, of_time
from opspan.analysis.spans import PROCESS, length, within
from opspan.findings.rule import Evidence, Rule
from opspan.findings.run import Run, ranks_of, top
from opspan.findings.sampled import Frame, in_time, shares, with_functions

_col = pl.col
_LEAST = 100  # samples of a process
# With pages of 4 KiB, these are 80 MB a second. A fault takes some tenths of a microsecond, in virtual machines up to
# ten microseconds.
_MANY = 20_000  # page faults in ops, for each second of a process
_LARGE = 1 << 20  # bytes
_SECOND = 10**9
_OPS = ("op", "script", "static_op", "static_model", "backward")
_OUTSIDE = "code outside of ops"
# perf calls the event page-faults, or faults. A modifier restricts it to faults of programs, for example.
_EVENT = re.compile(r"(page-faults|faults|minor-faults|exceptions:page_fault_user)(:[a-zA-Z]+)?")
_KERNEL = re.compile(r"\[(guest\.)?kernel|vmlinux")
_HANDS_OUT = re.compile(
    r"((asm_)?exc_page_fault|(__)?do_page_fault|do_user_addr_fault|handle_mm_fault|do_mem_abort"
    r"|__(x64|arm64|ia32)_sys_(munmap|brk|madvise|mremap))(\.\w+)*"
)


def _look(run: Run, threshold: float) -> Iterator[Evidence]:
    if not run.steps.height:
        return
    samples = _in_later_steps(run, of_time(run.analysis.tables.samples))
    chosen = with_functions(samples, _in_kernel)
    rows = shares(samples, chosen, PROCESS).filter(_col("all_samples") >= _LEAST, _col("share") > threshold)
    faults = _fault_samples(run)
    counted = _counts(run, faults).filter(_col("faults_per_second") >= _MANY)
    if rows.height:
        first, sentence = rows.row(0, named=True), _TIMED
        figures = {"faults_share": first["share"], "samples": first["samples"], "all_samples": first["all_samples"]}
        own = _with_ops(run, _of_process(chosen, first))
    elif counted.height:
        first, sentence = counted.sort("faults", *PROCESS, descending=[True, False, False]).row(0, named=True), _COUNTED
        figures = {name: first[name] for name in ("faults", "faults_per_second")}
        own = _of_process(faults, first)
    else:
        return
    blocks = _blocks(run, first)
    ops = top(own.with_columns(_col("op").fill_null(_OUTSIDE)), "weight", "op")
    yield Evidence(
        None,  # how much sooner the run would end with memory that is used again is unknown
        figures | blocks,
        {"op": next(iter(ops), _OUTSIDE)},
        confidence="likely",
        ops=tuple(op for op in ops if op != _OUTSIDE),
        modules=top(own, "weight", "module"),
        ranks=ranks_of(rows if rows.height else counted),
        sentence=sentence + (_BLOCKS if blocks else ""),
    )


def _in_kernel(frames: Sequence[Frame]) -> str | None:
    is_so = any(_KERNEL.match(library) and _HANDS_OUT.fullmatch(function) for function, library in frames)
    return "the kernel" if is_so else None


def _in_later_steps(run: Run, samples: pl.DataFrame) -> pl.DataFrame:
    rows = in_time(run, samples, is_late=True)
    return rows.filter(_col("step").is_not_null()) if rows.height else rows


def _fault_samples(run: Run) -> pl.DataFrame:
    """Returns the samples in ops of one event that counts page faults. Weights of several events are never added."""
    samples = run.analysis.tables.samples
    events = samples["event"].unique().drop_nulls().cast(pl.String).sort().to_list()
    names = [name for name in events if _EVENT.fullmatch(name)]
    if not names:
        return samples.clear()
    return _with_ops(run, _in_later_steps(run, samples.filter(is_of(names[-1])))).drop_nulls("op")


def _counts(run: Run, faults: pl.DataFrame) -> pl.DataFrame:
    """Returns rank, pid, faults and faults_per_second: the page faults of each process, and how many there were for
    each second of its steps but the first."""
    later = run.steps.sort("start_ns").filter(pl.int_range(pl.len()).over(PROCESS) > 0)
    seconds = later.group_by(PROCESS).agg(seconds=length().sum() / _SECOND).filter(_col("seconds") > 0)
    rows = faults.group_by(PROCESS).agg(faults=_col("weight").sum()).join(seconds, on=PROCESS, nulls_equal=True)
    rate = _col("faults") / _col("seconds")
    return rows.with_columns(faults_per_second=rate.round().cast(pl.Int64, strict=False)).drop("seconds")


def _with_ops(run: Run, samples: pl.DataFrame) -> pl.DataFrame:
    """Adds `op` and `module` of the innermost range of each sample. If that is no op, `op` is null."""
    ranges = run.trace.ranges
    rows = run.add_names(samples.with_columns(range=innermost(ranges, samples)))
    is_op = ranges["kind"].gather(rows["range"]).is_in(_OPS)
    return rows.with_columns(op=pl.when(is_op).then(_col("op").cast(pl.String)))


def _of_process(rows: pl.DataFrame, process: dict[str, object]) -> pl.DataFrame:
    return rows.filter(_col(name).eq_missing(pl.lit(process[name])) for name in PROCESS)


def _blocks(run: Run, process: dict[str, object]) -> dict[str, int]:
    """Returns `blocks`, `block_bytes` and `steps` of the size of large blocks that had most bytes, among those that
    were taken in every usual step of the process and freed later. The last step does not count, because its blocks
    may be freed after the recording. If memory was not recorded or there is no such size, returns nothing."""
    steps = _of_process(run.usual_steps, process).sort("start_ns").head(-1)
    if not run.trace.memory.height or steps.height < 2:
        return {}
    rows = _of_process(run.analysis.allocations, process)
    rows = rows.filter(_col("device_id").is_null(), _col("bytes") >= _LARGE, _col("free_row").is_not_null())
    pairs = within(rows, "alloc_ns", steps, PROCESS)
    taken = pl.DataFrame({"bytes": rows["bytes"].gather(pairs["row"]), "step": pairs["stretch"]})
    sizes = taken.group_by("bytes", "step").len().group_by("bytes").agg(_col("len").min(), steps=pl.len())
    sizes = sizes.filter(_col("steps") == steps.height).sort(_col("bytes") * _col("len"), "bytes", descending=True)
    if not sizes.height:
        return {}
    return {"blocks": int(sizes["len"][0]), "block_bytes": int(sizes["bytes"][0]), "steps": steps.height}


_TIMED = (
    "in {faults_share} of the sampled CPU time of a process ({samples} of {all_samples} samples), the kernel handed "
    "out pages of memory or took them back, most in {op}"
)
_COUNTED = "a process had {faults} page faults in ops, {faults_per_second} a second, most in {op}"
_BLOCKS = "; each of {steps} steps took at least {blocks} blocks of {block_bytes}, which were freed again"

RULES = (
    Rule(
        id="page-faults",
        title="Memory that the kernel hands out anew in each step",
        looks_at="samples of processors after the first step, in the kernel's functions that handle page faults or "
        "take memory back, by the weight of all samples of the process, of which there must be at least 100; or "
        "samples of the event page-faults in ops, from 20,000 faults a second on",
        threshold=0.05,
        because="a twentieth of the CPU time: a program that uses its memory again needs far less; and 20,000 pages a "
        "second are 80 MB of memory",
        sentence=_TIMED,
        remedy="Write into tensors that are there (out=..., in-place ops), or let the process keep what it frees: "
        "jemalloc or tcmalloc by LD_PRELOAD, or MALLOC_MMAP_MAX_=0 and a large MALLOC_TRIM_THRESHOLD_ for glibc's "
        "malloc; huge pages (THP_MEM_ALLOC_ENABLE=1) need fewer faults",
        command="opspan functions FILE --by op",
        read="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        look=_look,
    ),
)
