"""A server on the loopback that takes profiles as one of Pyroscope's does, and what was sent to it, taken apart.

The messages are read by their numbers alone, as protobuf's wire format has them, with no code of opspan's.
"""

from __future__ import annotations

import gzip
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NEVER = 0  # for an answer: none
DRIPPING = -1  # its headers come a byte at a time, for ever


@dataclass
class Request:
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Server:
    url: str
    answers: list[tuple[int, str]] = field(default_factory=list)  # in turn, the last for ever; none: 200
    requests: list[Request] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def answer(self) -> tuple[int, str]:
        return self.answers.pop(0) if len(self.answers) > 1 else next(iter(self.answers), (200, ""))


@contextmanager
def serving(*answers: tuple[int, str]) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.requests.append(Request(self.path, dict(self.headers), body))
            status, text = found.answer()
            if status == NEVER:
                found.over.wait()
                self.close_connection = True
                return
            if status == DRIPPING:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
                with suppress(OSError):  # nobody listens any more
                    while not found.over.wait(0.05):
                        self.wfile.write(b"x")
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            if status in (301, 302, 307):
                self.send_header("Location", "http://elsewhere.example/ingest")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Server(f"http://127.0.0.1:{server.server_port}", list(answers))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _fields(data: bytes) -> dict[int, list[int | bytes]]:
    found: dict[int, list[int | bytes]] = defaultdict(list)
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 2:
            size = number()
            found[key >> 3].append(data[at : at + size])
            at += size
        else:
            assert key & 7 == 0, "neither a number nor bytes"
            found[key >> 3].append(number())
    return found


def _numbers(values: list[int | bytes]) -> list[int]:
    """Repeated numbers, packed or not."""
    found: list[int] = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
        else:
            found += _fields(b"".join(b"\x08" + one for one in _varints(value)))[1]  # type: ignore[arg-type]
    return found


def _varints(data: bytes) -> Iterator[bytes]:
    start = 0
    for at, byte in enumerate(data):
        if byte < 0x80:
            yield data[start : at + 1]
            start = at + 1


@dataclass
class Profile:
    types: list[tuple[str, str]]
    samples: list[tuple[tuple[int, ...], tuple[str, ...], dict[str, str]]]  # values, names (innermost first), labels
    time_ns: int
    series: dict[str, str] = field(default_factory=dict)

    def sums(self, label: str, value: int = 0) -> Counter[str]:
        found: Counter[str] = Counter()
        for values, _, labels in self.samples:
            found[labels.get(label, "")] += values[value]
        return found


def profile(data: bytes) -> Profile:
    message = _fields(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    text = [one.decode() for one in message[6]]  # type: ignore[union-attr]

    def of(field_values: list[int | bytes]) -> str:
        return text[field_values[0] if field_values else 0]  # type: ignore[index]

    functions = {function[1][0]: of(function[2]) for function in map(_fields, message[5])}  # type: ignore[arg-type]
    places = {
        place[1][0]: functions[_fields(place[4][0])[1][0]]  # type: ignore[arg-type]
        for place in map(_fields, message[4])  # type: ignore[arg-type]
    }
    samples = []
    for sample in map(_fields, message[2]):  # type: ignore[arg-type]
        labels = {of(label[1]): of(label[2]) for label in map(_fields, sample[3])}  # type: ignore[arg-type]
        samples.append((tuple(_numbers(sample[2])), tuple(places[place] for place in _numbers(sample[1])), labels))
    types = [(of(one[1]), of(one[2])) for one in map(_fields, message[1])]  # type: ignore[arg-type]
    return Profile(types, samples, int(message[9][0]) if message[9] else 0)


def pushed(request: Request) -> list[Profile]:
    """Reads a request of an agent: push.v1.PushRequest."""
    assert request.target == "/push.v1.PusherService/Push"
    found = []
    for series in map(_fields, _fields(gzip.decompress(request.body))[1]):  # type: ignore[arg-type]
        pairs = [_fields(pair) for pair in series[1]]  # type: ignore[arg-type]
        labels = {pair[1][0].decode(): pair[2][0].decode() for pair in pairs}  # type: ignore[union-attr]
        for sample in map(_fields, series[2]):  # type: ignore[arg-type]
            one = profile(sample[1][0])  # type: ignore[arg-type]
            one.series = labels
            found.append(one)
    return found


def form(request: Request) -> dict[str, bytes]:
    """The parts of a form, read as a mail with attachments is."""
    head = f"Content-Type: {request.headers['Content-Type']}\r\n\r\n".encode()
    message = BytesParser(policy=HTTP).parsebytes(head + request.body)
    return {
        str(part.get_param("name", header="content-disposition")): part.get_payload(decode=True)  # type: ignore[misc]
        for part in message.iter_parts()  # type: ignore[attr-defined]
    }


def nobody() -> str:
    """An address where no server is."""
    with serving() as server:
        return server.url


def wait_for(server: Server, count: int = 1) -> None:
    end = time.monotonic() + 30
    while len(server.requests) < count and time.monotonic() < end:
        time.sleep(0.01)
    assert len(server.requests) >= count
