"""`opspan view`: the page on loopback, for who has its address."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import urlsplit

import pytest

from builders import kineto
from cli.browsing import fake_browser, no_display
from emit.running import environment, opspan
from opspan.app.serving import PageServer
from opspan.errors import UsageError

PAGE = b"<!doctype html>the page"
SSH = {"SSH_CONNECTION": "192.0.2.1 50000 192.0.2.2 22"}


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer() as server:
        server.page = PAGE
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def asked(server: PageServer, path: str, *, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.headers)
    finally:
        connection.close()


def sent(server: PageServer, request: bytes) -> bytes:
    """Returns the answer to a request that no client would write."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


class TestServer:
    def test_its_address_has_the_page_and_a_token_that_nobody_can_guess(self, server: PageServer) -> None:
        status, body, headers = asked(server, server.path)

        assert (status, body, headers["Content-Type"]) == (200, PAGE, "text/html; charset=utf-8")
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert server.address == f"http://127.0.0.1:{server.server_port}{server.path}"
        assert re.fullmatch(r"/[\w-]{43}", server.path)
        with PageServer() as other:
            assert other.path != server.path

    def test_it_listens_on_loopback_alone(self, server: PageServer) -> None:
        assert server.socket.getsockname()[0] == "127.0.0.1"

    def test_no_other_path_has_anything(self, server: PageServer) -> None:
        others = ["/", "/favicon.ico", "/../", server.path[:-1], f"{server.path}x", f"{server.path}/"]
        others += [
            server.path.swapcase(),
            f"{server.path}?x",
            f"/{server.path}x",
            "//",
            "*",
            f"http://localhost{server.path}",
        ]
        for path in others:
            status, body, headers = asked(server, path, Host="localhost")
            assert (path, status, body) == (path, 404, b"")
            assert "Python" not in headers["Server"]

    @pytest.mark.parametrize("method", ["POST", "PUT", "HEAD", "OPTIONS", "DELETE", "TRACE", "NONE"])
    def test_no_other_method_has_anything(self, method: str, server: PageServer) -> None:
        for path in ("/", server.path):
            assert asked(server, path, method=method)[:2] == (404, b"")

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:9", "localhost:8123", "LOCALHOST"])
    def test_loopback_may_have_any_of_its_names_and_another_port(self, host: str, server: PageServer) -> None:
        assert asked(server, server.path, Host=host)[:2] == (200, PAGE)

    @pytest.mark.parametrize(
        "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "", "192.0.2.1", "127.0.0.1@evil", "x:80"]
    )
    def test_a_name_that_was_rebound_to_loopback_has_nothing(self, host: str, server: PageServer) -> None:
        for path in ("/", server.path):
            assert asked(server, path, Host=host)[:2] == (403, b"")

    @pytest.mark.parametrize(
        "request_bytes",
        [
            b"GET PATH HTTP/1.0\r\n\r\n",
            b"GET PATH\r\n\r\n",
            b"GET PATH HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
            b"GET PATH HTTP/9.9\r\nHost: localhost\r\n\r\n",
            b"GET PATH too many words HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET PATH HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"\r\n\r\n",
        ],
    )
    def test_malformed_requests_have_nothing_and_do_no_harm(self, request_bytes: bytes, server: PageServer) -> None:
        answer = sent(server, request_bytes.replace(b"PATH", server.path.encode()))

        assert answer == b"" or re.match(rb"HTTP/1\.0 40[34] ", answer), answer[:80]
        assert PAGE not in answer
        assert asked(server, server.path)[0] == 200

    def test_a_client_that_says_nothing_holds_nobody_up(self, server: PageServer) -> None:
        with socket.create_connection(("127.0.0.1", server.server_port)):
            assert asked(server, server.path)[0] == 200

    def test_the_address_for_a_command_line_leads_to_the_page_once(self, server: PageServer) -> None:
        path = urlsplit(server.address_once()).path

        status, body, headers = asked(server, path)

        assert (status, body, headers["Location"]) == (303, b"", server.path)
        assert path != server.path
        assert asked(server, path)[0] == 404

    def test_a_port_that_is_taken_is_said_to_be(self, server: PageServer) -> None:
        with pytest.raises(UsageError, match=rf"port {server.server_port} cannot be used \(Address already in use\)"):
            PageServer(server.server_port)


@contextmanager
def viewing(
    folder: Path, *options: str, env: dict[str, str | None]
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Starts the command, and provides its process and its lines until it waits for requests."""
    kineto.write(folder / "trace.json")
    command = [sys.executable, "-m", "opspan", "view", "trace.json", *options]
    with subprocess.Popen(
        command, cwd=folder, env=environment(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] not in ("Ctrl-C ends it", ""):
            lines.append(process.stdout.readline().rstrip("\n"))
        try:
            yield process, lines
        finally:
            process.kill()


def page_at(address: str) -> tuple[int, str]:
    parts = urlsplit(address)
    connection = HTTPConnection("127.0.0.1", parts.port or 0, timeout=20)
    try:
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


class TestCommand:
    def test_it_prints_the_address_of_the_report_and_ends_with_ctrl_c(self, tmp_path: Path) -> None:
        with viewing(tmp_path, env=no_display()) as (process, lines):
            address = lines[0].removeprefix("The page is at ")
            status, page = page_at(address)
            nothing = page_at(f"{address[:-1]}")
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)

        assert len(lines) == 2
        assert status == 200
        assert "<title>opspan: trace.json</title>" in page
        assert nothing == (404, "")
        assert (process.returncode, errors) == (0, "\n")
        assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]

    @pytest.mark.slow
    def test_over_ssh_it_prints_the_line_that_forwards_the_port(self, tmp_path: Path) -> None:
        with viewing(tmp_path, "--port", str(free_port()), "--open", env={**no_display(), **SSH}) as (_, lines):
            pass

        port = urlsplit(lines[0].removeprefix("The page is at ")).port
        assert lines[1] == "To reach it from your own machine, run this there:"
        assert lines[2] == f"ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}"
        assert lines[3] == "No browser was opened, as this session is over ssh"

    @pytest.mark.slow
    def test_the_browser_is_given_an_address_that_works_once(self, tmp_path: Path) -> None:
        env, opened = fake_browser(tmp_path)
        with viewing(tmp_path, "--open", env=env) as (_, lines):
            deadline = monotonic() + 60
            while not opened.exists() and monotonic() < deadline:
                sleep(0.05)
            address = opened.read_text().strip()
            statuses = [page_at(address)[0] for _ in range(2)]

        assert len(lines) == 2
        assert address != lines[0].removeprefix("The page is at ")
        assert statuses == [303, 404]

    def test_a_port_that_is_taken_is_an_error_before_the_trace_is_read(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            done = opspan("view", "missing.json", "--port", str(port), cwd=tmp_path)

        assert done.returncode == 2
        assert done.stderr.startswith(f"error: port {port} cannot be used")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
