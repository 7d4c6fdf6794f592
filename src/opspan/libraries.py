"""Finds files that were built with the package (the shared libraries and the JavaScript of the page), and checks that a
library is complete. `native`, emit's `sinks` and views.page open these files.

A library is checked before it is opened, because the loader maps as many bytes as the file's header states. If the file
is shorter, a program that accesses the missing bytes is killed by SIGBUS, without an error in Python.

A file system may be mounted with the option noexec, so that code on it cannot run. This is common for home folders and
/tmp. Then a copy of the library is loaded.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import mmap
import os
import struct
from pathlib import Path

import opspan
from opspan import private_files

SINKS = "libopspan_sinks.so"
COLLECTORS = "libopspan_collectors.so"
COLUMNS = "libopspan_columns.so"
OBSERVER_SOURCES = (
    "blocks.h",
    "observer.cpp",
    "observer.h",
    "otherwise/fmt/format.h",
    "fast_ranges.h",
    "fits.h",
    "inputs.h",
    "keywords.h",
    "kineto.h",
    "memory.h",
    "other_listeners.h",
    "sinks.h",
    "words.h",
)
PAGE = (
    "page.js",
    "page.css",
    "tensorboard.js",
    "tensorboard.css",
    "LICENSES.txt",
)  # the files that are built from src/page; they are missing if the build failed

# Fields in the header of a 64-bit ELF file: the offset of the table of sections; the size of an entry and the number
# of entries in the table of segments; the same two in the table of sections.
_HEAD = struct.Struct("<40xQ6xHHHH")
_PHDR = struct.Struct("<I4xQ16xQ")  # a segment's type, offset in the file, and (after two addresses) bytes in the file
_ELF = b"\x7fELF"
_ELF64 = _ELF + b"\x02\x01"
_MACHINE = slice(18, 20)
_MACHINES = {
    3: "x86",
    21: "PowerPC",
    22: "s390x",
    40: "ARM",
    62: "x86-64",
    183: "AArch64",
    243: "RISC-V",
    258: "LoongArch",
}
_LOAD = 1
_ENOUGH = 4096  # this many bytes at the begin of a file contain the header and the table of segments


def folder() -> Path:
    """Returns the folder `lib` of the installed package. If native libraries were built by hand, OPSPAN_LIB_DIR can
    name their folder instead."""
    chosen = os.environ.get("OPSPAN_LIB_DIR")
    if chosen:
        return Path(chosen)
    # An editable install has two folders in __path__: one with the sources, and one with the files that were built.
    for root in opspan.__path__:
        if (Path(root) / "lib" / SINKS).is_file():
            return Path(root) / "lib"
    return Path(opspan.__path__[0]) / "lib"


def sinks() -> Path:
    return folder() / SINKS


def collectors() -> Path:
    return folder() / COLLECTORS


def columns() -> Path:
    return folder() / COLUMNS


def frames(release: str) -> Path:
    """Returns the path of the library that reads stacks in this release of CPython, such as cp311."""
    return folder() / f"libopspan_frames_{release}.so"


def observer_sources() -> Path:
    return folder() / "observer"


def ready_made(git: str, abi: str, machine: str) -> Path:
    """Returns the path of the ready-made observer for a version of torch. Only wheels contain such files.
    tools/observers gives them these names."""
    return folder() / "observers" / f"{git[:16]}-{abi}-{machine}.so"


def page(name: str) -> Path:
    """Returns the path of one of the files in PAGE: the installed file or, if it is missing, the file that `opspan
    doctor --fix` built later."""
    installed = folder() / "page" / name
    if installed.is_file() or not page_sources().is_dir():
        return installed
    try:
        later = page_built_later()
        private_files.check_folder(later)
    except OSError:  # the folder is missing, or another user could have changed its files
        return installed
    return later / name


def page_sources() -> Path:
    """Returns the folder with the sources of the page and with why.txt. The folder exists only if the page could not be
    built when opspan was installed."""
    return folder() / "page" / "unbuilt"


def page_built_later() -> Path:
    """Returns the folder in the user's cache for the page that `opspan doctor --fix` builds from `page_sources`. Raises
    OSError if this user has no cache."""
    digest = hashlib.sha256()
    for path in sorted(page_sources().rglob("*")):
        # Leaves out the bytecode that pip makes from build.py, because it depends on the version of Python.
        if path.is_file() and path.name != "why.txt" and path.suffix != ".pyc":
            digest.update(path.name.encode() + path.read_bytes())
    return private_files.cache_folder() / f"page-{digest.hexdigest()[:16]}"


def check_whole(path: Path) -> None:
    """Raises an OSError if the file is shorter than its header states, or if it is for another processor.

    For another processor, the loader's own error is misleading: it says that there is no such file. Files in other
    formats than ELF are not checked here, because the loader's error for them is clear.
    """
    with path.open("rb") as file:
        head = file.read(_ENOUGH)
        size = file.seek(0, 2)
    if len(head) >= 64 and head.startswith(_ELF) and (theirs := _machine(head)) != (ours := _own_machine() or theirs):
        raise OSError(f"it is for {theirs}, and this Python for {ours}")
    if len(head) < 64 or not head.startswith(_ELF64):
        return
    sections, segment_bytes, segments, section_bytes, section_count = _HEAD.unpack_from(head)
    needed = sections + section_bytes * section_count
    first = struct.unpack_from("<Q", head, 32)[0]
    for place in range(first, first + segments * segment_bytes, segment_bytes or 1):
        if place + _PHDR.size > len(head):
            break
        kind, offset, length = _PHDR.unpack_from(head, place)
        if kind == _LOAD:
            needed = max(needed, offset + length)
    if size < needed:
        raise OSError(f"the file is cut: {size:,} of {needed:,} bytes")


def _machine(head: bytes) -> str:
    number = int.from_bytes(head[_MACHINE], "little" if head[5] == 1 else "big")
    return f"{_MACHINES.get(number, f'processor {number}')} of {32 * head[4]} bits"


@functools.cache
def _own_machine() -> str | None:
    try:
        with Path("/proc/self/exe").open("rb") as file:
            return _machine(file.read(64))
    except OSError:  # this system has no /proc
        return None


def check_for_others(path: Path) -> None:
    """Raises OSError if another program would fail or be killed when it loads this library."""
    check_whole(path)
    with path.open("rb") as file:
        if not may_run(file.fileno()):
            raise OSError("its file system lets nothing run: mounted noexec")


def may_run(descriptor: int) -> bool:
    """Returns whether the file system allows code of this file to run."""
    try:
        mmap.mmap(descriptor, 1, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
    except PermissionError:
        return False
    except ValueError:
        pass  # the file is empty, so the file system is not the problem
    return True


def load(path: Path, descriptor: int | None = None) -> ctypes.CDLL:
    """Returns the loaded library. `descriptor` may be the descriptor of an open file that was checked. This file is
    loaded even if another file is at `path` now. The descriptor must stay open. Otherwise a second library could get
    the same descriptor and so the same path in /proc, and the loader would return the first library again.

    If the file system is mounted noexec, a copy is loaded: from memory or, if that fails, from a temporary folder.
    """
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if descriptor is None else descriptor
    try:
        try:
            return ctypes.CDLL(str(path) if descriptor is None else private_files.path_of(descriptor, path))
        except OSError:
            if may_run(opened):
                raise
            with open(opened, "rb", closefd=False) as file:  # leaves the descriptor open
                file.seek(0)
                return _load_copy(path.name, file.read())
    finally:
        if descriptor is None:
            os.close(opened)


def _load_copy(name: str, content: bytes) -> ctypes.CDLL:
    try:
        memory = os.memfd_create(name, os.MFD_CLOEXEC)  # this descriptor must stay open, for the reason given in `load`
        try:
            with open(memory, "wb", closefd=False) as file:  # leaves the descriptor open
                file.write(content)
            return ctypes.CDLL(f"/proc/self/fd/{memory}")
        except OSError:
            os.close(memory)
            raise
    except OSError as in_memory:
        try:
            with private_files.claimed(None, "opspan-library-") as folder:
                (folder / name).write_bytes(content)
                return ctypes.CDLL(str(folder / name))
        except OSError as in_folder:
            raise OSError(
                f"its file system lets nothing run: mounted noexec; nor does a copy run in memory ({in_memory}) or in "
                f"a temporary folder ({in_folder})"
            ) from in_folder
