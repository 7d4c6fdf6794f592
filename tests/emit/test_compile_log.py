"""What sessions with compiled=True do with torch.compile's log, told by entries that a program writes itself."""

from __future__ import annotations

import json
import random
import string
import textwrap
from pathlib import Path

import polars as pl
import pytest

import opspan as package
from builders import compile_log as log
from emit.running import opspan, python, under_collectors

pytest.importorskip("torch")

# torch's own way to write an entry, without a compilation around it.
WRITES = """
    import json, sys, logging, torch, opspan
    def say(name, payload, number=0):
        torch._logging.trace_structured(
            "artifact", lambda: {"name": name, "encoding": "json"}, payload_fn=lambda: payload, suppress_context=True
        )
    def stacks(kernel, line):
        say("inductor_provenance_tracking_kernel_stack_traces",
            json.dumps({kernel: [f'  File "model.py", line {line}, in forward\\n']}))
"""
LINES = pl.col("kernel", "file").cast(pl.String), pl.col("line")


def lines(path: Path) -> list[tuple[str, str, int]]:
    return package.load(path).provenance.select(*LINES).rows()


@pytest.mark.parametrize(
    "session", ["record('run', compiled=True)", "emit_nvtx(compiled=True)", "emit_itt(compiled=True)"]
)
def test_entries_are_in_the_file(session: str, tmp_path: Path) -> None:
    code = (
        WRITES
        + f"""
    with opspan.{session}:
        torch.ones(2)
        stacks("cpp_fused_add_0:1", 7)
        say("fx_graph_runnable", "not kept")
    """
    )
    python(code, env={} if "record" in session else under_collectors(tmp_path / "run"), cwd=tmp_path)
    assert lines(tmp_path / "run") == [("cpp_fused_add_0", "model.py", 7)]
    trace = package.load(tmp_path / "run")
    assert not trace.ranges["is_mark"].any()
    assert "damaged_log" not in trace.issues["code"].cast(pl.String).to_list()


def test_a_session_without_it_keeps_nothing_and_listens_to_nothing(tmp_path: Path) -> None:
    code = (
        WRITES
        + """
    with opspan.record("run"):
        before = list(logging.getLogger("torch.__trace").handlers)
        stacks("cpp_fused_add_0:1", 7)
    print(len(before))
    """
    )
    handlers = int(python(code, cwd=tmp_path))
    assert handlers <= 1  # torch's own
    assert not lines(tmp_path / "run")


def test_later_sessions_get_what_came_before_and_each_entry_once(tmp_path: Path) -> None:
    code = (
        WRITES
        + """
    with opspan.record("first", compiled=True):
        stacks("cpp_fused_add_0:1", 7)
    stacks("cpp_fused_mul_0:1", 8)  # nobody listens
    with opspan.record("second", compiled=True) as session:
        stacks("cpp_fused_sub_0:1", 9)
        for on in (False, True, False, True):
            session.turn(on)
    """
    )
    python(code, cwd=tmp_path)
    assert lines(tmp_path / "first") == [("cpp_fused_add_0", "model.py", 7)]
    assert lines(tmp_path / "second") == [("cpp_fused_add_0", "model.py", 7), ("cpp_fused_sub_0", "model.py", 9)]


def test_a_schedule_gets_what_was_compiled_before_its_steps(tmp_path: Path) -> None:
    code = (
        WRITES
        + """
    from opspan.profiler import profile, schedule
    with profile(schedule=schedule(wait=2, warmup=1, active=1, repeat=1), path="run", compiled=True) as prof:
        for step in range(4):
            torch.ones(2)
            if step == 0: stacks("cpp_fused_add_0:1", 7)
            prof.step()
    """
    )
    python(code, cwd=tmp_path)
    assert lines(tmp_path / "run") == [("cpp_fused_add_0", "model.py", 7)]


