"""Labels of threads, as a running pyroscope-io agent takes them: the only code that knows this library.

    start(base) -> ThreadTags, where an agent runs in this process; None where none does
    depth = tags.push({"phase": "backward"}), tags.cut(depth): on the thread that calls

The agent can be told of the calling thread alone, remembers it by its pthread (which a later thread may get again), and
samples one value where a key has two: so a value goes before another comes, and all of them before a thread ends.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from importlib import metadata
from importlib.util import find_spec

from opspan.errors import EmitError, MissingPackage

MOST_VALUES = 100  # of a key; each is a series of the server's
OTHER = "other"

IsOpen = Callable[[], bool]
_Tell = Callable[[str, str], bool]


class _Thread:
    """What the agent was told of one thread. It goes with its thread, and takes what is left with it."""

    def __init__(self, add: _Tell, remove: _Tell) -> None:
        self.told: dict[str, str] = {}
        self.around: list[tuple[dict[str, str], IsOpen | None]] = []  # what was told before each push
        self._add = add
        self._remove = remove

    def tell(self, wanted: Mapping[str, str]) -> None:
        told = self.told
        for key in [key for key, value in told.items() if wanted.get(key) != value]:
            self._remove(key, told[key])
            del told[key]
        for key, value in wanted.items():
            if key not in told:
                told[key] = value  # first: what an interrupt leaves half done is removed all the same
                self._add(key, value)

    def __del__(self) -> None:
        if self.told:
            self.tell({})


class ThreadTags:
    """`base`: what each thread has that has any. After a fork the child has no agent, and nothing is told any more."""

    def __init__(self, add: _Tell, remove: _Tell, base: Mapping[str, str]) -> None:
        self.base = dict(base)
        self.too_many: set[str] = set()  # keys of which values were told as OTHER
        self._add = add
        self._remove = remove
        self._values: dict[str, set[str]] = {}
        self._local = threading.local()
        self._threads: weakref.WeakSet[_Thread] = weakref.WeakSet()
        self._is_gone = False

    def push(self, tags: Mapping[str, str], is_open: IsOpen | None = None) -> int:
        """How many were open before: what `cut` takes to end this one, and what is left inside. `is_open` is for one
        whose end may not be told: it is over when that says so, at the thread's next push."""
        thread = self._here()
        before = len(thread.around)
        if not self._is_gone:
            thread.around.append((dict(thread.told), is_open))
            try:
                self.change(tags)
            except BaseException:
                del thread.around[before:]  # nobody will cut it
                raise
        return before

    def change(self, tags: Mapping[str, str]) -> None:
        """Within what was pushed last. An empty value is none."""
        thread = self._here()
        if self._is_gone or not thread.around:
            return
        wanted = dict(thread.told or self.base)
        for key, value in tags.items():
            if value:
                wanted[key] = self._bounded(key, value)
            else:
                wanted.pop(key, None)
        thread.tell(wanted)

    def depth(self) -> int:
        """How many pushes are open on this thread."""
        return len(self._here().around)

    def cut(self, depth: int) -> None:
        """End the innermost, until no more than these are open."""
        thread = self._here()
        while len(thread.around) > depth:
            told, _ = thread.around.pop()
            if len(thread.around) == depth and not self._is_gone:
                thread.tell(told)

    def settle(self) -> None:
        """End what is over by now without having said so."""
        around = self._here().around
        while around and (is_open := around[-1][1]) is not None and not is_open():
            self.cut(len(around) - 1)

    def get(self, key: str) -> str | None:
        return self._here().told.get(key)

    def clear(self) -> None:
        """Ends all of this thread's."""
        self.cut(0)

    def forget(self) -> None:
        """In a fork: the agent is not there, and its locks may be held for ever."""
        self._is_gone = True
        for thread in list(self._threads):
            thread.told = {}

    def _here(self) -> _Thread:
        try:
            thread: _Thread = self._local.thread
        except AttributeError:
            thread = self._local.thread = _Thread(self._add, self._remove)
            self._threads.add(thread)
        return thread

    def _bounded(self, key: str, value: str) -> str:
        values = self._values.setdefault(key, set())
        if value not in values:
            if len(values) >= MOST_VALUES:
                self.too_many.add(key)
                return OTHER
            values.add(value)
        return value


def start(base: Mapping[str, str]) -> ThreadTags | None:
    if find_spec("pyroscope") is None:
        raise MissingPackage("emit_pyroscope labels the threads of pyroscope-io: pip install 'opspan[pyroscope]'")
    import pyroscope

    key, value = next(iter(base.items()))
    try:
        is_running = pyroscope.add_thread_tag(key, value)
        pyroscope.remove_thread_tag(key, value)
    except (AttributeError, TypeError) as error:
        raise EmitError(
            f"pyroscope-io {_version()} takes labels of threads in another way than this opspan knows ({error}): "
            "pip install -U 'opspan[pyroscope]'"
        ) from error
    return ThreadTags(pyroscope.add_thread_tag, pyroscope.remove_thread_tag, base) if is_running else None


def _version() -> str:
    try:
        return metadata.version("pyroscope-io")
    except metadata.PackageNotFoundError:
        return "of an unknown version"
