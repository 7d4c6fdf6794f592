"""Sends what torch.compile says about its graphs to sessions with `compiled=True`, as marks. readers.compile_logs reads
them.

torch writes entries about each compilation to the logger `torch.__trace`, if it has a handler: with a file as handler
these entries are the log of TORCH_TRACE. Here a handler of ours keeps the entries about kernels and compilations.

    torch.compile log 7 1/3 eNqrVkrLz1eyUkpKLFKqBQ...     piece 1 of 3 of entry 7: base64 of zlib of JSON
    torch.compile log 7 1/3 earlier eNqrVkrLz1ey...       the same, sent again later
        {"values": {"artifact": {"name": ...}, "frame_id": 0, ...}, "payload": "..."}

A session gets the entries that came before as well, each time that it begins to label: a program mostly compiles in its
first steps, and a tool may collect later ones only.
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
# The entries that opspan itself adds: right after that of a graph, and right before that of mappings.
MODULES: Final = "opspan_modules"
NODES: Final = "inductor_triton_kernel_to_post_grad_nodes"
_IDS: Final = ("compiled_autograd_id", "frame_id", "frame_compile_id", "attempt", "rank")
_PIECE: Final = 3_000  # characters of base64 in a mark. A capture keeps 4,096 bytes of a text
_MOST: Final = 64 << 20  # characters of all marks that are kept
_LONGEST_TEXT: Final = 2_000  # of a value in an entry; longer ones are torch's own settings
_LONGEST_REASON: Final = 16_384

# torch's settings that make the compiler write down where kernels came from, and record kernels on the CPU: newer
# names first, of each group the first that torch has.
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


# The entries that are kept, and what is kept of their payloads.
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
        self._length = 0  # of all marks, in characters
        self._left_out = 0  # entries for which there was no room
        self._to = 0  # the sinks of the sessions that label now, as bits
        self._users = 0
        self._undo = contextlib.ExitStack()
        self._is_set = False  # whether torch's settings were changed

    def start(self) -> None:
        """Listens to torch's log. Its first entry makes the compiler write down where kernels came from: a program that
        compiles nothing does not need to import the compiler's settings."""
        with self._held():
            self._users += 1
            if self._users == 1:
                logger = logging.getLogger("torch.__trace")
                # The first place: torch's own handler leaves the list while it is gone through, if it has no file.
                logger.handlers.insert(0, self)
                self._undo.callback(logger.removeHandler, self)

    def stop(self) -> None:
        """Ends one `start`. After the last of them, torch is as before."""
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
        """Sends what was kept to a sink, from the mark with the number `first` on, and from now on what comes."""
        with self._held():
            self._to |= sink_bit
            self.send(sink_bit, first)

    def turn_off(self, sink_bit: int) -> int:
        """Sends nothing more to a sink. Returns the number of the next mark."""
        with self._held():
            self._to &= ~sink_bit
            return len(self._marks)

    def send(self, sink_bit: int, first: int = 0) -> None:
        """Sends what was kept again, from the mark with the number `first` on."""
        for text in self._marks[first:]:
            begin, _, packed = text.rpartition(" ")
            _mark(f"{begin} earlier {packed}", sink_bit)

    def write(self, path: Path) -> bool:
        """Writes what was kept to a file, as torch writes it with TORCH_TRACE. Returns whether there was anything."""
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
        """Keeps an entry of ours about the compilation that torch's entry is about."""
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
        """Holds the lock that logging holds while `emit` runs. A forked process gets a new one."""
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
    """Gives a setting of torch a value. In newer releases each thread has its own values, and a thread without one uses
    the default. There the default is changed, because threads of autograd compile as well."""
    entry, before = config._config[name], getattr(config, name)
    if _is_by_thread(entry):
        default, entry.default = entry.default, value
        _forget_hash(config, name)
        try:
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
    """Returns whether each thread has its own value of the setting, and this thread has none."""
    from torch.utils import _config_module

    override = getattr(entry, "user_override", None)
    return isinstance(override, ContextVar) and override.get() is _config_module._UNSET_SENTINEL


def _forget_hash(config: Any, name: str) -> None:
    """Makes torch compute the hash of its settings again. The hash is a part of the keys of torch's cache."""
    config._hash_dirty_var.set(True)
    config._mark_get_dict_dirty(name)


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
    # ref_of keeps what it makes, for names that come again.
    ranges.mark(ranges.ref_of.__wrapped__(text), to)


_log = _CompileLog()
start, stop, turn_on, turn_off = _log.start, _log.stop, _log.turn_on, _log.turn_off
send, write = _log.send, _log.write
