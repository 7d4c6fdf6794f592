"""opspan push against a server on the loopback, which takes apart what arrives."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import polars as pl
import pytest

import opspan
import pyroscope_server
from emit.running import opspan as run
from opspan.app import ingest
from opspan.app.ingest import CREDENTIALS, Server
from opspan.errors import PushError, UsageError
from pyroscope_server import DRIPPING, NEVER, form, nobody, serving
from views.sources import capture, nsys

DATA = b"\x00\x01\r\n--\xff"


def stacks(path: Path) -> Counter[tuple[str, ...]]:
    found = (line.rpartition(" ") for line in path.read_text().splitlines())
    return Counter({tuple(stack.split(";")[2:]): int(ns) for stack, _, ns in found})


def arrived(server: pyroscope_server.Server) -> pyroscope_server.Profile:
    (request,) = server.requests
    return pyroscope_server.profile(form(request)["profile"])


def times(profile: pyroscope_server.Profile, kind: str) -> Counter[tuple[str, ...]]:
    number = profile.types.index((kind, "nanoseconds"))
    found: Counter[tuple[str, ...]] = Counter()
    for values, names, _ in profile.samples:
        found[tuple(re.sub(r"[;\x00-\x1f\u2028]", "_", name) for name in reversed(names))] += values[number]
    return +found


def test_host_and_device_times_arrive_as_two_types(tmp_path: Path) -> None:
    trace = opspan.load(source := nsys(tmp_path / "source"))
    for suffix in ("stacks", "device.stacks"):
        trace.export(tmp_path / f"out.{suffix}")
    with serving() as server:
        done = run("push", source, "--url", server.url, "--app", "train", "--tag", "team=a")

    assert done.returncode == 0, done.stderr
    assert re.search(r'Pushed [\d,]+ bytes to http://127\.0\.0\.1:\d+: {service_name="train", team="a"}', done.stdout)
    profile = arrived(server)
    assert times(profile, "host") == stacks(tmp_path / "out.stacks")
    assert times(profile, "device") == stacks(tmp_path / "out.device.stacks")
    target = urlsplit(server.requests[0].target)
    asked = {key: value[0] for key, value in parse_qs(target.query).items()}
    begin = (trace.analysed.tables.origin_utc_ns or 0) + trace.analysed.tables.begin_ns("ranges", "functions", "work")
    assert target.path == "/ingest"
    assert (asked["name"], asked["format"]) == ("train{team=a}", "pprof")
    assert int(asked["from"]) == begin // 10**9 < int(asked["until"])
    assert profile.time_ns == begin
    assert "Authorization" not in server.requests[0].headers


def test_frames_can_be_modules_alone_with_all_the_time_inside_them(tmp_path: Path) -> None:
    trace = opspan.load(source := capture(tmp_path / "source"))
    trace.export(tmp_path / "out.stacks")
    whole = stacks(tmp_path / "out.stacks").total()
    with serving() as server:
        done = run("push", source, "--url", server.url, "--app", "train", "--by", "module", "--now")

    assert done.returncode == 0, done.stderr
    layer = trace.ranges.filter(name="Net.layer").select(pl.col("end_ns") - pl.col("start_ns")).item()
    profile = arrived(server)
    assert times(profile, "host") == {("Net.layer",): layer, ("(in no module)",): whole - layer}
    assert abs(profile.time_ns - time.time_ns()) < 600e9


def post(server: pyroscope_server.Server, credentials: str | None = None, timeout_s: float = 20) -> None:
    Server.of(f"{server.url}/below", credentials, "t1", timeout_s).post({"name": "a"}, {"profile": ("p", DATA)})


def test_what_the_server_cannot_take_now_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "PAUSES_S", (0.01, 0.01, 0.01))
    with serving((500, ""), (429, ""), (503, ""), (200, "")) as server:
        post(server)

    assert [form(request) for request in server.requests] == [{"profile": DATA}] * 4
    assert {request.target for request in server.requests} == {"/below/ingest?name=a"}
    assert {request.headers["X-Scope-OrgID"] for request in server.requests} == {"t1"}


def test_a_server_that_fails_every_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "PAUSES_S", (0.01, 0.01, 0.01))
    said = r"answered 500 .*\(out of\\x1b\[2J disk\), 4 times: nothing was pushed"
    with serving((500, "out of\x1b[2J disk")) as server, pytest.raises(PushError, match=said):
        post(server)
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("status", "said"),
    [(400, "--now places it"), (401, CREDENTIALS), (403, CREDENTIALS), (404, "/ingest"), (307, "elsewhere.example")],
)
def test_what_the_server_will_not_take_is_sent_once(status: int, said: str) -> None:
    with serving((status, "no: s3cret")) as server, pytest.raises(PushError, match="nothing was pushed") as caught:
        post(server, "user:s3cret")

    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert len(server.requests) == 1
    assert server.requests[0].headers["Authorization"] == "Basic dXNlcjpzM2NyZXQ="


def test_a_server_that_never_answers_is_not_sent_it_twice() -> None:
    with serving((NEVER, "")) as server, pytest.raises(PushError, match="it may have kept it or not"):
        post(server, timeout_s=0.3)

    assert len(server.requests) == 1


def test_a_server_whose_answer_drips_is_left() -> None:
    with (
        serving((DRIPPING, "")) as server,
        pytest.raises(PushError, match=r"no whole answer within 0\.5 s\): it may have"),
    ):
        post(server, timeout_s=0.5)

    assert len(server.requests) == 1


def test_a_server_that_is_away(tmp_path: Path) -> None:
    source = capture(tmp_path / "source")
    before = source.read_bytes()

    done = run("push", source, "--url", nobody(), "--app", "train")

    assert done.returncode == 2
    assert re.fullmatch(
        r"error: http://127\.0\.0\.1:\d+ cannot be reached \(.*refused\), 4 times: nothing was pushed; .*",
        done.stderr.splitlines()[-1],
    )
    assert source.read_bytes() == before


def test_credentials_are_of_the_environment_or_a_file(tmp_path: Path) -> None:
    source = capture(tmp_path / "source")
    token = tmp_path / "token"
    token.write_text("abc.def\n")
    token.chmod(0o644)
    with serving() as server:
        command = ("push", source, "--url", server.url, "--app", "train")
        by_environment = run(*command, env={CREDENTIALS: "user:pass"})
        by_file = run(*command, "--credentials", token, env={CREDENTIALS: "user:pass"})

    assert (by_environment.returncode, by_file.returncode) == (0, 0), by_file.stderr
    assert f"note: others can read {token}" in by_file.stderr
    found = [request.headers["Authorization"] for request in server.requests]
    assert found == ["Basic dXNlcjpwYXNz", "Bearer abc.def"]


def test_credentials_that_are_none_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("abc def\nghi")

    with pytest.raises(UsageError, match="holds no credentials") as caught:
        ingest.credentials(file)
    assert "abc" not in str(caught.value)
    with pytest.raises(UsageError, match="cannot be read"):
        ingest.credentials(tmp_path / "none")


@pytest.mark.parametrize(
    "url", ["host:4040", "ftp://host", "http://", "http://host?x=1", "http://host/a b", "http://host:x", "http://h\n"]
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(UsageError, match=r"expected http://host:4040"):
        Server.of(url)


def test_no_password_in_the_address() -> None:
    with pytest.raises(UsageError, match="--url has a user in it") as caught:
        Server.of("http://me:s3cret@host")
    assert "s3cret" not in str(caught.value)


def test_where_others_could_hear_credentials() -> None:
    assert Server.of("http://host:4040", "token").is_overheard
    assert not Server.of("https://host", "token").is_overheard
    assert not Server.of("http://127.0.0.1:4040", "token").is_overheard


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--app", "a{b=c}"), "--app 'a{b=c}': expected"),
        (("--app", "a", "--tag", "b"), "--tag 'b': expected KEY=VALUE"),
        (("--app", "a", "--tag", "b=c,d=e"), "expected KEY=VALUE"),
        (("--app", "a", "--tag", "__name__=e"), "expected KEY=VALUE"),
        (("--app", "a", "--by", "function"), "the trace has no Python functions"),
    ],
)
def test_what_cannot_be_pushed(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    with serving() as server:
        done = run("push", capture(tmp_path / "source"), "--url", server.url, *options)

    assert (done.returncode, done.stdout, server.requests) == (2, "", [])
    assert said in done.stderr
