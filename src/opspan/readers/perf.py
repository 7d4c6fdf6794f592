"""Reads the text that `perf script` prints: samples with stacks. docs/formats/perf.md has more.

# clockid: monotonic (1)
# reference time: 2026-11-29 07:50:06.277823 = 1795938606.277823 (TOD) = 33328.877259747 (monotonic)
python3  2186/2186  [001] 33329.003761001:    1001001 cpu-clock:
        ffffffff816cf345 do_dentry_open ([kernel.kallsyms])
                   3238c setlocale (/usr/lib/x86_64-linux-gnu/libc.so.6)

The lines that begin with # are those of `perf script --header`. Only they tell the host, and the clock of the times.
native/columns/perf.cpp reads the other lines. perf.data is not read: `perf script` makes text of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Final

import polars as pl

from opspan import native
from opspan.errors import NotATrace
from opspan.files import open_file
from opspan.formats import progress
from opspan.formats.budget import EVENT
from opspan.formats.columns import narrow
from opspan.formats.compressed import FAILURES, UnpackedStream, is_compressed, issue_of, opened
from opspan.formats.demangle import demangled, qualified_name
from opspan.printable import path_text
from opspan.tables import Issues, Metadata, Tables
from opspan.tables.schema import STACK_SEPARATOR, empty

PIECE_BYTES: Final = 32 << 20  # so many bytes are parsed at once
SNIFFED_BYTES: Final = 1 << 20  # `perf script --header` prints a line of some KB for each event
_BLANK, _RECORD, _LOST = b"\n\n", "PERF_RECORD_", "PERF_RECORD_LOST"
_HEADER_LINE = re.compile(rb"#(?: [^\n]*)?\n")
# The last line of a text that is not a frame. Frames are indented by a tab.
_LAST_HEADER = re.compile(rb"(?s:.*\n|\A)(?=[^\t\r\n])")
_TOLD = re.compile(r"^# ([a-z ]+?) *: (.*)$", re.MULTILINE)
_CLOCK = re.compile(r"([a-z_]+) \([0-9]+\)")
_MANGLED = re.compile(rf"(?:^|(?<={STACK_SEPARATOR}))_Z[^{STACK_SEPARATOR}]*")
_SECONDS = r"([0-9]{1,10})\.([0-9]{6}|[0-9]{9})"
_REFERENCE = re.compile(rf"= {_SECONDS} \(TOD\) = {_SECONDS} \(")


def sniff(path: Path, head: bytes) -> bool:
    if path.is_dir() or not (is_compressed(head) or _may_be_samples(head)):
        return False
    try:
        with closing(opened(path, head)) as stream:
            text = _filled(stream, SNIFFED_BYTES)
    except FAILURES:
        return False
    _, text = _split_header(text)
    lines = text[:PIECE_BYTES].split(b"\n")[:1000]
    samples = native.perf_samples(_utf8(b"\n".join(lines))[0])
    return samples.height > 1


def _may_be_samples(head: bytes) -> bool:
    """Returns whether the first bytes can be those of the text. Only such a text is looked at more closely."""
    return head.startswith(b"# ========\n") or re.search(rb"[0-9]+\.[0-9]{6,9}: +\S+", head) is not None


def read(path: Path) -> Tables:
    issues = Issues(str(path))
    parts, header = [], ""
    for piece, first in _pieces(path, issues):
        header = header or first
        text, is_odd = _utf8(piece)
        issues.add("undecoded_text", int(is_odd), "parts of the file")
        rows = native.perf_samples(text)
        issues.add("damaged_file", int(rows["left_out"][-1]), "lines that are neither a sample nor a frame of one")
        parts.append(_samples(rows.head(-1), issues))
        progress.add(parts[-1].height)
    rows = pl.concat(parts) if parts else _samples(native.perf_samples(b"").head(-1), issues)
    if rows.is_empty() and not header:
        raise NotATrace(f"{path_text(path)} has no sample as `perf script` prints them")
    without = int(rows["pid"].null_count())
    issues.add("unknown_process", without, "samples with the number of a thread alone")
    facts = dict(_TOLD.findall(header))
    processes = rows.select("pid").drop_nulls().unique(maintain_order=True)
    host = facts.get("hostname") or None
    return Tables(
        (_metadata(path, facts, host),),
        samples=narrow(rows.drop("comm"), "samples", {"cpu": pl.Int32}, issues) if rows.height else empty("samples"),
        # A thread that runs another program, or names itself, has several names one after the other.
        threads=rows.group_by("rank", "pid", "tid", maintain_order=True).agg(name=pl.col("comm").last()),
        processes=processes.select(rank=pl.lit(0, pl.Int32), pid="pid", host=pl.lit(host, pl.Categorical)),
        issues=issues.frame(),
    )


def _samples(rows: pl.DataFrame, issues: Issues) -> pl.DataFrame:
    """Returns the rows that are samples. The text may have other events of perf, if the user asked for them."""
    event = pl.col("event").cast(pl.String)
    is_record = event.str.starts_with(_RECORD)
    others = rows.filter(is_record).group_by(event).len()
    for name, count in others.iter_rows():
        is_lost = name.startswith(_LOST)
        issues.add("lost_events" if is_lost else "skipped_events", count, name.rstrip(":"))
    rows = rows.filter(~is_record)
    issues.add("no_time", rows["time_ns"].null_count(), "samples")
    rows = rows.filter(pl.col("time_ns").is_not_null())
    issues.add("over_budget", int(rows["left_out"].sum()), "outer frames of stacks of more than 4,096 frames")
    rows = rows.with_columns(_demangled(rows["stack"]))
    return rows.select(
        pl.lit(0, dtype=pl.Int32).alias("rank"),
        *("pid", "tid", "time_ns", "cpu", "weight", "event", "stack", "libraries", "comm"),
    )


def _demangled(stacks: pl.Series) -> pl.Series:
    """Returns the stacks with names as in the source. Some builds of perf cannot demangle names, and `--no-demangle`
    leaves them as they are."""
    texts = stacks.unique().drop_nulls().cast(pl.String)
    odd = texts.filter(texts.str.contains("_Z", literal=True))
    if odd.is_empty():
        return stacks
    names = [_MANGLED.sub(lambda match: _name(match[0]), text) for text in odd]
    return stacks.cast(pl.String).replace(odd, pl.Series(names, dtype=pl.String)).cast(stacks.dtype)


@lru_cache(maxsize=65_536)
def _name(mangled: str) -> str:
    own = mangled.partition(".")[0]  # without the suffix of a clone, such as ._omp_fn.0
    name = demangled(own)
    return mangled if name == own else qualified_name(name)


def _metadata(path: Path, facts: dict[str, str], host: str | None) -> Metadata:
    clock, origin = _CLOCK.match(facts.get("clockid", "")), None
    if clock is not None and (times := _REFERENCE.search(facts.get("reference time", ""))):
        utc, reading = (
            (int(whole) * 10**9 + int(part.ljust(9, "0"))) for whole, part in (times.group(1, 2), times.group(3, 4))
        )
        origin = utc - reading
    return Metadata(
        source="perf",
        paths=(str(path),),
        tool="perf",
        tool_version=facts.get("perf version"),
        host=host,
        clock=f"CLOCK_{clock[1].upper()}" if clock else None,
        origin_utc_ns=origin,
        options={"command": facts["cmdline"].strip()} if "cmdline" in facts else {},
    )


# --- the bytes of the file


def _pieces(path: Path, issues: Issues) -> Iterator[tuple[bytes, str]]:
    """Yields the text in pieces of whole samples, and with the first piece the lines before the samples."""
    with closing(opened(path, _head(path))) as stream:
        tail, header = b"", ""
        is_first, is_last = True, False
        while not is_last:
            text, is_last = _filled_or_cut(stream, tail, issues)
            if is_first:
                header, text = _split_header(text)
                is_first = False
            if is_last:
                end = _end_of_whole(text)
                issues.add("truncated_file", int(end < len(text)), "its last sample")
            else:
                end = _begin_of_last(text)
                if not end and len(text) > EVENT.allows():
                    raise EVENT.passed(path)
            text, tail = text[:end], text[end:]
            yield text, header


def _head(path: Path) -> bytes:
    with open_file(path) as stream:
        return stream.read(16)


def _filled(stream: UnpackedStream, size: int) -> bytes:
    """Returns so many bytes, or fewer at the end of the file."""
    parts, left = [], size
    while left > 0 and (part := stream.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _filled_or_cut(stream: UnpackedStream, tail: bytes, issues: Issues) -> tuple[bytes, bool]:
    """Returns the next bytes after the tail, and whether they are the last ones."""
    parts, left = [tail], PIECE_BYTES
    try:
        while left > 0:
            part = stream.read(left)
            if not part:
                return b"".join(parts), True
            parts.append(part)
            left -= len(part)
    except FAILURES as error:
        code, detail = issue_of(error)
        issues.add(code, detail=detail)
        return b"".join(parts), True
    return b"".join(parts), False


def _split_header(text: bytes) -> tuple[str, bytes]:
    """Returns the lines of `perf script --header`, and what follows them."""
    end = 0
    while (line := _HEADER_LINE.match(text, end)) is not None:
        end = line.end()
    return text[:end].decode("utf-8", "replace"), text[end:]


def _begin_of_last(text: bytes) -> int:
    """Returns where the last sample begins, which may go on in the next piece; 0 if there is only one."""
    if (blank := text.rfind(_BLANK)) >= 0:
        return blank + len(_BLANK)
    last = _LAST_HEADER.match(text)
    return last.end() if last else 0


def _end_of_whole(text: bytes) -> int:
    """Returns where the last complete sample ends. perf writes an empty line after each stack."""
    end = text.rfind(b"\n") + 1
    last_line = text[text.rfind(b"\n", 0, max(end - 1, 0)) + 1 : end]
    # In a text without an empty line, no sample has a stack in lines of its own.
    is_header = last_line.rstrip(b" \r\n").endswith(b":") and _BLANK in text
    if not (last_line.startswith(b"\t") or is_header):
        return end
    last = _LAST_HEADER.match(text, 0, end)
    return last.end() if last else 0


def _utf8(text: bytes) -> tuple[bytes, bool]:
    """Returns the text as valid UTF-8, and whether it was not."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace").encode(), True
    return text, False
