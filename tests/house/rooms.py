"""The rooms that each room of src/opspan may import, late imports and those for type checkers included.

A new room is a new line here. `python tools/docs` makes the table of docs/architecture.md of it, and test_arrows.py
fails if a room imports another one.
"""

from __future__ import annotations

GROUND = {"errors", "files", "json_columns", "labels", "native", "printable", "private_files", "sources"}
GROUND |= {"capture_files", "element_types", "forked", "inputs", "outputs", "text_columns", "html_columns", "addresses"}
GROUND |= {"row_numbers", "fused_names", "version"}
READING = GROUND | {"arrow_sqlite", "tables"}
ROOMS: dict[str, set[str]] = {
    "printable": set(),
    "private_files": set(),
    "errors": {"printable"},
    "addresses": {"errors", "printable"},
    "element_types": set(),
    "inputs": set(),
    "capture_files": set(),
    "json_columns": set(),
    "sources": set(),
    "fused_names": set(),
    "outputs": set(),
    "text_columns": set(),
    "html_columns": {"printable", "text_columns"},
    "files": {"private_files"},
    "arrow_sqlite": set(),
    "libraries": {"private_files", "opspan"},  # the cache may have the page; __path__, where they lie
    "workers": set(),
    "forked": {"errors", "workers"},
    "row_numbers": set(),
    "version": set(),
    "native": {"errors", "forked", "libraries", "row_numbers"},
    "labels": {"native"},  # late: a program that is being labelled has no polars
    # What a question is: its views are loaded by name when it is asked.
    "questions": {"errors", "addresses", "tables", "analysis", "views"},
    "tables": GROUND - {"native"},
    "formats": READING,
    "readers": READING | {"formats", "late_names"},
    "remote": READING | {"formats"},
    "analysis": READING,
    "events": READING | {"analysis", "late_names"},
    "findings": READING | {"analysis"},
    "views": READING | {"questions", "libraries", "analysis", "events", "findings", "late_names"},
    "trace": {"questions", "forked", "tables", "analysis", "events", "views", "html_columns"},
    "loading": GROUND | {"tables", "readers", "remote", "analysis", "events", "trace"},
    "dask": {"addresses", "errors", "printable", "version"},
    "many": READING | {"questions", "dask", "workers", "readers", "remote", "analysis", "views", "trace", "loading"},
    "emit": GROUND | {"libraries", "loading", "events", "trace"},  # the last three late, see below
    "app": READING | {"libraries", "readers", "analysis", "events", "views", "trace", "loading", "emit"},
    "itt": {"emit"},
    "nvtx": {"emit"},
    "late_names": set(),
    "autograd_profiler": {"late_names", "loading", "events", "emit", "profiler", "errors", "opspan"},
    "profiler": {
        "forked",
        "itt",
        "late_names",
        "private_files",
        "row_numbers",
        "tables",
        "events",
        "views",
        "trace",
        "emit",
        "errors",
        "opspan",
    },
    "cli": READING
    | {
        "questions",
        "dask",
        "formats",
        "readers",
        "remote",
        "analysis",
        "events",
        "views",
        "trace",
        "loading",
        "many",
        "app",
    },
    "tensorboard": READING | {"libraries", "readers", "analysis", "views", "loading"},
    "opspan": {"forked", "late_names"},  # it names modules and imports none before they are asked for
    "__main__": {"cli"},
}
# Remarks in the table of docs/architecture.md.
NOTES = {
    "questions": "`addresses`, `tables`, `analysis` as types; `views` when a question is asked",
    "cli": "never `emit`: what a verb does with the live side is the work of `app`",
    "emit": "`loading`, `events` and `trace` only when a recording is handed over, or as types",
    "labels": "only when a column is read",
    "readers": "never each other",
    "tensorboard": "nothing imports it",
}
