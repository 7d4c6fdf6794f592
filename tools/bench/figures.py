"""Reports the figures of a bench: prints them, and appends them to the file $OPSPAN_FIGURES for `python tools/bench`.

A figure is identified by its bench, the title above it and its own text (`what`). All three must be the same in every
run. Put texts that differ between runs into `beside`.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "OPSPAN_FIGURES"
PLACES = {"x": 2, "s": 2, "GB": 2, "MB": 0, "MiB": 0, "ms": 0, "us": 0, "ns": 0, "bytes": 0, "a second": 0, "units": 0}

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Figure:
    bench: str
    of: str  # the title above the figure
    what: str
    value: float
    unit: str
    most: float | None = None
    least: float | None = None

    @property
    def key(self) -> Key:
        return self.bench, self.of, self.what

    @property
    def goal(self) -> str:
        if self.most is not None:
            return f"<= {self.most:g} {self.unit}"
        return f">= {self.least:g} {self.unit}" if self.least is not None else ""

    @property
    def met(self) -> bool | None:
        if self.most is not None:
            return self.value <= self.most
        return self.value >= self.least if self.least is not None else None

    @property
    def text(self) -> str:
        return self.show(self.value)

    def show(self, value: float) -> str:
        places = PLACES[self.unit] + (self.unit == "x" and abs(value) < 0.1)
        return f"{value:,.{places}f} {self.unit}"

    @property
    def verdict(self) -> str:
        return {True: "met", False: "MISSED", None: ""}[self.met]


_title = ""


def title(text: str, beside: str = "") -> None:
    global _title
    _title = text
    print(f"\n{text}" + (f": {beside}" if beside else ""), flush=True)


def figure(
    what: str,
    value: float,
    unit: str = "x",
    *,
    beside: str = "",
    most: float | None = None,
    least: float | None = None,
) -> None:
    new = Figure(Path(sys.argv[0]).stem, _title, what, value, unit, most, least)
    print(f"  {what:<64} {new.text:>12}  {beside:<24} {new.goal:<14} {new.verdict}".rstrip(), flush=True)
    if path := os.environ.get(FILE):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(new)) + "\n")


def read(path: Path) -> list[Figure]:
    return [Figure(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
