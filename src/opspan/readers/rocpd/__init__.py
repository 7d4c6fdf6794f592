"""Reads AMD's rocpd files: SQLite of rocprofv3 and rocprof-sys (schema 3), and of rocmProfileData (RPD, schema 2).

Names of tables begin alike in both forms, but the tables differ. rocprof.py reads schema 3, and rpd.py reads schema 2.
docs/formats/rocpd.md describes the tables.
"""

from __future__ import annotations

from pathlib import Path

from opspan.errors import NotATrace
from opspan.formats.sqlite import SqliteFile, is_sqlite, table_names
from opspan.readers.rocpd import rocprof, rpd
from opspan.readers.rocpd.database import RocpdDatabase
from opspan.tables import Issues, Tables


def sniff(path: Path, head: bytes) -> bool:
    if not is_sqlite(head):
        return False
    tables = table_names(path)
    return rpd.matches(tables) or rocprof.matches(tables)


def read(path: Path) -> Tables:
    issues = Issues(str(path))
    with SqliteFile(path, issues) as store:
        if not (rpd.matches(store.tables) or rocprof.matches(store.tables)):
            raise NotATrace(
                f"{path} has none of rocpd's tables; expected what `rocprofv3 --output-format rocpd` writes"
            )
        database = RocpdDatabase(store, issues)
        form = rpd if rpd.matches(store.tables) else rocprof
        trace: Tables = form.read(database, path)
        database.skip_the_rest()
    return trace.replace(issues=issues.frame())
