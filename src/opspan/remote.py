"""Fetches files of other machines by address into a temporary folder. They are read there like local files, and then
deleted.

    file = file_of("https://host/rank0.json.gz")
    with local(file) as path:
        tables = with_address(read_file(path), file, path)

Only this module uses fsspec, which is imported when the first address is read. Texts about a file show its address
without secrets, and never its temporary path. The errors of fsspec and its packages may contain secrets. So our errors
do not refer to them as causes (`raise ... from None`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from opspan.addresses import SCHEMES, Address, File
from opspan.errors import MissingPackage, NotReadable, OpspanError, ReadError, TooLarge
from opspan.files import temporary_folder
from opspan.formats import progress
from opspan.printable import replace_path, shortened
from opspan.tables import Tables

T = TypeVar("T")
SomeTables = TypeVar("SomeTables", bound=Tables)

PATIENCE_S = 30.0  # maximum number of seconds to wait for the next byte

# Fetching stops if a server sends fewer than LEAST_RATE bytes per second, measured over RATED_S seconds.
LEAST_RATE, RATED_S = 1_000, 60.0
# The time limit for connecting, TLS, redirects and headers together. Without it, a server could send its headers byte
# by byte forever.
ANSWER_S = 60.0
PAGE_BYTES, PAGE_S = 64 << 20, 60.0  # limits for a page of links, which lists the files of a folder
PAUSES_S = (0.5, 2.0)  # the seconds to wait before the second and the third try
SPARE_BYTES = 64 << 20  # the bytes of the disk that must stay free
MOST_FILES = 10_000  # maximum number of files of one address, which may be a folder or a pattern
_LONGEST_NAME = 100
# Finds addresses and the targets of <a> in a page. fsspec's pattern would take hours for a megabyte of "<a <a <a".
_LINK = re.compile(
    r"""<a\s[^<>]{0,2000}?href=["']([^"'<>]{1,4000})["']|(https?://[-a-z0-9@:%_+.~#?&/=]{1,4000})""", re.IGNORECASE
)
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TRY_AGAIN = (429, 502, 503, 504)
_HTTP = ("http", "https")


class _Refusal(Exception):
    """Stops fetching a file, for example because of a limit. The message is shown to the user."""


class _BrokenTransfer(Exception):
    """The file was not fetched completely, but another try may succeed."""


# --- one file, read like a local one


@contextlib.contextmanager
def local(file: File) -> Iterator[Path]:
    """Provides the path of the file, or of a fetched copy of a remote file, during the `with` block."""
    if isinstance(file, Path):
        yield file
        return
    with temporary_folder("opspan-remote-") as folder:
        path = _fetched(file, folder)
        try:
            yield path
        except OpspanError as error:
            raise type(error)(_with_address(str(error), file, path)) from error.__cause__


def with_address(tables: SomeTables, file: File, path: Path) -> SomeTables:
    """Returns the tables that were read from the path. If the file is remote, the tables get its address in place of
    the temporary path."""
    if isinstance(file, Path):
        return tables
    import polars as pl

    ranks = tuple(
        replace(rank, paths=tuple(_with_address(text, file, path) for text in rank.paths)) for rank in tables.ranks
    )
    texts = pl.col("message", "path").str.replace_all(str(path), str(file), literal=True)
    frames = {**tables.frames, "issues": tables.issues.with_columns(texts)}
    return type(tables)(ranks, **frames)


def _with_address(text: str, address: Address, path: Path) -> str:
    return replace_path(text, path, str(address), "fetch the file")


def _fetched(address: Address, folder: Path) -> Path:
    system = _system(address)
    path = folder / _local_name(address.name)
    parts: dict[str, Any] = {}
    if address.scheme not in _HTTP:  # with HTTP, an address is one file here, and the request could fail
        about = _request(address, lambda: system.info(address.text))
        if about.get("type") == "directory":
            parts = _request(address, lambda: system.find(address.text, detail=True))
            _check_count(address, parts)
    if not parts:
        _fetch(system, address, address.text, path, address.most_bytes)
        return path
    left = address.most_bytes
    above = system._strip_protocol(address.text).rstrip("/") + "/"
    for remote_path in parts:
        inside = path.joinpath(*map(_local_name, remote_path.removeprefix(above).split("/")))
        inside.parent.mkdir(parents=True, exist_ok=True)
        if inside.exists():
            raise NotReadable(f"{address} has two files that would both be called {inside.name!r}; rename one of them")
        _fetch(system, address, remote_path, inside, left)
        left -= inside.stat().st_size
    return path


