"""One function per vendor that reads a file and gives torch's kind of list: `load_nsys(path)` -> EventList.

`opspan.load` is the door for everything else: any source, several files, columns instead of events.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opspan.events import EventList


def load_nsys(path: str | os.PathLike[str], *, strict: bool = False) -> EventList:
    """The events of an Nsight Systems report, SQLite export, or parquetdir or arrowdir folder."""
    from opspan.events import events_of
    from opspan.readers import load

    return events_of(load(path, source="nsys", strict=strict))
