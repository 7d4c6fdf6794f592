"""Defines the tables for torch.compile's log about its kernels and compilations, and the codes of issues with this
log."""

from __future__ import annotations

import polars as pl

from opspan.tables.code import Code
from opspan.tables.column import I32, I64, NAME, RANK, Column, TableSchema

KNOWN_BY = pl.Enum(["artifact", "code", "name"])
CACHE = pl.Enum(["hit", "miss", "bypass"])
# Maximum number of characters of a reason, and of a stack. Longer texts are cut.
MOST_REASON, MOST_STACK = 4_000, 16_000
_CUT = f"Cut after {MOST_REASON:,} characters."
_COMPILE_ID = Column("compile_id", NAME, "The compilation, as in the name of a range `Torch-Compiled Region: 0/0`.")
_ATTEMPT = Column("attempt", I32, "Number of the attempt to compile, from 0.")
_LOG_PID = Column("pid", I64, "Process that compiled, as the log says.")


PROVENANCE = TableSchema(
    "provenance",
    "What the compiler said about its kernels: the ops and the source lines that each call of a kernel was made from.",
    (
        Column("id", I64, "Number of the row in this trace, from 0."),
        Column("rank", I32, RANK),
        Column(
            "graph",
            I64,
            "The compiled graph: the `id` of its first row. One compilation makes a graph for the forward and one for "
            "the backward.",
            refers="provenance.id",
        ),
        _COMPILE_ID,
        _ATTEMPT,
        Column("aot_id", NAME, "Name of the graph in the generated code, such as 0_forward."),
        Column("cache_key", NAME, "Key of the graph in torch's cache, as in a range `## Call CompiledFxGraph KEY ##`."),
        Column("phase", NAME, "forward, backward or inference."),
        Column("kernel", NAME, "Name of the kernel, such as triton_poi_fused_add_mul_0 or extern_kernels.mm."),
        Column("call_number", I64, "Which of the graph's calls of kernels it is; null: the row is about all calls."),
        Column("node", NAME, "Node of the graph that the kernel computes."),
        Column("op", NAME, "The op that the node is, such as aten::mul."),
        Column("written_as", NAME, "What the program called, before torch.compile took it apart, such as torch.relu."),
        Column("source_ops", NAME, "The ATen ops that the whole kernel was made from, as eager code would call them."),
        Column("file", NAME, "Source file of the program, as the compiler wrote it."),
        Column("line", I64, "Line in this file."),
        Column("function", NAME, "Function in this file."),
        Column("stack", NAME, "Python functions around this line, one per line of text, the outermost first."),
        Column(
            "module_path",
            NAME,
            "Module of the model that the node is from, such as MLP.layers.0; of a backward node, that of its forward. "
            "Null: from none, or not known. Only recordings with `compiled=True` have it.",
        ),
        Column(
            "known_by",
            KNOWN_BY,
            "artifact: the compiler wrote it down; code: from comments in the generated code; name: from the kernel's "
            "name alone.",
        ),
        Column("is_cut", pl.Boolean, "Whether `source_ops` may lack ops, because the kernel's name was cut."),
    ),
)

