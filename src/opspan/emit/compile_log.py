"""Sends torch.compile's log, as marks, to sessions with `compiled=True`. readers.compile_logs reads the marks.

torch writes entries about each compilation to the logger `torch.__trace`, if this logger has a handler. If TORCH_TRACE
is set, torch's own handler writes the entries to a file. This module adds a handler that keeps the entries about
kernels and compilations. Each entry becomes one or more marks with pieces of its JSON:

    {"values": {"artifact": {"name": ...}, "frame_id": 0, ...}, "payload": "..."}     the JSON of an entry
    torch.compile log 7 1/3 eNqrVkrLz1eyUkpKLFKqBQ...     a mark: entry 7, piece 1 of 3 of base64 of zlib of the JSON
    torch.compile log 7 1/3 earlier eNqrVkrLz1ey...       the same piece, sent after the compilation

When a session begins to label, it also gets the earlier entries that it lacks. A program mostly compiles in its first
steps, and a tool may collect only later steps.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import logging
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from opspan.emit import notices, ranges, unharmed
from opspan.emit.compiled_graphs import modules_of_graph, nodes_of_kernels

PREFIX: Final = "torch.compile log"
# Entries that opspan adds: MODULES right after torch's entry of a graph, NODES right before torch's node mappings.
MODULES: Final = "opspan_modules"
NODES: Final = "inductor_triton_kernel_to_post_grad_nodes"
_IDS: Final = ("compiled_autograd_id", "frame_id", "frame_compile_id", "attempt", "rank")
_PIECE: Final = 3_000  # characters of base64 in one mark. A capture keeps only 4,096 bytes of a text
_MOST: Final = 64 << 20  # the most characters to keep, in all marks together
_LONGEST_TEXT: Final = 2_000  # characters. Values that are longer texts, such as torch's settings, become null
_LONGEST_REASON: Final = 16_384

# With these settings of torch, the compiler logs where kernels came from, and its kernels on the CPU are recorded, too.
# Each group has the names of one setting, the newest first. The first name that torch knows is used.
_SETTINGS: Final[tuple[tuple[tuple[str, object], ...], ...]] = (
    (("trace.provenance_tracking_level", 1), ("trace.provenance_tracking", True)),
    (("cpp.enable_kernel_profile", True),),
)
_KEY: Final = re.compile(r'"key": ?"\w{1,200}"')


def _whole(payload: str) -> str:
    return payload


def _key(payload: str) -> str:
    match = _KEY.search(payload)
    return "{%s}" % (match[0] if match else "")


def _reason(payload: str) -> str:
    return payload[:_LONGEST_REASON]


# For each entry that is kept, the function that returns the part of its payload to keep.
_KEPT: Final[dict[str, Callable[[str], str]]] = {
    "dynamo_output_graph": _whole,
    "before_pre_grad_graph": _whole,
    "after_pre_grad_graph": _whole,
    "before_post_grad_graph": _whole,
    "after_post_grad_graph": _whole,
    "inductor_post_grad_graph": _whole,
    "inductor_output_code": _whole,
    "inductor_triton_kernel_to_post_grad_nodes": _whole,
    "inductor_provenance_tracking_node_mappings": _whole,
    "inductor_provenance_tracking_kernel_stack_traces": _whole,
    "fx_graph_cache_miss": _key,
    "fx_graph_cache_hit": _key,
    "fx_graph_cache_bypass": _key,
    "dynamo_graph_break_reason": _reason,
    "compilation_metrics": _whole,
    "bwd_compilation_metrics": _whole,
}


class _CompileLog(logging.Handler):
    """Keeps the entries of this process, and sends them to the sessions that label now."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._marks: list[str] = []
        self._entries = 0
        self._length = 0  # characters of all marks
        self._left_out = 0  # how many entries were not kept, because `_length` had reached `_MOST`
        self._to = 0  # the sinks of the sessions that label now, as bits
        self._users = 0
        self._undo = contextlib.ExitStack()
        self._is_set = False  # whether torch's settings were changed

    def start(self) -> None:
        """Listens to torch's log. `emit` changes torch's settings at the first entry, so that a program that compiles
        nothing does not import the compiler."""
        with self._held():
            self._users += 1
            if self._users == 1:
                logger = logging.getLogger("torch.__trace")
                # Insert at the front: if torch's own handler has no file, it removes itself while logging iterates over
                # the list. Then logging skips the handler that follows.
                logger.handlers.insert(0, self)
                self._undo.callback(logger.removeHandler, self)

    def stop(self) -> None:
        """Undoes one `start`. The last call also restores torch's settings."""
        with self._held():
            self._users -= 1
            if self._users:
                return
            undo, self._undo, self._is_set = self._undo, contextlib.ExitStack(), False
            unharmed.call("setting torch.compile back", undo.close)
            left_out, self._left_out = self._left_out, 0
        if left_out:
            notices.warn_at_end(
                f"compiled=True: {left_out} entries of torch.compile's log were left out, because {_MOST >> 20} MB are "
                "kept; their kernels may have no lines",
                stacklevel=2,
            )

    def turn_on(self, sink_bit: int, first: int = 0) -> None:
        """Sends the kept marks to a sink, beginning with number `first`, and from now on also every new mark."""
        with self._held():
            self._to |= sink_bit
            self.send(sink_bit, first)

    def turn_off(self, sink_bit: int) -> int:
        """Stops sending to a sink. Returns the number of the next mark, for the next `turn_on`."""
        with self._held():
            self._to &= ~sink_bit
            return len(self._marks)

    def send(self, sink_bit: int, first: int = 0) -> None:
        """Sends the kept marks again, beginning with number `first`."""
        for text in self._marks[first:]:
            begin, _, packed = text.rpartition(" ")
            _mark(f"{begin} earlier {packed}", sink_bit)

    def write(self, path: Path) -> bool:
        """Writes the kept entries to a file, in the format of TORCH_TRACE's files. Returns False if there are none."""
        if not self._marks:
            return False
        with path.open("w", encoding="utf-8") as file:
            for entry in _entries(self._marks):
                file.write(_as_logged(entry))
        return True

    def emit(self, record: logging.LogRecord) -> None:
        if not self._is_set:
            self._is_set = True
            unharmed.call("setting torch.compile to say where kernels came from", self._set)
        unharmed.call("keeping torch.compile's log", self._take, record)

    def _take(self, record: logging.LogRecord) -> None:
        values = getattr(record, "metadata", None)
        if not isinstance(values, dict):
            return
        name = _name_of(values)
        if name not in _KEPT:
            return
        if self._length > _MOST:
            self._left_out += 1
            return
        payload = getattr(record, "payload", None)
        entry = {
            "values": {key: _without_long_texts(value) for key, value in values.items()},
            "payload": _KEPT[name](payload) if isinstance(payload, str) else None,
        }
        doing = "looking into compiled graphs"
        self._add(NODES, values, unharmed.call(doing, nodes_of_kernels, name))
        self._keep(entry)
        self._add(MODULES, values, unharmed.call(doing, modules_of_graph, name))

    def _add(self, name: str, values: dict[str, Any], data: object) -> None:
        """Keeps an entry of ours. It gets the ids of the compilation from `values`, the values of torch's entry."""
        if data:
            ids = {key: values[key] for key in _IDS if key in values}
            self._keep({"values": {"artifact": {"name": name}, **ids}, "payload": json.dumps(data, default=list)})

    def _keep(self, entry: dict[str, Any]) -> None:
        self._entries += 1
        for text in _texts(self._entries, entry):
            self._marks.append(text)
            self._length += len(text)
            if self._to:
                _mark(text, self._to)

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Holds this handler's lock, which logging also holds while it calls `emit`. In a forked process, logging gives
        the handler a new lock."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def _set(self) -> None:
        from torch._inductor import config

        for group in _SETTINGS:
            name, value = next(((name, value) for name, value in group if _has(config, name)), ("", None))
            if name and not getattr(config, name):
                self._undo.enter_context(_setting(config, name, value))


