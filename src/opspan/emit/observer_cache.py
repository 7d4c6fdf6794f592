"""Builds the observer for the installed torch once, and keeps it in a cache.

A cached file ends with the SHA-256 of the bytes before it (a loader ignores bytes after the end of an ELF file). So a
truncated file, which could crash the process, is never loaded. A file that another user could have written is not
loaded, either (private_files.py), because it would run as this user.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from opspan import libraries, private_files
from opspan.emit import compiler, notices
from opspan.emit.compiler import Compiler
from opspan.emit.installed_torch import Torch
from opspan.errors import BuildFailed, NoCompiler, ObserverError

NO_COMPILER: Final = (
    "and opspan builds its observer for torch once: install one (Debian, Ubuntu: apt-get install g++; "
    "conda: conda install gxx) or set CXX, then `opspan doctor --fix`"
)
# The compiler's options for every observer, including the observers that tools/observers compiles.
OPTIONS: Final = (
    "-std=c++20",
    "-O2",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-w",  # all warnings would be about torch's headers
    "-Wl,--no-as-needed",
    "-Wl,-z,nodelete",
)
_LOG: Final = "build.log"

T = TypeVar("T")
# A function that loads a checked file. Its arguments are the file's final path, its descriptor, and its present path.
# The file may not be at its final path yet.
Loader = Callable[[Path, int, Path], T]


@dataclass(frozen=True)
class CacheEntry:
    """The cache's entry for a torch: an observer, or the reason why the file there cannot be used."""

    path: Path | None = None
    descriptor: int = -1  # of the checked file
    refused: str = ""


def find(torch: Torch) -> CacheEntry:
    """Looks in the cache for a whole observer for this torch. If this machine has a compiler, only an observer that
    this compiler built counts, otherwise any observer."""
    try:
        folder = private_files.check_folder(private_files.cache_folder())
        cxx = compiler.find()
        names = [_name(torch, cxx)] if cxx is not None else _names(folder, _prefix(torch))
    except PermissionError as error:
        return CacheEntry(refused=_why(error))
    except OSError:
        return CacheEntry()
    refused = ""
    for path in (folder / name for name in names):
        try:
            descriptor = _opened(path)
        except PermissionError as error:
            refused = _why(error)
        else:
            if descriptor is not None:
                return CacheEntry(path, descriptor)
    return CacheEntry(refused=refused)


def cached(torch: Torch) -> Path | None:
    """Returns the path of the observer that `find` finds, or None."""
    entry = find(torch)
    if entry.path is not None:
        os.close(entry.descriptor)
    return entry.path


def stale(torch: Torch) -> list[Path]:
    """Returns the useless observers in the cache. An observer is useless if its file is truncated, or if it was built
    for this folder of torch, but for another version of torch or of opspan.

    Environments share the cache. Whole observers for the torch of another environment are not returned.
    """
    good = _prefix(torch)
    ours = f"observer-{_environment(torch)}-"
    try:
        folder = private_files.check_folder(private_files.cache_folder())
        paths = [folder / name for name in _names(folder, "observer-")]
    except OSError:
        return []
    return [
        path for path in paths if (path.name.startswith(ours) and not path.name.startswith(good)) or not _is_whole(path)
    ]


def build(torch: Torch, load: Loader[T], over: Path | None = None, refused: str = "") -> T:
    """Builds the observer into the cache, and returns what `load` returns for it. `over` is a bad cached file to
    replace. `refused` says why a file was not used."""
    cxx = compiler.find()
    if cxx is None:
        also = f"; an observer that is there is not used, for {refused}" if refused else ""
        raise NoCompiler(f"{compiler.why_none()}, {NO_COMPILER}{also}")
    try:
        folder = private_files.kept_folder(private_files.cache_folder())
        path = folder / _name(torch, cxx)
        note = "opspan: waiting for another process that is building the observer\n"
        with private_files.locked(path.with_suffix(".lock"), waiting=lambda: notices.say(note)):
            # Another process may have built the observer while this one waited.
            descriptor = None if path == over else _opened_if_ours(path)
            if descriptor is None:
                with private_files.claimed(folder, "building-") as inner:
                    try:
                        built, descriptor = _compile(torch, cxx, inner, path.with_suffix(".log"))
                    finally:
                        if (log := inner / _LOG).is_file():
                            log.replace(path.with_suffix(".log"))
                    # Load the file before it gets its final name, because other processes rely on files that they find.
                    loaded = load(path, descriptor, built)
                    built.replace(path)
                    return loaded
    except OSError as error:
        wanted = "that can be written" if error.strerror is not None else "that only you can write"
        notices.warn(
            f"the cache folder cannot be used ({_why(error)}), so the observer is built for this process alone: "
            f"set OPSPAN_CACHE_DIR to a folder {wanted}",
            stacklevel=2,
        )
        return _build_privately(torch, cxx, load)
    return load(path, descriptor, path)


