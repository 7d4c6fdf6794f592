"""Labels of threads for a running pyroscope-io agent. Only this module uses the package pyroscope.

    start(base) -> ThreadTags if an agent runs in this process, else None
    depth = tags.push({"phase": "backward"})     sets labels of the calling thread
    tags.cut(depth)                              on the same thread, restores its earlier labels

The agent labels only the calling thread. It identifies a thread by its pthread id, which a later thread may get again.
If a key has two values, the agent uses only one of them. So a value is removed before another value is set, and all
values are removed before a thread ends.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from importlib import metadata
from importlib.util import find_spec

from opspan.errors import EmitError, MissingPackage

MOST_VALUES = 100  # the most values of a key. Each value is a series on the server
OTHER = "other"

IsOpen = Callable[[], bool]
_SetTag = Callable[[str, str], bool]


class _Thread:
    """The labels of one thread. `__del__` removes them when the thread ends."""

    def __init__(self, add: _SetTag, remove: _SetTag) -> None:
        self.tags: dict[str, str] = {}
        # For each open push: the labels before it, and its `is_open`.
        self.around: list[tuple[dict[str, str], IsOpen | None]] = []
        self._add = add
        self._remove = remove

    def set(self, tags: Mapping[str, str]) -> None:
        own = self.tags
        for key in [key for key, value in own.items() if tags.get(key) != value]:
            self._remove(key, own[key])
            del own[key]
        for key, value in tags.items():
            if key not in own:
                own[key] = value  # before `_add`, so that an interrupt between the two leaves no label behind
                self._add(key, value)

    def __del__(self) -> None:
        if self.tags:
            self.set({})


class ThreadTags:
    """The labels of all threads. `base` has labels, such as the run's id, that a thread gets together with its first
    own label. A forked process has no agent, and sets no labels."""

    def __init__(self, add: _SetTag, remove: _SetTag, base: Mapping[str, str]) -> None:
        self.base = dict(base)
        self.too_many: set[str] = set()  # keys that have too many values, some of which were replaced by OTHER
        self._add = add
        self._remove = remove
        self._values: dict[str, set[str]] = {}
        self._local = threading.local()
        self._threads: weakref.WeakSet[_Thread] = weakref.WeakSet()
        self._is_gone = False

    def push(self, tags: Mapping[str, str], is_open: IsOpen | None = None) -> int:
        """Pushes tags, and returns the depth before the push. Pass this depth to `cut` to end this push and everything
        inside it. If `cut` may never be called, pass `is_open`, by which `settle` learns whether the push is still
        open."""
        thread = self._here()
        before = len(thread.around)
        if not self._is_gone:
            thread.around.append((dict(thread.tags), is_open))
            try:
                self.change(tags)
            except BaseException:
                del thread.around[before:]  # nobody would cut this push
                raise
        return before

    def change(self, tags: Mapping[str, str]) -> None:
        """Changes values of the innermost push. An empty value removes the key."""
        thread = self._here()
        if self._is_gone or not thread.around:
            return
        changed = dict(thread.tags or self.base)
        for key, value in tags.items():
            if value:
                changed[key] = self._bounded(key, value)
            else:
                changed.pop(key, None)
        thread.set(changed)

    def depth(self) -> int:
        """Returns the number of open pushes on this thread."""
        return len(self._here().around)

    def cut(self, depth: int) -> None:
        """Ends the innermost pushes until no more than `depth` are open."""
        thread = self._here()
        while len(thread.around) > depth:
            tags, _ = thread.around.pop()
            if len(thread.around) == depth and not self._is_gone:
                thread.set(tags)

    def settle(self) -> None:
        """Ends the innermost pushes whose `is_open` returns False."""
        around = self._here().around
        while around and (is_open := around[-1][1]) is not None and not is_open():
            self.cut(len(around) - 1)

    def get(self, key: str) -> str | None:
        return self._here().tags.get(key)

    def forget(self) -> None:
        """Forgets all tags in a forked process. The agent does not run there, and its locks may never be released."""
        self._is_gone = True
        for thread in list(self._threads):
            thread.tags = {}

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
