"""Makes the text of docs/schema.md from the tables of a trace and the codes of issues."""

from __future__ import annotations

import polars as pl

from opspan.tables.issues import CODES
from opspan.tables.schema import TABLES, Column, Dtype

HEAD = """\
# The tables of a trace

`opspan.load(...)` gives a `Trace`: polars frames by name, and `trace.ranks`, which says for each file (or folder of
files) that was loaded where it is from: reader, paths, tool and version, host, clock, capture options; and which rank
it is: `rank`, its number in all tables, `rank_by`, what says so, and `told`, what the trace itself says: `rank`, `by`,
`world_size`, `local_rank` and `run` ([ranks.md](ranks.md)).

Every column may be null, which means that the source did not know the value.
Times are integer nanoseconds on one clock, that of the first rank;
`trace.origin_utc_ns` is the UTC time of its zero. `Categorical` is text, each distinct one held once. Readers fill
these columns; an analysis adds its own, so a frame may have more. Rows are in no particular order.

`trace.save("run.trace")` writes a folder of Parquet files, one a table, with the same columns; `opspan.load` reads it
back exactly.

## A part of a trace, and memory

`opspan.load(path, between=(start_ns, end_ns))`, `opspan.load(path, step=7)` or `step=(7, 9)`, and `step="train step*"`,
on the command line `--between 1.5s 2s`, `--step 7`, `--steps 7:9` and `--step 'train step*'`, give a part of a trace.

- Times count from where the trace begins: a capture from when it was opened (of a folder the first of its files), any
  other source from the first time of a range, call or work.
- Steps are the ranges `ProfilerStep#N`, by their numbers; or, by name, all ranges that are called so (`*` stands for
  any text, `?` for any letter). The part goes from the begin of the first to the end of the last, whichever process ran
  them; `2:5` and `2-5` are both steps 2 to 5, the last included.
- Without any `ProfilerStep#N` a number is that of an iteration which opspan finds itself, as `opspan steps` lists them:
  each process counts from 0. They can be found in the whole trace only, so it is read as a whole, and then cut.
- Ranges, calls, work, functions and memory that overlap the part are kept whole, with their true times; of marks,
  counters, samples and relations those that lie in it. What refers to a row that was left out (a parent, a launch)
  refers to nothing.
- Of steps, work of devices is also kept if a call that is kept launched it, however late it ran, and if the tool says
  that it belongs to a range that began in them. So ops have all the device time that they launched. Where time went
  (steps, idle time, use of devices) is looked at between the begin and the end of the part only, where all that ran
  is there: `trace.metadata.options["window_ns"]` has the two. A time
  (`between`) has only what ran in it.
- `trace.metadata.options["window"]` says which part it is; the issue `outside_window` says how many rows were left out.

Of opspan's captures only the part is held in memory: what lies outside is read and forgotten, but for the ends of
start/end ranges and payloads, which are held until all is read. Every other source is read whole first.

A file that would need more memory than there is (`MemAvailable`, and the limits of the process' control groups) is
refused before it is read, with a message that says how much it needs. The estimate is a factor on its size: 1.5 for
captures, which is 100 bytes a range to the printed table; 2 for databases and Chrome traces, which is less than most
take; 1 for saved traces. VTune results are not checked, since little of their folder is read. Of compressed files the
compressed size counts. `OPSPAN_MEMORY=64G` sets how much memory may be used, whatever is free; with `OPSPAN_MEMORY=0`
nothing is checked.
"""

COLUMNS_HEAD = """\
| column | type | unit | meaning |
| --- | --- | --- | --- |
"""

ISSUES_HEAD = """\
## Codes of issues

What a reader skips, repairs or finds odd is a row of `trace.issues`. `opspan.load(..., strict=True)` raises
`StrictError` if the severity of one is warning or error.

| code | severity | meaning | advice |
| --- | --- | --- | --- |
"""


def text() -> str:
    parts = [HEAD]
    for table in TABLES.values():
        rows = "".join(row(column) for column in table.columns)
        parts.append(f"## {table.name}\n\n{table.sentence}\n\n{COLUMNS_HEAD}{rows}")
    codes = "".join(
        f"| `{name}` | {code.severity} | {code.message} | {code.advice} |\n" for name, code in sorted(CODES.items())
    )
    parts.append(ISSUES_HEAD + codes)
    return "\n".join(parts)


def row(column: Column) -> str:
    refers = f" Refers to `{column.refers}`." if column.refers else ""
    sentence = column.sentence.replace("|", "\\|")
    return f"| `{column.name}` | {_type(column.dtype)} | {column.unit} | {sentence}{refers} |\n"


def _type(dtype: Dtype) -> str:
    if isinstance(dtype, pl.Enum):
        return "Enum: " + ", ".join(dtype.categories)
    return str(dtype)
