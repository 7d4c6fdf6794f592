"""Unpacks a result from a zip or tar file into a temporary folder. Leaves out files that opspan does not need.

Only files at paths that are usual in a result (RESULT) are unpacked. Each file gets the same path below the new folder;
only the descriptor gets a new name. So an archive cannot choose where a file is written. Links are never followed.
formats/budget.py limits the unpacked bytes, the skipped bytes of a compressed tar, and how many results and members
there may be.
"""

from __future__ import annotations

import bz2
import copy
import io
import lzma
import re
import struct
import tarfile
import zipfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, cast

from opspan import printable
from opspan.errors import NotReadable, ReadError, TooLarge
from opspan.files import open_file, size_on_disk
from opspan.formats import compressed
from opspan.formats.budget import MEMBERS, RESULTS, UNPACKED
from opspan.formats.compressed import PART, is_compressed, opened

ZIP = b"PK\x03\x04"
TAR, TAR_AT = b"ustar", 257
SNIFFED_MEMBERS = 20_000
SNIFFED_BYTES = 256 << 20

RESULT = re.compile(
    r"(?P<root>(?:[^/]+/)*)"
    r"(?P<member>[^/]+\.(?:vtune|amplxe)|config/\w+\.options|config/context_values\.cfg"
    r"|sqlite-db/dicer\.db(?:-wal|-journal)?|sqlite-db/\w+/container\.metadata|sqlite-db/\w+/\w+/\d+)"
)
INSIDE = re.compile(r"(?:^|/)(?:sqlite-db|data\.\d+)/|\.(?:vtune|amplxe)$")
DESCRIPTOR = re.compile(r"[^/]+\.(vtune|amplxe)")
IN_DATABASE = "sqlite-db/dicer.db"

# Exceptions that Python's archive modules raise for a damaged archive.
FAILURES = (
    *compressed.FAILURES,  # includes ValueError, and so its subclass UnicodeDecodeError
    tarfile.TarError,
    zipfile.BadZipFile,
    struct.error,
    OverflowError,
    RuntimeError,  # for an encrypted zip, or an unknown compression (NotImplementedError, a subclass)
)
Member = tuple[str, IO[bytes]]


def is_archive(head: bytes) -> bool:
    return head.startswith(ZIP) or is_compressed(head) or head[TAR_AT : TAR_AT + len(TAR)] == TAR


def holds_result(path: Path, head: bytes) -> bool:
    """Returns whether one of the archive's first members has a path that is usual in a result."""
    try:
        with closing(_names(path, head)) as names:
            return any(INSIDE.search(name) for name, _ in zip(names, range(SNIFFED_MEMBERS), strict=False))
    except TooLarge:
        return head.startswith(ZIP)  # no other reader takes zip files, so `unpack` will raise the error
    except FAILURES:
        return False


def unpack(path: Path, head: bytes, folder: Path) -> Path:
    """Unpacks the result in the archive into a new folder within `folder`, and returns the new folder."""
    roots: dict[str, Path] = {}
    archive_bytes = size_on_disk(path.stat())
    left = UNPACKED.allows(archive_bytes)
    try:
        with closing(_members(path, head)) as members:
            for name, stream in members:
                match = RESULT.fullmatch(name)
                if match is None:
                    continue
                root = roots.setdefault(match["root"], folder / str(len(roots)))
                if len(roots) > RESULTS.allows():
                    raise RESULTS.passed(path)
                for part in _write(stream, root / DESCRIPTOR.sub(r"result.\1", match["member"])):
                    left -= part
                    if left < 0:
                        raise UNPACKED.passed(path, archive_bytes)
    except FAILURES as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ReadError(f"{path} is an archive that cannot be read ({why}); copy or pack it again") from error
    results = {name: root for name, root in roots.items() if (root / IN_DATABASE).is_file()}
    if not results and len(roots) == 1:
        results = roots  # the result is not finalised; result_files.find will raise the error
    if len(results) != 1:
        listed = printable.listed([name.rstrip("/") or "." for name in sorted(results or roots)], most=3)
        has = f"{len(results)} results ({listed})" if results else "no result of VTune with a database"
        raise NotReadable(f"{path} holds {has}; expected one. Unpack it, and load the folder of one result")
    return next(iter(results.values()))


def _names(path: Path, head: bytes) -> Generator[str]:
    if head.startswith(ZIP):
        with _zip(path) as archive:
            yield from archive.namelist()
        return
    with _tar(path, head) as tar:
        for member in tar:
            yield member.name
            if tar.offset > SNIFFED_BYTES:
                return


def _members(path: Path, head: bytes) -> Generator[Member]:
    """Yields path and stream of each regular file; for a zip, only of files at paths that match RESULT. The caller must
    read each stream before it requests the next stream."""
    if head.startswith(ZIP):
        with _zip(path) as archive:
            for info in archive.infolist():
                if RESULT.fullmatch(info.filename):
                    with _unpack_member(archive, info) as stream:
                        yield info.filename, stream
        return
    with _tar(path, head) as tar:
        for count, member in enumerate(tar):
            if count >= MEMBERS.allows():
                raise MEMBERS.passed(path)
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                yield member.name.removeprefix("./"), content
            tar.members.clear()  # type: ignore[attr-defined]  # otherwise `tar` keeps all members in memory


@contextmanager
def _zip(path: Path) -> Iterator[zipfile.ZipFile]:
    with open_file(path) as stream, zipfile.ZipFile(stream) as archive:
        if len(archive.infolist()) > MEMBERS.allows():
            raise MEMBERS.passed(path)
        yield archive


def _unpack_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    """Returns a stream that unpacks only as much of the member as the caller reads. Python's own zipfile does not do
    this for bzip2 and LZMA, and may unpack some kilobytes of input to gigabytes."""
    if info.compress_type not in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        return archive.open(info)
    stored = copy.copy(info)  # a copy that is marked as uncompressed gives the member's raw bytes
    stored.compress_type, stored.file_size = zipfile.ZIP_STORED, info.compress_size
    del stored.CRC
    raw = archive.open(stored)
    if info.compress_type == zipfile.ZIP_BZIP2:
        return cast("IO[bytes]", bz2.BZ2File(raw))
    # The member begins with a version (2 bytes), the length of the properties (2 bytes), and the properties (5 bytes).
    # A .lzma file begins with the properties.
    head = raw.read(9)
    alone = io.BytesIO(head[4:] + struct.pack("<Q", info.file_size))
    return cast("IO[bytes]", lzma.LZMAFile(cast("IO[bytes]", _StreamChain(alone, raw)), format=lzma.FORMAT_ALONE))


class _StreamChain(io.RawIOBase):
    def __init__(self, *streams: IO[bytes]) -> None:
        self._streams = streams

    def read(self, size: int = -1) -> bytes:
        return next((part for stream in self._streams if (part := stream.read(size))), b"")


@contextmanager
def _tar(path: Path, head: bytes) -> Iterator[tarfile.TarFile]:
    # Mode "r|" reads a tar only forwards, so that the whole tar need not be unpacked first.
    with (
        closing(opened(path, head)) as stream,
        tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as tar,
    ):
        yield tar


def _write(stream: IO[bytes], file: Path) -> Iterator[int]:
    """Writes the stream, and yields the size of each part before it writes the part. Does not overwrite an existing
    file."""
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("xb") as out:
        while part := stream.read(PART):
            yield len(part)
            out.write(part)
