"""Serves one page on loopback, for `opspan view`.

The address contains a random token, because every user and every web page of the machine can reach loopback. A request
gets the page if it names the token and a loopback host. The path of `address_once` redirects to the page, but only
once. Every other request gets 403 or 404, without a text.

Another site can make the name of its own host resolve to 127.0.0.1 (DNS rebinding). A browser then sends the site's
name as Host, so only names of loopback are accepted. The port is not compared, because `ssh -L` may use another one.
"""

from __future__ import annotations

import re
import secrets
import socketserver
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opspan.errors import UsageError

LOOPBACK = "127.0.0.1"
_OUR_HOST = re.compile(r"(?:127\.0\.0\.1|localhost)(?::[0-9]{1,5})?", re.IGNORECASE)
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # the address contains the token, so it must not be sent to other sites
    "X-Content-Type-Options": "nosniff",
}


class PageServer(ThreadingHTTPServer):
    """Serves `page`. Takes its port when it is created, so that a port in use is reported before a large trace is
    read."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        self.page = b""
        self.path = f"/{secrets.token_urlsafe(32)}"
        self._path_once: str | None = None
        self._lock = threading.Lock()
        try:
            super().__init__((LOOPBACK, port), _PageRequest)
        except OSError as error:
            raise UsageError(
                f"port {port} cannot be used ({error.strerror}): choose another one, or leave out --port"
            ) from error

    def server_bind(self) -> None:
        # HTTPServer would look up the name of the host here, which takes seconds if a name server does not answer.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}{self.path}"

    def address_once(self) -> str:
        """Returns an address that leads to the page once. It is for a browser's command line, which other users of the
        machine can see."""
        self._path_once = f"/{secrets.token_urlsafe(32)}"
        return f"http://{LOOPBACK}:{self.server_port}{self._path_once}"

    def use_once(self, path: str) -> bool:
        """Returns whether `path` is the path of `address_once`. If so, that address no longer works afterwards."""
        with self._lock:
            is_it = self._path_once is not None and secrets.compare_digest(path.encode(), self._path_once.encode())
            if is_it:
                self._path_once = None
            return is_it

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores every OSError, because a browser may close the connection at any time."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _PageRequest(BaseHTTPRequestHandler):
    server: PageServer
    timeout = 60  # maximum number of seconds to wait for more bytes of a request

    def do_GET(self) -> None:
        if self._is_ours():
            if secrets.compare_digest(self.path.encode(), self.server.path.encode()):
                self._answer(HTTPStatus.OK, {"Content-Type": "text/html; charset=utf-8"}, self.server.page)
            elif self.server.use_once(self.path):
                self._answer(HTTPStatus.SEE_OTHER, {"Location": self.server.path})
            else:
                self._answer(HTTPStatus.NOT_FOUND)

    def _is_ours(self) -> bool:
        """Returns whether the request is for a loopback host. Refuses it otherwise."""
        hosts = self.headers.get_all("Host", [])
        is_ours = len(hosts) == 1 and _OUR_HOST.fullmatch(hosts[0].strip()) is not None
        if not is_ours:
            self._answer(HTTPStatus.FORBIDDEN)
        return is_ours

    def _answer(self, status: HTTPStatus, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.close_connection = True
        self.send_response(status)
        for name, value in {**_HEADERS, **(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers malformed requests and unsupported methods with 404. The base class would tell anybody what was wrong
        and which version of Python runs here."""
        self._answer(HTTPStatus.NOT_FOUND)

    def version_string(self) -> str:
        return "opspan"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name is that of the base class
        """Prints nothing, because the line would contain the token."""