def test_a_step_of_a_recording_has_lines_of_an_earlier_step(tmp_path: Path) -> None:
    code = (
        WRITES
        + """
    with opspan.record("run", compiled=True) as session:
        stacks("cpp_fused_add_0:1", 7)
        for _ in range(3):
            with torch.profiler.record_function("Torch-Compiled Region: 0/0"): torch.ones(2)
            session.step()
    """
    )
    python(code, cwd=tmp_path)
    part = package.load(tmp_path / "run", step=2)
    assert part.provenance.height == 1
    assert part.ranges.height < package.load(tmp_path / "run").ranges.height


def test_a_dump_of_a_rolling_recording_has_what_was_compiled_long_before(tmp_path: Path) -> None:
    code = (
        WRITES
        + """
    with opspan.record("run", compiled=True, keep="16MB") as session:
        stacks("cpp_fused_add_0:1", 7)
        for _ in range(400_000): torch.ones(2)
        session.dump("copy")
    """
    )
    python(code, cwd=tmp_path)
    assert lines(tmp_path / "copy") == [("cpp_fused_add_0", "model.py", 7)]


def test_settings_of_torch_are_set_in_all_threads_and_set_back(tmp_path: Path) -> None:
    code = (
        WRITES
        + """
    import threading
    from torch._inductor import config
    def values():
        levels = [getattr(config.trace, name) for name in ("provenance_tracking_level",) if hasattr(config.trace, name)]
        return [*map(int, levels), int(config.cpp.enable_kernel_profile)]
    seen = []
    def look():
        thread = threading.Thread(target=lambda: seen.append(values())); thread.start(); thread.join()
    config.cpp.enable_kernel_profile  # a value that was read before
    look()
    with opspan.record("run", compiled=True):
        look()
        stacks("cpp_fused_add_0:1", 7)
        seen.append(values())
        look()
    seen.append(values())
    look()
    print(json.dumps(seen))
    """
    )
    before, unused, inside, elsewhere, after, after_elsewhere = json.loads(python(code, cwd=tmp_path))
    assert set(before) == {0}
    assert before == unused == after == after_elsewhere
    assert set(inside) == {1} or not inside[:-1]
    assert inside == elsewhere


def test_a_setting_that_the_program_chose_is_kept(tmp_path: Path) -> None:
    code = (
        WRITES
        + """
    from torch._inductor import config
    if not hasattr(config.trace, "provenance_tracking_level"):
        print([2, 2]); sys.exit()
    config.trace.provenance_tracking_level = 2
    with opspan.record("run", compiled=True):
        stacks("cpp_fused_add_0:1", 7)
        inside = config.trace.provenance_tracking_level
    print([inside, config.trace.provenance_tracking_level])
    """
    )
    assert json.loads(python(code, cwd=tmp_path)) == [2, 2]


def test_long_entries_come_in_pieces_and_whole(tmp_path: Path) -> None:
    letters = random.Random(5)
    names = ["cpp_fused_" + "".join(letters.choices(string.ascii_lowercase, k=3_000)) for _ in range(20)]
    (tmp_path / "names.json").write_text(json.dumps(names))
    code = (
        WRITES
        + """
    with opspan.record("run", compiled=True):
        for name in json.load(open("names.json")): stacks(name, 3)
        say("inductor_provenance_tracking_kernel_stack_traces", "{" + " " * 3_000_000 + "}")
        stacks("cpp_fused_\\u00e9\\u4e2d_\\n0", 4)
    """
    )
    python(code, cwd=tmp_path)
    kernels = [kernel for kernel, _, _ in lines(tmp_path / "run")]
    assert kernels == [*names, "cpp_fused_\u00e9\u4e2d_\n0"]


def test_an_error_of_ours_does_not_reach_the_program(tmp_path: Path) -> None:
    code = (
        WRITES
        + """
    from opspan.emit import compile_log
    compile_log._texts = lambda *_: 1 / 0
    with opspan.record("run", compiled=True):
        stacks("cpp_fused_add_0:1", 7)
    print("went on")
    """
    )
    out = python("import warnings; warnings.simplefilter('ignore')\n" + textwrap.dedent(code), cwd=tmp_path)
    assert out == "went on\n"