def _has(config: Any, name: str) -> bool:
    return name in getattr(config, "_config", {})


@contextlib.contextmanager
def _setting(config: Any, name: str, value: object) -> Iterator[None]:
    """Gives a setting of torch a value during the `with` block. In newer releases of torch, a thread can have its own
    value of a setting; a thread without one uses the default. If this thread has none, the default is changed, so
    that autograd's threads, which compile as well, also get the value."""
    entry, before = config._config[name], getattr(config, name)
    if _is_by_thread(entry):
        default, entry.default = entry.default, value
        try:
            _forget_hash(config, name)
            yield
        finally:
            entry.default = default
            _forget_hash(config, name)
    else:
        setattr(config, name, value)
        try:
            yield
        finally:
            setattr(config, name, before)


def _is_by_thread(entry: Any) -> bool:
    """Returns whether each thread can have its own value of the setting, and this thread has none."""
    from torch.utils import _config_module

    override = getattr(entry, "user_override", None)
    return isinstance(override, ContextVar) and override.get() is _config_module._UNSET_SENTINEL


def _forget_hash(config: Any, name: str) -> None:
    """Makes torch compute the hash of its settings again. Keys of torch's compile cache contain this hash."""
    if hasattr(config, "_hash_dirty_var"):
        config._hash_dirty_var.set(True)
        config._mark_get_dict_dirty(name)
    else:
        config._is_dirty = True  # torch 2.12, where all threads share the hash