COMPILATIONS = TableSchema(
    "compilations",
    "What torch.compile compiled: how long it took, and why it compiled a function again. A backward that was compiled "
    "later than its forward has a row of its own.",
    (
        Column("id", I64, "Number of the row in this trace, from 0."),
        Column("rank", I32, RANK),
        _LOG_PID,
        _COMPILE_ID,
        Column("attempt", I32, "Number of the attempt that came last, from 0: how often compiling began anew."),
        Column("is_backward", pl.Boolean, "Whether only the backward was compiled, when it was first needed."),
        Column("function", NAME, "The function that was compiled; for a backward, that of its forward."),
        Column("file", NAME, "Source file of the function, as the compiler wrote it."),
        Column("line", I64, "Line in this file where the function begins."),
        Column("end_ns", I64, "When it ended; null: not known on the clock of the trace.", "ns"),
        Column(
            "duration_ns",
            I64,
            "How long it took as a whole: `duration_us` of the log, in older logs the time of Dynamo or of the "
            "backward, else from begin to end.",
            "ns",
            is_length=True,
        ),
        Column("dynamo_ns", I64, "Time of Dynamo. `aot_autograd_ns` is a part of it.", "ns", is_length=True),
        Column(
            "aot_autograd_ns",
            I64,
            "Time of the backend that Dynamo called, as a rule AOTAutograd. `inductor_ns` is a part of it. Null for a "
            "backward.",
            "ns",
            is_length=True,
        ),
        Column("inductor_ns", I64, "Time of Inductor. `code_gen_ns` is a part of it.", "ns", is_length=True),
        Column(
            "code_gen_ns",
            I64,
            "Time to write the code and to load it. `triton_ns` is a part of it.",
            "ns",
            is_length=True,
        ),
        Column(
            "triton_ns", I64, "Time to wait for kernels that Triton or a C++ compiler compiled.", "ns", is_length=True
        ),
        Column(
            "recompile_reason",
            pl.String,
            f"Why code that was there could not be used: the guard that failed. {_CUT}",
        ),
        Column("fail_type", NAME, "Kind of the error that ended it; null: there was none."),
        Column("fail_reason", pl.String, f"Text of this error. {_CUT}"),
        Column("restart_reasons", pl.String, f"Why it began anew, one reason after the other. {_CUT}"),
        Column(
            "cache",
            CACHE,
            "What Inductor's cache of graphs said: hit, miss or bypass; of several graphs, miss if any missed, else "
            "bypass if any was bypassed; null: not known.",
        ),
    ),
)

GRAPH_BREAKS = TableSchema(
    "graph_breaks",
    "Where torch.compile had to break a graph, and why. Each compilation of the function says it again.",
    (
        Column("id", I64, "Number of the row in this trace, from 0."),
        Column("rank", I32, RANK),
        _LOG_PID,
        _COMPILE_ID,
        _ATTEMPT,
        Column("reason", NAME, f"Why, in a line. {_CUT}"),
        Column("detail", pl.String, f"What the compiler explained, and its hints. {_CUT}"),
        Column("file", NAME, "Source file of the program, as the compiler wrote it."),
        Column("line", I64, "Line in this file."),
        Column("function", NAME, "Function in this file."),
        Column(
            "stack",
            NAME,
            "Python functions around this line, one per line of text, the outermost first. Only the last "
            f"{MOST_STACK:,} characters are kept.",
        ),
    ),
)

COMPILED = (PROVENANCE.name, COMPILATIONS.name, GRAPH_BREAKS.name)

CODES: dict[str, Code] = {
    "foreign_lines": Code(
        "info",
        "lines in the compiler's log are not the compiler's and were left out",
        "Another program wrote into the same file. What the compiler wrote was read.",
    ),
    "damaged_log": Code(
        "warning",
        "entries of the compiler's log are damaged",
        "Kernels that these entries are about may have no source lines. Record the log again: TORCH_TRACE=FOLDER.",
    ),
    "other_artifacts": Code(
        "info",
        "entries of the compiler's log are of kinds that opspan does not know, and were left out",
        "Nothing is missing unless they are about kernels. tlparse shows them.",
    ),
    "no_provenance": Code(
        "warning",
        "logs of the compiler do not say which ops and lines any kernel was made from",
        "Compile with INDUCTOR_PROVENANCE=1 as well as TORCH_TRACE=FOLDER, and if graphs came from a cache, with "
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES=1.",
    ),
    "cached_lines": Code(
        "warning",
        "compiled graphs came from torch's cache with lines of another program, or of another version of this one",
        "These lines were left out. Kernels of the backward have no lines then: compile without the cache, with "
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES=1.",
    ),
    "only_named": Code(
        "info",
        "compiled kernels have no lines, because the compiler's log has only their names",
        "Their ops are taken from the names. Record with compiled=True or INDUCTOR_PROVENANCE=1 if you did not. Torch "
        "2.4 and 2.6 do not log the lines of kernels on the CPU even then.",
    ),
    "compiled_elsewhere": Code(
        "warning",
        "kernels in the compiler's logs are of ranks or processes that are not in the trace",
        "Load the traces of these ranks as well, or name the log of this rank alone: --compiled FILE.",
    ),
    "compilations_elsewhere": Code(
        "warning",
        "compilations in the compiler's logs are of ranks or processes that are not in the trace",
        "Load the traces of these ranks as well, or name the log of this rank alone: --compiled FILE.",
    ),
}
