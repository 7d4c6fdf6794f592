"""Guesses the kind of a file that no reader knows, and suggests the next command to a user.

If the content does not show the kind, the file's name decides. The file is never run or unpickled, and only a few
kilobytes of it are read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from opspan.errors import ReadError
from opspan.files import open_file
from opspan.formats.compressed import COMPRESSED, FAILURES, opened
from opspan.printable import listed, path_text, printable, python_text, shell_path

LOOKED_AT = 4096
# The number of bytes that are read at the end of a zip file, because the list of the members is there.
TAIL_BYTES = 64 << 10


class Guess(NamedTuple):
    what: str
    todo: str = ""  # advice on the next step; `shown` replaces the word FILE by the path

    @property
    def may_be_part(self) -> bool:
        """True if the file may belong to a trace that is a folder of files."""
        return self.todo in ("", FOLDER)


FOLDER = "load the folder that has all tables of the trace"
EXPORT = "load the trace that it was exported from"
MODEL = "to see what a program does with it: `opspan run --emit nvtx -o capture -- python SCRIPT`"
NO_PICKLE = "opspan opens no pickles: they can run code"
ROCPD = "record again with `rocprofv3 --output-format rocpd ...`, and load the *.db file"
TO_LABEL = "`opspan run --emit nvtx -o capture -- {} FILE`, then `opspan table capture`"
# Formats that opspan cannot read, but other tools can. The advice does not contain FILE, because the same advice is
# shown for compressed files.
SPEEDSCOPE = (
    "it does not say which clock its times are of; samples beside ops: `opspan run --perf --emit nvtx -o capture -- "
    "python SCRIPT`"
)
RECORD = "for opspan use nsys, torch.profiler or `opspan run --emit nvtx -o capture -- python SCRIPT`"
XPLANE = Guess("a profile of JAX or XLA (XSpace)", f"XProf reads it; if the program is PyTorch's, {RECORD}")
PROTON = Guess("a profile of Triton's Proton", f"it has sums and no timeline, and `proton-viewer` reads it; {RECORD}")
EXECUTION = Guess("an execution trace", f"it has ops without times, and PARAM or Chakra replays it; {RECORD}")
PERFETTO = "a trace for Perfetto (protobuf)"
OF_OPSPAN = Guess(f"{PERFETTO} that `opspan export` wrote", f"ui.perfetto.dev reads it; {EXPORT}")
OF_TORCH = Guess(
    f"{PERFETTO} with ops of torch",
    "ui.perfetto.dev reads it; for opspan write JSON: `export_chrome_trace('trace.json')` of torch.profiler",
)
OF_ROCPROF = Guess(f"{PERFETTO} of rocprofv3 or rocprof-sys", f"ui.perfetto.dev reads it; for opspan {ROCPD}")
OF_ANY = Guess(PERFETTO, f"ui.perfetto.dev reads it; {RECORD}")
# These bytes are near the beginning of each Perfetto trace that opspan wrote. They describe a clock with the time 0.
CLOCKS_OF_OPSPAN = b"\x0a\x04\x08\x06\x10\x00"
UNPACK = "unpack it, and load what is inside"

MAGICS = (
    (b"NVR\0", Guess("a report of Nsight Compute", "it has metrics of kernels and no timeline: `ncu --import FILE`")),
    (
        b"PERFILE2",
        Guess("what `perf record` wrote", "to load its text: `perf script --header --ns -F +pid -i FILE > perf.txt`"),
    ),
    (b"NVIDIA Nsight Systems Stream", Guess("a stream of Nsight Systems", "`QdstrmImporter -i FILE` makes a report")),
    (b"PAR1", Guess("one Parquet file", FOLDER)),
    (b"ARROW1", Guess("one Arrow file", FOLDER)),
    (b"\xff\xff\xff\xff", Guess("one Arrow file", FOLDER)),
    (b"\x7fELF", Guess("a program or library", "to capture what it does: `opspan run -o capture -- FILE`")),
    (
        b"\x89HDF\r\n\x1a\n",
        Guess("an HDF5 file", "if it is of an Nsight Systems report: `nsys export --type sqlite REPORT`"),
    ),
    (b"\x93NUMPY", Guess("an array of NumPy")),
    (b"GGUF", Guess("a model (GGUF)", MODEL)),
    *((magic, Guess("an image")) for magic in (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*")),
    (b"%PDF-", Guess("a PDF document")),
    (b"\x7fCORE", Guess("a core dump")),
    (b"Rar!", Guess("a rar archive", UNPACK)),
    (b"7z\xbc\xaf\x27\x1c", Guess("a 7z archive", UNPACK)),
    (b"\x28\xb5\x2f\xfd", Guess("a zstd file", UNPACK + " (`zstd -d FILE`)")),
    (b"\x04\x22\x4d\x18", Guess("an lz4 file", UNPACK + " (`lz4 -d FILE`)")),
)
NAMES_OF_COMPRESSED = {
    b"\x1f\x8b": ("a gzip file", "gunzip -k"),
    b"BZh": ("a bzip2 file", "bunzip2 -k"),
    b"\xfd7zXZ": ("an xz file", "unxz -k"),
}
# Patterns for the beginning of a text file. The first pattern that matches gives the kind of the file.
TEXTS = tuple(
    (re.compile(pattern, re.IGNORECASE | re.MULTILINE), guess)
    for pattern, guess in (
        (r"\A(<!doctype html|<html)", Guess("a page of HTML")),
        (r"\A(<\?xml[^>]*>\s*)?(<!--.*-->\s*|<!doctype svg[^>]*>\s*)*<svg\b", Guess("an image")),
        (r"\A<\?xml", Guess("an XML file")),
        (r"\A#![^\n]*python", Guess("a Python script", TO_LABEL.format("python"))),
        (r"\A#!", Guess("a script", TO_LABEL.format("sh"))),
        (r'\A\{\s*"(cells|nbformat)"', Guess("a notebook", "use `opspan.record` in one of its cells")),
        (r'\A\{[^{]{0,1000}"nodes"\s*:\s*\[[\s\S]*?"(rf_id|fw_parent|op_schema|ctrl_deps)"', EXECUTION),
        (r'\A\[\s*\{\s*"(children|frame)"\s*:[\s\S]*"metrics"\s*:', PROTON),
        (r'"rocprofiler-sdk-tool"', Guess("JSON of rocprofv3", ROCPD)),
        (r"speedscope\.app", Guess("a profile for speedscope", SPEEDSCOPE)),
        (r'\A\{\s*"schema"[^{]*"by"|\A\{\s*"by"', Guess("what `opspan table --format json` printed", EXPORT)),
        (r'\A\{.{0,2000}"traceEvents"|\A\[\s*\{\s*"(ph|name|cat|ts)"', Guess(
            "a Chrome trace without an event of torch.profiler or unitrace",
            "to read it all the same: `opspan.load('FILE', source='kineto')`")),
        (r"\A[\[{]", Guess("a JSON file")),
        (r'^"?(Kind|Domain)"?,.*"?(Agent_Id|Kernel_Name|Function|Correlation_Id|Process_Id)"?',
         Guess("a CSV of rocprofv3", ROCPD)),
        (r'^"?(Index|Name)"?,"?(KernelName|Calls|TotalDurationNs)"?', Guess("a CSV of rocprof", ROCPD)),
        (r'^"?(Time ?\(%\)|Start \(ns\))"?,', Guess(
            "what `nsys stats` printed", "load the report itself: `opspan table REPORT.nsys-rep`")),
        (r'^"?ID"?,"?Process ID"?,"?Process Name"?', Guess(
            "what `ncu --csv` printed", "it has metrics of kernels and no timeline")),
        (r"^==[0-9]+== (NVPROF|Profiling)|^==[0-9]+==", Guess(
            "what nvprof printed", "profile again with `nvprof -o FILE.prof`, and load FILE.prof")),
        (r"\A[^\n]*\bid,.*\bstart_ns\b", Guess("a .csv that opspan or another program exported", EXPORT)),
        (r"\A-{5,}[- ]*\n *Name +Self CPU", Guess(
            "a table that torch.profiler or opspan printed",
            "export the profile itself (`export_chrome_trace`), and load that")),
        (r"^```", Guess("a page of Markdown")),
        (r"^(from \S+ import |import [\w.]+( as \w+)?(, [\w.]+)*\s*(#.*)?$|def \w+\(|class \w+[(:])",
         Guess("a Python script", TO_LABEL.format("python"))),
        (r"\A([^\n;]+;)*[^\n;]+ [0-9]+\n([^\n]+;[^\n]* [0-9]+(\n|$)){2}", Guess("stacks for flame graphs", EXPORT)),
        (r"\A(\w[^,\n]*,){2,}[^,\n]+\n", Guess("a CSV file")),
    )
)  # fmt: skip


def guess(path: Path, head: bytes) -> Guess:
    """Returns the likely kind of the file. `head`: the first bytes of the file."""
    if not head:
        return Guess("an empty file", "its writer failed, or has not begun: record again")
    if not head.strip(b"\0"):
        return Guess(
            "a file that begins with zeros", "its writer may have been killed before it wrote anything: record again"
        )
    if head.startswith(b"SQLite format 3\0"):
        return _of_database(path)
    if head.startswith(b"PK\x03\x04"):
        return _of_zip(path, head)
    if head.startswith(tuple(COMPRESSED)):
        return _of_compressed(path, head)
    return _of_bytes(path, head)


def shown(file_kind: Guess, path: Path) -> str:
    """Returns a sentence with the kind of the file, and advice."""
    todo = file_kind.todo or "expected the output of a profiler: `opspan table --help` lists which"
    # 'FILE' in quotes is in Python code; FILE without quotes is in a shell command.
    todo = todo.replace("'FILE'", python_text(path)).replace("FILE", shell_path(path))
    return f"{path_text(path)} is {file_kind.what}; {todo}"


def _of_bytes(path: Path, head: bytes) -> Guess:
    for magic, known in MAGICS:
        if magic in (head[:64] if magic.startswith(b"NVIDIA") else head[: len(magic)]):
            inside = _by_name(path.with_suffix("")) if known.todo.startswith(UNPACK) else None
            return Guess(f"{known.what} of {inside.what}", inside.todo) if inside else known
    if head[257:262] == b"ustar":
        return Guess(f"a tar archive that begins with {_printable(head[:100].split(bytes(1))[0])}", UNPACK)
    if head[8:12] == b"WEBP" or (head.startswith(b"BM") and head[6:10] == bytes(4)):
        return Guess("an image")
    if b"brain.Event:" in head[:64]:
        return Guess("a log for TensorBoard", "its traces lie beside it as *.pt.trace.json")
    if head[8:10] == b'{"':
        return Guess("a model (safetensors)", MODEL)
    # A text may have a few unprintable characters. Its last character may be incomplete, because only the first bytes
    # of the file were read.
    text = head.decode("utf-8", "ignore")
    odd = sum(not char.isprintable() and char not in "\r\n\t\f\ufeff" for char in text)
    if b"\0" not in head and len(text.encode()) >= len(head) - 3 and odd <= len(text) // 50:
        return _of_text(text)
    # A pickle begins with its protocol and an opcode. Opcode 0x95 begins a frame. A pickle without frames usually
    # begins with one of the other opcodes below.
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05" and head[2:3] in b"\x95}](\x8ac":
        return _of_pickle(head)
    # cProfile writes a dict with marshal. The dict's first key is a tuple of file, line and function.
    if head[:1] in (b"{", b"\xfb") and head[1:3] in (b")\3", b"\xa9\3"):
        return Guess("what cProfile wrote", "it has functions and no ops: `python -m pstats FILE`")
    return _of_protobuf(path, head) or Guess(f"binary data that begins {head[:8].hex(' ')}")


def _of_protobuf(path: Path, head: bytes) -> Guess | None:
    """Distinguishes XSpace from Perfetto's Trace. Both begin with a message in field 1. In XSpace the message is a
    plane with a name such as /host:CPU. In most Perfetto traces the message is a packet that begins with clocks, or
    `head` contains Perfetto's version."""
    if head[:1] == b"\x0a" and re.search(rb"\x12.(/(host|device):[A-Za-z]|Task Environment)", head[:64], re.DOTALL):
        return XPLANE
    is_perfetto = head[:1] == b"\x0a" and (head[2:3] in b"\x32\x56" or b"Perfetto v" in head)
    if is_perfetto or path.suffix.lower() in (".pftrace", ".perfetto-trace", ".proto"):
        if CLOCKS_OF_OPSPAN in head[:16]:
            return OF_OPSPAN
        if re.search(rb"hip_api|hip[A-Z]\w+|hsa_\w+|rocprof|rocm", head):
            return OF_ROCPROF
        return OF_TORCH if re.search(rb"aten::|ProfilerStep#", head) else OF_ANY
    return _by_name(path)