def _name_of(values: dict[str, Any]) -> str:
    artifact = values.get("artifact")
    if isinstance(artifact, dict):
        return str(artifact.get("name", ""))
    return next((name for name in values if name in _KEPT), "")


def _without_long_texts(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_long_texts(one) for key, one in value.items()}
    return None if isinstance(value, str) and len(value) > _LONGEST_TEXT else value


def _texts(number: int, entry: dict[str, Any]) -> list[str]:
    """Returns the texts of the marks for an entry."""
    raw = json.dumps(entry, default=str).encode()
    packed = base64.b64encode(zlib.compress(raw)).decode()
    pieces = [packed[begin : begin + _PIECE] for begin in range(0, len(packed), _PIECE)]
    return [f"{PREFIX} {number} {piece}/{len(pieces)} {text}" for piece, text in enumerate(pieces, 1)]


def _entries(marks: list[str]) -> Iterator[dict[str, Any]]:
    packed = ""
    for text in marks:
        pieces, part = text.split(" ")[-2:]
        packed += part
        piece, _, count = pieces.partition("/")
        if piece == count:
            yield json.loads(zlib.decompress(base64.b64decode(packed)))
            packed = ""


def _as_logged(entry: dict[str, Any]) -> str:
    now = time.strftime("%m%d %H:%M:%S")
    values, payload = entry["values"], entry["payload"]
    lines = ""
    if payload is not None:
        digest = hashlib.md5(payload.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()
        values = {**values, "has_payload": digest}
        lines = "".join(f"\t{line}\n" for line in payload.split("\n"))
    return f"V{now}.000000 {os.getpid()} opspan/emit/compile_log.py:1] {json.dumps(values)}\n{lines}"


def _mark(text: str, to: int) -> None:
    # Skip the cache of ref_of: it is for names that repeat, and these long texts do not repeat.
    ranges.mark(ranges.ref_of.__wrapped__(text), to)


_log = _CompileLog()
start, stop, turn_on, turn_off = _log.start, _log.stop, _log.turn_on, _log.turn_off
send, write = _log.send, _log.write
