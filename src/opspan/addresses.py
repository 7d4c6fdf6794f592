"""Parses addresses of files on other machines, checks which schemes opspan can fetch, and shows addresses without
secrets.

    file_of("run/rank0.json")                     -> Path
    file_of("https://me:word@host/rank0.json?k=1") -> Address; as text: https://host/rank0.json?...

Only Address.text may contain secrets (a user, a password, the query of a signed address). remote.py fetches the files.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from opspan.errors import UsageError, WriteError
from opspan.printable import shortened

# Maps a scheme to the package that fetches its addresses. Other schemes are errors, because some schemes of fsspec open
# local files, start programs, or redirect to another address.
SCHEMES = {
    "https": "aiohttp",
    "http": "aiohttp",
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "hf": "huggingface_hub",
    "abfs": "adlfs",
    "az": "adlfs",
}
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]+"
_ADDRESS = re.compile(rf"{_SCHEME}(://|::.*://)", re.DOTALL)
_PARTED = rf"({_SCHEME}):/+(?=[^/])"  # matches an address that was converted to a Path; a Path keeps only one slash
_SECRET = r"(?s)(?<=://)[^/?#@]*@|[?#].*"
_LONGEST = 1_000  # a shown address is cut to this many characters
MOST_BYTES = 16 << 30  # maximum number of bytes to fetch from an address, unless the caller allows more


@dataclass(frozen=True, repr=False)
class Address:
    """The address of a file on another machine. Its `str()` has no secrets, so it can be shown and saved."""

    text: str = field()
    most_bytes: int = field(default=MOST_BYTES, compare=False)  # maximum number of bytes that may be fetched

    @property
    def scheme(self) -> str:
        return self.text.partition("://")[0].lower()

    @property
    def name(self) -> str:
        """The file's name on that machine."""
        return unquote(urlsplit(self.text).path.rstrip("/").rpartition("/")[2]) or self.scheme

    @property
    def is_folder(self) -> bool:
        """True if the address is a folder of files. Then the path of the address ends with a slash."""
        return urlsplit(self.text).path.endswith("/")

    @property
    def is_several(self) -> bool:
        """True if the address is a folder or a pattern, and so may mean several files."""
        return self.is_folder or not {"*", "["}.isdisjoint(urlsplit(self.text).path)

    def secrets(self) -> list[str]:
        """Returns the parts that must not be shown: user, password, and the values of the query."""
        parts = [part for match in re.findall(_SECRET, self.text) for part in re.split("[&#:]", match.strip("?#@"))]
        return [value for part in parts if (value := part.partition("=")[2] or part)]

    def __str__(self) -> str:
        return shown(self.text)

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    def __fspath__(self) -> str:
        return str(self)


File: TypeAlias = Path | Address


def shown(text: str) -> str:
    """Returns the text of an address without user and password. A query is replaced by `?...`."""
    return shortened(re.sub(_SECRET, lambda match: "?..." if match[0][0] == "?" else "", text), _LONGEST)


def file_of(path: str | os.PathLike[str], most_bytes: int | None = None) -> File:
    """Converts the user's text to the path of a local file or to the address of a remote file. At most `most_bytes` may
    be fetched from the address."""
    text = os.fspath(path)
    if isinstance(path, Address):
        return path
    if isinstance(path, os.PathLike):
        if (address := _as_address(text)) is not None:
            raise UsageError(f"a Path is of this machine's files alone; expected the address {address} as a text")
        return Path(path)
    if not _ADDRESS.match(text):
        return Path(text)
    scheme = re.split("://|::", text)[0].lower()
    if scheme == "file":
        return _local(text)
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise UsageError(f"{shown(text)} is of no kind that is read; expected one of {known} or a path")
    try:
        is_complete = bool(urlsplit(text).netloc)
    except ValueError:  # the address has a [ without a ]
        is_complete = False
    if not is_complete:
        raise UsageError(f"{shown(text)} is no whole address; expected such as {scheme}://host/rank0.json.gz")
    return Address(text) if most_bytes is None else Address(text, most_bytes)


def recorded_file(text: str) -> File:
    """Returns the path or the address of the file from which a saved trace was read. `text` may be any text."""
    return Address(text) if text.partition("://")[0] in SCHEMES else Path(text)


def _local(text: str) -> Path:
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise UsageError(f"{shown(text)} is of another machine; expected file:///path, or a path alone")
    return Path(unquote(parts.path))


def check_local(path: Path) -> Path:
    """Returns `path`, to which a result will be written. Raises WriteError if the path is an address."""
    if (address := _as_address(str(path))) is not None:
        raise WriteError(f"{address} is an address, and only files of this machine are written: choose a path")
    return path


def _as_address(text: str) -> str | None:
    """Returns the address, without secrets, that a Path was made from. Returns None if the path is local. A path that
    begins like `s3:/` is local if there is a folder named `s3:`."""
    match = re.match(_PARTED, text)
    if match is None or os.path.exists(f"{match[1]}:"):  # noqa: PTH110  raises for no path
        return None
    return shown(f"{match[1]}://{text[match.end() :]}")