def _local_name(name: str) -> str:
    """Returns a safe local name for a remote file. It contains no slashes, does not begin with a dot or a dash, and
    keeps the suffix."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[-_LONGEST_NAME:].lstrip(".-") or "trace"


def _fetch(system: Any, address: Address, remote_path: str, path: Path, most: int) -> None:
    """Fetches `remote_path`, which is the file at the address or a file in the folder there. Tries again if the
    connection breaks. `most`: the most bytes to fetch."""
    for pause in (*PAUSES_S, None):
        try:
            _fetch_once(system, address, remote_path, path, most)
            return
        except _BrokenTransfer as error:
            if pause is None:
                raise NotReadable(f"cannot read {address}: {error}. Nothing of it was read: try again") from None
            time.sleep(pause)


def _fetch_once(system: Any, address: Address, remote_path: str, path: Path, most: int) -> None:
    watch = _Watch(path, most)
    try:
        _request(address, lambda: system.get_file(remote_path, str(path), callback=watch.callback()), may_again=True)
        watch.check_whole()
    finally:
        watch.is_over = True
        progress.wait_for("")


class _Watch:
    """Checks the size, the rate and the free disk space while a file is fetched. Mostly runs on fsspec's own thread."""

    def __init__(self, path: Path, most: int) -> None:
        self._path = path
        self._most = most
        self._size: int | None = None
        self._rated_at, self._rated_count = time.monotonic(), 0
        self.is_over = False

    def callback(self) -> Any:
        from fsspec.callbacks import Callback

        return Callback(hooks={"opspan": self._came})

    def _came(self, size: int | None, count: int, **_: Any) -> None:
        if self.is_over:  # the caller has stopped, for example after Ctrl-C
            raise _Refusal("nobody waits for it any more")
        self._size = size
        self._check_size(max(size or 0, count))
        self._check_rate(count)
        self._check_room(max((size or 0) - count, 0))
        progress.wait_for(f"{count / 1e6:,.1f}{'' if size is None else f' of {size / 1e6:,.1f}'} MB fetched")

    def _check_size(self, size: int) -> None:
        if size > self._most:
            raise _Refusal(
                f"it has {'' if self._size else 'more than '}{size / 1e6:,.1f} MB, and no more than "
                f"{self._most / 1e6:,.1f} MB may be fetched; allow more with --most-fetched SIZE, or load(most_bytes=)"
            )

    def _check_rate(self, count: int) -> None:
        now = time.monotonic()
        if now - self._rated_at < RATED_S or count == self._size:
            return
        came = count - self._rated_count
        if came < LEAST_RATE * RATED_S:
            raise _Refusal(f"its server is too slow: {came:,} bytes came within {now - self._rated_at:,.0f} s")
        self._rated_at, self._rated_count = now, count

    def _check_room(self, more: int) -> None:
        free = shutil.disk_usage(self._path.parent).free
        if more > free - SPARE_BYTES:
            place = self._path.parent.parent
            needs = f"it has {self._size / 1e6:,.1f} MB" if self._size else "it is larger than that"
            raise _Refusal(f"{needs}, and {place} has {free / 1e6:,.1f} MB left; choose another disk with TMPDIR")

    def check_whole(self) -> None:
        came = self._path.stat().st_size
        if self._size is not None and came != self._size:
            raise _BrokenTransfer(f"{came:,} of {self._size:,} bytes came")


# --- several files


def expand(files: Iterable[File]) -> list[File]:
    """Returns the files. An address of a folder or a pattern is replaced by the addresses of its files."""
    expanded: list[File] = []
    for file in files:
        if isinstance(file, Path) or not file.is_several:
            expanded.append(file)
        else:
            expanded += (address for address, _ in listed(file))
    return expanded


def listed(address: Address) -> list[tuple[Address, int]]:
    """Returns the files of a folder or a pattern, and the number of bytes of each, which is 0 if unknown."""
    system = _system(address)
    pattern = f"{address.text}*" if address.is_folder else address.text
    files: dict[str, Any] = _request(address, lambda: system.glob(pattern, detail=True))
    if address.is_folder:
        files = {name: about for name, about in files.items() if about.get("type") != "directory"}
    files = {name: about for name, about in files.items() if name.rpartition("/")[2][:1] not in (".", "?")}
    if not files:
        raise NotReadable(f"there is no file {address}{'*' if address.is_folder else ''}")
    _check_count(address, files)
    most = address.most_bytes
    return [(Address(system.unstrip_protocol(name), most), about.get("size") or 0) for name, about in files.items()]


def _check_count(address: Address, files: Sequence[str] | dict[str, Any]) -> None:
    if len(files) > MOST_FILES:
        raise TooLarge(f"{address} stands for {len(files):,} files, more than {MOST_FILES:,}; expected fewer at a time")


# --- the packages that fetch, and their errors


def _system(address: Address) -> Any:
    scheme, package = address.scheme, SCHEMES[address.scheme]
    try:
        import fsspec

        kind = fsspec.get_filesystem_class(scheme)
        return kind(**_http_options(), skip_instance_cache=True) if scheme in _HTTP else fsspec.filesystem(scheme)
    except ImportError:
        missing = "'opspan[remote]'" if scheme in _HTTP else f"'opspan[remote]' {package}"
        raise MissingPackage(f"{scheme}:// needs {package}: pip install {missing}") from None
    except Exception as error:  # noqa: BLE001  # the packages raise anything: missing credentials, missing settings
        raise NotReadable(f"cannot read {address}: {_why(error, address)}") from None


