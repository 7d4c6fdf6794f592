"""Finds, builds and loads the observer, the only native code that knows torch. Its C face: native/observer/observer.h.

It is compiled once for the torch that is installed and kept in a cache. A cached file ends with the SHA-256 of what
stands before it (a loader ignores bytes past the end of an ELF file): one that was cut off is never opened, because
opening it could crash.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opspan.emit import compiler, leftovers, libraries, notices, sinks
from opspan.emit.compiler import Compiler
from opspan.errors import BuildFailed, NoCompiler, ObserverError, TorchUnsupported

ABI: Final = 1
OLDEST_TORCH: Final = (2, 4)
NO_COMPILER: Final = (
    "and opspan builds its observer for torch once: install one (Debian, Ubuntu: apt-get install g++; "
    "conda: conda install gxx) or set CXX, then `opspan doctor --fix`"
)

_loaded: Observer | None = None
_lock = threading.Lock()


@dataclass(frozen=True)
class Torch:
    """What of a torch decides whether an observer fits it."""

    version: str
    git: str
    cxx11_abi: bool
    debug: bool
    root: Path  # of the package: include/ and lib/ are below

    @classmethod
    def here(cls) -> Torch:
        try:
            import torch
        except (ImportError, OSError) as error:  # OSError: a library that torch needs
            raise TorchUnsupported(f"torch cannot be imported ({error}): pip install torch") from error
        found = cls(
            version=str(torch.__version__),
            git=str(torch.version.git_version),
            cxx11_abi=bool(torch.compiled_with_cxx11_abi()),
            debug=bool(torch.version.debug),
            root=Path(torch.__file__).parent,
        )
        if found.number < OLDEST_TORCH:
            oldest = ".".join(map(str, OLDEST_TORCH))
            raise TorchUnsupported(f"torch {found.version} found, opspan needs {oldest} or newer: pip install -U torch")
        return found

    @property
    def number(self) -> tuple[int, ...]:
        found = re.match(r"(\d+)\.(\d+)", self.version)
        if found is None:
            raise TorchUnsupported(f"torch says that its version is {self.version!r}: that is no number")
        return tuple(map(int, found.groups()))


class Observer:
    """The loaded library. It stays loaded: torch may still be inside one of its callbacks."""

    def __init__(self, path: Path, native: sinks.Sinks) -> None:
        try:
            library = ctypes.CDLL(str(path))
            found = library.opspan_observer_abi()
            if found != ABI:
                raise ObserverError(f"{path} speaks version {found} of observer.h, this opspan version {ABI}")
            pointers = (ctypes.c_void_p * 3)(*(native.sink_of(sink) for sink in (sinks.NVTX, sinks.ITT, sinks.CAPTURE)))
            failed = library.opspan_observer_init(pointers)
        except (OSError, AttributeError) as error:
            raise ObserverError(f"{path} cannot be loaded ({error})") from error
        if failed:
            raise ObserverError(f"{path} refused to start (error number {failed})")
        self.path = path
        self._library: Any = library

    def attach(self, sink: int, shapes: bool, tensors: bool) -> None:
        """From now on every op of every thread is told to this sink."""
        failed = self._library.opspan_observer_attach(sink, int(shapes), int(tensors))
        if failed:
            raise ObserverError(f"the observer could not be attached (error number {failed})")

    def detach(self, sink: int) -> None:
        self._library.opspan_observer_detach(sink)

    def empty(self, on: int) -> None:
        """An observer that does nothing: the floor against which the others are measured. 2: it asks for inputs."""
        self._library.opspan_observer_empty(on)


def load() -> Observer:
    """The observer for the torch of this process, built if need be. Raises an ObserverError, never less."""
    global _loaded
    with _lock:
        if _loaded is None:
            native = sinks.require()
            _loaded = _load(Torch.here(), native)
        return _loaded


def cached(torch: Torch) -> Path | None:
    """A good observer for this torch in the cache. Without a compiler, whichever compiler built it."""
    try:
        folder = cache_folder()
        found = compiler.find()
        paths = [folder / _name(torch, found)] if found is not None else sorted(folder.glob(_prefix(torch) + "*.so"))
    except OSError:
        return None
    return next(filter(_is_whole, paths), None)


def stale(torch: Torch) -> list[Path]:
    """Observers that serve nobody any more: cut off, or of another version of this very torch or opspan.

    The cache is shared. What another environment's torch needs looks strange from here, and is none of our business.
    """
    good = _prefix(torch)
    ours = f"observer-{_environment(torch)}-"
    try:
        paths = sorted(cache_folder().glob("observer-*.so"))
    except OSError:
        return []
    return [
        path for path in paths if (path.name.startswith(ours) and not path.name.startswith(good)) or not _is_whole(path)
    ]


def cache_folder() -> Path:
    """Where observers are kept. OSError where there is no such folder: no variable, no home."""
    chosen = os.environ.get("OPSPAN_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "opspan"
    except RuntimeError:  # no HOME, and no entry for the user id: usual in containers
        raise FileNotFoundError(errno.ENOENT, "this user has no home folder", "~/.cache/opspan") from None


def _load(torch: Torch, native: sinks.Sinks) -> Observer:
    path = cached(torch)
    if path is not None:
        try:
            return Observer(path, native)
        except ObserverError as error:
            if compiler.find() is None:
                raise
            notices.warn(f"{error}: building it anew", stacklevel=2)
    return build(torch, native, over=path)


def build(torch: Torch, native: sinks.Sinks, over: Path | None = None) -> Observer:
    """Build into the cache and load. `over`: a cached file that was found bad."""
    found = compiler.find()
    if found is None:
        raise NoCompiler(f"{compiler.why_none()}, {NO_COMPILER}")
    try:
        path = cache_folder() / _name(torch, found)
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.with_suffix(".lock")):
            # Another process may have built it while this one waited.
            if path == over or not _is_whole(path):
                with leftovers.claimed(path.parent, "building-") as folder:
                    made = _compile(torch, found, folder, path.with_suffix(".log"))
                    # Loaded before it is shown to others, and not as `path`: a bad library may be open as that.
                    observer = Observer(made, native)
                    made.replace(path)
                    observer.path = path
                    return observer
    except OSError as error:
        notices.warn(
            f"the cache folder cannot be used ({error}), so the observer is built for this process alone: "
            "set OPSPAN_CACHE_DIR to a folder that can be written",
            stacklevel=2,
        )
        return _build_privately(torch, found, native)
    return Observer(path, native)


def _build_privately(torch: Torch, found: Compiler, native: sinks.Sinks) -> Observer:
    try:
        # The loaded file lives on until the process ends; after a failure there is the log to read.
        with leftovers.claimed(Path(tempfile.gettempdir()), "opspan-observer-", keep_failed=True) as folder:
            return Observer(_compile(torch, found, folder, folder / "build.log"), native)
    except OSError as error:
        raise BuildFailed(f"there is no place to build the observer: {error}") from error


def _compile(torch: Torch, found: Compiler, folder: Path, log: Path) -> Path:
    source = libraries.observer_sources() / "observer.cpp"
    if not source.is_file():
        raise ObserverError(f"{source} is missing: opspan's native part was not installed; pip install opspan")
    library = folder / "observer.so"
    include, lib = torch.root / "include", torch.root / "lib"
    options = [
        "-std=c++20",
        "-O2",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        # RecordFunction has a member more in a debug build: the observer must be of the same mind as its torch.
        "-UNDEBUG" if torch.debug else "-DNDEBUG",
        "-w",  # what could be warned of is in torch's headers
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}",
        f"-I{source.parent}",
        f"-isystem{include}",
        f"-isystem{include / 'torch/csrc/api/include'}",
        f"-L{lib}",
        f"-Wl,-rpath,{lib}",
        "-Wl,--no-as-needed",
        "-Wl,-z,nodelete",
        "-ltorch_cpu",
        "-lc10",
    ]
    start = time.monotonic()
    notices.say(f"opspan: building the observer for torch {torch.version} (once, about 10 s) ... ")
    done = "failed"
    try:
        compiler.compile_library(found, source, library, options, log)
        content = library.read_bytes()
        library.write_bytes(content + hashlib.sha256(content).digest())
        done = f"done in {time.monotonic() - start:.0f} s"
    finally:
        notices.say(done + "\n")
    return library


def _is_whole(path: Path) -> bool:
    try:
        content = path.read_bytes()
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):  # not the file's fault: building it anew would not help
            raise ObserverError(f"{path} cannot be read ({error.strerror}): raise the limit (ulimit -n)") from error
        return False
    return len(content) > 32 and hashlib.sha256(content[:-32]).digest() == content[-32:]


def _environment(torch: Torch) -> str:
    """Which installation of torch: environments share the cache."""
    return hashlib.sha256(str(torch.root).encode(errors="surrogateescape")).hexdigest()[:8]


def _prefix(torch: Torch) -> str:
    """Names every observer for this torch and these sources, whoever compiled it."""
    hashed = hashlib.sha256(f"{torch.version} {torch.git} {torch.cxx11_abi}".encode())
    # This file holds the compiler's options.
    for source in (Path(__file__), *(libraries.observer_sources() / name for name in libraries.OBSERVER_SOURCES)):
        hashed.update(source.read_bytes() if source.is_file() else b"")
    return f"observer-{_environment(torch)}-{torch.version}-{hashed.hexdigest()[:16]}-"


def _name(torch: Torch, found: Compiler) -> str:
    return _prefix(torch) + hashlib.sha256(found.identity.encode()).hexdigest()[:8] + ".so"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time. The lock goes with the process that holds it, also if it is killed."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            notices.say("opspan: waiting for another process that is building the observer\n")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
