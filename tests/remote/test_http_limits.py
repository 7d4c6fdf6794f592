"""Servers that are too slow, and files that are too large, to fetch."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import opspan
from builders import kineto, nsys, nvprof, rocpd, unitrace, vtune
from loopback import Asked, Served, in_chunks, whole
from opspan import remote
from opspan.cli import main
from opspan.errors import NotReadable
from remote.refused import refused


def dripping(asked: Asked) -> None:
    """A byte at a time, for ever."""
    asked.begin(Content_Length=1 << 20)
    with contextlib.suppress(OSError):  # nobody listens any more
        while not asked.server.over.wait(0.05):
            asked.wfile.write(b" ")
            asked.wfile.flush()


def test_a_server_that_drips_is_left(web: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "RATED_S", 0.5)
    begin = time.monotonic()

    said = refused(web.give("/drip.json", dripping), NotReadable)

    assert re.search(r"its server is too slow: [0-9]+ bytes came", said)
    assert time.monotonic() - begin < 20
    assert web.counts["/drip.json"] == 1  # it would be as slow again


@pytest.mark.parametrize("is_told", [True, False], ids=["length told", "length not told"])
def test_more_than_may_be_fetched_is_refused(web: Served, is_told: bool) -> None:
    body = b"x" * 100_000
    address = web.give("/large.json", whole(body) if is_told else in_chunks(body, has_end=True))

    with pytest.raises(NotReadable, match=r"no more than 0\.1 MB may be fetched; allow more with --most-fetched"):
        opspan.load(address, most_bytes=50_000)


def test_how_much_may_be_fetched_is_an_option(web: Served, trace: bytes) -> None:
    address = web.give("/run.json.gz", whole(trace))

    def summary(size: str) -> Any:
        return CliRunner().invoke(main, ["summary", address, "--most-fetched", size])

    refusal, answer, odd = summary("0.1kB"), summary("1MB"), summary("much")

    assert (refusal.exit_code, answer.exit_code, odd.exit_code) == (2, 0, 2)
    assert "may be fetched" in refusal.output
    assert "expected a number and a unit" in odd.output


def zipped(folder: Path) -> Path:
    return Path(shutil.make_archive(str(folder), "zip", folder))


def report_of(folder: Path) -> Path:
    file = folder / "report.csv"
    file.write_text("Task Type,CPU Time\naten::mm,1.5\naten::add,0.5\n")
    return file


# Each public loader: what it reads, and a function from a folder to a file of that. Those that can be are packed.
LOADERS: dict[str, Callable[[Path], Path]] = {
    "load": lambda folder: kineto.write(folder / "run.json.gz"),
    "load_kineto": lambda folder: kineto.write(folder / "run.json.gz"),
    "load_many": lambda folder: kineto.write(folder / "run.json.gz"),
    "load_nsys": lambda folder: nsys.run(folder / "run.sqlite", "2026"),
    "load_nvprof": lambda folder: nvprof.run(folder / "run.nvvp", 26),
    "load_rocpd": lambda folder: rocpd.rpd(folder / "run.rpd"),
    "load_unitrace": lambda folder: unitrace.write(folder / "run.json", unitrace.events()),
    "load_vtune": lambda folder: zipped(vtune.run(folder / "r000hs", "2024")),
    "load_vtune_report": report_of,
    "parse_nvprof_trace": lambda folder: nvprof.run(folder / "run.nvvp", 26),
}


def test_every_loader_is_tried() -> None:
    assert sorted(LOADERS) == [name for name in opspan.__all__ if "load" in name or name.startswith("parse")]


@pytest.mark.parametrize("name", LOADERS)
def test_each_loader_takes_a_limit_of_what_is_fetched(web: Served, tmp_path: Path, name: str) -> None:
    file = LOADERS[name](tmp_path)
    body = file.read_bytes()
    address = web.give(f"/{name}/{file.name}", whole(body))

    def loaded(path: object, most_bytes: int) -> Any:
        found = getattr(opspan, name)(path, most_bytes=most_bytes)
        return found.ranks if name in ("load", "load_many") else found

    # A packed file counts packed, and a file of this machine is not fetched.
    assert len(loaded(address, len(body)))
    assert len(loaded(file, 1))
    with pytest.raises(
        NotReadable, match=re.escape(f"cannot read {address}: it has ") + ".*may be fetched; allow more"
    ):
        loaded(address, len(body) - 1)


@pytest.mark.parametrize("verb", ["summary", "table", "export"])
def test_the_option_holds_for_what_a_folder_lists(web: Served, trace: bytes, tmp_path: Path, verb: str) -> None:
    names = [f"rank{rank}.json.gz" for rank in range(2)]
    for name in names:
        web.give(f"/limited/{name}", whole(trace))
    web.give(
        "/limited/", whole("".join(f'<a href="{name}">x</a>' for name in names).encode(), Content_Type="text/html")
    )
    out = [str(tmp_path / "out.json")] if verb == "export" else []

    def run(size: str) -> Any:
        return CliRunner().invoke(main, [verb, f"{web.address}/limited/", *out, "--most-fetched", size])

    refusal, answer = run("0.1kB"), run("1MB")

    assert (refusal.exit_code, answer.exit_code) == (2, 0)
    assert "no more than 0.0 MB may be fetched" in refusal.output