def _http_options() -> dict[str, Any]:
    import aiohttp

    async def stays_safe(_session: Any, _context: Any, redirect: aiohttp.TraceRequestRedirectParams) -> None:
        if redirect.url.scheme == "https" and redirect.response.headers.get("Location", "").lower().startswith("http:"):
            raise _Refusal("it leads from https:// to http://, which others can read and change on the way")

    ends_s = 0.0

    async def begins(*_: Any) -> None:
        nonlocal ends_s
        ends_s = time.monotonic() + ANSWER_S

    async def answers_in_time(
        request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        why = f"no whole answer began within {ANSWER_S:g} s"
        return await _within(ends_s - time.monotonic(), send(request), why)

    class Page(aiohttp.ClientResponse):
        """The response with a page of links. fsspec reads the whole text of a page, so this class limits bytes and
        time, and returns only the links."""

        async def text(self, encoding: str | None = None, errors: str = "strict") -> str:
            why = f"the page of its files took more than {PAGE_S:g} s"
            page = await _within(PAGE_S, self._page(), why)
            try:
                text = page.decode(encoding or self.charset or "utf-8", errors)
            except LookupError:  # a charset that Python does not know
                text = page.decode("utf-8", errors)
            return "\n".join(f'<a href="{link or plain}">' for link, plain in _LINK.findall(text))

        async def _page(self) -> bytes:
            page = bytearray()
            async for part in self.content.iter_any():
                page += part
                if len(page) > PAGE_BYTES:
                    raise _Refusal(f"the page of its files has more than {PAGE_BYTES / 1e6:,.0f} MB")
            return bytes(page)

    watched = aiohttp.TraceConfig()
    watched.on_request_start.append(begins)
    watched.on_request_redirect.append(stays_safe)
    timeout = aiohttp.ClientTimeout(total=None, connect=PATIENCE_S, sock_connect=PATIENCE_S, sock_read=PATIENCE_S)
    return {
        "client_kwargs": {
            # The server must not compress the file for the transfer, so that the announced length is the file's length.
            # If the file itself is compressed, the readers unpack it.
            "headers": {"Accept-Encoding": "identity"},
            "auto_decompress": False,
            "timeout": timeout,
            "trace_configs": [watched],
            "middlewares": [answers_in_time],
            "response_class": Page,
            "trust_env": True,  # uses HTTPS_PROXY and similar variables
        }
    }


async def _within(seconds: float, awaited: Awaitable[T], why: str) -> T:
    """Awaits a result. Raises _Refusal if this takes longer than `seconds`."""
    try:
        return await asyncio.wait_for(awaited, seconds)
    except asyncio.TimeoutError as error:
        if type(error) is not asyncio.TimeoutError:  # the error comes from a limit of aiohttp
            raise
        raise _Refusal(f"its server is too slow: {why}") from None


def _request(address: Address, ask: Callable[[], T], *, may_again: bool = False) -> T:
    """Calls `ask` and returns the server's answer. Raises _BrokenTransfer if another try may help."""
    try:
        return ask()
    except OpspanError:
        raise
    except Exception as error:  # noqa: BLE001  # the packages raise anything
        if isinstance(error, OSError) and error.errno in _DISK:
            raise ReadError(f"cannot keep {address} here: {error.strerror}; choose another disk with TMPDIR") from None
        if may_again and _may_pass(error):
            raise _BrokenTransfer(_why(error, address)) from None
        raise NotReadable(f"cannot read {address}: {_why(error, address)}") from None


def _may_pass(error: Exception) -> bool:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if {"ClientConnectorError", "TimeoutError"} & kinds:
        return False
    is_broken = {"ConnectionError", "ClientPayloadError", "ClientOSError", "ServerDisconnectedError"} & kinds
    return bool(is_broken) or getattr(error, "status", None) in _TRY_AGAIN


def _why(error: Exception, address: Address) -> str:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    status = getattr(error, "status", None)
    if isinstance(error, _Refusal):
        return str(error)
    if isinstance(error, FileNotFoundError) or status == 404:
        return "there is nothing at this address"
    if isinstance(error, PermissionError) or status in (401, 403):
        return f"it may not be read{f' ({status})' if status else ''}; check the address and your credentials"
    if "TooManyRedirects" in kinds:
        return "it leads from one address to another without an end"
    if isinstance(status, int) and status >= 400:
        # aiohttp also uses the status 400 for answers that it cannot parse.
        if any(kind.__name__ == "HttpProcessingError" for kind in type(error.__cause__).__mro__):
            return "its server does not keep to HTTP: what came has another length, or another form, than was announced"
        return f"its server answers {status}; try again later"
    if "RedirectClientError" in kinds:
        return "it leads to something that is neither http:// nor https://"
    if isinstance(error, TimeoutError) or "TimeoutError" in kinds:
        return f"nothing came for {PATIENCE_S:g} s"
    if "ClientPayloadError" in kinds:
        return "the connection broke off in the middle"
    if "ClientConnectorError" in kinds:
        return "there is no connection to its server"
    text = " ".join(str(error).split())
    for secret in (address.text, *address.secrets()):
        text = text.replace(secret, "...")
    return f"{type(error).__name__}{': ' if text else ''}{shortened(text, 200)}"