def _build_privately(torch: Torch, cxx: Compiler, load: Loader[T]) -> T:
    try:
        # The folder can be deleted, because a loaded file stays in memory.
        with private_files.claimed(None, "opspan-observer-") as folder:
            built, descriptor = _compile(torch, cxx, folder, None)
            return load(built, descriptor, built)
    except OSError as error:
        raise BuildFailed(f"there is no place to build the observer: {_why(error)}") from error


def _why(error: OSError) -> str:
    """Returns the reason. Errors of private_files.py are sentences without an error number."""
    if error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def _compile(torch: Torch, cxx: Compiler, folder: Path, log: Path | None) -> tuple[Path, int]:
    """Compiles a library in this folder, and returns its path and its descriptor. `log` is the final path of the
    compiler's output, if that is kept."""
    source = libraries.observer_sources() / "observer.cpp"
    if not source.is_file():
        raise ObserverError(f"{source} is missing: opspan's native part was not installed; pip install opspan")
    library = folder / "observer.so"
    include, lib = torch.root / "include", torch.root / "lib"
    options = [
        *OPTIONS,
        # RecordFunction has one more member in a debug build, so the observer must be built like its torch.
        "-UNDEBUG" if torch.debug else "-DNDEBUG",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}",
        f"-I{source.parent}",
        f"-isystem{include}",
        f"-isystem{include / 'torch/csrc/api/include'}",
        f"-idirafter{source.parent / 'otherwise'}",  # our headers, used if torch and the system lack them
        f"-L{lib}",
        f"-Wl,-rpath,{lib}",
        "-ltorch_cpu",
        "-lc10",
    ]
    start = time.monotonic()
    notices.say(f"opspan: building the observer for torch {torch.version} (once, about 10 s) ... ")
    done = "failed"
    try:
        _compile_as_much_as_possible(cxx, source, library, options, folder / _LOG, log)
        content = library.read_bytes()
        # Write the file again ourselves, because the linker chooses the mode of its own file. Other users may read our
        # file, but not write it.
        built = library.with_name("whole.so")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(built, "wb", opener=lambda path, _: os.open(path, flags, 0o644)) as file:
            file.write(content + hashlib.sha256(content).digest())
        # Reopen the file for reading, because some systems refuse to run a file that is open for writing. Nobody else
        # can enter the folder.
        descriptor = os.open(built, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        done = f"done in {time.monotonic() - start:.0f} s"
    finally:
        notices.say(done + "\n")
    return built, descriptor


def _compile_as_much_as_possible(
    cxx: Compiler, source: Path, library: Path, options: list[str], log: Path, log_later: Path | None
) -> None:
    """Compiles the observer. If that fails, compiles it again without the part that needs Kineto's headers."""
    with contextlib.suppress(BuildFailed):
        compiler.compile_library(cxx, source, library, options, log, log_later)
        return
    compiler.compile_library(cxx, source, library, [*options, "-DOPSPAN_NO_KINETO"], log, log_later)


def _opened(path: Path) -> int | None:
    """Returns a descriptor of the file, or None if it is truncated or missing. Raises PermissionError if another user
    owns it."""
    try:
        descriptor = private_files.opened(path)
    except PermissionError:
        raise
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):  # too many open files: building again would not help
            raise ObserverError(f"{path} cannot be read ({error.strerror}): raise the limit (ulimit -n)") from error
        return None
    with open(descriptor, "rb", closefd=False) as file:  # the descriptor stays open
        content = file.read()
    if len(content) > 32 and hashlib.sha256(content[:-32]).digest() == content[-32:]:
        return descriptor
    os.close(descriptor)
    return None


def _opened_if_ours(path: Path) -> int | None:
    try:
        return _opened(path)
    except PermissionError as error:
        notices.warn(f"an observer that was built is not used, for {_why(error)}: building it anew", stacklevel=3)
        return None


def _is_whole(path: Path) -> bool:
    try:
        descriptor = _opened(path)
    except PermissionError:
        return False
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


def _names(folder: Path, prefix: str) -> list[str]:
    names = (path.name for path in folder.iterdir())
    return sorted(name for name in names if name.startswith(prefix) and name.endswith(".so"))


def _environment(torch: Torch) -> str:
    """Returns a hash of torch's folder, because environments share the cache."""
    return hashlib.sha256(str(torch.root).encode(errors="surrogateescape")).hexdigest()[:8]


def _prefix(torch: Torch) -> str:
    """Returns the prefix of the names of all observers for this torch and these sources, whichever compiler built
    them."""
    hashed = hashlib.sha256(f"{torch.version} {torch.git} {torch.cxx11_abi}".encode())
    # This file counts as a source, because it has the compiler's options.
    for source in (Path(__file__), *(libraries.observer_sources() / name for name in libraries.OBSERVER_SOURCES)):
        hashed.update(source.read_bytes() if source.is_file() else b"")
    return f"observer-{_environment(torch)}-{torch.version}-{hashed.hexdigest()[:16]}-"


def _name(torch: Torch, cxx: Compiler) -> str:
    return _prefix(torch) + hashlib.sha256(cxx.identity.encode()).hexdigest()[:8] + ".so"
