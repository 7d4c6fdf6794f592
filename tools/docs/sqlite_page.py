"""Makes the text of docs/sqlite.md from the tables and views of the analysis database."""

from __future__ import annotations

from opspan.tables.schema import Column
from opspan.views.database import ABOUT, TABLES_IN_ORDER, VIEWS, DatabaseTable

HEAD = """\
# The analysis database

`opspan export run.nsys-rep run.sqlite` writes a trace, and all that the analysis found in it, as a SQLite database
for the sqlite shell, Datasette and other programs that read SQLite:

<!-- needs: sqlite3 -->
```sh
sqlite3 -box run.sqlite 'SELECT * FROM op_summary LIMIT 10'
```

Tables are those of a trace ([schema.md](schema.md)) with the columns of the analysis ([analysis.md](analysis.md)). Row
numbers have become ids with foreign keys, kinds and names are text, booleans are 0 and 1, times are integer nanoseconds
on one clock, null is not known. Unsigned integers of 64 bits are text, since SQLite's integers end at 2^63. All tables
are there, even where the source had nothing for them. The table `about` of the database has these descriptions, too.
"""

COLUMNS_HEAD = """\
| column | unit | meaning |
| --- | --- | --- |
"""


def text() -> str:
    views = "".join(f"| `{view.name}` | {view.sentence} |\n" for view in VIEWS)
    parts = [HEAD, f"## Views\n\n| view | shows |\n| --- | --- |\n{views}"]
    parts += [_section(table) for table in (*TABLES_IN_ORDER, ABOUT)]
    return "\n".join(parts)


def _section(table: DatabaseTable) -> str:
    rows = "".join(_row(column, table) for column in table.columns)
    indexes = ", ".join("(" + ", ".join(f"`{name}`" for name in columns) + ")" for columns in table.indexes)
    section = f"## {table.name}\n\n{table.sentence}\n\n{COLUMNS_HEAD}{rows}"
    return section + (f"\nIndexes: {indexes}.\n" if indexes else "")


def _row(column: Column, table: DatabaseTable) -> str:
    notes = " Primary key." if column.name == table.key else ""
    notes += f" Refers to `{column.refers}`." if column.refers else ""
    sentence = column.sentence.replace("|", "\\|")
    return f"| `{column.name}` | {column.unit} | {sentence}{notes} |\n"
