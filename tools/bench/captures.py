"""Writes opspan captures of any size, like the captures that `opspan.record()` writes while a torch program trains.

    capture(path, ranges=30_000_000, shapes=True)

The captured program is the same as in nsys_files.py: a layer has 24 ops, forward runs on one thread, and backward on
another thread. Every step also has a range of the user around it. In the code, a unit is the record of one range. Units
are rows of numpy arrays, so writing a gigabyte takes two seconds only. In the file, chunks of both threads alternate.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import nsys_files
import numpy as np
import numpy.typing as npt

PAGE, UNIT, HALF = 4096, 64, 32
FIRST_CHUNK, LAST_CHUNK = 1 << 14, 1 << 22
CHUNK_MAGIC = 0x4B4E4843
RANGE, TORCH, USER, SHORT = 1, 1, 2, 15
INT, HAS_FORWARD = 1, 8
OP, BACKWARD, ENGINE, A_USERS = 1, 2, 3, 4
STEP_NS = nsys_files.LAYERS * nsys_files.LAYER_NS * 2

Words = npt.NDArray[np.int64]


def capture(path: Path, ranges: int, shapes: bool) -> Path:
    texts = list(dict.fromkeys(row[3] for row in nsys_files.LAYER))
    sizes = [row[5].replace("{}", str(16 + 8 * batch)) if row[5] else None for batch in range(nsys_files.BATCHES)
             for row in nsys_files.LAYER]  # fmt: skip
    texts += ["train step", *dict.fromkeys(text for text in sizes if text)] if shapes else ["train step"]
    number = {text: place for place, text in enumerate(texts, 1)}
    of_sizes = np.array([number.get(text or "", 0) for text in sizes], dtype=np.uint32).reshape(nsys_files.BATCHES, -1)
    with path.open("wb") as file:
        file.write(_header())
        file.write(_strings(texts))
        logs = {tid: _Log(tid) for tid in (nsys_files.MAIN, nsys_files.AUTOGRAD)}
        for units in _layers(ranges, number, of_sizes):
            for tid, log in logs.items():
                for chunk in log.add(units[tid]):
                    file.write(chunk)
        for log in logs.values():
            file.write(log.rest())
    return path


class _Log:
    """Writes the chunks of one thread."""

    def __init__(self, tid: int) -> None:
        self.tid, self.first, self.chunk_bytes = tid, 0, FIRST_CHUNK
        self.lines: Words = np.empty((0, 8), dtype=np.int64)

    def add(self, units: Words) -> Iterator[bytes]:
        self.lines = np.concatenate([self.lines, _lines(units)])
        while len(self.lines) >= (room := self.chunk_bytes // UNIT - 1):
            yield self._chunk(room)

    def rest(self) -> bytes:
        return self._chunk(self.chunk_bytes // UNIT - 1) if len(self.lines) else b""

    def _chunk(self, room: int) -> bytes:
        head = struct.pack("<2IQ2IQ16s16x", CHUNK_MAGIC, 3, self.chunk_bytes, self.tid, 0, self.first, b"python")
        some, self.lines = self.lines[:room], self.lines[room:]
        chunk = (head + some.tobytes()).ljust(self.chunk_bytes, b"\0")
        self.first += len(some) * UNIT // HALF
        self.chunk_bytes = min(self.chunk_bytes * 4, LAST_CHUNK)
        return chunk


def _lines(units: Words) -> Words:
    """Packs units into lines of 64 bytes. A short unit takes half a line, and any other unit takes a full line."""
    of_torch = units.view(np.uint8)[:, 1] == TORCH
    # A unit of torch without sizes is short.
    is_short = of_torch & (units[:, 6] >> 32 == 0)
    # Find the half line at which each unit begins. A unit that is not short begins at a full line.
    sizes = np.where(is_short, 1, 2)
    places = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    for long in np.flatnonzero(~is_short):
        places[long:] += places[long] % 2
    halves = np.zeros((-(-int(places[-1] + sizes[-1]) // 2) * 2, 4), dtype=np.int64)
    wide, at = units[~is_short], places[~is_short]
    halves[at], halves[at + 1] = wide[:, :4], wide[:, 4:]
    short, at = units[is_short], places[is_short]
    words, flags = np.zeros((len(short), 4), dtype=np.int64), short[:, 0] >> 16
    what = short[:, 5] >> 32 | (flags & INT) * 16 | (flags & HAS_FORWARD) * 4
    words[:, 0] = short[:, 0] >> 32 << 32 | what << 8 | SHORT
    words[:, 1] = short[:, 1]
    words[:, 2] = short[:, 6] << 32 | (short[:, 2] - short[:, 1] + 1)
    words[:, 3] = short[:, 3] << 32 | short[:, 4]
    halves[at] = words
    return halves.reshape(-1, 8)


def _layers(ranges: int, number: dict[str, int], of_sizes: npt.NDArray[np.uint32]) -> Iterator[dict[int, Words]]:
    """Yields the units of 100 steps at a time, as a dict with an array of units for each thread."""
    count = len(nsys_files.LAYER)
    a_step = nsys_files.LAYERS * count + 1
    left, layer, some_steps = ranges, 0, 100
    while left > 0:
        steps = min(some_steps, -(-left // a_step))
        layers = np.arange(layer, layer + steps * nsys_files.LAYERS)
        step, within = layers // nsys_files.LAYERS, layers % nsys_files.LAYERS
        zero = 1_000_000_000 + step * (STEP_NS + 1000)
        by_thread = {}
        for tid in (nsys_files.MAIN, nsys_files.AUTOGRAD):
            rows = [place for place, row in enumerate(nsys_files.LAYER) if row[0] == tid]
            turn = within if tid == nsys_files.MAIN else 2 * nsys_files.LAYERS - 1 - within
            # Sort by time, because backward goes through the layers of a step from the last to the first.
            order = np.argsort(zero + turn * nsys_files.LAYER_NS)
            begin = (zero + turn * nsys_files.LAYER_NS)[order]
            units = np.zeros((len(layers), len(rows), 16), dtype=np.uint32)
            words = units.view(np.int64)
            for at, place in enumerate(rows):
                _, begins, ends, name, nth, _ = nsys_files.LAYER[place]
                is_node = tid == nsys_files.AUTOGRAD and nth is not None
                kind = ENGINE if "evaluate_function" in name else BACKWARD if is_node else OP
                flags = (INT if nth is not None else 0) | (HAS_FORWARD if is_node else 0)
                units[:, at, 0] = RANGE | TORCH << 8 | flags << 16
                units[:, at, 1] = number[name]
                words[:, at, 1], words[:, at, 2] = begin + begins, begin + ends
                words[:, at, 3] = layers[order] * nsys_files.SEQS + nth if nth is not None else 0
                words[:, at, 4] = layers[order] * count + place + 1
                units[:, at, 11], units[:, at, 12] = kind, nsys_files.MAIN if is_node else 0
                units[:, at, 13] = of_sizes[layers[order] % nsys_files.BATCHES, place]
            by_thread[tid] = words.reshape(-1, 8)
        around = np.zeros((steps, 16), dtype=np.uint32)
        words = around.view(np.int64)
        around[:, 0], around[:, 1], around[:, 11] = RANGE | USER << 8, number["train step"], A_USERS
        words[:, 1] = zero[:: nsys_files.LAYERS] - 500
        words[:, 2] = words[:, 1] + STEP_NS + 800
        by_thread[nsys_files.MAIN] = np.insert(
            by_thread[nsys_files.MAIN], np.arange(steps) * (len(by_thread[nsys_files.MAIN]) // steps), words, axis=0
        )
        written = sum(map(len, by_thread.values()))
        if written > left:  # leave out the surplus ranges of the last step
            backward = by_thread[nsys_files.AUTOGRAD]
            by_thread[nsys_files.AUTOGRAD] = backward[: max(0, len(backward) - (written - left))]
        yield by_thread
        left -= written
        layer += steps * nsys_files.LAYERS


def _header() -> bytes:
    times = (900_000_000, 1_700_000_000_000_000_000, 1 << 50, 1_700_000_000_000_000_000 + (1 << 50) - 900_000_000)
    return struct.pack(
        "<8s4I4q2IQ2I64s3072s", b"OPSPANCP", 4, PAGE, nsys_files.PID, 1, *times, 1, 1, 0, 0, 0, b"bench", b"train.py"
    ).ljust(PAGE, b"\0")


def _strings(texts: list[str]) -> bytes:
    entries = b""
    for place, text in enumerate(texts, 1):
        raw = text.encode()
        entries += struct.pack("<2I", len(raw) + 1, place) + raw.ljust(-(-len(raw) // 8) * 8, b"\0")
    size = -(-(UNIT + len(entries) + 8) // PAGE) * PAGE
    return (struct.pack("<2IQ2IQ16s16x", CHUNK_MAGIC, 2, size, 0, 0, 0, b"") + entries).ljust(size, b"\0")
