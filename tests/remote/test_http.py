"""Files by address: from a web server of this machine that serves them well and badly."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

import opspan
from loopback import Answer, Served, begun, cut, in_chunks, never, served, status, then, whole
from opspan import remote
from opspan.cli import main
from opspan.errors import MissingPackage, NotATrace, NotReadable, OpspanError, ReadError
from opspan.formats import progress
from remote.refused import refused

# --- what is read


def test_a_file_by_address_is_the_file(web: Served, trace: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.json.gz").write_bytes(trace)
    address = web.give("/run.json.gz", whole(trace))

    found = opspan.load(f"{address}?X-Amz-Signature=5ec2e7")

    here = opspan.load(tmp_path / "run.json.gz")
    for name, frame in here.frames.items():
        assert_frame_equal(found.frames[name], frame)
    assert found.paths == [f"{address}?..."]


@pytest.mark.parametrize(
    "name", ["/..%2F..%2Fetc%2Fpasswd", "/.hidden.json.gz", "/a%01b%0A.gz", "/" + 300 * "x", "/-rf"]
)
def test_a_name_decides_nothing(web: Served, trace: bytes, temporary: Path, monkeypatch: Any, name: str) -> None:
    there: list[tuple[Path, int]] = []
    read_file = opspan.readers.read_file

    def seen(path: Path, *more: Any) -> Any:
        there.append((path, path.parent.stat().st_mode & 0o777))
        return read_file(path, *more)

    monkeypatch.setattr("opspan.readers.read_file", seen)
    opspan.load(web.give(name, whole(trace)))

    ((path, mode),) = there
    assert path.parent.parent == temporary
    assert path.name.isascii()
    assert path.name.isprintable()
    assert 0 < len(path.name) <= 100
    assert path.name[0] not in ".-"
    assert mode == 0o700


def test_its_reader_tells_it_by_content_and_says_its_address(web: Served) -> None:
    address = web.give("/run.json", whole(b"<html>Please log in</html>"))

    assert refused(address, NotATrace).startswith(f"{address} is ")


def test_issues_are_of_the_address(web: Served, trace: bytes, tmp_path: Path) -> None:
    damaged = gzip.compress(gzip.decompress(trace)[:-200])
    (tmp_path / "run.json.gz").write_bytes(damaged)
    address = web.give("/run.json.gz", whole(damaged))

    issues = opspan.load(address).issues

    here = opspan.load(tmp_path / "run.json.gz").issues
    assert here.height
    assert issues["code"].to_list() == here["code"].to_list()
    assert set(issues["path"]) == {address}


def test_what_a_server_packed_is_unpacked_by_the_reader(web: Served, trace: bytes) -> None:
    packed = opspan.load(web.give("/run.json", whole(trace, Content_Encoding="gzip")))

    assert packed.ranges.height == 6


def test_a_length_need_not_be_told(web: Served, trace: bytes) -> None:
    assert opspan.load(web.give("/run.json.gz", in_chunks(trace, has_end=True))).ranges.height == 6


def test_several_are_the_ranks_of_one_run(web: Served, trace: bytes) -> None:
    addresses = [web.give(f"/run/rank{rank}.json.gz", whole(trace)) for rank in range(3)]
    listing = "".join(
        f'<a href="{name}">x</a>' for name in ["?C=N", "../", ".git", "sub/", *map(os.path.basename, addresses)]
    )
    web.give("/run/", whole(listing.encode(), Content_Type="text/html"))

    assert opspan.load(*addresses[:2]).paths == addresses[:2]
    assert opspan.load(f"{web.address}/run/").paths == addresses
    assert opspan.load(f"{web.address}/run/rank[12]*.gz").paths == addresses[1:]
    assert "there is no file" in refused(f"{web.address}/run/*.sqlite")


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_of_many_each_is_fetched_by_who_reads_it(web: Served, trace: bytes, processes: int, tmp_path: Path) -> None:
    names = ["rank0.json.gz", "rank1.json.gz", "rank2.json.gz", "rank10.json.gz"]
    listing = "".join(f'<a href="{name}">x</a>' for name in names)
    web.give("/many/", whole(listing.encode(), Content_Type="text/html"))
    for name in names[1:]:
        web.give(f"/many/{name}", whole(trace))
        (tmp_path / name).write_bytes(trace)
    address = web.address.replace("//", "//me:word@")

    ranks = opspan.load_many(f"{address}/many/", processes=processes)

    assert_frame_equal(ranks.idle(), opspan.load_many(tmp_path, processes=1).idle())
    assert [path for rank in ranks.ranks for path in rank.paths] == [f"{web.address}/many/{name}" for name in names[1:]]
    (message,) = ranks.issues.filter(code="unreadable_file")["message"]
    assert f"cannot read {web.address}/many/rank0.json.gz: there is nothing at this address" in message
    assert ranks.open(2).paths == [f"{web.address}/many/rank10.json.gz"]


def test_load_nvprof_fetches_once(web: Served, trace: bytes) -> None:
    address = web.give("/once", whole(trace))

    with pytest.raises(ReadError, match=address):
        opspan.load_nvprof(address)

    assert web.counts["/once"] == 1


# --- what is not


@pytest.mark.parametrize(
    ("number", "said", "times"),
    [
        (404, "there is nothing at this address", 1),
        (403, r"it may not be read \(403\); check the address and your credentials", 1),
        (401, r"it may not be read \(401\)", 1),
        (500, "its server answers 500; try again later", 1),
        (503, "its server answers 503", 3),
    ],
)
def test_an_error_of_the_server_is_a_sentence(web: Served, number: int, said: str, times: int) -> None:
    path = f"/status{number}"
    address = web.give(path, status(number))

    with pytest.raises(NotReadable, match=said):
        opspan.load(address)

    assert web.counts[path] == times


def test_what_broke_off_is_asked_for_again(web: Served, trace: bytes) -> None:
    address = web.give("/again", then(status(503), cut(trace, 100), whole(trace)))

    assert opspan.load(address).ranges.height == 6
    assert web.counts["/again"] == 3


@pytest.mark.parametrize("kind", ["cut", "empty", "chunks"])
def test_a_part_is_never_read_as_the_whole(web: Served, kind: str) -> None:
    whole_trace = b'{"traceEvents": [' + b" " * 5000 + b"]}"
    answers = {"cut": cut(whole_trace, 3000), "empty": cut(whole_trace, 0), "chunks": in_chunks(b"{}", has_end=False)}

    said = refused(web.give(f"/part-{kind}", answers[kind]))

    assert "the connection broke off in the middle. Nothing of it was read" in said
    assert web.counts[f"/part-{kind}"] == 3


@pytest.mark.parametrize("answer", [never, begun])
def test_a_server_that_falls_silent_is_left(web: Served, monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    monkeypatch.setattr(remote, "PATIENCE_S", 0.2)
    address = web.give("/silent", answer)

    began = time.monotonic()
    assert "nothing came for 0.2 s" in refused(address)

    assert time.monotonic() - began < 60  # the server says nothing as long as it is there


def test_nobody_there(web: Served) -> None:
    with served() as gone:
        address = gone.address

    assert "there is no connection to its server" in refused(f"{address}/run.json")


def test_more_than_the_disk_has_is_not_begun(web: Served) -> None:
    came: list[bool] = []

    def huge(asked: Any) -> None:
        asked.begin(Content_Length=1 << 60)
        never(asked)
        came.append(True)

    said = refused(web.give("/huge", huge), most_bytes=1 << 62)

    assert "it has 1,152,921,504,606.8 MB, and " in said
    assert said.endswith("MB left; choose another disk with TMPDIR")
    assert not came


def test_the_disk_is_watched_while_it_comes(web: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    free = iter([10 << 30, 1 << 20])
    monkeypatch.setattr("shutil.disk_usage", lambda _: _Usage(next(free, 0)))
    address = web.give("/endless", in_chunks(b" " * (1 << 20), has_end=True))

    assert "1.0 MB left; choose another disk" in refused(address)


class _Usage:
    def __init__(self, free: int) -> None:
        self.free = free


@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://127.0.0.1/x", "s3://bucket/x", "javascript:x"])
def test_it_leads_to_no_other_kind(web: Served, to: str) -> None:
    address = web.give("/leads", status(302, Location=to))

    assert refused(address).endswith("it leads to something that is neither http:// nor https://")


def test_it_may_lead_elsewhere(web: Served, trace: bytes) -> None:
    web.give("/there.json.gz", whole(trace))

    found = opspan.load(web.give("/here", status(307, Location="/there.json.gz")))

    assert found.ranges.height == 6
    assert found.paths == [f"{web.address}/here"]
    assert "without an end" in refused(web.give("/round", status(302, Location="/round")))


@pytest.mark.slow
def test_it_never_leads_from_https_to_http(tmp_path: Path, web: Served, trace: bytes) -> None:
    import ssl

    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    made += " -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*made.split(), "-keyout", "key", "-out", "cert"], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    with served() as safe:
        safe.socket = context.wrap_socket(safe.socket, server_side=True)
        at = safe.address.replace("http:", "https:")
        safe.give("/whole", whole(trace))
        safe.give("/down", status(302, Location=web.give("/open.json.gz", whole(trace))))
        done = [
            subprocess.run(
                [sys.executable, "-m", "opspan", "steps", at + path],
                env={**os.environ, "SSL_CERT_FILE": str(tmp_path / "cert")},
                capture_output=True,
                text=True,
            )
            for path in ("/whole", "/down")
        ]

    assert done[0].returncode == 0, done[0].stderr
    assert done[1].returncode == 2
    assert f"{at}/down: it leads from https:// to http://, which others can" in done[1].stderr


# --- ends


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_stays_when_it_is_ended(web: Served, temporary: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "opspan", "table", web.give("/slow.json", begun)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(temporary.glob("*/slow.json")):
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)

    running.send_signal(number)
    _, said = running.communicate(timeout=30)

    assert running.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in said


def test_how_much_came_is_said(web: Served, trace: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(progress, "wait_for", said.append)

    opspan.load(web.give("/said.json.gz", whole(trace)))

    assert "0.0 of 0.0 MB fetched" in said
    assert said[-1] == ""


# --- the command line, and what is not installed


@pytest.mark.slow
def test_a_verb_takes_addresses(web: Served, trace: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = web.give("/verb.json.gz", whole(trace)).replace("http://", "http://me:word@") + "?key=5ec2e7"

    for verb, *more in (["table"], ["summary"], ["findings"], ["report", "-o", str(tmp_path / "run.html")]):
        with pytest.raises(SystemExit) as done:
            main([verb, address, *more])
        assert done.value.code == 0

    said = "".join(capsys.readouterr()) + (tmp_path / "run.html").read_text()
    assert f"{web.address}/verb.json.gz?..." in said
    assert "word@" not in said
    assert "5ec2e7" not in said


@pytest.mark.parametrize(
    "command",
    [
        ["export", "run.json.gz", "s3://bucket/run.db"],
        ["report", "run.json.gz", "-o", "https://host/run.html"],
        ["diff", "run.json.gz", "--save-baseline", "s3://bucket/baseline.json"],
        ["run", "-o", "s3://bucket/capture", "--", "true"],
    ],
)
def test_an_address_is_not_written_to(
    command: list[str], trace: bytes, tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.json.gz").write_bytes(trace)
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(SystemExit) as done:
        main(command)

    assert done.value.code == 2
    assert "is an address, and only files of this machine are written" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_a_file_of_this_machine_needs_no_fsspec(trace: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.json.gz").write_bytes(trace)
    program = "import opspan, sys; opspan.load(sys.argv[1]).table(); print({'fsspec', 'aiohttp'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", program, tmp_path / "run.json.gz"], capture_output=True, text=True)

    assert done.stdout == "set()\n", done.stderr


def test_what_is_missing_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    assert refused("s3://bucket/x", MissingPackage) == "s3:// needs s3fs: pip install 'opspan[remote]' s3fs"
    monkeypatch.setitem(sys.modules, "fsspec", None)
    assert refused("https://host/x", MissingPackage) == "https:// needs aiohttp: pip install 'opspan[remote]'"


def test_an_answer_that_is_longer_than_announced_is_no_refusal(web: Served, trace: bytes) -> None:
    def answer(asked: Any) -> None:
        asked.begin(Content_Length=len(trace) - 10, Connection="close")
        asked.wfile.write(trace)
        asked.close_connection = True

    address = web.give("/run.json.gz", answer)

    message = refused(address, OpspanError)

    # The announced length has arrived, so nobody sees that the rest is missing: the file itself is cut.
    assert "does not keep to HTTP" in message or "is a gzip file" in message
    assert "server answers" not in message


def test_a_real_400_is_told(web: Served) -> None:
    assert "its server answers 400" in refused(web.give("/run.json.gz", status(400)), NotReadable)


def test_another_program_is_not_told_to_open_an_address(web: Served) -> None:
    body = gzip.compress(b"SQLite format 3\0" + bytes(5000))
    address = web.give("/some.db.gz", whole(body))

    message = refused(address, NotATrace)

    assert "fetch the file, then `gunzip -k some.db.gz`" in message
    assert f"gunzip -k {address}" not in message
