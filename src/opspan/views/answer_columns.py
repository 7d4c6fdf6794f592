"""Declares the columns of answers as programs read them (JSON, CSV): their names, their meaning and their units.

The tables of docs/json.md are made from COLUMNS, and a workbook writes numbers by their units. fields.py declares the
columns that people see. The help of a Field cannot be used here, because it only completes the title of the column.
"""

from __future__ import annotations

# Title of a section of docs/json.md -> names of columns that share a meaning -> this meaning.
COLUMNS: dict[str, dict[str, str]] = {
    "by name, shape, stack": {
        "name": "name of the op or range; with `--kernels`, rows of kernels and copies have their names here",
        "sizes": "by shape: sizes of the inputs, one list per input, as in the column `sizes` of "
        "[`trace.ranges`](schema.md#ranges)",
        "stack": "by stack: the five innermost Python functions, the innermost first",
        "device": "where it ran: `cpu`; `cuda` or `xpu` for kernels and copies, which have rows with `--kernels`, or "
        "if there are no ops",
        "rank": "rank of the process; only if there are several ranks",
        "count": "number of calls",
        "cpu_ns self_cpu_ns": "time on the CPU",
        "device_ns self_device_ns": "time on devices of the work that was launched",
        "average_cpu_ns average_device_ns": "average time of a call",
        "samples": "by name, if ranges have samples of processors: how many were taken in it, but not in a range "
        "inside it. Of several events, the one that measures time is counted. `null`: a kernel or copy, or a rank "
        "without samples in ranges",
        "sampled_cpu_ns": "by name, if ranges have samples of processors: the processor time of these samples; `null`: "
        "their weights are not nanoseconds",
        "ipc": "by name, if ranges have samples of processors: instructions for each cycle in it, but not in ranges "
        "inside it; `null`: fewer than 30 samples of either event, or not counted",
        "front_end_bound retiring back_end_bound": "by name, if ranges have samples of processors: shares of the slots "
        "for micro-operations in it, but not in ranges inside it; `null`: fewer than 30 samples of an event, not "
        "counted, or the width of the processor's cores is not known ([rules](formats/vtune.md#hardware-events))",
        "cpu_memory_bytes self_cpu_memory_bytes": "with `--memory`: host memory, as bytes allocated minus bytes freed",
        "device_memory_bytes self_device_memory_bytes": "with `--memory`: device memory, as bytes allocated minus "
        "bytes freed",
    },
    "by module, step, phase, function": {
        "module step phase function": "name of the module, step, phase or innermost function; `null`: the ranges "
        "outside of all modules, steps, phases or functions",
        "count": "calls of the module, or number of steps of this name; not by phase and function. `null`: not known",
        "ranges": "number of ranges in it",
        "self_cpu_ns self_device_ns": "self time of these ranges",
        "cpu_ns device_ns": "with `--op NAME`: time of the calls on the CPU, and time on devices of the work that was "
        "launched",
        "backward_cpu_ns backward_device_ns": "time of the backward ops that are linked to ops among these ranges",
        "self_cpu_memory_bytes self_device_memory_bytes": "with `--memory`: memory of these ranges",
    },
    "by line, source-op": {
        "line": "by line: file, number and function of the line; `(unknown)`: not known; `(ambiguous)`: the compiler "
        "said several different things about these kernels ([rules](compiled.md#the-table-by-line))",
        "source_op": "by source-op: the op that the program called; `(unknown)`: not known",
        "count": "number of kernels, copies and fills that the line or op has a share of",
        "ranges": "number of ranges that it has a share of",
        "self_cpu_ns self_device_ns": "its share of the self time of ranges, and of the time of kernels, copies and "
        "fills. The sums over all rows are the times of all ranges, and of all kernels, copies and fills",
    },
    "by kernel, stream": {
        "kind name": "by kernel: the kind (`kernel`, `memcpy`, `memset` or `graph`) and the short name",
        "rank device_id context_id stream_id": "by stream: which stream it is",
        "count": "number of kernels, copies, fills and graphs that ran",
        "device_ns average_device_ns": "total and average time that they ran",
        "least_device_ns most_device_ns": "by kernel: the shortest and the longest time",
        "blocks_per_sm occupancy": "by kernel: blocks of a launch per multiprocessor, and the estimated occupancy "
        "from 0 to 1; both are means over the launches, weighted by time ([rules](analysis.md#where-the-time-went)); "
        "`null`: not known",
        "uses_tensor_cores": "by kernel: `yes`, `no` or `unknown`, judged by the kernel's name; `null`: a copy or a "
        "fill",
    },
    "steps": {
        "rank pid": "rank and process",
        "step": "name of the step; `null`: the process has no steps, and the row covers the whole process",
        "start_ns end_ns time_ns": "begin, end and length of the step; `start_ns` and `end_ns` are `null` if `step` is",
        "took_ns": "time from when the step before was done until all work that this step launched was done; `null` if "
        "`step` is ([rules](analysis.md#compare))",
        "computing_ns copying_ns filling_ns communicating_ns calling_ns loading_ns ops_ns other_ns": (
            "the step's time by kind; each moment counts for one kind ([rules](analysis.md#where-the-time-went))"
        ),
        "utilisation sm_efficiency occupancy tensor_core_share": "from 0 to 1, for all devices of the process: share "
        "of the time in which a kernel ran; share of the multiprocessors that kernels had blocks for; estimated "
        "occupancy, as a mean weighted by the kernels' time; share of the kernels' time spent in kernels that use "
        "tensor cores, which is also `null` if the names of kernels with more than a tenth of the time do not tell. "
        "`null`: not known, or no kernel ran ([rules](analysis.md#where-the-time-went))",
        "phase tokens requests batch_size": "of a serving engine, what the step's name says: `prefill`, `decode`, "
        "`mixed` or `diffusion`; the tokens that the step computes; its requests; the batch size in the engine's own "
        "words, which are tokens for vLLM, requests for SGLang and images for xDiT. `null`: the name does not say it "
        "([rules](analysis.md#serving))",
        "token_ns tokens_per_s": "`took_ns` for a token, and tokens a second in `took_ns`; `null` if `tokens` is",
        "how": "how the steps were found: `named`, `step` (torch's), `engine` (a serving engine's), `repeats` (the "
        "program's own ranges), `optimizer` ([rules](analysis.md#iterations))",
        "is_outlier": "whether the step took much longer than the others until all work that it launched was done "
        "([analysis.md](analysis.md#iterations))",
    },
    "idle": {
        "op module phase step function": "name of the op, module, ... that the idle time belongs to; `null`: in none. "
        "`function` is a Python function or, if the trace has none, one that processors were sampled in. By "
        "gap, `op` is the op that most of the gap belongs to",
        "rank pid device_id": "by device, stream and gap: which device was idle",
        "context_id stream_id": "by stream: which stream it is; the other columns then describe the gaps of this "
        "stream",
        "elsewhere_ns": "by stream: how long another stream of the device was busy during these gaps",
        "start_ns end_ns": "by gap: begin and end",
        "time_ns": "how long the device was idle",
        "gaps": "number of gaps; not by gap",
        "why": "by gap: which of the four times below is the longest",
        "host_ns": "idle time until the host launched the work that came next",
        "launch_ns": "idle time from the begin of that launch on",
        "queued_ns": "idle time although the next work had been launched before the gap",
        "unknown_ns": "idle time with an unknown reason: the launch is not in the trace, nothing came after the gap, "
        "or the process used more than 256 devices, which no machine has",
    },
    "functions": {
        "function library": "the function and the file that it is in, or by library only this file; `null`: not known. "
        "`(unresolved)`: all functions of the library whose names the tool did not find",
        "op module phase step line call thread": "by op, module, ...: the one that the sample was taken in; `null`: in "
        "none. By call, it is the innermost call that was open on the thread",
        "samples weight": "number of samples whose innermost function (library, op, ...) it is, and the sum of their "
        "weights, of one event: the one that measures time, if the file has several",
        "total_samples total_weight": "the same for samples that have it anywhere in their stack; by function and "
        "library",
        "share total_share": "`weight` and `total_weight` as shares of the weight of all samples that are counted; "
        "`null`: fewer than 30 samples",
        "error_share": "standard deviation of `share`, which is `share` / √`samples`",
        "cpu_ns total_cpu_ns": "`weight` and `total_weight`, only if they are nanoseconds of processor time",
        "cycles instructions ipc llc_misses": "counted by the hardware; `null`: fewer than 30 samples of the event",
        "front_end_bound retiring back_end_bound": "shares of the slots for micro-operations; `null`: fewer than 30 "
        "samples of an event, or the width of the processor's cores is not known "
        "([rules](formats/vtune.md#hardware-events))",
    },
    "comm": {
        "op module phase step function": "name of the op, module, ... that started the collectives; `null`: in none. "
        "By call, `op` is the op that started this collective",
        "kind": "`all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `broadcast`, `reduce`, `gather`, "
        "`scatter`, `send`, `recv`, `send_recv`, `barrier`; `null`: not known ([rules](analysis.md#communication))",
        "group group_size members": "by group and by call: name of the group, number of its ranks, and its ranks as "
        "JSON; `null`: the trace does not say",
        "bytes_each": "by size: size of one collective",
        "rank pid device_id": "by rank and by call: rank, process and device; `device_id` is `null` if the collective "
        "ran on no device",
        "count matched": "number of collectives, where each rank counts its own, and how many of them were matched "
        "with those of other ranks; not by call",
        "bytes": "size as NCCL's tests count it, summed over ranks; `null`: not known",
        "time_ns": "time that the collectives took; `null`: only their start is known",
        "transfer_ns waiting_ns": "for matched collectives: the shortest time of all ranks, and the rest of the time; "
        "`null`: none was matched",
        "matched_ns": "time of the collectives whose `waiting_ns` is known: the sum of their transfer and waiting; "
        "`null`: none; not by call",
        "mean_bytes mean_time_ns mean_transfer_ns": "means per collective, over the collectives whose value is known; "
        "not by call",
        "last waited_for_ns": "by rank: in how many collectives this rank came last, and how long all other ranks "
        "together waited in them",
        "algorithm_bytes_per_s bus_bytes_per_s": "bandwidth of the collectives whose size and time are known "
        "([rules](analysis.md#communication))",
        "bandwidth_of": "which time the bandwidth is based on: `transfer`, `own` (the collective's own time), or "
        "`both` if it differs between collectives",
        "span_ns computing_ns communicating_ns exposed_ns": "by rank: the whole time of the process, and for how much "
        "of it the device computed, communicated, and communicated while nothing computed",
        "stream_id start_ns end_ns name": "by call: stream, begin, end and name of the kernel or range",
        "element algorithm protocol seq": "by call: type of an element, algorithm and protocol of the library, and "
        "the sequence number that torch gave; `null`: the trace does not say",
        "number": "by call: position of the collective among those of its group and kind on its device or process, "
        "from 0",
        "match ranks is_last": "by call: a number that all parts of one collective share; how many parts there are; "
        "whether this part came last",
        "unmatched": "by call: why no other rank's collective matches: `alone`, `peers unknown`, `groups unknown`, "
        "`counts differ`, `at other times`, `unknown`",
    },
    "diff": {
        "name sizes module phase kind": "what the row is about: by op, `name`; by shape, `name` and `sizes`; by "
        "module and phase, `module` and `phase`; by kernel, `kind` and `name`; by place, `name` and `module`",
        "place_before place_after": "by place: position in a step among the ranges of this name and module, from 1; "
        "`null`: the range is not in that run, or is outside of steps",
        "state": "`same`: in both runs; `new`: only in B; `gone`: only in A",
        "time_of": "whose time the next columns have: `device` or `cpu` ([rules](analysis.md#compare))",
        "count_before count_after": "number of ranges or kernels in the whole run",
        "before_ns after_ns": "self time in the whole run",
        "step_before_ns step_after_ns": "self time per step; `null` if either run has no steps",
        "share_before share_after": "share of the self time of all rows: per step, or in the whole run if there are "
        "no steps; `null` if all rows have 0",
        "change_ns": "after minus before: per step, or in the whole run if there are no steps",
        "change": "`change_ns` as a share of the time before; `null` if that time is 0",
        "is_real": "whether the change is larger than the noise; `null`: not known, because there are fewer than "
        "three steps",
    },
    "summary": {
        "tools": "the tools that wrote the files",
        "ranks processes devices ranges": "number of ranks, processes, devices and ranges",
        "cycles": "largest number of [files of one process](ranks.md#cycles) that a rank has; 1 if no process wrote "
        "several files",
        "pyroscope_run": "label `run_id` of the run, if [emit_pyroscope](pyroscope.md) left one",
        "time_ns": "time of the process that took longest",
        "device_time_ns": "time of all devices together; each device counts as long as its process",
        "busy_ns computing_ns communicating_ns copying_ns idle_ns": "how much of `device_time_ns` devices were busy, "
        "computed, communicated, copied and were idle; what overlaps counts for each. Without devices, "
        "`communicating_ns` is a time of hosts, like `calling_ns`",
        "before_work_ns": "how much of `idle_ns` came before the first work of each device",
        "exposed_communicating_ns exposed_copying_ns": "time of collectives while nothing computed, and of copies and "
        "fills while nothing else ran; these two and `computing_ns` add up to `busy_ns`",
        "calling_ns loading_ns ops_ns other_ns": "what the hosts of all processes did while no device did anything "
        "([rules](analysis.md#where-the-time-went))",
        "overhead_outside_ns": "how long the profiler itself worked before the first and after the last event of each "
        "process; no other column counts this time",
        "attributed": "share of the time of kernels and copies that belongs to a range; kernels that ran at once "
        "count in full; if nothing took any time, the share is by number; `null`: no device",
        "backward linked": "number of backward ranges, and of those that are linked to their forward op",
        "sized": "share of ops, by number, that have sizes; `null`: no ops",
        "steps steps_are": "number of steps in the process that has most, and how steps were found "
        "([rules](analysis.md#iterations))",
        "step_ns step_mean_ns outliers": "median and mean of the times of all steps, and number of steps that took "
        "much longer",
        "startup_ns between_ns after_ns": "for all processes with steps, the time before the first step, between "
        "steps, and after the last step; `null`: no steps",
        "pattern_turns pattern_ns": "for a process without steps: how often its kernels come again in the same order, "
        "and the median time of such a turn; `null`: there is no pattern ([rules](analysis.md#patterns))",
        "compilations compiled_again graph_breaks": "what a log of the compiler says ([--compiled](compiled.md)): "
        "number of compilations, how many of them were of a function that had been compiled before, and number of "
        "graph breaks that it names; `null`: there is no log",
        "compile_ns": "time of all compilations of the process in which they took longest; it may lie outside of the "
        "recording",
        "findings at_stake_ns": "number of findings that cost time, and the time at stake of the costliest finding",
    },
    "findings": {
        "id title": "id and title of the rule",
        "severity": "`high`, `medium` or `low`, by the share of time at stake; `info`: no time is at stake, but the "
        "file cannot answer something",
        "confidence": "how sure the cause is: `certain` (the trace says it), `likely`, `possible`",
        "at_stake_ns": "how much sooner the run would have ended at most ([what that means](findings.md)): the time "
        "of the process that loses most; for time that is summed over devices, the mean of a process' devices; "
        "`null`: the finding has no time",
        "share": "share of the time that the run took. That time is the steps of the process that took longest, each "
        "until all work that it launched was done; for a process without steps, the time from the first work of a "
        "device on",
        "share_of": "which of these two times the share is based on: `the steps' time` or `the run`; `null` if no "
        "time is at stake",
        "condition": "condition under which that much time is at stake, such as `if they took half of their time`, "
        "where the trace cannot say how long the alternative takes; `null`: none",
        "sentence remedy": "what was found, and what to do about it",
        "command": "command that shows more; if something is missing, the command that records it",
        "read": "address of a page with more about it",
        "ops modules lines steps": "the three ops, modules, lines of the program and steps with most of the time; "
        "lines need stacks, or `--compiled`",
        "ranks": "ranks that have the problem",
        "ranges": "the ten longest stretches of time that show the problem, in order of time",
        "figures": "numbers that the finding rests on. The end of a name is its unit (`_ns`, `_bytes`, `_share`); "
        "other figures are counts",
    },
    "launches": {
        "op module phase step function": "name of the op, module, ... that the launch calls were made in; `null`: in "
        "none",
        "kernel": "by kernel: name of the kernel, copy or fill that was launched",
        "launches": "number of calls that launched work; a graph counts as one",
        "short_launches": "number of these calls that took longer than all work that they launched",
        "call_ns work_ns": "time of the calls, and time of the work that they launched",
        "delay_ns longest_delay_ns": "time from the end of the call to the begin of its work: the median, and the "
        "longest ([rules](analysis.md#launched))",
        "ahead_ns": "time from the begin of the call to the begin of its work, which is how far the host runs ahead; "
        "the median",
        "rank device_id": "by stream and copy: rank and device",
        "pid context_id stream_id": "by stream: with `rank` and `device_id`, which stream it is",
        "longest_queue mean_queue": "by stream: number of calls whose work had not begun, at most and as a mean over "
        "time",
        "peer_device_id copy_from copy_to": "by copy: the other device and the kinds of memory; with `rank` and "
        "`device_id`, they are the direction",
        "count bytes ns bytes_per_s": "by copy: number of copies whose size and time are known, their bytes, their "
        "time, and their speed",
    },
    "waits": {
        "op module phase step function": "name of the op, module, ... that the waiting calls were made in; `null`: in "
        "none. By call, `op` is the op that made the call",
        "why": "by why and by call: the reason of the wait, `synchronise`, `blocking copy`, `item`, `allocation`, "
        "`free`, `module loading` or `blocked` ([rules](analysis.md#waits))",
        "call": "by call: name of the function, or what a `blocked` thread waited for",
        "rank pid tid start_ns": "by call: rank, process, thread and begin of the call",
        "count": "number of calls; not by call",
        "wait_ns": "time that the calls took",
        "busy_ns": "for how much of `wait_ns` a device of the process was busy; `null`: not known",
        "synchronise_ns blocking_copy_ns item_ns allocation_ns free_ns module_loading_ns blocked_ns": (
            "`wait_ns` divided by reason; not by why, nor by call"
        ),
    },
    "path": {
        "op module phase kind": "name of the op, module, phase or kind; `null`: in none",
        "rank pid step": "by step, and with `--what-if`: rank, process and step; if `step` is `null`, the process has "
        "no steps, and the row covers the whole process",
        "time_ns": "time on the critical path; with `--what-if`, the time of the step",
        "share": "share of the time of all rows; not by step",
        "pieces": "number of pieces of the path",
        "computing_ns communicating_ns copying_ns filling_ns launch_ns queued_ns host_ns call_ns wait_ns unknown_ns": (
            "`time_ns` divided by kind ([rules](analysis.md#path)); not by kind"
        ),
        "after_ns change_ns": "with `--what-if`: how long the step would take, and how much longer that is than "
        "`time_ns`",
    },
    "memory": {
        "rank pid device_id": "rank, process and device; `device_id` is `null` for memory of the host",
        "op": "op that took the memory; `null`: none",
        "calls": "by op: number of calls of the op",
        "size_increase_bytes self_size_increase_bytes": "by op: bytes allocated minus bytes freed, in the op with all "
        "ranges inside it, and in the op itself",
        "allocation_count self_allocation_count": "by op: number of blocks allocated, with all ranges inside and in "
        "the op itself",
        "allocation_bytes self_allocation_bytes": "by op: bytes allocated, with all ranges inside and in the op itself",
        "peak_ns peak_bytes": "by block: time at which most memory was in use, and how much it was",
        "address bytes alloc_ns tid": "by block: address, size, time and thread of the allocation; if `alloc_ns` is "
        "`null`, the block was allocated before the trace began",
        "module phase": "by block: module and phase of the op",
        "time_ns allocated_bytes total_bytes reserved_bytes": "by device: time at which most memory was in use; how "
        "much of it opspan saw allocated, how much the tool says was in use, and how much torch's allocator held then",
    },
    "flops": {
        "op sizes module phase": "name of the op, module or phase; by shape, `op` and `sizes`; `null`: in none",
        "rank pid step start_ns": "by step: rank, process, step, and begin of the step; if `step` is `null`, the "
        "process has no steps, and the row covers the whole process",
        "count": "number of ranges that have a cost or time of their own",
        "flops": "number of operations ([rules](analysis.md#costs)); `null`: not known for any op",
        "product_flops": "how many of `flops` belong to products: matrix products, convolutions, attention",
        "masked_flops": "how many of `flops` the causal masks and windows of attention hide; shares and `mfu` leave "
        "them out",
        "bytes": "bytes read and written; `null`: not known for any op",
        "type": "type that the products computed in or, without products, that the other ops computed in; `null`: "
        "several types, or another one",
        "is_assumed": "whether float32 was assumed for a type that the trace does not have",
        "time_ns": "time on devices; without devices, time on the host",
        "known_ns": "how much of `time_ns` belongs to ops whose cost is known",
        "flops_per_s bytes_per_s": "rates in the time of the ops whose cost is known",
        "intensity": "operations per byte",
        "compute_share memory_share": "share of the peak of the device or, without devices, of the processor; "
        "`null`: the peak is not known, or the op was faster than the peak",
        "bound": "which peak is nearer: `compute` or `memory`; `neither`: both shares are below 10%",
        "wall_ns": "by step and run: how long the devices worked on it, from the first work to the last "
        "([rules](analysis.md#costs))",
        "mfu": "by step and run: time that the products would take at the peak, as a share of `wall_ns` multiplied by "
        "the number of devices; `null`: not known, or no products",
        "mfu_whole": "`mfu` with `masked_flops` included",
    },
}

# The units of columns whose names do not end with a unit.
_UNITS = {
    "bytes_each": "bytes",
    **dict.fromkeys(("utilisation", "sm_efficiency", "occupancy", "attributed", "sized", "mfu", "mfu_whole"), "share"),
    **dict.fromkeys(("share_before", "share_after", "change", "error"), "share"),
    **dict.fromkeys(("front_end_bound", "retiring", "back_end_bound"), "share"),
}


def units(title: str) -> dict[str, str]:
    """Returns the columns of a section of docs/json.md, each with its unit: ns, bytes, share, or ""."""
    return {name: _unit(name) for names in COLUMNS[title] for name in names.split()}


def _unit(name: str) -> str:
    ending = name.rpartition("_")[2]
    return _UNITS.get(name, ending if ending in ("ns", "bytes", "share") else "")
