"""Defines the table of what torch.compile said about its kernels, and the codes of what can be wrong with it."""

from __future__ import annotations

import polars as pl

from opspan.tables.code import Code
from opspan.tables.column import I32, I64, NAME, RANK, Column, TableSchema

KNOWN_BY = pl.Enum(["artifact", "code", "name"])

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
        Column("compile_id", NAME, "The compilation, as in the name of a range `Torch-Compiled Region: 0/0`."),
        Column("attempt", I32, "Number of the attempt to compile, from 0."),
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
            "known_by",
            KNOWN_BY,
            "artifact: the compiler wrote it down; code: from comments in the generated code; name: from the kernel's "
            "name alone.",
        ),
        Column("is_cut", pl.Boolean, "Whether `source_ops` may lack ops, because the kernel's name was cut."),
    ),
)

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
    "compiled_elsewhere": Code(
        "warning",
        "kernels in the compiler's logs are of ranks that are not in the trace",
        "Load the traces of these ranks as well, or name the log of this rank alone: --compiled FILE.",
    ),
}
