"""Servers that are too slow, and files that are too large, to fetch."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import shutil
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import opspan
from builders import kineto, nsys, nvprof, rocpd, unitrace, vtune
from loopback import Answer, Asked, Served, in_chunks, whole
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


def dripping_headers(asked: Asked) -> None:
    asked.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    with contextlib.suppress(OSError):
        while not asked.server.over.wait(0.05):
            asked.wfile.write(b"x")


def dripping_redirects(asked: Asked) -> None:
    """Each answer comes in time, and leads to the same once more."""
    asked.server.over.wait(0.2)
    asked.begin(302, Location=asked.path, Content_Length=0)


def dripping_page(asked: Asked) -> None:
    asked.begin(Content_Type="text/html", Content_Length=1 << 20)
    with contextlib.suppress(OSError):
        while not asked.server.over.wait(0.05):
            asked.wfile.write(b" ")


@contextlib.contextmanager
def dripping_handshake() -> Iterator[str]:
    """The address of a server that begins the first record of TLS, and never comes to its end."""

    class Connected(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.sendall(b"\x16\x03\x03\x40\x00")
                while not over.wait(0.05):
                    self.request.sendall(b"\x02")

    over = threading.Event()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connected) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_address[1]}/run.json"
        finally:
            over.set()
            server.shutdown()
            thread.join()


def test_a_server_that_drips_is_left(web: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "RATED_S", 0.5)
    begin = time.monotonic()

    said = refused(web.give("/drip.json", dripping), NotReadable)

    assert re.search(r"its server is too slow: [0-9]+ bytes came", said)
    assert time.monotonic() - begin < 20
    assert web.counts["/drip.json"] == 1  # it would be as slow again


@pytest.mark.parametrize("answer", [dripping_headers, dripping_redirects])
def test_an_answer_has_to_begin_in_time(web: Served, monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    monkeypatch.setattr(remote, "ANSWER_S", 0.5)
    path = f"/{answer.__name__}.json"
    begin = time.monotonic()

    said = refused(web.give(path, answer))

    assert said.endswith("its server is too slow: no whole answer began within 0.5 s")
    assert time.monotonic() - begin < 20
    assert answer is dripping_redirects or web.counts[path] == 1  # it would be as slow again


def test_a_handshake_has_to_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "ANSWER_S", 0.5)
    begin = time.monotonic()

    with dripping_handshake() as address:
        said = refused(address)

    assert said.endswith("its server is too slow: no whole answer began within 0.5 s")
    assert time.monotonic() - begin < 20


def test_a_slow_page_of_files_is_left(web: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PAGE_S", 0.5)
    begin = time.monotonic()

    said = refused(web.give("/slow/", dripping_page))

    assert said.endswith("its server is too slow: the page of its files took more than 0.5 s")
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize("part", [b"<a ", b"<a\n\n", b"<a href='", b"<a x", b"http://", b'"'])
def test_an_odd_page_of_files_takes_no_longer(web: Served, part: bytes) -> None:
    address = web.give("/odd/", whole(part * (1_000_000 // len(part)), Content_Type="text/html"))
    begin = time.monotonic()

    assert "there is no file" in refused(address)
    assert time.monotonic() - begin < 20


def test_a_large_page_of_files_is_not_read(web: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PAGE_BYTES", 2_000_000)
    address = web.give("/large/", whole(b" " * 3_000_000, Content_Type="text/html"))

    assert refused(address).endswith("the page of its files has more than 2 MB")


@pytest.mark.parametrize("encoding", [None, "gzip"], ids=["a packed file", "packed by the server"])
def test_a_bomb_ends_at_the_limit_of_what_comes_out(
    web: Served, monkeypatch: pytest.MonkeyPatch, encoding: str | None
) -> None:
    monkeypatch.setenv("OPSPAN_BUDGET", "0.01")  # 0.7 MB, and 2 bytes for each that it has
    event = json.dumps(kineto.kernel("k", 1.0, 1.0, 1)).encode()
    bomb = gzip.compress(b'{"schemaVersion": 1, "traceEvents": [' + event + (b"," + event) * 40_000)
    headers = {"Content_Encoding": encoding} if encoding else {}
    address = web.give(f"/bomb-{encoding}.json{'' if encoding else '.gz'}", whole(bomb, **headers))

    done = CliRunner().invoke(main, ["summary", address])

    assert len(bomb) < 100_000
    assert done.exit_code == 2
    said = f"error: {address}: more bytes come out of it than are allowed (1 MB); if you trust the file, OPSPAN_BUDGET="
    assert done.output.startswith(said)
    assert done.output.count("\n") == 1


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