# Suffix of the file's name -> kind, for files that do not begin with known bytes, or that Python cannot unpack.
_NAMES = ((".xplane.pb", XPLANE), (".et", EXECUTION), (".pftrace", OF_ANY), (".perfetto-trace", OF_ANY))


def _by_name(path: Path) -> Guess | None:
    return next((known for ending, known in _NAMES if path.name.lower().endswith(ending)), None)


def _of_text(text: str) -> Guess:
    begins = text.lstrip("\ufeff \r\n\t")
    for pattern, known in TEXTS:
        if pattern.search(begins.replace("\r\n", "\n")):
            return known
    return Guess(f"text that begins {begins.splitlines()[0][:40]!r}" if begins else "a text of spaces only")


def _of_pickle(head: bytes) -> Guess:
    if head.startswith(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."):
        return Guess("a model or tensors that torch.save wrote", MODEL)
    if b"segments" in head or b"device_traces" in head:
        return Guess(
            "a snapshot of torch's memory (a pickle)",
            f"{NO_PICKLE}; look at it on pytorch.org/memory_viz. A timeline of ops is what `opspan run --emit nvtx -o "
            "capture -- python SCRIPT` captures",
        )
    return Guess("a pickle of Python's", NO_PICKLE)


def _of_zip(path: Path, head: bytes) -> Guess:
    first = _printable(head[30 : 30 + int.from_bytes(head[26:28], "little")])
    end = _tail(path)
    if re.search(rb"/(data|constants)\.pkl", head + end):
        return Guess("a model or tensors that torch.save wrote", MODEL)
    if first.endswith(".npy"):
        return Guess("arrays of NumPy")
    if b"xl/workbook.xml" in end or b"xl/worksheets" in end:
        return Guess("an Excel workbook")
    return Guess(f"a zip file that begins with {first}", UNPACK)


def _of_compressed(path: Path, head: bytes) -> Guess:
    (what, command), *_ = (names for magic, names in NAMES_OF_COMPRESSED.items() if head.startswith(magic))
    try:
        with opened(path, head) as stream:
            inside = stream.read(LOOKED_AT)
    except (*FAILURES, ReadError) as error:
        return Guess(f"{what} that cannot be unpacked ({error})", "copy it again")
    if not inside:
        return Guess(f"{what} with nothing in it", "its writer failed, or has not begun: record again")
    if inside.startswith(b"SQLite format 3\0"):
        return Guess(f"{what} of a SQLite database", f"{UNPACK} (`{command} FILE`)")
    content = _of_bytes(path.with_suffix(""), inside)
    # If the advice is to use opspan.load, the user need not unpack the file, because opspan.load unpacks it.
    needs_unpacking = "FILE" in content.todo and "opspan.load(" not in content.todo
    return Guess(f"{what} of {content.what}", f"{UNPACK} (`{command} FILE`)" if needs_unpacking else content.todo)


def _of_database(path: Path) -> Guess:
    from opspan.formats.sqlite import table_names

    try:
        names = sorted(map(_printable, table_names(path)))
    except ReadError as error:
        return Guess(f"a SQLite database that cannot be read ({error})", "copy it again")
    if not names:
        return Guess("a SQLite database without tables", "its writer failed, or has not finished: export it again")
    if {"about", "op_names"} <= set(names) or {"about", "ranges"} <= set(names):
        return Guess("an analysis database that `opspan export` wrote", f"{EXPORT}, or query it: `sqlite3 FILE`")
    if all(name.startswith(("rocpd_", "sqlite_")) for name in names):
        return Guess(
            f"a rocpd database without calls, kernels or ranges (tables {listed(names, most=3)})",
            "record again with `rocprofv3 --output-format rocpd --hip-trace --kernel-trace --marker-trace -- ...`",
        )
    return Guess(f"a SQLite database that no profiler known to opspan wrote (tables {listed(names, most=3)})")


def _tail(path: Path) -> bytes:
    with open_file(path) as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - TAIL_BYTES))
        return stream.read(TAIL_BYTES)


def _printable(name: bytes | str) -> str:
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    return printable(text[:60])
