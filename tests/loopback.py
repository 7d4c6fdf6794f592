"""A web server of this machine that serves what a test says, well or badly, in threads of the test's process."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Asked(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Served

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.counts[path] += 1
        answer = self.server.answers.get(path)
        if answer is None:
            self.send_error(404)
        else:
            answer(self)

    def log_message(self, *_: object) -> None:
        pass

    def begin(self, status: int = 200, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()


Answer = Callable[[Asked], None]


class Served(ThreadingHTTPServer):
    """`answers`: what is said of each path; `counts`: how often it was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Asked)
        self.answers: dict[str, Answer] = {}
        self.counts: Counter[str] = Counter()
        self.over = threading.Event()  # for answers that wait

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # the client has gone, as some tests intend
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def give(self, path: str, answer: Answer) -> str:
        self.answers[path] = answer
        return self.address + path


@contextmanager
def served() -> Iterator[Served]:
    with Served() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()


# --- answers


def whole(body: bytes, **headers: object) -> Answer:
    def answer(asked: Asked) -> None:
        asked.begin(Content_Length=len(body), **headers)
        asked.wfile.write(body)

    return answer


def cut(body: bytes, count: int) -> Answer:
    """As many bytes as that of the body, whose length is told."""

    def answer(asked: Asked) -> None:
        asked.begin(Content_Length=len(body), Connection="close")
        asked.wfile.write(body[:count])
        asked.close_connection = True

    return answer


def in_chunks(body: bytes, *, has_end: bool) -> Answer:
    """The length is not told."""

    def answer(asked: Asked) -> None:
        asked.begin(Transfer_Encoding="chunked")
        asked.wfile.write(b"%x\r\n%s\r\n" % (len(body), body) + (b"0\r\n\r\n" if has_end else b""))
        asked.close_connection = not has_end

    return answer


def status(number: int, **headers: object) -> Answer:
    return lambda asked: asked.begin(number, Content_Length=0, **headers)


def then(*answers: Answer) -> Answer:
    """One after another, and the last for ever."""
    rest = list(answers)
    return lambda asked: (rest.pop(0) if len(rest) > 1 else rest[0])(asked)


def never(asked: Asked) -> None:
    """No answer."""
    asked.server.over.wait()
    asked.close_connection = True


def begun(asked: Asked) -> None:
    """The begin of a long file, and no more."""
    asked.begin(Content_Length=1 << 20)
    asked.wfile.write(b"{")
    asked.wfile.flush()
    never(asked)