def test_damaged_marks_are_an_issue_and_the_rest_is_read(tmp_path: Path) -> None:
    code = (
        WRITES
        + """
    import base64, zlib
    def mark(number, place, raw):
        opspan.mark(f"torch.compile log {number} {place} {base64.b64encode(raw).decode()}")
    good = {"values": {"artifact": {"name": "inductor_provenance_tracking_kernel_stack_traces"}},
            "payload": '{"cpp_fused_add_0": ["File \\\\"a.py\\\\", line 3, in f"]}'}
    def packed(value): return zlib.compress(json.dumps(value).encode())
    with opspan.record("run"):
        mark(1, "1/1", packed(good))
        mark(1, "1/1", packed(good))
        mark(2, "1/2", packed(good))
        mark(3, "2/2", packed(good))
        mark(4, "1/1", b"no zlib")
        mark(5, "1/1", packed([1]))
        mark(6, "1/1", packed({"values": 3}))
        mark(7, "1/1", packed({"values": {}, "payload": 3}))
        mark(8, "1/1", packed({"values": {"artifact": {"name": ["x"]}}, "payload": None}))
        mark(9, "1/1", zlib.compress(b"[" * 3_000_000)[:2000])
        mark(10, "1/999999", packed(good))
        opspan.mark("torch.compile log of mine")
    """
    )
    python(code, cwd=tmp_path)
    assert lines(tmp_path / "run") == [("cpp_fused_add_0", "a.py", 3)]
    trace = package.load(tmp_path / "run")
    assert trace.ranges.filter("is_mark")["name"].to_list() == ["torch.compile log of mine"]
    assert trace.issues.filter(code="damaged_log")["count"].sum() == 7


def test_a_log_that_the_user_names_replaces_the_marks(tmp_path: Path) -> None:
    code = (
        WRITES
        + """
    with opspan.record("run", compiled=True):
        torch.ones(2)
        stacks("cpp_fused_add_0:1", 7)
    """
    )
    python(code, cwd=tmp_path)
    path = log.write(tmp_path / "a.log", log.lines({"cpp_fused_add_0:1": [12]}))
    assert package.load(tmp_path / "run", compiled=path).provenance["line"].to_list() == [12]


def test_two_recordings_of_a_process_merged_count_each_compilation_once(tmp_path: Path) -> None:
    code = (
        WRITES
        + """
    with opspan.record("one", compiled=True), opspan.record("two", compiled=True):
        torch.ones(2)
        stacks("cpp_fused_add_0:1", 7)
        torch._logging.trace_structured(
            "compilation_metrics", lambda: {"co_name": "f", "duration_us": 5}, suppress_context=True
        )
    """
    )
    python(code, cwd=tmp_path)
    one, two = package.load(tmp_path / "one"), package.load(tmp_path / "two")
    merged = package.merge(one, two)
    assert merged.compilations.select("function", "duration_ns").rows() == [("f", 5_000)]
    assert merged.provenance.height == one.provenance.height == two.provenance.height == 1
    (end_ns,) = one.compilations["end_ns"]
    assert one.ranges["start_ns"].min() < end_ns


def test_exec_without_a_tool_writes_a_log(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(WRITES) + 'stacks("cpp_fused_add_0:1", 7)\nprint("went on")\n')
    done = opspan("exec", "--compiled", program, cwd=tmp_path)
    (written,) = tmp_path.glob("opspan-compiled-*.log")
    assert done.stdout == "went on\n"
    assert str(written.name) in done.stderr
    python("import torch, opspan\nwith opspan.record('run'): torch.ones(2)", cwd=tmp_path)
    assert package.load(tmp_path / "run", compiled=written).provenance["line"].to_list() == [7]
