"""Rules about programs without devices: the time in which the host runs no op, and ops that do hardly any work."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.analysis.spans import MOST, PROCESS, THREAD, distinct, length, number_groups, sum_by, union, within
from opspan.findings.rule import Evidence, Rule, median, place_of
from opspan.findings.run import Run, top
from opspan.findings.sampled import most_executed, samples_of

_col = pl.col
_LEAST_NS = 500_000  # shorter pauses do not count: optimizers and loaders may run for some 300 us without an op
_SMALL_NS = 5_000  # calling an op takes some microseconds by itself, and more while a profiler records it
_OPS = ("op", "script", "static_op", "static_model")
# Ranges that compute without calling ops. Nodes of the backward with other names contain ops, or Python code of the
# program.
_COMPILED = r"^CompiledFunction|^Torch-Compiled Region|CompiledFxGraph"
_WHERE = ("module", "user", "backward")
_MANY = 0.25  # share of the steps: a place counts if at least this share of the steps pauses there
_MOSTLY = 0.5  # a range must cover this share of a pause to be named


def _look(run: Run, threshold: float) -> Iterator[Evidence]:
    if run.has_devices or not run.steps.height:
        return
    pauses = _pauses(run).filter(_col("ns") > _LEAST_NS)
    if not run.matters(run.longest(pauses, "ns"), threshold):
        return
    pauses = _frequent_pauses(_add_places(run, pauses))
    outside_ns = run.longest(pauses, "lost_ns")
    if not run.matters(outside_ns, threshold):
        return
    places = top(pauses, "ns", "place")
    functions = _functions(run, pauses)
    yield Evidence(
        outside_ns,
        {
            "outside_ns": outside_ns,
            "outside_share": run.share(outside_ns),
            "pauses": pauses.height,
            "least_ns": _LEAST_NS,
            "most_ns": run.longest(pauses.filter(_col("place") == places[0]), "lost_ns"),
        },
        {"place": places[0]} | functions,
        confidence="certain",
        sentence=_PAUSES + _EXECUTED if functions else "",
        **place_of(pauses, "ns"),
    )


def _between_ops(run: Run, threshold: float) -> Iterator[Evidence]:
    if run.has_devices or not run.steps.height:
        return
    pauses = _pauses(run).filter(_col("ns") > 0, _col("whole_ns") <= _LEAST_NS)
    outside_ns = run.longest(pauses, "ns")
    if not run.matters(outside_ns, threshold):
        return
    functions = _functions(run, pauses)
    yield Evidence(
        outside_ns,
        {
            "outside_ns": outside_ns,
            "outside_share": run.share(outside_ns),
            "pauses": pauses.height,
            "most_ns": _LEAST_NS,
        },
        functions,
        sentence=_BETWEEN + _EXECUTED if functions else "",
        **place_of(pauses, "ns"),
    )


def _small_ops(run: Run, threshold: float) -> Iterator[Evidence]:
    if run.has_devices:
        return
    ops = run.rows_in_usual_steps(run.ranges.filter(_col("kind") == "op", _col("self_ns") > 0))
    rows = ops.filter(_col("self_ns") < _SMALL_NS)
    threads = sum_by(rows, THREAD, ns=_col("self_ns").sum()).sort("ns", *THREAD, descending=[True, False, False, False])
    if not threads.height or not run.matters(int(threads["ns"][0]), threshold):
        return
    rows, ops = (
        frame.join(threads.head(1), on=THREAD, how="semi", nulls_equal=True, maintain_order="left")
        for frame in (rows, ops)
    )
    small_ns = int(threads["ns"][0])
    rows = rows.with_columns(op="name")
    yield Evidence(
        None,  # how long one op would take that does the work of many is unknown
        {
            "small_ns": small_ns,
            "small_share": run.share(small_ns),
            "calls": rows.height,
            "all_calls": ops.height,
            "self_ns": median(rows, "self_ns"),
            "least_ns": _SMALL_NS,
        },
        {"op": next(iter(top(rows, "self_ns", "op")), "one without a name")},
        confidence="certain",
        **place_of(rows, "self_ns"),
    )


def _functions(run: Run, pauses: pl.DataFrame) -> dict[str, str]:
    """Returns the word `functions`: what the threads that run ops were executing in the pauses. If samples do not say
    that, returns nothing."""
    threads = distinct(run.ranges.filter(_col("kind").is_in(_OPS)), THREAD)
    samples = samples_of(run).join(threads, on=THREAD, how="semi", nulls_equal=True, maintain_order="left")
    names = most_executed(samples[within(samples, "time_ns", pauses, PROCESS)["row"]]) if samples.height else ()
    return {"functions": ", ".join(names)} if names else {}


def _pauses(run: Run) -> pl.DataFrame:
    """Returns the pauses in usual steps: times in which no thread of the process ran an op or a collective, loaded data
    or compiled. Columns: rank, pid, step, start_ns, end_ns, ns, `whole_ns` (the same with the parts in other steps),
    `usual` (the number of usual steps), and `lost_ns`, the time of a pause, scaled up from the usual steps to all
    steps."""
    return run.memo("pauses", lambda: [_find_pauses(run)])[0]


def _find_pauses(run: Run) -> pl.DataFrame:
    span = (*PROCESS, "start_ns", "end_ns")
    is_op = _col("kind").is_in(_OPS)
    works = run.ranges.filter(is_op | (_col("phase") == "data"))
    others = (run.compilations, run.analysis.collectives, run.ranges_named(_COMPILED))
    busy = union(works.select(span), PROCESS, pl.concat(rows.select(span) for rows in others))
    busy = busy.sort(*PROCESS, "start_ns")
    is_same = pl.all_horizontal(_col(name).eq_missing(_col(name).shift(-1)) for name in PROCESS)
    free = busy.select(*PROCESS, start_ns="end_ns", end_ns=pl.when(is_same).then(_col("start_ns").shift(-1)))
    free = free.with_columns(_col("end_ns").fill_null(MOST), whole_ns=length()).drop_nulls("start_ns")
    # Without any op of a process, nothing says when the process ran ops.
    with_ops = distinct(works.filter(is_op), PROCESS)
    steps = run.usual_steps.select(*span, "step").join(with_ops, on=PROCESS, how="semi", nulls_equal=True)
    # If a pause goes on after the end of its step, it is cut there, and the rest is a pause of the next step.
    begun = within(free, "start_ns", steps, PROCESS)
    parts = pl.concat(
        [free[begun["row"]], steps[begun["stretch"]].select(until_ns="end_ns", step="step")], how="horizontal"
    )
    over = within(steps, "start_ns", free, PROCESS)
    later = pl.concat(
        [steps[over["row"]], free[over["stretch"]].select("whole_ns", until_ns="end_ns")], how="horizontal"
    )
    pieces = pl.concat([parts, later.select(parts.columns)]).unique((*PROCESS, "start_ns"), maintain_order=True)
    pieces = pieces.with_columns(end_ns=pl.min_horizontal("end_ns", "until_ns")).with_columns(ns=length())
    pieces = pieces.with_columns(_col("whole_ns").fill_null(_col("ns")))  # nothing was recorded after the last one
    steps = run.steps.group_by(PROCESS).agg(all=pl.len(), usual=(~_col("is_outlier").fill_null(value=False)).sum())
    pieces = pieces.drop("until_ns").join(steps, on=PROCESS, how="left", nulls_equal=True, maintain_order="left")
    return pieces.with_columns(lost_ns=_col("ns") * _col("all") / _col("usual")).drop("all")


def _add_places(run: Run, pauses: pl.DataFrame) -> pl.DataFrame:
    """Adds `module`, `op` and `place`. They name the innermost module, backward node or user's range that covers at
    least half of the pause. If there is none, `op` and `place` name the range, other than a step, that ended last
    before the pause."""
    rows = run.ranges.filter(_col("kind").is_in(_WHERE)).drop_nulls("end_ns")
    rows = rows.select(*PROCESS, "name", "kind", "module", "start_ns", "end_ns")
    pauses = pauses.with_row_index("pause")
    outer, inner = within(pauses, "start_ns", rows, PROCESS), within(rows, "start_ns", pauses, PROCESS)
    pairs = pl.concat([outer.select(pause="row", range="stretch"), inner.select(pause="stretch", range="row")])
    both = pauses[pairs["pause"]].select("pause", "ns", from_ns="start_ns", until_ns="end_ns")
    both = both.hstack(rows[pairs["range"]])
    shared = pl.min_horizontal("end_ns", "until_ns") - pl.max_horizontal("start_ns", "from_ns")
    both = both.filter(shared >= _MOSTLY * _col("ns")).sort(length(), "start_ns", descending=[False, True])
    most = both.unique("pause", keep="first", maintain_order=True)
    most = most.select("pause", "module", inside="name", kind="kind")
    ended = run.ranges.filter(_col("kind") != "step").select(*PROCESS, "end_ns", last="name").drop_nulls("end_ns")
    queries, ended = number_groups(
        PROCESS, pauses.select("pause", *PROCESS, "start_ns").sort("start_ns"), ended.sort("end_ns")
    )
    before = queries.join_asof(ended, left_on="start_ns", right_on="end_ns", by="of", check_sortedness=False)
    pauses = pauses.join(most, on="pause", how="left").join(before.select("pause", "last"), on="pause", how="left")
    inside, last = _col("inside").cast(pl.String), _col("last").cast(pl.String)
    is_module = _col("kind") == "module"
    return pauses.with_columns(
        op=pl.when(~is_module | is_module.is_null()).then(pl.coalesce(inside, last)),
        module=pl.when(is_module).then(pl.coalesce(_col("module").cast(pl.String), inside)),
        place=pl.coalesce(pl.format("in {}", inside), pl.format("after {}", last), pl.lit("before the first op")),
    )


def _frequent_pauses(pauses: pl.DataFrame) -> pl.DataFrame:
    """Returns only pauses whose `place` has pauses in many steps of the process, because the machine may cause a single
    pause."""
    return pauses.filter(_col("step").n_unique().over(*PROCESS, "place") >= _MANY * _col("usual"))


_PAUSES = (
    "for {outside_ns} ({outside_share} of the steps' time) no op ran, in {pauses} pauses of more than {least_ns}; "
    "{most_ns} of it {place}"
)
_BETWEEN = "for {outside_ns} ({outside_share} of the steps' time) no op ran, in {pauses} pauses of up to {most_ns}"
_EXECUTED = "; the functions with most samples of processors in these pauses: {functions}"

RULES = (
    Rule(
        id="host-outside-ops",
        title="Pauses of the host in which no op runs",
        looks_at="time of steps of programs without devices in which no thread was in an op, loaded data, compiled or "
        "was in a collective, in pauses of more than 0.5 ms, at places where at least a quarter of the steps have one",
        threshold=0.05,
        because="a twentieth: below that it is logging and the loop itself",
        sentence=_PAUSES,
        remedy="See what the program does there, with record(stacks=True) or a profiler of Python: logging, files, "
        "loops over tensors' values, collections of garbage",
        command="opspan steps FILE",
        read="docs/analysis.md#iterations",
        look=_look,
    ),
    Rule(
        id="between-ops",
        title="Time between ops",
        looks_at="time of steps of programs without devices in which no thread was in an op, loaded data, compiled or "
        "was in a collective, in pauses of up to 0.5 ms",
        threshold=0.2,
        because="a fifth of the time: every eager program has some, and profilers add to it",
        sentence=_BETWEEN,
        remedy="Fewer and larger ops (larger batches, foreach=True of optimizers), or torch.compile, which runs many "
        "ops without Python between them",
        command="opspan steps FILE",
        read="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        look=_between_ops,
    ),
    Rule(
        id="small-ops",
        title="Ops that do hardly any work",
        looks_at="time that the thread with most of it was in calls of ops that each took less than 5 us without the "
        "ops that they called, in programs without devices",
        threshold=0.15,
        because="three twentieths of the time: views, and ops that call others, take some of it in every program",
        sentence="{calls} of {all_calls} calls of ops each took less than {least_ns} without the ops that they called "
        "(median {self_ns}), {small_ns} ({small_share}) in all, most in {op}",
        remedy="Larger batches, foreach=True or fused=True of optimizers, or torch.compile, which makes one op of many",
        command="opspan table FILE",
        read="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        look=_small_ops,
    ),
)
