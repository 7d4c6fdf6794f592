"""A result in a zip or tar file: what is needed of it, unpacked into a folder of its own.

Only members whose path within a result is one of a few known ones are unpacked, under those paths, so that no archive
says where anything is written. Links are never followed. How much is unpacked, and how much of a compressed tar is read
over, is bounded by the size of the archive.
"""

from __future__ import annotations

import re
import struct
import tarfile
import zipfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, cast

from opspan import printable
from opspan.errors import NotReadable, ReadError
from opspan.readers import _compressed
from opspan.readers._compressed import PART, TooMuch, is_compressed, limit_of, opened

ZIP = b"PK\x03\x04"
TAR, TAR_AT = b"ustar", 257
SNIFFED_MEMBERS = 20_000
SNIFFED_BYTES = 256 << 20

RESULT = re.compile(
    r"(?P<root>(?:[^/]+/)*)"
    r"(?P<member>[^/]+\.(?:vtune|amplxe)|config/\w+\.options|sqlite-db/dicer\.db(?:-wal|-journal)?"
    r"|sqlite-db/\w+/container\.metadata|sqlite-db/\w+/\w+/\d+)"
)
INSIDE = re.compile(r"(?:^|/)(?:sqlite-db|data\.\d+)/|\.(?:vtune|amplxe)$")
DESCRIPTOR = re.compile(r"[^/]+\.(vtune|amplxe)")
IN_DATABASE = "sqlite-db/dicer.db"

# All that the modules for archives raise for a damaged one.
FAILURES = (
    *_compressed.FAILURES,  # ValueError: and UnicodeDecodeError
    tarfile.TarError,
    zipfile.BadZipFile,
    struct.error,
    OverflowError,
    RuntimeError,  # an encrypted zip; and NotImplementedError, a kind of compression that is not known
)
Member = tuple[str, IO[bytes]]


def is_archive(head: bytes) -> bool:
    return head.startswith(ZIP) or is_compressed(head) or head[TAR_AT : TAR_AT + len(TAR)] == TAR


def holds_result(path: Path, head: bytes) -> bool:
    """Whether an archive seems to have a result in it, as far as its first members tell."""
    try:
        with closing(_names(path, head)) as names:
            return any(INSIDE.search(name) for name, _ in zip(names, range(SNIFFED_MEMBERS), strict=False))
    except (*FAILURES, TooMuch):
        return False


def unpack(path: Path, head: bytes, folder: Path) -> Path:
    """The result in the archive, unpacked into a folder within `folder`."""
    roots: dict[str, Path] = {}
    limit = limit_of(path)
    try:
        with closing(_members(path, head, limit)) as members:
            for name, stream in members:
                match = RESULT.fullmatch(name)
                if match is None:
                    continue
                root = roots.setdefault(match["root"], folder / str(len(roots)))
                limit -= _write(stream, root / DESCRIPTOR.sub(r"result.\1", match["member"]), limit)
    except TooMuch as error:
        raise NotReadable(f"{path} was not unpacked: {error}; unpack it yourself and load the folder") from error
    except FAILURES as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ReadError(f"{path} is an archive that cannot be read ({why}); copy or pack it again") from error
    found = {name: root for name, root in roots.items() if (root / IN_DATABASE).is_file()}
    if not found and len(roots) == 1:
        found = roots  # not finalised: whoever looks for the database says so
    if len(found) != 1:
        listed = printable.listed([name.rstrip("/") or "." for name in sorted(found or roots)], most=3)
        has = f"{len(found)} results ({listed})" if found else "no result of VTune with a database"
        raise NotReadable(f"{path} holds {has}; expected one: unpack it and load the folder of one")
    return next(iter(found.values()))


def _names(path: Path, head: bytes) -> Generator[str]:
    if head.startswith(ZIP):
        with zipfile.ZipFile(path) as archive:
            yield from archive.namelist()
        return
    with _tar(path, head, SNIFFED_BYTES) as tar:
        yield from (member.name for member in tar)


def _members(path: Path, head: bytes, limit: int) -> Generator[Member]:
    """Regular files of the archive, each to be read before the next is asked for."""
    if head.startswith(ZIP):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if RESULT.fullmatch(info.filename):
                    with archive.open(info) as stream:
                        yield info.filename, stream
        return
    with _tar(path, head, limit) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isreg() else None
            if file is not None:
                yield member.name.removeprefix("./"), file


@contextmanager
def _tar(path: Path, head: bytes, limit: int) -> Iterator[tarfile.TarFile]:
    # A tar is read from its beginning to its end and never back, so that it need not be unpacked as a whole.
    with (
        closing(opened(path, head, limit)) as stream,
        tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as tar,
    ):
        yield tar


def _write(stream: IO[bytes], file: Path, limit: int) -> int:
    """How many bytes were written. The first of several members with one name is the one that is kept."""
    if file.exists():
        return 0
    file.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with file.open("wb") as out:
        while part := stream.read(PART):
            written += len(part)
            if written > limit:
                raise TooMuch
            out.write(part)
    return written
