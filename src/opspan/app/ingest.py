"""Sends a profile to a Pyroscope server with a request to its public interface, POST /ingest.

This needs only Python's http.client. Redirects are not followed, because they would send the credentials to another
server. Proxies are not used.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import re
import secrets
import socket
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, urlencode, urlsplit

from opspan.errors import PushError, UsageError
from opspan.files import open_file
from opspan.printable import path_text, shell_path, shortened

CREDENTIALS = "OPSPAN_PYROSCOPE_CREDENTIALS"
PAUSES_S = (0.5, 1.0, 2.0)  # seconds to wait before the second try, the third try and so on
_FOR_NOW = (429, 500, 502, 503, 504)  # status codes of a server that may accept the request later
_REFUSED = (401, 403)
_LONGEST = 4096  # maximum number of bytes to read from a file of credentials, or from a server's answer
_MOST_CHARACTERS = 300  # maximum number of characters of a server's answer that an error shows
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Server:
    address: SplitResult
    credentials: str | None = field(repr=False)  # TOKEN, or USER:PASSWORD
    tenant: str | None
    timeout_s: float

    @classmethod
    def of(cls, url: str, credentials: str | None = None, tenant: str | None = None, timeout_s: float = 30.0) -> Server:
        if tenant is not None and not re.fullmatch(r"[A-Za-z0-9!._*'()-]{1,150}", tenant):
            raise UsageError(f"--tenant {tenant!r}: expected up to 150 letters, digits and !._*'()-")
        return cls(_address(url), credentials, tenant, timeout_s)

    @property
    def is_overheard(self) -> bool:
        """Returns whether credentials would be sent through a network without encryption, so that others could read
        them."""
        return bool(self.credentials) and self.address.scheme == "http" and self.address.hostname not in _LOOPBACK

    def post(self, query: dict[str, str], parts: dict[str, tuple[str, bytes]]) -> None:
        """Sends a form. `parts` maps the name of a field to a file name and the contents. Raises PushError on failure.
        Tries again if the connection breaks before the request is complete, or if the answer's status is in _FOR_NOW.
        Does not try again if a complete request gets no answer, because the server may have stored the profile."""
        boundary = secrets.token_hex(16)
        body = _form(parts, boundary)
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}", "User-Agent": "opspan"}
        if self.credentials:
            headers["Authorization"] = _authorization(self.credentials)
        if self.tenant:
            headers["X-Scope-OrgID"] = self.tenant
        target = f"{self.address.path.rstrip('/')}/ingest?{urlencode(query)}"
        for pause_s in (*PAUSES_S, None):
            problem = self._try(target, body, headers)
            if problem is None:
                return
            if pause_s is None:
                tries = len(PAUSES_S) + 1
                raise PushError(
                    f"{problem}, {tries} times: nothing was pushed; see that {self.where} is well, then again"
                )
            time.sleep(pause_s)

    @property
    def where(self) -> str:
        return f"{self.address.scheme}://{self.address.netloc}{self.address.path}"

    def _try(self, target: str, body: bytes, headers: dict[str, str]) -> str | None:
        """Sends the request once. Returns None on success. Returns the text of the error if `post` may try again, and
        raises PushError if it must not."""
        is_sent = False
        kind = http.client.HTTPSConnection if self.address.scheme == "https" else http.client.HTTPConnection
        connection = kind(self.address.hostname or "", self.address.port, timeout=self.timeout_s)
        try:
            connection.request("POST", target, body, headers)
            is_sent = True
            with _no_longer_than(self.timeout_s, connection.sock):
                answer = connection.getresponse()
                text = answer.read(_LONGEST).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            if not is_sent:
                return f"{self.where} cannot be reached ({why})"
            raise PushError(
                f"{self.where} was sent the whole profile and gave no answer that can be read ({why}): it may have "
                "kept it or not; look there for the application before it is pushed again"
            ) from error
        finally:
            connection.close()
        return self._judge(answer, text)

    def _judge(self, answer: http.client.HTTPResponse, text: str) -> str | None:
        summary = f"{self.where} answered {answer.status} {answer.reason} ({self._without_secrets(text)})"
        if 200 <= answer.status < 300:
            return None
        if answer.status in _FOR_NOW:
            return summary
        if answer.status in _REFUSED:
            todo = f"put TOKEN or USER:PASSWORD into {CREDENTIALS}, or name a file of it with --credentials"
        elif 300 <= answer.status < 400:
            todo = f"redirects are not followed; the address that it names is {answer.getheader('Location')!r}"
        elif answer.status == 404:
            todo = "name the server of Pyroscope that has /ingest"
        else:
            todo = "it does not take this profile; where that is for its age, --now places it at the present"
        raise PushError(f"{summary}: nothing was pushed; {todo}")

    def _without_secrets(self, text: str) -> str:
        for secret in (self.credentials or "").split(":"):
            text = text.replace(secret, "***") if secret else text
        return shortened(" ".join(text.split()), _MOST_CHARACTERS) or "without a word"


@contextlib.contextmanager
def _no_longer_than(seconds: float, connected: socket.socket) -> Iterator[None]:
    """Ends the connection and raises TimeoutError if the `with` block takes longer than `seconds`. A socket's own
    timeout is not enough, because it starts again with each byte that a slow server sends."""
    is_over = False

    def end() -> None:
        nonlocal is_over
        is_over = True
        with contextlib.suppress(OSError):  # the connection has ended already
            connected.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException):
        if not is_over:
            raise
    finally:
        timer.cancel()
    if is_over:
        raise TimeoutError(f"no whole answer within {seconds:g} s")


def _address(url: str) -> SplitResult:
    expected = "expected http://host:4040 or https://host, with a path at most"
    try:
        address = urlsplit(url)
        is_whole = bool(address.hostname) and (address.port is None or address.port > 0)
    except ValueError as error:
        raise UsageError(f"--url is no address: {expected}") from error
    if "@" in address.netloc:
        raise UsageError(f"--url has a user in it, which lists of processes show: put USER:PASSWORD into {CREDENTIALS}")
    if not is_whole or address.scheme not in ("http", "https") or address.query or address.fragment:
        raise UsageError(f"--url {url!r}: {expected}")
    if not re.fullmatch(r"[\x21-\x7e]+", url):
        raise UsageError(f"--url {url!r}: {expected}, in ASCII")
    return address


def credentials(file: Path | None) -> tuple[str | None, list[str]]:
    """Returns credentials from the file or the environment, and notes about the file. Errors never show credentials."""
    if file is None:
        name, text, notes = CREDENTIALS, os.environ.get(CREDENTIALS) or None, list[str]()
    else:
        name, (text, notes) = f"{file}", _read(file)
    if text is not None and not re.fullmatch(r"[\x21-\x7e]+", text):
        raise UsageError(f"{name} holds no credentials: expected TOKEN or USER:PASSWORD on one line, in ASCII")
    return text, notes


def _read(file: Path) -> tuple[str, list[str]]:
    try:
        with open_file(file) as stream:
            mode, data = os.fstat(stream.fileno()).st_mode, stream.read(_LONGEST + 1)
    except OSError as error:
        raise UsageError(f"--credentials {file} cannot be read ({error.strerror}): name a file of one line") from error
    if len(data) > _LONGEST:
        raise UsageError(f"--credentials {file} has more than {_LONGEST} bytes: expected one line")
    is_open = mode & (stat.S_IRGRP | stat.S_IROTH)
    notes = [f"others can read {path_text(file)}: `chmod 600 {shell_path(file)}`"] if is_open else []
    return data.decode("utf-8", "replace").strip(), notes


def _authorization(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}" if ":" in text else f"Bearer {text}"


def _form(parts: dict[str, tuple[str, bytes]], boundary: str) -> bytes:
    body = b""
    for name, (file, data) in parts.items():
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{file}"\r\n'
        body += head.encode() + b"Content-Type: application/octet-stream\r\n\r\n" + data + b"\r\n"
    return body + f"--{boundary}--\r\n".encode()
