"""The text of `perf script`: every form of a line, and all samples as a parser of a line at a time reads them."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import opspan
from builders import perf
from builders.perf import KERNEL, LIBC, MM, PYTHON, READ, TORCH, ZERO_NS, frame, header, sample
from opspan.errors import NotATrace, ReadError
from opspan.readers import perf as reader
from opspan.trace import Trace
from tiers import before_release

# The oracle: it shares nothing with the reader, and reads undamaged text alone.
_HEADER = re.compile(
    r"(?P<comm>.*?) +(?:(?P<pid>-?\d+)/)?(?P<tid>-?\d+) +(?:\[(?P<cpu>\d+)\] +)?(?P<seconds>\d+)\.(?P<part>\d+): +"
    r"(?:(?P<period>\d+) +)?(?P<event>\S+):(?: +(?P<rest>.*))?"
)
_FRAME = re.compile(r"\s*[0-9a-f]+ (?P<name>.*) \((?P<library>(?:[^()]|\(deleted\))*)\)")


def read_slowly(text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for line in text.split("\n"):
        if line.startswith("\t"):
            rows[-1]["frames"].append(_FRAME.fullmatch(line).groups())
        elif line.strip() and not line.startswith("#"):
            parts = _HEADER.fullmatch(line.rstrip()).groupdict()
            inline = _FRAME.fullmatch(parts["rest"] or "")
            rows.append({**parts, "frames": [inline.groups()] if inline else []})
    return [
        {
            "pid": None if row["pid"] is None else int(row["pid"]),
            "tid": int(row["tid"]),
            "time_ns": int(row["seconds"]) * 10**9 + int(row["part"].ljust(9, "0")),
            "cpu": None if row["cpu"] is None else int(row["cpu"]),
            "weight": None if row["period"] is None else int(row["period"]),
            "event": row["event"],
            "stack": joined(re.sub(r"\+0x[0-9a-f]+$", "", name) for name, _ in reversed(row["frames"])),
            "libraries": joined(library for _, library in reversed(row["frames"])),
        }
        for row in rows
    ]


def joined(names: Any) -> str | None:
    return ";".join(name.replace(";", ",") for name in names) or None


def load(folder: Path, *texts: str) -> Trace:
    return opspan.load(perf.write(folder / "perf.txt", texts))


def rows(trace: Trace) -> list[dict[str, Any]]:
    texts = pl.col("event", "stack", "libraries").cast(pl.String)
    return trace.samples.drop("rank").with_columns(texts).to_dicts()


def test_a_sample_is_a_row_with_its_stack_from_the_outermost_function(tmp_path: Path) -> None:
    trace = load(tmp_path, sample(ZERO_NS, MM))

    assert rows(trace) == [
        {
            "pid": perf.PID,
            "tid": perf.MAIN,
            "time_ns": ZERO_NS,
            "cpu": 1,
            "weight": 1_001_001,
            "event": "cpu-clock",
            "stack": "main;at::native::addmm_out(at::Tensor&, int);mkl_blas_sgemm",
            "libraries": f"{PYTHON};{TORCH};{TORCH}",
        }
    ]
    assert trace.issues.is_empty()


# Mangled names, and what `c++filt -p` and perf itself make of them.
MANGLED = {
    "_ZN3c104Type6equalsERKS0_": "c10::Type::equals",
    "_ZNK3c1010TensorType6equalsERKNS_4TypeE": "c10::TensorType::equals",
    "_ZN2at6nativelsIiEERSoS2_RKT_": "at::native::operator<< <int>",
    "_Z3addIfEvPT_": "add<float>",
    "_ZNKSt8functionIFvllEEclEll": "std::function<void (long, long)>::operator()",
    "_ZNK2at6TensorcvbEv": "at::Tensor::operator bool",
    "_ZN2at12_GLOBAL__N_13runEi": "at::(anonymous namespace)::run",
    "_ZN2at8parallelIiEEvlll._omp_fn.0": "at::parallel<int>",
    "_Zbroken": "_Zbroken",
    "py_Z3add": "py_Z3add",
}


def test_mangled_names_are_read_as_perf_demangles_them(tmp_path: Path) -> None:
    frames = [(f"{name}+0x1", TORCH) for name in MANGLED]
    trace = opspan.load(perf.write(tmp_path / "perf.txt", [sample(7, frames), sample(9, frames[:1])]))

    stacks = trace.samples["stack"].cast(pl.String).to_list()
    assert [text.split(";") for text in stacks] == [list(reversed(MANGLED.values())), ["c10::Type::equals"]]


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="c++filt is not installed (binutils)")
def test_mangled_names_of_the_examples_are_those_of_the_real_tool() -> None:
    names = [name for name in MANGLED if "." not in name]
    done = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [MANGLED[name] for name in names]


def test_the_header_tells_the_clock_the_host_and_the_command(tmp_path: Path) -> None:
    known = load(tmp_path, perf.HEADER, *perf.samples()).metadata
    unknown = load(tmp_path, *perf.samples()).metadata

    assert (known.clock, known.host, known.tool_version) == ("CLOCK_MONOTONIC", perf.HOST, "6.1.192")
    assert known.origin_utc_ns == perf.ZERO_UTC_NS - ZERO_NS
    assert known.options["command"].startswith("/usr/bin/perf record -k CLOCK_MONOTONIC")
    assert (unknown.clock, unknown.host, unknown.origin_utc_ns) == (None, None, None)


def test_threads_have_their_last_name_and_processes_their_host(tmp_path: Path) -> None:
    started = sample(ZERO_NS - 5, MM, comm="bash")
    trace = load(tmp_path, perf.HEADER, started, *perf.samples())

    assert trace.threads.select("pid", "tid", pl.col("name").cast(pl.String)).rows() == [
        (perf.PID, perf.MAIN, "python3"),
        (perf.PID, perf.WORKER, "pt_data: 1"),
    ]
    assert trace.processes.select("pid", pl.col("host").cast(pl.String)).rows() == [(perf.PID, perf.HOST)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python3  7/8  [003] 5.000001: 250000 cycles:u: ", ("python3", 7, 8, 3, 5_000_001_000, 250_000, "cycles:u")),
        ("python3     8 [003] 5.000001: 250000 cycles: ", ("python3", None, 8, 3, 5_000_001_000, 250_000, "cycles")),
        ("python3     8 5.000000001: cycles: ", ("python3", None, 8, None, 5_000_000_001, None, "cycles")),
        ("two words 7/8 5.500000: 1 e: ", ("two words", 7, 8, None, 5_500_000_000, 1, "e")),
        ("x 1 2.000000: 7/8 [000] 5.500000: 1 e: ", ("x 1 2.000000:", 7, 8, 0, 5_500_000_000, 1, "e")),
        (" 7/8 5.500000: 1 e: ", ("", 7, 8, None, 5_500_000_000, 1, "e")),
        (":-1    -1/-1   [000] 5.500000: 1 e: ", (":-1", -1, -1, 0, 5_500_000_000, 1, "e")),
        ("#odd 7/8 5.500000: 1 cpu_core/cycles/P: ", ("#odd", 7, 8, None, 5_500_000_000, 1, "cpu_core/cycles/P")),
        ("a 0/0 [001] 5.500000: sched:switch: prev=a b", ("a", 0, 0, 1, 5_500_000_000, None, "sched:switch")),
        ("a 7/8 5.500000: 18446744073709551615 e: ", ("a", 7, 8, None, 5_500_000_000, None, "e")),
    ],
)  # fmt: skip
def test_every_form_of_a_header(line: str, expected: tuple[Any, ...], tmp_path: Path) -> None:
    trace = load(tmp_path, line, "\n", frame("f", LIBC), "\n\n")
    (row,) = rows(trace)
    (name,) = trace.threads["name"]

    assert (name, *(row[key] for key in ("pid", "tid", "cpu", "time_ns", "weight", "event"))) == expected
    assert row["stack"] == "f"


@pytest.mark.parametrize(
    ("line", "function", "library"),
    [
        ("\t           3238c setlocale (/usr/lib/libc.so.6)", "setlocale", "/usr/lib/libc.so.6"),
        ("\tffffffff816cf345 do_open+0x3c5 ([kernel.kallsyms])", "do_open", KERNEL),
        ("\t    7fb7ebc59538 [unknown] ([unknown])", "[unknown]", "[unknown]"),
        ("\t    7fb7ebc59538", "[unknown]", "[unknown]"),
        ("\t    7fb7ebc59538 (/usr/bin/x)", "[unknown]", "/usr/bin/x"),
        ("\t    7fb7ebc59538 name", "name", "[unknown]"),
        ("\t    7f f(int (*)(char), a b) (/usr/bin/x)", "f(int (*)(char), a b)", "/usr/bin/x"),
        ("\t    7f f (/memfd:x (deleted))", "f", "/memfd:x (deleted)"),
        ("\t    7f operator()(int) (.part.0)+0x1 (/a (b)/x.so)", "operator()(int) (.part.0)", "/a (b)/x.so"),
        ("\t    7f f (inlined)", "f", "inlined"),
        ("\t    7f a;b (/x;y)", "a,b", "/x,y"),
        ("\t    7f py::load:/my train.py+0x9 (/tmp/perf-7.map)", "py::load:/my train.py", "/tmp/perf-7.map"),
        ("        7f expanded+0x1 (/usr/bin/x)", "expanded", "/usr/bin/x"),
        ("\t    7f f+0x1 (/usr/bin/x)\r", "f", "/usr/bin/x"),
    ],
)
def test_every_form_of_a_frame(line: str, function: str, library: str, tmp_path: Path) -> None:
    trace = load(tmp_path, header(ZERO_NS), "\n", line, "\n\n")

    assert [(row["stack"], row["libraries"]) for row in rows(trace)] == [(function, library)]
    assert trace.issues.is_empty()


def test_samples_in_one_line_have_one_frame_or_none(tmp_path: Path) -> None:
    padded = f"{header(ZERO_NS, comm='          cafe')}    7f3d init+0xba1 (/usr/bin/x)\n"
    trace = load(tmp_path, padded, padded, header(ZERO_NS), "\n", header(ZERO_NS), "\n")

    assert [row["stack"] for row in rows(trace)] == ["init", "init", None, None]


def test_a_number_that_is_a_threads_alone_is_no_process(tmp_path: Path) -> None:
    trace = load(tmp_path, sample(ZERO_NS, MM, pid=None))

    assert trace.samples.select("pid", "tid").rows() == [(None, perf.MAIN)]
    assert trace.processes.is_empty()
    (issue,) = trace.issues.to_dicts()
    assert (issue["code"], issue["count"]) == ("unknown_process", 1)
    assert "perf script -F +pid" in issue["advice"]


def anything(random: Random) -> str:
    names = ["mm(at::Tensor&)", "[unknown]", "py::f:/a b.py", "operator new[](unsigned long)", "a;b", "naïve"]
    libraries = [KERNEL, LIBC, "[unknown]", "/memfd:x (deleted)", "//anon"]
    texts = []
    for at in range(random.randrange(1, 400)):
        frames = [
            (random.choice(names) + random.choice(["", f"+0x{random.getrandbits(20):x}"]), random.choice(libraries))
            for _ in range(random.choice([0, 1, 3, 30]))
        ]
        fields: dict[str, Any] = {
            "tid": random.randrange(5),
            "pid": random.choice([None, 7]),
            "comm": random.choice(["python3", "a b", "pt_data: 1"]),
            "cpu": random.choice([None, 0, 127]),
            "period": random.choice([None, 1, 1 << 40]),
            "event": random.choice(["cycles", "cpu-clock:u"]),
        }
        text = sample(ZERO_NS + at, frames, **fields)
        one_line = header(ZERO_NS + at, **fields) + "".join(frame(*one)[1:] for one in frames[:1]) + "\n"
        texts.append(random.choice([text, one_line]))
    return "".join(texts)


@pytest.mark.parametrize("seed", before_release(range(40), 8))
@pytest.mark.parametrize("piece", [200, 5_000, reader.PIECE_BYTES])
def test_all_samples_are_those_of_a_parser_of_lines(
    seed: int, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = anything(Random(seed)) + sample(ZERO_NS, MM)
    monkeypatch.setattr(reader, "PIECE_BYTES", piece)

    assert rows(load(tmp_path, text)) == read_slowly(text)


# --- broken and hostile text


@pytest.mark.parametrize("cut", range(1, len(sample(ZERO_NS, READ)), 7))
def test_a_cut_sample_is_left_out_and_noted(cut: int, tmp_path: Path) -> None:
    last = sample(ZERO_NS + 9, READ)
    trace = load(tmp_path, sample(ZERO_NS, MM), last[:-cut])

    assert trace.samples.height == 1
    assert trace.issues["code"].to_list() == ["truncated_file"]


def test_compressed_text_is_read_and_may_be_cut(tmp_path: Path) -> None:
    packed = gzip.compress("".join([perf.HEADER, *perf.samples() * 2000]).encode())
    (tmp_path / "perf.txt.gz").write_bytes(packed)
    (tmp_path / "cut.gz").write_bytes(packed[: len(packed) // 2])

    complete, cut = opspan.load(tmp_path / "perf.txt.gz"), opspan.load(tmp_path / "cut.gz")

    assert (complete.samples.height, complete.issues.height) == (14_000, 0)
    assert 1_000 < cut.samples.height < 14_000
    assert set(cut.issues["code"]) == {"truncated_file"}


def test_other_lines_are_counted(tmp_path: Path) -> None:
    record = "python3 7/7 [000] 5.500000: PERF_RECORD_COMM exec: python3:7/7\n"
    lost = "python3 7/7 [000] 5.500000: PERF_RECORD_LOST lost 12\n"
    trace = load(tmp_path, frame("stray", LIBC), "\nWarning: something\n", record, lost, sample(ZERO_NS, MM))

    assert trace.samples.height == 1
    counts = dict(zip(trace.issues["code"].to_list(), trace.issues["count"].to_list(), strict=True))
    assert counts == {"damaged_file": 2, "skipped_events": 1, "lost_events": 1}


def test_impossible_numbers_are_left_out(tmp_path: Path) -> None:
    far = "a 7/8 [99999999999] 5.500000: 1 e: \n"
    late = "a 7/8 [0] 9223372036854.500000: 1 e: \n"
    trace = load(tmp_path, far, late, sample(ZERO_NS, MM))

    assert trace.samples["cpu"].to_list() == [None, 1]
    assert set(trace.issues["code"]) == {"odd_cells", "no_time"}


def test_bytes_that_are_no_utf_8_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "perf.txt").write_bytes(sample(ZERO_NS, [("caf\0X", LIBC)]).encode().replace(b"X", b"\xff\xc3"))
    trace = opspan.load(tmp_path / "perf.txt")

    assert rows(trace)[0]["stack"] == "caf\0\ufffd\ufffd"
    assert trace.issues["code"].to_list() == ["undecoded_text"]


def test_a_hundred_thousand_frames_are_cut_to_the_innermost(tmp_path: Path) -> None:
    trace = load(tmp_path, sample(ZERO_NS, [(f"f{at}", LIBC) for at in range(100_000)]))

    names = trace.samples["stack"][0].split(";")
    assert (len(names), names[0], names[-1]) == (4096, "f4095", "f0")
    assert trace.issues.select("code", "count").rows() == [("over_budget", 100_000 - 4096)]


@pytest.mark.parametrize(
    "line", ["(" * 1_000_000, ")" * 1_000_000, "1.0: " * 200_000, " " * 1_000_000, "a" * 1_000_000]
)
def test_endless_lines_take_little_time(line: str, tmp_path: Path) -> None:
    began = time.monotonic()
    trace = load(tmp_path, sample(ZERO_NS, MM), line, "\n\n", header(ZERO_NS), f"\n\t 7f {line} (x)\n\n")

    assert trace.samples.height >= 2
    assert time.monotonic() - began < 10


@pytest.mark.slow
def test_a_million_names_are_read(tmp_path: Path) -> None:
    text = "".join(sample(ZERO_NS + at, [(f"f{20 * at + n}", LIBC) for n in range(20)]) for at in range(50_000))
    trace = load(tmp_path, text)

    assert trace.samples["stack"].n_unique() == 50_000
    assert trace.samples["libraries"].n_unique() == 1


@pytest.mark.parametrize("seed", range(30))
def test_random_damage_is_an_issue_or_one_error(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    text = bytearray("".join([perf.HEADER, *perf.samples() * 20]).encode())
    for _ in range(random.choice([1, 30, 1000])):
        text[random.randrange(len(text))] = random.choice(b"\n\t\0 :/()[]0f\xff")
    (tmp_path / "perf.txt").write_bytes(text)
    with suppress(ReadError):
        opspan.load(tmp_path / "perf.txt").export(tmp_path / "out.sqlite")


def test_perf_data_is_refused_with_the_command_that_prints_its_text(tmp_path: Path) -> None:
    (tmp_path / "perf.data").write_bytes(b"PERFILE2" + bytes(1000))
    with pytest.raises(NotATrace, match=r"perf script --header --ns -F \+pid -i \S*perf.data > perf.txt"):
        opspan.load(tmp_path / "perf.data")


@pytest.mark.parametrize("text", ["# ========\n# captured on : x\n# ========\n#\n", "at 12.345678: x\n", "#" * 10_000])
def test_text_without_a_sample_is_no_trace(text: str, tmp_path: Path) -> None:
    with pytest.raises(NotATrace):
        load(tmp_path, text)


def test_real_text_is_read_as_the_parser_of_lines_reads_it(tmp_path: Path) -> None:
    if (why := perf.why_not()) is not None:
        pytest.skip(why)
    data, loop = tmp_path / "perf.data", "sum(n * n for n in range(2_000_000))"
    record = ["perf", "record", "-q", "-k", "CLOCK_MONOTONIC", "-e", "cpu-clock", "-g", "-o", data]
    subprocess.run([*record, "--", sys.executable, "-c", loop], check=True, capture_output=True)
    for fields in (["-F", "+pid"], ["-F", "comm,tid,time,event,ip,sym,dso"], ["-G"], []):
        script = ["perf", "script", "--header", "--ns", *fields, "-i", data]
        text = subprocess.run(script, check=True, capture_output=True, text=True).stdout
        trace = load(tmp_path, text)

        assert rows(trace) == read_slowly(text)
        assert trace.samples.height > 10
        assert trace.metadata.clock == "CLOCK_MONOTONIC"
        assert set(trace.issues["code"]) <= {"unknown_process"}
        now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        assert 0 < now_ns - trace.samples["time_ns"].max() < 3600 * 10**9
