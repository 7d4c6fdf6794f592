"""Makes the tables of docs/json.md from the columns of all answers."""

from __future__ import annotations

from opspan.views.answer_columns import COLUMNS


def text(title: str) -> str:
    """Returns the table of the section `title`."""
    rows = (f"| `{'`, `'.join(names.split())}` | {meaning} |\n" for names, meaning in COLUMNS[title].items())
    return "\n| column | meaning |\n| --- | --- |\n" + "".join(rows) + "\n"
