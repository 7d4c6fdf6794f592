"""docs/schema.md, made from schema.py and issues.py: `python -m opspan.trace.reference docs/schema.md` writes it."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

from opspan.trace.issues import CODES
from opspan.trace.schema import TABLES, Column, Dtype

HEAD = """\
# The tables of a trace

<!-- Made by `python -m opspan.trace.reference docs/schema.md`; change src/opspan/trace/schema.py instead. -->

`opspan.load(...)` gives a `Trace`: polars frames by name, and `trace.ranks`, which says for each file (or folder of
files) that was loaded what it was: reader, paths, tool and version, host, clock, capture options.

Every column may be null: the source did not know. Times are integer nanoseconds on one clock, that of the first rank;
`trace.origin_utc_ns` is the UTC time of its zero. `Categorical` is text, each distinct one held once. Readers fill
these columns; an analysis adds its own, so a frame may have more. Rows are in no particular order.

`trace.save("run.trace")` writes a folder of Parquet files, one a table, with the same columns; `opspan.load` reads it
back exactly.
"""

COLUMNS_HEAD = """\
| column | type | unit | meaning |
| --- | --- | --- | --- |
"""

ISSUES_HEAD = """\
## Codes of issues

What a reader skips, repairs or finds odd is a row of `trace.issues`. `opspan.load(..., strict=True)` raises
`StrictError` where one is a warning or an error.

| code | severity | meaning | advice |
| --- | --- | --- | --- |
"""


def schema_markdown() -> str:
    parts = [HEAD]
    for table in TABLES.values():
        rows = "".join(_row(column) for column in table.columns)
        parts.append(f"## {table.name}\n\n{table.sentence}\n\n{COLUMNS_HEAD}{rows}")
    codes = "".join(
        f"| `{name}` | {code.severity} | {code.message} | {code.advice} |\n" for name, code in sorted(CODES.items())
    )
    parts.append(ISSUES_HEAD + codes)
    return "\n".join(parts)


def _row(column: Column) -> str:
    refers = f" Refers to `{column.refers}`." if column.refers else ""
    sentence = column.sentence.replace("|", "\\|")
    return f"| `{column.name}` | {_type(column.dtype)} | {column.unit} | {sentence}{refers} |\n"


def _type(dtype: Dtype) -> str:
    if isinstance(dtype, pl.Enum):
        return "Enum: " + ", ".join(dtype.categories)
    return str(dtype)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(schema_markdown(), encoding="utf-8")
